/*
 * lane.h - one configuration that is timed beside others: its plan, its executors, its times.
 * Private to measure.c.
 */
#ifndef CPA_LANE_H
#define CPA_LANE_H

#include "harness/measure.h"
#include "harness/ranks.h"

struct cpa_lane {
	struct cpa_measure_session *session; /* borrowed */
	const struct cpa_problem *problem; /* borrowed */
	bool alone; /* the one rank beside all: only the process that leads runs it */
	struct cpa_ranks plan; /* plans, proof, counts and shards; no executors */
	bool running; /* it runs here */
	struct cpa_world *world;
	int first, nlocal;
	struct cpa_exec **execs; /* [nlocal] NULL: a rank without work */
	struct cpa_watched_comm *watches; /* [nlocal] */
	bool ran;
	bool messages_only; /* kernels are skipped */
	struct cpa_phases phases; /* of the run under way */
	int threads;
	/* Times, [repeat] each. */
	double *seconds, *exchange;
	int ntimes;
	double latest; /* of the last repetition, counted or not */
	double best; /* the fastest so far */
	struct cpa_phases fastest; /* its phases */
};

/* Plans and proves; the statuses of cpa_ranks_plan().  Fini in any case.  config is borrowed. */
enum cpa_status cpa_lane_init(struct cpa_lane *lane, struct cpa_measure_session *session,
	const struct cpa_problem *problem, const struct cpa_config *config, bool alone,
	struct cpa_error *error);
void cpa_lane_fini(struct cpa_lane *lane);
/* Makes the world and the executors and hands out the inputs.  COLLECTIVE. */
enum cpa_status cpa_lane_start(
	struct cpa_lane *lane, const struct cpa_inputs *inputs, struct cpa_error *error);
/* One run.  *seconds: how long it took here; the phases are in lane->phases. */
enum cpa_status cpa_lane_run(struct cpa_lane *lane, double *seconds, struct cpa_error *error);
/* The outputs of all ranks; lse is NULL where it is no output.  COLLECTIVE.
 *   o [B, Sq, Hq, Dv]  lse [B, Sq, Hq]  out */
enum cpa_status cpa_lane_download(
	struct cpa_lane *lane, void *o, void *lse, struct cpa_error *error);
/* One repetition: a run, and its messages alone.  Times are kept when `counts`.  COLLECTIVE. */
enum cpa_status cpa_lane_repeat(struct cpa_lane *lane, bool counts, struct cpa_error *error);

#endif
