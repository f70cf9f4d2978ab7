/*
 * output.h - files that are whole or not there: written under a temporary name beside their own
 * and renamed when complete.  One at a time.  "-" is stdout; what is no regular file (a pipe, a
 * device) is written in place.
 */
#ifndef CPA_OUTPUT_H
#define CPA_OUTPUT_H

#include <stdio.h>

#include "ref/ref.h"

struct cpa_output {
	FILE *file;               /* to write to; errors are found by cpa_output_commit() */
	const char *path;         /* borrowed, as the user named it */
	char *target, *temporary; /* after links; NULL temporary: written in place */
};
/* CPA_EXTERNAL with the path and the system's text. */
enum cpa_status cpa_output_open(struct cpa_output *output, const char *path,
	struct cpa_error *error);
/* Flushes to disk and renames; on failure the temporary file is removed.  Ends the output. */
enum cpa_status cpa_output_commit(struct cpa_output *output, struct cpa_error *error);
/* Drops what was written.  Ends the output. */
void cpa_output_abandon(struct cpa_output *output);

/* Whether path, which may be NULL, is "-". */
bool cpa_output_is_stdout(const char *path);

/* Writing to stdout has failed and was reported: once is enough. */
bool cpa_output_lost_stdout(void);

/* What else an interrupt must remove; NULL: nothing.  clean is called in a signal handler. */
void cpa_output_on_interrupt(void (*clean)(void));
/* Removes the temporary file of the open output, if any.  For signal handlers:
 * async-signal-safe. */
void cpa_output_interrupted(void);

#endif
