/*
 * fault_attend.c - an ATTEND or a MERGE of a faulty rank, in double on the host.  Devices whose
 * memory the host cannot read are not for planting.
 */
#include "harness/fault_plant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double rope_base = 10000.0;

/* ---- what it reads ---- */

/* All of them, in double. */
static bool load_whole(struct cpa_plant *plant)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	const struct cpa_problem *p = plant->problem;
	for (int i = 0; i < 3 && !plant->whole[i]; i++) {
		int64_t n = cpa_tensor_ntokens(p, tensors[i]);
		struct cpa_span span = {0, n, n, 1};
		struct cpa_spans all = {&span, 1, 1};
		size_t nbytes = (size_t)(p->B * n) * cpa_token_nbytes(p, tensors[i]),
		       count = nbytes / cpa_dtype_nbytes(p->dtype);
		void *stored = malloc(nbytes + 1);
		double *whole = malloc((count + 1) * sizeof *whole);
		if (stored && whole) {
			plant->target.inputs.read(plant->target.inputs.context, tensors[i],
				(struct cpa_range){0, p->B}, &all, stored);
			for (size_t k = 0; k < count; k++)
				whole[k] = cpa_load(p->dtype, stored, (int64_t)k);
		}
		plant->whole[i] = stored ? whole : NULL;
		if (!stored)
			free(whole);
		free(stored);
		if (!plant->whole[i])
			return false;
	}
	return true;
}

static int64_t *list_of(struct cpa_arena *arena, int64_t n, int64_t first)
{
	int64_t *list = cpa_arena_alloc(arena, (size_t)(n + 1) * sizeof *list);
	for (int64_t i = 0; list && i < n; i++)
		list[i] = first + i;
	return list;
}

static int64_t *tokens_of(struct cpa_arena *arena, const struct cpa_spans *spans, int64_t n)
{
	int64_t *list = list_of(arena, n, 0);
	for (int64_t i = 0; list && i < n; i++)
		list[i] = cpa_spans_token(spans, i);
	return list;
}

static void init(struct cpa_spoil *x, struct cpa_plant *plant, const struct cpa_schedule *s,
	int op, struct cpa_arena *arena)
{
	const struct cpa_operand *q = &s->ops[op].reads[0], *k = &s->ops[op].reads[1];
	*x = (struct cpa_spoil){.plant = plant,
		.site = cpa_site_of(&plant->target, s, op),
		.problem = *plant->problem,
		.nq = q->box.ntokens,
		.nk = k->box.ntokens,
		.batches = q->content.batches,
		.heads = q->content.heads,
		.arena = arena};
	int64_t g = x->problem.Hq / x->problem.Hkv;
	x->nb = x->batches.end - x->batches.start;
	x->nh = x->heads.end - x->heads.start;
	x->q_id = tokens_of(arena, &q->content.tokens, x->nq);
	x->q_token = tokens_of(arena, &q->content.tokens, x->nq);
	x->k_id = tokens_of(arena, &k->content.tokens, x->nk);
	x->k_token = tokens_of(arena, &k->content.tokens, x->nk);
	x->v_token = tokens_of(arena, &k->content.tokens, x->nk);
	x->k_turn = list_of(arena, x->nk, 0);
	x->q_turn = list_of(arena, x->nq, 0);
	x->kv_head = list_of(arena, x->nh, 0);
	x->v_head = list_of(arena, x->nh, 0);
	x->mask_head = list_of(arena, x->nh, x->heads.start);
	x->q_batch = list_of(arena, x->nb, x->batches.start);
	x->kv_batch = list_of(arena, x->nb, x->batches.start);
	x->rule_batch = list_of(arena, x->nb, x->batches.start);
	x->times = cpa_arena_alloc(arena, (size_t)(x->nk + 1) * sizeof *x->times);
	x->lse_all = cpa_arena_alloc(
		arena, (size_t)(x->nb * x->nh * x->nq + 1) * sizeof *x->lse_all);
	int64_t widest = x->problem.D > x->problem.Dv ? x->problem.D : x->problem.Dv;
	double *zeros = cpa_arena_alloc(arena, (size_t)widest * sizeof *zeros);
	if (arena->failed)
		return;
	memset(zeros, 0, (size_t)widest * sizeof *zeros);
	x->zeros = zeros;
	for (int64_t j = 0; j < x->nk; j++)
		x->times[j] = 1.0;
	for (int64_t i = 0; i < x->nk; i++)
		x->k_turn[i] = 0;
	for (int64_t i = 0; i < x->nq; i++)
		x->q_turn[i] = 0;
	for (int64_t h = 0; h < x->nh; h++)
		x->kv_head[h] = x->v_head[h] = (x->heads.start + h) / g;
}

