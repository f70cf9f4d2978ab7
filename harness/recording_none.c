/*
 * recording_none.c - takes the place of recording_hdf5.c in a build without HDF5: opening and creating
 * say so, and nothing else can be reached.
 */
#include "harness/recording_hdf5.h"

#if !CPA_HAVE_HDF5

#include <assert.h>

static enum cpa_status none(struct cpa_error *error)
{
	return cpa_fail(error, CPA_UNSUPPORTED, "built without HDF5, so recordings cannot be read or "
		"written; install libhdf5-dev (or set HDF5=1) and rebuild");
}

enum cpa_status cpa_h5_open(const char *path, struct cpa_h5 **file, struct cpa_error *error)
{
	(void)path;
	(void)file;
	return none(error);
}

enum cpa_status cpa_h5_open_image(const void *image, size_t nbytes, struct cpa_h5 **file,
	struct cpa_error *error)
{
	(void)image;
	(void)nbytes;
	(void)file;
	return none(error);
}

enum cpa_status cpa_h5_create(struct cpa_h5 **file, struct cpa_error *error)
{
	(void)file;
	return none(error);
}

enum cpa_status cpa_h5_create_file(const char *path, struct cpa_h5 **file, struct cpa_error *error)
{
	(void)path;
	(void)file;
	return none(error);
}

void cpa_h5_close(struct cpa_h5 *file)
{
	assert(!file);
}

/* Everything below needs an open file, which there never is. */
#define UNREACHABLE(declaration, value) \
	declaration                     \
	{                               \
		assert(!"no HDF5");     \
		return value;           \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

UNREACHABLE(uint64_t cpa_h5_file_nbytes(const struct cpa_h5 *file), 0)
UNREACHABLE(enum cpa_h5_object cpa_h5_object(const struct cpa_h5 *file, const char *path), CPA_H5_NOTHING)
UNREACHABLE(enum cpa_status cpa_h5_links(const struct cpa_h5 *file, const char *path,
	struct cpa_arena *arena, struct cpa_h5_names *names, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_attributes(const struct cpa_h5 *file, const char *path,
	struct cpa_arena *arena, struct cpa_h5_names *names, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_array_open(const struct cpa_h5 *file, const char *path,
	const char *attribute, struct cpa_h5_array *array, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(void cpa_h5_array_close(struct cpa_h5_array *array), )
UNREACHABLE(bool cpa_h5_attribute_exists(const struct cpa_h5 *file, const char *path,
	const char *attribute), false)
UNREACHABLE(enum cpa_status cpa_h5_read_box(const struct cpa_h5_array *array,
	const struct cpa_h5_box *box, void *dst, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(size_t cpa_h5_element_nbytes(const struct cpa_h5_array *array), 0)
UNREACHABLE(enum cpa_status cpa_h5_read_integers(const struct cpa_h5_array *array, int64_t first,
	int64_t n, int64_t *dst, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_read_double(const struct cpa_h5_array *array, double *dst,
	struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_read_strings(const struct cpa_h5_array *array,
	struct cpa_arena *arena, const char **strings, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(void cpa_h5_write_group(struct cpa_h5 *file, const char *path), )
UNREACHABLE(void cpa_h5_write_integer(struct cpa_h5 *file, const char *path, const char *attribute,
	int64_t value), )
UNREACHABLE(void cpa_h5_write_integer_list(struct cpa_h5 *file, const char *path, const char *attribute,
	int64_t n, const int64_t *values), )
UNREACHABLE(void cpa_h5_write_integer_table(struct cpa_h5 *file, const char *path, const char *attribute,
	int64_t nrows, int64_t ncolumns, const int64_t *values), )
UNREACHABLE(void cpa_h5_write_double_list(struct cpa_h5 *file, const char *path,
		    const char *attribute, int64_t n, const double *values), )
UNREACHABLE(void cpa_h5_write_double(struct cpa_h5 *file, const char *path, const char *attribute,
	double value), )
UNREACHABLE(void cpa_h5_write_string(struct cpa_h5 *file, const char *path, const char *attribute,
	const char *value), )
UNREACHABLE(void cpa_h5_write_integers(struct cpa_h5 *file, const char *path, int64_t n,
	const int64_t *values), )
UNREACHABLE(void cpa_h5_write_strings(struct cpa_h5 *file, const char *path, int64_t n,
	const char *const *values), )
UNREACHABLE(void cpa_h5_write_array(struct cpa_h5 *file, const char *path, enum cpa_dtype dtype,
	int rank, const int64_t *dims, const void *data), )
UNREACHABLE(void cpa_h5_write_bytes(struct cpa_h5 *file, const char *path, int rank, const int64_t *dims,
	const uint8_t *data), )
UNREACHABLE(void cpa_h5_write_empty(struct cpa_h5 *file, const char *path, enum cpa_h5_class class,
	enum cpa_dtype dtype, int rank, const int64_t *dims), )
UNREACHABLE(enum cpa_status cpa_h5_reserve(struct cpa_h5 *file, const char *path, uint64_t expected,
	struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_write_box(const struct cpa_h5_array *array,
	const struct cpa_h5_box *box, const void *src, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_finish(struct cpa_h5 *file, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_image(struct cpa_h5 *file, void **image, size_t *nbytes,
	struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_read_member(const struct cpa_h5_array *array, const char *member,
	int64_t *dst, struct cpa_error *error), CPA_UNSUPPORTED)
UNREACHABLE(enum cpa_status cpa_h5_read_member_choice(const struct cpa_h5_array *array,
	const char *member, const char *const *choices, int64_t *dst, struct cpa_error *error),
	CPA_UNSUPPORTED)
UNREACHABLE(void cpa_h5_write_table(struct cpa_h5 *file, const char *path, int64_t n,
	const struct cpa_h5_column *columns, int ncolumns), )

#endif
