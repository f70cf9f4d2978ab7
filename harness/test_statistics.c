/*
 * test_statistics.c - minimum, quartiles and spread against numbers worked out by hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "harness/statistics.h"

static struct cpa_statistics of(const double *values, int n)
{
	double copy[8];

	for (int i = 0; i < n; i++)
		copy[i] = values[i];
	return cpa_statistics_of(copy, n);
}

static void five_numbers_have_the_middle_one_as_median(void **state)
{
	static const double values[] = {9, 2, 4, 1, 7};
	struct cpa_statistics s = of(values, 5);

	(void)state;
	assert_int_equal(s.n, 5);
	assert_true(s.min == 1 && s.q1 == 2 && s.median == 4 && s.q3 == 7 && s.max == 9);
	assert_true(cpa_statistics_spread(&s) == 5.0 / 4);
}

/* 10, 20, 30, 40: a quarter of the way from the first to the last is 3/4 between 10 and 20. */
static void quartiles_of_four_numbers_lie_between_them(void **state)
{
	static const double values[] = {40, 10, 30, 20};
	struct cpa_statistics s = of(values, 4);

	(void)state;
	assert_true(s.min == 10 && s.q1 == 17.5 && s.median == 25 && s.q3 == 32.5 && s.max == 40);
	assert_true(cpa_statistics_spread(&s) == 15.0 / 25);
}

static void two_numbers_share_their_middle(void **state)
{
	static const double values[] = {3, 1};
	struct cpa_statistics s = of(values, 2);

	(void)state;
	assert_true(s.min == 1 && s.q1 == 1.5 && s.median == 2 && s.q3 == 2.5 && s.max == 3);
}

static void one_number_is_everything_and_has_no_spread(void **state)
{
	static const double value = 5;
	struct cpa_statistics s = of(&value, 1);

	(void)state;
	assert_true(s.min == 5 && s.q1 == 5 && s.median == 5 && s.q3 == 5 && s.max == 5);
	assert_true(cpa_statistics_spread(&s) == 0);
}

static void of_nothing_nothing_is_known(void **state)
{
	struct cpa_statistics s = of(NULL, 0);

	(void)state;
	assert_int_equal(s.n, 0);
	assert_true(isnan(s.min) && isnan(s.median) && isnan(s.max));
	assert_true(isnan(cpa_statistics_spread(&s)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(five_numbers_have_the_middle_one_as_median),
		cmocka_unit_test(quartiles_of_four_numbers_lie_between_them),
		cmocka_unit_test(two_numbers_share_their_middle),
		cmocka_unit_test(one_number_is_everything_and_has_no_spread),
		cmocka_unit_test(of_nothing_nothing_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
