/*
 * test_bound_guidance.c - right combinations of branches are never an alarm, however far within
 * their bounds the branches are off; faults of guidance are.
 */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Marsaglia's xorshift64. */
static double uniform(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (double)(*state >> 11) * 0x1p-53;
}

static double drawn(uint64_t *state, const double *at, size_t n)
{
	return at[(size_t)(uniform(state) * (double)n)];
}

/* One element: exact branches, and computed ones that are off by no more than their bounds. */
struct element {
	struct cpa_guidance guidance;
	enum cpa_dtype dtype;
	double exact[3], bound[3], computed[3];
};

/* The computed ones are numbers of the dtype, at the very ends of what is allowed in half of the
 * cases. */
static struct element draw(uint64_t *state)
{
	static const double scales[] = {-3.0, -0.5, 0.0, 0.1, 0.5, 1.0, 1.5, 3.5, 7.5, 30.0, 1e3};
	static const double sizes[] = {0.0, 1e-30, 1e-6, 1.0, 30.0, 1e3};
	static const double errors[] = {0.0, 1e-3, 1e-7, 1e-15};
	struct element e = {.dtype = (enum cpa_dtype)(uniform(state) * 4.0)};

	e.guidance.nbranches = 2 + (uniform(state) < 0.5);
	e.guidance.s = drawn(state, scales, sizeof scales / sizeof *scales);
	e.guidance.s2 = drawn(state, scales, sizeof scales / sizeof *scales);
	for (int i = 0; i < 3; i++) {
		double side = uniform(state) < 0.5 ? (uniform(state) < 0.5 ? -1.0 : 1.0)
						   : 2.0 * uniform(state) - 1.0;
		unsigned char stored[8];

		e.exact[i] = drawn(state, sizes, 6) * (2.0 * uniform(state) - 1.0);
		e.bound[i] = drawn(state, errors, 4) * fabs(e.exact[i]);
		cpa_store(e.dtype, stored, 0, e.exact[i] + side * e.bound[i]);
		e.computed[i] = cpa_load(e.dtype, stored, 0);
		e.bound[i] = fmax(e.bound[i], fabs(e.computed[i] - e.exact[i]));
	}
	return e;
}

static double combined(const struct element *e, const double *branches, enum cpa_dtype to)
{
	const void *at[3] = {&branches[0], &branches[1], &branches[2]};
	unsigned char out[8];

	if (e->guidance.nbranches == 2)
		at[1] = &branches[2];
	cpa_ref_guidance(&e->guidance, 1, CPA_DTYPE_FP64, at, to, out);
	return cpa_load(to, out, 0);
}

static double bound_of(const struct element *e)
{
	const double exact[3] = {
		e->exact[0], e->guidance.nbranches == 2 ? e->exact[2] : e->exact[1], e->exact[2]};
	const double bound[3] = {
		e->bound[0], e->guidance.nbranches == 2 ? e->bound[2] : e->bound[1], e->bound[2]};

	return cpa_bound_guidance(&e->guidance, e->dtype, exact, bound);
}

static double error_of(const struct element *e, const double *branches)
{
	return fabs(combined(e, branches, e->dtype) - combined(e, e->exact, CPA_DTYPE_FP64));
}

static void right_combinations_are_never_an_alarm(void **state)
{
	uint64_t random = 12;
	double worst = 0.0;

	(void)state;
	for (int n = 0; n < 1000000; n++) {
		struct element e = draw(&random);
		double error = error_of(&e, e.computed), bound = bound_of(&e);

		if (fabs(combined(&e, e.exact, CPA_DTYPE_FP64)) + bound > cpa_dtype_max(e.dtype))
			continue; /* what a dtype cannot hold is another matter */
		if (error > 0.0)
			worst = fmax(worst, error / bound);
		if (!(error <= bound))
			fail_msg("case %d: s %g s2 %g: off by %g, bound %g", n, e.guidance.s,
				e.guidance.s2, error, bound);
	}
	assert_true(worst > 0.9); /* it is not a wide bound either */
}

/* Branches that differ by far more than they may be off. */
static void faults_of_guidance_are_alarms(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (int nbranches = 2; nbranches <= 3; nbranches++) {
			const double u = cpa_dtype_roundoff((enum cpa_dtype)dtype);
			struct element e = {{nbranches, 3.5, 1.5}, (enum cpa_dtype)dtype,
				{-1.0, 0.5, 2.0}, {u, u, 2.0 * u}, {0, 0, 0}};
			const double swapped[3] = {2.0, 0.5, -1.0},
				     repeated[3] = {-1.0, 0.5, -1.0};
			struct element other = e;

			assert_true(error_of(&e, e.exact) <= bound_of(&e));
			assert_true(error_of(&e, swapped) > bound_of(&e));
			assert_true(error_of(&e, repeated) > bound_of(&e));
			other.guidance.s = -3.5;
			assert_true(
				fabs(combined(&other, e.exact, e.dtype) -
					combined(&e, e.exact, CPA_DTYPE_FP64)) > bound_of(&e));
			other.guidance = (struct cpa_guidance){nbranches, 3.5, 0.0};
			assert_int_equal(nbranches == 3,
				fabs(combined(&other, e.exact, e.dtype) -
					combined(&e, e.exact, CPA_DTYPE_FP64)) > bound_of(&e));
		}
}

/* With scale 1 the positive branch is all there is, with 0 the negative one. */
static void a_branch_without_weight_adds_nothing(void **state)
{
	const double exact[2] = {1.0, -2.0}, off[2] = {0.25, 0.5};

	(void)state;
	for (int s = 0; s <= 1; s++) {
		struct cpa_guidance guidance = {2, s, 0};
		double bound = cpa_bound_guidance(&guidance, CPA_DTYPE_FP64, exact, off);

		assert_true(bound >= off[s] && bound <= 1.02 * off[s]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_combinations_are_never_an_alarm),
		cmocka_unit_test(faults_of_guidance_are_alarms),
		cmocka_unit_test(a_branch_without_weight_adds_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
