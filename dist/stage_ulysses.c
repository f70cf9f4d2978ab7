/*
 * stage_ulysses.c - the all-to-all between tokens and heads, in and out.
 *
 * In: rank u of a ulysses group gives each peer v its tokens of v's heads and gets v's tokens of
 * its own heads, so that it ends with all tokens of the group (in token order) for heads [a_u,
 * b_u).  Out is the same for o and lse, the other way.  One message to a peer carries q, k and v
 * (or o and lse); empty boxes and empty messages do not exist.  Nothing is padded.
 */
#include "dist/stages.h"

#include <stdio.h>

/* Where a shard lies in the block of its group: n tokens from shard index `shard` on are at block
 * indices block, block + step, ... */
struct run {
	int64_t shard, block, n, step;
};
struct runs {
	struct run *at;
	int n;
};

static bool continues(const struct run *run, int64_t position, int64_t index)
{
	return run->step == 1 && run->shard + run->n == position && run->block + run->n == index;
}

/* What is contiguous in both is one run; so are tokens that stand alone at one distance in the block,
 * as those of a striped shard do.  (The distance in tokens says nothing: several segments make
 * the block.) */
static struct runs find_runs(
	struct cpa_plan *plan, const struct cpa_spans *shard, const struct cpa_spans *block)
{
	struct cpa_arena *arena = &plan->schedule->arena;
	struct cpa_spans_index in_block = cpa_plan_index(plan, block);
	int64_t most = 0, position = 0;
	for (int i = 0; i < shard->n; i++)
		most += shard->at[i].count;
	struct runs runs = {cpa_arena_alloc(arena, sizeof *runs.at * (size_t)most), 0};
	for (int i = 0; runs.at && i < shard->n; i++) {
		struct cpa_span s = shard->at[i];
		struct run *last = NULL; /* of this span: single tokens may join it */
		for (int64_t c = 0; c < s.count; c++, position += s.width) {
			int64_t index = cpa_spans_index_below(
				&in_block, s.start + c * s.stride);
			int64_t step = last ? index - (last->block + (last->n - 1) * last->step)
					    : 0;
			if (last && s.width == 1 && (last->n == 1 || step == last->step)) {
				last->step = step;
				last->n++;
				continue;
			}
			if (runs.n > 0 && continues(&runs.at[runs.n - 1], position, index)) {
				runs.at[runs.n - 1].n += s.width;
				last = NULL;
				continue;
			}
			last = &runs.at[runs.n++];
			*last = (struct run){position, index, s.width, 1};
		}
	}
	return runs;
}

/* Shard -> block or back, one copy a run. */
static void copy_runs(struct cpa_plan *plan, const struct runs *runs,
	const struct cpa_operand *shard, const struct cpa_operand *block, bool to_block)
{
	for (int i = 0; i < runs->n; i++) {
		const struct run *run = &runs->at[i];
		/* The tokens of both are the same, and those of the shard are picked faster. */
		struct cpa_operand s = cpa_operand_tokens(plan, shard, run->shard, run->n, 1);
		struct cpa_operand b = cpa_operand_place(block, run->block, run->n, run->step);
		b.content.tokens = s.content.tokens;
		if (to_block)
			cpa_plan_copy(plan, &s, &b);
		else
			cpa_plan_copy(plan, &b, &s);
	}
}

static void name_peer(char *name, size_t size, const char *what, enum cpa_tensor tensor, int peer)
{
	snprintf(name, size, "%s %s %d", cpa_tensor_name(tensor), what, peer);
}

/* One peer's message: its boxes, and for received ones where they go afterwards. */
struct message {
	struct cpa_operand box[3], target[3];
	struct runs runs[3];
	int n;
};

static void add_message(
	struct cpa_plan *plan, enum cpa_op_kind kind, int peer_u, const struct message *message)
{
	if (message->n == 0)
		return;
	struct cpa_coords peer = {plan->at.b, plan->at.r, peer_u};
	struct cpa_op op = {
		.kind = kind, .comm = 0, .hop = -1, .peer = cpa_partition_rank(plan->part, peer)};
	if (kind == CPA_OP_SEND) {
		op.nreads = message->n;
		op.reads = (struct cpa_operand *)message->box;
	} else {
		op.nwrites = message->n;
		op.writes = (struct cpa_operand *)message->box;
	}
	cpa_schedule_add(plan->schedule, &op);
}

