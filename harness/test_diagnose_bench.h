/*
 * test_diagnose_bench.h - runs ranks with a fault, writes what they returned as a recording, and
 * has it checked and diagnosed.  Include after cmocka.h.
 */
#ifndef CPA_TEST_DIAGNOSE_BENCH_H
#define CPA_TEST_DIAGNOSE_BENCH_H

#include <math.h>
#include <unistd.h>

#include "harness/diagnose_report.h"
#include "harness/options.h"
#include "harness/ranks.h"
#include "harness/test_directory.h"

/* Each test takes what it needs. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "harness/test_spoil.h"

/* ---- one problem ---- */

struct bench {
	struct cpa_options options;
	struct cpa_problem run; /* what the ranks compute; the options' is what is recorded */
	void *data[5]; /* q k v o lse, whole */
	struct cpa_ranks ranks;
	struct cpa_device *device;
	/* q and k of data are turned by these, and recorded without. */
	const int64_t *positions;
	const struct cpa_rope *rope;
	/* Rank that is said to hold other numbers: those of `other`; other[0] NULL: none. */
	int strange;
	void *other[3];
};

static size_t tensor_nbytes(const struct cpa_problem *p, enum cpa_tensor tensor)
{
	return (size_t)(p->B * cpa_tensor_ntokens(p, tensor)) * cpa_token_nbytes(p, tensor);
}

static void set_up(struct bench *b, const char *text, uint64_t seed)
{
	char problem[512], *argv[] = {"cpattn", "verify", "--problem", problem};
	struct cpa_error error;

	*b = (struct bench){0};
	snprintf(problem, sizeof problem, "%s", text);
	if (cpa_options_parse(4, argv, &b->options, &error) != CPA_OK)
		fail_msg("%s: %s", text, error.text);
	b->options.problem.lse = true;
	b->run = b->options.problem;
	for (int i = 0; i < 5; i++) {
		b->data[i] = malloc(tensor_nbytes(&b->run, (enum cpa_tensor)i));
		assert_non_null(b->data[i]);
		if (i < 3)
			cpa_inputs_fill(
				&b->run, CPA_FILL_NORMAL, seed, (enum cpa_tensor)i, b->data[i]);
	}
}

static void tear_down(struct bench *b)
{
	for (int i = 0; i < 5; i++)
		free(b->data[i]);
	cpa_options_fini(&b->options);
}

/* Runs the ranks on device, which is destroyed; o and lse of b are what they returned. */
static void run_ranks(struct bench *b, struct cpa_device *device, const struct cpa_config *config,
	cpa_ranks_hook *hook, void *context)
{
	struct cpa_tensors tensors = {&b->run, b->data[0], b->data[1], b->data[2]};
	struct cpa_inputs inputs = cpa_inputs_dense(&tensors);
	struct cpa_error error = {""};

	b->device = device;
	if (cpa_ranks_plan(&b->ranks, &b->run, config, &error) != CPA_OK ||
		cpa_ranks_start(&b->ranks, device, hook, context, &error) != CPA_OK ||
		cpa_ranks_upload(&b->ranks, &inputs, &error) != CPA_OK ||
		cpa_ranks_run(&b->ranks, CPA_FAKE_EAGER, 1, &error) != CPA_OK ||
		cpa_ranks_download(&b->ranks, b->data[3], b->data[4], &error) != CPA_OK)
		fail_msg("%s", error.text);
}

/* ---- its recording ---- */

static const int64_t *ids(struct cpa_arena *arena, const struct cpa_spans *list)
{
	int64_t n = cpa_spans_ntokens(list);
	int64_t *at = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *at);

	assert_non_null(at);
	for (int64_t i = 0; i < n; i++)
		at[i] = cpa_spans_token(list, i);
	return at;
}

static const int64_t *count_from(struct cpa_arena *arena, int64_t first, int64_t n)
{
	int64_t *at = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *at);

	assert_non_null(at);
	for (int64_t i = 0; i < n; i++)
		at[i] = first + i;
	return at;
}

/* What one rank holds of a tensor, out of the whole. */
static struct cpa_run_part part_of(
	struct bench *b, struct cpa_arena *arena, int rank, enum cpa_tensor tensor)
{
	const struct cpa_problem *p = &b->run;
	const struct cpa_partition *partition = b->ranks.partition;
	bool key = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	struct cpa_spans *tokens = key ? &b->ranks.kv_shards[rank] : &b->ranks.q_shards[rank];
	struct cpa_range batches = cpa_partition_batches(
		partition, cpa_partition_coords(partition, rank).b);
	struct cpa_shard shard = {
		cpa_token_nbytes(p, tensor), cpa_tensor_ntokens(p, tensor), batches, tokens};
	int64_t n = cpa_spans_ntokens(tokens), nbatches = batches.end - batches.start;
	struct cpa_run_part part = {
		.held = {.rank = rank,
			.dtype = tensor == CPA_TENSOR_LSE ? cpa_problem_lse_dtype(p) : p->dtype,
			.nbatches = nbatches,
			.ntokens = n,
			.nheads = key ? p->Hkv : p->Hq,
			.batches = count_from(arena, batches.start, nbatches),
			.tokens = ids(arena, tokens),
			.heads = count_from(arena, 0, key ? p->Hkv : p->Hq)}};
	void *data = cpa_arena_alloc(arena, shard.row_nbytes * (size_t)(n * nbatches) + 1);

