/* cut.c - who owns what: lengths cut into shards, their tokens, heads cut over ranks. */
#include "ref/ref.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Adds printf output behind what text holds, cut at size. */
__attribute__((format(printf, 3, 4))) static void add_text(
	char *text, size_t *used, const char *format, ...)
{
	const size_t size = 256;
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(text + *used, size - *used, format, arguments);
	va_end(arguments);
	if (n > 0)
		*used = *used + (size_t) n < size ? *used + (size_t) n : size - 1;
}

/* "1, 2, 5, 10": the numbers of ranks that divide length, the first few of them. */
static void print_divisors(int64_t length, char text[256])
{
	size_t used = 0;
	int nfound = 0;

	text[0] = '\0';
	for (int64_t d = 1; d <= length && d <= 1024; d++) {
		if (length % d != 0)
			continue;
		if (nfound == 16) {
			add_text(text, &used, ", ...");
			return;
		}
		add_text(text, &used, "%s%" PRId64, nfound++ > 0 ? ", " : "", d);
	}
}

/* What is being cut, for the sentences. */
struct words {
	const char *length; /* "S" */
	const char *parts;  /* "sizes" */
	const char *owner;  /* "ranks" */
};

static enum cpa_status check_given(const struct words *words, int64_t length, int P,
	const int64_t *given, struct cpa_error *error)
{
	int64_t sum = 0;

	assert(given != NULL);
	for (int i = 0; i < P; i++) {
		if (given[i] < 0)
			return cpa_fail(error, CPA_INVALID,
				"given %s: entry %d of %d is %" PRId64 ", expected 0 or more",
				words->parts, i, P, given[i]);
		if (__builtin_add_overflow(sum, given[i], &sum))
			return cpa_fail(error, CPA_INVALID,
				"given %s: the first %d add up to more than 2^63, expected %s "
				"= %" PRId64,
				words->parts, i + 1, words->length, length);
	}
	if (sum != length)
		return cpa_fail(error, CPA_INVALID,
			"given %s: %d of them add up to %" PRId64 ", expected %s = %" PRId64,
			words->parts, P, sum, words->length, length);
	return CPA_OK;
}

static enum cpa_status check_equal(
	const struct words *words, int64_t length, int P, struct cpa_error *error)
{
	char divisors[256];

	if (length % P == 0)
		return CPA_OK;
	print_divisors(length, divisors);
	return cpa_fail(error, CPA_UNSUPPORTED,
		"%s = %" PRId64
		" is not divisible by %d %s; %s %s would work, or --split balanced",
		words->length, length, P, words->owner, divisors, words->owner);
}

static void fill_sizes(
	enum cpa_split rule, int64_t length, int P, const int64_t *given, int64_t *sizes)
{
	const int64_t floor = length / P, rest = length % P;
	int64_t left = length;

	for (int i = 0; i < P; i++) {
		const int64_t most = floor + (rest > 0);

		if (rule == CPA_SPLIT_GIVEN)
			sizes[i] = given[i];
		else if (rule == CPA_SPLIT_CEIL)
			sizes[i] = left < most ? left : most;
		else
			sizes[i] = floor + (i < rest);
		left -= sizes[i];
	}
	assert(left == 0);
}

static enum cpa_status split(const struct words *words, enum cpa_split rule, int64_t length,
	int P, const int64_t *given, int64_t *sizes, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	assert(P >= 1 && length >= 0);
	if (rule == CPA_SPLIT_EQUAL)
		status = check_equal(words, length, P, error);
	else if (rule == CPA_SPLIT_GIVEN)
		status = check_given(words, length, P, given, error);
	if (status != CPA_OK)
		return status;
	fill_sizes(rule, length, P, given, sizes);
	return CPA_OK;
}

enum cpa_status cpa_split_sizes(enum cpa_split rule, int64_t S, int P, const int64_t *given,
	int64_t *sizes, struct cpa_error *error)
{
	static const struct words words = { "S", "sizes", "ranks" };

	return split(&words, rule, S, P, given, sizes, error);
}

enum cpa_status cpa_cut_init(struct cpa_cut *cut, struct cpa_arena *arena, enum cpa_split rule,
	enum cpa_order order, int64_t S, int P, const int64_t *given, struct cpa_error *error)
{
	int64_t *sums, *offset, *front;
	enum cpa_status status;

