/*
 * test_rope.c - what a rotation must keep: norms, scores that depend on the distance alone, known angles;
 * and that a shard rotated by its own positions is the shard of the whole.
 */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { D = 32 };

static uint64_t rng_state = 11;

/* Uniform in [-1, 1). */
static double uniform(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (double)(rng_state >> 11) * 0x1p-52 - 1.0;
}

static void fill(double *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = uniform();
}

static double dot(const double *a, const double *b)
{
	double sum = 0;

	for (int d = 0; d < D; d++)
		sum += a[d] * b[d];
	return sum;
}

static double rotated_dot(const struct cpa_rope *rope, const double *q, const double *k, int64_t i,
	int64_t j)
{
	double a[D], b[D];

	memcpy(a, q, sizeof a);
	memcpy(b, k, sizeof b);
	cpa_ref_rope(rope, i, 1, CPA_DTYPE_FP64, a);
	cpa_ref_rope(rope, j, 1, CPA_DTYPE_FP64, b);
	return dot(a, b);
}

static const struct cpa_rope ropes[] = {
	{D, 10000, CPA_ROPE_HALF}, {D, 10000, CPA_ROPE_INTERLEAVED}, {D, 1e6, CPA_ROPE_HALF},
	{D, 100, CPA_ROPE_INTERLEAVED}, {D, 1, CPA_ROPE_HALF},
};
enum { NROPES = sizeof ropes / sizeof *ropes };

static void position_0_changes_nothing(void **state)
{
	double x[D], y[D];

	(void)state;
	fill(x, D);
	memcpy(y, x, sizeof y);
	for (int n = 0; n < NROPES; n++) {
		cpa_ref_rope(&ropes[n], 0, 1, CPA_DTYPE_FP64, y);
		for (int d = 0; d < D; d++)
			assert_true(y[d] == x[d]);
	}
}

/* Each pair keeps its length: c and s are off by u each, and the products and the sum round, so that a
 * coordinate is off by 3 u (|x| + |y|), and the square by less than 32 u of itself. */
static void each_pair_keeps_its_length(void **state)
{
	static const int64_t positions[] = {1, 2, 1000, 65535, -7, INT64_C(1) << 40};

	(void)state;
	for (int n = 0; n < NROPES; n++)
		for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
			bool half = ropes[n].pairs == CPA_ROPE_HALF;
			double x[D], y[D];

			fill(x, D);
			memcpy(y, x, sizeof y);
			cpa_ref_rope(&ropes[n], positions[i], 1, CPA_DTYPE_FP64, y);
			for (int p = 0; p < D / 2; p++) {
				int a = half ? p : 2 * p, b = half ? p + D / 2 : 2 * p + 1;
				double before = x[a] * x[a] + x[b] * x[b];
				double after = y[a] * y[a] + y[b] * y[b];

				assert_true(fabs(after - before) <= 32 * 0x1p-53 * before);
			}
		}
}

/* The angle of a position i < 2^12 is off by about i u at most, which moves a score of D products by as
 * much each, on both sides of the comparison. */
static void a_score_depends_on_the_distance_alone(void **state)
{
	const double bound = 4 * 4096 * 0x1p-53 * D;
	double q[D], k[D];

	(void)state;
	for (int n = 0; n < NROPES; n++) {
		fill(q, D);
		fill(k, D);
		for (int64_t distance = -20; distance <= 20; distance++) {
			double wanted = rotated_dot(&ropes[n], q, k, distance, 0);

			for (int64_t shift = 21; shift < 4000; shift += 331)
				assert_true(fabs(rotated_dot(&ropes[n], q, k, shift + distance, shift) -
					wanted) <= bound);
		}
	}
}

static void another_distance_is_another_score(void **state)
{
	double q[D], k[D];

	(void)state;
	fill(q, D);
	fill(k, D);
	for (int64_t j = 1; j < 200; j++)
		assert_true(fabs(rotated_dot(&ropes[0], q, k, 5, 5) - rotated_dot(&ropes[0], q, k, 5 + j, 5)) >
			1e-6);
}

