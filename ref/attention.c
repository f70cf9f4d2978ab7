/*
 * attention.c - full attention in double, one query row at a time: the arbiter of every test.
 *
 * Each sum is taken in a fixed order that the compiler may not change, and still vectorises,
 * because the loops run over what is independent: keys for scores (K is kept feature-major),
 * features for o.  Compiled without contraction, with -O3 so that gcc vectorises.
 */
#include "ref/ref.h"
#include "ref/row.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum {
	FEATURES = 8, /* of K^T per pass over a row of scores */
	KEYS = 8,     /* of V per pass over a row of o */
	BLOCK = 64,   /* keys summed before they are added to the total: keeps chains short */
	TILE = 128    /* features of o at a time */
};

/* ---- loops ----------------------------------------------------------------------------- */

/* Once inlined, gcc 12 forgets `restrict` and is slower by half. */
#define NOINLINE __attribute__((noinline))

/* s[j] += q[0] k_0[j] + q[1] k_1[j] + ..., feature by feature.   kt [FEATURES, stride] */
static NOINLINE void add_scores(double *restrict s, const double *restrict kt, int64_t stride,
	const double *q, int64_t n)
{
	const double *k0 = kt, *k1 = k0 + stride, *k2 = k1 + stride, *k3 = k2 + stride;
	const double *k4 = k3 + stride, *k5 = k4 + stride, *k6 = k5 + stride, *k7 = k6 + stride;
	double q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];
	double q4 = q[4], q5 = q[5], q6 = q[6], q7 = q[7];

	for (int64_t j = 0; j < n; j++)
		s[j] = s[j] + q0 * k0[j] + q1 * k1[j] + q2 * k2[j] + q3 * k3[j] + q4 * k4[j] +
		       q5 * k5[j] + q6 * k6[j] + q7 * k7[j];
}

/* o[d] += p[0] v_0[d] + p[1] v_1[d] + ..., key by key.   v [n, stride] */
static NOINLINE void add_values(double *restrict o, const double *restrict v, int64_t stride,
	const double *p, int64_t n, int64_t width)
{
	int64_t j = 0;

	for (; j + KEYS <= n; j += KEYS) {
		const double *v0 = v + j * stride, *v1 = v0 + stride, *v2 = v1 + stride;
		const double *v3 = v2 + stride, *v4 = v3 + stride, *v5 = v4 + stride;
		const double *v6 = v5 + stride, *v7 = v6 + stride, *w = p + j;

		for (int64_t d = 0; d < width; d++)
			o[d] = o[d] + w[0] * v0[d] + w[1] * v1[d] + w[2] * v2[d] +
			       w[3] * v3[d] + w[4] * v4[d] + w[5] * v5[d] + w[6] * v6[d] +
			       w[7] * v7[d];
	}
	for (; j < n; j++)
		for (int64_t d = 0; d < width; d++)
			o[d] = o[d] + p[j] * v[j * stride + d];
}

/* ---- views ----------------------------------------------------------------------------- */

struct cpa_view cpa_view_bshd(const void *data, enum cpa_dtype dtype, int64_t S, int64_t H,
	int64_t D)
{
	return (struct cpa_view){ data, dtype, S * H * D, H * D, D };
}