	assert(P >= 1);
	/* Token t on shard t mod P fixes the sizes: only these two rules agree with them. */
	if (order == CPA_ORDER_STRIPED && rule != CPA_SPLIT_EQUAL && rule != CPA_SPLIT_BALANCED)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"--order striped deals tokens one by one and does not take --split %s; "
			"--split equal or "
			"balanced would work, or --order contiguous or zigzag",
			cpa_split_name(rule));
	sums = cpa_arena_alloc(arena, 2 * ((size_t) P + 1) * sizeof *sums);
	if (sums == NULL)
		return cpa_fail(
			error, CPA_NO_MEMORY, "no memory for the sizes of %d shards", P);
	offset = sums;
	front = sums + P + 1;
	status = cpa_split_sizes(rule, S, P, given, offset + 1, error);
	if (status != CPA_OK)
		return status;
	for (int i = 0; i < P; i++) {
		const int64_t size = offset[i + 1];

		front[i + 1] = front[i] + (size + 1) / 2;
		offset[i + 1] = offset[i] + size;
	}
	*cut = (struct cpa_cut) {
		.S = S, .P = P, .order = order, .offset = offset, .front = front
	};
	return CPA_OK;
}

/* Whole rows of P tokens give one span of width n; what is left of S one range behind it. */
static void add_stripes(const struct cpa_cut *cut, struct cpa_arena *arena, int first, int n,
	struct cpa_spans *list)
{
	const int64_t rows = cut->S / cut->P, done = rows * cut->P, rest = cut->S % cut->P;
	const int64_t end = first + n < rest ? first + n : rest;

	if (rows > 0)
		cpa_spans_append(arena, list, (struct cpa_span) { first, n, cut->P, rows });
	if (first < end)
		cpa_spans_append_range(
			arena, list, (struct cpa_range) { done + first, done + end });
}

struct cpa_spans cpa_cut_tokens(
	const struct cpa_cut *cut, struct cpa_arena *arena, int first, int n)
{
	struct cpa_spans list = { 0 };
	const int64_t *offset = cut->offset, *front = cut->front;
	const int last = first + n;

	assert(first >= 0 && n >= 0 && n <= cut->P && first <= cut->P - n);
	if (n == 0)
		return list;
	switch (cut->order) {
	case CPA_ORDER_CONTIGUOUS:
		cpa_spans_append_range(
			arena, &list, (struct cpa_range) { offset[first], offset[last] });
		break;
	case CPA_ORDER_ZIGZAG:
	case CPA_ORDER_ZIGZAG_DOCUMENTS: /* of one document */
		cpa_spans_append_range(
			arena, &list, (struct cpa_range) { front[first], front[last] });
		cpa_spans_append_range(arena, &list,
			(struct cpa_range) { cut->S - (offset[last] - front[last]),
				cut->S - (offset[first] - front[first]) });
		break;
	case CPA_ORDER_STRIPED:
		add_stripes(cut, arena, first, n, &list);
		break;
	}
	return list;
}

int64_t cpa_cut_size(const struct cpa_cut *cut, int shard)
{
	assert(shard >= 0 && shard < cut->P);
	return cut->offset[shard + 1] - cut->offset[shard];
}

enum cpa_status cpa_heads_cut(enum cpa_heads rule, int64_t Hq, int64_t Hkv, int U,
	const int64_t *given, int64_t *bounds, struct cpa_error *error)
{
	static const struct words words = { "Hq", "head counts", "ulysses ranks" };
	static const enum cpa_split splits[] = {
		[CPA_HEADS_BALANCED] = CPA_SPLIT_BALANCED,
		[CPA_HEADS_GROUPS] = CPA_SPLIT_BALANCED,
		[CPA_HEADS_CEIL] = CPA_SPLIT_CEIL,
		[CPA_HEADS_GIVEN] = CPA_SPLIT_GIVEN,
	};
	/* How many query heads stay together. */
	const int64_t unit = rule == CPA_HEADS_GROUPS ? Hq / Hkv : 1;
	enum cpa_status status;

	assert(Hkv >= 1 && Hq % Hkv == 0);
	status = split(&words, splits[rule], Hq / unit, U, given, bounds + 1, error);
	if (status != CPA_OK)
		return status;
	bounds[0] = 0;
	for (int u = 0; u < U; u++)
		bounds[u + 1] = bounds[u] + unit * bounds[u + 1];
	return CPA_OK;
}

struct cpa_range cpa_heads_kv(struct cpa_range h, int64_t g)
{
	const int64_t start = h.start / g;

	assert(g >= 1);
	return (struct cpa_range) { start, h.start >= h.end ? start : (h.end - 1) / g + 1 };
}

const char *cpa_split_name(enum cpa_split rule)
{
	static const char *const names[] = { "equal", "balanced", "ceil", "given" };

	return names[rule];
}

const char *cpa_order_name(enum cpa_order order)
{
	static const char *const names[] = { "contiguous", "zigzag", "striped", "zigzag_documents" };

	return names[order];
}

const char *cpa_heads_name(enum cpa_heads rule)
{
	static const char *const names[] = { "balanced", "groups", "ceil", "given" };

	return names[rule];
}
