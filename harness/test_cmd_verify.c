/*
 * test_cmd_verify.c - the exit status of the verify command.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness/commands.h"

/* "verify ..." with its output thrown away. */
static int command(const char *line)
{
	char words[512], *argv[32] = {"cpattn", "verify"};
	int argc = 2, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO),
	    null = open("/dev/null", O_WRONLY);
	struct cpa_options options;
	struct cpa_error error;
	snprintf(words, sizeof words, "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s: %s", line, error.text);
	fflush(NULL);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	int status = cpa_cmd_verify(&options);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	close(null);
	cpa_options_fini(&options);
	return status;
}

static void the_exit_status_says_right_wrong_or_cannot_tell(void **state)
{
	(void)state;
	assert_int_equal(command("--problem S=13,H=3,D=4,causal --ranks 2-4"), 0);
	assert_int_equal(command("--problem S=13,H=3,D=4,causal --ranks 3 --rows 2"), 0);
	assert_int_equal(
		command("--problem S=13,H=3,D=4,dtype=bf16 --ranks 4 --partials all --device ref"),
		0);
	assert_int_equal(command("--problem S=13,H=3,D=4 --ranks 3 --fault lse-base-2"), 1);
	assert_int_equal(command("--problem S=13,H=3,D=4 --ranks 3 --fault documents-ignored"),
		2); /* it has no place */
	assert_int_equal(command("--problem S=13,H=3,D=4 --ranks 3 --record no/such/run.h5"),
		2); /* several would run */
	assert_int_equal(command("--problem S=13,H=3,D=4 --ranks 3 --variant ring_anything "
				 "--rotate p2p --record no/such/run.h5"),
		2);
	assert_int_equal(
		command("--problem S=13,H=3,D=4 --ranks 4 --variant ring"), 2); /* refused */
	assert_int_equal(
		command("--problem S=13,H=3,D=4 --ranks 4 --variant ring,ring_anything"), 2);
	assert_int_equal(command("no/such/file.h5"), 2);
}

static void a_directory_without_recordings_cannot_be_told(void **state)
{
	(void)state;
	char empty[] = "/tmp/test_verify_XXXXXX";
	assert_non_null(mkdtemp(empty));
	assert_int_equal(command(empty), 2);
	rmdir(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_exit_status_says_right_wrong_or_cannot_tell),
		cmocka_unit_test(a_directory_without_recordings_cannot_be_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
