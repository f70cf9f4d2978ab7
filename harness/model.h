/*
 * model.h - models as data: which tensors of a model are cut, along what, and which attentions
 * follow.
 *
 * A model file (data/README.md) is JSON.  Reading checks every field; what a size does to it is
 * checked when it is applied.
 */
#ifndef CPA_MODEL_H
#define CPA_MODEL_H

#include <stdio.h>

#include "ref/ref.h"

enum { CPA_MODEL_MAX_DIMS = 8, CPA_MODEL_MAX_SEGMENTS = 16 };

struct cpa_model_segment {
	const char *name,
		*tokens; /* an expression of height, width, frames and earlier segments */
	bool split; /* else every rank holds it whole */
};

/* One tensor: an argument of a module, or one of its outputs. */
struct cpa_model_entry {
	const char *module; /* "" is the root */
	const char *name; /* of an argument; NULL: an output */
	int output; /* its index; -1: an argument */
	bool gathers; /* cut before, whole after */
	int dim; /* along which it is split or gathered; -1: held whole */
	int expected_dims; /* 0: not said */
	bool optional; /* another number of dimensions leaves it whole, and that is meant */
	const char *dims[CPA_MODEL_MAX_DIMS]; /* expressions of lengths; the one along dim names a
						 segment */
	int ndims;
	const char *dtype;
	int element_nbytes;
	int tied[CPA_MODEL_MAX_DIMS]; /* entries that must be cut alike */
	int ntied;
};

struct cpa_model_attention {
	const char *name;
	int q[CPA_MODEL_MAX_SEGMENTS],
		kv[CPA_MODEL_MAX_SEGMENTS]; /* segments, in sequence order */
	int nq, nkv;
};

struct cpa_model {
	const char *name, *title, *size; /* size: the default, "1024x1024" */
	bool derived; /* its plan is no published one */
	enum cpa_dtype dtype;
	int64_t batch, heads, kv_heads, head_dim, hidden;
	struct cpa_model_segment *segments;
	struct cpa_model_entry *entries;
	struct cpa_model_attention *attentions;
	int nsegments, nentries, nattentions;
	struct cpa_arena arena;
};

/* Reads the text of a model file [nbytes].  CPA_INVALID with the JSON path; CPA_UNSUPPORTED in a
 * build without cJSON. */
enum cpa_status cpa_model_read(
	const char *text, size_t nbytes, struct cpa_model **model, struct cpa_error *error);
/* A file (a name with / or ending in .json), else a name among the data: CPATTN_DATA, ./data, the
 * installed data. */
enum cpa_status cpa_model_open(
	const char *name, struct cpa_model **model, struct cpa_error *error);
void cpa_model_destroy(struct cpa_model *model);
bool cpa_model_readable(void); /* whether this build reads models */
/* One line for each model there is. */
void cpa_model_list(FILE *out);

/* A model at a size. */
struct cpa_model_sized {
	const struct cpa_model *model;
	int64_t height, width, frames; /* frames is 1 for an image */
	int64_t tokens[CPA_MODEL_MAX_SEGMENTS]; /* of each segment */
};
/* size: "HxW" or "HxWxF"; NULL: the model's own. */
enum cpa_status cpa_model_apply(const struct cpa_model *model, const char *size,
	struct cpa_model_sized *sized, struct cpa_error *error);
/* shape [CPA_MODEL_MAX_DIMS] out. */
enum cpa_status cpa_model_shape(const struct cpa_model_sized *sized,
	const struct cpa_model_entry *entry, int64_t *shape, struct cpa_error *error);
/* The segment that the entry is cut along; -1: it is held whole. */
int cpa_model_entry_segment(const struct cpa_model *model, const struct cpa_model_entry *entry);
/* "transformer_blocks.0:hidden_states", "rope:0", ":img_ids" */
void cpa_model_entry_print(const struct cpa_model_entry *entry, char *text, size_t size);
/* What would go wrong in silence: dimensions that are not as expected, tied tensors that are cut
 * differently, a segment that is split but that no tensor carries, or whole but cut. */
enum cpa_status cpa_model_check(const struct cpa_model *model, struct cpa_error *error);
/* The problem of one attention; segments are made in arena. */
enum cpa_status cpa_model_problem(const struct cpa_model_sized *sized, int attention,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error);

#endif
