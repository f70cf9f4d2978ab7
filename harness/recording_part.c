/*
 * recording_part.c - reads what single ranks recorded: which files hold what, not the tensors.
 */
#include "harness/recording_part.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids and lengths beyond this are damage, and their products would overflow. */
static const int64_t max_ids = INT64_C(1) << 40;

static const char *const tensor_names[CPA_PART_NTENSORS] = {"q", "k", "v", "o", "lse"};
static const char *const mask_axes[4] = {"batches", "heads", "tokens", "keys"};

const char *cpa_part_tensor_name(int tensor)
{
	return tensor_names[tensor];
}

int64_t cpa_part_id(const struct cpa_recording_axis *axis, int64_t i)
{
	for (int64_t n = 0; n < axis->nrows; n++) {
		const int64_t *row = &axis->rows[3 * n];

		if (i < row[1])
			return row[0] < 0 ? -1 : row[0] + i * row[2];
		i -= row[1];
	}
	return -1;
}

bool cpa_part_same_ids(
	const struct cpa_recording_axis *a, const struct cpa_recording_axis *b)
{
	bool same = a->total == b->total;

	for (int64_t i = 0; i < a->total && same; i++)
		same = cpa_part_id(a, i) == cpa_part_id(b, i);
	return same;
}

/* ---- tensors ---------------------------------------------------------------------------------
 */

/* Entries 0 .. n-1. */
static enum cpa_status all_of(struct cpa_arena *arena, int64_t n, struct cpa_recording_axis *axis,
	struct cpa_error *error)
{
	axis->nrows = 1;
	axis->total = n;
	axis->rows = cpa_arena_alloc(arena, 3 * sizeof *axis->rows);
	if (!axis->rows)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	axis->rows[1] = n;
	axis->rows[2] = 1;
	return CPA_OK;
}

static enum cpa_status survey_axis(struct cpa_recording *recording, const struct cpa_part *part,
	const char *dataset, bool required, int64_t stored, struct cpa_recording_axis *axis,
	struct cpa_error *error)
{
	enum cpa_status status;

	axis->limit = max_ids;
	cpa_recording_join(axis->where, dataset, '@', axis->name);
	if (part->whole ||
		(!required && !cpa_h5_attribute_exists(recording->file, dataset, axis->name) &&
			!cpa_h5_attribute_exists(recording->file, part->where, axis->name)))
		return all_of(&recording->arena, stored, axis, error);
	status = cpa_recording_axis_read(recording, part->where, dataset, required, axis, error);
	if (status == CPA_OK && axis->total != stored)
		return cpa_recording_refuse(error, axis->where,
			"says %lld %s; expected %lld, what %s has", (long long)axis->total,
			axis->name, (long long)stored, dataset);
	return status;
}

static enum cpa_status survey_tensor(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, struct cpa_part *part, int n,
	struct cpa_error *error)
{
	struct cpa_part_tensor *tensor = &part->tensors[n];
	char dataset[CPA_H5_WHERE];
	struct cpa_h5_array array;
	enum cpa_status status;

	cpa_recording_join(dataset, part->where, '/', tensor_names[n]);
	status = cpa_recording_tensor(
		recording, entry, part->where, tensor_names[n], &array, &tensor->shape, error);
	if (status != CPA_OK)
		return status;
	cpa_h5_array_close(&array);
	if (tensor->shape.D < 1)
		return cpa_recording_refuse(
			error, dataset, "has vectors of 0; expected 1 or more");
	const int64_t stored[3] = {tensor->shape.B, tensor->shape.S, tensor->shape.H};
	for (int i = 0; i < 3 && status == CPA_OK; i++) {
		static const char *const names[3] = {"batches", "tokens", "heads"};

		tensor->axes[i].name = names[i];
		status = survey_axis(
			recording, part, dataset, i == 1, stored[i], &tensor->axes[i], error);
	}
	tensor->there = true;
	return status;
}

