/*
 * report_read.c - reads what --json of the other commands wrote.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/fields.h"
#include "harness/options_table.h"
#include "harness/report.h"

#if CPA_HAVE_CJSON

enum { MAX_RANKS = 1 << 20, MAX_DEGREE = 1 << 20 };

struct reader {
	struct cpa_arena *arena;
	struct cpa_report_run *run;
	int index; /* of the result that is being read; -1: the whole */
	unsigned command; /* 1 << enum cpa_command */
};

#define VERIFY (1u << CPA_COMMAND_VERIFY)
#define PLAN (1u << CPA_COMMAND_PLAN)
#define CHECK (1u << CPA_COMMAND_CHECK | 1u << CPA_COMMAND_DIAGNOSE)
#define BENCH (1u << CPA_COMMAND_BENCH)
#define ALL (VERIFY | PLAN | CHECK | BENCH)
#define FAULTS (1u << 31) /* make check-faults */

/* ---- gaps ---- */

static void note_gap(struct reader *r, const char *path, bool kind)
{
	struct cpa_report_run *run = r->run;
	struct cpa_gap *gap = run->gaps;

	while (gap < run->gaps + run->ngaps &&
		(strcmp(gap->path, path) != 0 || gap->kind != kind))
		gap++;
	if (gap == run->gaps + CPA_REPORT_MAX_GAPS)
		return;
	if (gap == run->gaps + run->ngaps) {
		*gap = (struct cpa_gap){
			cpa_report_format(r->arena, "%s", path), 0, r->index, kind};
		run->ngaps++;
	}
	gap->count++;
}

/* The member, where it is of this kind; a zero place where it is null; a gap otherwise. */
static struct cpa_place take(struct reader *r, const struct cpa_place *object, const char *path,
	enum cpa_field_kind kind, unsigned expected)
{
	const char *slash = strrchr(path, '/');
	struct cpa_place at = cpa_field_member(object, slash ? slash + 1 : path);
	enum cpa_field_kind found = cpa_field_kind(&at);
	bool number = kind == CPA_FIELD_NUMBER && !isnan(cpa_field_peek_number(&at));

	if (found == kind || number)
		return at;
	if (kind == CPA_FIELD_NUMBER && found == CPA_FIELD_TEXT &&
		strcmp(cpa_field_peek_text(&at), "nan") == 0)
		return at;
	if (found == CPA_FIELD_MISSING ? (expected & r->command) != 0 : found != CPA_FIELD_NULL)
		note_gap(r, path, found != CPA_FIELD_MISSING);
	return (struct cpa_place){NULL, object, NULL, 0};
}

static const char *take_text(
	struct reader *r, const struct cpa_place *object, const char *path, unsigned expected)
{
	struct cpa_place at = take(r, object, path, CPA_FIELD_TEXT, expected);
	const char *text = cpa_field_peek_text(&at);

	return text ? cpa_report_format(r->arena, "%s", text) : NULL;
}

static double take_number(
	struct reader *r, const struct cpa_place *object, const char *path, unsigned expected)
{
	struct cpa_place at = take(r, object, path, CPA_FIELD_NUMBER, expected);

	return cpa_field_peek_number(&at);
}

/* A degree or a count: 0 where there is none. */
static int take_degree(struct reader *r, const struct cpa_place *object, const char *path)
{
	double value = take_number(r, object, path, ALL);

	if (isnan(value))
		return 0;
	if (value >= 1 && value <= MAX_DEGREE && value == floor(value))
		return (int)value;
	note_gap(r, path, true);
	return 0;
}

static struct cpa_series take_series(
	struct reader *r, const struct cpa_place *object, const char *path, unsigned expected)
{
	struct cpa_place at = take(r, object, path, CPA_FIELD_ARRAY, expected);
	struct cpa_series series = {NULL, cpa_field_count(&at)};
	struct cpa_place each = {0};

	if (series.n < 1 || series.n > MAX_RANKS)
		return (struct cpa_series){0};
	series.at = cpa_arena_alloc(r->arena, (size_t)series.n * sizeof *series.at);
	if (!series.at)
		return (struct cpa_series){0};
	for (int i = 0; i < series.n && cpa_field_next(&at, &each); i++) {
		series.at[i] = cpa_field_peek_number(&each);
		if (!isfinite(series.at[i]) || series.at[i] < 0) {
			note_gap(r, path, true);
			return (struct cpa_series){0};
		}
	}
	return series;
}

