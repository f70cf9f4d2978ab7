/*
 * report_tables.c - verdicts: variants by meshes, calls by ranks; and errors against their
 * bounds.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/report_page.h"

enum { MOST_ROWS = 64, MOST_COLUMNS = 64, MOST_REASONS = 40 };

/* ---- refusals and their reasons ---- */

/* Reasons that differ only in their numbers count as one, and are shown by the first. */
struct reasons {
	const char *at[MOST_REASONS];
	int count[MOST_REASONS], n;
};

static bool same_but_numbers(const char *a, const char *b)
{
	for (;;) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			while (isdigit((unsigned char)*a))
				a++;
			while (isdigit((unsigned char)*b))
				b++;
		} else if (*a != *b) {
			return false;
		} else if (!*a) {
			return true;
		} else {
			a++;
			b++;
		}
	}
}

/* Its number from 1; 0 where there are too many. */
static int number_reason(struct reasons *reasons, const char *text)
{
	int i = 0;

	while (i < reasons->n && !same_but_numbers(reasons->at[i], text))
		i++;
	if (i == MOST_REASONS)
		return 0;
	if (i == reasons->n)
		reasons->at[reasons->n++] = text;
	reasons->count[i]++;
	return i + 1;
}

/* ---- variants by meshes ---- */

struct mesh {
	int batch, ring, ulysses;
};

struct tally {
	int counts[4], reason;
};

struct matrix {
	const char *rows[MOST_ROWS];
	struct mesh columns[MOST_COLUMNS];
	int nrows, ncolumns, beyond; /* beyond: results without a place */
	struct tally cells[MOST_ROWS][MOST_COLUMNS];
	struct reasons reasons;
};

static int compare_meshes(const void *a, const void *b)
{
	const struct mesh *x = a, *y = b;
	long long p = (long long)x->batch * x->ring * x->ulysses;
	long long q = (long long)y->batch * y->ring * y->ulysses;

	if (p != q)
		return p < q ? -1 : 1;
	if (x->batch != y->batch)
		return x->batch < y->batch ? -1 : 1;
	return (x->ring < y->ring) - (x->ring > y->ring);
}

static int find_column(const struct matrix *m, const struct cpa_reported *r)
{
	const struct mesh mesh = {r->batch, r->ring, r->ulysses};
	int i = 0;

	while (i < m->ncolumns && compare_meshes(&m->columns[i], &mesh) != 0)
		i++;
	return i;
}

/* The variant and, where a ring turns, how. */
static const char *name_row(struct cpa_arena *arena, const struct cpa_reported *r)
{
	return r->rotate ? cpa_report_format(arena, "%s %s", r->variant, r->rotate) : r->variant;
}

static int find_row(struct matrix *m, const char *name)
{
	int i = 0;

	while (i < m->nrows && strcmp(m->rows[i], name) != 0)
		i++;
	if (i == m->nrows && i < MOST_ROWS)
		m->rows[m->nrows++] = name;
	return i;
}

static void count_cell(struct matrix *m, struct cpa_arena *arena, const struct cpa_reported *r)
{
	int row = find_row(m, name_row(arena, r)), column = find_column(m, r);

	if (row == MOST_ROWS || column == m->ncolumns) {
		m->beyond++;
		return;
	}
	m->cells[row][column].counts[r->verdict]++;
	if (r->verdict == CPA_VERDICT_UNSUPPORTED && r->reason) {
		int number = number_reason(&m->reasons, r->reason);

		if (!m->cells[row][column].reason)
			m->cells[row][column].reason = number;
	}
}

static bool fill_matrix(struct matrix *m, const struct cpa_report_run *run,
	const struct cpa_calls *calls, int call, struct cpa_arena *arena)
{
	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < run->n; i++) {
			const struct cpa_reported *r = &run->results[i];
			int column;

			if (!r->variant || (call >= 0 && calls->of[i] != call))
				continue;
			if (pass == 1) {
				count_cell(m, arena, r);
				continue;
			}
			column = find_column(m, r);
			if (column == m->ncolumns && column < MOST_COLUMNS)
				m->columns[m->ncolumns++] = (struct mesh){
					r->batch, r->ring, r->ulysses};
		}
		qsort(m->columns, (size_t)m->ncolumns, sizeof m->columns[0], compare_meshes);
	}
	return m->ncolumns > 0;
}

