/*
 * recording_hdf5_storage.h - a part of recording_hdf5.c, included there and nowhere else: which element
 * types are ours, and whether a dataset stores what its shape declares.
 */
#ifndef CPA_RECORDING_HDF5_STORAGE_H
#define CPA_RECORDING_HDF5_STORAGE_H

enum { MAX_CHUNK_NBYTES = 256 << 20 };

/* ---- element types --------------------------------------------------------------------------- */

/* How each cpa_dtype looks to HDF5: size in bits, exponent at and bits, mantissa bits. */
static const struct float_format {
	const char *name;
	size_t bits, exponent, exponent_bits;
} float_formats[] = {
	[CPA_DTYPE_FP64] = {"float64", 64, 52, 11},
	[CPA_DTYPE_FP32] = {"float32", 32, 23, 8},
	[CPA_DTYPE_BF16] = {"bfloat16", 16, 7, 8},
	[CPA_DTYPE_FP16] = {"float16", 16, 10, 5},
};

static bool float_dtype(hid_t type, enum cpa_dtype *dtype)
{
	size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
	H5T_order_t order = H5Tget_order(type);

	if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0 ||
	    (order != H5T_ORDER_LE && order != H5T_ORDER_BE) || H5Tget_offset(type) != 0 ||
	    H5Tget_norm(type) != H5T_NORM_IMPLIED || mantissa != 0)
		return false;
	for (int i = 0; i < (int)(sizeof float_formats / sizeof *float_formats); i++) {
		const struct float_format *f = &float_formats[i];

		if (8 * H5Tget_size(type) == f->bits && H5Tget_precision(type) == f->bits &&
		    sign == f->bits - 1 && exponent == f->exponent && mantissa_bits == exponent &&
		    exponent_bits == f->exponent_bits &&
		    H5Tget_ebias(type) == ((size_t)1 << (f->exponent_bits - 1)) - 1) {
			*dtype = (enum cpa_dtype)i;
			return true;
		}
	}
	return false;
}

/* The enum of int8 {FALSE = 0, TRUE = 1}. */
static bool is_truth(hid_t type)
{
	signed char no = -1, yes = -1;

	return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 &&
	       H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0 &&
	       no == 0 && yes == 1;
}

static void classify(hid_t type, struct cpa_h5_array *array)
{
	static const char *const names[] = {"integer", "float", "time", "string", "bitfield", "opaque",
		"compound", "reference", "enum", "variable-length", "array"};
	H5T_class_t class = H5Tget_class(type);

	array->class = CPA_H5_ALIEN;
	snprintf(array->type, sizeof array->type, "%s",
		class >= 0 && class < (int)(sizeof names / sizeof *names) ? names[class] : "unknown");
	if (class == H5T_FLOAT && float_dtype(type, &array->dtype)) {
		array->class = CPA_H5_FLOAT;
		snprintf(array->type, sizeof array->type, "%s", float_formats[array->dtype].name);
	} else if (class == H5T_INTEGER && H5Tget_size(type) <= 8) {
		array->class = CPA_H5_INTEGER;
	} else if (class == H5T_ENUM && is_truth(type)) {
		array->class = CPA_H5_TRUTH;
	} else if (class == H5T_STRING) {
		array->class = CPA_H5_STRING;
	} else if (class == H5T_COMPOUND) {
		array->class = CPA_H5_RECORDS;
	}
}

/* ---- what a dataset really stores ------------------------------------------------------------ */

static enum cpa_status check_filters(hid_t creation, const char *where, bool *deflated, int *nfilters,
	struct cpa_error *error)
{
	*deflated = true;
	*nfilters = H5Pget_nfilters(creation);
	for (int i = 0; i < *nfilters; i++) {
		unsigned flags, config;
		size_t nvalues = 0;
		H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &nvalues, NULL, 0,
			NULL, &config);

		if (filter < 0 || H5Zfilter_avail(filter) <= 0) {
			H5Eclear2(H5E_DEFAULT);
			return cpa_fail(error, CPA_INVALID, "%s: stored through filter %d, which this HDF5 "
				"library does not have; expected none, shuffle, deflate or another that it has",
				where, (int)filter);
		}
		if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE &&
		    filter != H5Z_FILTER_FLETCHER32)
			*deflated = false;
	}
	return CPA_OK;
}