static int64_t round_up(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* ---- one key head ---------------------------------------------------------------------- */

struct cpa_ref_head {
	struct cpa_problem problem;
	int64_t b, kv_head, stride;
	struct cpa_arena arena;
	double *kt;      /* [D rounded up to FEATURES with zeros, stride] */
	double *v;       /* [Skv, Dv] */
	double *k_norm;  /* [Skv] |k_j|_2 */
	double *v_max;   /* [Skv] max_d |v_jd| */
	double *v_norm2; /* [Skv] |v_j|_2^2, at most DBL_MAX: 0 times infinity is NaN */
};

static void read_key(struct cpa_ref_head *head, struct cpa_view k, int64_t j)
{
	struct norm norm = { 0.0, 0.0 };
	double x[FEATURES];
	int64_t D = head->problem.D;

	for (int64_t first = 0; first < D; first += FEATURES) {
		int64_t n = D - first < FEATURES ? D - first : FEATURES;

		view_read(k, head->b, j, head->kv_head, first, n, x);
		norm_add(&norm, x, n);
		for (int64_t d = 0; d < n; d++)
			head->kt[(first + d) * head->stride + j] = x[d];
	}
	head->k_norm[j] = norm_value(&norm);
}

static void read_value(struct cpa_ref_head *head, struct cpa_view v, int64_t j)
{
	struct norm norm = { 0.0, 0.0 };
	int64_t Dv = head->problem.Dv;

	view_read(v, head->b, j, head->kv_head, 0, Dv, head->v + j * Dv);
	norm_add(&norm, head->v + j * Dv, Dv);
	head->v_max[j] = norm.max;
	head->v_norm2[j] = fmin(norm.max * norm.max * norm.sum, DBL_MAX);
}

static double *alloc_doubles(struct cpa_arena *arena, int64_t n, int64_t rows)
{
	if (n > INT64_MAX / 16 / rows) {
		arena->failed = true;
		return NULL;
	}
	return cpa_arena_alloc(arena, (size_t)(n * rows) * sizeof(double));
}

enum cpa_status cpa_ref_head_create(const struct cpa_problem *problem, struct cpa_view k,
	struct cpa_view v, int64_t b, int64_t kv_head, struct cpa_ref_head **head,
	struct cpa_error *error)
{
	struct cpa_ref_head *it = calloc(1, sizeof(*it));
	int64_t Skv = problem->Skv;

	assert(b >= 0 && b < problem->B && kv_head >= 0 && kv_head < problem->Hkv);
	if (!it)
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for one key head");
	it->problem = *problem;
	it->b = b;
	it->kv_head = kv_head;
	/* Not a multiple of a page: the features of one key would share a cache set. */
	it->stride = round_up(Skv, FEATURES) + FEATURES;
	cpa_arena_init(&it->arena);
	it->kt = alloc_doubles(&it->arena, it->stride, round_up(problem->D, FEATURES));
	it->v = alloc_doubles(&it->arena, Skv, problem->Dv);
	it->k_norm = alloc_doubles(&it->arena, Skv, 1);
	it->v_max = alloc_doubles(&it->arena, Skv, 1);
	it->v_norm2 = alloc_doubles(&it->arena, Skv, 1);
	if (it->arena.failed) {
		cpa_ref_head_destroy(it);
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for one key head: %lld keys of %lld + %lld doubles",
			(long long)Skv, (long long)problem->D, (long long)problem->Dv);
	}
	for (int64_t j = 0; j < Skv; j++) {
		read_key(it, k, j);
		read_value(it, v, j);
	}
	*head = it;
	return CPA_OK;
}

void cpa_ref_head_destroy(struct cpa_ref_head *head)
{
	if (!head)
		return;
	cpa_arena_fini(&head->arena);
	free(head);
}

/* ---- one row --------------------------------------------------------------------------- */

/* Scores of the visible keys, q scaled before the product.  Returns scale |q|_2. */
static double score_row(const struct cpa_ref_head *head, struct cpa_view q, int64_t h,
	int64_t t, struct cpa_range keys, double *s)
{
	const struct cpa_problem *problem = &head->problem;
	struct norm norm = { 0.0, 0.0 };
	int64_t n = keys.end - keys.start;

	for (int64_t j = 0; j < n; j++)
		s[j] = 0.0;
	for (int64_t first = 0; first < problem->D; first += FEATURES) {
		int64_t count = problem->D - first < FEATURES ? problem->D - first : FEATURES;
		double x[FEATURES] = { 0.0 };

		view_read(q, head->b, t, h, first, count, x);
		for (int64_t d = 0; d < count; d++)
			x[d] *= problem->scale;
		norm_add(&norm, x, count);
		add_scores(s, head->kt + first * head->stride + keys.start, head->stride, x, n);
	}
	return norm_value(&norm);
}

