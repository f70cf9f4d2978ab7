/*
 * test_recording_hang.c - logs of what ranks issued: hangs get the class and the cycle or the
 * finished peer that they were made with, and runs that end get none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "harness/diagnose_events.h"

/* ---- logs ---- */

static struct cpa_event events[1 << 14];
static int64_t nevents;

static void add(int rank, enum cpa_event_kind kind, int communicator, int peer, int64_t bytes)
{
	assert_true(nevents < (int64_t)(sizeof events / sizeof events[0]));
	events[nevents++] = (struct cpa_event){rank, kind, communicator, peer, bytes};
}

static void send(int rank, int peer, int64_t bytes)
{
	add(rank, CPA_EVENT_SEND, 0, peer, bytes);
}

static void receive(int rank, int peer, int64_t bytes)
{
	add(rank, CPA_EVENT_RECV, 0, peer, bytes);
}

static void group(int rank, bool begin)
{
	add(rank, begin ? CPA_EVENT_GROUP_BEGIN : CPA_EVENT_GROUP_END, 0, -1, 0);
}

/* One grouped hop of a ring. */
static void hop(int rank, int P, int64_t bytes_out, int64_t bytes_in)
{
	group(rank, true);
	send(rank, (rank + 1) % P, bytes_out);
	receive(rank, (rank + P - 1) % P, bytes_in);
	group(rank, false);
}

static struct cpa_arena arena;

static struct cpa_hang find(int P)
{
	struct cpa_hang hang;
	struct cpa_error error = {""};

	cpa_arena_fini(&arena);
	cpa_arena_init(&arena);
	assert_int_equal(cpa_hang_find(events, nevents, P, &arena, &hang, &error), CPA_OK);
	nevents = 0;
	return hang;
}

static void expect(const struct cpa_hang *hang, const char *class)
{
	for (int i = 0; i < hang->nclasses; i++)
		if (strcmp(hang->classes[i], class) == 0 && hang->wrong)
			return;
	fail_msg("expected %s of %d ranks, got %d classes, the first %s: %s", class, hang->world,
		hang->nclasses, hang->nclasses ? hang->classes[0] : "-", hang->text);
}

static void runs_that_end_are_right(void **state)
{
	(void)state;
	for (int P = 1; P <= 6; P++)
		for (int kind = 0; kind < 4; kind++) {
			struct cpa_hang hang;

			for (int rank = 0; rank < P; rank++)
				for (int i = 0; i < P - 1; i++) {
					int next = (rank + 1) % P, last = (rank + P - 1) % P;

					if (kind == 0) {
						hop(rank, P, 64, 64);
					} else if (kind == 1) {
						add(rank, CPA_EVENT_ISEND, 0, next, 8);
						add(rank, CPA_EVENT_IRECV, 0, last, 8);
						add(rank, CPA_EVENT_WAIT, 0, -1, 0);
					} else if (kind == 2) {
						add(rank, CPA_EVENT_COLLECTIVE, 0, -1, 16);
					} else if (rank % 2) { /* one communicator, by parity */
						receive(rank, last, 8);
						send(rank, next, 8);
					} else {
						send(rank, next, 8);
						receive(rank, last, 8);
					}
				}
			hang = find(P);
			if (hang.wrong || hang.nclasses || hang.nwaiting || hang.ncycle)
				fail_msg("%d ranks, kind %d: %s", P, kind, hang.text);
		}
}

/* G01: all of them send first. */
static void a_cycle_of_sends_is_named_with_all_its_ranks(void **state)
{
	(void)state;
	for (int P = 2; P <= 6; P++) {
		struct cpa_hang hang;

		for (int rank = 0; rank < P; rank++) {
			send(rank, (rank + 1) % P, 8);
			receive(rank, (rank + P - 1) % P, 8);
		}
		hang = find(P);
		expect(&hang, "G01");
		assert_true(hang.nclasses == 1 && hang.ncycle == P && hang.nwaiting == P);
		for (int i = 0; i < P; i++)
			assert_int_equal(hang.cycle[(i + 1) % P], (hang.cycle[i] + 1) % P);
	}
}

