/*
 * diagnose_sample.c - the part of a call that faulty runs are made on.
 */
#include "harness/diagnose_sample.h"

#include <string.h>

double cpa_sample_nflop(const struct cpa_problem *p)
{
	return 2.0 * (double)(p->B * p->Hq) * (double)p->Sq * (double)p->Skv *
	       (double)(p->D + p->Dv);
}

/* ---- which heads ---- */

static int64_t nwrong_of(const struct cpa_suspect *s, int64_t kv)
{
	int64_t n = 0, g = s->problem->Hq / s->problem->Hkv;
	for (int i = 0; i < s->nrows; i++)
		n += s->rows[i].wrong && s->rows[i].h / g == kv;
	return n;
}

/* kv [U] out: of each ulysses rank its key head with most wrong rows. */
static void choose_key_heads(const struct cpa_suspect *s, int64_t *kv)
{
	int64_t each = s->problem->Hkv / s->U;
	for (int64_t u = 0; u < s->U; u++) {
		int64_t most = -1;
		for (int64_t h = u * each; h < (u + 1) * each; h++) {
			int64_t n = nwrong_of(s, h);
			if (n > most) {
				most = n;
				kv[u] = h;
			}
		}
	}
}

static void choose_heads(struct cpa_sample *x, const struct cpa_suspect *s, const int64_t *kv)
{
	int64_t g = s->problem->Hq / s->problem->Hkv;
	for (int64_t h = 0; h < s->problem->Hq; h++)
		x->place[h] = -1;
	for (int64_t h = 0; h < x->exact.Hq; h++) {
		x->head[h] = kv[h / g] * g + h % g;
		x->place[x->head[h]] = (int)h;
	}
}

/* ---- what they have ---- */

/* The heads out of [B, S, H, D].  heads [n] */
static void *take(struct cpa_arena *arena, const struct cpa_problem *p, enum cpa_tensor tensor,
	const void *from, const int64_t *heads, int64_t n, enum cpa_dtype to)
{
	bool q = tensor == CPA_TENSOR_Q;
	int64_t S = cpa_tensor_ntokens(p, tensor), H = q ? p->Hq : p->Hkv,
		D = tensor == CPA_TENSOR_V ? p->Dv : p->D;
	void *data = cpa_arena_alloc(
		arena, (size_t)(p->B * S * n * D + 1) * cpa_dtype_nbytes(to));
	for (int64_t i = 0; data && i < p->B * S * n; i++)
		for (int64_t d = 0; d < D; d++)
			cpa_store(to, data, i * D + d,
				cpa_load(p->dtype, from, (i / n * H + heads[i % n]) * D + d));
	return data;
}

static void take_sink(struct cpa_sample *x, const struct cpa_suspect *s)
{
	double *sink = cpa_arena_alloc(&x->arena, (size_t)x->exact.Hq * sizeof *sink);
	for (int64_t h = 0; sink && h < x->exact.Hq; h++)
		sink[h] = s->problem->rule.sink[x->head[h]];
	x->exact.rule.sink = x->rounded.rule.sink = sink;
}

/* A mask of its own for each head, by head. */
static void take_mask(struct cpa_sample *x, const struct cpa_suspect *s)
{
	const struct cpa_problem *p = s->problem;
	struct cpa_mask mask = p->rule.mask;
	int64_t Q = mask.query ? p->Sq : 1, K = mask.key ? p->Skv : 1, B = mask.batch ? p->B : 1,
		n = x->exact.Hq;
	size_t e = mask.kind == CPA_MASK_BOOL ? 1 : cpa_dtype_nbytes(mask.dtype);
	char *data = cpa_arena_alloc(&x->arena, (size_t)(B * n * Q * K) * e);
	for (int64_t i = 0; data && i < B * n * Q * K; i++) {
		int64_t k = i % K, q = i / K % Q, h = i / K / Q % n, b = i / K / Q / n;
		memcpy(data + (size_t)i * e,
			(const char *)mask.data +
				(size_t)(b * mask.batch + x->head[h] * mask.head +
					q * mask.query + k * mask.key) * e,
			e);
	}
	mask.data = data;
	mask.batch = B > 1 ? n * Q * K : 0;
	mask.head = Q * K;
	mask.query = Q > 1 ? K : 0;
	x->exact.rule.mask = x->rounded.rule.mask = mask;
}

