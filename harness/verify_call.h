/*
 * verify_call.h - what the verify command shares between its two halves: which calls there are
 * (cmd_verify.c), and one call in all its configurations (verify_call.c).
 */
#ifndef CPA_VERIFY_CALL_H
#define CPA_VERIFY_CALL_H

#include "harness/rank_rows.h"
#include "harness/verify.h"
#include "harness/world.h"

struct cpa_verify_session {
	const struct cpa_options *options;
	struct cpa_options own_options; /* what options points to: --ranks is the world there is */
	int64_t size;                   /* of that world */
	struct cpa_device *device;
	struct cpa_world *world; /* of processes; NULL: all ranks are in this one */
	int fault; /* -1: none */
	struct cpa_result_list results;
	struct cpa_arena arena; /* names and problems that results point to */
	bool progress;          /* stderr is a terminal */
	bool ran[CPA_NVARIANTS];
	int ncalls;             /* that matched --call */
	enum cpa_status status; /* out of memory ends the command */
	struct cpa_error error;
};

/* One call: where it is from, and what configurations it runs in. */
struct cpa_verify_call {
	struct cpa_verify_session *session;
	const char *file, *name; /* file NULL: --problem */
	const struct cpa_problem *problem;
	struct cpa_guidance guidance; /* of a recording, then what runs; nbranches 0: none */
	struct cpa_config *configs;
	int nconfigs, capacity;
	bool failed; /* out of memory */
};

/* A verdict on a whole call (or on a file that shows none: call NULL). */
void cpa_verify_add_verdict(struct cpa_verify_session *s, const char *file, const char *call,
	const struct cpa_problem *problem, enum cpa_status status, const char *reason);

/* All configurations of the call; results go to the session.  source: its tensors. */
void cpa_verify_call_run(struct cpa_verify_call *call, const struct cpa_source *source);

/* The command line that repeats one configuration.  file NULL: of options->problem_text.  The caller's
 * to free; NULL when out of memory. */
char *cpa_verify_line(const struct cpa_options *options, const char *file, const char *name,
	const struct cpa_config *config, const struct cpa_verify_trace *trace);

#endif
