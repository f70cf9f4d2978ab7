/*
 * guidance.c - reads and prints scales of guidance, and checks them against a batch.
 */
#include "harness/guidance.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/parse.h"
#include "harness/problem_rule.h"

enum { MOST_DIGITS = 60 };

enum cpa_status cpa_guidance_parse(
	const char *text, struct cpa_guidance *guidance, struct cpa_error *error)
{
	struct cpa_guidance made = {.nbranches = 2};
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	char first[MOST_DIGITS + 1];
	enum cpa_status status;

	if (n > MOST_DIGITS)
		return cpa_fail(error, CPA_INVALID,
			"--guidance: '%.20s...' is not a number; write a scale such as 3.5, or "
			"two "
			"for three branches, 3.5:1.5",
			text);
	snprintf(first, sizeof first, "%.*s", (int)n, text);
	status = cpa_parse_number("--guidance", first, &made.s, error);
	if (status == CPA_OK && colon) {
		made.nbranches = 3;
		status = cpa_parse_number(
			"--guidance, the second scale", colon + 1, &made.s2, error);
	}
	if (status == CPA_OK)
		*guidance = made;
	return status;
}

void cpa_guidance_put(struct cpa_text *text, const struct cpa_guidance *guidance)
{
	if (guidance->nbranches == 0)
		return;
	cpa_text_put_number(text, " --guidance ", guidance->s);
	if (guidance->nbranches == 3)
		cpa_text_put_number(text, ":", guidance->s2);
}

void cpa_guidance_describe(const struct cpa_guidance *guidance, char *text, size_t size)
{
	struct cpa_text w = cpa_text_begin(text, size);
	bool three = guidance->nbranches == 3;

	if (guidance->nbranches == 0)
		return;
	cpa_text_put_number(&w, "guidance ", guidance->s);
	if (three) {
		cpa_text_put_number(&w, ":", guidance->s2);
		cpa_text_put_number(&w, ": neg + ", guidance->s2);
		cpa_text_put(&w, " (mid - neg)");
	} else {
		cpa_text_put(&w, ": neg");
	}
	cpa_text_put_number(&w, " + ", guidance->s);
	cpa_text_put(&w, " (pos - %s), %d branches along the batch", three ? "mid" : "neg",
		guidance->nbranches);
}

enum cpa_status cpa_guidance_choose(const struct cpa_options *options,
	const struct cpa_guidance *recorded, const struct cpa_problem *problem,
	struct cpa_guidance *guidance, struct cpa_error *error)
{
	const struct cpa_guidance *asked = &options->guidance;
	const struct cpa_guidance *chosen = asked->nbranches || !recorded ? asked : recorded;

	if (asked->nbranches && recorded && recorded->nbranches &&
		asked->nbranches != recorded->nbranches)
		return cpa_fail(error, CPA_INVALID,
			"--guidance has the scales of %d branches, and the recording has %d; "
			"give %s",
			asked->nbranches, recorded->nbranches,
			recorded->nbranches == 2 ? "one scale" : "two, S:S2");
	if (chosen->nbranches && problem->B % chosen->nbranches != 0)
		return cpa_fail(error, CPA_INVALID,
			"guidance with %s has %d branches along the batch, negative first, and B "
			"= "
			"%" PRId64 " is no multiple of %d%s",
			chosen->nbranches == 2 ? "one scale" : "two scales", chosen->nbranches,
			problem->B, chosen->nbranches,
			problem->B % 3 == 0	      ? "; two scales, S:S2, would suit it"
				: problem->B % 2 == 0 ? "; one scale would suit it"
						      : "");
	*guidance = *chosen;
	return CPA_OK;
}
