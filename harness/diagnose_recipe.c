/*
 * diagnose_recipe.c - how a row comes about from scores, blocks and merges, right or with a
 * fault.
 */
#include <math.h>
#include <string.h>

#include "harness/diagnose.h"

static int64_t kv_head(const struct cpa_problem *p, int64_t h)
{
	return h / (p->Hq / p->Hkv);
}

double cpa_suspect_score(const struct cpa_suspect *s, int64_t b, int64_t t, int64_t h,
	int64_t b_k, int64_t j, int64_t kv)
{
	const struct cpa_problem *p = s->problem;
	const struct cpa_tensors *x = &s->checked->tensors;
	int64_t q = ((b * p->Sq + t) * p->Hq + h) * p->D,
		k = ((b_k * p->Skv + j) * p->Hkv + kv) * p->D;
	double sum = 0.0;
	for (int64_t d = 0; d < p->D; d++)
		sum += cpa_load(p->dtype, x->q, q + d) * p->scale *
			cpa_load(p->dtype, x->k, k + d);
	return sum;
}

const double *cpa_suspect_scores(struct cpa_suspect *s, struct cpa_suspect_row *row)
{
	const struct cpa_problem *p = s->problem;
	if (row->scores)
		return row->scores;
	row->scores = cpa_arena_alloc(&s->arena, (size_t)p->Skv * sizeof *row->scores);
	for (int64_t j = 0; row->scores && j < p->Skv; j++)
		row->scores[j] = cpa_suspect_score(
			s, row->b, row->t, row->h, row->b, j, kv_head(p, row->h));
	return row->scores;
}

/* keys: what the row sees by interval; mask_score: with the dense mask too. */
static double mask_score(const struct cpa_rule *rule, struct cpa_range keys, double score,
	int64_t b, int64_t t, int64_t h, int64_t j)
{
	const struct cpa_mask *mask = &rule->mask;
	int64_t at = b * mask->batch + h * mask->head + t * mask->query + j * mask->key;
	if (j < keys.start || j >= keys.end)
		return -INFINITY;
	if (mask->kind == CPA_MASK_BOOL)
		return ((const uint8_t *)mask->data)[at] ? score : -INFINITY;
	return mask->kind == CPA_MASK_BIAS ? score + cpa_load(mask->dtype, mask->data, at)
					   : score;
}

double cpa_suspect_masked(const struct cpa_suspect *s, const struct cpa_rule *rule, double score,
	int64_t b, int64_t t, int64_t h, int64_t j)
{
	struct cpa_problem p = *s->problem;
	p.rule = *rule;
	return mask_score(rule, cpa_rule_row(&p, b, t), score, b, t, h, j);
}

/* The row's own keys by the rule of the call. */
static double right_score(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, int64_t j)
{
	return mask_score(
		&s->problem->rule, row->keys, row->scores[j], row->b, row->t, row->h, j);
}

void cpa_suspect_value(const struct cpa_suspect *s, int64_t b, int64_t j, int64_t kv, double *v)
{
	const struct cpa_problem *p = s->problem;
	size_t at = (size_t)(((b * p->Skv + j) * p->Hkv + kv) * p->Dv) *
		cpa_dtype_nbytes(p->dtype);
	cpa_convert(CPA_DTYPE_FP64, v, p->dtype, (const char *)s->checked->tensors.v + at, p->Dv);
}

int cpa_suspect_block(const struct cpa_suspect *s, int64_t j)
{
	return s->key_rank[j] < 0 ? -1 : s->key_rank[j] / (int)s->U;
}

int64_t cpa_suspect_place(const struct cpa_suspect *s, int64_t j)
{
	return s->key_place[j];
}

int cpa_suspect_ring(const struct cpa_suspect *s, const struct cpa_suspect_row *row)
{
	int cp = s->query_rank[row->t];
	return cp < 0 ? (int)(row->rank % (s->R * s->U) / s->U) : cp / (int)s->U;
}

int cpa_suspect_worker(const struct cpa_suspect *s, const struct cpa_suspect_row *row)
{
	int64_t P = s->R * s->U, n = s->problem->Hq / s->U, more = s->problem->Hq % s->U, u;
	u = row->h < more * (n + 1) ? row->h / (n + 1) : more + (row->h - more * (n + 1)) / n;
	return (int)(row->rank / P * P + cpa_suspect_ring(s, row) * s->U + u);
}

static void add_value(double *o, const double *v, double weight, int64_t Dv)
{
	for (int64_t d = 0; d < Dv; d++)
		o[d] += weight * v[d];
}

void cpa_suspect_attend(struct cpa_suspect *s, const struct cpa_rule *rule, int64_t b, int64_t t,
	int64_t h, int64_t kv, double *o, double *lse)
{
	const struct cpa_problem *p = s->problem;
	double max = -INFINITY, total = 0.0, *v = s->work + p->Skv;
	if (!rule)
		rule = &p->rule;
	for (int64_t j = 0; j < p->Skv; j++) {
		s->work[j] = cpa_suspect_masked(
			s, rule, cpa_suspect_score(s, b, t, h, b, j, kv), b, t, h, j);
		max = fmax(max, s->work[j]);
	}
	if (rule->sink)
		max = fmax(max, rule->sink[h]);
	memset(o, 0, (size_t)p->Dv * sizeof *o);
	for (int64_t j = 0; j < p->Skv; j++) {
		double weight = max > -INFINITY ? exp(s->work[j] - max) : 0.0;
		if (weight == 0.0)
			continue;
		cpa_suspect_value(s, b, j, kv, v);
		add_value(o, v, weight, p->Dv);
		total += weight;
	}
	if (rule->sink)
		total += exp(rule->sink[h] - max);
	for (int64_t d = 0; d < p->Dv; d++)
		o[d] = total > 0.0 ? o[d] / total : 0.0;
	*lse = total > 0.0 ? max + log(total) : -INFINITY;
}

