/*
 * report_plot.c - writes what is to be plotted as plain tables, and lets gnuplot draw them by the
 * scripts in reports/.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/report.h"

enum { MOST_GROUPS = 32, MOST_BARS = 24, MOST_PATH = 4096, NOT_THERE = 127 };

/* ---- tables for gnuplot ---- */

/* In quotes; what gnuplot or a shell could take for more than text becomes '_'. */
static void put_label(FILE *out, const char *text)
{
	fputc('"', out);
	for (int n = 0; *text && n < 60; text++, n++) {
		bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
			(*text >= '0' && *text <= '9') || strchr(" .,:=-+", *text);

		fputc(plain ? *text : '_', out);
	}
	fputc('"', out);
}

struct groups {
	const char *names[MOST_GROUPS];
	int sizes[MOST_GROUPS], n;
};

static const char *group_name(const struct cpa_reported *r)
{
	return r->variant ? r->variant : r->part >= -1 ? r->label : NULL;
}

/* The group of a result, -1 where it has none. */
static int find_group(struct groups *g, const struct cpa_reported *r)
{
	const char *name = group_name(r);
	int i = 0;

	if (!name)
		return -1;
	while (i < g->n && strcmp(g->names[i], name) != 0)
		i++;
	if (i == MOST_GROUPS)
		return -1;
	if (i == g->n) {
		g->names[g->n] = name;
		g->sizes[g->n++] = 0;
	}
	return i;
}

/* What a result has to show, `which` of it; false: nothing, or nothing that can be drawn. */
typedef bool value_function(const struct cpa_reported *r, int which, double *value);

static bool show_error(const struct cpa_reported *r, int which, double *value)
{
	*value = which == 0 ? r->o.ratio : r->lse.ratio;
	return isfinite(*value) && *value > 0;
}

static bool show_bytes(const struct cpa_reported *r, int which, double *value)
{
	*value = 1e-6 *
		(which == 0 ? cpa_series_sum(&r->bytes_sent) : cpa_series_max(&r->peak_bytes));
	return isfinite(*value) && *value > 0;
}

static bool show_balance(const struct cpa_reported *r, int which, double *value)
{
	if (which >= r->work.n)
		return false;
	*value = r->work.at[which] * r->work.n / cpa_series_sum(&r->work);
	return r->work.n > 1 && isfinite(*value);
}

/* Points of one kind: x is the group, results side by side within it. */
static int put_points(FILE *out, const struct cpa_report_run *run, struct groups *groups,
	value_function *show, int which)
{
	int seen[MOST_GROUPS] = {0}, n = 0;
	double value;

	for (int i = 0; i < run->n; i++) {
		const struct cpa_reported *r = &run->results[i];
		int g = find_group(groups, r);

		if (g < 0)
			continue;
		if (show(r, which, &value)) {
			fprintf(out, "%.4f %.9g\n",
				g - 0.35 + 0.7 * (seen[g] + 0.5) / groups->sizes[g], value);
			n++;
		}
		seen[g]++;
	}
	if (n == 0)
		fputs("NaN NaN\n", out);
	fputs("\n\n", out);
	return n;
}

/* A block of names, then one of points for each of `kinds` */
static bool put_groups(
	FILE *out, const struct cpa_report_run *run, value_function *show, int kinds)
{
	struct groups groups = {.n = 0};
	int n = 0;

	for (int i = 0; i < run->n; i++) {
		int g = find_group(&groups, &run->results[i]);

		if (g >= 0)
			groups.sizes[g]++;
	}
	for (int g = 0; g < groups.n; g++) {
		fprintf(out, "%d ", g);
		put_label(out, groups.names[g]);
		fputc('\n', out);
	}
	if (groups.n)
		fputs("\n\n", out);
	for (int k = 0; k < kinds; k++)
		n += put_points(out, run, &groups, show, k);
	return n > 0;
}

static bool put_error(FILE *out, const struct cpa_report_run *run)
{
	return put_groups(out, run, show_error, 2);
}

static bool put_bytes(FILE *out, const struct cpa_report_run *run)
{
	return put_groups(out, run, show_bytes, 2);
}

static bool put_balance(FILE *out, const struct cpa_report_run *run)
{
	int most = 0;

	for (int i = 0; i < run->n; i++)
		most = run->results[i].work.n > most ? run->results[i].work.n : most;
	return most > 1 && put_groups(out, run, show_balance, most < 64 ? most : 64);
}

