/*
 * attend_few_sums.h - units of few rows: the products of keys with queries and of values with
 * weights, the loops that take the time.  Part of attend_few.h.
 */

/* Bytes; a constant, which cpa_dtype_nbytes() is not. */
CPA_INLINE int64_t NAME(few_size)(const enum cpa_dtype dtype)
{
	return dtype == DTYPE ? (int64_t)sizeof(REAL) : 2;
}

CPA_INLINE VECTOR NAME(few_load)(const enum cpa_dtype dtype, const char *at)
{
#if HALVES
	if (dtype == CPA_DTYPE_BF16)
		return NAME(load_bf16)((const uint16_t *)(const void *)at);
	if (dtype == CPA_DTYPE_FP16)
		return NAME(load_fp16)((const uint16_t *)(const void *)at);
#endif
	(void)dtype;
	return *(const NAME(loose) *)(const void *)at;
}

/* The products of a key with nrows rows of q, WIDE by WIDE features, to `to` [row][WIDE][WIDE].
 * Sums in parts, so that one need not wait for another. */
CPA_INLINE void NAME(few_products)(const enum cpa_dtype dtype, const int nrows, const char *k,
	int64_t D, const REAL *q, int64_t q_step, REAL *to)
{
	const int nparts = nrows < 4 ? 4 / nrows : 1;
	const int64_t size = NAME(few_size)(dtype), whole = D / WIDE * WIDE;
	VECTOR sum[NAME(FEW_GROUP)][4];
	int64_t d = 0;

#define PRODUCTS(part, from, at)                                                                 \
	{                                                                                        \
		VECTOR key = NAME(few_load)(dtype, k + (from) * size);                           \
                                                                                                 \
		UNROLL                                                                           \
		for (int r = 0; r < nrows; r++)                                                  \
			sum[r][part] = NAME(fma)(                                                \
				key, AT_CONST(q + r * q_step + (at)), sum[r][part]);             \
	}
	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < nparts; x++)
		sum[r][x] = (VECTOR){0};
	NO_UNROLL
	for (; d + nparts * WIDE <= whole; d += nparts * WIDE)
		UNROLL
	for (int x = 0; x < nparts; x++)
		PRODUCTS(x, d + x * WIDE, d + x * WIDE)
	NO_UNROLL
	for (; nparts > 1 && d < whole; d += WIDE)
		PRODUCTS(0, d, d)
	if (whole < D)
		PRODUCTS(nparts - 1, D - WIDE, whole)
#undef PRODUCTS
	UNROLL
	for (int r = 0; r < nrows; r++) {
		if (nparts == 4)
			sum[r][0] = (sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]);
		else if (nparts == 2)
			sum[r][0] = sum[r][0] + sum[r][1];
		AT(to + r * WIDE * WIDE) = sum[r][0];
	}
}

/* Scores of WIDE / nrows keys of key head c, from key j on, for nrows rows, from row r on.  Past
 * the last key that is taken again. */
CPA_INLINE void NAME(few_square)(const struct NAME(few) * few, const enum cpa_dtype dtype,
	const int nrows, int c, int64_t j, int r)
{
	const int nkeys = WIDE / nrows;
	const int64_t size = NAME(few_size)(dtype), whole = few->D / WIDE * WIDE;
	const REAL *q = few->q + r * few->q_step;
	_Alignas(CPA_HOST_ALIGN) REAL score[WIDE];
	VECTOR sum[WIDE];
	const char *k[WIDE];

#define SQUARE(from, at)                                                                         \
	{                                                                                        \
		VECTOR key[WIDE];                                                                \
                                                                                                 \
		UNROLL                                                                           \
		for (int i = 0; i < nkeys; i++)                                                  \
			key[i] = NAME(few_load)(dtype, k[i] + (from) * size);                    \
		UNROLL                                                                           \
		for (int x = 0; x < nrows; x++) {                                                \
			VECTOR row = AT_CONST(q + x * few->q_step + (at));                       \
                                                                                                 \
			UNROLL                                                                   \
			for (int i = 0; i < nkeys; i++)                                          \
				sum[x * nkeys + i] =                                             \
					NAME(fma)(key[i], row, sum[x * nkeys + i]);              \
		}                                                                                \
	}
	UNROLL
	for (int i = 0; i < nkeys; i++)
		k[i] = few->k.at + c * few->k.head +
			(j + i < few->nkeys ? j + i : few->nkeys - 1) * few->k.token;
	UNROLL
	for (int i = 0; i < WIDE; i++)
		sum[i] = (VECTOR){0};
	NO_UNROLL
	for (int64_t d = 0; d < whole; d += WIDE)
		SQUARE(d, d)
	if (whole < few->D)
		SQUARE(few->D - WIDE, whole)
#undef SQUARE
	AT(score) = NAME(totals)(sum);
	UNROLL
	for (int x = 0; x < nrows; x++)
		memcpy(few->p + (r + x) * CPA_KEY_BLOCK + j, score + x * nkeys,
			(size_t)nkeys * sizeof(REAL));
}

