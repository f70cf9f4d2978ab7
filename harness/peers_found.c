/*
 * peers_found.c - what is known to go wrong in systems that were not asked the common requests,
 * beside them in some that were; and the list of all systems.  "run": it was run on a CPU.
 */
#include <string.h>

#include "harness/peers_cells.h"
#include "harness/peers_diffusers.h"

/* ---- systems of which single findings are known --------------------------------------- */

static bool has_batch_groups(const struct cpa_peer_request *r)
{
	return r->batch > 1;
}

static bool short_sharded_keys(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->problem->Skv < r->problem->Sq;
}

static const struct cpa_peer_rule paraattention[] = {
	{ROW(LENGTH), REFUSED(.exception = "AssertionError")},
	FP64_MERGED_IN_FP32,
	{NO_ROW, .holds = has_batch_groups,
		ACCEPTED(.why = "degrees are cut down to divisors of the world without a word; "
				"with "
				"FLUX, ids seem to be cut over the default group instead of the "
				"sequence group (inferred)")},
	{NO_ROW, .holds = short_sharded_keys,
		ACCEPTED(.why = "with skip_small_kv a rank attends its own part of such keys "
				"only (0.48 "
				"to 0.62 off, run)")},
	REPLICATED,
	BEYOND_ROWS,
};

static bool is_torch_type(const struct cpa_peer_request *r)
{
	return cpa_peer_backend_is(r, "torch_math") || cpa_peer_backend_is(r, "torch_cudnn");
}

static bool torch_ring(const struct cpa_peer_request *r)
{
	return is_torch_type(r) && cpa_peer_on_ring(r);
}

static bool torch_window(const struct cpa_peer_request *r)
{
	return is_torch_type(r) && cpa_peer_exchanges(r) && cpa_peer_has_window(r->problem);
}

static bool fa3_rule(const struct cpa_peer_request *r)
{
	return cpa_peer_backend_is(r, "fa3") && cpa_peer_exchanges(r) &&
		(r->problem->rule.causal || cpa_peer_has_window(r->problem));
}

static bool causal_on_swapped_mesh(const struct cpa_peer_request *r)
{
	return cpa_peer_is_causal_ring(r) && r->ulysses > 1 &&
		r->mesh == CPA_MESH_BATCH_ULYSSES_RING;
}

static const struct cpa_peer_rule yunchang[] = {
	{ROW(LENGTH),
		REFUSED(.exception = "AssertionError", .why = "of the implementation basic")},
	{NO_ROW, .holds = torch_ring,
		WRONG("A09",
			.why = "these types return zeros for lse, so that blocks are averaged "
			       "evenly (implementation basic; 0.38 off, run)")},
	{NO_ROW, .holds = fa3_rule,
		WRONG("C10",
			.why = "the wrappers of FA3 force causal=False and no window (read, not "
			       "run)")},
	{NO_ROW, .holds = torch_window,
		WRONG("C08", .why = "window_size is ignored by the torch types (0.47 off, run)")},
	{NO_ROW, .holds = causal_on_swapped_mesh,
		WRONG("C04",
			.why = "with use_ulysses_low=False a ring rank holds other blocks than "
			       "its "
			       "number says, and causal blocks are skipped by that number (0.41 "
			       "off, "
			       "run)")},
	FP64_MERGED_IN_FP32,
	REPLICATED,
	BEYOND_ROWS,
};

static bool ring_of_16_bit(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && cpa_peer_is_16_bit(r->problem);
}

static bool has_ulysses(const struct cpa_peer_request *r)
{
	return r->ulysses > 1;
}

