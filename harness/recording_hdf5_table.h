/*
 * recording_hdf5_table.h - a part of recording_hdf5.c, included there and nowhere else: columns
 * of datasets of records (compound types), read one at a time and written together.
 */
#ifndef CPA_RECORDING_HDF5_TABLE_H
#define CPA_RECORDING_HDF5_TABLE_H

enum { MAX_NAME = 64, MAX_ENUM = 256 };

/* The stored type of a member, to be closed; negative: there is none of this name. */
static hid_t member_type(const struct cpa_h5_array *array, const char *member)
{
	hid_t record = H5Dget_type(array->id);
	int i = record >= 0 ? H5Tget_member_index(record, member) : -1;
	hid_t type = i >= 0 ? H5Tget_member_type(record, (unsigned)i) : -1;

	if (record >= 0)
		H5Tclose(record);
	H5Eclear2(H5E_DEFAULT);
	return type;
}

/* Reads the member alone, as `type`, into dst [count] elements of its size. */
static enum cpa_status read_member_as(const struct cpa_h5_array *array, const char *member,
	hid_t type, void *dst, struct cpa_error *error)
{
	hid_t record = H5Tcreate(H5T_COMPOUND, H5Tget_size(type));
	enum cpa_status status = CPA_OK;

	if (record < 0 || H5Tinsert(record, member, 0, type) < 0 ||
		H5Dread(array->id, record, H5S_ALL, H5S_ALL, H5P_DEFAULT, dst) < 0)
		status = fail(error, array->where, "the records cannot be read");
	if (record >= 0)
		H5Tclose(record);
	return status;
}

static enum cpa_status no_member(const struct cpa_h5_array *array, const char *member,
	const char *wanted, struct cpa_error *error)
{
	return cpa_fail(error, CPA_INVALID, "%s: the records have no field \"%s\" of %s",
		array->where, member, wanted);
}

enum cpa_status cpa_h5_read_member(const struct cpa_h5_array *array, const char *member,
	int64_t *dst, struct cpa_error *error)
{
	hid_t type = member_type(array, member);
	bool integer = type >= 0 && H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) <= 8;

	if (type >= 0)
		H5Tclose(type);
	return integer ? read_member_as(array, member, H5T_NATIVE_INT64, dst, error)
		       : no_member(array, member, "integers", error);
}

/* The place of name in choices, a list that ends with NULL; -1: none. */
static int64_t find_choice(const char *const *choices, const char *name)
{
	for (int64_t i = 0; choices[i]; i++)
		if (strcmp(choices[i], name) == 0)
			return i;
	return -1;
}

/* Name of a stored value of an enum or of a fixed-length string.   name [MAX_NAME] out */
static void name_value(hid_t type, const char *value, size_t size, char *name)
{
	name[0] = '\0';
	if (H5Tget_class(type) == H5T_ENUM) {
		if (H5Tenum_nameof(type, value, name, MAX_NAME) < 0)
			name[0] = '\0';
		H5Eclear2(H5E_DEFAULT);
	} else {
		snprintf(name, MAX_NAME, "%.*s", (int)strnlen(value, size), value);
		for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
			name[n - 1] = '\0';
	}
	name[MAX_NAME - 1] = '\0';
}

static enum cpa_status read_named(const struct cpa_h5_array *array, const char *member,
	hid_t type, const char *const *choices, int64_t *dst, struct cpa_error *error)
{
	size_t size = H5Tget_size(type);
	char *values = calloc((size_t)array->count + 1, size), name[MAX_NAME];
	enum cpa_status status = values
		? read_member_as(array, member, type, values, error)
		: cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", array->where);

	for (int64_t i = 0; status == CPA_OK && i < array->count; i++) {
		name_value(type, values + (size_t)i * size, size, name);
		dst[i] = find_choice(choices, name);
		for (char *c = name; *c; c++)
			*c = *c < ' ' || *c > '~' ? '?' : *c;
		if (dst[i] < 0)
			status = cpa_fail(error, CPA_INVALID,
				"%s: field \"%s\" of record %lld is \"%s\", which is none of "
				"those "
				"known",
				array->where, member, (long long)i, name);
	}
	free(values);
	return status;
}

enum cpa_status cpa_h5_read_member_choice(const struct cpa_h5_array *array, const char *member,
	const char *const *choices, int64_t *dst, struct cpa_error *error)
{
	hid_t type = member_type(array, member);
	H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
	bool named = (class == H5T_ENUM && H5Tget_nmembers(type) <= MAX_ENUM &&
			     H5Tget_size(type) <= 8) ||
		(class == H5T_STRING && H5Tis_variable_str(type) <= 0 &&
			H5Tget_size(type) < MAX_NAME);
	enum cpa_status status = named ? read_named(array, member, type, choices, dst, error)
		: class == H5T_INTEGER
		? cpa_h5_read_member(array, member, dst, error)
		: no_member(array, member, "integers, an enum or strings of fixed length", error);

	if (type >= 0)
		H5Tclose(type);
	for (int64_t i = 0, n = 0; status == CPA_OK && i < array->count; i++) {
		for (n = 0; choices[n];)
			n++;
		if (dst[i] < 0 || dst[i] >= n)
			status = cpa_fail(error, CPA_INVALID,
				"%s: field \"%s\" of record %lld is %lld; expected 0 to %lld",
				array->where, member, (long long)i, (long long)dst[i],
				(long long)n - 1);
	}
	return status;
}

/* ---- writing ---- */

/* The type of a column; to be closed. */
static hid_t column_type(const struct cpa_h5_column *column)
{
	hid_t type;

	if (!column->names)
		return H5Tcopy(H5T_NATIVE_INT64);
	if (column->strings) {
		type = H5Tcopy(H5T_C_S1);
		H5Tset_size(type, MAX_NAME - 1);
		return type;
	}
	type = H5Tenum_create(H5T_NATIVE_INT64);
	for (int64_t i = 0; column->names[i]; i++)
		H5Tenum_insert(type, column->names[i], &i);
	return type;
}

void cpa_h5_write_table(struct cpa_h5 *file, const char *path, int64_t n,
	const struct cpa_h5_column *columns, int ncolumns)
{
	hid_t types[CPA_H5_MAX_COLUMNS], record;
	size_t at[CPA_H5_MAX_COLUMNS], size = 0;
	char *data;

	assert(ncolumns <= CPA_H5_MAX_COLUMNS);
	for (int c = 0; c < ncolumns; c++) {
		types[c] = column_type(&columns[c]);
		at[c] = size;
		size += H5Tget_size(types[c]);
	}
	record = H5Tcreate(H5T_COMPOUND, size);
	data = calloc((size_t)n + 1, size);
	for (int c = 0; c < ncolumns; c++) {
		H5Tinsert(record, columns[c].name, at[c], types[c]);
		H5Tclose(types[c]);
		for (int64_t i = 0; data && i < n; i++)
			if (columns[c].names && columns[c].strings)
				snprintf(data + (size_t)i * size + at[c], MAX_NAME - 1, "%s",
					columns[c].names[columns[c].values[i]]);
			else
				memcpy(data + (size_t)i * size + at[c], &columns[c].values[i],
					sizeof(int64_t));
	}
	if (data)
		write_dataset(file, path, H5Tcopy(record), H5Tcopy(record), 1, &n, data);
	note(file, path, NULL, data != NULL);
	H5Tclose(record);
	free(data);
}

#endif
