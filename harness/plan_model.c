/*
 * plan_model.c - plan --model: the tensors of a model over the ranks, and its attentions as
 * problems.
 */
#include "harness/plan_model.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/model.h"
#include "harness/result_parts.h"

enum { MAX_WAYS = 512 };

struct cpa_plan_model {
	struct cpa_model *model;
	struct cpa_model_sized sized;
	struct cpa_arena arena; /* segments of the problems */
};

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

/* ---- ways to cut
 * ------------------------------------------------------------------------------- */

/* Configurations that cut tensors alike: the mesh over the ranks does not matter, nor does
 * rotation. */
struct way {
	int N, P;
	enum cpa_split split;
	enum cpa_order order;
	const int64_t *sizes; /* [nsizes] of given, P to each split segment */
	int nsizes;
	bool variants[CPA_NVARIANTS];
};
struct ways {
	const struct cpa_options *options;
	struct way at[MAX_WAYS];
	int n;
};

static bool collect(void *context, const struct cpa_config *config)
{
	struct ways *ways = context;
	int P = config->ring_degree * config->ulysses_degree, i = 0;

	while (i < ways->n &&
		!(ways->at[i].N == config->batch_degree && ways->at[i].P == P &&
			ways->at[i].split == config->split && ways->at[i].order == config->order))
		i++;
	if (i == MAX_WAYS)
		return true; /* ways beyond are not printed */
	if (i == ways->n)
		ways->at[ways->n++] = (struct way){.N = config->batch_degree,
			.P = P,
			.split = config->split,
			.order = config->order,
			.sizes = config->sizes,
			.nsizes = config->nsizes};
	ways->at[i].variants[config->variant] = true;
	return true;
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

struct table {
	FILE *out;
	const struct cpa_model_sized *sized;
	const struct way *way;
	const int64_t *sizes[CPA_MODEL_MAX_SEGMENTS]; /* [P] of each segment; NULL: not cut */
	int64_t *values; /* [P] scratch */
	int width; /* of the first column */
};

/* Bytes of one token of the cut dimension, or of all that is held whole. */
static int64_t slice_nbytes(const struct table *table, const struct cpa_model_entry *e,
	const int64_t *shape, bool whole)
{
	int64_t nbytes = e->element_nbytes;

	for (int i = 0; i < e->ndims; i++) {
		bool batch = strcmp(e->dims[i], "batch") == 0;

		if (whole || i != e->dim)
			nbytes *= batch ? (shape[i] + table->way->N - 1) / table->way->N
					: shape[i];
	}
	return nbytes;
}

static void print_whole(const struct table *table, const struct cpa_model_entry *e,
	const char *id, const int64_t *shape)
{
	char left[80] = "";

	if (e->dim >= 0)
		snprintf(left, sizeof left, "  (optional: %d dimension%s, %d expected)", e->ndims,
			e->ndims == 1 ? "" : "s", e->expected_dims);
	fprintf(table->out, "  %-*s  %-14s  %-22s  %" PRId64 "%s\n", table->width, id, "whole",
		"all", slice_nbytes(table, e, shape, true), left);
}

static enum cpa_status print_entry(
	const struct table *table, const struct cpa_model_entry *e, struct cpa_error *error)
{
	const struct cpa_model *m = table->sized->model;
	int segment = cpa_model_entry_segment(m, e);
	int64_t shape[CPA_MODEL_MAX_DIMS], nbytes;
	char id[256], along[64], tokens[160], bytes[160];
	enum cpa_status status = cpa_model_shape(table->sized, e, shape, error);

	if (status != CPA_OK)
		return status;
	cpa_model_entry_print(e, id, sizeof id);
	if (segment < 0) {
		print_whole(table, e, id, shape);
		return CPA_OK;
	}
	nbytes = slice_nbytes(table, e, shape, false);
	for (int i = 0; i < table->way->P; i++)
		table->values[i] = nbytes * table->sizes[segment][i];
	print_runs(tokens, sizeof tokens, table->sizes[segment], table->way->P);
	print_runs(bytes, sizeof bytes, table->values, table->way->P);
	snprintf(along, sizeof along, "%s%d %s", e->gathers ? "gather " : "", e->dim,
		m->segments[segment].name);
	fprintf(table->out, "  %-*s  %-14s  %-22s  %s", table->width, id, along, tokens, bytes);
	if (e->gathers)
		fprintf(table->out, ", then %" PRId64, nbytes * table->sized->tokens[segment]);
	fputc('\n', table->out);
	return CPA_OK;
}

static void print_ties(const struct table *table)
{
	const struct cpa_model *m = table->sized->model;
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

/* Sizes of every split segment; CPA_UNSUPPORTED with the segment. */
static enum cpa_status cut(struct table *table, struct cpa_arena *arena, struct cpa_error *error)
{
	const struct cpa_model *m = table->sized->model;
	const struct way *way = table->way;
	/* Without documents the two orders are one. */
	enum cpa_order order = way->order == CPA_ORDER_ZIGZAG_DOCUMENTS ? CPA_ORDER_ZIGZAG
									: way->order;
	int ncuts = 0;

	table->values = cpa_arena_alloc(arena, (size_t)way->P * sizeof *table->values);
	for (int s = 0; s < m->nsegments; s++) {
		int64_t *sizes = cpa_arena_alloc(arena, (size_t)way->P * sizeof *sizes);
		struct cpa_error why = {""};
		struct cpa_cut made;
		enum cpa_status status;

		if (!m->segments[s].split)
			continue;
		if (way->sizes && (ncuts + 1) * way->P > way->nsizes)
			return cpa_fail(error, CPA_INVALID,
				"%s: --split gives %d sizes, and every split "
				"segment needs %d",
				m->segments[s].name, way->nsizes, way->P);
		status = cpa_cut_init(&made, arena, way->split, order, table->sized->tokens[s],
			way->P, way->sizes ? way->sizes + ncuts++ * way->P : NULL, &why);
		if (arena->failed)
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		if (status != CPA_OK)
			return cpa_fail(error, status, "%s: %s", m->segments[s].name, why.text);
		for (int i = 0; i < way->P; i++)
			sizes[i] = cpa_cut_size(&made, i);
		table->sizes[s] = sizes;
	}
	return CPA_OK;
}

static void print_heading(FILE *out, const struct way *way)
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
	const struct way *way, struct cpa_error *error)
{
	struct table table = {.out = out, .sized = sized, .way = way};
	struct cpa_arena arena;
	enum cpa_status status;

	table.width = id_width(sized->model);
	cpa_arena_init(&arena);
	print_heading(out, way);
	status = cut(&table, &arena, error);
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
	struct ways *ways;
	enum cpa_status status = CPA_OK;

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
	ways = calloc(1, sizeof *ways);
	if (!ways)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	ways->options = options;
	for (int i = 0; i < targets->n && status == CPA_OK; i++)
		if (targets->at[i].refused == CPA_VERDICT_RIGHT)
			status = cpa_sweep(options, &targets->at[i].problem,
				CPA_ROTATE_CHOICE_P2P, false, collect, ways, error);
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
