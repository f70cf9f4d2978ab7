/*
 * options_check.c - what only the whole command line shows.
 */
#include <string.h>

#include "harness/commands.h"
#include "harness/guidance.h"
#include "harness/options_table.h"
#include "harness/peers.h"

/* Random problems bring their own tensors and dtypes, and are too many to list. */
static enum cpa_status check_random(const struct cpa_options *o, bool fill_asked,
	struct cpa_error *error)
{
	const char *other = o->has_problem ? "--problem"
		: o->nfiles > 0            ? o->files[0]
		: fill_asked               ? "--fill"
		: o->has_dtype             ? "--dtype"
		: o->call_glob             ? "--call"
		: o->rows                  ? "--rows"
		: o->order_auto            ? "--order auto"
		: o->guidance.nbranches    ? "--guidance"
		: o->json                  ? "--json"
		: o->junit                 ? "--junit"
		: o->csv                   ? "--csv"
		: o->record                ? "--record"
		: o->verbose               ? "--verbose"
					   : NULL;

	if (!other)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"--random makes its own problems and prints one summary; leave out %.60s", other);
}

/* A model brings its sizes and its dtype. */
static enum cpa_status check_model(const struct cpa_options *o, struct cpa_error *error)
{
	const char *other = o->has_problem ? "--problem"
		: o->nfiles > 0            ? o->files[0]
		: o->has_dtype             ? "--dtype"
		: o->guidance.nbranches    ? "--guidance"
					   : NULL;

	if (!other)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"--model brings its own sizes, batch and dtype; leave out %.60s, or --model",
		other);
}

static enum cpa_status check_file_names(const struct cpa_options *o, struct cpa_error *error)
{
	for (int i = 0; i < o->nfiles; i++) {
		if (o->files[i][0] == '\0')
			return cpa_fail(error, CPA_INVALID, "a file name is empty");
		if (strcmp(o->files[i], "-") == 0)
			return cpa_fail(error, CPA_INVALID,
				"a recording cannot be read from stdin; name its file");
	}
	return CPA_OK;
}

static enum cpa_status check_inputs(const struct cpa_options *o, bool fill_asked,
	struct cpa_error *error)
{
	const char *name = o->command == CPA_COMMAND_PLAN ? "plan"
		: o->command == CPA_COMMAND_BENCH         ? "bench"
							  : "verify";

	if (o->random)
		return check_random(o, fill_asked, error);
	if (o->model)
		return check_model(o, error);
	if (o->size)
		return cpa_fail(error, CPA_INVALID, "--size is of a model; name it with --model");
	if (!o->has_problem && o->nfiles == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s needs a recording or a problem: cpattn %s FILE, or cpattn "
			"%s --problem S=64,H=8",
			name, name, name);
	if (o->has_problem && o->nfiles > 0)
		return cpa_fail(error, CPA_INVALID,
			"%s takes recordings or --problem, not both: '%.60s' is a "
			"file",
			name, o->files[0]);
	if (o->command != CPA_COMMAND_VERIFY && o->nfiles > 1)
		return cpa_fail(error, CPA_INVALID, "%s takes one recording, not %d", name,
			o->nfiles);
	if (check_file_names(o, error) != CPA_OK)
		return CPA_INVALID;
	if (o->has_problem && o->has_dtype)
		return cpa_fail(error, CPA_INVALID,
			"--dtype converts the tensors of a recording; in a problem "
			"write --problem ...,dtype=%s",
			cpa_dtype_name(o->dtype));
	if (o->has_problem && o->call_glob)
		return cpa_fail(error, CPA_INVALID,
			"--call picks calls of a recording; a problem has none");
	if (!o->has_problem && fill_asked)
		return cpa_fail(error, CPA_INVALID,
			"--fill makes the tensors of --problem; a recording has its "
			"own");
	return CPA_OK;
}

/* What is said of another system belongs to one. */
static enum cpa_status check_system(const struct cpa_options *o, struct cpa_error *error)
{
	const char *other = o->backend ? "--backend"
		: o->has_convert       ? "--convert-to-fp32"
		: o->tensor            ? "--tensor-parallel"
				       : NULL;

