/*
 * check_report.h - what was found in recorded outputs, for people and for programs.
 */
#ifndef CPA_CHECK_REPORT_H
#define CPA_CHECK_REPORT_H

#include "harness/check.h"
#include "harness/json.h"

/* "one device", "rank 3" */
void cpa_check_name_part(const struct cpa_check_part *part, char *text, size_t size);
/* One or two sentences: what of o and lse is off, by how much, where.  text [size], cut to fit. */
void cpa_check_reason(const struct cpa_check_part *part, const struct cpa_checked *checked,
	char *text, size_t size);
/* The members of a result that only check has. */
void cpa_check_put_json(struct cpa_json *json, const struct cpa_result *result);
/* What explains the wrong ranks of a call: the classes of the best findings, "A05 A06", and their
 * sentences; both "" where no class does.   classes [64], text [size], cut to fit */
enum { CPA_CHECK_CLASSES = 64 };
struct cpa_diagnosis;
void cpa_check_findings(
	const struct cpa_diagnosis *diagnosis, char *classes, char *text, size_t size);
/* Everything about one call: its parts, findings, blind spots and notes. */
void cpa_check_print(FILE *out, const struct cpa_result_list *list, int first, int end,
	const struct cpa_checked *checked, bool verbose);
/* What could not be told and why, and how much of each verdict. */
void cpa_check_print_summary(FILE *out, const struct cpa_result_list *list);

#endif
