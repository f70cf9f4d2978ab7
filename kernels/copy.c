/*
 * copy.c - boxes between any strides, with a change of dtype, and the identity partial.
 *
 * Axes that lie without gaps on both sides are joined first, so most copies are a few long
 * runs.  The rest is cut into units, which threads share when there is much to do.  What is
 * larger than the caches is written past them.  Where that is transposed too, it goes in tiles, a
 * few rows along the longer axis for all of the shorter: lines of the target are written whole,
 * and the source is fetched one tile ahead in its own order.
 */
#include "kernels/host.h"
#include "kernels/move.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
	NAXES = 3,
	TILE = 16,           /* rows at most */
	LEAST_TILE = 4,
	TILE_BYTES = 16 << 10, /* of a tile; the next one is in the first cache beside it */
	UNIT = 64 << 10,     /* bytes, about */
	SPAN = 32,           /* units that a thread takes at a time */
	LEAST_STREAMED = 128, /* bytes of a run: less than two lines are not worth it */
	LEAST_STRING = 4096   /* bytes of a row: at half of it there is no difference */
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
	/* Units: nrows rows along axis `line`, 0 or in tiles 1, or `length` elements of each. */
	int line;
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

/* As many as keep what is fetched of the next tile near until it is used, with `other` of each. */
static int64_t tile_rows(int64_t other, int64_t nbytes)
{
	int64_t n = TILE_BYTES / (other * nbytes);

	return n < LEAST_TILE ? LEAST_TILE : least(n, TILE);
}

