/*
 * diagnose_sample.h - the part of a call that faulty runs are made on: all of it, or of a large one
 * some heads, and the sampled rows of those.  Private to diagnose_planted.c.
 */
#ifndef CPA_DIAGNOSE_SAMPLE_H
#define CPA_DIAGNOSE_SAMPLE_H

#include "harness/diagnose.h"

struct cpa_sample {
	struct cpa_problem exact, rounded; /* in fp64, in the recorded dtype */
	struct cpa_tensors exact_tensors, rounded_tensors;
	bool whole; /* every head is in it */
	int64_t *head; /* [exact.Hq] query head of the call that each of its heads is */
	int *place;    /* [Hq of the call] which of its heads that is, -1: none */
	struct cpa_suspect_row *rows; /* [nrows] those of s that are in it, worst first */
	int nrows;
	unsigned char *wanted; /* [B, Sq] query rows that rows has */
	struct cpa_arena arena;
};
/* whole: every head; else one key head, with its query heads, of each ulysses rank: the one with most wrong
 * rows.  CPA_UNSUPPORTED: ulysses ranks have no key heads of their own.  Fini in any case. */
enum cpa_status cpa_sample_init(struct cpa_sample *sample, const struct cpa_suspect *s, bool whole,
	struct cpa_error *error);
void cpa_sample_fini(struct cpa_sample *sample);
/* Floating-point operations of full attention on it. */
double cpa_sample_nflop(const struct cpa_problem *problem);

#endif
