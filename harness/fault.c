/*
 * fault.c - which faults there are, and where each can be planted.
 *
 * A fault leaves what travels alone: where it spoils keys, it does so for one reader and puts
 * them back, so that only outputs of its own rank are wrong and the place can be told.
 */
#include "harness/fault_plant.h"

#include <math.h>
#include <string.h>

enum fault {
	HOP_SKIPPED,
	WRONG_RANK_KV,
	LSE_BASE_2,
	MERGE_LOST,
	HEAD_SWAPPED,
	PAD_KEY_COUNTED,
	STALE_BUFFER,
	LSE_ZERO_START,
	BRANCHES_SWAPPED,
	BRANCH_DROPPED,
	BRANCH_REPEATED,
	SCALE_SIGN,
	NFIRST /* as in cpa_faults_first[]; what comes after them is in tables of its own */
};

/* ---- looking at a schedule ---- */

bool cpa_plant_overlap(const struct cpa_box *a, const struct cpa_box *b)
{
	int64_t last_a = a->token + (a->ntokens - 1) * a->step;
	int64_t last_b = b->token + (b->ntokens - 1) * b->step;
	return a->buffer == b->buffer && a->token <= last_b && b->token <= last_a &&
	       a->head < b->head + b->nheads && b->head < a->head + a->nheads;
}

static bool sees_key(const struct cpa_problem *problem, int64_t b, struct cpa_range heads,
	int64_t t, int64_t j)
{
	if (problem->rule.mask.kind == CPA_MASK_NONE)
		return true;
	for (int64_t h = heads.start; h < heads.end; h++)
		if (cpa_mask_value(problem, b, h, t, j) != -INFINITY)
			return true;
	return false;
}

/* Whether some of these query rows sees some of the keys.  heads: of the queries */
static bool sees_some(const struct cpa_problem *problem, struct cpa_range batches,
	struct cpa_range heads, const struct cpa_spans *queries, const struct cpa_spans *keys)
{
	int64_t nq = cpa_spans_ntokens(queries), nk = cpa_spans_ntokens(keys);
	for (int64_t b = batches.start; b < batches.end; b++)
		for (int64_t i = 0; i < nq; i++) {
			int64_t t = cpa_spans_token(queries, i);
			struct cpa_range row = cpa_rule_row(problem, b, t);
			if (cpa_spans_ncommon_range(keys, row) == 0)
				continue;
			for (int64_t k = 0; k < nk; k++) {
				int64_t j = cpa_spans_token(keys, k);
				if (j >= row.start && j < row.end &&
					sees_key(problem, b, heads, t, j))
					return true;
			}
		}
	return false;
}

bool cpa_plant_sees_keys(const struct cpa_problem *problem, const struct cpa_op *op)
{
	const struct cpa_content *q = &op->reads[0].content;
	return sees_some(
		problem, q->batches, q->heads, &q->tokens, &op->reads[1].content.tokens);
}

int cpa_plant_merge_of(const struct cpa_schedule *s, int attend)
{
	const struct cpa_box *o = &s->ops[attend].writes[0].box;
	for (int i = attend + 1; i < s->nops; i++)
		for (int k = 0; k < s->ops[i].nreads; k++)
			if (cpa_plant_overlap(&s->ops[i].reads[k].box, o))
				return s->ops[i].kind == CPA_OP_MERGE && k == 2 ? i : -1;
	return -1;
}

/* The last RECV or COLLECTIVE before op that writes what `reader` reads; -1: none. */
int cpa_plant_arrival(const struct cpa_schedule *s, int op, const struct cpa_operand *reader)
{
	for (int i = op - 1; i >= 0; i--)
		for (int k = 0; k < s->ops[i].nwrites; k++)
			if (cpa_plant_overlap(&s->ops[i].writes[k].box, &reader->box))
				return s->ops[i].kind == CPA_OP_RECV ||
						       s->ops[i].kind == CPA_OP_COLLECTIVE
					       ? i
					       : -1;
	return -1;
}

bool cpa_plant_is_key(const struct cpa_operand *operand)
{
	return operand->content.tensor == CPA_TENSOR_K ||
	       operand->content.tensor == CPA_TENSOR_V;
}

