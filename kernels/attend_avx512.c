/*
 * attend_avx512.c - the attention kernel for AVX-512: 32 registers of 16 numbers.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX512

#include "kernels/attend_avx512.h"

typedef double f64 __attribute__((vector_size(64), may_alias));
typedef int64_t i64 __attribute__((vector_size(64), may_alias));

CPA_INLINE f64 f64_spread(double x)
{
	return (f64)_mm512_set1_pd(x);
}

CPA_INLINE f64 f64_broadcast(const double *x)
{
	return (f64)_mm512_set1_pd(*x);
}

CPA_INLINE f64 f64_fma(f64 a, f64 b, f64 c)
{
	return (f64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

CPA_INLINE f64 f64_max(f64 a, f64 b)
{
	return (f64)_mm512_max_pd((__m512d)a, (__m512d)b);
}

PORTABLE_EXP2(f64, double, f64, i64, 0x1.8p52, 1023, 52, -1022, EXP2_HALF_FP64)
PLAIN_LOG(f64, f64, 8)
NO_ROUND(f64, f64)

CPA_INLINE void f64_transpose(f64 *rows)
{
	__m512d t[8];

	UNROLL
	for (int i = 0; i < 8; i += 2) {
		t[i] = _mm512_unpacklo_pd((__m512d)rows[i], (__m512d)rows[i + 1]);
		t[i + 1] = _mm512_unpackhi_pd((__m512d)rows[i], (__m512d)rows[i + 1]);
	}
	UNROLL
	for (int c = 0; c < 2; c++) {
		__m512d even = _mm512_shuffle_f64x2(t[c], t[2 + c], 0x88);
		__m512d odd = _mm512_shuffle_f64x2(t[c], t[2 + c], 0xdd);
		__m512d even_2 = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0x88);
		__m512d odd_2 = _mm512_shuffle_f64x2(t[4 + c], t[6 + c], 0xdd);

		rows[c] = (f64)_mm512_shuffle_f64x2(even, even_2, 0x88);
		rows[2 + c] = (f64)_mm512_shuffle_f64x2(odd, odd_2, 0x88);
		rows[4 + c] = (f64)_mm512_shuffle_f64x2(even, even_2, 0xdd);
		rows[6 + c] = (f64)_mm512_shuffle_f64x2(odd, odd_2, 0xdd);
	}
}

PLAIN_TOTALS(f64, f64, 8)

/* Neighbours are added as they are interleaved, until each has its number: half as many shuffles
 * as a transpose. */
CPA_INLINE f32 f32_totals(f32 *rows)
{
	f32 s[8], t[4], u[2];

	UNROLL
	for (int i = 0; i < 8; i++)
		s[i] = (f32)_mm512_unpacklo_ps((__m512)rows[2 * i], (__m512)rows[2 * i + 1]) +
			(f32)_mm512_unpackhi_ps((__m512)rows[2 * i], (__m512)rows[2 * i + 1]);
	UNROLL
	for (int i = 0; i < 4; i++)
		t[i] = (f32)_mm512_unpacklo_pd((__m512d)s[2 * i], (__m512d)s[2 * i + 1]) +
			(f32)_mm512_unpackhi_pd((__m512d)s[2 * i], (__m512d)s[2 * i + 1]);
	UNROLL
	for (int i = 0; i < 2; i++)
		u[i] = (f32)_mm512_shuffle_f32x4((__m512)t[2 * i], (__m512)t[2 * i + 1], 0x88) +
			(f32)_mm512_shuffle_f32x4((__m512)t[2 * i], (__m512)t[2 * i + 1], 0xdd);
	return (f32)_mm512_shuffle_f32x4((__m512)u[0], (__m512)u[1], 0x88) +
		(f32)_mm512_shuffle_f32x4((__m512)u[0], (__m512)u[1], 0xdd);
}

CPA_INLINE f32 f32_part(const float *x)
{
	return (f32)_mm512_broadcast_f32x4(_mm_loadu_ps(x));
}

