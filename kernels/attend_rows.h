/*
 * attend_rows.h - rows of q, k and v in, rows of o out: widened, scaled, turned round, rounded.
 * Part of attend_template.h.
 */

/* WIDE numbers of a row from number d on.  dtype is a constant wherever this is inlined, and
 * DTYPE or, with HALVES, one of 16 bits. */
CPA_INLINE VECTOR NAME(take)(const enum cpa_dtype dtype, const void *row, int64_t d)
{
#if HALVES
	if (dtype == CPA_DTYPE_BF16)
		return NAME(load_bf16)((const uint16_t *)row + d);
	if (dtype == CPA_DTYPE_FP16)
		return NAME(load_fp16)((const uint16_t *)row + d);
#endif
	(void)dtype;
	return *(const NAME(loose) *)((const REAL *)row + d);
}

CPA_INLINE void NAME(give)(const enum cpa_dtype dtype, void *row, int64_t d, VECTOR x)
{
#if HALVES
	if (dtype == CPA_DTYPE_BF16) {
		NAME(store_bf16)((uint16_t *)row + d, x);
		return;
	}
	if (dtype == CPA_DTYPE_FP16) {
		NAME(store_fp16)((uint16_t *)row + d, x);
		return;
	}
#endif
	(void)dtype;
	*(NAME(loose) *)((REAL *)row + d) = x;
}

/* Whether take() and give() do for rows of `dim` numbers. */
CPA_INLINE bool NAME(takes)(enum cpa_dtype dtype, int64_t dim)
{
	bool half = dtype == CPA_DTYPE_BF16 || dtype == CPA_DTYPE_FP16;

	return dtype == DTYPE || (HALVES && half && dim >= WIDE);
}

/* Calls with what takes() has let through, a constant. */
#define WITH_DTYPE(dtype, call)                                                                  \
	switch (HALVES ? (dtype) : DTYPE) {                                                      \
	case CPA_DTYPE_BF16:                                                                     \
		call(CPA_DTYPE_BF16);                                                            \
		break;                                                                           \
	case CPA_DTYPE_FP16:                                                                     \
		call(CPA_DTYPE_FP16);                                                            \
		break;                                                                           \
	default:                                                                                 \
		call(DTYPE);                                                                     \
	}

/* Where vector `at` of `dim` numbers begins; the last one may overlap the one before. */
CPA_INLINE int64_t NAME(within)(int64_t at, int64_t dim)
{
	return at + WIDE <= dim ? at : dim - WIDE;
}

/* n rows, `step` bytes apart, to rows `dim` apart; asks: the next ones are asked for meanwhile. */
CPA_INLINE void NAME(take_rows)(const enum cpa_dtype dtype, const char *row, int64_t step,
	int64_t n, int64_t dim, REAL *to, bool asks)
{
	int64_t nbytes = dim * (int64_t)cpa_dtype_nbytes(dtype);

	for (int64_t i = 0; i < n; i++, row += step, to += dim) {
		for (int64_t at = 0; asks && at < nbytes; at += 64)
			CPA_PREFETCH_NEAR(row + CPA_COPY_AHEAD * step + at);
		for (int64_t at = 0; at < dim; at += WIDE) {
			int64_t d = NAME(within)(at, dim);

			*(NAME(loose) *)(to + d) = NAME(take)(dtype, row, d);
		}
	}
}

/* The same of any dtype and length. */
static void NAME(widen_rows)(enum cpa_dtype dtype, const char *from, int64_t step, int64_t n,
	int64_t dim, REAL *to, bool asks)
{
	if (dim < WIDE || !NAME(takes)(dtype, dim)) {
		for (int64_t i = 0; i < n; i++)
			cpa_run_convert(DTYPE, to + i * dim, dtype, from + i * step, dim);
		return;
	}
#define TAKE_ROWS(type) NAME(take_rows)(type, from, step, n, dim, to, asks)
	WITH_DTYPE(dtype, TAKE_ROWS)
#undef TAKE_ROWS
}

/* n rows of an array, from key j of it on, to rows `dim` apart. */
static void NAME(copy_rows)(const struct cpa_attend_unit *unit, const struct cpa_array *array,
	int64_t j, int64_t n, int64_t dim, REAL *to)
{
	NAME(widen_rows)(array->dtype,
		cpa_element(array, cpa_array_index(array, j, unit->b, unit->kv)),
		array->token * (int64_t)cpa_dtype_nbytes(array->dtype), n, dim, to, true);
}

