/*
 * probe.h - inputs whose answers are ratios of counts: they see what rounding hides in a
 * recording.
 *
 * count: K = 0, so that every weight is the same, and V is one-hot of key number mod Dv: o
 * tells how often each class of keys was counted.  K is invisible to that, so in `hidden` about
 * half of the keys, picked by a hash, have a score so low that their weight is exactly 0, and
 * the class is a hash too: stale or foreign keys change who is counted.  In both, classes are
 * turned by batch item and key head, so that mixing those up shows.  (NUMERICS hides every
 * other key and keeps classes in order; then a stale block that is a multiple of Dv or 2 away
 * looks right.)
 *
 * For 16-bit outputs over many keys one count would drown in rounding: then several passes,
 * each with values in a window of keys only.
 */
#ifndef CPA_PROBE_H
#define CPA_PROBE_H

#include "harness/inputs.h"

/*
 * The problem that the probes run in place of a call's: the same schedules, and answers that
 * are ratios of counts.  A bias becomes the mask of what it leaves visible, and every sink 0: one
 * more key of score 0 and value 0.
 */
struct cpa_probe_problem {
	struct cpa_problem problem;
	bool differs; /* from the call's: executors must be given this one */
	void *mask;   /* owned */
	double *sink;
};
enum cpa_status cpa_probe_problem_init(struct cpa_probe_problem *it,
	const struct cpa_problem *problem, struct cpa_error *error);
void cpa_probe_problem_fini(struct cpa_probe_problem *it);

enum cpa_probe_kind { CPA_PROBE_COUNT, CPA_PROBE_HIDDEN, CPA_NPROBES };
const char *cpa_probe_name(enum cpa_probe_kind kind);

struct cpa_probe {
	const struct cpa_problem *problem; /* of a cpa_probe_problem; borrowed */
	enum cpa_probe_kind kind;
	struct cpa_range window; /* keys whose value is one-hot; 0 elsewhere */
	double q, k; /* feature 0 of every query and of hidden keys; other features are 0 */
	double hidden_score;
};

/* How many passes this problem needs, for either kind. */
int cpa_probe_npasses(const struct cpa_problem *problem);
/* False: scale and dtype are such that no key can be hidden (probe `hidden` only). */
bool cpa_probe_init(struct cpa_probe *probe, const struct cpa_problem *problem,
	enum cpa_probe_kind kind, int pass);
/* Any shard of q, k or v.  probe must outlive the result. */
struct cpa_inputs cpa_probe_inputs(const struct cpa_probe *probe);

/* The worst place: error over bound; right when ratio <= 1. */
struct cpa_probe_finding {
	double ratio, got, want;
	enum cpa_tensor tensor; /* o or lse */
	int64_t batch, token, head, dim;
};
/* All rows.  o [B, Sq, Hq, Dv], lse [B, Sq, Hq] (may be NULL) as a run left them.  run->problem
 * is the probe's. */
enum cpa_status cpa_probe_judge(const struct cpa_probe *probe, const struct cpa_bound_run *run,
	const void *o, const void *lse, struct cpa_probe_finding *finding,
	struct cpa_error *error);
/* Like it, but o and lse hold some rows only. */
enum cpa_status cpa_probe_judge_rows(const struct cpa_probe *probe,
	const struct cpa_bound_run *run, const struct cpa_rows *held, const void *o,
	const void *lse, struct cpa_probe_finding *finding, struct cpa_error *error);

#endif
