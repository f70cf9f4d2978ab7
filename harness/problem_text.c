/*
 * problem_text.c - problems as text: "B=1,S=64,H=8,causal".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/options.h"
#include "harness/parse.h"
#include "harness/problem_rule.h"
#include "harness/suggest.h"
#include "harness/text.h"

enum key { B, H, HQ, HKV, D, DV, S, SQ, SKV, DTYPE, SCALE, CAUSAL, OFFSET, LSE, LAYOUT, WINDOW,
	KEY_LENGTHS, DOCUMENTS, MASK, SINK, SEGMENTS, SEGMENTS_KV, TEXT, NKEYS };
static const struct {
	const char *name, *example;
} keys[NKEYS] = { { "B", "2" }, { "H", "8" }, { "Hq", "8" }, { "Hkv", "2" }, { "D", "64" },
	{ "Dv", "64" }, { "S", "64" }, { "Sq", "64" }, { "Skv", "64" }, { "dtype", "fp32" },
	{ "scale", "0.125" }, { "causal", "yes" }, { "offset", "64" }, { "lse", "no" },
	{ "layout", "BHSD" },
	{ "window", "128:0" }, { "key_lengths", "64" }, { "documents", "0:64" },
	{ "mask", "bool:1x1x1xK:1" }, { "sink", "0.5" },
	{ "segments", "text:16:replicated/image:48:split" },
	{ "segments_kv", "text:16:replicated/image:48:split" }, { "text", "16" } };
enum { MAX_TEXT = 65536 };

/* What the text says, before defaults. */
struct reading {
	bool has[NKEYS];
	int64_t number[NKEYS];
	enum cpa_dtype dtype;
	double scale;
	const char *text[NKEYS]; /* of the parts of a rule, which need the sizes first */
};

static enum cpa_status unknown_key(const char *name, struct cpa_error *error)
{
	const char *names[NKEYS];
	char near[80];

	for (int i = 0; i < NKEYS; i++)
		names[i] = keys[i].name;
	if (strcmp(name, "bias") == 0)
		return cpa_fail(error, CPA_INVALID,
			"--problem: a bias is a kind of mask; write mask=bias:1x1x1xK:1");
	cpa_suggest_text(name, names, NKEYS, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"--problem: unknown key '%.60s'%s (keys: B, H or Hq and Hkv, D, "
		"Dv, S or Sq and Skv, dtype, scale, causal, offset, window, key_lengths, "
		"documents, segments, segments_kv, text, mask, sink, lse, layout)",
		name, near);
}

/* causal and lse stand alone or take yes or no. */
static enum cpa_status read_flag(const char *what, const char *value, int64_t *flag,
	struct cpa_error *error)
{
	static const char *const names[] = { "no", "yes" };
	int index = 1;
	enum cpa_status status = CPA_OK;

	if (value)
		status = cpa_parse_name(what, value, names, 2, NULL, 0, &index, error);
	if (status == CPA_OK)
		*flag = index;
	return status;
}

static enum cpa_status read_dtype(const char *what, const char *value, enum cpa_dtype *dtype,
	struct cpa_error *error)
{
	if (cpa_dtype_parse(value, dtype))
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"%s: unknown dtype '%.60s' (expected fp64, fp32, bf16 or fp16)", what, value);
}

/* As an index in what callers may have. */
static const enum cpa_layout layouts[] = { CPA_LAYOUT_BSHD, CPA_LAYOUT_BHSD, CPA_LAYOUT_FUSED };

static enum cpa_status read_layout(const char *what, const char *value, int64_t *index,
	struct cpa_error *error)
{
	static const char *const names[] = { "BSHD", "BHSD", "fused" };
	int found = 0;
	enum cpa_status status = cpa_parse_name(what, value, names, 3, NULL, 0, &found, error);

	if (status == CPA_OK)
		*index = found;
	return status;
}

static enum cpa_status read_value(enum key key, const char *value, struct reading *reading,
	struct cpa_error *error)
{
	char what[40];

	snprintf(what, sizeof what, "--problem %s", keys[key].name);
	if (key == CAUSAL || key == LSE)
		return read_flag(what, value, &reading->number[key], error);
	if (!value || value[0] == '\0')
		return cpa_fail(error, CPA_INVALID, "%s: a value is missing; write %s=%s", what,
			keys[key].name, keys[key].example);
	reading->text[key] = value;
	if (key >= WINDOW && key != TEXT)
		return CPA_OK;
	if (key == LAYOUT)
		return read_layout(what, value, &reading->number[key], error);
	if (key == DTYPE)
		return read_dtype(what, value, &reading->dtype, error);
	if (key == SCALE)
		return cpa_parse_positive(what, value, &reading->scale, error);
	return cpa_parse_int(what, value, key == OFFSET ? -INT64_MAX : 1, INT64_MAX,
		&reading->number[key], error);
}

