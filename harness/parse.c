/*
 * parse.c - strict readers of numbers, lists and names in options.
 */
#include "harness/parse.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/suggest.h"

enum { MAX_SIZES = 4096, MAX_NUMBERS = 65536, MAX_SPAN = 65536 };

/* Decimal digits of text [n], all of them, at most `max`. */
static bool digits(const char *text, size_t n, uint64_t max, uint64_t *value)
{
	uint64_t sum = 0;

	if (n == 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		uint64_t digit = (uint64_t)(text[i] - '0');

		if (text[i] < '0' || text[i] > '9' || sum > (max - digit) / 10)
			return false;
		sum = sum * 10 + digit;
	}
	*value = sum;
	return sum <= max;
}

enum cpa_status cpa_parse_int(const char *what, const char *text, int64_t min, int64_t max,
	int64_t *value, struct cpa_error *error)
{
	bool negative = text[0] == '-';
	uint64_t magnitude = 0;
	int64_t number;

	if (!digits(text + negative, strlen(text + negative), INT64_MAX, &magnitude))
		return cpa_fail(error, CPA_INVALID,
			"%s: '%.60s' is not a whole number from %" PRId64 " to %" PRId64, what,
			text, min, max);
	number = negative ? -(int64_t)magnitude : (int64_t)magnitude;
	if (number < min || number > max)
		return cpa_fail(error, CPA_INVALID,
			"%s: %" PRId64 " is outside %" PRId64 " to %" PRId64, what, number, min,
			max);
	*value = number;
	return CPA_OK;
}

enum cpa_status cpa_parse_seed(const char *what, const char *text, uint64_t *value,
	struct cpa_error *error)
{
	if (!digits(text, strlen(text), UINT64_MAX, value))
		return cpa_fail(error, CPA_INVALID,
			"%s: '%.60s' is not a whole number from 0 to %" PRIu64, what, text,
			UINT64_MAX);
	return CPA_OK;
}

/* strtod() also takes spaces, hexadecimal, "inf" and "nan": only decimal characters may pass. */
static bool decimal(const char *text, double *value)
{
	char *end = NULL;

	if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0')
		return false;
	*value = strtod(text, &end);
	return end != text && *end == '\0';
}

enum cpa_status cpa_parse_number(const char *what, const char *text, double *value,
	struct cpa_error *error)
{
	double number;

	if (!decimal(text, &number))
		return cpa_fail(error, CPA_INVALID, "%s: '%.60s' is not a number such as 0.125",
			what, text);
	if (!isfinite(number))
		return cpa_fail(error, CPA_INVALID, "%s: %.60s is not a finite number", what,
			text);
	*value = number;
	return CPA_OK;
}

enum cpa_status cpa_parse_positive(const char *what, const char *text, double *value,
	struct cpa_error *error)
{
	double number;

	if (!decimal(text, &number))
		return cpa_fail(error, CPA_INVALID, "%s: '%.60s' is not a number such as 0.125",
			what, text);
	if (!isfinite(number) || number <= 0)
		return cpa_fail(error, CPA_INVALID, "%s: %.60s is not a finite number above 0",
			what, text);
	*value = number;
	return CPA_OK;
}

/* The next item of a list, copied to item; false when it is longer than any number. */
static bool next_item(const char **text, const char *separator, char *item, size_t size)
{
	size_t n = strcspn(*text, separator);

	if (n >= size)
		return false;
	memcpy(item, *text, n);
	item[n] = '\0';
	*text += n;
	return true;
}

/* "7" or "2-8" into marks[first - min .. last - min]. */
static enum cpa_status mark_item(const char *what, char *item, int64_t min, int64_t max,
	unsigned char *marks, struct cpa_error *error)
{
	char *dash = strchr(item, '-');
	int64_t first, last;
	enum cpa_status status;

	if (dash && (dash == item || dash[1] == '\0'))
		return cpa_fail(error, CPA_INVALID, "%s: '%s' is not a range; write it as 2-8",
			what, item);
	if (dash)
		*dash = '\0';
	status = cpa_parse_int(what, item, min, max, &first, error);
	if (status != CPA_OK)
		return status;
	last = first;
	if (dash)
		status = cpa_parse_int(what, dash + 1, min, max, &last, error);
	if (status != CPA_OK)
		return status;
	if (last < first)
		return cpa_fail(error, CPA_INVALID,
			"%s: the range %" PRId64 "-%" PRId64 " runs backwards; write %" PRId64
			"-%" PRId64,
			what, first, last, last, first);
	memset(marks + (first - min), 1, (size_t)(last - first + 1));
	return CPA_OK;
}

