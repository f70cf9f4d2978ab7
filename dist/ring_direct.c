/*
 * ring_direct.c - each rank gets just the runs of keys that its queries may see, straight from
 * their owner.
 *
 * At hop i rank r sends to the rank that works on its block then, and receives from the owner of
 * the block that it works on itself.  Both ends compute the runs from the problem.
 */
#include "dist/ring.h"

#include <stdlib.h>

/* The runs of keys of a block that a ring rank needs, by index in the block, ascending and apart.
 */
struct needs {
	struct cpa_range *at;
	int n;
	struct cpa_spans tokens;
};

static int by_start(const void *a, const void *b)
{
	const struct cpa_range *x = a, *y = b;
	return (x->start > y->start) - (x->start < y->start);
}

/* The keys of these runs, one run behind the other. */
static struct cpa_spans needed_tokens(const struct cpa_ring *ring, const struct needs *needs,
	const struct cpa_spans_index *block)
{
	struct cpa_arena *arena = &ring->plan->schedule->arena;
	struct cpa_spans tokens = {0};
	for (int i = 0; i < needs->n; i++) {
		struct cpa_spans run = cpa_spans_index_pick(arena, block, needs->at[i].start,
			needs->at[i].end - needs->at[i].start, 1);
		for (int s = 0; s < run.n; s++)
			cpa_spans_append(arena, &tokens, run.at[s]);
	}
	return tokens;
}

static struct needs find_needs(const struct cpa_ring *ring, int reader, int block)
{
	const struct cpa_partition *part = ring->plan->part;
	const struct cpa_spans *rows[2] = {&part->q_block[reader], &part->q_slice[reader]};
	struct needs needs = {cpa_arena_alloc(&ring->plan->schedule->arena,
				      sizeof *needs.at * (size_t)(rows[0]->n + rows[1]->n)),
		0, {0}};
	struct cpa_spans_index keys = cpa_plan_index(ring->plan, &part->kv_block[block]);
	int n = 0;
	for (int l = 0; needs.at && l < 2; l++)
		for (int i = 0; i < rows[l]->n; i++) {
			needs.at[n] = cpa_partition_need(
				part, &rows[l]->at[i], &keys);
			n += needs.at[n].start < needs.at[n].end;
		}
	if (n > 0)
		qsort(needs.at, (size_t)n, sizeof *needs.at, by_start);
	for (int i = 0; i < n; i++) {
		struct cpa_range *last = &needs.at[needs.n - 1];
		if (needs.n > 0 && needs.at[i].start <= last->end)
			last->end = needs.at[i].end > last->end ? needs.at[i].end : last->end;
		else
			needs.at[needs.n++] = needs.at[i];
	}
	needs.tokens = needed_tokens(ring, &needs, &keys);
	return needs;
}

/* The needed keys of block j as the content of a slot. */
static struct cpa_content needed_content(
	const struct cpa_ring *ring, const struct needs *needs, int j, enum cpa_tensor tensor)
{
	struct cpa_content content = cpa_ring_block_content(ring, j, tensor);
	content.tokens = needs->tokens;
	return content;
}

/* One message with a box for each run of k, then of v.  whole: the block on the sender, the
 * filled slot on the receiver, where the runs lie one behind the other. */
static void add_direct(struct cpa_ring *ring, int hop, enum cpa_op_kind kind, int peer_r,
	const struct needs *needs, const struct cpa_operand *k, const struct cpa_operand *v)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_operand *boxes = cpa_arena_alloc(
		&plan->schedule->arena, sizeof *boxes * 2 * (size_t)needs->n);
	int64_t filled = 0;
	if (!boxes || needs->n == 0)
		return;
	for (int i = 0; i < needs->n; i++) {
		int64_t n = needs->at[i].end - needs->at[i].start;
		int64_t first = kind == CPA_OP_SEND ? needs->at[i].start : filled;
		boxes[i] = cpa_operand_tokens(plan, k, first, n, 1);
		boxes[needs->n + i] = cpa_operand_place(v, first, n, 1);
		boxes[needs->n + i].content.tokens = boxes[i].content.tokens;
		filled += n;
	}
	struct cpa_op op = {.kind = kind,
		.comm = 0,
		.hop = hop,
		.peer = cpa_partition_rank(
			plan->part, (struct cpa_coords){plan->at.b, peer_r, plan->at.u})};
	if (kind == CPA_OP_SEND) {
		op.nreads = 2 * needs->n;
		op.reads = boxes;
	} else {
		op.nwrites = 2 * needs->n;
		op.writes = boxes;
	}
	cpa_schedule_add(plan->schedule, &op);
}

