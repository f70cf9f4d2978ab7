/*
 * test_judge.c - the rules of right and wrong, on outputs spoilt by hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/judge.h"

/* One call with its truth, and outputs that start as the truth rounded to the dtype. */
struct fixture {
	struct cpa_problem problem;
	struct cpa_tensors tensors;
	void *q, *k, *v, *o, *lse;
	struct cpa_truth *truth;
	struct cpa_judge_run run;
	struct cpa_judgement judgement;
};

static const struct cpa_problem usual = {.B = 2,
	.Sq = 33,
	.Skv = 37,
	.Hq = 4,
	.Hkv = 2,
	.D = 8,
	.Dv = 32,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.35,
	.rule = {.causal = true, .offset = 4},
	.lse = true};

static void *filled(const struct cpa_problem *p, char tensor)
{
	int64_t S = tensor == 'q' ? p->Sq : p->Skv, H = tensor == 'q' ? p->Hq : p->Hkv;
	int64_t D = tensor == 'v' ? p->Dv : p->D;
	void *data = malloc((size_t)(p->B * S * H * D) * 8);
	for (int64_t i = 0; i < p->B * S * H * D; i++)
		cpa_store(p->dtype, data, i,
			cpa_fill_value(CPA_FILL_NORMAL, p, 7, tensor, i / (S * H * D),
				i / (H * D) % S, i / D % H, i % D));
	return data;
}

static void set_up(struct fixture *f, struct cpa_problem problem, const bool *wanted)
{
	struct cpa_error error;
	memset(f, 0, sizeof *f);
	f->problem = problem;
	const struct cpa_problem *p = &f->problem;
	f->q = filled(p, 'q');
	f->k = filled(p, 'k');
	f->v = filled(p, 'v');
	f->tensors = (struct cpa_tensors){p, f->q, f->k, f->v};
	assert_int_equal(cpa_truth_create(&f->tensors, wanted, &f->truth, &error), CPA_OK);
	int64_t rows = p->B * p->Sq * p->Hq;
	double *o = malloc((size_t)(rows * p->Dv) * sizeof *o),
	       *lse = malloc((size_t)rows * sizeof *lse);
	assert_int_equal(
		cpa_ref_attention(p, cpa_view_bshd(f->q, p->dtype, p->Sq, p->Hq, p->D),
			cpa_view_bshd(f->k, p->dtype, p->Skv, p->Hkv, p->D),
			cpa_view_bshd(f->v, p->dtype, p->Skv, p->Hkv, p->Dv), o, lse, &error),
		CPA_OK);
	f->o = malloc((size_t)(rows * p->Dv) * 8);
	f->lse = malloc((size_t)rows * 8);
	cpa_convert(p->dtype, f->o, CPA_DTYPE_FP64, o, rows * p->Dv);
	cpa_convert(cpa_problem_lse_dtype(p), f->lse, CPA_DTYPE_FP64, lse, rows);
	free(o);
	free(lse);
	f->run = (struct cpa_judge_run){.bound = {.problem = p,
						.arithmetic = {0x1p-24, 8, 100, 0, false},
						.partials = CPA_PARTIALS_FP32,
						.partial_dtype = CPA_DTYPE_FP32,
						.R = 3},
		.o = f->o,
		.lse = f->lse};
}

static void tear_down(struct fixture *f)
{
	cpa_truth_destroy(f->truth);
	free(f->q);
	free(f->k);
	free(f->v);
	free(f->o);
	free(f->lse);
}

static struct cpa_judgement *judge(struct fixture *f)
{
	struct cpa_error error;
	assert_int_equal(cpa_judge(f->truth, &f->run, &f->judgement, &error), CPA_OK);
	return &f->judgement;
}

static int64_t row_of(const struct fixture *f, int64_t b, int64_t t, int64_t h)
{
	return (b * f->problem.Sq + t) * f->problem.Hq + h;
}

static void add_to_o(struct fixture *f, int64_t row, int64_t d, double x)
{
	int64_t at = row * f->problem.Dv + d;
	cpa_store(f->problem.dtype, f->o, at, cpa_load(f->problem.dtype, f->o, at) + x);
}

