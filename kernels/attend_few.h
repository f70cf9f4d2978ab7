/*
 * attend_few.h - attention of few rows to each key head (decoding), which is as fast as keys and
 * values come from memory, if the rest keeps up.  Part of attend_template.h.
 *
 * Memory comes fastest when it is read from one end to the other.  Where the key heads of a token
 * lie side by side, as in [B,S,H,D], they are taken in that order: a unit has several key heads
 * and goes through a block of keys twice, once for scores and once for values, whole tokens at a
 * time.  Nothing is copied: lanes are features, and numbers of 16 bits are widened in registers.
 *
 * Row i of a unit is row i % n of its key head i / n.  The weights of a row lie side by side.
 */

enum {
	NAME(FEW) = WIDE, /* rows of a key head at most */
	NAME(FEW_REGISTERS) = WIDE == 16 || (WIDE == 8 && sizeof(REAL) == 8) ? 32 : 16,
	NAME(FEW_FOUR) = WIDE < 4 ? 2 : 4, /* rows that meet a vector while it is in a register */
	NAME(FEW_GROUP) = WIDE < 16 ? NAME(FEW_FOUR) : 8, /* likewise, where there are as many */
	NAME(FEW_SUMS) = NAME(FEW_REGISTERS) / 2, /* of values */
	NAME(FEW_TOGETHER) = 32, /* rows of a unit; what is at work stays in the first cache */
	NAME(FEW_LEAST) = 16 / sizeof(REAL), /* rows of a key head, never taken as lanes */
	NAME(FEW_AHEAD) = 16384, /* bytes; what is wanted then is asked for */
	NAME(FEW_TURN) = 8192 /* bytes of tokens that are taken from one key head before the next */
};

/* Rows of k or v: of the first key of a block and the first key head; strides in bytes. */
struct NAME(few_array) {
	const char *at;
	int64_t token, head;
	int64_t ahead; /* from a row to what is asked for when it is used */
	int together; /* key heads that are taken in turn, since they lie side by side */
	int64_t turn; /* keys whose values are added up for one of them before the next */
	enum cpa_dtype dtype;
};

/* A unit at work; rows of q, o and sum are whole vectors.  The last vector of a row ends where
 * the row does, so that it overlaps the one before it; q is 0 where it does. */
struct NAME(few) {
	const struct cpa_attend_unit *unit;
	struct cpa_sight sight;
	int64_t D, Dv, q_step, o_step;
	int nrows, n; /* in all, and of a key head */
	struct NAME(few_array) k, v;
	int64_t nkeys; /* of the block */
	REAL *q; /* [row][q_step], scaled */
	REAL *products; /* [row][WIDE keys][WIDE] of which scores are the totals */
	REAL *p; /* [row][KEY_BLOCK] scores, then weights */
	REAL *sum; /* [row][o_step] values of the block */
	REAL *max, *shrink; /* [row] */
	REAL *bias; /* [KEY_BLOCK] */
	REAL *row; /* one of q or o on its way */
	REAL *m, *l, *o; /* the state: [row], [row], [row][o_step] */
	REAL *own; /* a state */
};

static int64_t NAME(few_round)(int64_t n)
{
	return (n + WIDE - 1) / WIDE * WIDE;
}

/* Whether keys and values of that type need not be brought into another form. */
static bool NAME(few_reads)(enum cpa_dtype dtype)
{
	return dtype == DTYPE ||
		(HALVES && (dtype == CPA_DTYPE_BF16 || dtype == CPA_DTYPE_FP16));
}

/* Whether so many rows of a key head are few; more are better taken as lanes, but not in short
 * vectors.  Numbers of 16 bits have to be widened for that, so they stay few for longer; and so
 * do rows where one unit has all key heads and reads memory from one end to the other. */
static bool NAME(are_few)(const struct cpa_attend *attend, int64_t rows)
{
	const bool widens = attend->k.dtype != DTYPE || attend->v.dtype != DTYPE;
	struct cpa_range kv = cpa_heads_kv(
		attend->heads, attend->problem->Hq / attend->problem->Hkv);

	if (WIDE < 8)
		return rows <= WIDE;
	if (widens)
		return rows <= WIDE / 4 * 3;
	return rows <= NAME(FEW_LEAST) ||
		(NAME(FEW_GROUP) > NAME(FEW_FOUR) && rows <= NAME(FEW_GROUP) &&
			rows * (kv.end - kv.start) <= NAME(FEW_TOGETHER));
}

