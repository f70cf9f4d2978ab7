/*
 * fuzz_options.c - the option parser on any input: lines (or NUL-ended words) become the words
 * of a command line.  It may refuse, in one sentence; it may not crash, leak, or accept what it
 * then cannot sweep.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "harness/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_WORDS = 64, MAX_VISITS = 2000, MAX_TEXT = 1 << 17 };

static bool visit(void *context, const struct cpa_config *config)
{
	int *left = context;
	char text[256];

	assert(config->batch_degree >= 1 && config->ring_degree >= 1 &&
		config->ulysses_degree >= 1);
	cpa_config_print(config, text, sizeof text);
	assert(strncmp(text, "--variant ", 10) == 0);
	return --*left > 0;
}

static void use(const struct cpa_options *options)
{
	static char text[MAX_TEXT];
	struct cpa_problem again;
	struct cpa_arena arena;
	struct cpa_error error;
	int left = MAX_VISITS;

	if (!options->has_problem)
		return;
	cpa_problem_print(&options->problem, text, sizeof text);
	cpa_arena_init(&arena);
	assert(cpa_problem_parse(text, true, &arena, &again, &error) == CPA_OK);
	cpa_arena_fini(&arena);
	(void)cpa_sweep(options, &options->problem, CPA_ROTATE_CHOICE_ALL, false, visit, &left,
		&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char program[] = "cpattn";
	char *argv[MAX_WORDS + 1] = { program }, *text = malloc(size + 1);
	struct cpa_options options;
	struct cpa_error error = { "" };
	int argc = 1;

	if (!text)
		return 0;
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	for (size_t i = 0, start = 0; i <= size && argc < MAX_WORDS; i++)
		if (i == size || text[i] == '\n' || text[i] == '\0') {
			text[i] = '\0';
			if (start < size)
				argv[argc++] = text + start;
			start = i + 1;
		}
	if (cpa_options_parse(argc, argv, &options, &error) == CPA_OK)
		use(&options);
	else
		assert(error.text[0] != '\0');
	cpa_options_fini(&options);
	free(text);
	return 0;
}
