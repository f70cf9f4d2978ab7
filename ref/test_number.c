/*
 * test_number.c - the 16-bit formats against their definition, all 65,536 patterns of each.
 *
 * The definition: a pattern with exponent field e and fraction f stands for f 2^(1-bias-n) if e
 * is 0, else (2^n + f) 2^(e-bias-n).  Patterns of one sign are in order of value, so rounding is
 * known from the values between two neighbours: below the midpoint, at it (to even), above it.
 */
#include "ref/ref.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct format {
	const char *name;
	enum cpa_dtype dtype;
	int nfraction, bias;
	uint16_t infinity;
	uint16_t (*from_double)(double);
	uint16_t (*from_float)(float);
	float (*to_float)(uint16_t);
};

static const struct format formats[] = {
	{ "bf16", CPA_DTYPE_BF16, 7, 127, 0x7f80, cpa_bf16_from_double, cpa_bf16_from_float,
		cpa_bf16_to_float },
	{ "fp16", CPA_DTYPE_FP16, 10, 15, 0x7c00, cpa_fp16_from_double, cpa_fp16_from_float,
		cpa_fp16_to_float },
};

enum { NFORMATS = 2, SIGN = 0x8000 };

/* The value of a pattern that is finite; of the pattern of infinity, what would come next. */
static double value_of(const struct format *format, unsigned pattern)
{
	const int n = format->nfraction, e = (int) ((pattern & 0x7fff) >> n);
	const int f = (int) pattern & ((1 << n) - 1);
	const double value = e == 0 ? ldexp(f, 1 - format->bias - n)
				    : ldexp((1 << n) + f, e - format->bias - n);

	return (pattern & SIGN) != 0 ? -value : value;
}

static void patterns_widen_to_the_values_they_stand_for(void **unused)
{
	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		for (unsigned pattern = 0; pattern < 0x10000; pattern++) {
			const float x = format->to_float((uint16_t) pattern);

			assert_int_equal(signbit(x) != 0, (pattern & SIGN) != 0);
			if ((pattern & 0x7fff) > format->infinity)
				assert_true(isnan(x));
			else if ((pattern & 0x7fff) == format->infinity)
				assert_true(isinf(x));
			else
				assert_true(x == value_of(format, pattern));
		}
	}
}

static void patterns_survive_a_round_trip(void **unused)
{
	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		const unsigned quiet = 1u << (format->nfraction - 1);

		for (unsigned pattern = 0; pattern < 0x10000; pattern++) {
			const bool nan = (pattern & 0x7fff) > format->infinity;
			const unsigned expected = nan ? pattern | quiet : pattern;
			const float x = format->to_float((uint16_t) pattern);

			assert_int_equal(format->from_float(x), expected);
			assert_int_equal(format->from_double(x), expected);
		}
	}
}

static void assert_double(const struct format *format, double x, unsigned expected)
{
	const unsigned plus = format->from_double(x), minus = format->from_double(-x);

	if (plus != expected || minus != (expected | SIGN))
		fail_msg("%s of %a: 0x%04x and 0x%04x, expected 0x%04x", format->name, x, plus,
			minus, expected);
}

static void assert_float(const struct format *format, float x, unsigned expected)
{
	const unsigned plus = format->from_float(x), minus = format->from_float(-x);

	if (plus != expected || minus != (expected | SIGN))
		fail_msg("%s of %af: 0x%04x and 0x%04x, expected 0x%04x", format->name,
			(double) x, plus, minus, expected);
}

static void doubles_round_once_to_the_nearest_even_pattern(void **unused)
{
	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		for (unsigned low = 0; low < format->infinity; low++) {
			const double a = value_of(format, low), b = value_of(format, low + 1);
			const double middle = (a + b) / 2;

			assert_double(format, a, low);
			assert_double(format, nextafter(a, INFINITY), low);
			assert_double(format, a + (b - a) / 4, low);
			/* Through float, this one would become the midpoint first. */
			assert_double(format, nextafter(middle, 0), low);
			assert_double(format, middle, low + (low & 1));
			assert_double(format, nextafter(middle, INFINITY), low + 1);
			assert_double(format, b - (b - a) / 4, low + 1);
			assert_double(format, nextafter(b, 0), low + 1);
		}
	}
}

