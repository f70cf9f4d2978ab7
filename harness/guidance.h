/*
 * guidance.h - the scales of guidance as text, and whether a problem has the branches for them.
 * Private to the harness.
 */
#ifndef CPA_HARNESS_GUIDANCE_H
#define CPA_HARNESS_GUIDANCE_H

#include "harness/options.h"
#include "harness/text.h"

/* "S" (two branches) or "S:S2" (three), finite numbers.  CPA_INVALID with a sentence. */
enum cpa_status cpa_guidance_parse(
	const char *text, struct cpa_guidance *guidance, struct cpa_error *error);
/* " --guidance 3.5:1.5", which reads back as the same; nothing where there is none. */
void cpa_guidance_put(struct cpa_text *text, const struct cpa_guidance *guidance);
/* "guidance 3.5: neg + 3.5 (pos - neg), 2 branches along the batch"; "" where there is none. */
void cpa_guidance_describe(const struct cpa_guidance *guidance, char *text, size_t size);

/*
 * The guidance of one call: what was asked for, else what the recording has.  none: nbranches 0.
 * CPA_INVALID: they differ in their branches, or the batch is no multiple of them.
 */
enum cpa_status cpa_guidance_choose(const struct cpa_options *options,
	const struct cpa_guidance *recorded, const struct cpa_problem *problem,
	struct cpa_guidance *guidance, struct cpa_error *error);

#endif
