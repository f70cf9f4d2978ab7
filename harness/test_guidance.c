/*
 * test_guidance.c - branches along the batch, from the plan to their combination: right on every
 * mesh, and what can go wrong with them is found.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/fault.h"
#include "harness/verify.h"

static const struct cpa_segment joint[] = {
	{.name = "text", .length = 4, .replicated = true}, {.name = "image", .length = 19}};

static struct cpa_problem problem_of(int64_t B, enum cpa_dtype dtype)
{
	return (struct cpa_problem){.B = B,
		.Sq = 23,
		.Skv = 23,
		.Hq = 4,
		.Hkv = 2,
		.D = 8,
		.Dv = 8,
		.dtype = dtype,
		.scale = 0.35,
		.rule = {.causal = true},
		.lse = true};
}

struct bench {
	struct cpa_problem problem;
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_device *device;
	struct cpa_verify_settings settings;
	struct cpa_verifier *verifier;
};

static void set_up(struct bench *b, struct cpa_problem problem, struct cpa_guidance guidance,
	int fault, uint64_t seed)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	struct cpa_error error;

	b->problem = problem;
	for (int i = 0; i < 3; i++) {
		b->data[i] = malloc(
			(size_t)(problem.B * cpa_tensor_ntokens(&problem, tensors[i])) *
			cpa_token_nbytes(&problem, tensors[i]));
		assert_non_null(b->data[i]);
		cpa_inputs_fill(&problem, CPA_FILL_NORMAL, 3, tensors[i], b->data[i]);
	}
	b->tensors = (struct cpa_tensors){&b->problem, b->data[0], b->data[1], b->data[2]};
	assert_int_equal(cpa_device_create("cpu", &b->device, &error), CPA_OK);
	b->settings = (struct cpa_verify_settings){.device = b->device,
		.interleavings = 2,
		.guidance = guidance,
		.fault = fault,
		.fault_seed = seed};
	assert_int_equal(
		cpa_verifier_create(&b->settings, &b->tensors, NULL, &b->verifier, &error),
		CPA_OK);
}

static void tear_down(struct bench *b)
{
	cpa_verifier_destroy(b->verifier);
	cpa_device_destroy(b->device);
	for (int i = 0; i < 3; i++)
		free(b->data[i]);
}

static struct cpa_config config_of(const struct bench *b, const int *mesh)
{
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->problem);

	config.batch_degree = mesh[0];
	config.ring_degree = mesh[1];
	config.ulysses_degree = mesh[2];
	config.guidance = b->settings.guidance.nbranches;
	return config;
}

/* The caller looks, and need not free. */
static struct cpa_result run(
	struct bench *b, struct cpa_config config, struct cpa_verify_trace *trace)
{
	struct cpa_result result;

	cpa_result_init(&result);
	cpa_verifier_run(b->verifier, &config, &result, trace);
	free(result.counts);
	result.counts = NULL;
	return result;
}

/* One group, groups of one branch and of several, branches in several groups, groups without
 * items. */
static const int meshes[][3] = {{1, 1, 1}, {1, 3, 1}, {1, 1, 2}, {2, 1, 1}, {2, 2, 2}, {3, 2, 1},
	{3, 1, 4}, {4, 2, 1}, {5, 1, 2}, {7, 2, 1}, {2, 25, 1}};
enum { NMESHES = sizeof meshes / sizeof *meshes };
static const struct cpa_guidance two = {2, 3.5, 0.0}, three = {3, 3.5, 1.5};

static void every_mesh_and_dtype_is_right(void **state)
{
	static const struct {
		int64_t B;
		const struct cpa_guidance *guidance;
	} cases[] = {{2, &two}, {4, &two}, {3, &three}, {6, &three}};

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			struct cpa_problem problem = problem_of(
				cases[i].B, (enum cpa_dtype)dtype);
			struct bench b;

			if (i % 2) {
				problem.segments = joint;
				problem.nsegments = 2;
			}
			set_up(&b, problem, *cases[i].guidance, -1, 0);
			for (int m = 0; m < NMESHES; m++) {
				struct cpa_result r = run(&b, config_of(&b, meshes[m]), NULL);

				if (r.verdict != CPA_VERDICT_RIGHT ||
					!(r.combined.ratio <= 1.0) || !(r.combined.bound > 0.0) ||
					!(r.combined.rel_l2 < 0.1))
					fail_msg("B %d mesh %d: %s", (int)problem.B, m, r.reason);
			}
			tear_down(&b);
		}
}

