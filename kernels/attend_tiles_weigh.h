/*
 * attend_tiles_weigh.h - scores of a block to weights, row by row.  Part of attend_tiles.h.
 *
 * Scores are as in attend_template.h: times log2(e) / 4, because a bias may be the largest
 * number.  Without a bias they are far from it (attend_tiles_pack.h) and the 4 goes into a
 * multiply-add.  A score is always rounded before the maximum is taken from it, so that what exp
 * gets is never above 0.
 */

/* Keys [lo, hi) of the block are those that a row sees. */
struct seen {
	int lo, hi;
};

static struct seen seen_of(const struct block *block, int i)
{
	struct cpa_range keys = row_at(block->unit, block->first + i).keys;
	int64_t lo = keys.start - block->start, hi = keys.end - block->start, n = block->n;

	return (struct seen){(int)(lo < 0 ? 0 : MIN(lo, n)), (int)(hi < 0 ? 0 : MIN(hi, n))};
}

/* Which of the 16 keys from c on; [lo, hi) has some of them. */
CPA_INLINE __mmask16 lanes_of(struct seen seen, int c)
{
	unsigned mask = 0xffff;

	if (c < seen.lo)
		mask &= 0xffffu << (seen.lo - c);
	if (c + WIDE > seen.hi)
		mask &= 0xffffu >> (c + WIDE - seen.hi);
	return (__mmask16)mask;
}

/* What the mask adds to the keys of `seen` for row i of the block; -inf hides. */
static void read_bias(const struct block *block, int i, struct seen seen)
{
	const struct cpa_attend_call *call = block->unit->call;
	const struct cpa_attend *attend = call->attend;
	const struct cpa_mask *mask = &attend->problem->rule.mask;
	struct row row = row_at(block->unit, block->first + i);
	int64_t at = (attend->batches.start + block->unit->b) * mask->batch +
		(attend->heads.start + row.h) * mask->head + call->q_ids[row.t] * mask->query;
	const int64_t *keys = call->k_ids + block->start;
	float *bias = block->space->bias;

	if (mask->kind == CPA_MASK_BOOL)
		for (int c = seen.lo; c < seen.hi; c++)
			bias[c] = ((const uint8_t *)mask->data)[at + keys[c] * mask->key]
				? 0
				: -INFINITY;
	else
		for (int c = seen.lo; c < seen.hi; c++)
			bias[c] = ((const float *)mask->data)[at + keys[c] * mask->key];
}

/* Scores with the bias, in place; the largest. */
static float add_bias(const struct block *block, struct seen seen, float *s)
{
	const float high = (float)(LOG2E / 4), low = (float)(LOG2E / 4 - high);
	const __m512 factor = _mm512_set1_ps(block->factor);
	__m512 most = _mm512_set1_ps(-FLT_MAX);

	for (int c = seen.lo / WIDE * WIDE; c < seen.hi; c += WIDE) {
		__mmask16 lanes = lanes_of(seen, c);
		__m512 bias = _mm512_maskz_loadu_ps(lanes, block->space->bias + c);
		__m512 x = _mm512_mul_ps(_mm512_load_ps(s + c), factor);

		x = _mm512_fmadd_ps(bias, _mm512_set1_ps(low), x);
		x = _mm512_fmadd_ps(bias, _mm512_set1_ps(high), x);
		most = _mm512_mask_max_ps(most, lanes, most, x);
		_mm512_store_ps(s + c, x);
	}
	return _mm512_reduce_max_ps(most);
}

/* The factor is above 0 and rounding keeps order, so this is the largest of the products. */
static float largest(const struct block *block, struct seen seen, const float *s)
{
	__m512 most = _mm512_set1_ps(-FLT_MAX);

	for (int c = seen.lo / WIDE * WIDE; c < seen.hi; c += WIDE)
		most = _mm512_mask_max_ps(most, lanes_of(seen, c), most, _mm512_load_ps(s + c));
	return _mm512_reduce_max_ps(most) * block->factor;
}

/* Rounded as the kernel of fp32 does: half of the last place is added, the rest is cut off. */
CPA_INLINE void store_weights(uint16_t *to, __m512 p)
{
	__m512i bits = _mm512_add_epi32(_mm512_castps_si512(p), _mm512_set1_epi32(0x8000));

	_mm256_storeu_si256(
		(__m256i *)(void *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}

/* Weights of a row; 0 where it sees nothing.  Returns their sum, before they are rounded. */
CPA_INLINE float exp_row(const struct block *block, struct seen seen, const float *s, float m,
	uint16_t *p, bool biased)
{
	const __m512 factor = _mm512_set1_ps(block->factor), four = _mm512_set1_ps(4);
	const __m512 max = _mm512_set1_ps(m), offset = _mm512_set1_ps(-4 * m);
	int from = seen.lo / WIDE * WIDE, to = (seen.hi + WIDE - 1) / WIDE * WIDE;
	__m512 sum = _mm512_setzero_ps();

	memset(p, 0, (size_t)from * sizeof *p);
	memset(p + to, 0, (size_t)(block->n - to) * sizeof *p);
	for (int c = from; c < to; c += WIDE) {
		__m512 x = _mm512_load_ps(s + c);

		if (biased)
			x = _mm512_mul_ps(_mm512_sub_ps(x, max), four);
		else
			x = _mm512_fmadd_ps(_mm512_mul_ps(x, factor), four, offset);
		x = _mm512_maskz_mov_ps(lanes_of(seen, c), (__m512)f32_exp2((f32)x));
		sum = _mm512_add_ps(sum, x);
		store_weights(p + c, x);
	}
	return _mm512_reduce_add_ps(sum);
}

/* What was found of row i so far, to the new maximum. */
static void shrink_row(const struct block *block, int i, float m, float sum)
{
	const struct space *space = block->space;
	const int64_t step = block->sizes.v_tiles * WIDE;
	const int at = block->first + i;
	const f32 shrink = f32_exp2(f32_spread((space->m[at] - m) * 4));
	float *o = space->o + at * step;

	if (space->m[at] != m)
		for (int64_t d = 0; d < step; d += WIDE)
			_mm512_store_ps(
				o + d, _mm512_mul_ps(_mm512_load_ps(o + d), (__m512)shrink));
	space->l[at] = fmaf(space->l[at], ((const float *)&shrink)[0], sum);
	space->m[at] = m;
}

static void weigh(const struct block *block)
{
	const bool biased = block->unit->call->k_ids;

	for (int i = 0; i < block->nrows; i++) {
		struct seen seen = seen_of(block, i);
		float *s = block->space->s + i * BLOCK_KEYS, sum, m;
		uint16_t *p = block->space->p + i * BLOCK_KEYS;

		if (seen.lo >= seen.hi) {
			memset(p, 0, (size_t)block->n * sizeof *p);
			continue;
		}
		if (biased)
			read_bias(block, i, seen);
		m = biased ? add_bias(block, seen, s) : largest(block, seen, s);
		m = MAX(m, block->space->m[block->first + i]);
		sum = biased ? exp_row(block, seen, s, m, p, true)
			     : exp_row(block, seen, s, m, p, false);
		shrink_row(block, i, m, sum);
	}
}
