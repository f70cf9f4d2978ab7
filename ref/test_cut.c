/* test_cut.c - who owns what: sizes, shards and heads against definitions token by token. */
#include "ref/ref.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_P = 9, MOST_S = 40 };

/* How many tokens each shard gets, as the split rules are defined. */
static void sizes_by_definition(enum cpa_split rule, int64_t S, int P, int64_t *sizes)
{
	memset(sizes, 0, (size_t) P * sizeof *sizes);
	for (int64_t t = 0; t < S; t++) {
		const int64_t each = (S + P - 1) / P;

		sizes[rule == CPA_SPLIT_CEIL ? t / each : t % P]++;
	}
}

/* Given sizes with empty shards first, last and in between. */
static void uneven_sizes(int64_t S, int P, int64_t *sizes)
{
	memset(sizes, 0, (size_t) P * sizeof *sizes);
	for (int64_t t = 0; t < S; t++)
		sizes[P == 1 ? 0 : 1 + (t * t + t / 3) % (P - 1) / 2]++;
}

/*
 * The owner of each token, as the orders are defined.  Fronts are dealt from the start in rank
 * order, backs in reverse rank order behind them, which is up to the end.
 */
static void owners_by_definition(
	enum cpa_order order, int64_t S, int P, const int64_t *sizes, int *owner)
{
	int64_t t = 0;

	if (order == CPA_ORDER_STRIPED) {
		for (; t < S; t++)
			owner[t] = (int) (t % P);
		return;
	}
	for (int i = 0; i < P; i++) {
		const int64_t n = order == CPA_ORDER_ZIGZAG ? (sizes[i] + 1) / 2 : sizes[i];

		for (int64_t x = 0; x < n; x++)
			owner[t++] = i;
	}
	for (int i = P - 1; i >= 0 && order == CPA_ORDER_ZIGZAG; i--) {
		for (int64_t x = 0; x < sizes[i] / 2; x++)
			owner[t++] = i;
	}
	assert_int_equal(t, S);
}

static void each_cut(
	void (*check)(const struct cpa_cut *cut, const int64_t *sizes, const int *owner))
{
	int ncuts = 0;

	for (int P = 1; P <= MOST_P; P++) {
		for (int64_t S = 1; S <= MOST_S; S++) {
			for (int k = 0; k < 12; k++) {
				const enum cpa_split rule = (enum cpa_split) (k / 3);
				const enum cpa_order order = (enum cpa_order) (k % 3);
				int64_t sizes[MOST_P];
				int owner[MOST_S];
				struct cpa_arena arena;
				struct cpa_error error = { "" };
				struct cpa_cut cut;
				enum cpa_status status;

				if (rule == CPA_SPLIT_GIVEN)
					uneven_sizes(S, P, sizes);
				else
					sizes_by_definition(rule, S, P, sizes);
				cpa_arena_init(&arena);
				status = cpa_cut_init(
					&cut, &arena, rule, order, S, P, sizes, &error);
				if ((rule == CPA_SPLIT_EQUAL && S % P != 0) ||
					(order == CPA_ORDER_STRIPED &&
						rule >= CPA_SPLIT_CEIL)) {
					assert_int_equal(status, CPA_UNSUPPORTED);
					assert_true(error.text[0] != '\0');
				} else {
					assert_int_equal(status, CPA_OK);
					owners_by_definition(order, S, P, sizes, owner);
					check(&cut, sizes, owner);
					ncuts++;
				}
				cpa_arena_fini(&arena);
			}
		}
	}
	assert_true(ncuts > 2000);
}

/* Tokens of shards first .. first+n-1 are those whose owner is among them, ascending. */
static void check_tokens(const struct cpa_cut *cut, const int64_t *sizes, const int *owner)
{
	for (int first = 0; first < cut->P; first++) {
		assert_int_equal(cpa_cut_size(cut, first), sizes[first]);
		for (int n = 0; n <= cut->P - first; n++) {
			struct cpa_arena arena;
			struct cpa_spans list;
			int64_t index = 0;

			cpa_arena_init(&arena);
			list = cpa_cut_tokens(cut, &arena, first, n);
			for (int64_t t = 0; t < cut->S; t++) {
				if (owner[t] >= first && owner[t] < first + n)
					assert_int_equal(cpa_spans_token(&list, index++), t);
			}
			assert_int_equal(cpa_spans_ntokens(&list), index);
			assert_true(list.n <= (cut->order == CPA_ORDER_CONTIGUOUS ? 1 : 3));
			if (n == cut->P)
				assert_int_equal(list.n, 1);
			cpa_arena_fini(&arena);
		}
	}
}

