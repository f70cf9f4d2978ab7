/*
 * attend_step.h - one panel of query rows against one key block: the loops that take the time.
 * Part of attend_template.h.
 */

/* ---- tiles ---- */

/*
 * sum[i][x] += sum over d in [from, to) of a[i row + d step] b[d][x] over the lanes x of vectors
 * [first, end) of nvectors: the inner loop of both products.  rows, first, end and nvectors are
 * constants wherever this is inlined, so that the sums are registers.
 */
#define SUMS(rows, first, end, nvectors, a, row, step, from, to, b, sum)                         \
	NO_UNROLL                                                                                \
	for (int64_t d = from; d < (to); d++) {                                                  \
		VECTOR lanes[COLUMNS];                                                           \
		UNROLL                                                                           \
		for (int x = first; x < (end); x++)                                              \
			lanes[x] = AT_CONST((b) + (d * (nvectors) + x) * WIDE);                  \
		UNROLL                                                                           \
		for (int i = 0; i < (rows); i++) {                                               \
			VECTOR one = NAME(broadcast)((a) + i * (row) + d * (step));              \
			UNROLL                                                                   \
			for (int x = first; x < (end); x++)                                      \
				sum[i][x] = NAME(fma)(one, lanes[x], sum[i][x]);                 \
		}                                                                                \
	}

#define NO_SUMS(rows, first, end, sum)                                                           \
	UNROLL                                                                                   \
	for (int i = 0; i < (rows); i++)                                                         \
		UNROLL                                                                           \
	for (int x = first; x < (end); x++)                                                      \
		sum[i][x] = (VECTOR){0};

/* Keys [from, to) of a step that only vectors [first, end) of its panel see, as far as that is
 * made use of: at a diagonal, and at the edges of a window. */
struct NAME(run) {
	int64_t from, to;
	int first, end;
};
enum { NAME(MAX_RUNS) = 2 * COLUMNS + 1 };
/* Not in narrow panels, where it saves least: with few vectors, some compilers do not keep sums
 * in registers past the choice between tiles. */
#define CUTS(nvectors) (COLUMNS > 3 && (nvectors) == COLUMNS)

/* call(first, end), both constants, for the vectors of a run of nvectors: all of them, or some
 * less at one end. */
#define WITH_CUT(run, nvectors, call)                                                            \
	switch (!CUTS(nvectors) ? 0 : (run)->first ? (run)->first : (run)->end - (nvectors)) {   \
		CUT_CASE(1, nvectors, call)                                                      \
		CUT_CASE(2, nvectors, call)                                                      \
		CUT_CASE(3, nvectors, call)                                                      \
	default:                                                                                 \
		call(0, nvectors);                                                               \
		break;                                                                           \
	}
#define CUT_CASE(n, nvectors, call)                                                              \
	case n:                                                                                  \
		if (n < (nvectors))                                                              \
			call((n < (nvectors) ? n : 0), nvectors);                                \
		break;                                                                           \
	case -n:                                                                                 \
		if (n < (nvectors))                                                              \
			call(0, (n < (nvectors) ? (nvectors)-n : 1));                            \
		break;

/* Memory that is soon wanted, asked for a line at a time: n rows of numbers of `size` bytes,
 * `step` bytes apart, or NULL. */
struct NAME(ahead) {
	const char *at;
	int64_t step, size, n;
};
enum { NAME(LINE) = 64 / sizeof(REAL) };

