/*
 * test_naive.h - attention by its definition, in long double and without any trick, and the
 * comparison of rows with it.
 */
#ifndef CPA_REF_TEST_NAIVE_H
#define CPA_REF_TEST_NAIVE_H

#include "ref/ref.h"
#include "ref/test_rule.h"
#include "ref/test_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the definition -------------------------------------------------------------------- */

struct naive {
	long double lse, o[64], p[512], max_score, max_abs, a, k_max, v_max, V, V2, Vsum;
	int64_t n;
};

/* What the mask adds to the score: 0 or -inf for one of truth values. */
static inline long double naive_mask(
	const struct cpa_problem *problem, int64_t b, int64_t h, int64_t t, int64_t j)
{
	const struct cpa_mask *mask = &problem->rule.mask;
	int64_t at = b * mask->batch + h * mask->head + t * mask->query + j * mask->key;

	if (mask->kind == CPA_MASK_NONE)
		return 0.0L;
	if (mask->kind == CPA_MASK_BOOL)
		return ((const unsigned char *)mask->data)[at] ? 0.0L : -INFINITY;
	return mask->dtype == CPA_DTYPE_FP32 ? ((const float *)mask->data)[at]
					     : ((const double *)mask->data)[at];
}

static inline bool naive_sees(
	const struct cpa_problem *problem, int64_t b, int64_t h, int64_t t, int64_t j)
{
	return rule_shows(problem, b, t, j) && naive_mask(problem, b, h, t, j) > -INFINITY;
}

static inline long double naive_score(
	const struct sample *sample, int64_t b, int64_t h, int64_t t, int64_t j)
{
	int64_t g = sample->problem.Hq / sample->problem.Hkv;
	long double s = 0;

	for (int64_t d = sample->problem.D; d-- > 0;)
		s += (long double)get(sample->k, b, j, h / g, d) *
		     get(sample->q, b, t, h, d);
	s *= sample->problem.scale;
	return s + naive_mask(&sample->problem, b, h, t, j);
}

static inline long double naive_norm(
	struct cpa_view view, int64_t b, int64_t t, int64_t h, int64_t n)
{
	long double sum = 0;

	for (int64_t d = 0; d < n; d++)
		sum += (long double)get(view, b, t, h, d) * get(view, b, t, h, d);
	return sqrtl(sum);
}

/* Adds key j of weight exp(s_j - lse). */
static inline void naive_add(const struct sample *sample, int64_t b, int64_t h, int64_t j,
	long double p, struct naive *row)
{
	int64_t kv_head = h / (sample->problem.Hq / sample->problem.Hkv);
	long double v_abs = 0, norm = naive_norm(sample->v, b, j, kv_head, sample->problem.Dv);

	for (int64_t d = 0; d < sample->problem.Dv; d++) {
		double value = get(sample->v, b, j, kv_head, d);

		row->o[d] += p * value;
		v_abs = fmaxl(v_abs, fabs(value));
	}
	row->k_max = fmaxl(row->k_max, naive_norm(sample->k, b, j, kv_head, sample->problem.D));
	row->v_max = fmaxl(row->v_max, v_abs);
	row->V += p * v_abs;
	row->V2 += p * norm * norm;
	row->Vsum += v_abs;
	row->n++;
}

static inline void naive_row(
	const struct sample *sample, int64_t b, int64_t h, int64_t t, struct naive *row)
{
	const struct cpa_problem *problem = &sample->problem;
	const double *sink = problem->rule.sink;
	long double sum = 0;

	memset(row, 0, sizeof(*row));
	row->max_score = sink ? sink[h] : -INFINITY;
	for (int64_t j = 0; j < problem->Skv; j++)
		if (naive_sees(problem, b, h, t, j))
			row->max_score = fmaxl(row->max_score, naive_score(sample, b, h, t, j));
	for (int64_t j = 0; j < problem->Skv; j++)
		if (naive_sees(problem, b, h, t, j))
			sum += expl(naive_score(sample, b, h, t, j) - row->max_score);
	if (sink)
		sum += expl(sink[h] - row->max_score);
	row->max_abs = sink && sink[h] >= row->max_score - 1e4L ? fabs(sink[h]) : 0.0L;
	row->lse = row->max_score + logl(sum);
	for (int64_t j = 0; j < problem->Skv; j++)
		if (naive_sees(problem, b, h, t, j)) {
			long double s = naive_score(sample, b, h, t, j);

			row->p[j] = expl(s - row->max_score) / sum;
			if (s >= row->max_score - 1e4L)
				row->max_abs = fmaxl(row->max_abs, fabsl(s));
			naive_add(sample, b, h, j, row->p[j], row);
		}
	row->a = problem->scale * naive_norm(sample->q, b, t, h, problem->D) * row->k_max;
}