static int by_time(const void *a, const void *b)
{
	const struct cpa_reported *const *x = a, *const *y = b;

	return ((*x)->seconds.min > (*y)->seconds.min) - ((*x)->seconds.min < (*y)->seconds.min);
}

/* Bars, the fastest first. */
static bool put_time(FILE *out, const struct cpa_report_run *run)
{
	const struct cpa_reported **at = malloc(((size_t)run->n + 1) * sizeof *at);
	int n = 0;

	for (int i = 0; at && i < run->n; i++)
		if (run->results[i].variant && run->results[i].seconds.n > 0)
			at[n++] = &run->results[i];
	if (at)
		qsort(at, (size_t)n, sizeof *at, by_time);
	for (int i = 0; i < n && i < MOST_BARS; i++) {
		put_label(out, at[i]->label);
		for (int p = 0; p < CPA_REPORT_NPHASES; p++)
			fprintf(out, " %.9g",
				isfinite(at[i]->phases[p]) ? 1e3 * at[i]->phases[p] : 0);
		fputc('\n', out);
	}
	free(at);
	return n > 0;
}

/* A block for each variant: its best speedup in each world, ascending. */
static bool put_scaling(FILE *out, const struct cpa_report_run *run)
{
	struct groups groups = {.n = 0};
	int nblocks = 0;

	for (int i = 0; i < run->n; i++)
		find_group(&groups, &run->results[i]);
	for (int g = 0; g < groups.n; g++) {
		int last = 0, rows = 0;

		for (;;) {
			int world = 0;
			double best = NAN;

			for (int i = 0; i < run->n; i++) {
				const struct cpa_reported *r = &run->results[i];

				if (!r->variant || strcmp(r->variant, groups.names[g]) != 0 ||
					r->ranks <= last || !isfinite(r->speedup))
					continue;
				if (world == 0 || r->ranks < world)
					best = NAN;
				if (world == 0 || r->ranks <= world) {
					world = r->ranks;
					best = fmax(best, r->speedup);
				}
			}
			if (world == 0)
				break;
			if (rows++ == 0)
				put_label(out, groups.names[g]);
			fprintf(out, "%s%d %.9g\n", rows == 1 ? "\n" : "", world, best);
			last = world;
		}
		if (rows)
			fputs("\n\n", out);
		nblocks += rows > 0;
	}
	return nblocks > 0;
}

/* ---- gnuplot ---- */

/* From the root: gnuplot runs in another directory.  full [2 MOST_PATH] */
static bool find_full(const char *path, char *full)
{
	size_t n = 0;

	if (path[0] != '/') {
		if (!getcwd(full, MOST_PATH))
			return false;
		n = strlen(full);
		full[n++] = '/';
	}
	snprintf(full + n, MOST_PATH, "%s", path);
	return true;
}

/* Runs it in directory with the style and one script; its exit status, NOT_THERE without gnuplot.
 */
static int run_gnuplot(
	const char *directory, const char *setting, const char *style, const char *script)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_RDWR);

		if (null < 0 || chdir(directory) != 0)
			_exit(1);
		for (int fd = 0; fd <= 2; fd++)
			dup2(null, fd);
		execlp("gnuplot", "gnuplot", "-e", setting, style, script, (char *)NULL);
		_exit(NOT_THERE);
	}
	if (child < 0)
		return 1;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/*
 * The drawing from its first element on.  gnuplot gives marks the same ids in every file; in one
 * page they must differ, so the name of the plot goes before them.
 */
static char *read_svg(const char *path, const char *name, struct cpa_arena *arena)
{
	FILE *file = fopen(path, "r");
	long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	char *text = size > 0 ? malloc((size_t)size + 1) : NULL, *made = NULL, *to;
	size_t n = 0, names = 0, length = strlen(name);

	if (text) {
		rewind(file);
		n = fread(text, 1, (size_t)size, file);
		text[n] = '\0';
	}
	for (char *c = text; c && (c = strstr(c, "gp")); c++)
		names++;
	if (text && strstr(text, "<svg") && strstr(text, "</svg>"))
		made = cpa_arena_alloc(arena, n + names * (length + 1) + 1);
	to = made;
	for (char *c = made ? strstr(text, "<svg") : NULL; c && *c; c++) {
		if (c[0] == 'g' && c[1] == 'p' && (c[-1] == '\'' || c[-1] == '#')) {
			memcpy(to, name, length);
			to += length;
			*to++ = '_';
		}
		*to++ = *c;
	}
	free(text);
	if (file)
		fclose(file);
	return made;
}

