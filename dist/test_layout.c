/*
 * test_layout.c - the caller's layout: it changes what must be packed before it is sent, and
 * nothing else; fused is refused where it cannot be; the checker knows where things lie.
 */
#include "dist/test_cases.h"

#include <stdio.h>

static const enum cpa_layout others[] = {CPA_LAYOUT_BHSD, CPA_LAYOUT_FUSED};

/* ---- plans ---- */

/* A problem that each layout can hold, when `self`. */
static struct cpa_problem any_problem(uint64_t *state, bool self)
{
	struct cpa_problem p = random_problem(state);
	if (self) {
		p.Skv = p.Sq;
		p.Dv = p.D;
		p.segments_kv = NULL;
		p.nsegments_kv = 0;
	}
	if (below(state, 2))
		random_rule(state, &p);
	if (below(state, 3) == 0)
		random_segments(state, &p);
	return p;
}

static int count_kind(const struct cpa_schedule *s, enum cpa_op_kind kind)
{
	int n = 0;
	for (int i = 0; i < s->nops; i++)
		n += s->ops[i].kind == kind;
	return n;
}

/* Of inputs and outputs, or of the rest. */
static int64_t sum_nbytes(const struct cpa_schedule *s, bool work)
{
	int64_t sum = 0;
	for (int i = 0; i < s->nbuffers; i++)
		if ((s->buffers[i].role == CPA_ROLE_WORK) == work)
			sum += cpa_buffer_nbytes(&s->buffers[i]);
	return sum;
}

/* Packed is only what the wire could not have taken from where it lay. */
static void expect_no_needless_packing(const struct cpa_schedule *s)
{
	for (int i = 0; i < s->nops; i++) {
		const struct cpa_op *op = &s->ops[i];
		if (op->kind != CPA_OP_COPY || op->nreads == 0)
			continue;
		const struct cpa_box *from = &op->reads[0].box;
		const char *to = s->buffers[op->writes[0].box.buffer].name;
		if (s->buffers[from->buffer].role == CPA_ROLE_INPUT &&
			(strstr(to, " wire") || strstr(to, " to ")))
			assert_false(cpa_box_is_run(&s->buffers[from->buffer], from));
	}
}

/* What is sent and computed does not depend on the layout; memory grows by what is packed. */
static void compare_ranks(const struct cpa_problem *p, const struct cpa_schedule *dense,
	const struct cpa_schedule *other)
{
	struct cpa_counts a, b;
	cpa_schedule_count(dense, p, &a);
	cpa_schedule_count(other, p, &b);
	assert_int_equal(a.bytes_sent, b.bytes_sent);
	assert_int_equal(a.messages, b.messages);
	assert_int_equal(a.work, b.work);
	assert_int_equal(a.attended, b.attended);
	assert_int_equal(a.mask_bytes, b.mask_bytes);
	assert_int_equal(sum_nbytes(dense, false), sum_nbytes(other, false));
	assert_int_equal(b.peak_bytes, sum_nbytes(other, false) + sum_nbytes(other, true));
	assert_int_equal(
		b.peak_bytes - a.peak_bytes, sum_nbytes(other, true) - sum_nbytes(dense, true));
	for (int kind = CPA_OP_SEND; kind <= CPA_OP_MERGE; kind++)
		assert_int_equal(count_kind(dense, (enum cpa_op_kind)kind),
			count_kind(other, (enum cpa_op_kind)kind));
	expect_no_needless_packing(other);
	for (int i = 0; i < other->nbuffers; i++)
		assert_true(other->buffers[i].role != CPA_ROLE_WORK ||
			other->buffers[i].layout == CPA_LAYOUT_SBHD);
}

static void every_layout_is_proved_and_moves_the_same_bytes(void **unused)
{
	(void)unused;
	int planned[2] = {0}, packed = 0;
	for (uint64_t seed = 0; seed < 3000; seed++) {
		uint64_t state = seed;
		int which = below(&state, 2);
		struct cpa_problem p = any_problem(&state, which == 1);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world dense, other;
		if (which == 1 && (p.Sq != p.Skv || p.D != p.Dv))
			continue;
		if (make_world(&p, &c, &dense, &error) != CPA_OK)
			continue;
		p.layout = others[which];
		if (make_world(&p, &c, &other, &error) != CPA_OK ||
			check_world(&other, &error) != CPA_OK)
			fail_msg("seed %llu, layout %s: %s", (unsigned long long)seed,
				cpa_layout_name(p.layout), error.text);
		for (int r = 0; r < other.part->W; r++) {
			compare_ranks(&p, dense.rank[r], other.rank[r]);
			packed += sum_nbytes(other.rank[r], true) >
				sum_nbytes(dense.rank[r], true);
		}
		planned[which]++;
		free_world(&dense);
		free_world(&other);
	}
	assert_true(planned[0] > 500 && planned[1] > 500 && packed > 500);
}

