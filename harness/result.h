/*
 * result.h - the record of one configuration, and everything that prints records: the table for people,
 * JSON, JUnit and CSV (COMMAND sections 4 and 5).
 */
#ifndef CPA_RESULT_H
#define CPA_RESULT_H

#include <stdio.h>

#include "harness/options.h"

enum cpa_verdict { CPA_VERDICT_RIGHT, CPA_VERDICT_WRONG, CPA_VERDICT_UNSUPPORTED, CPA_VERDICT_CANNOT_TELL };
const char *cpa_verdict_name(enum cpa_verdict verdict);

/* How far one output is off.  NaN means "does not exist" and prints as null. */
struct cpa_deviation {
	double rel_l2, error, bound, ratio; /* error and bound of the worst element (largest error/bound) */
	double soft_ratio;
	int64_t batch, token, head, dim;    /* of the worst element; -1: none */
};

struct cpa_check_part;
struct cpa_diagnosis;
struct cpa_hang;
struct cpa_peer_answer;
struct cpa_result {
	const char *file, *call;            /* borrowed; file NULL for --problem */
	bool has_config;                    /* false: the whole call (cannot_tell, unsupported) */
	struct cpa_config config;
	const struct cpa_problem *problem;  /* NULL when the call could not be read */
	const char *device, *comm;
	enum cpa_verdict verdict;
	char reason[1024];                  /* "" when right */
	char *reproduce;                    /* command line that repeats a wrong result, owned by the list; NULL */
	struct cpa_deviation o, lse;
	struct cpa_guidance guidance;       /* nbranches 0: none */
	struct cpa_deviation combined;      /* of its result; batch counts results, not branches */
	double probe_ratio;                 /* NaN: none */
	int W;
	struct cpa_counts *counts;          /* [W], owned by the list; NULL: none */
	uint64_t *hashes;                   /* [W] of the bits of each rank's o and lse, behind counts; NULL: none */
	double seconds;                     /* NaN in plan */
	bool has_proof, proved;             /* plan */
	const struct cpa_check_part *part;  /* check: where it is wrong; borrowed; NULL: none */
	const struct cpa_diagnosis *diagnosis; /* diagnose: of the first part of a call; borrowed */
	const struct cpa_hang *hang;        /* diagnose: of the events of a call; borrowed; NULL: none */
	const struct cpa_peer_answer *as;   /* plan --as: of that system; borrowed; NULL: none */
	const char **not_shown;             /* check: blind spots of the run, ended by NULL; NULL: none */
	int fault;                          /* verify: number of the planted one, -1: none */
	int fault_rank, fault_op, fault_hop, fault_block; /* where; -1: of no one */
	char planted[256];                  /* the same in words */
	struct cpa_measured *measured;      /* bench: times; owned by the list; NULL: none */
};
void cpa_result_init(struct cpa_result *result); /* all "does not exist" */
/* Makes counts [W], with room behind them for hashes [W], which stays NULL until that is filled. */
struct cpa_counts *cpa_result_alloc_counts(int W); /* malloc; NULL: out of memory */
uint64_t *cpa_result_hash_room(const struct cpa_result *result);

struct cpa_json;
struct cpa_result_list {
	struct cpa_result *at;
	int n, capacity;
	/* Further members of the JSON, before the results; NULL: none. */
	void (*put_members)(struct cpa_json *json, const void *context);
	const void *context;
};
/* Takes over result->counts, reproduce and measured; on CPA_NO_MEMORY they stay the caller's. */
enum cpa_status cpa_result_list_add(struct cpa_result_list *list, const struct cpa_result *result);
void cpa_result_list_fini(struct cpa_result_list *list);

/* The exchange of sizes before a plan, which is not in its bytes_sent. */
struct cpa_preamble {
	int64_t record_bytes;   /* what each rank tells */
	int64_t bytes;          /* sent by each rank, to each of the others */
	int messages;           /* of each rank */
};
/* false: there is none: no plan, or more split segments than a record holds, so that every rank must be
 * given all sizes. */
bool cpa_result_preamble(const struct cpa_result *result, struct cpa_preamble *preamble);

struct cpa_summary {
	int right, wrong, unsupported, cannot_tell;
};
struct cpa_summary cpa_result_summary(const struct cpa_result_list *list);

/* A variant asked for by name has no result that is right or wrong. */
bool cpa_result_ran_nowhere(const struct cpa_result_list *list, const struct cpa_options *options);

/* Exit status by COMMAND section 4.  ran_nowhere: something asked for by name never ran. */
int cpa_result_exit(const struct cpa_result_list *list, bool ran_nowhere);

/* The table for people: one line a call and variant, or each configuration when verbose; then the
 * summary: what was right, what was refused and why, worst error over bound and where. */
void cpa_result_table(FILE *out, const struct cpa_result_list *list, const struct cpa_options *options);

/* Stdout belongs to one of those files: nothing else goes there. */
bool cpa_result_takes_stdout(const struct cpa_options *options);

/* Writes every file asked for by --json, --junit, --csv ("-": stdout), atomically (temporary name, then
 * rename).  CPA_EXTERNAL with the system's text on a full disk, a missing directory, a closed pipe. */
enum cpa_status cpa_result_write(const struct cpa_result_list *list, const struct cpa_options *options,
	struct cpa_error *error);

#endif
