/*
 * diagnose_empty.c - A05, A06, B08: what becomes of a block that shows a row no key, or that has
 * none.
 */
#include "harness/diagnose_passed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

/* ---- merges that take no care ---- */

/* By the larger of both: of twice -inf, and of +inf, NaN. */
static void join_by_max(double *o, double *lse, const double *o_b, double lse_b, int64_t Dv)
{
	double max = fmax(*lse, lse_b), x = exp(*lse - max), y = exp(lse_b - max);

	for (int64_t d = 0; d < Dv; d++)
		o[d] = (x * o[d] + y * o_b[d]) / (x + y);
	*lse = max + log(x + y);
}

static double log_sigmoid(double x)
{
	return x < 0.0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

/* As ring-flash-attention writes it: an empty sum so far loses lse. */
static void join_by_sigmoid(double *o, double *lse, const double *o_b, double lse_b, int64_t Dv)
{
	double share = 1.0 / (1.0 + exp(*lse - lse_b));

	for (int64_t d = 0; d < Dv; d++)
		o[d] -= share * (o[d] - o_b[d]);
	*lse -= log_sigmoid(*lse - lse_b);
}

static bool has_lost_rows(const struct cpa_suspect *s)
{
	for (int i = 0; i < s->nrows; i++) {
		const struct cpa_suspect_row *row = &s->rows[i];
		bool lost = row->has_lse && !(row->lse < INFINITY);

		for (int64_t d = 0; row->o && d < s->problem->Dv && !lost; d++)
			lost = !isfinite(row->o[d]);
		if (lost)
			return true;
	}
	return false;
}

/* ---- A05: nothing merged with nothing ---- */

/* The first partial starts the sum, or is merged with o = 0 and lse = -inf. */
enum { BY_MAX, BY_SIGMOID, BY_MAX_FROM_EMPTY, NMERGES };

static void merge_empty(
	const struct cpa_recipe_at *at, double *o, double *lse, const double *o_b, double lse_b)
{
	int64_t Dv = at->s->problem->Dv;

	if (at->njoined == 0 && at->unknown[CPA_PASSED_KIND] != BY_MAX_FROM_EMPTY) {
		memcpy(o, o_b, (size_t)Dv * sizeof *o);
		*lse = lse_b;
	} else if (at->unknown[CPA_PASSED_KIND] == BY_SIGMOID) {
		join_by_sigmoid(o, lse, o_b, lse_b, Dv);
	} else {
		join_by_max(o, lse, o_b, lse_b, Dv);
	}
}

static bool merges_lost(const struct cpa_suspect *s)
{
	return has_ring(s) && has_lost_rows(s);
}

static void merge_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	cpa_passed_unknowns(s, NMERGES, n);
}

static bool predict_merge(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {
		.ring = cpa_passed_ring, .passes = cpa_passed_over, .join = merge_empty};
	struct cpa_recipe_at at = cpa_passed_begin(s, row, unknown);

	if (cpa_passed_elsewhere(&at))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_merge(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s gives NaN",
		f->unknown[CPA_PASSED_KIND] == BY_SIGMOID
			? "a merge by log-sigmoid into a sum that saw no key yet"
			: "merging two partials that both saw no key");
	cpa_finding_say_rank(f, f->unknown[CPA_PASSED_RANK]);
}

/* ---- A06: what an empty block counts ---- */

static bool is_empty(struct cpa_recipe_at *at)
{
	struct cpa_suspect *s = at->s;
	const double *scores = cpa_suspect_scores(s, at->row);
	int64_t i = at->block < 0 ? 0 : s->block_start[at->block];

	for (; scores && i < s->block_start[at->block + 1]; i++) {
		int64_t j = s->block_keys[i];

		if (cpa_suspect_masked(s, &s->problem->rule, scores[j], at->row->b, at->row->t,
			    at->row->h, j) > -INFINITY)
			return false;
	}
	return true;
}

/* The lse that each empty block seems to have had, from what the worst row has too much. */
static bool fit_constant(struct cpa_suspect *s, const int64_t *unknown, double *constant)
{
	struct cpa_suspect_row *row = &s->rows[0];
	struct cpa_recipe_at at = cpa_passed_begin(s, row, unknown);
	double L = row->truth->lse, more = NAN, dot = 0.0, square = 0.0;
	int64_t nempty = 0;

	at.ring = cpa_passed_ring(&at);
	for (at.block = -1; at.block < s->R; at.block++)
		nempty += !cpa_passed_over(&at) && is_empty(&at);
	for (int64_t d = 0; row->o && d < s->problem->Dv; d++) {
		dot += row->o[d] * row->want[d];
		square += row->want[d] * row->want[d];
	}
	if (row->has_lse)
		more = row->lse + log1p(-exp(L - row->lse));
	else if (dot > 0.0 && square > dot)
		more = L + log(square / dot - 1.0);
	*constant = more - log((double)nempty);
	return nempty > 0 && isfinite(*constant) && fabs(*constant) > 1e-3;
}

enum { ZERO, COUNTED, FITTED, MEAN = 3 }; /* of KIND; from MEAN on the same with the mean of v */

static double empty_counts(const struct cpa_recipe_at *at, double lse, double *o)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_problem *p = s->problem;
	double *v = s->work + p->Skv;
	int64_t first = at->block < 0 ? 0 : s->block_start[at->block],
		n = s->block_start[at->block + 1] - first,
		kind = at->unknown[CPA_PASSED_KIND] % MEAN;

	if (lse > -INFINITY)
		return lse;
	for (int64_t i = first; at->unknown[CPA_PASSED_KIND] >= MEAN && i < first + n; i++) {
		cpa_suspect_value(
			s, at->row->b, s->block_keys[i], at->row->h / (p->Hq / p->Hkv), v);
		for (int64_t d = 0; d < p->Dv; d++)
			o[d] += v[d] / (double)n;
	}
	return kind == ZERO ? 0.0 : kind == COUNTED ? log((double)n) : at->constant;
}

