/*
 * test_sizes.c - ranks that tell each other their lengths: whatever one of them has different is an
 * error that names it, the same for all.
 */
#include "dist/test_cases.h"

#include <stdio.h>

enum { MAX_WORLD = 24, MAX_SIZES = CPA_SIZES_MAX_SEGMENTS * MAX_WORLD,
	LAST_ALIKE = CPA_SIZES_NWORDS - 2 * CPA_SIZES_MAX_SEGMENTS - 1 };

static const struct cpa_problem self = {.Hq = 4, .Hkv = 2, .D = 8, .Dv = 8, .B = 3,
	.dtype = CPA_DTYPE_BF16, .scale = 0.25, .lse = true};

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

/* The same number of tokens in every split segment. */
static void pack(const struct cpa_problem *p, const struct cpa_config *c, int64_t nqueries, int64_t nkeys,
	int64_t *record)
{
	int64_t queries[CPA_SIZES_MAX_SEGMENTS], keys[CPA_SIZES_MAX_SEGMENTS];

	for (int i = 0; i < CPA_SIZES_MAX_SEGMENTS; i++) {
		queries[i] = nqueries;
		keys[i] = nkeys;
	}
	cpa_sizes_pack(p, c, queries, keys, record);
}

/* Every rank packs what it is given: rank `odd` another problem and configuration. */
static void pack_all(struct exchange *x, int W, const struct cpa_problem *p, const struct cpa_config *c,
	int odd, const struct cpa_problem *odd_p, const struct cpa_config *odd_c)
{
	for (int rank = 0; rank < W; rank++)
		pack(rank == odd ? odd_p : p, rank == odd ? odd_c : c, 10, 10, x->records[rank]);
}

static void assert_says(const struct exchange *x, const char *part)
{
	if (!strstr(x->error.text, part))
		fail_msg("\"%s\" does not say \"%s\"", x->error.text, part);
}

static void a_record_has_the_size_that_is_announced(void **unused)
{
	int64_t record[CPA_SIZES_NWORDS + 1];
	struct cpa_config c = mesh(1, 2, 1);

	(void)unused;
	assert_int_equal(cpa_sizes_nbytes(), CPA_SIZES_NWORDS * 8);
	memset(record, 0xa5, sizeof record);
	pack(&self, &c, 1, 2, record);
	assert_true(record[CPA_SIZES_NWORDS] == (int64_t)0xa5a5a5a5a5a5a5a5u);
}

