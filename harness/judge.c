/*
 * judge.c - full attention on the judged rows, and whether a run lies within the bounds of
 * NUMERICS section 2.  One pass over the rows does all: the hard rule for each element, and the
 * sums that the soft rule needs for each (batch item, head).
 */
#include "harness/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The soft rule is a statement about norms: too few numbers have none worth judging. */
enum { SOFT_ELEMENTS = 1024 };

/* Above this the reference takes the default rows only (4 Sq Skv D Hq B flop). */
static const double all_rows_flop = 1e11;
enum { DEFAULT_ROWS = 256 };

/* ---- the truth ---- */

enum cpa_status cpa_truth_choose(const struct cpa_problem *p, int64_t asked, bool **wanted,
	struct cpa_error *error)
{
	int64_t n = asked ? asked : DEFAULT_ROWS;
	double flop = 4.0 * (double)p->Sq * (double)p->Skv * (double)p->D * (double)p->Hq *
		      (double)p->B;
	*wanted = NULL;
	if ((asked == 0 && flop <= all_rows_flop) || n >= p->Sq)
		return CPA_OK;
	bool *rows = calloc((size_t)p->Sq, sizeof *rows);
	if (!rows)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a list of rows");
	for (int64_t i = 0; i < n; i++)
		rows[n == 1 ? 0
			    : (int64_t)((double)i * (double)(p->Sq - 1) / (double)(n - 1))] =
			true;
	*wanted = rows;
	return CPA_OK;
}

static enum cpa_status alloc_truth(struct cpa_truth *truth, struct cpa_error *error)
{
	const struct cpa_problem *p = &truth->problem;
	size_t rows = (size_t)(p->B * truth->n * p->Hq);
	truth->tokens = malloc((size_t)truth->n * sizeof *truth->tokens);
	truth->o = malloc(rows * (size_t)p->Dv * sizeof *truth->o);
	truth->o_norm = malloc(rows * sizeof *truth->o_norm);
	truth->rows = malloc(rows * sizeof *truth->rows);
	if (!truth->tokens || !truth->o || !truth->o_norm || !truth->rows)
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for the reference of %lld rows; "
			"--rows N takes fewer",
			(long long)rows);
	return CPA_OK;
}

/* One row into its place.  work [Skv] scratch. */
static void compute_row(struct cpa_truth *truth, const struct cpa_ref_head *head,
	struct cpa_view q, int64_t b, int64_t i, int64_t h, double *work)
{
	const struct cpa_problem *p = &truth->problem;
	int64_t at = (b * truth->n + i) * p->Hq + h;
	double *o = truth->o + at * p->Dv, square = 0.0;
	cpa_ref_row(head, q, h, truth->tokens[i], o, &truth->rows[at], work);
	for (int64_t d = 0; d < p->Dv; d++)
		square += o[d] * o[d];
	truth->o_norm[at] = sqrt(square);
}

/* All judged rows of one key head: query heads first .. first+g-1.  False: out of memory. */
static bool compute_head(struct cpa_truth *truth, const struct cpa_ref_head *head,
	struct cpa_view q, int64_t b, int64_t first, int64_t g)
{
	bool failed = false;
#ifdef _OPENMP
#pragma omp parallel
#endif
	{
		double *work = malloc((size_t)truth->problem.Skv * sizeof *work);
		if (!work) {
#ifdef _OPENMP
#pragma omp atomic write
#endif
			failed = true;
		}
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 8)
#endif
		for (int64_t i = 0; i < truth->n * g; i++)
			if (work)
				compute_row(truth, head, q, b, i / g, first + i % g, work);
		free(work);
	}
	return !failed;
}

static enum cpa_status compute_truth(
	struct cpa_truth *truth, const struct cpa_tensors *tensors, struct cpa_error *error)
{
	const struct cpa_problem *p = &truth->problem;
	struct cpa_view q = cpa_view_bshd(tensors->q, p->dtype, p->Sq, p->Hq, p->D);
	struct cpa_view k = cpa_view_bshd(tensors->k, p->dtype, p->Skv, p->Hkv, p->D);
	struct cpa_view v = cpa_view_bshd(tensors->v, p->dtype, p->Skv, p->Hkv, p->Dv);
	int64_t g = p->Hq / p->Hkv;
	for (int64_t b = 0; b < p->B; b++)
		for (int64_t h = 0; h < p->Hkv; h++) {
			struct cpa_ref_head *head;
			enum cpa_status s = cpa_ref_head_create(p, k, v, b, h, &head, error);
			if (s != CPA_OK)
				return s;
			bool done = compute_head(truth, head, q, b, h * g, g);
			cpa_ref_head_destroy(head);
			if (!done)
				return cpa_fail(error, CPA_NO_MEMORY,
					"out of memory for one row of %lld weights "
					"a thread",
					(long long)p->Skv);
		}
	return CPA_OK;
}

