/*
 * fields.h - fields of a JSON file, read strictly: the first fault is kept as a sentence that
 * begins with its JSON path, and what is read after it is harmless.  Private to the readers of
 * data files.
 */
#ifndef CPA_FIELDS_H
#define CPA_FIELDS_H

#include "ref/ref.h"

#ifndef CPA_HAVE_CJSON
#define CPA_HAVE_CJSON 0
#endif

enum { CPA_FIELD_MAX = 1000000000 }; /* the largest number */

struct cJSON;

/* A value and where it stands; parents belong to callers further up. */
struct cpa_place {
	const struct cJSON *json; /* NULL: missing */
	const struct cpa_place *parent;
	const char *key; /* NULL: element number index */
	int index;
};

struct cpa_fields {
	struct cpa_arena *arena; /* of what is read */
	struct cpa_error *error;
	enum cpa_status status;
	struct cpa_model *model; /* being read */
};

/* Only space may follow the JSON; CPA_INVALID with the line. */
enum cpa_status cpa_fields_parse(
	const char *text, size_t nbytes, struct cJSON **json, struct cpa_error *error);
void cpa_fields_free(struct cJSON *json);

/* Keeps the first fault only. */
void cpa_field_fault(struct cpa_fields *r, const struct cpa_place *at, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
struct cpa_place cpa_field_member(const struct cpa_place *object, const char *key);
/* The next element of an array, or member of an object; place starts as zero. */
bool cpa_field_next(const struct cpa_place *array, struct cpa_place *place);

/* A copy in the arena; "" when out of memory. */
const char *cpa_field_copy(struct cpa_fields *r, const char *text);
void *cpa_field_allocate(struct cpa_fields *r, int n, size_t size);

/* Each faults where the field is missing or another kind, and returns something harmless then. */
const char *cpa_field_text(struct cpa_fields *r, const struct cpa_place *at);
int64_t cpa_field_int(struct cpa_fields *r, const struct cpa_place *at, int least, int most);
bool cpa_field_bool(
	struct cpa_fields *r, const struct cpa_place *at, bool without); /* may be missing */
int cpa_field_array(
	struct cpa_fields *r, const struct cpa_place *at, int most); /* elements, 1 at least */
bool cpa_field_object(struct cpa_fields *r, const struct cpa_place *at);
/* A number or a string with an expression: both as text. */
const char *cpa_field_length(struct cpa_fields *r, const struct cpa_place *at);

/* Lenient reading, where a field may be missing, null or of another kind.  None of these faults. */
enum cpa_field_kind {
	CPA_FIELD_MISSING,
	CPA_FIELD_NULL,
	CPA_FIELD_TEXT,
	CPA_FIELD_NUMBER,
	CPA_FIELD_BOOL,
	CPA_FIELD_ARRAY,
	CPA_FIELD_OBJECT
};
enum cpa_field_kind cpa_field_kind(const struct cpa_place *at);
/* Borrowed from the JSON; NULL where it is no string. */
const char *cpa_field_peek_text(const struct cpa_place *at);
/* NaN where it is neither a number nor one of the strings "nan", "inf" and "-inf"; a bool is 0 or
 * 1. */
double cpa_field_peek_number(const struct cpa_place *at);
int cpa_field_count(const struct cpa_place *at); /* members or elements; 0 of anything else */

/* Faults for any member that is not among keys, which NULL ends. */
void cpa_field_only(
	struct cpa_fields *r, const struct cpa_place *object, const char *const *keys);
/* Faults for any number under root that no pointer in sources covers. */
void cpa_field_sources(
	struct cpa_fields *r, const struct cpa_place *root, const struct cpa_place *sources);

#endif