/* G02: the communicator by parity too: odd rings have two neighbours of one parity. */
static void communicators_by_parity_hang_odd_rings_only(void **state)
{
	(void)state;
	for (int P = 2; P <= 7; P++) {
		struct cpa_hang hang;

		for (int rank = 0; rank < P; rank++) {
			int next = (rank + 1) % P, last = (rank + P - 1) % P;

			if (rank % 2) {
				add(rank, CPA_EVENT_RECV, 1, last, 8);
				add(rank, CPA_EVENT_SEND, 2, next, 8);
			} else {
				add(rank, CPA_EVENT_SEND, 1, next, 8);
				add(rank, CPA_EVENT_RECV, 2, last, 8);
			}
		}
		hang = find(P);
		assert_int_equal(hang.wrong, P % 2);
		if (P % 2)
			expect(&hang, "G02");
	}
}

/* G03: rank 1 skips a message of nothing, and rank 2 waits for it; or all later ranks do. */
static void one_sided_skips_name_the_finished_peer(void **state)
{
	(void)state;
	for (int P = 3; P <= 6; P++) {
		struct cpa_hang hang;

		for (int rank = 0; rank < P; rank++)
			for (int i = 0; i < 2; i++) {
				int last = (rank + P - 1) % P;

				if (!(rank == 1 && i == 1))
					add(rank, CPA_EVENT_ISEND, 0, (rank + 1) % P, 8);
				receive(rank, last, 8);
			}
		hang = find(P);
		expect(&hang, "G03");
		assert_true(hang.nwaiting == 1 && hang.chain_end == 1 && hang.ncycle == 0);
		assert_true(hang.ranks[2].event >= 0 && hang.ranks[2].peer_finished &&
			hang.ranks[2].waits_for == 1 && hang.ranks[2].unmatched);
		/* Causal: rank r works on r hops, and skips the exchange with the work. */
		for (int rank = 0; rank < P; rank++)
			for (int i = 0; i < rank; i++)
				hop(rank, P, 8, 8);
		hang = find(P);
		expect(&hang, "G03");
		assert_int_equal(hang.nwaiting, P - 1);
	}
}

/* G04: shards of 8 and 7 tokens, and the count of the own one at every hop. */
static void counts_that_differ_are_named_with_their_ranks(void **state)
{
	struct cpa_hang hang;

	(void)state;
	for (int rank = 0; rank < 4; rank++)
		for (int i = 0; i < 3; i++) {
			int64_t own = rank < 2 ? 8 : 7;

			hop(rank, 4, own, own);
		}
	hang = find(4);
	expect(&hang, "G04");
	assert_int_equal(hang.nclasses, 1);
	/* The count of the source rank is right. */
	for (int rank = 0; rank < 4; rank++)
		for (int i = 0; i < 3; i++)
			hop(rank, 4, (rank + 4 - i) % 4 < 2 ? 8 : 7,
				(rank + 3 - i) % 4 < 2 ? 8 : 7);
	assert_false(find(4).wrong);
	/* As many elements, of another type: G08. */
	for (int rank = 0; rank < 3; rank++)
		add(rank, CPA_EVENT_COLLECTIVE, 0, -1, rank == 1 ? 128 : 64);
	hang = find(3);
	expect(&hang, "G08");
	expect(&hang, "G04");
	assert_true(events[hang.mismatch[0]].rank == 1);
}

/* G05: two communicators in another order. */
static void another_order_of_communicators_is_named(void **state)
{
	struct cpa_hang hang;

	(void)state;
	for (int rank = 0; rank < 4; rank++)
		for (int i = 0; i < 2; i++)
			add(rank, CPA_EVENT_COLLECTIVE, 1 + (rank == 2 ? 1 - i : i), -1, 8);
	hang = find(4);
	expect(&hang, "G05");
	assert_true(hang.nclasses == 1 && hang.ncycle == 2 && hang.nwaiting == 4);
	add(0, CPA_EVENT_SEND, 1, 1, 8);
	add(0, CPA_EVENT_SEND, 2, 1, 8);
	add(1, CPA_EVENT_RECV, 2, 0, 8);
	add(1, CPA_EVENT_RECV, 1, 0, 8);
	hang = find(2);
	expect(&hang, "G05");
	assert_int_equal(hang.ncycle, 2);
}

