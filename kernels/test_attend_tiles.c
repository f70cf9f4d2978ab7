/*
 * test_attend_tiles.c - what is different where bf16 goes through tiles: that it does, and where
 * it does not; several blocks of keys and rows; values of any size.
 */
#include "kernels/test_attend_check.h"

#include <float.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* B = 1, contiguous tokens, keys past the queries or before them as offset says. */
static void make(struct attend_case *test, int64_t nq, int64_t nk, int64_t Hq, int64_t Hkv,
	int64_t D, int64_t Dv)
{
	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	test->problem = (struct cpa_problem){.B = 1,
		.Sq = nq,
		.Skv = nk,
		.Hq = Hq,
		.Hkv = Hkv,
		.D = D,
		.Dv = Dv,
		.dtype = CPA_DTYPE_BF16,
		.scale = 1 / sqrt((double)D),
		.lse = true};
	choose_partials(test, 0);
	test->batches.end = 1;
	test->heads.end = Hq;
	cpa_spans_append_range(&test->arena, &test->q_tokens, (struct cpa_range){0, nq});
	cpa_spans_append_range(&test->arena, &test->k_tokens, (struct cpa_range){0, nk});
}

static bool has_tiles(void)
{
	return !strncmp(cpa_cpu_kernels()->name, "amx", 3);
}

static void put(const struct cpa_array *array, int64_t i, double value)
{
	cpa_store(array->dtype, array->data, i, value);
}

/* 2^30 + 1 - 2^30: one after the other the 1 is lost in fp32; even and odd features apart it is
 * not.  So this tells that tiles were used, and that few rows do without.  Keys that no row sees
 * hold NaN, which is no reason to do without. */
static void features_are_summed_even_and_odd_apart(void **state)
{
	static const double k[] = {0x1p30, 1, -0x1p30, 0};
	static const int64_t key_lengths[] = {1};

	(void)state;
	for (int i = 0; i < 4; i++) {
		int64_t nq = i < 2 ? 9 : 8;
		struct attend_case test;
		bool tiles;

		make(&test, nq, 50, 1, 1, 4, 3);
		test.problem.scale = 1;
		test.problem.rule.key_lengths = key_lengths;
		case_build(&test);
		for (int64_t d = 0; d < nq * 4; d++)
			put(&test.call.q, d, d == 4 && i % 2 ? 0x1p41 : 1);
		for (int64_t d = 0; d < 4; d++)
			put(&test.call.k, d, k[d]);
		attend(devices[1], &test);
		/* Nor does a unit with a number above 2^40 use them. */
		tiles = has_tiles() && nq > 8 && i % 2 == 0;
		assert_true(case_load(&test.call.lse, 0, 0, 0, 0) == (tiles ? 1 : 0));
		case_free(&test);
	}
}

/* Blocks of 512 keys, of 32 rows, and what is over; causal from either end, and masked. */
static void several_blocks_of_keys_and_rows_are_right(void **state)
{
	(void)state;
	for (int i = 0; i < 12; i++) {
		struct attend_case test;
		int64_t nq = i % 2 ? 33 : 70, nk = i % 4 < 2 ? 1024 : 545;

		make(&test, nq, nk, 2, 1, i % 3 ? 40 : 33, i % 3 ? 48 : 17);
		test.problem.rule.causal = i & 4;
		test.problem.rule.offset = i & 1 ? nk - nq : -20;
		test.problem.rule.window = i & 8;
		test.problem.rule.left = 400;
		test.problem.rule.right = -1;
		test.fill = i == 5 ? CPA_FILL_EXTREME : CPA_FILL_NORMAL;
		if (i == 3 || i == 6) {
			test.mask = (struct mask_shape){.query = true,
				.key = true,
				.head = i == 6,
				.values = i == 3 ? MASK_TRUTH : MASK_EXTREME,
				.dtype = CPA_DTYPE_FP32};
			case_mask(&test);
		}
		case_build(&test);
		check_all(&test);
		case_free(&test);
	}
}