static void floats_round_to_the_nearest_even_pattern(void **unused)
{
	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		for (unsigned low = 0; low < format->infinity; low++) {
			const double a = value_of(format, low), b = value_of(format, low + 1);
			const float middle = (float) ((a + b) / 2);

			assert_true(middle == (a + b) / 2);
			assert_float(format, (float) a, low);
			assert_float(format, nextafterf((float) a, INFINITY), low);
			assert_float(format, nextafterf(middle, 0), low);
			assert_float(format, middle, low + (low & 1));
			assert_float(format, nextafterf(middle, INFINITY), low + 1);
			assert_float(format, nextafterf((float) b, 0), low + 1);
		}
	}
}

static void values_out_of_range_become_infinity_or_zero(void **unused)
{
	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		const double beyond = value_of(format, format->infinity);

		for (double x = beyond; x < INFINITY; x *= 2)
			assert_double(format, x, format->infinity);
		assert_double(format, DBL_MAX, format->infinity);
		assert_double(format, INFINITY, format->infinity);
		for (double x = value_of(format, 1) / 2; x > 0; x /= 2)
			assert_double(format, x, 0);
		assert_double(format, DBL_TRUE_MIN, 0);
		assert_double(format, 0, 0);
		assert_float(format, FLT_MAX, format->infinity);
		assert_float(format, INFINITY, format->infinity);
		assert_float(format, FLT_TRUE_MIN, 0);
		assert_float(format, 0, 0);
	}
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state ^ *state >> 29;
}

static void a_float_rounds_as_the_same_double_does(void **unused)
{
	uint64_t state = 1;

	(void) unused;
	for (int i = 0; i < 2000000; i++) {
		const uint32_t bits = (uint32_t) (next_random(&state) >> 16);
		float x;

		memcpy(&x, &bits, sizeof x);
		for (const struct format *format = formats; format < formats + NFORMATS;
			format++)
			assert_int_equal(
				format->from_float(x), format->from_double((double) x));
	}
}

static void nans_stay_nans_become_quiet_and_keep_their_sign(void **unused)
{
	static const uint64_t payloads[] = { 1, 1u << 20, (uint64_t) 1 << 41,
		(uint64_t) 1 << 51, (uint64_t) 3 << 45, ((uint64_t) 1 << 52) - 1 };

	(void) unused;
	for (const struct format *format = formats; format < formats + NFORMATS; format++) {
		const unsigned quiet = 1u << (format->nfraction - 1);

		for (size_t i = 0; i < 2 * sizeof payloads / sizeof *payloads; i++) {
			const uint64_t sign = i % 2;
			const uint64_t bits =
				sign << 63 | (uint64_t) 0x7ff << 52 | payloads[i / 2];
			const uint32_t low = (uint32_t) (payloads[i / 2] >> 29);
			const uint32_t float_bits =
				(uint32_t) sign << 31 | 0x7f800000 | (low == 0 ? 1 : low);
			const unsigned expected = (unsigned) (sign << 15) | format->infinity |
				quiet |
				(unsigned) (payloads[i / 2] >> (52 - format->nfraction));
			double x;
			float y;

			memcpy(&x, &bits, sizeof x);
			memcpy(&y, &float_bits, sizeof y);
			assert_int_equal(format->from_double(x), expected);
			assert_int_equal(format->from_float(y), expected);
		}
	}
}

static void dtypes_have_names_sizes_and_limits(void **unused)
{
	static const struct {
		const char *name;
		size_t nbytes;
		double roundoff, max;
	} expected[] = {
		{ "fp64", 8, DBL_EPSILON / 2, DBL_MAX },
		{ "fp32", 4, FLT_EPSILON / 2, FLT_MAX },
		{ "bf16", 2, 1.0 / 256, 0 },
		{ "fp16", 2, 1.0 / 2048, 0 },
	};
	enum cpa_dtype dtype = CPA_DTYPE_FP16;

	(void) unused;
	for (int i = 0; i < 4; i++) {
		assert_true(cpa_dtype_parse(expected[i].name, &dtype));
		assert_int_equal(dtype, i);
		assert_string_equal(cpa_dtype_name(dtype), expected[i].name);
		assert_int_equal(cpa_dtype_nbytes(dtype), expected[i].nbytes);
		assert_true(cpa_dtype_roundoff(dtype) == expected[i].roundoff);
		if (expected[i].max > 0)
			assert_true(cpa_dtype_max(dtype) == expected[i].max);
	}
	for (const struct format *format = formats; format < formats + NFORMATS; format++)
		assert_true(cpa_dtype_max(format->dtype) ==
			value_of(format, format->infinity - 1u));
	dtype = CPA_DTYPE_FP32;
	assert_false(cpa_dtype_parse("float32", &dtype) || cpa_dtype_parse("", &dtype));
	assert_false(cpa_dtype_parse("fp1", &dtype) || cpa_dtype_parse("fp160", &dtype));
	assert_int_equal(dtype, CPA_DTYPE_FP32);
}