/* What the mask adds to the scores s[j - keys.start] of one row; -inf hides a key, whatever its
 * score.  The row is read where it lies, with its stride. */
static void mask_row(const struct cpa_ref_head *head, int64_t h, int64_t t,
	struct cpa_range keys, double *s)
{
	const struct cpa_mask *mask = &head->problem.rule.mask;
	int64_t at = head->b * mask->batch + h * mask->head + t * mask->query +
		     keys.start * mask->key;
	int64_t n = keys.end - keys.start, step = mask->key;

	if (mask->kind == CPA_MASK_BOOL) {
		const uint8_t *attend = (const uint8_t *)mask->data + at;

		for (int64_t j = 0; j < n; j++)
			s[j] = attend[j * step] ? s[j] : -INFINITY;
	} else if (mask->kind == CPA_MASK_BIAS && mask->dtype == CPA_DTYPE_FP32) {
		const float *bias = (const float *)mask->data + at;

		for (int64_t j = 0; j < n; j++)
			s[j] = bias[j * step] == -INFINITY ? -INFINITY : s[j] + bias[j * step];
	} else if (mask->kind == CPA_MASK_BIAS) {
		const double *bias = (const double *)mask->data + at;

		for (int64_t j = 0; j < n; j++)
			s[j] = bias[j * step] == -INFINITY ? -INFINITY : s[j] + bias[j * step];
	}
}

/* The least score that counts in max |s_j|. */
static double least_near(const double *s, int64_t n, double max)
{
	double floor = max - CPA_FAR_SCORE, least = max;

	for (int64_t j = 0; j < n; j++)
		least = s[j] >= floor && s[j] < least ? s[j] : least;
	return least;
}

/* Everything about the row that is known before the weights.  A score of -inf is no key. */
static void scan_row(const struct cpa_ref_head *head, struct cpa_range keys, const double *s,
	const double *sink, struct cpa_row *row)
{
	double max = -INFINITY, min = INFINITY, k_max = 0.0, v_max = 0.0, v_sum = 0.0;
	const double *k_norm = head->k_norm + keys.start, *v_abs = head->v_max + keys.start;
	int64_t n = keys.end - keys.start;

	for (int64_t j = 0; j < n; j++) {
		if (s[j] == -INFINITY)
			continue;
		row->nvisible++;
		max = s[j] > max ? s[j] : max;
		min = s[j] < min ? s[j] : min;
		k_max = k_norm[j] > k_max ? k_norm[j] : k_max;
		v_max = v_abs[j] > v_max ? v_abs[j] : v_max;
		v_sum += v_abs[j];
	}
	if (sink) { /* one more score; k and v are 0 */
		max = *sink > max ? *sink : max;
		min = *sink < min ? *sink : min;
	}
	row->max_score = max;
	row->max_abs = fmax(fabs(max), fabs(least_near(s, n, max)));
	if (sink && *sink >= max - CPA_FAR_SCORE)
		row->max_abs = fmax(row->max_abs, fabs(*sink));
	row->k_max = k_max;
	row->v_max = v_max;
	row->Vsum = v_sum;
	row->equal = max == min;
}

/* s becomes exp(s - max), 0 where a key is hidden; returns their sum, V and V2 not yet divided by
 * it. */
static double weigh_row(const struct cpa_ref_head *head, struct cpa_range keys, double *s,
	struct cpa_row *row)
{
	const double *v_abs = head->v_max + keys.start, *v_norm2 = head->v_norm2 + keys.start;
	int64_t n = keys.end - keys.start;
	double sum = 0.0;

	for (int64_t first = 0; first < n; first += BLOCK) {
		int64_t end = n - first < BLOCK ? n : first + BLOCK;
		double block = 0.0;

		for (int64_t j = first; j < end; j++) {
			s[j] = exp(s[j] - row->max_score);
			block += s[j];
			row->V += s[j] * v_abs[j];
			row->V2 += s[j] * v_norm2[j];
		}
		sum += block;
	}
	return sum;
}

