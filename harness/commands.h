/*
 * commands.h - what main() dispatches to.  A command prints its result on stdout, its complaint
 * (one sentence) on stderr, and returns the exit status of COMMAND: 0 right, 1 wrong, 2 cannot
 * tell.
 */
#ifndef CPA_COMMANDS_H
#define CPA_COMMANDS_H

#include "harness/options.h"

int cpa_cmd_verify(const struct cpa_options *options);
int cpa_cmd_random(const struct cpa_options *options); /* verify --random */
int cpa_cmd_plan(const struct cpa_options *options);
int cpa_cmd_check(const struct cpa_options *options); /* and diagnose */
int cpa_cmd_bench(const struct cpa_options *options);
int cpa_cmd_merge(const struct cpa_options *options);
int cpa_cmd_probe(const struct cpa_options *options);
int cpa_cmd_report(const struct cpa_options *options);
int cpa_cmd_list(const struct cpa_options *options);
int cpa_cmd_help(enum cpa_command about);
int cpa_cmd_version(void);

const char *cpa_command_name(enum cpa_command command); /* "verify" */

/* "cpattn: <sentence>" on stderr, on one line whatever the text holds; returns 2. */
int cpa_complain(const struct cpa_error *error);

/* What was built. */
const char *cpa_version(void);
const char *cpa_commit(void);
const char *cpa_features(void); /* "OpenMP HDF5"; "" when nothing is known */

#endif
