/* count.c - exact counts of one rank's schedule: bytes, messages, memory, work. */
#include "dist/schedule.h"

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

static int64_t visible_pairs(const struct cpa_problem *p, const struct cpa_content *q)
{
	int64_t pairs = 0;
	for (int64_t b = q->batches.start; b < q->batches.end; b++)
		for (int i = 0; i < q->tokens.n; i++)
			for (int64_t c = 0; c < q->tokens.at[i].count; c++)
				pairs += visible_in_run(p, b,
					q->tokens.at[i].start + c * q->tokens.at[i].stride,
					q->tokens.at[i].width);
	return pairs * (q->heads.end - q->heads.start);
}

/* Query rows whose pairs have been counted: each hop works on the same rows again. */
struct counted {
	struct cpa_arena arena;
	struct cpa_spans rows;
};

static bool is_counted(const struct counted *counted, int64_t token)
{
	return cpa_spans_ncommon_range(&counted->rows, (struct cpa_range){token, token + 1}) == 1;
}

static void count_rows(struct counted *counted, struct cpa_span span)
{
	struct cpa_spans one = {&span, 1, 1};
	counted->rows = cpa_spans_union(&counted->arena, &counted->rows, &one);
}

/* Every row that sees a key is in some ATTEND, and every visible pair is worked on once.  All
 * ATTENDs of a rank are of the same heads.  Rows come alone where they were grouped otherwise
 * before. */
static int64_t new_pairs(
	const struct cpa_problem *p, const struct cpa_content *q, struct counted *counted)
{
	int64_t pairs = 0;
	for (int i = 0; i < q->tokens.n; i++) {
		struct cpa_span span = q->tokens.at[i];
		struct cpa_content one = *q;
		one.tokens = (struct cpa_spans){&span, 1, 1};
		int64_t n = span.width * span.count,
			known = cpa_spans_ncommon(&counted->rows, &one.tokens);
		if (known == 0) {
			pairs += visible_pairs(p, &one);
			count_rows(counted, span);
			continue;
		}
		for (int64_t t = 0; known < n && t < n; t++) {
			int64_t token = cpa_spans_token(&one.tokens, t);
			struct cpa_span single = {token, 1, 1, 1};
			if (is_counted(counted, token))
				continue;
			struct cpa_content row = *q;
			row.tokens = (struct cpa_spans){&single, 1, 1};
			pairs += visible_pairs(p, &row);
			count_rows(counted, single);
		}
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
	struct counted counted = {.rows = {0}};
	const struct cpa_op *attend = NULL;
	int64_t nrows = 0;
	cpa_arena_init(&counted.arena);
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
		counts->work += new_pairs(problem, &op->reads[0].content, &counted);
	}
	nrows += cpa_spans_ntokens(&counted.rows);
	counts->mask_bytes = mask_nbytes(problem, attend, nrows);
	cpa_arena_fini(&counted.arena);
}
