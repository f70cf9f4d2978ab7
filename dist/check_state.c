/*
 * check_state.c - what stands where on one rank, and in which order it got there.
 *
 * A buffer is a list of disjoint pieces: a box, its content, its writer, its readers since.  A
 * write cuts the pieces it meets; a read collects the pieces it meets and compares what they hold
 * with what it names.  Token indices of a box are a progression (token, token+step, ...), so
 * cutting works on progressions; nothing is expanded to tokens.
 */
#include "dist/check_pieces.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_LIST = 8 }; /* of so few spans no index is made */

/* ---- order on one rank: vector clocks over the queues ---- */

/* What had ended when `before` started, and `before` itself, has ended when `step` starts. */
static void merge_clock(struct cpa_check_rank_state *state, int step, int before)
{
	const struct cpa_step *steps = state->schedule->steps;
	int *mine = state->clock[step];
	for (int q = 0; q < CPA_NQUEUES; q++)
		if (state->clock[before][q] > mine[q])
			mine[q] = state->clock[before][q];
	if (before > mine[steps[before].queue])
		mine[steps[before].queue] = before;
}

bool cpa_check_clocks(struct cpa_check_rank_state *state)
{
	const struct cpa_schedule *s = state->schedule;
	int last[CPA_NQUEUES] = {-1, -1, -1, -1};
	for (int i = 0; i < s->nsteps; i++) {
		const struct cpa_step *step = &s->steps[i];
		state->step = i;
		state->op = step->first;
		if (step->queue < 0 || step->queue >= CPA_NQUEUES || step->nops < 1)
			return cpa_check_fail(state, CPA_RULE_DATA,
				"a step of %d ops on queue %d; expected 1 or "
				"more on queues 0 to %d",
				step->nops, step->queue, CPA_NQUEUES - 1);
		for (int q = 0; q < CPA_NQUEUES; q++)
			state->clock[i][q] = -1;
		if (last[step->queue] >= 0)
			merge_clock(state, i, last[step->queue]);
		for (int q = 0; q < CPA_NQUEUES; q++) {
			int wait = step->waits[q];
			if (wait < 0)
				continue;
			if (wait >= i || s->steps[wait].queue != q)
				return cpa_check_fail(state, CPA_RULE_RACE,
					"waits for step %d on queue %d, which "
					"is not an earlier step of that queue",
					wait, q);
			merge_clock(state, i, wait);
		}
		last[step->queue] = i;
	}
	return true;
}

/* Whether `before` has surely ended when the current step starts. */
static bool is_ordered(const struct cpa_check_rank_state *state, int before)
{
	if (before < 0)
		return true;
	return before <= state->clock[state->step][state->schedule->steps[before].queue];
}

static bool race(struct cpa_check_rank_state *state, const struct cpa_box *box, const char *mine,
	const char *other, int op)
{
	return cpa_check_fail(state, CPA_RULE_RACE,
		"%s buffer \"%s\" rows %lld-%lld, which op %d %s; "
		"nothing orders the two",
		mine, state->schedule->buffers[box->buffer].name, (long long)box->token,
		(long long)(box->token + (box->ntokens - 1) * box->step), op, other);
}

/* ---- progressions ---- */

struct progression {
	int64_t first, n, step;
};

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* The common elements of two progressions (n = 0: none): solve a.first + i a.step = b.first + j
 * b.step by trying the a.step / gcd residues of the smaller step, which is 1 or U in plans. */
static struct progression common(struct progression a, struct progression b)
{
	struct progression none = {0, 0, 1};
	if (a.step > b.step) {
		struct progression swap = a;
		a = b;
		b = swap;
	}
	int64_t last_a = a.first + (a.n - 1) * a.step, last_b = b.first + (b.n - 1) * b.step;
	int64_t low = a.first > b.first ? a.first : b.first,
		high = last_a < last_b ? last_a : last_b;
	if (low > high)
		return none;
	/* first element of b that is >= low, then step through b until it meets a's residue */
	int64_t element = b.first + -floor_div(-(low - b.first), b.step) * b.step;
	int64_t tries = 0;
	while (tries < a.step && (element - a.first) % a.step != 0) {
		element += b.step;
		tries++;
	}
	if (tries == a.step || element > high)
		return none;
	int64_t g = a.step, h = b.step;
	while (h != 0) {
		int64_t rest = g % h;
		g = h;
		h = rest;
	}
	int64_t step = a.step / g * b.step;
	return (struct progression){element, (high - element) / step + 1, step};
}

static struct progression tokens_of(const struct cpa_box *box)
{
	return (struct progression){box->token, box->ntokens, box->step};
}

