/*
 * report.h - reports: what the JSON of the other commands says, read back, and the pages, plots
 * and lines that are made of it.  Private to the report.
 *
 * Reading is lenient: a member that is missing or of the wrong kind is a gap, which the report
 * names; a member that is not known is passed over.  Everything read belongs to one arena.
 */
#ifndef CPA_REPORT_H
#define CPA_REPORT_H

#include "harness/commands.h"
#include "harness/result.h"
#include "harness/statistics.h"

enum { CPA_REPORT_MAX_GAPS = 48, CPA_REPORT_NPHASES = 5 };
extern const char *const cpa_report_phases[CPA_REPORT_NPHASES]; /* as in the JSON of bench */

/* An array over the ranks of a world. */
struct cpa_series {
	double *at;
	int n; /* 0: there is none */
};
double cpa_series_sum(const struct cpa_series *series); /* NaN where there is none, as below */
double cpa_series_max(const struct cpa_series *series);
/* The fullest rank over the mean; NaN also where nobody has any. */
double cpa_series_imbalance(const struct cpa_series *series);

/* Of o or lse: the worst element.  A number that does not exist is NaN. */
struct cpa_reported_error {
	bool there;
	double error, bound, ratio, batch, token, head, dim;
};

struct cpa_reported_finding {
	const char *class, *name;
	double explained, ties;
};

/* How often a planted fault was seen, found and named; class NULL: runs without one, of which `planted` is
 * how many there were. */
enum { CPA_REPORT_NVARIANTS = 6 };
struct cpa_reported_fault {
	const char *class, *name;
	double planted, seen, found, named, tied, other, missed;
	double of[CPA_REPORT_NVARIANTS][2]; /* of each variant: found, and named or tied */
};

/* One result.  Texts are NULL and numbers NaN (degrees 0) where the JSON has null or nothing. */
struct cpa_reported {
	const char *file, *call, *variant, *rotate, *order, *dtype, *device, *comm, *reason;
	const char *kernel, *problem; /* of bench --kernels */
	const char *label; /* what ran: "ring 1x4x1 p2p", "rank 3", "attend S=64"; for people */
	const char *key; /* all that tells this result from others of its file */
	enum cpa_verdict verdict;
	int batch, ring, ulysses, ranks;
	int part; /* of check: the rank, -1 one device; -2: not of check */
	struct cpa_reported_error o, lse;
	double probe_ratio;
	struct cpa_series bytes_sent, messages, peak_bytes, work;
	double run_seconds; /* of verify, by which nothing can be compared */
	struct cpa_statistics seconds; /* of bench; n = 0: none */
	double spread, phases[CPA_REPORT_NPHASES], beyond, flop_rate, of_peak, speedup, rate,
		of_limit;
	int proved; /* of plan; -1: nothing is said */
	struct cpa_reported_finding *findings;
	int nfindings;
	const struct cpa_reported_fault *fault; /* of make check-faults; NULL */
};

/* A member that results lack, or have as another kind than expected. */
struct cpa_gap {
	const char *path;
	int count, first; /* how many results, and the first of them */
	bool kind; /* it is there, and of another kind */
};

struct cpa_report_run {
	const char *path, *version, *command, *command_line, *problem, *fault, *cpu, *os;
	double cores, memory_bytes;
	const char *model; /* of plan --model; NULL */
	double height, width; /* of it */
	struct cpa_reported *results;
	int n;
	int counts[4]; /* results by verdict */
	struct cpa_gap gaps[CPA_REPORT_MAX_GAPS];
	int ngaps;
};

/* The larger ratio of o and lse; NaN: neither. */
double cpa_reported_ratio(const struct cpa_reported *r);
/* "recording call", or the problem: what ran is not in it. */
const char *cpa_reported_call(
	const struct cpa_reported *r, const struct cpa_report_run *run, struct cpa_arena *arena);
