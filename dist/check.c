/*
 * check.c - the proof of one rank after another, and the life of a check.
 *
 * A schedule is data from anywhere, so nothing in it is trusted: boxes are checked against
 * buffers, contents against what stands there, and what the rank is given and owes comes from the
 * partition.
 */
#include "dist/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cpa_check {
	const struct cpa_partition *part;
	struct cpa_peers *peers;
	struct cpa_fault fault;
	int nranks;
	bool *seen; /* [W] ranks that have been handed in */
};

/* A box without tokens exists only in a collective, for a member that has none. */
static bool is_absent(const struct cpa_op *op, const struct cpa_operand *x)
{
	return op->kind == CPA_OP_COLLECTIVE && x->box.ntokens == 0 && x->content.tokens.n == 0;
}

static bool check_op(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	bool communicates = op->kind == CPA_OP_SEND || op->kind == CPA_OP_RECV ||
		op->kind == CPA_OP_COLLECTIVE;
	const struct cpa_step *step = &state->schedule->steps[state->step];
	if (communicates == (step->queue == CPA_QUEUE_COMPUTE) ||
		(!communicates && step->nops != 1))
		return cpa_check_fail(state, CPA_RULE_DATA,
			"is on queue %d in a step of %d ops; queue 0 computes, "
			"one op a step, the others communicate",
			step->queue, step->nops);
	for (int i = 0; i < op->nreads; i++)
		if (!is_absent(op, &op->reads[i]) && !cpa_check_operand(state, &op->reads[i]))
			return false;
	for (int i = 0; i < op->nwrites; i++)
		if (!is_absent(op, &op->writes[i]) && !cpa_check_operand(state, &op->writes[i]))
			return false;
	if (!cpa_check_kind(state, op))
		return false;
	state->in_place = op->kind == CPA_OP_MERGE;
	for (int i = 0; i < op->nreads; i++)
		if (!is_absent(op, &op->reads[i]) && !cpa_check_read(state, &op->reads[i]))
			return false;
	for (int i = 0; i < op->nwrites; i++)
		if (!is_absent(op, &op->writes[i]) && !cpa_check_write(state, &op->writes[i]))
			return false;
	return true;
}

/* ---- what a rank is given and owes ---- */

static int find_buffer(const struct cpa_schedule *s, enum cpa_role role, enum cpa_tensor tensor)
{
	for (int i = 0; i < s->nbuffers; i++)
		if (s->buffers[i].role == role && s->buffers[i].tensor == tensor)
			return i;
	return -1;
}

/* All of an input or output as the caller's layout has it: of a fused buffer the heads of one
 * tensor. */
static struct cpa_box shard_box(
	const struct cpa_check_rank_state *state, int id, enum cpa_tensor tensor)
{
	const struct cpa_problem *p = &state->part->problem;
	struct cpa_box box = cpa_box_all(state->schedule, id);
	if (p->layout != CPA_LAYOUT_FUSED || tensor > CPA_TENSOR_V)
		return box;
	box.head = tensor == CPA_TENSOR_Q ? 0 : tensor == CPA_TENSOR_K ? p->Hq : p->Hq + p->Hkv;
	box.nheads = tensor == CPA_TENSOR_Q ? p->Hq : p->Hkv;
	return box;
}

/* Where the caller looks for it, and nothing beside it. */
static bool has_layout(struct cpa_check_rank_state *state, int id)
{
	const struct cpa_problem *p = &state->part->problem;
	const struct cpa_buffer *b = &state->schedule->buffers[id];
	bool fused = p->layout == CPA_LAYOUT_FUSED && b->role == CPA_ROLE_INPUT;
	enum cpa_layout expected =
		p->layout == CPA_LAYOUT_FUSED && !fused ? CPA_LAYOUT_BSHD : p->layout;
	if (b->layout == expected &&
		(!fused || (b->nheads_q == p->Hq && b->nheads == p->Hq + 2 * p->Hkv)))
		return true;
	return cpa_check_fail(state, CPA_RULE_DATA,
		"buffer \"%s\" of %lld heads is %s; the caller's layout is %s%s", b->name,
		(long long)b->nheads, cpa_layout_name(b->layout), cpa_layout_name(expected),
		fused ? ", heads of q, k and v one behind the other" : "");
}

