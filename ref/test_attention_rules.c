/*
 * test_attention_rules.c - the reference against the definition under every rule: windows,
 * documents, key lengths, masks of every shape, sinks, and all of them at once.
 */
#include "ref/ref.h"
#include "ref/test_naive.h"
#include "ref/test_rule.h"
#include "ref/test_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How many rows saw no key, so that a test may ask that there were some. */
static int64_t check_random(int parts, int shape, int64_t Skv, int i)
{
	int64_t g = 1 + rng_below(3), Hkv = 1 + rng_below(2), empty = 0;
	struct cpa_problem problem = { .B = 1 + rng_below(3),
		.Sq = 1 + rng_below(8),
		.Skv = Skv,
		.Hq = g * Hkv,
		.Hkv = Hkv,
		.D = 1 + rng_below(12),
		.Dv = 1 + rng_below(9),
		.dtype = i % 4,
		.scale = i % 3 ? 0.3 : 2.0 };
	struct cpa_arena arena;
	struct sample sample;

	cpa_arena_init(&arena);
	random_rule(&arena, &problem, parts, shape);
	sample_init(&sample, problem, rng_below(2), rng_below(3));
	assert_sample(&sample);
	for (int64_t n = 0; n < problem.B * problem.Hq * problem.Sq; n++) {
		int64_t b = n / problem.Sq / problem.Hq, h = n / problem.Sq % problem.Hq;
		bool sees = false;

		for (int64_t j = 0; j < problem.Skv; j++)
			sees |= naive_sees(&problem, b, h, n % problem.Sq, j);
		empty += !sees;
	}
	cpa_arena_fini(&sample.arena);
	cpa_arena_fini(&arena);
	return empty;
}

static void every_combination_of_rules_agrees_with_the_definition(void **state)
{
	(void)state;
	for (int parts = 0; parts < 128; parts++)
		for (int i = 0; i < 4; i++)
			check_random(parts, (int)rng_below(16), 1 + rng_below(14), i + parts);
}

static void masks_of_all_broadcast_shapes_agree_with_the_definition(void **state)
{
	int64_t empty = 0;

	(void)state;
	for (int i = 0; i < 16 * 2 * 4; i++)
		empty += check_random(i % 2 ? RULE_BOOL : RULE_BIAS, i / 2 % 16,
			1 + rng_below(30), i / 32);
	assert_true(empty > 0);
}

/* Several blocks of keys and the rest, with whole blocks hidden. */
static void long_rows_agree_with_the_definition(void **state)
{
	(void)state;
	for (int i = 0; i < 24; i++)
		check_random(i % 2 ? RULE_BOOL | RULE_WINDOW : RULE_BIAS | RULE_SINK, 3,
			100 + rng_below(250), i);
}

static void rows_that_see_no_key_hold_the_sink_alone(void **state)
{
	int64_t empty = 0;

	(void)state;
	for (int i = 0; i < 40; i++)
		empty += check_random(RULE_SINK | RULE_LENGTHS | (i % 2 ? RULE_BOOL : 0),
			(int)rng_below(16), 1 + rng_below(6), i);
	assert_true(empty > 100);
}

/* Scores of hidden keys may be anything, and infinite; their values anything finite. */
static void hidden_keys_change_nothing(void **state)
{
	static const uint8_t attend[] = { 0, 1, 1, 0, 1, 0 };
	static const float bias[] = { -INFINITY, 0, 0, -INFINITY, 0, -INFINITY };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cpa_problem problem = small_problem(6, 4, 3);
		double o[2][3], p[2][6];
		struct cpa_row row[2];
		struct sample sample;

		problem.rule.mask = (struct cpa_mask){
			.kind = i ? CPA_MASK_BIAS : CPA_MASK_BOOL,
			.dtype = CPA_DTYPE_FP32,
			.data = i ? (const void *)bias : attend,
			.key = 1
		};
		sample_init(&sample, problem, false, 0);
		row[0] = run_row(&sample, 0, 0, 0, o[0], p[0]);
		for (int64_t j = 0; j < 6; j++)
			for (int64_t d = 0; d < 4 && !attend[j]; d++) {
				put(sample.k, 0, j, 0, d, 1e300);
				put(sample.v, 0, j, 0, d % 3, 1e300);
			}
		for (int64_t d = 0; d < 4; d++)
			put(sample.k, 0, 3, 0, d, d % 2 ? 1e308 : -1e308);
		row[1] = run_row(&sample, 0, 0, 0, o[1], p[1]);
		assert_memory_equal(o[0], o[1], sizeof(o[0]));
		assert_memory_equal(p[0], p[1], sizeof(p[0]));
		assert_true(p[0][0] == 0.0 && p[0][1] > 0.0 && p[0][5] == 0.0);
		assert_memory_equal(&row[0], &row[1], offsetof(struct cpa_row, equal));
		assert_int_equal(row[0].nvisible, 3);
		cpa_arena_fini(&sample.arena);
	}
}

