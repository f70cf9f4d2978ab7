/*
 * spans.c - ordered lists of tokens in spans.
 *
 * cpa_spans_append() keeps a normal form: the list is cut into runs of consecutive tokens, as
 * long as they can be; then, from the left, three or more runs of one width at one distance are
 * one span.  (Two stay two: the halves of a zigzag shard need different keys.)  The form depends
 * on the tokens alone, and adding a run can be undone (take_run), which is how a last run that
 * grows finds its new place.  Other functions take lists in any form.
 */
#include "ref/ref.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t span_ntokens(const struct cpa_span *span)
{
	return span->width * span->count;
}

/* Start of the last run. */
static int64_t last_start(const struct cpa_span *span)
{
	return span->start + (span->count - 1) * span->stride;
}

static int64_t span_end(const struct cpa_span *span)
{
	return last_start(span) + span->width;
}

static void push(struct cpa_arena *arena, struct cpa_spans *list, struct cpa_span span)
{
	if (list->n == list->capacity) {
		const int capacity = list->capacity == 0 ? 1 : 2 * list->capacity;
		struct cpa_span *at = cpa_arena_alloc(arena, (size_t) capacity * sizeof *at);

		if (at == NULL)
			return;
		if (list->n > 0)
			memcpy(at, list->at, (size_t) list->n * sizeof *at);
		list->at = at;
		list->capacity = capacity;
	}
	if (span.count == 1)
		span.stride = span.width;
	list->at[list->n++] = span;
}

/* Adds a run that does not continue the last one.  True when it joined others in a span. */
static bool add_run(
	struct cpa_arena *arena, struct cpa_spans *list, int64_t start, int64_t width)
{
	struct cpa_span *last = list->n > 0 ? &list->at[list->n - 1] : NULL;
	struct cpa_span *before = list->n > 1 ? last - 1 : NULL;

	if (last != NULL && last->width == width) {
		if (last->count > 1 && start == span_end(last) - width + last->stride) {
			last->count++;
			return true;
		}
		if (before != NULL && last->count == 1 && before->count == 1 &&
			before->width == width && last->start - before->start >= width &&
			start - last->start == last->start - before->start) {
			before->stride = start - last->start;
			before->count = 3;
			list->n--;
			return true;
		}
	}
	push(arena, list, (struct cpa_span) { start, width, width, 1 });
	return false;
}

/* Takes the last run off, and returns its start. */
static int64_t take_run(struct cpa_arena *arena, struct cpa_spans *list)
{
	struct cpa_span *last = &list->at[list->n - 1];
	const struct cpa_span span = *last;

	if (span.count == 3) { /* two runs are two spans */
		*last = (struct cpa_span) { span.start, span.width, span.width, 1 };
		push(arena, list,
			(struct cpa_span) {
				span.start + span.stride, span.width, span.width, 1 });
	} else if (span.count > 1) {
		last->count--;
	} else {
		list->n--;
	}
	return last_start(&span);
}

void cpa_spans_append(struct cpa_arena *arena, struct cpa_spans *list, struct cpa_span span)
{
	assert(span.width >= 1 && span.count >= 1 && span.stride >= span.width);
	if (span.count > 1 && span.stride == span.width)
		span = (struct cpa_span) { span.start, span_ntokens(&span), span_ntokens(&span),
			1 };
	while (span.count > 0 && !arena->failed) {
		const struct cpa_span *last = list->n > 0 ? &list->at[list->n - 1] : NULL;
		bool joined;

		if (last != NULL && span_end(last) == span.start) {
			const int64_t width = last->width + span.width;

			joined = add_run(arena, list, take_run(arena, list), width);
		} else {
			joined = add_run(arena, list, span.start, span.width);
		}
		span.start += span.stride;
		span.count--;
		last = list->n > 0 ? &list->at[list->n - 1] : NULL;
		if (joined && span.count > 0 && last->width == span.width &&
			last->stride == span.stride &&
			last_start(last) + last->stride == span.start) {
			list->at[list->n - 1].count += span.count;
			return;
		}
	}
}

void cpa_spans_append_range(
	struct cpa_arena *arena, struct cpa_spans *list, struct cpa_range range)
{
	const int64_t width = range.end - range.start;

	if (width > 0)
		cpa_spans_append(
			arena, list, (struct cpa_span) { range.start, width, width, 1 });
}

int64_t cpa_spans_ntokens(const struct cpa_spans *list)
{
	int64_t n = 0;

	for (int i = 0; i < list->n; i++)
		n += span_ntokens(&list->at[i]);
	return n;
}

