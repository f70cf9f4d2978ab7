/*
 * plan.h - the parts of the command plan.  Private to it.
 */
#ifndef CPA_PLAN_H
#define CPA_PLAN_H

#include <stdio.h>

#include "harness/json.h"
#include "harness/result.h"

/* A problem to plan, or why there is none. */
struct cpa_plan_target {
	const char *call; /* NULL: --problem */
	struct cpa_problem problem;
	void *mask; /* a copy in another dtype; owned */
	struct cpa_guidance guidance; /* asked for or recorded; nbranches 0: none */
	enum cpa_verdict refused; /* CPA_VERDICT_RIGHT: it can be planned */
	char reason[1024];
};
struct cpa_plan_targets {
	struct cpa_plan_target *at;
	int n;
	const char *file;                /* NULL: --problem; the name of a model; borrowed */
	struct cpa_plan_model *model;    /* NULL: none asked for */
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

/* One line a configuration, then refusals grouped.  picked: the order was picked for each one,
 * and a line says where it changes. */
void cpa_plan_print_table(FILE *out, const struct cpa_result_list *list, int first, int end,
	bool picked);
/* One configuration at length: counts over ranks, and each rank's when there are few. */
void cpa_plan_print_result(FILE *out, const struct cpa_result *result);
/* The steps of the schedule of one rank, with their operations and waits. */
void cpa_plan_print_schedule(FILE *out, const struct cpa_schedule *schedule);

/* Bytes that one rank sends from hop to hop, or gives to the all-gather of keys. */
int64_t cpa_plan_rotated_bytes(const struct cpa_schedule *schedule);
/* What all ranks together would send if every block visited every ring rank. */
int64_t cpa_plan_full_ring_bytes(const struct cpa_partition *partition);
/* Compares the two, where the rule lets blocks or keys be skipped. */
void cpa_plan_print_moved(FILE *out, const struct cpa_partition *partition, int64_t moved);
/* Which order and rotation suit the rule (SCHEDULES section 5); false: those of config do, or
 * there is no ring, or nothing suits better. */
bool cpa_plan_advise(const struct cpa_problem *problem, const struct cpa_config *config,
	char *advice, size_t size);
void cpa_plan_print_advice(FILE *out, const struct cpa_problem *problem,
	const struct cpa_config *config);

/* What the system of --as does with this configuration, to result->as; it is in arena.  Does nothing
 * without --as, or without a configuration. */
enum cpa_status cpa_plan_judge(const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_arena *arena, struct cpa_result *result,
	struct cpa_error *error);
/* Answers that differ in their mesh only stand together. */
void cpa_plan_print_answers(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options);
/* The member "as" of a result; null where nobody was asked. */
void cpa_plan_put_answer(struct cpa_json *json, const struct cpa_result *result);
/* The same as fields of CSV, a comma in front of each: their names; those of a result, empty where
 * nobody was asked. */
void cpa_plan_answer_csv_names(FILE *out);
void cpa_plan_answer_csv(FILE *out, const struct cpa_result *result);
/* Inside of a JUnit test case: <properties> before its outcome, and one line as <system-out> behind
 * it.  The outcome stays that of the plan. */
void cpa_plan_answer_properties(FILE *out, const struct cpa_result *result);
void cpa_plan_answer_output(FILE *out, const struct cpa_result *result);

/* Graphviz: a cluster a rank, program order, waits, and messages.  schedules [n], any ranks. */
void cpa_plan_print_dot(FILE *out, struct cpa_schedule *const *schedules, int n);

#endif
