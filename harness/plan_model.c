/*
 * plan_model.c - plan --model: the tensors of a model over the ranks, and its attentions as
 * problems.
 */
#include "harness/plan_model.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/plan_ways.h"
#include "harness/result_parts.h"

/* ---- targets
 * ----------------------------------------------------------------------------------- */

static enum cpa_status add_targets(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error)
{
	struct cpa_plan_model *it = targets->model;
	const struct cpa_model *m = it->model;
	const char *glob = options->call_glob ? options->call_glob : "*";

	targets->at = calloc((size_t)m->nattentions, sizeof *targets->at);
	if (!targets->at)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < m->nattentions; i++) {
		struct cpa_plan_target *target = &targets->at[targets->n];
		struct cpa_error why = {""};
		enum cpa_status status;

		if (fnmatch(glob, m->attentions[i].name, 0) != 0)
			continue;
		status = cpa_model_problem(&it->sized, i, &it->arena, &target->problem, &why);
		if (status == CPA_NO_MEMORY)
			return cpa_fail(error, status, "out of memory");
		target->call = m->attentions[i].name;
		target->refused = status == CPA_OK  ? CPA_VERDICT_RIGHT
			: status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
						    : CPA_VERDICT_CANNOT_TELL;
		if (status != CPA_OK)
			snprintf(target->reason, sizeof target->reason, "%s", why.text);
		targets->n++;
	}
	if (targets->n == 0)
		return cpa_fail(error, CPA_INVALID,
			"%.60s: no attention matches '%.100s'; its first of %d is '%.100s'",
			m->name, glob, m->nattentions, m->attentions[0].name);
	return CPA_OK;
}

enum cpa_status cpa_plan_model_targets(struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error)
{
	struct cpa_plan_model *it = calloc(1, sizeof *it);
	enum cpa_status status;

	if (!it)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	cpa_arena_init(&it->arena);
	targets->model = it;
	targets->file = options->model;
	status = cpa_model_open(options->model, &it->model, error);
	if (status == CPA_OK)
		status = cpa_model_apply(it->model, options->size, &it->sized, error);
	return status == CPA_OK ? add_targets(targets, options, error) : status;
}

void cpa_plan_model_fini(struct cpa_plan_targets *targets)
{
	if (!targets->model)
		return;
	cpa_model_destroy(targets->model->model);
	cpa_arena_fini(&targets->model->arena);
	free(targets->model);
	targets->model = NULL;
}

/* ---- one tensor
 * -------------------------------------------------------------------------------- */

/* "4 x 1024", "993, 3 x 992": runs of equal values. */
static void print_runs(char *text, size_t size, const int64_t *values, int n)
{
	struct cpa_text t = cpa_text_begin(text, size);
	int runs = 0;

	for (int i = 0, end; i < n; i = end, runs++) {
		for (end = i + 1; end < n && values[end] == values[i];)
			end++;
		if (runs == 4) {
			cpa_text_put(&t, ", ...");
			break;
		}
		if (end - i > 1)
			cpa_text_put(&t, "%s%d x %" PRId64, i ? ", " : "", end - i, values[i]);
		else
			cpa_text_put(&t, "%s%" PRId64, i ? ", " : "", values[i]);
	}
}

/* A table that is printed. */
struct table {
	struct cpa_way_table cut;
	FILE *out;
	int width; /* of the first column */
};

static void print_whole(const struct table *table, const struct cpa_model_entry *e,
	const char *id, const int64_t *shape)
{
	char left[80] = "";

	if (e->dim >= 0)
		snprintf(left, sizeof left, "  (optional: %d dimension%s, %d expected)", e->ndims,
			e->ndims == 1 ? "" : "s", e->expected_dims);
	fprintf(table->out, "  %-*s  %-14s  %-22s  %" PRId64 "%s\n", table->width, id, "whole",
		"all", cpa_way_slice_nbytes(&table->cut, e, shape, true), left);
}

static enum cpa_status print_entry(
	const struct table *table, const struct cpa_model_entry *e, struct cpa_error *error)
{
	const struct cpa_model *m = table->cut.sized->model;
	int segment = cpa_model_entry_segment(m, e);
	int64_t shape[CPA_MODEL_MAX_DIMS], nbytes;
	char id[256], along[64], tokens[160], bytes[160];
	enum cpa_status status = cpa_model_shape(table->cut.sized, e, shape, error);

	if (status != CPA_OK)
		return status;
	cpa_model_entry_print(e, id, sizeof id);
	if (segment < 0) {
		print_whole(table, e, id, shape);
		return CPA_OK;
	}
	nbytes = cpa_way_slice_nbytes(&table->cut, e, shape, false);
	for (int i = 0; i < table->cut.way->P; i++)
		table->cut.values[i] = nbytes * table->cut.sizes[segment][i];
	print_runs(tokens, sizeof tokens, table->cut.sizes[segment], table->cut.way->P);
	print_runs(bytes, sizeof bytes, table->cut.values, table->cut.way->P);
	snprintf(along, sizeof along, "%s%d %s", e->gathers ? "gather " : "", e->dim,
		m->segments[segment].name);
	fprintf(table->out, "  %-*s  %-14s  %-22s  %s", table->width, id, along, tokens, bytes);
	if (e->gathers)
		fprintf(table->out, ", then %" PRId64,
			nbytes * table->cut.sized->tokens[segment]);
	fputc('\n', table->out);
	return CPA_OK;
}

