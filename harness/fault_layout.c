/*
 * fault_layout.c - D: rows, heads and batch items that are read or written in the wrong place.
 */
#include "harness/fault_plant.h"

/* ---- where ---- */

static bool is_end(const struct cpa_site *site)
{
	return site->op == site->schedule->nops - 1;
}

static bool folds_heads(const struct cpa_site *site)
{
	int U = site->part->config.ulysses_degree;
	return is_end(site) && U > 1 && site->problem->Hq % U == 0 && site->problem->Hq > U;
}

static bool has_two_axes(const struct cpa_site *site)
{
	const struct cpa_config *c = &site->part->config;
	return is_end(site) && c->ulysses_degree > 1 && c->ring_degree > 1 &&
	       site->problem->Hq % c->ulysses_degree == 0;
}

static bool has_even_shards(const struct cpa_site *site)
{
	return is_end(site) && site->part->P > 1 && cpa_plant_is_plain(site->part, false) &&
	       site->problem->Sq % site->part->P == 0 && site->problem->Sq > site->part->P;
}

static bool folds_rows(const struct cpa_site *site)
{
	return has_even_shards(site) && site->part->config.ulysses_degree > 1;
}

static bool swaps_ranks(const struct cpa_site *site)
{
	return is_end(site) && site->part->P > 2 && cpa_plant_is_plain(site->part, false) &&
	       cpa_plant_shard_start(site->part, false, 2) -
			       cpa_plant_shard_start(site->part, false, 1) ==
		       cpa_plant_shard_start(site->part, false, 3) -
			       cpa_plant_shard_start(site->part, false, 2) &&
	       cpa_plant_shard_start(site->part, false, 2) >
		       cpa_plant_shard_start(site->part, false, 1);
}

static bool ends_with_batch(const struct cpa_site *site)
{
	return is_end(site) && site->problem->B > 1 && site->problem->Sq > 1;
}

static bool gathers_batch(const struct cpa_site *site)
{
	return has_even_shards(site) && site->problem->B > 1;
}

static bool has_batch(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->at->reads[0].box.nbatches > 1;
}

static bool has_batch_and_rows(const struct cpa_site *site)
{
	return has_batch(site) && site->at->reads[0].box.ntokens > 1;
}

static bool has_key_heads(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->at->reads[1].box.nheads > 1 &&
	       site->at->reads[1].box.ntokens > 1;
}

static bool has_groups(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->problem->Hq > site->problem->Hkv &&
	       site->at->reads[1].box.nheads > 1;
}

static bool has_next_group(const struct cpa_site *site)
{
	const struct cpa_config *c = &site->part->config;
	return cpa_site_is_attend(site) && c->ulysses_degree > 1 && c->ring_degree > 1 &&
	       site->problem->Hkv >= c->ulysses_degree;
}

static bool pads_heads(const struct cpa_site *site)
{
	const struct cpa_problem *p = site->problem;
	int U = site->part->config.ulysses_degree;
	return cpa_site_is_attend(site) && U > 1 && p->Hq > p->Hkv && p->Hkv % U != 0;
}

static bool has_far_keys(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->at->reads[1].box.ntokens > 3;
}

static bool repeats_freely(const struct cpa_site *site)
{
	const struct cpa_rule *rule = &site->problem->rule;
	return cpa_site_is_attend(site) && site->problem->Hq > site->problem->Hkv &&
	       !rule->causal && !rule->window && !rule->documents && !rule->key_lengths &&
	       rule->mask.kind == CPA_MASK_NONE;
}

/* ---- outputs ---- */

/* Written as [rank, head of it], read as [head, rank]. */
static bool fold_heads(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	int64_t U = target->partition->config.ulysses_degree;
	int64_t n = target->partition->problem.Hq / U;
	(void)b, (void)t;
	*h = *h % U * n + *h / U;
	return true;
}

static bool rotate_heads(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	int64_t H = target->partition->problem.Hq,
		n = H / target->partition->config.ulysses_degree;
	(void)b, (void)t;
	*h = (*h + n) % H;
	return true;
}

