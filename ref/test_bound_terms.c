/*
 * test_bound_terms.c - the bounds against their formulas, term by term, and at the edges.
 */
#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct cpa_row plain_row = { .lse = 9.5,
	.max_score = 6.0,
	.max_abs = 7.0,
	.a = 11.0,
	.k_max = 12.0,
	.v_max = 4.0,
	.V = 3.0,
	.V2 = 50.0,
	.Vsum = 9000.0,
	.nvisible = 3000 };

static const double u_of[] = { 0x1p-53, 0x1p-24, 0x1p-8, 0x1p-11 };

static void assert_close(double got, double want)
{
	if (!(fabs(got - want) <= 1e-6 * want))
		fail_msg("%.12g is not %.12g", got, want);
}

/* The formulas as they stand in the contract, for arithmetic of float and no underflow. */
static struct cpa_bound formulas(
	const struct cpa_bound_run *run, const struct cpa_row *row, double o_norm)
{
	const struct cpa_rule *rule = &run->problem->rule;
	double u = u_of[run->problem->dtype], u_a = run->arithmetic.u;
	double sink = rule->sink ? 1.0 : 0.0, R = run->R + sink;
	bool all = run->partials == CPA_PARTIALS_ALL;
	double u_o = all ? R * u : run->partials == CPA_PARTIALS_BLOCK ? u : 0.0;
	double u_m = all && u > u_a ? u : fmax(u_a, u_of[run->partial_dtype]);
	double n = (double)row->nvisible + sink, lambda = row->max_abs + log(n);
	double chain = fmin(n, run->arithmetic.chain + run->arithmetic.chain_key * n);
	double bias = rule->mask.kind == CPA_MASK_BIAS ? u_a * row->max_abs : 0.0;
	double E = ((double)run->problem->D + 2.0) * u_a * row->a + bias;
	double X = u_a * (log(n) + run->arithmetic.c_exp + chain);
	double M = R == 1.0 && !all ? 0.0 : (R - 1.0) * u_m * (lambda + 4.0) + u_m * lambda;
	bool narrow = run->problem->dtype >= CPA_DTYPE_BF16;
	/* Equal scores may be 2 E apart as computed. */
	double apart = row->equal ? 4.0 * E : INFINITY;
	bool rounds = run->arithmetic.rounds_p && narrow && apart >= u;
	double u_P = run->arithmetic.rounds_p && narrow ? fmin(u, apart) : 0.0;
	double L = 0x1p-24 * fabs(row->lse);
	double h = rounds && run->problem->dtype == CPA_DTYPE_FP16
			   ? 0x1p-25 * row->Vsum / exp(row->lse - row->max_score)
			   : 0.0;
	double average = fmin(row->V * expm1(2.0 * (E + X + M)), row->V + row->v_max);

	return (struct cpa_bound){
		.o_abs = 1.01 * (average + row->V * (u_P + u_o + (chain + 4.0) * u_a) + h),
		.o_rel = 1.01 * u,
		.lse = 1.01 * (E + X + M + u_a * lambda + L),
		.soft_row = 1.01 * (u * o_norm + (2.0 * M + u_o + (chain + 4.0) * u_a) *
							 sqrt(row->V2)),
		.soft_lse = 1.01 * (M + X + u_a * lambda + L),
	};
}

/* Where underflow of the dtype counts: what is stored, each element of a row once. */
static double stored(const struct cpa_bound_run *run)
{
	double eta = run->problem->dtype == CPA_DTYPE_FP16 ? 0x1p-24 : 0.0;
	double R = run->R + (run->problem->rule.sink ? 1.0 : 0.0);

	return 1.01 * eta *
	       (run->partials == CPA_PARTIALS_ALL            ? 1.0 + R
		       : run->partials == CPA_PARTIALS_BLOCK ? 2.0
							     : 1.0);
}

