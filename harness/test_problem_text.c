/*
 * test_problem_text.c - problems as text.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness/options.h"
#include "sim/sim.h"

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

static void defaults_are_those_of_the_manual(void **state)
{
	struct cpa_problem p = parse("S=64");

	(void)state;
	assert_true(p.B == 1 && p.Sq == 64 && p.Skv == 64 && p.Hq == 8 && p.Hkv == 8 &&
		p.D == 64 && p.Dv == 64);
	assert_int_equal(p.dtype, CPA_DTYPE_FP64);
	assert_true(p.scale == 0.125 && !p.rule.causal && p.rule.offset == 0 && p.lse &&
		!p.segments && !p.segments_kv);
}

static void every_key_reaches_its_field(void **state)
{
	struct cpa_problem p = parse("B=2,Hq=6,Hkv=3,D=16,Dv=24,Sq=5,Skv=9,dtype=bf16,scale=0."
				     "5,causal,offset=-4,"
				     "lse=no,layout=BSHD");

	(void)state;
	assert_true(p.B == 2 && p.Hq == 6 && p.Hkv == 3 && p.D == 16 && p.Dv == 24 &&
		p.Sq == 5 && p.Skv == 9);
	assert_int_equal(p.dtype, CPA_DTYPE_BF16);
	assert_true(p.scale == 0.5 && p.rule.causal && p.rule.offset == -4 && !p.lse);
	p = parse("S=5,H=3,D=7");
	assert_true(p.Hq == 3 && p.Hkv == 3 && p.Dv == 7 && p.scale == 1 / sqrt(7.0));
	p = parse("S=5,Hq=3");
	assert_true(p.Hq == 3 && p.Hkv == 3);
	assert_false(parse("S=5,causal=no").rule.causal);
}

static void layouts_are_read_as_they_are_printed(void **state)
{
	static const char *const texts[] = {
		"B=1,S=5,H=8,D=64,dtype=fp64,lse", "B=1,S=5,H=8,D=64,dtype=fp64,lse,layout=BHSD",
		"B=1,S=5,H=8,D=64,dtype=fp64,lse,layout=fused" };
	static const enum cpa_layout layouts[] = {
		CPA_LAYOUT_BSHD, CPA_LAYOUT_BHSD, CPA_LAYOUT_FUSED };

	(void)state;
	assert_int_equal(parse("S=5,layout=BSHD").layout, CPA_LAYOUT_BSHD);
	for (int i = 0; i < 3; i++) {
		struct cpa_problem p = parse(texts[i]);
		char text[200];

		assert_int_equal(p.layout, layouts[i]);
		cpa_problem_print(&p, text, sizeof text);
		assert_string_equal(text, texts[i]);
	}
}

static void lse_starts_as_the_command_says(void **state)
{
	struct cpa_problem p;
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_problem_parse("S=4", false, &arena, &p, &error), CPA_OK);
	assert_false(p.lse);
	assert_int_equal(cpa_problem_parse("S=4,lse", false, &arena, &p, &error), CPA_OK);
	assert_true(p.lse);
}

static const char *const bad_texts[][2] = {
	{ "", "an item is empty" },
	{ "S=64,", "an item is empty" },
	{ ",S=64", "an item is empty" },
	{ "=3", "an item is empty" },
	{ "H=8", "S is required" },
	{ "S", "a value is missing" },
	{ "S=", "a value is missing; write S=64" },
	{ "S=0", "S: 0 is outside 1" },
	{ "S=-1", "S: -1 is outside 1" },
	{ "S=1.5", "'1.5' is not a whole number" },
	{ "S=64x", "'64x' is not a whole number" },
	{ "S= 64", "is not a whole number" },
	{ "S=64 ", "is not a whole number" },
	{ "S=9223372036854775808", "is not a whole number" },
	{ "S=64,S=64", "S is given twice" },
	{ "S=64,H=8,Hq=8", "give either H or Hq and Hkv, not both" },
	{ "S=64,Sq=64", "give either S or Sq and Skv, not both" },
	{ "Sq=64", "Sq needs Skv" },
	{ "Skv=64", "Skv needs Sq" },
	{ "Sq=4,Skv=9,causal", "causal with Sq != Skv needs offset=" },
	{ "Sq=4,Skv=9,causal", "offset=5 puts the last query" },
	{ "S=4,offset=1", "offset needs causal or window" },
	{ "S=4,offset=1,causal=no", "offset needs causal or window" },
	{ "S=4,causal=maybe", "unknown 'maybe'" },
	{ "S=4,dtype=fp8", "unknown dtype 'fp8'" },
	{ "S=4,scale=0", "not a finite number above 0" },
	{ "S=4,scale=-1", "not a finite number above 0" },
	{ "S=4,scale=1e999", "not a finite number above 0" },
	{ "S=4,scale=nan", "'nan' is not a number" },
	{ "S=4,scale=0x1", "is not a number" },
	{ "S=4,scale=1e", "is not a number" },
	{ "S=4,scale= 1", "is not a number" },
	{ "S=4,dtpye=fp32", "did you mean dtype?" },
	{ "S=4,nonsense=3", "unknown key 'nonsense'" },
	{ "S=4,nonsense=3", "keys: B, H or Hq and Hkv, D" },
	{ "S=4,s=3", "unknown key 's'" },
	{ "S=4,segments=text=512", "write name:length:split or name:length:replicated" },
	{ "S=4,segments=text:2", "segments: 1 lengths add up to 2, expected Sq = 4" },
	{ "S=4,segments=text:2:both/image:2", "'both', expected split or replicated" },
	{ "S=4,segments=text:-2/image:6", "segment length" },
	{ "S=4,segments=:4", "is not a segment" },
	{ "S=4,segments_kv=a:4", "segments_kv with Sq = Skv = 4" },
	{ "Sq=4,Skv=5,segments_kv=a:4:replicated", "expected Skv = 5" },
	{ "S=4,segments=a%:4", "'a%' is not a segment" },
	{ "S=4,segments=a%2:4", "'a%2' is not a segment" },
	{ "S=4,segments=a%2g:4", "%2C for a comma" },
	{ "S=4,segments=0123456789012345678901234567890123456789012345678901234567890123:4",
		"at most 63 bytes" },
	{ "S=4,text=0", "text: 0 is outside 1" },
	{ "S=4,text=-3", "text: -3 is outside 1" },
	{ "S=4,text=two", "'two' is not a whole number" },
	{ "S=4,text=", "a value is missing; write text=16" },
	{ "S=4,text=1,text=1", "text is given twice" },
	{ "Sq=4,Skv=5,text=3", "give S, not Sq and Skv" },
	{ "text=3", "S is required" },
	{ "S=4,text=3,segments=a:7", "short for segments=text:3:split/image:4:split" },
	{ "S=4,text=3,segments_kv=a:7", "give either, not both" },
	{ "S=9223372036854775807,text=1", "more than 2^63 - 1" },
	{ "S=4,text=3,documents=0:4", "expected S = 7" },
	{ "S=4,texts=3", "did you mean text?" },
	{ "S=4,layout=SBHD", "--problem layout: unknown" },
	{ "S=4,layout=bhsd", "unknown 'bhsd' (expected BSHD, BHSD or fused)" },
	{ "S=4,layout=", "a value is missing; write layout=BHSD" },
	{ "S=4,layout", "a value is missing; write layout=BHSD" },
	{ "S=4,layout=BHSD,layout=BSHD", "layout is given twice" },
	{ "S=4,Hq=4,Hkv=3", "" },
	{ "B=9000000000000000000,S=9000000000000000000", "" },
};

static void bad_text_is_refused_in_a_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad_texts / sizeof bad_texts[0]; i++) {
		struct cpa_problem p = { .B = 77 };
		struct cpa_error error = { "" };

		if (cpa_problem_parse(bad_texts[i][0], true, &arena, &p, &error) != CPA_INVALID ||
			!strstr(error.text, bad_texts[i][1]) || error.text[0] == '\0')
			fail_msg("'%s' says: %s; not: %s", bad_texts[i][0], error.text,
				bad_texts[i][1]);
		assert_int_equal(p.B, 77);
	}
}

static void assert_same(const struct cpa_problem *a, const struct cpa_problem *b)
{
	assert_true(a->B == b->B && a->Sq == b->Sq && a->Skv == b->Skv && a->Hq == b->Hq &&
		a->Hkv == b->Hkv);
	assert_true(a->D == b->D && a->Dv == b->Dv && a->dtype == b->dtype &&
		a->scale == b->scale);
	assert_true(a->rule.causal == b->rule.causal && a->rule.offset == b->rule.offset &&
		a->lse == b->lse);
}

static int64_t draw(uint64_t *state, int64_t most)
{
	return 1 + (int64_t)(cpa_random(state) % (uint64_t)most);
}

static void what_is_printed_reads_back_as_the_same(void **state)
{
	uint64_t seed = 3;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		struct cpa_problem p = { 0 }, again;
		struct cpa_error error;
		char text[512];

		p.B = draw(&seed, 4);
		p.Sq = draw(&seed, 1000000);
		p.Skv = draw(&seed, 2) == 1 ? p.Sq : draw(&seed, 1000000);
		p.Hkv = draw(&seed, 4);
		p.Hq = p.Hkv * draw(&seed, 3);
		p.D = draw(&seed, 300);
		p.Dv = draw(&seed, 2) == 1 ? p.D : draw(&seed, 300);
		p.dtype = (enum cpa_dtype)(draw(&seed, 4) - 1);
		p.scale = draw(&seed, 2) == 1
			? 1 / sqrt((double)p.D)
			: ldexp((double)draw(&seed, INT64_MAX), (int)draw(&seed, 200) - 160);
		p.rule.causal = draw(&seed, 2) == 1;
		p.rule.offset = p.rule.causal ? draw(&seed, 3) - 2 : 0;
		p.lse = draw(&seed, 2) == 1;
		cpa_problem_print(&p, text, sizeof text);
		if (cpa_problem_parse(text, draw(&seed, 2) == 1, &arena, &again, &error) !=
			CPA_OK)
			fail_msg("%s: %s", text, error.text);
		assert_same(&p, &again);
	}
}

static void a_small_buffer_cuts_the_text(void **state)
{
	struct cpa_problem p = parse("S=64");
	char text[8] = "xxxxxxx", whole[64];

	(void)state;
	cpa_problem_print(&p, text, 0);
	assert_string_equal(text, "xxxxxxx");
	cpa_problem_print(&p, text, 5);
	assert_string_equal(text, "B=1,");
	cpa_problem_print(&p, whole, 20);
	assert_string_equal(whole, "B=1,S=64,H=8,D=6...");
	cpa_problem_print(&p, whole, sizeof whole);
	assert_null(strstr(whole, "..."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_manual),
		cmocka_unit_test(every_key_reaches_its_field),
		cmocka_unit_test(layouts_are_read_as_they_are_printed),
		cmocka_unit_test(lse_starts_as_the_command_says),
		cmocka_unit_test(bad_text_is_refused_in_a_sentence),
		cmocka_unit_test(what_is_printed_reads_back_as_the_same),
		cmocka_unit_test(a_small_buffer_cuts_the_text),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
