/*
 * row.h - reading one row of a view, and its Euclidean norm; for the files of ref/ alone.
 */
#ifndef CPA_REF_ROW_H
#define CPA_REF_ROW_H

#include "ref/ref.h"

#include <math.h>

/* A Euclidean norm in the making, max sqrt(sum): squares alone may leave double. */
struct norm {
	double max, sum;
};

static inline void norm_add(struct norm *norm, const double *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		double abs = fabs(x[i]);

		if (abs > norm->max) {
			norm->sum = 1.0 + norm->sum * (norm->max / abs) * (norm->max / abs);
			norm->max = abs;
		} else if (abs > 0.0) {
			norm->sum += (abs / norm->max) * (abs / norm->max);
		}
	}
}

static inline double norm_value(const struct norm *norm)
{
	return norm->max * sqrt(norm->sum);
}

/* Features [first, first + n) of one row, widened. */
static inline void view_read(struct cpa_view view, int64_t b, int64_t t, int64_t h,
	int64_t first, int64_t n, double *x)
{
	int64_t index = b * view.batch + t * view.token + h * view.head + first;
	const char *data = view.data;

	cpa_convert(CPA_DTYPE_FP64, x, view.dtype,
		data + index * (int64_t)cpa_dtype_nbytes(view.dtype), n);
}

#endif
