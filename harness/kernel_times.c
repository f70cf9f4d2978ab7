/*
 * kernel_times.c - which kernels, and their times.
 */
#include "harness/kernel_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/limits.h"
#include "harness/output.h"
#include "harness/peak.h"

double cpa_kernel_time_rate(const struct cpa_kernel_time *time)
{
	return (time->against == CPA_KERNEL_LIMIT_FLOP ? time->kernel.flop : time->kernel.bytes) /
		time->seconds.min;
}

/* ---- the list ---- */

static enum cpa_status grow(struct cpa_kernel_list *list, struct cpa_error *error)
{
	if (list->n < list->capacity)
		return CPA_OK;
	int capacity = list->capacity ? 2 * list->capacity : 16;
	struct cpa_kernel_time *more = realloc(list->at, (size_t)capacity * sizeof *more);
	if (!more)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a list of kernels");
	for (int i = 0; i < list->n; i++) { /* ATTEND points into itself */
		struct cpa_kernel *k = &more[i].kernel;
		if (k->kind != CPA_KERNEL_ATTEND)
			continue;
		k->attend.problem = &k->problem;
		k->attend.q_tokens.at = &k->q_span;
		k->attend.k_tokens.at = &k->k_span;
	}
	list->at = more;
	list->capacity = capacity;
	return CPA_OK;
}

enum cpa_status cpa_kernel_list_add(struct cpa_kernel_list *list, enum cpa_kernel_kind kind,
	enum cpa_kernel_limit against, const struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status status = grow(list, error);
	if (status != CPA_OK)
		return status;
	struct cpa_kernel_time *time = &list->at[list->n];
	struct cpa_error inner = {""};
	*time = (struct cpa_kernel_time){.against = against};
	time->samples = malloc((size_t)list->repeat * sizeof *time->samples);
	list->n++;
	if (!time->samples)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for times");
	cpa_threads_set(list->threads);
	status = cpa_kernel_create(&time->kernel, list->device, kind, problem, &inner);
	if (status == CPA_OK)
		status = cpa_kernel_check(&time->kernel, &inner);
	if (status == CPA_NO_MEMORY) {
		*error = inner;
		return status;
	}
	time->verdict = status == CPA_OK    ? CPA_VERDICT_RIGHT
		: status == CPA_MISMATCH    ? CPA_VERDICT_WRONG
		: status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
					    : CPA_VERDICT_CANNOT_TELL;
	snprintf(time->reason, sizeof time->reason, "%.255s", status == CPA_OK ? "" : inner.text);
	return CPA_OK;
}

void cpa_kernel_list_fini(struct cpa_kernel_list *list)
{
	for (int i = 0; i < list->n; i++) {
		if (list->at[i].kernel.device)
			cpa_kernel_destroy(&list->at[i].kernel);
		free(list->at[i].samples);
	}
	free(list->at);
	*list = (struct cpa_kernel_list){0};
}

/* ---- limits ---- */

/* Arrays to copy, of the sizes that the kernels move. */
enum { MAX_SPACES = 16 };
struct spaces {
	size_t nbytes[MAX_SPACES];
	struct cpa_peak_space *at[MAX_SPACES];
	double copy[MAX_SPACES], read[MAX_SPACES];
	int n;
};

/* In each of two arrays of each thread: as a kernel that reads and writes `bytes` in all. */
static size_t share_of(const struct cpa_kernel_time *time, int threads)
{
	return (size_t)(time->kernel.bytes / 2 / threads / 64 + 1) * 64;
}

static int find_space(struct spaces *s, size_t nbytes, int threads)
{
	for (int i = 0; i < s->n; i++)
		if (s->nbytes[i] / 2 <= nbytes && nbytes <= s->nbytes[i] * 2)
			return i;
	if (s->n == MAX_SPACES || !(s->at[s->n] = cpa_peak_space_create(nbytes, threads)))
		return -1;
	s->nbytes[s->n] = nbytes;
	return s->n++;
}

