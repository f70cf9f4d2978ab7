/*
 * fault_merging.c - A: partials that are merged by the wrong weights.
 */
#include "harness/fault_plant.h"

#include <math.h>
#include <string.h>

#define RING "a ring of 2 at least"
#define BLOCK (CPA_WHERE_RANK | CPA_WHERE_HOP | CPA_WHERE_BLOCK)

/* ---- where ---- */

static bool is_merge(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_MERGE && site->at->subkind == CPA_MERGE_SOFTMAX;
}

static bool has_sink(const struct cpa_site *site)
{
	return site->problem->rule.sink && cpa_site_is_attend(site);
}

/* Sees keys, and is not what the accumulator starts with. */
static bool is_further(const struct cpa_site *site)
{
	return has_sink(site) && cpa_plant_merge_of(site->schedule, site->op) >= 0;
}

static bool merges_sink(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_MERGE && site->at->subkind == CPA_MERGE_SINK;
}

static bool hides_keys(const struct cpa_problem *p)
{
	return p->rule.causal || p->rule.window || p->rule.documents || p->rule.key_lengths ||
	       p->rule.mask.kind != CPA_MASK_NONE;
}

static bool may_be_empty(const struct cpa_site *site)
{
	return hides_keys(site->problem) && site->at->kind == CPA_OP_ATTEND &&
	       site->part->config.ring_degree > 1;
}

static bool merges_empty(const struct cpa_site *site)
{
	return hides_keys(site->problem) && is_merge(site);
}

static bool has_several_heads(const struct cpa_site *site)
{
	return cpa_site_has_ring(site) && site->at->writes[0].box.nheads > 1 &&
	       site->at->writes[0].box.ntokens > 1;
}

/* ---- what a block says of itself ---- */

static void base_e_read_as_2(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)x, (void)b, (void)i, (void)h, (void)o;
	*lse *= 0.69314718055994531;
}

static void read_as_base_2(struct cpa_spoil *x)
{
	x->partial = base_e_read_as_2;
}

static void base_2_read_as_e(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)x, (void)b, (void)i, (void)h, (void)o;
	*lse *= 1.4426950408889634;
}

static void every_block_base_2(struct cpa_spoil *x)
{
	x->partial = base_2_read_as_e;
}

/* scale q . mean(k) of the block, which smoothing took from every score. */
static void less_the_mean(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	const struct cpa_problem *p = &x->problem;
	double sum = 0.0;
	(void)o;
	const double *q = cpa_spoil_row(
		x, 0, x->batches.start + b, x->q_token[i], x->heads.start + h);
	for (int64_t j = 0; j < x->nk; j++) {
		const double *k =
			cpa_spoil_row(x, 1, x->kv_batch[b], x->k_token[j], x->kv_head[h]);
		for (int64_t d = 0; d < p->D; d++)
			sum += q[d] * k[d];
	}
	*lse -= p->scale * sum / (double)x->nk;
}

static void smoothed(struct cpa_spoil *x)
{
	x->partial = less_the_mean;
}

static double rounded_to_bf16(double x)
{
	unsigned char at[2];
	cpa_store(CPA_DTYPE_BF16, at, 0, x);
	return cpa_load(CPA_DTYPE_BF16, at, 0);
}

static void lse_in_bf16(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)x, (void)b, (void)i, (void)h, (void)o;
	*lse = rounded_to_bf16(*lse);
}

static void low_precision(struct cpa_spoil *x)
{
	x->partial = lse_in_bf16;
}

/* exp(lse) ends at 88.7 in fp32. */
static void raw_exponential(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)b, (void)i, (void)h;
	if (*lse <= 88.7)
		return;
	for (int64_t d = 0; d < x->problem.Dv; d++)
		o[d] = NAN;
	*lse = INFINITY;
}

static void overflows(struct cpa_spoil *x)
{
	x->partial = raw_exponential;
}

static void empty_is_zero(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)x, (void)b, (void)i, (void)h, (void)o;
	*lse = *lse == -INFINITY ? 0.0 : *lse;
}

static void zero_for_empty(struct cpa_spoil *x)
{
	x->partial = empty_is_zero;
}

static void empty_is_infinite(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	(void)x, (void)b, (void)i, (void)h, (void)o;
	*lse = *lse == -INFINITY ? INFINITY : *lse;
}

