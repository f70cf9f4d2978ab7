/*
 * stage_guidance.c - guidance branches lie along the batch axis, so the batch groups have each other's
 * rows to combine: one all-gather of o among the ranks of all groups that hold the same tokens.
 *
 * What a rank owes stays as it is.  Beside it stands "o group i" for each batch group, all heads of this
 * rank's tokens; the combination itself is cpa_ref_guidance(), element by element, of what is there.
 */
#include "dist/stages.h"

#include <stdio.h>

/* What group b has of this rank's tokens. */
static struct cpa_content rows_of(struct cpa_plan *plan, int b)
{
	return (struct cpa_content){.tensor = CPA_TENSOR_O,
		.batches = cpa_partition_batches(plan->part, b), .heads = {0, plan->part->problem.Hq},
		.tokens = cpa_partition_q_shard(plan->part, &plan->schedule->arena, plan->at.r, plan->at.u),
		.dtype = cpa_tensor_dtype(&plan->part->problem, CPA_TENSOR_O)};
}

/* This rank's output as one run of memory; nothing where its group has no items. */
static struct cpa_operand own_rows(struct cpa_plan *plan)
{
	int buffer = cpa_operand_is_empty(&plan->o_out) ? plan->o_whole.box.buffer : plan->o_out.box.buffer;
	struct cpa_content content = rows_of(plan, plan->at.b);
	if (buffer < 0)
		return cpa_operand_absent(content);
	struct cpa_operand own = {.box = cpa_box_all(plan->schedule, buffer), .content = content};
	return cpa_plan_as_run(plan, "o group wire", &own);
}

void cpa_stage_guidance(struct cpa_plan *plan)
{
	int N = plan->part->config.batch_degree;
	struct cpa_content content = rows_of(plan, plan->at.b);
	if (plan->part->config.guidance == 0 || N == 1 || content.tokens.n == 0)
		return;
	struct cpa_arena *arena = &plan->schedule->arena;
	struct cpa_operand own = own_rows(plan), *all = cpa_arena_alloc(arena, sizeof *all * (size_t)N);
	int *members = cpa_arena_alloc(arena, sizeof *members * (size_t)N);
	if (!all || !members)
		return;
	for (int b = 0; b < N; b++) {
		char name[24];
		members[b] = cpa_partition_rank(plan->part,
			(struct cpa_coords){b, plan->at.r, plan->at.u});
		content = rows_of(plan, b);
		snprintf(name, sizeof name, "o group %d", b);
		all[b] = cpa_plan_work(plan, name, &content);
		if (all[b].box.buffer < 0)
			all[b] = cpa_operand_absent(content);
	}
	int comm = cpa_schedule_comm(plan->schedule, N, members);
	cpa_schedule_begin(plan->schedule, CPA_QUEUE_COMM);
	cpa_schedule_add(plan->schedule, &(struct cpa_op){.kind = CPA_OP_COLLECTIVE,
		.subkind = CPA_COLLECTIVE_ALL_GATHER, .comm = comm, .peer = -1, .hop = -1,
		.nreads = 1, .reads = &own, .nwrites = N, .writes = all});
	cpa_schedule_end(plan->schedule);
}
