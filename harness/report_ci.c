/*
 * report_ci.c - what is wrong, for a CI: lines that it shows beside a change, and JUnit.
 */
#include <math.h>
#include <string.h>

#include "harness/report.h"
#include "harness/result_formats.h"

/* Of two runs that are compared, only the second is judged. */
static bool is_judged(const struct cpa_report *report, int run)
{
	return !report->comparison || run == report->nruns - 1;
}

/* ---- annotations ---- */

/* Of a value between commas, colons and commas are escaped too. */
static void put_escaped(FILE *out, const char *text, bool value)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '%' || c == '\r' || c == '\n' || (value && (c == ':' || c == ',')))
			fprintf(out, "%%%02X", c);
		else
			fputc(c < 0x20 || c == 0x7f ? ' ' : c, out);
	}
}

static void put_annotation(FILE *out, const char *level, const char *file, const char *title,
	const struct cpa_reported *r, const char *text)
{
	fprintf(out, "::%s file=", level);
	put_escaped(out, file, true);
	fputs(",title=", out);
	put_escaped(out, title, true);
	put_escaped(out, ": ", true);
	put_escaped(out, r->label, true);
	fputs("::", out);
	if (r->call) {
		put_escaped(out, r->call, false);
		fputs(": ", out);
	}
	put_escaped(out, text, false);
	fputc('\n', out);
}

static void annotate_run(FILE *out, const struct cpa_report_run *run)
{
	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported *r = &run->results[i];
		bool wrong = r->verdict == CPA_VERDICT_WRONG;

		if (!wrong && r->verdict != CPA_VERDICT_CANNOT_TELL)
			continue;
		put_annotation(out, wrong ? "error" : "warning", r->file ? r->file : run->path,
			wrong ? "wrong" : "cannot tell", r,
			r->reason ? r->reason : "no reason is given");
	}
}

static void annotate_regressions(FILE *out, const struct cpa_comparison *c)
{
	for (int i = 0; i < c->n; i++) {
		const struct cpa_pair *p = &c->pairs[i];
		const struct cpa_reported *r = p->after ? p->after : p->before;

		/* What is wrong has a line already. */
		if (p->change != CPA_CHANGE_VANISHED)
			continue;
		put_annotation(out, "error", r->file ? r->file : c->after->path,
			"regression, vanished", r,
			p->after && p->after->reason
				? p->after->reason
				: "was in the run before, and is not in this one");
	}
}

void cpa_report_annotations(FILE *out, const struct cpa_report *report)
{
	for (int i = 0; i < report->nruns; i++)
		if (is_judged(report, i))
			annotate_run(out, &report->runs[i]);
	if (report->comparison)
		annotate_regressions(out, report->comparison);
}

/* ---- JUnit ---- */

static void put_case(FILE *out, const char *call, const struct cpa_reported *r,
	const char *element, const char *reason)
{
	double seconds = r->seconds.n > 0 ? r->seconds.median : r->run_seconds;

	fputs("    <testcase classname=\"", out);
	cpa_xml_text(out, call);
	fputs("\" name=\"", out);
	cpa_xml_text(out, r->label);
	fprintf(out, "\" time=\"%.6f\"", isfinite(seconds) ? seconds : 0.0);
	if (!element) {
		fputs("/>\n", out);
		return;
	}
	fprintf(out, ">\n      <%s message=\"", element);
	cpa_xml_text(out, reason ? reason : "no reason is given");
	fputs("\"/>\n    </testcase>\n", out);
}

static void put_run(FILE *out, const struct cpa_report *report, const struct cpa_report_run *run)
{
	static const char *const elements[] = {NULL, "failure", "skipped", "error"};

	fputs("  <testsuite name=\"", out);
	cpa_xml_text(out, run->path);
	fprintf(out, "\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\">\n", run->n,
		run->counts[CPA_VERDICT_WRONG], run->counts[CPA_VERDICT_CANNOT_TELL],
		run->counts[CPA_VERDICT_UNSUPPORTED]);
	for (int i = 0; i < run->n; i++)
		put_case(out, cpa_reported_call(&run->results[i], run, report->arena),
			&run->results[i], elements[run->results[i].verdict],
			run->results[i].reason);
	fputs("  </testsuite>\n", out);
}

/* What vanished has no result of its own to fail. */
static void put_vanished(FILE *out, const struct cpa_report *report)
{
	const struct cpa_comparison *c = report->comparison;
	int n = 0;

	for (int i = 0; i < c->n; i++)
		n += c->pairs[i].change == CPA_CHANGE_VANISHED;
	fprintf(out, "  <testsuite name=\"vanished\" tests=\"%d\" failures=\"%d\">\n", n, n);
	for (int i = 0; i < c->n; i++)
		if (c->pairs[i].change == CPA_CHANGE_VANISHED)
			put_case(out,
				cpa_reported_call(c->pairs[i].before, c->before, report->arena),
				c->pairs[i].before, "failure",
				"was right or was there before, and is not now");
	fputs("  </testsuite>\n", out);
}

void cpa_report_junit(FILE *out, const struct cpa_report *report)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cpattn report\">\n",
		out);
	for (int i = 0; i < report->nruns; i++)
		if (is_judged(report, i))
			put_run(out, report, &report->runs[i]);
	if (report->comparison)
		put_vanished(out, report);
	fputs("</testsuites>\n", out);
}
