/*
 * recording_mask.c - the parts of a call that are data and rule at once, and are read whole: the dense
 * mask, in its own shape and never expanded, and the sink.
 */
#include "harness/recording_rules.h"

#include <math.h>

/* Deflate, the strongest filter that is common, makes nothing smaller than 1/1032. */
enum { MAX_EXPANSION = 1100 };

/* ---- shape ----------------------------------------------------------------------------------- */

static enum cpa_status check_type(struct cpa_recording *recording, const struct cpa_h5_array *array,
	struct cpa_error *error)
{
	const uint64_t nbytes = cpa_h5_file_nbytes(recording->file);

	if (array->class != CPA_H5_FLOAT && array->class != CPA_H5_INTEGER && array->class != CPA_H5_TRUTH)
		return cpa_recording_refuse(error, array->where, "is of type %s; expected truth values "
			"(integers, or the enum {FALSE, TRUE}) or floats", array->type);
	/* Tensors are read in pieces, the mask is not: other filters may hold nearly nothing. */
	if ((uint64_t)array->count / MAX_EXPANSION > nbytes)
		return cpa_recording_refuse(error, array->where, "declares %lld elements in a file of %llu "
			"bytes; expected no more than %d for each byte", (long long)array->count,
			(unsigned long long)nbytes, (int)MAX_EXPANSION);
	return CPA_OK;
}

/* The strides of a dense array, 0 where it is broadcast; false when it cannot be. */
static bool broadcast(const struct cpa_h5_array *array, const struct cpa_problem *problem,
	struct cpa_mask *mask)
{
	const int64_t full[4] = {problem->B, problem->Hq, problem->Sq, problem->Skv};
	int64_t *const strides[4] = {&mask->batch, &mask->head, &mask->query, &mask->key};
	int64_t stride = 1;

	if (array->rank < 1 || array->rank > 4)
		return false;
	for (int i = 3, axis = array->rank - 1; axis >= 0; i--, axis--) {
		const int64_t size = array->dims[axis];

		if (size != 1 && size != full[i])
			return false;
		*strides[i] = size == 1 ? 0 : stride;
		stride *= size;
	}
	return true;
}

static enum cpa_status check_mask(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const struct cpa_h5_array *array, struct cpa_error *error)
{
	const struct cpa_problem *problem = &entry->call.problem;
	struct cpa_mask mask = {.kind = CPA_MASK_NONE};
	char dims[100];
	enum cpa_status status = check_type(recording, array, error);

	if (status != CPA_OK || broadcast(array, problem, &mask))
		return status;
	cpa_recording_print_dims(array, dims, sizeof dims);
	return cpa_recording_refuse(error, array->where, "has the shape %s, which does not broadcast to "
		"[B,Hq,Sq,Skv] = [%lld,%lld,%lld,%lld]: expected each size, from the right, to be 1 or the full "
		"one", dims, (long long)problem->B, (long long)problem->Hq, (long long)problem->Sq,
		(long long)problem->Skv);
}

