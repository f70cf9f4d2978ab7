/*
 * peers_table.c - systems that were asked the same requests, and what is known to go wrong in
 * them.  Each cell was read in the source at the version that stands with the system; "not known"
 * and "not stated" are what was not.
 */
#include "harness/peers_cells.h"

/* ---- when a cell holds for a part of its requests only -------------------------------- */

static bool length_of_ulysses(const struct cpa_peer_request *r)
{
	return r->ring == 1 && cpa_peer_row_holds(CPA_PEER_ROW_LENGTH, r);
}

static bool length_of_ring(const struct cpa_peer_request *r)
{
	return r->ring > 1 && cpa_peer_row_holds(CPA_PEER_ROW_LENGTH, r);
}

static bool half_length(const struct cpa_peer_request *r)
{
	struct cpa_segment whole;

	return cpa_peer_uneven_segment(r->problem, 2 * cpa_peer_nranks(r), &whole) != NULL;
}

static bool half_length_unpacked(const struct cpa_peer_request *r)
{
	return half_length(r) && !cpa_peer_has_documents(r->problem);
}

static bool half_length_causal(const struct cpa_peer_request *r)
{
	return half_length(r) && r->problem->rule.causal;
}

static bool length_without_balance(const struct cpa_peer_request *r)
{
	return !r->problem->rule.causal && cpa_peer_row_holds(CPA_PEER_ROW_LENGTH, r);
}

static bool documents_leave(const struct cpa_peer_request *r, int64_t divisor)
{
	const struct cpa_rule *rule = &r->problem->rule;

	for (int64_t i = 0; cpa_peer_has_documents(r->problem) && i < rule->ndocuments; i++)
		if ((rule->documents[i + 1] - rule->documents[i]) % divisor != 0)
			return true;
	return false;
}

static bool documents_do_not_divide(const struct cpa_peer_request *r)
{
	return documents_leave(r, cpa_peer_nranks(r));
}

static bool documents_do_not_halve(const struct cpa_peer_request *r)
{
	return documents_leave(r, 2 * cpa_peer_nranks(r));
}

/* The sum over the ulysses ranks of each ring rank, of lengths cut as evenly as can be. */
static bool blocks_are_equal(const struct cpa_peer_request *r)
{
	int64_t first = 0;

	for (int64_t ring = 0; ring < r->ring; ring++) {
		int64_t block = 0;

		for (int64_t u = 0; u < r->ulysses; u++)
			block += cpa_peer_nkeys(
				r->problem, cpa_peer_nranks(r), ring * r->ulysses + u);
		if (ring == 0)
			first = block;
		if (block != first)
			return false;
	}
	return true;
}

static bool anything_of_unequal_blocks(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_ANYTHING, r) && !blocks_are_equal(r);
}

static bool anything_of_equal_blocks(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_ANYTHING, r) && blocks_are_equal(r);
}

static bool is_joint(const struct cpa_peer_request *r)
{
	struct cpa_segment whole;
	int n;

	cpa_problem_segments(r->problem, true, &whole, &n);
	return n > 1;
}

static bool is_causal_joint(const struct cpa_peer_request *r)
{
	return is_joint(r) && cpa_peer_row_holds(CPA_PEER_ROW_CAUSAL, r);
}

static bool hides_key_tails(const struct cpa_peer_request *r)
{
	return r->problem->rule.key_lengths && r->problem->rule.mask.kind == CPA_MASK_NONE &&
		cpa_peer_masks_keys(r->problem) && cpa_peer_on_ring(r);
}

static bool masks_otherwise_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_MASK, r) && !hides_key_tails(r);
}

static bool masks_by_bias_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_MASK, r) &&
		r->problem->rule.mask.kind == CPA_MASK_BIAS;
}

static bool masks_without_bias_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_MASK, r) && !masks_by_bias_on_ring(r);
}

/* Packed sequences have a path of their own there. */
static bool masks_unpacked_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_MASK, r) && !cpa_peer_has_documents(r->problem);
}

static bool key_heads_do_not_divide(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_GQA, r) && r->problem->Hkv % r->ulysses != 0;
}

static bool key_heads_are_padded_on_ring(const struct cpa_peer_request *r)
{
	return key_heads_do_not_divide(r) && r->ring > 1;
}

static bool exceeds_world(const struct cpa_peer_request *r)
{
	return cpa_peer_nranks(r) * r->tensor > r->world;
}

static bool leaves_ranks(const struct cpa_peer_request *r)
{
	return cpa_peer_nranks(r) * r->batch * r->tensor < r->world;
}

static bool causal_of_unequal(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_CAUSAL, r) && r->problem->Sq != r->problem->Skv;
}

static bool documents_on_both(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1 && r->ulysses > 1 &&
		cpa_peer_has_documents(r->problem);
}

/* ---- cells ---------------------------------------------------------------------------- */

