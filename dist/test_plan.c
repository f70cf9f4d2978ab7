/*
 * test_plan.c - plans are proved, their counts equal the formulas, and the worked examples of the field
 * come out message by message.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* ---- random problems ---- */

static void every_plan_is_proved(void **unused)
{
	(void)unused;
	int planned = 0;
	for (uint64_t seed = 0; seed < 4000; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world w;
		enum cpa_status s = make_world(&p, &c, &w, &error);
		if (s == CPA_UNSUPPORTED && cpa_variant_info(c.variant)->strict)
			continue;
		assert_int_equal(s, CPA_OK);
		if (check_world(&w, &error) != CPA_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		planned++;
		free_world(&w);
	}
	assert_true(planned > 2000);
}

/* ---- bytes and messages, from the formulas alone ---- */

static bool row_sees(const struct cpa_problem *p, int64_t t, int64_t j)
{
	return !p->rule.causal || j <= t + p->rule.offset;
}

/* Some row of ring rank d sees some key of block j. */
static bool needs(const struct cpa_partition *part, int d, int j)
{
	const struct cpa_spans *q = &part->q_block[d], *k = &part->kv_block[j];
	for (int64_t t = 0; t < cpa_spans_ntokens(q); t++)
		for (int64_t i = 0; i < cpa_spans_ntokens(k); i++)
			if (row_sees(&part->problem, cpa_spans_token(q, t), cpa_spans_token(k, i)))
				return true;
	return false;
}

static int wrap(int r, int R)
{
	return (r % R + R) % R;
}

/* Keys of the blocks that ring rank r passes on, and how many blocks. */
static int64_t passed_on(const struct cpa_partition *part, int r, int *nblocks)
{
	int R = part->config.ring_degree, direction = part->config.direction;
	int64_t keys = 0;
	*nblocks = 0;
	for (int hop = 1; hop < R; hop++) {
		int j = wrap(r - direction * (hop - 1), R);
		bool needed = false;
		for (int further = hop; further < R; further++)
			needed = needed || needs(part, wrap(j + direction * further, R), j);
		if (needed) {
			keys += cpa_spans_ntokens(&part->kv_block[j]);
			(*nblocks)++;
		}
	}
	return keys;
}

static int64_t count(struct cpa_range range)
{
	return range.end - range.start;
}

static void expect_counts(const struct cpa_partition *part, int rank, const struct cpa_counts *counts)
{
	const struct cpa_problem *p = &part->problem;
	const struct cpa_config *c = &part->config;
	struct cpa_coords at = cpa_partition_coords(part, rank);
	int64_t e = (int64_t)cpa_dtype_nbytes(p->dtype), e_lse = p->dtype == CPA_DTYPE_FP64 ? 8 : 4;
	int64_t b = count(cpa_partition_batches(part, at.b)), h = count(cpa_partition_heads(part, at.u));
	int64_t kappa = count(cpa_partition_kv_heads(part, at.u)), w = e * p->Dv + (p->lse ? e_lse : 0);
	int cp = at.r * c->ulysses_degree + at.u;
	int64_t n = cpa_cut_size(&part->q, cp), m = p->kv_replicated ? 0 : cpa_cut_size(&part->kv, cp);
	int64_t N = cpa_spans_ntokens(&part->q_block[at.r]), M = cpa_spans_ntokens(&part->kv_block[at.r]);
	int64_t bytes = 0, messages = 0;
	for (int v = 0; v < c->ulysses_degree; v++) {
		if (v == at.u)
			continue;
		int64_t h_v = count(cpa_partition_heads(part, v));
		int64_t kappa_v = count(cpa_partition_kv_heads(part, v));
		bytes += b * e * (n * p->D * h_v + m * (p->D + p->Dv) * kappa_v);
		messages += b > 0 && (n * h_v > 0 || m * kappa_v > 0);
		messages += b * h * cpa_cut_size(&part->q, at.r * c->ulysses_degree + v) > 0;
	}
	bytes += c->ulysses_degree > 1 ? b * h * (N - n) * w : 0;
	if (c->ring_degree > 1 && !p->kv_replicated && kappa > 0 && b > 0) {
		int nblocks;
		int64_t keys = passed_on(part, at.r, &nblocks);
		if (c->rotate == CPA_ROTATE_ALLGATHER) {
			bytes += b * e * kappa * (p->D + p->Dv) * M * (c->ring_degree - 1);
			messages += M > 0;
		} else {
			bytes += b * e * kappa * (p->D + p->Dv) * keys;
			messages += nblocks;
		}
	}
	assert_int_equal(counts->bytes_sent, bytes);
	assert_int_equal(counts->messages, messages);
	int64_t work = 0;
	for (int64_t i = 0; i < N; i++)
		for (int64_t j = 0; j < p->Skv; j++)
			work += row_sees(p, cpa_spans_token(&part->q_block[at.r], i), j);
	assert_int_equal(counts->work, work * h * b);
	assert_true(counts->attended >= counts->work);
}

static void bytes_messages_and_work_equal_the_formulas(void **unused)
{
	(void)unused;
	int planned = 0;
	for (uint64_t seed = 10000; seed < 11500; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world w;
		if (make_world(&p, &c, &w, &error) != CPA_OK)
			continue;
		for (int r = 0; r < w.part->W; r++) {
			struct cpa_counts counts;
			cpa_schedule_count(w.rank[r], &p, &counts);
			expect_counts(w.part, r, &counts);
			int64_t peak = 0;
			for (int i = 0; i < w.rank[r]->nbuffers; i++)
				peak += cpa_buffer_nbytes(&w.rank[r]->buffers[i]);
			assert_int_equal(counts.peak_bytes, peak);
		}
		planned++;
		free_world(&w);
	}
	assert_true(planned > 700);
}

/* FLUX, 4608 tokens, 24 heads of 128, bf16, 4 ranks: T = 7,077,888 bytes; PERFORMANCE's closed forms
 * 4T(P-1)/P, 2T(P-1) and 4T(u-1)/u + 2T(r-1). */
static void even_cases_equal_the_closed_forms(void **unused)
{
	(void)unused;
	struct cpa_problem p = {.B = 1, .Sq = 4608, .Skv = 4608, .Hq = 24, .Hkv = 24, .D = 128, .Dv = 128,
		.dtype = CPA_DTYPE_BF16, .scale = 1};
	const int64_t T = 4608 / 4 * 24 * 128 * 2;
	struct {
		enum cpa_variant variant;
		int R, U;
		int64_t bytes;
	} cases[] = {
		{CPA_VARIANT_ULYSSES, 1, 4, 4 * T * 3 / 4},
		{CPA_VARIANT_RING, 4, 1, 2 * T * 3},
		{CPA_VARIANT_UNIFIED, 2, 2, 4 * T / 2 + 2 * T},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int rotate = 0; rotate < 2; rotate++) {
			struct cpa_config c = cpa_config_default(cases[i].variant, &p);
			c.ring_degree = cases[i].R;
			c.ulysses_degree = cases[i].U;
			c.rotate = (enum cpa_rotate)rotate;
			struct cpa_error error;
			struct world w;
			assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
			for (int r = 0; r < 4; r++) {
				struct cpa_counts counts;
				cpa_schedule_count(w.rank[r], &p, &counts);
				assert_int_equal(counts.bytes_sent, cases[i].bytes);
			}
			free_world(&w);
		}
}

/* ---- worked examples, message by message ---- */

/* "1: q 0-1 h2-3, k 0-1 h2-3; ..." of every SEND (or RECV) of a rank, in order. */
static void print_messages(const struct cpa_schedule *s, enum cpa_op_kind kind, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind != kind)
			continue;
		const struct cpa_operand *boxes = kind == CPA_OP_SEND ? op->reads : op->writes;
		used += (size_t)snprintf(text + used, size - used, "%s%d:", used ? "; " : "", op->peer);
		for (int b = 0; b < op->nreads + op->nwrites; b++) {
			char tokens[64];
			cpa_spans_print(&boxes[b].content.tokens, tokens, sizeof tokens);
			used += (size_t)snprintf(text + used, size - used, "%s %s %s h%lld-%lld", b ? "," : "",
				cpa_tensor_name(boxes[b].content.tensor), tokens,
				(long long)boxes[b].content.heads.start,
				(long long)boxes[b].content.heads.end - 1);
		}
	}
}