/* Scores of keys [j, end) for the rows of key head c; of the rows that fill no square, the
 * products. */
CPA_INLINE void NAME(few_head)(const struct NAME(few) * few, const enum cpa_dtype dtype, int c,
	int64_t j, int64_t end)
{
	const int group = NAME(FEW_GROUP), four = NAME(FEW_FOUR);
	const char *k = few->k.at + j * few->k.token + c * few->k.head;
	int r = c * few->n, last = r + few->n;

	for (int64_t x = 0; x < end - j; x++)
		NAME(few_ask)
	(k + x * few->k.token + few->k.ahead, few->D * NAME(few_size)(dtype));
	for (; group > four && r + group <= last; r += group)
		for (int64_t x = j; x < end; x += WIDE / group)
			NAME(few_square)(few, dtype, group, c, x, r);
	for (; r + four <= last; r += four)
		for (int64_t x = j; x < end; x += WIDE / four)
			NAME(few_square)(few, dtype, four, c, x, r);
	for (; r < last && j < end; j++, k += few->k.token) {
		const REAL *q = few->q + r * few->q_step;
		REAL *to = few->products + (r * WIDE + j % WIDE) * WIDE;

		if (four > 2 && r + 2 <= last)
			NAME(few_products)(dtype, 2, k, few->D, q, few->q_step, to);
		if ((last - r) % 2)
			NAME(few_products)
		(dtype, 1, k, few->D, q + (last - r - 1) * few->q_step, few->q_step,
			to + (last - r - 1) * WIDE * WIDE);
	}
}

/* Scores of the block for key heads [first, end), keys of all of them in turn. */
CPA_INLINE void NAME(few_scores)(
	const struct NAME(few) * few, const enum cpa_dtype dtype, int first, int end)
{
	const int four = NAME(FEW_FOUR), left = few->n % four;
	const int64_t turn = few->n < four ? 1 : WIDE / four;

	for (int64_t j = 0; j < few->nkeys; j += WIDE) {
		int64_t stop = j + WIDE < few->nkeys ? j + WIDE : few->nkeys;

		for (int64_t i = j; i < stop; i += turn)
			for (int c = first; c < end; c++)
				NAME(few_head)
		(few, dtype, c, i, i + turn < stop ? i + turn : stop);
		for (int c = first; c < end; c++)
			for (int r = (c + 1) * few->n - left; r < (c + 1) * few->n; r++)
				AT(few->p + r * CPA_KEY_BLOCK + j) = NAME(totals)((VECTOR *)(
					void *)(few->products + r * WIDE * WIDE));
	}
}

/* ---- values ---- */

