/*
 * diagnose_masks.c - C.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_masks[] = {
	{0},
};
