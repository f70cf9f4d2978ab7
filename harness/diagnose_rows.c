/*
 * diagnose_rows.c - what was observed: who held which token, and a sample of the rows that ranks
 * returned, worst first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/diagnose_take.h"

enum { MOST_ROWS = 512, MOST_WORST = 96 };

static enum cpa_status no_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a diagnosis");
}

static void *make(struct cpa_suspect *s, int64_t n, size_t size)
{
	return cpa_arena_alloc(&s->arena, ((size_t)n + 1) * size);
}

/* ---- who held what ---- */

/* rank, index [S], held [R U] out of what ranks held of a tensor; tokens of several are nobody's.
 */
static void find_holders(const struct cpa_suspect *s, const char *tensor, int64_t S, int *rank,
	int64_t *index, int64_t *held)
{
	const struct cpa_call *call = s->checked->call;
	int64_t P = s->R * s->U;
	for (int n = 0; n < call->nheld; n++) {
		const struct cpa_held *it = &call->held[n];
		int cp = (int)(it->rank % P);
		int64_t at = 0;
		if (strcmp(it->tensor, tensor) != 0 || it->rank / P > 0)
			continue;
		for (int64_t t = 0; t < it->ntokens; t++) {
			int64_t token = it->tokens[t];
			if (token < 0 || token >= S)
				continue;
			if (rank[token] == -1)
				rank[token] = cp;
			else if (rank[token] != cp)
				rank[token] = -2;
			index[token] = at++;
		}
		held[cp] = at;
	}
	for (int64_t t = 0; t < S; t++)
		if (rank[t] == -2)
			rank[t] = -1;
}

static bool is_held(const struct cpa_suspect *s, const char *tensor)
{
	const struct cpa_call *call = s->checked->call;
	for (int n = 0; n < call->nheld; n++)
		if (strcmp(call->held[n].tensor, tensor) == 0)
			return true;
	return false;
}

static void map_tokens(struct cpa_suspect *s)
{
	const struct cpa_problem *p = s->problem;
	for (int64_t t = 0; t < p->Sq; t++)
		s->query_rank[t] = -1;
	for (int64_t j = 0; j < p->Skv; j++)
		s->key_rank[j] = -1;
	find_holders(s,
		is_held(s, "o")		  ? "o"
			: is_held(s, "q") ? "q"
					  : "lse",
		p->Sq, s->query_rank, s->query_index, s->nqueries);
	/* Without k, keys lie where queries do. */
	if (is_held(s, "k"))
		find_holders(s, "k", p->Skv, s->key_rank, s->key_index, s->nkeys);
	else if (p->Sq == p->Skv) {
		memcpy(s->key_rank, s->query_rank, (size_t)p->Skv * sizeof *s->key_rank);
		memcpy(s->key_index, s->query_index, (size_t)p->Skv * sizeof *s->key_index);
		memcpy(s->nkeys, s->nqueries, (size_t)(s->R * s->U) * sizeof *s->nkeys);
	}
}

static void list_blocks(struct cpa_suspect *s)
{
	int64_t at = 0;
	for (int64_t r = -1; r < s->R; r++) {
		for (int64_t j = 0; j < s->problem->Skv; j++)
			if (cpa_suspect_block(s, j) == r) {
				s->key_place[j] = at - (r < 0 ? 0 : s->block_start[r]);
				s->block_keys[at++] = j;
			}
		s->block_start[r + 1] = at;
	}
}

static void list_queries(struct cpa_suspect *s)
{
	int64_t at = 0;
	for (int64_t r = 0; r < s->R; r++) {
		s->query_start[r] = at;
		for (int64_t t = 0; t < s->problem->Sq; t++)
			if (s->query_rank[t] >= 0 && s->query_rank[t] / s->U == r)
				s->query_list[at++] = t;
	}
	s->query_start[s->R] = at;
}

static enum cpa_status lay_out(struct cpa_suspect *s, struct cpa_error *error)
{
	const struct cpa_call *call = s->checked->call;
	const struct cpa_problem *p = s->problem;
	s->N = call->config ? call->config->batch_degree : 1;
	s->U = call->config ? call->config->ulysses_degree : 1;
	s->R = call->config ? call->config->ring_degree : call->world;
	s->W = call->world;
	s->query_rank = make(s, p->Sq, sizeof *s->query_rank);
	s->key_rank = make(s, p->Skv, sizeof *s->key_rank);
	s->query_index = make(s, p->Sq, sizeof *s->query_index);
	s->key_index = make(s, p->Skv, sizeof *s->key_index);
	s->nqueries = make(s, s->R * s->U, sizeof *s->nqueries);
	s->nkeys = make(s, s->R * s->U, sizeof *s->nkeys);
	s->block_start = make(s, s->R + 1, sizeof *s->block_start);
	s->block_keys = make(s, p->Skv, sizeof *s->block_keys);
	s->query_start = make(s, s->R, sizeof *s->query_start);
	s->query_list = make(s, p->Sq, sizeof *s->query_list);
	s->key_place = make(s, p->Skv, sizeof *s->key_place);
	s->work = make(s, p->Skv + 4 * p->Dv, sizeof *s->work);
	if (s->arena.failed)
		return no_memory(error);
	map_tokens(s);
	list_blocks(s);
	list_queries(s);
	cpa_places_init(s);
	return s->arena.failed ? no_memory(error) : CPA_OK;
}