/* q is scaled before the product, so that scores never leave the range by themselves; by two
 * parts of the factor, so that this is one rounding. */
CPA_INLINE void NAME(scale_rows)(const enum cpa_dtype dtype, const void *const *row, int64_t D,
	REAL high, REAL low, REAL *to, int64_t lanes)
{
	for (int64_t at = 0; at < D && D >= WIDE; at += WIDE) {
		int64_t d = NAME(within)(at, D);
		VECTOR tile[WIDE];

		UNROLL
		for (int i = 0; i < WIDE; i++) {
			VECTOR x = NAME(take)(dtype, row[i], d);

			tile[i] = NAME(fma)(x, NAME(spread)(high), x * NAME(spread)(low));
		}
		NAME(transpose)(tile);
		UNROLL
		for (int i = 0; i < WIDE; i++)
			AT(to + (d + i) * lanes) = tile[i];
	}
	for (int64_t d = 0; d < D && D < WIDE; d++)
		for (int i = 0; i < WIDE; i++) {
			REAL x = ((const REAL *)row[i])[d];

			to[d * lanes + i] = x * high + x * low;
		}
}

/* Up to WIDE of the n rows of q from row `first` of the unit on, to to[D][lanes]; rows, room for
 * [WIDE][row_step].  Lanes past the last row repeat it, so they need no care anywhere. */
static void NAME(load_rows)(const struct cpa_attend_unit *unit, int first, int n, REAL *rows,
	int64_t row_step, REAL *to, int64_t lanes)
{
	const struct cpa_attend *attend = unit->call->attend;
	const struct cpa_array *q = &attend->q;
	const long double factor = attend->problem->scale * (LOG2E / 4);
	const REAL high = (REAL)factor, low = (REAL)(factor - high);
	int64_t D = attend->problem->D;
	enum cpa_dtype dtype = NAME(takes)(q->dtype, D) ? q->dtype : DTYPE;
	const void *row[WIDE];

	for (int i = 0; i < WIDE; i++) {
		struct cpa_unit_row of = cpa_unit_row(unit, first + (i < n ? i : n - 1));

		row[i] = cpa_element(q, cpa_array_index(q, of.t, unit->b, of.h));
		if (dtype == q->dtype)
			continue;
		cpa_run_convert(DTYPE, rows + i * row_step, q->dtype, row[i], D);
		row[i] = rows + i * row_step;
	}
#define SCALE_ROWS(dtype) NAME(scale_rows)(dtype, row, D, high, low, to, lanes)
	WITH_DTYPE(dtype, SCALE_ROWS)
#undef SCALE_ROWS
}

static void NAME(load_queries)(const struct cpa_attend_unit *unit, struct NAME(space) * space,
	const struct NAME(panel) * panel)
{
	int64_t lanes = panel->nvectors * WIDE, D = unit->call->attend->problem->D;

	for (int x = panel->first; x < panel->first + lanes; x += WIDE)
		NAME(load_rows)
	(unit, x, unit->n - x, space->row, space->row_step,
		space->q + panel->first * D + x - panel->first, lanes);
}

/* o[lane] of n rows, times factor[lane], to `row`. */
CPA_INLINE void NAME(gather_rows)(const enum cpa_dtype dtype, const REAL *o, int64_t lanes,
	VECTOR factor, int64_t Dv, int n, void *const *row, bool streams)
{
	for (int64_t at = 0; at < Dv && Dv >= WIDE; at += WIDE) {
		int64_t d = NAME(within)(at, Dv);
		VECTOR tile[WIDE];

		UNROLL
		for (int i = 0; i < WIDE; i++)
			tile[i] = AT_CONST(o + (d + i) * lanes) * factor;
		NAME(transpose)(tile);
		if (n == WIDE && streams && dtype == DTYPE) {
			UNROLL
			for (int i = 0; i < WIDE; i++)
				NAME(stream)((REAL *)row[i] + d, tile[i]);
		} else if (n == WIDE) {
			UNROLL
			for (int i = 0; i < WIDE; i++)
				NAME(give)(dtype, row[i], d, tile[i]);
		} else {
			_Alignas(CPA_HOST_ALIGN) REAL spill[WIDE * WIDE];

			memcpy(spill, tile, sizeof spill);
			for (int i = 0; i < n; i++)
				NAME(give)(dtype, row[i], d, AT_CONST(spill + i * WIDE));
		}
	}
	for (int64_t d = 0; d < Dv && Dv < WIDE; d++)
		for (int i = 0; i < n; i++)
			((REAL *)row[i])[d] = o[d * lanes + i] * ((const REAL *)&factor)[i];
}

