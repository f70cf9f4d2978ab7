/*
 * diagnose_buffers.c - F: a hop that works on what the buffer held before, all of it, K or V
 * alone, or a part; and statistics of another hop.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_hops(const struct cpa_suspect *s)
{
	return s->R > 1;
}

/* The hop whose block stands there instead; -1: none. */
static int source_hop(const struct cpa_recipe_at *at)
{
	int hop = (int)at->unknown[1], from = (int)at->unknown[2], R = (int)at->s->R;

	if (at->hop < 0)
		return -1;
	if (hop > 0)
		return at->hop == hop && from != hop ? from : -1;
	/* Every hop: 0 the own block, 1 the one before, 2 the one after. */
	if (at->hop == 0 && from < 2)
		return -1;
	return from == 0 ? 0 : from == 1 ? at->hop - 1 : at->hop + 1 < R ? at->hop + 1 : -1;
}

/* The token that stands where key j should, by its place in the block; j where nothing does. */
static int64_t other_token(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	int hop = source_hop(at);
	int64_t place, from;

	if (hop < 0)
		return j;
	place = cpa_suspect_place(s, j);
	from = s->block_start[cpa_recipe_block(at, hop)];
	return place < s->block_start[cpa_recipe_block(at, hop) + 1] - from
		? s->block_keys[from + place]
		: j;
}

/* unknown 3, shared with direction: bits of what is stale. */
enum { STALE_K = 1, STALE_V = 2, STALE_BOTH = 3 };

/* The mask goes by the key that should be there. */
static double stale_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	int64_t from = at->unknown[3] & STALE_K ? other_token(at, j) : j;

	return cpa_suspect_masked(s, &s->problem->rule, at->row->scores[from], at->row->b,
		at->row->t, at->row->h, j);
}

static int64_t stale_value(const struct cpa_recipe_at *at, int64_t j)
{
	return at->unknown[3] & STALE_V ? other_token(at, j) : j;
}

/* Rank; hop, 0 all of them; from which hop; direction. */
static void stale_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W + 1;
	n[1] = s->R;
	n[2] = s->R > 3 ? s->R : 3;
	n[3] = s->R > 2 ? 2 : 1;
}

static bool predict_stale(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, int64_t what, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = stale_score, .value = stale_value};
	struct cpa_recipe_at at = {.s = s,
		.row = row,
		.unknown = {unknown[0], unknown[1], unknown[2], what},
		.direction = unknown[3] ? -1 : 1};

	/* What is the same as another value of the unknowns, or right. */
	if (unknown[1] > 0 ? unknown[2] >= s->R || unknown[2] == unknown[1]
			   : unknown[2] > 2 || (s->R == 2 && unknown[2] != 2))
		return false;
	if (unknown[0] > 0 && cpa_suspect_worker(s, row) != unknown[0] - 1)
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static bool predict_stale_block(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return predict_stale(s, row, unknown, STALE_BOTH, o, lse);
}

static void say_rank(struct cpa_finding *f)
{
	size_t n = strlen(f->text);

	if (f->rank >= 0)
		snprintf(f->text + n, sizeof f->text - n, ", on rank %d alone", f->rank);
}

static int block_at(const struct cpa_suspect *s, const struct cpa_finding *f, int64_t hop)
{
	int64_t ring = f->rank % (s->R * s->U) / s->U - (f->unknown[3] ? -hop : hop);

	return (int)((ring % s->R + s->R) % s->R);
}

static void describe_stale(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const every[] = {
		"the own one", "the one of the hop before", "the one of the next hop"};
	int hop = (int)f->unknown[1], from = (int)f->unknown[2];

	f->rank = (int)f->unknown[0] - 1;
	f->hop = hop > 0 ? hop : -1;
	if (hop == 0) {
		snprintf(f->text, sizeof f->text, "each hop works on another block: %s",
			every[from]);
		say_rank(f);
		return;
	}
	if (f->rank < 0) {
		snprintf(f->text, sizeof f->text,
			"on every rank hop %d works on the block of hop %d", hop, from);
		return;
	}
	f->block = block_at(s, f, hop);
	snprintf(f->text, sizeof f->text,
		"rank %d works on block %d again at hop %d, and misses block %d", f->rank,
		block_at(s, f, from), hop, f->block);
}

