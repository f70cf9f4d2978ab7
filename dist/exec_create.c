/*
 * exec_create.c - what an executor owns: buffers, tables, names of communicators.  All of it is
 * allocated here, before the run.
 */
#include "dist/exec.h"

#include <assert.h>
#include <stdlib.h>

bool cpa_exec_communicates(const struct cpa_exec *exec, int step)
{
	enum cpa_op_kind kind = exec->schedule->ops[exec->schedule->steps[step].first].kind;

	return kind == CPA_OP_SEND || kind == CPA_OP_RECV || kind == CPA_OP_COLLECTIVE;
}

/* An empty buffer has no memory, but NULL would mean "no source". */
static char nothing[16];

/* Marks the buffers that messages are sent from. */
static void mark_sent(const struct cpa_schedule *schedule, bool *sent)
{
	for (int i = 0; i < schedule->nops; i++) {
		const struct cpa_op *op = &schedule->ops[i];

		if (op->kind == CPA_OP_SEND || op->kind == CPA_OP_COLLECTIVE)
			for (int k = 0; k < op->nreads; k++)
				sent[op->reads[k].box.buffer] = true;
	}
}

static enum cpa_status alloc_buffer(struct cpa_exec *exec, int i, bool sent, struct cpa_error *error)
{
	struct cpa_device *device = exec->device;
	size_t nbytes = (size_t)cpa_buffer_nbytes(&exec->schedule->buffers[i]);
	enum cpa_status status;

	if (nbytes == 0) {
		exec->memory[i] = nothing;
		return CPA_OK;
	}
	device->memory = sent ? exec->comm->memory : NULL;
	status = device->ops->alloc(device, nbytes, &exec->memory[i], error);
	device->memory = NULL; /* the device may be another rank's next */
	return status;
}

static enum cpa_status alloc_buffers(struct cpa_exec *exec, struct cpa_error *error)
{
	const struct cpa_schedule *schedule = exec->schedule;
	size_t before = exec->device->nbytes, sum = 0;
	bool *sent = calloc((size_t)schedule->nbuffers + 1, sizeof *sent);
	enum cpa_status status = sent
		? CPA_OK
		: cpa_fail(error, CPA_NO_MEMORY, "out of memory for %d buffers", schedule->nbuffers);

	if (sent)
		mark_sent(schedule, sent);
	for (int i = 0; status == CPA_OK && i < schedule->nbuffers; i++) {
		status = alloc_buffer(exec, i, sent[i], error);
		sum += (size_t)cpa_buffer_nbytes(&schedule->buffers[i]);
	}
	assert(status != CPA_OK || exec->device->nbytes == before + sum);
	free(sent);
	return status;
}

static enum cpa_status make_comms(struct cpa_exec *exec, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int i = 0; status == CPA_OK && i < exec->schedule->ncomms; i++) {
		const struct cpa_communicator *comm = &exec->schedule->comms[i];

		if (comm->members)
			status = exec->comm->ops->subgroup(exec->comm, comm->nmembers,
				comm->members, &exec->comm_ids[i], error);
	}
	return status;
}

/* Marks the steps whose device event somebody will ask for: see the table above. */
static void mark_events(struct cpa_exec *exec, int s)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	const struct cpa_exec_queue *queue = &exec->queues[step->queue];
	bool streams = exec->comm->stream_ordered;

	for (int q = 0; q < CPA_NQUEUES; q++) {
		int before = step->waits[q];

		if (q == step->queue || before < 0)
			continue;
		assert(before < exec->schedule->nsteps
			&& exec->schedule->steps[before].queue == q);
		exec->steps[before].records |= streams || !cpa_exec_communicates(exec, before);
	}
	if (queue->nsteps > 0 && !streams && cpa_exec_communicates(exec, s))
		exec->steps[queue->steps[queue->nsteps - 1]].records |=
			!cpa_exec_communicates(exec, queue->steps[queue->nsteps - 1]);
}

static void make_queues(struct cpa_exec *exec)
{
	int *at = exec->order;

	for (int q = 0; q < CPA_NQUEUES; q++) {
		struct cpa_exec_queue *queue = &exec->queues[q];

		queue->steps = at;
		for (int s = 0; s < exec->schedule->nsteps; s++) {
			if (exec->schedule->steps[s].queue != q)
				continue;
			mark_events(exec, s);
			queue->steps[queue->nsteps++] = s;
		}
		at += queue->nsteps;
	}
}

static bool alloc_written(struct cpa_exec *exec)
{
	const struct cpa_schedule *schedule = exec->schedule;
	int total = 0;

	exec->written = calloc((size_t)schedule->nbuffers + 1, sizeof *exec->written);
	for (int i = 0; i < schedule->nops; i++)
		total += schedule->ops[i].nwrites;
	exec->boxes = calloc((size_t)total + 1, sizeof *exec->boxes);
	if (!exec->written || !exec->boxes)
		return false;
	for (int i = 0; i < schedule->nops; i++)
		for (int k = 0; k < schedule->ops[i].nwrites; k++)
			exec->written[schedule->ops[i].writes[k].box.buffer].n++;
	total = 0;
	for (int i = 0; i < schedule->nbuffers; i++) {
		exec->written[i].boxes = exec->boxes + total;
		total += exec->written[i].n;
		exec->written[i].n = 0;
	}
	return true;
}

