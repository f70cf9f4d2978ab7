/*
 * test_attend_rules.c - ATTEND under every rule: windows, documents, key lengths, dense masks,
 * and partials that merge, with a sink, to the whole.
 */
#include "kernels/test_attend_check.h"

#include <float.h>

enum { S = 450 };

static const int64_t documents[] = {0, 7, 7, 40, 41, 45, 180, 300, 301, 440, S};
static const double sinks[] = {0.25, -3, 7.5, -40, 60, 1, -0.5, 2};

/* Rules are AND of what the bits of `parts` name. */
enum { CAUSAL = 1, WINDOW = 2, DOCUMENTS = 4, LENGTHS = 8 };

static void choose_rule(
	struct cpa_problem *problem, uint64_t *seed, int parts, int64_t *key_lengths)
{
	struct cpa_rule *rule = &problem->rule;

	if (parts & CAUSAL)
		rule->causal = true;
	if (parts & (CAUSAL | WINDOW))
		rule->offset = random_int(seed, -60, 60);
	if (parts & WINDOW) {
		static const int64_t sides[] = {-1, 0, 1, 5, 30, 100};

		rule->window = true;
		rule->left = sides[random_int(seed, 0, 5)];
		rule->right = sides[random_int(seed, 0, 5)];
	}
	if (parts & DOCUMENTS) {
		rule->documents = documents;
		rule->ndocuments = sizeof documents / sizeof documents[0] - 1;
	}
	for (int64_t b = 0; b < problem->B; b++)
		key_lengths[b] = random_int(seed, 0, 3) ? random_int(seed, 0, 150)
			: random_int(seed, 0, 1)        ? S
							: 0;
	if (parts & LENGTHS)
		rule->key_lengths = key_lengths;
}

/* Boxes that begin anywhere in the batch and the heads; made but for the mask. */
static void make_random(struct attend_case *test, uint64_t *seed, enum cpa_dtype dtype,
	int parts, int64_t *key_lengths)
{
	struct cpa_problem *p = &test->problem;
	int64_t g = random_int(seed, 1, 2), nq = random_int(seed, 1, 75);
	int64_t nk = random_int(seed, 1, 130);

	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	p->Hkv = random_int(seed, 1, 2);
	*p = (struct cpa_problem){.B = random_int(seed, 1, 3),
		.Sq = S,
		.Skv = S,
		.Hq = g * p->Hkv,
		.Hkv = p->Hkv,
		.D = random_int(seed, 1, 24),
		.Dv = random_int(seed, 1, 24),
		.dtype = dtype,
		.lse = true};
	p->scale = 1 / sqrt((double)p->D);
	choose_rule(p, seed, parts, key_lengths);
	choose_partials(test, (int)random_int(seed, 0, 2));
	test->layout = (int)random_int(seed, 0, 1);
	test->batches.start = random_int(seed, 0, p->B - 1);
	test->batches.end = random_int(seed, test->batches.start + 1, p->B);
	test->heads.start = random_int(seed, 0, p->Hq - 1);
	test->heads.end = random_int(seed, test->heads.start + 1, p->Hq);
	test->kv_first = random_int(seed, 0, test->heads.start / g);
	test->q_tokens =
		some_tokens(seed, &test->arena, nq, (int)random_int(seed, 0, 3), S - 5);
	test->k_tokens =
		some_tokens(seed, &test->arena, nk, (int)random_int(seed, 0, 3), S - 5);
}

static void every_rule_of_intervals_is_honoured(void **state)
{
	uint64_t seed = 21;
	int64_t key_lengths[3];

	(void)state;
	for (int i = 0; i < 192; i++) {
		struct attend_case test;

		make_random(&test, &seed, (enum cpa_dtype)(i / 16 % 4), i % 16, key_lengths);
		case_build(&test);
		check_all(&test);
		case_free(&test);
	}
}

/* Every set of axes, truth values and numbers, in every dtype; half of them with intervals. */
static void a_mask_of_any_shape_is_honoured(void **state)
{
	uint64_t seed = 22;
	int64_t key_lengths[3];

	(void)state;
	for (int i = 0; i < 16 * 4 * 3; i++) {
		enum cpa_dtype dtype = (enum cpa_dtype)(i / 16 % 4);
		struct attend_case test;

		make_random(&test, &seed, dtype, i % 2 ? (int)random_int(&seed, 0, 15) : 0,
			key_lengths);
		test.mask = (struct mask_shape){i & 1, i & 2, i & 4, i & 8,
			(enum mask_values)(i / 64),
			dtype == CPA_DTYPE_FP64 && random_int(&seed, 0, 1) ? CPA_DTYPE_FP64
									   : CPA_DTYPE_FP32};
		/* fp16 cannot hold an lse of -1e30. */
		if (test.mask.values == MASK_EXTREME && dtype == CPA_DTYPE_FP16)
			choose_partials(&test, 0);
		case_mask(&test);
		case_build(&test);
		check_all(&test);
		case_free(&test);
	}
}

