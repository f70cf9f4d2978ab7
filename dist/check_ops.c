/*
 * check_ops.c - rule 1 for each kind of operation: what its operands must be to each other.
 */
#include "dist/check.h"

/* "reads <one> beside <other>, which do not fit": for operands of one op that disagree. */
static bool disagree(struct cpa_check_rank_state *state, const char *what,
	const struct cpa_content *a, const struct cpa_content *b)
{
	char one[256], other[256];
	cpa_content_print(a, one, sizeof one);
	cpa_content_print(b, other, sizeof other);
	return cpa_check_fail(state, CPA_RULE_DATA, "%s: %s and %s", what, one, other);
}

static bool expect_counts(
	struct cpa_check_rank_state *state, const struct cpa_op *op, int nreads, int nwrites)
{
	if (op->nreads == nreads && op->nwrites == nwrites)
		return true;
	return cpa_check_fail(state, CPA_RULE_DATA,
		"has %d reads and %d writes, expected %d and %d", op->nreads, op->nwrites, nreads,
		nwrites);
}

static bool check_copy(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	if (!expect_counts(state, op, op->nreads == 0 ? 0 : 1, 1))
		return false;
	const struct cpa_content *to = &op->writes[0].content;
	if (op->nreads == 0) {
		if (to->partial && to->keys.n == 0 && !to->sink &&
			(to->tensor == CPA_TENSOR_O || to->tensor == CPA_TENSOR_LSE))
			return true;
		return cpa_check_fail(state, CPA_RULE_DATA,
			"without a source writes the identity partial of o "
			"or lse, having seen no key");
	}
	const struct cpa_content *from = &op->reads[0].content;
	if (from->tensor == to->tensor && cpa_content_same_place(from, to) &&
		cpa_content_same_seen(from, to))
		return true;
	return disagree(state, "copies one content to another", from, to);
}

static bool check_attend_inputs(struct cpa_check_rank_state *state, const struct cpa_content *q,
	const struct cpa_content *k, const struct cpa_content *v)
{
	if (q->tensor != CPA_TENSOR_Q || k->tensor != CPA_TENSOR_K || v->tensor != CPA_TENSOR_V)
		return cpa_check_fail(state, CPA_RULE_DATA, "reads %s, %s, %s; expected q, k, v",
			cpa_tensor_name(q->tensor), cpa_tensor_name(k->tensor),
			cpa_tensor_name(v->tensor));
	if (!cpa_content_same_place(k, v))
		return disagree(state, "k and v differ", k, v);
	if (!cpa_content_same_range(q->batches, k->batches))
		return disagree(state, "q and k are of other batches", q, k);
	int64_t g = state->part->problem.Hq / state->part->problem.Hkv;
	if (!cpa_content_same_range(cpa_heads_kv(q->heads, g), k->heads))
		return disagree(state, "the key heads are not those of the query heads", q, k);
	for (int i = 1; i < k->tokens.n; i++)
		if (k->tokens.at[i].start <= k->tokens.at[i - 1].start +
				(k->tokens.at[i - 1].count - 1) * k->tokens.at[i - 1].stride)
			return disagree(state, "keys do not ascend", k, v);
	return true;
}

static bool check_attend(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	if (!expect_counts(state, op, 3, 2))
		return false;
	const struct cpa_content *q = &op->reads[0].content, *k = &op->reads[1].content;
	if (!check_attend_inputs(state, q, k, &op->reads[2].content))
		return false;
	for (int i = 0; i < 2; i++) {
		const struct cpa_content *w = &op->writes[i].content;
		if (w->tensor != (i == 0 ? CPA_TENSOR_O : CPA_TENSOR_LSE) ||
			!cpa_content_same_place(w, q))
			return disagree(state, "writes another place than that of q", w, q);
		if (!w->partial || w->sink || !cpa_spans_same_set(&w->keys, &k->tokens))
			return disagree(state, "what it has seen is not the keys it reads", w, k);
	}
	return true;
}

/* The sink joins a partial that does not have it yet; nothing else changes. */
static bool check_sink(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	if (!expect_counts(state, op, 2, 2))
		return false;
	if (!state->part->problem.rule.sink)
		return cpa_check_fail(
			state, CPA_RULE_DATA, "adds a sink to a problem that has none");
	for (int i = 0; i < 2; i++) {
		const struct cpa_content *from = &op->reads[i].content,
					 *to = &op->writes[i].content;
		enum cpa_tensor tensor = i == 0 ? CPA_TENSOR_O : CPA_TENSOR_LSE;
		if (from->tensor != tensor || to->tensor != tensor ||
			!cpa_content_same_place(from, to) ||
			!cpa_content_same_place(from, &op->reads[0].content))
			return disagree(state, "adds the sink to different places", from, to);
		if (!from->partial || from->sink || !to->partial || !to->sink ||
			!cpa_spans_same_set(&from->keys, &to->keys) ||
			!cpa_spans_same_set(&from->keys, &op->reads[0].content.keys))
			return disagree(
				state, "the sink must join once, and nothing else", from, to);
	}
	return true;
}

