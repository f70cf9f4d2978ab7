/*
 * test_sets.h - for the tests of kernels: one group of tests with each instruction set that this
 * machine can run.
 */
#ifndef CPA_TEST_SETS_H
#define CPA_TEST_SETS_H

#include "kernels/cpu.h"
#include "kernels/test_memory.h"

#include <stdio.h>

/* Returns the number of tests that failed. */
static inline int run_in_each_set(const struct CMUnitTest *tests, size_t n)
{
	struct cpa_error error;
	int failed = 0;

	for (int set = 0; set <= CPA_CPU_AMX_SOFTWARE; set++) { /* others differ in attention only */
		const char *name = cpa_cpu_name((enum cpa_cpu)set);
		const char *lack = cpa_cpu_lacks((enum cpa_cpu)set);

		if (lack) {
			printf("%s cannot run here: %s\n", name, lack);
			continue;
		}
		if (cpa_cpu_select(name, &error))
			return failed + 1;
		failed += _cmocka_run_group_tests(name, tests, n, NULL, NULL);
	}
	return cpa_cpu_select(NULL, &error) ? failed + 1 : failed;
}

#endif
