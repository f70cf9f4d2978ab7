/*
 * probe_problem.c - the problem that the probes run.
 */
#include <stdlib.h>

#include "harness/mask.h"
#include "harness/probe.h"

enum cpa_status cpa_probe_problem_init(struct cpa_probe_problem *it,
	const struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	*it = (struct cpa_probe_problem){.problem = *problem};
	struct cpa_rule *rule = &it->problem.rule;
	if (rule->sink) {
		it->sink = calloc((size_t)problem->Hq, sizeof *it->sink);
		rule->sink = it->sink;
		if (!it->sink)
			s = cpa_fail(error, CPA_NO_MEMORY, "out of memory for a sink");
	}
	if (s == CPA_OK && rule->mask.kind == CPA_MASK_BIAS)
		s = cpa_mask_copy(problem, CPA_MASK_BOOL, CPA_DTYPE_FP32, &rule->mask,
			&it->mask, error);
	it->differs = it->sink || it->mask;
	if (s != CPA_OK)
		cpa_probe_problem_fini(it);
	return s;
}

void cpa_probe_problem_fini(struct cpa_probe_problem *it)
{
	free(it->sink);
	free(it->mask);
	*it = (struct cpa_probe_problem){.sink = NULL};
}
