/*
 * recording_merge_mask.c - one mask from what the ranks had of it: all of it, that of their
 * queries, that of their keys.
 *
 * Keys fall into classes: the key lists of two parts are the same or have nothing in common.  So
 * a bit for each (batch item, head, query, class) says what is there already.
 */
#include "harness/recording_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const axis_names[4] = {"batch items", "heads", "queries", "keys"};

/* ---- the shape -------------------------------------------------------------------------------
 */

static bool is_truth(const struct cpa_part_mask *mask)
{
	return mask->class != CPA_H5_FLOAT;
}

static enum cpa_status refuse(
	const struct cpa_part *part, struct cpa_error *error, const char *sentence)
{
	return cpa_fail(
		error, CPA_INVALID, "%.200s: %s/mask: %s", part->file, part->where, sentence);
}

static enum cpa_status check_kinds(const struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_part_mask *first = &call->parts[0].mask;

	for (int i = 0; i < call->n; i++) {
		const struct cpa_part_mask *mask = &call->parts[i].mask;

		if (mask->there != first->there)
			return refuse(&call->parts[mask->there ? 0 : i], error,
				"missing, while other ranks "
				"have one; expected one on all ranks or on none");
		if (mask->there &&
			(is_truth(mask) != is_truth(first) ||
				(!is_truth(mask) && mask->dtype != first->dtype)))
			return refuse(&call->parts[i], error,
				"has another element type than that of rank 0");
	}
	return CPA_OK;
}

/* Whether the whole mask has one element along this axis. */
static enum cpa_status is_broadcast(
	const struct cpa_merge_call *call, int axis, bool *broadcast, struct cpa_error *error)
{
	const struct cpa_part *plain = NULL, *wide = NULL;

	for (int i = 0; i < call->n; i++) {
		const struct cpa_part_mask *mask = &call->parts[i].mask;

		if (mask->dims[axis] != 1)
			wide = &call->parts[i];
		else if (!mask->said[axis])
			plain = &call->parts[i];
	}
	*broadcast = plain && !wide;
	if (plain && wide)
		return cpa_fail(error, CPA_INVALID,
			"%.200s: %s/mask: is the same for all %s, and that of rank "
			"%d (%.200s) is not; expected one form on all ranks",
			plain->file, plain->where, axis_names[axis], wide->rank, wide->file);
	return CPA_OK;
}

/* The ids of the axis in part, where the file does not say them. */
static enum cpa_status set_ids(struct cpa_part *part, int axis, int64_t full, bool broadcast,
	struct cpa_arena *arena, struct cpa_error *error)
{
	struct cpa_part_mask *mask = &part->mask;
	struct cpa_recording_axis *ids = &mask->axes[axis];

	if (!mask->said[axis] || broadcast) {
		if (!broadcast && mask->dims[axis] != full)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/mask: has %lld %s of %lld, and does not "
				"say which; expected the attribute %s",
				part->file, part->where, (long long)mask->dims[axis],
				axis_names[axis], (long long)full, ids->name);
		ids->rows = cpa_arena_alloc(arena, 3 * sizeof *ids->rows);
		if (!ids->rows)
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		ids->nrows = 1;
		ids->rows[1] = ids->total = broadcast ? 1 : full;
		ids->rows[2] = 1;
	}
	for (int64_t i = 0; i < ids->nrows; i++) {
		const int64_t *row = &ids->rows[3 * i];

		if (row[0] >= 0 && row[1] > 0 && row[0] + (row[1] - 1) * row[2] >= full)
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/mask@%s leaves 0 to %lld, what the call "
				"has",
				part->file, part->where, ids->name, (long long)full - 1);
	}
	return CPA_OK;
}

/* ---- classes of keys -------------------------------------------------------------------------
 */

/* The keys of a new class into seen. */
static enum cpa_status add_class(
	const struct cpa_merge_call *call, int n, unsigned char *seen, struct cpa_error *error)
{
	const struct cpa_recording_axis *keys = &call->parts[n].mask.axes[3];

	for (int64_t i = 0; i < keys->total; i++) {
		const int64_t id = cpa_part_id(keys, i);

		if (id < 0)
			continue;
		if (cpa_merge_bit(seen, id))
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/mask: key %lld is also in the mask of a "
				"rank with other keys; expected the keys of two ranks to be the "
				"same, or to have "
				"nothing in common",
				call->parts[n].file, call->parts[n].where, (long long)id);
		cpa_merge_set(seen, id);
	}
	return CPA_OK;
}