/* o = sum of p_j v_j over its divisor, a block of keys at a time. */
static void average_row(const struct cpa_ref_head *head, struct cpa_range keys, const double *p,
	double divisor, double *o)
{
	int64_t Dv = head->problem.Dv, n = keys.end - keys.start;
	const double *v = head->v + keys.start * Dv;

	for (int64_t d0 = 0; d0 < Dv; d0 += TILE) {
		int64_t width = Dv - d0 < TILE ? Dv - d0 : TILE;

		for (int64_t first = 0; first < n; first += BLOCK) {
			int64_t count = n - first < BLOCK ? n - first : BLOCK;
			double block[TILE] = { 0.0 };

			add_values(block, v + first * Dv + d0, Dv, p + first, count, width);
			for (int64_t d = 0; d < width; d++)
				o[d0 + d] += block[d];
		}
		for (int64_t d = 0; d < width; d++)
			o[d0 + d] /= divisor;
	}
}

void cpa_ref_row(const struct cpa_ref_head *head, struct cpa_view q, int64_t h, int64_t t,
	double *o, struct cpa_row *row, double *work)
{
	const struct cpa_problem *problem = &head->problem;
	const double *sink = problem->rule.sink ? problem->rule.sink + h : NULL;
	struct cpa_range keys = cpa_rule_row(problem, head->b, t);
	int64_t n = keys.end - keys.start;
	double q_norm, sum;

	assert(h / (problem->Hq / problem->Hkv) == head->kv_head && t >= 0 && t < problem->Sq);
	*row = (struct cpa_row){ .lse = -INFINITY };
	for (int64_t d = 0; d < problem->Dv; d++)
		o[d] = 0.0;
	if (n == 0 && !sink)
		return;
	q_norm = score_row(head, q, h, t, keys, work);
	mask_row(head, h, t, keys, work);
	scan_row(head, keys, work, sink, row);
	if (row->nvisible == 0 && !sink) {
		for (int64_t j = 0; j < n; j++)
			work[j] = 0.0;
		*row = (struct cpa_row){ .lse = -INFINITY };
		return;
	}
	row->a = q_norm * row->k_max;
	sum = weigh_row(head, keys, work, row);
	if (sink)
		sum += exp(*sink - row->max_score);
	average_row(head, keys, work, sum, o);
	row->lse = row->max_score + log(sum);
	row->V /= sum;
	row->V2 /= sum;
	for (int64_t j = 0; j < n; j++)
		work[j] /= sum;
}

enum cpa_status cpa_ref_attention(const struct cpa_problem *problem, struct cpa_view q,
	struct cpa_view k, struct cpa_view v, double *o, double *lse, struct cpa_error *error)
{
	double *work = malloc((size_t)problem->Skv * sizeof(*work));
	int64_t g = problem->Hq / problem->Hkv;

	if (!work)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a row of %lld scores",
			(long long)problem->Skv);
	for (int64_t i = 0; i < problem->B * problem->Hkv; i++) {
		int64_t b = i / problem->Hkv, kv_head = i % problem->Hkv;
		struct cpa_ref_head *head;
		enum cpa_status status =
			cpa_ref_head_create(problem, k, v, b, kv_head, &head, error);

		if (status) {
			free(work);
			return status;
		}
		for (int64_t h = kv_head * g; h < (kv_head + 1) * g; h++)
			for (int64_t t = 0; t < problem->Sq; t++) {
				int64_t at = (b * problem->Sq + t) * problem->Hq + h;
				struct cpa_row row;

				cpa_ref_row(head, q, h, t, o + at * problem->Dv, &row, work);
				lse[at] = row.lse;
			}
		cpa_ref_head_destroy(head);
	}
	free(work);
	return CPA_OK;
}
