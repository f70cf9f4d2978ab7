/*
 * test_problem_rule.c - windows, key lengths, documents, masks and sinks as text.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/options.h"
#include "harness/text.h"
#include "sim/sim.h"

enum { MAX_TEXT = 4096 };
static struct cpa_arena arena;

static int start(void **state)
{
	(void)state;
	cpa_arena_init(&arena);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	cpa_arena_fini(&arena);
	return 0;
}

static struct cpa_problem parse(const char *text)
{
	struct cpa_problem problem;
	struct cpa_error error;

	if (cpa_problem_parse(text, true, &arena, &problem, &error) != CPA_OK)
		fail_msg("%s: %s", text, error.text);
	return problem;
}

/* Element of the mask at these indices. */
static double element(const struct cpa_problem *p, int64_t b, int64_t h, int64_t t, int64_t j)
{
	const struct cpa_mask *m = &p->rule.mask;
	const int64_t at = b * m->batch + h * m->head + t * m->query + j * m->key;

	return m->kind == CPA_MASK_BOOL ? ((const uint8_t *)m->data)[at]
					: cpa_load(m->dtype, m->data, at);
}

/* ---- fields ------------------------------------------------------------------------------ */

static void every_key_reaches_the_rule(void **state)
{
	static const int64_t documents[] = { 0, 2, 2, 9 };
	struct cpa_problem p = parse("B=2,S=9,window=3:0,offset=-1,key_lengths=0:9,"
				     "documents=0:2:2:9,sink=-0.5");

	(void)state;
	assert_true(p.rule.window && p.rule.left == 3 && p.rule.right == 0);
	assert_true(!p.rule.causal && p.rule.offset == -1);
	assert_true(p.rule.key_lengths[0] == 0 && p.rule.key_lengths[1] == 9);
	assert_int_equal(p.rule.ndocuments, 3);
	assert_memory_equal(p.rule.documents, documents, sizeof documents);
	for (int h = 0; h < 8; h++)
		assert_true(p.rule.sink[h] == -0.5);
	assert_int_equal(p.rule.mask.kind, CPA_MASK_NONE);
	/* Beside a causal rule both sides count; no bound at all is no window. */
	p = parse("Sq=4,Skv=9,causal,offset=5,window=-1:2");
	assert_true(p.rule.causal && p.rule.window && p.rule.left == -1 && p.rule.right == 2);
	p = parse("Sq=4,Skv=9,window=-1:-1,offset=5");
	assert_true(!p.rule.window && p.rule.offset == 0);
	p = parse("S=4");
	assert_true(!p.rule.key_lengths && !p.rule.documents && !p.rule.sink);
}

static void random_sinks_differ_by_head_and_depend_on_it_alone(void **state)
{
	struct cpa_problem a = parse("S=4,H=5,sink=random");
	struct cpa_problem b = parse("B=3,S=9,H=7,D=3,dtype=fp32,sink=random");

	(void)state;
	for (int h = 0; h < 5; h++) {
		assert_true(isfinite(a.rule.sink[h]) && a.rule.sink[h] == b.rule.sink[h]);
		assert_true(h == 0 || a.rule.sink[h] != a.rule.sink[h - 1]);
	}
}

/* ---- masks ------------------------------------------------------------------------------- */

static void a_mask_has_the_shape_that_was_asked_for(void **state)
{
	(void)state;
	for (int shape = 0; shape < 16; shape++) {
		int64_t batch = shape & 8 ? 1 : 0, head = shape & 4 ? 1 : 0;
		int64_t query = shape & 2 ? 1 : 0, key = shape & 1, stride = 1;
		char text[100];
		struct cpa_problem p;

		snprintf(text, sizeof text, "B=2,Sq=5,Skv=7,Hq=6,Hkv=3,mask=%s:%sx%sx%sx%s:9",
			shape % 3 ? "bool" : "bias", batch ? "B" : "1", head ? "H" : "1",
			query ? "Q" : "1", key ? "K" : "1");
		p = parse(text);
		assert_int_equal(p.rule.mask.kind, shape % 3 ? CPA_MASK_BOOL : CPA_MASK_BIAS);
		assert_int_equal(p.rule.mask.key, key * stride);
		stride *= key ? 7 : 1;
		assert_int_equal(p.rule.mask.query, query * stride);
		stride *= query ? 5 : 1;
		assert_int_equal(p.rule.mask.head, head * stride);
		stride *= head ? 6 : 1;
		assert_int_equal(p.rule.mask.batch, batch * stride);
		assert_int_equal(p.rule.mask.dtype, CPA_DTYPE_FP64);
	}
	assert_int_equal(parse("S=4,dtype=bf16,mask=bias:1x1x1xK:1").rule.mask.dtype,
		CPA_DTYPE_FP32);
}

