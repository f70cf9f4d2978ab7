/*
 * Tests of the messages and worlds of the fake communicator.
 */
#include "sim/test_fake.h"

struct call {
	bool send;
	int rank, peer, n;
	struct cpa_piece pieces[3];
};

/* One call as a group of its own. */
static enum cpa_status post(
	struct cpa_fake_world *world, const struct call *call, struct cpa_request **request)
{
	struct cpa_comm *comm = cpa_fake_world_comm(world, call->rank);

	comm->ops->group_begin(comm, 1);
	(call->send ? comm->ops->send : comm->ops->recv)(
		comm, 0, call->peer, call->pieces, call->n);
	return comm->ops->group_end(comm, request, &error);
}

static enum cpa_progress test(
	struct cpa_fake_world *world, int rank, struct cpa_request *request)
{
	struct cpa_comm *comm = cpa_fake_world_comm(world, rank);

	return comm->ops->test(comm, request, &error);
}

/* ---- messages ---- */

static void a_ping_arrives_once_both_have_called(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		float from[4] = { 1, 2, 3, 4 }, to[4] = { 0 };
		bool eager = modes[i % 2] == CPA_FAKE_EAGER;
		struct cpa_fake_world *world = make_world(2, modes[i % 2], (uint64_t)i);
		struct call send = { true, 0, 1, 1, { bytes(from, sizeof from) } };
		struct call recv = { false, 1, 0, 1, { bytes(to, sizeof to) } };
		struct cpa_request *sent, *received;

		assert_int_equal(post(world, &send, &sent), CPA_OK);
		assert_int_equal(test(world, 0, sent), eager ? CPA_DONE : CPA_PENDING);
		assert_int_equal(post(world, &recv, &received), CPA_OK);
		assert_int_equal(test(world, 1, received), CPA_PENDING);
		assert_int_equal(run(world, 2), CPA_OK);
		assert_int_equal(test(world, 0, sent), CPA_DONE);
		assert_int_equal(test(world, 1, received), CPA_DONE);
		assert_memory_equal(from, to, sizeof to);
		cpa_fake_world_destroy(world);
	}
}

static void memory_that_waits_for_a_message_is_poison(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		float to[5] = { 1, 2, 3, 4, 5 };
		struct cpa_fake_world *world = make_world(2, modes[i], 1);
		struct call recv = { false, 1, 0, 2, { bytes(to, 4), bytes(to + 2, 8) } };
		struct cpa_request *request;

		assert_int_equal(post(world, &recv, &request), CPA_OK);
		assert_true(is_poison(to, 4) && is_poison(to + 2, 8));
		assert_true(to[1] == 2 && to[4] == 5);
		cpa_fake_world_destroy(world);
	}
}

/* For a clock: nothing is written but the message, and that by whom it reaches. */
static void a_plain_message_is_moved_and_nothing_else(void **state)
{
	float from[2] = { 8, 9 }, to[3] = { 1, 2, 3 };
	struct cpa_fake_world *world = make_world(2, CPA_FAKE_PLAIN, 1);
	struct call send = { true, 0, 1, 1, { bytes(from, 8) } };
	struct call recv = { false, 1, 0, 1, { bytes(to, 8) } };
	struct cpa_request *sent, *received;

	(void)state;
	assert_int_equal(post(world, &recv, &received), CPA_OK);
	assert_true(to[0] == 1 && to[1] == 2);
	assert_int_equal(post(world, &send, &sent), CPA_OK);
	assert_int_equal(test(world, 0, sent), CPA_PENDING);
	from[1] = 7; /* read when it lands, as in a rendezvous */
	assert_int_equal(run(world, 2), CPA_OK);
	assert_int_equal(test(world, 0, sent), CPA_DONE);
	assert_int_equal(test(world, 1, received), CPA_DONE);
	assert_true(to[0] == 8 && to[1] == 7 && to[2] == 3);
	cpa_fake_world_destroy(world);
}

/* What the sender's memory holds when the message lands, not when it was posted, arrives. */
static void only_a_rendezvous_send_sees_memory_overwritten_too_early(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		double from = 1, to = 0;
		struct cpa_fake_world *world = make_world(2, modes[i], 1);
		struct call send = { true, 0, 1, 1, { bytes(&from, sizeof from) } };
		struct call recv = { false, 1, 0, 1, { bytes(&to, sizeof to) } };
		struct cpa_request *request;

		assert_int_equal(post(world, &send, &request), CPA_OK);
		assert_int_equal(post(world, &recv, &request), CPA_OK);
		from = 2;
		assert_int_equal(run(world, 2), CPA_OK);
		assert_true(to == (modes[i] == CPA_FAKE_EAGER ? 1 : 2));
		cpa_fake_world_destroy(world);
	}
}

