/*
 * test_fault_classes.c - the faults of every class: each is planted in a problem that suits it and
 * is seen, is refused with a sentence where it cannot be, and nothing is refused silently; the
 * text of --fault; what is recorded is found by check.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness/check.h"
#include "harness/options.h"
#include "harness/record.h"
#include "harness/recording.h"
#include "harness/verify.h"

/* A command line of verify in parts, and its run. */
struct run {
	struct cpa_options options;
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_config config;
	int nconfigs;
	struct cpa_verify_trace trace;
	struct cpa_result result;
	struct cpa_record record; /* path NULL: none */
};

static bool collect(void *context, const struct cpa_config *config)
{
	struct run *run = context;
	if (run->nconfigs++ == 0)
		run->config = *config;
	return true;
}

static void read_line(struct run *run, const char *line, const char *fault)
{
	static char words[1024];
	char *argv[40] = {"cpattn", "verify"};
	int argc = 2;
	struct cpa_error error;
	snprintf(words, sizeof words, "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc++] = "--fault";
	argv[argc++] = (char *)(uintptr_t)fault;
	if (cpa_options_parse(argc, argv, &run->options, &error) != CPA_OK)
		fail_msg("%s: %s", line, error.text);
}

/* Tear down in any case. */
static void set_up(struct run *run, const char *line, const char *fault, const char *path)
{
	struct cpa_error error;
	struct cpa_device *device;
	struct cpa_verifier *verifier;
	*run = (struct run){.nconfigs = 0};
	read_line(run, line, fault);
	assert_int_equal(cpa_inputs_make(&run->options.problem, run->options.fill,
				 run->options.seed, run->data, &run->tensors, &error),
		CPA_OK);
	assert_int_equal(cpa_device_create("cpu", &device, &error), CPA_OK);
	if (cpa_sweep(&run->options, &run->options.problem,
		    CPA_ROTATE_CHOICE_P2P, false, collect, run, &error) != CPA_OK)
		fail_msg("%s: %s", line, error.text);
	assert_true(run->nconfigs > 0);
	run->record = (struct cpa_record){path, &run->tensors, &run->options.guidance};
	struct cpa_verify_settings settings = {.device = device,
		.interleavings = 2,
		.guidance = run->options.guidance,
		.fault = run->options.fault_number,
		.fault_where = &run->options.fault_where,
		.fault_seed = 1,
		.keep = path ? cpa_record_ranks : NULL,
		.keep_context = &run->record};
	assert_int_equal(
		cpa_verifier_create(&settings, &run->tensors, NULL, &verifier, &error), CPA_OK);
	cpa_result_init(&run->result);
	cpa_verifier_run(verifier, &run->config, &run->result, &run->trace);
	cpa_verifier_destroy(verifier);
	cpa_device_destroy(device);
}

static void tear_down(struct run *run)
{
	free(run->result.counts);
	for (int i = 0; i < 3; i++)
		free(run->data[i]);
	cpa_options_fini(&run->options);
}

/* ---- every class ---- */

#define RING4                                                                                     \
	" --variant ring_anything --ranks 4 --batch 1 --ring 4 --ulysses 1"
#define RING2U2                                                                                   \
	" --variant unified_anything --ranks 4 --batch 1 --ring 2 --ulysses 2"
#define ULYSSES2                                                                                  \
	" --variant ulysses_anything --ranks 2 --batch 1 --ring 1 --ulysses 2"
#define PLAIN "--problem B=2,S=29,Hq=8,Hkv=4,D=12,dtype=fp32,scale=0.4"
#define EVEN "--problem B=2,S=32,Hq=8,Hkv=4,D=12,dtype=fp32,scale=0.4"
#define CAUSAL PLAIN ",causal"
#define TEXT "--problem B=2,S=30,H=8,D=16,dtype=fp32,segments=text:6:replicated/image:24:split"
#define CROSS                                                                                     \
	"--problem B=2,Sq=24,Skv=10,H=8,D=16,dtype=fp32,segments_kv=text:10:replicated"
#define BRANCHES "--problem B=3,S=24,H=4,D=16,dtype=fp32 --guidance 3.5:2"

/* What suits a fault; all others go with the first line that takes them. */
static const char *const lines[] = {CAUSAL RING4, PLAIN RING4, EVEN RING4, PLAIN RING2U2,
	EVEN RING2U2, BRANCHES RING2U2, TEXT RING4, TEXT ",causal" RING4, CROSS RING4,
	PLAIN ",sink=0.7" RING4, EVEN ",causal --order striped" RING4,
	EVEN ",causal --order zigzag" RING4, PLAIN ",window=5:0" RING4,
	PLAIN ",documents=0:5:17:29" RING4, PLAIN ",mask=bool:1xHx1xK:3" ULYSSES2,
	PLAIN ",key_lengths=20:11" RING4,
	"--problem S=29,Hq=6,Hkv=3,D=16,dtype=fp32" ULYSSES2,
	"--problem Sq=14,Skv=30,H=4,D=16,dtype=fp32,causal,offset=16" RING4,
	"--problem B=2,S=8,H=8,D=16,dtype=fp32,mask=bool:1xHxQxK:3 --variant ring_anything "
	"--ranks 8 --batch 1 --ring 8 --ulysses 1",
	CAUSAL " --direction down" RING4, CAUSAL " --fill extreme" RING4,
	PLAIN " --rotate allgather" RING4};
enum { NLINES = sizeof lines / sizeof lines[0] };

static void every_fault_has_a_problem_that_shows_it(void **state)
{
	(void)state;
	for (int i = 0; cpa_fault_name(i); i++) {
		bool planted = false, seen = false;
		/* It shows in scores of this size alone. */
		if (strcmp(cpa_fault_name(i), "finite-minus-infinity") == 0)
			continue;
		for (int n = 0; n < NLINES && !seen; n++) {
			struct run run;
			set_up(&run, lines[n], cpa_fault_name(i), NULL);
			bool refused = run.result.verdict == CPA_VERDICT_UNSUPPORTED;
			if (refused == run.trace.planted)
				fail_msg("%s %s: planted %d, %s", cpa_fault_name(i), lines[n],
					run.trace.planted, run.result.reason);
			if (refused && !strstr(run.result.reason, "needs"))
				fail_msg("%s: %s", cpa_fault_name(i), run.result.reason);
			if (!refused && !strstr(run.result.reason, "planted"))
				fail_msg("%s: %s", cpa_fault_name(i), run.result.reason);
			planted |= run.trace.planted;
			seen = run.result.verdict == CPA_VERDICT_WRONG;
			tear_down(&run);
		}
		if (!planted || !seen)
			fail_msg("%s: planted %d, seen %d", cpa_fault_name(i), planted, seen);
	}
}

/* Scores below -50000: a query and a key of opposite sign. */
static void a_finite_minus_infinity_shows_in_very_negative_scores(void **state)
{
	struct run run;
	(void)state;
	set_up(&run, "--problem S=8,H=8,D=16,dtype=fp32,scale=100000,causal" RING2U2,
		"finite-minus-infinity", NULL);
	assert_int_equal(run.result.verdict, CPA_VERDICT_WRONG);
	tear_down(&run);
}

/* ---- where ---- */

static void a_fault_goes_where_it_was_asked_for(void **state)
{
	static const char *const faults[] = {"block-counted-twice:rank=2,hop=1",
		"block-counted-twice:rank=2,block=1", "torn-block:rank=3,hop=2",
		"stale-block:hop=3,rank=3", "hop-skipped:rank=2,hop=2", "send-skipped:rank=1"};
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		struct run run;
		set_up(&run, EVEN RING4, faults[i], NULL);
		const struct cpa_fault_where *where = &run.options.fault_where;
		if (!run.trace.planted || run.trace.planted_rank != where->rank ||
			(where->hop >= 0 && run.trace.planted_hop != where->hop) ||
			(where->block >= 0 && run.trace.planted_block != where->block) ||
			run.result.verdict != CPA_VERDICT_WRONG)
			fail_msg("%s: %s", faults[i], run.result.reason);
		tear_down(&run);
	}
}

