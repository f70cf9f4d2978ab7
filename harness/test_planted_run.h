/*
 * test_planted_run.h - distributed runs with a fault, recorded: all ranks run in this process on
 * a device whose ATTEND is spoilt, or what they return is moved; then they are written as a
 * recording, and judged and diagnosed.  Nothing here knows what diagnose predicts.
 *
 * The ranks are planned for a problem that hides no key, so that each meets every block; which
 * keys count is up to the spoilt ATTEND.
 */
#ifndef CPA_TEST_PLANTED_RUN_H
#define CPA_TEST_PLANTED_RUN_H

#include "harness/test_recording.h"

#include <math.h>
#include <unistd.h>

#include "harness/diagnose_report.h"
#include "harness/options.h"
#include "harness/ranks.h"
#include "harness/test_spoil.h"

enum { MOST_TOKENS = 256, MOST_PARTS = 3 * 16 };

static struct run {
	struct cpa_options options;
	struct cpa_problem problem, open; /* as recorded; without its rule */
	struct cpa_config config;
	int R, U, P;
	uint64_t seed;
	struct cpa_ranks ranks;
	struct cpa_device *device;
	void *data[5]; /* q k v o lse, whole */
	void (*spoil)(struct call *);
	/* Tables of a fault, made by its set-up: what stands in place of a token (-1: zeros), and
	 * as which token it is masked. */
	int64_t list[MOST_TOKENS], ids[MOST_TOKENS];
	char says[128]; /* what a finding must say; "": anything */
} now;

/* ---- where tokens lie ---- */

static inline struct cpa_spans shard(int rank)
{
	return cpa_partition_kv_shard(
		now.ranks.partition, &now.ranks.arena, rank / now.U, rank % now.U);
}

static inline int ring_of(const struct cpa_spans *blocks, const struct cpa_spans *tokens)
{
	int r = 0;

	while (!cpa_spans_ncommon(&blocks[r], tokens))
		r++;
	return r;
}

static inline int query_ring(const struct call *call)
{
	return ring_of(now.ranks.partition->q_block, &call->attend.q_tokens);
}

static inline int key_ring(const struct call *call)
{
	return ring_of(now.ranks.partition->kv_block, &call->attend.k_tokens);
}

/* ---- operands from elsewhere ---- */

struct source {
	int64_t b, token, head; /* token -1: zeros */
};
typedef struct source source_of(struct source right);

/* The call's k or v, taken element by element from the whole array. */
static inline struct cpa_array take_source(struct call *call, int tensor, source_of *of)
{
	const struct cpa_attend *a = &call->attend;
	const struct cpa_problem *p = &now.problem;
	int64_t nb = a->batches.end - a->batches.start, nh = nkv_heads(call), D = p->D;
	struct cpa_array to = {
		.dtype = p->dtype, .token = nb * nh * D, .batch = nh * D, .head = D};

	to.data = cpa_arena_alloc(
		&call->arena, (size_t)(a->nk * to.token) * cpa_dtype_nbytes(to.dtype));
	assert_non_null(to.data);
	for (int64_t i = 0; i < a->nk * nb * nh; i++) {
		struct source x = of((struct source){a->batches.start + i / nh % nb,
			cpa_spans_token(&a->k_tokens, i / nh / nb), a->kv_first + i % nh});

		for (int64_t d = 0; x.token >= 0 && d < D; d++)
			cpa_store(to.dtype, to.data, i * D + d,
				cpa_load(p->dtype, now.data[tensor],
					((x.b * p->Skv + x.token) * p->Hkv + x.head) * D + d));
	}
	return to;
}

static inline void from_elsewhere(struct call *call, source_of *of)
{
	call->attend.k = take_source(call, 1, of);
	call->attend.v = take_source(call, 2, of);
}

/* Rows of o and lse, moved; zeros where there are none. */
static inline void move_rows(source_of *of)
{
	const struct cpa_problem *p = &now.problem;

	for (int i = 3; i < 5; i++) {
		int64_t n = p->B * p->Sq * p->Hq, width = i == 3 ? p->Dv : 1;
		enum cpa_dtype dtype = i == 3 ? p->dtype : cpa_problem_lse_dtype(p);
		size_t nbytes = (size_t)width * cpa_dtype_nbytes(dtype);
		char *moved = calloc((size_t)n, nbytes);

		assert_non_null(moved);
		for (int64_t at = 0; at < n; at++) {
			struct source x = of((struct source){
				at / p->Hq / p->Sq, at / p->Hq % p->Sq, at % p->Hq});

			if (x.token >= 0 && x.head >= 0)
				memcpy(moved + (size_t)at * nbytes,
					(char *)now.data[i] +
						(size_t)((x.b * p->Sq + x.token) * p->Hq +
							x.head) *
							nbytes,
					nbytes);
		}
		free(now.data[i]);
		now.data[i] = moved;
	}
}

