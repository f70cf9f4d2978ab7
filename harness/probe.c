/*
 * probe.c - the inputs of the two probes, and their answers by counting.
 */
#include "harness/probe.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* exp() of anything below -746 is 0 in double, so it is in every arithmetic. */
static const double hidden_score_wanted = -800.0, hidden_score_needed = -750.0;

const char *cpa_probe_name(enum cpa_probe_kind kind)
{
	return kind == CPA_PROBE_COUNT ? "count" : "hidden";
}

/* ---- inputs ---- */

/* Keys a pass.  One key more or less changes o by 1/n of a class of n/Dv: with n <= Dv/(2u)
 * that is twice the rounding of o; with windows, four times. */
static int64_t window_size(const struct cpa_problem *problem)
{
	double u = cpa_dtype_roundoff(problem->dtype);
	if ((double)problem->Dv >= 2.0 * u * (double)problem->Skv)
		return problem->Skv;
	double size = floor((double)problem->Dv / (4.0 * u));
	return size < 1.0 ? 1 : (int64_t)size;
}

int cpa_probe_npasses(const struct cpa_problem *problem)
{
	int64_t size = window_size(problem);
	return (int)((problem->Skv + size - 1) / size);
}

static double rounded(enum cpa_dtype dtype, double x)
{
	uint64_t bits;
	cpa_store(dtype, &bits, 0, x);
	return cpa_load(dtype, &bits, 0);
}

bool cpa_probe_init(struct cpa_probe *probe, const struct cpa_problem *problem,
	enum cpa_probe_kind kind, int pass)
{
	int64_t size = window_size(problem), start = pass * size;
	int64_t end = start + size < problem->Skv ? start + size : problem->Skv;
	*probe = (struct cpa_probe){.problem = problem, .kind = kind, .window = {start, end}};
	if (kind == CPA_PROBE_COUNT)
		return true;
	probe->q = rounded(problem->dtype, sqrt(-hidden_score_wanted / problem->scale));
	probe->k = -probe->q;
	probe->hidden_score = problem->scale * probe->q * probe->k;
	return isfinite(probe->q) && probe->hidden_score <= hidden_score_needed;
}

