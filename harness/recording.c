/*
 * recording.c - opening a recording, its list of calls, and reading shards.
 *
 * A call is checked in two stages: its structure (shapes, attributes, small lists), which reading a shard
 * needs, and its data, which takes reading all of it.  The verdict of each stage is kept.
 */
#include "harness/recording.h"
#include "harness/recording_part.h"
#include "harness/recording_rules.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_CALL_NAME = 200 };

/* ---- opening --------------------------------------------------------------------------------- */

static enum cpa_status check_format(struct cpa_recording *recording, struct cpa_error *error)
{
	static const char *const formats[] = {"cpattn recording", NULL};
	int64_t version = 1;
	enum cpa_status status;
	bool present;
	int choice = 0;

	status = cpa_recording_choice(recording, "/", "format", formats, &choice, error);
	if (status == CPA_OK)
		status = cpa_recording_integers(recording, "/", "format_version", false, 1, &version,
			&present, error);
	if (status == CPA_OK && version != 1)
		return cpa_fail(error, CPA_INVALID, "/@format_version: is %lld; expected 1, the only one that "
			"this version of cpattn reads", (long long)version);
	return status;
}

static bool is_printable(const char *name)
{
	for (; *name; name++)
		if ((unsigned char)*name < 0x20 || *name == 0x7f)
			return false;
	return true;
}

static enum cpa_status list_calls(struct cpa_recording *recording, struct cpa_error *error)
{
	struct cpa_h5_names links;
	enum cpa_status status;

	status = cpa_h5_links(recording->file, "/", &recording->arena, &links, error);
	if (status != CPA_OK)
		return status;
	for (int i = 0; i < links.n; i++)
		if (strcmp(links.at[i], "calls") == 0 && !links.hard[i])
			return cpa_fail(error, CPA_INVALID, "/calls: a soft or external link; expected the "
				"group itself");
	if (!cpa_recording_has(&links, "calls") || cpa_h5_object(recording->file, "/calls") != CPA_H5_GROUP)
		return cpa_fail(error, CPA_INVALID, "/calls: missing; expected a group with one group for each "
			"attention call");
	status = cpa_h5_links(recording->file, "/calls", &recording->arena, &links, error);
	if (status != CPA_OK)
		return status;
	if (links.n == 0)
		return cpa_fail(error, CPA_INVALID, "/calls: holds no call; expected at least one");
	recording->calls = cpa_arena_alloc(&recording->arena, (size_t)links.n * sizeof *recording->calls);
	if (!recording->calls)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < links.n; i++) {
		struct cpa_recording_entry *entry = &recording->calls[i];

		if (strlen(links.at[i]) > MAX_CALL_NAME || !is_printable(links.at[i]))
			return cpa_fail(error, CPA_INVALID, "/calls: the name of link number %d is too long or "
				"not printable; expected at most %d printable bytes", i, MAX_CALL_NAME);
		entry->name = links.at[i];
		entry->hard = links.hard[i];
		snprintf(entry->where, sizeof entry->where, "/calls/%s", entry->name);
	}
	recording->ncalls = links.n;
	return CPA_OK;
}

static enum cpa_status adopt(struct cpa_h5 *file, struct cpa_recording **recording,
	struct cpa_error *error)
{
	struct cpa_recording *opened = calloc(1, sizeof *opened);
	enum cpa_status status;

	if (!opened) {
		cpa_h5_close(file);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	}
	opened->file = file;
	cpa_arena_init(&opened->arena);
	status = check_format(opened, error);
	if (status == CPA_OK)
		status = list_calls(opened, error);
	if (status != CPA_OK) {
		cpa_recording_close(opened);
		return status;
	}
	*recording = opened;
	return CPA_OK;
}

/* path, or NULL: the image. */
static enum cpa_status open_unguarded(const char *path, const void *image, size_t nbytes,
	struct cpa_recording **recording, struct cpa_error *error)
{
	struct cpa_h5 *file = NULL;
	enum cpa_status status = path ? cpa_h5_open(path, &file, error)
				      : cpa_h5_open_image(image, nbytes, &file, error);

	return status == CPA_OK ? adopt(file, recording, error) : status;
}

/* In the child: the verdicts do not matter, the parent comes to the same. */
static void look(const char *path, const void *image, size_t nbytes)
{
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call;
	struct cpa_error error;

	if (open_unguarded(path, image, nbytes, &recording, &error) != CPA_OK)
		return;
	recording->structure_only = true;
	for (int i = 0; i < recording->ncalls; i++) {
		(void)cpa_recording_call(recording, i, &call, &error);
		if (!cpa_recording_has(&recording->calls[i].links, "q"))
			cpa_parts_look(recording, i);
	}
	cpa_recording_close(recording);
}