static void what_no_dtype_can_hold_is_unsupported(void **state)
{
	const struct cpa_guidance huge = {2, 1e6, 0.0}, beyond = {2, 1e308, 0.0};
	struct bench b;

	(void)state;
	set_up(&b, problem_of(2, CPA_DTYPE_FP16), huge, -1, 0);
	struct cpa_result r = run(&b, config_of(&b, meshes[3]), NULL);
	assert_int_equal(r.verdict, CPA_VERDICT_UNSUPPORTED);
	assert_non_null(strstr(r.reason, "smaller scales would work"));
	tear_down(&b);
	set_up(&b, problem_of(2, CPA_DTYPE_FP32), huge, -1, 0);
	assert_int_equal(run(&b, config_of(&b, meshes[3]), NULL).verdict, CPA_VERDICT_RIGHT);
	tear_down(&b);
	set_up(&b, problem_of(2, CPA_DTYPE_FP64), beyond, -1, 0);
	r = run(&b, config_of(&b, meshes[3]), NULL);
	assert_int_equal(r.verdict, CPA_VERDICT_UNSUPPORTED);
	tear_down(&b);
}

/* Rows of queries that see no key are 0 in every branch or in one. */
static void empty_rows_combine(void **state)
{
	static const int64_t lengths[] = {0, 23, 23, 0}, none[] = {0, 0, 0, 0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cpa_problem problem = problem_of(4, CPA_DTYPE_BF16);
		struct bench b;

		problem.rule.key_lengths = i ? none : lengths;
		set_up(&b, problem, two, -1, 0);
		for (int m = 0; m < NMESHES; m++) {
			struct cpa_result r = run(&b, config_of(&b, meshes[m]), NULL);

			if (r.verdict != CPA_VERDICT_RIGHT)
				fail_msg("mesh %d: %s", m, r.reason);
			assert_true(r.combined.ratio <= 1.0 &&
				(!i || r.combined.error == 0.0 || isnan(r.combined.error)));
		}
		tear_down(&b);
	}
}

/* ---- faults ---- */

static bool has_rows(const struct bench *b, const struct cpa_config *config, int rank)
{
	struct cpa_partition *part;
	struct cpa_arena arena;
	struct cpa_error error;

	assert_int_equal(cpa_partition_create(&b->problem, config, &part, &error), CPA_OK);
	cpa_arena_init(&arena);
	struct cpa_coords at = cpa_partition_coords(part, rank);
	bool has = cpa_partition_q_shard(part, &arena, at.r, at.u).n > 0;
	cpa_arena_fini(&arena);
	cpa_partition_destroy(part);
	return has;
}

/* o and lse are right: only the combination shows it, on the rank where it is, whichever holds
 * the copy. */
static void expect_found(const char *name, int64_t B, struct cpa_guidance guidance,
	const int *mesh, enum cpa_dtype dtype, uint64_t seed)
{
	struct bench b;
	struct cpa_verify_trace trace;
	char group[40];

	set_up(&b, problem_of(B, dtype), guidance, cpa_fault_find(name), seed);
	struct cpa_config config = config_of(&b, mesh);
	struct cpa_result r = run(&b, config, &trace);
	snprintf(group, sizeof group, "on batch group %d",
		trace.planted ? trace.planted_rank / (mesh[1] * mesh[2]) : -1);
	if (!trace.planted || r.verdict != CPA_VERDICT_WRONG || !(r.o.ratio <= 1.0) ||
		!(r.lse.ratio <= 1.0) || !(r.combined.ratio > 1.0) || !strstr(r.reason, group))
		fail_msg("%s in %dx%dx%d: %s; %s", name, mesh[0], mesh[1], mesh[2], r.reason,
			trace.plant);
	assert_true(has_rows(&b, &config, trace.planted_rank));
	tear_down(&b);
}

