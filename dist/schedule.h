/*
 * schedule.h - context parallelism as data.
 *
 * A variant is a schedule: for each rank a list of operations (copy, send, receive, collective, attend,
 * merge) on boxes of named buffers, with explicit contents.  This header has the configuration, who
 * holds what, the schedule, the builder, the planner and the checker.  It sees ref/ only: no device and
 * no communicator.  Everything here is a pure function of its arguments; nothing is global.
 */
#ifndef CPA_SCHEDULE_H
#define CPA_SCHEDULE_H

#include "ref/ref.h"

/* ---- configuration --------------------------------------------------------------------------- */

enum cpa_variant {
	CPA_VARIANT_RING,
	CPA_VARIANT_ULYSSES,
	CPA_VARIANT_UNIFIED,
	CPA_VARIANT_RING_ANYTHING,
	CPA_VARIANT_ULYSSES_ANYTHING,
	CPA_VARIANT_UNIFIED_ANYTHING,
	CPA_NVARIANTS
};
/* direct: each rank gets just the runs of keys that its queries may see, straight from their owner. */
enum cpa_rotate { CPA_ROTATE_P2P, CPA_ROTATE_ALLGATHER, CPA_ROTATE_DIRECT };
/* Which axes of the mesh are adjacent in rank order, outermost first. */
enum cpa_mesh { CPA_MESH_BATCH_RING_ULYSSES, CPA_MESH_BATCH_ULYSSES_RING };

struct cpa_config {
	enum cpa_variant variant;
	int batch_degree, ring_degree, ulysses_degree; /* N R U, each >= 1 */
	enum cpa_rotate rotate;
	enum cpa_mesh mesh;
	enum cpa_split split, split_kv;
	/* For CPA_SPLIT_GIVEN, else NULL; borrowed: R U for each split segment, in sequence order. */
	const int64_t *sizes, *sizes_kv;
	int nsizes, nsizes_kv; /* how many those are */
	enum cpa_order order;
	enum cpa_heads heads;
	const int64_t *head_counts; /* [U] for CPA_HEADS_GIVEN, else NULL; borrowed */
	int direction;              /* +1 (up): hop i works on block r-i and sends to r+1; -1 (down) */
	enum cpa_partials partials;
	enum cpa_dtype partial_dtype; /* fp32, or fp64 for fp64 problems and on the ref device */
	/* Branches along the batch axis, negative first: 2, 3, or 0 for none.  The plan then ends
	 * with an all-gather of o among the batch groups, into work buffers "o group 0", "o group
	 * 1", ...; the checker demands that the rows of every group end there. */
	int guidance;
};

/* One row of the table of variants: the only place that names them. */
struct cpa_variant_info {
	const char *name;
	bool ring, ulysses; /* which degrees may exceed 1 */
	bool strict;        /* refuses what COMMAND section 3 lists */
	const char *summary;
};
const struct cpa_variant_info *cpa_variant_info(enum cpa_variant variant);
bool cpa_variant_parse(const char *name, enum cpa_variant *variant);
const char *cpa_rotate_name(enum cpa_rotate);
/* The defaults of a variant (split rule, order, heads, ...) at N = R = U = 1 for this problem. */
struct cpa_config cpa_config_default(enum cpa_variant variant, const struct cpa_problem *problem);

/* Given sizes of one side: R U for each split segment, else CPA_INVALID.  Their sums are looked at by
 * cpa_partition_create().  CPA_UNSUPPORTED: in an order that cuts documents. */
enum cpa_status cpa_config_check_sizes(const struct cpa_problem *problem, const struct cpa_config *config,
	bool keys, struct cpa_error *error);

/* ---- sizes, where ranks know only their own -------------------------------------------------- */

/*
 * One exchange before each plan, that no rank may skip: an all-gather over all W ranks of a record of
 * each, of one size whatever the problem is, so that ranks that disagree still meet.  It tells the
 * tokens that the rank itself holds of each split segment, at most CPA_SIZES_MAX_SEGMENTS a side, and
 * all that the ranks must agree on.
 *
 * cpa_sizes_pack: of Sq and Skv only whether they are equal is looked at (both 0 will do), of the
 *   lengths of split segments and the given sizes nothing.
 *   nqueries, nkeys           [split segments] of this rank's shard, in sequence order; NULL where
 *                             there are none
 *   record [CPA_SIZES_NWORDS] out
 * cpa_sizes_agree: a pure function of the records, so its verdict and text are the same on all ranks.
 *   CPA_MISMATCH names the first rank that disagrees, and in what; CPA_INVALID: a length below 0, degrees
 *   that are not those of W ranks; CPA_UNSUPPORTED: too many split segments.
 *   records [W, CPA_SIZES_NWORDS] in, in rank order
 *   sizes, sizes_kv [split segments of the caller's problem, R U] out, as for CPA_SPLIT_GIVEN; their
 *                                 contents are undefined on failure
 */
