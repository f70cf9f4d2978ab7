/*
 * test_problem_space.c - faults that have been seen in lengths, masks, order, layout, heads and
 * joint sequences, planted one at a time, and each is found: a device does with the arrays and
 * ids of an ATTEND what the faulty system did with them.  The class is named as in the
 * dictionary of faults. Every case runs without its fault too, and is right then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/options.h"
#include "harness/test_spoil_cases.h"
#include "harness/verify.h"

struct fault_case {
	const char *class, *what, *problem;
	int R, U;
	enum cpa_order order;
	void (*spoil)(struct call *);
	const char *says; /* the first thing that must be wrong; NULL: o */
};

#define PLAIN "B=2,S=29,Hq=4,Hkv=2,D=8,dtype=fp32"
#define CAUSAL "B=2,S=32,Hq=4,Hkv=2,D=8,dtype=fp32,causal"
#define JOINT "B=2,S=30,Hq=4,Hkv=2,D=8,dtype=fp32,segments=text:6:replicated/image:24:split"
#define CROSS "B=2,Sq=24,Skv=10,Hq=4,Hkv=2,D=8,dtype=fp32,segments_kv=text:10:replicated"
#define MASK13 "B=1,S=13,H=3,D=8,dtype=fp32,mask=bool:1x1x1xK:5"
#define WINDOW CAUSAL ",window=5:0"

