/*
 * diagnose_layout.c - D02 to D04, D09, D11, D12: batch items, tokens and ranks that change
 * places, and strides that are taken for others.
 */
#include <stdio.h>

#include "harness/diagnose_take.h"

static const char *const level_names[] = {
	"ring block", "rank", "ring block (ulysses ranks outermost)", "sequence"};

/* ---- D02: rows strided ---- */

/* unknown: level, how many runs, direction */
static bool predict_strided(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const int64_t runs[] = {s->R * s->U, s->U, s->R};
	const struct cpa_places_of *p = cpa_places(s, CPA_SIDE_Q, unknown[0]);
	int r = p->shard[row->t];
	int64_t n = runs[unknown[1]], size, each, i;

	if (r < 0 || (unknown[1] && n == runs[0]))
		return false;
	size = cpa_places_size(p, r);
	each = size / n;
	if (size % n != 0)
		return false;
	i = p->index[row->t];
	i = unknown[2] ? i % each * n + i / each : i % n * each + i / n;
	return cpa_take_other(s, row, row->b, p->tokens[p->start[r] + i], row->h, o, lse);
}

static void strided_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = CPA_NLEVELS;
	n[1] = 3;
	n[2] = 2;
}

static void describe_strided(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "rows of a %s come back strided in place of blocked",
		level_names[f->unknown[0]]);
}

/* Rows that the exchange gives back in reverse. */
static bool predict_reversed(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_places_of *p = cpa_places(s, CPA_SIDE_Q, unknown[0]);
	int r = p->shard[row->t];

	return r >= 0 &&
		cpa_take_other(s, row, row->b, p->tokens[p->start[r + 1] - 1 - p->index[row->t]],
			row->h, o, lse);
}

static void level_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = CPA_NLEVELS;
}

static void describe_reversed(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "rows of a %s come back in reverse order",
		level_names[f->unknown[0]]);
}

static bool has_ulysses(const struct cpa_suspect *s)
{
	return s->U > 1;
}

static bool has_ranks(const struct cpa_suspect *s)
{
	return s->R * s->U > 1;
}

/* ---- D03: batch items mixed ---- */

enum { OF_KV, OF_K, OF_V, OF_Q, OF_O, NOPERANDS };
static const char *const operand_names[] = {"k and v", "k", "v", "q", "o"};

static bool take_batch(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	(void)i;
	if (take->unknown[0] == OF_Q) {
		x->b = x->v_b = x->mask_b = take->row->b;
		return true;
	}
	if (take->unknown[0] != OF_V)
		x->b = take->unknown[3];
	if (take->unknown[0] != OF_K)
		x->v_b = take->unknown[3];
	return true;
}

/* The item of the same batch group that stands in place of b: rotated, or reversed. */
static int64_t other_batch(const struct cpa_suspect *s, int64_t kind, int64_t b)
{
	int64_t B = s->problem->B, each = B / s->N, longer = B % s->N, first = 0, n;

	for (int64_t g = 0;; g++, first += n) {
		n = each + (g < longer);
		if (b < first + n)
			break;
	}
	return kind == B - 1 ? first + n - 1 - (b - first) : first + (b - first + kind + 1) % n;
}

static bool predict_batch(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	int64_t b = other_batch(s, unknown[1], row->b);

	if (b == row->b)
		return false;
	if (unknown[0] == OF_O)
		return cpa_take_other(s, row, b, row->t, row->h, o, lse);
	if (unknown[0] == OF_Q)
		take.b = b;
	take.unknown[3] = b;
	take.key = take_batch;
	return cpa_take_run(&take, o, lse);
}

static void batch_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NOPERANDS;
	n[1] = s->problem->B > 2 ? s->problem->B : 1;
}

static void describe_batch(const struct cpa_suspect *s, struct cpa_finding *f)
{
	bool one = f->unknown[0] != OF_KV;

	(void)s;
	snprintf(f->text, sizeof f->text, "%s %s from another batch item",
		operand_names[f->unknown[0]], one ? "is" : "are");
}

static bool has_batch(const struct cpa_suspect *s)
{
	return s->problem->B > s->N;
}

/* ---- D04, D09, D11: one layout taken for another ---- */

/* Of an array of n tokens and m others: which (token, other) is read in place of it when tokens
 * are taken to be outermost and are innermost, or the other way round. */
static void exchange(bool outermost, int64_t n, int64_t m, int64_t *token, int64_t *other)
{
	int64_t at = outermost ? *token * m + *other : *other * n + *token;

	*token = outermost ? at % n : at / m;
	*other = outermost ? at / n : at % m;
}

/* What the array spans: its tokens by level, and batch items or heads from `first` on. */
struct array {
	const struct cpa_places_of *p;
	int shard;
	int64_t first, m;
};

enum { AXIS_BATCH, AXIS_HEAD, NAXES };

