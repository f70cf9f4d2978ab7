/*
 * attend_tiles_pack.h - keys and values of one key head as tiles, made once for all units.  Part
 * of attend_tiles.h.
 *
 * A product of tiles wants pairs: its second factor has rows of [column][2], the two being
 * neighbours along what is summed over.
 *   keys    [16 keys][32 features]: row r is features 2r, 2r+1 of 16 keys: 16 x 16 pairs turned
 *   values  [32 keys][16 features]: row r is keys 2r, 2r+1 of 16 features: two rows interleaved
 * Features are filled up with zeros to whole tiles, and so are keys that no row sees: what lies
 * there may be anything, and a weight of 0 times NaN is NaN.
 *
 * Tiles take numbers below the least normal one, 2^-126, as 0.  That must not be seen:
 *   scores  q and k up to 2^40 and scale D up to 2^40 lose at most 2^-44 of a score and cannot
 *           overflow; exp has more error than that.
 *   values  are multiplied by 2^shift, which is exact, so that those above 0 lie in 2^24..2^90.
 *           A weight that is not flushed itself is 2^-126 or more and has 8 bits, so products,
 *           and sums of such, are multiples of 2^-116: nothing is flushed.  Weights below are
 *           among those that any exp may flush.
 * Where q, k or v do not lie so, NaN among them, the unit is left to the kernel of fp32.
 */

enum {
	USUAL_SHIFT = 64, /* good for values of 2^-40..2^26 */
	VALUE_LEAST = 24, /* powers of 2 after the shift */
	VALUE_MOST = 90
};

/* Bits of the bf16 2^n, less the sign: they ascend as numbers do, NaN above all. */
#define BF16_POWER(n) (unsigned)((127 + (n)) << 7)

/* Least and greatest bits, less the sign; those of the least are less 1, so 0 is no minimum. */
struct extent {
	unsigned k_most, v_most, v_least;
};

/* What is shared of a key head begins with this. */
struct head {
	struct extent part[CPA_SHARED_PARTS];
	bool fits;
	int shift;
};

struct sizes {
	int64_t nchunks; /* of 32 keys */
	int64_t k_tiles, v_tiles; /* of 16 keys along features, of a chunk along features */
};

static int64_t tiles_of(int64_t n, int64_t size)
{
	return (n + size - 1) / size;
}

static struct sizes sizes_of(const struct cpa_attend *attend)
{
	return (struct sizes){tiles_of(attend->nk, PAIRED), tiles_of(attend->problem->D, PAIRED),
		tiles_of(attend->problem->Dv, WIDE)};
}

enum {
	HEAD_NBYTES = (sizeof(struct head) + CPA_HOST_ALIGN - 1) / CPA_HOST_ALIGN * CPA_HOST_ALIGN
};

static uint16_t *keys_of(char *shared)
{
	return (uint16_t *)(void *)(shared + HEAD_NBYTES);
}

static uint16_t *values_of(char *shared, const struct sizes *sizes)
{
	return keys_of(shared) + sizes->nchunks * 2 * sizes->k_tiles * TILE;
}

static size_t shared_nbytes(const struct cpa_attend *attend)
{
	struct sizes sizes = sizes_of(attend);

	return HEAD_NBYTES +
		(size_t)(sizes.nchunks * (2 * sizes.k_tiles + sizes.v_tiles)) * CPA_TILE_NBYTES;
}

/* Key j of the head, or NULL where it is not seen. */
static const uint16_t *row_of(const struct cpa_attend_call *call, const struct cpa_array *array,
	int64_t b, int64_t kv, int64_t j)
{
	if (j >= call->attend->nk || !call->seen[b * call->attend->nk + j])
		return NULL;
	return cpa_element(array, cpa_array_index(array, j, b, kv));
}

/* n numbers from d on, as many as there are; nothing past them is read. */
CPA_INLINE __m512i load_pairs(const uint16_t *row, int64_t d, int64_t D)
{
	uint32_t mask = D - d >= PAIRED ? UINT32_MAX : (1u << (D - d)) - 1;

	return row ? _mm512_maskz_loadu_epi16(mask, row + d) : _mm512_setzero_si512();
}

/* 16 numbers, each in 32 bits. */
CPA_INLINE __m512i load_apart(const uint16_t *row, int64_t d, int64_t D)
{
	__mmask16 mask = (__mmask16)(D - d >= WIDE ? UINT16_MAX : (1 << (D - d)) - 1);

	return row ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + d))
		   : _mm512_setzero_si512();
}

