/*
 * diagnose_overflow.c - A04: exponentials that leave the range of their type.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANK, FORM, TYPE, DIRECTION }; /* unknowns; RANK 0: all */

/* Of FORM: a weight exp(lse) that overflows; the same where sums may overflow too and rows whose
 * weights all vanish are 0/0; a running lse + log(1 + exp(d)). */
enum { OVERFLOWS, RAW, LOG1P, NFORMS };

/* ln of the largest number, and of half the smallest.  Lse is kept in the first, or in the type
 * of the problem. */
static const struct {
	const char *name;
	enum cpa_dtype dtype;
	double most, least;
} types[] = {{"fp32", CPA_DTYPE_FP32, 88.722839, -103.97208},
	{"fp16", CPA_DTYPE_FP16, 11.089866, -17.328680},
	{"fp64", CPA_DTYPE_FP64, 709.78271, -745.13321}};
enum { NTYPES = sizeof types / sizeof types[0] };

static void keep_largest(
	const struct cpa_recipe_at *at, double *o, double *lse, const double *o_b, double lse_b)
{
	(void)at, (void)o, (void)o_b;
	*lse = fmax(*lse, lse_b);
}

/* Weights as they are, merged in any order. */
static bool predict_raw(struct cpa_recipe_at *at, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.join = keep_largest, .no_sink = true};
	double L = at->row->truth->lse, most = types[at->unknown[TYPE]].most;
	bool raw = at->unknown[FORM] == RAW, over, under;

	cpa_recipe_run(&recipe, at, o, lse);
	over = *lse > most || (raw && L > most);
	under = raw && L > -INFINITY && L < types[at->unknown[TYPE]].least;
	if (!over && !under)
		return false;
	/* Of a sum alone that overflows: finite numbers by infinity. */
	for (int64_t d = 0; d < at->s->problem->Dv; d++)
		o[d] = *lse > most || under ? NAN : 0.0;
	*lse = over ? INFINITY : -INFINITY;
	return true;
}

static void join_log1p(
	const struct cpa_recipe_at *at, double *o, double *lse, const double *o_b, double lse_b)
{
	double more, x, y;

	if (lse_b == -INFINITY)
		return;
	if (*lse == -INFINITY) {
		memcpy(o, o_b, (size_t)at->s->problem->Dv * sizeof *o);
		*lse = lse_b;
		return;
	}
	more = lse_b - *lse > types[at->unknown[TYPE]].most ? INFINITY
							    : *lse + log1p(exp(lse_b - *lse));
	x = exp(*lse - more);
	y = exp(lse_b - more);
	for (int64_t d = 0; d < at->s->problem->Dv; d++)
		o[d] = x * o[d] + y * o_b[d];
	*lse = more;
}

static bool applies(const struct cpa_suspect *s)
{
	bool large = false;

	for (int i = 0; i < s->nrows && !large; i++)
		large = s->rows[i].wrong && isinf(s->rows[i].ratio);
	return large;
}

static void unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[RANK] = s->W > 1 ? s->W + 1 : 1;
	n[FORM] = NFORMS;
	n[TYPE] = NTYPES;
	n[DIRECTION] = s->R > 2 ? 2 : 1;
}

static bool predict(struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown,
	double *o, double *lse)
{
	static const struct cpa_recipe running = {.join = join_log1p};
	struct cpa_recipe_at at = {.s = s, .row = row, .direction = unknown[DIRECTION] ? -1 : 1};

	memcpy(at.unknown, unknown, sizeof at.unknown);
	if (unknown[TYPE] > 0 && types[unknown[TYPE]].dtype != s->problem->dtype)
		return false;
	if (unknown[RANK] > 0 && cpa_suspect_worker(s, row) != unknown[RANK] - 1)
		return false;
	if (unknown[FORM] != LOG1P)
		return predict_raw(&at, o, lse);
	cpa_recipe_run(&running, &at, o, lse);
	return true;
}

static void describe(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s overflows %s, beyond %.4g",
		f->unknown[FORM] == LOG1P ? "exp of the difference of two lse"
					  : "exp(lse) itself is the weight, which",
		types[f->unknown[TYPE]].name, types[f->unknown[TYPE]].most);
	cpa_finding_say_rank(f, f->unknown[RANK]);
}

const struct cpa_hypothesis cpa_hypotheses_overflow[] = {
	{"A04", "an exponential overflows", "q half as large: what is NaN must be gone", applies,
		unknowns, predict, describe, false, false},
	{0},
};
