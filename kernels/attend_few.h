/*
 * attend_few.h - products for units of few rows, where lanes would be empty: here lanes are
 * features.  Part of attend_template.h.
 *
 * Such units (decoding) are as fast as keys and values come from memory, if the rest keeps up
 * and the rows are asked for early enough.  So keys and values of 16 bits are widened in
 * registers, and each row of them serves up to NAME(GROUP) query rows while it is in one.
 */

/* The sums of a tile of products, and of one of values, are WIDE vectors. */
enum {
	NAME(FOUR) = WIDE < 4 ? 2 : 4, /* rows of the smaller tile */
	NAME(GROUP) = WIDE < 16 ? NAME(FOUR) : 8, /* rows of the larger one */
	NAME(PART) = 32 /* values that stay near while all rows use them */
};

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

CPA_INLINE void NAME(ask_for)(const char *at, int64_t nbytes)
{
	for (int64_t i = 0; i < nbytes; i += 64)
		CPA_PREFETCH(at + i);
}

/*
 * Scores of some keys for nrows rows: WIDE sums of vectors, which turned round add up to one
 * vector of scores.  A row alone is taken in halves, so that keys are not too many at a time.
 * Past the last key that is taken again.
 */
CPA_INLINE void NAME(few_tile)(const struct NAME(step) * step, const enum cpa_dtype dtype,
	const int nrows, const REAL *q, int64_t j, REAL *p, bool asks)
{
	const int halves = nrows == 1 ? 2 : 1, nkeys = WIDE / nrows / halves;
	const int64_t D = step->D / halves, size = (int64_t)cpa_dtype_nbytes(dtype);
	const struct NAME(few_array) *keys = &step->few_k;
	_Alignas(CPA_HOST_ALIGN) REAL score[WIDE];
	VECTOR sum[WIDE];
	const char *k[WIDE];

	for (int i = 0; i < nkeys; i++) {
		k[i] = keys->at + (j + i < step->n ? j + i : step->n - 1) * keys->step;
		if (asks)
			NAME(ask_for)(k[i] + NAME(FEW_AHEAD) * keys->step, step->D * size);
	}
	UNROLL
	for (int i = 0; i < WIDE; i++)
		sum[i] = (VECTOR){0};
	NO_UNROLL
	for (int64_t d = 0; d < D; d += WIDE)
		UNROLL
	for (int h = 0; h < halves; h++) {
		VECTOR key[WIDE];

		UNROLL
		for (int i = 0; i < nkeys; i++)
			key[i] = NAME(few_load)(dtype, k[i] + (h * D + d) * size);
		UNROLL
		for (int r = 0; r < nrows; r++) {
			VECTOR row = AT_CONST(q + (r + h) * D + d);

			UNROLL
			for (int i = 0; i < nkeys; i++)
				sum[(i * nrows + r) * halves + h] = NAME(fma)(
					key[i], row, sum[(i * nrows + r) * halves + h]);
		}
	}
	AT(score) = NAME(totals)(sum);
	for (int i = 0; i < nkeys && j + i < step->n; i++)
		if (halves == 2)
			p[(j + i) * WIDE] = score[2 * i] + score[2 * i + 1];
		else
			memcpy(p + (j + i) * WIDE, score + i * nrows,
				(size_t)nrows * sizeof(REAL));
}

/* Scores of all keys for all rows. */
CPA_INLINE void NAME(few_scores)(const struct NAME(step) * step, const enum cpa_dtype dtype)
{
	const int four = NAME(FOUR), group = NAME(GROUP), nkeys = WIDE / four;
	const bool asks = step->few_k.in_place;

	if (step->nfew == 1) {
		for (int64_t j = 0; j < step->n; j += WIDE / 2)
			NAME(few_tile)(step, dtype, 1, step->few_q, j, step->p, asks);
		return;
	}
	for (int64_t j = 0; j < step->n; j += nkeys) {
		int r = 0;

		for (; group > four && r + group <= step->nfew; r += group)
			for (int64_t i = j; i < j + nkeys && i < step->n; i += WIDE / group)
				NAME(few_tile)
		(step, dtype, group, step->few_q + r * step->D, i, step->p + r, asks && r == 0);
		for (; r < step->nfew; r += four)
			NAME(few_tile)
		(step, dtype, four, step->few_q + r * step->D, j, step->p + r, asks && r == 0);
	}
}

