/*
 * measure_table.c - two tables a problem: how fast, and where the time and the bytes go.
 */
#include "harness/measure_table.h"

#include <math.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/result_parts.h"

void cpa_print_scaled(double value, char *text)
{
	static const char prefixes[] = " kMGT";
	int prefix = 0;
	if (!isfinite(value)) {
		snprintf(text, 16, "-");
		return;
	}
	while (fabs(value) >= 999.5 && prefix < 4) {
		value /= 1000;
		prefix++;
	}
	snprintf(text, 16, "%.*f%s%c",
		prefix == 0 || value >= 99.95 ? 0
			: value >= 9.995      ? 1
					      : 2,
		value, prefix ? " " : "", prefix ? prefixes[prefix] : '\0');
}

/* "-" for what does not exist. */
static void put(FILE *out, int width, int digits, double value)
{
	if (isfinite(value))
		fprintf(out, " %*.*f", width, digits, value);
	else
		fprintf(out, " %*s", width, "-");
}

/* Milliseconds in five digits. */
static void put_ms(FILE *out, int width, double seconds)
{
	double ms = 1e3 * seconds;
	put(out, width, ms < 99.995 ? 3 : ms < 9999.5 ? 1 : 0, ms);
}

static void put_name(FILE *out, const struct cpa_result *r)
{
	char mesh[64];
	cpa_result_mesh(r, mesh, sizeof mesh);
	fprintf(out, "  %-16s %-16s", cpa_variant_info(r->config.variant)->name, mesh);
}

void cpa_measure_print_head(FILE *out, const struct cpa_measure_session *session)
{
	const struct cpa_measure_settings *s = &session->settings;
	fprintf(out, "# cpattn bench %s, device %s, comm %s: ", cpa_version(),
		s->device->ops->name, s->comm);
	if (session->nprocesses == 1)
		fprintf(out, "ranks take turns in one process, %d thread%s\n", s->threads,
			s->threads == 1 ? "" : "s");
	else
		fprintf(out, "%d processes of a rank, %d thread%s each\n", session->nprocesses,
			s->threads, s->threads == 1 ? "" : "s");
	fprintf(out,
		"# %d timed run%s of each after %d, in turn; what is right was judged before\n",
		s->repeat, s->repeat == 1 ? "" : "s", s->warmup + 1);
}

static const struct cpa_measured *first_measured(
	const struct cpa_result_list *list, int first, int end)
{
	for (int i = first; i < end; i++)
		if (list->at[i].measured)
			return list->at[i].measured;
	return NULL;
}

static void put_times(FILE *out, const struct cpa_statistics *s)
{
	put_ms(out, 9, s->min);
	put_ms(out, 9, s->median);
	put(out, 7, 1, 100 * cpa_statistics_spread(s));
}

static void print_speed(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	const struct cpa_measured *any = first_measured(list, first, end);
	char one[40];
	fprintf(out, "#\n# %-16s %-15s %9s %9s %7s %8s %7s %8s\n", "variant", "mesh", "fastest",
		"median", "spread", "rate", "of peak", "one rank");
	fprintf(out, "# %-16s %-15s %9s %9s %7s %8s %7s %8s\n", "", "N x R x U", "ms", "ms", "%",
		"GF/s", "%", "over it");
	snprintf(one, sizeof one, "1x1x1, %d thread%s", any->one_rank_threads,
		any->one_rank_threads == 1 ? "" : "s");
	fprintf(out, "  %-16s %-16s", "one rank", one);
	put_times(out, &any->one_rank);
	put(out, 8, 1, 1e-9 * any->flop / any->one_rank.min);
	put(out, 7, 1, 100 * any->flop / any->one_rank.min / any->limits.flop_per_second);
	put(out, 8, 3, 1);
	fputc('\n', out);
	for (int i = first; i < end; i++) {
		const struct cpa_measured *m = list->at[i].measured;
		if (!m)
			continue;
		put_name(out, &list->at[i]);
		put_times(out, &m->seconds);
		put(out, 8, 1, 1e-9 * cpa_measured_flop_rate(m));
		put(out, 7, 1, 100 * cpa_measured_flop_rate(m) / m->limits.flop_per_second);
		put(out, 8, 3, cpa_measured_speedup(m));
		fputc('\n', out);
	}
}

