/*
 * fault_place.c - the places of a fault in the schedules of all ranks, and planting it in some.
 */
#include "harness/fault_plant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- places ---- */

/* Of fault.c, which marks its own operations. */
static bool is_first(const struct cpa_plant *plant)
{
	return !plant->entry->touches;
}

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
	return is_first(plant) ? cpa_first_fault_is_place(plant, site)
			       : plant->entry->touches(site);
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

/* Number `wanted` of the places, in *rank and *op. */
static enum cpa_status choose(const struct cpa_plant *plant, int64_t wanted, int *rank, int *op,
	struct cpa_error *error)
{
	if (find_place(plant, false, wanted, rank, op) > wanted)
		return CPA_OK;
	if (find_place(plant, true, 0, rank, op) == 0)
		return cpa_fail(error, CPA_UNSUPPORTED, "fault %s needs %s",
			plant->entry->name, plant->entry->needs);
	return cpa_fail(error, CPA_UNSUPPORTED,
		"fault %s has places here, but none where it was asked for; it needs %s",
		plant->entry->name, plant->entry->needs);
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
	if (plant->entry->class[0] == 'H')
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
	if (is_first(p)) {
		cpa_first_fault_mark(p, op);
		describe_first(p, rank, op);
		return;
	}
	if (p->entry->scope != CPA_FAULT_ONE_OP)
		p->site.hop = p->site.block = -1;
	describe(p, rank, op);
	mark_places(p, rank, op);
}

static void init_plant(struct cpa_plant *p, int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where)
{
	static const struct cpa_fault_where anywhere = {-1, -1, -1, -1};
	*p = (struct cpa_plant){.fault = fault,
		.entry = cpa_fault_entry(fault),
		.target = *target,
		.problem = &target->partition->problem,
		.where = where ? *where : anywhere};
}

int64_t cpa_plant_nplaces(
	int fault, const struct cpa_plant_target *target, const struct cpa_fault_where *where)
{
	struct cpa_plant p;
	struct cpa_error ignored;
	int rank, op;
	init_plant(&p, fault, target, where);
	return check_where(&p, &ignored) == CPA_OK
		       ? find_place(&p, false, INT64_MAX, &rank, &op)
		       : 0;
}

enum cpa_status cpa_plant_create_at(int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where, int64_t place, struct cpa_plant **plant,
	struct cpa_error *error)
{
	int rank = -1, op = -1;
	struct cpa_plant *p = calloc(1, sizeof *p);
	if (!p)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a planted fault");
	init_plant(p, fault, target, where);
	enum cpa_status s = alloc_acts(p, error);
	if (s == CPA_OK)
		s = check_where(p, error);
	if (s == CPA_OK)
		s = choose(p, place, &rank, &op, error);
	if (s != CPA_OK) {
		cpa_plant_destroy(p);
		return s;
	}
	plant_at(p, rank, op);
	*plant = p;
	return CPA_OK;
}

enum cpa_status cpa_plant_create(int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where, uint64_t seed, struct cpa_plant **plant,
	struct cpa_error *error)
{
	int64_t n = cpa_plant_nplaces(fault, target, where);
	/* Fibonacci hashing spreads neighbouring seeds. */
	uint64_t spread = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	int64_t place = n > 0 ? (int64_t)(spread % (uint64_t)n) : 0;
	return cpa_plant_create_at(fault, target, where, place, plant, error);
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

void cpa_plant_set_wanted(struct cpa_plant *plant, const unsigned char *wanted)
{
	plant->wanted = plant->entry->source ? NULL : wanted; /* rows that move may come from any */
}