static struct cpa_statistics take_statistics(
	struct reader *r, const struct cpa_place *object, const char *path)
{
	struct cpa_place at = take(r, object, path, CPA_FIELD_OBJECT, BENCH);
	struct cpa_statistics s = {0, NAN, NAN, NAN, NAN, NAN};
	double n;

	if (!at.json)
		return s;
	n = take_number(r, &at, "results/*/seconds/n", BENCH);
	s.min = take_number(r, &at, "results/*/seconds/min", BENCH);
	s.q1 = take_number(r, &at, "results/*/seconds/q1", BENCH);
	s.median = take_number(r, &at, "results/*/seconds/median", BENCH);
	s.q3 = take_number(r, &at, "results/*/seconds/q3", BENCH);
	s.max = take_number(r, &at, "results/*/seconds/max", BENCH);
	s.n = s.median > 0 ? n >= 1 && n <= MAX_DEGREE ? (int)n : 1 : 0;
	return s;
}

/* ---- one result ---- */

static enum cpa_verdict take_verdict(
	struct reader *r, const struct cpa_place *at, const char **why)
{
	const char *text = take_text(r, at, "results/*/verdict", ALL);

	for (int v = CPA_VERDICT_RIGHT; v <= CPA_VERDICT_CANNOT_TELL; v++)
		if (text && strcmp(text, cpa_verdict_name((enum cpa_verdict)v)) == 0)
			return (enum cpa_verdict)v;
	if (text)
		note_gap(r, "results/*/verdict", true);
	*why = "the file does not say a verdict";
	return CPA_VERDICT_CANNOT_TELL;
}

static struct cpa_reported_error take_error(
	struct reader *r, const struct cpa_place *object, const char *path)
{
	struct cpa_place at = take(r, object, path, CPA_FIELD_OBJECT, VERIFY | CHECK);
	struct cpa_place worst = cpa_field_member(&at, "worst");
	struct cpa_reported_error e = {false, NAN, NAN, NAN, NAN, NAN, NAN, NAN};

	if (!at.json)
		return e;
	e.there = true;
	e.error = take_number(r, &at, "error", 0);
	e.bound = take_number(r, &at, "bound", 0);
	e.ratio = take_number(r, &at, "results/*/o or lse/ratio", VERIFY | CHECK);
	if (!worst.json)
		return e;
	e.batch = take_number(r, &worst, "batch", 0);
	e.token = take_number(r, &worst, "token", 0);
	e.head = take_number(r, &worst, "head", 0);
	e.dim = take_number(r, &worst, "dim", 0);
	return e;
}

static void take_findings(struct reader *r, const struct cpa_place *at, struct cpa_reported *x)
{
	struct cpa_place list = take(r, at, "results/*/findings", CPA_FIELD_ARRAY, 0);
	struct cpa_place each = {0};
	int n = cpa_field_count(&list);

	if (n == 0)
		return;
	x->findings = cpa_arena_alloc(r->arena, (size_t)n * sizeof *x->findings);
	while (x->findings && x->nfindings < n && cpa_field_next(&list, &each)) {
		struct cpa_reported_finding *f = &x->findings[x->nfindings++];

		f->class = take_text(r, &each, "results/*/findings/*/class", ALL);
		f->name = take_text(r, &each, "results/*/findings/*/name", ALL);
		f->explained = take_number(r, &each, "results/*/findings/*/explained", ALL);
		f->ties = take_number(r, &each, "results/*/findings/*/ties", 0);
	}
}

static void take_variants(
	struct reader *r, const struct cpa_place *at, struct cpa_reported_fault *fault)
{
	struct cpa_place variants =
		take(r, at, "results/*/fault/variants", CPA_FIELD_OBJECT, FAULTS);

	for (int v = 0; v < CPA_REPORT_NVARIANTS && variants.json; v++) {
		struct cpa_series pair = take_series(r, &variants,
			cpa_report_format(r->arena, "results/*/fault/variants/%s",
				cpa_variant_info((enum cpa_variant)v)->name),
			FAULTS);

		for (int i = 0; i < 2 && pair.n == 2; i++)
			fault->of[v][i] = pair.at[i];
	}
}

