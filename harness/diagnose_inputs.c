/*
 * diagnose_inputs.c - E08: ranks that started from other numbers than those of the call, and went
 * on rightly.
 */
#include "harness/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One tensor as one rank held it. */
struct own {
	const struct cpa_held *held;
	double *x; /* [nbatches, ntokens, nheads, dim] */
	int64_t *slot; /* [tokens of the tensor] where each lies, -1: nowhere */
	bool differs;
};
struct cpa_own {
	bool any; /* some rank's tensor differs */
	struct own (*at)[3]; /* [W] q k v */
};

static const char *const names[] = {"q", "k", "v"};

static int64_t find(const int64_t *ids, int64_t n, int64_t id)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] == id)
			return i;
	return -1;
}

/* Of (b, token, h); NULL: the rank does not hold it. */
static const double *own_row(const struct own *own, int64_t b, int64_t token, int64_t h)
{
	const struct cpa_held *held = own->held;
	int64_t ib, ih;

	if (!held || own->slot[token] < 0)
		return NULL;
	ib = find(held->batches, held->nbatches, b);
	ih = find(held->heads, held->nheads, h);
	if (ib < 0 || ih < 0)
		return NULL;
	return own->x + ((ib * held->ntokens + own->slot[token]) * held->nheads + ih) * held->dim;
}

static bool load_own(struct cpa_suspect *s, struct own *own, int which)
{
	const struct cpa_problem *p = s->problem;
	const struct cpa_held *held = own->held;
	int64_t S = which ? p->Skv : p->Sq, H = which ? p->Hkv : p->Hq,
		n = held->nbatches * held->ntokens * held->nheads * held->dim;
	struct cpa_error ignored;

	own->x = cpa_arena_alloc(&s->arena, ((size_t)n + 1) * sizeof *own->x);
	own->slot = cpa_arena_alloc(&s->arena, (size_t)S * sizeof *own->slot);
	if (!own->x || !own->slot ||
		cpa_recording_read_held(
			s->recording, s->call, held, CPA_DTYPE_FP64, own->x, &ignored) != CPA_OK)
		return false;
	for (int64_t t = 0; t < S; t++)
		own->slot[t] = -1;
	for (int64_t i = 0; i < held->ntokens; i++)
		if (held->tokens[i] >= 0)
			own->slot[held->tokens[i]] = i;
	for (int64_t i = 0; i < n; i++) {
		int64_t d = i % held->dim, row = i / held->dim;
		int64_t h = held->heads[row % held->nheads],
			t = held->tokens[row / held->nheads % held->ntokens],
			b = held->batches[row / held->nheads / held->ntokens];

		if (b >= 0 && t >= 0 && h >= 0)
			own->differs |= own->x[i] !=
				cpa_load(p->dtype, s->checked->data[which],
					((b * S + t) * H + h) * held->dim + d);
	}
	return true;
}

static bool load(struct cpa_suspect *s)
{
	const struct cpa_call *call = s->checked->call;

	s->own = cpa_arena_alloc(&s->arena, sizeof *s->own);
	if (s->own)
		s->own->at = cpa_arena_alloc(&s->arena, (size_t)s->W * sizeof *s->own->at);
	if (!s->own || !s->own->at)
		return false;
	for (int n = 0; n < call->nheld; n++)
		for (int which = 0; which < 3; which++) {
			struct own *own = &s->own->at[call->held[n].rank][which];

			if (strcmp(call->held[n].tensor, names[which]) != 0)
				continue;
			own->held = &call->held[n];
			if (!load_own(s, own, which))
				return false;
			s->own->any |= own->differs;
		}
	return true;
}

/* What was held before RoPE is not what the call's q and k are read as. */
static bool holds_inputs(const struct cpa_suspect *s)
{
	const struct cpa_call *call = s->checked->call;
	bool any = false;

	for (int n = 0; n < call->nheld; n++)
		any |= strchr("qkv", call->held[n].tensor[0]) != NULL;
	return any && !call->has_positions;
}

