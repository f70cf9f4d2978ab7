/*
 * random.h - verify --random N: made-up problems over everything that the options can say, each
 * in every variant, until one is wrong; that one is made as small as it can be.
 */
#ifndef CPA_RANDOM_H
#define CPA_RANDOM_H

#include "harness/options.h"
#include "harness/result.h"

enum { CPA_RANDOM_LINE = 8192 }; /* given sizes of 64 ranks for four segments a side fit */

struct cpa_random_report {
	int64_t nproblems; /* that ran */
	int64_t nright, nwrong, nunsupported, ncannot_tell; /* configurations */
	double o, lse, probe, combined; /* worst error over bound of what was right */
	int64_t ncombined; /* of nright: with guidance */
	double seconds;
	/* The first that is wrong, or cannot be told: which problem, and as it was drawn; then made
	 * smaller.  verdict: RIGHT when there is none. */
	enum cpa_verdict verdict;
	int64_t problem;
	char drawn[CPA_RANDOM_LINE], smallest[CPA_RANDOM_LINE], reason[1024];
};

/*
 * Problem number i depends on options->seed and i alone, so that the report does not depend on
 * threads.  Problems run in parallel where OpenMP is built in.  Of the options, those that
 * choose configurations, device, interleavings and fault apply.  progress: on stderr.
 * CPA_OK whatever the verdict.
 */
enum cpa_status cpa_random_sweep(const struct cpa_options *options, int64_t n, bool progress,
	struct cpa_random_report *report, struct cpa_error *error);

#endif