int64_t cpa_spans_token(const struct cpa_spans *list, int64_t index)
{
	int i = 0;

	assert(index >= 0);
	while (i < list->n && index >= span_ntokens(&list->at[i]))
		index -= span_ntokens(&list->at[i++]);
	assert(i < list->n);
	return list->at[i].start + index / list->at[i].width * list->at[i].stride +
		index % list->at[i].width;
}

int64_t cpa_spans_min(const struct cpa_spans *list)
{
	int64_t min;

	assert(list->n > 0);
	min = list->at[0].start;
	for (int i = 1; i < list->n; i++)
		min = list->at[i].start < min ? list->at[i].start : min;
	return min;
}

int64_t cpa_spans_max(const struct cpa_spans *list)
{
	int64_t max;

	assert(list->n > 0);
	max = span_end(&list->at[0]) - 1;
	for (int i = 1; i < list->n; i++) {
		const int64_t end = span_end(&list->at[i]);

		max = end - 1 > max ? end - 1 : max;
	}
	return max;
}

/* A place in a list: run `run` of span `span`, `done` of its tokens passed. */
struct cursor {
	const struct cpa_spans *list;
	int span;
	int64_t run, done;
};

static void advance_runs(struct cursor *cursor, int64_t nruns)
{
	cursor->done = 0;
	cursor->run += nruns;
	if (cursor->run == cursor->list->at[cursor->span].count) {
		cursor->run = 0;
		cursor->span++;
	}
}

static void advance_tokens(struct cursor *cursor, int64_t n)
{
	cursor->done += n;
	if (cursor->done == cursor->list->at[cursor->span].width)
		advance_runs(cursor, 1);
}

bool cpa_spans_equal(const struct cpa_spans *a, const struct cpa_spans *b)
{
	struct cursor x = { .list = a }, y = { .list = b };

	if (a->n == b->n && (a->n == 0 || a->at == b->at))
		return true;
	if (cpa_spans_ntokens(a) != cpa_spans_ntokens(b))
		return false;
	while (x.span < a->n && y.span < b->n) {
		const struct cpa_span *p = &a->at[x.span], *q = &b->at[y.span];
		const int64_t left_x = p->width - x.done, left_y = q->width - y.done;
		const int64_t runs_x = p->count - x.run, runs_y = q->count - y.run;

		if (p->start + x.run * p->stride + x.done !=
			q->start + y.run * q->stride + y.done)
			return false;
		if (x.done == 0 && y.done == 0 && p->width == q->width &&
			p->stride == q->stride) {
			advance_runs(&x, runs_x < runs_y ? runs_x : runs_y);
			advance_runs(&y, runs_x < runs_y ? runs_x : runs_y);
		} else {
			advance_tokens(&x, left_x < left_y ? left_x : left_y);
			advance_tokens(&y, left_x < left_y ? left_x : left_y);
		}
	}
	return true;
}

/* One run as "7" or "0-3". */
static int print_run(char *text, size_t size, int64_t start, int64_t width)
{
	if (width == 1)
		return snprintf(text, size, "%" PRId64, start);
	return snprintf(text, size, "%" PRId64 "-%" PRId64, start, start + width - 1);
}

static void print_span(const struct cpa_span *span, char *text, size_t size)
{
	int n;

	if (span->count == 1) {
		print_run(text, size, span->start, span->width);
	} else if (span->count == 2) { /* easier to read than a distance */
		n = print_run(text, size, span->start, span->width);
		text[n] = ' ';
		print_run(text + n + 1, size - (size_t) n - 1, span->start + span->stride,
			span->width);
	} else {
		n = snprintf(text, size, "%" PRId64 "-%" PRId64 ":%" PRId64, span->start,
			span_end(span) - 1, span->stride);
		if (span->width > 1)
			snprintf(text + n, size - (size_t) n, "x%" PRId64, span->width);
	}
}

void cpa_spans_print(const struct cpa_spans *list, char *text, size_t size)
{
	size_t used = 0;

	assert(size >= 8);
	if (list->n == 0)
		snprintf(text, size, "none");
	for (int i = 0; i < list->n; i++) {
		const size_t reserved = i + 1 < list->n ? 4 : 0; /* " ..." behind this one */
		char one[128];
		size_t n;

		print_span(&list->at[i], one, sizeof one);
		n = strlen(one) + (used > 0);
		if (used + n + reserved + 1 > size) {
			snprintf(text + used, size - used, used > 0 ? " ..." : "...");
			return;
		}
		used += (size_t) snprintf(
			text + used, size - used, "%s%s", used > 0 ? " " : "", one);
	}
}
