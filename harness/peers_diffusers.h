/*
 * peers_diffusers.h - what the rules of Diffusers share.  Private to peers_diffusers*.c.
 */
#ifndef CPA_PEERS_DIFFUSERS_H
#define CPA_PEERS_DIFFUSERS_H

#include "harness/peers.h"

#define CPA_DIFFUSERS_FORWARD "first forward"

enum cpa_diffusers_family {
	CPA_DIFFUSERS_NATIVE,
	CPA_DIFFUSERS_FLASH,
	CPA_DIFFUSERS_VARLEN,
	CPA_DIFFUSERS_SAGE,
	CPA_DIFFUSERS_CUDNN,
	CPA_DIFFUSERS_NPU,
	CPA_DIFFUSERS_OTHER
};
struct cpa_diffusers_backend {
	const char *name;
	enum cpa_diffusers_family family;
	bool parallel; /* registered with supports_context_parallel */
	bool half; /* bf16 or fp16 alone */
	const char *no_mask; /* what it says to a mask; NULL: it takes one */
};
/* Of the request; native where none is asked for. */
const struct cpa_diffusers_backend *cpa_diffusers_backend_of(
	const struct cpa_peer_request *request);
const struct cpa_diffusers_backend *cpa_diffusers_backend_at(int i); /* NULL past the end */

bool cpa_diffusers_takes_window(const struct cpa_peer_request *request);
/* A window that a backend has no argument for can only be a mask. */
bool cpa_diffusers_masks_pairs(const struct cpa_peer_request *request);
bool cpa_diffusers_masks_keys(const struct cpa_peer_request *request);
bool cpa_diffusers_is_gqa(const struct cpa_peer_request *request);
/* These functions have no argument enable_gqa, and it is dropped before them. */
bool cpa_diffusers_drops_gqa(const struct cpa_peer_request *request);
bool cpa_diffusers_has_mask(const struct cpa_peer_request *request);

/* Refusals from the configuration to the split hooks; those of the first forward; what runs and
 * is wrong, what was not read, and notes. */
extern const struct cpa_peer_rule cpa_diffusers_setup[], cpa_diffusers_forward[],
	cpa_diffusers_results[];
extern const int cpa_diffusers_nsetup, cpa_diffusers_nforward, cpa_diffusers_nresults;
extern const char *const cpa_diffusers_backends[];

#endif
