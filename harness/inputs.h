/*
 * inputs.h - where q, k, v come from, and moving shards in and out of whole arrays.
 *
 * A run reads its inputs by shard, so that a recording, a fill and a probe look the same to it.
 */
#ifndef CPA_INPUTS_H
#define CPA_INPUTS_H

#include "dist/schedule.h"

/*
 * read: batches x tokens x all heads of tensor q, k or v, in the dtype of the problem.
 *   dst [batches, tokens, H, D]  out, dense
 */
struct cpa_inputs {
	void (*read)(const void *context, enum cpa_tensor tensor, struct cpa_range batches,
		const struct cpa_spans *tokens, void *dst);
	const void *context;
};

/* Whole arrays, dense [B, S, H, D] of problem->dtype; all borrowed. */
struct cpa_tensors {
	const struct cpa_problem *problem;
	const void *q, *k, *v;
};
/* tensors must outlive the result. */
struct cpa_inputs cpa_inputs_dense(const struct cpa_tensors *tensors);
/* Like cpa_ref_check_inputs(), on dense tensors. */
enum cpa_status cpa_tensors_check(const struct cpa_tensors *tensors, struct cpa_error *error);
/* Made-up q, k or v, all of it.   dst [B, S, H, D]  out, dense, of problem->dtype */
void cpa_inputs_fill(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	enum cpa_tensor tensor, void *dst);
/*
 * All of q, k and v likewise.  CPA_NO_MEMORY.
 *   data     out, [3] malloc, the caller's in any case; all NULL before
 *   tensors  out, of data
 */
enum cpa_status cpa_inputs_make(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	void *data[3], struct cpa_tensors *tensors, struct cpa_error *error);
/* Like cpa_inputs_fill(), some of it.   dst [batches, tokens, H, D]  out */
void cpa_inputs_fill_part(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens, void *dst);

/* Bytes of one token of tensor: all heads. */
size_t cpa_token_nbytes(const struct cpa_problem *problem, enum cpa_tensor tensor);
/* Tokens of tensor: Sq, or Skv for k and v. */
int64_t cpa_tensor_ntokens(const struct cpa_problem *problem, enum cpa_tensor tensor);

/* Tells bytes apart, not enemies: h goes on from an earlier call; 0 to begin. */
uint64_t cpa_hash(uint64_t h, const void *data, size_t nbytes);

/* Which rows an array of outputs holds: [batches, ntokens, H, ...]. */
struct cpa_rows {
	struct cpa_range batches;
	int64_t ntokens;
	const struct cpa_spans *tokens; /* in buffer order; NULL: 0 .. ntokens - 1 */
};

/* One shard of an array whole [B, S, row bytes]; the shard is dense [batches, tokens, row
 * bytes]. */
struct cpa_shard {
	size_t row_nbytes;
	int64_t S;
	struct cpa_range batches;
	const struct cpa_spans *tokens;
};
void cpa_shard_gather(const struct cpa_shard *shard, const void *whole, void *dst);
void cpa_shard_scatter(const struct cpa_shard *shard, const void *src, void *whole);
/* Whether the shard in src is bit for bit what whole holds; if not, one place where it differs.
 */
bool cpa_shard_equal(const struct cpa_shard *shard, const void *src, const void *whole,
	int64_t *batch, int64_t *token);

#endif
