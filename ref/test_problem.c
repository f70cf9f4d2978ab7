/* test_problem.c - which problems and rules make sense; errors and arenas. */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct cpa_problem small = { .B = 2,
	.Sq = 7,
	.Skv = 5,
	.Hq = 6,
	.Hkv = 3,
	.D = 8,
	.Dv = 4,
	.dtype = CPA_DTYPE_BF16,
	.scale = 0.5 };

static void assert_refused(const struct cpa_problem *problem, const char *words)
{
	struct cpa_error error = { "" };

	assert_int_equal(cpa_problem_check(problem, &error), CPA_INVALID);
	if (strstr(error.text, words) == NULL || strstr(error.text, "expected") == NULL)
		fail_msg("\"%s\" does not say \"%s\" and what was expected", error.text, words);
}

static void a_small_problem_is_accepted(void **unused)
{
	struct cpa_error error = { "" };

	(void) unused;
	assert_int_equal(cpa_problem_check(&small, &error), CPA_OK);
	assert_string_equal(error.text, "");
}

static void each_size_below_one_is_named(void **unused)
{
	static const struct {
		const char *words;
		struct cpa_problem problem;
	} cases[] = {
		{ "B = 0", { 0, 7, 5, 6, 3, 8, 4, .scale = 1 } },
		{ "Sq = -1", { 2, -1, 5, 6, 3, 8, 4, .scale = 1 } },
		{ "Skv = 0", { 2, 7, 0, 6, 3, 8, 4, .scale = 1 } },
		{ "Hq = 0", { 2, 7, 5, 0, 3, 8, 4, .scale = 1 } },
		{ "Hkv = 0", { 2, 7, 5, 6, 0, 8, 4, .scale = 1 } },
		{ "D = 0", { 2, 7, 5, 6, 3, 0, 4, .scale = 1 } },
		{ "Dv = -4", { 2, 7, 5, 6, 3, 8, -4, .scale = 1 } },
		{ "Hq = 6 is not a multiple of Hkv = 4", { 2, 7, 5, 6, 4, 8, 4, .scale = 1 } },
		{ "Hq = 3 is not a multiple of Hkv = 6", { 2, 7, 5, 3, 6, 8, 4, .scale = 1 } },
	};

	(void) unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_refused(&cases[i].problem, cases[i].words);
}

static void products_beyond_64_bits_are_refused_and_those_below_are_not(void **unused)
{
	const int64_t big = (int64_t) 1 << 58;
	const struct cpa_problem fits = { 1, 1, 1, 1, 1, big, big, .scale = 1 };
	const struct {
		const char *words;
		struct cpa_problem problem;
	} cases[] = {
		{ "bytes of q", { 1, 1, 1, 1, 1, 4 * big, 1, .scale = 1 } },
		{ "bytes of q", { 1, 3, 1, 1, 1, (int64_t) 1 << 59, 1, .scale = 1 } },
		{ "bytes of k", { 1, 1, 4, 1, 1, big, 1, .scale = 1 } },
		{ "bytes of v", { 1, 1, 4, 1, 1, 1, big, .scale = 1 } },
		{ "bytes of o", { 1, 1, 1, 4, 1, 1, big, .scale = 1 } },
		{ "bytes of o", { 1, 4, 1, 1, 1, 1, big, .scale = 1 } },
		{ "pairs",
			{ 1, (int64_t) 1 << 32, (int64_t) 1 << 31, 1, 1, 1, 1, .scale = 1 } },
		{ "pairs",
			{ 8, (int64_t) 1 << 30, (int64_t) 1 << 30, 1, 1, 1, 1, .scale = 1 } },
		{ "pairs",
			{ 1, (int64_t) 1 << 30, (int64_t) 1 << 30, 8, 1, 1, 1, .scale = 1 } },
	};
	struct cpa_error error;

	(void) unused;
	assert_int_equal(cpa_problem_check(&fits, &error), CPA_OK);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_refused(&cases[i].problem, cases[i].words);
}

static void scales_must_be_finite_and_positive(void **unused)
{
	const double scales[] = { 0, -1, INFINITY, NAN, -0.0 };

	(void) unused;
	for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
		struct cpa_problem problem = small;

		problem.scale = scales[i];
		assert_refused(&problem, "scale = ");
	}
}

static void dtypes_and_offsets_out_of_range_are_refused(void **unused)
{
	struct cpa_problem problem = small;
	struct cpa_error error;

	(void) unused;
	memset(&problem.dtype, 0x7f, sizeof problem.dtype);
	assert_refused(&problem, "dtype");
	problem = small;
	problem.rule.offset = INT64_MAX;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK); /* not used */
	problem.rule.causal = true;
	assert_refused(&problem, "offset = 9223372036854775807");
	problem.rule.offset = INT64_MIN;
	assert_refused(&problem, "offset = -9223372036854775808");
	problem.rule.offset = (int64_t) 1 << 61;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	assert_int_equal(cpa_rule_row(&problem, 0, 6).end, 5);
}

