/*
 * plan_targets.c - the problems that a command line asks to plan.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/guidance.h"
#include "harness/mask.h"
#include "harness/plan.h"
#include "harness/plan_model.h"
#include "harness/recording.h"

static enum cpa_status convert(struct cpa_plan_target *target, enum cpa_dtype dtype,
	struct cpa_error *error)
{
	struct cpa_mask *mask = &target->problem.rule.mask;

	target->problem.dtype = dtype;
	/* A bias in fp64 belongs to fp64 problems. */
	if (mask->kind != CPA_MASK_BIAS || mask->dtype != CPA_DTYPE_FP64 || dtype == CPA_DTYPE_FP64)
		return CPA_OK;
	return cpa_mask_copy(&target->problem, CPA_MASK_BIAS, CPA_DTYPE_FP32, mask,
		&target->mask, error);
}

static void read_target(struct cpa_plan_targets *targets, int i,
	const struct cpa_options *options, struct cpa_plan_target *target)
{
	struct cpa_error error = { "" };
	const struct cpa_call *call;
	enum cpa_status status = cpa_recording_call(targets->recording, i, &call, &error);

	target->call = cpa_recording_call_name(targets->recording, i);
	target->refused = CPA_VERDICT_RIGHT;
	if (status != CPA_OK) {
		target->refused = CPA_VERDICT_CANNOT_TELL;
		snprintf(target->reason, sizeof target->reason, "%s", error.text);
		return;
	}
	target->problem = call->problem;
	status = cpa_guidance_choose(
		options, &call->guidance, &call->problem, &target->guidance, &error);
	target->problem.lse = false; /* a plan does without unless asked */
	if (status != CPA_OK ||
		(options->has_dtype && convert(target, options->dtype, &error) != CPA_OK)) {
		target->refused = CPA_VERDICT_CANNOT_TELL;
		snprintf(target->reason, sizeof target->reason, "%s", error.text);
	}
}

static enum cpa_status read_calls(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error)
{
	int ncalls = cpa_recording_ncalls(targets->recording);
	const char *glob = options->call_glob ? options->call_glob : "*";

	targets->at = calloc((size_t)ncalls + 1, sizeof *targets->at);
	if (!targets->at)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < ncalls; i++)
		if (fnmatch(glob, cpa_recording_call_name(targets->recording, i), 0) == 0)
			read_target(targets, i, options, &targets->at[targets->n++]);
	if (targets->n == 0)
		return cpa_fail(error, CPA_INVALID,
			"%.300s: no call matches '%.100s'; its first of %d is '%.100s'",
			targets->file, glob, ncalls,
			ncalls > 0 ? cpa_recording_call_name(targets->recording, 0) : "");
	return CPA_OK;
}

enum cpa_status cpa_plan_targets_find(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error)
{
	struct cpa_error inner = { "" };
	enum cpa_status status;

	if (options->has_problem) {
		targets->at = calloc(1, sizeof *targets->at);
		if (!targets->at)
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		targets->at[0].problem = options->problem;
		targets->at[0].guidance = options->guidance;
		targets->at[0].refused = CPA_VERDICT_RIGHT;
		targets->n = 1;
		return CPA_OK;
	}
	if (options->model)
		return cpa_plan_model_targets(targets, options, error);
	status = cpa_recording_open(options->files[0], &targets->recording, &inner);
	if (status != CPA_OK)
		return cpa_fail(error, status, "%.300s: %.700s", options->files[0], inner.text);
	targets->file = options->files[0];
	return read_calls(targets, options, error);
}

void cpa_plan_targets_fini(struct cpa_plan_targets *targets)
{
	for (int i = 0; i < targets->n; i++)
		free(targets->at[i].mask);
	free(targets->at);
	cpa_recording_close(targets->recording);
	cpa_plan_model_fini(targets);
	*targets = (struct cpa_plan_targets){ 0 };
}
