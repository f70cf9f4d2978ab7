/* spans_set.c - lists of spans as sets: counting what is below or common, and unions. */
#include "ref/ref.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t span_end(const struct cpa_span *span)
{
	return span->start + (span->count - 1) * span->stride + span->width;
}

/* How many tokens of span are < token. */
static int64_t span_below(const struct cpa_span *span, int64_t token)
{
	const int64_t distance = token - span->start;

	if (distance <= 0)
		return 0;
	if (distance / span->stride >= span->count)
		return span->count * span->width;
	return distance / span->stride * span->width +
		min64(span->width, distance % span->stride);
}

static int64_t span_ncommon_range(const struct cpa_span *span, int64_t start, int64_t end)
{
	return start < end ? span_below(span, end) - span_below(span, start) : 0;
}

int64_t cpa_spans_below(const struct cpa_spans *ascending, int64_t token)
{
	int64_t n = 0;

	for (int i = 0; i < ascending->n && ascending->at[i].start < token; i++)
		n += span_below(&ascending->at[i], token);
	return n;
}

int64_t cpa_spans_ncommon_range(const struct cpa_spans *a, struct cpa_range range)
{
	int64_t n = 0;

	for (int i = 0; i < a->n; i++)
		n += span_ncommon_range(&a->at[i], range.start, range.end);
	return n;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Equal strides: runs i of a and j of b overlap by an amount that depends on j - i alone, and
 * at most for two values of it, as no run is wider than the stride.
 */
static int64_t ncommon_aligned(const struct cpa_span *a, const struct cpa_span *b)
{
	const int64_t stride = a->stride, d = b->start - a->start;
	const int64_t first = floor_div(-b->width - d, stride) + 1;
	const int64_t last = floor_div(a->width - 1 - d, stride);
	int64_t n = 0;

	for (int64_t m = first; m <= last; m++) {
		const int64_t start = d + m * stride; /* of run i + m of b, from run i of a */
		const int64_t overlap = min64(a->width, start + b->width) - max64(0, start);
		const int64_t nruns = min64(a->count, b->count - m) - max64(0, -m);

		if (nruns > 0)
			n += nruns * overlap;
	}
	return n;
}

static int64_t span_ncommon(const struct cpa_span *a, const struct cpa_span *b)
{
	int64_t n = 0, first, last;

	if (span_end(a) <= b->start || span_end(b) <= a->start)
		return 0;
	if (a->count == 1)
		return span_ncommon_range(b, a->start, a->start + a->width);
	if (b->count == 1)
		return span_ncommon_range(a, b->start, b->start + b->width);
	if (a->stride == b->stride)
		return ncommon_aligned(a, b);
	if (a->count > b->count)
		return span_ncommon(b, a);
	/* The runs of a, the shorter one, that lie within the hull of b or touch it. */
	first = max64(0, floor_div(b->start - a->start, a->stride));
	last = min64(a->count - 1, floor_div(span_end(b) - 1 - a->start, a->stride));
	for (int64_t i = first; i <= last; i++) {
		const int64_t start = a->start + i * a->stride;

		n += span_ncommon_range(b, start, start + a->width);
	}
	return n;
}

/* Each span ends before the next one starts. */
static bool ascends(const struct cpa_spans *list)
{
	for (int i = 1; i < list->n; i++) {
		if (list->at[i].start < span_end(&list->at[i - 1]))
			return false;
	}
	return true;
}

/* Both lists ascend: of two spans the one that ends first is done with. */
static int64_t ncommon_ascending(const struct cpa_spans *a, const struct cpa_spans *b)
{
	int64_t n = 0;
	int i = 0, k = 0;

	while (i < a->n && k < b->n) {
		n += span_ncommon(&a->at[i], &b->at[k]);
		if (span_end(&a->at[i]) < span_end(&b->at[k]))
			i++;
		else
			k++;
	}
	return n;
}

int64_t cpa_spans_ncommon(const struct cpa_spans *a, const struct cpa_spans *b)
{
	int64_t n = 0;

	if (a->n > 1 && b->n > 1 && ascends(a) && ascends(b))
		return ncommon_ascending(a, b);
	for (int i = 0; i < a->n; i++) {
		for (int k = 0; k < b->n; k++)
			n += span_ncommon(&a->at[i], &b->at[k]);
	}
	return n;
}

bool cpa_spans_same_set(const struct cpa_spans *a, const struct cpa_spans *b)
{
	const int64_t n = cpa_spans_ntokens(a);

	if (n != cpa_spans_ntokens(b))
		return false;
	if (a->n == b->n &&
		(a->n == 0 || memcmp(a->at, b->at, (size_t) a->n * sizeof *a->at) == 0))
		return true;
	return cpa_spans_ncommon(a, b) == n;
}

/* `count` runs from run `first` of span. */
static struct cpa_span part(struct cpa_span span, int64_t first, int64_t count)
{
	span.start += first * span.stride;
	span.count = count;
	if (count == 1)
		span.stride = span.width;
	return span;
}

/*
 * Joins b to the right side of a where runs of both adjoin: m runs i of a with run i + shift of
 * b.  They become one wider span, and what is left of a and b stays as it is.  Refused where
 * that would make three spans of two.  out [2], returns how many; 0 when nothing adjoins.
 */
static int join(const struct cpa_span *a, const struct cpa_span *b, struct cpa_span *out)
{
	const int64_t d = b->start - a->start - a->width;
	const int64_t stride = a->count > 1 ? a->stride : b->stride;
	const bool strided = a->count > 1 || b->count > 1;
	int64_t shift, first, m, end;
	struct cpa_span wide;
	int n = 0;

	if (d % stride != 0 || (!strided && d != 0) ||
		(a->count > 1 && b->count > 1 && a->stride != b->stride))
		return 0;
	shift = -(d / stride); /* run i + shift of b starts where run i of a ends */
	first = max64(0, -shift);
	end = min64(a->count, b->count - shift);
	m = end - first;
	if (m < 1)
		return 0;
	wide = (struct cpa_span) { a->start + first * stride, a->width + b->width, stride, m };
	assert(m == 1 || wide.width <= stride); /* else the sets were not disjoint */
	if (m == 1 || wide.width == stride) {
		wide.width += (m - 1) * stride;
		wide.stride = wide.width;
		wide.count = 1;
	}
	if ((first > 0) + (end < a->count) + (first + shift > 0) + (end + shift < b->count) > 1)
		return 0;
	out[n++] = wide;
	if (first > 0)
		out[n++] = part(*a, 0, first);
	if (end < a->count)
		out[n++] = part(*a, end, a->count - end);
	if (first + shift > 0)
		out[n++] = part(*b, 0, first + shift);
	if (end + shift < b->count)
		out[n++] = part(*b, end + shift, b->count - end - shift);
	return n;
}

/* Joins one pair of list if any pair joins.  Each time the set has fewer runs, so this ends. */
static bool join_any(struct cpa_spans *list)
{
	for (int i = 0; i < list->n; i++) {
		for (int k = 0; k < list->n; k++) {
			struct cpa_span out[2];
			const int n = i == k ? 0 : join(&list->at[i], &list->at[k], out);

			if (n == 0)
				continue;
			list->at[i] = out[0];
			if (n == 2)
				list->at[k] = out[1];
			else
				list->at[k] = list->at[--list->n];
			return true;
		}
	}
	return false;
}

static void sort(struct cpa_spans *list)
{
	for (int i = 1; i < list->n; i++) {
		const struct cpa_span span = list->at[i];
		int k = i;

		for (; k > 0 && list->at[k - 1].start > span.start; k--)
			list->at[k] = list->at[k - 1];
		list->at[k] = span;
	}
}

/* Both lists behind each other, sorted by start. */
static void gather(struct cpa_spans *list, const struct cpa_spans *a, const struct cpa_spans *b)
{
	int i = 0, k = 0;

	while (i < a->n || k < b->n) {
		const bool left = k == b->n || (i < a->n && a->at[i].start <= b->at[k].start);

		list->at[list->n++] = left ? a->at[i++] : b->at[k++];
	}
	sort(list); /* two ascending lists are merged by now, and this is one pass */
}

static void append_all(
	struct cpa_arena *arena, struct cpa_spans *list, const struct cpa_spans *more)
{
	for (int i = 0; i < more->n; i++)
		cpa_spans_append(arena, list, more->at[i]);
}

static int by_start(const void *a, const void *b)
{
	const struct cpa_span *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* Joining is quadratic.  Of a long list with few runs to a span the runs themselves are sorted. */
enum { MANY_SPANS = 64, FEW_RUNS = 8 };

static struct cpa_spans join_runs(
	struct cpa_arena *arena, const struct cpa_spans *list, int64_t nruns)
{
	struct cpa_spans runs = { cpa_arena_alloc(arena, (size_t) nruns * sizeof *runs.at), 0, 0 };
	struct cpa_spans out = { 0 };

	if (runs.at == NULL)
		return out;
	for (int i = 0; i < list->n; i++) {
		for (int64_t run = 0; run < list->at[i].count; run++)
			runs.at[runs.n++] = part(list->at[i], run, 1);
	}
	qsort(runs.at, (size_t) runs.n, sizeof *runs.at, by_start);
	append_all(arena, &out, &runs);
	return out;
}

/* Spans whose hulls meet: as runs that are as long as can be. */
static struct cpa_spans join_cluster(struct cpa_arena *arena, struct cpa_spans list)
{
	struct cpa_spans out = { 0 };
	int64_t nruns = 0;

	if (ascends(&list)) {
		append_all(arena, &out, &list);
		return out;
	}
	for (int i = 0; i < list.n; i++)
		nruns += list.at[i].count;
	if (list.n > MANY_SPANS && nruns <= FEW_RUNS * (int64_t) list.n)
		return join_runs(arena, &list, nruns);
	while (join_any(&list))
		continue;
	sort(&list);
	return list;
}

/* Spans of list from `first` on whose hulls meet, one after the other. */
static int cluster_end(const struct cpa_spans *list, int first)
{
	int64_t end = span_end(&list->at[first]);
	int i = first + 1;

	for (; i < list->n && list->at[i].start <= end; i++)
		end = max64(end, span_end(&list->at[i]));
	return i;
}

static void push_all(struct cpa_arena *arena, struct cpa_spans *list, const struct cpa_spans *more)
{
	if (list->n + more->n > list->capacity) {
		const int capacity = 2 * (list->n + more->n);
		struct cpa_span *at = cpa_arena_alloc(arena, (size_t) capacity * sizeof *at);

		if (at == NULL)
			return;
		if (list->n > 0)
			memcpy(at, list->at, (size_t) list->n * sizeof *at);
		list->at = at;
		list->capacity = capacity;
	}
	if (more->n > 0)
		memcpy(list->at + list->n, more->at, (size_t) more->n * sizeof *more->at);
	list->n += more->n;
}

struct cpa_spans cpa_spans_union(
	struct cpa_arena *arena, const struct cpa_spans *a, const struct cpa_spans *b)
{
	struct cpa_spans list = { 0 }, joined = { 0 }, out = { 0 };

	if (a->n + b->n == 0)
		return out;
	list.capacity = a->n + b->n;
	list.at = cpa_arena_alloc(arena, (size_t) list.capacity * sizeof *list.at);
	if (list.at == NULL)
		return out;
	gather(&list, a, b);
	if (!ascends(&list)) {
		for (int i = 0, end; i < list.n; i = end) {
			struct cpa_spans cluster;

			end = cluster_end(&list, i);
			cluster = join_cluster(
				arena, (struct cpa_spans) { list.at + i, end - i, end - i });
			push_all(arena, &joined, &cluster);
		}
		if (!ascends(&joined))
			return joined;
		list = joined;
	}
	append_all(arena, &out, &list);
	return out;
}
