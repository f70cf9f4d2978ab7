/*
 * diagnose_order.c - C01 to C08: the order of tokens, and by which place they are masked.
 */
#include <stdio.h>

#include "harness/diagnose_take.h"

static bool has_order(const struct cpa_suspect *s)
{
	return s->R * s->U > 1 && (s->problem->rule.causal || s->problem->rule.window);
}

static bool is_plain_causal(const struct cpa_suspect *s)
{
	return has_order(s) && !s->problem->rule.window && !cpa_places_striped(s);
}

static bool is_striped_causal(const struct cpa_suspect *s)
{
	return has_order(s) && !s->problem->rule.window && cpa_places_striped(s);
}

static bool has_window(const struct cpa_suspect *s)
{
	return s->R * s->U > 1 && s->problem->rule.window;
}

static const char *const level_names[] = {
	"ring block", "rank", "ring block (ulysses ranks outermost)", "sequence"};

/* ---- by local places ---- */

enum { LOCAL_INTERVALS, LOCAL_EVERYTHING, NSCOPES };
enum { AS_GIVEN, STRICTLY, LATER_SKIPPED, NLOCALS };

/* unknown: level, scope, whether the offset is lost, how causal order goes */
static void local_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	const struct cpa_rule *rule = &s->problem->rule;

	n[0] = s->U > 1 && s->R > 1 ? CPA_LEVEL_ALL : s->U > 1 ? CPA_LEVEL_OUTER : 1;
	n[1] = rule->documents || rule->key_lengths || rule->mask.kind != CPA_MASK_NONE ? NSCOPES
											: 1;
	n[2] = rule->offset ? 2 : 1;
	n[3] = rule->causal ? NLOCALS : 1;
}

static bool take_local(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_places_of *q = cpa_places(take->s, CPA_SIDE_Q, take->unknown[0]),
				   *kv = cpa_places(take->s, CPA_SIDE_KV, take->unknown[0]);

	if (kv->shard[i] < 0)
		return true;
	if (take->unknown[3] == LATER_SKIPPED && kv->shard[i] > q->shard[take->t])
		return false;
	x->id = kv->index[i];
	x->t = q->index[take->t];
	if (take->unknown[1] == LOCAL_EVERYTHING) {
		x->mask_j = x->id;
		x->mask_t = x->t;
	}
	return true;
}

static bool predict_local(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_places_of *q = cpa_places(s, CPA_SIDE_Q, unknown[0]);
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (q->n < 2 || q->shard[row->t] < 0)
		return false;
	take.key = take_local;
	if (unknown[2])
		take.rule.offset = 0;
	take.rule.offset -= unknown[3] == STRICTLY;
	return cpa_take_run(&take, o, lse);
}

static void describe_local(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"%s is masked by places in the %s, of queries and keys alike%s%s",
		f->unknown[1] == LOCAL_EVERYTHING ? "everything" : "the order",
		level_names[f->unknown[0]],
		f->unknown[3] == STRICTLY		 ? ", the diagonal left out"
			: f->unknown[3] == LATER_SKIPPED ? ", and later blocks are skipped"
							 : "",
		f->unknown[2] ? ", the offset lost" : "");
}

/* ---- C02, C03: causal in some blocks only ---- */

enum { OTHERS, LATER, OWN };

static bool take_unmasked(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_suspect *s = take->s;
	int own = cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RING)->shard[take->t],
	    block = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING)->shard[i];
	bool unmasked = take->unknown[0] == OWN ? block == own
		: take->unknown[0] == LATER	? block > own
						: block != own;

	if (block >= 0 && own >= 0 && !unmasked)
		x->rule = &s->problem->rule;
	return true;
}

static bool predict_unmasked(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	take.rule.causal = false;
	take.key = take_unmasked;
	return cpa_take_run(&take, o, lse);
}

static bool predict_own_unmasked(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t own[CPA_NUNKNOWNS] = {OWN};

	(void)unknown;
	return predict_unmasked(s, row, own, o, lse);
}

static void unmasked_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = OWN;
}

static void describe_unmasked(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s are not masked by causal order",
		f->unknown[0] == LATER ? "blocks later in the ring"
				       : "blocks of other ring ranks");
}

static bool has_causal_ring(const struct cpa_suspect *s)
{
	return s->R > 1 && s->problem->rule.causal;
}

