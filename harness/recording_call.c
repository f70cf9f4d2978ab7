/*
 * recording_call.c - the rules of one call: its tensors, its attributes, the problem they make.
 */
#include "harness/recording_rules.h"

#include <math.h>
#include <string.h>

/* Offsets and windows beyond this cannot be told from no rule at all, and i + offset must not overflow. */
static const int64_t max_offset = INT64_C(1) << 60;

static bool is_lse(const char *name)
{
	return strncmp(name, "lse", 3) == 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

enum cpa_status cpa_recording_tensor(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, const char *path, const char *name,
	struct cpa_h5_array *array, struct cpa_recording_shape *shape, struct cpa_error *error)
{
	const int rank = is_lse(name) ? 3 : 4, s = entry->bhsd ? 2 : 1, h = entry->bhsd ? 1 : 2;
	const char *axes = rank == 3 ? (entry->bhsd ? "[B,H,S]" : "[B,S,H]")
				     : (entry->bhsd ? "[B,H,S,D]" : "[B,S,H,D]");
	char where[CPA_H5_WHERE];
	enum cpa_h5_object object;
	enum cpa_status status;

	cpa_recording_join(where, path, '/', name);
	object = cpa_h5_object(recording->file, where);
	if (object == CPA_H5_GROUP || object == CPA_H5_OTHER)
		return cpa_recording_refuse(error, where, "not a dataset; expected a tensor %s", axes);
	status = cpa_h5_array_open(recording->file, where, NULL, array, error);
	if (status != CPA_OK)
		return status;
	if (array->class != CPA_H5_FLOAT)
		status = cpa_recording_refuse(error, where, "is of type %s; expected float64, float32, "
			"float16 (IEEE half) or bfloat16", array->type);
	else if (array->rank != rank)
		status = cpa_recording_refuse(error, where, "has %d dimensions; expected %d, %s", array->rank,
			rank, axes);
	if (status != CPA_OK) {
		cpa_h5_array_close(array);
		return status;
	}
	shape->B = array->dims[0];
	shape->S = array->dims[s];
	shape->H = array->dims[h];
	shape->D = rank == 3 ? 1 : array->dims[3];
	shape->dtype = array->dtype;
	return CPA_OK;
}

/* Opens, looks at and closes a tensor of the call. */
static enum cpa_status look(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *name, struct cpa_recording_shape *shape, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	if (!cpa_recording_has(&entry->links, name))
		return cpa_fail(error, CPA_INVALID, "%s/%s: missing; every call has q, k and v%s",
			entry->where, name, cpa_recording_has(&entry->links, "ranks")
				? " (this is what ranks recorded on their own: cpattn merge joins them)"
				: "");
	status = cpa_recording_tensor(recording, entry, entry->where, name, &array, shape, error);
	if (status != CPA_OK)
		return status;
	cpa_h5_array_close(&array);
	if (array.count == 0) {
		char dims[100];

		cpa_recording_print_dims(&array, dims, sizeof dims);
		return cpa_recording_refuse(error, array.where, "has the shape %s; expected every size to be "
			"at least 1", dims);
	}
	return CPA_OK;
}

/* "/calls/x/name: has what = found; expected other's wanted" */
static enum cpa_status agree(const struct cpa_recording_entry *entry, const char *name, const char *what,
	int64_t found, int64_t wanted, const char *other, struct cpa_error *error)
{
	if (found == wanted)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID, "%s/%s: has %s %lld; expected %lld, as %s", entry->where, name,
		what, (long long)found, (long long)wanted, other);
}

static enum cpa_status same_dtype(const struct cpa_recording_entry *entry, const char *name,
	enum cpa_dtype found, enum cpa_dtype q, struct cpa_error *error)
{
	if (found == q)
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID, "%s/%s: is %s while q is %s; expected one type for q, k and v",
		entry->where, name, cpa_dtype_name(found), cpa_dtype_name(q));
}

static enum cpa_status shape_inputs(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	struct cpa_recording_shape q, k, v;
	enum cpa_status status;

	if ((status = look(recording, entry, "q", &q, error)) != CPA_OK ||
	    (status = look(recording, entry, "k", &k, error)) != CPA_OK ||
	    (status = look(recording, entry, "v", &v, error)) != CPA_OK ||
	    (status = agree(entry, "k", "batch", k.B, q.B, "q", error)) != CPA_OK ||
	    (status = agree(entry, "k", "head size", k.D, q.D, "q", error)) != CPA_OK ||
	    (status = same_dtype(entry, "k", k.dtype, q.dtype, error)) != CPA_OK ||
	    (status = agree(entry, "v", "batch", v.B, q.B, "q", error)) != CPA_OK ||
	    (status = agree(entry, "v", "tokens", v.S, k.S, "k", error)) != CPA_OK ||
	    (status = agree(entry, "v", "heads", v.H, k.H, "k", error)) != CPA_OK ||
	    (status = same_dtype(entry, "v", v.dtype, q.dtype, error)) != CPA_OK)
		return status;
	if (q.H % k.H != 0)
		return cpa_fail(error, CPA_INVALID, "%s/q: has %lld heads; expected a multiple of the %lld "
			"heads of k and v", entry->where, (long long)q.H, (long long)k.H);
	problem->B = q.B;
	problem->Sq = q.S;
	problem->Skv = k.S;
	problem->Hq = q.H;
	problem->Hkv = k.H;
	problem->D = q.D;
	problem->Dv = v.D;
	problem->dtype = q.dtype;
	problem->lse = true;
	problem->layout = entry->bhsd ? CPA_LAYOUT_BHSD : CPA_LAYOUT_BSHD;
	return CPA_OK;
}

