/*
 * test_recording_diagnose_groups.c - the command diagnose on runs with a fault in who holds what:
 * replicated tokens, groups of ranks, positions, other inputs, branches of guidance.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_diagnose_bench.h"

/* ---- replicated tokens and groups ---- */

#define JOINT "B=2,S=30,Hq=4,Hkv=2,D=8,segments=text:6:replicated/image:24:split,dtype="
#define CROSS "B=2,Sq=24,Skv=10,Hq=4,Hkv=2,D=8,segments_kv=text:10:replicated,dtype="
#define PLAIN "B=2,S=32,Hq=4,Hkv=2,D=8,dtype="

/* Six tokens of text in front, or all keys. */
static void text_twice(struct call *call)
{
	if (is_text(call))
		append_keys(call, 0, call->attend.nk);
}

static void text_hidden(struct call *call)
{
	if (is_text(call))
		hide_keys(call);
}

static int64_t rear_id(const struct call *call, int64_t token, int64_t index)
{
	(void)index;
	return token + call->problem.Skv - 6;
}

static void text_at_rear(struct call *call)
{
	if (is_text(call) && cpa_spans_min(&call->attend.q_tokens) >= 6)
		call->attend.k_tokens = renumber(call, &call->attend.k_tokens, rear_id);
}

static void own_only(struct call *call)
{
	if (!is_own(call))
		hide_keys(call);
}

/* 32 tokens on 4 ranks: 0 and 1 never meet 2 and 3. */
static void half_groups(struct call *call)
{
	if (is_other(call) &&
		cpa_spans_min(&call->attend.q_tokens) / 16 !=
			cpa_spans_min(&call->attend.k_tokens) / 16)
		hide_keys(call);
}

static const struct {
	const char *class, *problem, *rule;
	int R, U;
	void (*spoil)(struct call *);
	const char *says;
} grouped[] = {
	{"E01", JOINT, "", 4, 1, text_twice, "counted 2 times"},
	{"E01", JOINT, "", 2, 2, text_twice, "counted 2 times"},
	{"E01", JOINT, "", 1, 4, text_twice, "counted 2 times"},
	{"E01", JOINT, "", 3, 1, text_hidden, "not counted"},
	{"E01", JOINT, "", 2, 2, text_hidden, "not counted"},
	{"E02", JOINT, ",causal", 4, 1, text_at_rear, "the other end"},
	{"E02", JOINT, ",causal", 3, 1, text_at_rear, "the other end"},
	{"E03", PLAIN, "", 4, 1, own_only, "do not communicate"},
	{"E03", PLAIN, ",causal", 4, 1, own_only, "do not communicate"},
	{"E04", PLAIN, "", 2, 2, own_only, "its ulysses group"},
	{"E04", PLAIN, "", 4, 1, half_groups, "2 neighbours"},
	{"E05", CROSS, "", 4, 1, text_twice, "every key counts 2 times"},
	{"E05", CROSS, "", 2, 2, text_twice, "every key counts 2 times"},
};

static void replicated_keys_and_groups_are_named(void **state)
{
	static const char *const dtypes[] = {"fp32", "bf16"};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof grouped / sizeof grouped[0]; i++) {
		char text[256];
		struct verdict v;
		struct bench b;

		snprintf(text, sizeof text, "%s%s%s", grouped[i / 2].problem, dtypes[i % 2],
			grouped[i / 2].rule);
		set_up(&b, text, 17);
		run_spoilt(
			&b, grouped[i / 2].R, grouped[i / 2].U, grouped[i / 2].spoil, NULL, &v);
		if (!says(&v, grouped[i / 2].class, grouped[i / 2].says))
			fail_msg("%s %s %dx%d: %d wrong, %d findings, first %s",
				grouped[i / 2].class, text, grouped[i / 2].R, grouped[i / 2].U,
				v.nwrong, v.n, v.n ? v.findings[0].text : "none");
		tear_down(&b);
	}
}

/* ---- positions ---- */

static void copy_tensors(struct bench *b, void *copies[3], int n)
{
	for (int i = 0; i < n; i++) {
		size_t nbytes = tensor_nbytes(&b->run, (enum cpa_tensor)i);

		copies[i] = malloc(nbytes);
		assert_non_null(copies[i]);
		memcpy(copies[i], b->data[i], nbytes);
	}
}

/* 32 tokens in 4 contiguous shards of 8. */
static int64_t local_place(int64_t t)
{
	return t % 8;
}

static int64_t zigzag_place(int64_t t)
{
	int64_t chunk = t / 4 % 2 ? 7 - t / 8 : t / 8;

	return chunk * 4 + t % 4;
}

static int64_t own_place(int64_t t)
{
	return t;
}

