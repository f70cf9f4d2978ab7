/* waits.h - how the builder finds who waits for whom; private to dist/. */
#ifndef CPA_WAITS_H
#define CPA_WAITS_H

#include "dist/schedule.h"

/* Gives each step of a schedule one wait per other queue: the latest step there that touched what this
 * one touches, where one of the two writes, unless its queue has waited for that step already.
 * O(A log A) for A boxes.  False: out of memory. */
bool cpa_schedule_find_waits(struct cpa_schedule *schedule);

#endif