static const struct drawing {
	const char *name, *caption;
	bool (*put)(FILE *out, const struct cpa_report_run *run);
} drawings[] = {
	{"error", "Errors over their bounds; above 1 is wrong", put_error},
	{"bytes", "Bytes that all ranks send, and the memory of the fullest rank", put_bytes},
	{"balance", "Work of each rank over the mean of its world", put_balance},
	{"time", "Where the time of the fastest repetition goes", put_time},
	{"scaling", "How often the fastest run fits into that of one rank", put_scaling},
};

const char *cpa_report_plot_name(int i)
{
	return i >= 0 && i < (int)(sizeof drawings / sizeof drawings[0]) ? drawings[i].name
									 : NULL;
}

/* CPA_OK also where gnuplot fails: why is in plots. */
static enum cpa_status draw(const struct drawing *d, const struct cpa_report_run *run, int number,
	const char *directory, const char *const scripts[2], struct cpa_arena *arena,
	struct cpa_plots *plots, struct cpa_error *error)
{
	static const char *const kinds[] = {"svg", "png"};
	struct cpa_plot *plot = &plots->at[plots->n];
	char path[MOST_PATH], setting[100];
	FILE *out;
	bool any;
	int status = 0;

	*plot = (struct cpa_plot){.caption = d->caption};
	snprintf(plot->name, sizeof plot->name, "%s", d->name);
	if (number > 1)
		snprintf(plot->name, sizeof plot->name, "%s_%d", d->name, number);
	snprintf(path, sizeof path, "%s/%s.dat", directory, plot->name);
	out = fopen(path, "w");
	if (!out)
		return cpa_fail(
			error, CPA_EXTERNAL, "cannot write %.600s: %s", path, strerror(errno));
	any = d->put(out, run);
	if (fclose(out) != 0)
		return cpa_fail(
			error, CPA_EXTERNAL, "cannot write %.600s: %s", path, strerror(errno));
	for (int k = 0; any && k < 2 && status == 0; k++) {
		snprintf(setting, sizeof setting, "name='%s'; kind='%s'", plot->name, kinds[k]);
		status = run_gnuplot(directory, setting, scripts[0], scripts[1]);
	}
	unlink(path);
	if (!any)
		return CPA_OK;
	snprintf(path, sizeof path, "%s/%s.svg", directory, plot->name);
	plot->svg = status == 0 ? read_svg(path, plot->name, arena) : NULL;
	plots->n += plot->svg != NULL;
	if (!plot->svg) {
		unlink(path);
		snprintf(path, sizeof path, "%s/%s.png", directory, plot->name);
		unlink(path);
	}
	if (status == NOT_THERE)
		snprintf(plots->why, sizeof plots->why,
			"There are no plots: gnuplot is not installed (on Debian and Ubuntu it "
			"is in "
			"gnuplot-nox).");
	else if (!plot->svg)
		snprintf(plots->why, sizeof plots->why,
			"Not every plot is here: gnuplot failed on %.200s.", scripts[1]);
	return CPA_OK;
}

enum cpa_status cpa_report_plot(const struct cpa_report_run *run, int number,
	const char *directory, struct cpa_arena *arena, struct cpa_plots *plots,
	struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	*plots = (struct cpa_plots){.n = 0};
	for (size_t i = 0; i < sizeof drawings / sizeof drawings[0] && status == CPA_OK; i++) {
		char name[64], style[MOST_PATH], script[MOST_PATH], full[2][2 * MOST_PATH];

		snprintf(name, sizeof name, "reports/%s.gp", drawings[i].name);
		if (!cpa_report_find("reports/style.gp", style, sizeof style) ||
			!cpa_report_find(name, script, sizeof script)) {
			snprintf(plots->why, sizeof plots->why,
				"There are no plots: %s is neither in the tree of this build "
				"nor installed.",
				name);
			return CPA_OK;
		}
		if (!find_full(style, full[0]) || !find_full(script, full[1]))
			return cpa_fail(error, CPA_EXTERNAL, "cannot find %.300s: %s", script,
				strerror(errno));
		status = draw(&drawings[i], run, number, directory,
			(const char *const[]){full[0], full[1]}, arena, plots, error);
		if (strstr(plots->why, "not installed"))
			break;
	}
	return status;
}
