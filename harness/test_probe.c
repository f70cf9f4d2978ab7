/*
 * test_probe.c - the probes against full attention on their own inputs, and what they are there
 * to see.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_probe.h"

static void full_attention_answers_every_probe(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (int kind = 0; kind < CPA_NPROBES; kind++)
			for (int causal = 0; causal < 2; causal++) {
				struct fixture f;
				struct cpa_problem problem = usual;
				problem.dtype = (enum cpa_dtype)dtype;
				problem.rule.causal = causal;
				set_up(&f, problem, (enum cpa_probe_kind)kind, 0);
				assert_true(attend_and_judge(&f).ratio <= 1.0);
				tear_down(&f);
			}
}

static void rows_that_see_nothing_are_part_of_the_answer(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.rule.offset = -5;
	set_up(&f, problem, CPA_PROBE_COUNT, 0);
	assert_true(attend_and_judge(&f).ratio <= 1.0);
	tear_down(&f);
}

/* Copies token `from` over token `to` of one tensor, in batch item b. */
static void overwrite(
	struct fixture *f, enum cpa_tensor tensor, int64_t b, int64_t to, int64_t from)
{
	size_t row = cpa_token_nbytes(&f->problem, tensor);
	char *data = tensor == CPA_TENSOR_K ? f->k : f->v;
	int64_t first = b * f->problem.Skv;
	memcpy(data + (size_t)(first + to) * row, data + (size_t)(first + from) * row, row);
}

static void a_single_stale_value_row_is_seen_in_every_dtype(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct fixture f;
		struct cpa_problem problem = usual;
		problem.dtype = (enum cpa_dtype)dtype;
		set_up(&f, problem, CPA_PROBE_COUNT, 0);
		overwrite(&f, CPA_TENSOR_V, 1, 20, 21);
		struct cpa_probe_finding finding = attend_and_judge(&f);
		assert_true(finding.ratio > 1.0);
		assert_int_equal(finding.tensor, CPA_TENSOR_O);
		assert_int_equal(finding.batch, 1);
		tear_down(&f);
	}
}

/* A block of keys that is another block of keys: only `hidden` can tell, by whom it hides. */
static void a_stale_block_of_keys_is_seen_by_hiding(void **state)
{
	(void)state;
	for (int kind = 0; kind < CPA_NPROBES; kind++) {
		struct fixture f;
		set_up(&f, usual, (enum cpa_probe_kind)kind, 0);
		for (int64_t j = 0; j < 16; j++)
			overwrite(&f, CPA_TENSOR_K, 0, 16 + j, j);
		assert_true((attend_and_judge(&f).ratio > 1.0) == (kind == CPA_PROBE_HIDDEN));
		tear_down(&f);
	}
}

/* And a block of values that is as long as there are classes: counted evenly, whoever is
 * counted. */
static void a_stale_block_of_values_is_seen_by_hiding(void **state)
{
	(void)state;
	for (int kind = 0; kind < CPA_NPROBES; kind++) {
		struct fixture f;
		set_up(&f, usual, (enum cpa_probe_kind)kind, 0);
		for (int64_t j = 0; j < 16; j++)
			overwrite(&f, CPA_TENSOR_V, 0, 16 + j, j);
		assert_true((attend_and_judge(&f).ratio > 1.0) == (kind == CPA_PROBE_HIDDEN));
		tear_down(&f);
	}
}

static void values_of_another_head_or_batch_item_are_seen(void **state)
{
	(void)state;
	struct fixture f;
	set_up(&f, usual, CPA_PROBE_COUNT, 0);
	size_t head = (size_t)usual.Dv * sizeof(float), token = 3 * head;
	assert_true(attend_and_judge(&f).ratio <= 1.0);
	memcpy(f.v + 30 * token, f.v + 30 * token + head, head); /* head 1 in place of head 0 */
	assert_true(attend_and_judge(&f).ratio > 1.0);
	tear_down(&f);
	set_up(&f, usual, CPA_PROBE_COUNT, 0);
	memcpy(f.v, f.v + 50 * token, 50 * token); /* item 1 in place of item 0 */
	assert_true(attend_and_judge(&f).ratio > 1.0);
	tear_down(&f);
}