/* What is asked for while values are added up: the same rows, some further on, line by line. */
struct NAME(asked) {
	const char *at;
	int64_t within, row, step; /* bytes */
};

CPA_INLINE void NAME(ask_next)(struct NAME(asked) * asked, int64_t nbytes)
{
	NAME(ask_for)(asked->at + asked->within, nbytes);
	asked->within += nbytes;
	if (asked->within >= asked->row) {
		asked->within = 0;
		asked->at += asked->step;
	}
}

/*
 * ncolumns vectors of features of nrows rows, from those values: sums of the block in part, or
 * where the block ends, o.
 */
CPA_INLINE void NAME(few_values)(const struct NAME(step) * step, const enum cpa_dtype dtype,
	const int nrows, const int ncolumns, int64_t start, int r0, int64_t d,
	struct NAME(asked) * asked)
{
	const int64_t size = (int64_t)cpa_dtype_nbytes(dtype), Dv = step->Dv;
	const int64_t end = start + NAME(PART) < step->n ? start + NAME(PART) : step->n;
	const REAL *p = step->p + r0;
	REAL *part = step->few_sum + r0 * Dv + d, *o = step->few_o + r0 * Dv + d;
	VECTOR sum[NAME(GROUP)][NAME(FEW_COLUMNS)];

	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < ncolumns; x++)
		sum[r][x] = start ? AT(part + r * Dv + x * WIDE) : (VECTOR){0};
	NO_UNROLL
	for (int64_t j = start; j < end; j++) {
		const char *v = step->few_v.at + j * step->few_v.step + d * size;
		VECTOR value[NAME(FEW_COLUMNS)];

		if (asked)
			NAME(ask_next)(asked, ncolumns * WIDE * size);
		UNROLL
		for (int x = 0; x < ncolumns; x++)
			value[x] = NAME(few_load)(dtype, v + x * WIDE * size);
		UNROLL
		for (int r = 0; r < nrows; r++) {
			VECTOR one = NAME(broadcast)(p + j * WIDE + r);

			UNROLL
			for (int x = 0; x < ncolumns; x++)
				sum[r][x] = NAME(fma)(one, value[x], sum[r][x]);
		}
	}
	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < ncolumns; x++) {
		REAL *at = o + r * Dv + x * WIDE;

		if (end < step->n)
			at = part + r * Dv + x * WIDE;
		else if (step->started)
			sum[r][x] = NAME(fma)(NAME(broadcast)(step->shrink + r0 + r), AT(at),
				sum[r][x]);
		AT(at) = sum[r][x];
	}
}

CPA_INLINE void NAME(few_products)(const struct NAME(step) * step, const enum cpa_dtype dtype)
{
	const int four = NAME(FOUR), group = NAME(GROUP), chunk = NAME(FEW_CHUNK);
	const int narrow = group > four ? NAME(FEW_COLUMNS) / 2 : NAME(FEW_COLUMNS);
	struct NAME(asked) ahead = {step->few_v.at + NAME(FEW_AHEAD) * step->few_v.step, 0,
		step->Dv * (int64_t)cpa_dtype_nbytes(dtype), step->few_v.step};

	for (int64_t j = 0; j < step->n; j += NAME(PART))
		for (int64_t d = 0; d < step->Dv; d += chunk) {
			struct NAME(asked) *asked = step->few_v.in_place ? &ahead : NULL;
			int r = 0;

			for (; group > four && r + group <= step->nfew; r += group) {
				NAME(few_values)(step, dtype, group, narrow, j, r, d, asked);
				NAME(few_values)
				(step, dtype, group, narrow, j, r, d + narrow * WIDE, asked);
				asked = NULL;
			}
			if (step->nfew == 1)
				NAME(few_values)
			(step, dtype, 1, NAME(FEW_COLUMNS), j, 0, d, asked);
			for (; r + four <= step->nfew; r += four, asked = NULL)
				NAME(few_values)
			(step, dtype, four, NAME(FEW_COLUMNS), j, r, d, asked);
		}
}

