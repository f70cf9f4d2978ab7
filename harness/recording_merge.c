/*
 * recording_merge.c - joins what ranks recorded alone into one recording: which parts make a call,
 * whether they fit, and the file that they make.
 *
 * Everything that can be told without reading tensors is told first: parts that are missing or come twice,
 * rules that differ, tokens that nobody or too many hold.  Then the file is laid out, the disk is asked for
 * all of it, and tensors stream into it in blocks.  Besides blocks, memory holds a bit for each
 * (batch item, token, head) of one tensor.
 */
#include "harness/recording_merge.h"

#include "harness/output.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, O, LSE };

/* ---- sizes ----------------------------------------------------------------------------------- */

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
		const int64_t end = row[0] < 0 || row[1] == 0 ? 0 : row[0] + (row[1] - 1) * row[2] + 1;

		*size = end > *size ? end : *size;
	}
}

static enum cpa_status same_form(const struct cpa_part *part, const struct cpa_part *first, int tensor,
	struct cpa_error *error)
{
	const struct cpa_part_tensor *a = &part->tensors[tensor], *b = &first->tensors[tensor];

	if (a->shape.D == b->shape.D && a->shape.dtype == b->shape.dtype)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s is %s with vectors of %lld; expected %s of %lld, as "
		"rank %d has (%.200s)", part->file, part->where, cpa_part_tensor_name(tensor),
		cpa_dtype_name(a->shape.dtype), (long long)a->shape.D, cpa_dtype_name(b->shape.dtype),
		(long long)b->shape.D, first->rank, first->file);
}

static const struct cpa_part *first_with(const struct cpa_merge_call *call, int tensor)
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
		const struct cpa_part *first = first_with(call, t);

		if (!first && t <= V)
			return cpa_fail(error, CPA_INVALID, "%.200s: %s: no rank holds %s; expected q, k and "
				"v", call->parts[0].file, call->where, cpa_part_tensor_name(t));
		for (int i = 0; i < call->n && status == CPA_OK; i++)
			if (call->parts[i].tensors[t].there)
				status = same_form(&call->parts[i], first, t, error);
		if (status == CPA_OK && t <= V && first->tensors[t].shape.dtype !=
		    first_with(call, Q)->tensors[Q].shape.dtype)
			return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s is %s while q is %s; expected one type "
				"for q, k and v", first->file, first->where, cpa_part_tensor_name(t),
				cpa_dtype_name(first->tensors[t].shape.dtype),
				cpa_dtype_name(first_with(call, Q)->tensors[Q].shape.dtype));
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
		const struct cpa_part_tensor *q = &call->parts[i].tensors[Q], *k = &call->parts[i].tensors[K];

		grow(&q->axes[0], &p->B);
		grow(&q->axes[1], &p->Sq);
		grow(&q->axes[2], &p->Hq);
		grow(&k->axes[1], &p->Skv);
		grow(&k->axes[2], &p->Hkv);
	}
	p->D = first_with(call, Q)->tensors[Q].shape.D;
	p->Dv = first_with(call, V)->tensors[V].shape.D;
	p->dtype = first_with(call, Q)->tensors[Q].shape.dtype;
	p->lse = true;
	for (int t = K; t <= O; t++) {
		const struct cpa_part *first = first_with(call, t);
		const int64_t D = t == K ? p->D : p->Dv;

		if (first && first->tensors[t].shape.D != D)
			return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s has vectors of %lld; expected %lld, as "
				"those of %s", first->file, first->where, cpa_part_tensor_name(t),
				(long long)first->tensors[t].shape.D, (long long)D, t == K ? "q" : "v");
	}
	if (p->B < 1 || p->Sq < 1 || p->Skv < 1 || p->Hq < 1 || p->Hkv < 1 || p->Hq % p->Hkv != 0)
		return cpa_fail(error, CPA_INVALID, "%.200s: %s: the ranks hold %lld batch items, %lld queries "
			"of %lld heads and %lld keys of %lld heads; expected 1 or more, and query heads a multiple "
			"of key heads", call->parts[0].file, call->where, (long long)p->B, (long long)p->Sq, (long long)p->Hq,
			(long long)p->Skv, (long long)p->Hkv);
	return CPA_OK;
}

