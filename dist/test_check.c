/*
 * test_check.c - the checker is tested by broken plans, one kind of break at a time: each is
 * refused, and the sentence names rank, operation, buffer and tokens.  A few kinds can be
 * harmless (a copy made twice, a read of another buffer that holds the same); sim/test_mutants.c
 * runs those.
 */
#include "dist/test_cases.h"
#include "dist/test_mutate.h"

#include <stdio.h>

static struct cpa_problem problem(int64_t B, int64_t S, int64_t Hq, int64_t Hkv, bool causal)
{
	return (struct cpa_problem){.B = B,
		.Sq = S,
		.Skv = S,
		.Hq = Hq,
		.Hkv = Hkv,
		.D = 2,
		.Dv = 3,
		.dtype = CPA_DTYPE_BF16,
		.scale = 1,
		.rule = {.causal = causal},
		.lse = true};
}

/* The configurations that are broken: every stage, rotation, order, with GQA, batches and empty
 * shards. */
static struct cpa_config config(int which, struct cpa_problem *p)
{
	*p = problem(which == 3 || which == 8 ? 2 : 1, which == 4 ? 3 : 13, which == 2 ? 6 : 4,
		which == 2 ? 3 : 2, which != 1);
	p->layout = which == 6 ? CPA_LAYOUT_BHSD
		: which == 7   ? CPA_LAYOUT_FUSED
			       : CPA_LAYOUT_BSHD;
	if (which == 7)
		p->Dv = p->D;
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, p);
	static const int degrees[9][2] = {
		{4, 1}, {3, 1}, {1, 3}, {2, 2}, {5, 1}, {3, 2}, {2, 2}, {3, 1}, {2, 1}};
	c.ring_degree = degrees[which][0];
	c.ulysses_degree = degrees[which][1];
	c.rotate = which == 1 || which == 3 ? CPA_ROTATE_ALLGATHER : CPA_ROTATE_P2P;
	c.order = which == 0		   ? CPA_ORDER_ZIGZAG
		: which == 2 || which == 5 ? CPA_ORDER_STRIPED
					   : CPA_ORDER_CONTIGUOUS;
	c.partials = which == 3 ? CPA_PARTIALS_BLOCK : CPA_PARTIALS_FP32;
	if (which == 8) /* two branches, a batch group for each */
		c.batch_degree = c.guidance = 2;
	return c;
}
enum { NCONFIGS = 9 };

/* Some kinds can be harmless; of all others every instance is harmful. */
static bool is_always_harmful(enum mutation kind, const struct cpa_op *op)
{
	switch (kind) {
	case DOUBLE_OP:
		return op->kind != CPA_OP_COPY && op->kind != CPA_OP_ATTEND;
	case SWAP_WITH_NEXT_STEP:
	case READ_ANOTHER_BUFFER:
	case FORGET_A_WAIT:
	case WAIT_ONE_STEP_LESS:
	case CLAIM_FINISHED:
	case SPLIT_THE_GROUP:
		return false;
	default:
		return true;
	}
}

struct tally {
	int tried, refused;
};

static void break_everywhere(int which, enum mutation kind, struct tally *tally)
{
	struct cpa_problem p;
	struct cpa_config c = config(which, &p);
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	assert_int_equal(check_world(&w, &error), CPA_OK);
	for (int rank = 0; rank < w.part->W; rank++)
		for (int op = 0, nops = w.rank[rank]->nops; op < nops; op++)
			for (int operand = 0; operand < 4; operand++) {
				struct cpa_op original = w.rank[rank]->ops[op];
				if (operand > 0 && operand >= original.nreads &&
					operand >= original.nwrites)
					break;
				if (mutate(w.rank[rank], op, operand, kind)) {
					tally->tried++;
					enum cpa_status s = check_world(&w, &error);
					tally->refused += s == CPA_MISMATCH;
					if (s == CPA_OK && is_always_harmful(kind, &original))
						fail_msg("%s accepted: configuration %d, rank "
							 "%d, op %d (%s), operand "
							 "%d",
							mutation_names[kind], which, rank, op,
							cpa_op_name(original.kind), operand);
					if (s == CPA_MISMATCH) {
						assert_true(w.fault.rule != CPA_RULE_NONE);
						assert_non_null(strstr(error.text, "rank "));
					}
				}
				cpa_schedule_destroy(w.rank[rank]);
				assert_int_equal(
					cpa_plan_create(w.part, rank, &w.rank[rank], &error),
					CPA_OK);
			}
	free_world(&w);
}