enum { CPA_SIZES_MAX_SEGMENTS = 32, CPA_SIZES_NWORDS = 41 + 2 * CPA_SIZES_MAX_SEGMENTS };
int64_t cpa_sizes_nbytes(void); /* that each rank contributes */
void cpa_sizes_pack(const struct cpa_problem *problem, const struct cpa_config *config,
	const int64_t *nqueries, const int64_t *nkeys, int64_t *record);
enum cpa_status cpa_sizes_agree(int W, const int64_t *records, int64_t *sizes, int64_t *sizes_kv,
	struct cpa_error *error);

/*
 * What is agreed becomes a problem and a configuration, which are handed in as they were packed: Sq, Skv
 * and the lengths of split segments are set, and sizes where they are given (borrowed).  New segments
 * are in arena.  CPA_MISMATCH: as many keys as queries, and the sizes say otherwise.
 */
enum cpa_status cpa_sizes_apply(const int64_t *sizes, const int64_t *sizes_kv, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_config *config, struct cpa_error *error);

/* ---- who holds what -------------------------------------------------------------------------- */

struct cpa_coords {
	int b, r, u;
};

/* Queries or keys: split segments, each cut over the P cp ranks on its own, and what every rank holds. */
struct cpa_side {
	int ncuts;
	struct cpa_cut *cuts;        /* [ncuts] in sequence order */
	int64_t *starts;             /* [ncuts] first token of the segment */
	struct cpa_spans replicated; /* tokens of the replicated segments */
};

/* What all ranks of a configuration hold.  Made once, then shared by the plans of any ranks. */
struct cpa_partition {
	struct cpa_problem problem;
	struct cpa_config config;
	int P, W;                                /* R U; N R U */
	struct cpa_side q, kv;
	int64_t *batch;                          /* [N+1] bounds of the batch groups */
	int64_t *heads;                          /* [U+1] bounds of the query heads */
	struct cpa_spans *q_block, *kv_block;    /* [R] split tokens of ring rank r after the ulysses exchange */
	struct cpa_spans *q_slice;               /* [R] replicated queries that ring rank r works on */
	int *reach;                              /* [R] how many hops block j travels under p2p */
	struct cpa_arena arena;
};

/*
 * CPA_UNSUPPORTED with the reason and what would work, CPA_INVALID for sizes that do not add up.
 * Layout FUSED: whatever the variant, each rank must hold the same tokens of q, k and v, in one
 * order, and D must be Dv.
 */
enum cpa_status cpa_partition_create(const struct cpa_problem *problem, const struct cpa_config *config,
	struct cpa_partition **partition, struct cpa_error *error);
void cpa_partition_destroy(struct cpa_partition *partition);

struct cpa_coords cpa_partition_coords(const struct cpa_partition *partition, int rank);
int cpa_partition_rank(const struct cpa_partition *partition, struct cpa_coords at);
struct cpa_range cpa_partition_batches(const struct cpa_partition *partition, int b);
struct cpa_range cpa_partition_heads(const struct cpa_partition *partition, int u);
struct cpa_range cpa_partition_kv_heads(const struct cpa_partition *partition, int u);
/* What rank (., r, u) holds: its split tokens, then the replicated ones, in buffer order. */
struct cpa_spans cpa_partition_q_shard(const struct cpa_partition *partition, struct cpa_arena *arena,
	int r, int u);
struct cpa_spans cpa_partition_kv_shard(const struct cpa_partition *partition, struct cpa_arena *arena,
	int r, int u);
/* The split part of that, and how many tokens it has. */
struct cpa_spans cpa_partition_q_split(const struct cpa_partition *partition, struct cpa_arena *arena,
	int r, int u);
struct cpa_spans cpa_partition_kv_split(const struct cpa_partition *partition, struct cpa_arena *arena,
	int r, int u);
/* How many tokens of each split segment that rank holds: what cpa_sizes_pack() tells.
 * sizes [split segments] out */
void cpa_partition_sizes(const struct cpa_partition *partition, bool keys, int r, int u, int64_t *sizes);
/* CPA_MISMATCH: a rank told another size than the split rule of the partition gives it. */
enum cpa_status cpa_partition_check_sizes(const struct cpa_partition *partition, const int64_t *sizes,
	const int64_t *sizes_kv, struct cpa_error *error);
