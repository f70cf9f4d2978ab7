/*
 * attend_lanes_sums.h - the products of keys with queries and of values with weights, the loops
 * that take the time.  Part of attend_lanes.h.
 *
 * A load brings PART numbers of a key or a value to all parts of a vector, each of which belongs
 * to a row of its own: PART multiply-adds for a load, while numbers broadcast one by one take a
 * load each, and as many loads as multiply-adds are more than processors do.  Lane l PART + f of
 * the vectors g < PART holds row l PART + g and feature f; turn_parts() swaps f and g.
 */

/* Keys of a turn, rows of nbytes each. */
static int64_t NAME(lanes_turn)(const struct NAME(few_array) * array, int64_t nbytes)
{
	const int64_t n = NAME(LANES_TURN_BYTES) / (nbytes * array->together) /
		NAME(LANES_TURN_LEAST) * NAME(LANES_TURN_LEAST);

	return n < NAME(LANES_TURN_LEAST) ? NAME(LANES_TURN_LEAST)
		: n < NAME(LANES_TURN)	  ? n
					  : NAME(LANES_TURN);
}

/* What is read after the `turn` keys from key j on, of key heads from `first` on, as far as they
 * lie together: their next turn, or the next key heads, or what comes after. */
static struct NAME(ask) NAME(ask_turn)(const struct NAME(lanes) * lanes,
	const struct NAME(few_array) * array, const struct NAME(few_array) * after, int64_t j,
	int64_t turn, int first, int64_t nbytes)
{
	const int64_t next = j + turn < lanes->nkeys ? j + turn : 0;
	const int c = next				  ? first
		: first + array->together < lanes->nheads ? first + array->together
							  : 0;
	const struct NAME(few_array) *of = next || c ? array : after;
	int64_t run = (array->together - 1) * of->head + nbytes, gap = of->token - run;

	if (gap <= 0) { /* one run, which spares processors some guesses */
		run = turn * of->token;
		gap = 0;
	}
	return (struct NAME(ask)){.at = of->at + next * of->token + c * of->head,
		.left = run,
		.run = run,
		.gap = gap};
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

/* Part of row i from feature d on. */
CPA_INLINE VECTOR NAME(row_part)(const struct NAME(rows) * rows, const int i, const int d)
{
	const char *at = (i % 2 ? rows->odd : rows->even) + d * (int)sizeof(REAL);

	return NAME(part)((const REAL *)(const void *)(i < 2 ? at
			: i < 4				     ? at + rows->step * 2
			: i < 6				     ? at + rows->step * 4
							     : at + rows->thrice * 2));
}

CPA_INLINE void NAME(rows_move)(struct NAME(rows) * rows, int n)
{
	rows->even += n * (int)sizeof(REAL);
	rows->odd += n * (int)sizeof(REAL);
	__asm__("" : "+r"(rows->even), "+r"(rows->odd), "+r"(rows->step), "+r"(rows->thrice));
}

/* ---- scores ---- */

/* Scores of nkeys keys, rows `step` apart; max, [lane], grows with them if it is not NULL.  D is
 * a multiple of PART.  nasks lines are asked for with each line of the keys. */
CPA_INLINE void NAME(lanes_score_tile)(const int nasks, const int nkeys, const REAL *k,
	int64_t step, const REAL *q, int64_t D, REAL *p, REAL *max, struct NAME(ask) * ask)
{
	struct NAME(rows) rows = NAME(rows_of)(k, step);
	struct NAME(ask) next = *ask;
	VECTOR sum[NAME(LANES_KEYS)][PART];
	int64_t d = 0;

#define LANES_SCORES(x)                                                                          \
	{                                                                                        \
		VECTOR row[PART];                                                                \
                                                                                                 \
		UNROLL                                                                           \
		for (int g = 0; g < PART; g++)                                                   \
			row[g] = AT_CONST(q + (d + (x) + g) * WIDE);                             \
		UNROLL                                                                           \
		for (int i = 0; i < nkeys; i++) {                                                \
			VECTOR key = NAME(row_part)(&rows, i, x);                                \
                                                                                                 \
			UNROLL                                                                   \
			for (int g = 0; g < PART; g++)                                           \
				sum[i][g] = NAME(fma)(key, row[g], sum[i][g]);                   \
		}                                                                                \
	}
	UNROLL
	for (int i = 0; i < nkeys; i++)
		UNROLL
	for (int g = 0; g < PART; g++)
		sum[i][g] = (VECTOR){0};
	NO_UNROLL
	for (; d + NAME(LINE) <= D; d += NAME(LINE)) {
		UNROLL
		for (int i = 0; i < nasks; i++)
			NAME(ask)(&next);
		UNROLL
		for (int x = 0; x < NAME(LINE); x += PART)
			LANES_SCORES(x)
		NAME(rows_move)(&rows, NAME(LINE));
	}
	NO_UNROLL
	for (; d < D; d += PART) {
		LANES_SCORES(0)
		NAME(rows_move)(&rows, PART);
	}
#undef LANES_SCORES
	*ask = next;
	UNROLL
	for (int i = 0; i < nkeys; i++) {
		NAME(turn_parts)(sum[i]);
		UNROLL
		for (int g = 1; g < PART; g++)
			sum[i][0] += sum[i][g];
		AT(p + i * WIDE) = sum[i][0];
	}
	if (max) {
		VECTOR most = AT(max);

		UNROLL
		for (int i = 0; i < nkeys; i++)
			most = NAME(max)(sum[i][0], most);
		AT(max) = most;
	}
}

/* As many keys of nkeys as fill tiles: of numbers as they are or of 16 bits, or one by one.  Each
 * has its registers to itself.  Returns how many are left. */
#define LANES_TILES(name, nasks, count)                                                          \
	static __attribute__((noinline)) int64_t NAME(name##_scores)(const REAL *k,              \
		int64_t step, int64_t nkeys, const REAL *q, int64_t D, REAL *p, REAL *max,       \
		struct NAME(ask) * ask)                                                          \
	{                                                                                        \
		NO_UNROLL                                                                        \
		for (; nkeys >= (count); nkeys -= (count)) {                                     \
			NAME(lanes_score_tile)(nasks, count, k, step, q, D, p, max, ask);        \
			k += (count)*step;                                                       \
			p += (count)*WIDE;                                                       \
		}                                                                                \
		return nkeys;                                                                    \
	}
LANES_TILES(whole, NAME(LANES_KEYS), NAME(LANES_KEYS))
LANES_TILES(half, NAME(LANES_KEYS) / 2, NAME(LANES_KEYS))
LANES_TILES(one, 1, 1)
#undef LANES_TILES

/* Rows of nkeys keys from key j on of key head c, dim numbers and then zeros up to whole parts:
 * where they are, or in the tile. */
static const REAL *NAME(lanes_rows)(const struct NAME(lanes) * lanes,
	const struct NAME(few_array) * array, int c, int64_t j, int64_t nkeys, int64_t dim,
	int64_t *step)
{
	const char *at = array->at + c * array->head + j * array->token;
	const int64_t whole = NAME(lanes_round)(dim);

	*step = whole;
	if (whole == dim && array->dtype != DTYPE) {
		NAME(widen_rows)(array->dtype, at, array->token, nkeys, dim, lanes->tile, false);
	} else if (whole == dim) {
		*step = array->token / (int64_t)sizeof(REAL);
		return (const REAL *)(const void *)at;
	}
	for (int64_t i = 0; whole > dim && i < nkeys; i++, at += array->token) {
		REAL *row = lanes->tile + i * whole;

		NAME(widen_rows)(array->dtype, at, array->token, 1, dim, row, false);
		memset(row + dim, 0, (size_t)(whole - dim) * sizeof(REAL));
	}
	return lanes->tile;
}

/* Scores of keys [j, end) of key head c; max as in lanes_scores(). */
static void NAME(lanes_score_turn)(const struct NAME(lanes) * lanes, int c, int64_t j,
	int64_t end, REAL *max, struct NAME(ask) * ask)
{
	const int64_t D = NAME(lanes_round)(lanes->D), nkeys = end - j;
	const REAL *q = lanes->q + c * D * WIDE;
	REAL *p = lanes->p + (c * CPA_KEY_BLOCK + j) * WIDE, *most = max ? max + c * WIDE : NULL;
	int64_t step, left;
	const REAL *k = NAME(lanes_rows)(lanes, &lanes->k, c, j, nkeys, lanes->D, &step);

	left = (lanes->k.dtype == DTYPE ? NAME(whole_scores) : NAME(half_scores))(
		k, step, nkeys, q, D, p, most, ask);
	k += (nkeys - left) * step;
	p += (nkeys - left) * WIDE;
	NAME(one_scores)(k, step, left, q, D, p, most, ask);
}

/* Scores of the block for key heads [first, end), a turn of each after another.  max:
 * [head][lane] where all rows see all of it, or NULL. */
static void NAME(lanes_scores)(const struct NAME(lanes) * lanes, int first, int end, REAL *max)
{
	const int64_t nbytes = lanes->D * (int64_t)cpa_dtype_nbytes(lanes->k.dtype),
		      turn = NAME(lanes_turn)(&lanes->k, nbytes);

	for (int64_t j = 0; j < lanes->nkeys; j += turn) {
		int64_t stop = j + turn < lanes->nkeys ? j + turn : lanes->nkeys;
		struct NAME(ask)
			ask = NAME(ask_turn)(lanes, &lanes->k, &lanes->v, j, turn, first, nbytes);

		for (int c = first; c < end; c++)
			NAME(lanes_score_turn)(lanes, c, j, stop, max, &ask);
	}
}

/* ---- values ---- */

/* Values of some keys to be added up, of one key head. */
struct NAME(turn) {
	const REAL *v; /* rows `step` apart */
	int64_t step, nkeys;
	const REAL *p; /* [key][lane] */
	REAL *sum; /* [part][PART][WIDE], of the keys before */
	bool first; /* there were none */
	bool last; /* goes to o, which has `left` features more and shrinks */
	REAL *o; /* [feature][lane] */
	const REAL *shrink; /* [lane] */
	int64_t left;
	int size; /* bytes of a number where it lies */
	struct NAME(ask) * ask;
};

/* nparts of the features, all keys. */
CPA_INLINE void NAME(lanes_value_tile)(const int nparts, const struct NAME(turn) * turn)
{
	const int nbytes = nparts * PART * (int)sizeof(REAL),
		  nasks = nbytes < 64 ? 1 : nbytes / 64;
	const int64_t step = turn->step, nkeys = turn->nkeys,
		      rare = nparts * PART * turn->size < 64
		? 64 / (nparts * PART * turn->size) - 1
		: 0;
	const REAL *v = turn->v, *p = turn->p;
	struct NAME(ask) next = *turn->ask;
	VECTOR sum[NAME(LANES_PARTS)][PART];

	UNROLL
	for (int e = 0; e < nparts; e++)
		UNROLL
	for (int g = 0; g < PART; g++)
		sum[e][g] = turn->first ? (VECTOR){0}
					: AT_CONST(turn->sum + (e * PART + g) * WIDE);
	NO_UNROLL
	for (int64_t j = 0; j < nkeys; j++, v += step, p += WIDE) {
		VECTOR weight[PART];

		if (!(j & rare))
			UNROLL
		for (int i = 0; i < nasks; i++)
			NAME(ask)(&next);
		UNROLL
		for (int g = 0; g < PART; g++)
			weight[g] = NAME(one_of_part)(AT_CONST(p), g);
		UNROLL
		for (int e = 0; e < nparts; e++) {
			VECTOR value = NAME(part)(v + e * PART);

			UNROLL
			for (int g = 0; g < PART; g++)
				sum[e][g] = NAME(fma)(value, weight[g], sum[e][g]);
		}
	}
	*turn->ask = next;
	if (!turn->last) {
		UNROLL
		for (int e = 0; e < nparts; e++)
			UNROLL
		for (int g = 0; g < PART; g++)
			AT(turn->sum + (e * PART + g) * WIDE) = sum[e][g];
		return;
	}
	UNROLL
	for (int e = 0; e < nparts; e++) {
		REAL *o = turn->o + e * PART * WIDE;

		NAME(turn_parts)(sum[e]);
		UNROLL
		for (int g = 0; g < PART; g++)
			if (nparts > 1 || g < turn->left)
				AT(o + g * WIDE) = NAME(fma)(
					AT_CONST(turn->shrink), AT(o + g * WIDE), sum[e][g]);
	}
}

/* As many features as fill tiles; the turn is left what comes after.  Only single parts may be
 * more than there is. */
#define LANES_TILES(name, count)                                                                 \
	static __attribute__((noinline)) void NAME(name##_values)(struct NAME(turn) * turn)      \
	{                                                                                        \
		NO_UNROLL                                                                        \
		for (; turn->left >= ((count) > 1 ? (count)*PART : 1);                           \
			turn->left -= (count)*PART) {                                            \
			NAME(lanes_value_tile)(count, turn);                                     \
			turn->v += (count)*PART;                                                 \
			turn->sum += (count)*PART * WIDE;                                        \
			turn->o += (count)*PART * WIDE;                                          \
		}                                                                                \
	}
LANES_TILES(whole, NAME(LANES_PARTS))
LANES_TILES(half, NAME(LANES_PARTS) / 2)
LANES_TILES(one, 1)
#undef LANES_TILES

/* Values of the block for key heads [first, end), added to o. */
static void NAME(lanes_values)(const struct NAME(lanes) * lanes, int first, int end)
{
	const int64_t size = (int64_t)cpa_dtype_nbytes(lanes->v.dtype), Dv = lanes->Dv,
		      most = NAME(lanes_turn)(&lanes->v, Dv * size);
	struct NAME(few_array) after = lanes->k;

	/* The next block is likely to follow this one. */
	after.at += lanes->nkeys * after.token;
	for (int64_t j = 0; j < lanes->nkeys; j += most) {
		struct NAME(ask)
			ask = NAME(ask_turn)(lanes, &lanes->v, &after, j, most, first, Dv * size);
		struct NAME(turn)
			turn = {.nkeys = j + most < lanes->nkeys ? most : lanes->nkeys - j,
				.first = j == 0,
				.last = j + most >= lanes->nkeys,
				.size = (int)size,
				.ask = &ask};

		for (int c = first; c < end; c++) {
			turn.v = NAME(lanes_rows)(
				lanes, &lanes->v, c, j, turn.nkeys, Dv, &turn.step);
			turn.left = Dv;
			turn.p = lanes->p + (c * CPA_KEY_BLOCK + j) * WIDE;
			turn.sum = lanes->sum + c * NAME(lanes_round)(Dv) * WIDE;
			turn.o = lanes->state.o + c * Dv * WIDE;
			turn.shrink = lanes->shrink + c * WIDE;
			NAME(whole_values)(&turn);
			NAME(half_values)(&turn);
			NAME(one_values)(&turn);
		}
	}
}
