/*
 * test_verify.c - whole configurations: right ones are right, refusals are refusals, a run that
 * is not as planned is wrong.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/ranks.h"
#include "harness/verify.h"

static const struct cpa_problem usual = {.B = 2,
	.Sq = 24,
	.Skv = 24,
	.Hq = 4,
	.Hkv = 2,
	.D = 8,
	.Dv = 48,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.35,
	.rule = {.causal = true},
	.lse = true};

struct bench {
	struct cpa_problem problem;
	struct cpa_tensors tensors;
	void *q, *k, *v;
	struct cpa_device *device;
	struct cpa_verifier *verifier;
};

static void *filled(const struct cpa_problem *p, char tensor)
{
	int64_t S = tensor == 'q' ? p->Sq : p->Skv, H = tensor == 'q' ? p->Hq : p->Hkv;
	int64_t D = tensor == 'v' ? p->Dv : p->D;
	void *data = malloc((size_t)(p->B * S * H * D) * cpa_dtype_nbytes(p->dtype));
	for (int64_t i = 0; i < p->B * S * H * D; i++)
		cpa_store(p->dtype, data, i,
			cpa_fill_value(CPA_FILL_NORMAL, p, 5, tensor, i / (S * H * D),
				i / (H * D) % S, i / D % H, i % D));
	return data;
}

static void set_up(
	struct bench *b, struct cpa_problem problem, const char *device, int interleavings)
{
	struct cpa_error error;
	memset(b, 0, sizeof *b);
	b->problem = problem;
	b->q = filled(&b->problem, 'q');
	b->k = filled(&b->problem, 'k');
	b->v = filled(&b->problem, 'v');
	b->tensors = (struct cpa_tensors){&b->problem, b->q, b->k, b->v};
	assert_int_equal(cpa_device_create(device, &b->device, &error), CPA_OK);
	struct cpa_verify_settings settings = {
		.device = b->device, .interleavings = interleavings, .fault = -1};
	assert_int_equal(
		cpa_verifier_create(&settings, &b->tensors, NULL, &b->verifier, &error),
		CPA_OK);
}

static void tear_down(struct bench *b)
{
	cpa_verifier_destroy(b->verifier);
	cpa_device_destroy(b->device);
	free(b->q);
	free(b->k);
	free(b->v);
}

static struct cpa_config config_of(
	const struct bench *b, enum cpa_variant variant, int N, int R, int U)
{
	struct cpa_config config = cpa_config_default(variant, &b->problem);
	config.batch_degree = N;
	config.ring_degree = R;
	config.ulysses_degree = U;
	if (b->device->fp64_partials)
		config.partial_dtype = CPA_DTYPE_FP64;
	return config;
}

/* The caller frees result.counts. */
static struct cpa_result run(struct bench *b, struct cpa_config config)
{
	struct cpa_result result;
	cpa_result_init(&result);
	cpa_verifier_run(b->verifier, &config, &result, NULL);
	return result;
}

static void expect_right(struct bench *b, struct cpa_config config)
{
	struct cpa_result result = run(b, config);
	if (result.verdict != CPA_VERDICT_RIGHT)
		fail_msg("%dx%dx%d: %s", config.batch_degree, config.ring_degree,
			config.ulysses_degree, result.reason);
	assert_string_equal(result.reason, "");
	assert_true(
		result.o.ratio <= 1.0 && result.lse.ratio <= 1.0 && result.probe_ratio <= 1.0);
	assert_true(result.o.soft_ratio <= 1.0);
	assert_true(result.seconds > 0.0);
	assert_non_null(result.counts);
	assert_true(result.counts[0].peak_bytes > 0);
	free(result.counts);
}