enum cpa_status cpa_recording_mask(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	char where[CPA_H5_WHERE];
	struct cpa_h5_array array;
	enum cpa_status status;

	entry->call.has_mask = cpa_recording_has(&entry->links, "mask");
	if (!entry->call.has_mask)
		return CPA_OK;
	cpa_recording_join(where, entry->where, '/', "mask");
	if (cpa_h5_object(recording->file, where) != CPA_H5_DATASET)
		return cpa_recording_refuse(error, where, "not a dataset; expected truth values or floats");
	status = cpa_h5_array_open(recording->file, where, NULL, &array, error);
	if (status != CPA_OK)
		return status;
	status = check_mask(recording, entry, &array, error);
	cpa_h5_array_close(&array);
	return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* An array that is being read whole. */
struct whole {
	enum cpa_mask_kind kind;
	enum cpa_dtype dtype; /* of a bias, and of the sink */
	void *data;
	int64_t taken;
	size_t element_nbytes; /* as stored */
};

/* Any byte that is not 0 makes the integer so. */
static void take_truths(struct whole *whole, const void *data, int64_t n)
{
	const unsigned char *byte = data;
	uint8_t *dst = (uint8_t *)whole->data + whole->taken;

	for (int64_t i = 0; i < n; i++)
		for (size_t k = 0; k < whole->element_nbytes; k++)
			dst[i] |= *byte++ != 0;
}

/* What is finite in the file stays so, as the largest number of its sign if need be. */
static void take_floats(struct whole *whole, const struct cpa_h5_array *array, const void *data, int64_t n)
{
	void *dst = (char *)whole->data + (size_t)whole->taken * cpa_dtype_nbytes(whole->dtype);
	const double most = cpa_dtype_max(whole->dtype);

	cpa_convert(whole->dtype, dst, array->dtype, data, n);
	for (int64_t i = 0; i < n && cpa_dtype_nbytes(array->dtype) > cpa_dtype_nbytes(whole->dtype); i++) {
		const double value = cpa_load(array->dtype, data, i);

		if (isfinite(value) && fabs(value) > most)
			cpa_store(whole->dtype, dst, i, copysign(most, value));
	}
}

static enum cpa_status take(void *context, const struct cpa_h5_array *array, const void *data, int64_t n,
	struct cpa_error *error)
{
	struct whole *whole = context;

	(void)error;
	if (whole->kind == CPA_MASK_BOOL)
		take_truths(whole, data, n);
	else
		take_floats(whole, array, data, n);
	whole->taken += n;
	return CPA_OK;
}

enum cpa_status cpa_recording_mask_data(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	struct cpa_mask mask = {.kind = CPA_MASK_NONE};
	struct whole whole = {.kind = CPA_MASK_NONE};
	struct cpa_h5_array array;
	char where[CPA_H5_WHERE];
	enum cpa_status status;

	if (!entry->call.has_mask || recording->structure_only)
		return CPA_OK;
	cpa_recording_join(where, entry->where, '/', "mask");
	status = cpa_h5_array_open(recording->file, where, NULL, &array, error);
	if (status != CPA_OK)
		return status;
	broadcast(&array, problem, &mask); /* it does, or the call would have been refused */
	mask.kind = whole.kind = array.class == CPA_H5_FLOAT ? CPA_MASK_BIAS : CPA_MASK_BOOL;
	mask.dtype = whole.dtype = array.dtype == CPA_DTYPE_FP64 && problem->dtype == CPA_DTYPE_FP64
		? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
	whole.element_nbytes = cpa_h5_element_nbytes(&array);
	mask.data = whole.data = cpa_arena_alloc(&recording->arena, (size_t)array.count *
		(whole.kind == CPA_MASK_BOOL ? 1 : cpa_dtype_nbytes(whole.dtype)));
	status = whole.data ? cpa_recording_take(recording, &array, CPA_VALUES_FINITE_OR_MINUS_INF, take,
				      &whole, error)
			    : cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", where);
	cpa_h5_array_close(&array);
	if (status == CPA_OK)
		problem->rule.mask = mask;
	return status;
}

enum cpa_status cpa_recording_sink_data(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	struct whole whole = {.kind = CPA_MASK_BIAS, .dtype = CPA_DTYPE_FP64};
	struct cpa_h5_array array;
	char where[CPA_H5_WHERE];
	enum cpa_status status;

	if (!entry->call.has_sink || recording->structure_only)
		return CPA_OK;
	cpa_recording_join(where, entry->where, '/', "sink");
	status = cpa_h5_array_open(recording->file, where, NULL, &array, error);
	if (status != CPA_OK)
		return status;
	whole.data = cpa_arena_alloc(&recording->arena, (size_t)array.count * sizeof(double));
	status = whole.data
		? cpa_recording_take(recording, &array, CPA_VALUES_FINITE, take, &whole, error)
		: cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", where);
	cpa_h5_array_close(&array);
	if (status == CPA_OK)
		entry->call.problem.rule.sink = whole.data;
	return status;
}
