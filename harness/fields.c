/*
 * fields.c - fields of a JSON file: each is checked for its kind, and a fault is a sentence that
 * begins with its path.  The only file that includes cJSON.
 */
#include "harness/fields.h"

#if CPA_HAVE_CJSON

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/text.h"

enum { MAX_LEVELS = 24 };

static void put_path(struct cpa_text *text, const struct cpa_place *at)
{
	if (!at->parent)
		return;
	put_path(text, at->parent);
	if (at->key)
		cpa_text_put(text, "/%.60s", at->key);
	else
		cpa_text_put(text, "/%d", at->index);
}

void cpa_field_fault(struct cpa_fields *r, const struct cpa_place *at, const char *format, ...)
{
	char path[320], why[600];
	struct cpa_text text = cpa_text_begin(path, sizeof path);
	va_list arguments;

	if (r->status != CPA_OK)
		return;
	put_path(&text, at);
	va_start(arguments, format);
	vsnprintf(why, sizeof why, format, arguments);
	va_end(arguments);
	r->status = cpa_fail(r->error, CPA_INVALID, "%s: %s", path[0] ? path : "/", why);
}

struct cpa_place cpa_field_member(const struct cpa_place *object, const char *key)
{
	return (struct cpa_place){
		cJSON_GetObjectItemCaseSensitive(object->json, key), object, key, 0};
}

/* Element number i of an array, or member number i of an object. */
static struct cpa_place element(const struct cpa_place *array, const cJSON *json, int i)
{
	return (struct cpa_place){json, array, json ? json->string : NULL, i};
}

bool cpa_field_next(const struct cpa_place *array, struct cpa_place *place)
{
	const cJSON *json = place->json ? place->json->next : array->json->child;

	*place = element(array, json, place->json ? place->index + 1 : 0);
	return json != NULL;
}

/* ---- kinds of fields
 * --------------------------------------------------------------------------- */

const char *cpa_field_copy(struct cpa_fields *r, const char *text)
{
	size_t n = strlen(text) + 1;
	char *made = cpa_arena_alloc(r->arena, n);

	return made ? memcpy(made, text, n) : "";
}

void *cpa_field_allocate(struct cpa_fields *r, int n, size_t size)
{
	return cpa_arena_alloc(r->arena, (size_t)(n > 0 ? n : 1) * size);
}

const char *cpa_field_text(struct cpa_fields *r, const struct cpa_place *at)
{
	if (!at->json)
		cpa_field_fault(r, at, "missing, expected a string");
	else if (!cJSON_IsString(at->json))
		cpa_field_fault(r, at, "expected a string");
	else if (strlen(at->json->valuestring) > 255)
		cpa_field_fault(r, at, "expected at most 255 characters");
	else
		return cpa_field_copy(r, at->json->valuestring);
	return "";
}

static bool is_whole(const cJSON *json, double least, double most)
{
	return cJSON_IsNumber(json) && json->valuedouble >= least && json->valuedouble <= most &&
		json->valuedouble == (double)(int64_t)json->valuedouble;
}

int64_t cpa_field_int(struct cpa_fields *r, const struct cpa_place *at, int least, int most)
{
	if (at->json && is_whole(at->json, least, most))
		return (int64_t)at->json->valuedouble;
	cpa_field_fault(r, at, "%sexpected a whole number from %d to %d",
		at->json ? "" : "missing, ", least, most);
	return least;
}

bool cpa_field_bool(struct cpa_fields *r, const struct cpa_place *at, bool without)
{
	if (!at->json)
		return without;
	if (!cJSON_IsBool(at->json))
		cpa_field_fault(r, at, "expected true or false");
	return cJSON_IsTrue(at->json);
}

/* The number of elements of an array that must be there. */
int cpa_field_array(struct cpa_fields *r, const struct cpa_place *at, int most)
{
	if (!cJSON_IsArray(at->json)) {
		cpa_field_fault(r, at, "%sexpected an array", at->json ? "" : "missing, ");
		return 0;
	}
	if (!at->json->child || cJSON_GetArraySize(at->json) > most) {
		cpa_field_fault(r, at, "expected 1 to %d elements", most);
		return 0;
	}
	return cJSON_GetArraySize(at->json);
}

bool cpa_field_object(struct cpa_fields *r, const struct cpa_place *at)
{
	if (!cJSON_IsObject(at->json))
		cpa_field_fault(r, at, "%sexpected an object", at->json ? "" : "missing, ");
	return cJSON_IsObject(at->json);
}

