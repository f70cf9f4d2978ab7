/*
 * test_examples.c - two worked examples, message by message: a key mask under uneven splits,
 * and joint text in front of an image.  In both a plan that lays keys out by rank, or with
 * pads, reads the mask at the wrong place; here every box names its tokens by global ids, in
 * model order.
 */
#include "dist/test_cases.h"

/* Tokens as a list that ends with -1. */
enum { MOST = 16 };
struct tokens {
	int at[MOST];
};

static void expect_tokens(const struct cpa_spans *got, const struct tokens *want)
{
	int64_t n = 0;
	while (want->at[n] >= 0)
		n++;
	assert_int_equal(cpa_spans_ntokens(got), n);
	for (int64_t i = 0; i < n; i++)
		assert_int_equal(cpa_spans_token(got, i), want->at[i]);
}

static const struct cpa_op *find_op(const struct cpa_schedule *s, enum cpa_op_kind kind,
	int peer, int hop, enum cpa_tensor first)
{
	const struct cpa_op *found = NULL;
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		const struct cpa_operand *x = kind == CPA_OP_RECV ? op->writes : op->reads;
		if (op->kind != kind || (peer >= 0 && op->peer != peer) || op->hop != hop ||
			x[0].content.tensor != first)
			continue;
		assert_null(found); /* one message carries all of it */
		found = op;
	}
	assert_non_null(found);
	return found;
}

static int count_ops(const struct cpa_schedule *s, enum cpa_op_kind kind)
{
	int n = 0;
	for (int i = 0; i < s->nops; i++)
		n += s->ops[i].kind == kind;
	return n;
}

/* A message of these tensors, each with these tokens and one head, and no pad in its boxes. */
static void expect_message(const struct cpa_schedule *s, enum cpa_op_kind kind, int peer,
	int hop, const char *tensors, const struct tokens *tokens, struct cpa_range heads)
{
	static const char names[] = "qkvol";
	enum cpa_tensor first = (enum cpa_tensor)(strchr(names, tensors[0]) - names);
	const struct cpa_op *op = find_op(s, kind, peer, hop, first);
	const struct cpa_operand *x = kind == CPA_OP_RECV ? op->writes : op->reads;
	int n = kind == CPA_OP_RECV ? op->nwrites : op->nreads;
	assert_int_equal(n, strlen(tensors));
	for (int i = 0; i < n; i++) {
		assert_int_equal(x[i].content.tensor, strchr(names, tensors[i]) - names);
		expect_tokens(&x[i].content.tokens, tokens);
		assert_int_equal(x[i].box.ntokens, cpa_spans_ntokens(&x[i].content.tokens));
		assert_int_equal(x[i].content.heads.start, heads.start);
		assert_int_equal(x[i].content.heads.end, heads.end);
	}
}

/* What a rank attends at a hop: keys and queries in these orders. */
static void expect_attend(const struct cpa_schedule *s, int hop, const struct tokens *queries,
	const struct tokens *keys)
{
	const struct cpa_op *op = find_op(s, CPA_OP_ATTEND, -1, hop, CPA_TENSOR_Q);
	expect_tokens(&op->reads[0].content.tokens, queries);
	for (int i = 1; i < 3; i++) {
		expect_tokens(&op->reads[i].content.tokens, keys);
		assert_int_equal(op->reads[i].box.ntokens,
			cpa_spans_ntokens(&op->reads[i].content.tokens));
	}
}

static struct world plan(const struct cpa_problem *p, enum cpa_variant variant, int P)
{
	struct cpa_config c = cpa_config_default(variant, p);
	struct cpa_error error;
	struct world w;
	if (cpa_variant_info(variant)->ring)
		c.ring_degree = P;
	else
		c.ulysses_degree = P;
	assert_int_equal(make_world(p, &c, &w, &error), CPA_OK);
	if (check_world(&w, &error) != CPA_OK)
		fail_msg("%s", w.fault.text);
	return w;
}

