/*
 * test_attend.c - ATTEND of both devices against long double, within the bounds they declare.
 */
#include "kernels/host.h"
#include "kernels/test_attend_case.h"

#include <float.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static struct cpa_device *devices[2];

static void attend(struct cpa_device *device, struct attend_case *test)
{
	struct cpa_error error;

	memset(test->o.data, 0xff, test->o.nbytes);
	memset(test->lse.data, 0xff, test->lse.nbytes);
	assert_int_equal(device->ops->attend(device, 0, &test->call, &error), CPA_OK);
}

/* The largest error of a row over its bound; NaN when anything is. */
static double check_row(const struct attend_case *test, struct cpa_arithmetic arithmetic,
	const struct exact_row *exact, int R, int64_t i, int64_t b, int64_t h)
{
	bool all = test->partials == CPA_PARTIALS_ALL;
	struct cpa_bound_run run = {&test->problem, arithmetic, test->partials,
		all ? CPA_DTYPE_FP32 : test->lse_dtype, R};
	double lse = case_load(&test->call.lse, i, b, h, 0), worst;
	struct cpa_bound bound;

	cpa_bound_row(&run, &exact->row, exact->o_norm, &bound);
	if (!exact->row.nvisible) {
		assert_true(lse == -INFINITY);
		for (int64_t d = 0; d < test->problem.Dv; d++)
			assert_true(case_load(&test->call.o, i, b, h, d) == 0);
		return 0;
	}
	worst = fabs(lse - exact->row.lse) / bound.lse;
	for (int64_t d = 0; d < test->problem.Dv; d++) {
		double error =
			fabs((double)(case_load(&test->call.o, i, b, h, d) - exact->o[d]));
		double most = bound.o_abs + bound.o_rel * fabs((double)exact->o[d]);

		if (!(error / most <= worst) && !isnan(worst))
			worst = error / most;
	}
	return worst;
}

static void check_all(struct attend_case *test)
{
	int64_t nb = test->batches.end - test->batches.start,
		nh = test->heads.end - test->heads.start;
	int64_t nrows = test->call.nq * nb * nh;
	struct exact_row *exact = malloc((size_t)nrows * sizeof *exact);

	for (int64_t row = 0; row < nrows; row++)
		case_exact(test, row / nb / nh, row / nh % nb, row % nh, &exact[row]);
	for (int i = 0; i < 2; i++) {
		attend(devices[i], test);
		for (int64_t row = 0; row < nrows; row++) {
			int64_t t = row / nb / nh, b = row / nh % nb, h = row % nh;
			double ratio = check_row(test, devices[i]->arithmetic(&test->problem),
				&exact[row], 1, t, b, h);

			if (!(ratio <= 1))
				fail_msg("%s row %d %d %d: error %g of its bound",
					devices[i]->ops->name, (int)t, (int)b, (int)h, ratio);
		}
		/* All in the boxes is written, as checked above, and nothing around them. */
		assert_true(case_nwritten(&test->o, test->o_dtype) <= nrows * test->problem.Dv);
		assert_true(case_nwritten(&test->lse, test->lse_dtype) <= nrows);
	}
	free(exact);
}

/* A list of n tokens: 0 in a row, 1 every third, 2 two runs, 3 pieces of a few. */
static struct cpa_spans some_tokens(
	uint64_t *seed, struct cpa_arena *arena, int64_t n, int kind)
{
	int64_t start = random_int(seed, 0, 20), width = random_int(seed, 1, 5),
		half = (n + 1) / 2;
	struct cpa_spans list = {NULL, 0, 0};

	if (kind == 1) {
		cpa_spans_append(arena, &list, (struct cpa_span){start, 1, 3, n});
	} else if (kind == 2) {
		cpa_spans_append_range(arena, &list, (struct cpa_range){start, start + half});
		if (n > half)
			cpa_spans_append_range(arena, &list,
				(struct cpa_range){start + 90 + half, start + 90 + n});
	} else if (kind == 3 && n >= width) {
		cpa_spans_append(
			arena, &list, (struct cpa_span){start, width, width + 2, n / width});
		if (n % width)
			cpa_spans_append_range(
				arena, &list, (struct cpa_range){2000, 2000 + n % width});
	} else {
		cpa_spans_append_range(arena, &list, (struct cpa_range){start, start + n});
	}
	return list;
}

