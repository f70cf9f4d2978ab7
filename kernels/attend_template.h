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
 *   HALVES                        1 with NAME(load_bf16), NAME(load_fp16), NAME(store_bf16) and
 *                                 NAME(store_fp16) of WIDE numbers of 16 bits; 0 without
 *   NAME(log)(x)                  natural log of x >= 1, or 0, of which nothing is asked
 *   NAME(stream)(to, x), NAME(stream_end)()   stores past the caches, of whole lines
 *   NAME(transpose)(rows)         WIDE vectors of WIDE numbers, in place
 *   PART                          numbers that one load brings to all parts of a vector, so many
 *                                 lanes each: of 16 bytes, or 1
 *   NAME(part)(x)                 such a load
 *   NAME(one_of_part)(x, g)       number g of each part, to all of the part; g is a constant
 *   NAME(turn_parts)(rows)        PART vectors, the parts of which are transposed, in place
 *   DTYPE, REAL_MAX
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
	int first, nvectors; /* first row, a multiple of WIDE */
	struct cpa_range hull; /* kept keys that any of its rows sees */
	struct cpa_range all; /* that all of them see */
	struct cpa_range seen[COLUMNS]; /* by any row of each vector */
	bool ascends; /* both ends of these never step back, none is empty; tiles may be cut */
	bool started;
};

/* What one thread works in, and a state: all in one allocation each. */
struct NAME(space) {
	REAL *k, *v; /* [KEY_BLOCK][D], [KEY_BLOCK][Dv]: a key block that was copied */
	REAL *q; /* [D][row] by panels, scaled */
	REAL *p; /* [KEY_BLOCK][PANEL] scores, then weights */
	REAL *bias; /* [KEY_BLOCK][PANEL], with a mask */
	REAL *first, *end; /* [PANEL] keys of the block that each row sees */
	REAL *shrink; /* [PANEL] what older sums are multiplied by */
	REAL *row; /* [WIDE][row_step]: rows of another type on their way */
	int64_t row_step; /* max of D and Dv, up to whole vectors */
	REAL *own; /* a state */
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

	return cpa_whole_lines(n);
}

/* Lays a space over memory; NULL: only counts.  Returns the bytes. */
static size_t NAME(lay)(
	struct NAME(space) * space, const struct cpa_problem *problem, int nrows, char *memory)
{
	int64_t D = problem->D, Dv = problem->Dv, n = NAME(padded)(nrows);
	int64_t row_step = ((D > Dv ? D : Dv) + WIDE - 1) / WIDE * WIDE;
	const struct cpa_part parts[] = {
		{&space->k, CPA_KEY_BLOCK * D},
		{&space->v, CPA_KEY_BLOCK * Dv},
		{&space->q, n * D},
		{&space->p, CPA_KEY_BLOCK * PANEL},
		{&space->bias, problem->rule.mask.kind ? CPA_KEY_BLOCK * PANEL : 0},
		{&space->first, PANEL},
		{&space->end, PANEL},
		{&space->shrink, PANEL},
		{&space->row, WIDE * row_step},
		{&space->own, n * (Dv + 2)},
	};

	space->row_step = row_step;
	return cpa_lay_parts(parts, sizeof parts / sizeof parts[0], sizeof(REAL), memory);
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

#include "kernels/attend_rows.h"
#include "kernels/attend_keys.h"
#include "kernels/attend_sight.h"
#include "kernels/attend_ahead.h"

#include "kernels/attend_few.h"

/* ---- one unit ---- */

/* Panels as wide as each other, give or take a vector.  Returns how many. */
static int NAME(cut_panels)(int nrows, struct NAME(panel) * panels)
{
	int nvectors = NAME(padded)(nrows) / WIDE, n = (nvectors + COLUMNS - 1) / COLUMNS;

	for (int i = 0, first = 0; i < n; i++) {
		int width = nvectors / n + (i < nvectors % n);

		panels[i] = (struct NAME(panel)){.first = first * WIDE, .nvectors = width};
		first += width;
	}
	return n;
}

/* One panel over what it sees of a key block, as number i of the npanels that see some. */
static void NAME(attend_panel)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) * space, const struct NAME(state) * state, struct NAME(panel) * panel,
	const struct NAME(block) * block, int i, int npanels)
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

	if (unit->call->k_ids)
		NAME(read_bias)(unit, space, panel, block->mask_at + from, &step);
	NAME(find_clear)(&step, panel->all, start);
	if (step.clear_end - step.clear < step.n &&
		!NAME(look)(unit, sight, space, panel, start, step.n))
		return;
	step.k = block->k + from * block->k_step;
	step.v = block->v + from * block->v_step;
	NAME(look_ahead)(unit, sight, block, i, npanels, &step);
	NAME(find_runs)(&step, panel, start);
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
	struct NAME(panel) * seeing[PANELS];
	int npanels = NAME(cut_panels)(unit->n, panels), nseeing;
	int64_t nblocks, end;

	NAME(lay)(&space, problem, unit->n, memory);
	state = NAME(state_of)(state_memory ? (REAL *)(void *)state_memory : space.own, unit->n);
	cpa_sight_find(unit, &sight);
	for (int i = 0; i < NAME(padded)(unit->n); i++) {
		state.m[i] = -REAL_MAX;
		state.l[i] = 0;
	}
	for (int i = 0; i < npanels; i++) {
		NAME(sight_of_panel)(unit, &sight, &panels[i]);
		NAME(load_queries)(unit, &space, &panels[i]);
	}
	nblocks = (sight.nkeys + CPA_KEY_BLOCK - 1) / CPA_KEY_BLOCK;
	end = nblocks * (split + 1) / unit->nsplits * CPA_KEY_BLOCK;
	for (int64_t j = nblocks * split / unit->nsplits * CPA_KEY_BLOCK; j < end;
		j += CPA_KEY_BLOCK) {
		block.start = j;
		block.end = NAME(least)(j + CPA_KEY_BLOCK, sight.nkeys);
		NAME(load_keys)(unit, &sight, &space, &block);
		nseeing = NAME(panels_seeing)(panels, npanels, &block, seeing);
		for (int i = 0; i < nseeing; i++)
			NAME(attend_panel)
		(unit, &sight, &space, &state, seeing[i], &block, i, nseeing);
	}
	for (int i = 0; i < npanels; i++)
		if (!panels[i].started)
			memset(state.o + panels[i].first * problem->Dv, 0,
				(size_t)(panels[i].nvectors * WIDE * problem->Dv) * sizeof(REAL));
}

