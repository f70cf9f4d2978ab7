/*
 * fault_masks.c - C: rules that are applied to the wrong tokens, or not at all; the scale.
 */
#include "harness/fault_plant.h"

#include <math.h>

#define ANYWHERE (CPA_WHERE_RANK | CPA_WHERE_HOP | CPA_WHERE_BLOCK)

/* ---- where ---- */

static bool has_causal(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && site->problem->rule.causal;
}

static bool has_causal_ring(const struct cpa_site *site)
{
	return has_causal(site) && site->part->config.ring_degree > 1 && site->block >= 0;
}

static bool has_causal_own(const struct cpa_site *site)
{
	return has_causal(site) && site->block == site->coords.r &&
	       site->problem->Sq == site->problem->Skv;
}

static bool has_causal_other(const struct cpa_site *site)
{
	return has_causal_ring(site) && site->block != site->coords.r;
}

static bool has_window(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && site->problem->rule.window;
}

static bool has_window_ring(const struct cpa_site *site)
{
	return has_window(site) && site->part->config.ring_degree > 1 && site->block >= 0;
}

static bool has_window_other(const struct cpa_site *site)
{
	return has_window_ring(site) && site->block != site->coords.r;
}

static bool has_documents(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && site->problem->rule.documents;
}

static bool has_mask(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND &&
	       site->problem->rule.mask.kind != CPA_MASK_NONE;
}

static bool has_lengths(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && site->problem->rule.key_lengths;
}

static bool has_mask_heads(const struct cpa_site *site)
{
	return has_mask(site) && site->problem->rule.mask.head != 0 &&
	       site->at->reads[0].content.heads.start > 0;
}

static bool has_own_order(const struct cpa_site *site)
{
	const struct cpa_problem *p = site->problem;
	const struct cpa_rule *rule = &p->rule;
	return site->at->kind == CPA_OP_ATTEND && site->part->P > 1 && p->Sq == p->Skv &&
	       site->part->config.order != CPA_ORDER_CONTIGUOUS &&
	       (rule->causal || rule->window || rule->documents || rule->key_lengths ||
		       rule->mask.kind != CPA_MASK_NONE);
}

static bool ends_in_own_order(const struct cpa_site *site)
{
	return site->op == site->schedule->nops - 1 && site->part->P > 1 &&
	       site->part->q.ncuts == 1 && site->part->q.replicated.n == 0 &&
	       site->part->config.order != CPA_ORDER_CONTIGUOUS;
}

static bool has_own_scale(const struct cpa_site *site)
{
	const struct cpa_problem *p = site->problem;
	return cpa_site_is_attend(site) &&
	       fabs(p->scale * sqrt((double)p->D) - 1.0) > 1e-3;
}

static bool has_scale(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && fabs(site->problem->scale - 1.0) > 1e-3;
}

static int64_t padded_dim(int64_t D)
{
	int64_t padded = 16;
	while (padded < D)
		padded *= 2;
	return padded;
}

static bool has_padded_dim(const struct cpa_site *site)
{
	return cpa_site_is_attend(site) && padded_dim(site->problem->D) != site->problem->D;
}

/* ---- what happens ---- */

static void local_ids(struct cpa_spoil *x)
{
	for (int64_t i = 0; i < x->nq; i++)
		x->q_id[i] = i;
	for (int64_t j = 0; j < x->nk; j++)
		x->k_id[j] = j;
}

static void local_query_ids(struct cpa_spoil *x)
{
	for (int64_t i = 0; i < x->nq; i++)
		x->q_id[i] = i;
}

static void not_causal(struct cpa_spoil *x)
{
	x->problem.rule.causal = false;
}

static void no_window(struct cpa_spoil *x)
{
	x->problem.rule.window = false;
}

static void hidden(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->times[j] = 0.0;
}

static void no_documents(struct cpa_spoil *x)
{
	x->problem.rule.documents = NULL;
}

static void no_mask(struct cpa_spoil *x)
{
	x->problem.rule.mask.kind = CPA_MASK_NONE;
}

static void no_lengths(struct cpa_spoil *x)
{
	x->problem.rule.key_lengths = NULL;
}

