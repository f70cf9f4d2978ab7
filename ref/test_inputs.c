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

/* A mask [2,1,3,5] that hides, adds, and then holds what it must not. */
static void a_bias_that_is_nan_or_inf_is_named(void **state)
{
	static float bias[2 * 3 * 5] = { -INFINITY, 1.0f, -2.0f };
	struct cpa_problem problem = { .B = 2,
		.Sq = 3,
		.Skv = 5,
		.Hq = 4,
		.Hkv = 2,
		.D = 4,
		.Dv = 3,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.5,
		.rule.mask = { .kind = CPA_MASK_BIAS,
			.dtype = CPA_DTYPE_FP32,
			.data = bias,
			.batch = 15,
			.query = 5,
			.key = 1 } };
	struct cpa_error error;
	struct sample sample;

	(void)state;
	sample_init(&sample, problem, false, 0);
	assert_int_equal(check(&sample, &error), CPA_OK);
	bias[15 + 2 * 5 + 4] = NAN;
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "mask[1,0,2,4] is nan (batch, head, query, key)"));
	bias[0 + 1 * 5 + 3] = INFINITY;
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "mask[0,0,1,3] is inf"));
	/* One row for all queries and batch items: only what is there is looked at. */
	sample.problem.rule.mask.batch = sample.problem.rule.mask.query = 0;
	assert_int_equal(check(&sample, &error), CPA_OK);
	sample.problem.rule.mask.head = 5;
	assert_int_equal(check(&sample, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "mask[0,1,0,3] is inf"));
	/* Truth values may be anything. */
	sample.problem.rule.mask.kind = CPA_MASK_BOOL;
	assert_int_equal(check(&sample, &error), CPA_OK);
	cpa_arena_fini(&sample.arena);
}

/* One query, one key, a score of `score` and a bias. */
static enum cpa_status check_bias(
	enum cpa_dtype dtype, double score, double bias, struct cpa_error *error)
{
	struct cpa_problem problem = small_problem(1, 1, 1);
	enum cpa_status status;
	struct sample sample;

	problem.dtype = dtype;
	sample_init(&sample, problem, false, 0);
	put(sample.q, 0, 0, 0, 0, 1.0);
	put(sample.k, 0, 0, 0, 0, score);
	sample.problem.rule.mask = (struct cpa_mask){ .kind = CPA_MASK_BIAS,
		.dtype = CPA_DTYPE_FP64,
		.data = &bias };
	status = check(&sample, error);
	cpa_arena_fini(&sample.arena);
	return status;
}

static void a_bias_that_lets_scores_overflow_is_refused(void **state)
{
	const double lowest32 = -0x1.fffffep127, lowest64 = -0x1.fffffffffffffp1023;
	struct cpa_error error;

	(void)state;
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 2e38, 1.4e38, &error), CPA_OK);
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 2e38, -1.5e38, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "mask[0,0,0,0]"));
	/* Many hide keys by the lowest number; with scores of any sane size it stays finite. */
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 1e6, lowest32, &error), CPA_OK);
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 1e25, lowest32, &error), CPA_OK);
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 1e6, -INFINITY, &error), CPA_OK);
	assert_int_equal(check_bias(CPA_DTYPE_FP32, 1e31, lowest32, &error), CPA_INVALID);
	assert_int_equal(check_bias(CPA_DTYPE_FP64, 1e6, lowest64, &error), CPA_OK);
	assert_int_equal(check_bias(CPA_DTYPE_FP64, 9e307, 9e307, &error), CPA_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_element_that_is_not_finite_is_named),
		cmocka_unit_test(scores_that_may_overflow_are_refused),
		cmocka_unit_test(a_bias_that_is_nan_or_inf_is_named),
		cmocka_unit_test(a_bias_that_lets_scores_overflow_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
