/*
 * test_json.c - the JSON writer.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/json.h"
#include "sim/sim.h"

/* What one writer wrote, in memory. */
struct sink {
	struct cpa_json json;
	char *text;
	size_t size;
};

static void open_sink(struct sink *sink, int lines)
{
	*sink = (struct sink){ .text = NULL };
	cpa_json_init(&sink->json, open_memstream(&sink->text, &sink->size), lines);
	assert_non_null(sink->json.out);
}

static void assert_wrote(struct sink *sink, const char *text)
{
	fclose(sink->json.out);
	assert_string_equal(sink->text, text);
	free(sink->text);
}

static void commas_and_nesting_are_kept(void **state)
{
	struct sink s;

	(void)state;
	open_sink(&s, 0);
	cpa_json_object(&s.json);
	cpa_json_key(&s.json, "a");
	cpa_json_array(&s.json);
	cpa_json_int(&s.json, 1);
	cpa_json_null(&s.json);
	cpa_json_bool(&s.json, true);
	cpa_json_array(&s.json);
	cpa_json_end_array(&s.json);
	cpa_json_object(&s.json);
	cpa_json_end_object(&s.json);
	cpa_json_end_array(&s.json);
	cpa_json_key(&s.json, "b");
	cpa_json_string(&s.json, NULL);
	cpa_json_key(&s.json, "c");
	cpa_json_uint(&s.json, UINT64_MAX);
	cpa_json_end_object(&s.json);
	assert_wrote(&s,
		"{\"a\": [1, null, true, [], {}], \"b\": null, \"c\": 18446744073709551615}\n");
}

static void outer_elements_have_lines_of_their_own(void **state)
{
	struct sink s;

	(void)state;
	open_sink(&s, 1);
	cpa_json_object(&s.json);
	cpa_json_key(&s.json, "a");
	cpa_json_array(&s.json);
	cpa_json_int(&s.json, 1);
	cpa_json_int(&s.json, -2);
	cpa_json_end_array(&s.json);
	cpa_json_end_object(&s.json);
	assert_wrote(&s, "{\n  \"a\": [1, -2]\n}\n");
}

static void text_from_outside_is_escaped(void **state)
{
	static const char *const cases[][2] = {
		{ "plain", "\"plain\"\n" },
		{ "", "\"\"\n" },
		{ "a\"b\\c/d", "\"a\\\"b\\\\c/d\"\n" },
		{ "\n\t\x01\x1f\x7f", "\"\\n\\u0009\\u0001\\u001f\\u007f\"\n" },
		{ "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
			"\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac "
			"\xf0\x9f\x98\x80\"\n" },
		{ "\x80 \xff \xc3",
			"\"\\ufffd \\ufffd \\ufffd\"\n" },         /* stray, never, cut off */
		{ "\xc0\xaf", "\"\\ufffd\\ufffd\"\n" },            /* overlong */
		{ "\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n" }, /* a surrogate */
		{ "\xf4\x90\x80\x80",
			"\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n" }, /* above U+10FFFF */
		{ "\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\"\n" },
		{ "\xf0\x80\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct sink s;

		open_sink(&s, 0);
		cpa_json_array(&s.json);
		cpa_json_string(&s.json, cases[i][0]);
		cpa_json_end_array(&s.json);
		fclose(s.json.out);
		s.text[s.size - 2] = '\n';
		s.text[s.size - 1] = '\0';
		assert_string_equal(s.text + 1, cases[i][1]);
		free(s.text);
	}
}

static void what_is_no_number_is_a_string_or_null(void **state)
{
	struct sink s;

	(void)state;
	open_sink(&s, 0);
	cpa_json_array(&s.json);
	cpa_json_number(&s.json, NAN);
	cpa_json_number(&s.json, INFINITY);
	cpa_json_number(&s.json, -INFINITY);
	cpa_json_known(&s.json, NAN);
	cpa_json_known(&s.json, INFINITY);
	cpa_json_known(&s.json, 0);
	cpa_json_end_array(&s.json);
	assert_wrote(&s, "[\"nan\", \"inf\", \"-inf\", null, \"inf\", 0]\n");
}

static void numbers_read_back_exactly(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		uint64_t bits = cpa_random(&seed);
		double value, again;
		struct sink s;

		memcpy(&value, &bits, sizeof value);
		if (!isfinite(value))
			continue;
		open_sink(&s, 0);
		cpa_json_array(&s.json);
		cpa_json_number(&s.json, value);
		cpa_json_end_array(&s.json);
		fclose(s.json.out);
		again = strtod(s.text + 1, NULL);
		assert_memory_equal(&again, &value, sizeof value);
		free(s.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commas_and_nesting_are_kept),
		cmocka_unit_test(outer_elements_have_lines_of_their_own),
		cmocka_unit_test(text_from_outside_is_escaped),
		cmocka_unit_test(what_is_no_number_is_a_string_or_null),
		cmocka_unit_test(numbers_read_back_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
