/*
 * result_parts.h - what the printers of results share.  Private to them.
 */
#ifndef CPA_RESULT_PARTS_H
#define CPA_RESULT_PARTS_H

#include "harness/json.h"
#include "harness/result.h"

bool cpa_result_same_call(const struct cpa_result *a, const struct cpa_result *b);
/* Results of one call follow each other: the end of the run that begins at first. */
int cpa_result_call_end(const struct cpa_result_list *list, int first);
/* "1x4x2 p2p": N x R x U, and how the ring rotates where there is one; "" without a
 * configuration. */
void cpa_result_mesh(const struct cpa_result *result, char *text, size_t size);
/* The largest ratio of o, lse and guidance and which it is; NaN when there is neither. */
double cpa_result_worst(const struct cpa_result *result, const char **tensor,
	const struct cpa_deviation **deviation);

/* Reasons that differ only in their numbers count as one. */
enum { CPA_MAX_REASONS = 32 };
struct cpa_reasons {
	const struct cpa_result *first[CPA_MAX_REASONS];
	int count[CPA_MAX_REASONS];
	bool varied[CPA_MAX_REASONS]; /* the others differ from the first in their numbers */
	int n, others; /* others: results beyond the last group */
};
void cpa_reasons_add(struct cpa_reasons *reasons, const struct cpa_result *result);
/* "12  text", wrapped at 100 columns and indented. */
void cpa_reasons_print(FILE *out, const struct cpa_reasons *reasons, int indent, int at_most);

/* Text from outside: control characters become '?'. */
void cpa_print_clean(FILE *out, const char *text);
/* Wraps text at 100 columns; continuation lines are indented by `indent`.  `column`: where it
 * begins. */
void cpa_print_wrapped(FILE *out, const char *text, int column, int indent);

/* Colours, "" where they are not wanted (no terminal, NO_COLOR). */
struct cpa_colours {
	const char *right, *wrong, *dim, *end;
};
struct cpa_colours cpa_colours_for(FILE *out);

/* All of the JSON before the first result, and behind the last.  list: whose further members; or NULL. */
void cpa_result_begin_json(struct cpa_json *json, FILE *out, const struct cpa_options *options,
	const struct cpa_result_list *list);
void cpa_result_end_json(struct cpa_json *json, const struct cpa_summary *sum);
/* The member "machine" of it. */
void cpa_result_put_machine(struct cpa_json *json);

void cpa_result_print_summary(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options);

#endif
