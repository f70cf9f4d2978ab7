/*
 * test_model.c - the shipped models load and cut as their tables of tokens say, and plan says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/expression.h"
#include "harness/model.h"
#include "harness/plan_model.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static struct cpa_model *open_model(const char *name)
{
	struct cpa_model *model = NULL;
	struct cpa_error error = {""};

	if (cpa_model_open(name, &model, &error) != CPA_OK)
		fail_msg("%s: %s", name, error.text);
	return model;
}

static struct cpa_model_sized apply(const struct cpa_model *model, const char *size)
{
	struct cpa_model_sized sized;
	struct cpa_error error = {""};

	if (cpa_model_apply(model, size, &sized, &error) != CPA_OK)
		fail_msg("%s", error.text);
	return sized;
}

static void expressions_are_exact(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
		const char *fault; /* NULL: none */
	} cases[] = {
		{"1 + 2 * 3", 7, NULL},
		{"(1+2)*3 - 4", 5, NULL},
		{"a / 4 + 1", 21, NULL},
		{"a / 3", 0, "80/3 does not come out whole"},
		{"a / 3 * 3", 0, "80/3"},
		{"floor(a / 3)", 26, NULL},
		{"ceil(a / 3)", 27, NULL},
		{"floor(a / 3 * 3)", 80, NULL},
		{"floor((1 - a) / 3)", -27, NULL},
		{"ceil((1 - a) / 3)", -26, NULL},
		{"ceil(a / 4)", 20, NULL},
		{"floor(a / 3) + a / 3", 0, "80/3"},
		{"12 / 3 / 2", 2, NULL},
		{"a / (1 - 5)", -20, NULL},
		{"a / 0", 0, "division by zero"},
		{"b", 0, "not known"},
		{"floor 3", 0, "expected ("},
		{"(1", 0, "expected )"},
		{"1 2", 0, "expected + - * /"},
		{"", 0, "expected a number"},
		{"9999999999 * 9999999999", 0, "leaves 64 bits"},
		{"99999999999999999999", 0, "leaves 64 bits"},
	};
	const struct cpa_name names[] = {{"a", 80}};

	(void)state;
	for (int i = 0; i < COUNT(cases); i++) {
		struct cpa_error error = {""};
		int64_t value = -1;
		enum cpa_status status = cpa_expression(cases[i].text, names, 1, &value, &error);

		if ((status == CPA_OK) != !cases[i].fault ||
			(cases[i].fault && !strstr(error.text, cases[i].fault)) ||
			(!cases[i].fault && value != cases[i].value))
			fail_msg("'%s': %lld, '%s'", cases[i].text, (long long)value, error.text);
	}
}

