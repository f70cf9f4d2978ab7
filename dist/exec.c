/*
 * exec.c - runs one rank's schedule: turns boxes into arrays and issues steps when they may go.
 *
 * A step may go when the one before it in its queue and those it waits for are ordered before
 * it.  What that takes depends on who runs them:
 *
 *   earlier step  later step   host-driven communicator       stream-ordered communicator
 *   compute       compute      issued (and an event wait      the same
 *                              when in another queue)
 *   compute       comm         its device event is done       issued, and an event wait
 *   comm          any          its request is done            issued, and an event wait
 */
#include "dist/exec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- issuing ---- */

static bool hook_before(struct cpa_exec *exec, int op)
{
	const struct cpa_exec_hook *hook = &exec->options.hook;

	return !hook->before || hook->before(hook->context, exec, op);
}

static void hook_after(struct cpa_exec *exec, int op)
{
	const struct cpa_exec_hook *hook = &exec->options.hook;

	if (hook->after)
		hook->after(hook->context, exec, op);
}

static enum cpa_status issue_group(struct cpa_exec *exec, int s, struct cpa_error *error)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	enum cpa_status status;

	exec->comm->ops->group_begin(exec->comm, step->queue);
	for (int i = 0; i < step->nops; i++)
		if (hook_before(exec, step->first + i))
			cpa_exec_post(exec, &exec->schedule->ops[step->first + i]);
	status = exec->comm->ops->group_end(exec->comm, &exec->steps[s].request, error);
	for (int i = 0; status == CPA_OK && i < step->nops; i++)
		hook_after(exec, step->first + i);
	return status;
}

/* Devices that work in this thread ask for messages now and then. */
static void move_messages(void *context)
{
	struct cpa_comm *comm = context;

	comm->ops->progress(comm);
}

static enum cpa_status issue_compute(struct cpa_exec *exec, int s, struct cpa_error *error)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	enum cpa_status status = CPA_OK;

	assert(step->nops == 1);
	if (exec->comm->ops->progress && !exec->options.no_progress) {
		exec->device->progress = move_messages;
		exec->device->progress_context = exec->comm;
	}
	if (hook_before(exec, step->first))
		status = cpa_exec_compute(
			exec, step->queue, &exec->schedule->ops[step->first], error);
	exec->device->progress = NULL; /* the device may be another rank's next */
	if (status == CPA_OK)
		hook_after(exec, step->first);
	return status;
}

static enum cpa_status issue(struct cpa_exec *exec, int s, struct cpa_error *error)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	struct cpa_device *device = exec->device;
	struct cpa_exec_run *run = &exec->steps[s];
	enum cpa_status status = CPA_OK;
	/* Else the host has seen the events done. */
	bool by_device = exec->comm->stream_ordered || !cpa_exec_communicates(exec, s);

	for (int q = 0; status == CPA_OK && q < CPA_NQUEUES; q++) {
		int before = step->waits[q];

		if (q != step->queue && before >= 0 && exec->steps[before].event && by_device)
			status = device->ops->event_wait(
				device, step->queue, exec->steps[before].event, error);
	}
	if (status == CPA_OK)
		status = (cpa_exec_communicates(exec, s) ? issue_group : issue_compute)(
			exec, s, error);
	if (status == CPA_OK && run->records)
		status = device->ops->event_record(device, step->queue, &run->event, error);
	if (status != CPA_OK)
		return status;
	run->state = CPA_EXEC_STEP_ISSUED;
	exec->queues[step->queue].nissued++;
	return CPA_OK;
}

/* ---- what may go ---- */

enum ready { READY, READY_WHEN_DEVICE_IS, NOT_READY };

static enum ready ready_after(struct cpa_exec *exec, int before, int s)
{
	struct cpa_exec_run *run = &exec->steps[before];

	if (run->state == CPA_EXEC_STEP_WAITING)
		return NOT_READY;
	if (run->state == CPA_EXEC_STEP_ENDED || exec->comm->stream_ordered)
		return READY;
	if (cpa_exec_communicates(exec, before))
		return NOT_READY;
	if (!cpa_exec_communicates(exec, s))
		return READY;
	if (!exec->device->ops->event_done(exec->device, run->event))
		return READY_WHEN_DEVICE_IS;
	run->state = CPA_EXEC_STEP_ENDED;
	return READY;
}

static enum ready step_ready(struct cpa_exec *exec, int s)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	const struct cpa_exec_queue *queue = &exec->queues[step->queue];
	enum ready worst = READY;

	if (queue->nissued > 0)
		worst = ready_after(exec, queue->steps[queue->nissued - 1], s);
	for (int q = 0; q < CPA_NQUEUES; q++)
		if (q != step->queue && step->waits[q] >= 0) {
			enum ready ready = ready_after(exec, step->waits[q], s);

			worst = ready > worst ? ready : worst;
		}
	return worst;
}

