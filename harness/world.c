/*
 * world.c - the ranks of a run: the fake world of one process, or this process's end of an MPI
 * world.
 */
#include "harness/world.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"

struct cpa_world {
	int size, first, nlocal;
	struct cpa_fake_world *fake; /* NULL: processes */
	struct cpa_comm *comm; /* of processes */
	double patience; /* seconds without any progress that end a run */
};

/* ---- making ---- */

enum cpa_status cpa_world_check_size(
	const struct cpa_world *world, int size, struct cpa_error *error)
{
	int processes = world->size;

	if (size == processes)
		return CPA_OK;
	if (!cpa_mpi_launched())
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--comm mpi runs one process a rank, and without mpirun this is a world "
			"of 1, "
			"not of %d; start it as: mpirun -n %d cpattn ...",
			size, size);
	return cpa_fail(error, CPA_UNSUPPORTED,
		"mpirun started %d process%s, and --comm mpi runs one a rank: a world of %d "
		"needs "
		"mpirun -n %d",
		processes, processes == 1 ? "" : "es", size, size);
}

/* CPATTN_PATIENCE: how many seconds a rank waits for messages while nothing moves. */
static enum cpa_status read_patience(double *seconds, struct cpa_error *error)
{
	const char *text = getenv("CPATTN_PATIENCE");
	char *end;

	*seconds = 300;
	if (!text || !*text)
		return CPA_OK;
	*seconds = strtod(text, &end);
	if (*end || !(*seconds > 0))
		return cpa_fail(error, CPA_INVALID,
			"CPATTN_PATIENCE is '%.60s'; expected a number of seconds above 0", text);
	return CPA_OK;
}

static enum cpa_status join(struct cpa_world *world, int size, struct cpa_error *error)
{
	enum cpa_status status = read_patience(&world->patience, error);

	if (status == CPA_OK)
		status = cpa_mpi_start(error);
	if (status == CPA_OK)
		status = cpa_comm_mpi_create(0, &world->comm, error);
	if (status != CPA_OK)
		return status;
	world->size = world->comm->size;
	world->first = world->comm->rank;
	world->nlocal = 1;
	return size == 0 ? CPA_OK : cpa_world_check_size(world, size, error);
}

enum cpa_status cpa_world_create(
	const char *comm, int size, struct cpa_world **out, struct cpa_error *error)
{
	struct cpa_world *world = calloc(1, sizeof *world);
	enum cpa_status status;

	if (!world)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a world");
	if (strcmp(comm, "fake") == 0) {
		world->size = world->nlocal = size;
		status = cpa_fake_world_create(size, CPA_FAKE_EAGER, 0, &world->fake, error);
	} else if (strcmp(comm, "mpi") == 0) {
		status = join(world, size, error);
	} else {
		status = cpa_fail(error, CPA_INVALID,
			"--comm %.60s: there is no such communicator; expected fake or mpi",
			comm);
	}
	if (status == CPA_OK)
		*out = world;
	else
		cpa_world_destroy(world);
	return status;
}

void cpa_world_destroy(struct cpa_world *world)
{
	if (!world)
		return;
	cpa_fake_world_destroy(world->fake);
	if (world->comm)
		world->comm->ops->destroy(world->comm);
	free(world);
}

int cpa_world_size(const struct cpa_world *world)
{
	return world->size;
}

int cpa_world_first(const struct cpa_world *world)
{
	return world->first;
}

int cpa_world_nlocal(const struct cpa_world *world)
{
	return world->nlocal;
}

bool cpa_world_leads(const struct cpa_world *world)
{
	return world->first == 0;
}

const char *cpa_world_name(const struct cpa_world *world)
{
	return world->fake ? "fake" : "mpi";
}

struct cpa_comm *cpa_world_comm(struct cpa_world *world, int rank)
{
	assert(rank >= world->first && rank < world->first + world->nlocal);
	return world->fake ? cpa_fake_world_comm(world->fake, rank) : world->comm;
}

/* ---- running ---- */

/* Nothing moved since `since`: the processor is another's now, and after long the run is given
 * up. */