static enum cpa_status find_classes(struct cpa_merge_call *call, struct cpa_error *error)
{
	const int64_t nkeys = call->mask.dims[3];
	unsigned char *seen = calloc((size_t)nkeys / 8 + 1, 1);
	enum cpa_status status = CPA_OK;

	call->key_class = calloc((size_t)call->n, sizeof *call->key_class);
	if (!seen || !call->key_class)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < call->n && status == CPA_OK; i++) {
		int j = 0;

		while (j < i &&
			!cpa_part_same_ids(&call->parts[j].mask.axes[3], &call->parts[i].mask.axes[3]))
			j++;
		call->key_class[i] = j < i ? call->key_class[j] : call->nkey_classes++;
		if (j == i)
			status = add_class(call, i, seen, error);
	}
	for (int64_t key = 0; key < nkeys && status == CPA_OK; key++)
		if (!cpa_merge_bit(seen, key))
			status = cpa_fail(error, CPA_INVALID,
				"%s: no rank holds key %lld of mask; expected all "
				"of them",
				call->where, (long long)key);
	free(seen);
	return status;
}

/* ---- coverage --------------------------------------------------------------------------------
 */

static int64_t bit_of(const struct cpa_merge_call *call, int n, int64_t b, int64_t h, int64_t t)
{
	const int64_t *dims = call->mask.dims;

	return ((b * dims[1] + h) * dims[2] + t) * call->nkey_classes + call->key_class[n];
}

static unsigned char *make_bits(const struct cpa_merge_call *call)
{
	const int64_t *dims = call->mask.dims;

	return calloc((size_t)(dims[0] * dims[1] * dims[2] * call->nkey_classes / 8 + 1), 1);
}

static void cover_part(const struct cpa_merge_call *call, int n, unsigned char *held)
{
	const struct cpa_recording_axis *axes = call->parts[n].mask.axes;

	for (int64_t i = 0; i < axes[0].total; i++)
		for (int64_t j = 0; j < axes[1].total; j++)
			for (int64_t k = 0; k < axes[2].total; k++) {
				const int64_t b = cpa_part_id(&axes[0], i),
					      h = cpa_part_id(&axes[1], j);
				const int64_t t = cpa_part_id(&axes[2], k);

				if (b >= 0 && h >= 0 && t >= 0)
					cpa_merge_set(held, bit_of(call, n, b, h, t));
			}
}

static enum cpa_status cover(const struct cpa_merge_call *call, struct cpa_error *error)
{
	const int64_t *dims = call->mask.dims;
	unsigned char *held = make_bits(call);
	enum cpa_status status = CPA_OK;

	if (!held)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < call->n; i++)
		cover_part(call, i, held);
	for (int64_t i = 0;
		i < dims[0] * dims[1] * dims[2] * call->nkey_classes && status == CPA_OK; i++) {
		const int64_t row = i / call->nkey_classes;

		if (!cpa_merge_bit(held, i))
			status = cpa_fail(error, CPA_INVALID,
				"%s: no rank holds all keys of mask for query %lld "
				"(batch item %lld, head %lld); expected them over the %d ranks",
				call->where, (long long)(row % dims[2]),
				(long long)(row / dims[2] / dims[1]),
				(long long)(row / dims[2] % dims[1]), call->n);
	}
	free(held);
	return status;
}

enum cpa_status cpa_merge_plan_mask(struct cpa_merge_call *call, struct cpa_error *error)
{
	const struct cpa_problem *p = &call->problem;
	const int64_t full[4] = {p->B, p->Hq, p->Sq, p->Skv};
	enum cpa_status status = check_kinds(call, error);

	call->masked = call->parts[0].mask.there;
	if (status != CPA_OK || !call->masked)
		return status;
	call->mask.class = is_truth(&call->parts[0].mask) ? CPA_H5_INTEGER : CPA_H5_FLOAT;
	call->mask.dtype = call->parts[0].mask.dtype;
	for (int axis = 0; axis < 4 && status == CPA_OK; axis++) {
		bool broadcast = false;

		status = is_broadcast(call, axis, &broadcast, error);
		call->mask.dims[axis] = broadcast ? 1 : full[axis];
		for (int i = 0; i < call->n && status == CPA_OK; i++)
			status = set_ids(&call->parts[i], axis, full[axis], broadcast,
				&call->arena, error);
	}
	if (status == CPA_OK)
		status = find_classes(call, error);
	return status == CPA_OK ? cover(call, error) : status;
}