static struct message *new_messages(struct cpa_plan *plan)
{
	int U = plan->part->config.ulysses_degree;
	return cpa_arena_alloc(&plan->schedule->arena, sizeof(struct message) * (size_t)U);
}

/* All sends and receives are one group, peers in the order u+1, u+2, ... so that no rank is
 * everyone's first. */
static void exchange(
	struct cpa_plan *plan, const struct message *sends, const struct message *recvs)
{
	int U = plan->part->config.ulysses_degree;
	cpa_schedule_begin(plan->schedule, CPA_QUEUE_COMM);
	for (int i = 1; i < U; i++) {
		add_message(
			plan, CPA_OP_SEND, (plan->at.u + i) % U, &sends[(plan->at.u + i) % U]);
		add_message(plan, CPA_OP_RECV, (plan->at.u + U - i) % U,
			&recvs[(plan->at.u + U - i) % U]);
	}
	cpa_schedule_end(plan->schedule);
	for (int v = 0; v < U; v++)
		for (int i = 0; i < recvs[v].n; i++)
			if (recvs[v].runs[i].at)
				copy_runs(plan, &recvs[v].runs[i], &recvs[v].box[i],
					&recvs[v].target[i], true);
}

/* ---- in ---- */

static struct cpa_range heads_of(const struct cpa_plan *plan, int u, enum cpa_tensor tensor)
{
	return tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V
		? cpa_partition_kv_heads(plan->part, u)
		: cpa_partition_heads(plan->part, u);
}

static struct cpa_spans shard_of(struct cpa_plan *plan, int u, enum cpa_tensor tensor)
{
	return tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V
		? cpa_partition_kv_split(plan->part, &plan->schedule->arena, plan->at.r, u)
		: cpa_partition_q_split(plan->part, &plan->schedule->arena, plan->at.r, u);
}

static void send_piece(
	struct cpa_plan *plan, struct message *message, int v, const struct cpa_operand *shard)
{
	if (cpa_operand_is_empty(shard))
		return;
	struct cpa_operand piece = cpa_operand_heads(
		shard, heads_of(plan, v, shard->content.tensor));
	if (cpa_operand_is_empty(&piece))
		return;
	char name[24];
	name_peer(name, sizeof name, "to", shard->content.tensor, v);
	message->box[message->n++] = cpa_plan_as_run(plan, name, &piece);
}

/* The piece of peer v lands in the block itself where it is one run there, else in a wire buffer.
 */
static void recv_piece(
	struct cpa_plan *plan, struct message *message, int v, const struct cpa_operand *block)
{
	if (cpa_operand_is_empty(block))
		return;
	enum cpa_tensor tensor = block->content.tensor;
	struct cpa_content content = block->content;
	content.tokens = shard_of(plan, v, tensor);
	if (content.tokens.n == 0)
		return;
	struct runs runs = find_runs(
		plan, &content.tokens, &block->content.tokens);
	int i = message->n++;
	if (runs.n == 1 && runs.at[0].step == 1) {
		message->box[i] = cpa_operand_tokens(
			plan, block, runs.at[0].block, runs.at[0].n, 1);
		return;
	}
	char name[24];
	name_peer(name, sizeof name, "from", tensor, v);
	message->box[i] = cpa_plan_work(plan, name, &content);
	message->target[i] = *block;
	message->runs[i] = runs;
}

static struct cpa_operand work_block(struct cpa_plan *plan, const char *name,
	enum cpa_tensor tensor, const struct cpa_spans *tokens)
{
	struct cpa_content content = {.tensor = tensor,
		.batches = plan->batches,
		.heads = heads_of(plan, plan->at.u, tensor),
		.tokens = *tokens,
		.dtype = plan->part->problem.dtype};
	return cpa_plan_work(plan, name, &content);
}

static void copy_own_piece(
	struct cpa_plan *plan, const struct cpa_operand *shard, const struct cpa_operand *block)
{
	if (cpa_operand_is_empty(shard) || cpa_operand_is_empty(block))
		return;
	struct cpa_operand mine = cpa_operand_heads(shard, block->content.heads);
	struct runs runs = find_runs(
		plan, &shard->content.tokens, &block->content.tokens);
	copy_runs(plan, &runs, &mine, block, true);
}

