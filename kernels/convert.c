/*
 * convert.c - runs of numbers from one format to another, in loops that vectorise.
 *
 * Same bits as cpa_convert(), which does what has no loop here: fp64 to 16 bit, where going
 * through fp32 would round twice.
 */
#include "kernels/host.h"

#include <string.h>

CPA_INLINE float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

CPA_INLINE uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}

CPA_INLINE float widen_bf16(uint16_t h)
{
	return float_of((uint32_t)h << 16 | ((h & 0x7fff) > 0x7f80 ? 0x400000 : 0));
}

/* Exponent and fraction move into place, 2^112 corrects the bias (subnormals too, exactly). */
CPA_INLINE float widen_fp16(uint16_t h)
{
	uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
	uint32_t special = magnitude | 0x7f800000 | ((h & 0x3ff) ? 0x400000 : 0);

	return float_of(((h & 0x7fff) >= 0x7c00 ? special : finite) | sign);
}

CPA_INLINE uint16_t narrow_bf16(float x)
{
	uint32_t bits = bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16 | 0x40) : rounded);
}

/* Below 2^-14 the result is a multiple of 2^-24, which is what adding 1/2 rounds to. */
CPA_INLINE uint16_t narrow_fp16(float x)
{
	uint32_t sign = bits_of(x) >> 16 & 0x8000, bits = bits_of(x) & 0x7fffffff;
	uint32_t normal = ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10);
	uint32_t small = bits_of(float_of(bits) + 0.5f) - 0x3f000000;
	uint32_t nan = 0x7e00 | (bits >> 13 & 0x3ff);
	uint32_t finite = bits < 0x38800000 ? small : normal < 0x7c00 ? normal : 0x7c00;

	return (uint16_t)(sign | (bits > 0x7f800000 ? nan : finite));
}

#define LOOP(name, TO, FROM, value) \
	CPA_CLONES static void name(void *dst, const void *src, int64_t n) \
	{ \
		TO *restrict to = dst; \
		const FROM *restrict from = src; \
\
		for (int64_t i = 0; i < n; i++) { \
			FROM x = from[i]; \
\
			to[i] = (value); \
		} \
	}
LOOP(fp32_from_fp64, float, double, (float)x)
LOOP(fp64_from_fp32, double, float, (double)x)
LOOP(fp32_from_bf16, float, uint16_t, widen_bf16(x))
LOOP(fp32_from_fp16, float, uint16_t, widen_fp16(x))
LOOP(fp64_from_bf16, double, uint16_t, (double)widen_bf16(x))
LOOP(fp64_from_fp16, double, uint16_t, (double)widen_fp16(x))
LOOP(bf16_from_fp32, uint16_t, float, narrow_bf16(x))
LOOP(fp16_from_fp32, uint16_t, float, narrow_fp16(x))
LOOP(bf16_from_fp16, uint16_t, uint16_t, narrow_bf16(widen_fp16(x)))
LOOP(fp16_from_bf16, uint16_t, uint16_t, narrow_fp16(widen_bf16(x)))

void cpa_run_convert(
	enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n)
{
	static void (*const loops[4][4])(void *, const void *, int64_t) = {
		[CPA_DTYPE_FP64] = {NULL, fp64_from_fp32, fp64_from_bf16, fp64_from_fp16},
		[CPA_DTYPE_FP32] = {fp32_from_fp64, NULL, fp32_from_bf16, fp32_from_fp16},
		[CPA_DTYPE_BF16] = {NULL, bf16_from_fp32, NULL, bf16_from_fp16},
		[CPA_DTYPE_FP16] = {NULL, fp16_from_fp32, fp16_from_bf16, NULL},
	};

	if (to == from)
		memcpy(dst, src, (size_t)n * cpa_dtype_nbytes(to));
	else if (loops[to][from])
		loops[to][from](dst, src, n);
	else
		cpa_convert(to, dst, from, src, n);
}
