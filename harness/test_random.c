/*
 * test_random.c - the random sweep: that it finds what is planted, how small it gets it, and
 * that nothing else is wrong.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmocka.h>

#include "harness/commands.h"
#include "harness/random.h"
#include "harness/test_random.h"

/* Sanitizers take ten times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY = 150 };
#else
enum { MANY = 1000 };
#endif

static struct cpa_random_report sweep(const char *more, int64_t n, uint64_t seed)
{
	char line[256];
	struct cpa_options options;
	struct cpa_random_report report;
	struct cpa_error error;
	snprintf(line, sizeof line, "--random %d --seed %d %s", (int)n, (int)seed, more);
	read_options(line, &options);
	assert_int_equal(cpa_random_sweep(&options, n, false, &report, &error), CPA_OK);
	cpa_options_fini(&options);
	return report;
}

/* The exit status of a whole line, its output thrown away. */
static int run_line(const char *line)
{
	char words[CPA_RANDOM_LINE];
	int out = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
	struct cpa_options options;
	assert_int_equal(strncmp(line, "cpattn verify ", 14), 0);
	snprintf(words, sizeof words, "%s", line + 14);
	read_options(words, &options);
	fflush(NULL);
	dup2(null, STDOUT_FILENO);
	int status = cpa_cmd_verify(&options);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(null);
	cpa_options_fini(&options);
	return status;
}

static void random_problems_are_right(void **state)
{
	(void)state;
	struct cpa_random_report r = sweep("", MANY, 1);
	if (r.verdict != CPA_VERDICT_RIGHT)
		fail_msg("problem %d: %s\n%s\nsmallest: %s", (int)r.problem, r.reason, r.drawn,
			r.smallest);
	assert_int_equal(r.nproblems, MANY);
	assert_int_equal(r.nwrong + r.ncannot_tell, 0);
	assert_true(r.nright > 4 * MANY);
	assert_true(r.o <= 1.0 && r.lse <= 1.0 && r.probe <= 1.0);
	assert_true(r.o > 0.1 && r.lse > 0.1); /* or bounds would see nothing */
	assert_true(r.ncombined > MANY / 2 && r.combined <= 1.0 && r.combined > 0.05);
}

/* ---- what fails is made small ---- */

static void expect_small(const char *fault, int64_t most_ranks, int64_t most_scores)
{
	char more[64], words[CPA_RANDOM_LINE];
	struct cpa_options o;
	snprintf(more, sizeof more, "--fault %s", fault);
	struct cpa_random_report r = sweep(more, 60, 5);
	assert_int_equal(r.verdict, CPA_VERDICT_WRONG);
	assert_true(r.nwrong >= 1);
	assert_true(strlen(r.smallest) < strlen(r.drawn));
	memcpy(words, r.smallest + 14, sizeof r.smallest - 14);
	read_options(words, &o);
	const struct cpa_problem *p = &o.problem;
	int64_t nranks = (int64_t)o.batch * o.ring * o.ulysses;
	/* One rank has two partials where it holds some of the keys whole. */
	int most_segments = nranks < most_ranks ? 2 : 0;
	if (nranks > most_ranks || p->B * p->Hq * p->Sq * p->Skv > most_scores || p->D > 1 ||
		p->rule.documents || p->rule.key_lengths || p->rule.sink || p->rule.mask.kind ||
		p->nsegments + p->nsegments_kv > most_segments)
		fail_msg("%s is still large: %s", fault, r.smallest);
	cpa_options_fini(&o);
	/* The line alone shows it again, and without the fault it does not. */
	assert_int_equal(run_line(r.smallest), 1);
	assert_int_equal(run_line(r.drawn), 1);
	*strstr(r.smallest, " --fault") = '\0';
	assert_int_equal(run_line(r.smallest), 0);
}

static void a_planted_fault_is_found_and_made_small(void **state)
{
	(void)state;
	/* A base shows in any lse that is not 0; a merge that can be lost takes two partials. */
	expect_small("lse-base-2", 1, 1);
	expect_small("pad-key-counted", 1, 1);
	expect_small("merge-lost", 2, 4);
	expect_small("head-swapped", 1, 2);
	expect_small("stale-buffer", 2, 4);
	/* Two branches, each of one score. */
	expect_small("branches-swapped", 1, 2);
	expect_small("scale-sign", 1, 2);
}

static void the_report_does_not_depend_on_threads(void **state)
{
	(void)state;
	struct cpa_random_report wide = sweep("--fault wrong-rank-kv", 40, 7);
#ifdef _OPENMP
	int before = omp_get_max_threads();
	omp_set_num_threads(1);
#endif
	struct cpa_random_report narrow = sweep("--fault wrong-rank-kv", 40, 7);
#ifdef _OPENMP
	omp_set_num_threads(before);
#endif
	assert_int_equal(wide.verdict, CPA_VERDICT_WRONG);
	assert_int_equal(wide.problem, narrow.problem);
	assert_string_equal(wide.drawn, narrow.drawn);
	assert_string_equal(wide.smallest, narrow.smallest);
}

static void a_sweep_with_nothing_wrong_exits_with_0(void **state)
{
	(void)state;
	assert_int_equal(run_line("cpattn verify --random 5 --seed 3"), 0);
	assert_int_equal(run_line("cpattn verify --random 60 --fault lse-base-2"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_problems_are_right),
		cmocka_unit_test(a_planted_fault_is_found_and_made_small),
		cmocka_unit_test(the_report_does_not_depend_on_threads),
		cmocka_unit_test(a_sweep_with_nothing_wrong_exits_with_0),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
