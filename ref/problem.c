/* problem.c - whether the sizes and the rule of an attention make sense. */
#include "ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

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

static enum cpa_status check_positions(const struct cpa_rule *rule, struct cpa_error *error)
{
	/* far + Sq + 1 is within int64, as 8 Sq is. */
	const int64_t far = (int64_t) 1 << 61;

	if ((rule->causal || rule->window) && (rule->offset < -far || rule->offset > far))
		return cpa_fail(error, CPA_INVALID,
			"offset = %" PRId64
			", expected the position of query 0 on the key axis, within +-2^61",
			rule->offset);
	if (rule->window && (rule->left < -1 || rule->right < -1))
		return cpa_fail(error, CPA_INVALID,
			"window = (%" PRId64 ", %" PRId64 "), expected the keys seen to the left "
			"and to the right of a query, 0 or more, or -1 for no bound",
			rule->left, rule->right);
	return CPA_OK;
}

static enum cpa_status check_documents(
	const struct cpa_problem *problem, struct cpa_error *error)
{
	const int64_t *starts = problem->rule.documents, n = problem->rule.ndocuments;

	if (starts == NULL)
		return CPA_OK;
	if (problem->Sq != problem->Skv)
		return cpa_fail(error, CPA_INVALID,
			"documents with Sq = %" PRId64 " and Skv = %" PRId64
			", expected Sq = Skv: a document holds the same queries and keys",
			problem->Sq, problem->Skv);
	if (n < 1)
		return cpa_fail(error, CPA_INVALID,
			"documents: there are %" PRId64 ", expected 1 or more", n);
	if (starts[0] != 0)
		return cpa_fail(error, CPA_INVALID,
			"documents[0] = %" PRId64 ", expected 0, where the first one starts",
			starts[0]);
	for (int64_t i = 1; i <= n; i++) {
		if (starts[i] < starts[i - 1])
			return cpa_fail(error, CPA_INVALID,
				"documents[%" PRId64 "] = %" PRId64 " after %" PRId64
				", expected starts that never descend",
				i, starts[i], starts[i - 1]);
	}
	if (starts[n] != problem->Sq)
		return cpa_fail(error, CPA_INVALID,
			"documents[%" PRId64 "] = %" PRId64 ", expected S = %" PRId64
			", where the last one ends",
			n, starts[n], problem->Sq);
	return CPA_OK;
}

static enum cpa_status check_key_lengths(
	const struct cpa_problem *problem, struct cpa_error *error)
{
	const int64_t *lengths = problem->rule.key_lengths;

	for (int64_t b = 0; lengths != NULL && b < problem->B; b++) {
		if (lengths[b] < 0 || lengths[b] > problem->Skv)
			return cpa_fail(error, CPA_INVALID,
				"key_lengths[%" PRId64 "] = %" PRId64
				", expected 0 to Skv = %" PRId64,
				b, lengths[b], problem->Skv);
	}
	return CPA_OK;
}

/* Elements are looked at by cpa_ref_check_inputs(), once for all configurations. */
static enum cpa_status check_mask(const struct cpa_problem *problem, struct cpa_error *error)
{
	const struct cpa_mask *mask = &problem->rule.mask;
	const struct {
		const char *axis;
		int64_t stride, size;
	} axes[] = {
		{ "batch", mask->batch, problem->B },
		{ "head", mask->head, problem->Hq },
		{ "query", mask->query, problem->Sq },
		{ "key", mask->key, problem->Skv },
	};
	int64_t last = 1, step;

