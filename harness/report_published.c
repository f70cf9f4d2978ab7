/*
 * report_published.c - figures that others published: their tables, and ours in the same shape.
 */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report_page.h"

enum {
	PUBLISHED_RANKS = 4,
	MOST_TABLES = 16,
	MOST_ROWS = 200,
	MOST_LINE = 1000,
	MOST_PATH = 1200
};

/* ---- reading ---- */

const char *cpa_published_field(const struct cpa_published *table, int row, const char *column)
{
	for (int c = 0; c < table->ncolumns; c++)
		if (strcmp(table->columns[c], column) == 0)
			return table->rows[row][c];
	return NULL;
}

/* Fields between commas, as many as there are columns; "" beyond the end of the line. */
static int cut_line(struct cpa_arena *arena, const char *line, const char **fields)
{
	int n = 0;

	while (n < CPA_PUBLISHED_COLUMNS) {
		int length = (int)strcspn(line, ",");

		fields[n++] = cpa_report_format(arena, "%.*s", length, line);
		if (!line[length])
			break;
		line += length + 1;
	}
	for (int i = n; i < CPA_PUBLISHED_COLUMNS; i++)
		fields[i] = "";
	return n;
}

static void read_table(FILE *file, struct cpa_arena *arena, struct cpa_published *table)
{
	char line[MOST_LINE];

	table->rows = cpa_arena_alloc(arena, MOST_ROWS * sizeof *table->rows);
	while (table->rows && table->nrows < MOST_ROWS && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\r\n")] = '\0';
		if (line[0] == '#')
			table->source = cpa_report_format(arena, "%s%s%s",
				table->source ? table->source : "", table->source ? " " : "",
				line + 1 + strspn(line + 1, " "));
		else if (line[0] && !table->ncolumns)
			table->ncolumns = cut_line(arena, line, table->columns);
		else if (line[0])
			cut_line(arena, line, table->rows[table->nrows++]);
	}
	if (!table->source)
		table->source = table->name;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(
		((const struct cpa_published *)a)->name, ((const struct cpa_published *)b)->name);
}

enum cpa_status cpa_published_read(
	struct cpa_arena *arena, struct cpa_published **tables, int *n, struct cpa_error *error)
{
	char directory[MOST_PATH], path[MOST_PATH + 300];
	DIR *dir = cpa_report_find("published", directory, sizeof directory) ? opendir(directory)
									     : NULL;
	struct cpa_published *made = cpa_arena_alloc(arena, MOST_TABLES * sizeof *made);

