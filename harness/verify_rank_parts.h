/*
 * verify_rank_parts.h - what the parts of verify_rank share: one configuration (verify_rank.c),
 * its plans (verify_rank_plan.c), and the rows that are kept from one to the next
 * (verify_rank_rows.c). Private to them.
 */
#ifndef CPA_VERIFY_RANK_PARTS_H
#define CPA_VERIFY_RANK_PARTS_H

#include "harness/probe.h"
#include "harness/ranks.h"
#include "harness/verify_rank.h"

struct cpa_rank_verifier {
	struct cpa_rank_settings settings;
	struct cpa_probe_problem probe;
	/* Of the rows that the last configuration had; truth NULL: none. */
	struct cpa_rows held;
	struct cpa_spans tokens;
	bool skips;
	enum cpa_partials partials;
	enum cpa_dtype partial_dtype;
	struct cpa_truth *truth;
	struct cpa_head_error *one_rank; /* [B, Hq], of all ranks together */
	void *o, *lse; /* outputs of a run; lse NULL: no output */
	struct cpa_arena arena; /* owns tokens */
};

/* One configuration on its way. */
struct cpa_rank_run {
	struct cpa_rank_verifier *v;
	const struct cpa_config *config;
	struct cpa_result *result;
	int rank;
	struct cpa_ranks ranks; /* of rank 0 with all plans, of others the partition only */
	struct cpa_schedule *own_plan; /* owned; NULL on rank 0 */
	const struct cpa_schedule *plan;
	struct cpa_counts counts;
	struct cpa_range batches;
	struct cpa_spans q_shard, kv_shard;
	struct cpa_rows held;
	bool skips; /* rows that all ranks have are judged by another one */
	struct cpa_exec *exec; /* NULL: no work */
	bool ran;
	uint64_t hash; /* of the outputs of the first run */
};

/* Whose sums are combined, and how many heads they have. */
struct cpa_rank_combining {
	struct cpa_world *world;
	int64_t nheads; /* B Hq */
};

/* All go on or none does. */
enum cpa_status cpa_rank_agree(
	struct cpa_rank_run *run, enum cpa_status s, struct cpa_error *error);
/* Plans, proves, gathers counts and sizes; fills what a run needs to know of its rank.  Agreed.
 */
enum cpa_status cpa_rank_plan(struct cpa_rank_run *run, struct cpa_error *error);
/* Truth and one-rank errors for run->held, unless the last configuration had the same rows.
 * Agreed. */
enum cpa_status cpa_rank_know_rows(struct cpa_rank_run *run, struct cpa_error *error);
void cpa_rank_forget_rows(struct cpa_rank_verifier *v);
/* cpa_judge_run.combine; context is a cpa_rank_combining. */
enum cpa_status cpa_rank_combine(void *context, struct cpa_judge_sums *sums,
	struct cpa_judge_tally *heads, struct cpa_error *error);

#endif