	if (!o->as && other)
		return cpa_fail(error, CPA_INVALID,
			"%s is of another system; name it with --as", other);
	if (o->has_convert && strcmp(o->as, "diffusers") != 0)
		return cpa_fail(error, CPA_INVALID,
			"--convert-to-fp32 is of diffusers, and %s has no such choice", o->as);
	if (o->as && o->format == CPA_FORMAT_DOT)
		return cpa_fail(error, CPA_INVALID,
			"--format dot draws a schedule, and --as answers in words; leave one out");
	if (!o->backend)
		return CPA_OK;
	return cpa_peer_check_backend(cpa_peer_find(o->as), o->backend, error);
}

static enum cpa_status check_outputs(struct cpa_options *o, struct cpa_error *error)
{
	const char *paths[3], *names[3] = { "--json", "--junit", "--csv" };

	if (o->format == CPA_FORMAT_JSON) {
		if (o->json && strcmp(o->json, "-") != 0)
			return cpa_fail(error, CPA_INVALID,
				"--format json is --json -, and --json names '%.60s'; give "
				"one of them",
				o->json);
		o->json = "-";
	}
	paths[0] = o->json;
	paths[1] = o->junit;
	paths[2] = o->csv;
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < i; j++)
			if (paths[i] && paths[j] && strcmp(paths[i], paths[j]) == 0)
				return cpa_fail(error, CPA_INVALID,
					"%s and %s both write to %s; name two files", names[j],
					names[i],
					strcmp(paths[i], "-") == 0 ? "stdout" : paths[i]);
		if (paths[i] && strcmp(paths[i], "-") == 0 && o->format == CPA_FORMAT_DOT)
			return cpa_fail(error, CPA_INVALID,
				"--format dot and %s - both write to stdout; name a file",
				names[i]);
		if (paths[i] && strcmp(paths[i], "-") == 0 && o->has_print_ranks)
			return cpa_fail(error, CPA_INVALID,
				"--rank prints operations, and stdout holds what %s - writes; "
				"name a file",
				names[i]);
	}
	if (o->format == CPA_FORMAT_DOT && o->verbose)
		return cpa_fail(error, CPA_INVALID,
			"--format dot draws a schedule, and --verbose prints lines; leave one out");
	return CPA_OK;
}

/* Given sizes and degrees say the same thing twice; how many segments they are of, a problem says. */
static enum cpa_status check_given(const struct cpa_options *o, struct cpa_error *error)
{
	int P = o->ring && o->ulysses ? o->ring * o->ulysses : 0;

	if (o->head_counts.n && o->ulysses && o->head_counts.n != o->ulysses)
		return cpa_fail(error, CPA_INVALID,
			"--heads gives %d counts, one for each ulysses rank, and "
			"--ulysses is %d",
			o->head_counts.n, o->ulysses);
	if (P && o->sizes.n % P != 0)
		return cpa_fail(error, CPA_INVALID,
			"--split gives %d sizes, and --ring %d x --ulysses %d needs "
			"%d for each split segment",
			o->sizes.n, o->ring, o->ulysses, P);
	if (P && o->sizes_kv.n % P != 0)
		return cpa_fail(error, CPA_INVALID,
			"--split-kv gives %d sizes, and --ring %d x --ulysses %d needs "
			"%d for each split segment",
			o->sizes_kv.n, o->ring, o->ulysses, P);
	return CPA_OK;
}

/* Only what was recorded can be checked. */
static enum cpa_status check_recordings(struct cpa_options *o, struct cpa_error *error)
{
	if (!o->has_partials)
		o->partials = CPA_PARTIALS_BLOCK; /* what the kernels of others return */
	if (o->nfiles == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s needs a recording that holds outputs: cpattn %s FILE",
			cpa_command_name(o->command), cpa_command_name(o->command));
	return check_file_names(o, error);
}

static enum cpa_status check_report(const struct cpa_options *o, struct cpa_error *error)
{
	if (o->nfiles == 0)
		return cpa_fail(error, CPA_INVALID,
			"report needs what --json of the other commands wrote: cpattn report FILE.json "
			"--out DIR");
	for (int i = 0; i < o->nfiles; i++)
		if (strcmp(o->files[i], "-") == 0)
			return cpa_fail(error, CPA_INVALID,
				"a report cannot be read from stdin; name its file");
	if (!o->out && !o->annotations && !o->junit)
		return cpa_fail(error, CPA_INVALID,
			"report writes to --out DIR, --annotations FILE or --junit FILE; name one");
	if (o->annotations && o->junit && strcmp(o->annotations, o->junit) == 0)
		return cpa_fail(error, CPA_INVALID,
			"--annotations and --junit both write to %s; name two files",
			strcmp(o->junit, "-") == 0 ? "stdout" : o->junit);
	return check_file_names(o, error);
}

