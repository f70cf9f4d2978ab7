/*
 * inputs.c - which inputs are refused: what is not finite, and scores that may overflow.
 */
#include "ref/ref.h"
#include "ref/row.h"

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

static enum cpa_status check_head(const struct cpa_problem *problem, int64_t kv_head,
	struct scan *q, struct scan *k, struct scan *v, struct cpa_error *error)
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
		return CPA_OK;
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
	for (int64_t b = 0; b < problem->B; b++)
		for (int64_t kv_head = 0; kv_head < problem->Hkv; kv_head++) {
			struct scan scan_q = { "q", q, problem->Sq, problem->D, b, 0, 0, 0 };
			struct scan scan_k = { "k", k, problem->Skv, problem->D, b, 0, 0, 0 };
			struct scan scan_v = { "v", v, problem->Skv, problem->Dv, b, 0, 0, 0 };
			enum cpa_status status;

			status = check_head(problem, kv_head, &scan_q, &scan_k, &scan_v, error);
			if (status)
				return status;
		}
	return CPA_OK;
}
