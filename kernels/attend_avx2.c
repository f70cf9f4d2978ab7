/*
 * attend_avx2.c - the attention kernel for AVX2 with FMA: 16 registers of 8 numbers.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX2

typedef float f32 __attribute__((vector_size(32), may_alias));
typedef int32_t i32 __attribute__((vector_size(32), may_alias));
typedef double f64 __attribute__((vector_size(32), may_alias));
typedef int64_t i64 __attribute__((vector_size(32), may_alias));

CPA_INLINE f32 f32_spread(float x)
{
	return (f32)_mm256_set1_ps(x);
}

CPA_INLINE f32 f32_broadcast(const float *x)
{
	return (f32)_mm256_broadcast_ss(x);
}

CPA_INLINE f32 f32_fma(f32 a, f32 b, f32 c)
{
	return (f32)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

CPA_INLINE f32 f32_max(f32 a, f32 b)
{
	return (f32)_mm256_max_ps((__m256)a, (__m256)b);
}

PORTABLE_EXP2(f32, float, f32, i32, 0x1.8p23f, 127, 23, -126, EXP2_HALF)

CPA_INLINE f32 f32_round_bf16(f32 p)
{
	return (f32)(((i32)p + 0x8000) & (int)0xffff0000);
}

CPA_INLINE f32 f32_round_fp16(f32 p)
{
	return (f32)_mm256_cvtph_ps(
		_mm256_cvtps_ph((__m256)p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

PORTABLE_LOG(f32, f32, i32)

CPA_INLINE f32 f32_load_bf16(const uint16_t *x)
{
	__m128i half = _mm_loadu_si128((const __m128i *)(const void *)x);

	return (f32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

CPA_INLINE f32 f32_load_fp16(const uint16_t *x)
{
	return (f32)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

/* To nearest even; a NaN keeps its upper bits and one that says NaN. */
CPA_INLINE void f32_store_bf16(uint16_t *to, f32 x)
{
	__m256i bits = (__m256i)x,
		odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(
		_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	__m256i nan = (__m256i)_mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q);
	__m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));

	rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
	rounded = _mm256_packus_epi32(rounded, rounded);
	rounded = _mm256_permute4x64_epi64(rounded, 8);
	_mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(rounded));
}

CPA_INLINE void f32_store_fp16(uint16_t *to, f32 x)
{
	_mm_storeu_si128((__m128i *)(void *)to,
		_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Pairs, then pairs of pairs within halves; then halves change places. */
CPA_INLINE void f32_transpose(f32 *rows)
{
	__m256 r[8];
	__m256d t[8];

	UNROLL
	for (int i = 0; i < 8; i += 2) {
		t[i] = (__m256d)_mm256_unpacklo_ps((__m256)rows[i], (__m256)rows[i + 1]);
		t[i + 1] = (__m256d)_mm256_unpackhi_ps((__m256)rows[i], (__m256)rows[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 8; i += 4) {
		r[i] = (__m256)_mm256_unpacklo_pd(t[i], t[i + 2]);
		r[i + 1] = (__m256)_mm256_unpackhi_pd(t[i], t[i + 2]);
		r[i + 2] = (__m256)_mm256_unpacklo_pd(t[i + 1], t[i + 3]);
		r[i + 3] = (__m256)_mm256_unpackhi_pd(t[i + 1], t[i + 3]);
	}
	UNROLL
	for (int c = 0; c < 4; c++) {
		rows[c] = (f32)_mm256_permute2f128_ps(r[c], r[4 + c], 0x20);
		rows[4 + c] = (f32)_mm256_permute2f128_ps(r[c], r[4 + c], 0x31);
	}
}

CPA_INLINE f64 f64_spread(double x)
{
	return (f64)_mm256_set1_pd(x);
}

CPA_INLINE f64 f64_broadcast(const double *x)
{
	return (f64)_mm256_broadcast_sd(x);
}

CPA_INLINE f64 f64_fma(f64 a, f64 b, f64 c)
{
	return (f64)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}

CPA_INLINE f64 f64_max(f64 a, f64 b)
{
	return (f64)_mm256_max_pd((__m256d)a, (__m256d)b);
}

PORTABLE_EXP2(f64, double, f64, i64, 0x1.8p52, 1023, 52, -1022, EXP2_HALF_FP64)
PLAIN_LOG(f64, f64, 4)
NO_ROUND(f64, f64)

CPA_INLINE void f64_transpose(f64 *rows)
{
	__m256d t[4];

	UNROLL
	for (int i = 0; i < 4; i += 2) {
		t[i] = _mm256_unpacklo_pd((__m256d)rows[i], (__m256d)rows[i + 1]);
		t[i + 1] = _mm256_unpackhi_pd((__m256d)rows[i], (__m256d)rows[i + 1]);
	}
	UNROLL
	for (int c = 0; c < 2; c++) {
		rows[c] = (f64)_mm256_permute2f128_pd(t[c], t[2 + c], 0x20);
		rows[2 + c] = (f64)_mm256_permute2f128_pd(t[c], t[2 + c], 0x31);
	}
}

CPA_INLINE f32 f32_part(const float *x)
{
	return (f32)_mm256_broadcast_ps((const __m128 *)(const void *)x);
}

CPA_INLINE f32 f32_one_of_part(f32 x, const int g)
{
	return (f32)(g == 0	 ? _mm256_permute_ps((__m256)x, 0x00)
			: g == 1 ? _mm256_permute_ps((__m256)x, 0x55)
			: g == 2 ? _mm256_permute_ps((__m256)x, 0xaa)
				 : _mm256_permute_ps((__m256)x, 0xff));
}

CPA_INLINE void f32_turn_parts(f32 *rows)
{
	__m256d low = (__m256d)_mm256_unpacklo_ps((__m256)rows[0], (__m256)rows[1]),
		high = (__m256d)_mm256_unpackhi_ps((__m256)rows[0], (__m256)rows[1]),
		low_2 = (__m256d)_mm256_unpacklo_ps((__m256)rows[2], (__m256)rows[3]),
		high_2 = (__m256d)_mm256_unpackhi_ps((__m256)rows[2], (__m256)rows[3]);

	rows[0] = (f32)_mm256_unpacklo_pd(low, low_2);
	rows[1] = (f32)_mm256_unpackhi_pd(low, low_2);
	rows[2] = (f32)_mm256_unpacklo_pd(high, high_2);
	rows[3] = (f32)_mm256_unpackhi_pd(high, high_2);
}

PLAIN_PARTS(f64, double, f64)
PLAIN_TOTALS(f32, f32, 8)
PLAIN_TOTALS(f64, f64, 4)
NO_STREAM(f32, float, f32)
NO_STREAM(f64, double, f64)

#define REAL float
#define NAME(x) f32_##x
#define VECTOR f32
#define WIDE 8
#define PART 4
#define INTS i32
#define ROWS 4
#define COLUMNS 3
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define HALVES 1
#include "kernels/attend_template.h"

#define REAL double
#define NAME(x) f64_##x
#define VECTOR f64
#define WIDE 4
#define PART 1
#define INTS i64
#define ROWS 4
#define COLUMNS 3
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define HALVES 0
#include "kernels/attend_template.h"

CPA_TARGET_END

const struct cpa_attend_kernels cpa_attend_avx2 = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};
#endif
