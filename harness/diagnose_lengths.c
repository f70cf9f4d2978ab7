/*
 * diagnose_lengths.c - B01 to B04, B08: pads that are counted, and lengths that are cut.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/diagnose_take.h"

static bool has_ranks(const struct cpa_suspect *s)
{
	return s->R * s->U > 1;
}

/* Shards are not all of one size. */
static bool is_uneven(const struct cpa_suspect *s)
{
	const struct cpa_places_of *p = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RANK);

	for (int r = 0; r < p->n; r++)
		if (cpa_places_size(p, r) != p->longest)
			return true;
	return false;
}

/* ---- B01, B08: pads of zeros ---- */

enum { MOST_PADS = 256 };

/* As if npads keys of score 0 and value 0 stood beside what the row sees. */
static bool add_pads(const struct cpa_suspect *s, const struct cpa_suspect_row *row, double npads,
	double *o, double *lse)
{
	double right = row->truth->lse, max = fmax(right, 0.0), total;

	if (npads <= 0.0)
		return false;
	total = exp(right - max) + npads * exp(-max);
	for (int64_t d = 0; d < s->problem->Dv; d++)
		o[d] = row->want[d] * exp(right - max) / total;
	*lse = max + log(total);
	return true;
}

/* Pads of ring blocks that causal order does not hide from the row. */
static double pads_seen(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, bool empty)
{
	const struct cpa_places_of *q = cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RING),
				   *kv = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING);
	double npads = 0.0;

	for (int r = 0; r < kv->n; r++)
		if ((!s->problem->rule.causal || r < q->shard[row->t]) &&
			(!empty || cpa_places_size(kv, r) == 0))
			npads += (double)(kv->longest - cpa_places_size(kv, r));
	return npads;
}

/* unknown 0: those of short blocks that the row sees; n: as many in every row */
static bool predict_pads(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	double npads = unknown[0] ? (double)unknown[0] : pads_seen(s, row, false);

	return add_pads(s, row, npads, o, lse);
}

static void pads_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = MOST_PADS + 1;
}

static void describe_pads(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	if (f->unknown[0])
		snprintf(f->text, sizeof f->text,
			"%lld pad keys of zeros are counted in every row",
			(long long)f->unknown[0]);
	else
		snprintf(f->text, sizeof f->text,
			"short blocks are filled up with zeros, which are counted as keys");
}

static bool predict_empty(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	(void)unknown;
	return add_pads(s, row, pads_seen(s, row, true), o, lse);
}

/* ---- B02: stale keys in pads ---- */

enum { FIRST_ROW, LAST_ROW, ONE_BACK, TWO_BACK, NSTALE };

/* What stands in pad `index` of ring block r when ring rank `own` works on it; -1: nothing. */
static int64_t stale_key(
	const struct cpa_suspect *s, const int64_t *unknown, int own, int r, int64_t index)
{
	const struct cpa_places_of *kv = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING);
	int64_t n = cpa_places_size(kv, r), back = unknown[0] == ONE_BACK ? 1 : 2;

	if (n == 0)
		return -1;
	if (unknown[0] == FIRST_ROW)
		return cpa_places_token(kv, r, (index - n) % n);
	if (unknown[0] == LAST_ROW)
		return cpa_places_token(kv, r, n - 1);
	/* The slot held earlier blocks: the latest that was long enough.  Hop i is on block own -
	 * i (own + i). */
	for (int64_t hop = ((unknown[1] ? r - own : own - r) + kv->n) % kv->n - back; hop >= 0;
		hop -= back) {
		int64_t block = unknown[1] ? own + hop : own - hop;
		int64_t j = cpa_places_token(kv, (int)((block + kv->n) % kv->n), index);

		if (j >= 0)
			return j;
	}
	return -1;
}

static bool take_stale(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_suspect *s = take->s;
	const struct cpa_places_of *kv = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING);
	int own = cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RING)->shard[take->t];
	int64_t at = i - s->problem->Skv;

	if (at < 0)
		return true;
	if (at % kv->longest < cpa_places_size(kv, (int)(at / kv->longest)))
		return false; /* no pad */
	x->j = x->v = stale_key(s, take->unknown, own, (int)(at / kv->longest), at % kv->longest);
	x->id = x->mask_j = -1;
	return x->j >= 0;
}

/* unknown: what, direction */
static bool predict_stale(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_places_of *kv = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING);
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RING)->shard[row->t] < 0)
		return false;
	take.nkeys += kv->longest * kv->n;
	take.key = take_stale;
	return cpa_take_run(&take, o, lse);
}

static void stale_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NSTALE;
	n[1] = s->R > 2 ? 2 : 1;
}

static void describe_stale(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const names[] = {"the first rows of the block",
		"the last row of the block", "what the block before it left there",
		"what the block two before it left there"};

	(void)s;
	snprintf(f->text, sizeof f->text, "pads of short blocks are counted, and hold %s",
		names[f->unknown[0]]);
}

static bool is_uneven_ring(const struct cpa_suspect *s)
{
	return s->R > 1 && is_uneven(s);
}

/* One key that counts twice everywhere. */
static bool predict_twice(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_problem *p = s->problem;
	int64_t kv = row->h / (p->Hq / p->Hkv);
	double score = row->scores
		? row->scores[unknown[0]]
		: cpa_suspect_score(s, row->b, row->t, row->h, row->b, unknown[0], kv),
	       right = row->truth->lse, max = fmax(right, score),
	       total = exp(right - max) + exp(score - max), *v = s->work + p->Skv;

	cpa_suspect_value(s, row->b, unknown[0], kv, v);
	for (int64_t d = 0; d < p->Dv; d++)
		o[d] = (row->want[d] * exp(right - max) + v[d] * exp(score - max)) / total;
	*lse = max + log(total);
	return true;
}