/* A key of zeros scores 0, and its value is 0: what a sink of 0 is, but for nvisible. */
static void a_sink_is_one_more_key_of_zeros(void **state)
{
	static const double zero = 0.0;
	struct cpa_problem problem = small_problem(40, 5, 4);
	double o[2][4], p[41];
	struct sample sample;
	struct cpa_row row, more;

	(void)state;
	sample_init(&sample, problem, false, 0);
	for (int64_t d = 0; d < 5; d++)
		put(sample.k, 0, 39, 0, d, 0.0);
	for (int64_t d = 0; d < 4; d++)
		put(sample.v, 0, 39, 0, d, 0.0);
	more = run_row(&sample, 0, 0, 0, o[0], p);
	sample.problem.Skv = 39;
	sample.problem.rule.sink = &zero;
	row = run_row(&sample, 0, 0, 0, o[1], p);
	assert_int_equal(row.nvisible, 39);
	assert_int_equal(more.nvisible, 40);
	row.nvisible = more.nvisible;
	assert_memory_equal(&row, &more, offsetof(struct cpa_row, equal));
	assert_int_equal(row.equal, more.equal);
	assert_memory_equal(o[0], o[1], sizeof(o[0]));
	cpa_arena_fini(&sample.arena);
}

static void scores_are_equal_only_if_the_sink_is_too(void **state)
{
	double sink = 0.0, o[2], p[3];
	struct cpa_problem problem = small_problem(3, 2, 2);
	struct sample sample;

	(void)state;
	problem.rule.sink = &sink;
	sample_init(&sample, problem, false, 0);
	for (int64_t i = 0; i < 6; i++)
		put(sample.k, 0, i / 2, 0, i % 2, 0.0);
	assert_true(run_row(&sample, 0, 0, 0, o, p).equal && p[2] == 0.25);
	sink = 1.0;
	assert_false(run_row(&sample, 0, 0, 0, o, p).equal);
	cpa_arena_fini(&sample.arena);
}

/* The most negative number as a mask: it hides a key unless it is all there is. */
static void the_most_negative_bias_is_a_number(void **state)
{
	static const float lowest = -0x1.fffffep127f, bias[] = { lowest, 0, lowest };
	struct cpa_problem problem = small_problem(3, 2, 2);
	struct sample sample;
	double o[2], p[3];
	struct cpa_row row;

	(void)state;
	problem.rule.mask = (struct cpa_mask){
		.kind = CPA_MASK_BIAS, .dtype = CPA_DTYPE_FP32, .data = bias, .key = 1
	};
	sample_init(&sample, problem, false, 0);
	row = run_row(&sample, 0, 0, 0, o, p);
	assert_true(row.nvisible == 3 && p[0] == 0.0 && p[1] == 1.0 && isfinite(row.lse));
	assert_true(row.max_abs == fabs(row.max_score)); /* what is far says nothing of the rest */
	sample.problem.rule.mask.key = 0;
	row = run_row(&sample, 0, 0, 0, o, p);
	assert_true(row.nvisible == 3 && row.lse == (double)lowest && p[0] > 0.0);
	assert_true(row.max_abs == -(double)lowest);
	cpa_arena_fini(&sample.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_combination_of_rules_agrees_with_the_definition),
		cmocka_unit_test(masks_of_all_broadcast_shapes_agree_with_the_definition),
		cmocka_unit_test(long_rows_agree_with_the_definition),
		cmocka_unit_test(rows_that_see_no_key_hold_the_sink_alone),
		cmocka_unit_test(hidden_keys_change_nothing),
		cmocka_unit_test(a_sink_is_one_more_key_of_zeros),
		cmocka_unit_test(scores_are_equal_only_if_the_sink_is_too),
		cmocka_unit_test(the_most_negative_bias_is_a_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
