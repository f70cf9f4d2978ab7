/*
 * comm_flight.h - how far the operations of one group are, whatever carries them.  Private to
 * dist/.
 */
#ifndef CPA_COMM_FLIGHT_H
#define CPA_COMM_FLIGHT_H

#include "dist/comm_near.h"

struct cpa_flight {
	int rank; /* this one */
	struct cpa_near *near;
	struct cpa_transfers list;
	int n, nleft; /* started; of them not ended */
	struct cpa_transfer **transfers; /* [n] in the order in which they were started */
	struct cpa_near_move *moves; /* [n] */
	enum cpa_progress state;
	struct cpa_error error; /* when FAILED: of the first that failed */
};

/* The list is complete: makes room for the rest, or list.arena.failed. */
void cpa_flight_prepare(struct cpa_flight *flight, int rank, struct cpa_near *near);
/* An operation has failed. */
void cpa_flight_fail(struct cpa_flight *flight, int i, const char *what);
/* So many bytes have come for a receive: they are what was expected, or a fault, or a note that
 * tells where it is. */
void cpa_flight_came(struct cpa_flight *flight, int i, size_t nbytes);
/* A send or an all-gather has nothing more to do here. */
void cpa_flight_went(struct cpa_flight *flight, int i);
/* Copies what is read from the memory of others, at most *budget bytes, which are taken from it.
 * When nothing is left, the state is DONE. */
void cpa_flight_move(struct cpa_flight *flight, size_t *budget);

#endif