static void messages_of_a_pair_meet_in_the_order_of_their_calls(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		float from[6] = { 0, 1, 2, 3, 4, 5 }, to[6];
		struct cpa_fake_world *world = make_world(2, modes[seed % 2], seed);
		struct cpa_request *request;

		for (int side = 0; side < 2; side++)
			for (int i = 0; i < 3; i++) {
				bool send = (uint64_t)side == seed / 2 % 2;
				float *at = (send ? from : to) + i * (i + 1) / 2;
				size_t nbytes = (size_t)(i + 1) * sizeof *at;
				struct call call = { send, !send, send, 1,
					{ bytes(at, nbytes) } };

				assert_int_equal(post(world, &call, &request), CPA_OK);
			}
		assert_int_equal(run(world, 2), CPA_OK);
		assert_memory_equal(from, to, sizeof to);
		cpa_fake_world_destroy(world);
	}
}

static void a_message_that_differs_names_both_sides(void **state)
{
	static float a[8], b[8];
	struct cpa_piece half = { b, 16, CPA_DTYPE_BF16 };
	struct {
		struct call send, recv;
		const char *say[2];
	} cases[] = {
		{ { true, 2, 1, 1, { bytes(a, 16) } }, { false, 1, 2, 1, { bytes(b, 12) } },
			{ "rank 2 sends 16 bytes of fp32",
				"rank 1 expects 12 bytes of fp32" } },
		{ { true, 2, 1, 2, { bytes(a, 16), bytes(a + 4, 16) } },
			{ false, 1, 2, 2, { bytes(b + 4, 16), half } },
			{ "in piece 1 rank 2 sends 16 bytes of fp32",
				"rank 1 expects 16 bytes of bf16" } },
		{ { true, 2, 1, 1, { bytes(a, 16) } },
			{ false, 1, 2, 2, { bytes(b, 8), bytes(b + 2, 8) } },
			{ "rank 2 sends 1 pieces (16 bytes)", "rank 1 expects 2 (16 bytes)" } },
	};

	(void)state;
	for (size_t i = 0; i < 4 * sizeof cases / sizeof *cases; i++) {
		size_t c = i / 4;
		bool send_first = i & 1;
		struct cpa_fake_world *world = make_world(3, modes[i / 2 % 2], 1);
		struct call fine[2] = { { true, 2, 1, 1, { bytes(a, 4) } },
			{ false, 1, 2, 1, { bytes(b, 4) } } };
		struct cpa_request *request;

		assert_int_equal(post(world, &fine[0], &request), CPA_OK);
		assert_int_equal(post(world, &fine[1], &request), CPA_OK);
		assert_int_equal(
			post(world, send_first ? &cases[c].send : &cases[c].recv, &request),
			CPA_OK);
		assert_int_equal(
			post(world, send_first ? &cases[c].recv : &cases[c].send, &request),
			CPA_MISMATCH);
		assert_says("message 1 of communicator 0");
		assert_says(cases[c].say[0]);
		assert_says(cases[c].say[1]);
		error.text[0] = '\0';
		assert_int_equal(run(world, 3), CPA_MISMATCH);
		assert_says(cases[c].say[0]);
		cpa_fake_world_destroy(world);
	}
}

static void an_empty_message_is_refused(void **state)
{
	float data[2];
	struct call cases[] = {
		{ true, 1, 0, 0, { { 0 } } },
		{ true, 1, 0, 2, { bytes(data, 8), bytes(data, 0) } },
		{ false, 1, 0, 1, { bytes(data, 0) } },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
		struct cpa_fake_world *world = make_world(2, modes[i % 2], 1);
		struct cpa_request *request;

		assert_int_equal(post(world, &cases[i / 2], &request), CPA_MISMATCH);
		assert_says(cases[i / 2].send ? "rank 1 sends to rank 0"
					      : "rank 1 expects from rank 0");
		assert_says("0 bytes");
		cpa_fake_world_destroy(world);
	}
}

static void a_call_without_a_partner_is_reported(void **state)
{
	float data[2] = { 0 };

	(void)state;
	for (int i = 0; i < 4; i++) {
		bool send = i & 1;
		struct cpa_fake_world *world = make_world(3, modes[i / 2], 1);
		struct call call = { send, 2, 1, 1, { bytes(data, 8) } };
		struct cpa_request *request;

		assert_int_equal(post(world, &call, &request), CPA_OK);
		assert_int_equal(run(world, 3), CPA_MISMATCH);
		assert_says(send ? "rank 2 sent message 0 (8 bytes) to rank 1"
				 : "rank 2 expects message 0 (8 bytes) from rank 1");
		cpa_fake_world_destroy(world);
	}
}

/* ---- worlds ---- */

