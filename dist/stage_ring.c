/*
 * stage_ring.c - keys and values go round, or are gathered; each rank attends one block a hop.
 *
 * Ring rank r works at hop i on block r-i (direction up) or r+i (down).  p2p passes a block on while
 * some rank further along needs any of it; both ends compute that from the problem, so a block that
 * nobody needs is posted by neither.  allgather is one collective, then the hops read from it.  Of a
 * block only the keys that some row may see are attended: one ATTEND for each run of query spans with
 * equal needs and equal history.
 */
#include "dist/stages.h"

#include <stdio.h>
#include <string.h>

/* Query rows [start, end) of the block with one history: which keys their partial has seen. */
struct rows {
	struct cpa_range index;
	struct cpa_span span; /* their tokens */
	struct cpa_spans seen;
	bool started;         /* the accumulator holds a partial */
};

struct ring {
	struct cpa_plan *plan;
	int R;
	struct rows *rows;
	int nrows;
	struct cpa_operand block_o, block_lse; /* the partial of one block; made when first needed */
	bool direct;                           /* a first partial may be written to the accumulator */
	struct cpa_operand slot_k[2], slot_v[2];
	struct cpa_operand all_k, all_v;
	int64_t *offset; /* [R+1] of the blocks in all_k */
};

static int block_at_hop(const struct ring *ring, int hop)
{
	int j = ring->plan->at.r - ring->plan->part->config.direction * hop;
	return (j % ring->R + ring->R) % ring->R;
}

static int64_t block_size(const struct ring *ring, int j)
{
	return cpa_spans_ntokens(&ring->plan->part->kv_block[j]);
}

static struct cpa_content block_content(const struct ring *ring, int j, enum cpa_tensor tensor)
{
	return (struct cpa_content){.tensor = tensor, .batches = ring->plan->batches,
		.heads = ring->plan->kv_heads, .tokens = ring->plan->part->kv_block[j],
		.dtype = ring->plan->part->problem.dtype};
}

/* ---- partials ---- */

static struct cpa_content partial_content(const struct ring *ring, enum cpa_tensor tensor,
	enum cpa_dtype dtype)
{
	struct cpa_content content = ring->plan->q.content;
	content.tensor = tensor;
	content.dtype = dtype;
	return content;
}

static void make_accumulators(struct ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	const struct cpa_config *c = &plan->part->config;
	enum cpa_dtype dtype = plan->part->problem.dtype, wide = c->partial_dtype;
	enum cpa_dtype kept = c->partials == CPA_PARTIALS_ALL ? dtype : wide;
	struct cpa_content o = partial_content(ring, CPA_TENSOR_O, kept);
	struct cpa_content lse = partial_content(ring, CPA_TENSOR_LSE, kept);
	plan->o = cpa_plan_work(plan, "o partial", &o);
	plan->lse = cpa_plan_work(plan, "lse partial", &lse);
	ring->direct = c->partials != CPA_PARTIALS_BLOCK || dtype == wide;
}

static void make_block_partial(struct ring *ring)
{
	const struct cpa_config *c = &ring->plan->part->config;
	enum cpa_dtype dtype = ring->plan->part->problem.dtype, wide = c->partial_dtype;
	struct cpa_content o = partial_content(ring, CPA_TENSOR_O,
		c->partials == CPA_PARTIALS_FP32 ? wide : dtype);
	struct cpa_content lse = partial_content(ring, CPA_TENSOR_LSE,
		c->partials == CPA_PARTIALS_ALL ? dtype : wide);
	ring->block_o = cpa_plan_work(ring->plan, "o block", &o);
	ring->block_lse = cpa_plan_work(ring->plan, "lse block", &lse);
}

/* Rows [index) of a partial buffer, having seen `keys`. */
static struct cpa_operand partial_rows(const struct ring *ring, const struct cpa_operand *buffer,
	struct cpa_range index, const struct cpa_spans *keys)
{
	struct cpa_operand rows = cpa_operand_tokens(ring->plan, buffer, index.start,
		index.end - index.start, 1);
	rows.content.partial = true;
	rows.content.keys = *keys;
	return rows;
}

static void add_attend(struct ring *ring, int hop, struct cpa_range index, const struct cpa_operand *k,
	const struct cpa_operand *v, const struct cpa_operand *o, const struct cpa_operand *lse)
{
	struct cpa_operand reads[3] = {cpa_operand_tokens(ring->plan, &ring->plan->q, index.start,
		index.end - index.start, 1), *k, *v};
	struct cpa_operand writes[2] = {
		partial_rows(ring, o, index, &k->content.tokens),
		partial_rows(ring, lse, index, &k->content.tokens)};
	cpa_schedule_add(ring->plan->schedule, &(struct cpa_op){.kind = CPA_OP_ATTEND, .peer = -1,
		.hop = hop, .nreads = 3, .reads = reads, .nwrites = 2, .writes = writes});
}

