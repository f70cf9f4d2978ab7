/*
 * test_plan.c - plans of random problems are proved.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* ---- random problems ---- */

static void every_plan_is_proved(void **unused)
{
	(void)unused;
	int planned = 0;
	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		if (seed % 3)
			random_rule(&state, &p);
		if (seed % 4 == 1)
			random_segments(&state, &p);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world w;
		enum cpa_status s = make_world(&p, &c, &w, &error);
		if (s == CPA_UNSUPPORTED && cpa_variant_info(c.variant)->strict)
			continue;
		assert_int_equal(s, CPA_OK);
		if (check_world(&w, &error) != CPA_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		planned++;
		free_world(&w);
	}
	assert_true(planned > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_plan_is_proved),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
