/*
 * spans_pick.c - parts of a list by index, and an index that finds them in long lists.
 */
#include "ref/ref.h"

#include <assert.h>

static int64_t span_ntokens(const struct cpa_span *span)
{
	return span->width * span->count;
}

/* Tokens [first, first + n) of one span: part of a run, whole runs, part of a run. */
static void pick_slice(struct cpa_arena *arena, struct cpa_spans *out,
	const struct cpa_span *span, int64_t first, int64_t n)
{
	const int64_t width = span->width, end = first + n;
	int64_t run;

	if (span->count == 1) {
		cpa_spans_append_range(arena, out,
			(struct cpa_range) { span->start + first, span->start + end });
		return;
	}
	run = first / width;
	if (first % width != 0) {
		const int64_t start = span->start + run * span->stride + first % width;
		const int64_t most = width - first % width, size = n < most ? n : most;

		cpa_spans_append_range(arena, out, (struct cpa_range) { start, start + size });
		run++;
	}
	if (run < end / width)
		cpa_spans_append(arena, out,
			(struct cpa_span) { span->start + run * span->stride, width,
				span->stride, end / width - run });
	if (end % width != 0 && run <= end / width) {
		const int64_t start = span->start + end / width * span->stride;

		cpa_spans_append_range(
			arena, out, (struct cpa_range) { start, start + end % width });
	}
}

/* Tokens first, first + step, ..., n of them, of one span; step > 1. */
static void pick_steps(struct cpa_arena *arena, struct cpa_spans *out,
	const struct cpa_span *span, int64_t first, int64_t n, int64_t step)
{
	const int64_t width = span->width;

	/* One run gives all of them, or runs at a fixed distance give one each. */
	if (span->count == 1) {
		cpa_spans_append(
			arena, out, (struct cpa_span) { span->start + first, 1, step, n });
		return;
	}
	if (step % width == 0) {
		const int64_t start =
			span->start + first / width * span->stride + first % width;

		cpa_spans_append(arena, out,
			(struct cpa_span) { start, 1, step / width * span->stride, n });
		return;
	}
	while (n > 0) {
		const int64_t inside = first % width, here = (width - inside - 1) / step + 1;
		const int64_t m = here < n ? here : n;

		cpa_spans_append(arena, out,
			(struct cpa_span) { span->start + first / width * span->stride + inside,
				1, step, m });
		first += m * step;
		n -= m;
	}
}

/* n tokens from token `first` of span i on, every step-th. */
static struct cpa_spans pick_from(struct cpa_arena *arena, const struct cpa_spans *list, int i,
	int64_t first, int64_t n, int64_t step)
{
	struct cpa_spans out = { 0 };

	assert(first >= 0 && n >= 0 && step >= 1);
	for (; i < list->n && n > 0; i++) {
		const struct cpa_span *span = &list->at[i];
		const int64_t ntokens = span_ntokens(span);
		int64_t here;

		if (first >= ntokens) {
			first -= ntokens;
			continue;
		}
		here = (ntokens - first - 1) / step + 1;
		if (here > n)
			here = n;
		if (step == 1)
			pick_slice(arena, &out, span, first, here);
		else
			pick_steps(arena, &out, span, first, here, step);
		n -= here;
		first += here * step - ntokens;
	}
	assert(n == 0);
	return out;
}

struct cpa_spans cpa_spans_pick(struct cpa_arena *arena, const struct cpa_spans *list,
	int64_t first, int64_t n, int64_t step)
{
	return pick_from(arena, list, 0, first, n, step);
}

/* ---- the index ---- */

struct cpa_spans_index cpa_spans_index(struct cpa_arena *arena, const struct cpa_spans *list)
{
	struct cpa_spans_index index = { *list, NULL };
	int64_t n = 0;

	index.before = cpa_arena_alloc(arena, ((size_t) list->n + 1) * sizeof *index.before);
	if (index.before == NULL) { /* what it says of an empty list is right for one */
		index.list = (struct cpa_spans) { 0 };
		return index;
	}
	for (int i = 0; i < list->n; i++) {
		index.before[i] = n;
		n += span_ntokens(&list->at[i]);
	}
	index.before[list->n] = n;
	return index;
}

int64_t cpa_spans_index_below(const struct cpa_spans_index *ascending, int64_t token)
{
	const struct cpa_span *at = ascending->list.at;
	int low = -1, high = ascending->list.n; /* at[low].start < token <= at[high].start */
	int64_t distance, run;

	while (high - low > 1) {
		const int middle = low + (high - low) / 2;

		if (at[middle].start < token)
			low = middle;
		else
			high = middle;
	}
	if (low < 0)
		return 0;
	distance = token - at[low].start;
	run = distance / at[low].stride;
	if (run >= at[low].count)
		return ascending->before[low + 1];
	distance -= run * at[low].stride;
	return ascending->before[low] + run * at[low].width +
		(distance < at[low].width ? distance : at[low].width);
}

/* The span of token number `first`; the last one when it is behind them all. */
static int find_span(const struct cpa_spans_index *index, int64_t first)
{
	int low = 0, high = index->list.n; /* before[low] <= first < before[high] */

	while (high - low > 1) {
		const int middle = low + (high - low) / 2;

		if (index->before[middle] <= first)
			low = middle;
		else
			high = middle;
	}
	return low;
}

struct cpa_spans cpa_spans_index_pick(struct cpa_arena *arena,
	const struct cpa_spans_index *index, int64_t first, int64_t n, int64_t step)
{
	int i;

	if (index->before == NULL)
		return (struct cpa_spans) { 0 };
	i = find_span(index, first);
	return pick_from(arena, &index->list, i, first - index->before[i], n, step);
}

bool cpa_spans_index_run(
	const struct cpa_spans_index *index, int64_t first, int64_t n, struct cpa_span *run)
{
	const struct cpa_span *span;
	int i;

	if (index->list.n == 0)
		return false;
	i = find_span(index, first);
	span = &index->list.at[i];
	if (span->count > 1 || first - index->before[i] + n > span->width)
		return false;
	*run = (struct cpa_span) { span->start + first - index->before[i], n, n, 1 };
	return true;
}