/* The keys of a block that some row of query span `queries` may see, as an index range of the block. */
struct cpa_range cpa_partition_need(const struct cpa_partition *partition, const struct cpa_span *queries,
	const struct cpa_spans_index *block);

/* ---- the schedule ---------------------------------------------------------------------------- */

enum cpa_tensor { CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V, CPA_TENSOR_O, CPA_TENSOR_LSE };
const char *cpa_tensor_name(enum cpa_tensor tensor);

/* What stands in a box.  For o and lse `seen` says which keys are in: all (finished) or a set. */
struct cpa_content {
	enum cpa_tensor tensor;
	struct cpa_range batches, heads; /* global ids */
	struct cpa_spans tokens;         /* global ids in buffer order: query tokens for q, o, lse */
	enum cpa_dtype dtype;
	bool partial;                    /* seen is `keys`, not all; false for q, k, v */
	struct cpa_spans keys;           /* a set; empty for the identity partial */
	bool sink;                       /* of o and lse: the problem's sink is in the denominator */
};

enum cpa_role { CPA_ROLE_INPUT, CPA_ROLE_OUTPUT, CPA_ROLE_WORK };
/* Inputs and outputs have the caller's layout; work and wire buffers are [S, B, H, D], so that a
 * token range with all batches and heads is one run of memory.  lse has D = 1. */
struct cpa_buffer {
	char name[24]; /* unique within the rank */
	enum cpa_role role;
	enum cpa_tensor tensor; /* what it is for; contents rule */
	enum cpa_layout layout;
	enum cpa_dtype dtype;
	int64_t ntokens, nbatches, nheads, dim;
	/* Of layout FUSED: so many heads are q's, and k and v share the rest; `tensor` is q. */
	int64_t nheads_q;
};
int64_t cpa_buffer_nbytes(const struct cpa_buffer *buffer);

/* Tokens token, token+step, ... (ntokens of them), by buffer index; likewise batches and heads. */
struct cpa_box {
	int buffer;
	int64_t token, ntokens, step;
	int64_t batch, nbatches, head, nheads;
};
struct cpa_operand {
	struct cpa_box box;
	struct cpa_content content;
};

enum cpa_op_kind {
	CPA_OP_COPY,       /* reads[0] -> writes[0], same content (dtype may change); no read: identity */
	CPA_OP_SEND,       /* reads -> peer */
	CPA_OP_RECV,       /* peer -> writes */
	CPA_OP_COLLECTIVE, /* reads: own boxes; writes: member-major, one per member and own box */
	CPA_OP_ATTEND,     /* reads q k v; writes o lse, a partial with seen = the k content */
	CPA_OP_MERGE       /* reads o lse o lse; writes o lse (may be the boxes of the first pair) */
};
enum cpa_merge_kind {
	CPA_MERGE_SOFTMAX, /* two partials with disjoint keys */
	CPA_MERGE_SINK     /* reads o lse, writes o lse in place: the sink joins the denominator, once */
};
enum cpa_collective_kind { CPA_COLLECTIVE_ALL_GATHER };

struct cpa_op {
	enum cpa_op_kind kind;
	int subkind;    /* of MERGE and COLLECTIVE */
	int comm, peer; /* of SEND, RECV, COLLECTIVE: index of a communicator, rank in it (-1: none) */
	int hop;        /* for people; -1 outside the ring */
	int nreads, nwrites;
	struct cpa_operand *reads, *writes;
};

/* In-order queues.  0 computes, 1 communicates; more for double rings. */
enum { CPA_QUEUE_COMPUTE = 0, CPA_QUEUE_COMM = 1, CPA_NQUEUES = 4 };

/* One compute op, or one group of communication ops that start together and end together. */
struct cpa_step {
	int first, nops;
	int queue;
	int waits[CPA_NQUEUES]; /* the latest step of each other queue that must have ended; -1: none */
};

struct cpa_communicator {
	int nmembers;
	int *members; /* world ranks, ascending by ring position; NULL: the world */
};

struct cpa_schedule {
	int rank, W;
	struct cpa_buffer *buffers;
	struct cpa_op *ops;
	struct cpa_step *steps;
	struct cpa_communicator *comms; /* 0 is the world: all p2p messages */
	int nbuffers, nops, nsteps, ncomms;
	struct cpa_arena arena;
	struct cpa_builder *builder; /* NULL once finished */
};

/* ---- the builder ----------------------------------------------------------------------------- */

/*
 * Planners say what, the builder infers when: a reader waits for the last writers of each part of its
 * boxes, a writer for all readers since; one wait per other queue.  Out of memory is remembered and
 * returned by cpa_schedule_finish().  Operands are copied; their spans are not.
 */
