/*
 * cmd_probe.c - the command probe: a recording of inputs to be fed to somebody else's run.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/inputs.h"
#include "harness/probe_file.h"

/* ---- the problem -----------------------------------------------------------------------------
 */

/* The first call of the file that matches. */
static enum cpa_status read_like(const struct cpa_options *o, struct cpa_recording *recording,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error)
{
	const struct cpa_call *call;
	enum cpa_status status;
	int i = 0;

	while (i < cpa_recording_ncalls(recording) && o->call_glob &&
		fnmatch(o->call_glob, cpa_recording_call_name(recording, i), 0) != 0)
		i++;
	if (i == cpa_recording_ncalls(recording))
		return cpa_fail(error, CPA_INVALID, "%.300s: no call matches --call %.200s",
			o->like, o->call_glob);
	status = cpa_recording_call(recording, i, &call, error);
	if (status == CPA_OK)
		status = cpa_probe_like(call, o->seed, arena, problem, error);
	return status;
}

/* ---- writing ---------------------------------------------------------------------------------
 */

static enum cpa_status write_inputs(const struct cpa_options *o, const struct cpa_problem *p,
	enum cpa_fill fill, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	void *data[5] = {0};
	char source[100];
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < 3; i++) {
		const double nbytes = (double)p->B * (double)cpa_tensor_ntokens(p, tensors[i]) *
			(double)cpa_token_nbytes(p, tensors[i]);

		/* The file is made in memory, in which it takes twice its size. */
		if (nbytes < 8e9)
			data[i] = malloc((size_t)nbytes + 1);
		if (!data[i] && status == CPA_OK)
			status = cpa_fail(error, CPA_NO_MEMORY,
				"%s takes %.3g bytes; expected at most 8e9, and "
				"as much memory three times",
				cpa_tensor_name(tensors[i]), nbytes);
	}
	for (int i = 0; i < 3 && status == CPA_OK; i++)
		cpa_inputs_fill(p, fill, o->seed, tensors[i], data[i]);
	snprintf(source, sizeof source, "cpattn probe --fill %s --seed %llu", cpa_fill_name(fill),
		(unsigned long long)o->seed);
	if (status == CPA_OK)
		status = cpa_recording_write(o->out, "00_probe", p, data[0], data[1], data[2],
			NULL, NULL, source, error);
	for (int i = 0; i < 3; i++)
		free(data[i]);
	return status;
}

static void print(const struct cpa_options *o, const struct cpa_problem *p, enum cpa_fill fill)
{
	char text[1000];

	cpa_problem_print(p, text, sizeof text);
	printf("%s: call 00_probe, fill %s, seed %llu\n  %s\n\n%s\nmeant for: %s\n", o->out,
		cpa_fill_name(fill), (unsigned long long)o->seed, text, cpa_probe_reading(fill),
		cpa_probe_classes(fill));
	for (int i = 0; cpa_probe_hidden_from(p, fill, i); i++)
		printf("%s  %s\n", i ? "" : "what these inputs cannot show:\n",
			cpa_probe_hidden_from(p, fill, i));
	printf("\nwhat to do:\n"
	       "  1 read q, k, v and the rule of /calls/00_probe, give each rank its part as "
	       "your system cuts\n"
	       "    it, and run the attention\n"
	       "  2 record o and lse of every rank: cpattn_record.call(q, k, v, o, lse, "
	       "tokens=...) of\n"
	       "    cpattn_record.py on each of them, then cpattn merge RUN.d -o run.h5\n"
	       "  3 cpattn check run.h5, and if it is wrong cpattn diagnose run.h5\n");
}

int cpa_cmd_probe(const struct cpa_options *options)
{
	struct cpa_recording *recording = NULL;
	struct cpa_problem problem = options->problem;
	enum cpa_fill fill = options->fill;
	struct cpa_error error = {""}, inner;
	struct cpa_arena arena;
	enum cpa_status status = CPA_OK;

	cpa_arena_init(&arena);
	if (options->like) {
		status = cpa_recording_open(options->like, &recording, &inner);
		if (status != CPA_OK)
			cpa_fail(&error, status, "%.300s: %s", options->like, inner.text);
		else
			status = read_like(options, recording, &arena, &problem, &error);
		if (!options->fill_asked)
			fill = CPA_FILL_UNLIKE;
	}
	if (status == CPA_OK)
		status = write_inputs(options, &problem, fill, &error);
	if (status == CPA_OK)
		print(options, &problem, fill);
	cpa_recording_close(recording);
	cpa_arena_fini(&arena);
	return status == CPA_OK ? 0 : cpa_complain(&error);
}