/* ---- a key mask, 13 tokens on 3 ranks: 5, 4, 4 ---- */

static const struct tokens thirds[3] = {
	{{0, 1, 2, 3, 4, -1}}, {{5, 6, 7, 8, -1}}, {{9, 10, 11, 12, -1}}};
static const struct tokens thirteen = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, -1}};
/* Gathered with a pad behind each short shard and cut at 13, the flags of 9 to 12 would be
 * those of a pad and of 9 to 11.  A mask is read by the ids of its keys, so it is enough that
 * these stay. */
static const uint8_t key_flags[13] = {1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0};

static struct cpa_problem masked(void)
{
	return (struct cpa_problem){.B = 1,
		.Sq = 13,
		.Skv = 13,
		.Hq = 3,
		.Hkv = 3,
		.D = 4,
		.Dv = 4,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5,
		.rule.mask = {.kind = CPA_MASK_BOOL, .data = key_flags, .key = 1}};
}

/* Short shards are not padded to 5: nothing has room for 3 x 5. */
static void expect_no_pads(const struct cpa_schedule *s)
{
	for (int i = 0; i < s->nbuffers; i++)
		assert_in_range(s->buffers[i].ntokens, 1, 13);
}

static void a_key_mask_is_not_shifted_by_short_shards_under_ulysses(void **unused)
{
	(void)unused;
	struct cpa_problem p = masked();
	struct world w = plan(&p, CPA_VARIANT_ULYSSES_ANYTHING, 3);
	for (int r = 0; r < 3; r++) {
		struct cpa_range own = {r, r + 1};
		assert_int_equal(count_ops(w.rank[r], CPA_OP_SEND), 4);
		assert_int_equal(count_ops(w.rank[r], CPA_OP_RECV), 4);
		for (int v = 0; v < 3; v++) {
			struct cpa_range theirs = {v, v + 1};
			if (v == r)
				continue;
			expect_message(
				w.rank[r], CPA_OP_SEND, v, -1, "qkv", &thirds[r], theirs);
			expect_message(w.rank[r], CPA_OP_RECV, v, -1, "qkv", &thirds[v], own);
			expect_message(w.rank[r], CPA_OP_SEND, v, -1, "o", &thirds[v], own);
			expect_message(w.rank[r], CPA_OP_RECV, v, -1, "o", &thirds[r], theirs);
		}
		expect_attend(w.rank[r], 0, &thirteen, &thirteen);
		expect_no_pads(w.rank[r]);
	}
	free_world(&w);
}

static void a_key_mask_is_not_shifted_by_short_shards_in_a_ring(void **unused)
{
	(void)unused;
	struct cpa_problem p = masked();
	struct world w = plan(&p, CPA_VARIANT_RING_ANYTHING, 3);
	for (int r = 0; r < 3; r++) {
		struct cpa_range all = {0, 3};
		assert_int_equal(count_ops(w.rank[r], CPA_OP_SEND), 2);
		for (int hop = 1; hop < 3;
			hop++) { /* block r-hop comes from r-1; what came before goes on */
			const struct tokens *comes = &thirds[(r - hop + 3) % 3],
					    *goes = &thirds[(r - hop + 4) % 3];
			expect_message(
				w.rank[r], CPA_OP_SEND, (r + 1) % 3, hop, "kv", goes, all);
			expect_message(
				w.rank[r], CPA_OP_RECV, (r + 2) % 3, hop, "kv", comes, all);
			expect_attend(w.rank[r], hop, &thirds[r], comes);
		}
		expect_attend(w.rank[r], 0, &thirds[r], &thirds[r]);
		expect_no_pads(w.rank[r]);
	}
	free_world(&w);
}

/* ---- joint text first: text a b c, image 0 to 4, on 2 ranks ---- */

/* In model order a b c are 0 1 2 and the image is 3 to 7; rank 0 holds [a b 0 1 2], rank 1 [c 3
 * 4]. */