/* One change a line, of a problem and configuration that all others have unchanged. */
static void change(int n, struct cpa_problem *p, struct cpa_config *c, const char **says)
{
	static const int64_t documents[] = {0, 3, 20}, key_lengths[] = {1, 2, 3}, counts[] = {2, 2};
	static const double sink[] = {1, 2, 3, 4};
	static const struct cpa_segment keys[] = {{"keys", 1, true}};
	static const struct cpa_segment text[] = {{"text", 7, true}, {"image", 0, false}};
	static const char *const all[] = {"B, the batch items: it has 4, rank 0 has 3", "Hq, the query heads",
		"Hkv, the key heads", "D, the head size: it has 9", "Dv, the head size of v",
		"the dtype: it has fp16, rank 0 has bf16", "the scale: it has 0.5, rank 0 has 0.25",
		"whether lse", "causal: it has 1", "the causal offset: it has -4",
		"whether there is a window", "the documents", "the key lengths", "the mask", "the sink",
		"the query tokens that every rank holds: it has 7, rank 0 has 0",
		"the variant: it has ring, rank 0 has unified_anything",
		"the ring degree", "the rotation: it has direct, rank 0 has p2p", "the mesh: it has batch, u",
		"the split of queries: it has ceil", "the split of keys: it has given",
		"the order: it has striped", "the head rule: it has groups", "the head counts",
		"the direction: it has -1, rank 0 has 1", "the rounding of partials",
		"the dtype of partials: it has fp64", "the number of split segments of keys: it has 0",
		"as many keys as queries",
		"the branches of guidance: it has 3, rank 0 has 0", "in the segments;",
		"the layout: it has BHSD, rank 0 has BSHD"};

	*says = n < (int)(sizeof all / sizeof *all) ? all[n] : NULL;
	switch (n) {
	case 0: p->B = 4; break;
	case 1: p->Hq = 6; break;
	case 2: p->Hkv = 1; break;
	case 3: p->D = 9; break;
	case 4: p->Dv = 9; break;
	case 5: p->dtype = CPA_DTYPE_FP16; break;
	case 6: p->scale = 0.5; break;
	case 7: p->lse = false; break;
	case 8: p->rule.causal = true; break;
	case 9: p->rule.offset = -4; break;
	case 10: p->rule.window = true; break;
	case 11: p->rule.documents = documents; p->rule.ndocuments = 2; break;
	case 12: p->rule.key_lengths = key_lengths; break;
	case 13: p->rule.mask = (struct cpa_mask){.kind = CPA_MASK_BOOL, .key = 1}; break;
	case 14: p->rule.sink = sink; break;
	case 15: p->segments = text; p->nsegments = 2; break;
	case 16: c->variant = CPA_VARIANT_RING; break;
	case 17: c->ring_degree = 3; break;
	case 18: c->rotate = CPA_ROTATE_DIRECT; break;
	case 19: c->mesh = CPA_MESH_BATCH_ULYSSES_RING; break;
	case 20: c->split = CPA_SPLIT_CEIL; break;
	case 21: c->split_kv = CPA_SPLIT_GIVEN; break;
	case 22: c->order = CPA_ORDER_STRIPED; break;
	case 23: c->heads = CPA_HEADS_GROUPS; break;
	case 24: c->head_counts = counts; break;
	case 25: c->direction = -1; break;
	case 26: c->partials = CPA_PARTIALS_ALL; break;
	case 27: c->partial_dtype = CPA_DTYPE_FP64; break;
	case 28: p->Skv = 1; p->segments_kv = keys; p->nsegments_kv = 1; break;
	case 29: p->Skv = p->Sq + 1; break;
	case 30: c->guidance = 3; break;
	case 31: p->segments = text + 1; p->nsegments = 1; break;
	case 32: p->layout = CPA_LAYOUT_BHSD; break;
	default: break;
	}
}

static void the_first_rank_that_disagrees_is_named_and_in_what(void **unused)
{
	struct cpa_config c = mesh(1, 2, 2);

	(void)unused;
	for (int n = 0;; n++) {
		const char *says;

		for (int odd = 1; odd < 4; odd++) {
			struct cpa_problem odd_p = self;
			struct cpa_config odd_c = c;
			struct exchange x;
			char who[64];

			change(n, &odd_p, &odd_c, &says);
			if (!says)
				return;
			pack_all(&x, 4, &self, &c, odd, &odd_p, &odd_c);
			/* A later rank that is wrong in something else is not the first. */
			if (odd < 3)
				x.records[3][LAST_ALIKE] = 77;
			assert_int_equal(agree(&x, 4), CPA_MISMATCH);
			snprintf(who, sizeof who, "rank %d disagrees with rank 0", odd);
			assert_says(&x, who);
			assert_says(&x, says);
		}
	}
}

/* Same kind, other contents: only a hash tells. */
static void lists_are_compared_by_their_elements(void **unused)
{
	int64_t documents[2][3] = {{0, 3, 20}, {0, 4, 20}}, lengths[2][3] = {{1, 2, 3}, {1, 3, 2}};
	double sink[2][4] = {{1, 2, 3, 4}, {1, 2, 3, 5}};
	struct cpa_segment text[2][2] = {{{"text", 7, true}, {"image", 0, false}},
		{{"text", 8, true}, {"image", 0, false}}};
	struct cpa_config c = mesh(1, 2, 1);

	(void)unused;
	for (int kind = 0; kind < 4; kind++)
		for (int same = 0; same < 2; same++) {
			struct cpa_problem p[2] = {self, self};
			struct exchange x;

			for (int i = 0; i < 2; i++) {
				int from = same ? 0 : i;

				p[i].rule.documents = kind == 0 ? documents[from] : NULL;
				p[i].rule.ndocuments = 2;
				p[i].rule.key_lengths = kind == 1 ? lengths[from] : NULL;
				p[i].rule.sink = kind == 2 ? sink[from] : NULL;
				p[i].segments = kind == 3 ? text[from] : NULL;
				p[i].nsegments = kind == 3 ? 2 : 0;
			}
			pack_all(&x, 2, &p[0], &c, 1, &p[1], &c);
			assert_int_equal(agree(&x, 2), same ? CPA_OK : CPA_MISMATCH);
		}
}

