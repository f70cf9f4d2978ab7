/*
 * verify_call.c - one call: its configurations, the rows that are compared, the results.
 */
#include "harness/verify_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/guidance.h"
#include "harness/record.h"
#include "harness/text.h"
#include "harness/verify_rank.h"

static void add_result(struct cpa_verify_session *s, struct cpa_result *result)
{
	if (cpa_result_list_add(&s->results, result) == CPA_OK)
		return;
	free(result->counts);
	free(result->reproduce);
	if (s->status == CPA_OK)
		s->status = cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory for results");
}

void cpa_verify_add_verdict(struct cpa_verify_session *s, const char *file, const char *call,
	const struct cpa_problem *problem, enum cpa_status status, const char *reason)
{
	struct cpa_result result;
	cpa_result_init(&result);
	result.file = file;
	result.call = call;
	result.problem = problem;
	result.device = s->device->ops->name;
	result.comm = s->options->comm;
	result.verdict =
		status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED : CPA_VERDICT_CANNOT_TELL;
	snprintf(result.reason, sizeof result.reason, "%s", reason);
	add_result(s, &result);
}

/* ---- what runs ---- */

static bool collect(void *context, const struct cpa_config *config)
{
	struct cpa_verify_call *call = context;
	if (call->nconfigs == call->capacity) {
		int capacity = call->capacity ? 2 * call->capacity : 64;
		struct cpa_config *more =
			realloc(call->configs, (size_t)capacity * sizeof *more);
		call->failed = !more;
		if (!more)
			return false;
		call->configs = more;
		call->capacity = capacity;
	}
	call->configs[call->nconfigs++] = *config;
	return true;
}

/* The first and last query token of every shard of one configuration. */
static void want_shard_ends(
	const struct cpa_problem *problem, const struct cpa_config *config, bool *wanted)
{
	struct cpa_partition *part;
	struct cpa_error ignored;
	struct cpa_arena arena;
	if (cpa_partition_create(problem, config, &part, &ignored) != CPA_OK)
		return; /* refused, so it will not run */
	cpa_arena_init(&arena);
	for (int r = 0; r < config->ring_degree; r++)
		for (int u = 0; u < config->ulysses_degree; u++) {
			struct cpa_spans shard = cpa_partition_q_shard(part, &arena, r, u);
			if (shard.n == 0)
				continue;
			wanted[cpa_spans_min(&shard)] = true;
			wanted[cpa_spans_max(&shard)] = true;
		}
	cpa_arena_fini(&arena);
	cpa_partition_destroy(part);
}

/* Which rows are compared: NULL in *wanted means all. */
static enum cpa_status choose_rows(
	const struct cpa_verify_call *call, bool **wanted, struct cpa_error *error)
{
	const struct cpa_problem *p = call->problem;
	enum cpa_status status =
		cpa_truth_choose(p, call->session->options->rows, wanted, error);
	for (int i = 0; status == CPA_OK && *wanted && i < call->nconfigs; i++)
		want_shard_ends(p, &call->configs[i], *wanted);
	return status;
}

/* ---- the line that repeats a wrong result ---- */

static void put_quoted(struct cpa_text *text, const char *word)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
	if (*word && strspn(word, plain) == strlen(word)) {
		cpa_text_put(text, "%s", word);
		return;
	}
	cpa_text_put(text, "'");
	for (; *word; word++)
		if (*word == '\'')
			cpa_text_put(text, "'\\''");
		else
			cpa_text_put(text, "%c", *word);
	cpa_text_put(text, "'");
}

/* Enough for all of the line but its configuration. */
static size_t line_size(const struct cpa_options *o, const char *file, const char *name)
{
	enum { WORDS = 512, QUOTED = 4 }; /* one character may take four */
	size_t n = strlen(o->device) + (o->fault ? strlen(o->fault) : 0);
	n += file ? strlen(file) + strlen(name) : strlen(o->problem_text);
	return WORDS + QUOTED * n;
}

