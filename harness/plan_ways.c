/*
 * plan_ways.c - the ways in which the options of plan --model cut the tensors of a model.
 */
#include "harness/plan_ways.h"

#include <stdlib.h>
#include <string.h>

static bool collect(void *context, const struct cpa_config *config)
{
	struct cpa_ways *ways = context;
	int P = config->ring_degree * config->ulysses_degree, i = 0;

	while (i < ways->n &&
		!(ways->at[i].N == config->batch_degree && ways->at[i].P == P &&
			ways->at[i].split == config->split && ways->at[i].order == config->order))
		i++;
	if (i == CPA_MAX_WAYS)
		return true; /* ways beyond are not printed */
	if (i == ways->n)
		ways->at[ways->n++] = (struct cpa_way){.N = config->batch_degree,
			.P = P,
			.split = config->split,
			.order = config->order,
			.sizes = config->sizes,
			.nsizes = config->nsizes};
	ways->at[i].variants[config->variant] = true;
	return true;
}

enum cpa_status cpa_ways_find(const struct cpa_plan_targets *targets,
	const struct cpa_options *options, struct cpa_ways **ways, struct cpa_error *error)
{
	struct cpa_ways *found = calloc(1, sizeof *found);
	enum cpa_status status = CPA_OK;

	if (!found)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int i = 0; i < targets->n && status == CPA_OK; i++)
		if (targets->at[i].refused == CPA_VERDICT_RIGHT)
			status = cpa_sweep(options, &targets->at[i].problem,
				CPA_ROTATE_CHOICE_P2P, false, collect, found, error);
	if (status == CPA_OK)
		*ways = found;
	else
		free(found);
	return status;
}

int64_t cpa_way_slice_nbytes(const struct cpa_way_table *table, const struct cpa_model_entry *e,
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

enum cpa_status cpa_way_cut(
	struct cpa_way_table *table, struct cpa_arena *arena, struct cpa_error *error)
{
	const struct cpa_model *m = table->sized->model;
	const struct cpa_way *way = table->way;
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
