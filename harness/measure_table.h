/*
 * measure_table.h - times for people.
 */
#ifndef CPA_MEASURE_TABLE_H
#define CPA_MEASURE_TABLE_H

#include <stdio.h>

#include "harness/measure.h"

/*
 * Tables as nccl-tests has them: lines of explanation behind '#', a row of names, a row of units,
 * then a line for each configuration.  Within 100 columns.
 */

/* What ran how, and what this machine can do; limits of all processes. */
void cpa_measure_print_head(FILE *out, const struct cpa_measure_session *session);
/* One problem: results first .. end-1 of the list. */
void cpa_measure_print_problem(FILE *out, const struct cpa_result_list *list, int first, int end);

/* A number in at most four digits and a unit's prefix: "950 k", "1.21 G"; "-" for NaN.  text [16]
 */
void cpa_print_scaled(double value, char *text);

#endif