/* ---- rows ---- */

/* All that one rank returned, in double. */
struct returned {
	const struct cpa_held *o, *lse;
	double *o_data, *lse_data;
};

static enum cpa_status read_held(const struct cpa_suspect *s, struct cpa_recording *recording,
	int i, const struct cpa_held *held, double **data, struct cpa_error *error)
{
	size_t n = (size_t)(held->nbatches * held->ntokens * held->nheads * held->dim);
	(void)s;
	*data = malloc((n + 1) * sizeof **data);
	return *data ? cpa_recording_read_held(recording, i, held, CPA_DTYPE_FP64, *data, error)
		     : no_memory(error);
}

static enum cpa_status read_rank(const struct cpa_suspect *s, struct cpa_recording *recording,
	int i, int rank, struct returned *r, struct cpa_error *error)
{
	const struct cpa_call *call = s->checked->call;
	enum cpa_status status = CPA_OK;
	*r = (struct returned){0};
	for (int n = 0; n < call->nheld; n++)
		if (call->held[n].rank == rank && strcmp(call->held[n].tensor, "o") == 0)
			r->o = &call->held[n];
		else if (call->held[n].rank == rank && strcmp(call->held[n].tensor, "lse") == 0)
			r->lse = &call->held[n];
	if (r->o)
		status = read_held(s, recording, i, r->o, &r->o_data, error);
	if (status == CPA_OK && r->lse)
		status = read_held(s, recording, i, r->lse, &r->lse_data, error);
	return status;
}

/* Where (b, t, h) stands in what was held, -1: nowhere. */
static int64_t find_row(
	const struct cpa_held *held, int64_t b, int64_t t, int64_t h, int64_t guess)
{
	int64_t ib = 0, it = guess, ih = 0;
	while (ib < held->nbatches && held->batches[ib] != b)
		ib++;
	while (ih < held->nheads && held->heads[ih] != h)
		ih++;
	if (it >= held->ntokens || held->tokens[it] != t)
		for (it = 0; it < held->ntokens && held->tokens[it] != t;)
			it++;
	if (ib == held->nbatches || it == held->ntokens || ih == held->nheads)
		return -1;
	return (ib * held->ntokens + it) * held->nheads + ih;
}

/* What is NaN is as far off as can be. */
static void note_ratio(struct cpa_suspect_row *row, double error, double bound)
{
	double ratio = error == 0.0 ? 0.0 : error / bound;
	if (!(ratio <= row->ratio))
		row->ratio = isnan(ratio) ? INFINITY : ratio;
}

/* How far the row is off, in o and lse; fills all but copies. */
static void measure_row(struct cpa_suspect_row *row, const double *o, int64_t Dv)
{
	row->ratio = 0.0;
	for (int64_t d = 0; o && d < Dv; d++) {
		double allowed = row->bound.o_abs + row->bound.o_rel * fabs(row->want[d]);
		double error = fabs(o[d] - row->want[d]);
		note_ratio(row, error, allowed);
	}
	if (row->has_lse)
		note_ratio(row, cpa_lse_error(row->lse, row->truth->lse), row->bound.lse);
	row->wrong = row->ratio > 1.0;
}

struct sampling {
	struct cpa_suspect *s;
	const struct cpa_bound_run *run;
	struct cpa_suspect_row *rows; /* all judged rows of all ranks; o NULL until chosen */
	int64_t n, capacity;
};