static void first_mask_heads(struct cpa_spoil *x)
{
	for (int64_t h = 0; h < x->nh; h++)
		x->mask_head[h] = h;
}

static void diagonal_up(struct cpa_spoil *x)
{
	x->problem.rule.offset++;
}

static void strict_diagonal(struct cpa_spoil *x)
{
	x->problem.rule.offset--;
}

static void no_offset(struct cpa_spoil *x)
{
	x->problem.rule.offset = 0;
}

static bool has_offset(const struct cpa_site *site)
{
	return has_causal(site) && site->problem->rule.offset != 0;
}

/* Where a token stands when the shards are laid one behind the other. */
static int64_t *places(const struct cpa_partition *part, struct cpa_arena *arena)
{
	int64_t at = 0, *place = cpa_arena_alloc(
				arena, (size_t)part->problem.Sq * sizeof *place);
	for (int64_t i = 0; place && i < cpa_spans_ntokens(&part->q.replicated); i++) {
		int64_t t = cpa_spans_token(&part->q.replicated, i);
		place[t] = t;
	}
	for (int cut = 0; place && cut < part->q.ncuts; cut++) {
		at = part->q.starts[cut];
		for (int cp = 0; cp < part->P; cp++) {
			struct cpa_spans shard = cpa_partition_q_split(part, arena,
				cp / part->config.ulysses_degree,
				cp % part->config.ulysses_degree);
			int64_t end = part->q.starts[cut] + part->q.cuts[cut].S;
			for (int64_t i = 0; i < cpa_spans_ntokens(&shard); i++) {
				int64_t t = cpa_spans_token(&shard, i);
				if (t >= part->q.starts[cut] && t < end)
					place[t] = at++;
			}
		}
	}
	return place;
}

static void natural_ids(struct cpa_spoil *x)
{
	const int64_t *place = places(x->site.part, x->arena);
	for (int64_t i = 0; place && i < x->nq; i++)
		x->q_id[i] = place[x->q_id[i]];
	for (int64_t j = 0; place && j < x->nk; j++)
		x->k_id[j] = place[x->k_id[j]];
}

/* Row t of the output is what stands at t of the shards one behind the other. */
static bool not_put_back(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	struct cpa_arena arena;
	cpa_arena_init(&arena);
	const int64_t *place = places(target->partition, &arena);
	int64_t from = *t;
	(void)b, (void)h;
	for (int64_t i = 0; place && i < target->partition->problem.Sq; i++)
		if (place[i] == *t)
			from = i;
	*t = from;
	cpa_arena_fini(&arena);
	return true;
}

static void default_scale(struct cpa_spoil *x)
{
	x->problem.scale = 1.0 / sqrt((double)x->problem.D);
}

static void no_scale(struct cpa_spoil *x)
{
	x->problem.scale = 1.0;
}

static void scale_twice(struct cpa_spoil *x)
{
	x->problem.scale *= x->problem.scale;
}

static void scale_of_padded(struct cpa_spoil *x)
{
	x->problem.scale *=
		sqrt((double)x->problem.D / (double)padded_dim(x->problem.D));
}