/* The row of rank `rank`, else the call's, which goes to x [dim]. */
static const double *row_of(const struct cpa_suspect *s, int rank, int which, int64_t b,
	int64_t token, int64_t h, double *x)
{
	const struct cpa_problem *p = s->problem;
	int64_t S = which ? p->Skv : p->Sq, H = which ? p->Hkv : p->Hq,
		dim = which == 2 ? p->Dv : p->D;
	const double *own = own_row(&s->own->at[rank][which], b, token, h);

	if (own)
		return own;
	for (int64_t d = 0; d < dim; d++)
		x[d] = cpa_load(
			p->dtype, s->checked->data[which], ((b * S + token) * H + h) * dim + d);
	return x;
}

/* World rank that key j comes from, for this row: its owner in the row's batch group, or the
 * worker's own copy. */
static int source(const struct cpa_suspect *s, const struct cpa_suspect_row *row, int64_t j)
{
	int64_t P = s->R * s->U;

	return s->key_rank[j] < 0 ? cpa_suspect_worker(s, row)
				  : (int)(row->rank / P * P + s->key_rank[j]);
}

static bool predict_own(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_problem *p = s->problem;
	int64_t kv = row->h / (p->Hq / p->Hkv);
	double *spare, total = 0.0, max = -INFINITY;

	(void)unknown;
	if (!s->own && !load(s))
		return false;
	if (!s->own || !s->own->any)
		return false;
	spare = s->spare ? s->spare
			 : cpa_arena_alloc(&s->arena, (size_t)(2 * p->D + p->Dv) * sizeof *spare);
	s->spare = spare;
	if (!spare)
		return false;
	const double *q = row_of(s, row->rank, 0, row->b, row->t, row->h, spare);
	memset(o, 0, (size_t)p->Dv * sizeof *o);
	for (int64_t j = 0; j < p->Skv; j++) {
		int rank = source(s, row, j);
		const double *k = row_of(s, rank, 1, row->b, j, kv, spare + p->D);
		double score = 0.0, more, scale;

		for (int64_t d = 0; d < p->D; d++)
			score += q[d] * p->scale * k[d];
		score = cpa_suspect_masked(s, &p->rule, score, row->b, row->t, row->h, j);
		more = fmax(max, score);
		if (more == -INFINITY)
			continue;
		const double *v = row_of(s, rank, 2, row->b, j, kv, spare + 2 * p->D);
		scale = exp(max - more);
		for (int64_t d = 0; d < p->Dv; d++)
			o[d] = o[d] * scale + exp(score - more) * v[d];
		total = total * scale + exp(score - more);
		max = more;
	}
	*lse = total > 0.0 ? max + log(total) : -INFINITY;
	for (int64_t d = 0; d < p->Dv && total > 0.0; d++)
		o[d] /= total;
	if (p->rule.sink) {
		double with = fmax(*lse, p->rule.sink[row->h]);

		with += log(exp(*lse - with) + exp(p->rule.sink[row->h] - with));
		for (int64_t d = 0; d < p->Dv; d++)
			o[d] *= exp(*lse - with);
		*lse = with;
	}
	return true;
}

static void describe_own(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int nranks = 0, at;

	for (int rank = 0; rank < s->W; rank++)
		for (int which = 0; which < 3; which++)
			if (s->own->at[rank][which].differs) {
				nranks += f->rank != rank;
				f->rank = rank;
			}
	at = snprintf(f->text, sizeof f->text, "other numbers than the call's on rank");
	for (int rank = 0; rank < s->W && at < 150; rank++)
		if (s->own->at[rank][0].differs || s->own->at[rank][1].differs ||
			s->own->at[rank][2].differs)
			at += snprintf(f->text + at, sizeof f->text - (size_t)at, " %d", rank);
	if (nranks != 1)
		f->rank = -1;
}

const struct cpa_hypothesis cpa_hypotheses_inputs[] = {
	{"E08", "ranks started from other numbers than those of the call",
		"the same seed on all ranks", holds_inputs, NULL, predict_own, describe_own,
		false, false},
	{0},
};
