/*
 * check_blind.c - which faults a recorded run could not have shown, whatever it did: settings
 * under which a real fault passes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"

enum { MAX_SPOTS = 24, SAMPLED_ROWS = 8 };

struct spots {
	struct cpa_arena *arena;
	const char **at;
	int n;
};

static void add(struct spots *spots, bool blind, const char *text)
{
	if (blind && spots->n < MAX_SPOTS)
		spots->at[spots->n++] = text;
}

/* ---- what blocks weigh ---- */

/* owner [Skv] out: the ring rank whose block each key is in; -1: nobody's, or everybody's. */
static bool find_owners(const struct cpa_call *call, int64_t R, int64_t U, int64_t *owner)
{
	const struct cpa_problem *p = &call->problem;
	bool any = false;
	for (int64_t j = 0; j < p->Skv; j++)
		owner[j] = -1;
	for (int n = 0; n < call->nheld; n++) {
		const struct cpa_held *held = &call->held[n];
		bool keys = held->tensor[0] == 'k' || (held->tensor[0] == 'o' && p->Sq == p->Skv);
		for (int64_t t = 0; keys && t < held->ntokens; t++)
			if (held->tokens[t] >= 0) {
				owner[held->tokens[t]] = held->rank / U % R;
				any = true;
			}
	}
	return any;
}

/* Of the sampled rows: how unlike the masses of two blocks are, at most, beside what would show.
 */
struct masses {
	double spread; /* |ln mass - ln mass of another block| over what the bound lets show */
	bool empty; /* some block has no key for some row */
};

static void weigh_row(struct masses *m, const struct cpa_row *row, const double *weights,
	struct cpa_range keys, const int64_t *owner, int64_t R, double *mass)
{
	double most = 0.0, least = INFINITY;
	for (int64_t r = 0; r < R; r++)
		mass[r] = 0.0;
	for (int64_t j = keys.start; j < keys.end; j++)
		if (owner[j] >= 0)
			mass[owner[j]] += weights[j - keys.start];
	for (int64_t r = 0; r < R; r++) {
		most = mass[r] > most ? mass[r] : most;
		least = mass[r] < least ? mass[r] : least;
	}
	m->empty |= least == 0.0;
	if (most > 0.0 && row->V > 0.0)
		m->spread = fmax(m->spread, least > 0.0 ? log(most / least) : INFINITY);
}

static enum cpa_status weigh_rows(const struct cpa_checked *checked, const int64_t *owner,
	int64_t R, struct masses *m, struct cpa_error *error)
{
	const struct cpa_problem *p = &checked->call->problem;
	const struct cpa_truth *truth = checked->truth;
	struct cpa_view q = cpa_view_bshd(checked->tensors.q, p->dtype, p->Sq, p->Hq, p->D);
	struct cpa_view k = cpa_view_bshd(checked->tensors.k, p->dtype, p->Skv, p->Hkv, p->D);
	struct cpa_view v = cpa_view_bshd(checked->tensors.v, p->dtype, p->Skv, p->Hkv, p->Dv);
	double *work = malloc((size_t)(p->Skv + p->Dv + R) * sizeof *work);
	struct cpa_ref_head *head = NULL;
	enum cpa_status status = work ? cpa_ref_head_create(p, k, v, 0, 0, &head, error)
				      : cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t i = 0; i < SAMPLED_ROWS && i < truth->n && status == CPA_OK; i++) {
		int64_t t = truth->tokens[i * truth->n / SAMPLED_ROWS % truth->n];
		struct cpa_row row;
		cpa_ref_row(head, q, 0, t, work + p->Skv, &row, work);
		weigh_row(m, &row, work, cpa_rule_row(p, 0, t), owner, R, work + p->Skv + p->Dv);
	}
	cpa_ref_head_destroy(head);
	free(work);
	return status;
}

/* Merging by wrong weights moves a row by about 0.3 times the spread of ln mass, of its values.
 */
static void add_merging(
	struct spots *spots, const struct cpa_checked *checked, int64_t R, int64_t U)
{
	const struct cpa_problem *p = &checked->call->problem;
	double u = cpa_dtype_roundoff(p->dtype);
	int64_t *owner = malloc((size_t)p->Skv * sizeof *owner);
	struct masses m = {0};
	struct cpa_error ignored;
	add(spots, R == 1, "all of A: with one ring rank nothing is merged");
	if (R > 1 && owner && find_owners(checked->call, R, U, owner) &&
		weigh_rows(checked, owner, R, &m, &ignored) == CPA_OK) {
		add(spots, 0.3 * m.spread <= 4.0 * u,
			"A01, A09: the blocks of the ring weigh alike in every row, so that "
			"wrong "
			"weights are right");
		add(spots, !m.empty, "A05, A06, B08: every row sees a key in every block");
	}
	free(owner);
}

