/*
 * walk.h - the calls of the recordings that a command line names: files, and directories of them.
 */
#ifndef CPA_WALK_H
#define CPA_WALK_H

#include "harness/options.h"
#include "harness/recording.h"

struct cpa_walk {
	const struct cpa_options *options; /* files and --call */
	struct cpa_arena *arena;           /* of names that are handed on */
	void *context;
	/* One call; false ends the walk. */
	bool (*call)(void *context, const char *file, struct cpa_recording *recording, int i,
		const char *name);
	/* A file that cannot be read. */
	void (*bad)(void *context, const char *file, enum cpa_status status, const char *reason);
	/* What all processes make of the opening of a file; NULL: it stands for itself. */
	enum cpa_status (*agree)(void *context, enum cpa_status status, struct cpa_error *error);
	int ncalls; /* out: that matched --call, and bad files, of which nobody knows */
};
/* In the order of the command line; the *.h5 of a directory by name.  False: ended early. */
bool cpa_walk_recordings(struct cpa_walk *walk);

#endif