static enum cpa_status survey_mask_axes(struct cpa_recording *recording, struct cpa_part *part,
	const char *dataset, struct cpa_error *error)
{
	struct cpa_part_mask *mask = &part->mask;
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < 4 && status == CPA_OK; i++) {
		struct cpa_recording_axis *axis = &mask->axes[i];

		axis->name = mask_axes[i];
		axis->limit = max_ids;
		/* Those of the group are about tensors: a mask says its own. */
		mask->said[i] = !part->whole &&
			cpa_h5_attribute_exists(recording->file, dataset, mask_axes[i]);
		if (!mask->said[i])
			continue;
		status = cpa_recording_axis_read(recording, dataset, dataset, true, axis, error);
		if (status == CPA_OK && axis->total != mask->dims[i])
			return cpa_recording_refuse(error, axis->where,
				"says %lld; expected %lld, what the "
				"mask has",
				(long long)axis->total, (long long)mask->dims[i]);
	}
	return status;
}

static enum cpa_status survey_mask(
	struct cpa_recording *recording, struct cpa_part *part, struct cpa_error *error)
{
	struct cpa_part_mask *mask = &part->mask;
	char dataset[CPA_H5_WHERE];
	struct cpa_h5_array array;
	enum cpa_status status;

	cpa_recording_join(dataset, part->where, '/', "mask");
	if (cpa_h5_object(recording->file, dataset) != CPA_H5_DATASET)
		return cpa_recording_refuse(
			error, dataset, "not a dataset; expected truth values or floats");
	status = cpa_h5_array_open(recording->file, dataset, NULL, &array, error);
	if (status != CPA_OK)
		return status;
	cpa_h5_array_close(&array);
	if ((array.class != CPA_H5_FLOAT && array.class != CPA_H5_INTEGER &&
		    array.class != CPA_H5_TRUTH) ||
		array.rank < 1 || array.rank > 4)
		return cpa_recording_refuse(error, dataset,
			"has %d dimensions of type %s; expected 1 to 4 of "
			"truth values or floats",
			array.rank, array.type);
	mask->class = array.class;
	mask->dtype = array.dtype;
	mask->rank = array.rank;
	for (int i = 0; i < 4; i++)
		mask->dims[i] = i < 4 - array.rank ? 1 : array.dims[i - (4 - array.rank)];
	mask->there = true;
	return survey_mask_axes(recording, part, dataset, error);
}

static enum cpa_status survey_part(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, struct cpa_part *part, struct cpa_error *error)
{
	struct cpa_h5_names links;
	enum cpa_status status = cpa_recording_group(recording, part->where, &links, error);

	for (int i = 0; i < CPA_PART_NTENSORS && status == CPA_OK; i++)
		if (cpa_recording_has(&links, tensor_names[i]))
			status = survey_tensor(recording, entry, part, i, error);
	if (status == CPA_OK && cpa_recording_has(&links, "mask"))
		status = survey_mask(recording, part, error);
	return status;
}

/* ---- calls -----------------------------------------------------------------------------------
 */

static struct cpa_part *add(struct cpa_parts *parts)
{
	if (parts->n == parts->capacity) {
		int capacity = parts->capacity ? 2 * parts->capacity : 64;
		struct cpa_part *at = realloc(parts->at, (size_t)capacity * sizeof *at);

		if (!at)
			return NULL;
		parts->at = at;
		parts->capacity = capacity;
	}
	parts->at[parts->n] = (struct cpa_part){.world = 1};
	return &parts->at[parts->n++];
}

static enum cpa_status survey_ranks(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, const char *file, struct cpa_parts *parts,
	struct cpa_error *error)
{
	char ranks[CPA_H5_WHERE / 2 + 20];
	struct cpa_h5_names links;
	int64_t world = 0;
	enum cpa_status status;
	bool present;

