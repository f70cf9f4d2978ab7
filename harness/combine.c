/*
 * combine.c - the combination of guidance branches, on each rank and of the truth.
 *
 * Branches lie along the batch: item i of branch j is batch item j n + i of n results.
 */
#include "harness/combine.h"
#include "harness/place.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the combination of branches");
}

/* ---- what a rank has ---- */

static int find_buffer(const struct cpa_schedule *s, const char *name)
{
	for (int i = 0; i < s->nbuffers; i++)
		if (strcmp(s->buffers[i].name, name) == 0)
			return i;
	return -1;
}

/* The rows of one batch group into all [B, T, row], whatever the layout of the buffer. */
static enum cpa_status fetch_group(struct cpa_ranks *ranks, int rank, int group, char *scratch,
	char *all, struct cpa_error *error)
{
	const struct cpa_schedule *s = ranks->schedules[rank];
	struct cpa_range batches = cpa_partition_batches(ranks->partition, group);
	size_t row = cpa_token_nbytes(ranks->problem, CPA_TENSOR_O);
	int64_t n = batches.end - batches.start, T = cpa_spans_ntokens(&ranks->q_shards[rank]);
	char name[24];
	if (n == 0)
		return CPA_OK;
	snprintf(name, sizeof name, "o group %d", group);
	int id = ranks->partition->config.batch_degree > 1
		? find_buffer(s, name)
		: cpa_exec_find(ranks->execs[rank], CPA_ROLE_OUTPUT, CPA_TENSOR_O);
	if (id < 0 || (size_t)cpa_buffer_nbytes(&s->buffers[id]) != (size_t)(n * T) * row)
		return cpa_fail(error, CPA_MISMATCH,
			"rank %d has no rows of batch group %d to combine", rank, group);
	struct cpa_box box = cpa_box_all(s, id);
	enum cpa_status status =
		cpa_place_get(ranks->device, ranks->execs[rank], &box, scratch, error);
	for (int64_t i = 0; status == CPA_OK && i < n; i++)
		memcpy(all + (size_t)((batches.start + i) * T) * row,
			scratch + (size_t)(i * T) * row, (size_t)T * row);
	return status;
}

/* What one batch group is making. */
struct group {
	bool *written; /* [Sq] */
	char *all, *scratch; /* [B, Sq, row] at most: what a rank has */
	char *combined;
};

/* One rank's combination; rows that another rank wrote already must be the same. */
static enum cpa_status add_rank(
	const struct cpa_combine *c, int rank, const struct group *group, struct cpa_error *error)
{
	struct cpa_ranks *ranks = c->ranks;
	const struct cpa_problem *p = ranks->problem;
	struct cpa_guidance guidance = *c->guidance;
	size_t row = cpa_token_nbytes(p, CPA_TENSOR_O);
	int64_t n = p->B / guidance.nbranches, T = cpa_spans_ntokens(&ranks->q_shards[rank]);
	const void *branches[3] = {NULL, NULL, NULL};
	enum cpa_status s = CPA_OK;
	for (int g = 0; s == CPA_OK && g < ranks->partition->config.batch_degree; g++)
		s = fetch_group(ranks, rank, g, group->scratch, group->all, error);
	if (s != CPA_OK)
		return s;
	for (int j = 0; j < guidance.nbranches; j++)
		branches[j] = group->all + (size_t)(j * n * T) * row;
	cpa_plant_combine(c->plant, rank, &guidance, branches);
	cpa_ref_guidance(
		&guidance, n * T * p->Hq * p->Dv, p->dtype, branches, p->dtype, group->scratch);
	for (int64_t t = 0; t < T; t++) {
		int64_t token = cpa_spans_token(&ranks->q_shards[rank], t);
		for (int64_t i = 0; i < n; i++) {
			char *to = group->combined + (size_t)(i * p->Sq + token) * row;
			const char *from = group->scratch + (size_t)(i * T + t) * row;
			if (group->written[token] && memcmp(to, from, row) != 0)
				return cpa_fail(error, CPA_MISMATCH,
					"guidance: item %" PRId64 ", token %" PRId64
					" on rank %d has other bits than another rank of its "
					"batch group has",
					i, token, rank);
			memcpy(to, from, row);
		}
		group->written[token] = true;
	}
	return CPA_OK;
}

