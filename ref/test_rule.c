/* test_rule.c - which keys a query sees: every rule and combination against its definition. */
#include "ref/ref.h"
#include "ref/test_rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct cpa_problem random_problem(struct cpa_arena *arena, int parts)
{
	struct cpa_problem problem = { .B = 1 + rng_below(3),
		.Sq = 1 + rng_below(10),
		.Skv = 1 + rng_below(10),
		.Hq = 2,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1.0 };
	struct cpa_error error;

	random_rule(arena, &problem, parts, (int)rng_below(16));
	if (cpa_problem_check(&problem, &error) != CPA_OK)
		fail_msg("%s", error.text);
	return problem;
}

static void check_rows(const struct cpa_problem *problem)
{
	for (int64_t b = 0; b < problem->B; b++) {
		struct cpa_range before = { 0, 0 };

		for (int64_t t = 0; t < problem->Sq; t++) {
			const struct cpa_range row = cpa_rule_row(problem, b, t);

			assert_true(row.start <= row.end && row.end <= problem->Skv);
			assert_true(before.start <= row.start && before.end <= row.end);
			for (int64_t j = 0; j < problem->Skv; j++)
				assert_int_equal(rule_shows(problem, b, t, j),
					j >= row.start && j < row.end);
			before = row;
		}
	}
}

static void every_rule_is_an_interval_of_the_keys_it_shows(void **state)
{
	(void)state;
	for (int i = 0; i < 8000; i++) {
		struct cpa_arena arena;
		struct cpa_problem problem;

		cpa_arena_init(&arena);
		problem = random_problem(&arena, i % 16);
		check_rows(&problem);
		cpa_arena_fini(&arena);
	}
}

/* What some row of the tokens sees, by definition; start = INT64_MAX, end = 0 for nothing. */
static struct cpa_range seen_by(const struct cpa_problem *problem, int64_t first, int64_t last)
{
	struct cpa_range seen = { INT64_MAX, 0 };

	for (int64_t b = 0; b < problem->B; b++)
		for (int64_t t = first; t <= last; t++)
			for (int64_t j = 0; j < problem->Skv; j++)
				if (rule_shows(problem, b, t, j)) {
					seen.start = j < seen.start ? j : seen.start;
					seen.end = j + 1 > seen.end ? j + 1 : seen.end;
				}
	return seen;
}

static bool sees_something(const struct cpa_problem *problem, int64_t t)
{
	return seen_by(problem, t, t).end > 0;
}

/* Tight but where documents and an offset together hide the first or last row. */
static void check_hull(const struct cpa_problem *problem, int64_t first, int64_t last)
{
	const struct cpa_range hull = cpa_rule_hull(problem, first, last),
			       seen = seen_by(problem, first, last);
	const bool aligned = !problem->rule.documents || problem->rule.offset == 0;

	assert_true(0 <= hull.start && hull.start <= hull.end && hull.end <= problem->Skv);
	if (seen.end > 0)
		assert_true(hull.start <= seen.start && seen.end <= hull.end);
	if (!aligned && !(sees_something(problem, first) && sees_something(problem, last)))
		return;
	if (seen.end > 0)
		assert_true(hull.start == seen.start && hull.end == seen.end);
	else
		assert_int_equal(hull.start, hull.end);
}

static void the_hull_of_tokens_holds_their_rows_and_no_more(void **state)
{
	(void)state;
	for (int i = 0; i < 3200; i++) {
		struct cpa_arena arena;
		struct cpa_problem problem;

		cpa_arena_init(&arena);
		problem = random_problem(&arena, i % 16);
		for (int64_t first = 0; first < problem.Sq; first++)
			for (int64_t last = first; last < problem.Sq; last++)
				check_hull(&problem, first, last);
		cpa_arena_fini(&arena);
	}
}

/* Sizes and offsets one by one, far beyond either end included. */
static void causal_rows_of_every_offset_hold(void **state)
{
	(void)state;
	for (int64_t offset = -12; offset <= 12; offset++)
		for (int64_t sizes = 0; sizes < 25; sizes++) {
			struct cpa_problem problem = { .B = 2,
				.Sq = 1 + sizes % 5 * 2,
				.Skv = 1 + sizes / 5 * 2,
				.Hq = 1,
				.Hkv = 1,
				.D = 1,
				.Dv = 1,
				.scale = 1.0,
				.rule = { .causal = offset < 12, .offset = offset } };

			check_rows(&problem);
			for (int64_t first = 0; first < problem.Sq; first++)
				for (int64_t last = first; last < problem.Sq; last++)
					check_hull(&problem, first, last);
		}
}

