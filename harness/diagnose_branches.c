/*
 * diagnose_branches.c - H.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_branches[] = {
	{0},
};
