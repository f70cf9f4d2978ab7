/*
 * attend_lanes_sums.h - the products of keys with the lanes of queries and of values with those
 * of weights, the loops that take the time.  Part of attend_lanes.h.
 */

/* What is read after the `turn` keys from key j on: of key heads from `first` on, as far as they
 * lie together. */
static struct NAME(ask) NAME(ask_tile)(const struct NAME(lanes) * lanes,
	const struct NAME(few_array) * array, const struct NAME(few_array) * after, int64_t j,
	int64_t turn, int first, int64_t nbytes)
{
	const int64_t next = j + turn;
	const struct NAME(few_array) *of = next < lanes->nkeys ? array : after;
	const int64_t run = (array->together - 1) * of->head + nbytes;

	/* The next block of the one is likely to follow the block of today. */
	return (struct NAME(ask)){
		.at = of->at + first * of->head + (next < lanes->nkeys ? next : 0) * of->token,
		.left = run,
		.run = run,
		.gap = of->token - run};
}

CPA_INLINE void NAME(ask)(struct NAME(ask) * ask)
{
	CPA_PREFETCH_NEAR(ask->at);
	ask->at += 64;
	ask->left -= 64;
	if (ask->left <= 0) {
		ask->at += ask->left + ask->gap;
		ask->left = ask->run;
	}
}

/*
 * Rows of a tile by four registers, which is what lets compilers address eight of them without
 * reading pointers back from memory in the loop: the empty asm hides that they are related.
 */
struct NAME(rows) {
	const char *even, *odd; /* rows 0 and 1 */
	int64_t step, thrice; /* bytes */
};

CPA_INLINE struct NAME(rows) NAME(rows_of)(const REAL *at, int64_t step)
{
	step *= (int64_t)sizeof(REAL);
	return (struct NAME(rows)){(const char *)at, (const char *)at + step, step, 3 * step};
}

CPA_INLINE VECTOR NAME(row_number)(const struct NAME(rows) * rows, const int i, const int d)
{
	const char *at = (i % 2 ? rows->odd : rows->even) + d * (int)sizeof(REAL);

	return NAME(broadcast)((const REAL *)(const void *)(i < 2 ? at
			: i < 4					  ? at + rows->step * 2
			: i < 6					  ? at + rows->step * 4
								  : at + rows->thrice * 2));
}

CPA_INLINE void NAME(rows_move)(struct NAME(rows) * rows, int n)
{
	rows->even += n * (int)sizeof(REAL);
	rows->odd += n * (int)sizeof(REAL);
	__asm__("" : "+r"(rows->even), "+r"(rows->odd), "+r"(rows->step), "+r"(rows->thrice));
}

/* each(x) for feature d + x, all n of them; a line is asked for where as many have passed as lie
 * in all lines of a tile. */
#define LANES_FEATURES(n, each)                                                                  \
	NO_UNROLL                                                                                \
	for (; d + line <= (n); d += line) {                                                     \
		NAME(ask)(&next);                                                                \
		UNROLL                                                                           \
		for (int x = 0; x < line; x++) {                                                 \
			each(x);                                                                 \
		}                                                                                \
		NAME(rows_move)(&rows, line);                                                    \
	}                                                                                        \
	NO_UNROLL                                                                                \
	for (; d < (n); d++) {                                                                   \
		each(0);                                                                         \
		NAME(rows_move)(&rows, 1);                                                       \
	}

