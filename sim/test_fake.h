/*
 * test_fake.h - what tests of the fake communicator share: calls are posted by hand and
 * cpa_fake_run() lands them.
 */
#ifndef CPA_TEST_FAKE_H
#define CPA_TEST_FAKE_H

#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum cpa_fake_mode modes[] = { CPA_FAKE_EAGER, CPA_FAKE_RENDEZVOUS };
static struct cpa_error error;

static inline struct cpa_fake_world *make_world(int P, enum cpa_fake_mode mode, uint64_t seed)
{
	struct cpa_fake_world *world = NULL;

	assert_int_equal(cpa_fake_world_create(P, mode, seed, &world, &error), CPA_OK);
	return world;
}

/* Lands all there is; nobody steps. */
static inline enum cpa_status run(struct cpa_fake_world *world, int P)
{
	struct cpa_exec **execs = calloc((size_t)P, sizeof(*execs));
	enum cpa_status status = cpa_fake_run(world, execs, &error);

	free(execs);
	return status;
}

static inline struct cpa_piece bytes(void *data, size_t nbytes)
{
	return (struct cpa_piece){ data, nbytes, CPA_DTYPE_FP32 };
}

static inline void assert_says(const char *part)
{
	if (!strstr(error.text, part))
		fail_msg("\"%s\" does not say \"%s\"", error.text, part);
}

static inline bool is_poison(const void *memory, size_t nbytes)
{
	for (size_t i = 0; i < nbytes; i++)
		if (((const unsigned char *)memory)[i] != 0xff)
			return false;
	return true;
}

#endif
