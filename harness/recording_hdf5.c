/*
 * recording_hdf5.c - the only file that includes hdf5.h.
 *
 * HDF5 trusts its files more than we may: it allocates what a header claims, follows links anywhere and
 * makes up data that was never written.  So each array is held against the size of the file and the
 * storage that HDF5 reports before it is read.  Where HDF5 gives a reason, the innermost is passed on.
 */
#include "harness/recording_hdf5.h"

#if CPA_HAVE_HDF5

#include <hdf5.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cpa_h5 {
	hid_t id;
	uint64_t nbytes; /* of the file: no array can store more */
	char reason[256]; /* writing: the first failure, "" for none */
};

/* ---- errors ---------------------------------------------------------------------------------- */

static herr_t note_innermost(unsigned n, const H5E_error2_t *record, void *data)
{
	char *text = data;

	if (n == 0 && record->desc)
		snprintf(text, 200, "%s", record->desc);
	return 0;
}

/* "where: what (reason of HDF5)" */
static enum cpa_status fail(struct cpa_error *error, const char *where, const char *what)
{
	char reason[200] = "no reason given";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_innermost, reason);
	H5Eclear2(H5E_DEFAULT);
	return cpa_fail(error, CPA_INVALID, "%s: %s (HDF5: %s)", where, what, reason);
}

/*
 * Before anything else.  Nothing is left to do at exit, as all files are closed by then, but for one that
 * could not be written out: HDF5 would try that again and again, and complain on stderr.
 */
static void begin(void)
{
	static bool begun;

	if (!begun)
		H5dont_atexit();
	begun = true;
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum cpa_status open_with(hid_t access, const char *path, struct cpa_h5 **file,
	struct cpa_error *error)
{
	struct cpa_h5 *opened = calloc(1, sizeof *opened);
	hsize_t nbytes = 0;

	if (!opened)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
	opened->id = H5Fopen(path, H5F_ACC_RDONLY, access);
	if (opened->id < 0) {
		free(opened);
		return fail(error, "/", "not a readable HDF5 file; expected a complete one");
	}
	if (H5Fget_filesize(opened->id, &nbytes) < 0) {
		cpa_h5_close(opened);
		return fail(error, "/", "the size of the file cannot be told");
	}
	opened->nbytes = nbytes;
	*file = opened;
	return CPA_OK;
}

enum cpa_status cpa_h5_open(const char *path, struct cpa_h5 **file, struct cpa_error *error)
{
	enum cpa_status status;
	hid_t access;

	begin();
	access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
	/* File systems without locks are no reason to refuse. */
	H5Pset_file_locking(access, 1, 1);
#endif
	status = open_with(access, path, file, error);
	H5Pclose(access);
	return status;
}

enum cpa_status cpa_h5_open_image(const void *image, size_t nbytes, struct cpa_h5 **file,
	struct cpa_error *error)
{
	enum cpa_status status;
	hid_t access;

	begin();
	if (nbytes == 0)
		return cpa_fail(error, CPA_INVALID, "/: the file is empty");
	access = H5Pcreate(H5P_FILE_ACCESS);
	H5Pset_fapl_core(access, 1 << 16, 0);
	/* HDF5 copies the image; its parameter only lacks the const. */
	H5Pset_file_image(access, (void *)(uintptr_t)image, nbytes);
	status = open_with(access, "image", file, error);
	H5Pclose(access);
	return status;
}

void cpa_h5_close(struct cpa_h5 *file)
{
	if (!file)
		return;
	/* Only the file itself is still open. */
	assert(H5Fget_obj_count(file->id, H5F_OBJ_ALL | H5F_OBJ_LOCAL) <= 1);
	H5Fclose(file->id);
	H5Eclear2(H5E_DEFAULT);
	free(file);
}

uint64_t cpa_h5_file_nbytes(const struct cpa_h5 *file)
{
	return file->nbytes;
}

enum cpa_h5_object cpa_h5_object(const struct cpa_h5 *file, const char *path)
{
	hid_t id = H5Oopen(file->id, path, H5P_DEFAULT);
	H5I_type_t type = id < 0 ? H5I_BADID : H5Iget_type(id);

	if (id < 0) {
		H5Eclear2(H5E_DEFAULT);
		return CPA_H5_NOTHING;
	}
	H5Oclose(id);
	return type == H5I_GROUP ? CPA_H5_GROUP : type == H5I_DATASET ? CPA_H5_DATASET : CPA_H5_OTHER;
}

/* ---- names ----------------------------------------------------------------------------------- */

struct collect {
	struct cpa_arena *arena;
	struct cpa_h5_names *names;
};

static herr_t collect(struct collect *into, const char *name, bool hard)
{
	struct cpa_h5_names *names = into->names;
	char *copy;

	if (names->n == CPA_H5_MAX_NAMES)
		return -1;
	if ((names->n & (names->n - 1)) == 0) { /* full at each power of two */
		size_t room = names->n ? 2 * (size_t)names->n : 1;
		const char **at = cpa_arena_alloc(into->arena, room * sizeof *at);
		bool *flags = cpa_arena_alloc(into->arena, room * sizeof *flags);

		if (!at || !flags)
			return -1;
		for (int i = 0; i < names->n; i++) {
			at[i] = names->at[i];
			flags[i] = names->hard[i];
		}
		names->at = at;
		names->hard = flags;
	}
	copy = cpa_arena_alloc(into->arena, strlen(name) + 1);
	if (!copy)
		return -1;
	strcpy(copy, name);
	names->at[names->n] = copy;
	names->hard[names->n++] = hard;
	return 0;
}

static herr_t collect_link(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
	(void)group;
	return collect(data, name, info->type == H5L_TYPE_HARD);
}

static herr_t collect_attribute(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
	(void)object;
	(void)info;
	return collect(data, name, true);
}

enum cpa_status cpa_h5_links(const struct cpa_h5 *file, const char *path, struct cpa_arena *arena,
	struct cpa_h5_names *names, struct cpa_error *error)
{
	struct collect into = {arena, names};
	hid_t group = H5Gopen2(file->id, path, H5P_DEFAULT);
	enum cpa_status status = CPA_OK;

	*names = (struct cpa_h5_names){0};
	if (group < 0 ||
	    H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, collect_link, &into) < 0)
		status = fail(error, path, "the links of this group cannot be listed");
	if (group >= 0)
		H5Gclose(group);
	return status;
}

