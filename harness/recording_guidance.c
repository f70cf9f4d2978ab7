/*
 * recording_guidance.c - the branches along the batch of a call, and the scales that combine
 * them.
 */
#include "harness/recording_rules.h"

#include <math.h>
#include <string.h>

/* n values of guidance, 1 or 2; 0: the attribute is not there. */
static enum cpa_status read_scales(struct cpa_recording *recording, const char *call,
	double scales[2], int64_t *n, struct cpa_error *error)
{
	struct cpa_h5_array array;
	enum cpa_status status;

	*n = 0;
	if (!cpa_h5_attribute_exists(recording->file, call, "guidance"))
		return CPA_OK;
	status = cpa_h5_array_open(recording->file, call, "guidance", &array, error);
	if (status != CPA_OK)
		return status;
	if (array.class != CPA_H5_FLOAT)
		status = cpa_recording_refuse(error, array.where,
			"is of type %s; expected one float64, or "
			"two for three branches",
			array.type);
	else if (array.rank > 1 || array.count < 1 || array.count > 2)
		status = cpa_recording_refuse(error, array.where,
			"%lld values; expected one scale, or two "
			"for three branches",
			(long long)array.count);
	else
		status = cpa_h5_read_double(&array, scales, error);
	*n = array.count;
	cpa_h5_array_close(&array);
	return status;
}

/* Branches divide the batch; without the attribute there are two. */
static enum cpa_status check_branches(const struct cpa_recording_entry *entry, int64_t branches,
	bool present, struct cpa_error *error)
{
	const int64_t B = entry->call.problem.B;

	if (branches >= 2 && branches <= 3 && B % branches == 0)
		return CPA_OK;
	if (!present)
		return cpa_fail(error, CPA_INVALID,
			"%s@branches: missing, which means 2 where there is "
			"guidance, and the batch is %lld; expected a batch of branches, or no "
			"guidance",
			entry->where, (long long)B);
	return cpa_fail(error, CPA_INVALID,
		"%s@branches: is %lld with a batch of %lld; expected 2 or 3 "
		"branches that divide the batch",
		entry->where, (long long)branches, (long long)B);
}

enum cpa_status cpa_recording_guidance(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error)
{
	double scales[2] = {0, 0};
	int64_t nscales, branches = 2;
	bool present;
	enum cpa_status status = read_scales(recording, entry->where, scales, &nscales, error);

	if (status == CPA_OK)
		status = cpa_recording_integers(recording, entry->where, "branches", false, 1,
			&branches, &present, error);
	if (status != CPA_OK || (nscales == 0 && !present))
		return status;
	for (int64_t i = 0; i < nscales; i++)
		if (!isfinite(scales[i]))
			return cpa_fail(error, CPA_INVALID,
				"%s@guidance: is %g; expected a finite scale", entry->where,
				scales[i]);
	status = check_branches(entry, branches, present, error);
	if (status != CPA_OK)
		return status;
	if (nscales == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s@guidance: missing; %lld branches need the scale that "
			"combines them",
			entry->where, (long long)branches);
	if (nscales > branches - 1)
		return cpa_fail(error, CPA_INVALID,
			"%s@guidance: 2 values with 2 branches; expected one, or "
			"branches to be 3",
			entry->where);
	/* One number with three branches is both scales. */
	entry->call.guidance = (struct cpa_guidance){.nbranches = (int)branches, .s = scales[0]};
	if (branches == 3)
		entry->call.guidance.s2 = scales[nscales - 1];
	return CPA_OK;
}
