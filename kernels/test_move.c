/*
 * test_move.c - the inner loops of move.h in each instruction set: errors of exp and log over
 * all of their ranges, conversions of all pairs at any length and place, and that every set
 * gives the same bits.
 */
#include "kernels/host.h"
#include "kernels/move.h"
#include "kernels/test_sets.h"

#include <math.h>

enum { ROWS = CPA_MOVE_ROWS };

static float float_from(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

/* Every `step`-th float from -0 down to -120, in batches. */
static void exp_is_as_near_as_declared(void **state)
{
	const uint32_t step = 61, last = 0x42f00000;
	float x[ROWS], y[ROWS];

	(void)state;
	for (uint32_t at = 0; at <= last; at += step * ROWS) {
		for (uint32_t i = 0; i < ROWS; i++)
			x[i] = y[i] = float_from(0x80000000 | (at + i * step));
		cpa_move()->exp(y);
		for (int i = 0; i < ROWS; i++) {
			double exact = exp(x[i]);
			/* Below the least normal number it is rounded once more. */
			double slack = CPA_MOVE_EXP_ERROR * 0x1p-24 * exact +
				(exact < 0x1p-126 ? 0x1p-150 : 0);

			assert_true(fabs(y[i] - exact) <= slack);
		}
	}
}

static void exp_ends_in_1_and_0_and_keeps_nan(void **state)
{
	float x[ROWS] = {0, -0.0f, -104, -150, -1e30f, -INFINITY, NAN};

	(void)state;
	cpa_move()->exp(x);
	assert_true(x[0] == 1 && x[1] == 1);
	assert_true(x[2] == 0 && x[3] == 0 && x[4] == 0 && x[5] == 0);
	assert_true(isnan(x[6]));
}

/* All of its arguments. */
static void log_is_as_near_as_declared(void **state)
{
	float x[ROWS], y[ROWS];
	const uint32_t one = 0x3f800000, two = 0x40000000;

	(void)state;
	for (uint32_t at = one; at <= two; at += ROWS) {
		for (uint32_t i = 0; i < ROWS; i++)
			x[i] = y[i] = float_from(at + i < two ? at + i : two);
		cpa_move()->log(y);
		for (int i = 0; i < ROWS; i++)
			assert_true(
				fabs(y[i] - log(x[i])) <= CPA_MOVE_LOG_ERROR * 0x1p-24);
	}
	x[0] = 1;
	x[1] = 2;
	x[2] = NAN;
	cpa_move()->log(x);
	assert_true(x[0] == 0 && x[1] == logf(2) && isnan(x[2]));
}

/* ---- the same bits everywhere ---- */

/* Any bits, and such as meet in a merge. */
static void fill_lse(uint64_t *seed, float *lse, bool wild)
{
	for (int i = 0; i < ROWS; i++) {
		uint64_t bits = random_bits(seed);

		lse[i] = wild ? float_from((uint32_t)bits)
			      : (float)(int32_t)(bits >> 32) * 0x1p-27f;
	}
}

struct weights {
	float lse[ROWS], a[ROWS], b[ROWS];
};

static void assert_same_or_nan(const float *x, const float *y, int n)
{
	for (int i = 0; i < n; i++)
		assert_true((isnan(x[i]) && isnan(y[i])) || !memcmp(&x[i], &y[i], sizeof *x));
}

static void weights_have_the_bits_of_the_generic_ones(void **state)
{
	uint64_t seed = 1;
	float la[ROWS], lb[ROWS];
	struct weights got, expected, turned;

	(void)state;
	for (int repeat = 0; repeat < 2000; repeat++) {
		fill_lse(&seed, la, repeat % 2);
		fill_lse(&seed, lb, repeat % 2);
		cpa_move_generic.weigh(la, lb, expected.lse, expected.a, expected.b, ROWS);
		cpa_move()->weigh(la, lb, got.lse, got.a, got.b, ROWS);
		cpa_move()->weigh(lb, la, turned.lse, turned.a, turned.b, ROWS);
		assert_same_or_nan(got.lse, expected.lse, ROWS);
		assert_same_or_nan(got.a, expected.a, ROWS);
		assert_same_or_nan(got.b, expected.b, ROWS);
		assert_same_or_nan(turned.lse, got.lse, ROWS);
		assert_same_or_nan(turned.a, got.b, ROWS);
		assert_same_or_nan(turned.b, got.a, ROWS);
	}
}

/* Rows of any length, one after the other and with gaps; what lies between stays. */
static void sums_have_the_bits_of_the_generic_ones(void **state)
{
	enum { N = 21 };
	uint64_t seed = 2;

	(void)state;
	for (int64_t dim = 1; dim <= 140; dim++) {
		int64_t step = dim + dim % 3, step_b = dim + dim % 2;
		size_t nbytes = (size_t)((N - 1) * step + dim) * 4;
		struct guarded o = guarded_alloc(nbytes, 0xff);
		struct guarded same = guarded_alloc(nbytes, 0xff);
		struct guarded b =
			guarded_alloc((size_t)((N - 1) * step_b + dim) * 4, 0xff);
		float la[ROWS], lb[ROWS], lse[ROWS], wa[ROWS], wb[ROWS];
		struct cpa_move_sum rows = {o.data, b.data, step, step_b, N, dim};

		for (size_t i = 0; i < nbytes / 4; i++)
			((float *)o.data)[i] = (float)(int64_t)random_bits(&seed) * 0x1p-60f;
		for (size_t i = 0; i < b.nbytes / 4; i++)
			((float *)b.data)[i] = (float)(int64_t)random_bits(&seed) * 0x1p-60f;
		memcpy(same.data, o.data, nbytes);
		fill_lse(&seed, la, false);
		fill_lse(&seed, lb, false);
		assert_true(cpa_move()->merge(&rows, la, lb, lse));
		rows.o = same.data;
		cpa_move_generic.weigh(la, lb, lse, wa, wb, N);
		cpa_move_generic.sum_float(&rows, wa, wb);
		assert_memory_equal(o.data, same.data, nbytes);
		lb[N / 2] = -INFINITY;
		assert_false(cpa_move()->merge(&rows, la, lb, lse));
		assert_memory_equal(o.data, same.data, nbytes);
		guarded_free(&o);
		guarded_free(&same);
		guarded_free(&b);
	}
}

/* ---- conversions ---- */

/* Zeros, subnormals, the largest, what rounds up to infinity, infinities, NaN with payloads. */
static double special(int i)
{
	static const double values[] = {0.0, -0.0, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1.ffcp-15,
		0x1p-133, 0x1.8p-134, 0x1p-149, 0x1p-150, 0x1p-1074, 65504, 65519.99, 65520,
		0x1.fep127, 0x1.fffp127, 0x1.fffffep127, 0x1.ffffffp127, 0x1p128, 0x1.fffp1023,
		INFINITY, -INFINITY, 1 + 0x1p-8, 1 + 0x3p-9, 1 + 0x1p-11, 1 + 0x3p-11,
		1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 - 0x1p-50, 0x1p-25 + 0x1p-60};
	enum { NVALUES = sizeof values / sizeof values[0] };
	uint64_t nan = 0x7ff0000000000000 | (uint64_t)(i + 1) << (i % 52) | (uint64_t)i << 63;
	double x;

	if (i % 2 || i / 2 % 40 >= NVALUES) {
		memcpy(&x, &nan, sizeof x);
		return i % 2 ? x : -x;
	}
	return values[i / 2 % 40];
}

static void fill_source(uint64_t *seed, enum cpa_dtype dtype, void *data, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint64_t bits = random_bits(seed), size = cpa_dtype_nbytes(dtype);

		if (bits % 3 == 0)
			memcpy((char *)data + (uint64_t)i * size, &bits, size); /* anything */
		else
			cpa_store(dtype, data, i,
				bits % 3 == 1 ? special((int)(bits >> 40))
					      : (double)(int64_t)bits * 0x1p-62);
	}
}

