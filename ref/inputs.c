/*
 * inputs.c - which inputs are refused: what is not finite, and scores that may overflow.
 */
#include "ref/ref.h"
#include "ref/row.h"

#include <float.h>
#include <math.h>

enum { CHUNK = 64 }; /* features read at a time */

/* One head of a tensor, and the largest norm of its rows so far. */
struct scan {
	const char *name;
	struct cpa_view view;
	int64_t S, D, b;
	double norm;
	int64_t t, h; /* where the norm is */
};

static enum cpa_status scan_head(struct scan *scan, int64_t h, struct cpa_error *error)
{
	for (int64_t t = 0; t < scan->S; t++) {
		struct norm norm = { 0.0, 0.0 };
		double x[CHUNK];

		for (int64_t first = 0; first < scan->D; first += CHUNK) {
			int64_t n = scan->D - first < CHUNK ? scan->D - first : CHUNK;

			view_read(scan->view, scan->b, t, h, first, n, x);
			for (int64_t d = 0; d < n; d++)
				if (!isfinite(x[d]))
					return cpa_fail(error, CPA_INVALID,
						"%s[%lld,%lld,%lld,%lld] is %g (batch, token, "
						"head, feature): inputs must be finite",
						scan->name, (long long)scan->b, (long long)t,
						(long long)h, (long long)(first + d), x[d]);
			norm_add(&norm, x, n);
		}
		if (norm_value(&norm) > scan->norm) {
			scan->norm = norm_value(&norm);
			scan->t = t;
			scan->h = h;
		}
	}
	return CPA_OK;
}

/* The bias that is largest in size, and where: batch, head, query, key. */
struct bias {
	double abs;
	int64_t at[4];
};

static enum cpa_status bias_add(
	struct bias *bias, double x, const int64_t *at, struct cpa_error *error)
{
	if (!(x < INFINITY))
		return cpa_fail(error, CPA_INVALID,
			"mask[%lld,%lld,%lld,%lld] is %g (batch, head, query, key): a bias "
			"must be finite, or -inf to hide a key",
			(long long)at[0], (long long)at[1], (long long)at[2],
			(long long)at[3], x);
	if (x == -INFINITY || fabs(x) <= bias->abs)
		return CPA_OK;
	bias->abs = fabs(x);
	for (int axis = 0; axis < 4; axis++)
		bias->at[axis] = at[axis];
	return CPA_OK;
}

/* Looks at the elements that are there, broadcast ones once. */
static enum cpa_status scan_bias(
	const struct cpa_problem *problem, struct bias *bias, struct cpa_error *error)
{
	const struct cpa_mask *mask = &problem->rule.mask;
	const int64_t n[] = { mask->batch ? problem->B : 1, mask->head ? problem->Hq : 1,
		mask->query ? problem->Sq : 1, mask->key ? problem->Skv : 1 };

	*bias = (struct bias){ 0.0, { 0 } };
	if (mask->kind != CPA_MASK_BIAS)
		return CPA_OK;
	for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++) {
		int64_t at[] = { i / n[2] / n[1], i / n[2] % n[1], i % n[2], 0 };

		for (; at[3] < n[3]; at[3]++) {
			double x = cpa_mask_value(problem, at[0], at[1], at[2], at[3]);
			enum cpa_status status = bias_add(bias, x, at, error);

			if (status)
				return status;
		}
	}
	return CPA_OK;
}

/* The sum of a score and a bias must round to a finite number.  -FLT_MAX serves many as a mask, so
 * this is exact: sums round to infinity from FLT_MAX + 2^103 on; half of that is left to errors. */
static enum cpa_status check_sum(const struct cpa_problem *problem, double score,
	const struct bias *bias, struct cpa_error *error)
{
	double limit =
		problem->dtype == CPA_DTYPE_FP64 ? DBL_MAX : (double)FLT_MAX + 0x1p102;

	if (score + bias->abs <= limit)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"scores may overflow: scale |q| |k| is up to %g, and mask[%lld,%lld,%lld,%lld] "
		"(batch, head, query, key) adds %g in size; together they may be %g at most: use "
		"-inf to hide a key, or scale down",
		score, (long long)bias->at[0], (long long)bias->at[1], (long long)bias->at[2],
		(long long)bias->at[3], bias->abs, limit);
}

static enum cpa_status check_head(const struct cpa_problem *problem, int64_t kv_head,
	struct scan *q, struct scan *k, struct scan *v, const struct bias *bias,
	struct cpa_error *error)
{
	double limit = problem->dtype == CPA_DTYPE_FP64 ? 1e308 : 3e38;
	int64_t g = problem->Hq / problem->Hkv;
	enum cpa_status status = scan_head(k, kv_head, error);
	double scaled;

	if (!status)
		status = scan_head(v, kv_head, error);
	for (int64_t h = kv_head * g; h < (kv_head + 1) * g && !status; h++)
		status = scan_head(q, h, error);
	if (status)
		return status;
	/* Scaled first, as kernels do: scale |q| must fit on its own, whatever k is. */
	scaled = problem->scale * q->norm;
	if (scaled <= limit && scaled * k->norm <= limit)
		return check_sum(problem, scaled * k->norm, bias, error);
	return cpa_fail(error, CPA_INVALID,
		"scores may overflow: scale |q| |k| = %g * %g * %g for q[%lld,%lld,%lld] and "
		"k[%lld,%lld,%lld] (batch, token, head); it and scale |q| may be %g at most: "
		"scale q or k down",
		problem->scale, q->norm, k->norm, (long long)q->b, (long long)q->t,
		(long long)q->h, (long long)k->b, (long long)k->t, (long long)k->h, limit);
}

enum cpa_status cpa_ref_check_inputs(const struct cpa_problem *problem, struct cpa_view q,
	struct cpa_view k, struct cpa_view v, struct cpa_error *error)
{
	enum cpa_status status;
	struct bias bias;

	status = scan_bias(problem, &bias, error);
	if (status)
		return status;
	for (int64_t b = 0; b < problem->B; b++)
		for (int64_t kv_head = 0; kv_head < problem->Hkv; kv_head++) {
			struct scan scan_q = { "q", q, problem->Sq, problem->D, b, 0, 0, 0 };
			struct scan scan_k = { "k", k, problem->Skv, problem->D, b, 0, 0, 0 };
			struct scan scan_v = { "v", v, problem->Skv, problem->Dv, b, 0, 0, 0 };

			status = check_head(
				problem, kv_head, &scan_q, &scan_k, &scan_v, &bias, error);
			if (status)
				return status;
		}
	return CPA_OK;
}
