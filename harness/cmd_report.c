/*
 * cmd_report.c - the command report: reads, compares, and puts what it makes in place when all of
 * it is whole.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/output.h"
#include "harness/report.h"

enum { MOST_PATH = 4096, MOST_NAMES = 2 + 3 * CPA_REPORT_MAX_PLOTS * CPA_REPORT_MAX_FILES };

/* ---- the directory ---- */

/* Where files are made, and all names that they can have: an interrupt finds both here. */
static struct {
	char directory[MOST_PATH + 64];
	char names[MOST_NAMES][32];
	int n;
} scratch;

static void remove_scratch(void)
{
	if (chdir(scratch.directory) == 0)
		for (int i = 0; i < scratch.n; i++)
			unlink(scratch.names[i]);
	rmdir(scratch.directory);
}

static void list_names(int nruns)
{
	static const char *const ends[] = {"svg", "png", "dat"};
	char number[16] = "";

	scratch.n = 0;
	/* The page comes last: whoever sees it new finds the plots of the same run. */
	for (int run = 1; run <= nruns; run++) {
		if (run > 1)
			snprintf(number, sizeof number, "_%d", run);
		for (int i = 0; cpa_report_plot_name(i); i++)
			for (int e = 0; e < 3 && scratch.n < MOST_NAMES - 2; e++)
				snprintf(scratch.names[scratch.n++], sizeof scratch.names[0],
					"%.8s%s.%s", cpa_report_plot_name(i), number, ends[e]);
	}
	memcpy(scratch.names[scratch.n++], "report.md", sizeof "report.md");
	memcpy(scratch.names[scratch.n++], "index.html", sizeof "index.html");
}

static enum cpa_status cannot(const char *path, struct cpa_error *error)
{
	return cpa_fail(error, CPA_EXTERNAL, "cannot write to %.600s: %s", path, strerror(errno));
}

/* The directory, and one in it; *made: the outer one was not there. */
static enum cpa_status open_scratch(
	const char *out, int nruns, bool *made, struct cpa_error *error)
{
	char here[MOST_PATH] = "";

	list_names(nruns);
	if (out[0] != '/' && !getcwd(here, sizeof here))
		return cannot(out, error);
	if (strlen(here) + strlen(out) + 2 > MOST_PATH) {
		errno = ENAMETOOLONG;
		return cannot(out, error);
	}
	*made = mkdir(out, 0777) == 0;
	if (!*made && errno != EEXIST)
		return cannot(out, error);
	snprintf(scratch.directory, sizeof scratch.directory, "%s%s%s/.report.%ld.tmp", here,
		here[0] ? "/" : "", out, (long)getpid());
	cpa_output_on_interrupt(remove_scratch);
	return mkdir(scratch.directory, 0777) == 0 ? CPA_OK : cannot(out, error);
}

static void close_scratch(void)
{
	char path[MOST_PATH + 128];

	for (int i = 0; i < scratch.n; i++) {
		snprintf(path, sizeof path, "%s/%s", scratch.directory, scratch.names[i]);
		unlink(path);
	}
	rmdir(scratch.directory);
	cpa_output_on_interrupt(NULL);
}

static enum cpa_status move_all(const char *out, struct cpa_error *error)
{
	char from[MOST_PATH + 128], to[MOST_PATH + 128];

	for (int i = 0; i < scratch.n; i++) {
		snprintf(from, sizeof from, "%s/%s", scratch.directory, scratch.names[i]);
		snprintf(to, sizeof to, "%s/%s", out, scratch.names[i]);
		if (rename(from, to) != 0 && errno != ENOENT)
			return cannot(to, error);
	}
	return CPA_OK;
}

/* ---- files ---- */

typedef enum cpa_status write_function(
	FILE *out, const struct cpa_report *report, struct cpa_error *error);

static enum cpa_status write_html(
	FILE *out, const struct cpa_report *report, struct cpa_error *error)
{
	cpa_report_html(out, report);
	return report->arena->failed
		? cpa_fail(error, CPA_NO_MEMORY, "out of memory for the report")
		: CPA_OK;
}

static enum cpa_status write_annotations(
	FILE *out, const struct cpa_report *report, struct cpa_error *error)
{
	(void)error;
	cpa_report_annotations(out, report);
	return CPA_OK;
}

static enum cpa_status write_junit(
	FILE *out, const struct cpa_report *report, struct cpa_error *error)
{
	(void)error;
	cpa_report_junit(out, report);
	return CPA_OK;
}

static enum cpa_status write_file(const char *path, write_function *write,
	const struct cpa_report *report, struct cpa_error *error)
{
	struct cpa_output output;
	enum cpa_status status = cpa_output_open(&output, path, error);

	if (status != CPA_OK)
		return status;
	status = write(output.file, report, error);
	if (status == CPA_OK)
		return cpa_output_commit(&output, error);
	cpa_output_abandon(&output);
	return status;
}

