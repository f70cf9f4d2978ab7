/*
 * host.c - device memory, transfers and events of devices that live in host memory.
 *
 * Work runs at submit, so an event is done as soon as it is recorded.  It is allocated all the
 * same: a caller that forgets to free one is found by a leak checker here rather than on a GPU.
 */
#include "kernels/host.h"
#include "kernels/move.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Stands in front of each allocation; its size keeps what follows aligned. */
struct head {
	_Alignas(CPA_HOST_ALIGN) size_t nbytes;
	const struct cpa_host_memory *memory; /* where it is from; NULL: malloc */
};

/* Every device of this file. */
struct host_device {
	struct cpa_device device;
	_Atomic(struct head *) scratch; /* given back, or NULL */
};

/* A checker of memory accesses is to see the true end of scratch too. */
#if defined(__SANITIZE_ADDRESS__)
#define KEEPS_SCRATCH 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEPS_SCRATCH 0
#endif
#endif
#ifndef KEEPS_SCRATCH
#define KEEPS_SCRATCH 1
#endif

struct cpa_device_event {
	int queue;
};

/* Of malloc it is not rounded up, so that a checker of memory accesses sees the true end. */
enum cpa_status cpa_host_alloc(
	struct cpa_device *device, size_t nbytes, void **memory, struct cpa_error *error)
{
	const struct cpa_host_memory *from = device->memory;
	size_t all = sizeof(struct head) + nbytes;
	bool possible = nbytes <= PTRDIFF_MAX - sizeof(struct head);
	void *block = from && possible ? from->take(from->context, all) : NULL;

	if (!block) {
		from = NULL;
		block = possible ? cpa_memory_take(all) : NULL;
	}
	if (!block)
		return cpa_fail(error, CPA_NO_MEMORY, "device %s: %zu bytes are not to be had",
			device->ops->name, nbytes);
	*(struct head *)block = (struct head){.nbytes = nbytes, .memory = from};
	device->nbytes += nbytes;
	if (device->peak < device->nbytes)
		device->peak = device->nbytes;
	*memory = (struct head *)block + 1;
	return CPA_OK;
}

void cpa_host_free(struct cpa_device *device, void *memory)
{
	struct head *head;

	if (!memory)
		return;
	head = (struct head *)memory - 1;
	assert(head->nbytes <= device->nbytes);
	device->nbytes -= head->nbytes;
	if (head->memory)
		head->memory->give(head->memory->context, head);
	else
		free(head);
}

void cpa_copy_bytes(void *dst, const void *src, size_t nbytes, size_t whole)
{
	bool stream = whole <= INT64_MAX / 2 && cpa_move_streams(2 * (int64_t)whole);

	cpa_move()->copy(&(struct cpa_move_rows){.dst = dst,
				 .src = src,
				 .nrows = nbytes > 0,
				 .nbytes = nbytes},
		stream);
	if (stream)
		cpa_move()->fence();
}

enum cpa_status cpa_host_transfer(struct cpa_device *device, void *dst, const void *src,
	size_t nbytes, struct cpa_error *error)
{
	(void)device;
	(void)error;
	if (nbytes)
		memcpy(dst, src, nbytes);
	return CPA_OK;
}

enum cpa_status cpa_host_supports(
	struct cpa_device *device, const struct cpa_problem *problem, struct cpa_error *error)
{
	(void)device;
	(void)problem;
	(void)error;
	return CPA_OK;
}

/* memset() of libc is as fast as streaming stores or faster, since machines have an instruction
 * for it; large memory takes threads. */
enum cpa_status cpa_host_poison(struct cpa_device *device, int queue, void *memory,
	size_t nbytes, struct cpa_error *error)
{
	enum { PART = 4 << 20 }; /* in one go: the longer, the better the instruction */
	int64_t nparts = (int64_t)(nbytes / PART + (nbytes % PART > 0));

	(void)device;
	(void)queue;
	(void)error;
	if (nbytes && nbytes < CPA_MOVE_PARALLEL_FROM) {
		memset(memory, 0xff, nbytes);
		return CPA_OK;
	}
	CPA_OMP(omp parallel for schedule(static) if (nparts > 1))
	for (int64_t part = 0; part < nparts; part++) {
		size_t at = (size_t)part * PART;

		memset((char *)memory + at, 0xff, nbytes - at < PART ? nbytes - at : PART);
	}
	return CPA_OK;
}

