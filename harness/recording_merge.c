/*
 * recording_merge.c - joins what ranks recorded alone into one recording.
 *
 * Everything that can be told without reading tensors is told first: parts that are missing or
 * come twice, rules that differ, tokens that nobody or too many hold.  Then the file is laid out,
 * the disk is asked for all of it, and tensors stream into it in blocks.  Besides blocks, memory
 * holds a bit for each (batch item, token, head) of one tensor.
 */
#include "harness/recording_merge.h"

#include "harness/output.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 1, V, O, LSE };

/* ---- the layout of the file ------------------------------------------------------------------
 */

bool cpa_merge_keeps(const struct cpa_part *part, int tensor)
{
	const struct cpa_part_tensor *it = &part->tensors[tensor], *o = &part->tensors[O];

	if (!it->there || part->whole)
		return false;
	if (tensor >= O)
		return true;
	for (int axis = 0; axis < 3; axis++)
		for (int64_t i = 0; i < it->axes[axis].nrows; i++)
			if (it->axes[axis].rows[3 * i] < 0)
				return true;
	return tensor == K && o->there && !cpa_part_same_ids(&it->axes[1], &o->axes[1]);
}

/* dims [4] out; returns how many. */
static int file_dims(bool bhsd, int tensor, const int64_t sizes[3], int64_t D, int64_t dims[4])
{
	dims[0] = sizes[0];
	dims[1] = bhsd ? sizes[2] : sizes[1];
	dims[2] = bhsd ? sizes[1] : sizes[2];
	dims[3] = D;
	return tensor == LSE ? 3 : 4;
}

static void lay_out_rank(const struct cpa_part *part, const char *ranks, struct cpa_h5 *out)
{
	char group[CPA_H5_WHERE / 2 + 40], path[CPA_H5_WHERE];
	int64_t dims[4];

	snprintf(group, sizeof group, "%s/%d", ranks, part->rank);
	cpa_h5_write_group(out, group);
	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part_tensor *it = &part->tensors[t];
		const int64_t sizes[3] = {it->shape.B, it->shape.S, it->shape.H};

		if (!cpa_merge_keeps(part, t))
			continue;
		cpa_recording_join(path, group, '/', cpa_part_tensor_name(t));
		cpa_h5_write_empty(out, path, CPA_H5_FLOAT, it->shape.dtype,
			file_dims(part->bhsd, t, sizes, it->shape.D, dims), dims);
		for (int axis = 0; axis < 3; axis++)
			cpa_h5_write_integer_table(out, path, it->axes[axis].name,
				it->axes[axis].nrows, 3, it->axes[axis].rows);
	}
}

static void lay_out_tensors(const struct cpa_merge_call *call, struct cpa_h5 *out)
{
	const struct cpa_part *part = &call->parts[0];
	char path[CPA_H5_WHERE];
	int64_t sizes[3], dims[4];

	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part *first = cpa_merge_first(call, t);

		if (t >= O && !(part->whole && part->tensors[t].there))
			continue;
		cpa_merge_sizes(call, t, sizes);
		cpa_recording_join(path, call->where, '/', cpa_part_tensor_name(t));
		cpa_h5_write_empty(out, path, CPA_H5_FLOAT, first->tensors[t].shape.dtype,
			file_dims(part->bhsd, t, sizes, first->tensors[t].shape.D, dims), dims);
	}
	cpa_recording_join(path, call->where, '/', "mask");
	if (call->masked)
		cpa_h5_write_empty(
			out, path, call->mask.class, call->mask.dtype, 4, call->mask.dims);
}

static void lay_out(const struct cpa_merge_call *call, struct cpa_h5 *out)
{
	const struct cpa_part *part = &call->parts[0];
	char ranks[CPA_H5_WHERE / 2 + 20];

	cpa_recording_write_rules(out, call->where, &call->problem, part->bhsd, NULL);
	for (int i = 0; i < part->ntexts; i++)
		cpa_h5_write_string(out, call->where, part->texts[2 * i], part->texts[2 * i + 1]);
	lay_out_tensors(call, out);
	if (part->said.config)
		cpa_recording_write_config(out, call->where, part->said.config);
	if (part->whole)
		return;
	snprintf(ranks, sizeof ranks, "%s/ranks", call->where);
	cpa_h5_write_group(out, ranks);
	cpa_h5_write_integer(out, ranks, "world_size", part->world);
	for (int i = 0; i < call->n; i++)
		lay_out_rank(&call->parts[i], ranks, out);
}

/* ---- all of it -------------------------------------------------------------------------------
 */

