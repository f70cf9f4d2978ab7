/*
 * host.h - what the two host devices share; not a public header.
 *
 * Both keep device memory in host memory and run work at submit, so copies, memory and events
 * are the same code; they differ in how they attend.
 */
#ifndef CPA_HOST_H
#define CPA_HOST_H

#include "kernels/kernels.h"

/*
 * CPA_CLONES compiles a function once per instruction set level and picks one when the program
 * is loaded.  That needs gcc, glibc and x86-64; the picking runs too early for sanitizers,
 * whose builds define CPA_NO_CLONES where the compiler does not say so itself.
 */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__) && \
	!defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
	!defined(CPA_NO_CLONES)
#define CPA_HAVE_CLONES
#define CPA_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define CPA_CLONES
#endif

/* Loops are shared among threads only where OpenMP is on. */
#ifdef _OPENMP
#define CPA_OMP(directive) _Pragma(#directive)
#else
#define CPA_OMP(directive)
#endif

#define CPA_INLINE static inline __attribute__((always_inline))

enum { CPA_HOST_ALIGN = 64 };

/* Lets messages move; for the submitting thread only. */
CPA_INLINE void cpa_device_progress(const struct cpa_device *device)
{
	if (device->progress)
		device->progress(device->progress_context);
}

/* The functions of a device table that do not depend on the device. */
enum cpa_status cpa_host_alloc(
	struct cpa_device *device, size_t nbytes, void **memory, struct cpa_error *error);
void cpa_host_free(struct cpa_device *device, void *memory);
enum cpa_status cpa_host_transfer(struct cpa_device *device, void *dst, const void *src,
	size_t nbytes, struct cpa_error *error);
enum cpa_status cpa_host_supports(
	struct cpa_device *device, const struct cpa_problem *problem, struct cpa_error *error);
enum cpa_status cpa_host_copy(struct cpa_device *device, int queue, const struct cpa_copy *copy,
	struct cpa_error *error);
enum cpa_status cpa_host_merge(struct cpa_device *device, int queue,
	const struct cpa_merge *merge, struct cpa_error *error);
enum cpa_status cpa_host_poison(struct cpa_device *device, int queue, void *memory,
	size_t nbytes, struct cpa_error *error);
enum cpa_status cpa_host_event_record(struct cpa_device *device, int queue,
	struct cpa_device_event **event, struct cpa_error *error);
enum cpa_status cpa_host_event_wait(struct cpa_device *device, int queue,
	struct cpa_device_event *event, struct cpa_error *error);
bool cpa_host_event_done(struct cpa_device *device, struct cpa_device_event *event);
void cpa_host_event_free(struct cpa_device *device, struct cpa_device_event *event);
void cpa_host_destroy(struct cpa_device *device);
/*
 * Scratch of one call, aligned to CPA_HOST_ALIGN; NULL when out of memory.  The device keeps
 * what is given back for the next call, until it is destroyed or more is wanted: fresh pages
 * cost as much as a short call itself.  It is not counted in nbytes and peak.  From any thread.
 */
void *cpa_host_borrow(struct cpa_device *device, size_t nbytes);
void cpa_host_return(struct cpa_device *device, void *memory);
/* A device with this table and nothing allocated. */
enum cpa_status cpa_host_create(const struct cpa_device_ops *ops,
	struct cpa_arithmetic (*arithmetic)(const struct cpa_problem *), bool fp64_partials,
	struct cpa_device **device, struct cpa_error *error);

enum cpa_status cpa_ref_device_create(struct cpa_device **device, struct cpa_error *error);
enum cpa_status cpa_cpu_device_create(struct cpa_device **device, struct cpa_error *error);

/* The blocked kernel of the cpu device, and what it declares. */
enum cpa_status cpa_cpu_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error);
struct cpa_arithmetic cpa_cpu_arithmetic(const struct cpa_problem *problem);
/* Its exp: 2^(4 x) for x <= 0 (n of them, a multiple of 16, in place).  For tests. */
void cpa_cpu_exp2_float(float *x, int64_t n);
void cpa_cpu_exp2_double(double *x, int64_t n);
/* The relative error of these, in units of roundoff, that the declared chain counts on. */
#define CPA_CPU_EXP_ERROR 2.0

/* Bits equal to those of cpa_convert(), faster for long runs.  dst and src do not overlap. */
void cpa_run_convert(
	enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n);

/* Element `index` of array data. */
CPA_INLINE void *cpa_element(const struct cpa_array *array, int64_t index)
{
	return (char *)array->data + index * (int64_t)cpa_dtype_nbytes(array->dtype);
}
CPA_INLINE int64_t cpa_array_index(
	const struct cpa_array *array, int64_t t, int64_t b, int64_t h)
{
	return t * array->token + b * array->batch + h * array->head;
}

/*
 * Which keys, as an interval of indices into k, each query row sees: [batches][nq], freed by
 * the caller.  A row that sees none has start = nk, end = 0, so that minima and maxima over
 * rows pass over it. NULL when out of memory.
 */
struct cpa_range *cpa_host_visible(const struct cpa_attend *attend);
/* The n tokens of list, which has as many, one by one; freed by the caller, NULL: no memory. */
int64_t *cpa_host_tokens(const struct cpa_spans *list, int64_t n);

#endif