const double *cpa_spoil_row(const struct cpa_spoil *x, int tensor, int64_t b, int64_t t,
	int64_t h)
{
	const struct cpa_problem *p = x->plant->problem;
	int64_t S = tensor == 0 ? p->Sq : p->Skv, H = tensor == 0 ? p->Hq : p->Hkv;
	int64_t D = tensor == 2 ? p->Dv : p->D;
	return t < 0 || h < 0 ? x->zeros : x->plant->whole[tensor] + ((b * S + t) * H + h) * D;
}

/* Pairs (d, d + D/2), as most models have them. */
static const double *turn(const double *row, int64_t D, int64_t by, double *turned)
{
	if (by == 0)
		return row;
	memcpy(turned, row, (size_t)D * sizeof *turned);
	for (int64_t d = 0; d < D / 2; d++) {
		double angle = (double)by * pow(rope_base, -2.0 * (double)d / (double)D);
		double x = row[d], y = row[d + D / 2];
		turned[d] = x * cos(angle) - y * sin(angle);
		turned[d + D / 2] = x * sin(angle) + y * cos(angle);
	}
	return turned;
}

/* ---- one row ---- */

struct scratch {
	double *score; /* [nk] */
	double *q, *k, *o; /* q, k: turned */
};

/* Eight sums at once: a compiler may not do so of itself. */
static double dot(const double *a, const double *b, int64_t n)
{
	double sums[8] = {0}, sum = 0.0;
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (int k = 0; k < 8; k++)
			sums[k] += a[i + k] * b[i + k];
	for (; i < n; i++)
		sum += a[i] * b[i];
	for (int k = 0; k < 8; k++)
		sum += sums[k];
	return sum;
}

/* seen: keys that the rule shows to the query; q [D] its row. */
static double score_of(const struct cpa_spoil *x, const double *q, struct cpa_range seen, int64_t b,
	int64_t i, int64_t h, int64_t j, struct scratch *w)
{
	const struct cpa_problem *p = &x->problem;
	int64_t key = x->k_id[j];
	double mask = 0.0;
	if (x->times[j] == 0.0 || key < seen.start || key >= seen.end)
		return -INFINITY;
	if (p->rule.mask.kind != CPA_MASK_NONE)
		mask = cpa_mask_value(
			p, x->rule_batch[b], x->mask_head[h], x->q_id[i], key);
	if (mask == -INFINITY)
		return mask;
	const double *k = cpa_spoil_row(x, 1, x->kv_batch[b], x->k_token[j], x->kv_head[h]);
	return p->scale * dot(q, turn(k, p->D, x->k_turn[j], w->k), p->D) + mask;
}

static struct cpa_range seen_by(const struct cpa_spoil *x, int64_t b, int64_t i)
{
	int64_t t = x->q_id[i];
	return t < 0 || t >= x->problem.Sq
		       ? (struct cpa_range){0, 0}
		       : cpa_rule_row(&x->problem, x->rule_batch[b], t);
}

static double attend_row(
	const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, struct scratch *w)
{
	int64_t item = b, query = i, head = h, Dv = x->problem.Dv;
	double max = x->pads > 0.0 ? 0.0 : -INFINITY, total;
	if (x->q_from)
		x->q_from(x, &item, &query, &head);
	struct cpa_range seen = seen_by(x, b, i);
	const double *q = turn(cpa_spoil_row(x, 0, x->q_batch[item], x->q_token[query],
				       x->heads.start + head),
		x->problem.D, x->q_turn[i], w->q);
	memset(w->o, 0, (size_t)Dv * sizeof *w->o);
	for (int64_t j = 0; j < x->nk; j++) {
		w->score[j] = score_of(x, q, seen, b, i, h, j, w);
		max = fmax(max, w->score[j]);
	}
	if (max == -INFINITY)
		return max;
	total = x->pads > 0.0 ? x->pads * exp(-max) : 0.0; /* exp may overflow where there are none */
	for (int64_t j = 0; j < x->nk; j++) {
		int64_t from_b = b, from_j = j, from_h = x->v_head[h];
		double weight = x->times[j] * exp(w->score[j] - max);
		if (weight == 0.0)
			continue;
		total += weight;
		if (x->v_from)
			x->v_from(x, &from_b, &from_j, &from_h);
		const double *v =
			cpa_spoil_row(x, 2, x->kv_batch[from_b], x->v_token[from_j], from_h);
		for (int64_t d = 0; d < Dv; d++)
			w->o[d] += weight * v[d];
	}
	for (int64_t d = 0; d < Dv; d++)
		w->o[d] /= total;
	return max + log(total);
}

