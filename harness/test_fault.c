/*
 * test_fault.c - every planted fault is found, and the worst element is where it was planted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/fault.h"
#include "harness/verify.h"

static const struct cpa_problem usual = {.B = 2,
	.Sq = 29,
	.Skv = 29,
	.Hq = 6,
	.Hkv = 2,
	.D = 16,
	.Dv = 16,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.25,
	.lse = true};

/* A mesh, and what can go wrong in it. */
struct mesh {
	int N, R, U;
	enum cpa_rotate rotate;
	enum cpa_partials partials;
	bool has_hops; /* else the ring's faults have no place */
	bool has_exchange;
	bool has_two_heads;
};
static const struct mesh meshes[] = {
	{1, 1, 1, CPA_ROTATE_P2P, CPA_PARTIALS_FP32, false, false, true},
	{1, 2, 1, CPA_ROTATE_P2P, CPA_PARTIALS_FP32, true, true, true},
	{1, 4, 1, CPA_ROTATE_P2P, CPA_PARTIALS_BLOCK, true, true, true},
	{1, 4, 1, CPA_ROTATE_ALLGATHER, CPA_PARTIALS_FP32, true, true, true},
	{1, 1, 3, CPA_ROTATE_P2P, CPA_PARTIALS_FP32, false, true, true},
	{1, 1, 6, CPA_ROTATE_P2P, CPA_PARTIALS_FP32, false, true, false},
	{2, 3, 2, CPA_ROTATE_P2P, CPA_PARTIALS_FP32, true, true, true},
	{1, 3, 2, CPA_ROTATE_ALLGATHER, CPA_PARTIALS_BLOCK, true, true, true},
};
enum { NFAULTS = 12 }; /* the first ones; test_fault_classes.c has them all */
enum { NMESHES = sizeof meshes / sizeof meshes[0] };

static void *filled(const struct cpa_problem *p, char tensor)
{
	int64_t S = tensor == 'q' ? p->Sq : p->Skv, H = tensor == 'q' ? p->Hq : p->Hkv;
	int64_t D = tensor == 'v' ? p->Dv : p->D;
	void *data = malloc((size_t)(p->B * S * H * D) * cpa_dtype_nbytes(p->dtype));
	for (int64_t i = 0; i < p->B * S * H * D; i++)
		cpa_store(p->dtype, data, i,
			cpa_fill_value(CPA_FILL_NORMAL, p, 3, tensor, i / (S * H * D),
				i / (H * D) % S, i / D % H, i % D));
	return data;
}

struct bench {
	struct cpa_problem problem;
	struct cpa_tensors tensors;
	void *q, *k, *v;
	struct cpa_device *device;
};

static void set_up(struct bench *b, struct cpa_problem problem)
{
	struct cpa_error error;
	b->problem = problem;
	b->q = filled(&b->problem, 'q');
	b->k = filled(&b->problem, 'k');
	b->v = filled(&b->problem, 'v');
	b->tensors = (struct cpa_tensors){&b->problem, b->q, b->k, b->v};
	assert_int_equal(cpa_device_create("cpu", &b->device, &error), CPA_OK);
}

static void tear_down(struct bench *b)
{
	cpa_device_destroy(b->device);
	free(b->q);
	free(b->k);
	free(b->v);
}

static void run(struct bench *b, const struct mesh *mesh, int fault, uint64_t seed,
	struct cpa_result *result, struct cpa_verify_trace *trace)
{
	struct cpa_verify_settings settings = {
		.device = b->device, .interleavings = 2, .fault = fault, .fault_seed = seed};
	struct cpa_verifier *verifier;
	struct cpa_error error;
	struct cpa_config config =
		cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->problem);
	config.batch_degree = mesh->N;
	config.ring_degree = mesh->R;
	config.ulysses_degree = mesh->U;
	config.rotate = mesh->rotate;
	config.partials = mesh->partials;
	assert_int_equal(
		cpa_verifier_create(&settings, &b->tensors, NULL, &verifier, &error), CPA_OK);
	cpa_result_init(result);
	cpa_verifier_run(verifier, &config, result, trace);
	free(result->counts);
	cpa_verifier_destroy(verifier);
}

static bool has_place(const char *fault, const struct mesh *mesh)
{
	if (!strcmp(fault, "hop-skipped") || !strcmp(fault, "merge-lost") ||
		!strcmp(fault, "wrong-rank-kv"))
		return mesh->has_hops;
	if (!strcmp(fault, "stale-buffer"))
		return mesh->has_exchange;
	if (strstr(fault, "branch") || !strcmp(fault, "scale-sign")) /* test_guidance.c */
		return false;
	return strcmp(fault, "head-swapped") != 0 || mesh->has_two_heads;
}

