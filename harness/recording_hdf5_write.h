/*
 * recording_hdf5_write.h - a part of recording_hdf5.c, included there and nowhere else: building a file
 * in memory.
 */
#ifndef CPA_RECORDING_HDF5_WRITE_H
#define CPA_RECORDING_HDF5_WRITE_H

enum cpa_status cpa_h5_create(struct cpa_h5 **file, struct cpa_error *error)
{
	struct cpa_h5 *created = calloc(1, sizeof *created);
	hid_t access;

	if (!created)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	access = H5Pcreate(H5P_FILE_ACCESS);
	H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
	H5Pset_fapl_core(access, 1 << 20, 0);
	created->id = H5Fcreate("image", H5F_ACC_TRUNC, H5P_DEFAULT, access);
	H5Pclose(access);
	if (created->id < 0) {
		free(created);
		return cpa_fail(error, CPA_EXTERNAL, "HDF5 cannot create a file in memory");
	}
	*file = created;
	return CPA_OK;
}

/* Keeps the first failure. */
static void note(struct cpa_h5 *file, const char *path, const char *attribute, bool worked)
{
	char reason[200] = "no reason given";

	if (worked || file->reason[0] != '\0')
		return;
	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_innermost, reason);
	H5Eclear2(H5E_DEFAULT);
	snprintf(file->reason, sizeof file->reason, "%.40s%s%.20s cannot be written: %.150s", path,
		attribute ? "@" : "", attribute ? attribute : "", reason);
}