/* ---- boxes ---- */

static struct cpa_range intersect(int64_t a, int64_t na, int64_t b, int64_t nb)
{
	int64_t start = a > b ? a : b, end = a + na < b + nb ? a + na : b + nb;
	return (struct cpa_range){start, end > start ? end : start};
}

/* The common part of two boxes of one buffer; false: none. */
static bool box_common(const struct cpa_box *a, const struct cpa_box *b, struct cpa_box *both)
{
	struct cpa_range batch = intersect(a->batch, a->nbatches, b->batch, b->nbatches);
	struct cpa_range head = intersect(a->head, a->nheads, b->head, b->nheads);
	if (batch.start == batch.end || head.start == head.end)
		return false;
	struct progression t = common(tokens_of(a), tokens_of(b));
	*both = (struct cpa_box){a->buffer, t.first, t.n, t.n == 1 ? 1 : t.step, batch.start,
		batch.end - batch.start, head.start, head.end - head.start};
	return t.n > 0;
}

/* An index of the tokens of an operand; NULL where they are few. */
static const struct cpa_spans_index *index_tokens(
	struct cpa_check_rank_state *state, const struct cpa_operand *operand)
{
	if (operand->content.tokens.n <= SHORT_LIST)
		return NULL;
	struct cpa_spans_index *index = cpa_arena_alloc(&state->arena, sizeof *index);
	if (index)
		*index = cpa_spans_index(&state->arena, &operand->content.tokens);
	return index;
}

/* What is in the part `inner` of an operand's box.  index: of its tokens; NULL where they are few, and
 * where inner is all of it.  run: room for one span. */
static struct cpa_content part_content(struct cpa_check_rank_state *state,
	const struct cpa_operand *whole, const struct cpa_box *inner,
	const struct cpa_spans_index *index, struct cpa_span *run)
{
	const struct cpa_box *box = &whole->box;
	const struct cpa_spans *tokens = &whole->content.tokens;
	struct cpa_content part = whole->content;
	part.batches.start += inner->batch - box->batch;
	part.batches.end = part.batches.start + inner->nbatches;
	part.heads.start += inner->head - box->head;
	part.heads.end = part.heads.start + inner->nheads;
	if (inner->ntokens == box->ntokens)
		return part;
	int64_t first = (inner->token - box->token) / box->step;
	int64_t step = inner->step / box->step > 0 ? inner->step / box->step : 1;
	if (index && step == 1 && cpa_spans_index_run(index, first, inner->ntokens, run)) {
		part.tokens = (struct cpa_spans){run, 1, 1};
		return part;
	}
	part.tokens = index
		? cpa_spans_index_pick(&state->arena, index, first, inner->ntokens, step)
		: cpa_spans_pick(&state->arena, tokens, first, inner->ntokens, step);
	return part;
}

/* ---- pieces ---- */

static bool add_piece(struct cpa_check_rank_state *state, const struct cpa_piece_state *piece)
{
	if (!cpa_pieces_add(&state->pieces[piece->box.buffer], piece))
		state->out_of_memory = true;
	return !state->out_of_memory;
}

/* The piece that is a box after it has been cut out of the one around it, if one is. */
static struct cpa_piece_state *cut_out(
	struct cpa_check_rank_state *state, const struct cpa_box *box)
{
	return cpa_pieces_cut_out(&state->pieces[box->buffer], box, &state->out_of_memory);
}

/* Takes the pieces that meet a box out of their buffer, into state->met. */
static bool take_pieces(struct cpa_check_rank_state *state, const struct cpa_box *box)
{
	if (!cpa_pieces_take(&state->pieces[box->buffer], box, &state->met))
		state->out_of_memory = true;
	return !state->out_of_memory;
}

/* Adds what is left of `old` in the box `rest`. */
static bool keep_rest(struct cpa_check_rank_state *state, const struct cpa_piece_state *old,
	struct cpa_box rest)
{
	if (rest.ntokens <= 0 || rest.nbatches <= 0 || rest.nheads <= 0)
		return true;
	if (rest.ntokens == 1)
		rest.step = 1;
	struct cpa_piece_state copy = *old;
	copy.box = rest;
	return add_piece(state, &copy);
}

