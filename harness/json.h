/*
 * json.h - a streaming JSON writer.  Commas and nesting are kept here; errors stay in the FILE.
 */
#ifndef CPA_JSON_H
#define CPA_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cpa_json {
	FILE *out;
	int depth;    /* at most 15 */
	int lines;    /* containers up to this depth put each element on a line of its own */
	bool any[16]; /* something was written at this depth */
	bool after_key;
};
void cpa_json_init(struct cpa_json *json, FILE *out, int lines);

void cpa_json_object(struct cpa_json *json); /* { */
void cpa_json_array(struct cpa_json *json);  /* [ */
void cpa_json_end_object(struct cpa_json *json);
void cpa_json_end_array(struct cpa_json *json);
void cpa_json_key(struct cpa_json *json, const char *key);

void cpa_json_null(struct cpa_json *json);
void cpa_json_bool(struct cpa_json *json, bool value);
void cpa_json_int(struct cpa_json *json, int64_t value);
void cpa_json_uint(struct cpa_json *json, uint64_t value);
/* 17 significant digits; non-finite numbers are the strings "nan" "inf" "-inf". */
void cpa_json_number(struct cpa_json *json, double value);
/* Like cpa_json_number(), but NaN means "does not exist" and is null. */
void cpa_json_known(struct cpa_json *json, double value);
/* NULL is null.  Bytes that are no UTF-8 become U+FFFD. */
void cpa_json_string(struct cpa_json *json, const char *text);

/* A key and its value. */
void cpa_json_put_string(struct cpa_json *json, const char *key, const char *value);
void cpa_json_put_int(struct cpa_json *json, const char *key, int64_t value);
void cpa_json_put_known(struct cpa_json *json, const char *key, double value);
/* Where a number below 0 means "does not exist" and is null. */
void cpa_json_put_place(struct cpa_json *json, const char *key, int64_t value);

/* The length of the UTF-8 character at text, 0 when it is none (or not allowed there). */
int cpa_utf8_length(const char *text);

#endif
