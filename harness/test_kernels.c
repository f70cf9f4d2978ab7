/*
 * test_kernels.c - operations alone: what is wrong is seen, and rates are of what was asked.  No
 * test looks at how long anything took.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "harness/kernel_times.h"
#include "harness/limits.h"
#include "harness/peak.h"

static struct cpa_device *device;
static const struct cpa_device_ops *real_ops;
static struct cpa_error error;

static struct cpa_problem problem_of(enum cpa_dtype dtype)
{
	return (struct cpa_problem){.B = 2,
		.Sq = 10,
		.Skv = 12,
		.Hq = 4,
		.Hkv = 2,
		.D = 8,
		.Dv = 8,
		.dtype = dtype,
		.scale = 0.5,
		.rule = {.causal = true, .offset = 2}};
}

static struct cpa_kernel_list list_of(enum cpa_dtype dtype)
{
	struct cpa_kernel_list list = {.device = device, .threads = 1, .repeat = 2};
	struct cpa_problem p = problem_of(dtype);

	for (int kind = 0; kind <= CPA_KERNEL_TRANSPOSE; kind++)
		assert_int_equal(
			cpa_kernel_list_add(&list, (enum cpa_kernel_kind)kind,
				kind ? CPA_KERNEL_LIMIT_COPY : CPA_KERNEL_LIMIT_FLOP, &p, &error),
			CPA_OK);
	return list;
}

static void every_kernel_is_right_in_every_dtype(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct cpa_kernel_list list = list_of((enum cpa_dtype)dtype);

		for (int i = 0; i < list.n; i++)
			if (list.at[i].verdict != CPA_VERDICT_RIGHT)
				fail_msg("%s: %s", cpa_kernel_name(list.at[i].kernel.kind),
					list.at[i].reason);
		cpa_kernel_list_fini(&list);
	}
}

/* Causal with offset 2: query t sees t + 3 keys, 3 + 4 + ... + 12 = 75 pairs; 2 items, 4 heads,
 * 32 flop. Bytes in bf16: q and o 640 numbers each, k and v 384, lse 80 of 4 bytes. */
static void flop_and_bytes_are_counted(void **state)
{
	struct cpa_kernel_list list = list_of(CPA_DTYPE_BF16);

	(void)state;
	assert_true(list.at[0].kernel.flop == 75.0 * 2 * 4 * 32);
	assert_true(list.at[0].kernel.bytes == 2 * (2 * 640 + 2 * 384) + 4 * 80);
	assert_true(list.at[1].kernel.bytes == 3 * 4 * (640 + 80)); /* partials are fp32 */
	assert_true(list.at[2].kernel.bytes == 2 * 2 * 640);
	assert_true(list.at[3].kernel.bytes == 2 * 2 * 640);
	assert_int_equal(cpa_kernel_list_run(&list, &error), CPA_OK);
	for (int i = 0; i < list.n; i++) {
		assert_int_equal(list.at[i].seconds.n, 2);
		assert_true(list.at[i].limit > 0 && list.at[i].seconds.min > 0);
	}
	assert_true(cpa_kernel_time_rate(&list.at[0]) ==
		list.at[0].kernel.flop / list.at[0].seconds.min);
	assert_true(cpa_kernel_time_rate(&list.at[1]) ==
		list.at[1].kernel.bytes / list.at[1].seconds.min);
	cpa_kernel_list_fini(&list);
}

static enum cpa_status late_attend(
	struct cpa_device *d, int queue, const struct cpa_attend *attend, struct cpa_error *e)
{
	struct cpa_problem later = *attend->problem;
	struct cpa_attend wrong = *attend;

	later.rule.offset--;
	wrong.problem = &later;
	return real_ops->attend(d, queue, &wrong, e);
}

static enum cpa_status no_merge(
	struct cpa_device *d, int queue, const struct cpa_merge *merge, struct cpa_error *e)
{
	(void)d;
	(void)queue;
	(void)merge;
	(void)e;
	return CPA_OK;
}

static enum cpa_status short_copy(
	struct cpa_device *d, int queue, const struct cpa_copy *copy, struct cpa_error *e)
{
	struct cpa_copy wrong = *copy;

	wrong.nheads--;
	return real_ops->copy(d, queue, &wrong, e);
}

static void a_wrong_kernel_is_wrong_and_not_timed(void **state)
{
	struct cpa_device_ops spoilt = *device->ops;
	struct cpa_kernel_list list;

	(void)state;
	real_ops = device->ops;
	spoilt.attend = late_attend;
	spoilt.merge = no_merge;
	spoilt.copy = short_copy;
	device->ops = &spoilt;
	list = list_of(CPA_DTYPE_FP32);
	for (int i = 0; i < list.n; i++) {
		assert_int_equal(list.at[i].verdict, CPA_VERDICT_WRONG);
		assert_true(list.at[i].reason[0]);
	}
	assert_int_equal(cpa_kernel_list_run(&list, &error), CPA_OK);
	device->ops = real_ops;
	for (int i = 0; i < list.n; i++)
		assert_int_equal(list.at[i].seconds.n, 0);
	cpa_kernel_list_fini(&list);
}

/* What is compared to a limit must find its rate by name. */
static void the_limit_of_every_dtype_has_a_rate(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		assert_true(cpa_peak_fma(cpa_limit_set((enum cpa_dtype)dtype), 1) > 0);
	assert_true(cpa_peak_fma("amx", 1) > 0 ? !cpa_cpu_lacks_tiles() : !!cpa_cpu_lacks_tiles());
	assert_true(cpa_peak_fma("no such set", 1) <= 0);
	if (cpa_cpu_bf16_set())
		assert_string_equal(cpa_limit_set(CPA_DTYPE_BF16), cpa_cpu_bf16_set());
	assert_string_equal(cpa_limit_set(CPA_DTYPE_FP16), cpa_limit_set(CPA_DTYPE_FP32));
}

static int make_device(void **state)
{
	(void)state;
	return cpa_device_create("cpu", &device, &error) != CPA_OK;
}

static int drop_device(void **state)
{
	(void)state;
	cpa_device_destroy(device);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kernel_is_right_in_every_dtype),
		cmocka_unit_test(flop_and_bytes_are_counted),
		cmocka_unit_test(a_wrong_kernel_is_wrong_and_not_timed),
		cmocka_unit_test(the_limit_of_every_dtype_has_a_rate),
	};

	return cmocka_run_group_tests(tests, make_device, drop_device);
}
