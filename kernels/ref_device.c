/*
 * ref_device.c - device "ref": attention row by row in fp64, partials in fp64.
 *
 * Textbook order: all scores of a row, their maximum, weights, sums.  Keys of one head are
 * widened once and k is turned, so that the loops over keys (scores) and features (output)
 * vectorise.
 */
#include "kernels/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Keys that are added up apart, which keeps chains of additions short. */
enum { CHUNK = 64, PARALLEL_FROM = 1 << 22 };

/* One batch item and key head, widened. */
struct keys {
	double *k; /* [D][nk] */
	double *v; /* [nk][Dv] */
	int64_t nk, D, Dv;
};

/* Scratch of one row: q [D], p [nk], o and part [Dv]. */
struct row {
	double *q, *p, *o, *part;
};

/* One call: which keys rows see, [batches][nq]; and, with a mask, ids of tokens [nq], [nk]. */
struct call {
	const struct cpa_attend *attend;
	struct cpa_range *visible;
	int64_t *q_ids, *k_ids;
};

static void load_keys(const struct cpa_attend *attend, int64_t b, int64_t kv, struct keys *keys)
{
	const struct cpa_array *k = &attend->k, *v = &attend->v;

	for (int64_t j = 0; j < keys->nk; j++) {
		double *row = keys->v + j * keys->Dv;
		int64_t at = cpa_array_index(k, j, b, kv);

		cpa_run_convert(CPA_DTYPE_FP64, row, v->dtype,
			cpa_element(v, cpa_array_index(v, j, b, kv)), keys->Dv);
		for (int64_t d = 0; d < keys->D; d++)
			keys->k[d * keys->nk + j] = cpa_load(k->dtype, k->data, at + d);
	}
}

CPA_CLONES static void add_scaled(
	double *restrict y, double factor, const double *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += factor * x[i];
}

/* Adds what the mask has for row i of query head h and keys seen.start + j to p[j]. */
static void add_mask(const struct call *call, struct cpa_range seen, int64_t i, int64_t b,
	int64_t h, double *p)
{
	const struct cpa_attend *attend = call->attend;

	for (int64_t j = seen.start; j < seen.end; j++)
		p[j - seen.start] += cpa_mask_value(attend->problem, attend->batches.start + b,
			attend->heads.start + h, call->q_ids[i], call->k_ids[j]);
}

/* Scores p of the row over the keys it sees by interval. */
static void score_row(const struct keys *keys, struct cpa_range seen, struct row *row)
{
	int64_t n = seen.end - seen.start;

	memset(row->p, 0, (size_t)n * sizeof *row->p);
	for (int64_t d = 0; d < keys->D; d++)
		add_scaled(row->p, row->q[d], keys->k + d * keys->nk + seen.start, n);
}

/* o of the row and its lse, from scores; -infinity is a key that is not visible. */
static double attend_row(const struct keys *keys, struct cpa_range seen, struct row *row)
{
	double *p = row->p, max = -INFINITY, l = 0;
	int64_t n = seen.end - seen.start;

	for (int64_t j = 0; j < n; j++)
		if (p[j] > max || isnan(p[j])) /* memory that was never written must show */
			max = p[j];
	if (max == -INFINITY)
		return max;
	for (int64_t start = 0; start < n; start += CHUNK) {
		int64_t end = start + CHUNK < n ? start + CHUNK : n;
		double part = 0;

		memset(row->part, 0, (size_t)keys->Dv * sizeof *row->part);
		for (int64_t j = start; j < end; j++) {
			double weight = exp(p[j] - max);

			part += weight;
			add_scaled(row->part, weight, keys->v + (seen.start + j) * keys->Dv,
				keys->Dv);
		}
		l += part;
		add_scaled(row->o, 1, row->part, keys->Dv);
	}
	for (int64_t d = 0; d < keys->Dv; d++)
		row->o[d] /= l;
	return max + log(l);
}

/* Row i of query head h (indices of the arrays). */
static void do_row(const struct call *call, const struct keys *keys, int64_t i, int64_t b,
	int64_t h, struct row *row)
{
	const struct cpa_attend *attend = call->attend;
	const struct cpa_array *q = &attend->q, *o = &attend->o, *lse = &attend->lse;
	struct cpa_range seen = call->visible[b * attend->nq + i];
	double value = -INFINITY;

	cpa_run_convert(CPA_DTYPE_FP64, row->q, q->dtype,
		cpa_element(q, cpa_array_index(q, i, b, h)), keys->D);
	for (int64_t d = 0; d < keys->D; d++)
		row->q[d] *= attend->problem->scale;
	memset(row->o, 0, (size_t)keys->Dv * sizeof *row->o);
	if (seen.start < seen.end) {
		score_row(keys, seen, row);
		if (call->k_ids)
			add_mask(call, seen, i, b, h, row->p);
		value = attend_row(keys, seen, row);
	}
	cpa_run_convert(o->dtype, cpa_element(o, cpa_array_index(o, i, b, h)), CPA_DTYPE_FP64,
		row->o, keys->Dv);
	cpa_store(lse->dtype, lse->data, cpa_array_index(lse, i, b, h), value);
}