/* G06: ranks 2 and 3 are 0 and 1 of their group, and one of them says so. */
static void a_group_rank_used_as_a_rank_is_named(void **state)
{
	struct cpa_hang hang;

	(void)state;
	add(0, CPA_EVENT_SEND, 1, 1, 8);
	add(1, CPA_EVENT_RECV, 1, 0, 8);
	add(2, CPA_EVENT_SEND, 2, 1, 8);
	add(3, CPA_EVENT_RECV, 2, 2, 8);
	hang = find(4);
	expect(&hang, "G06");
	assert_true(hang.ranks[2].event == 2);
	send(0, 7, 8);
	receive(1, 0, 8);
	hang = find(2);
	expect(&hang, "G06");
	assert_non_null(strstr(hang.text, "there is not"));
}

/* G07: rank 1 takes another branch. */
static void a_rank_in_another_branch_is_named(void **state)
{
	struct cpa_hang hang;

	(void)state;
	for (int rank = 0; rank < 3; rank++)
		if (rank == 1)
			add(rank, CPA_EVENT_COLLECTIVE, 0, -1, 8);
		else
			hop(rank, 3, 8, 8);
	hang = find(3);
	expect(&hang, "G07");
	assert_int_equal(hang.nwaiting, 3);
}

/* G10: rank 2 goes one hop more. */
static void one_hop_more_leaves_that_rank_alone(void **state)
{
	(void)state;
	for (int P = 3; P <= 6; P++) {
		struct cpa_hang hang;

		for (int rank = 0; rank < P; rank++)
			for (int i = 0; i < P - 1 + (rank == 2); i++)
				hop(rank, P, 8, 8);
		hang = find(P);
		expect(&hang, "G10");
		assert_true(hang.nclasses == 1 && hang.nwaiting == 1 && hang.ranks[2].event >= 0);
		assert_true(hang.chain_end >= 0 && hang.ranks[2].peer_finished);
	}
}

/* G09: thousands of messages in one group. */
static void a_very_large_group_is_said(void **state)
{
	struct cpa_hang hang;

	(void)state;
	for (int rank = 0; rank < 2; rank++) {
		group(rank, true);
		for (int i = 0; i < 1500; i++)
			if (rank)
				receive(1, 0, 8);
			else
				send(0, 1, 8);
		group(rank, false);
	}
	hang = find(2);
	assert_true(!hang.wrong && strstr(hang.text, "1500 messages"));
}

/* A message that nobody waits for, and logs that are cut off. */
static void what_never_arrives_is_wrong_without_a_hang(void **state)
{
	struct cpa_hang hang;

	(void)state;
	add(0, CPA_EVENT_ISEND, 0, 1, 8);
	hang = find(2);
	expect(&hang, "G03");
	assert_int_equal(hang.nwaiting, 0);
	assert_false(find(3).wrong);
}

static void any_log_is_judged_in_the_end(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		struct cpa_hang hang;
		int waiting = 0, P = 1 + i % 5, n = i % 60;

		for (int k = 0; k < n; k++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
			add((int)(seed >> 33) % P,
				(enum cpa_event_kind)((seed >> 40) % CPA_NEVENT_KINDS),
				(int)(seed >> 44) % 3, (int)(seed >> 48) % (P + 2) - 1,
				(int64_t)(seed >> 52) % 3);
		}
		hang = find(P);
		for (int rank = 0; rank < P; rank++)
			waiting += hang.ranks[rank].event >= 0;
		assert_int_equal(waiting, hang.nwaiting);
		assert_true(hang.text[0] && hang.ncycle <= P);
		assert_true(!hang.nwaiting || (hang.wrong && hang.nclasses > 0));
		for (int k = 0; k < hang.ncycle; k++)
			assert_int_equal(hang.ranks[hang.cycle[k]].waits_for,
				hang.cycle[(k + 1) % hang.ncycle]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_that_end_are_right),
		cmocka_unit_test(a_cycle_of_sends_is_named_with_all_its_ranks),
		cmocka_unit_test(communicators_by_parity_hang_odd_rings_only),
		cmocka_unit_test(one_sided_skips_name_the_finished_peer),
		cmocka_unit_test(counts_that_differ_are_named_with_their_ranks),
		cmocka_unit_test(another_order_of_communicators_is_named),
		cmocka_unit_test(a_group_rank_used_as_a_rank_is_named),
		cmocka_unit_test(a_rank_in_another_branch_is_named),
		cmocka_unit_test(one_hop_more_leaves_that_rank_alone),
		cmocka_unit_test(a_very_large_group_is_said),
		cmocka_unit_test(what_never_arrives_is_wrong_without_a_hang),
		cmocka_unit_test(any_log_is_judged_in_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
