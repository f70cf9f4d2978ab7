/*
 * move_template.h - the table of move.h for one instruction set; included once for each.
 *
 * The includer defines TABLE (name of the table), WIDTH (bytes of a vector), and where the
 * machine has them FP16_WIDEN(to, from) and FP16_NARROW(to, from) for LANES numbers.
 *
 * The includer is compiled without contraction, so every instruction set gives the same bits;
 * it includes kernels/host.h, kernels/move.h and string.h before the instruction set begins.
 */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

enum { LANES = WIDTH / 4, LINE = 64, FETCH_AHEAD = 8192, BATCH = 16 };

typedef uint64_t vec __attribute__((vector_size(WIDTH), aligned(1), may_alias));
typedef float vecf __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef double vecd __attribute__((vector_size(WIDTH), aligned(8), may_alias));
typedef int32_t veci __attribute__((vector_size(WIDTH), aligned(4), may_alias));

/* ---- copies ---- */

CPA_INLINE vec load(const char *at)
{
	return *(const vec *)at;
}

CPA_INLINE void store(char *at, vec value)
{
	*(vec *)at = value;
}

/* Fewer bytes than a vector: the two halves of a piece overlap where they must. */
CPA_INLINE void copy_few(char *dst, const char *src, size_t n)
{
	uint64_t first, last;

	for (; n > 16; n -= 8, dst += 8, src += 8)
		memcpy(dst, src, 8);
	if (n >= 8) {
		memcpy(&first, src, 8);
		memcpy(&last, src + n - 8, 8);
		memcpy(dst, &first, 8);
		memcpy(dst + n - 8, &last, 8);
		return;
	}
	for (; n >= 2; n -= 2, dst += 2, src += 2)
		memcpy(dst, src, 2);
	if (n)
		*dst = *src;
}

/* A call of memcpy costs more than a row of a few hundred bytes. */
CPA_INLINE void copy_row(char *dst, const char *src, size_t n)
{
	size_t at = 0;

	if (n < WIDTH) {
		copy_few(dst, src, n);
		return;
	}
	for (; at + 4 * WIDTH <= n; at += 4 * WIDTH) {
		vec a = load(src + at), b = load(src + at + WIDTH);
		vec c = load(src + at + 2 * WIDTH), d = load(src + at + 3 * WIDTH);

		store(dst + at, a);
		store(dst + at + WIDTH, b);
		store(dst + at + 2 * WIDTH, c);
		store(dst + at + 3 * WIDTH, d);
	}
	for (; at + WIDTH <= n; at += WIDTH)
		store(dst + at, load(src + at));
	if (at < n)
		store(dst + n - WIDTH, load(src + n - WIDTH));
}

#if CPA_CPU_X86
/* A line, 16 bytes at a time: in tiles, stores of whole lines take half as long again (measured
 * on Zen 5; where the target is one run, there is no difference). */
CPA_INLINE void stream_line(char *dst, const char *src)
{
	UNROLL
	for (int i = 0; i < LINE; i += 16)
		_mm_stream_si128((__m128i *)(dst + i),
			_mm_loadu_si128((const __m128i *)(src + i)));
}

/* Whole lines past the caches, what is left and right of them as usual.  ahead: fetched, NULL
 * for nothing. */
CPA_INLINE void stream_row(char *dst, const char *src, size_t n, const char *ahead)
{
	size_t head = (size_t)(-(uintptr_t)dst % LINE), at;

	if (head + LINE > n) {
		copy_row(dst, src, n);
		return;
	}
	if (head)
		copy_row(dst, src, head);
	for (at = head; at + LINE <= n; at += LINE) {
		if (ahead)
			__builtin_prefetch(ahead + at, 0, 3);
		stream_line(dst + at, src + at);
	}
	if (at < n)
		copy_row(dst + at, src + at, n - at);
}
#endif

static void copy_rows(const struct cpa_move_rows *rows, bool stream)
{
	char *dst = rows->dst;
	const char *src = rows->src;
	int64_t dst_step = rows->dst_step, src_step = rows->src_step, nrows = rows->nrows;
	size_t nbytes = rows->nbytes;

#if CPA_CPU_X86
	if (stream) {
		for (int64_t i = 0; i < nrows; i++, dst += dst_step, src += src_step)
			stream_row(dst, src, nbytes,
				rows->ahead                         ? rows->ahead[i]
					: nbytes > 2 * FETCH_AHEAD ? src + FETCH_AHEAD
								   : NULL);
		return;
	}
#endif
	(void)stream;
	for (int64_t i = 0; i < nrows; i++, dst += dst_step, src += src_step)
		copy_row(dst, src, nbytes);
}

static void fence(void)
{
#if CPA_CPU_X86
	_mm_sfence();
#endif
}