/* A token in the middle, none in empty documents at either end. */
static void empty_documents_own_no_token(void **state)
{
	static const int64_t starts[] = { 0, 0, 0, 3, 3, 5, 5, 5 };
	struct cpa_problem problem = { .B = 1,
		.Sq = 5,
		.Skv = 5,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.scale = 1.0,
		.rule = { .documents = starts, .ndocuments = 7 } };
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	for (int64_t t = 0; t < 5; t++) {
		struct cpa_range row = cpa_rule_row(&problem, 0, t);

		assert_int_equal(row.start, t < 3 ? 0 : 3);
		assert_int_equal(row.end, t < 3 ? 3 : 5);
	}
}

/* Ends of windows at the ends of int64. */
static void sides_and_offsets_however_large_do_not_wrap_around(void **state)
{
	static const int64_t far = (int64_t)1 << 61;
	struct cpa_problem problem = { .B = 1,
		.Sq = 5,
		.Skv = 7,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.scale = 1.0 };
	const struct {
		int64_t offset, left, right, start, end; /* of query 2 */
	} cases[] = {
		{ 0, INT64_MAX, INT64_MAX, 0, 7 },
		{ far, INT64_MAX, 0, 0, 7 },
		{ far, far, INT64_MAX, 2, 7 },
		{ -far, 0, INT64_MAX, 0, 7 },
		{ -far, INT64_MAX, far, 0, 3 },
		{ -far, INT64_MAX, 0, 0, 0 },
		{ far, 0, -1, 7, 7 },
	};
	struct cpa_error error;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_range row;

		problem.rule = (struct cpa_rule){ .window = true,
			.offset = cases[i].offset,
			.left = cases[i].left,
			.right = cases[i].right };
		assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
		row = cpa_rule_row(&problem, 0, 2);
		assert_int_equal(row.start, cases[i].start);
		assert_int_equal(row.end, cases[i].end);
	}
}

/* A million documents, a million queries: quick only if documents are not walked through. */
static void many_documents_cost_a_logarithm(void **state)
{
	enum { N = 1000000 };
	struct cpa_problem problem = { .B = 1,
		.Sq = 3 * N,
		.Skv = 3 * N,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.scale = 1.0,
		.rule = { .causal = true, .ndocuments = N } };
	int64_t *starts = malloc((N + 1) * sizeof(*starts));

	(void)state;
	assert_non_null(starts);
	for (int64_t i = 0; i <= N; i++)
		starts[i] = 3 * i;
	problem.rule.documents = starts;
	for (int64_t t = 0; t < 3 * N; t += 3) {
		struct cpa_range row = cpa_rule_row(&problem, 0, t + t / 3 % 3);
		struct cpa_range hull = cpa_rule_hull(&problem, t / 2, t);

		assert_true(row.start == t && row.end == t + t / 3 % 3 + 1);
		assert_true(hull.start == t / 2 / 3 * 3 && hull.end == t + 1);
	}
	free(starts);
}

/* Each of the 16 broadcast shapes, element by element. */
static void a_mask_broadcasts_over_every_axis_it_lacks(void **state)
{
	(void)state;
	for (int i = 0; i < 32; i++) {
		struct cpa_problem problem = { .B = 2,
			.Sq = 3,
			.Skv = 5,
			.Hq = 4,
			.Hkv = 2,
			.D = 1,
			.Dv = 1,
			.scale = 1.0 };
		struct cpa_arena arena;
		const uint8_t *attend;
		const char *data;

		cpa_arena_init(&arena);
		random_mask(&arena, &problem, i % 2, i / 2);
		data = problem.rule.mask.data;
		attend = problem.rule.mask.data;
		for (int64_t n = 0; n < 2 * 4 * 3 * 5; n++) {
			int64_t b = n / 60, h = n / 15 % 4, t = n / 5 % 3, j = n % 5, at = 0;
			double want;

			/* Row-major over the axes that are there. */
			at = i / 2 & 8 ? b : 0;
			at = i / 2 & 4 ? at * 4 + h : at;
			at = i / 2 & 2 ? at * 3 + t : at;
			at = i / 2 & 1 ? at * 5 + j : at;
			want = i % 2 ? cpa_load(problem.rule.mask.dtype, data, at)
				     : (attend[at] ? 0.0 : -INFINITY);
			assert_true(cpa_mask_value(&problem, b, h, t, j) == want);
		}
		problem.rule.mask.kind = CPA_MASK_NONE;
		assert_true(cpa_mask_value(&problem, 1, 3, 2, 4) == 0.0);
		cpa_arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_is_an_interval_of_the_keys_it_shows),
		cmocka_unit_test(the_hull_of_tokens_holds_their_rows_and_no_more),
		cmocka_unit_test(causal_rows_of_every_offset_hold),
		cmocka_unit_test(empty_documents_own_no_token),
		cmocka_unit_test(sides_and_offsets_however_large_do_not_wrap_around),
		cmocka_unit_test(many_documents_cost_a_logarithm),
		cmocka_unit_test(a_mask_broadcasts_over_every_axis_it_lacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
