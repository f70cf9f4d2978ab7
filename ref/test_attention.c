/*
 * test_attention.c - the reference against the definition written down once more, in long
 * double and without any of its tricks.
 */
#include "ref/ref.h"
#include "ref/test_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the definition -------------------------------------------------------------------- */

struct naive {
	long double lse, o[64], p[512], max_score, max_abs, a, k_max, v_max, V, V2, Vsum;
	int64_t n;
};

static bool sees(const struct cpa_problem *problem, int64_t t, int64_t j)
{
	return !problem->rule.causal || j - t <= problem->rule.offset;
}

static long double naive_score(
	const struct sample *sample, int64_t b, int64_t h, int64_t t, int64_t j)
{
	int64_t g = sample->problem.Hq / sample->problem.Hkv;
	long double s = 0;

	for (int64_t d = sample->problem.D; d-- > 0;)
		s += (long double)get(sample->k, b, j, h / g, d) * get(sample->q, b, t, h, d);
	return s * sample->problem.scale;
}

static long double naive_norm(struct cpa_view view, int64_t b, int64_t t, int64_t h, int64_t n)
{
	long double sum = 0;

	for (int64_t d = 0; d < n; d++)
		sum += (long double)get(view, b, t, h, d) * get(view, b, t, h, d);
	return sqrtl(sum);
}

