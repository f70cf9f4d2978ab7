/*
 * test_plan_advice.c - bytes of a rotation beside those of a full ring, and which order a plan
 * advises.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/plan.h"

static int64_t moved_by(const struct cpa_partition *partition)
{
	struct cpa_error error;
	int64_t nbytes = 0;

	for (int rank = 0; rank < partition->W; rank++) {
		struct cpa_schedule *schedule;

		assert_int_equal(cpa_plan_create(partition, rank, &schedule, &error), CPA_OK);
		nbytes += cpa_plan_rotated_bytes(schedule);
		cpa_schedule_destroy(schedule);
	}
	return nbytes;
}

static struct cpa_partition *partition_of(const struct cpa_problem *problem, int N, int R,
	int U, enum cpa_rotate rotate, enum cpa_order order)
{
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, problem);
	struct cpa_partition *partition;
	struct cpa_error error;

	config.batch_degree = N;
	config.ring_degree = R;
	config.ulysses_degree = U;
	config.rotate = rotate;
	config.order = order;
	assert_int_equal(cpa_partition_create(problem, &config, &partition, &error), CPA_OK);
	return partition;
}

static const struct cpa_problem plain = {.B = 3,
	.Sq = 31,
	.Skv = 31,
	.Hq = 6,
	.Hkv = 3,
	.D = 8,
	.Dv = 4,
	.dtype = CPA_DTYPE_BF16,
	.scale = 0.5};

/* Two ways to the same number: the closed form, and the messages of the plan. */
static void without_a_rule_every_rotation_moves_a_full_ring(void **state)
{
	static const struct cpa_segment segments[] = {
		{.name = "text", .length = 6, .replicated = true},
		{.name = "image", .length = 25}};
	static const int meshes[][3] = {{1, 2, 1}, {1, 5, 1}, {2, 3, 2}, {4, 2, 4}, {1, 1, 3}};

	(void)state;
	for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++)
		for (int k = 0; k < 18; k++) {
			struct cpa_problem problem = plain;
			struct cpa_partition *partition;

			if (k >= 9) {
				problem.segments = segments;
				problem.nsegments = 2;
			}
			partition =
				partition_of(&problem, meshes[m][0], meshes[m][1], meshes[m][2],
					(enum cpa_rotate)(k % 3), (enum cpa_order)(k / 3 % 3));
			assert_int_equal(
				moved_by(partition), cpa_plan_full_ring_bytes(partition));
			cpa_partition_destroy(partition);
		}
}

/* 64k tokens on 8 ranks: the figures of the definition, in tokens sent by all together. */
static void a_window_moves_what_was_worked_out(void **state)
{
	static const struct {
		enum cpa_rotate rotate;
		int64_t ntokens;
	} cases[] = {
		{CPA_ROTATE_ALLGATHER, 448}, {CPA_ROTATE_P2P, 56}, {CPA_ROTATE_DIRECT, 28}};
	struct cpa_problem problem = plain;
	int64_t token = 3 * 3 * 2 * (8 + 4);

	(void)state;
	problem.Sq = problem.Skv = 65536;
	problem.rule.causal = problem.rule.window = true;
	problem.rule.left = 4096;
	problem.rule.right = -1;
	for (int i = 0; i < 3; i++) {
		struct cpa_partition *partition =
			partition_of(&problem, 1, 8, 1, cases[i].rotate, CPA_ORDER_CONTIGUOUS);

		assert_int_equal(cpa_plan_full_ring_bytes(partition), token * 448 * 1024);
		assert_int_equal(moved_by(partition), token * cases[i].ntokens * 1024);
		cpa_partition_destroy(partition);
	}
}

static const int64_t two_documents[] = {0, 11, 32};

/* The advice of a rule under an order and a rotation; "" where there is none. */
static const char *advice_of(const char *rule, enum cpa_variant variant, int R,
	enum cpa_order order, enum cpa_rotate rotate)
{
	static char advice[256];
	struct cpa_problem problem = plain;
	struct cpa_config config;

