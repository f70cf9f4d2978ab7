/*
 * recording_part.h - what one rank recorded of one call, in a file of its own, before merging.
 * Private to recording*.c and the command merge.
 *
 * A part is a call without q, k, v, whose ranks/<r>/ holds the q, k, v, mask, o and lse of rank
 * r; or, of a run on one rank, a whole call.  data/README.md has the encodings.
 */
#ifndef CPA_RECORDING_PART_H
#define CPA_RECORDING_PART_H

#include "harness/recording_rules.h"

enum { CPA_PART_NTENSORS = 5 }; /* q k v o lse, as in cpa_part_tensor_name() */
const char *cpa_part_tensor_name(int tensor);

struct cpa_part_tensor {
	bool there;
	struct cpa_recording_shape shape;
	struct cpa_recording_axis axes[3]; /* batches, tokens, heads; rows may be padding */
};

/* A mask of less than 4 axes has further ones of size 1 in front. */
struct cpa_part_mask {
	bool there;
	enum cpa_h5_class class;
	enum cpa_dtype dtype; /* of FLOAT */
	int rank; /* axes stored */
	int64_t dims[4];
	struct cpa_recording_axis axes[4]; /* batches, heads, tokens, keys; where `said` */
	bool said[4]; /* else it is the whole axis, or one element for all of it */
};

struct cpa_part {
	const char *file, *call; /* call: its name */
	int rank, world;
	bool whole; /* a whole call of one rank: no ranks/ */
	bool bhsd;
	char where[CPA_H5_WHERE / 2 + 40]; /* the group that holds the tensors */
	struct cpa_part_tensor tensors[CPA_PART_NTENSORS];
	struct cpa_part_mask mask;
	/* Once cpa_parts_say() was asked: what the file says about the call, for the sizes of the
	 * run. */
	struct cpa_call said;
	const char *const *texts; /* [2 ntexts] further string attributes and their values */
	int ntexts;
};

/* All parts of a run; lists and strings live in arenas of their own. */
struct cpa_parts {
	struct cpa_part *at; /* [n] by call, then by rank, once cpa_parts_sort() was called */
	int n, capacity;
	struct cpa_arena *arenas; /* [narenas] */
	int narenas;
};

/* Adds the parts of the calls in `path` whose name matches glob (NULL: all). */
enum cpa_status cpa_parts_add(
	struct cpa_parts *parts, const char *path, const char *glob, struct cpa_error *error);
void cpa_parts_sort(struct cpa_parts *parts);
/* Fills part->said for a call of these sizes and dtype. */
enum cpa_status cpa_parts_say(struct cpa_parts *parts, struct cpa_part *part,
	const struct cpa_problem *sizes, struct cpa_error *error);
void cpa_parts_fini(struct cpa_parts *parts);

/* The same, of a file that is open, for the child process that looks first: verdicts do not
 * matter. */
void cpa_parts_look(struct cpa_recording *recording, int i);

/* id of stored entry i of an axis; -1: padding. */
int64_t cpa_part_id(const struct cpa_recording_axis *axis, int64_t i);
/* The same ids in the same order, whatever the rows that say so. */
bool cpa_part_same_ids(
	const struct cpa_recording_axis *a, const struct cpa_recording_axis *b);

/* Joins parts of a run, sorted, into one recording at path: see recording_merge.c. */
enum cpa_status cpa_parts_merge(
	struct cpa_parts *parts, const char *path, int *ncalls, struct cpa_error *error);

#endif
