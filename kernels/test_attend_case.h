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

enum { LAYOUT_BSHD, LAYOUT_SBHD, LAYOUT_BHSD };

/* A mask in the tests: which axes it has, and what its values are like. */
enum mask_values { MASK_TRUTH, MASK_MILD, MASK_EXTREME };
struct mask_shape {
	bool batch, head, query, key;
	enum mask_values values;
	enum cpa_dtype dtype;
};

struct attend_case {
	struct cpa_problem problem;
	enum cpa_fill fill;
	enum cpa_partials partials;
	enum cpa_dtype o_dtype, lse_dtype;
	int layout;
	bool behind; /* the guard pages are before the arrays, not after them */
	struct cpa_range batches, heads;
	int64_t kv_first;
	struct cpa_arena arena;
	struct cpa_spans q_tokens, k_tokens;
	struct mask_shape mask;
	/* made by case_build() */
	struct guarded q, k, v, o, lse, mask_memory;
	struct cpa_attend call;
};

/* [B, n, H, D], [n, B, H, D] or [B, H, n, D] of 0xff; the array is the box at batch b0, head h0. */
static inline struct cpa_array case_array(const struct attend_case *test,
	struct guarded *memory, enum cpa_dtype dtype, int64_t n, int64_t H, int64_t D,
	int64_t h0)
{
	int64_t B = test->problem.B;
	struct cpa_array array = {NULL, dtype, H * D, n * H * D, D};

	if (test->layout == LAYOUT_SBHD) {
		array.token = B * H * D;
		array.batch = H * D;
	} else if (test->layout == LAYOUT_BHSD) {
		array.token = D;
		array.head = n * D;
	}
	*memory = (test->behind ? guarded_alloc_behind : guarded_alloc)(
		(size_t)(B * n * H * D) * cpa_dtype_nbytes(dtype), 0xff);
	array.data = memory->data +
		(test->batches.start * array.batch + h0 * array.head) *
			(int64_t)cpa_dtype_nbytes(dtype);
	return array;
}

/* Written apart from the library: does query i see key j of batch item b of the call, the mask
 * aside? */
static inline bool case_sees(const struct attend_case *test, int64_t b, int64_t i, int64_t j)
{
	const struct cpa_rule *rule = &test->problem.rule;
	int64_t query = cpa_spans_token(&test->q_tokens, i),
		key = cpa_spans_token(&test->k_tokens, j), apart = key - query - rule->offset;

	if (rule->causal && apart > 0)
		return false;
	if (rule->window &&
		((rule->left >= 0 && apart < -rule->left) ||
			(rule->right >= 0 && apart > rule->right)))
		return false;
	for (int64_t n = 0; rule->documents && n <= rule->ndocuments; n++)
		if ((query < rule->documents[n]) != (key < rule->documents[n]))
			return false;
	return !rule->key_lengths || key < rule->key_lengths[test->batches.start + b];
}

/* A pure function of where it is; axes that the mask lacks count as 0. */
static inline double mask_at(
	const struct mask_shape *mask, int64_t b, int64_t h, int64_t t, int64_t j)
{
	static const double extreme[] = {-1e30, 1e4, -1e4, 1e4, -1e30, 3, 0, -1e-30};
	uint64_t row = 1 + (uint64_t)(mask->batch * b * 31 + mask->head * h) * 65536 +
		(uint64_t)(mask->query * t);
	uint64_t here = row * 1048576 + (uint64_t)(mask->key * j), bits;

	random_bits(&row);
	if (random_bits(&row) % 7 == 0)
		return -INFINITY; /* all of a row, if queries have rows of their own */
	random_bits(&here);
	bits = random_bits(&here) >> 8;
	if (bits % 4 == 0)
		return -INFINITY;
	bits /= 4;
	return mask->values == MASK_TRUTH   ? 0
		: mask->values == MASK_MILD ? (double)(float)((double)(bits % 65536) / 8192 - 4)
					    : (double)(float)extreme[bits % 8];
}

