/*
 * test_worked.c - the worked examples of the field come out message by message, and the shape of
 * plans.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* ---- worked examples, message by message ---- */

/* "1: q 0-1 h2-3, k 0-1 h2-3; ..." of every SEND (or RECV) of a rank, in order. */
static void print_messages(
	const struct cpa_schedule *s, enum cpa_op_kind kind, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind != kind)
			continue;
		const struct cpa_operand *boxes = kind == CPA_OP_SEND ? op->reads : op->writes;
		used += (size_t)snprintf(
			text + used, size - used, "%s%d:", used ? "; " : "", op->peer);
		for (int b = 0; b < op->nreads + op->nwrites; b++) {
			char tokens[64];
			cpa_spans_print(&boxes[b].content.tokens, tokens, sizeof tokens);
			used += (size_t)snprintf(text + used, size - used, "%s %s %s h%lld-%lld",
				b ? "," : "", cpa_tensor_name(boxes[b].content.tensor), tokens,
				(long long)boxes[b].content.heads.start,
				(long long)boxes[b].content.heads.end - 1);
		}
	}
}

static void expect_messages(
	const struct world *w, int rank, enum cpa_op_kind kind, const char *expected)
{
	char text[2048];
	print_messages(w->rank[rank], kind, text, sizeof text);
	assert_string_equal(text, expected);
}

static struct world plan_example(int64_t B, int64_t S, int64_t H, enum cpa_variant variant, int N,
	int R, int U, bool causal, enum cpa_order order)
{
	struct cpa_problem p = {.B = B,
		.Sq = S,
		.Skv = S,
		.Hq = H,
		.Hkv = H,
		.D = 2,
		.Dv = 2,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1,
		.rule = {.causal = causal}};
	struct cpa_config c = cpa_config_default(variant, &p);
	c.batch_degree = N;
	c.ring_degree = R;
	c.ulysses_degree = U;
	c.order = order;
	c.direction = 1;
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	assert_int_equal(check_world(&w, &error), CPA_OK);
	return w;
}

static void e1_ulysses_of_two_exchanges_halves_of_the_heads(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 4, 4, CPA_VARIANT_ULYSSES, 1, 1, 2, false, CPA_ORDER_CONTIGUOUS);
	expect_messages(
		&w, 0, CPA_OP_SEND, "1: q 0-1 h2-3, k 0-1 h2-3, v 0-1 h2-3; 1: o 2-3 h0-1");
	expect_messages(
		&w, 0, CPA_OP_RECV, "1: q 2-3 h0-1, k 2-3 h0-1, v 2-3 h0-1; 1: o 0-1 h2-3");
	expect_messages(
		&w, 1, CPA_OP_SEND, "0: q 2-3 h0-1, k 2-3 h0-1, v 2-3 h0-1; 0: o 0-1 h2-3");
	free_world(&w);
}

/* The padded peer gives every rank 2 heads and rank 3 one head and a pad. Here nothing is padded:
 * heads are 2 2 2 1 and rank 3 gets and returns head 6 alone. */
static void e2_ulysses_anything_moves_no_padding(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 9, 7, CPA_VARIANT_ULYSSES_ANYTHING, 1, 1, 4, false, CPA_ORDER_CONTIGUOUS);
	const int64_t n[] = {3, 2, 2, 2}, heads[] = {0, 2, 4, 6, 7};
	for (int r = 0; r < 4; r++) {
		assert_int_equal(nsplit(w.part, false, 0, r), n[r]);
		assert_int_equal(w.part->heads[r + 1], heads[r + 1]);
	}
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: q 0-2 h2-3, k 0-2 h2-3, v 0-2 h2-3; 2: q 0-2 h4-5, k 0-2 h4-5, v 0-2 h4-5; "
		"3: q 0-2 h6-6, k 0-2 h6-6, v 0-2 h6-6; 1: o 3-4 h0-1; 2: o 5-6 h0-1; 3: o 7-8 "
		"h0-1");
	expect_messages(&w, 3, CPA_OP_SEND,
		"0: q 7-8 h0-1, k 7-8 h0-1, v 7-8 h0-1; 1: q 7-8 h2-3, k 7-8 h2-3, v 7-8 h2-3; "
		"2: q 7-8 h4-5, k 7-8 h4-5, v 7-8 h4-5; 0: o 0-2 h6-6; 1: o 3-4 h6-6; 2: o 5-6 "
		"h6-6");
	free_world(&w);
	/* Refused by the padded peer (pad 2 is not below 2 local heads); possible here: 2 2 1 1.
	 */
	w = plan_example(
		1, 9, 6, CPA_VARIANT_ULYSSES_ANYTHING, 1, 1, 4, false, CPA_ORDER_CONTIGUOUS);
	const int64_t six[] = {0, 2, 4, 5, 6};
	for (int u = 0; u < 4; u++)
		assert_int_equal(w.part->heads[u + 1], six[u + 1]);
	free_world(&w);
}

