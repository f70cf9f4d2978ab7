/*
 * test_result.c - verdicts, exit status, and the files that results become.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/result_formats.h"
#include "harness/result_parts.h"

static const struct cpa_problem problem = { 1, 64, 64, 8, 8, 64, 64, CPA_DTYPE_FP32, 0.125,
	{ .causal = false }, .lse = true, .layout = CPA_LAYOUT_BHSD };
static const struct cpa_problem masked = { 1, 64, 64, 8, 8, 64, 64, CPA_DTYPE_FP32, 0.125,
	{ .mask = { .kind = CPA_MASK_BOOL, .data = "" } }, .lse = true };

/* Adds a result of this verdict; a call of its own name each. */
static struct cpa_result *add(struct cpa_result_list *list, enum cpa_verdict verdict,
	const char *file, const char *reason)
{
	struct cpa_result result;

	cpa_result_init(&result);
	result.file = file;
	result.call = "00_call";
	result.verdict = verdict;
	result.problem = &problem;
	result.device = "cpu";
	result.comm = "fake";
	result.has_config = verdict != CPA_VERDICT_CANNOT_TELL;
	result.config = cpa_config_default(CPA_VARIANT_RING, &problem);
	result.config.ring_degree = 4;
	result.W = 4;
	snprintf(result.reason, sizeof result.reason, "%s", reason);
	assert_int_equal(cpa_result_list_add(list, &result), CPA_OK);
	return &list->at[list->n - 1];
}

static struct cpa_options options_of(const char *line, char *copy)
{
	char *argv[16];
	int argc = 0;
	struct cpa_options options;
	struct cpa_error error;

	strcpy(copy, line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s", error.text);
	return options;
}

static char *written(void (*write)(FILE *, const struct cpa_result_list *,
			     const struct cpa_options *),
	const struct cpa_result_list *list, const struct cpa_options *options)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	write(file, list, options);
	fclose(file);
	return text;
}

static void assert_holds(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in:\n%s", part, text);
}

/* ---- exit status ------------------------------------------------------------------------- */

static void the_exit_status_follows_the_table(void **state)
{
	/* how many right, wrong, unsupported, cannot tell; ran nowhere; status */
	static const int cases[][6] = {
		{ 0, 0, 0, 0, 0, 2 },
		{ 1, 0, 0, 0, 0, 0 },
		{ 0, 1, 0, 0, 0, 1 },
		{ 0, 0, 1, 0, 0, 2 },
		{ 0, 0, 0, 1, 0, 2 },
		{ 1, 0, 1, 0, 0, 0 },
		{ 1, 0, 1, 0, 1, 2 },
		{ 1, 0, 0, 1, 0, 2 },
		{ 1, 1, 0, 0, 0, 1 },
		{ 0, 1, 0, 1, 0, 1 },
		{ 1, 1, 1, 1, 1, 1 },
		{ 1, 0, 0, 0, 1, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cpa_result_list list = { 0 };
		struct cpa_summary sum;

		for (int verdict = 0; verdict < 4; verdict++)
			for (int k = 0; k < cases[i][verdict]; k++)
				add(&list, (enum cpa_verdict)verdict, "a.h5", "because");
		sum = cpa_result_summary(&list);
		assert_int_equal(sum.right, cases[i][0]);
		assert_int_equal(sum.wrong, cases[i][1]);
		assert_int_equal(sum.unsupported, cases[i][2]);
		assert_int_equal(sum.cannot_tell, cases[i][3]);
		assert_int_equal(cpa_result_exit(&list, cases[i][4] != 0), cases[i][5]);
		cpa_result_list_fini(&list);
	}
}

static void a_variant_that_only_refused_ran_nowhere(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256];
	struct cpa_options all = options_of("cpattn verify x", copy);
	struct cpa_options one = options_of("cpattn verify x --variant ring", copy);
	struct cpa_options two = options_of("cpattn verify x --variant ring,ulysses", copy);

	(void)state;
	add(&list, CPA_VERDICT_UNSUPPORTED, "a.h5", "odd length");
	assert_true(cpa_result_ran_nowhere(&list, &one));
	assert_false(cpa_result_ran_nowhere(&list, &all));
	add(&list, CPA_VERDICT_RIGHT, "a.h5", "");
	assert_false(cpa_result_ran_nowhere(&list, &one));
	assert_true(cpa_result_ran_nowhere(&list, &two));
	cpa_result_list_fini(&list);
	cpa_options_fini(&all);
	cpa_options_fini(&one);
	cpa_options_fini(&two);
}

/* ---- formats ----------------------------------------------------------------------------- */

