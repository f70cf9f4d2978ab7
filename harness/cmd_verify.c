/*
 * cmd_verify.c - the main job: every call of every file, or one made-up problem, in every
 * configuration.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/commands.h"
#include "harness/fault.h"
#include "harness/mask.h"
#include "harness/recording.h"
#include "harness/verify_call.h"
#include "harness/walk.h"

static void *keep(struct cpa_verify_session *s, const void *bytes, size_t nbytes)
{
	void *copy = cpa_arena_alloc(&s->arena, nbytes);
	if (copy)
		memcpy(copy, bytes, nbytes);
	return copy;
}

/* What results point to: sizes and small lists (segments among them); a mask is there while its call runs. */
static struct cpa_problem *keep_problem(
	struct cpa_verify_session *s, const struct cpa_problem *problem)
{
	struct cpa_problem *kept = keep(s, problem, sizeof *problem);
	struct cpa_rule *rule = kept ? &kept->rule : NULL;
	if (kept && rule->documents)
		rule->documents = keep(s, rule->documents,
			(size_t)(rule->ndocuments + 1) * sizeof *rule->documents);
	if (kept && rule->key_lengths)
		rule->key_lengths = keep(
			s, rule->key_lengths, (size_t)kept->B * sizeof *rule->key_lengths);
	if (kept && rule->sink)
		rule->sink = keep(s, rule->sink, (size_t)kept->Hq * sizeof *rule->sink);
	if (kept && kept->segments)
		kept->segments = keep(s, kept->segments,
			(size_t)kept->nsegments * sizeof *kept->segments);
	if (kept && kept->segments_kv)
		kept->segments_kv = keep(s, kept->segments_kv,
			(size_t)kept->nsegments_kv * sizeof *kept->segments_kv);
	return kept;
}

/* What one process found is what all go by. */
static enum cpa_status agree(
	const struct cpa_verify_session *s, enum cpa_status status, struct cpa_error *error)
{
	return s->world ? cpa_world_agree(s->world, status, error) : status;
}

static char *keep_string(struct cpa_verify_session *s, const char *text)
{
	return keep(s, text, strlen(text) + 1);
}

/* ---- made-up inputs ---- */

static enum cpa_status fill_from_seed(void *context, const struct cpa_problem *p,
	enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens, void *dst,
	struct cpa_error *error)
{
	const struct cpa_options *o = context;
	(void)error;
	cpa_inputs_fill_part(p, o->fill, o->seed, tensor, batches, tokens, dst);
	return CPA_OK;
}

static void verify_problem(struct cpa_verify_session *s)
{
	struct cpa_problem problem = s->options->problem;
	if (s->options->has_dtype)
		problem.dtype = s->options->dtype;
	struct cpa_verify_call call = {.session = s,
		.name = keep_string(s, s->options->problem_text),
		.problem = keep(s, &problem, sizeof problem)};
	s->ncalls++;
	if (!s->arena.failed)
		cpa_verify_call_run(
			&call, &(struct cpa_source){fill_from_seed, (void *)s->options});
}

/* ---- files ---- */

struct source {
	struct cpa_recording *recording;
	int call;
};

static enum cpa_status fill_from_file(void *context, const struct cpa_problem *p,
	enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens, void *dst,
	struct cpa_error *error)
{
	const struct source *source = context;
	return cpa_recording_read(source->recording, source->call, cpa_tensor_name(tensor), batches,
		tokens, p->dtype, dst, error);
}

/* --dtype: a bias in fp64 is for fp64 problems only. */
static enum cpa_status narrow_bias(
	struct cpa_problem *problem, void **data, struct cpa_error *error)
{
	struct cpa_mask *mask = &problem->rule.mask;
	if (mask->kind != CPA_MASK_BIAS || mask->dtype != CPA_DTYPE_FP64 ||
		problem->dtype == CPA_DTYPE_FP64)
		return CPA_OK;
	return cpa_mask_copy(problem, CPA_MASK_BIAS, CPA_DTYPE_FP32, mask, data, error);
}

static void verify_recorded(
	struct cpa_verify_session *s, const char *file, struct cpa_recording *recording, int i,
	const char *name)
{
	const struct cpa_call *recorded;
	struct cpa_error error = {""};
	enum cpa_status status =
		agree(s, cpa_recording_call(recording, i, &recorded, &error), &error);
	if (status != CPA_OK) {
		cpa_verify_add_verdict(s, file, name, NULL, status, error.text);
		return;
	}
	struct cpa_problem *problem = keep_problem(s, &recorded->problem);
	void *mask = NULL;
	if (s->arena.failed)
		return;
	if (s->options->has_dtype)
		problem->dtype = s->options->dtype;
	status = narrow_bias(problem, &mask, &error);
	struct cpa_verify_call call = {
		.session = s, .file = file, .name = name, .problem = problem,
		.guidance = recorded->guidance};
	struct source source = {recording, i};
	if (status == CPA_OK)
		cpa_verify_call_run(&call, &(struct cpa_source){fill_from_file, &source});
	else
		cpa_verify_add_verdict(s, file, name, problem, status, error.text);
	problem->rule.mask.data = NULL; /* goes with the recording */
	free(mask);
}

static bool visit_call(void *context, const char *file, struct cpa_recording *recording, int i,
	const char *name)
{
	struct cpa_verify_session *s = context;
	if (s->world && !cpa_world_leads(s->world))
		cpa_recording_trust(recording);
	verify_recorded(s, file, recording, i, name);
	return s->status == CPA_OK;
}