/* The peer pads every chunk to 3 rows and gathers 12; here the 9 rows travel. Its rank 1 visits
 * chunks 1 2 3 0 (direction down); lengths 2 2 2 3. */
static void e4_ring_anything_passes_true_lengths(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 9, 1, CPA_VARIANT_RING_ANYTHING, 1, 4, 1, false, CPA_ORDER_CONTIGUOUS);
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: k 0-2 h0-0, v 0-2 h0-0; 1: k 7-8 h0-0, v 7-8 h0-0; 1: k 5-6 h0-0, v 5-6 "
		"h0-0");
	expect_messages(&w, 1, CPA_OP_RECV,
		"0: k 0-2 h0-0, v 0-2 h0-0; 0: k 7-8 h0-0, v 7-8 h0-0; 0: k 5-6 h0-0, v 5-6 "
		"h0-0");
	free_world(&w);
	struct cpa_problem p = {
		.B = 1, .Sq = 9, .Skv = 9, .Hq = 1, .Hkv = 1, .D = 2, .Dv = 2, .scale = 1};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &p);
	c.ring_degree = 4;
	c.direction = -1;
	struct cpa_error error;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	const int64_t start[] = {3, 5, 7, 0}, length[] = {2, 2, 2, 3};
	int visit = 0;
	for (int i = 0; i < w.rank[1]->nops; i++) {
		const struct cpa_op *op = &w.rank[1]->ops[i];
		if (op->kind != CPA_OP_ATTEND)
			continue;
		assert_int_equal(cpa_spans_min(&op->reads[1].content.tokens), start[visit]);
		assert_int_equal(op->reads[1].box.ntokens, length[visit++]);
	}
	assert_int_equal(visit, 4);
	free_world(&w);
}

static void e5_unified_two_by_two(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 8, 4, CPA_VARIANT_UNIFIED, 1, 2, 2, false, CPA_ORDER_CONTIGUOUS);
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: q 0-1 h2-3, k 0-1 h2-3, v 0-1 h2-3; "
		"2: k 0-3 h0-1, v 0-3 h0-1; 1: o 2-3 h0-1");
	expect_messages(&w, 3, CPA_OP_SEND,
		"2: q 6-7 h0-1, k 6-7 h0-1, v 6-7 h0-1; "
		"1: k 4-7 h2-3, v 4-7 h2-3; 2: o 4-5 h2-3");
	free_world(&w);
}

/* Rank 0 {0 1 6 7}, rank 1 {2 3 4 5}; after the diagonal block rank 0's late queries {6 7} see
 * all of the other's keys, rank 1's queries see {0 1}: 8 scores each. */
static void e6_zigzag_causal_balances_two_ranks(void **unused)
{
	(void)unused;
	struct world w = plan_example(1, 8, 1, CPA_VARIANT_RING, 1, 2, 1, true, CPA_ORDER_ZIGZAG);
	expect_messages(&w, 0, CPA_OP_SEND, "1: k 0-1 6-7 h0-0, v 0-1 6-7 h0-0");
	expect_messages(&w, 1, CPA_OP_SEND, "0: k 2-5 h0-0, v 2-5 h0-0");
	const char *q[] = {"6-7", "2-5"}, *k[] = {"2-5", "0-1"};
	for (int r = 0; r < 2; r++) {
		int found = 0;
		for (int i = 0; i < w.rank[r]->nops; i++) {
			const struct cpa_op *op = &w.rank[r]->ops[i];
			if (op->kind != CPA_OP_ATTEND || op->hop != 1)
				continue;
			char text[64];
			cpa_spans_print(&op->reads[0].content.tokens, text, sizeof text);
			assert_string_equal(text, q[r]);
			cpa_spans_print(&op->reads[1].content.tokens, text, sizeof text);
			assert_string_equal(text, k[r]);
			found++;
		}
		assert_int_equal(found, 1);
		struct cpa_counts counts;
		cpa_schedule_count(w.rank[r], &w.part->problem, &counts);
		assert_int_equal(counts.work, 18);
	}
	free_world(&w);
}

