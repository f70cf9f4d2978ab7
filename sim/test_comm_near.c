/*
 * test_comm_near.c - messages from memory that other processes read, among 2, 3 and 5 of them.
 */
#include "sim/test_ranks.h"

enum { LEAST = 64 << 10, MOST = 8 }; /* LEAST: of what goes this way */

/* Memory of the kind that the executor takes for what is sent; where there is none, any. */
static unsigned char *take(size_t nbytes)
{
	const struct cpa_host_memory *from = comm->memory;
	unsigned char *memory = from ? from->take(from->context, nbytes) : NULL;

	CHECK((from != NULL && nbytes >= LEAST) == (memory != NULL));
	if (!memory)
		memory = malloc(nbytes);
	CHECK(memory && (!from || (uintptr_t)memory % 64 == 0));
	return memory;
}

static void give(unsigned char *memory)
{
	if (comm->memory)
		comm->memory->give(comm->memory->context, memory);
	else
		free(memory);
}

/* Of message n: around where another way begins, in the middle of a page, over a copy's step. */
static const size_t lengths[] = {LEAST - 1, LEAST, LEAST + 1, 3 * LEAST + 7, 5 << 20};
enum { NMESSAGES = sizeof lengths / sizeof *lengths, SHIFT = 100 };

/* Everybody sends all of them to everybody, in two pieces, from one block. */
static void messages(bool by_progress)
{
	static unsigned char *out[MOST], *in[MOST];
	struct cpa_request *request;
	size_t all = SHIFT;
	int64_t nbytes = 0;

	for (int n = 0; n < NMESSAGES; n++)
		all += lengths[n];
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	for (int peer = 0; peer < comm->size; peer++) {
		size_t at = SHIFT;

		if (peer == comm->rank)
			continue;
		out[peer] = take(all);
		in[peer] = malloc(all);
		CHECK(in[peer]);
		memset(in[peer], 0, all);
		for (int n = 0; n < NMESSAGES; at += lengths[n++]) {
			struct cpa_piece send[] = {
				{out[peer] + at, lengths[n] - 70000 % lengths[n], CPA_DTYPE_FP32},
				{out[peer] + at + send[0].nbytes, 70000 % lengths[n],
					CPA_DTYPE_FP32}};
			struct cpa_piece recv[] = {
				{in[peer] + at, send[0].nbytes, CPA_DTYPE_FP32},
				{in[peer] + at + send[0].nbytes, send[1].nbytes, CPA_DTYPE_FP32}};

			fill(out[peer] + at, lengths[n], comm->rank, peer, n);
			comm->ops->send(comm, 0, peer, send, 2);
			comm->ops->recv(comm, 0, peer, recv, 2);
			nbytes += (int64_t)lengths[n];
		}
	}
	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	for (int peer = 0; by_progress && peer < comm->size; peer++)
		while (peer != comm->rank &&
			*(volatile unsigned char *)&in[peer][all - 1] !=
				byte_of(peer, comm->rank, NMESSAGES - 1,
					lengths[NMESSAGES - 1] - 1))
			comm->ops->progress(comm);
	CHECK(finish(request) == CPA_DONE);
	comm->ops->request_free(comm, request);
	for (int peer = 0; peer < comm->size; peer++) {
		size_t at = SHIFT;

		for (int n = 0; peer != comm->rank && n < NMESSAGES; at += lengths[n++])
			CHECK(is_filled(in[peer] + at, lengths[n], peer, comm->rank, n));
		if (peer != comm->rank) {
			give(out[peer]);
			free(in[peer]);
		}
	}
	CHECK(comm->bytes_sent == nbytes);
	CHECK(comm->messages == NMESSAGES * (comm->size - 1));
}

static void exchange(unsigned char *out, unsigned char *in, size_t nbytes, int n)
{
	int to = (comm->rank + 1) % comm->size, from = (comm->rank + comm->size - 1) % comm->size;
	struct cpa_piece send = {out, nbytes, CPA_DTYPE_FP32},
			 recv = {in, nbytes, CPA_DTYPE_FP32};

	fill(out, nbytes, comm->rank, to, n);
	memset(in, 0, nbytes);
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->send(comm, 0, to, &send, 1);
	comm->ops->recv(comm, 0, from, &recv, 1);
	run_group();
	CHECK(is_filled(in, nbytes, from, comm->rank, n));
}