	if (mask->kind == CPA_MASK_NONE)
		return CPA_OK;
	if (mask->kind != CPA_MASK_BOOL && mask->kind != CPA_MASK_BIAS)
		return cpa_fail(error, CPA_INVALID,
			"mask kind number %d, expected none, bool or bias", (int) mask->kind);
	if (mask->kind == CPA_MASK_BIAS && mask->dtype != CPA_DTYPE_FP32 &&
		(mask->dtype != CPA_DTYPE_FP64 || problem->dtype != CPA_DTYPE_FP64))
		return cpa_fail(error, CPA_INVALID,
			"mask: a bias of dtype number %d in a problem in %s, expected fp32%s",
			(int) mask->dtype, cpa_dtype_name(problem->dtype),
			problem->dtype == CPA_DTYPE_FP64 ? " or fp64" : "");
	if (mask->data == NULL)
		return cpa_fail(error, CPA_INVALID,
			"mask without data, expected an array that broadcasts to "
			"[B, Hq, Sq, Skv]");
	for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
		if (axes[i].stride < 0)
			return cpa_fail(error, CPA_INVALID,
				"mask: the stride of a %s is %" PRId64
				", expected 0 (broadcast) or more",
				axes[i].axis, axes[i].stride);
		if (__builtin_mul_overflow(axes[i].size - 1, axes[i].stride, &step) ||
			__builtin_add_overflow(last, step, &last) || last > INT64_MAX / 8)
			return cpa_fail(error, CPA_INVALID,
				"mask: too large at the stride of a %s, %" PRId64
				", expected bytes within 64 bits",
				axes[i].axis, axes[i].stride);
	}
	return CPA_OK;
}

/* A sink is a score: finite in what scores are computed in. */
static enum cpa_status check_sink(const struct cpa_problem *problem, struct cpa_error *error)
{
	const double limit = problem->dtype == CPA_DTYPE_FP64 ? 1e308 : 3e38;
	const double *sink = problem->rule.sink;

	for (int64_t h = 0; sink != NULL && h < problem->Hq; h++) {
		if (!(fabs(sink[h]) <= limit))
			return cpa_fail(error, CPA_INVALID,
				"sink[%" PRId64 "] = %g, expected a finite logit, within +-%g",
				h, sink[h], limit);
	}
	return CPA_OK;
}

static enum cpa_status check_rule(const struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status status = check_positions(&problem->rule, error);

	if (status == CPA_OK)
		status = check_documents(problem, error);
	if (status == CPA_OK)
		status = check_key_lengths(problem, error);
	if (status == CPA_OK)
		status = check_mask(problem, error);
	if (status == CPA_OK)
		status = check_sink(problem, error);
	return status;
}

static enum cpa_status check_segments(const char *name, const struct cpa_segment *segments, int n,
	const char *length_name, int64_t length, struct cpa_error *error)
{
	int64_t sum = 0;

	for (int i = 0; segments && i < n; i++) {
		if (segments[i].length < 0)
			return cpa_fail(error, CPA_INVALID,
				"%s: the length of %s is %" PRId64 ", expected 0 or more", name,
				segments[i].name, segments[i].length);
		if (__builtin_add_overflow(sum, segments[i].length, &sum))
			return cpa_fail(error, CPA_INVALID, "%s: lengths add up to more than 2^63 - 1", name);
	}
	if (segments && sum != length)
		return cpa_fail(error, CPA_INVALID,
			"%s: %d lengths add up to %" PRId64 ", expected %s = %" PRId64, name, n, sum,
			length_name, length);
	return CPA_OK;
}

/* Of q, k and v in one array; each alone has been found to fit, so that the heads do too. */
static enum cpa_status check_layout(const struct cpa_problem *problem, struct cpa_error *error)
{
	int64_t product = 8 * (problem->Hq + 2 * problem->Hkv);

	if ((unsigned) problem->layout > CPA_LAYOUT_FUSED || problem->layout == CPA_LAYOUT_SBHD)
		return cpa_fail(error, CPA_INVALID,
			"layout number %d, expected BSHD, BHSD or fused", (int) problem->layout);
	if (problem->layout == CPA_LAYOUT_FUSED &&
		(__builtin_mul_overflow(product, problem->B, &product) ||
			__builtin_mul_overflow(product, problem->Sq, &product) ||
			__builtin_mul_overflow(product, problem->D, &product)))
		return cpa_fail(error, CPA_INVALID,
			"too large: bytes of q, k and v in one array, B Sq (Hq + 2 Hkv) D 8, is "
			"more than 2^63 - 1, expected a product within 64 bits");
	return CPA_OK;
}

