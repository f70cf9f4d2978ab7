/*
 * recording_merge.h - private to recording_merge*.c: one call that is being merged.
 */
#ifndef CPA_RECORDING_MERGE_H
#define CPA_RECORDING_MERGE_H

#include "harness/recording_part.h"

struct cpa_merge_call {
	struct cpa_part *parts; /* [n], by rank */
	int n;
	char where[CPA_H5_WHERE / 2]; /* "/calls/NAME" */
	struct cpa_problem problem; /* sizes; then the rule as the parts say it */
	bool masked;
	struct cpa_part_mask mask; /* of the whole call: class, dtype, dims */
	int *key_class; /* [n] which keys the mask of a part is about; owned */
	int nkey_classes;
	struct cpa_arena arena; /* of lists made while planning */
};

/* Sizes of the axes batches, tokens, heads of a tensor of the call. */
void cpa_merge_sizes(const struct cpa_merge_call *call, int tensor, int64_t sizes[3]);
bool cpa_merge_in_axis(const struct cpa_recording_axis *axis, int64_t id);
/* The first of n parts that holds (batch item, token, head) of tensor; NULL: none. */
const struct cpa_part *cpa_merge_holder(
	const struct cpa_merge_call *call, int n, int tensor, const int64_t ids[3]);

static inline bool cpa_merge_bit(const unsigned char *bits, int64_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

static inline void cpa_merge_set(unsigned char *bits, int64_t i)
{
	bits[i / 8] |= (unsigned char)(1u << (i % 8));
}

/* The first part that has the tensor; NULL: none. */
const struct cpa_part *cpa_merge_first(const struct cpa_merge_call *call, int tensor);

/* Everything that can be told without reading tensors; fills call->problem and the mask. */
enum cpa_status cpa_merge_plan(
	struct cpa_parts *parts, struct cpa_merge_call *call, struct cpa_error *error);
/* That the parts hold all of a tensor, and nothing twice that may not be. */
enum cpa_status cpa_merge_cover(
	const struct cpa_merge_call *call, int tensor, struct cpa_error *error);

/* Whether a rank's own q, k or v is kept beside the merged one: where o does not say its tokens,
 * or it has padding. */
bool cpa_merge_keeps(const struct cpa_part *part, int tensor);

/* Fills call->masked, mask and key_class, from the masks of the parts; nothing is read. */
enum cpa_status cpa_merge_plan_mask(struct cpa_merge_call *call, struct cpa_error *error);
enum cpa_status cpa_merge_copy_mask(
	const struct cpa_merge_call *call, struct cpa_h5 *out, struct cpa_error *error);

/* Streams every tensor of the call into out, whose datasets are there. */
enum cpa_status cpa_merge_copy(
	const struct cpa_merge_call *call, struct cpa_h5 *out, struct cpa_error *error);
/* Opens a dataset of a part; close both. */
enum cpa_status cpa_merge_open(const struct cpa_part *part, const char *name,
	struct cpa_recording **recording, struct cpa_h5_array *array, struct cpa_error *error);

#endif