static struct cpa_content owned(struct cpa_check_rank_state *state, enum cpa_tensor tensor)
{
	const struct cpa_partition *part = state->part;
	struct cpa_coords at = cpa_partition_coords(part, state->schedule->rank);
	bool kv = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	return (struct cpa_content){.tensor = tensor,
		.batches = cpa_partition_batches(part, at.b),
		.heads = {0, kv ? part->problem.Hkv : part->problem.Hq},
		.tokens = kv ? cpa_partition_kv_shard(part, &state->arena, at.r, at.u)
			     : cpa_partition_q_shard(part, &state->arena, at.r, at.u),
		.dtype = tensor == CPA_TENSOR_LSE ? cpa_problem_lse_dtype(&part->problem)
						  : part->problem.dtype};
}

static bool owns_nothing(const struct cpa_content *c)
{
	return c->tokens.n == 0 || c->batches.start == c->batches.end;
}

static bool give_inputs(struct cpa_check_rank_state *state)
{
	for (int t = CPA_TENSOR_Q; t <= CPA_TENSOR_V; t++) {
		struct cpa_content c = owned(state, (enum cpa_tensor)t);
		int id = find_buffer(state->schedule, CPA_ROLE_INPUT,
			state->part->problem.layout == CPA_LAYOUT_FUSED ? CPA_TENSOR_Q
									: (enum cpa_tensor)t);
		if (id < 0)
			continue; /* nobody can read it then */
		struct cpa_operand *all = cpa_arena_alloc(&state->arena, sizeof *all);
		if (!all)
			return false;
		*all = (struct cpa_operand){shard_box(state, id, (enum cpa_tensor)t), c};
		if (owns_nothing(&c) || !cpa_check_operand(state, all))
			return cpa_check_fail(state, CPA_RULE_DATA,
				"input buffer \"%s\" is not this rank's shard",
				state->schedule->buffers[id].name);
		if (!has_layout(state, id) || !cpa_check_stand(state, all, -1, -1))
			return false;
	}
	return true;
}

/* After the last step everything has ended: a virtual step that waits for all. */
static bool take_outputs(struct cpa_check_rank_state *state)
{
	const struct cpa_schedule *s = state->schedule;
	state->op = -1;
	state->step = s->nsteps;
	for (int q = 0; q < CPA_NQUEUES; q++)
		state->clock[s->nsteps][q] = s->nsteps;
	for (int t = CPA_TENSOR_O; t <= CPA_TENSOR_LSE; t++) {
		struct cpa_content c = owned(state, (enum cpa_tensor)t);
		if (owns_nothing(&c) || (t == CPA_TENSOR_LSE && !state->part->problem.lse))
			continue;
		int id = find_buffer(s, CPA_ROLE_OUTPUT, (enum cpa_tensor)t);
		if (id < 0)
			return cpa_check_fail(state, CPA_RULE_DATA,
				"owes %s and has no buffer for it",
				cpa_tensor_name((enum cpa_tensor)t));
		struct cpa_operand all = {cpa_box_all(s, id), c};
		if (!cpa_check_operand(state, &all) || !has_layout(state, id) ||
			!cpa_check_read(state, &all))
			return false;
	}
	return true;
}

/* With guidance the rows of every batch group, this rank's own among them, stand in "o group i"
 * at the end: the combination takes each branch from where its name says. */
static bool take_groups(struct cpa_check_rank_state *state)
{
	const struct cpa_config *config = &state->part->config;
	struct cpa_content c = owned(state, CPA_TENSOR_O);
	for (int b = 0;
		config->guidance != 0 && config->batch_degree > 1 && b < config->batch_degree;
		b++) {
		char name[24], text[200];
		int id = 0;
		c.batches = cpa_partition_batches(state->part, b);
		if (owns_nothing(&c))
			continue;
		snprintf(name, sizeof name, "o group %d", b);
		while (id < state->schedule->nbuffers &&
			strcmp(state->schedule->buffers[id].name, name) != 0)
			id++;
		cpa_content_print(&c, text, sizeof text);
		if (id == state->schedule->nbuffers)
			return cpa_check_fail(state, CPA_RULE_DATA,
				"owes guidance %s, and has no buffer \"%s\": the gather of batch "
				"group %d is missing",
				text, name, b);
		struct cpa_operand all = {cpa_box_all(state->schedule, id), c};
		if (!cpa_check_operand(state, &all) || !cpa_check_read(state, &all))
			return false;
	}
	return true;
}