/*
 * lse of WIDE rows and what their o is multiplied by.  A row that saw nothing has l = 0 and o =
 * 0.  A sum that is NaN (from memory that was never written) stays NaN: as -inf it would be
 * merged away unseen.  The largest number, as a bias, must not come back as an infinity.
 */
CPA_INLINE VECTOR NAME(conclude)(const REAL *m, const REAL *l, REAL *lse)
{
	const REAL high = (REAL)(4 / LOG2E), low = (REAL)(4 / LOG2E - high);
	VECTOR sum = AT_CONST(l), max = AT_CONST(m), one = NAME(spread)(1);
	VECTOR whole = NAME(fma)(
		max, NAME(spread)(high), NAME(fma)(max, NAME(spread)(low), NAME(log)(sum)));
	INTS nothing = (INTS)(sum == NAME(spread)(0));

	whole = NAME(max)(whole, NAME(spread)(-REAL_MAX)) + (sum - sum);
	whole = -(NAME(max)(-whole, NAME(spread)(-REAL_MAX)) + (sum - sum));
	AT(lse) = (VECTOR)(((INTS)whole & ~nothing) |
		((INTS)NAME(spread)(-(REAL)INFINITY) & nothing));
	return (VECTOR)((INTS)(one / sum) & ~nothing);
}

/* Up to WIDE of the n rows from row `first` of the unit on, from their sums: from[Dv][lanes], l and
 * m; rows, room for [WIDE][row_step]. */
static void NAME(store_rows)(const struct cpa_attend_unit *unit, int first, int n, REAL *rows,
	int64_t row_step, const REAL *from, int64_t lanes, const REAL *m, const REAL *l)
{
	const struct cpa_array *o = &unit->call->attend->o, *lse = &unit->call->attend->lse;
	int64_t Dv = unit->call->attend->problem->Dv;
	enum cpa_dtype dtype = NAME(takes)(o->dtype, Dv) ? o->dtype : DTYPE;
	_Alignas(CPA_HOST_ALIGN) REAL whole[WIDE];
	VECTOR factor = NAME(conclude)(m, l, whole);
	void *row[WIDE], *to[WIDE];

	n = n < WIDE ? n : WIDE;
	for (int i = 0; i < n; i++) {
		struct cpa_unit_row of = cpa_unit_row(unit, first + i);
		int64_t index = cpa_array_index(lse, of.t, unit->b, of.h);

		to[i] = cpa_element(o, cpa_array_index(o, of.t, unit->b, of.h));
		row[i] = dtype == o->dtype ? to[i] : rows + i * row_step;
		if (lse->dtype == DTYPE)
			((REAL *)lse->data)[index] = whole[i];
		else
			cpa_store(lse->dtype, lse->data, index, whole[i]);
	}
#define GATHER_ROWS(dtype)                                                                       \
	NAME(gather_rows)(dtype, from, lanes, factor, Dv, n, row, unit->call->streams_o)
	WITH_DTYPE(dtype, GATHER_ROWS)
#undef GATHER_ROWS
	for (int i = 0; i < n && dtype != o->dtype; i++)
		cpa_run_convert(o->dtype, to[i], DTYPE, row[i], Dv);
}

static void NAME(store_panel)(const struct cpa_attend_unit *unit, struct NAME(space) * space,
	const struct NAME(state) * state, const struct NAME(panel) * panel)
{
	int64_t Dv = unit->call->attend->problem->Dv, lanes = panel->nvectors * WIDE;

	for (int x = panel->first; x < panel->first + lanes && x < unit->n; x += WIDE)
		NAME(store_rows)
	(unit, x, unit->n - x, space->row, space->row_step,
		state->o + panel->first * Dv + x - panel->first, lanes, state->m + x, state->l + x);
	if (unit->call->streams_o)
		NAME(stream_end)();
}
