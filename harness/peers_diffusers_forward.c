/*
 * peers_diffusers_forward.c - what the first forward of Diffusers refuses: the function of the
 * backend, then the common entry of context parallelism, then the exchange.  Read in its source
 * at commit 58eb52c0 of 2026-08-23.
 */
#include <inttypes.h>

#include "harness/peers_diffusers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- the first forward: the backend's function ---------------------------------------- */

static bool wants_16_bit(const struct cpa_peer_request *r)
{
	return cpa_diffusers_backend_of(r)->half && !cpa_peer_is_16_bit(r->problem);
}

static void put_16_bit(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text,
		"backend %s computes in 16 bit, and the tensors are %s; the check is made where "
		"DIFFUSERS_ATTN_CHECKS is on, else the kernel fails with an error of its own",
		cpa_diffusers_backend_of(r)->name, cpa_dtype_name(r->problem->dtype));
}

static bool refuses_mask(const struct cpa_peer_request *r)
{
	return cpa_diffusers_has_mask(r) && cpa_diffusers_backend_of(r)->no_mask;
}

static void put_no_mask(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text, "%s", cpa_diffusers_backend_of(r)->no_mask);
}

static bool varlen_mask_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && cpa_diffusers_has_mask(r) && r->ring > 1 &&
		cpa_diffusers_backend_of(r)->family == CPA_DIFFUSERS_VARLEN;
}

/* ---- the common entry of context parallelism ------------------------------------------ */

static bool is_causal(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->problem->rule.causal;
}

static bool refuses_gqa(const struct cpa_peer_request *r)
{
	return cpa_diffusers_is_gqa(r) && !cpa_diffusers_drops_gqa(r);
}

static bool ring_anything_mask(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring_anything && cpa_diffusers_has_mask(r);
}

static bool heads_do_not_divide(const struct cpa_peer_request *r)
{
	const struct cpa_problem *p = r->problem;

	return cpa_peer_exchanges(r) && r->ulysses > 1 && !r->ulysses_anything &&
		(p->Hq % r->ulysses != 0 || p->Hkv % r->ulysses != 0);
}

static void put_heads(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text,
		"%" PRId64 " query heads and %" PRId64
		" key heads over ulysses_degree %d: no check says "
		"so, torch cannot reshape the heads%s",
		r->problem->Hq, r->problem->Hkv, r->ulysses,
		r->ring > 1 ? ", or an assertion of the exchange fails" : "");
}

/* Heads are padded at their end until P divides them, and only the last rank may have padding. */
static int64_t head_padding(int64_t heads, int64_t P)
{
	return (P - heads % P) % P;
}

static bool pads_too_many(int64_t heads, int64_t P)
{
	int64_t pad = head_padding(heads, P);

	return pad > 0 && pad >= (heads + pad) / P;
}

static bool heads_are_refused(const struct cpa_peer_request *r)
{
	const struct cpa_problem *p = r->problem;

	return cpa_peer_exchanges(r) && r->ulysses_anything && r->ulysses > 1 &&
		(pads_too_many(p->Hq, r->ulysses) || pads_too_many(p->Hkv, r->ulysses));
}

static void put_padding(const struct cpa_peer_request *r, struct cpa_text *text)
{
	int64_t P = r->ulysses;
	int64_t heads = pads_too_many(r->problem->Hq, P) ? r->problem->Hq : r->problem->Hkv;
	int64_t pad = head_padding(heads, P);

	cpa_text_put(text,
		"Padding head num %" PRId64 " should be less than new local head num %" PRId64,
		pad, (heads + pad) / P);
}

static void put_padding_why(const struct cpa_peer_request *r, struct cpa_text *text)
{
	int64_t P = r->ulysses;
	int64_t heads = pads_too_many(r->problem->Hq, P) ? r->problem->Hq : r->problem->Hkv;
	int64_t pad = head_padding(heads, P);

	cpa_text_put(text,
		"H = %" PRId64 " on %" PRId64 " ranks: H_PAD = %" PRId64
		" heads make it divisible, and "
		"each rank would have %" PRId64
		" of them, so that more than the last rank would hold "
		"padding",
		heads, P, pad, (heads + pad) / P);
}

static bool lacks_lse(const struct cpa_peer_request *r)
{
	enum cpa_diffusers_family f = cpa_diffusers_backend_of(r)->family;

	return cpa_peer_exchanges(r) && r->ring > 1 &&
		(f == CPA_DIFFUSERS_NATIVE || f == CPA_DIFFUSERS_NPU);
}

static void put_no_lse(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text, "%s attention does not support return_lse=True",
		cpa_diffusers_backend_of(r)->family == CPA_DIFFUSERS_NPU ? "NPU" : "Native");
}

/* ---- the table ------------------------------------------------------------------------ */

const struct cpa_peer_rule cpa_diffusers_forward[] = {
	{.holds = refuses_mask,
		.row = CPA_PEER_ROW_MASK,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.put_message = put_no_mask},
	{.row = CPA_PEER_ROW_MASK,
		.holds = varlen_mask_on_ring,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "NotImplementedError",
		.why = "backends of variable length take no mask on a ring"},
	{.holds = wants_16_bit,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.message = "Query, key, and value must be either bfloat16 or float16.",
		.put_why = put_16_bit},
	{.row = CPA_PEER_ROW_CAUSAL,
		.holds = is_causal,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.message = "Causal attention is not yet supported for templated attention."},
	{.row = CPA_PEER_ROW_GQA,
		.holds = refuses_gqa,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.message = "GQA is not yet supported for templated attention."},
	{.row = CPA_PEER_ROW_MASK,
		.holds = ring_anything_mask,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.message = "... non-uniform sequence lengths across ranks make cross-rank mask "
			   "slicing "
			   "ambiguous"},
	{.row = CPA_PEER_ROW_HEADS,
		.holds = heads_do_not_divide,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "RuntimeError",
		.put_why = put_heads},
	{.holds = heads_are_refused,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "AssertionError",
		.put_message = put_padding,
		.put_why = put_padding_why},
	{.row = CPA_PEER_ROW_LSE,
		.holds = lacks_lse,
		.verdict = CPA_PEER_REFUSED,
		.stage = CPA_DIFFUSERS_FORWARD,
		.exception = "ValueError",
		.put_message = put_no_lse,
		.why = "a ring merges by lse; enable_parallelism looks at the name of the "
		       "backend "
		       "alone, and lets it pass"},
};
const int cpa_diffusers_nforward = COUNT(cpa_diffusers_forward);
