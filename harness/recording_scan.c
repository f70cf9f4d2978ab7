/*
 * recording_scan.c - whether the elements of an array are allowed, read in blocks of bounded size, and
 * the small helpers that all rules of the format share.
 */
#include "harness/recording_rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum cpa_status cpa_recording_refuse(struct cpa_error *error, const char *where, const char *format, ...)
{
	char sentence[700];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(sentence, sizeof sentence, format, arguments);
	va_end(arguments);
	return cpa_fail(error, CPA_INVALID, "%.320s: %s", where, sentence);
}

void cpa_recording_add(struct cpa_recording_text *text, const char *separator, const char *format, ...)
{
	size_t room = sizeof text->at - text->n;
	va_list arguments;
	char item[200];

	va_start(arguments, format);
	vsnprintf(item, sizeof item, format, arguments);
	va_end(arguments);
	/* Names come from the file and go to a terminal. */
	for (char *c = item; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	if (strlen(separator) + strlen(item) + sizeof ", ..." > room) {
		if (text->n < 4 || strcmp(text->at + text->n - 3, "...") != 0)
			text->n += (size_t)snprintf(text->at + text->n, room, ", ...");
		return;
	}
	text->n += (size_t)snprintf(text->at + text->n, room, "%s%s", text->n ? separator : "", item);
}

bool cpa_recording_has(const struct cpa_h5_names *names, const char *name)
{
	for (int i = 0; i < names->n; i++)
		if (strcmp(names->at[i], name) == 0)
			return true;
	return false;
}

void cpa_recording_note_unknown(struct cpa_recording_entry *entry, const struct cpa_h5_names *names,
	const char *const *known, const char *prefix)
{
	for (int i = 0; i < names->n; i++) {
		int k = 0;

		while (known[k] && strcmp(names->at[i], known[k]) != 0)
			k++;
		if (!known[k])
			cpa_recording_add(&entry->notes, ", ", "%s%s%.60s",
				entry->notes.n ? "" : "unknown and ignored: ", prefix, names->at[i]);
	}
}

void cpa_recording_join(char *where, const char *path, char separator, const char *name)
{
	snprintf(where, CPA_H5_WHERE, "%.500s%c%.120s", path, separator, name);
}

void cpa_recording_print_dims(const struct cpa_h5_array *array, char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "[");

	for (int i = 0; i < array->rank && i < CPA_H5_MAX_RANK && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "",
			(long long)array->dims[i]);
	if (n < size)
		snprintf(text + n, size - n, "%s]", array->rank > CPA_H5_MAX_RANK ? ",..." : "");
}

enum cpa_status cpa_recording_group(struct cpa_recording *recording, const char *path,
	struct cpa_h5_names *links, struct cpa_error *error)
{
	enum cpa_h5_object object = cpa_h5_object(recording->file, path);
	enum cpa_status status;

	if (object == CPA_H5_DATASET || object == CPA_H5_OTHER)
		return cpa_recording_refuse(error, path, "not a group; expected a group");
	status = cpa_h5_links(recording->file, path, &recording->arena, links, error);
	for (int i = 0; status == CPA_OK && i < links->n; i++)
		if (!links->hard[i])
			return cpa_fail(error, CPA_INVALID, "%.320s/%.100s: a soft or external link; expected "
				"the object itself", path, links->at[i]);
	return status;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Opens the attribute if it is there, and checks how many values it has. */
static enum cpa_status open_attribute(struct cpa_recording *recording, const char *path,
	const char *attribute, int64_t n, struct cpa_h5_array *array, bool *present,
	struct cpa_error *error)
{
	enum cpa_status status;

