/*
 * comm_near.h - messages between processes of one machine that are copied once: the sender names
 * where in its memory they lie, and the receiver copies them from there.  Private to dist/.
 *
 * Where memory cannot be shared, see comm_shared.h, or CPATTN_SHARE is 0, messages go as they
 * are.
 */
#ifndef CPA_COMM_NEAR_H
#define CPA_COMM_NEAR_H

#include "dist/comm_collect.h"

/* The processes of this machine, as this one sees them. */
struct cpa_near;

/* What is sent in place of a message. */
struct cpa_near_note {
	uint64_t token[2]; /* of the sender */
	uint64_t nbytes; /* of the message */
	uint64_t part, part_nbytes; /* where in the file the part lies that holds it */
	uint64_t at; /* in the part */
	uint32_t flag; /* to be raised when it has been copied */
};

/* One message on its way; zero at first. */
struct cpa_near_move {
	struct cpa_near_note note;
	const char *from; /* receiver: in the memory of the sender; NULL: none on its way */
	struct cpa_near_window *window;
	size_t at; /* bytes copied */
	bool offered, sent; /* sender: and not taken yet; the note has gone */
};

/* Gathers arrays of all ranks of the world: own [nbytes] in, all [nranks, nbytes] out. */
typedef enum cpa_status cpa_near_gather(
	const void *own, size_t nbytes, void *all, struct cpa_error *error);
/* cpa_copy_bytes() of kernels.h, which is not part of the module. */
typedef void cpa_near_copier(void *dst, const void *src, size_t nbytes, size_t whole);
/* All ranks of the world do this together.  near is to be destroyed on failure too. */
enum cpa_status cpa_near_meet(int rank, int nranks, cpa_near_copier *copy,
	cpa_near_gather *gather, struct cpa_near **near, struct cpa_error *error);
void cpa_near_destroy(struct cpa_near *near); /* NULL is allowed */
/* Whether all members read each other's memory; all come to the same. */
bool cpa_near_group(const struct cpa_near *near, const struct cpa_comm_group *group);
/* Memory that others can read, until near is destroyed; NULL: there is none. */
const struct cpa_host_memory *cpa_near_memory(struct cpa_near *near);

/* ---- sender ---- */

/* Whether a message can go as a note, which is then in move->note and is sent in its place. */
bool cpa_near_offer(struct cpa_near *near, int rank, const void *data, size_t nbytes,
	struct cpa_near_move *move);
/* Whether the receiver of what was offered is done with it. */
bool cpa_near_taken(struct cpa_near *near, struct cpa_near_move *move);

/* ---- receiver ---- */

/* Whether what came is a note of that rank. */
bool cpa_near_is_note(const struct cpa_near *near, int rank, const void *data, size_t nbytes);
/* Begins to copy what the note in data names; it is to go to data.  CPA_EXTERNAL: its length is
 * in move->note.nbytes and not the expected one, or the memory cannot be seen. */
enum cpa_status cpa_near_accept(struct cpa_near *near, int rank, const void *data,
	size_t expected, struct cpa_near_move *move);
/* Copies at most *budget bytes more, which are taken from it.  True: that was all. */
bool cpa_near_copy(
	struct cpa_near *near, int rank, void *data, struct cpa_near_move *move, size_t *budget);

#endif
