/*
 * plan_ways.h - the ways in which the options of plan --model cut the tensors of a model.  Private
 * to plan_model*.c.
 */
#ifndef CPA_PLAN_WAYS_H
#define CPA_PLAN_WAYS_H

#include "harness/model.h"
#include "harness/plan.h"

struct cpa_plan_model {
	struct cpa_model *model;
	struct cpa_model_sized sized;
	struct cpa_arena arena; /* segments of the problems */
};

/* Configurations that cut tensors alike: the mesh over the ranks does not matter, nor does
 * rotation. */
struct cpa_way {
	int N, P;
	enum cpa_split split;
	enum cpa_order order;
	const int64_t *sizes; /* [nsizes] of given, P to each split segment */
	int nsizes;
	bool variants[CPA_NVARIANTS];
};
enum { CPA_MAX_WAYS = 512 };
struct cpa_ways {
	struct cpa_way at[CPA_MAX_WAYS]; /* those beyond are left out */
	int n;
};
/* *ways is the caller's to free. */
enum cpa_status cpa_ways_find(const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_ways **ways, struct cpa_error *error);

/* A model cut in one way. */
struct cpa_way_table {
	const struct cpa_model_sized *sized;
	const struct cpa_way *way;
	const int64_t *sizes[CPA_MODEL_MAX_SEGMENTS]; /* [P] of each segment; NULL: not cut */
	int64_t *values; /* [P] scratch */
};
/* CPA_UNSUPPORTED or CPA_INVALID with the segment that cannot be cut so. */
enum cpa_status cpa_way_cut(
	struct cpa_way_table *table, struct cpa_arena *arena, struct cpa_error *error);
/* Bytes of one token of the cut dimension, or of all that is held whole.   shape of the entry */
int64_t cpa_way_slice_nbytes(const struct cpa_way_table *table,
	const struct cpa_model_entry *entry, const int64_t *shape, bool whole);

#endif
