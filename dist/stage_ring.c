/*
 * stage_ring.c - keys and values go round, or are gathered; each rank attends one block a hop.
 *
 * Ring rank r works at hop i on block r-i (direction up) or r+i (down).  p2p passes a block on
 * while some rank further along needs any of it; both ends compute that from the problem, so a
 * block that nobody needs is posted by neither.  allgather is one collective, then the hops read
 * from it.  direct talks to ranks r+i and r-i at hop i and moves just the runs of keys that are
 * needed.  Of a block only the keys that some row may see are attended: one ATTEND for each run
 * of query spans with equal needs and equal history.
 */
#include "dist/ring.h"

#include <stdlib.h>

int cpa_ring_block_at_hop(const struct cpa_ring *ring, int hop)
{
	int j = ring->plan->at.r - ring->plan->part->config.direction * hop;
	return (j % ring->R + ring->R) % ring->R;
}

int64_t cpa_ring_block_size(const struct cpa_ring *ring, int j)
{
	return cpa_spans_ntokens(&ring->plan->part->kv_block[j]);
}

struct cpa_content cpa_ring_block_content(
	const struct cpa_ring *ring, int j, enum cpa_tensor tensor)
{
	return (struct cpa_content){.tensor = tensor,
		.batches = ring->plan->batches,
		.heads = ring->plan->kv_heads,
		.tokens = ring->plan->part->kv_block[j],
		.dtype = ring->plan->part->problem.dtype};
}

/* ---- partials ---- */

static struct cpa_operand new_partial(const struct cpa_ring *ring,
	const struct cpa_ring_part *part, int name, enum cpa_tensor tensor, enum cpa_dtype dtype)
{
	struct cpa_content content = part->q.content;
	content.tensor = tensor;
	content.dtype = dtype;
	return cpa_plan_work(ring->plan, part->names[name], &content);
}

static void make_accumulators(struct cpa_ring *ring, struct cpa_ring_part *part)
{
	const struct cpa_config *c = &ring->plan->part->config;
	enum cpa_dtype dtype = ring->plan->part->problem.dtype, wide = c->partial_dtype;
	enum cpa_dtype kept = c->partials == CPA_PARTIALS_ALL ? dtype : wide;
	part->o = new_partial(ring, part, 0, CPA_TENSOR_O, kept);
	part->lse = new_partial(ring, part, 1, CPA_TENSOR_LSE, kept);
	ring->direct = c->partials != CPA_PARTIALS_BLOCK || dtype == wide;
}

static void make_block_partial(const struct cpa_ring *ring, struct cpa_ring_part *part)
{
	const struct cpa_config *c = &ring->plan->part->config;
	enum cpa_dtype dtype = ring->plan->part->problem.dtype, wide = c->partial_dtype;
	part->block_o = new_partial(
		ring, part, 2, CPA_TENSOR_O, c->partials == CPA_PARTIALS_FP32 ? wide : dtype);
	part->block_lse = new_partial(
		ring, part, 3, CPA_TENSOR_LSE, c->partials == CPA_PARTIALS_ALL ? dtype : wide);
}

/* Names rows [index) of a part to partial_rows(). */
static void pick_rows(
	struct cpa_ring *ring, const struct cpa_ring_part *part, struct cpa_range index)
{
	if (ring->picked_part == part && ring->picked.start == index.start &&
		ring->picked.end == index.end)
		return;
	ring->picked_part = part;
	ring->picked = index;
	ring->picked_tokens = cpa_operand_tokens(
		ring->plan, &part->q, index.start, index.end - index.start, 1)
				      .content.tokens;
}

/* Rows [index) of a partial buffer, having seen `keys`; they have been picked. */
static struct cpa_operand partial_rows(const struct cpa_ring *ring,
	const struct cpa_operand *buffer, struct cpa_range index, const struct cpa_spans *keys)
{
	struct cpa_operand rows =
		cpa_operand_place(buffer, index.start, index.end - index.start, 1);
	rows.content.tokens = ring->picked_tokens;
	rows.content.partial = true;
	rows.content.keys = *keys;
	return rows;
}

static void add_attend(struct cpa_ring *ring, int hop, const struct cpa_ring_part *part,
	struct cpa_range index, const struct cpa_operand kv[2], bool direct)
{
	const struct cpa_spans *keys = &kv[0].content.tokens;
	struct cpa_operand reads[3] = {
		cpa_operand_place(&part->q, index.start, index.end - index.start, 1), kv[0],
		kv[1]};
	reads[0].content.tokens = ring->picked_tokens;
	struct cpa_operand writes[2] = {
		partial_rows(ring, direct ? &part->o : &part->block_o, index, keys),
		partial_rows(ring, direct ? &part->lse : &part->block_lse, index, keys)};
	cpa_schedule_add(ring->plan->schedule,
		&(struct cpa_op){.kind = CPA_OP_ATTEND,
			.peer = -1,
			.hop = hop,
			.nreads = 3,
			.reads = reads,
			.nwrites = 2,
			.writes = writes});
}

