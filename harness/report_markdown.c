/*
 * report_markdown.c - a report as a comment on a pull request: what comes first is whole, and
 * rows beyond the length that such a comment may have are counted.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/json.h"
#include "harness/report_page.h"
#include "harness/result_formats.h"

/* Rows stop first, so that headings and the ends of what is open always fit. */
enum { ROW_LIMIT = 52000, TEXT_LIMIT = 60000, MOST_CELL = 600 };

/* Text that shows as it is: no mark-up, no line ends, no bytes that are no UTF-8; at most `most`
 * bytes. */
static void put_text(FILE *out, const char *text, size_t most)
{
	const char *start = text;

	while (*text && (size_t)(text - start) < most) {
		int n = cpa_utf8_length(text);
		unsigned char c = (unsigned char)*text;

		if (n == 0)
			fputs("\xef\xbf\xbd", out);
		else if (n == 1 && (c < 0x20 || c == 0x7f))
			fputc(' ', out);
		else if (c == '<')
			fputs("&lt;", out);
		else if (c == '>')
			fputs("&gt;", out);
		else if (c == '&')
			fputs("&amp;", out);
		/* No mention of anybody, no link, no emoji. */
		else if (c == '@' || (c == ':' && text[1] && text[1] != ' '))
			fprintf(out, "&#%u;", c);
		else if (n == 1 && strchr("\\`*_{}[]#|~$", c))
			fprintf(out, "\\%c", c);
		else
			fwrite(text, 1, (size_t)n, out);
		text += n ? n : 1;
	}
	if (*text)
		fputs("...", out);
}

/* A piece of the page in memory: it is written whole, or not at all. */
struct piece {
	FILE *out;
	char *text;
	size_t nbytes;
};

static void begin(struct piece *piece)
{
	*piece = (struct piece){NULL, NULL, 0};
	piece->out = open_memstream(&piece->text, &piece->nbytes);
}

static bool end(struct cpa_page *page, struct piece *piece, size_t limit)
{
	bool fits;

	if (!piece->out || fclose(piece->out) != 0) {
		page->full = true;
		free(piece->text);
		return false;
	}
	fits = page->used + piece->nbytes <= limit;
	if (fits) {
		fwrite(piece->text, 1, piece->nbytes, page->out);
		page->used += piece->nbytes;
	}
	free(piece->text);
	return fits;
}

static void put_mark(FILE *out, enum cpa_mark mark)
{
	if (mark != CPA_MARK_NONE)
		fprintf(out, "%s ", cpa_mark_symbol(mark));
}

static void heading(struct cpa_page *page, int level, const char *text)
{
	struct piece piece;

	begin(&piece);
	if (piece.out) {
		fprintf(piece.out, "\n%.*s ", level, "####");
		put_text(piece.out, text, MOST_CELL);
		fputs("\n\n", piece.out);
	}
	page->full |= !end(page, &piece, TEXT_LIMIT);
}

static void paragraph(struct cpa_page *page, enum cpa_mark mark, const char *text)
{
	struct piece piece;

	begin(&piece);
	if (piece.out) {
		put_mark(piece.out, mark);
		put_text(piece.out, text, 4 * MOST_CELL);
		fputs("\n\n", piece.out);
	}
	page->full |= !end(page, &piece, TEXT_LIMIT);
}

/* Above the limit nothing is folded, but what is open is always closed. */
static void fold(struct cpa_page *page, const char *summary)
{
	struct piece piece;

	begin(&piece);
	if (piece.out) {
		fputs("<details><summary>", piece.out);
		cpa_xml_text(piece.out, summary); /* Markdown does not look into a tag of HTML */
		fputs("</summary>\n\n", piece.out);
	}
	page->folded = end(page, &piece, TEXT_LIMIT);
	page->full |= !page->folded;
}

static void put_end(struct cpa_page *page, const char *text)
{
	fputs(text, page->out);
	page->used += strlen(text);
}

static void unfold(struct cpa_page *page)
{
	if (page->folded)
		put_end(page, "\n</details>\n\n");
	page->folded = false;
}

static void table(struct cpa_page *page, const char *const *heads, int n)
{
	struct piece piece;

	page->left_out = 0;
	begin(&piece);
	if (piece.out) {
		fputs("\n|", piece.out);
		for (int i = 0; i < n; i++) {
			fputc(' ', piece.out);
			put_text(piece.out, heads[i] + (heads[i][0] == '#'), MOST_CELL);
			fputs(" |", piece.out);
		}
		fputs("\n|", piece.out);
		for (int i = 0; i < n; i++)
			fputs(heads[i][0] == '#' ? "---:|" : "---|", piece.out);
		fputc('\n', piece.out);
	}
	page->tabled = end(page, &piece, ROW_LIMIT);
}

static void row(struct cpa_page *page, const struct cpa_cell *cells, int n)
{
	struct piece piece;

	begin(&piece);
	if (piece.out) {
		fputc('|', piece.out);
		for (int i = 0; i < n; i++) {
			fputc(' ', piece.out);
			put_mark(piece.out, cells[i].mark);
			if (cells[i].text)
				put_text(piece.out, cells[i].text, MOST_CELL);
			else if (cells[i].mark == CPA_MARK_NONE)
				fputc('-', piece.out);
			fputs(" |", piece.out);
		}
		fputc('\n', piece.out);
	}
	/* After the first row that does not fit no other one follows: a gap would not be seen. */
	if (!end(page, &piece, page->tabled && !page->left_out ? ROW_LIMIT : 0))
		page->left_out++;
}

static void end_table(struct cpa_page *page)
{
	size_t left_out = page->left_out;

	if (page->tabled)
		put_end(page, "\n");
	page->left_out = 0;
	page->full |= left_out > 0;
	if (left_out)
		paragraph(page, CPA_MARK_NONE,
			cpa_report_format(
				page->arena, "%zu rows more are in index.html.", left_out));
}

static void plot(struct cpa_page *page, const struct cpa_plot *p)
{
	paragraph(page, CPA_MARK_NONE,
		cpa_report_format(
			page->arena, "%s: %s.svg, %s.png", p->caption, p->name, p->name));
}

enum cpa_status cpa_report_markdown(
	FILE *out, const struct cpa_report *report, struct cpa_error *error)
{
	static const struct cpa_page_ops ops = {
		heading, paragraph, fold, unfold, table, row, end_table, plot};
	struct cpa_page page = {.ops = &ops, .out = out, .arena = report->arena};

	cpa_report_write(&page, report);
	if (page.full)
		put_end(&page,
			"\nThis comment is as long as one may be; index.html has the rest.\n");
	return report->arena->failed
		? cpa_fail(error, CPA_NO_MEMORY, "out of memory for the report")
		: CPA_OK;
}
