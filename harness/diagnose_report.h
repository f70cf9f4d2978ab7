/*
 * diagnose_report.h - the findings of one call, for people and for programs.
 */
#ifndef CPA_DIAGNOSE_REPORT_H
#define CPA_DIAGNOSE_REPORT_H

#include "harness/diagnose.h"
#include "harness/json.h"

/* What explains the wrong ranks of one call.  names and texts live in the arena. */
struct cpa_diagnosis {
	int n, nties;
	const struct cpa_finding *findings; /* [n] best first */
	int nrows, nwrong; /* sampled */
	bool too_large; /* for faulty runs of it to be compared */
};
/* *diagnosis and what it points to are made in arena.  Call only where some rank is wrong. */
enum cpa_status cpa_diagnosis_make(const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, const struct cpa_check_rules *rules,
	struct cpa_arena *arena, const struct cpa_diagnosis **diagnosis, struct cpa_error *error);
void cpa_diagnosis_print(FILE *out, const struct cpa_diagnosis *diagnosis);
/* The member "findings" of a result. */
void cpa_diagnosis_put_json(struct cpa_json *json, const struct cpa_diagnosis *diagnosis);

#endif
