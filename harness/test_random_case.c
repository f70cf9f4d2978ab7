/*
 * test_random_case.c - the cases of the random sweep: what is drawn, that options say it, and
 * that making it smaller comes to an end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/guidance.h"
#include "harness/random_case.h"
#include "harness/test_random.h"
#include "sim/sim.h"

/* ---- smaller ---- */

static void draw_case(struct cpa_case *it, const struct cpa_options *options, uint64_t *state)
{
	static const struct cpa_config config = {.variant = CPA_VARIANT_UNIFIED_ANYTHING,
		.batch_degree = 2,
		.ring_degree = 3,
		.ulysses_degree = 2};
	cpa_case_draw_problem(it, 12, state);
	cpa_case_draw_config(it, options, &config, state);
}

static void expect_sum(const struct cpa_case_segments *list, int64_t S)
{
	int64_t sum = 0;
	for (int i = 0; i < list->n; i++) {
		assert_true(list->length[i] >= 0);
		sum += list->length[i];
	}
	assert_true(list->n == 0 || sum == S);
}

/* Until none of the ways from `first` on does anything; `up`: in their order. */
static void shrink_all(
	struct cpa_case *it, int first, bool up, const struct cpa_options *options)
{
	int n = cpa_case_nways() - first, nsteps = 0;
	for (bool any = true; any;) {
		any = false;
		for (int i = 0; i < n; i++)
			while (cpa_case_shrink(it, first + (up ? i : n - 1 - i), options)) {
				any = true;
				assert_true(++nsteps < 3000);
				expect_sum(&it->segments, it->Sq);
				expect_sum(&it->segments_kv, it->Skv);
				assert_true(it->Sq != it->Skv || it->segments_kv.n == 0);
				assert_true(it->guidance.nbranches == 0 ||
					it->B % it->guidance.nbranches == 0);
			}
	}
}

static void every_shrinking_comes_to_an_end(void **unused)
{
	(void)unused;
	uint64_t state = 3;
	struct cpa_options options;
	char line[] = "--random 1";
	read_options(line, &options);
	for (int i = 0; i < 400; i++) {
		struct cpa_case it;
		draw_case(&it, &options, &state);
		shrink_all(&it, 0, i % 2 == 0, &options);
		assert_true(it.B * it.Sq * it.Skv * it.Hkv * it.g * it.D * it.Dv == 1);
		assert_true(it.N * it.R * it.U == 1);
		assert_int_equal(it.segments.n + it.segments_kv.n, 0);
		assert_int_equal(it.layout, CPA_LAYOUT_BSHD);
		assert_int_equal(it.guidance.nbranches, 0);
	}
	cpa_options_fini(&options);
}

/* A fault that needs one segment keeps no other. */
static void segments_are_dropped_and_split_one_by_one(void **unused)
{
	(void)unused;
	uint64_t state = 4;
	struct cpa_options options;
	char line[] = "--random 1";
	read_options(line, &options);
	for (int i = 0; i < 400; i++) {
		struct cpa_case it;
		draw_case(&it, &options, &state);
		int n = it.segments.n;
		shrink_all(&it, cpa_case_nways() - cpa_case_segments_nways(), i % 2 == 0,
			&options);
		assert_int_equal(it.segments.n, n > 0);
		assert_true(n == 0 || (it.Sq == 1 && !it.segments.replicated[0]));
		assert_true(it.segments_kv.n == 0 ||
			    (it.segments_kv.n == 1 && it.Skv == 1 &&
				    !it.segments_kv.replicated[0]));
	}
	cpa_options_fini(&options);
}

/* ---- what is drawn ---- */

struct seen {
	bool all_masked, one_key, window, causal, documents, one_document, sink, bool_mask, bias,
		uneven, given, given_of_segments, cross, gqa, lse_not_asked, rows_without_keys, text_in_front,
		text_at_the_rear, empty_segment, four_segments, all_replicated, replicated_keys,
		keys_cut_apart, zigzag_documents, more_groups_than_batches, bhsd, fused,
		fused_with_given_sizes, no_guidance, two_branches, three_branches,
		two_items_of_each_branch;
};

static bool sees_nothing(const struct cpa_problem *p)
{
	for (int64_t t = 0; t < p->Sq; t++) {
		struct cpa_range row = cpa_rule_row(p, 0, t);
		if (row.start == row.end)
			return true;
	}
	return false;
}

