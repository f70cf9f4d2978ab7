/*
 * attend_template.h - attention over key blocks with an online softmax; included once per type.
 *
 * The includer defines REAL, BITS (the unsigned integer of its size), NAME(x), LANES (query
 * rows side by side, 64 bytes of them), the constants of exp and NAME(round_weights)().
 *
 * Scores are computed transposed: lanes are queries, so q and the weights lie [feature or
 * key][lane], one number of k or v meets a whole vector of them, and maxima, sums and masks of
 * rows go straight down. No sum is reassociated: each lane's additions are in the order of the
 * keys, GROUP keys or features at a time, blocks of KEYS keys added up apart.
 */

/* exp(x), x <= 0, as 2^n p(r), r = x - n ln 2; exactly 1 at 0; 0 in place of a subnormal. */
CPA_INLINE REAL NAME(exp)(REAL x)
{
	REAL shifted = x * (REAL)1.44269504088896340736 + EXP_SHIFT, n = shifted - EXP_SHIFT;
	REAL r = (x - n * EXP_LN2_HIGH) - n * EXP_LN2_LOW, p = EXP_POLYNOMIAL(r), power;
	BITS bits;

	memcpy(&bits, &shifted, sizeof bits);
	bits = (bits + EXP_BIAS) << EXP_FRACTION;
	memcpy(&power, &bits, sizeof power);
	return x < EXP_LEAST ? 0 : p * power;
}

CPA_CLONES void NAME(cpa_cpu_exp)(REAL *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = NAME(exp)(x[i]);
}

/* One key block against LANES query rows. */
struct NAME(step) {
	const REAL *k;              /* [n up to a multiple of GROUP][D] */
	const REAL *v;              /* [n][Dv up to a multiple of GROUP] */
	const REAL *q;              /* [D][LANES], scaled */
	REAL *o;                    /* [Dv up to a multiple of GROUP][LANES] */
	REAL *m, *l;                /* [LANES] maximum, sum */
	REAL *p;                    /* [KEYS][LANES] scratch: scores, then weights */
	int64_t n, D, Dv;           /* keys 1..KEYS */
	const int32_t *first, *end; /* [LANES] keys each lane sees, or NULL: all of them */
	const REAL *bias;           /* [KEYS] or [KEYS][LANES]: what the mask adds, or NULL */
	bool bias_per_lane;
	enum cpa_dtype dtype;       /* that weights are rounded to */
};

/*
 * sum[g][x] = sum over i < n of a[g row + i step] b[i][x]
 *
 * The one place where vectors are spelt out: as arrays, the sums stay in memory (a tenth of the
 * speed).  So they do with vectors wider than the machine's, hence two sizes.
 */
#define TILE(tile, vector, nbytes) \
	typedef REAL vector __attribute__((vector_size(nbytes), may_alias)); \
	CPA_INLINE void tile(const REAL *a, int64_t row, int64_t step, int64_t n, \
		const REAL *b, REAL *sum) \
	{ \
		enum { WIDTH = (nbytes) / sizeof(REAL), NVECTORS = LANES / WIDTH }; \
		vector at[GROUP][NVECTORS] = {{{0}}}; \
\
		for (int64_t i = 0; i < n; i++, a += step, b += LANES) \
			UNROLL \
			for (int g = 0; g < GROUP; g++) \
				UNROLL \
				for (int x = 0; x < NVECTORS; x++) \
					at[g][x] += a[g * row] * ((const vector *)b)[x]; \
		memcpy(sum, at, sizeof at); \
	}
TILE(NAME(tile_wide), NAME(vector_wide), 32)
TILE(NAME(tile_narrow), NAME(vector_narrow), 16)
#undef TILE

CPA_INLINE void NAME(tile)(bool wide, const REAL *a, int64_t row, int64_t step, int64_t n,
	const REAL *b, REAL *sum)
{
	if (wide)
		NAME(tile_wide)(a, row, step, n, b, sum);
	else
		NAME(tile_narrow)(a, row, step, n, b, sum);
}

/* Minus infinity, which hides, stays what it is: no score is infinite. */
CPA_INLINE void NAME(add_bias)(const struct NAME(step) *step)
{
	for (int64_t j = 0; j < step->n; j++) {
		const REAL *bias = step->bias + (step->bias_per_lane ? j * LANES : j);

		if (step->bias_per_lane)
			for (int x = 0; x < LANES; x++)
				step->p[j * LANES + x] += bias[x];
		else
			for (int x = 0; x < LANES; x++)
				step->p[j * LANES + x] += *bias;
	}
}