/* Cuts the sorted parts into calls. */
static enum cpa_status plan(struct cpa_parts *parts, struct cpa_merge_call *calls, int *ncalls,
	struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int i = 0, end; i < parts->n && status == CPA_OK; i = end) {
		struct cpa_merge_call *call = &calls[(*ncalls)++];

		for (end = i + 1;
			end < parts->n && strcmp(parts->at[end].call, parts->at[i].call) == 0;)
			end++;
		*call = (struct cpa_merge_call){.parts = &parts->at[i], .n = end - i};
		cpa_arena_init(&call->arena);
		snprintf(call->where, sizeof call->where, "/calls/%s", parts->at[i].call);
		status = cpa_merge_plan(parts, call, error);
	}
	return status;
}

/* Bytes of the datasets of a call, and something for what names them. */
static uint64_t expected_nbytes(const struct cpa_merge_call *call)
{
	const int64_t *dims = call->mask.dims;
	uint64_t nbytes = 1 << 16;
	int64_t sizes[3];

	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part *first = cpa_merge_first(call, t);
		const uint64_t element = first ? cpa_dtype_nbytes(first->tensors[t].shape.dtype)
					       : 0;

		cpa_merge_sizes(call, t, sizes);
		if (first && (t <= V || first->whole))
			nbytes += (uint64_t)(sizes[0] * sizes[1] * sizes[2] *
					  first->tensors[t].shape.D) *
				element;
		for (int i = 0; i < call->n; i++) {
			const struct cpa_recording_shape *shape =
				&call->parts[i].tensors[t].shape;

			if (cpa_merge_keeps(&call->parts[i], t))
				nbytes += (uint64_t)(shape->B * shape->S * shape->H * shape->D) *
						element +
					4096;
		}
	}
	if (call->masked)
		nbytes += (uint64_t)(dims[0] * dims[1] * dims[2] * dims[3]) *
			(call->mask.class == CPA_H5_FLOAT ? cpa_dtype_nbytes(call->mask.dtype)
							  : 1);
	return nbytes;
}

static enum cpa_status fill(
	struct cpa_merge_call *calls, int ncalls, const char *temporary, struct cpa_error *error)
{
	struct cpa_h5 *out = NULL;
	enum cpa_status status = cpa_h5_create_file(temporary, &out, error);
	uint64_t nbytes = 0;

	if (status != CPA_OK)
		return status;
	for (int i = 0; i < ncalls; i++)
		nbytes += expected_nbytes(&calls[i]);
	status = cpa_h5_reserve(out, temporary, nbytes, error);
	if (status != CPA_OK) {
		cpa_h5_close(out);
		return status;
	}
	cpa_h5_write_string(out, "/", "format", "cpattn recording");
	cpa_h5_write_integer(out, "/", "format_version", 1);
	cpa_h5_write_group(out, "/calls");
	for (int i = 0; i < ncalls; i++)
		lay_out(&calls[i], out);
	status = cpa_h5_reserve(out, temporary, 0, error);
	for (int i = 0; i < ncalls && status == CPA_OK; i++)
		status = cpa_merge_copy(&calls[i], out, error);
	if (status == CPA_OK)
		status = cpa_h5_finish(out, error);
	cpa_h5_close(out);
	return status;
}

static enum cpa_status write_out(
	struct cpa_merge_call *calls, int ncalls, const char *path, struct cpa_error *error)
{
	struct cpa_output output;
	enum cpa_status status = cpa_output_open(&output, path, error);

	if (status != CPA_OK)
		return status;
	if (!output.temporary)
		status = cpa_fail(error, CPA_INVALID,
			"%.300s: a recording is written in pieces, out of order; "
			"expected the name of a regular file",
			path);
	if (status == CPA_OK)
		status = fill(calls, ncalls, output.temporary, error);
	if (status == CPA_OK)
		return cpa_output_commit(&output, error);
	cpa_output_abandon(&output);
	return status;
}

enum cpa_status cpa_parts_merge(
	struct cpa_parts *parts, const char *path, int *ncalls, struct cpa_error *error)
{
	struct cpa_merge_call *calls = calloc((size_t)parts->n + 1, sizeof *calls);
	enum cpa_status status;

	*ncalls = 0;
	if (!calls)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	status = plan(parts, calls, ncalls, error);
	if (status == CPA_OK)
		status = write_out(calls, *ncalls, path, error);
	for (int i = 0; i < *ncalls; i++) {
		free(calls[i].key_class);
		cpa_arena_fini(&calls[i].arena);
	}
	free(calls);
	return status;
}