	assert_non_null(data);
	part.held.dim = tensor == CPA_TENSOR_LSE		   ? 1
		: tensor == CPA_TENSOR_O || tensor == CPA_TENSOR_V ? p->Dv
								   : p->D;
	snprintf(part.held.tensor, sizeof part.held.tensor, "%s", cpa_tensor_name(tensor));
	cpa_shard_gather(&shard,
		tensor <= CPA_TENSOR_V && rank == b->strange && b->other[0] ? b->other[tensor]
									    : b->data[tensor],
		data);
	part.data = data;
	return part;
}

/* tensors: which of q k v o lse each rank is said to hold, by bits. */
static void save(struct bench *b, const struct cpa_config *config, unsigned tensors,
	const struct cpa_guidance *guidance)
{
	struct cpa_recorded_config recorded = {.batch_degree = config->batch_degree,
		.ring_degree = config->ring_degree,
		.ulysses_degree = config->ulysses_degree,
		.rotate = -1,
		.convert_to_fp32 = -1,
		.split = -1,
		.order = -1};
	struct cpa_run_part parts[5 * 8];
	struct cpa_recorded_run run = {.config = &recorded,
		.world = b->ranks.W,
		.parts = parts,
		.guidance = guidance,
		.positions = b->positions,
		.rope = b->rope};
	const void *data[5] = {b->data[0], b->data[1], b->data[2], NULL, NULL};
	struct cpa_arena arena;
	struct cpa_error error = {""};

	cpa_arena_init(&arena);
	for (int rank = 0; rank < b->ranks.W; rank++)
		for (int i = 0; i < 5; i++)
			if (tensors >> i & 1)
				parts[run.nparts++] = part_of(
					b, &arena, rank, (enum cpa_tensor)i);
	if (cpa_recording_write_run(file_path, "00_made", &b->options.problem, data, &run, "test",
		    &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_arena_fini(&arena);
	cpa_ranks_fini(&b->ranks);
	cpa_device_destroy(b->device);
}

/* ---- its diagnosis ---- */

struct verdict {
	int nwrong; /* sampled rows beyond their bound; 0: right, and nothing else is set */
	int n, nties;
	struct cpa_finding findings[64]; /* the first of them */
};

static void diagnose_file(const char *file, int call, struct verdict *verdict)
{
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_suspect s;
	struct cpa_finding *findings;
	struct cpa_error error = {""};
	struct cpa_check_rules rules = {.partials = CPA_PARTIALS_BLOCK};

	*verdict = (struct verdict){0};
	if (cpa_recording_open(file, &recording, &error) != CPA_OK ||
		cpa_checked_init(&checked, recording, call, 0, &error) != CPA_OK)
		fail_msg("%s: %s", file, error.text);
	rules.arithmetic = cpa_arithmetic_default(checked.call->problem.dtype);
	if (cpa_suspect_init(&s, &checked, recording, call, &rules, &error) != CPA_OK)
		fail_msg("%s: %s", file, error.text);
	verdict->nwrong = s.nwrong;
	if (s.nwrong > 0) {
		if (cpa_diagnose(&s, &findings, &verdict->n, &verdict->nties, &error) != CPA_OK)
			fail_msg("%s: %s", file, error.text);
		for (int i = 0; i < verdict->n && i < 64; i++)
			verdict->findings[i] = findings[i];
	}
	cpa_suspect_fini(&s);
	cpa_checked_fini(&checked);
	cpa_recording_close(recording);
}

/* Whether one of the ties is this class at this place, -1 being any. */
static bool is_named(const struct verdict *verdict, const char *class, int rank, int hop)
{
	for (int i = 0; i < verdict->nties && i < 64; i++) {
		const struct cpa_finding *f = &verdict->findings[i];

		if (strcmp(f->class, class) == 0 &&
			(rank < 0 || f->rank < 0 || f->rank == rank) &&
			(hop < 0 || f->hop < 0 || f->hop == hop))
			return true;
	}
	return false;
}

/* Whether one of the ties is this class with this in its text. */
static bool says(const struct verdict *v, const char *class, const char *text)
{
	for (int i = 0; i < v->nties; i++)
		if (strcmp(v->findings[i].class, class) == 0 && strstr(v->findings[i].text, text))
			return true;
	return false;
}

/* ---- what a spoilt device is given ---- */

/* Runs, saves and diagnoses what `spoil` does on a mesh. */
static void run_spoilt(struct bench *b, int R, int U, void (*spoil)(struct call *),
	const struct cpa_guidance *guidance, struct verdict *v)
{
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->run);
	unsigned keys = b->run.Sq == b->run.Skv ? 0 : 1u << CPA_TENSOR_K;

	config.ring_degree = R;
	config.ulysses_degree = U;
	plant_spoil(spoil);
	run_ranks(b, spoilt_device(), &config, NULL, NULL);
	plant_spoil(NULL);
	save(b, &config, keys | 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, guidance);
	diagnose_file(file_path, 0, v);
}

#pragma GCC diagnostic pop

#endif