static bool check_merge(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	if (op->subkind == CPA_MERGE_SINK)
		return check_sink(state, op);
	if (op->subkind != CPA_MERGE_SOFTMAX)
		return cpa_check_fail(
			state, CPA_RULE_DATA, "unknown kind of merge %d", op->subkind);
	if (!expect_counts(state, op, 4, 2))
		return false;
	const struct cpa_content *a = &op->reads[0].content, *b = &op->reads[2].content;
	for (int i = 0; i < 6; i++) {
		const struct cpa_content *x = i < 4 ? &op->reads[i].content
						    : &op->writes[i - 4].content;
		if (x->tensor != (i % 2 == 0 ? CPA_TENSOR_O : CPA_TENSOR_LSE) ||
			!cpa_content_same_place(x, a))
			return disagree(state, "merges different places", x, a);
		if (!x->partial || (i >= 2 && i < 4 && x->sink) || (i >= 4 && x->sink != a->sink))
			return disagree(state, "merges what is finished, or a sink twice", x, a);
	}
	if (!cpa_content_same_seen(a, &op->reads[1].content) ||
		!cpa_content_same_seen(b, &op->reads[3].content))
		return disagree(
			state, "o and lse have seen different keys", a, &op->reads[1].content);
	if (cpa_spans_ncommon(&a->keys, &b->keys) != 0)
		return disagree(state, "both partials have seen the same key", a, b);
	int64_t na = cpa_spans_ntokens(&a->keys), nb = cpa_spans_ntokens(&b->keys);
	for (int i = 0; i < 2; i++) {
		const struct cpa_content *w = &op->writes[i].content;
		if (cpa_spans_ntokens(&w->keys) != na + nb ||
			cpa_spans_ncommon(&w->keys, &a->keys) != na ||
			cpa_spans_ncommon(&w->keys, &b->keys) != nb)
			return disagree(state, "the result has not seen the union", w, b);
	}
	return true;
}

static bool check_message_box(struct cpa_check_rank_state *state, const struct cpa_operand *x)
{
	if (cpa_box_is_run(&state->schedule->buffers[x->box.buffer], &x->box))
		return true;
	return cpa_check_fail(state, CPA_RULE_DATA,
		"a message box of buffer \"%s\" is not one run of memory",
		state->schedule->buffers[x->box.buffer].name);
}

static bool check_message(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	int n = op->nreads + op->nwrites;
	bool send = op->kind == CPA_OP_SEND;
	if (n == 0 || (send ? op->nwrites : op->nreads) != 0)
		return cpa_check_fail(state, CPA_RULE_DATA,
			"has %d reads and %d writes; an empty message is "
			"never posted",
			op->nreads, op->nwrites);
	if (op->comm != 0 || op->peer < 0 || op->peer >= state->part->W ||
		op->peer == state->schedule->rank)
		return cpa_check_fail(state, CPA_RULE_MESSAGES,
			"goes to or comes from rank %d of communicator "
			"%d; expected another rank of the world (communicator 0, %d ranks)",
			op->peer, op->comm, state->part->W);
	for (int i = 0; i < n; i++)
		if (!check_message_box(state, send ? &op->reads[i] : &op->writes[i]))
			return false;
	return true;
}

static bool check_collective(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	const struct cpa_schedule *s = state->schedule;
	if (op->comm < 0 || op->comm >= s->ncomms)
		return cpa_check_fail(state, CPA_RULE_MESSAGES, "is on communicator %d of %d",
			op->comm, s->ncomms);
	int members = s->comms[op->comm].nmembers;
	if (op->subkind != CPA_COLLECTIVE_ALL_GATHER || op->nreads < 1 ||
		op->nwrites != op->nreads * members)
		return cpa_check_fail(state, CPA_RULE_DATA,
			"gathers %d boxes into %d; expected %d for each of "
			"%d members",
			op->nreads, op->nwrites, op->nreads, members);
	for (int i = 0; i < op->nreads; i++)
		if (op->reads[i].box.ntokens > 0 && !check_message_box(state, &op->reads[i]))
			return false;
	for (int i = 0; i < op->nwrites; i++)
		if (op->writes[i].box.ntokens > 0 && !check_message_box(state, &op->writes[i]))
			return false;
	return true;
}

bool cpa_check_kind(struct cpa_check_rank_state *state, const struct cpa_op *op)
{
	switch (op->kind) {
	case CPA_OP_COPY:
		return check_copy(state, op);
	case CPA_OP_SEND:
	case CPA_OP_RECV:
		return check_message(state, op);
	case CPA_OP_COLLECTIVE:
		return check_collective(state, op);
	case CPA_OP_ATTEND:
		return check_attend(state, op);
	case CPA_OP_MERGE:
		return check_merge(state, op);
	}
	return cpa_check_fail(state, CPA_RULE_DATA, "unknown kind %d", (int)op->kind);
}
