/*
 * diagnose_merging.c - A: partials that are merged by the wrong weights.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>

static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

/* ---- A01: the base of lse ---- */

/* unknown: which base is read as which; 0 all blocks, 1 the own, 2 the others. */
static double scaled_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	bool own = at->hop <= 0;

	(void)o;
	if ((at->unknown[1] == 1 && !own) || (at->unknown[1] == 2 && own) || lse == -INFINITY)
		return lse;
	return at->unknown[0] ? lse * 0.69314718055994531 : lse * 1.4426950408889634;
}

static void base_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 2;
	n[1] = 3;
}

static bool predict_base(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = scaled_partial};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0], unknown[1]}};

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
}

/* ---- A07, A06: what the accumulator begins with, and what an empty block counts ---- */

static bool predict_zero_start(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.has_start = true, .start_lse = 0.0};
	struct cpa_recipe_at at = {.s = s, .row = row};

	(void)unknown;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static double empty_is_zero(const struct cpa_recipe_at *at, double lse, double *o)
{
	(void)at;
	(void)o;
	return lse == -INFINITY ? 0.0 : lse;
}

static bool predict_empty_zero(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = empty_is_zero};
	struct cpa_recipe_at at = {.s = s, .row = row};

	(void)unknown;
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
	bool one_rank = at->unknown[0] > 0,
	     here = !one_rank || at->row->rank == at->unknown[0] - 1;

	(void)j;
	return here && at->hop == at->unknown[1] ? (at->unknown[2] ? 2.0 : 0.0) : 1.0;
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

	if (unknown[0] > 0 && row->rank != unknown[0] - 1)
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
		"blocks of unlike length, K = 0", has_ring, base_unknowns, predict_base,
		describe_base, false, false},
	{"A06", "a block without keys has lse 0 in place of -inf",
		"a row that sees no key of one block", has_ring, NULL, predict_empty_zero, NULL,
		false, false},
	{"A07", "the accumulator starts at lse 0 in place of -inf", "one rank alone has it too",
		NULL, NULL, predict_zero_start, NULL, false, false},
	{"A09", "each block overwrites the one before", "V constant in each block", has_ring,
		direction_unknowns, predict_overwrite, NULL, false, false},
	{"A09", "blocks are averaged, whatever they weigh", "blocks of unlike length, K = 0",
		has_ring, NULL, predict_mean, NULL, false, false},
	{"A10", "a block is missed, or counted twice", "V constant in each block", has_ring,
		block_unknowns, predict_block, describe_block, false, false},
	{0},
};
