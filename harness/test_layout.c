/*
 * test_layout.c - the three layouts of the caller's arrays give the same bits, and memory holds
 * what the layout says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/place.h"
#include "harness/ranks.h"

/* Tensors of one problem, and the outputs of its run in BSHD. */
struct bench {
	struct cpa_problem problem;
	struct cpa_device *device;
	void *in[3], *o, *lse;
	size_t o_nbytes, lse_nbytes;
	int nruns;
};

static void set_up(struct bench *b, const struct cpa_problem *problem, const char *device)
{
	struct cpa_error error;
	*b = (struct bench){.problem = *problem};
	size_t rows = (size_t)(problem->B * problem->Sq);
	b->o_nbytes = rows * cpa_token_nbytes(problem, CPA_TENSOR_O);
	b->lse_nbytes = rows * cpa_token_nbytes(problem, CPA_TENSOR_LSE);
	b->o = malloc(b->o_nbytes);
	b->lse = malloc(b->lse_nbytes);
	for (int t = 0; t < 3; t++) {
		enum cpa_tensor tensor = (enum cpa_tensor)t;
		b->in[t] = malloc((size_t)(problem->B * cpa_tensor_ntokens(problem, tensor)) *
			cpa_token_nbytes(problem, tensor));
		cpa_inputs_fill(problem, CPA_FILL_NORMAL, 3, tensor, b->in[t]);
	}
	assert_int_equal(cpa_device_create(device, &b->device, &error), CPA_OK);
}

static void tear_down(struct bench *b)
{
	for (int t = 0; t < 3; t++)
		free(b->in[t]);
	free(b->o);
	free(b->lse);
	cpa_device_destroy(b->device);
}

/* One run in a layout, up to its outputs in o and lse; false: refused.  Fini in any case. */
static bool run(struct bench *b, struct cpa_problem *problem, struct cpa_config config,
	enum cpa_layout layout, struct cpa_ranks *ranks, void *o, void *lse)
{
	struct cpa_error error = {""};
	const struct cpa_tensors tensors = {problem, b->in[0], b->in[1], b->in[2]};
	struct cpa_inputs inputs = cpa_inputs_dense(&tensors);
	*problem = b->problem;
	problem->layout = layout;
	enum cpa_status s = cpa_ranks_plan(ranks, problem, &config, &error);
	if (s == CPA_UNSUPPORTED)
		return false;
	if (s == CPA_OK)
		s = cpa_ranks_start(ranks, b->device, NULL, NULL, &error);
	if (s == CPA_OK)
		s = cpa_ranks_upload(ranks, &inputs, &error);
	if (s == CPA_OK)
		s = cpa_ranks_run(ranks, CPA_FAKE_RENDEZVOUS, 4, &error);
	if (s == CPA_OK)
		s = cpa_ranks_download(ranks, o, lse, &error);
	if (s != CPA_OK)
		fail_msg("%s %dx%dx%d %s, layout %s: %s", cpa_variant_info(config.variant)->name,
			config.batch_degree, config.ring_degree, config.ulysses_degree,
			cpa_rotate_name(config.rotate), cpa_layout_name(layout), error.text);
	return true;
}

static bool can_be_fused(const struct cpa_problem *p)
{
	return p->Sq == p->Skv && p->D == p->Dv;
}

/* The transport and the device count what the plan says, so this also holds bytes. */
static void expect_same_bits(struct bench *b, struct cpa_config config)
{
	struct cpa_ranks ranks;
	struct cpa_problem problem;
	void *o = malloc(b->o_nbytes), *lse = malloc(b->lse_nbytes);
	bool runs = run(b, &problem, config, CPA_LAYOUT_BSHD, &ranks, b->o, b->lse);
	cpa_ranks_fini(&ranks);
	for (int layout = CPA_LAYOUT_BHSD; layout <= CPA_LAYOUT_FUSED; layout++) {
		if (layout == CPA_LAYOUT_FUSED && !can_be_fused(&b->problem))
			continue;
		assert_int_equal(
			runs, run(b, &problem, config, (enum cpa_layout)layout, &ranks, o, lse));
		if (runs) {
			assert_memory_equal(o, b->o, b->o_nbytes);
			assert_memory_equal(lse, b->lse, b->lse_nbytes);
			b->nruns++;
		}
		cpa_ranks_fini(&ranks);
	}
	free(o);
	free(lse);
}

