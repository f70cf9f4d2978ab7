/*
 * sim.h - what stands in for hardware: the fake communicator.
 */
#ifndef CPA_SIM_H
#define CPA_SIM_H

#include "dist/dist.h"

/*
 * P ranks in one process, no threads, driven by a seed: which rank steps, which message lands next, how
 * late.  Rendezvous: a message moves only when both ends have started, reads the sender's memory as
 * late as the rules allow and poisons the receiver's when its group starts.  Eager: a send is copied
 * away when posted and done at once.  Plain: like rendezvous, without poison, so that each byte is moved
 * once and a clock sees no more than that.  Sizes and dtypes of every piece are checked on both sides.
 */
enum cpa_fake_mode { CPA_FAKE_EAGER, CPA_FAKE_RENDEZVOUS, CPA_FAKE_PLAIN };

struct cpa_fake_world;
enum cpa_status cpa_fake_world_create(int P, enum cpa_fake_mode mode, uint64_t seed,
	struct cpa_fake_world **world, struct cpa_error *error);
void cpa_fake_world_destroy(struct cpa_fake_world *world);
/* Rank's end; owned by the world. */
struct cpa_comm *cpa_fake_world_comm(struct cpa_fake_world *world, int rank);
/* Ready for another run: nothing posted, counters zero, a new seed. */
void cpa_fake_world_reset(struct cpa_fake_world *world, enum cpa_fake_mode mode, uint64_t seed);

/*
 * Runs all executors to the end.  execs [P]; NULL entries are ranks without work.  A run that cannot go
 * on: CPA_MISMATCH and who waits for what from whom.  A size or dtype that differs: CPA_MISMATCH and both
 * sides.  The same seed gives the same run.
 */
enum cpa_status cpa_fake_run(struct cpa_fake_world *world, struct cpa_exec **execs,
	struct cpa_error *error);

/* A small seeded generator (splitmix64), for everything that must be repeatable. */
uint64_t cpa_random(uint64_t *state);

#endif
