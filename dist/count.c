/* count.c - exact counts of one rank's schedule: bytes, messages, memory, work. */
#include "dist/schedule.h"

#include <stdlib.h>

static int64_t operand_nbytes(const struct cpa_schedule *s, const struct cpa_operand *x)
{
	const struct cpa_buffer *b = &s->buffers[x->box.buffer];
	return cpa_box_nelements(b, &x->box) * (int64_t)cpa_dtype_nbytes(b->dtype);
}

/* Only the gather of guidance brings rows of several batch groups together. */
static bool gathers_branches(const struct cpa_op *op)
{
	if (op->kind != CPA_OP_COLLECTIVE)
		return false;
	for (int i = 1; i < op->nwrites; i++)
		if (op->writes[i].content.batches.start != op->writes[0].content.batches.start ||
			op->writes[i].content.batches.end != op->writes[0].content.batches.end)
			return true;
	return false;
}

static void count_message(
	const struct cpa_schedule *s, const struct cpa_op *op, struct cpa_counts *counts)
{
	int64_t copies = op->kind == CPA_OP_SEND ? 1 : s->comms[op->comm].nmembers - 1,
		nbytes = 0;
	for (int i = 0; i < op->nreads; i++)
		nbytes += operand_nbytes(s, &op->reads[i]);
	counts->bytes_sent += nbytes * copies;
	counts->messages += nbytes > 0 && copies > 0;
	counts->gathered_bytes += gathers_branches(op) ? nbytes * copies : 0;
}

