/*
 * recording_ranks.c - the rules for what the ranks of a distributed run held: spans, and that their
 * outputs cover every (batch item, token, head) exactly once.
 */
#include "harness/recording_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NTENSORS = 5 }; /* that a rank may hold */

/* ---- spans ----------------------------------------------------------------------------------- */

static enum cpa_status check_row(const struct cpa_recording_axis *axis, int64_t i, struct cpa_error *error)
{
	const int64_t start = axis->rows[3 * i], count = axis->rows[3 * i + 1],
		      stride = axis->rows[3 * i + 2];
	bool padding = start == -1 && stride == 0;

	if (count < 0 || (!padding && (start < 0 || stride < 1)))
		return cpa_recording_refuse(error, axis->where, "row [%lld] is (%lld, %lld, %lld); expected "
			"(start >= 0, count >= 0, stride >= 1), or (-1, count, 0) for padding", (long long)i,
			(long long)start, (long long)count, (long long)stride);
	if (!padding && count > 0 && (start >= axis->limit ||
	    (count > 1 && (axis->limit - 1 - start) / stride < count - 1)))
		return cpa_recording_refuse(error, axis->where, "row [%lld] is (%lld, %lld, %lld), which "
			"leaves 0 to %lld, what the call has", (long long)i, (long long)start,
			(long long)count, (long long)stride, (long long)axis->limit - 1);
	if (count > INT64_MAX / 4 || axis->total > INT64_MAX / 4)
		return cpa_recording_refuse(error, axis->where, "more entries than can be counted");
	return CPA_OK;
}

static enum cpa_status read_rows(struct cpa_recording *recording, const struct cpa_h5_array *array,
	struct cpa_recording_axis *axis, struct cpa_error *error)
{
	char dims[100];
	enum cpa_status status = CPA_OK;

	if (array->class != CPA_H5_INTEGER || array->rank != 2 || array->dims[1] != 3) {
		cpa_recording_print_dims(array, dims, sizeof dims);
		return cpa_recording_refuse(error, array->where, "has the shape %s of type %s; expected "
			"integers [n,3]: rows (start, count, stride)", dims, array->type);
	}
	axis->nrows = array->dims[0];
	axis->rows = cpa_arena_alloc(&recording->arena, ((size_t)array->count + 1) * sizeof(int64_t));
	if (!axis->rows)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	if (array->count > 0)
		status = cpa_h5_read_integers(array, 0, array->count, axis->rows, error);
	for (int64_t i = 0; i < axis->nrows && status == CPA_OK; i++) {
		status = check_row(axis, i, error);
		axis->total += axis->rows[3 * i + 1];
	}
	return status;
}

enum cpa_status cpa_recording_axis_read(struct cpa_recording *recording, const char *rank,
	const char *dataset, bool required, struct cpa_recording_axis *axis, struct cpa_error *error)
{
	const char *path = cpa_h5_attribute_exists(recording->file, dataset, axis->name) ? dataset : rank;
	struct cpa_h5_array array;
	enum cpa_status status;

	axis->total = 0;
	cpa_recording_join(axis->where, path, '@', axis->name);
	if (path == rank && !cpa_h5_attribute_exists(recording->file, rank, axis->name)) {
		if (required)
			return cpa_recording_refuse(error, axis->where, "missing; expected the tokens that "
				"this rank holds, rows (start, count, stride)");
		axis->nrows = 1;
		axis->total = axis->limit;
		axis->rows = cpa_arena_alloc(&recording->arena, 3 * sizeof(int64_t));
		if (!axis->rows)
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		axis->rows[1] = axis->limit;
		axis->rows[2] = 1;
		return CPA_OK;
	}
	status = cpa_h5_array_open(recording->file, path, axis->name, &array, error);
	if (status != CPA_OK)
		return status;
	status = read_rows(recording, &array, axis, error);
	cpa_h5_array_close(&array);
	return status;
}

/* ---- coverage -------------------------------------------------------------------------------- */

/* One bit for each (batch item, token, head) of o. */
struct cover {
	const struct cpa_call *call;
	unsigned char *held;
	bool *replicated; /* [Sq] */
	bool any;         /* some rank has an o */
	int rank;         /* that is being looked at */
};