enum cpa_status cpa_host_event_record(struct cpa_device *device, int queue,
	struct cpa_device_event **event, struct cpa_error *error)
{
	struct cpa_device_event *made = malloc(sizeof *made);

	if (!made)
		return cpa_fail(error, CPA_NO_MEMORY, "device %s: no memory for an event",
			device->ops->name);
	made->queue = queue;
	*event = made;
	return CPA_OK;
}

enum cpa_status cpa_host_event_wait(struct cpa_device *device, int queue,
	struct cpa_device_event *event, struct cpa_error *error)
{
	(void)device;
	(void)queue;
	(void)error;
	assert(event);
	return CPA_OK;
}

bool cpa_host_event_done(struct cpa_device *device, struct cpa_device_event *event)
{
	(void)device;
	assert(event);
	return true;
}

void cpa_host_event_free(struct cpa_device *device, struct cpa_device_event *event)
{
	(void)device;
	free(event);
}

enum cpa_status cpa_host_create(const struct cpa_device_ops *ops,
	struct cpa_arithmetic (*arithmetic)(const struct cpa_problem *), bool fp64_partials,
	struct cpa_device **device, struct cpa_error *error)
{
	struct host_device *host = calloc(1, sizeof *host);
	struct cpa_device *made = host ? &host->device : NULL;

	if (!made)
		return cpa_fail(error, CPA_NO_MEMORY, "no memory for device %s", ops->name);
	made->ops = ops;
	made->arithmetic = arithmetic;
	made->fp64_partials = fp64_partials;
	*device = made;
	return CPA_OK;
}

void cpa_host_destroy(struct cpa_device *device)
{
	struct host_device *host = (struct host_device *)device;

	free(atomic_load(&host->scratch));
	free(host);
}

/* Taken while in use, so that a second call at the same time gets memory of its own. */
void *cpa_host_borrow(struct cpa_device *device, size_t nbytes)
{
	struct host_device *host = (struct host_device *)device;
	struct head *head = atomic_exchange(&host->scratch, NULL);

	if (head && head->nbytes >= nbytes)
		return head + 1;
	free(head);
	head = nbytes > PTRDIFF_MAX - sizeof *head ? NULL : cpa_memory_take(sizeof *head + nbytes);
	if (!head)
		return NULL;
	head->nbytes = nbytes;
	return head + 1;
}

void cpa_host_return(struct cpa_device *device, void *memory)
{
	struct host_device *host = (struct host_device *)device;
	struct head *head = (struct head *)memory - 1;

	if (!KEEPS_SCRATCH) {
		free(head);
		return;
	}
	free(atomic_exchange(&host->scratch, head));
}

static struct cpa_range visible_row(const struct cpa_attend *attend, int64_t b, int64_t t)
{
	struct cpa_range keys = cpa_rule_row(attend->problem, b, t);

	if (keys.start < keys.end) {
		keys.start = cpa_spans_below(&attend->k_tokens, keys.start);
		keys.end = cpa_spans_below(&attend->k_tokens, keys.end);
	}
	if (keys.start >= keys.end)
		return (struct cpa_range){attend->nk, 0};
	return keys;
}

int64_t *cpa_host_tokens(const struct cpa_spans *list, int64_t n)
{
	int64_t *tokens = malloc((size_t)n * sizeof *tokens + 1), *next = tokens;
	int64_t left = n;

	if (!tokens)
		return NULL;
	for (int s = 0; s < list->n; s++) {
		struct cpa_span span = list->at[s];

		for (int64_t i = 0; i < span.count; i++)
			for (int64_t w = 0; w < span.width && left > 0; w++, left--)
				*next++ = span.start + i * span.stride + w;
	}
	assert(left == 0);
	return tokens;
}

struct cpa_range *cpa_host_visible(const struct cpa_attend *attend)
{
	int64_t nb = attend->batches.end - attend->batches.start;
	struct cpa_range *visible = malloc((size_t)(nb * attend->nq) * sizeof *visible + 1);
	struct cpa_range *row = visible;
	int64_t *tokens = cpa_host_tokens(&attend->q_tokens, attend->nq);

	if (visible && tokens)
		for (int64_t b = attend->batches.start; b < attend->batches.end; b++)
			for (int64_t i = 0; i < attend->nq; i++)
				*row++ = visible_row(attend, b, tokens[i]);
	if (!tokens) {
		free(visible);
		visible = NULL;
	}
	free(tokens);
	return visible;
}