/* Scores of nkeys keys, rows `step` apart; max, [lane], grows with them if it is not NULL. */
CPA_INLINE void NAME(lanes_score_tile)(const int line, const int nkeys, const REAL *k,
	int64_t step, const REAL *q, int64_t D, REAL *p, REAL *max, struct NAME(ask) * ask)
{
	enum { KEYS = NAME(LANES_KEYS) };
	struct NAME(rows) rows = NAME(rows_of)(k, step);
	struct NAME(ask) next = *ask;
	VECTOR sum[KEYS];
	int64_t d = 0;

#define LANES_SCORES(x)                                                                          \
	{                                                                                        \
		VECTOR row = AT_CONST(q + (d + (x)) * WIDE);                                     \
                                                                                                 \
		UNROLL                                                                           \
		for (int i = 0; i < nkeys; i++)                                                  \
			sum[i] = NAME(fma)(NAME(row_number)(&rows, i, x), row, sum[i]);          \
	}
	UNROLL
	for (int i = 0; i < nkeys; i++)
		sum[i] = (VECTOR){0};
	LANES_FEATURES(D, LANES_SCORES)
#undef LANES_SCORES
	*ask = next;
	UNROLL
	for (int i = 0; i < nkeys; i++)
		AT(p + i * WIDE) = sum[i];
	if (max) {
		VECTOR most = AT(max);

		UNROLL
		for (int i = 0; i < nkeys; i++)
			most = NAME(max)(sum[i], most);
		AT(max) = most;
	}
}

/* Adds nkeys rows of v, `step` apart, times their weights to sum, in two chains. */
CPA_INLINE void NAME(lanes_value_tile)(const int line, const int nkeys, const REAL *v,
	int64_t step, const REAL *p, int64_t Dv, REAL *sum, struct NAME(ask) * ask)
{
	enum { KEYS = NAME(LANES_KEYS) };
	struct NAME(rows) rows = NAME(rows_of)(v, step);
	struct NAME(ask) next = *ask;
	VECTOR weight[KEYS];
	int64_t d = 0;

#define LANES_VALUES(x)                                                                          \
	{                                                                                        \
		VECTOR a = AT(sum + (d + (x)) * WIDE);                                           \
		VECTOR b = {0};                                                                  \
                                                                                                 \
		UNROLL                                                                           \
		for (int i = 0; i < nkeys; i++) {                                                \
			VECTOR one = NAME(row_number)(&rows, i, x);                              \
                                                                                                 \
			if (i == 1)                                                              \
				b = one * weight[i];                                             \
			else if (i % 2)                                                          \
				b = NAME(fma)(one, weight[i], b);                                \
			else                                                                     \
				a = NAME(fma)(one, weight[i], a);                                \
		}                                                                                \
		if (nkeys > 1)                                                                   \
			a += b;                                                                  \
		AT(sum + (d + (x)) * WIDE) = a;                                                  \
	}
	UNROLL
	for (int i = 0; i < nkeys; i++)
		weight[i] = AT_CONST(p + i * WIDE);
	LANES_FEATURES(Dv, LANES_VALUES)
#undef LANES_VALUES
	*ask = next;
}

/* Whole tiles of numbers as they are or of 16 bits, and one key.  Each has its registers to
 * itself. */
#define LANES_TILES(name, line, nkeys)                                                           \
	static __attribute__((noinline)) void NAME(name##_scores)(const REAL *k, int64_t step,   \
		const REAL *q, int64_t D, REAL *p, REAL *max, struct NAME(ask) * ask)            \
	{                                                                                        \
		NAME(lanes_score_tile)(line, nkeys, k, step, q, D, p, max, ask);                 \
	}                                                                                        \
	static __attribute__((noinline)) void NAME(name##_values)(const REAL *v, int64_t step,   \
		const REAL *p, int64_t Dv, REAL *sum, struct NAME(ask) * ask)                    \
	{                                                                                        \
		NAME(lanes_value_tile)(line, nkeys, v, step, p, Dv, sum, ask);                   \
	}
LANES_TILES(whole, 64 / NAME(LANES_KEYS) / (int)sizeof(REAL), NAME(LANES_KEYS))
LANES_TILES(half, 64 / NAME(LANES_KEYS) / 2, NAME(LANES_KEYS))
LANES_TILES(one, 64 / (int)sizeof(REAL), 1)
#undef LANES_TILES
#undef LANES_FEATURES

/* Rows of nkeys keys from key j on of key head c: where they are, or widened. */
static const REAL *NAME(lanes_rows)(const struct NAME(lanes) * lanes,
	const struct NAME(few_array) * array, int c, int64_t j, int64_t nkeys, int64_t dim,
	int64_t *step)
{
	const char *at = array->at + c * array->head + j * array->token;

	*step = array->dtype == DTYPE ? array->token / (int64_t)sizeof(REAL) : dim;
	if (array->dtype == DTYPE)
		return (const REAL *)(const void *)at;
	NAME(widen_rows)(array->dtype, at, array->token, nkeys, dim, lanes->tile, false);
	return lanes->tile;
}

