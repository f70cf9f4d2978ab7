/*
 * diagnose_events.h - why ranks wait for ever: what they issued, matched as without any buffers.
 */
#ifndef CPA_DIAGNOSE_EVENTS_H
#define CPA_DIAGNOSE_EVENTS_H

#include <stdio.h>

#include "harness/json.h"
#include "harness/recording.h"

/* Where one rank is in the end. */
struct cpa_hung_rank {
	int64_t nevents, event; /* its pending one, by number in the log; -1: it has finished */
	int waits_for; /* a rank; -1: none, or one that there is not */
	bool peer_finished; /* that rank has nothing more to issue */
	bool unmatched; /* the event has no counterpart in the log */
};

struct cpa_hang {
	int world, nwaiting;
	int64_t nevents;
	const struct cpa_event *events; /* borrowed */
	struct cpa_hung_rank *ranks; /* [world] */
	int ncycle, *cycle; /* ranks, each waiting for the next and the last for the first */
	int chain_end; /* without a cycle: the finished rank that others wait for; -1: none */
	int64_t mismatch[2]; /* two events that match in all but their bytes; -1: none */
	bool wrong;
	int nclasses; /* of the fault dictionary; more than one: the log does not tell them apart
		       */
	const char *classes[4];
	char text[400]; /* the verdict, a sentence without a full stop */
};

/* world: at least so many ranks there are.  Lists are made in arena. */
enum cpa_status cpa_hang_find(const struct cpa_event *events, int64_t nevents, int world,
	struct cpa_arena *arena, struct cpa_hang *hang, struct cpa_error *error);
void cpa_hang_print(FILE *out, const struct cpa_hang *hang);
/* The member "hang" of a result. */
void cpa_hang_put_json(struct cpa_json *json, const struct cpa_hang *hang);

#endif
