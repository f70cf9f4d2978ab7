/*
 * fault_groups.c - E: replicated tokens, RoPE and groups; F: buffers that hold another block.
 */
#include "harness/fault_plant.h"

#include <math.h>

#define ANYWHERE (CPA_WHERE_RANK | CPA_WHERE_HOP | CPA_WHERE_BLOCK)

/* ---- where ---- */

static bool is_text(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->block == -1;
}

static bool is_text_of_many(const struct cpa_site *site)
{
	return is_text(site) && site->part->P > 1;
}

static bool is_text_beside_split(const struct cpa_site *site)
{
	return is_text(site) && site->part->kv.ncuts > 0;
}

static bool has_causal_text(const struct cpa_site *site)
{
	const struct cpa_problem *p = site->problem;
	return is_text_beside_split(site) && p->rule.causal && p->Sq == p->Skv &&
	       cpa_spans_min(&site->part->kv.replicated) == 0;
}

static bool is_all_text(const struct cpa_site *site)
{
	return is_text_of_many(site) && site->part->kv.ncuts == 0;
}

static bool is_other_block(const struct cpa_site *site)
{
	return cpa_site_has_ring(site) && site->block >= 0 && site->block != site->coords.r;
}

static bool is_other_half(const struct cpa_site *site)
{
	int R = site->part->config.ring_degree;
	return is_other_block(site) && R >= 4 && R % 2 == 0 &&
	       site->block / (R / 2) != site->coords.r / (R / 2);
}

static bool has_rope(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->part->P > 1 && site->problem->D % 2 == 0 &&
	       site->block >= 0 && site->part->config.ring_degree > 1;
}

static bool is_split_twice(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && site->block >= 0 && site->part->P > 1 &&
	       site->at->reads[1].box.ntokens >= site->part->P;
}

static int previous_block(const struct cpa_site *site)
{
	int R = site->part->config.ring_degree;
	return (site->block + site->part->config.direction + R) % R;
}

static bool has_previous(const struct cpa_site *site)
{
	return is_other_block(site) &&
	       cpa_spans_ntokens(&site->part->kv_block[previous_block(site)]) > 0;
}

static bool is_torn(const struct cpa_site *site)
{
	return has_previous(site) && site->at->reads[1].box.ntokens > 3;
}

/* Some block is there twice, so that two of one content are no fault. */
static bool has_any_previous(const struct cpa_site *site)
{
	return cpa_site_has_ring(site) && site->block >= 0 &&
	       cpa_spans_ntokens(&site->part->kv_block[previous_block(site)]) > 0;
}

static bool has_statistics(const struct cpa_site *site)
{
	return is_other_block(site) && cpa_plant_merge_of(site->schedule, site->op) >= 0;
}

/* ---- what happens ---- */

static void count(struct cpa_spoil *x, double times)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->times[j] = times;
}

static void once_a_rank(struct cpa_spoil *x)
{
	count(x, (double)x->site.part->P);
}

static void never(struct cpa_spoil *x)
{
	count(x, 0.0);
}

/* Front text at the end of the keys. */
static void at_the_rear(struct cpa_spoil *x)
{
	int64_t last = cpa_spans_max(&x->site.part->kv.replicated);
	int64_t first_query = x->q_token[0];
	for (int64_t j = 0; first_query > last && j < x->nk; j++)
		x->k_id[j] += x->problem.Skv - 1 - last;
}

static void local_positions(struct cpa_spoil *x)
{
	const struct cpa_spans *block = &x->site.part->kv_block[x->site.block];
	for (int64_t j = 0; j < x->nk; j++) {
		int64_t index = 0;
		while (cpa_spans_token(block, index) != x->k_token[j])
			index++;
		x->k_turn[j] = index - x->k_token[j];
	}
}

static void split_again(struct cpa_spoil *x)
{
	for (int64_t j = x->nk / x->site.part->P; j < x->nk; j++)
		x->times[j] = 0.0;
}

static void other_text(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->k_token[j] = x->v_token[j] = -1;
}

static int64_t stale_token(const struct cpa_spoil *x, int64_t j)
{
	const struct cpa_spans *before = &x->site.part->kv_block[previous_block(&x->site)];
	return cpa_spans_token(before, j % cpa_spans_ntokens(before));
}

