/*
 * test_peers.c - how Diffusers judges a request: every rule in order, the backends, masks that it
 * gets wrong.  Expectations are from reading its source, or are worked
 * out here in another way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_peers.h"

#define BF16 "S=64,H=8,D=8,dtype=bf16"

/* ---- the configuration ---------------------------------------------------------------- */

/* Each is refused by its own rule, and by those above where it says so. */
static const struct asked configs[] = {
	{BF16, ANY_NONE, 1, 1, 0, NULL, "R", "rule 1",
		"ValueError: Either ring_degree or ulysses_"},
	{BF16, ANY_BOTH, 1, 1, 0, NULL, "R", "rule 1", "ValueError: Either ring_degree"},
	{BF16, ANY_NONE, 0, 1, 0, NULL, "R", "rule 2",
		"ValueError: `ring_degree` and `ulysses_degree` "
		"must be greater than or equal to 1."},
	{BF16, ANY_NONE, 4, -1, 0, NULL, "R", "rule 2", "greater than or equal to 1."},
	{BF16, ANY_ULYSSES, 4, 1, 0, NULL, "R", "rule 4",
		"ValueError: ulysses_degree must be greater"},
	{BF16, ANY_ULYSSES, 2, 2, 0, NULL, "R", "rule 4",
		"ValueError: ulysses_anything cannot be enabled when ring_degree > 1."},
	{BF16, ANY_RING, 1, 4, 0, NULL, "R", "rule 5", "ValueError: ring_degree must be greater"},
	{BF16, ANY_RING, 2, 2, 0, NULL, "R", "rule 5",
		"ValueError: ring_anything cannot be enabled when ulysses_degree > 1."},
	{BF16, ANY_NONE, 4, 1, 3, "flash", "R", "rule 7",
		"ValueError: The product of `ring_degree` (4) and `ulysses_degree` (1) must not "
		"exceed the "
		"world size (3)."},
	{BF16, ANY_NONE, 4, 1, 8, "flash", "N", "rule 7", ""},
	{BF16, ANY_NONE, 4, 1, 0, "flex", "R", "rule 9", "ValueError"},
	/* A setup that fails is seen before a backend that cannot, and that before lengths. */
	{"S=63", ANY_NONE, 4, 1, 3, "flex", "R", "rule 7", ""},
	{"S=63", ANY_NONE, 4, 1, 0, "flex", "R", "rule 9", ""},
	{"S=63,causal", ANY_NONE, 4, 1, 0, NULL, "R", "split hook",
		"AssertionError: Tensor size along dimension to be sharded must be divisible by "
		"mesh size"},
	{"S=3,H=8,dtype=bf16", ANY_RING, 4, 1, 0, "flash", "R", "split hook",
		"AssertionError: Cannot shard tensor of size (..., 3, ...)"},
	{"S=4,H=8,dtype=bf16", ANY_RING, 4, 1, 0, "flash", "A", NULL, ""},
};

static void rules_of_the_configuration_come_in_order(void **state)
{
	(void)state;
	check_all("diffusers", configs, sizeof configs / sizeof *configs);
}

static void both_anything_never_reach_the_rule_that_is_theirs(void **state)
{
	(void)state;
	for (int R = 1; R <= 4; R++)
		for (int U = 1; U <= 4; U++) {
			struct cpa_peer_answer answer = ask("diffusers",
				&(struct asked){BF16, ANY_BOTH, R, U, 0, "flash", "R", NULL, ""});

			assert_int_equal(answer.verdict, CPA_PEER_REFUSED);
			assert_null(strstr(answer.stage, "rule 6"));
		}
}

static void rotation_and_tensor_parallelism_are_refused(void **state)
{
	struct cpa_problem problem = parsed(BF16);
	struct cpa_peer_request r = {.problem = &problem,
		.world = 4,
		.batch = 1,
		.ring = 4,
		.ulysses = 1,
		.tensor = 1,
		.backend = "flash",
		.rotate = "p2p"};
	struct cpa_peer_answer answer;

	(void)state;
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_string_equal(answer.stage, "config validation, rule 3");
	assert_string_equal(answer.error,
		"NotImplementedError: Only rotate_method='allgather' is supported for now, but "
		"got p2p.");
	r.ulysses_anything = true; /* rule 4 comes after */
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_string_equal(answer.stage, "config validation, rule 3");
	r.ulysses_anything = false;
	r.rotate = "allgather";
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_int_equal(answer.verdict, CPA_PEER_ACCEPTED);
	r.tensor = 2;
	r.world = 8;
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_string_equal(answer.stage, "ParallelConfig, rule 8");
	assert_string_equal(answer.error, "ValueError");
}

