/*
 * ranks.c - plan, prove, run, and check what can be checked without knowing the right answer.
 */
#include "harness/ranks.h"

#include "harness/place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- plan and proof ---- */

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the ranks of a configuration");
}

static enum cpa_status alloc_ranks(struct cpa_ranks *ranks, struct cpa_error *error)
{
	size_t W = (size_t)ranks->W;
	struct cpa_arena *arena = &ranks->arena;
	ranks->schedules = cpa_arena_alloc(arena, W * sizeof *ranks->schedules);
	ranks->counts = cpa_arena_alloc(arena, W * sizeof *ranks->counts);
	ranks->q_shards = cpa_arena_alloc(arena, W * sizeof *ranks->q_shards);
	ranks->kv_shards = cpa_arena_alloc(arena, W * sizeof *ranks->kv_shards);
	ranks->execs = cpa_arena_alloc(arena, W * sizeof *ranks->execs);
	return arena->failed ? out_of_memory(error) : CPA_OK;
}

static enum cpa_status plan_rank(
	struct cpa_ranks *ranks, struct cpa_check *check, int rank, struct cpa_error *error)
{
	const struct cpa_partition *part = ranks->partition;
	struct cpa_coords at = cpa_partition_coords(part, rank);
	ranks->q_shards[rank] = cpa_partition_q_shard(part, &ranks->arena, at.r, at.u);
	ranks->kv_shards[rank] = cpa_partition_kv_shard(part, &ranks->arena, at.r, at.u);
	if (ranks->arena.failed)
		return out_of_memory(error);
	enum cpa_status s = cpa_plan_create(part, rank, &ranks->schedules[rank], error);
	if (s != CPA_OK)
		return s;
	cpa_schedule_count(ranks->schedules[rank], ranks->problem, &ranks->counts[rank]);
	return cpa_check_rank(check, ranks->schedules[rank], error);
}

enum cpa_status cpa_ranks_plan(struct cpa_ranks *ranks, const struct cpa_problem *problem,
	const struct cpa_config *config, struct cpa_error *error)
{
	*ranks = (struct cpa_ranks){.problem = problem};
	cpa_arena_init(&ranks->arena);
	struct cpa_partition *known;
	enum cpa_status s = cpa_partition_create(problem, config, &known, error);
	if (s != CPA_OK)
		return s;
	s = cpa_ranks_agree(known, &ranks->arena, &ranks->partition, error);
	cpa_partition_destroy(known);
	if (s != CPA_OK)
		return s;
	ranks->W = ranks->partition->W;
	s = alloc_ranks(ranks, error);
	struct cpa_check *check = NULL;
	if (s == CPA_OK)
		s = cpa_check_create(ranks->partition, &check, error);
	for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++)
		s = plan_rank(ranks, check, rank, error);
	if (s == CPA_OK)
		s = cpa_check_finish(check, error);
	if (s == CPA_MISMATCH && cpa_check_fault(check))
		cpa_fail(error, s, "not proved: %s", cpa_check_fault(check)->text);
	if (check)
		cpa_check_destroy(check);
	return s;
}

static void stop(struct cpa_ranks *ranks)
{
	for (int rank = 0; ranks->execs && rank < ranks->W; rank++) {
		cpa_exec_destroy(ranks->execs[rank]);
		ranks->execs[rank] = NULL;
	}
	cpa_fake_world_destroy(ranks->world);
	ranks->world = NULL;
	free(ranks->staging);
	ranks->staging = NULL;
	ranks->ran = false;
}

void cpa_ranks_fini(struct cpa_ranks *ranks)
{
	stop(ranks);
	for (int rank = 0; ranks->schedules && rank < ranks->W; rank++)
		cpa_schedule_destroy(ranks->schedules[rank]);
	if (ranks->partition)
		cpa_partition_destroy(ranks->partition);
	cpa_arena_fini(&ranks->arena);
}

/* ---- executors ---- */

static enum cpa_status check_memory(
	const struct cpa_ranks *ranks, size_t nbytes, const char *when, struct cpa_error *error)
{
	int64_t planned = 0;
	for (int rank = 0; rank < ranks->W; rank++)
		planned += ranks->counts[rank].peak_bytes;
	if ((int64_t)(nbytes - ranks->nbytes_before) == planned)
		return CPA_OK;
	return cpa_fail(error, CPA_MISMATCH,
		"the device holds %" PRId64 " bytes %s; the plans say %" PRId64,
		(int64_t)(nbytes - ranks->nbytes_before), when, planned);
}

static enum cpa_status alloc_staging(struct cpa_ranks *ranks, struct cpa_error *error)
{
	int64_t largest = 1;
	for (int rank = 0; rank < ranks->W; rank++)
		for (int i = 0; i < ranks->schedules[rank]->nbuffers; i++) {
			const struct cpa_buffer *buffer = &ranks->schedules[rank]->buffers[i];
			int64_t nbytes = cpa_buffer_nbytes(buffer);
			if (buffer->role != CPA_ROLE_WORK && nbytes > largest)
				largest = nbytes;
		}
	ranks->staging = malloc((size_t)largest);
	return ranks->staging ? CPA_OK : out_of_memory(error);
}

