/*
 * test_rule.h - random rules for the tests of ref/, and the definition of what they mean.
 */
#ifndef CPA_REF_TEST_RULE_H
#define CPA_REF_TEST_RULE_H

#include "ref/ref.h"
#include "ref/test_sample.h"

#include <math.h>
#include <stdlib.h>

/* Which parts a random rule has. */
enum {
	RULE_CAUSAL = 1,
	RULE_WINDOW = 2,
	RULE_DOCUMENTS = 4, /* makes Skv = Sq */
	RULE_LENGTHS = 8,
	RULE_SINK = 16,
	RULE_BOOL = 32,
	RULE_BIAS = 64
};

/* The definition, each part by itself. */
static inline bool rule_shows(
	const struct cpa_problem *problem, int64_t b, int64_t t, int64_t j)
{
	const struct cpa_rule *rule = &problem->rule;
	int64_t distance = j - (t + rule->offset);

	if (rule->causal && distance > 0)
		return false;
	if (rule->window && rule->left != -1 && distance < -rule->left)
		return false;
	if (rule->window && rule->right != -1 && distance > rule->right)
		return false;
	if (rule->key_lengths && j >= rule->key_lengths[b])
		return false;
	for (int64_t i = 1; rule->documents && i < rule->ndocuments; i++)
		if ((t < rule->documents[i]) != (j < rule->documents[i]))
			return false;
	return true;
}

static inline int compare_starts(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static inline int64_t *random_documents(struct cpa_arena *arena, int64_t S, int64_t n)
{
	int64_t *starts = cpa_arena_alloc(arena, (size_t)(n + 1) * sizeof(*starts));

	assert_non_null(starts);
	for (int64_t i = 1; i < n; i++)
		starts[i] = rng_below(S + 1);
	starts[n] = S;
	qsort(starts, (size_t)n + 1, sizeof(*starts), compare_starts);
	return starts;
}

static inline int64_t random_side(int64_t S)
{
	static const int64_t wide[] = { -1, 0, INT64_MAX, (int64_t)1 << 61 };
	int64_t i = rng_below(12);

	return i < 4 ? wide[i] : rng_below(S);
}

/* A mask of one of the 16 broadcast shapes: bit 0 of shape is the key axis, bit 3 the batch.  Now
 * and then a whole row is hidden. */
static inline void random_mask(
	struct cpa_arena *arena, struct cpa_problem *problem, bool bias, int shape)
{
	int64_t K = shape & 1 ? problem->Skv : 1, Q = shape & 2 ? problem->Sq : 1;
	int64_t H = shape & 4 ? problem->Hq : 1, B = shape & 8 ? problem->B : 1;
	struct cpa_mask *mask = &problem->rule.mask;
	char *data = cpa_arena_alloc(arena, (size_t)(B * H * Q * K) * 8);

	assert_non_null(data);
	*mask = (struct cpa_mask){ .kind = bias ? CPA_MASK_BIAS : CPA_MASK_BOOL,
		.dtype = CPA_DTYPE_FP32,
		.data = data,
		.batch = shape & 8 ? H * Q * K : 0,
		.head = shape & 4 ? Q * K : 0,
		.query = shape & 2 ? K : 0,
		.key = shape & 1 ? 1 : 0 };
	if (bias && problem->dtype == CPA_DTYPE_FP64 && rng_below(2))
		mask->dtype = CPA_DTYPE_FP64;
	for (int64_t row = 0; row < B * H * Q; row++) {
		bool empty = rng_below(7) == 0;

		for (int64_t j = 0; j < K; j++) {
			bool hidden = empty || rng_below(4) == 0;

			if (bias)
				cpa_store(mask->dtype, data, row * K + j,
					hidden ? -INFINITY : 3.0 * rng_value());
			else
				data[row * K + j] = hidden ? 0 : (char)(1 + rng_below(255));
		}
	}
}

static inline void random_rule(
	struct cpa_arena *arena, struct cpa_problem *problem, int parts, int shape)
{
	struct cpa_rule *rule = &problem->rule;
	int64_t *lengths;
	double *sink;

	if (parts & RULE_DOCUMENTS)
		problem->Skv = problem->Sq;
	*rule = (struct cpa_rule){
		.causal = parts & RULE_CAUSAL, .window = parts & RULE_WINDOW
	};
	rule->offset = rng_below(3) ? rng_below(3 * problem->Skv) - problem->Skv : 0;
	rule->left = random_side(problem->Skv);
	rule->right = random_side(problem->Skv);
	if (parts & RULE_DOCUMENTS) {
		rule->ndocuments = 1 + rng_below(problem->Sq + 2);
		rule->documents = random_documents(arena, problem->Sq, rule->ndocuments);
	}
	if (parts & RULE_LENGTHS) {
		rule->key_lengths = lengths =
			cpa_arena_alloc(arena, (size_t)problem->B * sizeof(*lengths));
		for (int64_t b = 0; b < problem->B; b++)
			lengths[b] = rng_below(4) ? rng_below(problem->Skv + 1) : 0;
	}
	if (parts & RULE_SINK) {
		rule->sink = sink = cpa_arena_alloc(arena, (size_t)problem->Hq * sizeof(*sink));
		for (int64_t h = 0; h < problem->Hq; h++)
			sink[h] = 4.0 * rng_value();
	}
	if (parts & (RULE_BOOL | RULE_BIAS))
		random_mask(arena, problem, parts & RULE_BIAS, shape);
}

#endif
