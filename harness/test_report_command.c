/*
 * test_report_command.c - the command report: its files, its exit status, and what is left when
 * it fails; with gnuplot and without.
 */
#include "harness/test_report.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define RIGHT HEAD("verify") RESULT("ring", "2", "right", "null", "0.25", "64") TAIL
#define WRONG HEAD("verify") RESULT("ring", "2", "wrong", "\"o is off\"", "7", "64") TAIL

static char root[] = "/tmp/test_report_XXXXXX";

static const char *in_root(const char *name)
{
	static char paths[8][200];
	static int next;

	next = (next + 1) % 8;
	snprintf(paths[next], sizeof paths[next], "%s/%s", root, name);
	return paths[next];
}

static void put_file(const char *name, const char *text)
{
	FILE *file = fopen(in_root(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static char *get_file(const char *name)
{
	char *text = calloc(1, 1 << 20);
	FILE *file = fopen(in_root(name), "r");

	if (!file)
		fail_msg("%s is not there", name);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	return text;
}

/* "report ..." with its words in root; what it says goes to root/said. */
static int command(const char *a, const char *b, const char *option, const char *value)
{
	char *argv[8] = {"cpattn", "report"};
	int argc = 2, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), status, said;
	struct cpa_options options;
	struct cpa_error error;
	char words[4][200];

	snprintf(words[0], sizeof words[0], "%s", in_root(a));
	argv[argc++] = words[0];
	if (b) {
		snprintf(words[1], sizeof words[1], "%s", in_root(b));
		argv[argc++] = words[1];
	}
	snprintf(words[2], sizeof words[2], "%s", option);
	snprintf(words[3], sizeof words[3], "%s", strcmp(value, "-") ? in_root(value) : "-");
	argv[argc++] = words[2];
	argv[argc++] = words[3];
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s", error.text);
	fflush(NULL);
	said = open(in_root("said"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(said, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	status = cpa_cmd_report(&options);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	close(said);
	cpa_options_fini(&options);
	return status;
}

static void assert_said(const char *part)
{
	char *text = get_file("said");

	assert_has(text, part);
	free(text);
}

/* Files in a directory of root; what begins with a dot and is no . or .. is left over. */
static int count_files(const char *name, bool *left_over)
{
	DIR *dir = opendir(in_root(name));
	int n = 0;

	*left_over = false;
	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		n += entry->d_name[0] != '.';
		*left_over |= entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 &&
			strcmp(entry->d_name, "..") != 0;
	}
	closedir(dir);
	return n;
}

static void a_directory_is_made_and_holds_both_pages(void **state)
{
	char *html, *markdown;
	bool left_over;

	(void)state;
	put_file("right.json", RIGHT);
	assert_int_equal(command("right.json", NULL, "--out", "new"), 0);
	html = get_file("new/index.html");
	markdown = get_file("new/report.md");
	assert_has(html, "</html>");
	assert_has(markdown, "ring 1x2x1 p2p");
	assert_true(count_files("new", &left_over) >= 2);
	assert_false(left_over);
	/* Again, over what is there. */
	assert_int_equal(command("right.json", NULL, "--out", "new"), 0);
	free(html);
	free(markdown);
}

/* A plan of a model at a published size stands beside the published rows of that size. */
static void published_figures_stand_beside_a_plan_of_their_size(void **state)
{
	char *html, *row;

	(void)state;
	put_file("plan.json",
		"{\"format\": 1, \"command\": \"plan\", \"model\": {\"name\": \"flux.1-dev\", "
		"\"height\": 1008, \"width\": 1008}, \"results\": [" RESULT(
			"ring", "4", "unsupported", REFUSED, "null", "64") "]}");
	assert_int_equal(command("plan.json", NULL, "--out", "published"), 0);
	html = get_file("published/index.html");
	assert_has(html, "4x L20");
	/* Only the rows of ring at 1008 x 1008: in the two tables that have the size, not the
	 * third. */
	row = strstr(html, "Published figures");
	assert_non_null(row);
	*strstr(row, "All 1 results") = '\0';
	assert_int_equal(count_of(row, "Sq = 37 is not divisible"), 2);
	free(html);
}

static void without_gnuplot_there_are_tables_only_and_it_says_so(void **state)
{
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *html;
	bool left_over;

	(void)state;
	put_file("right.json", RIGHT);
	setenv("PATH", root, 1);
	assert_int_equal(command("right.json", NULL, "--out", "bare"), 0);
	setenv("PATH", path, 1);
	assert_said("gnuplot is not installed");
	html = get_file("bare/index.html");
	assert_has(html, "gnuplot is not installed");
	assert_has(html, "ring 1x2x1 p2p");
	assert_lacks(html, "<svg");
	assert_int_equal(count_files("bare", &left_over), 2);
	assert_false(left_over);
	free(html);
	free(path);
}

static void a_gnuplot_that_fails_costs_only_its_plots(void **state)
{
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *html;
	bool left_over;

	(void)state;
	put_file("right.json", RIGHT);
	mkdir(in_root("bin"), 0700);
	put_file("bin/gnuplot",
		"#!/bin/sh\ncase $2 in *error*svg*) : >error.svg ;; esac\nexit 1\n");
	chmod(in_root("bin/gnuplot"), 0700);
	setenv("PATH", in_root("bin"), 1);
	assert_int_equal(command("right.json", NULL, "--out", "failed"), 0);
	setenv("PATH", path, 1);
	html = get_file("failed/index.html");
	assert_has(html, "gnuplot failed on");
	assert_int_equal(count_files("failed", &left_over), 2);
	assert_false(left_over);
	free(html);
	free(path);
}

static void a_regression_is_status_1_and_a_fix_is_0(void **state)
{
	(void)state;
	put_file("right.json", RIGHT);
	put_file("wrong.json", WRONG);
	assert_int_equal(command("right.json", "wrong.json", "--annotations", "lines"), 1);
	assert_int_equal(command("wrong.json", "right.json", "--annotations", "lines"), 0);
	assert_int_equal(command("wrong.json", "wrong.json", "--annotations", "lines"), 0);
	/* Alone, what is wrong is reported, and the report is fine. */
	assert_int_equal(command("wrong.json", NULL, "--annotations", "lines"), 0);
	/* Two commands are two runs, not a comparison. */
	put_file("plan.json", HEAD("plan") TAIL);
	assert_int_equal(command("right.json", "plan.json", "--annotations", "lines"), 0);
}

static void annotations_alone_are_all_of_stdout(void **state)
{
	char *said;

	(void)state;
	put_file("wrong.json", WRONG);
	assert_int_equal(command("wrong.json", NULL, "--annotations", "-"), 0);
	said = get_file("said");
	assert_string_equal(
		said, "::error file=x.h5,title=wrong%3A ring 1x2x1 p2p::c: o is off\n");
	free(said);
}

static void what_cannot_be_read_is_status_2_and_makes_nothing(void **state)
{
	(void)state;
	put_file("broken.json", "{\"format\": 1,\n\"results\": [}");
	assert_int_equal(command("broken.json", NULL, "--out", "never"), 2);
	assert_said("line 2: this is no JSON");
	assert_int_not_equal(access(in_root("never"), F_OK), 0);
	assert_int_equal(command("no.json", NULL, "--out", "never"), 2);
	assert_said("cannot be read");
	assert_int_equal(command("", NULL, "--out", "never"), 2);
	put_file("right.json", RIGHT);
	assert_int_equal(command("right.json", "broken.json", "--out", "never"), 2);
	assert_int_not_equal(access(in_root("never"), F_OK), 0);
}

static void a_directory_that_cannot_be_written_is_status_2(void **state)
{
	(void)state;
	put_file("right.json", RIGHT);
	put_file("file", "x");
	assert_int_equal(command("right.json", NULL, "--out", "file"), 2);
	assert_said("cannot write to");
	assert_int_equal(command("right.json", NULL, "--out", "no/such/directory"), 2);
}

static int remove_root(void **state)
{
	char line[300];

	(void)state;
	snprintf(line, sizeof line, "rm -rf '%s'", root);
	return system(line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_is_made_and_holds_both_pages),
		cmocka_unit_test(published_figures_stand_beside_a_plan_of_their_size),
		cmocka_unit_test(without_gnuplot_there_are_tables_only_and_it_says_so),
		cmocka_unit_test(a_gnuplot_that_fails_costs_only_its_plots),
		cmocka_unit_test(a_regression_is_status_1_and_a_fix_is_0),
		cmocka_unit_test(annotations_alone_are_all_of_stdout),
		cmocka_unit_test(what_cannot_be_read_is_status_2_and_makes_nothing),
		cmocka_unit_test(a_directory_that_cannot_be_written_is_status_2),
	};

	if (!mkdtemp(root))
		return 1;
	return cmocka_run_group_tests(tests, NULL, remove_root);
}