/* All rows of query heads `heads` (of the arrays), which share the keys.  False: out of memory.
 */
static bool do_heads(const struct call *call, const struct keys *keys, int64_t b,
	struct cpa_range heads)
{
	int64_t nq = call->attend->nq, nrows = (heads.end - heads.start) * nq;
	size_t size = (size_t)(keys->D + keys->nk + 2 * keys->Dv) * sizeof(double);
	bool failed = false;

	CPA_OMP(omp parallel if (nrows * keys->nk * (keys->D + keys->Dv) >= PARALLEL_FROM)
			reduction(||
				  : failed))
	{
		double *work = malloc(size);
		struct row row = {work, NULL, NULL, NULL};

		if (work) {
			row.p = row.q + keys->D;
			row.o = row.p + keys->nk;
			row.part = row.o + keys->Dv;
		}
		failed = !work;
		CPA_OMP(omp for schedule(dynamic, 16))
		for (int64_t i = 0; i < nrows; i++)
			if (work)
				do_row(call, keys, i % nq, b, heads.start + i / nq, &row);
		free(work);
	}
	return !failed;
}

static bool do_all(const struct call *call, struct keys *keys)
{
	const struct cpa_attend *attend = call->attend;
	int64_t g = attend->problem->Hq / attend->problem->Hkv,
		nb = attend->batches.end - attend->batches.start;
	struct cpa_range kv_heads = cpa_heads_kv(attend->heads, g);

	for (int64_t b = 0; b < nb; b++)
		for (int64_t kv = kv_heads.start; kv < kv_heads.end; kv++) {
			int64_t first =
				kv * g > attend->heads.start ? kv * g : attend->heads.start;
			int64_t end = (kv + 1) * g < attend->heads.end ? (kv + 1) * g
								       : attend->heads.end;

			load_keys(attend, b, kv - attend->kv_first, keys);
			if (!do_heads(call, keys, b,
				    (struct cpa_range){first - attend->heads.start,
					    end - attend->heads.start}))
				return false;
		}
	return true;
}

static enum cpa_status ref_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	int64_t D = attend->problem->D, Dv = attend->problem->Dv, nk = attend->nk;
	bool masked = attend->problem->rule.mask.kind != CPA_MASK_NONE, done = false;
	struct call call = {attend, cpa_host_visible(attend), NULL, NULL};
	double *memory = malloc((size_t)(nk * (D + Dv)) * sizeof *memory + 1);
	struct keys keys = {memory, NULL, nk, D, Dv};

	(void)device;
	(void)queue;
	if (masked) {
		call.q_ids = cpa_host_tokens(&attend->q_tokens, attend->nq);
		call.k_ids = cpa_host_tokens(&attend->k_tokens, nk);
	}
	if (call.visible && memory && (!masked || (call.q_ids && call.k_ids))) {
		keys.v = keys.k + nk * D;
		done = do_all(&call, &keys);
	}
	free(memory);
	free(call.visible);
	free(call.q_ids);
	free(call.k_ids);
	return done ? CPA_OK
		    : cpa_fail(error, CPA_NO_MEMORY, "attend: no memory for %lld keys in fp64",
			      (long long)nk);
}

/* libm's exp is right to one unit in the last place, which is two of roundoff. */
static struct cpa_arithmetic ref_arithmetic(const struct cpa_problem *problem)
{
	(void)problem;
	return (struct cpa_arithmetic){.u = 0x1p-53,
		.c_exp = 2,
		.chain = CHUNK,
		.chain_key = 1. / CHUNK,
		.rounds_p = false};
}

static const struct cpa_device_ops ops = {
	.name = "ref",
	.alloc = cpa_host_alloc,
	.free = cpa_host_free,
	.upload = cpa_host_transfer,
	.download = cpa_host_transfer,
	.supports = cpa_host_supports,
	.copy = cpa_host_copy,
	.attend = ref_attend,
	.merge = cpa_host_merge,
	.poison = cpa_host_poison,
	.event_record = cpa_host_event_record,
	.event_wait = cpa_host_event_wait,
	.event_done = cpa_host_event_done,
	.event_free = cpa_host_event_free,
	.destroy = cpa_host_destroy,
};

enum cpa_status cpa_ref_device_create(struct cpa_device **device, struct cpa_error *error)
{
	return cpa_host_create(&ops, ref_arithmetic, true, device, error);
}