/* More blocks than anybody keeps in view, given back and taken again, small and large. */
static void blocks(void)
{
	enum { NBLOCKS = 150 };
	unsigned char *in = malloc((size_t)70 << 20), *out[NBLOCKS], *large[4], *again;

	CHECK(in);
	for (int i = 0; i < NBLOCKS; i++)
		exchange(out[i] = take(LEAST + 4096 * (size_t)(i % 7)), in, LEAST, i);
	for (int i = 0; i < NBLOCKS; i++)
		exchange(out[i], in, LEAST, i + 1);
	for (int i = 0; i < NBLOCKS; i++)
		give(out[i]);
	again = take(LEAST);
	exchange(again, in, LEAST, 3);
	for (int round = 0; round < 2; round++) { /* beyond what is kept for later */
		for (int i = 0; i < 4; i++) {
			size_t nbytes = (size_t)(64 + round) << 20;

			large[i] = take(nbytes);
			exchange(large[i] + nbytes - LEAST, in, LEAST, i + round);
		}
		for (int i = 0; i < 4; i++)
			give(large[i]);
	}
	exchange(again, in, LEAST, 4);
	give(again);
	free(in);
}

/* More than can be offered at once. */
static void many(void)
{
	enum { N = 1100 };
	size_t nbytes = LEAST + 64;
	unsigned char *out = take(N * nbytes), *in = calloc(N, nbytes);
	int to = (comm->rank + 1) % comm->size, from = (comm->rank + comm->size - 1) % comm->size;

	CHECK(in);
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	for (int n = 0; n < N; n++) {
		struct cpa_piece send = {out + n * nbytes, nbytes, CPA_DTYPE_FP32};
		struct cpa_piece recv = {in + n * nbytes, nbytes, CPA_DTYPE_FP32};

		fill(send.data, nbytes, comm->rank, to, n);
		comm->ops->send(comm, 0, to, &send, 1);
		comm->ops->recv(comm, 0, from, &recv, 1);
	}
	run_group();
	for (int n = 0; n < N; n++)
		CHECK(is_filled(in + n * nbytes, nbytes, from, comm->rank, n));
	give(out);
	free(in);
}

/* Uneven shares, none of rank 1; on the world and on a part of it in another order. */
static void gather(int id, int nmembers, const int *members, bool in_place)
{
	size_t share = 2 * LEAST, total = 0;
	struct cpa_piece all[MOST], own;
	unsigned char *memory = take(MOST * share + 1), *apart = take(MOST * share);
	int64_t before = comm->bytes_sent, nbytes = 0;

	memset(memory, 0xff, MOST * share);
	for (int m = 0; m < nmembers; m++) {
		size_t length = members[m] == 1 ? 0 : share - 999 * (size_t)members[m];

		all[m] = (struct cpa_piece){memory + total, length, CPA_DTYPE_BF16};
		total += length;
		if (members[m] != comm->rank)
			continue;
		own = (struct cpa_piece){in_place ? all[m].data : apart, length, CPA_DTYPE_BF16};
		fill(own.data, length, comm->rank, 0, 0);
		nbytes = (int64_t)length * (nmembers - 1);
	}
	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	comm->ops->all_gather(comm, id, &own, all, 1);
	run_group();
	for (int m = 0; m < nmembers; m++)
		CHECK(is_filled(all[m].data, all[m].nbytes, members[m], 0, 0));
	CHECK(comm->bytes_sent == before + nbytes);
	give(memory);
	give(apart);
}

static void gathers(void)
{
	int everyone[MOST], few[MOST], nfew = 0, id;

	for (int r = 0; r < comm->size; r++)
		everyone[r] = r;
	for (int r = comm->size - 1; r >= 0; r--)
		if (r % 2 == comm->rank % 2)
			few[nfew++] = r;
	CHECK(comm->ops->subgroup(comm, nfew, few, &id, &error) == CPA_OK);
	for (int in_place = 0; in_place < 2; in_place++) {
		gather(0, comm->size, everyone, in_place);
		gather(id, nfew, few, in_place);
	}
}

