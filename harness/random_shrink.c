/*
 * random_shrink.c - the ways in which a case can be made smaller, the boldest first.
 *
 * Each lowers a number or puts a part back to its default, and none undoes another: whoever
 * tries them in turn comes to an end.
 */
#include "harness/random_case.h"

/* ---- parts ---- */

enum part {
	SEGMENTS,
	SEGMENTS_KV,
	MASK,
	SINK,
	DOCUMENTS,
	KEY_LENGTHS,
	WINDOW,
	CAUSAL,
	OFFSET,
	ROTATE,
	ORDER,
	SPLIT,
	SPLIT_KV,
	HEADS,
	DIRECTION,
	PARTIALS,
	MESH,
	SCALE,
	FILL,
	LSE,
	LAYOUT,
	DTYPE,
	GUIDANCE,
	THIRD_BRANCH,
	GUIDANCE_SCALE,
	GUIDANCE_SCALE_2,
	SINK_VALUE,
	MASK_BATCHES,
	MASK_HEADS,
	MASK_QUERIES,
	MASK_KEYS,
	WINDOW_LEFT,
	WINDOW_RIGHT,
	MASK_SEED,
	SEED,
	INTERLEAVING_SEED,
	NPARTS
};

#define PUT_BACK(field, value) \
	do { \
		if ((field) == (value)) \
			return false; \
		(field) = (value); \
		return true; \
	} while (0)

static bool put_back_rule(struct cpa_case *it, enum part part)
{
	switch (part) {
	case SEGMENTS:
		PUT_BACK(it->segments.n, 0);
	case SEGMENTS_KV:
		PUT_BACK(it->segments_kv.n, 0);
	case MASK:
		PUT_BACK(it->mask, CPA_MASK_NONE);
	case SINK:
		PUT_BACK(it->sink, CPA_CASE_NO_SINK);
	case DOCUMENTS:
		PUT_BACK(it->ndocuments, 0);
	case KEY_LENGTHS:
		PUT_BACK(it->has_key_lengths, false);
	case WINDOW:
		PUT_BACK(it->window, false);
	case CAUSAL:
		PUT_BACK(it->causal, false);
	case OFFSET:
		PUT_BACK(it->offset, 0);
	case SINK_VALUE:
		if (it->sink == CPA_CASE_NO_SINK)
			return false;
		PUT_BACK(it->sink, CPA_CASE_ONE_SINK);
	case MASK_BATCHES:
		PUT_BACK(it->mask_shape, it->mask_shape & ~8u);
	case MASK_HEADS:
		PUT_BACK(it->mask_shape, it->mask_shape & ~4u);
	case MASK_QUERIES:
		PUT_BACK(it->mask_shape, it->mask_shape & ~2u);
	case MASK_KEYS:
		PUT_BACK(it->mask_shape, it->mask_shape & ~1u);
	case MASK_SEED:
		PUT_BACK(it->mask_seed, 1);
	case WINDOW_LEFT:
		PUT_BACK(it->left, -1);
	case WINDOW_RIGHT:
		PUT_BACK(it->right, -1);
	default:
		return false;
	}
}

/* Without it, with two branches for three, with scales that give every branch some weight. */
static bool put_back_guidance(struct cpa_guidance *guidance, int64_t *B, enum part part)
{
	if (guidance->nbranches == 0 || (guidance->nbranches == 2 && part == GUIDANCE_SCALE_2))
		return false;
	switch (part) {
	case GUIDANCE:
		PUT_BACK(guidance->nbranches, 0);
	case THIRD_BRANCH:
		*B = guidance->nbranches == 3 ? *B / 3 * 2 : *B;
		PUT_BACK(guidance->nbranches, 2);
	case GUIDANCE_SCALE:
		PUT_BACK(guidance->s, 3.0);
	default:
		PUT_BACK(guidance->s2, 2.0);
	}
}

static bool put_back(struct cpa_case *it, enum part part)
{
	bool strict = cpa_variant_info(it->variant)->strict;
	enum cpa_split usual = strict ? CPA_SPLIT_EQUAL : CPA_SPLIT_BALANCED;
	switch (part) {
	case ROTATE:
		PUT_BACK(it->rotate, CPA_ROTATE_P2P);
	case ORDER:
		PUT_BACK(it->order, CPA_ORDER_CONTIGUOUS);
	case SPLIT:
		PUT_BACK(it->split, usual);
	case SPLIT_KV:
		PUT_BACK(it->split_kv, usual);
	case HEADS:
		PUT_BACK(it->heads, CPA_HEADS_BALANCED);
	case DIRECTION:
		PUT_BACK(it->direction, 1);
	case PARTIALS:
		PUT_BACK(it->partials, CPA_PARTIALS_FP32);
	case MESH:
		PUT_BACK(it->mesh, CPA_MESH_BATCH_RING_ULYSSES);
	case SCALE:
		PUT_BACK(it->scale, 0.0);
	case FILL:
		PUT_BACK(it->fill, CPA_FILL_NORMAL);
	case LSE:
		PUT_BACK(it->lse, true);
	case LAYOUT:
		PUT_BACK(it->layout, CPA_LAYOUT_BSHD);
	case DTYPE:
		PUT_BACK(it->dtype, CPA_DTYPE_FP64);
	case GUIDANCE:
	case THIRD_BRANCH:
	case GUIDANCE_SCALE:
	case GUIDANCE_SCALE_2:
		return put_back_guidance(&it->guidance, &it->B, part);
	case SEED:
		PUT_BACK(it->seed, 1);
	case INTERLEAVING_SEED:
		PUT_BACK(it->interleaving_seed, 1);
	default:
		return put_back_rule(it, part);
	}
}

