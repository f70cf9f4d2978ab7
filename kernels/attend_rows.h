/*
 * attend_rows.h - rows of q, k and v in, rows of o out: widened, scaled, turned round, rounded.
 * Part of attend_template.h.
 */

/* n numbers as REAL: in place, or widened into `to`. */
CPA_INLINE const REAL *NAME(widen)(enum cpa_dtype dtype, const void *from, int64_t n, REAL *to)
{
	const uint16_t *half = from;
	int64_t i = 0;

	if (dtype == DTYPE)
		return from;
#if HALVES
	if (dtype == CPA_DTYPE_BF16)
		for (; i + WIDE <= n; i += WIDE)
			*(NAME(loose) *)(to + i) = NAME(load_bf16)(half + i);
	else if (dtype == CPA_DTYPE_FP16)
		for (; i + WIDE <= n; i += WIDE)
			*(NAME(loose) *)(to + i) = NAME(load_fp16)(half + i);
#else
	(void)half;
#endif
	if (i < n)
		cpa_run_convert(DTYPE, to + i, dtype,
			(const char *)from + i * (int64_t)cpa_dtype_nbytes(dtype), n - i);
	return to;
}

/* n numbers to any type, with one rounding. */
CPA_INLINE void NAME(narrow)(enum cpa_dtype dtype, void *to, int64_t n, const REAL *from)
{
	uint16_t *half = to;
	int64_t i = 0;

#if HALVES
	if (dtype == CPA_DTYPE_BF16)
		for (; i + WIDE <= n; i += WIDE)
			NAME(store_bf16)(half + i, AT_CONST(from + i));
	else if (dtype == CPA_DTYPE_FP16)
		for (; i + WIDE <= n; i += WIDE)
			NAME(store_fp16)(half + i, AT_CONST(from + i));
#else
	(void)half;
#endif
	if (i < n)
		cpa_run_convert(dtype, (char *)to + i * (int64_t)cpa_dtype_nbytes(dtype), DTYPE,
			from + i, n - i);
}

/* n rows of an array, from key j of it on, to rows `dim` apart. */
static void NAME(copy_rows)(const struct cpa_attend_unit *unit, const struct cpa_array *array,
	int64_t j, int64_t n, int64_t dim, REAL *to)
{
	for (int64_t i = 0; i < n; i++, to += dim) {
		const void *from = cpa_element(
			array, cpa_array_index(array, j + i, unit->b, unit->kv));
		int64_t d = 0, nbytes = dim * (int64_t)cpa_dtype_nbytes(array->dtype);
		const char *later = cpa_element(
			array, cpa_array_index(array, j + i + CPA_COPY_AHEAD, unit->b, unit->kv));

		for (int64_t at = 0; at < nbytes; at += 64)
			CPA_PREFETCH_NEAR(later + at);
		if (NAME(widen)(array->dtype, from, dim, to) == to)
			continue;
		for (; d + WIDE <= dim; d += WIDE)
			*(NAME(loose) *)(to + d) = *(const NAME(loose) *)((const REAL *)from + d);
		for (; d < dim; d++)
			to[d] = ((const REAL *)from)[d];
	}
}

/* q is scaled before the product, so that scores never leave the range by themselves; by two
 * parts of the factor, so that this is one rounding. */
CPA_INLINE void NAME(scale_rows)(
	const REAL *const *row, int64_t D, REAL high, REAL low, REAL *to, int64_t lanes)
{
	int64_t d = 0;

	for (; d + WIDE <= D; d += WIDE) {
		VECTOR tile[WIDE];

		UNROLL
		for (int i = 0; i < WIDE; i++) {
			VECTOR x = *(const NAME(loose) *)(row[i] + d);

			tile[i] = NAME(fma)(x, NAME(spread)(high), x * NAME(spread)(low));
		}
		NAME(transpose)(tile);
		UNROLL
		for (int i = 0; i < WIDE; i++)
			AT(to + (d + i) * lanes) = tile[i];
	}
	for (; d < D; d++)
		for (int i = 0; i < WIDE; i++)
			to[d * lanes + i] = row[i][d] * high + row[i][d] * low;
}

