/*
 * test_recording_merge.c - parts that ranks recorded join to the tensors that they were cut from,
 * and what does not fit is refused by name.
 */
#include "harness/test_recording_parts.h"

#include <math.h>

/* ---- what was cut joins ----------------------------------------------------------------------
 */

/* Tokens 0 .. S-1 to random ranks in random order, with some padding. */
static void deal(uint64_t seed, int64_t S, int world, struct ids *to)
{
	for (int r = 0; r < world; r++)
		to[r].n = 0;
	for (int64_t i = 0; i < S; i++) {
		/* 7 has no factor in common with S. */
		struct ids *rank = &to[mix(seed + (uint64_t)i) % (uint64_t)world];

		rank->at[rank->n++] = seed % 3 ? i * 7 % S : i;
		if (mix(seed * 77 + (uint64_t)i) % 9 == 0)
			rank->at[rank->n++] = -1;
	}
}

static void tokens_dealt_to_ranks_at_random_come_together_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 16; seed++) {
		const int world = 1 + (int)(mix(seed) % 5);
		const struct cpa_problem p = {.B = 1 + (int64_t)(seed % 2),
			.Sq = 16,
			.Skv = seed % 4 ? 16 : 11,
			.Hq = 4,
			.Hkv = 2,
			.D = 3,
			.Dv = 5,
			.dtype = (enum cpa_dtype)(seed % 4),
			.scale = 0.3,
			.lse = true};
		struct ids queries[8], keys[8];
		struct cpa_error error;

		deal(seed, p.Sq, world, queries);
		deal(seed + 100, p.Skv, world, keys);
		for (int r = 0; r < world; r++) {
			write_part(&p, "00_a", r, world, &queries[r], &keys[r], NULL);
			write_part(&p, "01_b", r, world, &queries[r], &keys[r], NULL);
		}
		if (merge(&error) != CPA_OK)
			fail_msg("seed %d: %s", (int)seed, error.text);
		check_merged(&p, 2, world);
		assert_int_equal(clear(run), 2 * world);
	}
}

/* ---- what does not fit -----------------------------------------------------------------------
 */

static const struct {
	const char *says, *also;
	struct ids first, second; /* tokens of the two ranks */
	struct bend bend; /* of rank 1 */
} misfits[] = {
	{"no rank holds token 2 (batch item 0, head 0) of q", "all of them over the 2 ranks",
		{2, {0, 1}}, {1, {3}}, {0}},
	{"00_a.rank1.h5: /calls/00_a/ranks/1/q: token 1 (batch item 0, head 0) is held twice",
		"00_a.rank0.h5", {2, {0, 1}}, {3, {1, 2, 3}}, {0}},
	{"token 2 (batch item 0, head 0) is held twice", "", {2, {0, 1}}, {3, {2, 3, 2}}, {0}},
	{"00_a.rank1.h5: /calls/00_a/ranks/1/v: token number 0 as stored",
		"holds a NaN or an infinity", {2, {0, 1}}, {2, {2, 3}},
		{1, 'v', NAN, false, false, false}},
	{"00_a.rank1.h5: rank 1 of /calls/00_a has another scale than rank 0",
		"alike on all ranks", {2, {0, 1}}, {2, {2, 3}}, {1, 0, 0, true, false, false}},
	{"no rank holds token 2 (batch item 0, head 0) of v", "", {2, {0, 1}}, {2, {2, 3}},
		{1, 0, 0, false, true, false}},
	{"ids of q reach to 1 batch items, 16777216 tokens", "", {2, {0, 1}},
		{1, {(1 << 24) - 1}}, {0}},
};

static void expect_refusal(const char *says, const char *also)
{
	struct cpa_error error;
	const enum cpa_status status = merge(&error);

	if (status != CPA_INVALID || !strstr(error.text, says) || !strstr(error.text, also))
		fail_msg("expected '%s' and '%s', status %d: %s", says, also, (int)status,
			error.text);
	/* Neither the file nor a temporary one. */
	assert_int_equal(access(out, F_OK), -1);
	assert_int_equal(clear(directory), 0);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
	(void)state;
	clear(directory);
	for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
		write_part(&four, "00_a", 0, 2, &misfits[i].first, &misfits[i].first,
			&misfits[i].bend);
		write_part(&four, "00_a", 1, 2, &misfits[i].second, &misfits[i].second,
			&misfits[i].bend);
		expect_refusal(misfits[i].says, misfits[i].also);
		clear(run);
	}
}

