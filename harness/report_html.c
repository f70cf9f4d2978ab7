/*
 * report_html.c - a report as one page that needs nothing else: styles and drawings are inside.
 */
#include <string.h>

#include "harness/report_page.h"
#include "harness/result_formats.h"

enum { SHORT = 27 };

static const char *const classes[CPA_NMARKS] = {NULL, "right", "wrong", "refused", "unknown"};

/* Wide tables and drawings scroll by themselves, so that the page never does. */
static const char *const head =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
	"<title>cpattn report</title>\n<style>\n"
	"body{font:15px/1.45 system-ui,\"DejaVu Sans\",sans-serif;color:#1b1f24;background:#fff;"
	"margin:0 auto;padding:0 16px 48px;max-width:1200px;overflow-wrap:anywhere}\n"
	"h1{font-size:26px;margin:24px 0 12px}\n"
	"h2{font-size:20px;margin:36px 0 10px;border-bottom:2px solid "
	"#d0d7de;padding-bottom:4px}\n"
	"h3{font-size:16px;margin:24px 0 8px}\np{margin:6px 0}\n"
	".wide{overflow-x:auto;margin:8px 0 14px}\n"
	"table{border-collapse:collapse;font-size:13px;overflow-wrap:normal}\n"
	"th,td{border:1px solid #d0d7de;padding:3px 6px;text-align:left;vertical-align:top}\n"
	"th{background:#f3f5f7;font-weight:600;white-space:nowrap}\n"
	"td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
	"td.s{white-space:nowrap}td:first-child{font-weight:600}\ntd{max-width:34em}\n"
	".right{color:#0b5d2c;background:#e6f4ea}\n"
	".wrong{color:#8c0a14;background:#fde8e8;font-weight:700}\n"
	".refused{color:#4d5560;background:#eef0f2}\n.unknown{color:#6b4a00;background:#fdf3d8}\n"
	"p.right,p.wrong,p.refused,p.unknown{padding:4px 8px;border-left:4px solid}\n"
	"details{border:1px solid #d0d7de;border-radius:4px;padding:4px 10px;margin:8px 0}\n"
	"summary{cursor:pointer;font-weight:600;padding:4px 0}\n"
	"figure{margin:14px 0}\nfigcaption{font-size:13px;color:#3d444d}\n"
	"figure svg{width:100%;min-width:520px;max-width:860px;height:auto}\n"
	"@media(max-width:600px){body{padding:0 10px 32px;font-size:14px}h1{font-size:22px}"
	"h2{font-size:18px}td{max-width:20em}}\n"
	"@media print{details{border:0}}\n</style>\n</head>\n<body>\n";

static void put_mark(struct cpa_page *page, enum cpa_mark mark)
{
	if (mark != CPA_MARK_NONE)
		fprintf(page->out, "%s ", cpa_mark_symbol(mark));
}

static void heading(struct cpa_page *page, int level, const char *text)
{
	fprintf(page->out, "<h%d>", level);
	cpa_xml_text(page->out, text);
	fprintf(page->out, "</h%d>\n", level);
}

static void paragraph(struct cpa_page *page, enum cpa_mark mark, const char *text)
{
	if (mark == CPA_MARK_NONE)
		fputs("<p>", page->out);
	else
		fprintf(page->out, "<p class=\"%s\">", classes[mark]);
	put_mark(page, mark);
	cpa_xml_text(page->out, text);
	fputs("</p>\n", page->out);
}

static void fold(struct cpa_page *page, const char *summary)
{
	fputs("<details>\n<summary>", page->out);
	cpa_xml_text(page->out, summary);
	fputs("</summary>\n", page->out);
}

static void unfold(struct cpa_page *page)
{
	fputs("</details>\n", page->out);
}

static void table(struct cpa_page *page, const char *const *heads, int n)
{
	page->heads = heads;
	page->ncolumns = n;
	fputs("<div class=\"wide\"><table>\n<thead><tr>", page->out);
	for (int i = 0; i < n; i++) {
		fputs(heads[i][0] == '#' ? "<th class=\"n\">" : "<th>", page->out);
		cpa_xml_text(page->out, heads[i] + (heads[i][0] == '#'));
		fputs("</th>", page->out);
	}
	fputs("</tr></thead>\n<tbody>\n", page->out);
}

static void row(struct cpa_page *page, const struct cpa_cell *cells, int n)
{
	fputs("<tr>", page->out);
	for (int i = 0; i < n; i++) {
		const char *layout = page->heads[i][0] == '#' ? "n" : NULL;
		const char *class = classes[cells[i].mark];

		/* What is short stays on one line. */
		if (!layout && (!cells[i].text || strlen(cells[i].text) < SHORT))
			layout = "s";
		if (layout || class)
			fprintf(page->out, "<td class=\"%s%s%s\">", layout ? layout : "",
				layout && class ? " " : "", class ? class : "");
		else
			fputs("<td>", page->out);
		put_mark(page, cells[i].mark);
		cpa_xml_text(page->out,
			cells[i].text				 ? cells[i].text
				: cells[i].mark == CPA_MARK_NONE ? "-"
								 : "");
		fputs("</td>", page->out);
	}
	fputs("</tr>\n", page->out);
}

static void end_table(struct cpa_page *page)
{
	fputs("</tbody></table></div>\n", page->out);
}

static void plot(struct cpa_page *page, const struct cpa_plot *p)
{
	fputs("<figure><div class=\"wide\">", page->out);
	fputs(p->svg, page->out);
	fputs("</div><figcaption>", page->out);
	cpa_xml_text(page->out, p->caption);
	fprintf(page->out, " (%s.svg, %s.png)</figcaption></figure>\n", p->name, p->name);
}

void cpa_report_html(FILE *out, const struct cpa_report *report)
{
	static const struct cpa_page_ops ops = {
		heading, paragraph, fold, unfold, table, row, end_table, plot};
	struct cpa_page page = {.ops = &ops, .out = out, .arena = report->arena};

	fputs(head, out);
	cpa_report_write(&page, report);
	fputs("</body>\n</html>\n", out);
}
