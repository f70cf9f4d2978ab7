/*
 * diagnose.c - the search: every hypothesis, every value of its unknowns, on the sampled rows.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/diagnose_planted.h"

/* Of the bound: a prediction has its own rounding, and so has the run. */
static const double most_residual = 1.0;
/* Of the squared error that must be gone: what is left is noise. */
static const double least_explained = 0.9;

/* Differences below this share may be rounding. */
static const double relative_rounding = 0.01;

enum { MAX_FINDINGS = 256 };

static const struct cpa_hypothesis *const tables[] = {cpa_hypotheses_merging,
	cpa_hypotheses_partials, cpa_hypotheses_empty, cpa_hypotheses_overflow,
	cpa_hypotheses_positions, cpa_hypotheses_inputs,
	cpa_hypotheses_lengths, cpa_hypotheses_chunks, cpa_hypotheses_order,
	cpa_hypotheses_masks, cpa_hypotheses_readings, cpa_hypotheses_heads,
	cpa_hypotheses_layout, cpa_hypotheses_groups, cpa_hypotheses_buffers,
	cpa_hypotheses_branches};

/* Sums over rows, in units of the bounds. */
struct fit {
	double before, after; /* squares of observed - right, observed - predicted */
	double residual;
	double relative; /* over the largest of its row: of what is beyond bounds */
	int nrows;
	bool touched; /* some wrong row is predicted otherwise than right */
};

/* Whether it comes out as the one or the other depends on how a merge is written. */
static bool is_lost(double x)
{
	return isnan(x) || x == INFINITY;
}

/* How far apart, in bounds; of a row that sees nothing the bound is 0. */
static double in_bounds(double x, double y, double bound)
{
	if (x == y || (is_lost(x) && is_lost(y)))
		return 0.0;
	return !isfinite(x) || !isfinite(y) || bound == 0.0 ? 1e3 : fabs(x - y) / bound;
}

/* scale: of what was predicted for the row; only of a faulty run */
static void add_difference(struct fit *fit, double observed, double want, double predicted,
	double bound, double scale)
{
	double before = in_bounds(observed, want, bound),
	       after = in_bounds(observed, predicted, bound);

	fit->before += before * before;
	fit->after += after * after;
	if (!(after <= fit->residual))
		fit->residual = isnan(after) ? INFINITY : after;
	if (after > most_residual)
		fit->relative = fmax(fit->relative, fabs(observed - predicted) / scale);
}

/* As it is, where the prediction is the row itself. */
static struct cpa_bound bound_of(const struct cpa_suspect *s, struct cpa_suspect_row *row,
	const double *o, double lse)
{
	const struct cpa_bound *own = &row->bound, *open;
	bool same = fabs(lse - row->truth->lse) <= own->lse || isnan(lse);

	for (int64_t d = 0; same && d < s->problem->Dv; d++)
		same = fabs(o[d] - row->want[d]) <= own->o_abs + own->o_rel * fabs(o[d]);
	if (same)
		return *own;
	open = cpa_suspect_open_bound(s, row);
	return (struct cpa_bound){.o_abs = fmax(own->o_abs, open->o_abs),
		.o_rel = fmax(own->o_rel, open->o_rel),
		.lse = fmax(own->lse, open->lse)};
}

static void compare_row(const struct cpa_suspect *s, const struct cpa_hypothesis *it,
	struct cpa_suspect_row *row, const double *o, double lse, struct fit *fit)
{
	struct cpa_bound bound = bound_of(s, row, o, lse);

	double scale = 0.0;

	if (s->planted)
		cpa_planted_loosen(s, row, &bound);
	for (int64_t d = 0; s->planted && row->o && d < s->problem->Dv; d++)
		scale = fmax(scale, fabs(o[d]));
	for (int64_t d = 0; row->o && !it->lse_only && d < s->problem->Dv; d++)
		add_difference(fit, row->o[d], row->want[d], o[d],
			bound.o_abs + bound.o_rel * fmax(fabs(row->want[d]), fabs(o[d])), scale);
	if (row->has_lse)
		add_difference(fit, row->lse, row->truth->lse, lse,
			fmax(bound.lse, 0x1p-24 * fabs(lse)), fabs(lse));
	fit->nrows++;
}

/* False: some row refutes it. */
static bool fits(struct cpa_suspect *s, const struct cpa_hypothesis *it, const int64_t *unknown,
	double *o, struct fit *fit)
{
	*fit = (struct fit){0};
	s->nrounded = s->notherwise = 0;
	for (int i = 0; i < s->nrows; i++) {
		struct cpa_suspect_row *row = &s->rows[i];
		double lse = NAN;
		bool touched = it->predict(s, row, unknown, o, &lse);

		if (!touched && row->wrong)
			return false;
		if (!touched)
			continue; /* right, as predicted */
		fit->touched |= row->wrong;
		compare_row(s, it, row, o, lse, fit);
		if (!(fit->residual <= most_residual))
			return false;
	}
	return fit->touched && fit->after <= (1.0 - least_explained) * fit->before;
}

static void note(struct cpa_suspect *s, const struct cpa_hypothesis *it, const int64_t *unknown,
	const struct fit *fit, struct cpa_finding *finding)
{
	*finding = (struct cpa_finding){.class = it->class,
		.name = it->name,
		.probe = it->probe,
		.rank = -1,
		.hop = -1,
		.block = -1,
		.head = -1,
		.explained = 1.0 - fit->after / fit->before,
		.residual = sqrt(fit->after / fit->nrows),
		.nrows = fit->nrows};
	memcpy(finding->unknown, unknown, sizeof finding->unknown);
	snprintf(finding->text, sizeof finding->text, "%s", it->name);
	if (it->describe)
		it->describe(s, finding);
}