/* ---- which parts make the call --------------------------------------------------------------- */

static enum cpa_status check_ranks(const struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_part *first = &call->parts[0];

	for (int i = 0; i < call->n; i++) {
		const struct cpa_part *part = &call->parts[i];

		if (part->world != first->world || part->whole != first->whole)
			return cpa_fail(error, CPA_INVALID, "%.200s: %s is of a run of %d ranks, and %.200s says "
				"%d; expected one run in a directory", part->file, call->where, part->world,
				first->file, first->world);
		if (i > 0 && part->rank == part[-1].rank)
			return cpa_fail(error, CPA_INVALID, "%.200s: holds rank %d of %s, which %.200s holds too; "
				"expected each rank once", part->file, part->rank, call->where, part[-1].file);
		if (part->bhsd != first->bhsd)
			return cpa_fail(error, CPA_INVALID, "%.200s: %s@layout differs from that in %.200s",
				part->file, call->where, first->file);
	}
	for (int i = 0; i < first->world; i++)
		if (i >= call->n || call->parts[i].rank != i)
			return cpa_fail(error, CPA_INVALID, "%s: rank %d of %d is missing (%.200s is of the same "
				"call); expected what every rank recorded; --call picks calls that are complete",
				call->where, i, first->world, first->file);
	return CPA_OK;
}

static bool same_list(const int64_t *a, const int64_t *b, int64_t n)
{
	return a && b ? memcmp(a, b, (size_t)n * sizeof *a) == 0 : a == b;
}

static bool same_segments(const struct cpa_segment *a, int na, const struct cpa_segment *b, int nb)
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
	if (r->ndocuments != s->ndocuments || !same_list(r->documents, s->documents, r->ndocuments + 1))
		return "documents";
	if (!r->sink != !s->sink || (r->sink && memcmp(r->sink, s->sink, (size_t)p->Hq * sizeof *r->sink)))
		return "sink";
	if (!same_segments(a->segments, a->nsegments, b->segments, b->nsegments) ||
	    !same_segments(a->segments_kv, a->nsegments_kv, b->segments_kv, b->nsegments_kv))
		return "segments";
	return NULL;
}

/* Everything that the files say about the call. */
static enum cpa_status agree(struct cpa_parts *parts, struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_problem sizes = call->problem;

	for (int i = 0; i < call->n; i++) {
		enum cpa_status status = cpa_parts_say(parts, &call->parts[i], &sizes, error);
		const char *differs;

		if (status != CPA_OK)
			return status;
		differs = difference(&call->parts[i].said, &call->parts[0].said);
		if (differs)
			return cpa_fail(error, CPA_INVALID, "%.200s: rank %d of %s has another %s than rank %d "
				"(%.200s); expected what holds for the whole call, alike on all ranks",
				call->parts[i].file, call->parts[i].rank, call->where, differs,
				call->parts[0].rank, call->parts[0].file);
	}
	call->problem = call->parts[0].said.problem;
	return CPA_OK;
}

/* ---- who holds what -------------------------------------------------------------------------- */

bool cpa_merge_in_axis(const struct cpa_recording_axis *axis, int64_t id)
{
	for (int64_t i = 0; i < axis->nrows; i++) {
		const int64_t *row = &axis->rows[3 * i];

		if (row[0] >= 0 && id >= row[0] && (id - row[0]) % row[2] == 0 &&
		    (id - row[0]) / row[2] < row[1])
			return true;
	}
	return false;
}

