/*
 * rank_rows.h - what one process must know about its own rows: the right answers, and how far off
 * one rank of the same device alone would be.
 *
 * Keys and values of all tokens are needed for both.  They are read in blocks, and kept for as
 * many heads of one batch item as fit a fixed amount of memory (but one head at least).
 */
#ifndef CPA_RANK_ROWS_H
#define CPA_RANK_ROWS_H

#include "harness/judge.h"

/* Where tensors come from: batches x tokens x all heads of q, k or v, in the dtype of the
 * problem. dst [batches, tokens, H, D]  out, dense */
struct cpa_source {
	enum cpa_status (*read)(void *context, const struct cpa_problem *problem,
		enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens,
		void *dst, struct cpa_error *error);
	void *context;
};

struct cpa_rank_rows {
	const struct cpa_problem *problem;
	const struct cpa_source *source;
	struct cpa_device *device;
	enum cpa_partials partials;
	enum cpa_dtype partial_dtype;
	struct cpa_rows held; /* with tokens */
	const bool *wanted; /* [Sq] which of them are judged; NULL: all */
	const struct cpa_spans *skipped; /* not judged here, because another rank has them too */
};

/*
 * Everything in rows is borrowed, and its spans for as long as the truth lives.
 *   truth  out, the caller's
 *   o      [nb, ntokens, Hq, Dv]  out: outputs of the device on one rank
 *   lse    [nb, ntokens, Hq]      out, or NULL: not an output
 * CPA_INVALID: scores may overflow, or the source is bad.
 */
enum cpa_status cpa_rank_rows_compute(const struct cpa_rank_rows *rows, struct cpa_truth **truth,
	void *o, void *lse, struct cpa_error *error);

#endif
