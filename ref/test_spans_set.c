/* test_spans_set.c - lists of spans as sets, against one mark for each token. */
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { UNIVERSE = 640, NCASES = 4000 };

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t) ((state >> 33) % (uint64_t) n);
}

static void each_case(void (*check)(struct cpa_arena *arena))
{
	for (int i = 0; i < NCASES; i++) {
		struct cpa_arena arena;

		state = (uint64_t) i + 1;
		below(2);
		cpa_arena_init(&arena);
		check(&arena);
		assert_false(arena.failed);
		cpa_arena_fini(&arena);
	}
}

/*
 * A random set as marks: by residue (a union of striped shards), in two ranges that lie as a
 * zigzag shard does, a random scatter, or runs at one distance.
 */
static void random_marks(bool *marks)
{
	const int64_t P = 1 + below(7), residues = below(1 << P), kind = below(4);
	const int64_t S = 20 + below(UNIVERSE / 2), n = 1 + below(S / 2);
	const int64_t first = below(S - n + 1);

	for (int64_t t = 0; t < UNIVERSE; t++) {
		if (kind == 0)
			marks[t] = t < S && (residues >> t % P & 1) != 0;
		else if (kind == 1)
			marks[t] = t < S &&
				((t >= first && t < first + n) || (t >= S - n / 2 && t < S));
		else if (kind == 2)
			marks[t] = t < 80 && below(2) == 0;
		else
			marks[t] = t >= first && t < S && (t - first) % (P + n % 9) < P;
	}
}

static struct cpa_spans list_of_marks(struct cpa_arena *arena, const bool *marks)
{
	struct cpa_spans list = { 0 };

	for (int64_t t = 0; t < UNIVERSE; t++) {
		if (marks[t])
			cpa_spans_append_range(arena, &list, (struct cpa_range) { t, t + 1 });
	}
	return list;
}

/* The same set by residues modulo P: spans that interleave. */
static struct cpa_spans interleaved_list(struct cpa_arena *arena, const bool *marks)
{
	const int64_t P = 1 + below(6);
	struct cpa_spans list = { 0 };

	for (int64_t residue = 0; residue < P; residue++) {
		for (int64_t t = residue; t < UNIVERSE; t += P) {
			if (marks[t])
				cpa_spans_append_range(
					arena, &list, (struct cpa_range) { t, t + 1 });
		}
	}
	return list;
}

static int64_t count_marks(const bool *a, const bool *b, int64_t start, int64_t end)
{
	int64_t n = 0;

	for (int64_t t = 0; t < UNIVERSE; t++)
		n += a[t] && b[t] && t >= start && t < end;
	return n;
}

static void check_sets(struct cpa_arena *arena)
{
	bool x[UNIVERSE], y[UNIVERSE];
	struct cpa_spans a, b, a2;
	int64_t ncommon;

	random_marks(x);
	random_marks(y);
	a = list_of_marks(arena, x);
	a2 = interleaved_list(arena, x);
	b = below(2) == 0 ? list_of_marks(arena, y) : interleaved_list(arena, y);
	ncommon = count_marks(x, y, 0, UNIVERSE);
	assert_int_equal(cpa_spans_ncommon(&a, &b), ncommon);
	assert_int_equal(cpa_spans_ncommon(&b, &a), ncommon);
	assert_int_equal(cpa_spans_ncommon(&a2, &b), ncommon);
	assert_true(cpa_spans_same_set(&a, &a2) && cpa_spans_same_set(&a2, &a));
	assert_int_equal(cpa_spans_same_set(&a, &b), memcmp(x, y, sizeof x) == 0);
	for (int i = 0; i < 8; i++) {
		const int64_t start = below(UNIVERSE) - 5, end = start + below(UNIVERSE) - 50;
		const struct cpa_range range = { start, end };

		assert_int_equal(cpa_spans_below(&a, start), count_marks(x, x, 0, start));
		assert_int_equal(cpa_spans_ncommon_range(&a2, range),
			count_marks(x, x, start, end));
	}
	if (a.n > 0) { /* as many tokens, one of them another */
		memcpy(y, x, sizeof y);
		y[cpa_spans_max(&a)] = false;
		y[UNIVERSE - 1] = true;
		b = list_of_marks(arena, y);
		assert_false(cpa_spans_same_set(&a, &b) || cpa_spans_same_set(&b, &a2));
	}
}

