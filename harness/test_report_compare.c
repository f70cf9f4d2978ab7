/*
 * test_report_compare.c - two runs of one command: what changed, what is a regression, and the
 * lines that a CI gets.
 */
#include "harness/test_report.h"

#define RIGHT(ring) RESULT("ring", ring, "right", "null", "0.25", "64")
#define WRONG(ring) RESULT("ring", ring, "wrong", "\"o is off, 100% of it\"", "7", "64")
#define NONE(ring) RESULT("ring", ring, "unsupported", REFUSED, "null", "64")

struct pairing {
	const char *before, *after;
	enum cpa_change change;
	int nregressions, nchanges;
};

static void each_change_has_its_name(void **state)
{
	static const struct pairing cases[] = {
		{HEAD("verify") RIGHT("2") TAIL, HEAD("verify") RIGHT("2") TAIL, CPA_CHANGE_NONE,
			0, 0},
		{HEAD("verify") WRONG("2") TAIL, HEAD("verify") WRONG("2") TAIL, CPA_CHANGE_NONE,
			0, 0},
		{HEAD("verify") RIGHT("2") TAIL, HEAD("verify") WRONG("2") TAIL, CPA_CHANGE_WRONG,
			1, 1},
		{HEAD("verify") NONE("2") TAIL, HEAD("verify") WRONG("2") TAIL, CPA_CHANGE_WRONG,
			1, 1},
		{HEAD("verify") TAIL, HEAD("verify") WRONG("2") TAIL, CPA_CHANGE_WRONG, 1, 1},
		{HEAD("verify") TAIL, HEAD("verify") RIGHT("2") TAIL, CPA_CHANGE_ADDED, 0, 1},
		{HEAD("verify") RIGHT("2") TAIL, HEAD("verify") TAIL, CPA_CHANGE_VANISHED, 1, 1},
		{HEAD("verify") RIGHT("2") TAIL, HEAD("verify") NONE("2") TAIL,
			CPA_CHANGE_VANISHED, 1, 1},
		{HEAD("verify") WRONG("2") TAIL, HEAD("verify") RIGHT("2") TAIL, CPA_CHANGE_FIXED,
			0, 1},
		{HEAD("verify") NONE("2") TAIL, HEAD("verify") RIGHT("2") TAIL,
			CPA_CHANGE_VERDICT, 0, 1},
		{HEAD("verify") RIGHT("2") TAIL,
			HEAD("verify") RESULT("ring", "2", "right", "null", "0.25", "65") TAIL,
			CPA_CHANGE_NUMBERS, 0, 1},
		{HEAD("verify") RIGHT("2") TAIL,
			HEAD("verify") RESULT("ring", "2", "right", "null", "0.5", "64") TAIL,
			CPA_CHANGE_NUMBERS, 0, 1},
		{HEAD("verify") RIGHT("2") TAIL,
			HEAD("verify") RESULT("ring", "2", "right", "null", "0.2501", "64") TAIL,
			CPA_CHANGE_NONE, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct made m;

		make(&m, cases[i].before, cases[i].after);
		assert_int_equal(m.comparison.n, 1);
		assert_int_equal(m.comparison.pairs[0].change, cases[i].change);
		assert_int_equal(m.comparison.nregressions, cases[i].nregressions);
		assert_int_equal(m.comparison.nchanges, cases[i].nchanges);
		forget(&m);
	}
}

static void results_are_paired_by_what_they_are_of_and_not_by_their_order(void **state)
{
	struct made m;

	(void)state;
	make(&m, HEAD("verify") RIGHT("2") ", " WRONG("3") ", " NONE("4") TAIL,
		HEAD("verify") NONE("4") ", " RIGHT("2") ", " WRONG("3") TAIL);
	assert_int_equal(m.comparison.n, 3);
	assert_int_equal(m.comparison.nchanges, 0);
	forget(&m);
	/* Twice the same configuration: as many before as after. */
	make(&m, HEAD("verify") RIGHT("2") ", " RIGHT("2") TAIL, HEAD("verify") RIGHT("2") TAIL);
	assert_int_equal(m.comparison.n, 2);
	assert_int_equal(m.comparison.nregressions, 1);
	forget(&m);
}

/* A result of bench with these quartiles. */
#define TIMED(q1, median, q3)                                                                    \
	HEAD("bench")                                                                            \
	"{\"file\": null, \"call\": null, \"variant\": \"ring\", \"batch\": 1, \"ring\": 2, "    \
	"\"ulysses\": 1, \"verdict\": \"right\", \"seconds\": {\"n\": 5, \"min\": 1, "           \
	"\"q1\": " q1 ", \"median\": " median ", \"q3\": " q3 ", \"max\": 99}}" TAIL

static void times_change_only_beyond_their_spread_and_are_no_regression(void **state)
{
	struct made m;

	(void)state;
	make(&m, TIMED("2", "3", "4"), TIMED("3", "3.9", "5"));
	assert_int_equal(m.comparison.nchanges, 0);
	forget(&m);
	make(&m, TIMED("2", "3", "4"), TIMED("5", "6", "7"));
	assert_int_equal(m.comparison.nchanges, 1);
	assert_int_equal(m.comparison.nregressions, 0);
	assert_true(m.comparison.pairs[0].time == 2);
	write_html(&m);
	assert_has(m.text, "median time x 2");
	forget(&m);
	/* The new median is within the old quartiles. */
	make(&m, TIMED("2", "3", "4"), TIMED("3.5", "3.8", "3.9"));
	assert_int_equal(m.comparison.nchanges, 0);
	forget(&m);
	/* The old median is within the new quartiles. */
	make(&m, TIMED("2", "3", "4"), TIMED("1", "6", "7"));
	assert_int_equal(m.comparison.nchanges, 0);
	forget(&m);
}

static void the_page_marks_changes_and_judges_the_second_run(void **state)
{
	struct made m;

	(void)state;
	make(&m, HEAD("verify") RIGHT("2") ", " RIGHT("3") TAIL, HEAD("verify") WRONG("2") TAIL);
	write_html(&m);
	assert_has(m.text, "2 regressions, 2 of 2 results changed");
	assert_has(m.text, "newly wrong");
	assert_has(m.text, "vanished");
	free(m.text);
	write_markdown(&m);
	assert_has(m.text, "newly wrong");
	forget(&m);
}

static char *annotate(struct made *m)
{
	FILE *out = open_memstream(&m->text, &m->nbytes);

	cpa_report_annotations(out, &m->report);
	fclose(out);
	return m->text;
}

static void an_annotation_is_one_escaped_line_of_what_is_wrong(void **state)
{
	struct made m;

	(void)state;
	make(&m, HEAD("verify") RIGHT("2") ", " WRONG("3") ", " NONE("4") TAIL, NULL);
	assert_string_equal(annotate(&m),
		"::error file=x.h5,title=wrong%3A ring 1x3x1 p2p::c: o is off, 100%25 of it\n");
	forget(&m);
	make(&m,
		HEAD("verify") "{\"file\": \"a,b:c\", \"call\": \"d\\ne\", \"verdict\": "
			       "\"cannot_tell\", \"reason\": \"x\\r\\n::error::y\"}" TAIL,
		NULL);
	assert_string_equal(annotate(&m),
		"::warning file=a%2Cb%3Ac,title=cannot tell%3A all of it::d%0Ae: "
		"x%0D%0A::error::y\n");
	forget(&m);
}

static void of_two_runs_the_second_is_annotated_and_what_vanished(void **state)
{
	struct made m;

	(void)state;
	make(&m, HEAD("verify") WRONG("2") ", " RIGHT("3") ", " RIGHT("4") TAIL,
		HEAD("verify") RIGHT("2") ", " WRONG("3") TAIL);
	annotate(&m);
	assert_int_equal(count_of(m.text, "\n"), 2);
	assert_has(m.text, "wrong%3A ring 1x3x1 p2p");
	assert_has(m.text, "regression%2C vanished%3A ring 1x4x1 p2p");
	forget(&m);
}

static void junit_of_two_runs_fails_what_vanished(void **state)
{
	struct made m;
	FILE *out;

	(void)state;
	make(&m, HEAD("verify") RIGHT("2") ", " RIGHT("3") TAIL, HEAD("verify") RIGHT("2") TAIL);
	out = open_memstream(&m.text, &m.nbytes);
	cpa_report_junit(out, &m.report);
	fclose(out);
	assert_has(m.text, "<testsuite name=\"vanished\" tests=\"1\" failures=\"1\">");
	assert_int_equal(count_of(m.text, "<failure"), 1);
	forget(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_change_has_its_name),
		cmocka_unit_test(results_are_paired_by_what_they_are_of_and_not_by_their_order),
		cmocka_unit_test(times_change_only_beyond_their_spread_and_are_no_regression),
		cmocka_unit_test(the_page_marks_changes_and_judges_the_second_run),
		cmocka_unit_test(an_annotation_is_one_escaped_line_of_what_is_wrong),
		cmocka_unit_test(of_two_runs_the_second_is_annotated_and_what_vanished),
		cmocka_unit_test(junit_of_two_runs_fails_what_vanished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