static void look_at_segments(
	struct seen *seen, const struct cpa_problem *p, const struct cpa_segment *at, int n)
{
	bool all = n > 0;
	for (int i = 0; i < n; i++) {
		seen->empty_segment |= at[i].length == 0;
		all = all && at[i].replicated;
	}
	seen->four_segments |= n == 4;
	seen->all_replicated |= all;
	if (n < 2 || at[0].length == 0 || at[n - 1].length == 0)
		return;
	seen->text_in_front |= p->rule.causal && at[0].replicated && !at[n - 1].replicated;
	seen->text_at_the_rear |= p->rule.mask.kind && !at[0].replicated && at[n - 1].replicated;
}

static void look(struct seen *seen, const struct cpa_case *it, const struct cpa_problem *p)
{
	const struct cpa_rule *rule = &p->rule;
	bool all = rule->key_lengths, one = rule->key_lengths;
	for (int64_t b = 0; b < p->B && rule->key_lengths; b++) {
		all = all && rule->key_lengths[b] == 0;
		one = one && rule->key_lengths[b] == 1;
	}
	seen->all_masked |= all;
	seen->one_key |= one;
	seen->window |= rule->window;
	seen->causal |= rule->causal;
	seen->documents |= rule->ndocuments > 1;
	seen->one_document |= rule->ndocuments == 1;
	seen->sink |= rule->sink != NULL;
	seen->bool_mask |= rule->mask.kind == CPA_MASK_BOOL;
	seen->bias |= rule->mask.kind == CPA_MASK_BIAS;
	seen->uneven |= p->Sq % (it->R * it->U) != 0;
	seen->given |= it->split == CPA_SPLIT_GIVEN;
	seen->given_of_segments |=
		it->split == CPA_SPLIT_GIVEN && cpa_problem_nsplit(p, false) > 1;
	seen->cross |= p->Sq != p->Skv;
	seen->gqa |= p->Hq != p->Hkv;
	seen->lse_not_asked |= !p->lse;
	seen->bhsd |= p->layout == CPA_LAYOUT_BHSD;
	seen->fused |= p->layout == CPA_LAYOUT_FUSED;
	seen->fused_with_given_sizes |=
		p->layout == CPA_LAYOUT_FUSED && it->split == CPA_SPLIT_GIVEN;
	seen->rows_without_keys |= sees_nothing(p);
	look_at_segments(seen, p, p->segments, p->nsegments);
	look_at_segments(seen, p, p->segments_kv, p->nsegments_kv);
	seen->replicated_keys |= p->nsegments_kv == 1 && p->segments_kv[0].replicated;
	seen->keys_cut_apart |= p->nsegments > 1 && p->nsegments_kv > 1;
	seen->zigzag_documents |= p->rule.documents && it->order == CPA_ORDER_ZIGZAG_DOCUMENTS;
	seen->more_groups_than_batches |= it->N > p->B;
	seen->no_guidance |= it->guidance.nbranches == 0;
	seen->two_branches |= it->guidance.nbranches == 2 && p->B == 2;
	seen->three_branches |= it->guidance.nbranches == 3 && p->B == 3;
	seen->two_items_of_each_branch |= it->guidance.nbranches == 2 && p->B == 4;
}

struct visits {
	struct cpa_config at;
	int n;
};

static bool visit(void *context, const struct cpa_config *config)
{
	struct visits *v = context;
	v->at = *config;
	v->n++;
	return true;
}

