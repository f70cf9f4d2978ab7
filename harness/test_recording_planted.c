/*
 * test_recording_planted.c - faults planted in whole runs on random problems are named by diagnose,
 * and runs without one are not.
 */
#include "harness/test_fault_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "harness/test_directory.h"

static struct cpa_device *device;

static int make(void **state)
{
	struct cpa_error error;

	if (make_directory(state) != 0)
		return -1;
	return cpa_device_create("cpu", &device, &error) == CPA_OK ? 0 : -1;
}

static int unmake(void **state)
{
	cpa_device_destroy(device);
	return remove_directory(state);
}

/* Until the fault has a place and check finds it; false: in no problem that was drawn. */
static bool try_until_found(
	const char *fault, uint64_t seed, struct fault_outcome *out, struct fault_trial *trial)
{
	uint64_t state = seed;

	for (int i = 0; i < 400; i++) {
		bool failed = false;

		fault_trial_draw(trial, &state, fault);
		*out = fault_trial_run(trial, file_path, device, &failed);
		assert_false(failed);
		if (out->planted && out->found)
			return true;
	}
	return false;
}

static void faults_on_random_problems_are_named_with_their_place(void **state)
{
	int nnamed = 0, nfound = 0, nother = 0;

	(void)state;
	for (int i = 0; cpa_fault_name(i); i++) {
		struct fault_outcome out;
		struct fault_trial trial;

		if (!cpa_fault_is_in_attention(i) || i % CPA_TEST_PART != 0)
			continue;
		if (!try_until_found(cpa_fault_name(i), 100 + (uint64_t)i, &out, &trial)) {
			print_message("%s: in no problem\n", cpa_fault_name(i));
			continue;
		}
		nfound++;
		nnamed += out.named || out.tied;
		nother += !out.named && !out.tied && out.nfindings > 0;
		if (!out.named && !out.tied)
			fault_trial_print(stdout, &trial);
	}
	print_message("%d of %d named, %d named otherwise\n", nnamed, nfound, nother);
	assert_true(nfound >= 70 / CPA_TEST_PART);
	assert_true(20 * nnamed >= 19 * nfound);
	assert_int_equal(nother, 0);
}

static void a_fault_at_one_hop_block_or_head_is_named_there(void **state)
{
	static const char *const faults[] = {"hop-skipped:rank=1,hop=1", "lse-base-2:hop=1",
		"lse-read-as-base-2:hop=1", "causal-dropped:block=1", "diagonal-up:hop=0",
		"scale-left-out:rank=1", "window-ignored:rank=0", "mask-dropped:hop=1",
		"finite-minus-infinity:head=1", "head-swapped:head=0"};

	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		struct fault_outcome out;
		struct fault_trial trial;

		if (!try_until_found(faults[i], 7 + i, &out, &trial))
			fail_msg("%s: in no problem", faults[i]);
		if (!out.named && !out.tied) {
			fault_trial_print(stdout, &trial);
			fail_msg("%s: %d others are named", faults[i], out.nfindings);
		}
	}
}

static void what_is_right_is_not_found_wrong(void **state)
{
	uint64_t random = 3;
	int nran = 0;

	(void)state;
	for (int i = 0; i < 60; i++) {
		struct fault_trial trial;
		struct fault_outcome out;
		bool failed = false;

		fault_trial_draw(&trial, &random, "");
		out = fault_trial_run(&trial, file_path, device, &failed);
		nran += out.ran;
		if (failed || out.seen || out.found)
			fault_trial_print(stdout, &trial);
		assert_false(failed || out.seen || out.found);
	}
	assert_true(nran >= 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_on_random_problems_are_named_with_their_place),
		cmocka_unit_test(a_fault_at_one_hop_block_or_head_is_named_there),
		cmocka_unit_test(what_is_right_is_not_found_wrong),
	};

	return cmocka_run_group_tests(tests, make, unmake);
}