/* ---- memory ---- */

static int64_t at_of(const struct cpa_array *a, int64_t i, int64_t b, int64_t h)
{
	return i * a->token + b * a->batch + h * a->head;
}

static void store_row(const struct cpa_array *a, int64_t at, const double *row, int64_t dim)
{
	for (int64_t d = 0; d < dim; d++)
		cpa_store(a->dtype, a->data, at + d, row[d]);
}

static void load_partial(const struct cpa_array *a, int64_t at, double *row, int64_t dim)
{
	for (int64_t d = 0; d < dim; d++)
		row[d] = cpa_load(a->dtype, a->data, at + d);
}

static bool make_scratch(
	struct scratch *w, struct cpa_arena *arena, const struct cpa_problem *p, int64_t nk)
{
	w->score = cpa_arena_alloc(arena, (size_t)(nk + 1) * sizeof *w->score);
	w->q = cpa_arena_alloc(arena, (size_t)p->D * sizeof *w->q);
	w->k = cpa_arena_alloc(arena, (size_t)p->D * sizeof *w->k);
	w->o = cpa_arena_alloc(arena, (size_t)p->Dv * sizeof *w->o);
	return !arena->failed;
}

/* ---- ATTEND ---- */

/* The ATTEND of the same queries and heads before this one; -1: none. */
static int previous_attend(const struct cpa_schedule *s, int op)
{
	for (int i = op - 1; i >= 0; i--) {
		const struct cpa_content *a = &s->ops[i].reads[0].content,
					 *b = &s->ops[op].reads[0].content;
		if (s->ops[i].kind == CPA_OP_ATTEND && a->heads.start == b->heads.start &&
			a->heads.end == b->heads.end && cpa_spans_equal(&a->tokens, &b->tokens))
			return i;
	}
	return -1;
}

/* lse of the hop before takes the place of this one's. */
static void lse_of_previous(
	struct cpa_spoil *x, struct cpa_plant *plant, struct scratch *w, double *lse)
{
	int before = previous_attend(x->site.schedule, x->site.op);
	struct cpa_spoil y;
	if (before < 0)
		return;
	init(&y, plant, x->site.schedule, before, x->arena);
	if (!make_scratch(w, x->arena, &y.problem, y.nk))
		return;
	for (int64_t n = 0; n < x->nb * x->nh * x->nq; n++)
		if (lse[n] > -INFINITY)
			lse[n] = attend_row(&y, n / x->nq / x->nh, n % x->nq, n / x->nq % x->nh, w);
}

static bool is_wanted(const struct cpa_spoil *x, int64_t b, int64_t i)
{
	const unsigned char *wanted = x->all_lse ? NULL : x->plant->wanted;
	int64_t t = cpa_spans_token(&x->site.at->reads[0].content.tokens, i);
	return !wanted || wanted[(x->batches.start + b) * x->problem.Sq + t];
}

static void attend_all(struct cpa_spoil *x, struct cpa_plant *plant, struct cpa_exec *exec)
{
	const struct cpa_op *op = x->site.at;
	struct cpa_array o = cpa_exec_array(exec, &op->writes[0].box);
	struct cpa_array lse = cpa_exec_array(exec, &op->writes[1].box);
	struct scratch w;
	if (!make_scratch(&w, x->arena, &x->problem, x->nk))
		return;
	for (int64_t n = 0; n < x->nb * x->nh * x->nq; n++) {
		int64_t b = n / x->nq / x->nh, h = n / x->nq % x->nh, i = n % x->nq;
		x->lse_all[n] = NAN;
		if (!is_wanted(x, b, i))
			continue; /* poison stays */
		double value = attend_row(x, b, i, h, &w);
		if (x->partial)
			x->partial(x, b, i, h, w.o, &value);
		x->lse_all[n] = value;
		store_row(&o, at_of(&o, i, b, h), w.o, x->problem.Dv);
	}
	if (x->keeps_lse_of_previous)
		lse_of_previous(x, plant, &w, x->lse_all);
	if (x->all_lse)
		x->all_lse(x, x->lse_all);
	for (int64_t n = 0; n < x->nb * x->nh * x->nq; n++)
		cpa_store(lse.dtype, lse.data,
			at_of(&lse, n % x->nq, n / x->nq / x->nh, n / x->nq % x->nh),
			x->lse_all[n]);
}