static const struct fault_case cases[] = {
	{"B01", "zero pad key counted", PLAIN, 4, 1, 0, spoil_zero_pad, NULL},
	{"B01", "zero pad key counted", PLAIN, 2, 2, 0, spoil_zero_pad, NULL},
	{"B02", "stale key in the pad", PLAIN, 4, 1, 0, spoil_stale_pad, NULL},
	{"B03", "inner pads cut at the tail", "B=1,S=13,H=3,D=8", 1, 3, 0, spoil_inner_pads,
		NULL},
	{"B03", "mask shifted by inner pads", MASK13, 1, 3, 0, spoil_shifted_mask, NULL},
	{"B03", "mask shifted by inner pads", MASK13, 3, 1, 0, spoil_shifted_mask, NULL},
	{"B04", "length floored", "B=2,S=30,H=4,D=8", 4, 1, 0, spoil_floored, NULL},
	{"B05", "two rules for sizes", "S=6,H=4,D=8", 1, 4, 0, spoil_two_rules, NULL},
	{"B06", "pads left in", "S=12,H=4,D=8,documents=0:5:12", 1, 4, 0, spoil_pads_left,
		NULL},
	{"B07", "prefix less the pad", "Sq=14,Skv=30,H=4,D=8,causal,offset=16", 4, 1, 0,
		spoil_padded_prefix, NULL},
	{"C01", "causal by local ids", CAUSAL, 4, 1, 0, spoil_local_ids, NULL},
	{"C02", "other blocks not masked", CAUSAL, 4, 1, CPA_ORDER_STRIPED,
		spoil_unmasked_others, NULL},
	{"C03", "own block not masked", CAUSAL, 4, 1, 0, spoil_unmasked_own, NULL},
	{"C04", "zigzag data, natural mask", CAUSAL, 4, 1, CPA_ORDER_ZIGZAG, spoil_natural_ids,
		NULL},
	{"C05", "rows not put back", PLAIN, 4, 1, 0, spoil_reversed_rows, NULL},
	{"C06", "diagonal one up", CAUSAL, 4, 1, CPA_ORDER_STRIPED, spoil_offset_up, NULL},
	{"C06", "diagonal one down", CAUSAL, 4, 1, CPA_ORDER_STRIPED, spoil_offset_down, NULL},
	{"C07", "offset lost", "Sq=16,Skv=32,H=4,D=8,causal,offset=16", 4, 1, 0,
		spoil_offset_lost, NULL},
	{"C08", "window ignored", WINDOW, 4, 1, 0, spoil_no_window, NULL},
	{"C08", "window by local ids", WINDOW, 4, 1, 0, spoil_local_ids, NULL},
	{"C08", "window cut at the hop", WINDOW, 4, 1, 0, spoil_hidden_others, NULL},
	{"C09", "documents ignored in other blocks", CAUSAL ",documents=0:13:17:32", 4, 1, 0,
		spoil_no_documents, NULL},
	{"C10", "mask dropped", PLAIN ",mask=bool:Bx1xQxK:3", 2, 2, 0, spoil_no_mask, NULL},
	{"C10", "bias dropped", PLAIN ",mask=bias:1x1xQxK:3", 4, 1, 0, spoil_no_mask, NULL},
	{"C10", "key lengths dropped", PLAIN ",key_lengths=20:11", 2, 2, 0, spoil_no_lengths,
		NULL},
	{"C10", "causal dropped", CAUSAL, 1, 2, 0, spoil_not_causal, NULL},
	{"C11", "mask heads not cut", PLAIN ",mask=bool:1xHx1xK:4", 1, 2, 0,
		spoil_local_mask_heads, NULL},
	{"C12", "scale lost", PLAIN ",scale=0.7", 4, 1, 0, spoil_scale_lost, NULL},
	{"C12", "scale applied twice", PLAIN ",scale=0.7", 2, 2, 0, spoil_scale_twice, NULL},
	{"D01", "heads folded in another order", PLAIN, 1, 2, 0, spoil_reversed_heads, NULL},
	{"D02", "rows folded in another order", PLAIN, 1, 4, 0, spoil_reversed_rows, NULL},
	{"D03", "batch items mixed", PLAIN, 2, 2, 0, spoil_mixed_batch, NULL},
	{"D04", "batch before tokens", PLAIN, 1, 4, 0, spoil_strides_of_q, NULL},
	{"D04", "tokens before batch", PLAIN, 4, 1, 0, spoil_strides_of_q, NULL},
	{"D05", "heads of another group", "S=29,H=8,D=8", 2, 2, 0, spoil_other_group, NULL},
	{"D06", "key heads tiled", "S=29,Hq=8,Hkv=4,D=8", 1, 2, 0, spoil_tiled_heads, NULL},
	{"D06", "key heads tiled", "S=29,Hq=8,Hkv=4,D=8", 4, 1, 0, spoil_tiled_heads, NULL},
	{"D07", "ratio broken by a pad", "S=29,Hq=6,Hkv=3,D=8", 1, 2, 0, spoil_padded_ratio,
		NULL},
	{"D09", "strides of v ignored", PLAIN, 4, 1, 0, spoil_strides_of_v, NULL},
	{"D10", "offsets wrap", PLAIN, 2, 1, 0, spoil_wrapped_offsets, NULL},
	{"D10", "offsets wrap", PLAIN, 1, 2, 0, spoil_wrapped_offsets, NULL},
	{"D11", "gathered along the batch axis", PLAIN, 2, 2, 0, spoil_gathered_along_batch,
		NULL},
	{"E01", "text counted twice", JOINT, 4, 1, 0, spoil_text_twice, NULL},
	{"E01", "text counted twice", JOINT, 1, 4, 0, spoil_text_twice, NULL},
	{"E01", "text counted twice", JOINT, 2, 2, 0, spoil_text_twice, NULL},
	{"E01", "text not counted", JOINT, 4, 1, 0, spoil_text_hidden, NULL},
	{"E02", "front text joined at the rear", JOINT ",causal", 4, 1, 0, spoil_text_at_rear,
		NULL},
	{"E03", "no communication", PLAIN, 4, 1, 0, spoil_hidden_others, NULL},
	{"E04", "ring in half groups", "B=2,S=32,H=4,D=8", 4, 1, 0, spoil_half_groups, NULL},
	{"E05", "copies exchanged as shards", CROSS, 4, 1, 0, spoil_text_twice, "lse at"},
	{"E05", "copies exchanged as shards", CROSS, 2, 2, 0, spoil_text_twice, "lse at"},
	{"E06", "keys rotated by local positions", "S=32,H=4,D=8", 4, 1, 0,
		spoil_local_positions, NULL},
	{"E06", "zigzag frequencies on contiguous shards", "S=32,H=4,D=8", 4, 1, 0,
		spoil_zigzag_positions, NULL},
	{"E07", "shards split twice", PLAIN, 4, 1, 0, spoil_split_twice, NULL},
	{"E08", "other text on one rank", JOINT, 4, 1, 0, spoil_text_of_last, NULL},
};
enum { NCASES = sizeof cases / sizeof cases[0] };

/* ---- one call ---- */

struct bench {
	struct cpa_options options;
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_device *device;
	struct cpa_verifier *verifier;
};

static void read_problem(struct bench *b, const char *text)
{
	char problem[512], *argv[] = {"cpattn", "verify", "--problem", problem};
	struct cpa_error error;
	snprintf(problem, sizeof problem, "%s", text);
	if (cpa_options_parse(4, argv, &b->options, &error) != CPA_OK)
		fail_msg("%s: %s", text, error.text);
}

static void start(struct bench *b)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	const struct cpa_problem *p = &b->options.problem;
	struct cpa_error error;
	for (int i = 0; i < 3; i++) {
		b->data[i] = malloc((size_t)(p->B * cpa_tensor_ntokens(p, tensors[i])) *
				    cpa_token_nbytes(p, tensors[i]));
		cpa_inputs_fill(p, CPA_FILL_NORMAL, 17, tensors[i], b->data[i]);
	}
	b->tensors = (struct cpa_tensors){p, b->data[0], b->data[1], b->data[2]};
	b->device = spoilt_device();
	struct cpa_verify_settings settings = {
		.device = b->device, .interleavings = 2, .fault = -1};
	assert_int_equal(
		cpa_verifier_create(&settings, &b->tensors, NULL, &b->verifier, &error),
		CPA_OK);
}

