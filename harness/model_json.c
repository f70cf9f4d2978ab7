/*
 * model_json.c - model files as JSON: every field is checked, and a fault is a sentence that
 * begins with its JSON path.  Without cJSON reading says so.
 */
#include "harness/model.h"

#include "harness/fields.h"

bool cpa_model_readable(void)
{
	return CPA_HAVE_CJSON;
}

#if !CPA_HAVE_CJSON

enum cpa_status cpa_model_read(
	const char *text, size_t nbytes, struct cpa_model **model, struct cpa_error *error)
{
	(void)text;
	(void)nbytes;
	(void)model;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"built without cJSON, so models cannot be read; install "
		"libcjson-dev (or set CJSON=1) and rebuild, or give the sizes with --problem");
}

#else

#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 1024 };

/* ---- segments
 * ---------------------------------------------------------------------------------- */

static int find_segment(const struct cpa_model *model, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(model->segments[i].name, name) == 0)
			return i;
	return -1;
}

static bool is_name(const char *text)
{
	static const char *const taken[] = {"height", "width", "frames", "batch", "heads",
		"kv_heads", "head_dim", "hidden", "floor", "ceil"};
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";

	for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
		if (strcmp(text, taken[i]) == 0)
			return false;
	return strlen(text) < 32 && text[0] && strchr(letters, text[0]) &&
		text[strspn(text, letters) +
			strspn(text + strspn(text, letters), "0123456789")] == '\0';
}

static void read_segments(struct cpa_fields *r, const struct cpa_place *root)
{
	static const char *const keys[] = {"name", "tokens", "split", NULL};
	struct cpa_place at = cpa_field_member(root, "segments");
	struct cpa_model *m = r->model;
	int n = cpa_field_array(r, &at, CPA_MODEL_MAX_SEGMENTS), i = 0;

	m->segments = cpa_field_allocate(r, n, sizeof *m->segments);
	if (!m->segments || n == 0)
		return;
	for (struct cpa_place segment = {0}; cpa_field_next(&at, &segment); i++) {
		struct cpa_place name, tokens, split;

		if (!cpa_field_object(r, &segment))
			return;
		cpa_field_only(r, &segment, keys);
		name = cpa_field_member(&segment, "name");
		tokens = cpa_field_member(&segment, "tokens");
		split = cpa_field_member(&segment, "split");
		m->segments[i].name = cpa_field_text(r, &name);
		m->segments[i].tokens = cpa_field_length(r, &tokens);
		if (!split.json)
			cpa_field_fault(r, &split, "missing, expected true or false");
		m->segments[i].split = cpa_field_bool(r, &split, false);
		if (!is_name(m->segments[i].name))
			cpa_field_fault(r, &name,
				"expected a name of letters, then digits, below 32 characters, "
				"that is "
				"no other length");
		if (find_segment(m, i, m->segments[i].name) >= 0)
			cpa_field_fault(
				r, &name, "a second segment '%.40s'", m->segments[i].name);
	}
	m->nsegments = i;
}

/* ---- entries
 * ----------------------------------------------------------------------------------- */

static int nbytes_of(const char *dtype)
{
	static const struct {
		const char *name;
		int nbytes;
	} known[] = {{"bf16", 2}, {"fp16", 2}, {"fp32", 4}, {"fp64", 8}, {"int64", 8},
		{"int32", 4}, {"bool", 1}, {"complex64", 8}};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (strcmp(known[i].name, dtype) == 0)
			return known[i].nbytes;
	return 0;
}

static void read_name(struct cpa_fields *r, const struct cpa_place *at, struct cpa_model_entry *e)
{
	struct cpa_place module = cpa_field_member(at, "module"),
			 name = cpa_field_member(at, "name");
	struct cpa_place output = cpa_field_member(at, "output");

	e->module = cpa_field_text(r, &module);
	e->output = -1;
	if (!name.json == !output.json)
		cpa_field_fault(r, at,
			"expected either a name (of an argument) or an output (its index)");
	else if (name.json)
		e->name = cpa_field_text(r, &name);
	else
		e->output = (int)cpa_field_int(r, &output, 0, 63);
}

static void read_cut(struct cpa_fields *r, const struct cpa_place *at, struct cpa_model_entry *e)
{
	struct cpa_place split = cpa_field_member(at, "split_dim"),
			 gather = cpa_field_member(at, "gather_dim");
	struct cpa_place expected = cpa_field_member(at, "expected_dims"),
			 split_output = cpa_field_member(at, "split_output");
	struct cpa_place optional = cpa_field_member(at, "optional");
	bool of_output = cpa_field_bool(r, &split_output, false);

	e->dim = -1;
	if (split.json && gather.json)
		cpa_field_fault(r, at, "split_dim and gather_dim contradict each other");
	if (split.json)
		e->dim = (int)cpa_field_int(r, &split, 0, CPA_MODEL_MAX_DIMS - 1);
	if (gather.json)
		e->dim = (int)cpa_field_int(r, &gather, 0, CPA_MODEL_MAX_DIMS - 1);
	e->gathers = gather.json != NULL;
	if (expected.json)
		e->expected_dims = (int)cpa_field_int(r, &expected, 1, CPA_MODEL_MAX_DIMS);
	else if (split.json)
		cpa_field_fault(r, &expected, "missing, expected the number of dimensions");
	e->optional = cpa_field_bool(r, &optional, false);
	if (e->expected_dims && e->dim >= e->expected_dims)
		cpa_field_fault(
			r, at, "dimension %d does not exist among %d", e->dim, e->expected_dims);
	if (e->gathers && e->output < 0)
		cpa_field_fault(
			r, at, "gather_dim is of an output, and '%.60s' is an argument", e->name);
	if (split.json && of_output != (e->output >= 0))
		cpa_field_fault(r, &split_output, "expected %s",
			e->output >= 0 ? "true: an output is split after the module"
				       : "false: an argument is split before");
}