static bool NAME(few_takes)(const struct cpa_attend *attend, int64_t rows)
{
	const struct cpa_problem *problem = attend->problem;

	return NAME(are_few)(attend, rows) && problem->D >= 4 * WIDE &&
		problem->Dv >= 4 * WIDE && /* or the other way */
		NAME(few_reads)(attend->k.dtype) && NAME(few_reads)(attend->v.dtype);
}

static size_t NAME(few_state_nbytes)(const struct cpa_problem *problem, int nrows)
{
	size_t n = (size_t)(2 * NAME(few_round)(nrows) +
			   nrows * NAME(few_round)(problem->Dv)) *
		sizeof(REAL);

	return cpa_whole_lines(n);
}

/* Lays it over memory; NULL: only counts.  Returns the bytes. */
static size_t NAME(few_lay)(
	struct NAME(few) * few, const struct cpa_problem *problem, int nrows, char *memory)
{
	const int64_t n = NAME(few_round)(nrows), D = NAME(few_round)(problem->D),
		      Dv = NAME(few_round)(problem->Dv);
	const struct cpa_part parts[] = {
		{&few->q, nrows * D},
		{&few->products, nrows * WIDE * WIDE},
		{&few->p, nrows * CPA_KEY_BLOCK},
		{&few->sum, nrows * Dv},
		{&few->max, n},
		{&few->shrink, n},
		{&few->bias, CPA_KEY_BLOCK},
		{&few->row, D > Dv ? D : Dv},
		{&few->own, 2 * n + nrows * Dv},
	};

	few->D = problem->D;
	few->Dv = problem->Dv;
	few->q_step = D;
	few->o_step = Dv;
	few->nrows = nrows;
	return cpa_lay_parts(parts, sizeof parts / sizeof parts[0], sizeof(REAL), memory);
}

static size_t NAME(few_space_nbytes)(const struct cpa_problem *problem, int nrows)
{
	struct NAME(few) few;

	return NAME(few_lay)(&few, problem, nrows, NULL);
}

/* states NULL: that of the space. */
static void NAME(few_begin)(struct NAME(few) * few, const struct cpa_attend_unit *unit,
	char *memory, char *states)
{
	int nrows = cpa_unit_nrows(unit);

	NAME(few_lay)(few, unit->call->attend->problem, nrows, memory);
	few->unit = unit;
	few->n = unit->n;
	few->m = states ? (REAL *)(void *)states : few->own;
	few->l = few->m + NAME(few_round)(nrows);
	few->o = few->l + NAME(few_round)(nrows);
	cpa_sight_find(unit, &few->sight);
}

CPA_INLINE void NAME(few_ask)(const char *at, int64_t nbytes)
{
	for (int64_t i = 0; i < nbytes; i += 64)
		CPA_PREFETCH_NEAR(at + i);
}

/* ---- scores ---- */

#include "kernels/attend_few_sums.h"

/* ---- weights ---- */

static void NAME(few_bias)(const struct NAME(few) * few, int r, const int64_t *keys)
{
	/* Both above 0, so that minus infinity stays what it is. */
	const REAL high = (REAL)(LOG2E / 4), low = (REAL)(LOG2E / 4 - high);
	REAL *p = few->p + r * CPA_KEY_BLOCK;
	struct cpa_unit_row row = cpa_unit_row(few->unit, r);

	NAME(read_mask)(few->unit, &row, 1, keys, few->nkeys, few->bias);
	for (int64_t j = 0; j < few->nkeys; j += WIDE) {
		VECTOR bias = AT(few->bias + j);

		AT(p + j) = NAME(fma)(bias, NAME(spread)(high),
			NAME(fma)(bias, NAME(spread)(low), AT(p + j)));
	}
}

/* Hides what row r does not see of the block, which begins at kept key `start`, up to whole
 * vectors; returns its maximum. */
