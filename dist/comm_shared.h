/*
 * comm_shared.h - memory of this process that others of the machine can read.  Private to dist/.
 *
 * It is a file without a name (memfd_create of Linux), of which parts are given out.  Elsewhere
 * there is none.
 */
#ifndef CPA_COMM_SHARED_H
#define CPA_COMM_SHARED_H

#include "kernels/kernels.h"

#include <stdatomic.h>

enum {
	CPA_SHARED_LEAST = 64 << 10, /* smaller memory is not worth it */
	CPA_SHARED_FLAGS = 1024
};
#define CPA_SHARED_FILE "cpattn-messages" /* part of what the system calls the file */

/* A line each, so that who raises one disturbs no other. */
struct cpa_shared_flag {
	_Alignas(64) _Atomic uint32_t up;
};

/* The file begins with this. */
struct cpa_shared_front {
	uint64_t token[2]; /* of this process alone */
	struct cpa_shared_flag flags[CPA_SHARED_FLAGS];
};

struct cpa_shared_part {
	uint64_t offset; /* in the file */
	size_t nbytes;
	char *memory;
	bool used;
};

struct cpa_shared {
	struct cpa_host_memory memory; /* where parts are taken and given back */
	int fd;
	struct cpa_shared_front *front;
	uint64_t end; /* of the file */
	struct cpa_shared_part *parts;
	int nparts;
	size_t kept; /* bytes given back and not released yet */
};

/* False: not here; there is nothing to close then.  What it takes stands in shared, which stays
 * where it is. */
bool cpa_shared_open(struct cpa_shared *shared);
/* Parts that are still out are gone too. */
void cpa_shared_close(struct cpa_shared *shared);
/* The part in use that holds this address; NULL: none. */
const struct cpa_shared_part *cpa_shared_find(const struct cpa_shared *shared, const void *data);

/* Maps part of the file of this process or another; NULL: cannot be.  munmap() ends it. */
void *cpa_shared_map(int fd, uint64_t offset, size_t nbytes, bool to_write);
size_t cpa_shared_front_nbytes(void); /* in whole pages */

#endif
