/*
 * mask.h - copies of dense masks, in the shape that they came in.
 */
#ifndef CPA_MASK_H
#define CPA_MASK_H

#include "ref/ref.h"

/*
 * Copies the mask of problem, which has one, densely and still broadcast where it was.  kind
 * BOOL: whether the key is visible.  BIAS: the values in dtype; what is finite stays finite.
 * *copy borrows *data, which is the caller's to free.
 */
enum cpa_status cpa_mask_copy(const struct cpa_problem *problem, enum cpa_mask_kind kind,
	enum cpa_dtype dtype, struct cpa_mask *copy, void **data, struct cpa_error *error);

#endif