static void add_merge(struct cpa_ring *ring, int hop, const struct cpa_ring_part *part,
	struct cpa_range index, const struct cpa_spans *before, const struct cpa_spans *block,
	const struct cpa_spans *after)
{
	struct cpa_operand reads[4] = {partial_rows(ring, &part->o, index, before),
		partial_rows(ring, &part->lse, index, before),
		partial_rows(ring, &part->block_o, index, block),
		partial_rows(ring, &part->block_lse, index, block)};
	struct cpa_operand writes[2] = {reads[0], reads[1]};
	writes[0].content.keys = writes[1].content.keys = *after;
	cpa_schedule_add(ring->plan->schedule,
		&(struct cpa_op){.kind = CPA_OP_MERGE,
			.subkind = CPA_MERGE_SOFTMAX,
			.peer = -1,
			.hop = hop,
			.nreads = 4,
			.reads = reads,
			.nwrites = 2,
			.writes = writes});
}

/* The first partial of these rows, rounded to the dtype on its way (partials block). */
static void copy_first(struct cpa_ring *ring, const struct cpa_ring_part *part,
	struct cpa_range index, const struct cpa_spans *keys)
{
	struct cpa_operand from[2] = {partial_rows(ring, &part->block_o, index, keys),
		partial_rows(ring, &part->block_lse, index, keys)};
	struct cpa_operand to[2] = {partial_rows(ring, &part->o, index, keys),
		partial_rows(ring, &part->lse, index, keys)};
	cpa_plan_copy(ring->plan, &from[0], &to[0]);
	cpa_plan_copy(ring->plan, &from[1], &to[1]);
}

static void add_identity(
	struct cpa_ring *ring, const struct cpa_ring_part *part, struct cpa_range index)
{
	const struct cpa_spans none = {0};
	pick_rows(ring, part, index);
	struct cpa_operand writes[2] = {partial_rows(ring, &part->o, index, &none),
		partial_rows(ring, &part->lse, index, &none)};
	for (int i = 0; i < 2; i++)
		cpa_schedule_add(ring->plan->schedule,
			&(struct cpa_op){.kind = CPA_OP_COPY,
				.peer = -1,
				.hop = -1,
				.nwrites = 1,
				.writes = &writes[i]});
}

/* Rows first .. last-1 of ring->rows attend keys [need) of the block and merge. */
static void attend_rows(struct cpa_ring *ring, int hop, int first, int last,
	struct cpa_range need, const struct cpa_operand *k_block,
	const struct cpa_operand *v_block)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_ring_part *part = ring->rows[first].part;
	struct cpa_range index = {ring->rows[first].index.start, ring->rows[last - 1].index.end};
	struct cpa_operand kv[2] = {
		cpa_operand_tokens(plan, k_block, need.start, need.end - need.start, 1),
		cpa_operand_place(v_block, need.start, need.end - need.start, 1)};
	kv[1].content.tokens = kv[0].content.tokens;
	const struct cpa_spans *keys = &kv[0].content.tokens, before = ring->rows[first].seen;
	bool started = ring->rows[first].started, direct = !started && ring->direct;
	struct cpa_spans after = started ? cpa_spans_union(&plan->schedule->arena, &before, keys)
					 : *keys;
	if (!direct && part->block_o.box.buffer < 0)
		make_block_partial(ring, part);
	pick_rows(ring, part, index);
	add_attend(ring, hop, part, index, kv, direct);
	if (started)
		add_merge(ring, hop, part, index, &before, keys, &after);
	else if (!direct)
		copy_first(ring, part, index, keys);
	for (int i = first; i < last; i++) {
		ring->rows[i].started = true;
		ring->rows[i].seen = after;
	}
}

static bool same_history(const struct cpa_ring_rows *a, const struct cpa_ring_rows *b)
{
	return a->part == b->part && a->started == b->started &&
		cpa_spans_equal(&a->seen, &b->seen);
}

void cpa_ring_attend_block(
	struct cpa_ring *ring, int hop, const struct cpa_operand *k, const struct cpa_operand *v)
{
	if (cpa_operand_is_empty(k))
		return;
	struct cpa_spans_index block = cpa_plan_index(ring->plan, &k->content.tokens);
	struct cpa_range need = {0, 0}, next = {0, 0};
	for (int first = 0, last; first < ring->nrows; first = last, need = next) {
		if (first == 0)
			need = cpa_partition_need(
				ring->plan->part, &ring->rows[first].span, &block);
		for (last = first + 1; last < ring->nrows; last++) {
			next = cpa_partition_need(
				ring->plan->part, &ring->rows[last].span, &block);
			if (next.start != need.start || next.end != need.end ||
				!same_history(&ring->rows[first], &ring->rows[last]))
				break;
		}
		if (need.start < need.end)
			attend_rows(ring, hop, first, last, need, k, v);
	}
}

/* ---- the stage ---- */

