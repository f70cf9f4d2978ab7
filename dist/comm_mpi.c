/*
 * comm_mpi.c - the communicator over MPI, one process a rank.  The only user of mpi.h.
 *
 * A message goes piece by piece, each piece in chunks, so that no piece is packed and MPI may
 * copy it once, from process to process.  Order alone matches: MPI keeps it for one
 * (communicator, peer, tag). An all-gather is MPI_Iallgatherv for each piece, and messages where
 * its counts are beyond an int; which of the two depends on the sizes alone, so that all members
 * come to the same.
 */
#include "dist/comm_collect.h"

#if CPA_HAVE_MPI

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

enum { TAG_SUBGROUP = 3 }; /* after those of transfers */
static const size_t default_chunk = (size_t)1 << 30;

struct group {
	struct cpa_comm_group of;
	MPI_Comm handle;
};

struct cpa_request {
	struct cpa_request *next; /* of those in flight */
	struct cpa_transfers list;
	int n, nleft;
	struct cpa_transfer **transfers; /* [n] in the order in which they were started */
	MPI_Request *handles; /* [n] */
	MPI_Status *statuses; /* [n] scratch */
	int *ended; /* [n] scratch */
	enum cpa_progress state;
	struct cpa_error error;
};

struct mpi_comm {
	struct cpa_comm comm;
	size_t chunk_nbytes;
	struct group *groups;
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

bool cpa_mpi_built(void)
{
	return true;
}

bool cpa_mpi_launched(void)
{
	return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK");
}

/* "Open MPI v4.1.4, package: ..." is cut at its first comma. */
const char *cpa_mpi_about(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	text[strcspn(text, ",\n")] = '\0';
	return text;
}

enum cpa_status cpa_mpi_start(struct cpa_error *error)
{
	int level, code;

	if (started)
		return CPA_OK;
	/* Alone, Open MPI would start a daemon, to be able to start more processes. */
	if (!cpa_mpi_launched())
		setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
	code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
	if (code != MPI_SUCCESS)
		return fail_mpi(error, "MPI does not start", code);
	started = true;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (level < MPI_THREAD_FUNNELED)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"this MPI library does not allow a process to have threads "
			"(MPI_THREAD_FUNNELED); one built with threads would work");
	return CPA_OK;
}

void cpa_mpi_stop(void)
{
	if (started)
		MPI_Finalize();
	started = false;
}

void cpa_mpi_abort(int exit_status)
{
	if (started)
		MPI_Abort(MPI_COMM_WORLD, exit_status);
	exit(exit_status);
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

enum cpa_status cpa_mpi_gather(const void *own, size_t nbytes, void *all, struct cpa_error *error)
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

/* ---- communicators ---- */

/* All members are here, and wait for each other. */
static enum cpa_status make_handle(struct group *group, struct cpa_error *error)
{
	MPI_Group world, few;
	int code = MPI_Comm_group(MPI_COMM_WORLD, &world);

	if (code != MPI_SUCCESS)
		return fail_mpi(error, "making a communicator", code);
	code = MPI_Group_incl(world, group->of.nmembers, group->of.members, &few);
	if (code == MPI_SUCCESS) {
		code = MPI_Comm_create_group(MPI_COMM_WORLD, few, TAG_SUBGROUP, &group->handle);
		MPI_Group_free(&few);
	}
	MPI_Group_free(&world);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_set_errhandler(group->handle, MPI_ERRORS_RETURN);
	return code == MPI_SUCCESS ? CPA_OK : fail_mpi(error, "making a communicator", code);
}

static enum cpa_status mpi_subgroup(
	struct cpa_comm *comm, int nmembers, const int *members, int *id, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct group *groups, group;
	enum cpa_status status;

	for (int g = 1; g < mpi->ngroups; g++)
		if (cpa_comm_group_is(&mpi->groups[g].of, nmembers, members)) {
			*id = g;
			return CPA_OK;
		}
	status = cpa_comm_group_init(&group.of, comm, nmembers, members, error);
	if (status != CPA_OK)
		return status;
	groups = realloc(mpi->groups, (size_t)(mpi->ngroups + 1) * sizeof *groups);
	if (groups)
		mpi->groups = groups;
	status = groups ? make_handle(&group, error)
			: cpa_fail(error, CPA_NO_MEMORY, "out of memory for communicators");
	if (status != CPA_OK) {
		free(group.of.members);
		return status;
	}
	groups[mpi->ngroups] = group;
	*id = mpi->ngroups++;
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
		cpa_transfers_init(&request->list, mpi->chunk_nbytes);
}

static void mpi_send(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);
	size_t nbytes;

	assert(id < mpi->ngroups && peer >= 0 && peer < mpi->groups[id].of.nmembers);
	if (!mpi->open)
		return;
	nbytes = cpa_transfers_message(&mpi->open->list, CPA_TRANSFER_SEND, id, peer, pieces, n);
	comm->bytes_sent += (int64_t)nbytes;
	comm->messages += nbytes > 0;
}

