/*
 * stage_replicated.c - rows of replicated queries go from their one worker to all ranks.
 *
 * Ring rank r works on slice r of the replicated queries, ulysses rank u on heads [a_u, b_u) of
 * it.  One all-gather over the batch group then gives every rank every row, so that the copies
 * are the same bits.
 */
#include "dist/stages.h"

#include <stdio.h>

/* What one member of the group contributes: rows of its slice, its heads, in the output's dtype.
 */
static struct cpa_content contribution(
	const struct cpa_plan *plan, struct cpa_coords member, enum cpa_tensor tensor)
{
	return (struct cpa_content){.tensor = tensor,
		.batches = plan->batches,
		.heads = cpa_partition_heads(plan->part, member.u),
		.tokens = plan->part->q_slice[member.r],
		.dtype = cpa_tensor_dtype(&plan->part->problem, tensor)};
}

static struct cpa_operand new_box(
	struct cpa_plan *plan, const char *name, const struct cpa_content *content)
{
	struct cpa_operand box = cpa_plan_work(plan, name, content);
	return box.box.buffer < 0 ? cpa_operand_absent(*content) : box;
}

/* This rank's own rows, rounded to the output's dtype where they are not in it already. */
static struct cpa_operand own_rows(
	struct cpa_plan *plan, const struct cpa_operand *slice, enum cpa_tensor tensor)
{
	struct cpa_content content = contribution(plan, plan->at, tensor);
	if (cpa_operand_is_empty(slice))
		return cpa_operand_absent(content);
	if (slice->content.dtype == content.dtype)
		return *slice;
	struct cpa_operand wire = cpa_plan_work(
		plan, tensor == CPA_TENSOR_O ? "o slice wire" : "lse slice wire", &content);
	cpa_plan_copy(plan, slice, &wire);
	return wire;
}

/* Rows and heads of one member, in the replicated part of the output. */
static struct cpa_operand place_of(
	struct cpa_plan *plan, const struct cpa_operand *whole, struct cpa_coords member)
{
	int64_t first = 0, n = cpa_spans_ntokens(&plan->part->q_slice[member.r]);
	for (int r = 0; r < member.r; r++)
		first += cpa_spans_ntokens(&plan->part->q_slice[r]);
	struct cpa_operand heads = cpa_operand_heads(
		whole, cpa_partition_heads(plan->part, member.u));
	return cpa_operand_tokens(plan, &heads, first, n, 1);
}

static void gather(struct cpa_plan *plan, struct cpa_operand *own, struct cpa_operand *all,
	int ntensors, const int *members)
{
	int comm = cpa_schedule_comm(plan->schedule, plan->part->P, members);
	cpa_schedule_begin(plan->schedule, CPA_QUEUE_COMM);
	cpa_schedule_add(plan->schedule,
		&(struct cpa_op){.kind = CPA_OP_COLLECTIVE,
			.subkind = CPA_COLLECTIVE_ALL_GATHER,
			.comm = comm,
			.peer = -1,
			.hop = -1,
			.nreads = ntensors,
			.reads = own,
			.nwrites = ntensors * plan->part->P,
			.writes = all});
	cpa_schedule_end(plan->schedule);
}

void cpa_stage_replicated(struct cpa_plan *plan)
{
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	const struct cpa_operand *slices[2] = {&plan->o_slice, &plan->lse_slice};
	const struct cpa_operand *whole[2] = {&plan->o_whole, &plan->lse_whole};
	int P = plan->part->P, n = plan->part->problem.lse ? 2 : 1;
	if (cpa_operand_is_empty(&plan->o_whole))
		return;
	if (P == 1) {
		for (int t = 0; t < n; t++)
			cpa_plan_copy(plan, slices[t], whole[t]);
		return;
	}
	struct cpa_arena *arena = &plan->schedule->arena;
	struct cpa_operand own[2], *all = cpa_arena_alloc(arena, sizeof *all * (size_t)(n * P));
	int *members = cpa_arena_alloc(arena, sizeof *members * (size_t)P);
	if (!all || !members)
		return;
	for (int t = 0; t < n; t++)
		own[t] = own_rows(plan, slices[t], tensors[t]);
	for (int m = 0; m < P; m++) {
		struct cpa_coords member = {plan->at.b, m / plan->part->config.ulysses_degree,
			m % plan->part->config.ulysses_degree};
		members[m] = cpa_partition_rank(plan->part, member);
		for (int t = 0; t < n; t++) {
			char name[24];
			struct cpa_content content = contribution(plan, member, tensors[t]);
			snprintf(
				name, sizeof name, "%s slice %d", cpa_tensor_name(tensors[t]), m);
			all[m * n + t] = new_box(plan, name, &content);
		}
	}
	gather(plan, own, all, n, members);
	for (int m = 0; m < P; m++)
		for (int t = 0; t < n; t++) {
			struct cpa_coords member = {plan->at.b,
				m / plan->part->config.ulysses_degree,
				m % plan->part->config.ulysses_degree};
			struct cpa_operand place = place_of(plan, whole[t], member);
			if (!cpa_operand_is_empty(&all[m * n + t]))
				cpa_plan_copy(plan, &all[m * n + t], &place);
		}
}