static void set_up(struct bench *b, const char *text)
{
	read_problem(b, text);
	start(b);
}

static void tear_down(struct bench *b)
{
	cpa_verifier_destroy(b->verifier);
	cpa_device_destroy(b->device);
	for (int i = 0; i < 3; i++)
		free(b->data[i]);
	cpa_options_fini(&b->options);
}

static struct cpa_result run(
	struct bench *b, const struct cpa_config *config, void (*spoil)(struct call *))
{
	struct cpa_result result;
	cpa_result_init(&result);
	plant_spoil(spoil);
	cpa_verifier_run(b->verifier, config, &result, NULL);
	plant_spoil(NULL);
	free(result.counts);
	result.counts = NULL;
	return result;
}

static void expect_found(struct bench *b, const struct fault_case *c, enum cpa_rotate rotate)
{
	const char *says = c->says ? c->says : "o at";
	struct cpa_config config =
		cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->options.problem);
	config.ring_degree = c->R;
	config.ulysses_degree = c->U;
	config.order = c->order;
	config.rotate = rotate;
	struct cpa_result right = run(b, &config, NULL), wrong = run(b, &config, c->spoil);
	if (right.verdict != CPA_VERDICT_RIGHT)
		fail_msg("%s without %s, %s: %s", c->problem, c->class, cpa_rotate_name(rotate),
			right.reason);
	if (wrong.verdict != CPA_VERDICT_WRONG ||
		strncmp(wrong.reason, says, strlen(says)) != 0)
		fail_msg("%s %s, %s, %dx%d %s: expected \"%s...\", got %s", c->class, c->what,
			c->problem, c->R, c->U, cpa_rotate_name(rotate), says,
			wrong.verdict == CPA_VERDICT_RIGHT ? "right" : wrong.reason);
}

static void every_planted_fault_is_found_and_only_that(void **state)
{
	(void)state;
	for (int i = 0; i < NCASES; i++) {
		struct bench b;
		set_up(&b, cases[i].problem);
		for (int rotate = 0; rotate < (cases[i].R > 1 ? 3 : 1); rotate++)
			expect_found(&b, &cases[i], (enum cpa_rotate)rotate);
		tear_down(&b);
	}
}

/* ---- the most negative number as a mask ---- */

/* Its size says nothing about the keys that it spares: their faults show as without it. */
static void a_mask_of_the_most_negative_number_hides_no_fault(void **state)
{
	const struct fault_case faults[] = {
		{"D09", "strides of v ignored", "", 4, 1, 0, spoil_strides_of_v, NULL},
		{"E03", "no communication", "", 2, 2, 0, spoil_hidden_others, NULL},
	};
	struct bench b;
	(void)state;
	read_problem(&b, "B=2,S=29,Hq=4,Hkv=2,D=8,dtype=fp32,mask=bias:1x1x1xK:3");
	float *bias = (float *)(uintptr_t)b.options.problem.rule.mask.data;
	for (int64_t j = 0; j < 29; j++)
		bias[j] = j % 3 == 1 ? -0x1.fffffep127f : 0;
	start(&b);
	for (int i = 0; i < 2; i++)
		for (int rotate = 0; rotate < 3; rotate++)
			expect_found(&b, &faults[i], (enum cpa_rotate)rotate);
	tear_down(&b);
}

/* ---- a key mask under uneven splits ---- */

static void a_key_mask_under_uneven_splits_is_right(void **state)
{
	static const int64_t sizes[][4] = {{5, 4, 4, 0}, {0, 1, 12, 0}, {4, 5, 0, 4}};
	static const int meshes[][2] = {{4, 1}, {1, 4}, {2, 2}};
	struct bench b;
	(void)state;
	set_up(&b, "B=2,S=13,Hq=6,Hkv=3,D=8,dtype=fp32,mask=bool:Bx1x1xK:5");
	for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
		struct cpa_config config =
			cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b.options.problem);
		config.ring_degree = meshes[i % 3][0];
		config.ulysses_degree = meshes[i % 3][1];
		config.split = config.split_kv = CPA_SPLIT_GIVEN;
		config.sizes = sizes[i / 3 % 3];
		config.sizes_kv = sizes[i / 9 % 3];
		config.nsizes = config.nsizes_kv = 4;
		config.rotate = (enum cpa_rotate)(i / 27);
		struct cpa_result result = run(&b, &config, NULL);
		if (result.verdict != CPA_VERDICT_RIGHT)
			fail_msg("%d: %s", i, result.reason);
	}
	tear_down(&b);
}

