/*
 * recording_merge_cover.c - who holds what: each (batch item, token, head) once, or where it may
 * be more often, and none that nobody holds.
 */
#include "harness/recording_merge.h"

#include <stdlib.h>

enum { K = 1, V = 2 };

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

const struct cpa_part *cpa_merge_holder(
	const struct cpa_merge_call *call, int n, int tensor, const int64_t ids[3])
{
	for (int i = 0; i < n; i++) {
		const struct cpa_part_tensor *held = &call->parts[i].tensors[tensor];

		if (held->there && cpa_merge_in_axis(&held->axes[0], ids[0]) &&
			cpa_merge_in_axis(&held->axes[1], ids[1]) &&
			cpa_merge_in_axis(&held->axes[2], ids[2]))
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
	const int64_t sizes[3], int64_t b, int64_t t, unsigned char *held,
	struct cpa_error *error)
{
	const struct cpa_part *part = &call->parts[n], *other;
	const struct cpa_recording_axis *heads = &part->tensors[tensor].axes[2];

	for (int64_t i = 0; i < heads->total; i++) {
		const int64_t ids[3] = {b, t, cpa_part_id(heads, i)};
		const int64_t bit = (b * sizes[1] + t) * sizes[2] + ids[2];

		if (ids[2] < 0)
			continue;
		if (ids[2] >= sizes[2])
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/%s: head %lld of the %lld that %s has", part->file,
				part->where, cpa_part_tensor_name(tensor), (long long)ids[2],
				(long long)sizes[2], tensor == V ? "k" : "q");
		/* Keys may be on many ranks, and are compared when they are copied. */
		if (cpa_merge_bit(held, bit) && tensor != K && tensor != V &&
			!is_replicated(call, t)) {
			other = cpa_merge_holder(call, n, tensor, ids);
			return cpa_fail(error, CPA_INVALID,
				"%.200s: %s/%s: token %lld (batch item %lld, head "
				"%lld) is held twice%s%.200s; expected each once, but for "
				"segments that are "
				"recorded as replicated",
				part->file, part->where, cpa_part_tensor_name(tensor),
				(long long)t, (long long)b, (long long)ids[2],
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
			const int64_t b = cpa_part_id(&it->axes[0], i),
				      t = cpa_part_id(&it->axes[1], j);

			if (b >= sizes[0] || t >= sizes[1])
				return cpa_fail(error, CPA_INVALID,
					"%.200s: %s/%s: token %lld of batch item "
					"%lld lies outside of the %lld tokens and %lld batch "
					"items of %s",
					part->file, part->where, cpa_part_tensor_name(tensor),
					(long long)t, (long long)b, (long long)sizes[1],
					(long long)sizes[0], tensor == V ? "k" : "q");
			if (b >= 0 && t >= 0)
				status = cover_heads(call, n, tensor, sizes, b, t, held, error);
		}
	return status;
}

static enum cpa_status find_gap(const struct cpa_merge_call *call, int tensor,
	const int64_t sizes[3], const unsigned char *held, struct cpa_error *error)
{
	for (int64_t bit = 0; bit < sizes[0] * sizes[1] * sizes[2]; bit++) {
		if (bit % 8 == 0 && held[bit / 8] == 0xff) {
			bit += 7;
			continue;
		}
		if (!cpa_merge_bit(held, bit))
			return cpa_fail(error, CPA_INVALID,
				"%s: no rank holds token %lld (batch item %lld, head "
				"%lld) of %s; expected all of them over the %d ranks (%.200s is "
				"one)",
				call->where, (long long)(bit / sizes[2] % sizes[1]),
				(long long)(bit / sizes[2] / sizes[1]),
				(long long)(bit % sizes[2]), cpa_part_tensor_name(tensor),
				call->parts[0].world, call->parts[0].file);
	}
	return CPA_OK;
}

enum cpa_status cpa_merge_cover(
	const struct cpa_merge_call *call, int tensor, struct cpa_error *error)
{
	int64_t sizes[3], stored = 0;
	unsigned char *held;
	enum cpa_status status = CPA_OK;

	if (!cpa_merge_first(call, tensor))
		return CPA_OK;
	cpa_merge_sizes(call, tensor, sizes);
	for (int i = 0; i < call->n; i++) {
		const struct cpa_recording_shape *shape = &call->parts[i].tensors[tensor].shape;

		stored += shape->B * shape->S * shape->H;
	}
	/* Ids of nonsense must not ask for their weight in memory. */
	if ((double)sizes[0] * (double)sizes[1] * (double)sizes[2] > 64.0 * (double)stored + 1e6)
		return cpa_fail(error, CPA_INVALID,
			"%s: ids of %s reach to %lld batch items, %lld tokens and "
			"%lld heads, and the ranks hold %lld rows in all; expected all of them",
			call->where, cpa_part_tensor_name(tensor), (long long)sizes[0],
			(long long)sizes[1], (long long)sizes[2], (long long)stored);
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
