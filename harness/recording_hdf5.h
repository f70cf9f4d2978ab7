/*
 * recording_hdf5.h - private to recording*.c: a strict, narrow view of HDF5, without its types.
 *
 * Everything that comes back has been checked against what the file really stores: an array whose
 * shape claims more than the file holds is refused before anything is allocated for it.  Objects are
 * named by absolute path; the caller has made sure that every link on the way is a hard one.
 * Functions that fail write "path: what is wrong" (attributes: "path@name: ...").
 */
#ifndef CPA_RECORDING_HDF5_H
#define CPA_RECORDING_HDF5_H

#include "ref/ref.h"

enum {
	CPA_H5_MAX_RANK = 4,           /* of arrays that can be read; others can be looked at */
	CPA_H5_BLOCK_NBYTES = 4 << 20, /* what reading in blocks takes at a time */
	CPA_H5_MAX_NAMES = 100000,     /* links of a group, attributes of an object */
	CPA_H5_MAX_VALUES = 3000000,   /* elements of an attribute */
	CPA_H5_WHERE = 640             /* room for a place; longer paths are refused */
};

struct cpa_h5;

/* Opens for reading.  The image form reads a file that lies in memory and is copied. */
enum cpa_status cpa_h5_open(const char *path, struct cpa_h5 **file, struct cpa_error *error);
enum cpa_status cpa_h5_open_image(const void *image, size_t nbytes, struct cpa_h5 **file,
	struct cpa_error *error);
void cpa_h5_close(struct cpa_h5 *file);
uint64_t cpa_h5_file_nbytes(const struct cpa_h5 *file);

enum cpa_h5_object { CPA_H5_NOTHING, CPA_H5_GROUP, CPA_H5_DATASET, CPA_H5_OTHER };
enum cpa_h5_object cpa_h5_object(const struct cpa_h5 *file, const char *path);

/* Names in ascending order, in an arena. */
struct cpa_h5_names {
	int n;
	const char **at;
	bool *hard; /* links only: false for soft, external and user-defined ones */
};
enum cpa_status cpa_h5_links(const struct cpa_h5 *file, const char *path, struct cpa_arena *arena,
	struct cpa_h5_names *names, struct cpa_error *error);
enum cpa_status cpa_h5_attributes(const struct cpa_h5 *file, const char *path, struct cpa_arena *arena,
	struct cpa_h5_names *names, struct cpa_error *error);

/* FLOAT is one of the four formats of cpa_dtype, in any byte order; TRUTH is the enum of h5py. */
/* RECORDS is a compound type, whatever its members. */
enum cpa_h5_class { CPA_H5_FLOAT, CPA_H5_INTEGER, CPA_H5_TRUTH, CPA_H5_STRING, CPA_H5_RECORDS, CPA_H5_ALIEN };

/* A dataset or an attribute.  A scalar has rank 0 and count 1.  dims beyond CPA_H5_MAX_RANK are not
 * kept; such an array can be described but not read. */
struct cpa_h5_array {
	char where[CPA_H5_WHERE];
	int64_t id;
	bool attribute;
	enum cpa_h5_class class;
	enum cpa_dtype dtype; /* of FLOAT */
	char type[24];        /* "float32", "integer", "compound", ...: for messages */
	int rank;
	int64_t dims[CPA_H5_MAX_RANK];
	int64_t count; /* product of all dims */
};
/* attribute NULL: the dataset at path.  Needs cpa_h5_array_close() after success. */
enum cpa_status cpa_h5_array_open(const struct cpa_h5 *file, const char *path, const char *attribute,
	struct cpa_h5_array *array, struct cpa_error *error);
void cpa_h5_array_close(struct cpa_h5_array *array);
bool cpa_h5_attribute_exists(const struct cpa_h5 *file, const char *path, const char *attribute);

/* What to read of a dataset: along each axis `count` runs of `block` elements, `stride` apart. */
struct cpa_h5_box {
	int64_t start[CPA_H5_MAX_RANK], stride[CPA_H5_MAX_RANK];
	int64_t count[CPA_H5_MAX_RANK], block[CPA_H5_MAX_RANK];
};
/* The elements of the box, dense, as stored but in the byte order of this machine.  FLOAT, INTEGER and
 * TRUTH datasets of rank 1 to 4. */
enum cpa_status cpa_h5_read_box(const struct cpa_h5_array *array, const struct cpa_h5_box *box, void *dst,
	struct cpa_error *error);
size_t cpa_h5_element_nbytes(const struct cpa_h5_array *array);
/* Elements first .. first+n-1 of a dataset of rank 1; of an attribute or a scalar all (first = 0,
 * n = count).  INTEGER or TRUTH. */
enum cpa_status cpa_h5_read_integers(const struct cpa_h5_array *array, int64_t first, int64_t n,
	int64_t *dst, struct cpa_error *error);
