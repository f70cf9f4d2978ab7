/*
 * fault.h - faults planted on purpose, to see that verify finds them.
 *
 * Each is one that public systems have had, or its sibling.  It is planted after the proof, by
 * the executor's hook around operations: the kernels stay as they are, and the schedule too but
 * for faults of transport.
 */
#ifndef CPA_FAULT_H
#define CPA_FAULT_H

#include "dist/dist.h"
#include "harness/inputs.h"

const char *cpa_fault_name(int i);    /* NULL past the end */
const char *cpa_fault_class(int i);   /* "A01", of the dictionary of faults */
const char *cpa_fault_summary(int i); /* what goes wrong, one sentence */
const char *cpa_fault_seen_in(int i); /* public systems that had it */
const char *cpa_fault_shows(int i);   /* how to see it */
int cpa_fault_find(const char *name); /* -1: there is none of this name */

/* Which of its places it takes. */
enum cpa_fault_scope {
	CPA_FAULT_ONE_OP,   /* one of them */
	CPA_FAULT_ONE_RANK, /* all of one rank */
	CPA_FAULT_EVERYWHERE
};
enum cpa_fault_scope cpa_fault_scope(int i);
/* CPA_WHERE_ bits: by what a place may be asked for. */
enum {
	CPA_WHERE_RANK = 1,
	CPA_WHERE_HOP = 2,
	CPA_WHERE_BLOCK = 4,
	CPA_WHERE_HEAD = 8
};
int cpa_fault_where_keys(int i);
/* False: it changes the schedules, or what becomes of branches. */
bool cpa_fault_is_in_attention(int i);

/* Where it is asked for; -1: anywhere.  block: ring rank whose keys are read. */
struct cpa_fault_where {
	int rank, hop, block, head;
};
/* "NAME" or "NAME:rank=2,hop=1,...".  CPA_INVALID, with what is near an unknown name, and which
 * keys this fault takes. */
enum cpa_status cpa_fault_parse(const char *text, int *fault, struct cpa_fault_where *where,
	struct cpa_error *error);

/* Where it is, and which outputs it spoils (others only by way of these rows). */
struct cpa_plant_site {
	int rank, op;   /* world rank, operation of its schedule; -1: every rank */
	int hop, block; /* -1: of no one hop or block */
	struct cpa_range batches, heads; /* query heads */
	const struct cpa_spans *tokens;  /* query tokens; borrowed from the partition */
	char text[256];                  /* "hop-skipped on rank 2 at op 14: ..." */
};

/*
 * Picks a place, by seed where `where` (NULL: anywhere) leaves a choice.  CPA_UNSUPPORTED, with
 * what it takes: this configuration has no operation that could go wrong so (no hop on one
 * rank).  Everything is borrowed until cpa_plant_destroy().  A fault of transport changes the
 * schedules. schedules [W]
 */
struct cpa_plant;
struct cpa_plant_target {
	const struct cpa_partition *partition;
	struct cpa_schedule *const *schedules;
	struct cpa_device *device;
	struct cpa_inputs inputs;
	struct cpa_guidance guidance; /* nbranches 0: none */
};
enum cpa_status cpa_plant_create(int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where, uint64_t seed, struct cpa_plant **plant,
	struct cpa_error *error);
/* How many places there are, and one of them by number. */
int64_t cpa_plant_nplaces(
	int fault, const struct cpa_plant_target *target, const struct cpa_fault_where *where);
enum cpa_status cpa_plant_create_at(int fault, const struct cpa_plant_target *target,
	const struct cpa_fault_where *where, int64_t place, struct cpa_plant **plant,
	struct cpa_error *error);
void cpa_plant_destroy(struct cpa_plant *plant);
/* For the executor of this rank: does nothing on ranks without the fault.  plant may be NULL.
 */
struct cpa_exec_hook cpa_plant_hook(struct cpa_plant *plant, int rank);
/* Another run on other inputs (a probe): the wrong keys come from there. */
void cpa_plant_set_inputs(
	struct cpa_plant *plant, const struct cpa_problem *problem, struct cpa_inputs inputs);
/* Of the query rows only those whose flag is set are looked at: of the others it may leave what no attention
 * gives.   wanted [B, Sq], borrowed; NULL: all */
void cpa_plant_set_wanted(struct cpa_plant *plant, const unsigned char *wanted);
/* After a run: rows of o that this fault leaves in other places.  plant may be NULL. */
struct cpa_ranks;
enum cpa_status cpa_plant_move_outputs(
	const struct cpa_plant *plant, struct cpa_ranks *ranks, struct cpa_error *error);
/* What this rank makes of the branches: a fault of guidance changes their order or the scales. */
void cpa_plant_combine(const struct cpa_plant *plant, int rank, struct cpa_guidance *guidance,
	const void *branches[3]);
const struct cpa_plant_site *cpa_plant_site(const struct cpa_plant *plant);

#endif