struct cpa_schedule *cpa_schedule_create(int rank, int W); /* NULL: out of memory */
void cpa_schedule_destroy(struct cpa_schedule *schedule);
int cpa_schedule_buffer(struct cpa_schedule *schedule, const struct cpa_buffer *buffer);
/* A list of members that is known already is the same communicator. */
int cpa_schedule_comm(struct cpa_schedule *schedule, int nmembers, const int *members);
/* Adds a compute op as a step of its own, or a communication op to the open group. */
void cpa_schedule_add(struct cpa_schedule *schedule, const struct cpa_op *op);
void cpa_schedule_begin(struct cpa_schedule *schedule, int queue); /* a group */
void cpa_schedule_end(struct cpa_schedule *schedule);              /* an empty group is dropped */
enum cpa_status cpa_schedule_finish(struct cpa_schedule *schedule, struct cpa_error *error);

/* Where an element of a box lies in its buffer, in elements; features are adjacent. */
struct cpa_strides {
	int64_t first;              /* of the box */
	int64_t token, batch, head; /* from one of the box to its next */
};
struct cpa_strides cpa_box_strides(const struct cpa_buffer *buffer, const struct cpa_box *box);
/* All of an input or output of this rank, wherever it lies; false: the rank has none of it. */
bool cpa_schedule_find(const struct cpa_schedule *schedule, enum cpa_role role,
	enum cpa_tensor tensor, struct cpa_box *box);
/* All of the buffer. */
struct cpa_box cpa_box_all(const struct cpa_schedule *schedule, int buffer);
/* One run of memory in the order of the wire, [S, B, H, D]: what a message box must be. */
bool cpa_box_is_run(const struct cpa_buffer *buffer, const struct cpa_box *box);
int64_t cpa_box_nelements(const struct cpa_buffer *buffer, const struct cpa_box *box);

/* The plan of one rank: O(R + U) operations.  Fails only for lack of memory. */
enum cpa_status cpa_plan_create(const struct cpa_partition *partition, int rank,
	struct cpa_schedule **schedule, struct cpa_error *error);

/* ---- exact counts ---------------------------------------------------------------------------- */

struct cpa_counts {
	int64_t bytes_sent; /* an all-gather counts as sent to each of the others */
	int64_t messages;   /* SENDs, and 1 per collective in which this rank sends */
	int64_t peak_bytes; /* sum of all buffers, inputs and outputs included */
	int64_t work;       /* visible pairs x query heads x batch items */
	int64_t attended;   /* pairs in ATTEND boxes, likewise */
	int64_t mask_bytes; /* of the dense mask that this rank reads, in its broadcast shape; 0: none */
	int64_t gathered_bytes; /* of bytes_sent: o, for guidance, to the other batch groups */
};
void cpa_schedule_count(const struct cpa_schedule *schedule, const struct cpa_problem *problem,
	struct cpa_counts *counts);

/* ---- the checker ----------------------------------------------------------------------------- */

/* The four rules of SCHEDULES section 4. */
enum cpa_fault_rule {
	CPA_RULE_NONE,
	CPA_RULE_DATA,     /* 1 each rank alone */
	CPA_RULE_RACE,     /* 2 */
	CPA_RULE_MESSAGES, /* 3 */
	CPA_RULE_DEADLOCK  /* 4 */
};
struct cpa_fault {
	enum cpa_fault_rule rule;
	int rank, op;    /* -1: none in particular */
	char text[640];  /* rank, op, buffer, tokens, and what was expected */
};

/*
 * Proves a set of schedules.  It derives what each rank is given and owes from the partition, not from
 * the schedules, and shares no code with the builder's inference.  Hand it every rank once (in any
 * order; a schedule may be destroyed after its call), then finish.  After the first fault further
 * calls return CPA_MISMATCH at once.
 */
struct cpa_check;
enum cpa_status cpa_check_create(const struct cpa_partition *partition, struct cpa_check **check,
	struct cpa_error *error);
enum cpa_status cpa_check_rank(struct cpa_check *check, const struct cpa_schedule *schedule,
	struct cpa_error *error); /* rules 1 and 2 */
enum cpa_status cpa_check_finish(struct cpa_check *check, struct cpa_error *error); /* 3 and 4 */
const struct cpa_fault *cpa_check_fault(const struct cpa_check *check); /* valid until destroy */
void cpa_check_destroy(struct cpa_check *check);

/* ---- printing -------------------------------------------------------------------------------- */

/* "p=recv k 0-15" style: one line for op number i, without a newline; cut to fit. */
void cpa_op_print(const struct cpa_schedule *schedule, int op, char *text, size_t size);
const char *cpa_op_name(enum cpa_op_kind kind);

#endif