/* ---- the run ---- */

static inline void spoil_open_call(struct call *call)
{
	call->problem.rule = now.problem.rule;
	if (now.spoil)
		now.spoil(call);
}

static inline void must(enum cpa_status status, const char *what, const struct cpa_error *error)
{
	if (status != CPA_OK)
		fail_msg("%s: %s", what, error->text);
}

static inline void read_problem(const char *text)
{
	static char problem[512];
	char *argv[] = {"cpattn", "verify", "--problem", problem};
	struct cpa_error error;

	snprintf(problem, sizeof problem, "%s", text);
	must(cpa_options_parse(4, argv, &now.options, &error), text, &error);
	now.problem = now.options.problem;
	now.problem.lse = true;
	now.open = now.problem;
	now.open.rule = (struct cpa_rule){0};
	assert_true(now.problem.Skv <= MOST_TOKENS);
}

static inline void fill(void)
{
	static const enum cpa_tensor tensors[] = {
		CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V, CPA_TENSOR_O, CPA_TENSOR_LSE};

	for (int i = 0; i < 5; i++) {
		now.data[i] = malloc(
			(size_t)(now.problem.B * cpa_tensor_ntokens(&now.problem, tensors[i])) *
			cpa_token_nbytes(&now.problem, tensors[i]));
		assert_non_null(now.data[i]);
		if (i < 3)
			cpa_inputs_fill(
				&now.problem, CPA_FILL_NORMAL, now.seed, tensors[i], now.data[i]);
	}
}

/* Plans; tables can be made then. */
static inline void plan_run(const char *text, int R, int U, enum cpa_order order, uint64_t seed)
{
	struct cpa_error error = {""};

	memset(&now, 0, sizeof now);
	now.R = R;
	now.U = U;
	now.P = R * U;
	now.seed = seed;
	read_problem(text);
	now.config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &now.open);
	now.config.ring_degree = R;
	now.config.ulysses_degree = U;
	now.config.order = order;
	now.config.rotate = (enum cpa_rotate)(seed % 2);
	must(cpa_ranks_plan(&now.ranks, &now.open, &now.config, &error), text, &error);
	fill();
}

static inline void run_ranks(void)
{
	struct cpa_tensors tensors = {&now.open, now.data[0], now.data[1], now.data[2]};
	struct cpa_inputs inputs = cpa_inputs_dense(&tensors);
	struct cpa_error error = {""};

	now.device = spoilt_device();
	plant_spoil(spoil_open_call);
	must(cpa_ranks_start(&now.ranks, now.device, NULL, NULL, &error), "start", &error);
	must(cpa_ranks_upload(&now.ranks, &inputs, &error), "upload", &error);
	must(cpa_ranks_run(&now.ranks, CPA_FAKE_EAGER, now.seed, &error), "run", &error);
	must(cpa_ranks_download(&now.ranks, now.data[3], now.data[4], &error), "o", &error);
	plant_spoil(NULL);
}

static inline void end_run(void)
{
	cpa_ranks_fini(&now.ranks);
	cpa_device_destroy(now.device);
	for (int i = 0; i < 5; i++)
		free(now.data[i]);
	cpa_options_fini(&now.options);
}

/* ---- the recording of it ---- */

static inline const int64_t *ids_from(int64_t first, int64_t n)
{
	int64_t *ids = cpa_arena_alloc(&now.ranks.arena, ((size_t)n + 1) * sizeof *ids);

	for (int64_t i = 0; i < n; i++)
		ids[i] = first + i;
	return ids;
}

