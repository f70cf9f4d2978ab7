/*
 * random.c - the random sweep: draws, runs, and makes what fails smaller.
 */
#include "harness/random.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/fault.h"
#include "harness/guidance.h"
#include "harness/random_case.h"
#include "harness/verify_call.h"
#include "sim/sim.h"

enum { CONFIGS_A_VARIANT = 2, MOST_MESHES = 4096, MOST_TRIES = 4000 };

/* ---- one problem ---- */

/* The problem of a case, read back from the options that a reproduction line has. */
struct trial {
	struct cpa_options options; /* owns the arrays of the rule */
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_verifier *verifier;
};

static enum cpa_status read_case(struct trial *t, const struct cpa_case *it,
	const struct cpa_options *o, struct cpa_error *error)
{
	char problem[CPA_CASE_TEXT], seed[32], guidance[80];
	struct cpa_text text = cpa_text_begin(guidance, sizeof guidance);
	char *argv[16] = {"cpattn", "verify", "--problem", problem, "--seed", seed, "--fill",
		(char *)cpa_fill_name(it->fill), "--device", (char *)o->device};
	int argc = 10;
	cpa_case_print(it, problem);
	snprintf(seed, sizeof seed, "%" PRIu64, it->seed);
	cpa_guidance_put(&text, &it->guidance);
	if (text.used) {
		argv[argc++] = "--guidance";
		argv[argc++] = guidance + sizeof " --guidance";
	}
	if (o->fault) {
		argv[argc++] = "--fault";
		argv[argc++] = (char *)o->fault;
	}
	enum cpa_status s = cpa_options_parse(argc, argv, &t->options, error);
	/* The text stays: it is what the line says. */
	char *kept = cpa_arena_alloc(&t->options.arena, sizeof problem);
	if (!kept)
		return s == CPA_OK ? cpa_fail(error, CPA_NO_MEMORY, "out of memory") : s;
	memcpy(kept, problem, sizeof problem);
	t->options.problem_text = kept;
	return s;
}

static enum cpa_status fill_trial(struct trial *t, struct cpa_error *error)
{
	enum cpa_status s = cpa_inputs_make(&t->options.problem, t->options.fill, t->options.seed,
		t->data, &t->tensors, error);
	return s == CPA_OK ? cpa_tensors_check(&t->tensors, error) : s;
}

static void trial_close(struct trial *t)
{
	cpa_verifier_destroy(t->verifier);
	for (int i = 0; i < 3; i++)
		free(t->data[i]);
	cpa_options_fini(&t->options);
}

/* Close it in any case. */
static enum cpa_status trial_open(struct trial *t, const struct cpa_case *it,
	const struct cpa_options *options, struct cpa_device *device, struct cpa_error *error)
{
	memset(t, 0, sizeof *t);
	enum cpa_status s = read_case(t, it, options, error);
	if (s == CPA_OK)
		s = fill_trial(t, error);
	struct cpa_verify_settings settings = {.device = device,
		.interleavings = options->interleavings,
		.seed = it->interleaving_seed,
		.guidance = t->options.guidance,
		.fault = options->fault ? options->fault_number : -1,
		.fault_where = &options->fault_where,
		.fault_seed = t->options.seed};
	if (s == CPA_OK)
		s = cpa_verifier_create(&settings, &t->tensors, NULL, &t->verifier, error);
	return s;
}

/* ---- one configuration ---- */

struct outcome {
	enum cpa_verdict verdict;
	double o, lse, probe;
	double combined;
	char reason[1024], line[CPA_RANDOM_LINE];
};

static enum cpa_verdict verdict_of(enum cpa_status s)
{
	return s == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED : CPA_VERDICT_CANNOT_TELL;
}

static void run_case(struct trial *t, const struct cpa_case *it, struct cpa_device *device,
	struct outcome *out)
{
	struct cpa_case_config made;
	struct cpa_verify_trace trace;
	struct cpa_result result;
	cpa_case_config(it, &t->options.problem, device->fp64_partials, &made);
	cpa_result_init(&result);
	cpa_verifier_run(t->verifier, &made.config, &result, &trace);
	free(result.counts);
	out->verdict = result.verdict;
	out->o = result.o.ratio;
	out->lse = result.lse.ratio;
	out->probe = result.probe_ratio;
	out->combined = result.combined.ratio;
	out->line[0] = '\0';
	memcpy(out->reason, result.reason, sizeof out->reason);
	if (out->verdict == CPA_VERDICT_WRONG || out->verdict == CPA_VERDICT_CANNOT_TELL) {
		char *line = cpa_verify_line(&t->options, NULL, NULL, &made.config, &trace);
		snprintf(out->line, sizeof out->line, "%s", line ? line : "");
		free(line);
	}
}

