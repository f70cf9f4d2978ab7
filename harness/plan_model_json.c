/*
 * plan_model_json.c - plan --model for programs: what each rank holds of each tensor, in every
 * way to cut.
 */
#include "harness/plan_model.h"

#include <stdlib.h>

#include "harness/plan_ways.h"

static void put_list(struct cpa_json *json, const char *key, const int64_t *values, int n)
{
	cpa_json_key(json, key);
	cpa_json_array(json);
	for (int i = 0; i < n; i++)
		cpa_json_int(json, values[i]);
	cpa_json_end_array(json);
}

/* tokens and bytes [P]; of a tensor that is held whole no tokens, and one number of bytes. */
static enum cpa_status put_entry(struct cpa_json *json, const struct cpa_way_table *table,
	const struct cpa_model_entry *e, struct cpa_error *error)
{
	int segment = cpa_model_entry_segment(table->sized->model, e), P = table->way->P;
	int64_t shape[CPA_MODEL_MAX_DIMS], nbytes;
	enum cpa_status status = cpa_model_shape(table->sized, e, shape, error);
	char id[256];

	if (status != CPA_OK)
		return status;
	cpa_model_entry_print(e, id, sizeof id);
	nbytes = cpa_way_slice_nbytes(table, e, shape, segment < 0);
	cpa_json_object(json);
	cpa_json_put_string(json, "tensor", id);
	cpa_json_put_string(json, "segment",
		segment < 0 ? NULL : table->sized->model->segments[segment].name);
	cpa_json_key(json, "dim");
	if (segment < 0)
		cpa_json_null(json);
	else
		cpa_json_int(json, e->dim);
	cpa_json_key(json, "gathered");
	cpa_json_bool(json, e->gathers);
	if (segment < 0) {
		cpa_json_key(json, "tokens");
		cpa_json_null(json);
		put_list(json, "bytes", &nbytes, 1);
	} else {
		for (int i = 0; i < P; i++)
			table->values[i] = nbytes * table->sizes[segment][i];
		put_list(json, "tokens", table->sizes[segment], P);
		put_list(json, "bytes", table->values, P);
	}
	cpa_json_key(json, "cut_like");
	cpa_json_array(json);
	for (int t = 0; t < e->ntied; t++) {
		cpa_model_entry_print(&table->sized->model->entries[e->tied[t]], id, sizeof id);
		cpa_json_string(json, id);
	}
	cpa_json_end_array(json);
	cpa_json_end_object(json);
	return CPA_OK;
}

static enum cpa_status put_way(struct cpa_json *json, const struct cpa_model_sized *sized,
	const struct cpa_way *way, struct cpa_error *error)
{
	struct cpa_way_table table = {.sized = sized, .way = way};
	struct cpa_arena arena;
	enum cpa_status status;
	bool refused;

	cpa_arena_init(&arena);
	status = cpa_way_cut(&table, &arena, error);
	refused = status == CPA_UNSUPPORTED || status == CPA_INVALID;
	cpa_json_object(json);
	cpa_json_put_int(json, "batch", way->N);
	cpa_json_put_int(json, "ranks", way->N * way->P);
	cpa_json_put_string(json, "split", cpa_split_name(way->split));
	cpa_json_put_string(json, "order", cpa_order_name(way->order));
	cpa_json_key(json, "variants");
	cpa_json_array(json);
	for (int v = 0; v < CPA_NVARIANTS; v++)
		if (way->variants[v])
			cpa_json_string(json, cpa_variant_info((enum cpa_variant)v)->name);
	cpa_json_end_array(json);
	cpa_json_put_string(json, "refused", refused ? error->text : NULL);
	cpa_json_key(json, "tensors");
	cpa_json_array(json);
	for (int i = 0; i < sized->model->nentries && status == CPA_OK; i++)
		status = put_entry(json, &table, &sized->model->entries[i], error);
	cpa_json_end_array(json);
	cpa_json_end_object(json);
	cpa_arena_fini(&arena);
	return refused ? CPA_OK : status;
}

void cpa_plan_model_put_json(struct cpa_json *json, const void *context)
{
	const struct cpa_plan_model_members *members = context;
	const struct cpa_model_sized *sized = &members->targets->model->sized;
	struct cpa_ways *ways = NULL;
	struct cpa_error error = {""};
	enum cpa_status status = cpa_ways_find(members->targets, members->options, &ways, &error);

	cpa_json_key(json, "model");
	cpa_json_object(json);
	cpa_json_put_string(json, "name", sized->model->name);
	cpa_json_put_string(json, "plan", sized->model->derived ? "derived" : "published");
	cpa_json_put_int(json, "height", sized->height);
	cpa_json_put_int(json, "width", sized->width);
	cpa_json_put_int(json, "frames", sized->frames);
	cpa_json_key(json, "segments");
	cpa_json_array(json);
	for (int i = 0; i < sized->model->nsegments; i++) {
		cpa_json_object(json);
		cpa_json_put_string(json, "name", sized->model->segments[i].name);
		cpa_json_put_int(json, "tokens", sized->tokens[i]);
		cpa_json_key(json, "split");
		cpa_json_bool(json, sized->model->segments[i].split);
		cpa_json_end_object(json);
	}
	cpa_json_end_array(json);
	cpa_json_key(json, "ways");
	cpa_json_array(json);
	for (int i = 0; status == CPA_OK && i < ways->n; i++)
		status = put_way(json, sized, &ways->at[i], &error);
	cpa_json_end_array(json);
	cpa_json_put_string(json, "error", status == CPA_OK ? NULL : error.text);
	cpa_json_end_object(json);
	free(ways);
}
