/*
 * test_partition.c - who holds what, and what is refused: the strict three refuse exactly what
 * they must and say what would work, the anything three refuse nothing.
 */
#include "dist/test_cases.h"

#include <stdio.h>

static struct cpa_problem square(int64_t S, int64_t Hq, int64_t Hkv)
{
	return (struct cpa_problem){.B = 1,
		.Sq = S,
		.Skv = S,
		.Hq = Hq,
		.Hkv = Hkv,
		.D = 2,
		.Dv = 2,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1};
}

static enum cpa_status try_config(
	const struct cpa_problem *p, const struct cpa_config *c, struct cpa_error *error)
{
	struct cpa_partition *part = NULL;
	error->text[0] = '\0';
	enum cpa_status s = cpa_partition_create(p, c, &part, error);
	assert_true((s == CPA_OK) == (part != NULL));
	assert_true((s == CPA_OK) == (error->text[0] == '\0'));
	cpa_partition_destroy(part);
	return s;
}

static struct cpa_config mesh(
	enum cpa_variant variant, const struct cpa_problem *p, int N, int R, int U)
{
	struct cpa_config c = cpa_config_default(variant, p);
	c.batch_degree = N;
	c.ring_degree = R;
	c.ulysses_degree = U;
	return c;
}

/* The rule of strictness, written down once more, over every small case. */
static void strict_variants_refuse_exactly_what_does_not_divide(void **unused)
{
	(void)unused;
	for (int64_t S = 1; S <= 12; S++)
		for (int64_t Skv = 1; Skv <= 12; Skv += S % 3 + 1)
			for (int Hkv = 1; Hkv <= 4; Hkv++)
				for (int R = 1; R <= 4; R++)
					for (int U = 1; U <= 4; U++)
						for (int order = 0; order < 3; order++) {
							struct cpa_problem p = square(
								S, 2 * Hkv, Hkv);
							p.Skv = Skv;
							struct cpa_config c = mesh(
								CPA_VARIANT_UNIFIED, &p, 1, R, U);
							c.order = (enum cpa_order)order;
							int parts = order == CPA_ORDER_ZIGZAG
								? 2 * R * U
								: R * U;
							bool divides = S % parts == 0 &&
								Skv % parts == 0 && Hkv % U == 0;
							struct cpa_error error;
							assert_int_equal(
								try_config(&p, &c, &error),
								divides ? CPA_OK
									: CPA_UNSUPPORTED);
							c.variant = CPA_VARIANT_UNIFIED_ANYTHING;
							c.split = c.split_kv = CPA_SPLIT_BALANCED;
							assert_int_equal(
								try_config(&p, &c, &error),
								CPA_OK);
						}
}

struct refusal {
	int64_t S, Hq, Hkv;
	enum cpa_variant variant;
	int R, U;
	enum cpa_order order;
	const char *words[4];
};

