/*
 * test_check_order.c - rules 3 and 4 on random programs of messages and collectives: the checker
 * refuses exactly the programs that get stuck when they are run in rendezvous, step by step, and
 * every rank and operation that it names is one that is stuck; it refuses every pair of ends that
 * differ.
 */
#include "dist/check.h"
#include "dist/test_cases.h"

#include <stdio.h>

enum { MAX_W = 4, MAX_STEPS = 40 };

/* ---- random programs ---- */

struct program {
	int W;
	struct cpa_schedule *rank[MAX_W];
	struct cpa_span keys[2];
};

/* What one rank does for a transfer of the world: send, receive or its part in a collective. */
struct part {
	enum cpa_op_kind kind;
	int peer;
};

static void add_part(struct program *w, struct cpa_schedule *s, const struct part *part)
{
	struct cpa_operand own = {.box = {0, 0, 1, 1, 0, 1, 0, 1},
		.content = {.tensor = CPA_TENSOR_O,
			.batches = {0, 1},
			.heads = {0, 1},
			.tokens = {&w->keys[0], 1, 1},
			.dtype = CPA_DTYPE_FP32,
			.partial = true,
			.keys = {&w->keys[1], 1, 1}}};
	struct cpa_operand all[MAX_W];
	for (int m = 0; m < w->W; m++)
		all[m] = own;
	struct cpa_op op = {
		.kind = part->kind, .peer = part->peer, .hop = -1, .reads = &own, .writes = all};
	op.comm = part->kind == CPA_OP_COLLECTIVE;
	op.nreads = part->kind != CPA_OP_RECV;
	op.nwrites = part->kind == CPA_OP_SEND ? 0 : part->kind == CPA_OP_RECV ? 1 : w->W;
	cpa_schedule_add(s, &op);
}

/* Parts in nearly the order of the world, in groups of up to three on up to three queues, with
 * compute steps between and waits for anything earlier. */
static void fill_rank(
	struct program *w, int rank, struct part *parts, int n, int nqueues, uint64_t *state)
{
	struct cpa_schedule *s = cpa_schedule_create(rank, w->W);
	const int members[MAX_W] = {0, 1, 2, 3};
	cpa_schedule_comm(s, w->W, members);
	cpa_schedule_buffer(s,
		&(struct cpa_buffer){.role = CPA_ROLE_WORK,
			.dtype = CPA_DTYPE_FP32,
			.ntokens = 1,
			.nbatches = 1,
			.nheads = 1,
			.dim = 1});
	for (int i = 0; i + 1 < n; i++)
		if (below(state, 6) == 0) {
			struct part swap = parts[i];
			parts[i] = parts[i + 1];
			parts[i + 1] = swap;
		}
	struct cpa_operand write = {.box = {0, 0, 1, 1, 0, 1, 0, 1}};
	for (int i = 0; i < n;) {
		if (below(state, 3) == 0)
			cpa_schedule_add(s,
				&(struct cpa_op){.kind = CPA_OP_COPY,
					.peer = -1,
					.hop = -1,
					.nwrites = 1,
					.writes = &write});
		cpa_schedule_begin(s, 1 + below(state, nqueues));
		for (int size = 1 + below(state, 3); size > 0 && i < n; size--)
			add_part(w, s, &parts[i++]);
		cpa_schedule_end(s);
	}
	struct cpa_error error;
	assert_int_equal(cpa_schedule_finish(s, &error), CPA_OK);
	for (int i = 0; i < s->nsteps; i++)
		for (int q = 0; q < CPA_NQUEUES; q++) {
			int wait = i > 0 && below(state, 3) == 0 ? below(state, i) : -1;
			s->steps[i].waits[q] = wait >= 0 && s->steps[wait].queue == q ? wait : -1;
		}
	w->rank[rank] = s;
}

static void make_program(struct program *w, uint64_t *state)
{
	struct part parts[MAX_W][16];
	int n[MAX_W] = {0}, ntransfers = 1 + below(state, 8), nqueues = 1 + below(state, 3);
	w->W = 2 + below(state, MAX_W - 1);
	w->keys[0] = (struct cpa_span){5, 1, 1, 1};
	w->keys[1] = (struct cpa_span){3, 4, 4, 1};
	for (int i = 0; i < ntransfers; i++) {
		int from = below(state, w->W), to = (from + 1 + below(state, w->W - 1)) % w->W;
		bool collective = below(state, 4) == 0;
		for (int r = 0; collective && r < w->W; r++)
			parts[r][n[r]++] = (struct part){CPA_OP_COLLECTIVE, -1};
		if (!collective) {
			parts[from][n[from]++] = (struct part){CPA_OP_SEND, to};
			parts[to][n[to]++] = (struct part){CPA_OP_RECV, from};
		}
	}
	for (int r = 0; r < w->W; r++)
		fill_rank(w, r, parts[r], n[r], nqueues, state);
}

static void free_program(struct program *w)
{
	for (int r = 0; r < w->W; r++)
		cpa_schedule_destroy(w->rank[r]);
}