static enum cpa_status cover_init(struct cover *cover, const struct cpa_call *call,
	struct cpa_error *error)
{
	const struct cpa_problem *problem = &call->problem;
	int64_t nbits = problem->B * problem->Sq * problem->Hq, token = 0;

	cover->call = call;
	cover->held = calloc((size_t)(nbits / 8 + 1), 1);
	cover->replicated = calloc((size_t)problem->Sq, sizeof *cover->replicated);
	if (!cover->held || !cover->replicated)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < call->nsegments; i++)
		for (int64_t n = 0; n < call->segments[i].length; n++)
			cover->replicated[token++] = call->segments[i].replicated;
	return CPA_OK;
}

static enum cpa_status cover_one(struct cover *cover, const char *rank, int64_t b, int64_t t, int64_t h,
	struct cpa_error *error)
{
	const struct cpa_problem *problem = &cover->call->problem;
	int64_t bit = (b * problem->Sq + t) * problem->Hq + h;
	unsigned char mask = (unsigned char)(1u << (bit % 8));

	if ((cover->held[bit / 8] & mask) && !cover->replicated[t])
		return cpa_recording_refuse(error, rank, "holds token %lld (batch item %lld, head %lld) of o, "
			"which was held already; expected each exactly once over all ranks", (long long)t,
			(long long)b, (long long)h);
	cover->held[bit / 8] |= mask;
	return CPA_OK;
}

/* Marks rows x rows x rows; padding is none of them.  Rows stay within the problem: see check_row(). */
static enum cpa_status cover_box(struct cover *cover, const char *rank, const struct cpa_recording_axis axes[3],
	struct cpa_error *error)
{
	const struct cpa_recording_axis *batches = &axes[0], *tokens = &axes[1], *heads = &axes[2];
	enum cpa_status status = CPA_OK;

	cover->any = true;
	for (int64_t i = 0; i < batches->nrows * tokens->nrows * heads->nrows; i++) {
		const int64_t *b = &batches->rows[3 * (i / heads->nrows / tokens->nrows)];
		const int64_t *t = &tokens->rows[3 * (i / heads->nrows % tokens->nrows)];
		const int64_t *h = &heads->rows[3 * (i % heads->nrows)];
		int64_t n = b[0] < 0 || t[0] < 0 || h[0] < 0 || h[1] == 0 ? 0 : b[1] * t[1];

		for (int64_t j = 0; j < n; j++)
			for (int64_t k = 0; k < h[1] && status == CPA_OK; k++)
				status = cover_one(cover, rank, b[0] + j / t[1] * b[2],
					t[0] + j % t[1] * t[2], h[0] + k * h[2], error);
		if (status != CPA_OK)
			return status;
	}
	return CPA_OK;
}

static enum cpa_status cover_check(const struct cover *cover, const char *ranks, struct cpa_error *error)
{
	const struct cpa_problem *problem = &cover->call->problem;
	int64_t nbits = problem->B * problem->Sq * problem->Hq;

	for (int64_t bit = 0; bit < nbits && cover->any; bit++)
		if (!(cover->held[bit / 8] >> (bit % 8) & 1))
			return cpa_recording_refuse(error, ranks, "no rank holds token %lld (batch item %lld, "
				"head %lld) of o; expected each exactly once over all ranks",
				(long long)(bit / problem->Hq % problem->Sq),
				(long long)(bit / problem->Hq / problem->Sq), (long long)(bit % problem->Hq));
	return CPA_OK;
}

/* ---- what was held --------------------------------------------------------------------------- */

/* The ids of an axis one by one. */
static const int64_t *list_ids(struct cpa_arena *arena, const struct cpa_recording_axis *axis)
{
	int64_t *ids = cpa_arena_alloc(arena, ((size_t)axis->total + 1) * sizeof *ids), n = 0;

	for (int64_t i = 0; ids && i < axis->nrows; i++)
		for (int64_t j = 0; j < axis->rows[3 * i + 1]; j++)
			ids[n++] = axis->rows[3 * i] + j * axis->rows[3 * i + 2];
	return ids;
}

