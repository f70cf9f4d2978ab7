/*
 * test_random.h - what the tests of the random sweep share.
 */
#ifndef CPA_TEST_RANDOM_H
#define CPA_TEST_RANDOM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "harness/options.h"

/* Options of "cpattn verify LINE"; the words of the line are cut apart. */
static void read_options(char *line, struct cpa_options *options)
{
	char *argv[64] = {"cpattn", "verify"};
	int argc = 2;
	struct cpa_error error;
	for (char *word = strtok(line, " "); word && argc < 64; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, options, &error) != CPA_OK)
		fail_msg("%s: %s", argv[3], error.text);
}

#endif
