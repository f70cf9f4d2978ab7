/*
 * ranks_agree.c - ranks that know only their own lengths agree on all of them, over the
 * transport, before any of them plans.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/ranks.h"

enum {
	MOST_TOLD = 256
}; /* beyond, all-gathers of every rank in one process take more than they show */

/* What one world of ranks says before a plan. */
struct preamble {
	const struct cpa_partition *known; /* by whoever hands out the tensors */
	struct cpa_problem problem; /* as a rank knows it: split lengths are 0 */
	struct cpa_config config;
	int W, ncuts, ncuts_kv;
	int64_t *own; /* [W, NWORDS] what each rank packs */
	int64_t *all; /* [W, W, NWORDS] what each rank receives */
	int64_t *sizes, *sizes_kv; /* [ncuts, P], those of rank 0 */
	int64_t *others; /* [ncuts + ncuts_kv, P] scratch */
	struct cpa_arena *arena;
};

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the exchange of sizes");
}

/* ---- what a rank knows ---- */

static const struct cpa_segment *forget_lengths(
	struct cpa_arena *arena, const struct cpa_segment *segments, int n)
{
	struct cpa_segment *made = segments ? cpa_arena_alloc(arena, (size_t)n * sizeof *made)
					    : NULL;
	for (int i = 0; made && i < n; i++) {
		made[i] = segments[i];
		if (!made[i].replicated)
			made[i].length = 0;
	}
	return made;
}

static void forget(struct preamble *it)
{
	const struct cpa_problem *p = &it->known->problem;
	it->problem = *p;
	it->problem.segments = forget_lengths(it->arena, p->segments, p->nsegments);
	it->problem.segments_kv = forget_lengths(it->arena, p->segments_kv, p->nsegments_kv);
	it->problem.Sq = 0;
	it->problem.Skv = p->Sq != p->Skv;
	it->config = it->known->config;
	it->config.sizes = it->config.sizes_kv = NULL;
	it->config.nsizes = it->config.nsizes_kv = 0;
}

static enum cpa_status prepare(struct preamble *it, struct cpa_error *error)
{
	size_t record = CPA_SIZES_NWORDS * sizeof(int64_t), W = (size_t)it->W;
	size_t P = (size_t)it->known->P, n = (size_t)it->ncuts, m = (size_t)it->ncuts_kv;
	size_t told = W <= MOST_TOLD ? W : 1;
	forget(it);
	it->own = calloc(W, record);
	it->all = calloc(told, W * record);
	/* One more: none is no allocation. */
	it->sizes = cpa_arena_alloc(it->arena, (n * P + 1) * sizeof(int64_t));
	it->sizes_kv = cpa_arena_alloc(it->arena, (m * P + 1) * sizeof(int64_t));
	it->others = cpa_arena_alloc(it->arena, ((n + m) * P + 1) * sizeof(int64_t));
	if (!it->own || !it->all || it->arena->failed)
		return out_of_memory(error);
	for (int rank = 0; rank < it->W; rank++) {
		int64_t lengths[2][CPA_SIZES_MAX_SEGMENTS];
		struct cpa_coords at = cpa_partition_coords(it->known, rank);
		cpa_partition_sizes(it->known, false, at.r, at.u, lengths[0]);
		cpa_partition_sizes(it->known, true, at.r, at.u, lengths[1]);
		cpa_sizes_pack(&it->problem, &it->config, lengths[0], lengths[1],
			it->own + (int64_t)rank * CPA_SIZES_NWORDS);
	}
	return CPA_OK;
}

/* ---- the exchange ---- */

static struct cpa_piece piece_of(int64_t *record)
{
	return (struct cpa_piece){record, CPA_SIZES_NWORDS * sizeof *record, CPA_DTYPE_FP64};
}

static enum cpa_status post(struct preamble *it, struct cpa_fake_world *world, int rank,
	struct cpa_request **request, struct cpa_error *error)
{
	struct cpa_comm *comm = cpa_fake_world_comm(world, rank);
	struct cpa_piece own = piece_of(it->own + (int64_t)rank * CPA_SIZES_NWORDS);
	struct cpa_piece all[MOST_TOLD];
	int64_t *target = it->all + (int64_t)rank * it->W * CPA_SIZES_NWORDS;
	for (int i = 0; i < it->W; i++)
		all[i] = piece_of(target + (int64_t)i * CPA_SIZES_NWORDS);
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->all_gather(comm, 0, &own, all, 1);
	return comm->ops->group_end(comm, request, error);
}