static void add_to_lse(struct fixture *f, int64_t row, double x)
{
	enum cpa_dtype dtype = cpa_problem_lse_dtype(&f->problem);
	cpa_store(dtype, f->lse, row, cpa_load(dtype, f->lse, row) + x);
}

static void expect_place(
	const struct cpa_deviation *d, int64_t b, int64_t t, int64_t h, int64_t dim)
{
	assert_int_equal(d->batch, b);
	assert_int_equal(d->token, t);
	assert_int_equal(d->head, h);
	assert_int_equal(d->dim, dim);
}

/* ---- the hard rule ---- */

static void the_truth_rounded_to_the_dtype_is_right(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct fixture f;
		struct cpa_problem problem = usual;
		problem.dtype = (enum cpa_dtype)dtype;
		set_up(&f, problem, NULL);
		const struct cpa_judgement *j = judge(&f);
		assert_true(j->right);
		assert_true(j->o.ratio <= 1.0 && j->lse.ratio <= 1.0);
		assert_true(isnan(j->o.soft_ratio));
		assert_true(j->o.rel_l2 <= 2.0 * cpa_dtype_roundoff(problem.dtype));
		tear_down(&f);
	}
}

static void an_element_outside_its_bound_is_wrong_and_named(void **state)
{
	(void)state;
	struct fixture f;
	set_up(&f, usual, NULL);
	judge(&f);
	add_to_o(&f, row_of(&f, 1, 17, 3), 21, 1e-3);
	const struct cpa_judgement *j = judge(&f);
	assert_false(j->right);
	expect_place(&j->o, 1, 17, 3, 21);
	assert_true(fabs(j->o.error - 1e-3) < 1e-6);
	assert_true(j->o.ratio > 1.0 && j->o.ratio == j->o.error / j->o.bound);
	assert_true(j->lse.ratio <= 1.0); /* o and lse are judged apart */
	tear_down(&f);
}

static void the_bound_itself_is_the_limit(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.dtype = CPA_DTYPE_FP64; /* so that what is added is not rounded away */
	set_up(&f, problem, NULL);
	int64_t row = row_of(&f, 0, 20, 1);
	struct cpa_bound bound;
	cpa_bound_row(&f.run.bound, &f.truth->rows[row], f.truth->o_norm[row], &bound);
	double allowed = bound.o_abs + bound.o_rel * fabs(f.truth->o[row * problem.Dv + 5]);
	add_to_o(&f, row, 5, 0.99 * allowed);
	add_to_lse(&f, row, -0.99 * bound.lse);
	assert_true(judge(&f)->right);
	add_to_o(&f, row, 5, 0.02 * allowed);
	assert_false(judge(&f)->right);
	add_to_o(&f, row, 5, -0.02 * allowed);
	add_to_lse(&f, row, -0.02 * bound.lse);
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.lse, 0, 20, 1, -1);
	tear_down(&f);
}

static void what_was_never_written_is_found_in_rows_that_are_not_judged(void **state)
{
	(void)state;
	bool wanted[33] = {false};
	wanted[0] = wanted[16] = wanted[32] = true;
	struct fixture f;
	set_up(&f, usual, wanted);
	assert_int_equal(f.truth->n, 3);
	assert_true(judge(&f)->right);
	int64_t row = row_of(&f, 0, 5, 2);
	add_to_o(&f, row, 3, 1.0); /* not judged */
	assert_true(judge(&f)->right);
	memset((float *)f.o + row * f.problem.Dv + 3, 0xff, sizeof(float));
	assert_false(judge(&f)->right);
	assert_false(f.judgement.o_written);
	assert_true(f.judgement.lse_written);
	assert_true(isnan(f.judgement.o.error) && isinf(f.judgement.o.ratio));
	expect_place(&f.judgement.o, 0, 5, 2, 3);
	add_to_lse(&f, row, INFINITY);
	assert_false(judge(&f)->lse_written);
	expect_place(&f.judgement.lse, 0, 5, 2, -1);
	tear_down(&f);
}