static void a_list_of_members_named_twice_makes_two_communicators(void **state)
{
	static const int members[2] = { 1, 0 }, outside[2] = { 0, 9 }, others[1] = { 0 };
	struct cpa_fake_world *world = make_world(2, CPA_FAKE_EAGER, 1);
	float from[2] = { 1, 2 }, to[2];
	struct cpa_request *request;

	(void)state;
	for (int r = 0; r < 2; r++) {
		struct cpa_comm *comm = cpa_fake_world_comm(world, r);
		int id[2];

		for (int i = 0; i < 2; i++)
			assert_int_equal(
				comm->ops->subgroup(comm, 2, members, &id[i], &error), CPA_OK);
		assert_int_not_equal(id[0], id[1]);
		/* Rank 0 is member 1.  The receiver asks for the second message first. */
		for (int i = 0; i < 2; i++) {
			struct cpa_piece piece = bytes(r ? &to[1 - i] : &from[i], 4);

			comm->ops->group_begin(comm, 1);
			if (r)
				comm->ops->recv(comm, id[1 - i], 1, &piece, 1);
			else
				comm->ops->send(comm, id[i], 0, &piece, 1);
			assert_int_equal(comm->ops->group_end(comm, &request, &error), CPA_OK);
		}
	}
	assert_int_equal(run(world, 2), CPA_OK);
	assert_true(to[0] == 1 && to[1] == 2);
	for (int i = 0; i < 2; i++) {
		struct cpa_comm *comm = cpa_fake_world_comm(world, 1);
		int id;

		assert_int_equal(
			comm->ops->subgroup(comm, 2 - i, i ? others : outside, &id, &error),
			CPA_INVALID);
		assert_says(i ? "none" : "rank 9");
	}
	cpa_fake_world_destroy(world);
}

/* A ring of 1,024, sends and recvs of one group, on the same world again and again. */
static void a_large_world_is_as_new_after_a_reset(void **state)
{
	enum { P = 1024 };
	struct cpa_fake_world *world = make_world(P, CPA_FAKE_EAGER, 0);
	static int64_t from[P], to[P];

	(void)state;
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct cpa_request *requests[P];

		cpa_fake_world_reset(world, modes[seed % 2], seed);
		for (int r = 0; r < P; r++) {
			struct cpa_comm *comm = cpa_fake_world_comm(world, r);
			struct cpa_piece out = bytes(&from[r], 8), in = bytes(&to[r], 8);

			from[r] = r;
			comm->ops->group_begin(comm, 1);
			comm->ops->send(comm, 0, (r + 1) % P, &out, 1);
			comm->ops->recv(comm, 0, (r + P - 1) % P, &in, 1);
			if (seed != 4) /* a run that breaks off leaves no trace */
				assert_int_equal(
					comm->ops->group_end(comm, &requests[r], &error),
					CPA_OK);
		}
		if (seed == 4)
			continue;
		assert_int_equal(run(world, P), CPA_OK);
		for (int r = 0; r < P; r++) {
			const struct cpa_comm *comm = cpa_fake_world_comm(world, r);

			assert_int_equal(to[r], (r + P - 1) % P);
			assert_int_equal(test(world, r, requests[r]), CPA_DONE);
			assert_int_equal(comm->bytes_sent, 8);
			assert_int_equal(comm->messages, 1);
		}
	}
	cpa_fake_world_destroy(world);
}

static void an_abort_ends_the_run_of_all(void **state)
{
	struct cpa_fake_world *world = make_world(2, CPA_FAKE_RENDEZVOUS, 1);
	struct cpa_comm *comm = cpa_fake_world_comm(world, 1);
	float data = 0;
	struct call send = { true, 0, 1, 1, { bytes(&data, 4) } };
	struct cpa_request *request;

	(void)state;
	assert_int_equal(post(world, &send, &request), CPA_OK);
	comm->ops->abort(comm);
	assert_int_equal(test(world, 0, request), CPA_FAILED);
	assert_says("rank 1 aborted");
	assert_int_equal(run(world, 2), CPA_EXTERNAL);
	cpa_fake_world_destroy(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ping_arrives_once_both_have_called),
		cmocka_unit_test(memory_that_waits_for_a_message_is_poison),
		cmocka_unit_test(a_plain_message_is_moved_and_nothing_else),
		cmocka_unit_test(only_a_rendezvous_send_sees_memory_overwritten_too_early),
		cmocka_unit_test(messages_of_a_pair_meet_in_the_order_of_their_calls),
		cmocka_unit_test(a_message_that_differs_names_both_sides),
		cmocka_unit_test(an_empty_message_is_refused),
		cmocka_unit_test(a_call_without_a_partner_is_reported),
		cmocka_unit_test(a_list_of_members_named_twice_makes_two_communicators),
		cmocka_unit_test(a_large_world_is_as_new_after_a_reset),
		cmocka_unit_test(an_abort_ends_the_run_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