/* Of lse in mode all: up to 2 R of them are rounded to the dtype, by eta / 2 where it is subnormal. */
static double stored_lse(const struct cpa_bound_run *run)
{
	double eta = run->problem->dtype == CPA_DTYPE_FP16 ? 0x1p-24 : 0.0;
	double R = run->R + (run->problem->rule.sink ? 1.0 : 0.0);

	return run->partials == CPA_PARTIALS_ALL ? 1.01 * 2.0 * R * eta / 2.0 : 0.0;
}

static void assert_formulas(struct cpa_bound_run run, const struct cpa_row *row)
{
	struct cpa_bound want = formulas(&run, row, 2.5), got;

	cpa_bound_row(&run, row, 2.5, &got);
	assert_close(got.o_abs, want.o_abs + stored(&run));
	assert_close(got.o_rel, want.o_rel);
	assert_close(got.lse, want.lse + stored_lse(&run));
	assert_close(
		got.soft_row, want.soft_row + stored(&run) * sqrt((double)run.problem->Dv));
	assert_close(got.soft_lse, want.soft_lse + stored_lse(&run));
}

/* Every rule: none, truth values (which round nothing), a bias, and each with a sink. */
static void assert_rules(struct cpa_bound_run run, const struct cpa_row *row)
{
	static const double sink = 1.0;
	struct cpa_problem problem = *run.problem;

	run.problem = &problem;
	for (int i = 0; i < 6; i++) {
		problem.rule.mask.kind = (enum cpa_mask_kind[]){ CPA_MASK_NONE, CPA_MASK_BOOL,
			CPA_MASK_BIAS }[i % 3];
		problem.rule.sink = i / 3 ? &sink : NULL;
		assert_formulas(run, row);
	}
}

static void every_term_of_the_formulas_is_there(void **state)
{
	static const struct cpa_arithmetic arithmetics[] = {
		{ 0x1p-24, 8.0, 512.0, 1.0 / 512.0, true },
		{ 0x1p-24, 2.0, 0.0, 1.0, false },
		{ 0x1p-22, 30.0, 1e9, 0.0, true },
	};

	(void)state;
	for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
		struct cpa_problem problem = { .B = 1,
			.Sq = 1,
			.Skv = 9999,
			.Hq = 1,
			.Hkv = 1,
			.D = 1 + 30 * i,
			.Dv = 7,
			.dtype = CPA_DTYPE_FP32 + i % 3,
			.scale = 1.0 };
		struct cpa_bound_run run = { &problem, arithmetics[i / 3 % 3],
			CPA_PARTIALS_FP32 + i / 9 % 3, CPA_DTYPE_FP32, 1 + 3 * (i / 27) };
		struct cpa_row row = plain_row;
		struct cpa_bound want, got;

		assert_rules(run, &row);
		row.max_abs = 100.0; /* more, and the reference's own rounding of a bias shows */
		row.a = 0.0;
		row.k_max = 0.0;
		row.lse = -3.0;
		row.max_score = -4.0;
		row.equal = true;
		assert_rules(run, &row);
		row.nvisible = 1;
		assert_rules(run, &row);
		row.equal = false;
		row.a = 1e30; /* o is any average of the same values */
		want = formulas(&run, &row, 2.5);
		cpa_bound_row(&run, &row, 2.5, &got);
		assert_close(got.o_abs, want.o_abs + stored(&run));
		run.partial_dtype = CPA_DTYPE_FP64;
		assert_rules(run, &plain_row);
	}
}

static struct cpa_bound bound_of(enum cpa_dtype dtype, enum cpa_dtype partial, double u, int R,
	const struct cpa_row *row)
{
	struct cpa_problem problem = { .B = 1,
		.Sq = 1,
		.Skv = 9999,
		.Hq = 1,
		.Hkv = 1,
		.D = 64,
		.Dv = 64,
		.dtype = dtype,
		.scale = 1.0 };
	struct cpa_bound_run run = { &problem, { u, 8.0, 64.0, 1.0 / 64.0, true },
		CPA_PARTIALS_FP32, partial, R };
	struct cpa_bound bound;

	cpa_bound_row(&run, row, 2.5, &bound);
	return bound;
}

