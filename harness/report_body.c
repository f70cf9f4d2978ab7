/*
 * report_body.c - the content of a report in order: what was read, what changed, what is wrong,
 * then the figures of each run.
 */
#include <math.h>
#include <string.h>

#include "harness/report_page.h"

enum { MOST_WRONG = 200, MOST_FINDINGS = 4 };

/* ---- words ---- */

const char *cpa_mark_symbol(enum cpa_mark mark)
{
	static const char *const symbols[CPA_NMARKS] = {
		"", "\xe2\x9c\x93", "\xe2\x9c\x97", "\xe2\x8a\x98", "?"};

	return symbols[mark];
}

enum cpa_mark cpa_mark_of(enum cpa_verdict verdict)
{
	static const enum cpa_mark marks[] = {
		CPA_MARK_RIGHT, CPA_MARK_WRONG, CPA_MARK_REFUSED, CPA_MARK_UNKNOWN};

	return marks[verdict];
}

const char *cpa_say_number(struct cpa_page *page, double value)
{
	if (isnan(value))
		return NULL;
	if (isinf(value))
		return value > 0 ? "inf" : "-inf";
	return cpa_report_format(page->arena, "%.3g", value);
}

static const char *scaled(
	struct cpa_page *page, double value, double step, const char *const *units, int n)
{
	int i = 0;

	if (isnan(value))
		return NULL;
	while (i + 1 < n && fabs(value) >= step) {
		value /= step;
		i++;
	}
	return cpa_report_format(
		page->arena, fabs(value) >= 100 ? "%.0f %s" : "%.3g %s", value, units[i]);
}

const char *cpa_say_bytes(struct cpa_page *page, double nbytes)
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};

	return scaled(page, nbytes, 1000, units, 6);
}

const char *cpa_say_seconds(struct cpa_page *page, double seconds)
{
	static const char *const units[] = {"us", "ms", "s"};

	return scaled(page, 1e6 * seconds, 1000, units, 3);
}

const char *cpa_say_share(struct cpa_page *page, double share)
{
	return isnan(share) ? NULL : cpa_report_format(page->arena, "%.3g %%", 100 * share);
}

bool cpa_calls_find(
	const struct cpa_report_run *run, struct cpa_arena *arena, struct cpa_calls *calls)
{
	size_t n = (size_t)run->n + 1;

	*calls = (struct cpa_calls){cpa_arena_alloc(arena, n * sizeof *calls->names),
		cpa_arena_alloc(arena, n * sizeof *calls->of), 0};
	if (!calls->names || !calls->of)
		return false;
	for (int i = 0; i < run->n; i++) {
		const char *name = cpa_reported_call(&run->results[i], run, arena);
		int at = calls->n - 1;

		while (at >= 0 && strcmp(calls->names[at], name) != 0)
			at--;
		if (at < 0)
			calls->names[at = calls->n++] = name;
		calls->of[i] = at;
	}
	return true;
}

/* ---- what was read ---- */

static void write_runs(struct cpa_page *page, const struct cpa_report *report)
{
	static const char *const heads[] = {"file", "command", "#right", "#wrong", "#refused",
		"#cannot tell", "version", "machine"};

	page->ops->table(page, heads, 8);
	for (int i = 0; i < report->nruns; i++) {
		const struct cpa_report_run *run = &report->runs[i];
		struct cpa_cell cells[8] = {
			{run->path, CPA_MARK_NONE}, {run->command, CPA_MARK_NONE}};

		for (int v = 0; v < 4; v++) {
			cells[2 + v].text = cpa_report_format(page->arena, "%d", run->counts[v]);
			cells[2 + v].mark = run->counts[v] ? cpa_mark_of((enum cpa_verdict)v)
							   : CPA_MARK_NONE;
		}
		cells[6].text = run->version;
		cells[7].text = run->cpu && run->cores > 0
			? cpa_report_format(page->arena, "%s, %.0f cores", run->cpu, run->cores)
			: run->cpu;
		page->ops->row(page, cells, 8);
	}
	page->ops->end_table(page);
	page->ops->fold(page, "The commands that made them");
	for (int i = 0; i < report->nruns; i++)
		if (report->runs[i].command_line)
			page->ops->paragraph(page, CPA_MARK_NONE,
				cpa_report_format(page->arena, "%s: %s", report->runs[i].path,
					report->runs[i].command_line));
	page->ops->unfold(page);
}