static void every_kind_of_break_is_refused(void **unused)
{
	(void)unused;
	for (int kind = 0; kind < NMUTATIONS; kind++) {
		struct tally tally = {0, 0};
		for (int which = 0; which < NCONFIGS; which++)
			break_everywhere(which, (enum mutation)kind, &tally);
		print_message("%-26s %5d breaks, %5d refused\n", mutation_names[kind],
			tally.tried, tally.refused);
		assert_true(tally.tried > 0);
		/* One rank that does not group its transfers hangs nobody as long as the others
		 * do. */
		assert_true(tally.refused > 0 || kind == SPLIT_THE_GROUP);
	}
}

/* ---- what the sentences name ---- */

static struct world ring_of_three(void)
{
	struct cpa_problem p = problem(1, 12, 2, 1, false);
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
	c.ring_degree = 3;
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	return w;
}

static int find_op(const struct cpa_schedule *s, enum cpa_op_kind kind, int nth)
{
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].kind == kind && nth-- == 0)
			return i;
	fail_msg("no such op");
	return -1;
}

static void expect_fault(
	struct world *w, enum cpa_fault_rule rule, int rank, const char *const *words)
{
	struct cpa_error error;
	assert_int_equal(check_world(w, &error), CPA_MISMATCH);
	assert_int_equal(w->fault.rule, rule);
	assert_int_equal(w->fault.rank, rank);
	for (; *words; words++)
		if (!strstr(error.text, *words))
			fail_msg("\"%s\" does not name \"%s\"", error.text, *words);
	free_world(w);
}

static void a_merge_that_is_missing_names_the_lost_keys(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	drop_op(w.rank[1], find_op(w.rank[1], CPA_OP_MERGE, 1));
	expect_fault(&w, CPA_RULE_DATA, 1,
		(const char *[]){"rank 1 op", "(copy)", "o partial", "query token 4", "key 8",
			"0-7", NULL});
}

static void a_merge_made_twice_names_the_common_keys(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	int merge = find_op(w.rank[2], CPA_OP_MERGE, 0);
	double_op(w.rank[2], merge);
	/* The second one names keys 8-11 before, but the accumulator has seen 4-11 by then. */
	expect_fault(&w, CPA_RULE_DATA, 2,
		(const char *[]){"rank 2 op", "(merge)", "o partial", "4-11", NULL});
}

static void a_slot_refilled_too_early_is_a_race(void **unused)
{
	(void)unused;
	struct cpa_problem p = problem(1, 16, 1, 1, false);
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
	c.ring_degree = 4;
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	/* Hop 3 refills the slot that hop 1 attends from: its wait on the compute queue is
	 * needed. */
	struct cpa_schedule *s = w.rank[0];
	int step = step_of(s, find_op(s, CPA_OP_RECV, 2));
	assert_true(s->steps[step].waits[CPA_QUEUE_COMPUTE] >= 0);
	s->steps[step].waits[CPA_QUEUE_COMPUTE] = -1;
	expect_fault(&w, CPA_RULE_RACE, 0,
		(const char *[]){
			"(recv)", "k slot 1", "rows 0-3", "nothing orders the two", NULL});
}

static void a_message_without_partner_names_both_ranks_and_tokens(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	int op = find_op(w.rank[0], CPA_OP_SEND, 1);
	drop_op(w.rank[0], op);
	expect_fault(&w, CPA_RULE_MESSAGES, 1,
		(const char *[]){"rank 1 op", "message 1 from rank 0 to rank 1", "k tokens 8-11",
			"has no send on rank 0", NULL});
}

static void messages_in_another_order_do_not_meet(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	/* Rank 0 sends block 0 at hop 1 and block 2 at hop 2; exchange what is sent. */
	struct cpa_schedule *s = w.rank[0];
	struct cpa_op *first = &s->ops[find_op(s, CPA_OP_SEND, 0)];
	first->reads[0].content.heads.end = 1;
	struct cpa_op *second = &s->ops[find_op(s, CPA_OP_SEND, 1)];
	second->reads = first->reads;
	expect_fault(&w, CPA_RULE_MESSAGES, 0,
		(const char *[]){"message 1 from rank 0 to rank 1", "sends k tokens 0-3",
			"expects k tokens 8-11", NULL});
}