/* In fp64 the reference is no better than what is judged: its own error is in the bound. */
static void the_error_of_the_reference_is_included(void **state)
{
	struct cpa_problem problem = { .B = 1,
		.Sq = 1,
		.Skv = 9999,
		.Hq = 1,
		.Hkv = 1,
		.D = 64,
		.Dv = 64,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1.0 };
	struct cpa_bound_run run = { &problem, { 0x1p-53, 4.0, 65.0, 1.0 / 64.0, false },
		CPA_PARTIALS_FP32, CPA_DTYPE_FP64, 1 };
	struct cpa_bound want = formulas(&run, &plain_row, 2.5), got;
	double own_lse = want.lse + 1.01 * (0x1p-53 - 0x1p-24) * plain_row.lse;
	double own_row =
		1.01 *
		(2.0 * 0x1p-53 * (66.0 * 11.0 + log(3000.0) + 4.0 + 65.0 + 3000.0 / 64.0) +
			(69.0 + 3000.0 / 64.0 + 1.0) * 0x1p-53) *
		sqrt(50.0);

	(void)state;
	cpa_bound_row(&run, &plain_row, 2.5, &got);
	assert_close(got.o_abs, 2.0 * want.o_abs + 1.01 * 0x1p-53 * plain_row.V);
	assert_close(got.lse, 2.0 * own_lse);
	assert_close(got.soft_row, want.soft_row + 3.0 * own_row);
	assert_close(got.soft_lse, want.soft_lse + (own_lse - want.lse) + 3.0 * own_lse);
}

static void a_row_without_keys_has_no_tolerance(void **state)
{
	struct cpa_row row = { .lse = -INFINITY };
	struct cpa_bound bound = bound_of(CPA_DTYPE_BF16, CPA_DTYPE_FP32, 0x1p-24, 8, &row);

	(void)state;
	assert_true(bound.o_abs == 0.0 && bound.o_rel == 0.0 && bound.lse == 0.0);
	assert_true(bound.soft_row == 0.0 && bound.soft_lse == 0.0);
}

/* The sink alone: o is 0 in any arithmetic, lse rounds like any other. */
static void a_row_with_a_sink_alone_has_a_tolerance_for_lse_alone(void **state)
{
	static const double sink = -7.0;
	struct cpa_problem problem = { .D = 64, .Dv = 64, .dtype = CPA_DTYPE_FP32 };
	struct cpa_bound_run run = { &problem, { 0x1p-24, 8.0, 512.0, 0.0, false },
		CPA_PARTIALS_FP32, CPA_DTYPE_FP32, 2 };
	struct cpa_row row = { .lse = -7.0, .max_score = -7.0, .max_abs = 7.0, .equal = true };
	struct cpa_bound bound;

	(void)state;
	problem.rule.sink = &sink;
	cpa_bound_row(&run, &row, 0.0, &bound);
	assert_true(bound.o_abs == 0.0 && bound.o_rel == 0.0 && bound.soft_row == 0.0);
	/* X: c_exp and a chain of 1; two merges, and 7 once more each: M, max + log, stored. */
	assert_close(bound.lse, 1.01 * 0x1p-24 * (8.0 + 1.0 + 2.0 * 11.0 + 7.0 * 3.0));
}

/* Values that are all 0 and scores of 1e38: 0 times infinity must not make a NaN. */
static void extreme_rows_have_a_bound(void **state)
{
	struct cpa_row row = { .lse = 1e38,
		.max_score = 1e38,
		.max_abs = 1e38,
		.a = 2e38,
		.k_max = 1e20,
		.nvisible = 3000 };
	struct cpa_bound bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 8, &row);

	(void)state;
	assert_true(bound.o_abs >= 0.0 && bound.o_abs < 1e-40);
	assert_true(bound.soft_row < 2.6 * 0x1p-24); /* u |o*| alone */
	assert_true(bound.lse > 1e30 && bound.lse < 1e34);
	/* A key of exact weight 0 may win among rounded scores: its value must be within. */
	row.V = 1.0;
	row.v_max = 100.0;
	row.Vsum = 1e5;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 8, &row);
	assert_true(bound.o_abs >= 101.0 && bound.o_abs < 102.1);
	row.V = 0.0;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 8, &row);
	assert_true(bound.o_abs >= 100.0 && bound.o_abs < 101.1);
	/* The same where exp does not overflow yet: weights off by a factor e^4. */
	row.lse = row.max_score = row.max_abs = 50.0;
	row.a = 5e5;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	assert_true(bound.o_abs >= 100.0 && bound.o_abs < 101.1);
}

