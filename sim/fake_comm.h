/*
 * fake_comm.h - the inside of the fake communicator: fake_comm.c posts messages, fake_meet.c
 * matches and lands them, fake_run.c decides who moves next and says why nobody can.
 */
#ifndef CPA_FAKE_COMM_H
#define CPA_FAKE_COMM_H

#include "sim/sim.h"

enum cpa_fake_kind { CPA_FAKE_SEND, CPA_FAKE_RECV, CPA_FAKE_GATHER };

/* One call of one rank, from group_end on.  Lives until the world is reset. */
struct cpa_fake_post {
	struct cpa_fake_post *next;   /* in its request */
	struct cpa_fake_post *behind; /* in its channel, while it has not met its partner */
	struct cpa_request *request;
	struct cpa_fake_gather *gather;   /* which all-gather this is */
	struct cpa_fake_payload *payload; /* eager: what was copied away */
	struct cpa_piece *pieces; /* [n], of an all-gather own [n] and all [members][n] */
	size_t nbytes;            /* sent (or expected, of a recv) */
	enum cpa_fake_kind kind;
	int rank, peer; /* world ranks */
	int group, order, member, n;
	bool met; /* a message whose other side is posted too */
};

struct cpa_request {
	struct cpa_request *next; /* in the rank's list of what is not done */
	struct cpa_fake_post *posts, **last;
	int rank, queue;
	int64_t pending; /* landings to come */
};

/* Bytes of a send or an all-gather that still has `uses` landings to come. */
struct cpa_fake_payload {
	struct cpa_fake_payload *next, **link;
	int uses;
	unsigned char *data;
};

/* Messages of one (communicator, source, destination): those that wait are all sends or all
 * recvs. */
struct cpa_fake_channel {
	struct cpa_fake_channel *next;
	int group, src, dst;
	int nsent, nreceived;
	struct cpa_fake_post *first, **last;
};

/* One all-gather of a communicator: the calls so far. */
struct cpa_fake_gather {
	struct cpa_fake_gather *next;
	int order, nposted;
	struct cpa_fake_post **posts; /* [members] */
};

struct cpa_fake_group {
	int nmembers;
	int *members;                    /* NULL: the world */
	struct cpa_fake_gather *gathers; /* not yet called by all */
};

/* A rank's name for a communicator. */
struct cpa_fake_id {
	int group, member, ngathers;
};

struct cpa_fake_rank {
	struct cpa_comm comm; /* first */
	struct cpa_fake_world *world;
	struct cpa_fake_id *ids;
	int nids;
	struct cpa_request *open;    /* between group_begin and group_end */
	struct cpa_request *pending; /* started, not done */
	enum { CPA_FAKE_IDLE, CPA_FAKE_READY, CPA_FAKE_ASLEEP, CPA_FAKE_FINISHED } state;
};

/* A message whose both ends are posted. */
struct cpa_fake_landing {
	struct cpa_fake_post *src, *dst;
};

struct cpa_fake_world {
	int P;
	enum cpa_fake_mode mode;
	uint64_t random;
	struct cpa_fake_rank *ranks; /* [P] */
	struct cpa_fake_group *groups;
	int ngroups;
	struct cpa_fake_channel **table; /* [table_size], by hash; a power of two */
	size_t table_size, nchannels;
	struct cpa_fake_channel *channels;
	struct cpa_fake_landing *landings;
	size_t nlandings, landing_capacity;
	struct cpa_fake_payload *payloads;
	int *ready; /* [P] ranks that may step */
	int nready;
	struct cpa_arena arena; /* posts, channels: this run only */
	enum cpa_status status; /* the first failure, and its sentence */
	struct cpa_error error;
};

/* Keeps the first failure: later ones follow from it. */
void cpa_fake_fail(struct cpa_fake_world *world, enum cpa_status status, const char *format,
	...) __attribute__((format(printf, 3, 4)));
size_t cpa_fake_total(const struct cpa_piece *pieces, int n); /* bytes */
/* Where the pieces of `member` go in an all-gather of this rank; of a recv: its pieces. */
struct cpa_piece *cpa_fake_target(const struct cpa_fake_post *dst, int member);
/* Whether a pair of members of an all-gather has a landing. */
bool cpa_fake_moves(const struct cpa_fake_world *world, size_t nbytes);
/* Fails the run for an empty message. */
void cpa_fake_check_sizes(struct cpa_fake_world *world, const struct cpa_fake_post *post);
/* Looks for the other side; where it is there already, compares both and makes a landing. */
void cpa_fake_meet(struct cpa_fake_world *world, struct cpa_fake_post *post);
int cpa_fake_member(const struct cpa_fake_group *group, int member); /* its world rank */
/* Lands message number i of world->landings and wakes the ranks whose requests that ends. */
void cpa_fake_land(struct cpa_fake_world *world, size_t i);

#endif
