/*
 * test_guidance.c - what guidance must keep: it is affine in both scales, and the ways in which it goes
 * wrong (branches swapped, dropped, repeated) differ from it by just what algebra says.
 *
 * Inputs are small multiples of 1/64 and scales of 1/4, so that all arithmetic is exact.
 */
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 97 };

struct three {
	double neg[N], mid[N], pos[N];
};

static void fill(struct three *x)
{
	for (int i = 0; i < N; i++) {
		x->neg[i] = (i * 37 % 128 - 64) / 64.0;
		x->mid[i] = (i * 53 % 128 - 64) / 64.0;
		x->pos[i] = (i * 71 % 128 - 60) / 64.0;
	}
}

static void two(double s, const double *neg, const double *pos, double *out)
{
	const struct cpa_guidance guidance = {.nbranches = 2, .s = s};
	const void *branches[] = {neg, pos};

	cpa_ref_guidance(&guidance, N, CPA_DTYPE_FP64, branches, CPA_DTYPE_FP64, out);
}

static void three(double s, double s2, const struct three *x, double *out)
{
	const struct cpa_guidance guidance = {3, s, s2};
	const void *branches[] = {x->neg, x->mid, x->pos};

	cpa_ref_guidance(&guidance, N, CPA_DTYPE_FP64, branches, CPA_DTYPE_FP64, out);
}

static void assert_all(const double *out, const double *wanted)
{
	for (int i = 0; i < N; i++)
		assert_true(out[i] == wanted[i]);
}

static void scale_0_is_the_negative_and_scale_1_the_positive_branch(void **state)
{
	struct three x;
	double out[N];

	(void)state;
	fill(&x);
	two(0, x.neg, x.pos, out);
	assert_all(out, x.neg);
	two(1, x.neg, x.pos, out);
	assert_all(out, x.pos);
	three(0, 0, &x, out);
	assert_all(out, x.neg);
	three(0, 1, &x, out);
	assert_all(out, x.mid);
	three(1, 1, &x, out);
	assert_all(out, x.pos);
}

/* With 1 and 0 for the branches the result is the scale itself. */
static void constants_show_the_scales(void **state)
{
	const struct { double neg, mid, pos, wanted; } cases[] = {
		{0, 0, 1, 3.5}, {0, 1, 0, 1.5 - 3.5}, {1, 0, 0, 1 - 1.5}, {1, 1, 1, 1}, {0, 1, 1, 1.5},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct cpa_guidance guidance = {3, 3.5, 1.5};
		const void *branches[] = {&cases[i].neg, &cases[i].mid, &cases[i].pos};
		double out;

		cpa_ref_guidance(&guidance, 1, CPA_DTYPE_FP64, branches, CPA_DTYPE_FP64, &out);
		assert_true(out == cases[i].wanted);
	}
}

static void the_result_is_affine_in_each_scale(void **state)
{
	struct three x;
	double at[3][N];

	(void)state;
	fill(&x);
	for (int k = 0; k < 3; k++)
		two(2.25 * k - 1, x.neg, x.pos, at[k]);
	for (int i = 0; i < N; i++) {
		assert_true(at[1][i] - at[0][i] == 2.25 * (x.pos[i] - x.neg[i]));
		assert_true(at[2][i] - at[1][i] == at[1][i] - at[0][i]);
	}
	for (int k = 0; k < 3; k++)
		three(1.25, 1.5 * k, &x, at[k]);
	for (int i = 0; i < N; i++) {
		assert_true(at[1][i] - at[0][i] == 1.5 * (x.mid[i] - x.neg[i]));
		assert_true(at[2][i] - at[1][i] == at[1][i] - at[0][i]);
	}
}

static void swapped_branches_are_off_by_minus_2s_minus_1_times_the_difference(void **state)
{
	static const double scales[] = {0, 0.5, 1, 3.5, 7.25};
	struct three x;
	double right[N], wrong[N];

	(void)state;
	fill(&x);
	for (size_t k = 0; k < sizeof scales / sizeof *scales; k++) {
		two(scales[k], x.neg, x.pos, right);
		two(scales[k], x.pos, x.neg, wrong);
		for (int i = 0; i < N; i++)
			assert_true(wrong[i] - right[i] == -(2 * scales[k] - 1) * (x.pos[i] - x.neg[i]));
	}
	two(3.5, x.neg, x.pos, right);
	two(3.5, x.pos, x.neg, wrong);
	for (int i = 0; i < N; i++)
		assert_true(wrong[i] - right[i] == -6 * (x.pos[i] - x.neg[i]));
}

/* Middle taken for negative: what is missing is (s2 - 1) (mid - neg), the whole middle term at s2 = 2. */
static void a_dropped_third_branch_is_missed_by_its_term(void **state)
{
	struct three x;
	double right[N], wrong[N];

	(void)state;
	fill(&x);
	three(3.5, 2, &x, right);
	two(3.5, x.mid, x.pos, wrong);
	for (int i = 0; i < N; i++)
		assert_true(right[i] - wrong[i] == x.mid[i] - x.neg[i]);
	/* Scale 0 for it: the same as no such term. */
	three(3.5, 0, &x, wrong);
	for (int i = 0; i < N; i++)
		assert_true(right[i] - wrong[i] == 2 * (x.mid[i] - x.neg[i]));
}

static void one_branch_run_twice_does_not_depend_on_the_scale(void **state)
{
	struct three x;
	double out[N];

	(void)state;
	fill(&x);
	for (double s = 0; s < 9; s += 0.25) {
		two(s, x.pos, x.pos, out);
		assert_all(out, x.pos);
	}
}

/* Every type in and out: double arithmetic, then one rounding. */
static void each_type_is_rounded_once(void **state)
{
	const struct cpa_guidance guidance = {2, 5.3, 0};

	(void)state;
	for (int from = CPA_DTYPE_FP64; from <= CPA_DTYPE_FP16; from++)
		for (int to = CPA_DTYPE_FP64; to <= CPA_DTYPE_FP16; to++) {
			double neg[N], pos[N], out[N], wanted[N];
			const void *branches[] = {neg, pos};

			for (int i = 0; i < N; i++) {
				cpa_store((enum cpa_dtype)from, neg, i, 0.1 * i - 3);
				cpa_store((enum cpa_dtype)from, pos, i, 2 - 0.07 * i);
				double a = cpa_load((enum cpa_dtype)from, neg, i);
				double b = cpa_load((enum cpa_dtype)from, pos, i);
				cpa_store((enum cpa_dtype)to, wanted, i, a + 5.3 * (b - a));
			}
			cpa_ref_guidance(&guidance, N, (enum cpa_dtype)from, branches,
				(enum cpa_dtype)to, out);
			assert_memory_equal(out, wanted, N * cpa_dtype_nbytes((enum cpa_dtype)to));
			if (from != to)
				continue;
			cpa_ref_guidance(&guidance, N, (enum cpa_dtype)from, branches,
				(enum cpa_dtype)to, neg);
			assert_memory_equal(neg, wanted, N * cpa_dtype_nbytes((enum cpa_dtype)to));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scale_0_is_the_negative_and_scale_1_the_positive_branch),
		cmocka_unit_test(constants_show_the_scales),
		cmocka_unit_test(the_result_is_affine_in_each_scale),
		cmocka_unit_test(swapped_branches_are_off_by_minus_2s_minus_1_times_the_difference),
		cmocka_unit_test(a_dropped_third_branch_is_missed_by_its_term),
		cmocka_unit_test(one_branch_run_twice_does_not_depend_on_the_scale),
		cmocka_unit_test(each_type_is_rounded_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
