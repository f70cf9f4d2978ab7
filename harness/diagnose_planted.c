/*
 * diagnose_planted.c - faulty runs of the recorded configuration, each compared with what was
 * recorded.
 *
 * They run in fp64, so that a prediction has no noise of its own, like those of the recipes.  Bounds
 * are made for right rows; where a faulty one may round worse, the same run in the recorded dtype
 * says by how much.
 */
#include "harness/diagnose_planted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/diagnose_stage.h"

/* Of one run.  A search is some hundred runs, a thorough one ten times as many.  Of larger calls some heads
 * are taken. */
static const double most_flop_whole = 1e9, most_flop = 2.5e10, most_flop_thorough = 5e8;
/* In bounds: what a prediction differs less by from the right row is that row. */
static const double untouched = 0.01;

/* In bounds: rounding of a faulty run may explain this much. */
static const double most_rounding = 1e3;

struct cpa_planted {
	struct cpa_suspect *s; /* its rows are those of the sample */
	struct cpa_sample sample;
	struct cpa_stage exact, rounded; /* in fp64, in the recorded dtype */
	bool has_rounded; /* of the fault that is compared now */
	int R;
	bool thorough; /* small enough for single hops, blocks and heads of all ranks */
	int worker; /* world rank that works on every wrong row, -1: there are several */
	cpa_planted_visit *visit;
	void *context;
	bool explained; /* by some run of this configuration */
};

/* ---- the configuration ---- */

static struct cpa_config config_of(
	const struct cpa_planted *p, enum cpa_order order, int direction)
{
	const struct cpa_suspect *s = p->s;
	const struct cpa_recorded_config *it = s->checked->call->config;
	enum cpa_variant variant = CPA_VARIANT_UNIFIED_ANYTHING;
	if (it && it->variant)
		(void)cpa_variant_parse(it->variant, &variant); /* or of another system */
	struct cpa_config config = cpa_config_default(variant, &p->sample.exact);
	config.batch_degree = (int)s->N;
	config.ring_degree = (int)s->R;
	config.ulysses_degree = (int)s->U;
	config.order = order;
	config.direction = direction;
	config.partials = CPA_PARTIALS_BLOCK;
	if (!it)
		return config;
	if (it->rotate >= 0)
		config.rotate = (enum cpa_rotate)it->rotate;
	if (it->mesh && strcmp(it->mesh, "batch,ulysses,ring") == 0)
		config.mesh = CPA_MESH_BATCH_ULYSSES_RING;
	if (it->split >= 0 && it->split != CPA_SPLIT_GIVEN)
		config.split = (enum cpa_split)it->split;
	if (it->sizes && it->split == CPA_SPLIT_GIVEN) {
		config.split = CPA_SPLIT_GIVEN;
		config.sizes = it->sizes;
		config.nsizes = (int)(s->R * s->U);
	}
	return config;
}

/* The tokens that a rank held are those that the plan gives it, in their order. */
static bool is_shard(const struct cpa_held *held, const struct cpa_spans *tokens)
{
	int64_t n = cpa_spans_ntokens(tokens), at = 0;
	for (int64_t i = 0; i < held->ntokens; i++) {
		if (held->tokens[i] < 0)
			continue; /* padding */
		if (at == n || cpa_spans_token(tokens, at) != held->tokens[i])
			return false;
		at++;
	}
	return at == n;
}

static bool is_as_recorded(const struct cpa_planted *p)
{
	const struct cpa_call *call = p->s->checked->call;
	const struct cpa_ranks *ranks = &p->exact.ranks;
	if (ranks->W != call->world)
		return false;
	for (int i = 0; i < call->nheld; i++) {
		const struct cpa_held *held = &call->held[i];
		bool key = held->tensor[0] == 'k' || held->tensor[0] == 'v';
		if (!is_shard(held, key ? &ranks->kv_shards[held->rank]
					: &ranks->q_shards[held->rank]))
			return false;
	}
	return true;
}

