/*
 * problem_segments.c - segments of a problem as text: "text:512:replicated/image:4096:split".
 */
#include "harness/problem_rule.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "harness/parse.h"

enum { MAX_SEGMENTS = 4096 };

/* ---- names ---- */

/* What would end a name, or not be seen; '%' begins an escape. */
static bool is_plain(unsigned char c)
{
	return c > 0x20 && c != 0x7f && !strchr("%,:/", c);
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* "%2C" is a comma, and "%00" ends the name: alone it is the empty one.  name [64] out; false: it is
 * too long, or no such text. */
static bool read_name(const char *text, char *name, size_t size)
{
	size_t n = 0;

	for (; *text; text++) {
		int high = -1, low = -1;

		if (n + 1 >= size)
			return false;
		if (*text != '%') {
			name[n++] = *text;
			continue;
		}
		high = hex_digit(text[1]);
		low = high < 0 ? -1 : hex_digit(text[2]);
		if (low < 0)
			return false;
		name[n++] = (char)(16 * high + low);
		text += 2;
	}
	name[n] = '\0';
	return true;
}

static void put_name(struct cpa_text *text, const char *name)
{
	if (*name == '\0')
		cpa_text_put(text, "%%00");
	for (; *name; name++)
		if (is_plain((unsigned char)*name))
			cpa_text_put(text, "%c", *name);
		else
			cpa_text_put(text, "%%%02X", (unsigned)(unsigned char)*name);
}

/* ---- reading and printing ---- */

/* One "name:length[:rule]"; the text is cut at its colons. */
static enum cpa_status read_segment(const char *key, char *item, struct cpa_segment *segment,
	struct cpa_error *error)
{
	char *length = strchr(item, ':'), *rule;

	if (length)
		*length++ = '\0';
	rule = length ? strchr(length, ':') : NULL;
	if (rule)
		*rule++ = '\0';
	if (!length || item[0] == '\0' || !read_name(item, segment->name, sizeof segment->name))
		return cpa_fail(error, CPA_INVALID,
			"--problem %s: '%.60s' is not a segment; write name:length:split or "
			"name:length:replicated, with / between segments; a name has at most %zu bytes, "
			"and %%2C for a comma",
			key, item, sizeof segment->name - 1);
	if (rule && strcmp(rule, "split") != 0 && strcmp(rule, "replicated") != 0)
		return cpa_fail(error, CPA_INVALID,
			"--problem %s: the rule of %s is '%.60s', expected split or replicated", key,
			item, rule);
	segment->replicated = rule && rule[0] == 'r';
	return cpa_parse_int("--problem segment length", length, 0, INT64_MAX, &segment->length, error);
}

enum cpa_status cpa_segments_parse(const char *key, const char *text, struct cpa_arena *arena,
	const struct cpa_segment **segments, int *n, struct cpa_error *error)
{
	size_t size = strlen(text) + 1;
	char *copy = cpa_arena_alloc(arena, size), *next;
	struct cpa_segment *made;
	int count = 1;

	for (const char *c = text; *c; c++)
		count += *c == '/';
	if (count > MAX_SEGMENTS)
		return cpa_fail(error, CPA_INVALID, "--problem %s: more than %d segments", key,
			MAX_SEGMENTS);
	made = cpa_arena_alloc(arena, sizeof *made * (size_t)count);
	if (!copy || !made)
		return cpa_fail(error, CPA_NO_MEMORY, "--problem %s: out of memory", key);
	memcpy(copy, text, size);
	for (int i = 0; i < count; i++, copy = next) {
		enum cpa_status status;

		next = strchr(copy, '/');
		if (next)
			*next++ = '\0';
		status = read_segment(key, copy, &made[i], error);
		if (status != CPA_OK)
			return status;
	}
	*segments = made;
	*n = count;
	return CPA_OK;
}

void cpa_segments_print(struct cpa_text *text, const char *key, const struct cpa_segment *segments, int n)
{
	for (int i = 0; i < n; i++) {
		if (i == 0)
			cpa_text_put(text, ",%s=", key);
		else
			cpa_text_put(text, "/");
		put_name(text, segments[i].name);
		cpa_text_put(text, ":%" PRId64 ":%s", segments[i].length,
			segments[i].replicated ? "replicated" : "split");
	}
}
