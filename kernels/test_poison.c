/*
 * test_poison.c - memory that was never written is NaN, and NaN in a key or value that a row sees must
 * show in o and in lse: an lse of -inf would be merged away unseen.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

enum { NQ = 5, NK = 40, D = 8 };

static const struct cpa_problem problem = {.B = 1, .Sq = NQ, .Skv = NK, .Hq = 1, .Hkv = 1, .D = D, .Dv = D,
	.dtype = CPA_DTYPE_FP32, .scale = 1, .lse = true};

static struct cpa_array array(void *data, enum cpa_dtype dtype, int64_t dim)
{
	return (struct cpa_array){.data = data, .dtype = dtype, .token = dim, .batch = dim, .head = dim};
}

/* Attends with keys [first, first + n) of k or v poisoned; returns the number of rows whose lse is NaN. */
static int poisoned_rows(const char *name, bool in_v, int first, int n, int *nan_o)
{
	float q[NQ * D], k[NK * D], v[NK * D];
	double o[NQ * D], lse[NQ];
	struct cpa_error error;
	struct cpa_device *device;
	struct cpa_span q_span = {0, NQ, NQ, 1}, k_span = {0, NK, NK, 1};
	struct cpa_attend attend = {.problem = &problem, .q = array(q, CPA_DTYPE_FP32, D),
		.k = array(k, CPA_DTYPE_FP32, D), .v = array(v, CPA_DTYPE_FP32, D),
		.o = array(o, CPA_DTYPE_FP64, D), .lse = array(lse, CPA_DTYPE_FP64, 1), .nq = NQ, .nk = NK,
		.batches = {0, 1}, .heads = {0, 1}, .q_tokens = {&q_span, 1, 1}, .k_tokens = {&k_span, 1, 1}};
	int nan_lse = 0;
	for (int i = 0; i < NQ * D; i++)
		q[i] = (float)(i % 7) / 7;
	for (int i = 0; i < NK * D; i++)
		k[i] = v[i] = (float)(i % 5) / 5;
	memset((in_v ? v : k) + first * D, 0xff, sizeof *k * (size_t)(n * D));
	assert_int_equal(cpa_device_create(name, &device, &error), CPA_OK);
	assert_int_equal(device->ops->attend(device, 0, &attend, &error), CPA_OK);
	cpa_device_destroy(device);
	*nan_o = 0;
	for (int t = 0; t < NQ; t++) {
		nan_lse += isnan(lse[t]);
		*nan_o += isnan(o[t * D]);
	}
	return nan_lse;
}

static void poison_in_a_key_is_in_o_and_lse(void **unused)
{
	(void)unused;
	for (int i = 0; cpa_device_name(i); i++)
		for (int n = 0; n <= NK; n += n < 2 ? 1 : NK - 2) {
			int nan_o, nan_lse = poisoned_rows(cpa_device_name(i), false, n == NK ? 0 : 17, n,
				&nan_o);
			assert_int_equal(nan_lse, n > 0 ? NQ : 0);
			assert_int_equal(nan_o, n > 0 ? NQ : 0);
		}
}

static void poison_in_a_value_is_in_o(void **unused)
{
	(void)unused;
	for (int i = 0; cpa_device_name(i); i++) {
		int nan_o;
		assert_int_equal(poisoned_rows(cpa_device_name(i), true, 39, 1, &nan_o), 0);
		assert_int_equal(nan_o, NQ);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poison_in_a_key_is_in_o_and_lse),
		cmocka_unit_test(poison_in_a_value_is_in_o),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