/* A larger problem has the same elements where both have one. */
static void an_element_depends_on_the_seed_and_its_place_alone(void **state)
{
	static const char *const kinds[] = { "bool", "bias" };

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct cpa_problem p[3];
		int other = 0;

		for (int i = 0; i < 3; i++) {
			char text[100];

			snprintf(text, sizeof text, "B=%d,Sq=%d,Skv=%d,H=%d,mask=%s:BxHxQxK:%d",
				i == 1 ? 3 : 2, i == 1 ? 9 : 5, i == 1 ? 8 : 6, i == 1 ? 4 : 3,
				kinds[k], i == 2 ? 8 : 7);
			p[i] = parse(text);
		}
		for (int64_t n = 0; n < 2 * 3 * 5 * 6; n++) {
			int64_t b = n / 90, h = n / 30 % 3, t = n / 6 % 5, j = n % 6;
			double x = element(&p[0], b, h, t, j);

			assert_true(x == element(&p[1], b, h, t, j));
			other += x != element(&p[2], b, h, t, j);
		}
		assert_true(other > 0);
	}
}

/* The sample of n keys hides n/m of them, within six standard deviations. */
static void check_share(const char *kind, double hidden_value, double share)
{
	enum { N = 40000 };
	double deviation = 6 * sqrt(N * share * (1 - share)), sum = 0, squares = 0;
	char text[100];
	struct cpa_problem p;
	int hidden = 0, first = 0;

	snprintf(text, sizeof text, "B=4,Sq=100,Skv=50,H=2,dtype=fp32,mask=%s:BxHxQxK:3", kind);
	p = parse(text);
	for (int64_t n = 0; n < N; n++) {
		double x = element(&p, n / 10000, n / 5000 % 2, n / 50 % 100, n % 50);

		hidden += x == hidden_value;
		first += x == hidden_value && n % 50 == 0;
		if (isfinite(x)) {
			sum += x;
			squares += x * x;
		}
	}
	assert_true(fabs(hidden - N * share) < deviation);
	assert_true(first > 0 && first < N / 50); /* key 0 is as any other */
	if (hidden_value == -INFINITY) {          /* unit normal: mean 0, variance 1 */
		double n = N - hidden;

		assert_true(fabs(sum / n) < 6 / sqrt(n));
		assert_true(fabs(squares / n - 1) < 6 * sqrt(2 / n));
	}
}

static void a_fifth_or_an_eighth_of_the_keys_is_hidden(void **state)
{
	(void)state;
	check_share("bool", 0, 1 / 5.0);
	check_share("bias", -INFINITY, 1 / 8.0);
}

/* ---- refusals ---------------------------------------------------------------------------- */

