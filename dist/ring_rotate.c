/*
 * ring_rotate.c - keys go round from rank to rank (p2p), or are gathered at once (allgather).
 */
#include "dist/ring.h"

/* ---- p2p ---- */

static void add_transfer(struct cpa_ring *ring, int hop, enum cpa_op_kind kind, int peer_r,
	const struct cpa_operand *k, const struct cpa_operand *v)
{
	struct cpa_coords at = ring->plan->at;
	struct cpa_operand boxes[2] = {*k, *v};
	struct cpa_op op = {.kind = kind,
		.comm = 0,
		.hop = hop,
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
static struct cpa_operand slot_block(
	const struct cpa_ring *ring, const struct cpa_operand *slot, int j)
{
	struct cpa_operand part = *slot;
	part.box.ntokens = cpa_ring_block_size(ring, j);
	part.content = cpa_ring_block_content(ring, j, slot->content.tensor);
	return part;
}

static bool received_at(const struct cpa_ring *ring, int hop)
{
	return ring->plan->part->reach[cpa_ring_block_at_hop(ring, hop)] >= hop;
}

/* Two slots, by parity of the hop, each as large as the largest block that lands in it. */
static void make_slots(struct cpa_ring *ring)
{
	int largest[2] = {-1, -1};
	for (int hop = 1; hop < ring->R; hop++) {
		int j = cpa_ring_block_at_hop(ring, hop), *max = &largest[hop & 1];
		if (received_at(ring, hop) &&
			(*max < 0 ||
				cpa_ring_block_size(ring, j) > cpa_ring_block_size(ring, *max)))
			*max = j;
	}
	static const char *const names[2][2] = {
		{"k slot 0", "v slot 0"}, {"k slot 1", "v slot 1"}};
	for (int i = 0; i < 2; i++) {
		if (largest[i] < 0)
			continue;
		struct cpa_content k = cpa_ring_block_content(ring, largest[i], CPA_TENSOR_K);
		struct cpa_content v = cpa_ring_block_content(ring, largest[i], CPA_TENSOR_V);
		ring->slot_k[i] = cpa_plan_work(ring->plan, names[i][0], &k);
		ring->slot_v[i] = cpa_plan_work(ring->plan, names[i][1], &v);
	}
}

/* The group of one hop: pass on the block of the hop before, receive the block of this one. */
static void pass_on(
	struct cpa_ring *ring, int hop, const struct cpa_operand *k, const struct cpa_operand *v)
{
	int r = ring->plan->at.r, direction = ring->plan->part->config.direction;
	bool sends = ring->plan->part->reach[cpa_ring_block_at_hop(ring, hop - 1)] >= hop;
	cpa_schedule_begin(ring->plan->schedule, CPA_QUEUE_COMM);
	if (sends)
		add_transfer(ring, hop, CPA_OP_SEND, r + direction, k, v);
	if (received_at(ring, hop)) {
		int j = cpa_ring_block_at_hop(ring, hop);
		struct cpa_operand slot_k = slot_block(ring, &ring->slot_k[hop & 1], j);
		struct cpa_operand slot_v = slot_block(ring, &ring->slot_v[hop & 1], j);
		add_transfer(ring, hop, CPA_OP_RECV, r - direction, &slot_k, &slot_v);
	}
	cpa_schedule_end(ring->plan->schedule);
}

/* The transfer of the next hop is issued before the attention of this one, so that they overlap.
 */
void cpa_ring_p2p(struct cpa_ring *ring)
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
			int j = cpa_ring_block_at_hop(ring, hop);
			mine_k = slot_block(ring, &ring->slot_k[hop & 1], j);
			mine_v = slot_block(ring, &ring->slot_v[hop & 1], j);
		}
		if (hop + 1 < ring->R)
			pass_on(ring, hop + 1, &mine_k, &mine_v);
		if (have)
			cpa_ring_attend_block(ring, hop, &mine_k, &mine_v);
	}
}

/* ---- all-gather ---- */

static struct cpa_operand gathered_block(
	const struct cpa_ring *ring, const struct cpa_operand *all, int j)
{
	struct cpa_operand part = *all;
	part.box.token = ring->offset[j];
	part.box.ntokens = ring->offset[j + 1] - ring->offset[j];
	part.content = cpa_ring_block_content(ring, j, all->content.tensor);
	return part;
}

static void make_gather_buffers(struct cpa_ring *ring)
{
	struct cpa_arena *arena = &ring->plan->schedule->arena;
	struct cpa_content k = cpa_ring_block_content(ring, 0, CPA_TENSOR_K);
	k.tokens = (struct cpa_spans){0};
	int64_t nkeys = 0;
	for (int j = 0; j < ring->R; j++)
		nkeys += cpa_ring_block_size(ring, j);
	cpa_spans_append_range(arena, &k.tokens, (struct cpa_range){0, nkeys});
	struct cpa_content v = k;
	v.tensor = CPA_TENSOR_V;
	ring->all_k = cpa_plan_work(
		ring->plan, "k gathered", &k); /* sized for all keys; blocks rule */
	ring->all_v = cpa_plan_work(ring->plan, "v gathered", &v);
	ring->offset = cpa_arena_alloc(arena, sizeof *ring->offset * (size_t)(ring->R + 1));
	for (int j = 0; ring->offset && j < ring->R; j++)
		ring->offset[j + 1] = ring->offset[j] + cpa_ring_block_size(ring, j);
}

static int ring_communicator(struct cpa_ring *ring)
{
	struct cpa_coords at = ring->plan->at;
	int *members = cpa_arena_alloc(
		&ring->plan->schedule->arena, sizeof *members * (size_t)ring->R);
	for (int r = 0; members && r < ring->R; r++)
		members[r] = cpa_partition_rank(
			ring->plan->part, (struct cpa_coords){at.b, r, at.u});
	return members ? cpa_schedule_comm(ring->plan->schedule, ring->R, members) : 0;
}

void cpa_ring_allgather(struct cpa_ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_operand own[2] = {cpa_plan_as_run(plan, "k wire", &plan->k),
		cpa_plan_as_run(plan, "v wire", &plan->v)};
	make_gather_buffers(ring);
	int comm = ring_communicator(ring);
	struct cpa_operand *all = cpa_arena_alloc(
		&plan->schedule->arena, sizeof *all * 2 * (size_t)ring->R);
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
	cpa_schedule_add(plan->schedule,
		&(struct cpa_op){.kind = CPA_OP_COLLECTIVE,
			.subkind = CPA_COLLECTIVE_ALL_GATHER,
			.comm = comm,
			.peer = -1,
			.hop = -1,
			.nreads = 2,
			.reads = own,
			.nwrites = 2 * ring->R,
			.writes = all});
	cpa_schedule_end(plan->schedule);
	cpa_ring_attend_block(ring, 0, &plan->k, &plan->v);
	for (int hop = 1; hop < ring->R; hop++) {
		int j = cpa_ring_block_at_hop(ring, hop);
		cpa_ring_attend_block(ring, hop, &all[2 * j], &all[2 * j + 1]);
	}
}