/* A number or a string with an expression: both as text. */
const char *cpa_field_length(struct cpa_fields *r, const struct cpa_place *at)
{
	char digits[32];

	if (cJSON_IsString(at->json))
		return cpa_field_text(r, at);
	if (!at->json || !is_whole(at->json, 0, CPA_FIELD_MAX)) {
		cpa_field_fault(r, at,
			"%sexpected a whole number >= 0 or an expression of lengths",
			at->json ? "" : "missing, ");
		return "0";
	}
	snprintf(digits, sizeof digits, "%.0f", at->json->valuedouble);
	return cpa_field_copy(r, digits);
}

/* ---- whatever is there ---- */

enum cpa_field_kind cpa_field_kind(const struct cpa_place *at)
{
	if (!at->json)
		return CPA_FIELD_MISSING;
	return cJSON_IsString(at->json)   ? CPA_FIELD_TEXT
		: cJSON_IsNumber(at->json) ? CPA_FIELD_NUMBER
		: cJSON_IsBool(at->json)   ? CPA_FIELD_BOOL
		: cJSON_IsArray(at->json)  ? CPA_FIELD_ARRAY
		: cJSON_IsObject(at->json) ? CPA_FIELD_OBJECT
					   : CPA_FIELD_NULL;
}

const char *cpa_field_peek_text(const struct cpa_place *at)
{
	return cJSON_IsString(at->json) ? at->json->valuestring : NULL;
}

double cpa_field_peek_number(const struct cpa_place *at)
{
	const char *text = cpa_field_peek_text(at);

	if (cJSON_IsNumber(at->json))
		return at->json->valuedouble;
	if (cJSON_IsBool(at->json))
		return cJSON_IsTrue(at->json);
	if (text && strcmp(text, "inf") == 0)
		return INFINITY;
	return text && strcmp(text, "-inf") == 0 ? -INFINITY : NAN;
}

int cpa_field_count(const struct cpa_place *at)
{
	return cJSON_IsArray(at->json) || cJSON_IsObject(at->json) ? cJSON_GetArraySize(at->json)
								   : 0;
}

/* A slip in a name would be a field left out in silence. */
void cpa_field_only(struct cpa_fields *r, const struct cpa_place *object, const char *const *keys)
{
	for (const cJSON *json = object->json->child; json; json = json->next) {
		struct cpa_place at = element(object, json, 0);
		int i = 0;

		while (keys[i] && strcmp(keys[i], json->string) != 0)
			i++;
		if (!keys[i])
			cpa_field_fault(r, &at, "a field that is not known here");
	}
}

/* ---- sources
 * ----------------------------------------------------------------------------------- */

/* Every number is covered by the pointer to itself or to something around it. */
static void check_sources(
	struct cpa_fields *r, const struct cpa_place *at, const cJSON *sources, int level)
{
	char path[320];
	struct cpa_text text = cpa_text_begin(path, sizeof path);
	const cJSON *source;
	int i = 0;

	if (r->status != CPA_OK || at->json == sources)
		return;
	if (level > MAX_LEVELS) {
		cpa_field_fault(r, at, "nested too deep");
		return;
	}
	put_path(&text, at);
	source = cJSON_GetObjectItemCaseSensitive(sources, path);
	if (cJSON_IsString(source) && source->valuestring[0])
		return;
	if (cJSON_IsNumber(at->json))
		cpa_field_fault(r, at,
			"a number without a source; add \"%s\" or what is around it to sources",
			path);
	if (cJSON_IsObject(at->json) || cJSON_IsArray(at->json))
		for (const cJSON *json = at->json->child; json; json = json->next, i++) {
			struct cpa_place inner = element(at, json, i);

			check_sources(r, &inner, sources, level + 1);
		}
}

void cpa_field_sources(
	struct cpa_fields *r, const struct cpa_place *root, const struct cpa_place *sources)
{
	check_sources(r, root, sources->json, 0);
}

/* ---- the whole --------------------------------------------------------------------------------
 */

/* Only space may follow the JSON. */
enum cpa_status cpa_fields_parse(
	const char *text, size_t nbytes, struct cJSON **json, struct cpa_error *error)
{
	const char *end = text, *stop = text + nbytes;
	int line = 1;

	*json = cJSON_ParseWithLengthOpts(text, nbytes, &end, false);
	while (*json && end < stop && strchr(" \t\r\n", *end) && *end)
		end++;
	if (*json && end == stop)
		return CPA_OK;
	for (const char *c = text; c < end && c < stop; c++)
		line += *c == '\n';
	cJSON_Delete(*json);
	*json = NULL;
	return cpa_fail(
		error, CPA_INVALID, "line %d: this is no JSON, or something follows it", line);
}

void cpa_fields_free(struct cJSON *json)
{
	cJSON_Delete(json);
}

#endif