/* What says how ranks work together; NULL: nothing does. */
static const char *find_config(const struct cpa_options *o)
{
	return o->variants_asked                             ? "--variant"
		: o->ranks_asked                             ? "--ranks"
		: o->batch                                   ? "--batch"
		: o->ring                                    ? "--ring"
		: o->ulysses                                 ? "--ulysses"
		: o->rotate != CPA_ROTATE_CHOICE_DEFAULT     ? "--rotate"
		: o->has_split                               ? "--split"
		: o->has_split_kv                            ? "--split-kv"
		: o->order_auto || o->order != CPA_ORDER_CONTIGUOUS ? "--order"
		: o->heads != CPA_HEADS_BALANCED             ? "--heads"
		: o->direction < 0                           ? "--direction"
		: o->has_partials                            ? "--partials"
		: o->mesh != CPA_MESH_BATCH_RING_ULYSSES     ? "--mesh"
		: o->guidance.nbranches                      ? "--guidance"
							     : NULL;
}

/* Kernels alone have shapes of their own, and no ranks. */
static enum cpa_status check_bench(const struct cpa_options *o, struct cpa_error *error)
{
	const char *other = o->nfiles > 0 ? o->files[0]
		: o->has_dtype            ? "--dtype"
		: o->call_glob            ? "--call"
		: o->one_rank_threads     ? "--one-rank-threads"
		: o->comm_asked           ? "--comm"
					  : find_config(o);

	if (!o->kernels || !other)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"--kernels times single operations, of --problem or of shapes of its own; leave "
		"out %.60s",
		other);
}

static enum cpa_status check_out(const struct cpa_options *o, struct cpa_error *error)
{
	const char *name = cpa_command_name(o->command);

	if (!o->out)
		return cpa_fail(error, CPA_INVALID, "%s needs the name of the recording to write: -o FILE", name);
	if (strcmp(o->out, "-") == 0)
		return cpa_fail(error, CPA_INVALID, "%s cannot write a recording to stdout; name a file with "
			"-o", name);
	return CPA_OK;
}

static enum cpa_status check_merge(const struct cpa_options *o, struct cpa_error *error)
{
	if (o->nfiles == 0)
		return cpa_fail(error, CPA_INVALID,
			"merge needs the directory of a recorded run: cpattn merge RUN.d -o FILE");
	return check_file_names(o, error) == CPA_OK ? check_out(o, error) : CPA_INVALID;
}

static enum cpa_status check_probe(const struct cpa_options *o, struct cpa_error *error)
{
	if (o->nfiles > 0)
		return cpa_fail(error, CPA_INVALID, "probe makes its inputs; leave out '%.60s', or write --for "
			"%.60s for inputs like those of it", o->files[0], o->files[0]);
	if (!o->has_problem == !o->like)
		return cpa_fail(error, CPA_INVALID, "probe needs %s: cpattn probe --problem S=96,H=8 -o FILE, or "
			"cpattn probe --for RECORDING -o FILE",
			o->like ? "one of --problem and --for, not both" : "a problem or a recording");
	if (o->has_problem && o->call_glob)
		return cpa_fail(error, CPA_INVALID,
			"--call picks a call of --for; a problem has none");
	return check_out(o, error);
}

enum cpa_status cpa_options_check(struct cpa_options *options, bool fill_asked,
	struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	bool inputs = options->command == CPA_COMMAND_VERIFY || options->command == CPA_COMMAND_PLAN;

	if (options->command == CPA_COMMAND_BENCH) {
		status = check_bench(options, error);
		inputs = !options->kernels;
	}
	if (status == CPA_OK && inputs)
		status = check_inputs(options, fill_asked, error);
	if (options->command == CPA_COMMAND_CHECK || options->command == CPA_COMMAND_DIAGNOSE)
		status = check_recordings(options, error);
	if (options->command == CPA_COMMAND_MERGE)
		status = check_merge(options, error);
	if (options->command == CPA_COMMAND_PROBE)
		status = check_probe(options, error);
	if (options->command == CPA_COMMAND_REPORT)
		status = check_report(options, error);
	if (status == CPA_OK && options->has_problem)
		status = cpa_guidance_choose(
			options, NULL, &options->problem, &options->guidance, error);
	if (status == CPA_OK)
		status = check_system(options, error);
	if (status == CPA_OK)
		status = check_outputs(options, error);
	if (status == CPA_OK)
		status = check_given(options, error);
	return status;
}
