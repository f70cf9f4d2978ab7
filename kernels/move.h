/*
 * move.h - what moves and merges numbers on the cpu, once per instruction set; not a public
 * header.
 *
 * copy.c, merge.c and host.c decide what goes where; the functions of this table do the inner
 * loops.  Every table gives the same bits.
 */
#ifndef CPA_MOVE_H
#define CPA_MOVE_H

#include "kernels/cpu.h"

/* A merge takes up to this many rows at once. */
enum { CPA_MOVE_ROWS = 256 };

/* nrows rows of nbytes each; steps in bytes.  Source and target do not overlap. */
struct cpa_move_rows {
	void *dst;
	const void *src;
	int64_t dst_step, src_step, nrows;
	size_t nbytes;
	/* NULL, or for each row nbytes that will be read soon: fetched when streaming.  They need
	 * not exist. */
	const char *const *ahead;
};

/* Rows of a merge in place: o = a[i] o + b[i] o_b, o_b NULL for zeros; steps in elements. */
struct cpa_move_sum {
	void *o;
	const void *o_b;
	int64_t step, step_b, nrows, dim;
};

/* stream: past the caches, for what is larger than they are; fence() orders it before what the
 * thread writes next. */
struct cpa_move_kernels {
	void (*copy)(const struct cpa_move_rows *rows, bool stream);
	void (*fence)(void);
	/* Repeats pattern, which is a whole number of elements, as nbytes is. */
	void (*fill)(void *memory, uint64_t pattern, size_t nbytes);
	/* [to][from]: n numbers, bits equal to those of cpa_convert(); NULL for to == from. */
	void (*convert[4][4])(void *dst, const void *src, int64_t n);
	/*
	 * n pairs of lse, finite or NaN: weights exp(lse_a - max) and exp(lse_b - max) over
	 * their sum in a and b, max + log of the sum in lse.  All [CPA_MOVE_ROWS]; what lies
	 * beyond n is read and written up to a whole vector, and means nothing.
	 */
	void (*weigh)(const float *lse_a, const float *lse_b, float *lse, float *a, float *b,
		int n);
	/*
	 * weigh() and sum_float() of all rows at once: weights are computed while rows pass.
	 * lse may be lse_a.  False, and nothing has changed, where some lse is -inf.
	 */
	bool (*merge)(const struct cpa_move_sum *rows, const float *lse_a, const float *lse_b,
		float *lse);
	/* No fused multiply-add: merge(x, y) and merge(y, x) have the same bits. */
	void (*sum_float)(const struct cpa_move_sum *rows, const float *a, const float *b);
	void (*sum_double)(const struct cpa_move_sum *rows, const double *a, const double *b);
	/* The exp (x <= 0) and log (1 <= x <= 2) of weigh, CPA_MOVE_ROWS of them, for tests. */
	void (*exp)(float *x);
	void (*log)(float *x);
};

/* The relative error of exp and the absolute one of log, in units of roundoff. */
#define CPA_MOVE_EXP_ERROR 2.0
#define CPA_MOVE_LOG_ERROR 1.0

extern const struct cpa_move_kernels cpa_move_generic;
#if CPA_CPU_X86
extern const struct cpa_move_kernels cpa_move_avx2, cpa_move_avx512;
#endif

/* The functions of the row in use. */
static inline const struct cpa_move_kernels *cpa_move(void)
{
	return cpa_cpu_kernels()->move;
}

/* Whether so many bytes, read and written, are more than the caches near a core keep. */
bool cpa_move_streams(int64_t nbytes);
/* Where more bytes than these move, threads share the work. */
enum { CPA_MOVE_PARALLEL_FROM = 4 << 20 };

#endif
