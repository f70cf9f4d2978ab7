/*
 * variant.c - the table of variants.  A variant is one row; nothing else names one.  All of them
 * run the same stages (ulysses in, ring, ulysses out): a row says which degrees may exceed 1 and
 * whether lengths and heads that do not divide are refused.
 */
#include "dist/schedule.h"

#include <assert.h>
#include <string.h>

static const struct cpa_variant_info variants[CPA_NVARIANTS] = {
	[CPA_VARIANT_RING] = {"ring", true, false, true,
		"keys and values travel round a ring; lengths must divide"},
	[CPA_VARIANT_ULYSSES] = {"ulysses", false, true, true,
		"all-to-all between tokens and heads; lengths and heads must divide"},
	[CPA_VARIANT_UNIFIED] = {"unified", true, true, true,
		"ulysses inside, ring outside, on a 2-D mesh; lengths and heads must divide"},
	[CPA_VARIANT_RING_ANYTHING] = {"ring_anything", true, false, false,
		"ring for any lengths and heads"},
	[CPA_VARIANT_ULYSSES_ANYTHING] = {"ulysses_anything", false, true, false,
		"ulysses for any lengths and heads"},
	[CPA_VARIANT_UNIFIED_ANYTHING] = {"unified_anything", true, true, false,
		"unified for any lengths and heads"},
};

const struct cpa_variant_info *cpa_variant_info(enum cpa_variant variant)
{
	assert(variant < CPA_NVARIANTS);
	return &variants[variant];
}

bool cpa_variant_parse(const char *name, enum cpa_variant *variant)
{
	for (int i = 0; i < CPA_NVARIANTS; i++)
		if (strcmp(name, variants[i].name) == 0) {
			*variant = (enum cpa_variant)i;
			return true;
		}
	return false;
}

const char *cpa_rotate_name(enum cpa_rotate rotate)
{
	static const char *const names[] = {"p2p", "allgather", "direct"};
	return names[rotate];
}

struct cpa_config cpa_config_default(enum cpa_variant variant, const struct cpa_problem *problem)
{
	enum cpa_split split = variants[variant].strict ? CPA_SPLIT_EQUAL : CPA_SPLIT_BALANCED;
	return (struct cpa_config){
		.variant = variant,
		.batch_degree = 1,
		.ring_degree = 1,
		.ulysses_degree = 1,
		.rotate = CPA_ROTATE_P2P,
		.mesh = CPA_MESH_BATCH_RING_ULYSSES,
		.split = split,
		.split_kv = split,
		.order = CPA_ORDER_CONTIGUOUS,
		.heads = CPA_HEADS_BALANCED,
		.direction = 1,
		.partials = CPA_PARTIALS_FP32,
		.partial_dtype = problem->dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64
								  : CPA_DTYPE_FP32,
	};
}
