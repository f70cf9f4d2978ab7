/*
 * test_sizes_apply.c - what ranks agree on makes the plan that all lengths make, and a rule must
 * give each rank what it told.
 */
#include "dist/test_cases.h"

#include <stdio.h>

enum { MAX_WORLD = 24, MAX_SIZES = CPA_SIZES_MAX_SEGMENTS * MAX_WORLD };

static const struct cpa_problem self = {.Hq = 4,
	.Hkv = 2,
	.D = 8,
	.Dv = 8,
	.B = 3,
	.dtype = CPA_DTYPE_BF16,
	.scale = 0.25,
	.lse = true};

static struct cpa_config mesh(int N, int R, int U)
{
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &self);
	c.batch_degree = N;
	c.ring_degree = R;
	c.ulysses_degree = U;
	return c;
}

struct exchange {
	int64_t records[MAX_WORLD][CPA_SIZES_NWORDS];
	int64_t sizes[MAX_SIZES], sizes_kv[MAX_SIZES];
	struct cpa_error error;
};

static enum cpa_status agree(struct exchange *x, int W)
{
	x->error.text[0] = '\0';
	return cpa_sizes_agree(W, x->records[0], x->sizes, x->sizes_kv, &x->error);
}

/* Segments of random lengths, and the sizes that cut them: zeros among them, other ones for keys.
 * false: queries and keys were meant to differ in number, and do not. */
static bool draw(uint64_t *seed, struct cpa_problem *p, struct cpa_segment (*segments)[3], int P,
	int64_t (*sizes)[MAX_SIZES], int *nsizes)
{
	bool self_attention = below(seed, 2), listed[2] = {below(seed, 4), below(seed, 4)};
	int n[2] = {1 + below(seed, 3), 1 + below(seed, 3)}, replicated[2][3] = {{0}};

	for (int side = 0; side < 2; side++) {
		int from = self_attention ? 0 : side;

		n[side] = listed[from] ? n[from] : 1;
		nsizes[side] = 0;
		for (int i = 0; i < n[side]; i++) {
			struct cpa_segment *at = &segments[side][i];
			int64_t *to = sizes[side] + nsizes[side], sum = 0;

			if (side == 0 || !self_attention)
				replicated[from][i] = listed[from] && below(seed, 3) == 0;
			*at = (struct cpa_segment){
				.replicated = replicated[from][i], .length = 2 + i};
			at->name[0] = (char)('a' + i);
			if (at->replicated)
				continue;
			for (int k = 0; k < P; k++)
				sum += to[k] = below(seed, 4);
			to[0] += sum == 0;
			at->length = sum + (sum == 0);
			if (side == 1 && self_attention) { /* as many, cut in another way */
				at->length = segments[0][i].length;
				for (int k = 0; k < P; k++)
					to[k] = k == i % P ? at->length : 0;
			}
			nsizes[side] += P;
		}
	}
	p->segments = listed[0] ? segments[0] : NULL;
	p->nsegments = listed[0] ? n[0] : 0;
	p->segments_kv = listed[1] && !self_attention ? segments[1] : NULL;
	p->nsegments_kv = p->segments_kv ? n[1] : 0;
	p->Sq = p->Skv = 0;
	for (int i = 0; i < n[0]; i++)
		p->Sq += segments[0][i].length;
	for (int i = 0; i < n[1]; i++)
		p->Skv += segments[1][i].length;
	return self_attention == (p->Sq == p->Skv);
}

/* As a rank knows it: nothing of what is split. */
static struct cpa_problem without_lengths(
	const struct cpa_problem *p, struct cpa_segment (*segments)[3])
{
	struct cpa_problem unknown = *p;

	unknown.Sq = 0;
	unknown.Skv = p->Sq != p->Skv;
	for (int side = 0; side < 2; side++) {
		const struct cpa_segment *from = side ? p->segments_kv : p->segments;

		for (int i = 0; from && i < (side ? p->nsegments_kv : p->nsegments); i++) {
			segments[side][i] = from[i];
			if (!from[i].replicated)
				segments[side][i].length = -77;
		}
	}
	unknown.segments = p->segments ? segments[0] : NULL;
	unknown.segments_kv = p->segments_kv ? segments[1] : NULL;
	return unknown;
}

