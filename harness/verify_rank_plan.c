/*
 * verify_rank_plan.c - plans, the proof, and what ranks tell each other before they run.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "harness/verify_rank_parts.h"

enum cpa_status cpa_rank_agree(
	struct cpa_rank_run *run, enum cpa_status s, struct cpa_error *error)
{
	return cpa_world_agree(run->v->settings.world, s, error);
}

/* ---- plans and proof ---- */

/* Like cpa_ranks_plan(), of the own rank only. */
static enum cpa_status plan_own(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_ranks *ranks = &run->ranks;
	enum cpa_status s;

	*ranks = (struct cpa_ranks){.problem = run->v->settings.problem};
	cpa_arena_init(&ranks->arena);
	s = cpa_partition_create(ranks->problem, run->config, &ranks->partition, error);
	if (s == CPA_OK)
		s = cpa_plan_create(ranks->partition, run->rank, &run->own_plan, error);
	if (s == CPA_OK)
		ranks->W = 0; /* no arrays of ranks */
	run->plan = run->own_plan;
	return s;
}

static enum cpa_status find_shards(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_partition *part = run->ranks.partition;
	struct cpa_coords at = cpa_partition_coords(part, run->rank);

	run->batches = cpa_partition_batches(part, at.b);
	run->q_shard = cpa_partition_q_shard(part, &run->ranks.arena, at.r, at.u);
	run->kv_shard = cpa_partition_kv_shard(part, &run->ranks.arena, at.r, at.u);
	run->held = (struct cpa_rows){
		run->batches, cpa_spans_ntokens(&run->q_shard), &run->q_shard};
	/* Of each group one rank judges the rows that all of them have. */
	run->skips = at.r + at.u > 0;
	return run->ranks.arena.failed
		? cpa_fail(error, CPA_NO_MEMORY, "out of memory for shards")
		: CPA_OK;
}

static enum cpa_status make_plans(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s;

	if (run->rank == 0) {
		s = cpa_ranks_plan(&run->ranks, run->v->settings.problem, run->config, error);
		run->plan = s == CPA_OK ? run->ranks.schedules[0] : NULL;
	} else {
		s = plan_own(run, error);
	}
	if (s == CPA_OK)
		s = find_shards(run, error);
	return cpa_rank_agree(run, s, error);
}

static enum cpa_status gather_counts(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;

	cpa_schedule_count(run->plan, run->v->settings.problem, &run->counts);
	run->result->counts = cpa_result_alloc_counts(run->result->W);
	if (!run->result->counts)
		s = cpa_fail(error, CPA_NO_MEMORY, "out of memory for counts");
	s = cpa_rank_agree(run, s, error);
	return s == CPA_OK ? cpa_world_gather(run->v->settings.world, &run->counts,
				     sizeof run->counts, run->result->counts, error)
			   : s;
}

/* ---- the exchange of sizes ---- */

/* What ranks do that know only their own lengths; here it shows that all were given the same. */
static enum cpa_status exchange_sizes(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_partition *part = run->ranks.partition;
	const struct cpa_problem *p = run->v->settings.problem;
	struct cpa_coords at = cpa_partition_coords(part, run->rank);
	size_t W = (size_t)part->W, P = (size_t)part->P;
	int64_t own[CPA_SIZES_NWORDS], *all = malloc(W * sizeof own);
	/* Beyond what a record tells, all sizes must be known anyway. */
	bool told = part->q.ncuts <= CPA_SIZES_MAX_SEGMENTS && part->kv.ncuts <= CPA_SIZES_MAX_SEGMENTS;
	size_t nsizes = (size_t)part->q.ncuts * P, nsizes_kv = (size_t)part->kv.ncuts * P;
	int64_t *sizes = malloc((nsizes + nsizes_kv + 1) * sizeof *sizes);
	enum cpa_status s = CPA_OK;

	if (!all || !sizes)
		s = cpa_fail(error, CPA_NO_MEMORY, "out of memory for the exchange of sizes");
	s = cpa_rank_agree(run, s, error);
	if (s == CPA_OK && told) {
		int64_t lengths[2][CPA_SIZES_MAX_SEGMENTS];

		cpa_partition_sizes(part, false, at.r, at.u, lengths[0]);
		cpa_partition_sizes(part, true, at.r, at.u, lengths[1]);
		cpa_sizes_pack(p, run->config, lengths[0], lengths[1], own);
		s = cpa_world_gather(run->v->settings.world, own, sizeof own, all, error);
	}
	if (s == CPA_OK && told)
		s = cpa_sizes_agree(part->W, all, sizes, sizes + nsizes, error);
	if (s == CPA_OK && told)
		s = cpa_partition_check_sizes(part, sizes, sizes + nsizes, error);
	free(all);
	free(sizes);
	/* Processes that were not given the same can tell nothing about right or wrong. */
	return cpa_rank_agree(run, s == CPA_MISMATCH ? CPA_INVALID : s, error);
}

/* ---- all of it ---- */

enum cpa_status cpa_rank_plan(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = make_plans(run, error);

	if (s == CPA_OK)
		s = gather_counts(run, error);
	return s == CPA_OK ? exchange_sizes(run, error) : s;
}