static void lengths_of_split_segments_need_not_be_known(void **unused)
{
	struct cpa_segment a[2] = {{"text", 7, true}, {"image", 10, false}};
	struct cpa_segment b[2] = {{"text", 7, true}, {"image", 30, false}};
	struct cpa_problem p = self, odd = self;
	struct cpa_config c = mesh(1, 3, 1);
	struct exchange x;

	(void)unused;
	p.segments = a;
	odd.segments = b;
	p.nsegments = odd.nsegments = 2;
	pack_all(&x, 3, &p, &c, 1, &odd, &c);
	assert_int_equal(agree(&x, 3), CPA_OK);
	assert_int_equal(x.sizes[0] + x.sizes[1] + x.sizes[2], 30);
	/* Two that are split have a length each. */
	a[0].replicated = b[0].replicated = false;
	pack_all(&x, 3, &p, &c, 1, &odd, &c);
	assert_int_equal(agree(&x, 3), CPA_OK);
	for (int i = 0; i < 6; i++)
		assert_int_equal(x.sizes[i], 10);
}

/* All ranks are told the same, and the record is as long as ever. */
static void more_split_segments_than_a_record_holds_are_refused(void **unused)
{
	static struct cpa_segment many[CPA_SIZES_MAX_SEGMENTS + 1];
	static struct exchange x;
	struct cpa_config c = mesh(1, 3, 1);

	(void)unused;
	for (int side = 0; side < 2; side++)
		for (int more = 0; more < 2; more++) {
			struct cpa_problem p = self;
			int n = CPA_SIZES_MAX_SEGMENTS + more;

			p.Skv = p.Sq + side;
			*(side ? &p.segments_kv : &p.segments) = many;
			*(side ? &p.nsegments_kv : &p.nsegments) = n;
			memset(&x, 0xa5, sizeof x);
			pack_all(&x, 3, &p, &c, -1, NULL, NULL);
			assert_true(x.records[3][0] == (int64_t)0xa5a5a5a5a5a5a5a5u);
			assert_int_equal(agree(&x, 3), more ? CPA_UNSUPPORTED : CPA_OK);
			if (more)
				assert_says(&x, side ? "split segments of keys is 33; a rank tells"
						     : "split segments of queries is 33; a rank tells");
			else
				assert_int_equal((side ? x.sizes_kv : x.sizes)[3 * n - 1], 10);
			/* One rank alone has too many: that is what differs. */
			if (more)
				continue;
			p.nsegments = side ? 0 : n + 1;
			p.nsegments_kv = side ? n + 1 : 0;
			pack(&p, &c, 10, 10, x.records[2]);
			assert_int_equal(agree(&x, 3), CPA_MISMATCH);
			assert_says(&x, "rank 2 disagrees with rank 0 in the number of split segments");
		}
}

static void keys_that_every_rank_holds_have_one_length(void **unused)
{
	struct cpa_segment keys = {"keys", 226, true}, shorter = {"keys", 225, true};
	struct cpa_problem p = self;
	struct cpa_config c = mesh(1, 3, 1);
	struct exchange x;

	(void)unused;
	p.Skv = 226;
	p.segments_kv = &keys;
	p.nsegments_kv = 1;
	for (int rank = 0; rank < 3; rank++)
		cpa_sizes_pack(&p, &c, &(int64_t){rank}, NULL, x.records[rank]);
	assert_int_equal(agree(&x, 3), CPA_OK);
	assert_int_equal(x.sizes[2], 2);
	p.segments_kv = &shorter;
	cpa_sizes_pack(&p, &c, &(int64_t){2}, NULL, x.records[2]);
	assert_int_equal(agree(&x, 3), CPA_MISMATCH);
	assert_says(&x, "rank 2 disagrees with rank 0 in the key tokens that every rank holds: it has 225, "
			"rank 0 has 226");
}