CPA_INLINE void NAME(hide)(const struct NAME(step) *step)
{
	for (int32_t j = 0; j < step->n; j++)
		for (int x = 0; x < LANES; x++) {
			REAL s = step->p[j * LANES + x];

			step->p[j * LANES + x] =
				j >= step->first[x] && j < step->end[x] ? s : -(REAL)INFINITY;
		}
}

/* Scores to weights; updates maximum and sum; scale[x] is what older sums shrink by. */
CPA_INLINE void NAME(weigh)(const struct NAME(step) *step, REAL *scale)
{
	REAL m[LANES], sum[LANES];

	for (int x = 0; x < LANES; x++) {
		m[x] = step->m[x];
		sum[x] = 0;
	}
	for (int64_t j = 0; j < step->n; j++)
		for (int x = 0; x < LANES; x++)
			m[x] = step->p[j * LANES + x] > m[x] ? step->p[j * LANES + x] : m[x];
	for (int64_t j = 0; j < step->n; j++)
		for (int x = 0; x < LANES; x++) {
			REAL p = NAME(exp)(step->p[j * LANES + x] - m[x]);

			sum[x] += p;
			step->p[j * LANES + x] = p;
		}
	for (int x = 0; x < LANES; x++) {
		scale[x] = NAME(exp)(step->m[x] - m[x]);
		step->l[x] = step->l[x] * scale[x] + sum[x];
		step->m[x] = m[x];
	}
}

CPA_INLINE void NAME(step)(const struct NAME(step) *step, bool wide)
{
	REAL scale[LANES];

	for (int64_t j = 0; j < step->n; j += GROUP)
		NAME(tile)(wide, step->k + j * step->D, step->D, 1, step->D, step->q,
			step->p + j * LANES);
	if (step->bias)
		NAME(add_bias)(step);
	if (step->first)
		NAME(hide)(step);
	NAME(weigh)(step, scale);
	NAME(round_weights)(step->dtype, step->p, step->n * LANES);
	for (int64_t d = 0; d < step->Dv; d += GROUP) {
		REAL sum[GROUP * LANES], *o = step->o + d * LANES;

		NAME(tile)(wide, step->v + d, 1, step->Dv, step->n, step->p, sum);
		for (int g = 0; g < GROUP * LANES; g += LANES)
			for (int x = 0; x < LANES; x++)
				o[g + x] = o[g + x] * scale[x] + sum[g + x];
	}
}

static void NAME(step_narrow)(const struct NAME(step) *step)
{
	NAME(step)(step, false);
}

CPA_CLONES static void NAME(step_wide)(const struct NAME(step) *step)
{
	NAME(step)(step, true);
}

/* What one thread works in; all in one allocation. */
struct NAME(space) {
	REAL *k, *v;         /* [KEYS + GROUP][D], [KEYS][wide]: a key block */
	REAL *q, *o, *m, *l; /* per tile: [D][LANES], [wide][LANES], [LANES], [LANES] */
	REAL *p, *row;       /* [KEYS][LANES]; one row of either size */
	REAL *bias;          /* [KEYS][LANES], with a mask */
	int64_t wide;        /* Dv up to a multiple of GROUP */
	int64_t mask_at[KEYS];        /* where the mask has the keys of the block */
	struct cpa_range keys[TILES]; /* what any row of a tile sees, of the keys kept */
};

/* Lays a space over memory; NULL: only counts.  Returns the bytes. */
static size_t NAME(lay)(struct NAME(space) *space, const struct cpa_problem *problem,
	char *memory)
{
	int64_t D = problem->D, Dv = problem->Dv, wide = (Dv + GROUP - 1) / GROUP * GROUP;
	const struct {
		REAL **at;
		int64_t n;
	} parts[] = {
		{&space->k, (KEYS + GROUP) * D},
		{&space->v, KEYS * wide},
		{&space->q, ROWS * D},
		{&space->o, ROWS * wide},
		{&space->m, ROWS},
		{&space->l, ROWS},
		{&space->p, KEYS * LANES},
		{&space->row, D > Dv ? D : Dv},
		{&space->bias, problem->rule.mask.kind ? KEYS * LANES : 0},
	};
	size_t nbytes = 0;

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		if (memory)
			*parts[i].at = (REAL *)(memory + nbytes);
		nbytes += ((size_t)parts[i].n * sizeof(REAL) + CPA_HOST_ALIGN - 1) /
			CPA_HOST_ALIGN * CPA_HOST_ALIGN;
	}
	space->wide = wide;
	return nbytes;
}

/* q is scaled before the product, so that scores never leave the range by themselves. */
CPA_CLONES static void NAME(scatter)(REAL *restrict q, const REAL *restrict row, double scale,
	int64_t D)
{
	for (int64_t d = 0; d < D; d++)
		q[d * LANES] = (REAL)(row[d] * scale);
}

