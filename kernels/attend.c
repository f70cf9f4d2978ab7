/*
 * attend.c - ATTEND on the cpu device: rows and keys in blocks, fp32, or fp64 for fp64
 * problems.
 *
 * A unit of work is up to ROWS query rows of one head and batch item, in tiles of as many rows
 * as fill 64 bytes.  Units share nothing, so results do not depend on the number of threads.
 */
#include "kernels/host.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum {
	ROWS = 64, /* query rows that share one loading of a key block */
	KEYS = 96, /* keys in a block, a multiple of GROUP */
	GROUP = 6, /* keys, or features of v, that meet a vector of lanes at a time */
	PARALLEL_FROM = 1 << 22 /* multiplications */
};

/* Loops over local arrays become registers only when unrolled in full. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

/* 32 bytes; two of them fill the lanes, and with GROUP 6 the sums fit into 16 registers. */
static bool has_wide_vectors(void)
{
#if defined(CPA_HAVE_CLONES)
	return __builtin_cpu_supports("x86-64-v3");
#elif defined(__AVX__)
	return true;
#else
	return false;
#endif
}

/* One call. */
struct call {
	const struct cpa_attend *attend;
	struct cpa_range *visible; /* [batches][nq] */
	int64_t *q_ids, *k_ids;    /* [nq], [nk] global; only with a mask */
};

/*
 * What the rows of a unit see by interval, closed up: keys between, which no row sees, are left
 * out.  They cost time, and may hold anything; a weight of 0 times NaN would be NaN.
 */
struct sight {
	struct cpa_range row[ROWS];   /* counted in keys kept; start > end: none */
	struct cpa_range piece[ROWS]; /* kept indices into k: ascending, with gaps */
	int npieces;
	int64_t nkeys;
};

/* One unit. */
struct work {
	const struct call *call;
	const struct cpa_attend *attend;
	struct sight sight;
	int64_t b, h, kv; /* of the arrays */
	int64_t first, n; /* query rows */
	int ntiles;
};