static bool predict_stale_k(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return predict_stale(s, row, unknown, STALE_K, o, lse);
}

static bool predict_stale_v(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return predict_stale(s, row, unknown, STALE_V, o, lse);
}

static void describe_apart(struct cpa_finding *f, const char *operand)
{
	f->rank = (int)f->unknown[0] - 1;
	f->hop = f->unknown[1] > 0 ? (int)f->unknown[1] : -1;
	if (f->hop > 0)
		snprintf(f->text, sizeof f->text, "at hop %d %s is of hop %d", f->hop, operand,
			(int)f->unknown[2]);
	else
		snprintf(f->text, sizeof f->text, "%s is %s", operand,
			f->unknown[2] == 0	     ? "the own one at every hop"
				: f->unknown[2] == 1 ? "one hop behind"
						     : "one hop ahead");
	say_rank(f);
}

static void describe_k(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	describe_apart(f, "K");
}

static void describe_v(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	describe_apart(f, "V");
}

/* ---- F03: a torn block ---- */

/* Unknowns: rank, hop and source as hop R + source, boundary, tail or head and direction. */
static bool is_old(const struct cpa_recipe_at *at, int64_t j)
{
	int64_t place = cpa_suspect_place(at->s, j);

	return at->hop == at->unknown[1] / at->s->R &&
		(at->unknown[3] ? place < at->unknown[2] : place >= at->unknown[2]);
}

static int64_t torn_token(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	int64_t first, place = cpa_suspect_place(s, j);
	int from;

	if (at->hop < 1 || !is_old(at, j))
		return j;
	from = cpa_recipe_block(at, (int)(at->unknown[1] % s->R));
	first = s->block_start[from];
	return first + place < s->block_start[from + 1] ? s->block_keys[first + place] : j;
}

static double torn_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;

	return cpa_suspect_masked(s, &s->problem->rule, at->row->scores[torn_token(at, j)],
		at->row->b, at->row->t, at->row->h, j);
}

static void torn_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	int64_t most = 1;

	for (int64_t r = 0; r < s->R; r++)
		if (s->block_start[r + 1] - s->block_start[r] > most)
			most = s->block_start[r + 1] - s->block_start[r];
	n[0] = s->W;
	n[1] = s->R * s->R;
	n[2] = most;
	n[3] = s->R > 2 ? 4 : 2;
}

/* Feature 0 of the value that goes with key j. */
static double first_value(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, int64_t j)
{
	const struct cpa_problem *p = s->problem;

	return cpa_load(p->dtype, s->checked->tensors.v,
		((row->b * p->Skv + j) * p->Hkv + row->h / (p->Hq / p->Hkv)) * p->Dv);
}

/* False: the lse, or feature 0 of o, is not that of the row as it was observed.  Saves what a
 * whole prediction costs for each of very many boundaries. */
static bool looks_torn(struct cpa_suspect *s, struct cpa_recipe_at *at)
{
	struct cpa_suspect_row *row = at->row;
	int block = cpa_recipe_block(at, (int)(at->unknown[1] / s->R));
	double L = row->truth->lse, sum = 1.0, first = row->want[0];
	bool free_keys = s->problem->rule.mask.kind == CPA_MASK_NONE;

	if (!free_keys || !isfinite(L) || !cpa_suspect_scores(s, row))
		return true;
	at->hop = (int)(at->unknown[1] / s->R);
	for (int64_t i = s->block_start[block]; i < s->block_start[block + 1]; i++) {
		int64_t j = s->block_keys[i], from = torn_token(at, j);
		double out, in;

		if (from == j || j < row->keys.start || j >= row->keys.end)
			continue;
		out = exp(row->scores[j] - L);
		in = exp(row->scores[from] - L);
		sum += in - out;
		first += in * first_value(s, row, from) - out * first_value(s, row, j);
	}
	first /= sum;
	if (row->has_lse && !(fabs(L + log(sum) - row->lse) <= 2.0 * row->bound.lse + 1e-6))
		return false;
	return !row->o ||
		fabs(first - row->o[0]) <=
		2.0 * (row->bound.o_abs + row->bound.o_rel * fmax(fabs(first), fabs(row->o[0]))) +
			1e-6;
}

