/*
 * report_figures.c - bytes, memory, balance and times; and all results.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report_page.h"

enum { MOST_VARIANTS = 32, MOST_BALANCED = 16, MOST_RANKS = 16 };

/* ---- bytes and memory of each variant ---- */

struct extent {
	double min, max;
};

struct amounts {
	const char *variant;
	int n;
	struct extent bytes, rank_bytes, messages, peak, imbalance;
};

static void widen(struct extent *e, double value)
{
	e->min = fmin(e->min, value);
	e->max = fmax(e->max, value);
}

static int gather_amounts(const struct cpa_report_run *run, struct amounts *groups)
{
	const struct extent none = {NAN, NAN};
	int n = 0;

	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported *r = &run->results[i];
		int g = 0;

		if (!r->variant || !r->peak_bytes.n)
			continue;
		while (g < n && strcmp(groups[g].variant, r->variant) != 0)
			g++;
		if (g == MOST_VARIANTS)
			continue;
		if (g == n)
			groups[n++] = (struct amounts){
				r->variant, 0, none, none, none, none, none};
		groups[g].n++;
		widen(&groups[g].bytes, cpa_series_sum(&r->bytes_sent));
		widen(&groups[g].rank_bytes, cpa_series_max(&r->bytes_sent));
		widen(&groups[g].messages, cpa_series_sum(&r->messages));
		widen(&groups[g].peak, cpa_series_max(&r->peak_bytes));
		widen(&groups[g].imbalance, cpa_series_imbalance(&r->work));
	}
	return n;
}

typedef const char *say_function(struct cpa_page *page, double value);

static struct cpa_cell say_extent(
	struct cpa_page *page, const struct extent *e, say_function *say)
{
	const char *min = say(page, e->min), *max = say(page, e->max);

	if (!min || !max || strcmp(min, max) == 0)
		return (struct cpa_cell){min, CPA_MARK_NONE};
	return (struct cpa_cell){
		cpa_report_format(page->arena, "%s to %s", min, max), CPA_MARK_NONE};
}

void cpa_report_amounts(struct cpa_page *page, const struct cpa_report_run *run)
{
	static const char *const heads[] = {"variant", "#results", "#bytes sent by all ranks",
		"#by the busiest rank", "#messages", "#peak memory, fullest rank",
		"#most work over mean"};
	struct amounts groups[MOST_VARIANTS];
	int n = gather_amounts(run, groups);

	if (n == 0)
		return;
	page->ops->heading(page, 3, "Bytes and memory");
	page->ops->table(page, heads, 7);
	for (int g = 0; g < n; g++) {
		const struct amounts *a = &groups[g];
		struct cpa_cell cells[7] = {{a->variant, CPA_MARK_NONE},
			{cpa_report_format(page->arena, "%d", a->n), CPA_MARK_NONE},
			say_extent(page, &a->bytes, cpa_say_bytes),
			say_extent(page, &a->rank_bytes, cpa_say_bytes),
			say_extent(page, &a->messages, cpa_say_number),
			say_extent(page, &a->peak, cpa_say_bytes),
			say_extent(page, &a->imbalance, cpa_say_number)};

		page->ops->row(page, cells, 7);
	}
	page->ops->end_table(page);
}

/* ---- balance ---- */

static int by_imbalance(const void *a, const void *b)
{
	const struct cpa_reported *const *x = a, *const *y = b;
	double p = cpa_series_imbalance(&(*x)->work), q = cpa_series_imbalance(&(*y)->work);

	if (p != q)
		return p > q ? -1 : 1;
	return (*x > *y) - (*x < *y);
}

static void write_balance(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_reported *const *at, int n)
{
	const char *heads[MOST_RANKS + 3] = {"what ran", "call", "#most over mean"};
	int nranks = 0;

	for (int i = 0; i < n; i++)
		nranks = at[i]->work.n > nranks ? at[i]->work.n : nranks;
	nranks = nranks > MOST_RANKS ? MOST_RANKS : nranks;
	for (int r = 0; r < nranks; r++)
		heads[r + 3] = cpa_report_format(page->arena, "#rank %d", r);
	page->ops->table(page, heads, nranks + 3);
	for (int i = 0; i < n; i++) {
		double mean = cpa_series_sum(&at[i]->work) / at[i]->work.n;
		struct cpa_cell cells[MOST_RANKS + 3] = {{at[i]->label, CPA_MARK_NONE},
			{cpa_reported_call(at[i], run, page->arena), CPA_MARK_NONE},
			{cpa_say_number(page, cpa_series_imbalance(&at[i]->work)),
				CPA_MARK_NONE}};

		for (int r = 0; r < nranks; r++)
			if (r < at[i]->work.n)
				cells[r + 3].text = cpa_say_share(page, at[i]->work.at[r] / mean);
		page->ops->row(page, cells, nranks + 3);
	}
	page->ops->end_table(page);
}

void cpa_report_balance(struct cpa_page *page, const struct cpa_report_run *run)
{
	const struct cpa_reported **at = cpa_arena_alloc(
		page->arena, ((size_t)run->n + 1) * sizeof *at);
	int n = 0;

	for (int i = 0; at && i < run->n; i++)
		if (!isnan(cpa_series_imbalance(&run->results[i].work)) &&
			run->results[i].work.n > 1)
			at[n++] = &run->results[i];
	if (n == 0)
		return;
	qsort(at, (size_t)n, sizeof *at, by_imbalance);
	page->ops->heading(page, 3, "Load balance");
	page->ops->paragraph(page, CPA_MARK_NONE,
		cpa_report_format(page->arena,
			"Work (visible pairs of query and key) of each rank over the mean of "
			"all, "
			"least balanced first: %d of %d results.",
			n < MOST_BALANCED ? n : MOST_BALANCED, n));
	write_balance(page, run, at, n < MOST_BALANCED ? n : MOST_BALANCED);
}

