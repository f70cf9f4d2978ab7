/*
 * diagnose_lengths.c - B.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_lengths[] = {
	{0},
};