enum cpa_status cpa_ranks_start(struct cpa_ranks *ranks, struct cpa_device *device,
	cpa_ranks_hook *hook, void *context, struct cpa_error *error)
{
	ranks->device = device;
	ranks->nbytes_before = device->nbytes;
	device->peak = device->nbytes;
	enum cpa_status s =
		cpa_fake_world_create(ranks->W, CPA_FAKE_EAGER, 0, &ranks->world, error);
	if (s == CPA_OK)
		s = alloc_staging(ranks, error);
	for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++) {
		if (ranks->schedules[rank]->nbuffers == 0)
			continue; /* a batch group without items */
		struct cpa_exec_options options = {.poison = true};
		if (hook)
			options.hook = hook(context, rank);
		s = cpa_exec_create(ranks->schedules[rank], ranks->problem, device,
			cpa_fake_world_comm(ranks->world, rank), &options, &ranks->execs[rank],
			error);
	}
	return s == CPA_OK ? check_memory(ranks, device->nbytes, "before the run", error) : s;
}

enum cpa_status cpa_ranks_restart(struct cpa_ranks *ranks, const struct cpa_problem *problem,
	cpa_ranks_hook *hook, void *context, struct cpa_error *error)
{
	stop(ranks);
	ranks->problem = problem;
	return cpa_ranks_start(ranks, ranks->device, hook, context, error);
}

/* The box of a tensor on a rank as a shard of the whole array; false: the rank has none. */
static bool find_shard(const struct cpa_ranks *ranks, int rank, enum cpa_role role,
	enum cpa_tensor tensor, struct cpa_box *box, struct cpa_shard *shard)
{
	bool key = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	*shard = (struct cpa_shard){
		.row_nbytes = cpa_token_nbytes(ranks->problem, tensor),
		.S = cpa_tensor_ntokens(ranks->problem, tensor),
		.batches = cpa_partition_batches(
			ranks->partition, cpa_partition_coords(ranks->partition, rank).b),
		.tokens = key ? &ranks->kv_shards[rank] : &ranks->q_shards[rank],
	};
	return ranks->execs[rank] &&
	       cpa_schedule_find(ranks->schedules[rank], role, tensor, box);
}

static size_t shard_nbytes(const struct cpa_shard *shard)
{
	return shard->row_nbytes * (size_t)(cpa_spans_ntokens(shard->tokens) *
					    (shard->batches.end - shard->batches.start));
}

/* A plan that gives a rank another shard than the partition would be the proof's fault. */
static enum cpa_status check_shard(const struct cpa_ranks *ranks, int rank,
	const struct cpa_box *box, const struct cpa_shard *shard, struct cpa_error *error)
{
	const struct cpa_buffer *b = &ranks->schedules[rank]->buffers[box->buffer];
	int64_t nbytes = cpa_box_nelements(b, box) * (int64_t)cpa_dtype_nbytes(b->dtype);
	if ((size_t)nbytes == shard_nbytes(shard))
		return CPA_OK;
	return cpa_fail(error, CPA_MISMATCH,
		"buffer \"%s\" of rank %d has %" PRId64 " bytes; its shard has %zu", b->name,
		rank, nbytes, shard_nbytes(shard));
}

enum cpa_status cpa_ranks_upload(
	struct cpa_ranks *ranks, const struct cpa_inputs *inputs, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	enum cpa_status s = CPA_OK;
	for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++)
		for (int i = 0; s == CPA_OK && i < 3; i++) {
			struct cpa_box box;
			struct cpa_shard shard;
			if (!find_shard(ranks, rank, CPA_ROLE_INPUT, tensors[i], &box, &shard))
				continue;
			s = check_shard(ranks, rank, &box, &shard, error);
			if (s != CPA_OK)
				break;
			inputs->read(inputs->context, tensors[i], shard.batches, shard.tokens,
				ranks->staging);
			s = cpa_place_put(ranks->device, ranks->execs[rank], &box,
				ranks->staging, error);
		}
	return s;
}

/* ---- running ---- */

static enum cpa_status check_transport(const struct cpa_ranks *ranks, struct cpa_error *error)
{
	for (int rank = 0; rank < ranks->W; rank++) {
		const struct cpa_comm *comm = cpa_fake_world_comm(ranks->world, rank);
		const struct cpa_counts *plan = &ranks->counts[rank];
		if (comm->bytes_sent != plan->bytes_sent || comm->messages != plan->messages)
			return cpa_fail(error, CPA_MISMATCH,
				"rank %d sent %" PRId64 " bytes in %" PRId64
				" messages; its plan says %" PRId64 " bytes in %" PRId64,
				rank, comm->bytes_sent, comm->messages, plan->bytes_sent,
				plan->messages);
	}
	return CPA_OK;
}

