/*
 * diagnose_layout.c - D.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_layout[] = {
	{0},
};