static void nesting_too_deep_is_refused(void **state)
{
	char text[256];
	struct cpa_error error = {""};
	int64_t value;

	(void)state;
	memset(text, '(', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	assert_int_equal(cpa_expression(text, NULL, 0, &value, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "nested too deep"));
}

/* Tokens as the model families publish them. */
static void shipped_models_have_their_tokens(void **state)
{
	static const struct {
		const char *name, *size, *segment;
		int64_t tokens, heads, head_dim;
	} cases[] = {
		{"flux.1-dev", NULL, "image", 64 * 64, 24, 128},
		{"flux.1-dev", NULL, "text", 512, 24, 128},
		{"flux.1-dev", "1008x1008", "image", 63 * 63, 24, 128},
		{"flux.1-dev", "512x1024", "image", 32 * 64, 24, 128},
		{"qwen-image", NULL, "image", 64 * 64, 24, 128},
		{"qwen-image", "1328x1328", "image", 83 * 83, 24, 128},
		{"wan2.1-14b", NULL, "video", 21 * 30 * 52, 40, 128},
		{"wan2.1-14b", "720x1280x81", "video", 21 * 45 * 80, 40, 128},
		{"mochi-1", NULL, "video", 14 * 30 * 53, 24, 128},
		{"mochi-1", NULL, "text", 256, 24, 128},
		{"cogvideox-5b", NULL, "video", 13 * 30 * 45, 48, 64},
		{"cogvideox-5b", NULL, "text", 226, 48, 64},
		{"hunyuan-video", NULL, "video", 33 * 45 * 80, 24, 128},
	};

	(void)state;
	for (int i = 0; i < COUNT(cases); i++) {
		struct cpa_model *model = open_model(cases[i].name);
		struct cpa_model_sized sized = apply(model, cases[i].size);
		bool found = false;

		for (int s = 0; s < model->nsegments; s++)
			if (strcmp(model->segments[s].name, cases[i].segment) == 0) {
				found = true;
				assert_int_equal(sized.tokens[s], cases[i].tokens);
			}
		assert_true(found);
		assert_int_equal(model->heads, cases[i].heads);
		assert_int_equal(model->head_dim, cases[i].head_dim);
		assert_int_equal(model->hidden, model->heads * model->head_dim);
		cpa_model_destroy(model);
	}
}

static void a_size_that_a_model_would_round_is_refused(void **state)
{
	static const struct {
		const char *name, *size, *fault;
	} cases[] = {
		{"flux.1-dev", "1000x1024", "125/2 does not come out whole"},
		{"flux.1-dev", "1024x1024x3", "takes HEIGHTxWIDTH,"},
		{"flux.1-dev", "1024", "takes HEIGHTxWIDTH,"},
		{"flux.1-dev", "0x16", "takes HEIGHTxWIDTH,"},
		{"flux.1-dev", "16x16x", "takes HEIGHTxWIDTH,"},
		{"wan2.1-14b", "480x832", "takes HEIGHTxWIDTHxFRAMES,"},
		{"wan2.1-14b", "480x832x80", "79/4 does not come out whole"},
	};

	(void)state;
	for (int i = 0; i < COUNT(cases); i++) {
		struct cpa_model *model = open_model(cases[i].name);
		struct cpa_model_sized sized;
		struct cpa_error error = {""};

		assert_int_equal(
			cpa_model_apply(model, cases[i].size, &sized, &error), CPA_INVALID);
		if (!strstr(error.text, cases[i].fault))
			fail_msg("%s: %s", cases[i].size, error.text);
		cpa_model_destroy(model);
	}
}

/* ---- attention and tensors agree
 * ----------------------------------------------------------------- */

static enum cpa_status cut_flux(const char *size, enum cpa_variant variant, int R, int U,
	struct cpa_partition **partition, struct cpa_arena *arena, struct cpa_error *error)
{
	struct cpa_model *model = open_model("flux.1-dev");
	struct cpa_model_sized sized = apply(model, size);
	struct cpa_problem problem;
	struct cpa_config config;
	enum cpa_status status = cpa_model_problem(&sized, 0, arena, &problem, error);

	cpa_model_destroy(model);
	assert_int_equal(status, CPA_OK);
	config = cpa_config_default(variant, &problem);
	config.ring_degree = R;
	config.ulysses_degree = U;
	return cpa_partition_create(&problem, &config, partition, error);
}

static void flux_over_4_ranks_is_1024_image_and_128_text_tokens_each(void **state)
{
	static const int mesh[][2] = {{4, 1}, {1, 4}, {2, 2}, {4, 1}, {1, 4}, {2, 2}};

	(void)state;
	for (int v = 0; v < CPA_NVARIANTS; v++)
		for (int odd = 0; odd < 2; odd++) {
			struct cpa_partition *partition = NULL;
			struct cpa_error error = {""};
			struct cpa_arena arena;
			bool strict = cpa_variant_info((enum cpa_variant)v)->strict;
			enum cpa_status status;

			cpa_arena_init(&arena);
			status = cut_flux(odd ? "1008x1008" : NULL, (enum cpa_variant)v,
				mesh[v][0], mesh[v][1], &partition, &arena, &error);
			if (strict && odd) {
				assert_int_equal(status, CPA_UNSUPPORTED);
				assert_non_null(strstr(error.text, "3969"));
			} else {
				assert_int_equal(status, CPA_OK);
				assert_int_equal(partition->q.ncuts, 2);
				for (int i = 0; i < 4; i++) {
					assert_int_equal(
						cpa_cut_size(&partition->q.cuts[0], i), 128);
					assert_int_equal(cpa_cut_size(&partition->q.cuts[1], i),
						!odd		 ? 1024
							: i == 0 ? 993
								 : 992);
				}
				cpa_partition_destroy(partition);
			}
			cpa_arena_fini(&arena);
		}
}

/* What plan --model prints of the tensors. */
static char *print_as(int argc, char **argv, bool json)
{
	struct cpa_options options;
	struct cpa_plan_targets targets = {0};
	struct cpa_error error = {""};
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK ||
		cpa_plan_targets_find(&targets, &options, &error) != CPA_OK)
		fail_msg("%s", error.text);
	if (json) {
		struct cpa_plan_model_members members = {&targets, &options};
		struct cpa_json writer;

		cpa_json_init(&writer, out, 0);
		cpa_json_object(&writer);
		cpa_plan_model_put_json(&writer, &members);
		cpa_json_end_object(&writer);
	} else if (cpa_plan_model_print(out, &targets, &options, &error) != CPA_OK) {
		fail_msg("%s", error.text);
	}
	fclose(out);
	cpa_plan_targets_fini(&targets);
	cpa_options_fini(&options);
	return text;
}