/* Every variant on meshes that suit it, in every rotation and direction. */
static void sweep(struct bench *b)
{
	static const struct {
		int N, R, U;
	} meshes[] = {
		{1, 1, 1}, {1, 3, 1}, {2, 4, 1}, {1, 1, 2}, {2, 1, 3}, {1, 2, 2}, {2, 3, 2}};
	for (int v = 0; v < CPA_NVARIANTS; v++)
		for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
			for (int rotate = 0; rotate < 3; rotate++) {
				const struct cpa_variant_info *info = cpa_variant_info(
					(enum cpa_variant)v);
				struct cpa_config c = cpa_config_default(
					(enum cpa_variant)v, &b->problem);
				c.batch_degree = meshes[m].N;
				c.ring_degree = meshes[m].R;
				c.ulysses_degree = meshes[m].U;
				c.rotate = (enum cpa_rotate)rotate;
				c.direction = rotate == 1 ? -1 : 1;
				c.order = m % 2 ? CPA_ORDER_ZIGZAG : CPA_ORDER_CONTIGUOUS;
				c.partials = (enum cpa_partials)(m % 3);
				if (b->device->fp64_partials)
					c.partial_dtype = CPA_DTYPE_FP64;
				if ((c.ring_degree > 1 && !info->ring) ||
					(c.ulysses_degree > 1 && !info->ulysses) ||
					(c.ring_degree == 1 && rotate > 0))
					continue;
				expect_same_bits(b, c);
			}
}

static void all_layouts_give_the_same_bits(void **state)
{
	(void)state;
	for (int d = 0; cpa_device_name(d); d++)
		for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
			const struct cpa_problem problem = {.B = 2,
				.Sq = 24,
				.Skv = 24,
				.Hq = 12,
				.Hkv = 6,
				.D = 16,
				.Dv = 16,
				.dtype = (enum cpa_dtype)dtype,
				.scale = 0.3,
				.rule = {.causal = true},
				.lse = true};
			struct bench b;
			set_up(&b, &problem, cpa_device_name(d));
			sweep(&b);
			assert_true(b.nruns > 60);
			tear_down(&b);
		}
}

/* Uneven shards and heads, text on every rank, keys of another length and width, one of a kind.
 */
static void uneven_and_replicated_ones_too(void **state)
{
	(void)state;
	static const struct cpa_segment text[2] = {{"text", 5, true}, {"image", 26, false}};
	static const struct cpa_segment keys[2] = {{"text", 6, true}, {"image", 11, false}};
	for (int i = 0; i < 4; i++) {
		struct cpa_problem problem = {.B = i == 3 ? 1 : 3,
			.Sq = 31,
			.Skv = i == 2 ? 17 : 31,
			.Hq = i == 3 ? 1 : 5,
			.Hkv = i == 3 ? 1 : 5,
			.D = 9,
			.Dv = i == 2 ? 4 : 9,
			.dtype = i == 1 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32,
			.scale = 0.3,
			.lse = true,
			.segments = i == 0 ? NULL : text,
			.nsegments = 2,
			.segments_kv = i == 2 ? keys : NULL,
			.nsegments_kv = 2};
		struct bench b;
		set_up(&b, &problem, "cpu");
		sweep(&b);
		assert_true(b.nruns > 10);
		tear_down(&b);
	}
}

/* ---- memory is what the layout says ---- */

/* Element (b, t, h, d) of a dense array [B, S, H, D] of fp64. */
static double at(const void *whole, int64_t S, int64_t H, int64_t D, int64_t b, int64_t t,
	int64_t h, int64_t d)
{
	return ((const double *)whole)[((b * S + t) * H + h) * D + d];
}

static const struct cpa_problem small = {.B = 2,
	.Sq = 6,
	.Skv = 6,
	.Hq = 4,
	.Hkv = 2,
	.D = 3,
	.Dv = 3,
	.dtype = CPA_DTYPE_FP64,
	.scale = 0.5,
	.lse = true};

static const double *memory_of(
	const struct cpa_ranks *ranks, int rank, enum cpa_role role, enum cpa_tensor tensor)
{
	int buffer = cpa_exec_find(ranks->execs[rank], role, tensor);
	assert_true(buffer >= 0);
	return cpa_exec_memory(ranks->execs[rank], buffer);
}

