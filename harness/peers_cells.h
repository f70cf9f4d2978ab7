/*
 * peers_cells.h - short forms for the tables of systems.  Private to peers_table.c and
 * peers_found.c.
 */
#ifndef CPA_PEERS_CELLS_H
#define CPA_PEERS_CELLS_H

#include "harness/peers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

#define ROW(name) .row = CPA_PEER_ROW_##name
#define TAKES .verdict = CPA_PEER_ACCEPTED
#define ACCEPTED(...) .verdict = CPA_PEER_ACCEPTED, __VA_ARGS__
#define REFUSED(...) .verdict = CPA_PEER_REFUSED, __VA_ARGS__
#define WRONG(class, ...) .verdict = CPA_PEER_WRONG, .fault = class, __VA_ARGS__
#define NOT_KNOWN                                                                                \
	.verdict = CPA_PEER_NOT_KNOWN, .why = "not known: this was looked for, and not found"
#define NOT_STATED                                                                               \
	.verdict = CPA_PEER_NOT_KNOWN, .why = "not stated: nothing there speaks of such a request"
#define NO_ROW .row = CPA_PEER_ROW_NONE
#define BEYOND_ROWS                                                                              \
	{                                                                                        \
		NO_ROW, .holds = cpa_peer_is_beyond_rows, NOT_STATED                             \
	}
#define REPLICATED                                                                               \
	{                                                                                        \
		NO_ROW, .holds = cpa_peer_exchanges_replicated, NOT_STATED                       \
	}
#define FP64_MERGED_IN_FP32                                                                      \
	{                                                                                        \
		NO_ROW, .holds = cpa_peer_is_fp64_ring,                                          \
			WRONG("A03",                                                             \
				.why = "blocks are merged in fp32 whatever the tensors are: "    \
				       "about "                                                  \
				       "5.5e-8 off, where fp64 is about 4e-16")                  \
	}

/* The rules of a system of the common table; part 2: what else is known of it. */
struct cpa_peer_rules {
	const struct cpa_peer_rule *at;
	int n;
};
extern const struct cpa_peer_rules cpa_peer_cache_dit, cpa_peer_xdit, cpa_peer_vllm_omni,
	cpa_peer_tensorrt_llm, cpa_peer_flashinfer, cpa_peer_transformer_engine, cpa_peer_pytorch;

#endif