/* Scores of `rows` keys, of vectors [first, end); where max is not NULL it grows with them. */
CPA_INLINE void NAME(score_tile)(const int rows, const int first, const int end,
	const int nvectors, const REAL *k, int64_t step, const REAL *q, int64_t D, REAL *p,
	REAL *max, struct NAME(ahead) ahead)
{
	VECTOR sum[ROWS][COLUMNS];

	NO_SUMS(rows, first, end, sum)
	for (int64_t line = 0; line < D; line += NAME(LINE)) {
		int64_t to = line + NAME(LINE) < D ? line + NAME(LINE) : D;

		if (ahead.at)
			UNROLL
		for (int i = 0; i < rows; i++)
			CPA_PREFETCH(ahead.at + i * ahead.step + line * ahead.size);
		SUMS(rows, first, end, nvectors, k, step, 1, line, to, q, sum)
	}
	UNROLL
	for (int i = 0; i < rows; i++)
		UNROLL
	for (int x = first; x < end; x++)
		AT(p + (i * nvectors + x) * WIDE) = sum[i][x];
	if (!max)
		return;
	UNROLL
	for (int x = first; x < end; x++) {
		VECTOR most = AT(max + x * WIDE);

		UNROLL
		for (int i = 0; i < rows; i++)
			most = NAME(max)(sum[i][x], most);
		AT(max + x * WIDE) = most;
	}
}

/* `rows` features of o, from the keys of runs; the older sum shrinks, or is not there yet. */
CPA_INLINE void NAME(value_tile)(const int rows, const int nvectors, const REAL *v, int64_t step,
	const REAL *p, const struct NAME(run) * runs, int nruns, REAL *o, const REAL *shrink,
	struct NAME(ahead) ahead)
{
	VECTOR sum[ROWS][COLUMNS];

	NO_SUMS(rows, 0, nvectors, sum)
#define VALUE_RUN(first, end)                                                                    \
	for (int64_t j = run->from; j < run->to; j += NAME(LINE)) {                              \
		int64_t to = j + NAME(LINE) < run->to ? j + NAME(LINE) : run->to;                \
                                                                                                 \
		if (ahead.at)                                                                    \
			for (int64_t i = j; i < to && i < ahead.n; i++)                          \
				CPA_PREFETCH(ahead.at + i * ahead.step);                         \
		SUMS(rows, first, end, nvectors, v, 1, step, j, to, p, sum)                      \
	}
	for (const struct NAME(run) *run = runs; run < runs + nruns; run++)
		if (CUTS(nvectors) && rows == ROWS) {
			WITH_CUT(run, nvectors, VALUE_RUN)
		} else {
			VALUE_RUN(0, nvectors) /* weights of what is not seen are 0 */
		}
#undef VALUE_RUN
	UNROLL
	for (int x = 0; x < nvectors; x++) {
		VECTOR factor = shrink ? AT_CONST(shrink + x * WIDE) : (VECTOR){0};

		UNROLL
		for (int i = 0; i < rows; i++) {
			REAL *at = o + (i * nvectors + x) * WIDE;

			if (shrink)
				sum[i][x] = NAME(fma)(factor, AT(at), sum[i][x]);
			AT(at) = sum[i][x];
		}
	}
}

/* ---- one panel against one key block ---- */

struct NAME(step) {
	const REAL *k, *v; /* rows k_step and v_step apart */
	int64_t k_step, v_step;
	const REAL *q; /* [D][lane] */
	REAL *m, *l, *o; /* [lane], [lane], [Dv][lane] */
	REAL *p, *shrink; /* [n][lane], [lane] */
	int64_t n, D, Dv; /* keys */
	int64_t clear, clear_end; /* whole tiles of keys that nothing hides from any row */
	struct NAME(
		run) runs[NAME(MAX_RUNS)]; /* of all keys; what is not a whole tile is not cut */
	int nruns;
	const REAL *first, *end; /* [lane] keys each row sees, in part */
	const REAL *bias; /* [n] or [n][lane]: what the mask adds, or NULL */
	bool bias_per_lane, started;
	struct NAME(ahead) next_k, next_v, next_q; /* rows to ask for meanwhile */
	enum cpa_dtype dtype; /* that weights are rounded to */
};