/* Rows of axis 0 by pieces of their runs; the cut depends on the shape alone. */
static void cut_units(struct box *box, int64_t nbytes)
{
	const struct axis *axis = box->axis;
	int64_t row = box->run * (int64_t)box->to;

	box->stream = cpa_move_streams(nbytes) && row >= LEAST_STREAMED;
	box->tiled = box->stream && axis[1].n > 1 && axis[0].src > axis[1].src;
	box->length = least(box->run, UNIT / (int64_t)box->to);
	box->line = box->tiled && axis[1].n > axis[0].n;
	box->nrows = box->tiled ? tile_rows(axis[!box->line].n, row)
		: row < UNIT	? UNIT / row
				: 1;
	box->nrows = least(box->nrows, axis[box->line].n);
	box->npieces = (box->run + box->length - 1) / box->length;
	box->nblocks = (axis[box->line].n + box->nrows - 1) / box->nrows;
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

/* Part of a box: n rows of `length` elements, which are the i-th of all tiles of a block. */
struct unit {
	char *dst;
	const char *src;
	int64_t n, length, i;
};

/* The rows of the next block that it takes when all units of this one share them in the order
 * of the source, axis 1 fastest. */
static void look_ahead(const struct box *box, const struct unit *unit, const char **ahead)
{
	const struct axis *axis = box->axis, *line = &axis[box->line], *other = &axis[!box->line];
	int64_t size = (int64_t)box->from, fast = box->line ? box->nrows : axis[1].n;
	int64_t at = unit->i * box->nrows, place = at % fast;
	const char *next = unit->src +
		(box->nrows * line->src - unit->i * other->src + at / fast * axis[0].src +
			place * axis[1].src) *
			size;

	for (int64_t r = 0; r < unit->n; r++) {
		ahead[r] = next;
		next += axis[1].src * size;
		if (++place < fast)
			continue;
		place = 0;
		next += (axis[0].src - fast * axis[1].src) * size;
	}
}

/* Whether rows are moved one instruction each.  Fetching each line of the target costs as much as
 * reading the source; only long runs of vectors hide that. */
static bool are_strings(const struct box *box, const struct cpa_move_rows *rows)
{
	uintptr_t bits = (uintptr_t)rows->dst | (rows->nrows > 1 ? (uintptr_t)rows->dst_step : 0);

	return !box->stream && rows->nbytes >= LEAST_STRING && bits % CPA_HOST_ALIGN == 0 &&
		cpa_cpu_moves_strings();
}

static void copy_strings(const struct cpa_move_rows *rows)
{
#if CPA_CPU_X86
	for (int64_t i = 0; i < rows->nrows; i++) {
		char *dst = (char *)rows->dst + i * rows->dst_step;
		const char *src = (const char *)rows->src + i * rows->src_step;
		size_t n = rows->nbytes;

		__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
	}
#else
	(void)rows;
#endif
}

static void copy_rows(const struct box *box, const struct unit *unit)
{
	struct axis line = box->axis[box->line];
	const char *ahead[TILE], *src = unit->src;
	char *dst = unit->dst;
	int64_t n = unit->n, length = unit->length;
	struct cpa_move_rows rows = {dst, src, line.dst * (int64_t)box->to,
		line.src * (int64_t)box->from, n, (size_t)length * box->to,
		box->tiled ? ahead : NULL};

	if (box->tiled)
		look_ahead(box, unit, ahead);
	if (are_strings(box, &rows))
		copy_strings(&rows);
	else if (length > 1)
		cpa_move()->copy(&rows, box->stream);
	else if (box->to == 8)
		copy_8(dst, src, line.dst, line.src, n);
	else if (box->to == 4)
		copy_4(dst, src, line.dst, line.src, n);
	else
		copy_2(dst, src, line.dst, line.src, n);
}

static void convert_rows(const struct box *box, const struct unit *unit)
{
	enum cpa_dtype to = box->copy->dst.dtype, from = box->copy->src.dtype;
	int64_t dst_step = box->axis[box->line].dst, src_step = box->axis[box->line].src;

	for (int64_t i = 0; i < unit->n; i++)
		cpa_move()->convert[to][from](unit->dst + i * dst_step * (int64_t)box->to,
			unit->src + i * src_step * (int64_t)box->from, unit->length);
}

static void fill_rows(const struct box *box, const struct unit *unit)
{
	int64_t step = box->axis[box->line].dst * (int64_t)box->to;

	for (int64_t i = 0; i < unit->n; i++)
		cpa_move()->fill(
			unit->dst + i * step, box->bits, (size_t)unit->length * box->to);
}

/* Where a unit lies: piece of the runs, block of the line axis, indices of the other two. */
struct place {
	int64_t piece, block, i, j;
};

static void do_unit(const struct box *box, const struct place *at)
{
	const struct cpa_copy *copy = box->copy;
	const struct axis *line = &box->axis[box->line], *other = &box->axis[!box->line];
	int64_t row = at->block * box->nrows, piece = at->piece * box->length;
	struct unit unit = {
		.dst = cpa_element(&copy->dst,
			row * line->dst + at->i * other->dst + at->j * box->axis[2].dst + piece),
		.n = least(box->nrows, line->n - row),
		.length = least(box->length, box->run - piece),
		.i = at->i};

	if (!copy->src.data) {
		fill_rows(box, &unit);
		return;
	}
	unit.src = cpa_element(&copy->src,
		row * line->src + at->i * other->src + at->j * box->axis[2].src + piece);
	(copy->src.dtype == copy->dst.dtype ? copy_rows : convert_rows)(box, &unit);
}

/* Pieces fastest; then the other axis in tiles, else blocks. */
static void do_span(const struct box *box, int64_t first, int64_t end)
{
	int64_t nother = box->axis[!box->line].n, npieces = box->npieces;
	int64_t nfast = box->tiled ? nother : box->nblocks;
	int64_t nslow = box->tiled ? box->nblocks : nother;
	int64_t piece = first % npieces, fast = first / npieces % nfast,
		slow = first / npieces / nfast % nslow, j = first / npieces / nfast / nslow;

	for (int64_t at = first; at < end; at++) {
		struct place place = {
			piece, box->tiled ? slow : fast, box->tiled ? fast : slow, j};

		do_unit(box, &place);
		if (++piece < npieces)
			continue;
		piece = 0;
		if (++fast < nfast)
			continue;
		fast = 0;
		if (++slow < nslow)
			continue;
		slow = 0;
		j++;
	}
}

/* Not a loop that threads share: the caller may be one of several that copy at once. */
static void do_alone(const struct box *box, int64_t n)
{
	do_span(box, 0, n);
	if (box->stream)
		cpa_move()->fence();
}

static void do_with_threads(const struct box *box, int64_t n)
{
	CPA_OMP(omp parallel)
	{
		CPA_OMP(omp for schedule(static) nowait)
		for (int64_t span = 0; span < n; span += SPAN)
			do_span(box, span, least(span + SPAN, n));
		if (box->stream)
			cpa_move()->fence();
	}
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
	nunits = box.npieces * box.nblocks * box.axis[!box.line].n * box.axis[2].n;
	if (nbytes < CPA_MOVE_PARALLEL_FROM)
		do_alone(&box, nunits);
	else
		do_with_threads(&box, nunits);
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
