/*
 * check_peers.h - what is kept of every rank for rules 3 and 4; private to the checker.
 */
#ifndef CPA_CHECK_PEERS_H
#define CPA_CHECK_PEERS_H

#include "dist/check.h"

/* One end of a message, or one member's part in a collective. */
struct cpa_end {
	int from, to;      /* world ranks; of a collective: index of the communicator, and the member */
	int order;         /* how many before it between the same two (in the same communicator) */
	int rank, op;
	int node;          /* global index of its step */
	int nboxes, nown;  /* of a collective: all boxes, and the member's own behind them */
	const struct cpa_content *boxes;
};
struct cpa_ends {
	struct cpa_end *at;
	int n, capacity;
};

/* One step of one rank that waits, is waited for or communicates: a node of the event graph. */
struct cpa_node {
	int rank, op;
	int queue;
	int waits[CPA_NQUEUES]; /* global node indices */
	int kind, peer;         /* of its first op, for sentences */
};

struct cpa_peers {
	int W;
	struct cpa_ends sends, recvs, collectives;
	struct cpa_node *nodes;
	int nnodes, nodes_capacity;
	struct cpa_communicator *comms; /* distinct lists of members */
	int ncomms, comms_capacity;
	int *order;                     /* [2 W] scratch: messages so far to and from each peer */
	bool many_queues;               /* some rank uses more than one communication queue */
	struct cpa_arena arena;
};

/* The order of calls of collectives: by communicator, then order, then member. */
int cpa_end_by_call(const void *a, const void *b);

#endif