static void finite_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	cpa_passed_unknowns(s, 2 * MEAN, n);
}

static bool predict_finite(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {
		.ring = cpa_passed_ring, .passes = cpa_passed_over, .partial = empty_counts};
	struct cpa_recipe_at at = cpa_passed_begin(s, row, unknown);

	if (unknown[CPA_PASSED_OVER] == CPA_PASS_NOTHING || cpa_passed_elsewhere(&at) ||
		(unknown[CPA_PASSED_KIND] % MEAN == FITTED &&
			!fit_constant(s, unknown, &at.constant)))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_finite(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const lse[] = {
		"lse 0", "the lse of as many keys of score 0", "another finite lse"};

	(void)s;
	snprintf(f->text, sizeof f->text, "a block without visible keys comes with %s%s",
		lse[f->unknown[CPA_PASSED_KIND] % MEAN],
		f->unknown[CPA_PASSED_KIND] >= MEAN ? ", and the mean of its values" : "");
	cpa_finding_say_rank(f, f->unknown[CPA_PASSED_RANK]);
}

/* Of KIND: lse +inf, merged in two ways; an output of NaN beside lse -inf; both NaN. */
enum { INFINITE, INFINITE_BY_SIGMOID, NAN_OUTPUT, NAN_BOTH, NLOST };

static double empty_is_lost(const struct cpa_recipe_at *at, double lse, double *o)
{
	if (lse > -INFINITY)
		return lse;
	for (int64_t d = 0; at->unknown[CPA_PASSED_KIND] >= NAN_OUTPUT && d < at->s->problem->Dv;
		d++)
		o[d] = NAN;
	return at->unknown[CPA_PASSED_KIND] == NAN_OUTPUT  ? lse
		: at->unknown[CPA_PASSED_KIND] == NAN_BOTH ? NAN
							   : INFINITY;
}

static void merge_lost(
	const struct cpa_recipe_at *at, double *o, double *lse, const double *o_b, double lse_b)
{
	int64_t Dv = at->s->problem->Dv;

	if (at->njoined == 0) {
		memcpy(o, o_b, (size_t)Dv * sizeof *o);
		*lse = lse_b;
	} else if (at->unknown[CPA_PASSED_KIND] == INFINITE_BY_SIGMOID) {
		join_by_sigmoid(o, lse, o_b, lse_b, Dv);
	} else if (*lse != -INFINITY || lse_b != -INFINITY) {
		join_by_max(o, lse, o_b, lse_b, Dv);
	}
}

static void lost_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	cpa_passed_unknowns(s, NLOST, n);
}

static bool predict_lost(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.ring = cpa_passed_ring,
		.passes = cpa_passed_over,
		.partial = empty_is_lost,
		.join = merge_lost};
	struct cpa_recipe_at at = cpa_passed_begin(s, row, unknown);

	if (unknown[CPA_PASSED_OVER] == CPA_PASS_NOTHING || cpa_passed_elsewhere(&at))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

/* What is NaN and what is +inf is not told apart. */
static void describe_lost(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "a block without visible keys comes %s",
		f->unknown[CPA_PASSED_KIND] == NAN_OUTPUT ? "with an output that is NaN"
							  : "out NaN, or with lse +inf");
	cpa_finding_say_rank(f, f->unknown[CPA_PASSED_RANK]);
}

/* ---- B08: a shard without keys ---- */

static bool has_empty_block(const struct cpa_suspect *s)
{
	for (int64_t r = 0; r < s->R; r++)
		if (s->block_start[r] == s->block_start[r + 1])
			return has_lost_rows(s);
	return false;
}

/* Whose rows: everybody's, or those of the ring rank that has no keys; lse is lost too, or not.
 */
static void shard_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 2;
	n[1] = 2;
}

static bool predict_shard(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int ring = cpa_suspect_ring(s, row);

	if (unknown[0] && s->block_start[ring] < s->block_start[ring + 1])
		return false;
	for (int64_t d = 0; d < s->problem->Dv; d++)
		o[d] = NAN;
	*lse = unknown[1] ? row->truth->lse : NAN;
	return true;
}

static void describe_shard(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int ring = 0;

	while (s->block_start[ring] < s->block_start[ring + 1])
		ring++;
	f->block = ring;
	snprintf(f->text, sizeof f->text, "block %d has no keys, and comes out NaN %s", ring,
		f->unknown[0] ? "on the rank that holds it" : "on every rank");
}

const struct cpa_hypothesis cpa_hypotheses_empty[] = {
	{"A05", "merging two partials that both saw no key gives NaN",
		"rows whose first blocks are hidden, and rows that see a key of each block",
		merges_lost, merge_unknowns, predict_merge, describe_merge, false, false},
	{"A06", "a block without keys has a finite lse in place of -inf",
		"a row that sees no key of one block", has_ring, finite_unknowns, predict_finite,
		describe_finite, false, false},
	{"A06", "a block without keys is NaN, or has lse +inf",
		"a row that sees no key of one block", has_lost_rows, lost_unknowns, predict_lost,
		describe_lost, false, false},
	{"B08", "a shard without keys comes out NaN", "fewer keys than ranks", has_empty_block,
		shard_unknowns, predict_shard, describe_shard, false, false},
	{0},
};