/* sum [nrows][ncolumns vectors] of values of keys [from, to), v being that of the first. */
CPA_INLINE void NAME(few_tile)(const struct NAME(few) * few, const enum cpa_dtype dtype,
	const int nrows, const int ncolumns, const char *v, int64_t from, int64_t to,
	const REAL *p, REAL *to_sum, bool asks)
{
	const int64_t size = NAME(few_size)(dtype), step = few->o_step;
	VECTOR sum[NAME(FEW_GROUP)][NAME(FEW_SUMS)];

	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < ncolumns; x++)
		sum[r][x] = from ? AT(to_sum + r * step + x * WIDE) : (VECTOR){0};
	NO_UNROLL
	for (int64_t j = from; j < to; j++, v += few->v.token) {
		VECTOR value[NAME(FEW_SUMS)], one[NAME(FEW_GROUP)];

		if (asks)
			NAME(few_ask)(v + few->v.ahead, ncolumns * WIDE * size);
		UNROLL
		for (int r = 0; nrows <= 2 && r < nrows; r++)
			one[r] = NAME(broadcast)(p + r * CPA_KEY_BLOCK + j);
		UNROLL
		for (int x = 0; x < ncolumns; x++) {
			value[x] = NAME(few_load)(dtype, v + x * WIDE * size);
			UNROLL
			for (int r = 0; nrows <= 2 && r < nrows; r++)
				sum[r][x] = NAME(fma)(one[r], value[x], sum[r][x]);
		}
		UNROLL
		for (int r = 0; nrows > 2 && r < nrows; r++) {
			one[r] = NAME(broadcast)(p + r * CPA_KEY_BLOCK + j);
			UNROLL
			for (int x = 0; x < ncolumns; x++)
				sum[r][x] = NAME(fma)(one[r], value[x], sum[r][x]);
		}
	}
	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < ncolumns; x++)
		AT(to_sum + r * step + x * WIDE) = sum[r][x];
}

/* All features of nrows rows. */
CPA_INLINE void NAME(few_columns)(const struct NAME(few) * few, const enum cpa_dtype dtype,
	const int nrows, const char *v, int64_t from, int64_t to, int row, bool asks)
{
	const int most = NAME(FEW_SUMS) / nrows < 8 ? NAME(FEW_SUMS) / nrows : 8;
	const int64_t size = NAME(few_size)(dtype), whole = few->Dv / WIDE * WIDE;
	const REAL *p = few->p + row * CPA_KEY_BLOCK;
	REAL *sum = few->sum + row * few->o_step;
	int64_t d = 0;

	for (; d + most * WIDE <= whole; d += most * WIDE)
		NAME(few_tile)(few, dtype, nrows, most, v + d * size, from, to, p, sum + d, asks);
	if (most > 2)
		for (; d + 2 * WIDE <= whole; d += 2 * WIDE)
			NAME(few_tile)(few, dtype, nrows, 2, v + d * size, from, to, p, sum + d, asks);
	if (most > 1)
		for (; d < whole; d += WIDE)
			NAME(few_tile)(few, dtype, nrows, 1, v + d * size, from, to, p, sum + d, asks);
	if (whole < few->Dv)
		NAME(few_tile)
	(few, dtype, nrows, 1, v + (few->Dv - WIDE) * size, from, to, p, sum + whole, asks);
}

/* Sums of values of the block for key heads [first, end), `turn` keys of each at a time. */
CPA_INLINE void NAME(few_values)(const struct NAME(few) * few, const enum cpa_dtype dtype,
	int first, int end)
{
	const int64_t turn = few->v.turn;

	for (int64_t j = 0; j < few->nkeys; j += turn)
		for (int c = first; c < end; c++) {
			const char *v = few->v.at + j * few->v.token + c * few->v.head;
			int64_t to = j + turn < few->nkeys ? j + turn : few->nkeys;
			int r = 0, row = c * few->n;

			for (; r + NAME(FEW_GROUP) <= few->n; r += NAME(FEW_GROUP))
				NAME(few_columns)
			(few, dtype, NAME(FEW_GROUP), v, j, to, row + r, r == 0);
			if (NAME(FEW_GROUP) > NAME(FEW_FOUR) && r + 4 <= few->n) {
				NAME(few_columns)(few, dtype, 4, v, j, to, row + r, r == 0);
				r += 4;
			}
			if (NAME(FEW_FOUR) > 2 && r + 2 <= few->n) {
				NAME(few_columns)(few, dtype, 2, v, j, to, row + r, r == 0);
				r += 2;
			}
			if (r < few->n)
				NAME(few_columns)(few, dtype, 1, v, j, to, row + r, r == 0);
		}
}