static void expect_messages(const struct world *w, int rank, enum cpa_op_kind kind, const char *expected)
{
	char text[2048];
	print_messages(w->rank[rank], kind, text, sizeof text);
	assert_string_equal(text, expected);
}

static struct world plan_example(int64_t B, int64_t S, int64_t H, enum cpa_variant variant, int N, int R,
	int U, bool causal, enum cpa_order order)
{
	struct cpa_problem p = {.B = B, .Sq = S, .Skv = S, .Hq = H, .Hkv = H, .D = 2, .Dv = 2,
		.dtype = CPA_DTYPE_FP32, .scale = 1, .rule = {causal, 0}};
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
	struct world w = plan_example(1, 4, 4, CPA_VARIANT_ULYSSES, 1, 1, 2, false, CPA_ORDER_CONTIGUOUS);
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: q 0-1 h2-3, k 0-1 h2-3, v 0-1 h2-3; 1: o 2-3 h0-1");
	expect_messages(&w, 0, CPA_OP_RECV,
		"1: q 2-3 h0-1, k 2-3 h0-1, v 2-3 h0-1; 1: o 0-1 h2-3");
	expect_messages(&w, 1, CPA_OP_SEND,
		"0: q 2-3 h0-1, k 2-3 h0-1, v 2-3 h0-1; 0: o 0-1 h2-3");
	free_world(&w);
}

/* The padded peer gives every rank 2 heads and rank 3 one head and a pad. Here nothing is padded: heads
 * are 2 2 2 1 and rank 3 gets and returns head 6 alone. */
