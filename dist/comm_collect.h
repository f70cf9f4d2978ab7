/*
 * comm_collect.h - what a host-driven transport keeps of one group of operations between begin
 * and end. Private to dist/.
 */
#ifndef CPA_COMM_COLLECT_H
#define CPA_COMM_COLLECT_H

#include "dist/dist.h"

enum cpa_transfer_kind { CPA_TRANSFER_SEND, CPA_TRANSFER_RECV, CPA_TRANSFER_GATHER };
/* Messages of an all-gather are told from others. */
enum cpa_transfer_tag { CPA_TAG_MESSAGE = 1, CPA_TAG_GATHER = 2 };

/* A communicator of a transport: the world is number 0 in its list, and has no members. */
struct cpa_comm_group {
	int id; /* its number */
	int nmembers, self; /* self: this rank's place */
	int *members; /* world ranks, owned; NULL: the world */
	bool near; /* all members read each other's memory */
};

/* One operation of the library underneath: a chunk of a piece, or one piece of every member. */
struct cpa_transfer {
	struct cpa_transfer *next;
	enum cpa_transfer_kind kind;
	enum cpa_transfer_tag tag;
	int comm, peer; /* number of the communicator, rank in it */
	int rank; /* of the peer in the world */
	char *data; /* GATHER: where displacements count from */
	size_t nbytes; /* GATHER: of the own piece */
	/* GATHER only: */
	int nmembers;
	int *counts, *displacements; /* [nmembers] bytes */
	const char *own; /* NULL when it stands where it is to be */
	const struct cpa_piece *targets; /* [nmembers] when data is staging, else NULL */
};

struct cpa_transfers {
	struct cpa_transfer *first, **last;
	int n;
	size_t chunk_nbytes;
	struct cpa_arena arena; /* failed: out of memory, which the end of the group tells */
};

void cpa_transfers_init(struct cpa_transfers *list, size_t chunk_nbytes);
void cpa_transfers_fini(struct cpa_transfers *list);
/* A message: its pieces in chunks; empty ones are none.  Returns the bytes of all pieces. */
size_t cpa_transfers_message(struct cpa_transfers *list, enum cpa_transfer_kind kind,
	const struct cpa_comm_group *group, int peer, const struct cpa_piece *pieces, int n);
/*
 * An all-gather: one operation for each piece, or messages where all members' shares of it are
 * more than a chunk, or large and the members near, which all see alike.  Members' shares that lie
 * more than an int apart land in staging.  own and all as in cpa_comm_ops.  Returns the bytes of
 * the own pieces.
 */
size_t cpa_transfers_gather(struct cpa_transfers *list, const struct cpa_comm_group *group,
	const struct cpa_piece *own, const struct cpa_piece *all, int n);
/* A transfer has ended: what came into staging goes where it is to be. */
void cpa_transfer_deliver(const struct cpa_transfer *transfer);
/* Writes what failed: "rank 1 expects 100 bytes from rank 0 in communicator 0: ..."; ranks of the
 * world, of which `rank` is this one. */
void cpa_transfer_fail(const struct cpa_transfer *transfer, int rank, const char *what,
	struct cpa_error *error);

/* CPA_INVALID unless members are ranks of the world, this one among them. */
enum cpa_status cpa_comm_group_init(struct cpa_comm_group *group, const struct cpa_comm *comm,
	int nmembers, const int *members, struct cpa_error *error);
/* The number of the group of these members, in this order, among n; 0, the world, where there is
 * none. */
int cpa_comm_group_find(
	const struct cpa_comm_group *groups, int n, int nmembers, const int *members);
int cpa_comm_group_rank(const struct cpa_comm_group *group, int member); /* its world rank */

#endif