/* ---- C04: by the places of another order ---- */

enum { AS_CONTIGUOUS, AS_ZIGZAG, AS_STRIPED, NORDERS };
static const char *const order_names[] = {"contiguous", "zigzag", "striped"};

/* Which token index `index` of shard r would be in that order. */
static int64_t token_in_order(
	const struct cpa_places_of *p, int64_t order, int r, int64_t index, int64_t S)
{
	int64_t n = cpa_places_size(p, r), front = (n + 1) / 2, id = 0;

	if (order == AS_CONTIGUOUS)
		return p->start[r] + index;
	if (order == AS_STRIPED)
		return index * p->n + r < S ? index * p->n + r : S - 1;
	for (int i = 0; i < r; i++)
		id += index < front ? (cpa_places_size(p, i) + 1) / 2 : cpa_places_size(p, i) / 2;
	return index < front ? id + index : S - id - n + index;
}

static bool take_ordered(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_places_of *q = cpa_places(take->s, CPA_SIDE_Q, take->unknown[0]),
				   *kv = cpa_places(take->s, CPA_SIDE_KV, take->unknown[0]);

	if (kv->shard[i] < 0)
		return true;
	x->id = token_in_order(
		kv, take->unknown[1], kv->shard[i], kv->index[i], kv->start[kv->n]);
	x->t = token_in_order(
		q, take->unknown[1], q->shard[take->t], q->index[take->t], q->start[q->n]);
	return true;
}

static bool predict_order(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (cpa_places(s, CPA_SIDE_Q, unknown[0])->shard[row->t] < 0)
		return false;
	take.key = take_ordered;
	return cpa_take_run(&take, o, lse);
}

static void order_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->U > 1 && s->R > 1 ? CPA_LEVEL_ALL : s->R > 1 ? 1 : CPA_LEVEL_OUTER;
	n[1] = NORDERS;
}

static void describe_order(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"keys and queries are masked as if each %s were a shard in %s order",
		level_names[f->unknown[0]], order_names[f->unknown[1]]);
}

/* ---- C05: rows that are not put back ---- */

enum { REVERSED = NORDERS, NBACKS };

/* unknown: level, which order, direction */
static int64_t token_put_back(const struct cpa_suspect *s, const int64_t *unknown, int64_t t)
{
	const struct cpa_places_of *p = cpa_places(s, CPA_SIDE_Q, unknown[0]);
	int r = p->shard[t];
	int64_t at = p->start[p->n];

	if (r < 0)
		return t;
	if (unknown[1] == REVERSED)
		return p->tokens[p->start[r + 1] - 1 - p->index[t]];
	if (unknown[2])
		return token_in_order(p, unknown[1], r, p->index[t], at);
	/* The other way round: what would be there is looked for. */
	for (int64_t i = 0; i < at; i++) {
		int64_t token = p->tokens[i];

		if (token_in_order(p, unknown[1], p->shard[token], p->index[token], at) == t)
			return token;
	}
	return t;
}

static bool predict_put_back(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return cpa_take_other(s, row, row->b, token_put_back(s, unknown, row->t), row->h, o, lse);
}

static void put_back_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = CPA_NLEVELS;
	n[1] = NBACKS;
	n[2] = 2;
}

static void describe_put_back(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	if (f->unknown[1] == REVERSED)
		snprintf(f->text, sizeof f->text, "rows of o come back reversed within a %s",
			level_names[f->unknown[0]]);
	else
		snprintf(f->text, sizeof f->text,
			"rows of o are not put back into order: by %s, %s order taken for the "
			"true one%s",
			level_names[f->unknown[0]], order_names[f->unknown[1]],
			f->unknown[2] ? "" : ", the other way");
}

/* In a group without a ring it is D02. */
static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

/* ---- C06, C07, B07: the diagonal ---- */

static bool predict_shift(
	struct cpa_suspect *s, struct cpa_suspect_row *row, int64_t shift, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, NULL);

	if (shift == 0)
		return false;
	take.rule.offset += shift;
	return cpa_take_run(&take, o, lse);
}

static bool predict_off_by_one(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return predict_shift(s, row, unknown[0] ? 1 : -1, o, lse);
}

static void two_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 2;
}

static void describe_off_by_one(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "the diagonal is off by one: a row sees %s",
		f->unknown[0] ? "one key too many" : "one key too few");
}