static void batch_groups_must_be_cut_alike(void **unused)
{
	struct cpa_config c = mesh(2, 2, 1);
	struct exchange x;

	(void)unused;
	for (int rank = 0; rank < 4; rank++)
		pack(&self, &c, 10 + rank % 2, 10, x.records[rank]);
	assert_int_equal(agree(&x, 4), CPA_OK);
	assert_int_equal(x.sizes[0], 10);
	assert_int_equal(x.sizes[1], 11);
	pack(&self, &c, 10, 10, x.records[3]);
	assert_int_equal(agree(&x, 4), CPA_MISMATCH);
	assert_says(&x, "rank 3 disagrees with rank 1 in its own query tokens: it has 10, rank 1 has 11");
}

static void what_no_rank_may_say_is_invalid(void **unused)
{
	struct cpa_config c = mesh(1, 2, 2);
	struct exchange x;

	(void)unused;
	pack_all(&x, 4, &self, &c, -1, NULL, NULL);
	assert_int_equal(agree(&x, 3), CPA_INVALID);
	assert_says(&x, "not those of 3 ranks");
	pack(&self, &c, -1, 10, x.records[2]);
	assert_int_equal(agree(&x, 4), CPA_INVALID);
	assert_says(&x, "rank 2 says that its own query tokens are -1");
	pack(&self, &c, 10, INT64_MAX, x.records[2]);
	assert_int_equal(agree(&x, 4), CPA_INVALID);
	assert_says(&x, "rank 2 says that its own key tokens are");
	pack_all(&x, 4, &self, &c, -1, NULL, NULL);
	for (int rank = 0; rank < 4; rank++)
		x.records[rank][1] = -1;
	assert_int_equal(agree(&x, 4), CPA_INVALID);
	assert_says(&x, "split segments of queries is -1");
	c.ring_degree = 0;
	pack_all(&x, 4, &self, &c, -1, NULL, NULL);
	assert_int_equal(agree(&x, 4), CPA_INVALID);
	memset(x.records, 0, sizeof x.records);
	assert_int_equal(agree(&x, 4), CPA_MISMATCH);
	assert_says(&x, "rank 0 sent no record");
}

/* Whatever bytes arrive: a status, and a text exactly when it is not OK. */
static void random_words_are_judged_and_nothing_else(void **unused)
{
	uint64_t seed = 9;
	struct cpa_config c = mesh(1, 2, 2);

	(void)unused;
	for (int n = 0; n < 20000; n++) {
		static struct exchange x;

		pack_all(&x, 4, &self, &c, -1, NULL, NULL);
		for (int i = below(&seed, 4); i >= 0; i--) {
			int word = below(&seed, CPA_SIZES_NWORDS), first = below(&seed, 4);
			int64_t value = (int64_t)next_random(&seed) >> below(&seed, 64);

			for (int rank = first; rank < 4; rank++)
				x.records[rank][word] = value;
		}
		enum cpa_status status = agree(&x, 4);
		assert_int_equal(status == CPA_OK, x.error.text[0] == '\0');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_has_the_size_that_is_announced),
		cmocka_unit_test(the_first_rank_that_disagrees_is_named_and_in_what),
		cmocka_unit_test(lists_are_compared_by_their_elements),
		cmocka_unit_test(lengths_of_split_segments_need_not_be_known),
		cmocka_unit_test(more_split_segments_than_a_record_holds_are_refused),
		cmocka_unit_test(keys_that_every_rank_holds_have_one_length),
		cmocka_unit_test(batch_groups_must_be_cut_alike),
		cmocka_unit_test(what_no_rank_may_say_is_invalid),
		cmocka_unit_test(random_words_are_judged_and_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
