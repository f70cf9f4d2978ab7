/*
 * test_comm_mpi.c - the MPI transport, among 2, 3 and 5 processes.  Started by hand it starts
 * mpirun on itself, once for each case; started by mpirun it is one rank of a case.
 */
#include "sim/sim.h"
#include "sim/test_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a rank ---- */

/* Three pieces, the second one empty. */
enum { LONGEST = 300, NMESSAGES = 3, MOST = 8 };
static void cut(unsigned char *data, size_t nbytes, struct cpa_piece *pieces)
{
	pieces[0] = (struct cpa_piece){data, nbytes / 3, CPA_DTYPE_FP32};
	pieces[1] = (struct cpa_piece){data, 0, CPA_DTYPE_FP32};
	pieces[2] = (struct cpa_piece){data + nbytes / 3, nbytes - nbytes / 3, CPA_DTYPE_FP32};
}

static size_t length_of(int n)
{
	return (size_t)(LONGEST - 97 * n);
}

/* Each rank sends three messages to each other one; lengths tell the order. */
static void messages(void)
{
	static unsigned char out[MOST][NMESSAGES][LONGEST], in[MOST][NMESSAGES][LONGEST];
	struct cpa_piece pieces[3];
	int64_t nbytes = 0;

	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	for (int n = 0; n < NMESSAGES; n++)
		for (int peer = 0; peer < comm->size; peer++) {
			if (peer == comm->rank)
				continue;
			fill(out[peer][n], length_of(n), comm->rank, peer, n);
			cut(out[peer][n], length_of(n), pieces);
			comm->ops->send(comm, 0, peer, pieces, 3);
			cut(in[peer][n], length_of(n), pieces);
			comm->ops->recv(comm, 0, peer, pieces, 3);
			nbytes += (int64_t)length_of(n);
		}
	run_group();
	for (int n = 0; n < NMESSAGES; n++)
		for (int peer = 0; peer < comm->size; peer++)
			CHECK(peer == comm->rank ||
				is_filled(in[peer][n], length_of(n), peer, comm->rank, n));
	CHECK(comm->bytes_sent == nbytes);
	CHECK(comm->messages == NMESSAGES * (comm->size - 1));
}

/* Of every all-gather: the members' shares, uneven, rank 1 without any. */
static size_t share_of(int rank, int k)
{
	return rank == 1 ? 0 : (size_t)(5 + 3 * rank + 11 * k);
}

/* in_place: the own share stands where it is to be; reversed: members lie in reverse order. */
static void gather(int id, int nmembers, const int *members, bool in_place, bool reversed)
{
	static unsigned char own[2][64], all[2][MOST][64];
	struct cpa_piece mine[2], pieces[2 * MOST];
	int64_t before = comm->bytes_sent, messages_before = comm->messages, nbytes = 0;

	memset(all, 0xff, sizeof all);
	for (int m = 0; m < nmembers; m++)
		for (int k = 0; k < 2; k++)
			pieces[2 * m + k] = (struct cpa_piece){
				all[k][reversed ? MOST - 1 - m : m], share_of(members[m], k),
				CPA_DTYPE_BF16};
	for (int m = 0; m < nmembers; m++)
		for (int k = 0; members[m] == comm->rank && k < 2; k++) {
			mine[k] = pieces[2 * m + k];
			if (!in_place)
				mine[k].data = own[k];
			fill(mine[k].data, mine[k].nbytes, comm->rank, 0, k);
			nbytes += (int64_t)mine[k].nbytes * (nmembers - 1);
		}
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->all_gather(comm, id, mine, pieces, 2);
	run_group();
	for (int m = 0; m < nmembers; m++)
		for (int k = 0; k < 2; k++)
			CHECK(is_filled(pieces[2 * m + k].data, share_of(members[m], k),
				members[m], 0, k));
	CHECK(comm->bytes_sent == before + nbytes);
	CHECK(comm->messages == messages_before + (nbytes > 0));
}

static void gathers(void)
{
	int everyone[MOST], few[MOST], nfew = 0, id, again;

	for (int r = 0; r < comm->size; r++)
		everyone[r] = r;
	for (int r = comm->size - 1; r >= 0; r--) /* in another order than the world */
		if (r % 2 == comm->rank % 2)
			few[nfew++] = r;
	CHECK(comm->ops->subgroup(comm, nfew, few, &id, &error) == CPA_OK && id > 0);
	CHECK(comm->ops->subgroup(comm, nfew, few, &again, &error) == CPA_OK && again == id);
	for (int i = 0; i < 4; i++) {
		gather(0, comm->size, everyone, i & 1, i & 2);
		gather(id, nfew, few, i & 1, i & 2);
	}
}