static enum cpa_status write_pages(
	const struct cpa_report *report, struct cpa_plots *plots, struct cpa_error *error)
{
	char path[MOST_PATH + 128];
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < report->nruns && status == CPA_OK; i++)
		if (!report->comparison || i > 0)
			status = cpa_report_plot(&report->runs[i], report->comparison ? 1 : i + 1,
				scratch.directory, report->arena, &plots[i], error);
	snprintf(path, sizeof path, "%s/report.md", scratch.directory);
	if (status == CPA_OK)
		status = write_file(path, cpa_report_markdown, report, error);
	snprintf(path, sizeof path, "%s/index.html", scratch.directory);
	if (status == CPA_OK)
		status = write_file(path, write_html, report, error);
	return status;
}

static enum cpa_status write_directory(const char *out, const struct cpa_report *report,
	struct cpa_plots *plots, struct cpa_error *error)
{
	bool made = false;
	enum cpa_status status = open_scratch(out, report->nruns, &made, error);

	if (status == CPA_OK)
		status = write_pages(report, plots, error);
	if (status == CPA_OK)
		status = move_all(out, error);
	close_scratch();
	if (status != CPA_OK && made)
		rmdir(out);
	return status;
}

/* ---- the command ---- */

static void say(const struct cpa_options *o, const struct cpa_report *report)
{
	const struct cpa_comparison *c = report->comparison;

	if (cpa_output_is_stdout(o->annotations) || cpa_output_is_stdout(o->junit))
		return;
	for (int i = 0; i < report->nruns; i++) {
		const struct cpa_report_run *run = &report->runs[i];

		printf("%s: %d right, %d wrong, %d unsupported, %d cannot tell\n", run->path,
			run->counts[0], run->counts[1], run->counts[2], run->counts[3]);
	}
	if (c)
		printf("%d regression%s, %d of %d results changed\n", c->nregressions,
			c->nregressions == 1 ? "" : "s", c->nchanges, c->n);
	if (o->out)
		printf("wrote %s/index.html and %s/report.md\n", o->out, o->out);
	if (o->out && report->plots[report->nruns - 1].why[0])
		printf("%s\n", report->plots[report->nruns - 1].why);
}

static void say_gaps(const struct cpa_report *report)
{
	for (int i = 0; i < report->nruns; i++)
		for (int g = 0; g < report->runs[i].ngaps; g++) {
			const struct cpa_gap *gap = &report->runs[i].gaps[g];
			struct cpa_error error;

			cpa_fail(&error, CPA_INVALID, "%.300s: %.200s is %s",
				report->runs[i].path, gap->path,
				gap->kind ? "not what was expected" : "missing");
			cpa_complain(&error);
		}
}

static enum cpa_status read_all(const struct cpa_options *o, struct cpa_arena *arena,
	struct cpa_report *report, struct cpa_error *error)
{
	struct cpa_report_run *runs = cpa_arena_alloc(
		arena, (size_t)o->nfiles * sizeof *report->runs);
	struct cpa_comparison *comparison = cpa_arena_alloc(arena, sizeof *comparison);
	struct cpa_published *published;
	enum cpa_status status = CPA_OK;

	if (!runs || !comparison)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < o->nfiles && status == CPA_OK; i++)
		status = cpa_report_read(o->files[i], arena, &runs[i], error);
	*report = (struct cpa_report){.runs = runs, .nruns = o->nfiles, .arena = arena};
	if (status == CPA_OK && o->nfiles == 2 && runs[0].command && runs[1].command &&
		strcmp(runs[0].command, runs[1].command) == 0) {
		status = cpa_report_compare(&runs[0], &runs[1], arena, comparison, error);
		report->comparison = comparison;
	}
	if (status == CPA_OK)
		status = cpa_published_read(arena, &published, &report->npublished, error);
	if (status == CPA_OK)
		report->published = published;
	return status;
}

int cpa_cmd_report(const struct cpa_options *o)
{
	struct cpa_error error = {""};
	struct cpa_arena arena;
	struct cpa_report report;
	struct cpa_plots *plots = calloc((size_t)o->nfiles, sizeof *plots);
	enum cpa_status status;
	int exit_status = 0;

	cpa_arena_init(&arena);
	if (!plots)
		status = cpa_fail(&error, CPA_NO_MEMORY, "out of memory");
	else if (o->nfiles > CPA_REPORT_MAX_FILES)
		status = cpa_fail(&error, CPA_INVALID, "report takes at most %d files, not %d",
			CPA_REPORT_MAX_FILES, o->nfiles);
	else
		status = read_all(o, &arena, &report, &error);
	if (status == CPA_OK) {
		report.plots = plots;
		say_gaps(&report);
	}
	if (status == CPA_OK && o->out)
		status = write_directory(o->out, &report, plots, &error);
	if (status == CPA_OK && o->junit)
		status = write_file(o->junit, write_junit, &report, &error);
	if (status == CPA_OK && o->annotations)
		status = write_file(o->annotations, write_annotations, &report, &error);
	if (status == CPA_OK) {
		say(o, &report);
		exit_status = report.comparison && report.comparison->nregressions > 0;
	} else {
		exit_status = cpa_complain(&error);
	}
	cpa_arena_fini(&arena);
	free(plots);
	return exit_status;
}