static const struct cpa_peer_rule cache_dit[] = {
	{ROW(ANYTHING), REFUSED(.exception = "ValueError")},
	{ROW(WORLD), .holds = exceeds_world, REFUSED(.exception = "ValueError")},
	{ROW(WORLD), .holds = leaves_ranks, NOT_KNOWN},
	{ROW(LENGTH), REFUSED(.stage = "split hook", .exception = "AssertionError")},
	{ROW(HEADS), ACCEPTED(.why = "heads are padded")},
	{ROW(MASK),
		WRONG("C10",
			.why = "the mask is passed on unchanged to every block of keys (read, "
			       "not run)")},
	{ROW(CAUSAL), .holds = cpa_peer_is_causal_ring,
		WRONG("C01",
			.why = "causal is passed on to every block of keys, which knows nothing "
			       "of "
			       "the ring (read, not run)")},
	{ROW(GQA), ACCEPTED(.why = "it has two strategies for fewer key heads")},
	{ROW(LSE), NOT_KNOWN},
	{ROW(TENSOR), ACCEPTED(.why = "context and tensor parallelism go together")},
	REPLICATED,
	BEYOND_ROWS,
};

static const struct cpa_peer_rule xdit[] = {
	{ROW(WORLD),
		REFUSED(.exception = "AssertionError",
			.why = "the product of the degrees must be dit_parallel_size")},
	{ROW(LENGTH), REFUSED(.exception = "AssertionError")},
	{ROW(HEADS), REFUSED(.exception = "AssertionError")},
	{ROW(MASK),
		REFUSED(.exception = "AssertionError",
			.why = "the path of torch asserts that there is no mask")},
	{ROW(GQA), REFUSED(.why = "fewer key heads are not supported; the error is not known")},
	{ROW(ANYTHING), NOT_STATED},
	{ROW(CAUSAL), TAKES},
	{ROW(LSE), NOT_STATED},
	{ROW(TENSOR),
		ACCEPTED(.why = "tensor parallelism goes with it, fully sharded weights do not "
				"(an assertion)")},
	BEYOND_ROWS,
};

static const struct cpa_peer_rule vllm_omni[] = {
	{ROW(HEADS), REFUSED(.exception = "ValueError", .why = "the error lists the divisors")},
	{ROW(ANYTHING), .holds = anything_of_unequal_blocks,
		REFUSED(.exception = "ValueError",
			.why = "every ring rank must get equally many tokens")},
	{ROW(ANYTHING), .holds = anything_of_equal_blocks, TAKES},
	{ROW(MASK), .holds = masks_otherwise_on_ring, REFUSED(.exception = "ValueError")},
	{ROW(MASK), .holds = hides_key_tails,
		ACCEPTED(.why = "blocks are trimmed by valid_kv_length; a mask is a ValueError")},
	{ROW(CAUSAL), .holds = is_causal_joint,
		REFUSED(.exception = "ValueError",
			.why = "causal does not go with joint tokens")},
	{ROW(GQA), .holds = key_heads_are_padded_on_ring,
		REFUSED(.exception = "ValueError",
			.why = "padded key heads cannot go round a ring; before that was "
			       "refused, zeros "
			       "counted as keys")},
	{ROW(LENGTH), .holds = length_of_ring, .verdict = CPA_PEER_NOT_KNOWN,
		.why = "auto_pad pads and masks, and without it this is an error; a ring takes "
		       "no "
		       "mask, or trims blocks by valid_kv_length, depending on the version"},
	{ROW(LENGTH), .holds = length_of_ulysses,
		ACCEPTED(.why = "auto_pad pads and masks; without it this is an error")},
	{ROW(WORLD), NOT_KNOWN},
	{ROW(LSE), .verdict = CPA_PEER_NOT_KNOWN,
		.why = "it falls back to another backend, or crashes (reported on B200 as 5611)"},
	{ROW(TENSOR), TAKES},
	BEYOND_ROWS,
};

static const struct cpa_peer_rule tensorrt_llm[] = {
	{ROW(LENGTH),
		REFUSED(.why = "the caller must pad, its documentation says; what happens "
			       "otherwise is not known")},
	{ROW(HEADS), REFUSED(.exception = "ValueError")},
	{ROW(MASK), REFUSED(.exception = "NotImplementedError")},
	{ROW(CAUSAL), REFUSED(.exception = "NotImplementedError")},
	{ROW(GQA), .holds = key_heads_do_not_divide,
		REFUSED(.exception = "ValueError",
			.why = "ulysses must divide query heads and key heads")},
	{ROW(LSE),
		REFUSED(.stage = "construction", .exception = "ValueError",
			.why = "Attention2D raises RuntimeError")},
	{ROW(ANYTHING), NOT_STATED},
	{ROW(WORLD), NOT_KNOWN},
	{ROW(TENSOR), TAKES},
	BEYOND_ROWS,
};