/* How many of the rows from t on are in the document of t, at most `width`. */
static int64_t rows_of_document(const struct cpa_rule *rule, int64_t t, int64_t width)
{
	int64_t low = 0, high = rule->ndocuments; /* documents[low] <= t < documents[high] */
	if (!rule->documents)
		return width;
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (rule->documents[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	return rule->documents[high] - t < width ? rule->documents[high] - t : width;
}

/*
 * Visible keys of consecutive rows of one batch item, the mask aside.  Within a document both
 * ends of the interval move by at most one a row; where each stays, or moves every row, the
 * numbers of keys are an arithmetic series and summed by their ends.  Else halves.
 */
static int64_t visible_in_run(
	const struct cpa_problem *p, int64_t b, int64_t start, int64_t width)
{
	int64_t here = rows_of_document(&p->rule, start, width);
	if (here < width)
		return visible_in_run(p, b, start, here) +
			visible_in_run(p, b, start + here, width - here);
	struct cpa_range first = cpa_rule_row(p, b, start),
			 last = cpa_rule_row(p, b, start + width - 1);
	int64_t moved_start = last.start - first.start, moved_end = last.end - first.end;
	int64_t nfirst = first.end - first.start, nlast = last.end - last.start;
	if (width == 1)
		return nfirst;
	if (nfirst > 0 && nlast > 0 && (moved_start == 0 || moved_start == width - 1) &&
		(moved_end == 0 || moved_end == width - 1))
		return (nfirst + nlast) * width / 2;
	int64_t half = width / 2;
	return visible_in_run(p, b, start, half) +
		visible_in_run(p, b, start + half, width - half);
}

/* Query rows of all ATTENDs: each hop works on the same rows again, in other groups now and then. */
struct rows {
	struct cpa_span *at;
	int64_t n, capacity;
	struct cpa_range batches;
};

static void add_span(struct rows *rows, struct cpa_span span)
{
	if (rows->n == rows->capacity) {
		int64_t larger = rows->capacity ? 2 * rows->capacity : 64;
		struct cpa_span *moved = realloc(rows->at, sizeof *moved * (size_t)larger);
		if (!moved)
			return; /* work is told too small then */
		rows->at = moved;
		rows->capacity = larger;
	}
	rows->at[rows->n++] = span;
}

static void add_rows(struct rows *rows, const struct cpa_content *q)
{
	for (int i = 0; i < q->tokens.n; i++)
		add_span(rows, q->tokens.at[i]);
	rows->batches = q->batches;
}

static int compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

static int by_place(const void *a, const void *b)
{
	const struct cpa_span *x = a, *y = b;
	return x->start != y->start	? compare(x->start, y->start)
		: x->width != y->width	? compare(x->width, y->width)
		: x->stride != y->stride ? compare(x->stride, y->stride)
					 : compare(x->count, y->count);
}

/* Ascending, and each span once. */
static void sort_rows(struct rows *rows)
{
	int64_t n = 0;
	if (rows->n > 0)
		qsort(rows->at, (size_t)rows->n, sizeof *rows->at, by_place);
	for (int64_t i = 0; i < rows->n; i++)
		if (n == 0 || by_place(&rows->at[n - 1], &rows->at[i]) != 0)
			rows->at[n++] = rows->at[i];
	rows->n = n;
}

static int64_t end_of(const struct cpa_span *span)
{
	return span->start + (span->count - 1) * span->stride + span->width;
}

/* Visible keys of all batch items; the number of rows is added to *nrows. */
static int64_t count_range(const struct cpa_problem *p, struct cpa_range batches, int64_t start,
	int64_t end, int64_t *nrows)
{
	int64_t pairs = 0;
	for (int64_t b = batches.start; start < end && b < batches.end; b++)
		pairs += visible_in_run(p, b, start, end - start);
	*nrows += start < end ? end - start : 0;
	return pairs;
}

/* Spans that may have rows in common, run by run; each row counts once. */
static int64_t count_cluster(const struct cpa_problem *p, struct rows *rows, int64_t first,
	int64_t last, int64_t *nrows)
{
	struct rows runs = {0};
	int64_t pairs = 0, done = 0;
	for (int64_t i = first; i < last; i++)
		for (int64_t run = 0; run < rows->at[i].count; run++) {
			struct cpa_span span = rows->at[i];
			add_span(&runs,
				(struct cpa_span){span.start + run * span.stride, span.width,
					span.width, 1});
		}
	if (last - first > 1)
		sort_rows(&runs);
	for (int64_t i = 0; i < runs.n; i++) {
		int64_t start = runs.at[i].start, end = end_of(&runs.at[i]);
		pairs += count_range(p, rows->batches, start > done ? start : done, end, nrows);
		done = end > done ? end : done;
	}
	free(runs.at);
	return pairs;
}

/* Every row that sees a key is in some ATTEND, and every visible pair is worked on once.  All
 * ATTENDs of a rank are of the same heads and batch items. */
static int64_t count_pairs(const struct cpa_problem *p, struct rows *rows, int64_t *nrows)
{
	int64_t pairs = 0;
	sort_rows(rows);
	for (int64_t first = 0, last; first < rows->n; first = last) {
		int64_t end = end_of(&rows->at[first]);
		for (last = first + 1; last < rows->n && rows->at[last].start < end; last++)
			end = end_of(&rows->at[last]) > end ? end_of(&rows->at[last]) : end;
		pairs += count_cluster(p, rows, first, last, nrows);
	}
	return pairs;
}

/* The rows that this rank works on, its heads and all columns, in the mask's broadcast shape. */
static int64_t mask_nbytes(
	const struct cpa_problem *p, const struct cpa_op *attend, int64_t nrows)
{
	const struct cpa_mask *mask = &p->rule.mask;
	if (mask->kind == CPA_MASK_NONE || !attend)
		return 0;
	const struct cpa_box *q = &attend->reads[0].box;
	int64_t n = mask->kind == CPA_MASK_BOOL ? 1 : (int64_t)cpa_dtype_nbytes(mask->dtype);
	n *= mask->batch ? q->nbatches : 1;
	n *= mask->head ? q->nheads : 1;
	n *= mask->query ? nrows : 1;
	return n * (mask->key ? p->Skv : 1);
}

/* A copy without a source starts rows that no ATTEND works on: they see no key. */
static int64_t rows_without_keys(const struct cpa_op *op)
{
	bool identity = op->kind == CPA_OP_COPY && op->nreads == 0 &&
		op->writes[0].content.tensor == CPA_TENSOR_O;
	return identity ? op->writes[0].box.ntokens : 0;
}

void cpa_schedule_count(const struct cpa_schedule *s, const struct cpa_problem *problem,
	struct cpa_counts *counts)
{
	*counts = (struct cpa_counts){0};
	for (int i = 0; i < s->nbuffers; i++)
		counts->peak_bytes += cpa_buffer_nbytes(&s->buffers[i]);
	struct rows rows = {0};
	const struct cpa_op *attend = NULL;
	int64_t nrows = 0;
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind == CPA_OP_SEND || op->kind == CPA_OP_COLLECTIVE)
			count_message(s, op, counts);
		nrows += rows_without_keys(op);
		if (op->kind != CPA_OP_ATTEND)
			continue;
		const struct cpa_box *q = &op->reads[0].box, *k = &op->reads[1].box;
		counts->attended += q->ntokens * k->ntokens * q->nheads * q->nbatches;
		attend = op;
		add_rows(&rows, &op->reads[0].content);
	}
	if (attend)
		counts->work = count_pairs(problem, &rows, &nrows) * attend->reads[0].box.nheads;
	counts->mask_bytes = mask_nbytes(problem, attend, nrows);
	free(rows.at);
}