/* ---- one pattern everywhere ---- */

static void fill(void *memory, uint64_t pattern, size_t nbytes)
{
	char *at = memory, *end = at + nbytes;
	vec all;

	for (size_t i = 0; i < WIDTH / sizeof pattern; i++)
		all[i] = pattern;
	if (nbytes < WIDTH) {
		for (; end - at >= 8; at += 8)
			memcpy(at, &pattern, 8);
		memcpy(at, &pattern, (size_t)(end - at));
		return;
	}
	for (; end - at >= 4 * WIDTH; at += 4 * WIDTH) {
		store(at, all);
		store(at + WIDTH, all);
		store(at + 2 * WIDTH, all);
		store(at + 3 * WIDTH, all);
	}
	for (; end - at >= WIDTH; at += WIDTH)
		store(at, all);
	/* The pattern is whole elements, so its end lies where the memory's does. */
	if (at < end)
		store(end - WIDTH, all);
}

#include "kernels/move_convert.h"

/* ---- merges ---- */

CPA_INLINE vecf pick(veci where, vecf yes, vecf no)
{
	return (vecf)((where & (veci)yes) | (~where & (veci)no));
}

CPA_INLINE vecf all_of(float x)
{
	vecf zero = {0};

	return zero + x;
}

/*
 * exp of x <= 0: 2^n exp(r), |r| <= ln(2)/2, n by adding and taking away 1.5 * 2^23, whose last
 * place is 1.  n ln(2) is taken off in two parts, the first of which has few enough bits for
 * its product to be exact; 2^n in two factors, so that subnormal results round once.
 * Polynomial: (exp(r) - 1 - r) / r^2 at Chebyshev's points, 0.2 roundoffs of the result.
 * NaN stays NaN.
 */
CPA_INLINE vecf exp_of(vecf x)
{
	const vecf shift = all_of(0x1.8p23f);
	vecf r, q, n, floor;
	veci k, half;

	/* Below, 0; and k must not wrap. */
	x = pick(x < -150.0f, all_of(-150.0f), x);
	n = x * 0x1.715476p+0f + shift;
	k = (veci)n - (veci)shift;
	floor = n - shift;
	r = x - floor * 0x1.62e4p-1f;
	r = r - floor * 0x1.7f7d1cp-20f;
	q = r * 0x1.6d1254p-10f + 0x1.120cbap-7f;
	q = q * r + 0x1.555518p-5f;
	q = q * r + 0x1.5554dcp-3f;
	q = q * r + 0.5f;
	q = 1.0f + (r + r * r * q);
	half = k >> 1;
	return q * (vecf)((half + 127) << 23) * (vecf)((k - half + 127) << 23);
}

/*
 * log of 1 <= x <= 2.  x = 2^k (1 + f), f from -0.293 to 0.414, z = f / (2 + f), and
 * log(1 + f) = 2 atanh(z) = 2z + z R, where 2z = f - z f.  R: a polynomial in z^2 at
 * Chebyshev's points, 0.02 roundoffs of 1.  log(1) = 0 and log(2) is as near as a float is.
 */
CPA_INLINE vecf log_of(vecf x)
{
	veci upper = x > 0x1.6a09e6p+0f;
	vecf f = pick(upper, x * 0.5f, x) - 1.0f, z = f / (2.0f + f), w = z * z, R, k;

	R = w * (0x1.55555cp-1f + w * (0x1.997c1p-2f + w * 0x1.2eebdap-2f));
	k = pick(upper, all_of(0x1.62e43p-1f), all_of(0.0f));
	return k + (f - z * (f - R));
}

CPA_INLINE void weigh_lanes(
	const float *lse_a, const float *lse_b, float *lse, float *a, float *b)
{
	vecf la = *(const vecf *)lse_a, lb = *(const vecf *)lse_b;
	veci above = la >= lb;
	vecf max = pick(above, la, lb), min = pick(above, lb, la);
	vecf e = exp_of(min - max), sum = 1.0f + e, one = 1.0f / sum, other = e / sum;

	*(vecf *)lse = max + log_of(sum);
	*(vecf *)a = pick(above, one, other);
	*(vecf *)b = pick(above, other, one);
}

static void weigh(
	const float *lse_a, const float *lse_b, float *lse, float *a, float *b, int n)
{
	for (int i = 0; i < n; i += LANES)
		weigh_lanes(lse_a + i, lse_b + i, lse + i, a + i, b + i);
}

static void exp_floats(float *x)
{
	for (int i = 0; i < CPA_MOVE_ROWS; i += LANES)
		*(vecf *)(x + i) = exp_of(*(vecf *)(x + i));
}

static void log_floats(float *x)
{
	for (int i = 0; i < CPA_MOVE_ROWS; i += LANES)
		*(vecf *)(x + i) = log_of(*(vecf *)(x + i));
}