enum cpa_status cpa_recording_open(const char *path, struct cpa_recording **recording,
	struct cpa_error *error)
{
	struct cpa_recording_guard guard = {0};
	enum cpa_status status;
	struct stat info;

	if (stat(path, &info) != 0)
		return cpa_fail(error, CPA_INVALID, "cannot be opened: %s", strerror(errno));
	/* HDF5 would wait for ever on a pipe. */
	if (!S_ISREG(info.st_mode))
		return cpa_fail(error, CPA_INVALID, "not a regular file; expected an HDF5 file");
	status = cpa_recording_guard_start(&guard, look, error);
	if (status == CPA_OK)
		status = cpa_recording_guard_ask(&guard, path, NULL, (size_t)info.st_size, error);
	if (guard.child)
		cpa_recording_guard_stop(&guard);
	return status == CPA_OK ? open_unguarded(path, NULL, 0, recording, error) : status;
}

enum cpa_status cpa_recording_open_image(const void *image, size_t nbytes,
	struct cpa_recording_guard *guard, struct cpa_recording **recording, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	if (!guard->child)
		status = cpa_recording_guard_start(guard, look, error);
	if (status == CPA_OK)
		status = cpa_recording_guard_ask(guard, NULL, image, nbytes, error);
	return status == CPA_OK ? open_unguarded(NULL, image, nbytes, recording, error) : status;
}

void cpa_recording_close(struct cpa_recording *recording)
{
	if (!recording)
		return;
	cpa_h5_close(recording->file);
	cpa_arena_fini(&recording->arena);
	free(recording);
}

/* ---- calls ----------------------------------------------------------------------------------- */

int cpa_recording_ncalls(const struct cpa_recording *recording)
{
	return recording->ncalls;
}

const char *cpa_recording_call_name(const struct cpa_recording *recording, int i)
{
	assert(i >= 0 && i < recording->ncalls);
	return recording->calls[i].name;
}

void cpa_recording_trust(struct cpa_recording *recording)
{
	recording->trusted = true;
}

/* Brings the entry to the stage, or finds again what is wrong with it. */
static enum cpa_status reach(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	enum cpa_recording_stage stage, struct cpa_error *error)
{
	if (entry->stage < CPA_STAGE_SHAPED && entry->status == CPA_OK) {
		entry->status = cpa_recording_shape_call(recording, entry, &entry->error);
		entry->stage = CPA_STAGE_SHAPED;
	}
	if (entry->stage < stage && entry->status == CPA_OK) {
		entry->status = cpa_recording_scan_call(recording, entry, &entry->error);
		entry->stage = CPA_STAGE_JUDGED;
	}
	if (entry->status != CPA_OK)
		*error = entry->error;
	return entry->status;
}

enum cpa_status cpa_recording_call(struct cpa_recording *recording, int i, const struct cpa_call **call,
	struct cpa_error *error)
{
	struct cpa_recording_entry *entry;
	enum cpa_status status;

