/*
 * test_attend_case.h - one ATTEND in guarded memory, and each of its rows in long double.
 *
 * Everything outside the boxes is NaN, and so are keys that no row sees.
 */
#ifndef CPA_TEST_ATTEND_CASE_H
#define CPA_TEST_ATTEND_CASE_H

#include "kernels/kernels.h"
#include "kernels/test_memory.h"

#include <math.h>

enum { LAYOUT_BSHD, LAYOUT_SBHD };

struct attend_case {
	struct cpa_problem problem;
	enum cpa_fill fill;
	enum cpa_partials partials;
	enum cpa_dtype o_dtype, lse_dtype;
	int layout;
	struct cpa_range batches, heads;
	int64_t kv_first;
	struct cpa_arena arena;
	struct cpa_spans q_tokens, k_tokens;
	/* made by case_build() */
	struct guarded q, k, v, o, lse;
	struct cpa_attend call;
};

/* [B, n, H, D] or [n, B, H, D] of 0xff; the array is the box at batch b0, head h0. */
static inline struct cpa_array case_array(const struct attend_case *test,
	struct guarded *memory, enum cpa_dtype dtype, int64_t n, int64_t H, int64_t D,
	int64_t h0)
{
	int64_t B = test->problem.B;
	struct cpa_array array = {NULL, dtype, H * D, n * H * D, D};

	if (test->layout == LAYOUT_SBHD) {
		array.token = B * H * D;
		array.batch = H * D;
	}
	*memory = guarded_alloc((size_t)(B * n * H * D) * cpa_dtype_nbytes(dtype), 0xff);
	array.data = memory->data +
		(test->batches.start * array.batch + h0 * D) * (int64_t)cpa_dtype_nbytes(dtype);
	return array;
}

/* Written apart from the library: full, or causal with an offset. */
static inline bool case_sees(const struct attend_case *test, int64_t i, int64_t j)
{
	int64_t query = cpa_spans_token(&test->q_tokens, i),
		key = cpa_spans_token(&test->k_tokens, j);

	return !test->problem.rule.causal || key <= query + test->problem.rule.offset;
}

static inline void case_fill_row(const struct attend_case *test, char tensor,
	const struct cpa_array *array, int64_t i, int64_t token, int64_t first_head,
	int64_t nheads)
{
	int64_t D = tensor == 'v' ? test->problem.Dv : test->problem.D;

	for (int64_t b = test->batches.start; b < test->batches.end; b++)
		for (int64_t h = 0; h < nheads; h++)
			for (int64_t d = 0; d < D; d++)
				cpa_store(array->dtype, array->data,
					i * array->token +
						(b - test->batches.start) * array->batch +
						h * array->head + d,
					cpa_fill_value(test->fill, &test->problem, 7, tensor, b,
						token, first_head + h, d));
}

static inline void case_build(struct attend_case *test)
{
	const struct cpa_problem *p = &test->problem;
	int64_t nq = cpa_spans_ntokens(&test->q_tokens),
		nk = cpa_spans_ntokens(&test->k_tokens);
	struct cpa_range kv = cpa_heads_kv(test->heads, p->Hq / p->Hkv);
	struct cpa_attend *call = &test->call;

	call->problem = p;
	call->nq = nq;
	call->nk = nk;
	call->batches = test->batches;
	call->heads = test->heads;
	call->kv_first = test->kv_first;
	call->q_tokens = test->q_tokens;
	call->k_tokens = test->k_tokens;
	call->q = case_array(test, &test->q, p->dtype, nq, p->Hq, p->D, test->heads.start);
	call->k = case_array(test, &test->k, p->dtype, nk, p->Hkv, p->D, test->kv_first);
	call->v = case_array(test, &test->v, p->dtype, nk, p->Hkv, p->Dv, test->kv_first);
	call->o =
		case_array(test, &test->o, test->o_dtype, nq, p->Hq, p->Dv, test->heads.start);
	call->lse =
		case_array(test, &test->lse, test->lse_dtype, nq, p->Hq, 1, test->heads.start);
	for (int64_t i = 0; i < nq; i++)
		case_fill_row(test, 'q', &call->q, i, cpa_spans_token(&test->q_tokens, i),
			test->heads.start, test->heads.end - test->heads.start);
	for (int64_t j = 0; j < nk; j++) {
		bool seen = false;

		for (int64_t i = 0; i < nq && !seen; i++)
			seen = case_sees(test, i, j);
		/* Heads of the box that are not needed stay NaN. */
		for (int64_t h = kv.start; seen && h < kv.end; h++) {
			struct cpa_array k = call->k, v = call->v;
			int64_t skip = h - test->kv_first;

			k.data = (char *)k.data +
				skip * k.head * (int64_t)cpa_dtype_nbytes(k.dtype);
			v.data = (char *)v.data +
				skip * v.head * (int64_t)cpa_dtype_nbytes(v.dtype);
			case_fill_row(
				test, 'k', &k, j, cpa_spans_token(&test->k_tokens, j), h, 1);
			case_fill_row(
				test, 'v', &v, j, cpa_spans_token(&test->k_tokens, j), h, 1);
		}
	}
}

