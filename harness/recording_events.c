/*
 * recording_events.c - what ranks issued, in each rank's order: the records of `events`.
 */
#include "harness/recording_rules.h"

#include <stdlib.h>

static const char *const kinds[] = {"send", "recv", "isend", "irecv", "wait", "collective",
	"group_begin", "group_end", "done", NULL};

const char *cpa_event_kind_name(enum cpa_event_kind kind)
{
	return kinds[kind];
}

enum { RANK, KIND, COMMUNICATOR, PEER, BYTES, NFIELDS };
static const char *const fields[NFIELDS] = {"rank", "kind", "communicator", "peer", "bytes"};
static const int64_t least[NFIELDS] = {0, 0, 0, -1, 0};
static const int64_t most[NFIELDS] = {
	CPA_MAX_EVENT_RANKS - 1, CPA_NEVENT_KINDS - 1, INT32_MAX, INT32_MAX, INT64_MAX / 4};

static enum cpa_status check_field(const struct cpa_h5_array *array, int field,
	const int64_t *values, struct cpa_error *error)
{
	for (int64_t i = 0; i < array->count; i++)
		if (values[i] < least[field] || values[i] > most[field])
			return cpa_recording_refuse(error, array->where,
				"field \"%s\" of record %lld is %lld; expected %lld to %lld",
				fields[field], (long long)i, (long long)values[i],
				(long long)least[field], (long long)most[field]);
	return CPA_OK;
}

static void keep_field(struct cpa_event *events, int field, const int64_t *values, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		switch (field) {
		case RANK:
			events[i].rank = (int)values[i];
			break;
		case KIND:
			events[i].kind = (enum cpa_event_kind)values[i];
			break;
		case COMMUNICATOR:
			events[i].communicator = (int)values[i];
			break;
		case PEER:
			events[i].peer = (int)values[i];
			break;
		default:
			events[i].bytes = values[i];
			break;
		}
}

static enum cpa_status read_events(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, const struct cpa_h5_array *array,
	struct cpa_error *error)
{
	int64_t n = array->count, *values = malloc(((size_t)n + 1) * sizeof *values);
	struct cpa_event *events = cpa_arena_alloc(
		&recording->arena, ((size_t)n + 1) * sizeof *events);
	enum cpa_status status = CPA_OK;

	if (!values || !events)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for events");
	for (int field = 0; field < NFIELDS && status == CPA_OK; field++) {
		status = field == KIND
			? cpa_h5_read_member_choice(array, fields[field], kinds, values, error)
			: cpa_h5_read_member(array, fields[field], values, error);
		if (status == CPA_OK)
			status = check_field(array, field, values, error);
		if (status == CPA_OK)
			keep_field(events, field, values, n);
	}
	free(values);
	if (status == CPA_OK) {
		entry->call.events = events;
		entry->call.nevents = n;
	}
	return status;
}

enum cpa_status cpa_recording_events(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	char where[CPA_H5_WHERE], dims[100];
	struct cpa_h5_array array;
	enum cpa_h5_object object;
	enum cpa_status status;

	if (!cpa_recording_has(&entry->links, "events"))
		return CPA_OK;
	cpa_recording_join(where, entry->where, '/', "events");
	object = cpa_h5_object(recording->file, where);
	if (object == CPA_H5_GROUP || object == CPA_H5_OTHER)
		return cpa_recording_refuse(
			error, where, "not a dataset; expected records, one for each event");
	status = cpa_h5_array_open(recording->file, where, NULL, &array, error);
	if (status != CPA_OK)
		return status;
	cpa_recording_print_dims(&array, dims, sizeof dims);
	if (array.class != CPA_H5_RECORDS || array.rank != 1)
		status = cpa_recording_refuse(error, where,
			"has the shape %s of type %s; expected records [n] of rank, kind, "
			"communicator, peer and bytes",
			dims, array.type);
	else if (array.count > CPA_MAX_EVENTS)
		status = cpa_recording_refuse(error, where, "%lld events; expected at most %d",
			(long long)array.count, (int)CPA_MAX_EVENTS);
	else if (array.count > 0)
		status = read_events(recording, entry, &array, error);
	cpa_h5_array_close(&array);
	return status;
}

bool cpa_recording_write_events(
	struct cpa_h5 *file, const char *where, const struct cpa_recorded_run *run)
{
	int64_t n = run->nevents, *values = malloc(((size_t)n + 1) * NFIELDS * sizeof *values);
	struct cpa_h5_column columns[NFIELDS];
	char path[CPA_H5_WHERE];

	if (!values)
		return false;
	for (int field = 0; field < NFIELDS; field++)
		columns[field] = (struct cpa_h5_column){
			.name = fields[field], .values = values + field * n};
	columns[KIND].names = run->event_names == CPA_EVENT_NUMBERS ? NULL : kinds;
	columns[KIND].strings = run->event_names == CPA_EVENT_STRINGS;
	for (int64_t i = 0; i < n; i++) {
		const struct cpa_event *it = &run->events[i];

		values[RANK * n + i] = it->rank;
		values[KIND * n + i] = it->kind;
		values[COMMUNICATOR * n + i] = it->communicator;
		values[PEER * n + i] = it->peer;
		values[BYTES * n + i] = it->bytes;
	}
	cpa_recording_join(path, where, '/', "events");
	cpa_h5_write_table(file, path, n, columns, NFIELDS);
	free(values);
	return true;
}