static void visit_bad(
	void *context, const char *file, enum cpa_status status, const char *reason)
{
	cpa_verify_add_verdict(context, file, NULL, NULL, status, reason);
}

static enum cpa_status agree_to_open(
	void *context, enum cpa_status status, struct cpa_error *error)
{
	return agree(context, status, error);
}

static void verify_files(struct cpa_verify_session *s)
{
	struct cpa_walk walk = {.options = s->options, .arena = &s->arena, .context = s,
		.call = visit_call, .bad = visit_bad, .agree = agree_to_open};
	cpa_walk_recordings(&walk);
	s->ncalls += walk.ncalls;
}

/* ---- the command ---- */

/* One process a rank: configurations of this world and no other. */
static enum cpa_status join_world(struct cpa_verify_session *s, struct cpa_error *error)
{
	struct cpa_options *o = &s->own_options;
	enum cpa_status status;
	if (strcmp(o->comm, "mpi") != 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--comm %s: not built in; fake and mpi run here", o->comm);
	/* Joined first, so that rank 0 alone says what is wrong. */
	status = cpa_world_create("mpi", 0, &s->world, error);
	if (status != CPA_OK)
		return status;
	if (o->random > 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--random draws worlds of many sizes, and --comm mpi has the one that was "
			"started; --comm fake, or --problem with --comm mpi, would work");
	if (o->fault)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--fault plants faults where a run that they stop can be explained: with "
			"--comm fake");
	if (o->record)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--record writes what ranks in one process returned: with --comm fake");
	if (o->ranks_asked && o->ranks.n != 1)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--comm mpi runs one process a rank, so --ranks names one world at most, "
			"and without it the world is all processes");
	if (o->ranks_asked)
		status = cpa_world_check_size(s->world, (int)o->ranks.at[0], error);
	if (status != CPA_OK)
		return status;
	s->size = cpa_world_size(s->world);
	o->ranks = (struct cpa_int_list){&s->size, 1};
	o->ranks_asked = true;
	/* mpirun gives rank 0 a terminal of its own, wherever the text goes in the end. */
	if (cpa_mpi_launched())
		setenv("NO_COLOR", "1", 0);
	return CPA_OK;
}

static enum cpa_status prepare(struct cpa_verify_session *s, struct cpa_error *error)
{
	const struct cpa_options *o = s->options;
	s->fault = o->fault ? o->fault_number : -1;
	if (strcmp(o->comm, "fake") != 0) {
		enum cpa_status status = join_world(s, error);
		if (status != CPA_OK)
			return status;
	}
	return agree(s, cpa_device_create(o->device, &s->device, error), error);
}

/* Something asked for by name that ran nowhere. */
static bool ran_nowhere(const struct cpa_verify_session *s)
{
	bool any = false, missing = false;
	for (int i = 0; i < CPA_NVARIANTS; i++) {
		any = any || s->ran[i];
		missing = missing ||
			  (s->options->variants_asked && s->options->variants[i] && !s->ran[i]);
	}
	return missing || ((s->options->device_asked || s->options->comm_asked) && !any);
}

static int finish(struct cpa_verify_session *s)
{
	const struct cpa_options *o = s->options;
	struct cpa_error error = {""};
	if (s->status != CPA_OK || s->arena.failed) {
		if (s->status == CPA_OK)
			cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory");
		return cpa_complain(&s->error);
	}
	if (s->world && !cpa_world_leads(s->world)) /* rank 0 says it all, and the status is the same */
		return s->ncalls == 0 ? 2 : cpa_result_exit(&s->results, ran_nowhere(s));
	if (s->ncalls == 0) {
		cpa_fail(&error, CPA_INVALID, "no call matches --call %.200s",
			o->call_glob ? o->call_glob : "'*'");
		return cpa_complain(&error);
	}
	/* main() flushes stdout and complains. */
	cpa_result_table(stdout, &s->results, o);
	if (cpa_result_write(&s->results, o, &error) != CPA_OK)
		return cpa_complain(&error);
	return cpa_result_exit(&s->results, ran_nowhere(s));
}

int cpa_cmd_verify(const struct cpa_options *options)
{
	struct cpa_verify_session s = {.own_options = *options,
		.progress = isatty(STDERR_FILENO) == 1,
		.status = CPA_OK};
	struct cpa_error error = {""};
	s.options = &s.own_options;
	if (options->random > 0 && strcmp(options->comm, "fake") == 0)
		return cpa_cmd_random(options);
	if (prepare(&s, &error) != CPA_OK) {
		bool speaks = !s.world || cpa_world_leads(s.world);
		cpa_world_destroy(s.world);
		return speaks ? cpa_complain(&error) : 2;
	}
	if (s.world && !cpa_mpi_launched())
		fprintf(stderr, "cpattn: without mpirun, --comm mpi is a world of 1; start it as: "
				"mpirun -n 4 cpattn verify --comm mpi ...\n");
	cpa_arena_init(&s.arena);
	if (options->has_problem)
		verify_problem(&s);
	verify_files(&s);
	int exit_status = finish(&s);
	cpa_result_list_fini(&s.results);
	cpa_arena_fini(&s.arena);
	cpa_device_destroy(s.device);
	cpa_world_destroy(s.world);
	return exit_status;
}