static unsigned pack_keys(const struct cpa_attend_call *call, int64_t b, int64_t kv,
	int64_t chunk, const struct sizes *sizes, uint16_t *to)
{
	__m512i most = _mm512_setzero_si512();

	to += chunk * 2 * sizes->k_tiles * TILE;
	for (int64_t j = chunk * PAIRED; j < (chunk + 1) * PAIRED; j += WIDE) {
		const uint16_t *row[WIDE];

		for (int i = 0; i < WIDE; i++)
			row[i] = row_of(call, &call->attend->k, b, kv, j + i);
		for (int64_t t = 0; t < sizes->k_tiles; t++, to += TILE) {
			f32 tile[WIDE];

			for (int i = 0; i < WIDE; i++) {
				__m512i x = load_pairs(
					row[i], t * PAIRED, call->attend->problem->D);

				most = _mm512_max_epu16(
					most, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
				tile[i] = (f32)x;
			}
			f32_transpose(tile);
			memcpy(to, tile, sizeof tile);
		}
	}
	most = _mm512_max_epu32(
		_mm512_srli_epi32(most, 16), _mm512_and_si512(most, _mm512_set1_epi32(0xffff)));
	return _mm512_reduce_max_epu32(most);
}

static void pack_values(const struct cpa_attend_call *call, int64_t b, int64_t kv, int64_t chunk,
	const struct sizes *sizes, int shift, uint16_t *to, struct extent *extent)
{
	const __m512i size = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
	const __m512 power = _mm512_set1_ps((float)shift);
	__m512i most = _mm512_setzero_si512(), least = _mm512_set1_epi32(-1);
	int64_t Dv = call->attend->problem->Dv;

	to += chunk * sizes->v_tiles * TILE;
	for (int r = 0; r < PAIRED / 2; r++) {
		int64_t j = chunk * PAIRED + 2 * r;
		const uint16_t *row[2] = {row_of(call, &call->attend->v, b, kv, j),
			row_of(call, &call->attend->v, b, kv, j + 1)};

		for (int64_t t = 0; t < sizes->v_tiles; t++) {
			__m512i x[2];

			for (int i = 0; i < 2; i++) {
				__m512i bits = load_apart(row[i], t * WIDE, Dv),
					mag = _mm512_and_si512(bits, size);

				most = _mm512_max_epu32(most, mag);
				least = _mm512_min_epu32(least, _mm512_sub_epi32(mag, one));
				x[i] = _mm512_castps_si512(_mm512_scalef_ps(
					_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)), power));
			}
			_mm512_storeu_si512(to + t * TILE + r * PAIRED,
				_mm512_mask_blend_epi16(
					0xaaaaaaaa, _mm512_srli_epi32(x[0], 16), x[1]));
		}
	}
	extent->v_most = MAX(extent->v_most, _mm512_reduce_max_epu32(most));
	extent->v_least = MIN(extent->v_least, _mm512_reduce_min_epu32(least));
}

static void share(const struct cpa_attend_call *call, int64_t b, int64_t kv, int part)
{
	char *shared = cpa_attend_shared(call, b, kv);
	struct sizes sizes = sizes_of(call->attend);
	struct extent extent = {0, 0, UINT_MAX};

	for (int64_t c = sizes.nchunks * part / CPA_SHARED_PARTS;
		c < sizes.nchunks * (part + 1) / CPA_SHARED_PARTS; c++) {
		unsigned most = pack_keys(call, b, kv, c, &sizes, keys_of(shared));

		extent.k_most = MAX(extent.k_most, most);
		pack_values(
			call, b, kv, c, &sizes, USUAL_SHIFT, values_of(shared, &sizes), &extent);
	}
	((struct head *)(void *)shared)->part[part] = extent;
}

/* The power of 2 of bf16 bits: that of the number rounded down to one. */
static int power_of(unsigned bits)
{
	return ilogbf(cpa_bf16_to_float((uint16_t)bits));
}

/* Finds the shift of the values; false where there is none. */
static bool choose_shift(const struct extent *extent, int *shift)
{
	*shift = USUAL_SHIFT;
	if (extent->v_most >= BF16_POWER(128))
		return false;
	if (extent->v_least == UINT_MAX)
		return true; /* all are 0 */
	if (extent->v_least + 1 >= BF16_POWER(VALUE_LEAST - USUAL_SHIFT) &&
		extent->v_most <= BF16_POWER(VALUE_MOST - USUAL_SHIFT))
		return true;
	*shift = VALUE_LEAST - power_of(extent->v_least + 1);
	return power_of(extent->v_most) + 1 + *shift <= VALUE_MOST;
}

/* Values that the usual shift does not suit are packed again. */
static void share_end(const struct cpa_attend_call *call, int64_t b, int64_t kv)
{
	char *shared = cpa_attend_shared(call, b, kv);
	const struct cpa_problem *problem = call->attend->problem;
	struct head *head = (struct head *)(void *)shared;
	struct sizes sizes = sizes_of(call->attend);
	struct extent all = {0, 0, UINT_MAX};

	for (int i = 0; i < CPA_SHARED_PARTS; i++) {
		all.k_most = MAX(all.k_most, head->part[i].k_most);
		all.v_most = MAX(all.v_most, head->part[i].v_most);
		all.v_least = MIN(all.v_least, head->part[i].v_least);
	}
	head->fits = choose_shift(&all, &head->shift) && all.k_most <= BF16_POWER(40) &&
		problem->scale * (double)problem->D <= 0x1p40;
	for (int64_t c = 0; head->fits && head->shift != USUAL_SHIFT && c < sizes.nchunks; c++)
		pack_values(call, b, kv, c, &sizes, head->shift, values_of(shared, &sizes), &all);
}
