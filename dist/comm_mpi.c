/*
 * comm_mpi.c - the communicator over MPI, one process a rank.  The only user of mpi.h.
 *
 * A message goes piece by piece, each piece in chunks, so that no piece is packed and MPI may copy it
 * once, from process to process.  Order alone matches: MPI keeps it for one (communicator, peer, tag).
 * An all-gather is MPI_Iallgatherv for each piece, and messages where its counts are beyond an int;
 * which of the two depends on the sizes alone, so that all members come to the same.
 */
#include "dist/dist.h"

#if CPA_HAVE_MPI

#include <assert.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

enum { TAG_MESSAGE = 1, TAG_GATHER = 2, TAG_SUBGROUP = 3 };
static const size_t default_chunk = (size_t)1 << 30;

/* Communicator number i of the world's ids. */
struct group {
	MPI_Comm handle;
	int nmembers, self;
	int *members; /* world ranks; NULL: the world */
};

enum transfer_kind { SEND, RECV, GATHER };

/* What one MPI request is about. */
struct transfer {
	struct transfer *next;
	enum transfer_kind kind;
	int group, peer, tag; /* peer: rank in the group */
	char *data;           /* GATHER: where displacements count from */
	size_t nbytes;
	int *counts, *displacements; /* GATHER: [nmembers] */
	const char *own;             /* GATHER: NULL when it is in place */
};

struct cpa_request {
	struct cpa_request *next; /* of those in flight */
	struct cpa_arena arena;
	struct transfer *first, **last;
	int n, nleft;
	struct transfer **transfers; /* [n] */
	MPI_Request *handles;        /* [n] */
	MPI_Status *statuses;        /* [n] scratch */
	int *ended;                  /* [n] scratch */
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

static int world_rank(const struct group *group, int member)
{
	return group->members ? group->members[member] : member;
}

static enum cpa_status fail_mpi(struct cpa_error *error, const char *what, int code)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	MPI_Error_string(code, text, &length);
	return cpa_fail(error, CPA_EXTERNAL, "%s: %s", what, text);
}

/* ---- the processes --------------------------------------------------------------------------- */

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
	/* Alone, Open MPI would start a daemon to be able to start more processes: nobody wants to. */
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
			nanosleep(&(struct timespec){ 0, 200000 }, NULL);
		else if (!done)
			sched_yield();
	}
	return code;
}

enum cpa_status cpa_mpi_gather(
	const void *own, size_t nbytes, void *all, struct cpa_error *error)
{
	MPI_Request request;
	int code;

	assert(started && nbytes <= INT_MAX);
	code = MPI_Iallgather(own, (int)nbytes, MPI_BYTE, all, (int)nbytes, MPI_BYTE,
		MPI_COMM_WORLD, &request);
	if (code == MPI_SUCCESS)
		code = wait_for(&request);
	return code == MPI_SUCCESS ? CPA_OK : fail_mpi(error, "a gathering of all ranks", code);
}

/* ---- communicators --------------------------------------------------------------------------- */

static bool same_members(const struct group *group, int nmembers, const int *members)
{
	if (group->nmembers != nmembers)
		return false;
	for (int i = 0; i < nmembers; i++)
		if (world_rank(group, i) != members[i])
			return false;
	return true;
}

static int find_self(const struct cpa_comm *comm, int nmembers, const int *members)
{
	for (int i = 0; i < nmembers; i++)
		if (members[i] == comm->rank)
			return i;
	return -1;
}

/* All members are here, and wait for each other. */
static enum cpa_status make_handle(struct group *group, struct cpa_error *error)
{
	MPI_Group world, few;
	int code = MPI_Comm_group(MPI_COMM_WORLD, &world);