/* Adds key j of weight exp(s_j - lse). */
static void naive_add(const struct sample *sample, int64_t b, int64_t h, int64_t j,
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

static void naive_row(
	const struct sample *sample, int64_t b, int64_t h, int64_t t, struct naive *row)
{
	const struct cpa_problem *problem = &sample->problem;
	long double sum = 0;

	memset(row, 0, sizeof(*row));
	row->max_score = -INFINITY;
	for (int64_t j = 0; j < problem->Skv; j++)
		if (sees(problem, t, j))
			row->max_score = fmaxl(row->max_score, naive_score(sample, b, h, t, j));
	for (int64_t j = 0; j < problem->Skv; j++)
		if (sees(problem, t, j))
			sum += expl(naive_score(sample, b, h, t, j) - row->max_score);
	row->lse = row->max_score + logl(sum);
	for (int64_t j = 0; j < problem->Skv; j++)
		if (sees(problem, t, j)) {
			long double s = naive_score(sample, b, h, t, j);

			row->p[j] = expl(s - row->max_score) / sum;
			row->max_abs = fmaxl(row->max_abs, fabsl(s));
			naive_add(sample, b, h, j, row->p[j], row);
		}
	row->a = problem->scale * naive_norm(sample->q, b, t, h, problem->D) * row->k_max;
}

/* ---- comparison ------------------------------------------------------------------------ */

/*
 * Tolerances to first order in u = 2^-53, times 1.01: a dot product of D terms after one more
 * rounding, (D + 2) u a; exp, its sum over n keys and their log.  Weights are off by twice it,
 * sums of p v by n + 4 roundings more.  A sum of n positive terms is off by n u.
 */
static void assert_row(const struct sample *sample, const struct naive *want,
	const struct cpa_row *row, const double *o, const double *p)
{
	long double u = 1.01L * 0x1p-53L, n = want->n,
		    E = (sample->problem.D + 2) * u * want->a;
	long double T = E + u * (n + 6), weights;
	int64_t at = 0;

	assert_int_equal(row->nvisible, want->n);
	if (want->n == 0) {
		struct cpa_row empty = { .lse = -INFINITY };

		assert_memory_equal(row, &empty, sizeof(empty));
		for (int64_t d = 0; d < sample->problem.Dv; d++)
			assert_true(o[d] == 0.0);
		return;
	}
	weights = expm1l(2 * T) + (n + 5) * u;
	assert_near(row->lse, want->lse, T + 2 * u * (want->max_abs + logl(n)));
	assert_near(row->max_score, want->max_score, E);
	assert_near(row->max_abs, want->max_abs, E);
	assert_near(row->k_max, want->k_max, sample->problem.D * 4 * u * want->k_max);
	assert_near(row->a, want->a, sample->problem.D * 8 * u * want->a);
	assert_true(row->v_max == want->v_max);
	assert_near(row->V, want->V, weights * want->V);
	assert_near(row->V2, want->V2, (weights + 8 * u * sample->problem.Dv) * want->V2);
	assert_near(row->Vsum, want->Vsum, n * u * want->Vsum);
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		assert_near(o[d], want->o[d], weights * want->V + 0x1p-1070L);
	for (int64_t j = 0; j < sample->problem.Skv; j++)
		if (want->p[j] != 0)
			assert_near(p[at++], want->p[j], weights * want->p[j] + 0x1p-1070L);
}

static void assert_sample(const struct sample *sample)
{
	const struct cpa_problem *problem = &sample->problem;
	struct naive *want = malloc(sizeof(*want));
	double o[64], p[512];

	for (int64_t b = 0; b < problem->B; b++)
		for (int64_t h = 0; h < problem->Hq; h++)
			for (int64_t t = 0; t < problem->Sq; t++) {
				struct cpa_row row = run_row(sample, b, h, t, o, p);

				naive_row(sample, b, h, t, want);
				assert_row(sample, want, &row, o, p);
			}
	free(want);
}

/* ---- tests ----------------------------------------------------------------------------- */

static void random_shapes_agree_with_the_definition(void **state)
{
	(void)state;
	for (int i = 0; i < 120; i++) {
		int64_t g = 1 + rng_below(3), Hkv = 1 + rng_below(3);
		struct cpa_problem problem = { .B = 1 + rng_below(2),
			.Sq = 1 + rng_below(9),
			.Skv = 1 + rng_below(i % 8 ? 40 : 300),
			.Hq = g * Hkv,
			.Hkv = Hkv,
			.D = 1 + rng_below(40),
			.Dv = 1 + rng_below(40),
			.dtype = i % 4,
			.scale = i % 3 ? 0.3 : 4.0 };
		struct sample sample;

		problem.rule.causal = i % 2;
		problem.rule.offset = rng_below(50) - 12;
		sample_init(&sample, problem, rng_below(2), rng_below(3));
		assert_sample(&sample);
		cpa_arena_fini(&sample.arena);
	}
}

static void subnormal_and_huge_elements_stay_right(void **state)
{
	static const double sizes[] = { 1e-40, 1e-310, 1e-160, 1e150, 1e-3 };

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct cpa_problem problem = small_problem(20, 6, 4);
		struct sample sample;

		problem.scale = i == 3 ? 1e-300 : 1.0;
		sample_init(&sample, problem, false, 0);
		for (int64_t n = 0; n < 20 * 6; n++)
			put(sample.k, 0, n / 6, 0, n % 6, sizes[i] * rng_value());
		for (int64_t d = 0; d < 6; d++)
			put(sample.q, 0, 0, 0, d, sizes[i] * rng_value());
		for (int64_t n = 0; n < 20 * 4; n++)
			put(sample.v, 0, n / 4, 0, n % 4,
				(i == 1 ? 1e-290 : sizes[i]) * rng_value());
		if (i != 2 && i != 1)
			assert_sample(&sample);
		else {
			double o[4], p[20];
			struct cpa_row row = run_row(&sample, 0, 0, 0, o, p);

			/* Every score is 0 in double, |v|^2 too; the rest is a plain mean. */
			assert_true(p[0] == 1.0 / 20.0 && p[19] == p[0]);
			assert_true(
				row.k_max > 0.1 * sizes[i] && row.v_max > 0.0 && row.V > 0.0);
			assert_true(row.lse == log(20.0) && isfinite(row.a));
		}
		cpa_arena_fini(&sample.arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_shapes_agree_with_the_definition),
		cmocka_unit_test(subnormal_and_huge_elements_stay_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
