/*
 * recording_merge_copy.c - streams the tensors of the parts into a merged recording, a block at a
 * time.
 *
 * Rows that a rank before has written are compared instead, bit for bit.
 */
#include "harness/recording_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LSE = 4 };

struct stream {
	const struct cpa_merge_call *call;
	int n, tensor; /* the part that is read */
	bool bhsd;
	struct cpa_h5_array in, out;
	int64_t sizes[3], D;
	size_t element;
	char *buffer, *other; /* a block each */
	unsigned char *held; /* a bit for each row of out; NULL: all are fresh */
};

/* Stored rows of the part: batch item b, tokens t .. t+nt-1, heads h .. h+nh-1, and the ids that
 * they have: b, t + i tstride, h + i hstride. */
struct piece {
	int64_t b, t, nt, h, nh;
	int64_t to_b, to_t, tstride, to_h, hstride;
};

/* ---- boxes -----------------------------------------------------------------------------------
 */

static void set_axis(struct cpa_h5_box *box, int axis, int64_t start, int64_t n, int64_t stride)
{
	box->start[axis] = start;
	box->stride[axis] = stride;
	box->count[axis] = stride == 1 ? 1 : n;
	box->block[axis] = stride == 1 ? n : 1;
}

static struct cpa_h5_box box_of(const struct stream *s, const struct piece *p, bool out)
{
	const int t = s->bhsd ? 2 : 1, h = s->bhsd ? 1 : 2;
	struct cpa_h5_box box;

	set_axis(&box, 0, out ? p->to_b : p->b, 1, 1);
	set_axis(&box, t, out ? p->to_t : p->t, p->nt, out ? p->tstride : 1);
	set_axis(&box, h, out ? p->to_h : p->h, p->nh, out ? p->hstride : 1);
	set_axis(&box, 3, 0, s->D, 1);
	return box;
}

/* Row i of a block: its token and head within the piece. */
static void row_of(
	const struct stream *s, const struct piece *p, int64_t i, int64_t *t, int64_t *h)
{
	*t = s->bhsd ? i % p->nt : i / p->nh;
	*h = s->bhsd ? i / p->nt : i % p->nh;
}

static enum cpa_status read_piece(
	struct stream *s, const struct piece *p, struct cpa_error *error)
{
	const struct cpa_part *part = &s->call->parts[s->n];
	const struct cpa_h5_box box = box_of(s, p, false);
	struct cpa_error inner;
	int64_t bad, t, h;

	if (cpa_h5_read_box(&s->in, &box, s->buffer, &inner) != CPA_OK)
		return cpa_fail(error, CPA_INVALID, "%.200s: %s", part->file, inner.text);
	bad = cpa_recording_first_bad(s->in.dtype, s->buffer, p->nt * p->nh * s->D,
		cpa_recording_allowed(cpa_part_tensor_name(s->tensor), !part->whole));
	if (bad < 0)
		return CPA_OK;
	row_of(s, p, bad / s->D, &t, &h);
	return cpa_fail(error, CPA_INVALID,
		"%.200s: %s: token number %lld as stored (batch item %lld, head "
		"%lld) holds a NaN or an infinity; expected finite numbers%s",
		part->file, s->in.where, (long long)(p->t + t), (long long)p->b,
		(long long)(p->h + h), s->tensor == LSE ? " or -inf" : "");
}

static enum cpa_status write_piece(
	struct stream *s, const struct piece *p, struct cpa_error *error)
{
	const struct cpa_h5_box box = box_of(s, p, true);
	enum cpa_status status = read_piece(s, p, error);

	return status == CPA_OK ? cpa_h5_write_box(&s->out, &box, s->buffer, error) : status;
}