/*
 * Number of chunks that the shape needs.  Refuses what the file cannot hold: without a filter each chunk
 * takes its size, with one at least a byte, and deflate makes nothing smaller than 1/1032.
 */
static enum cpa_status plan_chunks(hid_t creation, const struct cpa_h5_array *array, const hsize_t *dims,
	size_t size, uint64_t file_nbytes, hsize_t *nchunks, struct cpa_error *error)
{
	hsize_t chunk[H5S_MAX_RANK], nbytes = size;
	int nfilters = 0;
	bool deflated = false;
	enum cpa_status status;

	status = check_filters(creation, array->where, &deflated, &nfilters, error);
	if (status != CPA_OK)
		return status;
	if (H5Pget_chunk(creation, H5S_MAX_RANK, chunk) != array->rank)
		return fail(error, array->where, "the chunks of this dataset do not fit its shape");
	*nchunks = 1;
	for (int i = 0; i < array->rank; i++) {
		if (chunk[i] == 0 || chunk[i] > MAX_CHUNK_NBYTES || nbytes > MAX_CHUNK_NBYTES / chunk[i])
			return cpa_fail(error, CPA_INVALID, "%s: stored in chunks above 256 MiB; store it "
				"in smaller ones", array->where);
		nbytes *= chunk[i];
		*nchunks *= dims[i] / chunk[i] + (dims[i] % chunk[i] != 0); /* <= the count of elements */
	}
	if (*nchunks > file_nbytes || (nfilters == 0 && *nchunks > file_nbytes / nbytes) ||
	    (nfilters > 0 && deflated && (uint64_t)array->count * size / 1100 > file_nbytes))
		return cpa_fail(error, CPA_INVALID, "%s: the shape declares %lld elements of %zu bytes, which "
			"a file of %llu bytes cannot hold", array->where, (long long)array->count, size,
			(unsigned long long)file_nbytes);
	return CPA_OK;
}

/* All the data that the shape declares are in the file and HDF5 can get at them. */
static enum cpa_status check_storage(const struct cpa_h5 *file, hid_t creation, hid_t space,
	const struct cpa_h5_array *array, size_t size, struct cpa_error *error)
{
	H5D_layout_t layout = H5Pget_layout(creation);
	hsize_t dims[H5S_MAX_RANK], nchunks = 0, stored = 0;
	enum cpa_status status;

	if ((layout != H5D_COMPACT && layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED) ||
	    H5Pget_external_count(creation) > 0)
		return cpa_fail(error, CPA_INVALID, "%s: the data lie outside of this file (virtual or "
			"external storage); expected them inside", array->where);
	if (array->count == 0)
		return CPA_OK;
	if (layout == H5D_CHUNKED) {
		H5Sget_simple_extent_dims(space, dims, NULL);
		status = plan_chunks(creation, array, dims, size, file->nbytes, &nchunks, error);
		if (status != CPA_OK)
			return status;
#if H5_VERSION_GE(1, 10, 5)
		if (H5Dget_num_chunks(array->id, space, &stored) < 0)
			return fail(error, array->where, "the chunks cannot be listed");
#else
		stored = nchunks; /* cannot be asked; the storage size below still can */
#endif
		if (stored != nchunks)
			return cpa_fail(error, CPA_INVALID, "%s: %llu of %llu chunks were written, HDF5 "
				"would make up the rest; expected all data", array->where,
				(unsigned long long)stored, (unsigned long long)nchunks);
		stored = H5Dget_storage_size(array->id);
	} else {
		stored = H5Dget_storage_size(array->id);
		/* Variable-length strings take more in the file than as pointers in memory. */
		if (array->class == CPA_H5_STRING ? stored < (hsize_t)array->count * size
						  : stored != (hsize_t)array->count * size)
			return cpa_fail(error, CPA_INVALID, "%s: the shape declares %lld elements of %zu "
				"bytes, %llu bytes are stored (0: it was never written); expected all data",
				array->where, (long long)array->count, size, (unsigned long long)stored);
	}
	if (stored == 0 || stored > file->nbytes)
		return cpa_fail(error, CPA_INVALID, "%s: %llu bytes of storage in a file of %llu bytes",
			array->where, (unsigned long long)stored, (unsigned long long)file->nbytes);
	return CPA_OK;
}

#endif