	assert(i >= 0 && i < recording->ncalls);
	entry = &recording->calls[i];
	status = reach(recording, entry, CPA_STAGE_JUDGED, error);
	if (status != CPA_OK)
		return status;
	entry->call.notes = entry->notes.at;
	*call = &entry->call;
	return CPA_OK;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* One tensor that is being read into dst. */
struct reading {
	const struct cpa_h5_array *array;
	struct cpa_recording_shape shape;
	bool bhsd;
	int64_t per;  /* tokens that fit the buffer */
	void *buffer; /* [per] tokens of one batch item as they lie in the file */
	enum cpa_dtype to;
	char *dst;    /* where the next token goes */
	enum cpa_recording_values allowed;
	const struct cpa_recording_rope *rope; /* NULL: as it is */
};

/* The buffer into dst: nothing moves but for layout and type. */
static void deliver(struct reading *reading, int64_t ntokens)
{
	const struct cpa_recording_shape *shape = &reading->shape;
	const size_t from_row = (size_t)shape->D * cpa_dtype_nbytes(shape->dtype);
	const size_t to_row = (size_t)shape->D * cpa_dtype_nbytes(reading->to);

	if (!reading->bhsd || shape->H == 1) {
		cpa_convert(reading->to, reading->dst, shape->dtype, reading->buffer,
			ntokens * shape->H * shape->D);
	} else {
		for (int64_t h = 0; h < shape->H; h++)
			for (int64_t t = 0; t < ntokens; t++)
				cpa_convert(reading->to,
					reading->dst + (size_t)(t * shape->H + h) * to_row, shape->dtype,
					(char *)reading->buffer + (size_t)(h * ntokens + t) * from_row,
					shape->D);
	}
	reading->dst += (size_t)(ntokens * shape->H) * to_row;
}

/* In the type of the file, so that what is read in another type are the same numbers. */
static void rotate(struct reading *reading, const struct cpa_span *piece)
{
	const struct cpa_recording_shape *shape = &reading->shape;
	const int64_t ntokens = piece->count * piece->width, H = reading->bhsd ? 1 : shape->H;
	const size_t row = (size_t)shape->D * cpa_dtype_nbytes(shape->dtype);

	for (int64_t t = 0; t < ntokens; t++) {
		const int64_t token = piece->start + t / piece->width * piece->stride + t % piece->width;

		for (int64_t h = 0; h < shape->H; h += H)
			cpa_ref_rope(&reading->rope->rope, reading->rope->positions[token], H, shape->dtype,
				(char *)reading->buffer + (size_t)(h * ntokens + t * H) * row);
	}
}

static enum cpa_status check_values(const struct reading *reading, int64_t b, const struct cpa_span *piece,
	const char *when, struct cpa_error *error)
{
	const int64_t n = piece->count * piece->width * reading->shape.H * reading->shape.D;

	if (cpa_recording_first_bad(reading->shape.dtype, reading->buffer, n, reading->allowed) < 0)
		return CPA_OK;
	return cpa_recording_refuse(error, reading->array->where, "tokens %lld to %lld of batch item %lld "
		"hold a NaN or an infinity%s; expected finite numbers", (long long)piece->start,
		(long long)(piece->start + (piece->count - 1) * piece->stride + piece->width - 1),
		(long long)b, when);
}

/* `count` runs of `width` tokens from start, of batch item b. */
static enum cpa_status read_piece(struct reading *reading, int64_t b, struct cpa_span piece,
	struct cpa_error *error)
{
	const struct cpa_recording_shape *shape = &reading->shape;
	const int s = reading->bhsd ? 2 : 1, h = reading->bhsd ? 1 : 2;
	struct cpa_h5_box box = {.start = {b}, .stride = {1, 1, 1, 1}, .count = {1, 1, 1, 1}};
	const int64_t ntokens = piece.count * piece.width;
	enum cpa_status status;

	box.block[0] = 1;
	box.start[s] = piece.start;
	box.stride[s] = piece.stride;
	box.count[s] = piece.count;
	box.block[s] = piece.width;
	box.block[h] = shape->H;
	box.block[3] = shape->D;
	status = cpa_h5_read_box(reading->array, &box, reading->buffer, error);
	if (status != CPA_OK)
		return status;
	status = check_values(reading, b, &piece, "", error);
	if (status == CPA_OK && reading->rope) {
		rotate(reading, &piece);
		status = check_values(reading, b, &piece, " once turned by their positions", error);
	}
	if (status == CPA_OK)
		deliver(reading, ntokens);
	return status;
}

/* Cuts the span into pieces that fit the buffer: whole runs, or parts of one. */
static enum cpa_status read_span(struct reading *reading, int64_t b, struct cpa_span span,
	struct cpa_error *error)
{
	int64_t run = 0, within = 0; /* the next token: run number and place in it */

	while (run < span.count) {
		struct cpa_span piece = {span.start + run * span.stride + within, span.width, span.stride, 1};
		enum cpa_status status;

		if (span.width <= reading->per) {
			piece.count = reading->per / span.width;
			if (piece.count > span.count - run)
				piece.count = span.count - run;
			run += piece.count;
		} else {
			piece.width = span.width - within;
			if (piece.width > reading->per)
				piece.width = reading->per;
			within += piece.width;
			if (within == span.width) {
				within = 0;
				run++;
			}
		}
		status = read_piece(reading, b, piece, error);
		if (status != CPA_OK)
			return status;
	}
	return CPA_OK;
}

static enum cpa_status read_all(struct reading *reading, struct cpa_range batches,
	const struct cpa_spans *tokens, struct cpa_error *error)
{
	const struct cpa_recording_shape *shape = &reading->shape;
	const int64_t ntokens = cpa_spans_ntokens(tokens);
	const int64_t row = shape->H * shape->D * (int64_t)cpa_dtype_nbytes(shape->dtype);
	enum cpa_status status = CPA_OK;

	reading->per = row < CPA_H5_BLOCK_NBYTES ? CPA_H5_BLOCK_NBYTES / row : 1;
	if (reading->per > ntokens)
		reading->per = ntokens;
	if (ntokens == 0)
		return CPA_OK;
	reading->buffer = malloc((size_t)(reading->per * row));
	if (!reading->buffer)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t b = batches.start; b < batches.end; b++)
		for (int i = 0; i < tokens->n && status == CPA_OK; i++)
			status = read_span(reading, b, tokens->at[i], error);
	free(reading->buffer);
	return status;
}

