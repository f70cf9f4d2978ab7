/*
 * comm_mpi.c - the communicator over MPI, one process a rank: the module that comm_load.c loads.
 *
 * A message goes piece by piece, each piece in chunks, so that no piece is packed.  Order alone
 * matches: MPI keeps it for one (communicator, peer, tag).  Between processes of one machine the
 * sender of a large piece sends a note in its place where it can, and the receiver, who has asked
 * for the piece, copies from there: see comm_near.h.  An all-gather is MPI_Iallgatherv for each
 * piece, and messages where these copy less or its counts are beyond an int; which of the two
 * depends on the group and the sizes alone, so that all members come to the same.
 */
#include "dist/comm_flight.h"
#include "dist/comm_module.h"

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

enum { TAG_SUBGROUP = 3 }; /* after those of transfers */
static const size_t default_chunk = (size_t)1 << 30;
/* Bytes that are copied at a time while the device works, and while it does not. */
static const size_t in_passing = (size_t)512 << 10, at_rest = (size_t)4 << 20;

struct cpa_request {
	struct cpa_request *next; /* of those in flight */
	struct cpa_flight flight;
	MPI_Request *handles; /* [n] */
	MPI_Status *statuses; /* [n] scratch */
	int *ended; /* [n] scratch */
};

struct mpi_comm {
	struct cpa_comm comm;
	size_t chunk_nbytes;
	struct cpa_comm_group *groups; /* [ngroups] */
	MPI_Comm *handles; /* [ngroups] */
	int ngroups;
	struct cpa_request *open, *flying;
};

static struct mpi_comm *mpi_of(struct cpa_comm *comm)
{
	return (struct mpi_comm *)comm;
}

static enum cpa_status fail_mpi(struct cpa_error *error, const char *what, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	MPI_Error_string(code, text, &length);
	return cpa_fail(error, CPA_EXTERNAL, "%s: %s", what, text);
}

/* ---- the processes ---- */

static bool started;
static struct cpa_near *near;

/* "Open MPI v4.1.4, package: ..." is cut at its first comma. */
static const char *mpi_about(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	text[strcspn(text, ",\n")] = '\0';
	return text;
}

/* Others may compute for long: the processor is theirs after a short while. */
static int wait_for(MPI_Request *request)
{
	int done = 0, code = MPI_SUCCESS;

	for (int tries = 0; code == MPI_SUCCESS && !done; tries++) {
		code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (!done && tries > 2000)
			nanosleep(&(struct timespec){0, 200000}, NULL);
		else if (!done)
			sched_yield();
	}
	return code;
}

static enum cpa_status gather(
	const void *own, size_t nbytes, void *all, struct cpa_error *error)
{
	MPI_Request request;
	int code;

	assert(started && nbytes <= INT_MAX);
	code = MPI_Iallgather(
		own, (int)nbytes, MPI_BYTE, all, (int)nbytes, MPI_BYTE, MPI_COMM_WORLD, &request);
	if (code == MPI_SUCCESS)
		code = wait_for(&request);
	return code == MPI_SUCCESS ? CPA_OK : fail_mpi(error, "a gathering of all ranks", code);
}

static enum cpa_status mpi_start(
	const struct cpa_mpi_services *services, struct cpa_error *error)
{
	int level, code, rank, size;

	if (started)
		return CPA_OK;
	code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
	if (code != MPI_SUCCESS)
		return fail_mpi(error, "MPI does not start", code);
	started = true;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (level < MPI_THREAD_FUNNELED)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"this MPI library does not allow a process to have threads "
			"(MPI_THREAD_FUNNELED); one built with threads would work");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	return cpa_near_meet(rank, size, services->copy_bytes, gather, &near, error);
}

static void mpi_stop(void)
{
	if (started)
		MPI_Finalize();
	started = false;
	cpa_near_destroy(near);
	near = NULL;
}

static void end_all(int exit_status)
{
	if (started)
		MPI_Abort(MPI_COMM_WORLD, exit_status);
	exit(exit_status);
}

