/*
 * record.c - what every rank held and returned, as a recording.
 */
#include "harness/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/recording.h"

enum { TENSORS = 5 };
static const enum cpa_tensor tensors[TENSORS] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V,
	CPA_TENSOR_O, CPA_TENSOR_LSE};

/* Ids and data of the parts live in arena. */
struct parts {
	struct cpa_run_part *at; /* [5 W] */
	int n;
	struct cpa_arena *arena;
};

static int64_t *ids_of(struct cpa_arena *arena, int64_t first, int64_t n)
{
	int64_t *ids = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *ids);
	for (int64_t i = 0; ids && i < n; i++)
		ids[i] = first + i;
	return ids;
}

static void describe(const struct cpa_problem *p, int rank, enum cpa_tensor tensor,
	const struct cpa_shard *shard, struct cpa_arena *arena, struct cpa_held *held)
{
	bool q = tensor == CPA_TENSOR_Q || tensor == CPA_TENSOR_O || tensor == CPA_TENSOR_LSE;
	int64_t n = cpa_spans_ntokens(shard->tokens), *tokens = ids_of(arena, 0, n);
	*held = (struct cpa_held){.rank = rank,
		.dtype = tensor == CPA_TENSOR_LSE ? cpa_problem_lse_dtype(p) : p->dtype,
		.nbatches = shard->batches.end - shard->batches.start,
		.ntokens = n,
		.nheads = q ? p->Hq : p->Hkv,
		.dim = tensor == CPA_TENSOR_LSE				      ? 1
			: tensor == CPA_TENSOR_V || tensor == CPA_TENSOR_O ? p->Dv
									   : p->D};
	snprintf(held->tensor, sizeof held->tensor, "%s", cpa_tensor_name(tensor));
	for (int64_t i = 0; tokens && i < n; i++)
		tokens[i] = cpa_spans_token(shard->tokens, i);
	held->tokens = tokens;
	held->batches = ids_of(arena, shard->batches.start, held->nbatches);
	held->heads = ids_of(arena, 0, held->nheads);
}

/* q, k or v: what the rank was given; o or lse: what it returned. */
static enum cpa_status take(const struct cpa_record *record, struct cpa_ranks *ranks, int rank,
	enum cpa_tensor tensor, struct parts *parts, struct cpa_error *error)
{
	const struct cpa_problem *p = ranks->problem;
	struct cpa_inputs inputs = cpa_inputs_dense(record->tensors);
	bool out = tensor == CPA_TENSOR_O || tensor == CPA_TENSOR_LSE, has = true;
	struct cpa_shard shard = {.row_nbytes = cpa_token_nbytes(p, tensor),
		.batches = cpa_partition_batches(
			ranks->partition, cpa_partition_coords(ranks->partition, rank).b),
		.tokens = tensor == CPA_TENSOR_Q ? &ranks->q_shards[rank]
						 : &ranks->kv_shards[rank]};
	struct cpa_run_part *part = &parts->at[parts->n];
	if (out) {
		enum cpa_status s = cpa_ranks_fetch(ranks, rank, tensor, &shard, &has, error);
		if (s != CPA_OK)
			return s;
	}
	size_t nbytes = shard.row_nbytes * (size_t)(cpa_spans_ntokens(shard.tokens) *
				(shard.batches.end - shard.batches.start));
	if (!has || nbytes == 0)
		return CPA_OK;
	void *data = cpa_arena_alloc(parts->arena, nbytes);
	describe(p, rank, tensor, &shard, parts->arena, &part->held);
	if (parts->arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a recording");
	if (out)
		memcpy(data, ranks->staging, nbytes);
	else
		inputs.read(inputs.context, tensor, shard.batches, shard.tokens, data);
	part->data = data;
	parts->n++;
	return CPA_OK;
}

static struct cpa_recorded_config config_of(const struct cpa_config *c)
{
	return (struct cpa_recorded_config){.batch_degree = c->batch_degree,
		.ring_degree = c->ring_degree,
		.ulysses_degree = c->ulysses_degree,
		.rotate = (int)c->rotate,
		.convert_to_fp32 = c->partials == CPA_PARTIALS_FP32,
		.split = (int)c->split,
		.order = c->order <= CPA_ORDER_STRIPED ? (int)c->order : -1,
		.sizes = c->split == CPA_SPLIT_GIVEN ? c->sizes : NULL,
		.system = "cpattn",
		.variant = cpa_variant_info(c->variant)->name,
		.mesh = c->mesh == CPA_MESH_BATCH_ULYSSES_RING ? "batch,ulysses,ring"
							       : "batch,ring,ulysses"};
}

enum cpa_status cpa_record_ranks(void *context, struct cpa_ranks *ranks, struct cpa_error *error)
{
	const struct cpa_record *record = context;
	struct cpa_arena arena;
	cpa_arena_init(&arena);
	struct parts parts = {.arena = &arena};
	parts.at = cpa_arena_alloc(&arena, (size_t)(TENSORS * ranks->W) * sizeof *parts.at);
	enum cpa_status s = parts.at ? CPA_OK
				     : cpa_fail(error, CPA_NO_MEMORY,
					       "out of memory for a recording");
	for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++)
		for (int i = 0; s == CPA_OK && i < TENSORS; i++)
			s = take(record, ranks, rank, tensors[i], &parts, error);
	struct cpa_recorded_config config = config_of(&ranks->partition->config);
	struct cpa_recorded_run run = {.config = &config,
		.world = ranks->W,
		.parts = parts.at,
		.nparts = parts.n,
		.guidance = record->guidance};
	const struct cpa_tensors *t = record->tensors;
	const void *const data[TENSORS] = {t->q, t->k, t->v, NULL, NULL};
	if (s == CPA_OK)
		s = cpa_recording_write_run(record->path, "run", ranks->problem, data, &run,
			"cpattn verify --record", error);
	cpa_arena_fini(&arena);
	return s;
}
