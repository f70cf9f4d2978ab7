/*
 * test_mutate.h - one kind of break at a time, made in a plan that was right.
 *
 * mutate() changes one operation of one schedule.  It returns false where the kind does not apply there.
 * Whether a change is harmful is not decided here: a checker must refuse it, or it must run right.
 */
#ifndef CPA_TEST_MUTATE_H
#define CPA_TEST_MUTATE_H

#include <string.h>

#include "dist/schedule.h"

enum mutation {
	DROP_OP,
	DOUBLE_OP,
	WRONG_PEER,
	NO_SUCH_PEER,
	ITSELF_AS_PEER,
	SWAP_WITH_NEXT_STEP,
	READ_ONE_TOKEN_LATER,
	WRITE_ONE_TOKEN_LATER,
	READ_ONE_TOKEN_LESS,
	READ_ONE_HEAD_LATER,
	WRITE_ONE_HEAD_LATER,
	READ_ONE_HEAD_MORE,
	READ_ONE_HEAD_LESS,
	WRITE_ONE_HEAD_LESS,
	READ_ONE_BATCH_LESS,
	NAME_NO_TOKENS,
	READ_NOTHING,
	NAME_THE_NEXT_BATCH,
	NAME_THE_NEXT_TOKENS,
	NAME_THE_NEXT_HEADS,
	WRITE_UNDER_ANOTHER_NAME,
	READ_ANOTHER_BUFFER,
	WRITE_ANOTHER_BUFFER,
	SWAP_TWO_READS,
	DROP_A_READ,
	DROP_A_WRITE,
	SPOIL_THE_STEP,
	FORGET_A_WAIT,
	WAIT_ONE_STEP_LESS,
	WAIT_FOR_THE_FUTURE,
	CLAIM_MORE_SEEN,
	CLAIM_LESS_SEEN,
	CLAIM_FINISHED,
	WRONG_DTYPE,
	WRONG_COMMUNICATOR,
	SPLIT_THE_GROUP,
	STRIDE_OF_TWO,
	WRITE_THE_INPUT,
	NMUTATIONS
};

static const char *const mutation_names[NMUTATIONS] = {
	"drop op", "double op", "wrong peer", "no such peer", "itself as peer",
	"swap with next step", "read one token later",
	"write one token later", "read one token less", "read one head later", "write one head later",
	"read one head more", "read one head less", "write one head less", "read one batch less",
	"name no tokens", "read nothing", "name the next batch", "name the next tokens", "name the next heads", "write under another name",
	"read another buffer", "write another buffer", "swap two reads", "drop a read", "drop a write",
	"spoil the step", "forget a wait",
	"wait one step less", "wait for the future", "claim more seen", "claim less seen", "claim finished",
	"wrong dtype", "wrong communicator", "split the group", "stride of two", "write the input",
};

static inline int step_of(const struct cpa_schedule *s, int op)
{
	int step = 0;
	while (step + 1 < s->nsteps && s->steps[step + 1].first <= op)
		step++;
	return step;
}

/* Takes op out; a step that becomes empty goes too, and whoever waited for it waits for the step before
 * it on its queue. */
static inline void drop_op(struct cpa_schedule *s, int op)
{
	int step = step_of(s, op);
	memmove(&s->ops[op], &s->ops[op + 1], sizeof *s->ops * (size_t)(s->nops - op - 1));
	s->nops--;
	for (int i = step + 1; i < s->nsteps; i++)
		s->steps[i].first--;
	if (--s->steps[step].nops > 0)
		return;
	int queue = s->steps[step].queue, before = step - 1;
	while (before >= 0 && s->steps[before].queue != queue)
		before--;
	for (int i = step + 1; i < s->nsteps; i++)
		for (int q = 0; q < CPA_NQUEUES; q++) {
			int *wait = &s->steps[i].waits[q];
			if (*wait == step)
				*wait = before;
			else if (*wait > step)
				(*wait)--;
		}
	memmove(&s->steps[step], &s->steps[step + 1], sizeof *s->steps * (size_t)(s->nsteps - step - 1));
	s->nsteps--;
}