static bool add_row(struct sampling *m, const struct returned *r, const struct cpa_held *shape,
	int64_t ib, int64_t it, int64_t ih)
{
	struct cpa_suspect *s = m->s;
	const struct cpa_truth *truth = s->checked->truth;
	int64_t Dv = s->problem->Dv, b = shape->batches[ib], t = shape->tokens[it],
		h = shape->heads[ih];
	if (b < 0 || t < 0 || h < 0 || s->checked->index[t] < 0)
		return true;
	if (m->n == m->capacity) {
		int64_t capacity = 2 * m->capacity + 4096;
		void *more = realloc(m->rows, (size_t)capacity * sizeof *m->rows);
		if (!more)
			return false;
		m->rows = more;
		m->capacity = capacity;
	}
	int64_t at = (b * truth->n + s->checked->index[t]) * s->problem->Hq + h;
	struct cpa_suspect_row *row = &m->rows[m->n++];
	*row = (struct cpa_suspect_row){.rank = shape->rank,
		.b = b,
		.t = t,
		.h = h,
		.lse = NAN,
		.want = truth->o + at * Dv,
		.truth = &truth->rows[at],
		.keys = cpa_rule_row(s->problem, b, t)};
	int64_t lse = r->lse ? find_row(r->lse, b, t, h, it) : -1;
	row->has_lse = lse >= 0;
	if (row->has_lse)
		row->lse = r->lse_data[lse];
	cpa_bound_row(m->run, row->truth, truth->o_norm[at], &row->bound);
	const double *o = r->o ? r->o_data + find_row(r->o, b, t, h, it) * Dv : NULL;
	measure_row(row, o, Dv);
	/* Kept by place until it is known which rows are wanted. */
	row->o = (double *)(uintptr_t)o;
	return true;
}

static int compare_ratio(const void *a, const void *b)
{
	const struct cpa_suspect_row *x = a, *y = b;
	return (x->ratio < y->ratio) - (x->ratio > y->ratio);
}

/* The worst, and the others evenly: what is right refutes as well. */
static enum cpa_status choose(struct sampling *m, const struct cpa_suspect_row *all, int64_t n,
	int share, struct cpa_error *error)
{
	struct cpa_suspect *s = m->s;
	int64_t worst = n < MOST_WORST ? n : MOST_WORST, rest = n - worst;
	int64_t wanted = share - worst < rest ? share - worst : rest;
	for (int64_t i = 0; i < worst + (wanted > 0 ? wanted : 0); i++) {
		struct cpa_suspect_row *row = &s->rows[s->nrows++];
		*row = all[i < worst ? i : worst + (i - worst) * rest / wanted];
		const double *o = row->o;
		row->o = o ? make(s, s->problem->Dv, sizeof *row->o) : NULL;
		if (s->arena.failed)
			return no_memory(error);
		if (o)
			memcpy(row->o, o, (size_t)s->problem->Dv * sizeof *o);
		s->nwrong += row->wrong;
		s->has_lse |= row->has_lse;
	}
	return CPA_OK;
}

static enum cpa_status sample_rank(struct sampling *m, struct cpa_recording *recording, int i,
	int rank, int share, struct cpa_error *error)
{
	struct returned r;
	enum cpa_status status = read_rank(m->s, recording, i, rank, &r, error);
	const struct cpa_held *shape = r.o ? r.o : r.lse;
	m->n = 0;
	for (int64_t k = 0;
		status == CPA_OK && shape && k < shape->nbatches * shape->ntokens * shape->nheads;
		k++)
		if (!add_row(m, &r, shape, k / shape->nheads / shape->ntokens,
			    k / shape->nheads % shape->ntokens, k % shape->nheads))
			status = no_memory(error);
	if (status == CPA_OK && m->n > 0) {
		qsort(m->rows, (size_t)m->n, sizeof *m->rows, compare_ratio);
		status = choose(m, m->rows, m->n, share, error);
	}
	free(r.o_data);
	free(r.lse_data);
	return status;
}

enum cpa_status cpa_suspect_init(struct cpa_suspect *s, const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, const struct cpa_check_rules *rules,
	struct cpa_error *error)
{
	*s = (struct cpa_suspect){.checked = checked,
		.problem = &checked->call->problem,
		.recording = recording,
		.call = i};
	cpa_arena_init(&s->arena);
	enum cpa_status status = lay_out(s, error);
	s->run = cpa_check_bound(checked, 0, rules->arithmetic, rules->partials);
	struct sampling m = {.s = s, .run = &s->run};
	int share = s->W > 0 ? MOST_ROWS / s->W : 0;
	share = share < MOST_WORST + 32 ? MOST_WORST + 32 : share;
	s->rows = make(s, (int64_t)s->W * share, sizeof *s->rows);
	if (status == CPA_OK && !s->rows)
		status = no_memory(error);
	for (int rank = 0; rank < s->W && status == CPA_OK; rank++)
		status = sample_rank(&m, recording, i, rank, share, error);
	free(m.rows);
	if (status == CPA_OK && s->nrows > 0)
		qsort(s->rows, (size_t)s->nrows, sizeof *s->rows, compare_ratio);
	return status;
}

void cpa_suspect_fini(struct cpa_suspect *s)
{
	cpa_arena_fini(&s->arena);
	*s = (struct cpa_suspect){0};
}