static void lse_in_BHSD_is_batch_head_token(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_ranks ranks;
	struct cpa_problem problem;
	set_up(&b, &small, "ref");
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &b.problem);
	c.ring_degree = 2;
	assert_true(run(&b, &problem, c, CPA_LAYOUT_BHSD, &ranks, b.o, b.lse));
	for (int rank = 0; rank < 2; rank++) {
		const double *lse = memory_of(&ranks, rank, CPA_ROLE_OUTPUT, CPA_TENSOR_LSE);
		const double *o = memory_of(&ranks, rank, CPA_ROLE_OUTPUT, CPA_TENSOR_O);
		const double *k = memory_of(&ranks, rank, CPA_ROLE_INPUT, CPA_TENSOR_K);
		for (int64_t n = 0; n < 2; n++)
			for (int64_t h = 0; h < 4; h++)
				for (int64_t t = 0; t < 3; t++) {
					int64_t row = (n * 4 + h) * 3 + t, token = 3 * rank + t;
					assert_true(
						lse[row] == at(b.lse, 6, 4, 1, n, token, h, 0));
					assert_true(o[3 * row + 2] ==
						at(b.o, 6, 4, 3, n, token, h, 2));
					assert_true(h >= 2 ||
						k[((n * 2 + h) * 3 + t) * 3 + 1] ==
							at(b.in[1], 6, 2, 3, n, token, h, 1));
				}
	}
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

static void a_fused_token_is_the_heads_of_q_then_k_then_v(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_ranks ranks;
	struct cpa_problem problem;
	set_up(&b, &small, "ref");
	struct cpa_config c = cpa_config_default(CPA_VARIANT_ULYSSES, &b.problem);
	c.ulysses_degree = 2;
	assert_true(run(&b, &problem, c, CPA_LAYOUT_FUSED, &ranks, b.o, b.lse));
	for (int rank = 0; rank < 2; rank++) {
		const double *qkv = memory_of(&ranks, rank, CPA_ROLE_INPUT, CPA_TENSOR_Q);
		assert_ptr_equal(qkv, memory_of(&ranks, rank, CPA_ROLE_INPUT, CPA_TENSOR_K));
		assert_ptr_equal(qkv, memory_of(&ranks, rank, CPA_ROLE_INPUT, CPA_TENSOR_V));
		for (int64_t i = 0; i < 2 * 3 * 8 * 3; i++) {
			int64_t n = i / (3 * 8 * 3), t = 3 * rank + i / (8 * 3) % 3,
				h = i / 3 % 8;
			int part = h < 4 ? 0 : h < 6 ? 1 : 2;
			assert_true(qkv[i] ==
				at(b.in[part], 6, part ? 2 : 4, 3, n, t,
					part == 0	    ? h
						: part == 1 ? h - 4
							    : h - 6,
					i % 3));
		}
	}
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

/* One view is taken out and another put in; what stands beside them stays. */
static void a_view_is_moved_alone(void **state)
{
	(void)state;
	struct bench b;
	struct cpa_ranks ranks;
	struct cpa_problem problem;
	struct cpa_error error;
	struct cpa_box k, v;
	double dense[2 * 6 * 2 * 3];
	set_up(&b, &small, "ref");
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &b.problem);
	assert_true(run(&b, &problem, c, CPA_LAYOUT_FUSED, &ranks, b.o, b.lse));
	const struct cpa_exec *exec = ranks.execs[0];
	const double *qkv = memory_of(&ranks, 0, CPA_ROLE_INPUT, CPA_TENSOR_Q);
	assert_true(cpa_schedule_find(ranks.schedules[0], CPA_ROLE_INPUT, CPA_TENSOR_K, &k));
	assert_true(cpa_schedule_find(ranks.schedules[0], CPA_ROLE_INPUT, CPA_TENSOR_V, &v));
	assert_int_equal(cpa_place_get(b.device, exec, &k, dense, &error), CPA_OK);
	assert_memory_equal(dense, b.in[1], sizeof dense);
	assert_int_equal(cpa_place_put(b.device, exec, &v, dense, &error), CPA_OK);
	for (int64_t i = 0; i < 2 * 6 * 8 * 3; i++) {
		int64_t n = i / (6 * 8 * 3), t = i / (8 * 3) % 6, h = i / 3 % 8, d = i % 3;
		assert_true(qkv[i] == (h < 4 ? at(b.in[0], 6, 4, 3, n, t, h, d)
					     : at(b.in[1], 6, 2, 3, n, t, h % 2, d)));
	}
	cpa_ranks_fini(&ranks);
	tear_down(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_layouts_give_the_same_bits),
		cmocka_unit_test(uneven_and_replicated_ones_too),
		cmocka_unit_test(lse_in_BHSD_is_batch_head_token),
		cmocka_unit_test(a_fused_token_is_the_heads_of_q_then_k_then_v),
		cmocka_unit_test(a_view_is_moved_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
