/*
 * attend_few.h - products for units of few rows, where lanes would be empty: here lanes are
 * features.  Part of attend_template.h.
 *
 * Such units (decoding) are as fast as keys and values come from memory, if the rest keeps up
 * and the rows are asked for early enough.
 */

CPA_INLINE void NAME(ask_for)(const REAL *at, int64_t n)
{
	for (int64_t d = 0; d < n; d += NAME(LINE))
		CPA_PREFETCH(at + d);
}

/*
 * Scores of some keys for nrows rows: WIDE sums of vectors, which turned round add up to one
 * vector of scores.  A row alone is taken in halves, so that keys are not too many at a time.  n
 * keys are there; past them the last is taken again.
 */
CPA_INLINE void NAME(few_tile)(
	const struct NAME(step) * step, const int nrows, const REAL *q, int64_t j, REAL *p)
{
	const int halves = nrows == 1 ? 2 : 1, nkeys = WIDE / nrows / halves;
	const int64_t D = step->D / halves;
	_Alignas(CPA_HOST_ALIGN) REAL score[WIDE];
	VECTOR sum[WIDE], total = {0};
	const REAL *k[WIDE];

	for (int i = 0; i < nkeys; i++) {
		k[i] = step->k + (j + i < step->n ? j + i : step->n - 1) * step->k_step;
		if (step->in_place_k)
			NAME(ask_for)(k[i] + NAME(FEW_AHEAD) * step->k_step, step->D);
	}
	UNROLL
	for (int i = 0; i < WIDE; i++)
		sum[i] = (VECTOR){0};
	NO_UNROLL
	for (int64_t d = 0; d < D; d += WIDE)
		UNROLL
	for (int r = 0; r < nrows * halves; r++) {
		VECTOR row = AT_CONST(q + r * D + d);
		const int64_t half = halves == 2 ? r * D : 0;

		UNROLL
		for (int i = 0; i < nkeys; i++)
			sum[i * nrows * halves + r] = NAME(fma)(
				*(const NAME(loose) *)(k[i] + half + d), row,
				sum[i * nrows * halves + r]);
	}
	NAME(transpose)(sum);
	UNROLL
	for (int i = 0; i < WIDE; i++)
		total += sum[i];
	AT(score) = total;
	for (int i = 0; i < nkeys && j + i < step->n; i++)
		if (halves == 2)
			p[(j + i) * WIDE] = score[2 * i] + score[2 * i + 1];
		else
			memcpy(p + (j + i) * WIDE, score + i * nrows,
				(size_t)nrows * sizeof(REAL));
}

/* FEW_COLUMNS vectors of features, from d on, of nrows rows of o. */
CPA_INLINE void NAME(few_values)(const struct NAME(step) * step, const int nrows, const REAL *p,
	int64_t d, REAL *o, const REAL *shrink)
{
	VECTOR sum[4][NAME(FEW_COLUMNS)];

	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < NAME(FEW_COLUMNS); x++)
		sum[r][x] = (VECTOR){0};
	NO_UNROLL
	for (int64_t j = 0; j < step->n; j++) {
		const REAL *v = step->v + j * step->v_step + d;

		if (step->in_place_v)
			NAME(ask_for)(v + NAME(FEW_AHEAD) * step->v_step, NAME(FEW_CHUNK));
		UNROLL
		for (int r = 0; r < nrows; r++) {
			VECTOR one = NAME(broadcast)(p + j * WIDE + r);

			UNROLL
			for (int x = 0; x < NAME(FEW_COLUMNS); x++)
				sum[r][x] = NAME(fma)(
					one, *(const NAME(loose) *)(v + x * WIDE), sum[r][x]);
		}
	}
	UNROLL
	for (int r = 0; r < nrows; r++)
		UNROLL
	for (int x = 0; x < NAME(FEW_COLUMNS); x++) {
		REAL *at = o + r * step->Dv + d + x * WIDE;

		if (step->started)
			sum[r][x] = NAME(fma)(NAME(broadcast)(shrink + r), AT(at), sum[r][x]);
		AT(at) = sum[r][x];
	}
}

CPA_INLINE void NAME(few_rows)(const struct NAME(step) * step, const int nrows)
{
	_Alignas(CPA_HOST_ALIGN) REAL max[WIDE];

	for (int r = 0; r < step->nfew; r += nrows)
		for (int64_t j = 0; j < step->n; j += nrows == 1 ? WIDE / 2 : WIDE / nrows)
			NAME(few_tile)(step, nrows, step->few_q + r * step->D, j, step->p + r);
	memcpy(max, step->m, sizeof max);
	NAME(hide)(step, 1, 0, step->n, max);
	NAME(weigh_any)(step, 1, max);
	for (int r = 0; r < step->nfew; r += nrows)
		for (int64_t d = 0; d < step->Dv; d += NAME(FEW_CHUNK))
			NAME(few_values)
	(step, nrows, step->p + r, d, step->few_o + r * step->Dv, step->shrink + r);
}

/* Like NAME(step)(), but o is [row][Dv] and q [row][D]; rows by fours, or one. */
static void NAME(step_few)(const struct NAME(step) * step)
{
	if (step->nfew == 1)
		NAME(few_rows)(step, 1);
	else
		NAME(few_rows)(step, WIDE < 4 ? 2 : 4);
}

/* How many rows are computed for n. */
static int NAME(few_count)(int n)
{
	const int group = WIDE < 4 ? 2 : 4;

	return n == 1 ? 1 : (n + group - 1) / group * group;
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

/* o from [row][Dv] to [Dv][lane]. */
static void NAME(end_few)(
	const struct NAME(space) * space, const struct cpa_problem *problem, REAL *o)
{
	memset(o, 0, (size_t)(problem->Dv * WIDE) * sizeof(REAL));
	for (int r = 0; r < NAME(FEW); r++)
		for (int64_t d = 0; d < problem->Dv; d++)
			o[d * WIDE + r] = space->few_o[r * problem->Dv + d];
}
