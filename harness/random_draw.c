/*
 * random_draw.c - draws problems and configurations, edges more often than not.
 */
#include <string.h>

#include "harness/random_case.h"
#include "sim/sim.h"

/* Scores, weights and products with v of one problem, so that thousands take seconds. */
static const int64_t most_products = 1000000;

static int64_t below(uint64_t *state, int64_t n)
{
	return (int64_t)(cpa_random(state) % (uint64_t)n);
}

static bool one_in(uint64_t *state, int64_t n)
{
	return below(state, n) == 0;
}

#define PICK(state, ...) \
	((const int64_t[]){__VA_ARGS__})[below(state, \
		sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))]

/* ---- sizes ---- */

/* 63 to 65 and 95 to 97 are the edges of the cpu kernel's blocks of rows and keys. */
static int64_t draw_length(int P, uint64_t *state)
{
	int64_t S = 0;
	switch (below(state, 8)) {
	case 0:
		S = PICK(state, 1, P - 1, P, P + 1);
		break;
	case 1:
		S = PICK(state, 2 * P - 1, 2 * P, 2 * P + 1, 4 * P);
		break;
	case 2:
		S = 2 * P * (1 + below(state, 3));
		break;
	case 3:
		S = PICK(state, 2, 3, 5, 7, 8, 9);
		break;
	case 4:
		S = one_in(state, 3) ? PICK(state, 63, 64, 65, 95, 96, 97, 191, 193)
				     : 1 + below(state, 24);
		break;
	default:
		S = 1 + below(state, 40);
		break;
	}
	return S < 1 ? 1 : S > 200 ? 200 : S;
}

static bool too_large(const struct cpa_case *it)
{
	return it->B * it->Hkv * it->g * it->Sq * it->Skv * (it->D + it->Dv) > most_products;
}

/* Branches along the batch, one item or two of each; some scales take a branch away. */
static void draw_guidance(struct cpa_case *it, uint64_t *state)
{
	static const double scales[] = {3.5, 7.5, 1.0, 0.0, 0.5, -2.0, 100.0, 1.25};
	int64_t n = PICK(state, 2, 2, 3), B = it->B;
	it->B = n == 2 && one_in(state, 3) ? 4 : n;
	if (too_large(it)) {
		it->B = B;
		return;
	}
	it->guidance = (struct cpa_guidance){(int)n, scales[below(state, 8)], 0.0};
	if (n == 3)
		it->guidance.s2 = scales[below(state, 8)];
}

static void draw_sizes(struct cpa_case *it, int P, uint64_t *state)
{
	it->B = PICK(state, 1, 1, 1, 2, 2, 3);
	it->Sq = draw_length(P, state);
	it->Skv = one_in(state, 3) ? draw_length(P, state) : it->Sq;
	it->Hkv = PICK(state, 1, 1, 2, 3, 4, 5, P);
	if (one_in(state, 4)) { /* what strict variants take on most meshes */
		it->Sq = PICK(state, 16, 24, 48);
		it->Skv = one_in(state, 3) ? PICK(state, 16, 24, 48) : it->Sq;
		it->Hkv = PICK(state, 4, 6, 8);
	}
	it->g = PICK(state, 1, 1, 2, 3, 4);
	it->D = PICK(state, 1, 2, 3, 4, 8, 15, 16, 17, 32);
	it->Dv = one_in(state, 2) ? it->D : PICK(state, 1, 2, 5, 7, 8, 16, 24);
	for (int64_t *sizes[] = {&it->D, &it->Dv, &it->B, &it->g, &it->Hkv}, i = 0;
		too_large(it) && i < 5; i++)
		*sizes[i] = 1 + *sizes[i] / 4;
	it->dtype = (enum cpa_dtype)PICK(state, CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP32,
		CPA_DTYPE_FP32, CPA_DTYPE_BF16, CPA_DTYPE_FP16);
	it->scale = one_in(state, 8) ? (one_in(state, 2) ? 1.5 : 0.0625) : 0.0;
	it->lse = !one_in(state, 8);
	if (one_in(state, 5))
		draw_guidance(it, state);
}

