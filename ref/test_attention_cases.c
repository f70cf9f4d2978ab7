/*
 * test_attention_cases.c - the reference on cases whose result is known beforehand.
 */
#include "ref/ref.h"
#include "ref/test_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void equal_scores_give_the_mean_of_the_values(void **state)
{
	struct cpa_problem problem = small_problem(4, 2, 2);
	const double v[] = { 1, -8, 2, 0, 4, 16, 9, 0 };
	struct sample sample;
	struct cpa_row row;
	double o[2], p[4];

	(void)state;
	sample_init(&sample, problem, false, 0);
	for (int64_t i = 0; i < 8; i++) {
		put(sample.k, 0, i / 2, 0, i % 2, 3.0);
		put(sample.v, 0, i / 2, 0, i % 2, v[i]);
	}
	put(sample.q, 0, 0, 0, 0, 0.5);
	put(sample.q, 0, 0, 0, 1, 0.25);
	row = run_row(&sample, 0, 0, 0, o, p);
	assert_true(o[0] == 4.0 && o[1] == 2.0);
	assert_true(p[0] == 0.25 && p[3] == 0.25);
	assert_true(row.lse == 2.25 + log(4.0) && row.max_score == 2.25 && row.max_abs == 2.25);
	assert_true(row.equal && row.nvisible == 4 && row.Vsum == 35.0 && row.V == 8.75);
	assert_true(row.v_max == 16.0 && row.V2 == (65.0 + 4.0 + 272.0 + 81.0) / 4.0);
	put(sample.k, 0, 2, 0, 0, 3.5);
	assert_false(run_row(&sample, 0, 0, 0, o, p).equal);
	cpa_arena_fini(&sample.arena);
}

static void a_single_visible_key_hands_on_its_value(void **state)
{
	struct cpa_problem problem = small_problem(3, 3, 5);
	struct sample sample;
	double o[5], p[3];
	struct cpa_row row;

	(void)state;
	problem.rule = (struct cpa_rule){ .causal = true };
	sample_init(&sample, problem, false, 0);
	row = run_row(&sample, 0, 0, 0, o, p);
	for (int64_t d = 0; d < 5; d++)
		assert_true(o[d] == get(sample.v, 0, 0, 0, d));
	assert_true(row.nvisible == 1 && row.lse == row.max_score && row.equal && p[0] == 1.0);
	cpa_arena_fini(&sample.arena);
}

static void one_hot_values_read_off_the_softmax(void **state)
{
	struct cpa_problem problem = small_problem(37, 16, 37);
	struct sample sample;
	double o[37], p[37], sum = 0.0;

	(void)state;
	sample_init(&sample, problem, false, 0);
	for (int64_t j = 0; j < 37; j++)
		for (int64_t d = 0; d < 37; d++)
			put(sample.v, 0, j, 0, d, j == d ? 1.0 : 0.0);
	run_row(&sample, 0, 0, 0, o, p);
	for (int64_t d = 0; d < 37; d++) {
		assert_true(o[d] == p[d] && p[d] > 0.0);
		sum += p[d];
	}
	assert_near(sum, 1.0L, 40 * 0x1p-53L);
	cpa_arena_fini(&sample.arena);
}

/* More than a tile of features and several blocks of keys. */
static void wide_heads_agree_with_each_of_their_features_alone(void **state)
{
	struct cpa_problem problem = small_problem(200, 9, 300),
			   narrow = small_problem(200, 9, 1);
	double o[300], one, p[200];
	struct sample sample;

	(void)state;
	sample_init(&sample, problem, false, 0);
	run_row(&sample, 0, 0, 0, o, p);
	for (int64_t d = 0; d < 300; d++) {
		struct sample column = sample;

		column.problem = narrow;
		column.v.data = (const double *)sample.v.data + d;
		run_row(&column, 0, 0, 0, &one, p);
		assert_true(one == o[d]);
	}
	cpa_arena_fini(&sample.arena);
}