static void take_fault(struct reader *r, const struct cpa_place *result, struct cpa_reported *x)
{
	struct cpa_place at = take(r, result, "results/*/fault", CPA_FIELD_OBJECT, 0);
	struct cpa_reported_fault *fault =
		at.json ? cpa_arena_alloc(r->arena, sizeof *fault) : NULL;

	if (!fault)
		return;
	*fault = (struct cpa_reported_fault){
		.class = take_text(r, &at, "results/*/fault/class", FAULTS),
		.name = take_text(r, &at, "results/*/fault/name", FAULTS),
		.planted = take_number(r, &at, "results/*/fault/planted", FAULTS),
		.seen = take_number(r, &at, "results/*/fault/seen", FAULTS),
		.found = take_number(r, &at, "results/*/fault/found", FAULTS),
		.named = take_number(r, &at, "results/*/fault/named", FAULTS),
		.tied = take_number(r, &at, "results/*/fault/tied", FAULTS),
		.other = take_number(r, &at, "results/*/fault/other", FAULTS),
		.missed = take_number(r, &at, "results/*/fault/missed", FAULTS)};
	take_variants(r, &at, fault);
	x->fault = fault;
}

static void take_times(struct reader *r, const struct cpa_place *at, struct cpa_reported *x)
{
	struct cpa_place phases = take(
		r, at, "results/*/phases", CPA_FIELD_OBJECT, x->kernel ? 0 : BENCH);
	struct cpa_place one = take(
		r, at, "results/*/one_rank", CPA_FIELD_OBJECT, x->kernel ? 0 : BENCH);

	x->seconds = take_statistics(r, at, "results/*/seconds");
	x->spread = take_number(r, at, "results/*/spread", BENCH);
	for (int p = 0; p < CPA_REPORT_NPHASES; p++)
		x->phases[p] = phases.json ? take_number(r, &phases, cpa_report_phases[p], 0)
					   : NAN;
	x->beyond = take_number(r, at, "results/*/beyond", x->kernel ? 0 : BENCH);
	x->flop_rate = take_number(r, at, "results/*/flop_per_second", x->kernel ? 0 : BENCH);
	x->of_peak = take_number(r, at, "results/*/of_peak", x->kernel ? 0 : BENCH);
	x->speedup = one.json ? take_number(r, &one, "results/*/one_rank/over_this", BENCH) : NAN;
	x->rate = take_number(r, at, "results/*/rate", x->kernel ? BENCH : 0);
	x->of_limit = take_number(r, at, "results/*/of_limit", x->kernel ? BENCH : 0);
}

static const char *orient(struct cpa_arena *arena, const struct cpa_reported *x)
{
	if (x->fault)
		return cpa_report_format(arena, "%s %s", x->fault->class ? x->fault->class : "-",
			x->fault->name ? x->fault->name : "");
	if (x->kernel)
		return cpa_report_format(arena, "%s %s", x->kernel, x->problem ? x->problem : "");
	if (x->part >= 0)
		return cpa_report_format(arena, "rank %d", x->part);
	if (x->part == -1)
		return "one device";
	if (!x->variant)
		return "all of it";
	return cpa_report_format(arena, "%s %dx%dx%d%s%s", x->variant, x->batch, x->ring,
		x->ulysses, x->rotate ? " " : "", x->rotate ? x->rotate : "");
}

/* All that tells results of one file apart; numbers that were measured are not among it. */
static const char *make_key(
	struct reader *r, const struct cpa_place *at, const struct cpa_reported *x)
{
	static const char *const names[] = {"split", "order", "heads_rule", "direction",
		"partials", "dtype", "device", "comm", "layout", "processes"};
	const char *key = cpa_report_format(
		r->arena, "%s|%s", cpa_reported_call(x, r->run, r->arena), x->label);

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct cpa_place member = cpa_field_member(at, names[i]);
		const char *text = cpa_field_peek_text(&member);
		double number = cpa_field_peek_number(&member);

		if (text)
			key = cpa_report_format(r->arena, "%s|%s", key, text);
		else if (!isnan(number))
			key = cpa_report_format(r->arena, "%s|%.17g", key, number);
	}
	return key;
}

