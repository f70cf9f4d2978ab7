/*
 * diagnose_planted.h - hypotheses that are runs: the recorded configuration, planned and run on
 * the recorded q, k and v with a fault planted.
 *
 * The recipes of diagnose_*.c say what a row becomes, whoever wrote the program that ran.  These say
 * what exactly the schedules of this library return when they go wrong in one place.  Private to
 * diagnose*.c.
 */
#ifndef CPA_DIAGNOSE_PLANTED_H
#define CPA_DIAGNOSE_PLANTED_H

#include "harness/diagnose.h"

/* The outputs of one faulty run; members of it need s->planted, which is set.  The residual: what is
 * above 1 refutes it, if rounding does not explain it. */
typedef double cpa_planted_visit(void *context, const struct cpa_hypothesis *it);

/*
 * Every fault at every place that could be the one, for the recorded degrees, in each order and
 * direction that gives ranks the tokens they held.  Nothing where the run cannot be planned, or
 * is too large to be run so often (s->too_large).
 */
enum cpa_status cpa_planted_search(struct cpa_suspect *s, cpa_planted_visit *visit, void *context,
	struct cpa_error *error);
/* Adds to the bound of a row what rounding did to s->planted, if that is known. */
void cpa_planted_loosen(const struct cpa_suspect *s, const struct cpa_suspect_row *row,
	struct cpa_bound *bound);

#endif
