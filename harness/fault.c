/*
 * fault.c - which faults there are, and where each can be planted.
 *
 * A fault leaves what travels alone: where it spoils keys, it does so for one reader and puts
 * them back, so that only outputs of its own rank are wrong and the place can be told.
 */
#include "harness/fault_plant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static void mark(struct cpa_plant *plant, int op)
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
		mark_every_attend(plant, CPA_PLANT_BASE_2, at->writes[0].content.heads);
		break;
	case HEAD_SWAPPED:
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

/* ---- places ---- */

struct cpa_site cpa_site_of(
	const struct cpa_plant_target *target, const struct cpa_schedule *schedule, int op)
{
	const struct cpa_partition *part = target->partition;
	struct cpa_site site = {.target = target,
		.part = part,
		.problem = &part->problem,
		.schedule = schedule,
		.op = op,
		.at = &schedule->ops[op],
		.coords = cpa_partition_coords(part, schedule->rank),
		.block = -2};
	if (site.at->kind != CPA_OP_ATTEND)
		return site;
	int64_t key = cpa_spans_token(&site.at->reads[1].content.tokens, 0);
	site.block = -1;
	for (int r = 0; r < part->config.ring_degree; r++)
		if (cpa_spans_ncommon_range(
			    &part->kv_block[r], (struct cpa_range){key, key + 1}) == 1)
			site.block = r;
	return site;
}

bool cpa_site_is_attend(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_ATTEND &&
	       cpa_plant_sees_keys(site->problem, site->at);
}

bool cpa_site_has_ring(const struct cpa_site *site)
{
	return site->part->config.ring_degree > 1 && cpa_site_is_attend(site);
}

static bool is_asked_for(const struct cpa_fault_where *where, const struct cpa_site *site)
{
	const struct cpa_op *op = site->at;
	struct cpa_range heads = {0, 0};
	if (op->kind == CPA_OP_ATTEND)
		heads = op->writes[0].content.heads;
	return (where->rank < 0 || where->rank == site->schedule->rank) &&
	       (where->hop < 0 || where->hop == op->hop) &&
	       (where->block < 0 || where->block == site->block) &&
	       (where->head < 0 || (where->head >= heads.start && where->head < heads.end));
}

static bool is_place(const struct cpa_plant *plant, const struct cpa_site *site)
{
	if (plant->fault < NFIRST)
		return is_any_site((enum fault)plant->fault, site->target, site->schedule,
			       site->op) &&
		       (plant->fault != HEAD_SWAPPED || plant->where.head < 0 ||
			       plant->where.head + 1 <
				       site->at->writes[0].content.heads.end);
	return plant->entry->touches(site);
}

/* Number `wanted` of the places, or how many there are when wanted is beyond; any: wherever. */
static int64_t find_place(
	const struct cpa_plant *plant, bool any, int64_t wanted, int *rank, int *op)
{
	const struct cpa_plant_target *target = &plant->target;
	int64_t n = 0;
	for (int r = 0; r < target->partition->W; r++)
		for (int i = 0; i < target->schedules[r]->nops; i++) {
			struct cpa_site site = cpa_site_of(target, target->schedules[r], i);
			if (!any && !is_asked_for(&plant->where, &site))
				continue;
			if (!is_place(plant, &site) || n++ != wanted)
				continue;
			*rank = r;
			*op = i;
			return n;
		}
	return n;
}

static enum cpa_status check_where(const struct cpa_plant *plant, struct cpa_error *error)
{
	const struct cpa_partition *part = plant->target.partition;
	const struct cpa_fault_where *at = &plant->where;
	const struct {
		const char *name;
		int64_t value, n;
	} keys[] = {{"rank", at->rank, part->W}, {"hop", at->hop, part->config.ring_degree},
		{"block", at->block, part->config.ring_degree},
		{"head", at->head, part->problem.Hq}};
	for (int i = 0; i < 4; i++)
		if (keys[i].value >= keys[i].n)
			return cpa_fail(error, CPA_UNSUPPORTED,
				"--fault %s:%s=%" PRId64 ": the last %s here is %" PRId64,
				plant->entry->name, keys[i].name, keys[i].value, keys[i].name,
				keys[i].n - 1);
	return CPA_OK;
}

static enum cpa_status choose(
	const struct cpa_plant *plant, uint64_t seed, int *rank, int *op, struct cpa_error *error)
{
	enum cpa_status s = check_where(plant, error);
	int64_t n = s == CPA_OK ? find_place(plant, false, INT64_MAX, rank, op) : 0;
	if (s != CPA_OK)
		return s;
	if (n == 0 && find_place(plant, true, 0, rank, op) == 0)
		return cpa_fail(error, CPA_UNSUPPORTED, "fault %s needs %s",
			plant->entry->name, plant->entry->needs);
	if (n == 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"fault %s has places here, but none where it was asked for; it needs %s",
			plant->entry->name, plant->entry->needs);
	/* Fibonacci hashing spreads neighbouring seeds. */
	uint64_t spread = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	find_place(plant, false, (int64_t)(spread % (uint64_t)n), rank, op);
	return CPA_OK;
}

static enum cpa_plant_act act_of(const struct cpa_fault_entry *entry)
{
	return entry->attend  ? CPA_PLANT_ATTEND
		: entry->merge ? CPA_PLANT_MERGE
		: entry->skip  ? CPA_PLANT_SKIP
			       : CPA_PLANT_NOTHING;
}

