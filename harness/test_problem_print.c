/*
 * test_problem_print.c - whatever a problem is, its text reads back as that problem, in all
 * fields.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/random_case.h"
#include "sim/sim.h"

enum { TEXT = 8192 };

static void assert_same_list(const int64_t *a, const int64_t *b, int64_t n)
{
	assert_int_equal(a == NULL, b == NULL);
	if (a)
		assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

static void assert_same_segments(
	const struct cpa_segment *a, int na, const struct cpa_segment *b, int nb)
{
	assert_int_equal(a == NULL, b == NULL);
	assert_int_equal(na, nb);
	for (int i = 0; i < na; i++) {
		assert_string_equal(a[i].name, b[i].name);
		assert_true(a[i].length == b[i].length && a[i].replicated == b[i].replicated);
	}
}

static void assert_same_mask(const struct cpa_problem *a, const struct cpa_problem *b)
{
	const struct cpa_mask *x = &a->rule.mask, *y = &b->rule.mask;
	assert_int_equal(x->kind, y->kind);
	if (x->kind == CPA_MASK_NONE)
		return;
	assert_true(x->batch == y->batch && x->head == y->head && x->query == y->query &&
		x->key == y->key && (x->kind == CPA_MASK_BOOL || x->dtype == y->dtype));
	assert_string_equal(x->made, y->made);
	for (int64_t i = 0; i < a->B * a->Hq * a->Sq * a->Skv; i += 1 + i % 5) {
		int64_t t = i / a->Skv % a->Sq, h = i / a->Skv / a->Sq % a->Hq;
		int64_t batch = i / a->Skv / a->Sq / a->Hq, j = i % a->Skv;
		assert_true(
			cpa_mask_value(a, batch, h, t, j) == cpa_mask_value(b, batch, h, t, j));
	}
}

static void assert_same(const struct cpa_problem *a, const struct cpa_problem *b)
{
	const struct cpa_rule *x = &a->rule, *y = &b->rule;
	assert_true(a->B == b->B && a->Sq == b->Sq && a->Skv == b->Skv && a->Hq == b->Hq &&
		a->Hkv == b->Hkv && a->D == b->D && a->Dv == b->Dv);
	assert_true(a->dtype == b->dtype && a->scale == b->scale && a->lse == b->lse);
	assert_true(x->causal == y->causal && x->offset == y->offset && x->window == y->window);
	assert_true(!x->window || (x->left == y->left && x->right == y->right));
	assert_int_equal(x->ndocuments, y->ndocuments);
	assert_same_list(x->documents, y->documents, x->ndocuments + 1);
	assert_same_list(x->key_lengths, y->key_lengths, a->B);
	assert_int_equal(x->sink == NULL, y->sink == NULL);
	for (int64_t h = 0; x->sink && h < a->Hq; h++)
		assert_true(x->sink[h] == y->sink[h]);
	assert_same_mask(a, b);
	assert_same_segments(a->segments, a->nsegments, b->segments, b->nsegments);
	assert_same_segments(a->segments_kv, a->nsegments_kv, b->segments_kv, b->nsegments_kv);
}

/* Any bytes, none and the most of them included. */
static void rename_all(
	const struct cpa_segment *from, int n, struct cpa_segment *to, uint64_t *state)
{
	for (int i = 0; i < n; i++) {
		size_t length = cpa_random(state) % 3 ? cpa_random(state) % 9
						      : cpa_random(state) % 64;
		to[i] = from[i];
		memset(to[i].name, 0, sizeof to[i].name);
		for (size_t k = 0; k < length; k++)
			to[i].name[k] = (char)(cpa_random(state) % 4
					? ",:/%=ab 'Z"[cpa_random(state) % 10]
					: 1 + (int)(cpa_random(state) % 255));
	}
}

static void a_text_reads_back_as_the_same_problem(void **unused)
{
	uint64_t state = 11;
	int nsegments = 0, nreplicated = 0;
	(void)unused;
	for (int i = 0; i < 3000; i++) {
		struct cpa_case it;
		struct cpa_segment queries[CPA_CASE_SEGMENTS], keys[CPA_CASE_SEGMENTS];
		struct cpa_problem p, again;
		struct cpa_arena arena;
		struct cpa_error error = {""};
		char drawn[CPA_CASE_TEXT];
		static char text[TEXT], twice[TEXT];
		double sink[128], value = (double)(int64_t)cpa_random(&state) / 1e15;
		cpa_arena_init(&arena);
		cpa_case_draw_problem(&it, 1 + i % 8, &state);
		cpa_case_print(&it, drawn);
		if (cpa_problem_parse(drawn, true, &arena, &p, &error) != CPA_OK)
			fail_msg("%s: %s", drawn, error.text);
		if (p.segments)
			rename_all(p.segments, p.nsegments, queries, &state);
		if (p.segments_kv)
			rename_all(p.segments_kv, p.nsegments_kv, keys, &state);
		p.segments = p.segments ? queries : NULL;
		p.segments_kv = p.segments_kv ? keys : NULL;
		for (int64_t h = 0; p.rule.sink && h < p.Hq && i % 2; h++)
			sink[h] = value;
		if (p.rule.sink && i % 2)
			p.rule.sink = sink;
		cpa_problem_print(&p, text, sizeof text);
		if (cpa_problem_parse(text, i % 3 == 0, &arena, &again, &error) != CPA_OK)
			fail_msg("%s: %s", text, error.text);
		assert_same(&p, &again);
		cpa_problem_print(&again, twice, sizeof twice);
		assert_string_equal(text, twice);
		nsegments += p.nsegments > 1;
		nreplicated += p.nsegments_kv == 1 && p.segments_kv[0].replicated;
		cpa_arena_fini(&arena);
	}
	assert_true(nsegments > 300 && nreplicated > 30);
}

/* Text in front of S is a split segment, and the sequence is both; the rule is of all of it. */
static void text_is_short_for_a_segment_in_front(void **unused)
{
	static const char *const pairs[][2] = {
		{"S=4096,text=512", "S=4608,segments=text:512:split/image:4096:split"},
		{"text=3,B=2,S=5,key_lengths=8:0,causal,documents=0:3:8",
			"B=2,S=8,segments=text:3:split/image:5:split,key_lengths=8:0,causal,"
			"documents=0:3:8"},
		{"S=1,text=1,mask=bool:1x1xQxK:4,H=2",
			"S=2,segments=text:1/image:1,mask=bool:1x1xQxK:4,H=2"},
	};
	(void)unused;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		struct cpa_problem p[2];
		struct cpa_arena arena;
		struct cpa_error error;
		char text[2][256];
		cpa_arena_init(&arena);
		for (int k = 0; k < 2; k++) {
			if (cpa_problem_parse(pairs[i][k], true, &arena, &p[k], &error) != CPA_OK)
				fail_msg("%s: %s", pairs[i][k], error.text);
			cpa_problem_print(&p[k], text[k], sizeof text[k]);
		}
		if (p[0].Sq < 100)
			assert_same(&p[0], &p[1]);
		assert_string_equal(text[0], text[1]);
		assert_null(strstr(text[0], "text="));
		cpa_arena_fini(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_reads_back_as_the_same_problem),
		cmocka_unit_test(text_is_short_for_a_segment_in_front),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