	problem.Sq = problem.Skv = 32;
	problem.rule.causal = strstr(rule, "causal") != NULL;
	problem.rule.window = strstr(rule, "window") != NULL;
	problem.rule.left = strstr(rule, "wide") ? 1000 : 5;
	problem.rule.right = strstr(rule, "right") ? -1 : 0;
	problem.rule.documents = strstr(rule, "documents") ? two_documents : NULL;
	problem.rule.ndocuments = problem.rule.documents ? 2 : 0;
	config = cpa_config_default(variant, &problem);
	config.ring_degree = R;
	config.ulysses_degree = R == 1 ? 2 : 1;
	config.order = order;
	config.rotate = rotate;
	advice[0] = '\0';
	if (!cpa_plan_advise(&problem, &config, advice, sizeof advice))
		return "";
	assert_string_not_equal(advice, "");
	return advice;
}

static void advice_is_given_only_where_another_choice_suits(void **state)
{
	enum {
		CONT = CPA_ORDER_CONTIGUOUS,
		ZIG = CPA_ORDER_ZIGZAG,
		STRIPE = CPA_ORDER_STRIPED,
		DOC = CPA_ORDER_ZIGZAG_DOCUMENTS,
		P2P = CPA_ROTATE_P2P,
		DIRECT = CPA_ROTATE_DIRECT
	};
	static const struct {
		const char *rule;
		int variant, R, order, rotate;
		const char *begins; /* NULL: none */
	} cases[] = {
		{"", CPA_VARIANT_RING, 4, ZIG, P2P, NULL},
		{"causal", CPA_VARIANT_RING, 4, CONT, P2P, "--order zigzag spreads"},
		{"causal", CPA_VARIANT_RING, 4, STRIPE, P2P, "--order zigzag spreads"},
		{"causal", CPA_VARIANT_RING, 4, ZIG, P2P, NULL},
		{"causal", CPA_VARIANT_RING_ANYTHING, 4, DOC, P2P, NULL},
		{"causal", CPA_VARIANT_UNIFIED, 1, CONT, P2P, NULL},
		{"causal", CPA_VARIANT_RING, 32, CONT, P2P,
			"--order zigzag --variant ring_anything"},
		{"wide window", CPA_VARIANT_RING, 4, CONT, P2P, "--order zigzag spreads"},
		{"right window", CPA_VARIANT_RING, 4, CONT, P2P, "--order zigzag spreads"},
		{"window", CPA_VARIANT_RING, 4, ZIG, DIRECT,
			"--order contiguous --rotate direct"},
		{"causal right window", CPA_VARIANT_RING, 4, CONT, P2P,
			"--order contiguous --rotate direct"},
		{"window", CPA_VARIANT_RING, 4, CONT, DIRECT, NULL},
		{"documents", CPA_VARIANT_RING_ANYTHING, 4, CONT, P2P,
			"--order zigzag_documents spreads"},
		{"causal documents", CPA_VARIANT_RING, 4, ZIG, DIRECT,
			"--order zigzag_documents --variant ring_anything"},
		{"documents", CPA_VARIANT_RING_ANYTHING, 4, DOC, P2P, NULL},
		{"documents", CPA_VARIANT_RING_ANYTHING, 4, CONT, DIRECT, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *advice = advice_of(cases[i].rule,
			(enum cpa_variant)cases[i].variant, cases[i].R,
			(enum cpa_order)cases[i].order, (enum cpa_rotate)cases[i].rotate);

		if (cases[i].begins
				? strncmp(advice, cases[i].begins, strlen(cases[i].begins)) != 0
				: advice[0] != '\0')
			fail_msg("case %zu, %s: '%s'", i, cases[i].rule, advice);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_rule_every_rotation_moves_a_full_ring),
		cmocka_unit_test(a_window_moves_what_was_worked_out),
		cmocka_unit_test(advice_is_given_only_where_another_choice_suits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