static void nan_in_a_judged_row_is_worse_than_any_number(void **state)
{
	(void)state;
	struct fixture f;
	set_up(&f, usual, NULL);
	add_to_o(&f, row_of(&f, 0, 3, 0), 0, 1e30);
	add_to_o(&f, row_of(&f, 1, 4, 1), 2, NAN);
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.o, 1, 4, 1, 2);
	tear_down(&f);
}

static void a_row_without_keys_is_exactly_zero_and_minus_infinity(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.rule.offset = -2; /* queries 0 and 1 see nothing */
	set_up(&f, problem, NULL);
	int64_t row = row_of(&f, 1, 1, 2);
	assert_true(f.truth->rows[row].lse == -INFINITY);
	assert_true(judge(&f)->right);
	add_to_o(&f, row, 7, 1e-30);
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.o, 1, 1, 2, 7);
	cpa_store(problem.dtype, f.o, row * problem.Dv + 7, 0.0);
	cpa_store(CPA_DTYPE_FP32, f.lse, row, 0.0); /* what torch's CPU kernel returns */
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.lse, 1, 1, 2, -1);
	cpa_store(CPA_DTYPE_FP32, f.lse, row, -INFINITY);
	add_to_lse(&f, row_of(&f, 1, 5, 2), -INFINITY); /* and this row sees keys */
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.lse, 1, 5, 2, -1);
	tear_down(&f);
}

static void the_truth_is_right_under_every_rule(void **state)
{
	(void)state;
	static const int64_t documents[] = {0, 5, 5, 33}, lengths[] = {0, 20};
	static const double sink[] = {0.5, -3.0, 90.0, -1e4};
	static uint8_t visible[33 * 33];
	static float bias[4 * 33];
	for (int i = 0; i < 33 * 33; i++) {
		visible[i] = i % 7 % 3 != 0;
		bias[i % (4 * 33)] = i % 5 ? (float)(i % 11) - 5.0f : -INFINITY;
	}
	const struct cpa_mask masks[] = {{.kind = CPA_MASK_NONE},
		{CPA_MASK_BOOL, CPA_DTYPE_FP32, visible, 0, 0, 33, 1, NULL},
		{CPA_MASK_BIAS, CPA_DTYPE_FP32, bias, 0, 33, 0, 1, NULL}};
	for (int i = 0; i < 48; i++) {
		struct fixture f;
		struct cpa_problem problem = usual;
		problem.Skv = 33;
		problem.rule = (struct cpa_rule){.window = i & 1, .left = 4, .right = 1,
			.sink = i & 2 ? sink : NULL, .key_lengths = i & 8 ? lengths : NULL,
			.documents = i & 4 ? documents : NULL, .ndocuments = i & 4 ? 3 : 0,
			.mask = masks[i / 16]};
		set_up(&f, problem, NULL);
		if (!judge(&f)->right)
			fail_msg("rule %d: %g, %g", i, f.judgement.o.ratio, f.judgement.lse.ratio);
		tear_down(&f);
	}
}

static void a_row_without_keys_is_its_sink_alone(void **state)
{
	(void)state;
	static const double sink[] = {0.5, -3.0, 90.0, 0.0};
	static const int64_t lengths[] = {0, 37};
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.rule.sink = sink;
	problem.rule.key_lengths = lengths;
	set_up(&f, problem, NULL);
	assert_true(judge(&f)->right);
	int64_t row = row_of(&f, 0, 20, 2);
	assert_true(f.truth->rows[row].lse == 90.0);
	add_to_o(&f, row, 3, 1e-30); /* 0 is exact: nothing is added up */
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.o, 0, 20, 2, 3);
	cpa_store(problem.dtype, f.o, row * problem.Dv + 3, 0.0);
	cpa_store(CPA_DTYPE_FP32, f.lse, row, -INFINITY); /* as if there were no sink */
	assert_false(judge(&f)->right);
	expect_place(&f.judgement.lse, 0, 20, 2, -1);
	tear_down(&f);
}

static void without_lse_only_o_is_judged(void **state)
{
	(void)state;
	struct fixture f;
	set_up(&f, usual, NULL);
	f.run.lse = NULL;
	assert_true(judge(&f)->right);
	assert_true(isnan(f.judgement.lse.ratio));
	assert_int_equal(f.judgement.lse.token, -1);
	tear_down(&f);
}