/* ---- numbers ---- */

static void add_numbers(struct spots *spots, const struct cpa_checked *checked)
{
	const struct cpa_problem *p = &checked->call->problem;
	const struct cpa_truth *truth = checked->truth;
	double most_lse = 0.0, most = -INFINITY, least = INFINITY;
	for (int64_t i = 0; i < p->B * truth->n * p->Hq; i++)
		if (truth->rows[i].nvisible > 0) {
			most_lse = fmax(most_lse, fabs(truth->rows[i].lse));
			most = fmax(most, truth->rows[i].max_score);
			least = fmin(least, truth->rows[i].max_score);
		}
	add(spots, most_lse < 1.0,
		"A03: no |lse| passes 1, so that its precision does not matter");
	add(spots, most < 88.0, "A04: no score is large enough for exp to overflow");
	add(spots, least > -6e4, "A08: no row has all its scores below -6e4");
}

/* Every feature of v the same in all tokens of a head. */
static bool values_are_alike(const struct cpa_checked *checked)
{
	const struct cpa_problem *p = &checked->call->problem;
	size_t row = cpa_token_nbytes(p, CPA_TENSOR_V);
	const char *v = checked->tensors.v;
	for (int64_t b = 0; b < p->B; b++)
		for (int64_t t = 1; t < p->Skv; t++)
			if (memcmp(v + (size_t)(b * p->Skv) * row,
				    v + (size_t)(b * p->Skv + t) * row, row) != 0)
				return false;
	return true;
}

/* ---- shapes and rules ---- */

static void add_shapes(
	struct spots *spots, const struct cpa_checked *checked, int64_t R, int64_t U)
{
	const struct cpa_call *call = checked->call;
	const struct cpa_problem *p = &call->problem;
	const struct cpa_rule *rule = &p->rule;
	int64_t P = R * U;
	bool free_keys = !rule->causal && !rule->window && !rule->documents &&
		!rule->key_lengths && rule->mask.kind == CPA_MASK_NONE;
	add(spots, p->B == 1, "D03, D04, D11: one batch item cannot be mixed up with another");
	add(spots, p->Hkv == p->Hq || p->Hkv == 1,
		"D06, D07: every map of query heads to key heads is the same here");
	add(spots, U > 1 && p->Hq % (U * U) == 0,
		"D08: the heads divide by the square of the ulysses degree");
	add(spots, free_keys && !call->has_positions,
		"C04, D12: every query sees every key, so that the order of keys does not "
		"matter");
	add(spots, fabs(p->scale * sqrt((double)p->D) - 1.0) < 1e-12,
		"C12: the scale is the default one");
	add(spots, rule->mask.kind != CPA_MASK_NONE && (rule->mask.head == 0 || p->Hq == 1),
		"C11: the mask is the same for all heads");
	add(spots, p->Sq % (2 * P) == 0 && p->Skv % (2 * P) == 0 && !rule->documents,
		"B01 to B08, C09: the length divides by twice the ranks, and is one sequence");
	add(spots, R == U && R > 1, "D12: a square mesh is the same from both sides");
	add(spots, P == 2, "A03 (growth), B05, G02, G04: these begin with three ranks");
}

const char **cpa_check_blind_spots(const struct cpa_checked *checked, struct cpa_arena *arena)
{
	const struct cpa_call *call = checked->call;
	struct spots spots = {arena, NULL, 0};
	int64_t U = call->config ? call->config->ulysses_degree : 1;
	int64_t R = call->config ? call->config->ring_degree : call->world;
	bool lse = false;
	spots.at = cpa_arena_alloc(arena, (MAX_SPOTS + 1) * sizeof *spots.at);
	if (!spots.at)
		return NULL;
	for (int n = 0; n < call->nheld; n++)
		lse |= call->held[n].tensor[0] == 'l';
	add(&spots, !lse,
		"E05, and the base of the lse that is returned: no rank's lse is recorded");
	add_merging(&spots, checked, R, U);
	add_numbers(&spots, checked);
	add(&spots, values_are_alike(checked), "F02: the values of all tokens are the same");
	add_shapes(&spots, checked, R, U);
	spots.at[spots.n] = NULL;
	return spots.at;
}
