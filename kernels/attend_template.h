/*
 * attend_template.h - attention over key blocks with an online softmax; included once per type
 * and instruction set.
 *
 * The includer defines
 *   REAL, NAME(x)                 the type of arithmetic, names of this copy
 *   VECTOR, WIDE, INTS            WIDE numbers of it, and as many integers of its size
 *   ROWS, COLUMNS                 a tile of sums: ROWS by COLUMNS vectors, to fill the registers
 *   NAME(max)(a, b)               a where it is greater, else b (so a NaN in a gives b)
 *   NAME(exp2)(x)                 2^x for x <= 0; NaN stays NaN
 *   NAME(round_bf16), NAME(round_fp16)   weights, 0..1, to those types
 *   DTYPE, REAL_MAX, LOG
 *
 * Scores are computed transposed, S^T = K Q^T and O^T = V^T P^T: lanes are query rows.  One
 * number of k or v, straight from its row in memory, meets COLUMNS vectors of rows; maxima, sums
 * and masks of rows go straight down; and the weights come out the way the second product reads
 * them.  A panel is up to PANEL = COLUMNS WIDE rows; q, o and the weights of a panel lie
 * [feature or key][lane].
 *
 * Scores are kept as s log2(e) / 4: a power of 2 is what exp needs, and without the division a
 * score of 3e38 would not be finite.  No sum is reassociated: each lane's additions are in the
 * order of features or keys, blocks of CPA_KEY_BLOCK keys added up apart.
 */

enum { NAME(PANEL) = COLUMNS * WIDE, NAME(PANELS) = CPA_UNIT_ROWS / WIDE };
#define PANEL NAME(PANEL)
#define PANELS NAME(PANELS)

typedef VECTOR NAME(loose) __attribute__((aligned(sizeof(REAL)), may_alias));
#define AT(p) (*(VECTOR *)(p))
#define AT_CONST(p) (*(const VECTOR *)(p))

/* Some panels of a unit are narrower than PANEL; all are as wide as each other, or one vector. */
struct NAME(panel) {
	int first, nvectors;    /* first row, a multiple of WIDE */
	struct cpa_range hull;  /* kept keys that any of its rows sees */
	struct cpa_range all;   /* that all of them see */
	bool started;
};

/* What one thread works in, and a state: all in one allocation each. */
struct NAME(space) {
	REAL *k, *v;      /* [KEY_BLOCK][D], [KEY_BLOCK][Dv]: a key block that was copied */
	REAL *q;          /* [D][row] by panels, scaled */
	REAL *p;          /* [KEY_BLOCK][PANEL] scores, then weights */
	REAL *bias;       /* [KEY_BLOCK][PANEL], with a mask */
	REAL *first, *end; /* [PANEL] keys of the block that each row sees */
	REAL *shrink;     /* [PANEL] what older sums are multiplied by */
	REAL *row;        /* [max of D and Dv] */
	REAL *own;        /* a state */
};
struct NAME(state) {
	REAL *m, *l, *o; /* [row] maximum and sum, [Dv][row] by panels */
};

CPA_INLINE int NAME(padded)(int nrows)
{
	return (nrows + WIDE - 1) / WIDE * WIDE;
}

static size_t NAME(state_nbytes)(const struct cpa_problem *problem, int nrows)
{
	size_t n = (size_t)(problem->Dv + 2) * (size_t)NAME(padded)(nrows) * sizeof(REAL);

	return (n + CPA_HOST_ALIGN - 1) / CPA_HOST_ALIGN * CPA_HOST_ALIGN;
}