/* ---- communicators ---- */

/* All members are here, and wait for each other. */
static enum cpa_status make_handle(
	const struct cpa_comm_group *group, MPI_Comm *handle, struct cpa_error *error)
{
	MPI_Group world, few;
	int code = MPI_Comm_group(MPI_COMM_WORLD, &world);

	if (code != MPI_SUCCESS)
		return fail_mpi(error, "making a communicator", code);
	code = MPI_Group_incl(world, group->nmembers, group->members, &few);
	if (code == MPI_SUCCESS) {
		code = MPI_Comm_create_group(MPI_COMM_WORLD, few, TAG_SUBGROUP, handle);
		MPI_Group_free(&few);
	}
	MPI_Group_free(&world);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_set_errhandler(*handle, MPI_ERRORS_RETURN);
	return code == MPI_SUCCESS ? CPA_OK : fail_mpi(error, "making a communicator", code);
}

/* Room for one more. */
static bool grow(struct mpi_comm *mpi)
{
	size_t n = (size_t)mpi->ngroups + 1;
	struct cpa_comm_group *groups = realloc(mpi->groups, n * sizeof *groups);
	MPI_Comm *handles = realloc(mpi->handles, n * sizeof *handles);

	if (groups)
		mpi->groups = groups;
	if (handles)
		mpi->handles = handles;
	return groups && handles;
}

static enum cpa_status mpi_subgroup(
	struct cpa_comm *comm, int nmembers, const int *members, int *id, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct cpa_comm_group group;
	enum cpa_status status;

	*id = cpa_comm_group_find(mpi->groups, mpi->ngroups, nmembers, members);
	if (*id > 0)
		return CPA_OK;
	status = cpa_comm_group_init(&group, comm, nmembers, members, error);
	if (status != CPA_OK)
		return status;
	group.id = mpi->ngroups;
	group.near = cpa_near_group(near, &group);
	status = grow(mpi) ? make_handle(&group, &mpi->handles[group.id], error)
			   : cpa_fail(error, CPA_NO_MEMORY, "out of memory for communicators");
	if (status != CPA_OK) {
		free(group.members);
		return status;
	}
	mpi->groups[mpi->ngroups++] = group;
	*id = group.id;
	return CPA_OK;
}

/* ---- collecting a group of operations ---- */

static void mpi_group_begin(struct cpa_comm *comm, int queue)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct cpa_request *request = calloc(1, sizeof *request);

	(void)queue; /* requests are independent of each other */
	assert(!mpi->open);
	mpi->open = request; /* NULL: group_end tells */
	if (request)
		cpa_transfers_init(&request->flight.list, mpi->chunk_nbytes);
}

static void mpi_send(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);
	size_t nbytes;

	assert(id < mpi->ngroups && peer >= 0 && peer < mpi->groups[id].nmembers);
	if (!mpi->open)
		return;
	nbytes = cpa_transfers_message(&mpi->open->flight.list, CPA_TRANSFER_SEND, &mpi->groups[id],
		peer, pieces, n);
	comm->bytes_sent += (int64_t)nbytes;
	comm->messages += nbytes > 0;
}

static void mpi_recv(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);

	assert(id < mpi->ngroups && peer >= 0 && peer < mpi->groups[id].nmembers);
	if (mpi->open)
		cpa_transfers_message(&mpi->open->flight.list, CPA_TRANSFER_RECV, &mpi->groups[id],
			peer, pieces, n);
}

static void mpi_all_gather(struct cpa_comm *comm, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);
	const struct cpa_comm_group *group = &mpi->groups[id];
	size_t nbytes;

	assert(id < mpi->ngroups);
	if (!mpi->open)
		return;
	nbytes = cpa_transfers_gather(&mpi->open->flight.list, group, own, all, n);
	comm->bytes_sent += (int64_t)nbytes * (group->nmembers - 1);
	comm->messages += nbytes > 0 && group->nmembers > 1;
}

