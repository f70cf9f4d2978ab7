/*
 * exec.h - the inside of the executor: exec_create.c allocates, exec.c says when, exec_ops.c
 * does.  Private to dist/.
 */
#ifndef CPA_EXEC_H
#define CPA_EXEC_H

#include "dist/dist.h"

enum cpa_exec_step_state { CPA_EXEC_STEP_WAITING, CPA_EXEC_STEP_ISSUED, CPA_EXEC_STEP_ENDED };

struct cpa_exec_run {
	enum cpa_exec_step_state state;
	bool records;                   /* somebody asks for the event of this step */
	struct cpa_device_event *event; /* of a step that records, once issued */
	struct cpa_request *request;    /* of a comm step in flight */
};

struct cpa_exec_queue {
	int *steps; /* in order */
	int nsteps, nissued;
	int nended; /* comm: known to be done; compute: passed over, its event tells */
	struct cpa_device_event *last; /* after all steps are issued */
};

/* What has been written of a buffer since it was last poisoned as a whole. */
struct cpa_exec_written {
	struct cpa_box *boxes; /* room for each write of the schedule */
	int n;
};

struct cpa_exec {
	const struct cpa_schedule *schedule;
	const struct cpa_problem *problem;
	struct cpa_device *device;
	struct cpa_comm *comm;
	struct cpa_exec_options options;
	void **memory;              /* [nbuffers] */
	struct cpa_exec_written *written; /* [nbuffers] */
	struct cpa_box *boxes;      /* what written->boxes point into */
	int *comm_ids;              /* [ncomms] the transport's names */
	struct cpa_piece *pieces;   /* as many as the largest op has */
	struct cpa_exec_run *steps; /* [nsteps] */
	int *order;                 /* [nsteps] what queue->steps point into */
	struct cpa_exec_queue queues[CPA_NQUEUES];
	enum cpa_status status; /* why it failed; CPA_OK while it has not */
};

bool cpa_exec_communicates(const struct cpa_exec *exec, int step); /* a group of messages */
/* Submits a compute op to a device queue, poisoning first where that was asked for. */
enum cpa_status cpa_exec_compute(
	struct cpa_exec *exec, int queue, const struct cpa_op *op, struct cpa_error *error);
/* Adds a communication op to the open group of the communicator. */
void cpa_exec_post(struct cpa_exec *exec, const struct cpa_op *op);

#endif