static void write_gaps(struct cpa_page *page, const struct cpa_report *report)
{
	bool any = false;

	for (int i = 0; i < report->nruns; i++)
		for (int g = 0; g < report->runs[i].ngaps; g++) {
			const struct cpa_report_run *run = &report->runs[i];
			const struct cpa_gap *gap = &run->gaps[g];
			const char *where = gap->first < 0
				? ""
				: cpa_report_format(page->arena,
					  ", in %d places, first in result %d", gap->count,
					  gap->first);

			if (!any)
				page->ops->heading(page, 2, "What the files lack");
			any = true;
			page->ops->paragraph(page, CPA_MARK_UNKNOWN,
				cpa_report_format(page->arena, "%s: %s is %s%s", run->path,
					gap->path,
					gap->kind ? "not what was expected" : "missing", where));
		}
}

/* ---- what changed ---- */

static const char *say_change(struct cpa_page *page, const char *name, double ratio)
{
	return isnan(ratio) ? "" : cpa_report_format(page->arena, "%s x %.3g; ", name, ratio);
}

static void write_pair(
	struct cpa_page *page, const struct cpa_pair *p, const struct cpa_report_run *run)
{
	const struct cpa_reported *r = p->after ? p->after : p->before;
	struct cpa_cell cells[6];
	const char *end;

	cells[0].text = cpa_change_name(p->change);
	cells[0].mark = cpa_change_regresses(p->change) ? CPA_MARK_WRONG
		: p->change == CPA_CHANGE_FIXED		? CPA_MARK_RIGHT
							: CPA_MARK_NONE;
	cells[1] = (struct cpa_cell){cpa_reported_call(r, run, page->arena), CPA_MARK_NONE};
	cells[2] = (struct cpa_cell){r->label, CPA_MARK_NONE};
	cells[3] = (struct cpa_cell){p->before ? cpa_verdict_name(p->before->verdict) : NULL,
		p->before ? cpa_mark_of(p->before->verdict) : CPA_MARK_NONE};
	cells[4] = (struct cpa_cell){p->after ? cpa_verdict_name(p->after->verdict) : NULL,
		p->after ? cpa_mark_of(p->after->verdict) : CPA_MARK_NONE};
	end = cpa_report_format(page->arena, "%s%s%s%s%s",
		say_change(page, "error/bound", p->ratio),
		say_change(page, "bytes sent", p->bytes),
		say_change(page, "peak memory", p->memory),
		say_change(page, "median time", p->time),
		p->after && p->after->reason && p->change != CPA_CHANGE_NUMBERS ? p->after->reason
										: "");
	cells[5] = (struct cpa_cell){end[0] ? end : NULL, CPA_MARK_NONE};
	page->ops->row(page, cells, 6);
}

static void write_comparison(struct cpa_page *page, const struct cpa_comparison *c)
{
	static const char *const heads[] = {
		"change", "call", "what ran", "before", "after", "after over before; reason"};
	static const enum cpa_change order[] = {CPA_CHANGE_WRONG, CPA_CHANGE_VANISHED,
		CPA_CHANGE_FIXED, CPA_CHANGE_VERDICT, CPA_CHANGE_ADDED, CPA_CHANGE_NUMBERS};

	page->ops->heading(page, 2, "What changed");
	page->ops->paragraph(page, c->nregressions ? CPA_MARK_WRONG : CPA_MARK_RIGHT,
		cpa_report_format(page->arena,
			"%d regression%s, %d of %d results changed, from %s to %s.",
			c->nregressions, c->nregressions == 1 ? "" : "s", c->nchanges, c->n,
			c->before->path, c->after->path));
	page->ops->paragraph(page, CPA_MARK_NONE,
		"A regression is a result that is wrong and was not, or one that was right and "
		"is "
		"refused or gone. Errors over bounds count as changed beyond 1 %, bytes and "
		"memory at "
		"any change, times where neither median lies between the quartiles of the other; "
		"none of these is a regression.");
	if (c->nchanges == 0)
		return;
	page->ops->table(page, heads, 6);
	for (size_t o = 0; o < sizeof order / sizeof order[0]; o++)
		for (int i = 0; i < c->n; i++)
			if (c->pairs[i].change == order[o])
				write_pair(page, &c->pairs[i],
					c->pairs[i].after ? c->after : c->before);
	page->ops->end_table(page);
}

/* ---- what is wrong ---- */

static void write_findings(struct cpa_page *page, const struct cpa_reported *r)
{
	for (int f = 0; f < r->nfindings && f < MOST_FINDINGS; f++)
		page->ops->paragraph(page, CPA_MARK_NONE,
			cpa_report_format(page->arena,
				"%s, %s: %s explains %.3g %% of the error%s", r->label,
				r->findings[f].class ? r->findings[f].class : "?",
				r->findings[f].name ? r->findings[f].name
						    : "a fault without a name",
				100 * r->findings[f].explained,
				r->findings[f].ties > 0 ? ", and others explain it as well"
							: ""));
	if (r->nfindings > MOST_FINDINGS)
		page->ops->paragraph(page, CPA_MARK_NONE,
			cpa_report_format(page->arena, "%d findings more are in the JSON",
				r->nfindings - MOST_FINDINGS));
}