static bool alloc_tables(struct cpa_exec *exec)
{
	const struct cpa_schedule *schedule = exec->schedule;
	int npieces = 1;

	for (int i = 0; i < schedule->nops; i++) {
		int n = schedule->ops[i].nreads + schedule->ops[i].nwrites;

		npieces = n > npieces ? n : npieces;
	}
	if (!alloc_written(exec))
		return false;
	exec->memory = calloc((size_t)schedule->nbuffers + 1, sizeof *exec->memory);
	exec->comm_ids = calloc((size_t)schedule->ncomms + 1, sizeof *exec->comm_ids);
	exec->pieces = calloc((size_t)npieces, sizeof *exec->pieces);
	exec->steps = calloc((size_t)schedule->nsteps + 1, sizeof *exec->steps);
	exec->order = calloc((size_t)schedule->nsteps + 1, sizeof *exec->order);
	return exec->memory && exec->comm_ids && exec->pieces && exec->steps && exec->order;
}

/* Waits for the device, because a host-driven transport knows nothing of its queues. */
static enum cpa_status poison_all(struct cpa_exec *exec, struct cpa_error *error)
{
	const struct cpa_device_ops *ops = exec->device->ops;
	struct cpa_device_event *event;
	enum cpa_status status = CPA_OK;

	for (int i = 0; status == CPA_OK && i < exec->schedule->nbuffers; i++) {
		exec->written[i].n = 0;
		if (exec->schedule->buffers[i].role != CPA_ROLE_INPUT)
			status = ops->poison(exec->device, CPA_QUEUE_COMPUTE, exec->memory[i],
				(size_t)cpa_buffer_nbytes(&exec->schedule->buffers[i]), error);
	}
	if (status == CPA_OK)
		status = ops->event_record(exec->device, CPA_QUEUE_COMPUTE, &event, error);
	if (status != CPA_OK)
		return status;
	while (!ops->event_done(exec->device, event))
		;
	ops->event_free(exec->device, event);
	return CPA_OK;
}

enum cpa_status cpa_exec_create(const struct cpa_schedule *schedule,
	const struct cpa_problem *problem, struct cpa_device *device, struct cpa_comm *comm,
	const struct cpa_exec_options *options, struct cpa_exec **out, struct cpa_error *error)
{
	struct cpa_exec *exec;
	enum cpa_status status = device->ops->supports(device, problem, error);

	assert(comm->rank == schedule->rank && comm->size == schedule->W);
	if (status != CPA_OK)
		return status;
	exec = calloc(1, sizeof *exec);
	if (!exec)
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for the executor of rank %d", schedule->rank);
	*exec = (struct cpa_exec){ .schedule = schedule,
		.problem = problem,
		.device = device,
		.comm = comm,
		.options = *options };
	if (!alloc_tables(exec))
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for %d steps of rank %d",
			schedule->nsteps, schedule->rank);
	if (status == CPA_OK)
		status = alloc_buffers(exec, error);
	if (status == CPA_OK)
		status = make_comms(exec, error);
	if (status == CPA_OK && options->poison)
		status = poison_all(exec, error);
	if (status != CPA_OK) {
		cpa_exec_destroy(exec);
		return status;
	}
	make_queues(exec);
	*out = exec;
	return CPA_OK;
}

static void free_event(struct cpa_exec *exec, struct cpa_device_event **event)
{
	if (*event)
		exec->device->ops->event_free(exec->device, *event);
	*event = NULL;
}

/* Forgets all that was issued. */
static void rewind_steps(struct cpa_exec *exec)
{
	for (int s = 0; exec->steps && s < exec->schedule->nsteps; s++) {
		struct cpa_exec_run *run = &exec->steps[s];

		free_event(exec, &run->event);
		if (run->request)
			exec->comm->ops->request_free(exec->comm, run->request);
		run->request = NULL;
		run->state = CPA_EXEC_STEP_WAITING;
	}
	for (int q = 0; q < CPA_NQUEUES; q++) {
		free_event(exec, &exec->queues[q].last);
		exec->queues[q].nissued = exec->queues[q].nended = 0;
	}
	exec->status = CPA_OK;
}

enum cpa_status cpa_exec_reset(struct cpa_exec *exec, struct cpa_error *error)
{
	rewind_steps(exec);
	return exec->options.poison ? poison_all(exec, error) : CPA_OK;
}

void cpa_exec_destroy(struct cpa_exec *exec)
{
	if (!exec)
		return;
	rewind_steps(exec);
	for (int i = 0; exec->memory && i < exec->schedule->nbuffers; i++)
		if (exec->memory[i] && exec->memory[i] != nothing)
			exec->device->ops->free(exec->device, exec->memory[i]);
	free(exec->written);
	free(exec->boxes);
	free(exec->memory);
	free(exec->comm_ids);
	free(exec->pieces);
	free(exec->steps);
	free(exec->order);
	free(exec);
}
