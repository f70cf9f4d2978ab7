/*
 * problem_rule.c - the rule of a problem as text, its mask aside.
 */
#include "harness/problem_rule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/parse.h"

/* Beyond this a bound cannot be told from none, and adding to it must not overflow. */
static const int64_t max_side = INT64_C(1) << 60;
static const uint64_t sink_seed = 1;

/* ---- reading ----------------------------------------------------------------------------- */

static enum cpa_status read_window(const char *text, struct cpa_arena *arena,
	struct cpa_rule *rule, struct cpa_error *error)
{
	struct cpa_int_list sides = { NULL, 0 };
	enum cpa_status status = cpa_parse_colons("--problem window", text, -1, max_side, arena,
		&sides, error);

	if (status != CPA_OK)
		return status;
	if (sides.n != 2)
		return cpa_fail(error, CPA_INVALID,
			"--problem window: %d numbers; expected two, the keys seen to the left and "
			"to the right (-1: no bound), such as window=128:0",
			sides.n);
	rule->left = sides.at[0];
	rule->right = sides.at[1];
	rule->window = rule->left >= 0 || rule->right >= 0;
	return CPA_OK;
}

static enum cpa_status read_key_lengths(const char *text, struct cpa_arena *arena,
	struct cpa_problem *p, struct cpa_error *error)
{
	struct cpa_int_list lengths = { NULL, 0 };
	enum cpa_status status = cpa_parse_colons("--problem key_lengths", text, 0, p->Skv, arena,
		&lengths, error);

	if (status != CPA_OK)
		return status;
	if (lengths.n != p->B)
		return cpa_fail(error, CPA_INVALID,
			"--problem key_lengths: %d of them; expected B = %" PRId64
			", one for each batch item",
			lengths.n, p->B);
	p->rule.key_lengths = lengths.at;
	return CPA_OK;
}

static enum cpa_status read_documents(const char *text, struct cpa_arena *arena,
	struct cpa_problem *p, struct cpa_error *error)
{
	static const char what[] = "--problem documents";
	struct cpa_int_list starts = { NULL, 0 };
	enum cpa_status status;

	if (p->Sq != p->Skv)
		return cpa_fail(error, CPA_INVALID,
			"%s: with Sq = %" PRId64 " and Skv = %" PRId64
			"; documents need as many keys as queries",
			what, p->Sq, p->Skv);
	status = cpa_parse_colons(what, text, 0, p->Sq, arena, &starts, error);
	if (status != CPA_OK)
		return status;
	if (starts.n < 2)
		return cpa_fail(error, CPA_INVALID,
			"%s: expected the start of each document and the end, such as 0:%" PRId64,
			what, p->Sq);
	if (starts.at[0] != 0)
		return cpa_fail(error, CPA_INVALID,
			"%s: the first document starts at %" PRId64 "; expected 0", what,
			starts.at[0]);
	for (int i = 1; i < starts.n; i++)
		if (starts.at[i] < starts.at[i - 1])
			return cpa_fail(error, CPA_INVALID,
				"%s: %" PRId64 " comes after %" PRId64
				"; expected starts that never descend",
				what, starts.at[i], starts.at[i - 1]);
	if (starts.at[starts.n - 1] != p->Sq)
		return cpa_fail(error, CPA_INVALID,
			"%s: the last document ends at %" PRId64 "; expected S = %" PRId64, what,
			starts.at[starts.n - 1], p->Sq);
	p->rule.documents = starts.at;
	p->rule.ndocuments = starts.n - 1;
	return CPA_OK;
}

/* The same for each head, or normal numbers that depend on the head alone. */
static double random_sink(const struct cpa_problem *p, int64_t h)
{
	return cpa_fill_value(CPA_FILL_NORMAL, p, sink_seed, 'q', 0, 0, h, 0);
}

static enum cpa_status read_sink(const char *text, struct cpa_arena *arena,
	struct cpa_problem *p, struct cpa_error *error)
{
	bool random = strcmp(text, "random") == 0;
	double *sink, value = 0;

	if (strcmp(text, "file") == 0)
		return cpa_fail(error, CPA_INVALID,
			"--problem sink: file stands for the sink of a recording; name the "
			"recording in place of --problem");
	if (!random && cpa_parse_number("", text, &value, error) != CPA_OK)
		return cpa_fail(error, CPA_INVALID,
			"--problem sink: '%.60s' is neither a finite number such as 0.5 nor random",
			text);
	sink = cpa_arena_alloc(arena, (size_t)p->Hq * sizeof *sink);
	if (!sink)
		return cpa_fail(error, CPA_NO_MEMORY, "--problem sink: out of memory");
	for (int64_t h = 0; h < p->Hq; h++)
		sink[h] = random ? random_sink(p, h) : value;
	p->rule.sink = sink;
	return CPA_OK;
}

enum cpa_status cpa_rule_parse(const struct cpa_rule_text *text, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	if (text->window)
		status = read_window(text->window, arena, &problem->rule, error);
	if (status == CPA_OK && text->key_lengths)
		status = read_key_lengths(text->key_lengths, arena, problem, error);
	if (status == CPA_OK && text->documents)
		status = read_documents(text->documents, arena, problem, error);
	if (status == CPA_OK && text->mask)
		status = cpa_mask_parse(text->mask, arena, problem, error);
	if (status == CPA_OK && text->sink)
		status = read_sink(text->sink, arena, problem, error);
	return status;
}

/* ---- printing ---------------------------------------------------------------------------- */

void cpa_text_put_number(struct cpa_text *text, const char *name, double value)
{
	char number[40];
	int digits = 1;

	do
		snprintf(number, sizeof number, "%.*g", digits, value);
	while (strtod(number, NULL) != value && digits++ < 17);
	cpa_text_put(text, "%s%s", name, number);
}

static void put_list(struct cpa_text *text, const char *name, const int64_t *values, int64_t n)
{
	for (int64_t i = 0; i < n && values; i++)
		cpa_text_put(text, "%s%" PRId64, i ? ":" : name, values[i]);
}

static void put_sink(struct cpa_text *text, const struct cpa_problem *p)
{
	const double *sink = p->rule.sink;
	bool equal = true, random = true;

	for (int64_t h = 0; h < p->Hq; h++) {
		equal = equal && sink[h] == sink[0];
		random = random && sink[h] == random_sink(p, h);
	}
	if (random || !equal)
		cpa_text_put(text, ",sink=%s", random ? "random" : "file");
	else
		cpa_text_put_number(text, ",sink=", sink[0]);
}

void cpa_rule_print(struct cpa_text *text, const struct cpa_problem *problem)
{
	const struct cpa_rule *rule = &problem->rule;

	if (rule->window)
		cpa_text_put(text, ",window=%" PRId64 ":%" PRId64, rule->left, rule->right);
	put_list(text, ",key_lengths=", rule->key_lengths, problem->B);
	put_list(text, ",documents=", rule->documents, rule->ndocuments + 1);
	if (rule->mask.kind != CPA_MASK_NONE)
		cpa_text_put(text, ",mask=%s", rule->mask.made ? rule->mask.made : "file");
	if (rule->sink)
		put_sink(text, problem);
}
