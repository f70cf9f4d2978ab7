/*
 * test_attend_check.h - runs one ATTEND on both devices and holds each row to its bound.
 */
#ifndef CPA_TEST_ATTEND_CHECK_H
#define CPA_TEST_ATTEND_CHECK_H

#include "kernels/attend_unit.h"
#include "kernels/cpu.h"
#include "kernels/test_attend_case.h"

static struct cpa_device *devices[2];

static inline void attend(struct cpa_device *device, struct attend_case *test)
{
	struct cpa_error error;

	memset(test->o.data, 0xff, test->o.nbytes);
	memset(test->lse.data, 0xff, test->lse.nbytes);
	assert_int_equal(device->ops->attend(device, 0, &test->call, &error), CPA_OK);
}

/* The largest error of a row over its bound; NaN when anything is. */
static inline double check_row(const struct attend_case *test, struct cpa_arithmetic arithmetic,
	const struct exact_row *exact, int R, int64_t i, int64_t b, int64_t h)
{
	bool all = test->partials == CPA_PARTIALS_ALL;
	struct cpa_bound_run run = {&test->problem, arithmetic, test->partials,
		all ? CPA_DTYPE_FP32 : test->lse_dtype, R};
	double lse = case_load(&test->call.lse, i, b, h, 0), worst;
	struct cpa_bound bound;

	cpa_bound_row(&run, &exact->row, exact->o_norm, &bound);
	if (!exact->row.nvisible) {
		double sink = exact->row.lse; /* minus infinity where there is none */

		assert_true(lse == sink ||
			fabs(lse - sink) <= cpa_dtype_roundoff(test->lse_dtype) * fabs(sink));
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

/* Whether the set in use has that very kernel from AVX-512, with which it is tested. */
static inline bool is_of_avx512(enum cpa_dtype dtype)
{
#if CPA_CPU_X86
	const struct cpa_attend_kernels *kernels = cpa_cpu_kernels()->attend;

	return kernels != &cpa_attend_avx512 &&
		kernels->type[dtype] == cpa_attend_avx512.type[dtype];
#else
	(void)dtype;
	return false;
#endif
}

/* Both devices; "ref", which no set changes, with the first set only. */
static inline void check_all(struct attend_case *test)
{
	static const struct cpa_attend_kernels *first_set;
	int64_t nb = test->batches.end - test->batches.start,
		nh = test->heads.end - test->heads.start;
	int64_t nrows = test->call.nq * nb * nh;
	struct exact_row *exact;

	if (!first_set)
		first_set = cpa_cpu_kernels()->attend;
	if (is_of_avx512(test->problem.dtype)) {
		attend(devices[1], test);
		return;
	}
	exact = malloc((size_t)nrows * sizeof *exact);
	assert_non_null(exact);
	for (int64_t row = 0; row < nrows; row++)
		case_exact(test, row / nb / nh, row / nh % nb, row % nh, &exact[row]);
	for (int i = cpa_cpu_kernels()->attend == first_set ? 0 : 1; i < 2; i++) {
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

/* A list of n tokens: 0 in a row, 1 every third, 2 two runs, 3 pieces of a few
 * and a rest at far. */
static inline struct cpa_spans some_tokens(
	uint64_t *seed, struct cpa_arena *arena, int64_t n, int kind, int64_t far)
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
				arena, &list, (struct cpa_range){far, far + n % width});
	} else {
		cpa_spans_append_range(arena, &list, (struct cpa_range){start, start + n});
	}
	return list;
}

static inline void choose_partials(struct attend_case *test, int kind)
{
	enum cpa_dtype dtype = test->problem.dtype;
	bool half = dtype > CPA_DTYPE_FP32;

	test->partials = !half ? CPA_PARTIALS_FP32 : (enum cpa_partials)kind;
	test->o_dtype = test->partials == CPA_PARTIALS_FP32 && half ? CPA_DTYPE_FP32 : dtype;
	test->lse_dtype = test->partials == CPA_PARTIALS_ALL || !half ? dtype : CPA_DTYPE_FP32;
}

/* One head, contiguous tokens; tests set the inputs they need. */
static inline void make_plain(struct attend_case *test, enum cpa_dtype dtype, int64_t nq,
	int64_t nk, int64_t D, struct cpa_rule rule)
{
	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	test->problem =
		(struct cpa_problem){1, nq, nk, 1, 1, D, D, dtype, 1, rule, .lse = true};
	choose_partials(test, 0);
	test->batches.end = test->heads.end = 1;
	cpa_spans_append_range(&test->arena, &test->q_tokens, (struct cpa_range){0, nq});
	cpa_spans_append_range(&test->arena, &test->k_tokens, (struct cpa_range){0, nk});
	case_build(test);
}

/* o and lse of query rows over keys [start, end) of the call. */
static inline void attend_part(struct cpa_device *device, struct attend_case *test,
	int64_t start, int64_t end, struct cpa_array o, struct cpa_array lse)
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

/* Each test with the kernels of every instruction set that this machine has. */
static inline int run_group(const struct CMUnitTest *tests, size_t ntests)
{
	struct cpa_error error;
	int failed = 0;

	for (int i = 0; i < 2; i++)
		if (cpa_device_create(cpa_device_name(i), &devices[i], &error))
			return 1;
	/* The first is one of the last. */
	for (int set = CPA_CPU_GENERIC + 1; set < CPA_NCPUS; set++) {
		const char *name = cpa_cpu_name((enum cpa_cpu)set),
			   *lack = cpa_cpu_lacks((enum cpa_cpu)set);

		if (lack) {
			print_message("without %s: %s\n", name, lack);
			continue;
		}
		if (cpa_cpu_select(name, &error))
			return 1;
		failed += _cmocka_run_group_tests(name, tests, ntests, NULL, NULL);
	}
	for (int i = 0; i < 2; i++)
		cpa_device_destroy(devices[i]);
	return failed;
}

#endif