/* Asks after what is in flight.  False: a request failed. */
static bool progress(struct cpa_exec *exec, struct cpa_exec_queue *queue, bool *moved,
	struct cpa_error *error)
{
	while (queue->nended < queue->nissued) {
		struct cpa_exec_run *run = &exec->steps[queue->steps[queue->nended]];

		if (run->request) {
			enum cpa_progress got =
				exec->comm->ops->test(exec->comm, run->request, error);

			if (got == CPA_FAILED)
				return false;
			if (got == CPA_PENDING)
				break;
			exec->comm->ops->request_free(exec->comm, run->request);
			run->request = NULL;
			run->state = CPA_EXEC_STEP_ENDED;
			*moved = true;
		}
		queue->nended++;
	}
	return true;
}

/* All steps issued and requests done: asks the device for the rest. */
static enum cpa_exec_state drain(struct cpa_exec *exec, struct cpa_error *error)
{
	struct cpa_device *device = exec->device;
	bool done = true;

	for (int q = 0; q < CPA_NQUEUES; q++) {
		struct cpa_exec_queue *queue = &exec->queues[q];

		if (queue->nsteps == 0)
			continue;
		if (!queue->last) {
			exec->status =
				device->ops->event_record(device, q, &queue->last, error);
			if (exec->status != CPA_OK)
				return CPA_EXEC_FAILED;
		}
		done &= device->ops->event_done(device, queue->last);
	}
	return done ? CPA_EXEC_DONE : CPA_EXEC_RUNNING;
}

enum cpa_exec_state cpa_exec_step(struct cpa_exec *exec, uint64_t seed, struct cpa_error *error)
{
	int ready[CPA_NQUEUES], nready = 0;
	bool moved = false, all = true;

	if (exec->status != CPA_OK) {
		cpa_fail(
			error, exec->status, "rank %d has failed before", exec->schedule->rank);
		return CPA_EXEC_FAILED;
	}
	for (int q = 0; q < CPA_NQUEUES; q++)
		if (!progress(exec, &exec->queues[q], &moved, error)) {
			exec->status = CPA_EXTERNAL;
			return CPA_EXEC_FAILED;
		}
	for (int q = 0; q < CPA_NQUEUES; q++) {
		const struct cpa_exec_queue *queue = &exec->queues[q];
		enum ready how;

		all &= queue->nended == queue->nsteps;
		if (queue->nissued == queue->nsteps)
			continue;
		how = step_ready(exec, queue->steps[queue->nissued]);
		if (how == READY)
			ready[nready++] = queue->steps[queue->nissued];
		moved |= how == READY_WHEN_DEVICE_IS; /* moves by itself: not blocked */
	}
	if (all)
		return drain(exec, error);
	if (nready == 0)
		return moved ? CPA_EXEC_RUNNING : CPA_EXEC_BLOCKED;
	exec->status = issue(exec, ready[seed % (uint64_t)nready], error);
	return exec->status == CPA_OK ? CPA_EXEC_RUNNING : CPA_EXEC_FAILED;
}

enum cpa_status cpa_exec_status(const struct cpa_exec *exec)
{
	return exec->status;
}

/* ---- for people ---- */

/* "step 7: recv ..., recv ..." */
static size_t print_step(const struct cpa_exec *exec, int s, char *text, size_t size)
{
	const struct cpa_step *step = &exec->schedule->steps[s];
	size_t used = (size_t)snprintf(text, size, "step %d: ", s);

	for (int i = 0; i < step->nops && used < size; i++) {
		if (i > 0)
			used += (size_t)snprintf(text + used, size - used, ", ");
		if (used < size) {
			cpa_op_print(exec->schedule, step->first + i, text + used, size - used);
			used += strlen(text + used);
		}
	}
	return used < size ? used : size - 1;
}

/* The step that this one waits for and that has not been issued; -1: none. */
static int unmet(const struct cpa_exec *exec, int s)
{
	for (int q = 0; q < CPA_NQUEUES; q++) {
		int before = exec->schedule->steps[s].waits[q];

		if (before >= 0 && exec->steps[before].state == CPA_EXEC_STEP_WAITING)
			return before;
	}
	return -1;
}

/* Requests in flight say it all; without any, steps wait for each other. */
void cpa_exec_waiting(const struct cpa_exec *exec, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int s = 0; s < exec->schedule->nsteps; s++)
		if (exec->steps[s].request && used + 1 < size) {
			if (used > 0)
				used += (size_t)snprintf(text + used, size - used, "; ");
			if (used + 1 < size)
				used += print_step(exec, s, text + used, size - used);
		}
	for (int q = 0; q < CPA_NQUEUES && !text[0]; q++) {
		const struct cpa_exec_queue *queue = &exec->queues[q];
		int next = queue->nissued < queue->nsteps ? queue->steps[queue->nissued] : -1;

		if (next < 0 || unmet(exec, next) < 0)
			continue;
		used = print_step(exec, next, text, size);
		snprintf(text + used, size - used, ", which waits for step %d",
			unmet(exec, next));
	}
}