/* Lays a space over memory; NULL: only counts.  Returns the bytes. */
static size_t NAME(lay)(
	struct NAME(space) *space, const struct cpa_problem *problem, int nrows, char *memory)
{
	int64_t D = problem->D, Dv = problem->Dv, n = NAME(padded)(nrows);
	const struct {
		REAL **at;
		int64_t n;
	} parts[] = {
		{&space->k, CPA_KEY_BLOCK * D},
		{&space->v, CPA_KEY_BLOCK * Dv},
		{&space->q, n * D},
		{&space->p, CPA_KEY_BLOCK * PANEL},
		{&space->bias, problem->rule.mask.kind ? CPA_KEY_BLOCK * PANEL : 0},
		{&space->first, PANEL},
		{&space->end, PANEL},
		{&space->shrink, PANEL},
		{&space->row, D > Dv ? D : Dv},
		{&space->own, n * (Dv + 2)},
	};
	size_t nbytes = 0;

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		if (memory)
			*parts[i].at = (REAL *)(void *)(memory + nbytes);
		nbytes += ((size_t)parts[i].n * sizeof(REAL) + CPA_HOST_ALIGN - 1) /
			CPA_HOST_ALIGN * CPA_HOST_ALIGN;
	}
	return nbytes;
}

static size_t NAME(space_nbytes)(const struct cpa_problem *problem, int nrows)
{
	struct NAME(space) space;

	return NAME(lay)(&space, problem, nrows, NULL);
}

static struct NAME(state) NAME(state_of)(REAL *memory, int nrows)
{
	int n = NAME(padded)(nrows);

	return (struct NAME(state)){memory, memory + n, memory + 2 * n};
}

#include "kernels/attend_step.h"

/* ---- queries in, results out ---------------------------------------------------------------- */

/* q is scaled before the product, so that scores never leave the range by themselves; by two
 * parts of the factor, so that this is one rounding.  Lanes past the last row repeat it, so they
 * need no care anywhere. */
static void NAME(load_queries)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, const struct NAME(panel) *panel)
{
	const struct cpa_attend *attend = unit->call->attend;
	const long double factor = attend->problem->scale * (LOG2E / 4);
	const REAL high = (REAL)factor, low = (REAL)(factor - high);
	int64_t D = attend->problem->D;
	int lanes = panel->nvectors * WIDE;

	for (int x = 0; x < lanes; x++) {
		int i = panel->first + x < unit->n ? panel->first + x : unit->n - 1;
		struct cpa_unit_row row = cpa_unit_row(unit, sight, i);
		REAL *q = space->q + panel->first * D + x;

		cpa_run_convert(DTYPE, space->row, attend->q.dtype,
			cpa_element(&attend->q, cpa_array_index(&attend->q, row.t, unit->b, row.h)),
			D);
		for (int64_t d = 0; d < D; d++)
			q[d * lanes] = space->row[d] * high + space->row[d] * low;
	}
}

/* A row that saw nothing has l = 0 and o = 0.  A sum that is NaN (from memory that was never
 * written) stays NaN: as -inf it would be merged away unseen. */
