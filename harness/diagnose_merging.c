/*
 * diagnose_merging.c - A: partials that are merged by the wrong weights.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

/* Unknown 0 is everybody, unknown 1 + r the world rank r alone. */
static bool works_elsewhere(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, int64_t unknown)
{
	return unknown > 0 && cpa_suspect_worker(s, row) != unknown - 1;
}

void cpa_finding_say_rank(struct cpa_finding *f, int64_t unknown)
{
	size_t n = strlen(f->text);

	f->rank = (int)unknown - 1;
	if (f->rank >= 0)
		snprintf(f->text + n, sizeof f->text - n, ", on rank %d alone", f->rank);
}

/* ---- A01: the base of lse ---- */

static double scaled(double lse, int64_t to_natural)
{
	return lse == -INFINITY ? lse
				: lse * (to_natural ? 0.69314718055994531 : 1.4426950408889634);
}

/* unknown: which base is read as which; 0 all blocks, 1 the own, 2 the others. */
static double scaled_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	bool own = at->hop <= 0;

	(void)o;
	if ((at->unknown[1] == 1 && !own) || (at->unknown[1] == 2 && own))
		return lse;
	return scaled(lse, at->unknown[0]);
}

static void base_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = 2;
	n[1] = s->R > 1 ? 3 : 1;
	n[2] = s->W > 1 ? s->W + 1 : 1;
}

static bool predict_base(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = scaled_partial};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0], unknown[1]}};

	if (works_elsewhere(s, row, unknown[2]))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_base(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const which[] = {
		"all blocks", "the own block", "the blocks of others"};

	(void)s;
	snprintf(f->text, sizeof f->text, "the lse of %s is %s", which[f->unknown[1]],
		f->unknown[0] ? "natural, and read as base 2" : "in base 2, and read as natural");
	cpa_finding_say_rank(f, f->unknown[2]);
}

/* o is right, and what is returned as lse is in another base. */
static void returned_base_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = 2;
	n[1] = s->W > 1 ? s->W + 1 : 1;
}

static bool predict_returned_base(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	if (works_elsewhere(s, row, unknown[1]))
		return false;
	memcpy(o, row->want, (size_t)s->problem->Dv * sizeof *o);
	*lse = scaled(row->truth->lse, unknown[0]);
	return true;
}

static void describe_returned_base(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "the lse returned is %s",
		f->unknown[0] ? "the natural one by ln 2" : "in base 2");
	cpa_finding_say_rank(f, f->unknown[1]);
}

/* ---- A02: the shift of a row is not taken back ---- */

/* What was subtracted from the scores of the block: their mean over its keys, visible or not, or
 * the largest of those that are seen; unknown 2: the mean over all keys. */
static double shifted_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	const struct cpa_suspect *s = at->s;
	int64_t first = at->block < 0 ? 0 : s->block_start[at->block], n;
	double shift = 0.0;

	(void)o;
	n = s->block_start[at->block + 1] - first;
	if (lse == -INFINITY)
		return lse;
	if (at->unknown[0] == 1)
		shift = -INFINITY;
	if (at->unknown[0] == 2) {
		first = 0;
		n = s->problem->Skv;
	}
	for (int64_t i = first; i < first + n; i++) {
		int64_t j = s->block_keys[i];
		double score = at->row->scores[j];

		if (at->unknown[0] == 1)
			shift = fmax(shift,
				cpa_suspect_masked(s, &s->problem->rule, score, at->row->b,
					at->row->t, at->row->h, j));
		else
			shift += score / (double)n;
	}
	return lse - shift;
}

static void shift_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 3;
}

static bool predict_shift(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = shifted_partial};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0]}};

	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

/* Keys less the mean of their block, kept in the type of k, which rounds them once more. */
static void smooth_keys(struct cpa_suspect *s, int64_t b, int block, double *smooth)
{
	const struct cpa_problem *p = s->problem;
	int64_t first = block < 0 ? 0 : s->block_start[block], end = s->block_start[block + 1];
	int64_t width = p->Hkv * p->D;

	for (int64_t x = 0; x < width; x++) {
		double mean = 0.0;

		for (int64_t i = first; i < end; i++)
			mean += cpa_load(p->dtype, s->checked->tensors.k,
					(b * p->Skv + s->block_keys[i]) * width + x) /
				(double)(end - first);
		for (int64_t i = first; i < end; i++) {
			int64_t at = (b * p->Skv + s->block_keys[i]) * width + x;
			double bits[1];

			cpa_store(p->dtype, bits, 0,
				cpa_load(p->dtype, s->checked->tensors.k, at) - mean);
			smooth[at] = cpa_load(p->dtype, bits, 0);
		}
	}
}

static double smooth_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_problem *p = s->problem;
	const struct cpa_suspect_row *row = at->row;
	int64_t q = ((row->b * p->Sq + row->t) * p->Hq + row->h) * p->D;
	int64_t k = ((row->b * p->Skv + j) * p->Hkv + row->h / (p->Hq / p->Hkv)) * p->D;
	double sum = 0.0;

	for (int64_t d = 0; d < p->D; d++)
		sum += cpa_load(p->dtype, s->checked->tensors.q, q + d) * s->smooth[k + d];
	return cpa_suspect_masked(s, &p->rule, p->scale * sum, row->b, row->t, row->h, j);
}