static REAL NAME(few_hide)(const struct NAME(few) * few, int r, int64_t start)
{
	struct cpa_range keys = *cpa_unit_keys(few->unit, &few->sight, r);
	int64_t first = keys.start - start, end = keys.end - start;
	int64_t n = few->nkeys, all = NAME(few_round)(n);
	REAL *p = few->p + r * CPA_KEY_BLOCK;
	REAL most = few->m[r], lane[WIDE];
	VECTOR max = NAME(spread)(most);

	first = first < 0 ? 0 : first > all ? all : first;
	end = end < first ? first : end > n ? n : end;
	for (int64_t j = 0; j < first; j++)
		p[j] = -(REAL)INFINITY;
	for (int64_t j = end; j < all; j++)
		p[j] = -(REAL)INFINITY;
	for (int64_t j = 0; j < all; j += WIDE)
		max = NAME(max)(AT(p + j), max);
	memcpy(lane, &max, sizeof lane);
	for (int i = 0; i < WIDE; i++)
		most = lane[i] > most ? lane[i] : most;
	return most;
}

/* Scores of a row to weights; returns their sum.  far: 4 m may not be finite. */
CPA_INLINE REAL NAME(few_weigh)(
	REAL *p, int64_t n, REAL m, const bool far, const enum cpa_dtype dtype)
{
	const VECTOR four = NAME(spread)(4), at = NAME(spread)(far ? m : m * -4);
	VECTOR sum = {0};
	REAL lane[WIDE], all = 0;

	NO_UNROLL
	for (int64_t j = 0; j < n; j += WIDE) {
		VECTOR s = AT(p + j), weight;

		if (far)
			s = (s - at) * four;
		else
			s = NAME(fma)(s, four, at);
		weight = NAME(exp2)(s);
		sum += weight;
		if (dtype == CPA_DTYPE_BF16)
			weight = NAME(round_bf16)(weight);
		if (dtype == CPA_DTYPE_FP16)
			weight = NAME(round_fp16)(weight);
		AT(p + j) = weight;
	}
	memcpy(lane, &sum, sizeof lane);
	for (int i = 0; i < WIDE; i++)
		all += lane[i];
	return all;
}

static REAL NAME(few_weigh_any)(const struct NAME(few) * few, REAL *p, REAL m)
{
	const REAL most = REAL_MAX / 8;
	const enum cpa_dtype dtype = few->unit->call->attend->problem->dtype;

	if (!(m < most && m > -most)) {
		if (dtype == CPA_DTYPE_BF16)
			return NAME(few_weigh)(p, few->nkeys, m, true, CPA_DTYPE_BF16);
		if (dtype == CPA_DTYPE_FP16)
			return NAME(few_weigh)(p, few->nkeys, m, true, CPA_DTYPE_FP16);
		return NAME(few_weigh)(p, few->nkeys, m, true, DTYPE);
	}
	if (dtype == CPA_DTYPE_BF16)
		return NAME(few_weigh)(p, few->nkeys, m, false, CPA_DTYPE_BF16);
	if (dtype == CPA_DTYPE_FP16)
		return NAME(few_weigh)(p, few->nkeys, m, false, CPA_DTYPE_FP16);
	return NAME(few_weigh)(p, few->nkeys, m, false, DTYPE);
}

/* mask_at: where the mask has the keys of the block, or NULL. */
static void NAME(few_weights)(
	const struct NAME(few) * few, int64_t start, const int64_t *mask_at)
{
	for (int r = 0; r < few->nrows; r++) {
		if (mask_at)
			NAME(few_bias)(few, r, mask_at);
		few->max[r] = NAME(few_hide)(few, r, start);
	}
	for (int r = 0; r < few->nrows; r += WIDE) {
		VECTOR old = AT(few->m + r), new = AT(few->max + r);

		AT(few->m + r) = new;
		AT(few->shrink + r) = NAME(exp2)((old - new) * NAME(spread)(4));
	}
	for (int r = 0; r < few->nrows; r++)
		few->l[r] = few->l[r] * few->shrink[r] +
			NAME(few_weigh_any)(few, few->p + r * CPA_KEY_BLOCK, few->m[r]);
}

/* ---- a unit ---- */

#if HALVES
#define BY_DTYPE(name, call)                                                                     \
	switch (name) {                                                                          \
	case CPA_DTYPE_BF16: {                                                                   \
		enum { OF = CPA_DTYPE_BF16 };                                                    \
		call;                                                                            \
	} break;                                                                                 \
	case CPA_DTYPE_FP16: {                                                                   \
		enum { OF = CPA_DTYPE_FP16 };                                                    \
		call;                                                                            \
	} break;                                                                                 \
	default: {                                                                               \
		enum { OF = DTYPE };                                                             \
		call;                                                                            \
	}                                                                                        \
	}