/* Everyone sends first, in a group of its own: hangs in rendezvous on every number of ranks. */
static void a_ring_that_sends_first_is_a_deadlock(void **unused)
{
	(void)unused;
	for (int P = 2; P <= 5; P++) {
		struct cpa_problem p = problem(1, 4 * P, 1, 1, false);
		struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
		c.ring_degree = P;
		struct cpa_error error;
		struct world w;
		assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
		for (int r = 0; r < P; r++)
			assert_true(split_group(w.rank[r],
				step_of(w.rank[r], find_op(w.rank[r], CPA_OP_SEND, 0))));
		assert_int_equal(check_world(&w, &error), CPA_MISMATCH);
		assert_int_equal(w.fault.rule, CPA_RULE_DEADLOCK);
		assert_non_null(strstr(error.text, "send to rank"));
		assert_non_null(strstr(error.text, "waits for"));
		free_world(&w);
	}
}

static void a_collective_that_one_rank_skips_is_named(void **unused)
{
	(void)unused;
	struct cpa_problem p = problem(1, 12, 2, 2, false);
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
	c.ring_degree = 3;
	c.rotate = CPA_ROTATE_ALLGATHER;
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	int op = find_op(w.rank[2], CPA_OP_COLLECTIVE, 0);
	struct cpa_op *collective = &w.rank[2]->ops[op];
	/* Rank 2 gives the keys of block 1 as if they were its own. */
	collective->writes[0].content = collective->writes[2].content;
	expect_fault(&w, CPA_RULE_DATA, 2, (const char *[]){"rank 2", "k gathered", NULL});
}

/* Keys of two batch items are sent from a copy, because the input is not one run in the order of
 * the wire; it holds the same. */
static void a_message_from_an_input_of_two_batch_items_is_refused(void **unused)
{
	(void)unused;
	for (int which = 0; which < 4; which++) {
		struct cpa_problem p = problem(2, 12, 2, 2, false);
		struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
		c.ring_degree = 3;
		c.rotate = which < 2 ? CPA_ROTATE_ALLGATHER : CPA_ROTATE_P2P;
		struct cpa_error error;
		struct world w;
		assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
		struct cpa_schedule *s = w.rank[1];
		struct cpa_operand *own =
			&s->ops[find_op(s, which < 2 ? CPA_OP_COLLECTIVE : CPA_OP_SEND, 0)]
				 .reads[which % 2];
		while (s->buffers[own->box.buffer].role != CPA_ROLE_INPUT ||
			s->buffers[own->box.buffer].tensor != own->content.tensor)
			own->box.buffer = (own->box.buffer + 1) % s->nbuffers;
		expect_fault(&w, CPA_RULE_DATA, 1,
			(const char *[]){
				"not one run of memory", which % 2 ? "\"v\"" : "\"k\"", NULL});
	}
}

/* Only a collective has boxes without tokens; a copy that names none could write anywhere unseen.
 */
static void a_copy_of_no_tokens_is_refused(void **unused)
{
	(void)unused;
	for (int which = 0; which < 2; which++) {
		struct world w = ring_of_three();
		int copy = find_op(w.rank[1], CPA_OP_COPY, 0);
		double_op(w.rank[1], copy);
		struct cpa_operand read = w.rank[1]->ops[copy].reads[0],
				   write = w.rank[1]->ops[copy].writes[0];
		read.content.tokens = write.content.tokens = (struct cpa_spans){0};
		if (which == 1)
			read.box.ntokens = write.box.ntokens = 0;
		w.rank[1]->ops[copy].reads = &read;
		w.rank[1]->ops[copy].writes = &write;
		expect_fault(&w, CPA_RULE_DATA, 1, (const char *[]){"(copy)", NULL});
	}
}

static void a_collective_among_others_is_refused(void **unused)
{
	(void)unused;
	for (int which = 0; which < 2; which++) {
		struct cpa_problem p = problem(2, 12, 2, 2, false);
		struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
		c.ring_degree = 3;
		c.batch_degree = 2;
		c.rotate = CPA_ROTATE_ALLGATHER;
		struct cpa_error error;
		struct world w;
		assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
		/* Rank 2 calls in the group of ranks 3 to 5, or in one that lacks rank 0. */
		struct cpa_schedule *s = w.rank[2];
		int *members = s->comms[s->ops[find_op(s, CPA_OP_COLLECTIVE, 0)].comm].members;
		for (int m = 0; m < 3; m++)
			members[m] = which == 0 ? 3 + m : members[m] == 0 ? 3 : members[m];
		expect_fault(&w, CPA_RULE_MESSAGES, which == 0 ? 2 : 0,
			(const char *[]){"(collective)",
				which == 0 ? "no member" : "not made the same way", NULL});
	}
}

