/*
 * cmd_plan.c - the command plan: schedules made, proved, counted and printed, without running
 * them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/guidance.h"
#include "harness/plan.h"
#include "harness/plan_model.h"
#include "harness/result_parts.h"
#include "harness/text.h"

enum { MOST_PRINTED = 8, MOST_DRAWN = 64 };

struct plan {
	const struct cpa_options *options;
	struct cpa_plan_targets targets;
	struct cpa_plan_model_members members;
	const struct cpa_plan_target
		*target; /* the one whose configurations are being visited */
	struct cpa_result_list list;
	struct cpa_arena arena; /* answers of another system */
	int64_t nconfigs;       /* of all targets */
	int largest;            /* world */
	bool quiet;             /* stdout belongs to a file format */
	enum cpa_status status; /* of the machine: out of memory and the like */
	struct cpa_error error;
};

/* ---- one configuration ------------------------------------------------------------------- */

static bool stop(struct plan *plan, enum cpa_status status)
{
	plan->status = status;
	return false;
}

/* Hands every rank's schedule to the checker and counts it; moved is what rotates, of all ranks.
 * The status of lacking memory only. */
static enum cpa_status prove(const struct cpa_partition *partition, struct cpa_result *result,
	int64_t *moved, struct cpa_error *error)
{
	struct cpa_check *check = NULL;
	enum cpa_status status = cpa_check_create(partition, &check, error), proof = CPA_OK;

	*moved = 0;
	for (int rank = 0; rank < partition->W && status == CPA_OK; rank++) {
		struct cpa_schedule *schedule = NULL;

		status = cpa_plan_create(partition, rank, &schedule, error);
		if (status != CPA_OK)
			break;
		cpa_schedule_count(schedule, &partition->problem, &result->counts[rank]);
		*moved += cpa_plan_rotated_bytes(schedule);
		if (proof == CPA_OK)
			proof = cpa_check_rank(check, schedule, error);
		cpa_schedule_destroy(schedule);
		if (proof != CPA_OK && proof != CPA_MISMATCH)
			status = proof;
	}
	if (status == CPA_OK && proof == CPA_OK)
		proof = cpa_check_finish(check, error);
	if (status == CPA_OK && proof != CPA_OK && proof != CPA_MISMATCH)
		status = proof;
	result->has_proof = status == CPA_OK;
	result->proved = proof == CPA_OK;
	if (status == CPA_OK && proof == CPA_MISMATCH)
		snprintf(result->reason, sizeof result->reason, "%s",
			cpa_check_fault(check)->text[0] ? cpa_check_fault(check)->text
							: error->text);
	cpa_check_destroy(check);
	return status;
}

static void quote(struct cpa_text *text, const char *word)
{
	cpa_text_put(text, " '");
	for (; *word; word++)
		cpa_text_put(text, *word == '\'' ? "'\\''" : "%c", *word);
	cpa_text_put(text, "'");
}

/* Enough for all of the line but its configuration. */
static size_t line_size(const struct plan *plan, const struct cpa_result *result)
{
	enum { WORDS = 256, QUOTED = 4 }; /* one character may take four */
	const struct cpa_options *o = plan->options;
	const char *const words[] = {o->model, o->size, plan->targets.file, result->call,
		o->problem_text};
	size_t n = 0;

	for (int i = 0; i < 5; i++)
		n += words[i] ? strlen(words[i]) : 0;
	return WORDS + QUOTED * n;
}

static void set_reproduce(const struct plan *plan, struct cpa_result *result)
{
	char *config = cpa_config_text(&result->config);
	size_t size = line_size(plan, result) + (config ? strlen(config) : 0);
	struct cpa_text text;

	result->reproduce = config ? malloc(size) : NULL;
	if (!result->reproduce) {
		free(config);
		return;
	}
	text = cpa_text_begin(result->reproduce, size);
	cpa_text_put(&text, "cpattn plan");
	if (cpa_plan_model_reproduce(&text, plan->options, result->call)) {
		/* the model says it all */
	} else if (plan->targets.file) {
		quote(&text, plan->targets.file);
		cpa_text_put(&text, " --call");
		quote(&text, result->call);
	} else {
		cpa_text_put(&text, " --problem");
		quote(&text, plan->options->problem_text);
	}
	if (plan->options->has_dtype)
		cpa_text_put(&text, " --dtype %s", cpa_dtype_name(plan->options->dtype));
	cpa_guidance_put(&text, &plan->options->guidance);
	cpa_text_put(&text, " %s", config);
	free(config);
}