/* ---- starting it ---- */

static int start(struct mpi_comm *mpi, struct cpa_transfer *t, struct cpa_near_move *move,
	MPI_Request *handle)
{
	MPI_Comm comm = mpi->handles[t->comm];

	switch (t->kind) {
	case CPA_TRANSFER_SEND:
		if (cpa_near_offer(near, t->rank, t->data, t->nbytes, move))
			return MPI_Isend(&move->note, sizeof move->note, MPI_BYTE, t->peer, t->tag,
				comm, handle);
		return MPI_Isend(
			t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag, comm, handle);
	case CPA_TRANSFER_RECV:
		return MPI_Irecv(
			t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag, comm, handle);
	case CPA_TRANSFER_GATHER:
		break;
	}
	return MPI_Iallgatherv(t->own ? t->own : MPI_IN_PLACE, t->own ? (int)t->nbytes : 0,
		MPI_BYTE, t->data, t->counts, t->displacements, MPI_BYTE, comm, handle);
}

/* Receives first, so that what arrives finds its place. */
static enum cpa_status start_all(
	struct mpi_comm *mpi, struct cpa_request *request, struct cpa_error *error)
{
	struct cpa_flight *flight = &request->flight;

	for (int pass = 0; pass < 2; pass++) {
		for (struct cpa_transfer *t = flight->list.first; t; t = t->next) {
			int i = flight->n, code;

			if ((t->kind == CPA_TRANSFER_RECV) != (pass == 0))
				continue;
			flight->transfers[i] = t;
			code = start(mpi, t, &flight->moves[i], &request->handles[i]);
			if (code != MPI_SUCCESS)
				return fail_mpi(error, "starting a message", code);
			flight->n++;
		}
	}
	flight->nleft = flight->n;
	flight->state = flight->n ? CPA_PENDING : CPA_DONE;
	return CPA_OK;
}

static void destroy_request(struct cpa_request *request)
{
	if (request) {
		cpa_transfers_fini(&request->flight.list);
		free(request);
	}
}

static void alloc_tables(struct cpa_request *request)
{
	struct cpa_arena *arena = &request->flight.list.arena;
	size_t n = (size_t)request->flight.list.n;

	request->handles = cpa_arena_alloc(arena, n * sizeof *request->handles);
	request->statuses = cpa_arena_alloc(arena, n * sizeof *request->statuses);
	request->ended = cpa_arena_alloc(arena, n * sizeof *request->ended);
}

static enum cpa_status mpi_group_end(
	struct cpa_comm *comm, struct cpa_request **out, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct cpa_request *request = mpi->open;
	enum cpa_status status = CPA_OK;

	mpi->open = NULL;
	if (request) {
		cpa_flight_prepare(&request->flight, comm->rank, near);
		alloc_tables(request);
	}
	if (!request || request->flight.list.arena.failed)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for messages");
	else
		status = start_all(mpi, request, error);
	if (status != CPA_OK) {
		destroy_request(request);
		return status;
	}
	request->next = mpi->flying;
	mpi->flying = request;
	*out = request;
	return CPA_OK;
}

/* ---- how far it is ---- */

static void end_handle(struct cpa_flight *flight, int i, int code, const MPI_Status *status)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int class = MPI_SUCCESS, length = 0;

	if (code != MPI_SUCCESS) {
		MPI_Error_class(code, &class);
		MPI_Error_string(code, text, &length);
		cpa_flight_fail(flight, i,
			class == MPI_ERR_TRUNCATE ? "the message that came is longer" : text);
	} else if (flight->transfers[i]->kind == CPA_TRANSFER_RECV) {
		MPI_Get_count(status, MPI_BYTE, &length);
		cpa_flight_came(flight, i, (size_t)length);
	} else {
		cpa_flight_went(flight, i);
	}
}

