/*
 * probe_file.c - problems that open what a run could not show, and what each fill is good for.
 */
#include "harness/probe_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/problem_rule.h"

/* ---- a problem like another ------------------------------------------------------------------
 */

/* The next length that is odd, so that no even number of ranks divides it, and no multiple of 3
 * or 5: three and five ranks do not either. */
static int64_t uneven(int64_t length)
{
	while (length % 2 == 0 || (length > 5 && (length % 3 == 0 || length % 5 == 0)))
		length++;
	return length;
}

/* The last split segment takes the tokens that came in. */
static const struct cpa_segment *stretch(
	const struct cpa_segment *segments, int n, int64_t by, struct cpa_arena *arena)
{
	struct cpa_segment *copy = cpa_arena_alloc(arena, (size_t)n * sizeof *copy);
	int last = n - 1;

	if (!copy)
		return NULL;
	memcpy(copy, segments, (size_t)n * sizeof *copy);
	for (int i = 0; i < n; i++)
		if (!copy[i].replicated)
			last = i;
	copy[last].length += by;
	return copy;
}

/* Key lengths for each batch item: those of the call, and for one that is new an uneven one. */
static const int64_t *lengths_like(
	const struct cpa_problem *old, const struct cpa_problem *new, struct cpa_arena *arena)
{
	int64_t *lengths = cpa_arena_alloc(arena, (size_t) new->B * sizeof *lengths);

	for (int64_t b = 0; lengths && b < new->B; b++)
		lengths[b] = b < old->B ? old->rule.key_lengths[b] : new->Skv - new->Skv / 3;
	return lengths;
}

static const int64_t *documents_like(
	const struct cpa_problem *old, const struct cpa_problem *new, struct cpa_arena *arena)
{
	const size_t n = (size_t)old->rule.ndocuments + 1;
	int64_t *documents = cpa_arena_alloc(arena, n * sizeof *documents);

	if (documents) {
		memcpy(documents, old->rule.documents, n * sizeof *documents);
		documents[n - 1] = new->Sq;
	}
	return documents;
}

/* A mask of the same kind along the same axes, and along heads too. */
static enum cpa_status mask_like(const struct cpa_mask *old, uint64_t seed,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error)
{
	char text[80];

	problem->rule.mask = (struct cpa_mask){.kind = CPA_MASK_NONE};
	if (old->kind == CPA_MASK_NONE)
		return CPA_OK;
	snprintf(text, sizeof text, "%s:%sxHx%sx%s:%" PRIu64,
		old->kind == CPA_MASK_BOOL ? "bool" : "bias", old->batch ? "B" : "1",
		old->query ? "Q" : "1", old->key ? "K" : "1", seed);
	return cpa_mask_parse(text, arena, problem, error);
}

static void lengthen(
	const struct cpa_problem *old, struct cpa_problem *new, struct cpa_arena *arena)
{
	new->Sq = uneven(old->Sq);
	/* A chunk stays at the end of its keys where it was. */
	new->Skv = old->Sq == old->Skv ? new->Sq : uneven(old->Skv);
	if (new->Skv == new->Sq && old->Skv != old->Sq)
		new->Skv = uneven(new->Skv + 1);
	if (new->rule.offset == old->Skv - old->Sq)
		new->rule.offset = new->Skv - new->Sq;
	if (old->segments)
		new->segments = stretch(old->segments, old->nsegments, new->Sq - old->Sq, arena);
	if (old->segments_kv)
		new->segments_kv = stretch(
			old->segments_kv, old->nsegments_kv, new->Skv - old->Skv, arena);
	if (old->rule.documents)
		new->rule.documents = documents_like(old, new, arena);
}

enum cpa_status cpa_probe_like(const struct cpa_call *call, uint64_t seed,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error)
{
	const struct cpa_problem *old = &call->problem;
	enum cpa_status status;

