/*
 * test_shell.h - tests that start the command as people do, in a shell, and read what it says.
 *
 * CPATTN names the command, CPATTN_DATA the folder of recordings, as the Makefile sets them.
 */
#ifndef CPA_TEST_SHELL_H
#define CPA_TEST_SHELL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static char directory[] = "/tmp/cpattn-test.XXXXXX", said[1 << 20];

/* Exit status of a shell command; what it says is kept.  @ stands for the command, ~ for the
 * data, # for a folder of this test. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
	static char line[4096], text[16384];
	va_list arguments;
	size_t n = 0, used = 0;
	FILE *pipe;
	int status;

	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	for (const char *p = line; *p; p++) {
		const char *with = *p == '@' ? getenv("CPATTN")
			: *p == '~'	     ? getenv("CPATTN_DATA")
			: *p == '#'	     ? directory
					     : NULL;

		n += (size_t)snprintf(
			text + n, sizeof text - n, "%s%.*s", with ? with : "", with ? 0 : 1, p);
		assert_true(n < sizeof text - 8);
	}
	strcpy(text + n, " 2>&1");
	pipe = popen(text, "r");
	assert_non_null(pipe);
	while (used + 1 < sizeof said &&
		(n = fread(said + used, 1, sizeof said - used - 1, pipe)) > 0)
		used += n;
	said[used] = '\0';
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void assert_says(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" is not said in: %.4000s", text, said);
}

static inline void assert_silent_on(const char *text)
{
	if (strstr(said, text))
		fail_msg("\"%s\" is said in: %.4000s", text, said);
}

static inline int clean(void **state)
{
	(void)state;
	return run("rm -rf #") != 0;
}

/* False: it has said why. */
static inline bool prepare(void)
{
	if (getenv("CPATTN") && getenv("CPATTN_DATA") && mkdtemp(directory))
		return true;
	fprintf(stderr, "CPATTN and CPATTN_DATA must say where the command and its data are\n");
	return false;
}

#endif