static void expect_found(const char *name, const struct mesh *mesh,
	const struct cpa_result *result, const struct cpa_verify_trace *trace)
{
	bool o = result->o.ratio > 1.0, lse = result->lse.ratio > 1.0;
	if (result->verdict != CPA_VERDICT_WRONG || !(o || lse) || (o && !trace->o_at_plant) ||
		(lse && !trace->lse_at_plant))
		fail_msg("%s in %dx%dx%d: %s; %s", name, mesh->N, mesh->R, mesh->U,
			result->reason, trace->plant);
}

/* Every fault, mesh and some places, with the device otherwise right. */
static void find_all(struct cpa_problem problem, int nseeds)
{
	struct bench b;
	set_up(&b, problem);
	for (int m = 0; m < NMESHES; m++)
		for (int fault = 0; fault < NFAULTS; fault++)
			for (int seed = 0; seed < nseeds; seed++) {
				struct cpa_result result;
				struct cpa_verify_trace trace;
				const char *name = cpa_fault_name(fault);
				run(&b, &meshes[m], fault, (uint64_t)seed, &result, &trace);
				if (has_place(name, &meshes[m]) != trace.planted)
					fail_msg("%s in mesh %d: planted %d", name, m,
						trace.planted);
				if (trace.planted)
					expect_found(name, &meshes[m], &result, &trace);
				else
					assert_int_equal(result.verdict, CPA_VERDICT_UNSUPPORTED);
			}
	tear_down(&b);
}

static void every_fault_is_found_where_it_is(void **state)
{
	(void)state;
	find_all(usual, 5);
}

static void every_fault_is_found_in_causal_problems(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.rule.causal = true;
	find_all(problem, 5);
}

static void every_fault_is_found_in_16_bit(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.dtype = CPA_DTYPE_BF16;
	find_all(problem, 2);
	problem.dtype = CPA_DTYPE_FP16;
	find_all(problem, 2);
}

/* The block that the first hop reads is the input itself. */
static void every_fault_is_found_in_every_layout(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.layout = CPA_LAYOUT_BHSD;
	find_all(problem, 3);
	problem.layout = CPA_LAYOUT_FUSED;
	find_all(problem, 3);
}

/* Scores so that nearly all weight is on key 0: what other blocks lack hardly shows in the
 * data. */
static void a_lost_block_without_weight_is_found_by_the_probes(void **state)
{
	(void)state;
	struct cpa_problem problem = usual;
	problem.B = 1;
	struct bench b;
	set_up(&b, problem);
	for (int64_t i = 0; i < problem.Sq * problem.Hq * problem.D; i++)
		cpa_store(problem.dtype, b.q, i, i % problem.D == 0 ? 20.0 : 0.0);
	for (int64_t i = 0; i < problem.Skv * problem.Hkv * problem.D; i++)
		cpa_store(problem.dtype, b.k, i,
			i / (problem.Hkv * problem.D) == 0 ? 10.0 : -10.0);
	struct cpa_result result;
	struct cpa_verify_trace trace;
	/* Ring rank 0 holds key 0 and loses the block of rank 1. */
	uint64_t seed = 0;
	do
		run(&b, &meshes[1], cpa_fault_find("merge-lost"), seed++, &result, &trace);
	while (trace.planted_rank != 0 && seed < 20);
	assert_true(trace.planted);
	assert_int_equal(trace.planted_rank, 0);
	assert_true(result.o.ratio <= 1.0 && result.lse.ratio <= 1.0);
	assert_true(result.probe_ratio > 1.0);
	assert_int_equal(result.verdict, CPA_VERDICT_WRONG);
	assert_non_null(strstr(result.reason, "probe count"));
	tear_down(&b);
}

static void seeds_reach_different_ranks(void **state)
{
	(void)state;
	struct bench b;
	bool seen[4] = {false};
	set_up(&b, usual);
	for (uint64_t seed = 0; seed < 24; seed++) {
		struct cpa_result result;
		struct cpa_verify_trace trace;
		run(&b, &meshes[2], cpa_fault_find("merge-lost"), seed, &result, &trace);
		seen[trace.planted_rank] = true;
	}
	for (int r = 0; r < 4; r++)
		assert_true(seen[r]);
	tear_down(&b);
}

static void names_lead_to_faults(void **state)
{
	(void)state;
	int n = 0;
	for (; cpa_fault_name(n); n++) {
		assert_int_equal(cpa_fault_find(cpa_fault_name(n)), n);
		assert_true(strlen(cpa_fault_summary(n)) > 15);
		assert_true(strlen(cpa_fault_seen_in(n)) > 3);
	}
	assert_true(n > NFAULTS);
	assert_int_equal(cpa_fault_find("hop"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fault_is_found_where_it_is),
		cmocka_unit_test(every_fault_is_found_in_causal_problems),
		cmocka_unit_test(every_fault_is_found_in_16_bit),
		cmocka_unit_test(every_fault_is_found_in_every_layout),
		cmocka_unit_test(a_lost_block_without_weight_is_found_by_the_probes),
		cmocka_unit_test(seeds_reach_different_ranks),
		cmocka_unit_test(names_lead_to_faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