static enum cpa_status mark_all(const char *what, const char *text, int64_t min, int64_t max,
	unsigned char *marks, struct cpa_error *error)
{
	for (;; text++) {
		char item[48];
		enum cpa_status status;

		if (!next_item(&text, ",", item, sizeof item) || item[0] == '\0')
			return cpa_fail(error, CPA_INVALID,
				"%s: expected numbers and ranges such as 2-8,12 where it says "
				"'%.40s'",
				what, text);
		status = mark_item(what, item, min, max, marks, error);
		if (status != CPA_OK || *text == '\0')
			return status;
	}
}

enum cpa_status cpa_parse_set(const char *what, const char *text, int64_t min, int64_t max,
	struct cpa_arena *arena, struct cpa_int_list *list, struct cpa_error *error)
{
	int64_t span = max - min + 1;
	unsigned char *marks = calloc(MAX_SPAN, 1);
	enum cpa_status status;
	int n = 0;

	if (!marks || span > MAX_SPAN) {
		free(marks);
		return cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", what);
	}
	status = mark_all(what, text, min, max, marks, error);
	for (int64_t i = 0; i < span; i++)
		n += marks[i];
	if (status == CPA_OK) {
		int64_t *at = cpa_arena_alloc(arena, (size_t)n * sizeof *at);
		int k = 0;

		for (int64_t i = 0; i < span && at; i++)
			if (marks[i])
				at[k++] = min + i;
		if (at)
			*list = (struct cpa_int_list){ at, n };
		else
			status = cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", what);
	}
	free(marks);
	return status;
}

/* What a list of integers may look like. */
struct form {
	const char *separator, *example; /* "sizes such as given:5,4,0,4" */
	int64_t min, max;
	int most;
};

static enum cpa_status parse_list(const char *what, const char *text, const struct form *form,
	struct cpa_arena *arena, struct cpa_int_list *list, struct cpa_error *error)
{
	const char *p = text;
	int64_t *at;
	int n = 1;

	for (const char *c = text; *c; c++)
		n += *c == *form->separator;
	if (n > form->most)
		return cpa_fail(error, CPA_INVALID, "%s: %d sizes; at most %d", what, n,
			form->most);
	at = cpa_arena_alloc(arena, (size_t)n * sizeof *at);
	if (!at)
		return cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", what);
	for (int i = 0; i < n; i++, p++) {
		char item[32];
		enum cpa_status status;

		if (!next_item(&p, form->separator, item, sizeof item) || item[0] == '\0')
			return cpa_fail(error, CPA_INVALID,
				"%s: expected %s where it says '%.40s'", what, form->example,
				p);
		status = cpa_parse_int(what, item, form->min, form->max, &at[i], error);
		if (status != CPA_OK)
			return status;
	}
	*list = (struct cpa_int_list){ at, n };
	return CPA_OK;
}

enum cpa_status cpa_parse_sizes(const char *what, const char *text, struct cpa_arena *arena,
	struct cpa_int_list *list, struct cpa_error *error)
{
	const struct form form = { ",", "sizes such as given:5,4,0,4", 0, INT64_MAX,
		MAX_SIZES };

	return parse_list(what, text, &form, arena, list, error);
}

enum cpa_status cpa_parse_colons(const char *what, const char *text, int64_t min, int64_t max,
	struct cpa_arena *arena, struct cpa_int_list *list, struct cpa_error *error)
{
	const struct form form = { ":", "numbers with colons between, such as 0:129:390,", min,
		max, MAX_NUMBERS };

	return parse_list(what, text, &form, arena, list, error);
}

enum cpa_status cpa_parse_name(const char *what, const char *text, const char *const *names,
	int n, const char *const *later, int nlater, int *index, struct cpa_error *error)
{
	char all[400] = "", near[80];
	size_t used = 0;

	for (int i = 0; i < n; i++)
		if (strcmp(text, names[i]) == 0) {
			*index = i;
			return CPA_OK;
		}
	for (int i = 0; i < n && used < sizeof all; i++)
		used += (size_t)snprintf(all + used, sizeof all - used, "%s%s",
			i == 0 ? ""
				: i == n - 1 ? " or "
					     : ", ",
			names[i]);
	for (int i = 0; i < nlater; i++)
		if (strcmp(text, later[i]) == 0)
			return cpa_fail(error, CPA_INVALID,
				"%s: '%s' is not in this version yet; use %s", what, text, all);
	cpa_suggest_text(text, names, n, near, sizeof near);
	return cpa_fail(error, CPA_INVALID, "%s: unknown '%.60s'%s (expected %s)", what, text,
		near, all);
}
