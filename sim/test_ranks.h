/*
 * test_ranks.h - tests of the MPI transport that are programs of two kinds: started by hand, one
 * starts mpirun on itself, once for each case; started by mpirun it is one rank of a case.
 */
#ifndef CPA_TEST_RANKS_H
#define CPA_TEST_RANKS_H

#include "sim/sim.h"
#include "sim/test_mpi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- a rank ---- */

static struct cpa_comm *comm;
static struct cpa_error error;

#define CHECK(condition) check((condition), #condition, __LINE__)
static inline void check(bool condition, const char *text, int line)
{
	if (condition)
		return;
	fprintf(stderr, "rank %d, line %d: %s (%s)\n", comm ? comm->rank : -1, line, text,
		error.text);
	cpa_mpi_abort(1);
}

static inline enum cpa_progress finish(struct cpa_request *request)
{
	enum cpa_progress state;

	while ((state = comm->ops->test(comm, request, &error)) == CPA_PENDING)
		;
	return state;
}

static inline void run_group(void)
{
	struct cpa_request *request;

	CHECK(comm->ops->group_end(comm, &request, &error) == CPA_OK);
	CHECK(finish(request) == CPA_DONE);
	comm->ops->request_free(comm, request);
}

/* What byte i of message `n` from rank `from` to rank `to` is. */
static inline unsigned char byte_of(int from, int to, int n, size_t i)
{
	return (unsigned char)(from * 89 + to * 41 + n * 23 + (int)(i % 251));
}

static inline void fill(unsigned char *data, size_t nbytes, int from, int to, int n)
{
	for (size_t i = 0; i < nbytes; i++)
		data[i] = byte_of(from, to, n, i);
}

static inline bool is_filled(const unsigned char *data, size_t nbytes, int from, int to, int n)
{
	for (size_t i = 0; i < nbytes; i++)
		if (data[i] != byte_of(from, to, n, i))
			return false;
	return true;
}

/* ---- all ranks ---- */

static const char *self;
static bool has_mpirun;

/* worlds: their sizes, as digits. */
static inline void launch(const char *name, const char *worlds)
{
	char command[4500];

	if (!has_mpirun)
		skip();
	for (; *worlds; worlds++) {
		snprintf(command, sizeof command, "mpirun -n %c '%s' %s", *worlds, self, name);
		if (system(command) != 0)
			fail_msg("%s failed", command);
	}
}

#define CASE(name, worlds)                                                                       \
	static void name(void **state)                                                           \
	{                                                                                        \
		(void)state;                                                                     \
		launch(#name, #worlds);                                                          \
	}

#endif
