/*
 * diagnose_hang.h - between matching events (diagnose_events.c) and saying what that means
 * (diagnose_hang.c); private to them.
 */
#ifndef CPA_DIAGNOSE_HANG_H
#define CPA_DIAGNOSE_HANG_H

#include "harness/diagnose_events.h"

/* A rank that uses a communicator, and how many of its collectives there it has posted. */
struct cpa_use {
	int communicator, rank;
	int64_t nposted;
};

struct cpa_matching {
	const struct cpa_event *events; /* [n] */
	int64_t n;
	int world;
	/* Of a message the event that it meets, -1: none; of a collective its number among those
	 * of its rank on its communicator. */
	int64_t *partner;
	int64_t *meets; /* of a collective the first event that belongs to it */
	struct cpa_use *uses; /* [nuses] by communicator, then rank */
	int64_t nuses;
	bool *posted; /* [n] */
	int64_t *list, *first; /* events by rank: list[first[r]] .. list[first[r + 1] - 1] */
	int64_t *at; /* [world] place in the list that is not passed */
	int64_t *open; /* [world] place of the first event that a wait or group_end looks at */
	bool *grouped; /* [world] between group_begin and group_end */
};

bool cpa_event_is_message(const struct cpa_event *event);
bool cpa_matching_is_member(const struct cpa_matching *m, int communicator, int rank);
/* Everything of hang but its ranks. */
void cpa_hang_judge(const struct cpa_matching *m, struct cpa_hang *hang);

#endif