/* Opens path/tensor, reads batches x tokens of it and closes it. */
static enum cpa_status read_tensor(struct cpa_recording *recording, const struct cpa_recording_entry *entry,
	const char *path, const char *tensor, struct reading *reading, struct cpa_range batches,
	const struct cpa_spans *tokens, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	reading->bhsd = entry->bhsd;
	status = cpa_recording_tensor(recording, entry, path, tensor, &array, &reading->shape, error);
	if (status != CPA_OK)
		return status;
	assert(batches.start >= 0 && batches.end <= reading->shape.B);
	assert(tokens->n == 0 ||
	       (cpa_spans_min(tokens) >= 0 && cpa_spans_max(tokens) < reading->shape.S));
	reading->array = &array;
	status = read_all(reading, batches, tokens, error);
	cpa_h5_array_close(&array);
	return status;
}

enum cpa_status cpa_recording_read(struct cpa_recording *recording, int i, const char *tensor,
	struct cpa_range batches, const struct cpa_spans *tokens, enum cpa_dtype to, void *dst,
	struct cpa_error *error)
{
	struct reading reading = {
		.to = to, .dst = dst, .allowed = cpa_recording_allowed(tensor, false)};
	struct cpa_recording_entry *entry;
	enum cpa_status status;

	assert(i >= 0 && i < recording->ncalls);
	assert(strcmp(tensor, "lse") == 0 || (strlen(tensor) == 1 && strchr("qkvo", *tensor)));
	entry = &recording->calls[i];
	status = reach(recording, entry, CPA_STAGE_SHAPED, error);
	if (status != CPA_OK)
		return status;
	if (!cpa_recording_has(&entry->links, tensor))
		return cpa_fail(error, CPA_INVALID, "%s/%s: missing, and asked for", entry->where, tensor);
	reading.rope = *tensor == 'q' ? &entry->rope_q : &entry->rope_k;
	if ((*tensor != 'q' && *tensor != 'k') || !reading.rope->positions)
		reading.rope = NULL;
	return read_tensor(recording, entry, entry->where, tensor, &reading, batches, tokens, error);
}

enum cpa_status cpa_recording_read_stored(struct cpa_recording *recording, int i, const char *tensor,
	enum cpa_dtype to, void *dst, const struct cpa_rope **rope, const int64_t **positions,
	struct cpa_error *error)
{
	struct cpa_recording_entry *entry = &recording->calls[i];
	const struct cpa_recording_rope *it = *tensor == 'q' ? &entry->rope_q : &entry->rope_k;
	struct reading reading = {
		.to = to, .dst = dst, .allowed = cpa_recording_allowed(tensor, false)};
	const struct cpa_problem *p = &entry->call.problem;
	int64_t S = *tensor == 'q' ? p->Sq : p->Skv;
	struct cpa_span span = {0, S, S, 1};
	struct cpa_spans all = {&span, 1, 1};

	assert(entry->call.has_positions);
	*rope = &it->rope;
	*positions = it->positions;
	return read_tensor(recording, entry, entry->where, tensor, &reading,
		(struct cpa_range){0, p->B}, &all, error);
}

enum cpa_status cpa_recording_read_held(struct cpa_recording *recording, int i, const struct cpa_held *held,
	enum cpa_dtype to, void *dst, struct cpa_error *error)
{
	struct cpa_span all = {0, held->ntokens, held->ntokens, 1};
	struct cpa_spans tokens = {.at = &all, .n = held->ntokens > 0};
	struct reading reading = {
		.to = to, .dst = dst, .allowed = cpa_recording_allowed(held->tensor, true)};
	char path[CPA_H5_WHERE];

	assert(i >= 0 && i < recording->ncalls);
	snprintf(path, sizeof path, "%s/ranks/%d", recording->calls[i].where, held->rank);
	return read_tensor(recording, &recording->calls[i], path, held->tensor, &reading,
		(struct cpa_range){0, held->nbatches}, &tokens, error);
}