static void expect_all_right(struct cpa_problem problem, const char *device)
{
	static const struct {
		int N, R, U;
	} meshes[] = {
		{1, 1, 1}, {1, 5, 1}, {1, 1, 3}, {1, 3, 2}, {2, 2, 3}, {3, 2, 2}, {1, 26, 1}};
	struct bench b;
	set_up(&b, problem, device, 4);
	for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++)
		for (int partials = CPA_PARTIALS_FP32; partials <= CPA_PARTIALS_ALL; partials++)
			for (int rotate = CPA_ROTATE_P2P; rotate <= CPA_ROTATE_ALLGATHER;
				rotate++) {
				struct cpa_config config =
					config_of(&b, CPA_VARIANT_UNIFIED_ANYTHING, meshes[i].N,
						meshes[i].R, meshes[i].U);
				config.partials = (enum cpa_partials)partials;
				config.rotate = (enum cpa_rotate)rotate;
				expect_right(&b, config);
			}
	tear_down(&b);
}

static void every_dtype_device_and_mode_is_right(void **state)
{
	(void)state;
	for (int i = 0; cpa_device_name(i); i++)
		for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
			struct cpa_problem problem = usual;
			problem.dtype = (enum cpa_dtype)dtype;
			expect_all_right(problem, cpa_device_name(i));
		}
}

static void orders_directions_and_lengths_that_differ_are_right(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.Skv = 31;
	problem.rule.offset = -3; /* queries 0 to 2 see nothing */
	struct bench b;
	set_up(&b, problem, "cpu", 2);
	for (int order = CPA_ORDER_CONTIGUOUS; order <= CPA_ORDER_STRIPED; order++)
		for (int direction = -1; direction <= 1; direction += 2) {
			struct cpa_config config =
				config_of(&b, CPA_VARIANT_UNIFIED_ANYTHING, 1, 3, 2);
			config.order = (enum cpa_order)order;
			config.direction = direction;
			expect_right(&b, config);
		}
	tear_down(&b);
}

static void a_refusal_is_unsupported_and_says_why(void **state)
{
	(void)state;
	struct bench b;
	set_up(&b, usual, "cpu", 1);
	struct cpa_result result = run(&b, config_of(&b, CPA_VARIANT_RING, 1, 7, 1));
	assert_int_equal(result.verdict, CPA_VERDICT_UNSUPPORTED);
	assert_non_null(strstr(result.reason, "24"));
	assert_non_null(strstr(result.reason, "ring_anything"));
	assert_null(result.counts);
	assert_true(isnan(result.o.error) && isnan(result.probe_ratio));
	tear_down(&b);
}

static void without_lse_there_is_no_deviation_of_lse(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.lse = false;
	struct bench b;
	set_up(&b, problem, "cpu", 2);
	struct cpa_result result = run(&b, config_of(&b, CPA_VARIANT_UNIFIED, 2, 2, 2));
	assert_int_equal(result.verdict, CPA_VERDICT_RIGHT);
	assert_true(isnan(result.lse.ratio) && isnan(result.lse.rel_l2));
	free(result.counts);
	tear_down(&b);
}

static void all_memory_is_given_back(void **state)
{
	(void)state;
	struct bench b;
	set_up(&b, usual, "cpu", 2);
	size_t before = b.device->nbytes;
	expect_right(&b, config_of(&b, CPA_VARIANT_UNIFIED_ANYTHING, 2, 2, 2));
	assert_int_equal(b.device->nbytes, before);
	tear_down(&b);
}

/* ---- runs that are not as planned ---- */

static void counters_that_differ_from_the_plan_are_a_mismatch(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_error error;
	set_up(&b, usual, "cpu", 1);
	struct cpa_config config = config_of(&b, CPA_VARIANT_RING, 1, 2, 1);
	for (int kind = 0; kind < 3; kind++) {
		struct cpa_ranks ranks;
		struct cpa_inputs inputs = cpa_inputs_dense(&b.tensors);
		assert_int_equal(cpa_ranks_plan(&ranks, &b.problem, &config, &error), CPA_OK);
		ranks.counts[1].bytes_sent += kind == 0;
		ranks.counts[1].messages += kind == 1;
		ranks.counts[1].peak_bytes += kind == 2;
		enum cpa_status s = cpa_ranks_start(&ranks, b.device, NULL, NULL, &error);
		if (kind < 2) {
			assert_int_equal(s, CPA_OK);
			assert_int_equal(cpa_ranks_upload(&ranks, &inputs, &error), CPA_OK);
			s = cpa_ranks_run(&ranks, CPA_FAKE_EAGER, 1, &error);
		}
		assert_int_equal(s, CPA_MISMATCH);
		cpa_ranks_fini(&ranks);
	}
	tear_down(&b);
}

