/*
 * cmd_verify.c - the main job: every call of every file, or one made-up problem, in every
 * configuration.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/commands.h"
#include "harness/fault.h"
#include "harness/mask.h"
#include "harness/recording.h"
#include "harness/verify_call.h"

static void *keep(struct cpa_verify_session *s, const void *bytes, size_t nbytes)
{
	void *copy = cpa_arena_alloc(&s->arena, nbytes);
	if (copy)
		memcpy(copy, bytes, nbytes);
	return copy;
}

/* What results point to: sizes and small lists (segments among them); a mask is there while its call runs. */
static struct cpa_problem *keep_problem(
	struct cpa_verify_session *s, const struct cpa_problem *problem)
{
	struct cpa_problem *kept = keep(s, problem, sizeof *problem);
	struct cpa_rule *rule = kept ? &kept->rule : NULL;
	if (kept && rule->documents)
		rule->documents = keep(s, rule->documents,
			(size_t)(rule->ndocuments + 1) * sizeof *rule->documents);
	if (kept && rule->key_lengths)
		rule->key_lengths = keep(
			s, rule->key_lengths, (size_t)kept->B * sizeof *rule->key_lengths);
	if (kept && rule->sink)
		rule->sink = keep(s, rule->sink, (size_t)kept->Hq * sizeof *rule->sink);
	if (kept && kept->segments)
		kept->segments = keep(s, kept->segments,
			(size_t)kept->nsegments * sizeof *kept->segments);
	if (kept && kept->segments_kv)
		kept->segments_kv = keep(s, kept->segments_kv,
			(size_t)kept->nsegments_kv * sizeof *kept->segments_kv);
	return kept;
}

static char *keep_string(struct cpa_verify_session *s, const char *text)
{
	return keep(s, text, strlen(text) + 1);
}

/* ---- made-up inputs ---- */

static enum cpa_status fill_from_seed(void *context, const struct cpa_problem *p, char tensor,
	void *dst, struct cpa_error *error)
{
	const struct cpa_options *o = context;
	enum cpa_tensor which = tensor == 'q'   ? CPA_TENSOR_Q
				: tensor == 'k' ? CPA_TENSOR_K
						: CPA_TENSOR_V;
	(void)error;
	cpa_inputs_fill(p, o->fill, o->seed, which, dst);
	return CPA_OK;
}

static void verify_problem(struct cpa_verify_session *s)
{
	struct cpa_problem problem = s->options->problem;
	if (s->options->has_dtype)
		problem.dtype = s->options->dtype;
	struct cpa_verify_call call = {.session = s,
		.name = keep_string(s, s->options->problem_text),
		.problem = keep(s, &problem, sizeof problem)};
	s->ncalls++;
	if (!s->arena.failed)
		cpa_verify_call_run(&call, fill_from_seed, (void *)s->options);
}

/* ---- files ---- */

struct source {
	struct cpa_recording *recording;
	int call;
};

static enum cpa_status fill_from_file(void *context, const struct cpa_problem *p, char tensor,
	void *dst, struct cpa_error *error)
{
	const struct source *source = context;
	const char name[2] = {tensor, '\0'};
	struct cpa_span all = {0, tensor == 'q' ? p->Sq : p->Skv, 1, 1};
	struct cpa_spans tokens = {&all, 1, 1};
	all.stride = all.width;
	return cpa_recording_read(source->recording, source->call, name,
		(struct cpa_range){0, p->B}, &tokens, p->dtype, dst, error);
}

/* --dtype: a bias in fp64 is for fp64 problems only. */
static enum cpa_status narrow_bias(
	struct cpa_problem *problem, void **data, struct cpa_error *error)
{
	struct cpa_mask *mask = &problem->rule.mask;
	if (mask->kind != CPA_MASK_BIAS || mask->dtype != CPA_DTYPE_FP64 ||
		problem->dtype == CPA_DTYPE_FP64)
		return CPA_OK;
	return cpa_mask_copy(problem, CPA_MASK_BIAS, CPA_DTYPE_FP32, mask, data, error);
}

static void verify_recorded(
	struct cpa_verify_session *s, const char *file, struct cpa_recording *recording, int i)
{
	const struct cpa_call *recorded;
	struct cpa_error error = {""};
	const char *name = keep_string(s, cpa_recording_call_name(recording, i));
	enum cpa_status status = cpa_recording_call(recording, i, &recorded, &error);
	if (!name)
		return;
	if (status != CPA_OK) {
		cpa_verify_add_verdict(s, file, name, NULL, status, error.text);
		return;
	}
	struct cpa_problem *problem = keep_problem(s, &recorded->problem);
	void *mask = NULL;
	if (s->arena.failed)
		return;
	if (s->options->has_dtype)
		problem->dtype = s->options->dtype;
	if (recorded->unsupported)
		status = cpa_fail(&error, CPA_UNSUPPORTED, "%s", recorded->unsupported);
	else
		status = narrow_bias(problem, &mask, &error);
	struct cpa_verify_call call = {
		.session = s, .file = file, .name = name, .problem = problem,
		.guidance = recorded->guidance};
	struct source source = {recording, i};
	if (status == CPA_OK)
		cpa_verify_call_run(&call, fill_from_file, &source);
	else
		cpa_verify_add_verdict(s, file, name, problem, status, error.text);
	problem->rule.mask.data = NULL; /* goes with the recording */
	free(mask);
}

