/*
 * recording_merge_plan.c - whether parts fit: that they are all there, of what sizes the call is,
 * and that they say the same of it.
 */
#include "harness/recording_merge.h"

#include <stdio.h>
#include <string.h>

enum { Q, K, V, O };

/* ---- sizes -----------------------------------------------------------------------------------
 */

void cpa_merge_sizes(const struct cpa_merge_call *call, int tensor, int64_t sizes[3])
{
	const struct cpa_problem *p = &call->problem;
	const bool keys = tensor == K || tensor == V;

	sizes[0] = p->B;
	sizes[1] = keys ? p->Skv : p->Sq;
	sizes[2] = keys ? p->Hkv : p->Hq;
}

/* Raises *size to what the axis needs. */
static void grow(const struct cpa_recording_axis *axis, int64_t *size)
{
	for (int64_t i = 0; i < axis->nrows; i++) {
		const int64_t *row = &axis->rows[3 * i];
		const int64_t end =
			row[0] < 0 || row[1] == 0 ? 0 : row[0] + (row[1] - 1) * row[2] + 1;

		*size = end > *size ? end : *size;
	}
}

static enum cpa_status same_form(const struct cpa_part *part, const struct cpa_part *first,
	int tensor, struct cpa_error *error)
{
	const struct cpa_part_tensor *a = &part->tensors[tensor], *b = &first->tensors[tensor];

	if (a->shape.D == b->shape.D && a->shape.dtype == b->shape.dtype)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"%.200s: %s/%s is %s with vectors of %lld; expected %s of %lld, as "
		"rank %d has (%.200s)",
		part->file, part->where, cpa_part_tensor_name(tensor),
		cpa_dtype_name(a->shape.dtype), (long long)a->shape.D,
		cpa_dtype_name(b->shape.dtype), (long long)b->shape.D, first->rank, first->file);
}

const struct cpa_part *cpa_merge_first(const struct cpa_merge_call *call, int tensor)
{
	for (int i = 0; i < call->n; i++)
		if (call->parts[i].tensors[tensor].there)
			return &call->parts[i];
	return NULL;
}

static enum cpa_status check_forms(const struct cpa_merge_call *call, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int t = 0; t < CPA_PART_NTENSORS && status == CPA_OK; t++) {
		const struct cpa_part *first = cpa_merge_first(call, t);

		if (!first && t <= V)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s: no rank holds %s; expected q, k and "
				"v",
				call->parts[0].file, call->where, cpa_part_tensor_name(t));
		for (int i = 0; i < call->n && status == CPA_OK; i++)
			if (call->parts[i].tensors[t].there)
				status = same_form(&call->parts[i], first, t, error);
		if (status == CPA_OK && t <= V &&
			first->tensors[t].shape.dtype !=
				cpa_merge_first(call, Q)->tensors[Q].shape.dtype)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/%s is %s while q is %s; expected one type "
				"for q, k and v",
				first->file, first->where, cpa_part_tensor_name(t),
				cpa_dtype_name(first->tensors[t].shape.dtype),
				cpa_dtype_name(cpa_merge_first(call, Q)->tensors[Q].shape.dtype));
	}
	return status;
}

static enum cpa_status find_sizes(struct cpa_merge_call *call, struct cpa_error *error)
{
	struct cpa_problem *p = &call->problem;
	enum cpa_status status = check_forms(call, error);

	if (status != CPA_OK)
		return status;
	for (int i = 0; i < call->n; i++) {
		const struct cpa_part_tensor *q = &call->parts[i].tensors[Q],
					     *k = &call->parts[i].tensors[K];

		grow(&q->axes[0], &p->B);
		grow(&q->axes[1], &p->Sq);
		grow(&q->axes[2], &p->Hq);
		grow(&k->axes[1], &p->Skv);
		grow(&k->axes[2], &p->Hkv);
	}
	p->D = cpa_merge_first(call, Q)->tensors[Q].shape.D;
	p->Dv = cpa_merge_first(call, V)->tensors[V].shape.D;
	p->dtype = cpa_merge_first(call, Q)->tensors[Q].shape.dtype;
	p->lse = true;
	for (int t = K; t <= O; t++) {
		const struct cpa_part *first = cpa_merge_first(call, t);
		const int64_t D = t == K ? p->D : p->Dv;

		if (first && first->tensors[t].shape.D != D)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/%s has vectors of %lld; expected %lld, as "
				"those of %s",
				first->file, first->where, cpa_part_tensor_name(t),
				(long long)first->tensors[t].shape.D, (long long)D,
				t == K ? "q" : "v");
	}
	if (p->B < 1 || p->Sq < 1 || p->Skv < 1 || p->Hq < 1 || p->Hkv < 1 || p->Hq % p->Hkv != 0)
		return cpa_fail(error, CPA_INVALID,
			"%.200s: %s: the ranks hold %lld batch items, %lld queries "
			"of %lld heads and %lld keys of %lld heads; expected 1 or more, and "
			"query heads a multiple "
			"of key heads",
			call->parts[0].file, call->where, (long long)p->B, (long long)p->Sq,
			(long long)p->Hq, (long long)p->Skv, (long long)p->Hkv);
	return CPA_OK;
}