/* ---- times ---- */

static void write_time(struct cpa_page *page, const struct cpa_reported *r)
{
	struct cpa_cell cells[14] = {{r->label, CPA_MARK_NONE},
		{cpa_say_seconds(page, r->seconds.min), CPA_MARK_NONE},
		{cpa_say_seconds(page, r->seconds.median), CPA_MARK_NONE},
		{cpa_say_share(page, r->spread), CPA_MARK_NONE},
		{cpa_say_number(page, 1e-9 * r->flop_rate), CPA_MARK_NONE},
		{cpa_say_share(page, r->of_peak), CPA_MARK_NONE},
		{cpa_say_number(page, r->speedup), CPA_MARK_NONE}};

	for (int p = 0; p < CPA_REPORT_NPHASES; p++)
		cells[7 + p].text = cpa_say_seconds(page, r->phases[p]);
	cells[12].text = cpa_say_share(page, r->beyond);
	page->ops->row(page, cells, 13);
}

static void write_kernels(struct cpa_page *page, const struct cpa_report_run *run)
{
	static const char *const heads[] = {"kernel and problem", "#fastest", "#median",
		"#spread", "#G/s", "#of its limit", "dtype", "device"};

	page->ops->heading(page, 3, "Times of kernels");
	page->ops->table(page, heads, 8);
	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported *r = &run->results[i];
		struct cpa_cell cells[8] = {{r->label, cpa_mark_of(r->verdict)},
			{cpa_say_seconds(page, r->seconds.min), CPA_MARK_NONE},
			{cpa_say_seconds(page, r->seconds.median), CPA_MARK_NONE},
			{cpa_say_share(page, r->spread), CPA_MARK_NONE},
			{cpa_say_number(page, 1e-9 * r->rate), CPA_MARK_NONE},
			{cpa_say_share(page, r->of_limit), CPA_MARK_NONE},
			{r->dtype, CPA_MARK_NONE}, {r->device, CPA_MARK_NONE}};

		if (r->kernel)
			page->ops->row(page, cells, 8);
	}
	page->ops->end_table(page);
}

void cpa_report_times(struct cpa_page *page, const struct cpa_report_run *run)
{
	static const char *const heads[] = {"what ran", "#fastest", "#median", "#spread", "#GF/s",
		"#of the peak", "#one rank / this", "#attend", "#merge", "#copy", "#exchange",
		"#wait", "#beyond kernels"};
	int n = 0, nkernels = 0;

	for (int i = 0; i < run->n; i++) {
		nkernels += run->results[i].kernel != NULL;
		n += !run->results[i].kernel && run->results[i].seconds.n > 0;
	}
	if (nkernels)
		write_kernels(page, run);
	if (n == 0)
		return;
	page->ops->heading(page, 3, "Times");
	page->ops->paragraph(page, CPA_MARK_NONE,
		"Phases are of the fastest repetition. In one process the ranks take turns, and "
		"phases "
		"are sums over all of them.");
	page->ops->table(page, heads, 13);
	for (int i = 0; i < run->n; i++)
		if (!run->results[i].kernel && run->results[i].seconds.n > 0)
			write_time(page, &run->results[i]);
	page->ops->end_table(page);
}

/* ---- all results ---- */

static const char *say_ratio(struct cpa_page *page, const struct cpa_reported_error *e)
{
	return e->there ? cpa_say_number(page, e->ratio) : NULL;
}

static void write_result(struct cpa_page *page, const struct cpa_reported *r)
{
	double seconds = r->seconds.n > 0 ? r->seconds.median : r->run_seconds;
	struct cpa_cell cells[10] = {{r->label, CPA_MARK_NONE},
		{cpa_verdict_name(r->verdict), cpa_mark_of(r->verdict)},
		{say_ratio(page, &r->o), CPA_MARK_NONE},
		{say_ratio(page, &r->lse), CPA_MARK_NONE},
		{cpa_say_number(page, r->probe_ratio), CPA_MARK_NONE},
		{cpa_say_bytes(page, cpa_series_sum(&r->bytes_sent)), CPA_MARK_NONE},
		{cpa_say_number(page, cpa_series_sum(&r->messages)), CPA_MARK_NONE},
		{cpa_say_bytes(page, cpa_series_max(&r->peak_bytes)), CPA_MARK_NONE},
		{cpa_say_seconds(page, seconds), CPA_MARK_NONE},
		{r->reason			? r->reason
				: r->proved > 0 ? "proved"
						: NULL,
			CPA_MARK_NONE}};

	page->ops->row(page, cells, 10);
}

void cpa_report_all(
	struct cpa_page *page, const struct cpa_report_run *run, const struct cpa_calls *calls)
{
	static const char *const heads[] = {"what ran", "verdict", "#o / bound", "#lse / bound",
		"#probes / bound", "#bytes sent", "#messages", "#peak memory", "#time", "reason"};

	page->ops->heading(page, 2,
		cpa_report_format(page->arena, "All %d results of %s", run->n, run->path));
	for (int call = 0; call < calls->n; call++) {
		page->ops->fold(page, calls->names[call]);
		page->ops->table(page, heads, 10);
		for (int i = 0; i < run->n; i++)
			if (calls->of[i] == call)
				write_result(page, &run->results[i]);
		page->ops->end_table(page);
		page->ops->unfold(page);
	}
}
