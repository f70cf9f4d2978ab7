/*
 * test_sample.h - random problems for the tests of ref/.  Include after cmocka's prerequisites.
 */
#ifndef CPA_REF_TEST_SAMPLE_H
#define CPA_REF_TEST_SAMPLE_H

#include "ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct sample {
	struct cpa_problem problem;
	struct cpa_view q, k, v;
	struct cpa_arena arena;
};

static uint64_t rng_state = 1;

static inline uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

/* A sum of four uniform numbers: near enough to a normal one here. */
static inline double rng_value(void)
{
	double sum = 0.0;

	for (int i = 0; i < 4; i++)
		sum += (double)(rng() >> 11) * 0x1p-53 - 0.5;
	return 1.7 * sum;
}

static inline int64_t rng_below(int64_t n)
{
	return (int64_t)(rng() >> 8) % n;
}

/* [B, S, H, D] or, if head_major, [B, H, S, D + pad] with a hole behind each row. */
static inline struct cpa_view make_view(
	struct sample *sample, int64_t S, int64_t H, int64_t D, bool head_major, int64_t pad)
{
	const struct cpa_problem *problem = &sample->problem;
	int64_t width = D + pad, n = problem->B * S * H * width;
	void *data = cpa_arena_alloc(&sample->arena, (size_t)n * 8);
	struct cpa_view view = cpa_view_bshd(data, problem->dtype, S, H, D);

	assert_non_null(data);
	if (head_major || pad > 0) {
		view.batch = S * H * width;
		view.token = head_major ? width : H * width;
		view.head = head_major ? S * width : width;
	}
	for (int64_t i = 0; i < n; i++)
		cpa_store(
			problem->dtype, data, i, pad > 0 && i % width >= D ? NAN : rng_value());
	return view;
}

static inline void sample_init(
	struct sample *sample, struct cpa_problem problem, bool head_major, int64_t pad)
{
	struct cpa_error error;

	assert_int_equal(cpa_problem_check(&problem, &error), CPA_OK);
	sample->problem = problem;
	cpa_arena_init(&sample->arena);
	sample->q = make_view(sample, problem.Sq, problem.Hq, problem.D, head_major, pad);
	sample->k = make_view(sample, problem.Skv, problem.Hkv, problem.D, head_major, pad);
	sample->v = make_view(sample, problem.Skv, problem.Hkv, problem.Dv, head_major, pad);
}

static inline double get(struct cpa_view view, int64_t b, int64_t t, int64_t h, int64_t d)
{
	return cpa_load(
		view.dtype, view.data, b * view.batch + t * view.token + h * view.head + d);
}

static inline void put(
	struct cpa_view view, int64_t b, int64_t t, int64_t h, int64_t d, double x)
{
	cpa_store(view.dtype, (void *)view.data,
		b * view.batch + t * view.token + h * view.head + d, x);
}

static inline struct cpa_problem small_problem(int64_t Skv, int64_t D, int64_t Dv)
{
	return (struct cpa_problem){ .B = 1,
		.Sq = 1,
		.Skv = Skv,
		.Hq = 1,
		.Hkv = 1,
		.D = D,
		.Dv = Dv,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1.0 };
}

/* One row by cpa_ref_row().   o [Dv], p [Skv] out */
static inline struct cpa_row run_row(
	const struct sample *sample, int64_t b, int64_t h, int64_t t, double *o, double *p)
{
	int64_t kv_head = h / (sample->problem.Hq / sample->problem.Hkv);
	struct cpa_ref_head *head;
	struct cpa_error error;
	struct cpa_row row;

	assert_int_equal(cpa_ref_head_create(&sample->problem, sample->k, sample->v, b, kv_head,
				 &head, &error),
		CPA_OK);
	cpa_ref_row(head, sample->q, h, t, o, &row, p);
	cpa_ref_head_destroy(head);
	return row;
}

static inline void assert_near(double got, long double want, long double tolerance)
{
	if (!(fabsl(got - want) <= tolerance))
		fail_msg("%.17g is not %.17Lg to within %Lg, but %Lg off", got, want, tolerance,
			fabsl(got - want));
}

#endif
