/*
 * attend_lanes.h - attention of up to as many rows to each key head as a vector has lanes:
 * decoding of some tokens, or of large groups.  Part of attend_template.h.
 *
 * Rows are lanes, as in the kernel of many rows, but keys are few at a time and lie where they
 * are: a turn of keys of one key head, then of the next one beside it.  Meanwhile the next turn
 * of all key heads is fetched, in the order of memory.  Multiplications take longest.
 */

enum {
	NAME(LANES_PARTS) = NAME(FEW_SUMS) / PART, /* of features, whose sums are registers */
	NAME(LANES_KEYS) = NAME(LANES_PARTS) < 8 ? NAME(LANES_PARTS)
						 : 8, /* of a tile of scores */
	/* Keys that are taken of one key head before the next: for long rows fewer, so that they
	 * and those asked for stay in the second cache. */
	NAME(LANES_TURN) = NAME(FEW_REGISTERS) == 32 ? 48 : 16,
	NAME(LANES_TURN_LEAST) = 16,
	NAME(LANES_TURN_BYTES) = 3 << 16,
	NAME(LANES_FROM) = NAME(FEW_LEAST) + 1, /* rows of a key head at least */
	NAME(LANES_HEADS) = 8, /* of a unit at most */
};

/* A unit at work; each of its key heads has WIDE lanes, of which those past row n repeat it. */
struct NAME(lanes) {
	const struct cpa_attend_unit *unit;
	struct cpa_sight sight;
	int64_t D, Dv, row_step;
	int nheads;
	struct NAME(few_array) k, v;
	int64_t nkeys; /* of the block */
	REAL *q; /* [head][D / PART][PART][WIDE], scaled, by parts */
	REAL *p; /* [head][CPA_KEY_BLOCK][lane] scores, then weights */
	REAL *sum; /* [head][Dv / PART][PART][WIDE] values of the block, by parts */
	REAL *shrink; /* [head][lane] */
	REAL *first, *end; /* [lane] keys of the block that rows see: those of any key head */
	REAL *bias; /* [CPA_KEY_BLOCK][lane], with a mask */
	REAL *tile; /* [LANES_TURN][D or Dv] keys or values in another form than theirs */
	REAL *row; /* [WIDE][row_step] rows of q or o on their way */
	REAL *own; /* a state */
	struct NAME(state) state; /* [head][lane], [head][lane], [head][Dv][lane] */
};

/* What is fetched next: bytes left of a run, and what lies between runs. */
struct NAME(ask) {
	const char *at;
	int64_t left, run, gap;
};

static bool NAME(lanes_takes)(const struct cpa_attend *attend, int64_t rows)
{
	return rows <= WIDE && !NAME(are_few)(attend, rows) &&
		NAME(few_reads)(attend->k.dtype) && NAME(few_reads)(attend->v.dtype);
}

/* Up to whole parts. */
static int64_t NAME(lanes_round)(int64_t n)
{
	return (n + PART - 1) / PART * PART;
}

/* Key heads that nrows rows may be of at most: LANES_FROM rows or more each, but that of the
 * first and the last key head there may only be some. */
static int NAME(lanes_heads)(int nrows)
{
	const int most = nrows / NAME(LANES_FROM);

	return most > NAME(LANES_HEADS) ? NAME(LANES_HEADS) : most > 2 ? most : nrows < 2 ? 1 : 2;
}

static size_t NAME(lanes_state_nbytes)(const struct cpa_problem *problem, int nrows)
{
	return NAME(state_nbytes)(problem, NAME(lanes_heads)(nrows) * WIDE);
}

/* Lays it over memory; NULL: only counts.  Returns the bytes. */
static size_t NAME(lanes_lay)(
	struct NAME(lanes) * lanes, const struct cpa_problem *problem, int nheads, char *memory)
{
	const int64_t D = problem->D, Dv = problem->Dv, longest = D > Dv ? D : Dv,
		      n = nheads * WIDE;
	const struct cpa_part parts[] = {
		{&lanes->q, n * NAME(lanes_round)(D)},
		{&lanes->p, n * CPA_KEY_BLOCK},
		{&lanes->sum, n * NAME(lanes_round)(Dv)},
		{&lanes->shrink, n},
		{&lanes->first, WIDE},
		{&lanes->end, WIDE},
		{&lanes->bias, problem->rule.mask.kind ? CPA_KEY_BLOCK * WIDE : 0},
		{&lanes->tile, NAME(LANES_TURN) * NAME(lanes_round)(longest)},
		{&lanes->row, WIDE * NAME(few_round)(longest)},
		{&lanes->own, n * (Dv + 2)},
	};