static void key_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->problem->Skv;
}

static void describe_twice(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "key %lld is counted twice, as if left over in a pad",
		(long long)f->unknown[0]);
}

static bool is_unmasked(const struct cpa_suspect *s)
{
	const struct cpa_rule *rule = &s->problem->rule;

	return !rule->causal && !rule->window && !rule->documents && !rule->key_lengths &&
		rule->mask.kind == CPA_MASK_NONE;
}

/* ---- B03: one tail for many pads ---- */

enum { CUT_KEYS, CUT_MASK_OFF, CUT_MASK_ON, NCUTS };

static bool take_cut(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_places_of *kv = cpa_places(take->s, CPA_SIDE_KV, take->unknown[1]);
	int64_t j;

	if (kv->shard[i] < 0)
		return true;
	j = cpa_places_padded(kv, cpa_places_order(kv, i));
	if (take->unknown[0] == CUT_KEYS) {
		x->j = x->v = j; /* in the place and under the mask of key i */
		return true;
	}
	x->mask_j = j;
	if (take->s->problem->rule.key_lengths)
		x->id = j;
	return j >= 0 || take->unknown[0] == CUT_MASK_ON;
}

static bool predict_cut(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (unknown[0] != CUT_KEYS && take.rule.mask.kind == CPA_MASK_NONE &&
		!take.rule.key_lengths)
		return false;
	take.key = take_cut;
	return cpa_take_run(&take, o, lse);
}

static void cut_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NCUTS;
	n[1] = s->R > 1 && s->U > 1 ? CPA_LEVEL_OUTER : s->R > 1 ? 1 : CPA_LEVEL_OUTER;
}

static void describe_cut(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const names[] = {
		"keys of all ranks are joined with their pads, and cut at the end as if all pads "
		"lay there",
		"masks of all ranks are joined with their pads (hidden), and cut at the end: "
		"keys "
		"take the flag of another",
		"masks of all ranks are joined with their pads (seen), and cut at the end: keys "
		"take the flag of another"};

	(void)s;
	snprintf(f->text, sizeof f->text, "%s", names[f->unknown[0]]);
}

/* ---- B04: lengths that are floored ---- */

enum { OF_SEQUENCE, OF_SHARD, NKINDS };
enum { FLOOR_KEYS, FLOOR_ROWS, FLOOR_BOTH, NFLOORS };

static int64_t floor_unit(const struct cpa_suspect *s, int64_t which)
{
	return which == 0 ? s->R * s->U : which == 1 ? 2 * s->R * s->U : which == 2 ? s->R : s->U;
}

/* The token is beyond what a floored length leaves. */
static bool is_floored(
	const struct cpa_suspect *s, const int64_t *unknown, enum cpa_side_name side, int64_t t)
{
	int64_t S = side == CPA_SIDE_Q ? s->problem->Sq : s->problem->Skv;
	int64_t unit = floor_unit(s, unknown[2]);

	if (unknown[0] == OF_SEQUENCE)
		return t >= S / unit * unit;
	return cpa_places(s, side, CPA_LEVEL_RANK)->index[t] >= S / unit;
}

static bool take_floored(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	(void)x;
	return !is_floored(take->s, take->unknown, CPA_SIDE_KV, i);
}

/* unknown: kind, keys or rows, unit */
static bool predict_floored(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (unknown[0] == OF_SHARD && unknown[2] > 0)
		return false;
	if (unknown[1] != FLOOR_KEYS && is_floored(s, unknown, CPA_SIDE_Q, row->t))
		return cpa_take_nothing(s, row, o, lse);
	if (unknown[1] == FLOOR_ROWS)
		return false;
	take.key = take_floored;
	return cpa_take_run(&take, o, lse);
}

static void floored_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NKINDS;
	n[1] = NFLOORS;
	n[2] = s->R > 1 && s->U > 1 ? 4 : 2;
}

static void describe_floored(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const what[] = {
		"keys are dropped", "rows are dropped", "keys and rows are dropped"};

	snprintf(f->text, sizeof f->text, "%s beyond the length floored to %s%lld",
		what[f->unknown[1]],
		f->unknown[0] == OF_SHARD ? "a shard of length / " : "a multiple of ",
		(long long)floor_unit(s, f->unknown[2]));
}

#define COUNT "K = 0 and V = 1: the output is keys over keys and pads"
#define READING "V = identity: which keys have weight"

const struct cpa_hypothesis cpa_hypotheses_lengths[] = {
	{"B01", "pad keys of zeros are counted", COUNT, NULL, pads_unknowns, predict_pads,
		describe_pads, false, false},
	{"B02", "pads hold stale keys", READING, is_uneven_ring, stale_unknowns, predict_stale,
		describe_stale, false, false},
	{"B02", "a key is counted twice", READING, is_unmasked, key_unknowns, predict_twice,
		describe_twice, false, false},
	{"B03", "pads are cut off at the tail, where they do not lie", READING, is_uneven,
		cut_unknowns, predict_cut, describe_cut, false, false},
	{"B04", "a length is floored", READING, has_ranks, floored_unknowns, predict_floored,
		describe_floored, false, false},
	{"B08", "an empty block is attended as pads of zeros", COUNT, is_uneven_ring, NULL,
		predict_empty, NULL, false, false},
	{0},
};
