/*
 * order.h - picking the order of tokens that spreads the work best.
 */
#ifndef CPA_ORDER_H
#define CPA_ORDER_H

#include "dist/schedule.h"

/*
 * Sets config->order to the one whose busiest rank attends least (cpa_counts.attended); of
 * equals the one in which all ranks together send least, then the first of contiguous, zigzag,
 * striped and, where there are documents, zigzag_documents.  Orders that this configuration
 * refuses are not in the race; when it refuses all, contiguous stands and says why when it is
 * planned.  Plans every rank in every order.  Fails only for lack of memory.
 */
enum cpa_status cpa_order_pick(const struct cpa_problem *problem, struct cpa_config *config,
	struct cpa_error *error);

#endif