static void all_rows_together_equal_the_rows_alone(void **state)
{
	struct cpa_problem problem = { .B = 2,
		.Sq = 3,
		.Skv = 5,
		.Hq = 4,
		.Hkv = 2,
		.D = 4,
		.Dv = 3,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.5,
		.rule = { .causal = true, .offset = -1 } };
	double o[2 * 3 * 4 * 3], lse[2 * 3 * 4], one[3], p[5];
	struct sample sample;
	struct cpa_error error;

	(void)state;
	sample_init(&sample, problem, true, 1);
	assert_int_equal(
		cpa_ref_attention(&problem, sample.q, sample.k, sample.v, o, lse, &error),
		CPA_OK);
	for (int64_t i = 0; i < 24; i++) {
		struct cpa_row row = run_row(&sample, i / 12, i % 4, i / 4 % 3, one, p);

		assert_true(row.lse == lse[i]);
		assert_memory_equal(one, o + i * 3, sizeof(one));
		assert_int_equal(row.nvisible, i / 4 % 3);
	}
	cpa_arena_fini(&sample.arena);
}

/* Scores near the end of fp32, of fp64, and all below -6e4: nothing may overflow. */
static void extreme_scores_stay_right(void **state)
{
	static const double sizes[] = { 1e4, -1e4, 1e38, -1e38, 1e307 };

	(void)state;
	for (int i = 0; i < 5; i++) {
		struct cpa_problem problem = small_problem(50, 4, 3);
		struct sample sample;
		struct cpa_row row;
		double o[3], p[50];
		int64_t best = 17;

		sample_init(&sample, problem, false, 0);
		for (int64_t d = 0; d < 4; d++)
			put(sample.q, 0, 0, 0, d, sqrt(fabs(sizes[i])));
		for (int64_t j = 0; j < 50; j++)
			for (int64_t d = 0; d < 4; d++)
				put(sample.k, 0, j, 0, d,
					copysign(sqrt(fabs(sizes[i])), sizes[i]) *
						(sizes[i] < 0.0 ? 1.0 + 0.01 * fabs(j - 17.0)
								: 1.0 - 0.01 * fabs(j - 17.0)));
		row = run_row(&sample, 0, 0, 0, o, p);
		assert_near(row.lse, 4.0L * sizes[i], fabsl(4.0L * sizes[i]) * 0x1p-49L);
		assert_near(p[best], 1.0L, 0.0L);
		for (int64_t d = 0; d < 3; d++)
			assert_true(o[d] == get(sample.v, 0, best, 0, d));
		assert_true(isfinite(row.a) && isfinite(row.V2) && !row.equal);
		assert_near(row.a, fabsl(4.0L * sizes[i]) * (sizes[i] < 0 ? 1.32L : 1.0L),
			fabsl(sizes[i]) * 0x1p-48L);
		cpa_arena_fini(&sample.arena);
	}
}

static void squares_that_overflow_leave_no_nan(void **state)
{
	struct cpa_problem problem = small_problem(2, 2, 2);
	struct sample sample;
	double o[2], p[2];
	struct cpa_row row;

	(void)state;
	sample_init(&sample, problem, false, 0);
	for (int64_t d = 0; d < 2; d++) {
		put(sample.q, 0, 0, 0, d, 1e200);
		put(sample.k, 0, 0, 0, d, 1e-190);
		put(sample.k, 0, 1, 0, d, -1e-190);
		put(sample.v, 0, 0, 0, d, 3.0);
		put(sample.v, 0, 1, 0, d, 1e300);
	}
	row = run_row(&sample, 0, 0, 0, o, p);
	assert_true(
		o[0] == 3.0 && p[0] == 1.0 && p[1] == 0.0 && row.V == 3.0 && row.V2 == 18.0);
	assert_near(row.a, 2e10L, 1e-4L);
	cpa_arena_fini(&sample.arena);
}

static void a_dense_view_strides_over_batch_token_head_and_feature(void **state)
{
	static const double data[2 * 3 * 5 * 7];
	struct cpa_view view = cpa_view_bshd(data, CPA_DTYPE_FP16, 3, 5, 7);

	(void)state;
	assert_ptr_equal(view.data, data);
	assert_int_equal(view.dtype, CPA_DTYPE_FP16);
	assert_int_equal(view.batch, 3 * 5 * 7);
	assert_int_equal(view.token, 5 * 7);
	assert_int_equal(view.head, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dense_view_strides_over_batch_token_head_and_feature),
		cmocka_unit_test(equal_scores_give_the_mean_of_the_values),
		cmocka_unit_test(a_single_visible_key_hands_on_its_value),
		cmocka_unit_test(one_hot_values_read_off_the_softmax),
		cmocka_unit_test(wide_heads_agree_with_each_of_their_features_alone),
		cmocka_unit_test(all_rows_together_equal_the_rows_alone),
		cmocka_unit_test(extreme_scores_stay_right),
		cmocka_unit_test(squares_that_overflow_leave_no_nan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
