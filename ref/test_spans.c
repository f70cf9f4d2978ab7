/* test_spans.c - ordered lists of spans against arrays of tokens, one by one. */
#include "ref/ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 4096, UNIVERSE = 640, NCASES = 4000 };

/* The model: the tokens themselves. */
struct tokens {
	int64_t at[MOST];
	int n;
};

static uint64_t state;

static int64_t below(int64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (int64_t) ((state >> 33) % (uint64_t) n);
}

static void expand(const struct cpa_spans *list, struct tokens *tokens)
{
	tokens->n = 0;
	for (int i = 0; i < list->n; i++) {
		const struct cpa_span *span = &list->at[i];

		assert_true(
			span->width >= 1 && span->count >= 1 && span->stride >= span->width);
		for (int64_t run = 0; run < span->count; run++) {
			for (int64_t x = 0; x < span->width; x++) {
				assert_true(tokens->n < MOST);
				tokens->at[tokens->n++] = span->start + run * span->stride + x;
			}
		}
	}
}

static void assert_tokens(const struct cpa_spans *list, const struct tokens *expected)
{
	struct tokens got;

	expand(list, &got);
	assert_int_equal(got.n, expected->n);
	for (int i = 0; i < got.n; i++)
		assert_int_equal(got.at[i], expected->at[i]);
}

static struct cpa_span random_span(int64_t far)
{
	const int64_t width = below(3) == 0 ? 1 + below(9) : 1;
	const int64_t stride = width + (below(3) == 0 ? 0 : below(7)), count = 1 + below(6);

	return (struct cpa_span) { below(far), width, stride, below(2) == 0 ? 1 : count };
}

/* Any list: ascending or not, with repeats, sometimes built so that much of it coalesces. */
static struct cpa_spans random_list(struct cpa_arena *arena, struct tokens *tokens)
{
	struct cpa_spans list = { 0 }, one = { 0 };
	const int n = (int) below(8);
	int64_t next = below(50);
	struct tokens more;

	tokens->n = 0;
	for (int i = 0; i < n; i++) {
		struct cpa_span span = random_span(UNIVERSE);

		if (below(3) != 0)
			span.start = next + (below(2) == 0 ? 0 : below(6));
		next = span.start + (span.count - 1) * span.stride + span.width;
		one = (struct cpa_spans) { .at = &span, .n = 1 };
		expand(&one, &more);
		memcpy(tokens->at + tokens->n, more.at, (size_t) more.n * sizeof *more.at);
		tokens->n += more.n;
		cpa_spans_append(arena, &list, span);
	}
	return list;
}

/* The same list in another form: cut into pieces at random, which are not coalesced. */
static struct cpa_spans cut_up(struct cpa_arena *arena, const struct tokens *tokens)
{
	struct cpa_spans list = { 0 };
	int i = 0;

