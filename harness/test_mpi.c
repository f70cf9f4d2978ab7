/*
 * test_mpi.c - verify --comm mpi as people start it: mpirun and the command.
 *
 * CPATTN names the command, CPATTN_DATA the folder of recordings, as the Makefile sets them.
 */
#include "harness/test_shell.h"
#include "sim/test_mpi.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/dist.h"

static bool has_mpirun;

/* ---- running ---- */

static int times(const char *text)
{
	int n = 0;

	for (const char *at = said; (at = strstr(at, text)); at++)
		n++;
	return n;
}

static void needs_mpirun(void)
{
	if (!has_mpirun)
		skip();
}

/* ---- the same as in one process ---- */

/*
 * What may differ: the time, the communicator's name, the last digits of sums that are added in
 * another order, and those of the ratio to the device's own run on one rank, which each process
 * makes for its rows (fewer rows are done by another kernel): it is compared as a number.  Outputs
 * are held to the bit by their hashes.
 */
static void blank(char *text)
{
	static const struct {
		const char *key;
		size_t ndigits; /* that must be the same */
	} keys[] = {{"\"seconds\": ", 0}, {"\"comm\": ", 0}, {"\"soft_ratio\": ", 0},
		{"\"rel_l2\": ", 8}};
	char *to = text;

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		for (char *at = text; (at = strstr(at, keys[i].key));) {
			size_t n = 0;

			for (at += strlen(keys[i].key); *at && !strchr(",}\n", *at); at++)
				if (n++ >= keys[i].ndigits)
					*at = '?';
		}
	for (char *at = text; *at; at++) /* blanks of different lengths become one */
		if (*at != '?' || to == text || to[-1] != '?')
			*to++ = *at;
	*to = '\0';
}

static char *results_of(const char *name)
{
	static char path[256];
	char *text = calloc(1, 1 << 20), *results;
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	file = fopen(path, "r");
	assert_non_null(text);
	if (!file)
		fail_msg("no %s: %.4000s", name, said);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	results = strstr(text, "\"results\"");
	assert_non_null(results);
	memmove(text, results, strlen(results) + 1);
	return text;
}

/* The numbers after a key, one by one, to a factor of 2: the limit of a soft ratio counts the
 * error of a run of one rank, which each process makes for its own rows, and fewer rows may be
 * computed by another kernel and rounded otherwise. */
static void assert_near(const char *a, const char *b, const char *key)
{
	while ((a = strstr(a, key)) && (b = strstr(b, key))) {
		double x = strtod(a += strlen(key), NULL), y = strtod(b += strlen(key), NULL);

		if (!(x <= 2 * y && y <= 2 * x))
			fail_msg("%s%g in one process, %g in several", key, x, y);
	}
}

static void assert_same(const char *one, const char *other)
{
	char *a = results_of(one), *b = results_of(other);

	assert_near(a, b, "\"soft_ratio\": ");
	blank(a);
	blank(b);
	if (strcmp(a, b) != 0) {
		size_t at = 0;

		while (a[at] == b[at])
			at++;
		at = at > 300 ? at - 300 : 0;
		fail_msg("they differ:\n%.600s\n---\n%.600s", a + at, b + at);
	}
	assert_non_null(strstr(a, "\"verdict\": \"right\""));
	assert_null(strstr(a, "\"verdict\": \"wrong\""));
	assert_non_null(strstr(a, "\"output_hash\": [\""));
	free(a);
	free(b);
}

/* Verdicts, worst places, bytes, messages and the bits of all outputs. */
static void compare(int W, const char *what)
{
	needs_mpirun();
	run("rm -f #/*.json");
	if (run("@ verify --ranks %d %s --json #/fake.json", W, what) != 0)
		fail_msg("%s: %.4000s", what, said);
	if (run("mpirun -n %d @ verify --comm mpi %s --json #/mpi.json", W, what) != 0)
		fail_msg("%s: %.4000s", what, said);
	assert_same("fake.json", "mpi.json");
}

