/*
 * diagnose_groups.c - E: tokens that every rank holds, and ranks that talk to the wrong ones or
 * to none.  Positions are in diagnose_positions.c, other inputs in diagnose_inputs.c.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_replicated(const struct cpa_suspect *s)
{
	return s->block_start[0] > 0;
}

/* Whether the fault is in this kind of query: 0 all, 1 split, 2 replicated. */
static bool is_of(const struct cpa_suspect *s, const struct cpa_suspect_row *row, int64_t which)
{
	return which == 0 || (s->query_rank[row->t] < 0) == (which == 2);
}

static const char *const queries[] = {"", ", by split queries", ", by replicated queries"};

/* ---- E01: replicated keys counted n times ---- */

/* What there could be n of: unknown number i is the times; 1 is right and stays out. */
static int64_t times_of(int64_t i)
{
	return i == 0 ? 0 : i + 1;
}

static double replicated_times(const struct cpa_recipe_at *at, int64_t j)
{
	(void)j;
	return at->block < 0 ? (double)times_of(at->unknown[0]) : 1.0;
}

static void times_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W > 2 ? s->W : 2; /* 0, 2, 3, ... W */
	n[1] = 3;
}

static bool predict_times(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.times = replicated_times};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0]}};

	if (!is_of(s, row, unknown[1]))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_times(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int64_t times = times_of(f->unknown[0]);

	(void)s;
	if (times == 0)
		snprintf(f->text, sizeof f->text, "replicated keys are not counted%s",
			queries[f->unknown[1]]);
	else
		snprintf(f->text, sizeof f->text, "replicated keys are counted %d times%s",
			(int)times, queries[f->unknown[1]]);
}

/* ---- E02: joined at the wrong side, under causal ---- */

enum { SEEN_BY_ALL, SEEN_BY_NONE, OTHER_END, SEEN_ON_ONE, HIDDEN_ON_ONE, NSIDES };

/* The id of replicated key j, if the replicated keys in front stood behind all others, or those
 * behind in front. */
static int64_t other_end(const struct cpa_suspect *s, int64_t j)
{
	int64_t n = s->block_start[0], Skv = s->problem->Skv;

	return s->block_keys[0] == 0 ? (j + Skv - n) % Skv : (j + n) % Skv;
}

/* Right for keys that are split, and for queries that are replicated. */
static double side_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_suspect_row *row = at->row;
	bool here = at->ring == at->unknown[1];
	double score = row->scores[j];
	double right = cpa_suspect_masked(s, &s->problem->rule, score, row->b, row->t, row->h, j);

	if (at->block >= 0)
		return right;
	switch (at->unknown[0]) {
	case SEEN_BY_ALL:
		return score;
	case SEEN_BY_NONE:
		return -INFINITY;
	case OTHER_END:
		return cpa_suspect_masked(
			s, &s->problem->rule, score, row->b, row->t, row->h, other_end(s, j));
	case SEEN_ON_ONE:
		return here ? score : -INFINITY;
	default:
		return here ? -INFINITY : right;
	}
}

static bool has_sides(const struct cpa_suspect *s)
{
	return has_replicated(s) && (s->problem->rule.causal || s->problem->rule.window);
}

static void side_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NSIDES;
	n[1] = s->R;
}

static bool predict_side(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = side_score};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0], unknown[1]}};

	if ((unknown[0] < SEEN_ON_ONE && unknown[1] > 0) || s->query_rank[row->t] < 0)
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_side(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const how[] = {"seen by every split query", "seen by no split query",
		"in the place of the other end", "seen by split queries of one ring rank only",
		"hidden from split queries of one ring rank"};

	(void)s;
	snprintf(f->text, sizeof f->text, "replicated keys are joined at the wrong side: %s",
		how[f->unknown[0]]);
	if (f->unknown[0] >= SEEN_ON_ONE)
		f->block = (int)f->unknown[1];
}

/* ---- E03, E04: which ranks' keys arrive ---- */

enum { SAME_RANK, SAME_RING, SAME_ULYSSES, NEIGHBOURS, STRIDED, NGROUPS };