static void read_tensor(
	struct cpa_fields *r, const struct cpa_place *at, struct cpa_model_entry *e)
{
	struct cpa_place tensor = cpa_field_member(at, "tensor"),
			 dtype = cpa_field_member(at, "dtype");
	int i = 0;

	e->dtype = dtype.json ? cpa_field_text(r, &dtype) : cpa_dtype_name(r->model->dtype);
	e->element_nbytes = nbytes_of(e->dtype);
	if (e->element_nbytes == 0)
		cpa_field_fault(r, &dtype,
			"expected bf16, fp16, fp32, fp64, int32, int64, bool or complex64");
	if (cpa_field_array(r, &tensor, CPA_MODEL_MAX_DIMS) == 0)
		return;
	for (struct cpa_place length = {0}; cpa_field_next(&tensor, &length); i++) {
		e->dims[i] = cpa_field_length(r, &length);
	}
	e->ndims = i;
}

static int find_entry(const struct cpa_model *model, const char *id)
{
	char own[400];

	for (int i = 0; i < model->nentries; i++) {
		cpa_model_entry_print(&model->entries[i], own, sizeof own);
		if (strcmp(own, id) == 0)
			return i;
	}
	return -1;
}

/* After all entries are known: ties go forward too. */
static void read_ties(struct cpa_fields *r, const struct cpa_place *at, struct cpa_model_entry *e)
{
	struct cpa_place ties = cpa_field_member(at, "tied_to");
	int i = 0;

	if (!ties.json || cpa_field_array(r, &ties, CPA_MODEL_MAX_DIMS) == 0)
		return;
	for (struct cpa_place tie = {0}; cpa_field_next(&ties, &tie); i++) {
		const char *id = cpa_field_text(r, &tie);

		e->tied[i] = find_entry(r->model, id);
		if (e->tied[i] < 0)
			cpa_field_fault(r, &tie,
				"no entry is called '%.100s' (MODULE:NAME or MODULE:OUTPUT)", id);
		else if (&r->model->entries[e->tied[i]] == e)
			cpa_field_fault(r, &tie, "an entry is tied to itself");
	}
	e->ntied = i;
}

static void read_entries(struct cpa_fields *r, const struct cpa_place *plan)
{
	static const char *const keys[] = {"module", "name", "output", "split_dim", "gather_dim",
		"expected_dims", "split_output", "optional", "tensor", "dtype", "tied_to", NULL};
	struct cpa_place at = cpa_field_member(plan, "entries");
	struct cpa_model *m = r->model;
	int n = cpa_field_array(r, &at, MAX_ITEMS), i = 0;
	char id[400];

	m->entries = cpa_field_allocate(r, n, sizeof *m->entries);
	if (!m->entries || n == 0)
		return;
	for (struct cpa_place entry = {0}; cpa_field_next(&at, &entry) && r->status == CPA_OK;
		i++) {
		if (!cpa_field_object(r, &entry))
			return;
		cpa_field_only(r, &entry, keys);
		read_name(r, &entry, &m->entries[i]);
		read_cut(r, &entry, &m->entries[i]);
		read_tensor(r, &entry, &m->entries[i]);
		cpa_model_entry_print(&m->entries[i], id, sizeof id);
		if (find_entry(m, id) >= 0)
			cpa_field_fault(r, &entry, "a second entry '%.100s'", id);
		m->nentries = i + 1;
	}
	i = 0;
	for (struct cpa_place entry = {0}; cpa_field_next(&at, &entry) && r->status == CPA_OK;
		i++) {
		read_ties(r, &entry, &m->entries[i]);
	}
}

/* ---- attentions
 * -------------------------------------------------------------------------------- */

static int read_side(struct cpa_fields *r, const struct cpa_place *at, int *segments)
{
	int i = 0;

	if (cpa_field_array(r, at, CPA_MODEL_MAX_SEGMENTS) == 0)
		return 0;
	for (struct cpa_place item = {0}; cpa_field_next(at, &item); i++) {
		const char *name = cpa_field_text(r, &item);

		segments[i] = find_segment(r->model, r->model->nsegments, name);
		if (segments[i] < 0)
			cpa_field_fault(r, &item, "no segment is called '%.60s'", name);
		else if (i > 0 && segments[i] <= segments[i - 1])
			cpa_field_fault(r, &item,
				"'%.60s' comes out of the order of /segments, which is that of "
				"the "
				"sequence",
				name);
	}
	return i;
}

