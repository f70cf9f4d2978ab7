/*
 * rank_rows.c - full attention and a one-rank run for some rows, with keys and values in blocks.
 */
#include "harness/rank_rows.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

/* Of k and v that are kept at once, and of what is read at once. */
static const size_t kept_nbytes = (size_t)256 << 20, block_nbytes = (size_t)4 << 20;

struct work {
	const struct cpa_rank_rows *rows;
	struct cpa_truth *truth;
	char *o, *lse; /* of the one-rank run */
	char *q; /* [ntokens, Hq, D] of the batch item */
	char *k, *v; /* [Skv, nheads, D] of some heads */
	char *block; /* as read: all heads */
	char *part; /* q or o or lse of some heads */
	int64_t heads; /* key heads that are kept at once */
	int64_t block_tokens;
};

static size_t element(const struct work *w)
{
	return cpa_dtype_nbytes(w->rows->problem->dtype);
}

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the reference of a rank's rows");
}

/* ---- making room ---- */

static bool is_judged(const struct cpa_rank_rows *rows, int64_t token)
{
	if (rows->wanted && !rows->wanted[token])
		return false;
	return !rows->skipped ||
		cpa_spans_ncommon_range(rows->skipped, (struct cpa_range){token, token + 1}) == 0;
}

/* A length of 0 is no allocation. */
static void *room(int64_t n, size_t size)
{
	return malloc((size_t)n * size + 1);
}

static enum cpa_status make_truth(
	const struct cpa_rank_rows *rows, struct cpa_truth **out, struct cpa_error *error)
{
	const struct cpa_problem *p = rows->problem;
	struct cpa_truth *t = calloc(1, sizeof *t);
	int64_t nrows;

	if (!t)
		return out_of_memory(error);
	*out = t;
	t->problem = *p;
	t->held = rows->held;
	t->tokens = room(rows->held.ntokens, sizeof *t->tokens);
	t->index = room(rows->held.ntokens, sizeof *t->index);
	if (!t->tokens || !t->index)
		return out_of_memory(error);
	for (int64_t i = 0; i < rows->held.ntokens; i++) {
		int64_t token = cpa_spans_token(rows->held.tokens, i);

		if (!is_judged(rows, token))
			continue;
		t->index[t->n] = i;
		t->tokens[t->n++] = token;
	}
	nrows = (rows->held.batches.end - rows->held.batches.start) * t->n * p->Hq;
	t->o = room(nrows * p->Dv, sizeof *t->o);
	t->o_norm = room(nrows, sizeof *t->o_norm);
	t->rows = room(nrows, sizeof *t->rows);
	return t->o && t->o_norm && t->rows ? CPA_OK : out_of_memory(error);
}

static enum cpa_status make_room(struct work *w, struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	size_t e = element(w), head = (size_t)(p->Skv * (p->D + p->Dv)) * e;
	size_t token = cpa_token_nbytes(p, CPA_TENSOR_K), v = cpa_token_nbytes(p, CPA_TENSOR_V);
	int64_t widest = p->D > p->Dv ? p->D : p->Dv;

	w->heads = head < kept_nbytes ? (int64_t)(kept_nbytes / head) : 1;
	w->heads = w->heads < p->Hkv ? w->heads : p->Hkv;
	token = token > v ? token : v;
	w->block_tokens = token < block_nbytes ? (int64_t)(block_nbytes / token) : 1;
	w->q = room(w->rows->held.ntokens, cpa_token_nbytes(p, CPA_TENSOR_Q));
	w->k = room(p->Skv * w->heads * p->D, e);
	w->v = room(p->Skv * w->heads * p->Dv, e);
	w->block = room(w->block_tokens, token);
	w->part = room(
		w->rows->held.ntokens * w->heads * (p->Hq / p->Hkv) * widest, sizeof(double));
	return w->q && w->k && w->v && w->block && w->part ? CPA_OK : out_of_memory(error);
}

/* ---- some heads of one batch item ---- */

/* Copies heads [first, first+n) of rows of H heads; to: the other way round. */
static void copy_heads(char *whole, char *part, int64_t nrows, int64_t H, int64_t first,
	int64_t n, size_t head_nbytes, bool to_whole)
{
	for (int64_t i = 0; i < nrows; i++) {
		char *a = whole + (size_t)(i * H + first) * head_nbytes;
		char *b = part + (size_t)(i * n) * head_nbytes;

		memcpy(to_whole ? a : b, to_whole ? b : a, (size_t)n * head_nbytes);
	}
}