static void expect_equal_sizes(const int64_t *a, const int64_t *b, int64_t n)
{
	assert_int_equal(a == NULL, b == NULL);
	if (a)
		assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void expect_equal_segments(
	const struct cpa_case_segments *drawn, const struct cpa_segment *at, int n)
{
	assert_int_equal(drawn->n, n);
	for (int i = 0; i < n; i++)
		assert_true(drawn->length[i] == at[i].length &&
			    drawn->replicated[i] == at[i].replicated);
}

/* The options of a case select its configuration and nothing else. */
static void expect_read_back(const struct cpa_case *it, struct seen *seen)
{
	char problem[CPA_CASE_TEXT], config[1024], line[2300], guidance[80];
	struct cpa_text text = cpa_text_begin(guidance, sizeof guidance);
	struct cpa_options o;
	struct cpa_case_config made;
	struct cpa_error error;
	struct visits visits = {.n = 0};
	cpa_case_print(it, problem);
	snprintf(line, sizeof line, "--problem %s", problem);
	read_options(line, &o);
	const struct cpa_problem *p = &o.problem;
	cpa_case_config(it, p, false, &made);
	cpa_config_print(&made.config, config, sizeof config);
	look(seen, it, p);
	assert_true(p->Sq == it->Sq && p->Skv == it->Skv && p->Hq == it->Hkv * it->g);
	assert_true(p->rule.causal == it->causal && p->rule.window == it->window);
	assert_true(p->rule.offset == it->offset && p->layout == it->layout);
	if (p->layout == CPA_LAYOUT_FUSED && !cpa_variant_info(it->variant)->strict) {
		struct cpa_partition *part;
		assert_int_equal(cpa_partition_create(p, &made.config, &part, &error), CPA_OK);
		cpa_partition_destroy(part);
	}
	expect_equal_segments(&it->segments, p->segments, p->nsegments);
	expect_equal_segments(&it->segments_kv, p->segments_kv, p->nsegments_kv);
	cpa_options_fini(&o);
	cpa_guidance_put(&text, &it->guidance);
	snprintf(line, sizeof line, "--problem %s%s %s", problem, guidance, config);
	read_options(line, &o);
	assert_int_equal(cpa_sweep(&o, &o.problem, CPA_ROTATE_CHOICE_ALL, false, visit, &visits,
				 &error),
		CPA_OK);
	if (visits.n != 1)
		fail_msg("%d configurations: %s %s", visits.n, problem, config);
	const struct cpa_config *a = &made.config, *b = &visits.at;
	assert_true(a->nsizes == b->nsizes && a->nsizes_kv == b->nsizes_kv);
	assert_true(a->variant == b->variant && a->batch_degree == b->batch_degree &&
		    a->ring_degree == b->ring_degree && a->ulysses_degree == b->ulysses_degree &&
		    a->rotate == b->rotate && a->mesh == b->mesh && a->split == b->split &&
		    a->split_kv == b->split_kv && a->order == b->order && a->heads == b->heads &&
		    a->direction == b->direction && a->partials == b->partials &&
		    a->partial_dtype == b->partial_dtype && a->guidance == b->guidance);
	assert_memory_equal(&o.guidance, &it->guidance, sizeof o.guidance);
	expect_equal_sizes(a->sizes, b->sizes, a->nsizes);
	expect_equal_sizes(a->sizes_kv, b->sizes_kv, a->nsizes_kv);
	expect_equal_sizes(a->head_counts, b->head_counts, a->ulysses_degree);
	cpa_options_fini(&o);
}

static void every_case_is_read_back_as_it_was_drawn_and_edges_are_drawn(void **unused)
{
	(void)unused;
	static const struct cpa_config meshes[] = {
		{.variant = CPA_VARIANT_RING, .batch_degree = 1, .ring_degree = 4,
			.ulysses_degree = 1, .rotate = CPA_ROTATE_ALLGATHER},
		{.variant = CPA_VARIANT_UNIFIED_ANYTHING, .batch_degree = 1, .ring_degree = 2,
			.ulysses_degree = 3},
		{.variant = CPA_VARIANT_ULYSSES_ANYTHING, .batch_degree = 1, .ring_degree = 1,
			.ulysses_degree = 5},
	};
	uint64_t state = 9;
	struct seen seen = {.sink = false}, all;
	struct cpa_options options;
	char line[] = "--random 1";
	read_options(line, &options);
	for (int i = 0; i < 2000; i++) {
		struct cpa_case it;
		cpa_case_draw_problem(&it, 2 + i % 7, &state);
		cpa_case_draw_config(&it, &options, &meshes[i % 3], &state);
		expect_read_back(&it, &seen);
	}
	cpa_options_fini(&options);
	memset(&all, true, sizeof all);
	assert_memory_equal(&seen, &all, sizeof all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shrinking_comes_to_an_end),
		cmocka_unit_test(segments_are_dropped_and_split_one_by_one),
		cmocka_unit_test(every_case_is_read_back_as_it_was_drawn_and_edges_are_drawn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