static void refusals_say_what_would_work(void **unused)
{
	(void)unused;
	const struct refusal cases[] = {
		{515, 8, 2, CPA_VARIANT_RING, 4, 1, CPA_ORDER_CONTIGUOUS,
			{"S = 515", "R U = 4", "1, 5 would work", "ring_anything"}},
		{16, 9, 3, CPA_VARIANT_ULYSSES, 1, 2, CPA_ORDER_CONTIGUOUS,
			{"Hq = 9 heads", "ulysses degree 2", "1, 3 would work",
				"ulysses_anything"}},
		{16, 8, 1, CPA_VARIANT_ULYSSES, 1, 2, CPA_ORDER_CONTIGUOUS,
			{"Hkv = 1 heads", "degrees 1 would work", NULL}},
		{12, 4, 4, CPA_VARIANT_UNIFIED, 2, 4, CPA_ORDER_CONTIGUOUS,
			{"S = 12", "R U = 8", "1, 2, 3, 4, 6, 12 would work",
				"unified_anything"}},
		{12, 4, 4, CPA_VARIANT_RING, 4, 1, CPA_ORDER_ZIGZAG,
			{"2 R U (zigzag order) = 8", "1, 2, 3, 6 would work", NULL}},
		{9, 4, 4, CPA_VARIANT_RING, 3, 1, CPA_ORDER_ZIGZAG,
			{"no number of ranks works in zigzag order", "contiguous order", NULL}},
		{9, 4, 4, CPA_VARIANT_RING, 1, 2, CPA_ORDER_CONTIGUOUS,
			{"ring has no all-to-all", "ulysses degree 2 must be 1", "unified",
				NULL}},
		{9, 4, 4, CPA_VARIANT_ULYSSES_ANYTHING, 2, 1, CPA_ORDER_CONTIGUOUS,
			{"ulysses_anything has no ring", "ring degree 2 must be 1",
				"unified_anything", NULL}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_problem p = square(cases[i].S, cases[i].Hq, cases[i].Hkv);
		struct cpa_config c = mesh(cases[i].variant, &p, 1, cases[i].R, cases[i].U);
		c.order = cases[i].order;
		struct cpa_error error;
		assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
		for (int w = 0; w < 4 && cases[i].words[w]; w++)
			if (!strstr(error.text, cases[i].words[w]))
				fail_msg("\"%s\" lacks \"%s\"", error.text, cases[i].words[w]);
	}
}

/* The ranks that a sentence offers are accepted, all of them, and no other below 64. */
static void what_a_refusal_offers_is_accepted(void **unused)
{
	(void)unused;
	for (int64_t S = 2; S <= 60; S++)
		for (int which = 0; which < 6; which++) {
			bool zigzag = which % 2;
			struct cpa_problem p = square(S, 4, 4);
			p.Skv = which < 2 ? S : 24;
			p.Skv = which >= 4 ? S + 1 : p.Skv;
			if (which >= 4)
				replicate_keys(&p);
			struct cpa_error error, other;
			struct cpa_config c = mesh(CPA_VARIANT_RING, &p, 1, 61, 1);
			c.order = zigzag ? CPA_ORDER_ZIGZAG : CPA_ORDER_CONTIGUOUS;
			assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
			const char *list = strstr(error.text, "R U of ");
			for (c.ring_degree = 1; c.ring_degree < 61; c.ring_degree++) {
				char with_comma[16], before_would[32];
				snprintf(with_comma, sizeof with_comma, " %d,", c.ring_degree);
				snprintf(before_would, sizeof before_would, " %d would",
					c.ring_degree);
				bool offered = list &&
					(strstr(list, with_comma) || strstr(list, before_would));
				assert_int_equal(try_config(&p, &c, &other) == CPA_OK, offered);
			}
		}
}

static void strict_variants_take_equal_shares_only(void **unused)
{
	(void)unused;
	struct cpa_problem p = square(8, 4, 4);
	struct cpa_error error;
	struct cpa_config c = mesh(CPA_VARIANT_RING, &p, 1, 2, 1);
	const int64_t unequal[] = {5, 3}, equal[] = {4, 4}, short_sum[] = {4, 3};
	c.split = CPA_SPLIT_GIVEN;
	c.sizes = equal;
	c.nsizes = 2;
	assert_int_equal(try_config(&p, &c, &error), CPA_OK);
	c.sizes = unequal;
	assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "rank 1 3"));
	c.variant = CPA_VARIANT_RING_ANYTHING;
	assert_int_equal(try_config(&p, &c, &error), CPA_OK);
	c.sizes = short_sum;
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_RING, &p, 1, 2, 1);
	c.split_kv = CPA_SPLIT_GIVEN;
	c.sizes_kv = unequal;
	c.nsizes_kv = 2;
	assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "--split-kv"));
	c = mesh(CPA_VARIANT_ULYSSES, &p, 1, 1, 2);
	const int64_t heads[] = {3, 1};
	c.heads = CPA_HEADS_GIVEN;
	c.head_counts = heads;
	assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "--heads"));
	c.variant = CPA_VARIANT_ULYSSES_ANYTHING;
	assert_int_equal(try_config(&p, &c, &error), CPA_OK);
}

static void replicated_keys_and_few_batches_are_never_a_reason(void **unused)
{
	(void)unused;
	struct cpa_problem p = square(8, 4, 4);
	p.Skv = 7;
	struct cpa_error error;
	struct cpa_config c = mesh(CPA_VARIANT_UNIFIED, &p, 3, 2, 2);
	assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "Skv = 7"));
	replicate_keys(&p);
	assert_int_equal(try_config(&p, &c, &error), CPA_OK);
}

/* What shard i holds of the tokens [start, end). */
static int64_t held(const struct cpa_partition *part, bool keys, int i, int64_t start, int64_t end)
{
	struct cpa_arena arena;
	int U = part->config.ulysses_degree;
	cpa_arena_init(&arena);
	struct cpa_spans tokens = (keys ? cpa_partition_kv_split : cpa_partition_q_split)(
		part, &arena, i / U, i % U);
	int64_t n = cpa_spans_ncommon_range(&tokens, (struct cpa_range){start, end});
	cpa_arena_fini(&arena);
	return n;
}

