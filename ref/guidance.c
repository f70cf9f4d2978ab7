/*
 * guidance.c - classifier-free guidance: two or three branches of one step become one result.
 *
 * Compiled without contraction, so that each operation rounds once and the result is the same everywhere.
 */
#include "ref/ref.h"

#include <assert.h>

void cpa_ref_guidance(const struct cpa_guidance *guidance, int64_t n, enum cpa_dtype from,
	const void *const *branches, enum cpa_dtype to, void *out)
{
	const int last = guidance->nbranches - 1;

	assert(guidance->nbranches == 2 || guidance->nbranches == 3);
	for (int64_t i = 0; i < n; i++) {
		const double neg = cpa_load(from, branches[0], i), pos = cpa_load(from, branches[last], i);
		double sum = neg, below = neg;

		if (last == 2) {
			below = cpa_load(from, branches[1], i);
			sum += guidance->s2 * (below - neg);
		}
		cpa_store(to, out, i, sum + guidance->s * (pos - below));
	}
}
