/*
 * layout.c - which problems and partitions the caller's layout can hold.
 *
 * BSHD and BHSD hold everything.  A fused array has one width of heads and one list of tokens.
 */
#include "dist/layout.h"

enum cpa_status cpa_layout_check_problem(const struct cpa_problem *p, struct cpa_error *error)
{
	bool lengths = p->Sq != p->Skv;
	if (p->layout != CPA_LAYOUT_FUSED || (!lengths && p->D == p->Dv))
		return CPA_OK;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"layout fused is one array [B, S, Hq + 2 Hkv, D], which needs Sq = Skv and D = "
		"Dv; "
		"here %s are %lld and %lld; layout BSHD or BHSD would work",
		lengths ? "Sq and Skv" : "D and Dv", (long long)(lengths ? p->Sq : p->D),
		(long long)(lengths ? p->Skv : p->Dv));
}

/* One array of q, k and v has one row of heads for each token, so q and k are the same tokens. */
static enum cpa_status check_rank(const struct cpa_partition *part, int rank,
	struct cpa_arena *arena, struct cpa_error *error)
{
	int r = rank / part->config.ulysses_degree, u = rank % part->config.ulysses_degree;
	struct cpa_spans q = cpa_partition_q_shard(part, arena, r, u);
	struct cpa_spans kv = cpa_partition_kv_shard(part, arena, r, u);
	char queries[96], keys[96];
	if (arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	if (cpa_spans_equal(&q, &kv))
		return CPA_OK;
	cpa_spans_print(&q, queries, sizeof queries);
	cpa_spans_print(&kv, keys, sizeof keys);
	return cpa_fail(error, CPA_UNSUPPORTED,
		"layout fused needs the same tokens of q, k and v on each rank; rank %d of a "
		"group "
		"would hold queries %s and keys %s; one split of both would work, or layout BSHD "
		"or "
		"BHSD",
		rank, queries, keys);
}

enum cpa_status cpa_layout_check_shards(const struct cpa_partition *part, struct cpa_error *error)
{
	struct cpa_arena scratch;
	enum cpa_status s = CPA_OK;
	if (part->problem.layout != CPA_LAYOUT_FUSED)
		return CPA_OK;
	cpa_arena_init(&scratch);
	for (int rank = 0; s == CPA_OK && rank < part->P; rank++)
		s = check_rank(part, rank, &scratch, error);
	cpa_arena_fini(&scratch);
	return s;
}