/* Lanes past the last row repeat it, so they need no care anywhere. */
static void NAME(load_queries)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) * space, const struct NAME(panel) * panel)
{
	const struct cpa_attend *attend = unit->call->attend;
	const long double factor = attend->problem->scale * (LOG2E / 4);
	const REAL high = (REAL)factor, low = (REAL)(factor - high);
	int64_t D = attend->problem->D, lanes = panel->nvectors * WIDE;

	for (int x = 0; x < lanes; x += WIDE) {
		const REAL *row[WIDE];

		for (int i = 0; i < WIDE; i++) {
			int at = panel->first + x + i < unit->n ? panel->first + x + i
								: unit->n - 1;
			struct cpa_unit_row of = cpa_unit_row(unit, sight, at);

			row[i] = NAME(widen)(attend->q.dtype,
				cpa_element(&attend->q,
					cpa_array_index(&attend->q, of.t, unit->b, of.h)),
				D, space->row + i * space->row_step);
		}
		NAME(scale_rows)(row, D, high, low, space->q + panel->first * D + x, lanes);
	}
}

/* o[lane] of n rows, times factor[lane], to `row`. */
CPA_INLINE void NAME(gather_rows)(const REAL *o, int64_t lanes, VECTOR factor, int64_t Dv, int n,
	REAL *const *row, bool streams)
{
	int64_t d = 0;

	for (; d + WIDE <= Dv; d += WIDE) {
		VECTOR tile[WIDE];

		UNROLL
		for (int i = 0; i < WIDE; i++)
			tile[i] = AT_CONST(o + (d + i) * lanes) * factor;
		NAME(transpose)(tile);
		if (n == WIDE && streams) {
			UNROLL
			for (int i = 0; i < WIDE; i++)
				NAME(stream)(row[i] + d, tile[i]);
		} else if (n == WIDE) {
			UNROLL
			for (int i = 0; i < WIDE; i++)
				*(NAME(loose) *)(row[i] + d) = tile[i];
		} else {
			_Alignas(CPA_HOST_ALIGN) REAL spill[WIDE * WIDE];

			memcpy(spill, tile, sizeof spill);
			for (int i = 0; i < n; i++)
				memcpy(row[i] + d, spill + i * WIDE, WIDE * sizeof(REAL));
		}
	}
	for (; d < Dv; d++)
		for (int i = 0; i < n; i++)
			row[i][d] = o[d * lanes + i] * ((const REAL *)&factor)[i];
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

static void NAME(store_panel)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) * space, const struct NAME(state) * state,
	const struct NAME(panel) * panel)
{
	const struct cpa_array *o = &unit->call->attend->o, *lse = &unit->call->attend->lse;
	int64_t Dv = unit->call->attend->problem->Dv, lanes = panel->nvectors * WIDE;

	for (int x = 0; x < lanes && panel->first + x < unit->n; x += WIDE) {
		_Alignas(CPA_HOST_ALIGN) REAL whole[WIDE];
		int at = panel->first + x, n = unit->n - at < WIDE ? unit->n - at : WIDE;
		VECTOR factor = NAME(conclude)(state->m + at, state->l + at, whole);
		struct cpa_unit_row of[WIDE];
		REAL *row[WIDE];

		for (int i = 0; i < n; i++) {
			of[i] = cpa_unit_row(unit, sight, at + i);
			row[i] = o->dtype == DTYPE
				? cpa_element(o, cpa_array_index(o, of[i].t, unit->b, of[i].h))
				: (void *)(space->row + i * space->row_step);
		}
		NAME(gather_rows)
		(state->o + panel->first * Dv + x, lanes, factor, Dv, n, row,
			unit->call->streams_o && o->dtype == DTYPE);
		for (int i = 0; i < n; i++) {
			int64_t index = cpa_array_index(lse, of[i].t, unit->b, of[i].h);

			if (o->dtype != DTYPE)
				NAME(narrow)
			(o->dtype, cpa_element(o, cpa_array_index(o, of[i].t, unit->b, of[i].h)),
				Dv, row[i]);
			if (lse->dtype == DTYPE)
				((REAL *)lse->data)[index] = whole[i];
			else
				cpa_store(lse->dtype, lse->data, index, whole[i]);
		}
	}
	if (unit->call->streams_o)
		NAME(stream_end)();
}
