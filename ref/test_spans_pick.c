/* test_spans_pick.c - the index of a list, and long lists as sets, against the tokens themselves. */
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNIVERSE = 6000, NCASES = 300 };

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t) ((state >> 33) % (uint64_t) n);
}

/* Each token goes to one of `nparts` lists or to none, in runs; equal runs at one distance come by
 * themselves.  tokens [UNIVERSE]: the list of each; -1 none. */
static void deal(int *owner, int nparts)
{
	const int64_t widest = 1 + below(4);

	for (int64_t t = 0; t < UNIVERSE;) {
		const int to = (int) below(nparts + 1) - 1;

		for (int64_t n = 1 + below(widest); n > 0 && t < UNIVERSE; n--)
			owner[t++] = to;
	}
}

static struct cpa_spans list_of(struct cpa_arena *arena, const int *owner, int part)
{
	struct cpa_spans list = { 0 };

	for (int64_t t = 0; t < UNIVERSE; t++) {
		if (owner[t] == part)
			cpa_spans_append_range(arena, &list, (struct cpa_range) { t, t + 1 });
	}
	return list;
}

static void an_index_finds_what_the_list_has(void **unused)
{
	(void) unused;
	for (int i = 0; i < NCASES; i++) {
		int owner[UNIVERSE];
		struct cpa_arena arena;
		struct cpa_spans list;
		struct cpa_spans_index index;
		int64_t n;

		state = (uint64_t) i;
		cpa_arena_init(&arena);
		deal(owner, 1 + (int) below(3));
		list = list_of(&arena, owner, 0);
		index = cpa_spans_index(&arena, &list);
		n = cpa_spans_ntokens(&list);
		for (int k = 0; k < 40; k++) {
			const int64_t step = 1 + below(3), first = below(n);
			const int64_t most = (n - first - 1) / step + 1;
			const int64_t take = below(most < 30 ? most + 1 : 30);
			const int64_t token = below(UNIVERSE + 20) - 10;
			const struct cpa_spans one =
				cpa_spans_index_pick(&arena, &index, first, take, step);
			struct cpa_span run = { 0, 1, 1, 1 };

			assert_int_equal(cpa_spans_index_below(&index, token),
				cpa_spans_below(&list, token));
			assert_int_equal(cpa_spans_ntokens(&one), take);
			for (int64_t m = 0; m < take; m++)
				assert_int_equal(cpa_spans_token(&one, m),
					cpa_spans_token(&list, first + m * step));
			if (take == 0 || !cpa_spans_index_run(&index, first, take, &run))
				continue;
			assert_true(run.count == 1 && run.width == take && run.stride == take);
			assert_int_equal(run.start, cpa_spans_token(&list, first));
			assert_int_equal(
				run.start + take - 1, cpa_spans_token(&list, first + take - 1));
		}
		cpa_arena_fini(&arena);
	}
}

static void an_empty_list_has_an_index(void **unused)
{
	struct cpa_arena arena;
	struct cpa_spans none = { 0 }, picked;
	struct cpa_spans_index index;
	struct cpa_span run;

	(void) unused;
	cpa_arena_init(&arena);
	index = cpa_spans_index(&arena, &none);
	assert_int_equal(cpa_spans_index_below(&index, 5), 0);
	picked = cpa_spans_index_pick(&arena, &index, 0, 0, 1);
	assert_int_equal(picked.n, 0);
	assert_false(cpa_spans_index_run(&index, 0, 1, &run));
	cpa_arena_fini(&arena);
}

/* The union of all parts, one after the other, is the list of what is in any; it stays in normal form,
 * and what two lists have in common is counted. */
static void unions_of_long_lists_hold_what_is_in_either(void **unused)
{
	(void) unused;
	for (int i = 0; i < NCASES / 10; i++) {
		const int nparts = 2 + (int) (i % 3);
		int owner[UNIVERSE], joined[UNIVERSE];
		struct cpa_arena arena;
		struct cpa_spans all = { 0 }, expected;

		state = (uint64_t) i + 77;
		cpa_arena_init(&arena);
		deal(owner, nparts);
		memset(joined, -1, sizeof joined);
		for (int part = 0; part < nparts; part++) {
			const struct cpa_spans list = list_of(&arena, owner, part);

			assert_true(list.n > 64);
			assert_int_equal(cpa_spans_ncommon(&all, &list), 0);
			all = cpa_spans_union(&arena, &all, &list);
			for (int64_t t = 0; t < UNIVERSE; t++)
				joined[t] = owner[t] == part ? 0 : joined[t];
			expected = list_of(&arena, joined, 0);
			assert_true(cpa_spans_same_set(&all, &expected));
			assert_int_equal(
				cpa_spans_ncommon(&all, &list), cpa_spans_ntokens(&list));
		}
		assert_true(all.n <= 2 * expected.n);
		cpa_arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_finds_what_the_list_has),
		cmocka_unit_test(an_empty_list_has_an_index),
		cmocka_unit_test(unions_of_long_lists_hold_what_is_in_either),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