static inline void case_free(struct attend_case *test)
{
	struct guarded *all[] = {&test->q, &test->k, &test->v, &test->o, &test->lse};

	for (int i = 0; i < 5; i++)
		guarded_free(all[i]);
	cpa_arena_fini(&test->arena);
}

/* Row (i, b, h), indices of the arrays: o, and what the bounds need. */
struct exact_row {
	long double o[128];
	struct cpa_row row;
	double o_norm;
};

static inline double case_load(
	const struct cpa_array *array, int64_t t, int64_t b, int64_t h, int64_t d)
{
	return cpa_load(array->dtype, array->data,
		t * array->token + b * array->batch + h * array->head + d);
}

/* The score of key j, and into norm |k_j|. */
static inline long double case_score(const struct attend_case *test, int64_t i, int64_t b,
	int64_t h, int64_t kv, int64_t j, double *norm)
{
	long double sum = 0, squares = 0;

	for (int64_t d = 0; d < test->problem.D; d++) {
		long double x = case_load(&test->call.k, j, b, kv, d);

		sum += case_load(&test->call.q, i, b, h, d) * x;
		squares += x * x;
	}
	*norm = (double)sqrtl(squares);
	return sum * test->problem.scale;
}

static inline void case_exact(const struct attend_case *test, int64_t i, int64_t b, int64_t h,
	struct exact_row *exact)
{
	const struct cpa_problem *p = &test->problem;
	int64_t kv = (test->heads.start + h) / (p->Hq / p->Hkv) - test->kv_first,
		nk = test->call.nk;
	long double *s = calloc((size_t)nk, sizeof *s), l = 0, max = -INFINITY, min = INFINITY,
		    squares = 0;
	struct cpa_row *row = &exact->row;

	*exact = (struct exact_row){.row = {.lse = -INFINITY, .max_score = -INFINITY}};
	for (int64_t d = 0; d < p->D; d++)
		squares += (long double)case_load(&test->call.q, i, b, h, d) *
			case_load(&test->call.q, i, b, h, d);
	for (int64_t j = 0; j < nk; j++) {
		double norm;

		if (!case_sees(test, i, j))
			continue;
		s[j] = case_score(test, i, b, h, kv, j, &norm);
		max = fmaxl(max, s[j]);
		min = fminl(min, s[j]);
		row->nvisible++;
		row->max_abs = fmax(row->max_abs, (double)fabsl(s[j]));
		row->k_max = fmax(row->k_max, norm);
	}
	for (int64_t j = 0; j < nk; j++)
		l += case_sees(test, i, j) ? expl(s[j] - max) : 0;
	for (int64_t j = 0; j < nk; j++) {
		long double weight, vmax = 0, v2 = 0;

		if (!case_sees(test, i, j))
			continue;
		weight = expl(s[j] - max) / l;
		for (int64_t d = 0; d < p->Dv; d++) {
			long double v = case_load(&test->call.v, j, b, kv, d);

			exact->o[d] += weight * v;
			vmax = fmaxl(vmax, fabsl(v));
			v2 += v * v;
		}
		row->V += (double)(weight * vmax);
		row->V2 += (double)(weight * v2);
		row->Vsum += (double)vmax;
		row->v_max = fmax(row->v_max, (double)vmax);
	}
	free(s);
	if (!row->nvisible)
		return;
	row->max_score = (double)max;
	row->lse = (double)(max + logl(l));
	row->equal = max == min;
	row->a = p->scale * (double)sqrtl(squares) * row->k_max;
}

/* How many numbers of memory are not 0xff all over. */
static inline int64_t case_nwritten(const struct guarded *memory, enum cpa_dtype dtype)
{
	size_t size = cpa_dtype_nbytes(dtype);
	int64_t n = 0;

	for (size_t i = 0; i < memory->nbytes; i += size) {
		bool same = true;

		for (size_t j = 0; j < size; j++)
			same = same && memory->data[i + j] == 0xff;
		n += !same;
	}
	return n;
}

#endif
