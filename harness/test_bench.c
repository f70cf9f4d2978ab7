/*
 * test_bench.c - the command bench as a script sees it: exit status, tables, JSON and CSV.  Needs
 * the built command, which CPATTN names.  No test looks at how long anything took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define BENCH                                                                                    \
	"$CPATTN bench --problem S=32,H=4,D=16,dtype=fp32 --threads 1 --warmup 0 --repeat 2 "

struct ran {
	int status;
	char out[32768], err[2048];
};

static void slurp(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
	unlink(path);
}

/* `line` is shell text in which $CPATTN is the command; its stdout and stderr are kept. */
static const struct ran *run(const char *line)
{
	static struct ran ran;
	char out[64], err[64], script[1024];
	const char *command = getenv("CPATTN");
	int status;

	if (!command || access(command, X_OK) != 0)
		skip();
	snprintf(out, sizeof out, "cpattn_bench_%ld.out", (long)getpid());
	snprintf(err, sizeof err, "cpattn_bench_%ld.err", (long)getpid());
	snprintf(script, sizeof script, "{ %s; } >%s 2>%s", line, out, err);
	status = system(script);
	assert_true(WIFEXITED(status));
	ran.status = WEXITSTATUS(status);
	slurp(out, ran.out, sizeof ran.out);
	slurp(err, ran.err, sizeof ran.err);
	return &ran;
}

static void says(const struct ran *ran, int status, const char *const *words)
{
	if (ran->status != status)
		fail_msg("status %d, not %d\n%s%s", ran->status, status, ran->out, ran->err);
	for (; *words; words++)
		if (!strstr(ran->out, *words))
			fail_msg("there is no %s in\n%s", *words, ran->out);
}

static void tables_explain_themselves_within_100_columns(void **state)
{
	static const char *const words[] = {"# cpattn bench", "N x R x U", "fastest", "of peak",
		"attend", "exchange", "beyond", "sent", "one rank", "ring_anything", NULL};
	const struct ran *ran = run(BENCH "--ranks 2");
	size_t length = 0;

	(void)state;
	says(ran, 0, words);
	assert_string_equal(ran->err, "");
	for (const char *c = ran->out; *c; c++) {
		length = *c == '\n' ? 0 : length + 1;
		assert_true(length <= 100);
	}
}

/* By default worlds of 4, or what is fixed. */
static void worlds_are_of_four_ranks_unless_told(void **state)
{
	static const char *const four[] = {
		"ring,1,4,1,4,p2p", "unified,1,2,2,4,p2p", "ulysses,1,1,4,4,", NULL};
	static const char *const three[] = {"ring_anything,1,3,1,3,p2p", NULL};

	(void)state;
	says(run(BENCH "--csv -"), 0, four);
	says(run(BENCH "--variant ring_anything --ring 3 --csv -"), 0, three);
}

static int count(const char *text, const char *end, char c)
{
	int n = 0;

	for (; text < end; text++)
		n += *text == c;
	return n;
}

/* Every line has the fields that the header names; the values hold no commas here. */
static void lines_have_the_columns_of_the_header(const char *csv, int nlines)
{
	const char *end = strstr(csv, "\r\n");
	int commas, n = 0;

	assert_non_null(end);
	commas = count(csv, end, ',');
	for (const char *line = end + 2; *line; line = end + 2, n++) {
		const char *quote;

		end = strstr(line, "\r\n");
		assert_non_null(end);
		quote = memchr(line, '"', (size_t)(end - line));
		if (!quote)
			assert_int_equal(count(line, end, ','), commas);
	}
	assert_int_equal(n, nlines);
}

static void csv_has_a_line_for_each_configuration(void **state)
{
	const struct ran *ran = run(
		BENCH "--variant ring,ulysses --rotate all --ranks 2 --csv -");

	(void)state;
	assert_int_equal(ran->status, 0);
	lines_have_the_columns_of_the_header(ran->out, 4);
	assert_non_null(strstr(ran->out, ",allgather,"));
	assert_non_null(strstr(ran->out, ",direct,"));
}

static void json_has_the_envelope_and_what_only_bench_has(void **state)
{
	static const char *const words[] = {"\"command\": \"bench\"", "\"repeat\": 2",
		"\"variant\": \"ring\"", "\"verdict\": \"right\"",
		"\"seconds\": {\"n\": 2, \"min\": ", "\"phases\": {\"attend\": ", "\"beyond\": ",
		"\"of_peak\": ", "\"one_rank\": {\"threads\": 1, ",
		"\"exchange\": {\"bytes\": 16384, ", "\"bytes_sent\": [8192, 8192]",
		"\"limits\": {\"flop_per_second\": ", "\"right\": 1", NULL};

	(void)state;
	/* Keys and values of 16 tokens, 4 heads of 16 numbers of 4 bytes go each way: 8192 each.
	 */
	says(run(BENCH "--variant ring --ranks 2 --json -"), 0, words);
}