/* A tile of queries from both ends of a sequence; all keys are there, most hold NaN. */
static void keys_between_what_rows_see_may_hold_anything(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		struct attend_case test = {.problem = {.B = 1,
						   .Sq = S,
						   .Skv = S,
						   .Hq = 1,
						   .Hkv = 1,
						   .D = 6,
						   .Dv = 7,
						   .dtype = (enum cpa_dtype)(i % 4),
						   .scale = 0.5,
						   .lse = true}};

		cpa_arena_init(&test.arena);
		choose_partials(&test, 0);
		test.problem.rule.window = true;
		test.problem.rule.left = i < 4 ? 0 : 3;
		test.problem.rule.right = i < 4 ? 0 : 2;
		test.batches.end = test.heads.end = 1;
		cpa_spans_append(&test.arena, &test.q_tokens, (struct cpa_span){430, 1, 3, 6});
		cpa_spans_append(&test.arena, &test.q_tokens, (struct cpa_span){2, 1, 50, 9});
		cpa_spans_append(&test.arena, &test.q_tokens, (struct cpa_span){0, 2, 8, 20});
		cpa_spans_append_range(&test.arena, &test.k_tokens, (struct cpa_range){0, S});
		case_build(&test);
		check_all(&test);
		case_free(&test);
	}
}

/* An array of n numbers as a mask over keys, and q . k = 0. */
static void make_biased(struct attend_case *test, enum cpa_dtype dtype, enum cpa_mask_kind kind,
	enum cpa_dtype bias, const void *data)
{
	make_plain(test, dtype, 3, 4, 1, (struct cpa_rule){.causal = false});
	test->problem.rule.mask =
		(struct cpa_mask){.kind = kind, .dtype = bias, .data = data, .key = 1};
	for (int64_t i = 0; i < 3; i++)
		cpa_store(dtype, test->call.q.data, i, 0);
	for (int64_t j = 0; j < 4; j++)
		cpa_store(dtype, test->call.v.data, j, (double)(1 << j));
}

/* Other systems mask with the least number of a dtype.  Here it is a number: keys that all have
 * it weigh the same, and next to any other key they weigh nothing. */
static void a_bias_is_a_number_unless_it_is_minus_infinity(void **state)
{
	static const struct {
		float bias[4];
		double o, lse; /* lse less the largest bias, where that is small */
	} cases[] = {
		{{-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX}, 15 / 4., 0},
		{{-FLT_MAX, -INFINITY, -FLT_MAX, -INFINITY}, 5 / 2., 0},
		{{-FLT_MAX, 0, -1e30f, -INFINITY}, 2, 0},
		{{1e4f, -1e30f, 1e4f, -INFINITY}, 5 / 2., 1e4 + 0.69314718055994531},
		{{-1e4f, -INFINITY, -1e4f, -1e4f}, 13 / 3., -1e4 + 1.0986122886681098},
		{{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 0, -INFINITY},
	};

	(void)state;
	for (size_t c = 0; c < sizeof cases / sizeof cases[0] * 4; c++) {
		struct attend_case test;
		double o = cases[c / 4].o, lse = cases[c / 4].lse;

		make_biased(&test, (enum cpa_dtype)(c % 4), CPA_MASK_BIAS, CPA_DTYPE_FP32,
			cases[c / 4].bias);
		for (int d = 0; d < 2; d++) {
			attend(devices[d], &test);
			for (int64_t i = 0; i < 3; i++) {
				double got = case_load(&test.call.lse, i, 0, 0, 0);

				assert_true(fabs(case_load(&test.call.o, i, 0, 0, 0) - o) <=
					4 * 0x1p-24 * o);
				if (c / 4 < 2) /* -FLT_MAX absorbs the log */
					assert_true(isfinite(got) &&
						fabs(got + FLT_MAX) <= 3 * 0x1p-24 * FLT_MAX);
				else
					assert_true(got == lse ||
						fabs(got - lse) <= 4 * 0x1p-24 * fabs(lse));
			}
		}
		test.problem.rule.mask.kind = CPA_MASK_NONE;
		case_free(&test);
	}
}

static void any_byte_but_0_lets_a_query_attend(void **state)
{
	static const unsigned char bytes[] = {0, 1, 255, 128};

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct attend_case test;

		make_biased(&test, (enum cpa_dtype)dtype, CPA_MASK_BOOL, CPA_DTYPE_FP32, bytes);
		for (int d = 0; d < 2; d++) {
			attend(devices[d], &test);
			assert_true(fabs(case_load(&test.call.o, 2, 0, 0, 0) - 14 / 3.) < 1e-5);
		}
		test.problem.rule.mask.kind = CPA_MASK_NONE;
		case_free(&test);
	}
}