	lanes->D = D;
	lanes->Dv = Dv;
	lanes->row_step = NAME(few_round)(longest);
	lanes->nheads = nheads;
	return cpa_lay_parts(parts, sizeof parts / sizeof parts[0], sizeof(REAL), memory);
}

static size_t NAME(lanes_space_nbytes)(const struct cpa_problem *problem, int nrows)
{
	struct NAME(lanes) lanes;

	return NAME(lanes_lay)(&lanes, problem, NAME(lanes_heads)(nrows), NULL);
}

/* states NULL: that of the space. */
static void NAME(lanes_begin)(struct NAME(lanes) * lanes, const struct cpa_attend_unit *unit,
	char *memory, char *states)
{
	NAME(lanes_lay)(lanes, unit->call->attend->problem, unit->nkv, memory);
	lanes->unit = unit;
	lanes->state = NAME(state_of)(
		states ? (REAL *)(void *)states : lanes->own, unit->nkv * WIDE);
	cpa_sight_find(unit, &lanes->sight);
}

/* ---- scores and values ---- */

#include "kernels/attend_lanes_sums.h"

/* ---- weights ---- */

/* What rows see of the block, which begins at kept key `start`: true, all.  The rows of each key
 * head are of the same tokens. */
static bool NAME(lanes_look)(const struct NAME(lanes) * lanes, int64_t start)
{
	const int n = lanes->unit->n;
	bool all = true;

	for (int x = 0; x < WIDE; x++) {
		struct cpa_range seen = *cpa_unit_keys(
			lanes->unit, &lanes->sight, x < n ? x : n - 1);
		int64_t from = seen.start - start, to = seen.end - start;

		from = from < 0 ? 0 : from > lanes->nkeys ? lanes->nkeys : from;
		to = to < 0 ? 0 : to > lanes->nkeys ? lanes->nkeys : to;
		all = all && from == 0 && to == lanes->nkeys;
		lanes->first[x] = (REAL)from;
		lanes->end[x] = (REAL)to;
	}
	return all;
}

static void NAME(lanes_bias)(
	const struct NAME(lanes) * lanes, int c, const int64_t *mask_at, struct NAME(step) * step)
{
	struct cpa_unit_row rows[WIDE];
	const int n = lanes->unit->n;

	for (int x = 0; x < WIDE; x++)
		rows[x] = cpa_unit_row(lanes->unit, c * n + (x < n ? x : n - 1));
	NAME(read_mask)(lanes->unit, rows, WIDE, mask_at, lanes->nkeys, lanes->bias);
	step->bias = lanes->bias;
	step->bias_per_lane = true;
}

/* Scores of key head c to weights.  max: of its rows, if they see all, and there is no mask. */
static void NAME(lanes_weights)(
	const struct NAME(lanes) * lanes, int c, const int64_t *mask_at, const REAL *max)
{
	_Alignas(CPA_HOST_ALIGN) REAL most[WIDE];
	struct NAME(step) step = {.m = lanes->state.m + c * WIDE,
		.l = lanes->state.l + c * WIDE,
		.p = lanes->p + c * CPA_KEY_BLOCK * WIDE,
		.shrink = lanes->shrink + c * WIDE,
		.n = lanes->nkeys,
		.first = lanes->first,
		.end = lanes->end,
		.dtype = lanes->unit->call->attend->problem->dtype};

	if (max) {
		NAME(weigh_any)(&step, 1, max);
		return;
	}
	memcpy(most, step.m, sizeof most);
	if (mask_at)
		NAME(lanes_bias)(lanes, c, mask_at, &step);
	NAME(hide)(&step, 1, 0, step.n, most);
	NAME(weigh_any)(&step, 1, most);
}

/* ---- a unit ---- */

