/*
 * kernels.h - one device: what computes COPY, ATTEND and MERGE.
 *
 * The interface is shaped by the hardest user, a GPU: work is submitted to in-order queues, completion
 * is asked for by events, memory is opaque.  The CPU devices run at submit.  A schedule is not known
 * here; the executor turns its boxes into arrays.
 */
#ifndef CPA_KERNELS_H
#define CPA_KERNELS_H

#include "ref/ref.h"

/* A box of device memory; strides in elements, features adjacent, heads of lse 1 wide. */
struct cpa_array {
	void *data; /* first element of the box */
	enum cpa_dtype dtype;
	int64_t token, batch, head; /* strides */
};

/* dst = src with a change of dtype (one rounding) where they differ.  src.data NULL: the identity
 * partial, dst = fill (0 for o, -inf for lse). */
struct cpa_copy {
	struct cpa_array dst, src;
	int64_t ntokens, nbatches, nheads, dim;
	double fill;
};

/*
 * One ATTEND: o and lse of nq query rows over nk keys, both by global ids.
 *   q   [nq, nb, h.end-h.start, D]   k [nk, nb, kv heads, D]   v likewise, Dv
 *   o, lse  out, a partial: natural-log lse; o = 0 and lse = -inf for rows that see none of the keys
 * Query head h uses key head h/g - kv_first, g = Hq/Hkv.  q_tokens ascend within each span, k_tokens
 * ascend throughout.  Outputs overlap no input.
 */
struct cpa_attend {
	const struct cpa_problem *problem;
	struct cpa_array q, k, v, o, lse;
	int64_t nq, nk;
	struct cpa_range batches, heads; /* global ids */
	int64_t kv_first;                /* global id of key head 0 of k and v */
	struct cpa_spans q_tokens, k_tokens;
};

/* a = merge(a, b) in place; dtypes of a and b may differ; the result is rounded once to a's.  With sink
 * set, b is (o = 0, lse = sink[h]) for every row and o_b, lse_b are not looked at. */
struct cpa_merge {
	struct cpa_array o_a, lse_a, o_b, lse_b;
	int64_t ntokens, nbatches, nheads, dim;
	const double *sink; /* [nheads] host memory: the logits of these heads; NULL: an ordinary merge */
};

struct cpa_device;
struct cpa_device_event;

struct cpa_device_ops {
	const char *name;
	/* Device memory. */
	enum cpa_status (*alloc)(struct cpa_device *, size_t nbytes, void **memory, struct cpa_error *);
	void (*free)(struct cpa_device *, void *memory);
	/* Between host and device memory, blocking. */
	enum cpa_status (*upload)(struct cpa_device *, void *dst, const void *src, size_t nbytes,
		struct cpa_error *);
	enum cpa_status (*download)(struct cpa_device *, void *dst, const void *src, size_t nbytes,
		struct cpa_error *);
	/* CPA_OK, or CPA_UNSUPPORTED with the reason and a device that can. */
	enum cpa_status (*supports)(struct cpa_device *, const struct cpa_problem *, struct cpa_error *);
	/* Submit to an in-order queue (0 compute, 1 communication, ...). */
	enum cpa_status (*copy)(struct cpa_device *, int queue, const struct cpa_copy *, struct cpa_error *);
	enum cpa_status (*attend)(struct cpa_device *, int queue, const struct cpa_attend *,
		struct cpa_error *);
	enum cpa_status (*merge)(struct cpa_device *, int queue, const struct cpa_merge *,
		struct cpa_error *);
	/* Sets bytes to 0xff (NaN in every dtype), in queue order: poison. */
	enum cpa_status (*poison)(struct cpa_device *, int queue, void *memory, size_t nbytes,
		struct cpa_error *);
	/* An event stands for all work submitted to a queue so far. */
	enum cpa_status (*event_record)(struct cpa_device *, int queue, struct cpa_device_event **,
		struct cpa_error *);
	enum cpa_status (*event_wait)(struct cpa_device *, int queue, struct cpa_device_event *,
		struct cpa_error *);
	bool (*event_done)(struct cpa_device *, struct cpa_device_event *);
	void (*event_free)(struct cpa_device *, struct cpa_device_event *);
	void (*destroy)(struct cpa_device *);
};

/* Where memory of a device that lives in host memory may be taken from.  take: aligned to 64 bytes; NULL:
 * not this much, not here. */
struct cpa_host_memory {
	void *(*take)(void *context, size_t nbytes);
	void (*give)(void *context, void *memory);
	void *context;
};

/* A device begins with this; its own state follows. */
struct cpa_device {
	const struct cpa_device_ops *ops;
	struct cpa_arithmetic (*arithmetic)(const struct cpa_problem *); /* declared, for the bounds */
	bool fp64_partials;   /* keeps partials in fp64 whatever the dtype (ref) */
	/* NULL, or called now and then by long work of devices that run at submit, from the submitting
	 * thread: a transport without threads of its own moves its messages meanwhile. */
	void (*progress)(void *context);
	void *progress_context;
	/* NULL, or what alloc of devices in host memory asks first; it outlives what it gave. */
	const struct cpa_host_memory *memory;
	size_t nbytes, peak;  /* allocated now and at most, exact; without the scratch of kernels */
};

/* Host memory, aligned to 64 bytes, in large pages if it is large; NULL: not to be had.  free() ends it. */
void *cpa_memory_take(size_t nbytes);

/* "ref" and "cpu".  NULL name lists: cpa_device_name(i), NULL past the end. */
const char *cpa_device_name(int i);
const char *cpa_device_summary(int i);
/* Which instructions the kernels of device "cpu" use here and why, and what else this machine has:
 * "kernels avx512, picked as the best that runs here; generic: ...", cut to size.  CPATTN_CPU=generic,
 * avx2, avx512, avx512-bf16, amx or amx-software (amx with tiles in software, slow, for tests) in the
 * environment picks others; generic is plain C, the best that the compiler made of it: generic-v1, -v3 and -v4 ask
 * for that of one level of x86-64.  Making the device fails on a value that cannot run here. */
void cpa_cpu_describe(char *text, size_t size);
/* NULL where this process may use AMX tiles with bf16 (the operating system is asked for them, for all
 * threads), or why not: "the processor has no AMX with bf16". */
const char *cpa_cpu_lacks_tiles(void);
/* What attention on "cpu" multiplies bf16 with as it is, "amx" or "avx512-bf16"; NULL where it is widened
 * to fp32. */
const char *cpa_cpu_bf16_set(void);
/* CPA_INVALID for an unknown name, CPA_UNSUPPORTED for one not built in or without hardware. */
enum cpa_status cpa_device_create(const char *name, struct cpa_device **device, struct cpa_error *error);
void cpa_device_destroy(struct cpa_device *device); /* NULL is allowed */

/* Copies bytes of host memory in this thread, past the caches where `whole`, the bytes of all that this is
 * a part of, are more than they keep.  Source and target do not overlap; done when it returns. */
void cpa_copy_bytes(void *dst, const void *src, size_t nbytes, size_t whole);

#endif