	snprintf(ranks, sizeof ranks, "%s/ranks", entry->where);
	status = cpa_recording_group(recording, ranks, &links, error);
	if (status == CPA_OK)
		status = cpa_recording_integers(
			recording, ranks, "world_size", false, 1, &world, &present, error);
	if (status == CPA_OK && (world < 1 || world > CPA_H5_MAX_NAMES))
		return cpa_recording_refuse(error, ranks,
			"world_size is %s; expected the number of ranks of "
			"the run",
			present ? "out of range" : "missing");
	for (int i = 0; i < links.n && status == CPA_OK; i++) {
		const int64_t rank = cpa_recording_rank_number(links.at[i]);
		struct cpa_part *part;

		if (rank == -1)
			continue;
		if (rank < 0 || rank >= world)
			return cpa_fail(error, CPA_INVALID,
				"%s/%.60s: expected a rank of 0 to %lld, in "
				"decimal without leading zeros",
				ranks, links.at[i], (long long)world - 1);
		if (!(part = add(parts)))
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		part->file = file;
		part->call = entry->name;
		part->rank = (int)rank;
		part->world = (int)world;
		part->bhsd = entry->bhsd;
		snprintf(part->where, sizeof part->where, "%s/%s", ranks, links.at[i]);
		status = survey_part(recording, entry, part, error);
	}
	return status;
}

static enum cpa_status survey_call(struct cpa_recording *recording, int i, const char *file,
	struct cpa_parts *parts, struct cpa_error *error)
{
	struct cpa_recording_entry *entry = &recording->calls[i];
	enum cpa_status status = cpa_recording_open_call(recording, entry, error);
	const bool whole = status == CPA_OK && cpa_recording_has(&entry->links, "q");
	struct cpa_part *part;

	if (status != CPA_OK)
		return status;
	if (whole && cpa_recording_has(&entry->links, "ranks"))
		return cpa_recording_refuse(error, entry->where,
			"holds q, k, v and ranks: it has been merged "
			"already; expected what ranks recorded on their own");
	if (!whole && !cpa_recording_has(&entry->links, "ranks"))
		return cpa_recording_refuse(error, entry->where,
			"holds neither q nor ranks; expected what a "
			"rank recorded");
	if (!whole)
		return survey_ranks(recording, entry, file, parts, error);
	if (!(part = add(parts)))
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	part->file = file;
	part->call = entry->name;
	part->whole = true;
	part->bhsd = entry->bhsd;
	snprintf(part->where, sizeof part->where, "%s", entry->where);
	return survey_part(recording, entry, part, error);
}

/* ---- files -----------------------------------------------------------------------------------
 */

/* The lists that were made from the file outlive it. */
static enum cpa_status keep_arena(
	struct cpa_parts *parts, struct cpa_recording *recording, struct cpa_error *error)
{
	struct cpa_arena *arenas = realloc(
		parts->arenas, ((size_t)parts->narenas + 1) * sizeof *arenas);

	if (!arenas)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	parts->arenas = arenas;
	arenas[parts->narenas++] = recording->arena;
	cpa_arena_init(&recording->arena);
	return CPA_OK;
}

/* "FILE: sentence" */
static enum cpa_status in_file(const char *file, enum cpa_status status, struct cpa_error *error)
{
	struct cpa_error inner = *error;

	return status == CPA_OK ? CPA_OK
				: cpa_fail(error, status, "%.300s: %s", file, inner.text);
}

enum cpa_status cpa_parts_add(
	struct cpa_parts *parts, const char *path, const char *glob, struct cpa_error *error)
{
	struct cpa_recording *recording;
	enum cpa_status status = cpa_recording_open(path, &recording, error);
	char *file;

	if (status != CPA_OK)
		return in_file(path, status, error);
	file = cpa_arena_alloc(&recording->arena, strlen(path) + 1);
	if (file)
		strcpy(file, path);
	else
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < recording->ncalls && status == CPA_OK; i++)
		if (!glob || fnmatch(glob, recording->calls[i].name, 0) == 0)
			status = survey_call(recording, i, file, parts, error);
	if (status == CPA_OK && recording->arena.failed)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	status = in_file(path, status, error);
	if (status == CPA_OK)
		status = keep_arena(parts, recording, error);
	cpa_recording_close(recording);
	return status;
}

void cpa_parts_look(struct cpa_recording *recording, int i)
{
	struct cpa_recording_entry *entry = &recording->calls[i];
	struct cpa_parts parts = {0};
	struct cpa_error ignored;

	if (survey_call(recording, i, "", &parts, &ignored) == CPA_OK && parts.n > 0 &&
		!parts.at[0].whole) {
		const struct cpa_part *part = &parts.at[0];

		entry->call.problem = (struct cpa_problem){.B = part->tensors[0].shape.B,
			.Sq = part->tensors[0].shape.S,
			.Skv = part->tensors[1].shape.S,
			.Hq = part->tensors[0].shape.H,
			.Hkv = part->tensors[1].shape.H,
			.D = part->tensors[0].shape.D,
			.Dv = part->tensors[2].shape.D};
		(void)cpa_recording_say_call(recording, entry, &ignored);
		if (cpa_recording_has(&entry->links, "config"))
			(void)cpa_recording_config(recording, entry, 0, &ignored);
	}
	free(parts.at);
}