/* ---- the first forward ---------------------------------------------------------------- */

#define KEYS "S=64,H=8,D=8,dtype=bf16,key_lengths=50"
#define PAIRS "S=64,H=8,D=8,dtype=bf16,mask=bool:1x1xQxK:3"
#define WINDOW "S=64,H=8,D=8,dtype=bf16,window=6:6"
#define MASKED_TEXT "S=64,H=8,D=8,dtype=bf16,text=8,mask=bool:1x1xQxK:3"

static const struct asked forwards[] = {
	{BF16, ANY_NONE, 4, 1, 0, NULL, "R", "first forward",
		"ValueError: Native attention does not support return_lse=True"},
	{BF16, ANY_NONE, 2, 2, 0, "_native_npu", "R", "first forward", "return_lse=True"},
	{BF16, ANY_NONE, 1, 4, 0, NULL, "A", NULL, ""},
	{BF16, ANY_NONE, 4, 1, 0, "_native_cudnn", "A", NULL, ""},
	{"S=64,H=8,causal,dtype=bf16", ANY_NONE, 4, 1, 0, "flash", "R", "first forward",
		"ValueError: Causal attention is not yet supported for templated attention."},
	{"S=64,H=8,causal", ANY_NONE, 1, 4, 0, NULL, "R", "first forward", "Causal attention"},
	{"S=64,Hq=8,Hkv=4", ANY_NONE, 1, 4, 0, NULL, "R", "first forward",
		"ValueError: GQA is not yet supported for templated attention."},
	/* Causal is looked at before GQA. */
	{"S=64,Hq=8,Hkv=4,causal", ANY_NONE, 1, 4, 0, NULL, "R", "first forward", "Causal"},
	{"S=64,Hq=8,Hkv=4,dtype=bf16", ANY_NONE, 1, 4, 0, "flash", "N", "first forward", ""},
	{"S=64,H=6", ANY_NONE, 1, 4, 0, NULL, "R", "first forward", "RuntimeError"},
	{"S=64,H=6,dtype=bf16", ANY_NONE, 2, 4, 0, "flash", "R", "first forward", "RuntimeError"},
	/* On a ring alone heads stay together. */
	{"S=64,H=7,dtype=bf16", ANY_NONE, 4, 1, 0, "flash", "A", NULL, ""},
	{"S=64,H=8,dtype=fp32", ANY_NONE, 4, 1, 0, "flash", "R", "first forward",
		"ValueError: Query, key, and value must be either bfloat16 or float16."},
	{"S=64,H=8,dtype=fp32", ANY_NONE, 4, 1, 0, "_native_cudnn", "R", "first forward",
		"bfloat16"},
	{"S=64,H=8,dtype=fp32", ANY_NONE, 1, 4, 0, "sage", "R", "first forward", "bfloat16"},
	{"S=64,H=8,dtype=fp16", ANY_NONE, 1, 4, 0, "sage", "A", NULL, ""},
	{"S=64,H=8,dtype=fp32", ANY_NONE, 1, 4, 0, NULL, "A", NULL, ""},
	{KEYS, ANY_NONE, 4, 1, 0, "flash", "R", "first forward",
		"ValueError: `attn_mask` is not supported for flash-attn 2."},
	{KEYS, ANY_NONE, 1, 4, 0, "_flash_3_hub", "R", "first forward", "flash-attn 3."},
	{KEYS, ANY_NONE, 1, 4, 0, "sage_hub", "R", "first forward", "sage attention"},
	{KEYS, ANY_NONE, 1, 4, 0, "_native_flash", "R", "first forward", "ValueError"},
	{KEYS, ANY_NONE, 4, 1, 0, "flash_varlen_hub", "R", "first forward",
		"NotImplementedError"},
	{KEYS, ANY_NONE, 1, 4, 0, "flash_varlen_hub", "A", NULL, ""},
	{KEYS, ANY_RING, 4, 1, 0, "_native_cudnn", "R", "first forward",
		"non-uniform sequence lengths across ranks make cross-rank mask slicing "
		"ambiguous"},
	{KEYS, ANY_NONE, 4, 1, 0, "_native_cudnn", "C10", NULL, ""},
	{KEYS, ANY_NONE, 2, 2, 0, "_native_cudnn", "C10", NULL, ""},
	{PAIRS, ANY_NONE, 4, 1, 0, "_native_cudnn", "C10", NULL, ""},
	{"S=64,H=8,dtype=bf16,documents=0:30:64", ANY_NONE, 4, 1, 0, "_native_cudnn", "C10", NULL,
		""},
	{KEYS, ANY_NONE, 1, 4, 0, NULL, "A", NULL, ""},
	{PAIRS, ANY_NONE, 1, 4, 0, NULL, "A", NULL, ""},
	{MASKED_TEXT, ANY_NONE, 1, 4, 0, NULL, "C04", NULL, ""},
	{"S=64,H=8,mask=bool:1xHx1xK:3", ANY_NONE, 1, 4, 0, NULL, "C11", NULL, ""},
	{"S=13,H=6,mask=bool:1xHx1xK:3", ANY_ULYSSES, 1, 3, 0, NULL, "C11", NULL, ""},
	{WINDOW, ANY_NONE, 4, 1, 0, "flash", "C08", NULL, ""},
	{WINDOW, ANY_NONE, 1, 4, 0, "flash", "A", NULL, ""},
	/* Others have no argument for a window: it is a mask there. */
	{WINDOW, ANY_NONE, 4, 1, 0, "_native_cudnn", "C10", NULL, ""},
	{WINDOW, ANY_NONE, 1, 4, 0, "sage", "R", "first forward", "sage attention"},
	{"S=64,H=8,sink=0.5", ANY_NONE, 1, 4, 0, NULL, "N", NULL, ""},
	{"S=64,H=8,D=8,Dv=4", ANY_NONE, 1, 4, 0, NULL, "N", NULL, ""},
	{"S=64,H=8,segments=a:16:replicated/b:48:split", ANY_NONE, 1, 4, 0, NULL, "N", NULL, ""},
	/* Keys that every rank has: nothing is exchanged, and no rule of the exchange asked. */
	{"Sq=64,Skv=33,Hq=6,Hkv=3,segments_kv=a:33:replicated", ANY_NONE, 4, 1, 0, NULL, "A",
		NULL, ""},
	{"S=64,H=8", ANY_NONE, 4, 1, 0, "_native_flash", "A03", NULL, ""},
	{"S=64,H=8,dtype=fp32", ANY_NONE, 4, 1, 0, "_native_flash", "A", NULL, ""},
};

