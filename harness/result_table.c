/*
 * result_table.c - the table for people: a line for each call and variant, or for each
 * configuration.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "harness/guidance.h"
#include "harness/result_parts.h"
#include "harness/text.h"

enum { MAX_WORLD = 4096, NAME_WIDTH = 18 };

/* One call and variant. */
struct row {
	int verdicts[4];
	struct cpa_reasons refused;
	const struct cpa_result *worst;
	unsigned char worlds[MAX_WORLD + 1];
};

static void gather(struct row *row, const struct cpa_result *result)
{
	const char *tensor;
	const struct cpa_deviation *at, *before;
	double ratio = cpa_result_worst(result, &tensor, &at);

	row->verdicts[result->verdict]++;
	if (result->verdict == CPA_VERDICT_UNSUPPORTED)
		cpa_reasons_add(&row->refused, result);
	if (result->W >= 1 && result->W <= MAX_WORLD)
		row->worlds[result->W] = 1;
	if (!isnan(ratio) &&
		(!row->worst || ratio > cpa_result_worst(row->worst, &tensor, &before)))
		row->worst = result;
}

/* "2-8,12" */
static void print_worlds(const unsigned char *worlds, char *text, size_t size)
{
	struct cpa_text w = cpa_text_begin(text, size);

	for (int first = 1; first <= MAX_WORLD; first++) {
		int last = first;

		if (!worlds[first])
			continue;
		while (last < MAX_WORLD && worlds[last + 1])
			last++;
		cpa_text_put(&w, "%s%d", w.used ? "," : "", first);
		if (last > first)
			cpa_text_put(&w, "%s%d", last == first + 1 ? "," : "-", last);
		first = last;
	}
}

/* "o 0.021" and "1x4x1 p2p b0 t17 h2 d5" */
static void describe_worst(const struct cpa_result *result, char *ratio, size_t ratio_size,
	char *place, size_t place_size)
{
	const struct cpa_deviation *at;
	struct cpa_text w;
	const char *tensor;
	double worst = result ? cpa_result_worst(result, &tensor, &at) : NAN;

	snprintf(ratio, ratio_size, "-");
	w = cpa_text_begin(place, place_size);
	if (isnan(worst))
		return;
	snprintf(ratio, ratio_size, "%s %.3g", tensor, worst);
	cpa_result_mesh(result, place, place_size);
	w.used = strlen(place);
	cpa_text_put(&w, " b%" PRId64 " t%" PRId64 " h%" PRId64, at->batch, at->token,
		at->head);
	if (at->dim >= 0)
		cpa_text_put(&w, " d%" PRId64, at->dim);
}

static void print_row(FILE *out, const char *name, const struct row *row,
	const struct cpa_colours *c)
{
	char worlds[160], ratio[24], place[64];
	int right = row->verdicts[CPA_VERDICT_RIGHT], wrong = row->verdicts[CPA_VERDICT_WRONG];

	print_worlds(row->worlds, worlds, sizeof worlds);
	if (strlen(worlds) > 9)
		memcpy(worlds + 6, "...", 4);
	describe_worst(row->worst, ratio, sizeof ratio, place, sizeof place);
	fprintf(out, "  %-*s %-9s %s%6d%s %s%6d%s %8d  %-*s%.40s\n", NAME_WIDTH, name, worlds,
		right ? c->right : "", right, right ? c->end : "", wrong ? c->wrong : "", wrong,
		wrong ? c->end : "", row->verdicts[CPA_VERDICT_UNSUPPORTED], place[0] ? 12 : 0, ratio, place);
}