/* All places that the scope of the fault takes, given the one that was chosen. */
static void mark_places(struct cpa_plant *plant, int rank, int op)
{
	const struct cpa_fault_entry *entry = plant->entry;
	for (int r = 0; r < plant->target.partition->W; r++) {
		struct cpa_schedule *s = plant->target.schedules[r];
		int nops = s->nops;
		if (entry->scope != CPA_FAULT_EVERYWHERE && r != rank)
			continue;
		for (int i = 0; i < nops; i++) {
			struct cpa_site site = cpa_site_of(&plant->target, s, i);
			if (entry->scope == CPA_FAULT_ONE_OP ? i != op
							     : !is_asked_for(&plant->where,
								       &site) ||
					       !is_place(plant, &site))
				continue;
			plant->acts[r][i] = (unsigned char)act_of(entry);
			if (entry->change)
				entry->change(s, i);
		}
	}
}

static void describe(struct cpa_plant *plant, int rank, int op)
{
	const struct cpa_fault_entry *entry = plant->entry;
	struct cpa_plant_site *site = &plant->site;
	char text[160];
	if (entry->scope == CPA_FAULT_EVERYWHERE && plant->where.rank < 0) {
		static const char *const names[] = {"", " of hop ", " of block "};
		int which = plant->where.hop >= 0 ? 1 : plant->where.block >= 0 ? 2 : 0;
		int value = which == 1 ? plant->where.hop : plant->where.block;
		site->rank = site->op = -1;
		snprintf(text, sizeof text, which ? "%s%d" : "%s", names[which], value);
		snprintf(site->text, sizeof site->text, "%s on every rank%s", entry->name, text);
		return;
	}
	cpa_op_print(plant->target.schedules[rank], op, text, sizeof text);
	if (entry->scope == CPA_FAULT_ONE_OP)
		snprintf(site->text, sizeof site->text, "%s on rank %d at op %d: %s",
			entry->name, rank, op, text);
	else
		snprintf(site->text, sizeof site->text,
			"%s on rank %d, wherever it can be there", entry->name, rank);
}

static void describe_first(struct cpa_plant *plant, int rank, int op)
{
	char text[160];
	cpa_op_print(plant->schedule, op, text, sizeof text);
	if (plant->fault >= BRANCHES_SWAPPED)
		snprintf(plant->site.text, sizeof plant->site.text,
			"%s on rank %d, in what it makes of the branches", plant->entry->name,
			rank);
	else
		snprintf(plant->site.text, sizeof plant->site.text,
			"%s on rank %d at op %d: %s", plant->entry->name, rank, op, text);
}

static enum cpa_status alloc_acts(struct cpa_plant *p, struct cpa_error *error)
{
	int W = p->target.partition->W;
	bool made = true;
	p->acts = calloc((size_t)W, sizeof *p->acts);
	for (int r = 0; p->acts && made && r < W; r++) {
		p->acts[r] = calloc((size_t)p->target.schedules[r]->nops + 2, 1);
		made = p->acts[r];
	}
	if (p->acts && made)
		return CPA_OK;
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a planted fault");
}

static void plant_at(struct cpa_plant *p, int rank, int op)
{
	const struct cpa_partition *part = p->target.partition;
	struct cpa_coords at = cpa_partition_coords(part, rank);
	struct cpa_site site = cpa_site_of(&p->target, p->target.schedules[rank], op);
	p->schedule = p->target.schedules[rank];
	p->site = (struct cpa_plant_site){.rank = rank,
		.op = op,
		.hop = site.at->hop,
		.block = site.block,
		.batches = cpa_partition_batches(part, at.b),
		.heads = cpa_partition_heads(part, at.u),
		.tokens = &part->q_block[at.r]};
	if (p->fault < NFIRST) {
		mark(p, op);
		describe_first(p, rank, op);
		return;
	}
	if (p->entry->scope != CPA_FAULT_ONE_OP)
		p->site.hop = p->site.block = -1;
	describe(p, rank, op);
	mark_places(p, rank, op);
}

enum cpa_status cpa_plant_create(int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where, uint64_t seed, struct cpa_plant **plant,
	struct cpa_error *error)
{
	static const struct cpa_fault_where anywhere = {-1, -1, -1, -1};
	int rank = -1, op = -1;
	struct cpa_plant *p = calloc(1, sizeof *p);
	if (!p)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a planted fault");
	p->fault = fault;
	p->entry = cpa_fault_entry(fault);
	p->target = *target;
	p->problem = &target->partition->problem;
	p->where = where ? *where : anywhere;
	enum cpa_status s = alloc_acts(p, error);
	if (s == CPA_OK)
		s = choose(p, seed, &rank, &op, error);
	if (s != CPA_OK) {
		cpa_plant_destroy(p);
		return s;
	}
	plant_at(p, rank, op);
	*plant = p;
	return CPA_OK;
}

static void drop_whole(struct cpa_plant *plant)
{
	for (int i = 0; i < 3; i++) {
		free(plant->whole[i]);
		plant->whole[i] = NULL;
	}
}

void cpa_plant_destroy(struct cpa_plant *plant)
{
	if (!plant)
		return;
	cpa_plant_drop_saved(plant);
	drop_whole(plant);
	for (int r = 0; plant->acts && r < plant->target.partition->W; r++)
		free(plant->acts[r]);
	free(plant->acts);
	free(plant->seen);
	free(plant);
}

void cpa_plant_set_inputs(
	struct cpa_plant *plant, const struct cpa_problem *problem, struct cpa_inputs inputs)
{
	plant->target.inputs = inputs;
	plant->problem = problem;
	drop_whole(plant);
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