/* o and lse beside those of the case, laid out alike. */
struct second {
	struct guarded o, lse;
	struct cpa_array o_array, lse_array;
};

static struct second second_of(const struct attend_case *test)
{
	struct second second = {guarded_alloc(test->o.nbytes, 0xff),
		guarded_alloc(test->lse.nbytes, 0xff), test->call.o, test->call.lse};

	second.o_array.data =
		second.o.data + ((unsigned char *)test->call.o.data - test->o.data);
	second.lse_array.data =
		second.lse.data + ((unsigned char *)test->call.lse.data - test->lse.data);
	return second;
}

/* Keys in nparts parts, each attended to and merged, and at last the sink. */
static void attend_parts(
	struct cpa_device *device, struct attend_case *test, int nparts, struct second *second)
{
	int64_t nk = test->call.nk;
	struct cpa_merge merge = {.o_a = test->call.o,
		.lse_a = test->call.lse,
		.o_b = second->o_array,
		.lse_b = second->lse_array,
		.ntokens = test->call.nq,
		.nbatches = test->batches.end - test->batches.start,
		.nheads = test->heads.end - test->heads.start,
		.dim = test->problem.Dv};
	struct cpa_error error;

	for (int i = 0; i < nparts; i++) {
		int64_t start = nk * i / nparts, end = nk * (i + 1) / nparts;

		attend_part(device, test, start, end, i ? second->o_array : test->call.o,
			i ? second->lse_array : test->call.lse);
		if (i)
			assert_int_equal(device->ops->merge(device, 0, &merge, &error), CPA_OK);
	}
	if (!test->problem.rule.sink)
		return;
	merge.sink = test->problem.rule.sink + test->heads.start;
	merge.o_b.data = merge.lse_b.data = NULL;
	assert_int_equal(device->ops->merge(device, 0, &merge, &error), CPA_OK);
}

static void check_parts(struct attend_case *test, int nparts)
{
	int64_t nb = test->batches.end - test->batches.start,
		nh = test->heads.end - test->heads.start;
	struct exact_row *exact = malloc(sizeof *exact);
	struct second second = second_of(test);

	for (int d = 0; d < 2; d++) {
		attend_parts(devices[d], test, nparts, &second);
		for (int64_t row = 0; row < test->call.nq * nb * nh; row++) {
			int64_t t = row / nb / nh, b = row / nh % nb, h = row % nh;
			double ratio;

			case_exact(test, t, b, h, exact);
			ratio = check_row(test, devices[d]->arithmetic(&test->problem), exact,
				nparts, t, b, h);
			if (!(ratio <= 1))
				fail_msg("%s row %d %d %d: error %g of its bound",
					devices[d]->ops->name, (int)t, (int)b, (int)h, ratio);
		}
	}
	guarded_free(&second.o);
	guarded_free(&second.lse);
	free(exact);
}

static void partials_under_any_rule_merge_to_the_whole(void **state)
{
	uint64_t seed = 23;
	int64_t key_lengths[3];

	(void)state;
	for (int i = 0; i < 128; i++) {
		struct attend_case test;
		int nparts = 1 + i / 2 % 4;

		make_random(&test, &seed, (enum cpa_dtype)(i % 4),
			(int)random_int(&seed, 0, 15), key_lengths);
		test.mask =
			(struct mask_shape){random_int(&seed, 0, 1), random_int(&seed, 0, 1),
				random_int(&seed, 0, 1), random_int(&seed, 0, 1),
				(enum mask_values)random_int(&seed, 0, 1), CPA_DTYPE_FP32};
		if (i % 3)
			case_mask(&test);
		case_build(&test);
		if (i & 1)
			test.problem.rule.sink = sinks;
		check_parts(&test, nparts);
		case_free(&test);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_of_intervals_is_honoured),
		cmocka_unit_test(a_mask_of_any_shape_is_honoured),
		cmocka_unit_test(keys_between_what_rows_see_may_hold_anything),
		cmocka_unit_test(a_bias_is_a_number_unless_it_is_minus_infinity),
		cmocka_unit_test(any_byte_but_0_lets_a_query_attend),
		cmocka_unit_test(partials_under_any_rule_merge_to_the_whole),
	};

	return run_group(tests, sizeof tests / sizeof tests[0]);
}
