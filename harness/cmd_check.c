/*
 * cmd_check.c - the command check: recorded outputs against full attention.
 */
#include <stdio.h>
#include <string.h>

#include "harness/check_report.h"
#include "harness/commands.h"
#include "harness/diagnose_events.h"
#include "harness/diagnose_report.h"
#include "harness/result_parts.h"
#include "harness/walk.h"

struct session {
	const struct cpa_options *options;
	struct cpa_result_list list;
	struct cpa_arena arena;
	bool quiet; /* stdout belongs to a file format */
	enum cpa_status status; /* out of memory and the like */
	struct cpa_error error;
};

static bool add(struct session *s, const struct cpa_result *result)
{
	if (cpa_result_list_add(&s->list, result) == CPA_OK)
		return true;
	s->status = cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory for a list of results");
	return false;
}

static void *keep(struct session *s, const void *bytes, size_t nbytes)
{
	void *copy = cpa_arena_alloc(&s->arena, nbytes);
	if (copy)
		memcpy(copy, bytes, nbytes);
	return copy;
}

static bool add_verdict(struct session *s, const char *file, const char *call,
	enum cpa_status status, const char *reason)
{
	struct cpa_result result;
	cpa_result_init(&result);
	result.file = file;
	result.call = call;
	result.verdict = status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
						   : CPA_VERDICT_CANNOT_TELL;
	snprintf(result.reason, sizeof result.reason, "%s", reason);
	return add(s, &result);
}

/* ---- one call ---- */

static bool add_part(struct session *s, const char *file, const char *name,
	const struct cpa_checked *checked, const struct cpa_check_part *part)
{
	struct cpa_result result;
	cpa_result_init(&result);
	result.file = file;
	result.call = name;
	result.problem = keep(s, &checked->call->problem, sizeof *result.problem);
	result.part = keep(s, part, sizeof *part);
	if (!result.problem || !result.part) {
		s->status = cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory");
		return false;
	}
	result.o = part->o;
	result.lse = part->lse;
	result.verdict = part->right ? CPA_VERDICT_RIGHT : CPA_VERDICT_WRONG;
	if (!part->right)
		cpa_check_reason(part, checked, result.reason, sizeof result.reason);
	return add(s, &result);
}

static struct cpa_check_rules rules_of(const struct session *s, const struct cpa_checked *checked)
{
	const struct cpa_options *o = s->options;
	struct cpa_check_rules rules = {
		.arithmetic = cpa_arithmetic_default(checked->call->problem.dtype),
		.partials = o->partials};
	if (o->arithmetic)
		cpa_arithmetic_parse(o->arithmetic, &rules.arithmetic);
	return rules;
}

/* The one device, then every rank of the file. */
static enum cpa_status check_parts(struct session *s, const char *file, const char *name,
	const struct cpa_checked *checked, struct cpa_recording *recording, int i,
	struct cpa_error *error)
{
	const struct cpa_call *call = checked->call;
	struct cpa_check_rules rules = rules_of(s, checked);
	enum cpa_status status = CPA_OK;
	for (int rank = -1; rank < call->world && status == CPA_OK; rank++) {
		struct cpa_check_part part;
		status = cpa_check_part(
			checked, recording, i, rank, &rules, &s->arena, &part, error);
		if (status == CPA_OK && (part.has_o || part.has_lse || part.nfindings > 0) &&
			!add_part(s, file, name, checked, &part))
			return s->status;
	}
	return status;
}

/* What the wrong ranks have in common. */
static enum cpa_status diagnose(struct session *s, int first, const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, struct cpa_error *error)
{
	struct cpa_check_rules rules = rules_of(s, checked);
	bool wrong = false;
	for (int n = first; n < s->list.n; n++)
		wrong |= s->list.at[n].part->rank >= 0 &&
			s->list.at[n].verdict == CPA_VERDICT_WRONG;
	if (!wrong || s->options->command != CPA_COMMAND_DIAGNOSE)
		return CPA_OK;
	return cpa_diagnosis_make(
		checked, recording, i, &rules, &s->arena, &s->list.at[first].diagnosis, error);
}

static void report(struct session *s, int first, const struct cpa_checked *checked)
{
	if (checked->call->nranks > 0)
		s->list.at[first].not_shown = cpa_check_blind_spots(checked, &s->arena);
	if (!s->quiet)
		cpa_check_print(stdout, &s->list, first, s->list.n, checked, s->options->verbose);
}