static void a_key_counted_twice_is_seen_in_o_and_lse(void **state)
{
	(void)state;
	struct fixture f;
	set_up(&f, usual, CPA_PROBE_COUNT, 0);
	assert_true(attend_and_judge(&f).ratio <= 1.0);
	struct cpa_probe_finding finding;
	struct cpa_error error;
	/* Row 0 sees 10 keys; as if it had seen 11. */
	cpa_store(CPA_DTYPE_FP32, f.lse, 0, log(11.0));
	assert_int_equal(
		cpa_probe_judge(&f.probe, &f.run, f.o, f.lse, &finding, &error), CPA_OK);
	assert_true(finding.ratio > 1.0);
	assert_int_equal(finding.tensor, CPA_TENSOR_LSE);
	assert_int_equal(finding.token, 0);
	assert_true(finding.want == log(10.0));
	tear_down(&f);
}

static void two_units_in_the_last_place_of_o_are_too_many(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.dtype = CPA_DTYPE_BF16;
	set_up(&f, problem, CPA_PROBE_COUNT, 0);
	assert_true(attend_and_judge(&f).ratio <= 1.0);
	uint16_t *o = (uint16_t *)(void *)f.o;
	assert_true(o[0] != 0); /* row 0 sees 10 keys, two of class 0 */
	o[0] = (uint16_t)(o[0] + 2);
	struct cpa_probe_finding finding;
	struct cpa_error error;
	assert_int_equal(
		cpa_probe_judge(&f.probe, &f.run, f.o, f.lse, &finding, &error), CPA_OK);
	assert_true(finding.ratio > 1.0);
	assert_int_equal(finding.dim, 0);
	tear_down(&f);
}

static void long_sequences_in_16_bit_take_windows_that_cover_every_key(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	assert_int_equal(cpa_probe_npasses(&problem), 1);
	problem.dtype = CPA_DTYPE_BF16;
	problem.Dv = 8; /* 8 / (2 u) = 1024 keys in one pass, else windows of 512 */
	problem.Skv = 1024;
	assert_int_equal(cpa_probe_npasses(&problem), 1);
	problem.Skv = 1025;
	assert_int_equal(cpa_probe_npasses(&problem), 3);
	int64_t next = 0;
	for (int pass = 0; pass < 3; pass++) {
		struct cpa_probe probe;
		assert_true(cpa_probe_init(&probe, &problem, CPA_PROBE_COUNT, pass));
		assert_int_equal(probe.window.start, next);
		next = probe.window.end;
	}
	assert_int_equal(next, 1025);
	problem = usual;
	problem.dtype = CPA_DTYPE_BF16;
	problem.Dv = 1; /* 50 keys are fine up to 128 */
	problem.Skv = 200;
	problem.rule.offset = 160;
	for (int pass = 0; pass < cpa_probe_npasses(&problem); pass++) {
		struct fixture f;
		set_up(&f, problem, CPA_PROBE_HIDDEN, pass);
		assert_true(attend_and_judge(&f).ratio <= 1.0);
		tear_down(&f);
	}
}

static void hidden_keys_have_no_weight_or_the_probe_does_not_run(void **state)
{
	(void)state;
	struct cpa_probe probe;
	struct cpa_problem problem = usual;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (double scale = 1e-9; scale < 1e9; scale *= 7.0) {
			problem.dtype = (enum cpa_dtype)dtype;
			problem.scale = scale;
			if (cpa_probe_init(&probe, &problem, CPA_PROBE_HIDDEN, 0))
				assert_true(exp(probe.hidden_score) == 0.0);
			else
				assert_true(problem.dtype == CPA_DTYPE_FP16 && scale < 2e-7);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_attention_answers_every_probe),
		cmocka_unit_test(rows_that_see_nothing_are_part_of_the_answer),
		cmocka_unit_test(a_single_stale_value_row_is_seen_in_every_dtype),
		cmocka_unit_test(a_stale_block_of_keys_is_seen_by_hiding),
		cmocka_unit_test(a_stale_block_of_values_is_seen_by_hiding),
		cmocka_unit_test(values_of_another_head_or_batch_item_are_seen),
		cmocka_unit_test(a_key_counted_twice_is_seen_in_o_and_lse),
		cmocka_unit_test(two_units_in_the_last_place_of_o_are_too_many),
		cmocka_unit_test(long_sequences_in_16_bit_take_windows_that_cover_every_key),
		cmocka_unit_test(hidden_keys_have_no_weight_or_the_probe_does_not_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