/* Every rank's request ends when all have posted: none of them may skip it. */
static enum cpa_status gather(struct preamble *it, struct cpa_error *error)
{
	struct cpa_fake_world *world = NULL;
	struct cpa_exec **none = calloc((size_t)it->W, sizeof *none);
	struct cpa_request *requests[MOST_TOLD];
	enum cpa_status s = none
		? cpa_fake_world_create(it->W, CPA_FAKE_RENDEZVOUS, 1, &world, error)
		: out_of_memory(error);
	for (int rank = 0; s == CPA_OK && rank < it->W; rank++)
		s = post(it, world, rank, &requests[rank], error);
	if (s == CPA_OK)
		s = cpa_fake_run(world, none, error);
	for (int rank = 0; s == CPA_OK && rank < it->W; rank++) {
		struct cpa_comm *comm = cpa_fake_world_comm(world, rank);
		if (comm->ops->test(comm, requests[rank], error) == CPA_PENDING)
			s = cpa_fail(error, CPA_MISMATCH,
				"the exchange of sizes did not end on rank %d", rank);
		comm->ops->request_free(comm, requests[rank]);
	}
	cpa_fake_world_destroy(world);
	free(none);
	return s;
}

/* ---- the verdict ---- */

/* Each rank judges the bytes that it received; all must come to one verdict. */
static enum cpa_status judge(struct preamble *it, struct cpa_error *error)
{
	int64_t nwords = (int64_t)it->W * CPA_SIZES_NWORDS, P = it->known->P;
	int64_t *others_kv = it->others + it->ncuts * P;
	size_t nbytes = (size_t)(it->ncuts * P) * sizeof(int64_t);
	size_t nbytes_kv = (size_t)(it->ncuts_kv * P) * sizeof(int64_t);
	enum cpa_status first = cpa_sizes_agree(it->W, it->all, it->sizes, it->sizes_kv, error);
	for (int rank = 1; rank < it->W && it->W <= MOST_TOLD; rank++) {
		struct cpa_error theirs = {""};
		enum cpa_status s = cpa_sizes_agree(
			it->W, it->all + rank * nwords, it->others, others_kv, &theirs);
		bool same = s == first && (s == CPA_OK || !strcmp(theirs.text, error->text));
		if (same && s == CPA_OK)
			same = !memcmp(it->others, it->sizes, nbytes) &&
				!memcmp(others_kv, it->sizes_kv, nbytes_kv);
		if (!same)
			return cpa_fail(error, CPA_MISMATCH,
				"rank %d understands the exchange of sizes in another way than "
				"rank 0",
				rank);
	}
	return first;
}

static enum cpa_status plan_from_sizes(
	struct preamble *it, struct cpa_partition **partition, struct cpa_error *error)
{
	struct cpa_partition *made = NULL;
	enum cpa_status s = cpa_sizes_apply(
		it->sizes, it->sizes_kv, it->arena, &it->problem, &it->config, error);
	if (s == CPA_OK)
		s = cpa_partition_create(&it->problem, &it->config, &made, error);
	if (s == CPA_OK)
		s = cpa_partition_check_sizes(made, it->sizes, it->sizes_kv, error);
	if (s == CPA_OK)
		*partition = made;
	else
		cpa_partition_destroy(made);
	return s;
}

enum cpa_status cpa_ranks_agree(const struct cpa_partition *known, struct cpa_arena *arena,
	struct cpa_partition **partition, struct cpa_error *error)
{
	struct preamble it = {.known = known,
		.W = known->W,
		.ncuts = cpa_problem_nsplit(&known->problem, false),
		.ncuts_kv = cpa_problem_nsplit(&known->problem, true),
		.arena = arena};
	/* More than a record holds: every rank is given all sizes. */
	if (it.ncuts > CPA_SIZES_MAX_SEGMENTS || it.ncuts_kv > CPA_SIZES_MAX_SEGMENTS)
		return cpa_partition_create(&known->problem, &known->config, partition, error);
	enum cpa_status s = prepare(&it, error);
	if (s == CPA_OK && it.W <= MOST_TOLD)
		s = gather(&it, error);
	else if (s == CPA_OK)
		memcpy(it.all, it.own, (size_t)it.W * CPA_SIZES_NWORDS * sizeof *it.own);
	if (s == CPA_OK)
		s = judge(&it, error);
	if (s == CPA_OK)
		s = plan_from_sizes(&it, partition, error);
	free(it.own);
	free(it.all);
	return s;
}
