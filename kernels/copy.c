/*
 * copy.c - boxes between any strides, with a change of dtype, and the identity partial.
 *
 * Axes that lie without gaps on both sides are joined first, so most copies are a few long
 * runs.
 */
#include "kernels/host.h"

#include <string.h>

enum { NAXES = 3, PARALLEL_FROM = 1 << 20, SHORT_RUN = 1024 };

/* n steps, in elements of dst and of src. */
struct axis {
	int64_t n, dst, src;
};

/* A copy in normal form: `run` adjacent elements at each point of the axes, innermost first. */
struct box {
	const struct cpa_copy *copy;
	struct axis axis[NAXES];
	int64_t run;
	size_t to, from;       /* bytes of an element */
	unsigned char bits[8]; /* fill as an element of dst */
};

static void sort_axes(struct axis *axis)
{
	for (int i = 1; i < NAXES; i++)
		for (int j = i; j > 0 && axis[j].dst < axis[j - 1].dst; j--) {
			struct axis swap = axis[j];

			axis[j] = axis[j - 1];
			axis[j - 1] = swap;
		}
}

/* Axes of one step are neutral: they sort to the outside with n = 1. */
static void join_axes(struct box *box)
{
	struct axis *axis = box->axis;
	int n = NAXES;

	for (int i = 0; i < n; i++)
		if (axis[i].n == 1)
			axis[i].dst = axis[i].src = INT64_MAX;
	sort_axes(axis);
	while (n > 0 && axis[0].dst == box->run && axis[0].src == box->run) {
		box->run *= axis[0].n;
		memmove(axis, axis + 1, (NAXES - 1) * sizeof *axis);
		axis[NAXES - 1] = (struct axis){1, INT64_MAX, INT64_MAX};
		n--;
	}
	for (int i = 0; i + 1 < n; i++)
		while (axis[i + 1].n > 1 && axis[i + 1].dst == axis[i].dst * axis[i].n &&
			axis[i + 1].src == axis[i].src * axis[i].n) {
			axis[i].n *= axis[i + 1].n;
			for (int j = i + 1; j + 1 < NAXES; j++)
				axis[j] = axis[j + 1];
			axis[NAXES - 1] = (struct axis){1, INT64_MAX, INT64_MAX};
		}
	for (int i = 0; i < NAXES; i++)
		if (axis[i].n == 1)
			axis[i].dst = axis[i].src = 0;
}

/* For rows of a few hundred bytes a call costs more than the copy. */
CPA_CLONES static void copy_short(char *restrict dst, const char *restrict src, size_t n,
	int64_t dst_step, int64_t src_step, int64_t nrows)
{
	for (int64_t i = 0; i < nrows; i++, dst += dst_step, src += src_step) {
		size_t at = 0;

		for (; at + 64 <= n; at += 64)
			memcpy(dst + at, src + at, 64);
		for (; at + 8 <= n; at += 8)
			memcpy(dst + at, src + at, 8);
		for (; at < n; at++)
			dst[at] = src[at];
	}
}

#define STRIDED(name, type) \
	static void name( \
		void *to, const void *from, int64_t dst_step, int64_t src_step, int64_t n) \
	{ \
		type *dst = to; \
		const type *src = from; \
\
		for (int64_t i = 0; i < n; i++) \
			dst[i * dst_step] = src[i * src_step]; \
	}
STRIDED(copy_8, uint64_t)
STRIDED(copy_4, uint32_t)
STRIDED(copy_2, uint16_t)

static void copy_line(const struct box *box, char *dst, const char *src)
{
	struct axis line = box->axis[0];
	size_t nbytes = (size_t)box->run * box->to;
	int64_t dst_step = line.dst * (int64_t)box->to,
		src_step = line.src * (int64_t)box->from;

	if (box->run == 1 && box->to == 8)
		copy_8(dst, src, line.dst, line.src, line.n);
	else if (box->run == 1 && box->to == 4)
		copy_4(dst, src, line.dst, line.src, line.n);
	else if (box->run == 1)
		copy_2(dst, src, line.dst, line.src, line.n);
	else if (nbytes < SHORT_RUN)
		copy_short(dst, src, nbytes, dst_step, src_step, line.n);
	else
		for (int64_t i = 0; i < line.n; i++)
			memcpy(dst + i * dst_step, src + i * src_step, nbytes);
}

static void convert_line(const struct box *box, char *dst, const char *src)
{
	enum cpa_dtype to = box->copy->dst.dtype, from = box->copy->src.dtype;
	struct axis line = box->axis[0];

	if (box->run == 1)
		for (int64_t i = 0; i < line.n; i++)
			cpa_store(to, dst, i * line.dst, cpa_load(from, src, i * line.src));
	else
		for (int64_t i = 0; i < line.n; i++)
			cpa_run_convert(to, dst + i * line.dst * (int64_t)box->to, from,
				src + i * line.src * (int64_t)box->from, box->run);
}

/* The first element, then what is filled is copied behind itself, twice as much each time. */
static void fill_line(const struct box *box, char *dst)
{
	size_t nbytes = (size_t)box->run * box->to;

	for (int64_t i = 0; i < box->axis[0].n;
		i++, dst += box->axis[0].dst * (int64_t)box->to) {
		memcpy(dst, box->bits, box->to);
		for (size_t done = box->to; done < nbytes;) {
			size_t more = done < nbytes - done ? done : nbytes - done;

			memcpy(dst + done, dst, more);
			done += more;
		}
	}
}

static void do_line(const struct box *box, int64_t i, int64_t j)
{
	const struct cpa_copy *copy = box->copy;
	const struct axis *axis = box->axis;
	char *dst = cpa_element(&copy->dst, i * axis[1].dst + j * axis[2].dst);

	if (!copy->src.data)
		fill_line(box, dst);
	else if (copy->src.dtype == copy->dst.dtype)
		copy_line(box, dst, cpa_element(&copy->src, i * axis[1].src + j * axis[2].src));
	else
		convert_line(
			box, dst, cpa_element(&copy->src, i * axis[1].src + j * axis[2].src));
}

enum cpa_status cpa_host_copy(struct cpa_device *device, int queue, const struct cpa_copy *copy,
	struct cpa_error *error)
{
	/* A fill has no source: its steps are those of dst, which joins what it can. */
	const struct cpa_array *dst = &copy->dst, *src = copy->src.data ? &copy->src : dst;
	struct box box = {copy,
		{{copy->nheads, dst->head, src->head}, {copy->nbatches, dst->batch, src->batch},
			{copy->ntokens, dst->token, src->token}},
		copy->dim, cpa_dtype_nbytes(dst->dtype), cpa_dtype_nbytes(src->dtype), {0}};
	int64_t total = copy->ntokens * copy->nbatches * copy->nheads * copy->dim;

	(void)device;
	(void)queue;
	(void)error;
	if (!total)
		return CPA_OK;
	cpa_store(dst->dtype, box.bits, 0, copy->fill);
	join_axes(&box);
	CPA_OMP(omp parallel for collapse(2) schedule(static) if (total >= PARALLEL_FROM))
	for (int64_t j = 0; j < box.axis[2].n; j++)
		for (int64_t i = 0; i < box.axis[1].n; i++)
			do_line(&box, i, j);
	return CPA_OK;
}
