/*
 * ranks.h - all ranks of one configuration in this process: their plans, the proof, their
 * executors on one device and a fake communicator, what goes in and what comes out.
 */
#ifndef CPA_RANKS_H
#define CPA_RANKS_H

#include "harness/inputs.h"
#include "sim/sim.h"

struct cpa_ranks {
	const struct cpa_problem *problem; /* borrowed */
	struct cpa_device *device;         /* borrowed; all ranks share it */
	struct cpa_partition *partition;
	int W;
	struct cpa_schedule **schedules;        /* [W] */
	struct cpa_counts *counts;              /* [W] */
	struct cpa_spans *q_shards, *kv_shards; /* [W] */
	struct cpa_exec **execs;                /* [W] NULL: a rank without work */
	struct cpa_fake_world *world;
	void *staging;        /* one shard */
	size_t nbytes_before; /* of the device, before the executors */
	bool ran;
	struct cpa_arena arena;
};

/*
 * What precedes a plan: each rank packs a record of its own lengths in `known`, all of them are
 * gathered over a fake communicator, each rank judges what it received, and *partition is made
 * from the sizes that they agree on.  Segments and sizes of it are in arena.
 */
enum cpa_status cpa_ranks_agree(const struct cpa_partition *known, struct cpa_arena *arena,
	struct cpa_partition **partition, struct cpa_error *error);
/*
 * Agrees on the sizes, plans and proves.  CPA_UNSUPPORTED: the variant refuses.
 * CPA_MISMATCH: the proof failed, and the text is the fault.  Fini in any case.
 */
enum cpa_status cpa_ranks_plan(struct cpa_ranks *ranks, const struct cpa_problem *problem,
	const struct cpa_config *config, struct cpa_error *error);
void cpa_ranks_fini(struct cpa_ranks *ranks);

/* Makes the executors.  hook(context, rank) may be NULL.  CPA_MISMATCH: memory differs from
 * peak_bytes. */
typedef struct cpa_exec_hook cpa_ranks_hook(void *context, int rank);
enum cpa_status cpa_ranks_start(struct cpa_ranks *ranks, struct cpa_device *device,
	cpa_ranks_hook *hook, void *context, struct cpa_error *error);
/* Like start, but once more, on another problem that has the same schedules (another mask or
 * sink). */
enum cpa_status cpa_ranks_restart(struct cpa_ranks *ranks, const struct cpa_problem *problem,
	cpa_ranks_hook *hook, void *context, struct cpa_error *error);
/* Gives each rank its shards. */
enum cpa_status cpa_ranks_upload(
	struct cpa_ranks *ranks, const struct cpa_inputs *inputs, struct cpa_error *error);
/* One run.  CPA_MISMATCH: it got stuck, or the transport counted other bytes or messages than
 * the plan. */
enum cpa_status cpa_ranks_run(struct cpa_ranks *ranks, enum cpa_fake_mode mode, uint64_t seed,
	struct cpa_error *error);
/* Collects o [B, Sq, Hq, Dv] and lse [B, Sq, Hq] (NULL where it is no output). */
enum cpa_status cpa_ranks_download(
	struct cpa_ranks *ranks, void *o, void *lse, struct cpa_error *error);
/* One output of one rank, dense [batches, tokens, heads, dim], into ranks->staging.  *has: the
 * rank has it. */
struct cpa_shard;
enum cpa_status cpa_ranks_fetch(struct cpa_ranks *ranks, int rank, enum cpa_tensor tensor,
	struct cpa_shard *shard, bool *has, struct cpa_error *error);
/* hashes [W] out: of each rank's o and lse as it holds them. */
enum cpa_status cpa_ranks_hash(
	struct cpa_ranks *ranks, uint64_t *hashes, struct cpa_error *error);
/* Whether the outputs are bit for bit o and lse; CPA_MISMATCH says where not. */
enum cpa_status cpa_ranks_compare(
	struct cpa_ranks *ranks, const void *o, const void *lse, struct cpa_error *error);

/* The rank that works on this row: ring rank of the token, ulysses rank of the head. */
int cpa_ranks_worker(const struct cpa_ranks *ranks, int64_t batch, int64_t token, int64_t head);

#endif
