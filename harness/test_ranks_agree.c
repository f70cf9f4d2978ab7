/*
 * test_ranks_agree.c - ranks that tell each other their own lengths make the partition that
 * whoever knows all of them makes, in every order and mesh, with empty batch groups and many
 * segments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/random_case.h"
#include "harness/ranks.h"
#include "harness/test_random.h"

static void assert_same_shards(
	const struct cpa_partition *a, const struct cpa_partition *b, struct cpa_arena *arena)
{
	assert_true(a->W == b->W && a->P == b->P);
	assert_true(a->problem.Sq == b->problem.Sq && a->problem.Skv == b->problem.Skv);
	for (int r = 0; r < a->config.ring_degree; r++)
		for (int u = 0; u < a->config.ulysses_degree; u++) {
			struct cpa_spans q = cpa_partition_q_shard(a, arena, r, u);
			struct cpa_spans again = cpa_partition_q_shard(b, arena, r, u);
			assert_true(cpa_spans_equal(&q, &again));
			q = cpa_partition_kv_shard(a, arena, r, u);
			again = cpa_partition_kv_shard(b, arena, r, u);
			assert_true(cpa_spans_equal(&q, &again));
		}
	assert_int_equal(a->kv.ncuts, b->kv.ncuts);
	for (int j = 0; j < a->config.ring_degree; j++)
		assert_int_equal(a->reach[j], b->reach[j]);
}

static void expect_agreement(const struct cpa_problem *problem, const struct cpa_config *config)
{
	struct cpa_partition *known, *agreed = NULL;
	struct cpa_arena arena;
	struct cpa_error error = {""};
	if (cpa_partition_create(problem, config, &known, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_arena_init(&arena);
	if (cpa_ranks_agree(known, &arena, &agreed, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_same_shards(known, agreed, &arena);
	cpa_partition_destroy(agreed);
	cpa_partition_destroy(known);
	cpa_arena_fini(&arena);
}

static void random_problems_are_agreed_on(void **unused)
{
	static const struct cpa_config meshes[] = {
		{.variant = CPA_VARIANT_RING_ANYTHING,
			.batch_degree = 1,
			.ring_degree = 4,
			.ulysses_degree = 1,
			.rotate = CPA_ROTATE_DIRECT},
		{.variant = CPA_VARIANT_UNIFIED_ANYTHING,
			.batch_degree = 4,
			.ring_degree = 2,
			.ulysses_degree = 3},
		{.variant = CPA_VARIANT_ULYSSES_ANYTHING,
			.batch_degree = 2,
			.ring_degree = 1,
			.ulysses_degree = 5},
		{.variant = CPA_VARIANT_UNIFIED_ANYTHING,
			.batch_degree = 1,
			.ring_degree = 1,
			.ulysses_degree = 1},
	};
	uint64_t state = 21;
	int ngiven = 0, norders[CPA_ORDER_ZIGZAG_DOCUMENTS + 1] = {0};
	struct cpa_options options;
	char none[] = "--random 1";
	(void)unused;
	read_options(none, &options);
	for (int i = 0; i < 4800; i++) {
		struct cpa_case it;
		struct cpa_case_config made;
		struct cpa_options o;
		char problem[CPA_CASE_TEXT], line[CPA_CASE_TEXT + 20];
		cpa_case_draw_problem(&it, 2 + i % 7, &state);
		cpa_case_draw_config(&it, &options, &meshes[i % 4], &state);
		cpa_case_print(&it, problem);
		snprintf(line, sizeof line, "--problem %s", problem);
		read_options(line, &o);
		cpa_case_config(&it, &o.problem, false, &made);
		expect_agreement(&o.problem, &made.config);
		ngiven += made.config.nsizes >
			made.config.ring_degree * made.config.ulysses_degree;
		norders[made.config.order]++;
		cpa_options_fini(&o);
	}
	cpa_options_fini(&options);
	assert_true(ngiven > 10);
	for (int order = 0; order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++)
		assert_true(norders[order] > 50);
}

static const struct cpa_problem plain = {.B = 1,
	.Sq = 660,
	.Skv = 660,
	.Hq = 4,
	.Hkv = 4,
	.D = 8,
	.Dv = 8,
	.dtype = CPA_DTYPE_FP32,
	.scale = 1};

/* At the most that a record holds, and beyond: there every rank is given all sizes. */
static void many_segments_are_agreed_on_or_given(void **unused)
{
	enum { MOST = 2 * CPA_SIZES_MAX_SEGMENTS };
	static struct cpa_segment segments[MOST];
	(void)unused;
	for (int n = CPA_SIZES_MAX_SEGMENTS - 1; n <= MOST; n += n < 34 ? 1 : 10) {
		struct cpa_problem p = plain;
		struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &p);
		p.Sq = p.Skv = 0;
		for (int i = 0; i < n; i++) {
			snprintf(segments[i].name, sizeof segments[i].name, "s%d", i);
			p.Sq = p.Skv += segments[i].length = i % 7;
		}
		p.segments = segments;
		p.nsegments = n;
		config.ring_degree = config.ulysses_degree = 2;
		expect_agreement(&p, &config);
	}
}

static void a_world_too_large_for_a_transport_in_one_process_is_agreed_on(void **unused)
{
	static const int degrees[][2] = {{256, 1}, {257, 1}, {40, 8}};
	(void)unused;
	for (int i = 0; i < 3; i++) {
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &plain);
		config.ring_degree = degrees[i][0];
		config.ulysses_degree = degrees[i][1];
		expect_agreement(&plain, &config);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_problems_are_agreed_on),
		cmocka_unit_test(many_segments_are_agreed_on_or_given),
		cmocka_unit_test(a_world_too_large_for_a_transport_in_one_process_is_agreed_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