const struct cpa_part *cpa_merge_holder(const struct cpa_merge_call *call, int n, int tensor,
	const int64_t ids[3])
{
	for (int i = 0; i < n; i++) {
		const struct cpa_part_tensor *held = &call->parts[i].tensors[tensor];

		if (held->there && cpa_merge_in_axis(&held->axes[0], ids[0]) &&
		    cpa_merge_in_axis(&held->axes[1], ids[1]) && cpa_merge_in_axis(&held->axes[2], ids[2]))
			return &call->parts[i];
	}
	return NULL;
}

static bool is_replicated(const struct cpa_merge_call *call, int64_t token)
{
	const struct cpa_call *said = &call->parts[0].said;
	int64_t end = 0;

	for (int i = 0; i < said->nsegments; i++) {
		end += said->segments[i].length;
		if (token < end)
			return said->segments[i].replicated;
	}
	return false;
}

/* One (batch item, token) of a part: its heads into held. */
static enum cpa_status cover_heads(const struct cpa_merge_call *call, int n, int tensor,
	const int64_t sizes[3], int64_t b, int64_t t, unsigned char *held, struct cpa_error *error)
{
	const struct cpa_part *part = &call->parts[n], *other;
	const struct cpa_recording_axis *heads = &part->tensors[tensor].axes[2];

	for (int64_t i = 0; i < heads->total; i++) {
		const int64_t ids[3] = {b, t, cpa_part_id(heads, i)};
		const int64_t bit = (b * sizes[1] + t) * sizes[2] + ids[2];

		if (ids[2] < 0)
			continue;
		if (ids[2] >= sizes[2])
			return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s: head %lld of the %lld that %s has",
				part->file, part->where, cpa_part_tensor_name(tensor), (long long)ids[2],
				(long long)sizes[2], tensor == V ? "k" : "q");
		/* Keys may be on many ranks, and are compared when they are copied. */
		if (cpa_merge_bit(held, bit) && tensor != K && tensor != V && !is_replicated(call, t)) {
			other = cpa_merge_holder(call, n, tensor, ids);
			return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s: token %lld (batch item %lld, head "
				"%lld) is held twice%s%.200s; expected each once, but for segments that are "
				"recorded as replicated", part->file, part->where,
				cpa_part_tensor_name(tensor), (long long)t, (long long)b, (long long)ids[2],
				other ? ", also by " : "", other ? other->file : "");
		}
		cpa_merge_set(held, bit);
	}
	return CPA_OK;
}

static enum cpa_status cover_part(const struct cpa_merge_call *call, int n, int tensor,
	const int64_t sizes[3], unsigned char *held, struct cpa_error *error)
{
	const struct cpa_part *part = &call->parts[n];
	const struct cpa_part_tensor *it = &part->tensors[tensor];
	enum cpa_status status = CPA_OK;

	if (!it->there)
		return CPA_OK;
	for (int64_t i = 0; i < it->axes[0].total; i++)
		for (int64_t j = 0; j < it->axes[1].total && status == CPA_OK; j++) {
			const int64_t b = cpa_part_id(&it->axes[0], i), t = cpa_part_id(&it->axes[1], j);

			if (b >= sizes[0] || t >= sizes[1])
				return cpa_fail(error, CPA_INVALID, "%.200s: %s/%s: token %lld of batch item "
					"%lld lies outside of the %lld tokens and %lld batch items of %s",
					part->file, part->where, cpa_part_tensor_name(tensor), (long long)t,
					(long long)b, (long long)sizes[1], (long long)sizes[0],
					tensor == V ? "k" : "q");
			if (b >= 0 && t >= 0)
				status = cover_heads(call, n, tensor, sizes, b, t, held, error);
		}
	return status;
}

