/*
 * test_attend.c - ATTEND of both devices against long double, within the bounds they declare.
 */
#include "kernels/host.h"
#include "kernels/test_attend_check.h"

#include <float.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static void make_random(struct attend_case *test, uint64_t *seed, int i)
{
	struct cpa_problem *p = &test->problem;
	int64_t g = random_int(seed, 1, 3), most = i % 8 ? 70 : 260;
	int64_t nq = random_int(seed, 1, i % 16 ? 70 : 150), nk = random_int(seed, 1, most);

	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	p->Hkv = random_int(seed, 1, 3);
	*p = (struct cpa_problem){random_int(seed, 1, 3), 1 << 20, 1 << 20, g * p->Hkv, p->Hkv,
		random_int(seed, 1, 80), random_int(seed, 1, 80), (enum cpa_dtype)(i % 4), 0,
		{.causal = false}, .lse = true};
	p->scale = 1 / sqrt((double)p->D);
	p->rule.causal = random_int(seed, 0, 2) > 0;
	p->rule.offset = random_int(seed, -60, 60);
	test->fill = i % 5 == 0 ? CPA_FILL_EXTREME
		: i % 11 == 0   ? CPA_FILL_COUNT
				: CPA_FILL_NORMAL;
	choose_partials(test, (int)random_int(seed, 0, 2));
	test->layout = (int)random_int(seed, 0, 1);
	test->batches.start = random_int(seed, 0, p->B - 1);
	test->batches.end = random_int(seed, test->batches.start + 1, p->B);
	test->heads.start = random_int(seed, 0, p->Hq - 1);
	test->heads.end = random_int(seed, test->heads.start + 1, p->Hq);
	test->kv_first = random_int(seed, 0, test->heads.start / g);
	test->q_tokens = some_tokens(seed, &test->arena, nq, (int)random_int(seed, 0, 3), 2000);
	test->k_tokens = some_tokens(seed, &test->arena, nk, (int)random_int(seed, 0, 3), 2000);
	case_build(test);
}

static void any_box_is_within_the_declared_bound(void **state)
{
	uint64_t seed = 11;

	(void)state;
	for (int i = 0; i < 120; i++) {
		struct attend_case test;

		make_random(&test, &seed, i);
		check_all(&test);
		case_free(&test);
	}
}

static void fill_plain(const struct cpa_array *array, int64_t n, double value)
{
	for (int64_t i = 0; i < n; i++)
		cpa_store(array->dtype, array->data, i, value);
}

/* "Minus a big number" for a mask would drown such rows. */
static void scores_far_below_any_mask_constant_are_right(void **state)
{
	static const double sizes[] = {-6.5e4, -1e10, -3e38, 3e38, 1e4, -1e4};

	(void)state;
	for (int c = 0; c < 12; c++) {
		struct attend_case test;

		make_plain(&test, c % 2 ? CPA_DTYPE_FP32 : CPA_DTYPE_BF16, 20, 130, 1,
			(struct cpa_rule){.causal = true});
		fill_plain(&test.call.q, 20, fabs(sizes[c / 2]) / 2);
		for (int64_t j = 0; j < 130 && j < 20; j++)
			cpa_store(test.call.k.dtype, test.call.k.data, j,
				(sizes[c / 2] > 0 ? 2 : -2) * (1 - (double)(j % 3) / 16));
		check_all(&test);
		case_free(&test);
	}
}

/* The first query sees one key of the second list and the rest see two or more; none sees the
 * third. */
static void a_row_without_keys_is_zero_and_minus_infinity(void **state)
{
	struct attend_case test;

	(void)state;
	make_plain(&test, CPA_DTYPE_FP32, 40, 100, 8, (struct cpa_rule){.causal = true});
	test.problem.rule.offset = -20;
	check_all(&test);
	test.problem.rule.offset = -40;
	check_all(&test);
	for (int64_t i = 0; i < 40; i++)
		assert_true(case_load(&test.call.lse, i, 0, 0, 0) == -INFINITY);
	case_free(&test);
}

