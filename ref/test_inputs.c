/*
 * test_inputs.c - inputs that are refused, by name, and those just short of it.
 */
#include "ref/ref.h"
#include "ref/test_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static enum cpa_status check(const struct sample *sample, struct cpa_error *error)
{
	return cpa_ref_check_inputs(&sample->problem, sample->q, sample->k, sample->v, error);
}

static void an_element_that_is_not_finite_is_named(void **state)
{
	struct cpa_problem problem = { .B = 2,
		.Sq = 3,
		.Skv = 5,
		.Hq = 4,
		.Hkv = 2,
		.D = 70,
		.Dv = 3,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5 };
	struct cpa_error error;
	struct sample sample;

	(void)state;
	sample_init(&sample, problem, false, 2);
	assert_int_equal(check(&sample, &error), CPA_OK);
	put(sample.v, 1, 4, 1, 2, -INFINITY);
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "v[1,4,1,2] is -inf"));
	put(sample.k, 1, 3, 0, 69, NAN);
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "k[1,3,0,69] is nan"));
	put(sample.q, 0, 2, 3, 64, INFINITY);
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "q[0,2,3,64] is inf"));
	cpa_arena_fini(&sample.arena);
}

/* q[b,1,h,0] = x, k[b',4,h',0] = y: refused where they meet and scale x y is past the limit. */
static enum cpa_status check_pair(enum cpa_dtype dtype, double scale, double x, double y,
	int64_t b, int64_t h, struct cpa_error *error)
{
	struct cpa_problem problem = { .B = 2,
		.Sq = 3,
		.Skv = 5,
		.Hq = 4,
		.Hkv = 2,
		.D = 4,
		.Dv = 3,
		.dtype = dtype,
		.scale = scale };
	enum cpa_status status;
	struct sample sample;

	sample_init(&sample, problem, false, 0);
	for (int64_t i = 0; i < 2 * 3 * 4 * 4; i++)
		cpa_store(dtype, (void *)sample.q.data, i, 0.0);
	for (int64_t i = 0; i < 2 * 5 * 2 * 4; i++)
		cpa_store(dtype, (void *)sample.k.data, i, 0.0);
	put(sample.q, b, 1, h, 0, x);
	put(sample.k, 1, 4, 1, 3, y);
	status = check(&sample, error);
	cpa_arena_fini(&sample.arena);
	return status;
}

static void scores_that_may_overflow_are_refused(void **state)
{
	const enum cpa_dtype fp32 = CPA_DTYPE_FP32, fp64 = CPA_DTYPE_FP64;
	struct cpa_error error;

	(void)state;
	assert_int_equal(check_pair(fp32, 0.5, 1e19, 5.9e19, 1, 3, &error), CPA_OK);
	assert_int_equal(check_pair(fp32, 0.5, 1e19, 6.1e19, 1, 3, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "q[1,1,3]"));
	assert_non_null(strstr(error.text, "k[1,4,1]"));
	assert_int_equal(check_pair(fp32, 0.5, 1e19, 6.1e19, 1, 2, &error), CPA_INVALID);
	/* Another batch item or key head: they never meet. */
	assert_int_equal(check_pair(fp32, 0.5, 1e19, 6.1e19, 0, 3, &error), CPA_OK);
	assert_int_equal(check_pair(fp32, 0.5, 1e19, 6.1e19, 1, 1, &error), CPA_OK);
	/* scale q alone leaves fp32, even where k makes it small again. */
	assert_int_equal(check_pair(fp32, 10.0, 1e38, 1e-5, 1, 3, &error), CPA_INVALID);
	assert_int_equal(check_pair(CPA_DTYPE_BF16, 1.0, 1e30, 1e9, 1, 3, &error), CPA_INVALID);
	assert_int_equal(check_pair(fp64, 0.5, 1e150, 1.9e158, 1, 3, &error), CPA_OK);
	assert_int_equal(check_pair(fp64, 0.5, 1e150, 2.1e158, 1, 3, &error), CPA_INVALID);
	assert_int_equal(check_pair(fp64, 1e300, 1e10, 1e-5, 1, 3, &error), CPA_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_element_that_is_not_finite_is_named),
		cmocka_unit_test(scores_that_may_overflow_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
