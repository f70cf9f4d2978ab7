/*
 * attend_tiles.h - attention for bf16 by products of bf16; included once for each way to multiply,
 * between CPA_TARGET_BEGIN_... and CPA_TARGET_END.  The includer defines
 *   TILES_TYPE       the name of its struct cpa_attend_type
 *   TILES_PRODUCTS   the header with scores(block), values(block), products_begin() and _end() and
 *                    PRODUCTS_CHAIN_KEY, and suits(attend, rows) of a struct cpa_attend_type
 *
 * BLOCK_ROWS query rows meet BLOCK_KEYS keys at a time: scores S = Q K^T in fp32, weights P of
 * them in bf16, and O += P V.  Rows lie along rows here, so softmax goes along vectors of keys.
 * What the rows of a unit find is given to the kernel of fp32,
 * which joins parts, divides and stores (and does whole units that tiles cannot).
 *
 * Sums.  A score is a sum of D products, with at most D roundings, then those of the factor
 * scale log2(e) / 4 and of the product with it.  The sum of weights goes through fewer additions
 * than one of values: every sixteenth of a block in one chain, then 4 to add the 16 up.  Between
 * blocks the older sums may shrink: a product, the error of exp in the factor, and of the
 * difference of maxima.
 */

enum {
	WIDE = 16,
	PAIRED = 2 * WIDE,
	BLOCK_ROWS = 32,
	BLOCK_KEYS = 512,
	TILE = CPA_TILE_NBYTES / 2 /* numbers of bf16 */
};
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

#include "kernels/attend_tiles_pack.h"

/* What a thread works in, behind the space of the kernel of fp32.  Rows are those of the unit,
 * filled up to whole blocks. */
struct space {
	uint16_t *q; /* [block][feature tile][2][16 rows][32 features] */
	float *s; /* [BLOCK_ROWS][BLOCK_KEYS] */
	uint16_t *p; /* likewise */
	float *bias; /* [BLOCK_KEYS] of one row */
	float *m, *l, *o; /* [row], [row], [row][v_tiles 16] */
};

static const struct cpa_attend_type *plain(void)
{
	return cpa_attend_avx512.type[CPA_DTYPE_FP32];
}

/* Lays a space over memory; NULL: only counts.  Returns the bytes. */
static size_t lay(struct space *space, const struct cpa_problem *problem, int nrows, char *memory)
{
	int64_t rows = tiles_of(nrows, BLOCK_ROWS) * BLOCK_ROWS;
	const struct cpa_part parts[] = {
		{&space->q, rows * tiles_of(problem->D, PAIRED) * PAIRED * (int64_t)sizeof(uint16_t)},
		{&space->s, BLOCK_ROWS * BLOCK_KEYS * (int64_t)sizeof(float)},
		{&space->p, BLOCK_ROWS * BLOCK_KEYS * (int64_t)sizeof(uint16_t)},
		{&space->bias, BLOCK_KEYS * (int64_t)sizeof(float)},
		{&space->m, rows * (int64_t)sizeof(float)},
		{&space->l, rows * (int64_t)sizeof(float)},
		{&space->o, rows * tiles_of(problem->Dv, WIDE) * WIDE * (int64_t)sizeof(float)},
	};

	return cpa_lay_parts(parts, sizeof parts / sizeof parts[0], 1, memory);
}

static size_t space_nbytes(const struct cpa_problem *problem, int nrows)
{
	struct space space;

	return cpa_whole_lines(plain()->space_nbytes(problem, nrows)) +
		lay(&space, problem, nrows, NULL);
}

static size_t state_nbytes(const struct cpa_problem *problem, int nrows)
{
	return plain()->state_nbytes(problem, nrows);
}

/* ---- rows ---- */

/* Up to BLOCK_ROWS rows of a unit, and what they see of a block of keys. */
struct block {
	const struct cpa_attend_unit *unit;
	const struct space *space;
	char *shared;
	struct sizes sizes;
	int first, nrows;
	int64_t start; /* a multiple of PAIRED */
	int n; /* keys, a multiple of PAIRED */
	float factor; /* of products, to scores as the kernel of fp32 keeps them */
};

struct row {
	int64_t t, h;
	struct cpa_range keys;
};

static struct row row_at(const struct cpa_attend_unit *unit, int i)
{
	struct cpa_unit_row of = cpa_unit_row(unit, i);

	return (struct row){
		of.t, of.h, unit->call->visible[unit->b * unit->call->attend->nq + of.t]};
}

/* Rows of zeros fill the last block.  False where a number is too large for tiles. */
static bool load_queries(
	const struct cpa_attend_unit *unit, const struct sizes *sizes, const struct space *space)
{
	const struct cpa_array *q = &unit->call->attend->q;
	int64_t nrows = tiles_of(unit->n, BLOCK_ROWS) * BLOCK_ROWS;
	__m512i most = _mm512_setzero_si512();

	for (int i = 0; i < nrows; i++) {
		struct row row = row_at(unit, i < unit->n ? i : 0);
		const uint16_t *from = i < unit->n
			? cpa_element(q, cpa_array_index(q, row.t, unit->b, row.h))
			: NULL;
		uint16_t *to = space->q + i / BLOCK_ROWS * (sizes->k_tiles * 2 * TILE) +
			i % BLOCK_ROWS * PAIRED;

		for (int64_t t = 0; t < sizes->k_tiles; t++) {
			__m512i x = load_pairs(from, t * PAIRED, unit->call->attend->problem->D);

			most = _mm512_max_epu16(
				most, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
			_mm512_storeu_si512(to + t * 2 * TILE, x);
		}
	}
	return !_mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16((short)BF16_POWER(40)));
}