/* ---- which parts make the call ---------------------------------------------------------------
 */

static enum cpa_status check_ranks(const struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_part *first = &call->parts[0];

	for (int i = 0; i < call->n; i++) {
		const struct cpa_part *part = &call->parts[i];

		if (part->world != first->world || part->whole != first->whole)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s is of a run of %d ranks, and %.200s says "
				"%d; expected one run in a directory",
				part->file, call->where, part->world, first->file, first->world);
		if (i > 0 && part->rank == part[-1].rank)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: holds rank %d of %s, which %.200s holds too; "
				"expected each rank once",
				part->file, part->rank, call->where, part[-1].file);
		if (part->bhsd != first->bhsd)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s@layout differs from that in %.200s", part->file,
				call->where, first->file);
	}
	for (int i = 0; i < first->world; i++)
		if (i >= call->n || call->parts[i].rank != i)
			return cpa_fail(error, CPA_INVALID,
				"%s: rank %d of %d is missing (%.200s is of the same "
				"call); expected what every rank recorded; --call picks calls "
				"that are complete",
				call->where, i, first->world, first->file);
	return CPA_OK;
}

static bool same_list(const int64_t *a, const int64_t *b, int64_t n)
{
	return a && b ? memcmp(a, b, (size_t)n * sizeof *a) == 0 : a == b;
}

static bool same_segments(
	const struct cpa_segment *a, int na, const struct cpa_segment *b, int nb)
{
	bool same = na == nb;

	for (int i = 0; i < na && same; i++)
		same = a[i].length == b[i].length && a[i].replicated == b[i].replicated;
	return same;
}

/* What ranks must say alike; NULL: they do. */
static const char *difference(const struct cpa_call *a, const struct cpa_call *b)
{
	const struct cpa_problem *p = &a->problem, *q = &b->problem;
	const struct cpa_rule *r = &p->rule, *s = &q->rule;

	if (p->scale != q->scale)
		return "scale";
	if (r->causal != s->causal)
		return "causal";
	if (r->offset != s->offset)
		return "causal_offset (of the whole sequence, not of the rank's part)";
	if (r->window != s->window || (r->window && (r->left != s->left || r->right != s->right)))
		return "window";
	if (!same_list(r->key_lengths, s->key_lengths, p->B))
		return "key_lengths";
	if (r->ndocuments != s->ndocuments ||
		!same_list(r->documents, s->documents, r->ndocuments + 1))
		return "documents";
	if (!r->sink != !s->sink ||
		(r->sink && memcmp(r->sink, s->sink, (size_t)p->Hq * sizeof *r->sink)))
		return "sink";
	if (!same_segments(a->segments, a->nsegments, b->segments, b->nsegments) ||
		!same_segments(a->segments_kv, a->nsegments_kv, b->segments_kv, b->nsegments_kv))
		return "segments";
	return NULL;
}

/* Everything that the files say about the call. */
static enum cpa_status agree(
	struct cpa_parts *parts, struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_problem sizes = call->problem;

	for (int i = 0; i < call->n; i++) {
		enum cpa_status status = cpa_parts_say(parts, &call->parts[i], &sizes, error);
		const char *differs;

		if (status != CPA_OK)
			return status;
		differs = difference(&call->parts[i].said, &call->parts[0].said);
		if (differs)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: rank %d of %s has another %s than rank %d "
				"(%.200s); expected what holds for the whole call, alike on all "
				"ranks",
				call->parts[i].file, call->parts[i].rank, call->where, differs,
				call->parts[0].rank, call->parts[0].file);
	}
	call->problem = call->parts[0].said.problem;
	return CPA_OK;
}

/* ---- all of it -------------------------------------------------------------------------------
 */

enum cpa_status cpa_merge_plan(
	struct cpa_parts *parts, struct cpa_merge_call *call, struct cpa_error *error)
{
	enum cpa_status status = check_ranks(call, error);

	if (status == CPA_OK)
		status = find_sizes(call, error);
	for (int t = 0; t < CPA_PART_NTENSORS && status == CPA_OK; t++) {
		/* What is said needs the sizes, and whether a token may come twice what is said.
		 */
		if (t == 0)
			status = agree(parts, call, error);
		if (status == CPA_OK)
			status = cpa_merge_cover(call, t, error);
	}
	return status == CPA_OK ? cpa_merge_plan_mask(call, error) : status;
}