/* Each rank knows its own lengths only; the plan is that of all lengths given, in both meshes. */
static void what_is_agreed_is_what_each_shard_holds(void **unused)
{
	uint64_t seed = 5;
	int nmany = 0;

	(void)unused;
	for (int n = 0; n < 600; n++) {
		struct cpa_problem p = self, agreed;
		struct cpa_config c = mesh(
			1 + below(&seed, 2), 1 + below(&seed, 4), 1 + below(&seed, 3));
		struct cpa_segment segments[2][3], unknown[2][3];
		static int64_t sizes[2][MAX_SIZES];
		int P = c.ring_degree * c.ulysses_degree, W = P * c.batch_degree, nsizes[2];
		struct cpa_partition *part, *again;
		struct cpa_arena arena;
		struct cpa_error error;
		static struct exchange x;

		if (!draw(&seed, &p, segments, P, sizes, nsizes))
			continue;
		c.mesh = (enum cpa_mesh)below(&seed, 2);
		c.split = nsizes[0] ? CPA_SPLIT_GIVEN : CPA_SPLIT_BALANCED;
		c.split_kv = nsizes[1] ? CPA_SPLIT_GIVEN : CPA_SPLIT_BALANCED;
		c.sizes = nsizes[0] ? sizes[0] : NULL;
		c.sizes_kv = nsizes[1] ? sizes[1] : NULL;
		c.nsizes = nsizes[0];
		c.nsizes_kv = nsizes[1];
		if (cpa_partition_create(&p, &c, &part, &error) != CPA_OK)
			fail_msg("%s", error.text);
		agreed = without_lengths(&p, unknown);
		for (int rank = 0; rank < W; rank++) {
			struct cpa_coords at = cpa_partition_coords(part, rank);
			int64_t own[2][3];

			cpa_partition_sizes(part, false, at.r, at.u, own[0]);
			cpa_partition_sizes(part, true, at.r, at.u, own[1]);
			cpa_sizes_pack(&agreed, &c, own[0], own[1], x.records[rank]);
		}
		if (agree(&x, W) != CPA_OK)
			fail_msg("%s", x.error.text);
		assert_memory_equal(x.sizes, sizes[0], (size_t)nsizes[0] * sizeof **sizes);
		assert_memory_equal(x.sizes_kv, sizes[1], (size_t)nsizes[1] * sizeof **sizes);
		cpa_arena_init(&arena);
		if (cpa_sizes_apply(x.sizes, x.sizes_kv, &arena, &agreed, &c, &error) != CPA_OK ||
			cpa_partition_create(&agreed, &c, &again, &error) != CPA_OK ||
			cpa_partition_check_sizes(again, x.sizes, x.sizes_kv, &error) != CPA_OK)
			fail_msg("%s", error.text);
		assert_true(agreed.Sq == p.Sq && agreed.Skv == p.Skv);
		for (int r = 0; r < c.ring_degree; r++)
			for (int u = 0; u < c.ulysses_degree; u++) {
				struct cpa_spans q[2], k[2];

				q[0] = cpa_partition_q_shard(part, &arena, r, u);
				q[1] = cpa_partition_q_shard(again, &arena, r, u);
				k[0] = cpa_partition_kv_shard(part, &arena, r, u);
				k[1] = cpa_partition_kv_shard(again, &arena, r, u);
				assert_true(cpa_spans_equal(&q[0], &q[1]) &&
					cpa_spans_equal(&k[0], &k[1]));
			}
		nmany += nsizes[0] > P && nsizes[1] > P;
		cpa_arena_fini(&arena);
		cpa_partition_destroy(part);
		cpa_partition_destroy(again);
	}
	assert_true(nmany > 100);
}

/* Orders that have no given sizes: the rule gives each rank what it told, or the ranks say who
 * not. */
static void a_rule_must_give_what_the_ranks_told(void **unused)
{
	static const int64_t documents[] = {0, 5, 5, 12, 26};
	const struct cpa_segment segments[] = {
		{"a", 7, false}, {"b", 3, true}, {"c", 0, false}, {"d", 16, false}};
	struct cpa_problem p = self;

	(void)unused;
	p.segments = segments;
	p.nsegments = 4;
	p.Sq = p.Skv = 26;
	p.rule.documents = documents;
	p.rule.ndocuments = 4;
	for (int order = 0; order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++) {
		struct cpa_config c = mesh(1, 2, 2);
		int64_t sizes[3 * 4], sizes_kv[3 * 4];
		struct cpa_partition *part;
		struct cpa_error error;

		c.order = (enum cpa_order)order;
		assert_int_equal(cpa_partition_create(&p, &c, &part, &error), CPA_OK);
		for (int shard = 0; shard < 4; shard++) {
			int64_t own[3], sum = 0;

			cpa_partition_sizes(part, false, shard / 2, shard % 2, own);
			for (int i = 0; i < 3; i++)
				sum += sizes[4 * i + shard] = sizes_kv[4 * i + shard] = own[i];
			assert_int_equal(sum, nsplit(part, false, shard / 2, shard % 2));
		}
		assert_int_equal(sizes[0] + sizes[1] + sizes[2] + sizes[3], 7);
		assert_int_equal(sizes[8] + sizes[9] + sizes[10] + sizes[11], 16);
		assert_int_equal(
			cpa_partition_check_sizes(part, sizes, sizes_kv, &error), CPA_OK);
		sizes_kv[8 + 3]++;
		assert_int_equal(
			cpa_partition_check_sizes(part, sizes, sizes_kv, &error), CPA_MISMATCH);
		assert_non_null(strstr(error.text, "rank 3 holds "));
		assert_non_null(strstr(error.text,
			"key tokens of split segment 3 of 3, and --split-kv balanced"));
		cpa_partition_destroy(part);
	}
}

static void sums_that_deny_what_all_say_are_a_mismatch(void **unused)
{
	static const int64_t ten[] = {5, 5}, nine[] = {5, 4};
	struct cpa_problem p = self, other;
	struct cpa_config c = mesh(1, 2, 1);
	struct cpa_arena arena;
	struct cpa_error error;

	(void)unused;
	cpa_arena_init(&arena);
	p.Sq = p.Skv = 0;
	other = p;
	assert_int_equal(cpa_sizes_apply(ten, ten, &arena, &other, &c, &error), CPA_OK);
	assert_true(other.Sq == 10 && other.Skv == 10 && !other.segments && c.sizes == NULL);
	other = p;
	assert_int_equal(cpa_sizes_apply(ten, nine, &arena, &other, &c, &error), CPA_MISMATCH);
	assert_non_null(strstr(error.text, "10 query and 9 key tokens of split segment 1 of 1"));
	p.Skv = 1;
	other = p;
	assert_int_equal(cpa_sizes_apply(ten, nine, &arena, &other, &c, &error), CPA_OK);
	assert_true(other.Sq == 10 && other.Skv == 9);
	assert_int_equal(cpa_sizes_apply(ten, ten, &arena, &p, &c, &error), CPA_MISMATCH);
	cpa_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_agreed_is_what_each_shard_holds),
		cmocka_unit_test(a_rule_must_give_what_the_ranks_told),
		cmocka_unit_test(sums_that_deny_what_all_say_are_a_mismatch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