/* ---- products ---- */

#include TILES_PRODUCTS

#include "kernels/attend_tiles_weigh.h"

/* ---- one unit ---- */

static struct cpa_range hull_of(const struct cpa_attend_unit *unit, int first, int n)
{
	struct cpa_range hull = {INT64_MAX, 0};

	for (int i = first; i < first + n; i++) {
		struct cpa_range keys = row_at(unit, i).keys;

		hull.start = MIN(hull.start, keys.start);
		hull.end = MAX(hull.end, keys.end);
	}
	return hull;
}

/* Rows [first, first + nrows) over what they see of keys [start, end). */
static void attend_block(struct block *block, int64_t start, int64_t end)
{
	struct cpa_range hull = hull_of(block->unit, block->first, block->nrows);
	bool any = false;

	start = MAX(start, hull.start) / PAIRED * PAIRED;
	end = MIN(end, tiles_of(hull.end, PAIRED) * PAIRED);
	if (start >= end)
		return;
	block->start = start;
	block->n = (int)(end - start);
	for (int i = 0; i < block->nrows && !any; i++) {
		struct cpa_range keys = row_at(block->unit, block->first + i).keys;

		any = MAX(keys.start, start) < MIN(keys.end, end);
	}
	if (!any)
		return; /* rows may lie far apart */
	scores(block);
	weigh(block);
	values(block);
}

static void attend_keys(const struct cpa_attend_unit *unit, int split, struct block *block)
{
	struct cpa_range hull = hull_of(unit, 0, unit->n);
	int64_t first = hull.start / PAIRED * PAIRED, nblocks;

	if (hull.start >= hull.end)
		return;
	nblocks = tiles_of(hull.end - first, BLOCK_KEYS);
	for (int64_t j = nblocks * split / unit->nsplits;
		j < nblocks * (split + 1) / unit->nsplits; j++)
		for (int i = 0; i < unit->n; i += BLOCK_ROWS) {
			block->first = i;
			block->nrows = MIN(unit->n - i, (int)BLOCK_ROWS);
			attend_block(block, first + j * BLOCK_KEYS, first + (j + 1) * BLOCK_KEYS);
		}
}

static void attend(const struct cpa_attend_unit *unit, int split, char *memory, char *state)
{
	const struct cpa_attend *call = unit->call->attend;
	char *shared = cpa_attend_shared(unit->call, unit->b, unit->kv);
	const struct head *head = (const struct head *)(const void *)shared;
	struct space space = {0};
	struct block block = {.unit = unit,
		.space = &space,
		.shared = shared,
		.sizes = sizes_of(call),
		.factor = (float)(call->problem->scale * (LOG2E / 4))};
	int64_t step = block.sizes.v_tiles * WIDE;
	int64_t nrows = tiles_of(unit->n, BLOCK_ROWS) * BLOCK_ROWS;

	lay(&space, call->problem, unit->n,
		memory + cpa_whole_lines(plain()->space_nbytes(call->problem, unit->n)));
	if (!head->fits || !load_queries(unit, &block.sizes, &space)) {
		plain()->attend(unit, split, memory, state);
		return;
	}
	for (int64_t i = 0; i < nrows; i++) {
		space.m[i] = -FLT_MAX;
		space.l[i] = 0;
	}
	memset(space.o, 0, (size_t)(nrows * step) * sizeof(float));
	memset(space.p, 0, BLOCK_ROWS * BLOCK_KEYS * sizeof(uint16_t));
	products_begin();
	attend_keys(unit, split, &block);
	products_end();
	for (int64_t i = 0; i < nrows * step; i += WIDE)
		_mm512_store_ps(space.o + i,
			_mm512_scalef_ps(_mm512_load_ps(space.o + i),
				_mm512_set1_ps(-(float)head->shift)));
	plain()->put(
		unit, memory, state, &(struct cpa_attend_rows){space.m, space.l, space.o, step});
}

static void finish(const struct cpa_attend_unit *unit, char *memory, char *states)
{
	plain()->finish(unit, memory, states);
}

const struct cpa_attend_type TILES_TYPE = {
	.lanes = BLOCK_ROWS,
	.suits = suits,
	.chain_key = MAX(PRODUCTS_CHAIN_KEY + (3 + CPA_CPU_EXP_ERROR) / BLOCK_KEYS,
		(3 + CPA_CPU_EXP_ERROR) / CPA_KEY_BLOCK), /* the kernel of fp32 has its share */
	.space_nbytes = space_nbytes,
	.state_nbytes = state_nbytes,
	.attend = attend,
	.finish = finish,
	.shared_nbytes = shared_nbytes,
	.share = share,
	.share_end = share_end,
};
