/*
 * output.c - files that are whole or not there.
 */
#define _XOPEN_SOURCE 700 /* realpath() */
#include "harness/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a signal handler must remove.  Set before the file exists, so that no instant is
 * uncovered. */
static char interrupted_path[4096];
static volatile sig_atomic_t interrupted_set;
static bool lost_stdout;

bool cpa_output_lost_stdout(void)
{
	return lost_stdout;
}

static void (*volatile interrupted_clean)(void);

void cpa_output_on_interrupt(void (*clean)(void))
{
	interrupted_clean = clean;
}

void cpa_output_interrupted(void)
{
	if (interrupted_clean)
		interrupted_clean();
	if (interrupted_set)
		unlink(interrupted_path);
}

bool cpa_output_is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

static enum cpa_status cannot(const struct cpa_output *output, const char *what, int code,
	struct cpa_error *error)
{
	bool standard = cpa_output_is_stdout(output->path);

	return cpa_fail(error, CPA_EXTERNAL, "cannot %s %.600s: %s", what,
		standard ? "stdout" : output->path, strerror(code));
}

static void forget(struct cpa_output *output)
{
	interrupted_set = 0;
	free(output->target);
	free(output->temporary);
	*output = (struct cpa_output){ 0 };
}

/* Where the bytes are to end: behind symbolic links, so that a link stays one. */
static char *find_target(const char *path)
{
	char *target = realpath(path, NULL), *copy;
	size_t nbytes = strlen(path) + 1;

	if (target)
		return target;
	copy = malloc(nbytes);
	if (copy)
		memcpy(copy, path, nbytes);
	return copy;
}

static int open_temporary(struct cpa_output *output)
{
	size_t nbytes = strlen(output->target) + 32;

	if (nbytes > sizeof interrupted_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	output->temporary = malloc(nbytes);
	if (!output->temporary)
		return -1;
	snprintf(output->temporary, nbytes, "%s.%ld.tmp", output->target, (long)getpid());
	memcpy(interrupted_path, output->temporary, strlen(output->temporary) + 1);
	interrupted_set = 1;
	return open(output->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
}

enum cpa_status cpa_output_open(struct cpa_output *output, const char *path,
	struct cpa_error *error)
{
	struct stat info;
	int fd;

	*output = (struct cpa_output){ .path = path };
	if (cpa_output_is_stdout(path)) {
		output->file = stdout;
		return CPA_OK;
	}
	output->target = find_target(path);
	if (!output->target)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	/* A device or a pipe cannot be replaced by a rename; it is written in place. */
	if (stat(output->target, &info) == 0 && !S_ISREG(info.st_mode))
		fd = open(output->target, O_WRONLY);
	else
		fd = open_temporary(output);
	output->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!output->file) {
		enum cpa_status status = cannot(output, "write", errno, error);

		if (fd >= 0)
			close(fd);
		if (fd >= 0 && output->temporary)
			unlink(output->temporary);
		forget(output);
		return status;
	}
	return CPA_OK;
}

enum cpa_status cpa_output_commit(struct cpa_output *output, struct cpa_error *error)
{
	FILE *file = output->file;
	enum cpa_status status = CPA_OK;
	int code = 0;

	/* The text of an earlier failure is gone; a full disk is by far the likeliest. */
	if (ferror(file))
		code = errno ? errno : ENOSPC;
	if (fflush(file) != 0)
		code = errno;
	if (file == stdout) {
		if (code)
			status = cannot(output, "write", code, error);
		lost_stdout |= code != 0;
		*output = (struct cpa_output){ 0 };
		return status;
	}
	if (!code && output->temporary && fsync(fileno(file)) != 0)
		code = errno;
	if (fclose(file) != 0 && !code)
		code = errno;
	if (!code && output->temporary && rename(output->temporary, output->target) != 0)
		code = errno;
	if (code)
		status = cannot(output, "write", code, error);
	if (code && output->temporary)
		unlink(output->temporary);
	forget(output);
	return status;
}

void cpa_output_abandon(struct cpa_output *output)
{
	if (output->file && output->file != stdout)
		fclose(output->file);
	if (output->temporary)
		unlink(output->temporary);
	forget(output);
}