const struct cpa_fault_entry cpa_faults_masks[] = {
	{"causal-at-every-hop", "C01",
		"every block is masked as if it began where the queries do",
		"ring-flash-attention 54", "causal", "causal, and a ring", CPA_FAULT_EVERYWHERE,
		ANYWHERE, has_causal_ring, .attend = local_ids},
	{"future-not-skipped", "C02", "blocks of other ranks are not masked",
		"ring-flash-attention 54, tokamax 1217",
		"causal, where such blocks are attended: striped or zigzag order",
		"causal, a ring, and a block of another rank that is attended",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_causal_other, .attend = not_causal},
	{"own-block-unmasked", "C03", "the own block is not masked",
		"sibling of ring-flash-attention 54", "causal",
		"causal, and as many keys as queries", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		has_causal_own, .attend = not_causal},
	{"mask-in-natural-order", "C04", "data lies in another order, and the mask does not",
		"pytorch 147793, maxtext 4298, long-context-attention 53, tokamax 1217",
		"zigzag or striped order with a rule",
		"zigzag or striped order, as many keys as queries, and a rule",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, has_own_order, .attend = natural_ids},
	{"rows-not-put-back", "C05", "rows stay in the order of the shards",
		"pytorch 152261", "zigzag or striped order; values are right but moved",
		"zigzag or striped order of one segment", CPA_FAULT_EVERYWHERE, 0,
		ends_in_own_order, .source = not_put_back},
	{"diagonal-up", "C06", "each row sees one key of the future",
		"striped attention without its shift", "causal", "causal", CPA_FAULT_EVERYWHERE,
		ANYWHERE, has_causal, .attend = diagonal_up},
	{"diagonal-strict", "C06", "no row sees its own key", "striped attention, always strict",
		"causal; row 0 sees nothing", "causal", CPA_FAULT_EVERYWHERE, ANYWHERE, has_causal,
		.attend = strict_diagonal},
	{"causal-top-left", "C07", "row i of each shard sees the first i + 1 keys",
		"vLLM-Omni 6995 and 4767", "causal; rank 0 is right", "causal, and a ring",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_causal_ring, .attend = local_query_ids},
	{"causal-offset-lost", "C07", "the offset of the diagonal is taken for 0",
		"vLLM-Omni 6995", "more keys than queries", "causal with an offset",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_offset, .attend = no_offset},
	{"window-ignored", "C08", "the window hides nothing",
		"accelerate 4177, prime-rl 2828, TransformerEngine 3527", "windows", "a window",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_window, .attend = no_window},
	{"window-not-shifted", "C08",
		"the window is laid as if every block began where the queries do",
		"lm-engine 447, maxtext 4298", "windows", "a window, and a ring",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_window_ring, .attend = local_ids},
	{"window-cut-at-shard", "C08", "the window ends where the shard does",
		"maxtext 4364", "windows; the first rows of each shard",
		"a window, and a ring whose rows see the block of another rank",
		CPA_FAULT_EVERYWHERE, ANYWHERE, has_window_other, .attend = hidden},
	{"documents-ignored", "C09", "documents hide nothing from each other",
		"axolotl 4002, HunyuanVideo 310", "documents", "documents", CPA_FAULT_EVERYWHERE,
		ANYWHERE, has_documents, .attend = no_documents},
	{"mask-dropped", "C10", "the mask is not used",
		"accelerate 4177, VeOmni 1085, maxtext 5038, TensorRT-LLM 14044", "a mask",
		"a mask", CPA_FAULT_EVERYWHERE, ANYWHERE, has_mask, .attend = no_mask},
	{"key-lengths-dropped", "C10", "the lengths of the keys are not used",
		"TensorRT-LLM 14044 and 18705", "key lengths", "key lengths", CPA_FAULT_EVERYWHERE,
		ANYWHERE, has_lengths, .attend = no_lengths},
	{"causal-dropped", "C10", "nothing is causal", "accelerate 4177, TensorRT-LLM 13821",
		"causal", "causal", CPA_FAULT_EVERYWHERE, ANYWHERE, has_causal,
		.attend = not_causal},
	{"mask-heads-not-cut", "C11", "each rank takes the mask of the first heads",
		"diffusers 14316", "a mask of its own for each head",
		"ulysses, and a mask of its own for each head", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, has_mask_heads, .attend = first_mask_heads},
	{"scale-default", "C12", "the scale is lost: 1/sqrt(D)", "prime-rl 3007",
		"another scale", "a scale that is not 1/sqrt(D)", CPA_FAULT_EVERYWHERE, ANYWHERE,
		has_own_scale, .attend = default_scale},
	{"scale-left-out", "C12", "scores are not scaled", "sibling of prime-rl 3007",
		"everywhere", "a scale that is not 1", CPA_FAULT_EVERYWHERE, ANYWHERE, has_scale,
		.attend = no_scale},
	{"scale-twice", "C12", "scores are scaled twice", "verl 4250", "everywhere",
		"a scale that is not 1", CPA_FAULT_EVERYWHERE, ANYWHERE, has_scale,
		.attend = scale_twice},
	{"scale-of-padded-dim", "C12", "the scale is that of D padded to a power of 2",
		"sglang 485, ipex-llm 12619", "D that is no power of 2",
		"D that is no power of 2 from 16 on", CPA_FAULT_EVERYWHERE, ANYWHERE,
		has_padded_dim, .attend = scale_of_padded},
	{0},
};
