/*
 * test_attention.c - the reference against the definition: shapes, layouts, sizes of numbers.
 */
#include "ref/ref.h"
#include "ref/test_naive.h"
#include "ref/test_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