/* One share at either end of 3 GiB, which nobody touches in between. */
static void far_apart(void)
{
	size_t span = (size_t)3 << 30;
	char *memory = malloc(span);
	unsigned char own[8];
	struct cpa_piece mine = {own, sizeof own, CPA_DTYPE_FP32}, all[MOST];

	for (int r = 0; memory && r < comm->size; r++)
		all[r] = (struct cpa_piece){r % 2 ? memory + span - 16 * r : memory + 16 * r,
			sizeof own, CPA_DTYPE_FP32};
	fill(own, sizeof own, comm->rank, 0, 0);
	CHECK(memory);
	for (int in_place = 0; in_place < 2; in_place++) {
		if (in_place)
			mine.data = memcpy(all[comm->rank].data, own, sizeof own);
		comm->ops->group_begin(comm, CPA_QUEUE_COMM);
		comm->ops->all_gather(comm, 0, &mine, all, 1);
		run_group();
		for (int r = 0; r < comm->size; r++) {
			CHECK(is_filled(all[r].data, sizeof own, r, 0, 0));
			if (r != comm->rank)
				memset(all[r].data, 0, sizeof own);
		}
	}
	free(memory);
}

static void bad_subgroups(void)
{
	int id, beyond[] = {comm->rank, comm->size}, others[] = {(comm->rank + 1) % comm->size};

	CHECK(comm->ops->subgroup(comm, 2, beyond, &id, &error) == CPA_INVALID);
	CHECK(strstr(error.text, "ranks are 0 to"));
	CHECK(comm->ops->subgroup(comm, 1, others, &id, &error) == CPA_INVALID);
	CHECK(strstr(error.text, "of which it is none"));
}

/* Large messages round a ring, everybody sending first; and nobody asks but for progress. */
static void large(bool by_progress)
{
	size_t nbytes = (size_t)3 << 20;
	unsigned char *out = malloc(nbytes), *in = malloc(nbytes);
	int to = (comm->rank + 1) % comm->size, from = (comm->rank + comm->size - 1) % comm->size;
	struct cpa_piece send = {out, nbytes, CPA_DTYPE_FP32},
			 recv = {in, nbytes, CPA_DTYPE_FP32};
	struct cpa_request *request;

	CHECK(out && in);
	fill(out, nbytes, comm->rank, to, 0);
	memset(in, 0, nbytes);
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->send(comm, 0, to, &send, 1);
	comm->ops->recv(comm, 0, from, &recv, 1);
	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	/* The last byte arrives last. */
	while (by_progress &&
		*(volatile unsigned char *)&in[nbytes - 1] !=
			byte_of(from, comm->rank, 0, nbytes - 1))
		comm->ops->progress(comm);
	CHECK(finish(request) == CPA_DONE);
	comm->ops->request_free(comm, request);
	CHECK(is_filled(in, nbytes, from, comm->rank, 0));
	free(out);
	free(in);
}

/* Rank 0 sends `sent` bytes, rank 1 expects 100. */
static void lengths_differ(size_t sent, const char *says)
{
	static unsigned char data[200000];
	struct cpa_piece piece = {data, comm->rank == 0 ? sent : 100, CPA_DTYPE_FP32};
	struct cpa_request *request;

	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	if (comm->rank == 0)
		comm->ops->send(comm, 0, 1, &piece, 1);
	else if (comm->rank == 1)
		comm->ops->recv(comm, 0, 0, &piece, 1);
	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	if (comm->rank == 1) {
		CHECK(finish(request) == CPA_FAILED);
		CHECK(strstr(error.text, "rank 1 expects 100 bytes from rank 0"));
		CHECK(strstr(error.text, says));
	} else {
		CHECK(finish(request) == CPA_DONE);
	}
	comm->ops->request_free(comm, request);
}

static void nothing(void)
{
	struct cpa_request *request;

	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	CHECK(finish(request) == CPA_DONE);
	comm->ops->request_free(comm, request);
	CHECK(comm->bytes_sent == 0 && comm->messages == 0);
}

static void alone(void)
{
	struct cpa_piece piece = {&piece, sizeof piece, CPA_DTYPE_FP32};

	CHECK(!cpa_mpi_launched() && comm->rank == 0 && comm->size == 1);
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->all_gather(comm, 0, &piece, &piece, 1);
	run_group();
	CHECK(comm->bytes_sent == 0 && comm->messages == 0);
}

