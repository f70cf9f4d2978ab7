/*
 * rope.c - rotary position embedding, by global position.
 *
 * Each pair of features is turned by its own angle.  Nothing is kept from one token to the next: a
 * running product of rotations, or positions counted from the start of a shard, is what this is there to
 * find out.
 */
#include "ref/ref.h"

#include <assert.h>
#include <math.h>

/* Where the two elements of pair i stand in a row. */
static int64_t first_of(const struct cpa_rope *rope, int64_t i)
{
	return rope->pairs == CPA_ROPE_HALF ? i : 2 * i;
}

static int64_t second_of(const struct cpa_rope *rope, int64_t i)
{
	return rope->pairs == CPA_ROPE_HALF ? i + rope->D / 2 : 2 * i + 1;
}

static double angle_of(const struct cpa_rope *rope, int64_t position, int64_t i)
{
	return (double)position * pow(rope->base, -2.0 * (double)i / (double)rope->D);
}

void cpa_ref_rope(const struct cpa_rope *rope, int64_t position, int64_t nrows, enum cpa_dtype dtype,
	void *x)
{
	assert(rope->D > 0 && rope->D % 2 == 0);
	for (int64_t i = 0; i < rope->D / 2; i++) {
		const double angle = angle_of(rope, position, i), c = cos(angle), s = sin(angle);

		for (int64_t row = 0; row < nrows; row++) {
			const int64_t a = row * rope->D + first_of(rope, i);
			const int64_t b = row * rope->D + second_of(rope, i);
			const double x_a = cpa_load(dtype, x, a), x_b = cpa_load(dtype, x, b);

			cpa_store(dtype, x, a, x_a * c - x_b * s);
			cpa_store(dtype, x, b, x_a * s + x_b * c);
		}
	}
}

void cpa_ref_rope_array(const struct cpa_rope *rope, const int64_t *positions, int64_t B, int64_t S,
	int64_t H, enum cpa_dtype dtype, void *x)
{
	const size_t token = (size_t)(H * rope->D) * cpa_dtype_nbytes(dtype);
	char *at = x;

	for (int64_t b = 0; b < B; b++)
		for (int64_t t = 0; t < S; t++, at += token)
			cpa_ref_rope(rope, positions[t], H, dtype, at);
}
