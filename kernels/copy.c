/*
 * copy.c - boxes between any strides, with a change of dtype, and the identity partial.
 *
 * Axes that lie without gaps on both sides are joined first, so most copies are a few long
 * runs.  The rest is cut into units, which threads share when there is much to do.  What is
 * larger than the caches is written past them, and where it is transposed too, in tiles: a few
 * rows of each run of the target, so that the source is read once and nearly in order.
 */
#include "kernels/host.h"
#include "kernels/move.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
	NAXES = 3,
	TILE = 16,           /* rows */
	UNIT = 64 << 10,     /* bytes, about */
	LEAST_STREAMED = 128 /* bytes of a run: less than two lines are not worth it */
};

/* n steps, in elements of dst and of src. */
struct axis {
	int64_t n, dst, src;
};

/* A copy in normal form: `run` adjacent elements at each point of the axes, innermost first. */
struct box {
	const struct cpa_copy *copy;
	struct axis axis[NAXES];
	int64_t run;
	size_t to, from; /* bytes of an element */
	uint64_t bits;   /* fill as elements of dst, repeated */
	bool stream, tiled;
	/* Units: rows of axis 0, and elements of their runs. */
	int64_t nrows, length, nblocks, npieces;
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

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Rows of axis 0 by pieces of their runs; the cut depends on the shape alone. */
static void cut_units(struct box *box, int64_t nbytes)
{
	const struct axis *axis = box->axis;
	int64_t row = box->run * (int64_t)box->to;

	box->stream = cpa_move_streams(nbytes) && row >= LEAST_STREAMED;
	box->tiled = box->stream && axis[1].n > 1 && axis[0].src > axis[1].src;
	box->length = least(box->run, UNIT / (int64_t)box->to);
	box->nrows = box->tiled ? TILE : row < UNIT ? UNIT / row : 1;
	box->nrows = least(box->nrows, axis[0].n);
	box->npieces = (box->run + box->length - 1) / box->length;
	box->nblocks = (axis[0].n + box->nrows - 1) / box->nrows;
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

/* n rows of `length` elements. */
static void copy_rows(const struct box *box, char *dst, const char *src, int64_t n, int64_t length)
{
	struct axis line = box->axis[0];
	struct cpa_move_rows rows = {dst, src, line.dst * (int64_t)box->to,
		line.src * (int64_t)box->from, n, (size_t)length * box->to};

	if (length > 1)
		cpa_move()->copy(&rows, box->stream);
	else if (box->to == 8)
		copy_8(dst, src, line.dst, line.src, n);
	else if (box->to == 4)
		copy_4(dst, src, line.dst, line.src, n);
	else
		copy_2(dst, src, line.dst, line.src, n);
}

static void convert_rows(
	const struct box *box, char *dst, const char *src, int64_t n, int64_t length)
{
	enum cpa_dtype to = box->copy->dst.dtype, from = box->copy->src.dtype;
	struct axis line = box->axis[0];

	if (length == 1)
		for (int64_t i = 0; i < n; i++)
			cpa_store(to, dst, i * line.dst, cpa_load(from, src, i * line.src));
	else
		for (int64_t i = 0; i < n; i++)
			cpa_move()->convert[to][from](dst + i * line.dst * (int64_t)box->to,
				src + i * line.src * (int64_t)box->from, length);
}

static void fill_rows(const struct box *box, char *dst, int64_t n, int64_t length)
{
	int64_t step = box->axis[0].dst * (int64_t)box->to;

	for (int64_t i = 0; i < n; i++)
		cpa_move()->fill(
			dst + i * step, box->bits, (size_t)length * box->to, box->stream);
}

/* Pieces fastest; then axis 1 in tiles, else blocks of axis 0. */
static void do_unit(const struct box *box, int64_t unit)
{
	const struct cpa_copy *copy = box->copy;
	const struct axis *axis = box->axis;
	int64_t piece = unit % box->npieces, block, i, j, to, n, length;

	unit /= box->npieces;
	if (box->tiled) {
		i = unit % axis[1].n;
		unit /= axis[1].n;
		block = unit % box->nblocks;
		j = unit / box->nblocks;
	} else {
		block = unit % box->nblocks;
		unit /= box->nblocks;
		i = unit % axis[1].n;
		j = unit / axis[1].n;
	}
	n = least(box->nrows, axis[0].n - block * box->nrows);
	length = least(box->length, box->run - piece * box->length);
	block *= box->nrows;
	piece *= box->length;
	to = block * axis[0].dst + i * axis[1].dst + j * axis[2].dst + piece;
	if (!copy->src.data) {
		fill_rows(box, cpa_element(&copy->dst, to), n, length);
		return;
	}
	(copy->src.dtype == copy->dst.dtype ? copy_rows : convert_rows)(box,
		cpa_element(&copy->dst, to),
		cpa_element(&copy->src,
			block * axis[0].src + i * axis[1].src + j * axis[2].src + piece),
		n, length);
}

static uint64_t repeated(enum cpa_dtype dtype, double value)
{
	uint64_t bits = 0;

	for (int64_t i = 0; i < 8 / (int64_t)cpa_dtype_nbytes(dtype); i++)
		cpa_store(dtype, &bits, i, value);
	return bits;
}

enum cpa_status cpa_host_copy(struct cpa_device *device, int queue, const struct cpa_copy *copy,
	struct cpa_error *error)
{
	/* A fill has no source: its steps are those of dst, which joins what it can. */
	const struct cpa_array *dst = &copy->dst, *src = copy->src.data ? &copy->src : dst;
	struct box box = {.copy = copy,
		.axis = {{copy->nheads, dst->head, src->head},
			{copy->nbatches, dst->batch, src->batch},
			{copy->ntokens, dst->token, src->token}},
		.run = copy->dim,
		.to = cpa_dtype_nbytes(dst->dtype),
		.from = cpa_dtype_nbytes(src->dtype),
		.bits = repeated(dst->dtype, copy->fill)};
	int64_t total = copy->ntokens * copy->nbatches * copy->nheads * copy->dim;
	int64_t nbytes = total * (int64_t)(box.to + (copy->src.data ? box.from : 0)), nunits;

	(void)device;
	(void)queue;
	(void)error;
	if (!total)
		return CPA_OK;
	join_axes(&box);
	cut_units(&box, nbytes);
	nunits = box.npieces * box.nblocks * box.axis[1].n * box.axis[2].n;
	CPA_OMP(omp parallel for schedule(static) if (nbytes >= CPA_MOVE_PARALLEL_FROM))
	for (int64_t unit = 0; unit < nunits; unit++)
		do_unit(&box, unit);
	return CPA_OK;
}

bool cpa_move_streams(int64_t nbytes)
{
	static _Atomic int64_t limit;
	int64_t most = atomic_load(&limit), size = 0;

	if (!most) {
#ifdef _SC_LEVEL2_CACHE_SIZE
		size = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
		most = size > 0 ? size / 4 * 3 : 768 << 10;
		atomic_store(&limit, most);
	}
	return nbytes > most;
}