/* ---- running them ---- */

struct run {
	bool started[MAX_W][MAX_STEPS], ended[MAX_W][MAX_STEPS];
};

/* The nth op of this kind with this peer, as the step it is in; whether that step has started. */
static bool has_started(const struct program *w, const struct run *run, int rank,
	enum cpa_op_kind kind, int peer, int nth)
{
	const struct cpa_schedule *s = w->rank[rank];
	for (int i = 0; i < s->nsteps; i++)
		for (int n = 0; n < s->steps[i].nops; n++) {
			const struct cpa_op *op = &s->ops[s->steps[i].first + n];
			if (op->kind == kind && op->peer == peer && nth-- == 0)
				return run->started[rank][i];
		}
	return false;
}

static bool partners_have_started(
	const struct program *w, const struct run *run, int rank, int index)
{
	const struct cpa_schedule *s = w->rank[rank];
	const struct cpa_op *op = &s->ops[index];
	int nth = 0;
	for (int i = 0; i < index; i++)
		nth += s->ops[i].kind == op->kind && s->ops[i].peer == op->peer;
	if (op->kind == CPA_OP_SEND)
		return has_started(w, run, op->peer, CPA_OP_RECV, rank, nth);
	if (op->kind == CPA_OP_RECV)
		return has_started(w, run, op->peer, CPA_OP_SEND, rank, nth);
	bool all = true;
	for (int r = 0; op->kind == CPA_OP_COLLECTIVE && r < w->W; r++)
		all = all && has_started(w, run, r, CPA_OP_COLLECTIVE, -1, nth);
	return all;
}

static int queue_of(const struct cpa_step *step, bool merge_queues)
{
	return merge_queues && step->queue > CPA_QUEUE_COMM ? CPA_QUEUE_COMM : step->queue;
}

static bool may_start(
	const struct cpa_schedule *s, const bool *ended, int step, bool merge_queues)
{
	for (int i = 0; i < step; i++)
		if (!ended[i] &&
			queue_of(&s->steps[i], merge_queues) ==
				queue_of(&s->steps[step], merge_queues))
			return false;
	for (int q = 0; q < CPA_NQUEUES; q++)
		if (s->steps[step].waits[q] >= 0 && !ended[s->steps[step].waits[q]])
			return false;
	return true;
}

/* Starts and ends whatever may start and end until nothing moves.  True: everything has ended. */
static bool completes(const struct program *w, bool merge_queues, struct run *run)
{
	memset(run, 0, sizeof *run);
	bool moved = true, all = true;
	while (moved) {
		moved = false;
		all = true;
		for (int r = 0; r < w->W; r++)
			for (int i = 0; i < w->rank[r]->nsteps; i++) {
				const struct cpa_step *step = &w->rank[r]->steps[i];
				if (!run->started[r][i] &&
					may_start(w->rank[r], run->ended[r], i, merge_queues))
					moved = run->started[r][i] = true;
				bool ends = run->started[r][i] && !run->ended[r][i];
				for (int n = 0; ends && n < step->nops; n++)
					ends = partners_have_started(w, run, r, step->first + n);
				if (ends)
					moved = run->ended[r][i] = true;
				all = all && run->ended[r][i];
			}
	}
	return all;
}

static bool is_stuck(const struct program *w, const struct run *run, int rank, int op)
{
	const struct cpa_schedule *s = w->rank[rank];
	for (int i = 0; i < s->nsteps; i++)
		if (op >= s->steps[i].first && op < s->steps[i].first + s->steps[i].nops)
			return !run->ended[rank][i];
	return false;
}

static void expect_stuck_names(
	const struct program *w, const struct run *run, const struct cpa_fault *fault)
{
	int rank, op, named = 0;
	assert_int_equal(fault->rule, CPA_RULE_DEADLOCK);
	assert_true(is_stuck(w, run, fault->rank, fault->op));
	assert_int_equal(strncmp(fault->text, "deadlock: ", 10), 0);
	for (const char *at = fault->text; (at = strstr(at, "rank ")); at++)
		if (sscanf(at, "rank %d op %d (", &rank, &op) == 2) {
			assert_true(is_stuck(w, run, rank, op));
			named++;
		}
	assert_true(named > 0);
}

static struct cpa_peers *add_all(const struct program *w)
{
	struct cpa_peers *peers = cpa_peers_create(w->W);
	struct cpa_fault fault = {.rule = CPA_RULE_NONE};
	bool out_of_memory = false;
	for (int i = 0; i < w->W; i++) /* in any order */
		assert_true(
			cpa_peers_add(peers, w->rank[(i + 1) % w->W], &fault, &out_of_memory));
	return peers;
}