/* The elements of a FLOAT array that has as many as dst has room for. */
enum cpa_status cpa_h5_read_double(const struct cpa_h5_array *array, double *dst, struct cpa_error *error);
/* All elements of a STRING array, in arena.  strings [count] out. */
enum cpa_status cpa_h5_read_strings(const struct cpa_h5_array *array, struct cpa_arena *arena,
	const char **strings, struct cpa_error *error);

/* One field of every record of a RECORDS dataset: integers; or choices, a list that ends with NULL,
 * by number (integers) or by name (an enum, or strings of fixed length).   dst [count] out */
enum cpa_status cpa_h5_read_member(const struct cpa_h5_array *array, const char *member, int64_t *dst,
	struct cpa_error *error);
enum cpa_status cpa_h5_read_member_choice(const struct cpa_h5_array *array, const char *member,
	const char *const *choices, int64_t *dst, struct cpa_error *error);

/*
 * Writing.  The file is built in memory, so that the only input and output is the caller's: a disk that
 * is full at the end of a file is beyond what HDF5 can report and survive.  A failure sticks and is
 * reported by cpa_h5_image().
 */
enum cpa_status cpa_h5_create(struct cpa_h5 **file, struct cpa_error *error);
void cpa_h5_write_group(struct cpa_h5 *file, const char *path);
void cpa_h5_write_integer(struct cpa_h5 *file, const char *path, const char *attribute, int64_t value);
void cpa_h5_write_double(struct cpa_h5 *file, const char *path, const char *attribute, double value);
void cpa_h5_write_string(struct cpa_h5 *file, const char *path, const char *attribute, const char *value);
/* An attribute of one dimension. */
void cpa_h5_write_integer_list(struct cpa_h5 *file, const char *path, const char *attribute, int64_t n,
	const int64_t *values);
/* Of two. */
void cpa_h5_write_integer_table(struct cpa_h5 *file, const char *path, const char *attribute, int64_t nrows,
	int64_t ncolumns, const int64_t *values);
void cpa_h5_write_double_list(struct cpa_h5 *file, const char *path, const char *attribute,
	int64_t n, const double *values);
/* Datasets: n lengths or strings in one dimension; an array of floats or of bytes of any rank. */
void cpa_h5_write_integers(struct cpa_h5 *file, const char *path, int64_t n, const int64_t *values);
void cpa_h5_write_strings(struct cpa_h5 *file, const char *path, int64_t n, const char *const *values);
void cpa_h5_write_array(struct cpa_h5 *file, const char *path, enum cpa_dtype dtype, int rank,
	const int64_t *dims, const void *data);
void cpa_h5_write_bytes(struct cpa_h5 *file, const char *path, int rank, const int64_t *dims,
	const uint8_t *data);
/* A dataset that is filled in by boxes: of floats of dtype, or (class INTEGER) of bytes. */
void cpa_h5_write_empty(struct cpa_h5 *file, const char *path, enum cpa_h5_class class,
	enum cpa_dtype dtype, int rank, const int64_t *dims);
/* A dataset of n records.  A column is integers, or numbers of names (a list that ends with NULL), which
 * are then written as an enum or as strings. */
enum { CPA_H5_MAX_COLUMNS = 8 };
struct cpa_h5_column {
	const char *name;
	const int64_t *values; /* [n] */
	const char *const *names;
	bool strings;
};
void cpa_h5_write_table(struct cpa_h5 *file, const char *path, int64_t n,
	const struct cpa_h5_column *columns, int ncolumns);
/* The bytes of the finished file, to be given to free(). */
enum cpa_status cpa_h5_image(struct cpa_h5 *file, void **image, size_t *nbytes, struct cpa_error *error);

/*
 * Large files are written on the disk, in this order, so that the disk can only be found full before the
 * long part, and before HDF5 has something to lose: create; reserve, with the bytes that are expected;
 * groups, attributes, and all datasets by cpa_h5_write_empty() or with their values; reserve once more, with
 * 0 (as many as it is now); then boxes, each of an array that cpa_h5_array_open() gives; finish, and
 * cpa_h5_close().  path is overwritten; the caller makes it a temporary name.
 */
enum cpa_status cpa_h5_create_file(const char *path, struct cpa_h5 **file, struct cpa_error *error);
enum cpa_status cpa_h5_reserve(struct cpa_h5 *file, const char *path, uint64_t expected,
	struct cpa_error *error);
/* Like cpa_h5_read_box(), but writes. */
enum cpa_status cpa_h5_write_box(const struct cpa_h5_array *array, const struct cpa_h5_box *box,
	const void *src, struct cpa_error *error);
enum cpa_status cpa_h5_finish(struct cpa_h5 *file, struct cpa_error *error);

#endif
