/*
 * phase.c - operations that read the clock.
 */
#include "harness/phase.h"
#include "harness/clock.h"

const char *cpa_phase_name(enum cpa_phase phase)
{
	static const char *const names[] = {"attend", "merge", "copy", "exchange", "wait"};
	return names[phase];
}

/* ---- a device ---- */

static struct cpa_watched_device *watch_of_device(struct cpa_device *device)
{
	return (struct cpa_watched_device *)(void *)device->ops;
}

static void add(struct cpa_phases *phases, enum cpa_phase phase, double start)
{
	phases->seconds[phase] += cpa_now() - start;
}

static enum cpa_status watched_copy(struct cpa_device *device, int queue,
	const struct cpa_copy *copy, struct cpa_error *error)
{
	struct cpa_watched_device *watch = watch_of_device(device);
	double start = cpa_now();
	enum cpa_status status = watch->real->copy(device, queue, copy, error);
	add(watch->phases, CPA_PHASE_COPY, start);
	return status;
}

static void watched_progress(void *context)
{
	struct cpa_watched_device *watch = context;
	double start = cpa_now();
	watch->progress(watch->progress_context);
	watch->moving += cpa_now() - start;
}

/* Messages that move in between are no attention. */
static enum cpa_status watched_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	struct cpa_watched_device *watch = watch_of_device(device);
	double start = cpa_now();
	watch->progress = device->progress;
	watch->progress_context = device->progress_context;
	watch->moving = 0;
	if (watch->progress) {
		device->progress = watched_progress;
		device->progress_context = watch;
	}
	enum cpa_status status = watch->real->attend(device, queue, attend, error);
	device->progress = watch->progress;
	device->progress_context = watch->progress_context;
	add(watch->phases, CPA_PHASE_ATTEND, start);
	watch->phases->seconds[CPA_PHASE_ATTEND] -= watch->moving;
	watch->phases->seconds[CPA_PHASE_EXCHANGE] += watch->moving;
	return status;
}

static enum cpa_status watched_merge(struct cpa_device *device, int queue,
	const struct cpa_merge *merge, struct cpa_error *error)
{
	struct cpa_watched_device *watch = watch_of_device(device);
	double start = cpa_now();
	enum cpa_status status = watch->real->merge(device, queue, merge, error);
	add(watch->phases, CPA_PHASE_MERGE, start);
	return status;
}

void cpa_watch_device(
	struct cpa_watched_device *watch, struct cpa_device *device, struct cpa_phases *phases)
{
	*watch = (struct cpa_watched_device){
		.ops = *device->ops, .real = device->ops, .device = device, .phases = phases};
	watch->ops.copy = watched_copy;
	watch->ops.attend = watched_attend;
	watch->ops.merge = watched_merge;
	device->ops = &watch->ops;
}

void cpa_unwatch_device(struct cpa_watched_device *watch)
{
	if (watch->device)
		watch->device->ops = watch->real;
	watch->device = NULL;
}

/* ---- a communicator ---- */

static struct cpa_watched_comm *watch_of_comm(struct cpa_comm *comm)
{
	return (struct cpa_watched_comm *)(void *)comm->ops;
}

static void watched_send(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct cpa_watched_comm *watch = watch_of_comm(comm);
	double start = cpa_now();
	watch->real->send(comm, id, peer, pieces, n);
	add(watch->phases, CPA_PHASE_EXCHANGE, start);
}

static void watched_recv(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct cpa_watched_comm *watch = watch_of_comm(comm);
	double start = cpa_now();
	watch->real->recv(comm, id, peer, pieces, n);
	add(watch->phases, CPA_PHASE_EXCHANGE, start);
}

static void watched_all_gather(struct cpa_comm *comm, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int n)
{
	struct cpa_watched_comm *watch = watch_of_comm(comm);
	double start = cpa_now();
	watch->real->all_gather(comm, id, own, all, n);
	add(watch->phases, CPA_PHASE_EXCHANGE, start);
}

static enum cpa_status watched_group_end(
	struct cpa_comm *comm, struct cpa_request **request, struct cpa_error *error)
{
	struct cpa_watched_comm *watch = watch_of_comm(comm);
	double start = cpa_now();
	enum cpa_status status = watch->real->group_end(comm, request, error);
	add(watch->phases, CPA_PHASE_EXCHANGE, start);
	return status;
}

static enum cpa_progress watched_test(
	struct cpa_comm *comm, struct cpa_request *request, struct cpa_error *error)
{
	struct cpa_watched_comm *watch = watch_of_comm(comm);
	double start = cpa_now();
	enum cpa_progress progress = watch->real->test(comm, request, error);
	if (progress != CPA_PENDING)
		add(watch->phases, CPA_PHASE_EXCHANGE, start);
	return progress;
}

void cpa_watch_comm(
	struct cpa_watched_comm *watch, struct cpa_comm *comm, struct cpa_phases *phases)
{
	*watch = (struct cpa_watched_comm){*comm->ops, comm->ops, comm, phases};
	watch->ops.send = watched_send;
	watch->ops.recv = watched_recv;
	watch->ops.all_gather = watched_all_gather;
	watch->ops.group_end = watched_group_end;
	watch->ops.test = watched_test;
	comm->ops = &watch->ops;
}

void cpa_unwatch_comm(struct cpa_watched_comm *watch)
{
	if (watch->comm)
		watch->comm->ops = watch->real;
	watch->comm = NULL;
}
