/*
 * diagnose_stage.c - a configuration that runs with one planted fault after the other.
 */
#include "harness/diagnose_stage.h"

#include <math.h>
#include <stdlib.h>

enum cpa_status cpa_stage_init(struct cpa_stage *stage, int nrows, struct cpa_error *error)
{
	size_t n = (size_t)nrows + 1;
	stage->o = malloc(n * (size_t)stage->problem.Dv * sizeof *stage->o);
	stage->lse = malloc(n * sizeof *stage->lse);
	stage->index = malloc(n * sizeof *stage->index);
	if (!stage->o || !stage->lse || !stage->index)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis");
	return cpa_device_create("cpu", &stage->device, error);
}

void cpa_stage_fini(struct cpa_stage *stage)
{
	free(stage->o);
	free(stage->lse);
	free(stage->index);
	cpa_device_destroy(stage->device);
}

bool cpa_stage_plan(struct cpa_stage *stage, const struct cpa_config *config)
{
	struct cpa_error ignored;
	stage->started = false;
	return cpa_ranks_plan(&stage->ranks, &stage->problem, config, &ignored) == CPA_OK;
}

void cpa_stage_leave(struct cpa_stage *stage)
{
	cpa_ranks_fini(&stage->ranks);
	stage->started = false;
}

/* ---- one faulty run ---- */

static bool before(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_stage *stage = context;
	struct cpa_exec_hook hook =
		cpa_plant_hook(stage->plant, cpa_exec_schedule(exec)->rank);
	return !hook.before || hook.before(hook.context, exec, op);
}

static void after(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_stage *stage = context;
	struct cpa_exec_hook hook =
		cpa_plant_hook(stage->plant, cpa_exec_schedule(exec)->rank);
	if (hook.after)
		hook.after(hook.context, exec, op);
}

static struct cpa_exec_hook hook_of(void *context, int rank)
{
	(void)rank;
	return (struct cpa_exec_hook){before, after, context};
}

static void find_rows(struct cpa_stage *stage, const struct cpa_suspect *s)
{
	for (int i = 0; i < s->nrows; i++) {
		const struct cpa_spans *tokens = &stage->ranks.q_shards[s->rows[i].rank];
		int64_t at = cpa_spans_ntokens(tokens) - 1;
		while (at >= 0 && cpa_spans_token(tokens, at) != s->rows[i].t)
			at--;
		stage->index[i] = at;
	}
}

bool cpa_stage_start(struct cpa_stage *stage, const struct cpa_suspect *s)
{
	struct cpa_error ignored;
	if (stage->started)
		return true;
	find_rows(stage, s);
	stage->started = cpa_ranks_start(&stage->ranks, stage->device, hook_of, stage,
				 &ignored) == CPA_OK;
	return stage->started;
}

static struct cpa_plant_target target_of(const struct cpa_stage *stage)
{
	return (struct cpa_plant_target){.partition = stage->ranks.partition,
		.schedules = stage->ranks.schedules,
		.device = stage->device,
		.inputs = cpa_inputs_dense(&stage->tensors)};
}

int64_t cpa_stage_nplaces(
	const struct cpa_stage *stage, int fault, const struct cpa_fault_where *where)
{
	struct cpa_plant_target target = target_of(stage);
	return cpa_plant_nplaces(fault, &target, where);
}

enum cpa_status cpa_stage_plant(struct cpa_stage *stage, int fault,
	const struct cpa_fault_where *where, int64_t place, struct cpa_error *error)
{
	struct cpa_plant_target target = target_of(stage);
	enum cpa_status s =
		cpa_plant_create_at(fault, &target, where, place, &stage->plant, error);
	if (s == CPA_OK)
		cpa_plant_set_wanted(stage->plant, stage->sample->wanted);
	return s;
}

void cpa_stage_clear(struct cpa_stage *stage)
{
	cpa_plant_destroy(stage->plant);
	stage->plant = NULL;
}

/* The sampled rows out of what one rank returned, which is staged, of dtype.
 *   rows [nrows, dim] out */
static void pick_rows(const struct cpa_suspect *s, const struct cpa_stage *stage, int rank,
	const struct cpa_shard *shard, enum cpa_dtype dtype, int64_t dim, double *rows)
{
	int64_t n = cpa_spans_ntokens(shard->tokens), Hq = stage->problem.Hq;
	for (int i = 0; i < s->nrows; i++) {
		const struct cpa_suspect_row *row = &s->rows[i];
		int64_t at = stage->index[i], b = row->b - shard->batches.start;
		if (row->rank != rank || at < 0 || b < 0 || row->b >= shard->batches.end)
			continue;
		at = (b * n + at) * Hq + stage->sample->place[row->h];
		for (int64_t d = 0; d < dim; d++)
			rows[i * dim + d] =
				cpa_load(dtype, stage->ranks.staging, at * dim + d);
	}
}

static enum cpa_status fetch_rows(
	const struct cpa_suspect *s, struct cpa_stage *stage, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	const struct cpa_problem *p = &stage->problem;
	enum cpa_status status = CPA_OK;
	for (int rank = 0; status == CPA_OK && rank < stage->ranks.W; rank++)
		for (int i = 0; status == CPA_OK && i < 2; i++) {
			struct cpa_shard shard;
			bool has = false;
			status = cpa_ranks_fetch(
				&stage->ranks, rank, tensors[i], &shard, &has, error);
			if (status == CPA_OK && has)
				pick_rows(s, stage, rank, &shard,
					i == 0 ? p->dtype : cpa_problem_lse_dtype(p),
					i == 0 ? p->Dv : 1, i == 0 ? stage->o : stage->lse);
		}
	return status;
}

bool cpa_stage_run(struct cpa_stage *stage, const struct cpa_suspect *s)
{
	struct cpa_inputs inputs = cpa_inputs_dense(&stage->tensors);
	struct cpa_error ignored;
	/* Rows that no rank has stay so. */
	for (int64_t i = 0; i < s->nrows; i++)
		stage->lse[i] = NAN;
	for (int64_t i = 0; i < s->nrows * stage->problem.Dv; i++)
		stage->o[i] = NAN;
	if (cpa_ranks_upload(&stage->ranks, &inputs, &ignored) == CPA_OK &&
		cpa_ranks_run(&stage->ranks, CPA_FAKE_EAGER, 1, &ignored) == CPA_OK &&
		cpa_plant_move_outputs(stage->plant, &stage->ranks, &ignored) == CPA_OK &&
		fetch_rows(s, stage, &ignored) == CPA_OK)
		return true;
	/* Ranks that stopped half way begin anew. */
	stage->started = cpa_ranks_restart(&stage->ranks, &stage->problem, hook_of, stage,
				 &ignored) == CPA_OK;
	return false;
}