/* ---- B08, B09: lengths and heads that do not divide, and empty shards ---- */

static void any_length_and_heads_are_right_or_refused(void **state)
{
	int nright = 0, nrefused = 0;
	(void)state;
	for (int i = 0; i < 36; i++) {
		char text[128];
		struct bench b;
		int P = 2 + i / 3 % 3, S = i / 9 * P + i % 3, Hkv = 1 + i % 4;
		snprintf(text, sizeof text, "S=%d,Hq=%d,Hkv=%d,D=8,causal", S ? S : 1, 2 * Hkv,
			Hkv);
		set_up(&b, text);
		for (int v = 0; v < CPA_NVARIANTS; v++) {
			const struct cpa_variant_info *info =
				cpa_variant_info((enum cpa_variant)v);
			struct cpa_config config =
				cpa_config_default((enum cpa_variant)v, &b.options.problem);
			config.ring_degree = info->ring ? P : 1;
			config.ulysses_degree = info->ulysses ? P : 1;
			config.order = (enum cpa_order)(i % 2);
			struct cpa_result result = run(&b, &config, NULL);
			bool refused = result.verdict == CPA_VERDICT_UNSUPPORTED;
			if (refused ? !info->strict : result.verdict != CPA_VERDICT_RIGHT)
				fail_msg("%s %s %d: %s", text, info->name, P, result.reason);
			nright += !refused;
			nrefused += refused;
		}
		tear_down(&b);
	}
	assert_true(nright > 100 && nrefused > 50);
}

/* ---- B05, D08, E04: ranks that go by different rules ---- */

static enum cpa_status prove_with_a_stranger(const struct cpa_problem *problem,
	const struct cpa_config *config, const struct cpa_config *other,
	struct cpa_error *error)
{
	struct cpa_partition *partition, *strange;
	struct cpa_check *check;
	enum cpa_status s = CPA_OK;
	assert_int_equal(cpa_partition_create(problem, config, &partition, error), CPA_OK);
	assert_int_equal(cpa_partition_create(problem, other, &strange, error), CPA_OK);
	assert_int_equal(cpa_check_create(partition, &check, error), CPA_OK);
	for (int rank = 0; s == CPA_OK && rank < partition->W; rank++) {
		struct cpa_schedule *schedule;
		assert_int_equal(cpa_plan_create(rank == 1 ? strange : partition, rank,
					 &schedule, error),
			CPA_OK);
		s = cpa_check_rank(check, schedule, error);
		cpa_schedule_destroy(schedule);
	}
	if (s == CPA_OK)
		s = cpa_check_finish(check, error);
	cpa_check_destroy(check);
	cpa_partition_destroy(strange);
	cpa_partition_destroy(partition);
	return s;
}

static void a_rank_that_goes_by_another_rule_is_not_proved(void **state)
{
	struct cpa_problem problem = {.B = 1,
		.Sq = 6,
		.Skv = 6,
		.Hq = 12,
		.Hkv = 3,
		.D = 8,
		.Dv = 8,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1,
		.lse = true};
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &problem);
	struct cpa_error error = {""};
	(void)state;
	for (int i = 0; i < 5; i++) {
		config.ring_degree = i == 4 ? 4 : i == 0 ? 1 : 2;
		config.ulysses_degree = 4 / config.ring_degree;
		struct cpa_config other = config;
		if (i <= 1) /* 3 3 3 3 or 4 4 4 0 heads; 6 6 or 8 4 */
			other.heads = CPA_HEADS_GROUPS;
		if (i == 2) /* rings and groups change places */
			other.mesh = CPA_MESH_BATCH_ULYSSES_RING;
		if (i == 3) /* as many tokens, but others */
			other.order = CPA_ORDER_ZIGZAG;
		if (i == 4) /* 2 2 1 1 or 2 2 2 0 */
			other.split = other.split_kv = CPA_SPLIT_CEIL;
		assert_int_equal(
			prove_with_a_stranger(&problem, &config, &config, &error), CPA_OK);
		if (prove_with_a_stranger(&problem, &config, &other, &error) != CPA_MISMATCH)
			fail_msg("%d is proved", i);
		assert_string_not_equal(error.text, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_planted_fault_is_found_and_only_that),
		cmocka_unit_test(a_mask_of_the_most_negative_number_hides_no_fault),
		cmocka_unit_test(a_key_mask_under_uneven_splits_is_right),
		cmocka_unit_test(any_length_and_heads_are_right_or_refused),
		cmocka_unit_test(a_rank_that_goes_by_another_rule_is_not_proved),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