enum cpa_status cpa_truth_create(const struct cpa_tensors *tensors, const bool *wanted,
	struct cpa_truth **truth, struct cpa_error *error)
{
	struct cpa_truth *t = calloc(1, sizeof *t);
	if (!t)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the reference");
	t->problem = *tensors->problem;
	int64_t Sq = t->problem.Sq;
	t->held = (struct cpa_rows){{0, t->problem.B}, Sq, NULL};
	for (int64_t i = 0; i < Sq; i++)
		t->n += !wanted || wanted[i];
	enum cpa_status s = alloc_truth(t, error);
	if (s == CPA_OK) {
		int64_t n = 0;
		for (int64_t i = 0; i < Sq; i++)
			if (!wanted || wanted[i])
				t->tokens[n++] = i;
		s = compute_truth(t, tensors, error);
	}
	if (s == CPA_OK)
		*truth = t;
	else
		cpa_truth_destroy(t);
	return s;
}

void cpa_truth_destroy(struct cpa_truth *truth)
{
	if (!truth)
		return;
	free(truth->tokens);
	free(truth->index);
	free(truth->o);
	free(truth->o_norm);
	free(truth->rows);
	free(truth);
}

/* ---- was everything written? ---- */

/* Bits of an element: exponent all ones is NaN or infinite, and `minus` is -inf. */
#define FIND(type, exponent, minus)                                     \
	do {                                                            \
		const type *x = data;                                   \
		for (int64_t i = 0; i < n; i++)                         \
			if ((x[i] & (exponent)) == (exponent) &&        \
				!(minus_inf_passes && x[i] == (minus))) \
				return i;                               \
	} while (0)

int64_t cpa_find_not_finite(
	enum cpa_dtype dtype, const void *data, int64_t n, bool minus_inf_passes)
{
	switch (dtype) {
	case CPA_DTYPE_FP64:
		FIND(uint64_t, UINT64_C(0x7ff) << 52, UINT64_C(0xfff) << 52);
		break;
	case CPA_DTYPE_FP32:
		FIND(uint32_t, UINT32_C(0xff) << 23, UINT32_C(0x1ff) << 23);
		break;
	case CPA_DTYPE_BF16:
		FIND(uint16_t, 0x7f80, 0xff80);
		break;
	case CPA_DTYPE_FP16:
		FIND(uint16_t, 0x7c00, 0xfc00);
		break;
	}
	return -1;
}

/* ---- judging ---- */

void cpa_deviation_note(
	struct cpa_deviation *worst, double error, double bound, struct cpa_place at)
{
	double ratio = error == 0.0 ? 0.0 : error / bound;
	if (isnan(ratio)) /* never written */
		ratio = INFINITY;
	if (!(ratio > worst->ratio))
		return;
	worst->error = error;
	worst->bound = bound;
	worst->ratio = ratio;
	worst->batch = at.batch;
	worst->token = at.token;
	worst->head = at.head;
	worst->dim = at.dim;
}

struct judging {
	const struct cpa_truth *truth;
	const struct cpa_judge_run *run;
	struct cpa_judgement *out;
	double *got;                   /* [Hq, Dv] o of one token */
	double *lse;                   /* [Hq] */
	struct cpa_judge_tally *heads; /* [B, Hq] */
	struct cpa_judge_sums sums;
	double o_square;
};

/* The hard rule on one row of o; returns |o - o*|^2. */
static double judge_o(struct cpa_deviation *worst, const struct cpa_bound *bound,
	const double *got, const double *want, int64_t Dv, struct cpa_place at)
{
	double square = 0.0, ratio = worst->ratio;
	for (int64_t d = 0; d < Dv; d++) {
		double error = fabs(got[d] - want[d]);
		double allowed = bound->o_abs + bound->o_rel * fabs(want[d]);
		square += error * error;
		if (!(error <= allowed * ratio)) { /* seldom; NaN comes here too */
			at.dim = d;
			cpa_deviation_note(worst, error, allowed, at);
			ratio = worst->ratio;
		}
	}
	return square;
}

double cpa_lse_error(double got, double want)
{
	if (isinf(want)) /* a row that sees no key: exactly -inf */
		return got == want ? 0.0 : isnan(got) ? NAN : INFINITY;
	return fabs(got - want);
}