static void what_was_refused_has_nulls(void **state)
{
	static const char *const words[] = {"\"verdict\": \"unsupported\"", "\"seconds\": null",
		"\"phases\": null", "\"exchange\": null", NULL};

	(void)state;
	says(run("$CPATTN bench --problem S=33,H=4,D=16 --variant ring --ranks 2 --json - "
		 "--threads 1 --repeat 1"),
		2, words);
}

static void a_mistake_is_status_2_and_one_sentence(void **state)
{
	static const char *const lines[] = {"$CPATTN bench", BENCH "--repeat 0",
		BENCH "--threads 0", BENCH "--device cuda",
		BENCH "--variant ring --ulysses 2 --csv - >/dev/null",
		BENCH "--ranks 2 --json /nonexistent/a.json >/dev/null",
		"ASAN_OPTIONS=detect_leaks=0 " BENCH "--comm mpi --ranks 2 >/dev/null",
		"$CPATTN bench /nonexistent.h5",
		"$CPATTN bench --problem S=33,H=4 --variant ring --ranks 2 --repeat 1 >/dev/null",
		"$CPATTN bench --kernels --ranks 2", "$CPATTN bench --kernels --threads 99999"};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		const struct ran *ran = run(lines[i]);

		if (ran->status != 2 || ran->out[0] || strncmp(ran->err, "cpattn: ", 8) != 0 ||
			strchr(ran->err, '\n') != ran->err + strlen(ran->err) - 1)
			fail_msg("%s: status %d\nstdout: %s\nstderr: %s", lines[i], ran->status,
				ran->out, ran->err);
	}
}

static void kernels_of_a_problem_are_four(void **state)
{
	static const char *const words[] = {"\"problem\": \"S=32,H=4,D=16,dtype=fp32\"",
		"\"kernel\": \"attend\"", "\"kernel\": \"merge\"",
		"\"kernel\": \"copy\"", "\"kernel\": \"transpose\"",
		"\"limited_by\": \"multiply-add\"", "\"limited_by\": \"copy\"",
		"\"flop\": 262144", "\"right\": 4", NULL};
	const struct ran *ran = run(BENCH "--kernels --csv -");

	(void)state;
	assert_int_equal(ran->status, 0);
	lines_have_the_columns_of_the_header(ran->out, 4);
	/* 32 x 32 pairs of 4 heads, 2 (16 + 16) flop each. */
	says(run(BENCH "--kernels --json -"), 0, words);
}

static void kernels_are_test_cases_of_junit(void **state)
{
	static const char *const words[] = {
		"<testsuites name=\"cpattn bench\" tests=\"4\" failures=\"0\" errors=\"0\" "
		"skipped=\"0\">\n",
		"  <testsuite name=\"kernels\" tests=\"4\"",
		"    <testcase classname=\"attend\" name=\"S=32,H=4,D=16,dtype=fp32\" time=\"0.",
		"    <testcase classname=\"transpose\"", "  </testsuite>\n</testsuites>\n", NULL};
	const struct ran *ran = run(BENCH "--kernels --junit -");

	(void)state;
	says(ran, 0, words);
	assert_int_equal(strncmp(ran->out, "<?xml", 5), 0); /* and nothing else */
}

/* Containers are often root and have fewer cores than ranks; memory that MPI keeps is no leak of
 * ours. */
static void processes_are_ranks_and_one_of_them_prints(void **state)
{
	static const char *const words[] = {",ring,1,2,1,2,p2p,", ",ulysses,1,1,2,2,", NULL};
	const struct ran *ran;

	(void)state;
	if (run("mpirun --version && $CPATTN --version | grep -q MPI")->status != 0)
		skip();
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	ran = run("mpirun --bind-to none -n 2 " BENCH "--comm mpi --one-rank-threads 1 --variant "
		  "ring,ulysses --csv -");
	says(ran, 0, words);
	assert_non_null(strstr(ran->out, ",mpi,right,"));
	lines_have_the_columns_of_the_header(ran->out, 2); /* the other process says nothing */
	ran = run("mpirun --bind-to none -n 2 " BENCH "--comm mpi --ranks 3 --variant "
		  "ring_anything");
	assert_int_equal(ran->status, 2);
	assert_non_null(strstr(ran->err, "a world of 3 needs mpirun -n 3"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_explain_themselves_within_100_columns),
		cmocka_unit_test(worlds_are_of_four_ranks_unless_told),
		cmocka_unit_test(csv_has_a_line_for_each_configuration),
		cmocka_unit_test(json_has_the_envelope_and_what_only_bench_has),
		cmocka_unit_test(what_was_refused_has_nulls),
		cmocka_unit_test(a_mistake_is_status_2_and_one_sentence),
		cmocka_unit_test(kernels_of_a_problem_are_four),
		cmocka_unit_test(kernels_are_test_cases_of_junit),
		cmocka_unit_test(processes_are_ranks_and_one_of_them_prints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
