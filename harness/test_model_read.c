/*
 * test_model_read.c - malformed model files are refused with the JSON path of the fault, and so
 * is a plan that would leave something whole, or cut tied tensors differently.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/model.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const char good[] =
	"{\"format\":\"cpattn-model-1\",\"name\":\"m\",\"title\":\"t\",\"dtype\":\"bf16\","
	"\"size\":\"64x64\","
	"\"batch\":1,\"heads\":4,\"kv_heads\":2,\"head_dim\":8,\"hidden\":32,"
	"\"segments\":[{\"name\":\"text\",\"tokens\":16,\"split\":true},"
	"{\"name\":\"image\",\"tokens\":\"height * width / 256\",\"split\":true}],"
	"\"plan\":{\"origin\":\"derived\",\"attention\":[{\"name\":\"joint\",\"q\":[\"text\","
	"\"image\"],"
	"\"kv\":[\"text\",\"image\"]}],\"entries\":["
	"{\"module\":\"\",\"name\":\"x\",\"split_dim\":1,\"expected_dims\":3,\"tensor\":["
	"\"batch\",\"image\",8]},"
	"{\"module\":\"\",\"name\":\"c\",\"split_dim\":1,\"expected_dims\":3,\"tensor\":["
	"\"batch\",\"text\",9]},"
	"{\"module\":\"rope\",\"output\":0,\"split_dim\":0,\"expected_dims\":2,\"split_output\":"
	"true,"
	"\"tensor\":[\"image\",7],\"dtype\":\"fp32\",\"tied_to\":[\":x\"]},"
	"{\"module\":\"out\",\"output\":0,\"gather_dim\":1,\"tensor\":[1,\"image\",6]}]},"
	"\"sources\":{\"/batch\":\"a\",\"/heads\":\"a\",\"/kv_heads\":\"a\",\"/"
	"head_dim\":\"a\",\"/hidden\":\"a\","
	"\"/segments\":\"a\",\"/plan\":\"a\"}}";

static enum cpa_status read_changed(const char *from, const char *to, struct cpa_error *error)
{
	const char *at = from ? strstr(good, from) : good;
	size_t before, size = sizeof good + (to ? strlen(to) : 0);
	char *text = malloc(size);
	struct cpa_model *model = NULL;
	enum cpa_status status;

	assert_non_null(at);
	assert_non_null(text);
	before = (size_t)(at - good);
	snprintf(text, size, "%.*s%s%s", (int)before, good, to ? to : "",
		at + (from ? strlen(from) : 0));
	status = cpa_model_read(text, strlen(text), &model, error);
	cpa_model_destroy(model);
	free(text);
	return status;
}

static void every_fault_is_refused_with_its_place(void **state)
{
	static const struct {
		const char *from, *to, *place;
	} cases[] = {
		{"-model-1", "-model-2", "/format: "},
		{"\"name\":\"m\",", "", "/name: missing"},
		{"bf16", "bf17", "/dtype: "},
		{"64x64", "64", "/size '64'"},
		{"\"heads\":4", "\"heads\":4.5", "/heads: expected a whole number"},
		{"\"heads\":4", "\"heads\":1e300", "/heads: expected a whole number"},
		{"\"kv_heads\":2", "\"kv_heads\":3", "/kv_heads: heads is no multiple"},
		{"\"tokens\":16", "\"tokens\":-1", "/segments/0/tokens: "},
		{"\"tokens\":16", "\"tokens\":\"image\"", "/segments/0/tokens of text: 'image'"},
		{"\"tokens\":16,\"split\":true", "\"tokens\":16,\"split\":1",
			"/segments/0/split: "},
		{"\"tokens\":16,\"split\":true", "\"tokens\":16", "/segments/0/split: missing"},
		{"\"tokens\":16", "\"token\":16", "/segments/0/token: a field that is not known"},
		{"\"name\":\"image\"", "\"name\":\"text\"", "/segments/1/name: a second segment"},
		{"\"name\":\"image\"", "\"name\":\"hidden\"", "/segments/1/name: "},
		{"derived", "guessed", "/plan/origin: "},
		{"\"q\":[\"text\",\"image\"]", "\"q\":[\"text\",\"audio\"]",
			"/plan/attention/0/q/1: no segment"},
		{"\"q\":[\"text\",\"image\"]", "\"q\":[\"image\",\"text\"]",
			"/plan/attention/0/q/1: "},
		{"\"q\":[\"text\",\"image\"]", "\"q\":[]", "/plan/attention/0/q: expected 1 to"},
		{"\"name\":\"x\"", "\"output\":1", "/plan/entries/0/split_output"},
		{"\"name\":\"x\"", "\"nam\":\"x\"", "/plan/entries/0/nam: "},
		{"\"name\":\"x\",", "", "/plan/entries/0: expected either a name"},
		{"\"name\":\"c\"", "\"name\":\"x\"", "/plan/entries/1: a second entry"},
		{"\"split_dim\":1,\"expected_dims\":3", "\"split_dim\":3,\"expected_dims\":3",
			"/plan/entries/0: dimension 3 does not exist"},
		{"\"split_dim\":1,\"expected_dims\":3", "\"split_dim\":1",
			"/plan/entries/0/expected_dims: missing"},
		{"\"split_output\":true", "\"split_output\":false",
			"/plan/entries/2/split_output: expected true"},
		{"\"fp32\"", "\"float\"", "/plan/entries/2/dtype: "},
		{"[\":x\"]", "[\":y\"]", "/plan/entries/2/tied_to/0: no entry is called ':y'"},
		{"[\":x\"]", "[\"rope:0\"]",
			"/plan/entries/2/tied_to/0: an entry is tied to itself"},
		{"\"gather_dim\":1", "\"gather_dim\":1,\"split_dim\":1",
			"/plan/entries/3: split_dim and gather"},
		{"[1,\"image\",6]", "[1,\"images\",6]",
			"/plan/entries/3 (out:0): dimension 1 is 'images'"},
		{"[1,\"image\",6]", "[1,\"image\",\"6/4\"]", "/plan/entries/3/tensor/2: "},
		{"\"/heads\":\"a\",", "", "/heads: a number without a source"},
		{"\"/segments\":\"a\",", "", "/segments/0/tokens: a number without a source"},
		{"\"/plan\":\"a\"}}", "\"/plan\":\"a\"}", "line 1: "},
		{"\"/plan\":\"a\"}}", "\"/plan\":\"a\"}}x", "line 1: "},
		{good, "[]", "/: expected an object"},
		{good, "", "line 1: "},
	};

	(void)state;
	for (int i = 0; i < COUNT(cases); i++) {
		struct cpa_error error = {""};
		enum cpa_status status = read_changed(cases[i].from, cases[i].to, &error);

		if (status != CPA_INVALID || !strstr(error.text, cases[i].place))
			fail_msg("'%s' for '%s': '%s', expected '%s'", cases[i].to, cases[i].from,
				error.text, cases[i].place);
	}
}

/* What others do without a word. */
static void what_would_be_wrong_in_silence_is_refused(void **state)
{
	static const struct {
		const char *from, *to, *why;
	} cases[] = {
		{"[\"batch\",\"image\",8]", "[\"batch\",\"image\"]",
			"2 dimensions, and 3 expected: it would be left whole"},
		{"[\"image\",7]", "[\"text\",7]",
			"along text and :x, to which it is tied, along image"},
		{"\"output\":0,\"split_dim\":0,\"expected_dims\":2,\"split_output\":true,",
			"\"output\":0,",
			"along nothing and :x, to which it is tied, along image"},
		{"[\"image\",7]", "[\"text + image\",7]", "each segment is cut on its own"},
		{"\"tokens\":16,\"split\":true", "\"tokens\":16,\"split\":false",
			"holds whole on every rank"},
		{"\"name\":\"c\",\"split_dim\":1,\"expected_dims\":3,", "\"name\":\"c\",",
			"no entry of the plan splits"},
	};
	struct cpa_error error = {""};

	(void)state;
	assert_int_equal(read_changed(NULL, NULL, &error), CPA_OK);
	for (int i = 0; i < COUNT(cases); i++)
		if (read_changed(cases[i].from, cases[i].to, &error) != CPA_INVALID ||
			!strstr(error.text, cases[i].why))
			fail_msg("'%s': '%s', expected '%s'", cases[i].to, error.text,
				cases[i].why);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fault_is_refused_with_its_place),
		cmocka_unit_test(what_would_be_wrong_in_silence_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
