/* problem.c - the sizes of an attention, whether they make sense, which keys a query sees. */
#include "ref/ref.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

static enum cpa_status check_sizes(const struct cpa_problem *problem, struct cpa_error *error)
{
	const struct {
		const char *key;
		int64_t value;
	} sizes[] = {
		{ "B", problem->B },
		{ "Sq", problem->Sq },
		{ "Skv", problem->Skv },
		{ "Hq", problem->Hq },
		{ "Hkv", problem->Hkv },
		{ "D", problem->D },
		{ "Dv", problem->Dv },
	};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		if (sizes[i].value < 1)
			return cpa_fail(error, CPA_INVALID,
				"%s = %" PRId64 ", expected 1 or more", sizes[i].key,
				sizes[i].value);
	}
	if (problem->Hq % problem->Hkv != 0)
		return cpa_fail(error, CPA_INVALID,
			"Hq = %" PRId64 " is not a multiple of Hkv = %" PRId64
			", expected the same number of query heads for each key head",
			problem->Hq, problem->Hkv);
	return CPA_OK;
}

/* Offsets in every array are computed in bytes of the widest dtype, and pairs are counted. */
static enum cpa_status check_products(
	const struct cpa_problem *problem, struct cpa_error *error)
{
	const struct {
		const char *what;
		int64_t factors[5];
	} products[] = {
		{ "bytes of q, B Sq Hq D 8",
			{ problem->B, problem->Sq, problem->Hq, problem->D, 8 } },
		{ "bytes of k, B Skv Hkv D 8",
			{ problem->B, problem->Skv, problem->Hkv, problem->D, 8 } },
		{ "bytes of v, B Skv Hkv Dv 8",
			{ problem->B, problem->Skv, problem->Hkv, problem->Dv, 8 } },
		{ "bytes of o, B Sq Hq Dv 8",
			{ problem->B, problem->Sq, problem->Hq, problem->Dv, 8 } },
		{ "pairs, B Sq Skv Hq",
			{ problem->B, problem->Sq, problem->Skv, problem->Hq, 1 } },
	};

	for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
		int64_t product = 1;

		for (int k = 0; k < 5; k++) {
			if (__builtin_mul_overflow(product, products[i].factors[k], &product))
				return cpa_fail(error, CPA_INVALID,
					"too large: %s, is more than 2^63 - 1, expected a "
					"product within 64 bits (B %" PRId64 ", Sq %" PRId64
					", Skv %" PRId64 ", Hq %" PRId64 ", Hkv %" PRId64
					", D %" PRId64 ", Dv %" PRId64 ")",
					products[i].what, problem->B, problem->Sq, problem->Skv,
					problem->Hq, problem->Hkv, problem->D, problem->Dv);
		}
	}
	return CPA_OK;
}

enum cpa_status cpa_problem_check(const struct cpa_problem *problem, struct cpa_error *error)
{
	/* far + Sq + 1 is within int64, as 8 Sq is. */
	const int64_t far = (int64_t) 1 << 61;
	enum cpa_status status;

	status = check_sizes(problem, error);
	if (status == CPA_OK)
		status = check_products(problem, error);
	if (status != CPA_OK)
		return status;
	if ((unsigned) problem->dtype > CPA_DTYPE_FP16)
		return cpa_fail(error, CPA_INVALID,
			"dtype number %d, expected fp64, fp32, bf16 or fp16",
			(int) problem->dtype);
	if (!isfinite(problem->scale) || problem->scale <= 0)
		return cpa_fail(error, CPA_INVALID,
			"scale = %g, expected a finite number above 0", problem->scale);
	if (problem->rule.causal && (problem->rule.offset < -far || problem->rule.offset > far))
		return cpa_fail(error, CPA_INVALID,
			"offset = %" PRId64
			", expected the position of query 0 on the key axis, within +-2^61",
			problem->rule.offset);
	return CPA_OK;
}

enum cpa_dtype cpa_problem_lse_dtype(const struct cpa_problem *problem)
{
	return problem->dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
}

struct cpa_range cpa_rule_row(const struct cpa_problem *problem, int64_t b, int64_t t)
{
	struct cpa_range keys = { 0, problem->Skv };

	assert(b >= 0 && b < problem->B && t >= 0 && t < problem->Sq);
	(void) b; /* no bound so far differs between batch items */
	if (problem->rule.causal) {
		const int64_t end = t + problem->rule.offset + 1;

		if (end < keys.end)
			keys.end = end > 0 ? end : 0;
	}
	return keys;
}

struct cpa_range cpa_rule_hull(const struct cpa_problem *problem, int64_t first, int64_t last)
{
	assert(first >= 0 && first <= last && last < problem->Sq);
	(void) first; /* causal rows are nested: the last one sees what any of them sees */
	return cpa_rule_row(problem, 0, last);
}
