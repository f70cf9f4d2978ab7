/*
 * problem_rule.h - the rule of a problem as text: window, key lengths, documents, mask and sink.
 * Private to problem_text.c.
 */
#ifndef CPA_PROBLEM_RULE_H
#define CPA_PROBLEM_RULE_H

#include "harness/text.h"
#include "ref/ref.h"

/* The values of the keys; NULL: not given. */
struct cpa_rule_text {
	const char *window, *key_lengths, *documents, *mask, *sink;
};
/* Adds to the rule of problem, whose sizes and dtype have been checked; arrays are made in
 * arena. */
enum cpa_status cpa_rule_parse(const struct cpa_rule_text *text, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error);
/* Appends ",key=value" for each of these keys that the rule needs. */
void cpa_rule_print(struct cpa_text *text, const struct cpa_problem *problem);
/* Appends name and the fewest digits that read back as the same number. */
void cpa_text_put_number(struct cpa_text *text, const char *name, double number);

/* "text:512:replicated/image:4096:split"; whether lengths add up is for cpa_problem_check(). */
enum cpa_status cpa_segments_parse(const char *key, const char *text, struct cpa_arena *arena,
	const struct cpa_segment **segments, int *n, struct cpa_error *error);
void cpa_segments_print(struct cpa_text *text, const char *key, const struct cpa_segment *segments, int n);

/* "bool:1x1x1xK:3" or "bias:...": a mask whose elements are functions of the seed and of where they
 * are.  One in five keys is hidden by the one, one in eight by the other. */
enum cpa_status cpa_mask_parse(const char *text, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error);

#endif