/* Applies rule and mask to keys [from, to). */
static void NAME(hide)(
	const struct NAME(step) * step, int nvectors, int64_t from, int64_t to, REAL *max)
{
	/* Both above 0, so that minus infinity stays what it is. */
	const REAL high = (REAL)(LOG2E / 4), low = (REAL)(LOG2E / 4 - high);

	for (int64_t j = from; j < to; j++)
		for (int x = 0; x < nvectors * WIDE; x += WIDE) {
			REAL *at = step->p + j * nvectors * WIDE + x;
			VECTOR s = AT(at), key = NAME(spread)((REAL)j);
			INTS seen = (INTS)(key >= AT_CONST(step->first + x)) &
				(INTS)(key < AT_CONST(step->end + x));

			if (step->bias) {
				VECTOR bias = step->bias_per_lane
					? AT_CONST(step->bias + j * nvectors * WIDE + x)
					: NAME(broadcast)(step->bias + j);

				s = NAME(fma)(bias, NAME(spread)(high),
					NAME(fma)(bias, NAME(spread)(low), s));
			}
			s = (VECTOR)(((INTS)s & seen) |
				((INTS)NAME(spread)(-(REAL)INFINITY) & ~seen));
			AT(at) = s;
			AT(max + x) = NAME(max)(s, AT(max + x));
		}
}

/* Scores to weights; updates maximum and sum.  far: 4 m may not be finite. */
CPA_INLINE void NAME(weigh)(const struct NAME(step) * step, const int nvectors, const bool far,
	const enum cpa_dtype dtype, const REAL *max)
{
	VECTOR m[COLUMNS], sum[COLUMNS];
	const VECTOR four = NAME(spread)(4);

	UNROLL
	for (int x = 0; x < nvectors; x++) {
		VECTOR old = AT(step->m + x * WIDE);

		m[x] = AT_CONST(max + x * WIDE);
		AT(step->m + x * WIDE) = m[x];
		AT(step->shrink + x * WIDE) = NAME(exp2)((old - m[x]) * four);
		sum[x] = (VECTOR){0};
		if (!far)
			m[x] = m[x] * -four;
	}
	NO_UNROLL
	for (int64_t j = 0; j < step->n; j++)
		UNROLL
	for (int x = 0; x < nvectors; x++) {
		REAL *at = step->p + (j * nvectors + x) * WIDE;
		VECTOR s = AT(at), p;

		if (far)
			s = (s - m[x]) * four;
		else
			s = NAME(fma)(s, four, m[x]);
		p = NAME(exp2)(s);
		sum[x] += p;
		if (dtype == CPA_DTYPE_BF16)
			p = NAME(round_bf16)(p);
		if (dtype == CPA_DTYPE_FP16)
			p = NAME(round_fp16)(p);
		AT(at) = p;
	}
	UNROLL
	for (int x = 0; x < nvectors; x++) {
		REAL *l = step->l + x * WIDE;

		AT(l) = NAME(fma)(AT(l), AT(step->shrink + x * WIDE), sum[x]);
	}
}

CPA_INLINE void NAME(weigh_any)(
	const struct NAME(step) * step, const int nvectors, const REAL *max)
{
	const REAL most = REAL_MAX / 8;
	bool far = false;

	for (int x = 0; x < nvectors * WIDE; x++)
		far |= !(max[x] < most && max[x] > -most);
	if (far)
		NAME(weigh)(step, nvectors, true, step->dtype, max);
	else if (step->dtype == CPA_DTYPE_BF16)
		NAME(weigh)(step, nvectors, false, CPA_DTYPE_BF16, max);
	else if (step->dtype == CPA_DTYPE_FP16)
		NAME(weigh)(step, nvectors, false, CPA_DTYPE_FP16, max);
	else
		NAME(weigh)(step, nvectors, false, DTYPE, max);
}

/* The rest of a division by ROWS, each with a tile of its own. */
#define REMAINDER(rows, call)                                                                    \
	switch (rows) {                                                                          \
		REMAINDER_CASE(1, call)                                                          \
		REMAINDER_CASE(2, call)                                                          \
		REMAINDER_CASE(3, call)                                                          \
		REMAINDER_CASE(4, call)                                                          \
		REMAINDER_CASE(5, call)                                                          \
		REMAINDER_CASE(6, call)                                                          \
		REMAINDER_CASE(7, call)                                                          \
	default:                                                                                 \
		break;                                                                           \
	}