static void verify_file(struct cpa_verify_session *s, const char *path)
{
	struct cpa_recording *recording;
	struct cpa_error error = {""};
	const char *file = keep_string(s, path);
	if (!file)
		return;
	enum cpa_status status = cpa_recording_open(path, &recording, &error);
	if (status != CPA_OK) {
		cpa_verify_add_verdict(s, file, NULL, NULL, status, error.text);
		s->ncalls++; /* nobody knows whether --call would have matched */
		return;
	}
	for (int i = 0; i < cpa_recording_ncalls(recording) && s->status == CPA_OK; i++) {
		const char *glob = s->options->call_glob;
		if (glob && fnmatch(glob, cpa_recording_call_name(recording, i), 0) != 0)
			continue;
		s->ncalls++;
		verify_recorded(s, file, recording, i);
	}
	cpa_recording_close(recording);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The *.h5 of a directory, by name; recordings in directories below are another set. */
static void verify_directory(struct cpa_verify_session *s, const char *path)
{
	DIR *directory = opendir(path);
	char **names = NULL;
	size_t n = 0, capacity = 0;
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		if (fnmatch("*.h5", entry->d_name, FNM_PERIOD) != 0)
			continue;
		if (n == capacity) {
			char **more = realloc(names, (2 * capacity + 16) * sizeof *names);
			if (!more)
				break;
			names = more;
			capacity = 2 * capacity + 16;
		}
		size_t size = strlen(path) + strlen(entry->d_name) + 2;
		names[n] = cpa_arena_alloc(&s->arena, size);
		if (!names[n])
			break;
		bool slash = path[0] && path[strlen(path) - 1] == '/';
		snprintf(names[n++], size, "%s%s%s", path, slash ? "" : "/", entry->d_name);
	}
	char reason[320];
	if (!directory)
		snprintf(reason, sizeof reason, "%.200s: %s", path, strerror(errno));
	else
		snprintf(reason, sizeof reason, "%.200s: a directory without *.h5 files", path);
	if (n == 0 && !s->arena.failed)
		cpa_verify_add_verdict(
			s, keep_string(s, path), NULL, NULL, CPA_INVALID, reason);
	if (n > 0) /* not even no elements may be at NULL */
		qsort(names, n, sizeof *names, compare_names);
	for (size_t i = 0; i < n && s->status == CPA_OK; i++)
		verify_file(s, names[i]);
	free(names);
	if (directory)
		closedir(directory);
}

static void verify_path(struct cpa_verify_session *s, const char *path)
{
	struct stat about;
	if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
		verify_directory(s, path);
	else
		verify_file(s, path);
}

/* ---- the command ---- */

static enum cpa_status prepare(struct cpa_verify_session *s, struct cpa_error *error)
{
	const struct cpa_options *o = s->options;
	s->fault = o->fault ? cpa_fault_find(o->fault) : -1;
	if (o->fault && s->fault < 0)
		return cpa_fail(error, CPA_INVALID,
			"--fault %s: there is no such fault; cpattn list faults names "
			"them",
			o->fault);
	if (strcmp(o->comm, "fake") != 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--comm %s: not built in; fake runs here", o->comm);
	return cpa_device_create(o->device, &s->device, error);
}

/* Something asked for by name that ran nowhere. */
static bool ran_nowhere(const struct cpa_verify_session *s)
{
	bool any = false, missing = false;
	for (int i = 0; i < CPA_NVARIANTS; i++) {
		any = any || s->ran[i];
		missing = missing ||
			  (s->options->variants_asked && s->options->variants[i] && !s->ran[i]);
	}
	return missing || ((s->options->device_asked || s->options->comm_asked) && !any);
}

static bool is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

static int finish(struct cpa_verify_session *s)
{
	const struct cpa_options *o = s->options;
	struct cpa_error error = {""};
	if (s->status != CPA_OK || s->arena.failed) {
		if (s->status == CPA_OK)
			cpa_fail(&s->error, CPA_NO_MEMORY, "out of memory");
		return cpa_complain(&s->error);
	}
	if (s->ncalls == 0) {
		cpa_fail(&error, CPA_INVALID, "no call matches --call %.200s",
			o->call_glob ? o->call_glob : "'*'");
		return cpa_complain(&error);
	}
	/* main() flushes stdout and complains. */
	if (!is_stdout(o->json) && !is_stdout(o->junit) && !is_stdout(o->csv))
		cpa_result_table(stdout, &s->results, o);
	if (cpa_result_write(&s->results, o, &error) != CPA_OK)
		return cpa_complain(&error);
	return cpa_result_exit(&s->results, ran_nowhere(s));
}

int cpa_cmd_verify(const struct cpa_options *options)
{
	struct cpa_verify_session s = {
		.options = options, .progress = isatty(STDERR_FILENO) == 1, .status = CPA_OK};
	struct cpa_error error = {""};
	if (options->random > 0)
		return cpa_cmd_random(options);
	if (prepare(&s, &error) != CPA_OK)
		return cpa_complain(&error);
	cpa_arena_init(&s.arena);
	if (options->has_problem)
		verify_problem(&s);
	for (int i = 0; i < options->nfiles && s.status == CPA_OK; i++)
		verify_path(&s, options->files[i]);
	int exit_status = finish(&s);
	cpa_result_list_fini(&s.results);
	cpa_arena_fini(&s.arena);
	cpa_device_destroy(s.device);
	return exit_status;
}