static void judge_lse(struct judging *j, const struct cpa_bound *bound,
	const struct cpa_row *row, struct cpa_place at, struct cpa_judge_tally *tally)
{
	double error = cpa_lse_error(j->lse[at.head], row->lse);
	cpa_deviation_note(&j->sums.lse, error, bound->lse, at);
	if (!(error <= tally->lse_max))
		tally->lse_max = error;
	if (isinf(row->lse))
		return;
	j->sums.lse_square += error * error;
	j->sums.lse_want_square += row->lse * row->lse;
	if (!j->run->one_rank)
		return;
	const struct cpa_problem *p = &j->truth->problem;
	double allowed =
		2.0 * j->run->one_rank[at.batch * p->Hq + at.head].lse_max + bound->soft_lse;
	double share = error == 0.0 ? 0.0 : error / allowed;
	if (!(share <= tally->lse_soft))
		tally->lse_soft = share;
}

static void judge_token(struct judging *j, int64_t b, int64_t i)
{
	const struct cpa_truth *truth = j->truth;
	const struct cpa_problem *p = &truth->problem;
	const struct cpa_rows *held = &truth->held;
	int64_t t = truth->tokens[i], nth = b - held->batches.start;
	int64_t at = (nth * held->ntokens + (truth->index ? truth->index[i] : t)) * p->Hq;
	enum cpa_dtype lse_dtype = cpa_problem_lse_dtype(p);
	cpa_convert(CPA_DTYPE_FP64, j->got, p->dtype,
		(const char *)j->run->o + (size_t)(at * p->Dv) * cpa_dtype_nbytes(p->dtype),
		p->Hq * p->Dv);
	if (j->run->lse)
		cpa_convert(CPA_DTYPE_FP64, j->lse, lse_dtype,
			(const char *)j->run->lse + (size_t)at * cpa_dtype_nbytes(lse_dtype),
			p->Hq);
	for (int64_t h = 0; h < p->Hq; h++) {
		int64_t row = (nth * truth->n + i) * p->Hq + h;
		struct cpa_judge_tally *tally = &j->heads[b * p->Hq + h];
		struct cpa_place place = {b, t, h, 0};
		struct cpa_bound bound;
		cpa_bound_row(&j->run->bound, &truth->rows[row], truth->o_norm[row], &bound);
		tally->n += 1.0;
		tally->o_square += judge_o(&j->sums.o, &bound, j->got + h * p->Dv,
			truth->o + row * p->Dv, p->Dv, place);
		tally->o_floor_square += bound.soft_row * bound.soft_row;
		j->sums.want_square += truth->o_norm[row] * truth->o_norm[row];
		if (j->run->lse)
			judge_lse(j, &bound, &truth->rows[row], place, tally);
	}
}

/* The soft rule for one head, once all its rows are in. */
static void judge_head(struct judging *j, int64_t b, int64_t h)
{
	struct cpa_judgement *out = j->out;
	const struct cpa_problem *p = &j->truth->problem;
	int64_t at = b * p->Hq + h;
	const struct cpa_judge_tally *tally = &j->heads[at];
	j->o_square += tally->o_square;
	if (j->run->measured)
		j->run->measured[at] = (struct cpa_head_error){tally->o_square, tally->lse_max};
	if (!j->run->one_rank || tally->n * (double)p->Dv < SOFT_ELEMENTS)
		return;
	double allowed =
		2.0 * sqrt(j->run->one_rank[at].o_square) + sqrt(tally->o_floor_square);
	double share = tally->o_square == 0.0 ? 0.0 : sqrt(tally->o_square) / allowed;
	if (isnan(share))
		share = INFINITY;
	if (!(share <= out->o.soft_ratio)) {
		out->o.soft_ratio = share;
		out->o_soft_batch = b;
		out->o_soft_head = h;
	}
	share = isnan(tally->lse_soft) ? INFINITY : tally->lse_soft;
	if (j->run->lse && !(share <= out->lse.soft_ratio)) {
		out->lse.soft_ratio = share;
		out->lse_soft_batch = b;
		out->lse_soft_head = h;
	}
}

/* Row number `row` of the outputs. */
static struct cpa_place place_of(const struct cpa_truth *truth, int64_t row, int64_t dim)
{
	const struct cpa_rows *held = &truth->held;
	int64_t Hq = truth->problem.Hq, index = row / Hq % held->ntokens;
	return (struct cpa_place){held->batches.start + row / Hq / held->ntokens,
		held->tokens ? cpa_spans_token(held->tokens, index) : index, row % Hq, dim};
}

