/*
 * peers_diffusers_results.c - what Diffusers runs and returns wrong, by reading its source at
 * commit 58eb52c0 of 2026-08-23 and by running the released package; what was not read; and what
 * else is worth knowing.
 */
#include <inttypes.h>

#include "harness/peers_diffusers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int64_t product(const struct cpa_peer_request *r)
{
	return (int64_t)r->ring * r->ulysses;
}

static bool is_anything(const struct cpa_peer_request *r)
{
	return r->ring_anything || r->ulysses_anything;
}

/* ---- what runs, and is wrong ---------------------------------------------------------- */

static bool mask_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1 && cpa_diffusers_has_mask(r);
}

static bool window_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1 && cpa_peer_has_window(r->problem) &&
		cpa_diffusers_takes_window(r);
}

/* Local masks are padded to the longest, concatenated, and the tail is cut: right only where no
 * rank before the last is short. */
static bool key_mask_shifts(const struct cpa_peer_request *r)
{
	int64_t P = r->ulysses;

	if (!cpa_peer_exchanges(r) || !r->ulysses_anything || !cpa_diffusers_masks_keys(r))
		return false;
	for (int64_t rank = 1; rank + 1 < P; rank++)
		if (cpa_peer_nkeys(r->problem, P, rank) < cpa_peer_nkeys(r->problem, P, 0))
			return true;
	return false;
}

static void put_shift(const struct cpa_peer_request *r, struct cpa_text *text)
{
	int64_t P = r->ulysses, most = cpa_peer_nkeys(r->problem, P, 0), nshort = 0;

	for (int64_t rank = 0; rank < P; rank++)
		nshort += cpa_peer_nkeys(r->problem, P, rank) < most;
	cpa_text_put(text,
		"%" PRId64 " of %" PRId64 " ranks have fewer than %" PRId64
		" keys; their masks are padded "
		"to that, put in a row and cut at the tail, so that flags behind the first short "
		"rank "
		"belong to other keys",
		nshort, P, most);
}

static bool masks_each_head(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ulysses > 1 &&
		r->problem->rule.mask.kind != CPA_MASK_NONE && r->problem->rule.mask.head != 0;
}

/* After the exchange tokens stand as (text of rank 0, image of rank 0, text of rank 1, ...). */
static bool mask_of_joint_order(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ulysses > 1 && cpa_diffusers_masks_pairs(r) &&
		(cpa_problem_nsplit(r->problem, false) > 1 ||
			cpa_problem_nsplit(r->problem, true) > 1);
}

static bool window_of_joint_order(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && product(r) > 1 && cpa_peer_has_window(r->problem) &&
		cpa_diffusers_takes_window(r) &&
		(cpa_problem_nsplit(r->problem, false) > 1 ||
			cpa_problem_nsplit(r->problem, true) > 1);
}

static bool merges_fp64(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1 && !r->keep_dtype &&
		r->problem->dtype == CPA_DTYPE_FP64;
}

static bool merges_16_bit(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1 && r->keep_dtype &&
		cpa_peer_is_16_bit(r->problem);
}

/* ---- what was not read, and what else is worth knowing -------------------------------- */

static bool varlen_pairs(const struct cpa_peer_request *r)
{
	return cpa_diffusers_has_mask(r) &&
		cpa_diffusers_backend_of(r)->family == CPA_DIFFUSERS_VARLEN &&
		(cpa_diffusers_masks_pairs(r) || r->problem->rule.mask.kind != CPA_MASK_NONE ||
			cpa_problem_nsplit(r->problem, true) > 1);
}

static bool anything_pairs(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ulysses_anything && cpa_diffusers_masks_pairs(r);
}

static bool has_sink(const struct cpa_peer_request *r)
{
	return r->problem->rule.sink != NULL;
}

static bool other_values(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->problem->D != r->problem->Dv;
}

static bool whole_mask(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ulysses > 1 && cpa_diffusers_masks_pairs(r);
}

static bool trains_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring >= 3 && !r->ring_anything;
}

static bool is_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1;
}

static bool other_order(const struct cpa_peer_request *r)
{
	return r->order != CPA_ORDER_CONTIGUOUS || r->own_split ||
		r->mesh != CPA_MESH_BATCH_RING_ULYSSES;
}

