/*
 * world.h - the ranks of a run, wherever they live: all of them in this process (fake), or one a
 * process (mpi).  What uses this header runs on either.
 *
 * "Local" ranks are those of this process: all, or one.  Functions marked COLLECTIVE must be
 * called by all processes in the same order; in a fake world they are plain functions.
 */
#ifndef CPA_WORLD_H
#define CPA_WORLD_H

#include "sim/sim.h"

struct cpa_world;

/*
 * comm  "fake": `size` ranks, all local.  "mpi": the processes that mpirun started, one rank
 * each; without mpirun, this process alone. size  how many ranks are expected; 0 (mpi only): as
 * many as there are processes. CPA_UNSUPPORTED: comm is not built in, or another number of
 * processes was started (the text says which one was, and what to type).  CPA_INVALID: no such
 * comm.  COLLECTIVE.
 */
enum cpa_status cpa_world_create(
	const char *comm, int size, struct cpa_world **world, struct cpa_error *error);
/* Whether it is a world of `size` ranks; the text of CPA_UNSUPPORTED says how to start one. */
enum cpa_status cpa_world_check_size(
	const struct cpa_world *world, int size, struct cpa_error *error);
/* NULL is allowed.  Executors go first.  The processes stay joined, so that another world may be
 * made; they part in cpa_mpi_stop(), which main() calls. */
void cpa_world_destroy(struct cpa_world *world);

int cpa_world_size(const struct cpa_world *world); /* W */
int cpa_world_first(
	const struct cpa_world *world); /* local ranks are first .. first + nlocal - 1 */
int cpa_world_nlocal(const struct cpa_world *world); /* W, or 1 */
bool cpa_world_leads(const struct cpa_world *world); /* rank 0 is local: this process prints */
const char *cpa_world_name(const struct cpa_world *world); /* "fake", "mpi" */
/* The end of a local rank; owned by the world.  What it counted is set to 0 when a run starts. */
struct cpa_comm *cpa_world_comm(struct cpa_world *world, int rank);

/*
 * Runs the executors of the local ranks to completion, from their start (reset them before
 * another run).  The processes do not wait for each other: call cpa_world_barrier() before, to
 * start together, and measure here, around this call.  CPA_MISMATCH and others: why a local rank
 * failed; in a world of processes the others then still wait for it, so that cpa_world_abort()
 * must follow.  COLLECTIVE. execs  [nlocal]  NULL: a rank without work mode, seed       of a fake
 * world, else ignored
 */
enum cpa_status cpa_world_run(struct cpa_world *world, struct cpa_exec **execs,
	enum cpa_fake_mode mode, uint64_t seed, struct cpa_error *error);

/* For cpa_exec_step(), where somebody steps by hand: messages go before computing. */
extern const uint64_t cpa_world_messages_first;

/* Returns when every process has called it.  COLLECTIVE. */
enum cpa_status cpa_world_barrier(struct cpa_world *world, struct cpa_error *error);
/*
 * Every process gets what every rank has; rank 0 may use it, others drop it.  For small arrays:
 * times, counts, verdicts.  COLLECTIVE. own  [nlocal, nbytes]  in, of the local ranks all  [W,
 * nbytes]       out, in rank order
 */
enum cpa_status cpa_world_gather(struct cpa_world *world, const void *own, size_t nbytes,
	void *all, struct cpa_error *error);
/* All processes come to the same: CPA_OK where all have it, else the status and the sentence of
 * the first rank that has not ("rank 2: ..." where it is another one).  COLLECTIVE. */
enum cpa_status cpa_world_agree(
	struct cpa_world *world, enum cpa_status status, struct cpa_error *error);
/* A process fails while others may be waiting for it: prints the sentence to stderr and ends all
 * of them with exit status 2.  Does not return in a world of several processes; in others it does
 * nothing. */
void cpa_world_abort(struct cpa_world *world, const struct cpa_error *error);

#endif