/* Two slots by parity of the hop, each for the most keys that land in it. */
static void make_direct_slots(struct cpa_ring *ring, const struct needs *get)
{
	static const char *const names[2][2] = {
		{"k slot 0", "v slot 0"}, {"k slot 1", "v slot 1"}};
	for (int parity = 0; parity < 2; parity++) {
		struct cpa_content most = {0};
		int64_t nmost = 0;
		for (int hop = 1; hop < ring->R; hop++) {
			struct cpa_content k = needed_content(
				ring, &get[hop], cpa_ring_block_at_hop(ring, hop), CPA_TENSOR_K);
			int64_t n = cpa_spans_ntokens(&k.tokens);
			if ((hop & 1) == parity && n > nmost) {
				most = k;
				nmost = n;
			}
		}
		if (nmost == 0)
			continue;
		ring->slot_k[parity] = cpa_plan_work(ring->plan, names[parity][0], &most);
		most.tensor = CPA_TENSOR_V;
		ring->slot_v[parity] = cpa_plan_work(ring->plan, names[parity][1], &most);
	}
}

static struct cpa_operand filled_slot(const struct cpa_ring *ring, const struct cpa_operand *slot,
	const struct needs *needs, int hop)
{
	struct cpa_operand part = *slot;
	part.content = needed_content(
		ring, needs, cpa_ring_block_at_hop(ring, hop), slot->content.tensor);
	part.box.ntokens = cpa_spans_ntokens(&part.content.tokens);
	return part;
}

/* Hop i: send to the rank that works on this block then, receive from the owner of the block to
 * work on. */
static void exchange_direct(struct cpa_ring *ring, int hop, const struct needs *give,
	const struct needs *get, const struct cpa_operand own[2],
	const struct cpa_operand filled[2])
{
	struct cpa_plan *plan = ring->plan;
	int reader = plan->at.r + plan->part->config.direction * hop;
	cpa_schedule_begin(plan->schedule, CPA_QUEUE_COMM);
	add_direct(ring, hop, CPA_OP_SEND, (reader % ring->R + ring->R) % ring->R, give, &own[0],
		&own[1]);
	if (get->n > 0)
		add_direct(ring, hop, CPA_OP_RECV, cpa_ring_block_at_hop(ring, hop), get,
			&filled[0], &filled[1]);
	cpa_schedule_end(plan->schedule);
}

void cpa_ring_direct(struct cpa_ring *ring)
{
	struct cpa_plan *plan = ring->plan;
	struct cpa_arena *arena = &plan->schedule->arena;
	struct needs *give = cpa_arena_alloc(arena, sizeof *give * (size_t)ring->R);
	struct needs *get = cpa_arena_alloc(arena, sizeof *get * (size_t)ring->R);
	struct cpa_operand own[2] = {plan->k, plan->v}, filled[2] = {0}, next[2] = {0};
	bool gives = false;
	if (!give || !get)
		return;
	for (int hop = 1; hop < ring->R; hop++) {
		int reader = plan->at.r + plan->part->config.direction * hop;
		give[hop] = find_needs(ring, (reader % ring->R + ring->R) % ring->R, plan->at.r);
		get[hop] = find_needs(ring, plan->at.r, cpa_ring_block_at_hop(ring, hop));
		gives = gives || give[hop].n > 0;
	}
	make_direct_slots(ring, get);
	if (gives) {
		own[0] = cpa_plan_as_run(plan, "k wire", &plan->k);
		own[1] = cpa_plan_as_run(plan, "v wire", &plan->v);
	}
	for (int hop = 0; hop < ring->R; hop++) {
		if (hop + 1 < ring->R) {
			int slot = (hop + 1) & 1;
			if (get[hop + 1].n > 0) {
				next[0] = filled_slot(
					ring, &ring->slot_k[slot], &get[hop + 1], hop + 1);
				next[1] = filled_slot(
					ring, &ring->slot_v[slot], &get[hop + 1], hop + 1);
			}
			exchange_direct(ring, hop + 1, &give[hop + 1], &get[hop + 1], own, next);
		}
		if (hop == 0)
			cpa_ring_attend_block(ring, 0, &plan->k, &plan->v);
		else if (get[hop].n > 0)
			cpa_ring_attend_block(ring, hop, &filled[0], &filled[1]);
		filled[0] = next[0];
		filled[1] = next[1];
	}
}
