/*
 * plan.h - the parts of the command plan.  Private to it.
 */
#ifndef CPA_PLAN_H
#define CPA_PLAN_H

#include <stdio.h>

#include "harness/result.h"

/* A problem to plan, or why there is none. */
struct cpa_plan_target {
	const char *call; /* NULL: --problem */
	struct cpa_problem problem;
	enum cpa_verdict refused; /* CPA_VERDICT_RIGHT: it can be planned */
	char reason[1024];
};
struct cpa_plan_targets {
	struct cpa_plan_target *at;
	int n;
	const char *file;                /* NULL: --problem; borrowed */
	struct cpa_recording *recording; /* open, because names belong to it */
};
/* targets is zero; fini it in any case.  A bad call is a target with a reason. */
enum cpa_status cpa_plan_targets_find(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error);
void cpa_plan_targets_fini(struct cpa_plan_targets *targets);

/* Sum, least and largest of one count over the ranks. */
struct cpa_spread {
	int64_t min, max;
	double mean, sum;
};
struct cpa_spread cpa_plan_spread(const struct cpa_result *result, size_t offset);

/* Sorts results of one call: by world, then by what `best` names, refused ones last. */
void cpa_plan_sort(struct cpa_result *at, int n, const char *best);

/* One line a configuration, then refusals grouped. */
void cpa_plan_print_table(FILE *out, const struct cpa_result_list *list, int first, int end);
/* One configuration at length: counts over ranks, and each rank's when there are few. */
void cpa_plan_print_result(FILE *out, const struct cpa_result *result);
/* The steps of the schedule of one rank, with their operations and waits. */
void cpa_plan_print_schedule(FILE *out, const struct cpa_schedule *schedule);

/* Graphviz: a cluster a rank, program order, waits, and messages.  schedules [n], any ranks. */
void cpa_plan_print_dot(FILE *out, struct cpa_schedule *const *schedules, int n);

#endif