/* Where the next finding goes: behind the others, or in the place of the worst. */
static struct cpa_finding *next_place(struct cpa_finding *findings, int *n)
{
	struct cpa_finding *worst = findings;

	if (*n < MAX_FINDINGS)
		return &findings[(*n)++];
	for (int i = 1; i < MAX_FINDINGS; i++)
		if (findings[i].residual > worst->residual)
			worst = &findings[i];
	return worst;
}

static void try_hypothesis(struct cpa_suspect *s, const struct cpa_hypothesis *it, double *o,
	struct cpa_finding *findings, int *n)
{
	int64_t count[CPA_NUNKNOWNS] = {1, 1, 1, 1}, total = 1;

	if (it->applies && !it->applies(s))
		return;
	if (it->unknowns)
		it->unknowns(s, count);
	for (int u = 0; u < CPA_NUNKNOWNS; u++)
		total *= count[u];
	for (int64_t i = 0; i < total; i++) {
		int64_t unknown[CPA_NUNKNOWNS], rest = i;
		struct fit fit;

		for (int u = CPA_NUNKNOWNS - 1; u >= 0; u--) {
			unknown[u] = rest % count[u];
			rest /= count[u];
		}
		if (fits(s, it, unknown, o, &fit))
			note(s, it, unknown, &fit, next_place(findings, n));
	}
}

static int compare_findings(const void *a, const void *b)
{
	const struct cpa_finding *x = a, *y = b;

	if (x->residual != y->residual)
		return x->residual > y->residual ? 1 : -1;
	return x->planted - y->planted; /* a recipe says more in words */
}

/* Of findings that say the same, by other values of what is unknown, the best stays. */
static int drop_repeated(struct cpa_finding *list, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		int k = 0;

		while (k < kept &&
			(strcmp(list[k].class, list[i].class) != 0 ||
				strcmp(list[k].text, list[i].text) != 0))
			k++;
		if (k == kept)
			list[kept++] = list[i];
	}
	return kept;
}

/* Of one class only the best values of the unknowns, unless others explain as much in another
 * place. */
static int count_ties(const struct cpa_finding *findings, int n)
{
	int nties = n > 0;
	/* What is left after the best is the noise of the run; a tenth of the bound is noise too, and
	 * of few rows the mean says less. */
	double noise = n > 0 ? 2.0 * findings[0].residual + 0.1 + 0.3 / findings[0].nrows : 0.0;

	while (nties < n && findings[nties].residual <= noise)
		nties++;
	return nties;
}

/* What a faulty run says as well as a recipe of its class is said by the one that knows more of
 * the place. */
static bool says_same(const struct cpa_finding *a, const struct cpa_finding *b, int *more)
{
	const int of_a[] = {a->rank, a->hop, a->block, a->head},
		  of_b[] = {b->rank, b->hop, b->block, b->head};

	*more = 0;
	if (a->planted == b->planted || strcmp(a->class, b->class) != 0)
		return false;
	for (int i = 0; i < 4; i++) {
		if (of_a[i] >= 0 && of_b[i] >= 0 && of_a[i] != of_b[i])
			return false;
		*more += (of_a[i] >= 0) - (of_b[i] >= 0);
	}
	return true;
}

static int drop_covered(struct cpa_finding *list, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		bool covered = false;

		for (int k = 0, more; k < n && !covered; k++)
			covered = k != i && says_same(&list[i], &list[k], &more) &&
				  (more < 0 || (more == 0 && list[i].planted));
		if (!covered)
			list[kept++] = list[i];
	}
	return kept;
}

/* ---- all of them ---- */

struct search {
	struct cpa_suspect *s;
	double *o;
	struct cpa_finding *list;
	int n;
};

static double try_planted(void *context, const struct cpa_hypothesis *it)
{
	static const int64_t none[CPA_NUNKNOWNS];
	struct search *search = context;
	struct fit fit;

	if (fits(search->s, it, none, search->o, &fit))
		note(search->s, it, none, &fit, next_place(search->list, &search->n));
	else if (fit.residual <= most_residual)
		return INFINITY; /* a wrong row is not touched, or nothing is explained */
	/* Bounds of a row may be far below the rounding of what stands there. */
	return fit.relative < relative_rounding ? fmin(fit.residual, 2.0) : fit.residual;
}

enum cpa_status cpa_diagnose(struct cpa_suspect *s, struct cpa_finding **findings, int *n,
	int *nties, struct cpa_error *error)
{
	struct search search = {.s = s,
		.o = malloc((size_t)s->problem->Dv * sizeof(double)),
		.list = cpa_arena_alloc(&s->arena, MAX_FINDINGS * sizeof(struct cpa_finding))};
	enum cpa_status status = CPA_OK;

	if (!search.o || !search.list) {
		free(search.o);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis");
	}
	for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
		for (const struct cpa_hypothesis *it = tables[t]; it->class; it++)
			try_hypothesis(s, it, search.o, search.list, &search.n);
	status = cpa_planted_search(s, try_planted, &search, error);
	free(search.o);
	if (status == CPA_OK && s->arena.failed)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis");
	if (status != CPA_OK)
		return status;
	qsort(search.list, (size_t)search.n, sizeof *search.list, compare_findings);
	search.n = drop_repeated(search.list, search.n);
	int ntied = count_ties(search.list, search.n);
	*nties = drop_covered(search.list, ntied);
	memmove(search.list + *nties, search.list + ntied,
		(size_t)(search.n - ntied) * sizeof *search.list);
	*findings = search.list;
	*n = search.n - ntied + *nties;
	return CPA_OK;
}