static bool predict_torn(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = torn_score, .value = torn_token};
	struct cpa_recipe_at at = {.s = s,
		.row = row,
		.unknown = {unknown[0], unknown[1], unknown[2], unknown[3] & 1},
		.direction = unknown[3] & 2 ? -1 : 1};
	int64_t hop = unknown[1] / s->R, from = unknown[1] % s->R;

	/* Boundary 0 is F01, and a row that is right says little about where it is. */
	if (hop < 1 || from == hop || unknown[2] < 1 || cpa_suspect_worker(s, row) != unknown[0])
		return false;
	at.ring = cpa_suspect_ring(s, row);
	if (row->wrong && !looks_torn(s, &at))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_torn(const struct cpa_suspect *s, struct cpa_finding *f)
{
	bool head = f->unknown[3] & 1;

	f->rank = (int)f->unknown[0];
	f->hop = (int)(f->unknown[1] / s->R);
	snprintf(f->text, sizeof f->text,
		"rank %d works at hop %d on a torn block: %s key %d of it are those of hop %d",
		f->rank, f->hop, head ? "those before" : "those from", (int)f->unknown[2],
		(int)(f->unknown[1] % s->R));
}

/* ---- F04: lse of the hop before ---- */

static double late_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	bool here = at->unknown[1] == 0 ? at->hop > 0 : at->hop == at->unknown[1];

	(void)o;
	return here && !isnan(at->last_lse) ? at->last_lse : lse;
}

static void late_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W + 1;
	n[1] = s->R;
	n[3] = s->R > 2 ? 2 : 1;
}

static bool predict_late(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = late_partial};
	struct cpa_recipe_at at = {.s = s,
		.row = row,
		.unknown = {unknown[0], unknown[1]},
		.direction = unknown[3] ? -1 : 1};

	if (unknown[0] > 0 && cpa_suspect_worker(s, row) != unknown[0] - 1)
		return false;
	if (s->R == 2 && unknown[1] == 0)
		return false; /* the same as hop 1 */
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_late(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	f->rank = (int)f->unknown[0] - 1;
	f->hop = f->unknown[1] > 0 ? (int)f->unknown[1] : -1;
	if (f->hop > 0)
		snprintf(f->text, sizeof f->text,
			"the partial of hop %d is merged by the lse of the hop before", f->hop);
	else
		snprintf(f->text, sizeof f->text,
			"each partial is merged by the lse of the hop before");
	say_rank(f);
}

const struct cpa_hypothesis cpa_hypotheses_buffers[] = {
	{"F01", "a hop works on a block that was there before", "V constant in each block",
		has_hops, stale_unknowns, predict_stale_block, describe_stale, false, false},
	{"F02", "K and V are of different hops", "V constant in each block", has_hops,
		stale_unknowns, predict_stale_v, describe_v, false, false},
	{"F02", "K and V are of different hops", "V constant in each block", has_hops,
		stale_unknowns, predict_stale_k, describe_k, false, false},
	{"F03", "a part of a block is of the hop before", "V = identity", has_hops, torn_unknowns,
		predict_torn, describe_torn, false, false},
	{"F04", "a partial is merged by the lse of another hop",
		"the same run again, with delays", has_hops, late_unknowns, predict_late,
		describe_late, false, false},
	{0},
};
