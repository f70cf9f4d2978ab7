/*
 * Tests of real plans on fake ranks: right under every seed, counted exactly, and wrong under
 * some seed as soon as one wait is missing.
 */
#include "sim/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum cpa_fake_mode modes[] = { CPA_FAKE_EAGER, CPA_FAKE_RENDEZVOUS };
static const struct cpa_exec_options poisoned = { .poison = true };
static struct cpa_error error;

enum { MAX_W = 12 };

/* What the contract promises of fp64 on such inputs. */
static const double tolerance = 1e-12;

struct rig {
	struct cpa_problem problem;
	struct cpa_partition *partition;
	struct cpa_device *device;
	struct cpa_fake_world *world;
	struct cpa_schedule *schedules[MAX_W];
	struct cpa_exec *execs[MAX_W];
	int W;
	double *o, *lse; /* the right answer */
};

static double input(
	const struct cpa_problem *p, char letter, int64_t b, int64_t t, int64_t h, int64_t d)
{
	return cpa_fill_value(CPA_FILL_NORMAL, p, 11, letter, b, t, h, d);
}

static double *make_input(
	const struct cpa_problem *p, char letter, int64_t tokens, int64_t heads, int64_t dim)
{
	double *made = malloc((size_t)(p->B * tokens * heads * dim) * sizeof *made), *at = made;

	for (int64_t b = 0; b < p->B; b++)
		for (int64_t t = 0; t < tokens; t++)
			for (int64_t h = 0; h < heads; h++)
				for (int64_t d = 0; d < dim; d++)
					*at++ = input(p, letter, b, t, h, d);
	return made;
}

static void find_answer(struct rig *rig)
{
	const struct cpa_problem *p = &rig->problem;
	int64_t rows = p->B * p->Sq * p->Hq;
	double *q = make_input(p, 'q', p->Sq, p->Hq, p->D);
	double *k = make_input(p, 'k', p->Skv, p->Hkv, p->D);
	double *v = make_input(p, 'v', p->Skv, p->Hkv, p->Dv);

	rig->o = malloc((size_t)(rows * p->Dv) * sizeof *rig->o);
	rig->lse = malloc((size_t)rows * sizeof *rig->lse);
	assert_int_equal(
		cpa_ref_attention(p, cpa_view_bshd(q, CPA_DTYPE_FP64, p->Sq, p->Hq, p->D),
			cpa_view_bshd(k, CPA_DTYPE_FP64, p->Skv, p->Hkv, p->D),
			cpa_view_bshd(v, CPA_DTYPE_FP64, p->Skv, p->Hkv, p->Dv), rig->o,
			rig->lse, &error),
		CPA_OK);
	free(q);
	free(k);
	free(v);
}

/* Calls visit for each element of a shard's input or output buffer. */
static double walk(struct rig *rig, int rank, enum cpa_role role, enum cpa_tensor tensor,
	double (*visit)(struct rig *, enum cpa_tensor, const int64_t at[4], double *element))
{
	struct cpa_coords at = cpa_partition_coords(rig->partition, rank);
	struct cpa_range batches = cpa_partition_batches(rig->partition, at.b);
	int i = cpa_exec_find(rig->execs[rank], role, tensor);
	bool kv = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	double most = 0, *memory;
	struct cpa_arena arena;
	struct cpa_spans tokens;
	const struct cpa_buffer *b;

	if (i < 0)
		return 0;
	cpa_arena_init(&arena);
	tokens = (kv ? cpa_partition_kv_shard : cpa_partition_q_shard)(
		rig->partition, &arena, at.r, at.u);
	b = &cpa_exec_schedule(rig->execs[rank])->buffers[i];
	memory = cpa_exec_memory(rig->execs[rank], i);
	assert_int_equal(b->ntokens, cpa_spans_ntokens(&tokens));
	for (int64_t k = 0; k < cpa_buffer_nbytes(b) / 8; k++) {
		int64_t row = k / b->dim / b->nheads;
		int64_t where[4] = { batches.start + row / b->ntokens,
			cpa_spans_token(&tokens, row % b->ntokens), k / b->dim % b->nheads,
			k % b->dim };

		most = fmax(most, visit(rig, tensor, where, &memory[k]));
	}
	cpa_arena_fini(&arena);
	return most;
}

static double put(struct rig *rig, enum cpa_tensor tensor, const int64_t at[4], double *element)
{
	*element = input(&rig->problem, "qkv"[tensor], at[0], at[1], at[2], at[3]);
	return 0;
}