static void choose_partials(struct attend_case *test, int kind)
{
	enum cpa_dtype dtype = test->problem.dtype;
	bool half = dtype > CPA_DTYPE_FP32;

	test->partials = !half ? CPA_PARTIALS_FP32 : (enum cpa_partials)kind;
	test->o_dtype = test->partials == CPA_PARTIALS_FP32 && half ? CPA_DTYPE_FP32 : dtype;
	test->lse_dtype = test->partials == CPA_PARTIALS_ALL || !half ? dtype : CPA_DTYPE_FP32;
}

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
		{false, 0}, false, true};
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
	test->q_tokens = some_tokens(seed, &test->arena, nq, (int)random_int(seed, 0, 3));
	test->k_tokens = some_tokens(seed, &test->arena, nk, (int)random_int(seed, 0, 3));
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

/* One head, contiguous tokens; tests set the inputs they need. */
static void make_plain(struct attend_case *test, enum cpa_dtype dtype, int64_t nq, int64_t nk,
	int64_t D, struct cpa_rule rule)
{
	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	test->problem =
		(struct cpa_problem){1, nq, nk, 1, 1, D, D, dtype, 1, rule, false, true};
	choose_partials(test, 0);
	test->batches.end = test->heads.end = 1;
	cpa_spans_append_range(&test->arena, &test->q_tokens, (struct cpa_range){0, nq});
	cpa_spans_append_range(&test->arena, &test->k_tokens, (struct cpa_range){0, nk});
	case_build(test);
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
			(struct cpa_rule){true, 0});
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
	make_plain(&test, CPA_DTYPE_FP32, 40, 100, 8, (struct cpa_rule){true, 0});
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

		make_plain(&test, dtype, 1, 2, 1, (struct cpa_rule){false, 0});
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

/* o and lse of query rows over keys [start, end) of the call. */
static void attend_part(struct cpa_device *device, struct attend_case *test, int64_t start,
	int64_t end, struct cpa_array o, struct cpa_array lse)
{
	struct cpa_attend part = test->call;
	struct cpa_error error;

	part.k.data = (char *)part.k.data +
		start * part.k.token * (int64_t)cpa_dtype_nbytes(part.k.dtype);
	part.v.data = (char *)part.v.data +
		start * part.v.token * (int64_t)cpa_dtype_nbytes(part.v.dtype);
	part.nk = end - start;
	part.k_tokens = cpa_spans_pick(&test->arena, &test->k_tokens, start, end - start, 1);
	part.o = o;
	part.lse = lse;
	assert_int_equal(device->ops->attend(device, 0, &part, &error), CPA_OK);
}

static void try_two_partials(struct cpa_device *device, enum cpa_dtype dtype)
{
	struct exact_row *exact = malloc(sizeof *exact);
	struct attend_case test;
	struct guarded o, lse;
	struct cpa_error error;
	struct cpa_merge merge;

	make_plain(&test, dtype, 50, 171, 24, (struct cpa_rule){true, 60});
	o = guarded_alloc(test.o.nbytes, 0xff);
	lse = guarded_alloc(test.lse.nbytes, 0xff);
	merge = (struct cpa_merge){
		test.call.o, test.call.lse, test.call.o, test.call.lse, 50, 1, 1, 24};
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

		make_plain(&test, CPA_DTYPE_FP32, 300, 200, 40, (struct cpa_rule){true, 0});
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

/* Each 499th float, and doubles at random; both near 0 and near the least result. */
static void exp_is_as_near_as_declared(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (uint32_t bits = 0x80000000; bits < 0xff800000; bits += 499) {
		float x, y;

		memcpy(&x, &bits, sizeof x);
		y = x;
		cpa_cpu_exp_float(&y, 1);
		if (x < -87.3365f)
			assert_true(y == 0);
		else if (x > -87.3363f)
			assert_true(fabs(y / exp(x) - 1) <= CPA_CPU_EXP_ERROR * 0x1p-24);
	}
	for (int i = 0; i < 1000000; i++) {
		double x = -(double)(random_bits(&seed) >> 11) * 0x1p-53 *
			(i & 1 ? 708.396 : 0.5),
		       y = x;

		cpa_cpu_exp_double(&y, 1);
		assert_true(fabsl(y / expl(x) - 1) <= CPA_CPU_EXP_ERROR * 0x1p-53);
	}
	for (int i = 0; i < 4; i++) {
		double x = (const double[]){0, -INFINITY, -DBL_MAX, -709}[i], y = x;
		float z = (float)x;

		cpa_cpu_exp_double(&y, 1);
		cpa_cpu_exp_float(&z, 1);
		assert_true(y == (i ? 0 : 1));
		assert_true(z == (i ? 0 : 1));
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
		cmocka_unit_test(exp_is_as_near_as_declared),
	};
	struct cpa_error error;
	int failed;

	for (int i = 0; i < 2; i++)
		if (cpa_device_create(cpa_device_name(i), &devices[i], &error))
			return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	for (int i = 0; i < 2; i++)
		cpa_device_destroy(devices[i]);
	return failed;
}