static void positions_of_others_are_named(void **state)
{
	static const struct {
		const char *says;
		int64_t (*q)(int64_t), (*k)(int64_t);
		int turns;
	} turned[] = {
		{"q is turned by the first positions on every rank, k by the first", local_place,
			local_place, 1},
		{"q is turned by its own positions, k by the first", own_place, local_place, 1},
		{"q is turned by the positions of zigzag shards, k by the positions of zigzag",
			zigzag_place, zigzag_place, 1},
		{"q is turned by nothing, k by nothing", own_place, own_place, 0},
		{NULL, own_place, own_place, 1}, /* right */
	};
	struct cpa_rope rope = {8, 100, CPA_ROPE_HALF};
	int64_t positions[32], places[2][32];

	(void)state;
	for (size_t i = 0; i < 2 * sizeof turned / sizeof turned[0]; i++) {
		void *stored[3];
		struct verdict v;
		struct bench b;

		set_up(&b, i % 2 ? PLAIN "bf16" : PLAIN "fp32", 5 + i);
		copy_tensors(&b, stored, 2);
		for (int t = 0; t < 32; t++) {
			positions[t] = 3 + t;
			places[0][t] = 3 + turned[i / 2].q(t);
			places[1][t] = 3 + turned[i / 2].k(t);
		}
		for (int n = 0; n < 2 && turned[i / 2].turns; n++)
			cpa_ref_rope_array(
				&rope, places[n], 2, 32, n ? 2 : 4, b.run.dtype, b.data[n]);
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = 4;
		run_ranks(&b, spoilt_device(), &config, NULL, NULL);
		for (int n = 0; n < 2; n++) {
			free(b.data[n]);
			b.data[n] = stored[n];
		}
		b.positions = positions;
		b.rope = &rope;
		save(&b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, NULL);
		diagnose_file(file_path, 0, &v);
		if (turned[i / 2].says ? !says(&v, "E06", turned[i / 2].says) || v.nties > 1
				       : v.nwrong > 0)
			fail_msg("%zu: %d wrong, %d findings, %d ties, first %s", i, v.nwrong,
				v.n, v.nties, v.n ? v.findings[0].text : "none");
		tear_down(&b);
	}
}

/* ---- other inputs ---- */

/* Rank 2 of 4 starts from another seed; what it holds is recorded, and went round the ring. */
static void ranks_that_start_from_other_numbers_are_named(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		void *right[3];
		struct verdict v;
		struct bench b;

		set_up(&b, i % 2 ? PLAIN "bf16,causal" : PLAIN "fp32", 5);
		copy_tensors(&b, right, 3);
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = i < 2 ? 4 : 2;
		config.ulysses_degree = i < 2 ? 1 : 2;
		/* Its shard is tokens 16 to 23. */
		for (int n = 0; n < 3; n++) {
			size_t row = cpa_token_nbytes(&b.run, (enum cpa_tensor)n);
			char *other = malloc(tensor_nbytes(&b.run, (enum cpa_tensor)n));

			assert_non_null(other);
			cpa_inputs_fill(&b.run, CPA_FILL_NORMAL, 99, (enum cpa_tensor)n, other);
			for (size_t item = 0; item < 2; item++)
				memcpy((char *)b.data[n] + (32 * item + 16) * row,
					other + (32 * item + 16) * row, 8 * row);
			b.other[n] = other;
		}
		b.strange = 2;
		run_ranks(&b, spoilt_device(), &config, NULL, NULL);
		for (int n = 0; n < 3; n++) {
			free(b.data[n]);
			b.data[n] = right[n];
		}
		save(&b, &config, 31, NULL);
		diagnose_file(file_path, 0, &v);
		if (!is_named(&v, "E08", 2, -1) || v.nties != 1 || v.findings[0].rank != 2)
			fail_msg("%d: %d wrong, %d findings, first %s", i, v.nwrong, v.n,
				v.n ? v.findings[0].text : "none");
		for (int n = 0; n < 3; n++)
			free(b.other[n]);
		tear_down(&b);
	}
}

/* ---- branches ---- */

/* Batch items in the order of another branch: q, k and v of item b are those of item as[b]. */
static void exchange_items(struct bench *b, const int *as)
{
	for (int i = 0; i < 3; i++) {
		size_t n = tensor_nbytes(&b->run, (enum cpa_tensor)i) / (size_t)b->run.B;
		char *copy = malloc((size_t)b->run.B * n);

		assert_non_null(copy);
		memcpy(copy, b->data[i], (size_t)b->run.B * n);
		for (int64_t item = 0; item < b->run.B; item++)
			memcpy((char *)b->data[i] + (size_t)item * n, copy + (size_t)as[item] * n,
				n);
		free(copy);
	}
}

static void branches_computed_as_others_are_named(void **state)
{
	static const struct {
		const char *class, *says;
		int n, as[3];
	} mixed[] = {
		{"H01", "the negative branch is computed as the positive one", 2, {1, 0}},
		{"H03", "the negative branch is computed as the positive one", 2, {1, 1}},
		{"H04", "the positive branch is computed as the negative one", 2, {0, 0}},
		{"H01", "the middle branch is computed as the positive one", 3, {0, 2, 1}},
		{"H02", "the middle branch is computed as the positive one", 3, {0, 2, 2}},
		{"H02", "the positive branch is computed as the middle one", 3, {0, 1, 1}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof mixed / sizeof mixed[0]; i++) {
		struct cpa_guidance guidance = {.nbranches = mixed[i].n, .s = 3.5, .s2 = 1.5};
		char text[128];
		void *right[3];
		struct verdict v;
		struct bench b;

		snprintf(text, sizeof text, "B=%d,S=24,H=4,D=8,dtype=%s", mixed[i].n,
			i % 2 ? "bf16" : "fp32");
		set_up(&b, text, 7 + i);
		copy_tensors(&b, right, 3);
		exchange_items(&b, mixed[i].as);
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = 2;
		plant_spoil(NULL);
		run_ranks(&b, spoilt_device(), &config, NULL, NULL);
		for (int n = 0; n < 3; n++) {
			free(b.data[n]);
			b.data[n] = right[n];
		}
		save(&b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, &guidance);
		diagnose_file(file_path, 0, &v);
		if (!says(&v, mixed[i].class, mixed[i].says))
			fail_msg("%s %s: %d wrong, %d findings, first %s", mixed[i].class,
				mixed[i].says, v.nwrong, v.n, v.n ? v.findings[0].text : "none");
		tear_down(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(replicated_keys_and_groups_are_named),
		cmocka_unit_test(positions_of_others_are_named),
		cmocka_unit_test(ranks_that_start_from_other_numbers_are_named),
		cmocka_unit_test(branches_computed_as_others_are_named),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