static bool predict_smooth(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = smooth_score};
	const struct cpa_problem *p = s->problem;
	struct cpa_recipe_at at = {.s = s, .row = row};

	(void)unknown;
	if (!s->smooth) {
		s->smooth = cpa_arena_alloc(
			&s->arena, (size_t)(p->B * p->Skv * p->Hkv * p->D) * sizeof *s->smooth);
		for (int64_t b = 0; s->smooth && b < p->B; b++)
			for (int block = -1; block < s->R; block++)
				smooth_keys(s, b, block, s->smooth);
	}
	if (!s->smooth)
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static bool is_narrow(const struct cpa_suspect *s)
{
	return cpa_dtype_nbytes(s->problem->dtype) == 2;
}

static void describe_shift(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const what[] = {
		"the mean of its keys", "its largest score", "the mean of all keys"};

	(void)s;
	snprintf(f->text, sizeof f->text,
		"the lse of each block lacks what was subtracted from its scores: %s",
		what[f->unknown[0]]);
}

/* ---- A07: what the accumulator begins with ---- */

static void rank_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W > 1 ? s->W + 1 : 1;
}

static void describe_rank(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	cpa_finding_say_rank(f, f->unknown[0]);
}

static bool predict_zero_start(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.has_start = true, .start_lse = 0.0};
	struct cpa_recipe_at at = {.s = s, .row = row};

	if (works_elsewhere(s, row, unknown[0]))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

/* ---- A09: no merge ---- */

static void direction_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->R > 2 ? 2 : 1;
}

static bool predict_overwrite(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.merge = CPA_RECIPE_OVERWRITE};
	struct cpa_recipe_at at = {.s = s, .row = row, .direction = unknown[0] ? -1 : 1};

	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static bool predict_mean(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.merge = CPA_RECIPE_MEAN};
	struct cpa_recipe_at at = {.s = s, .row = row};

	(void)unknown;
	cpa_recipe_run(&recipe, &at, o, lse);
	*lse = row->lse; /* whatever it is called then */
	return true;
}

/* ---- A10: a block missed or counted twice ---- */

static double block_times(const struct cpa_recipe_at *at, int64_t j)
{
	(void)j;
	return at->hop == at->unknown[1] ? (at->unknown[2] ? 2.0 : 0.0) : 1.0;
}

/* rank 0: all; which hop; missed or twice; direction. */
static void block_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W + 1;
	n[1] = s->R;
	n[2] = 2;
	n[3] = s->R > 2 ? 2 : 1;
}

static bool predict_block(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.times = block_times};
	struct cpa_recipe_at at = {.s = s,
		.row = row,
		.unknown = {unknown[0], unknown[1], unknown[2]},
		.direction = unknown[3] ? -1 : 1};

	if (works_elsewhere(s, row, unknown[0]))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_block(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int64_t ring;

	f->rank = (int)f->unknown[0] - 1;
	f->hop = (int)f->unknown[1];
	if (f->rank < 0) {
		snprintf(f->text, sizeof f->text, "on every rank the block of hop %d is %s",
			f->hop, f->unknown[2] ? "counted twice" : "not counted");
		return;
	}
	ring = f->rank % (s->R * s->U) / s->U - (f->unknown[3] ? -1 : 1) * (int64_t)f->hop;
	f->block = (int)((ring % s->R + s->R) % s->R);
	snprintf(f->text, sizeof f->text, "rank %d %s block %d (hop %d)", f->rank,
		f->unknown[2] ? "counts twice" : "does not count", f->block, f->hop);
}

const struct cpa_hypothesis cpa_hypotheses_merging[] = {
	{"A01", "partials are merged by lse in another base than they come in",
		"blocks of unlike length, K = 0", NULL, base_unknowns, predict_base,
		describe_base, false, false},
	{"A01", "the lse returned is in another base", "any input, with lse", NULL,
		returned_base_unknowns, predict_returned_base, describe_returned_base, false,
		false},
	{"A02", "the lse of each block lacks what was subtracted from its scores",
		"keys constant in each block", NULL, shift_unknowns, predict_shift,
		describe_shift, false, false},
	{"A02", "the lse of each block lacks the mean of its keys, which was taken off k",
		"keys constant in each block", is_narrow, NULL, predict_smooth, NULL, false,
		false},
	{"A07", "the accumulator starts at lse 0 in place of -inf", "one rank alone has it too",
		NULL, rank_unknowns, predict_zero_start, describe_rank, false, false},
	{"A09", "each block overwrites the one before", "V constant in each block", has_ring,
		direction_unknowns, predict_overwrite, NULL, false, false},
	{"A09", "blocks are averaged, whatever they weigh", "blocks of unlike length, K = 0",
		has_ring, NULL, predict_mean, NULL, false, false},
	{"A10", "a block is missed, or counted twice", "V constant in each block", has_ring,
		block_unknowns, predict_block, describe_block, false, false},
	{0},
};