static void every_fault_of_guidance_is_found(void **state)
{
	static const char *const names[] = {
		"branches-swapped", "branch-repeated", "scale-sign", "branch-dropped"};

	(void)state;
	for (int m = 0; m < NMESHES; m++)
		for (int dtype = m % 2; dtype <= CPA_DTYPE_FP16; dtype += 2)
			for (int i = 0; i < 4; i++) {
				uint64_t seed = (uint64_t)(m + dtype);

				expect_found(names[i], 3, three, meshes[m], (enum cpa_dtype)dtype,
					seed);
				if (i < 3)
					expect_found(names[i], 4, two, meshes[m],
						(enum cpa_dtype)dtype, seed);
			}
}

/* Scales that make the fault no fault, and no branches at all. */
static void a_fault_that_changes_nothing_has_no_place(void **state)
{
	static const struct {
		const char *name;
		struct cpa_guidance guidance;
	} cases[] = {{"branches-swapped", {2, 0.5, 0.0}}, {"branch-repeated", {2, 0.0, 0.0}},
		{"scale-sign", {3, 0.0, 1.0}}, {"branch-dropped", {2, 3.5, 0.0}},
		{"branch-dropped", {3, 3.5, 0.0}}, {"branches-swapped", {0, 0.0, 0.0}}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct bench b;
		struct cpa_verify_trace trace;

		set_up(&b, problem_of(6, CPA_DTYPE_FP32), cases[i].guidance,
			cpa_fault_find(cases[i].name), 1);
		struct cpa_result r = run(&b, config_of(&b, meshes[4]), &trace);
		assert_false(trace.planted);
		assert_int_equal(r.verdict, CPA_VERDICT_UNSUPPORTED);
		tear_down(&b);
	}
}

/* ---- bytes ---- */

/* Batch 2 on 2 x 1 x 2 ranks: {0, 1} hold the negative branch, {2, 3} the positive one, and o
 * goes from 0 to 2 and back, and between 1 and 3.  12 tokens are 6 a rank, 4 heads of 8 numbers
 * of 4 bytes. */
static void the_gather_sends_each_ranks_rows_once_to_each_other_group(void **state)
{
	struct cpa_problem problem = problem_of(2, CPA_DTYPE_FP32);
	struct bench b;
	struct cpa_result with, without;
	struct cpa_config config;

	(void)state;
	problem.Sq = problem.Skv = 12;
	set_up(&b, problem, two, -1, 0);
	config = config_of(&b, (const int[]){2, 1, 2});
	cpa_result_init(&with);
	cpa_verifier_run(b.verifier, &config, &with, NULL);
	assert_int_equal(with.verdict, CPA_VERDICT_RIGHT);
	tear_down(&b);
	set_up(&b, problem, (struct cpa_guidance){0, 0, 0}, -1, 0);
	config.guidance = 0;
	cpa_result_init(&without);
	cpa_verifier_run(b.verifier, &config, &without, NULL);
	tear_down(&b);
	for (int rank = 0; rank < 4; rank++) {
		assert_int_equal(with.counts[rank].gathered_bytes, 6 * 4 * 8 * 4);
		assert_int_equal(with.counts[rank].bytes_sent - without.counts[rank].bytes_sent,
			6 * 4 * 8 * 4);
		assert_int_equal(with.counts[rank].messages - without.counts[rank].messages, 1);
		assert_int_equal(without.counts[rank].gathered_bytes, 0);
	}
	free(with.counts);
	free(without.counts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mesh_and_dtype_is_right),
		cmocka_unit_test(what_no_dtype_can_hold_is_unsupported),
		cmocka_unit_test(empty_rows_combine),
		cmocka_unit_test(every_fault_of_guidance_is_found),
		cmocka_unit_test(a_fault_that_changes_nothing_has_no_place),
		cmocka_unit_test(the_gather_sends_each_ranks_rows_once_to_each_other_group),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
