/*
 * place.c - dense arrays to where the layout has their elements, and back.
 */
#include "harness/place.h"

#include <stdlib.h>
#include <string.h>

/* Between dense and an image of the whole buffer, in the longest stretches that both have. */
static void move_box(const struct cpa_buffer *buffer, const struct cpa_box *box, char *dense,
	char *image, bool put)
{
	struct cpa_strides s = cpa_box_strides(buffer, box);
	int64_t apart = s.head == buffer->dim ? 1 : box->nheads; /* stretches of one token */
	size_t e = cpa_dtype_nbytes(buffer->dtype);
	size_t nbytes = (size_t)(box->nheads / apart * buffer->dim) * e;
	for (int64_t b = 0; b < box->nbatches; b++)
		for (int64_t t = 0; t < box->ntokens; t++)
			for (int64_t h = 0; h < apart; h++, dense += nbytes) {
				int64_t at = s.first + b * s.batch + t * s.token + h * s.head;
				char *there = image + (size_t)at * e;
				memcpy(put ? there : dense, put ? dense : there, nbytes);
			}
}

static bool is_whole(const struct cpa_buffer *buffer, const struct cpa_box *box)
{
	return box->ntokens == buffer->ntokens && box->nbatches == buffer->nbatches &&
	       box->nheads == buffer->nheads;
}

static bool is_dense(const struct cpa_buffer *buffer, const struct cpa_box *box)
{
	return is_whole(buffer, box) &&
	       (buffer->layout == CPA_LAYOUT_BSHD || buffer->layout == CPA_LAYOUT_FUSED);
}

static enum cpa_status new_image(
	const struct cpa_buffer *buffer, char **image, struct cpa_error *error)
{
	*image = malloc((size_t)cpa_buffer_nbytes(buffer));
	return *image ? CPA_OK
		      : cpa_fail(error, CPA_NO_MEMORY, "out of memory for a copy of \"%s\"",
				buffer->name);
}

enum cpa_status cpa_place_put(struct cpa_device *device, const struct cpa_exec *exec,
	const struct cpa_box *box, const void *dense, struct cpa_error *error)
{
	const struct cpa_buffer *buffer = &cpa_exec_schedule(exec)->buffers[box->buffer];
	void *memory = cpa_exec_memory(exec, box->buffer);
	size_t nbytes = (size_t)cpa_buffer_nbytes(buffer);
	char *image;
	if (is_dense(buffer, box))
		return device->ops->upload(device, memory, dense, nbytes, error);
	enum cpa_status s = new_image(buffer, &image, error);
	if (s == CPA_OK && !is_whole(buffer, box))
		s = device->ops->download(device, image, memory, nbytes, error);
	if (s == CPA_OK) {
		move_box(buffer, box, (char *)dense, image, true);
		s = device->ops->upload(device, memory, image, nbytes, error);
	}
	free(image);
	return s;
}

enum cpa_status cpa_place_get(struct cpa_device *device, const struct cpa_exec *exec,
	const struct cpa_box *box, void *dense, struct cpa_error *error)
{
	const struct cpa_buffer *buffer = &cpa_exec_schedule(exec)->buffers[box->buffer];
	const void *memory = cpa_exec_memory(exec, box->buffer);
	size_t nbytes = (size_t)cpa_buffer_nbytes(buffer);
	char *image;
	if (is_dense(buffer, box))
		return device->ops->download(device, dense, memory, nbytes, error);
	enum cpa_status s = new_image(buffer, &image, error);
	if (s == CPA_OK)
		s = device->ops->download(device, image, memory, nbytes, error);
	if (s == CPA_OK)
		move_box(buffer, box, dense, image, false);
	free(image);
	return s;
}