char *cpa_verify_line(const struct cpa_options *o, const char *file, const char *name,
	const struct cpa_config *config, const struct cpa_verify_trace *trace)
{
	char *selects = cpa_config_text(config);
	size_t size = line_size(o, file, name) + (selects ? strlen(selects) : 0);
	char *line = selects ? malloc(size) : NULL;
	if (!line) {
		free(selects);
		return NULL;
	}
	struct cpa_text text = cpa_text_begin(line, size);
	cpa_text_put(&text, "cpattn verify ");
	if (file) {
		put_quoted(&text, file);
		cpa_text_put(&text, " --call ");
		put_quoted(&text, name);
	} else {
		cpa_text_put(&text, "--problem ");
		put_quoted(&text, o->problem_text);
		cpa_text_put(&text, " --fill %s", cpa_fill_name(o->fill));
	}
	if (!file || o->fault)
		cpa_text_put(&text, " --seed %" PRIu64, o->seed);
	if (o->has_dtype)
		cpa_text_put(&text, " --dtype %s", cpa_dtype_name(o->dtype));
	if (strcmp(o->device, "cpu") != 0)
		cpa_text_put(&text, " --device %s", o->device);
	cpa_guidance_put(&text, &o->guidance);
	if (strcmp(o->comm, "fake") != 0)
		cpa_text_put(&text, " --comm %s", o->comm);
	cpa_text_put(&text, " %s --interleavings %d --interleaving-seed %" PRIu64, selects,
		trace->interleavings, trace->seed);
	if (o->rows)
		cpa_text_put(&text, " --rows %" PRId64, o->rows);
	if (o->fault)
		cpa_text_put(&text, " --fault %s", o->fault);
	free(selects);
	return line;
}

/* ---- one call ---- */

static void show_progress(const struct cpa_verify_call *call, int done)
{
	char line[80];
	if (!call->session->progress)
		return;
	snprintf(line, sizeof line, "%s %s: %d of %d", call->file ? call->file : "problem",
		call->name, done, call->nconfigs);
	fprintf(stderr, "\r%-79s", line);
	if (done == call->nconfigs)
		fprintf(stderr, "\r%79s\r", "");
	fflush(stderr);
}

static void run_configurations(struct cpa_verify_call *call, struct cpa_verifier *verifier)
{
	struct cpa_verify_session *s = call->session;
	for (int i = 0; i < call->nconfigs && s->status == CPA_OK; i++) {
		struct cpa_result result;
		struct cpa_verify_trace trace;
		show_progress(call, i);
		cpa_result_init(&result);
		result.file = call->file;
		result.call = call->name;
		cpa_verifier_run(verifier, &call->configs[i], &result, &trace);
		result.problem = call->problem;
		if (result.verdict == CPA_VERDICT_WRONG)
			result.reproduce = cpa_verify_line(s->options, call->file,
				call->name, &result.config, &trace);
		if (result.verdict == CPA_VERDICT_RIGHT || result.verdict == CPA_VERDICT_WRONG)
			s->ran[call->configs[i].variant] = true;
		add_result(s, &result);
	}
	show_progress(call, call->nconfigs);
}

/* A file holds one run. */
static enum cpa_status check_record(const struct cpa_verify_call *call, struct cpa_error *error)
{
	const struct cpa_verify_session *s = call->session;
	if (!s->options->record || (call->nconfigs == 1 && s->ncalls == 1))
		return CPA_OK;
	if (s->ncalls > 1)
		return cpa_fail(error, CPA_INVALID,
			"--record writes one call, and this is another; pick one with --call");
	return cpa_fail(error, CPA_INVALID,
		"--record writes one configuration, and %d would run; --variant, --ring, "
		"--ulysses, --batch and --rotate pick one",
		call->nconfigs);
}

static enum cpa_status verify_tensors(struct cpa_verify_call *call,
	const struct cpa_tensors *tensors, struct cpa_error *error)
{
	struct cpa_verify_session *s = call->session;
	struct cpa_verify_settings settings = {.device = s->device,
		.interleavings = s->options->interleavings,
		.seed = s->options->interleaving_seed,
		.guidance = call->guidance,
		.fault = s->fault,
		.fault_where = &s->options->fault_where,
		.fault_seed = s->options->seed};
	struct cpa_verifier *verifier;
	bool *wanted = NULL;
	struct cpa_options options = *s->options; /* with the guidance of this call */
	options.guidance = call->guidance;
	enum cpa_status status = cpa_tensors_check(tensors, error);
	if (status == CPA_OK)
		status = cpa_sweep(&options, call->problem, CPA_ROTATE_CHOICE_ALL,
			s->device->fp64_partials, collect, call, error);
	if (call->failed)
		status = cpa_fail(
			error, CPA_NO_MEMORY, "out of memory for a list of configurations");
	struct cpa_record record = {.path = s->options->record,
		.tensors = tensors,
		.guidance = &call->guidance};
	if (record.path) {
		settings.keep = cpa_record_ranks;
		settings.keep_context = &record;
	}
	if (status == CPA_OK)
		status = check_record(call, error);
	if (status == CPA_OK)
		status = choose_rows(call, &wanted, error);
	if (status == CPA_OK)
		status = cpa_verifier_create(&settings, tensors, wanted, &verifier, error);
	free(wanted);
	if (status != CPA_OK)
		return status;
	run_configurations(call, verifier);
	cpa_verifier_destroy(verifier);
	return CPA_OK;
}

/* ---- one call, one process a rank ---- */