#else
#define BY_DTYPE(name, call)                                                                     \
	{                                                                                        \
		enum { OF = DTYPE };                                                             \
		call;                                                                            \
	}
#endif

static void NAME(few_block)(const struct NAME(few) * few, int64_t start, const int64_t *mask_at)
{
	const int nkv = few->unit->nkv, nk = few->k.together, nv = few->v.together;

	for (int c = 0; c < nkv; c += nk)
		BY_DTYPE(few->k.dtype, NAME(few_scores)(few, (enum cpa_dtype)OF, c, c + nk))
	NAME(few_weights)(few, start, mask_at);
	for (int c = 0; c < nkv; c += nv)
		BY_DTYPE(few->v.dtype, NAME(few_values)(few, (enum cpa_dtype)OF, c, c + nv))
	for (int r = 0; r < few->nrows; r++) {
		VECTOR shrink = NAME(spread)(few->shrink[r]);

		for (int64_t d = r * few->o_step; d < (r + 1) * few->o_step; d += WIDE)
			AT(few->o + d) = NAME(fma)(shrink, AT(few->o + d), AT(few->sum + d));
	}
}
#undef BY_DTYPE

/* A row of n numbers as it is, or widened into `to`. */
static const REAL *NAME(few_widen)(enum cpa_dtype dtype, const void *from, int64_t n, REAL *to)
{
	if (dtype == DTYPE)
		return from;
	NAME(widen_rows)(dtype, from, 0, 1, n, to, false);
	return to;
}

static void NAME(few_queries)(struct NAME(few) * few)
{
	const struct cpa_attend *attend = few->unit->call->attend;
	const long double factor = attend->problem->scale * (LOG2E / 4);
	const REAL high = (REAL)factor, low = (REAL)(factor - high);
	int64_t whole = few->D / WIDE * WIDE;

	for (int r = 0; r < few->nrows; r++) {
		struct cpa_unit_row row = cpa_unit_row(few->unit, r);
		const REAL *from = NAME(few_widen)(attend->q.dtype,
			cpa_element(&attend->q,
				cpa_array_index(&attend->q, row.t, few->unit->b, row.h)),
			few->D, few->row);
		REAL *to = few->q + r * few->q_step;

		for (int64_t d = 0; d < few->q_step; d++) {
			int64_t at = d < whole ? d : few->D - WIDE + d - whole;

			to[d] = d >= whole && at < whole ? 0 : from[at] * high + from[at] * low;
		}
	}
}

/*
 * The array from key j on.  Each time the sums of a key head have their turn they are loaded and
 * stored, which one or two rows have time for; more rows take a few keys at a time.
 */
static struct NAME(few_array) NAME(few_at)(
	const struct cpa_attend_unit *unit, const struct cpa_array *array, int64_t j)
{
	int64_t size = (int64_t)cpa_dtype_nbytes(array->dtype), step, turn;
	struct NAME(few_array) at = {
		.at = cpa_element(array, cpa_array_index(array, j, unit->b, unit->kv)),
		.token = array->token * size,
		.head = array->head * size,
		.dtype = array->dtype};

	at.together = at.head * unit->nkv <= at.token ? unit->nkv : 1;
	step = at.together > 1 ? at.head * at.together : at.token;
	at.ahead = (NAME(FEW_AHEAD) / step + 1) * at.token;
	turn = NAME(FEW_TURN) / step;
	at.turn = at.together == 1 ? CPA_KEY_BLOCK
		: unit->n < 3	   ? 1
		: turn < 2	   ? 2
		: turn < 16	   ? turn
				   : 16;
	return at;
}

/* One block: those keys, the first of which is kept key `start`. */
static void NAME(few_keys)(void *context, struct cpa_range keys, int64_t start)
{
	struct NAME(few) *few = context;
	const struct cpa_attend_call *call = few->unit->call;
	int64_t mask_at[CPA_KEY_BLOCK];

	few->nkeys = keys.end - keys.start;
	for (int64_t i = 0; call->k_ids && i < few->nkeys; i++)
		mask_at[i] = call->k_ids[keys.start + i] * call->attend->problem->rule.mask.key;
	few->k = NAME(few_at)(few->unit, &call->attend->k, keys.start);
	few->v = NAME(few_at)(few->unit, &call->attend->v, keys.start);
	NAME(few_block)(few, start, call->k_ids ? mask_at : NULL);
}

