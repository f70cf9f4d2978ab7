/*
 * test_output.c - files that are whole or not there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "harness/output.h"

static void write_fails(const char *path, const char *says)
{
	struct cpa_output output;
	struct cpa_error error = { "" };
	enum cpa_status status = cpa_output_open(&output, path, &error);

	if (status == CPA_OK) {
		fputs("text", output.file);
		status = cpa_output_commit(&output, &error);
	}
	assert_int_equal(status, CPA_EXTERNAL);
	assert_non_null(strstr(error.text, path));
	assert_non_null(strstr(error.text, says));
}

static void what_cannot_be_written_is_reported(void **state)
{
	(void)state;
	write_fails("/nonexistent/dir/a.json", "No such file or directory");
	write_fails("/", "Is a directory");
	if (access("/dev/full", W_OK) == 0)
		write_fails("/dev/full", "No space left");
}

static void a_file_is_replaced_whole_or_not_at_all(void **state)
{
	char directory[] = "cpattn_test_XXXXXX", path[64], text[16] = "";
	struct cpa_output output;
	struct cpa_error error;
	FILE *file;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/a", directory);
	assert_int_equal(cpa_output_open(&output, path, &error), CPA_OK);
	fputs("first", output.file);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(cpa_output_commit(&output, &error), CPA_OK);
	/* Given up, and interrupted: the old text stays and no temporary file is left. */
	assert_int_equal(cpa_output_open(&output, path, &error), CPA_OK);
	fputs("second", output.file);
	cpa_output_abandon(&output);
	assert_int_equal(cpa_output_open(&output, path, &error), CPA_OK);
	assert_int_equal(access(output.temporary, F_OK), 0);
	cpa_output_interrupted();
	assert_int_equal(access(output.temporary, F_OK), -1);
	cpa_output_abandon(&output);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_non_null(fgets(text, sizeof text, file));
	fclose(file);
	assert_string_equal(text, "first");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_cannot_be_written_is_reported),
		cmocka_unit_test(a_file_is_replaced_whole_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
