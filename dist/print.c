/* print.c - a schedule for people: names, and one line an operation. */
#include "dist/schedule.h"

#include <stdarg.h>
#include <stdio.h>

const char *cpa_tensor_name(enum cpa_tensor tensor)
{
	static const char *const names[] = {"q", "k", "v", "o", "lse"};
	return names[tensor];
}

const char *cpa_op_name(enum cpa_op_kind kind)
{
	static const char *const names[] = {
		"copy", "send", "recv", "collective", "attend", "merge"};
	return names[kind];
}

struct line {
	char *text;
	size_t size, used;
};

static void put(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct line *line, const char *format, ...)
{
	if (line->used + 1 >= line->size)
		return;
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(line->text + line->used, line->size - line->used, format, arguments);
	va_end(arguments);
	if (n > 0)
		line->used += (size_t)n;
	if (line->used >= line->size)
		line->used = line->size - 1;
}

static void put_operand(
	struct line *line, const struct cpa_schedule *s, const struct cpa_operand *x)
{
	char tokens[80];
	cpa_spans_print(&x->content.tokens, tokens, sizeof tokens);
	put(line, "%s %s h%lld-%lld", cpa_tensor_name(x->content.tensor), tokens,
		(long long)x->content.heads.start, (long long)x->content.heads.end - 1);
	if (x->content.batches.end - x->content.batches.start > 1 || x->content.batches.start > 0)
		put(line, " b%lld-%lld", (long long)x->content.batches.start,
			(long long)x->content.batches.end - 1);
	if (x->box.buffer >= 0 && x->box.buffer < s->nbuffers)
		put(line, " [%s]", s->buffers[x->box.buffer].name);
}

static void put_list(
	struct line *line, const struct cpa_schedule *s, const struct cpa_operand *list, int n)
{
	for (int i = 0; i < n; i++) {
		if (i > 0)
			put(line, ", ");
		put_operand(line, s, &list[i]);
	}
}

static void put_partial(struct line *line, const struct cpa_operand *x)
{
	char keys[80];
	cpa_spans_print(&x->content.keys, keys, sizeof keys);
	put(line, " having seen %s", keys);
}

void cpa_op_print(const struct cpa_schedule *s, int index, char *text, size_t size)
{
	const struct cpa_op *op = &s->ops[index];
	struct line line = {text, size, 0};
	if (size > 0)
		text[0] = '\0';
	put(&line, "%s", cpa_op_name(op->kind));
	if (op->hop >= 0)
		put(&line, " hop %d", op->hop);
	switch (op->kind) {
	case CPA_OP_COPY:
		if (op->nreads == 0) {
			put(&line, " identity -> ");
		} else {
			put(&line, " ");
			put_operand(&line, s, &op->reads[0]);
			put(&line, " %s -> ", cpa_dtype_name(op->reads[0].content.dtype));
		}
		put(&line, "%s [%s]", cpa_dtype_name(op->writes[0].content.dtype),
			s->buffers[op->writes[0].box.buffer].name);
		break;
	case CPA_OP_SEND:
		put(&line, " to %d: ", op->peer);
		put_list(&line, s, op->reads, op->nreads);
		break;
	case CPA_OP_RECV:
		put(&line, " from %d: ", op->peer);
		put_list(&line, s, op->writes, op->nwrites);
		break;
	case CPA_OP_COLLECTIVE:
		put(&line, " all-gather over %d ranks: ", s->comms[op->comm].nmembers);
		put_list(&line, s, op->reads, op->nreads);
		break;
	case CPA_OP_ATTEND:
		put(&line, " ");
		put_list(&line, s, op->reads, 2);
		put(&line, " -> [%s]", s->buffers[op->writes[0].box.buffer].name);
		break;
	case CPA_OP_MERGE:
		put(&line, " ");
		put_operand(&line, s, &op->reads[0]);
		put_partial(&line, &op->reads[0]);
		if (op->subkind == CPA_MERGE_SINK) {
			put(&line, " with the sink");
			break;
		}
		put(&line, " with");
		put_partial(&line, &op->reads[2]);
		break;
	}
}