/* combined [B/n, Sq, Hq, Dv] out; what no rank of the group has is NaN. */
static enum cpa_status combine_group(
	const struct cpa_combine *c, int b, void *combined, struct cpa_error *error)
{
	const struct cpa_partition *part = c->ranks->partition;
	const struct cpa_problem *p = c->ranks->problem;
	size_t whole = (size_t)(p->B * p->Sq) * cpa_token_nbytes(p, CPA_TENSOR_O);
	int U = part->config.ulysses_degree;
	struct group group = {calloc((size_t)p->Sq, sizeof *group.written), malloc(whole),
		malloc(whole), combined};
	bool made = group.written && group.all && group.scratch;
	enum cpa_status s = made ? CPA_OK : out_of_memory(error);
	memset(combined, 0xff, whole / (size_t)c->guidance->nbranches);
	for (int i = 0; s == CPA_OK && i < part->P; i++) {
		int rank = cpa_partition_rank(part, (struct cpa_coords){b, i / U, i % U});
		if (c->ranks->q_shards[rank].n > 0)
			s = add_rank(c, rank, &group, error);
	}
	free(group.written);
	free(group.all);
	free(group.scratch);
	return s;
}

/* Batch group b against what is kept; `than`: of whom that is. */
static enum cpa_status compare(
	const struct cpa_combine *c, int b, const char *than, struct cpa_error *error)
{
	const struct cpa_problem *p = c->ranks->problem;
	size_t row = cpa_token_nbytes(p, CPA_TENSOR_O);
	for (int64_t i = 0; i < p->B / c->guidance->nbranches * p->Sq; i++)
		if (memcmp((const char *)c->first + (size_t)i * row,
			    (const char *)c->other + (size_t)i * row, row) != 0)
			return cpa_fail(error, CPA_MISMATCH,
				"guidance: item %" PRId64 ", token %" PRId64
				" on batch group %d has other bits than %s",
				i / p->Sq, i % p->Sq, b, than);
	return CPA_OK;
}

enum cpa_status cpa_combine_compare(const struct cpa_combine *c, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	for (int b = 0; s == CPA_OK && b < c->ranks->partition->config.batch_degree; b++) {
		s = combine_group(c, b, c->other, error);
		if (s == CPA_OK)
			s = compare(c, b, "in the first interleaving", error);
	}
	return s;
}

/* ---- what is right ---- */

/* One row of all branches of one result: exact values, bounds, and what they combine to. */
struct rows {
	const double *exact[3];
	struct cpa_bound bound[3];
	double *want; /* [Dv] */
};

static void take_exact(const struct cpa_truth *truth, const struct cpa_guidance *guidance,
	int64_t i, int64_t t, int64_t h, struct rows *rows)
{
	const struct cpa_problem *p = &truth->problem;
	int64_t n = p->B / guidance->nbranches;
	const void *branches[3];
	for (int j = 0; j < guidance->nbranches; j++)
		branches[j] = rows->exact[j] = truth->o +
			(((j * n + i) * truth->n + t) * p->Hq + h) * p->Dv;
	cpa_ref_guidance(guidance, p->Dv, CPA_DTYPE_FP64, branches, CPA_DTYPE_FP64, rows->want);
}

static void take_bounds(const struct cpa_truth *truth, const struct cpa_bound_run *run,
	const struct cpa_guidance *guidance, int64_t i, int64_t t, int64_t h, struct rows *rows)
{
	int64_t n = truth->problem.B / guidance->nbranches;
	for (int j = 0; j < guidance->nbranches; j++) {
		int64_t row = ((j * n + i) * truth->n + t) * truth->problem.Hq + h;
		cpa_bound_row(run, &truth->rows[row], truth->o_norm[row], &rows->bound[j]);
	}
}

static double bound_at(const struct rows *rows, const struct cpa_guidance *guidance,
	enum cpa_dtype dtype, int64_t d)
{
	double exact[3], bound[3];
	for (int j = 0; j < guidance->nbranches; j++) {
		exact[j] = rows->exact[j][d];
		bound[j] = rows->bound[j].o_abs + rows->bound[j].o_rel * fabs(exact[j]);
	}
	return cpa_bound_guidance(guidance, dtype, exact, bound);
}

/* Where |error| / bound is largest; what was never written is infinitely far off. */
static void note(struct cpa_deviation *worst, double error, double bound, const int64_t at[4])
{
	double ratio = error == 0.0 ? 0.0 : error / bound;
	if (isnan(ratio))
		ratio = INFINITY;
	if (!(ratio > worst->ratio))
		return;
	*worst = (struct cpa_deviation){worst->rel_l2, error, bound, ratio, worst->soft_ratio,
		at[0], at[1], at[2], at[3]};
}