static void two_processes_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(2, "--problem B=2,S=64,Hq=6,Hkv=3,D=16,dtype=bf16,causal");
}

static void uneven_lengths_over_three_processes_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(3, "--problem S=517,H=4,D=32,dtype=fp32,causal --order zigzag");
	compare(3, "--problem Sq=40,Skv=91,H=3,D=8,mask=bool:1x1x1xK:3 --split balanced");
}

static void joint_segments_over_three_processes_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(3,
		"--problem "
		"S=211,H=4,D=16,dtype=fp32,segments=text:43:replicated/image:168:split");
}

static void large_messages_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(3, "--problem S=401,H=6,D=32,dtype=fp32");
	compare(2, "--problem B=2,S=600,Hq=4,Hkv=2,D=64,dtype=fp32");
}

static void five_processes_for_three_tokens_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(5, "--problem S=3,H=5,D=8");
}

static void batch_groups_of_processes_give_the_bits_of_one(void **state)
{
	(void)state;
	compare(5, "--problem B=3,S=50,H=5,D=8,dtype=fp16,sink=1 --batch 5");
	compare(2, "--problem B=3,S=50,H=2,D=8,dtype=fp16 --batch 2 --partials all");
}

static void a_recording_over_three_processes_gives_the_bits_of_one(void **state)
{
	(void)state;
	if (run("@ verify ~/recordings/smollm2_chunk_prefill.h5") == 2)
		skip(); /* built without HDF5 */
	compare(3, "~/recordings/smollm2_chunk_prefill.h5 ~/recordings/bert_key_length_0.h5");
}

static void one_and_two_threads_give_the_same_bits(void **state)
{
	static const char *const what = "--problem S=300,Hq=4,Hkv=2,D=32,dtype=bf16,causal";

	(void)state;
	needs_mpirun();
	run("rm -f #/*.json");
	for (int n = 1; n <= 2; n++) {
		assert_int_equal(run("OMP_NUM_THREADS=%d mpirun -n 2 @ verify --comm mpi %s "
				     "--json #/threads%d.json",
					 n, what, n),
			0);
		assert_int_equal(run("OMP_NUM_THREADS=%d @ verify --ranks 2 %s "
				     "--json #/fake%d.json",
					 n, what, n),
			0);
	}
	assert_same("threads1.json", "threads2.json");
	assert_same("threads1.json", "fake1.json");
	assert_same("threads1.json", "fake2.json");
}

/* ---- one voice ---- */

static void rank_0_alone_prints(void **state)
{
	(void)state;
	needs_mpirun();
	assert_int_equal(run("mpirun -n 3 @ verify --comm mpi --problem S=30,H=3,D=8"), 0);
	assert_int_equal(times("0 wrong"), 1);
	assert_silent_on("\033");
}

static void without_mpirun_it_is_a_world_of_one_and_says_how_to_start(void **state)
{
	(void)state;
	assert_int_equal(run("@ verify --comm mpi --problem S=30,H=3,D=8"), 0);
	assert_says(
		"without mpirun, --comm mpi is a world of 1; start it as: mpirun -n 4 cpattn");
	assert_int_equal(run("@ verify --comm mpi --ranks 4 --problem S=30,H=3,D=8"), 2);
	assert_says("start it as: mpirun -n 4");
}

static void the_list_says_that_mpi_can_run_here(void **state)
{
	(void)state;
	assert_int_equal(run("@ list comms"), 0);
	assert_says("mpi ");
	assert_says("mpirun -n N cpattn verify --comm mpi");
}

/* ---- refusals ---- */

static void refuses(const char *arguments, const char *why)
{
	needs_mpirun();
	assert_int_equal(run("mpirun -n 3 @ verify --comm mpi %s", arguments), 2);
	assert_says(why);
	assert_int_equal(times(why), 1);
}

