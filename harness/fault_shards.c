/*
 * fault_shards.c - what a fault asks of the shards: where they begin, and which is the longest.
 */
#include "harness/fault_plant.h"

bool cpa_plant_is_plain(const struct cpa_partition *part, bool keys)
{
	const struct cpa_side *side = keys ? &part->kv : &part->q;
	return side->ncuts == 1 && side->replicated.n == 0 &&
	       side->cuts[0].order == CPA_ORDER_CONTIGUOUS;
}

int64_t cpa_plant_shard_start(const struct cpa_partition *part, bool keys, int cp)
{
	int64_t start = 0;
	for (int i = 0; i < cp; i++)
		start += cpa_cut_size((keys ? &part->kv : &part->q)->cuts, i);
	return start;
}

int64_t cpa_plant_largest_shard(const struct cpa_partition *part, bool keys)
{
	int64_t most = 0;
	for (int i = 0; i < part->P; i++) {
		int64_t n = cpa_cut_size((keys ? &part->kv : &part->q)->cuts, i);
		most = n > most ? n : most;
	}
	return most;
}

int64_t cpa_plant_largest_block(const struct cpa_partition *part)
{
	int64_t most = 0;
	for (int r = 0; r < part->config.ring_degree; r++) {
		int64_t n = cpa_spans_ntokens(&part->kv_block[r]);
		most = n > most ? n : most;
	}
	return most;
}