static void close_up(const struct cpa_range *visible, int n, struct sight *sight)
{
	int order[ROWS];
	int64_t before = 0; /* keys kept of earlier pieces */
	struct cpa_range *last = NULL;

	for (int i = 0; i < n; i++) {
		int at = i;

		for (; at > 0 && visible[order[at - 1]].start > visible[i].start; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	sight->npieces = 0;
	for (int i = 0; i < n; i++) {
		struct cpa_range keys = visible[order[i]];

		if (keys.start >= keys.end) {
			sight->row[order[i]] = (struct cpa_range){INT64_MAX, 0};
			continue;
		}
		if (!last || keys.start > last->end) {
			before += last ? last->end - last->start : 0;
			last = &sight->piece[sight->npieces++];
			*last = keys;
		}
		last->end = keys.end > last->end ? keys.end : last->end;
		sight->row[order[i]].start = keys.start - last->start + before;
		sight->row[order[i]].end = keys.end - last->start + before;
	}
	sight->nkeys = last ? before + last->end - last->start : 0;
}

/* A key counted from the first of a block, or the nearest end of any block. */
CPA_INLINE int32_t clip_keys(int64_t j)
{
	return j < 0 ? 0 : j > KEYS ? KEYS : (int32_t)j;
}

/* p to bf16: nearest even, no NaN to care for. */
CPA_INLINE float round_bf16(float p)
{
	uint32_t bits;

	memcpy(&bits, &p, sizeof bits);
	bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
	memcpy(&p, &bits, sizeof p);
	return p;
}

/* Likewise to fp16, for 0 <= p <= 1; below 2^-14 to a multiple of 2^-24, as adding 1/2 does. */
CPA_INLINE float round_fp16(float p)
{
	uint32_t bits;
	float normal, small = (p + 0.5f) - 0.5f;

	memcpy(&bits, &p, sizeof bits);
	bits = (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
	memcpy(&normal, &bits, sizeof normal);
	return p < 0x1p-14f ? small : normal;
}

CPA_INLINE void round_weights_float(enum cpa_dtype dtype, float *p, int64_t n)
{
	if (dtype == CPA_DTYPE_BF16)
		for (int64_t i = 0; i < n; i++)
			p[i] = round_bf16(p[i]);
	else if (dtype == CPA_DTYPE_FP16)
		for (int64_t i = 0; i < n; i++)
			p[i] = round_fp16(p[i]);
}

CPA_INLINE void round_weights_double(enum cpa_dtype dtype, double *p, int64_t n)
{
	(void)dtype;
	(void)p;
	(void)n;
}

/* Taylor to r^7: 0.1 units at |r| = ln 2 / 2. */
#define POLYNOMIAL_7(r) \
	(1 + (r) * (1 + (r) * (1 / 2.f + (r) * (1 / 6.f + (r) * (1 / 24.f + (r) * (1 / 120.f + \
		(r) * (1 / 720.f + (r) * (1 / 5040.f))))))))
/* To r^13: 0.04 units. */
#define POLYNOMIAL_13(r) \
	(1 + (r) * (1 + (r) * (1 / 2. + (r) * (1 / 6. + (r) * (1 / 24. + (r) * (1 / 120. + \
		(r) * (1 / 720. + (r) * (1 / 5040. + (r) * (1 / 40320. + (r) * (1 / 362880. + \
		(r) * (1 / 3628800. + (r) * (1 / 39916800. + (r) * (1 / 479001600. + \
		(r) * (1 / 6227020800.))))))))))))))

/* ln 2 is cut so that n EXP_LN2_HIGH is exact; adding EXP_SHIFT rounds to an integer. */
#define REAL float
#define BITS uint32_t
#define NAME(x) x##_float
#define LANES 16
#define TILES (ROWS / LANES)
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define LOG logf
#define EXP_SHIFT 0x1.8p23f
#define EXP_LN2_HIGH 0x1.62e4p-1f
#define EXP_LN2_LOW 0x1.7f7d1cf8p-20f
#define EXP_POLYNOMIAL POLYNOMIAL_7
#define EXP_BIAS 127
#define EXP_FRACTION 23
#define EXP_LEAST (-87.33654f)
#include "kernels/attend_template.h"

#define REAL double
#define BITS uint64_t
#define NAME(x) x##_double
#define LANES 8
#define TILES (ROWS / LANES)
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define LOG log
#define EXP_SHIFT 0x1.8p52
#define EXP_LN2_HIGH 0x1.62e42fefa38p-1
#define EXP_LN2_LOW 0x1.ef35793c7673p-45
#define EXP_POLYNOMIAL POLYNOMIAL_13
#define EXP_BIAS 1023
#define EXP_FRACTION 52
#define EXP_LEAST (-708.396418532264)
#include "kernels/attend_template.h"

/*
 * Additions of a row: KEYS within a block, then per block the product that shrinks the older
 * sum, its addition and the error of the exp in that factor; 2 + CPA_CPU_EXP_ERROR, and 1 for
 * rounding the difference of the maxima x, whose effect x exp(-x) is below that.  What a row
 * sees may lie across one block more than fills it: that product is in c_exp, of which exp
 * needs 2.
 */
struct cpa_arithmetic cpa_cpu_arithmetic(const struct cpa_problem *problem)
{
	bool wide = problem->dtype == CPA_DTYPE_FP64;

	return (struct cpa_arithmetic){
		.u = wide ? 0x1p-53 : 0x1p-24,
		.c_exp = 8,
		.chain = KEYS,
		.chain_key = (3 + CPA_CPU_EXP_ERROR) / KEYS,
		.rounds_p =
			problem->dtype == CPA_DTYPE_BF16 || problem->dtype == CPA_DTYPE_FP16,
	};
}

static size_t space_nbytes(const struct cpa_problem *problem)
{
	struct space_float narrow;
	struct space_double wide;

	return problem->dtype == CPA_DTYPE_FP64 ? lay_double(&wide, problem, NULL)
						: lay_float(&narrow, problem, NULL);
}

/* Unit i of the call, counted rows first, then heads, then batch items. */
static void attend_unit(const struct call *call, int64_t i, char *space)
{
	const struct cpa_attend *attend = call->attend;
	const struct cpa_problem *problem = attend->problem;
	int64_t nblocks = (attend->nq + ROWS - 1) / ROWS;
	int64_t nheads = attend->heads.end - attend->heads.start;
	int lanes = problem->dtype == CPA_DTYPE_FP64 ? 8 : 16;
	struct work work;

	work.call = call;
	work.attend = attend;
	work.b = i / nblocks / nheads;
	work.h = i / nblocks % nheads;
	work.kv = (attend->heads.start + work.h) / (problem->Hq / problem->Hkv) -
		attend->kv_first;
	work.first = i % nblocks * ROWS;
	work.n = attend->nq - work.first < ROWS ? attend->nq - work.first : ROWS;
	work.ntiles = (int)((work.n + lanes - 1) / lanes);
	close_up(call->visible + work.b * attend->nq + work.first, (int)work.n, &work.sight);
	if (problem->dtype == CPA_DTYPE_FP64)
		attend_rows_double(&work, space);
	else
		attend_rows_float(&work, space);
}

static int count_threads(const struct cpa_attend *attend, int64_t nunits)
{
#ifdef _OPENMP
	const struct cpa_problem *problem = attend->problem;
	double work =
		(double)nunits * ROWS * (double)attend->nk * (double)(problem->D + problem->Dv);
	int n = omp_get_max_threads();

	return work < PARALLEL_FROM ? 1 : n < nunits ? n : (int)nunits;
#else
	(void)attend;
	(void)nunits;
	return 1;
#endif
}

static void attend_units(
	const struct call *call, int64_t nunits, char *space, size_t nbytes, int nthreads)
{
	(void)nthreads;
	CPA_OMP(omp parallel for schedule(dynamic) num_threads(nthreads) if (nthreads > 1))
	for (int64_t i = 0; i < nunits; i++) {
#ifdef _OPENMP
		char *own = space + nbytes * (size_t)omp_get_thread_num();
#else
		char *own = space + 0 * nbytes;
#endif
		attend_unit(call, i, own);
	}
}

/* False: out of memory. */
static bool start_call(const struct cpa_attend *attend, struct call *call)
{
	bool masked = attend->problem->rule.mask.kind != CPA_MASK_NONE;

	*call = (struct call){attend, cpa_host_visible(attend), NULL, NULL};
	if (masked) {
		call->q_ids = cpa_host_tokens(&attend->q_tokens, attend->nq);
		call->k_ids = cpa_host_tokens(&attend->k_tokens, attend->nk);
	}
	return call->visible && (!masked || (call->q_ids && call->k_ids));
}

enum cpa_status cpa_cpu_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	int64_t nunits = (attend->batches.end - attend->batches.start) *
		(attend->heads.end - attend->heads.start) * ((attend->nq + ROWS - 1) / ROWS);
	int nthreads = count_threads(attend, nunits);
	size_t nbytes = space_nbytes(attend->problem);
	enum cpa_status status = CPA_OK;
	struct call call;
	void *space = NULL;

	(void)device;
	(void)queue;
	if (!start_call(attend, &call) ||
		posix_memalign(&space, CPA_HOST_ALIGN, nbytes * (size_t)nthreads + 1)) {
		space = NULL;
		status = cpa_fail(error, CPA_NO_MEMORY,
			"attend: no memory for %zu bytes of scratch a thread", nbytes);
	} else {
		/* Padding of k and v must be numbers, if any. */
		memset(space, 0, nbytes * (size_t)nthreads);
		attend_units(&call, nunits, space, nbytes, nthreads);
	}
	free(space);
	free(call.visible);
	free(call.q_ids);
	free(call.k_ids);
	return status;
}
