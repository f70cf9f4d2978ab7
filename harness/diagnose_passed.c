/*
 * diagnose_passed.c - which rank works on a row, and which blocks it passes over.
 *
 * What a block that shows a row no key does to it depends on whether the run looked at it at all:
 * many pass over blocks that no query of a chunk, or of a rank, can see.
 */
#include "harness/diagnose_passed.h"

#include <string.h>

#include "harness/diagnose_take.h"

/* ---- who works on the row ---- */

/* The replicated queries from which ring rank r works on a slice: first and last of them.  False:
 * there are none. */
static bool slice_of(const struct cpa_suspect *s, int64_t r, int64_t *first, int64_t *last)
{
	int64_t n = 0, i = 0, start, end;

	for (int64_t t = 0; t < s->problem->Sq; t++)
		n += s->query_rank[t] < 0;
	start = r * (n / s->R) + (r < n % s->R ? r : n % s->R);
	end = start + n / s->R + (r < n % s->R);
	for (int64_t t = 0; t < s->problem->Sq; t++) {
		if (s->query_rank[t] >= 0)
			continue;
		if (i == start)
			*first = t;
		if (i++ == end - 1)
			*last = t;
	}
	return start < end;
}

/* Ring ranks share the replicated queries among them, or each does its own copies. */
int cpa_passed_ring(const struct cpa_recipe_at *at)
{
	const struct cpa_suspect *s = at->s;
	int64_t t = at->row->t, first, last;

	if (s->query_rank[t] < 0 && (at->unknown[CPA_PASSED_BITS] & CPA_PASSED_SLICED))
		for (int r = 0; r < s->R; r++)
			if (slice_of(s, r, &first, &last) && t >= first && t <= last)
				return r;
	return cpa_suspect_ring(s, at->row);
}

bool cpa_passed_elsewhere(const struct cpa_recipe_at *at)
{
	const struct cpa_suspect *s = at->s;
	int64_t worker = cpa_suspect_worker(s, at->row) +
		(cpa_passed_ring(at) - cpa_suspect_ring(s, at->row)) * s->U;

	return at->unknown[CPA_PASSED_RANK] > 0 && worker != at->unknown[CPA_PASSED_RANK] - 1;
}

/* ---- what is passed over ---- */

static void find_run(
	const struct cpa_suspect *s, int ring, int64_t t, int64_t *first, int64_t *last)
{
	*first = *last = t;
	while (*first > 0 && s->query_rank[*first - 1] >= 0 &&
		s->query_rank[*first - 1] / s->U == ring)
		--*first;
	while (*last + 1 < s->problem->Sq && s->query_rank[*last + 1] >= 0 &&
		s->query_rank[*last + 1] / s->U == ring)
		++*last;
}

/* The ring rank's queries as runs, and these as stripes: which one t is in.  Two runs are none.
 */
static void find_stripe(
	const struct cpa_suspect *s, int ring, int64_t t, int64_t *first, int64_t *last)
{
	int64_t i = s->query_start[ring], end = s->query_start[ring + 1], length = 0, before = 0,
		stride = 0, nruns = 0;

	*last = -1;
	for (int64_t next; i < end; i = next) {
		int64_t start = s->query_list[i];

		for (next = i + 1; next < end && s->query_list[next] == start + next - i;)
			next++;
		if (next - i != length || (nruns > 1 && start - before != stride)) {
			if (*last >= t)
				break;
			*first = start;
			nruns = 0;
		}
		stride = start - before;
		length = next - i;
		before = start;
		*last = start + length - 1;
		nruns++;
	}
	if (nruns < 3)
		find_run(s, ring, t, first, last);
}

/* The first and the last of the queries that are asked. */
static void find_queries(const struct cpa_recipe_at *at, int64_t *first, int64_t *last)
{
	const struct cpa_suspect *s = at->s;
	const struct cpa_places_of *ranks = cpa_places(s, CPA_SIDE_Q, CPA_LEVEL_RANK);
	int64_t t = at->row->t;
	int cp = s->query_rank[t];

	*first = *last = t;
	if (cp < 0 && (at->unknown[CPA_PASSED_BITS] & CPA_PASSED_SLICED))
		slice_of(s, at->ring, first, last);
	else if (cp < 0)
		*last = s->problem->Sq - 1, *first = 0;
	else if (at->unknown[CPA_PASSED_OVER] == CPA_PASS_RUN)
		find_run(s, at->ring, t, first, last);
	else if (at->unknown[CPA_PASSED_OVER] == CPA_PASS_STRIPE)
		find_stripe(s, at->ring, t, first, last);
	else if (at->unknown[CPA_PASSED_OVER] == CPA_PASS_SHARD) {
		*first = ranks->tokens[ranks->start[cp]];
		*last = ranks->tokens[ranks->start[cp + 1] - 1];
	} else {
		*first = s->query_list[s->query_start[at->ring]];
		*last = s->query_list[s->query_start[at->ring + 1] - 1];
	}
}

bool cpa_passed_over(const struct cpa_recipe_at *at)
{
	const struct cpa_suspect *s = at->s;
	int64_t i = at->block < 0 ? 0 : s->block_start[at->block],
		end = s->block_start[at->block + 1], first, last;
	struct cpa_range keys;

	if (at->unknown[CPA_PASSED_OVER] == CPA_PASS_NOTHING || i == end)
		return at->unknown[CPA_PASSED_OVER] != CPA_PASS_NOTHING;
	if (at->unknown[CPA_PASSED_OVER] == CPA_PASS_NO_KEYS)
		return false;
	find_queries(at, &first, &last);
	keys = cpa_rule_hull(s->problem, first, last);
	while (i < end && s->block_keys[i] < keys.start)
		i++;
	return i == end || s->block_keys[i] >= keys.end;
}

static bool has_copies(const struct cpa_suspect *s)
{
	for (int64_t t = 0; t < s->problem->Sq; t++)
		if (s->query_rank[t] < 0)
			return true;
	return false;
}

struct cpa_recipe_at cpa_passed_begin(
	struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown)
{
	struct cpa_recipe_at at = {.s = s, .row = row};

	memcpy(at.unknown, unknown, sizeof at.unknown);
	at.direction = unknown[CPA_PASSED_BITS] & CPA_PASSED_DOWN ? -1 : 1;
	return at;
}

void cpa_passed_unknowns(const struct cpa_suspect *s, int64_t nkinds, int64_t *n)
{
	n[CPA_PASSED_KIND] = nkinds;
	n[CPA_PASSED_OVER] = CPA_NPASSES;
	n[CPA_PASSED_RANK] = s->W > 1 ? s->W + 1 : 1;
	n[CPA_PASSED_BITS] = has_copies(s) ? 4 : s->R > 2 ? 2 : 1;
}
