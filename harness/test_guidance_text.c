/*
 * test_guidance_text.c - scales of guidance as options and JSON say them, and which ones a call
 * takes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/guidance.h"
#include "harness/result_formats.h"

static const struct cpa_guidance two = {2, 3.5, 0.0}, three = {3, 3.5, 1.5};

static void expect_json(
	const struct cpa_result_list *list, const struct cpa_options *options, const char *part)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	cpa_result_write_json(file, list, options);
	fclose(file);
	if (!strstr(text, part))
		fail_msg("no %s in\n%s", part, text);
	free(text);
}

static void json_has_guidance_where_there_are_branches(void **state)
{
	char *argv[] = {"cpattn", "verify", "x", "--guidance", "3.5:1.25"};
	struct cpa_counts counts[2] = {{.gathered_bytes = 50}, {.gathered_bytes = 51}};
	struct cpa_result r;
	const struct cpa_result_list list = {.at = &r, .n = 1};
	struct cpa_options options;
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_options_parse(5, argv, &options, &error), CPA_OK);
	cpa_result_init(&r);
	r.counts = counts;
	r.W = 2;
	expect_json(&list, &options, "\"guidance\": \"3.5:1.25\"");
	expect_json(&list, &options, "\"probe\": {\"ratio\": null}, \"guidance\": null");
	expect_json(&list, &options, "\"gathered_bytes\": null");
	r.config.guidance = 3;
	r.guidance = (struct cpa_guidance){3, 3.5, 1.25};
	r.combined = (struct cpa_deviation){0.25, 0.5, 2, 0.25, NAN, 0, 17, 2, 5};
	expect_json(&list, &options,
		"\"guidance\": {\"branches\": 3, \"s\": 3.5, \"s2\": 1.25, \"rel_l2\": 0.25, "
		"\"error\": 0.5, \"bound\": 2, \"ratio\": 0.25, \"soft_ratio\": null, "
		"\"worst\": {\"batch\": 0, \"token\": 17, \"head\": 2, \"dim\": 5}}");
	expect_json(&list, &options, "\"gathered_bytes\": [50, 51]");
	r.guidance = (struct cpa_guidance){2, 7, 0};
	options.command = CPA_COMMAND_PLAN;
	expect_json(&list, &options, "\"guidance\": {\"branches\": 2, \"s\": 7, \"s2\": null}");
	cpa_options_fini(&options);
}

static void scales_read_back_as_they_are_printed(void **state)
{
	static const char *const texts[] = {
		"3.5", "-2", "0", "1e-300", "0.1:7.5", "3:0", "1.7976931348623157e+308:-5e-324"};
	char text[200];
	struct cpa_error error;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct cpa_guidance guidance, again;
		struct cpa_text w = cpa_text_begin(text, sizeof text);

		assert_int_equal(cpa_guidance_parse(texts[i], &guidance, &error), CPA_OK);
		assert_int_equal(guidance.nbranches, strchr(texts[i], ':') ? 3 : 2);
		cpa_guidance_put(&w, &guidance);
		assert_int_equal(strncmp(text, " --guidance ", 12), 0);
		assert_int_equal(cpa_guidance_parse(text + 12, &again, &error), CPA_OK);
		assert_true(again.s == guidance.s && again.s2 == guidance.s2 &&
			again.nbranches == guidance.nbranches);
	}
	cpa_guidance_describe(&(struct cpa_guidance){0, 0, 0}, text, sizeof text);
	assert_string_equal(text, "");
	cpa_guidance_describe(&three, text, sizeof text);
	assert_string_equal(text,
		"guidance 3.5:1.5: neg + 1.5 (mid - neg) + 3.5 (pos - mid), 3 branches along the "
		"batch");
}

static void what_is_asked_for_wins_where_it_has_as_many_branches(void **state)
{
	struct cpa_options options = {.guidance = {2, 7.0, 0.0}},
			   nothing = {.guidance = {0, 0.0, 0.0}};
	struct cpa_problem problem = {.B = 6};
	struct cpa_guidance chosen;
	struct cpa_error error;

	(void)state;
	assert_int_equal(
		cpa_guidance_choose(&nothing, &three, &problem, &chosen, &error), CPA_OK);
	assert_memory_equal(&chosen, &three, sizeof chosen);
	assert_int_equal(cpa_guidance_choose(&options, &two, &problem, &chosen, &error), CPA_OK);
	assert_true(chosen.nbranches == 2 && chosen.s == 7.0);
	assert_int_equal(
		cpa_guidance_choose(&options, &three, &problem, &chosen, &error), CPA_INVALID);
	assert_non_null(
		strstr(error.text, "2 branches, and the recording has 3; give two, S:S2"));
	assert_int_equal(
		cpa_guidance_choose(&nothing, &nothing.guidance, &problem, &chosen, &error),
		CPA_OK);
	assert_int_equal(chosen.nbranches, 0);
	problem.B = 5;
	assert_int_equal(
		cpa_guidance_choose(&options, NULL, &problem, &chosen, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "B = 5 is no multiple of 2"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_has_guidance_where_there_are_branches),
		cmocka_unit_test(scales_read_back_as_they_are_printed),
		cmocka_unit_test(what_is_asked_for_wins_where_it_has_as_many_branches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
