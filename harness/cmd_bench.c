/*
 * cmd_bench.c - the command bench: configurations of a problem, timed beside each other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/kernel_times.h"
#include "harness/measure_table.h"
#include "harness/plan.h"
#include "harness/result_parts.h"

enum { DEFAULT_WORLD = 4 };

struct bench {
	struct cpa_options options; /* a copy, with its worlds settled; owns nothing */
	int64_t world; /* the default one */
	struct cpa_measure_session session;
	struct cpa_plan_targets targets;
	struct cpa_result_list list;
	/* Of the target under way. */
	struct cpa_config *configs;
	int n, capacity;
	bool failed; /* out of memory */
};

/* ---- which configurations ---- */

static bool collect(void *context, const struct cpa_config *config)
{
	struct bench *b = context;
	if (b->n == b->capacity) {
		int capacity = b->capacity ? 2 * b->capacity : 32;
		struct cpa_config *more = realloc(b->configs, (size_t)capacity * sizeof *more);
		b->failed = !more;
		if (!more)
			return false;
		b->configs = more;
		b->capacity = capacity;
	}
	b->configs[b->n++] = *config;
	return true;
}

/* Without --ranks: what is fixed, all processes, or 4. */
static void settle_worlds(struct bench *b)
{
	struct cpa_options *o = &b->options;
	bool fixed = o->batch || o->ring || o->ulysses;
	if (o->ranks_asked)
		return;
	b->world = strcmp(o->comm, "fake") != 0 ? b->session.nprocesses
		: fixed ? (int64_t)(o->batch ? o->batch : 1) * (o->ring ? o->ring : 1) *
			(o->ulysses ? o->ulysses : 1)
			: DEFAULT_WORLD;
	o->ranks = (struct cpa_int_list){&b->world, 1};
}

/* ---- one target ---- */

static void start_result(
	const struct bench *b, const struct cpa_plan_target *target, struct cpa_result *result)
{
	result->file = b->targets.file;
	result->call = target->call ? target->call : NULL;
	result->device = b->session.settings.device->ops->name;
	result->comm = b->options.comm;
}

/* One verdict for all of the call. */
static enum cpa_status refuse(struct bench *b, const struct cpa_plan_target *target,
	enum cpa_verdict verdict, const char *reason)
{
	struct cpa_result result;
	cpa_result_init(&result);
	start_result(b, target, &result);
	result.verdict = verdict;
	snprintf(result.reason, sizeof result.reason, "%s", reason);
	return cpa_result_list_add(&b->list, &result);
}

static enum cpa_status keep_results(
	struct bench *b, const struct cpa_plan_target *target, struct cpa_result *results)
{
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < b->n; i++) {
		start_result(b, target, &results[i]);
		if (status == CPA_OK)
			status = cpa_result_list_add(&b->list, &results[i]);
		if (status != CPA_OK) {
			free(results[i].counts);
			free(results[i].measured);
		}
	}
	return status;
}

static enum cpa_status run_target(
	struct bench *b, const struct cpa_plan_target *target, struct cpa_error *error)
{
	struct cpa_error inner = {""};
	if (target->refused != CPA_VERDICT_RIGHT)
		return refuse(b, target, target->refused, target->reason);
	b->n = 0;
	enum cpa_status status = cpa_sweep(&b->options, &target->problem, CPA_ROTATE_CHOICE_P2P,
		b->session.settings.device->fp64_partials, collect, b, error);
	if (b->failed)
		return CPA_NO_MEMORY;
	if (status != CPA_OK || b->n == 0)
		return status;
	struct cpa_result *results = calloc((size_t)b->n + 1, sizeof *results);
	if (!results)
		return CPA_NO_MEMORY;
	status = cpa_measure_problem(&b->session, &target->problem, b->options.seed, b->configs,
		b->n, results, &inner);
	if (status == CPA_OK) {
		status = keep_results(b, target, results);
	} else {
		for (int i = 0; i < b->n; i++) {
			free(results[i].counts);
			free(results[i].measured);
		}
		/* Out of memory ends the command; all else is about this call. */
		if (status != CPA_NO_MEMORY)
			status = refuse(b, target,
				status == CPA_MISMATCH		    ? CPA_VERDICT_WRONG
					: status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
								    : CPA_VERDICT_CANNOT_TELL,
				inner.text);
	}
	free(results);
	return status;
}