static const struct cpa_peer_rule ring_flash_attn[] = {
	{ROW(LENGTH), REFUSED(.exception = "AssertionError")},
	{NO_ROW, .holds = cpa_peer_is_window_ring,
		WRONG("C08",
			.why = "the window is applied inside each pair of blocks (0.28 to 0.40 "
			       "off, run with a stand-in kernel)")},
	FP64_MERGED_IN_FP32,
	{NO_ROW, .holds = has_ulysses, .verdict = CPA_PEER_NOT_KNOWN,
		.why = "not stated: what was read of it is its rings"},
	{NO_ROW, .holds = ring_of_16_bit,
		ACCEPTED(.why = "blocks come back in 16 bit, and the error grows with the ring "
				"(class "
				"A03; reported as 42 and 67)")},
	REPLICATED,
	BEYOND_ROWS,
};

static bool groups_of_heads(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->problem->Hkv > 1 && r->problem->Hkv < r->problem->Hq;
}

static bool is_cross(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && r->problem->Sq != r->problem->Skv;
}

static const struct cpa_peer_rule ring_attention_pytorch[] = {
	{NO_ROW, .holds = groups_of_heads,
		WRONG("D06", .why = "query head h uses key head h mod Hkv (run)")},
	{NO_ROW, .holds = is_cross,
		WRONG("E03",
			.why = "unequal lengths switch the ring off: local keys only (0.48 off, "
			       "run)")},
	{NO_ROW, .holds = has_ulysses, .verdict = CPA_PEER_NOT_KNOWN,
		.why = "not stated: what was read of it is its rings"},
	{NO_ROW, .holds = cpa_peer_on_ring,
		ACCEPTED(.why = "training is wrong there on 2 ranks and more: dk and dv are "
				"unpacked in "
				"the wrong order (run); a bucket that does not divide the shard "
				"is wrong "
				"with causal")},
	REPLICATED,
	BEYOND_ROWS,
};

static bool replicated_on_pure_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges_replicated(r) && r->ring > 1 && r->ulysses == 1;
}

static bool replicated_on_both(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges_replicated(r) && r->ring > 1 && r->ulysses > 1;
}

static const struct cpa_peer_rule sglang[] = {
	{ROW(HEADS), REFUSED(.why = "ulysses must divide the heads; the error is not known")},
	{NO_ROW, .holds = replicated_on_pure_ring,
		WRONG("E01",
			.why = "replicated text goes round the ring as if it were sharded, and "
			       "counts once for every ring rank (reported as 33327)")},
	{NO_ROW, .holds = replicated_on_both,
		WRONG("E04",
			.why = "its paths for a prefix or suffix take a ring degree and never "
			       "rotate keys (reported as 33353)")},
	BEYOND_ROWS,
};

static bool cutlass_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && cpa_peer_backend_is(r, "cutlass");
}

static const struct cpa_peer_rule flashinfer_found[] = {
	{NO_ROW, .holds = cutlass_ring,
		WRONG("A01",
			.why = "this kernel returns lse to base 2, and blocks are merged as if "
			       "it "
			       "were natural (0.03 to 0.15 off)")},
};

static bool bypasses_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && r->problem->Sq != r->problem->Skv;
}

static const struct cpa_peer_rule tensorrt_llm_found[] = {
	{NO_ROW, .holds = bypasses_ring,
		WRONG("E03",
			.why = "queries and keys of different lengths bypass the ring: local "
			       "keys "
			       "only (inferred from the source)")},
};

/* ---- the systems ---------------------------------------------------------------------- */

static const char *const any_backend[] = {"default", cpa_peer_no_lse, NULL};
static const char *const flashinfer_backends[] = {"default", "cutlass", cpa_peer_no_lse, NULL};
static const char *const pytorch_backends[] = {"default", "math", cpa_peer_no_lse, NULL};
static const char *const yunchang_backends[] = {
	"default", "fa3", "torch_math", "torch_cudnn", cpa_peer_no_lse, NULL};

enum { NPEERS = 13 };