/* One batch item in BSHD goes out from where it lies; other layouts pack k and v once each. */
static void a_ring_packs_its_keys_once(void **unused)
{
	(void)unused;
	for (int layout = CPA_LAYOUT_BSHD; layout <= CPA_LAYOUT_FUSED; layout++)
		for (int rotate = 0; rotate < 3; rotate++) {
			struct cpa_problem p = {.B = 1,
				.Sq = 12,
				.Skv = 12,
				.Hq = 4,
				.Hkv = 2,
				.D = 8,
				.Dv = 8,
				.dtype = CPA_DTYPE_FP32,
				.scale = 1,
				.layout = (enum cpa_layout)layout};
			struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
			struct cpa_error error;
			struct world w;
			int packed = 0;
			if (layout == CPA_LAYOUT_SBHD)
				continue;
			c.ring_degree = 3;
			c.rotate = (enum cpa_rotate)rotate;
			assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
			for (int i = 0; i < w.rank[1]->nbuffers; i++)
				packed += strstr(w.rank[1]->buffers[i].name, " wire") != NULL;
			assert_int_equal(packed, layout == CPA_LAYOUT_BSHD ? 0 : 2);
			free_world(&w);
		}
}

static void fused_inputs_are_one_buffer(void **unused)
{
	(void)unused;
	struct cpa_problem p = {.B = 2,
		.Sq = 12,
		.Skv = 12,
		.Hq = 6,
		.Hkv = 3,
		.D = 8,
		.Dv = 8,
		.dtype = CPA_DTYPE_BF16,
		.scale = 1,
		.lse = true,
		.layout = CPA_LAYOUT_FUSED};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED, &p);
	struct cpa_error error;
	struct world w;
	static const int64_t heads[3][2] = {{0, 6}, {6, 3}, {9, 3}};
	c.ring_degree = 2;
	c.ulysses_degree = 3;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	for (int r = 0; r < w.part->W; r++) {
		const struct cpa_schedule *s = w.rank[r];
		int ninputs = 0;
		struct cpa_box box;
		for (int i = 0; i < s->nbuffers; i++)
			if (s->buffers[i].role == CPA_ROLE_INPUT) {
				ninputs++;
				assert_int_equal(
					cpa_buffer_nbytes(&s->buffers[i]), 2 * 2 * 12 * 8 * 2);
			}
		assert_int_equal(ninputs, 1);
		for (int t = 0; t < 3; t++) {
			assert_true(
				cpa_schedule_find(s, CPA_ROLE_INPUT, (enum cpa_tensor)t, &box));
			assert_int_equal(box.head, heads[t][0]);
			assert_int_equal(box.nheads, heads[t][1]);
			assert_int_equal(box.ntokens, 2);
		}
		assert_true(cpa_schedule_find(s, CPA_ROLE_OUTPUT, CPA_TENSOR_O, &box));
		assert_int_equal(s->buffers[box.buffer].layout, CPA_LAYOUT_BSHD);
		assert_false(cpa_schedule_find(s, CPA_ROLE_INPUT, CPA_TENSOR_O, &box));
	}
	free_world(&w);
}

/* ---- refusals ---- */

static void expect_refusal(
	const struct cpa_problem *p, const struct cpa_config *c, const char *words)
{
	struct cpa_error error;
	struct cpa_partition *part;
	assert_int_equal(cpa_partition_create(p, c, &part, &error), CPA_UNSUPPORTED);
	if (!strstr(error.text, words) || !strstr(error.text, "BSHD"))
		fail_msg("expected '%s': %s", words, error.text);
}

static void fused_is_refused_where_one_array_cannot_be(void **unused)
{
	(void)unused;
	static const struct cpa_segment text[2] = {{"a", 5, true}, {"b", 7, false}};
	static const int64_t sizes[3] = {5, 4, 3}, sizes_kv[3] = {5, 3, 4};
	for (int v = 0; v < CPA_NVARIANTS; v++) {
		struct cpa_problem p = {.B = 1,
			.Sq = 12,
			.Skv = 12,
			.Hq = 3,
			.Hkv = 3,
			.D = 8,
			.Dv = 8,
			.dtype = CPA_DTYPE_FP32,
			.scale = 1,
			.layout = CPA_LAYOUT_FUSED};
		struct cpa_config c = cpa_config_default((enum cpa_variant)v, &p);
		struct cpa_problem odd = p;
		struct cpa_partition *part;
		struct cpa_error error;
		bool strict = cpa_variant_info(c.variant)->strict;
		c.ring_degree = cpa_variant_info(c.variant)->ring ? 3 : 1;
		c.ulysses_degree = c.ring_degree == 1 ? 3 : 1;
		odd.Skv = 24;
		expect_refusal(&odd, &c, "Sq and Skv are 12 and 24");
		odd = p;
		odd.Dv = 4;
		expect_refusal(&odd, &c, "D and Dv are 8 and 4");
		if (!strict) {
			struct cpa_config d = c;
			d.split = d.split_kv = CPA_SPLIT_GIVEN;
			d.sizes = sizes;
			d.sizes_kv = sizes_kv;
			d.nsizes = d.nsizes_kv = 3;
			expect_refusal(
				&p, &d, "rank 1 of a group would hold queries 5-8 and keys 5-7");
			d.sizes_kv = sizes;
			assert_int_equal(cpa_partition_create(&p, &d, &part, &error), CPA_OK);
			cpa_partition_destroy(part);
			odd = p;
			odd.segments = text;
			odd.nsegments = 2;
			assert_int_equal(cpa_partition_create(&odd, &c, &part, &error), CPA_OK);
			cpa_partition_destroy(part);
		}
		assert_int_equal(cpa_partition_create(&p, &c, &part, &error), CPA_OK);
		cpa_partition_destroy(part);
	}
}