/* The array in which (b, t, h) of q or o, or (b, j, kv) of k or v, lies. */
static struct array array_of(
	const struct cpa_suspect *s, bool keys, int64_t axis, int64_t level, int64_t t, int64_t h)
{
	const struct cpa_problem *p = s->problem;
	struct array a = {.p = cpa_places(s, keys ? CPA_SIDE_KV : CPA_SIDE_Q, level)};
	int64_t bounds[2] = {0, p->Hq}, g = p->Hq / p->Hkv;

	a.shard = a.p->shard[t];
	if (axis == AXIS_BATCH) {
		a.m = p->B / s->N;
		return a;
	}
	/* Before the exchange a rank has all heads, after it those of its ulysses rank. */
	if (level != CPA_LEVEL_RANK)
		cpa_take_heads(s, h, bounds);
	a.first = keys ? bounds[0] / g : bounds[0];
	a.m = (keys ? (bounds[1] - 1) / g + 1 : bounds[1]) - a.first;
	return a;
}

/* Moves (b or head, token) to what is read in place of them. */
static bool misread(const struct array *a, bool outermost, int64_t *token, int64_t *other)
{
	int64_t index, at = *other - a->first;

	if (a->shard < 0 || a->m < 2)
		return false;
	index = a->p->index[*token];
	exchange(outermost, cpa_places_size(a->p, a->shard), a->m, &index, &at);
	*token = cpa_places_token(a->p, a->shard, index);
	*other = a->first + at;
	return true;
}

/* A block that was received was made contiguous by then, or only then loses its strides. */
enum { ALL_BLOCKS, OWN_OTHERWISE, OWN_ONLY, OTHERS_ONLY, NWHERE };
static const char *const where_names[] = {
	"", ", in the own block the other way", ", in the own block", ", in blocks of others"};

/* unknown: operand, axis, level, direction and where */
static bool take_strides(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const int64_t *u = take->unknown;
	int64_t where = u[3] / 2, outside = u[3] % 2;
	bool own = where == ALL_BLOCKS || cpa_take_own(take->s, take->t, i);
	struct array a = array_of(take->s, true, u[1], u[2], i, take->h);
	int64_t token = i, other = u[1] == AXIS_BATCH ? x->b : x->kv;

	if (where == (own ? OTHERS_ONLY : OWN_ONLY) ||
		!misread(&a, outside != (own && where == OWN_OTHERWISE), &token, &other))
		return true;
	if (u[0] != OF_V) {
		x->j = token;
		*(u[1] == AXIS_BATCH ? &x->b : &x->kv) = other;
	}
	if (u[0] != OF_K) {
		x->v = token;
		*(u[1] == AXIS_BATCH ? &x->v_b : &x->v_kv) = other;
	}
	return true;
}

/* q of another row is read; everything else is that of the row itself. */
static bool take_own_keys(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_suspect_row *row = take->row;

	(void)i;
	x->b = x->v_b = x->mask_b = row->b;
	x->kv = x->v_kv = row->h / (take->s->problem->Hq / take->s->problem->Hkv);
	x->t = x->mask_t = row->t;
	x->mask_h = row->h;
	return true;
}

static bool predict_row_strides(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	struct array a = array_of(s, false, unknown[1], unknown[2], row->t, row->h);

	if (!misread(&a, unknown[3], &take.t, unknown[1] == AXIS_BATCH ? &take.b : &take.h))
		return false;
	if (unknown[0] == OF_O)
		return cpa_take_other(s, row, take.b, take.t, take.h, o, lse);
	take.key = take_own_keys;
	return (take.t != row->t || take.b != row->b || take.h != row->h) &&
		cpa_take_run(&take, o, lse);
}

static bool predict_strides(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	const struct cpa_problem *p = s->problem;

	if (unknown[1] == AXIS_BATCH ? p->B < 2 : p->Hq < 2)
		return false;
	if (unknown[0] >= OF_Q)
		return predict_row_strides(s, row, unknown, o, lse);
	if (unknown[1] == AXIS_HEAD && p->Hkv < 2)
		return false;
	take.key = take_strides;
	return cpa_take_run(&take, o, lse);
}

static bool predict_q_strides(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t of_q[CPA_NUNKNOWNS] = {OF_Q, unknown[1], unknown[2], unknown[3]};

	return predict_strides(s, row, of_q, o, lse);
}

static bool predict_o_strides(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t of_o[CPA_NUNKNOWNS] = {OF_O, unknown[1], unknown[2], unknown[3]};

	return predict_strides(s, row, of_o, o, lse);
}

static void row_strides_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[1] = NAXES;
	n[2] = CPA_NLEVELS;
	n[3] = 2;
}

static void key_strides_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	row_strides_unknowns(s, n);
	n[0] = OF_Q;
	n[3] = s->R > 1 ? 2 * NWHERE : 2;
}