/* R U for each split segment, in sequence order, zeros among them, keys by other sizes. */
static void given_sizes_are_of_each_split_segment(void **unused)
{
	(void)unused;
	const struct cpa_segment segments[] = {
		{"a", 4, false}, {"b", 5, true}, {"c", 6, false}, {"d", 0, false}};
	static const int64_t sizes[] = {1, 3, 0, 0, 2, 0, 0, 4, 0, 0, 0, 0},
			     sizes_kv[] = {0, 0, 4, 0, 3, 1, 1, 1, 0, 0, 0, 0};
	struct cpa_problem p = square(15, 4, 4);
	p.segments = segments;
	p.nsegments = 4;
	for (int i = 0; i < 3 * 2 * 3; i++) {
		struct cpa_error error;
		struct cpa_partition *part;
		struct cpa_config c = mesh(i / 6 == 0 ? CPA_VARIANT_RING_ANYTHING
				: i / 6 == 1	      ? CPA_VARIANT_ULYSSES_ANYTHING
						      : CPA_VARIANT_UNIFIED_ANYTHING,
			&p, 1, i / 6 == 0 ? 4 : i / 6 == 1 ? 1 : 2, i / 6 == 0 ? 1 : i / 6 == 1 ? 4 : 2);
		c.order = i / 3 % 2 ? CPA_ORDER_ZIGZAG : CPA_ORDER_CONTIGUOUS;
		c.rotate = (enum cpa_rotate)(i % 3);
		c.split = c.split_kv = CPA_SPLIT_GIVEN;
		c.sizes = sizes;
		c.sizes_kv = sizes_kv;
		c.nsizes = c.nsizes_kv = 12;
		struct world w;
		assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
		if (check_world(&w, &error) != CPA_OK)
			fail_msg("%s", error.text);
		part = w.part;
		for (int s = 0; s < 4; s++) {
			assert_int_equal(held(part, false, s, 0, 4), sizes[s]);
			assert_int_equal(held(part, false, s, 9, 15), sizes[4 + s]);
			assert_int_equal(held(part, true, s, 0, 4), sizes_kv[s]);
			assert_int_equal(held(part, true, s, 9, 15), sizes_kv[4 + s]);
		}
		free_world(&w);
		c.order = CPA_ORDER_STRIPED;
		assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
		c.order = CPA_ORDER_ZIGZAG_DOCUMENTS;
		assert_int_equal(try_config(&p, &c, &error), CPA_UNSUPPORTED);
	}
}

static void a_wrong_number_of_given_sizes_is_told_with_the_right_one(void **unused)
{
	(void)unused;
	const struct cpa_segment segments[] = {{"a", 4, false}, {"b", 4, false}, {"c", 2, true}};
	static const int64_t sizes[] = {2, 2, 3, 1, 0};
	struct cpa_problem p = square(10, 4, 4);
	struct cpa_error error;
	struct cpa_config c = mesh(CPA_VARIANT_RING_ANYTHING, &p, 1, 2, 1);
	p.segments = segments;
	p.nsegments = 3;
	c.split = CPA_SPLIT_GIVEN;
	c.sizes = sizes;
	for (c.nsizes = 0; c.nsizes <= 5; c.nsizes++) {
		assert_int_equal(try_config(&p, &c, &error), c.nsizes == 4 ? CPA_OK : CPA_INVALID);
		if (c.nsizes != 4)
			assert_non_null(strstr(error.text, "expected 4: R U = 2 for each of 2 split "
							   "segments of queries (a, b)"));
	}
	c = mesh(CPA_VARIANT_RING_ANYTHING, &p, 1, 2, 1);
	c.split_kv = CPA_SPLIT_GIVEN;
	c.sizes_kv = sizes;
	c.nsizes_kv = 2;
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "--split-kv gives 2 sizes"));
	/* The right number, but they do not add up. */
	c.nsizes_kv = 4;
	c.sizes_kv = sizes + 1;
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "--split-kv, segment a: given sizes: 2 of them add up to 5"));
}

static void nonsense_is_invalid_and_not_unsupported(void **unused)
{
	(void)unused;
	struct cpa_problem p = square(8, 4, 4);
	struct cpa_error error;
	struct cpa_config c = mesh(CPA_VARIANT_RING, &p, 0, 1, 1);
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_RING, &p, 1, 0, 1);
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_RING, &p, 1, 1, 0);
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_RING, &p, 1, -2, 1);
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_UNIFIED, &p, 2000000000, 2000000000, 2000000000);
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_UNIFIED_ANYTHING, &p, 2, 1, 600000); /* more than 2^20 together */
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	c = mesh(CPA_VARIANT_RING, &p, 1, 2, 1);
	c.direction = 0;
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
	p.Hq = 3;
	c.direction = 1;
	assert_int_equal(try_config(&p, &c, &error), CPA_INVALID);
}

