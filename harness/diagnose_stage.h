/*
 * diagnose_stage.h - all ranks of one configuration, on which fault after fault is planted.
 * Private to diagnose_planted.c.
 */
#ifndef CPA_DIAGNOSE_STAGE_H
#define CPA_DIAGNOSE_STAGE_H

#include "harness/diagnose_sample.h"
#include "harness/fault.h"
#include "harness/ranks.h"

/* Zero it, and set the first three.  Fini in any case. */
struct cpa_stage {
	struct cpa_problem problem;
	struct cpa_tensors tensors;
	const struct cpa_sample *sample;
	struct cpa_device *device; /* its own: what a run takes at its peak is looked at */
	struct cpa_ranks ranks;
	bool started;
	struct cpa_plant *plant; /* the one that runs */
	int64_t *index; /* [nrows] of each sampled row's token in its rank's shard, -1: not there */
	double *o, *lse; /* [nrows, Dv] [nrows] of the sampled rows */
};
enum cpa_status cpa_stage_init(struct cpa_stage *stage, int nrows, struct cpa_error *error);
void cpa_stage_fini(struct cpa_stage *stage);

/* False: it cannot be planned.  Left by cpa_stage_leave() in any case. */
bool cpa_stage_plan(struct cpa_stage *stage, const struct cpa_config *config);
void cpa_stage_leave(struct cpa_stage *stage);
/* Makes the executors, once.  False: they cannot be made. */
bool cpa_stage_start(struct cpa_stage *stage, const struct cpa_suspect *s);

int64_t cpa_stage_nplaces(
	const struct cpa_stage *stage, int fault, const struct cpa_fault_where *where);
/* CPA_UNSUPPORTED: the fault cannot be there. */
enum cpa_status cpa_stage_plant(struct cpa_stage *stage, int fault,
	const struct cpa_fault_where *where, int64_t place, struct cpa_error *error);
void cpa_stage_clear(struct cpa_stage *stage);
/* With what is planted; fills o and lse.  False: the run got stuck, or the device refused it, and so it
 * predicts nothing. */
bool cpa_stage_run(struct cpa_stage *stage, const struct cpa_suspect *s);

#endif
