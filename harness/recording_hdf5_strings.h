/*
 * recording_hdf5_strings.h - a part of recording_hdf5.c, included there and nowhere else: strings
 * are read, of a fixed length or of any.
 */
#ifndef CPA_RECORDING_HDF5_STRINGS_H
#define CPA_RECORDING_HDF5_STRINGS_H

enum { MAX_STRING = 4096, MAX_STRINGS_NBYTES = 1 << 20 };

/* One string of a buffer of fixed-length strings, or one that HDF5 allocated; NULL: out of memory. */
static const char *keep_string(struct cpa_arena *arena, const char *text, size_t room, H5T_str_t padding)
{
	size_t n = padding == H5T_STR_NULLTERM ? strnlen(text, room) : room;
	char *copy;

	while (padding == H5T_STR_NULLPAD && n > 0 && text[n - 1] == '\0')
		n--;
	while (padding == H5T_STR_SPACEPAD && n > 0 && text[n - 1] == ' ')
		n--;
	copy = cpa_arena_alloc(arena, n + 1);
	if (copy)
		memcpy(copy, text, n);
	return copy;
}

static enum cpa_status read_strings_as(const struct cpa_h5_array *array, hid_t type, void *buffer,
	struct cpa_arena *arena, const char **strings, struct cpa_error *error)
{
	bool variable = H5Tis_variable_str(type) > 0;
	size_t size = H5Tget_size(type);
	enum cpa_status status = CPA_OK;
	herr_t done = array->attribute ? H5Aread(array->id, type, buffer)
				       : H5Dread(array->id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);

	if (done < 0)
		return fail(error, array->where, "the strings cannot be read");
	for (int64_t i = 0; i < array->count; i++) {
		char *text = variable ? ((char **)buffer)[i] : (char *)buffer + (size_t)i * size;

		if (variable && text && strnlen(text, MAX_STRING) == MAX_STRING)
			status = cpa_fail(error, CPA_INVALID, "%s: a string above %d bytes", array->where,
				MAX_STRING - 1);
		else if (variable)
			strings[i] = keep_string(arena, text ? text : "", MAX_STRING, H5T_STR_NULLTERM);
		else
			strings[i] = keep_string(arena, text, size, H5Tget_strpad(type));
		if (variable)
			H5free_memory(text);
	}
	if (status == CPA_OK && arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", array->where);
	return status;
}

enum cpa_status cpa_h5_read_strings(const struct cpa_h5_array *array, struct cpa_arena *arena,
	const char **strings, struct cpa_error *error)
{
	/* The stored type itself: HDF5 does not convert between ASCII and UTF-8. */
	hid_t type = array->attribute ? H5Aget_type(array->id) : H5Dget_type(array->id);
	size_t size = H5Tget_size(type);
	enum cpa_status status;
	void *buffer;

	if (size == 0 || (uint64_t)array->count > MAX_STRINGS_NBYTES / size) {
		H5Tclose(type);
		return cpa_fail(error, CPA_INVALID, "%s: more than 1 MiB of strings", array->where);
	}
	buffer = calloc((size_t)array->count + 1, size);
	status = buffer ? read_strings_as(array, type, buffer, arena, strings, error)
			: cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", array->where);
	free(buffer);
	H5Tclose(type);
	return status;
}

#endif