/* old minus cut (which lies in it): first by batches, then heads, then tokens. */
static bool keep_outside(struct cpa_check_rank_state *state, const struct cpa_piece_state *old,
	const struct cpa_box *cut)
{
	struct cpa_box rest = old->box;
	bool ok = true;
	rest.nbatches = cut->batch - old->box.batch;
	ok = ok && keep_rest(state, old, rest);
	rest.batch = cut->batch + cut->nbatches;
	rest.nbatches = old->box.batch + old->box.nbatches - rest.batch;
	ok = ok && keep_rest(state, old, rest);
	rest.batch = cut->batch;
	rest.nbatches = cut->nbatches;
	rest.nheads = cut->head - old->box.head;
	ok = ok && keep_rest(state, old, rest);
	rest.head = cut->head + cut->nheads;
	rest.nheads = old->box.head + old->box.nheads - rest.head;
	ok = ok && keep_rest(state, old, rest);
	rest.head = cut->head;
	rest.nheads = cut->nheads;
	/* In steps of the old progression: before, after, and the m-1 others between. */
	int64_t s = old->box.step, m = cut->ntokens == 1 ? 1 : cut->step / s;
	int64_t first = (cut->token - old->box.token) / s, last = first + (cut->ntokens - 1) * m;
	rest.ntokens = first;
	ok = ok && keep_rest(state, old, rest);
	rest.token = old->box.token + (last + 1) * s;
	rest.ntokens = old->box.ntokens - last - 1;
	ok = ok && keep_rest(state, old, rest);
	for (int64_t o = 1; ok && o < m; o++) {
		rest.token = cut->token + o * s;
		rest.ntokens = cut->ntokens - 1;
		rest.step = m * s;
		ok = keep_rest(state, old, rest);
	}
	return ok;
}

/* ---- read ---- */

/* `held` may be read as `named`: the same content; a partial may be named finished when it is. */
static bool holds(struct cpa_check_rank_state *state, const struct cpa_content *held,
	const struct cpa_content *named, const struct cpa_box *where)
{
	const char *buffer = state->schedule->buffers[where->buffer].name;
	char a[256], b[256];
	bool same = held->tensor == named->tensor && held->dtype == named->dtype &&
		cpa_content_same_place(held, named);
	if (same && named->partial)
		same = cpa_content_same_seen(held, named);
	if (!same) {
		cpa_content_print(held, a, sizeof a);
		cpa_content_print(named, b, sizeof b);
		return cpa_check_fail(state, CPA_RULE_DATA,
			"reads buffer \"%s\" rows %lld-%lld as %s, but "
			"they hold %s",
			buffer, (long long)where->token,
			(long long)(where->token + (where->ntokens - 1) * where->step), b, a);
	}
	int64_t row, key;
	if (named->partial || !held->partial)
		return true;
	if (held->sink != (state->part->problem.rule.sink != NULL)) {
		cpa_content_print(held, a, sizeof a);
		return cpa_check_fail(state, CPA_RULE_DATA,
			"takes buffer \"%s\" as finished, but the sink "
			"is not in its denominator: it holds %s",
			buffer, a);
	}
	if (cpa_check_is_finished(state, held, &row, &key))
		return true;
	cpa_content_print(held, a, sizeof a);
	return cpa_check_fail(state, CPA_RULE_DATA,
		"takes buffer \"%s\" as finished, but query token %lld "
		"may see key %lld, which is missing: it holds %s",
		buffer, (long long)row, (long long)key, a);
}

static bool missing(
	struct cpa_check_rank_state *state, const struct cpa_operand *operand, int64_t found)
{
	char text[256];
	cpa_content_print(&operand->content, text, sizeof text);
	const struct cpa_buffer *buffer = &state->schedule->buffers[operand->box.buffer];
	return cpa_check_fail(state, CPA_RULE_DATA,
		"reads %s from buffer \"%s\" rows %lld-%lld before all of "
		"it is written: %lld of %lld elements are",
		text, buffer->name, (long long)operand->box.token,
		(long long)(operand->box.token + (operand->box.ntokens - 1) * operand->box.step),
		(long long)(found * buffer->dim),
		(long long)cpa_box_nelements(buffer, &operand->box));
}

/* The part of a piece that is read: what it holds is what the operand names.  `index` is of the
 * operand's tokens. */
static bool may_read(struct cpa_check_rank_state *state, struct cpa_piece_state *piece,
	const struct cpa_operand *operand, const struct cpa_box *both,
	const struct cpa_spans_index *index)
{
	struct cpa_span runs[2];
	struct cpa_content held =
		part_content(state, piece->written, both, piece->index, &runs[0]);
	struct cpa_content named = part_content(state, operand, both, index, &runs[1]);
	if (state->arena.failed) {
		state->out_of_memory = true;
		return false;
	}
	return holds(state, &held, &named, both) &&
		(is_ordered(state, piece->writer_step) ||
			race(state, both, "reads", "writes", piece->writer_op));
}