/* Whether keys of cp rank k reach the queries of cp rank q; g is the size of a group. */
static bool in_group(const struct cpa_suspect *s, int64_t kind, int64_t g, int64_t q, int64_t k)
{
	int64_t n = s->R * s->U / g;

	switch (kind) {
	case SAME_RANK:
		return q == k;
	case SAME_RING:
		return q / s->U == k / s->U;
	case SAME_ULYSSES:
		return q % s->U == k % s->U;
	case NEIGHBOURS:
		return q / g == k / g;
	default:
		return q % n == k % n;
	}
}

/* Every (kind, size) that comes later in the list with the same pairs is left out. */
static bool is_new_group(const struct cpa_suspect *s, int64_t kind, int64_t g)
{
	int64_t P = s->R * s->U;
	bool sized = kind >= NEIGHBOURS;

	if ((!sized && g != 1) || (sized && (g == 1 || g == P || P % g)))
		return false;
	if (kind != SAME_RANK && kind <= SAME_ULYSSES && (s->U == 1 || s->R == 1))
		return false; /* all, or the rank itself */
	return !(sized && s->U > 1 && s->R > 1 &&
		((kind == NEIGHBOURS && g == s->U) || (kind == STRIDED && g == s->R)));
}

static double group_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_suspect_row *row = at->row;
	int64_t P = s->R * s->U, q = s->query_rank[row->t];

	if (q < 0)
		q = row->rank % P;
	if (s->key_rank[j] >= 0 &&
		!in_group(s, at->unknown[0], at->unknown[1] + 1, q, s->key_rank[j]))
		return -INFINITY;
	return cpa_suspect_masked(
		s, &s->problem->rule, row->scores[j], row->b, row->t, row->h, j);
}

static bool has_ranks(const struct cpa_suspect *s)
{
	return s->R * s->U > 1;
}

static void group_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NGROUPS;
	n[1] = s->R * s->U;
}

static bool predict_group(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = group_score};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0], unknown[1]}};

	if (!is_new_group(s, unknown[0], unknown[1] + 1))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static bool predict_wrong_group(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return unknown[0] != SAME_RANK && predict_group(s, row, unknown, o, lse);
}

static void describe_group(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const which[] = {"the rank itself", "its ulysses group", "its ring"};
	char group[80];
	int g = (int)f->unknown[1] + 1;

	if (f->unknown[0] == NEIGHBOURS)
		snprintf(group, sizeof group, "%d neighbours", g);
	else if (f->unknown[0] == STRIDED)
		snprintf(group, sizeof group, "%d ranks, %d apart", g, (int)(s->R * s->U) / g);
	else
		snprintf(group, sizeof group, "%s", which[f->unknown[0]]);
	snprintf(f->text, sizeof f->text, "each rank sees the keys of one group only: %s", group);
}

/* ---- E05: copies exchanged as if they were shards ---- */

static bool predict_copies(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	memcpy(o, row->want, (size_t)s->problem->Dv * sizeof *o);
	*lse = row->truth->lse + log((double)(unknown[0] + 2));
	return true;
}

static bool has_copies(const struct cpa_suspect *s)
{
	return s->has_lse && s->W > 1;
}

static void copies_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->W - 1;
}

static void describe_copies(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"every key counts %d times: copies are exchanged as if they were shards",
		(int)f->unknown[0] + 2);
}

const struct cpa_hypothesis cpa_hypotheses_groups[] = {
	{"E01", "replicated keys are counted more than once, or not at all",
		"K = 0, V = 1 on replicated tokens", has_replicated, times_unknowns,
		predict_times, describe_times, false, false},
	{"E02", "replicated keys are joined at the wrong side", "V = identity, causal", has_sides,
		side_unknowns, predict_side, describe_side, false, false},
	{"E03", "ranks do not communicate", "V constant in each block", has_ranks, NULL,
		predict_group, NULL, false, false},
	{"E04", "keys travel in the wrong group", "V constant in each block", has_ranks,
		group_unknowns, predict_wrong_group, describe_group, false, false},
	{"E05", "copies are exchanged as if they were shards", "lse, and a mask", has_copies,
		copies_unknowns, predict_copies, describe_copies, false, false},
	{0},
};