/* NULL: out of memory. */
static char *line_of_processes(const struct cpa_verify_call *call, const struct cpa_result *result,
	const struct cpa_verify_trace *trace)
{
	char *line = cpa_verify_line(
		call->session->options, call->file, call->name, &result->config, trace);
	size_t size = (line ? strlen(line) : 0) + 40;
	char *whole = line ? malloc(size) : NULL;
	if (whole)
		snprintf(whole, size, "mpirun -n %d %s", result->W, line);
	free(line);
	return whole;
}

static void run_processes(struct cpa_verify_call *call, struct cpa_rank_verifier *verifier)
{
	struct cpa_verify_session *s = call->session;
	for (int i = 0; i < call->nconfigs; i++) {
		struct cpa_result result;
		struct cpa_verify_trace trace = {.seed = s->options->interleaving_seed,
			.interleavings = s->options->interleavings};
		if (cpa_world_leads(s->world))
			show_progress(call, i);
		cpa_result_init(&result);
		result.file = call->file;
		result.call = call->name;
		cpa_rank_verifier_run(verifier, &call->configs[i], &result);
		if (result.verdict == CPA_VERDICT_WRONG)
			result.reproduce = line_of_processes(call, &result, &trace);
		if (result.verdict == CPA_VERDICT_RIGHT || result.verdict == CPA_VERDICT_WRONG)
			s->ran[call->configs[i].variant] = true;
		add_result(s, &result);
	}
	if (cpa_world_leads(s->world))
		show_progress(call, call->nconfigs);
}

static enum cpa_status verify_processes(struct cpa_verify_call *call,
	const struct cpa_source *source, struct cpa_error *error)
{
	struct cpa_verify_session *s = call->session;
	struct cpa_rank_settings settings = {.world = s->world,
		.device = s->device,
		.interleavings = s->options->interleavings,
		.problem = call->problem,
		.source = *source};
	struct cpa_rank_verifier *verifier;
	bool *wanted = NULL;
	if (call->guidance.nbranches > 0 || s->options->guidance.nbranches > 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"branches are combined where all ranks are in one process; --comm fake "
			"would work, or leave out --guidance");
	enum cpa_status status = cpa_sweep(s->options, call->problem, CPA_ROTATE_CHOICE_ALL,
		s->device->fp64_partials, collect, call, error);
	if (call->failed)
		status = cpa_fail(
			error, CPA_NO_MEMORY, "out of memory for a list of configurations");
	if (status == CPA_OK)
		status = choose_rows(call, &wanted, error);
	status = cpa_world_agree(s->world, status, error);
	settings.wanted = wanted;
	if (status == CPA_OK)
		status = cpa_rank_verifier_create(&settings, &verifier, error);
	if (status == CPA_OK) {
		run_processes(call, verifier);
		cpa_rank_verifier_destroy(verifier);
	}
	free(wanted);
	return status;
}

/* ---- one call, wherever its ranks are ---- */

static struct cpa_spans all_tokens(struct cpa_span *span, int64_t n)
{
	*span = (struct cpa_span){0, n, n, 1};
	return (struct cpa_spans){span, 1, 1};
}

static enum cpa_status verify_whole(struct cpa_verify_call *call,
	const struct cpa_source *source, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	const struct cpa_problem *p = call->problem;
	void *data[3] = {NULL, NULL, NULL};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 3 && status == CPA_OK; i++) {
		struct cpa_span span;
		struct cpa_spans tokens = all_tokens(&span, cpa_tensor_ntokens(p, tensors[i]));
		data[i] = malloc((size_t)(p->B * cpa_tensor_ntokens(p, tensors[i])) *
				 cpa_token_nbytes(p, tensors[i]));
		status = data[i] ? source->read(source->context, p, tensors[i],
					   (struct cpa_range){0, p->B}, &tokens, data[i], error)
				 : cpa_fail(error, CPA_NO_MEMORY, "out of memory for %s",
					   cpa_tensor_name(tensors[i]));
	}
	struct cpa_tensors t = {p, data[0], data[1], data[2]};
	struct cpa_guidance recorded = call->guidance;
	if (status == CPA_OK)
		status = cpa_guidance_choose(
			call->session->options, &recorded, p, &call->guidance, error);
	if (status == CPA_OK)
		status = verify_tensors(call, &t, error);
	for (int i = 0; i < 3; i++)
		free(data[i]);
	return status;
}

void cpa_verify_call_run(struct cpa_verify_call *call, const struct cpa_source *source)
{
	struct cpa_error error = {""};
	enum cpa_status status = (call->session->world ? verify_processes : verify_whole)(
		call, source, &error);
	free(call->configs);
	if (status != CPA_OK)
		cpa_verify_add_verdict(call->session, call->file, call->name, call->problem, status,
			error.text);
}
