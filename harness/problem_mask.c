/*
 * problem_mask.c - dense masks that anyone can make: "bool:1x1x1xK:3".
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/parse.h"
#include "harness/problem_rule.h"
#include "sim/sim.h"

enum { NAXES = 4, MAX_NBYTES = 1 << 28, HIDDEN_BOOL = 5, HIDDEN_BIAS = 8 };

static const char what[] = "--problem mask";

/* What the text asks for. */
struct asked {
	enum cpa_mask_kind kind;
	uint64_t seed;
	int64_t extent[NAXES]; /* 1 where it is broadcast */
};

/* ---- reading ----------------------------------------------------------------------------- */

/* "1xHx1xK" [n] */
static bool read_shape(const char *text, size_t n, const struct cpa_problem *p,
	struct asked *asked)
{
	static const char letters[] = "BHQK";
	const int64_t full[NAXES] = { p->B, p->Hq, p->Sq, p->Skv };

	if (n != 2 * NAXES - 1)
		return false;
	for (int i = 0; i < NAXES; i++) {
		if ((text[2 * i] != '1' && text[2 * i] != letters[i]) ||
			(i > 0 && text[2 * i - 1] != 'x'))
			return false;
		asked->extent[i] = text[2 * i] == '1' ? 1 : full[i];
	}
	return true;
}

static enum cpa_status read_text(const char *text, const struct cpa_problem *p,
	struct asked *asked, struct cpa_error *error)
{
	const char *shape = strchr(text, ':'), *seed = shape ? strchr(shape + 1, ':') : NULL;

	if (strcmp(text, "file") == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s: file stands for the mask of a recording; name the recording in place "
			"of --problem",
			what);
	if (strncmp(text, "bool:", 5) == 0)
		asked->kind = CPA_MASK_BOOL;
	else if (strncmp(text, "bias:", 5) == 0)
		asked->kind = CPA_MASK_BIAS;
	if (asked->kind == CPA_MASK_NONE || !seed)
		return cpa_fail(error, CPA_INVALID,
			"%s: '%.60s' is not bool:SHAPE:SEED or bias:SHAPE:SEED, such as "
			"bool:1x1x1xK:1",
			what, text);
	if (!read_shape(shape + 1, (size_t)(seed - shape - 1), p, asked))
		return cpa_fail(error, CPA_INVALID,
			"%s: '%.*s' is no shape; expected B or 1, H or 1, Q or 1, K or 1 with x "
			"between, such as 1x1x1xK",
			what, seed - shape - 1 < 60 ? (int)(seed - shape - 1) : 60, shape + 1);
	return cpa_parse_seed("--problem mask, its seed", seed + 1, &asked->seed, error);
}

/* ---- making ------------------------------------------------------------------------------ */

/* A state for the numbers of one place, whatever the sizes. */
static uint64_t step(uint64_t state, int64_t index)
{
	state ^= (uint64_t)index;
	return cpa_random(&state);
}

/* One row of keys: number `row` of the dense array. */
static void fill_row(const struct asked *asked, const struct cpa_problem *p,
	const struct cpa_mask *mask, void *data, int64_t row)
{
	const int64_t n = asked->extent[3], t = row % asked->extent[2];
	const int64_t h = row / asked->extent[2] % asked->extent[1];
	const int64_t b = row / asked->extent[2] / asked->extent[1];
	const uint64_t state = step(step(step(step(0, (int64_t)asked->seed), b), h), t);
	/* Another seed than that of the tensors, which may be the same number. */
	const uint64_t seed = step(asked->seed, asked->kind);

	for (int64_t j = 0; j < n; j++) {
		const uint64_t bits = step(state, j);

		if (mask->kind == CPA_MASK_BOOL)
			((uint8_t *)data)[row * n + j] = bits % HIDDEN_BOOL != 0;
		else
			cpa_store(mask->dtype, data, row * n + j,
				bits % HIDDEN_BIAS == 0 ? -INFINITY
							: cpa_fill_value(CPA_FILL_NORMAL, p,
								  seed, 'k', b, t, h, j));
	}
}

/* The text that made it, in its shortest form: an axis of one element is 1. */
static const char *describe(const struct asked *asked, struct cpa_arena *arena)
{
	enum { SIZE = 48 };
	char *text = cpa_arena_alloc(arena, SIZE);

	if (text)
		snprintf(text, SIZE, "%s:%sx%sx%sx%s:%" PRIu64,
			asked->kind == CPA_MASK_BOOL ? "bool" : "bias",
			asked->extent[0] > 1 ? "B" : "1", asked->extent[1] > 1 ? "H" : "1",
			asked->extent[2] > 1 ? "Q" : "1", asked->extent[3] > 1 ? "K" : "1",
			asked->seed);
	return text;
}

/* False when the elements take more than a mask may. */
static bool count(const struct asked *asked, int64_t element, int64_t *n)
{
	*n = 1;
	for (int i = 0; i < NAXES; i++) {
		if (asked->extent[i] > MAX_NBYTES / element / *n)
			return false;
		*n *= asked->extent[i];
	}
	return true;
}

static void set_strides(const struct asked *asked, struct cpa_mask *mask)
{
	int64_t *const strides[NAXES] = { &mask->batch, &mask->head, &mask->query, &mask->key };
	int64_t stride = 1;

	for (int i = NAXES - 1; i >= 0; i--) {
		*strides[i] = asked->extent[i] > 1 ? stride : 0;
		stride *= asked->extent[i];
	}
}

enum cpa_status cpa_mask_parse(const char *text, struct cpa_arena *arena,
	struct cpa_problem *problem, struct cpa_error *error)
{
	struct asked asked = { .kind = CPA_MASK_NONE };
	struct cpa_mask mask = { .dtype = problem->dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64
									   : CPA_DTYPE_FP32 };
	enum cpa_status status = read_text(text, problem, &asked, error);
	int64_t element, n;
	void *data;

	if (status != CPA_OK)
		return status;
	mask.kind = asked.kind;
	element = mask.kind == CPA_MASK_BOOL ? 1 : (int64_t)cpa_dtype_nbytes(mask.dtype);
	if (!count(&asked, element, &n))
		return cpa_fail(error, CPA_INVALID,
			"%s: '%.60s' takes more than %d bytes; write 1 for an axis along which it "
			"need not change",
			what, text, (int)MAX_NBYTES);
	set_strides(&asked, &mask);
	data = cpa_arena_alloc(arena, (size_t)(n * element));
	mask.made = describe(&asked, arena);
	if (!data || !mask.made)
		return cpa_fail(error, CPA_NO_MEMORY, "%s: out of memory", what);
#ifdef _OPENMP
#pragma omp parallel for
#endif
	for (int64_t row = 0; row < n / asked.extent[3]; row++)
		fill_row(&asked, problem, &mask, data, row);
	mask.data = data;
	problem->rule.mask = mask;
	return CPA_OK;
}