/* Both are 5 5 5 5 4 for 24 tokens on 5 ranks: what counts is which tokens, not which rule. */
static void splits_that_give_the_same_shards_are_one_split(void **unused)
{
	(void)unused;
	struct cpa_problem p = {.B = 1,
		.Sq = 24,
		.Skv = 24,
		.Hq = 3,
		.Hkv = 3,
		.D = 8,
		.Dv = 8,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1,
		.layout = CPA_LAYOUT_FUSED};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &p);
	struct cpa_partition *part;
	struct cpa_error error;
	c.ring_degree = 5;
	c.split = CPA_SPLIT_BALANCED;
	c.split_kv = CPA_SPLIT_CEIL;
	assert_int_equal(cpa_partition_create(&p, &c, &part, &error), CPA_OK);
	cpa_partition_destroy(part);
	p.Sq = p.Skv = 21;
	expect_refusal(&p, &c, "one split of both would work");
}

/* ---- the checker ---- */

enum lie { BUFFER_LAYOUT, OUTPUT_LAYOUT, HEADS_OF_Q, KEYS_FROM_Q, SENT_FROM_THE_INPUT, NLIES };

static int find_op(const struct cpa_schedule *s, enum cpa_op_kind kind)
{
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].kind == kind)
			return i;
	fail_msg("no %s", cpa_op_name(kind));
	return -1;
}

/* False: this layout has no such lie. */
static bool tell(struct cpa_schedule *s, enum cpa_layout layout, enum lie lie)
{
	struct cpa_box k, o;
	assert_true(cpa_schedule_find(s, CPA_ROLE_INPUT, CPA_TENSOR_K, &k));
	assert_true(cpa_schedule_find(s, CPA_ROLE_OUTPUT, CPA_TENSOR_O, &o));
	switch (lie) {
	case BUFFER_LAYOUT:
		s->buffers[k.buffer].layout = CPA_LAYOUT_SBHD;
		return true;
	case OUTPUT_LAYOUT:
		s->buffers[o.buffer].layout = layout == CPA_LAYOUT_BHSD ? CPA_LAYOUT_BSHD
									: CPA_LAYOUT_BHSD;
		return true;
	case HEADS_OF_Q:
		s->buffers[k.buffer].nheads_q--;
		return layout == CPA_LAYOUT_FUSED;
	case KEYS_FROM_Q:
		s->ops[find_op(s, CPA_OP_COPY)].reads[0].box.head = 0;
		return layout == CPA_LAYOUT_FUSED;
	default:
		s->ops[find_op(s, CPA_OP_SEND)].reads[0].box = k;
		return true;
	}
}

static void the_checker_knows_where_inputs_and_outputs_lie(void **unused)
{
	(void)unused;
	static const char *const says[NLIES] = {"the caller's layout is",
		"the caller's layout is", "heads of q, k and v one behind the other",
		"they hold q", "is not one run of memory"};
	for (int l = 0; l < 2; l++)
		for (int lie = 0; lie < NLIES; lie++) {
			struct cpa_problem p = {.B = 1,
				.Sq = 12,
				.Skv = 12,
				.Hq = 2,
				.Hkv = 2,
				.D = 8,
				.Dv = 8,
				.dtype = CPA_DTYPE_FP32,
				.scale = 1,
				.lse = true,
				.layout = others[l]};
			struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
			struct cpa_error error;
			struct world w;
			c.ring_degree = 3;
			assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
			assert_int_equal(check_world(&w, &error), CPA_OK);
			if (tell(w.rank[1], p.layout, (enum lie)lie)) {
				assert_int_equal(check_world(&w, &error), CPA_MISMATCH);
				assert_int_equal(w.fault.rule, CPA_RULE_DATA);
				if (!strstr(error.text, says[lie]))
					fail_msg("expected '%s': %s", says[lie], error.text);
			}
			free_world(&w);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_layout_is_proved_and_moves_the_same_bytes),
		cmocka_unit_test(a_ring_packs_its_keys_once),
		cmocka_unit_test(fused_inputs_are_one_buffer),
		cmocka_unit_test(fused_is_refused_where_one_array_cannot_be),
		cmocka_unit_test(splits_that_give_the_same_shards_are_one_split),
		cmocka_unit_test(the_checker_knows_where_inputs_and_outputs_lie),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