/* Text in the arena; "" when out of memory. */
const char *cpa_report_format(struct cpa_arena *arena, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * text [nbytes] is the content of the file `path`.  CPA_INVALID, beginning with path, for what is
 * no JSON (with the line), is no object with an array of results, or has a format other than 1.
 * CPA_UNSUPPORTED, with what to install, in a build without cJSON.
 */
enum cpa_status cpa_report_parse(const char *path, const char *text, size_t nbytes,
	struct cpa_arena *arena, struct cpa_report_run *run, struct cpa_error *error);
enum cpa_status cpa_report_read(const char *path, struct cpa_arena *arena,
	struct cpa_report_run *run, struct cpa_error *error);

/* ---- two runs of one command ---- */

enum cpa_change {
	CPA_CHANGE_NONE,
	CPA_CHANGE_WRONG, /* wrong now, and not before: a regression */
	CPA_CHANGE_VANISHED, /* was there and is not, or was right and is refused: a regression */
	CPA_CHANGE_FIXED, /* was wrong */
	CPA_CHANGE_ADDED,
	CPA_CHANGE_VERDICT, /* another verdict, none of the above */
	CPA_CHANGE_NUMBERS /* the same verdict, other numbers */
};
const char *cpa_change_name(enum cpa_change change);
bool cpa_change_regresses(enum cpa_change change);

struct cpa_pair {
	const struct cpa_reported *before, *after; /* one may be NULL */
	enum cpa_change change;
	/* after over before; NaN where it is the same to 1 %, or one has none.  Bytes: any
	 * change. time: medians, where neither lies between the quartiles of the other. */
	double ratio, bytes, memory, time;
};
struct cpa_comparison {
	const struct cpa_report_run *before, *after;
	struct cpa_pair *pairs; /* in the order of after, then what vanished */
	int n, nregressions, nchanges;
};
/* CPA_NO_MEMORY. */
enum cpa_status cpa_report_compare(const struct cpa_report_run *before,
	const struct cpa_report_run *after, struct cpa_arena *arena,
	struct cpa_comparison *comparison, struct cpa_error *error);

/* ---- published figures ---- */

enum { CPA_PUBLISHED_COLUMNS = 12 };
struct cpa_published {
	const char *name, *source; /* of the file, and its first comment */
	const char *columns[CPA_PUBLISHED_COLUMNS], *(*rows)[CPA_PUBLISHED_COLUMNS];
	int ncolumns, nrows;
};
/* The tables that are found, in *tables [*n] in arena; none where there is no directory. */
enum cpa_status cpa_published_read(
	struct cpa_arena *arena, struct cpa_published **tables, int *n, struct cpa_error *error);
/* Column i by name, NULL where the table has none. */
const char *cpa_published_field(const struct cpa_published *table, int row, const char *column);

/* ---- plots ---- */

enum { CPA_REPORT_MAX_PLOTS = 8, CPA_REPORT_MAX_FILES = 32 };
struct cpa_plot {
	char name[32]; /* NAME.svg and NAME.png */
	const char *caption;
	char *svg; /* the drawing, without what XML has before it */
};
struct cpa_plots {
	struct cpa_plot at[CPA_REPORT_MAX_PLOTS];
	int n;
	char why[400]; /* why there are none, or fewer; "" */
};
/* Draws what run has numbers for into directory; number tells runs apart in names.  CPA_EXTERNAL
 * only where the directory cannot be written; without gnuplot, plots->why says so. */
enum cpa_status cpa_report_plot(const struct cpa_report_run *run, int number,
	const char *directory, struct cpa_arena *arena, struct cpa_plots *plots,
	struct cpa_error *error);
const char *cpa_report_plot_name(int i); /* without the number of a run; NULL past the end */
/* The path of `name` in CPATTN_DATA or beside it, in the tree that this was built in, or
 * installed; false: it is in none. */
bool cpa_report_find(const char *name, char *path, size_t size);

/* ---- the whole ---- */

struct cpa_report {
	const struct cpa_report_run *runs;
	int nruns;
	const struct cpa_comparison *comparison; /* NULL: none */
	const struct cpa_plots *plots; /* [nruns] */
	const struct cpa_published *published;
	int npublished;
	struct cpa_arena *arena;
};
void cpa_report_html(FILE *out, const struct cpa_report *report);
/* At most CPA_MARKDOWN_LIMIT bytes; rows that do not fit are counted. */
enum { CPA_MARKDOWN_LIMIT = 65000 };
enum cpa_status cpa_report_markdown(
	FILE *out, const struct cpa_report *report, struct cpa_error *error);

/* What is wrong in the last run, and regressions: for the CI. */
void cpa_report_annotations(FILE *out, const struct cpa_report *report);
void cpa_report_junit(FILE *out, const struct cpa_report *report);

#endif