/* What is to be judged is carried over as it is. */
static void what_ranks_returned_may_be_anything(void **state)
{
	static const struct {
		char tensor;
		double value;
	} cases[] = {{'o', NAN}, {'o', -INFINITY}, {'l', INFINITY}, {'l', NAN}};
	const struct ids first = {2, {0, 1}}, second = {2, {2, 3}};

	(void)state;
	clear(directory);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct bend bend = {1, cases[i].tensor, cases[i].value, false, false, false};
		struct cpa_recording *recording;
		struct cpa_error error;
		bool found = false;

		write_part(&four, "00_a", 0, 2, &first, &first, NULL);
		write_part(&four, "00_a", 1, 2, &second, &second, &bend);
		if (merge(&error) != CPA_OK)
			fail_msg("%s", error.text);
		assert_int_equal(cpa_recording_open(out, &recording, &error), CPA_OK);
		const struct cpa_call *call = good_call(recording, 0);
		for (int n = 0; n < call->nheld; n++) {
			double held[4 * 2 * 3];

			if (call->held[n].rank != 1 ||
				call->held[n].tensor[0] != cases[i].tensor)
				continue;
			assert_int_equal(cpa_recording_read_held(recording, 0, &call->held[n],
						 CPA_DTYPE_FP64, held, &error),
				CPA_OK);
			found = isnan(cases[i].value) ? isnan(held[0])
						      : held[0] == cases[i].value;
			assert_true(isfinite(held[1]));
		}
		assert_true(found);
		cpa_recording_close(recording);
		clear(run);
	}
}

/* A run on one rank is a call whose own o is that of one device. */
static void one_device_must_be_finite(void **state)
{
	float q[4 * 2 * 3] = {0}, k[4 * 3] = {0}, o[4 * 2 * 3] = {0};
	struct cpa_error error;
	char name[100];

	(void)state;
	clear(directory);
	o[7] = NAN;
	snprintf(name, sizeof name, "%s/one.h5", run);
	assert_int_equal(
		cpa_recording_write(name, "00_a", &four, q, k, k, o, NULL, "a test", &error),
		CPA_OK);
	expect_refusal("/calls/00_a/o: token number 1 as stored", "holds a NaN or an infinity");
	clear(run);
}

static void keys_on_several_ranks_must_be_the_same_bits(void **state)
{
	const struct ids all = {4, {0, 1, 2, 3}}, first = {2, {0, 1}}, second = {2, {2, 3}};
	const struct bend bend = {1, 'k', 7, false, false, false};
	struct cpa_error error;

	(void)state;
	clear(directory);
	write_part(&four, "00_a", 0, 2, &first, &all, NULL);
	write_part(&four, "00_a", 1, 2, &second, &all, &bend);
	expect_refusal("00_a.rank1.h5: /calls/00_a/ranks/1/k: token 0 (batch item 0, head 0) "
		       "differs from what "
		       "rank 0 held",
		"00_a.rank0.h5");
	write_part(&four, "00_a", 1, 2, &second, &all, NULL);
	if (merge(&error) != CPA_OK)
		fail_msg("%s", error.text);
	check_merged(&four, 1, 2);
	clear(run);
}

static void ranks_that_are_missing_or_double_are_named(void **state)
{
	const struct ids first = {2, {0, 1}}, second = {2, {2, 3}};
	char from[100], to[100];

	(void)state;
	clear(directory);
	write_part(&four, "00_a", 0, 3, &first, &first, NULL);
	write_part(&four, "00_a", 1, 3, &second, &second, NULL);
	expect_refusal("/calls/00_a: rank 2 of 3 is missing", "--call");
	write_part(&four, "00_a", 0, 2, &first, &first, NULL);
	expect_refusal("is of a run of", "expected one run in a directory");
	write_part(&four, "00_a", 1, 2, &second, &second, NULL);
	snprintf(from, sizeof from, "%s/00_a.rank1.h5", run);
	snprintf(to, sizeof to, "%s/copy.h5", run);
	assert_int_equal(link(from, to), 0);
	expect_refusal("holds rank 1 of /calls/00_a, which", "expected each rank once");
	clear(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_dealt_to_ranks_at_random_come_together_again),
		cmocka_unit_test(what_does_not_fit_is_refused_by_name),
		cmocka_unit_test(what_ranks_returned_may_be_anything),
		cmocka_unit_test(one_device_must_be_finite),
		cmocka_unit_test(keys_on_several_ranks_must_be_the_same_bits),
		cmocka_unit_test(ranks_that_are_missing_or_double_are_named),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
