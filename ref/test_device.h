/*
 * test_device.h - a device for the tests of the bounds: a plain online softmax in float that
 * keeps and rounds its partials as declared, and can be made to fail.
 */
#ifndef CPA_REF_TEST_DEVICE_H
#define CPA_REF_TEST_DEVICE_H

#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TILE = 256, MAX_DIM = 64 };

enum fault { FAULT_NONE, FAULT_DROP, FAULT_STALE, FAULT_BASE2, FAULT_INIT, FAULT_SINK };

/* One way to compute, and what is wrong with it. */
struct way {
	enum cpa_partials partials;
	int R;
	enum fault fault;
	int64_t key; /* dropped, or with the V row of the key before */
};

/* Rescaling the running sum is an exp, a product and a sum: c_exp + 2 links of a chain. */
static inline struct cpa_arithmetic float_arithmetic(enum cpa_dtype dtype)
{
	return (struct cpa_arithmetic){ 0x1p-24, 8.0, TILE + 10.0, 10.0 / TILE,
		cpa_dtype_nbytes(dtype) == 2 };
}

/* ---- a device -------------------------------------------------------------------------- */

struct sample {
	struct cpa_problem problem; /* B, Hq and Hkv are 1 */
	void *q, *k, *v;
	float *k32, *v32;
	bool sink_first; /* the sink is in the sums of the first block, not merged at the end */
	struct cpa_ref_head *head;
	struct cpa_arena arena;
};

static inline void *make_tensor(struct sample *sample, enum cpa_fill fill, uint64_t seed,
	char tensor, int64_t S, int64_t D)
{
	const struct cpa_problem *problem = &sample->problem;
	void *data = cpa_arena_alloc(&sample->arena, (size_t)(S * D) * 8);

	assert_non_null(data);
	/* Head 1 is where extreme is huge, head 0 where it is tiny. */
	for (int64_t i = 0; i < S * D; i++)
		cpa_store(problem->dtype, data, i,
			cpa_fill_value(fill, problem, seed, tensor, 0, i / D,
				(int64_t)(seed >> (tensor == 'v')) & 1, i % D));
	return data;
}

static inline float *widen(struct sample *sample, const void *data, int64_t n)
{
	float *wide = cpa_arena_alloc(&sample->arena, (size_t)n * sizeof(*wide));

	assert_non_null(wide);
	for (int64_t i = 0; i < n; i++)
		wide[i] = (float)cpa_load(sample->problem.dtype, data, i);
	return wide;
}

