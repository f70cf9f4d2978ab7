/*
 * merge.c - two partial results of one row become one.
 *
 * Compiled without contraction: a fused w_a o_a + w_b o_b rounds one product and not the other,
 * and merge(a, b) would differ from merge(b, a).
 */
#include "ref/ref.h"

#include <math.h>

void cpa_ref_merge(int64_t Dv, double *o_a, double *lse_a, const double *o_b, double lse_b)
{
	double max, w_a, w_b, sum;

	/* The identity changes nothing; as a weight it might be exp(-inf - -inf), NaN. */
	if (lse_b == -INFINITY)
		return;
	if (*lse_a == -INFINITY) {
		for (int64_t d = 0; d < Dv; d++)
			o_a[d] = o_b[d];
		*lse_a = lse_b;
		return;
	}
	max = *lse_a > lse_b ? *lse_a : lse_b;
	w_a = exp(*lse_a - max);
	w_b = exp(lse_b - max);
	sum = w_a + w_b;
	w_a /= sum;
	w_b /= sum;
	for (int64_t d = 0; d < Dv; d++)
		o_a[d] = w_a * o_a[d] + w_b * o_b[d];
	*lse_a = max + log(sum);
}
