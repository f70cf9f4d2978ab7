/*
 * plan_model.h - plan --model: what each rank holds of each tensor of a model, and its attentions
 * as problems to plan.  Private to the command plan.
 */
#ifndef CPA_PLAN_MODEL_H
#define CPA_PLAN_MODEL_H

#include "harness/json.h"
#include "harness/plan.h"
#include "harness/text.h"

/* A target for each attention that --call matches.  Like cpa_plan_targets_find(). */
enum cpa_status cpa_plan_model_targets(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error);
void cpa_plan_model_fini(struct cpa_plan_targets *targets);

/* For each way to cut that the options choose: each tensor, what each rank holds, what is tied.
 * Does nothing where no model was asked for.  A way that a strict variant refuses is said, not an
 * error. */
enum cpa_status cpa_plan_model_print(FILE *out, const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error);
/* The plan of the model asked for is ours, because none is published; false: none was asked for. */
bool cpa_plan_model_is_derived(const struct cpa_plan_targets *targets);
/* " --model NAME --size HxW --call NAME"; false and nothing where no model was asked for. */
bool cpa_plan_model_reproduce(
	struct cpa_text *text, const struct cpa_options *options, const char *call);

/* The member "model" of the JSON of plan; context is these. */
struct cpa_plan_model_members {
	const struct cpa_plan_targets *targets; /* with a model */
	const struct cpa_options *options;
};
void cpa_plan_model_put_json(struct cpa_json *json, const void *context);

#endif