/* ---- the command ---- */

static void print_tables(const struct bench *b)
{
	const struct cpa_options *o = &b->options;
	if (cpa_result_takes_stdout(o))
		return;
	cpa_measure_print_head(stdout, &b->session);
	for (int first = 0; first < b->list.n;) {
		int end = cpa_result_call_end(&b->list, first);
		cpa_measure_print_problem(stdout, &b->list, first, end);
		first = end;
	}
}

/* One sentence on stderr whenever the status is not 0. */
static int conclude(const struct bench *b)
{
	bool nowhere = cpa_result_ran_nowhere(&b->list, &b->options);
	int status = cpa_result_exit(&b->list, nowhere);
	enum cpa_verdict worst = status == 1 ? CPA_VERDICT_WRONG : CPA_VERDICT_UNSUPPORTED;
	struct cpa_error error;
	const struct cpa_result *first = NULL;
	for (int i = 0; i < b->list.n && !first; i++)
		if (b->list.at[i].verdict == worst ||
			(status == 2 && b->list.at[i].verdict == CPA_VERDICT_CANNOT_TELL))
			first = &b->list.at[i];
	if (status == 0)
		return 0;
	cpa_fail(&error, CPA_UNSUPPORTED, "%s%.200s%s%.700s",
		status == 1	  ? "wrong, and not timed: "
			: nowhere ? "a variant asked for by name ran nowhere: "
				  : "",
		b->targets.file ? b->targets.file : "", b->targets.file ? ": " : "",
		first ? first->reason : "no mesh of these worlds suits it");
	cpa_complain(&error);
	return status;
}

static enum cpa_status run(struct bench *b, struct cpa_error *error)
{
	const struct cpa_measure_settings settings = {.device = b->session.settings.device,
		.comm = b->options.comm,
		.warmup = b->options.warmup,
		.repeat = b->options.repeat,
		.threads = b->options.threads,
		.one_rank_threads = b->options.one_rank_threads};
	enum cpa_status status = cpa_plan_targets_find(&b->targets, &b->options, error);
	if (status == CPA_OK)
		status = cpa_measure_begin(&b->session, &settings, error);
	if (status != CPA_OK)
		return status;
	settle_worlds(b);
	for (int i = 0; i < b->targets.n && status == CPA_OK; i++) {
		status = run_target(b, &b->targets.at[i], error);
		if (status == CPA_NO_MEMORY && !error->text[0])
			cpa_fail(error, status, "out of memory for results");
	}
	if (status == CPA_OK && b->session.leads)
		status = cpa_result_write(&b->list, &b->options, error);
	return status;
}

static int bench_problems(const struct cpa_options *options, struct cpa_device *device)
{
	struct bench b = {.options = *options, .session.settings.device = device};
	struct cpa_error error = {""};
	int status = 0;
	if (run(&b, &error) != CPA_OK) {
		/* All processes come to the same, and one says it. */
		status = b.session.world && !b.session.leads ? 2 : cpa_complain(&error);
	} else if (b.session.leads) {
		print_tables(&b);
		fflush(stdout); /* before another process ends with 1 or 2, and mpirun all of them
				 */
		status = conclude(&b);
	} else {
		status = cpa_result_exit(&b.list, cpa_result_ran_nowhere(&b.list, &b.options));
	}
	cpa_result_list_fini(&b.list);
	cpa_plan_targets_fini(&b.targets);
	cpa_measure_end(&b.session);
	free(b.configs);
	return status;
}

int cpa_cmd_bench(const struct cpa_options *options)
{
	struct cpa_device *device;
	struct cpa_error error = {""};
	if (cpa_device_create(options->device, &device, &error) != CPA_OK)
		return cpa_complain(&error);
	int status = options->kernels ? cpa_bench_kernels(options, device)
				      : bench_problems(options, device);
	cpa_device_destroy(device);
	return status;
}