static void take_names(struct reader *r, const struct cpa_place *at, struct cpa_reported *x)
{
	unsigned configured = VERIFY | PLAN | (x->kernel ? 0 : BENCH);

	x->file = take_text(r, at, "results/*/file", x->kernel ? 0 : ALL);
	x->call = take_text(r, at, "results/*/call", x->kernel ? 0 : ALL);
	x->variant = take_text(r, at, "results/*/variant", configured);
	x->rotate = take_text(r, at, "results/*/rotate", configured);
	x->order = take_text(r, at, "results/*/order", configured);
	x->dtype = take_text(r, at, "results/*/dtype", ALL);
	x->device = take_text(r, at, "results/*/device", ALL);
	x->comm = take_text(r, at, "results/*/comm", configured);
	x->reason = take_text(r, at, "results/*/reason", ALL);
	if (!x->kernel) {
		x->batch = take_degree(r, at, "results/*/batch");
		x->ring = take_degree(r, at, "results/*/ring");
		x->ulysses = take_degree(r, at, "results/*/ulysses");
		x->ranks = take_degree(r, at, "results/*/ranks");
	}
}

static void take_result(struct reader *r, const struct cpa_place *at, struct cpa_reported *x)
{
	const char *why = NULL;
	struct cpa_place rank = cpa_field_member(at, "rank"), proof, probe;
	unsigned counted = VERIFY | PLAN | BENCH;

	x->verdict = take_verdict(r, at, &why);
	x->kernel = take_text(r, at, "results/*/kernel", 0);
	x->problem = take_text(r, at, "results/*/problem", 0);
	take_names(r, at, x);
	if (why && !x->reason)
		x->reason = why;
	x->part = -2;
	if (r->command & CHECK && cpa_field_kind(&rank) != CPA_FIELD_MISSING) {
		double number = cpa_field_peek_number(&rank);

		x->part = number >= 0 && number < MAX_DEGREE ? (int)number : -1;
	}
	x->o = take_error(r, at, "results/*/o");
	x->lse = take_error(r, at, "results/*/lse");
	probe = take(r, at, "results/*/probe", CPA_FIELD_OBJECT, VERIFY);
	x->probe_ratio = probe.json ? take_number(r, &probe, "ratio", 0) : NAN;
	if (x->kernel)
		counted = 0;
	x->bytes_sent = take_series(r, at, "results/*/bytes_sent", counted);
	x->messages = take_series(r, at, "results/*/messages", counted);
	x->peak_bytes = take_series(r, at, "results/*/peak_bytes", counted);
	x->work = take_series(r, at, "results/*/work", counted);
	x->proved = -1;
	proof = take(r, at, "results/*/proof", CPA_FIELD_OBJECT, PLAN);
	if (proof.json)
		x->proved = take_number(r, &proof, "results/*/proof/proved", PLAN) > 0;
	x->seconds.n = 0;
	x->run_seconds = NAN;
	x->speedup = x->spread = x->beyond = x->flop_rate = x->of_peak = x->rate = x->of_limit =
		NAN;
	for (int p = 0; p < CPA_REPORT_NPHASES; p++)
		x->phases[p] = NAN;
	if (r->command & BENCH)
		take_times(r, at, x);
	else
		x->run_seconds = take_number(r, at, "results/*/seconds", VERIFY);
	take_findings(r, at, x);
	take_fault(r, at, x);
	x->label = orient(r->arena, x);
	x->key = make_key(r, at, x);
}

/* ---- the whole ---- */

static unsigned find_command(const char *name)
{
	if (name && strcmp(name, "faults") == 0)
		return FAULTS;
	for (int i = 0; name && cpa_command_info(i); i++)
		if (strcmp(cpa_command_info(i)->name, name) == 0)
			return 1u << cpa_command_info(i)->command;
	return 0;
}