static void a_fault_of_one_rank_spoils_no_other(void **state)
{
	static const char *const faults[] = {
		"lse-read-as-base-2:rank=1", "scale-twice:rank=1", "zero-pads-counted:rank=1"};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct run run;
		set_up(&run, PLAIN RING4, faults[i], NULL);
		if (run.result.verdict != CPA_VERDICT_WRONG || !run.trace.lse_at_plant)
			fail_msg("%s: %s", faults[i], run.result.reason);
		tear_down(&run);
	}
}

static void places_that_are_not_there_are_named(void **state)
{
	static const char *const cases[][2] = {
		{"block-counted-twice:rank=9", "the last rank here is 3"},
		{"block-counted-twice:hop=4", "the last hop here is 3"},
		{"finite-minus-infinity:head=8", "the last head here is 7"},
		{"stale-block:rank=1,hop=0", "none where it was asked for"},
		{"documents-ignored", "needs documents"},
		{"sink-left-out", "needs a sink"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct run run;
		set_up(&run, EVEN RING4, cases[i][0], NULL);
		assert_int_equal(run.result.verdict, CPA_VERDICT_UNSUPPORTED);
		assert_false(run.trace.planted);
		if (!strstr(run.result.reason, cases[i][1]))
			fail_msg("%s: %s", cases[i][0], run.result.reason);
		tear_down(&run);
	}
}

static void the_text_of_a_fault_is_read_strictly(void **state)
{
	static const char *const bad[][2] = {
		{"block-counted-twise", "did you mean block-counted-twice"},
		{"", "unknown ''"},
		{"hop-skipped:", "expected rank="},
		{"hop-skipped:rank", "expected rank="},
		{"hop-skipped:rnk=1", "did you mean rank"},
		{"hop-skipped:rank=", "expected a number"},
		{"hop-skipped:rank=-1", "expected a number"},
		{"hop-skipped:rank=1x", "expected a number"},
		{"hop-skipped:rank=99999999999999999999", "expected a number"},
		{"hop-skipped:rank=1,rank=2", "there twice"},
		{"hop-skipped:rank=1,", "expected rank="},
		{"hop-skipped:head=1", "takes rank, hop or block"},
		{"heads-folded:rank=1", "all ranks together"},
	};
	struct cpa_fault_where where;
	struct cpa_error error;
	int fault;
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(
			cpa_fault_parse(bad[i][0], &fault, &where, &error), CPA_INVALID);
		if (!strstr(error.text, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], error.text);
	}
	assert_int_equal(cpa_fault_parse("torn-block:hop=2", &fault, &where, &error), CPA_OK);
	assert_string_equal(cpa_fault_name(fault), "torn-block");
	assert_int_equal(where.hop, 2);
	assert_int_equal(where.rank, -1);
}

