/*
 * test_probe.h - a probe, its inputs, and full attention on them; for the tests of probes.
 * Include after cmocka.h.
 */
#ifndef CPA_TEST_PROBE_H
#define CPA_TEST_PROBE_H

#include <stdlib.h>
#include <string.h>

#include "harness/probe.h"

struct fixture {
	struct cpa_probe_problem made;
	struct cpa_problem problem;
	struct cpa_probe probe;
	struct cpa_bound_run run;
	char *q, *k, *v, *o, *lse;
};

static const struct cpa_problem usual = {.B = 2,
	.Sq = 40,
	.Skv = 50,
	.Hq = 6,
	.Hkv = 3,
	.D = 4,
	.Dv = 8,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.5,
	.rule = {.causal = true, .offset = 9},
	.lse = true};

static char *read_all(const struct fixture *f, enum cpa_tensor tensor)
{
	const struct cpa_problem *p = &f->problem;
	int64_t S = cpa_tensor_ntokens(p, tensor);
	struct cpa_inputs inputs = cpa_probe_inputs(&f->probe);
	struct cpa_span span = {0, S, S, 1};
	struct cpa_spans all = {&span, 1, 1};
	char *data = malloc((size_t)(p->B * S) * cpa_token_nbytes(p, tensor));
	inputs.read(inputs.context, tensor, (struct cpa_range){0, p->B}, &all, data);
	return data;
}

static void set_up(
	struct fixture *f, struct cpa_problem problem, enum cpa_probe_kind kind, int pass)
{
	struct cpa_error error;
	memset(f, 0, sizeof *f);
	assert_int_equal(cpa_probe_problem_init(&f->made, &problem, &error), CPA_OK);
	f->problem = f->made.problem;
	assert_true(cpa_probe_init(&f->probe, &f->problem, kind, pass));
	f->run = (struct cpa_bound_run){
		&f->problem, {0x1p-24, 8, 96, 0, false}, CPA_PARTIALS_FP32, CPA_DTYPE_FP32, 1};
	if (problem.dtype == CPA_DTYPE_FP64) {
		f->run.arithmetic.u = 0x1p-53;
		f->run.partial_dtype = CPA_DTYPE_FP64;
	}
	f->q = read_all(f, CPA_TENSOR_Q);
	f->k = read_all(f, CPA_TENSOR_K);
	f->v = read_all(f, CPA_TENSOR_V);
	int64_t rows = problem.B * problem.Sq * problem.Hq;
	f->o = malloc((size_t)(rows * problem.Dv) * 8);
	f->lse = malloc((size_t)rows * 8);
}

static void tear_down(struct fixture *f)
{
	cpa_probe_problem_fini(&f->made);
	free(f->q);
	free(f->k);
	free(f->v);
	free(f->o);
	free(f->lse);
}

/* Full attention on the inputs as they are now, rounded to the dtype, judged. */
static struct cpa_probe_finding attend_and_judge(struct fixture *f)
{
	const struct cpa_problem *p = &f->problem;
	struct cpa_probe_finding finding;
	struct cpa_error error;
	int64_t rows = p->B * p->Sq * p->Hq;
	double *o = malloc((size_t)(rows * p->Dv) * sizeof *o),
	       *lse = malloc((size_t)rows * sizeof *lse);
	assert_int_equal(
		cpa_ref_attention(p, cpa_view_bshd(f->q, p->dtype, p->Sq, p->Hq, p->D),
			cpa_view_bshd(f->k, p->dtype, p->Skv, p->Hkv, p->D),
			cpa_view_bshd(f->v, p->dtype, p->Skv, p->Hkv, p->Dv), o, lse, &error),
		CPA_OK);
	cpa_convert(p->dtype, f->o, CPA_DTYPE_FP64, o, rows * p->Dv);
	cpa_convert(cpa_problem_lse_dtype(p), f->lse, CPA_DTYPE_FP64, lse, rows);
	free(o);
	free(lse);
	assert_int_equal(
		cpa_probe_judge(&f->probe, &f->run, f->o, f->lse, &finding, &error), CPA_OK);
	return finding;
}

#endif
