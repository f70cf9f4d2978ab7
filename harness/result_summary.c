/*
 * result_summary.c - how a run ends: counts, the worst error, what was refused and why, what
 * was wrong.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/result_parts.h"
#include "harness/text.h"

enum { WIDTH = 100, MAX_LISTED = 20 };

struct cpa_colours cpa_colours_for(FILE *out)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	if ((no_color && no_color[0]) || !term || strcmp(term, "dumb") == 0 ||
		!isatty(fileno(out)))
		return (struct cpa_colours){ "", "", "", "" };
	return (struct cpa_colours){ "\033[32m", "\033[1;31m", "\033[2m", "\033[0m" };
}

void cpa_print_clean(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
}

void cpa_print_wrapped(FILE *out, const char *text, int column, int indent)
{
	while (*text) {
		int n = (int)strcspn(text, " ");

		if (n > 0 && column > indent && column + n > WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		}
		for (int i = 0; i < n; i++)
			fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i],
				out);
		column += n;
		text += n;
		/* A space that would end the line is left to the next word's line break. */
		if (*text == ' ') {
			int next = (int)strcspn(text + 1, " ");

			if (column + 1 + next <= WIDTH) {
				fputc(' ', out);
				column++;
			} else {
				column = WIDTH;
			}
			text++;
		}
	}
	fputc('\n', out);
}

static size_t numbers(const char *text)
{
	return *text >= '0' && *text <= '9' ? strspn(text, "0123456789,. ") : 0;
}

/* The same words: a number, or a list of numbers, is like any other. */
static bool alike(const char *a, const char *b)
{
	while (*a && *b) {
		size_t na = numbers(a), nb = numbers(b);

		if (na > 0 && nb > 0) {
			a += na;
			b += nb;
		} else if (*a++ != *b++) {
			return false;
		}
	}
	return *a == *b;
}

void cpa_reasons_add(struct cpa_reasons *reasons, const struct cpa_result *result)
{
	for (int i = 0; i < reasons->n; i++)
		if (alike(reasons->first[i]->reason, result->reason)) {
			reasons->count[i]++;
			if (strcmp(reasons->first[i]->reason, result->reason) != 0)
				reasons->varied[i] = true;
			return;
		}
	if (reasons->n == CPA_MAX_REASONS) {
		reasons->others++;
		return;
	}
	reasons->first[reasons->n] = result;
	reasons->varied[reasons->n] = false;
	reasons->count[reasons->n++] = 1;
}

void cpa_reasons_print(FILE *out, const struct cpa_reasons *reasons, int indent, int at_most)
{
	int rest = reasons->others;

	for (int i = 0; i < reasons->n; i++) {
		const char *reason = reasons->first[i]->reason;

		if (i >= at_most) {
			rest += reasons->count[i];
			continue;
		}
		const char *such = reasons->varied[i] ? "such as: " : "";

		fprintf(out, "%*s%4d  %s", indent, "", reasons->count[i], such);
		cpa_print_wrapped(out, reason[0] ? reason : "(no reason given)",
			indent + 6 + (int)strlen(such), indent + 6);
	}
	if (rest > 0)
		fprintf(out, "%*s%4d  for other reasons\n", indent, "", rest);
}

static void print_place(FILE *out, const struct cpa_result *result)
{
	if (result->file) {
		cpa_print_clean(out, result->file);
		fputs(" ", out);
	}
	cpa_print_clean(out, result->call ? result->call : result->file ? "" : "the problem");
}

static void print_worst(FILE *out, const struct cpa_result_list *list)
{
	const struct cpa_deviation *at, *worst_at = NULL;
	const struct cpa_result *worst = NULL;
	const char *tensor, *worst_tensor = "";
	double soft = NAN, probe = NAN;
	char mesh[48];

	for (int i = 0; i < list->n; i++) {
		const struct cpa_result *result = &list->at[i];
		double ratio = cpa_result_worst(result, &tensor, &at);

		if (!isnan(ratio) && (!worst || ratio > worst_at->ratio)) {
			worst = result;
			worst_at = at;
			worst_tensor = tensor;
		}
		soft = fmax(soft, fmax(result->o.soft_ratio, result->lse.soft_ratio));
		probe = fmax(probe, result->probe_ratio);
	}
	if (!worst)
		return;
	cpa_result_mesh(worst, mesh, sizeof mesh);
	fprintf(out,
		"worst error over bound: %.3g, %s of %s %s, batch %" PRId64 " token %" PRId64
		" head %" PRId64,
		worst_at->ratio, worst_tensor, cpa_variant_info(worst->config.variant)->name,
		mesh, worst_at->batch, worst_at->token, worst_at->head);
	if (worst_at->dim >= 0)
		fprintf(out, " dim %" PRId64, worst_at->dim);
	fprintf(out, ",\n  in ");
	print_place(out, worst);
	fprintf(out, " (error %.3g, bound %.3g)\n", worst_at->error, worst_at->bound);
	if (!isnan(soft) || !isnan(probe)) {
		fputs("as a whole:", out);
		if (!isnan(soft))
			fprintf(out, " at most %.3g of what one rank's own error allows", soft);
		if (!isnan(probe))
			fprintf(out, "%s probes at most %.3g of their bound",
				isnan(soft) ? "" : ";", probe);
		fputc('\n', out);
	}
}