/* One of each, with text that each format has to escape. */
static void fill(struct cpa_result_list *list)
{
	struct cpa_result *r = add(list, CPA_VERDICT_RIGHT, "a&b<c>\"d\".h5", "");

	r->o = (struct cpa_deviation){ 1e-7, 0.5, 1, 0.5, NAN, 0, 17, 2, 5 };
	r->counts = calloc(4, sizeof *r->counts);
	assert_non_null(r->counts);
	for (int i = 0; i < 4; i++)
		r->counts[i] = (struct cpa_counts){ 100 + i, 3, 1000 + i, 7, 8, 0, 0 };
	r->seconds = 0.25;
	r = add(list, CPA_VERDICT_WRONG, "a&b<c>\"d\".h5",
		"off by \"much\",\nat token 3 \x01 \xff");
	r->o = (struct cpa_deviation){ INFINITY, INFINITY, 1, INFINITY, 2, 0, 3, 1, 0 };
	r->reproduce = strdup("cpattn verify 'a \"b\"'");
	add(list, CPA_VERDICT_UNSUPPORTED, "a&b<c>\"d\".h5", "S = 63 is odd");
	add(list, CPA_VERDICT_CANNOT_TELL, "b.h5", "/calls: missing");
}

static void json_has_the_names_of_the_manual(void **state)
{
	static const char *const parts[] = { "\"cpattn\": \"", "\"format\": 1",
		"\"command\": \"verify\"", "\"machine\": {", "\"options\": {", "\"results\": [",
		"\"file\": \"a&b<c>\\\"d\\\".h5\"",
		("\"call\": \"00_call\", \"variant\": \"ring\", \"batch\": 1, \"ring\": 4, "
		 "\"ulysses\": 1, \"ranks\": 4, "
		 "\"rotate\": \"p2p\", \"split\": \"equal\", \"order\": \"contiguous\", "
		 "\"heads_rule\": \"balanced\", "
		 "\"direction\": \"up\", \"partials\": \"fp32\", \"dtype\": \"fp32\", "
		 "\"device\": \"cpu\", \"comm\": "
		 "\"fake\", \"verdict\": \"right\", \"reason\": null"),
		("\"o\": {\"rel_l2\": 9.9999999999999995e-08, \"error\": 0.5, \"bound\": 1, "
		 "\"ratio\": 0.5, "
		 "\"soft_ratio\": null, \"worst\": {\"batch\": 0, \"token\": 17, \"head\": 2, "
		 "\"dim\": 5}}"),
		"\"lse\": null", "\"probe\": {\"ratio\": null}", "\"lse_asked\": true",
		"\"layout\": \"BHSD\"",
		"\"bytes_sent\": [100, 101, 102, 103]", "\"messages\": [3, 3, 3, 3]",
		"\"peak_bytes\": [1000, 1001, 1002, 1003]", "\"mask_bytes\": null",
		"\"work\": [7, 7, 7, 7]", "\"attended\": [8, 8, 8, 8]", "\"seconds\": 0.25",
		"\"rel_l2\": \"inf\"",
		"\"reason\": \"off by \\\"much\\\",\\nat token 3 \\u0001 \\ufffd\"",
		"\"seconds\": null", "\"variant\": null, \"batch\": null", "\"right\": 1",
		"\"wrong\": 1", "\"unsupported\": 1", "\"cannot_tell\": 1" };
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	struct cpa_options options = options_of("cpattn verify x", copy);

	(void)state;
	fill(&list);
	text = written(cpa_result_write_json, &list, &options);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		assert_holds(text, parts[i]);
	assert_null(strstr(text, "proof"));
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

static void json_has_mask_bytes_where_there_is_a_mask(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	struct cpa_options options = options_of("cpattn verify x --rotate direct", copy);
	struct cpa_result *r = add(&list, CPA_VERDICT_RIGHT, "a.h5", "");

	(void)state;
	r->problem = &masked;
	r->config.rotate = CPA_ROTATE_DIRECT;
	r->counts = calloc(4, sizeof *r->counts);
	assert_non_null(r->counts);
	for (int i = 0; i < 4; i++)
		r->counts[i].mask_bytes = 16 * (3 - i);
	text = written(cpa_result_write_json, &list, &options);
	assert_holds(text, "\"mask_bytes\": [48, 32, 16, 0]");
	assert_holds(text, "\"ranks\": 4, \"rotate\": \"direct\"");
	assert_null(strstr(text, "\"rotate\": \"all"));
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

static void plan_has_a_proof_instead_of_errors(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	struct cpa_options options = options_of("cpattn plan x", copy);
	const struct cpa_segment segments[] = { { "a", 3, false }, { "b", 5, false } };
	const struct cpa_problem joint = { .Sq = 8, .Skv = 8, .segments = segments, .nsegments = 2 };
	struct cpa_result *r = add(&list, CPA_VERDICT_RIGHT, "a.h5", "");

	(void)state;
	r->has_proof = r->proved = true;
	r->problem = &joint;
	r = add(&list, CPA_VERDICT_WRONG, "a.h5", "a race");
	r->has_proof = true;
	r->problem = NULL;
	text = written(cpa_result_write_json, &list, &options);
	assert_holds(text, "\"proof\": {\"proved\": true, \"fault\": null}");
	/* 104 words to each of the three others; without a problem nobody knows. */
	assert_holds(text, "\"preamble\": {\"bytes\": 2520, \"messages\": 1, \"record_bytes\": 840}");
	assert_holds(text, "\"preamble\": null");
	assert_holds(text, "\"proof\": {\"proved\": false, \"fault\": \"a race\"}");
	assert_null(strstr(text, "\"o\":"));
	assert_null(strstr(text, "\"probe\""));
	assert_null(strstr(text, "\"seconds\""));
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

static void junit_is_well_formed_whatever_the_names(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	struct cpa_options options = options_of("cpattn verify x", copy);
	int depth = 0;

	(void)state;
	fill(&list);
	text = written(cpa_result_write_junit, &list, &options);
	assert_holds(text,
		"<testsuites name=\"cpattn verify\" tests=\"4\" failures=\"1\" errors=\"1\" "
		"skipped=\"1\">");
	assert_holds(text,
		"<testsuite name=\"a&amp;b&lt;c&gt;&quot;d&quot;.h5 00_call\" tests=\"3\" "
		"failures=\"1\" "
		"errors=\"0\" skipped=\"1\" time=\"0.250000\">");
	assert_holds(text,
		"<failure message=\"off by &quot;much&quot;,&#10;at token 3 &#xfffd; "
		"&#xfffd;\">cpattn verify");
	assert_holds(text, "<skipped message=\"S = 63 is odd\"/>");
	assert_null(strstr(text, "time=\"nan"));
	assert_holds(text, "<error message=\"/calls: missing\"/>");
	/* Every element that opens closes, and no bare control character is left. */
	for (const char *c = text; *c; c++) {
		assert_true((unsigned char)*c >= 0x20 || *c == '\n');
		if (*c == '<' && c[1] != '?')
			depth += c[1] == '/' ? -1 : 1;
		if (*c == '/' && c[1] == '>')
			depth--;
		assert_true(depth >= 0);
	}
	assert_int_equal(depth, 0);
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

/* Fields of the record at *text by RFC 4180; moves to the next record. */
static int read_record(const char **text)
{
	const char *p = *text;
	int fields = 1;
	bool quoted = false;

	for (; *p && (quoted || *p != '\r'); p++) {
		if (*p == '"')
			quoted = !quoted;
		else if (*p == ',' && !quoted)
			fields++;
	}
	assert_false(quoted);
	assert_true(p[0] == '\r' && p[1] == '\n');
	*text = p + 2;
	return fields;
}

static void csv_has_equal_records(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	const char *at;
	struct cpa_options options = options_of("cpattn verify x", copy);
	int fields;

	(void)state;
	fill(&list);
	at = text = written(cpa_result_write_csv, &list, &options);
	fields = read_record(&at);
	for (int i = 0; i < list.n; i++)
		assert_int_equal(read_record(&at), fields);
	assert_int_equal(*at, '\0');
	assert_holds(text,
		"\"a&b<c>\"\"d\"\".h5\",00_call,ring,1,4,1,4,p2p,equal,contiguous,balanced,up,"
		"fp32,fp32,cpu,"
		"fake,9.9999999999999995e-08,0.5,1,0.5,,0,17,2,5,");
	assert_holds(text, ",406,103,12,1003,28,7,32,0.25,,,right,,");
	assert_holds(text, "\"cpattn verify 'a \"\"b\"\"'\"\r\n");
	assert_holds(text, ",inf,inf,1,inf,2,");
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

static void the_table_keeps_to_100_columns_and_says_what_matters(void **state)
{
	struct cpa_result_list list = { 0 };
	char copy[256], *text;
	struct cpa_options options = options_of("cpattn verify x", copy);

	(void)state;
	fill(&list);
	for (int i = 0; i < 40; i++) {
		char reason[200];

		snprintf(reason, sizeof reason,
			"S = 97 is not divisible by R U = %d; R U of 1 would work, or "
			"ring_anything, which cuts any length into any number of shards",
			i + 2);
		add(&list, CPA_VERDICT_UNSUPPORTED, "c.h5", reason);
	}
	text = written(cpa_result_table, &list, &options);
	for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
		if (strcspn(line, "\n") > 100)
			fail_msg("%.*s", (int)strcspn(line, "\n"), line);
	assert_holds(text,
		"worst error over bound: inf, o of ring 1x4x1 p2p, batch 0 token 3 head 1 dim "
		"0");
	assert_holds(text,
		"1 right, 1 wrong, 41 unsupported, 1 cannot tell (3 calls of 3 files)");
	assert_holds(text, "  40  such as: S = 97 is not divisible by R U = 2;");
	assert_holds(text, "repeat: cpattn verify 'a \"b\"'");
	assert_holds(text, "/calls: missing");
	assert_null(strchr(text, '\x01'));
	assert_null(strchr(text, '\033'));
	free(text);
	cpa_result_list_fini(&list);
	cpa_options_fini(&options);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_exit_status_follows_the_table),
		cmocka_unit_test(a_variant_that_only_refused_ran_nowhere),
		cmocka_unit_test(json_has_the_names_of_the_manual),
		cmocka_unit_test(json_has_mask_bytes_where_there_is_a_mask),
		cmocka_unit_test(plan_has_a_proof_instead_of_errors),
		cmocka_unit_test(junit_is_well_formed_whatever_the_names),
		cmocka_unit_test(csv_has_equal_records),
		cmocka_unit_test(the_table_keeps_to_100_columns_and_says_what_matters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
