/*
 * test_merge.c - what a merge must keep: identity, order of operands, grouping, and range.
 */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { DV = 5 };

struct partial {
	double o[DV], lse;
};

static uint64_t rng_state = 7;

/* Uniform in [-1, 1). */
static double uniform(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (double)(rng_state >> 11) * 0x1p-52 - 1.0;
}

static struct partial random_partial(double range)
{
	struct partial a;

	for (int d = 0; d < DV; d++)
		a.o[d] = uniform();
	a.lse = range * uniform();
	return a;
}

static struct partial merged(struct partial a, struct partial b)
{
	cpa_ref_merge(DV, a.o, &a.lse, b.o, b.lse);
	return a;
}

static void assert_same(struct partial a, struct partial b)
{
	assert_memory_equal(&a, &b, sizeof(a));
}

static void the_empty_partial_is_the_identity_on_both_sides(void **state)
{
	const struct partial empty = { .lse = -INFINITY };
	struct partial a = random_partial(10.0);

	(void)state;
	a.o[1] = -0.0;
	a.o[2] = 0x1p-1074;
	assert_same(merged(a, empty), a);
	assert_same(merged(empty, a), a);
	assert_same(merged(empty, empty), empty);
}

static void two_halves_of_known_weight_give_their_mean(void **state)
{
	struct partial a = { { 1, 2, 3, -4, 8 }, log(3.0) }, b = { { 5, 6, -1, 4, 0 }, 0.0 };
	struct partial c = merged(a, b), half = merged(a, a);

	(void)state;
	for (int d = 0; d < DV; d++)
		assert_true(fabs(c.o[d] - (0.75 * a.o[d] + 0.25 * b.o[d])) < 8 * 0x1p-53 * 8);
	assert_true(fabs(c.lse - log(4.0)) < 4 * 0x1p-53);
	assert_memory_equal(half.o, a.o, sizeof(a.o));
	assert_true(half.lse == log(3.0) + log(2.0));
}

static void operands_may_change_places_to_the_last_bit(void **state)
{
	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct partial a = random_partial(i % 3 ? 2.0 : 40.0), b = random_partial(2.0);

		assert_same(merged(a, b), merged(b, a));
	}
}

/*
 * Relative to exact arithmetic, a merge's weights are off by at most (|lse_a| + |lse_b| + 8) u
 * (subtraction, exp to 2 u, sum, division), the sum of products by 2 u more; lse, whose errors
 * come back as weights in the next merge, by (max + 1 + 8) u.  With |lse| <= 10: 40 u a merge,
 * two merges on each side, |o| <= 1.
 */
static void grouping_changes_no_more_than_rounding_does(void **state)
{
	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct partial a = random_partial(8.0), b = random_partial(8.0);
		struct partial c = random_partial(8.0);
		struct partial left = merged(merged(a, b), c), right = merged(a, merged(b, c));

		assert_true(fabs(left.lse - right.lse) <= 4 * 40 * 0x1p-53);
		for (int d = 0; d < DV; d++)
			assert_true(fabs(left.o[d] - right.o[d]) <= 2 * 4 * 40 * 0x1p-53);
	}
}

static void one_merge_is_right_to_a_few_units(void **state)
{
	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct partial a = random_partial(8.0), b = random_partial(8.0),
			       c = merged(a, b);
		long double w = 1 / (1 + expl((long double)b.lse - a.lse));
		long double lse = a.lse - logl(w);

		assert_true(fabsl(c.lse - lse) <= 20 * 0x1p-53L);
		for (int d = 0; d < DV; d++)
			assert_true(fabsl(c.o[d] - (w * a.o[d] + (1 - w) * b.o[d])) <=
				    40 * 0x1p-53L);
	}
}

static void far_apart_the_larger_one_stands_alone(void **state)
{
	static const double bases[] = { -1e4, 0.0, 6e4, -1e38, 1e307 };

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct partial a = random_partial(1.0), b = random_partial(1.0);

		a.lse = bases[i];
		b.lse = bases[i] - (fabs(bases[i]) > 1e30 ? fabs(bases[i]) : 1e4);
		assert_same(merged(a, b), a);
		assert_same(merged(b, a), a);
	}
}

static void one_step_at_a_time_reaches_the_mean_of_all(void **state)
{
	struct partial total = { .lse = -INFINITY }, part = { .lse = -7e4 };

	(void)state;
	for (int i = 0; i < 64; i++) {
		for (int d = 0; d < DV; d++)
			part.o[d] = d == i % DV ? 1.0 : 0.0;
		total = merged(total, part);
	}
	/* Each lse is rounded by |lse| u: weights are off by 64 * 7e4 u at most, twice. */
	for (int d = 0; d < DV; d++)
		assert_true(
			fabs(total.o[d] - (d < 4 ? 13.0 : 12.0) / 64.0) < 128 * 7e4 * 0x1p-53);
	assert_true(fabs(total.lse - (-7e4 + log(64.0))) < 64 * 7e4 * 0x1p-53);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_empty_partial_is_the_identity_on_both_sides),
		cmocka_unit_test(two_halves_of_known_weight_give_their_mean),
		cmocka_unit_test(operands_may_change_places_to_the_last_bit),
		cmocka_unit_test(grouping_changes_no_more_than_rounding_does),
		cmocka_unit_test(one_merge_is_right_to_a_few_units),
		cmocka_unit_test(far_apart_the_larger_one_stands_alone),
		cmocka_unit_test(one_step_at_a_time_reaches_the_mean_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