/* What a rank holds of k (1), o (3) or lse (4). */
static inline struct cpa_run_part part_of_rank(int rank, int i)
{
	static const enum cpa_tensor tensors[] = {
		CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V, CPA_TENSOR_O, CPA_TENSOR_LSE};
	const struct cpa_problem *p = &now.problem;
	struct cpa_spans *spans = cpa_arena_alloc(&now.ranks.arena, sizeof *spans);
	int64_t n, *tokens, H = i == 1 ? p->Hkv : p->Hq;
	struct cpa_run_part part = {0};
	size_t row = cpa_token_nbytes(p, tensors[i]);

	*spans = i == 1 ? now.ranks.kv_shards[rank] : now.ranks.q_shards[rank];
	n = cpa_spans_ntokens(spans);
	tokens = cpa_arena_alloc(&now.ranks.arena, ((size_t)n + 1) * sizeof *tokens);
	for (int64_t t = 0; t < n; t++)
		tokens[t] = cpa_spans_token(spans, t);
	void *data = cpa_arena_alloc(&now.ranks.arena, (size_t)(p->B * n) * row + 1);
	struct cpa_shard shard = {row, cpa_tensor_ntokens(p, tensors[i]), {0, p->B}, spans};
	cpa_shard_gather(&shard, now.data[i], data);
	part.held = (struct cpa_held){rank, "", i == 4 ? cpa_problem_lse_dtype(p) : p->dtype,
		p->B, n, H, i == 4 ? 1 : p->D, ids_from(0, p->B), tokens, ids_from(0, H)};
	snprintf(part.held.tensor, sizeof part.held.tensor, "%s", cpa_tensor_name(tensors[i]));
	part.data = data;
	return part;
}

static inline void record_run(const char *file, bool lse)
{
	struct cpa_recorded_config config = {.batch_degree = 1,
		.ring_degree = now.R,
		.ulysses_degree = now.U,
		.rotate = -1,
		.convert_to_fp32 = -1,
		.split = -1,
		.order = (int)now.config.order,
		.system = "planted"};
	struct cpa_run_part parts[MOST_PARTS];
	int n = 0;
	const void *const data[5] = {now.data[0], now.data[1], now.data[2], NULL, NULL};
	struct cpa_error error = {""};

	for (int rank = 0; rank < now.P; rank++) {
		if (cpa_spans_ntokens(&now.ranks.kv_shards[rank]))
			parts[n++] = part_of_rank(rank, 1);
		if (cpa_spans_ntokens(&now.ranks.q_shards[rank])) {
			parts[n++] = part_of_rank(rank, 3);
			if (lse)
				parts[n++] = part_of_rank(rank, 4);
		}
	}
	struct cpa_recorded_run run = {
		.config = &config, .world = now.P, .parts = parts, .nparts = n};
	must(cpa_recording_write_run(
		     file, "00_planted", &now.problem, data, &run, "test", &error),
		"write", &error);
}

/* ---- what is said of it ---- */

struct verdict {
	struct cpa_arena arena;
	bool wrong; /* some rank is */
	const struct cpa_diagnosis *diagnosis;
};

static inline struct verdict judge_file(const char *file)
{
	struct verdict v = {0};
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_error error = {""};

	cpa_arena_init(&v.arena);
	must(cpa_recording_open(file, &recording, &error), "open", &error);
	must(cpa_checked_init(&checked, recording, 0, 0, &error), "read", &error);
	struct cpa_check_rules rules = {
		cpa_arithmetic_default(checked.call->problem.dtype), CPA_PARTIALS_BLOCK};
	for (int rank = 0; rank < checked.call->world; rank++) {
		struct cpa_check_part part;

		must(cpa_check_part(
			     &checked, recording, 0, rank, &rules, &v.arena, &part, &error),
			"check", &error);
		v.wrong |= !part.right && (part.has_o || part.has_lse);
	}
	must(cpa_diagnosis_make(&checked, recording, 0, &rules, &v.arena, &v.diagnosis, &error),
		"diagnose", &error);
	cpa_checked_fini(&checked);
	cpa_recording_close(recording);
	return v;
}

enum outcome { NAMED, TIED, MISSED, MISNAMED, UNSEEN, NOUTCOMES };

/* Classes that it ties with are added to others [256]. */
static inline enum outcome outcome_of(const struct verdict *v, const char *class, char *others)
{
	enum outcome outcome = MISNAMED;

	const struct cpa_diagnosis *d = v->diagnosis;

	if (!v->wrong)
		return UNSEEN;
	if (d->n == 0)
		return MISSED;
	for (int i = 0; i < d->nties && outcome == MISNAMED; i++)
		if (strcmp(d->findings[i].class, class) == 0 &&
			strstr(d->findings[i].text, now.says))
			outcome = NAMED;
	for (int i = 0; i < d->nties && outcome != MISNAMED; i++)
		if (strcmp(d->findings[i].class, class) != 0) {
			outcome = TIED;
			if (!strstr(others, d->findings[i].class) && strlen(others) < 240)
				sprintf(others + strlen(others), " %s", d->findings[i].class);
		}
	return outcome;
}

#endif