static enum cpa_status find_gap(const struct cpa_merge_call *call, int tensor, const int64_t sizes[3],
	const unsigned char *held, struct cpa_error *error)
{
	for (int64_t bit = 0; bit < sizes[0] * sizes[1] * sizes[2]; bit++) {
		if (bit % 8 == 0 && held[bit / 8] == 0xff) {
			bit += 7;
			continue;
		}
		if (!cpa_merge_bit(held, bit))
			return cpa_fail(error, CPA_INVALID, "%s: no rank holds token %lld (batch item %lld, head "
				"%lld) of %s; expected all of them over the %d ranks (%.200s is one)",
				call->where, (long long)(bit / sizes[2] % sizes[1]),
				(long long)(bit / sizes[2] / sizes[1]), (long long)(bit % sizes[2]),
				cpa_part_tensor_name(tensor), call->parts[0].world, call->parts[0].file);
	}
	return CPA_OK;
}

static enum cpa_status cover_tensor(const struct cpa_merge_call *call, int tensor, struct cpa_error *error)
{
	int64_t sizes[3], stored = 0;
	unsigned char *held;
	enum cpa_status status = CPA_OK;

	if (!first_with(call, tensor))
		return CPA_OK;
	cpa_merge_sizes(call, tensor, sizes);
	for (int i = 0; i < call->n; i++) {
		const struct cpa_recording_shape *shape = &call->parts[i].tensors[tensor].shape;

		stored += shape->B * shape->S * shape->H;
	}
	/* Ids of nonsense must not ask for their weight in memory. */
	if ((double)sizes[0] * (double)sizes[1] * (double)sizes[2] > 64.0 * (double)stored + 1e6)
		return cpa_fail(error, CPA_INVALID, "%s: ids of %s reach to %lld batch items, %lld tokens and "
			"%lld heads, and the ranks hold %lld rows in all; expected all of them", call->where,
			cpa_part_tensor_name(tensor), (long long)sizes[0], (long long)sizes[1],
			(long long)sizes[2], (long long)stored);
	held = calloc((size_t)(sizes[0] * sizes[1] * sizes[2] / 8 + 1), 1);
	if (!held)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < call->n && status == CPA_OK; i++)
		status = cover_part(call, i, tensor, sizes, held, error);
	if (status == CPA_OK)
		status = find_gap(call, tensor, sizes, held, error);
	free(held);
	return status;
}

/* ---- the layout of the file ------------------------------------------------------------------ */

static bool same_ids(const struct cpa_recording_axis *a, const struct cpa_recording_axis *b)
{
	bool same = a->total == b->total;

	for (int64_t i = 0; i < a->total && same; i++)
		same = cpa_part_id(a, i) == cpa_part_id(b, i);
	return same;
}

bool cpa_merge_keeps(const struct cpa_part *part, int tensor)
{
	const struct cpa_part_tensor *it = &part->tensors[tensor], *o = &part->tensors[O];

	if (!it->there || part->whole)
		return false;
	if (tensor >= O)
		return true;
	for (int axis = 0; axis < 3; axis++)
		for (int64_t i = 0; i < it->axes[axis].nrows; i++)
			if (it->axes[axis].rows[3 * i] < 0)
				return true;
	return tensor == K && o->there && !same_ids(&it->axes[1], &o->axes[1]);
}

/* dims [4] out; returns how many. */
static int file_dims(bool bhsd, int tensor, const int64_t sizes[3], int64_t D, int64_t dims[4])
{
	dims[0] = sizes[0];
	dims[1] = bhsd ? sizes[2] : sizes[1];
	dims[2] = bhsd ? sizes[1] : sizes[2];
	dims[3] = D;
	return tensor == LSE ? 3 : 4;
}

