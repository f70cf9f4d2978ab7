/*
 * comm_none.c - takes the place of comm_mpi.c in a build without MPI: starting says so, and
 * nothing else can be reached.
 */
#include "dist/dist.h"

#if !CPA_HAVE_MPI

#include <stdlib.h>

bool cpa_mpi_built(void)
{
	return false;
}

bool cpa_mpi_launched(void)
{
	return false;
}

const char *cpa_mpi_about(void)
{
	return "built without MPI; install libopenmpi-dev and openmpi-bin (or set MPI=1) and "
	       "rebuild";
}

enum cpa_status cpa_mpi_start(struct cpa_error *error)
{
	return cpa_fail(error, CPA_UNSUPPORTED,
		"built without MPI, so ranks cannot be processes; install libopenmpi-dev and "
		"openmpi-bin (or set MPI=1) and rebuild");
}

void cpa_mpi_stop(void)
{
}

void cpa_mpi_abort(int exit_status)
{
	exit(exit_status);
}

enum cpa_status cpa_mpi_gather(const void *own, size_t nbytes, void *all, struct cpa_error *error)
{
	(void)own;
	(void)nbytes;
	(void)all;
	return cpa_mpi_start(error);
}

enum cpa_status cpa_comm_mpi_create(
	size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error)
{
	(void)chunk_nbytes;
	(void)comm;
	return cpa_mpi_start(error);
}

#endif
