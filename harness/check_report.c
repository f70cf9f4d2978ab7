/*
 * check_report.c - what was found in recorded outputs, for people and for programs.
 */
#include "harness/check_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/diagnose_report.h"
#include "harness/result_parts.h"
#include "harness/text.h"

enum { MOST_RANGES = 6 }; /* that a sentence lists */

void cpa_check_name_part(const struct cpa_check_part *part, char *text, size_t size)
{
	if (part->rank < 0)
		snprintf(text, size, "one device");
	else
		snprintf(text, size, "rank %d", part->rank);
}

/* ---- sentences ---- */

/* "token 5" or "tokens 5-9,12": the tokens of all heads together, in the order of the first head.
 */
static void put_ranges(struct cpa_text *text, const struct cpa_wrong *wrong)
{
	const struct cpa_wrong_head *most = &wrong->at[0];

	for (int i = 1; i < wrong->n; i++)
		if (wrong->at[i].nrows > most->nrows)
			most = &wrong->at[i];
	cpa_text_put(text, "%s ",
		most->ntokens == 1 && most->tokens[0].end == most->tokens[0].start + 1
			? "token"
			: "tokens");
	for (int i = 0; i < most->ntokens && i < MOST_RANGES; i++) {
		cpa_text_put(text, "%s%" PRId64, i ? "," : "", most->tokens[i].start);
		if (most->tokens[i].end > most->tokens[i].start + 1)
			cpa_text_put(text, "-%" PRId64, most->tokens[i].end - 1);
	}
	if (most->ntokens > MOST_RANGES)
		cpa_text_put(text, ",...");
}

/* "heads 0-3,6" of all that have a wrong row. */
static void put_heads(struct cpa_text *text, const struct cpa_wrong *wrong, int64_t Hq)
{
	int n = 0;

	for (int64_t h = 0, first = -1; h <= Hq; h++) {
		bool bad = false;

		for (int i = 0; h < Hq && i < wrong->n && !bad; i++)
			bad = wrong->at[i].head == h;
		if (bad && first < 0)
			first = h;
		if (bad || first < 0)
			continue;
		if (n < MOST_RANGES)
			cpa_text_put(text, "%s%" PRId64, n ? "," : "heads ", first);
		if (n < MOST_RANGES && h > first + 1)
			cpa_text_put(text, "-%" PRId64, h - 1);
		if (n == MOST_RANGES)
			cpa_text_put(text, ",...");
		n++;
		first = -1;
	}
}

/* "o is wrong in 3 of 8 rows (tokens 5-7; heads 0)" */
static void put_rows(struct cpa_text *text, const char *name, const char *what,
	const struct cpa_wrong *wrong, const struct cpa_check_part *part,
	const struct cpa_problem *problem)
{
	cpa_text_put(text, "%s is %s in %" PRId64 " of %" PRId64 " rows (", name, what,
		wrong->nrows, part->njudged);
	put_ranges(text, wrong);
	cpa_text_put(text, "; ");
	put_heads(text, wrong, problem->Hq);
	cpa_text_put(text, ")");
}

static void put_place(struct cpa_text *text, const struct cpa_deviation *d)
{
	cpa_text_put(text, " at batch %" PRId64 ", token %" PRId64 ", head %" PRId64, d->batch,
		d->token, d->head);
	if (d->dim >= 0)
		cpa_text_put(text, ", dim %" PRId64, d->dim);
}

static void put_wrong(struct cpa_text *text, const char *name, const struct cpa_wrong *wrong,
	const struct cpa_wrong *lost, const struct cpa_deviation *d,
	const struct cpa_check_part *part, const struct cpa_problem *problem)
{
	if (lost->nrows > 0) {
		put_rows(text, name, "NaN or infinite", lost, part, problem);
		cpa_text_put(text, ", first");
		put_place(text, d);
		if (wrong->nrows == lost->nrows)
			return;
		cpa_text_put(text, ", and with these ");
	}
	put_rows(text, name, "wrong", wrong, part, problem);
	if (lost->nrows > 0)
		return;
	cpa_text_put(text, ", relative L2 %.3g, worst %.3g times its bound", d->rel_l2, d->ratio);
	put_place(text, d);
	cpa_text_put(text, " (off by %.3g)", d->error);
}

