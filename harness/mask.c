/*
 * mask.c - copies of dense masks, element by element.
 */
#include "harness/mask.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static int64_t extent(int64_t stride, int64_t full)
{
	return stride == 0 ? 1 : full;
}

static void store(const struct cpa_mask *copy, void *data, int64_t i, double value)
{
	if (copy->kind == CPA_MASK_BOOL) {
		((uint8_t *)data)[i] = value != -INFINITY;
		return;
	}
	double most = cpa_dtype_max(copy->dtype);
	if (isfinite(value))
		value = fmax(-most, fmin(most, value));
	cpa_store(copy->dtype, data, i, value);
}

enum cpa_status cpa_mask_copy(const struct cpa_problem *problem, enum cpa_mask_kind kind,
	enum cpa_dtype dtype, struct cpa_mask *copy, void **data, struct cpa_error *error)
{
	const struct cpa_mask *from = &problem->rule.mask;
	assert(from->kind != CPA_MASK_NONE && kind != CPA_MASK_NONE);
	int64_t nb = extent(from->batch, problem->B), nh = extent(from->head, problem->Hq);
	int64_t nt = extent(from->query, problem->Sq), nj = extent(from->key, problem->Skv);
	struct cpa_mask made = {.kind = kind, .dtype = dtype};
	size_t e = kind == CPA_MASK_BOOL ? 1 : cpa_dtype_nbytes(dtype);
	void *to = malloc((size_t)(nb * nh * nt * nj) * e);
	if (!to)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a copy of the mask");
	made.data = to;
	made.key = from->key ? 1 : 0;
	made.query = from->query ? nj : 0;
	made.head = from->head ? nt * nj : 0;
	made.batch = from->batch ? nh * nt * nj : 0;
	int64_t at = 0;
	for (int64_t b = 0; b < nb; b++)
		for (int64_t h = 0; h < nh; h++)
			for (int64_t t = 0; t < nt; t++)
				for (int64_t j = 0; j < nj; j++)
					store(&made, to, at++,
						cpa_mask_value(problem, b, h, t, j));
	*copy = made;
	*data = to;
	return CPA_OK;
}
