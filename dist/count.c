/* count.c - exact counts of one rank's schedule: bytes, messages, memory, work. */
#include "dist/schedule.h"

#include <stdlib.h>

static int64_t operand_nbytes(const struct cpa_schedule *s, const struct cpa_operand *x)
{
	const struct cpa_buffer *b = &s->buffers[x->box.buffer];
	return cpa_box_nelements(b, &x->box) * (int64_t)cpa_dtype_nbytes(b->dtype);
}

static void count_message(const struct cpa_schedule *s, const struct cpa_op *op, struct cpa_counts *counts)
{
	int64_t copies = op->kind == CPA_OP_SEND ? 1 : s->comms[op->comm].nmembers - 1, nbytes = 0;
	for (int i = 0; i < op->nreads; i++)
		nbytes += operand_nbytes(s, &op->reads[i]);
	counts->bytes_sent += nbytes * copies;
	counts->messages += nbytes > 0 && copies > 0;
}

/* Visible keys of all rows of q tokens, for one head and the batch items of the box.  Rows of one run
 * with a causal rule are an arithmetic series, so long runs are summed by their ends where the number
 * of keys grows by one from row to row. */
static int64_t visible_in_run(const struct cpa_problem *p, int64_t b, int64_t start, int64_t width)
{
	struct cpa_range first = cpa_rule_row(p, b, start), last = cpa_rule_row(p, b, start + width - 1);
	int64_t nfirst = first.end - first.start, nlast = last.end - last.start;
	if (nlast - nfirst == width - 1 || (nlast == nfirst && first.start == last.start))
		return (nfirst + nlast) * width / 2;
	int64_t half = width / 2;
	return visible_in_run(p, b, start, half) + visible_in_run(p, b, start + half, width - half);
}

static int64_t visible_pairs(const struct cpa_problem *p, const struct cpa_content *q)
{
	int64_t pairs = 0;
	for (int64_t b = q->batches.start; b < q->batches.end; b++)
		for (int i = 0; i < q->tokens.n; i++)
			for (int64_t c = 0; c < q->tokens.at[i].count; c++)
				pairs += visible_in_run(p, b, q->tokens.at[i].start + c * q->tokens.at[i].stride,
					q->tokens.at[i].width);
	return pairs * (q->heads.end - q->heads.start);
}

/* Query rows whose pairs have been counted: one ATTEND a hop works on the same rows again. */
struct counted {
	struct {
		int64_t token, head;
	} *at;
	int n;
};

static bool is_new(struct counted *counted, int64_t token, int64_t head)
{
	for (int i = 0; i < counted->n; i++)
		if (counted->at[i].token == token && counted->at[i].head == head)
			return false;
	counted->at[counted->n].token = token;
	counted->at[counted->n++].head = head;
	return true;
}

/* Every row that sees a key is in some ATTEND, and every visible pair is worked on once. */
static int64_t new_pairs(const struct cpa_problem *p, const struct cpa_content *q, struct counted *counted)
{
	int64_t pairs = 0;
	for (int i = 0; i < q->tokens.n; i++) {
		struct cpa_content one = *q;
		one.tokens = (struct cpa_spans){&q->tokens.at[i], 1, 1};
		if (is_new(counted, q->tokens.at[i].start, q->heads.start))
			pairs += visible_pairs(p, &one);
	}
	return pairs;
}

void cpa_schedule_count(const struct cpa_schedule *s, const struct cpa_problem *problem,
	struct cpa_counts *counts)
{
	*counts = (struct cpa_counts){0};
	for (int i = 0; i < s->nbuffers; i++)
		counts->peak_bytes += cpa_buffer_nbytes(&s->buffers[i]);
	size_t nspans = 0;
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].kind == CPA_OP_ATTEND)
			nspans += (size_t)s->ops[i].reads[0].content.tokens.n;
	struct counted counted = {calloc(nspans + 1, sizeof *counted.at), 0};
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind == CPA_OP_SEND || op->kind == CPA_OP_COLLECTIVE)
			count_message(s, op, counts);
		if (op->kind != CPA_OP_ATTEND)
			continue;
		const struct cpa_box *q = &op->reads[0].box, *k = &op->reads[1].box;
		counts->attended += q->ntokens * k->ntokens * q->nheads * q->nbatches;
		if (counted.at)
			counts->work += new_pairs(problem, &op->reads[0].content, &counted);
	}
	free(counted.at);
}