void cpa_check_reason(const struct cpa_check_part *part, const struct cpa_checked *checked,
	char *text, size_t size)
{
	struct cpa_text w = cpa_text_begin(text, size);
	const struct cpa_problem *problem = &checked->call->problem;

	if (part->o_wrong.nrows > 0)
		put_wrong(&w, "o", &part->o_wrong, &part->o_lost, &part->o, part, problem);
	if (part->o_wrong.nrows > 0)
		cpa_text_put(&w, "; ");
	if (part->lse_wrong.nrows > 0)
		put_wrong(&w, "lse", &part->lse_wrong, &part->lse_lost, &part->lse, part,
			problem);
	else
		cpa_text_put(&w, part->has_lse ? "lse is right" : "its lse is not recorded");
	if (part->o_wrong.nrows == 0)
		cpa_text_put(&w, part->has_o ? "; o is right" : "; its o is not recorded");
	if (part->would_do < CPA_NARITHMETICS)
		cpa_text_put(&w, "; it is within the bounds of --arithmetic %s",
			cpa_arithmetic_name(part->would_do));
}

void cpa_check_findings(
	const struct cpa_diagnosis *diagnosis, char *classes, char *text, size_t size)
{
	struct cpa_text list = cpa_text_begin(classes, CPA_CHECK_CLASSES),
			sentences = cpa_text_begin(text, size);

	for (int i = 0; i < diagnosis->nties; i++) {
		const struct cpa_finding *f = &diagnosis->findings[i];

		if (!strstr(classes, f->class))
			cpa_text_put(&list, "%s%s", i ? " " : "", f->class);
		cpa_text_put(&sentences, "%s%s: %s", i ? "; or " : "", f->class, f->text);
	}
}

/* ---- JSON ---- */

static void put_wrong_json(struct cpa_json *json, const char *key, const struct cpa_wrong *wrong)
{
	cpa_json_key(json, key);
	cpa_json_array(json);
	for (int i = 0; i < wrong->n; i++) {
		const struct cpa_wrong_head *it = &wrong->at[i];

		cpa_json_object(json);
		cpa_json_put_int(json, "batch", it->batch);
		cpa_json_put_int(json, "head", it->head);
		cpa_json_put_int(json, "rows", it->nrows);
		cpa_json_key(json, "ratio");
		cpa_json_number(json, it->ratio);
		cpa_json_key(json, "tokens");
		cpa_json_array(json);
		for (int n = 0; n < it->ntokens; n++) {
			cpa_json_array(json);
			cpa_json_int(json, it->tokens[n].start);
			cpa_json_int(json, it->tokens[n].end);
			cpa_json_end_array(json);
		}
		cpa_json_end_array(json);
		cpa_json_end_object(json);
	}
	cpa_json_end_array(json);
}

static void put_texts_json(
	struct cpa_json *json, const char *key, const char *const *texts, int n)
{
	cpa_json_key(json, key);
	cpa_json_array(json);
	for (int i = 0; n < 0 ? texts && texts[i] : i < n; i++)
		cpa_json_string(json, texts[i]);
	cpa_json_end_array(json);
}

void cpa_check_put_json(struct cpa_json *json, const struct cpa_result *result)
{
	const struct cpa_check_part *part = result->part;

	cpa_json_key(json, "rank");
	if (part->rank >= 0)
		cpa_json_int(json, part->rank);
	else
		cpa_json_null(json);
	cpa_json_put_int(json, "rows_held", part->nheld);
	cpa_json_put_int(json, "rows_judged", part->njudged);
	cpa_json_key(json, "wrong");
	cpa_json_object(json);
	put_wrong_json(json, "o", &part->o_wrong);
	put_wrong_json(json, "lse", &part->lse_wrong);
	cpa_json_end_object(json);
	cpa_json_key(json, "not_finite");
	cpa_json_object(json);
	put_wrong_json(json, "o", &part->o_lost);
	put_wrong_json(json, "lse", &part->lse_lost);
	cpa_json_end_object(json);
	cpa_json_key(json, "would_do");
	cpa_json_string(json,
		part->would_do < CPA_NARITHMETICS ? cpa_arithmetic_name(part->would_do) : NULL);
	put_texts_json(json, "inputs_differ", part->findings, part->nfindings);
	put_texts_json(json, "not_shown", result->not_shown, -1);
}

/* ---- for people ---- */

static void put_ratio(FILE *out, const char *name, bool there, double ratio)
{
	if (there && !isnan(ratio))
		fprintf(out, "  %s %-8.3g", name, ratio);
	else
		fprintf(out, "  %s %-8s", name, "-");
}

