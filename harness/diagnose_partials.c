/*
 * diagnose_partials.c - more of A: partials that are rounded, misread or treated as nothing, and
 * what else goes into the denominator.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- A03: low precision ---- */

enum rounded { BLOCK_LSE, ALL_LSE, SUM, SUM_AND_LSE, BLOCK_OUTPUT, RETURNED_LSE, NROUNDED };

static const enum cpa_dtype low_formats[] = {CPA_DTYPE_BF16, CPA_DTYPE_FP16, CPA_DTYPE_FP32};

static double rounded(enum cpa_dtype dtype, double x)
{
	double bits[1] = {0};

	cpa_store(dtype, bits, 0, x);
	return cpa_load(dtype, bits, 0);
}

static void round_all(enum cpa_dtype dtype, double *o, int64_t n)
{
	for (int64_t d = 0; d < n; d++)
		o[d] = rounded(dtype, o[d]);
}

static double rounded_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	enum cpa_dtype low = low_formats[at->unknown[0]];

	if (at->unknown[1] == BLOCK_OUTPUT)
		round_all(low, o, at->s->problem->Dv);
	return at->unknown[1] == BLOCK_LSE || at->unknown[1] == ALL_LSE ? rounded(low, lse) : lse;
}

static void rounded_sum(const struct cpa_recipe_at *at, double *lse, double *o)
{
	enum cpa_dtype low = low_formats[at->unknown[0]];

	if (at->unknown[1] == SUM || at->unknown[1] == SUM_AND_LSE)
		round_all(low, o, at->s->problem->Dv);
	if (at->unknown[1] == ALL_LSE || at->unknown[1] == SUM_AND_LSE)
		*lse = rounded(low, *lse);
}

static void low_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->problem->dtype == CPA_DTYPE_FP64 ? 3 : 2;
	n[1] = NROUNDED;
	n[2] = s->R > 2 ? 2 : 1;
}

/*
 * A number close to the middle between two of the low format is rounded up in the run and down
 * here, or the other way: so it is taken as the run has it, where that is one step away.  Seldom:
 * of more than a fifth of the rows it is no accident.
 */
static void round_as_observed(struct cpa_suspect *s, const struct cpa_suspect_row *row,
	enum cpa_dtype low, bool weights, double *o, double *lse)
{
	double step = 2.1 * cpa_dtype_roundoff(low), most = fabs(row->truth->lse);
	bool other = false, far = false;

	/* Steps of what was there before values cancelled, or of weights. */
	most = (weights && isfinite(most) ? fmax(most, 1.0) : 1.0) * row->truth->v_max;
	for (int64_t d = 0; row->o && d < s->problem->Dv; d++) {
		double size = fmax(fabs(o[d]), fabs(row->o[d])), off = fabs(o[d] - row->o[d]);

		if (off <= row->bound.o_abs + row->bound.o_rel * size)
			continue;
		other = true;
		far |= !(off <= step * (size + most));
	}
	if (row->has_lse && !(fabs(*lse - row->lse) <= row->bound.lse)) {
		other = true;
		far |= !(fabs(*lse - row->lse) <= step * fabs(*lse));
	}
	s->nrounded++;
	s->notherwise += other;
	if (!other || far || 5 * s->notherwise > s->nrounded + 10)
		return;
	if (row->o)
		memcpy(o, row->o, (size_t)s->problem->Dv * sizeof *o);
	if (row->has_lse)
		*lse = row->lse;
}

static bool predict_low(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {
		.partial = rounded_partial, .merged = rounded_sum};
	struct cpa_recipe_at at = {.s = s,
		.row = row,
		.unknown = {unknown[0], unknown[1]},
		.direction = unknown[2] ? -1 : 1};
	enum cpa_dtype low = low_formats[unknown[0]];

	cpa_recipe_run(&recipe, &at, o, lse);
	if (unknown[1] == RETURNED_LSE)
		*lse = rounded(low, *lse);
	round_as_observed(s, row, low, unknown[1] == BLOCK_LSE || unknown[1] == ALL_LSE, o, lse);
	return true;
}

