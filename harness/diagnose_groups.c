/*
 * diagnose_groups.c - E.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_groups[] = {
	{0},
};