static void bad_rules_are_refused_in_a_sentence(void **state)
{
	static const char *const cases[][2] = {
		{ "S=4,window", "a value is missing; write window=128:0" },
		{ "S=4,window=", "a value is missing" },
		{ "S=4,window=3", "window: 1 numbers; expected two" },
		{ "S=4,window=1:2:3", "window: 3 numbers; expected two" },
		{ "S=4,window=-2:0", "window: -2 is outside -1" },
		{ "S=4,window=0:x", "window: 'x' is not a whole number" },
		{ "S=4,window=1:", "numbers with colons between" },
		{ "S=4,window=9223372036854775807:0", "is outside -1" },
		{ "Sq=4,Skv=9,window=1:1", "window with Sq != Skv needs offset=" },
		{ "S=4,window=1:1,window=1:1", "window is given twice" },
		{ "B=2,S=4,key_lengths=3", "1 of them; expected B = 2" },
		{ "S=4,key_lengths=3:3", "2 of them; expected B = 1" },
		{ "S=4,key_lengths=5", "key_lengths: 5 is outside 0 to 4" },
		{ "S=4,key_lengths=-1", "key_lengths: -1 is outside 0 to 4" },
		{ "B=2,S=4,key_lengths=3::", "numbers with colons between" },
		{ "Sq=4,Skv=5,documents=0:4", "as many keys as queries" },
		{ "S=4,documents=4", "the start of each document and the end, such as 0:4" },
		{ "S=4,documents=1:4", "starts at 1; expected 0" },
		{ "S=4,documents=0:3", "ends at 3; expected S = 4" },
		{ "S=4,documents=0:3:2:4", "2 comes after 3; expected starts that never" },
		{ "S=4,documents=0:5", "documents: 5 is outside 0 to 4" },
		{ "S=4,documents=0-4", "is not a whole number" },
		{ "S=4,mask", "write mask=bool:1x1x1xK:1" },
		{ "S=4,mask=bool", "is not bool:SHAPE:SEED" },
		{ "S=4,mask=bool:1x1x1xK", "is not bool:SHAPE:SEED" },
		{ "S=4,mask=float:1x1x1xK:1", "is not bool:SHAPE:SEED" },
		{ "S=4,mask=bool:1x1xK:1", "'1x1xK' is no shape" },
		{ "S=4,mask=bool:1x1xKxQ:1", "'1x1xKxQ' is no shape" },
		{ "S=4,mask=bool:1x1x1xk:1", "'1x1x1xk' is no shape" },
		{ "S=4,mask=bool:1x1x1x4:1", "'1x1x1x4' is no shape" },
		{ "S=4,mask=bool:1x1x1xKx1:1", "is no shape" },
		{ "S=4,mask=bool::1", "'' is no shape" },
		{ "S=4,mask=bool:1x1x1xK:", "'' is not a whole number" },
		{ "S=4,mask=bool:1x1x1xK:-1", "is not a whole number" },
		{ "S=4,mask=bool:1x1x1xK:1:2", "'1:2' is not a whole number" },
		{ "S=4,mask=file", "name the recording in place of --problem" },
		{ "S=100000,mask=bool:1x1xQxK:1", "takes more than 268435456 bytes" },
		{ "S=1000000000,D=1,H=1,mask=bias:BxHxQxK:1", "takes more than" },
		{ "S=4,bias=1", "write mask=bias:1x1x1xK:1" },
		{ "S=4,sink", "a value is missing; write sink=0.5" },
		{ "S=4,sink=nan", "'nan' is neither a finite number such as 0.5 nor random" },
		{ "S=4,sink=inf", "'inf' is neither" },
		{ "S=4,sink=1e999", "'1e999' is neither" },
		{ "S=4,sink=0.5:0.5", "is neither" },
		{ "S=4,sink=file", "name the recording in place of --problem" },
		{ "S=4,sink=1e200,dtype=fp32", "sink" },
		{ "S=4,widnow=1:1", "did you mean window?" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cpa_problem p = { .B = 77 };
		struct cpa_error error = { "" };

		if (cpa_problem_parse(cases[i][0], true, &arena, &p, &error) != CPA_INVALID ||
			!strstr(error.text, cases[i][1]))
			fail_msg("'%s' says: %s; not: %s", cases[i][0], error.text,
				cases[i][1]);
		assert_int_equal(p.B, 77);
	}
}

/* ---- printing ---------------------------------------------------------------------------- */

static int64_t below(uint64_t *state, int64_t n)
{
	return (int64_t)(cpa_random(state) % (uint64_t)n);
}

/* A text with any of the keys. */
static void draw(uint64_t *seed, char *text)
{
	struct cpa_text w = cpa_text_begin(text, MAX_TEXT);
	int64_t B = 1 + below(seed, 3), S = 1 + below(seed, 12), at = 0;
	bool cross = below(seed, 3) == 0;

	cpa_text_put(&w, "B=%d,Sq=%d,Skv=%d,H=3,D=2,dtype=%s", (int)B,
		(int)(cross ? S + 3 : S), (int)S, cpa_dtype_name((enum cpa_dtype)below(seed, 4)));
	if (below(seed, 2))
		cpa_text_put(&w, ",causal");
	if (below(seed, 2))
		cpa_text_put(&w, ",window=%d:%d", (int)below(seed, 9) - 1, (int)below(seed, 4) - 1);
	if (strchr(text, 'w') || strstr(text, "causal"))
		cpa_text_put(&w, ",offset=%d", (int)below(seed, 9) - 4);
	for (int64_t b = 0, any = below(seed, 2); b < B && any; b++)
		cpa_text_put(&w, "%s%d", b ? ":" : ",key_lengths=", (int)below(seed, S + 1));
	if (!cross && below(seed, 2)) {
		cpa_text_put(&w, ",documents=0");
		while (below(seed, 4))
			cpa_text_put(&w, ":%d", (int)(at += below(seed, S - at + 1)));
		cpa_text_put(&w, ":%d", (int)S);
	}
	if (below(seed, 2))
		cpa_text_put(&w, ",mask=%s:%sx%sx%sx%s:%d", below(seed, 2) ? "bool" : "bias",
			below(seed, 2) ? "B" : "1", below(seed, 2) ? "H" : "1",
			below(seed, 2) ? "Q" : "1", below(seed, 2) ? "K" : "1",
			(int)below(seed, 1000));
	switch (below(seed, 3)) {
	case 0:
		cpa_text_put(&w, ",sink=random");
		break;
	case 1:
		cpa_text_put(&w, ",sink=%.17g", (double)below(seed, 1 << 20) * 0x1p-13 - 50);
	}
}

static void assert_same_rule(const struct cpa_problem *p, const struct cpa_problem *q)
{
	const struct cpa_rule *a = &p->rule, *b = &q->rule;

	assert_true(a->causal == b->causal && a->offset == b->offset && a->window == b->window);
	assert_true(!a->window || (a->left == b->left && a->right == b->right));
	assert_true(!a->key_lengths == !b->key_lengths && !a->documents == !b->documents &&
		!a->sink == !b->sink && a->ndocuments == b->ndocuments);
	if (a->key_lengths)
		assert_memory_equal(a->key_lengths, b->key_lengths, (size_t)p->B * 8);
	if (a->documents)
		assert_memory_equal(a->documents, b->documents, (size_t)(a->ndocuments + 1) * 8);
	if (a->sink)
		assert_memory_equal(a->sink, b->sink, (size_t)p->Hq * 8);
	assert_int_equal(a->mask.kind, b->mask.kind);
	for (int64_t n = 0; a->mask.kind && n < p->B * p->Hq * p->Sq * p->Skv; n++) {
		int64_t j = n % p->Skv, t = n / p->Skv % p->Sq, h = n / p->Skv / p->Sq % p->Hq;
		int64_t i = n / p->Skv / p->Sq / p->Hq;

		assert_true(element(p, i, h, t, j) == element(q, i, h, t, j));
	}
}

static void what_is_printed_reads_back_as_the_same_rule(void **state)
{
	uint64_t seed = 11;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		char text[MAX_TEXT], again[MAX_TEXT];
		struct cpa_problem p, q;

		draw(&seed, text);
		p = parse(text);
		cpa_problem_print(&p, text, sizeof text);
		q = parse(text);
		assert_same_rule(&p, &q);
		cpa_problem_print(&q, again, sizeof again);
		assert_string_equal(text, again);
	}
}