/* Rows of one block that see keys far apart, most of which hold NaN. */
static void rows_of_a_block_may_see_keys_far_apart(void **state)
{
	struct attend_case test;

	(void)state;
	make(&test, 40, 1024, 1, 1, 16, 16);
	test.q_tokens.n = 0;
	test.problem.Sq = 1024;
	cpa_spans_append_range(&test.arena, &test.q_tokens, (struct cpa_range){3, 23});
	cpa_spans_append_range(&test.arena, &test.q_tokens, (struct cpa_range){1000, 1020});
	test.problem.rule.window = true;
	test.problem.rule.left = 5;
	test.problem.rule.right = 4;
	case_build(&test);
	check_all(&test);
	case_free(&test);
}

/* Tiles take tiny numbers as 0 and so does no result: in the first cases all values are tiny or
 * large, in the last so different that tiles cannot do them. */
static void values_of_any_size_are_right(void **state)
{
	static const int powers[][2] = {{-131, -128}, {-126, -120}, {-60, -50}, {0, 0}, {20, 30},
		{100, 110}, {-126, 100}};

	(void)state;
	for (size_t i = 0; i < sizeof powers / sizeof powers[0]; i++) {
		struct attend_case test;
		uint64_t seed = 51;

		make(&test, 33, 70, 1, 1, 8, 20);
		case_build(&test);
		for (int64_t n = 0; n < 70 * 20; n++)
			put(&test.call.v, n,
				ldexp((double)random_int(&seed, -8, 8) / 8,
					(int)random_int(&seed, powers[i][0], powers[i][1])));
		check_all(&test);
		case_free(&test);
	}
}

/* A key that was never written must not vanish. */
static void nan_in_a_key_or_value_shows(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct attend_case test;

		make(&test, 40, 100, 2, 2, 8, 8);
		case_build(&test);
		put(i ? &test.call.v : &test.call.k, 50 * 16 + 8, NAN);
		attend(devices[1], &test);
		for (int64_t t = 0; t < 40; t++) {
			assert_true(isnan(case_load(&test.call.o, t, 0, 1, 0)));
			assert_true(i || isnan(case_load(&test.call.lse, t, 0, 1, 0)));
			assert_false(isnan(case_load(&test.call.o, t, 0, 0, 0)));
		}
		case_free(&test);
	}
}

static void the_number_of_threads_changes_no_bit(void **state)
{
	(void)state;
#ifdef _OPENMP
	static const int64_t shapes[][4] = {{12, 3000, 2, 1}, {300, 600, 1, 1}};
	int before = omp_get_max_threads();

	for (int i = 0; i < 2; i++) {
		struct attend_case test;
		unsigned char *first;

		make(&test, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], 40, 40);
		case_build(&test);
		first = malloc(test.o.nbytes);
		for (int n = 1; n <= 3; n++) {
			omp_set_num_threads(n);
			attend(devices[1], &test);
			if (n == 1)
				memcpy(first, test.o.data, test.o.nbytes);
			assert_memory_equal(first, test.o.data, test.o.nbytes);
		}
		free(first);
		case_free(&test);
	}
	omp_set_num_threads(before);
#endif
}

/* Tiles add each 32 keys to what was there; this is more per key than blocks of 192 are. */
static void what_is_declared_is_of_the_kernels_in_use(void **state)
{
	struct cpa_problem problem = {.dtype = CPA_DTYPE_BF16};
	double bf16 = devices[1]->arithmetic(&problem).chain_key, fp16;

	(void)state;
	problem.dtype = CPA_DTYPE_FP16;
	fp16 = devices[1]->arithmetic(&problem).chain_key;
	assert_true(has_tiles() ? bf16 >= 1.0 / 32 && bf16 > fp16 : bf16 == fp16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(features_are_summed_even_and_odd_apart),
		cmocka_unit_test(several_blocks_of_keys_and_rows_are_right),
		cmocka_unit_test(rows_of_a_block_may_see_keys_far_apart),
		cmocka_unit_test(values_of_any_size_are_right),
		cmocka_unit_test(nan_in_a_key_or_value_shows),
		cmocka_unit_test(the_number_of_threads_changes_no_bit),
		cmocka_unit_test(what_is_declared_is_of_the_kernels_in_use),
	};

	return run_group(tests, sizeof tests / sizeof tests[0]);
}