/* The mask in as few elements as it has. */
static inline void case_mask(struct attend_case *test)
{
	const struct mask_shape *shape = &test->mask;
	struct cpa_problem *p = &test->problem;
	int64_t nb = shape->batch ? p->B : 1, nh = shape->head ? p->Hq : 1,
		nq = shape->query ? p->Sq : 1, nk = shape->key ? p->Skv : 1, n = 0;
	bool truth = shape->values == MASK_TRUTH;
	size_t size = truth ? 1 : cpa_dtype_nbytes(shape->dtype);

	test->mask_memory = guarded_alloc((size_t)(nb * nh * nq * nk) * size, 0xff);
	for (int64_t b = 0; b < nb; b++)
		for (int64_t h = 0; h < nh; h++)
			for (int64_t t = 0; t < nq; t++)
				for (int64_t j = 0; j < nk; j++, n++) {
					double value = mask_at(shape, b, h, t, j);

					if (truth)
						test->mask_memory.data[n] = value == 0
							? (unsigned char)(1 + n % 255)
							: 0;
					else
						cpa_store(shape->dtype, test->mask_memory.data,
							n, value);
				}
	p->rule.mask = (struct cpa_mask){.kind = truth ? CPA_MASK_BOOL : CPA_MASK_BIAS,
		.dtype = shape->dtype,
		.data = test->mask_memory.data,
		.batch = shape->batch * nh * nq * nk,
		.head = shape->head * nq * nk,
		.query = shape->query * nk,
		.key = shape->key};
}

static inline double case_bias(
	const struct attend_case *test, int64_t b, int64_t h, int64_t i, int64_t j)
{
	if (!test->problem.rule.mask.kind)
		return 0;
	return mask_at(&test->mask, test->batches.start + b, test->heads.start + h,
		cpa_spans_token(&test->q_tokens, i), cpa_spans_token(&test->k_tokens, j));
}

static inline void case_fill_row(const struct attend_case *test, char tensor,
	const struct cpa_array *array, int64_t b, int64_t i, int64_t token, int64_t first_head,
	int64_t nheads)
{
	int64_t D = tensor == 'v' ? test->problem.Dv : test->problem.D;

	for (int64_t h = 0; h < nheads; h++)
		for (int64_t d = 0; d < D; d++)
			cpa_store(array->dtype, array->data,
				i * array->token + b * array->batch + h * array->head + d,
				cpa_fill_value(test->fill, &test->problem, 7, tensor,
					test->batches.start + b, token, first_head + h, d));
}

/* Keys that no row sees, and heads of the box that are not needed, stay NaN. */
static inline void case_fill_key(struct attend_case *test, int64_t b, int64_t j)
{
	struct cpa_range kv = cpa_heads_kv(test->heads, test->problem.Hq / test->problem.Hkv);
	int64_t token = cpa_spans_token(&test->k_tokens, j);
	bool seen = false;

	for (int64_t i = 0; i < test->call.nq && !seen; i++)
		seen = case_sees(test, b, i, j);
	for (int64_t h = kv.start; seen && h < kv.end; h++) {
		struct cpa_array k = test->call.k, v = test->call.v;
		int64_t skip = h - test->kv_first;

		k.data = (char *)k.data + skip * k.head * (int64_t)cpa_dtype_nbytes(k.dtype);
		v.data = (char *)v.data + skip * v.head * (int64_t)cpa_dtype_nbytes(v.dtype);
		case_fill_row(test, 'k', &k, b, j, token, h, 1);
		case_fill_row(test, 'v', &v, b, j, token, h, 1);
	}
}

static inline void case_build(struct attend_case *test)
{
	const struct cpa_problem *p = &test->problem;
	int64_t nq = cpa_spans_ntokens(&test->q_tokens),
		nk = cpa_spans_ntokens(&test->k_tokens);
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
	for (int64_t b = 0; b < test->batches.end - test->batches.start; b++) {
		for (int64_t i = 0; i < nq; i++)
			case_fill_row(test, 'q', &call->q, b, i,
				cpa_spans_token(&test->q_tokens, i), test->heads.start,
				test->heads.end - test->heads.start);
		for (int64_t j = 0; j < nk; j++)
			case_fill_key(test, b, j);
	}
}