/* ---- copying ---------------------------------------------------------------------------------
 */

/* Queries t .. t+nt-1 as stored (their ids to_t + i tstride) with keys k .. k+nk-1 of one (b, h).
 */
struct strip {
	int64_t b, h, t, nt, k, nk;
	int64_t to_b, to_h, to_t, tstride, to_k, kstride;
};

struct copying {
	const struct cpa_merge_call *call;
	int n;
	struct cpa_h5_array in, out;
	size_t in_element, element;
	char *raw, *buffer, *other;
	unsigned char *held;
};

static void set_axis(struct cpa_h5_box *box, int axis, int64_t start, int64_t n, int64_t stride)
{
	if (axis < 0) /* an axis that is not stored */
		return;
	box->start[axis] = start;
	box->stride[axis] = stride;
	box->count[axis] = stride == 1 ? 1 : n;
	box->block[axis] = stride == 1 ? n : 1;
}

/* Into buffer: truth values as bytes of 0 and 1, floats as they are. */
static enum cpa_status read_strip(
	struct copying *c, const struct strip *p, struct cpa_error *error)
{
	const struct cpa_part *part = &c->call->parts[c->n];
	const int64_t n = p->nt * p->nk;
	const int lack = 4 - c->in.rank;
	struct cpa_h5_box box;
	struct cpa_error inner;

	set_axis(&box, 0 - lack, p->b, 1, 1);
	set_axis(&box, 1 - lack, p->h, 1, 1);
	set_axis(&box, 2 - lack, p->t, p->nt, 1);
	set_axis(&box, 3 - lack, p->k, p->nk, 1);
	if (cpa_h5_read_box(&c->in, &box, c->raw, &inner) != CPA_OK)
		return cpa_fail(error, CPA_INVALID, "%.200s: %s", part->file, inner.text);
	if (c->in.class == CPA_H5_FLOAT) {
		if (cpa_recording_first_bad(
			    c->in.dtype, c->raw, n, CPA_VALUES_FINITE_OR_MINUS_INF) >= 0)
			return refuse(part, error,
				"holds a NaN or +inf; expected finite numbers or -inf");
		memcpy(c->buffer, c->raw, (size_t)n * c->element);
		return CPA_OK;
	}
	for (int64_t i = 0; i < n; i++) {
		c->buffer[i] = 0;
		for (size_t byte = 0; byte < c->in_element; byte++)
			c->buffer[i] |= c->raw[(size_t)i * c->in_element + byte] != 0;
	}
	return CPA_OK;
}

static enum cpa_status place_strip(
	struct copying *c, const struct strip *p, bool held, struct cpa_error *error)
{
	const struct cpa_part *part = &c->call->parts[c->n];
	struct cpa_h5_box box;
	enum cpa_status status = read_strip(c, p, error);

	set_axis(&box, 0, p->to_b, 1, 1);
	set_axis(&box, 1, p->to_h, 1, 1);
	set_axis(&box, 2, p->to_t, p->nt, p->tstride);
	set_axis(&box, 3, p->to_k, p->nk, p->kstride);
	if (status != CPA_OK)
		return status;
	if (!held)
		return cpa_h5_write_box(&c->out, &box, c->buffer, error);
	status = cpa_h5_read_box(&c->out, &box, c->other, error);
	for (int64_t i = 0; i < p->nt * p->nk && status == CPA_OK; i++)
		if (memcmp(c->buffer + (size_t)i * c->element, c->other + (size_t)i * c->element,
			    c->element) != 0)
			status = cpa_fail(error, CPA_INVALID,
				"%.200s: %s/mask: query %lld, key %lld (batch "
				"item %lld, head %lld) differs from what another rank held; "
				"expected one mask",
				part->file, part->where,
				(long long)(p->to_t + i / p->nk * p->tstride),
				(long long)(p->to_k + i % p->nk * p->kstride), (long long)p->to_b,
				(long long)p->to_h);
	return status;
}

/* All keys of the queries of the strip, in blocks. */
static enum cpa_status place_keys(
	struct copying *c, const struct strip *queries, bool held, struct cpa_error *error)
{
	const struct cpa_recording_axis *keys = &c->call->parts[c->n].mask.axes[3];
	const int64_t room = CPA_H5_BLOCK_NBYTES / 8;
	enum cpa_status status = CPA_OK;
	struct strip p = *queries;