static void sample_limits(struct cpa_kernel_list *list, struct spaces *s)
{
	double flop[4] = {0}; /* by dtype */
	for (int i = 0; i < s->n; i++) {
		s->copy[i] = fmax(cpa_peak_copy(s->at[i]), cpa_peak_stream(s->at[i]));
		s->read[i] = cpa_peak_read(s->at[i]);
	}
	for (int i = 0; i < list->n; i++) {
		struct cpa_kernel_time *time = &list->at[i];
		int space = time->against == CPA_KERNEL_LIMIT_FLOP || time->verdict
			? -1
			: find_space(s, share_of(time, list->threads), list->threads);
		enum cpa_dtype dtype = time->kernel.problem.dtype;
		double now;
		if (time->against == CPA_KERNEL_LIMIT_FLOP && flop[dtype] <= 0)
			flop[dtype] = cpa_peak_fma(cpa_limit_set(dtype), list->threads);
		now = time->against == CPA_KERNEL_LIMIT_FLOP		    ? flop[dtype]
			: space < 0				    ? 0
			: time->against == CPA_KERNEL_LIMIT_READ    ? s->read[space]
								    : s->copy[space];
		time->limit = fmax(time->limit, now);
	}
}

enum cpa_status cpa_kernel_list_run(struct cpa_kernel_list *list, struct cpa_error *error)
{
	struct spaces spaces = {.n = 0};
	enum cpa_status status = CPA_OK;
	cpa_threads_set(list->threads);
	for (int t = -list->warmup; t < list->repeat && status == CPA_OK; t++) {
		sample_limits(list, &spaces);
		for (int i = 0; i < list->n && status == CPA_OK; i++) {
			struct cpa_kernel_time *time = &list->at[i];
			double seconds;
			if (time->verdict != CPA_VERDICT_RIGHT)
				continue;
			/* Limits of memory are measured in arrays that were passed over just before,
			 * and what the kernel before left is not to be written back on this clock. */
			if (time->against != CPA_KERNEL_LIMIT_FLOP)
				status = cpa_kernel_time(&time->kernel, &seconds, error);
			if (status == CPA_OK)
				status = cpa_kernel_time(&time->kernel, &seconds, error);
			if (t >= 0)
				time->samples[time->nsamples++] = seconds;
		}
	}
	sample_limits(list, &spaces);
	for (int i = 0; i < list->n; i++)
		list->at[i].seconds = cpa_statistics_of(
			list->at[i].samples, list->at[i].nsamples);
	for (int i = 0; i < spaces.n; i++)
		cpa_peak_space_destroy(spaces.at[i]);
	return status;
}

/* ---- which ---- */

static struct cpa_problem shape(
	int64_t S, int64_t H, int64_t D, enum cpa_dtype dtype, bool causal)
{
	return (struct cpa_problem){.B = 1,
		.Sq = S,
		.Skv = S,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = dtype,
		.scale = 1 / sqrt((double)D),
		.rule = {.causal = causal}};
}

static enum cpa_status add_attends(struct cpa_kernel_list *list, struct cpa_error *error)
{
	/* So many heads that a call takes some milliseconds, and threads have enough of them. */
	static const struct {
		int64_t S, H;
	} sizes[] = {{64, 128}, {256, 24}, {1024, 4}, {2048, 2}};
	static const enum cpa_dtype dtypes[] = {CPA_DTYPE_FP32, CPA_DTYPE_BF16, CPA_DTYPE_FP16};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 4 * 2 * 3 * 2 && status == CPA_OK; i++) {
		struct cpa_problem p = shape(sizes[i / 12].S, sizes[i / 12].H,
			i / 6 % 2 ? 64 : 128, dtypes[i / 2 % 3], i % 2);
		status = cpa_kernel_list_add(
			list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_FLOP, &p, error);
	}
	return status;
}