/* Whether op reads keys or values that came from a peer.  In a ring the reader is an ATTEND:
 * what a COPY spoils would travel on. */
static bool reads_arrived_keys(
	const struct cpa_partition *part, const struct cpa_schedule *s, int i)
{
	const struct cpa_op *op = &s->ops[i];
	if (part->problem.Skv < 2)
		return false;
	if (op->kind == CPA_OP_ATTEND)
		return cpa_plant_arrival(s, i, &op->reads[1]) >= 0 &&
		       cpa_plant_sees_keys(&part->problem, op);
	if (op->kind != CPA_OP_COPY || op->nreads != 1 || part->config.ring_degree != 1 ||
		!cpa_plant_is_key(&op->reads[0]) || cpa_plant_arrival(s, i, &op->reads[0]) < 0)
		return false;
	const struct cpa_content *keys = &op->reads[0].content;
	struct cpa_coords at = cpa_partition_coords(part, s->rank);
	return sees_some(&part->problem, keys->batches, cpa_partition_heads(part, at.u),
		&part->q_block[at.r], &keys->tokens);
}

/* Whether the fault changes what these scales make of three different branches. */
static bool spoils_guidance(enum fault fault, const struct cpa_guidance *guidance)
{
	bool three = guidance->nbranches == 3;
	switch (fault) {
	case BRANCHES_SWAPPED:
		return 1.0 - (three ? guidance->s2 : guidance->s) != guidance->s;
	case BRANCH_DROPPED:
		return three && guidance->s2 != 0.0;
	default:
		return guidance->s != 0.0;
	}
}

/* Each rank that ends with rows of branches, by its last operation. */
static bool is_guidance_site(enum fault fault, const struct cpa_plant_target *target,
	const struct cpa_schedule *s, int i)
{
	const struct cpa_partition *part = target->partition;
	struct cpa_coords at = cpa_partition_coords(part, s->rank);
	int64_t held = cpa_spans_ntokens(&part->q.replicated);
	for (int n = 0; n < part->q.ncuts; n++)
		held += cpa_cut_size(
			&part->q.cuts[n], at.r * part->config.ulysses_degree + at.u);
	return part->config.guidance != 0 && held > 0 && i == s->nops - 1 &&
	       spoils_guidance(fault, &target->guidance);
}

static bool is_site(
	enum fault fault, const struct cpa_partition *part, const struct cpa_schedule *s, int i)
{
	const struct cpa_op *op = &s->ops[i];
	if (fault == STALE_BUFFER)
		return reads_arrived_keys(part, s, i);
	if (op->kind != CPA_OP_ATTEND || !cpa_plant_sees_keys(&part->problem, op))
		return false;
	switch (fault) {
	case HOP_SKIPPED:
	case MERGE_LOST:
		return cpa_plant_merge_of(s, i) >= 0;
	case WRONG_RANK_KV:
		return op->hop >= 1 &&
		       part->kv_block[cpa_partition_coords(part, s->rank).r].n > 0;
	case HEAD_SWAPPED:
		return op->writes[0].box.nheads >= 2;
	case LSE_ZERO_START:
		return cpa_plant_merge_of(s, i) < 0;
	default:
		return true;
	}
}

/* ---- planting ---- */

static unsigned char *acts(struct cpa_plant *plant)
{
	return plant->acts[plant->schedule->rank];
}

static void skip_hop(struct cpa_plant *plant, int hop)
{
	const struct cpa_schedule *s = plant->schedule;
	for (int i = 0; i < s->nops; i++) {
		if (s->ops[i].kind != CPA_OP_ATTEND || s->ops[i].hop != hop)
			continue;
		int merge = cpa_plant_merge_of(s, i);
		if (merge >= 0) /* a partial that starts an accumulator stays: rows need one */
			acts(plant)[i] = acts(plant)[merge] = CPA_PLANT_SKIP;
	}
}

static void mark_every_attend(
	struct cpa_plant *plant, enum cpa_plant_act act, struct cpa_range heads)
{
	const struct cpa_schedule *s = plant->schedule;
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].kind == CPA_OP_ATTEND &&
			(plant->where.hop < 0 || plant->where.hop == s->ops[i].hop) &&
			s->ops[i].writes[0].content.heads.start == heads.start &&
			s->ops[i].writes[0].content.heads.end == heads.end)
			acts(plant)[i] = (unsigned char)act;
}