static void put_bytes(FILE *out, int width, double bytes)
{
	char text[16];
	cpa_print_scaled(bytes, text);
	fprintf(out, " %*s", width, text);
}

static void print_split(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	fprintf(out, "#\n# %-16s %-15s %7s %7s %7s %8s %7s %7s\n", "of the fastest", "mesh",
		"attend", "merge", "copy", "exchange", "wait", "beyond");
	fprintf(out, "# %-16s %-15s %7s %7s %7s %8s %7s %7s\n", "", "", "ms", "ms", "ms", "ms",
		"ms", "%");
	for (int i = first; i < end; i++) {
		const struct cpa_measured *m = list->at[i].measured;
		if (!m)
			continue;
		put_name(out, &list->at[i]);
		for (int p = 0; p < CPA_NPHASES; p++)
			put_ms(out, p == CPA_PHASE_EXCHANGE ? 8 : 7, m->phases.seconds[p]);
		put(out, 7, 2, 100 * cpa_measured_beyond(m));
		fputc('\n', out);
	}
}

static void print_bytes(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	fprintf(out, "#\n# %-16s %-15s %9s %9s %9s %9s %9s\n", "messages alone", "mesh", "sent",
		"fastest", "rate", "of copy", "memory");
	fprintf(out, "# %-16s %-15s %9s %9s %9s %9s %9s\n", "", "", "bytes", "ms", "GB/s", "%",
		"bytes");
	for (int i = first; i < end; i++) {
		const struct cpa_measured *m = list->at[i].measured;
		int64_t peak = 0;
		if (!m)
			continue;
		for (int r = 0; r < list->at[i].W; r++)
			if (list->at[i].counts[r].peak_bytes > peak)
				peak = list->at[i].counts[r].peak_bytes;
		put_name(out, &list->at[i]);
		put_bytes(out, 9, m->bytes);
		put_ms(out, 9, m->exchange.min);
		put(out, 9, 2, 1e-9 * cpa_measured_exchange_rate(m));
		put(out, 9, 1,
			200 * cpa_measured_exchange_rate(m) / m->limits.copy_bytes_per_second);
		put_bytes(out, 9, (double)peak);
		fputc('\n', out);
	}
}

static void print_refusals(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	struct cpa_reasons reasons = {.n = 0};
	for (int i = first; i < end; i++)
		if (list->at[i].verdict != CPA_VERDICT_RIGHT)
			cpa_reasons_add(&reasons, &list->at[i]);
	if (reasons.n == 0)
		return;
	fputs("#\n# not timed:\n", out);
	cpa_reasons_print(out, &reasons, 2, CPA_MAX_REASONS);
}

void cpa_measure_print_problem(FILE *out, const struct cpa_result_list *list, int first, int end)
{
	const struct cpa_result *r = &list->at[first];
	const struct cpa_measured *any = first_measured(list, first, end);
	char text[512], flop[16];
	fputs("#\n# ", out);
	if (r->file) {
		cpa_print_clean(out, r->file);
		fputc(' ', out);
		cpa_print_clean(out, r->call ? r->call : "");
		fputs("\n# ", out);
	}
	if (r->problem) {
		cpa_problem_print(r->problem, text, sizeof text);
		fprintf(out, "%s (lse %s)\n", text,
			r->problem->lse ? "is an output" : "is not an output");
	} else {
		fputs("no problem\n", out);
	}
	if (any) {
		cpa_print_scaled(any->flop, flop);
		fprintf(out,
			"# useful: %sflop; limits, best of the same minutes: %.1f GF/s "
			"multiply-add, "
			"%.1f GB/s copied\n",
			flop, 1e-9 * any->limits.flop_per_second,
			1e-9 * any->limits.copy_bytes_per_second);
		print_speed(out, list, first, end);
		print_split(out, list, first, end);
		print_bytes(out, list, first, end);
	}
	print_refusals(out, list, first, end);
}