CPA_CLONES static void NAME(gather)(REAL *restrict row, const REAL *restrict o, REAL sum,
	int64_t Dv)
{
	for (int64_t d = 0; d < Dv; d++)
		row[d] = o[d * LANES] / sum;
}

/* Lanes past the last row repeat it, so they need no care anywhere. */
static void NAME(start)(const struct work *work, struct NAME(space) *space)
{
	const struct cpa_array *q = &work->attend->q;
	int64_t D = work->attend->problem->D;

	for (int i = 0; i < work->ntiles * LANES; i++) {
		int64_t t = work->first + (i < work->n ? i : work->n - 1);
		struct cpa_range *keys = &space->keys[i / LANES],
				 seen = work->sight.row[t - work->first];

		cpa_run_convert(DTYPE, space->row, q->dtype,
			cpa_element(q, cpa_array_index(q, t, work->b, work->h)), D);
		NAME(scatter)(space->q + i / LANES * LANES * D + i % LANES, space->row,
			work->attend->problem->scale, D);
		space->m[i] = -REAL_MAX;
		space->l[i] = 0;
		if (i % LANES == 0)
			*keys = seen;
		keys->start = seen.start < keys->start ? seen.start : keys->start;
		keys->end = seen.end > keys->end ? seen.end : keys->end;
	}
	memset(space->o, 0, (size_t)(work->ntiles * LANES * space->wide) * sizeof(REAL));
}

/* Keys of indices [from.start, from.end) of k and v to place `to` of the block. */
static void NAME(load_piece)(const struct work *work, struct NAME(space) *space,
	struct cpa_range from, int64_t to)
{
	const struct cpa_array *k = &work->attend->k, *v = &work->attend->v;
	const struct cpa_problem *problem = work->attend->problem;
	int64_t D = problem->D, Dv = problem->Dv;

	for (int64_t j = from.start; j < from.end; j++, to++) {
		cpa_run_convert(DTYPE, space->k + to * D, k->dtype,
			cpa_element(k, cpa_array_index(k, j, work->b, work->kv)), D);
		cpa_run_convert(DTYPE, space->v + to * space->wide, v->dtype,
			cpa_element(v, cpa_array_index(v, j, work->b, work->kv)), Dv);
		if (work->call->k_ids)
			space->mask_at[to] = work->call->k_ids[j] * problem->rule.mask.key;
	}
}

/* Keys [block.start, block.end) of those kept. */
static void NAME(load_keys)(const struct work *work, struct NAME(space) *space,
	struct cpa_range block)
{
	int64_t before = 0;

	for (int i = 0; i < work->sight.npieces && before < block.end; i++) {
		struct cpa_range piece = work->sight.piece[i];
		int64_t n = piece.end - piece.start;
		int64_t skip = block.start > before ? block.start - before : 0;
		int64_t most = block.end - before < n ? block.end - before : n;

		if (skip < most)
			NAME(load_piece)(work, space,
				(struct cpa_range){piece.start + skip, piece.start + most},
				before + skip - block.start);
		before += n;
	}
}

/* A table: a branch on each byte costs as much as all the rest. */
static const REAL NAME(bias_of)[] = {-(REAL)INFINITY, 0};

/* bias[j][x] of rows x and keys j from where they lie in a mask of that type. */
#define READ_MASK(read, type, value) \
	static void read(const void *data, const int64_t *rows, int nrows, \
		const int64_t *keys, int64_t nkeys, REAL *bias) \
	{ \
		for (int x = 0; x < nrows; x++) { \
			const type *row = (const type *)data + rows[x]; \
\
			for (int64_t j = 0; j < nkeys; j++) { \
				type at = row[keys[j]]; \
\
				bias[j * nrows + x] = (REAL)(value); \
			} \
		} \
	}
READ_MASK(NAME(read_truth), uint8_t, NAME(bias_of)[at != 0])
READ_MASK(NAME(read_narrow), float, at)
READ_MASK(NAME(read_wide), double, at)
#undef READ_MASK

/* A mask that is the same for all queries is read once for all lanes. */
static void NAME(read_bias)(const struct work *work, struct NAME(space) *space, int tile,
	int64_t from, struct NAME(step) *step)
{
	const struct cpa_attend *attend = work->attend;
	const struct cpa_mask *mask = &attend->problem->rule.mask;
	int nrows = mask->query ? LANES : 1;
	const int64_t *keys = space->mask_at + from;
	int64_t rows[LANES];

	for (int x = 0; x < nrows; x++) {
		int64_t i = tile * LANES + x, t = work->first + (i < work->n ? i : work->n - 1);

		rows[x] = (attend->batches.start + work->b) * mask->batch +
			(attend->heads.start + work->h) * mask->head +
			work->call->q_ids[t] * mask->query;
	}
	if (mask->kind == CPA_MASK_BOOL)
		NAME(read_truth)(mask->data, rows, nrows, keys, step->n, space->bias);
	else if (mask->dtype == CPA_DTYPE_FP64)
		NAME(read_wide)(mask->data, rows, nrows, keys, step->n, space->bias);
	else
		NAME(read_narrow)(mask->data, rows, nrows, keys, step->n, space->bias);
	step->bias = space->bias;
	step->bias_per_lane = nrows > 1;
}

