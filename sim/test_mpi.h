/*
 * test_mpi.h - what tests that start mpirun share.
 */
#ifndef CPA_TEST_MPI_H
#define CPA_TEST_MPI_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Containers are often root and have fewer cores than ranks; memory that MPI keeps is no leak of
 * ours. */
static inline void set_environment(void)
{
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
	setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
}

static inline bool find_mpirun(void)
{
	if (system("mpirun --version >/dev/null 2>&1") == 0)
		return true;
	fprintf(stderr,
		"there is no mpirun (install openmpi-bin): tests among processes are skipped\n");
	return false;
}

#endif
