/*
 * diagnose_take.c - one row over the keys that a faulty run took for it.
 */
#include "harness/diagnose_take.h"

#include <math.h>
#include <string.h>

static int64_t kv_head(const struct cpa_problem *p, int64_t h)
{
	return h / (p->Hq / p->Hkv);
}

struct cpa_take cpa_take_right(
	struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown)
{
	struct cpa_take take = {.s = s,
		.row = row,
		.b = row->b,
		.t = row->t,
		.h = row->h,
		.nkeys = s->problem->Skv,
		.rule = s->problem->rule,
		.factor = 1.0};

	if (unknown)
		memcpy(take.unknown, unknown, sizeof take.unknown);
	return take;
}

static struct cpa_taken take_right(const struct cpa_take *take, int64_t i)
{
	int64_t kv = kv_head(take->s->problem, take->h);

	return (struct cpa_taken){.b = take->b,
		.j = i,
		.kv = kv,
		.v_b = take->b,
		.v = i,
		.v_kv = kv,
		.rule = &take->rule,
		.t = take->t,
		.id = i,
		.mask_b = take->b,
		.mask_h = take->h,
		.mask_t = take->t,
		.mask_j = i,
		.factor = take->factor};
}

/* The keys that were asked for last: rows of one rule seldom change. */
struct seen {
	const struct cpa_rule *rule;
	int64_t b, t;
	struct cpa_range keys;
};

static bool is_seen(const struct cpa_take *take, const struct cpa_taken *x, struct seen *seen)
{
	if (x->id < 0)
		return true;
	if (seen->rule != x->rule || seen->b != x->mask_b || seen->t != x->t) {
		struct cpa_problem p = *take->s->problem;

		p.rule = *x->rule;
		*seen = (struct seen){
			x->rule, x->mask_b, x->t, cpa_rule_row(&p, x->mask_b, x->t)};
	}
	return x->id >= seen->keys.start && x->id < seen->keys.end;
}

/* What the dense mask adds. */
static double added(const struct cpa_taken *x)
{
	const struct cpa_mask *mask = &x->rule->mask;
	int64_t at = x->mask_b * mask->batch + x->mask_h * mask->head + x->mask_t * mask->query +
		x->mask_j * mask->key;

	if (mask->kind == CPA_MASK_NONE || x->mask_j < 0)
		return 0.0;
	if (mask->kind == CPA_MASK_BOOL)
		return ((const uint8_t *)mask->data)[at] ? 0.0 : -INFINITY;
	return cpa_load(mask->dtype, mask->data, at);
}

static double score(const struct cpa_take *take, const struct cpa_taken *x)
{
	struct cpa_suspect_row *row = (struct cpa_suspect_row *)(uintptr_t)take->row;
	bool own = take->b == row->b && take->t == row->t && take->h == row->h &&
		x->b == row->b && x->kv == kv_head(take->s->problem, row->h);
	const double *scores = own ? cpa_suspect_scores(take->s, row) : NULL;

	if (x->j < 0)
		return 0.0;
	return scores ? scores[x->j]
		      : cpa_suspect_score(take->s, take->b, take->t, take->h, x->b, x->j, x->kv);
}

/* A softmax as it grows. */
struct sum {
	double max, total, *o;
	int64_t Dv;
};

static double join(struct sum *sum, double score)
{
	if (score > sum->max) {
		double shrink = sum->max > -INFINITY ? exp(sum->max - score) : 0.0;

		for (int64_t d = 0; d < sum->Dv; d++)
			sum->o[d] *= shrink;
		sum->total *= shrink;
		sum->max = score;
	}
	double weight = exp(score - sum->max);
	sum->total += weight;
	return weight;
}