static void advance(struct cpa_request *request, size_t *budget)
{
	struct cpa_flight *flight = &request->flight;
	int n = 0, code;

	if (flight->state != CPA_PENDING)
		return;
	code = MPI_Testsome(flight->n, request->handles, &n, request->ended, request->statuses);
	if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
		flight->state = CPA_FAILED;
		fail_mpi(&flight->error, "asking after messages", code);
		return;
	}
	for (int i = 0; n != MPI_UNDEFINED && i < n; i++)
		end_handle(flight, request->ended[i],
			code == MPI_SUCCESS ? MPI_SUCCESS : request->statuses[i].MPI_ERROR,
			&request->statuses[i]);
	cpa_flight_move(flight, budget);
}

static enum cpa_progress mpi_test(
	struct cpa_comm *comm, struct cpa_request *request, struct cpa_error *error)
{
	size_t budget = at_rest;

	(void)comm;
	advance(request, &budget);
	if (request->flight.state == CPA_FAILED)
		*error = request->flight.error;
	return request->flight.state;
}

static void mpi_progress(struct cpa_comm *comm)
{
	size_t budget = in_passing;

	for (struct cpa_request *r = mpi_of(comm)->flying; r; r = r->next)
		advance(r, &budget);
}

/* What is not done is left to MPI, memory included: such a run has failed, and soon ends. */
static void mpi_request_free(struct cpa_comm *comm, struct cpa_request *request)
{
	struct cpa_request **link = &mpi_of(comm)->flying;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (request->flight.nleft == 0)
		destroy_request(request);
}

static void mpi_abort(struct cpa_comm *comm)
{
	(void)comm;
	end_all(2);
}

static void mpi_destroy(struct cpa_comm *comm)
{
	struct mpi_comm *mpi = mpi_of(comm);

	for (int g = 0; g < mpi->ngroups; g++) {
		MPI_Comm_free(&mpi->handles[g]);
		free(mpi->groups[g].members);
	}
	free(mpi->groups);
	free(mpi->handles);
	free(mpi);
}

static const struct cpa_comm_ops mpi_ops = {
	.name = "mpi",
	.subgroup = mpi_subgroup,
	.group_begin = mpi_group_begin,
	.send = mpi_send,
	.recv = mpi_recv,
	.all_gather = mpi_all_gather,
	.group_end = mpi_group_end,
	.test = mpi_test,
	.request_free = mpi_request_free,
	.abort = mpi_abort,
	.destroy = mpi_destroy,
	.progress = mpi_progress,
};

static enum cpa_status create(
	size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error)
{
	struct mpi_comm *mpi = calloc(1, sizeof *mpi);
	struct cpa_comm_group world = {0};
	int code;

	assert(started && chunk_nbytes <= INT_MAX);
	if (!mpi || !grow(mpi)) {
		if (mpi)
			mpi_destroy(&mpi->comm);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a communicator");
	}
	mpi->comm.ops = &mpi_ops;
	mpi->comm.memory = cpa_near_memory(near);
	mpi->chunk_nbytes = chunk_nbytes ? chunk_nbytes : default_chunk;
	MPI_Comm_rank(MPI_COMM_WORLD, &mpi->comm.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &mpi->comm.size);
	/* Messages of the world must not meet those of another library. */
	code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->handles[0]);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_set_errhandler(mpi->handles[0], MPI_ERRORS_RETURN);
	if (code != MPI_SUCCESS) {
		mpi_destroy(&mpi->comm);
		return fail_mpi(error, "making the world", code);
	}
	world.nmembers = mpi->comm.size;
	world.self = mpi->comm.rank;
	world.near = cpa_near_group(near, &world);
	mpi->groups[mpi->ngroups++] = world;
	*comm = &mpi->comm;
	return CPA_OK;
}

const struct cpa_mpi_module cpa_mpi_module = {
	.layout = CPA_MODULE_LAYOUT,
	.version = CPA_VERSION,
	.about = mpi_about,
	.start = mpi_start,
	.stop = mpi_stop,
	.abort = end_all,
	.gather = gather,
	.create = create,
};
