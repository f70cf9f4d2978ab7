/*
 * attend_avx512.h - vectors of 16 numbers of AVX-512, as the kernels want them.  Included between
 * CPA_TARGET_BEGIN_AVX512 and CPA_TARGET_END.
 */
#ifndef CPA_ATTEND_AVX512_H
#define CPA_ATTEND_AVX512_H

#include "kernels/attend_vector.h"

typedef float f32 __attribute__((vector_size(64), may_alias));
typedef int32_t i32 __attribute__((vector_size(64), may_alias));

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

#endif