/* ---- the rule ---- */

/* All masked, one key visible, everything, or something near an edge. */
static void draw_key_lengths(struct cpa_case *it, int P, uint64_t *state)
{
	int64_t all = PICK(state, 0, 1, -1, -1, -1, -1);
	it->has_key_lengths = true;
	for (int64_t b = 0; b < it->B; b++) {
		int64_t n = PICK(state, 0, 1, P, it->Skv / 2, it->Skv - 1, it->Skv,
			below(state, it->Skv + 1));
		n = all >= 0 ? all : n;
		it->key_lengths[b] = n > it->Skv ? it->Skv : n;
	}
}

/* One long document with short ones behind, one alone, random cuts, empty ones included. */
static void draw_documents(struct cpa_case *it, uint64_t *state)
{
	int64_t S = it->Sq, kind = below(state, 4);
	it->ndocuments = kind == 0 ? 1 : 1 + (int)below(state, CPA_CASE_DOCUMENTS);
	int n = it->ndocuments;
	for (int i = 1; i < n; i++) {
		int64_t start = kind == 1 ? S - (n - i) : below(state, S + 1), at = i;
		start = start < 0 ? 0 : start;
		for (; at > 1 && it->documents[at - 1] > start; at--)
			it->documents[at] = it->documents[at - 1];
		it->documents[at] = start;
	}
	it->documents[0] = 0;
	it->documents[n] = S;
}

/* Keys where Sq = Skv are cut like queries; where not, also held whole by every rank. */
static void draw_segments(struct cpa_case *it, int P, uint64_t *state)
{
	if (one_in(state, 3))
		cpa_case_segments_draw(&it->segments, it->Sq, P, state);
	if (it->Sq == it->Skv || !one_in(state, 2))
		return;
	cpa_case_segments_draw(&it->segments_kv, it->Skv, P, state);
	if (one_in(state, 3))
		it->segments_kv = (struct cpa_case_segments){1, {it->Skv}, {true}};
}

static void draw_rule(struct cpa_case *it, int P, uint64_t *state)
{
	it->causal = one_in(state, 2);
	it->left = PICK(state, -1, 0, 1, P, below(state, it->Skv + 1));
	it->right = PICK(state, -1, -1, 0, 1, below(state, it->Skv + 1));
	it->window = one_in(state, 4) && (it->left >= 0 || it->right >= 0);
	if (it->causal || it->window)
		it->offset = PICK(state, 0, it->Skv - it->Sq, it->Skv - it->Sq, 1 - it->Sq,
			-it->Sq, it->Skv - 1, below(state, it->Sq + it->Skv) - it->Sq);
	if (it->Sq == it->Skv && !one_in(state, 3))
		it->offset = 0;
	if (!it->window)
		it->left = it->right = -1;
	if (one_in(state, 4))
		draw_key_lengths(it, P, state);
	if (it->Sq == it->Skv && one_in(state, 4))
		draw_documents(it, state);
	if (one_in(state, 4)) {
		it->mask = one_in(state, 2) ? CPA_MASK_BOOL : CPA_MASK_BIAS;
		it->mask_shape = (unsigned)below(state, 16);
		it->mask_seed = 1 + (uint64_t)below(state, 1000);
	}
	if (one_in(state, 4))
		it->sink = one_in(state, 3) ? CPA_CASE_ONE_SINK : CPA_CASE_RANDOM_SINK;
}