static void stale_values(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->v_token[j] = stale_token(x, j);
}

static void stale_block(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->k_token[j] = x->v_token[j] = stale_token(x, j);
}

static void torn_block(struct cpa_spoil *x)
{
	for (int64_t j = x->nk - x->nk / 4; j < x->nk; j++)
		x->k_token[j] = x->v_token[j] = stale_token(x, j);
}

static void old_statistics(struct cpa_spoil *x)
{
	x->keeps_lse_of_previous = true;
}

const struct cpa_fault_entry cpa_faults_groups[] = {
	{"text-counted-per-rank", "E01", "replicated keys count once for every rank",
		"sglang 19454, cornserve 206, VideoSys 210, vLLM-Omni 5121",
		"replicated text beside split image: probe count",
		"replicated keys beside split ones, and 2 ranks", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, is_text_of_many, .attend = once_a_rank},
	{"text-not-counted", "E01", "replicated keys are not attended",
		"vLLM-Omni 5121 and 7437", "replicated text beside split image: probe count",
		"replicated keys beside split ones", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		is_text_beside_split, .attend = never},
	{"text-at-rear", "E02", "text in front is joined at the end of the keys",
		"xDiT 611, vLLM-Omni 673 and 4767", "causal, with replicated text in front",
		"causal, and replicated text in front of split image", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, has_causal_text, .attend = at_the_rear},
	{"no-communication", "E03", "each rank attends its own block and no other",
		"diffusers 12443, cache-dit 361", "everywhere",
		"a ring whose rows see the block of another rank", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, is_other_block, .attend = never},
	{"ring-in-half-groups", "E04", "the ring goes round in each half of the ranks",
		"sglang 33353 and 24053", "4 ring ranks at least",
		"a ring of 4, 6 or more even ranks", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		is_other_half, .attend = never},
	{"replicated-exchanged", "E05", "replicated keys are exchanged as if they were shards",
		"vLLM-Omni 1233, diffusers 12660", "o is right, lse is too high",
		"replicated keys and no others, and 2 ranks", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		is_all_text, .attend = once_a_rank},
	{"rope-local-positions", "E06", "keys are rotated by their place in the shard",
		"speculators 871, Megatron-LM 5243, sglang 19454", "ranks behind the first",
		"a ring, and an even D", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK | CPA_WHERE_BLOCK,
		has_rope, .attend = local_positions},
	{"split-twice", "E07", "shards are cut once more, and the first piece taken for all",
		"axolotl 3498", "probe count", "2 ranks, and as many keys in a block",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, is_split_twice, .attend = split_again},
	{"other-text-on-a-rank", "E08", "replicated keys are zeros on one rank",
		"sglang 20118, vLLM-Omni 1729", "ranks disagree on what they all hold",
		"replicated keys, and 2 ranks", CPA_FAULT_ONE_RANK, CPA_WHERE_RANK, is_text_of_many,
		.attend = other_text},
	{"stale-block", "F01", "one hop attends the block of the hop before once more",
		"PaddleNLP 8383, OpenTau 300", "probe count", "a ring of 2 at least",
		CPA_FAULT_ONE_OP, ANYWHERE, has_previous, .attend = stale_block},
	{"v-one-hop-apart", "F02", "values are those of the block of the hop before",
		"sibling of TransformerEngine 1624", "lse is right; probe reading",
		"a ring of 2 at least", CPA_FAULT_EVERYWHERE, ANYWHERE, has_any_previous,
		.attend = stale_values},
	{"torn-block", "F03", "the last quarter of one block had not arrived",
		"Cornstarch 70", "probe count; one rank", "a ring, and blocks of 4 keys at least",
		CPA_FAULT_ONE_OP, ANYWHERE, is_torn, .attend = torn_block},
	{"statistics-one-hop-late", "F04", "one block is merged by the lse of the hop before",
		"TransformerEngine 1624", "blocks of unlike weight", "a merge of another block",
		CPA_FAULT_ONE_OP, ANYWHERE, has_statistics, .attend = old_statistics},
	{0},
};
