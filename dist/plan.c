/*
 * plan.c - the plan of one rank: its inputs and outputs, then the stages.
 */
#include "dist/stages.h"

#include <stdio.h>
#include <string.h>

static const struct cpa_operand nothing = {.box = {.buffer = -1}};

enum cpa_dtype cpa_tensor_dtype(const struct cpa_problem *problem, enum cpa_tensor tensor)
{
	return tensor == CPA_TENSOR_LSE ? cpa_problem_lse_dtype(problem) : problem->dtype;
}

int64_t cpa_tensor_dim(const struct cpa_problem *problem, enum cpa_tensor tensor)
{
	if (tensor == CPA_TENSOR_LSE)
		return 1;
	return tensor == CPA_TENSOR_V || tensor == CPA_TENSOR_O ? problem->Dv : problem->D;
}

bool cpa_operand_is_empty(const struct cpa_operand *operand)
{
	return operand->box.buffer < 0 || operand->box.ntokens == 0 || operand->box.nheads == 0 ||
		operand->box.nbatches == 0;
}

struct cpa_operand cpa_operand_absent(struct cpa_content content)
{
	content.tokens = (struct cpa_spans){0};
	return (struct cpa_operand){.box = {.step = 1}, .content = content};
}

bool cpa_operand_is_run(const struct cpa_plan *plan, const struct cpa_operand *operand)
{
	return cpa_box_is_run(&plan->schedule->buffers[operand->box.buffer], &operand->box);
}

static int64_t length(struct cpa_range range)
{
	return range.end - range.start;
}

static struct cpa_operand new_buffer(struct cpa_plan *plan, const char *name, enum cpa_role role,
	enum cpa_layout layout, const struct cpa_content *content)
{
	struct cpa_buffer buffer = {
		.role = role,
		.tensor = content->tensor,
		.layout = layout,
		.dtype = content->dtype,
		.ntokens = cpa_spans_ntokens(&content->tokens),
		.nbatches = length(content->batches),
		.nheads = length(content->heads),
		.dim = cpa_tensor_dim(&plan->part->problem, content->tensor),
	};
	if (buffer.ntokens == 0 || buffer.nbatches == 0 || buffer.nheads == 0)
		return nothing;
	snprintf(buffer.name, sizeof buffer.name, "%s", name);
	int id = cpa_schedule_buffer(plan->schedule, &buffer);
	return (struct cpa_operand){
		.box = {id, 0, buffer.ntokens, 1, 0, buffer.nbatches, 0, buffer.nheads},
		.content = *content,
	};
}

struct cpa_operand cpa_plan_work(
	struct cpa_plan *plan, const char *name, const struct cpa_content *content)
{
	return new_buffer(plan, name, CPA_ROLE_WORK, CPA_LAYOUT_SBHD, content);
}

struct cpa_spans_index cpa_plan_index(struct cpa_plan *plan, const struct cpa_spans *tokens)
{
	for (int i = 0; i < plan->nindexes && i < CPA_PLAN_NINDEXES; i++)
		if (plan->indexes[i].list.at == tokens->at && plan->indexes[i].list.n == tokens->n)
			return plan->indexes[i];
	int oldest = plan->nindexes++ % CPA_PLAN_NINDEXES;
	plan->indexes[oldest] = cpa_spans_index(&plan->schedule->arena, tokens);
	return plan->indexes[oldest];
}

struct cpa_operand cpa_operand_place(
	const struct cpa_operand *whole, int64_t first, int64_t n, int64_t step)
{
	struct cpa_operand part = *whole;
	part.box.token += first * whole->box.step;
	part.box.ntokens = n;
	part.box.step = n == 1 ? 1 : whole->box.step * step;
	return part;
}