static char *print(int argc, char **argv)
{
	return print_as(argc, argv, false);
}

static void count_is(const char *text, const char *what, int wanted)
{
	int n = 0;

	for (const char *c = text; (c = strstr(c, what)) != NULL; c++)
		n++;
	if (n != wanted)
		fail_msg("'%s' comes %d times, expected %d, in\n%s", what, n, wanted, text);
}

static void each_tensor_is_listed_for_each_way_to_cut(void **state)
{
	char *even[] = {"cpattn", "plan", "--model", "flux.1-dev", "--ranks", "4"};
	char *odd[] = {
		"cpattn", "plan", "--model=flux.1-dev", "--size", "1008x1008", "--ranks", "4"};
	char *text = print(COUNT(even), even);

	(void)state;
	count_is(text, "4 x 1024 ",
		2 * 3); /* image states, ids and the output; strict and anything */
	count_is(text, "4 x 128 ", 2 * 2);
	count_is(text, "4 x 131072", 2 * 2); /* 1024 x 64 x 2 bytes, in and out */
	count_is(text, ", then 524288", 2);
	count_is(text, ":img_ids with :hidden_states", 2);
	free(text);
	text = print(COUNT(odd), odd);
	count_is(text, "refused: image: S = 3969", 1);
	count_is(text, "993, 3 x 992 ", 3);
	free(text);
}

/* 3969 = 63 x 63 image tokens: 993 and three times 992, of 64 features and 2 bytes. */
static void programs_get_every_rank_of_every_tensor(void **state)
{
	char *odd[] = {
		"cpattn", "plan", "--model=flux.1-dev", "--size", "1008x1008", "--ranks", "4"};
	char *text = print_as(COUNT(odd), odd, true);

	(void)state;
	count_is(text, "\"tokens\": [993, 992, 992, 992]", 3);
	count_is(text, "\"bytes\": [127104, 126976, 126976, 126976]", 2);
	count_is(text, "\"refused\": \"image: S = 3969", 1);
	count_is(text, "\"tensors\": []", 1);
	count_is(text, "\"cut_like\": [\":hidden_states\"]", 2);
	free(text);
}

static void an_optional_tensor_is_left_whole_and_that_is_said(void **state)
{
	char *line[] = {
		"cpattn", "plan", "--model", "wan2.1-14b", "--ranks", "2", "--variant", "ring"};
	char *text = print(COUNT(line), line);

	(void)state;
	count_is(text, "(optional: 1 dimension, 2 expected)", 1);
	count_is(text, "2 x 16380 ", 4); /* two of RoPE, the states, the output */
	free(text);
}

static void an_unknown_model_is_a_sentence_with_a_guess(void **state)
{
	struct cpa_model *model = NULL;
	struct cpa_error error = {""};

	(void)state;
	assert_int_equal(cpa_model_open("flux.1-dv", &model, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "did you mean flux.1-dev?"));
	assert_int_equal(cpa_model_open("not/there.json", &model, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "not/there.json: cannot be read"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expressions_are_exact),
		cmocka_unit_test(nesting_too_deep_is_refused),
		cmocka_unit_test(shipped_models_have_their_tokens),
		cmocka_unit_test(a_size_that_a_model_would_round_is_refused),
		cmocka_unit_test(flux_over_4_ranks_is_1024_image_and_128_text_tokens_each),
		cmocka_unit_test(each_tensor_is_listed_for_each_way_to_cut),
		cmocka_unit_test(programs_get_every_rank_of_every_tensor),
		cmocka_unit_test(an_optional_tensor_is_left_whole_and_that_is_said),
		cmocka_unit_test(an_unknown_model_is_a_sentence_with_a_guess),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