/* The op once more: in its group, or as the step behind its own. */
static inline bool double_op(struct cpa_schedule *s, int op)
{
	int step = step_of(s, op);
	s->ops = realloc(s->ops, sizeof *s->ops * (size_t)(s->nops + 1));
	s->steps = realloc(s->steps, sizeof *s->steps * (size_t)(s->nsteps + 1));
	memmove(&s->ops[op + 1], &s->ops[op], sizeof *s->ops * (size_t)(s->nops - op));
	s->nops++;
	for (int i = step + 1; i < s->nsteps; i++)
		s->steps[i].first++;
	if (s->steps[step].queue != CPA_QUEUE_COMPUTE) {
		s->steps[step].nops++;
		return true;
	}
	memmove(&s->steps[step + 1], &s->steps[step], sizeof *s->steps * (size_t)(s->nsteps - step));
	s->nsteps++;
	s->steps[step + 1].first++;
	for (int i = step + 2; i < s->nsteps; i++)
		for (int q = 0; q < CPA_NQUEUES; q++)
			s->steps[i].waits[q] += s->steps[i].waits[q] >= step;
	return true;
}

/* Two neighbours on one queue change places. */
static inline bool swap_steps(struct cpa_schedule *s, int step)
{
	if (step + 1 >= s->nsteps || s->steps[step].queue != s->steps[step + 1].queue ||
	    s->steps[step].nops != 1 || s->steps[step + 1].nops != 1)
		return false;
	int a = s->steps[step].first;
	struct cpa_op op = s->ops[a];
	s->ops[a] = s->ops[a + 1];
	s->ops[a + 1] = op;
	return true;
}

/* The first op of a group starts and ends before the others: ungrouped send and receive. */
static inline bool split_group(struct cpa_schedule *s, int step)
{
	if (s->steps[step].nops < 2)
		return false;
	s->steps = realloc(s->steps, sizeof *s->steps * (size_t)(s->nsteps + 1));
	memmove(&s->steps[step + 1], &s->steps[step], sizeof *s->steps * (size_t)(s->nsteps - step));
	s->nsteps++;
	s->steps[step].nops = 1;
	s->steps[step + 1].first++;
	s->steps[step + 1].nops--;
	for (int i = step + 2; i < s->nsteps; i++)
		for (int q = 0; q < CPA_NQUEUES; q++)
			s->steps[i].waits[q] += s->steps[i].waits[q] >= step;
	return true;
}

static inline void shift_tokens(struct cpa_schedule *s, struct cpa_content *c)
{
	struct cpa_spans moved = {0};
	for (int i = 0; i < c->tokens.n; i++) {
		struct cpa_span span = c->tokens.at[i];
		span.start++;
		cpa_spans_append(&s->arena, &moved, span);
	}
	c->tokens = moved;
}

/* Another buffer in which the same box fits. */
static inline bool other_buffer(const struct cpa_schedule *s, struct cpa_box *box)
{
	const struct cpa_buffer *mine = &s->buffers[box->buffer];
	for (int i = 1; i < s->nbuffers; i++) {
		int other = (box->buffer + i) % s->nbuffers;
		const struct cpa_buffer *b = &s->buffers[other];
		if (b->dim == mine->dim && b->dtype == mine->dtype &&
		    box->token + (box->ntokens - 1) * box->step < b->ntokens &&
		    box->batch + box->nbatches <= b->nbatches && box->head + box->nheads <= b->nheads) {
			box->buffer = other;
			return true;
		}
	}
	return false;
}