	*n = 0;
	*tables = made;
	for (struct dirent *entry; dir && made && *n < MOST_TABLES && (entry = readdir(dir));) {
		const char *dot = strrchr(entry->d_name, '.');
		FILE *file;

		if (!dot || strcmp(dot, ".csv") != 0 || entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		made[*n].name = cpa_report_format(arena, "%s", entry->d_name);
		read_table(file, arena, &made[(*n)++]);
		fclose(file);
	}
	if (dir)
		closedir(dir);
	if (arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the published figures");
	qsort(made, (size_t)*n, sizeof *made, by_name);
	return CPA_OK;
}

/* ---- the shape of published tables ---- */

static const char *say_shape(
	struct cpa_page *page, const struct cpa_reported *r, const struct cpa_report_run *run)
{
	if (run->height > 0 && run->width > 0)
		return cpa_report_format(page->arena, "%.0fx%.0f", run->height, run->width);
	return cpa_reported_call(r, run, page->arena);
}

static void write_shaped(
	struct cpa_page *page, const struct cpa_reported *r, const struct cpa_report_run *run)
{
	bool failed = r->verdict != CPA_VERDICT_RIGHT, timed = r->seconds.n > 0;
	const struct cpa_cell no = {"failed", cpa_mark_of(r->verdict)};
	struct cpa_cell cells[6] = {{r->label, CPA_MARK_NONE}};

	cells[1] = failed ? no
			  : (struct cpa_cell){timed ? cpa_report_format(page->arena, "%.3f",
							      1e3 * r->seconds.median)
						    : NULL,
				    CPA_MARK_NONE};
	cells[2] = failed
		? no
		: (struct cpa_cell){timed
				  ? cpa_report_format(page->arena, "%.2f", 1 / r->seconds.median)
				  : NULL,
			  CPA_MARK_NONE};
	cells[3] = failed ? no
			  : (struct cpa_cell){cpa_say_bytes(page, cpa_series_max(&r->peak_bytes)),
				    CPA_MARK_NONE};
	cells[4].text = say_shape(page, r, run);
	cells[5].text = r->reason;
	page->ops->row(page, cells, 6);
}

/* Published figures are of 4 devices: of many worlds, only that one. */
void cpa_report_shape(struct cpa_page *page, const struct cpa_report_run *run)
{
	static const char *const heads[] = {"backend", "#time per iteration (ms)",
		"#iterations per second", "#peak memory", "shape", "reason"};
	int n = 0, with = 0;

	for (int i = 0; i < run->n; i++) {
		n += run->results[i].variant != NULL;
		with += run->results[i].variant && run->results[i].ranks == PUBLISHED_RANKS;
	}
	if (n == 0)
		return;
	page->ops->heading(page, 3, "In the shape of published tables");
	page->ops->paragraph(page, CPA_MARK_NONE,
		cpa_report_format(page->arena,
			"%sAn iteration is one attention call here, and a step of a whole model "
			"in what "
			"is published: compare the order of rows and which fail, not the "
			"numbers. Time "
			"is the median; only bench has it. Memory is of the fullest rank.",
			with ? "Worlds of 4 ranks. " : ""));
	page->ops->table(page, heads, 6);
	for (int i = 0; i < run->n; i++)
		if (run->results[i].variant &&
			(!with || run->results[i].ranks == PUBLISHED_RANKS))
			write_shaped(page, &run->results[i], run);
	page->ops->end_table(page);
}

/* A variant of this program that a published row is of: "unified_balanced" is unified. */
static bool is_of(const struct cpa_published *table, int row, const struct cpa_reported *r)
{
	const char *name = cpa_published_field(table, row, "variant");
	const char *ring = cpa_published_field(table, row, "ring_degree");
	const char *ulysses = cpa_published_field(table, row, "ulysses_degree");

	if (!name || !ring || !ulysses || !r->variant || r->batch != 1 || atoi(ring) != r->ring ||
		atoi(ulysses) != r->ulysses)
		return false;
	return strcmp(name, r->variant) == 0 ||
		(strcmp(name, "unified_balanced") == 0 && strcmp(r->variant, "unified") == 0);
}

/* What this program says of a published row: only of a model at the same size. */
static struct cpa_cell say_here(struct cpa_page *page, const struct cpa_report *report,
	const struct cpa_published *table, int row)
{
	const char *height = cpa_published_field(table, row, "height");
	const char *width = cpa_published_field(table, row, "width");

	for (int n = 0; height && width && n < report->nruns; n++) {
		const struct cpa_report_run *run = &report->runs[n];

		if (!(run->height == atof(height) && run->width == atof(width)))
			continue;
		for (int i = 0; i < run->n; i++) {
			const struct cpa_reported *r = &run->results[i];

			if (is_of(table, row, r))
				return (struct cpa_cell){r->verdict == CPA_VERDICT_RIGHT
						? cpa_report_format(page->arena,
							  "runs; peak of attention %s",
							  cpa_say_bytes(page,
								  cpa_series_max(&r->peak_bytes)))
						: r->reason,
					cpa_mark_of(r->verdict)};
		}
	}
	return (struct cpa_cell){NULL, CPA_MARK_NONE};
}

static void write_published(
	struct cpa_page *page, const struct cpa_report *report, const struct cpa_published *table)
{
	const char *heads[CPA_PUBLISHED_COLUMNS + 1];
	struct cpa_cell cells[CPA_PUBLISHED_COLUMNS + 1];
	int n = table->ncolumns;

	page->ops->fold(page, cpa_report_format(page->arena, "Published: %s", table->source));
	for (int c = 0; c < n; c++)
		heads[c] = table->columns[c];
	heads[n] = "here";
	page->ops->table(page, heads, n + 1);
	for (int r = 0; r < table->nrows; r++) {
		for (int c = 0; c < n; c++) {
			bool failed = strcmp(table->rows[r][c], "failed") == 0;

			cells[c] = (struct cpa_cell){
				table->rows[r][c], failed ? CPA_MARK_REFUSED : CPA_MARK_NONE};
		}
		cells[n] = say_here(page, report, table, r);
		page->ops->row(page, cells, n + 1);
	}
	page->ops->end_table(page);
	page->ops->unfold(page);
}

void cpa_report_published(struct cpa_page *page, const struct cpa_report *report)
{
	bool any = false;

	for (int n = 0; n < report->nruns; n++)
		for (int i = 0; i < report->runs[n].n; i++)
			any |= report->runs[n].results[i].variant != NULL;
	if (!any || report->npublished == 0)
		return;
	page->ops->heading(page, 2, "Published figures");
	page->ops->paragraph(page, CPA_MARK_NONE,
		"What others measured on GPUs. The last column is what a plan here says of the "
		"same "
		"model at the same size (cpattn plan --model flux.1-dev --size 1008x1008 --ranks "
		"4).");
	for (int t = 0; t < report->npublished; t++)
		write_published(page, report, &report->published[t]);
}