static void print_part(FILE *out, const struct cpa_result *r, const struct cpa_colours *c)
{
	const struct cpa_check_part *part = r->part;
	bool right = r->verdict == CPA_VERDICT_RIGHT;
	char name[24];

	cpa_check_name_part(part, name, sizeof name);
	fprintf(out, "  %-12s %s%-6s%s", name, right ? c->right : c->wrong,
		right ? "right" : "WRONG", c->end);
	put_ratio(out, "o", part->has_o, part->o.ratio);
	put_ratio(out, "lse", part->has_lse, part->lse.ratio);
	fprintf(out, " of the bound, %" PRId64 " of %" PRId64 " rows judged\n", part->njudged,
		part->nheld);
	if (!right) {
		fputs("    ", out);
		cpa_print_wrapped(out, r->reason, 4, 4);
	}
}

static void print_heads(FILE *out, const char *name, const struct cpa_wrong *wrong)
{
	for (int i = 0; i < wrong->n; i++) {
		const struct cpa_wrong_head *it = &wrong->at[i];

		fprintf(out,
			"      %-3s batch %" PRId64 " head %3" PRId64 ": %6" PRId64
			" rows, worst %.3g times the bound, tokens",
			name, it->batch, it->head, it->nrows, it->ratio);
		for (int n = 0; n < it->ntokens && n < 4 * MOST_RANGES; n++)
			fprintf(out,
				it->tokens[n].end > it->tokens[n].start + 1 ? " %" PRId64
									      "-%" PRId64
									    : " %" PRId64,
				it->tokens[n].start, it->tokens[n].end - 1);
		fputs(it->ntokens > 4 * MOST_RANGES ? " ...\n" : "\n", out);
	}
}

static void print_texts(FILE *out, const char *heading, const char *const *texts, int n)
{
	for (int i = 0; n < 0 ? texts && texts[i] : i < n; i++) {
		if (i == 0)
			fprintf(out, "  %s\n", heading);
		fputs("    ", out);
		cpa_print_wrapped(out, texts[i], 4, 6);
	}
}

void cpa_check_print(FILE *out, const struct cpa_result_list *list, int first, int end,
	const struct cpa_checked *checked, bool verbose)
{
	struct cpa_colours colours = cpa_colours_for(out);
	const struct cpa_call *call = checked->call;
	char problem[512];

	cpa_print_clean(out, list->at[first].file);
	fputc(' ', out);
	cpa_print_clean(out, call->name);
	cpa_problem_print(&call->problem, problem, sizeof problem);
	fprintf(out, "\n  %s; %" PRId64 " of %" PRId64 " query rows judged\n", problem,
		checked->truth->n, call->problem.Sq);
	for (int i = first; i < end; i++) {
		print_part(out, &list->at[i], &colours);
		if (verbose) {
			print_heads(out, "o", &list->at[i].part->o_wrong);
			print_heads(out, "lse", &list->at[i].part->lse_wrong);
		}
	}
	if (list->at[first].diagnosis)
		cpa_diagnosis_print(out, list->at[first].diagnosis);
	for (int i = first; i < end; i++)
		print_texts(
			out, "finding:", list->at[i].part->findings, list->at[i].part->nfindings);
	if (call->nranks > 0 && call->nranks < call->world)
		fprintf(out, "  not judged: %d of %d ranks are not in the file\n",
			call->world - call->nranks, call->world);
	if (call->notes && call->notes[0]) {
		fputs("  not looked at: ", out);
		cpa_print_wrapped(out, call->notes, 17, 4);
	}
	print_texts(out, "this run could not have shown (cpattn probe writes inputs that would):",
		list->at[first].not_shown, -1);
}

void cpa_check_print_summary(FILE *out, const struct cpa_result_list *list)
{
	struct cpa_colours c = cpa_colours_for(out);
	struct cpa_summary sum = cpa_result_summary(list);

	for (int i = 0; i < list->n; i++) {
		const struct cpa_result *r = &list->at[i];

		if (r->part || r->hang)
			continue;
		cpa_print_clean(out, r->file);
		fprintf(out, "%s%s\n  %s: ", r->call ? " " : "", r->call ? r->call : "",
			r->verdict == CPA_VERDICT_UNSUPPORTED ? "unsupported" : "cannot tell");
		cpa_print_wrapped(out, r->reason, 15, 4);
	}
	fprintf(out,
		"%s%d right%s, %s%d wrong%s, %d unsupported, %d cannot tell (a result for one "
		"device and "
		"for each rank)\n",
		sum.right ? c.right : "", sum.right, sum.right ? c.end : "",
		sum.wrong ? c.wrong : "", sum.wrong, sum.wrong ? c.end : "", sum.unsupported,
		sum.cannot_tell);
}