static enum cpa_status wait_a_little(const struct cpa_world *world, const struct cpa_exec *exec,
	double since, struct cpa_error *error)
{
	char what[512];

	sched_yield();
	if (cpa_now() - since <= world->patience)
		return CPA_OK;
	cpa_exec_waiting(exec, what, sizeof what);
	return cpa_fail(error, CPA_MISMATCH,
		"rank %d has waited %.0f seconds while nothing moved: %s "
		"(CPATTN_PATIENCE=SECONDS "
		"waits longer)",
		world->first, world->patience, what);
}

/* Messages before computing, so that they are on their way meanwhile: the last ready queue, which
 * is -1 modulo any number of them. */
static_assert(CPA_NQUEUES <= 4, "11 is -1 modulo 2, 3 and 4");
const uint64_t cpa_world_messages_first = 11;

static enum cpa_status run_process(
	struct cpa_world *world, struct cpa_exec *exec, struct cpa_error *error)
{
	double blocked = -1;

	for (;;) {
		enum cpa_status status = CPA_OK;

		switch (cpa_exec_step(exec, cpa_world_messages_first, error)) {
		case CPA_EXEC_RUNNING:
			blocked = -1;
			break;
		case CPA_EXEC_BLOCKED:
			blocked = blocked < 0 ? cpa_now() : blocked;
			status = wait_a_little(world, exec, blocked, error);
			break;
		case CPA_EXEC_DONE:
			return CPA_OK;
		case CPA_EXEC_FAILED:
			return cpa_exec_status(exec);
		}
		if (status != CPA_OK)
			return status;
	}
}

enum cpa_status cpa_world_run(struct cpa_world *world, struct cpa_exec **execs,
	enum cpa_fake_mode mode, uint64_t seed, struct cpa_error *error)
{
	if (world->fake) {
		cpa_fake_world_reset(world->fake, mode, seed);
		return cpa_fake_run(world->fake, execs, error);
	}
	world->comm->bytes_sent = world->comm->messages = 0;
	return execs[0] ? run_process(world, execs[0], error) : CPA_OK;
}

/* ---- together ---- */

enum cpa_status cpa_world_gather(struct cpa_world *world, const void *own, size_t nbytes,
	void *all, struct cpa_error *error)
{
	if (!world->fake)
		return cpa_mpi_gather(own, nbytes, all, error);
	memcpy(all, own, (size_t)world->size * nbytes);
	return CPA_OK;
}

enum cpa_status cpa_world_barrier(struct cpa_world *world, struct cpa_error *error)
{
	char *all = calloc((size_t)world->size, 2);
	enum cpa_status status;

	if (!all)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a barrier");
	status = cpa_world_gather(world, all + world->size, 1, all, error);
	free(all);
	return status;
}

struct verdict {
	enum cpa_status status;
	struct cpa_error error;
};

enum cpa_status cpa_world_agree(
	struct cpa_world *world, enum cpa_status status, struct cpa_error *error)
{
	struct verdict own = {.status = status}, *all;
	enum cpa_status gathered;
	int rank = 0;

	if (world->nlocal == world->size)
		return status;
	if (status != CPA_OK)
		own.error = *error;
	all = malloc((size_t)world->size * sizeof *all);
	if (!all) { /* and then others wait in vain */
		cpa_fail(error, CPA_NO_MEMORY, "out of memory for %d verdicts", world->size);
		cpa_world_abort(world, error);
		return CPA_NO_MEMORY;
	}
	gathered = cpa_world_gather(world, &own, sizeof own, all, error);
	while (gathered == CPA_OK && rank < world->size && all[rank].status == CPA_OK)
		rank++;
	if (gathered != CPA_OK || rank == world->size)
		status = gathered;
	else if (rank == 0)
		status = cpa_fail(error, all[0].status, "%s", all[0].error.text);
	else
		status = cpa_fail(
			error, all[rank].status, "rank %d: %.1000s", rank, all[rank].error.text);
	free(all);
	return status;
}

void cpa_world_abort(struct cpa_world *world, const struct cpa_error *error)
{
	if (world->size == 1 || world->fake)
		return;
	fprintf(stderr, "cpattn: rank %d ends the run: %s\n", world->first, error->text);
	fflush(stderr);
	cpa_mpi_abort(2);
}