/* All tokens of n key heads from `first`: k or v. */
static enum cpa_status read_heads(struct work *w, enum cpa_tensor tensor, int64_t b,
	int64_t first, int64_t n, struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	const struct cpa_source *source = w->rows->source;
	size_t nbytes = (size_t)(tensor == CPA_TENSOR_K ? p->D : p->Dv) * element(w);
	char *to = tensor == CPA_TENSOR_K ? w->k : w->v;
	enum cpa_status status = CPA_OK;

	for (int64_t t = 0; status == CPA_OK && t < p->Skv; t += w->block_tokens) {
		int64_t left = p->Skv - t, m = left < w->block_tokens ? left : w->block_tokens;
		struct cpa_span span = {t, m, m, 1};
		struct cpa_spans tokens = {&span, 1, 1};

		status = source->read(source->context, p, tensor, (struct cpa_range){b, b + 1},
			&tokens, w->block, error);
		if (status == CPA_OK)
			copy_heads(w->block, to + (size_t)(t * n) * nbytes, m, p->Hkv, first, n,
				nbytes, false);
	}
	return status;
}

/* Batch item b and n key heads from `first` as a problem of their own; tokens keep their numbers.
 */
static struct cpa_problem part_of(
	const struct cpa_problem *p, int64_t b, int64_t first, int64_t n)
{
	struct cpa_problem part = *p;
	struct cpa_mask *mask = &part.rule.mask;
	int64_t g = p->Hq / p->Hkv;

	part.B = 1;
	part.Hkv = n;
	part.Hq = n * g;
	if (part.rule.key_lengths)
		part.rule.key_lengths += b;
	if (part.rule.sink)
		part.rule.sink += first * g;
	if (mask->kind != CPA_MASK_NONE)
		mask->data = (const char *)mask->data +
			(size_t)(b * mask->batch + first * g * mask->head) *
				(mask->kind == CPA_MASK_BOOL ? 1 : cpa_dtype_nbytes(mask->dtype));
	return part;
}

/* ---- full attention ---- */

/* Row i of the truth, query head h of the part, which is head `at` of the problem. */
static void compute_row(struct work *w, const struct cpa_ref_head *head, int64_t b, int64_t i,
	int64_t h, int64_t at, double *weights)
{
	const struct cpa_problem *p = w->rows->problem;
	struct cpa_truth *t = w->truth;
	int64_t row = ((b - t->held.batches.start) * t->n + i) * p->Hq + at;
	double *o = t->o + row * p->Dv, square = 0;
	/* One token, wherever cpa_ref_row() looks for it. */
	struct cpa_view q = {w->q + (size_t)((t->index[i] * p->Hq + at - h) * p->D) * element(w),
		p->dtype, 0, 0, p->D};

	cpa_ref_row(head, q, h, t->tokens[i], o, &t->rows[row], weights);
	for (int64_t d = 0; d < p->Dv; d++)
		square += o[d] * o[d];
	t->o_norm[row] = sqrt(square);
}

/* The g query heads of key head j of the part. */
static enum cpa_status compute_head(struct work *w, const struct cpa_problem *part, int64_t b,
	int64_t first, int64_t j, struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	struct cpa_view k = cpa_view_bshd(w->k, p->dtype, p->Skv, part->Hkv, p->D);
	struct cpa_view v = cpa_view_bshd(w->v, p->dtype, p->Skv, part->Hkv, p->Dv);
	int64_t g = p->Hq / p->Hkv;
	struct cpa_ref_head *head;
	bool failed = false;
	enum cpa_status status = cpa_ref_head_create(part, k, v, 0, j, &head, error);

	if (status != CPA_OK)
		return status;
#ifdef _OPENMP
#pragma omp parallel reduction(|| : failed)
#endif
	{
		double *weights = malloc((size_t)p->Skv * sizeof *weights);

		failed = !weights;
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 8)
#endif
		for (int64_t i = 0; i < w->truth->n * g; i++)
			if (weights)
				compute_row(w, head, b, i / g, j * g + i % g,
					(first + j) * g + i % g, weights);
		free(weights);
	}
	cpa_ref_head_destroy(head);
	return failed ? out_of_memory(error) : CPA_OK;
}

/* ---- the device on one rank ---- */

/* These rows as a sequence of their own that sees all keys, cut into the same segments of keys.
 */
static struct cpa_problem rows_alone(const struct work *w, const struct cpa_problem *part)
{
	struct cpa_problem plain = *part;
	bool self = part->Sq == part->Skv;

	plain.Sq = w->rows->held.ntokens;
	plain.rule = (struct cpa_rule){.sink = part->rule.sink};
	plain.segments = plain.segments_kv = NULL;
	plain.nsegments = plain.nsegments_kv = 0;
	if (plain.Sq != plain.Skv) {
		plain.segments_kv = self ? part->segments : part->segments_kv;
		plain.nsegments_kv = self ? part->nsegments : part->nsegments_kv;
	}
	return plain;
}