static void mark_starts(struct cpa_plant *plant)
{
	const struct cpa_schedule *s = plant->schedule;
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind == CPA_OP_ATTEND && cpa_plant_merge_of(s, i) < 0)
			acts(plant)[i] = CPA_PLANT_EXTRA_KEY;
		if (op->kind == CPA_OP_COPY && op->nreads == 0 &&
			op->writes[0].content.tensor == CPA_TENSOR_LSE)
			acts(plant)[i] = CPA_PLANT_LSE_ZERO;
	}
}

/* All hops of the rank, unless one was asked for. */
static void forget_block(struct cpa_plant *plant)
{
	plant->site.hop = plant->where.hop;
	plant->site.block = -1;
}

void cpa_first_fault_mark(struct cpa_plant *plant, int op)
{
	const struct cpa_op *at = &plant->schedule->ops[op];
	switch ((enum fault)plant->fault) {
	case HOP_SKIPPED:
		skip_hop(plant, at->hop);
		break;
	case MERGE_LOST:
		acts(plant)[cpa_plant_merge_of(plant->schedule, op)] = CPA_PLANT_SKIP;
		break;
	case WRONG_RANK_KV:
		acts(plant)[op] = CPA_PLANT_WRONG_KEYS;
		break;
	case LSE_BASE_2:
		forget_block(plant);
		mark_every_attend(plant, CPA_PLANT_BASE_2, at->writes[0].content.heads);
		break;
	case HEAD_SWAPPED:
		forget_block(plant);
		mark_every_attend(plant, CPA_PLANT_SWAP, at->writes[0].content.heads);
		plant->site.heads = at->writes[0].content.heads;
		if (plant->where.head >= 0)
			plant->site.heads.start = plant->where.head;
		plant->site.heads.end = plant->site.heads.start + 2;
		break;
	case PAD_KEY_COUNTED:
		acts(plant)[op] = CPA_PLANT_EXTRA_KEY;
		break;
	case STALE_BUFFER:
		acts(plant)[op] = CPA_PLANT_STALE_KEYS;
		break;
	case LSE_ZERO_START:
		forget_block(plant);
		mark_starts(plant);
		break;
	case BRANCHES_SWAPPED:
	case BRANCH_DROPPED:
	case BRANCH_REPEATED:
	case SCALE_SIGN: /* cpa_plant_combine() */
		plant->site.batches = (struct cpa_range){0,
			plant->target.partition->problem.B / plant->target.guidance.nbranches};
		plant->site.heads = (struct cpa_range){0, plant->target.partition->problem.Hq};
		break;
	case NFIRST:
		break;
	}
}

static bool is_any_site(enum fault fault, const struct cpa_plant_target *target,
	const struct cpa_schedule *s, int i)
{
	return fault >= BRANCHES_SWAPPED ? is_guidance_site(fault, target, s, i)
					 : is_site(fault, target->partition, s, i);
}

bool cpa_first_fault_is_place(const struct cpa_plant *plant, const struct cpa_site *site)
{
	return is_any_site((enum fault)plant->fault, site->target, site->schedule, site->op) &&
	       (plant->fault != HEAD_SWAPPED || plant->where.head < 0 ||
		       plant->where.head + 1 < site->at->writes[0].content.heads.end);
}

void cpa_plant_combine(const struct cpa_plant *plant, int rank, struct cpa_guidance *guidance,
	const void *branches[3])
{
	int last = guidance->nbranches - 1;
	const void *negative = branches[0];
	if (!plant || plant->site.rank != rank)
		return;
	if (plant->fault == BRANCHES_SWAPPED) {
		branches[0] = branches[last];
		branches[last] = negative;
	}
	if (plant->fault == BRANCH_DROPPED)
		guidance->s2 = 0.0;
	if (plant->fault == BRANCH_REPEATED)
		branches[last] = branches[last - 1];
	if (plant->fault == SCALE_SIGN)
		guidance->s = -guidance->s;
}

const struct cpa_plant_site *cpa_plant_site(const struct cpa_plant *plant)
{
	return &plant->site;
}
