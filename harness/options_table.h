/*
 * options_table.h - the table of options: the only place that names them.  Parsing, help and
 * the suggestions all read it.  Private to the harness.
 */
#ifndef CPA_OPTIONS_TABLE_H
#define CPA_OPTIONS_TABLE_H

#include "harness/options.h"

typedef enum cpa_status cpa_option_set(struct cpa_options *options, const char *value,
	struct cpa_error *error);

struct cpa_option_info {
	const char *name;  /* "--ring" */
	const char *value; /* of the value, for people: "N"; NULL: takes none */
	unsigned commands; /* bits 1 << enum cpa_command */
	cpa_option_set *set;
	const char *help;
};
const struct cpa_option_info *cpa_option_info(int i); /* NULL past the end */
/* The part of the table that chooses configurations, likewise. */
const struct cpa_option_info *cpa_option_config_info(int i);

struct cpa_command_info {
	const char *name;
	enum cpa_command command;
	const char *usage, *summary, *examples;
};
const struct cpa_command_info *cpa_command_info(int i); /* NULL past the end */

/* "list, verify or plan": all commands but help. */
const char *cpa_command_list(void);

/* What only the whole line shows: inputs, outputs and sizes that contradict each other. */
enum cpa_status cpa_options_check(struct cpa_options *options, bool fill_asked,
	struct cpa_error *error);

/* Why a command that this project knows is not here yet; NULL: it is, or is unknown. */
const char *cpa_later_command(const char *name);

#endif