static const struct cpa_peer_rule flashinfer[] = {
	{ROW(HEADS), REFUSED(.exception = "ValueError")},
	{NO_ROW, .holds = documents_on_both,
		REFUSED(.exception = "NotImplementedError",
			.why = "packed sequences of several lengths do not go with both degrees "
			       "above 1")},
	{ROW(MASK), .holds = masks_unpacked_on_ring, REFUSED(.exception = "NotImplementedError")},
	{ROW(CAUSAL), REFUSED(.exception = "NotImplementedError")},
	{ROW(GQA), .holds = key_heads_do_not_divide,
		REFUSED(.exception = "ValueError",
			.why = "ulysses must divide query heads and key heads")},
	{ROW(LENGTH), .verdict = CPA_PEER_NOT_KNOWN,
		.why = "it needs UnevenCPConfig; whether the length is checked without is not "
		       "known"},
	{ROW(ANYTHING), ACCEPTED(.why = "uneven lengths go with both degrees above 1")},
	{ROW(WORLD), NOT_STATED},
	{ROW(LSE), NOT_STATED},
	{ROW(TENSOR), NOT_STATED},
	REPLICATED,
	BEYOND_ROWS,
};

static const struct cpa_peer_rule transformer_engine[] = {
	{ROW(LENGTH), .holds = half_length_unpacked,
		REFUSED(.exception = "AssertionError",
			.why = "every length must be a multiple of twice the ranks")},
	{ROW(HEADS), REFUSED(.exception = "AssertionError")},
	{ROW(GQA), .holds = key_heads_do_not_divide,
		REFUSED(.exception = "AssertionError",
			.why = "a2a must divide the key heads too")},
	{NO_ROW, .holds = documents_do_not_divide,
		WRONG("B04",
			.why = "lengths of packed sequences are divided by the ranks and rounded "
			       "down: of 7 tokens on 2 ranks it keeps 6 (reported as 1929 to "
			       "1931)")},
	{NO_ROW, .holds = documents_do_not_halve, .verdict = CPA_PEER_NOT_KNOWN,
		.why = "packed sequences must be padded to a multiple of twice the ranks; what "
		       "happens otherwise is not known"},
	{ROW(MASK), .holds = masks_unpacked_on_ring, .verdict = CPA_PEER_NOT_KNOWN,
		.why = "it depends on the type of the mask"},
	{ROW(CAUSAL), TAKES},
	{ROW(ANYTHING), NOT_STATED},
	{ROW(WORLD), NOT_STATED},
	{ROW(LSE), NOT_STATED},
	{ROW(TENSOR), TAKES},
	REPLICATED,
	BEYOND_ROWS,
};

static bool math_on_4(const struct cpa_peer_request *r)
{
	return cpa_peer_nranks(r) == 4 && cpa_peer_backend_is(r, "math");
}

static const struct cpa_peer_rule pytorch[] = {
	{ROW(LENGTH), .holds = half_length_causal,
		REFUSED(.why = "a causal rule is load-balanced, and then twice the ranks must "
			       "divide "
			       "the length; the error is not known")},
	{ROW(MASK), .holds = masks_by_bias_on_ring, REFUSED(.exception = "NotImplementedError")},
	{ROW(CAUSAL), .holds = causal_of_unequal,
		REFUSED(.why = "causal needs as many queries as keys; the error is not known")},
	{ROW(WORLD), REFUSED(.stage = "mesh", .why = "the constructor of the mesh refuses it")},
	{NO_ROW, .holds = math_on_4,
		WRONG(NULL,
			.why = "on 4 ranks the MATH kernel returned the whole sequence instead "
			       "of "
			       "the shard (version 2.15, run)")},
	FP64_MERGED_IN_FP32,
	{ROW(LENGTH), .holds = length_without_balance, NOT_KNOWN},
	{ROW(MASK), .holds = masks_without_bias_on_ring, NOT_KNOWN},
	{ROW(HEADS), NOT_STATED},
	{ROW(ANYTHING), NOT_STATED},
	{ROW(CAUSAL), TAKES},
	{ROW(GQA), NOT_KNOWN},
	{ROW(LSE), NOT_STATED},
	{ROW(TENSOR), TAKES},
	REPLICATED,
	BEYOND_ROWS,
};

const struct cpa_peer_rules cpa_peer_cache_dit = {cache_dit, COUNT(cache_dit)};
const struct cpa_peer_rules cpa_peer_xdit = {xdit, COUNT(xdit)};
const struct cpa_peer_rules cpa_peer_vllm_omni = {vllm_omni, COUNT(vllm_omni)};
const struct cpa_peer_rules cpa_peer_tensorrt_llm = {tensorrt_llm, COUNT(tensorrt_llm)};
const struct cpa_peer_rules cpa_peer_flashinfer = {flashinfer, COUNT(flashinfer)};
const struct cpa_peer_rules cpa_peer_transformer_engine = {
	transformer_engine, COUNT(transformer_engine)};
const struct cpa_peer_rules cpa_peer_pytorch = {pytorch, COUNT(pytorch)};
