/*
 * attend_few.c - calls with few rows to each key head (decoding): which kernel, and how they are
 * cut.
 */
#include "kernels/attend_unit.h"

enum { FEW_UNITS = 8 }; /* with their keys cut; fewer do not keep threads in step */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

const struct cpa_attend_type *cpa_attend_few_type(
	const struct cpa_attend_type *type, const struct cpa_attend *attend)
{
	int64_t g = attend->problem->Hq / attend->problem->Hkv,
		nheads = attend->heads.end - attend->heads.start;
	int64_t rows = attend->nq * least(g, nheads);

	for (int i = 0; i < 2; i++)
		if (type->few[i] && type->few[i]->takes(attend, rows))
			return type->few[i];
	return type;
}

/* The heads of the call that use that key head, by global ids. */
static struct cpa_range heads_of(const struct cpa_attend *attend, int64_t kv)
{
	int64_t g = attend->problem->Hq / attend->problem->Hkv;
	struct cpa_range heads = {kv * g, kv * g + g};

	if (heads.start < attend->heads.start)
		heads.start = attend->heads.start;
	heads.end = least(heads.end, attend->heads.end);
	return heads;
}

/* Key heads of a unit at most: as many as fit, unless units for threads to share would be few
 * even with their keys cut. */
static int64_t heads_together(
	const struct cpa_attend *attend, const struct cpa_attend_type *type)
{
	int64_t g = attend->problem->Hq / attend->problem->Hkv, rows = attend->nq * g;
	int64_t nb = attend->batches.end - attend->batches.start;
	struct cpa_range kv = cpa_heads_kv(attend->heads, g);
	int64_t nparts = attend->nk / CPA_SPLIT_KEYS, most, nunits;

	nparts = nb * (nparts < 1 ? 1 : least(nparts, CPA_MAX_SPLITS));
	nunits = (FEW_UNITS + nparts - 1) / nparts;
	if ((double)(rows * (kv.end - kv.start) * nb) * (double)attend->nk *
			(double)(attend->problem->D + attend->problem->Dv) <
		CPA_PARALLEL_FROM)
		nunits = 1;
	most = least((kv.end - kv.start) / nunits,
		type->together / (rows > type->lanes ? rows : type->lanes));
	return most > 1 ? most : 1;
}

int64_t cpa_attend_cut_few(const struct cpa_attend_call *call, const struct cpa_attend_type *type,
	struct cpa_attend_unit *units, int *nrows)
{
	const struct cpa_attend *attend = call->attend;
	int64_t nb = attend->batches.end - attend->batches.start, n = 0;
	int64_t most = heads_together(attend, type);
	struct cpa_range kv = cpa_heads_kv(
		attend->heads, attend->problem->Hq / attend->problem->Hkv);

	*nrows = 0;
	for (int64_t b = 0; b < nb; b++)
		for (int64_t i = kv.start, nkv; i < kv.end; i += nkv, n++) {
			struct cpa_range heads = heads_of(attend, i), next;
			int64_t nheads = heads.end - heads.start;

			for (nkv = 1; nkv < most && i + nkv < kv.end; nkv++) {
				next = heads_of(attend, i + nkv);
				if (next.end - next.start != nheads)
					break;
			}
			if (nkv * nheads * attend->nq > *nrows)
				*nrows = (int)(nkv * nheads * attend->nq);
			if (units)
				units[n] = (struct cpa_attend_unit){.call = call,
					.b = b,
					.kv = i - attend->kv_first,
					.head = heads.start - attend->heads.start,
					.n = (int)(attend->nq * nheads),
					.nkv = (int)nkv,
					.nsplits = 1};
		}
	return n;
}

void cpa_unit_blocks(const struct cpa_attend_unit *unit, const struct cpa_sight *sight, int split,
	void (*block)(void *context, struct cpa_range keys, int64_t start), void *context)
{
	int64_t nblocks = 0, first, end, at = 0, before = 0;

	for (int i = 0; i < sight->npieces; i++)
		nblocks += cpa_range_nblocks(sight->piece[i]);
	first = nblocks * split / unit->nsplits;
	end = nblocks * (split + 1) / unit->nsplits;
	for (int i = 0; i < sight->npieces && at < end; i++) {
		struct cpa_range piece = sight->piece[i];

		for (int64_t j = piece.start; j < piece.end && at < end; j += CPA_KEY_BLOCK, at++)
			if (at >= first)
				block(context,
					(struct cpa_range){j, least(j + CPA_KEY_BLOCK, piece.end)},
					before + j - piece.start);
		before += piece.end - piece.start;
	}
}