static void the_first_forward_refuses_or_is_wrong(void **state)
{
	(void)state;
	check_all("diffusers", forwards, sizeof forwards / sizeof *forwards);
}

static void merging_in_16_bit_is_wrong_when_it_is_asked_for(void **state)
{
	struct cpa_problem problem = parsed(BF16);
	struct cpa_peer_request r = {.problem = &problem,
		.world = 4,
		.batch = 1,
		.ring = 4,
		.ulysses = 1,
		.tensor = 1,
		.backend = "flash",
		.keep_dtype = true};
	struct cpa_peer_answer answer;

	(void)state;
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_int_equal(answer.verdict, CPA_PEER_WRONG);
	assert_string_equal(answer.fault, "A03");
	r.keep_dtype = false;
	cpa_peer_judge(cpa_peer_find("diffusers"), &r, &answer);
	assert_int_equal(answer.verdict, CPA_PEER_ACCEPTED);
	assert_non_null(strstr(answer.notes, "training is wrong there with a ring of 3 or more"));
}

static void each_backend_is_taken_or_refused_by_name(void **state)
{
	static const char *const taken[] = {"native", "flash", "flash_hub", "flash_varlen_hub",
		"_flash_3_hub", "_flash_3_varlen_hub", "_native_cudnn", "_native_flash",
		"_native_npu", "sage", "sage_hub"};
	const struct cpa_peer *peer = cpa_peer_find("diffusers");

	(void)state;
	for (int i = 0; peer->backends[i]; i++) {
		struct cpa_peer_answer answer = ask("diffusers",
			&(struct asked){
				BF16, ANY_NONE, 1, 4, 0, peer->backends[i], "", NULL, ""});
		bool known = false;

		for (size_t j = 0; j < sizeof taken / sizeof *taken; j++)
			known |= strcmp(taken[j], peer->backends[i]) == 0;
		assert_int_equal(answer.verdict, known ? CPA_PEER_ACCEPTED : CPA_PEER_REFUSED);
		assert_true(known || strstr(answer.stage, "rule 9"));
	}
}

/* ---- head padding and shifted masks --------------------------------------------------- */