static void loading_and_storing_round_once(void **unused)
{
	const double x = 1 + 0x1p-8 + 0x1p-40,
		     y = 1 + 0x1p-11 + 0x1p-40; /* just above midpoints */
	const double z = 1 + 0x1p-24 + 0x1p-50;
	uint16_t halves[2] = { 0, 0 };
	float floats[2] = { 0, 0 };
	double doubles[2] = { 0, 0 };

	(void) unused;
	cpa_store(CPA_DTYPE_BF16, halves, 1, x);
	assert_int_equal(halves[0], 0);
	assert_true(cpa_load(CPA_DTYPE_BF16, halves, 1) == 1 + 0x1p-7);
	cpa_store(CPA_DTYPE_FP16, halves, 1, y);
	assert_true(cpa_load(CPA_DTYPE_FP16, halves, 1) == 1 + 0x1p-10);
	cpa_store(CPA_DTYPE_FP32, floats, 1, z);
	assert_true(floats[0] == 0 && cpa_load(CPA_DTYPE_FP32, floats, 1) == 1 + 0x1p-23);
	cpa_store(CPA_DTYPE_FP64, doubles, 1, z);
	assert_true(doubles[0] == 0 && cpa_load(CPA_DTYPE_FP64, doubles, 1) == z);
}

/* Numbers of every size, zeros, infinities and one NaN, but no signalling NaN. */
static double interesting(int i, uint64_t *state)
{
	static const double special[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN, 65519, 65520,
		0x1p-25 };

	if (i % 11 == 0)
		return special[i / 11 % 8];
	return ldexp((double) (int64_t) next_random(state),
		(int) (next_random(state) >> 8 & 63) - 95);
}

static void converting_is_loading_and_storing_each_element(void **unused)
{
	enum { N = 1021 };
	static double src[N + 1], dst[N + 1], expected[N + 1];
	static const int64_t lengths[] = { 0, 1, 255, 256, 257, 512, N };
	uint64_t state = 7;

	(void) unused;
	for (int pair = 0; pair < 16; pair++) {
		const enum cpa_dtype from = (enum cpa_dtype) (pair / 4),
				     to = (enum cpa_dtype) (pair % 4);

		for (int i = 0; i < N; i++)
			cpa_store(from, src, i, interesting(i, &state));
		for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
			memset(dst, 0x55, sizeof dst);
			memset(expected, 0x55,
				sizeof expected); /* what lies behind stays as it is */
			cpa_convert(to, dst, from, src, lengths[k]);
			for (int64_t i = 0; i < lengths[k]; i++)
				cpa_store(to, expected, i, cpa_load(from, src, i));
			assert_memory_equal(dst, expected, sizeof dst);
		}
	}
	cpa_convert(CPA_DTYPE_FP32, NULL, CPA_DTYPE_FP32, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_widen_to_the_values_they_stand_for),
		cmocka_unit_test(patterns_survive_a_round_trip),
		cmocka_unit_test(doubles_round_once_to_the_nearest_even_pattern),
		cmocka_unit_test(floats_round_to_the_nearest_even_pattern),
		cmocka_unit_test(values_out_of_range_become_infinity_or_zero),
		cmocka_unit_test(a_float_rounds_as_the_same_double_does),
		cmocka_unit_test(nans_stay_nans_become_quiet_and_keep_their_sign),
		cmocka_unit_test(dtypes_have_names_sizes_and_limits),
		cmocka_unit_test(loading_and_storing_round_once),
		cmocka_unit_test(converting_is_loading_and_storing_each_element),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