static void describe_low(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const what[] = {"the lse of each block is",
		"the lse of each block and of the sum is", "the accumulator is",
		"the accumulator and its lse are", "the output of each block is",
		"the lse returned is"};

	(void)s;
	snprintf(f->text, sizeof f->text, "%s rounded to %s", what[f->unknown[1]],
		cpa_dtype_name(low_formats[f->unknown[0]]));
}

/* ---- A08: a finite minus infinity ---- */

static bool is_zero(const struct cpa_suspect *s, const struct cpa_suspect_row *row)
{
	for (int64_t d = 0; d < s->problem->Dv; d++)
		if (row->o[d] != 0.0)
			return false;
	return true;
}

/* The largest lse among rows that came out zero; 0: no such row is this far down. */
static double threshold(const struct cpa_suspect *s)
{
	double most = -INFINITY;

	for (int i = 0; i < s->nrows; i++)
		if (s->rows[i].o && s->rows[i].wrong && is_zero(s, &s->rows[i]))
			most = fmax(most, s->rows[i].truth->lse);
	return most < -1e3 && most > -INFINITY ? most : 0.0;
}

/* Rows below the sentinel come out zero, and with whatever lse. */
static bool predict_sentinel(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	double most = threshold(s);

	(void)unknown;
	if (most == 0.0 || !row->o || row->truth->lse > most)
		return false;
	memset(o, 0, (size_t)s->problem->Dv * sizeof *o);
	*lse = row->lse;
	return true;
}

static void describe_sentinel(const struct cpa_suspect *s, struct cpa_finding *f)
{
	snprintf(f->text, sizeof f->text,
		"rows whose scores all lie below about %.3g come out zero: minus infinity is a "
		"finite number",
		threshold(s));
}

/* ---- A11: lse read in another layout ---- */

/* Of a list of n tokens, the lse of number i and head h stands where that of *i and *h is read
 * from; false: padding is. */
static bool misread(int64_t kind, int64_t n, int64_t H, int64_t *i, int64_t *h)
{
	static const int64_t multiples[] = {8, 16, 32, 64, 128};
	int64_t flat, stride;

	if (kind == 0) { /* written [S, H], read as [H, S] */
		flat = *h * n + *i;
		*i = flat / H;
		*h = flat % H;
		return true;
	}
	if (kind == 1) { /* written [H, S], read as [S, H] */
		flat = *i * H + *h;
		*h = flat / n;
		*i = flat % n;
		return true;
	}
	stride = kind < 7
		? (n + multiples[kind - 2] - 1) / multiples[kind - 2] * multiples[kind - 2]
		: n + kind - 6;
	flat = *h * n + *i;
	*h = flat / stride;
	*i = flat % stride;
	return *i < n;
}

static double block_lse(const struct cpa_suspect *s, int64_t b, int64_t t, int64_t h, int block)
{
	const struct cpa_problem *p = s->problem;
	int64_t first = block < 0 ? 0 : s->block_start[block];
	double max = -INFINITY, total = 0.0;

	for (int64_t i = first; i < s->block_start[block + 1]; i++) {
		int64_t j = s->block_keys[i];
		double score = cpa_suspect_masked(s, &p->rule,
			cpa_suspect_score(s, b, t, h, b, j, h / (p->Hq / p->Hkv)), b, t, h, j);
		double more = fmax(max, score);

		if (more == -INFINITY)
			continue;
		total = total * exp(max - more) + exp(score - more);
		max = more;
	}
	return total > 0.0 ? max + log(total) : -INFINITY;
}

/* The ulysses rank's heads, cut evenly, and the ring rank's queries. */
static double misread_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	const struct cpa_suspect *s = at->s;
	const int64_t *tokens = s->query_list + s->query_start[at->ring];
	int64_t n = s->query_start[at->ring + 1] - s->query_start[at->ring],
		H = s->problem->Hq / s->U, i = 0, h = at->row->h % H;

	(void)o;
	while (i < n && tokens[i] != at->row->t)
		i++;
	if (i == n)
		return lse; /* a replicated query */
	if (!misread(at->unknown[0], n, H, &i, &h))
		return at->unknown[2] ? -INFINITY : 0.0;
	return block_lse(s, at->row->b, tokens[i], at->row->h / H * H + h, at->block);
}

