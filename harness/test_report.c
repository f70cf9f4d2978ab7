/*
 * test_report.c - reports read from JSON, whole, older and damaged, and the pages made of them.
 */
#include "harness/test_report.h"

/* ---- reading ---- */

static const char whole[] = HEAD("verify") RESULT("ring", "2", "unsupported", REFUSED, "null",
	"0") ", " RESULT("ring_anything", "2", "right", "null", "0.25",
	"64") ", " RESULT("ring_anything", "3", "wrong", "\"o is off\"", "\"inf\"", "96") TAIL;

static void what_the_file_says_is_read(void **state)
{
	struct made m;
	const struct cpa_reported *r;

	(void)state;
	make(&m, whole, NULL);
	assert_int_equal(m.runs[0].n, 3);
	assert_int_equal(m.runs[0].ngaps, 0);
	assert_int_equal(m.runs[0].counts[CPA_VERDICT_RIGHT], 1);
	assert_int_equal(m.runs[0].counts[CPA_VERDICT_WRONG], 1);
	assert_int_equal(m.runs[0].counts[CPA_VERDICT_UNSUPPORTED], 1);
	r = &m.runs[0].results[1];
	assert_string_equal(r->label, "ring_anything 1x2x1 p2p");
	assert_true(r->o.ratio == 0.25 && r->o.token == 3 && !r->lse.there);
	assert_true(
		cpa_series_sum(&r->bytes_sent) == 128 && cpa_series_max(&r->peak_bytes) == 200);
	assert_true(cpa_series_imbalance(&r->work) == 1.5);
	assert_true(isinf(m.runs[0].results[2].o.ratio));
	assert_true(isnan(m.runs[0].results[0].o.ratio));
	forget(&m);
}

struct refusal {
	const char *json, *says;
};

