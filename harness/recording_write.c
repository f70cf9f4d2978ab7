/*
 * recording_write.c - writing a recording of one call, all or nothing.
 *
 * The file is made in memory (about twice its size for a moment), written beside its final name, brought
 * to the disk and renamed.  Whatever fails, the name keeps what it had before.
 */
#include "harness/recording.h"
#include "harness/recording_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- content --------------------------------------------------------------------------------- */

/* Parallel arrays, in sequence order. */
static void write_segments(struct cpa_h5 *file, const char *call, const char *group,
	const struct cpa_segment *segments, int n)
{
	char path[CPA_H5_WHERE];
	int used = snprintf(path, sizeof path, "%s/%s", call, group);
	const char **texts = calloc((size_t)n + 1, sizeof *texts);
	int64_t *lengths = calloc((size_t)n + 1, sizeof *lengths);

	cpa_h5_write_group(file, path);
	for (int i = 0; texts && lengths && i < n; i++) {
		texts[i] = segments[i].name;
		lengths[i] = segments[i].length;
	}
	if (texts && lengths) {
		snprintf(path + used, sizeof path - (size_t)used, "/name");
		cpa_h5_write_strings(file, path, n, texts);
		snprintf(path + used, sizeof path - (size_t)used, "/length");
		cpa_h5_write_integers(file, path, n, lengths);
		for (int i = 0; i < n; i++)
			texts[i] = segments[i].replicated ? "replicated" : "split";
		snprintf(path + used, sizeof path - (size_t)used, "/rule");
		cpa_h5_write_strings(file, path, n, texts);
	}
	free(texts);
	free(lengths);
}

static void write_all_segments(struct cpa_h5 *file, const char *call, const struct cpa_problem *p)
{
	if (p->segments)
		write_segments(file, call, "segments", p->segments, p->nsegments);
	if (p->segments_kv)
		write_segments(file, call, "segments_kv", p->segments_kv, p->nsegments_kv);
}

static void write_guidance(
	struct cpa_h5 *file, const char *call, const struct cpa_guidance *guidance)
{
	const double scales[2] = {guidance->s, guidance->s2};

	if (guidance->nbranches == 0)
		return;
	cpa_h5_write_integer(file, call, "branches", guidance->nbranches);
	if (guidance->nbranches == 2)
		cpa_h5_write_double(file, call, "guidance", guidance->s);
	else
		cpa_h5_write_double_list(file, call, "guidance", 2, scales);
}