static void shards_hold_the_tokens_that_the_order_gives_them(void **unused)
{
	(void) unused;
	each_cut(check_tokens);
}

static void check_union(const struct cpa_cut *cut, const int64_t *sizes, const int *owner)
{
	struct cpa_arena arena;
	struct cpa_spans all = { 0 };

	(void) sizes;
	(void) owner;
	cpa_arena_init(&arena);
	for (int i = 0; i < cut->P; i++) {
		const struct cpa_spans one = cpa_cut_tokens(cut, &arena, i, 1);
		struct cpa_spans several;

		assert_int_equal(cpa_spans_ncommon(&all, &one), 0);
		all = cpa_spans_union(&arena, &all, &one);
		several = cpa_cut_tokens(cut, &arena, 0, i + 1);
		assert_true(cpa_spans_same_set(&all, &several));
	}
	assert_int_equal(cpa_spans_ntokens(&all), cut->S);
	assert_int_equal(all.n, 1);
	cpa_arena_fini(&arena);
}

static void shards_are_disjoint_and_unite_to_the_whole(void **unused)
{
	(void) unused;
	each_cut(check_union);
}

static void zigzag_of_equal_even_shards_is_chunks_i_and_last_but_i(void **unused)
{
	(void) unused;
	for (int P = 1; P <= MOST_P; P++) {
		for (int64_t chunk = 1; chunk <= 4; chunk++) {
			struct cpa_arena arena;
			struct cpa_error error;
			struct cpa_cut cut;

			cpa_arena_init(&arena);
			assert_int_equal(
				cpa_cut_init(&cut, &arena, CPA_SPLIT_EQUAL, CPA_ORDER_ZIGZAG,
					2 * P * chunk, P, NULL, &error),
				CPA_OK);
			for (int i = 0; i < P; i++) {
				const struct cpa_spans list =
					cpa_cut_tokens(&cut, &arena, i, 1);

				for (int64_t x = 0; x < chunk; x++) {
					assert_int_equal(
						cpa_spans_token(&list, x), i * chunk + x);
					assert_int_equal(cpa_spans_token(&list, chunk + x),
						(2 * P - 1 - i) * chunk + x);
				}
			}
			cpa_arena_fini(&arena);
		}
	}
}

static void assert_sizes(enum cpa_split rule, int64_t S, int P, const int64_t *expected)
{
	int64_t sizes[MOST_P];
	struct cpa_error error;

	assert_int_equal(cpa_split_sizes(rule, S, P, NULL, sizes, &error), CPA_OK);
	for (int i = 0; i < P; i++)
		assert_int_equal(sizes[i], expected[i]);
}

static void sizes_are_those_of_known_splitters(void **unused)
{
	(void) unused;
	/* torch.tensor_split and numpy.array_split */
	assert_sizes(CPA_SPLIT_BALANCED, 9, 4, (int64_t[]) { 3, 2, 2, 2 });
	assert_sizes(CPA_SPLIT_BALANCED, 6, 4, (int64_t[]) { 2, 2, 1, 1 });
	assert_sizes(CPA_SPLIT_BALANCED, 2, 4, (int64_t[]) { 1, 1, 0, 0 });
	/* torch.chunk(4) of 9 gives three pieces, of 6 three, of 5 three */
	assert_sizes(CPA_SPLIT_CEIL, 9, 4, (int64_t[]) { 3, 3, 3, 0 });
	assert_sizes(CPA_SPLIT_CEIL, 6, 4, (int64_t[]) { 2, 2, 2, 0 });
	assert_sizes(CPA_SPLIT_CEIL, 5, 4, (int64_t[]) { 2, 2, 1, 0 });
	assert_sizes(CPA_SPLIT_EQUAL, 8, 4, (int64_t[]) { 2, 2, 2, 2 });
	assert_sizes(CPA_SPLIT_EQUAL, 0, 4, (int64_t[]) { 0, 0, 0, 0 });
	assert_sizes(CPA_SPLIT_BALANCED, (int64_t) 1 << 40 | 1, 2,
		(int64_t[]) { ((int64_t) 1 << 39) + 1, (int64_t) 1 << 39 });
}