static void take_rows(struct cpa_sample *x, const struct cpa_suspect *s)
{
	const struct cpa_problem *p = s->problem;
	x->rows = cpa_arena_alloc(&x->arena, ((size_t)s->nrows + 1) * sizeof *x->rows);
	x->wanted = cpa_arena_alloc(&x->arena, (size_t)(p->B * p->Sq));
	if (x->arena.failed)
		return;
	memset(x->wanted, 0, (size_t)(p->B * p->Sq));
	for (int i = 0; i < s->nrows; i++) {
		if (x->place[s->rows[i].h] < 0)
			continue;
		x->rows[x->nrows++] = s->rows[i];
		x->wanted[s->rows[i].b * p->Sq + s->rows[i].t] = 1;
	}
}

static void take_tensors(struct cpa_sample *x, const struct cpa_suspect *s, const int64_t *kv)
{
	const struct cpa_tensors *from = &s->checked->tensors;
	struct cpa_problem *const problems[2] = {&x->exact, &x->rounded};
	struct cpa_tensors *const tensors[2] = {&x->exact_tensors, &x->rounded_tensors};
	for (int i = 0; i < 2; i++) {
		enum cpa_dtype to = problems[i]->dtype;
		*tensors[i] = (struct cpa_tensors){problems[i],
			take(&x->arena, s->problem, CPA_TENSOR_Q, from->q, x->head, x->exact.Hq, to),
			take(&x->arena, s->problem, CPA_TENSOR_K, from->k, kv, x->exact.Hkv, to),
			take(&x->arena, s->problem, CPA_TENSOR_V, from->v, kv, x->exact.Hkv, to)};
	}
}

enum cpa_status cpa_sample_init(struct cpa_sample *x, const struct cpa_suspect *s, bool whole,
	struct cpa_error *error)
{
	const struct cpa_problem *p = s->problem;
	int64_t nkv = whole ? p->Hkv : s->U, g = p->Hq / p->Hkv;
	*x = (struct cpa_sample){.exact = *p, .rounded = *p, .whole = whole};
	cpa_arena_init(&x->arena);
	if (!whole && p->Hkv % s->U != 0)
		return cpa_fail(error, CPA_UNSUPPORTED, "ulysses ranks share key heads");
	int64_t *kv = cpa_arena_alloc(&x->arena, (size_t)(nkv + 1) * sizeof *kv);
	x->exact.dtype = CPA_DTYPE_FP64;
	x->exact.Hq = x->rounded.Hq = nkv * g;
	x->exact.Hkv = x->rounded.Hkv = nkv;
	x->head = cpa_arena_alloc(&x->arena, (size_t)(nkv * g) * sizeof *x->head);
	x->place = cpa_arena_alloc(&x->arena, (size_t)p->Hq * sizeof *x->place);
	if (!x->arena.failed) {
		for (int64_t h = 0; h < nkv; h++)
			kv[h] = h;
		if (!whole)
			choose_key_heads(s, kv);
		choose_heads(x, s, kv);
		take_tensors(x, s, kv);
		take_rows(x, s);
		if (p->rule.sink)
			take_sink(x, s);
		if (p->rule.mask.kind != CPA_MASK_NONE && p->rule.mask.head != 0)
			take_mask(x, s);
	}
	return x->arena.failed ? cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis")
			       : CPA_OK;
}

void cpa_sample_fini(struct cpa_sample *x)
{
	cpa_arena_fini(&x->arena);
}