static int find_worker(const struct cpa_planted *p)
{
	int worker = -1;
	for (int i = 0; i < p->s->nrows; i++) {
		const struct cpa_suspect_row *row = &p->s->rows[i];
		int of = row->wrong ? cpa_ranks_worker(&p->exact.ranks, row->b, row->t,
					      p->sample.place[row->h])
				    : worker;
		if (worker >= 0 && of != worker)
			return -1;
		worker = of;
	}
	return worker;
}

/* ---- what it predicts ---- */

static bool differs(double x, double y, double bound)
{
	return x != y && !(isnan(x) && isnan(y)) && !(fabs(x - y) <= untouched * bound);
}

static bool predict(struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown,
	double *o, double *lse)
{
	const struct cpa_planted *p = s->planted;
	int64_t at = row - s->rows, Dv = s->problem->Dv;
	bool touched;
	(void)unknown;
	memcpy(o, p->exact.o + at * Dv, (size_t)Dv * sizeof *o);
	*lse = p->exact.lse[at];
	touched = differs(*lse, row->truth->lse, row->bound.lse);
	for (int64_t d = 0; !touched && d < Dv; d++)
		touched = differs(o[d], row->want[d],
			row->bound.o_abs + row->bound.o_rel * fabs(row->want[d]));
	return touched;
}

static void describe(const struct cpa_suspect *s, struct cpa_finding *finding)
{
	const struct cpa_planted *p = s->planted;
	const struct cpa_plant_site *site = cpa_plant_site(p->exact.plant);
	const struct {
		const char *name;
		int value;
	} places[] = {{"rank", site->rank}, {"hop", site->hop}, {"block", site->block}};
	size_t n = strlen(finding->text);
	finding->rank = site->rank;
	finding->hop = site->hop;
	finding->block = site->block;
	if (site->rank >= 0 && site->heads.end - site->heads.start == 1)
		finding->head = (int)p->sample.head[site->heads.start];
	for (int i = 0; i < 3 && n < sizeof finding->text; i++) {
		if (places[i].value < 0)
			continue;
		snprintf(finding->text + n, sizeof finding->text - n, "%s %s %d",
			strchr(finding->text, ';') ? "," : ";", places[i].name,
			places[i].value);
		n = strlen(finding->text);
	}
	finding->planted = true;
}

/* Twice, as for right runs: this run and the recorded one may round in opposite ways.  Sums round by
 * some units of their largest part, even where these two happen to agree. */
void cpa_planted_loosen(const struct cpa_suspect *s, const struct cpa_suspect_row *row,
	struct cpa_bound *bound)
{
	const struct cpa_planted *p = s->planted;
	if (!p->has_rounded)
		return;
	int64_t at = row - s->rows, Dv = s->problem->Dv;
	double unit = s->problem->dtype == CPA_DTYPE_FP64 ? 0x1p-53 : 0x1p-24;
	double lse = fabs(p->rounded.lse[at] - p->exact.lse[at]), o = 0.0, largest = 0.0;
	for (int64_t d = at * Dv; d < (at + 1) * Dv; d++) {
		o = fmax(o, fabs(p->rounded.o[d] - p->exact.o[d]));
		largest = fmax(largest, fabs(p->exact.o[d]));
	}
	o = 2.0 * o + 8.0 * unit * largest;
	bound->o_abs += isfinite(o) ? o : 0.0;
	bound->lse += isfinite(lse) ? 2.0 * lse : 0.0;
}

/* ---- one place ---- */

/* Whether every wrong row that is looked at is among those that the planted fault spoils. */
static bool may_be_at(const struct cpa_planted *p, const struct cpa_plant_site *site)
{
	if (site->rank < 0)
		return true;
	for (int i = 0; i < p->s->nrows; i++) {
		const struct cpa_suspect_row *row = &p->s->rows[i];
		int h = p->sample.place[row->h];
		if (row->wrong && (h < site->heads.start || h >= site->heads.end ||
					  row->b < site->batches.start ||
					  row->b >= site->batches.end))
			return false;
	}
	return true;
}