/* A problem that cannot even be opened. */
static void fail_case(const struct trial *t, enum cpa_status s, const struct cpa_error *error,
	struct outcome *out)
{
	*out = (struct outcome){.verdict = verdict_of(s), .o = NAN, .lse = NAN, .probe = NAN,
		.combined = NAN};
	snprintf(out->reason, sizeof out->reason, "%s", error->text);
	snprintf(out->line, sizeof out->line, "cpattn verify --problem %s",
		t->options.problem_text ? t->options.problem_text : "");
}

/* Opens, runs and closes: what shrinking does over and over. */
static void try_case(const struct cpa_case *it, const struct cpa_options *options,
	struct cpa_device *device, struct outcome *out)
{
	struct trial t;
	struct cpa_error error = {""};
	enum cpa_status s = trial_open(&t, it, options, device, &error);
	if (s == CPA_OK)
		run_case(&t, it, device, out);
	else
		fail_case(&t, s, &error, out);
	trial_close(&t);
}

/* ---- the sweep ---- */

struct sweep {
	const struct cpa_options *options;
	int64_t n, ndone;
	bool progress;
	struct cpa_random_report *report;
	int64_t first; /* number of the first failure so far, n: none */
	struct cpa_case failed;
	struct outcome outcome;
	enum cpa_status status;
	struct cpa_error error;
};

/* A sample of the meshes that the options allow: each of a variant as likely as the others. */
struct meshes {
	struct cpa_config at[CPA_NVARIANTS][CONFIGS_A_VARIANT];
	int64_t nseen[CPA_NVARIANTS];
	uint64_t *state;
};

static bool sample_mesh(void *context, const struct cpa_config *config)
{
	struct meshes *m = context;
	int64_t i = m->nseen[config->variant]++;
	if (i >= CONFIGS_A_VARIANT)
		i = (int64_t)(cpa_random(m->state) % (uint64_t)(i + 1));
	if (i < CONFIGS_A_VARIANT)
		m->at[config->variant][i] = *config;
	return true;
}

static void count(struct sweep *s, const struct outcome *out)
{
	struct cpa_random_report *r = s->report;
	r->nright += out->verdict == CPA_VERDICT_RIGHT;
	r->nwrong += out->verdict == CPA_VERDICT_WRONG;
	r->nunsupported += out->verdict == CPA_VERDICT_UNSUPPORTED;
	r->ncannot_tell += out->verdict == CPA_VERDICT_CANNOT_TELL;
	if (out->verdict != CPA_VERDICT_RIGHT)
		return;
	r->o = fmax(r->o, out->o); /* NaN gives way */
	r->lse = fmax(r->lse, out->lse);
	r->probe = fmax(r->probe, out->probe);
	r->combined = fmax(r->combined, out->combined);
	r->ncombined += !isnan(out->combined);
}

/* Whether the problem may go on. */
static bool note(
	struct sweep *s, int64_t i, const struct cpa_case *it, const struct outcome *out)
{
	bool fails = out->verdict == CPA_VERDICT_WRONG || out->verdict == CPA_VERDICT_CANNOT_TELL;
#ifdef _OPENMP
#pragma omp critical(cpa_random_note)
#endif
	{
		count(s, out);
		if (fails && i < s->first) {
			s->first = i;
			s->failed = *it;
			s->outcome = *out;
		}
	}
	return !fails;
}

static void show_progress(struct sweep *s)
{
	int64_t n;
#ifdef _OPENMP
#pragma omp atomic capture
#endif
	n = ++s->ndone;
	if (s->progress && n % 16 == 0)
		fprintf(stderr, "\rproblem %" PRId64 " of %" PRId64, n, s->n);
}

/* Draws the world that lengths are near to from those asked for. */
static int draw_world(const struct cpa_options *o, uint64_t *state)
{
	int64_t W = o->ranks.at[cpa_random(state) % (uint64_t)o->ranks.n];
	return W < 1 ? 1 : W > 64 ? 64 : (int)W;
}