static void what_is_no_report_is_refused_with_the_place(void **state)
{
	static const struct refusal cases[] = {
		{"", "line 1"},
		{"{\n\"a\": 1,\n}", "line 3"},
		{"{\"format\": 1, \"results\": [", "line 1"},
		{"[]", "/: expected an object"},
		{"3", "/: expected an object"},
		{"{}", "/results: missing, expected an array"},
		{"{\"results\": {}}", "/results: expected an array"},
		{"{\"format\": 2, \"results\": []}", "/format: expected 1"},
		{"{\"format\": \"1\", \"results\": []}", "/format: expected 1"},
		{"{\"format\": null, \"results\": []}", "/format: expected 1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cpa_report_run run;
		struct cpa_error error = {""};
		struct cpa_arena arena;

		cpa_arena_init(&arena);
		assert_int_equal(cpa_report_parse("x.json", cases[i].json, strlen(cases[i].json),
					 &arena, &run, &error),
			CPA_INVALID);
		assert_has(error.text, "x.json");
		assert_has(error.text, cases[i].says);
		cpa_arena_fini(&arena);
	}
}

static bool has_gap(const struct cpa_report_run *run, const char *path, bool kind, int count)
{
	for (int g = 0; g < run->ngaps; g++)
		if (strcmp(run->gaps[g].path, path) == 0 && run->gaps[g].kind == kind &&
			run->gaps[g].count == count)
			return true;
	return false;
}

static void what_an_older_file_lacks_is_named(void **state)
{
	struct made m;

	(void)state;
	make(&m, "{\"results\": [{\"variant\": \"ring\", \"new\": {\"er\": 1}}, {}, 7]}", NULL);
	assert_int_equal(m.runs[0].n, 2);
	assert_true(has_gap(&m.runs[0], "format", false, 1));
	assert_true(has_gap(&m.runs[0], "cpattn", false, 1));
	assert_true(has_gap(&m.runs[0], "command", false, 1));
	assert_true(has_gap(&m.runs[0], "machine", false, 1));
	assert_true(has_gap(&m.runs[0], "summary", false, 1));
	assert_true(has_gap(&m.runs[0], "results/*", true, 1));
	assert_int_equal(m.runs[0].results[0].verdict, CPA_VERDICT_CANNOT_TELL);
	write_html(&m);
	assert_has(m.text, "before.json: format is missing");
	assert_has(m.text, "the file does not say a verdict");
	forget(&m);
}

static void a_member_that_is_missing_or_of_another_kind_is_named(void **state)
{
	struct made m;

	(void)state;
	make(&m,
		HEAD("verify") "{\"verdict\": \"fine\", \"o\": 3, \"work\": [1, \"x\"], "
			       "\"bytes_sent\": [-1], \"ring\": 2.5}" TAIL,
		NULL);
	assert_true(has_gap(&m.runs[0], "results/*/verdict", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/o", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/work", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/bytes_sent", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/ring", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/lse", false, 1));
	assert_true(has_gap(&m.runs[0], "results/*/variant", false, 1));
	assert_false(has_gap(&m.runs[0], "results/*/proof", false, 1)); /* only plan has it */
	forget(&m);
}

/* Every name and text in turn becomes another one: the file is read, and a page made of it. */
static void no_single_damage_is_fatal(void **state)
{
	size_t n = strlen(whole);
	char *json = malloc(n + 1);

	(void)state;
	for (size_t i = 0; i + 1 < n; i++) {
		struct made m;
		struct cpa_report_run run;
		struct cpa_error error = {""};

		if (whole[i] != '"' || !strchr(",{ ", whole[i ? i - 1 : 0]))
			continue;
		memcpy(json, whole, n + 1);
		json[i + 1] = 'X'; /* another name, or another text */
		memset(&m, 0, sizeof m);
		cpa_arena_init(&m.arena);
		if (cpa_report_parse("x", json, n, &m.arena, &run, &error) == CPA_OK) {
			m.report = (struct cpa_report){
				.runs = &run, .nruns = 1, .plots = m.plots, .arena = &m.arena};
			write_html(&m);
			assert_true(m.nbytes > 0);
		} else {
			assert_true(error.text[0] != '\0');
		}
		forget(&m);
	}
	free(json);
}

/* ---- pages ---- */

/* Tags close in the order in which they opened, texts have no bare < or &, and nothing is loaded.
 */
static void assert_well_formed(const char *html)
{
	char open[32][24];
	int depth = 0;

	for (const char *c = html; (c = strchr(c, '<')); c++) {
		char name[24];
		const char *stop = strchr(c, '>');
		bool closes = c[1] == '/';
		size_t length = strcspn(c + 1 + closes, " />\n");

		assert_non_null(stop);
		if (c[1] == '!')
			continue;
		assert_true(length > 0 && length < sizeof name);
		snprintf(name, sizeof name, "%.*s", (int)length, c + 1 + closes);
		if (closes) {
			assert_true(depth > 0);
			assert_string_equal(open[--depth], name);
		} else if (stop[-1] != '/') {
			assert_true(depth < 32);
			memcpy(open[depth++], name, sizeof name);
		}
	}
	assert_int_equal(depth, 0);
	for (const char *c = html; (c = strchr(c, '&')); c++)
		assert_true(strcspn(c, ";") < 10);
	assert_lacks(html, "src=");
	assert_lacks(html, "href=");
	assert_lacks(html, "url(");
	assert_lacks(html, "<script");
}

static void the_page_is_well_formed_and_holds_every_result(void **state)
{
	struct made m;

	(void)state;
	make(&m, whole, NULL);
	write_html(&m);
	assert_well_formed(m.text);
	assert_has(m.text, "ring 1x2x1 p2p");
	assert_has(m.text, "ring_anything 1x2x1 p2p");
	assert_has(m.text, "ring_anything 1x3x1 p2p");
	assert_has(m.text, "Sq = 37 is not divisible by R U = 2");
	assert_has(m.text, "o is off");
	assert_has(m.text, "All 3 results");
	/* Each verdict has a symbol, not a colour alone. */
	assert_has(m.text, "\xe2\x9c\x93 right");
	assert_has(m.text, "\xe2\x9c\x97 wrong");
	assert_has(m.text, "\xe2\x8a\x98 unsupported");
	forget(&m);
}

static const char hostile[] = HEAD(
	"verify") "{\"file\": \"<b>&'\\\"|`\\n# x\", \"call\": \"@all\", "
		  "\"variant\": \"<script>alert(1)</script>\", \"batch\": 1, \"ring\": 1, "
		  "\"ulysses\": 1, "
		  "\"verdict\": \"wrong\", \"reason\": \"a|b *c* <img src=x> http://x\"}" TAIL;

static void text_from_the_file_is_only_text(void **state)
{
	struct made m;

	(void)state;
	make(&m, hostile, NULL);
	write_html(&m);
	assert_lacks(m.text, "<script");
	assert_lacks(m.text, "<img");
	assert_lacks(m.text, "<b>");
	assert_has(m.text, "&lt;script&gt;");
	free(m.text);
	write_markdown(&m);
	assert_lacks(m.text, "<script");
	assert_lacks(m.text, "<img");
	assert_lacks(m.text, "@all |");
	assert_lacks(m.text, "http://");
	assert_has(m.text, "a\\|b \\*c\\* &lt;img");
	for (const char *line = m.text; line;
		line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		assert_true(strncmp(line, "# x", 3) != 0);
	forget(&m);
}

/* n results, each with a reason of many bytes. */
static char *make_long(int n)
{
	char *text = NULL;
	size_t nbytes;
	FILE *out = open_memstream(&text, &nbytes);

	fputs(HEAD("verify"), out);
	for (int i = 0; i < n; i++)
		fprintf(out,
			"%s{\"file\": \"f%d\", \"call\": \"c\", \"variant\": \"v\", \"batch\": "
			"1, "
			"\"ring\": %d, \"ulysses\": 1, \"verdict\": \"wrong\", \"reason\": "
			"\"%0500d\"}",
			i ? ", " : "", i % 300, i + 1, i);
	fputs(TAIL, out);
	fclose(out);
	return text;
}

static void a_comment_is_never_too_long_and_says_what_it_leaves_out(void **state)
{
	char *json = make_long(2000);
	struct made m;

	(void)state;
	make(&m, json, NULL);
	write_markdown(&m);
	assert_true(m.nbytes <= CPA_MARKDOWN_LIMIT);
	assert_has(m.text, "rows more are in index.html");
	assert_int_equal(count_of(m.text, "<details>"), count_of(m.text, "</details>"));
	free(m.text);
	write_html(&m);
	assert_well_formed(m.text);
	assert_has(m.text, "v 1x2000x1"); /* the page has all of them */
	forget(&m);
	free(json);
}

static void a_short_comment_has_every_result_and_no_excuse(void **state)
{
	struct made m;

	(void)state;
	make(&m, whole, NULL);
	write_markdown(&m);
	assert_lacks(m.text, "index.html");
	assert_has(m.text, "ring\\_anything 1x3x1 p2p");
	assert_has(m.text, "<details>");
	forget(&m);
}

static void junit_counts_each_verdict_once(void **state)
{
	struct made m;
	FILE *out;

	(void)state;
	make(&m, whole, NULL);
	out = open_memstream(&m.text, &m.nbytes);
	cpa_report_junit(out, &m.report);
	fclose(out);
	assert_has(m.text, "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\"");
	assert_int_equal(count_of(m.text, "<testcase"), 3);
	assert_int_equal(count_of(m.text, "<failure"), 1);
	assert_int_equal(count_of(m.text, "<skipped"), 1);
	forget(&m);
}

/* ---- planted faults ---- */

#define FAULT(verdict, class, name, counts, variants)                                            \
	"{\"verdict\": \"" verdict "\", \"reason\": null, \"fault\": {\"class\": " class               \
	", \"name\": \"" name "\", " counts ", \"variants\": {" variants "}}}"
#define COUNTS(found, named, tied, other)                                                        \
	"\"planted\": 40, \"seen\": 39, \"found\": " found ", \"named\": " named                       \
	", \"tied\": " tied ", \"other\": " other ", \"missed\": 2"

static const char faults[] = HEAD("faults") FAULT("right", "\"A01\"", "lse-base-2",
	COUNTS("38", "30", "6", "0"), "\"ring\": [20, 19], \"unified\": [18, 17]") ", "
	FAULT("wrong", "\"D05\"", "heads-rotated", COUNTS("37", "20", "4", "11"), "") ", "
	FAULT("right", "null", "none", COUNTS("0", "0", "0", "0"), "") TAIL;

static void a_table_of_planted_faults_is_read_and_shown(void **state)
{
	struct made m;
	const struct cpa_reported_fault *f;

	(void)state;
	make(&m, faults, NULL);
	assert_int_equal(m.runs[0].n, 3);
	f = m.runs[0].results[0].fault;
	assert_non_null(f);
	assert_string_equal(m.runs[0].results[0].label, "A01 lse-base-2");
	assert_true(f->planted == 40 && f->seen == 39 && f->found == 38 && f->named == 30 &&
		    f->tied == 6 && f->other == 0 && f->missed == 2);
	assert_true(f->of[CPA_VARIANT_RING][0] == 20 && f->of[CPA_VARIANT_UNIFIED][1] == 17);
	assert_null(m.runs[0].results[2].fault->class);
	write_html(&m);
	assert_well_formed(m.text);
	assert_has(m.text, "Of 75 runs that check found wrong, diagnose named the fault in 50");
	assert_has(m.text, "named another in 11");
	assert_has(m.text, "Of 40 runs without a fault, 39 were called wrong");
	assert_has(m.text, "heads-rotated");
	assert_has(m.text, "19 of 20");
	free(m.text);
	write_markdown(&m);
	assert_has(m.text, "| A01 |");
	assert_has(m.text, "19 of 20");
	forget(&m);
}

static void what_a_table_of_faults_lacks_is_named(void **state)
{
	struct made m;

	(void)state;
	make(&m,
		HEAD("faults") "{\"verdict\": \"right\", \"fault\": {\"class\": \"A01\", \"name\": 3, "
			       "\"variants\": {\"ring\": [1], \"unified\": 4}}}" TAIL,
		NULL);
	assert_true(has_gap(&m.runs[0], "results/*/fault/named", false, 1));
	assert_true(has_gap(&m.runs[0], "results/*/fault/name", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/fault/variants/unified", true, 1));
	assert_true(has_gap(&m.runs[0], "results/*/fault/variants/ulysses", false, 1));
	write_html(&m);
	assert_well_formed(m.text);
	forget(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_file_says_is_read),
		cmocka_unit_test(what_is_no_report_is_refused_with_the_place),
		cmocka_unit_test(what_an_older_file_lacks_is_named),
		cmocka_unit_test(a_member_that_is_missing_or_of_another_kind_is_named),
		cmocka_unit_test(no_single_damage_is_fatal),
		cmocka_unit_test(the_page_is_well_formed_and_holds_every_result),
		cmocka_unit_test(text_from_the_file_is_only_text),
		cmocka_unit_test(a_comment_is_never_too_long_and_says_what_it_leaves_out),
		cmocka_unit_test(a_short_comment_has_every_result_and_no_excuse),
		cmocka_unit_test(junit_counts_each_verdict_once),
		cmocka_unit_test(a_table_of_planted_faults_is_read_and_shown),
		cmocka_unit_test(what_a_table_of_faults_lacks_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