enum cpa_status cpa_problem_check(const struct cpa_problem *problem, struct cpa_error *error)
{
	enum cpa_status status;

	status = check_sizes(problem, error);
	if (status == CPA_OK)
		status = check_products(problem, error);
	if (status == CPA_OK)
		status = check_layout(problem, error);
	if (status != CPA_OK)
		return status;
	if ((unsigned) problem->dtype > CPA_DTYPE_FP16)
		return cpa_fail(error, CPA_INVALID,
			"dtype number %d, expected fp64, fp32, bf16 or fp16",
			(int) problem->dtype);
	if (!isfinite(problem->scale) || problem->scale <= 0)
		return cpa_fail(error, CPA_INVALID,
			"scale = %g, expected a finite number above 0", problem->scale);
	if (problem->segments_kv && problem->Sq == problem->Skv)
		return cpa_fail(error, CPA_INVALID,
			"segments_kv with Sq = Skv = %" PRId64 ", expected segments alone, which describe "
			"both",
			problem->Sq);
	status = check_segments("segments", problem->segments, problem->nsegments, "Sq", problem->Sq,
		error);
	if (status == CPA_OK)
		status = check_segments("segments_kv", problem->segments_kv, problem->nsegments_kv, "Skv",
			problem->Skv, error);
	return status == CPA_OK ? check_rule(problem, error) : status;
}

const char *cpa_layout_name(enum cpa_layout layout)
{
	static const char *const names[] = { "BSHD", "SBHD", "BHSD", "fused" };

	return (unsigned) layout < sizeof names / sizeof *names ? names[layout] : "none";
}

enum cpa_dtype cpa_problem_lse_dtype(const struct cpa_problem *problem)
{
	return problem->dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
}

const struct cpa_segment *cpa_problem_segments(const struct cpa_problem *problem, bool keys,
	struct cpa_segment *whole, int *n)
{
	bool self = problem->Sq == problem->Skv;

	*n = keys && !self ? problem->nsegments_kv : problem->nsegments;
	if (keys && !self && problem->segments_kv)
		return problem->segments_kv;
	if ((!keys || self) && problem->segments)
		return problem->segments;
	*n = 1;
	*whole = (struct cpa_segment){ .length = keys ? problem->Skv : problem->Sq };
	return whole;
}

int cpa_problem_nsplit(const struct cpa_problem *problem, bool keys)
{
	struct cpa_segment whole;
	int n, count = 0;
	const struct cpa_segment *at = cpa_problem_segments(problem, keys, &whole, &n);

	for (int i = 0; i < n; i++)
		count += !at[i].replicated;
	return count;
}

void cpa_problem_print_split(const struct cpa_problem *problem, bool keys, char *text, size_t size)
{
	struct cpa_segment whole;
	int n, count = cpa_problem_nsplit(problem, keys), seen = 0;
	const struct cpa_segment *at = cpa_problem_segments(problem, keys, &whole, &n);
	size_t used = (size_t) snprintf(text, size, "%d split segment%s of %s", count,
		count == 1 ? "" : "s", keys ? "keys" : "queries");

	for (int i = 0; i < n && used < size; i++) {
		if (at[i].replicated || at[i].name[0] == '\0')
			continue;
		if (seen++ == 4) {
			used += (size_t) snprintf(text + used, size - used, ", ...");
			break;
		}
		used += (size_t) snprintf(text + used, size - used, "%s%.20s",
			seen > 1 ? ", " : " (", at[i].name);
	}
	if (seen > 0 && used < size)
		snprintf(text + used, size - used, ")");
}