/* One block: those keys, the first of which is kept key `start`. */
static void NAME(lanes_block)(void *context, struct cpa_range keys, int64_t start)
{
	struct NAME(lanes) *lanes = context;
	const struct cpa_attend_call *call = lanes->unit->call;
	const int64_t n = lanes->nheads * WIDE;
	int64_t mask_at[CPA_KEY_BLOCK];
	_Alignas(CPA_HOST_ALIGN) REAL max[CPA_UNIT_ROWS];
	bool clear;

	lanes->nkeys = keys.end - keys.start;
	clear = NAME(lanes_look)(lanes, start) && !call->k_ids;
	for (int64_t i = 0; call->k_ids && i < lanes->nkeys; i++)
		mask_at[i] = call->k_ids[keys.start + i] * call->attend->problem->rule.mask.key;
	lanes->k = NAME(few_at)(lanes->unit, &call->attend->k, keys.start);
	lanes->v = NAME(few_at)(lanes->unit, &call->attend->v, keys.start);
	memcpy(max, lanes->state.m, (size_t)n * sizeof *max);
	for (int c = 0; c < lanes->nheads; c += lanes->k.together)
		NAME(lanes_scores)(lanes, c, c + lanes->k.together, clear ? max : NULL);
	for (int c = 0; c < lanes->nheads; c++)
		NAME(lanes_weights)
	(lanes, c, call->k_ids ? mask_at : NULL, clear ? max + c * WIDE : NULL);
	for (int c = 0; c < lanes->nheads; c += lanes->v.together)
		NAME(lanes_values)(lanes, c, c + lanes->v.together);
}

/* Queries of key head c, by parts. */
static void NAME(lanes_queries)(const struct NAME(lanes) * lanes, int c)
{
	const int64_t D = lanes->D, end = NAME(lanes_round)(D);
	const int n = lanes->unit->n;
	REAL *q = lanes->q + c * end * WIDE;

	NAME(load_rows)(lanes->unit, c * n, n, lanes->row, lanes->row_step, q, WIDE);
	memset(q + D * WIDE, 0, (size_t)((end - D) * WIDE) * sizeof(REAL));
	for (int64_t d = 0; d < end; d += PART)
		NAME(turn_parts)((VECTOR *)(void *)(q + d * WIDE));
}

static void NAME(lanes_attend)(
	const struct cpa_attend_unit *unit, int split, char *memory, char *state)
{
	struct NAME(lanes) lanes = {0};

	NAME(lanes_begin)(&lanes, unit, memory, state);
	for (int i = 0; i < lanes.nheads * WIDE; i++) {
		lanes.state.m[i] = -REAL_MAX;
		lanes.state.l[i] = 0;
	}
	memset(lanes.state.o, 0, (size_t)(lanes.nheads * WIDE * lanes.Dv) * sizeof(REAL));
	for (int c = 0; c < lanes.nheads; c++)
		NAME(lanes_queries)(&lanes, c);
	cpa_unit_blocks(unit, &lanes.sight, split, NAME(lanes_block), &lanes);
}

static void NAME(lanes_finish)(const struct cpa_attend_unit *unit, char *memory, char *states)
{
	struct NAME(lanes) lanes = {0};

	NAME(lanes_begin)(&lanes, unit, memory, states);
	for (int c = 0; c < lanes.nheads; c++) {
		const struct NAME(panel) panel = {.first = c * WIDE, .nvectors = 1};

		for (int s = 1; s < unit->nsplits; s++) {
			struct NAME(state) other = NAME(state_of)(
				(REAL *)(void *)(states + unit->call->state_nbytes * (size_t)s),
				lanes.nheads * WIDE);

			NAME(join)(&panel, lanes.Dv, &lanes.state, &other);
		}
		NAME(store_rows)
		(unit, c * unit->n, unit->n, lanes.row, lanes.row_step,
			lanes.state.o + c * lanes.Dv * WIDE, WIDE, lanes.state.m + c * WIDE,
			lanes.state.l + c * WIDE);
	}
	if (unit->call->streams_o)
		NAME(stream_end)();
}

static const struct cpa_attend_type NAME(lanes_type) = {
	.lanes = WIDE,
	.takes = NAME(lanes_takes),
	.together = NAME(LANES_HEADS) * WIDE,
	.chain_key = (3 + CPA_CPU_EXP_ERROR) / CPA_KEY_BLOCK,
	.space_nbytes = NAME(lanes_space_nbytes),
	.state_nbytes = NAME(lanes_state_nbytes),
	.attend = NAME(lanes_attend),
	.finish = NAME(lanes_finish),
};