static inline void case_free(struct attend_case *test)
{
	struct guarded *all[] = {&test->q, &test->k, &test->v, &test->o, &test->lse};

	for (int i = 0; i < 5; i++)
		guarded_free(all[i]);
	if (test->problem.rule.mask.kind)
		guarded_free(&test->mask_memory);
	cpa_arena_fini(&test->arena);
}

/* Row (i, b, h), indices of the arrays: o, and what the bounds need. */
struct exact_row {
	long double o[264];
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

/* The visible keys of row, scored: -inf in s[j] for the others.  Returns the largest score. */
static inline long double case_scores(const struct attend_case *test, int64_t i, int64_t b,
	int64_t h, int64_t kv, long double *s, struct cpa_row *row)
{
	long double max = -INFINITY, min = INFINITY;

	for (int64_t j = 0; j < test->call.nk; j++) {
		double norm, bias = case_bias(test, b, h, i, j);

		s[j] = -INFINITY;
		if (!case_sees(test, b, i, j) || bias == -INFINITY)
			continue;
		s[j] = case_score(test, i, b, h, kv, j, &norm) + bias;
		max = fmaxl(max, s[j]);
		min = fminl(min, s[j]);
		row->nvisible++;
		row->k_max = fmax(row->k_max, norm);
	}
	row->equal = max == min;
	return max;
}

/* Weighs values by s, of which the largest is max and the sum l, and what the bounds need. */
static inline void case_average(const struct attend_case *test, int64_t b, int64_t kv,
	const long double *s, long double max, long double l, struct exact_row *exact)
{
	for (int64_t j = 0; j < test->call.nk; j++) {
		long double weight = expl(s[j] - max) / l, vmax = 0, v2 = 0;

		if (s[j] == -INFINITY)
			continue;
		for (int64_t d = 0; d < test->problem.Dv; d++) {
			long double v = case_load(&test->call.v, j, b, kv, d);

			exact->o[d] += weight * v;
			vmax = fmaxl(vmax, fabsl(v));
			v2 += v * v;
		}
		exact->row.V += (double)(weight * vmax);
		exact->row.V2 += (double)(weight * v2);
		exact->row.Vsum += (double)vmax;
		exact->row.v_max = fmax(exact->row.v_max, (double)vmax);
	}
}

static inline void case_exact(const struct attend_case *test, int64_t i, int64_t b, int64_t h,
	struct exact_row *exact)
{
	const struct cpa_problem *p = &test->problem;
	int64_t kv = (test->heads.start + h) / (p->Hq / p->Hkv) - test->kv_first,
		nk = test->call.nk;
	double sink = p->rule.sink ? p->rule.sink[test->heads.start + h] : -INFINITY;
	long double *s = calloc((size_t)nk, sizeof *s), l = 0, max, squares = 0;
	struct cpa_row *row = &exact->row;

	*exact = (struct exact_row){.row = {.lse = sink, .max_score = -INFINITY}};
	for (int64_t d = 0; d < p->D; d++)
		squares += (long double)case_load(&test->call.q, i, b, h, d) *
			case_load(&test->call.q, i, b, h, d);
	max = case_scores(test, i, b, h, kv, s, row);
	if (row->nvisible) {
		if (p->rule.sink) {
			row->equal = row->equal && sink == max;
			max = fmaxl(max, sink);
			l = expl(sink - max);
			if (sink >= max - 1e4L)
				row->max_abs = fabs(sink);
		}
		for (int64_t j = 0; j < nk; j++) {
			l += expl(s[j] - max);
			if (s[j] >= max - 1e4L)
				row->max_abs = fmax(row->max_abs, (double)fabsl(s[j]));
		}
		row->max_score = (double)max;
		case_average(test, b, kv, s, max, l, exact);
		row->lse = (double)(max + logl(l));
		row->a = p->scale * (double)sqrtl(squares) * row->k_max;
	}
	free(s);
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
