/*
 * measure.h - real time: one problem in several configurations and on one rank, run in turn.
 */
#ifndef CPA_MEASURE_H
#define CPA_MEASURE_H

#include "harness/limits.h"
#include "harness/phase.h"
#include "harness/result.h"
#include "harness/statistics.h"
#include "harness/world.h"

struct cpa_measure_settings {
	struct cpa_device *device; /* borrowed */
	const char *comm; /* of cpa_world_create() */
	int warmup, repeat; /* repeat >= 1 */
	int threads; /* of each process; 0: its share of the cores */
	int one_rank_threads; /* of the one rank beside them; 0: as many as all processes have */
};

/*
 * What was measured of one configuration.  A repetition takes as long as its slowest process.
 *
 * phases are those of the fastest repetition, and sum up to seconds.min.  In a world of processes
 * they are of the process that took longest.  In one process the ranks take turns: phases are
 * sums over all of them, nobody waits, and all that is outside the kernels is EXCHANGE.
 */
struct cpa_measured {
	int threads, nprocesses;
	struct cpa_statistics seconds;
	struct cpa_statistics
		exchange; /* the messages alone: the same plan without its kernels; n = 0: none */
	struct cpa_phases phases;
	double flop; /* useful: 2 (D + Dv) for each visible pair of query and key of each head */
	double bytes; /* that all ranks together send */
	int one_rank_threads;
	struct cpa_statistics one_rank; /* seconds of the same problem on one rank */
	struct cpa_limits limits; /* of all processes together */
};

/* Kernels are ATTEND, MERGE and COPY: what the fastest run takes beyond them, over them. */
double cpa_measured_beyond(const struct cpa_measured *m);
double cpa_measured_flop_rate(
	const struct cpa_measured *m); /* useful flop/s of the fastest run */
/* Bytes sent, by all ranks together, a second of the fastest exchange; NaN where nothing is sent.
 */
double cpa_measured_exchange_rate(const struct cpa_measured *m);
/* How often the fastest run fits into that of one rank. */
double cpa_measured_speedup(const struct cpa_measured *m);

/* Where the processes meet; "fake" has one.  CPA_UNSUPPORTED: threads that this build does not
 * have. */
struct cpa_measure_session {
	struct cpa_measure_settings settings; /* threads as they are */
	struct cpa_world *world; /* of all processes */
	struct cpa_limiter *limiter;
	int nprocesses;
	bool leads;
};
/* COLLECTIVE.  End in any case. */
enum cpa_status cpa_measure_begin(struct cpa_measure_session *session,
	const struct cpa_measure_settings *settings, struct cpa_error *error);
void cpa_measure_end(struct cpa_measure_session *session);

/*
 * Proves, runs, judges and times each configuration on made-up inputs.  A wrong one is not timed.
 *   configs [n]  in
 *   results [n]  out, initialised here; counts and measured are the caller's (free)
 * The status of what concerns all of them (memory, the device refuses the problem).  COLLECTIVE.
 */
enum cpa_status cpa_measure_problem(struct cpa_measure_session *session,
	const struct cpa_problem *problem, uint64_t seed, const struct cpa_config *configs, int n,
	struct cpa_result *results, struct cpa_error *error);

#endif
