/*
 * diagnose_chunks.c - B05, B06: chunks and samples that are taken apart by other sizes than they
 * were put together by.
 */
#include <stdio.h>

#include "harness/diagnose_take.h"

static bool has_ranks(const struct cpa_suspect *s)
{
	return s->R * s->U > 1;
}

/* ---- B05: chunks of other sizes than were sent ---- */

enum { KEYS_MOVED, ROWS_MOVED, BOTH_MOVED, NMOVED };
enum { BALANCED, CEIL, NESTED, NESTED_OUTER, NRULES };

static int64_t balanced(int64_t S, int64_t P, int64_t r)
{
	return S / P + (r < S % P);
}

static int64_t size_by_rule(const struct cpa_suspect *s, int64_t rule, int64_t S, int64_t r)
{
	int64_t P = s->R * s->U, each = (S + P - 1) / P, left = S - r * each;

	switch (rule) {
	case BALANCED:
		return balanced(S, P, r);
	case CEIL:
		return left < 0 ? 0 : left < each ? left : each;
	case NESTED:
		return balanced(balanced(S, s->R, r / s->U), s->U, r % s->U);
	default:
		return balanced(balanced(S, s->U, r / s->R), s->R, r % s->R);
	}
}

/* What lies in place of token t when shards come in slots of the sizes of a rule; -1: nothing. */
static int64_t token_by_rule(
	const struct cpa_suspect *s, enum cpa_side_name side, int64_t rule, int64_t t)
{
	const struct cpa_places_of *p = cpa_places(s, side, CPA_LEVEL_RANK);
	int64_t x;

	if (p->shard[t] < 0)
		return t;
	x = cpa_places_order(p, t);
	for (int r = 0; r < p->n; r++) {
		int64_t n = size_by_rule(s, rule, p->start[p->n], r);

		if (x < n)
			return cpa_places_token(p, r, x);
		x -= n;
	}
	return -1;
}

static bool take_moved(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	x->j = x->v = token_by_rule(take->s, CPA_SIDE_KV, take->unknown[1], i);
	return true;
}

/* unknown: what, rule */
static bool predict_moved(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	int64_t t = unknown[0] == KEYS_MOVED ? row->t
					     : token_by_rule(s, CPA_SIDE_Q, unknown[1], row->t);

	if (t < 0)
		return cpa_take_nothing(s, row, o, lse);
	if (unknown[0] == ROWS_MOVED)
		return cpa_take_other(s, row, row->b, t, row->h, o, lse);
	take.t = t;
	take.key = take_moved;
	return cpa_take_run(&take, o, lse);
}

static void moved_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NMOVED;
	n[1] = s->R > 1 && s->U > 1 ? NRULES : NESTED;
}

static void describe_moved(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const what[] = {"keys are", "rows of o are", "keys and rows are"};
	static const char *const rules[] = {"balanced sizes", "sizes of ceil(S/P)",
		"sizes balanced over rings, then over ulysses ranks",
		"sizes balanced over ulysses ranks, then over rings"};

	(void)s;
	snprintf(f->text, sizeof f->text, "%s unpacked by %s, which are not those they came in",
		what[f->unknown[0]], rules[f->unknown[1]]);
}

/* ---- B06: pads between samples ---- */

static const int64_t multiples[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256};
enum { NMULTIPLES = sizeof multiples / sizeof multiples[0] };

/* What lies at x when each document is filled up to a multiple; -1: a pad. */
static int64_t token_of_packed(const struct cpa_suspect *s, int64_t multiple, int64_t x)
{
	const struct cpa_rule *rule = &s->problem->rule;

	for (int64_t n = 0; n < rule->ndocuments; n++) {
		int64_t length = rule->documents[n + 1] - rule->documents[n];
		int64_t padded = (length + multiple - 1) / multiple * multiple;

		if (x < padded)
			return x < length ? rule->documents[n] + x : -1;
		x -= padded;
	}
	return -1;
}

static bool take_packed(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	x->j = x->v = token_of_packed(take->s, multiples[take->unknown[1]], i);
	return true;
}

static bool predict_packed(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	int64_t t = token_of_packed(s, multiples[unknown[1]], row->t);

	take.key = take_packed;
	if (unknown[0] == KEYS_MOVED)
		return cpa_take_run(&take, o, lse);
	if (t < 0)
		return cpa_take_nothing(s, row, o, lse);
	return unknown[0] == ROWS_MOVED && cpa_take_other(s, row, row->b, t, row->h, o, lse);
}

static void packed_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = BOTH_MOVED;
	n[1] = NMULTIPLES;
}

static void describe_packed(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text,
		"%s taken as if documents were not padded to multiples of %lld",
		f->unknown[0] == KEYS_MOVED ? "keys are" : "rows of o are",
		(long long)multiples[f->unknown[1]]);
}

static bool has_documents(const struct cpa_suspect *s)
{
	return s->problem->rule.ndocuments > 1;
}

#define DIGITS "V = digits of batch, token and head"

const struct cpa_hypothesis cpa_hypotheses_chunks[] = {
	{"B05", "chunks are unpacked by other sizes", DIGITS, has_ranks, moved_unknowns,
		predict_moved, describe_moved, false, false},
	{"B06", "pads between documents are left in", DIGITS, has_documents, packed_unknowns,
		predict_packed, describe_packed, false, false},
	{0},
};