static void add_merge(struct ring *ring, int hop, struct cpa_range index, const struct cpa_spans *before,
	const struct cpa_spans *block, const struct cpa_spans *after)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_operand reads[4] = {
		partial_rows(ring, &plan->o, index, before),
		partial_rows(ring, &plan->lse, index, before),
		partial_rows(ring, &ring->block_o, index, block),
		partial_rows(ring, &ring->block_lse, index, block)};
	struct cpa_operand writes[2] = {reads[0], reads[1]};
	writes[0].content.keys = writes[1].content.keys = *after;
	cpa_schedule_add(plan->schedule, &(struct cpa_op){.kind = CPA_OP_MERGE,
		.subkind = CPA_MERGE_SOFTMAX, .peer = -1, .hop = hop, .nreads = 4, .reads = reads,
		.nwrites = 2, .writes = writes});
}

static void add_identity(struct ring *ring, struct cpa_range index)
{
	const struct cpa_spans none = {0};
	struct cpa_operand writes[2] = {partial_rows(ring, &ring->plan->o, index, &none),
		partial_rows(ring, &ring->plan->lse, index, &none)};
	for (int i = 0; i < 2; i++)
		cpa_schedule_add(ring->plan->schedule, &(struct cpa_op){.kind = CPA_OP_COPY, .peer = -1,
			.hop = -1, .nwrites = 1, .writes = &writes[i]});
}

/* Rows first .. last-1 of ring->rows attend keys [need) of the block and merge. */
static void attend_rows(struct ring *ring, int hop, int first, int last, struct cpa_range need,
	const struct cpa_operand *k_block, const struct cpa_operand *v_block)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_range index = {ring->rows[first].index.start, ring->rows[last - 1].index.end};
	struct cpa_operand k = cpa_operand_tokens(plan, k_block, need.start, need.end - need.start, 1);
	struct cpa_operand v = cpa_operand_tokens(plan, v_block, need.start, need.end - need.start, 1);
	const struct cpa_spans *keys = &k.content.tokens, before = ring->rows[first].seen;
	bool started = ring->rows[first].started;
	struct cpa_spans after = started ? cpa_spans_union(&plan->schedule->arena, &before, keys) : *keys;
	if (!started && ring->direct) {
		add_attend(ring, hop, index, &k, &v, &plan->o, &plan->lse);
	} else {
		if (ring->block_o.box.buffer < 0)
			make_block_partial(ring);
		add_attend(ring, hop, index, &k, &v, &ring->block_o, &ring->block_lse);
		if (started) {
			add_merge(ring, hop, index, &before, keys, &after);
		} else {
			struct cpa_operand from[2] = {partial_rows(ring, &ring->block_o, index, keys),
				partial_rows(ring, &ring->block_lse, index, keys)};
			struct cpa_operand to[2] = {partial_rows(ring, &plan->o, index, keys),
				partial_rows(ring, &plan->lse, index, keys)};
			cpa_plan_copy(plan, &from[0], &to[0]);
			cpa_plan_copy(plan, &from[1], &to[1]);
		}
	}
	for (int i = first; i < last; i++) {
		ring->rows[i].started = true;
		ring->rows[i].seen = after;
	}
}

static bool same_history(const struct rows *a, const struct rows *b)
{
	return a->started == b->started && cpa_spans_equal(&a->seen, &b->seen);
}

static void attend_block(struct ring *ring, int hop, const struct cpa_operand *k,
	const struct cpa_operand *v)
{
	if (cpa_operand_is_empty(k))
		return;
	for (int first = 0, last; first < ring->nrows; first = last) {
		struct cpa_range need = cpa_partition_need(ring->plan->part, &ring->rows[first].span,
			&k->content.tokens);
		for (last = first + 1; last < ring->nrows; last++) {
			struct cpa_range next = cpa_partition_need(ring->plan->part,
				&ring->rows[last].span, &k->content.tokens);
			if (next.start != need.start || next.end != need.end ||
			    !same_history(&ring->rows[first], &ring->rows[last]))
				break;
		}
		if (need.start < need.end)
			attend_rows(ring, hop, first, last, need, k, v);
	}
}

/* ---- transport ---- */