static enum cpa_status shape_output(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	const char *name, struct cpa_error *error)
{
	const struct cpa_problem *problem = &entry->call.problem;
	const bool lse = is_lse(name), wide = strstr(name, "_f64") != NULL;
	struct cpa_recording_shape shape;
	struct cpa_h5_array array;
	char found[100], wanted[100];
	enum cpa_status status;

	status = cpa_recording_tensor(recording, entry, entry->where, name, &array, &shape, error);
	if (status != CPA_OK)
		return status;
	cpa_h5_array_close(&array);
	if (shape.B != problem->B || shape.S != problem->Sq || shape.H != problem->Hq ||
	    shape.D != (lse ? 1 : problem->Dv)) {
		struct cpa_h5_array want = {.rank = lse ? 3 : 4};

		want.dims[0] = problem->B;
		want.dims[entry->bhsd ? 2 : 1] = problem->Sq;
		want.dims[entry->bhsd ? 1 : 2] = problem->Hq;
		if (!lse)
			want.dims[3] = problem->Dv;
		cpa_recording_print_dims(&array, found, sizeof found);
		cpa_recording_print_dims(&want, wanted, sizeof wanted);
		return cpa_recording_refuse(error, array.where, "has the shape %s; expected %s%s", found,
			wanted, entry->bhsd ? " (layout BHSD)" : " (layout BSHD)");
	}
	if (shape.dtype != CPA_DTYPE_FP64 && (wide || (shape.dtype != CPA_DTYPE_FP32 &&
	    (lse || shape.dtype != problem->dtype))))
		return cpa_recording_refuse(error, array.where, "is of type %s; expected %s", array.type,
			wide ? "float64" : lse ? "float32 or float64"
			     : "the type of q, float32 or float64");
	return CPA_OK;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static enum cpa_status read_scale(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	enum cpa_status status;
	bool present;

	problem->scale = 1 / sqrt((double)problem->D);
	status = cpa_recording_number(recording, entry->where, "scale", &problem->scale, &present, error);
	if (status == CPA_OK && !(problem->scale > 0 && isfinite(problem->scale)))
		return cpa_fail(error, CPA_INVALID, "%s@scale: is %g; expected a finite number above 0 "
			"(without the attribute it is 1/sqrt(D))", entry->where, problem->scale);
	return status;
}

/* causal, window and the offset that both need. */
static enum cpa_status read_bounds(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	struct cpa_problem *problem = &entry->call.problem;
	int64_t causal = 0, window[2] = {-1, -1};
	enum cpa_status status;
	bool present;

	status = cpa_recording_integers(recording, entry->where, "causal", true, 1, &causal, &present, error);
	if (status != CPA_OK)
		return status;
	problem->rule.causal = causal != 0;
	status = cpa_recording_integers(recording, entry->where, "window", false, 2, window,
		&entry->call.has_window, error);
	if (status != CPA_OK)
		return status;
	if (window[0] < -1 || window[1] < -1)
		return cpa_fail(error, CPA_INVALID, "%s@window: is (%lld, %lld); expected -1 (no bound) or "
			"more", entry->where, (long long)window[0], (long long)window[1]);
	/* A bound that no key can pass is none, and adding to it must not overflow. */
	problem->rule.left = window[0] > max_offset ? -1 : window[0];
	problem->rule.right = window[1] > max_offset ? -1 : window[1];
	problem->rule.window = problem->rule.left >= 0 || problem->rule.right >= 0;
	status = cpa_recording_integers(recording, entry->where, "causal_offset", false, 1,
		&problem->rule.offset, &present, error);
	if (status != CPA_OK)
		return status;
	if (!present && (problem->rule.causal || entry->call.has_window) && problem->Sq != problem->Skv)
		return cpa_fail(error, CPA_INVALID, "%s@causal_offset: missing; with %lld queries and %lld "
			"keys, %s needs the position of query 0 on the key axis", entry->where,
			(long long)problem->Sq, (long long)problem->Skv,
			problem->rule.causal ? "causal" : "window");
	if (problem->rule.offset > max_offset || problem->rule.offset < -max_offset)
		return cpa_fail(error, CPA_INVALID, "%s@causal_offset: is %lld; expected at most 2^60 either "
			"way", entry->where, (long long)problem->rule.offset);
	return CPA_OK;
}

/* What attributes say beside the rule. */
static enum cpa_status read_others(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error)
{
	double dropout = 0;
	enum cpa_status status;
	bool present;