static void NAME(store_panel)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, const struct NAME(state) *state,
	const struct NAME(panel) *panel)
{
	const struct cpa_array *o = &unit->call->attend->o, *lse = &unit->call->attend->lse;
	const REAL high = (REAL)(4 / LOG2E), low = (REAL)(4 / LOG2E - high);
	int64_t Dv = unit->call->attend->problem->Dv;
	int lanes = panel->nvectors * WIDE;

	for (int x = 0; x < lanes && panel->first + x < unit->n; x++) {
		int i = panel->first + x;
		struct cpa_unit_row row = cpa_unit_row(unit, sight, i);
		const REAL *from = state->o + panel->first * Dv + x;
		REAL l = state->l[i], m = state->m[i], inverse = l == 0 ? 0 : 1 / l;
		REAL sum = m * high + (m * low + LOG(l));

		/* The largest number, as a bias, must not come back as an infinity. */
		sum = sum < -REAL_MAX ? -REAL_MAX : sum > REAL_MAX ? REAL_MAX : sum;

		for (int64_t d = 0; d < Dv; d++)
			space->row[d] = from[d * lanes] * inverse;
		cpa_run_convert(o->dtype,
			cpa_element(o, cpa_array_index(o, row.t, unit->b, row.h)), DTYPE,
			space->row, Dv);
		cpa_store(lse->dtype, lse->data, cpa_array_index(lse, row.t, unit->b, row.h),
			l == 0 ? -(REAL)INFINITY : sum);
	}
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* A key block: kept keys [start, end) of a unit. */
struct NAME(block) {
	int64_t start, end;
	const REAL *k, *v;
	int64_t k_step, v_step;
	int64_t mask_at[CPA_KEY_BLOCK]; /* where the mask has them */
};

/* n rows of an array, from key j of it on, to rows `dim` apart. */
static void NAME(copy_rows)(const struct cpa_attend_unit *unit, const struct cpa_array *array,
	int64_t j, int64_t n, int64_t dim, REAL *to)
{
	for (int64_t i = 0; i < n; i++)
		cpa_run_convert(DTYPE, to + i * dim, array->dtype,
			cpa_element(array, cpa_array_index(array, j + i, unit->b, unit->kv)), dim);
}

/* In place where it can be: of the right type and in one piece. */
static const REAL *NAME(place)(const struct cpa_attend_unit *unit, const struct cpa_array *array,
	int64_t j, bool whole, int64_t dim, REAL *copy, int64_t *step)
{
	if (!whole || array->dtype != DTYPE) {
		*step = dim;
		return copy;
	}
	*step = array->token;
	return cpa_element(array, cpa_array_index(array, j, unit->b, unit->kv));
}

static void NAME(load_keys)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, struct NAME(block) *block)
{
	const struct cpa_attend *attend = unit->call->attend;
	const struct cpa_problem *problem = attend->problem;
	int64_t before = 0, n = block->end - block->start, done = 0;

	for (int i = 0; i < sight->npieces && done < n; i++) {
		struct cpa_range piece = sight->piece[i];
		int64_t length = piece.end - piece.start, skip = block->start + done - before;
		int64_t j = piece.start + skip, count = length - skip < n - done ? length - skip
										 : n - done;

		before += length;
		if (skip >= length)
			continue;
		if (!done) {
			block->k = NAME(place)(unit, &attend->k, j, count == n, problem->D,
				space->k, &block->k_step);
			block->v = NAME(place)(unit, &attend->v, j,
				count == n && !unit->call->copies_v, problem->Dv, space->v,
				&block->v_step);
		}
		if (block->k == space->k)
			NAME(copy_rows)(unit, &attend->k, j, count, problem->D,
				space->k + done * problem->D);
		if (block->v == space->v)
			NAME(copy_rows)(unit, &attend->v, j, count, problem->Dv,
				space->v + done * problem->Dv);
		for (int64_t c = 0; unit->call->k_ids && c < count; c++)
			block->mask_at[done + c] =
				unit->call->k_ids[j + c] * problem->rule.mask.key;
		done += count;
	}
}

/* ---- masks ---------------------------------------------------------------------------------- */

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

/* A mask that is the same for all rows is read once for all lanes. */
static void NAME(read_bias)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, const struct NAME(panel) *panel, const int64_t *keys,
	struct NAME(step) *step)
{
	const struct cpa_attend *attend = unit->call->attend;
	const struct cpa_mask *mask = &attend->problem->rule.mask;
	int nrows = mask->query || mask->head ? panel->nvectors * WIDE : 1;
	int64_t rows[PANEL];