/* One extra logit in the denominator of every row, after all keys: once, not once a block. */
static void add_sink(struct cpa_ring *ring)
{
	for (int first = 0, last; first < ring->nrows; first = last) {
		for (last = first + 1;
			last < ring->nrows && same_history(&ring->rows[first], &ring->rows[last]);
			last++)
			;
		struct cpa_range index = {
			ring->rows[first].index.start, ring->rows[last - 1].index.end};
		pick_rows(ring, ring->rows[first].part, index);
		struct cpa_operand reads[2] = {partial_rows(ring, &ring->rows[first].part->o,
						       index, &ring->rows[first].seen),
			partial_rows(ring, &ring->rows[first].part->lse, index,
				&ring->rows[first].seen)};
		struct cpa_operand writes[2] = {reads[0], reads[1]};
		writes[0].content.sink = writes[1].content.sink = true;
		cpa_schedule_add(ring->plan->schedule,
			&(struct cpa_op){.kind = CPA_OP_MERGE,
				.subkind = CPA_MERGE_SINK,
				.peer = -1,
				.hop = -1,
				.nreads = 2,
				.reads = reads,
				.nwrites = 2,
				.writes = writes});
	}
}

static void list_rows(struct cpa_ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	int most = ring->parts[0].q.content.tokens.n + ring->parts[1].q.content.tokens.n;
	ring->rows = cpa_arena_alloc(&plan->schedule->arena, sizeof *ring->rows * (size_t)most);
	for (int p = 0; p < 2; p++) {
		struct cpa_ring_part *part = &ring->parts[p];
		int64_t start = 0;
		if (cpa_operand_is_empty(&part->q))
			continue;
		make_accumulators(ring, part);
		for (int i = 0; ring->rows && i < part->q.content.tokens.n; i++) {
			struct cpa_span span = part->q.content.tokens.at[i];
			int64_t n = span.width * span.count;
			ring->rows[ring->nrows++] = (struct cpa_ring_rows){
				.part = part, .index = {start, start + n}, .span = span};
			start += n;
		}
	}
}

/* The split rows of the block, and this ring rank's slice of the replicated ones. */
static void make_parts(struct cpa_ring *ring)
{
	static const struct cpa_operand none = {.box = {.buffer = -1}};
	static const char *const names[2][4] = {
		{"o partial", "lse partial", "o block", "lse block"},
		{"o slice", "lse slice", "o slice block", "lse slice block"}};
	struct cpa_plan *plan = ring->plan;
	for (int p = 0; p < 2; p++) {
		struct cpa_ring_part *part = &ring->parts[p];
		part->q = part->o = part->lse = part->block_o = part->block_lse = none;
		for (int i = 0; i < 4; i++)
			part->names[i] = names[p][i];
	}
	if (!cpa_operand_is_empty(&plan->q))
		ring->parts[0].q = plan->q;
	if (!cpa_operand_is_empty(&plan->q_whole)) {
		int64_t first = 0;
		for (int r = 0; r < plan->at.r; r++)
			first += cpa_spans_ntokens(&plan->part->q_slice[r]);
		struct cpa_operand mine = cpa_operand_heads(&plan->q_whole, plan->heads);
		ring->parts[1].q = cpa_operand_tokens(plan, &mine, first,
			cpa_spans_ntokens(&plan->part->q_slice[plan->at.r]), 1);
	}
	list_rows(ring);
}

/* Hop 0 first attends the replicated keys, from this rank's own copy. */
static void attend_replicated(struct cpa_ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	if (cpa_operand_is_empty(&plan->k_whole))
		return;
	struct cpa_operand k = cpa_operand_heads(&plan->k_whole, plan->kv_heads);
	struct cpa_operand v = cpa_operand_heads(&plan->v_whole, plan->kv_heads);
	cpa_ring_attend_block(ring, 0, &k, &v);
}

void cpa_stage_ring(struct cpa_plan *plan)
{
	if (plan->heads.start == plan->heads.end)
		return; /* no heads here: nothing to attend and no keys to pass on */
	bool travel = cpa_spans_ntokens(&plan->part->kv.replicated) < plan->part->problem.Skv;
	struct cpa_ring ring = {.plan = plan, .R = travel ? plan->part->config.ring_degree : 1};
	make_parts(&ring);
	attend_replicated(&ring);
	if (ring.R == 1)
		cpa_ring_attend_block(&ring, 0, &plan->k, &plan->v);
	else if (plan->part->config.rotate == CPA_ROTATE_ALLGATHER)
		cpa_ring_allgather(&ring);
	else if (plan->part->config.rotate == CPA_ROTATE_DIRECT)
		cpa_ring_direct(&ring);
	else
		cpa_ring_p2p(&ring);
	for (int i = 0; i < ring.nrows; i++) /* rows that see no key at all */
		if (!ring.rows[i].started)
			add_identity(&ring, ring.rows[i].part, ring.rows[i].index);
	if (plan->part->problem.rule.sink)
		add_sink(&ring);
	plan->o = ring.parts[0].o;
	plan->lse = ring.parts[0].lse;
	plan->o_slice = ring.parts[1].o;
	plan->lse_slice = ring.parts[1].lse;
}
