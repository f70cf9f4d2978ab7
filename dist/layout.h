/*
 * layout.h - which problems and partitions the caller's layout can hold; private to dist/.
 */
#ifndef CPA_LAYOUT_H
#define CPA_LAYOUT_H

#include "dist/schedule.h"

/* Both: CPA_UNSUPPORTED with the reason and what would work. */
enum cpa_status cpa_layout_check_problem(
	const struct cpa_problem *problem, struct cpa_error *error);
/* Of a partition whose tokens are cut. */
enum cpa_status cpa_layout_check_shards(
	const struct cpa_partition *partition, struct cpa_error *error);

#endif