static enum cpa_status read_item(char *item, struct reading *reading, struct cpa_error *error)
{
	char *value = strchr(item, '=');
	int key = 0;

	if (value)
		*value++ = '\0';
	if (item[0] == '\0')
		return cpa_fail(error, CPA_INVALID,
			"--problem: an item is empty; write it as key=value,key=value, such as "
			"S=64,H=8,causal");
	while (key < NKEYS && strcmp(item, keys[key].name) != 0)
		key++;
	if (key == NKEYS)
		return unknown_key(item, error);
	if (reading->has[key])
		return cpa_fail(error, CPA_INVALID, "--problem: %s is given twice", item);
	reading->has[key] = true;
	return read_value((enum key)key, value, reading, error);
}

/* What is read points into the arena. */
static enum cpa_status read_items(const char *text, struct cpa_arena *arena,
	struct reading *reading, struct cpa_error *error)
{
	size_t n = strlen(text);
	char *copy;
	enum cpa_status status = CPA_OK;

	if (n >= MAX_TEXT)
		return cpa_fail(error, CPA_INVALID, "--problem: longer than %d characters",
			MAX_TEXT - 1);
	copy = cpa_arena_alloc(arena, n + 1);
	if (!copy)
		return cpa_fail(error, CPA_NO_MEMORY, "--problem: out of memory");
	memcpy(copy, text, n);
	for (char *item = copy, *comma; item && status == CPA_OK; item = comma) {
		comma = strchr(item, ',');
		if (comma)
			*comma++ = '\0';
		status = read_item(item, reading, error);
	}
	return status;
}

static enum cpa_status check_keys(const struct reading *r, struct cpa_error *error)
{
	if (r->has[H] && (r->has[HQ] || r->has[HKV]))
		return cpa_fail(error, CPA_INVALID,
			"--problem: H stands for both Hq and Hkv; give either H or Hq and Hkv, "
			"not both");
	if (r->has[S] && (r->has[SQ] || r->has[SKV]))
		return cpa_fail(error, CPA_INVALID,
			"--problem: S stands for both Sq and Skv; give either S or Sq and Skv, "
			"not both");
	if (!r->has[S] && !(r->has[SQ] && r->has[SKV]))
		return cpa_fail(error, CPA_INVALID, "--problem: %s",
			r->has[SQ]            ? "Sq needs Skv beside it"
				: r->has[SKV] ? "Skv needs Sq beside it"
					      : "S is required, or Sq and Skv; write S=64");
	if (r->has[TEXT] && !r->has[S])
		return cpa_fail(error, CPA_INVALID,
			"--problem: text stands in front of S; give S, not Sq and Skv, or write "
			"segments=");
	if (r->has[TEXT] && (r->has[SEGMENTS] || r->has[SEGMENTS_KV]))
		return cpa_fail(error, CPA_INVALID,
			"--problem: text=%" PRId64 " is short for segments=text:%" PRId64
			":split/image:%" PRId64 ":split; give either, not both",
			r->number[TEXT], r->number[TEXT], r->number[S]);
	if (r->has[TEXT] && r->number[TEXT] > INT64_MAX - r->number[S])
		return cpa_fail(error, CPA_INVALID,
			"--problem: text and S together are more than 2^63 - 1");
	if (r->has[OFFSET] && !r->number[CAUSAL] && !r->has[WINDOW])
		return cpa_fail(error, CPA_INVALID,
			"--problem: offset needs causal or window beside it");
	if ((r->number[CAUSAL] || r->has[WINDOW]) && !r->has[OFFSET] && !r->has[S] &&
		r->number[SQ] != r->number[SKV])
		return cpa_fail(error, CPA_INVALID,
			"--problem: %s with Sq != Skv needs offset=, the position "
			"of query 0 on the key axis (offset=%" PRId64 " puts the last query "
								      "at the last key)",
			r->number[CAUSAL] ? "causal" : "window",
			r->number[SKV] - r->number[SQ]);
	return CPA_OK;
}

static int64_t first_given(const struct reading *r, enum key key, enum key instead,
	int64_t otherwise)
{
	return r->has[key] ? r->number[key] : r->has[instead] ? r->number[instead] : otherwise;
}

/* text= is a split segment in front of one of S tokens; the sequence is both. */
static enum cpa_status make_text(const struct reading *r, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error)
{
	struct cpa_segment *made = cpa_arena_alloc(arena, 2 * sizeof *made);

	if (!made)
		return cpa_fail(error, CPA_NO_MEMORY, "--problem text: out of memory");
	made[0] = (struct cpa_segment){ .name = "text", .length = r->number[TEXT] };
	made[1] = (struct cpa_segment){ .name = "image", .length = r->number[S] };
	problem->segments = made;
	problem->nsegments = 2;
	return CPA_OK;
}