	*present = cpa_h5_attribute_exists(recording->file, path, attribute);
	if (!*present)
		return CPA_OK;
	status = cpa_h5_array_open(recording->file, path, attribute, array, error);
	if (status != CPA_OK)
		return status;
	if (array->rank > 1 || array->count != n) {
		cpa_h5_array_close(array);
		return cpa_recording_refuse(error, array->where, "%lld values; expected %lld",
			(long long)array->count, (long long)n);
	}
	return CPA_OK;
}

enum cpa_status cpa_recording_integers(struct cpa_recording *recording, const char *path,
	const char *attribute, bool truth, int64_t n, int64_t *values, bool *present,
	struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	status = open_attribute(recording, path, attribute, n, &array, present, error);
	if (status != CPA_OK || !*present)
		return status;
	if (array.class != CPA_H5_INTEGER && !(truth && array.class == CPA_H5_TRUTH))
		status = cpa_recording_refuse(error, array.where, "is of type %s; expected %s", array.type,
			truth ? "a truth value (an integer, or the enum {FALSE, TRUE})" : "an integer");
	else
		status = cpa_h5_read_integers(&array, 0, n, values, error);
	cpa_h5_array_close(&array);
	return status;
}

enum cpa_status cpa_recording_number(struct cpa_recording *recording, const char *path,
	const char *attribute, double *value, bool *present, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	status = open_attribute(recording, path, attribute, 1, &array, present, error);
	if (status != CPA_OK || !*present)
		return status;
	if (array.class != CPA_H5_FLOAT)
		status = cpa_recording_refuse(error, array.where, "is of type %s; expected a float64",
			array.type);
	else
		status = cpa_h5_read_double(&array, value, error);
	cpa_h5_array_close(&array);
	return status;
}

enum cpa_status cpa_recording_choice(struct cpa_recording *recording, const char *path,
	const char *attribute, const char *const *choices, int *choice, struct cpa_error *error)
{
	struct cpa_recording_text expected = {.n = 0};
	const char *value = NULL;
	struct cpa_h5_array array;
	enum cpa_status status;
	bool present;

	status = open_attribute(recording, path, attribute, 1, &array, &present, error);
	if (status != CPA_OK || !present)
		return status;
	for (int i = 0; choices[i]; i++)
		cpa_recording_add(&expected, ", ", "%s", choices[i]);
	if (array.class != CPA_H5_STRING)
		status = cpa_recording_refuse(error, array.where, "is of type %s; expected a string, one of %s",
			array.type, expected.at);
	else
		status = cpa_h5_read_strings(&array, &recording->arena, &value, error);
	cpa_h5_array_close(&array);
	if (status != CPA_OK)
		return status;
	for (int i = 0; choices[i]; i++) {
		if (strcmp(value, choices[i]) == 0) {
			*choice = i;
			return CPA_OK;
		}
	}
	return cpa_recording_refuse(error, array.where, "is '%.60s'; expected one of %s", value, expected.at);
}

/* ---- element values -------------------------------------------------------------------------- */

/* An element is bad when its exponent is all ones, except -inf where that is allowed. */
#define FIRST_BAD(type, exponent, minus_inf)                                                     \
	for (int64_t i = 0; i < n; i++) {                                                        \
		type bits = ((const type *)data)[i];                                             \
		if ((bits & (exponent)) == (exponent) && !(inf_allowed && bits == (minus_inf)))  \
			return i;                                                                \
	}                                                                                        \
	return -1

enum cpa_recording_values cpa_recording_allowed(const char *tensor, bool of_rank)
{
	bool o = strcmp(tensor, "o") == 0, lse = strcmp(tensor, "lse") == 0;

	if (of_rank && (o || lse))
		return CPA_VALUES_ANY;
	return lse ? CPA_VALUES_FINITE_OR_MINUS_INF : CPA_VALUES_FINITE;
}

int64_t cpa_recording_first_bad(enum cpa_dtype dtype, const void *data, int64_t n,
	enum cpa_recording_values allowed)
{
	bool inf_allowed = allowed == CPA_VALUES_FINITE_OR_MINUS_INF;