/* Splitmix64's finaliser. */
static uint64_t hash(int64_t key)
{
	uint64_t x = (uint64_t)key + UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static bool is_hidden(const struct cpa_probe *probe, int64_t key)
{
	/* Key 0 is what every row of a causal problem sees. */
	return probe->kind == CPA_PROBE_HIDDEN && key != 0 && (hash(key) & 1);
}

/* Class of a key before turning; -1 outside the window. */
static int64_t class_of(const struct cpa_probe *probe, int64_t key)
{
	if (key < probe->window.start || key >= probe->window.end)
		return -1;
	uint64_t number = probe->kind == CPA_PROBE_HIDDEN ? hash(key) >> 1 : (uint64_t)key;
	return (int64_t)(number % (uint64_t)probe->problem->Dv);
}

/* How far classes are turned for this batch item and key head. */
static int64_t turn(const struct cpa_problem *problem, int64_t b, int64_t kv_head)
{
	return (b + kv_head) % problem->Dv;
}

/* One token of one batch item, all heads; dst is zero. */
static void write_token(const struct cpa_probe *probe, enum cpa_tensor tensor, int64_t b,
	int64_t token, char *dst)
{
	const struct cpa_problem *p = probe->problem;
	if (tensor == CPA_TENSOR_V) {
		int64_t class = class_of(probe, token);
		for (int64_t h = 0; class >= 0 && h < p->Hkv; h++)
			cpa_store(p->dtype, dst, h * p->Dv + (class + turn(p, b, h)) % p->Dv,
				1.0);
	} else if (tensor == CPA_TENSOR_Q && probe->q != 0.0) {
		for (int64_t h = 0; h < p->Hq; h++)
			cpa_store(p->dtype, dst, h * p->D, probe->q);
	} else if (tensor == CPA_TENSOR_K && is_hidden(probe, token)) {
		for (int64_t h = 0; h < p->Hkv; h++)
			cpa_store(p->dtype, dst, h * p->D, probe->k);
	}
}

static void read_probe(const void *context, enum cpa_tensor tensor, struct cpa_range batches,
	const struct cpa_spans *tokens, void *dst)
{
	const struct cpa_probe *probe = context;
	size_t row = cpa_token_nbytes(probe->problem, tensor);
	char *at = dst;
	memset(dst, 0,
		row * (size_t)(cpa_spans_ntokens(tokens) * (batches.end - batches.start)));
	for (int64_t b = batches.start; b < batches.end; b++)
		for (int i = 0; i < tokens->n; i++) {
			const struct cpa_span *s = &tokens->at[i];
			for (int64_t t = 0; t < s->count * s->width; t++, at += row)
				write_token(probe, tensor, b,
					s->start + t / s->width * s->stride + t % s->width, at);
		}
}

struct cpa_inputs cpa_probe_inputs(const struct cpa_probe *probe)
{
	return (struct cpa_inputs){read_probe, probe};
}

/* ---- answers ---- */

/* Visible keys of [range) that were counted: shown ones and hidden ones, by class. */
struct count {
	const struct cpa_probe *probe;
	int64_t b, h, t; /* where the mask is read */
	struct cpa_range range;
	int64_t n[2], *classes[2]; /* [hidden]; [Dv] each */
};

static void count_key(struct count *count, int64_t key, int64_t by)
{
	const struct cpa_problem *p = count->probe->problem;
	if (p->rule.mask.kind != CPA_MASK_NONE &&
		cpa_mask_value(p, count->b, count->h, count->t, key) == -INFINITY)
		return;
	int hidden = is_hidden(count->probe, key);
	int64_t class = class_of(count->probe, key);
	count->n[hidden] += by;
	if (class >= 0)
		count->classes[hidden][class] += by;
}

/* Neighbouring rows see nearly the same keys: only what changed is counted. */
static void move_to(struct count *count, struct cpa_range to)
{
	struct cpa_range *at = &count->range;
	if (to.start == to.end)
		to.start = to.end = at->end; /* nothing, wherever that is */
	while (at->end < to.end)
		count_key(count, at->end++, 1);
	while (at->start > to.start)
		count_key(count, --at->start, 1);
	while (at->end > to.end)
		count_key(count, --at->end, -1);
	while (at->start < to.start)
		count_key(count, at->start++, -1);
}

static void forget(struct count *count)
{
	size_t nbytes = (size_t)count->probe->problem->Dv * sizeof *count->classes[0];
	count->range = (struct cpa_range){0, 0};
	count->n[0] = count->n[1] = 0;
	memset(count->classes[0], 0, nbytes);
	memset(count->classes[1], 0, nbytes);
}

/* Counts what row (b, h, t) sees.  The mask of the row before may have been another one. */
static void count_row(struct count *count, int64_t b, int64_t h, int64_t t)
{
	const struct cpa_problem *p = count->probe->problem;
	if (b != count->b || (p->rule.mask.query != 0 && t != count->t))
		forget(count);
	count->b = b;
	count->h = h;
	count->t = t;
	move_to(count, cpa_rule_row(p, b, t));
}

/* Bounds of NUMERICS section 2: the scores are exact, weights equal, sums are of ones. */
struct bounds {
	double o_rel, o_abs, lse; /* where some visible key is shown */
	double o_far, lse_far; /* more where all are hidden: their lse is near hidden_score */
};

static struct bounds bounds_of(const struct cpa_probe *probe, const struct cpa_bound_run *run)
{
	const struct cpa_problem *p = run->problem;
	bool all = run->partials == CPA_PARTIALS_ALL;
	double sink = p->rule.sink ? 1.0 : 0.0; /* one more key, and one more merge */
	double R = run->R + sink, u = cpa_dtype_roundoff(p->dtype);
	double log_S = log((double)p->Skv + sink);
	double u_o = all ? R * u : run->partials == CPA_PARTIALS_BLOCK ? u : 0.0;
	double u_m = fmax(run->arithmetic.u, all ? u : cpa_dtype_roundoff(run->partial_dtype));
	double u_L = cpa_problem_lse_dtype(p) == CPA_DTYPE_FP64 ? 0x1p-53 : 0x1p-24;
	double far = fabs(probe->hidden_score);
	/* fp16 rounds shares below 2^-14 to multiples of 2^-24. */
	double subnormal = p->dtype == CPA_DTYPE_FP16 ? 0x1p-25 : 0.0;
	return (struct bounds){
		.o_rel = 1.01 * (u + u_o + 8.0 * R * u_m * log_S),
		.o_abs = subnormal * (1.0 + u_o / u),
		.lse = 1.01 * ((8.0 * R * u_m + u_m) * log_S + u_L * log_S),
		.o_far = 1.01 * 8.0 * R * u_m * far,
		.lse_far =
			1.01 *
			(8.0 * R * u_m + u_m + u_L + (double)(p->D + 2) * run->arithmetic.u) *
			far,
	};
}

/* What one row should be. */
struct answer {
	double *o; /* [2 Dv] shares, twice over, so that turning is an offset */
	double lse, o_rel, o_abs, lse_bound;
};

static void answer_row(
	const struct count *count, const struct bounds *bounds, struct answer *answer)
{
	const struct cpa_probe *probe = count->probe;
	int64_t Dv = probe->problem->Dv;
	bool sink = probe->problem->rule.sink != NULL; /* is always shown */
	int hidden = count->n[0] == 0 && !sink;
	double n = (double)(count->n[hidden] + sink);
	bool none = n == 0.0;
	for (int64_t d = 0; d < Dv; d++)
		answer->o[d] = answer->o[d + Dv] =
			none ? 0.0 : (double)count->classes[hidden][d] / n;
	answer->lse = none ? -INFINITY : log(n) + (hidden ? probe->hidden_score : 0.0);
	answer->o_rel = bounds->o_rel + (hidden ? bounds->o_far : 0.0);
	answer->o_abs = bounds->o_abs;
	answer->lse_bound = bounds->lse + (hidden ? bounds->lse_far : 0.0);
}

struct judging {
	const struct cpa_probe *probe;
	struct cpa_probe_finding *finding;
	const char *o, *lse;
	double *got_o, *got_lse; /* [Hq, Dv] and [Hq] of one token */
	struct bounds bounds;
	struct count *counts; /* [Hq], or one for all heads: they see the same keys */
	struct answer answer;
};

static void note(struct cpa_probe_finding *finding, double got, double want, double bound,
	const struct cpa_probe_finding *place)
{
	double error = got == want ? 0.0 : fabs(got - want);
	double ratio = error == 0.0 ? 0.0 : error / bound;
	if (isnan(ratio)) /* never written */
		ratio = INFINITY;
	if (!(ratio > finding->ratio))
		return;
	*finding = *place;
	finding->ratio = ratio;
	finding->got = got;
	finding->want = want;
}

static void judge_head(struct judging *j, const double *got, const double *want,
	struct cpa_probe_finding place)
{
	const struct answer *a = &j->answer;
	double ratio = j->finding->ratio;
	for (int64_t d = 0; d < j->probe->problem->Dv; d++) {
		double bound = want[d] == 0.0 ? 0.0 : a->o_rel * want[d] + a->o_abs;
		if (!(fabs(got[d] - want[d]) <=
			    bound * ratio)) { /* seldom; NaN comes here too */
			place.dim = d;
			note(j->finding, got[d], want[d], bound, &place);
			ratio = j->finding->ratio;
		}
	}
}

/* Token number i of what is held. */
static void judge_token(struct judging *j, const struct cpa_rows *held, int64_t b, int64_t i)
{
	const struct cpa_problem *p = j->probe->problem;
	struct answer *a = &j->answer;
	int64_t t = held->tokens ? cpa_spans_token(held->tokens, i) : i;
	int64_t at = ((b - held->batches.start) * held->ntokens + i) * p->Hq, g = p->Hq / p->Hkv;
	enum cpa_dtype lse_dtype = cpa_problem_lse_dtype(p);
	cpa_convert(CPA_DTYPE_FP64, j->got_o, p->dtype,
		j->o + (size_t)(at * p->Dv) * cpa_dtype_nbytes(p->dtype), p->Hq * p->Dv);
	if (j->lse)
		cpa_convert(CPA_DTYPE_FP64, j->got_lse, lse_dtype,
			j->lse + (size_t)at * cpa_dtype_nbytes(lse_dtype), p->Hq);
	for (int64_t h = 0; h < p->Hq; h++) {
		struct cpa_probe_finding place = {
			.tensor = CPA_TENSOR_O, .batch = b, .token = t, .head = h};
		if (h == 0 || p->rule.mask.head != 0) {
			count_row(&j->counts[h], b, h, t);
			answer_row(&j->counts[h], &j->bounds, a);
		}
		/* Class c stands at feature c + turn. */
		judge_head(j, j->got_o + h * p->Dv, a->o + p->Dv - turn(p, b, h / g), place);
		place.tensor = CPA_TENSOR_LSE;
		place.dim = -1;
		if (j->lse)
			note(j->finding, j->got_lse[h], a->lse, a->lse_bound, &place);
	}
}

enum cpa_status cpa_probe_judge_rows(const struct cpa_probe *probe,
	const struct cpa_bound_run *run, const struct cpa_rows *held, const void *o,
	const void *lse, struct cpa_probe_finding *finding, struct cpa_error *error)
{
	const struct cpa_problem *p = probe->problem;
	int64_t ncounts = p->rule.mask.head != 0 ? p->Hq : 1;
	struct count *counts = calloc((size_t)ncounts, sizeof *counts);
	int64_t *classes = calloc((size_t)(ncounts * 2 * p->Dv), sizeof *classes);
	/* The row of o, that of lse, the answer. */
	double *room = malloc((size_t)(p->Hq * p->Dv + p->Hq + 2 * p->Dv) * sizeof *room);
	bool failed = !counts || !classes || !room;
	assert(p->rule.mask.kind != CPA_MASK_BIAS);
	if (!failed) {
		struct judging j = {.probe = probe,
			.finding = finding,
			.o = o,
			.lse = lse,
			.got_o = room,
			.got_lse = room + p->Hq * p->Dv,
			.bounds = bounds_of(probe, run),
			.counts = counts,
			.answer = {.o = room + p->Hq * p->Dv + p->Hq}};
		for (int64_t i = 0; i < ncounts; i++, classes += 2 * p->Dv)
			counts[i] = (struct count){
				.probe = probe, .classes = {classes, classes + p->Dv}};
		classes -= ncounts * 2 * p->Dv;
		*finding = (struct cpa_probe_finding){
			.ratio = 0.0, .batch = -1, .token = -1, .head = -1, .dim = -1};
		for (int64_t b = held->batches.start; b < held->batches.end; b++)
			for (int64_t i = 0; i < held->ntokens; i++)
				judge_token(&j, held, b, i);
	}
	free(counts);
	free(classes);
	free(room);
	return failed ? cpa_fail(error, CPA_NO_MEMORY, "out of memory for judging a probe")
		      : CPA_OK;
}

enum cpa_status cpa_probe_judge(const struct cpa_probe *probe, const struct cpa_bound_run *run,
	const void *o, const void *lse, struct cpa_probe_finding *finding,
	struct cpa_error *error)
{
	const struct cpa_problem *p = probe->problem;
	struct cpa_rows all = {{0, p->B}, p->Sq, NULL};
	return cpa_probe_judge_rows(probe, run, &all, o, lse, finding, error);
}