/* Ranks and coordinates are a bijection in either mesh order; ulysses is innermost by default. */
static void ranks_and_coordinates_are_a_bijection(void **unused)
{
	(void)unused;
	struct cpa_problem p = square(24, 12, 12);
	for (int order = 0; order < 2; order++) {
		struct cpa_config c = mesh(CPA_VARIANT_UNIFIED, &p, 2, 3, 4);
		c.mesh = (enum cpa_mesh)order;
		struct cpa_error error;
		struct cpa_partition *part;
		assert_int_equal(cpa_partition_create(&p, &c, &part, &error), CPA_OK);
		for (int rank = 0; rank < 24; rank++) {
			struct cpa_coords at = cpa_partition_coords(part, rank);
			assert_in_range(at.r, 0, 2);
			assert_in_range(at.u, 0, 3);
			assert_int_equal(at.b, rank / 12);
			assert_int_equal(cpa_partition_rank(part, at), rank);
			assert_int_equal(
				order == 0 ? at.u : at.r, order == 0 ? rank % 4 : rank % 3);
		}
		cpa_partition_destroy(part);
	}
}

/* Every (batch, token, head) of q belongs to one rank as input, and to one as work. */
static void shards_and_work_cover_everything_once(void **unused)
{
	(void)unused;
	for (uint64_t seed = 0; seed < 500; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct cpa_partition *part;
		if (cpa_partition_create(&p, &c, &part, &error) != CPA_OK)
			continue;
		struct cpa_arena arena;
		cpa_arena_init(&arena);
		int64_t held = 0, worked = 0, keys = 0;
		struct cpa_spans all_q = {0}, all_k = {0};
		for (int rank = 0; rank < part->W; rank++) {
			struct cpa_coords at = cpa_partition_coords(part, rank);
			struct cpa_range b = cpa_partition_batches(part, at.b);
			struct cpa_range h = cpa_partition_heads(part, at.u);
			struct cpa_spans q = cpa_partition_q_shard(part, &arena, at.r, at.u);
			struct cpa_spans k = cpa_partition_kv_shard(part, &arena, at.r, at.u);
			held += (b.end - b.start) * cpa_spans_ntokens(&q);
			worked += (b.end - b.start) * (h.end - h.start) *
				cpa_spans_ntokens(&part->q_block[at.r]);
			keys += (b.end - b.start) * cpa_spans_ntokens(&k);
			if (at.b > 0)
				continue;
			assert_int_equal(cpa_spans_ncommon(&all_q, &q), 0);
			all_q = cpa_spans_union(&arena, &all_q, &q);
			if (!keys_are_replicated(&p)) {
				assert_int_equal(cpa_spans_ncommon(&all_k, &k), 0);
				all_k = cpa_spans_union(&arena, &all_k, &k);
			}
		}
		assert_int_equal(held, p.B * p.Sq);
		assert_int_equal(worked, p.B * p.Sq * p.Hq);
		assert_int_equal(keys, p.B * p.Skv * (keys_are_replicated(&p) ? part->P : 1));
		assert_int_equal(
			cpa_spans_ncommon_range(&all_q, (struct cpa_range){0, p.Sq}), p.Sq);
		cpa_arena_fini(&arena);
		cpa_partition_destroy(part);
	}
}

static void the_table_of_variants_reads_back(void **unused)
{
	(void)unused;
	for (int i = 0; i < CPA_NVARIANTS; i++) {
		enum cpa_variant found;
		const struct cpa_variant_info *info = cpa_variant_info((enum cpa_variant)i);
		assert_true(cpa_variant_parse(info->name, &found));
		assert_int_equal(found, i);
		assert_int_equal(info->strict, strstr(info->name, "_anything") == NULL);
		/* A name says which degrees there are. */
		bool unified = strncmp(info->name, "unified", 7) == 0;
		struct cpa_problem p = square(8, 4, 4);
		struct cpa_config ring = mesh((enum cpa_variant)i, &p, 2, 2, 1);
		struct cpa_config ulysses = mesh((enum cpa_variant)i, &p, 2, 1, 2);
		struct cpa_error error;
		assert_int_equal(try_config(&p, &ring, &error) == CPA_OK,
			unified || strncmp(info->name, "ring", 4) == 0);
		assert_int_equal(try_config(&p, &ulysses, &error) == CPA_OK,
			unified || strncmp(info->name, "ulysses", 7) == 0);
	}
	enum cpa_variant none;
	assert_false(cpa_variant_parse("rings", &none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strict_variants_refuse_exactly_what_does_not_divide),
		cmocka_unit_test(refusals_say_what_would_work),
		cmocka_unit_test(what_a_refusal_offers_is_accepted),
		cmocka_unit_test(strict_variants_take_equal_shares_only),
		cmocka_unit_test(replicated_keys_and_few_batches_are_never_a_reason),
		cmocka_unit_test(given_sizes_are_of_each_split_segment),
		cmocka_unit_test(a_wrong_number_of_given_sizes_is_told_with_the_right_one),
		cmocka_unit_test(nonsense_is_invalid_and_not_unsupported),
		cmocka_unit_test(ranks_and_coordinates_are_a_bijection),
		cmocka_unit_test(shards_and_work_cover_everything_once),
		cmocka_unit_test(the_table_of_variants_reads_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