/* ---- comparison ------------------------------------------------------------------------ */

/* No key is visible: exactly the sink, or nothing at all. */
static inline void assert_empty_row(const struct sample *sample, const double *sink,
	const struct cpa_row *row, const double *o)
{
	assert_true(row->lse == (sink ? *sink : -INFINITY));
	assert_true(row->max_score == (sink ? *sink : 0.0));
	assert_true(row->max_abs == (sink ? fabs(*sink) : 0.0) && row->equal == (sink != NULL));
	assert_true(row->a == 0.0 && row->k_max == 0.0 && row->v_max == 0.0);
	assert_true(row->V == 0.0 && row->V2 == 0.0 && row->Vsum == 0.0);
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		assert_true(o[d] == 0.0);
}

/* p[j - keys.start] is the weight of key j, exactly 0 for a hidden one. */
static inline void assert_weights(const struct sample *sample, struct cpa_range keys,
	const struct naive *want, const double *p, long double tolerance)
{
	for (int64_t j = 0; j < sample->problem.Skv; j++) {
		if (j < keys.start || j >= keys.end)
			assert_true(want->p[j] == 0.0L);
		else if (want->p[j] == 0.0L)
			assert_true(p[j - keys.start] == 0.0);
		else
			assert_near(p[j - keys.start], want->p[j],
				tolerance * want->p[j] + 0x1p-1070L);
	}
}

/*
 * Tolerances to first order in u = 2^-53, times 1.01: a dot product of D terms after one more
 * rounding, (D + 2) u a, and a bias, u |s|; exp, its sum over n scores and their log.  Weights
 * are off by twice it, sums of p v by n + 4 roundings more.  A sum of n positive terms is off by
 * n u.
 */
static inline void assert_row(const struct sample *sample, const struct naive *want,
	const double *sink, struct cpa_range keys, const struct cpa_row *row, const double *o,
	const double *p)
{
	bool bias = sample->problem.rule.mask.kind == CPA_MASK_BIAS;
	long double u = 1.01L * 0x1p-53L, n = want->n + (sink != NULL), weights;
	long double E = (sample->problem.D + 2) * u * want->a + (bias ? u * want->max_abs : 0);
	long double T = E + u * (n + 6);

	assert_int_equal(row->nvisible, want->n);
	if (want->n == 0) {
		assert_empty_row(sample, sink, row, o);
		assert_weights(sample, keys, want, p, 0.0L);
		return;
	}
	weights = expm1l(2 * T) + (n + 5) * u;
	assert_near(row->lse, want->lse, T + 2 * u * (want->max_abs + logl(n)));
	assert_near(row->max_score, want->max_score, E);
	assert_near(row->max_abs, want->max_abs, E);
	assert_near(row->k_max, want->k_max, sample->problem.D * 4 * u * want->k_max);
	assert_near(row->a, want->a, sample->problem.D * 8 * u * want->a);
	assert_true(row->v_max == want->v_max);
	assert_true(n > 1 || row->equal);
	assert_near(row->V, want->V, weights * want->V);
	assert_near(row->V2, want->V2, (weights + 8 * u * sample->problem.Dv) * want->V2);
	assert_near(row->Vsum, want->Vsum, n * u * want->Vsum);
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		assert_near(o[d], want->o[d], weights * want->V + 0x1p-1070L);
	assert_weights(sample, keys, want, p, weights);
}

static inline void assert_sample(const struct sample *sample)
{
	const struct cpa_problem *problem = &sample->problem;
	struct naive *want = malloc(sizeof(*want));
	double o[64], p[512];

	for (int64_t b = 0; b < problem->B; b++)
		for (int64_t h = 0; h < problem->Hq; h++)
			for (int64_t t = 0; t < problem->Sq; t++) {
				struct cpa_row row = run_row(sample, b, h, t, o, p);

				naive_row(sample, b, h, t, want);
				assert_row(sample, want,
					problem->rule.sink ? problem->rule.sink + h : NULL,
					cpa_rule_row(problem, b, t), &row, o, p);
			}
	free(want);
}

#endif