CPA_INLINE f32 f32_one_of_part(f32 x, const int g)
{
	return (f32)(g == 0	 ? _mm512_permute_ps((__m512)x, 0x00)
			: g == 1 ? _mm512_permute_ps((__m512)x, 0x55)
			: g == 2 ? _mm512_permute_ps((__m512)x, 0xaa)
				 : _mm512_permute_ps((__m512)x, 0xff));
}

CPA_INLINE void f32_turn_parts(f32 *rows)
{
	__m512d low = (__m512d)_mm512_unpacklo_ps((__m512)rows[0], (__m512)rows[1]),
		high = (__m512d)_mm512_unpackhi_ps((__m512)rows[0], (__m512)rows[1]),
		low_2 = (__m512d)_mm512_unpacklo_ps((__m512)rows[2], (__m512)rows[3]),
		high_2 = (__m512d)_mm512_unpackhi_ps((__m512)rows[2], (__m512)rows[3]);

	rows[0] = (f32)_mm512_unpacklo_pd(low, low_2);
	rows[1] = (f32)_mm512_unpackhi_pd(low, low_2);
	rows[2] = (f32)_mm512_unpacklo_pd(high, high_2);
	rows[3] = (f32)_mm512_unpackhi_pd(high, high_2);
}

CPA_INLINE f64 f64_part(const double *x)
{
	return (f64)_mm512_broadcast_f64x2(_mm_loadu_pd(x));
}

CPA_INLINE f64 f64_one_of_part(f64 x, const int g)
{
	return (f64)(g == 0 ? _mm512_permute_pd((__m512d)x, 0x00)
			    : _mm512_permute_pd((__m512d)x, 0xff));
}

CPA_INLINE void f64_turn_parts(f64 *rows)
{
	__m512d low = _mm512_unpacklo_pd((__m512d)rows[0], (__m512d)rows[1]);

	rows[1] = (f64)_mm512_unpackhi_pd((__m512d)rows[0], (__m512d)rows[1]);
	rows[0] = (f64)low;
}

CPA_INLINE void f32_stream(float *to, f32 x)
{
	_mm512_stream_ps(to, (__m512)x);
}

CPA_INLINE void f64_stream(double *to, f64 x)
{
	_mm512_stream_pd(to, (__m512d)x);
}

/* Other threads are told of a unit's end by ordinary stores, which may overtake these. */
CPA_INLINE void f32_stream_end(void)
{
	_mm_sfence();
}

CPA_INLINE void f64_stream_end(void)
{
	_mm_sfence();
}

#define REAL float
#define NAME(x) f32_##x
#define VECTOR f32
#define WIDE 16
#define PART 4
#define INTS i32
#define ROWS 6
#define COLUMNS 4
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define HALVES 1
#include "kernels/attend_template.h"

#define REAL double
#define NAME(x) f64_##x
#define VECTOR f64
#define WIDE 8
#define PART 2
#define INTS i64
#define ROWS 6
#define COLUMNS 4
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define HALVES 0
#include "kernels/attend_template.h"

CPA_TARGET_END

const struct cpa_attend_kernels cpa_attend_avx512 = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};

/* There are pairs and tiles for bf16 only; all else is as without them. */
#define WITH_TILES(bf16)                                                                         \
	{                                                                                        \
		{[CPA_DTYPE_FP64] = &f64_type, [CPA_DTYPE_FP32] = &f32_type,                     \
			[CPA_DTYPE_BF16] = &(bf16), [CPA_DTYPE_FP16] = &f32_type},               \
			f32_exp2_test, f64_exp2_test                                             \
	}
const struct cpa_attend_kernels cpa_attend_avx512_bf16 = WITH_TILES(cpa_attend_avx512_pairs);
const struct cpa_attend_kernels cpa_attend_amx = WITH_TILES(cpa_attend_amx_bf16);
const struct cpa_attend_kernels cpa_attend_amx_software =
	WITH_TILES(cpa_attend_amx_software_bf16);
#endif