struct cpa_operand cpa_operand_tokens(struct cpa_plan *plan, const struct cpa_operand *whole,
	int64_t first, int64_t n, int64_t step)
{
	struct cpa_operand part = cpa_operand_place(whole, first, n, step);
	struct cpa_arena *arena = &plan->schedule->arena;
	if (first == 0 && n == whole->box.ntokens)
		return part;
	if (whole->content.tokens.n <= CPA_PLAN_NINDEXES) {
		part.content.tokens = cpa_spans_pick(arena, &whole->content.tokens, first, n, step);
		return part;
	}
	struct cpa_spans_index index = cpa_plan_index(plan, &whole->content.tokens);
	part.content.tokens = cpa_spans_index_pick(arena, &index, first, n, step);
	return part;
}

struct cpa_operand cpa_operand_heads(const struct cpa_operand *whole, struct cpa_range heads)
{
	struct cpa_operand part = *whole;
	part.box.head += heads.start - whole->content.heads.start;
	part.box.nheads = length(heads);
	part.content.heads = heads;
	return part;
}

void cpa_plan_copy(
	struct cpa_plan *plan, const struct cpa_operand *from, const struct cpa_operand *to)
{
	struct cpa_operand reads = *from, writes = *to;
	writes.content = from->content;
	writes.content.dtype = plan->schedule->buffers[to->box.buffer].dtype;
	cpa_schedule_add(plan->schedule,
		&(struct cpa_op){.kind = CPA_OP_COPY,
			.peer = -1,
			.hop = -1,
			.nreads = 1,
			.reads = &reads,
			.nwrites = 1,
			.writes = &writes});
}

struct cpa_operand cpa_plan_as_run(
	struct cpa_plan *plan, const char *name, const struct cpa_operand *operand)
{
	if (cpa_operand_is_empty(operand) || cpa_operand_is_run(plan, operand))
		return *operand;
	struct cpa_operand wire = cpa_plan_work(plan, name, &operand->content);
	cpa_plan_copy(plan, operand, &wire);
	return wire;
}

static bool is_key(enum cpa_tensor tensor)
{
	return tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
}

/* This rank's tokens of one tensor. */
static struct cpa_content shard_content(struct cpa_plan *plan, enum cpa_tensor tensor)
{
	const struct cpa_problem *p = &plan->part->problem;
	return (struct cpa_content){.tensor = tensor,
		.batches = plan->batches,
		.heads = {0, is_key(tensor) ? p->Hkv : p->Hq},
		.dtype = cpa_tensor_dtype(p, tensor),
		.tokens = (is_key(tensor) ? cpa_partition_kv_shard : cpa_partition_q_shard)(
			plan->part, &plan->schedule->arena, plan->at.r, plan->at.u)};
}

/* All of a shard as its split part and its replicated part. */
static void cut_shard(struct cpa_plan *plan, const struct cpa_operand *all,
	struct cpa_operand *split, struct cpa_operand *replicated)
{
	*split = *replicated = nothing;
	if (all->box.buffer < 0)
		return;
	struct cpa_spans own = (is_key(all->content.tensor) ? cpa_partition_kv_split
							    : cpa_partition_q_split)(
		plan->part, &plan->schedule->arena, plan->at.r, plan->at.u);
	int64_t nsplit = cpa_spans_ntokens(&own), n = all->box.ntokens;
	*split = cpa_operand_tokens(plan, all, 0, nsplit, 1);
	*replicated = cpa_operand_tokens(plan, all, nsplit, n - nsplit, 1);
}

/* A buffer of this rank's tokens of one tensor. */
static void add_shard(struct cpa_plan *plan, const char *name, enum cpa_role role,
	enum cpa_tensor tensor, struct cpa_operand *split, struct cpa_operand *replicated)
{
	enum cpa_layout layout = plan->part->problem.layout;
	struct cpa_content content = shard_content(plan, tensor);
	struct cpa_operand all = new_buffer(plan, name, role,
		layout == CPA_LAYOUT_FUSED ? CPA_LAYOUT_BSHD : layout, &content);
	cut_shard(plan, &all, split, replicated);
}