enum cpa_status cpa_ranks_run(struct cpa_ranks *ranks, enum cpa_fake_mode mode, uint64_t seed,
	struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	for (int rank = 0; ranks->ran && s == CPA_OK && rank < ranks->W; rank++)
		if (ranks->execs[rank])
			s = cpa_exec_reset(ranks->execs[rank], error);
	if (s != CPA_OK)
		return s;
	cpa_fake_world_reset(ranks->world, mode, seed);
	ranks->ran = true;
	s = cpa_fake_run(ranks->world, ranks->execs, error);
	if (s == CPA_OK)
		s = check_transport(ranks, error);
	if (s == CPA_OK)
		s = check_memory(ranks, ranks->device->peak, "at its peak", error);
	return s;
}

/* ---- outputs ---- */

enum cpa_status cpa_ranks_fetch(struct cpa_ranks *ranks, int rank, enum cpa_tensor tensor,
	struct cpa_shard *shard, bool *has, struct cpa_error *error)
{
	struct cpa_box box;
	*has = find_shard(ranks, rank, CPA_ROLE_OUTPUT, tensor, &box, shard);
	if (!*has)
		return CPA_OK;
	enum cpa_status s = check_shard(ranks, rank, &box, shard, error);
	if (s != CPA_OK)
		return s;
	return cpa_place_get(
		ranks->device, ranks->execs[rank], &box, ranks->staging, error);
}

static enum cpa_status compare(struct cpa_ranks *ranks, const void *o, const void *lse,
	const char *than, struct cpa_error *error)
{
	const void *const whole[2] = {o, lse};
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	for (int i = 0; i < 2 && whole[i]; i++)
		for (int rank = 0; rank < ranks->W; rank++) {
			struct cpa_shard shard;
			bool has;
			int64_t batch, token;
			enum cpa_status s = cpa_ranks_fetch(ranks, rank, tensors[i], &shard, &has, error);
			if (s != CPA_OK)
				return s;
			if (has && !cpa_shard_equal(
					   &shard, ranks->staging, whole[i], &batch, &token))
				return cpa_fail(error, CPA_MISMATCH,
					"%s of batch %" PRId64 ", token %" PRId64
					" (on rank %d) has other bits %s",
					cpa_tensor_name(tensors[i]), batch, token, rank, than);
		}
	return CPA_OK;
}

enum cpa_status cpa_ranks_download(
	struct cpa_ranks *ranks, void *o, void *lse, struct cpa_error *error)
{
	const struct cpa_problem *p = ranks->problem;
	void *const whole[2] = {o, lse};
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	enum cpa_status s = CPA_OK;
	for (int i = 0; i < 2 && whole[i] && s == CPA_OK; i++) {
		/* What nobody owns stays NaN. */
		memset(whole[i], 0xff,
			(size_t)(p->B * p->Sq) * cpa_token_nbytes(p, tensors[i]));
		for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++) {
			struct cpa_shard shard;
			bool has;
			s = cpa_ranks_fetch(ranks, rank, tensors[i], &shard, &has, error);
			if (s == CPA_OK && has)
				cpa_shard_scatter(&shard, ranks->staging, whole[i]);
		}
	}
	/* Rows of replicated segments are on every rank of a batch group, and must be the same bits. */
	if (s == CPA_OK && ranks->partition->q.replicated.n > 0)
		s = compare(ranks, o, lse, "than another rank has", error);
	return s;
}

enum cpa_status cpa_ranks_hash(
	struct cpa_ranks *ranks, uint64_t *hashes, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	int n = ranks->problem->lse ? 2 : 1;
	for (int rank = 0; rank < ranks->W; rank++) {
		hashes[rank] = 0;
		for (int i = 0; i < n; i++) {
			struct cpa_shard shard;
			bool has;
			enum cpa_status s = cpa_ranks_fetch(ranks, rank, tensors[i], &shard, &has, error);
			if (s != CPA_OK)
				return s;
			hashes[rank] = cpa_hash(
				hashes[rank], ranks->staging, has ? shard_nbytes(&shard) : 0);
		}
	}
	return CPA_OK;
}

enum cpa_status cpa_ranks_compare(
	struct cpa_ranks *ranks, const void *o, const void *lse, struct cpa_error *error)
{
	return compare(ranks, o, lse, "than in the first interleaving", error);
}

static bool works_on(const struct cpa_partition *part, int r, int64_t token)
{
	struct cpa_range row = {token, token + 1};
	return cpa_spans_ncommon_range(&part->q_block[r], row) == 1 ||
	       cpa_spans_ncommon_range(&part->q_slice[r], row) == 1;
}

int cpa_ranks_worker(const struct cpa_ranks *ranks, int64_t batch, int64_t token, int64_t head)
{
	const struct cpa_partition *part = ranks->partition;
	struct cpa_coords at = {0, 0, 0};
	while (at.b + 1 < part->config.batch_degree &&
		cpa_partition_batches(part, at.b).end <= batch)
		at.b++;
	while (at.r + 1 < part->config.ring_degree && !works_on(part, at.r, token))
		at.r++;
	while (at.u + 1 < part->config.ulysses_degree &&
		cpa_partition_heads(part, at.u).end <= head)
		at.u++;
	return cpa_partition_rank(part, at);
}