/* Worked by hand for up to 16 ranks. */
static void heads_that_padding_cannot_help_are_refused(void **state)
{
	static const struct {
		int64_t H;
		int refused[17];
	} lists[] = {
		{24, {7, 9, 10, 11, 13, 14, 15, 16}},
		{30, {7, 9, 11, 12, 13, 14, 16}},
		{40, {9, 11, 12, 13, 15, 16}},
		{5, {4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (int P = 2; P <= 16; P++) {
			char text[64];
			struct asked asked = {text, ANY_ULYSSES, 1, P, 0, NULL, "", NULL, ""};
			struct cpa_peer_answer answer;
			bool refused = false;

			for (int k = 0; lists[i].refused[k]; k++)
				refused |= lists[i].refused[k] == P;
			snprintf(text, sizeof text, "S=64,H=%d", (int)lists[i].H);
			answer = ask("diffusers", &asked);
			if ((answer.verdict == CPA_PEER_REFUSED) != refused)
				fail_msg("H=%d P=%d: %s", (int)lists[i].H, P, answer.error);
		}
}

static void nine_tokens_and_seven_heads_on_four_ranks_are_accepted(void **state)
{
	static const struct asked cases[] = {
		{"S=9,H=7", ANY_ULYSSES, 1, 4, 0, NULL, "A", NULL, ""},
		{"S=9,H=6", ANY_ULYSSES, 1, 4, 0, NULL, "R", "first forward",
			"AssertionError: Padding head num 2 should be less than new local head "
			"num 2"},
	};

	(void)state;
	check_all("diffusers", cases, 2);
	assert_non_null(strstr(ask("diffusers", &cases[1]).why, "H_PAD = 2"));
}

/* The masks of all ranks padded to the longest, in a row, cut at the tail: whose flag is where.
 */
static bool flags_stay(const int64_t *sizes, int P)
{
	int64_t most = 0, S = 0, at = 0, token = 0;

	for (int r = 0; r < P; r++) {
		most = sizes[r] > most ? sizes[r] : most;
		S += sizes[r];
	}
	for (int r = 0; r < P; r++)
		for (int64_t i = 0; i < most; i++, at++) {
			bool pad = i >= sizes[r];

			if (at < S && (pad || token != at))
				return false;
			token += !pad;
		}
	return true;
}

static int count_shifted(int P, int first, int last)
{
	int n = 0;

	for (int S = first; S <= last; S++) {
		char text[64];
		struct asked asked = {text, ANY_ULYSSES, 1, P, 0, NULL, "", NULL, ""};
		struct cpa_peer_answer answer;
		int64_t sizes[16];

		snprintf(text, sizeof text, "S=%d,H=%d,key_lengths=%d", S, P, S - 1);
		for (int r = 0; r < P; r++)
			sizes[r] = S / P + (r < S % P);
		answer = ask("diffusers", &asked);
		if ((answer.verdict == CPA_PEER_ACCEPTED) != flags_stay(sizes, P))
			fail_msg("S=%d P=%d: %s", S, P, answer.why);
		if (answer.verdict == CPA_PEER_WRONG)
			assert_string_equal(answer.fault, "B03");
		n += answer.verdict == CPA_PEER_WRONG;
	}
	return n;
}

static void key_masks_shift_where_two_ranks_are_short(void **state)
{
	(void)state;
	assert_int_equal(count_shifted(2, 2, 40), 0);
	assert_int_equal(count_shifted(3, 4, 12), 3); /* 4 7 10 */
	assert_int_equal(count_shifted(4, 4, 39), 18);
	assert_int_equal(count_shifted(8, 8, 39), 24);
}

/* 1109 1107 1107 1107 tokens: each segment is cut on its own. */
static void joint_tokens_are_short_by_their_sum(void **state)
{
	static const struct asked cases[] = {
		{"S=4097,text=333,H=8,key_lengths=4400", ANY_ULYSSES, 1, 4, 0, NULL, "B03", NULL,
			""},
		{"S=4099,text=331,H=8,key_lengths=4400", ANY_ULYSSES, 1, 4, 0, NULL, "A", NULL,
			""},
	};
	static const int64_t joint[] = {1109, 1107, 1107, 1107},
			     even[] = {1108, 1108, 1108, 1106};

	(void)state;
	assert_false(flags_stay(joint, 4));
	assert_true(flags_stay(even, 4));
	check_all("diffusers", cases, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_of_the_configuration_come_in_order),
		cmocka_unit_test(both_anything_never_reach_the_rule_that_is_theirs),
		cmocka_unit_test(rotation_and_tensor_parallelism_are_refused),
		cmocka_unit_test(the_first_forward_refuses_or_is_wrong),
		cmocka_unit_test(merging_in_16_bit_is_wrong_when_it_is_asked_for),
		cmocka_unit_test(each_backend_is_taken_or_refused_by_name),
		cmocka_unit_test(heads_that_padding_cannot_help_are_refused),
		cmocka_unit_test(nine_tokens_and_seven_heads_on_four_ranks_are_accepted),
		cmocka_unit_test(key_masks_shift_where_two_ranks_are_short),
		cmocka_unit_test(joint_tokens_are_short_by_their_sum),
	};

	return cmocka_run_group_tests(tests, start_peers, end_peers);
}