/* Rank 0 sends 200000 bytes, rank 1 expects others; the sender is not held up by that. */
static void lengths_differ(size_t expected, const char *says)
{
	size_t sent = 200000;
	unsigned char *data = take(2 * sent);
	struct cpa_piece piece = {data, comm->rank == 0 ? sent : expected, CPA_DTYPE_FP32};
	struct cpa_request *request;

	comm->ops->group_begin(comm, CPA_QUEUE_COMM);
	if (comm->rank == 0)
		comm->ops->send(comm, 0, 1, &piece, 1);
	else
		comm->ops->recv(comm, 0, 0, &piece, 1);
	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	CHECK(finish(request) == (comm->rank == 0 ? CPA_DONE : CPA_FAILED));
	CHECK(comm->rank == 0 || strstr(error.text, says));
	comm->ops->request_free(comm, request);
	give(data);
}

static int run_rank(const char *name)
{
	CHECK(cpa_mpi_start(&error) == CPA_OK);
	CHECK(cpa_comm_mpi_create(strstr(name, "chunks") ? 100000 : 0, &comm, &error) == CPA_OK);
	CHECK(comm->size <= MOST);
#ifdef __linux__
	CHECK((comm->memory == NULL) == (getenv("CPATTN_SHARE") != NULL));
#endif
	if (strstr(name, "gathers"))
		gathers();
	else if (strstr(name, "blocks"))
		blocks();
	else if (strstr(name, "more_at_once"))
		many();
	else if (strstr(name, "longer"))
		lengths_differ(1000, "the message that came is longer");
	else if (strstr(name, "shorter"))
		lengths_differ(300000, "the message that came has 200000 bytes");
	else
		messages(strstr(name, "progress"));
	comm->ops->destroy(comm);
	cpa_mpi_stop();
	return 0;
}

/* ---- all ranks ---- */

CASE(messages_of_all_sizes_arrive, 235)
CASE(messages_in_chunks_arrive, 3)
CASE(progress_alone_moves_messages, 3)
CASE(blocks_come_and_go, 3)
CASE(more_at_once_than_can_be_offered_arrive, 2)
CASE(gathers_take_uneven_and_empty_shares, 235)
CASE(longer_than_expected_is_an_error, 2)
CASE(shorter_than_expected_is_an_error, 2)

static void without_sharing_all_of_it_works(void **state)
{
	(void)state;
	setenv("CPATTN_SHARE", "0", 1);
	launch("messages", "3");
	launch("gathers", "3");
	launch("longer", "2");
	unsetenv("CPATTN_SHARE");
}

/* The others go on among themselves. */
static void one_that_does_not_share_hinders_nobody(void **state)
{
	char command[9000];

	(void)state;
	if (!has_mpirun)
		skip();
	for (int gathering = 0; gathering < 2; gathering++) {
		const char *name = gathering ? "gathers" : "messages";

		snprintf(command, sizeof command,
			"mpirun -n 1 env CPATTN_SHARE=0 '%s' %s : -n 2 '%s' %s", self, name, self,
			name);
		if (system(command) != 0)
			fail_msg("%s failed", command);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_all_sizes_arrive),
		cmocka_unit_test(messages_in_chunks_arrive),
		cmocka_unit_test(progress_alone_moves_messages),
		cmocka_unit_test(blocks_come_and_go),
		cmocka_unit_test(more_at_once_than_can_be_offered_arrive),
		cmocka_unit_test(gathers_take_uneven_and_empty_shares),
		cmocka_unit_test(longer_than_expected_is_an_error),
		cmocka_unit_test(shorter_than_expected_is_an_error),
		cmocka_unit_test(without_sharing_all_of_it_works),
		cmocka_unit_test(one_that_does_not_share_hinders_nobody),
	};

	if (argc > 1)
		return run_rank(argv[1]);
	self = argv[0];
	set_environment();
	if (cpa_mpi_usable())
		has_mpirun = find_mpirun();
	else
		fprintf(stderr, "built without MPI: tests among processes are skipped\n");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