static bool fold_rows(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	int64_t P = target->partition->P, n = target->partition->problem.Sq / P;
	(void)b, (void)h;
	*t = *t % n * P + *t / n;
	return true;
}

static bool swap_ranks(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	int64_t one = cpa_plant_shard_start(target->partition, false, 1),
		two = cpa_plant_shard_start(target->partition, false, 2),
		three = cpa_plant_shard_start(target->partition, false, 3);
	(void)b, (void)h;
	if (*t >= one && *t < two)
		*t += two - one;
	else if (*t >= two && *t < three)
		*t -= two - one;
	return true;
}

/* [B, S] written, [S, B] read. */
static bool mix_batch(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	const struct cpa_problem *p = &target->partition->problem;
	int64_t flat = *t * p->B + *b;
	(void)h;
	*b = flat / p->Sq;
	*t = flat % p->Sq;
	return true;
}

/* Shards [P, B, n], one behind the other, read as [B, P n]. */
static bool gather_batch(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	const struct cpa_problem *p = &target->partition->problem;
	int64_t n = p->Sq / target->partition->P, flat = *b * p->Sq + *t;
	(void)h;
	*b = flat / n % p->B;
	*t = flat / (n * p->B) * n + flat % n;
	return true;
}

/* ---- inputs ---- */

static void next_batch(struct cpa_spoil *x)
{
	for (int64_t b = 0; b < x->nb; b++)
		x->kv_batch[b] = x->batches.start + (b + 1) % x->nb;
}

static void q_of_other_strides(const struct cpa_spoil *x, int64_t *b, int64_t *i, int64_t *h)
{
	int64_t flat = *i * x->nb + *b;
	(void)h;
	*b = flat / x->nq;
	*i = flat % x->nq;
}

static void other_strides(struct cpa_spoil *x)
{
	x->q_from = q_of_other_strides;
}

/* v is a view of [H, S], read as [S, H]. */
static void v_of_other_strides(const struct cpa_spoil *x, int64_t *b, int64_t *j, int64_t *kv)
{
	const struct cpa_range heads = x->site.at->reads[1].content.heads;
	int64_t nkv = heads.end - heads.start, flat = *j * nkv + *kv - heads.start;
	(void)b;
	*kv = heads.start + flat / x->nk;
	*j = flat % x->nk;
}

static void ignored_strides(struct cpa_spoil *x)
{
	x->v_from = v_of_other_strides;
}

static void tiled(struct cpa_spoil *x)
{
	const struct cpa_range heads = x->site.at->reads[1].content.heads;
	for (int64_t h = 0; h < x->nh; h++)
		x->kv_head[h] = x->v_head[h] =
			heads.start + h % (heads.end - heads.start);
}

static void next_group(struct cpa_spoil *x)
{
	int64_t Hkv = x->problem.Hkv, n = Hkv / x->site.part->config.ulysses_degree;
	for (int64_t h = 0; h < x->nh; h++)
		x->kv_head[h] = x->v_head[h] = (x->kv_head[h] + n) % Hkv;
}

/* Key heads are padded to a multiple of the ranks, query heads are not. */
static void padded_ratio(struct cpa_spoil *x)
{
	const struct cpa_problem *p = &x->problem;
	int64_t U = x->site.part->config.ulysses_degree, padded = (p->Hkv + U - 1) / U * U;
	for (int64_t h = 0; h < x->nh; h++) {
		int64_t kv = (x->heads.start + h) * padded / p->Hq;
		x->kv_head[h] = x->v_head[h] = kv < p->Hkv ? kv : -1;
	}
}

static void repeated(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->times[j] = (double)(x->problem.Hq / x->problem.Hkv);
}

static void wrapped(struct cpa_spoil *x)
{
	int64_t fits = x->nk - x->nk / 4;
	for (int64_t j = fits; j < x->nk; j++) {
		x->k_token[j] = x->k_token[j - fits];
		x->v_token[j] = x->v_token[j - fits];
	}
}

