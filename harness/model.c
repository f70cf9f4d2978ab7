/*
 * model.c - models at a size: lengths, shapes, problems; and what of a plan would go wrong in
 * silence.
 */
#include "harness/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/expression.h"

enum { NNAMES = 8 + CPA_MODEL_MAX_SEGMENTS, MAX_SIDE = 1000000 };

void cpa_model_destroy(struct cpa_model *model)
{
	if (!model)
		return;
	cpa_arena_fini(&model->arena);
	free(model);
}

/* ---- sizes
 * ------------------------------------------------------------------------------------- */

/* Up to three numbers with x between; how many there are, 0 for anything else. */
static int read_numbers(const char *text, int64_t *at)
{
	int n = 0;

	for (;; text++) {
		int64_t value = 0;
		const char *start = text;

		for (; *text >= '0' && *text <= '9' && value <= MAX_SIDE; text++)
			value = 10 * value + (*text - '0');
		if (text == start || value < 1 || value > MAX_SIDE || n == 3)
			return 0;
		at[n++] = value;
		if (*text == '\0')
			return n;
		if (*text != 'x')
			return 0;
	}
}

static bool uses_frames(const struct cpa_model *model)
{
	for (int i = 0; i < model->nsegments; i++)
		if (strstr(model->segments[i].tokens, "frames"))
			return true;
	return false;
}

/* The lengths that expressions may name: those of the model and the first n segments. */
static int collect(const struct cpa_model_sized *sized, int n, struct cpa_name *names)
{
	const struct cpa_model *m = sized->model;
	const struct cpa_name fixed[] = {{"height", sized->height}, {"width", sized->width},
		{"frames", sized->frames}, {"batch", m->batch}, {"heads", m->heads},
		{"kv_heads", m->kv_heads}, {"head_dim", m->head_dim}, {"hidden", m->hidden}};
	int count = sizeof fixed / sizeof fixed[0];

	memcpy(names, fixed, sizeof fixed);
	for (int i = 0; i < n; i++)
		names[count++] = (struct cpa_name){m->segments[i].name, sized->tokens[i]};
	return count;
}

enum cpa_status cpa_model_apply(const struct cpa_model *model, const char *size,
	struct cpa_model_sized *sized, struct cpa_error *error)
{
	struct cpa_model_sized made = {.model = model};
	const char *text = size ? size : model->size, *option = size ? "--size" : "/size";
	int64_t numbers[3] = {0, 0, 1};
	int n = read_numbers(text, numbers);
	bool video = uses_frames(model);

	if (n != (video ? 3 : 2))
		return cpa_fail(error, CPA_INVALID,
			"%s '%.60s': %.60s takes %s, each from 1 to %d, such as %.60s", option,
			text, model->name, video ? "HEIGHTxWIDTHxFRAMES" : "HEIGHTxWIDTH",
			MAX_SIDE,
			size		? model->size
				: video ? "480x832x81"
					: "1024x1024");
	made.height = numbers[0];
	made.width = numbers[1];
	made.frames = numbers[2];
	for (int i = 0; i < model->nsegments; i++) {
		struct cpa_name names[NNAMES];
		struct cpa_error inner = {""};
		enum cpa_status status = cpa_expression(model->segments[i].tokens, names,
			collect(&made, i, names), &made.tokens[i], &inner);

		if (status != CPA_OK)
			return cpa_fail(error, status, "%s %.60s: /segments/%d/tokens of %s: %s",
				option, text, i, model->segments[i].name, inner.text);
		if (made.tokens[i] < 0)
			return cpa_fail(error, CPA_INVALID,
				"%s %.60s: /segments/%d/tokens: %s would have %" PRId64 " tokens",
				option, text, i, model->segments[i].name, made.tokens[i]);
	}
	*sized = made;
	return CPA_OK;
}

enum cpa_status cpa_model_shape(const struct cpa_model_sized *sized,
	const struct cpa_model_entry *entry, int64_t *shape, struct cpa_error *error)
{
	struct cpa_name names[NNAMES];
	int nnames = collect(sized, sized->model->nsegments, names);
	int at = (int)(entry - sized->model->entries);
	int64_t nbytes = entry->element_nbytes;

	for (int i = 0; i < entry->ndims; i++) {
		struct cpa_error inner = {""};
		enum cpa_status status = cpa_expression(
			entry->dims[i], names, nnames, &shape[i], &inner);

		if (status != CPA_OK)
			return cpa_fail(error, status, "/plan/entries/%d/tensor/%d: %s", at, i,
				inner.text);
		if (shape[i] < 0)
			return cpa_fail(error, CPA_INVALID,
				"/plan/entries/%d/tensor/%d is negative", at, i);
		if (__builtin_mul_overflow(nbytes, shape[i], &nbytes))
			return cpa_fail(error, CPA_INVALID,
				"/plan/entries/%d/tensor: its bytes leave 64 bits", at);
	}
	return CPA_OK;
}

/* ---- what would go wrong in silence
 * ------------------------------------------------------------ */

void cpa_model_entry_print(const struct cpa_model_entry *entry, char *text, size_t size)
{
	if (entry->name)
		snprintf(text, size, "%.100s:%.100s", entry->module, entry->name);
	else
		snprintf(text, size, "%.100s:%d", entry->module, entry->output);
}

/* Left whole, because its dimensions are others. */
static bool is_left(const struct cpa_model_entry *entry)
{
	return entry->expected_dims && entry->ndims != entry->expected_dims;
}