static void print_configuration(FILE *out, const struct cpa_result *result,
	const struct cpa_colours *c)
{
	char mesh[48], ratio[24], place[64], seconds[24] = "";
	const char *colour = result->verdict == CPA_VERDICT_RIGHT ? c->right
		: result->verdict == CPA_VERDICT_WRONG            ? c->wrong
								  : "";

	cpa_result_mesh(result, mesh, sizeof mesh);
	describe_worst(result, ratio, sizeof ratio, place, sizeof place);
	if (!isnan(result->seconds))
		snprintf(seconds, sizeof seconds, "%.3f s", result->seconds);
	fprintf(out, "    %-18s %s%-11s%s", mesh, colour, cpa_verdict_name(result->verdict),
		*colour ? c->end : "");
	if (result->verdict == CPA_VERDICT_RIGHT || result->verdict == CPA_VERDICT_WRONG) {
		const char *at = strchr(place, 'b');

		fprintf(out, " %-11s %-30.30s %10s\n", ratio, at ? at : "", seconds);
	} else {
		fputc(' ', out);
	}
	if (result->verdict == CPA_VERDICT_WRONG)
		fputs("      ", out);
	if (result->verdict != CPA_VERDICT_RIGHT || result->reason[0])
		cpa_print_wrapped(out, result->reason,
			result->verdict == CPA_VERDICT_WRONG ? 6 : 35,
			result->verdict == CPA_VERDICT_WRONG ? 6 : 35);
}

/* All of a call that ran as a variant; nothing when it did not. */
static void print_variant(FILE *out, const struct cpa_result_list *list, int first, int end,
	enum cpa_variant variant, bool verbose)
{
	struct cpa_colours colours = cpa_colours_for(out);
	struct row row = { 0 };
	int n = 0;

	for (int i = first; i < end; i++)
		if (list->at[i].has_config && list->at[i].config.variant == variant) {
			gather(&row, &list->at[i]);
			n++;
		}
	if (n == 0)
		return;
	print_row(out, cpa_variant_info(variant)->name, &row, &colours);
	if (!verbose && row.refused.n > 0)
		cpa_reasons_print(out, &row.refused, 6, 1);
	for (int i = first; i < end && verbose; i++)
		if (list->at[i].has_config && list->at[i].config.variant == variant)
			print_configuration(out, &list->at[i], &colours);
}

static void print_call(FILE *out, const struct cpa_result_list *list, int first, int end,
	bool verbose)
{
	const struct cpa_result *result = &list->at[first];
	bool any = false;
	char text[512];

	if (result->file)
		cpa_print_clean(out, result->file);
	if (result->file && result->call)
		fputc(' ', out);
	if (result->call)
		cpa_print_clean(out, result->call);
	fputs(result->file || result->call ? "\n" : "", out);
	if (result->problem) {
		cpa_problem_print(result->problem, text, sizeof text);
		fprintf(out, "  %s\n", text);
	}
	cpa_guidance_describe(&result->guidance, text, sizeof text);
	if (text[0])
		fprintf(out, "  %s\n", text);
	for (int i = first; i < end; i++) {
		any |= list->at[i].has_config;
		if (list->at[i].has_config)
			continue;
		fprintf(out, "  %s: ",
			list->at[i].verdict == CPA_VERDICT_CANNOT_TELL
				? "cannot tell"
				: cpa_verdict_name(list->at[i].verdict));
		cpa_print_wrapped(out, list->at[i].reason, 15, 4);
	}
	if (any)
		fprintf(out, "  %-*s %-9s %6s %6s %8s  %-11s %s\n", NAME_WIDTH, "variant",
			"ranks", "right", "wrong", "refused", "error/bound", "worst at");
	for (int v = 0; v < CPA_NVARIANTS; v++)
		print_variant(out, list, first, end, (enum cpa_variant)v, verbose);
	fputc('\n', out);
}

void cpa_result_table(FILE *out, const struct cpa_result_list *list,
	const struct cpa_options *options)
{
	if (out == stdout && cpa_result_takes_stdout(options))
		return;
	for (int first = 0; first < list->n; first = cpa_result_call_end(list, first))
		print_call(out, list, first, cpa_result_call_end(list, first),
			options->verbose);
	cpa_result_print_summary(out, list, options);
}