/* Fails as expected, leaves sizes alone, and the sentence holds each of the words. */
static void assert_refused(enum cpa_split rule, int64_t S, int P, const int64_t *given,
	enum cpa_status expected, const char *words)
{
	int64_t sizes[MOST_P] = { 77, 77, 77, 77, 77, 77, 77, 77, 77 };
	struct cpa_error error;

	assert_int_equal(cpa_split_sizes(rule, S, P, given, sizes, &error), expected);
	if (strstr(error.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", error.text, words);
	for (int i = 0; i < MOST_P; i++)
		assert_int_equal(sizes[i], 77);
}

static void refusals_say_what_would_work(void **unused)
{
	struct cpa_arena arena;
	struct cpa_error error;
	struct cpa_cut cut = { .S = 77 };

	(void) unused;
	assert_refused(CPA_SPLIT_EQUAL, 10, 4, NULL, CPA_UNSUPPORTED,
		"S = 10 is not divisible by 4 ranks; 1, 2, 5, 10 ranks would work, or --split "
		"balanced");
	assert_refused(CPA_SPLIT_EQUAL, 720720 * 17, 9 * 11 * 32, NULL, CPA_UNSUPPORTED,
		"14, 15, 16, ... ranks");
	assert_refused(CPA_SPLIT_GIVEN, 10, 3, (int64_t[]) { 5, 4, 2 }, CPA_INVALID,
		"3 of them add up to 11, expected S = 10");
	assert_refused(CPA_SPLIT_GIVEN, 10, 3, (int64_t[]) { 5, -1, 6 }, CPA_INVALID,
		"entry 1 of 3 is -1, expected 0 or more");
	assert_refused(CPA_SPLIT_GIVEN, 10, 3, (int64_t[]) { 5, INT64_MAX, 6 }, CPA_INVALID,
		"the first 2 add up to more than 2^63");
	cpa_arena_init(&arena);
	assert_int_equal(cpa_cut_init(&cut, &arena, CPA_SPLIT_CEIL, CPA_ORDER_STRIPED, 9, 4,
				 NULL, &error),
		CPA_UNSUPPORTED);
	assert_non_null(
		strstr(error.text, "does not take --split ceil; --split equal or balanced"));
	assert_int_equal(cut.S, 77);
	arena.failed = true;
	assert_int_equal(cpa_cut_init(&cut, &arena, CPA_SPLIT_CEIL, CPA_ORDER_ZIGZAG, 9, 4,
				 NULL, &error),
		CPA_NO_MEMORY);
	cpa_arena_fini(&arena);
}

static int64_t nkv(struct cpa_range kv)
{
	return kv.end - kv.start;
}

/* Each head has one owner, and the key heads of a rank are those that its query heads use. */
static void check_heads(const int64_t *bounds, int64_t Hq, int64_t Hkv, int U)
{
	assert_int_equal(bounds[0], 0);
	assert_int_equal(bounds[U], Hq);
	for (int u = 0; u < U; u++) {
		const struct cpa_range heads = { bounds[u], bounds[u + 1] };
		const struct cpa_range kv = cpa_heads_kv(heads, Hq / Hkv);

		assert_true(heads.start <= heads.end && kv.start <= kv.end && kv.start >= 0);
		assert_int_equal(nkv(kv) == 0, heads.start == heads.end);
		for (int64_t k = 0; k < Hkv && heads.start < heads.end; k++) {
			bool used = false;

			for (int64_t h = heads.start; h < heads.end; h++)
				used = used || h / (Hq / Hkv) == k;
			assert_int_equal(used, k >= kv.start && k < kv.end);
		}
	}
}

static void each_head_count(void (*check)(int64_t Hq, int64_t Hkv, int U))
{
	for (int64_t Hkv = 1; Hkv <= 8; Hkv++) {
		for (int64_t g = 1; g <= 6; g++) {
			for (int U = 1; U <= MOST_P; U++)
				check(g * Hkv, Hkv, U);
		}
	}
}

static void check_rules(int64_t Hq, int64_t Hkv, int U)
{
	int64_t bounds[MOST_P + 1], expected[MOST_P], given[MOST_P], extra = -Hkv;
	struct cpa_error error;

	assert_int_equal(
		cpa_heads_cut(CPA_HEADS_BALANCED, Hq, Hkv, U, NULL, bounds, &error), CPA_OK);
	check_heads(bounds, Hq, Hkv, U);
	sizes_by_definition(CPA_SPLIT_BALANCED, Hq, U, expected);
	for (int u = 0; u < U; u++) {
		const struct cpa_range kv =
			cpa_heads_kv((struct cpa_range) { bounds[u], bounds[u + 1] }, Hq / Hkv);

		assert_int_equal(bounds[u + 1] - bounds[u], expected[u]);
		extra += nkv(kv);
	}
	assert_true(extra >= 0 && extra <= U - 1);

	assert_int_equal(
		cpa_heads_cut(CPA_HEADS_GROUPS, Hq, Hkv, U, NULL, bounds, &error), CPA_OK);
	check_heads(bounds, Hq, Hkv, U);
	sizes_by_definition(CPA_SPLIT_BALANCED, Hkv, U, expected);
	for (int u = 0; u < U; u++) /* no key head is held twice */
		assert_int_equal(
			nkv(cpa_heads_kv(
				(struct cpa_range) { bounds[u], bounds[u + 1] }, Hq / Hkv)),
			expected[u]);

	assert_int_equal(
		cpa_heads_cut(CPA_HEADS_CEIL, Hq, Hkv, U, NULL, bounds, &error), CPA_OK);
	check_heads(bounds, Hq, Hkv, U);
	sizes_by_definition(CPA_SPLIT_CEIL, Hq, U, expected);
	for (int u = 0; u < U; u++)
		assert_int_equal(bounds[u + 1] - bounds[u], expected[u]);

	uneven_sizes(Hq, U, given);
	assert_int_equal(
		cpa_heads_cut(CPA_HEADS_GIVEN, Hq, Hkv, U, given, bounds, &error), CPA_OK);
	check_heads(bounds, Hq, Hkv, U);
	for (int u = 0; u < U; u++)
		assert_int_equal(bounds[u + 1] - bounds[u], given[u]);
}

static void heads_are_cut_by_each_rule_and_key_heads_follow(void **unused)
{
	(void) unused;
	each_head_count(check_rules);
}

static void given_head_counts_that_do_not_add_up_are_invalid(void **unused)
{
	int64_t bounds[4] = { 77, 77, 77, 77 };
	struct cpa_error error;

	(void) unused;
	assert_int_equal(cpa_heads_cut(CPA_HEADS_GIVEN, 15, 5, 3, (int64_t[]) { 6, 3, 3 },
				 bounds, &error),
		CPA_INVALID);
	assert_string_equal(
		error.text, "given head counts: 3 of them add up to 12, expected Hq = 15");
	for (int i = 0; i < 4; i++)
		assert_int_equal(bounds[i], 77);
}

static void rules_have_the_names_of_the_command_line(void **unused)
{
	(void) unused;
	assert_string_equal(cpa_split_name(CPA_SPLIT_EQUAL), "equal");
	assert_string_equal(cpa_split_name(CPA_SPLIT_BALANCED), "balanced");
	assert_string_equal(cpa_split_name(CPA_SPLIT_CEIL), "ceil");
	assert_string_equal(cpa_split_name(CPA_SPLIT_GIVEN), "given");
	assert_string_equal(cpa_order_name(CPA_ORDER_CONTIGUOUS), "contiguous");
	assert_string_equal(cpa_order_name(CPA_ORDER_ZIGZAG), "zigzag");
	assert_string_equal(cpa_order_name(CPA_ORDER_STRIPED), "striped");
	assert_string_equal(cpa_heads_name(CPA_HEADS_BALANCED), "balanced");
	assert_string_equal(cpa_heads_name(CPA_HEADS_GROUPS), "groups");
	assert_string_equal(cpa_heads_name(CPA_HEADS_CEIL), "ceil");
	assert_string_equal(cpa_heads_name(CPA_HEADS_GIVEN), "given");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shards_hold_the_tokens_that_the_order_gives_them),
		cmocka_unit_test(shards_are_disjoint_and_unite_to_the_whole),
		cmocka_unit_test(zigzag_of_equal_even_shards_is_chunks_i_and_last_but_i),
		cmocka_unit_test(sizes_are_those_of_known_splitters),
		cmocka_unit_test(refusals_say_what_would_work),
		cmocka_unit_test(heads_are_cut_by_each_rule_and_key_heads_follow),
		cmocka_unit_test(given_head_counts_that_do_not_add_up_are_invalid),
		cmocka_unit_test(rules_have_the_names_of_the_command_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