	status = cpa_recording_number(recording, entry->where, "dropout_p", &dropout, &present, error);
	if (status != CPA_OK)
		return status;
	if (dropout != 0)
		return cpa_fail(error, CPA_INVALID, "%s@dropout_p: is %g; expected 0, as nothing random can be "
			"compared", entry->where, dropout);
	return cpa_recording_guidance(recording, entry, error);
}

/* ---- the call -------------------------------------------------------------------------------- */

static void note_unknown(struct cpa_recording_entry *entry)
{
	static const char *const links[] = {"q", "k", "v", "o", "lse", "o_f64", "lse_f64", "mask",
		"key_lengths", "documents", "segments", "segments_kv", "sink", "positions", "positions_kv",
		"events", "config", "ranks", NULL};
	static const char *const attributes[] = {"scale", "causal", "causal_offset", "window", "layout",
		"dtype", "recorded_heads", "source", "model", "layer", "step", "note", "dropout_p",
		"guidance", "branches", "rope_base", "rope_pairs", NULL};

	cpa_recording_note_unknown(entry, &entry->links, links, "");
	cpa_recording_note_unknown(entry, &entry->attributes, attributes, "@");
}

enum cpa_status cpa_recording_open_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	static const char *const layouts[] = {"BSHD", "BHSD", NULL};
	enum cpa_status status;
	int layout = 0;

	if (!entry->hard)
		return cpa_recording_refuse(error, entry->where, "a soft or external link; expected the group "
			"itself");
	status = cpa_recording_group(recording, entry->where, &entry->links, error);
	if (status == CPA_OK)
		status = cpa_h5_attributes(recording->file, entry->where, &recording->arena,
			&entry->attributes, error);
	if (status == CPA_OK)
		status = cpa_recording_choice(recording, entry->where, "layout", layouts, &layout, error);
	entry->bhsd = layout == 1;
	return status;
}

enum cpa_status cpa_recording_shape_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	static const char *const outputs[] = {"o", "lse", "o_f64", "lse_f64"};
	enum cpa_status status;

	entry->call.name = entry->name;
	if ((status = cpa_recording_open_call(recording, entry, error)) != CPA_OK ||
	    (status = shape_inputs(recording, entry, error)) != CPA_OK)
		return status;
	entry->call.has_o = cpa_recording_has(&entry->links, "o");
	entry->call.has_lse = cpa_recording_has(&entry->links, "lse");
	for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
		if (cpa_recording_has(&entry->links, outputs[i]) &&
		    (status = shape_output(recording, entry, outputs[i], error)) != CPA_OK)
			return status;
	return cpa_recording_say_call(recording, entry, error);
}

enum cpa_status cpa_recording_say_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	struct cpa_error reason;
	enum cpa_status status;

	if ((status = read_scale(recording, entry, error)) != CPA_OK ||
	    (status = read_bounds(recording, entry, error)) != CPA_OK ||
	    (status = cpa_recording_keys(recording, entry, error)) != CPA_OK ||
	    (status = read_others(recording, entry, error)) != CPA_OK ||
	    (status = cpa_recording_events(recording, entry, error)) != CPA_OK)
		return status;
	if (cpa_problem_check(&entry->call.problem, &reason) != CPA_OK)
		return cpa_recording_refuse(error, entry->where, "%s", reason.text);
	note_unknown(entry);
	return recording->arena.failed ? cpa_fail(error, CPA_NO_MEMORY, "out of memory") : CPA_OK;
}

enum cpa_status cpa_recording_scan_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	static const char *const finite[] = {"q", "k", "v", "o", "o_f64"};
	static const char *const minus_inf[] = {"lse", "lse_f64"};
	const int nfinite = sizeof finite / sizeof *finite, n = nfinite + 2;
	struct cpa_error reason;
	enum cpa_status status = CPA_OK;

	for (int i = 0; i < n && status == CPA_OK; i++) {
		const char *name = i < nfinite ? finite[i] : minus_inf[i - nfinite];
		char where[CPA_H5_WHERE];
		struct cpa_h5_array array;

		if (!cpa_recording_has(&entry->links, name))
			continue;
		cpa_recording_join(where, entry->where, '/', name);
		status = cpa_h5_array_open(recording->file, where, NULL, &array, error);
		if (status != CPA_OK)
			return status;
		status = cpa_recording_scan(recording, &array,
			i < nfinite ? CPA_VALUES_FINITE : CPA_VALUES_FINITE_OR_MINUS_INF, error);
		cpa_h5_array_close(&array);
	}
	if (status != CPA_OK || (status = cpa_recording_mask_data(recording, entry, error)) != CPA_OK ||
	    (status = cpa_recording_sink_data(recording, entry, error)) != CPA_OK)
		return status;
	/* Again, with the data that are part of the problem. */
	if (cpa_problem_check(&entry->call.problem, &reason) != CPA_OK)
		return cpa_recording_refuse(error, entry->where, "%s", reason.text);
	return cpa_recording_ranks(recording, entry, error);
}