static int by_call_and_rank(const void *a, const void *b)
{
	const struct cpa_part *x = a, *y = b;
	const int calls = strcmp(x->call, y->call);

	return calls		     ? calls
		: x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
				     : strcmp(x->file, y->file);
}

void cpa_parts_sort(struct cpa_parts *parts)
{
	if (parts->n > 0)
		qsort(parts->at, (size_t)parts->n, sizeof *parts->at, by_call_and_rank);
}

void cpa_parts_fini(struct cpa_parts *parts)
{
	for (int i = 0; i < parts->narenas; i++)
		cpa_arena_fini(&parts->arenas[i]);
	free(parts->arenas);
	free(parts->at);
	*parts = (struct cpa_parts){0};
}

/* ---- what is said of the call ----------------------------------------------------------------
 */

/* String attributes that no rule reads (model, layer, note, ...) are carried along. */
static enum cpa_status read_texts(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, struct cpa_part *part, struct cpa_error *error)
{
	const struct cpa_h5_names *names = &entry->attributes;
	const char **texts = cpa_arena_alloc(
		&recording->arena, (2 * (size_t)names->n + 1) * sizeof *texts);

	for (int i = 0; texts && i < names->n; i++) {
		struct cpa_h5_array array;
		enum cpa_status status;

		if (strcmp(names->at[i], "layout") == 0 || strcmp(names->at[i], "dtype") == 0)
			continue;
		status = cpa_h5_array_open(
			recording->file, entry->where, names->at[i], &array, error);
		if (status == CPA_OK && array.class == CPA_H5_STRING && array.count == 1) {
			texts[2 * part->ntexts] = names->at[i];
			status = cpa_h5_read_strings(
				&array, &recording->arena, &texts[2 * part->ntexts + 1], error);
			part->ntexts++;
		}
		if (status != CPA_OK)
			return status;
		cpa_h5_array_close(&array);
	}
	part->texts = texts;
	return texts ? CPA_OK : cpa_fail(error, CPA_NO_MEMORY, "out of memory");
}

static enum cpa_status say(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_part *part, struct cpa_error *error)
{
	enum cpa_status status = cpa_recording_open_call(recording, entry, error);

	if (status == CPA_OK)
		status = cpa_recording_say_call(recording, entry, error);
	if (status == CPA_OK)
		status = cpa_recording_sink_data(recording, entry, error);
	if (status == CPA_OK && cpa_recording_has(&entry->links, "config"))
		status = cpa_recording_config(recording, entry, part->world, error);
	if (status == CPA_OK && entry->call.has_positions)
		status = cpa_recording_refuse(error, entry->where,
			"has positions, which merging does not carry; "
			"record q and k as attention takes them");
	if (status == CPA_OK)
		status = read_texts(recording, entry, part, error);
	part->said = entry->call;
	return status;
}

enum cpa_status cpa_parts_say(struct cpa_parts *parts, struct cpa_part *part,
	const struct cpa_problem *sizes, struct cpa_error *error)
{
	struct cpa_recording *recording;
	enum cpa_status status = cpa_recording_open(part->file, &recording, error);
	int i = 0;

	if (status != CPA_OK)
		return in_file(part->file, status, error);
	while (i < recording->ncalls && strcmp(recording->calls[i].name, part->call) != 0)
		i++;
	if (i == recording->ncalls) {
		status = cpa_fail(error, CPA_INVALID, "/calls/%.200s: is gone", part->call);
	} else {
		recording->calls[i].call.problem = *sizes;
		status = say(recording, &recording->calls[i], part, error);
	}
	status = in_file(part->file, status, error);
	if (status == CPA_OK)
		status = keep_arena(parts, recording, error);
	cpa_recording_close(recording);
	return status;
}