/* Weights that float flushes, float sums of subnormal values, q below the normal numbers. */
static void underflow_is_within_the_bound(void **state)
{
	struct cpa_row row = { .lse = 0.0,
		.max_score = 0.0,
		.max_abs = 100.0,
		.a = 1e-30,
		.k_max = 1e30,
		.v_max = 1e36,
		.V = 1e-8,
		.Vsum = 1e36,
		.nvisible = 3000 };
	double tiny_sums = 1.01 * 3009.0 * 0x1p-149;
	struct cpa_bound bound, without;

	(void)state;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	assert_true(bound.o_abs > 0x1p-126 * 1e36 && bound.o_abs < 1.1 * 0x1p-126 * 1e36);
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 5, &row);
	assert_true(bound.o_abs > 5 * 0x1p-126 * 1e36 && bound.o_abs < 5.1 * 0x1p-126 * 1e36);
	/* All in double: the same values need no such allowance; float partials do. */
	bound = bound_of(CPA_DTYPE_FP64, CPA_DTYPE_FP64, 0x1p-53, 5, &row);
	assert_true(bound.o_abs < 1e-19 && bound.o_abs > 0.0);
	bound = bound_of(CPA_DTYPE_FP64, CPA_DTYPE_FP32, 0x1p-53, 5, &row);
	assert_true(bound.o_abs > 4 * 0x1p-126 * 1e36);
	row.k_max = 0.0;
	without = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	row.k_max = 1e38;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	assert_close(bound.lse - without.lse, 1.01 * 0x1p-149 * 8.0 * 1e38);
	row.V = row.v_max = row.Vsum = 0.0;
	bound = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 8, &row);
	assert_true(bound.o_abs >= tiny_sums * 0.999 && bound.o_abs < tiny_sums * 1.01);
}

/* Scores may be equal exactly and not as computed: what rounding weights near 1 may then do. */
static void equal_scores_round_weights_by_no_more_than_they_differ(void **state)
{
	struct cpa_row row = plain_row;
	double E = 66.0 * 0x1p-24, difference;
	struct cpa_bound with, without;

	(void)state;
	row.equal = true;
	row.a = 1.0;
	row.k_max = 0.0;
	with = bound_of(CPA_DTYPE_BF16, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	without = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	difference = with.o_abs - without.o_abs;
	assert_true(fabs(difference - 1.01 * 4.0 * E * row.V) < 1e-9);
	row.a = 1e4;
	with = bound_of(CPA_DTYPE_BF16, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	without = bound_of(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 0x1p-24, 1, &row);
	assert_true(fabs(with.o_abs - without.o_abs - 1.01 * 0x1p-8 * row.V) < 1e-9);
}

static void partials_have_names(void **state)
{
	(void)state;
	assert_string_equal(cpa_partials_name(CPA_PARTIALS_FP32), "fp32");
	assert_string_equal(cpa_partials_name(CPA_PARTIALS_BLOCK), "block");
	assert_string_equal(cpa_partials_name(CPA_PARTIALS_ALL), "all");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_term_of_the_formulas_is_there),
		cmocka_unit_test(the_error_of_the_reference_is_included),
		cmocka_unit_test(a_row_without_keys_has_no_tolerance),
		cmocka_unit_test(a_row_with_a_sink_alone_has_a_tolerance_for_lse_alone),
		cmocka_unit_test(extreme_rows_have_a_bound),
		cmocka_unit_test(underflow_is_within_the_bound),
		cmocka_unit_test(equal_scores_round_weights_by_no_more_than_they_differ),
		cmocka_unit_test(partials_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