	list.at = cpa_arena_alloc(arena, (size_t) (tokens->n + 1) * sizeof *list.at);
	while (i < tokens->n) {
		struct cpa_span span = { tokens->at[i++], 1, 1, 1 };

		while (i < tokens->n && tokens->at[i] == span.start + span.width &&
			below(4) != 0) {
			span.width++;
			i++;
		}
		span.stride = span.width + below(3);
		if (i < tokens->n && span.width == 1 && tokens->at[i] > span.start &&
			below(2) == 0) {
			span.stride = tokens->at[i++] - span.start;
			span.count = 2;
		}
		list.at[list.n++] = span;
	}
	return list;
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

static void check_append(struct cpa_arena *arena)
{
	struct tokens tokens;
	const struct cpa_spans list = random_list(arena, &tokens);
	struct cpa_spans single = { 0 };

	assert_tokens(&list, &tokens);
	assert_int_equal(cpa_spans_ntokens(&list), tokens.n);
	/* The form depends on the tokens alone: one by one gives the same spans. */
	for (int i = 0; i < tokens.n; i++)
		cpa_spans_append(arena, &single, (struct cpa_span) { tokens.at[i], 1, 1, 1 });
	assert_int_equal(single.n, list.n);
	for (int i = 0; i < list.n; i++)
		assert_memory_equal(&single.at[i], &list.at[i], sizeof *list.at);
}

static void appending_keeps_the_tokens_and_a_form_that_depends_on_them_alone(void **unused)
{
	(void) unused;
	each_case(check_append);
}

static void check_pick(struct cpa_arena *arena)
{
	struct tokens tokens, expected;
	struct cpa_spans list = random_list(arena, &tokens), picked;
	int64_t first, step, most;

	if (below(2) == 0)
		list = cut_up(arena, &tokens);
	if (tokens.n == 0) {
		assert_int_equal(cpa_spans_pick(arena, &list, 0, 0, 1).n, 0);
		return;
	}
	for (int i = 0; i < 8; i++) {
		first = below(tokens.n);
		step = i < 3 ? 1 : 1 + below(9);
		most = (tokens.n - first - 1) / step + 1;
		expected.n = (int) below(most + 1);
		for (int k = 0; k < expected.n; k++)
			expected.at[k] = tokens.at[first + k * step];
		picked = cpa_spans_pick(arena, &list, first, expected.n, step);
		assert_tokens(&picked, &expected);
		assert_int_equal(cpa_spans_token(&list, first), tokens.at[first]);
	}
}

static void picking_by_index_and_step_takes_those_tokens(void **unused)
{
	(void) unused;
	each_case(check_pick);
}

static void check_equal(struct cpa_arena *arena)
{
	struct tokens tokens, other;
	const struct cpa_spans list = random_list(arena, &tokens), cut = cut_up(arena, &tokens);
	const struct cpa_spans again = cut_up(arena, &tokens);
	struct cpa_spans changed;

	assert_true(cpa_spans_equal(&list, &list));
	assert_true(cpa_spans_equal(&list, &cut) && cpa_spans_equal(&cut, &list));
	assert_true(cpa_spans_equal(&cut, &again));
	if (tokens.n == 0)
		return;
	other = tokens;
	other.at[below(tokens.n)] += 1 + below(3);
	changed = cut_up(arena, &other);
	assert_false(cpa_spans_equal(&list, &changed) || cpa_spans_equal(&changed, &list));
	other = tokens;
	other.n--;
	changed = cut_up(arena, &other);
	assert_false(cpa_spans_equal(&list, &changed) || cpa_spans_equal(&changed, &list));
	if (tokens.n > 1 && tokens.at[0] != tokens.at[1]) { /* the order counts */
		other = tokens;
		other.at[0] = tokens.at[1];
		other.at[1] = tokens.at[0];
		changed = cut_up(arena, &other);
		assert_false(cpa_spans_equal(&list, &changed));
	}
}

static void lists_are_equal_if_their_tokens_are_however_they_are_cut(void **unused)
{
	(void) unused;
	each_case(check_equal);
}

static void check_hull(struct cpa_arena *arena)
{
	struct tokens tokens;
	const struct cpa_spans list = random_list(arena, &tokens);
	int64_t min = INT64_MAX, max = INT64_MIN;

	for (int i = 0; i < tokens.n; i++) {
		min = tokens.at[i] < min ? tokens.at[i] : min;
		max = tokens.at[i] > max ? tokens.at[i] : max;
	}
	if (tokens.n == 0)
		return;
	assert_int_equal(cpa_spans_min(&list), min);
	assert_int_equal(cpa_spans_max(&list), max);
}

static void min_and_max_are_those_of_the_tokens(void **unused)
{
	(void) unused;
	each_case(check_hull);
}

static struct cpa_spans list_of(struct cpa_arena *arena, int n, const struct cpa_span *spans)
{
	struct cpa_spans list = { 0 };