int cpa_model_entry_segment(const struct cpa_model *model, const struct cpa_model_entry *entry)
{
	if (entry->dim < 0 || entry->dim >= entry->ndims || is_left(entry))
		return -1;
	for (int i = 0; i < model->nsegments; i++)
		if (strcmp(model->segments[i].name, entry->dims[entry->dim]) == 0)
			return i;
	return -1;
}

static const char *segment_name(const struct cpa_model *model, int segment)
{
	return segment < 0 ? "nothing" : model->segments[segment].name;
}

static enum cpa_status check_entry(const struct cpa_model *model, int i, struct cpa_error *error)
{
	const struct cpa_model_entry *e = &model->entries[i];
	int segment = cpa_model_entry_segment(model, e);
	char id[256], other[256];

	cpa_model_entry_print(e, id, sizeof id);
	if (is_left(e) && !e->optional)
		return cpa_fail(error, CPA_INVALID,
			"/plan/entries/%d (%s): the tensor has %d dimension%s and %d expected: "
			"it would be left "
			"whole in silence; correct it, or say \"optional\": true",
			i, id, e->ndims, e->ndims == 1 ? "," : "s,", e->expected_dims);
	if (e->dim >= 0 && !is_left(e) && segment < 0)
		return cpa_fail(error, CPA_INVALID,
			"/plan/entries/%d (%s): dimension %d is '%.100s', expected one segment "
			"by its name, "
			"because each segment is cut on its own",
			i, id, e->dim, e->dim < e->ndims ? e->dims[e->dim] : "missing");
	if (segment >= 0 && !model->segments[segment].split)
		return cpa_fail(error, CPA_INVALID,
			"/plan/entries/%d (%s): it is cut along %s, which /segments/%d holds "
			"whole on every rank",
			i, id, segment_name(model, segment), segment);
	for (int t = 0; t < e->ntied; t++) {
		const struct cpa_model_entry *to = &model->entries[e->tied[t]];
		int theirs = cpa_model_entry_segment(model, to);

		cpa_model_entry_print(to, other, sizeof other);
		if (theirs != segment)
			return cpa_fail(error, CPA_INVALID,
				"/plan/entries/%d (%s): it is cut along %s and %s, to which it "
				"is tied, along %s; "
				"they must be cut alike",
				i, id, segment_name(model, segment), other,
				segment_name(model, theirs));
	}
	return CPA_OK;
}

static enum cpa_status check_segment(
	const struct cpa_model *model, int s, struct cpa_error *error)
{
	for (int i = 0; i < model->nentries; i++)
		if (!model->entries[i].gathers &&
			cpa_model_entry_segment(model, &model->entries[i]) == s)
			return CPA_OK;
	if (!model->segments[s].split)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"/segments/%d: %s is split, and no entry of the plan splits a tensor along it", s,
		model->segments[s].name);
}

enum cpa_status cpa_model_check(const struct cpa_model *model, struct cpa_error *error)
{
	struct cpa_model_sized sized;
	int64_t shape[CPA_MODEL_MAX_DIMS];
	enum cpa_status status = cpa_model_apply(model, NULL, &sized, error);

	for (int i = 0; i < model->nentries && status == CPA_OK; i++)
		status = check_entry(model, i, error);
	for (int i = 0; i < model->nsegments && status == CPA_OK; i++)
		status = check_segment(model, i, error);
	for (int i = 0; i < model->nentries && status == CPA_OK; i++)
		status = cpa_model_shape(&sized, &model->entries[i], shape, error);
	return status;
}

/* ---- problems
 * ---------------------------------------------------------------------------------- */

static const struct cpa_segment *make_segments(const struct cpa_model_sized *sized, const int *at,
	int n, struct cpa_arena *arena, int64_t *length)
{
	struct cpa_segment *made = cpa_arena_alloc(arena, (size_t)n * sizeof *made);

	*length = 0;
	for (int i = 0; i < n && made; i++) {
		const struct cpa_model_segment *segment = &sized->model->segments[at[i]];

		snprintf(made[i].name, sizeof made[i].name, "%s", segment->name);
		made[i].length = sized->tokens[at[i]];
		made[i].replicated = !segment->split;
		if (__builtin_add_overflow(*length, made[i].length, length))
			*length = -1; /* the check of the problem says so */
	}
	return made;
}

enum cpa_status cpa_model_problem(const struct cpa_model_sized *sized, int attention,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error)
{
	const struct cpa_model *m = sized->model;
	const struct cpa_model_attention *a = &m->attentions[attention];
	struct cpa_problem made = {.B = m->batch,
		.Hq = m->heads,
		.Hkv = m->kv_heads,
		.D = m->head_dim,
		.Dv = m->head_dim,
		.dtype = m->dtype,
		.scale = 1 / sqrt((double)m->head_dim)};
	bool self = a->nq == a->nkv && memcmp(a->q, a->kv, (size_t)a->nq * sizeof *a->q) == 0;
	enum cpa_status status;

	made.segments = make_segments(sized, a->q, a->nq, arena, &made.Sq);
	made.nsegments = a->nq;
	made.Skv = made.Sq;
	if (!self) {
		made.segments_kv = make_segments(sized, a->kv, a->nkv, arena, &made.Skv);
		made.nsegments_kv = a->nkv;
	}
	if (arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	if (!self && made.Sq == made.Skv)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"attention %.60s: queries and keys are other segments of one length, "
			"%" PRId64 ", and such a problem cannot be told from one sequence; "
				   "another size would work",
			a->name, made.Sq);
	/* One split segment needs no name, and reads better without. */
	if (a->nq == 1 && !made.segments[0].replicated) {
		made.segments = NULL;
		made.nsegments = 0;
	}
	status = cpa_problem_check(&made, error);
	if (status == CPA_OK)
		*problem = made;
	return status;
}