static void start_result(const struct plan *plan, struct cpa_result *result)
{
	cpa_result_init(result);
	result->file = plan->targets.file;
	result->call = plan->target->call;
	result->guidance = plan->target->guidance;
	if (plan->target->refused != CPA_VERDICT_CANNOT_TELL)
		result->problem = &plan->target->problem;
}

/* Plans the ranks to print again: a plan is cheap, and a thousand of them are not kept for
 * eight. */
static enum cpa_status print_ranks(const struct plan *plan,
	const struct cpa_partition *partition, struct cpa_error *error)
{
	const struct cpa_int_list *asked = &plan->options->print_ranks;
	bool named = plan->options->has_print_ranks;
	int n = named ? asked->n : partition->W <= MOST_PRINTED ? partition->W : 0;

	for (int i = 0; i < n; i++) {
		int64_t rank = named ? asked->at[i] : i;
		struct cpa_schedule *schedule = NULL;
		enum cpa_status status;

		if (rank >= partition->W)
			continue;
		status = cpa_plan_create(partition, (int)rank, &schedule, error);
		if (status != CPA_OK)
			return status;
		cpa_plan_print_schedule(stdout, schedule);
		cpa_schedule_destroy(schedule);
	}
	return CPA_OK;
}

static enum cpa_status draw(const struct plan *plan, const struct cpa_partition *partition,
	struct cpa_error *error)
{
	const struct cpa_int_list *asked = &plan->options->print_ranks;
	struct cpa_schedule *schedules[MOST_DRAWN] = { NULL };
	enum cpa_status status = CPA_OK;
	int n = 0, wanted = plan->options->has_print_ranks ? asked->n : partition->W;

	if (wanted > MOST_DRAWN)
		return cpa_fail(error, CPA_INVALID,
			"--format dot draws at most %d ranks, and there are %d; pick "
			"some with --rank 0-%d",
			MOST_DRAWN, wanted, MOST_DRAWN - 1);
	for (int i = 0; i < wanted && status == CPA_OK; i++) {
		int64_t rank = plan->options->has_print_ranks ? asked->at[i] : i;

		if (rank < partition->W)
			status = cpa_plan_create(partition, (int)rank, &schedules[n++], error);
	}
	if (status == CPA_OK)
		cpa_plan_print_dot(stdout, schedules, n);
	for (int i = 0; i < n; i++)
		cpa_schedule_destroy(schedules[i]);
	return status;
}

static enum cpa_status print_one(const struct plan *plan, const struct cpa_partition *partition,
	const struct cpa_result *result, int64_t moved, struct cpa_error *error)
{
	const struct cpa_options *o = plan->options;
	bool one = plan->nconfigs == 1;

	if (o->format == CPA_FORMAT_DOT)
		return draw(plan, partition, error);
	if (plan->quiet || !(one || o->verbose || o->has_print_ranks))
		return CPA_OK;
	if (plan->list.n > 0)
		fputc('\n', stdout);
	cpa_plan_print_result(stdout, result);
	cpa_plan_print_moved(stdout, partition, moved);
	if (o->order_auto)
		printf("  --order auto picked %s\n", cpa_order_name(result->config.order));
	cpa_plan_print_advice(stdout, &partition->problem, &result->config);
	/* The answer of another system is not to be pushed out of sight. */
	return (one && !o->as) || o->has_print_ranks ? print_ranks(plan, partition, error) : CPA_OK;
}

static enum cpa_status plan_partition(struct plan *plan, const struct cpa_partition *partition,
	struct cpa_result *result)
{
	enum cpa_status status;
	int64_t moved;