/* One buffer of q, k and v, whose tokens are the same. */
static void add_fused(struct cpa_plan *plan)
{
	int64_t Hq = plan->part->problem.Hq, Hkv = plan->part->problem.Hkv;
	struct cpa_content content = shard_content(plan, CPA_TENSOR_Q);
	content.heads.end = Hq + 2 * Hkv;
	struct cpa_operand all = new_buffer(
		plan, "qkv", CPA_ROLE_INPUT, CPA_LAYOUT_FUSED, &content);
	if (all.box.buffer >= 0)
		plan->schedule->buffers[all.box.buffer].nheads_q = Hq;
	struct cpa_operand *const split[3] = {&plan->q_in, &plan->k_in, &plan->v_in};
	struct cpa_operand *const replicated[3] = {
		&plan->q_whole, &plan->k_whole, &plan->v_whole};
	for (int t = 0; t < 3; t++) {
		struct cpa_operand view = all;
		view.content = shard_content(plan, (enum cpa_tensor)t);
		view.box.head = t == 0 ? 0 : t == 1 ? Hq : Hq + Hkv;
		view.box.nheads = t == 0 ? Hq : Hkv;
		cut_shard(plan, &view, split[t], replicated[t]);
	}
}

/* What this rank is given and owes. */
static void add_shards(struct cpa_plan *plan)
{
	plan->lse_out = plan->lse_whole = nothing;
	if (plan->part->problem.layout == CPA_LAYOUT_FUSED) {
		add_fused(plan);
	} else {
		add_shard(plan, "q", CPA_ROLE_INPUT, CPA_TENSOR_Q, &plan->q_in, &plan->q_whole);
		add_shard(plan, "k", CPA_ROLE_INPUT, CPA_TENSOR_K, &plan->k_in, &plan->k_whole);
		add_shard(plan, "v", CPA_ROLE_INPUT, CPA_TENSOR_V, &plan->v_in, &plan->v_whole);
	}
	add_shard(plan, "o", CPA_ROLE_OUTPUT, CPA_TENSOR_O, &plan->o_out, &plan->o_whole);
	if (plan->part->problem.lse)
		add_shard(plan, "lse", CPA_ROLE_OUTPUT, CPA_TENSOR_LSE, &plan->lse_out,
			&plan->lse_whole);
}

enum cpa_status cpa_plan_create(const struct cpa_partition *part, int rank,
	struct cpa_schedule **schedule, struct cpa_error *error)
{
	struct cpa_schedule *s = cpa_schedule_create(rank, part->W);
	if (!s)
		return cpa_fail(
			error, CPA_NO_MEMORY, "out of memory for the plan of rank %d", rank);
	struct cpa_coords at = cpa_partition_coords(part, rank);
	struct cpa_plan plan = {
		.part = part,
		.schedule = s,
		.at = at,
		.batches = cpa_partition_batches(part, at.b),
		.heads = cpa_partition_heads(part, at.u),
		.kv_heads = cpa_partition_kv_heads(part, at.u),
		.q = nothing,
		.k = nothing,
		.v = nothing,
		.o = nothing,
		.lse = nothing,
		.o_slice = nothing,
		.lse_slice = nothing,
		.o_out = nothing,
		.o_whole = nothing,
	};
	if (length(plan.batches) > 0) { /* a group without items only joins in guidance */
		add_shards(&plan);
		cpa_stage_ulysses_in(&plan);
		cpa_stage_ring(&plan);
		cpa_stage_ulysses_out(&plan);
		cpa_stage_replicated(&plan);
	}
	cpa_stage_guidance(&plan);
	enum cpa_status status = cpa_schedule_finish(s, error);
	if (status != CPA_OK) {
		cpa_schedule_destroy(s);
		return status;
	}
	*schedule = s;
	return CPA_OK;
}