	if (allowed == CPA_VALUES_ANY)
		return -1;
	switch (dtype) {
	case CPA_DTYPE_FP64:
		FIRST_BAD(uint64_t, UINT64_C(0x7ff) << 52, UINT64_C(0xfff) << 52);
	case CPA_DTYPE_FP32:
		FIRST_BAD(uint32_t, UINT32_C(0xff) << 23, UINT32_C(0x1ff) << 23);
	case CPA_DTYPE_BF16:
		FIRST_BAD(uint16_t, 0x7f80, 0xff80);
	case CPA_DTYPE_FP16:
		FIRST_BAD(uint16_t, 0x7c00, 0xfc00);
	}
	return -1;
}

/* "[0,4,1,3]", the index of element i of the box. */
static void print_index(const struct cpa_h5_array *array, const struct cpa_h5_box *box, int64_t i,
	char *text, size_t size)
{
	int64_t index[CPA_H5_MAX_RANK];
	size_t n = (size_t)snprintf(text, size, "[");

	for (int axis = array->rank - 1; axis >= 0; axis--) {
		index[axis] = box->start[axis] + i % box->block[axis];
		i /= box->block[axis];
	}
	for (int axis = 0; axis < array->rank && n < size; axis++)
		n += (size_t)snprintf(text + n, size - n, "%s%lld", axis ? "," : "",
			(long long)index[axis]);
	if (n < size)
		snprintf(text + n, size - n, "]");
}

static enum cpa_status judge_block(const struct cpa_h5_array *array, const struct cpa_h5_box *box,
	const void *data, int64_t n, enum cpa_recording_values allowed, struct cpa_error *error)
{
	char index[120];
	double value;
	int64_t i;

	i = cpa_recording_first_bad(array->dtype, data, n, allowed);
	if (i < 0)
		return CPA_OK;
	value = cpa_load(array->dtype, data, i);
	print_index(array, box, i, index, sizeof index);
	return cpa_recording_refuse(error, array->where, "element %s is %s; expected finite numbers%s", index,
		value != value ? "NaN" : value > 0 ? "+inf" : "-inf",
		allowed == CPA_VALUES_FINITE_OR_MINUS_INF ? " or -inf" : "");
}

/*
 * Cuts the array into boxes of at most `limit` elements: whole in the axes behind `axis`, a range of
 * that axis, one index of each axis before it.
 */
static int cut_axis(const struct cpa_h5_array *array, int64_t limit, int64_t *step)
{
	int64_t inner = 1;
	int axis = array->rank - 1;

	while (axis > 0 && array->dims[axis] <= limit / inner)
		inner *= array->dims[axis--];
	*step = limit / inner;
	return axis;
}

/* Moves box to its next place; false when it went through the array. */
static bool advance(const struct cpa_h5_array *array, struct cpa_h5_box *box, int cut, int64_t step)
{
	int axis = cut;

	box->start[cut] += step;
	while (axis >= 0 && box->start[axis] >= array->dims[axis]) {
		box->start[axis--] = 0;
		if (axis < 0)
			return false;
		box->start[axis]++;
	}
	box->block[cut] = array->dims[cut] - box->start[cut];
	if (box->block[cut] > step)
		box->block[cut] = step;
	return true;
}

enum cpa_status cpa_recording_scan(const struct cpa_recording *recording,
	const struct cpa_h5_array *array, enum cpa_recording_values allowed, struct cpa_error *error)
{
	if (recording->trusted)
		return CPA_OK;
	return cpa_recording_take(recording, array, allowed, NULL, NULL, error);
}

enum cpa_status cpa_recording_take(const struct cpa_recording *recording,
	const struct cpa_h5_array *array, enum cpa_recording_values allowed, cpa_recording_taker *take,
	void *context, struct cpa_error *error)
{
	struct cpa_h5_box box = {.start = {0}, .stride = {1, 1, 1, 1}, .count = {1, 1, 1, 1}};
	int64_t size = (int64_t)cpa_h5_element_nbytes(array), step, nbuffer;
	enum cpa_status status = CPA_OK;
	bool more = array->count > 0;
	void *buffer;
	int cut;

	if (!more || array->rank == 0 || recording->structure_only)
		return CPA_OK;
	cut = cut_axis(array, CPA_H5_BLOCK_NBYTES / size, &step);
	nbuffer = array->count < CPA_H5_BLOCK_NBYTES / size ? array->count : CPA_H5_BLOCK_NBYTES / size;
	buffer = malloc((size_t)(nbuffer * size));
	if (!buffer)
		return cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", array->where);
	for (int axis = 0; axis < array->rank; axis++)
		box.block[axis] = axis < cut ? 1 : array->dims[axis];
	if (box.block[cut] > step)
		box.block[cut] = step;
	while (status == CPA_OK && more) {
		int64_t n = 1;

		for (int axis = 0; axis < array->rank; axis++)
			n *= box.block[axis];
		status = cpa_h5_read_box(array, &box, buffer, error);
		if (status == CPA_OK && array->class == CPA_H5_FLOAT)
			status = judge_block(array, &box, buffer, n, allowed, error);
		if (status == CPA_OK && take)
			status = take(context, array, buffer, n, error);
		more = advance(array, &box, cut, step);
	}
	free(buffer);
	return status;
}
