/* number.c - bf16 and fp16 to and from binary32 and binary64, and arrays of any of the four. */
#include "ref/ref.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "IEEE 754 binary32 and binary64");

static const struct {
	const char *name;
	size_t nbytes;
	double roundoff, max;
} dtypes[] = {
	[CPA_DTYPE_FP64] = { "fp64", 8, 0x1p-53, DBL_MAX },
	[CPA_DTYPE_FP32] = { "fp32", 4, 0x1p-24, FLT_MAX },
	[CPA_DTYPE_BF16] = { "bf16", 2, 0x1p-8, 0x1.fep127 },
	[CPA_DTYPE_FP16] = { "fp16", 2, 0x1p-11, 65504.0 },
};

size_t cpa_dtype_nbytes(enum cpa_dtype dtype)
{
	return dtypes[dtype].nbytes;
}

const char *cpa_dtype_name(enum cpa_dtype dtype)
{
	return dtypes[dtype].name;
}

bool cpa_dtype_parse(const char *name, enum cpa_dtype *dtype)
{
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
		if (strcmp(name, dtypes[i].name) == 0) {
			*dtype = (enum cpa_dtype) i;
			return true;
		}
	}
	return false;
}

double cpa_dtype_roundoff(enum cpa_dtype dtype)
{
	return dtypes[dtype].roundoff;
}

double cpa_dtype_max(enum cpa_dtype dtype)
{
	return dtypes[dtype].max;
}