static double compare(
	struct rig *rig, enum cpa_tensor tensor, const int64_t at[4], double *element)
{
	const struct cpa_problem *p = &rig->problem;
	int64_t row = (at[0] * p->Sq + at[1]) * p->Hq + at[2];
	double right = tensor == CPA_TENSOR_O ? rig->o[row * p->Dv + at[3]] : rig->lse[row];

	if (*element == right)
		return 0; /* -inf included */
	return isnan(*element) ? INFINITY : fabs(*element - right);
}

static double worst(struct rig *rig)
{
	double most = 0;

	for (int r = 0; r < rig->W; r++) {
		most = fmax(most, walk(rig, r, CPA_ROLE_OUTPUT, CPA_TENSOR_O, compare));
		most = fmax(most, walk(rig, r, CPA_ROLE_OUTPUT, CPA_TENSOR_LSE, compare));
	}
	return most;
}

static void make_execs(struct rig *rig)
{
	for (int r = 0; r < rig->W; r++) {
		assert_int_equal(cpa_exec_create(rig->schedules[r], &rig->problem, rig->device,
					 cpa_fake_world_comm(rig->world, r), &poisoned,
					 &rig->execs[r], &error),
			CPA_OK);
		for (enum cpa_tensor tensor = CPA_TENSOR_Q; tensor <= CPA_TENSOR_V; tensor++)
			walk(rig, r, CPA_ROLE_INPUT, tensor, put);
	}
}

static void free_execs(struct rig *rig)
{
	for (int r = 0; r < rig->W; r++)
		cpa_exec_destroy(rig->execs[r]);
	assert_int_equal(rig->device->nbytes, 0);
}

/* False: this variant refuses this problem. */
static bool make_rig(
	struct rig *rig, const struct cpa_problem *problem, struct cpa_config *config)
{
	memset(rig, 0, sizeof *rig);
	rig->problem = *problem;
	config->partial_dtype = CPA_DTYPE_FP64;
	if (cpa_partition_create(problem, config, &rig->partition, &error) != CPA_OK)
		return false;
	rig->W = rig->partition->W;
	assert_true(rig->W <= MAX_W);
	assert_int_equal(cpa_device_create("ref", &rig->device, &error), CPA_OK);
	assert_int_equal(
		cpa_fake_world_create(rig->W, CPA_FAKE_EAGER, 0, &rig->world, &error), CPA_OK);
	for (int r = 0; r < rig->W; r++)
		assert_int_equal(
			cpa_plan_create(rig->partition, r, &rig->schedules[r], &error), CPA_OK);
	find_answer(rig);
	make_execs(rig);
	return true;
}

static void free_rig(struct rig *rig)
{
	free_execs(rig);
	for (int r = 0; r < rig->W; r++)
		cpa_schedule_destroy(rig->schedules[r]);
	cpa_fake_world_destroy(rig->world);
	cpa_device_destroy(rig->device);
	cpa_partition_destroy(rig->partition);
	free(rig->o);
	free(rig->lse);
}

static enum cpa_status run(struct rig *rig, enum cpa_fake_mode mode, uint64_t seed)
{
	cpa_fake_world_reset(rig->world, mode, seed);
	for (int r = 0; r < rig->W; r++)
		assert_int_equal(cpa_exec_reset(rig->execs[r], &error), CPA_OK);
	return cpa_fake_run(rig->world, rig->execs, &error);
}

/* ---- every variant ---- */

static void check_counts(const struct rig *rig)
{
	for (int r = 0; r < rig->W; r++) {
		const struct cpa_comm *comm = cpa_fake_world_comm(rig->world, r);
		struct cpa_counts counts;

		cpa_schedule_count(rig->schedules[r], &rig->problem, &counts);
		assert_int_equal(comm->bytes_sent, counts.bytes_sent);
		assert_int_equal(comm->messages, counts.messages);
	}
}

static const struct cpa_segment whole_keys = { "keys", 6, true };
static const struct cpa_problem problems[] = {
	{ .B = 2,
		.Sq = 24,
		.Skv = 24,
		.Hq = 4,
		.Hkv = 4,
		.D = 3,
		.Dv = 3,
		.scale = 0.7,
		.lse = true },
	{ .B = 3,
		.Sq = 13,
		.Skv = 13,
		.Hq = 6,
		.Hkv = 2,
		.D = 2,
		.Dv = 3,
		.scale = 0.7,
		.lse = true,
		.rule = { .causal = true } },
	{ .B = 1,
		.Sq = 5,
		.Skv = 9,
		.Hq = 3,
		.Hkv = 1,
		.D = 2,
		.Dv = 1,
		.scale = 1.1,
		.lse = true,
		.rule = { .causal = true, .offset = -2 } },
	{ .B = 1, .Sq = 3, .Skv = 2, .Hq = 2, .Hkv = 2, .D = 2, .Dv = 2, .scale = 1.1 },
	{ .B = 2,
		.Sq = 7,
		.Skv = 6,
		.Hq = 4,
		.Hkv = 2,
		.D = 2,
		.Dv = 2,
		.scale = 1,
		.lse = true,
		.segments_kv = &whole_keys,
		.nsegments_kv = 1 },
};

