/*
 * attend_tiles_products.h - products of a block by tiles (amx_tiles.h).  Part of attend_tiles.h.
 *
 * Four tiles are sums and four are factors, each of which is used twice: two times 16 rows and
 * two times 16 keys or features.
 *
 * Sums.  Per tile of 32 features the even and the odd ones are summed apart by fused
 * multiply-adds, 15 roundings each since products of bf16 are exact in fp32; they are added, and
 * added to the sum of earlier tiles: fewer than D roundings in all.  A sum over values goes
 * likewise, through 16 additions in its tile of 32 keys and then one for each tile after it,
 * blocks or not.
 */

#define PRODUCTS_CHAIN_KEY (1.0 / PAIRED) /* additions of a value for each key, but 16 */

/* Whether packing is worth it. */
static bool suits(const struct cpa_attend *attend, int64_t rows)
{
	(void)attend;
	return rows > 8;
}

static void products_begin(void)
{
	static const struct cpa_tile_config config = CPA_TILES_WHOLE;

	TILE_CONFIGURE(&config);
}

static void products_end(void)
{
	TILE_RELEASE();
}

/* S of the block, 32 by 32; the lower 16 rows only where there are any. */
static void scores(const struct block *block)
{
	const int64_t ntiles = block->sizes.k_tiles, step = BLOCK_KEYS * sizeof(float);
	const uint16_t *q = block->space->q + block->first * ntiles * PAIRED;
	const uint16_t *k = keys_of(block->shared) + block->start / WIDE * ntiles * TILE;
	const bool both = block->nrows > WIDE;

	for (int64_t j = 0; j < block->n; j += PAIRED, k += 2 * ntiles * TILE) {
		float *to = block->space->s + j;

		TILE_ZERO(0);
		TILE_ZERO(1);
		TILE_ZERO(2);
		TILE_ZERO(3);
		for (int64_t t = 0; t < ntiles; t++) {
			TILE_LOAD(4, q + t * 2 * TILE, CPA_TILE_COLSB);
			TILE_LOAD(6, k + t * TILE, CPA_TILE_COLSB);
			TILE_MULTIPLY(0, 4, 6);
			TILE_LOAD(7, k + (ntiles + t) * TILE, CPA_TILE_COLSB);
			TILE_MULTIPLY(1, 4, 7);
			if (both) {
				TILE_LOAD(5, q + (t * 2 + 1) * TILE, CPA_TILE_COLSB);
				TILE_MULTIPLY(2, 5, 6);
				TILE_MULTIPLY(3, 5, 7);
			}
		}
		TILE_STORE(0, to, step);
		TILE_STORE(1, to + WIDE, step);
		if (both) {
			TILE_STORE(2, to + WIDE * BLOCK_KEYS, step);
			TILE_STORE(3, to + WIDE * BLOCK_KEYS + WIDE, step);
		}
	}
}

/* O of the block, 32 by 32 features, or the last 16. */
static void values(const struct block *block)
{
	const int64_t ntiles = block->sizes.v_tiles, Dv = ntiles * WIDE;
	const int64_t o_step = Dv * (int64_t)sizeof(float),
		      p_step = BLOCK_KEYS * sizeof(uint16_t);
	const uint16_t *v = values_of(block->shared, &block->sizes) +
		block->start / PAIRED * ntiles * TILE;
	const uint16_t *p = block->space->p;
	const bool both = block->nrows > WIDE;

	for (int64_t t = 0; t < ntiles; t += 2) {
		float *o = block->space->o + block->first * Dv + t * WIDE;
		const bool pair = t + 1 < ntiles;

		TILE_LOAD(0, o, o_step);
		if (pair)
			TILE_LOAD(1, o + WIDE, o_step);
		if (both)
			TILE_LOAD(2, o + WIDE * Dv, o_step);
		if (both && pair)
			TILE_LOAD(3, o + WIDE * Dv + WIDE, o_step);
		for (int64_t j = 0; j < block->n; j += PAIRED) {
			const uint16_t *from = v + (j / PAIRED * ntiles + t) * TILE;

			TILE_LOAD(4, p + j, p_step);
			TILE_LOAD(6, from, CPA_TILE_COLSB);
			TILE_MULTIPLY(0, 4, 6);
			if (pair) {
				TILE_LOAD(7, from + TILE, CPA_TILE_COLSB);
				TILE_MULTIPLY(1, 4, 7);
			}
			if (both) {
				TILE_LOAD(5, p + WIDE * BLOCK_KEYS + j, p_step);
				TILE_MULTIPLY(2, 5, 6);
			}
			if (both && pair)
				TILE_MULTIPLY(3, 5, 7);
		}
		TILE_STORE(0, o, o_step);
		if (pair)
			TILE_STORE(1, o + WIDE, o_step);
		if (both)
			TILE_STORE(2, o + WIDE * Dv, o_step);
		if (both && pair)
			TILE_STORE(3, o + WIDE * Dv + WIDE, o_step);
	}
}
