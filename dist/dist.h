/*
 * dist.h - running a schedule: the communicator interface and the executor.
 */
#ifndef CPA_DIST_H
#define CPA_DIST_H

#include "dist/schedule.h"
#include "kernels/kernels.h"

/* ---- communicator ---------------------------------------------------------------------------- */

enum cpa_progress { CPA_PENDING, CPA_DONE, CPA_FAILED };

/* One run of memory. */
struct cpa_piece {
	void *data;
	size_t nbytes;
	enum cpa_dtype dtype;
};

struct cpa_comm;
struct cpa_request;

/*
 * One rank's end of a world.  Communicator 0 is the world; others are made from lists of world ranks
 * in the order in which the plan lists them.  Messages match by (communicator, peer, order).  Between
 * group_begin and group_end calls only collect; they start together at group_end and the request is
 * done when all of them are.  No zero-size message is posted.  A message is a list of pieces; the list
 * is borrowed for the call, the memory until the request is done.
 */
struct cpa_comm_ops {
	const char *name;
	enum cpa_status (*subgroup)(struct cpa_comm *, int nmembers, const int *members, int *id,
		struct cpa_error *);
	void (*group_begin)(struct cpa_comm *, int queue);
	void (*send)(struct cpa_comm *, int comm, int peer, const struct cpa_piece *, int n);
	void (*recv)(struct cpa_comm *, int comm, int peer, const struct cpa_piece *, int n);
	/* own: n pieces; all: member-major, n pieces of each member, own copy included. */
	void (*all_gather)(struct cpa_comm *, int comm, const struct cpa_piece *own,
		const struct cpa_piece *all, int n);
	enum cpa_status (*group_end)(struct cpa_comm *, struct cpa_request **, struct cpa_error *);
	enum cpa_progress (*test)(struct cpa_comm *, struct cpa_request *, struct cpa_error *);
	void (*request_free)(struct cpa_comm *, struct cpa_request *);
	void (*abort)(struct cpa_comm *);
	void (*destroy)(struct cpa_comm *);
	/* Lets messages in flight move on; while a device works in the thread that submitted, it calls this
	 * now and then.  NULL: they move by themselves. */
	void (*progress)(struct cpa_comm *);
};
struct cpa_comm {
	const struct cpa_comm_ops *ops;
	int rank, size;
	bool stream_ordered; /* groups run on a device queue (NCCL): waits are device events */
	int64_t bytes_sent, messages; /* counted by the transport itself, as cpa_counts does */
	/* NULL, or memory from which messages go with fewer copies; it outlives the communicator. */
	const struct cpa_host_memory *memory;
};

/* ---- MPI ------------------------------------------------------------------------------------- */

/*
 * One process a rank.  start: joins the processes that mpirun started (MPI_Init; the first call only, and
 * one thread of the process calls all of this and the communicator).  Without mpirun: a world of one.
 * stop: leaves them; nothing after a start that was never made.  Built without MPI, start is
 * CPA_UNSUPPORTED and says what to install.
 *
 * What speaks MPI is a shared object of its own, cpattn_mpi.so, which start, usable and about load.  It is
 * looked for beside the library or program, then in lib/cpattn of the prefix; CPATTN_MPI_MODULE in the
 * environment names another file.  Where it cannot be loaded, start is CPA_UNSUPPORTED and says why.
 */
bool cpa_mpi_usable(void); /* built, found and loaded */
bool cpa_mpi_launched(void); /* mpirun started this process */
const char *cpa_mpi_about(void); /* "Open MPI v4.1.4", or why there is none */
enum cpa_status cpa_mpi_start(struct cpa_error *error);
void cpa_mpi_stop(void);
/* Ends all processes at once: when one has failed and others may wait for it.  Does not return. */
void cpa_mpi_abort(int exit_status);
/* Small arrays of plain memory.   own [nbytes] in, all [W, nbytes] out in rank order */
enum cpa_status cpa_mpi_gather(const void *own, size_t nbytes, void *all, struct cpa_error *error);
/*
 * This rank's end of the world, after cpa_mpi_start().  A message is sent piece by piece, in chunks of at
 * most chunk_nbytes (0: 1 GiB), so that counts beyond 2^31 bytes pass; both sides must give the same.
 * Pieces that are longer or shorter than expected fail the request with both lengths.  Subgroups are made
 * together: all members call subgroup, in the same order; a list that is known is the same communicator.
 */
enum cpa_status cpa_comm_mpi_create(size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error);

/* ---- executor -------------------------------------------------------------------------------- */

enum cpa_exec_state { CPA_EXEC_RUNNING, CPA_EXEC_BLOCKED, CPA_EXEC_DONE, CPA_EXEC_FAILED };

struct cpa_exec;

/* Called around each operation; a test hook for planted faults.  Before: false skips the operation.
 * After: the operation has been submitted (CPU devices: it is done). */
struct cpa_exec_hook {
	bool (*before)(void *context, struct cpa_exec *exec, int op);
	void (*after)(void *context, struct cpa_exec *exec, int op);
	void *context;
};
struct cpa_exec_options {
	bool poison;                 /* every box is NaN before it is written */
	struct cpa_exec_hook hook;   /* zero: none */
	bool no_progress;            /* the device does not move messages while it works; to measure that */
};

/*
 * Runs one rank's schedule on a device and a communicator (all borrowed).  All buffers are allocated
 * here and none later: the device's byte count grows by exactly cpa_counts.peak_bytes.
 */
enum cpa_status cpa_exec_create(const struct cpa_schedule *schedule, const struct cpa_problem *problem,
	struct cpa_device *device, struct cpa_comm *comm, const struct cpa_exec_options *options,
	struct cpa_exec **exec, struct cpa_error *error);
void cpa_exec_destroy(struct cpa_exec *exec);

/* Issues one step, if one can be issued without waiting: that of ready queue number seed mod (how many
 * are ready).  FAILED: the error says why.  BLOCKED: nothing moves until a message does. */
enum cpa_exec_state cpa_exec_step(struct cpa_exec *exec, uint64_t seed, struct cpa_error *error);
enum cpa_status cpa_exec_status(const struct cpa_exec *exec); /* why it failed, else CPA_OK */
/* Back to the start, for another run on the same buffers (which are poisoned when asked for). */
enum cpa_status cpa_exec_reset(struct cpa_exec *exec, struct cpa_error *error);

/* Index of the buffer that holds an input or output, -1 when the rank has none (an empty plan);
 * which part of it: cpa_schedule_find(). */
int cpa_exec_find(const struct cpa_exec *exec, enum cpa_role role, enum cpa_tensor tensor);
/* The box as device memory. */
struct cpa_array cpa_exec_array(const struct cpa_exec *exec, const struct cpa_box *box);
void *cpa_exec_memory(const struct cpa_exec *exec, int buffer);
const struct cpa_schedule *cpa_exec_schedule(const struct cpa_exec *exec);
/* What it waits for, for people: "op 7 recv from 2 ..." ; "" when it waits for nothing. */
void cpa_exec_waiting(const struct cpa_exec *exec, char *text, size_t size);

#endif