	if (code != MPI_SUCCESS)
		return fail_mpi(error, "making a communicator", code);
	code = MPI_Group_incl(world, group->nmembers, group->members, &few);
	if (code == MPI_SUCCESS) {
		code = MPI_Comm_create_group(
			MPI_COMM_WORLD, few, TAG_SUBGROUP, &group->handle);
		MPI_Group_free(&few);
	}
	MPI_Group_free(&world);
	if (code == MPI_SUCCESS)
		code = MPI_Comm_set_errhandler(group->handle, MPI_ERRORS_RETURN);
	return code == MPI_SUCCESS ? CPA_OK : fail_mpi(error, "making a communicator", code);
}

static enum cpa_status mpi_subgroup(struct cpa_comm *comm, int nmembers, const int *members,
	int *id, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct group *groups, group = { .nmembers = nmembers };
	enum cpa_status status;

	for (int i = 0; i < nmembers; i++)
		if (members[i] < 0 || members[i] >= comm->size)
			return cpa_fail(error, CPA_INVALID,
				"rank %d: member %d of a communicator is rank %d; ranks are 0 to %d",
				comm->rank, i, members[i], comm->size - 1);
	group.self = find_self(comm, nmembers, members);
	if (group.self < 0)
		return cpa_fail(error, CPA_INVALID,
			"rank %d makes a communicator of %d ranks of which it is none",
			comm->rank, nmembers);
	for (int g = 1; g < mpi->ngroups; g++)
		if (same_members(&mpi->groups[g], nmembers, members)) {
			*id = g;
			return CPA_OK;
		}
	groups = realloc(mpi->groups, (size_t)(mpi->ngroups + 1) * sizeof *groups);
	if (groups)
		mpi->groups = groups;
	group.members = malloc((size_t)nmembers * sizeof *group.members);
	if (!groups || !group.members) {
		free(group.members);
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for a communicator of %d ranks", nmembers);
	}
	memcpy(group.members, members, (size_t)nmembers * sizeof *group.members);
	status = make_handle(&group, error);
	if (status != CPA_OK) {
		free(group.members);
		return status;
	}
	groups[mpi->ngroups] = group;
	*id = mpi->ngroups++;
	return CPA_OK;
}

/* ---- collecting a group of operations -------------------------------------------------------- */

static void mpi_group_begin(struct cpa_comm *comm, int queue)
{
	struct cpa_request *request = calloc(1, sizeof *request);

	(void)queue; /* requests are independent of each other */
	assert(!mpi_of(comm)->open);
	mpi_of(comm)->open = request;
	if (!request)
		return; /* group_end tells */
	cpa_arena_init(&request->arena);
	request->last = &request->first;
}

static struct transfer *add_transfer(struct mpi_comm *mpi, enum transfer_kind kind, int group)
{
	struct cpa_request *request = mpi->open;
	struct transfer *transfer =
		request ? cpa_arena_alloc(&request->arena, sizeof *transfer) : NULL;

	assert(group >= 0 && group < mpi->ngroups);
	if (!transfer)
		return NULL;
	transfer->kind = kind;
	transfer->group = group;
	*request->last = transfer;
	request->last = &transfer->next;
	request->n++;
	return transfer;
}

/* One piece, in chunks; an empty one is none. */
static void add_piece(struct mpi_comm *mpi, enum transfer_kind kind, int group, int peer,
	int tag, const struct cpa_piece *piece)
{
	for (size_t at = 0; at < piece->nbytes; at += mpi->chunk_nbytes) {
		struct transfer *transfer = add_transfer(mpi, kind, group);
		size_t left = piece->nbytes - at;

		if (!transfer)
			return;
		transfer->peer = peer;
		transfer->tag = tag;
		transfer->data = (char *)piece->data + at;
		transfer->nbytes = left < mpi->chunk_nbytes ? left : mpi->chunk_nbytes;
	}
}

static size_t total(const struct cpa_piece *pieces, int n, int step)
{
	size_t nbytes = 0;

	for (int i = 0; i < n; i++)
		nbytes += pieces[i * step].nbytes;
	return nbytes;
}