static enum cpa_status differ(
	const struct stream *s, const struct piece *p, int64_t row, struct cpa_error *error)
{
	const struct cpa_part *part = &s->call->parts[s->n], *other;
	int64_t t, h;

	row_of(s, p, row, &t, &h);
	const int64_t ids[3] = {p->to_b, p->to_t + t * p->tstride, p->to_h + h * p->hstride};
	other = cpa_merge_holder(s->call, s->n + 1, s->tensor, ids);
	return cpa_fail(error, CPA_INVALID,
		"%.200s: %s: token %lld (batch item %lld, head %lld) differs from what "
		"rank %d held (%.200s); expected the same bits, as the ranks worked on one %s",
		part->file, s->in.where, (long long)ids[1], (long long)ids[0], (long long)ids[2],
		other->rank, other->file, cpa_part_tensor_name(s->tensor));
}

static enum cpa_status compare_piece(
	struct stream *s, const struct piece *p, struct cpa_error *error)
{
	const size_t row = (size_t)s->D * s->element;
	const struct cpa_h5_box box = box_of(s, p, true);
	enum cpa_status status = read_piece(s, p, error);

	if (status == CPA_OK)
		status = cpa_h5_read_box(&s->out, &box, s->other, error);
	for (int64_t i = 0; i < p->nt * p->nh && status == CPA_OK; i++)
		if (memcmp(s->buffer + (size_t)i * row, s->other + (size_t)i * row, row) != 0)
			status = differ(s, p, i, error);
	return status;
}

/* ---- fresh rows and held ones ----------------------------------------------------------------
 */

enum state { FRESH, HELD, MIXED };

/* Of token i of the piece. */
static enum state state_of(const struct stream *s, const struct piece *p, int64_t i)
{
	const int64_t row = (p->to_b * s->sizes[1] + p->to_t + i * p->tstride) * s->sizes[2] +
		p->to_h;
	int64_t n = 0;

	for (int64_t h = 0; h < p->nh; h++)
		n += cpa_merge_bit(s->held, row + h * p->hstride);
	return n == 0 ? FRESH : n == p->nh ? HELD : MIXED;
}

static void mark(struct stream *s, const struct piece *p)
{
	for (int64_t i = 0; i < p->nt; i++) {
		const int64_t t = p->to_t + i * p->tstride;

		for (int64_t h = 0; h < p->nh; h++)
			cpa_merge_set(s->held,
				(p->to_b * s->sizes[1] + t) * s->sizes[2] + p->to_h +
					h * p->hstride);
	}
}

static struct piece tokens_of(const struct piece *p, int64_t first, int64_t n)
{
	struct piece part = *p;

	part.t += first;
	part.to_t += first * p->tstride;
	part.nt = n;
	return part;
}

static enum cpa_status place(struct stream *s, const struct piece *p, struct cpa_error *error);

static enum cpa_status place_alike(
	struct stream *s, const struct piece *p, enum state state, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	if (state == HELD)
		return compare_piece(s, p, error);
	if (state == FRESH) {
		mark(s, p);
		return write_piece(s, p, error);
	}
	for (int64_t h = 0; h < p->nh && status == CPA_OK; h++) {
		struct piece one = *p;

		one.h += h;
		one.to_h += h * p->hstride;
		one.nh = 1;
		status = place(s, &one, error);
	}
	return status;
}

static enum cpa_status place(struct stream *s, const struct piece *p, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	if (!s->held)
		return write_piece(s, p, error);
	for (int64_t i = 0, end; i < p->nt && status == CPA_OK; i = end) {
		const enum state state = state_of(s, p, i);

		for (end = i + 1; end < p->nt && state_of(s, p, end) == state;)
			end++;
		const struct piece run = tokens_of(p, i, end - i);
		status = place_alike(s, &run, state, error);
	}
	return status;
}

/* ---- walking ---------------------------------------------------------------------------------
 */