static void gather_plainly(void)
{
	int own = 7 * comm->rank, all[MOST];

	CHECK(cpa_mpi_gather(&own, sizeof own, all, &error) == CPA_OK);
	for (int r = 0; r < comm->size; r++)
		CHECK(all[r] == 7 * r);
}

static int run_rank(const char *name)
{
	size_t chunk = strstr(name, "chunks") ? 7 : 0;

	CHECK(cpa_mpi_start(&error) == CPA_OK && cpa_mpi_start(&error) == CPA_OK);
	CHECK(cpa_comm_mpi_create(chunk, &comm, &error) == CPA_OK && comm->size <= MOST);
	if (strstr(name, "messages"))
		messages();
	else if (strstr(name, "gathers"))
		gathers();
	else if (strstr(name, "apart"))
		far_apart();
	else if (strstr(name, "single"))
		alone();
	else if (strstr(name, "large"))
		large(false);
	else if (strstr(name, "progress"))
		large(true);
	else if (strstr(name, "longer"))
		lengths_differ(1000, "the message that came is longer");
	else if (strstr(name, "much"))
		lengths_differ(200000, "the message that came is longer");
	else if (strstr(name, "shorter"))
		lengths_differ(60, "the message that came has 60 bytes");
	else if (strstr(name, "nothing"))
		nothing();
	else if (strstr(name, "plainly"))
		gather_plainly();
	else
		bad_subgroups();
	comm->ops->destroy(comm);
	cpa_mpi_stop();
	return 0;
}

/* ---- all ranks ---- */

CASE(messages_of_several_pieces_match_by_order, 235)
CASE(messages_may_go_in_chunks, 3)
CASE(gathers_on_subgroups_take_uneven_and_empty_shares, 235)
CASE(gathers_beyond_a_chunk_go_as_messages_chunks, 5)
CASE(shares_that_lie_far_apart_are_reached, 3)
CASE(large_messages_need_no_order_of_sending, 3)
CASE(progress_alone_moves_a_message, 2)
CASE(longer_than_expected_is_an_error, 2)
CASE(much_longer_than_expected_is_an_error, 2)
CASE(shorter_than_expected_is_an_error, 2)
CASE(nothing_in_a_group_is_done_at_once, 2)
CASE(small_arrays_are_gathered_plainly, 3)
CASE(a_list_of_ranks_must_be_of_the_world_and_hold_the_caller, 3)

static void without_mpirun_the_world_is_one_rank(void **state)
{
	char command[4500];

	(void)state;
	snprintf(command, sizeof command, "'%s' single", self);
	assert_int_equal(system(command), 0);
}

static void without_mpi_a_sentence_says_what_to_install(void **state)
{
	(void)state;
	assert_int_equal(cpa_mpi_start(&error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "install libopenmpi-dev"));
	assert_int_equal(cpa_comm_mpi_create(0, &comm, &error), CPA_UNSUPPORTED);
	assert_false(cpa_mpi_launched());
	cpa_mpi_stop();
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_several_pieces_match_by_order),
		cmocka_unit_test(messages_may_go_in_chunks),
		cmocka_unit_test(gathers_on_subgroups_take_uneven_and_empty_shares),
		cmocka_unit_test(gathers_beyond_a_chunk_go_as_messages_chunks),
		cmocka_unit_test(shares_that_lie_far_apart_are_reached),
		cmocka_unit_test(large_messages_need_no_order_of_sending),
		cmocka_unit_test(progress_alone_moves_a_message),
		cmocka_unit_test(longer_than_expected_is_an_error),
		cmocka_unit_test(much_longer_than_expected_is_an_error),
		cmocka_unit_test(shorter_than_expected_is_an_error),
		cmocka_unit_test(nothing_in_a_group_is_done_at_once),
		cmocka_unit_test(small_arrays_are_gathered_plainly),
		cmocka_unit_test(a_list_of_ranks_must_be_of_the_world_and_hold_the_caller),
		cmocka_unit_test(without_mpirun_the_world_is_one_rank),
	};
	static const struct CMUnitTest none[] = {
		cmocka_unit_test(without_mpi_a_sentence_says_what_to_install),
	};

	if (argc > 1)
		return run_rank(argv[1]);
	if (!cpa_mpi_usable())
		return cmocka_run_group_tests(none, NULL, NULL);
	self = argv[0];
	set_environment();
	has_mpirun = find_mpirun();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