/* What the op says its writes have seen: all of them, or the last alone. */
static inline bool change_seen(struct cpa_schedule *s, struct cpa_op *op, int which, enum mutation kind)
{
	bool changed = false;
	for (int i = which % 2 && op->nwrites ? op->nwrites - 1 : 0; i < op->nwrites; i++) {
		struct cpa_content *c = &op->writes[i].content;
		if (!c->partial || op->kind == CPA_OP_RECV)
			continue;
		if (kind == CLAIM_FINISHED) {
			c->partial = false;
		} else if (kind == CLAIM_MORE_SEEN) {
			struct cpa_spans more = {0};
			cpa_spans_append_range(&s->arena, &more, (struct cpa_range){1000, 1001});
			c->keys = cpa_spans_union(&s->arena, &c->keys, &more);
		} else {
			int64_t n = cpa_spans_ntokens(&c->keys);
			if (n == 0)
				continue;
			c->keys = cpa_spans_pick(&s->arena, &c->keys, 0, n - 1, 1);
		}
		changed = true;
	}
	return changed;
}

static inline bool mutate_waits(struct cpa_schedule *s, int step, enum mutation kind)
{
	for (int q = 0; q < CPA_NQUEUES; q++) {
		int *wait = &s->steps[step].waits[q];
		if (*wait < 0)
			continue;
		if (kind == FORGET_A_WAIT) {
			*wait = -1;
		} else if (kind == WAIT_FOR_THE_FUTURE) {
			*wait = s->nsteps;
		} else {
			do
				(*wait)--;
			while (*wait >= 0 && s->steps[*wait].queue != q);
		}
		return true;
	}
	return false;
}

static inline bool mutate_box(struct cpa_schedule *s, struct cpa_operand *x, enum mutation kind)
{
	const struct cpa_buffer *b = &s->buffers[x->box.buffer];
	switch (kind) {
	case READ_ONE_TOKEN_LATER:
	case WRITE_ONE_TOKEN_LATER:
		if (x->box.token + (x->box.ntokens - 1) * x->box.step + 1 >= b->ntokens)
			x->box.token--;
		else
			x->box.token++;
		return x->box.token >= 0;
	case READ_ONE_HEAD_LATER:
	case WRITE_ONE_HEAD_LATER:
		x->box.head += x->box.head + x->box.nheads < b->nheads ? 1 : -1;
		return x->box.head >= 0;
	case NAME_THE_NEXT_BATCH:
		x->content.batches.start++;
		x->content.batches.end++;
		return true;
	case READ_ONE_HEAD_MORE:
		x->box.nheads++;
		x->content.heads.end++;
		return x->box.head + x->box.nheads <= b->nheads;
	case READ_ONE_HEAD_LESS:
	case WRITE_ONE_HEAD_LESS:
		x->box.nheads--;
		x->content.heads.end--;
		return x->box.nheads > 0;
	case READ_ONE_BATCH_LESS:
		x->box.nbatches--;
		x->content.batches.end--;
		return x->box.nbatches > 0;
	case NAME_NO_TOKENS:
		x->content.tokens = (struct cpa_spans){0};
		return x->box.ntokens > 0;
	case READ_NOTHING:
		if (x->box.ntokens == 0)
			return false;
		x->box.ntokens = 0;
		x->content.tokens = (struct cpa_spans){0};
		return true;
	case READ_ONE_TOKEN_LESS:
		if (x->box.ntokens < 2)
			return false;
		x->box.ntokens--;
		x->content.tokens = cpa_spans_pick(&s->arena, &x->content.tokens, 0, x->box.ntokens, 1);
		return true;
	case NAME_THE_NEXT_TOKENS:
		shift_tokens(s, &x->content);
		return true;
	case NAME_THE_NEXT_HEADS:
		x->content.heads.start++;
		x->content.heads.end++;
		return true;
	case WRITE_UNDER_ANOTHER_NAME:
		x->content.tensor = x->content.tensor == CPA_TENSOR_K ? CPA_TENSOR_V : CPA_TENSOR_K;
		return true;
	case WRONG_DTYPE:
		x->content.dtype = x->content.dtype == CPA_DTYPE_FP32 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32;
		return true;
	case STRIDE_OF_TWO:
		x->box.step *= 2;
		return x->box.ntokens > 1 &&
			x->box.token + (x->box.ntokens - 1) * x->box.step < b->ntokens;
	default:
		return false;
	}
}