/* Rows that are not judged must at least have been written. */
static void judge_written(struct judging *j)
{
	const struct cpa_problem *p = &j->truth->problem;
	const struct cpa_rows *held = &j->truth->held;
	int64_t nrows = (held->batches.end - held->batches.start) * held->ntokens * p->Hq;
	int64_t at = cpa_find_not_finite(p->dtype, j->run->o, nrows * p->Dv, false);
	j->sums.o_written = at < 0;
	if (at >= 0)
		cpa_deviation_note(&j->sums.o, NAN, NAN, place_of(j->truth, at / p->Dv, at % p->Dv));
	at = j->run->lse
		     ? cpa_find_not_finite(cpa_problem_lse_dtype(p), j->run->lse, nrows, true)
		     : -1;
	j->sums.lse_written = at < 0;
	if (at >= 0)
		cpa_deviation_note(&j->sums.lse, NAN, NAN, place_of(j->truth, at, 0));
}

const struct cpa_deviation cpa_no_deviation = {.rel_l2 = NAN,
	.error = NAN,
	.bound = NAN,
	.ratio = -1.0,
	.soft_ratio = NAN,
	.batch = -1,
	.token = -1,
	.head = -1,
	.dim = -1};

/* |error| / |want| of sums of squares. */
static double relative(double square, double want_square)
{
	double ratio = square == 0.0 ? 0.0 : sqrt(square / want_square);
	return isnan(ratio) ? INFINITY : ratio;
}

static void finish(struct judging *j)
{
	struct cpa_judgement *out = j->out;
	if (out->o.ratio < 0.0) /* every judged row is empty, and rightly so */
		out->o.ratio = 0.0;
	out->o.rel_l2 = relative(j->o_square, j->sums.want_square);
	if (j->run->lse)
		out->lse.rel_l2 = relative(j->sums.lse_square, j->sums.lse_want_square);
	else
		out->lse.ratio = NAN;
	out->lse.dim = -1; /* lse has no features */
	/* What was never written has an infinite ratio; NaN is what does not exist. */
	out->right = out->o.ratio <= 1.0 && !(out->lse.ratio > 1.0) &&
		     !(out->o.soft_ratio > 1.0) && !(out->lse.soft_ratio > 1.0);
}

static void judge_rows(struct judging *j)
{
	const struct cpa_truth *truth = j->truth;
	j->sums = (struct cpa_judge_sums){.o = cpa_no_deviation, .lse = cpa_no_deviation};
	for (int64_t b = truth->held.batches.start; b < truth->held.batches.end; b++)
		for (int64_t i = 0; i < truth->n; i++)
			judge_token(j, b, i);
	judge_written(j);
}

static void judge_whole(struct judging *j)
{
	const struct cpa_problem *p = &j->truth->problem;
	*j->out = (struct cpa_judgement){.o = j->sums.o,
		.lse = j->sums.lse,
		.o_soft_batch = -1,
		.o_soft_head = -1,
		.lse_soft_batch = -1,
		.lse_soft_head = -1,
		.o_written = j->sums.o_written,
		.lse_written = j->sums.lse_written};
	for (int64_t b = 0; b < p->B; b++)
		for (int64_t h = 0; h < p->Hq; h++)
			judge_head(j, b, h);
	finish(j);
}

enum cpa_status cpa_judge(const struct cpa_truth *truth, const struct cpa_judge_run *run,
	struct cpa_judgement *judgement, struct cpa_error *error)
{
	const struct cpa_problem *p = &truth->problem;
	size_t Hq = (size_t)p->Hq;
	struct judging j = {.truth = truth,
		.run = run,
		.out = judgement,
		.got = malloc(Hq * (size_t)p->Dv * sizeof *j.got),
		.lse = malloc(Hq * sizeof *j.lse),
		.heads = calloc((size_t)p->B * Hq, sizeof *j.heads)};
	enum cpa_status s = CPA_OK;
	if (!j.got || !j.lse || !j.heads)
		s = cpa_fail(error, CPA_NO_MEMORY, "out of memory for judging");
	else
		judge_rows(&j);
	if (run->combine) /* even after a failure, because others wait for it */
		s = run->combine(run->context, s == CPA_OK ? &j.sums : NULL, j.heads, error);
	if (s == CPA_OK)
		judge_whole(&j);
	free(j.got);
	free(j.lse);
	free(j.heads);
	return s;
}
