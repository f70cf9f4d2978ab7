/*
 * test_fill.c - inputs that anyone can make: pure, distributed as they say, and in range.
 */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct cpa_problem some_problem(enum cpa_dtype dtype)
{
	return (struct cpa_problem){ .B = 2,
		.Sq = 40,
		.Skv = 50,
		.Hq = 4,
		.Hkv = 2,
		.D = 24,
		.Dv = 20,
		.dtype = dtype,
		.scale = 0.2 };
}

static double value(enum cpa_fill fill, const struct cpa_problem *problem, char tensor,
	int64_t b, int64_t t, int64_t h, int64_t d)
{
	return cpa_fill_value(fill, problem, 1, tensor, b, t, h, d);
}

static void fills_have_names(void **state)
{
	(void)state;
	assert_string_equal(cpa_fill_name(CPA_FILL_NORMAL), "normal");
	assert_string_equal(cpa_fill_name(CPA_FILL_COUNT), "count");
	assert_string_equal(cpa_fill_name(CPA_FILL_IDENTITY), "identity");
	assert_string_equal(cpa_fill_name(CPA_FILL_DIGITS), "digits");
	assert_string_equal(cpa_fill_name(CPA_FILL_EXTREME), "extreme");
}

static void a_value_depends_on_all_its_arguments_and_nothing_else(void **state)
{
	struct cpa_problem problem = some_problem(CPA_DTYPE_FP32), other = problem;
	double first = cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 2, 3, 4);

	(void)state;
	other.Sq = 7;
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &other, 1, 'q', 1, 2, 3, 4) == first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 2, 'q', 1, 2, 3, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'k', 1, 2, 3, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 0, 2, 3, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 1, 3, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 2, 1, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 2, 3, 1) != first);
	/* Indices that swap places, or move by one against each other, share nothing. */
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 3, 2, 4) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 2, 4, 3) != first);
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 2, 'q', 1, 2, 3, 4) !=
		    cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 2, 2, 3, 4));
	assert_true(cpa_fill_value(CPA_FILL_NORMAL, &problem, 1, 'q', 1, 2, 3, 4) == first);
}

/*
 * Of n = 96,000 values, the mean has standard deviation 1/sqrt(n); z^2 has variance 2, z^4 96,
 * a product of two independent ones 1.  Five deviations: by chance once in a million.
 */
static void normal_values_have_the_moments_of_a_normal_one(void **state)
{
	struct cpa_problem problem = some_problem(CPA_DTYPE_FP32);
	double sum = 0.0, sum2 = 0.0, sum4 = 0.0, next_d = 0.0, next_t = 0.0, next_h = 0.0;
	const double n = 1000 * 4 * 24;

	(void)state;
	for (int64_t i = 0; i < 1000 * 4 * 24; i++) {
		int64_t t = i / 96, h = i / 24 % 4, d = i % 24;
		double x = value(CPA_FILL_NORMAL, &problem, 'q', 0, t, h, d);

		sum += x;
		sum2 += x * x;
		sum4 += x * x * x * x;
		next_d += x * value(CPA_FILL_NORMAL, &problem, 'q', 0, t, h, d + 1);
		next_t += x * value(CPA_FILL_NORMAL, &problem, 'q', 0, t + 1, h, d);
		next_h += x * value(CPA_FILL_NORMAL, &problem, 'k', 0, t, h, d);
	}
	assert_true(fabs(sum / n) < 5.0 / sqrt(n));
	assert_true(fabs(sum2 / n - 1.0) < 5.0 * sqrt(2.0 / n));
	assert_true(fabs(sum4 / n - 3.0) < 5.0 * sqrt(96.0 / n));
	assert_true(fabs(next_d / n) < 5.0 / sqrt(n));
	assert_true(fabs(next_t / n) < 5.0 / sqrt(n));
	assert_true(fabs(next_h / n) < 5.0 / sqrt(n));
}

static void count_and_identity_have_one_hot_values(void **state)
{
	struct cpa_problem problem = some_problem(CPA_DTYPE_FP16);

	(void)state;
	for (int64_t t = 0; t < problem.Skv; t++)
		for (int64_t d = 0; d < problem.Dv; d++) {
			double want = t % 20 == d ? 1.0 : 0.0;

			assert_true(value(CPA_FILL_COUNT, &problem, 'v', 1, t, 1, d) == want);
			assert_true(
				value(CPA_FILL_IDENTITY, &problem, 'v', 0, t, 0, d) == want);
			assert_true(value(CPA_FILL_COUNT, &problem, 'k', 1, t, 1, d) == 0.0);
			assert_true(value(CPA_FILL_IDENTITY, &problem, 'k', 1, t, 1, d) ==
				    value(CPA_FILL_NORMAL, &problem, 'k', 1, t, 1, d));
			assert_true(value(CPA_FILL_COUNT, &problem, 'q', 1, t, 1, d) ==
				    value(CPA_FILL_NORMAL, &problem, 'q', 1, t, 1, d));
		}
}