/* A box of stored rows, in blocks of tokens. */
static enum cpa_status place_blocks(
	struct stream *s, const struct piece *p, struct cpa_error *error)
{
	const int64_t row = p->nh * s->D * (int64_t)s->element;
	const int64_t per = row < CPA_H5_BLOCK_NBYTES ? CPA_H5_BLOCK_NBYTES / row : 1;
	enum cpa_status status = CPA_OK;

	for (int64_t i = 0; i < p->nt && status == CPA_OK; i += per) {
		const struct piece block = tokens_of(p, i, p->nt - i < per ? p->nt - i : per);

		status = place(s, &block, error);
	}
	return status;
}

/* Rows of spans: batch item by batch item, tokens x heads. */
static enum cpa_status place_spans(
	struct stream *s, const struct cpa_part_tensor *it, struct cpa_error *error)
{
	const struct cpa_recording_axis *tokens = &it->axes[1], *heads = &it->axes[2];
	enum cpa_status status = CPA_OK;

	for (int64_t b = 0; b < it->shape.B; b++) {
		struct piece p = {.b = b, .to_b = cpa_part_id(&it->axes[0], b)};

		for (int64_t i = 0; i < tokens->nrows && p.to_b >= 0; i++) {
			const int64_t *t = &tokens->rows[3 * i];

			p.nt = t[1];
			p.to_t = t[0];
			p.tstride = t[2];
			p.h = 0;
			for (int64_t j = 0; j < heads->nrows && status == CPA_OK; j++) {
				const int64_t *h = &heads->rows[3 * j];

				p.nh = h[1];
				p.to_h = h[0];
				p.hstride = h[2];
				if (t[0] >= 0 && h[0] >= 0 && p.nt > 0 && p.nh > 0)
					status = place_blocks(s, &p, error);
				p.h += p.nh;
			}
			p.t += p.nt;
		}
	}
	return status;
}

/* All that is stored, padding included, as it lies. */
static enum cpa_status place_all(
	struct stream *s, const struct cpa_part_tensor *it, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int64_t b = 0; b < it->shape.B && status == CPA_OK; b++) {
		const struct piece p = {.b = b,
			.nt = it->shape.S,
			.nh = it->shape.H,
			.to_b = b,
			.tstride = 1,
			.hstride = 1};

		if (p.nt > 0 && p.nh > 0)
			status = place_blocks(s, &p, error);
	}
	return status;
}

/* ---- files -----------------------------------------------------------------------------------
 */

enum cpa_status cpa_merge_open(const struct cpa_part *part, const char *name,
	struct cpa_recording **recording, struct cpa_h5_array *array, struct cpa_error *error)
{
	char path[CPA_H5_WHERE];
	struct cpa_error inner;
	enum cpa_status status = cpa_recording_open(part->file, recording, &inner);

	if (status != CPA_OK)
		return cpa_fail(error, status, "%.200s: %s", part->file, inner.text);
	cpa_recording_join(path, part->where, '/', name);
	status = cpa_h5_array_open((*recording)->file, path, NULL, array, &inner);
	if (status == CPA_OK)
		return CPA_OK;
	cpa_recording_close(*recording);
	return cpa_fail(error, status, "%.200s: %s", part->file, inner.text);
}

/* What the survey saw is still there; the sizes of buffers rest on it. */
static bool unchanged(const struct stream *s, const struct cpa_part_tensor *it)
{
	const int64_t dims[4] = {it->shape.B, s->bhsd ? it->shape.H : it->shape.S,
		s->bhsd ? it->shape.S : it->shape.H, it->shape.D};
	bool same = s->in.class == CPA_H5_FLOAT && s->in.dtype == it->shape.dtype &&
		s->in.rank == (s->tensor == LSE ? 3 : 4);

	for (int i = 0; i < s->in.rank && same; i++)
		same = s->in.dims[i] == dims[i];
	return same;
}