static void other_bits_in_another_interleaving_are_a_mismatch(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_error error;
	set_up(&b, usual, "cpu", 1);
	struct cpa_config config = config_of(&b, CPA_VARIANT_UNIFIED, 1, 2, 2);
	struct cpa_ranks ranks;
	struct cpa_inputs inputs = cpa_inputs_dense(&b.tensors);
	float *o = malloc((size_t)(2 * 24 * 4 * 48) * sizeof *o),
	      *lse = malloc((size_t)(2 * 24 * 4) * sizeof *lse);
	assert_int_equal(cpa_ranks_plan(&ranks, &b.problem, &config, &error), CPA_OK);
	assert_int_equal(cpa_ranks_start(&ranks, b.device, NULL, NULL, &error), CPA_OK);
	assert_int_equal(cpa_ranks_upload(&ranks, &inputs, &error), CPA_OK);
	assert_int_equal(cpa_ranks_run(&ranks, CPA_FAKE_RENDEZVOUS, 4, &error), CPA_OK);
	assert_int_equal(cpa_ranks_download(&ranks, o, lse, &error), CPA_OK);
	assert_int_equal(cpa_ranks_run(&ranks, CPA_FAKE_EAGER, 9, &error), CPA_OK);
	assert_int_equal(cpa_ranks_compare(&ranks, o, lse, &error), CPA_OK);
	lse[(24 + 13) * 4 + 1] = nextafterf(lse[(24 + 13) * 4 + 1], 100.0f);
	assert_int_equal(cpa_ranks_compare(&ranks, o, lse, &error), CPA_MISMATCH);
	assert_non_null(strstr(error.text, "lse of batch 1, token 13"));
	free(o);
	free(lse);
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

/* A device that allocates while it runs. */
static bool allocate(void *context, struct cpa_exec *exec, int op)
{
	struct bench *b = context;
	struct cpa_error error;
	void *memory;
	(void)exec, (void)op;
	assert_int_equal(b->device->ops->alloc(b->device, 64, &memory, &error), CPA_OK);
	b->device->ops->free(b->device, memory);
	return true;
}

static struct cpa_exec_hook allocating(void *context, int rank)
{
	(void)rank;
	return (struct cpa_exec_hook){allocate, NULL, context};
}

static void memory_taken_during_the_run_is_a_mismatch(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_error error;
	set_up(&b, usual, "cpu", 1);
	struct cpa_config config = config_of(&b, CPA_VARIANT_RING, 1, 2, 1);
	struct cpa_ranks ranks;
	struct cpa_inputs inputs = cpa_inputs_dense(&b.tensors);
	assert_int_equal(cpa_ranks_plan(&ranks, &b.problem, &config, &error), CPA_OK);
	assert_int_equal(cpa_ranks_start(&ranks, b.device, allocating, &b, &error), CPA_OK);
	assert_int_equal(cpa_ranks_upload(&ranks, &inputs, &error), CPA_OK);
	assert_int_equal(cpa_ranks_run(&ranks, CPA_FAKE_EAGER, 1, &error), CPA_MISMATCH);
	assert_non_null(strstr(error.text, "at its peak"));
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

/* A device whose n-th ATTEND is off by one unit in the last place of one lse. */
static enum cpa_status (*true_attend)(
	struct cpa_device *, int, const struct cpa_attend *, struct cpa_error *);
static int attends_left;

static enum cpa_status fickle_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	enum cpa_status s = true_attend(device, queue, attend, error);
	float *lse = attend->lse.data;
	if (--attends_left == 0)
		*lse = nextafterf(*lse, 100.0f);
	return s;
}

static void a_device_that_is_not_repeatable_is_wrong(void **state)
{
	(void)state;
	struct bench b;
	set_up(&b, usual, "cpu", 3);
	const struct cpa_device_ops *ops = b.device->ops;
	struct cpa_device_ops fickle = *ops;
	true_attend = ops->attend;
	fickle.attend = fickle_attend;
	b.device->ops = &fickle;
	struct cpa_config config = config_of(&b, CPA_VARIANT_RING, 1, 1, 1);
	struct cpa_result result;
	struct cpa_verify_trace trace;
	cpa_result_init(&result);
	attends_left = 4; /* one for the one-rank run, and the third interleaving */
	cpa_verifier_run(b.verifier, &config, &result, &trace);
	b.device->ops = ops;
	assert_int_equal(result.verdict, CPA_VERDICT_WRONG);
	assert_non_null(strstr(result.reason, "lse of batch 0, token 0"));
	assert_int_equal(trace.seed, 1);
	assert_int_equal(trace.interleavings, 3);
	free(result.counts);
	tear_down(&b);
}

static void the_worker_of_a_row_is_where_its_token_and_head_meet(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_error error;
	set_up(&b, usual, "cpu", 1);
	struct cpa_config config = config_of(&b, CPA_VARIANT_UNIFIED, 2, 2, 2);
	struct cpa_ranks ranks;
	assert_int_equal(cpa_ranks_plan(&ranks, &b.problem, &config, &error), CPA_OK);
	assert_int_equal(cpa_ranks_worker(&ranks, 0, 0, 0), 0);
	assert_int_equal(cpa_ranks_worker(&ranks, 0, 11, 2), 1);
	assert_int_equal(cpa_ranks_worker(&ranks, 0, 12, 1), 2);
	assert_int_equal(cpa_ranks_worker(&ranks, 1, 23, 3), 7);
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

/* 65504 is the end of fp16: an lse beyond it cannot be kept in the dtype, and no bound can cover that. */
static void an_lse_that_fp16_cannot_hold_is_unsupported_in_mode_all(void **unused)
{
	(void)unused;
	static const struct {
		enum cpa_dtype dtype;
		double scale;
		enum cpa_partials partials;
		enum cpa_verdict verdict;
	} cases[] = {
		{CPA_DTYPE_FP16, 1e5, CPA_PARTIALS_ALL, CPA_VERDICT_UNSUPPORTED},
		{CPA_DTYPE_FP16, 1e5, CPA_PARTIALS_BLOCK, CPA_VERDICT_RIGHT},
		{CPA_DTYPE_BF16, 1e5, CPA_PARTIALS_ALL, CPA_VERDICT_RIGHT},
		{CPA_DTYPE_FP16, 0.35, CPA_PARTIALS_ALL, CPA_VERDICT_RIGHT},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct bench b;
		struct cpa_problem problem = usual;
		struct cpa_result result;
		problem.dtype = cases[i].dtype;
		problem.scale = cases[i].scale;
		set_up(&b, problem, "cpu", 1);
		struct cpa_config config = config_of(&b, CPA_VARIANT_RING, 1, 3, 1);
		config.partials = cases[i].partials;
		cpa_result_init(&result);
		cpa_verifier_run(b.verifier, &config, &result, NULL);
		assert_int_equal(result.verdict, cases[i].verdict);
		if (result.verdict == CPA_VERDICT_UNSUPPORTED)
			assert_non_null(strstr(result.reason, "65504"));
		free(result.counts);
		tear_down(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_dtype_device_and_mode_is_right),
		cmocka_unit_test(orders_directions_and_lengths_that_differ_are_right),
		cmocka_unit_test(a_refusal_is_unsupported_and_says_why),
		cmocka_unit_test(an_lse_that_fp16_cannot_hold_is_unsupported_in_mode_all),
		cmocka_unit_test(without_lse_there_is_no_deviation_of_lse),
		cmocka_unit_test(all_memory_is_given_back),
		cmocka_unit_test(counters_that_differ_from_the_plan_are_a_mismatch),
		cmocka_unit_test(other_bits_in_another_interleaving_are_a_mismatch),
		cmocka_unit_test(memory_taken_during_the_run_is_a_mismatch),
		cmocka_unit_test(a_device_that_is_not_repeatable_is_wrong),
		cmocka_unit_test(the_worker_of_a_row_is_where_its_token_and_head_meet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