/* What each lane sees of a step's keys; false where none sees any: rows may lie far apart. */
static bool NAME(look)(const struct work *work, int tile, int64_t start, int32_t *first,
	int32_t *end, struct NAME(step) *step)
{
	bool any = false;

	for (int x = 0; x < LANES; x++) {
		int64_t i = tile * LANES + x;
		struct cpa_range seen = work->sight.row[i < work->n ? i : work->n - 1];

		first[x] = clip_keys(seen.start - start);
		end[x] = clip_keys(seen.end - start);
		any = any || (first[x] < end[x] && first[x] < step->n);
		if (first[x] > 0 || end[x] < step->n) {
			step->first = first;
			step->end = end;
		}
	}
	return any;
}

/* One tile over what it sees of the keys loaded. */
static void NAME(attend_tile)(const struct work *work, struct NAME(space) *space, int tile,
	struct cpa_range loaded)
{
	const struct cpa_problem *problem = work->attend->problem;
	struct cpa_range keys = space->keys[tile];
	int64_t from;
	int32_t first[LANES], end[LANES];
	struct NAME(step) step = {.q = space->q + tile * LANES * problem->D,
		.o = space->o + tile * LANES * space->wide,
		.m = space->m + tile * LANES,
		.l = space->l + tile * LANES,
		.p = space->p,
		.D = problem->D,
		.Dv = space->wide,
		.dtype = problem->dtype};

	keys.start = loaded.start > keys.start ? loaded.start : keys.start;
	keys.end = loaded.end < keys.end ? loaded.end : keys.end;
	if (keys.start >= keys.end)
		return;
	from = keys.start - loaded.start;
	step.k = space->k + from * problem->D;
	step.v = space->v + from * space->wide;
	step.n = keys.end - keys.start;
	if (!NAME(look)(work, tile, keys.start, first, end, &step))
		return;
	if (work->call->k_ids)
		NAME(read_bias)(work, space, tile, from, &step);
	if (has_wide_vectors())
		NAME(step_wide)(&step);
	else
		NAME(step_narrow)(&step);
}

/* A row that saw nothing has l = 0 and o = 0.  A sum that is NaN (from memory that was never written) stays
 * NaN: as -inf it would be merged away unseen. */
static void NAME(finish)(const struct work *work, struct NAME(space) *space)
{
	const struct cpa_array *o = &work->attend->o, *lse = &work->attend->lse;
	int64_t Dv = work->attend->problem->Dv;

	for (int64_t i = 0; i < work->n; i++) {
		int64_t t = work->first + i;
		REAL l = space->l[i];

		NAME(gather)(space->row, space->o + i / LANES * LANES * space->wide + i % LANES,
			l == 0 ? 1 : l, Dv);
		cpa_run_convert(o->dtype,
			cpa_element(o, cpa_array_index(o, t, work->b, work->h)), DTYPE,
			space->row, Dv);
		cpa_store(lse->dtype, lse->data, cpa_array_index(lse, t, work->b, work->h),
			l == 0 ? -(REAL)INFINITY : space->m[i] + LOG(l));
	}
}

static void NAME(attend_rows)(const struct work *work, char *memory)
{
	struct NAME(space) space = {0}; /* all of it is laid below */
	int64_t nkeys = work->sight.nkeys;

	NAME(lay)(&space, work->attend->problem, memory);
	NAME(start)(work, &space);
	for (int64_t j = 0; j < nkeys; j += KEYS) {
		struct cpa_range block = {j, j + KEYS < nkeys ? j + KEYS : nkeys};

		NAME(load_keys)(work, &space, block);
		for (int tile = 0; tile < work->ntiles; tile++)
			NAME(attend_tile)(work, &space, tile, block);
	}
	NAME(finish)(work, &space);
}

#undef REAL
#undef BITS
#undef NAME
#undef LANES
#undef TILES
#undef DTYPE
#undef REAL_MAX
#undef LOG
#undef EXP_SHIFT
#undef EXP_LN2_HIGH
#undef EXP_LN2_LOW
#undef EXP_POLYNOMIAL
#undef EXP_BIAS
#undef EXP_FRACTION
#undef EXP_LEAST
