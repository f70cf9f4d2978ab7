/*
 * comm_load.c - finds the module that speaks MPI and loads it, at the first call that needs it.
 *
 * Looked for beside the object that holds this code, the library or the program, and beside the
 * program: as the build leaves it and as `make install` does; then where this build would install
 * it.
 */
#ifdef __linux__
#define _GNU_SOURCE /* dladdr */
#endif
#include "dist/comm_module.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

static const struct cpa_mpi_module *module; /* NULL: not loaded */

bool cpa_mpi_launched(void)
{
	return CPA_HAVE_MPI &&
		(getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK"));
}

/* ---- where it is ---- */

/* Beside a file, whose name is cut: as the build leaves it, for tests too, and as it is
 * installed, for the library and for the program. */
static bool beside(char *file, char *path)
{
	static const char *const places[] = {"", "../", "../lib/cpattn/"};
	char *slash = strrchr(file, '/');

	if (!slash)
		return false;
	slash[1] = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		int n = snprintf(path, PATH_SIZE, "%s%s%s", file, places[i], CPA_MODULE_FILE);

		if (n < PATH_SIZE && access(path, R_OK) == 0)
			return true;
	}
	return false;
}

/* path [PATH_SIZE] */
static bool find(char *path)
{
	const char *asked = getenv("CPATTN_MPI_MODULE");
	char file[PATH_SIZE] = "";
	Dl_info info;

	if (asked && *asked)
		return snprintf(path, PATH_SIZE, "%s", asked) < PATH_SIZE;
	if (dladdr((void *)(uintptr_t)cpa_mpi_launched, &info) && info.dli_fname &&
		snprintf(file, sizeof file, "%s", info.dli_fname) < PATH_SIZE &&
		beside(file, path))
		return true;
	memset(file, 0, sizeof file);
	if (readlink("/proc/self/exe", file, sizeof file - 1) > 0 && beside(file, path))
		return true;
	snprintf(path, PATH_SIZE, "%s/%s", CPA_LIBDIR, CPA_MODULE_FILE);
	return access(path, R_OK) == 0;
}

/* ---- loading ---- */

static enum cpa_status refuse(const char *path, const char *why, struct cpa_error *error)
{
	return cpa_fail(error, CPA_UNSUPPORTED,
		"ranks cannot be processes, because %.300s, which speaks MPI, cannot be used: "
		"%.500s",
		path, why);
}

/* Global: what MPI loads on its own looks for the names of MPI. */
static enum cpa_status load(struct cpa_error *error)
{
	const struct cpa_mpi_module *found;
	char path[PATH_SIZE];
	void *handle;

	if (!CPA_HAVE_MPI)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"built without MPI, so ranks cannot be processes; install libopenmpi-dev "
			"and openmpi-bin (or set MPI=1) and rebuild");
	if (module)
		return CPA_OK;
	if (!find(path))
		return cpa_fail(error, CPA_UNSUPPORTED,
			"ranks cannot be processes, because %s, which speaks MPI, is neither "
			"beside the program nor in %s; make install puts it there, and "
			"CPATTN_MPI_MODULE=FILE names another place",
			CPA_MODULE_FILE, CPA_LIBDIR);
	handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!handle)
		return refuse(path, dlerror(), error);
	found = dlsym(handle, "cpa_mpi_module");
	if (!found)
		return refuse(path, "it is another kind of file", error);
	if (found->layout != CPA_MODULE_LAYOUT || strcmp(found->version, CPA_VERSION) != 0)
		return refuse(path, "it belongs to another version of cpattn", error);
	module = found;
	return CPA_OK;
}

bool cpa_mpi_usable(void)
{
	struct cpa_error error;

	return load(&error) == CPA_OK;
}

const char *cpa_mpi_about(void)
{
	static struct cpa_error error;

	return load(&error) == CPA_OK ? module->about() : error.text;
}

/* ---- the functions of the module ---- */

/* Before the processes join: one that leaves later holds the others up. */
static enum cpa_status check_share(struct cpa_error *error)
{
	const char *asked = getenv("CPATTN_SHARE");

	if (!asked || !*asked || strcmp(asked, "0") == 0 || strcmp(asked, "1") == 0)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"CPATTN_SHARE is '%.60s'; expected 1, messages within a machine are read where "
		"they lie, or 0, MPI carries them",
		asked);
}

enum cpa_status cpa_mpi_start(struct cpa_error *error)
{
	static const struct cpa_mpi_services services = {.copy_bytes = cpa_copy_bytes};
	enum cpa_status status = load(error);

	if (status == CPA_OK)
		status = check_share(error);
	if (status != CPA_OK)
		return status;
	/* Alone, Open MPI would start a daemon, to be able to start more processes. */
	if (!cpa_mpi_launched())
		setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
	return module->start(&services, error);
}

void cpa_mpi_stop(void)
{
	if (module)
		module->stop();
}

void cpa_mpi_abort(int exit_status)
{
	if (module)
		module->abort(exit_status);
	exit(exit_status);
}

enum cpa_status cpa_mpi_gather(const void *own, size_t nbytes, void *all, struct cpa_error *error)
{
	enum cpa_status status = load(error);

	return status == CPA_OK ? module->gather(own, nbytes, all, error) : status;
}

enum cpa_status cpa_comm_mpi_create(
	size_t chunk_nbytes, struct cpa_comm **comm, struct cpa_error *error)
{
	enum cpa_status status = load(error);

	return status == CPA_OK ? module->create(chunk_nbytes, comm, error) : status;
}