static bool check_steps(struct cpa_check_rank_state *state)
{
	const struct cpa_schedule *s = state->schedule;
	int expected = 0;
	for (int i = 0; i < s->nsteps; i++) {
		state->step = i;
		for (int n = 0; n < s->steps[i].nops; n++) {
			state->op = s->steps[i].first + n;
			if (state->op != expected++ || state->op >= s->nops)
				return cpa_check_fail(state, CPA_RULE_DATA,
					"step %d starts at op %d, expected %d", i, state->op,
					expected - 1);
			if (!check_op(state, &s->ops[state->op]))
				return false;
		}
	}
	if (expected != s->nops) {
		state->op = expected;
		return cpa_check_fail(
			state, CPA_RULE_DATA, "%d ops are in no step", s->nops - expected);
	}
	return true;
}

static bool check_rank(struct cpa_check_rank_state *state)
{
	state->op = -1;
	if (!give_inputs(state) || !cpa_check_clocks(state) || !check_steps(state))
		return false;
	/* The virtual last step stands on the compute queue for is_ordered(). */
	return take_outputs(state) && take_groups(state);
}

/* ---- the life of a check ---- */

enum cpa_status cpa_check_create(
	const struct cpa_partition *part, struct cpa_check **check, struct cpa_error *error)
{
	struct cpa_check *c = calloc(1, sizeof *c);
	if (c) {
		c->part = part;
		c->peers = cpa_peers_create(part->W);
		c->seen = calloc((size_t)part->W, sizeof *c->seen);
	}
	if (!c || !c->peers || !c->seen) {
		cpa_check_destroy(c);
		return cpa_fail(
			error, CPA_NO_MEMORY, "out of memory for the proof of %d ranks", part->W);
	}
	*check = c;
	return CPA_OK;
}

void cpa_check_destroy(struct cpa_check *check)
{
	if (!check)
		return;
	cpa_peers_destroy(check->peers);
	free(check->seen);
	free(check);
}

static enum cpa_status finish_call(
	struct cpa_check *check, bool ok, bool out_of_memory, struct cpa_error *error)
{
	if (out_of_memory)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the proof");
	if (ok)
		return CPA_OK;
	return cpa_fail(error, CPA_MISMATCH, "%s", check->fault.text);
}

enum cpa_status cpa_check_rank(
	struct cpa_check *check, const struct cpa_schedule *schedule, struct cpa_error *error)
{
	if (check->fault.rule != CPA_RULE_NONE)
		return cpa_fail(error, CPA_MISMATCH, "%s", check->fault.text);
	struct cpa_check_rank_state state = {
		.part = check->part, .schedule = schedule, .fault = &check->fault, .op = -1};
	cpa_arena_init(&state.arena);
	state.pieces = calloc((size_t)schedule->nbuffers + 1, sizeof *state.pieces);
	state.clock = calloc((size_t)schedule->nsteps + 1, sizeof *state.clock);
	state.out_of_memory = !state.pieces || !state.clock;
	bool ok = !state.out_of_memory;
	if (ok &&
		(schedule->rank < 0 || schedule->rank >= check->part->W ||
			check->seen[schedule->rank]))
		ok = cpa_check_fail(&state, CPA_RULE_DATA, "handed in twice, or not a rank of %d",
			check->part->W);
	if (ok) {
		check->seen[schedule->rank] = true;
		check->nranks++;
		ok = check_rank(&state) &&
			cpa_peers_add(
				check->peers, schedule, &check->fault, &state.out_of_memory);
	}
	for (int i = 0; state.pieces && i < schedule->nbuffers; i++)
		cpa_pieces_fini(&state.pieces[i]);
	free(state.pieces);
	free(state.met.at);
	free(state.clock);
	bool failed = state.arena.failed || state.out_of_memory;
	cpa_arena_fini(&state.arena);
	return finish_call(check, ok, failed, error);
}

enum cpa_status cpa_check_finish(struct cpa_check *check, struct cpa_error *error)
{
	bool out_of_memory = false;
	if (check->fault.rule == CPA_RULE_NONE && check->nranks != check->part->W) {
		check->fault = (struct cpa_fault){
			.rule = CPA_RULE_MESSAGES, .rank = -1, .op = -1};
		snprintf(check->fault.text, sizeof check->fault.text,
			"%d of %d ranks were handed in", check->nranks, check->part->W);
	}
	bool ok = check->fault.rule == CPA_RULE_NONE &&
		cpa_peers_match(check->peers, &check->fault) &&
		cpa_peers_order(check->peers, false, &check->fault, &out_of_memory) &&
		cpa_peers_order(check->peers, true, &check->fault, &out_of_memory);
	return finish_call(check, ok, out_of_memory, error);
}

const struct cpa_fault *cpa_check_fault(const struct cpa_check *check)
{
	return &check->fault;
}
