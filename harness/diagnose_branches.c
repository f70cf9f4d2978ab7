/*
 * diagnose_branches.c - H: batch items of guidance that were computed as another branch.
 *
 * A recording holds the outputs of each branch, before they are combined: a worker that took
 * another branch than its own returned that branch's rows.
 */
#include "harness/diagnose.h"

#include <stdio.h>

static int nbranches(const struct cpa_suspect *s)
{
	return s->checked->call->guidance.nbranches;
}

static bool has_branches(const struct cpa_suspect *s)
{
	return nbranches(s) >= 2;
}

/* Unknown number i is the branch that branch i was computed as. */
static void branch_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	for (int i = 0; i < nbranches(s); i++)
		n[i] = nbranches(s);
}

static bool predict_branches(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *as, double *o, double *lse)
{
	int64_t items = s->problem->B / nbranches(s),
		b = as[row->b / items] * items + row->b % items;

	if (b == row->b)
		return false;
	cpa_suspect_attend(
		s, NULL, b, row->t, row->h, row->h / (s->problem->Hq / s->problem->Hkv), o, lse);
	return true;
}

static bool is_same(const struct cpa_suspect *s, const int64_t *as)
{
	for (int i = 1; i < nbranches(s); i++)
		if (as[i] != as[0])
			return false;
	return true;
}

/* Each branch once. */
static bool is_exchange(const struct cpa_suspect *s, const int64_t *as)
{
	int seen = 0;

	for (int i = 0; i < nbranches(s); i++)
		seen |= 1 << as[i];
	return seen == (1 << nbranches(s)) - 1;
}

static bool predict_swapped(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return is_exchange(s, unknown) && predict_branches(s, row, unknown, o, lse);
}

static bool predict_dropped(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return nbranches(s) == 3 && !is_exchange(s, unknown) && !is_same(s, unknown) &&
		predict_branches(s, row, unknown, o, lse);
}

static bool predict_same(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return is_same(s, unknown) && predict_branches(s, row, unknown, o, lse);
}

static bool predict_first(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return unknown[0] == 0 && predict_same(s, row, unknown, o, lse);
}

static void describe_branches(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const names[] = {"negative", "middle", "positive"};
	int n = nbranches(s), at = 0;

	for (int i = 0; i < n; i++)
		if (f->unknown[i] != i && at < 150)
			at += snprintf(f->text + at, sizeof f->text - (size_t)at,
				"%sthe %s branch is computed as the %s one", at ? ", " : "",
				names[i + 1 == n ? 2 : i],
				names[f->unknown[i] + 1 == n ? 2 : f->unknown[i]]);
}

const struct cpa_hypothesis cpa_hypotheses_branches[] = {
	{"H01", "branches are swapped", "constant V in each branch", has_branches,
		branch_unknowns, predict_swapped, describe_branches, false, false},
	{"H02", "a branch is computed as another", "constant V in each branch", has_branches,
		branch_unknowns, predict_dropped, describe_branches, false, false},
	{"H03", "every rank runs the same branch", "constant V in each branch", has_branches,
		branch_unknowns, predict_same, describe_branches, false, false},
	{"H04", "every rank acts as the first one", "constant V in each branch", has_branches,
		branch_unknowns, predict_first, describe_branches, false, false},
	{0},
};
