/*
 * report_compare.c - two runs of one command: results paired by what they are of, and what
 * changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report.h"

const char *cpa_change_name(enum cpa_change change)
{
	static const char *const names[] = {"same", "newly wrong", "vanished", "fixed", "added",
		"other verdict", "other numbers"};

	return names[change];
}

bool cpa_change_regresses(enum cpa_change change)
{
	return change == CPA_CHANGE_WRONG || change == CPA_CHANGE_VANISHED;
}

/* ---- pairing ---- */

struct entry {
	const char *key;
	int index;
	bool used;
};

/* By key, and results with one key in their order: the first goes with the first. */
static int by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->index > y->index) - (x->index < y->index);
}

static struct entry *find(struct entry *entries, int n, const char *key)
{
	int low = 0, high = n;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (strcmp(entries[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	while (low < n && strcmp(entries[low].key, key) == 0) {
		if (!entries[low].used)
			return &entries[low];
		low++;
	}
	return NULL;
}

/* ---- changes ---- */

/* NaN for what did not change by more than `least`, or does not exist on one side. */
static double changed(double before, double after, double least)
{
	double ratio = after / before;

	if (isnan(before) || isnan(after) || before == after)
		return NAN;
	if (before == 0)
		return INFINITY;
	return fabs(ratio - 1) > least || isnan(ratio) ? ratio : NAN;
}

/* Neither median lies between the quartiles of the other. */
static double time_changed(
	const struct cpa_statistics *before, const struct cpa_statistics *after)
{
	if (before->n == 0 || after->n == 0)
		return NAN;
	if ((after->median >= before->q1 && after->median <= before->q3) ||
		(before->median >= after->q1 && before->median <= after->q3))
		return NAN;
	return changed(before->median, after->median, 0);
}

static enum cpa_change judge(const struct cpa_pair *p)
{
	enum cpa_verdict before, after;

	if (!p->before)
		return p->after->verdict == CPA_VERDICT_WRONG ? CPA_CHANGE_WRONG
							      : CPA_CHANGE_ADDED;
	if (!p->after)
		return CPA_CHANGE_VANISHED;
	before = p->before->verdict;
	after = p->after->verdict;
	if (before == after)
		return isnan(p->ratio) && isnan(p->bytes) && isnan(p->memory) && isnan(p->time)
			? CPA_CHANGE_NONE
			: CPA_CHANGE_NUMBERS;
	if (after == CPA_VERDICT_WRONG)
		return CPA_CHANGE_WRONG;
	if (before == CPA_VERDICT_RIGHT)
		return CPA_CHANGE_VANISHED; /* there is no right result of it any more */
	return after == CPA_VERDICT_RIGHT && before == CPA_VERDICT_WRONG ? CPA_CHANGE_FIXED
									 : CPA_CHANGE_VERDICT;
}

static void add(struct cpa_comparison *c, const struct cpa_reported *before,
	const struct cpa_reported *after)
{
	struct cpa_pair *p = &c->pairs[c->n++];

	*p = (struct cpa_pair){before, after, CPA_CHANGE_NONE, NAN, NAN, NAN, NAN};
	if (before && after) {
		p->ratio = changed(cpa_reported_ratio(before), cpa_reported_ratio(after), 0.01);
		p->bytes = changed(cpa_series_sum(&before->bytes_sent),
			cpa_series_sum(&after->bytes_sent), 0);
		p->memory = changed(cpa_series_max(&before->peak_bytes),
			cpa_series_max(&after->peak_bytes), 0);
		p->time = time_changed(&before->seconds, &after->seconds);
	}
	p->change = judge(p);
	c->nchanges += p->change != CPA_CHANGE_NONE;
	c->nregressions += cpa_change_regresses(p->change);
}

enum cpa_status cpa_report_compare(const struct cpa_report_run *before,
	const struct cpa_report_run *after, struct cpa_arena *arena,
	struct cpa_comparison *comparison, struct cpa_error *error)
{
	int n = before->n;
	struct entry *entries = cpa_arena_alloc(arena, ((size_t)n + 1) * sizeof *entries);
	struct cpa_comparison c = {before, after, NULL, 0, 0, 0};

	c.pairs = cpa_arena_alloc(arena, ((size_t)n + (size_t)after->n + 1) * sizeof *c.pairs);
	if (!entries || !c.pairs)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a comparison");
	for (int i = 0; i < n; i++)
		entries[i] = (struct entry){before->results[i].key, i, false};
	qsort(entries, (size_t)n, sizeof *entries, by_key);
	for (int i = 0; i < after->n; i++) {
		struct entry *old = find(entries, n, after->results[i].key);

		if (old)
			old->used = true;
		add(&c, old ? &before->results[old->index] : NULL, &after->results[i]);
	}
	for (int i = 0; i < n; i++)
		if (!entries[i].used)
			add(&c, &before->results[entries[i].index], NULL);
	*comparison = c;
	return CPA_OK;
}