static void try_conversion(
	uint64_t *seed, enum cpa_dtype to, enum cpa_dtype from, int64_t n, bool behind)
{
	struct guarded (*alloc)(size_t, int) = behind ? guarded_alloc_behind : guarded_alloc;
	struct guarded src = alloc((size_t)n * cpa_dtype_nbytes(from), 0);
	struct guarded dst = alloc((size_t)n * cpa_dtype_nbytes(to), 0);
	struct guarded expected = alloc(dst.nbytes, 0);

	fill_source(seed, from, src.data, n);
	cpa_run_convert(to, dst.data, from, src.data, n);
	cpa_convert(to, expected.data, from, src.data, n);
	assert_memory_equal(dst.data, expected.data, dst.nbytes);
	guarded_free(&src);
	guarded_free(&dst);
	guarded_free(&expected);
}

static void numbers_of_any_kind_convert_as_one_does(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (int to = CPA_DTYPE_FP64; to <= CPA_DTYPE_FP16; to++)
		for (int from = CPA_DTYPE_FP64; from <= CPA_DTYPE_FP16; from++) {
			for (int64_t n = 0; n <= 140; n++)
				try_conversion(&seed, (enum cpa_dtype)to, (enum cpa_dtype)from,
					n <= 70 ? n : n - 70, n > 70);
			try_conversion(
				&seed, (enum cpa_dtype)to, (enum cpa_dtype)from, 40001, false);
		}
}

