/*
 * check_part.c - the outputs of the one device or of one rank, row by row within their bounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"

/* o or lse as one part holds it, in double. */
struct output {
	struct cpa_held held;
	double *x; /* [nbatches, ntokens, nheads, dim] */
};

struct judging {
	const struct cpa_checked *checked;
	struct cpa_bound_run bound;
	struct cpa_arena *arena;
	struct cpa_deviation *worst;
	struct cpa_wrong *wrong, *lost; /* NULL: only how far off is asked for */
	double square, want_square;
	int64_t njudged;
	/* [ntokens] places in truth->tokens of wrong rows of one head, and of those not finite */
	int64_t *bad, *bad_lost;
	double head_ratio; /* of the head so far */
};

/* ---- reading ---- */

static const int64_t *count_up(struct cpa_arena *arena, int64_t n)
{
	int64_t *ids = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *ids);
	for (int64_t i = 0; ids && i < n; i++)
		ids[i] = i;
	return ids;
}

/* What the one device returned: all of it. */
static struct cpa_held held_by_call(
	const struct cpa_problem *p, const char *tensor, struct cpa_arena *arena)
{
	struct cpa_held held = {.rank = -1,
		.nbatches = p->B,
		.ntokens = p->Sq,
		.nheads = p->Hq,
		.dim = tensor[0] == 'o' ? p->Dv : 1,
		.batches = count_up(arena, p->B),
		.tokens = count_up(arena, p->Sq),
		.heads = count_up(arena, p->Hq)};
	snprintf(held.tensor, sizeof held.tensor, "%s", tensor);
	return held;
}

static const struct cpa_held *find_held(const struct cpa_call *call, int rank, const char *tensor)
{
	for (int n = 0; n < call->nheld; n++)
		if (call->held[n].rank == rank && strcmp(call->held[n].tensor, tensor) == 0)
			return &call->held[n];
	return NULL;
}