static void add_transfer(struct ring *ring, int hop, enum cpa_op_kind kind, int peer_r,
	const struct cpa_operand *k, const struct cpa_operand *v)
{
	struct cpa_coords at = ring->plan->at;
	struct cpa_operand boxes[2] = {*k, *v};
	struct cpa_op op = {.kind = kind, .comm = 0, .hop = hop,
		.peer = cpa_partition_rank(ring->plan->part,
			(struct cpa_coords){at.b, (peer_r + ring->R) % ring->R, at.u})};
	if (kind == CPA_OP_SEND) {
		op.nreads = 2;
		op.reads = boxes;
	} else {
		op.nwrites = 2;
		op.writes = boxes;
	}
	cpa_schedule_add(ring->plan->schedule, &op);
}

/* The part of a slot that block j fills. */
static struct cpa_operand slot_block(const struct ring *ring, const struct cpa_operand *slot, int j)
{
	struct cpa_operand part = *slot;
	part.box.ntokens = block_size(ring, j);
	part.content = block_content(ring, j, slot->content.tensor);
	return part;
}

static bool received_at(const struct ring *ring, int hop)
{
	return ring->plan->part->reach[block_at_hop(ring, hop)] >= hop;
}

/* Two slots, by parity of the hop, each as large as the largest block that lands in it. */
static void make_slots(struct ring *ring)
{
	int largest[2] = {-1, -1};
	for (int hop = 1; hop < ring->R; hop++) {
		int j = block_at_hop(ring, hop), *max = &largest[hop & 1];
		if (received_at(ring, hop) && (*max < 0 || block_size(ring, j) > block_size(ring, *max)))
			*max = j;
	}
	static const char *const names[2][2] = {{"k slot 0", "v slot 0"}, {"k slot 1", "v slot 1"}};
	for (int i = 0; i < 2; i++) {
		if (largest[i] < 0)
			continue;
		struct cpa_content k = block_content(ring, largest[i], CPA_TENSOR_K);
		struct cpa_content v = block_content(ring, largest[i], CPA_TENSOR_V);
		ring->slot_k[i] = cpa_plan_work(ring->plan, names[i][0], &k);
		ring->slot_v[i] = cpa_plan_work(ring->plan, names[i][1], &v);
	}
}

/* The group of one hop: pass on the block of the hop before, receive the block of this one. */
static void pass_on(struct ring *ring, int hop, const struct cpa_operand *k, const struct cpa_operand *v)
{
	int r = ring->plan->at.r, direction = ring->plan->part->config.direction;
	bool sends = ring->plan->part->reach[block_at_hop(ring, hop - 1)] >= hop;
	cpa_schedule_begin(ring->plan->schedule, CPA_QUEUE_COMM);
	if (sends)
		add_transfer(ring, hop, CPA_OP_SEND, r + direction, k, v);
	if (received_at(ring, hop)) {
		int j = block_at_hop(ring, hop);
		struct cpa_operand slot_k = slot_block(ring, &ring->slot_k[hop & 1], j);
		struct cpa_operand slot_v = slot_block(ring, &ring->slot_v[hop & 1], j);
		add_transfer(ring, hop, CPA_OP_RECV, r - direction, &slot_k, &slot_v);
	}
	cpa_schedule_end(ring->plan->schedule);
}

/* The transfer of the next hop is issued before the attention of this one, so that they overlap. */
static void ring_p2p(struct ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_operand k = plan->k, v = plan->v;
	make_slots(ring);
	if (plan->part->reach[plan->at.r] >= 1) {
		k = cpa_plan_as_run(plan, "k wire", &k);
		v = cpa_plan_as_run(plan, "v wire", &v);
	}
	for (int hop = 0; hop < ring->R; hop++) {
		struct cpa_operand mine_k = k, mine_v = v;
		bool have = hop == 0 || received_at(ring, hop);
		if (hop > 0 && have) {
			int j = block_at_hop(ring, hop);
			mine_k = slot_block(ring, &ring->slot_k[hop & 1], j);
			mine_v = slot_block(ring, &ring->slot_v[hop & 1], j);
		}
		if (hop + 1 < ring->R)
			pass_on(ring, hop + 1, &mine_k, &mine_v);
		if (have)
			attend_block(ring, hop, &mine_k, &mine_v);
	}
}

/* ---- all-gather ---- */

static struct cpa_operand gathered_block(const struct ring *ring, const struct cpa_operand *all, int j)
{
	struct cpa_operand part = *all;
	part.box.token = ring->offset[j];
	part.box.ntokens = ring->offset[j + 1] - ring->offset[j];
	part.content = block_content(ring, j, all->content.tensor);
	return part;
}