/* The worst verdict decides the mark; with more than one result each verdict has its count. */
static struct cpa_cell say_cell(struct cpa_page *page, const struct tally *t)
{
	static const enum cpa_verdict order[] = {CPA_VERDICT_WRONG, CPA_VERDICT_CANNOT_TELL,
		CPA_VERDICT_RIGHT, CPA_VERDICT_UNSUPPORTED};
	const char *text = "";
	enum cpa_mark mark = CPA_MARK_NONE;
	int n = t->counts[0] + t->counts[1] + t->counts[2] + t->counts[3];

	for (int v = 0; v < 4; v++) {
		int count = t->counts[order[v]];

		if (count == 0)
			continue;
		if (mark == CPA_MARK_NONE) {
			mark = cpa_mark_of(order[v]);
			text = n > 1 ? cpa_report_format(page->arena, "%d", count) : "";
		} else {
			text = cpa_report_format(page->arena, "%s %s %d", text,
				cpa_mark_symbol(cpa_mark_of(order[v])), count);
		}
	}
	if (t->reason)
		text = cpa_report_format(page->arena, "%s(%d)", text, t->reason);
	return (struct cpa_cell){text, mark};
}

static void write_matrix(struct cpa_page *page, const struct matrix *m)
{
	const char *heads[MOST_COLUMNS + 1] = {"variant"};
	struct cpa_cell cells[MOST_COLUMNS + 1];

	for (int c = 0; c < m->ncolumns; c++)
		heads[c + 1] = cpa_report_format(page->arena, "%dx%dx%d", m->columns[c].batch,
			m->columns[c].ring, m->columns[c].ulysses);
	page->ops->table(page, heads, m->ncolumns + 1);
	for (int r = 0; r < m->nrows; r++) {
		cells[0] = (struct cpa_cell){m->rows[r], CPA_MARK_NONE};
		for (int c = 0; c < m->ncolumns; c++)
			cells[c + 1] = say_cell(page, &m->cells[r][c]);
		for (int c = 1; c <= m->ncolumns; c++)
			if (cells[c].mark == CPA_MARK_NONE)
				cells[c].text = " ";
		page->ops->row(page, cells, m->ncolumns + 1);
	}
	page->ops->end_table(page);
	for (int i = 0; i < m->reasons.n; i++)
		page->ops->paragraph(page, CPA_MARK_NONE,
			cpa_report_format(page->arena, "(%d) refused %d time%s%s: %s", i + 1,
				m->reasons.count[i], m->reasons.count[i] == 1 ? "" : "s",
				m->reasons.count[i] == 1 ? "" : ", such as", m->reasons.at[i]));
	if (m->beyond)
		page->ops->paragraph(page, CPA_MARK_NONE,
			cpa_report_format(page->arena,
				"%d results more have no room here and are in the list of all "
				"results.",
				m->beyond));
}

void cpa_report_matrix(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_calls *calls, int call)
{
	struct matrix *m = calloc(1, sizeof *m);

	if (m && fill_matrix(m, run, calls, call, page->arena)) {
		if (call < 0) {
			page->ops->heading(page, 3, "Verdicts: variants by meshes");
			page->ops->paragraph(page, CPA_MARK_NONE,
				cpa_report_format(page->arena,
					"A mesh is batch x ring x ulysses. %s right, %s wrong, "
					"%s "
					"refused, for the reason with this number, %s cannot be "
					"told.%s",
					cpa_mark_symbol(CPA_MARK_RIGHT),
					cpa_mark_symbol(CPA_MARK_WRONG),
					cpa_mark_symbol(CPA_MARK_REFUSED),
					cpa_mark_symbol(CPA_MARK_UNKNOWN),
					calls->n > 1 ? " All calls together; each stands below."
						     : ""));
		} else {
			page->ops->fold(page, calls->names[call]);
		}
		write_matrix(page, m);
		if (call >= 0)
			page->ops->unfold(page);
	}
	free(m);
}

/* ---- calls by ranks, of check ---- */

static struct cpa_cell say_part(struct cpa_page *page, const struct cpa_reported *r)
{
	double ratio = cpa_reported_ratio(r);

	return (struct cpa_cell){
		isnan(ratio) ? "" : cpa_say_number(page, ratio), cpa_mark_of(r->verdict)};
}