/* Weights 1 and p = exp(-x): o must be round(p) / (1 + p), the sum not being of rounded
 * weights. */
static void weights_of_16_bits_are_rounded_and_their_sum_is_not(void **state)
{
	(void)state;
	for (int i = 0; i < 400; i++) {
		enum cpa_dtype dtype = i % 2 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP16;
		struct attend_case test;
		double x, p, rounded, o, slack;

		make_plain(&test, dtype, 1, 2, 1, (struct cpa_rule){.causal = false});
		cpa_store(dtype, test.call.q.data, 0, 1);
		cpa_store(dtype, test.call.k.data, 0, 0);
		cpa_store(dtype, test.call.k.data, 1, -(double)i / 24);
		cpa_store(dtype, test.call.v.data, 0, 0);
		cpa_store(dtype, test.call.v.data, 1, 1);
		x = cpa_load(dtype, test.call.k.data, 1);
		p = exp(x);
		rounded = dtype == CPA_DTYPE_BF16
			? (double)cpa_bf16_to_float(cpa_bf16_from_double(p))
			: (double)cpa_fp16_to_float(cpa_fp16_from_double(p));
		attend(devices[1], &test);
		o = case_load(&test.call.o, 0, 0, 0, 0);
		slack = 16 * 0x1p-24 * rounded;
		assert_true(fabs(o - rounded / (1 + p)) <= slack);
		case_free(&test);
	}
}

static void try_two_partials(struct cpa_device *device, enum cpa_dtype dtype)
{
	struct exact_row *exact = malloc(sizeof *exact);
	struct attend_case test;
	struct guarded o, lse;
	struct cpa_error error;
	struct cpa_merge merge;

	make_plain(&test, dtype, 50, 171, 24, (struct cpa_rule){.causal = true, .offset = 60});
	o = guarded_alloc(test.o.nbytes, 0xff);
	lse = guarded_alloc(test.lse.nbytes, 0xff);
	merge = (struct cpa_merge){
		test.call.o, test.call.lse, test.call.o, test.call.lse, 50, 1, 1, 24, NULL};
	merge.o_b.data = o.data;
	merge.lse_b.data = lse.data;
	attend_part(device, &test, 0, 80, merge.o_a, merge.lse_a);
	attend_part(device, &test, 80, 171, merge.o_b, merge.lse_b);
	assert_int_equal(device->ops->merge(device, 0, &merge, &error), CPA_OK);
	for (int64_t i = 0; i < 50; i++) {
		case_exact(&test, i, 0, 0, exact);
		assert_true(check_row(&test, device->arithmetic(&test.problem), exact, 2, i, 0,
				    0) <= 1);
	}
	free(exact);
	guarded_free(&o);
	guarded_free(&lse);
	case_free(&test);
}

static void two_partials_merge_to_the_whole(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (int i = 0; i < 2; i++)
			try_two_partials(devices[i], (enum cpa_dtype)dtype);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
	(void)state;
#ifdef _OPENMP
	int before = omp_get_max_threads();

	for (int d = 0; d < 2; d++) {
		struct attend_case test;
		unsigned char *first;

		make_plain(
			&test, CPA_DTYPE_FP32, 300, 200, 40, (struct cpa_rule){.causal = true});
		first = malloc(test.o.nbytes + test.lse.nbytes);
		for (int n = 1; n <= 4; n++) {
			omp_set_num_threads(n);
			attend(devices[d], &test);
			if (n == 1) {
				memcpy(first, test.o.data, test.o.nbytes);
				memcpy(first + test.o.nbytes, test.lse.data, test.lse.nbytes);
			}
			assert_memory_equal(first, test.o.data, test.o.nbytes);
			assert_memory_equal(
				first + test.o.nbytes, test.lse.data, test.lse.nbytes);
		}
		free(first);
		case_free(&test);
	}
	omp_set_num_threads(before);
#endif
}

enum { BATCH = 16 };

