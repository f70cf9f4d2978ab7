/*
 * diagnose_buffers.c - F.
 */
#include "harness/diagnose.h"

const struct cpa_hypothesis cpa_hypotheses_buffers[] = {
	{0},
};