static enum cpa_status compare(struct cpa_planted *p, int fault,
	const struct cpa_fault_where *where, int64_t place, struct cpa_error *error)
{
	struct cpa_hypothesis it = {.class = cpa_fault_class(fault),
		.name = cpa_fault_summary(fault),
		.probe = cpa_fault_shows(fault),
		.predict = predict,
		.describe = describe};
	enum cpa_status s = CPA_OK;
	p->s->planted = p;
	double residual = p->visit(p->context, &it);
	if (residual > 1.0 && residual <= most_rounding && cpa_stage_start(&p->rounded, p->s)) {
		s = cpa_stage_plant(&p->rounded, fault, where, place, error);
		p->has_rounded = s == CPA_OK && cpa_stage_run(&p->rounded, p->s);
		if (p->has_rounded)
			residual = p->visit(p->context, &it);
		cpa_stage_clear(&p->rounded);
		p->has_rounded = false;
	}
	p->explained |= residual <= 1.0;
	return s;
}

static enum cpa_status try_place(struct cpa_planted *p, int fault,
	const struct cpa_fault_where *where, int64_t place, struct cpa_error *error)
{
	enum cpa_status s = cpa_stage_plant(&p->exact, fault, where, place, error);
	if (s == CPA_UNSUPPORTED)
		return CPA_OK; /* it cannot be there */
	if (s != CPA_OK)
		return s;
	if (may_be_at(p, cpa_plant_site(p->exact.plant)) && cpa_stage_start(&p->exact, p->s) &&
		cpa_stage_run(&p->exact, p->s))
		s = compare(p, fault, where, place, error);
	cpa_stage_clear(&p->exact);
	return s;
}

/* ---- the places of one fault ---- */

static enum cpa_status try_values(struct cpa_planted *p, int fault,
	const struct cpa_fault_where *where, int key, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	int64_t n = key == CPA_WHERE_HEAD ? p->sample.exact.Hq : p->R;
	if (!(cpa_fault_where_keys(fault) & key) || n == 1)
		return CPA_OK;
	for (int i = 0; s == CPA_OK && i < n; i++) {
		struct cpa_fault_where at = *where;
		*(key == CPA_WHERE_HOP	   ? &at.hop
			: key == CPA_WHERE_BLOCK ? &at.block
						 : &at.head) = i;
		s = try_place(p, fault, &at, 0, error);
	}
	return s;
}

static enum cpa_status try_where(struct cpa_planted *p, int fault,
	const struct cpa_fault_where *where, struct cpa_error *error)
{
	static const int keys[] = {CPA_WHERE_HOP, CPA_WHERE_BLOCK, CPA_WHERE_HEAD};
	enum cpa_status s = CPA_OK;
	for (int i = 0; s == CPA_OK && i < 3; i++)
		s = try_values(p, fault, where, keys[i], error);
	return s;
}

static enum cpa_status try_rank(struct cpa_planted *p, int fault, int rank,
	struct cpa_error *error)
{
	struct cpa_fault_where where = {rank, -1, -1, -1};
	enum cpa_status s = CPA_OK;
	int64_t n = 1;
	if (!(cpa_fault_where_keys(fault) & CPA_WHERE_RANK))
		return CPA_OK;
	if (cpa_fault_scope(fault) == CPA_FAULT_ONE_OP)
		n = cpa_stage_nplaces(&p->exact, fault, &where);
	for (int64_t place = 0; s == CPA_OK && place < n; place++)
		s = try_place(p, fault, &where, place, error);
	if (s == CPA_OK && cpa_fault_scope(fault) != CPA_FAULT_ONE_OP)
		s = try_where(p, fault, &where, error);
	return s;
}

/* thorough: at single hops, blocks and heads of all ranks as well */
static enum cpa_status try_fault(
	struct cpa_planted *p, int fault, bool thorough, struct cpa_error *error)
{
	struct cpa_fault_where anywhere = {-1, -1, -1, -1};
	enum cpa_status s = CPA_OK;
	if (!cpa_fault_is_in_attention(fault))
		return CPA_OK;
	if (cpa_fault_scope(fault) == CPA_FAULT_EVERYWHERE)
		s = thorough ? try_where(p, fault, &anywhere, error)
			     : try_place(p, fault, &anywhere, 0, error);
	if (s == CPA_OK && !thorough && p->worker >= 0)
		s = try_rank(p, fault, p->worker, error);
	return s;
}

