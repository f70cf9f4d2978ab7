/*
 * statistics.c - minimum, quartiles, median.
 */
#include "harness/statistics.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile(const double *sorted, int n, double share)
{
	double at = share * (n - 1);
	int below = (int)at;
	if (below + 1 >= n)
		return sorted[n - 1];
	return sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]);
}

struct cpa_statistics cpa_statistics_of(double *values, int n)
{
	if (n <= 0)
		return (struct cpa_statistics){0, NAN, NAN, NAN, NAN, NAN};
	qsort(values, (size_t)n, sizeof *values, ascending);
	return (struct cpa_statistics){n, values[0], quantile(values, n, 0.25),
		quantile(values, n, 0.5), quantile(values, n, 0.75), values[n - 1]};
}

double cpa_statistics_spread(const struct cpa_statistics *s)
{
	return s->n > 0 && s->median > 0 ? (s->q3 - s->q1) / s->median : NAN;
}