	*problem = *old;
	problem->B = old->B > 1 ? old->B : 2;
	lengthen(old, problem, arena);
	if (fabs(old->scale * sqrt((double)old->D) - 1.0) < 1e-12)
		problem->scale = 1.3 / sqrt((double)old->D);
	if (old->rule.key_lengths)
		problem->rule.key_lengths = lengths_like(old, problem, arena);
	status = mask_like(&old->rule.mask, seed, arena, problem, error);
	if (status == CPA_OK && arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	return status == CPA_OK ? cpa_problem_check(problem, error) : status;
}

/* ---- what fills show -------------------------------------------------------------------------
 */

static const struct fill_info {
	const char *classes, *reading;
} fills[] = {
	[CPA_FILL_NORMAL] = {"all that moves o or lse beyond its bound",
		"Numbers without structure: check judges o and lse, and diagnose names what is "
		"wrong."},
	[CPA_FILL_COUNT] = {"A01 A07 A12 B01 B04 C07 E01 E04",
		"Keys are 0, so that every visible key weighs 1/n, and the value of key t is "
		"one-hot in feature\n"
		"t mod Dv: o is how often each class of keys was counted, over n, and exp(lse) "
		"is n.  Blocks of\n"
		"unlike lengths show A01: give ranks uneven shards."},
	[CPA_FILL_IDENTITY] = {"A09 A10 B02 B03 C04 C06 E02 E03 E04 F01 F02 F03",
		"The value of key t is one-hot in feature t mod Dv: with Dv = Skv a row of o is "
		"its weights, and\n"
		"zeros, doubles and foreign keys are read off; with a smaller Dv it is their "
		"sums by t mod Dv."},
	[CPA_FILL_DIGITS] = {"C05 D01 D02 D03 D04 D05 D11 D12",
		"Feature d of v is digit d (base 16, lowest first, over 16) of (b Skv + t) Hkv + "
		"h: run only the\n"
		"exchange, and read off which batch item, token and head each row came from."},
	[CPA_FILL_EXTREME] = {"A03 A04 A08",
		"Scores of odd heads reach 1e8 either way, those of even heads are subnormal: "
		"what exponentiates\n"
		"lse overflows, a finite 'minus infinity' is passed, and precision of lse "
		"shows."},
	[CPA_FILL_UNLIKE] = {"A01 A02 A03 A09 A10 A11 F01 F04",
		"Scores climb by 6 from the first key to the last, and single keys stand out by "
		"4: blocks weigh\n"
		"unlike each other however keys are cut, so that wrong weights of a merge show."},
};

const char *cpa_probe_reading(enum cpa_fill fill)
{
	return fills[fill].reading;
}

const char *cpa_probe_classes(enum cpa_fill fill)
{
	return fills[fill].classes;
}

const char *cpa_probe_hidden_from(const struct cpa_problem *p, enum cpa_fill fill, int i)
{
	const struct cpa_rule *rule = &p->rule;
	const bool structured = fill == CPA_FILL_COUNT || fill == CPA_FILL_IDENTITY;
	const struct {
		bool hidden;
		const char *what;
	} spots[] = {
		{p->B == 1,
			"D03, D04, D11: one batch item cannot be mixed up with another; say B=2"},
		{p->Hkv == p->Hq || p->Hkv == 1,
			"D06, D07: every map of query heads to key heads is the same; "
			"say Hq=6,Hkv=3"},
		{!rule->causal && !rule->window && !rule->documents && !rule->key_lengths &&
				rule->mask.kind == CPA_MASK_NONE,
			"A05, A06, C04, D12: every query sees every key, so "
			"that no block is empty and their order does not matter; say causal"},
		{fabs(p->scale * sqrt((double)p->D) - 1.0) < 1e-12,
			"C12: the scale is the default one; say "
			"scale=0.3"},
		{rule->mask.kind != CPA_MASK_NONE && (rule->mask.head == 0 || p->Hq == 1),
			"C11: the mask is the "
			"same for all heads; say mask=bool:1xHx1xK:1"},
		{p->Sq % 2 == 0 && p->Skv % 2 == 0 && !rule->documents,
			"B01 to B08: two ranks divide the "
			"length; say an odd one"},
		{fill != CPA_FILL_EXTREME, "A04, A08: no score is extreme; --fill extreme"},
		{fill == CPA_FILL_COUNT, "A02, A03, C12: all scores are 0; --fill unlike"},
		{fill == CPA_FILL_NORMAL || fill == CPA_FILL_DIGITS,
			"A01, A09: blocks of like lengths weigh "
			"alike; --fill unlike"},
		{structured && p->Dv < p->Skv,
			"keys that are a multiple of Dv apart look alike; say Dv = Skv, "
			"where the system can"},
	};

	for (int n = 0; n < (int)(sizeof spots / sizeof *spots); n++)
		if (spots[n].hidden && i-- == 0)
			return spots[n].what;
	return NULL;
}