static void counts_of_common_and_lower_tokens_are_those_of_the_sets(void **unused)
{
	(void) unused;
	each_case(check_sets);
}

static void check_union(struct cpa_arena *arena)
{
	bool x[UNIVERSE], y[UNIVERSE], both[UNIVERSE], seen[UNIVERSE] = { false };
	struct cpa_spans a, b, all;
	int64_t ntokens;

	random_marks(x);
	random_marks(y);
	for (int64_t t = 0; t < UNIVERSE; t++) {
		y[t] = y[t] && !x[t];
		both[t] = x[t] || y[t];
	}
	a = below(2) == 0 ? list_of_marks(arena, x) : interleaved_list(arena, x);
	b = below(2) == 0 ? list_of_marks(arena, y) : interleaved_list(arena, y);
	all = cpa_spans_union(arena, &a, &b);
	ntokens = cpa_spans_ntokens(&all);
	for (int64_t i = 0; i < ntokens; i++) {
		const int64_t t = cpa_spans_token(&all, i);

		assert_true(t >= 0 && t < UNIVERSE && both[t] && !seen[t]);
		seen[t] = true;
	}
	assert_memory_equal(seen, both, sizeof both);
	for (int i = 1; i < all.n; i++)
		assert_true(all.at[i - 1].start <= all.at[i].start);
	/* Of a set in one piece the union is one span, whatever the pieces were. */
	if (all.n > 0 && a.n > 0 && b.n > 0) {
		const int64_t hull = cpa_spans_max(&all) - cpa_spans_min(&all) + 1;
		bool single = true;

		for (int i = 0; i < a.n; i++)
			single = single && a.at[i].count == 1;
		for (int i = 0; i < b.n; i++)
			single = single && b.at[i].count == 1;
		if (single && hull == ntokens)
			assert_int_equal(all.n, 1);
	}
}

static void a_union_holds_both_sets_in_order_of_start(void **unused)
{
	(void) unused;
	each_case(check_union);
}

/* Shard r of S tokens dealt to P. */
static struct cpa_spans striped_shard(struct cpa_arena *arena, int64_t S, int64_t P, int64_t r)
{
	struct cpa_spans list = { 0 };

	for (int64_t t = r; t < S; t += P)
		cpa_spans_append_range(arena, &list, (struct cpa_range) { t, t + 1 });
	return list;
}

static void check_stripes(struct cpa_arena *arena)
{
	const int64_t P = 1 + below(8), S = 1 + below(100), first = below(P);
	int64_t order[8];
	struct cpa_spans all = { 0 }, wide = { 0 };

	for (int64_t r = 0; r < P; r++)
		order[r] = r;
	for (int64_t r = P - 1; r > 0; r--) {
		const int64_t k = below(r + 1), swapped = order[r];

		order[r] = order[k];
		order[k] = swapped;
	}
	for (int64_t r = 0; r < P; r++) {
		const struct cpa_spans shard = striped_shard(arena, S, P, order[r]);

		all = cpa_spans_union(arena, &all, &shard);
	}
	assert_int_equal(all.n, 1);
	assert_int_equal(all.at[0].start, 0);
	assert_int_equal(all.at[0].width, S);
	for (int64_t r = first; r < P; r++) { /* neighbours: one wide span and its tail */
		const struct cpa_spans shard = striped_shard(arena, S, P, r);

		wide = cpa_spans_union(arena, &wide, &shard);
		assert_true(wide.n <= (S / P < 3 ? 3 : 2));
	}
}

static void striped_shards_unite_to_one_span_in_any_order(void **unused)
{
	(void) unused;
	each_case(check_stripes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_of_common_and_lower_tokens_are_those_of_the_sets),
		cmocka_unit_test(a_union_holds_both_sets_in_order_of_start),
		cmocka_unit_test(striped_shards_unite_to_one_span_in_any_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