/* Under another rule, with the same inputs. */
static inline void sample_set_rule(struct sample *sample, struct cpa_rule rule)
{
	struct cpa_problem *problem = &sample->problem;
	struct cpa_error error;

	problem->rule = rule;
	if (cpa_problem_check(problem, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_ref_head_destroy(sample->head);
	assert_int_equal(
		cpa_ref_head_create(problem,
			cpa_view_bshd(sample->k, problem->dtype, problem->Skv, 1, problem->D),
			cpa_view_bshd(sample->v, problem->dtype, problem->Skv, 1, problem->Dv),
			0, 0, &sample->head, &error),
		CPA_OK);
}

static inline void sample_init(struct sample *sample, enum cpa_dtype dtype, enum cpa_fill fill,
	uint64_t seed, int64_t Sq, int64_t Skv, int64_t D, int64_t Dv)
{
	struct cpa_problem problem = { .B = 1,
		.Sq = Sq,
		.Skv = Skv,
		.Hq = 1,
		.Hkv = 1,
		.D = D,
		.Dv = Dv,
		.dtype = dtype,
		.scale = 1.0 / sqrt((double)D) };

	sample->problem = problem;
	cpa_arena_init(&sample->arena);
	sample->q = make_tensor(sample, fill, seed, 'q', Sq, D);
	sample->k = make_tensor(sample, fill, seed, 'k', Skv, D);
	sample->v = make_tensor(sample, fill, seed, 'v', Skv, Dv);
	sample->k32 = widen(sample, sample->k, Skv * D);
	sample->v32 = widen(sample, sample->v, Skv * Dv);
	sample->sink_first = false;
	sample->head = NULL;
	sample_set_rule(sample, (struct cpa_rule){ .causal = false });
}

static inline void sample_fini(struct sample *sample)
{
	cpa_ref_head_destroy(sample->head);
	cpa_arena_fini(&sample->arena);
}

static inline float rounded(enum cpa_dtype dtype, float x)
{
	return dtype == CPA_DTYPE_BF16   ? cpa_bf16_to_float(cpa_bf16_from_float(x))
	       : dtype == CPA_DTYPE_FP16 ? cpa_fp16_to_float(cpa_fp16_from_float(x))
					 : x;
}

struct partial {
	float o[MAX_DIM], l, max, lse;
};

struct query {
	int64_t t;
	float q[MAX_DIM]; /* scaled */
};

/* Keys [first, end), at most a tile, into the running sums. */
static inline void add_tile(const struct sample *sample, const struct way *way,
	const struct query *query, int64_t first, int64_t end, struct partial *a)
{
	struct cpa_range keys = cpa_rule_row(&sample->problem, 0, query->t);
	int64_t D = sample->problem.D, Dv = sample->problem.Dv;
	float s[TILE], max = a->max, sum = 0.0f, o[MAX_DIM] = { 0.0f }, alpha;

	for (int64_t j = first; j < end; j++) {
		float dot = 0.0f;

		for (int64_t d = 0; d < D; d++)
			dot += query->q[d] * sample->k32[j * D + d];
		dot += (float)cpa_mask_value(&sample->problem, 0, 0, query->t, j);
		if (j < keys.start || j >= keys.end ||
			(way->fault == FAULT_DROP && j == way->key))
			dot = -INFINITY;
		s[j - first] = dot;
		max = fmaxf(max, s[j - first]);
	}
	if (max == -INFINITY)
		return;
	for (int64_t j = first; j < end; j++) {
		int64_t from = way->fault == FAULT_STALE && j == way->key ? j - 1 : j;
		float p = expf(s[j - first] - max), P = rounded(sample->problem.dtype, p);

		sum += p;
		for (int64_t d = 0; d < Dv; d++)
			o[d] += P * sample->v32[from * Dv + d];
	}
	alpha = expf(a->max - max);
	a->max = max;
	a->l = a->l * alpha + sum;
	for (int64_t d = 0; d < Dv; d++)
		a->o[d] = a->o[d] * alpha + o[d];
}

/* Of block r: without keys, perhaps with the sink. */
static inline struct partial start(const struct sample *sample, const struct way *way, int r)
{
	const double *sink = sample->problem.rule.sink;

	if (sink && (way->fault == FAULT_SINK || (sample->sink_first && r == 0)))
		return (struct partial){ .max = (float)*sink, .l = 1.0f };
	return (struct partial){ .max = -INFINITY };
}

static inline void attend(const struct sample *sample, const struct way *way,
	const struct query *query, int64_t first, int64_t end, struct partial *a)
{
	for (; first < end; first += TILE)
		add_tile(sample, way, query, first, first + TILE < end ? first + TILE : end, a);
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		a->o[d] = a->l > 0.0f ? a->o[d] / a->l : 0.0f;
	a->lse = a->max + logf(a->l);
}

static inline void merge(struct partial *a, const struct partial *b, int64_t Dv)
{
	float max = fmaxf(a->lse, b->lse), w_a, w_b, sum;

	if (max == -INFINITY)
		return;
	w_a = expf(a->lse - max);
	w_b = expf(b->lse - max);
	sum = w_a + w_b;
	for (int64_t d = 0; d < Dv; d++)
		a->o[d] = w_a / sum * a->o[d] + w_b / sum * b->o[d];
	a->lse = max + logf(sum);
}

static inline void store_partial(
	const struct sample *sample, const struct way *way, struct partial *a, bool merged)
{
	enum cpa_dtype dtype = sample->problem.dtype;

	if (way->partials == CPA_PARTIALS_ALL)
		a->lse = rounded(dtype, a->lse);
	if (way->partials == CPA_PARTIALS_ALL ||
		(way->partials == CPA_PARTIALS_BLOCK && !merged))
		for (int64_t d = 0; d < sample->problem.Dv; d++)
			a->o[d] = rounded(dtype, a->o[d]);
}

static inline void run_float(
	const struct sample *sample, const struct way *way, int64_t t, double *o, double *lse)
{
	int64_t D = sample->problem.D, Skv = sample->problem.Skv;
	struct partial total = { .lse = way->fault == FAULT_INIT ? 0.0f : -INFINITY }, part;
	const double *sink = sample->problem.rule.sink;
	struct query query = { .t = t };

	for (int64_t d = 0; d < D; d++)
		query.q[d] = (float)cpa_load(sample->problem.dtype, sample->q, t * D + d) *
			     (float)sample->problem.scale;
	for (int r = 0; r < way->R; r++) {
		part = start(sample, way, r);
		attend(sample, way, &query, r * Skv / way->R, (r + 1) * Skv / way->R, &part);
		if (way->fault == FAULT_BASE2 && r == way->R / 2)
			part.lse *= 1.44269504f;
		store_partial(sample, way, &part, false);
		merge(&total, &part, sample->problem.Dv);
		store_partial(sample, way, &total, true);
	}
	if (sink && !sample->sink_first && way->fault != FAULT_SINK) {
		part = (struct partial){ .lse = (float)*sink };
		merge(&total, &part, sample->problem.Dv);
		store_partial(sample, way, &total, true);
	}
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		o[d] = rounded(sample->problem.dtype, total.o[d]);
	*lse = total.lse;
}

#endif
