/*
 * stages.h - what the stages of a plan share; private to dist/.
 *
 * A plan is composed: ulysses in, ring, ulysses out, replicated rows to all, guidance.  Each stage takes operands from the one before and
 * leaves operands for the next; at degree 1 a stage does nothing.
 */
#ifndef CPA_STAGES_H
#define CPA_STAGES_H

#include "dist/schedule.h"

enum { CPA_PLAN_NINDEXES = 8 };
struct cpa_plan {
	const struct cpa_partition *part;
	struct cpa_schedule *schedule;
	struct cpa_coords at;
	struct cpa_range batches, heads, kv_heads; /* this rank works on, after the ulysses exchange */
	/* This rank's split tokens in its input and output buffers; buffer -1 where it is empty. */
	struct cpa_operand q_in, k_in, v_in, o_out, lse_out;
	/* The replicated tokens behind them, which every rank of the batch group holds whole. */
	struct cpa_operand q_whole, k_whole, v_whole, o_whole, lse_whole;
	/* What the ring works on; buffer -1 where empty. */
	struct cpa_operand q, k, v;
	/* What the ring leaves: partials of all rows of q, finished in content; buffer -1 where empty. */
	struct cpa_operand o, lse;
	/* The same of this ring rank's slice of the replicated queries. */
	struct cpa_operand o_slice, lse_slice;
	/* Indexes of the lists of tokens used last, as many parts are picked from few lists. */
	struct cpa_spans_index indexes[CPA_PLAN_NINDEXES];
	int nindexes;
};

/* Stages, in this order. */
void cpa_stage_ulysses_in(struct cpa_plan *plan);
void cpa_stage_ring(struct cpa_plan *plan);
void cpa_stage_ulysses_out(struct cpa_plan *plan);
void cpa_stage_replicated(struct cpa_plan *plan);
void cpa_stage_guidance(struct cpa_plan *plan);

/* A new work buffer [S, B, H, D] for this content, and the operand that is all of it. */
struct cpa_operand cpa_plan_work(struct cpa_plan *plan, const char *name, const struct cpa_content *content);
/* Tokens first, first+step, ... (n) of an operand, by index in it. */
struct cpa_operand cpa_operand_tokens(struct cpa_plan *plan, const struct cpa_operand *whole, int64_t first,
	int64_t n, int64_t step);
/* Like cpa_operand_tokens(), but only the box: the content is left as it is. */
struct cpa_operand cpa_operand_place(const struct cpa_operand *whole, int64_t first, int64_t n,
	int64_t step);
/* The index of a list of tokens that does not change any more. */
struct cpa_spans_index cpa_plan_index(struct cpa_plan *plan, const struct cpa_spans *tokens);
/* Heads of an operand, by global id. */
struct cpa_operand cpa_operand_heads(const struct cpa_operand *whole, struct cpa_range heads);
bool cpa_operand_is_empty(const struct cpa_operand *operand);
/* A box of no tokens, for a member of a collective that contributes nothing. */
struct cpa_operand cpa_operand_absent(struct cpa_content content);
bool cpa_operand_is_run(const struct cpa_plan *plan, const struct cpa_operand *operand);
/* The same content in the box of `to`, copied there. */
void cpa_plan_copy(struct cpa_plan *plan, const struct cpa_operand *from, const struct cpa_operand *to);
/* The operand itself when it is one run of memory, else a copy that is. */
struct cpa_operand cpa_plan_as_run(struct cpa_plan *plan, const char *name,
	const struct cpa_operand *operand);
enum cpa_dtype cpa_tensor_dtype(const struct cpa_problem *problem, enum cpa_tensor tensor);
int64_t cpa_tensor_dim(const struct cpa_problem *problem, enum cpa_tensor tensor);

#endif
