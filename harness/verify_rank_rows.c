/*
 * verify_rank_rows.c - the right answers of this rank's rows, kept while configurations give it
 * the same rows; and verdicts on all rows from what each rank saw of its own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/verify.h"
#include "harness/verify_rank_parts.h"

/* ---- adding up ---- */

/* The first of the worst. */
static void take_worse(struct cpa_deviation *worst, const struct cpa_deviation *other)
{
	if (other->ratio > worst->ratio)
		*worst = *other;
}

static double larger(double a, double b)
{
	return !(b <= a) ? b : a; /* NaN wins */
}

static void add_head(struct cpa_judge_tally *sum, const struct cpa_judge_tally *more)
{
	sum->n += more->n;
	sum->o_square += more->o_square;
	sum->o_floor_square += more->o_floor_square;
	sum->lse_max = larger(sum->lse_max, more->lse_max);
	sum->lse_soft = larger(sum->lse_soft, more->lse_soft);
}

static void add_sums(struct cpa_judge_sums *sum, const struct cpa_judge_sums *more)
{
	take_worse(&sum->o, &more->o);
	take_worse(&sum->lse, &more->lse);
	sum->o_written &= more->o_written;
	sum->lse_written &= more->lse_written;
	sum->want_square += more->want_square;
	sum->lse_square += more->lse_square;
	sum->lse_want_square += more->lse_want_square;
}

/* Begins what a rank tells; its heads follow. */
struct told {
	int64_t nheads;
	struct cpa_judge_sums sums;
};

static void add_all(const char *all, int W, size_t each, struct cpa_judge_sums *sums,
	struct cpa_judge_tally *heads)
{
	const struct told *first = (const struct told *)(const void *)all;
	int64_t nheads = first->nheads;

	*sums = first->sums;
	memcpy(heads, first + 1, (size_t)nheads * sizeof *heads);
	for (int rank = 1; rank < W; rank++) {
		const struct told *told =
			(const struct told *)(const void *)(all + (size_t)rank * each);
		const struct cpa_judge_tally *more = (const struct cpa_judge_tally *)(told + 1);

		add_sums(sums, &told->sums);
		for (int64_t i = 0; i < nheads; i++)
			add_head(&heads[i], &more[i]);
	}
}

enum cpa_status cpa_rank_combine(void *context, struct cpa_judge_sums *sums,
	struct cpa_judge_tally *heads, struct cpa_error *error)
{
	const struct cpa_rank_combining *c = context;
	int W = cpa_world_size(c->world);
	size_t each = sizeof(struct told) + (size_t)c->nheads * sizeof *heads;
	struct told *own = malloc(each);
	char *all = malloc((size_t)W * each);
	enum cpa_status s = sums ? CPA_OK : CPA_NO_MEMORY;

	if (s == CPA_OK && (!own || !all))
		s = cpa_fail(error, CPA_NO_MEMORY, "out of memory for judging");
	s = cpa_world_agree(c->world, s, error);
	if (s == CPA_OK) {
		own->nheads = c->nheads;
		own->sums = *sums;
		memcpy(own + 1, heads, (size_t)c->nheads * sizeof *heads);
		s = cpa_world_gather(c->world, own, each, all, error);
	}
	if (s == CPA_OK)
		add_all(all, W, each, sums, heads);
	free(own);
	free(all);
	return s;
}

/* ---- what is kept ---- */

void cpa_rank_forget_rows(struct cpa_rank_verifier *v)
{
	cpa_truth_destroy(v->truth);
	v->truth = NULL;
	free(v->o);
	free(v->lse);
	v->o = v->lse = NULL;
	cpa_arena_fini(&v->arena);
}

static bool has_rows(const struct cpa_rank_verifier *v, const struct cpa_rank_run *run)
{
	return v->truth && v->partials == run->config->partials &&
		v->partial_dtype == run->config->partial_dtype && v->skips == run->skips &&
		v->held.batches.start == run->batches.start &&
		v->held.batches.end == run->batches.end &&
		cpa_spans_equal(&v->tokens, &run->q_shard);
}

static enum cpa_status keep_rows(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	const struct cpa_problem *p = v->settings.problem;
	size_t n = (size_t)(run->held.ntokens * (run->batches.end - run->batches.start));

	cpa_rank_forget_rows(v);
	cpa_arena_init(&v->arena);
	v->tokens = cpa_spans_pick(&v->arena, &run->q_shard, 0, run->held.ntokens, 1);
	v->held = run->held;
	v->held.tokens = &v->tokens;
	v->skips = run->skips;
	v->partials = run->config->partials;
	v->partial_dtype = run->config->partial_dtype;
	v->o = malloc(n * cpa_token_nbytes(p, CPA_TENSOR_O) + 1);
	if (p->lse)
		v->lse = malloc(n * cpa_token_nbytes(p, CPA_TENSOR_LSE) + 1);
	if (!v->o || (p->lse && !v->lse) || v->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the outputs of a run");
	return CPA_OK;
}

static enum cpa_status compute_rows(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	struct cpa_rank_rows rows = {.problem = v->settings.problem,
		.source = &v->settings.source,
		.device = v->settings.device,
		.partials = v->partials,
		.partial_dtype = v->partial_dtype,
		.held = v->held,
		.wanted = v->settings.wanted,
		.skipped = run->skips ? &run->ranks.partition->q.replicated : NULL};

	return cpa_rank_rows_compute(&rows, &v->truth, v->o, v->lse, error);
}

/* What the soft rule compares with: the error of one rank of the same device, over all rows. */
static enum cpa_status measure_one_rank(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	const struct cpa_problem *p = v->settings.problem;
	struct cpa_rank_combining combining = {v->settings.world, p->B * p->Hq};
	struct cpa_config alone = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, p);
	struct cpa_judgement ignored;
	struct cpa_judge_run judged = {.o = v->o,
		.lse = v->lse,
		.measured = v->one_rank,
		.combine = cpa_rank_combine,
		.context = &combining};

	alone.partials = v->partials;
	alone.partial_dtype = v->partial_dtype;
	judged.bound = cpa_verify_bound_run(v->settings.device, p, &alone);
	return cpa_judge(v->truth, &judged, &ignored, error);
}

enum cpa_status cpa_rank_know_rows(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	struct cpa_world *world = v->settings.world;
	enum cpa_status s = CPA_OK;
	bool known = has_rows(v, run), *all = malloc((size_t)cpa_world_size(world) * sizeof *all);

	/* One that does not know them needs the others for the sums. */
	s = cpa_world_agree(
		world, all ? CPA_OK : cpa_fail(error, CPA_NO_MEMORY, "out of memory"), error);
	if (s == CPA_OK)
		s = cpa_world_gather(world, &known, sizeof known, all, error);
	for (int rank = 0; s == CPA_OK && rank < cpa_world_size(world); rank++)
		known &= all[rank];
	free(all);
	if (s != CPA_OK || known)
		return s;
	s = keep_rows(run, error);
	if (s == CPA_OK)
		s = compute_rows(run, error);
	s = cpa_world_agree(world, s, error);
	if (s == CPA_OK)
		s = measure_one_rank(run, error);
	if (s != CPA_OK)
		cpa_rank_forget_rows(v);
	return s;
}
