/*
 * attend_pairs_products.h - products of a block by VDPBF16PS, which adds to each of 16 sums the
 * products of a pair of bf16.  Part of attend_tiles.h.
 *
 * ROWS rows and two vectors of 16 keys or features are sums in registers: a pair of each row is
 * broadcast to both, so that there are fewer loads than products.
 *
 * Sums.  A pair is added in two fused multiply-adds, rounded to nearest even, with numbers below
 * the least normal one taken as 0 (Intel SDM volume 2, VDPBF16PS): D roundings for a score.
 * Values of RUN keys are summed apart before they are added to those of earlier keys.
 */

enum {
	ROWS = 8,
	RUN = CPA_KEY_BLOCK, /* keys: as many additions as the declared chain begins with */
	LEAST_ROWS = 17, /* of a key head; fewer have kernels that leave keys where they are */
	LEAST_KEYS = 64,
	LEAST_ROWS_LARGE = 192, /* where LARGE bytes are packed, which the system has to clear first */
	LARGE = 16 << 20
};

#define PRODUCTS_CHAIN_KEY (1.0 / RUN) /* additions of a value for each key, but RUN */

/* Whether packing is worth it. */
static bool suits(const struct cpa_attend *attend, int64_t rows)
{
	const struct cpa_problem *problem = attend->problem;
	struct cpa_range kv = cpa_heads_kv(attend->heads, problem->Hq / problem->Hkv);
	int64_t nheads = (attend->batches.end - attend->batches.start) * (kv.end - kv.start);
	double nbytes = 2.0 * (double)(nheads * attend->nk) * (double)(problem->D + problem->Dv);

	return attend->nk >= LEAST_KEYS &&
		rows >= (nbytes < LARGE ? LEAST_ROWS : LEAST_ROWS_LARGE);
}

static void products_begin(void)
{
}

static void products_end(void)
{
}

/* sum [ROWS][ncolumns] += the pairs of ROWS rows, `step` numbers apart, times columns[0] and, as
 * far as there are two, columns[1], of 16 pairs each. */
CPA_INLINE void multiply_pairs(const int ncolumns, __m512 sum[ROWS][2], const uint16_t *rows,
	int64_t step, const uint16_t *const *columns)
{
	UNROLL
	for (int k = 0; k < WIDE; k++) {
		__m512bh column[2];

		UNROLL
		for (int x = 0; x < ncolumns; x++)
			column[x] = (__m512bh)_mm512_load_si512(columns[x] + k * PAIRED);
		UNROLL
		for (int i = 0; i < ROWS; i++) {
			int pair;

			memcpy(&pair, rows + i * step + 2 * k, sizeof pair);
			UNROLL
			for (int x = 0; x < ncolumns; x++)
				sum[i][x] = _mm512_dpbf16_ps(sum[i][x],
					(__m512bh)_mm512_set1_epi32(pair), column[x]);
		}
	}
}

/* S of ROWS rows and 32 keys. */
static __attribute__((noinline)) void score_rows(
	const uint16_t *q, const uint16_t *k, int64_t ntiles, float *s)
{
	__m512 sum[ROWS][2];

	UNROLL
	for (int i = 0; i < ROWS; i++)
		sum[i][0] = sum[i][1] = _mm512_setzero_ps();
	NO_UNROLL
	for (int64_t t = 0; t < ntiles; t++) {
		const uint16_t *const keys[] = {k + t * TILE, k + (ntiles + t) * TILE};

		multiply_pairs(2, sum, q + t * 2 * TILE, PAIRED, keys);
	}
	UNROLL
	for (int i = 0; i < ROWS; i++) {
		_mm512_store_ps(s + i * BLOCK_KEYS, sum[i][0]);
		_mm512_store_ps(s + i * BLOCK_KEYS + WIDE, sum[i][1]);
	}
}

static void scores(const struct block *block)
{
	const int64_t ntiles = block->sizes.k_tiles;
	const uint16_t *q = block->space->q + block->first * ntiles * PAIRED;
	const uint16_t *k = keys_of(block->shared) + block->start / WIDE * ntiles * TILE;

	for (int64_t j = 0; j < block->n; j += PAIRED, k += 2 * ntiles * TILE)
		for (int i = 0; i < block->nrows; i += ROWS)
			score_rows(q + i * PAIRED, k, ntiles,
				block->space->s + i * BLOCK_KEYS + j);
}

/* O of ROWS rows and 16 or 32 features: keys of n chunks, whose tiles are `step` numbers apart. */
#define VALUE_ROWS(name, ncolumns)                                                               \
	static __attribute__((noinline)) void name(                                              \
		const uint16_t *p, const uint16_t *v, int64_t step, int64_t n, float *o, int64_t Dv) \
	{                                                                                        \
		__m512 sum[ROWS][2];                                                             \
                                                                                                 \
		UNROLL                                                                           \
		for (int i = 0; i < ROWS; i++)                                                   \
			sum[i][0] = sum[i][1] = _mm512_setzero_ps();                             \
		NO_UNROLL                                                                        \
		for (int64_t c = 0; c < n; c++, p += PAIRED, v += step) {                        \
			const uint16_t *const values[] = {v, v + TILE};                          \
                                                                                                 \
			multiply_pairs(ncolumns, sum, p, BLOCK_KEYS, values);                    \
		}                                                                                \
		UNROLL                                                                           \
		for (int i = 0; i < ROWS; i++)                                                   \
			UNROLL                                                                   \
		for (int x = 0; x < (ncolumns); x++)                                             \
			_mm512_store_ps(o + i * Dv + x * WIDE,                                   \
				_mm512_add_ps(                                                   \
					_mm512_load_ps(o + i * Dv + x * WIDE), sum[i][x]));      \
	}
VALUE_ROWS(value_rows, 2)
VALUE_ROWS(value_rows_narrow, 1)
#undef VALUE_ROWS

/* Runs of keys in turn, so that a tile of values stays in the first cache for all rows. */
static void values(const struct block *block)
{
	const int64_t ntiles = block->sizes.v_tiles, Dv = ntiles * WIDE;
	const uint16_t *v = values_of(block->shared, &block->sizes) +
		block->start / PAIRED * ntiles * TILE;

	for (int64_t j = 0; j < block->n; j += RUN) {
		const int64_t n = MIN(block->n - j, (int64_t)RUN) / PAIRED;

		for (int64_t t = 0; t < ntiles; t += 2)
			for (int i = 0; i < block->nrows; i += ROWS)
				(t + 1 < ntiles ? value_rows : value_rows_narrow)(
					block->space->p + i * BLOCK_KEYS + j,
					v + (j / PAIRED * ntiles + t) * TILE, ntiles * TILE, n,
					block->space->o + (block->first + i) * Dv + t * WIDE, Dv);
	}
}