static void e8_batch_groups_exchange_among_themselves_only(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		2, 4, 2, CPA_VARIANT_ULYSSES, 2, 1, 2, false, CPA_ORDER_CONTIGUOUS);
	const int partner[] = {1, 0, 3, 2};
	for (int r = 0; r < 4; r++)
		for (int i = 0; i < w.rank[r]->nops; i++) {
			const struct cpa_op *op = &w.rank[r]->ops[i];
			const struct cpa_operand *x = op->nwrites ? op->writes : op->reads;
			assert_int_equal(x->content.batches.start, r / 2);
			assert_int_equal(x->content.batches.end, r / 2 + 1);
			if (op->kind == CPA_OP_SEND || op->kind == CPA_OP_RECV)
				assert_int_equal(op->peer, partner[r]);
		}
	free_world(&w);
}

/* ---- shape of plans ---- */

static void a_batch_group_without_items_has_an_empty_plan(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 4, 2, CPA_VARIANT_RING, 2, 2, 1, false, CPA_ORDER_CONTIGUOUS);
	assert_true(w.rank[0]->nops > 0);
	assert_int_equal(w.rank[2]->nops + w.rank[3]->nops, 0);
	assert_int_equal(w.rank[2]->nbuffers, 0);
	free_world(&w);
}

static void causal_blocks_that_nobody_sees_are_neither_sent_nor_attended(void **unused)
{
	(void)unused;
	struct world w = plan_example(
		1, 8, 1, CPA_VARIANT_RING, 1, 4, 1, true, CPA_ORDER_CONTIGUOUS);
	/* Block 3 is seen by rank 3 alone, block 0 by all; rank 0 attends its own block only. */
	expect_messages(&w, 3, CPA_OP_SEND, "");
	expect_messages(&w, 0, CPA_OP_RECV, "");
	int attends = 0;
	for (int i = 0; i < w.rank[0]->nops; i++)
		attends += w.rank[0]->ops[i].kind == CPA_OP_ATTEND;
	assert_int_equal(attends, 1);
	free_world(&w);
}

static void replicated_keys_never_travel(void **unused)
{
	(void)unused;
	for (uint64_t seed = 0; seed < 200; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		p.Skv += p.Sq == p.Skv;
		replicate_keys(&p);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world w;
		if (make_world(&p, &c, &w, &error) != CPA_OK)
			continue;
		for (int r = 0; r < w.part->W; r++)
			for (int i = 0; i < w.rank[r]->nops; i++) {
				const struct cpa_op *op = &w.rank[r]->ops[i];
				assert_int_not_equal(op->kind, CPA_OP_COLLECTIVE);
				for (int n = 0; op->kind == CPA_OP_SEND && n < op->nreads; n++)
					assert_true(op->reads[n].content.tensor != CPA_TENSOR_K &&
						op->reads[n].content.tensor != CPA_TENSOR_V);
			}
		free_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(e1_ulysses_of_two_exchanges_halves_of_the_heads),
		cmocka_unit_test(e2_ulysses_anything_moves_no_padding),
		cmocka_unit_test(e4_ring_anything_passes_true_lengths),
		cmocka_unit_test(e5_unified_two_by_two),
		cmocka_unit_test(e6_zigzag_causal_balances_two_ranks),
		cmocka_unit_test(e8_batch_groups_exchange_among_themselves_only),
		cmocka_unit_test(a_batch_group_without_items_has_an_empty_plan),
		cmocka_unit_test(causal_blocks_that_nobody_sees_are_neither_sent_nor_attended),
		cmocka_unit_test(replicated_keys_never_travel),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
