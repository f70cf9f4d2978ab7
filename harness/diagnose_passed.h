/*
 * diagnose_passed.h - which rank works on a row, and which blocks it passes over: unknowns that
 * the hypotheses about empty blocks share.  Private to diagnose_empty.c and diagnose_passed.c.
 */
#ifndef CPA_DIAGNOSE_PASSED_H
#define CPA_DIAGNOSE_PASSED_H

#include "harness/diagnose.h"

/* Unknowns: 0 on which rank (0: all), 1 what happens, 2 what is passed over, 3 bits of these. */
enum { CPA_PASSED_RANK, CPA_PASSED_KIND, CPA_PASSED_OVER, CPA_PASSED_BITS };
enum {
	CPA_PASSED_DOWN = 1, /* hops go down */
	CPA_PASSED_SLICED =
		2 /* ring ranks share the replicated queries; else each does its copies */
};
/* Blocks are passed over that none of these may see: of nothing; blocks without keys; of the
 * queries that lie beside the row's on its ring rank; of its stripe there, runs of one length at
 * one distance; of all on its rank; of all on its ring rank. */
enum {
	CPA_PASS_NOTHING,
	CPA_PASS_NO_KEYS,
	CPA_PASS_RUN,
	CPA_PASS_STRIPE,
	CPA_PASS_SHARD,
	CPA_PASS_RING,
	CPA_NPASSES
};

/* Of all four; nkinds of KIND. */
void cpa_passed_unknowns(const struct cpa_suspect *s, int64_t nkinds, int64_t *n);
struct cpa_recipe_at cpa_passed_begin(
	struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown);
/* Members of a recipe. */
int cpa_passed_ring(const struct cpa_recipe_at *at);
bool cpa_passed_over(const struct cpa_recipe_at *at);
/* Not by the rank that the fault is on. */
bool cpa_passed_elsewhere(const struct cpa_recipe_at *at);

#endif