/* Scores of keys [j, end), up to LANES_KEYS of them, of key head c; max as in lanes_scores(). */
static void NAME(lanes_score_rows)(const struct NAME(lanes) * lanes, int c, int64_t j,
	int64_t end, REAL *max, struct NAME(ask) * ask)
{
	const int64_t D = lanes->D;
	const REAL *q = lanes->q + c * D * WIDE;
	REAL *p = lanes->p + (c * CPA_KEY_BLOCK + j) * WIDE, *most = max ? max + c * WIDE : NULL;
	int64_t step;
	const REAL *k = NAME(lanes_rows)(lanes, &lanes->k, c, j, end - j, D, &step);

	if (end - j == NAME(LANES_KEYS)) {
		(lanes->k.dtype == DTYPE ? NAME(whole_scores) : NAME(half_scores))(
			k, step, q, D, p, most, ask);
		return;
	}
	for (; j < end; j++, k += step, p += WIDE)
		NAME(one_scores)(k, step, q, D, p, most, ask);
}

/* Scores of the block for key heads [first, end), a tile of each in turn.  max: [head][lane]
 * where all rows see all of it, or NULL. */
static void NAME(lanes_scores)(const struct NAME(lanes) * lanes, int first, int end, REAL *max)
{
	enum { KEYS = NAME(LANES_KEYS) };
	const int64_t nbytes = lanes->D * (int64_t)cpa_dtype_nbytes(lanes->k.dtype);

	for (int64_t j = 0; j < lanes->nkeys; j += KEYS) {
		int64_t stop = j + KEYS < lanes->nkeys ? j + KEYS : lanes->nkeys;
		struct NAME(ask)
			ask = NAME(ask_tile)(lanes, &lanes->k, &lanes->v, j, KEYS, first, nbytes);

		for (int c = first; c < end; c++)
			NAME(lanes_score_rows)(lanes, c, j, stop, max, &ask);
	}
}

/* Values of keys [j, end), up to LANES_KEYS of them, of key head c. */
static void NAME(lanes_value_rows)(
	const struct NAME(lanes) * lanes, int c, int64_t j, int64_t end, struct NAME(ask) * ask)
{
	const int64_t Dv = lanes->Dv;
	const REAL *p = lanes->p + (c * CPA_KEY_BLOCK + j) * WIDE;
	REAL *sum = lanes->sum + c * Dv * WIDE;
	int64_t step;
	const REAL *v = NAME(lanes_rows)(lanes, &lanes->v, c, j, end - j, Dv, &step);

	if (end - j == NAME(LANES_KEYS)) {
		(lanes->v.dtype == DTYPE ? NAME(whole_values) : NAME(half_values))(
			v, step, p, Dv, sum, ask);
		return;
	}
	for (; j < end; j++, v += step, p += WIDE)
		NAME(one_values)(v, step, p, Dv, sum, ask);
}

static void NAME(lanes_values)(const struct NAME(lanes) * lanes, int first, int end)
{
	enum { KEYS = NAME(LANES_KEYS) };
	const int64_t nbytes = lanes->Dv * (int64_t)cpa_dtype_nbytes(lanes->v.dtype);
	struct NAME(few_array) after = lanes->k;

	after.at += lanes->nkeys * after.token;
	for (int64_t j = 0; j < lanes->nkeys; j += NAME(LANES_TURN)) {
		int64_t stop = j + NAME(LANES_TURN) < lanes->nkeys ? j + NAME(LANES_TURN)
								   : lanes->nkeys;
		struct NAME(ask) ask = NAME(ask_tile)(
			lanes, &lanes->v, &after, j, NAME(LANES_TURN), first, nbytes);

		for (int c = first; c < end; c++)
			for (int64_t i = j; i < stop; i += KEYS)
				NAME(lanes_value_rows)
		(lanes, c, i, i + KEYS < stop ? i + KEYS : stop, &ask);
	}
}