static void mpi_recv(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);

	assert(id < mpi->ngroups && peer >= 0 && peer < mpi->groups[id].of.nmembers);
	if (mpi->open)
		cpa_transfers_message(&mpi->open->list, CPA_TRANSFER_RECV, id, peer, pieces, n);
}

static void mpi_all_gather(struct cpa_comm *comm, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int n)
{
	struct mpi_comm *mpi = mpi_of(comm);
	const struct cpa_comm_group *group = &mpi->groups[id].of;
	size_t nbytes;

	assert(id < mpi->ngroups);
	if (!mpi->open)
		return;
	nbytes = cpa_transfers_gather(
		&mpi->open->list, id, group->nmembers, group->self, own, all, n);
	comm->bytes_sent += (int64_t)nbytes * (group->nmembers - 1);
	comm->messages += nbytes > 0 && group->nmembers > 1;
}

/* ---- starting it ---- */

static int start(struct mpi_comm *mpi, struct cpa_transfer *t, MPI_Request *handle)
{
	const struct group *group = &mpi->groups[t->comm];

	switch (t->kind) {
	case CPA_TRANSFER_SEND:
		return MPI_Isend(t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag,
			group->handle, handle);
	case CPA_TRANSFER_RECV:
		return MPI_Irecv(t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag,
			group->handle, handle);
	case CPA_TRANSFER_GATHER:
		break;
	}
	return MPI_Iallgatherv(t->own ? t->own : MPI_IN_PLACE, t->own ? (int)t->nbytes : 0,
		MPI_BYTE, t->data, t->counts, t->displacements, MPI_BYTE, group->handle, handle);
}

/* Receives first, so that what arrives finds its place. */
static enum cpa_status start_all(
	struct mpi_comm *mpi, struct cpa_request *request, struct cpa_error *error)
{
	for (int pass = 0; pass < 2; pass++) {
		for (struct cpa_transfer *t = request->list.first; t; t = t->next) {
			int code;

			if ((t->kind == CPA_TRANSFER_RECV) != (pass == 0))
				continue;
			request->transfers[request->nleft] = t;
			code = start(mpi, t, &request->handles[request->nleft]);
			if (code != MPI_SUCCESS)
				return fail_mpi(error, "starting a message", code);
			request->nleft++;
		}
	}
	return CPA_OK;
}

static void destroy_request(struct cpa_request *request)
{
	if (request) {
		cpa_transfers_fini(&request->list);
		free(request);
	}
}

static enum cpa_status mpi_group_end(
	struct cpa_comm *comm, struct cpa_request **out, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct cpa_request *request = mpi->open;
	enum cpa_status status = CPA_OK;
	size_t n = request ? (size_t)request->list.n : 0;

	mpi->open = NULL;
	if (request) {
		struct cpa_arena *arena = &request->list.arena;

		request->transfers = cpa_arena_alloc(arena, n * sizeof *request->transfers);
		request->handles = cpa_arena_alloc(arena, n * sizeof *request->handles);
		request->statuses = cpa_arena_alloc(arena, n * sizeof *request->statuses);
		request->ended = cpa_arena_alloc(arena, n * sizeof *request->ended);
	}
	if (!request || request->list.arena.failed)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for messages");
	else
		status = start_all(mpi, request, error);
	if (status != CPA_OK) {
		destroy_request(request);
		return status;
	}
	request->n = request->nleft;
	request->state = request->nleft ? CPA_PENDING : CPA_DONE;
	request->next = mpi->flying;
	mpi->flying = request;
	*out = request;
	return CPA_OK;
}

/* ---- how far it is ---- */

static void fail_request(struct cpa_request *request, struct mpi_comm *mpi,
	const struct cpa_transfer *t, const char *what)
{
	int peer = t->kind == CPA_TRANSFER_GATHER
		? -1
		: cpa_comm_group_rank(&mpi->groups[t->comm].of, t->peer);

	if (request->state != CPA_FAILED)
		cpa_transfer_fail(t, mpi->comm.rank, peer, what, &request->error);
	request->state = CPA_FAILED;
}

