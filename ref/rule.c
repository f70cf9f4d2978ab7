/*
 * rule.c - which keys a query sees.
 *
 * Each part of the rule but the mask is an interval of keys whose ends never descend from one query
 * to the next, and so is what they have in common: the first row of a run of queries starts first
 * and the last ends last.
 */
#include "ref/ref.h"

#include <assert.h>
#include <math.h>

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The document of token t: the last one that starts at or before it, as empty ones are before. */
static struct cpa_range document_of(const struct cpa_rule *rule, int64_t t)
{
	int64_t low = 0, high = rule->ndocuments; /* starts[low] <= t < starts[high] */

	while (high - low > 1) {
		const int64_t middle = low + (high - low) / 2;

		if (rule->documents[middle] <= t)
			low = middle;
		else
			high = middle;
	}
	return (struct cpa_range) { rule->documents[low], rule->documents[high] };
}

/* The keys of query t where keys nkeys and up are hidden.  Ends never descend with t, those of
 * empty rows included. */
static struct cpa_range row_of(const struct cpa_problem *problem, int64_t t, int64_t nkeys)
{
	const struct cpa_rule *rule = &problem->rule;
	struct cpa_range keys = { 0, nkeys };
	int64_t bound;

	if (rule->documents != NULL) {
		const struct cpa_range document = document_of(rule, t);

		keys.start = document.start;
		keys.end = least(keys.end, document.end);
	}
	if (rule->causal)
		keys.end = least(keys.end, t + rule->offset + 1);
	/* A side so wide that its end leaves int64 is no bound. */
	if (rule->window && rule->right >= 0 &&
		!__builtin_add_overflow(t + rule->offset + 1, rule->right, &bound))
		keys.end = least(keys.end, bound);
	if (rule->window && rule->left >= 0 &&
		!__builtin_sub_overflow(t + rule->offset, rule->left, &bound) &&
		bound > keys.start)
		keys.start = bound;
	if (keys.end < 0)
		keys.end = 0;
	keys.start = least(keys.start, keys.end);
	return keys;
}

struct cpa_range cpa_rule_row(const struct cpa_problem *problem, int64_t b, int64_t t)
{
	const int64_t *lengths = problem->rule.key_lengths;

	assert(b >= 0 && b < problem->B && t >= 0 && t < problem->Sq);
	return row_of(problem, t, lengths != NULL ? lengths[b] : problem->Skv);
}

struct cpa_range cpa_rule_hull(const struct cpa_problem *problem, int64_t first, int64_t last)
{
	const int64_t *lengths = problem->rule.key_lengths;
	int64_t nkeys = lengths != NULL ? lengths[0] : problem->Skv;

	assert(first >= 0 && first <= last && last < problem->Sq);
	for (int64_t b = 1; lengths != NULL && b < problem->B; b++)
		nkeys = lengths[b] > nkeys ? lengths[b] : nkeys;
	return (struct cpa_range) { row_of(problem, first, nkeys).start,
		row_of(problem, last, nkeys).end };
}

double cpa_mask_value(
	const struct cpa_problem *problem, int64_t b, int64_t h, int64_t t, int64_t j)
{
	const struct cpa_mask *mask = &problem->rule.mask;
	const int64_t at = b * mask->batch + h * mask->head + t * mask->query + j * mask->key;

	if (mask->kind == CPA_MASK_NONE)
		return 0.0;
	if (mask->kind == CPA_MASK_BOOL)
		return ((const uint8_t *) mask->data)[at] != 0 ? 0.0 : -INFINITY;
	return cpa_load(mask->dtype, mask->data, at);
}
