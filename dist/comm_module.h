/*
 * comm_module.h - the transport over MPI as a shared object of its own, which is loaded when
 * ranks are to be processes: libraries of MPI take three times as long to load as all else.
 * Private to dist/.
 */
#ifndef CPA_COMM_MODULE_H
#define CPA_COMM_MODULE_H

#include "dist/dist.h"

/* Module and library are of one build when these agree. */
#define CPA_MODULE_LAYOUT                                                                        \
	(sizeof(struct cpa_comm_ops) << 20 | sizeof(struct cpa_comm) << 10 |                     \
		sizeof(struct cpa_mpi_module))
#define CPA_MODULE_FILE "cpattn_mpi.so"

/* What the module needs of kernels, which it does not hold. */
struct cpa_mpi_services {
	void (*copy_bytes)(void *dst, const void *src, size_t nbytes, size_t whole);
};

/* The functions of dist.h. */
struct cpa_mpi_module {
	size_t layout;
	const char *version; /* of the sources */
	const char *(*about)(void);
	enum cpa_status (*start)(
		const struct cpa_mpi_services *services, struct cpa_error *error);
	void (*stop)(void);
	void (*abort)(int exit_status);
	enum cpa_status (*gather)(
		const void *own, size_t nbytes, void *all, struct cpa_error *error);
	enum cpa_status (*create)(
		size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error);
};

/* The one name that the module exports. */
extern const struct cpa_mpi_module cpa_mpi_module;

#endif