static void programs_are_refused_exactly_when_they_get_stuck(void **unused)
{
	(void)unused;
	int nstuck = 0, nmerged = 0, nfine = 0;
	for (uint64_t seed = 0; seed < 20000; seed++) {
		uint64_t state = seed;
		struct program w;
		struct run run;
		struct cpa_fault fault = {.rule = CPA_RULE_NONE};
		bool out_of_memory = false;
		make_program(&w, &state);
		struct cpa_peers *peers = add_all(&w);
		assert_true(cpa_peers_match(peers, &fault));
		bool fine = completes(&w, false, &run);
		if (cpa_peers_order(peers, false, &fault, &out_of_memory) != fine)
			fail_msg("seed %d: %s", (int)seed,
				fine ? fault.text : "a deadlock is accepted");
		if (!fine) {
			nstuck++;
			expect_stuck_names(&w, &run, &fault);
		} else {
			bool fine_merged = completes(&w, true, &run);
			assert_int_equal(cpa_peers_order(peers, true, &fault, &out_of_memory),
				fine_merged);
			if (!fine_merged)
				expect_stuck_names(&w, &run, &fault);
			nmerged += !fine_merged;
			nfine += fine_merged;
		}
		assert_false(out_of_memory);
		cpa_peers_destroy(peers);
		free_program(&w);
	}
	print_message("%d stuck, %d stuck on one queue, %d fine\n", nstuck, nmerged, nfine);
	assert_true(nstuck > 1000 && nmerged > 100 && nfine > 1000);
}

/* ---- ends that differ ---- */

/* One field of one content, so that it is another content. */
static void change_content(struct cpa_content *c, int field, struct cpa_span *other)
{
	switch (field) {
	case 0:
		c->tensor = CPA_TENSOR_LSE;
		break;
	case 1:
		c->dtype = CPA_DTYPE_FP64;
		break;
	case 2:
		c->batches.start--;
		break;
	case 3:
		c->batches.end++;
		break;
	case 4:
		c->heads.start--;
		break;
	case 5:
		c->heads.end++;
		break;
	case 6:
		c->partial = false;
		break;
	case 7:
		c->tokens.at = other;
		break;
	default:
		c->keys.at = other;
	}
}
enum { NFIELDS = 9 };

static void ends_that_differ_in_anything_do_not_meet(void **unused)
{
	(void)unused;
	int nchanged = 0;
	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t state = seed;
		struct program w;
		make_program(&w, &state);
		struct cpa_schedule *s = w.rank[below(&state, w.W)];
		int index = s->nops ? below(&state, s->nops) : 0;
		if (s->nops > 0 && s->ops[index].kind != CPA_OP_COPY) {
			struct cpa_op *op = &s->ops[index];
			struct cpa_span other = {3, 3, 3, 1};
			int box = below(&state, op->nreads + op->nwrites);
			struct cpa_operand *x = box < op->nreads ? &op->reads[box]
								 : &op->writes[box - op->nreads];
			struct cpa_fault fault = {.rule = CPA_RULE_NONE};
			change_content(&x->content, below(&state, NFIELDS), &other);
			struct cpa_peers *peers = add_all(&w);
			assert_false(cpa_peers_match(peers, &fault));
			assert_int_equal(fault.rule, CPA_RULE_MESSAGES);
			assert_true(fault.rank >= 0 && fault.rank < w.W);
			assert_int_equal(
				w.rank[fault.rank]->ops[fault.op].kind == CPA_OP_COLLECTIVE,
				op->kind == CPA_OP_COLLECTIVE);
			cpa_peers_destroy(peers);
			nchanged++;
		}
		free_program(&w);
	}
	assert_true(nchanged > 2000);
}

/* The last message or call of one rank is left out, or has a box less. */
static void an_end_or_a_box_that_is_missing_is_noticed(void **unused)
{
	(void)unused;
	int nchanged = 0;
	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t state = seed;
		struct program w;
		make_program(&w, &state);
		struct cpa_schedule *s = w.rank[below(&state, w.W)];
		struct cpa_op *op = s->nops ? &s->ops[s->nops - 1] : NULL;
		if (op && op->kind != CPA_OP_COPY) {
			struct cpa_operand boxes[2];
			bool send = op->kind == CPA_OP_SEND, leave_out = below(&state, 2);
			boxes[0] = boxes[1] = send ? op->reads[0] : op->writes[0];
			if (leave_out || op->kind == CPA_OP_COLLECTIVE) {
				s->nops--;
				s->nsteps -= --s->steps[s->nsteps - 1].nops == 0;
			} else if (send) {
				op->reads = boxes;
				op->nreads = 2;
			} else {
				op->writes = boxes;
				op->nwrites = 2;
			}
			struct cpa_fault fault = {.rule = CPA_RULE_NONE};
			struct cpa_peers *peers = add_all(&w);
			assert_false(cpa_peers_match(peers, &fault));
			assert_int_equal(fault.rule, CPA_RULE_MESSAGES);
			cpa_peers_destroy(peers);
			nchanged++;
		}
		free_program(&w);
	}
	assert_true(nchanged > 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_are_refused_exactly_when_they_get_stuck),
		cmocka_unit_test(ends_that_differ_in_anything_do_not_meet),
		cmocka_unit_test(an_end_or_a_box_that_is_missing_is_noticed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