enum cpa_status cpa_h5_attributes(const struct cpa_h5 *file, const char *path, struct cpa_arena *arena,
	struct cpa_h5_names *names, struct cpa_error *error)
{
	struct collect into = {arena, names};
	hid_t object = H5Oopen(file->id, path, H5P_DEFAULT);
	enum cpa_status status = CPA_OK;

	*names = (struct cpa_h5_names){0};
	if (object < 0 ||
	    H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, collect_attribute, &into) < 0)
		status = fail(error, path, "the attributes of this object cannot be listed");
	if (object >= 0)
		H5Oclose(object);
	return status;
}

#include "harness/recording_hdf5_storage.h"

/* ---- arrays ---------------------------------------------------------------------------------- */

static enum cpa_status measure(hid_t space, size_t size, struct cpa_h5_array *array,
	struct cpa_error *error)
{
	hsize_t dims[H5S_MAX_RANK] = {0};
	H5S_class_t class = H5Sget_simple_extent_type(space);

	if (class != H5S_SCALAR && class != H5S_SIMPLE)
		return cpa_fail(error, CPA_INVALID, "%s: holds no value", array->where);
	array->rank = H5Sget_simple_extent_dims(space, dims, NULL);
	if (array->rank < 0 || size == 0)
		return fail(error, array->where, "the shape cannot be read");
	array->count = 1;
	for (int i = 0; i < array->rank; i++) {
		if (i < CPA_H5_MAX_RANK)
			array->dims[i] = (int64_t)dims[i];
		/* Bytes within 2^62, so that sizes of anything derived do not overflow either. */
		if (dims[i] > ((hsize_t)1 << 62) / size / (array->count ? (hsize_t)array->count : 1))
			return cpa_fail(error, CPA_INVALID, "%s: the shape declares more than 2^62 bytes",
				array->where);
		array->count *= (int64_t)dims[i];
	}
	if (array->attribute && array->count > CPA_H5_MAX_VALUES)
		return cpa_fail(error, CPA_INVALID, "%s: %lld values; expected at most %d", array->where,
			(long long)array->count, (int)CPA_H5_MAX_VALUES);
	return CPA_OK;
}

static enum cpa_status array_check(const struct cpa_h5 *file, struct cpa_h5_array *array,
	struct cpa_error *error)
{
	bool attribute = array->attribute;
	hid_t type = attribute ? H5Aget_type(array->id) : H5Dget_type(array->id);
	hid_t space = attribute ? H5Aget_space(array->id) : H5Dget_space(array->id);
	hid_t creation = attribute ? H5P_DEFAULT : H5Dget_create_plist(array->id);
	enum cpa_status status;

	if (type < 0 || space < 0 || creation < 0) {
		status = fail(error, array->where, "its type and shape cannot be read");
	} else {
		classify(type, array);
		status = measure(space, H5Tget_size(type), array, error);
		if (status == CPA_OK && !attribute)
			status = check_storage(file, creation, space, array, H5Tget_size(type), error);
	}
	if (type >= 0)
		H5Tclose(type);
	if (space >= 0)
		H5Sclose(space);
	if (!attribute && creation >= 0)
		H5Pclose(creation);
	return status;
}

enum cpa_status cpa_h5_array_open(const struct cpa_h5 *file, const char *path, const char *attribute,
	struct cpa_h5_array *array, struct cpa_error *error)
{
	struct cpa_h5_array opened = {.attribute = attribute != NULL};
	enum cpa_status status;
	hid_t access = H5P_DEFAULT;