static void every_fault_says_what_it_is(void **state)
{
	(void)state;
	for (int i = 0; cpa_fault_name(i); i++) {
		const char *class = cpa_fault_class(i);
		assert_int_equal(cpa_fault_find(cpa_fault_name(i)), i);
		assert_true(strlen(class) == 3 && strchr("ABCDEFGH", class[0]));
		assert_true(strlen(cpa_fault_summary(i)) > 15);
		assert_true(strlen(cpa_fault_seen_in(i)) > 3);
		assert_true(strlen(cpa_fault_shows(i)) > 3);
	}
}

/* ---- recordings ---- */

/* Which ranks check calls wrong, as bits. */
static unsigned wrong_ranks(const char *path)
{
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_arena arena;
	struct cpa_error error;
	struct cpa_check_rules rules = {CPA_ARITHMETIC_FP32, CPA_PARTIALS_FP32};
	unsigned wrong = 0;
	if (cpa_recording_open(path, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_arena_init(&arena);
	if (cpa_checked_init(&checked, recording, 0, 0, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_int_equal(checked.call->nranks, 4);
	assert_non_null(checked.call->config);
	for (int rank = 0; rank < 4; rank++) {
		struct cpa_check_part part;
		assert_int_equal(cpa_check_part(&checked, recording, 0, rank, &rules, &arena,
					 &part, &error),
			CPA_OK);
		assert_true(part.has_o && part.has_lse);
		assert_int_equal(part.nfindings, 0); /* what it held are pieces of the inputs */
		wrong |= part.right ? 0u : 1u << rank;
	}
	cpa_checked_fini(&checked);
	cpa_arena_fini(&arena);
	cpa_recording_close(recording);
	return wrong;
}

static void what_ranks_returned_is_found_in_the_recording(void **state)
{
	static const struct {
		const char *line, *fault;
		unsigned wrong;
	} cases[] = {
		{PLAIN RING4, "block-counted-twice:rank=2,hop=1", 1u << 2},
		{TEXT RING4, "lse-read-as-base-2:rank=1", 15u}, /* rows of the text are on all */
		{EVEN RING2U2, "rows-strided", 15u},
		{PLAIN RING4, "exp-overflow", 0}, /* not seen in such scores */
		{CAUSAL " --order zigzag" RING4, "merge-lost:rank=3", 1u << 3},
	};
	char path[] = "/tmp/cpattn-faults-XXXXXX";
	int fd = mkstemp(path);
	(void)state;
	struct cpa_recording *none;
	struct cpa_error error;
	assert_true(fd >= 0);
	close(fd);
	if (cpa_recording_open(path, &none, &error) == CPA_UNSUPPORTED) {
		unlink(path);
		skip(); /* built without HDF5 */
	}
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct run run;
		set_up(&run, cases[i].line, cases[i].fault, path);
		unsigned wrong = wrong_ranks(path);
		if (wrong != cases[i].wrong || (wrong != 0) !=
				(run.result.o.ratio > 1 || run.result.lse.ratio > 1))
			fail_msg("%s: wrong ranks %x; %s", cases[i].fault, wrong,
				run.result.reason);
		tear_down(&run);
	}
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fault_has_a_problem_that_shows_it),
		cmocka_unit_test(a_finite_minus_infinity_shows_in_very_negative_scores),
		cmocka_unit_test(a_fault_goes_where_it_was_asked_for),
		cmocka_unit_test(a_fault_of_one_rank_spoils_no_other),
		cmocka_unit_test(places_that_are_not_there_are_named),
		cmocka_unit_test(the_text_of_a_fault_is_read_strictly),
		cmocka_unit_test(every_fault_says_what_it_is),
		cmocka_unit_test(what_ranks_returned_is_found_in_the_recording),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