static void run_problem(struct sweep *s, struct cpa_device *device, int64_t i)
{
	uint64_t state = s->options->seed + (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
	state = cpa_random(&state); /* or problems would be each other's, one step on */
	struct cpa_case it;
	struct trial t;
	struct outcome out;
	struct cpa_error error = {""};
	struct meshes m = {.state = &state};
	cpa_case_draw_problem(&it, draw_world(s->options, &state), &state);
	enum cpa_status status = trial_open(&t, &it, s->options, device, &error);
	if (status == CPA_OK)
		status = cpa_sweep(s->options, &t.options.problem, CPA_ROTATE_CHOICE_ALL,
			device->fp64_partials, sample_mesh, &m, &error);
	if (status != CPA_OK) {
		fail_case(&t, status, &error, &out);
		note(s, i, &it, &out);
	}
	for (int v = 0; status == CPA_OK && v < CPA_NVARIANTS; v++)
		for (int k = 0; k < CONFIGS_A_VARIANT && k < m.nseen[v]; k++) {
			cpa_case_draw_config(&it, s->options, &m.at[v][k], &state);
			run_case(&t, &it, device, &out);
			if (!note(s, i, &it, &out)) {
				v = CPA_NVARIANTS;
				break;
			}
		}
	trial_close(&t);
}

static void fail_sweep(struct sweep *s, enum cpa_status status, const struct cpa_error *error)
{
#ifdef _OPENMP
#pragma omp critical(cpa_random_note)
#endif
	{
		s->status = status;
		s->error = *error;
	}
}

/* Each thread has a device of its own, as devices count their memory. */
static void run_problems(struct sweep *s)
{
#ifdef _OPENMP
#pragma omp parallel
#endif
	{
		struct cpa_device *device = NULL;
		struct cpa_error error;
		enum cpa_status status = cpa_device_create(s->options->device, &device, &error);
		if (status != CPA_OK)
			fail_sweep(s, status, &error);
#ifdef _OPENMP
#pragma omp for schedule(dynamic, 1)
#endif
		for (int64_t i = 0; i < s->n; i++) {
			int64_t first;
#ifdef _OPENMP
#pragma omp atomic read
#endif
			first = s->first;
			if (!device || i > first)
				continue;
			run_problem(s, device, i);
			show_progress(s);
		}
		cpa_device_destroy(device);
	}
}

/* ---- the smallest ---- */

static enum cpa_status shrink(struct sweep *s, struct cpa_error *error)
{
	struct cpa_device *device;
	enum cpa_status status = cpa_device_create(s->options->device, &device, error);
	if (status != CPA_OK)
		return status;
	int untouched = 0, n = cpa_case_nways();
	for (int i = 0, tries = 0; untouched < n && tries < MOST_TRIES; i = (i + 1) % n) {
		struct cpa_case smaller = s->failed;
		struct outcome out;
		untouched++;
		if (!cpa_case_shrink(&smaller, i, s->options))
			continue;
		tries++;
		try_case(&smaller, s->options, device, &out);
		if (out.verdict != s->outcome.verdict)
			continue;
		s->failed = smaller;
		s->outcome = out;
		untouched = 0;
		i--; /* the same way once more */
	}
	cpa_device_destroy(device);
	return CPA_OK;
}

enum cpa_status cpa_random_sweep(const struct cpa_options *options, int64_t n, bool progress,
	struct cpa_random_report *report, struct cpa_error *error)
{
	struct sweep s = {.options = options,
		.n = n,
		.progress = progress,
		.report = report,
		.first = n,
		.status = CPA_OK};
	double start = cpa_now();
	*report = (struct cpa_random_report){.verdict = CPA_VERDICT_RIGHT, .problem = -1};
	run_problems(&s);
	if (progress)
		fprintf(stderr, "\r%79s\r", "");
	report->nproblems = s.ndone;
	if (s.status == CPA_OK && s.first < n) {
		report->problem = s.first;
		report->verdict = s.outcome.verdict;
		memcpy(report->drawn, s.outcome.line, sizeof report->drawn);
		s.status = shrink(&s, &s.error);
		memcpy(report->smallest, s.outcome.line, sizeof report->smallest);
		memcpy(report->reason, s.outcome.reason, sizeof report->reason);
	}
	report->seconds = cpa_now() - start;
	if (s.status != CPA_OK)
		*error = s.error;
	return s.status;
}
