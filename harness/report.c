/*
 * report.c - what all parts of a report share: sums over ranks, names, and where data files lie.
 */
#include "harness/report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CPA_DATADIR
#define CPA_DATADIR "data"
#endif

enum { MAX_FILE = 1 << 30 };

const char *const cpa_report_phases[CPA_REPORT_NPHASES] = {
	"attend", "merge", "copy", "exchange", "wait"};

double cpa_series_sum(const struct cpa_series *series)
{
	double sum = series->n ? 0 : NAN;

	for (int i = 0; i < series->n; i++)
		sum += series->at[i];
	return sum;
}

double cpa_series_max(const struct cpa_series *series)
{
	double max = NAN;

	for (int i = 0; i < series->n; i++)
		max = fmax(max, series->at[i]);
	return max;
}

double cpa_series_imbalance(const struct cpa_series *series)
{
	double sum = cpa_series_sum(series);

	return sum > 0 ? cpa_series_max(series) * series->n / sum : NAN;
}

double cpa_reported_ratio(const struct cpa_reported *r)
{
	return fmax(r->o.ratio, r->lse.ratio);
}

const char *cpa_report_format(struct cpa_arena *arena, const char *format, ...)
{
	va_list arguments, again;
	char *text;
	int n;

	va_start(arguments, format);
	va_copy(again, arguments);
	n = vsnprintf(NULL, 0, format, arguments);
	va_end(arguments);
	text = n < 0 ? NULL : cpa_arena_alloc(arena, (size_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	return text ? text : "";
}

const char *cpa_reported_call(
	const struct cpa_reported *r, const struct cpa_report_run *run, struct cpa_arena *arena)
{
	if (r->file && r->call)
		return cpa_report_format(arena, "%s %s", r->file, r->call);
	if (r->file || r->call)
		return r->file ? r->file : r->call;
	if (r->kernel)
		return "kernels";
	return run->problem ? run->problem : "problem";
}

/* The tree that a program in build/MODE was built in; never what happens to be the current
 * directory: gnuplot runs the scripts. */
static bool find_tree(char *tree, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", tree, size - 1);
	char *slash;

	if (n <= 0)
		return false;
	tree[n] = '\0';
	for (int up = 0; up < 3; up++) {
		slash = strrchr(tree, '/');
		if (!slash)
			return false;
		*slash = '\0';
	}
	return true;
}

bool cpa_report_find(const char *name, char *path, size_t size)
{
	const char *asked = getenv("CPATTN_DATA");
	char tree[4096];
	const char *const roots[] = {asked && asked[0] ? asked : NULL,
		find_tree(tree, sizeof tree) ? tree : NULL, CPA_DATADIR};
	static const char *const under[][2] = {{"", "/.."}, {"", "/data"}, {"", ""}};

	for (int i = 0; i < 3; i++)
		for (int j = 0; roots[i] && j < 2; j++)
			if (snprintf(path, size, "%s%s/%s", roots[i], under[i][j], name) <
					(int)size &&
				access(path, R_OK) == 0)
				return true;
	return false;
}

/* All of a file, by doubling: it may be a pipe. */
static char *read_all(FILE *file, size_t *nbytes)
{
	size_t size = 1 << 16, used = 0;
	char *text = malloc(size), *grown;

	while (text && (used += fread(text + used, 1, size - used, file)) == size) {
		grown = size < MAX_FILE ? realloc(text, size *= 2) : NULL;
		if (!grown) {
			free(text);
			errno = size < MAX_FILE ? ENOMEM : EFBIG;
			return NULL;
		}
		text = grown;
	}
	*nbytes = used;
	return text;
}

enum cpa_status cpa_report_read(const char *path, struct cpa_arena *arena,
	struct cpa_report_run *run, struct cpa_error *error)
{
	FILE *file = fopen(path, "rb");
	size_t nbytes = 0;
	char *text = file ? read_all(file, &nbytes) : NULL;
	enum cpa_status status;

	if (!text || ferror(file))
		status = cpa_fail(
			error, CPA_INVALID, "%.300s: cannot be read: %s", path, strerror(errno));
	else
		status = cpa_report_parse(path, text, nbytes, arena, run, error);
	if (file)
		fclose(file);
	free(text);
	return status;
}
