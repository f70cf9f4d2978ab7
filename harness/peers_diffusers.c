/*
 * peers_diffusers.c - the attention backends of Diffusers, as its registry has them at commit
 * 58eb52c0 of 2026-08-23.
 */
#include <string.h>

#include "harness/peers_diffusers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct cpa_diffusers_backend backends[] = {
	{"native", CPA_DIFFUSERS_NATIVE, true, false, NULL},
	{"flash", CPA_DIFFUSERS_FLASH, true, true,
		"`attn_mask` is not supported for flash-attn 2."},
	{"flash_hub", CPA_DIFFUSERS_FLASH, true, true,
		"`attn_mask` is not supported for flash-attn 2."},
	{"flash_varlen_hub", CPA_DIFFUSERS_VARLEN, true, true, NULL},
	{"_flash_3_hub", CPA_DIFFUSERS_FLASH, true, true,
		"`attn_mask` is not supported for flash-attn 3."},
	{"_flash_3_varlen_hub", CPA_DIFFUSERS_VARLEN, true, true, NULL},
	{"_native_cudnn", CPA_DIFFUSERS_CUDNN, true, true, NULL},
	/* Its registered check wants 16 bit, but is off by default, and on a CPU the kernel takes
	 * any; it says "aiter" in its source. */
	{"_native_flash", CPA_DIFFUSERS_OTHER, true, false,
		"`attn_mask` is not supported for aiter attention"},
	{"_native_npu", CPA_DIFFUSERS_NPU, true, true, NULL},
	{"sage", CPA_DIFFUSERS_SAGE, true, true,
		"`attn_mask` is not supported for sage attention"},
	{"sage_hub", CPA_DIFFUSERS_SAGE, true, true,
		"`attn_mask` is not supported for sage attention"},
	{"flash_varlen", CPA_DIFFUSERS_VARLEN, false, true, NULL},
	{"_flash_3", CPA_DIFFUSERS_FLASH, false, true, NULL},
	{"_flash_varlen_3", CPA_DIFFUSERS_VARLEN, false, true, NULL},
	{"flash_4_hub", CPA_DIFFUSERS_FLASH, false, true, NULL},
	{"aiter_fa2_hub", CPA_DIFFUSERS_OTHER, false, true, NULL},
	{"flex", CPA_DIFFUSERS_OTHER, false, false, NULL},
	{"_native_efficient", CPA_DIFFUSERS_OTHER, false, false, NULL},
	{"_native_math", CPA_DIFFUSERS_OTHER, false, false, NULL},
	{"_native_xla", CPA_DIFFUSERS_OTHER, false, false, NULL},
	{"sage_varlen", CPA_DIFFUSERS_SAGE, false, true, NULL},
	{"_sage_qk_int8_pv_fp8_cuda", CPA_DIFFUSERS_SAGE, false, true, NULL},
	{"_sage_qk_int8_pv_fp8_cuda_sm90", CPA_DIFFUSERS_SAGE, false, true, NULL},
	{"_sage_qk_int8_pv_fp16_cuda", CPA_DIFFUSERS_SAGE, false, true, NULL},
	{"_sage_qk_int8_pv_fp16_triton", CPA_DIFFUSERS_SAGE, false, true, NULL},
	{"xformers", CPA_DIFFUSERS_OTHER, false, false, NULL},
};

const char *const cpa_diffusers_backends[] = {"native", "flash", "flash_hub", "flash_varlen_hub",
	"_flash_3_hub", "_flash_3_varlen_hub", "_native_cudnn", "_native_flash", "_native_npu",
	"sage", "sage_hub", "flash_varlen", "_flash_3", "_flash_varlen_3", "flash_4_hub",
	"aiter_fa2_hub", "flex", "_native_efficient", "_native_math", "_native_xla",
	"sage_varlen", "_sage_qk_int8_pv_fp8_cuda", "_sage_qk_int8_pv_fp8_cuda_sm90",
	"_sage_qk_int8_pv_fp16_cuda", "_sage_qk_int8_pv_fp16_triton", "xformers", NULL};

const struct cpa_diffusers_backend *cpa_diffusers_backend_of(const struct cpa_peer_request *r)
{
	for (int i = 0; r->backend && i < COUNT(backends); i++)
		if (strcmp(backends[i].name, r->backend) == 0)
			return &backends[i];
	return &backends[0];
}

const struct cpa_diffusers_backend *cpa_diffusers_backend_at(int i)
{
	return i >= 0 && i < COUNT(backends) ? &backends[i] : NULL;
}

/* ---- masks of a request --------------------------------------------------------------- */

bool cpa_diffusers_takes_window(const struct cpa_peer_request *r)
{
	return cpa_diffusers_backend_of(r)->family == CPA_DIFFUSERS_FLASH ||
		cpa_diffusers_backend_of(r)->family == CPA_DIFFUSERS_VARLEN;
}

bool cpa_diffusers_masks_pairs(const struct cpa_peer_request *r)
{
	return cpa_peer_masks_pairs(r->problem) ||
		(cpa_peer_has_window(r->problem) && !cpa_diffusers_takes_window(r));
}

bool cpa_diffusers_masks_keys(const struct cpa_peer_request *r)
{
	return cpa_peer_masks_keys(r->problem) && !cpa_diffusers_masks_pairs(r);
}

bool cpa_diffusers_has_mask(const struct cpa_peer_request *r)
{
	return cpa_diffusers_masks_pairs(r) || cpa_diffusers_masks_keys(r);
}

bool cpa_diffusers_is_gqa(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->problem->Hq != r->problem->Hkv;
}

bool cpa_diffusers_drops_gqa(const struct cpa_peer_request *r)
{
	enum cpa_diffusers_family f = cpa_diffusers_backend_of(r)->family;

	return cpa_diffusers_is_gqa(r) &&
		(f == CPA_DIFFUSERS_FLASH || f == CPA_DIFFUSERS_VARLEN ||
			f == CPA_DIFFUSERS_SAGE || f == CPA_DIFFUSERS_NPU);
}