/* Arrays of 256 KiB, and of 32 MiB. */
static enum cpa_status add_moves(struct cpa_kernel_list *list, struct cpa_error *error)
{
	static const enum cpa_kernel_kind kinds[] = {
		CPA_KERNEL_MERGE, CPA_KERNEL_COPY, CPA_KERNEL_TRANSPOSE};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 3 * 2 * 2 && status == CPA_OK; i++) {
		int64_t D = i / 2 % 2 ? 64 : 128, row = 8 * D * 4;
		struct cpa_problem p = shape(
			(i % 2 ? 32 << 20 : 256 << 10) / row, 8, D, CPA_DTYPE_FP32, false);
		status = cpa_kernel_list_add(
			list, kinds[i / 4], CPA_KERNEL_LIMIT_COPY, &p, error);
	}
	return status;
}

static enum cpa_status add_problem(
	struct cpa_kernel_list *list, const struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	for (int kind = 0; kind <= CPA_KERNEL_TRANSPOSE && status == CPA_OK; kind++)
		status = cpa_kernel_list_add(list, (enum cpa_kernel_kind)kind,
			kind == CPA_KERNEL_ATTEND ? CPA_KERNEL_LIMIT_FLOP : CPA_KERNEL_LIMIT_COPY,
			problem, error);
	return status;
}

/* ---- the command ---- */

static enum cpa_status write_files(
	const struct cpa_kernel_list *list, const struct cpa_options *o, struct cpa_error *error)
{
	const char *const paths[3] = {o->json, o->csv, o->junit};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 3 && status == CPA_OK; i++) {
		struct cpa_output output;
		if (!paths[i])
			continue;
		status = cpa_output_open(&output, paths[i], error);
		if (status != CPA_OK)
			break;
		if (i == 0)
			cpa_kernel_list_json(output.file, list, o);
		else if (i == 1)
			cpa_kernel_list_csv(output.file, list);
		else
			cpa_kernel_list_junit(output.file, list);
		status = cpa_output_commit(&output, error);
	}
	return status;
}

static int conclude(const struct cpa_kernel_list *list)
{
	int n[4] = {0};
	for (int i = 0; i < list->n; i++)
		n[list->at[i].verdict]++;
	for (int i = 0; i < list->n; i++) {
		const struct cpa_kernel_time *time = &list->at[i];
		struct cpa_error error;
		if (time->verdict != CPA_VERDICT_WRONG &&
			(n[CPA_VERDICT_RIGHT] || !time->verdict))
			continue;
		cpa_fail(&error, CPA_INVALID, "%s", time->reason);
		cpa_complain(&error);
		break;
	}
	return n[CPA_VERDICT_WRONG]				      ? 1
		: n[CPA_VERDICT_CANNOT_TELL] || !n[CPA_VERDICT_RIGHT] ? 2
								      : 0;
}

int cpa_bench_kernels(const struct cpa_options *options, struct cpa_device *device)
{
	struct cpa_kernel_list list = {.device = device,
		.threads = options->threads ? options->threads : cpa_threads_most(),
		.warmup = options->warmup,
		.repeat = options->repeat};
	struct cpa_error error = {""};
	enum cpa_status status = cpa_threads_check(options->threads, &error);
	if (status == CPA_OK && options->has_problem) {
		status = add_problem(&list, &options->problem, &error);
	} else if (status == CPA_OK) {
		status = add_attends(&list, &error);
		if (status == CPA_OK)
			status = add_moves(&list, &error);
	}
	if (status == CPA_OK)
		status = cpa_kernel_list_run(&list, &error);
	if (status == CPA_OK)
		status = write_files(&list, options, &error);
	if (status == CPA_OK && !cpa_result_takes_stdout(options))
		cpa_kernel_list_print(stdout, &list);
	int exit_status = status == CPA_OK ? conclude(&list) : cpa_complain(&error);
	cpa_kernel_list_fini(&list);
	return exit_status;
}