static void take_head(struct reader *r, const struct cpa_place *root)
{
	struct cpa_report_run *run = r->run;
	struct cpa_place options, machine, model = cpa_field_member(root, "model");

	r->command = ALL;
	run->version = take_text(r, root, "cpattn", ALL);
	run->command = take_text(r, root, "command", ALL);
	options = take(r, root, "options", CPA_FIELD_OBJECT, ALL);
	machine = take(r, root, "machine", CPA_FIELD_OBJECT, ALL);
	(void)take(r, root, "summary", CPA_FIELD_OBJECT, ALL);
	if (options.json) {
		run->command_line = take_text(r, &options, "options/command_line", ALL);
		run->problem = take_text(r, &options, "options/problem", ALL);
		run->fault = take_text(r, &options, "options/fault", 0);
	}
	run->cores = run->memory_bytes = run->height = run->width = NAN;
	if (machine.json) {
		run->cpu = take_text(r, &machine, "machine/cpu", ALL);
		run->os = take_text(r, &machine, "machine/os", 0);
		run->cores = take_number(r, &machine, "machine/cores", ALL);
		run->memory_bytes = take_number(r, &machine, "machine/memory_bytes", 0);
	}
	if (cpa_field_kind(&model) == CPA_FIELD_OBJECT) {
		run->model = take_text(r, &model, "model/name", ALL);
		run->height = take_number(r, &model, "model/height", ALL);
		run->width = take_number(r, &model, "model/width", ALL);
	}
	r->command = find_command(run->command);
}

static void take_results(struct reader *r, const struct cpa_place *list, int n)
{
	struct cpa_report_run *run = r->run;
	struct cpa_place each = {0};

	run->results = cpa_arena_alloc(r->arena, (size_t)(n ? n : 1) * sizeof *run->results);
	for (r->index = 0; run->results && r->index < n && cpa_field_next(list, &each);
		r->index++) {
		struct cpa_reported *x = &run->results[run->n];

		if (cpa_field_kind(&each) != CPA_FIELD_OBJECT) {
			note_gap(r, "results/*", true);
			continue;
		}
		take_result(r, &each, x);
		run->counts[x->verdict]++;
		run->n++;
	}
}

static enum cpa_status take_root(
	struct reader *r, const struct cpa_place *root, struct cpa_error *error)
{
	struct cpa_place results = cpa_field_member(root, "results");
	struct cpa_place format = cpa_field_member(root, "format");
	double number = cpa_field_peek_number(&format);
	const char *path = r->run->path;

	if (cpa_field_kind(root) != CPA_FIELD_OBJECT)
		return cpa_fail(error, CPA_INVALID,
			"%.300s: /: expected an object, as --json of the other commands writes "
			"it",
			path);
	if (cpa_field_kind(&format) == CPA_FIELD_MISSING)
		note_gap(r, "format", false);
	else if (!(number == 1))
		return cpa_fail(error, CPA_INVALID,
			"%.300s: /format: expected 1, the only one that this version reads; make "
			"the "
			"file again with --json of this version",
			path);
	if (cpa_field_kind(&results) != CPA_FIELD_ARRAY)
		return cpa_fail(error, CPA_INVALID,
			"%.300s: /results: %sexpected an array, as --json of verify, plan, "
			"check, "
			"diagnose and bench writes it",
			path, results.json ? "" : "missing, ");
	take_head(r, root);
	take_results(r, &results, cpa_field_count(&results));
	return r->arena->failed ? cpa_fail(error, CPA_NO_MEMORY, "out of memory for %.300s", path)
				: CPA_OK;
}

enum cpa_status cpa_report_parse(const char *path, const char *text, size_t nbytes,
	struct cpa_arena *arena, struct cpa_report_run *run, struct cpa_error *error)
{
	struct reader reader = {arena, run, -1, ALL};
	struct cpa_error inner = {""};
	struct cJSON *json = NULL;
	enum cpa_status status;

	*run = (struct cpa_report_run){.path = path};
	if (cpa_fields_parse(text, nbytes, &json, &inner) != CPA_OK)
		return cpa_fail(error, CPA_INVALID, "%.300s: %.300s", path, inner.text);
	status = take_root(&reader, &(struct cpa_place){json, NULL, NULL, 0}, error);
	cpa_fields_free(json);
	return status;
}

#else

enum cpa_status cpa_report_parse(const char *path, const char *text, size_t nbytes,
	struct cpa_arena *arena, struct cpa_report_run *run, struct cpa_error *error)
{
	(void)text;
	(void)nbytes;
	(void)arena;
	*run = (struct cpa_report_run){.path = path};
	return cpa_fail(error, CPA_UNSUPPORTED,
		"report reads JSON, and this cpattn was built without cJSON; install "
		"libcjson-dev and rebuild");
}

#endif