	for (int i = 0; i < n; i++)
		cpa_spans_append(arena, &list, spans[i]);
	return list;
}

static void a_run_that_grows_leaves_the_span_it_was_in(void **unused)
{
	const struct cpa_span spans[] = { { 0, 4, 10, 3 }, { 24, 2, 2, 1 } };
	struct cpa_arena arena;
	struct cpa_spans list;

	(void) unused;
	cpa_arena_init(&arena);
	list = list_of(&arena, 2, spans);
	assert_int_equal(list.n, 3); /* 0-3 10-13 20-25 */
	assert_int_equal(list.at[2].start, 20);
	assert_int_equal(list.at[2].width, 6);
	cpa_arena_fini(&arena);
}

static void huge_spans_are_counted_without_expanding_them(void **unused)
{
	const int64_t count = (int64_t) 1 << 40;
	const struct cpa_span even = { 0, 2, 8, count }, odd = { 3, 3, 8, count };
	struct cpa_arena arena;
	struct cpa_spans a, b, all;

	(void) unused;
	cpa_arena_init(&arena);
	a = list_of(&arena, 1, &even);
	b = list_of(&arena, 1, &odd);
	assert_int_equal(a.n, 1);
	assert_int_equal(cpa_spans_ncommon(&a, &b), 0);
	assert_int_equal(cpa_spans_ncommon(&b, &b), 3 * count);
	assert_int_equal(cpa_spans_below(&b, 8 * count), 3 * count);
	assert_true(cpa_spans_equal(&b, &b) && !cpa_spans_equal(&a, &b));
	all = cpa_spans_pick(&arena, &a, 1, count, 2);
	assert_int_equal(all.n, 1);
	assert_int_equal(all.at[0].stride, 8);
	b = list_of(&arena, 1, &(struct cpa_span) { 2, 6, 8, count });
	all = cpa_spans_union(&arena, &a, &b);
	assert_int_equal(all.n, 1);
	assert_int_equal(all.at[0].width, 8 * count);
	cpa_arena_fini(&arena);
}

static void lists_print_as_documented(void **unused)
{
	const struct cpa_span spans[] = { { 0, 4, 4, 1 }, { 7, 1, 1, 1 }, { 10, 1, 4, 4 },
		{ 30, 2, 5, 3 }, { 60, 2, 7, 2 } };
	const struct cpa_spans two = { .at = (struct cpa_span[]) { { 3, 2, 6, 2 } }, .n = 1 };
	const struct cpa_spans none = { 0 };
	struct cpa_arena arena;
	struct cpa_spans list;
	char text[80];

	(void) unused;
	cpa_arena_init(&arena);
	list = list_of(&arena, 5, spans);
	cpa_spans_print(&list, text, sizeof text);
	assert_string_equal(text, "0-3 7 10-22:4 30-41:5x2 60-61 67-68");
	cpa_spans_print(&two, text, sizeof text);
	assert_string_equal(text, "3-4 9-10");
	cpa_spans_print(&none, text, sizeof text);
	assert_string_equal(text, "none");
	for (size_t size = 8; size < sizeof text;
		size++) { /* cut between spans, never within */
		char cut[80];
		size_t n;

		cpa_spans_print(&list, cut, size);
		n = strlen(cut);
		assert_true(n < size);
		if (size > strlen("0-3 7 10-22:4 30-41:5x2 60-61 67-68")) {
			assert_int_equal(n, 35);
			continue;
		}
		assert_string_equal(cut + n - 3, "...");
		assert_memory_equal(cut, "0-3 7 10-22:4 30-41:5x2 60-61 67-68", n - 3);
	}
	cpa_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			appending_keeps_the_tokens_and_a_form_that_depends_on_them_alone),
		cmocka_unit_test(picking_by_index_and_step_takes_those_tokens),
		cmocka_unit_test(lists_are_equal_if_their_tokens_are_however_they_are_cut),
		cmocka_unit_test(min_and_max_are_those_of_the_tokens),
		cmocka_unit_test(a_run_that_grows_leaves_the_span_it_was_in),
		cmocka_unit_test(huge_spans_are_counted_without_expanding_them),
		cmocka_unit_test(lists_print_as_documented),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