static void infinite_for_empty(struct cpa_spoil *x)
{
	x->partial = empty_is_infinite;
}

static void finite_minus_infinity(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	int64_t only = x->plant->where.head;
	(void)b, (void)i;
	if (!(*lse < -5e4) || (only >= 0 && only != x->heads.start + h))
		return;
	memset(o, 0, (size_t)x->problem.Dv * sizeof *o);
	*lse = -INFINITY;
}

static void sentinel(struct cpa_spoil *x)
{
	x->partial = finite_minus_infinity;
}

static void twice(struct cpa_spoil *x)
{
	for (int64_t j = 0; j < x->nk; j++)
		x->times[j] = 2.0;
}

static void transposed_lse(const struct cpa_spoil *x, double *lse)
{
	int64_t n = x->nh * x->nq;
	double *was = cpa_arena_alloc(x->arena, (size_t)n * sizeof *was);
	for (int64_t b = 0; was && b < x->nb; b++) {
		memcpy(was, lse + b * n, (size_t)n * sizeof *was);
		/* Written as [h, i], read as [i, h]. */
		for (int64_t h = 0; h < x->nh; h++)
			for (int64_t i = 0; i < x->nq; i++)
				lse[b * n + h * x->nq + i] = was[i * x->nh + h];
	}
}

static void transposed(struct cpa_spoil *x)
{
	x->all_lse = transposed_lse;
}

/* Heads 2 rows further apart than they are read; nothing stands between them. */
static void padded_stride(const struct cpa_spoil *x, double *lse)
{
	int64_t n = x->nh * x->nq, stride = x->nq + 2;
	double *was = cpa_arena_alloc(x->arena, (size_t)n * sizeof *was);
	for (int64_t b = 0; was && b < x->nb; b++) {
		memcpy(was, lse + b * n, (size_t)n * sizeof *was);
		for (int64_t f = 0; f < n; f++)
			lse[b * n + f] = f % stride < x->nq
				? was[f / stride * x->nq + f % stride]
				: -INFINITY;
	}
}

static void read_packed(struct cpa_spoil *x)
{
	x->all_lse = padded_stride;
}

static void sink_joins(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o, double *lse)
{
	double sink = x->problem.rule.sink[x->heads.start + h];
	double max = fmax(*lse, sink), more = max + log(exp(*lse - max) + exp(sink - max));
	(void)b, (void)i;
	for (int64_t d = 0; d < x->problem.Dv; d++)
		o[d] *= exp(*lse - more);
	*lse = more;
}

static void sink_in_each(struct cpa_spoil *x)
{
	x->partial = sink_joins;
}

/* ---- merges ---- */

static void overwrite(double *o, double *lse, const double *o_b, double lse_b, int64_t Dv,
	int64_t seen)
{
	(void)seen;
	memcpy(o, o_b, (size_t)Dv * sizeof *o);
	*lse = lse_b;
}

static void mean(double *o, double *lse, const double *o_b, double lse_b, int64_t Dv,
	int64_t seen)
{
	if (lse_b == -INFINITY)
		return;
	for (int64_t d = 0; d < Dv; d++)
		o[d] = ((double)seen * o[d] + o_b[d]) / (double)(seen + 1);
	*lse = lse_b;
}

static void without_care_for_empty(double *o, double *lse, const double *o_b, double lse_b,
	int64_t Dv, int64_t seen)
{
	double max = fmax(*lse, lse_b), x = exp(*lse - max), y = exp(lse_b - max);
	(void)seen;
	for (int64_t d = 0; d < Dv; d++) /* NaN where both are empty: -inf minus -inf */
		o[d] = (x * o[d] + y * o_b[d]) / (x + y);
	*lse = max + log(x + y);
}