	snprintf(opened.where, sizeof opened.where, "%s%s%s", path, attribute ? "@" : "",
		attribute ? attribute : "");
	if (attribute) {
		opened.id = H5Aopen_by_name(file->id, path, attribute, H5P_DEFAULT, H5P_DEFAULT);
	} else {
		/* Blocks cross chunks, so keep what a block touches. */
		access = H5Pcreate(H5P_DATASET_ACCESS);
		H5Pset_chunk_cache(access, 10007, 64u << 20, 1.0);
		opened.id = H5Dopen2(file->id, path, access);
	}
	if (opened.id < 0)
		fail(error, opened.where, attribute ? "this attribute cannot be opened"
						    : "it cannot be opened; expected a dataset");
	if (!attribute)
		H5Pclose(access);
	if (opened.id < 0)
		return CPA_INVALID;
	status = array_check(file, &opened, error);
	if (status != CPA_OK) {
		cpa_h5_array_close(&opened);
		return status;
	}
	*array = opened;
	return CPA_OK;
}

void cpa_h5_array_close(struct cpa_h5_array *array)
{
	if (array->attribute)
		H5Aclose(array->id);
	else
		H5Dclose(array->id);
	H5Eclear2(H5E_DEFAULT);
}

bool cpa_h5_attribute_exists(const struct cpa_h5 *file, const char *path, const char *attribute)
{
	htri_t exists = H5Aexists_by_name(file->id, path, attribute, H5P_DEFAULT);

	H5Eclear2(H5E_DEFAULT);
	return exists != 0; /* one that cannot be looked up fails when it is opened */
}

/* ---- reading --------------------------------------------------------------------------------- */

size_t cpa_h5_element_nbytes(const struct cpa_h5_array *array)
{
	hid_t type = array->attribute ? H5Aget_type(array->id) : H5Dget_type(array->id);
	size_t size = H5Tget_size(type);

	H5Tclose(type);
	return size;
}

/* The element type of a dataset in the byte order of this machine; negative on failure. */
static hid_t native_type(const struct cpa_h5_array *array)
{
	hid_t stored = H5Dget_type(array->id);
	hid_t native = H5Tcopy(stored);

	H5Tclose(stored);
	/* A truth value is one byte, and HDF5 lets no enum change its order. */
	if (array->class != CPA_H5_TRUTH && H5Tset_order(native, H5Tget_order(H5T_NATIVE_INT)) < 0) {
		H5Tclose(native);
		return -1;
	}
	return native;
}

static enum cpa_status read_selected(const struct cpa_h5_array *array, const hsize_t *start,
	const hsize_t *stride, const hsize_t *count, const hsize_t *block, hid_t type, void *dst,
	struct cpa_error *error)
{
	hid_t space = H5Dget_space(array->id), memory;
	hsize_t n = 1;
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < array->rank; i++)
		n *= count[i] * block[i];
	memory = H5Screate_simple(1, &n, NULL);
	/* The reason is asked for at once: the next call of HDF5 forgets it. */
	if (space < 0 || memory < 0 ||
	    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block) < 0 ||
	    H5Dread(array->id, type, memory, space, H5P_DEFAULT, dst) < 0)
		status = fail(error, array->where, "the data cannot be read");
	H5Sclose(memory);
	H5Sclose(space);
	return status;
}

enum cpa_status cpa_h5_read_box(const struct cpa_h5_array *array, const struct cpa_h5_box *box, void *dst,
	struct cpa_error *error)
{
	hsize_t start[CPA_H5_MAX_RANK], stride[CPA_H5_MAX_RANK];
	hsize_t count[CPA_H5_MAX_RANK], block[CPA_H5_MAX_RANK];
	enum cpa_status status;
	hid_t type;

	for (int i = 0; i < array->rank; i++) {
		start[i] = (hsize_t)box->start[i];
		stride[i] = (hsize_t)box->stride[i];
		count[i] = (hsize_t)box->count[i];
		block[i] = (hsize_t)box->block[i];
	}
	type = native_type(array);
	if (type < 0)
		return fail(error, array->where, "this element type cannot be read");
	status = read_selected(array, start, stride, count, block, type, dst, error);
	H5Tclose(type);
	return status;
}

enum cpa_status cpa_h5_read_integers(const struct cpa_h5_array *array, int64_t first, int64_t n,
	int64_t *dst, struct cpa_error *error)
{
	const hsize_t start = (hsize_t)first, count = (hsize_t)n, one = 1;

	if (array->attribute) {
		if (H5Aread(array->id, H5T_NATIVE_INT64, dst) < 0)
			return fail(error, array->where, "the value cannot be read");
		return CPA_OK;
	}
	return read_selected(array, &start, &one, &count, &one, H5T_NATIVE_INT64, dst, error);
}

enum cpa_status cpa_h5_read_double(const struct cpa_h5_array *array, double *dst, struct cpa_error *error)
{
	herr_t done = array->attribute
		? H5Aread(array->id, H5T_NATIVE_DOUBLE, dst)
		: H5Dread(array->id, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, dst);

	return done < 0 ? fail(error, array->where, "the value cannot be read") : CPA_OK;
}

#include "harness/recording_hdf5_strings.h"
#include "harness/recording_hdf5_write.h"
#include "harness/recording_hdf5_table.h"

#endif
