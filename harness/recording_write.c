/*
 * recording_write.c - writing a recording of one call, all or nothing.
 *
 * The file is made in memory (about twice its size for a moment), written beside its final name, brought
 * to the disk and renamed.  Whatever fails, the name keeps what it had before.
 */
#include "harness/recording.h"
#include "harness/recording_hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- content --------------------------------------------------------------------------------- */

/* kv_replicated is said by segments_kv, one replicated segment. */
static void write_segments(struct cpa_h5 *file, const char *call, const char *group, const char *name,
	int64_t length, const char *rule)
{
	char path[CPA_H5_WHERE];
	int n = snprintf(path, sizeof path, "%s/%s", call, group);

	cpa_h5_write_group(file, path);
	snprintf(path + n, sizeof path - (size_t)n, "/name");
	cpa_h5_write_strings(file, path, 1, &name);
	snprintf(path + n, sizeof path - (size_t)n, "/length");
	cpa_h5_write_integers(file, path, 1, &length);
	snprintf(path + n, sizeof path - (size_t)n, "/rule");
	cpa_h5_write_strings(file, path, 1, &rule);
}

static void write_attributes(struct cpa_h5 *file, const char *call, const struct cpa_problem *problem,
	const char *source)
{
	static const char *const dtypes[] = {[CPA_DTYPE_FP64] = "float64", [CPA_DTYPE_FP32] = "float32",
		[CPA_DTYPE_BF16] = "bfloat16", [CPA_DTYPE_FP16] = "float16"};

	cpa_h5_write_string(file, "/", "format", "cpattn recording");
	cpa_h5_write_integer(file, "/", "format_version", 1);
	cpa_h5_write_double(file, call, "scale", problem->scale);
	cpa_h5_write_string(file, call, "layout", "BSHD");
	cpa_h5_write_string(file, call, "dtype", dtypes[problem->dtype]);
	cpa_h5_write_integer(file, call, "causal", problem->rule.causal);
	if (problem->rule.causal)
		cpa_h5_write_integer(file, call, "causal_offset", problem->rule.offset);
	if (source)
		cpa_h5_write_string(file, call, "source", source);
}

static void write_tensor(struct cpa_h5 *file, const char *call, const char *name, enum cpa_dtype dtype,
	const int64_t *dims, int rank, const void *data)
{
	char path[CPA_H5_WHERE];

	if (!data)
		return;
	snprintf(path, sizeof path, "%s/%s", call, name);
	cpa_h5_write_array(file, path, dtype, rank, dims, data);
}

static void write_call(struct cpa_h5 *file, const char *call, const struct cpa_problem *p,
	const void *const data[5], const char *source)
{
	const int64_t q[] = {p->B, p->Sq, p->Hq, p->D}, k[] = {p->B, p->Skv, p->Hkv, p->D};
	const int64_t v[] = {p->B, p->Skv, p->Hkv, p->Dv}, o[] = {p->B, p->Sq, p->Hq, p->Dv};

	cpa_h5_write_group(file, "/calls");
	cpa_h5_write_group(file, call);
	write_attributes(file, call, p, source);
	write_tensor(file, call, "q", p->dtype, q, 4, data[0]);
	write_tensor(file, call, "k", p->dtype, k, 4, data[1]);
	write_tensor(file, call, "v", p->dtype, v, 4, data[2]);
	write_tensor(file, call, "o", p->dtype, o, 4, data[3]);
	write_tensor(file, call, "lse", cpa_problem_lse_dtype(p), o, 3, data[4]);
	if (p->kv_replicated) {
		write_segments(file, call, "segments", "queries", p->Sq, "split");
		write_segments(file, call, "segments_kv", "keys", p->Skv, "replicated");
	}
}

/* ---- to the disk ----------------------------------------------------------------------------- */

/* Everything, and onto the disk; false with errno. */
static bool write_fully(int fd, const char *bytes, size_t nbytes)
{
	while (nbytes > 0) {
		ssize_t n = write(fd, bytes, nbytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? ENOSPC : errno;
			return false;
		}
		bytes += n;
		nbytes -= (size_t)n;
	}
	return fsync(fd) == 0;
}

/* mkstemp() makes files for their owner alone; give it what the umask says instead. */
static bool open_to_others(int fd)
{
	mode_t mask = umask(022);

	umask(mask);
	return fchmod(fd, 0666 & ~mask) == 0;
}

/* The name itself is on the disk once its directory is; not all file systems can, so no verdict. */
static void sync_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd = directory ? open(directory, O_RDONLY | O_DIRECTORY) : -1;

	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	free(directory);
}

static enum cpa_status replace(const char *path, const void *bytes, size_t nbytes,
	struct cpa_error *error)
{
	size_t room = strlen(path) + sizeof ".XXXXXX";
	char *temporary = malloc(room);
	int fd, reason;
	bool worked;

	if (!temporary)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	snprintf(temporary, room, "%s.XXXXXX", path);
	fd = mkstemp(temporary);
	if (fd < 0) {
		reason = errno;
		free(temporary);
		return cpa_fail(error, CPA_EXTERNAL, "%s: cannot be written: %s", path, strerror(reason));
	}
	worked = write_fully(fd, bytes, nbytes) && open_to_others(fd);
	reason = errno;
	if (close(fd) != 0 && worked) {
		worked = false;
		reason = errno;
	}
	if (worked && rename(temporary, path) != 0) {
		worked = false;
		reason = errno;
	}
	if (!worked)
		unlink(temporary);
	free(temporary);
	if (!worked)
		return cpa_fail(error, CPA_EXTERNAL, "%s: cannot be written: %s", path, strerror(reason));
	sync_directory(path);
	return CPA_OK;
}

/* What the format cannot say. */
static enum cpa_status check(const char *call, const struct cpa_problem *problem, struct cpa_error *error)
{
	if (*call == '\0' || strlen(call) > 200 || strchr(call, '/') || strcmp(call, ".") == 0)
		return cpa_fail(error, CPA_INVALID, "'%.60s' cannot name a call; expected 1 to 200 bytes "
			"without '/'", call);
	if (problem->kv_replicated && problem->Sq == problem->Skv)
		return cpa_fail(error, CPA_UNSUPPORTED, "replicated keys with as many keys as queries cannot "
			"be recorded: the format says it by segments_kv, which needs Sq != Skv");
	return cpa_problem_check(problem, error);
}

enum cpa_status cpa_recording_write(const char *path, const char *call, const struct cpa_problem *problem,
	const void *q, const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error)
{
	const void *const data[5] = {q, k, v, o, lse};
	struct cpa_h5 *file = NULL;
	char where[CPA_H5_WHERE / 2];
	void *image = NULL;
	size_t nbytes = 0;
	enum cpa_status status = check(call, problem, error);

	if (status != CPA_OK)
		return status;
	status = cpa_h5_create(&file, error);
	if (status != CPA_OK)
		return status;
	snprintf(where, sizeof where, "/calls/%s", call);
	write_call(file, where, problem, data, source);
	status = cpa_h5_image(file, &image, &nbytes, error);
	cpa_h5_close(file);
	if (status != CPA_OK)
		return status;
	status = replace(path, image, nbytes, error);
	free(image);
	return status;
}