static void lay_out_rank(const struct cpa_part *part, const char *ranks, struct cpa_h5 *out)
{
	char group[CPA_H5_WHERE / 2 + 40], path[CPA_H5_WHERE];
	int64_t dims[4];

	snprintf(group, sizeof group, "%s/%d", ranks, part->rank);
	cpa_h5_write_group(out, group);
	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part_tensor *it = &part->tensors[t];
		const int64_t sizes[3] = {it->shape.B, it->shape.S, it->shape.H};

		if (!cpa_merge_keeps(part, t))
			continue;
		cpa_recording_join(path, group, '/', cpa_part_tensor_name(t));
		cpa_h5_write_empty(out, path, CPA_H5_FLOAT, it->shape.dtype,
			file_dims(part->bhsd, t, sizes, it->shape.D, dims), dims);
		for (int axis = 0; axis < 3; axis++)
			cpa_h5_write_integer_table(out, path, it->axes[axis].name, it->axes[axis].nrows, 3,
				it->axes[axis].rows);
	}
}

static void lay_out_tensors(const struct cpa_merge_call *call, struct cpa_h5 *out)
{
	const struct cpa_part *part = &call->parts[0];
	char path[CPA_H5_WHERE];
	int64_t sizes[3], dims[4];

	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part *first = first_with(call, t);

		if (t >= O && !(part->whole && part->tensors[t].there))
			continue;
		cpa_merge_sizes(call, t, sizes);
		cpa_recording_join(path, call->where, '/', cpa_part_tensor_name(t));
		cpa_h5_write_empty(out, path, CPA_H5_FLOAT, first->tensors[t].shape.dtype,
			file_dims(part->bhsd, t, sizes, first->tensors[t].shape.D, dims), dims);
	}
	cpa_recording_join(path, call->where, '/', "mask");
	if (call->masked)
		cpa_h5_write_empty(out, path, call->mask.class, call->mask.dtype, 4, call->mask.dims);
}

static void lay_out(const struct cpa_merge_call *call, struct cpa_h5 *out)
{
	const struct cpa_part *part = &call->parts[0];
	char ranks[CPA_H5_WHERE / 2 + 20];

	cpa_recording_write_rules(out, call->where, &call->problem, part->bhsd, NULL);
	for (int i = 0; i < part->ntexts; i++)
		cpa_h5_write_string(out, call->where, part->texts[2 * i], part->texts[2 * i + 1]);
	lay_out_tensors(call, out);
	if (part->said.config)
		cpa_recording_write_config(out, call->where, part->said.config);
	if (part->whole)
		return;
	snprintf(ranks, sizeof ranks, "%s/ranks", call->where);
	cpa_h5_write_group(out, ranks);
	cpa_h5_write_integer(out, ranks, "world_size", part->world);
	for (int i = 0; i < call->n; i++)
		lay_out_rank(&call->parts[i], ranks, out);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum cpa_status plan_call(struct cpa_parts *parts, struct cpa_merge_call *call,
	struct cpa_error *error)
{
	enum cpa_status status = check_ranks(call, error);

	if (status == CPA_OK)
		status = find_sizes(call, error);
	for (int t = 0; t < CPA_PART_NTENSORS && status == CPA_OK; t++) {
		/* What is said needs the sizes, and whether a token may come twice what is said. */
		if (t == 0)
			status = agree(parts, call, error);
		if (status == CPA_OK)
			status = cover_tensor(call, t, error);
	}
	return status == CPA_OK ? cpa_merge_plan_mask(call, error) : status;
}

/* Cuts the sorted parts into calls. */
static enum cpa_status plan(struct cpa_parts *parts, struct cpa_merge_call *calls, int *ncalls,
	struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int i = 0, end; i < parts->n && status == CPA_OK; i = end) {
		struct cpa_merge_call *call = &calls[(*ncalls)++];

		for (end = i + 1; end < parts->n && strcmp(parts->at[end].call, parts->at[i].call) == 0;)
			end++;
		*call = (struct cpa_merge_call){.parts = &parts->at[i], .n = end - i};
		cpa_arena_init(&call->arena);
		snprintf(call->where, sizeof call->where, "/calls/%s", parts->at[i].call);
		status = plan_call(parts, call, error);
	}
	return status;
}