static enum cpa_status make_rule(const struct reading *r, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error)
{
	const struct cpa_rule_text text = { r->text[WINDOW], r->text[KEY_LENGTHS],
		r->text[DOCUMENTS], r->text[MASK], r->text[SINK] };
	enum cpa_status status;

	problem->rule.causal = r->number[CAUSAL] != 0;
	problem->rule.offset = r->number[OFFSET];
	status = cpa_rule_parse(&text, arena, problem, error);
	/* Beside a window without bounds it means nothing. */
	if (!problem->rule.causal && !problem->rule.window)
		problem->rule.offset = 0;
	return status;
}

enum cpa_status cpa_problem_parse(const char *text, bool default_lse, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error)
{
	struct reading r = { .dtype = CPA_DTYPE_FP64 };
	struct cpa_problem made = { 0 };
	enum cpa_status status;

	r.number[LSE] = default_lse;
	status = read_items(text, arena, &r, error);
	if (status == CPA_OK)
		status = check_keys(&r, error);
	if (status != CPA_OK)
		return status;
	made.B = first_given(&r, B, B, 1);
	made.Hq = first_given(&r, HQ, H, 8);
	made.Hkv = first_given(&r, HKV, H, made.Hq);
	made.D = first_given(&r, D, D, 64);
	made.Dv = first_given(&r, DV, DV, made.D);
	made.Sq = first_given(&r, SQ, S, 0) + r.number[TEXT];
	made.Skv = first_given(&r, SKV, S, 0) + r.number[TEXT];
	made.dtype = r.dtype;
	made.scale = r.has[SCALE] ? r.scale : 1 / sqrt((double)made.D);
	made.lse = r.number[LSE] != 0;
	made.layout = layouts[r.number[LAYOUT]];
	status = cpa_problem_check(&made, error);
	if (status == CPA_OK)
		status = make_rule(&r, arena, &made, error);
	if (status == CPA_OK && r.has[TEXT])
		status = make_text(&r, arena, &made, error);
	if (status == CPA_OK && r.has[SEGMENTS])
		status = cpa_segments_parse("segments", r.text[SEGMENTS], arena, &made.segments,
			&made.nsegments, error);
	if (status == CPA_OK && r.has[SEGMENTS_KV])
		status = cpa_segments_parse("segments_kv", r.text[SEGMENTS_KV], arena,
			&made.segments_kv, &made.nsegments_kv, error);
	if (status == CPA_OK)
		status = cpa_problem_check(&made, error);
	if (status == CPA_OK)
		*problem = made;
	return status;
}

/* Two sizes that are one key when they are equal. */
static void put_pair(struct cpa_text *w, const char *both, const char *first, int64_t a,
	const char *second, int64_t b)
{
	if (a == b)
		cpa_text_put(w, ",%s=%" PRId64, both, a);
	else
		cpa_text_put(w, ",%s=%" PRId64 ",%s=%" PRId64, first, a, second, b);
}

void cpa_problem_print(const struct cpa_problem *problem, char *text, size_t size)
{
	struct cpa_text w;

	if (size == 0)
		return;
	w = cpa_text_begin(text, size);
	cpa_text_put(&w, "B=%" PRId64, problem->B);
	put_pair(&w, "S", "Sq", problem->Sq, "Skv", problem->Skv);
	put_pair(&w, "H", "Hq", problem->Hq, "Hkv", problem->Hkv);
	cpa_text_put(&w, ",D=%" PRId64, problem->D);
	if (problem->Dv != problem->D)
		cpa_text_put(&w, ",Dv=%" PRId64, problem->Dv);
	cpa_text_put(&w, ",dtype=%s", cpa_dtype_name(problem->dtype));
	if (problem->scale != 1 / sqrt((double)problem->D))
		cpa_text_put_number(&w, ",scale=", problem->scale);
	if (problem->rule.causal)
		cpa_text_put(&w, ",causal");
	if ((problem->rule.causal || problem->rule.window) &&
		(problem->rule.offset != 0 || problem->Sq != problem->Skv))
		cpa_text_put(&w, ",offset=%" PRId64, problem->rule.offset);
	cpa_rule_print(&w, problem);
	cpa_text_put(&w, problem->lse ? ",lse" : ",lse=no");
	if (problem->layout != CPA_LAYOUT_BSHD)
		cpa_text_put(&w, ",layout=%s", cpa_layout_name(problem->layout));
	cpa_segments_print(&w, "segments", problem->segments, problem->nsegments);
	cpa_segments_print(&w, "segments_kv", problem->segments_kv, problem->nsegments_kv);
	if (w.used + 1 == size && size > 8) /* full, or full to the last character */
		memcpy(text + size - 4, "...", 4);
}