static const struct tokens joint[2] = {{{0, 1, 3, 4, 5, -1}}, {{2, 6, 7, -1}}};
static const struct tokens model_order = {{0, 1, 2, 3, 4, 5, 6, 7, -1}};
static const struct cpa_segment text_first[2] = {
	{.name = "text", .length = 3}, {.name = "image", .length = 5}};
static const uint8_t joint_flags[8] = {1, 0, 1, 1, 1, 1, 0, 1};

static struct cpa_problem joined(void)
{
	return (struct cpa_problem){.B = 1,
		.Sq = 8,
		.Skv = 8,
		.Hq = 2,
		.Hkv = 2,
		.D = 4,
		.Dv = 4,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5,
		.segments = text_first,
		.nsegments = 2,
		.rule.mask = {.kind = CPA_MASK_BOOL, .data = joint_flags, .key = 1}};
}

static void expect_joint_shards(const struct world *w, bool ring)
{
	struct cpa_arena arena;
	cpa_arena_init(&arena);
	for (int r = 0; r < 2; r++) {
		struct cpa_spans q =
			cpa_partition_q_shard(w->part, &arena, ring ? r : 0, ring ? 0 : r);
		struct cpa_spans kv =
			cpa_partition_kv_shard(w->part, &arena, ring ? r : 0, ring ? 0 : r);
		expect_tokens(&q, &joint[r]);
		expect_tokens(&kv, &joint[r]);
	}
	cpa_arena_fini(&arena);
}

/* Joined by rank the keys would stand as a b 0 1 2 c 3 4, and the mask would have to follow;
 * here the exchange puts them back in model order, and the mask stays as it is. */
static void joint_text_is_in_model_order_after_the_exchange(void **unused)
{
	(void)unused;
	struct cpa_problem p = joined();
	struct world w = plan(&p, CPA_VARIANT_ULYSSES_ANYTHING, 2);
	expect_joint_shards(&w, false);
	for (int r = 0; r < 2; r++) {
		struct cpa_range own = {r, r + 1}, theirs = {1 - r, 2 - r};
		assert_int_equal(count_ops(w.rank[r], CPA_OP_SEND), 2);
		expect_message(w.rank[r], CPA_OP_SEND, 1 - r, -1, "qkv", &joint[r], theirs);
		expect_message(w.rank[r], CPA_OP_RECV, 1 - r, -1, "qkv", &joint[1 - r], own);
		expect_message(w.rank[r], CPA_OP_SEND, 1 - r, -1, "o", &joint[1 - r], own);
		expect_message(w.rank[r], CPA_OP_RECV, 1 - r, -1, "o", &joint[r], theirs);
		expect_attend(w.rank[r], 0, &model_order, &model_order);
	}
	free_world(&w);
}

/* One ATTEND for each run of queries, and the keys of a block keep their ids. */
static void joint_text_keeps_its_ids_in_a_ring(void **unused)
{
	(void)unused;
	struct cpa_problem p = joined();
	struct world w = plan(&p, CPA_VARIANT_RING_ANYTHING, 2);
	expect_joint_shards(&w, true);
	for (int r = 0; r < 2; r++) {
		struct cpa_range all = {0, 2};
		assert_int_equal(count_ops(w.rank[r], CPA_OP_SEND), 1);
		expect_message(w.rank[r], CPA_OP_SEND, 1 - r, 1, "kv", &joint[r], all);
		expect_message(w.rank[r], CPA_OP_RECV, 1 - r, 1, "kv", &joint[1 - r], all);
		expect_attend(w.rank[r], 0, &joint[r], &joint[r]);
		expect_attend(w.rank[r], 1, &joint[r], &joint[1 - r]);
	}
	free_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_key_mask_is_not_shifted_by_short_shards_under_ulysses),
		cmocka_unit_test(a_key_mask_is_not_shifted_by_short_shards_in_a_ring),
		cmocka_unit_test(joint_text_is_in_model_order_after_the_exchange),
		cmocka_unit_test(joint_text_keeps_its_ids_in_a_ring),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