enum { NO_OFFSET, END_OF_KEYS, NOFFSETS };

static bool predict_offset(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_problem *p = s->problem;
	int64_t offset = unknown[0] == NO_OFFSET ? 0 : p->Skv - p->Sq;

	return predict_shift(s, row, offset - p->rule.offset, o, lse);
}

static void describe_offset(const struct cpa_suspect *s, struct cpa_finding *f)
{
	const struct cpa_problem *p = s->problem;

	snprintf(f->text, sizeof f->text, "queries begin at key %lld in place of %lld (%s)",
		(long long)(f->unknown[0] == NO_OFFSET ? 0 : p->Skv - p->Sq),
		(long long)p->rule.offset,
		f->unknown[0] == NO_OFFSET ? "the offset is lost" : "aligned at the end");
}

/* Query by its place in the shard, key by its own: top left; or as if the shard ended at the
 * last key. */
static bool predict_corner(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_places_of *q = cpa_places(s, CPA_SIDE_Q, unknown[0]);
	int shard = q->shard[row->t];
	int64_t at;

	if (q->n < 2 || shard < 0)
		return false;
	at = q->index[row->t];
	if (unknown[1])
		at += s->problem->Skv - cpa_places_size(q, shard) - s->problem->rule.offset;
	return predict_shift(s, row, at - row->t, o, lse);
}

static void corner_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->U > 1 ? CPA_LEVEL_ALL : 1;
	n[1] = 2;
}

static void describe_corner(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "the %s queries of a %s are aligned with the %s keys",
		f->unknown[1] ? "last" : "first", level_names[f->unknown[0]],
		f->unknown[1] ? "last" : "first");
}

enum { MOST_SHIFT = 64 };

static bool predict_prefix(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t shift = unknown[0] % 2 ? unknown[0] / 2 + 2 : -(unknown[0] / 2 + 2);

	/* Without any offset it is C07. */
	return shift != -s->problem->rule.offset && predict_shift(s, row, shift, o, lse);
}

static void prefix_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = 2 * (MOST_SHIFT - 1);
}

static void describe_prefix(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "queries begin %lld keys too %s",
		(long long)f->unknown[0] / 2 + 2, f->unknown[0] % 2 ? "late" : "early");
}

static bool has_offset(const struct cpa_suspect *s)
{
	return (s->problem->rule.causal || s->problem->rule.window) &&
		(s->problem->rule.offset || s->problem->Sq != s->problem->Skv);
}

static bool has_diagonal(const struct cpa_suspect *s)
{
	return s->problem->rule.causal || s->problem->rule.window;
}

#define READING "V = identity: which keys have weight"

const struct cpa_hypothesis cpa_hypotheses_order[] = {
	{"B07", "a prefix is counted with pads", READING, has_offset, prefix_unknowns,
		predict_prefix, describe_prefix, false, false},
	{"C01", "each block is masked as if it were the first", READING, is_plain_causal,
		local_unknowns, predict_local, describe_local, false, false},
	{"C02", "future blocks are not skipped", READING, has_causal_ring, unmasked_unknowns,
		predict_unmasked, describe_unmasked, false, false},
	{"C03", "the own block is not masked by causal order", READING, has_causal_ring, NULL,
		predict_own_unmasked, NULL, false, false},
	{"C04", "the order of data and that of the mask differ", READING, has_order,
		order_unknowns, predict_order, describe_order, false, false},
	{"C05", "rows of o are not put back into order", "V = a token's own number", has_ring,
		put_back_unknowns, predict_put_back, describe_put_back, false, false},
	{"C06", "the diagonal is off by one", READING, has_diagonal, two_unknowns,
		predict_off_by_one, describe_off_by_one, false, false},
	{"C06", "stripes are masked by local places", READING, is_striped_causal, local_unknowns,
		predict_local, describe_local, false, false},
	{"C07", "the offset of queries is lost", READING, has_offset, two_unknowns,
		predict_offset, describe_offset, false, false},
	{"C07", "queries of a shard are aligned at the wrong corner", READING, has_order,
		corner_unknowns, predict_corner, describe_corner, false, false},
	{"C08", "the window goes by local places", READING, has_window, local_unknowns,
		predict_local, describe_local, false, false},
	{0},
};
