/*
 * cmd_merge.c - the command merge: what ranks recorded, file by file, into one recording.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/commands.h"
#include "harness/recording_part.h"

static int is_part(const struct dirent *entry)
{
	return fnmatch("*.h5", entry->d_name, FNM_PERIOD) == 0;
}

/* The *.h5 of a directory; unfinished files have other names. */
static enum cpa_status add_directory(struct cpa_parts *parts, const char *directory,
	const char *glob, int *nfiles, struct cpa_error *error)
{
	struct dirent **entries = NULL;
	const int n = scandir(directory, &entries, is_part, alphasort);
	enum cpa_status status = CPA_OK;

	if (n < 0)
		return cpa_fail(error, CPA_INVALID, "%.600s: %s", directory, strerror(errno));
	if (n == 0)
		status = cpa_fail(error, CPA_INVALID,
			"%.600s: a directory without *.h5 files; expected one for "
			"each call and rank, as cpattn_record.py writes them",
			directory);
	for (int i = 0; i < n; i++) {
		char path[4096];
		const int length = snprintf(
			path, sizeof path, "%s/%s", directory, entries[i]->d_name);

		if (status == CPA_OK && length >= (int)sizeof path)
			status = cpa_fail(
				error, CPA_INVALID, "%.600s: the name is too long", directory);
		if (status == CPA_OK)
			status = cpa_parts_add(parts, path, glob, error);
		free(entries[i]);
	}
	free(entries);
	*nfiles += n;
	return status;
}

static enum cpa_status add_all(struct cpa_parts *parts, const struct cpa_options *o, int *nfiles,
	struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < o->nfiles && status == CPA_OK; i++) {
		struct stat about;

		if (stat(o->files[i], &about) == 0 && S_ISDIR(about.st_mode)) {
			status = add_directory(parts, o->files[i], o->call_glob, nfiles, error);
		} else {
			status = cpa_parts_add(parts, o->files[i], o->call_glob, error);
			*nfiles += 1;
		}
	}
	if (status == CPA_OK && parts->n == 0)
		return cpa_fail(error, CPA_INVALID, "no call matches --call %.200s",
			o->call_glob ? o->call_glob : "'*'");
	return status;
}

int cpa_cmd_merge(const struct cpa_options *options)
{
	struct cpa_parts parts = {0};
	struct cpa_error error = {""};
	int ncalls = 0, nfiles = 0, world = 1;
	struct stat about;
	enum cpa_status status = add_all(&parts, options, &nfiles, &error);

	cpa_parts_sort(&parts);
	if (status == CPA_OK)
		status = cpa_parts_merge(&parts, options->out, &ncalls, &error);
	for (int i = 0; i < parts.n; i++)
		world = parts.at[i].world > world ? parts.at[i].world : world;
	cpa_parts_fini(&parts);
	if (status != CPA_OK)
		return cpa_complain(&error);
	if (stat(options->out, &about) != 0)
		about.st_size = 0;
	printf("%s: %d call%s of %d rank%s, from %d file%s, %.1f MB\n", options->out, ncalls,
		ncalls == 1 ? "" : "s", world, world == 1 ? "" : "s", nfiles,
		nfiles == 1 ? "" : "s", (double)about.st_size / 1e6);
	printf("judge it with: cpattn check %s\n", options->out);
	return 0;
}