static void a_rank_that_is_handed_in_twice_or_never_is_refused(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	struct cpa_check *check;
	struct cpa_error error;
	assert_int_equal(cpa_check_create(w.part, &check, &error), CPA_OK);
	assert_int_equal(cpa_check_rank(check, w.rank[0], &error), CPA_OK);
	assert_int_equal(cpa_check_finish(check, &error), CPA_MISMATCH);
	assert_int_equal(cpa_check_fault(check)->rank, -1);
	cpa_check_destroy(check);
	assert_int_equal(cpa_check_create(w.part, &check, &error), CPA_OK);
	assert_int_equal(cpa_check_rank(check, w.rank[0], &error), CPA_OK);
	assert_int_equal(cpa_check_rank(check, w.rank[0], &error), CPA_MISMATCH);
	cpa_check_destroy(check);
	free_world(&w);
}

/* An output that another rank's plan would leave out is owed all the same. */
static void a_rank_that_does_not_write_its_output_is_refused(void **unused)
{
	(void)unused;
	struct world w = ring_of_three();
	for (int i = 0; i < w.rank[1]->nbuffers; i++)
		if (w.rank[1]->buffers[i].role == CPA_ROLE_OUTPUT)
			w.rank[1]->buffers[i].role = CPA_ROLE_WORK;
	expect_fault(&w, CPA_RULE_DATA, 1, (const char *[]){"owes o", NULL});
	assert_int_equal(w.fault.op, -1);
}

/* Send and receive on a queue each, send first: nothing waits for anything, until a transport
 * with one stream runs them in program order. */
static void queues_that_hang_only_when_merged_are_refused(void **unused)
{
	(void)unused;
	struct cpa_problem p = problem(1, 8, 1, 1, false);
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
	c.ring_degree = 2;
	for (int swapped = 0; swapped < 2; swapped++) {
		struct cpa_error error;
		struct world w;
		assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
		for (int r = 0; r < 2; r++) {
			struct cpa_schedule *s = w.rank[r];
			int op = find_op(s, CPA_OP_SEND, 0), step = step_of(s, op);
			bool recv_first = swapped && r == 1;
			if (recv_first) {
				struct cpa_op send = s->ops[op];
				s->ops[op] = s->ops[op + 1];
				s->ops[op + 1] = send;
			}
			assert_true(split_group(s, step));
			s->steps[step + 1].queue = 2;
			for (int i = step + 2; i < s->nsteps; i++) {
				s->steps[i].waits[2] =
					s->steps[i].waits[CPA_QUEUE_COMM] >= 0 ? step + 1 : -1;
				if (s->steps[i].waits[CPA_QUEUE_COMM] >= 0)
					s->steps[i].waits[CPA_QUEUE_COMM] = step;
			}
		}
		assert_int_equal(check_world(&w, &error), swapped ? CPA_OK : CPA_MISMATCH);
		assert_int_equal(w.fault.rule, swapped ? CPA_RULE_NONE : CPA_RULE_DEADLOCK);
		free_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_break_is_refused),
		cmocka_unit_test(a_merge_that_is_missing_names_the_lost_keys),
		cmocka_unit_test(a_merge_made_twice_names_the_common_keys),
		cmocka_unit_test(a_slot_refilled_too_early_is_a_race),
		cmocka_unit_test(a_message_without_partner_names_both_ranks_and_tokens),
		cmocka_unit_test(messages_in_another_order_do_not_meet),
		cmocka_unit_test(a_ring_that_sends_first_is_a_deadlock),
		cmocka_unit_test(a_collective_that_one_rank_skips_is_named),
		cmocka_unit_test(a_message_from_an_input_of_two_batch_items_is_refused),
		cmocka_unit_test(a_copy_of_no_tokens_is_refused),
		cmocka_unit_test(a_collective_among_others_is_refused),
		cmocka_unit_test(a_rank_that_is_handed_in_twice_or_never_is_refused),
		cmocka_unit_test(a_rank_that_does_not_write_its_output_is_refused),
		cmocka_unit_test(queues_that_hang_only_when_merged_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