const struct cpa_fault_entry cpa_faults_merging[] = {
	{"lse-base-2-everywhere", "A01", "every block of every rank comes with a base-2 lse",
		"flashinfer 2113, vLLM 28840 and 47079, sglang 40903",
		"lse is off by a factor; blocks of unlike weight", RING, CPA_FAULT_EVERYWHERE,
		BLOCK, cpa_site_has_ring, .attend = every_block_base_2},
	{"lse-read-as-base-2", "A01",
		"the merge reads the natural lse of a block as one of base 2",
		"vLLM 28840, attention-gym 205", "blocks of unlike weight: probe count", RING,
		CPA_FAULT_EVERYWHERE, BLOCK, cpa_site_has_ring, .attend = read_as_base_2},
	{"lse-without-shift", "A02",
		"keys lose their mean in each block, and the lse does not get it back",
		"aiter 3334, SageAttention 120",
		"each block alone is right; keys that share an offset", RING,
		CPA_FAULT_EVERYWHERE, BLOCK, cpa_site_has_ring, .attend = smoothed},
	{"lse-in-bf16", "A03", "the lse of every block is rounded to bf16",
		"TransformerEngine 1546, tt-metal 41683", "fp32 problems; grows with |lse|", RING,
		CPA_FAULT_EVERYWHERE, BLOCK, cpa_site_has_ring, .attend = low_precision},
	{"exp-overflow", "A04", "weights are exp(lse) itself, which overflows above 88.7",
		"TransformerEngine 716, EasyContext 14", "large scores: --fill extreme", RING,
		CPA_FAULT_EVERYWHERE, BLOCK, cpa_site_has_ring, .attend = overflows},
	{"empty-merge-nan", "A05", "merging two partials that both saw no key gives NaN",
		"vLLM 39148, flashinfer 4051",
		"rows whose first blocks are hidden: --direction down and causal",
		"a merge, and a rule that hides keys", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		merges_empty, .merge = without_care_for_empty},
	{"empty-lse-zero", "A06", "a block that shows a row no key comes with lse 0",
		"vLLM 49294, FlashMLA 77", "causal, windows, documents",
		"a ring, and a rule that hides keys", CPA_FAULT_EVERYWHERE, BLOCK, may_be_empty,
		.attend = zero_for_empty},
	{"empty-lse-infinite", "A06", "a block that shows a row no key comes with lse +inf",
		"flash-attention 978", "NaN in causal, windows, documents",
		"a ring, and a rule that hides keys", CPA_FAULT_EVERYWHERE, BLOCK, may_be_empty,
		.attend = infinite_for_empty},
	{"finite-minus-infinity", "A08",
		"minus infinity is -50000: rows of smaller scores come out as zeros",
		"flashinfer 4267", "very negative scores", "a row that sees a key",
		CPA_FAULT_EVERYWHERE, BLOCK | CPA_WHERE_HEAD, cpa_site_is_attend,
		.attend = sentinel},
	{"merge-overwrites", "A09", "each block takes the place of what was merged before",
		"long-context-attention 176", "everywhere", "a merge", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, is_merge, .merge = overwrite},
	{"merge-mean", "A09", "blocks are averaged, whatever they weigh",
		"sibling of long-context-attention 176", "blocks of unlike weight: probe count",
		"a merge", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, is_merge, .merge = mean},
	{"block-counted-twice", "A10", "one block is merged twice on one rank",
		"sibling of stale buffers; a hop too many", "everywhere; probe count", RING,
		CPA_FAULT_ONE_OP, BLOCK, cpa_site_has_ring, .attend = twice},
	{"lse-transposed", "A11", "lse is written as [H, S] and read as [S, H]",
		"diffusers 14274, long-context-attention 128", "o of each block is right",
		"a ring, and 2 heads and queries a rank", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK,
		has_several_heads, .attend = transposed},
	{"lse-padded-stride", "A11", "heads of lse lie 2 rows further apart than they are read",
		"TransformerEngine 1467, ring-flash-attention 46, pytorch 187899",
		"head 0 is right, later heads are not", "a ring, and 2 heads and queries a rank",
		CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, has_several_heads, .attend = read_packed},
	{"sink-in-each-block", "A12", "the sink joins the denominator of every block",
		"torchtitan 2211, flash-linear-attention 831", "a sink; grows with the ring",
		"a sink, and a merge", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, is_further,
		.attend = sink_in_each},
	{"sink-left-out", "A12", "the sink never joins the denominator",
		"sibling of torchtitan 2211", "a sink", "a sink", CPA_FAULT_EVERYWHERE,
		CPA_WHERE_RANK, merges_sink, .skip = true},
	{0},
};