/* The tables are joined once: how long they are is not constant across files. */
static void fill(struct cpa_peer *peers)
{
	const struct cpa_peer all[NPEERS] = {
		{"diffusers", "huggingface/diffusers", "58eb52c0, 2026-08-23",
			"judged in full: validation, backends, hooks, first forward",
			cpa_diffusers_backends, true, true, false, true,
			{{cpa_diffusers_setup, cpa_diffusers_nsetup},
				{cpa_diffusers_forward, cpa_diffusers_nforward},
				{cpa_diffusers_results, cpa_diffusers_nresults}}},
		{"cache-dit", "vipshop/cache-dit", "f86744af, 2026-08-21",
			"by the common requests", any_backend, false, true, false, false,
			{{cpa_peer_cache_dit.at, cpa_peer_cache_dit.n}}},
		{"xdit", "xdit-project/xDiT", "175e0bfe, 2026-07-14", "by the common requests",
			any_backend, false, false, true, false,
			{{cpa_peer_xdit.at, cpa_peer_xdit.n}}},
		{"vllm-omni", "vllm-project/vllm-omni", "178ecf85, date not noted",
			"its diffusion part, by the common requests", any_backend, false, true,
			false, false, {{cpa_peer_vllm_omni.at, cpa_peer_vllm_omni.n}}},
		{"tensorrt-llm", "NVIDIA/TensorRT-LLM", "010948fc, date not noted",
			"its visual_gen part, by the common requests", any_backend, false, false,
			true, false,
			{{cpa_peer_tensorrt_llm.at, cpa_peer_tensorrt_llm.n},
				{tensorrt_llm_found, COUNT(tensorrt_llm_found)}}},
		{"flashinfer", "flashinfer-ai/flashinfer", "fb28d724, 2026-08-22",
			"its parallel_attention, by the common requests", flashinfer_backends,
			true, true, true, false,
			{{cpa_peer_flashinfer.at, cpa_peer_flashinfer.n},
				{flashinfer_found, COUNT(flashinfer_found)}}},
		{"transformer-engine", "NVIDIA/TransformerEngine", "d0067d0d, 2026-08-22",
			"by the common requests", any_backend, false, false, false, false,
			{{cpa_peer_transformer_engine.at, cpa_peer_transformer_engine.n}}},
		{"pytorch", "pytorch/pytorch", "09b101c5 and 19cc90d8, dates not noted",
			"its context parallel, by the common requests", pytorch_backends, false,
			false, false, false, {{cpa_peer_pytorch.at, cpa_peer_pytorch.n}}},
		{"paraattention", "chengzeyi/ParaAttention", "4de137c5, 2025-07-05",
			"by what is known to go wrong", any_backend, false, false, true, false,
			{{paraattention, COUNT(paraattention)}}},
		{"yunchang", "feifeibear/long-context-attention", "56118e0d, 2026-05-21",
			"by what is known to go wrong", yunchang_backends, false, false, true,
			false, {{yunchang, COUNT(yunchang)}}},
		{"ring-flash-attn", "zhuzilin/ring-flash-attention", "89962823, 2025-08-04",
			"by what is known to go wrong", any_backend, false, false, false, false,
			{{ring_flash_attn, COUNT(ring_flash_attn)}}},
		{"ring-attention-pytorch", "lucidrains/ring-attention-pytorch",
			"373f75b7, 2025-05-16", "by what is known to go wrong", any_backend,
			false, false, false, false,
			{{ring_attention_pytorch, COUNT(ring_attention_pytorch)}}},
		{"sglang", "sgl-project/sglang", "008b79d2 and 035bf19c, dates not noted",
			"its multimodal_gen part, by what is known to go wrong", any_backend,
			false, false, true, false, {{sglang, COUNT(sglang)}}},
	};

	memcpy(peers, all, sizeof all);
}

const struct cpa_peer *cpa_peer(int i)
{
	static struct cpa_peer peers[NPEERS];

	if (!peers[0].name)
		fill(peers);
	return i >= 0 && i < NPEERS ? &peers[i] : NULL;
}