static void mpi_send(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	size_t nbytes = total(pieces, n, 1);

	assert(peer >= 0 && peer < mpi_of(comm)->groups[id].nmembers);
	for (int i = 0; i < n; i++)
		add_piece(mpi_of(comm), SEND, id, peer, TAG_MESSAGE, &pieces[i]);
	comm->bytes_sent += (int64_t)nbytes;
	comm->messages += nbytes > 0;
}

static void mpi_recv(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	assert(peer >= 0 && peer < mpi_of(comm)->groups[id].nmembers);
	for (int i = 0; i < n; i++)
		add_piece(mpi_of(comm), RECV, id, peer, TAG_MESSAGE, &pieces[i]);
}

/* all: one piece of each member, `step` apart. */
static void gather_by_messages(struct mpi_comm *mpi, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int step)
{
	const struct group *group = &mpi->groups[id];
	void *to = all[group->self * step].data;

	for (int m = 0; m < group->nmembers; m++)
		if (m != group->self)
			add_piece(mpi, RECV, id, m, TAG_GATHER, &all[m * step]);
	for (int m = 0; m < group->nmembers; m++)
		if (m != group->self)
			add_piece(mpi, SEND, id, m, TAG_GATHER, own);
	if (own->nbytes && to != own->data)
		memmove(to, own->data, own->nbytes);
}

/* Counts and displacements, from the piece that lies lowest.  False: they are beyond an int. */
static bool lay_out(struct transfer *t, int nmembers, const struct cpa_piece *all, int step)
{
	char *low = NULL;

	for (int m = 0; m < nmembers; m++) {
		char *data = all[m * step].data;

		if (all[m * step].nbytes && (!low || data < low))
			low = data;
	}
	for (int m = 0; m < nmembers; m++) {
		const struct cpa_piece *piece = &all[m * step];
		ptrdiff_t offset = piece->nbytes ? (char *)piece->data - low : 0;

		if (offset > INT_MAX)
			return false;
		t->counts[m] = (int)piece->nbytes;
		t->displacements[m] = (int)offset;
	}
	t->data = low;
	return true;
}

static void gather_piece(struct mpi_comm *mpi, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int step)
{
	const struct group *group = &mpi->groups[id];
	size_t sum = total(all, group->nmembers, step), size = (size_t)group->nmembers;
	struct transfer *t;

	if (sum == 0)
		return;
	if (sum > mpi->chunk_nbytes) {
		gather_by_messages(mpi, id, own, all, step);
		return;
	}
	t = add_transfer(mpi, GATHER, id);
	if (!t)
		return;
	t->counts = cpa_arena_alloc(&mpi->open->arena, size * sizeof *t->counts);
	t->displacements = cpa_arena_alloc(&mpi->open->arena, size * sizeof *t->displacements);
	if (!t->displacements)
		return;
	t->nbytes = own->nbytes;
	t->own = own->data == all[group->self * step].data ? NULL : own->data;
	if (!lay_out(t, group->nmembers, all, step))
		cpa_fail(&mpi->open->error, CPA_UNSUPPORTED,
			"the pieces of an all-gather lie more than 2 GiB apart, which MPI cannot "
			"say; one buffer for all of them works");
}

static void mpi_all_gather(struct cpa_comm *comm, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int n)
{
	size_t nbytes = total(own, n, 1);
	int others = mpi_of(comm)->groups[id].nmembers - 1;

	for (int k = 0; k < n; k++)
		gather_piece(mpi_of(comm), id, &own[k], &all[k], n);
	comm->bytes_sent += (int64_t)nbytes * others;
	comm->messages += nbytes > 0 && others > 0;
}

/* ---- starting it ----------------------------------------------------------------------------- */

static int start_gather(const struct group *group, struct transfer *t, MPI_Request *handle)
{
	bool in_place = !t->own;

	return MPI_Iallgatherv(in_place ? MPI_IN_PLACE : t->own, in_place ? 0 : (int)t->nbytes,
		MPI_BYTE, t->data, t->counts, t->displacements, MPI_BYTE, group->handle, handle);
}