static void write_verdicts(struct cpa_page *page, const struct cpa_report_run *run,
	enum cpa_verdict verdict, const char *heading)
{
	static const char *const heads[] = {"call", "what ran", "#error / bound", "why"};
	int n = 0;

	if (run->counts[verdict] == 0)
		return;
	page->ops->heading(page, 3, heading);
	page->ops->table(page, heads, 4);
	for (int i = 0; i < run->n && n < MOST_WRONG; i++) {
		const struct cpa_reported *r = &run->results[i];
		struct cpa_cell cells[4] = {
			{cpa_reported_call(r, run, page->arena), CPA_MARK_NONE},
			{r->label, cpa_mark_of(verdict)},
			{cpa_say_number(page, cpa_reported_ratio(r)), CPA_MARK_NONE},
			{r->reason, CPA_MARK_NONE}};

		if (r->verdict == verdict) {
			page->ops->row(page, cells, 4);
			n++;
		}
	}
	page->ops->end_table(page);
	if (run->counts[verdict] > n)
		page->ops->paragraph(page, CPA_MARK_NONE,
			cpa_report_format(page->arena, "%d more are in the list of all results.",
				run->counts[verdict] - n));
}

static void write_wrong(struct cpa_page *page, const struct cpa_report_run *run)
{
	bool any = false;

	write_verdicts(page, run, CPA_VERDICT_WRONG, "Wrong");
	write_verdicts(page, run, CPA_VERDICT_CANNOT_TELL, "Cannot be told");
	for (int i = 0; i < run->n; i++) {
		if (run->results[i].nfindings > 0 && !any)
			page->ops->heading(page, 3, "Faults that explain it");
		if (run->results[i].nfindings > 0) {
			any = true;
			page->ops->paragraph(page, CPA_MARK_WRONG,
				cpa_reported_call(&run->results[i], run, page->arena));
		}
		write_findings(page, &run->results[i]);
	}
}

/* ---- the whole ---- */

/* That of this name, where there is one; behind the name comes the number of the run. */
static void write_plot(struct cpa_page *page, const struct cpa_plots *plots, const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; i < plots->n; i++)
		if (strncmp(plots->at[i].name, name, n) == 0 &&
			(plots->at[i].name[n] == '\0' || plots->at[i].name[n] == '_'))
			page->ops->plot(page, &plots->at[i]);
}

static void write_figures(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_plots *plots, const struct cpa_calls *calls)
{
	if (cpa_report_faults(page, run))
		return;
	cpa_report_parts(page, run, calls);
	cpa_report_matrix(page, run, calls, -1);
	for (int i = 0; calls->n > 1 && i < calls->n; i++)
		cpa_report_matrix(page, run, calls, i);
	cpa_report_errors(page, run, calls);
	write_plot(page, plots, "error");
	cpa_report_amounts(page, run);
	write_plot(page, plots, "bytes");
	cpa_report_balance(page, run);
	write_plot(page, plots, "balance");
	cpa_report_times(page, run);
	write_plot(page, plots, "time");
	write_plot(page, plots, "scaling");
	cpa_report_shape(page, run);
	if (plots->why[0])
		page->ops->paragraph(page, CPA_MARK_NONE, plots->why);
}

void cpa_report_write(struct cpa_page *page, const struct cpa_report *report)
{
	struct cpa_calls calls;

	page->ops->heading(page, 1, "cpattn report");
	write_runs(page, report);
	write_gaps(page, report);
	if (report->comparison)
		write_comparison(page, report->comparison);
	for (int i = 0; i < report->nruns; i++) {
		const struct cpa_report_run *run = &report->runs[i];

		/* Of two runs that are compared, the first is only what the other is held
		 * against. */
		if (report->comparison && i == 0)
			continue;
		if (!cpa_calls_find(run, page->arena, &calls))
			return;
		page->ops->heading(page, 2,
			cpa_report_format(page->arena, "%s, %s",
				run->command ? run->command : "results", run->path));
		if (run->fault)
			page->ops->paragraph(page, CPA_MARK_UNKNOWN,
				cpa_report_format(page->arena,
					"The fault %s was planted in this run, on purpose.",
					run->fault));
		write_wrong(page, run);
		write_figures(page, run, &report->plots[i], &calls);
	}
	cpa_report_published(page, report);
	for (int i = 0; i < report->nruns; i++)
		if (cpa_calls_find(&report->runs[i], page->arena, &calls))
			cpa_report_all(page, &report->runs[i], &calls);
}