static inline bool swap_reads(struct cpa_op *op)
{
	if (op->nreads < 2)
		return false;
	struct cpa_operand first = op->reads[0];
	op->reads[0] = op->reads[1];
	op->reads[1] = first;
	return true;
}

/* A step that is not one: of no queue, without ops, or not behind the one before. */
static inline void spoil_step(struct cpa_step *step, int which)
{
	if (which % 4 == 0)
		step->queue = CPA_NQUEUES;
	else if (which % 4 == 1)
		step->queue = -1;
	else if (which % 4 == 2)
		step->nops = 0;
	else
		step->first++;
}

/* Changes op `index` of s; operand `which` where the kind is about one. */
static inline bool mutate(struct cpa_schedule *s, int index, int which, enum mutation kind)
{
	struct cpa_op *op = &s->ops[index];
	bool read = kind == READ_ANOTHER_BUFFER || kind == READ_ONE_TOKEN_LATER ||
		kind == READ_ONE_TOKEN_LESS || kind == READ_ONE_HEAD_LATER || kind == READ_ONE_HEAD_MORE ||
		kind == READ_ONE_HEAD_LESS || kind == READ_ONE_BATCH_LESS || kind == READ_NOTHING ||
		kind == STRIDE_OF_TWO;
	int n = read ? op->nreads : op->nwrites;
	struct cpa_operand *x = n > 0 ? &(read ? op->reads : op->writes)[which % n] : NULL;
	switch (kind) {
	case DROP_OP:
		drop_op(s, index);
		return true;
	case DOUBLE_OP:
		return double_op(s, index);
	case WRONG_PEER:
		if (op->peer < 0 || s->W < 3)
			return false;
		op->peer = (op->peer + 1) % s->W == s->rank ? (op->peer + 2) % s->W : (op->peer + 1) % s->W;
		return true;
	case NO_SUCH_PEER:
	case ITSELF_AS_PEER:
		if (op->peer < 0)
			return false;
		op->peer = kind == ITSELF_AS_PEER ? s->rank : which % 2 ? -1 : s->W;
		return true;
	case SWAP_WITH_NEXT_STEP:
		return swap_steps(s, step_of(s, index));
	case SPLIT_THE_GROUP:
		return split_group(s, step_of(s, index));
	case READ_ANOTHER_BUFFER:
	case WRITE_ANOTHER_BUFFER:
		return x && other_buffer(s, &x->box);
	case SWAP_TWO_READS:
		return swap_reads(op);
	case DROP_A_READ:
		return op->nreads > 0 && op->nreads--;
	case DROP_A_WRITE:
		return op->nwrites > 0 && op->nwrites--;
	case SPOIL_THE_STEP:
		spoil_step(&s->steps[step_of(s, index)], which);
		return true;
	case FORGET_A_WAIT:
	case WAIT_ONE_STEP_LESS:
	case WAIT_FOR_THE_FUTURE:
		return mutate_waits(s, step_of(s, index), kind);
	case CLAIM_MORE_SEEN:
	case CLAIM_LESS_SEEN:
	case CLAIM_FINISHED:
		return change_seen(s, op, which, kind);
	case WRONG_COMMUNICATOR:
		op->comm = s->ncomms;
		return op->kind == CPA_OP_SEND || op->kind == CPA_OP_COLLECTIVE;
	case WRITE_THE_INPUT:
		if (!x || s->buffers[0].role != CPA_ROLE_INPUT || s->buffers[0].dim != s->buffers[x->box.buffer].dim)
			return false;
		x->box.buffer = 0;
		return true;
	default:
		return x && mutate_box(s, x, kind);
	}
}

#endif