/* Adding zeros where there is no second operand makes 0 of -0, as a row of zeros would. */
#define SUM(name, type, vector) \
	CPA_INLINE void name##_row(type *o, const type *o_b, type a, type b, int64_t n) \
	{ \
		const int64_t lanes = WIDTH / (int64_t)sizeof(type); \
		int64_t d = 0; \
\
		for (; d + 4 * lanes <= n; d += 4 * lanes) { \
			vector *x = (vector *)(o + d); \
			const vector *y = (const vector *)(o_b + d); \
			vector s = a * x[0] + b * y[0], t = a * x[1] + b * y[1]; \
			vector u = a * x[2] + b * y[2], v = a * x[3] + b * y[3]; \
\
			x[0] = s; \
			x[1] = t; \
			x[2] = u; \
			x[3] = v; \
		} \
		for (; d + lanes <= n; d += lanes) \
			*(vector *)(o + d) = a * *(vector *)(o + d) + \
				b * *(const vector *)(o_b + d); \
		for (; d < n; d++) \
			o[d] = a * o[d] + b * o_b[d]; \
	} \
\
	static void name(const struct cpa_move_sum *rows, const type *a, const type *b) \
	{ \
		type *o = rows->o; \
		const type *o_b = rows->o_b; \
		int64_t n = rows->dim; \
\
		for (int64_t i = 0; i < rows->nrows; i++, o += rows->step) { \
			if (o_b) { \
				name##_row(o, o_b, a[i], b[i], n); \
				o_b += rows->step_b; \
			} else { \
				for (int64_t d = 0; d < n; d++) \
					o[d] = a[i] * o[d] + 0; \
			} \
		} \
	}
SUM(sum_float, float, vecf)
SUM(sum_double, double, vecd)

CPA_INLINE bool has_empty(const float *lse_a, const float *lse_b, int64_t n)
{
	veci empty = {0};
	int32_t any = 0;

	for (int64_t i = 0; i < n; i += LANES)
		empty |= (*(const vecf *)(lse_a + i) == -INFINITY) |
			(*(const vecf *)(lse_b + i) == -INFINITY);
	for (int i = 0; i < LANES; i++)
		any |= empty[i];
	return any;
}

/*
 * The weights of the next BATCH rows come before the rows of this one: they take long to be
 * known but few instructions, so that the processor reads rows meanwhile.
 */
CPA_INLINE void merge_rows(const struct cpa_move_sum *rows, const float *lse_a,
	const float *lse_b, float *lse, int64_t dim)
{
	float a[2][BATCH], b[2][BATCH];
	float *o = rows->o;
	const float *o_b = rows->o_b;
	const int64_t nrows = rows->nrows, step = rows->step, step_b = rows->step_b;

	for (int64_t i = -BATCH; i < nrows; i += BATCH) {
		const int64_t next = i + BATCH, now = i / BATCH & 1;
		int64_t n = i < 0 ? 0 : nrows - i < BATCH ? nrows - i : BATCH;
		const float *wa = a[now], *wb = b[now];

		if (next < nrows)
			for (int j = 0; j < BATCH; j += LANES)
				weigh_lanes(lse_a + next + j, lse_b + next + j, lse + next + j,
					a[!now] + j, b[!now] + j);
		for (; n > 0; n--, o += step, o_b += step_b)
			sum_float_row(o, o_b, *wa++, *wb++, dim);
	}
}

static bool merge(
	const struct cpa_move_sum *rows, const float *lse_a, const float *lse_b, float *lse)
{
	if (has_empty(lse_a, lse_b, rows->nrows))
		return false;
	if (rows->dim == 128)
		merge_rows(rows, lse_a, lse_b, lse, 128);
	else if (rows->dim == 64)
		merge_rows(rows, lse_a, lse_b, lse, 64);
	else
		merge_rows(rows, lse_a, lse_b, lse, rows->dim);
	return true;
}

const struct cpa_move_kernels TABLE = {
	.copy = copy_rows,
	.fence = fence,
	.fill = fill,
	.convert = {[CPA_DTYPE_FP64] = {NULL, fp64_from_fp32, fp64_from_bf16, fp64_from_fp16},
		[CPA_DTYPE_FP32] = {fp32_from_fp64, NULL, fp32_from_bf16, fp32_from_fp16},
		[CPA_DTYPE_BF16] = {bf16_from_fp64, bf16_from_fp32, NULL, bf16_from_fp16},
		[CPA_DTYPE_FP16] = {fp16_from_fp64, fp16_from_fp32, fp16_from_bf16, NULL}},
	.weigh = weigh,
	.merge = merge,
	.sum_float = sum_float,
	.sum_double = sum_double,
	.exp = exp_floats,
	.log = log_floats,
};