	result->counts = calloc((size_t)partition->W, sizeof *result->counts);
	if (!result->counts)
		return cpa_fail(&plan->error, CPA_NO_MEMORY, "out of memory");
	status = prove(partition, result, &moved, &plan->error);
	if (status != CPA_OK)
		return status;
	result->verdict = result->proved ? CPA_VERDICT_RIGHT : CPA_VERDICT_WRONG;
	if (!result->proved)
		set_reproduce(plan, result);
	return print_one(plan, partition, result, moved, &plan->error);
}

static bool visit(void *context, const struct cpa_config *config)
{
	struct plan *plan = context;
	struct cpa_partition *partition = NULL;
	struct cpa_result result;
	enum cpa_status status;

	start_result(plan, &result);
	result.has_config = true;
	result.config = *config;
	result.W = config->batch_degree * config->ring_degree * config->ulysses_degree;
	status = cpa_partition_create(&plan->target->problem, config, &partition, &plan->error);
	if (status == CPA_UNSUPPORTED || status == CPA_INVALID) {
		result.verdict = status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
							   : CPA_VERDICT_CANNOT_TELL;
		snprintf(result.reason, sizeof result.reason, "%s", plan->error.text);
	} else if (status == CPA_OK) {
		status = plan_partition(plan, partition, &result);
		cpa_partition_destroy(partition);
		if (status != CPA_OK) {
			free(result.counts);
			free(result.reproduce);
			return stop(plan, status);
		}
	} else {
		return stop(plan, status);
	}
	status = cpa_plan_judge(
		&plan->targets, plan->options, &plan->arena, &result, &plan->error);
	if (status == CPA_OK)
		status = cpa_result_list_add(&plan->list, &result);
	if (status != CPA_OK) {
		free(result.counts);
		free(result.reproduce);
		return stop(plan, cpa_fail(&plan->error, status, "out of memory"));
	}
	return true;
}

/* ---- what to plan ------------------------------------------------------------------------ */

static bool count_config(void *context, const struct cpa_config *config)
{
	struct plan *plan = context;
	int W = config->batch_degree * config->ring_degree * config->ulysses_degree;

	plan->nconfigs++;
	plan->largest = W > plan->largest ? W : plan->largest;
	return true;
}

/* A rank that no world has is a mistake worth a sentence. */
static enum cpa_status check_print_ranks(struct plan *plan)
{
	const struct cpa_int_list *asked = &plan->options->print_ranks;
	int64_t most = asked->n > 0 ? asked->at[asked->n - 1] : -1;

	if (plan->largest > 0 && most >= plan->largest)
		return cpa_fail(&plan->error, CPA_INVALID,
			"--rank %" PRId64 ": the largest world has ranks 0-%d", most,
			plan->largest - 1);
	return CPA_OK;
}

static enum cpa_status count_configs(struct plan *plan)
{
	struct cpa_options counted = *plan->options;

	counted.order_auto = false; /* costs plans, and changes no number */
	for (int i = 0; i < plan->targets.n; i++) {
		enum cpa_status status = CPA_OK;

		counted.guidance = plan->targets.at[i].guidance;
		if (plan->targets.at[i].refused == CPA_VERDICT_RIGHT)
			status = cpa_sweep(&counted, &plan->targets.at[i].problem,
				CPA_ROTATE_CHOICE_P2P, false, count_config, plan, &plan->error);
		if (status != CPA_OK)
			return status;
	}
	if (plan->options->format == CPA_FORMAT_DOT && plan->nconfigs > 1)
		return cpa_fail(&plan->error, CPA_INVALID,
			"--format dot draws one configuration, and these options "
			"choose %" PRId64 "; fix --variant, --ranks, --ring, --ulysses%s",
			plan->nconfigs, plan->targets.n > 1 ? " and --call" : "");
	return check_print_ranks(plan);
}

static enum cpa_status plan_target(struct plan *plan, const struct cpa_plan_target *target)
{
	struct cpa_options options = *plan->options;
	enum cpa_status status;
	int first = plan->list.n;

	plan->target = target;
	if (target->refused != CPA_VERDICT_RIGHT) {
		struct cpa_result result;

		start_result(plan, &result);
		result.verdict = target->refused;
		snprintf(result.reason, sizeof result.reason, "%s", target->reason);
		status = cpa_result_list_add(&plan->list, &result);
		return status == CPA_OK ? status
					: cpa_fail(&plan->error, status, "out of memory");
	}
	options.guidance = target->guidance;
	status = cpa_sweep(&options, &target->problem, CPA_ROTATE_CHOICE_P2P, false, visit,
		plan, &plan->error);
	if (status == CPA_OK)
		status = plan->status;
	if (status == CPA_OK && plan->options->best)
		cpa_plan_sort(plan->list.at + first, plan->list.n - first, plan->options->best);
	return status;
}