static void print_wrong(FILE *out, const struct cpa_result_list *list, const char *colour,
	const char *end)
{
	int n = 0;

	for (int i = 0; i < list->n; i++) {
		const struct cpa_result *result = &list->at[i];
		char mesh[48];

		if (result->verdict != CPA_VERDICT_WRONG || n++ >= MAX_LISTED)
			continue;
		if (n == 1)
			fprintf(out, "%swrong:%s\n", colour, end);
		cpa_result_mesh(result, mesh, sizeof mesh);
		fputs("  ", out);
		print_place(out, result);
		if (result->has_config)
			fprintf(out, ", %s %s", cpa_variant_info(result->config.variant)->name,
				mesh);
		fputs(":\n    ", out);
		cpa_print_wrapped(out, result->reason[0] ? result->reason : "(no reason given)",
			4, 4);
		if (result->reproduce) {
			fputs("    repeat: ", out);
			cpa_print_clean(out, result->reproduce);
			fputc('\n', out);
		}
	}
	if (n > MAX_LISTED)
		fprintf(out, "  and %d more (--verbose, --json)\n", n - MAX_LISTED);
}

static void print_cannot_tell(FILE *out, const struct cpa_result_list *list)
{
	int n = 0;

	for (int i = 0; i < list->n; i++) {
		const struct cpa_result *result = &list->at[i];

		if (result->verdict != CPA_VERDICT_CANNOT_TELL || n++ >= MAX_LISTED)
			continue;
		if (n == 1)
			fputs("cannot tell:\n", out);
		fputs("  ", out);
		print_place(out, result);
		fputs(":\n    ", out);
		cpa_print_wrapped(out, result->reason[0] ? result->reason : "(no reason given)",
			4, 4);
	}
	if (n > MAX_LISTED)
		fprintf(out, "  and %d more (--json)\n", n - MAX_LISTED);
}

/* Files follow each other, so that a change of name is another file. */
static void print_counts(FILE *out, const struct cpa_result_list *list,
	const struct cpa_colours *c)
{
	struct cpa_summary sum = cpa_result_summary(list);
	int ncalls = 0, nfiles = 0;

	for (int first = 0; first < list->n; first = cpa_result_call_end(list, first)) {
		const char *file = list->at[first].file;

		nfiles += file &&
			(first == 0 || !list->at[first - 1].file ||
				strcmp(list->at[first - 1].file, file) != 0);
		ncalls++;
	}
	fprintf(out, "%s%d right%s, %s%d wrong%s, %d unsupported, %d cannot tell",
		sum.right ? c->right : "", sum.right, sum.right ? c->end : "",
		sum.wrong ? c->wrong : "", sum.wrong, sum.wrong ? c->end : "", sum.unsupported,
		sum.cannot_tell);
	if (nfiles > 0)
		fprintf(out, " (%d call%s of %d file%s)", ncalls, ncalls == 1 ? "" : "s",
			nfiles, nfiles == 1 ? "" : "s");
	fputc('\n', out);
	if (sum.right == 0 && sum.wrong == 0)
		fputs("nothing was compared: this says nothing about right or wrong\n", out);
}

void cpa_result_print_summary(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	struct cpa_colours colours = cpa_colours_for(out);
	struct cpa_reasons reasons = { 0 };

	(void)options;
	for (int i = 0; i < list->n; i++)
		if (list->at[i].verdict == CPA_VERDICT_UNSUPPORTED)
			cpa_reasons_add(&reasons, &list->at[i]);
	if (reasons.n > 0) {
		fputs("unsupported:\n", out);
		cpa_reasons_print(out, &reasons, 0, CPA_MAX_REASONS);
	}
	print_cannot_tell(out, list);
	print_wrong(out, list, colours.wrong, colours.end);
	print_worst(out, list);
	print_counts(out, list, &colours);
}
