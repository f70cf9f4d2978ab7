/*
 * result.c - the list of results, its summary and the exit status.
 */
#include "harness/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/result_parts.h"
#include "harness/text.h"

const char *cpa_verdict_name(enum cpa_verdict verdict)
{
	static const char *const names[] = { "right", "wrong", "unsupported", "cannot_tell" };

	return names[verdict];
}

static struct cpa_deviation no_deviation(void)
{
	return (struct cpa_deviation){ NAN, NAN, NAN, NAN, NAN, -1, -1, -1, -1 };
}

void cpa_result_init(struct cpa_result *result)
{
	memset(result, 0, sizeof *result);
	result->o = no_deviation();
	result->lse = no_deviation();
	result->combined = no_deviation();
	result->probe_ratio = NAN;
	result->seconds = NAN;
	result->verdict = CPA_VERDICT_CANNOT_TELL;
	result->fault = -1;
}

struct cpa_counts *cpa_result_alloc_counts(int W)
{
	return calloc((size_t)W, sizeof(struct cpa_counts) + sizeof(uint64_t));
}

uint64_t *cpa_result_hash_room(const struct cpa_result *result)
{
	return (uint64_t *)(void *)(result->counts + result->W);
}

enum cpa_status cpa_result_list_add(struct cpa_result_list *list,
	const struct cpa_result *result)
{
	if (list->n == list->capacity) {
		int capacity = list->capacity ? 2 * list->capacity : 64;
		struct cpa_result *at = realloc(list->at, (size_t)capacity * sizeof *at);

		if (!at)
			return CPA_NO_MEMORY;
		list->at = at;
		list->capacity = capacity;
	}
	list->at[list->n++] = *result;
	return CPA_OK;
}

void cpa_result_list_fini(struct cpa_result_list *list)
{
	for (int i = 0; i < list->n; i++) {
		free(list->at[i].counts);
		free(list->at[i].reproduce);
		free(list->at[i].measured);
	}
	free(list->at);
	*list = (struct cpa_result_list){ 0 };
}

bool cpa_result_preamble(const struct cpa_result *result, struct cpa_preamble *preamble)
{
	const struct cpa_problem *p = result->problem;

	if (!p || !result->has_proof || cpa_problem_nsplit(p, false) > CPA_SIZES_MAX_SEGMENTS ||
		cpa_problem_nsplit(p, true) > CPA_SIZES_MAX_SEGMENTS)
		return false;
	preamble->record_bytes = cpa_sizes_nbytes();
	preamble->bytes = cpa_sizes_nbytes() * (result->W - 1);
	preamble->messages = result->W > 1;
	return true;
}

struct cpa_summary cpa_result_summary(const struct cpa_result_list *list)
{
	struct cpa_summary sum = { 0 };

	for (int i = 0; i < list->n; i++) {
		enum cpa_verdict verdict = list->at[i].verdict;

		sum.right += verdict == CPA_VERDICT_RIGHT;
		sum.wrong += verdict == CPA_VERDICT_WRONG;
		sum.unsupported += verdict == CPA_VERDICT_UNSUPPORTED;
		sum.cannot_tell += verdict == CPA_VERDICT_CANNOT_TELL;
	}
	return sum;
}

bool cpa_result_ran_nowhere(const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	bool ran[CPA_NVARIANTS] = { false };

	for (int i = 0; i < list->n; i++) {
		const struct cpa_result *r = &list->at[i];

		if (r->has_config)
			ran[r->config.variant] |= r->verdict == CPA_VERDICT_RIGHT ||
				r->verdict == CPA_VERDICT_WRONG;
	}
	for (int v = 0; v < CPA_NVARIANTS; v++)
		if (options->variants_asked && options->variants[v] && !ran[v])
			return true;
	return false;
}

int cpa_result_exit(const struct cpa_result_list *list, bool ran_nowhere)
{
	struct cpa_summary sum = cpa_result_summary(list);

	if (sum.wrong > 0)
		return 1;
	return sum.cannot_tell > 0 || ran_nowhere || sum.right == 0 ? 2 : 0;
}

/* ---- what the writers share -------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool cpa_result_same_call(const struct cpa_result *a, const struct cpa_result *b)
{
	return same_text(a->file, b->file) && same_text(a->call, b->call);
}

int cpa_result_call_end(const struct cpa_result_list *list, int first)
{
	int end = first + 1;

	while (end < list->n && cpa_result_same_call(&list->at[first], &list->at[end]))
		end++;
	return end;
}

void cpa_result_mesh(const struct cpa_result *result, char *text, size_t size)
{
	const struct cpa_config *c = &result->config;
	struct cpa_text w = cpa_text_begin(text, size);

	if (!result->has_config)
		return;
	cpa_text_put(&w, "%dx%dx%d", c->batch_degree, c->ring_degree, c->ulysses_degree);
	if (c->ring_degree > 1)
		cpa_text_put(&w, " %s", cpa_rotate_name(c->rotate));
}

double cpa_result_worst(const struct cpa_result *result, const char **tensor,
	const struct cpa_deviation **deviation)
{
	const struct cpa_deviation *worst = &result->o;

	/* NaN compares false: whichever exists wins. */
	if (result->lse.ratio > result->o.ratio || isnan(result->o.ratio))
		worst = &result->lse;
	if (result->combined.ratio > worst->ratio)
		worst = &result->combined;
	*tensor = worst == &result->o ? "o" : worst == &result->lse ? "lse" : "guidance";
	*deviation = worst;
	return worst->ratio;
}