static bool is_local(const struct cpa_peer_request *r)
{
	return cpa_peer_is_local(r->problem);
}

/* ---- the table ------------------------------------------------------------------------ */

const struct cpa_peer_rule cpa_diffusers_results[] = {
	{.row = CPA_PEER_ROW_MASK,
		.holds = mask_on_ring,
		.verdict = CPA_PEER_WRONG,
		.fault = "C10",
		.why = "each rank uses its own part of the mask for the keys of every other rank "
		       "too"},
	{.holds = window_on_ring,
		.verdict = CPA_PEER_WRONG,
		.fault = "C08",
		.why = "window_size is applied inside each block of keys, as if it were the "
		       "whole"},
	{.holds = key_mask_shifts,
		.verdict = CPA_PEER_WRONG,
		.fault = "B03",
		.put_why = put_shift},
	{.holds = masks_each_head,
		.verdict = CPA_PEER_WRONG,
		.fault = "C11",
		.why = "heads are exchanged and the mask's are not; reported as issue 14316, "
		       "with a "
		       "change proposed in 14317"},
	{.holds = mask_of_joint_order,
		.verdict = CPA_PEER_WRONG,
		.fault = "C04",
		.why = "after the exchange tokens stand rank by rank, (text, image) of each, and "
		       "the "
		       "mask is not put into that order"},
	{.holds = window_of_joint_order,
		.verdict = CPA_PEER_WRONG,
		.fault = "C04",
		.why = "after the exchange tokens stand rank by rank, (text, image) of each, and "
		       "the "
		       "window counts in that order"},
	{.holds = merges_fp64,
		.verdict = CPA_PEER_WRONG,
		.fault = "A03",
		.why = "convert_to_fp32 narrows fp64 to fp32 before merging: about 5.5e-8 off, "
		       "where "
		       "fp64 is about 4e-16"},
	{.holds = merges_16_bit,
		.verdict = CPA_PEER_WRONG,
		.fault = "A03",
		.why = "without convert_to_fp32, o and lse are kept and merged in 16 bit"},

	{.holds = cpa_diffusers_drops_gqa,
		.row = CPA_PEER_ROW_GQA,
		.verdict = CPA_PEER_NOT_KNOWN,
		.stage = CPA_DIFFUSERS_FORWARD,
		.why = "the common entry refuses enable_gqa, but this backend's function has no "
		       "such "
		       "argument and never hands it on; what its kernel then returns is not "
		       "known"},
	{.holds = cpa_peer_exchanges_replicated,
		.verdict = CPA_PEER_NOT_KNOWN,
		.why = "its plans know no tokens that every rank holds: a tensor that is left "
		       "whole "
		       "enters the exchange once from each rank (class E01 if nothing stops it)"},
	{.holds = varlen_pairs,
		.verdict = CPA_PEER_NOT_KNOWN,
		.why = "backends of variable length reduce a mask to a number of keys; whether "
		       "that is "
		       "right for this one is not known"},
	{.holds = anything_pairs,
		.verdict = CPA_PEER_NOT_KNOWN,
		.why = "how ulysses_anything treats a mask of queries and keys is not known"},
	{.holds = has_sink,
		.verdict = CPA_PEER_NOT_KNOWN,
		.why = "nothing is known of attention sinks there"},
	{.holds = other_values,
		.verdict = CPA_PEER_NOT_KNOWN,
		.why = "nothing is known of values with another head size than keys there"},

	{.holds = whole_mask,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "every rank must hand in the mask of all queries and keys; rows are not "
		       "gathered"},
	{.holds = trains_on_ring,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "training is wrong there with a ring of 3 or more: dk and dv are sent "
		       "against the "
		       "order in which blocks are visited"},
	{.holds = is_anything,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "forward only: the _anything forms have no backward there"},
	{.holds = is_ring,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "its ring is an all-gather: each rank holds all keys and values at once"},
	{.holds = is_local,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "keys that every rank has are attended locally, without exchange"},
	{.holds = other_order,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "judged with contiguous shards, its own split and ulysses innermost: it "
		       "has no "
		       "other"},
};
const int cpa_diffusers_nresults = COUNT(cpa_diffusers_results);