/* x stays NULL where the part does not hold the tensor. */
static enum cpa_status read_output(const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, int rank, const char *tensor,
	struct cpa_arena *arena, struct output *output, struct cpa_error *error)
{
	const struct cpa_problem *p = &checked->call->problem;
	const struct cpa_held *held = rank < 0 ? NULL : find_held(checked->call, rank, tensor);
	bool there = rank < 0 ? (tensor[0] == 'o' ? checked->call->has_o : checked->call->has_lse)
			      : held != NULL;
	struct cpa_span all = {0, p->Sq, p->Sq, 1};
	struct cpa_spans tokens = {&all, 1, 1};
	*output = (struct output){0};
	if (!there)
		return CPA_OK;
	output->held = held ? *held : held_by_call(p, tensor, arena);
	size_t n = (size_t)(output->held.nbatches * output->held.ntokens * output->held.nheads *
		output->held.dim);
	output->x = malloc((n + 1) * sizeof *output->x);
	if (!output->x || arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for %s", tensor);
	return held
		? cpa_recording_read_held(recording, i, held, CPA_DTYPE_FP64, output->x, error)
		: cpa_recording_read(recording, i, tensor, (struct cpa_range){0, p->B}, &tokens,
			  CPA_DTYPE_FP64, output->x, error);
}

/* ---- judging ---- */

/* The part of a row that is off; true: beyond its bound. */
static bool judge_row(struct judging *j, const double *got, int64_t dim, int64_t row,
	struct cpa_place at, bool lse)
{
	const struct cpa_truth *truth = j->checked->truth;
	struct cpa_deviation worst = {.ratio = -1.0, .soft_ratio = NAN};
	struct cpa_bound bound;
	cpa_bound_row(&j->bound, &truth->rows[row], truth->o_norm[row], &bound);
	for (int64_t d = 0; d < dim; d++) {
		double want = lse ? truth->rows[row].lse : truth->o[row * truth->problem.Dv + d];
		double error = lse ? cpa_lse_error(got[d], want) : fabs(got[d] - want);
		at.dim = lse ? -1 : d;
		cpa_deviation_note(&worst, error,
			lse ? bound.lse : bound.o_abs + bound.o_rel * fabs(want), at);
		if (isinf(want) && error == 0.0)
			continue; /* both -inf */
		j->square += error * error;
		j->want_square += isinf(want) ? 0.0 : want * want;
	}
	j->njudged++;
	if (worst.ratio > j->head_ratio)
		j->head_ratio = worst.ratio;
	if (worst.ratio > j->worst->ratio)
		*j->worst = worst;
	return worst.ratio > 1.0;
}

static int compare_places(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* Neighbours among the judged tokens make one range.   bad [nbad] is sorted */
static void list_rows(const struct judging *j, int64_t batch, int64_t head, int64_t *bad,
	int64_t nbad, struct cpa_wrong *wrong)
{
	const int64_t *tokens = j->checked->truth->tokens;
	struct cpa_wrong_head *it = &wrong->at[wrong->n];
	if (nbad == 0)
		return;
	qsort(bad, (size_t)nbad, sizeof *bad, compare_places);
	*it = (struct cpa_wrong_head){
		.batch = batch, .head = head, .nrows = nbad, .ratio = j->head_ratio};
	it->tokens = cpa_arena_alloc(j->arena, (size_t)nbad * sizeof *it->tokens);
	if (!it->tokens)
		return;
	for (int64_t i = 0; i < nbad; i++) {
		if (i == 0 || bad[i] > bad[i - 1] + 1)
			it->tokens[it->ntokens++].start = tokens[bad[i]];
		it->tokens[it->ntokens - 1].end = tokens[bad[i]] + 1;
	}
	wrong->n++;
	wrong->nrows += nbad;
}

/* -inf is the lse of a row that sees no key. */
static bool is_lost(const double *got, int64_t dim, bool lse)
{
	for (int64_t d = 0; d < dim; d++)
		if (!isfinite(got[d]) && !(lse && got[d] < 0.0))
			return true;
	return false;
}

static void judge_head(struct judging *j, const struct output *output, int64_t ib, int64_t ih)
{
	const struct cpa_held *held = &output->held;
	const struct cpa_truth *truth = j->checked->truth;
	int64_t b = held->batches[ib], h = held->heads[ih], nbad = 0, nlost = 0;
	bool lse = held->tensor[0] == 'l';
	j->head_ratio = 0.0;
	for (int64_t it = 0; it < held->ntokens; it++) {
		int64_t t = held->tokens[it], n = t < 0 ? -1 : j->checked->index[t];
		const double *got = output->x +
			((ib * held->ntokens + it) * held->nheads + ih) * held->dim;
		if (n < 0 ||
			!judge_row(j, got, held->dim, (b * truth->n + n) * truth->problem.Hq + h,
				(struct cpa_place){b, t, h, -1}, lse))
			continue;
		j->bad[nbad++] = n;
		if (is_lost(got, held->dim, lse))
			j->bad_lost[nlost++] = n;
	}
	if (!j->wrong)
		return;
	list_rows(j, b, h, j->bad, nbad, j->wrong);
	list_rows(j, b, h, j->bad_lost, nlost, j->lost);
}

static struct cpa_wrong list_of_heads(struct cpa_arena *arena, int64_t n)
{
	struct cpa_wrong list = {0};
	list.at = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *list.at);
	return list;
}

static enum cpa_status judge_output(
	struct judging *j, const struct output *output, struct cpa_error *error)
{
	const struct cpa_held *held = &output->held;
	*j->worst = (struct cpa_deviation){.soft_ratio = NAN,
		.ratio = -1.0,
		.batch = -1,
		.token = -1,
		.head = -1,
		.dim = -1,
		.error = NAN,
		.bound = NAN};
	j->square = j->want_square = 0.0;
	j->njudged = 0;
	j->bad = malloc((2 * (size_t)held->ntokens + 1) * sizeof *j->bad);
	j->bad_lost = j->bad ? j->bad + held->ntokens : NULL;
	if (j->wrong) {
		*j->wrong = list_of_heads(j->arena, held->nbatches * held->nheads);
		*j->lost = list_of_heads(j->arena, held->nbatches * held->nheads);
	}
	if (!j->bad || j->arena->failed) {
		free(j->bad);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for judging");
	}
	for (int64_t ib = 0; ib < held->nbatches; ib++)
		for (int64_t ih = 0; ih < held->nheads; ih++)
			if (held->batches[ib] >= 0 && held->heads[ih] >= 0)
				judge_head(j, output, ib, ih);
	free(j->bad);
	if (j->worst->ratio < 0.0)
		j->worst->ratio = j->njudged ? 0.0 : NAN;
	j->worst->rel_l2 = j->njudged == 0 ? NAN
		: j->square == 0.0	   ? 0.0
					   : sqrt(j->square / j->want_square);
	if (j->njudged > 0 && isnan(j->worst->rel_l2))
		j->worst->rel_l2 = INFINITY;
	return j->arena->failed ? cpa_fail(error, CPA_NO_MEMORY, "out of memory") : CPA_OK;
}

/* ---- inputs that a rank held ---- */

/* How many elements differ from those of the call, and the first that does. */
static int64_t count_differences(const struct cpa_checked *checked, const struct cpa_held *held,
	const char *x, struct cpa_place *first)
{
	const struct cpa_problem *p = &checked->call->problem;
	int which = held->tensor[0] == 'q' ? 0 : held->tensor[0] == 'k' ? 1 : 2;
	int64_t S = which ? p->Skv : p->Sq, H = which ? p->Hkv : p->Hq, n = 0;
	size_t nbytes = cpa_dtype_nbytes(p->dtype);
	for (int64_t i = 0; i < held->nbatches * held->ntokens * held->nheads * held->dim; i++) {
		int64_t d = i % held->dim, row = i / held->dim;
		int64_t h = held->heads[row % held->nheads], t,
			b = held->batches[row / held->nheads / held->ntokens];
		t = held->tokens[row / held->nheads % held->ntokens];
		if (b < 0 || t < 0 || h < 0)
			continue;
		const char *whole = (const char *)checked->data[which] +
			(size_t)(((b * S + t) * H + h) * held->dim + d) * nbytes;
		if (memcmp(whole, x + (size_t)i * nbytes, nbytes) == 0)
			continue;
		if (n++ == 0)
			*first = (struct cpa_place){b, t, h, d};
	}
	return n;
}

static enum cpa_status compare_input(const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, const struct cpa_held *held,
	struct cpa_arena *arena, const char **finding, struct cpa_error *error)
{
	const struct cpa_problem *p = &checked->call->problem;
	size_t nbytes = (size_t)(held->nbatches * held->ntokens * held->nheads * held->dim) *
		cpa_dtype_nbytes(p->dtype);
	char *x = malloc(nbytes + 1), *text = NULL;
	struct cpa_place first = {0};
	*finding = NULL;
	if (!x)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for %s", held->tensor);
	enum cpa_status status = cpa_recording_read_held(recording, i, held, p->dtype, x, error);
	int64_t n = status == CPA_OK ? count_differences(checked, held, x, &first) : 0;
	free(x);
	if (n == 0)
		return status;
	text = cpa_arena_alloc(arena, 200);
	if (!text)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	snprintf(text, 200,
		"rank %d started from other numbers: %lld of its elements of %s differ from the "
		"call's, first at batch %lld, token %lld, head %lld, dim %lld",
		held->rank, (long long)n, held->tensor, (long long)first.batch,
		(long long)first.token, (long long)first.head, (long long)first.dim);
	*finding = text;
	return status;
}

static enum cpa_status compare_inputs(const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, int rank, struct cpa_arena *arena,
	struct cpa_check_part *part, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	part->findings = cpa_arena_alloc(arena, 3 * sizeof *part->findings);
	if (!part->findings)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (const char *const *name = (const char *const[]){"q", "k", "v", NULL};
		*name && status == CPA_OK; name++) {
		const struct cpa_held *held = find_held(checked->call, rank, *name);
		const char *finding = NULL;
		/* What ranks hold before RoPE is not what the call's q and k are read as. */
		if (held && (**name == 'v' || !checked->call->has_positions))
			status = compare_input(
				checked, recording, i, held, arena, &finding, error);
		if (finding)
			part->findings[part->nfindings++] = finding;
	}
	return status;
}

/* ---- one part ---- */

struct cpa_bound_run cpa_check_bound(const struct cpa_checked *checked, int rank,
	enum cpa_arithmetic_name arithmetic, enum cpa_partials partials)
{
	const struct cpa_call *call = checked->call;
	const struct cpa_problem *p = &call->problem;
	/* Without a config nobody knows how many partials were merged: as many as there were
	 * ranks. */
	int64_t R = rank < 0 ? 1 : call->config ? call->config->ring_degree : call->world;
	bool wide = p->dtype == CPA_DTYPE_FP64 && arithmetic == CPA_ARITHMETIC_FP64;
	return (struct cpa_bound_run){.problem = p,
		.arithmetic = cpa_arithmetic_of(arithmetic, p->dtype),
		.partials = partials,
		.partial_dtype = wide ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32,
		.R = (int)R};
}

static enum cpa_status judge_both(struct judging *j, const struct output outputs[2],
	struct cpa_check_part *part, bool lists, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	struct cpa_deviation *const worst[2] = {&part->o, &part->lse};
	struct cpa_wrong *const wrong[2] = {&part->o_wrong, &part->lse_wrong};
	struct cpa_wrong *const lost[2] = {&part->o_lost, &part->lse_lost};
	for (int n = 0; n < 2 && status == CPA_OK; n++) {
		j->worst = worst[n];
		j->wrong = lists ? wrong[n] : NULL;
		j->lost = lost[n];
		if (!outputs[n].x)
			continue;
		status = judge_output(j, &outputs[n], error);
		if (n == 0 || !outputs[0].x)
			part->njudged = j->njudged;
	}
	part->right = !(part->o.ratio > 1.0) && !(part->lse.ratio > 1.0);
	return status;
}

/* A run that is wrong by a little may have computed in another way than was said. */
static enum cpa_status find_what_would_do(struct judging *j, const struct output outputs[2],
	const struct cpa_check_rules *rules, struct cpa_check_part *part, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	for (int a = (int)rules->arithmetic + 1; a < CPA_NARITHMETICS && status == CPA_OK; a++) {
		struct cpa_check_part trial = *part;
		/* TF32 allows nearly anything; that is for the user to say. */
		if (a == CPA_ARITHMETIC_TF32)
			break;
		j->bound = cpa_check_bound(
			j->checked, part->rank, (enum cpa_arithmetic_name)a, rules->partials);
		status = judge_both(j, outputs, &trial, false, error);
		if (status == CPA_OK && trial.right) {
			part->would_do = (enum cpa_arithmetic_name)a;
			break;
		}
	}
	return status;
}

enum cpa_status cpa_check_part(const struct cpa_checked *checked, struct cpa_recording *recording,
	int i, int rank, const struct cpa_check_rules *rules, struct cpa_arena *arena,
	struct cpa_check_part *part, struct cpa_error *error)
{
	static const char *const names[2] = {"o", "lse"};
	struct output outputs[2] = {{.x = NULL}, {.x = NULL}};
	struct judging j = {.checked = checked,
		.arena = arena,
		.bound = cpa_check_bound(checked, rank, rules->arithmetic, rules->partials)};
	const struct cpa_deviation none = {NAN, NAN, NAN, NAN, NAN, -1, -1, -1, -1};
	enum cpa_status status = CPA_OK;
	*part = (struct cpa_check_part){
		.rank = rank, .would_do = CPA_NARITHMETICS, .o = none, .lse = none};
	for (int n = 0; n < 2 && status == CPA_OK; n++)
		status = read_output(
			checked, recording, i, rank, names[n], arena, &outputs[n], error);
	part->has_o = outputs[0].x != NULL;
	part->has_lse = outputs[1].x != NULL;
	const struct cpa_held *held = &outputs[part->has_o ? 0 : 1].held;
	part->nheld = held->nbatches * held->ntokens * held->nheads;
	if (status == CPA_OK)
		status = judge_both(&j, outputs, part, true, error);
	if (status == CPA_OK && !part->right)
		status = find_what_would_do(&j, outputs, rules, part, error);
	free(outputs[0].x);
	free(outputs[1].x);
	if (status == CPA_OK && rank >= 0)
		status = compare_inputs(checked, recording, i, rank, arena, part, error);
	return status;
}
