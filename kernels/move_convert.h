/*
 * move_convert.h - conversions between the dtypes: a part of move_template.h, which includes it
 * once for each instruction set.
 */
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

/*
 * Rounded towards zero, and odd where that was not exact: rounding this once more, to a format
 * that is shorter by two bits at least, gives what one rounding would.  NaN keeps the upper
 * part of its payload.
 */
CPA_INLINE float odd_float(double x)
{
	float nearest = (float)x;
	double back = nearest;
	uint32_t bits = bits_of(nearest);
	uint32_t above = (back < 0 ? -back : back) > (x < 0 ? -x : x);
	uint32_t below = (back < 0 ? -back : back) < (x < 0 ? -x : x);

	return float_of((bits - above) | above | below);
}

#define LOOP(name, TO, FROM, value) \
	static void name(void *dst, const void *src, int64_t n) \
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
LOOP(fp64_from_bf16, double, uint16_t, (double)widen_bf16(x))
LOOP(odd_from_fp64, float, double, odd_float(x))
LOOP(bf16_from_fp32, uint16_t, float, narrow_bf16(x))
#ifndef FP16_WIDEN
LOOP(fp32_from_fp16, float, uint16_t, widen_fp16(x))
LOOP(fp16_from_fp32, uint16_t, float, narrow_fp16(x))
#else
static void fp32_from_fp16(void *dst, const void *src, int64_t n)
{
	float *to = dst;
	const uint16_t *from = src;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		FP16_WIDEN(to + i, from + i);
	for (; i < n; i++)
		to[i] = widen_fp16(from[i]);
}

static void fp16_from_fp32(void *dst, const void *src, int64_t n)
{
	uint16_t *to = dst;
	const float *from = src;
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		FP16_NARROW(to + i, from + i);
	for (; i < n; i++)
		to[i] = narrow_fp16(from[i]);
}
#endif

/* In pieces through fp32, which is faster than one loop that does both. */
#define THROUGH(name, TO, FROM, first, second) \
	static void name(void *dst, const void *src, int64_t n) \
	{ \
		enum { CHUNK = 512 }; \
		float chunk[CHUNK]; \
		TO *to = dst; \
		const FROM *from = src; \
\
		for (; n > 0; n -= CHUNK, to += CHUNK, from += CHUNK) { \
			first(chunk, from, n < CHUNK ? n : CHUNK); \
			second(to, chunk, n < CHUNK ? n : CHUNK); \
		} \
	}
THROUGH(fp64_from_fp16, double, uint16_t, fp32_from_fp16, fp64_from_fp32)
THROUGH(bf16_from_fp64, uint16_t, double, odd_from_fp64, bf16_from_fp32)
THROUGH(fp16_from_fp64, uint16_t, double, odd_from_fp64, fp16_from_fp32)
THROUGH(bf16_from_fp16, uint16_t, uint16_t, fp32_from_fp16, bf16_from_fp32)
THROUGH(fp16_from_bf16, uint16_t, uint16_t, fp32_from_bf16, fp16_from_fp32)
