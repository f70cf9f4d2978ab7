/*
 * sizes_apply.c - from what ranks told each other to a problem, and back to what each holds.
 */
#include "dist/schedule.h"

#include <inttypes.h>
#include <string.h>

enum cpa_status cpa_config_check_sizes(const struct cpa_problem *problem,
	const struct cpa_config *config, bool keys, struct cpa_error *error)
{
	int64_t P = (int64_t)config->ring_degree * config->ulysses_degree;
	int64_t n = keys ? config->nsizes_kv : config->nsizes;
	int64_t expected = cpa_problem_nsplit(problem, keys) * P;
	char what[160];

	if (config->order == CPA_ORDER_ZIGZAG_DOCUMENTS)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"given sizes are of segments, and "
			"zigzag_documents cuts each document; --split balanced would work, or "
			"--order "
			"zigzag");
	if (n == expected)
		return CPA_OK;
	cpa_problem_print_split(problem, keys, what, sizeof what);
	return cpa_fail(error, CPA_INVALID,
		"%s gives %" PRId64 " sizes; expected %" PRId64 ": R U = %" PRId64
		" for each of %s, in the order of the sequence",
		keys ? "--split-kv" : "--split", n, expected, P, what);
}

/* ---- lengths from sizes ----------------------------------------------------------------------
 */

static int64_t sum_of(const int64_t *sizes, int P)
{
	int64_t sum = 0;

	for (int i = 0; i < P; i++)
		sum += sizes[i];
	return sum;
}

/* Lengths of the split segments of one side; *total: of all of them.  *made: where the problem
 * lists segments, the same with lengths. */
static enum cpa_status set_lengths(const struct cpa_problem *problem, bool keys,
	const int64_t *sizes, int P, struct cpa_arena *arena, struct cpa_segment **made,
	int64_t *total, struct cpa_error *error)
{
	struct cpa_segment whole;
	int n, ncuts = 0;
	const struct cpa_segment *at = cpa_problem_segments(problem, keys, &whole, &n);
	struct cpa_segment *copy = cpa_arena_alloc(arena, (size_t)n * sizeof *copy);

	if (!copy)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the segments");
	memcpy(copy, at, (size_t)n * sizeof *copy);
	*total = 0;
	for (int i = 0; i < n; i++) {
		if (!copy[i].replicated)
			copy[i].length = sum_of(sizes + (int64_t)ncuts++ * P, P);
		*total += copy[i].length;
	}
	*made = at == &whole ? NULL : copy;
	return CPA_OK;
}

/* Keys that are the queries' tokens: as many of each segment, however they are cut. */
static enum cpa_status check_self(const struct cpa_problem *problem, const int64_t *sizes,
	const int64_t *sizes_kv, int P, struct cpa_error *error)
{
	int ncuts = cpa_problem_nsplit(problem, false);

	for (int64_t i = 0; i < ncuts; i++) {
		int64_t queries = sum_of(sizes + i * P, P), keys = sum_of(sizes_kv + i * P, P);

		if (queries != keys)
			return cpa_fail(error, CPA_MISMATCH,
				"the ranks hold %" PRId64 " query and %" PRId64
				" key tokens of split segment %" PRId64
				" of %d; all say that there are as many "
				"keys as queries",
				queries, keys, i + 1, ncuts);
	}
	return CPA_OK;
}

enum cpa_status cpa_sizes_apply(const int64_t *sizes, const int64_t *sizes_kv,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_config *config,
	struct cpa_error *error)
{
	int P = config->ring_degree * config->ulysses_degree;
	bool self = problem->Sq == problem->Skv;
	struct cpa_segment *queries, *keys = NULL;
	int64_t Sq, Skv;
	enum cpa_status status = set_lengths(
		problem, false, sizes, P, arena, &queries, &Sq, error);

