/*
 * check_content.c - sentences about contents, the shape of operands, and when a partial is
 * finished.
 */
#include "dist/check.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- sentences ---- */

bool cpa_check_fail(
	struct cpa_check_rank_state *state, enum cpa_fault_rule rule, const char *format, ...)
{
	struct cpa_fault *fault = state->fault;
	if (fault->rule != CPA_RULE_NONE)
		return false;
	const struct cpa_schedule *s = state->schedule;
	fault->rule = rule;
	fault->rank = s->rank;
	fault->op = state->op;
	const char *name = state->op >= 0 && state->op < s->nops
		? cpa_op_name(s->ops[state->op].kind)
		: NULL;
	int used = name ? snprintf(fault->text, sizeof fault->text,
				  "rank %d op %d (%s): ", s->rank, state->op, name)
			: snprintf(fault->text, sizeof fault->text, "rank %d: ", s->rank);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(fault->text + used, sizeof fault->text - (size_t)used, format, arguments);
	va_end(arguments);
	return false;
}

bool cpa_content_same_range(struct cpa_range a, struct cpa_range b)
{
	return a.start == b.start && a.end == b.end;
}

bool cpa_content_same_place(const struct cpa_content *a, const struct cpa_content *b)
{
	return cpa_content_same_range(a->batches, b->batches) &&
		cpa_content_same_range(a->heads, b->heads) &&
		cpa_spans_equal(&a->tokens, &b->tokens);
}

bool cpa_content_same_seen(const struct cpa_content *a, const struct cpa_content *b)
{
	return a->partial == b->partial &&
		(!a->partial || (a->sink == b->sink && cpa_spans_same_set(&a->keys, &b->keys)));
}

void cpa_content_print(const struct cpa_content *c, char *text, size_t size)
{
	char tokens[96], keys[96];
	cpa_spans_print(&c->tokens, tokens, sizeof tokens);
	int used = snprintf(text, size, "%s tokens %s heads %lld-%lld batches %lld-%lld %s",
		cpa_tensor_name(c->tensor), tokens, (long long)c->heads.start,
		(long long)c->heads.end - 1, (long long)c->batches.start,
		(long long)c->batches.end - 1, cpa_dtype_name(c->dtype));
	if (!c->partial || used < 0 || (size_t)used >= size)
		return;
	cpa_spans_print(&c->keys, keys, sizeof keys);
	snprintf(text + used, size - (size_t)used, " having seen keys %s%s", keys,
		c->sink ? " and the sink" : "");
}

/* ---- rules of every operand ---- */

static bool is_inside(int64_t start, int64_t n, int64_t all)
{
	return start >= 0 && n >= 1 && start <= all && n <= all - start;
}

static int64_t dim_of(const struct cpa_problem *p, enum cpa_tensor tensor)
{
	if (tensor == CPA_TENSOR_LSE)
		return 1;
	return tensor == CPA_TENSOR_V || tensor == CPA_TENSOR_O ? p->Dv : p->D;
}

bool cpa_check_operand(struct cpa_check_rank_state *state, const struct cpa_operand *x)
{
	const struct cpa_schedule *s = state->schedule;
	const struct cpa_box *box = &x->box;
	if (box->buffer < 0 || box->buffer >= s->nbuffers)
		return cpa_check_fail(
			state, CPA_RULE_DATA, "names buffer %d of %d", box->buffer, s->nbuffers);
	const struct cpa_buffer *buffer = &s->buffers[box->buffer];
	if (box->step < 1 || box->ntokens < 1 || box->step > buffer->ntokens ||
		!is_inside(box->token, (box->ntokens - 1) * box->step + 1, buffer->ntokens) ||
		!is_inside(box->batch, box->nbatches, buffer->nbatches) ||
		!is_inside(box->head, box->nheads, buffer->nheads))
		return cpa_check_fail(state, CPA_RULE_DATA,
			"a box of %lld tokens from %lld, step %lld, %lld "
			"heads from %lld, %lld batches from %lld leaves buffer \"%s\" [%lld, "
			"%lld, %lld]",
			(long long)box->ntokens, (long long)box->token, (long long)box->step,
			(long long)box->nheads, (long long)box->head, (long long)box->nbatches,
			(long long)box->batch, buffer->name, (long long)buffer->ntokens,
			(long long)buffer->nbatches, (long long)buffer->nheads);
	const struct cpa_content *c = &x->content;
	if (cpa_spans_ntokens(&c->tokens) == box->ntokens &&
		c->batches.end - c->batches.start == box->nbatches &&
		c->heads.end - c->heads.start == box->nheads && c->dtype == buffer->dtype &&
		dim_of(&state->part->problem, c->tensor) == buffer->dim)
		return true;
	char text[256];
	cpa_content_print(c, text, sizeof text);
	return cpa_check_fail(state, CPA_RULE_DATA,
		"names %s for a box of %lld tokens, %lld heads, %lld "
		"batches of buffer \"%s\" (%s, %lld wide)",
		text, (long long)box->ntokens, (long long)box->nheads, (long long)box->nbatches,
		buffer->name, cpa_dtype_name(buffer->dtype), (long long)buffer->dim);
}

/* ---- finished ---- */

/* The first key in [from, to) that is not in the set; to when there is none. */
static int64_t first_absent(const struct cpa_spans *keys, int64_t from, int64_t to)
{
	while (to - from > 1) { /* bisect on the count of keys present */
		int64_t middle = from + (to - from) / 2;
		if (cpa_spans_ncommon_range(keys, (struct cpa_range){from, middle}) ==
			middle - from)
			from = middle;
		else
			to = middle;
	}
	return from;
}

static bool has_all(const struct cpa_spans *keys, struct cpa_range range)
{
	return range.start >= range.end ||
		cpa_spans_ncommon_range(keys, range) == range.end - range.start;
}

/* Row by row, where the hull of a span asks for more than its rows do (strided rows in a window).
 */
static bool rows_are_finished(const struct cpa_problem *p, const struct cpa_content *c,
	const struct cpa_span *span, int64_t *row, int64_t *key)
{
	for (int64_t i = 0; i < span->count; i++)
		for (int64_t w = 0; w < span->width; w++)
			for (int64_t b = c->batches.start; b < c->batches.end; b++) {
				int64_t t = span->start + i * span->stride + w;
				struct cpa_range visible = cpa_rule_row(p, b, t);
				if (has_all(&c->keys, visible))
					continue;
				*row = t;
				*key = first_absent(&c->keys, visible.start, visible.end);
				return false;
			}
	return true;
}

bool cpa_check_is_finished(const struct cpa_check_rank_state *state, const struct cpa_content *c,
	int64_t *row, int64_t *key)
{
	const struct cpa_problem *p = &state->part->problem;
	for (int i = 0; i < c->tokens.n; i++) {
		const struct cpa_span *span = &c->tokens.at[i];
		int64_t last = span->start + (span->count - 1) * span->stride + span->width - 1;
		if (!has_all(&c->keys, cpa_rule_hull(p, span->start, last)) &&
			!rows_are_finished(p, c, span, row, key))
			return false;
	}
	return true;
}