void cpa_spoil_attend(struct cpa_plant *plant, struct cpa_exec *exec, int op)
{
	struct cpa_arena arena;
	struct cpa_spoil x;
	cpa_arena_init(&arena);
	init(&x, plant, cpa_exec_schedule(exec), op, &arena);
	if (load_whole(plant) && !arena.failed) {
		plant->entry->attend(&x);
		if (!arena.failed)
			attend_all(&x, plant, exec);
	}
	cpa_arena_fini(&arena);
}

/* ---- MERGE ---- */

static unsigned char *seen_at(const struct cpa_plant *plant, const struct cpa_content *c,
	int64_t i, int64_t b, int64_t h)
{
	const struct cpa_problem *p = plant->problem;
	return &plant->seen[((c->batches.start + b) * p->Sq + cpa_spans_token(&c->tokens, i)) *
				    p->Hq +
			    c->heads.start + h];
}

static bool make_seen(struct cpa_plant *plant)
{
	const struct cpa_problem *p = plant->problem;
	if (!plant->seen)
		plant->seen = calloc((size_t)(p->B * p->Sq * p->Hq), 1);
	return plant->seen;
}

void cpa_spoil_note_start(struct cpa_plant *plant, struct cpa_exec *exec, int op)
{
	const struct cpa_op *at = &cpa_exec_schedule(exec)->ops[op];
	const struct cpa_operand *lse = &at->writes[at->kind == CPA_OP_ATTEND];
	struct cpa_array a = cpa_exec_array(exec, &lse->box);
	if (!make_seen(plant))
		return;
	for (int64_t i = 0; i < lse->box.ntokens; i++)
		for (int64_t b = 0; b < lse->box.nbatches; b++)
			for (int64_t h = 0; h < lse->box.nheads; h++)
				*seen_at(plant, &lse->content, i, b, h) =
					cpa_load(a.dtype, a.data, at_of(&a, i, b, h)) >
					-INFINITY;
}

void cpa_spoil_merge(struct cpa_plant *plant, struct cpa_exec *exec, int op)
{
	const struct cpa_op *at = &cpa_exec_schedule(exec)->ops[op];
	const struct cpa_box *box = &at->writes[0].box;
	struct cpa_array to = cpa_exec_array(exec, box), in[4];
	struct cpa_array to_lse = cpa_exec_array(exec, &at->writes[1].box);
	int64_t Dv = plant->problem->Dv;
	double *a = malloc((size_t)Dv * 2 * sizeof *a);
	for (int n = 0; n < 4; n++)
		in[n] = cpa_exec_array(exec, &at->reads[n].box);
	for (int64_t n = 0; a && make_seen(plant) && n < box->ntokens * box->nbatches * box->nheads;
		n++) {
		int64_t i = n / box->nheads / box->nbatches, b = n / box->nheads % box->nbatches,
			h = n % box->nheads;
		unsigned char *seen = seen_at(plant, &at->writes[0].content, i, b, h);
		double lse_a = cpa_load(in[1].dtype, in[1].data, at_of(&in[1], i, b, h));
		double lse_b = cpa_load(in[3].dtype, in[3].data, at_of(&in[3], i, b, h));
		load_partial(&in[0], at_of(&in[0], i, b, h), a, Dv);
		load_partial(&in[2], at_of(&in[2], i, b, h), a + Dv, Dv);
		plant->entry->merge(a, &lse_a, a + Dv, lse_b, Dv, *seen);
		*seen = (unsigned char)(*seen + (lse_b > -INFINITY));
		store_row(&to, at_of(&to, i, b, h), a, Dv);
		cpa_store(to_lse.dtype, to_lse.data, at_of(&to_lse, i, b, h), lse_a);
	}
	free(a);
}
