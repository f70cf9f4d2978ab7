/*
 * merge.c - two partials into one, row by row.
 *
 * m = max; weights exp(lse - m) over their sum; lse = m + log of the sum.  A partial with lse =
 * -inf leaves the other as it is, bit for bit where no dtype changes.  A sink is a partial of
 * o = 0.  In fp32, or in fp64 when a is fp64.
 *
 * Compiled without contraction: with it merge(a, b) and merge(b, a) differ in a third of the
 * cases.
 */
#include "kernels/host.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256, PARALLEL_FROM = 1 << 18 };

CPA_CLONES static void add_float(
	float *restrict a, const float *restrict b, float wa, float wb, int64_t n)
{
	for (int64_t d = 0; d < n; d++)
		a[d] = wa * a[d] + wb * b[d];
}

CPA_CLONES static void add_double(
	double *restrict a, const double *restrict b, double wa, double wb, int64_t n)
{
	for (int64_t d = 0; d < n; d++)
		a[d] = wa * a[d] + wb * b[d];
}

/* Where a dtype is not that of the arithmetic, through a piece of it.  b NULL: zeros. */
static void add_row(
	const struct cpa_merge *merge, bool wide, void *a, const void *b, double wa, double wb)
{
	enum cpa_dtype dtype = wide ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
	enum cpa_dtype from_a = merge->o_a.dtype, from_b = b ? merge->o_b.dtype : dtype;
	double space_a[CHUNK], space_b[CHUNK];
	static const double zeros[CHUNK];

	for (int64_t d = 0; d < merge->dim; d += CHUNK) {
		int64_t n = merge->dim - d < CHUNK ? merge->dim - d : CHUNK;
		char *at_a = (char *)a + d * (int64_t)cpa_dtype_nbytes(from_a);
		const char *at_b = b ? (const char *)b + d * (int64_t)cpa_dtype_nbytes(from_b)
				     : (const char *)zeros;
		void *run_a = from_a == dtype ? (void *)at_a : space_a;
		const void *run_b = from_b == dtype ? (const void *)at_b : space_b;

		if (from_a != dtype)
			cpa_run_convert(dtype, space_a, from_a, at_a, n);
		if (from_b != dtype)
			cpa_run_convert(dtype, space_b, from_b, at_b, n);
		if (wide)
			add_double(run_a, run_b, wa, wb, n);
		else
			add_float(run_a, run_b, (float)wa, (float)wb, n);
		if (from_a != dtype)
			cpa_run_convert(from_a, at_a, dtype, space_a, n);
	}
}

/* The weights of a and b, in *a and *b; returns the merged lse.  Both are finite. */
static double weigh_double(double *a, double *b)
{
	double m = *a > *b ? *a : *b, wa = exp(*a - m), wb = exp(*b - m), sum = wa + wb;

	*a = wa / sum;
	*b = wb / sum;
	return m + log(sum);
}

static double weigh_float(double *a, double *b)
{
	float la = (float)*a, lb = (float)*b, m = la > lb ? la : lb;
	float wa = expf(la - m), wb = expf(lb - m), sum = wa + wb;

	*a = wa / sum;
	*b = wb / sum;
	return m + logf(sum);
}

static void merge_row(const struct cpa_merge *merge, int64_t t, int64_t b, int64_t h)
{
	bool wide = merge->o_a.dtype == CPA_DTYPE_FP64 || merge->lse_a.dtype == CPA_DTYPE_FP64;
	void *o_a = cpa_element(&merge->o_a, cpa_array_index(&merge->o_a, t, b, h));
	void *o_b = NULL;
	int64_t at = cpa_array_index(&merge->lse_a, t, b, h);
	double wa = cpa_load(merge->lse_a.dtype, merge->lse_a.data, at), wb, lse;

	if (merge->sink) {
		wb = merge->sink[h];
	} else {
		o_b = cpa_element(&merge->o_b, cpa_array_index(&merge->o_b, t, b, h));
		wb = cpa_load(merge->lse_b.dtype, merge->lse_b.data,
			cpa_array_index(&merge->lse_b, t, b, h));
	}
	if (wb == -INFINITY)
		return;
	if (wa != -INFINITY) {
		lse = wide ? weigh_double(&wa, &wb) : weigh_float(&wa, &wb);
		add_row(merge, wide, o_a, o_b, wa, wb);
	} else {
		lse = wb;
		if (o_b)
			cpa_run_convert(
				merge->o_a.dtype, o_a, merge->o_b.dtype, o_b, merge->dim);
		else
			memset(o_a, 0, (size_t)merge->dim * cpa_dtype_nbytes(merge->o_a.dtype));
	}
	cpa_store(merge->lse_a.dtype, merge->lse_a.data, at, lse);
}

enum cpa_status cpa_host_merge(struct cpa_device *device, int queue,
	const struct cpa_merge *merge, struct cpa_error *error)
{
	int64_t nrows = merge->ntokens * merge->nbatches * merge->nheads;

	(void)device;
	(void)queue;
	(void)error;
	CPA_OMP(omp parallel for schedule(static) if (nrows * merge->dim >= PARALLEL_FROM))
	for (int64_t row = 0; row < nrows; row++)
		merge_row(merge, row / merge->nheads / merge->nbatches,
			row / merge->nheads % merge->nbatches, row % merge->nheads);
	return CPA_OK;
}