/* ---- numbers ---- */

/* Both lengths at once, so that documents stay; the rest one by one. */
enum number {
	S,
	N,
	R,
	U,
	B,
	HKV,
	G,
	SQ,
	SKV,
	D,
	DV,
	NDOCUMENTS,
	OFFSET_DOWN,
	LEFT,
	RIGHT,
	NNUMBERS
};
enum how { TO_LEAST, TO_HALF, DOWN_A_THIRD, DOWN_ONE, NHOWS };

static int64_t *number_of(struct cpa_case *it, enum number number)
{
	int64_t *const fields[NNUMBERS] = {[N] = &it->N,
		[R] = &it->R,
		[U] = &it->U,
		[B] = &it->B,
		[HKV] = &it->Hkv,
		[G] = &it->g,
		[SQ] = &it->Sq,
		[SKV] = &it->Skv,
		[D] = &it->D,
		[DV] = &it->Dv,
		[OFFSET_DOWN] = &it->offset,
		[LEFT] = &it->left,
		[RIGHT] = &it->right};
	return fields[number];
}

static int64_t less(int64_t x, int64_t least, enum how how)
{
	switch (how) {
	case TO_LEAST:
		return least;
	case TO_HALF:
		return x / 2 > least ? x / 2 : least;
	case DOWN_A_THIRD:
		return x - x / 3 > least ? x - x / 3 : least;
	default:
		return x - 1;
	}
}

static bool lower(struct cpa_case *it, enum number number, enum how how)
{
	if (number == NDOCUMENTS) {
		if (it->ndocuments < 2)
			return false;
		int n = (int)less(it->ndocuments, 1, how);
		if (n == it->ndocuments)
			return false;
		it->documents[n] = it->documents[it->ndocuments];
		it->ndocuments = n;
		return true;
	}
	if (number == S && it->Sq != it->Skv)
		return false;
	int64_t least = number >= OFFSET_DOWN ? 0 : 1;
	int64_t *x = number == S ? &it->Sq : number_of(it, number);
	int64_t smaller = less(*x, least, how);
	if (*x <= least || smaller >= *x)
		return false;
	*x = smaller;
	if (number == S)
		it->Skv = it->Sq;
	return true;
}

/* ---- what follows from a smaller number ---- */

static void clamp(int64_t *x, int64_t most)
{
	*x = *x < most ? *x : most;
}

/* A variant of the same strictness that this mesh suits; false: none that was asked for. */
static bool suit_variant(struct cpa_case *it, const struct cpa_options *options)
{
	bool strict = cpa_variant_info(it->variant)->strict;
	for (int v = 0; v < CPA_NVARIANTS; v++) {
		const struct cpa_variant_info *info =
			cpa_variant_info((v + it->variant) % CPA_NVARIANTS);
		bool suits = (it->R == 1 && it->U == 1) ||
			     ((it->R > 1) == info->ring && (it->U > 1) == info->ulysses);
		enum cpa_variant variant = (enum cpa_variant)((v + it->variant) % CPA_NVARIANTS);
		if (!suits || info->strict != strict || !options->variants[variant])
			continue;
		it->variant = variant;
		return true;
	}
	return false;
}

/* Given sizes are of split segments. */
static void settle_segments(struct cpa_case *it)
{
	if (it->Sq == it->Skv)
		it->segments_kv.n = 0;
	cpa_case_segments_trim(&it->segments, it->Sq);
	cpa_case_segments_trim(&it->segments_kv, it->Skv);
	if (it->split == CPA_SPLIT_GIVEN && cpa_case_nsplit(it, false) == 0)
		it->split = CPA_SPLIT_BALANCED;
	if (it->split_kv == CPA_SPLIT_GIVEN && cpa_case_nsplit(it, true) == 0)
		it->split_kv = CPA_SPLIT_BALANCED;
}

static bool settle(struct cpa_case *it, const struct cpa_options *options)
{
	settle_segments(it);
	if (it->guidance.nbranches && it->B % it->guidance.nbranches != 0)
		it->guidance.nbranches = 0;
	for (int64_t b = 0; b < it->B; b++)
		clamp(&it->key_lengths[b], it->Skv);
	if (it->Sq != it->Skv)
		it->ndocuments = 0;
	if (it->layout == CPA_LAYOUT_FUSED && (it->Sq != it->Skv || it->D != it->Dv ||
						      it->split != it->split_kv))
		it->layout = CPA_LAYOUT_BSHD; /* which no longer fits */
	for (int i = 0; i <= it->ndocuments && it->ndocuments > 0; i++)
		clamp(&it->documents[i], it->Sq);
	if (it->ndocuments > 0)
		it->documents[it->ndocuments] = it->Sq;
	return suit_variant(it, options);
}

int cpa_case_nways(void)
{
	return NPARTS + NNUMBERS * NHOWS + cpa_case_segments_nways();
}

static bool change(struct cpa_case *it, int i)
{
	if (i < NNUMBERS * NHOWS)
		return lower(it, (enum number)(i / NHOWS), (enum how)(i % NHOWS));
	i -= NNUMBERS * NHOWS;
	return i < NPARTS ? put_back(it, (enum part)i) : cpa_case_segments_shrink(it, i - NPARTS);
}

/* Few ranks and tokens make the next tries fast, so numbers come first. */
bool cpa_case_shrink(struct cpa_case *it, int i, const struct cpa_options *options)
{
	struct cpa_case smaller = *it;
	if (!change(&smaller, i) || !settle(&smaller, options))
		return false;
	*it = smaller;
	return true;
}