/* 2^(4 x) of floats of these bits and the next BATCH - 1 in steps of `step`. */
static void check_exp2_float(uint32_t bits, uint32_t step)
{
	float x[BATCH], y[BATCH];

	for (uint32_t i = 0; i < BATCH; i++) {
		uint32_t at = bits + i * step < 0xff800000 ? bits + i * step : 0xff800000;

		memcpy(&x[i], &at, sizeof x[i]);
	}
	memcpy(y, x, sizeof y);
	cpa_cpu_exp2_float(y, BATCH);
	for (int i = 0; i < BATCH; i++) {
		double exact = exp2(4 * (double)x[i]);

		if (exact < 0x1p-126)
			assert_true(y[i] >= 0 && y[i] <= 0x1p-126f);
		else
			assert_true(fabs(y[i] / exact - 1) <= CPA_CPU_EXP_ERROR * 0x1p-24);
	}
}

/* Each 499th float; all of those about 0, 2^-k and the least results. */
static void exp_of_floats_is_as_near_as_declared(void **state)
{
	static const float about[] = {-0.0f, -0x1p-26f, -0.25f, -0.5f, -1, -2, -31.25f, -31.5f,
		-37.25f, -37.5f, -FLT_MIN, -100};

	(void)state;
	for (uint32_t bits = 0x80000000; bits < 0xff800000; bits += 499 * BATCH)
		check_exp2_float(bits, 499);
	for (size_t i = 0; i < sizeof about / sizeof about[0]; i++) {
		uint32_t bits;

		memcpy(&bits, &about[i], sizeof bits);
		bits -= bits > 0x80001000 ? 0x1000 : bits - 0x80000000;
		for (int n = 0; n < 0x2000; n += BATCH)
			check_exp2_float(bits + (uint32_t)n, 1);
	}
}

static void exp_of_doubles_is_as_near_as_declared(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int n = 0; n < 1000000; n += BATCH) {
		double x[BATCH], y[BATCH];

		for (int i = 0; i < BATCH; i++)
			x[i] = y[i] = -(double)(random_bits(&seed) >> 11) * 0x1p-53 *
				(i & 1 ? 255.5 : i & 2 ? 0.5 : 0x1p-40);
		cpa_cpu_exp2_double(y, BATCH);
		for (int i = 0; i < BATCH; i++)
			assert_true(fabsl(y[i] / exp2l(4 * (long double)x[i]) - 1) <=
				CPA_CPU_EXP_ERROR * 0x1p-53);
	}
}

/* A key that is hidden, or that is the greatest, must weigh exactly 0 and 1. */
static void exp_is_exact_at_both_ends(void **state)
{
	static const double ends[][2] = {{0, 1}, {-0.0, 1}, {-INFINITY, 0}, {-DBL_MAX, 0},
		{-FLT_MAX, 0}, {-1000, 0}};
	float x[BATCH] = {0};
	double y[BATCH] = {0};

	(void)state;
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
		x[0] = (float)ends[i][0];
		y[0] = ends[i][0];
		x[1] = NAN;
		y[1] = NAN;
		cpa_cpu_exp2_float(x, BATCH);
		cpa_cpu_exp2_double(y, BATCH);
		assert_true(x[0] == (float)ends[i][1]);
		assert_true(y[0] == ends[i][1]);
		assert_true(isnan(x[1]) && isnan(y[1]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_box_is_within_the_declared_bound),
		cmocka_unit_test(scores_far_below_any_mask_constant_are_right),
		cmocka_unit_test(a_row_without_keys_is_zero_and_minus_infinity),
		cmocka_unit_test(weights_of_16_bits_are_rounded_and_their_sum_is_not),
		cmocka_unit_test(two_partials_merge_to_the_whole),
		cmocka_unit_test(the_number_of_threads_changes_no_bit),
		cmocka_unit_test(exp_of_floats_is_as_near_as_declared),
		cmocka_unit_test(exp_of_doubles_is_as_near_as_declared),
		cmocka_unit_test(exp_is_exact_at_both_ends),
	};
	return run_group(tests, sizeof tests / sizeof tests[0]);
}