	p.k = 0;
	for (int64_t i = 0; i < keys->nrows; i++) {
		const int64_t *row = &keys->rows[3 * i], end = p.k + row[1];

		p.kstride = row[2];
		for (int64_t done = 0; done < row[1] && row[0] >= 0 && status == CPA_OK;
			done += p.nk) {
			p.nk = row[1] - done < room ? row[1] - done : room;
			p.to_k = row[0] + done * row[2];
			for (int64_t t = 0; t < queries->nt && status == CPA_OK; t += p.nt) {
				p.nt = room / p.nk < queries->nt - t ? room / p.nk
								     : queries->nt - t;
				p.t = queries->t + t;
				p.to_t = queries->to_t + t * queries->tstride;
				status = place_strip(c, &p, held, error);
			}
			p.k += p.nk;
		}
		p.k = end;
	}
	return status;
}

/* Runs of queries that are all fresh, or all there. */
static enum cpa_status place_queries(struct copying *c, struct strip p, struct cpa_error *error)
{
	const struct cpa_recording_axis *queries = &c->call->parts[c->n].mask.axes[2];
	int64_t stored = 0;
	enum cpa_status status = CPA_OK;

	for (int64_t i = 0; i < queries->nrows && status == CPA_OK;
		stored += queries->rows[3 * i++ + 1]) {
		const int64_t *row = &queries->rows[3 * i];

		for (int64_t t = 0; t < row[1] && row[0] >= 0 && status == CPA_OK; t += p.nt) {
			const bool held = cpa_merge_bit(c->held,
				bit_of(c->call, c->n, p.to_b, p.to_h, row[0] + t * row[2]));

			for (p.nt = 0; t + p.nt < row[1]; p.nt++) {
				const int64_t bit = bit_of(c->call, c->n, p.to_b, p.to_h,
					row[0] + (t + p.nt) * row[2]);

				if (cpa_merge_bit(c->held, bit) != held)
					break;
				cpa_merge_set(c->held, bit);
			}
			p.t = stored + t;
			p.to_t = row[0] + t * row[2];
			p.tstride = row[2];
			status = place_keys(c, &p, held, error);
		}
	}
	return status;
}

static enum cpa_status copy_opened(struct copying *c, struct cpa_error *error)
{
	const struct cpa_part_mask *mask = &c->call->parts[c->n].mask;
	const struct cpa_recording_axis *axes = mask->axes;
	enum cpa_status status = CPA_OK;

	c->in_element = cpa_h5_element_nbytes(&c->in);
	c->element = c->call->mask.class == CPA_H5_FLOAT ? c->in_element : 1;
	if (c->in.class != mask->class || c->in.rank != mask->rank ||
		c->in.count != mask->dims[0] * mask->dims[1] * mask->dims[2] * mask->dims[3])
		return cpa_fail(error, CPA_INVALID, "%.200s: changed while it was read",
			c->call->parts[c->n].file);
	for (int64_t i = 0; i < axes[0].total; i++)
		for (int64_t j = 0; j < axes[1].total && status == CPA_OK; j++) {
			const struct strip p = {.b = i,
				.h = j,
				.to_b = cpa_part_id(&axes[0], i),
				.to_h = cpa_part_id(&axes[1], j)};

			if (p.to_b >= 0 && p.to_h >= 0)
				status = place_queries(c, p, error);
		}
	return status;
}

enum cpa_status cpa_merge_copy_mask(
	const struct cpa_merge_call *call, struct cpa_h5 *out, struct cpa_error *error)
{
	struct copying c = {.call = call,
		.held = make_bits(call),
		.raw = malloc(CPA_H5_BLOCK_NBYTES),
		.buffer = malloc(CPA_H5_BLOCK_NBYTES),
		.other = malloc(CPA_H5_BLOCK_NBYTES)};
	char path[CPA_H5_WHERE];
	enum cpa_status status;

	cpa_recording_join(path, call->where, '/', "mask");
	status = c.held && c.raw && c.buffer && c.other
		? cpa_h5_array_open(out, path, NULL, &c.out, error)
		: cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (c.n = 0; c.n < call->n && status == CPA_OK; c.n++) {
		struct cpa_recording *recording;

		status = cpa_merge_open(&call->parts[c.n], "mask", &recording, &c.in, error);
		if (status != CPA_OK)
			break;
		status = copy_opened(&c, error);
		cpa_h5_array_close(&c.in);
		cpa_recording_close(recording);
	}
	if (c.out.id)
		cpa_h5_array_close(&c.out);
	free(c.held);
	free(c.raw);
	free(c.buffer);
	free(c.other);
	return status;
}
