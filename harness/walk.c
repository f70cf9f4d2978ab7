/*
 * walk.c - the calls of the recordings that a command line names.
 */
#include "harness/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *keep(struct cpa_walk *walk, const char *text)
{
	char *copy = cpa_arena_alloc(walk->arena, strlen(text) + 1);

	if (copy)
		strcpy(copy, text);
	return copy;
}

static bool walk_file(struct cpa_walk *walk, const char *path)
{
	struct cpa_recording *recording;
	struct cpa_error error = {""};
	const char *file = keep(walk, path), *glob = walk->options->call_glob;
	enum cpa_status status, opened;
	bool going = true;

	if (!file)
		return false;
	opened = status = cpa_recording_open(path, &recording, &error);
	if (walk->agree)
		status = walk->agree(walk->context, opened, &error);
	if (status != CPA_OK) {
		if (opened == CPA_OK)
			cpa_recording_close(recording);
		walk->ncalls++;
		walk->bad(walk->context, file, status, error.text);
		return true;
	}
	for (int i = 0; going && i < cpa_recording_ncalls(recording); i++) {
		const char *name = keep(walk, cpa_recording_call_name(recording, i));

		if (!name || (glob && fnmatch(glob, name, 0) != 0))
			continue;
		walk->ncalls++;
		going = walk->call(walk->context, file, recording, i, name);
	}
	cpa_recording_close(recording);
	return going && !walk->arena->failed;
}

static int is_recording(const struct dirent *entry)
{
	return fnmatch("*.h5", entry->d_name, FNM_PERIOD) == 0;
}

static bool walk_directory(struct cpa_walk *walk, const char *path)
{
	struct dirent **entries = NULL;
	int n = scandir(path, &entries, is_recording, alphasort);
	char reason[320];
	bool going = true;

	if (n <= 0) {
		snprintf(reason, sizeof reason,
			n < 0 ? "%.200s: %s" : "%.200s: a directory without *.h5 files", path,
			strerror(errno));
		walk->ncalls++;
		walk->bad(walk->context, keep(walk, path), CPA_INVALID, reason);
	}
	for (int i = 0; i < n; i++) {
		size_t size = strlen(path) + strlen(entries[i]->d_name) + 2;
		char *name = cpa_arena_alloc(walk->arena, size);

		if (name)
			snprintf(name, size, "%s%s%s", path,
				path[0] && path[strlen(path) - 1] == '/' ? "" : "/",
				entries[i]->d_name);
		going = going && name && walk_file(walk, name);
		free(entries[i]);
	}
	free(entries);
	return going;
}

bool cpa_walk_recordings(struct cpa_walk *walk)
{
	bool going = true;

	walk->ncalls = 0;
	for (int i = 0; i < walk->options->nfiles && going; i++) {
		const char *path = walk->options->files[i];
		struct stat about;

		going = stat(path, &about) == 0 && S_ISDIR(about.st_mode)
			? walk_directory(walk, path)
			: walk_file(walk, path);
	}
	return going;
}