/* The plan of one rank for these rows; each ATTEND then learns which tokens they are.  For all
 * rows it is the plan that one rank has anyway. */
static enum cpa_status plan_alone(const struct work *w, const struct cpa_problem *part,
	struct cpa_partition **partition, struct cpa_schedule **schedule, struct cpa_error *error)
{
	bool all = w->rows->held.ntokens == part->Sq;
	struct cpa_problem problem = all ? *part : rows_alone(w, part);
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &problem);
	enum cpa_status status;

	problem.layout = CPA_LAYOUT_BSHD; /* the bits are the same in all of them */
	config.partials = w->rows->partials;
	config.partial_dtype = w->rows->partial_dtype;
	status = cpa_partition_create(&problem, &config, partition, error);
	if (status == CPA_OK)
		status = cpa_plan_create(*partition, 0, schedule, error);
	for (int i = 0; status == CPA_OK && !all && i < (*schedule)->nops; i++) {
		struct cpa_op *op = &(*schedule)->ops[i];

		if (op->kind != CPA_OP_ATTEND)
			continue;
		assert(op->reads[0].box.ntokens == problem.Sq);
		op->reads[0].content.tokens = *w->rows->held.tokens;
	}
	return status;
}

static enum cpa_status upload(struct work *w, struct cpa_exec *exec, enum cpa_tensor tensor,
	const void *data, struct cpa_error *error)
{
	int buffer = cpa_exec_find(exec, CPA_ROLE_INPUT, tensor);
	int64_t nbytes = cpa_buffer_nbytes(&cpa_exec_schedule(exec)->buffers[buffer]);

	return w->rows->device->ops->upload(
		w->rows->device, cpa_exec_memory(exec, buffer), data, (size_t)nbytes, error);
}

/* Query heads from h on of an output, into its place. */
static enum cpa_status download(struct work *w, struct cpa_exec *exec, enum cpa_tensor tensor,
	int64_t b, int64_t h, struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	int buffer = cpa_exec_find(exec, CPA_ROLE_OUTPUT, tensor);
	const struct cpa_buffer *about = &cpa_exec_schedule(exec)->buffers[buffer];
	int64_t ntokens = w->rows->held.ntokens, first = b - w->rows->held.batches.start;
	size_t row = cpa_token_nbytes(p, tensor);
	char *to = tensor == CPA_TENSOR_O ? w->o : w->lse;
	enum cpa_status status = w->rows->device->ops->download(w->rows->device, w->part,
		cpa_exec_memory(exec, buffer), (size_t)cpa_buffer_nbytes(about), error);

	if (status == CPA_OK)
		copy_heads(to + (size_t)(first * ntokens) * row, w->part, ntokens, p->Hq, h,
			about->nheads, row / (size_t)p->Hq, true);
	return status;
}

/* Keys or values in the order of the buffer: those of replicated segments come last. */
static enum cpa_status upload_keys(struct work *w, struct cpa_exec *exec,
	const struct cpa_partition *partition, enum cpa_tensor tensor, struct cpa_error *error)
{
	const struct cpa_problem *p = &partition->problem;
	struct cpa_arena arena;
	struct cpa_spans tokens;
	struct cpa_shard shard = {cpa_token_nbytes(p, tensor), p->Skv, {0, 1}, &tokens};
	const char *whole = tensor == CPA_TENSOR_K ? w->k : w->v;
	enum cpa_status status = CPA_OK;
	char *ordered = NULL;

	cpa_arena_init(&arena);
	tokens = cpa_partition_kv_shard(partition, &arena, 0, 0);
	if (!arena.failed && tokens.n > 1)
		ordered = room(p->Skv, shard.row_nbytes);
	if (arena.failed || (tokens.n > 1 && !ordered))
		status = out_of_memory(error);
	if (status == CPA_OK && ordered)
		cpa_shard_gather(&shard, whole, ordered);
	if (status == CPA_OK)
		status = upload(w, exec, tensor, ordered ? ordered : whole, error);
	free(ordered);
	cpa_arena_fini(&arena);
	return status;
}

static enum cpa_status run_alone(struct work *w, struct cpa_exec *exec,
	const struct cpa_partition *partition, struct cpa_fake_world *world, int64_t b, int64_t h,
	struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	const struct cpa_schedule *schedule = cpa_exec_schedule(exec);
	int64_t nheads =
		schedule->buffers[cpa_exec_find(exec, CPA_ROLE_INPUT, CPA_TENSOR_Q)].nheads;
	enum cpa_status status;

	copy_heads(w->q, w->part, w->rows->held.ntokens, p->Hq, h, nheads,
		(size_t)p->D * element(w), false);
	status = upload(w, exec, CPA_TENSOR_Q, w->part, error);
	if (status == CPA_OK)
		status = upload_keys(w, exec, partition, CPA_TENSOR_K, error);
	if (status == CPA_OK)
		status = upload_keys(w, exec, partition, CPA_TENSOR_V, error);
	if (status == CPA_OK)
		status = cpa_fake_run(world, &exec, error);
	if (status == CPA_OK)
		status = download(w, exec, CPA_TENSOR_O, b, h, error);
	if (status == CPA_OK && w->lse)
		status = download(w, exec, CPA_TENSOR_LSE, b, h, error);
	return status;
}