/* ---- the soft rule ---- */

/* Errors far within the hard bound of bf16, all over one head. */
static void spoil_head(struct fixture *f, int64_t b, int64_t h, double by)
{
	for (int64_t t = 0; t < f->problem.Sq; t++)
		for (int64_t d = 0; d < f->problem.Dv; d++)
			add_to_o(f, row_of(f, b, t, h), d, by);
}

static void a_head_that_is_off_everywhere_fails_the_soft_rule_alone(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.dtype = CPA_DTYPE_BF16;
	problem.rule.causal = false;
	set_up(&f, problem, NULL);
	struct cpa_head_error one_rank[8];
	f.run.measured = one_rank;
	f.run.bound.arithmetic.rounds_p = true;
	judge(&f);
	f.run.measured = NULL;
	f.run.one_rank = one_rank;
	assert_true(judge(&f)->right);
	/* As far off as one rank: its error is counted twice, and the floor is never negative.
	 */
	assert_true(f.judgement.o.soft_ratio <= 0.5 && f.judgement.lse.soft_ratio <= 0.5);
	spoil_head(&f, 1, 2, 0.004);
	assert_false(judge(&f)->right);
	assert_true(f.judgement.o.ratio <= 1.0);
	assert_true(f.judgement.o.soft_ratio > 1.0);
	assert_int_equal(f.judgement.o_soft_batch, 1);
	assert_int_equal(f.judgement.o_soft_head, 2);
	assert_true(f.judgement.lse.soft_ratio <= 1.0);
	tear_down(&f);
}

static void few_numbers_have_no_soft_rule(void **state)
{
	(void)state;
	struct fixture f;
	struct cpa_problem problem = usual;
	problem.Dv = 31; /* 33 x 31 = 1023 */
	set_up(&f, problem, NULL);
	struct cpa_head_error one_rank[8] = {{0.0, 0.0}};
	f.run.one_rank = one_rank;
	assert_true(isnan(judge(&f)->o.soft_ratio));
	tear_down(&f);
	problem.Sq = problem.Dv = 32;
	set_up(&f, problem, NULL);
	f.run.one_rank = one_rank;
	assert_false(isnan(judge(&f)->o.soft_ratio));
	tear_down(&f);
}

static void elements_that_are_not_finite_are_found_in_every_dtype(void **state)
{
	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		enum cpa_dtype d = (enum cpa_dtype)dtype;
		uint64_t room[5] = {0};
		for (int i = 0; i < 5; i++)
			cpa_store(d, room, i, i % 2 ? -cpa_dtype_max(d) : cpa_dtype_max(d));
		assert_int_equal(cpa_find_not_finite(d, room, 5, false), -1);
		cpa_store(d, room, 3, -INFINITY);
		assert_int_equal(cpa_find_not_finite(d, room, 5, false), 3);
		assert_int_equal(cpa_find_not_finite(d, room, 5, true), -1);
		cpa_store(d, room, 2, INFINITY);
		assert_int_equal(cpa_find_not_finite(d, room, 5, true), 2);
		memset(room, 0xff, cpa_dtype_nbytes(d)); /* poison */
		assert_int_equal(cpa_find_not_finite(d, room, 5, true), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_truth_rounded_to_the_dtype_is_right),
		cmocka_unit_test(an_element_outside_its_bound_is_wrong_and_named),
		cmocka_unit_test(the_bound_itself_is_the_limit),
		cmocka_unit_test(what_was_never_written_is_found_in_rows_that_are_not_judged),
		cmocka_unit_test(nan_in_a_judged_row_is_worse_than_any_number),
		cmocka_unit_test(a_row_without_keys_is_exactly_zero_and_minus_infinity),
		cmocka_unit_test(the_truth_is_right_under_every_rule),
		cmocka_unit_test(a_row_without_keys_is_its_sink_alone),
		cmocka_unit_test(without_lse_only_o_is_judged),
		cmocka_unit_test(a_head_that_is_off_everywhere_fails_the_soft_rule_alone),
		cmocka_unit_test(few_numbers_have_no_soft_rule),
		cmocka_unit_test(elements_that_are_not_finite_are_found_in_every_dtype),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