/* The maximum with keys that all rows see whole, by four so that one need not wait for another. */
static void NAME(few_max)(const struct NAME(step) * step, REAL *max)
{
	VECTOR most[4];
	int64_t j = step->clear;

	for (int i = 0; i < 4; i++)
		most[i] = AT(max);
	for (; j + 4 <= step->clear_end; j += 4)
		UNROLL
	for (int i = 0; i < 4; i++)
		most[i] = NAME(max)(AT(step->p + (j + i) * WIDE), most[i]);
	for (; j < step->clear_end; j++)
		most[0] = NAME(max)(AT(step->p + j * WIDE), most[0]);
	AT(max) = NAME(max)(NAME(max)(most[0], most[1]), NAME(max)(most[2], most[3]));
}

#if HALVES
#define BY_DTYPE(function, array)                                                                \
	switch ((array)->dtype) {                                                                \
	case CPA_DTYPE_BF16:                                                                     \
		function(step, CPA_DTYPE_BF16);                                                  \
		break;                                                                           \
	case CPA_DTYPE_FP16:                                                                     \
		function(step, CPA_DTYPE_FP16);                                                  \
		break;                                                                           \
	default:                                                                                 \
		function(step, DTYPE);                                                           \
	}
#else
#define BY_DTYPE(function, array) function(step, DTYPE);
#endif

/* Like NAME(step)(), but o is [row][Dv] and q [row][D]. */
static void NAME(step_few)(const struct NAME(step) * step)
{
	_Alignas(CPA_HOST_ALIGN) REAL max[WIDE];

	BY_DTYPE(NAME(few_scores), &step->few_k)
	memcpy(max, step->m, sizeof max);
	NAME(few_max)(step, max);
	NAME(hide)(step, 1, 0, step->clear, max);
	NAME(hide)(step, 1, step->clear_end, step->n, max);
	NAME(weigh_any)(step, 1, max);
	BY_DTYPE(NAME(few_products), &step->few_v)
}
#undef BY_DTYPE

/* How many rows are computed for n. */
static int NAME(few_count)(int n)
{
	return n == 1 ? 1 : (n + NAME(FOUR) - 1) / NAME(FOUR) * NAME(FOUR);
}

/* q from [D][lane] to [row][D]; weights of lanes without a row must be numbers. */
static void NAME(start_few)(struct NAME(space) * space, const struct cpa_problem *problem)
{
	for (int r = 0; r < NAME(FEW); r++)
		for (int64_t d = 0; d < problem->D; d++)
			space->few_q[r * problem->D + d] = space->q[d * WIDE + r];
	memset(space->p, 0, CPA_KEY_BLOCK * WIDE * sizeof(REAL));
	memset(space->few_o, 0, (size_t)(NAME(FEW) * problem->Dv) * sizeof(REAL));
}

/* The first rows of a part of the keys: nothing before them has asked for them. */
static void NAME(few_first)(
	const struct NAME(block) * block, const struct NAME(space) * space, int64_t D, int64_t Dv)
{
	const struct NAME(few_array) k = NAME(few_of)(block->k, space->k, block->k_step,
		block->k_dtype),
		v = NAME(few_of)(block->v, space->v, block->v_step, block->v_dtype);

	for (int64_t j = 0; j < NAME(FEW_AHEAD) && j < block->end - block->start; j++) {
		if (k.in_place)
			NAME(ask_for)
		(k.at + j * k.step, D * (int64_t)cpa_dtype_nbytes(k.dtype));
		if (v.in_place)
			NAME(ask_for)
		(v.at + j * v.step, Dv * (int64_t)cpa_dtype_nbytes(v.dtype));
	}
}

/* o from [row][Dv] to [Dv][lane]. */
static void NAME(end_few)(
	const struct NAME(space) * space, const struct cpa_problem *problem, REAL *o)
{
	memset(o, 0, (size_t)(problem->Dv * WIDE) * sizeof(REAL));
	for (int r = 0; r < NAME(FEW); r++)
		for (int64_t d = 0; d < problem->Dv; d++)
			o[d * WIDE + r] = space->few_o[r * problem->Dv + d];
}
