/*
 * test_probe_rules.c - the probes under windows, documents, key lengths, masks and sinks: exact
 * counts of full attention, and a rule that is left out shows.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_probe.h"

enum { S = 40, NRULES = 10 };

/* Arrays for the rules below. */
static const int64_t documents[] = {0, 0, 1, 20, 20, 37, S}, lengths[] = {0, 33};
static double sink[] = {3.0, -700.0, 0.5, 1e4, -INFINITY, 0.0};
static uint8_t visible[2 * 6 * S * S];
static float bias[2 * 6 * S * S];

static void make_masks(void)
{
	uint64_t random = 1;
	for (int i = 0; i < 2 * 6 * S * S; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		visible[i] = random >> 62 ? 0 : 7;
		bias[i] = random >> 62 ? -INFINITY : i % 5 ? (float)i / 100.0f : -1e30f;
	}
	memset(visible, 0, 3 * S); /* rows that see nothing */
}

/* Rule number i of problems with S queries and keys. */
static struct cpa_problem with_rule(int i)
{
	struct cpa_problem p = usual;
	struct cpa_rule *rule = &p.rule;
	p.Skv = S;
	*rule = (struct cpa_rule){.causal = i % 2};
	if (i == 1 || i == 2 || i == 9) {
		rule->window = true;
		rule->left = 5;
		rule->right = i == 2 ? 2 : -1;
	}
	if (i == 3 || i == 9) {
		rule->documents = documents;
		rule->ndocuments = 6;
	}
	if (i == 4 || i == 9)
		rule->key_lengths = lengths;
	if (i == 5)
		rule->mask = (struct cpa_mask){
			CPA_MASK_BOOL, CPA_DTYPE_FP32, visible, 6 * S * S, S * S, S, 1, NULL};
	if (i == 6) /* keys of a batch item */
		rule->mask = (struct cpa_mask){
			CPA_MASK_BOOL, CPA_DTYPE_FP32, visible + 3 * S, S, 0, 0, 1, NULL};
	if (i == 7 || i == 9) /* per head and key */
		rule->mask = (struct cpa_mask){
			CPA_MASK_BIAS, CPA_DTYPE_FP32, bias, 0, S, 0, 1, NULL};
	if (i == 8) /* per query, for all keys alike */
		rule->mask = (struct cpa_mask){
			CPA_MASK_BIAS, CPA_DTYPE_FP32, bias, 0, 0, 1, 0, NULL};
	if (i % 3 == 0)
		rule->sink = sink;
	return p;
}

static void every_rule_is_counted_exactly(void **state)
{
	(void)state;
	make_masks();
	for (int rule = 0; rule < NRULES; rule++)
		for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
			for (int kind = 0; kind < CPA_NPROBES; kind++) {
				struct fixture f;
				struct cpa_problem problem = with_rule(rule);
				problem.dtype = (enum cpa_dtype)dtype;
				set_up(&f, problem, (enum cpa_probe_kind)kind, 0);
				struct cpa_probe_finding finding = attend_and_judge(&f);
				if (!(finding.ratio <= 1.0))
					fail_msg("rule %d: %g, should be %g", rule, finding.got,
						finding.want);
				tear_down(&f);
			}
}

/* Attention under the rule judged by another: each rule must matter. */
static void a_rule_that_is_left_out_is_seen(void **state)
{
	(void)state;
	make_masks();
	for (int rule = 1; rule < NRULES; rule++)
		for (int kind = 0; kind < CPA_NPROBES; kind++) {
			struct fixture f;
			set_up(&f, with_rule(rule), (enum cpa_probe_kind)kind, 0);
			assert_true(attend_and_judge(&f).ratio <= 1.0);
			struct cpa_rule without = {.sink = f.made.problem.rule.sink};
			f.problem.rule = without; /* of the attention */
			struct cpa_probe asked = f.probe;
			asked.problem = &f.made.problem;
			attend_and_judge(&f);
			struct cpa_probe_finding finding;
			struct cpa_error error;
			assert_int_equal(cpa_probe_judge(&asked, &f.run, f.o, f.lse, &finding,
						 &error),
				CPA_OK);
			assert_true(finding.ratio > 1.0);
			tear_down(&f);
		}
}

static void a_sink_counted_twice_or_not_at_all_is_seen(void **state)
{
	(void)state;
	for (int ncounted = 0; ncounted < 3; ncounted++) {
		struct fixture f;
		struct cpa_problem problem = usual;
		double lse = log(10.0 + ncounted); /* row 0 sees 10 keys */
		problem.rule.sink = sink;
		set_up(&f, problem, CPA_PROBE_COUNT, 0);
		assert_true(attend_and_judge(&f).ratio <= 1.0);
		struct cpa_probe_finding finding;
		struct cpa_error error;
		cpa_store(CPA_DTYPE_FP32, f.lse, 0, lse);
		assert_int_equal(
			cpa_probe_judge(&f.probe, &f.run, f.o, f.lse, &finding, &error), CPA_OK);
		assert_true((finding.ratio > 1.0) == (ncounted != 1));
		tear_down(&f);
	}
}

static void the_problem_of_the_probes_keeps_what_is_visible(void **state)
{
	(void)state;
	make_masks();
	for (int rule = 0; rule < NRULES; rule++) {
		struct cpa_problem p = with_rule(rule);
		struct cpa_probe_problem made;
		struct cpa_error error;
		assert_int_equal(cpa_probe_problem_init(&made, &p, &error), CPA_OK);
		assert_true(made.differs ==
			    (p.rule.sink || p.rule.mask.kind == CPA_MASK_BIAS));
		assert_true(made.problem.rule.mask.kind != CPA_MASK_BIAS);
		for (int64_t at = 0; at < p.B * p.Hq * S * S; at++) {
			int64_t b = at / (p.Hq * S * S), h = at / (S * S) % p.Hq, t = at / S % S;
			assert_true((cpa_mask_value(&p, b, h, t, at % S) == -INFINITY) ==
				    (cpa_mask_value(&made.problem, b, h, t, at % S) != 0.0));
		}
		for (int64_t h = 0; h < p.Hq && p.rule.sink; h++)
			assert_true(made.problem.rule.sink[h] == 0.0);
		cpa_probe_problem_fini(&made);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rule_is_counted_exactly),
		cmocka_unit_test(a_rule_that_is_left_out_is_seen),
		cmocka_unit_test(a_sink_counted_twice_or_not_at_all_is_seen),
		cmocka_unit_test(the_problem_of_the_probes_keeps_what_is_visible),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