static void make_gather_buffers(struct ring *ring)
{
	struct cpa_arena *arena = &ring->plan->schedule->arena;
	struct cpa_content k = block_content(ring, 0, CPA_TENSOR_K);
	k.tokens = (struct cpa_spans){0};
	cpa_spans_append_range(arena, &k.tokens, (struct cpa_range){0, ring->plan->part->problem.Skv});
	struct cpa_content v = k;
	v.tensor = CPA_TENSOR_V;
	ring->all_k = cpa_plan_work(ring->plan, "k gathered", &k); /* sized for all keys; blocks rule */
	ring->all_v = cpa_plan_work(ring->plan, "v gathered", &v);
	ring->offset = cpa_arena_alloc(arena, sizeof *ring->offset * (size_t)(ring->R + 1));
	for (int j = 0; ring->offset && j < ring->R; j++)
		ring->offset[j + 1] = ring->offset[j] + block_size(ring, j);
}

static int ring_communicator(struct ring *ring)
{
	struct cpa_coords at = ring->plan->at;
	int *members = cpa_arena_alloc(&ring->plan->schedule->arena, sizeof *members * (size_t)ring->R);
	for (int r = 0; members && r < ring->R; r++)
		members[r] = cpa_partition_rank(ring->plan->part, (struct cpa_coords){at.b, r, at.u});
	return members ? cpa_schedule_comm(ring->plan->schedule, ring->R, members) : 0;
}

static void ring_allgather(struct ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_operand own[2] = {cpa_plan_as_run(plan, "k wire", &plan->k),
		cpa_plan_as_run(plan, "v wire", &plan->v)};
	make_gather_buffers(ring);
	int comm = ring_communicator(ring);
	struct cpa_operand *all = cpa_arena_alloc(&plan->schedule->arena,
		sizeof *all * 2 * (size_t)ring->R);
	if (!all || !ring->offset)
		return;
	for (int j = 0; j < ring->R; j++) {
		all[2 * j] = gathered_block(ring, &ring->all_k, j);
		all[2 * j + 1] = gathered_block(ring, &ring->all_v, j);
	}
	if (cpa_operand_is_empty(&plan->k)) { /* takes part with nothing of its own */
		own[0] = all[2 * plan->at.r];
		own[1] = all[2 * plan->at.r + 1];
	}
	cpa_schedule_begin(plan->schedule, CPA_QUEUE_COMM);
	cpa_schedule_add(plan->schedule, &(struct cpa_op){.kind = CPA_OP_COLLECTIVE,
		.subkind = CPA_COLLECTIVE_ALL_GATHER, .comm = comm, .peer = -1, .hop = -1, .nreads = 2,
		.reads = own, .nwrites = 2 * ring->R, .writes = all});
	cpa_schedule_end(plan->schedule);
	attend_block(ring, 0, &plan->k, &plan->v);
	for (int hop = 1; hop < ring->R; hop++) {
		int j = block_at_hop(ring, hop);
		attend_block(ring, hop, &all[2 * j], &all[2 * j + 1]);
	}
}

/* ---- the stage ---- */

static void list_rows(struct ring *ring)
{
	const struct cpa_spans *tokens = &ring->plan->q.content.tokens;
	if (cpa_operand_is_empty(&ring->plan->q))
		return;
	ring->rows = cpa_arena_alloc(&ring->plan->schedule->arena,
		sizeof *ring->rows * (size_t)tokens->n);
	int64_t start = 0;
	for (int i = 0; ring->rows && i < tokens->n; i++) {
		int64_t n = tokens->at[i].width * tokens->at[i].count;
		ring->rows[i] = (struct rows){.index = {start, start + n}, .span = tokens->at[i]};
		start += n;
		ring->nrows++;
	}
}

void cpa_stage_ring(struct cpa_plan *plan)
{
	bool replicated = plan->part->problem.kv_replicated;
	if (plan->heads.start == plan->heads.end)
		return; /* no heads here: nothing to attend and no keys to pass on */
	struct ring ring = {.plan = plan, .R = replicated ? 1 : plan->part->config.ring_degree};
	ring.block_o.box.buffer = ring.block_lse.box.buffer = -1;
	list_rows(&ring);
	if (ring.nrows > 0)
		make_accumulators(&ring);
	if (ring.R == 1)
		attend_block(&ring, 0, &plan->k, &plan->v);
	else if (plan->part->config.rotate == CPA_ROTATE_ALLGATHER)
		ring_allgather(&ring);
	else
		ring_p2p(&ring);
	for (int i = 0; i < ring.nrows; i++) /* rows that see no key at all */
		if (!ring.rows[i].started)
			add_identity(&ring, ring.rows[i].index);
}