static bool predict_returned_misread(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int cp = s->query_rank[row->t];
	int64_t i = s->query_index[row->t], h = row->h, t = 0, n = cp < 0 ? 0 : s->nqueries[cp];

	if (cp < 0)
		return false;
	*lse = unknown[2] ? -INFINITY : 0.0;
	if (misread(unknown[0], n, s->problem->Hq, &i, &h)) {
		while (t < s->problem->Sq && (s->query_rank[t] != cp || s->query_index[t] != i))
			t++;
		if (t == s->problem->Sq)
			return false;
		cpa_suspect_attend(
			s, NULL, row->b, t, h, h / (s->problem->Hq / s->problem->Hkv), o, lse);
	}
	memcpy(o, row->want, (size_t)s->problem->Dv * sizeof *o);
	return true;
}

/* Layout; where merged, or only in what is returned; padding holds 0 or -inf. */
static void misread_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 9;
	n[1] = 2;
	n[2] = 2;
}

static bool predict_misread(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.partial = misread_partial};
	struct cpa_recipe_at at = {
		.s = s, .row = row, .unknown = {unknown[0], unknown[1], unknown[2]}};

	if (unknown[0] < 2 && unknown[2])
		return false; /* there is no padding */
	if (unknown[1])
		return predict_returned_misread(s, row, unknown, o, lse);
	if (s->R == 1 || s->problem->Hq % s->U)
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_misread(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "the lse %s is %s",
		f->unknown[1] ? "returned" : "that merges partials",
		f->unknown[0] == 0	     ? "written [S,H] and read as [H,S]"
			: f->unknown[0] == 1 ? "written [H,S] and read as [S,H]"
					     : "written in padded rows and read as packed");
}

/* ---- A12: the sink ---- */

enum { SINK_NEVER, SINK_EACH_BLOCK, SINK_EACH_SEEN, SINK_ONCE_MORE, NSINKS };

static double sunk_partial(const struct cpa_recipe_at *at, double lse, double *o)
{
	double sink = at->s->problem->rule.sink[at->row->h], more;

	if (at->unknown[0] == SINK_NEVER ||
		(at->unknown[0] == SINK_EACH_SEEN && lse == -INFINITY))
		return lse;
	more = lse == -INFINITY ? sink : fmax(lse, sink) + log1p(exp(-fabs(lse - sink)));
	for (int64_t d = 0; d < at->s->problem->Dv; d++)
		o[d] *= exp(lse - more);
	return more;
}

static bool has_sink(const struct cpa_suspect *s)
{
	return s->problem->rule.sink != NULL;
}

static void sink_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->R > 1 ? NSINKS : 1;
}

static bool predict_sink(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe never = {.partial = sunk_partial, .no_sink = true},
				       more = {.partial = sunk_partial};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0]}};

	cpa_recipe_run(unknown[0] == SINK_ONCE_MORE ? &more : &never, &at, o, lse);
	return true;
}

static void describe_sink(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const how[] = {"never counts", "counts in each block",
		"counts in each block that the row sees", "counts in each block and at the end"};

	(void)s;
	snprintf(f->text, sizeof f->text, "the sink %s", how[f->unknown[0]]);
}

const struct cpa_hypothesis cpa_hypotheses_partials[] = {
	{"A03", "lse, accumulator or outputs of blocks are kept in low precision",
		"scores three times as large", NULL, low_unknowns, predict_low, describe_low,
		false, false},
	{"A08", "minus infinity is a finite number", "scores of one row 6e4 lower", NULL, NULL,
		predict_sentinel, describe_sentinel, false, false},
	{"A11", "lse is written in one layout and read in another",
		"lse that tells token and head", NULL, misread_unknowns, predict_misread,
		describe_misread, false, false},
	{"A12", "the sink is left out, or counts in more than one block", "K = 0 and a sink of 0",
		has_sink, sink_unknowns, predict_sink, describe_sink, false, false},
	{0},
};