static enum cpa_status attend_alone(struct work *w, const struct cpa_problem *part, int64_t b,
	int64_t first, struct cpa_error *error)
{
	struct cpa_partition *partition = NULL;
	struct cpa_schedule *schedule = NULL;
	struct cpa_fake_world *world = NULL;
	struct cpa_exec *exec = NULL;
	const struct cpa_exec_options options = {.poison = true};
	enum cpa_status status = plan_alone(w, part, &partition, &schedule, error);

	if (status == CPA_OK)
		status = cpa_fake_world_create(1, CPA_FAKE_EAGER, 1, &world, error);
	if (status == CPA_OK)
		status = cpa_exec_create(schedule, part, w->rows->device,
			cpa_fake_world_comm(world, 0), &options, &exec, error);
	if (status == CPA_OK)
		status = run_alone(w, exec, partition, world, b,
			first * (w->rows->problem->Hq / w->rows->problem->Hkv), error);
	cpa_exec_destroy(exec);
	cpa_fake_world_destroy(world);
	cpa_schedule_destroy(schedule);
	if (partition)
		cpa_partition_destroy(partition);
	return status;
}

/* ---- all of it ---- */

/* Scores of these rows must not overflow.  Their place in the list stands for their token. */
static enum cpa_status check_inputs(
	struct work *w, const struct cpa_problem *part, int64_t first, struct cpa_error *error)
{
	const struct cpa_problem *p = w->rows->problem;
	struct cpa_problem rows = *part;
	struct cpa_view q = cpa_view_bshd(
		w->q + (size_t)(first * (p->Hq / p->Hkv) * p->D) * element(w), p->dtype,
		w->rows->held.ntokens, p->Hq, p->D);

	rows.Sq = w->rows->held.ntokens;
	return cpa_ref_check_inputs(&rows, q,
		cpa_view_bshd(w->k, p->dtype, p->Skv, part->Hkv, p->D),
		cpa_view_bshd(w->v, p->dtype, p->Skv, part->Hkv, p->Dv), error);
}

static enum cpa_status compute_part(
	struct work *w, int64_t b, int64_t first, int64_t n, struct cpa_error *error)
{
	struct cpa_problem part = part_of(w->rows->problem, b, first, n);
	enum cpa_status status = read_heads(w, CPA_TENSOR_K, b, first, n, error);

	if (status == CPA_OK)
		status = read_heads(w, CPA_TENSOR_V, b, first, n, error);
	if (status == CPA_OK)
		status = check_inputs(w, &part, first, error);
	for (int64_t j = 0; status == CPA_OK && j < n; j++)
		status = compute_head(w, &part, b, first, j, error);
	return status == CPA_OK ? attend_alone(w, &part, b, first, error) : status;
}

static enum cpa_status compute_all(struct work *w, struct cpa_error *error)
{
	const struct cpa_rank_rows *rows = w->rows;
	const struct cpa_problem *p = rows->problem;
	enum cpa_status status = make_room(w, error);

	for (int64_t b = rows->held.batches.start; status == CPA_OK && b < rows->held.batches.end;
		b++) {
		status = rows->source->read(rows->source->context, p, CPA_TENSOR_Q,
			(struct cpa_range){b, b + 1}, rows->held.tokens, w->q, error);
		for (int64_t h = 0; status == CPA_OK && h < p->Hkv; h += w->heads) {
			int64_t left = p->Hkv - h;

			status = compute_part(w, b, h, left < w->heads ? left : w->heads, error);
		}
	}
	return status;
}

enum cpa_status cpa_rank_rows_compute(const struct cpa_rank_rows *rows, struct cpa_truth **truth,
	void *o, void *lse, struct cpa_error *error)
{
	struct work w = {.rows = rows, .o = o, .lse = lse};
	enum cpa_status status = make_truth(rows, &w.truth, error);

	if (status == CPA_OK && rows->held.ntokens > 0)
		status = compute_all(&w, error);
	free(w.q);
	free(w.k);
	free(w.v);
	free(w.block);
	free(w.part);
	if (status == CPA_OK)
		*truth = w.truth;
	else
		cpa_truth_destroy(w.truth);
	return status;
}
