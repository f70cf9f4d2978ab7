/*
 * random_segments.c - the segments of a case: drawn, printed, made fewer and shorter.
 */
#include <inttypes.h>

#include "harness/random_case.h"
#include "sim/sim.h"

static int64_t below(uint64_t *state, int64_t n)
{
	return (int64_t)(cpa_random(state) % (uint64_t)n);
}

/* ---- drawing ---- */

/* Near an end, near a multiple of P, a length that strict variants take, or anything. */
static int64_t draw_cut(int64_t S, int P, uint64_t *state)
{
	int64_t at = 0;
	switch (below(state, 6)) {
	case 0:
		at = below(state, 2) ? S : 0;
		break;
	case 1:
		at = below(state, 2) ? S - 1 : 1;
		break;
	case 2:
		at = P * (1 + below(state, 2)) + below(state, 3) - 1;
		break;
	case 3:
		at = below(state, S + 1) / 8 * 8;
		break;
	default:
		at = below(state, S + 1);
		break;
	}
	return at < 0 ? 0 : at > S ? S : at;
}

/* Cuts may fall together: segments of no tokens are part of it. */
static void draw_lengths(struct cpa_case_segments *list, int64_t S, int P, uint64_t *state)
{
	int64_t starts[CPA_CASE_SEGMENTS + 1] = {0};
	for (int i = 1; i < list->n; i++) {
		int64_t cut = draw_cut(S, P, state);
		int at = i;
		for (; at > 1 && starts[at - 1] > cut; at--)
			starts[at] = starts[at - 1];
		starts[at] = cut;
	}
	starts[list->n] = S;
	for (int i = 0; i < list->n; i++)
		list->length[i] = starts[i + 1] - starts[i];
}

void cpa_case_segments_draw(struct cpa_case_segments *list, int64_t S, int P, uint64_t *state)
{
	int64_t kind = below(state, 5);
	*list = (struct cpa_case_segments){.n = kind < 2 ? 2 : 1 + (int)below(state, 4)};
	draw_lengths(list, S, P, state);
	for (int i = 0; i < list->n; i++)
		list->replicated[i] = kind == 0   ? i == 0 /* text in front */
				      : kind == 1 ? i == 1 /* or at the rear */
				      : kind == 2 ? true
						  : below(state, 2) == 0;
}

/* ---- what they say ---- */

void cpa_case_segments_print(
	struct cpa_text *text, const char *key, const struct cpa_case_segments *list)
{
	for (int i = 0; i < list->n; i++)
		cpa_text_put(text, "%s%c:%" PRId64 ":%s", i ? "/" : key, 'a' + i,
			list->length[i], list->replicated[i] ? "replicated" : "split");
}

int cpa_case_nsplit(const struct cpa_case *it, bool keys)
{
	const struct cpa_case_segments *list =
		keys && it->Sq != it->Skv ? &it->segments_kv : &it->segments;
	int n = list->n == 0;
	for (int i = 0; i < list->n; i++)
		n += !list->replicated[i];
	return n;
}

/* ---- smaller ---- */

void cpa_case_segments_trim(struct cpa_case_segments *list, int64_t S)
{
	int64_t sum = 0;
	for (int i = 0; i < list->n; i++)
		sum += list->length[i];
	for (; list->n && sum > S; sum--) {
		int longest = 0;
		for (int i = 1; i < list->n; i++)
			if (list->length[i] > list->length[longest])
				longest = i;
		list->length[longest]--;
	}
}

static void take_out(struct cpa_case_segments *list, int i)
{
	list->n--;
	for (; i < list->n; i++) {
		list->length[i] = list->length[i + 1];
		list->replicated[i] = list->replicated[i + 1];
	}
}

enum way { DROP, TO_HALF, DOWN_ONE, MERGE, MERGE_INTO_NEXT, SPLIT_IT, NWAYS };

/* How many tokens go; -1: it cannot be done. */
static int64_t make_smaller(struct cpa_case_segments *list, int i, enum way way)
{
	int64_t length = list->length[i], gone = 0;
	switch (way) {
	case DROP:
		if (list->n == 1)
			return -1;
		take_out(list, i);
		return length;
	case TO_HALF:
	case DOWN_ONE:
		gone = way == TO_HALF ? length - length / 2 : length > 0;
		list->length[i] -= gone;
		return gone > 0 ? gone : -1;
	case MERGE:
	case MERGE_INTO_NEXT:
		if (i + 1 >= list->n)
			return -1;
		list->length[i + 1] += length;
		if (way == MERGE)
			list->replicated[i + 1] = list->replicated[i];
		take_out(list, i);
		return 0;
	case SPLIT_IT:
		if (!list->replicated[i])
			return -1;
		list->replicated[i] = false;
		return 0;
	default:
		return -1;
	}
}

int cpa_case_segments_nways(void)
{
	return 2 * CPA_CASE_SEGMENTS * NWAYS;
}

bool cpa_case_segments_shrink(struct cpa_case *it, int number)
{
	bool keys = number >= CPA_CASE_SEGMENTS * NWAYS, same = it->Sq == it->Skv;
	struct cpa_case_segments *list = keys ? &it->segments_kv : &it->segments;
	int i = number / NWAYS % CPA_CASE_SEGMENTS;
	int64_t *S = keys ? &it->Skv : &it->Sq;
	if (i >= list->n)
		return false;
	int64_t gone = make_smaller(list, i, (enum way)(number % NWAYS));
	if (gone < 0 || *S - gone < 1)
		return false;
	*S -= gone;
	if (same)
		it->Skv = it->Sq;
	return true;
}