	Skv = Sq;
	if (status == CPA_OK && self)
		status = check_self(problem, sizes, sizes_kv, P, error);
	if (status == CPA_OK && !self)
		status = set_lengths(problem, true, sizes_kv, P, arena, &keys, &Skv, error);
	if (status == CPA_OK && !self && Sq == Skv)
		status = cpa_fail(error, CPA_MISMATCH,
			"the ranks hold %" PRId64 " query tokens and as many "
			"key tokens; all say that the numbers differ",
			Sq);
	if (status != CPA_OK)
		return status;
	config->nsizes = config->split == CPA_SPLIT_GIVEN ? cpa_problem_nsplit(problem, false) * P
							  : 0;
	config->nsizes_kv =
		config->split_kv == CPA_SPLIT_GIVEN ? cpa_problem_nsplit(problem, true) * P : 0;
	config->sizes = config->split == CPA_SPLIT_GIVEN ? sizes : NULL;
	config->sizes_kv = config->split_kv == CPA_SPLIT_GIVEN ? sizes_kv : NULL;
	problem->segments = queries;
	problem->segments_kv = keys;
	problem->Sq = Sq;
	problem->Skv = Skv;
	return CPA_OK;
}

/* ---- sizes from a partition ------------------------------------------------------------------
 */

/* A segment may be cut in pieces, its documents. */
void cpa_partition_sizes(
	const struct cpa_partition *part, bool keys, int r, int u, int64_t *sizes)
{
	const struct cpa_side *side = keys ? &part->kv : &part->q;
	int shard = r * part->config.ulysses_degree + u, n, cut = 0;
	struct cpa_segment whole;
	const struct cpa_segment *at = cpa_problem_segments(&part->problem, keys, &whole, &n);
	int64_t end = 0;

	for (int i = 0; i < n; i++) {
		end += at[i].length;
		if (at[i].replicated)
			continue;
		*sizes = 0;
		/* Cuts without tokens add nothing, wherever they are counted. */
		for (; cut < side->ncuts && side->starts[cut] < end; cut++)
			*sizes += cpa_cut_size(&side->cuts[cut], shard);
		sizes++;
	}
}

static enum cpa_status check_side(const struct cpa_partition *part, bool keys,
	const int64_t *sizes, int64_t *own, struct cpa_error *error)
{
	int U = part->config.ulysses_degree, ncuts = cpa_problem_nsplit(&part->problem, keys);

	for (int shard = 0; shard < part->P; shard++) {
		struct cpa_coords at = {0, shard / U, shard % U};

		cpa_partition_sizes(part, keys, at.r, at.u, own);
		for (int64_t i = 0; i < ncuts; i++)
			if (own[i] != sizes[i * part->P + shard])
				return cpa_fail(error, CPA_MISMATCH,
					"rank %d holds %" PRId64 " %s tokens of split "
					"segment %" PRId64 " of %d, and %s %s gives it %" PRId64
					"; hold that, or tell "
					"the sizes with given",
					cpa_partition_rank(part, at), sizes[i * part->P + shard],
					keys ? "key" : "query", i + 1, ncuts,
					keys ? "--split-kv" : "--split",
					cpa_split_name(keys ? part->config.split_kv
							    : part->config.split),
					own[i]);
	}
	return CPA_OK;
}

enum cpa_status cpa_partition_check_sizes(const struct cpa_partition *part, const int64_t *sizes,
	const int64_t *sizes_kv, struct cpa_error *error)
{
	struct cpa_arena arena;
	size_t n = (size_t)cpa_problem_nsplit(&part->problem, false) +
		(size_t)cpa_problem_nsplit(&part->problem, true);
	enum cpa_status status;
	int64_t *own;

	cpa_arena_init(&arena);
	own = cpa_arena_alloc(&arena, (n + 1) * sizeof *own);
	status = own ? check_side(part, false, sizes, own, error)
		     : cpa_fail(error, CPA_NO_MEMORY, "out of memory for the sizes");
	if (status == CPA_OK)
		status = check_side(part, true, sizes_kv, own, error);
	cpa_arena_fini(&arena);
	return status;
}
