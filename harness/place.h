/*
 * place.h - between dense arrays in host memory and boxes of device memory in whatever layout.
 */
#ifndef CPA_PLACE_H
#define CPA_PLACE_H

#include "dist/dist.h"

/*
 * All elements of a box; blocking.  A box that is its whole buffer in BSHD moves as it is.  Others go
 * by way of a copy of the buffer in host memory, and what stands beside the box in it stays.
 * CPA_NO_MEMORY, or what the device says.
 *   dense [batches, tokens, heads, dim] of the box, of the dtype of its buffer
 */
enum cpa_status cpa_place_put(struct cpa_device *device, const struct cpa_exec *exec,
	const struct cpa_box *box, const void *dense, struct cpa_error *error);
enum cpa_status cpa_place_get(struct cpa_device *device, const struct cpa_exec *exec,
	const struct cpa_box *box, void *dense, struct cpa_error *error);

#endif