static void a_thousand_documents_read_back(void **state)
{
	static char text[20000], again[20000];
	struct cpa_text w = cpa_text_begin(text, sizeof text);
	struct cpa_problem p;

	(void)state;
	cpa_text_put(&w, "B=1,S=8192,H=8,D=64,dtype=fp64,documents=0");
	for (int i = 1; i <= 1024; i++)
		cpa_text_put(&w, ":%d", 8 * i);
	cpa_text_put(&w, ",lse");
	p = parse(text);
	assert_int_equal(p.rule.ndocuments, 1024);
	cpa_problem_print(&p, again, sizeof again);
	assert_string_equal(text, again);
}

/* What a recording has and no text can say. */
static void other_masks_and_sinks_are_those_of_a_file(void **state)
{
	static const double sink[] = { 0.25, 0.5, 0.25 };
	struct cpa_problem p = parse("S=2,H=3");
	char text[MAX_TEXT];

	(void)state;
	p.rule.mask = (struct cpa_mask){ .kind = CPA_MASK_BOOL, .data = "\1\0", .key = 1 };
	p.rule.sink = sink;
	cpa_problem_print(&p, text, sizeof text);
	assert_non_null(strstr(text, ",mask=file,sink=file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_reaches_the_rule),
		cmocka_unit_test(random_sinks_differ_by_head_and_depend_on_it_alone),
		cmocka_unit_test(a_mask_has_the_shape_that_was_asked_for),
		cmocka_unit_test(an_element_depends_on_the_seed_and_its_place_alone),
		cmocka_unit_test(a_fifth_or_an_eighth_of_the_keys_is_hidden),
		cmocka_unit_test(bad_rules_are_refused_in_a_sentence),
		cmocka_unit_test(what_is_printed_reads_back_as_the_same_rule),
		cmocka_unit_test(a_thousand_documents_read_back),
		cmocka_unit_test(other_masks_and_sinks_are_those_of_a_file),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
