/*
 * recording_keys.c - what in a call decides which keys a query sees, and how the sequence is made up:
 * key lengths, documents, segments, positions.
 */
#include "harness/recording_rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SEGMENTS = 4096, INTEGERS_AT_ONCE = 4096 };

/* Opens path/name, a dataset of one dimension and of a class. */
static enum cpa_status open_list(struct cpa_recording *recording, const char *path, const char *name,
	enum cpa_h5_class class, struct cpa_h5_array *array, struct cpa_error *error)
{
	const char *wanted = class == CPA_H5_INTEGER ? "integers"
			     : class == CPA_H5_FLOAT ? "floats"
						     : "strings";
	char where[CPA_H5_WHERE];
	enum cpa_status status;

	cpa_recording_join(where, path, '/', name);
	if (cpa_h5_object(recording->file, where) != CPA_H5_DATASET)
		return cpa_recording_refuse(error, where, "missing or not a dataset; expected a list of %s",
			wanted);
	status = cpa_h5_array_open(recording->file, where, NULL, array, error);
	if (status != CPA_OK)
		return status;
	if (array->rank == 1 && array->class == class)
		return CPA_OK;
	cpa_h5_array_close(array);
	return cpa_recording_refuse(error, where, "has %d dimensions of type %s; expected one of %s",
		array->rank, array->type, wanted);
}

/* Like open_list(), but n elements. */
static enum cpa_status open_exact(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *name, enum cpa_h5_class class, int64_t n, struct cpa_h5_array *array,
	struct cpa_error *error)
{
	enum cpa_status status = open_list(recording, entry->where, name, class, array, error);

	if (status != CPA_OK || array->count == n)
		return status;
	cpa_h5_array_close(array);
	return cpa_recording_refuse(error, array->where, "has %lld elements; expected %lld",
		(long long)array->count, (long long)n);
}

/* ---- key lengths and documents --------------------------------------------------------------- */

/* A list of integers is read in pieces: its length is the file's claim. */
struct walk {
	int64_t index, value, previous; /* previous: of index - 1 */
};

static enum cpa_status walk(const struct cpa_h5_array *array,
	enum cpa_status (*visit)(const struct cpa_h5_array *, const struct cpa_problem *,
		const struct walk *, struct cpa_error *),
	const struct cpa_problem *problem, struct cpa_error *error)
{
	int64_t values[INTEGERS_AT_ONCE];
	struct walk at = {0, 0, 0};
	enum cpa_status status = CPA_OK;

	for (int64_t first = 0; first < array->count; first += INTEGERS_AT_ONCE) {
		int64_t n = array->count - first;

		n = n < INTEGERS_AT_ONCE ? n : INTEGERS_AT_ONCE;
		status = cpa_h5_read_integers(array, first, n, values, error);
		for (int64_t i = 0; i < n && status == CPA_OK; i++) {
			at.index = first + i;
			at.value = values[i];
			status = visit(array, problem, &at, error);
			at.previous = values[i];
		}
		if (status != CPA_OK)
			return status;
	}
	return CPA_OK;
}

static enum cpa_status visit_key_length(const struct cpa_h5_array *array,
	const struct cpa_problem *problem, const struct walk *at, struct cpa_error *error)
{
	if (at->value >= 0 && at->value <= problem->Skv)
		return CPA_OK;
	return cpa_recording_refuse(error, array->where, "element [%lld] is %lld; expected 0 to %lld, the "
		"number of keys", (long long)at->index, (long long)at->value, (long long)problem->Skv);
}

static enum cpa_status visit_document(const struct cpa_h5_array *array, const struct cpa_problem *problem,
	const struct walk *at, struct cpa_error *error)
{
	const long long index = at->index, value = at->value, S = problem->Sq;

	if (index == 0 && value != 0)
		return cpa_recording_refuse(error, array->where, "the first document starts at %lld; expected "
			"0", value);
	if (value < at->previous)
		return cpa_recording_refuse(error, array->where, "element [%lld] is %lld, below the %lld "
			"before it; expected starts that never descend", index, value,
			(long long)at->previous);
	if (index == array->count - 1 && value != S)
		return cpa_recording_refuse(error, array->where, "the last document ends at %lld; expected "
			"%lld, the length of the sequence", value, S);
	return CPA_OK;
}