/* Rows [row][step], turned round. */
static void NAME(put)(const struct cpa_attend_unit *unit, char *memory, char *state_memory,
	const struct cpa_attend_rows *rows)
{
	const int64_t Dv = unit->call->attend->problem->Dv, step = rows->step;
	struct NAME(panel) panels[PANELS];
	struct NAME(space) space = {0};
	struct NAME(state) state;
	int npanels = NAME(cut_panels)(unit->n, panels);

	NAME(lay)(&space, unit->call->attend->problem, unit->n, memory);
	state = NAME(state_of)(state_memory ? (REAL *)(void *)state_memory : space.own, unit->n);
	memcpy(state.m, rows->m, (size_t)NAME(padded)(unit->n) * sizeof(REAL));
	memcpy(state.l, rows->l, (size_t)NAME(padded)(unit->n) * sizeof(REAL));
	for (int i = 0; i < npanels; i++) {
		int64_t lanes = panels[i].nvectors * WIDE;

		for (int64_t x = 0; x < lanes; x += WIDE) {
			const REAL *row = (const REAL *)rows->o + (panels[i].first + x) * step;
			REAL *to = state.o + panels[i].first * Dv + x;

			for (int64_t d = 0; d < Dv; d += WIDE) {
				VECTOR tile[WIDE];

				for (int n = 0; n < WIDE; n++)
					tile[n] = *(const NAME(loose) *)(row + n * step + d);
				NAME(transpose)(tile);
				for (int n = 0; n < WIDE && d + n < Dv; n++)
					AT(to + (d + n) * lanes) = tile[n];
			}
		}
	}
}

/* Adds state b to a, lane by lane. */
static void NAME(join)(const struct NAME(panel) * panel, int64_t Dv, const struct NAME(state) * a,
	const struct NAME(state) * b)
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

#include "kernels/attend_lanes.h"

static void NAME(finish)(const struct cpa_attend_unit *unit, char *memory, char *states)
{
	const struct cpa_problem *problem = unit->call->attend->problem;
	size_t nbytes = unit->call->state_nbytes;
	struct NAME(panel) panels[PANELS];
	struct NAME(space) space = {0};
	struct NAME(state) state;
	int npanels = NAME(cut_panels)(unit->n, panels);

	NAME(lay)(&space, problem, unit->n, memory);
	state = NAME(state_of)(states ? (REAL *)(void *)states : space.own, unit->n);
	for (int i = 0; i < npanels; i++) {
		for (int s = 1; s < unit->nsplits; s++) {
			struct NAME(state) other = NAME(state_of)(
				(REAL *)(void *)(states + nbytes * (size_t)s), unit->n);

			NAME(join)(&panels[i], problem->Dv, &state, &other);
		}
		NAME(store_panel)(unit, &space, &state, &panels[i]);
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
	.few = {&NAME(few_type), &NAME(lanes_type)},
	.chain_key = (3 + CPA_CPU_EXP_ERROR) / CPA_KEY_BLOCK,
	.space_nbytes = NAME(space_nbytes),
	.state_nbytes = NAME(state_nbytes),
	.attend = NAME(attend),
	.finish = NAME(finish),
	.put = NAME(put),
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
#undef PART
#undef INTS
#undef ROWS
#undef COLUMNS
#undef DTYPE
#undef REAL_MAX
#undef HALVES
#undef NO_SUMS
#undef WITH_CUT
#undef CUT_CASE
#undef CUTS
#undef WITH_DTYPE