void cpa_h5_write_group(struct cpa_h5 *file, const char *path)
{
	hid_t group = H5Gcreate2(file->id, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

	note(file, path, NULL, group >= 0 && H5Gclose(group) >= 0);
}

/* type and space are closed. */
static void write_values(struct cpa_h5 *file, const char *path, const char *attribute, hid_t type,
	hid_t memory_type, hid_t space, const void *value)
{
	hid_t id = H5Acreate_by_name(file->id, path, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT,
		H5P_DEFAULT);
	bool worked = id >= 0 && H5Awrite(id, memory_type, value) >= 0;

	if (id >= 0)
		worked = H5Aclose(id) >= 0 && worked;
	note(file, path, attribute, worked);
	H5Sclose(space);
	H5Tclose(type);
}

/* A scalar; type is closed. */
static void write_attribute(struct cpa_h5 *file, const char *path, const char *attribute, hid_t type,
	hid_t memory_type, const void *value)
{
	write_values(file, path, attribute, type, memory_type, H5Screate(H5S_SCALAR), value);
}

void cpa_h5_write_integer_list(struct cpa_h5 *file, const char *path, const char *attribute, int64_t n,
	const int64_t *values)
{
	const hsize_t extent = (hsize_t)n;

	write_values(file, path, attribute, H5Tcopy(H5T_STD_I64LE), H5T_NATIVE_INT64,
		H5Screate_simple(1, &extent, NULL), values);
}

void cpa_h5_write_integer_table(struct cpa_h5 *file, const char *path, const char *attribute, int64_t nrows,
	int64_t ncolumns, const int64_t *values)
{
	const hsize_t extent[2] = {(hsize_t)nrows, (hsize_t)ncolumns};

	write_values(file, path, attribute, H5Tcopy(H5T_STD_I64LE), H5T_NATIVE_INT64,
		H5Screate_simple(2, extent, NULL), values);
}

void cpa_h5_write_double_list(struct cpa_h5 *file, const char *path, const char *attribute,
	int64_t n, const double *values)
{
	const hsize_t extent = (hsize_t)n;

	write_values(file, path, attribute, H5Tcopy(H5T_IEEE_F64LE), H5T_NATIVE_DOUBLE,
		H5Screate_simple(1, &extent, NULL), values);
}

void cpa_h5_write_integer(struct cpa_h5 *file, const char *path, const char *attribute, int64_t value)
{
	write_attribute(file, path, attribute, H5Tcopy(H5T_STD_I64LE), H5T_NATIVE_INT64, &value);
}

void cpa_h5_write_double(struct cpa_h5 *file, const char *path, const char *attribute, double value)
{
	write_attribute(file, path, attribute, H5Tcopy(H5T_IEEE_F64LE), H5T_NATIVE_DOUBLE, &value);
}

static hid_t string_type(void)
{
	hid_t type = H5Tcopy(H5T_C_S1);

	H5Tset_size(type, H5T_VARIABLE);
	H5Tset_cset(type, H5T_CSET_UTF8);
	return type;
}

void cpa_h5_write_string(struct cpa_h5 *file, const char *path, const char *attribute, const char *value)
{
	hid_t type = string_type();

	write_attribute(file, path, attribute, type, type, &value);
}

/* Both types are closed. */
static void write_dataset(struct cpa_h5 *file, const char *path, hid_t type, hid_t memory_type, int rank,
	const int64_t *dims, const void *data)
{
	hsize_t extent[H5S_MAX_RANK];
	hid_t space, id;
	bool worked;

	for (int i = 0; i < rank; i++)
		extent[i] = (hsize_t)dims[i];
	space = H5Screate_simple(rank, extent, NULL);
	id = H5Dcreate2(file->id, path, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
	worked = id >= 0 && H5Dwrite(id, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
	if (id >= 0)
		worked = H5Dclose(id) >= 0 && worked;
	note(file, path, NULL, worked);
	H5Sclose(space);
	H5Tclose(type);
	H5Tclose(memory_type);
}

void cpa_h5_write_integers(struct cpa_h5 *file, const char *path, int64_t n, const int64_t *values)
{
	write_dataset(file, path, H5Tcopy(H5T_STD_I64LE), H5Tcopy(H5T_NATIVE_INT64), 1, &n, values);
}

void cpa_h5_write_strings(struct cpa_h5 *file, const char *path, int64_t n, const char *const *values)
{
	write_dataset(file, path, string_type(), string_type(), 1, &n, values);
}

/* The little-endian type of a format; the 16-bit ones are cut out of float32. */
static hid_t file_type(enum cpa_dtype dtype)
{
	const struct float_format *f = &float_formats[dtype];
	hid_t type = H5Tcopy(dtype == CPA_DTYPE_FP64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);

	if (f->bits == 16) {
		/* Fields first: they must lie within the size at any time. */
		H5Tset_fields(type, 15, f->exponent, f->exponent_bits, 0, f->exponent);
		H5Tset_size(type, 2);
		H5Tset_ebias(type, ((size_t)1 << (f->exponent_bits - 1)) - 1);
	}
	return type;
}

void cpa_h5_write_array(struct cpa_h5 *file, const char *path, enum cpa_dtype dtype, int rank,
	const int64_t *dims, const void *data)
{
	hid_t memory_type = file_type(dtype);

	H5Tset_order(memory_type, H5Tget_order(H5T_NATIVE_INT));
	write_dataset(file, path, file_type(dtype), memory_type, rank, dims, data);
}

void cpa_h5_write_bytes(struct cpa_h5 *file, const char *path, int rank, const int64_t *dims,
	const uint8_t *data)
{
	write_dataset(file, path, H5Tcopy(H5T_STD_U8LE), H5Tcopy(H5T_NATIVE_UINT8), rank, dims, data);
}

enum cpa_status cpa_h5_image(struct cpa_h5 *file, void **image, size_t *nbytes, struct cpa_error *error)
{
	ssize_t size;
	void *copy;

	note(file, "/", NULL, H5Fflush(file->id, H5F_SCOPE_GLOBAL) >= 0);
	if (file->reason[0] != '\0')
		return cpa_fail(error, CPA_EXTERNAL, "HDF5: %s", file->reason);
	size = H5Fget_file_image(file->id, NULL, 0);
	copy = size > 0 ? malloc((size_t)size) : NULL;
	if (!copy)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the file");
	if (H5Fget_file_image(file->id, copy, (size_t)size) != size) {
		free(copy);
		return cpa_fail(error, CPA_EXTERNAL, "HDF5 cannot give out the file");
	}
	*image = copy;
	*nbytes = (size_t)size;
	return CPA_OK;
}

#endif