	for (int x = 0; x < nrows; x++) {
		int i = panel->first + x < unit->n ? panel->first + x : unit->n - 1;
		struct cpa_unit_row row = cpa_unit_row(unit, sight, i);

		rows[x] = (attend->batches.start + unit->b) * mask->batch +
			(attend->heads.start + row.h) * mask->head +
			unit->call->q_ids[row.t] * mask->query;
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

/* What each row sees of the keys of a step, counted from the first; false where none sees any:
 * rows may lie far apart. */
static bool NAME(look)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, const struct NAME(panel) *panel, int64_t start, int64_t n)
{
	bool any = false;

	for (int x = 0; x < panel->nvectors * WIDE; x++) {
		int i = panel->first + x < unit->n ? panel->first + x : unit->n - 1;
		struct cpa_range seen = *cpa_unit_row(unit, sight, i).keys;
		int64_t first = seen.start - start, end = seen.end - start;

		first = first < 0 ? 0 : first > n ? n : first;
		end = end < 0 ? 0 : end > n ? n : end;
		any = any || first < end;
		space->first[x] = (REAL)first;
		space->end[x] = (REAL)end;
	}
	return any;
}

/* ---- one unit ------------------------------------------------------------------------------- */

static int64_t NAME(least)(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t NAME(most)(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Panels as wide as each other, give or take a vector.  Returns how many. */
static int NAME(cut_panels)(int nrows, struct NAME(panel) *panels)
{
	int nvectors = NAME(padded)(nrows) / WIDE, n = (nvectors + COLUMNS - 1) / COLUMNS;

	for (int i = 0, first = 0; i < n; i++) {
		int width = nvectors / n + (i < nvectors % n);

		panels[i] = (struct NAME(panel)){.first = first * WIDE, .nvectors = width};
		first += width;
	}
	return n;
}

static void NAME(sight_of_panel)(const struct cpa_attend_unit *unit,
	const struct cpa_sight *sight, struct NAME(panel) *panel)
{
	struct cpa_range hull = {INT64_MAX, 0}, all = {0, INT64_MAX};
	int end = panel->first + panel->nvectors * WIDE;

	for (int i = panel->first; i < end && i < unit->n; i++) {
		struct cpa_range keys = *cpa_unit_row(unit, sight, i).keys;

		hull.start = NAME(least)(hull.start, keys.start);
		hull.end = NAME(most)(hull.end, keys.end);
		all.start = NAME(most)(all.start, keys.start);
		all.end = NAME(least)(all.end, keys.end);
	}
	panel->hull = hull;
	panel->all = all;
}

/* Tiles of keys that lie wholly within those that all rows see need no mask. */
static void NAME(find_clear)(struct NAME(step) *step, struct cpa_range all, int64_t start)
{
	int64_t clear = NAME(most)(all.start - start, 0), end = all.end - start;

	clear = clear < step->n ? (clear + ROWS - 1) / ROWS * ROWS : step->n;
	end = end >= step->n ? step->n : end < 0 ? 0 : end / ROWS * ROWS;
	if (step->bias || clear >= end)
		clear = end = step->n;
	step->clear = clear;
	step->clear_end = end;
}

/* One panel over what it sees of a key block. */
static void NAME(attend_panel)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) *space, const struct NAME(state) *state, struct NAME(panel) *panel,
	const struct NAME(block) *block)
{
	const struct cpa_problem *problem = unit->call->attend->problem;
	int64_t start = NAME(most)(block->start, panel->hull.start);
	int64_t end = NAME(least)(block->end, panel->hull.end), from = start - block->start;
	struct NAME(step) step = {.k_step = block->k_step,
		.v_step = block->v_step,
		.q = space->q + panel->first * problem->D,
		.m = state->m + panel->first,
		.l = state->l + panel->first,
		.o = state->o + panel->first * problem->Dv,
		.p = space->p,
		.shrink = space->shrink,
		.n = end - start,
		.D = problem->D,
		.Dv = problem->Dv,
		.first = space->first,
		.end = space->end,
		.started = panel->started,
		.dtype = problem->dtype};

	if (start >= end)
		return;
	step.k = block->k + from * block->k_step;
	step.v = block->v + from * block->v_step;
	if (unit->call->k_ids)
		NAME(read_bias)(unit, sight, space, panel, block->mask_at + from, &step);
	NAME(find_clear)(&step, panel->all, start);
	if (step.clear_end - step.clear < step.n &&
		!NAME(look)(unit, sight, space, panel, start, step.n))
		return;
	NAME(steps)[panel->nvectors - 1](&step);
	panel->started = true;
}

static void NAME(attend)(
	const struct cpa_attend_unit *unit, int split, char *memory, char *state_memory)
{
	const struct cpa_problem *problem = unit->call->attend->problem;
	struct NAME(panel) panels[PANELS];
	struct NAME(space) space = {0}; /* all of it is laid below */
	struct NAME(state) state;
	struct NAME(block) block;
	struct cpa_sight sight;
	int npanels = NAME(cut_panels)(unit->n, panels);
	int64_t nblocks, end;

	NAME(lay)(&space, problem, unit->n, memory);
	state = NAME(state_of)(
		state_memory ? (REAL *)(void *)state_memory : space.own, unit->n);
	cpa_sight_find(unit, &sight);
	for (int i = 0; i < NAME(padded)(unit->n); i++) {
		state.m[i] = -REAL_MAX;
		state.l[i] = 0;
	}
	for (int i = 0; i < npanels; i++) {
		NAME(sight_of_panel)(unit, &sight, &panels[i]);
		NAME(load_queries)(unit, &sight, &space, &panels[i]);
	}
	nblocks = (sight.nkeys + CPA_KEY_BLOCK - 1) / CPA_KEY_BLOCK;
	end = nblocks * (split + 1) / unit->nsplits * CPA_KEY_BLOCK;
	for (int64_t j = nblocks * split / unit->nsplits * CPA_KEY_BLOCK; j < end;
		j += CPA_KEY_BLOCK) {
		block.start = j;
		block.end = NAME(least)(j + CPA_KEY_BLOCK, sight.nkeys);
		NAME(load_keys)(unit, &sight, &space, &block);
		for (int i = 0; i < npanels; i++)
			NAME(attend_panel)(unit, &sight, &space, &state, &panels[i], &block);
	}
	for (int i = 0; i < npanels; i++)
		if (!panels[i].started)
			memset(state.o + panels[i].first * problem->Dv, 0,
				(size_t)(panels[i].nvectors * WIDE * problem->Dv) * sizeof(REAL));
}

/* Adds state b to a, lane by lane. */
static void NAME(join)(const struct NAME(panel) *panel, int64_t Dv, const struct NAME(state) *a,
	const struct NAME(state) *b)
{
	const VECTOR four = NAME(spread)(4);
	int lanes = panel->nvectors * WIDE;

	for (int x = panel->first; x < panel->first + lanes; x += WIDE) {
		VECTOR old = AT(a->m + x), new = AT(b->m + x), m = NAME(max)(new, old);
		VECTOR keep = NAME(exp2)((old - m) * four), add = NAME(exp2)((new - m) * four);
		int64_t at = panel->first * Dv + x - panel->first;

		AT(a->m + x) = m;
		AT(a->l + x) = AT(a->l + x) * keep + AT(b->l + x) * add;
		for (int64_t d = 0; d < Dv; d++, at += lanes)
			AT(a->o + at) = AT(a->o + at) * keep + AT(b->o + at) * add;
	}
}

static void NAME(finish)(const struct cpa_attend_unit *unit, char *memory, char *states)
{
	const struct cpa_problem *problem = unit->call->attend->problem;
	size_t nbytes = unit->call->state_nbytes;
	struct NAME(panel) panels[PANELS];
	struct NAME(space) space = {0};
	struct NAME(state) state;
	struct cpa_sight sight;
	int npanels = NAME(cut_panels)(unit->n, panels);

	NAME(lay)(&space, problem, unit->n, memory);
	cpa_sight_find(unit, &sight);
	state = NAME(state_of)(states ? (REAL *)(void *)states : space.own, unit->n);
	for (int i = 0; i < npanels; i++) {
		for (int s = 1; s < unit->nsplits; s++) {
			struct NAME(state) other = NAME(state_of)(
				(REAL *)(void *)(states + nbytes * (size_t)s), unit->n);

			NAME(join)(&panels[i], problem->Dv, &state, &other);
		}
		NAME(store_panel)(unit, &sight, &space, &state, &panels[i]);
	}
}

CPA_INLINE void NAME(exp2_all)(REAL *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += WIDE) {
		NAME(loose) *at = (NAME(loose) *)(x + i);

		*at = NAME(exp2)(*at * NAME(spread)(4));
	}
}

static void NAME(exp2_test)(REAL *x, int64_t n)
{
	NAME(exp2_all)(x, n);
}

static const struct cpa_attend_type NAME(type) = {
	.lanes = PANEL,
	.space_nbytes = NAME(space_nbytes),
	.state_nbytes = NAME(state_nbytes),
	.attend = NAME(attend),
	.finish = NAME(finish),
};

#undef AT
#undef AT_CONST
#undef SUMS
#undef REMAINDER
#undef REMAINDER_CASE
#undef PANEL
#undef PANELS
#undef REAL
#undef NAME
#undef VECTOR
#undef WIDE
#undef INTS
#undef ROWS
#undef COLUMNS
#undef DTYPE
#undef REAL_MAX
#undef LOG