/* What ranks issued, a result of its own. */
static enum cpa_status judge_events(struct session *s, const char *file,
	const struct cpa_call *call, bool alone, struct cpa_error *error)
{
	const struct cpa_recorded_config *c = call->config;
	int64_t world = c ? c->batch_degree * c->ring_degree * c->ulysses_degree : 0;
	struct cpa_hang *hang = cpa_arena_alloc(&s->arena, sizeof *hang);
	struct cpa_result result;
	enum cpa_status status;
	world = call->world > world ? call->world : world;
	if (!hang)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	status = cpa_hang_find(call->events, call->nevents,
		world > CPA_MAX_EVENT_RANKS ? CPA_MAX_EVENT_RANKS : (int)world, &s->arena, hang,
		error);
	if (status != CPA_OK)
		return status;
	cpa_result_init(&result);
	result.file = file;
	result.call = call->name;
	result.hang = hang;
	result.verdict = hang->wrong ? CPA_VERDICT_WRONG : CPA_VERDICT_RIGHT;
	if (hang->wrong)
		snprintf(result.reason, sizeof result.reason, "%s", hang->text);
	if (!s->quiet) {
		if (alone) {
			cpa_print_clean(stdout, file);
			fputc(' ', stdout);
			cpa_print_clean(stdout, call->name);
			fputc('\n', stdout);
		}
		cpa_hang_print(stdout, hang);
	}
	return add(s, &result) ? CPA_OK : s->status;
}

static bool check_call(
	void *context, const char *file, struct cpa_recording *recording, int i, const char *name)
{
	struct session *s = context;
	struct cpa_checked checked;
	struct cpa_error error = {""};
	int first = s->list.n;
	bool diagnoses = s->options->command == CPA_COMMAND_DIAGNOSE;
	enum cpa_status status = cpa_checked_init(
		&checked, recording, i, s->options->rows, &error);
	if (status == CPA_OK)
		status = check_parts(s, file, name, &checked, recording, i, &error);
	bool events = status == CPA_OK && checked.call->nevents > 0;
	bool outputs = s->list.n > first;
	if (status == CPA_OK && !outputs && !(events && diagnoses))
		status = cpa_fail(&error, CPA_UNSUPPORTED,
			"holds no outputs: neither o nor lse, nor ranks that do; %s",
			events ? "cpattn diagnose looks at its events"
			       : "cpattn verify runs the variants on its inputs");
	if (status == CPA_OK && outputs)
		status = diagnose(s, first, &checked, recording, i, &error);
	if (status == CPA_OK && outputs)
		report(s, first, &checked);
	if (status == CPA_OK && events && diagnoses)
		status = judge_events(s, file, checked.call, !outputs, &error);
	if (status != CPA_OK && s->status == CPA_OK)
		add_verdict(s, file, name, status, error.text);
	cpa_checked_fini(&checked);
	return s->status == CPA_OK;
}

static void bad_file(void *context, const char *file, enum cpa_status status, const char *reason)
{
	add_verdict(context, file, NULL, status, reason);
}

/* ---- the command ---- */

static int finish(struct session *s, const struct cpa_walk *walk)
{
	const struct cpa_options *o = s->options;
	struct cpa_error error = {""};
	if (s->arena.failed && s->status == CPA_OK)
		s->status = cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory");
	if (s->status != CPA_OK)
		return cpa_complain(&s->error);
	if (walk->ncalls == 0) {
		cpa_fail(&error, CPA_INVALID, "no call matches --call %.200s",
			o->call_glob ? o->call_glob : "'*'");
		return cpa_complain(&error);
	}
	if (!s->quiet)
		cpa_check_print_summary(stdout, &s->list);
	if (cpa_result_write(&s->list, o, &error) != CPA_OK)
		return cpa_complain(&error);
	return cpa_result_exit(&s->list, false);
}

int cpa_cmd_check(const struct cpa_options *options)
{
	struct session s = {.options = options,
		.quiet = cpa_result_takes_stdout(options)};
	struct cpa_walk walk = {.options = options,
		.arena = &s.arena,
		.context = &s,
		.call = check_call,
		.bad = bad_file};
	cpa_arena_init(&s.arena);
	cpa_walk_recordings(&walk);
	int status = finish(&s, &walk);
	cpa_result_list_fini(&s.list);
	cpa_arena_fini(&s.arena);
	return status;
}