static int start(struct mpi_comm *mpi, struct transfer *t, MPI_Request *handle)
{
	const struct group *group = &mpi->groups[t->group];

	switch (t->kind) {
	case SEND:
		return MPI_Isend(t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag,
			group->handle, handle);
	case RECV:
		return MPI_Irecv(t->data, (int)t->nbytes, MPI_BYTE, t->peer, t->tag,
			group->handle, handle);
	case GATHER:
		break;
	}
	return start_gather(group, t, handle);
}

/* Receives first, so that what arrives finds its place. */
static enum cpa_status start_all(
	struct mpi_comm *mpi, struct cpa_request *request, struct cpa_error *error)
{
	for (int pass = 0; pass < 2; pass++) {
		for (struct transfer *t = request->first; t; t = t->next) {
			int code;

			if ((t->kind == RECV) != (pass == 0))
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
		cpa_arena_fini(&request->arena);
		free(request);
	}
}

static enum cpa_status mpi_group_end(
	struct cpa_comm *comm, struct cpa_request **out, struct cpa_error *error)
{
	struct mpi_comm *mpi = mpi_of(comm);
	struct cpa_request *request = mpi->open;
	enum cpa_status status = CPA_OK;
	size_t n = request ? (size_t)request->n : 0;

	mpi->open = NULL;
	if (request) {
		request->transfers = cpa_arena_alloc(&request->arena, n * sizeof *request->transfers);
		request->handles = cpa_arena_alloc(&request->arena, n * sizeof *request->handles);
		request->statuses = cpa_arena_alloc(&request->arena, n * sizeof *request->statuses);
		request->ended = cpa_arena_alloc(&request->arena, n * sizeof *request->ended);
	}
	if (!request || request->arena.failed)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for messages");
	else if (request->error.text[0])
		status = cpa_fail(error, CPA_UNSUPPORTED, "%s", request->error.text);
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

/* ---- how far it is --------------------------------------------------------------------------- */

static void fail_request(struct cpa_request *request, struct mpi_comm *mpi,
	const struct transfer *t, const char *what)
{
	const struct group *group = &mpi->groups[t->group];

	if (request->state == CPA_FAILED)
		return;
	request->state = CPA_FAILED;
	if (t->kind == GATHER)
		cpa_fail(&request->error, CPA_EXTERNAL,
			"rank %d, all-gather of communicator %d (%zu bytes of its own): %s",
			mpi->comm.rank, t->group, t->nbytes, what);
	else
		cpa_fail(&request->error, CPA_EXTERNAL,
			"rank %d %s %zu bytes %s rank %d in communicator %d: %s", mpi->comm.rank,
			t->kind == SEND ? "sends" : "expects", t->nbytes,
			t->kind == SEND ? "to" : "from", world_rank(group, t->peer), t->group,
			what);
}

/* Both sides have made the same plan, so any other length is a fault. */
static void end_transfer(struct cpa_request *request, struct mpi_comm *mpi, int i, int code,
	const MPI_Status *status)
{
	const struct transfer *t = request->transfers[i];
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
	if (t->kind != RECV)
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
	code = MPI_Testsome(
		request->n, request->handles, &n, request->ended, request->statuses);
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

/* What is not done is left to MPI: such a run has failed, and its memory must stay until the end. */
static void mpi_request_free(struct cpa_comm *comm, struct cpa_request *request)
{
	struct cpa_request **link = &mpi_of(comm)->flying;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	for (int i = 0; i < request->n; i++)
		if (request->handles[i] != MPI_REQUEST_NULL) {
			if (request->transfers[i]->kind == RECV)
				MPI_Cancel(&request->handles[i]);
			if (request->transfers[i]->kind != GATHER)
				MPI_Request_free(&request->handles[i]);
		}
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
		free(mpi->groups[g].members);
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
	mpi->groups[0].nmembers = mpi->comm.size;
	mpi->groups[0].self = mpi->comm.rank;
	mpi->ngroups = 1;
	*comm = &mpi->comm;
	return CPA_OK;
}

#endif