static void layouts_are_those_that_callers_have(void **unused)
{
	const int64_t fits = (int64_t) 1 << 57;
	struct cpa_problem problem = { 1, 1, 1, 4, 4, fits, fits, .scale = 1 };
	struct cpa_error error;

	(void) unused;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	problem.layout = CPA_LAYOUT_FUSED;
	assert_refused(&problem, "bytes of q, k and v in one array");
	problem.D = problem.Dv = fits / 4;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	problem.layout = CPA_LAYOUT_BHSD;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	problem.layout = CPA_LAYOUT_SBHD;
	assert_refused(&problem, "expected BSHD, BHSD or fused");
	memset(&problem.layout, 0x7f, sizeof problem.layout);
	assert_refused(&problem, "expected BSHD, BHSD or fused");
	assert_string_equal(cpa_layout_name(CPA_LAYOUT_BSHD), "BSHD");
	assert_string_equal(cpa_layout_name(CPA_LAYOUT_SBHD), "SBHD");
	assert_string_equal(cpa_layout_name(CPA_LAYOUT_BHSD), "BHSD");
	assert_string_equal(cpa_layout_name(CPA_LAYOUT_FUSED), "fused");
}

static void lse_is_fp64_for_fp64_alone(void **unused)
{
	struct cpa_problem problem = small;

	(void) unused;
	for (int dtype = 0; dtype < 4; dtype++) {
		problem.dtype = (enum cpa_dtype) dtype;
		assert_int_equal(cpa_problem_lse_dtype(&problem),
			dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32);
	}
}

/* ---- rules ---- */

static void window_sides_below_minus_one_are_refused(void **unused)
{
	struct cpa_problem problem = small;
	struct cpa_error error;

	(void) unused;
	problem.rule = (struct cpa_rule) { .left = -2, .right = -9, .offset = INT64_MIN };
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK); /* not used */
	problem.rule.window = true;
	assert_refused(&problem, "offset = -9223372036854775808");
	problem.rule.offset = -3;
	assert_refused(&problem, "window = (-2, -9)");
	problem.rule.left = INT64_MAX;
	assert_refused(&problem, "window = (9223372036854775807, -9)");
	problem.rule.right = -1;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK); /* Sq != Skv is fine */
}

static void documents_that_do_not_cut_the_sequence_are_refused(void **unused)
{
	static const struct {
		const char *words; /* NULL: accepted */
		int64_t starts[5], n, Skv;
	} cases[] = {
		{ NULL, { 0, 3, 7 }, 2, 7 },
		{ NULL, { 0, 0, 7, 7 }, 3, 7 },
		{ NULL, { 0, 7 }, 1, 7 },
		{ "documents with Sq = 7 and Skv = 5", { 0, 3, 7 }, 2, 5 },
		{ "documents: there are 0", { 0 }, 0, 7 },
		{ "documents: there are -1", { 0 }, -1, 7 },
		{ "documents[0] = 1", { 1, 3, 7 }, 2, 7 },
		{ "documents[0] = -1", { -1, 3, 7 }, 2, 7 },
		{ "documents[2] = 4 after 5", { 0, 5, 4, 7 }, 3, 7 },
		{ "documents[2] = 6, expected S = 7", { 0, 3, 6 }, 2, 7 },
		{ "documents[2] = 8, expected S = 7", { 0, 3, 8 }, 2, 7 },
	};
	struct cpa_error error;

	(void) unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_problem problem = small;

		problem.Skv = cases[i].Skv;
		problem.rule.documents = cases[i].starts;
		problem.rule.ndocuments = cases[i].n;
		if (cases[i].words != NULL)
			assert_refused(&problem, cases[i].words);
		else
			assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	}
}

static void key_lengths_beyond_the_keys_are_refused(void **unused)
{
	int64_t lengths[] = { 0, 5 };
	struct cpa_problem problem = small;
	struct cpa_error error;

	(void) unused;
	problem.rule.key_lengths = lengths;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	lengths[1] = 6;
	assert_refused(&problem, "key_lengths[1] = 6, expected 0 to Skv = 5");
	lengths[0] = -1;
	assert_refused(&problem, "key_lengths[0] = -1");
}

