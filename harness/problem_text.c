/*
 * problem_text.c - problems as text: "B=1,S=64,H=8,causal".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/options.h"
#include "harness/parse.h"
#include "harness/suggest.h"
#include "harness/text.h"

enum key { B, H, HQ, HKV, D, DV, S, SQ, SKV, DTYPE, SCALE, CAUSAL, OFFSET, LSE, NKEYS };
static const char *const key_names[NKEYS] = { "B", "H", "Hq", "Hkv", "D", "Dv", "S", "Sq",
	"Skv", "dtype", "scale", "causal", "offset", "lse" };
static const char *const later_keys[] = { "window", "key_lengths", "documents", "segments",
	"segments_kv", "mask", "bias", "sink" };
enum { NLATER = sizeof later_keys / sizeof later_keys[0], MAX_TEXT = 4096 };

/* What the text says, before defaults. */
struct reading {
	bool has[NKEYS];
	int64_t number[NKEYS];
	enum cpa_dtype dtype;
	double scale;
};

static enum cpa_status unknown_key(const char *name, struct cpa_error *error)
{
	char near[80];

	for (int i = 0; i < NLATER; i++)
		if (strcmp(name, later_keys[i]) == 0)
			return cpa_fail(error, CPA_INVALID,
				"--problem: the key %s is not in this version yet", name);
	cpa_suggest_text(name, key_names, NKEYS, near, sizeof near);
	return cpa_fail(error, CPA_INVALID,
		"--problem: unknown key '%.60s'%s (keys: B, H or Hq and Hkv, D, "
		"Dv, S or Sq and Skv, dtype, scale, causal, offset, lse, layout)",
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

static enum cpa_status read_value(enum key key, const char *value, struct reading *reading,
	struct cpa_error *error)
{
	char what[40];

	snprintf(what, sizeof what, "--problem %s", key_names[key]);
	if (key == CAUSAL || key == LSE)
		return read_flag(what, value, &reading->number[key], error);
	if (!value || value[0] == '\0')
		return cpa_fail(error, CPA_INVALID, "%s: a value is missing; write %s=%s", what,
			key_names[key],
			key == DTYPE           ? "fp32"
				: key == SCALE ? "0.125"
					       : "64");
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
	if (strcmp(item, "layout") == 0) {
		/* The one layout of this version is the default; saying so is no mistake. */
		if (value && strcmp(value, "BSHD") == 0)
			return CPA_OK;
		return cpa_fail(error, CPA_INVALID,
			"--problem layout: only BSHD is in this version, not '%.60s'",
			value ? value : "");
	}
	while (key < NKEYS && strcmp(item, key_names[key]) != 0)
		key++;
	if (key == NKEYS)
		return unknown_key(item, error);
	if (reading->has[key])
		return cpa_fail(error, CPA_INVALID, "--problem: %s is given twice", item);
	reading->has[key] = true;
	return read_value((enum key)key, value, reading, error);
}

static enum cpa_status read_items(const char *text, struct reading *reading,
	struct cpa_error *error)
{
	char copy[MAX_TEXT];
	enum cpa_status status = CPA_OK;

	if (strlen(text) >= sizeof copy)
		return cpa_fail(error, CPA_INVALID, "--problem: longer than %d characters",
			MAX_TEXT - 1);
	snprintf(copy, sizeof copy, "%s", text);
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
	if (r->has[OFFSET] && !r->number[CAUSAL])
		return cpa_fail(error, CPA_INVALID, "--problem: offset needs causal beside it");
	if (r->number[CAUSAL] && !r->has[OFFSET] && !r->has[S] &&
		r->number[SQ] != r->number[SKV])
		return cpa_fail(error, CPA_INVALID,
			"--problem: causal with Sq != Skv needs offset=, the position "
			"of query 0 on the key axis (offset=%" PRId64 " lets the last query "
								      "see the last key)",
			r->number[SKV] - r->number[SQ]);
	return CPA_OK;
}

static int64_t first_given(const struct reading *r, enum key key, enum key instead,
	int64_t otherwise)
{
	return r->has[key] ? r->number[key] : r->has[instead] ? r->number[instead] : otherwise;
}

enum cpa_status cpa_problem_parse(const char *text, bool default_lse,
	struct cpa_problem *problem, struct cpa_error *error)
{
	struct reading r = { .dtype = CPA_DTYPE_FP64 };
	struct cpa_problem made = { 0 };
	enum cpa_status status;

	r.number[LSE] = default_lse;
	status = read_items(text, &r, error);
	if (status == CPA_OK)
		status = check_keys(&r, error);
	if (status != CPA_OK)
		return status;
	made.B = first_given(&r, B, B, 1);
	made.Hq = first_given(&r, HQ, H, 8);
	made.Hkv = first_given(&r, HKV, H, made.Hq);
	made.D = first_given(&r, D, D, 64);
	made.Dv = first_given(&r, DV, DV, made.D);
	made.Sq = first_given(&r, SQ, S, 0);
	made.Skv = first_given(&r, SKV, S, 0);
	made.dtype = r.dtype;
	made.scale = r.has[SCALE] ? r.scale : 1 / sqrt((double)made.D);
	made.rule.causal = r.number[CAUSAL] != 0;
	made.rule.offset = r.number[OFFSET];
	made.lse = r.number[LSE] != 0;
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

/* The fewest digits that read back as the same number. */
static void put_scale(struct cpa_text *w, double scale)
{
	char number[40];
	int digits = 1;

	do
		snprintf(number, sizeof number, "%.*g", digits, scale);
	while (strtod(number, NULL) != scale && digits++ < 17);
	cpa_text_put(w, ",scale=%s", number);
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
		put_scale(&w, problem->scale);
	if (problem->rule.causal)
		cpa_text_put(&w, ",causal");
	if (problem->rule.causal && (problem->rule.offset != 0 || problem->Sq != problem->Skv))
		cpa_text_put(&w, ",offset=%" PRId64, problem->rule.offset);
	cpa_text_put(&w, problem->lse ? ",lse" : ",lse=no");
	if (problem->kv_replicated)
		cpa_text_put(&w, ",segments_kv=kv:%" PRId64 ":replicated", problem->Skv);
}