bool cpa_take_run(const struct cpa_take *take, double *o, double *lse)
{
	struct cpa_suspect *s = take->s;
	int64_t Dv = s->problem->Dv;
	struct sum sum = {-INFINITY, 0.0, o, Dv};
	struct seen seen = {0};
	double *v = s->work + s->problem->Skv;

	memset(o, 0, (size_t)Dv * sizeof *o);
	for (int64_t i = 0; i < take->nkeys; i++) {
		struct cpa_taken x = take_right(take, i);

		if ((take->key && !take->key(take, i, &x)) || !is_seen(take, &x, &seen))
			continue;
		double mask = added(&x) + x.add;
		if (mask == -INFINITY)
			continue;
		double weight = join(&sum, score(take, &x) * x.factor + mask);
		if (x.v < 0 || weight == 0.0)
			continue;
		cpa_suspect_value(s, x.v_b, x.v, x.v_kv, v);
		for (int64_t d = 0; d < Dv; d++)
			o[d] += weight * v[d];
	}
	if (take->rule.sink)
		join(&sum, take->rule.sink[take->h]);
	for (int64_t d = 0; d < Dv && sum.total > 0.0; d++)
		o[d] /= sum.total;
	*lse = sum.total > 0.0 ? sum.max + log(sum.total) : -INFINITY;
	return true;
}

bool cpa_take_other(struct cpa_suspect *s, struct cpa_suspect_row *row, int64_t b, int64_t t,
	int64_t h, double *o, double *lse)
{
	const struct cpa_truth *truth = s->checked->truth;
	int64_t n = s->checked->index[t];

	if (b == row->b && t == row->t && h == row->h)
		return false;
	if (n >= 0) {
		int64_t at = (b * truth->n + n) * s->problem->Hq + h;

		memcpy(o, truth->o + at * s->problem->Dv, (size_t)s->problem->Dv * sizeof *o);
		*lse = truth->rows[at].lse;
		return true;
	}
	struct cpa_take take = cpa_take_right(s, row, NULL);
	take.b = b;
	take.t = t;
	take.h = h;
	return cpa_take_run(&take, o, lse);
}

bool cpa_take_nothing(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, double *o, double *lse)
{
	memset(o, 0, (size_t)s->problem->Dv * sizeof *o);
	*lse = row->lse;
	return true;
}

bool cpa_take_own(const struct cpa_suspect *s, int64_t t, int64_t j)
{
	const struct cpa_places_of *q = cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RING),
				   *kv = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RING);

	return kv->shard[j] < 0 || kv->shard[j] == q->shard[t];
}

int cpa_take_heads(const struct cpa_suspect *s, int64_t h, int64_t *bounds)
{
	int64_t each = s->problem->Hq / s->U, longer = s->problem->Hq % s->U;
	int u = 0;

	bounds[0] = 0;
	bounds[1] = each + (longer > 0);
	while (h >= bounds[1]) {
		u++;
		bounds[0] = bounds[1];
		bounds[1] += each + (u < longer);
	}
	return u;
}

const struct cpa_bound *cpa_suspect_open_bound(
	const struct cpa_suspect *s, struct cpa_suspect_row *row)
{
	const struct cpa_tensors *x = &s->checked->tensors;
	struct cpa_problem open = *s->problem;
	struct cpa_bound_run run = s->run;
	struct cpa_ref_head *head = NULL;
	struct cpa_error error;
	double *o = s->work, *p = s->work + open.Dv;

	if (row->has_open)
		return &row->open;
	row->has_open = true;
	row->open = row->bound; /* out of memory: no looser */
	open.rule = (struct cpa_rule){.sink = s->problem->rule.sink};
	if (cpa_ref_head_create(&open,
		    cpa_view_bshd(x->k, open.dtype, open.Skv, open.Hkv, open.D),
		    cpa_view_bshd(x->v, open.dtype, open.Skv, open.Hkv, open.Dv), row->b,
		    kv_head(&open, row->h), &head, &error) == CPA_OK) {
		struct cpa_row all;

		cpa_ref_row(head, cpa_view_bshd(x->q, open.dtype, open.Sq, open.Hq, open.D),
			row->h, row->t, o, &all, p);
		run.problem = &open;
		cpa_bound_row(
			&run, &all, 0.0, &row->open); /* the norm counts for soft ones only */
	}
	cpa_ref_head_destroy(head);
	return &row->open;
}
