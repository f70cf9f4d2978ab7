/*
 * measure_write.h - times for programs.  Private to the writers of results.
 */
#ifndef CPA_MEASURE_WRITE_H
#define CPA_MEASURE_WRITE_H

#include "harness/json.h"
#include "harness/measure.h"

/* The keys of a result that only bench has; NULL: they are there and null. */
void cpa_measured_put_json(struct cpa_json *json, const struct cpa_measured *measured);
/* {"n": ..., "min": ..., "q1": ..., "median": ..., "q3": ..., "max": ...}, or null where n is 0.
 */
void cpa_statistics_put_json(
	struct cpa_json *json, const char *key, const struct cpa_statistics *statistics);
/* All of the CSV of bench. */
void cpa_measured_write_csv(FILE *out, const struct cpa_result_list *list);

#endif