static const int degrees[][3] = { { 1, 1, 1 }, { 1, 2, 1 }, { 1, 5, 1 }, { 1, 1, 2 },
	{ 1, 1, 5 }, { 1, 3, 2 }, { 1, 2, 3 }, { 2, 3, 2 }, { 3, 1, 2 }, { 2, 2, 2 } };

static void every_plan_is_right_under_every_seed_and_counts_exactly(void **state)
{
	int nruns = 0;

	(void)state;
	for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
		for (int v = 0; v < CPA_NVARIANTS; v++)
			for (size_t d = 0; d < 2 * sizeof degrees / sizeof *degrees; d++) {
				struct cpa_problem problem = problems[i];
				struct cpa_config config;
				struct rig rig;

				problem.dtype = CPA_DTYPE_FP64;
				config = cpa_config_default((enum cpa_variant)v, &problem);
				config.batch_degree = degrees[d / 2][0];
				config.ring_degree = degrees[d / 2][1];
				config.ulysses_degree = degrees[d / 2][2];
				config.rotate = d & 1 ? CPA_ROTATE_ALLGATHER : CPA_ROTATE_P2P;
				config.direction = d & 1 || v & 1 ? 1 : -1;
				if (!make_rig(&rig, &problem, &config))
					continue;
				for (uint64_t seed = 0; seed < 6; seed++) {
					if (run(&rig, modes[seed % 2], seed) != CPA_OK)
						fail_msg("%s", error.text);
					assert_true(worst(&rig) <= tolerance);
					check_counts(&rig);
					nruns++;
				}
				free_rig(&rig);
			}
	assert_true(nruns > 500);
}

/* ---- one wait less ---- */

/* Whether one of many seeds gives a wrong result. */
static bool shows(struct rig *rig)
{
	for (uint64_t seed = 0; seed < 60; seed++)
		if (run(rig, modes[seed % 2], seed) != CPA_OK || !(worst(rig) <= tolerance))
			return true;
	return false;
}

static void every_wait_of_a_plan_is_missed_by_some_seed(void **state)
{
	static const struct {
		enum cpa_variant variant;
		int R, U;
		enum cpa_rotate rotate;
	} cases[] = {
		{ CPA_VARIANT_RING, 4, 1, CPA_ROTATE_P2P },
		{ CPA_VARIANT_RING, 3, 1, CPA_ROTATE_ALLGATHER },
		{ CPA_VARIANT_ULYSSES, 1, 3, CPA_ROTATE_P2P },
		{ CPA_VARIANT_UNIFIED, 4, 2, CPA_ROTATE_P2P },
		{ CPA_VARIANT_UNIFIED, 2, 2, CPA_ROTATE_ALLGATHER },
	};
	const struct cpa_problem problem = { .B = 2,
		.Sq = 24,
		.Skv = 24,
		.Hq = 6,
		.Hkv = 6,
		.D = 2,
		.Dv = 2,
		.dtype = CPA_DTYPE_FP64,
		.scale = 0.7,
		.lse = true };

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_config config = cpa_config_default(cases[i].variant, &problem);
		struct rig rig;
		int nwaits = 0;

		config.ring_degree = cases[i].R;
		config.ulysses_degree = cases[i].U;
		config.rotate = cases[i].rotate;
		if (!make_rig(&rig, &problem, &config))
			fail_msg("%s", error.text);
		assert_false(shows(&rig));
		for (int s = 0; s < rig.schedules[1]->nsteps; s++)
			for (int q = 0; q < CPA_NQUEUES; q++) {
				int *wait = &rig.schedules[1]->steps[s].waits[q], kept = *wait;

				if (kept < 0)
					continue;
				nwaits++;
				*wait = -1;
				free_execs(&rig);
				make_execs(&rig);
				if (!shows(&rig))
					fail_msg("case %zu: step %d does without step %d", i, s,
						kept);
				*wait = kept;
			}
		assert_true(nwaits >= 1);
		free_rig(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_plan_is_right_under_every_seed_and_counts_exactly),
		cmocka_unit_test(every_wait_of_a_plan_is_missed_by_some_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
