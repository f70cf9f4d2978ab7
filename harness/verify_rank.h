/*
 * verify_rank.h - one call, in a world of which this process has one rank: like verify.h, and all
 * processes come to the same result.
 *
 * A process reads its own shard of q, k and v, and k and v once more in blocks for the reference
 * of its own rows.  It makes its own plan; the process of rank 0 makes all of them and proves
 * them.
 */
#ifndef CPA_VERIFY_RANK_H
#define CPA_VERIFY_RANK_H

#include "harness/rank_rows.h"
#include "harness/world.h"

struct cpa_rank_settings {
	struct cpa_world *world;
	struct cpa_device *device;
	int interleavings; /* how many runs; their timing is the machine's */
	const struct cpa_problem *problem;
	struct cpa_source source;
	const bool *wanted; /* [Sq] rows to compare; NULL: all */
};

struct cpa_rank_verifier;
/* settings and what they point to are borrowed.  COLLECTIVE, as all of this. */
enum cpa_status cpa_rank_verifier_create(const struct cpa_rank_settings *settings,
	struct cpa_rank_verifier **verifier, struct cpa_error *error);
void cpa_rank_verifier_destroy(struct cpa_rank_verifier *verifier);
/* Fills the result as cpa_verifier_run() does.  A rank that fails while others may wait for it
 * ends all processes. */
void cpa_rank_verifier_run(struct cpa_rank_verifier *verifier, const struct cpa_config *config,
	struct cpa_result *result);

#endif