static void print_ties(const struct table *table)
{
	const struct cpa_model *m = table->cut.sized->model;
	char id[256], other[256];
	int n = 0;

	for (int i = 0; i < m->nentries; i++)
		for (int t = 0; t < m->entries[i].ntied; t++, n++) {
			cpa_model_entry_print(&m->entries[i], id, sizeof id);
			cpa_model_entry_print(
				&m->entries[m->entries[i].tied[t]], other, sizeof other);
			fprintf(table->out, "  %s %s with %s\n",
				n ? "          " : "cut alike:", id, other);
		}
}

/* ---- one way
 * ----------------------------------------------------------------------------------- */

static void print_heading(FILE *out, const struct cpa_way *way)
{
	bool any = false;

	if (way->N > 1)
		fprintf(out, "\n%d batch groups of %d rank%s", way->N, way->P,
			way->P == 1 ? "" : "s");
	else
		fprintf(out, "\n%d rank%s", way->P, way->P == 1 ? "" : "s");
	fprintf(out, ", split %s, %s (", cpa_split_name(way->split), cpa_order_name(way->order));
	for (int v = 0; v < CPA_NVARIANTS; v++)
		if (way->variants[v]) {
			fprintf(out, "%s%s", any ? ", " : "",
				cpa_variant_info((enum cpa_variant)v)->name);
			any = true;
		}
	fputs(")\n", out);
}

static int id_width(const struct cpa_model *model)
{
	char id[256];
	int width = 6;

	for (int i = 0; i < model->nentries; i++) {
		cpa_model_entry_print(&model->entries[i], id, sizeof id);
		width = (int)strlen(id) > width ? (int)strlen(id) : width;
	}
	return width;
}

static enum cpa_status print_way(FILE *out, const struct cpa_model_sized *sized,
	const struct cpa_way *way, struct cpa_error *error)
{
	struct table table = {.out = out, .cut = {.sized = sized, .way = way}};
	struct cpa_arena arena;
	enum cpa_status status;

	table.width = id_width(sized->model);
	cpa_arena_init(&arena);
	print_heading(out, way);
	status = cpa_way_cut(&table.cut, &arena, error);
	if (status == CPA_UNSUPPORTED || status == CPA_INVALID) {
		fputs("  refused: ", out);
		cpa_print_wrapped(out, error->text, 11, 11);
		status = CPA_OK;
		error->text[0] = '\0';
	} else if (status == CPA_OK) {
		fprintf(out, "  %-*s  %-14s  %-22s  %s\n", table.width, "tensor", "cut along",
			"tokens a rank", "bytes a rank");
		for (int i = 0; i < sized->model->nentries && status == CPA_OK; i++)
			status = print_entry(&table, &sized->model->entries[i], error);
		if (status == CPA_OK)
			print_ties(&table);
	}
	cpa_arena_fini(&arena);
	return status;
}

enum cpa_status cpa_plan_model_print(FILE *out, const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_error *error)
{
	const struct cpa_model_sized *sized;
	struct cpa_ways *ways;
	enum cpa_status status;

	if (!targets->model)
		return CPA_OK;
	sized = &targets->model->sized;
	fprintf(out, "%s, %s; plan %s; %" PRId64 "x%" PRId64, sized->model->name,
		sized->model->title, sized->model->derived ? "derived" : "published",
		sized->height, sized->width);
	if (sized->frames > 1)
		fprintf(out, "x%" PRId64, sized->frames);
	for (int i = 0; i < sized->model->nsegments; i++)
		fprintf(out, "%s%s %" PRId64 " %s",
			i ? ", " : "\n  tokens: ", sized->model->segments[i].name,
			sized->tokens[i],
			sized->model->segments[i].split ? "split" : "on every rank");
	fputc('\n', out);
	status = cpa_ways_find(targets, options, &ways, error);
	if (status != CPA_OK)
		return status;
	for (int i = 0; i < ways->n && status == CPA_OK; i++)
		status = print_way(out, sized, &ways->at[i], error);
	free(ways);
	fputc('\n', out);
	return status;
}

bool cpa_plan_model_is_derived(const struct cpa_plan_targets *targets)
{
	return targets->model && targets->model->sized.model->derived;
}

static void put_quoted(struct cpa_text *text, const char *option, const char *word)
{
	cpa_text_put(text, " %s '", option);
	for (; *word; word++)
		cpa_text_put(text, *word == '\'' ? "'\\''" : "%c", *word);
	cpa_text_put(text, "'");
}

bool cpa_plan_model_reproduce(
	struct cpa_text *text, const struct cpa_options *options, const char *call)
{
	if (!options->model)
		return false;
	put_quoted(text, "--model", options->model);
	if (options->size)
		put_quoted(text, "--size", options->size);
	put_quoted(text, "--call", call);
	return true;
}