/* ---- the end ----------------------------------------------------------------------------- */

static void print_tables(const struct plan *plan)
{
	char text[512];

	for (int first = 0; first < plan->list.n;
		first = cpa_result_call_end(&plan->list, first)) {
		const struct cpa_result *r = &plan->list.at[first];

		if (r->file) {
			cpa_print_clean(stdout, r->file);
			fputc(' ', stdout);
			cpa_print_clean(stdout, r->call ? r->call : "");
			fputc('\n', stdout);
		}
		if (r->problem) {
			cpa_problem_print(r->problem, text, sizeof text);
			printf("  %s (lse %s, layout %s)\n", text,
				r->problem->lse ? "is an output" : "is not an output",
				cpa_layout_name(r->problem->layout));
			cpa_guidance_describe(&r->guidance, text, sizeof text);
			printf(text[0] ? "  %s\n" : "%s", text);
		}
		cpa_plan_print_table(stdout, &plan->list, first,
			cpa_result_call_end(&plan->list, first), plan->options->order_auto);
	}
}

/* One sentence on stderr whenever the status is 2. */
static int conclude(struct plan *plan)
{
	bool nowhere = cpa_result_ran_nowhere(&plan->list, plan->options);
	int status = cpa_result_exit(&plan->list, nowhere);
	const struct cpa_result *first = NULL;

	for (int i = 0; i < plan->list.n && !first; i++)
		if (plan->list.at[i].verdict == CPA_VERDICT_CANNOT_TELL)
			first = &plan->list.at[i];
	for (int i = 0; i < plan->list.n && !first; i++)
		if (plan->list.at[i].verdict == CPA_VERDICT_UNSUPPORTED)
			first = &plan->list.at[i];
	if (status == 2) {
		cpa_fail(&plan->error, CPA_UNSUPPORTED, "%s%.300s%s%.600s",
			nowhere && plan->list.n > 1 ? "a variant asked for by name ran "
						      "nowhere: "
						    : "",
			plan->targets.file ? plan->targets.file : "",
			plan->targets.file ? ": " : "",
			first ? first->reason : "nothing to plan");
		cpa_complain(&plan->error);
	}
	return status;
}

static int run(struct plan *plan)
{
	const struct cpa_options *o = plan->options;
	enum cpa_status status = cpa_plan_targets_find(&plan->targets, o, &plan->error);

	if (status == CPA_OK)
		status = count_configs(plan);
	if (status == CPA_OK && !plan->quiet)
		status = cpa_plan_model_print(stdout, &plan->targets, o, &plan->error);
	if (plan->targets.model) {
		plan->list.put_members = cpa_plan_model_put_json;
		plan->list.context = &plan->members;
	}
	for (int i = 0; i < plan->targets.n && status == CPA_OK; i++)
		status = plan_target(plan, &plan->targets.at[i]);
	if (status == CPA_OK)
		status = cpa_result_write(&plan->list, o, &plan->error);
	if (status != CPA_OK)
		return cpa_complain(&plan->error);
	if (!plan->quiet && plan->nconfigs != 1 && plan->list.n > 1 && !o->has_print_ranks &&
		!o->verbose)
		print_tables(plan);
	if (!plan->quiet && o->as)
		cpa_plan_print_answers(stdout, &plan->list, o);
	return conclude(plan);
}

int cpa_cmd_plan(const struct cpa_options *options)
{
	struct plan plan = { .options = options, .members = { &plan.targets, options } };
	int status;

	plan.quiet = cpa_result_takes_stdout(options) || options->format == CPA_FORMAT_DOT;
	cpa_arena_init(&plan.arena);
	status = run(&plan);
	cpa_arena_fini(&plan.arena);
	cpa_result_list_fini(&plan.list);
	cpa_plan_targets_fini(&plan.targets);
	return status;
}