static uint32_t float_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static float bits_float(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

/*
 * Rounds x to a 16-bit format with nfraction fraction bits, once.  The significand, hidden bit
 * included, is shifted to the format's last place (further for subnormals) and rounded there; a
 * carry out of the fraction runs into the exponent field, which is right, up to infinity.
 */
static inline uint16_t round_double(double x, int nfraction)
{
	const int bias = (1 << (14 - nfraction)) - 1;
	uint64_t bits, significand, kept, rest, half;
	uint16_t sign, infinity;
	int exponent, shift;

	memcpy(&bits, &x, sizeof bits);
	sign = (uint16_t) (bits >> 63 << 15);
	infinity = (uint16_t) (0x7fff >> nfraction << nfraction);
	significand = bits & (((uint64_t) 1 << 52) - 1);
	exponent = (int) (bits >> 52 & 0x7ff) - 1023;
	if (exponent == 1024 && significand != 0)
		return (uint16_t) (sign | infinity | 1 << (nfraction - 1) |
			significand >> (52 - nfraction));
	if (exponent > bias)
		return sign | infinity;
	significand |= (uint64_t) 1 << 52;
	shift = 52 - nfraction;
	if (exponent < 1 - bias)
		shift += 1 - bias - exponent;
	/* Less than half of the smallest subnormal, as all subnormal doubles are. */
	if (shift > 53)
		return sign;
	kept = significand >> shift;
	rest = significand - (kept << shift);
	half = (uint64_t) 1 << (shift - 1);
	kept += rest > half || (rest == half && (kept & 1) != 0);
	if (exponent >= 1 - bias) /* the hidden bit counts as one in the exponent field */
		kept += (uint64_t) (exponent + bias - 1) << nfraction;
	return (uint16_t) (sign | kept);
}

uint16_t cpa_bf16_from_double(double x)
{
	return round_double(x, 7);
}

uint16_t cpa_fp16_from_double(double x)
{
	return round_double(x, 10);
}

static inline uint16_t bf16_from_float(float x)
{
	const uint32_t bits = float_bits(x);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t) (bits >> 16 | 0x40);
	return (uint16_t) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t fp16_from_float(float x)
{
	const uint32_t bits = float_bits(x), magnitude = bits & 0x7fffffff;
	const uint16_t sign = (uint16_t) (bits >> 16 & 0x8000);

	if (magnitude > 0x7f800000)
		return (uint16_t) (sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x47800000) /* 2^16 and above */
		return sign | 0x7c00;
	/* Below 2^-14: the last place of 0.5 is that of subnormals, so the sum rounds there. */
	if (magnitude < 0x38800000)
		return (uint16_t) (sign |
			(float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000));
	/* Exponent field less 112; rounded as in bf16, with the same carry up to infinity. */
	return (uint16_t) (sign |
		(magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

static inline float bf16_to_float(uint16_t bits)
{
	const uint32_t quiet = (bits & 0x7fff) > 0x7f80 ? 0x400000 : 0;

	return bits_float((uint32_t) bits << 16 | quiet);
}

static inline float fp16_to_float(uint16_t bits)
{
	const uint32_t sign = (uint32_t) (bits & 0x8000) << 16, magnitude = bits & 0x7fff;

	if (magnitude > 0x7c00)
		return bits_float(sign | 0x7fc00000 | magnitude << 13);
	if (magnitude == 0x7c00)
		return bits_float(sign | 0x7f800000);
	if (magnitude < 0x400)
		return bits_float(sign | float_bits((float) magnitude * 0x1p-24f));
	return bits_float(sign | ((magnitude << 13) + 0x38000000));
}

uint16_t cpa_bf16_from_float(float x)
{
	return bf16_from_float(x);
}

uint16_t cpa_fp16_from_float(float x)
{
	return fp16_from_float(x);
}

float cpa_bf16_to_float(uint16_t bits)
{
	return bf16_to_float(bits);
}

float cpa_fp16_to_float(uint16_t bits)
{
	return fp16_to_float(bits);
}

double cpa_load(enum cpa_dtype dtype, const void *data, int64_t i)
{
	switch (dtype) {
	case CPA_DTYPE_FP64:
		return ((const double *) data)[i];
	case CPA_DTYPE_FP32:
		return ((const float *) data)[i];
	case CPA_DTYPE_BF16:
		return bf16_to_float(((const uint16_t *) data)[i]);
	case CPA_DTYPE_FP16:
		return fp16_to_float(((const uint16_t *) data)[i]);
	}
	assert(!"a dtype");
	return NAN;
}

void cpa_store(enum cpa_dtype dtype, void *data, int64_t i, double value)
{
	switch (dtype) {
	case CPA_DTYPE_FP64:
		((double *) data)[i] = value;
		break;
	case CPA_DTYPE_FP32:
		((float *) data)[i] = (float) value;
		break;
	case CPA_DTYPE_BF16:
		((uint16_t *) data)[i] = cpa_bf16_from_double(value);
		break;
	case CPA_DTYPE_FP16:
		((uint16_t *) data)[i] = cpa_fp16_from_double(value);
		break;
	}
}

/* n numbers as double: exact. */
static void widen(enum cpa_dtype from, const void *src, int64_t n, double *dst)
{
	const uint16_t *const half = src;

	switch (from) {
	case CPA_DTYPE_FP64:
		memcpy(dst, src, (size_t) n * sizeof *dst);
		break;
	case CPA_DTYPE_FP32:
		for (int64_t i = 0; i < n; i++)
			dst[i] = ((const float *) src)[i];
		break;
	case CPA_DTYPE_BF16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = bf16_to_float(half[i]);
		break;
	case CPA_DTYPE_FP16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = fp16_to_float(half[i]);
		break;
	}
}

/* n doubles rounded, once. */
static void narrow(const double *src, int64_t n, enum cpa_dtype to, void *dst)
{
	uint16_t *const half = dst;

	switch (to) {
	case CPA_DTYPE_FP64:
		memcpy(dst, src, (size_t) n * sizeof *src);
		break;
	case CPA_DTYPE_FP32:
		for (int64_t i = 0; i < n; i++)
			((float *) dst)[i] = (float) src[i];
		break;
	case CPA_DTYPE_BF16:
		for (int64_t i = 0; i < n; i++)
			half[i] = round_double(src[i], 7);
		break;
	case CPA_DTYPE_FP16:
		for (int64_t i = 0; i < n; i++)
			half[i] = round_double(src[i], 10);
		break;
	}
}

/* The pairs between fp32 and 16 bits, without a detour through double; false for all others. */
static bool convert_float(
	enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n)
{
	uint16_t *const to_half = dst;
	float *const to_float = dst;
	const uint16_t *const from_half = src;
	const float *const from_float = src;

	if (from == CPA_DTYPE_FP32 && to == CPA_DTYPE_BF16) {
		for (int64_t i = 0; i < n; i++)
			to_half[i] = bf16_from_float(from_float[i]);
	} else if (from == CPA_DTYPE_FP32 && to == CPA_DTYPE_FP16) {
		for (int64_t i = 0; i < n; i++)
			to_half[i] = fp16_from_float(from_float[i]);
	} else if (from == CPA_DTYPE_BF16 && to == CPA_DTYPE_FP32) {
		for (int64_t i = 0; i < n; i++)
			to_float[i] = bf16_to_float(from_half[i]);
	} else if (from == CPA_DTYPE_FP16 && to == CPA_DTYPE_FP32) {
		for (int64_t i = 0; i < n; i++)
			to_float[i] = fp16_to_float(from_half[i]);
	} else {
		return false;
	}
	return true;
}

void cpa_convert(enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n)
{
	enum { CHUNK = 256 };
	double chunk[CHUNK];

	assert(n >= 0);
	if (n == 0)
		return;
	if (to == from) {
		memcpy(dst, src, (size_t) n * cpa_dtype_nbytes(to));
		return;
	}
	if (to == CPA_DTYPE_FP64) {
		widen(from, src, n, dst);
		return;
	}
	if (convert_float(to, dst, from, src, n))
		return;
	for (int64_t i = 0; i < n; i += CHUNK) {
		const int64_t m = n - i < CHUNK ? n - i : CHUNK;

		widen(from, (const char *) src + (size_t) i * cpa_dtype_nbytes(from), m, chunk);
		narrow(chunk, m, to, (char *) dst + (size_t) i * cpa_dtype_nbytes(to));
	}
}