void cpa_stage_ulysses_in(struct cpa_plan *plan)
{
	int U = plan->part->config.ulysses_degree;
	if (U == 1) {
		plan->q = plan->q_in;
		plan->k = plan->k_in;
		plan->v = plan->v_in;
		return;
	}
	plan->q = work_block(plan, "q work", CPA_TENSOR_Q, &plan->part->q_block[plan->at.r]);
	plan->k = work_block(plan, "k work", CPA_TENSOR_K, &plan->part->kv_block[plan->at.r]);
	plan->v = work_block(plan, "v work", CPA_TENSOR_V, &plan->part->kv_block[plan->at.r]);
	struct message *sends = new_messages(plan), *recvs = new_messages(plan);
	if (!sends || !recvs)
		return;
	const struct cpa_operand *shards[3] = {&plan->q_in, &plan->k_in, &plan->v_in};
	const struct cpa_operand *blocks[3] = {&plan->q, &plan->k, &plan->v};
	for (int t = 0; t < 3; t++) {
		copy_own_piece(plan, shards[t], blocks[t]);
		for (int i = 1; i < U; i++) {
			int v = (plan->at.u + i) % U;
			send_piece(plan, &sends[v], v, shards[t]);
			recv_piece(plan, &recvs[v], v, blocks[t]);
		}
	}
	exchange(plan, sends, recvs);
}

/* ---- out ---- */

/* Rows of the block that belong to peer v, finished: sent from where they are when they are one
 * run of the output's dtype, else packed and rounded first. */
static void send_rows(
	struct cpa_plan *plan, struct message *message, int v, const struct cpa_operand *block)
{
	if (cpa_operand_is_empty(block))
		return;
	struct cpa_content content = block->content;
	content.tokens = shard_of(plan, v, content.tensor);
	content.dtype = cpa_tensor_dtype(&plan->part->problem, content.tensor);
	if (content.tokens.n == 0)
		return;
	struct runs runs = find_runs(
		plan, &content.tokens, &block->content.tokens);
	int i = message->n++;
	if (runs.n == 1 && runs.at[0].step == 1 && content.dtype == block->content.dtype) {
		message->box[i] = cpa_operand_tokens(
			plan, block, runs.at[0].block, runs.at[0].n, 1);
		return;
	}
	char name[24];
	name_peer(name, sizeof name, "to", content.tensor, v);
	message->box[i] = cpa_plan_work(plan, name, &content);
	copy_runs(plan, &runs, &message->box[i], block, false);
}

static void recv_rows(
	struct cpa_plan *plan, struct message *message, int v, const struct cpa_operand *shard)
{
	if (cpa_operand_is_empty(shard))
		return;
	struct cpa_operand piece = cpa_operand_heads(shard, cpa_partition_heads(plan->part, v));
	if (cpa_operand_is_empty(&piece))
		return;
	int i = message->n++;
	if (cpa_operand_is_run(plan, &piece)) {
		message->box[i] = piece;
		return;
	}
	char name[24];
	name_peer(name, sizeof name, "from", piece.content.tensor, v);
	message->box[i] = cpa_plan_work(plan, name, &piece.content);
	message->target[i] = piece;
	message->runs[i] = find_runs(
		plan, &piece.content.tokens, &piece.content.tokens);
}

static void keep_own_rows(
	struct cpa_plan *plan, const struct cpa_operand *block, const struct cpa_operand *shard)
{
	if (cpa_operand_is_empty(block) || cpa_operand_is_empty(shard))
		return;
	struct cpa_operand mine = cpa_operand_heads(shard, plan->heads);
	struct runs runs = find_runs(
		plan, &shard->content.tokens, &block->content.tokens);
	copy_runs(plan, &runs, &mine, block, false);
}

void cpa_stage_ulysses_out(struct cpa_plan *plan)
{
	int U = plan->part->config.ulysses_degree;
	const struct cpa_operand *blocks[2] = {&plan->o, &plan->lse};
	const struct cpa_operand *shards[2] = {&plan->o_out, &plan->lse_out};
	struct message *sends = new_messages(plan), *recvs = new_messages(plan);
	if (!sends || !recvs)
		return;
	for (int t = 0; t < (plan->part->problem.lse ? 2 : 1); t++) {
		keep_own_rows(plan, blocks[t], shards[t]);
		for (int i = 1; i < U; i++) {
			int v = (plan->at.u + i) % U;
			send_rows(plan, &sends[v], v, blocks[t]);
			recv_rows(plan, &recvs[v], v, shards[t]);
		}
	}
	exchange(plan, sends, recvs);
}