void cpa_case_draw_problem(struct cpa_case *it, int P, uint64_t *state)
{
	memset(it, 0, sizeof *it);
	draw_sizes(it, P, state);
	draw_rule(it, P, state);
	draw_segments(it, P, state);
	it->fill = one_in(state, 3) ? (enum cpa_fill)below(state, CPA_FILL_EXTREME + 1)
				    : CPA_FILL_NORMAL;
	it->seed = 1 + (uint64_t)below(state, 1000000);
	it->interleaving_seed = 1 + (uint64_t)below(state, 1000);
	it->layout = (enum cpa_layout)PICK(
		state, CPA_LAYOUT_BSHD, CPA_LAYOUT_BHSD, CPA_LAYOUT_FUSED);
	if (it->layout == CPA_LAYOUT_FUSED && (it->Sq != it->Skv || it->D != it->Dv))
		it->layout = CPA_LAYOUT_BSHD;
	it->N = it->R = it->U = it->direction = 1;
}

/* ---- the configuration ---- */

/* Given sizes are of segments, and not of documents. */
static enum cpa_split draw_split(const struct cpa_case *it, bool keys, uint64_t *state)
{
	if (it->order == CPA_ORDER_STRIPED || it->R * it->U > CPA_CASE_RANKS)
		return CPA_SPLIT_BALANCED;
	if (it->order == CPA_ORDER_ZIGZAG_DOCUMENTS || cpa_case_nsplit(it, keys) == 0)
		return (enum cpa_split)PICK(state, CPA_SPLIT_BALANCED, CPA_SPLIT_CEIL);
	return (enum cpa_split)PICK(state, CPA_SPLIT_BALANCED, CPA_SPLIT_BALANCED, CPA_SPLIT_CEIL,
		CPA_SPLIT_GIVEN);
}

static enum cpa_order draw_order(
	const struct cpa_case *it, const struct cpa_options *options, uint64_t *state)
{
	if (options->order != CPA_ORDER_CONTIGUOUS)
		return options->order;
	if (it->ndocuments > 0 && one_in(state, 2))
		return CPA_ORDER_ZIGZAG_DOCUMENTS;
	return (enum cpa_order)below(state, CPA_ORDER_ZIGZAG_DOCUMENTS + 1);
}

/* Now and then more batch groups than batch items, in one of the worlds asked for. */
static int64_t draw_groups(const struct cpa_case *it, const struct cpa_options *options,
	const struct cpa_config *config, uint64_t *state)
{
	int64_t W = options->ranks.at[below(state, options->ranks.n)], P = it->R * it->U;
	if (options->batch || W % P != 0 || W / P <= it->B || !one_in(state, 3))
		return config->batch_degree;
	return W / P;
}

void cpa_case_draw_config(struct cpa_case *it, const struct cpa_options *options,
	const struct cpa_config *config, uint64_t *state)
{
	bool strict = cpa_variant_info(config->variant)->strict;
	it->variant = config->variant;
	it->R = config->ring_degree;
	it->U = config->ulysses_degree;
	it->N = draw_groups(it, options, config, state);
	it->rotate = config->rotate;
	it->order = draw_order(it, options, state);
	it->split = strict ? CPA_SPLIT_EQUAL : draw_split(it, false, state);
	it->split_kv = strict ? CPA_SPLIT_EQUAL : draw_split(it, true, state);
	if (it->layout == CPA_LAYOUT_FUSED)
		it->split_kv = it->split;
	it->heads = strict || it->U > CPA_CASE_RANKS
			    ? CPA_HEADS_BALANCED
			    : (enum cpa_heads)PICK(state, CPA_HEADS_BALANCED, CPA_HEADS_BALANCED,
				      CPA_HEADS_GROUPS, CPA_HEADS_CEIL, CPA_HEADS_GIVEN);
	it->direction = options->direction < 0 || one_in(state, 2) ? -1 : 1;
	it->partials = options->partials != CPA_PARTIALS_FP32
			       ? options->partials
			       : (enum cpa_partials)PICK(state, CPA_PARTIALS_FP32,
					 CPA_PARTIALS_FP32, CPA_PARTIALS_BLOCK, CPA_PARTIALS_ALL);
	it->mesh = options->mesh == CPA_MESH_BATCH_ULYSSES_RING || one_in(state, 4)
			   ? CPA_MESH_BATCH_ULYSSES_RING
			   : CPA_MESH_BATCH_RING_ULYSSES;
}