static void NAME(few_attend)(
	const struct cpa_attend_unit *unit, int split, char *memory, char *state)
{
	struct NAME(few) few = {0};

	NAME(few_begin)(&few, unit, memory, state);
	memset(few.products, 0, (size_t)(few.nrows * WIDE * WIDE) * sizeof(REAL));
	memset(few.o, 0, (size_t)(few.nrows * few.o_step) * sizeof(REAL));
	for (int r = 0; r < NAME(few_round)(few.nrows); r++) {
		few.m[r] = few.max[r] = -REAL_MAX;
		few.l[r] = 0;
	}
	NAME(few_queries)(&few);
	cpa_unit_blocks(unit, &few.sight, split, NAME(few_keys), &few);
}

/* Adds the state whose maxima are at `from` to that of few. */
static void NAME(few_join)(const struct NAME(few) * few, const REAL *from)
{
	const int64_t n = NAME(few_round)(few->nrows);
	const VECTOR four = NAME(spread)(4);

	for (int64_t r = 0; r < n; r += WIDE) {
		VECTOR old = AT(few->m + r), new = AT_CONST(from + r), m = NAME(max)(new, old);
		VECTOR keep = NAME(exp2)((old - m) * four), add = NAME(exp2)((new - m) * four);

		AT(few->m + r) = m;
		AT(few->l + r) = AT(few->l + r) * keep + AT_CONST(from + n + r) * add;
		AT(few->shrink + r) = keep;
		AT(few->max + r) = add;
	}
	for (int r = 0; r < few->nrows; r++) {
		VECTOR keep = NAME(spread)(few->shrink[r]), add = NAME(spread)(few->max[r]);

		for (int64_t d = r * few->o_step; d < (r + 1) * few->o_step; d += WIDE)
			AT(few->o + d) = AT(few->o + d) * keep + AT_CONST(from + 2 * n + d) * add;
	}
}

/* Row r of o, times a factor, and its lse. */
static void NAME(few_store)(const struct NAME(few) * few, int r, REAL factor, REAL lse)
{
	const struct cpa_attend *attend = few->unit->call->attend;
	struct cpa_unit_row row = cpa_unit_row(few->unit, r);
	const int64_t whole = few->Dv / WIDE * WIDE;
	const REAL *from = few->o + r * few->o_step;
	void *at = cpa_element(
		&attend->o, cpa_array_index(&attend->o, row.t, few->unit->b, row.h));
	REAL *to = attend->o.dtype == DTYPE ? at : few->row;

	for (int64_t d = 0; d < whole; d += WIDE)
		*(NAME(loose) *)(to + d) = AT_CONST(from + d) * NAME(spread)(factor);
	if (whole < few->Dv)
		*(NAME(loose) *)(to + few->Dv - WIDE) =
			AT_CONST(from + whole) * NAME(spread)(factor);
	if (to != at)
		cpa_run_convert(attend->o.dtype, at, DTYPE, to, few->Dv);
	cpa_store(attend->lse.dtype, attend->lse.data,
		cpa_array_index(&attend->lse, row.t, few->unit->b, row.h), lse);
}

static void NAME(few_finish)(const struct cpa_attend_unit *unit, char *memory, char *states)
{
	struct NAME(few) few = {0};

	NAME(few_begin)(&few, unit, memory, states);
	for (int s = 1; s < unit->nsplits; s++)
		NAME(few_join)
	(&few,
		(const REAL *)(const void *)(states + (size_t)s * unit->call->state_nbytes));
	for (int r = 0; r < few.nrows; r += WIDE)
		AT(few.shrink + r) = NAME(conclude)(few.m + r, few.l + r, few.max + r);
	for (int r = 0; r < few.nrows; r++)
		NAME(few_store)(&few, r, few.shrink[r], few.max[r]);
}

static const struct cpa_attend_type NAME(few_type) = {
	.lanes = 1,
	.takes = NAME(few_takes),
	.together = NAME(FEW_TOGETHER),
	.chain_key = (3 + CPA_CPU_EXP_ERROR) / CPA_KEY_BLOCK,
	.space_nbytes = NAME(few_space_nbytes),
	.state_nbytes = NAME(few_state_nbytes),
	.attend = NAME(few_attend),
	.finish = NAME(few_finish),
};