static const char *axis_name(const struct cpa_finding *f)
{
	return f->unknown[1] == AXIS_BATCH ? "batch items" : "heads";
}

static void describe_key_strides(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"strides of %s are ignored: its %s lie %s its tokens%s (by %s)",
		operand_names[f->unknown[0]], axis_name(f),
		f->unknown[3] % 2 ? "outside" : "inside", where_names[f->unknown[3] / 2],
		level_names[f->unknown[2]]);
}

static void describe_q_strides(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"q is taken in the shape of another layout: %s and tokens are exchanged (in a "
		"%s)",
		axis_name(f), level_names[f->unknown[2]]);
}

static void describe_o_strides(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"o is gathered along the wrong axis: %s and tokens are exchanged (in a %s)",
		axis_name(f), level_names[f->unknown[2]]);
}

/* ---- D12: ranks in another order ---- */

enum { ROWS, KEYS, NSIDES };

static int64_t npairs(const struct cpa_suspect *s)
{
	int64_t P = s->R * s->U;

	return P * (P - 1) / 2;
}

static void pair_of(int64_t i, int *a, int *b)
{
	for (*b = 1; i >= *b; ++*b)
		i -= *b;
	*a = (int)i;
}

/* Which rank stands in place of r: a pair changes places; then all of them, by the transposed
 * mesh both ways, and rotated. */
static int rank_in_place(const struct cpa_suspect *s, int64_t kind, int r)
{
	int R = (int)s->R, U = (int)s->U, a, b;

	if (kind < npairs(s)) {
		pair_of(kind, &a, &b);
		return r == a ? b : r == b ? a : r;
	}
	kind -= npairs(s);
	if (kind == 0)
		return r % R * U + r / R;
	if (kind == 1)
		return r % U * R + r / U;
	return (r + (int)kind - 1) % (R * U);
}

static int64_t nplaces(const struct cpa_suspect *s)
{
	return npairs(s) + 2 + s->R * s->U - 1;
}

/* The token at the same index of the rank in its place; itself where that has none. */
static int64_t token_in_place(
	const struct cpa_suspect *s, enum cpa_side_name side, int64_t kind, int64_t t)
{
	const struct cpa_places_of *p = cpa_places(s, side, CPA_LEVEL_RANK);
	int64_t other = p->shard[t] < 0
		? t
		: cpa_places_token(p, rank_in_place(s, kind, p->shard[t]), p->index[t]);

	return other < 0 ? t : other;
}

static bool take_in_place(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	x->j = x->v = token_in_place(take->s, CPA_SIDE_KV, take->unknown[1], i);
	return true;
}

/* unknown: rows or keys, which ranks */
static bool predict_places(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (unknown[0] == ROWS)
		return cpa_take_other(s, row, row->b,
			token_in_place(s, CPA_SIDE_Q, unknown[1], row->t), row->h, o, lse);
	take.key = take_in_place;
	return cpa_take_run(&take, o, lse);
}

static void places_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NSIDES;
	n[1] = nplaces(s);
}

static void describe_places(const struct cpa_suspect *s, struct cpa_finding *f)
{
	const char *what = f->unknown[0] == ROWS ? "rows" : "keys and values";
	int64_t kind = f->unknown[1], n = npairs(s);
	int a, b;

	if (kind < n) {
		pair_of(kind, &a, &b);
		if (f->unknown[0] == ROWS)
			f->rank = a;
		snprintf(f->text, sizeof f->text, "%s of ranks %d and %d change places", what, a,
			b);
	} else if (kind < n + 2)
		snprintf(f->text, sizeof f->text,
			"%s of ranks are put where the mesh with its axes exchanged has them",
			what);
	else
		snprintf(f->text, sizeof f->text,
			"%s of rank r stand where those of r - %d belong", what,
			(int)(kind - n - 1));
}

#define DIGITS "V = digits of batch, token and head"

const struct cpa_hypothesis cpa_hypotheses_layout[] = {
	{"D02", "rows are strided", DIGITS, has_ulysses, strided_unknowns, predict_strided,
		describe_strided, false, false},
	{"D02", "rows are reversed", DIGITS, has_ulysses, level_unknowns, predict_reversed,
		describe_reversed, false, false},
	{"D03", "batch items are mixed", DIGITS, has_batch, batch_unknowns, predict_batch,
		describe_batch, false, false},
	{"D04", "q has the shape of another layout", DIGITS, NULL, row_strides_unknowns,
		predict_q_strides, describe_q_strides, false, false},
	{"D09", "strides are ignored", "the same run on contiguous copies", NULL,
		key_strides_unknowns, predict_strides, describe_key_strides, false, false},
	{"D11", "o is gathered along the wrong axis", DIGITS, NULL, row_strides_unknowns,
		predict_o_strides, describe_o_strides, false, false},
	{"D12", "ranks stand in another order", DIGITS, has_ranks, places_unknowns,
		predict_places, describe_places, false, false},
	{0},
};