/* One tensor of one part, into s->out, by its ids or as it lies. */
static enum cpa_status copy_part(struct stream *s, bool by_ids, struct cpa_error *error)
{
	const struct cpa_part *part = &s->call->parts[s->n];
	const struct cpa_part_tensor *it = &part->tensors[s->tensor];
	struct cpa_recording *recording;
	enum cpa_status status = cpa_merge_open(
		part, cpa_part_tensor_name(s->tensor), &recording, &s->in, error);
	size_t row = (size_t)(it->shape.H * it->shape.D) * cpa_dtype_nbytes(it->shape.dtype);

	if (status != CPA_OK)
		return status;
	row = row > CPA_H5_BLOCK_NBYTES ? row : CPA_H5_BLOCK_NBYTES;
	s->bhsd = part->bhsd;
	s->D = it->shape.D;
	s->element = cpa_dtype_nbytes(it->shape.dtype);
	s->buffer = malloc(row);
	s->other = by_ids ? malloc(row) : NULL;
	if (!unchanged(s, it))
		status = cpa_fail(
			error, CPA_INVALID, "%.200s: changed while it was read", part->file);
	else if (!s->buffer || (by_ids && !s->other))
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	else
		status = by_ids ? place_spans(s, it, error) : place_all(s, it, error);
	free(s->buffer);
	free(s->other);
	cpa_h5_array_close(&s->in);
	cpa_recording_close(recording);
	return status;
}

/* The global q, k or v. */
static enum cpa_status copy_input(const struct cpa_merge_call *call, int tensor,
	struct cpa_h5 *out, struct cpa_error *error)
{
	struct stream s = {.call = call, .tensor = tensor};
	char path[CPA_H5_WHERE];
	enum cpa_status status;

	cpa_merge_sizes(call, tensor, s.sizes);
	cpa_recording_join(path, call->where, '/', cpa_part_tensor_name(tensor));
	status = cpa_h5_array_open(out, path, NULL, &s.out, error);
	if (status != CPA_OK)
		return status;
	s.held = calloc((size_t)(s.sizes[0] * s.sizes[1] * s.sizes[2] / 8 + 1), 1);
	if (!s.held)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (s.n = 0; s.n < call->n && status == CPA_OK; s.n++)
		if (call->parts[s.n].tensors[tensor].there)
			status = copy_part(&s, true, error);
	free(s.held);
	cpa_h5_array_close(&s.out);
	return status;
}

/* What one rank held, as it lies; of a whole call the outputs. */
static enum cpa_status copy_held(const struct cpa_merge_call *call, int n, int tensor,
	struct cpa_h5 *out, struct cpa_error *error)
{
	const struct cpa_part *part = &call->parts[n];
	struct stream s = {.call = call, .n = n, .tensor = tensor};
	char group[CPA_H5_WHERE / 2 + 40], path[CPA_H5_WHERE];
	enum cpa_status status;

	if (part->whole)
		snprintf(group, sizeof group, "%s", call->where);
	else
		snprintf(group, sizeof group, "%s/ranks/%d", call->where, part->rank);
	cpa_recording_join(path, group, '/', cpa_part_tensor_name(tensor));
	status = cpa_h5_array_open(out, path, NULL, &s.out, error);
	if (status != CPA_OK)
		return status;
	status = copy_part(&s, false, error);
	cpa_h5_array_close(&s.out);
	return status;
}

enum cpa_status cpa_merge_copy(
	const struct cpa_merge_call *call, struct cpa_h5 *out, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int t = 0; t < 3 && status == CPA_OK; t++)
		status = copy_input(call, t, out, error);
	for (int i = 0; i < call->n; i++)
		for (int t = 0; t < CPA_PART_NTENSORS && status == CPA_OK; t++)
			if (cpa_merge_keeps(&call->parts[i], t) ||
				(t >= 3 && call->parts[i].whole &&
					call->parts[i].tensors[t].there))
				status = copy_held(call, i, t, out, error);
	return status == CPA_OK && call->masked ? cpa_merge_copy_mask(call, out, error) : status;
}
