/*
 * json.c - a streaming JSON writer.
 */
#include "harness/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

void cpa_json_init(struct cpa_json *json, FILE *out, int lines)
{
	*json = (struct cpa_json){ .out = out, .lines = lines };
}

static void new_line(struct cpa_json *json)
{
	fputc('\n', json->out);
	for (int i = 0; i < json->depth; i++)
		fputs("  ", json->out);
}

/* What stands before a value or a key. */
static void separate(struct cpa_json *json)
{
	if (json->after_key) {
		json->after_key = false;
		return;
	}
	if (json->any[json->depth])
		fputc(',', json->out);
	if (json->depth > 0 && json->depth <= json->lines)
		new_line(json);
	else if (json->any[json->depth])
		fputc(' ', json->out);
	json->any[json->depth] = true;
}

static void begin(struct cpa_json *json, char bracket)
{
	separate(json);
	fputc(bracket, json->out);
	assert(json->depth < 15);
	json->any[++json->depth] = false;
}

static void end(struct cpa_json *json, char bracket)
{
	bool any = json->any[json->depth];

	assert(json->depth > 0 && !json->after_key);
	json->depth--;
	if (any && json->depth < json->lines)
		new_line(json);
	fputc(bracket, json->out);
	if (json->depth == 0)
		fputc('\n', json->out);
}

void cpa_json_object(struct cpa_json *json)
{
	begin(json, '{');
}

void cpa_json_array(struct cpa_json *json)
{
	begin(json, '[');
}

void cpa_json_end_object(struct cpa_json *json)
{
	end(json, '}');
}

void cpa_json_end_array(struct cpa_json *json)
{
	end(json, ']');
}

int cpa_utf8_length(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	int n = p[0] < 0x80   ? 1
		: p[0] < 0xc2 ? 0
		: p[0] < 0xe0 ? 2
		: p[0] < 0xf0 ? 3
		: p[0] < 0xf5 ? 4
			      : 0;

	for (int i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms, surrogates, and what lies above U+10FFFF. */
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
		(p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static void quote(FILE *out, const char *text)
{
	fputc('"', out);
	while (*text) {
		int n = cpa_utf8_length(text);
		unsigned char c = (unsigned char)*text;

		if (n == 0)
			fputs("\\ufffd", out);
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c == '\n')
			fputs("\\n", out);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", (unsigned)c);
		else
			fwrite(text, 1, (size_t)n, out);
		text += n ? n : 1;
	}
	fputc('"', out);
}

void cpa_json_key(struct cpa_json *json, const char *key)
{
	separate(json);
	quote(json->out, key);
	fputs(": ", json->out);
	json->after_key = true;
}

void cpa_json_null(struct cpa_json *json)
{
	separate(json);
	fputs("null", json->out);
}

void cpa_json_bool(struct cpa_json *json, bool value)
{
	separate(json);
	fputs(value ? "true" : "false", json->out);
}

void cpa_json_int(struct cpa_json *json, int64_t value)
{
	separate(json);
	fprintf(json->out, "%" PRId64, value);
}

void cpa_json_uint(struct cpa_json *json, uint64_t value)
{
	separate(json);
	fprintf(json->out, "%" PRIu64, value);
}

void cpa_json_number(struct cpa_json *json, double value)
{
	separate(json);
	if (isnan(value))
		fputs("\"nan\"", json->out);
	else if (isinf(value))
		fputs(value > 0 ? "\"inf\"" : "\"-inf\"", json->out);
	else
		fprintf(json->out, "%.17g", value);
}

void cpa_json_known(struct cpa_json *json, double value)
{
	if (isnan(value))
		cpa_json_null(json);
	else
		cpa_json_number(json, value);
}

void cpa_json_string(struct cpa_json *json, const char *text)
{
	if (!text) {
		cpa_json_null(json);
		return;
	}
	separate(json);
	quote(json->out, text);
}

/* ---- members ----------------------------------------------------------------------------- */

void cpa_json_put_string(struct cpa_json *json, const char *key, const char *value)
{
	cpa_json_key(json, key);
	cpa_json_string(json, value);
}

void cpa_json_put_int(struct cpa_json *json, const char *key, int64_t value)
{
	cpa_json_key(json, key);
	cpa_json_int(json, value);
}

void cpa_json_put_known(struct cpa_json *json, const char *key, double value)
{
	cpa_json_key(json, key);
	cpa_json_known(json, value);
}

void cpa_json_put_place(struct cpa_json *json, const char *key, int64_t value)
{
	cpa_json_key(json, key);
	if (value >= 0)
		cpa_json_int(json, value);
	else
		cpa_json_null(json);
}