static void another_world_than_was_started_is_refused(void **state)
{
	(void)state;
	refuses("--problem S=30,H=3 --ranks 4",
		"mpirun started 3 processes, and --comm mpi runs one a rank: a world of 4 needs "
		"mpirun -n 4");
	refuses("--problem S=30,H=3 --ranks 2-4", "--ranks names one world at most");
}

static void faults_and_random_problems_are_refused(void **state)
{
	(void)state;
	refuses("--problem S=30,H=3 --fault hop-skipped", "--comm fake");
	refuses("--random 3", "--random draws worlds of many sizes");
}

static void a_patience_that_is_no_number_is_refused(void **state)
{
	(void)state;
	assert_int_equal(
		run("CPATTN_PATIENCE=soon @ verify --comm mpi --problem S=30,H=3,D=8"), 2);
	assert_says("CPATTN_PATIENCE is 'soon'; expected a number of seconds above 0");
}

static void sharing_that_is_neither_on_nor_off_is_refused(void **state)
{
	(void)state;
	assert_int_equal(
		run("CPATTN_SHARE=maybe @ verify --comm mpi --problem S=30,H=3,D=8"), 2);
	assert_says("CPATTN_SHARE is 'maybe'; expected 1");
	needs_mpirun();
	/* On one of the ranks: the others do not wait for it. */
	assert_int_equal(run("timeout 60 mpirun -n 1 @ verify --comm mpi --problem S=30,H=3,D=8 "
			     ": -n 1 env CPATTN_SHARE=maybe @ verify --comm mpi "
			     "--problem S=30,H=3,D=8"),
		2);
	assert_says("CPATTN_SHARE is 'maybe'; expected 1");
}

/* ---- one rank fails ---- */

static void a_bad_file_on_one_rank_ends_all_with_its_sentence(void **state)
{
	(void)state;
	needs_mpirun();
	if (run("@ verify ~/recordings/minilm.h5") == 2)
		skip(); /* built without HDF5 */
	assert_int_equal(run("mpirun -n 2 @ verify --comm mpi ~/recordings/minilm.h5 : "
			     "-n 1 @ verify --comm mpi #/nosuch.h5"),
		2);
	assert_says("rank 2: cannot be opened: No such file or directory");
}

static void ranks_with_different_problems_are_told_apart(void **state)
{
	(void)state;
	needs_mpirun();
	assert_int_equal(run("mpirun -n 2 @ verify --comm mpi --problem S=60,H=6,D=8 : "
			     "-n 1 @ verify --comm mpi --problem S=66,H=6,D=8"),
		2);
	assert_says("rank 2 holds 22 query tokens of split segment 1 of 1");
	assert_int_equal(run("mpirun -n 2 @ verify --comm mpi --problem S=60,H=6,D=8 : "
			     "-n 1 @ verify --comm mpi --problem S=60,H=3,D=8"),
		2);
	assert_says("rank 2 disagrees with rank 0 in Hq");
}

static void a_rank_without_memory_ends_all_with_its_sentence(void **state)
{
	static const char *const what = "verify --comm mpi --problem Sq=8,Skv=50000,H=1,D=512,"
					"dtype=fp32 --fill count --variant ring_anything";

	(void)state;
	needs_mpirun();
#ifdef __SANITIZE_ADDRESS__
	skip(); /* its shadow is larger than any limit */
#endif
	assert_int_equal(
		run("mpirun -n 1 @ %s : -n 1 sh -c 'ulimit -v 500000; exec @ %s'", what, what),
		2);
	assert_says("rank 1: out of memory");
}

/* 16 MB are enough for the files of MPI, and not for what is sent. */
static void a_limit_on_files_hinders_nobody(void **state)
{
	(void)state;
	needs_mpirun();
	assert_int_equal(run("mpirun -n 2 sh -c 'ulimit -f 32768; exec @ verify --comm mpi "
			     "--problem Sq=8,Skv=30000,H=1,D=512,dtype=fp32 "
			     "--variant ring_anything'"),
		0);
	assert_says("0 wrong");
}