static void e2_ulysses_anything_moves_no_padding(void **unused)
{
	(void)unused;
	struct world w = plan_example(1, 9, 7, CPA_VARIANT_ULYSSES_ANYTHING, 1, 1, 4, false,
		CPA_ORDER_CONTIGUOUS);
	const int64_t n[] = {3, 2, 2, 2}, heads[] = {0, 2, 4, 6, 7};
	for (int r = 0; r < 4; r++) {
		assert_int_equal(cpa_cut_size(&w.part->q, r), n[r]);
		assert_int_equal(w.part->heads[r + 1], heads[r + 1]);
	}
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: q 0-2 h2-3, k 0-2 h2-3, v 0-2 h2-3; 2: q 0-2 h4-5, k 0-2 h4-5, v 0-2 h4-5; "
		"3: q 0-2 h6-6, k 0-2 h6-6, v 0-2 h6-6; 1: o 3-4 h0-1; 2: o 5-6 h0-1; 3: o 7-8 h0-1");
	expect_messages(&w, 3, CPA_OP_SEND,
		"0: q 7-8 h0-1, k 7-8 h0-1, v 7-8 h0-1; 1: q 7-8 h2-3, k 7-8 h2-3, v 7-8 h2-3; "
		"2: q 7-8 h4-5, k 7-8 h4-5, v 7-8 h4-5; 0: o 0-2 h6-6; 1: o 3-4 h6-6; 2: o 5-6 h6-6");
	free_world(&w);
	/* Refused by the padded peer (pad 2 is not below 2 local heads); possible here: 2 2 1 1. */
	w = plan_example(1, 9, 6, CPA_VARIANT_ULYSSES_ANYTHING, 1, 1, 4, false, CPA_ORDER_CONTIGUOUS);
	const int64_t six[] = {0, 2, 4, 5, 6};
	for (int u = 0; u < 4; u++)
		assert_int_equal(w.part->heads[u + 1], six[u + 1]);
	free_world(&w);
}

/* The peer pads every chunk to 3 rows and gathers 12; here the 9 rows travel. Its rank 1 visits chunks
 * 1 2 3 0 (direction down); lengths 2 2 2 3. */
static void e4_ring_anything_passes_true_lengths(void **unused)
{
	(void)unused;
	struct world w = plan_example(1, 9, 1, CPA_VARIANT_RING_ANYTHING, 1, 4, 1, false,
		CPA_ORDER_CONTIGUOUS);
	expect_messages(&w, 0, CPA_OP_SEND,
		"1: k 0-2 h0-0, v 0-2 h0-0; 1: k 7-8 h0-0, v 7-8 h0-0; 1: k 5-6 h0-0, v 5-6 h0-0");
	expect_messages(&w, 1, CPA_OP_RECV,
		"0: k 0-2 h0-0, v 0-2 h0-0; 0: k 7-8 h0-0, v 7-8 h0-0; 0: k 5-6 h0-0, v 5-6 h0-0");
	free_world(&w);
	struct cpa_problem p = {.B = 1, .Sq = 9, .Skv = 9, .Hq = 1, .Hkv = 1, .D = 2, .Dv = 2, .scale = 1};
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
	struct world w = plan_example(1, 8, 4, CPA_VARIANT_UNIFIED, 1, 2, 2, false, CPA_ORDER_CONTIGUOUS);
	expect_messages(&w, 0, CPA_OP_SEND, "1: q 0-1 h2-3, k 0-1 h2-3, v 0-1 h2-3; "
		"2: k 0-3 h0-1, v 0-3 h0-1; 1: o 2-3 h0-1");
	expect_messages(&w, 3, CPA_OP_SEND, "2: q 6-7 h0-1, k 6-7 h0-1, v 6-7 h0-1; "
		"1: k 4-7 h2-3, v 4-7 h2-3; 2: o 4-5 h2-3");
	free_world(&w);
}

/* Rank 0 {0 1 6 7}, rank 1 {2 3 4 5}; after the diagonal block rank 0's late queries {6 7} see all of the
 * other's keys, rank 1's queries see {0 1}: 8 scores each. */
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
	struct world w = plan_example(2, 4, 2, CPA_VARIANT_ULYSSES, 2, 1, 2, false, CPA_ORDER_CONTIGUOUS);
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
	struct world w = plan_example(1, 4, 2, CPA_VARIANT_RING, 2, 2, 1, false, CPA_ORDER_CONTIGUOUS);
	assert_true(w.rank[0]->nops > 0);
	assert_int_equal(w.rank[2]->nops + w.rank[3]->nops, 0);
	assert_int_equal(w.rank[2]->nbuffers, 0);
	free_world(&w);
}

static void causal_blocks_that_nobody_sees_are_neither_sent_nor_attended(void **unused)
{
	(void)unused;
	struct world w = plan_example(1, 8, 1, CPA_VARIANT_RING, 1, 4, 1, true, CPA_ORDER_CONTIGUOUS);
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
		p.kv_replicated = true;
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
		cmocka_unit_test(every_plan_is_proved),
		cmocka_unit_test(bytes_messages_and_work_equal_the_formulas),
		cmocka_unit_test(even_cases_equal_the_closed_forms),
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