/* Both sides have made the same plan, so any other length is a fault. */
static void end_transfer(struct cpa_request *request, struct mpi_comm *mpi, int i, int code,
	const MPI_Status *status)
{
	const struct cpa_transfer *t = request->transfers[i];
	char text[MPI_MAX_ERROR_STRING + 64] = "";
	int class = MPI_SUCCESS, length = 0;

	request->nleft--;
	if (code != MPI_SUCCESS) {
		MPI_Error_class(code, &class);
		if (class == MPI_ERR_TRUNCATE)
			snprintf(text, sizeof text, "the message that came is longer");
		else
			MPI_Error_string(code, text, &length);
		fail_request(request, mpi, t, text);
		return;
	}
	cpa_transfer_deliver(t);
	if (t->kind != CPA_TRANSFER_RECV)
		return;
	MPI_Get_count(status, MPI_BYTE, &length);
	if ((size_t)length == t->nbytes)
		return;
	snprintf(text, sizeof text, "the message that came has %d bytes", length);
	fail_request(request, mpi, t, text);
}

static void advance(struct mpi_comm *mpi, struct cpa_request *request)
{
	int n = 0, code;

	if (request->state != CPA_PENDING)
		return;
	code = MPI_Testsome(request->n, request->handles, &n, request->ended, request->statuses);
	if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
		request->state = CPA_FAILED;
		fail_mpi(&request->error, "asking after messages", code);
		return;
	}
	for (int i = 0; n != MPI_UNDEFINED && i < n; i++)
		end_transfer(request, mpi, request->ended[i],
			code == MPI_SUCCESS ? MPI_SUCCESS : request->statuses[i].MPI_ERROR,
			&request->statuses[i]);
	if (request->nleft == 0 && request->state == CPA_PENDING)
		request->state = CPA_DONE;
}

static enum cpa_progress mpi_test(
	struct cpa_comm *comm, struct cpa_request *request, struct cpa_error *error)
{
	advance(mpi_of(comm), request);
	if (request->state == CPA_FAILED)
		*error = request->error;
	return request->state;
}

static void mpi_progress(struct cpa_comm *comm)
{
	for (struct cpa_request *r = mpi_of(comm)->flying; r; r = r->next)
		advance(mpi_of(comm), r);
}

/* What is not done is left to MPI, memory included: such a run has failed, and soon ends. */
static void mpi_request_free(struct cpa_comm *comm, struct cpa_request *request)
{
	struct cpa_request **link = &mpi_of(comm)->flying;
	bool done = true;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	for (int i = 0; i < request->n; i++)
		done &= request->handles[i] == MPI_REQUEST_NULL;
	if (done)
		destroy_request(request);
}

static void mpi_abort(struct cpa_comm *comm)
{
	(void)comm;
	cpa_mpi_abort(2);
}

static void mpi_destroy(struct cpa_comm *comm)
{
	struct mpi_comm *mpi = mpi_of(comm);

	for (int g = 0; g < mpi->ngroups; g++) {
		MPI_Comm_free(&mpi->groups[g].handle);
		free(mpi->groups[g].of.members);
	}
	free(mpi->groups);
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

enum cpa_status cpa_comm_mpi_create(
	size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error)
{
	struct mpi_comm *mpi = calloc(1, sizeof *mpi);
	int code;

	assert(started && chunk_nbytes <= INT_MAX);
	if (mpi)
		mpi->groups = calloc(1, sizeof *mpi->groups);
	if (!mpi || !mpi->groups) {
		free(mpi);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a communicator");
	}
	mpi->comm.ops = &mpi_ops;
	mpi->chunk_nbytes = chunk_nbytes ? chunk_nbytes : default_chunk;
	MPI_Comm_rank(MPI_COMM_WORLD, &mpi->comm.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &mpi->comm.size);
	/* Messages of the world must not meet those of another library. */
	code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->groups[0].handle);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_set_errhandler(mpi->groups[0].handle, MPI_ERRORS_RETURN);
	if (code != MPI_SUCCESS) {
		free(mpi->groups);
		free(mpi);
		return fail_mpi(error, "making the world", code);
	}
	mpi->groups[0].of.nmembers = mpi->comm.size;
	mpi->groups[0].of.self = mpi->comm.rank;
	mpi->ngroups = 1;
	*comm = &mpi->comm;
	return CPA_OK;
}

#endif