static void read_attentions(struct cpa_fields *r, const struct cpa_place *plan)
{
	static const char *const keys[] = {"name", "q", "kv", NULL};
	struct cpa_place at = cpa_field_member(plan, "attention");
	struct cpa_model *m = r->model;
	int n = cpa_field_array(r, &at, 16), i = 0;

	m->attentions = cpa_field_allocate(r, n, sizeof *m->attentions);
	if (!m->attentions || n == 0)
		return;
	for (struct cpa_place attention = {0}; cpa_field_next(&at, &attention); i++) {
		struct cpa_place name, q, kv;

		if (!cpa_field_object(r, &attention))
			return;
		cpa_field_only(r, &attention, keys);
		name = cpa_field_member(&attention, "name");
		q = cpa_field_member(&attention, "q");
		kv = cpa_field_member(&attention, "kv");
		m->attentions[i].name = cpa_field_text(r, &name);
		m->attentions[i].nq = read_side(r, &q, m->attentions[i].q);
		m->attentions[i].nkv = read_side(r, &kv, m->attentions[i].kv);
	}
	m->nattentions = i;
}

/* ---- the whole
 * --------------------------------------------------------------------------------- */

static void read_head(struct cpa_fields *r, const struct cpa_place *root)
{
	struct cpa_place format = cpa_field_member(root, "format"),
			 name = cpa_field_member(root, "name");
	struct cpa_place title = cpa_field_member(root, "title"),
			 size = cpa_field_member(root, "size");
	struct cpa_place dtype = cpa_field_member(root, "dtype"),
			 batch = cpa_field_member(root, "batch");
	struct cpa_place heads = cpa_field_member(root, "heads"),
			 kv_heads = cpa_field_member(root, "kv_heads");
	struct cpa_place head_dim = cpa_field_member(root, "head_dim"),
			 hidden = cpa_field_member(root, "hidden");
	struct cpa_model *m = r->model;

	if (strcmp(cpa_field_text(r, &format), "cpattn-model-1") != 0)
		cpa_field_fault(r, &format, "expected \"cpattn-model-1\"");
	m->name = cpa_field_text(r, &name);
	m->title = cpa_field_text(r, &title);
	m->size = cpa_field_text(r, &size);
	if (!cpa_dtype_parse(cpa_field_text(r, &dtype), &m->dtype))
		cpa_field_fault(r, &dtype, "expected fp64, fp32, bf16 or fp16");
	m->batch = cpa_field_int(r, &batch, 1, 4096);
	m->heads = cpa_field_int(r, &heads, 1, 65536);
	m->kv_heads = cpa_field_int(r, &kv_heads, 1, 65536);
	m->head_dim = cpa_field_int(r, &head_dim, 1, 65536);
	m->hidden = cpa_field_int(r, &hidden, 1, CPA_FIELD_MAX);
	if (m->heads % m->kv_heads != 0)
		cpa_field_fault(r, &kv_heads, "heads is no multiple of it");
}

static void read_model(struct cpa_fields *r, const struct cpa_place *root)
{
	struct cpa_place plan = cpa_field_member(root, "plan"),
			 sources = cpa_field_member(root, "sources"), origin;
	const char *from;

	if (!cpa_field_object(r, root))
		return;
	read_head(r, root);
	read_segments(r, root);
	if (r->status != CPA_OK || !cpa_field_object(r, &plan) || !cpa_field_object(r, &sources))
		return;
	origin = cpa_field_member(&plan, "origin");
	from = cpa_field_text(r, &origin);
	if (strcmp(from, "published") != 0 && strcmp(from, "derived") != 0)
		cpa_field_fault(r, &origin, "expected published or derived");
	r->model->derived = from[0] == 'd';
	read_attentions(r, &plan);
	read_entries(r, &plan);
	cpa_field_sources(r, root, &sources);
	if (r->status == CPA_OK && r->model->arena.failed)
		r->status = cpa_fail(r->error, CPA_NO_MEMORY, "out of memory");
}

enum cpa_status cpa_model_read(
	const char *text, size_t nbytes, struct cpa_model **model, struct cpa_error *error)
{
	struct cpa_fields r = {.error = error};
	struct cpa_place root = {NULL, NULL, NULL, 0};
	struct cJSON *json;
	enum cpa_status status = cpa_fields_parse(text, nbytes, &json, error);

	if (status != CPA_OK)
		return status;
	r.model = calloc(1, sizeof *r.model);
	if (r.model) {
		cpa_arena_init(&r.model->arena);
		r.arena = &r.model->arena;
		root.json = json;
		read_model(&r, &root);
		if (r.status == CPA_OK)
			r.status = cpa_model_check(r.model, error);
	} else {
		r.status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	}
	cpa_fields_free(json);
	if (r.status == CPA_OK)
		*model = r.model;
	else
		cpa_model_destroy(r.model);
	return r.status;
}

#endif
