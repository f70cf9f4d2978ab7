/*
 * diagnose_positions.c - E06: tokens that were turned by the positions of others.  Only where the
 * recording holds q and k as they were before.
 */
#include "harness/diagnose.h"

#include <stdio.h>
#include <string.h>

enum map { RIGHT, LOCAL, IN_ORDER, IN_ZIGZAG, NOT_AT_ALL, TWICE, NMAPS };

/* q and k as stored, and turned by each map once it is asked for. */
struct cpa_turned {
	bool failed;
	void *stored[2], *turned[2][NMAPS];
	const struct cpa_rope *rope;
	const int64_t *positions[2];
};

static enum cpa_status load(struct cpa_suspect *s, struct cpa_turned *t, struct cpa_error *error)
{
	const struct cpa_problem *p = s->problem;
	enum cpa_status status = CPA_OK;

	for (int side = 0; side < 2 && status == CPA_OK; side++) {
		int64_t S = side ? p->Skv : p->Sq, H = side ? p->Hkv : p->Hq;

		t->stored[side] = cpa_arena_alloc(
			&s->arena, (size_t)(p->B * S * H * p->D) * cpa_dtype_nbytes(p->dtype));
		if (!t->stored[side])
			return CPA_NO_MEMORY;
		status = cpa_recording_read_stored(s->recording, s->call, side ? "k" : "q",
			p->dtype, t->stored[side], &t->rope, &t->positions[side], error);
	}
	return status;
}

/* The place in the sequence whose position token number `token` is given; -1: this map is none.
 */
static int64_t place(const struct cpa_suspect *s, int side, enum map map, int64_t token)
{
	int rank = side ? s->key_rank[token] : s->query_rank[token];
	int64_t i = side ? s->key_index[token] : s->query_index[token], before = 0;
	const int64_t *held = side ? s->nkeys : s->nqueries;
	int64_t P = s->R * s->U, n, half;

	if (rank < 0 || map == RIGHT)
		return token;
	n = held[rank];
	half = n / 2;
	for (int64_t r = 0; r < P; r++) {
		before += r < rank ? held[r] : 0;
		if (map == IN_ZIGZAG && (held[r] != n || n % 2))
			return -1;
	}
	switch (map) {
	case LOCAL:
		return i;
	case IN_ORDER:
		return before + i;
	case IN_ZIGZAG:
		return i < half ? rank * half + i : (2 * P - 1 - rank) * half + i - half;
	default:
		return token;
	}
}

/* Whether some token stands elsewhere than by each of the maps before this one. */
static bool is_new(const struct cpa_suspect *s, int side, enum map map)
{
	int64_t S = side ? s->problem->Skv : s->problem->Sq;

	for (int other = RIGHT; other < (int)map && map <= IN_ZIGZAG; other++) {
		bool same = true;

		for (int64_t t = 0; t < S && same; t++)
			same = place(s, side, map, t) == place(s, side, (enum map)other, t);
		if (same)
			return false;
	}
	return true;
}

/* NULL: this map is none here, or no memory. */
static const void *turn(struct cpa_suspect *s, int side, enum map map)
{
	const struct cpa_problem *p = s->problem;
	struct cpa_turned *t = s->turned;
	int64_t S = side ? p->Skv : p->Sq, H = side ? p->Hkv : p->Hq;
	size_t row = (size_t)(H * p->D) * cpa_dtype_nbytes(p->dtype);
	char *x;

	if (t->turned[side][map])
		return t->turned[side][map];
	if (!is_new(s, side, map))
		return NULL;
	x = cpa_arena_alloc(&s->arena, (size_t)(p->B * S) * row);
	for (int64_t i = 0; x && i < p->B * S; i++) {
		int64_t token = i % S, from = place(s, side, map, token);

		if (from < 0 || from >= S)
			return NULL;
		memcpy(x + (size_t)i * row, (char *)t->stored[side] + (size_t)i * row, row);
		if (map != NOT_AT_ALL)
			cpa_ref_rope(t->rope, (map == TWICE ? 2 : 1) * t->positions[side][from],
				H, p->dtype, x + (size_t)i * row);
	}
	t->turned[side][map] = x;
	return x;
}

static double turned_score(const struct cpa_recipe_at *at, int64_t j)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_problem *p = s->problem;
	const struct cpa_suspect_row *row = at->row;
	const void *q = s->turned->turned[0][at->unknown[0]],
		   *k = s->turned->turned[1][at->unknown[1]];
	int64_t q_at = ((row->b * p->Sq + row->t) * p->Hq + row->h) * p->D;
	int64_t k_at = ((row->b * p->Skv + j) * p->Hkv + row->h / (p->Hq / p->Hkv)) * p->D;
	double sum = 0.0;

	for (int64_t d = 0; d < p->D; d++)
		sum += cpa_load(p->dtype, q, q_at + d) * cpa_load(p->dtype, k, k_at + d);
	return cpa_suspect_masked(s, &p->rule, p->scale * sum, row->b, row->t, row->h, j);
}

static bool has_positions(const struct cpa_suspect *s)
{
	return s->checked->call->has_positions;
}

/* How q, and how k, is turned. */
static void map_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = NMAPS;
	n[1] = NMAPS;
}

static bool predict_turned(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const struct cpa_recipe recipe = {.score = turned_score};
	struct cpa_recipe_at at = {.s = s, .row = row, .unknown = {unknown[0], unknown[1]}};
	struct cpa_error ignored;

	if (unknown[0] == RIGHT && unknown[1] == RIGHT)
		return false;
	if (!s->turned) {
		s->turned = cpa_arena_alloc(&s->arena, sizeof *s->turned);
		if (s->turned)
			s->turned->failed = load(s, s->turned, &ignored) != CPA_OK;
	}
	if (!s->turned || s->turned->failed || !turn(s, 0, (enum map)unknown[0]) ||
		!turn(s, 1, (enum map)unknown[1]))
		return false;
	cpa_recipe_run(&recipe, &at, o, lse);
	return true;
}

static void describe_turned(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const by[] = {"its own positions", "the first positions on every rank",
		"the positions of contiguous shards", "the positions of zigzag shards", "nothing",
		"its positions twice"};

	(void)s;
	snprintf(f->text, sizeof f->text, "q is turned by %s, k by %s", by[f->unknown[0]],
		by[f->unknown[1]]);
}

const struct cpa_hypothesis cpa_hypotheses_positions[] = {
	{"E06", "RoPE is not cut with the tokens", "positions, and keys that tell their place",
		has_positions, map_unknowns, predict_turned, describe_turned, false, false},
	{0},
};