static enum cpa_status try_config(
	struct cpa_planted *p, const struct cpa_config *config, struct cpa_error *error)
{
	struct cpa_config exact = *config;
	enum cpa_status s = CPA_OK;
	exact.partial_dtype = CPA_DTYPE_FP64;
	p->explained = false;
	p->R = config->ring_degree;
	/* Both are planned, so that both can be left. */
	bool planned = cpa_stage_plan(&p->exact, &exact);
	planned &= cpa_stage_plan(&p->rounded, config);
	/* What cannot be planned here, or was not, is none of these. */
	if (planned && is_as_recorded(p)) {
		p->worker = find_worker(p);
		for (int thorough = 0; thorough <= p->thorough && !p->explained; thorough++)
			for (int i = 0; s == CPA_OK && cpa_fault_name(i); i++)
				s = try_fault(p, i, thorough, error);
	}
	cpa_stage_leave(&p->exact);
	cpa_stage_leave(&p->rounded);
	return s;
}

static enum cpa_status try_orders(struct cpa_planted *p, struct cpa_error *error)
{
	const struct cpa_recorded_config *it = p->s->checked->call->config;
	int known = it ? it->order : -1;
	enum cpa_status s = CPA_OK;
	for (int order = 0; s == CPA_OK && order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++) {
		if (known >= 0 && order != known)
			continue;
		for (int direction = 1; s == CPA_OK && direction >= -1; direction -= 2) {
			if (direction < 0 && p->s->R < 3)
				continue; /* the same blocks in the same order */
			struct cpa_config config =
				config_of(p, (enum cpa_order)order, direction);
			s = try_config(p, &config, error);
		}
	}
	return s;
}

/* All heads, or some; CPA_UNSUPPORTED: those are too much too. */
static enum cpa_status take_sample(
	struct cpa_planted *p, const struct cpa_suspect *s, struct cpa_error *error)
{
	bool whole = cpa_sample_nflop(s->problem) <= most_flop_whole;
	struct cpa_problem part = *s->problem;
	part.Hq = s->U * (part.Hq / part.Hkv);
	if (!whole && cpa_sample_nflop(&part) > most_flop)
		return cpa_fail(error, CPA_UNSUPPORTED, "too large");
	return cpa_sample_init(&p->sample, s, whole, error);
}

static void make_stages(struct cpa_planted *p)
{
	struct cpa_sample *x = &p->sample;
	p->exact = (struct cpa_stage){
		.problem = x->exact, .tensors = x->exact_tensors, .sample = x};
	p->rounded = (struct cpa_stage){
		.problem = x->rounded, .tensors = x->rounded_tensors, .sample = x};
}

enum cpa_status cpa_planted_search(struct cpa_suspect *s, cpa_planted_visit *visit,
	void *context, struct cpa_error *error)
{
	struct cpa_suspect_row *rows = s->rows;
	int nrows = s->nrows;
	struct cpa_planted p = {.s = s, .visit = visit, .context = context};
	if (s->nwrong == 0)
		return CPA_OK;
	enum cpa_status status = take_sample(&p, s, error);
	if (status == CPA_OK) {
		make_stages(&p);
		s->rows = p.sample.rows;
		s->nrows = p.sample.nrows;
		p.thorough = cpa_sample_nflop(&p.sample.exact) <= most_flop_thorough;
		status = cpa_stage_init(&p.exact, s->nrows, error);
		if (status == CPA_OK)
			status = cpa_stage_init(&p.rounded, s->nrows, error);
		if (status == CPA_OK)
			status = try_orders(&p, error);
		cpa_stage_fini(&p.exact);
		cpa_stage_fini(&p.rounded);
	}
	s->too_large = status == CPA_UNSUPPORTED;
	cpa_sample_fini(&p.sample);
	s->planted = NULL;
	s->rows = rows;
	s->nrows = nrows;
	return s->too_large ? CPA_OK : status;
}