/* Bytes of the datasets of a call, and something for what names them. */
static uint64_t expected_nbytes(const struct cpa_merge_call *call)
{
	const int64_t *dims = call->mask.dims;
	uint64_t nbytes = 1 << 16;
	int64_t sizes[3];

	for (int t = 0; t < CPA_PART_NTENSORS; t++) {
		const struct cpa_part *first = first_with(call, t);
		const uint64_t element = first ? cpa_dtype_nbytes(first->tensors[t].shape.dtype) : 0;

		cpa_merge_sizes(call, t, sizes);
		if (first && (t <= V || first->whole))
			nbytes += (uint64_t)(sizes[0] * sizes[1] * sizes[2] * first->tensors[t].shape.D) * element;
		for (int i = 0; i < call->n; i++) {
			const struct cpa_recording_shape *shape = &call->parts[i].tensors[t].shape;

			if (cpa_merge_keeps(&call->parts[i], t))
				nbytes += (uint64_t)(shape->B * shape->S * shape->H * shape->D) * element + 4096;
		}
	}
	if (call->masked)
		nbytes += (uint64_t)(dims[0] * dims[1] * dims[2] * dims[3]) *
			(call->mask.class == CPA_H5_FLOAT ? cpa_dtype_nbytes(call->mask.dtype) : 1);
	return nbytes;
}

static enum cpa_status fill(struct cpa_merge_call *calls, int ncalls, const char *temporary,
	struct cpa_error *error)
{
	struct cpa_h5 *out = NULL;
	enum cpa_status status = cpa_h5_create_file(temporary, &out, error);
	uint64_t nbytes = 0;

	if (status != CPA_OK)
		return status;
	for (int i = 0; i < ncalls; i++)
		nbytes += expected_nbytes(&calls[i]);
	status = cpa_h5_reserve(out, temporary, nbytes, error);
	if (status != CPA_OK) {
		cpa_h5_close(out);
		return status;
	}
	cpa_h5_write_string(out, "/", "format", "cpattn recording");
	cpa_h5_write_integer(out, "/", "format_version", 1);
	cpa_h5_write_group(out, "/calls");
	for (int i = 0; i < ncalls; i++)
		lay_out(&calls[i], out);
	status = cpa_h5_reserve(out, temporary, 0, error);
	for (int i = 0; i < ncalls && status == CPA_OK; i++)
		status = cpa_merge_copy(&calls[i], out, error);
	if (status == CPA_OK)
		status = cpa_h5_finish(out, error);
	cpa_h5_close(out);
	return status;
}

static enum cpa_status write_out(struct cpa_merge_call *calls, int ncalls, const char *path,
	struct cpa_error *error)
{
	struct cpa_output output;
	enum cpa_status status = cpa_output_open(&output, path, error);

	if (status != CPA_OK)
		return status;
	if (!output.temporary)
		status = cpa_fail(error, CPA_INVALID, "%.300s: a recording is written in pieces, out of order; "
			"expected the name of a regular file", path);
	if (status == CPA_OK)
		status = fill(calls, ncalls, output.temporary, error);
	if (status == CPA_OK)
		return cpa_output_commit(&output, error);
	cpa_output_abandon(&output);
	return status;
}

enum cpa_status cpa_parts_merge(struct cpa_parts *parts, const char *path, int *ncalls,
	struct cpa_error *error)
{
	struct cpa_merge_call *calls = calloc((size_t)parts->n + 1, sizeof *calls);
	enum cpa_status status;

	*ncalls = 0;
	if (!calls)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	status = plan(parts, calls, ncalls, error);
	if (status == CPA_OK)
		status = write_out(calls, *ncalls, path, error);
	for (int i = 0; i < *ncalls; i++) {
		free(calls[i].key_class);
		cpa_arena_fini(&calls[i].arena);
	}
	free(calls);
	return status;
}