static void digits_name_the_row_in_every_dtype(void **state)
{
	struct cpa_problem problem = some_problem(CPA_DTYPE_BF16);

	(void)state;
	for (int64_t row = 0; row < 2 * 50 * 2; row++) {
		int64_t b = row / 100, t = row / 2 % 50, h = row % 2;
		double number = 0.0;

		for (int64_t d = 15; d >= 0; d--) {
			double x = value(CPA_FILL_DIGITS, &problem, 'v', b, t, h, d);

			assert_true(x >= 0.0 && x < 1.0);
			assert_true(cpa_bf16_to_float(cpa_bf16_from_double(x)) == x);
			assert_true(
				x == value(CPA_FILL_DIGITS, &problem, 'v', b, t, h, d + 16));
			number = 16.0 * number + 16.0 * x;
		}
		assert_true(number == (double)row);
	}
	assert_true(value(CPA_FILL_DIGITS, &problem, 'q', 1, 2, 3, 4) ==
		    value(CPA_FILL_NORMAL, &problem, 'q', 1, 2, 3, 4));
}

static void extreme_is_huge_on_odd_heads_and_subnormal_on_even_ones(void **state)
{
	static const double normal[] = { 0x1p-1022, 0x1p-126, 0x1p-126, 0x1p-14 };

	(void)state;
	for (enum cpa_dtype dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct cpa_problem problem = some_problem(dtype);
		double odd = 0.0, even = 0.0;

		for (int64_t t = 0; t < 40; t++)
			for (int64_t d = 0; d < 24; d++) {
				double x = value(CPA_FILL_EXTREME, &problem, 'k', 0, t, 1, d);
				double y = value(CPA_FILL_EXTREME, &problem, 'k', 0, t, 2, d),
				       kept;

				cpa_store(dtype, &kept, 0, y);
				odd = fmax(odd, fabs(x));
				even = fmax(even, fabs(cpa_load(dtype, &kept, 0)));
			}
		assert_true(odd > 2e4 && odd <= fmin(65000.0, cpa_dtype_max(dtype)));
		assert_true(even > 0.0 && even < normal[dtype]);
	}
}

static void extreme_repeats_every_fifth_token(void **state)
{
	struct cpa_problem problem = some_problem(CPA_DTYPE_FP32);

	(void)state;
	for (int64_t t = 0; t < 50; t++)
		for (int64_t h = 0; h < 2; h++)
			assert_int_equal(t % 5 == 3 || t == 3,
				value(CPA_FILL_EXTREME, &problem, 'k', 1, t, h, 9) ==
					value(CPA_FILL_EXTREME, &problem, 'k', 1, 3, h, 9));
}

static void extreme_scores_stay_within_1e38_whatever_the_scale(void **state)
{
	static const double scales[] = { 1e-30, 1.0, 1e28, 1e35, 1e37 };

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct cpa_problem problem = some_problem(CPA_DTYPE_FP32);
		double x = 0.0;

		problem.scale = scales[i];
		problem.D = 1000;
		for (int64_t t = 0; t < 4000; t++)
			x = fmax(x, fabs(value(CPA_FILL_EXTREME, &problem, 'q', 0, t, 1, 0)));
		/* Elements are 6.5 deviations at most; the largest of 4000 is 3 at least. */
		x *= 6.5 / 3.0;
		assert_true(problem.scale * x * x / (6.5 / 3.0) / (6.5 / 3.0) * 1000 <= 1e38);
		assert_true(i < 2 || problem.scale * x * x * 1000 > 1e37);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_have_names),
		cmocka_unit_test(a_value_depends_on_all_its_arguments_and_nothing_else),
		cmocka_unit_test(normal_values_have_the_moments_of_a_normal_one),
		cmocka_unit_test(count_and_identity_have_one_hot_values),
		cmocka_unit_test(digits_name_the_row_in_every_dtype),
		cmocka_unit_test(extreme_is_huge_on_odd_heads_and_subnormal_on_even_ones),
		cmocka_unit_test(extreme_repeats_every_fifth_token),
		cmocka_unit_test(extreme_scores_stay_within_1e38_whatever_the_scale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