static void write_attributes(struct cpa_h5 *file, const char *call, const struct cpa_problem *problem,
	bool bhsd, const char *source)
{
	static const char *const dtypes[] = {[CPA_DTYPE_FP64] = "float64", [CPA_DTYPE_FP32] = "float32",
		[CPA_DTYPE_BF16] = "bfloat16", [CPA_DTYPE_FP16] = "float16"};

	const int64_t window[2] = {problem->rule.left, problem->rule.right};

	cpa_h5_write_double(file, call, "scale", problem->scale);
	cpa_h5_write_string(file, call, "layout", bhsd ? "BHSD" : "BSHD");
	cpa_h5_write_string(file, call, "dtype", dtypes[problem->dtype]);
	cpa_h5_write_integer(file, call, "causal", problem->rule.causal);
	if (problem->rule.causal || problem->rule.window)
		cpa_h5_write_integer(file, call, "causal_offset", problem->rule.offset);
	if (problem->rule.window)
		cpa_h5_write_integer_list(file, call, "window", 2, window);
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

static void write_list(struct cpa_h5 *file, const char *call, const char *name, int64_t n,
	const int64_t *values)
{
	char path[CPA_H5_WHERE];

	if (!values)
		return;
	snprintf(path, sizeof path, "%s/%s", call, name);
	cpa_h5_write_integers(file, path, n, values);
}

/* The mask as a dense array of its own shape, whatever its strides.  dims [4] out; NULL: no memory. */
static void *dense_mask(const struct cpa_problem *p, int64_t dims[4])
{
	const struct cpa_mask *mask = &p->rule.mask;
	const size_t nbytes = mask->kind == CPA_MASK_BOOL ? 1 : cpa_dtype_nbytes(mask->dtype);
	char *dense, *next;

	dims[0] = mask->batch ? p->B : 1;
	dims[1] = mask->head ? p->Hq : 1;
	dims[2] = mask->query ? p->Sq : 1;
	dims[3] = mask->key ? p->Skv : 1;
	dense = next = malloc((size_t)(dims[0] * dims[1] * dims[2] * dims[3]) * nbytes);
	for (int64_t b = 0; b < dims[0] && dense; b++)
		for (int64_t h = 0; h < dims[1]; h++)
			for (int64_t t = 0; t < dims[2]; t++)
				for (int64_t j = 0; j < dims[3]; j++, next += nbytes)
					memcpy(next, (const char *)mask->data +
						(size_t)(b * mask->batch + h * mask->head +
							t * mask->query + j * mask->key) * nbytes, nbytes);
	return dense;
}

static bool write_mask(struct cpa_h5 *file, const char *call, const struct cpa_problem *p)
{
	char path[CPA_H5_WHERE];
	int64_t dims[4];
	void *dense;

	if (p->rule.mask.kind == CPA_MASK_NONE)
		return true;
	dense = dense_mask(p, dims);
	if (!dense)
		return false;
	snprintf(path, sizeof path, "%s/mask", call);
	if (p->rule.mask.kind == CPA_MASK_BOOL)
		cpa_h5_write_bytes(file, path, 4, dims, dense);
	else
		cpa_h5_write_array(file, path, p->rule.mask.dtype, 4, dims, dense);
	free(dense);
	return true;
}

void cpa_recording_write_rules(struct cpa_h5 *file, const char *where, const struct cpa_problem *problem,
	bool bhsd, const char *source)
{
	const struct cpa_rule *rule = &problem->rule;

	cpa_h5_write_group(file, where);
	write_attributes(file, where, problem, bhsd, source);
	write_all_segments(file, where, problem);
	write_list(file, where, "key_lengths", problem->B, rule->key_lengths);
	write_list(file, where, "documents", rule->ndocuments + 1, rule->documents);
	write_tensor(file, where, "sink", CPA_DTYPE_FP64, &problem->Hq, 1, rule->sink);
}

/* False: out of memory. */
static bool write_call(struct cpa_h5 *file, const char *call, const struct cpa_problem *p,
	const void *const data[5], const char *source)
{
	const int64_t q[] = {p->B, p->Sq, p->Hq, p->D}, k[] = {p->B, p->Skv, p->Hkv, p->D};
	const int64_t v[] = {p->B, p->Skv, p->Hkv, p->Dv}, o[] = {p->B, p->Sq, p->Hq, p->Dv};

	cpa_h5_write_string(file, "/", "format", "cpattn recording");
	cpa_h5_write_integer(file, "/", "format_version", 1);
	cpa_h5_write_group(file, "/calls");
	cpa_recording_write_rules(file, call, p, false, source);
	write_tensor(file, call, "q", p->dtype, q, 4, data[0]);
	write_tensor(file, call, "k", p->dtype, k, 4, data[1]);
	write_tensor(file, call, "v", p->dtype, v, 4, data[2]);
	write_tensor(file, call, "o", p->dtype, o, 4, data[3]);
	write_tensor(file, call, "lse", cpa_problem_lse_dtype(p), o, 3, data[4]);
	return write_mask(file, call, p);
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
static enum cpa_status check(const char *call, const struct cpa_problem *problem,
	const struct cpa_guidance *guidance, struct cpa_error *error)
{
	const int n = guidance->nbranches;

	if (*call == '\0' || strlen(call) > 200 || strchr(call, '/') || strcmp(call, ".") == 0)
		return cpa_fail(error, CPA_INVALID, "'%.60s' cannot name a call; expected 1 to 200 bytes "
			"without '/'", call);
	if (n != 0 &&
		(n < 2 || n > 3 || problem->B % n != 0 || !isfinite(guidance->s) ||
			(n == 3 && !isfinite(guidance->s2))))
		return cpa_fail(error, CPA_INVALID,
			"guidance of %d branches with a batch of %lld and the "
			"scales %g and %g; expected 2 or 3 branches that divide the batch, and "
			"finite scales",
			n, (long long)problem->B, guidance->s, guidance->s2);
	return cpa_problem_check(problem, error);
}

static void write_positions(struct cpa_h5 *file, const char *call, const struct cpa_problem *p,
	const struct cpa_recorded_run *run)
{
	char where[CPA_H5_WHERE];

	if (!run || !run->positions)
		return;
	cpa_recording_join(where, call, '/', "positions");
	cpa_h5_write_integers(file, where, p->Sq, run->positions);
	cpa_h5_write_double(file, where, "rope_base", run->rope->base);
	cpa_h5_write_string(file, where, "rope_pairs",
		run->rope->pairs == CPA_ROPE_HALF ? "half" : "interleaved");
}

enum cpa_status cpa_recording_write_run(const char *path, const char *call,
	const struct cpa_problem *problem, const void *const data[5], const struct cpa_recorded_run *run,
	const char *source, struct cpa_error *error)
{
	const struct cpa_guidance none = {0};
	const struct cpa_guidance *guidance = run && run->guidance ? run->guidance : &none;
	struct cpa_h5 *file = NULL;
	char where[CPA_H5_WHERE / 2];
	void *image = NULL;
	size_t nbytes = 0;
	enum cpa_status status = check(call, problem, guidance, error);

	if (status != CPA_OK)
		return status;
	status = cpa_h5_create(&file, error);
	if (status != CPA_OK)
		return status;
	snprintf(where, sizeof where, "/calls/%s", call);
	if (write_call(file, where, problem, data, source) &&
	    (!run || run->world == 0 || cpa_recording_write_ranks(file, where, run)) &&
	    (!run || run->nevents == 0 || cpa_recording_write_events(file, where, run))) {
		write_guidance(file, where, guidance);
		write_positions(file, where, problem, run);
		status = cpa_h5_image(file, &image, &nbytes, error);
	} else {
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for a recording");
	}
	cpa_h5_close(file);
	if (status != CPA_OK)
		return status;
	status = replace(path, image, nbytes, error);
	free(image);
	return status;
}

enum cpa_status cpa_recording_write(const char *path, const char *call, const struct cpa_problem *problem,
	const void *q, const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error)
{
	const void *const data[5] = {q, k, v, o, lse};

	return cpa_recording_write_run(path, call, problem, data, NULL, source, error);
}

enum cpa_status cpa_recording_write_guided(const char *path, const char *call,
	const struct cpa_problem *problem, const struct cpa_guidance *guidance, const void *q,
	const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error)
{
	const void *const data[5] = {q, k, v, o, lse};
	const struct cpa_recorded_run run = {.guidance = guidance};

	return cpa_recording_write_run(path, call, problem, data, &run, source, error);
}
