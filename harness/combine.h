/*
 * combine.h - after a run with guidance: what each rank makes of the branches that it has
 * gathered, and how far that is from the combination of full attention.
 */
#ifndef CPA_COMBINE_H
#define CPA_COMBINE_H

#include "harness/fault.h"
#include "harness/judge.h"
#include "harness/ranks.h"

/*
 * The ranks of each batch group combine what stands in their buffers "o group 0", "o group 1",
 * ..., or in their output where there is one group only.  All borrowed.
 *   plant         NULL, or a fault that one rank may have in doing so
 *   first, other  [B/n, Sq, Hq, Dv] out, n branches, of the problem's dtype: what batch group 0
 *                 made, which is kept, and what another one made
 */
struct cpa_combine {
	struct cpa_ranks *ranks;
	const struct cpa_guidance *guidance;
	const struct cpa_plant *plant;
	const struct cpa_truth *truth;
	struct cpa_bound_run bound;
	void *first, *other;
};
/*
 * Judges every batch group by the bounds of its branches; rows that truth leaves out must be
 * finite, and all groups, and ranks that have the same rows, must come to the same bits.  Else
 * CPA_MISMATCH, which says where.  *deviation, out in both cases: the worst; its batch counts
 * combined items.
 */
enum cpa_status cpa_combine_judge(const struct cpa_combine *combine,
	struct cpa_deviation *deviation, struct cpa_error *error);
/* After another interleaving: whether every group comes to the bits of `first`, else
 * CPA_MISMATCH. */
enum cpa_status cpa_combine_compare(const struct cpa_combine *combine, struct cpa_error *error);

/* CPA_UNSUPPORTED: the combination of full attention leaves the dtype. */
enum cpa_status cpa_combine_check_range(const struct cpa_truth *truth,
	const struct cpa_guidance *guidance, struct cpa_error *error);

#endif