static void mark_read(
	const struct cpa_check_rank_state *state, struct cpa_piece_state *piece, int queue)
{
	piece->reader_step[queue] = state->step;
	piece->reader_op[queue] = state->op;
}

/* Only the part that is read is marked: the rest of the piece stands apart from now on. */
static bool put_back_read(struct cpa_check_rank_state *state, const struct cpa_piece_state *old,
	const struct cpa_box *both, int queue)
{
	struct cpa_piece_state piece = *old;
	piece.box = *both;
	mark_read(state, &piece, queue);
	return add_piece(state, &piece) && keep_outside(state, old, both);
}

bool cpa_check_read(struct cpa_check_rank_state *state, const struct cpa_operand *operand)
{
	const struct cpa_box *box = &operand->box;
	/* The virtual step after the last one, which takes the outputs, has no queue of its own.
	 */
	int queue = state->step < state->schedule->nsteps
		? state->schedule->steps[state->step].queue
		: CPA_QUEUE_COMPUTE;
	int64_t found = 0, wanted = box->ntokens * box->nbatches * box->nheads;
	struct cpa_piece_state *same = cut_out(state, box);
	if (same) {
		if (!may_read(state, same, operand, &same->box, NULL))
			return false;
		mark_read(state, same, queue);
		return true;
	}
	if (state->out_of_memory || !take_pieces(state, box))
		return false;
	const struct cpa_spans_index *index = index_tokens(state, operand);
	if (state->arena.failed)
		return false;
	for (int i = 0; i < state->met.n; i++) {
		struct cpa_piece_state *piece = &state->met.at[i];
		struct cpa_box both;
		if (!box_common(&piece->box, box, &both)) {
			if (!add_piece(state, piece))
				return false;
			continue;
		}
		if (!may_read(state, piece, operand, &both, index) ||
			!put_back_read(state, piece, &both, queue))
			return false;
		found += both.ntokens * both.nbatches * both.nheads;
	}
	return found == wanted || missing(state, operand, found);
}

/* ---- write ---- */

static struct cpa_piece_state new_piece(
	struct cpa_check_rank_state *state, const struct cpa_operand *written, int step, int op)
{
	struct cpa_piece_state piece = {.box = written->box,
		.written = written,
		.index = index_tokens(state, written),
		.writer_step = step,
		.writer_op = op};
	if (piece.box.ntokens == 1)
		piece.box.step = 1;
	for (int q = 0; q < CPA_NQUEUES; q++)
		piece.reader_step[q] = piece.reader_op[q] = -1;
	return piece;
}

static bool may_replace(struct cpa_check_rank_state *state, const struct cpa_piece_state *piece,
	const struct cpa_box *both)
{
	if (!is_ordered(state, piece->writer_step))
		return race(state, both, "writes", "writes", piece->writer_op);
	for (int q = 0; q < CPA_NQUEUES; q++) {
		bool own = state->in_place && piece->reader_step[q] == state->step &&
			piece->reader_op[q] == state->op;
		if (!own && !is_ordered(state, piece->reader_step[q]))
			return race(state, both, "writes", "reads", piece->reader_op[q]);
	}
	return true;
}

bool cpa_check_write(struct cpa_check_rank_state *state, const struct cpa_operand *operand)
{
	int buffer = operand->box.buffer;
	if (state->schedule->buffers[buffer].role == CPA_ROLE_INPUT)
		return cpa_check_fail(state, CPA_RULE_DATA, "writes the input buffer \"%s\"",
			state->schedule->buffers[buffer].name);
	struct cpa_piece_state *same = cut_out(state, &operand->box);
	if (same) {
		bool may = may_replace(state, same, &same->box);
		*same = new_piece(state, operand, state->step, state->op);
		return may;
	}
	if (state->out_of_memory || !take_pieces(state, &operand->box))
		return false;
	for (int i = 0; i < state->met.n; i++) {
		struct cpa_piece_state *old = &state->met.at[i];
		struct cpa_box both;
		bool meets = box_common(&old->box, &operand->box, &both);
		if (meets ? !may_replace(state, old, &both) || !keep_outside(state, old, &both)
			  : !add_piece(state, old))
			return false;
	}
	return cpa_check_stand(state, operand, state->step, state->op);
}

bool cpa_check_stand(struct cpa_check_rank_state *state, const struct cpa_operand *operand, int step,
	int op)
{
	struct cpa_piece_state piece = new_piece(state, operand, step, op);
	return !state->arena.failed && add_piece(state, &piece);
}
