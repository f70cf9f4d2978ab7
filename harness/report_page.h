/*
 * report_page.h - what a report says, apart from how a page writes it.  The parts are called in
 * order and write through the operations of a page: one for HTML, one for Markdown.  Private to
 * the report.
 */
#ifndef CPA_REPORT_PAGE_H
#define CPA_REPORT_PAGE_H

#include "harness/report.h"

/* What a text means, shown by a symbol and, where there are colours, by one too. */
enum cpa_mark {
	CPA_MARK_NONE,
	CPA_MARK_RIGHT,
	CPA_MARK_WRONG,
	CPA_MARK_REFUSED,
	CPA_MARK_UNKNOWN,
	CPA_NMARKS
};
const char *cpa_mark_symbol(enum cpa_mark mark); /* UTF-8; "" for none */
enum cpa_mark cpa_mark_of(enum cpa_verdict verdict);

struct cpa_cell {
	const char *text; /* NULL: a dash */
	enum cpa_mark mark;
};

struct cpa_page;
struct cpa_page_ops {
	void (*heading)(struct cpa_page *page, int level, const char *text);
	void (*paragraph)(struct cpa_page *page, enum cpa_mark mark, const char *text);
	/* What is between is hidden until a reader asks for it.  They do not nest. */
	void (*fold)(struct cpa_page *page, const char *summary);
	void (*unfold)(struct cpa_page *page);
	/* A head that begins with # is of a column of numbers; the # is not shown. */
	void (*table)(struct cpa_page *page, const char *const *heads, int n);
	void (*row)(struct cpa_page *page, const struct cpa_cell *cells, int n);
	void (*end_table)(struct cpa_page *page);
	void (*plot)(struct cpa_page *page, const struct cpa_plot *plot);
};
struct cpa_page {
	const struct cpa_page_ops *ops;
	FILE *out;
	struct cpa_arena *arena; /* of the texts */
	int ncolumns; /* of the open table */
	const char *const *heads;
	size_t used, left_out; /* Markdown: bytes so far, rows left out of the open table */
	bool full, folded, tabled; /* likewise: something is left out; what is open */
};

/* The whole content. */
void cpa_report_write(struct cpa_page *page, const struct cpa_report *report);

/* ---- parts ---- */

/* Results by call, in the order in which calls first come. */
struct cpa_calls {
	const char **names;
	int *of; /* [results] the call of each */
	int n;
};
bool cpa_calls_find(const struct cpa_report_run *run, struct cpa_arena *arena,
	struct cpa_calls *calls); /* false: out of memory */

/* call -1: all of them. */
void cpa_report_matrix(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_calls *calls, int call);
void cpa_report_parts(struct cpa_page *page, const struct cpa_report_run *run,
	const struct cpa_calls *calls); /* of check: calls x ranks */
void cpa_report_errors(
	struct cpa_page *page, const struct cpa_report_run *run, const struct cpa_calls *calls);
void cpa_report_amounts(struct cpa_page *page, const struct cpa_report_run *run);
void cpa_report_balance(struct cpa_page *page, const struct cpa_report_run *run);
/* False: it is no table of faults. */
bool cpa_report_faults(struct cpa_page *page, const struct cpa_report_run *run);
void cpa_report_times(struct cpa_page *page, const struct cpa_report_run *run);
void cpa_report_shape(struct cpa_page *page, const struct cpa_report_run *run);
void cpa_report_published(struct cpa_page *page, const struct cpa_report *report);
void cpa_report_all(
	struct cpa_page *page, const struct cpa_report_run *run, const struct cpa_calls *calls);

/* Numbers for people, in the arena; NULL for what does not exist. */
const char *cpa_say_number(struct cpa_page *page, double value);
const char *cpa_say_bytes(struct cpa_page *page, double nbytes);
const char *cpa_say_seconds(struct cpa_page *page, double seconds);
const char *cpa_say_share(struct cpa_page *page, double share); /* "12.3 %" */

#endif