static void write_part_row(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_calls *calls, int call, int n)
{
	struct cpa_cell cells[MOST_COLUMNS];

	cells[0] = (struct cpa_cell){calls->names[call], CPA_MARK_NONE};
	for (int c = 1; c < n; c++)
		cells[c] = (struct cpa_cell){" ", CPA_MARK_NONE};
	for (int i = 0; i < run->n; i++)
		if (calls->of[i] == call && run->results[i].part >= -1 &&
			run->results[i].part + 2 < n)
			cells[run->results[i].part + 2] = say_part(page, &run->results[i]);
	page->ops->row(page, cells, n);
}

void cpa_report_parts(
	struct cpa_page *page, const struct cpa_report_run *run, const struct cpa_calls *calls)
{
	const char *heads[MOST_COLUMNS] = {"call", "one device"};
	int n = 0;

	for (int i = 0; i < run->n; i++)
		if (run->results[i].part + 3 > n && run->results[i].part >= -1)
			n = run->results[i].part + 3;
	if (n == 0)
		return;
	if (n > MOST_COLUMNS)
		n = MOST_COLUMNS;
	for (int c = 2; c < n; c++)
		heads[c] = cpa_report_format(page->arena, "rank %d", c - 2);
	page->ops->heading(page, 3, "Verdicts: calls by ranks");
	page->ops->paragraph(page, CPA_MARK_NONE,
		"Beside the verdict stands the larger of the errors of o and lse over their "
		"bounds: "
		"above 1 is wrong.");
	page->ops->table(page, heads, n);
	for (int call = 0; call < calls->n; call++)
		write_part_row(page, run, calls, call, n);
	page->ops->end_table(page);
}

/* ---- errors against bounds ---- */

struct worst {
	const char *name;
	const struct cpa_reported *result;
	int n, call;
};

/* Groups of results: variants, or calls where there are no variants. */
static int group_errors(
	const struct cpa_report_run *run, const struct cpa_calls *calls, struct worst *groups)
{
	int n = 0;

	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported *r = &run->results[i];
		const char *name = r->variant ? r->variant : calls->names[calls->of[i]];
		int g = 0;

		if (isnan(cpa_reported_ratio(r)))
			continue;
		while (g < n && strcmp(groups[g].name, name) != 0)
			g++;
		if (g == MOST_ROWS)
			continue;
		if (g == n)
			groups[n++] = (struct worst){name, r, 0, calls->of[i]};
		if (cpa_reported_ratio(r) > cpa_reported_ratio(groups[g].result)) {
			groups[g].result = r;
			groups[g].call = calls->of[i];
		}
		groups[g].n++;
	}
	return n;
}

static const char *say_place(struct cpa_page *page, const struct cpa_reported_error *e)
{
	const double places[] = {e->batch, e->token, e->head, e->dim};
	static const char *const names[] = {"batch", "token", "head", "dim"};
	const char *text = "";

	for (int i = 0; i < 4; i++)
		if (!isnan(places[i]))
			text = cpa_report_format(page->arena, "%s%s%s %.0f", text,
				text[0] ? ", " : "", names[i], places[i]);
	return text[0] ? text : NULL;
}

void cpa_report_errors(
	struct cpa_page *page, const struct cpa_report_run *run, const struct cpa_calls *calls)
{
	static const char *const heads[] = {"of", "#results", "#worst error / bound", "#error",
		"#bound", "output", "what ran", "at", "in"};
	struct worst groups[MOST_ROWS];
	int n = group_errors(run, calls, groups);

	if (n == 0)
		return;
	page->ops->heading(page, 3, "Errors against their bounds");
	page->ops->table(page, heads, 9);
	for (int g = 0; g < n; g++) {
		const struct cpa_reported *r = groups[g].result;
		double ratio = cpa_reported_ratio(r);
		bool lse = r->lse.ratio == ratio;
		const struct cpa_reported_error *e = lse ? &r->lse : &r->o;
		struct cpa_cell cells[9] = {{groups[g].name, CPA_MARK_NONE},
			{cpa_report_format(page->arena, "%d", groups[g].n), CPA_MARK_NONE},
			{cpa_say_number(page, ratio),
				ratio > 1 ? CPA_MARK_WRONG : CPA_MARK_RIGHT},
			{cpa_say_number(page, e->error), CPA_MARK_NONE},
			{cpa_say_number(page, e->bound), CPA_MARK_NONE},
			{lse ? "lse" : "o", CPA_MARK_NONE}, {r->label, CPA_MARK_NONE},
			{say_place(page, e), CPA_MARK_NONE},
			{calls->names[groups[g].call], CPA_MARK_NONE}};

		page->ops->row(page, cells, 9);
	}
	page->ops->end_table(page);
}