/* Whether some process has this among its arguments. */
static bool is_running(const char *word)
{
	DIR *processes = opendir("/proc");
	bool found = false;

	for (struct dirent *entry; processes && (entry = readdir(processes));) {
		char path[300], text[4096] = "";
		FILE *file;
		size_t n;

		snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
		file = isdigit((unsigned char)entry->d_name[0]) ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		n = fread(text, 1, sizeof text - 1, file);
		fclose(file);
		for (size_t i = 0; i < n; i++)
			if (!text[i])
				text[i] = ' ';
		found |= strstr(text, word) != NULL;
	}
	if (processes)
		closedir(processes);
	return found;
}

static void a_killed_rank_ends_all_and_leaves_no_orphans(void **state)
{
	char mark[40], what[300];

	(void)state;
	needs_mpirun();
	snprintf(mark, sizeof mark, "--seed 77%ld", (long)getpid());
	snprintf(what, sizeof what, "verify --comm mpi --problem S=30000,H=8,D=64,dtype=fp32 %s",
		mark);
	assert_int_not_equal(run("timeout 60 mpirun -n 1 @ %s : -n 1 sh -c "
				 "'(sleep 1; kill -9 $$) >/dev/null 2>&1 & exec @ %s'",
				     what, what),
		0);
	assert_says("exited on signal 9");
	for (int i = 0; i < 100 && is_running(mark); i++)
		nanosleep(&(struct timespec){0, 100000000}, NULL);
	assert_false(is_running(mark));
}

/* ---- without MPI ---- */

static void a_build_without_mpi_says_what_to_install(void **state)
{
	(void)state;
	assert_int_equal(run("@ verify --comm mpi --problem S=30,H=3,D=8"), 2);
	assert_says("built without MPI");
	assert_says("install libopenmpi-dev");
	assert_int_equal(run("@ list comms"), 0);
	assert_says("cannot run here: built without MPI");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_processes_give_the_bits_of_one),
		cmocka_unit_test(uneven_lengths_over_three_processes_give_the_bits_of_one),
		cmocka_unit_test(joint_segments_over_three_processes_give_the_bits_of_one),
		cmocka_unit_test(large_messages_give_the_bits_of_one),
		cmocka_unit_test(five_processes_for_three_tokens_give_the_bits_of_one),
		cmocka_unit_test(batch_groups_of_processes_give_the_bits_of_one),
		cmocka_unit_test(a_recording_over_three_processes_gives_the_bits_of_one),
		cmocka_unit_test(one_and_two_threads_give_the_same_bits),
		cmocka_unit_test(rank_0_alone_prints),
		cmocka_unit_test(without_mpirun_it_is_a_world_of_one_and_says_how_to_start),
		cmocka_unit_test(the_list_says_that_mpi_can_run_here),
		cmocka_unit_test(another_world_than_was_started_is_refused),
		cmocka_unit_test(faults_and_random_problems_are_refused),
		cmocka_unit_test(a_patience_that_is_no_number_is_refused),
		cmocka_unit_test(sharing_that_is_neither_on_nor_off_is_refused),
		cmocka_unit_test(a_bad_file_on_one_rank_ends_all_with_its_sentence),
		cmocka_unit_test(ranks_with_different_problems_are_told_apart),
		cmocka_unit_test(a_rank_without_memory_ends_all_with_its_sentence),
		cmocka_unit_test(a_limit_on_files_hinders_nobody),
		cmocka_unit_test(a_killed_rank_ends_all_and_leaves_no_orphans),
	};
	static const struct CMUnitTest none[] = {
		cmocka_unit_test(a_build_without_mpi_says_what_to_install),
	};

	if (!prepare())
		return 1;
	set_environment();
	if (!cpa_mpi_usable())
		return cmocka_run_group_tests(none, NULL, clean);
	has_mpirun = find_mpirun();
	return cmocka_run_group_tests(tests, NULL, clean);
}