const struct cpa_fault_entry cpa_faults_layout[] = {
	{"heads-folded", "D01", "rank and head change places after the second exchange",
		"DeepSpeed 5664", "lse is right; heads are permuted",
		"ulysses, and several heads a rank, as many on each", CPA_FAULT_EVERYWHERE, 0,
		folds_heads, .source = fold_heads},
	{"rows-strided", "D02", "rows are dealt out one by one where they lie in blocks",
		"sibling of DeepSpeed 5664", "lse is right; rows are permuted",
		"ulysses, and shards of one length, contiguous", CPA_FAULT_EVERYWHERE, 0,
		folds_rows, .source = fold_rows},
	{"batch-mixed", "D03", "batch items and rows change places in the output",
		"DeepSpeed 5808, TensorRT-LLM 9597", "batches; lse is right", "a batch of 2 at least",
		CPA_FAULT_EVERYWHERE, 0, ends_with_batch, .source = mix_batch},
	{"kv-of-next-item", "D03", "keys and values are those of the next batch item",
		"DeepSpeed 5808", "batches", "a batch group of 2 items at least",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, has_batch, .attend = next_batch},
	{"strides-of-other-layout", "D04",
		"queries are read as if tokens came before batch items",
		"DeepSpeed 8317 and 5366", "batches",
		"a batch group of 2 items and 2 queries at least", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, has_batch_and_rows, .attend = other_strides},
	{"heads-rotated", "D05", "outputs carry the heads of the next rank",
		"TensorRT-LLM 10350", "lse is right; blocks of heads are permuted",
		"ulysses and ring, and as many heads on each rank", CPA_FAULT_EVERYWHERE, 0,
		has_two_axes, .source = rotate_heads},
	{"kv-of-next-group", "D05", "keys and values are those of the next rank's heads",
		"TensorRT-LLM 10350", "everywhere", "ulysses and ring, and a key head for each rank",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, has_next_group, .attend = next_group},
	{"kv-heads-tiled", "D06", "key heads are tiled where each should serve neighbours",
		"axlearn 842, onnx 7274", "several query heads to a key head",
		"several query heads to a key head, and 2 key heads a rank", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, has_groups, .attend = tiled},
	{"kv-repeated-as-tokens", "D06", "key heads are repeated along the sequence",
		"VeOmni 162, prime-rl 2681", "o is right, lse is not",
		"several query heads to a key head, and no rule", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, repeats_freely, .attend = repeated},
	{"padded-head-ratio", "D07",
		"key heads are padded to a multiple of the ranks, query heads are not",
		"vLLM-Omni 5716", "key heads that do not divide; high heads are wrong",
		"ulysses, and key heads that it does not divide, fewer than query heads",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, pads_heads, .attend = padded_ratio},
	{"v-strides-ignored", "D09", "values lie as [H, S] and are read as [S, H]",
		"pytorch 112577, flash-attention 2665, FlagGems 5896", "lse is right; o is not",
		"2 key heads and 2 keys a rank", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		has_key_heads, .attend = ignored_strides},
	{"offsets-wrap", "D10", "keys of the last quarter of a block are read from its start",
		"SageAttention 386, NATTEN 347, nccl 184", "keys past a boundary",
		"blocks of 4 keys at least", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK | CPA_WHERE_HOP | CPA_WHERE_BLOCK, has_far_keys, .attend = wrapped},
	{"gathered-along-batch", "D11", "shards are gathered along the batch axis",
		"Automodel 1482, xDiT 439", "batches; lse is right",
		"a batch, and shards of one length, contiguous", CPA_FAULT_EVERYWHERE, 0,
		gathers_batch, .source = gather_batch},
	{"ranks-swapped", "D12", "outputs of ranks 1 and 2 change places",
		"xDiT 484, diffusers 14725", "lse is right; two blocks of rows are swapped",
		"3 ranks at least, and contiguous shards of which 1 and 2 are as long",
		CPA_FAULT_EVERYWHERE, 0, swaps_ranks, .source = swap_ranks},
	{0},
};
