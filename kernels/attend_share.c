/*
 * attend_share.c - what all units of a call over one key head share, for kernels that want keys
 * in another form: made once, before the units.
 */
#include "kernels/attend_unit.h"

#include <stdlib.h>
#include <string.h>

static void find_seen(const struct cpa_attend_call *call, int64_t nb)
{
	int64_t nq = call->attend->nq, nk = call->attend->nk;

	for (int64_t b = 0; b < nb; b++)
		for (int64_t t = 0, done = 0; t < nq; t++) {
			struct cpa_range keys = call->visible[b * nq + t];

			/* Neighbours see much the same; what the last one saw is marked. */
			if (t > 0 && keys.start >= call->visible[b * nq + t - 1].start &&
				keys.start < done)
				keys.start = done;
			if (keys.start >= keys.end)
				continue;
			memset(call->seen + b * nk + keys.start, 1,
				(size_t)(keys.end - keys.start));
			done = keys.end;
		}
}

enum cpa_status cpa_attend_share(struct cpa_attend_call *call, const struct cpa_attend_type *type,
	int nthreads, struct cpa_error *error)
{
	const struct cpa_attend *attend = call->attend;
	struct cpa_range kv = cpa_heads_kv(
		attend->heads, attend->problem->Hq / attend->problem->Hkv);
	int64_t nb = attend->batches.end - attend->batches.start, nkv = kv.end - kv.start;
	size_t nbytes;

	if (!type->share)
		return CPA_OK;
	call->shared_kv = (struct cpa_range){
		kv.start - attend->kv_first, kv.end - attend->kv_first};
	call->shared_nbytes = type->shared_nbytes(attend);
	nbytes = (size_t)(nb * nkv) * call->shared_nbytes;
	call->seen = calloc((size_t)(nb * attend->nk) + 1, 1);
	call->shared = cpa_memory_take(nbytes + 1);
	if (!call->seen || !call->shared)
		return cpa_fail(error, CPA_NO_MEMORY,
			"attend: no memory for %zu bytes of keys and values in tiles", nbytes);
	find_seen(call, nb);
	(void)nthreads;
	CPA_OMP(omp parallel for schedule(static) num_threads(nthreads) if (nthreads > 1))
	for (int64_t i = 0; i < nb * nkv * CPA_SHARED_PARTS; i++) {
		int64_t head = i / CPA_SHARED_PARTS;

		type->share(call, head / nkv, call->shared_kv.start + head % nkv,
			(int)(i % CPA_SHARED_PARTS));
	}
	CPA_OMP(omp parallel for schedule(static) num_threads(nthreads) if (nthreads > 1))
	for (int64_t i = 0; i < nb * nkv; i++)
		type->share_end(call, i / nkv, call->shared_kv.start + i % nkv);
	return CPA_OK;
}