/* Reads a list that walk() has found good, and closes it. */
static enum cpa_status keep_list(struct cpa_recording *recording, struct cpa_h5_array *array,
	enum cpa_status status, const int64_t **list, struct cpa_error *error)
{
	int64_t *values = NULL;

	if (status == CPA_OK) {
		values = cpa_arena_alloc(&recording->arena, (size_t)array->count * sizeof *values);
		status = values ? cpa_h5_read_integers(array, 0, array->count, values, error)
				: cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	}
	cpa_h5_array_close(array);
	if (status == CPA_OK)
		*list = values;
	return status;
}

static enum cpa_status read_key_lengths(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	struct cpa_h5_array array;
	enum cpa_status status;

	entry->call.has_key_lengths = cpa_recording_has(&entry->links, "key_lengths");
	if (!entry->call.has_key_lengths)
		return CPA_OK;
	status = open_exact(recording, entry, "key_lengths", CPA_H5_INTEGER, problem->B, &array, error);
	if (status != CPA_OK)
		return status;
	status = walk(&array, visit_key_length, problem, error);
	return keep_list(recording, &array, status, &problem->rule.key_lengths, error);
}

static enum cpa_status read_documents(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	struct cpa_h5_array array;
	enum cpa_status status;

	entry->call.has_documents = cpa_recording_has(&entry->links, "documents");
	if (!entry->call.has_documents)
		return CPA_OK;
	status = open_list(recording, entry->where, "documents", CPA_H5_INTEGER, &array, error);
	if (status != CPA_OK)
		return status;
	if (problem->Sq != problem->Skv)
		status = cpa_recording_refuse(error, array.where, "with %lld queries and %lld keys; documents "
			"need as many keys as queries", (long long)problem->Sq, (long long)problem->Skv);
	else if (array.count < 2 || array.count > CPA_H5_MAX_VALUES)
		status = cpa_recording_refuse(error, array.where, "has %lld elements; expected 2 to %d: the "
			"start of each document and the end", (long long)array.count,
			(int)CPA_H5_MAX_VALUES);
	else
		status = walk(&array, visit_document, problem, error);
	status = keep_list(recording, &array, status, &problem->rule.documents, error);
	if (status == CPA_OK)
		problem->rule.ndocuments = array.count - 1;
	return status;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* The three parallel lists, in an arena. */
struct segment_lists {
	int64_t n;
	int64_t *length;
	const char **name, **rule;
};

static enum cpa_status read_list(struct cpa_recording *recording, const char *path, const char *name,
	struct segment_lists *lists, struct cpa_error *error)
{
	const bool lengths = strcmp(name, "length") == 0;
	struct cpa_h5_array array;
	enum cpa_status status;
	void *into;

	status = open_list(recording, path, name, lengths ? CPA_H5_INTEGER : CPA_H5_STRING, &array, error);
	if (status != CPA_OK)
		return status;
	if (lists->n < 0)
		lists->n = array.count;
	into = cpa_arena_alloc(&recording->arena, (MAX_SEGMENTS + 1) * sizeof(char *));
	if (array.count != lists->n || array.count < 1 || array.count > MAX_SEGMENTS)
		status = cpa_recording_refuse(error, array.where, "has %lld elements; expected %lld (name, "
			"length and rule are parallel; 1 to %d segments)", (long long)array.count,
			(long long)(lists->n < 1 || lists->n > MAX_SEGMENTS ? 1 : lists->n), MAX_SEGMENTS);
	else if (!into)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	else if (lengths)
		status = cpa_h5_read_integers(&array, 0, array.count, lists->length = into, error);
	else
		status = cpa_h5_read_strings(&array, &recording->arena,
			*(strcmp(name, "name") == 0 ? &lists->name : &lists->rule) = into, error);
	cpa_h5_array_close(&array);
	return status;
}

static enum cpa_status fill_segment(const char *path, const struct segment_lists *lists, int64_t i,
	int64_t left, struct cpa_segment *segment, struct cpa_error *error)
{
	const char *rule = lists->rule[i];
	bool split = strcmp(rule, "split") == 0;

	if (strlen(lists->name[i]) >= sizeof segment->name)
		return cpa_fail(error, CPA_INVALID, "%s/name: '%.30s...' is too long; expected at most %zu "
			"bytes", path, lists->name[i], sizeof segment->name - 1);
	if (lists->length[i] < 0 || lists->length[i] > left)
		return cpa_fail(error, CPA_INVALID, "%s/length: element [%lld] is %lld; expected 0 or more, and "
			"no more in all than the sequence holds", path, (long long)i,
			(long long)lists->length[i]);
	if (!split && strcmp(rule, "replicated") != 0)
		return cpa_fail(error, CPA_INVALID, "%s/rule: is '%.60s'; expected split or replicated", path,
			rule);
	strcpy(segment->name, lists->name[i]);
	segment->length = lists->length[i];
	segment->replicated = !split;
	return CPA_OK;
}

static enum cpa_status read_segments(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *group, int64_t S, const struct cpa_segment **segments, int *nsegments,
	struct cpa_error *error)
{
	static const char *const known[] = {"name", "length", "rule", NULL};
	struct segment_lists lists = {.n = -1};
	struct cpa_h5_names links;
	struct cpa_segment *made;
	char path[CPA_H5_WHERE], prefix[40];
	int64_t left = S;
	enum cpa_status status;

	cpa_recording_join(path, entry->where, '/', group);
	status = cpa_recording_group(recording, path, &links, error);
	for (int i = 0; i < 3 && status == CPA_OK; i++)
		status = read_list(recording, path, known[i], &lists, error);
	if (status != CPA_OK)
		return status;
	made = cpa_arena_alloc(&recording->arena, (size_t)lists.n * sizeof *made);
	if (!made)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t i = 0; i < lists.n; i++) {
		status = fill_segment(path, &lists, i, left, &made[i], error);
		if (status != CPA_OK)
			return status;
		left -= made[i].length;
	}
	if (left != 0)
		return cpa_fail(error, CPA_INVALID, "%s/length: the lengths sum to %lld; expected %lld, the "
			"length of the sequence", path, (long long)(S - left), (long long)S);
	snprintf(prefix, sizeof prefix, "%s/", group);
	cpa_recording_note_unknown(entry, &links, known, prefix);
	*segments = made;
	*nsegments = (int)lists.n;
	return CPA_OK;
}