#define REMAINDER_CASE(n, call)                                                                  \
	case n:                                                                                  \
		if (n < ROWS) {                                                                  \
			enum { COUNT = n < ROWS ? n : 1 };                                       \
			call;                                                                    \
		}                                                                                \
		break;

CPA_INLINE void NAME(scores)(const struct NAME(step) * step, const int nvectors, REAL *max)
{
	int64_t j = 0, lane = nvectors * WIDE;

#define SCORE_TILE(rows, first, end)                                                             \
	NAME(score_tile)                                                                         \
	(rows, first, end, nvectors, step->k + j * step->k_step, step->k_step, step->q, step->D, \
		step->p + j * lane,                                                              \
		j >= step->clear && j + (rows) <= step->clear_end ? max : NULL,                  \
		(struct NAME(ahead)){                                                            \
			j < step->next_v.n ? step->next_v.at + j * step->next_v.step : NULL,     \
			step->next_v.step, step->next_v.size, rows})
#define SCORE_RUN(first, end)                                                                    \
	for (; j + ROWS <= run->to; j += ROWS)                                                   \
	SCORE_TILE(ROWS, first, end)
	for (const struct NAME(run) *run = step->runs; run < step->runs + step->nruns; run++)
		WITH_CUT(run, nvectors, SCORE_RUN)
	REMAINDER(step->n - j, SCORE_TILE(COUNT, 0, nvectors))
#undef SCORE_RUN
#undef SCORE_TILE
}

/* What the tile of features from d on asks for: each line of the rows ahead once. */
CPA_INLINE struct NAME(ahead) NAME(wanted)(const struct NAME(step) * step, int64_t d)
{
	int64_t within = d % NAME(LINE);
	struct NAME(ahead) ahead = {NULL, 0, 0, 0};

	if (within < ROWS)
		ahead = step->next_k;
	else if (within < 2 * ROWS)
		ahead = step->next_q;
	if (ahead.at)
		ahead.at += d * ahead.size;
	return ahead;
}

CPA_INLINE void NAME(values)(const struct NAME(step) * step, const int nvectors)
{
	int64_t d = 0, lane = nvectors * WIDE;

#define VALUE_TILE(rows)                                                                         \
	NAME(value_tile)                                                                         \
	(rows, nvectors, step->v + d, step->v_step, step->p, step->runs, step->nruns,            \
		step->o + d * lane, step->started ? step->shrink : NULL, NAME(wanted)(step, d))
	for (; d + ROWS <= step->Dv; d += ROWS)
		VALUE_TILE(ROWS);
	REMAINDER(step->Dv - d, VALUE_TILE(COUNT))
#undef VALUE_TILE
}

CPA_INLINE void NAME(step)(const struct NAME(step) * step, const int nvectors)
{
	_Alignas(CPA_HOST_ALIGN) REAL max[PANEL];

	memcpy(max, step->m, (size_t)nvectors * WIDE * sizeof(REAL));
	NAME(scores)(step, nvectors, max);
	NAME(hide)(step, nvectors, 0, step->clear, max);
	NAME(hide)(step, nvectors, step->clear_end, step->n, max);
	NAME(weigh_any)(step, nvectors, max);
	NAME(values)(step, nvectors);
}

#define STEP(n)                                                                                  \
	static void NAME(step_##n)(const struct NAME(step) * step)                               \
	{                                                                                        \
		NAME(step)(step, n);                                                             \
	}
STEP(1)
STEP(2)
#if COLUMNS > 2
STEP(3)
#endif
#if COLUMNS > 3
STEP(4)
#endif
#undef STEP

static void (*const NAME(steps)[])(const struct NAME(step) *) = {
	NAME(step_1),
	NAME(step_2),
#if COLUMNS > 2
	NAME(step_3),
#endif
#if COLUMNS > 3
	NAME(step_4),
#endif
};