/* ---- recipes ---- */

/* Keys from first to end of s->block_keys, and pads: one partial.  Returns its lse. */
static double attend_block(const struct cpa_recipe *recipe, struct cpa_recipe_at *at,
	int64_t first, int64_t end, double *o)
{
	struct cpa_suspect *s = at->s;
	const struct cpa_problem *p = s->problem;
	const double *scores = cpa_suspect_scores(s, at->row);
	double npads = recipe->pads ? recipe->pads(at) : 0.0, total,
	       max = npads > 0.0 ? 0.0 : -INFINITY;
	double *v = s->work + p->Skv;
	memset(o, 0, (size_t)p->Dv * sizeof *o);
	for (int64_t i = first; i < end && scores; i++) {
		int64_t j = s->block_keys[i];
		s->work[i] = recipe->score ? recipe->score(at, j) : right_score(s, at->row, j);
		max = fmax(max, s->work[i]);
	}
	total = npads > 0.0 ? npads * exp(-max) : 0.0;
	for (int64_t i = first; i < end && max > -INFINITY; i++) {
		int64_t j = s->block_keys[i], from = recipe->value ? recipe->value(at, j) : j;
		double weight = exp(s->work[i] - max) *
			(recipe->times ? recipe->times(at, j) : 1.0);
		if (weight == 0.0)
			continue;
		total += weight;
		if (from < 0)
			continue;
		cpa_suspect_value(s, at->row->b, from, kv_head(p, at->row->h), v);
		add_value(o, v, weight, p->Dv);
	}
	for (int64_t d = 0; d < p->Dv; d++)
		o[d] = total > 0.0 ? o[d] / total : 0.0;
	return total > 0.0 ? max + log(total) : -INFINITY;
}

/* a = merge(a, b), both with o [Dv]. */
static void merge(double *o, double *lse, const double *o_b, double lse_b, int64_t Dv)
{
	double max = fmax(*lse, lse_b), x, y;
	if (max == -INFINITY)
		return;
	x = exp(*lse - max);
	y = exp(lse_b - max);
	for (int64_t d = 0; d < Dv; d++)
		o[d] = (x * o[d] + y * o_b[d]) / (x + y);
	*lse = max + log(x + y);
}

/* The next partial joins what there is; nmerged counts blocks that saw a key. */
static void join(const struct cpa_recipe *recipe, double *o, double *lse, const double *o_b,
	double lse_b, int64_t Dv, int *nmerged)
{
	switch (recipe->merge) {
	case CPA_RECIPE_SOFTMAX:
		merge(o, lse, o_b, lse_b, Dv);
		break;
	case CPA_RECIPE_OVERWRITE:
		memcpy(o, o_b, (size_t)Dv * sizeof *o);
		*lse = lse_b;
		break;
	case CPA_RECIPE_MEAN:
		for (int64_t d = 0; d < Dv && lse_b > -INFINITY; d++)
			o[d] = (*nmerged * o[d] + o_b[d]) / (*nmerged + 1);
		*lse = lse_b > -INFINITY ? lse_b : *lse;
		break;
	}
	*nmerged += lse_b > -INFINITY;
}

int cpa_recipe_block(const struct cpa_recipe_at *at, int hop)
{
	int64_t R = at->s->R, ring = at->ring - (int64_t)hop * at->direction;
	return (int)((ring % R + R) % R);
}

void cpa_recipe_run(
	const struct cpa_recipe *recipe, struct cpa_recipe_at *at, double *o, double *lse)
{
	struct cpa_suspect *s = at->s;
	const struct cpa_problem *p = s->problem;
	double *partial = s->work + p->Skv + p->Dv;
	int nmerged = 0;
	at->ring = recipe->ring ? recipe->ring(at) : cpa_suspect_ring(s, at->row);
	at->last_lse = NAN;
	at->njoined = 0;
	if (at->direction == 0)
		at->direction = 1;
	memset(o, 0, (size_t)p->Dv * sizeof *o);
	*lse = recipe->has_start ? recipe->start_lse : -INFINITY;
	for (int hop = -1; hop < s->R; hop++) {
		at->hop = hop;
		at->block = hop < 0 ? -1 : cpa_recipe_block(at, hop);
		int64_t first = at->block < 0 ? 0 : s->block_start[at->block];
		int64_t end = s->block_start[at->block + 1];
		if (hop < 0 && first == end)
			continue; /* nothing is replicated */
		if (recipe->passes && recipe->passes(at))
			continue;
		double own = attend_block(recipe, at, first, end, partial);
		double lse_b = recipe->partial ? recipe->partial(at, own, partial) : own;
		if (recipe->join)
			recipe->join(at, o, lse, partial, lse_b);
		else
			join(recipe, o, lse, partial, lse_b, p->Dv, &nmerged);
		at->last_lse = own;
		at->njoined++;
		if (recipe->merged)
			recipe->merged(at, lse, o);
	}
	if (p->rule.sink && !recipe->no_sink) {
		memset(partial, 0, (size_t)p->Dv * sizeof *partial);
		merge(o, lse, partial, p->rule.sink[at->row->h], p->Dv);
	}
}
