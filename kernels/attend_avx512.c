/*
 * attend_avx512.c - the attention kernel for AVX-512: 32 registers of 16 numbers.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX512

typedef float f32 __attribute__((vector_size(64), may_alias));
typedef int32_t i32 __attribute__((vector_size(64), may_alias));
typedef double f64 __attribute__((vector_size(64), may_alias));
typedef int64_t i64 __attribute__((vector_size(64), may_alias));

CPA_INLINE f32 f32_spread(float x)
{
	return (f32)_mm512_set1_ps(x);
}

CPA_INLINE f32 f32_broadcast(const float *x)
{
	return (f32)_mm512_set1_ps(*x);
}

CPA_INLINE f32 f32_fma(f32 a, f32 b, f32 c)
{
	return (f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

CPA_INLINE f32 f32_max(f32 a, f32 b)
{
	return (f32)_mm512_max_ps((__m512)a, (__m512)b);
}

/* x - floor(x) is one instruction, and so is times 2^floor(x), which needs no limits. */
CPA_INLINE f32 f32_exp2(f32 x)
{
	f32 f = (f32)_mm512_reduce_ps((__m512)x, 1 | 8);
	f32 p = EXP2_0_1(f32_spread, f, f32_fma);

	return (f32)_mm512_scalef_ps((__m512)p, (__m512)x);
}

CPA_INLINE f32 f32_round_bf16(f32 p)
{
	return (f32)(((i32)p + 0x8000) & (int)0xffff0000);
}

CPA_INLINE f32 f32_round_fp16(f32 p)
{
	return (f32)_mm512_cvtph_ps(
		_mm512_cvtps_ph((__m512)p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

PORTABLE_LOG(f32, f32, i32)

CPA_INLINE f32 f32_load_bf16(const uint16_t *x)
{
	__m256i half = _mm256_loadu_si256((const __m256i *)(const void *)x);

	return (f32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

CPA_INLINE f32 f32_load_fp16(const uint16_t *x)
{
	return (f32)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

/* To nearest even; a NaN keeps its upper bits and one that says NaN. */
CPA_INLINE void f32_store_bf16(uint16_t *to, f32 x)
{
	__m512i bits = (__m512i)x,
		odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(
		_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);

	rounded = _mm512_mask_or_epi32(rounded,
		_mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), bits,
		_mm512_set1_epi32(0x400000));
	_mm256_storeu_si256(
		(__m256i *)(void *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

CPA_INLINE void f32_store_fp16(uint16_t *to, f32 x)
{
	_mm256_storeu_si256((__m256i *)(void *)to,
		_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Pairs, then pairs of pairs within quarters; then quarters change places. */
CPA_INLINE void f32_transpose(f32 *rows)
{
	__m512 r[16];
	__m512d t[16];

	UNROLL
	for (int i = 0; i < 16; i += 2) {
		t[i] = (__m512d)_mm512_unpacklo_ps((__m512)rows[i], (__m512)rows[i + 1]);
		t[i + 1] = (__m512d)_mm512_unpackhi_ps((__m512)rows[i], (__m512)rows[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		r[i] = (__m512)_mm512_unpacklo_pd(t[i], t[i + 2]);
		r[i + 1] = (__m512)_mm512_unpackhi_pd(t[i], t[i + 2]);
		r[i + 2] = (__m512)_mm512_unpacklo_pd(t[i + 1], t[i + 3]);
		r[i + 3] = (__m512)_mm512_unpackhi_pd(t[i + 1], t[i + 3]);
	}
	UNROLL
	for (int c = 0; c < 4; c++) {
		__m512 even = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
		__m512 odd = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
		__m512 even_2 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
		__m512 odd_2 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);

		rows[c] = (f32)_mm512_shuffle_f32x4(even, even_2, 0x88);
		rows[4 + c] = (f32)_mm512_shuffle_f32x4(odd, odd_2, 0x88);
		rows[8 + c] = (f32)_mm512_shuffle_f32x4(even, even_2, 0xdd);
		rows[12 + c] = (f32)_mm512_shuffle_f32x4(odd, odd_2, 0xdd);
	}
}

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
#endif