static enum cpa_status read_both_segments(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	struct cpa_call *call = &entry->call;
	enum cpa_status status;

	if (cpa_recording_has(&entry->links, "segments")) {
		status = read_segments(recording, entry, "segments", call->problem.Sq, &call->segments,
			&call->nsegments, error);
		if (status != CPA_OK)
			return status;
		call->problem.segments = call->segments;
		call->problem.nsegments = call->nsegments;
	}
	if (!cpa_recording_has(&entry->links, "segments_kv"))
		return CPA_OK;
	if (call->problem.Sq == call->problem.Skv)
		return cpa_fail(error, CPA_INVALID, "%s/segments_kv: with as many keys as queries; expected "
			"only segments, which describe both", entry->where);
	status = read_segments(recording, entry, "segments_kv", call->problem.Skv, &call->segments_kv,
		&call->nsegments_kv, error);
	if (status == CPA_OK) {
		call->problem.segments_kv = call->segments_kv;
		call->problem.nsegments_kv = call->nsegments_kv;
	}
	return status;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* rope_base and rope_pairs, of the dataset or else of the call. */
static enum cpa_status read_rope(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *where, struct cpa_rope *rope, struct cpa_error *error)
{
	static const char *const pairs[] = {"half", "interleaved", NULL};
	const char *const places[] = {where, entry->where};
	bool has_base = false;
	int choice = -1;

	rope->D = entry->call.problem.D;
	for (int i = 0; i < 2; i++) {
		enum cpa_status status = CPA_OK;

		if (!has_base)
			status = cpa_recording_number(recording, places[i], "rope_base", &rope->base, &has_base,
				error);
		if (status == CPA_OK && choice < 0)
			status = cpa_recording_choice(recording, places[i], "rope_pairs", pairs, &choice, error);
		if (status != CPA_OK)
			return status;
	}
	if (!has_base)
		return cpa_recording_refuse(error, where, "rope_base is missing; expected a number such as "
			"10000, on the dataset or on the call");
	if (!(rope->base > 0 && isfinite(rope->base)))
		return cpa_recording_refuse(error, where, "rope_base is %g; expected a finite number above 0",
			rope->base);
	if (choice < 0)
		return cpa_recording_refuse(error, where, "rope_pairs is missing; expected half or interleaved, "
			"on the dataset or on the call");
	if (rope->D % 2 != 0)
		return cpa_recording_refuse(error, where, "q and k have the head size %lld; expected an even "
			"one, as RoPE turns pairs", (long long)rope->D);
	rope->pairs = (enum cpa_rope_pairs)choice;
	return CPA_OK;
}

static enum cpa_status read_positions(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *name, int64_t S, struct cpa_recording_rope *rope, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status = open_exact(recording, entry, name, CPA_H5_INTEGER, S, &array, error);

	if (status != CPA_OK)
		return status;
	status = read_rope(recording, entry, array.where, &rope->rope, error);
	return keep_list(recording, &array, status, &rope->positions, error);
}

/* Keys stand where the queries do unless it is said; q alone or k alone before RoPE is no attention. */
static enum cpa_status read_both_positions(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	const struct cpa_problem *problem = &entry->call.problem;
	const bool q = cpa_recording_has(&entry->links, "positions");
	const bool kv = cpa_recording_has(&entry->links, "positions_kv");
	enum cpa_status status;

	if (!q && !kv)
		return CPA_OK;
	if (!q || (!kv && problem->Sq != problem->Skv))
		return cpa_fail(error, CPA_INVALID, "%s/%s: missing; expected the positions of %lld %s, as the "
			"others are there", entry->where, q ? "positions_kv" : "positions",
			(long long)(q ? problem->Skv : problem->Sq), q ? "keys" : "queries");
	status = read_positions(recording, entry, "positions", problem->Sq, &entry->rope_q, error);
	entry->rope_k = entry->rope_q;
	entry->call.has_positions = true;
	if (status == CPA_OK && kv)
		status = read_positions(recording, entry, "positions_kv", problem->Skv, &entry->rope_k, error);
	return status;
}

enum cpa_status cpa_recording_keys(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct cpa_call *call = &entry->call;
	struct cpa_h5_array sink;
	enum cpa_status status;

	if ((status = cpa_recording_mask(recording, entry, error)) != CPA_OK ||
	    (status = read_key_lengths(recording, entry, error)) != CPA_OK ||
	    (status = read_documents(recording, entry, error)) != CPA_OK ||
	    (status = read_both_segments(recording, entry, error)) != CPA_OK ||
	    (status = read_both_positions(recording, entry, error)) != CPA_OK)
		return status;
	call->has_sink = cpa_recording_has(&entry->links, "sink");
	if (!call->has_sink)
		return CPA_OK;
	status = open_exact(recording, entry, "sink", CPA_H5_FLOAT, call->problem.Hq, &sink, error);
	if (status == CPA_OK)
		cpa_h5_array_close(&sink);
	return status;
}