/* Unit vectors: pair i of position t stands at the angle t base^(-2i/D), turned counterclockwise. */
static void angles_are_as_defined(void **state)
{
	/* D = 4, base 100: angles 1 and 1/10 a position */
	const struct { enum cpa_rope_pairs pairs; int a, b; double per; } cases[] = {
		{CPA_ROPE_HALF, 0, 2, 1}, {CPA_ROPE_HALF, 1, 3, 0.1},
		{CPA_ROPE_INTERLEAVED, 0, 1, 1}, {CPA_ROPE_INTERLEAVED, 2, 3, 0.1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int64_t t = -3; t < 40; t++) {
			const struct cpa_rope rope = {4, 100, cases[i].pairs};
			double x[4] = {0}, y[4] = {0}, angle = (double)t * cases[i].per;

			x[cases[i].a] = 1;
			y[cases[i].b] = 1;
			cpa_ref_rope(&rope, t, 1, CPA_DTYPE_FP64, x);
			cpa_ref_rope(&rope, t, 1, CPA_DTYPE_FP64, y);
			for (int d = 0; d < 4; d++) {
				double of_x = d == cases[i].a ? cos(angle) : d == cases[i].b ? sin(angle) : 0;
				double of_y = d == cases[i].a ? -sin(angle) : d == cases[i].b ? cos(angle) : 0;

				assert_true(fabs(x[d] - of_x) <= 64 * 0x1p-53);
				assert_true(fabs(y[d] - of_y) <= 64 * 0x1p-53);
			}
		}
}

/* A quarter turn takes (x, y) to (-y, x): base 1 turns every pair alike, by one radian a position, and
 * 11 radians are 7 quarter turns but for 0.0045. */
static void a_turn_has_the_right_sense(void **state)
{
	const struct cpa_rope rope = {2, 1, CPA_ROPE_INTERLEAVED};
	double x[2] = {1, 0.5};

	(void)state;
	cpa_ref_rope(&rope, 11, 1, CPA_DTYPE_FP64, x); /* 7 quarter turns: (y, -x) */
	assert_true(fabs(x[0] - 0.5) < 0.006 && fabs(x[1] + 1) < 0.006);
}

/* The same pairs, stored in another order. */
static void both_kinds_of_pairs_turn_alike(void **state)
{
	const struct cpa_rope half = {D, 10000, CPA_ROPE_HALF}, inter = {D, 10000, CPA_ROPE_INTERLEAVED};
	double x[D], y[D];

	(void)state;
	fill(x, D);
	for (int i = 0; i < D / 2; i++) {
		y[2 * i] = x[i];
		y[2 * i + 1] = x[i + D / 2];
	}
	cpa_ref_rope(&half, 321, 1, CPA_DTYPE_FP64, x);
	cpa_ref_rope(&inter, 321, 1, CPA_DTYPE_FP64, y);
	for (int i = 0; i < D / 2; i++)
		assert_true(y[2 * i] == x[i] && y[2 * i + 1] == x[i + D / 2]);
}

/* Every type: the elements of an array are those of single rows in double, rounded once. */
static void an_array_is_its_rows_rounded_once(void **state)
{
	enum { B = 2, S = 5, H = 3, SIZE = B * S * H * D };
	static const int64_t positions[S] = {7, 0, 4096, 4096, 3};

	(void)state;
	for (int t = CPA_DTYPE_FP64; t <= CPA_DTYPE_FP16; t++) {
		enum cpa_dtype dtype = (enum cpa_dtype)t;
		double data[SIZE], wide[SIZE], wanted[SIZE];

		fill(data, SIZE);
		cpa_convert(dtype, wanted, CPA_DTYPE_FP64, data, SIZE);
		cpa_convert(CPA_DTYPE_FP64, wide, dtype, wanted, SIZE);
		memcpy(data, wanted, sizeof data);
		for (int row = 0; row < B * S * H; row++)
			cpa_ref_rope(&ropes[1], positions[row / H % S], 1, CPA_DTYPE_FP64, wide + row * D);
		cpa_convert(dtype, wanted, CPA_DTYPE_FP64, wide, SIZE);
		cpa_ref_rope_array(&ropes[1], positions, B, S, H, dtype, data);
		assert_memory_equal(data, wanted, SIZE * cpa_dtype_nbytes(dtype));
	}
}

/* By global position a shard is the same bits as in the whole; by local position it is not. */
static void a_shard_with_global_positions_is_the_slice_of_the_whole(void **state)
{
	enum { S = 12, FIRST = 5, NTOKENS = 4 };
	int64_t positions[S];
	double whole[S * D], shard[NTOKENS * D], local[NTOKENS * D];

	(void)state;
	for (int t = 0; t < S; t++)
		positions[t] = t;
	fill(whole, S * D);
	memcpy(shard, whole + FIRST * D, sizeof shard);
	memcpy(local, shard, sizeof local);
	cpa_ref_rope_array(&ropes[0], positions, 1, S, 1, CPA_DTYPE_FP64, whole);
	cpa_ref_rope_array(&ropes[0], positions + FIRST, 1, NTOKENS, 1, CPA_DTYPE_FP64, shard);
	cpa_ref_rope_array(&ropes[0], positions, 1, NTOKENS, 1, CPA_DTYPE_FP64, local);
	assert_memory_equal(shard, whole + FIRST * D, sizeof shard);
	assert_memory_not_equal(local, whole + FIRST * D, sizeof local);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(position_0_changes_nothing),
		cmocka_unit_test(each_pair_keeps_its_length),
		cmocka_unit_test(a_score_depends_on_the_distance_alone),
		cmocka_unit_test(another_distance_is_another_score),
		cmocka_unit_test(angles_are_as_defined),
		cmocka_unit_test(a_turn_has_the_right_sense),
		cmocka_unit_test(both_kinds_of_pairs_turn_alike),
		cmocka_unit_test(an_array_is_its_rows_rounded_once),
		cmocka_unit_test(a_shard_with_global_positions_is_the_slice_of_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