static void masks_that_cannot_be_read_are_refused(void **unused)
{
	static const double data[7 * 5];
	struct cpa_problem problem = small;
	struct cpa_mask *mask = &problem.rule.mask;
	struct cpa_error error;

	(void) unused;
	*mask = (struct cpa_mask) {
		.kind = CPA_MASK_BIAS, .data = data, .query = 5, .key = 1
	};
	mask->dtype = CPA_DTYPE_FP32;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	mask->dtype = CPA_DTYPE_FP64;
	assert_refused(&problem, "mask: a bias of dtype number 0 in a problem in bf16");
	problem.dtype = CPA_DTYPE_FP64;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	mask->dtype = CPA_DTYPE_FP16;
	assert_refused(&problem, "expected fp32 or fp64");
	mask->kind = CPA_MASK_BOOL; /* has no dtype */
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	mask->query = -5;
	assert_refused(&problem, "mask: the stride of a query is -5");
	mask->query = INT64_MAX / 6;
	assert_refused(&problem, "mask: too large at the stride of a query");
	mask->query = 0;
	mask->batch = INT64_MAX;
	assert_refused(&problem, "mask: too large at the stride of a batch");
	mask->batch = 0;
	mask->data = NULL;
	assert_refused(&problem, "mask without data");
	memset(&mask->kind, 0x7f, sizeof mask->kind);
	assert_refused(&problem, "mask kind number");
	mask->kind = CPA_MASK_NONE;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
}

static void sinks_must_be_finite_in_what_scores_are_computed_in(void **unused)
{
	double sink[] = { 0, -3, 3e38, 1, 2, -3e38 };
	struct cpa_problem problem = small;
	struct cpa_error error;

	(void) unused;
	problem.rule.sink = sink;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	sink[5] = NAN;
	assert_refused(&problem, "sink[5] = nan");
	sink[4] = -INFINITY;
	assert_refused(&problem, "sink[4] = -inf");
	sink[3] = 1e39;
	assert_refused(&problem, "sink[3] = 1e+39");
	problem.dtype = CPA_DTYPE_FP64;
	assert_refused(&problem, "sink[4] = -inf");
}

/* ---- errors and arenas ---- */

static void a_sentence_that_is_too_long_is_cut(void **unused)
{
	struct cpa_error error;
	char text[3000];

	(void) unused;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	assert_int_equal(cpa_fail(&error, CPA_EXTERNAL, "%d %s", 7, text), CPA_EXTERNAL);
	assert_int_equal(strlen(error.text), sizeof error.text - 1);
	assert_memory_equal(error.text, "7 xxx", 5);
}

static void arenas_hand_out_zeroed_aligned_memory_of_its_own(void **unused)
{
	struct cpa_arena arena;
	unsigned char *memory[200];
	size_t total = 0;

	(void) unused;
	cpa_arena_init(&arena);
	for (size_t i = 0; i < 200; i++) {
		const size_t nbytes = i * i * 3 % 9001;

		memory[i] = cpa_arena_alloc(&arena, nbytes);
		assert_non_null(memory[i]);
		assert_int_equal((uintptr_t) memory[i] % 16, 0);
		for (size_t k = 0; k < nbytes; k++)
			assert_int_equal(memory[i][k], 0);
		memset(memory[i], (int) i, nbytes);
		total += nbytes;
		assert_true(arena.nbytes >= total);
	}
	for (size_t i = 0; i < 200; i++) { /* nobody wrote on anybody else */
		for (size_t k = 0; k < i * i * 3 % 9001; k++)
			assert_int_equal(memory[i][k], i);
	}
	cpa_arena_fini(&arena);
	assert_null(arena.blocks);
}

static void an_arena_that_failed_stays_failed(void **unused)
{
	struct cpa_arena arena;
	struct cpa_spans list = { 0 };

	(void) unused;
	cpa_arena_init(&arena);
	assert_non_null(cpa_arena_alloc(&arena, 100));
	assert_null(cpa_arena_alloc(&arena, SIZE_MAX - 7));
	assert_true(arena.failed);
	assert_null(cpa_arena_alloc(&arena, 1));
	cpa_spans_append_range(&arena, &list, (struct cpa_range) { 0, 5 });
	assert_int_equal(list.n, 0);
	cpa_arena_fini(&arena);
	assert_false(arena.failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_problem_is_accepted),
		cmocka_unit_test(each_size_below_one_is_named),
		cmocka_unit_test(products_beyond_64_bits_are_refused_and_those_below_are_not),
		cmocka_unit_test(scales_must_be_finite_and_positive),
		cmocka_unit_test(dtypes_and_offsets_out_of_range_are_refused),
		cmocka_unit_test(layouts_are_those_that_callers_have),
		cmocka_unit_test(lse_is_fp64_for_fp64_alone),
		cmocka_unit_test(window_sides_below_minus_one_are_refused),
		cmocka_unit_test(documents_that_do_not_cut_the_sequence_are_refused),
		cmocka_unit_test(key_lengths_beyond_the_keys_are_refused),
		cmocka_unit_test(masks_that_cannot_be_read_are_refused),
		cmocka_unit_test(sinks_must_be_finite_in_what_scores_are_computed_in),
		cmocka_unit_test(a_sentence_that_is_too_long_is_cut),
		cmocka_unit_test(arenas_hand_out_zeroed_aligned_memory_of_its_own),
		cmocka_unit_test(an_arena_that_failed_stays_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