static void judge_all(const struct cpa_truth *truth, const struct cpa_bound_run *run,
	const struct cpa_guidance *guidance, const void *combined, struct rows *rows,
	struct cpa_deviation *deviation)
{
	const struct cpa_problem *p = &truth->problem;
	double square = 0.0, want_square = 0.0;
	for (int64_t row = 0; row < p->B / guidance->nbranches * truth->n * p->Hq; row++) {
		int64_t i = row / p->Hq / truth->n, t = row / p->Hq % truth->n, h = row % p->Hq;
		int64_t token = truth->tokens[t],
			first = ((i * p->Sq + token) * p->Hq + h) * p->Dv;
		take_exact(truth, guidance, i, t, h, rows);
		take_bounds(truth, run, guidance, i, t, h, rows);
		for (int64_t d = 0; d < p->Dv; d++) {
			double error = fabs(
				cpa_load(p->dtype, combined, first + d) - rows->want[d]);
			note(deviation, error, bound_at(rows, guidance, p->dtype, d),
				(const int64_t[4]){i, token, h, d});
			square += error * error;
			want_square += rows->want[d] * rows->want[d];
		}
	}
	deviation->rel_l2 = square == 0.0 ? 0.0 : sqrt(square / want_square);
	if (isnan(deviation->rel_l2))
		deviation->rel_l2 = INFINITY;
}

static enum cpa_status judge_group(const struct cpa_combine *c, int b, const void *combined,
	struct cpa_deviation *deviation, struct cpa_error *error)
{
	const struct cpa_problem *p = &c->truth->problem;
	int64_t n = p->B / c->guidance->nbranches * p->Sq * p->Hq * p->Dv;
	struct cpa_deviation d = {NAN, NAN, NAN, -1.0, NAN, -1, -1, -1, -1};
	struct rows rows = {.want = malloc((size_t)p->Dv * sizeof *rows.want)};
	if (!rows.want)
		return out_of_memory(error);
	judge_all(c->truth, &c->bound, c->guidance, combined, &rows, &d);
	free(rows.want);
	int64_t bad = cpa_find_not_finite(p->dtype, combined, n, false);
	if (bad >= 0) {
		int64_t row = bad / p->Dv;
		note(&d, NAN, NAN,
			(const int64_t[4]){row / p->Hq / p->Sq, row / p->Hq % p->Sq, row % p->Hq,
				bad % p->Dv});
	}
	if (!(d.ratio <= deviation->ratio)) /* NaN: the first */
		*deviation = d;
	if (d.ratio <= 1.0)
		return CPA_OK;
	return cpa_fail(error, CPA_MISMATCH,
		"guidance: item %" PRId64 ", token %" PRId64 ", head %" PRId64 ", dim %" PRId64
		" on batch group %d is off by %.3g, %.3g times its bound %.3g",
		d.batch, d.token, d.head, d.dim, b, d.error, d.ratio, d.bound);
}

enum cpa_status cpa_combine_judge(
	const struct cpa_combine *c, struct cpa_deviation *deviation, struct cpa_error *error)
{
	enum cpa_status s = combine_group(c, 0, c->first, error);
	if (s == CPA_OK)
		s = judge_group(c, 0, c->first, deviation, error);
	for (int b = 1; s == CPA_OK && b < c->ranks->partition->config.batch_degree; b++) {
		struct cpa_error differs;
		s = combine_group(c, b, c->other, error);
		if (s != CPA_OK || compare(c, b, "on batch group 0", &differs) == CPA_OK)
			continue;
		s = judge_group(c, b, c->other, deviation, error);
		if (s == CPA_OK) { /* within its bound, and yet another result */
			*error = differs;
			s = CPA_MISMATCH;
		}
	}
	return s;
}

enum cpa_status cpa_combine_check_range(const struct cpa_truth *truth,
	const struct cpa_guidance *guidance, struct cpa_error *error)
{
	const struct cpa_problem *p = &truth->problem;
	double largest = 0.0;
	struct rows rows = {.want = malloc((size_t)p->Dv * sizeof *rows.want)};
	if (!rows.want)
		return out_of_memory(error);
	for (int64_t row = 0; row < p->B / guidance->nbranches * truth->n * p->Hq; row++) {
		take_exact(truth, guidance, row / p->Hq / truth->n, row / p->Hq % truth->n,
			row % p->Hq, &rows);
		for (int64_t d = 0; d < p->Dv; d++) {
			double x = fabs(rows.want[d]);
			largest = isnan(x) ? INFINITY : fmax(largest, x);
		}
	}
	free(rows.want);
	/* Half of it leaves room for what the branches may be off. */
	if (largest <= cpa_dtype_max(p->dtype) / 2.0)
		return CPA_OK;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"the guidance combination reaches %.3g, and half of the largest %s is %.3g; "
		"smaller "
		"scales would work, or --dtype fp32",
		largest, cpa_dtype_name(p->dtype), cpa_dtype_max(p->dtype) / 2.0);
}