/* axes: batches, tokens, heads. */
static enum cpa_status keep_held(struct cpa_recording *recording, struct cpa_recording_entry *entry, int rank,
	const char *name, const struct cpa_recording_shape *shape, const struct cpa_recording_axis axes[3],
	struct cpa_error *error)
{
	struct cpa_held *held = &entry->held[entry->call.nheld];

	*held = (struct cpa_held){.rank = rank, .dtype = shape->dtype, .nbatches = shape->B,
		.ntokens = shape->S, .nheads = shape->H, .dim = shape->D};
	snprintf(held->tensor, sizeof held->tensor, "%s", name);
	held->batches = list_ids(&recording->arena, &axes[0]);
	held->tokens = list_ids(&recording->arena, &axes[1]);
	held->heads = list_ids(&recording->arena, &axes[2]);
	if (recording->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	entry->call.nheld++;
	return CPA_OK;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The spans of one dataset against its shape; o also into cover. */
static enum cpa_status judge_spans(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, const char *rank, const char *name,
	const struct cpa_recording_shape *shape, struct cover *cover, struct cpa_error *error)
{
	const struct cpa_problem *problem = &entry->call.problem;
	const bool keys = strcmp(name, "k") == 0 || strcmp(name, "v") == 0;
	const int64_t stored[3] = {shape->B, shape->S, shape->H};
	struct cpa_recording_axis axes[3] = {
		{.name = "batches", .limit = problem->B},
		{.name = "tokens", .limit = keys ? problem->Skv : problem->Sq},
		{.name = "heads", .limit = keys ? problem->Hkv : problem->Hq},
	};
	char dataset[CPA_H5_WHERE];
	enum cpa_status status;

	cpa_recording_join(dataset, rank, '/', name);
	for (int i = 0; i < 3; i++) {
		status = cpa_recording_axis_read(recording, rank, dataset, i == 1, &axes[i],
			error);
		if (status != CPA_OK)
			return status;
		if (axes[i].total != stored[i])
			return cpa_recording_refuse(error, axes[i].where, "says %lld %s; expected %lld, what "
				"%s has", (long long)axes[i].total, axes[i].name, (long long)stored[i],
				dataset);
	}
	status = keep_held(recording, entry, cover->rank, name, shape, axes, error);
	if (status != CPA_OK || strcmp(name, "o") != 0)
		return status;
	return cover_box(cover, rank, axes, error);
}

static enum cpa_status judge_tensor(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *rank, const char *name, struct cover *cover, struct cpa_error *error)
{
	const struct cpa_problem *problem = &entry->call.problem;
	const bool lse = strcmp(name, "lse") == 0;
	const int64_t D = lse ? 1 : *name == 'q' || *name == 'k' ? problem->D : problem->Dv;
	struct cpa_recording_shape shape;
	struct cpa_h5_array array;
	enum cpa_status status;

	status = cpa_recording_tensor(recording, entry, rank, name, &array, &shape, error);
	if (status != CPA_OK)
		return status;
	if (shape.D != D)
		status = cpa_recording_refuse(error, array.where, "has vectors of %lld; expected %lld, as the "
			"call", (long long)shape.D, (long long)D);
	else if (lse && shape.dtype != CPA_DTYPE_FP32 && shape.dtype != CPA_DTYPE_FP64)
		status = cpa_recording_refuse(error, array.where, "is of type %s; expected float32 or float64",
			array.type);
	else
		status = judge_spans(recording, entry, rank, name, &shape, cover, error);
	if (status == CPA_OK)
		status = cpa_recording_scan(
			recording, &array, cpa_recording_allowed(name, true), error);
	cpa_h5_array_close(&array);
	return status;
}

static enum cpa_status judge_rank(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *ranks, const char *number, struct cover *cover, struct cpa_error *error)
{
	static const char *const known[NTENSORS + 1] = {"q", "k", "v", "o", "lse", NULL};
	char path[CPA_H5_WHERE], prefix[40];
	struct cpa_h5_names links;
	enum cpa_status status;

	cpa_recording_join(path, ranks, '/', number);
	status = cpa_recording_group(recording, path, &links, error);
	for (int i = 0; known[i] && status == CPA_OK; i++)
		if (cpa_recording_has(&links, known[i]))
			status = judge_tensor(recording, entry, path, known[i], cover, error);
	snprintf(prefix, sizeof prefix, "ranks/%.12s/", number);
	cpa_recording_note_unknown(entry, &links, known, prefix);
	return status;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

int64_t cpa_recording_rank_number(const char *name)
{
	size_t n = strspn(name, "0123456789");

	if (n == 0 || name[n] != '\0')
		return -1;
	if (n > 9 || (n > 1 && name[0] == '0'))
		return -2;
	return strtol(name, NULL, 10);
}

/* Which links are ranks: at[r] is the name of rank r, NULL where the file has none. */
struct rank_list {
	int64_t world;
	bool subset;
	const char **at;
};

static enum cpa_status number_ranks(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *ranks, const struct cpa_h5_names *links, struct rank_list *list,
	struct cpa_error *error)
{
	int nranks = 0;

	list->at = cpa_arena_alloc(&recording->arena, ((size_t)list->world + 1) * sizeof *list->at);
	if (!list->at)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < links->n; i++) {
		int64_t r = cpa_recording_rank_number(links->at[i]);

		if (r == -1)
			continue;
		if (r < 0 || r >= list->world)
			return cpa_fail(error, CPA_INVALID, "%s/%.60s: expected the ranks 0 to %lld, in "
				"decimal without leading zeros and without gaps", ranks, links->at[i],
				(long long)list->world - 1);
		list->at[r] = links->at[i];
		nranks++;
	}
	list->subset = nranks < list->world;
	entry->call.nranks = nranks;
	return CPA_OK;
}

static enum cpa_status list_ranks(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *ranks, struct rank_list *list, struct cpa_error *error)
{
	static const char *const none[] = {NULL};
	struct cpa_h5_names links, unknown = {0};
	enum cpa_status status;
	bool present;

	status = cpa_recording_group(recording, ranks, &links, error);
	if (status != CPA_OK)
		return status;
	for (int i = 0; i < links.n; i++) {
		if (cpa_recording_rank_number(links.at[i]) == -1) {
			unknown = (struct cpa_h5_names){1, &links.at[i], &links.hard[i]};
			cpa_recording_note_unknown(entry, &unknown, none, "ranks/");
		} else {
			list->world++;
		}
	}
	status = cpa_recording_integers(recording, ranks, "world_size", false, 1, &list->world, &present,
		error);
	if (status != CPA_OK)
		return status;
	if (list->world < 1 || list->world > CPA_H5_MAX_NAMES)
		return cpa_recording_refuse(error, ranks, "%lld ranks%s; expected 1 to %d",
			(long long)list->world, present ? " (world_size)" : "", (int)CPA_H5_MAX_NAMES);
	return number_ranks(recording, entry, ranks, &links, list, error);
}

static enum cpa_status judge_ranks(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct rank_list *list, struct cpa_error *error)
{
	char ranks[CPA_H5_WHERE];
	struct cover cover = {0};
	enum cpa_status status;

	cpa_recording_join(ranks, entry->where, '/', "ranks");
	status = list_ranks(recording, entry, ranks, list, error);
	if (status == CPA_OK)
		status = cover_init(&cover, &entry->call, error);
	entry->call.world = (int)list->world;
	entry->held = cpa_arena_alloc(&recording->arena,
		((size_t)entry->call.nranks * NTENSORS + 1) * sizeof *entry->held);
	entry->call.held = entry->held;
	if (status == CPA_OK && !entry->held)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t r = 0; status == CPA_OK && r < list->world; r++) {
		cover.rank = (int)r;
		if (list->at[r])
			status = judge_rank(recording, entry, ranks, list->at[r], &cover, error);
	}
	if (status == CPA_OK && !list->subset)
		status = cover_check(&cover, ranks, error);
	free(cover.held);
	free(cover.replicated);
	return status;
}

enum cpa_status cpa_recording_ranks(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct rank_list list = {0};
	enum cpa_status status = CPA_OK;

	if (cpa_recording_has(&entry->links, "ranks"))
		status = judge_ranks(recording, entry, &list, error);
	if (status == CPA_OK && cpa_recording_has(&entry->links, "config"))
		status = cpa_recording_config(recording, entry, list.world, error);
	return status;
}