/* ---- copies and fills ---- */

/* Rows of 0 .. 300 bytes anywhere, streaming or not: those bytes and no others. */
static void rows_of_any_length_arrive_at_any_place(void **state)
{
	enum { N = 3, ROOM = 400, MOST = 300 };
	uint64_t seed = 4;
	const char *ahead[N] = {NULL, NULL, NULL};

	(void)state;
	for (int i = 0; i < 6000; i++) {
		int64_t n = i % (MOST + 1), gap = random_int(&seed, 0, ROOM - MOST);
		bool stream = i / (MOST + 1) % 2;
		size_t nbytes = (size_t)((N - 1) * (n + gap) + n);
		struct guarded src = guarded_alloc(nbytes, 0), dst = guarded_alloc(nbytes, 0x55);
		struct cpa_move_rows rows = {dst.data, src.data, n + gap, n + gap, N, (size_t)n,
			i % 5 ? NULL : ahead};

		for (size_t k = 0; k < nbytes; k++)
			src.data[k] = (unsigned char)random_bits(&seed);
		cpa_move()->copy(&rows, stream);
		cpa_move()->fence();
		for (size_t k = 0; k < nbytes; k++)
			assert_int_equal(dst.data[k],
				(int64_t)k % (n + gap + (n + gap == 0)) < n ? src.data[k] : 0x55);
		guarded_free(&src);
		guarded_free(&dst);
	}
}

static void a_fill_repeats_its_pattern_to_the_end(void **state)
{
	static const uint64_t patterns[4] = {
		0x3ff123456789abcd, 0x1234567812345678, 0x1234123412341234, 0x5678567856785678};

	(void)state;
	for (int dtype = 0; dtype < 4; dtype++)
		for (int n = 0; n < 200; n++) {
			size_t size = cpa_dtype_nbytes((enum cpa_dtype)dtype);
			struct guarded at = guarded_alloc((size_t)n * size, 0);

			cpa_move()->fill(at.data, patterns[dtype], at.nbytes);
			for (int i = 0; i < n; i++)
				assert_memory_equal(
					at.data + (size_t)i * size, &patterns[dtype], size);
			guarded_free(&at);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exp_is_as_near_as_declared),
		cmocka_unit_test(exp_ends_in_1_and_0_and_keeps_nan),
		cmocka_unit_test(log_is_as_near_as_declared),
		cmocka_unit_test(weights_have_the_bits_of_the_generic_ones),
		cmocka_unit_test(sums_have_the_bits_of_the_generic_ones),
		cmocka_unit_test(numbers_of_any_kind_convert_as_one_does),
		cmocka_unit_test(rows_of_any_length_arrive_at_any_place),
		cmocka_unit_test(a_fill_repeats_its_pattern_to_the_end),
	};

	return run_in_each_set(tests, sizeof tests / sizeof tests[0]);
}
