/*
 * report_faults.c - the table of planted faults: how many were seen, found and named.
 */
#include <math.h>

#include "harness/report_page.h"

static const char *say_count(struct cpa_page *page, double n)
{
	return isnan(n) ? NULL : cpa_report_format(page->arena, "%.0f", n);
}

static struct cpa_cell count(struct cpa_page *page, double n, enum cpa_mark if_any)
{
	return (struct cpa_cell){say_count(page, n), n > 0 ? if_any : CPA_MARK_NONE};
}

static double sum_of(const struct cpa_report_run *run, size_t offset)
{
	double sum = 0.0;

	for (int i = 0; i < run->n; i++)
		if (run->results[i].fault && run->results[i].fault->class)
			sum += fmax(0.0, *(const double *)((const char *)run->results[i].fault +
						 offset));
	return sum;
}

static void write_sums(struct cpa_page *page, const struct cpa_report_run *run)
{
	double found = sum_of(run, offsetof(struct cpa_reported_fault, found)),
	       named = sum_of(run, offsetof(struct cpa_reported_fault, named)),
	       tied = sum_of(run, offsetof(struct cpa_reported_fault, tied)),
	       other = sum_of(run, offsetof(struct cpa_reported_fault, other));

	page->ops->paragraph(page, other > 0 ? CPA_MARK_WRONG : CPA_MARK_RIGHT,
		cpa_report_format(page->arena,
			"Of %.0f runs that check found wrong, diagnose named the fault in %.0f and "
			"listed it with others that explain as much in %.0f; it named another in %.0f.",
			found, named, tied, other));
	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported_fault *f = run->results[i].fault;

		if (f && !f->class)
			page->ops->paragraph(page,
				f->seen + f->found > 0 ? CPA_MARK_WRONG : CPA_MARK_RIGHT,
				cpa_report_format(page->arena,
					"Of %.0f runs without a fault, %.0f were called wrong.",
					f->planted, fmax(f->seen, f->found)));
	}
}

static void write_counts(struct cpa_page *page, const struct cpa_report_run *run)
{
	static const char *const heads[] = {"class", "fault", "#planted", "#seen by verify",
		"#found by check", "#named", "#tied", "#named otherwise", "#not named"};

	page->ops->table(page, heads, 9);
	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported_fault *f = run->results[i].fault;

		if (!f || !f->class)
			continue;
		struct cpa_cell cells[9] = {{f->class, CPA_MARK_NONE},
			{f->name, cpa_mark_of(run->results[i].verdict)},
			count(page, f->planted, CPA_MARK_NONE),
			count(page, f->seen, CPA_MARK_NONE), count(page, f->found, CPA_MARK_NONE),
			count(page, f->named, CPA_MARK_NONE), count(page, f->tied, CPA_MARK_NONE),
			count(page, f->other, CPA_MARK_WRONG),
			count(page, f->missed, CPA_MARK_UNKNOWN)};

		page->ops->row(page, cells, 9);
	}
	page->ops->end_table(page);
}

static void write_variants(struct cpa_page *page, const struct cpa_report_run *run)
{
	const char *heads[2 + CPA_REPORT_NVARIANTS] = {"class", "fault"};

	for (int v = 0; v < CPA_REPORT_NVARIANTS; v++)
		heads[2 + v] = cpa_report_format(
			page->arena, "#%s", cpa_variant_info((enum cpa_variant)v)->name);
	page->ops->fold(page, "By variant: named or tied, of those found, on 2 to 8 ranks");
	page->ops->table(page, heads, 2 + CPA_REPORT_NVARIANTS);
	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported_fault *f = run->results[i].fault;

		if (!f || !f->class || !(f->found > 0))
			continue;
		struct cpa_cell cells[2 + CPA_REPORT_NVARIANTS] = {
			{f->class, CPA_MARK_NONE}, {f->name, CPA_MARK_NONE}};

		for (int v = 0; v < CPA_REPORT_NVARIANTS; v++)
			if (f->of[v][0] > 0)
				cells[2 + v].text = cpa_report_format(page->arena, "%.0f of %.0f",
					f->of[v][1], f->of[v][0]);
		page->ops->row(page, cells, 2 + CPA_REPORT_NVARIANTS);
	}
	page->ops->end_table(page);
	page->ops->unfold(page);
}

bool cpa_report_faults(struct cpa_page *page, const struct cpa_report_run *run)
{
	int n = 0;

	for (int i = 0; i < run->n; i++)
		n += run->results[i].fault != NULL;
	if (n == 0)
		return false;
	page->ops->heading(page, 3, "Planted faults");
	write_sums(page, run);
	page->ops->paragraph(page, CPA_MARK_NONE,
		"Faults of transport return nothing, and so there is nothing to be found; a fault that "
		"these inputs do not show is not seen. Named and tied findings have the right rank, "
		"hop and block where the fault has one.");
	write_counts(page, run);
	write_variants(page, run);
	return true;
}
