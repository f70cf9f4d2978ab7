/*
 * check_inputs.c - what a recorded call is judged by: its inputs and full attention on them.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/check.h"

/* ---- declared arithmetic ---- */

static const struct {
	const char *name;
	double u, c_exp;
} arithmetics[CPA_NARITHMETICS] = {
	[CPA_ARITHMETIC_FP64] = {"fp64", 0x1p-53, 8},
	[CPA_ARITHMETIC_FP32] = {"fp32", 0x1p-24, 8},
	/* Tensor cores truncate.  Where weights are rounded to 16 bits, kernels take an exp to suit: of
	 * degree 3 is the coarsest in use, 1255 x 2^-24 off (PyTorch on CPUs: exp(0) is 1 + 5e-5). */
	[CPA_ARITHMETIC_TENSOR] = {"tensor", 0x1p-22, 1255.0 / 4},
	[CPA_ARITHMETIC_TF32] = {"tf32", 0x1p-11, 8},
};

const char *cpa_arithmetic_name(enum cpa_arithmetic_name name)
{
	return arithmetics[name].name;
}

bool cpa_arithmetic_parse(const char *text, enum cpa_arithmetic_name *name)
{
	for (int i = 0; i < CPA_NARITHMETICS; i++)
		if (strcmp(arithmetics[i].name, text) == 0) {
			*name = (enum cpa_arithmetic_name)i;
			return true;
		}
	return false;
}

enum cpa_arithmetic_name cpa_arithmetic_default(enum cpa_dtype dtype)
{
	return dtype == CPA_DTYPE_FP64	  ? CPA_ARITHMETIC_FP64
		: dtype == CPA_DTYPE_FP32 ? CPA_ARITHMETIC_FP32
					  : CPA_ARITHMETIC_TENSOR;
}

struct cpa_arithmetic cpa_arithmetic_of(enum cpa_arithmetic_name name, enum cpa_dtype dtype)
{
	return (struct cpa_arithmetic){.u = arithmetics[name].u,
		.c_exp = arithmetics[name].c_exp,
		.chain = 512,
		.chain_key = 1.0 / 512,
		.rounds_p = cpa_dtype_nbytes(dtype) == 2};
}

/* ---- inputs ---- */

static enum cpa_status read_inputs(struct cpa_checked *checked, struct cpa_recording *recording,
	int i, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	const struct cpa_problem *p = &checked->call->problem;
	enum cpa_status status = CPA_OK;
	for (int n = 0; n < 3 && status == CPA_OK; n++) {
		int64_t S = cpa_tensor_ntokens(p, tensors[n]);
		struct cpa_span all = {0, S, S, 1};
		struct cpa_spans tokens = {&all, 1, 1};
		checked->data[n] = malloc((size_t)(p->B * S) * cpa_token_nbytes(p, tensors[n]));
		if (!checked->data[n])
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory for %s",
				cpa_tensor_name(tensors[n]));
		status = cpa_recording_read(recording, i, cpa_tensor_name(tensors[n]),
			(struct cpa_range){0, p->B}, &tokens, p->dtype, checked->data[n], error);
	}
	checked->tensors = (struct cpa_tensors){
		p, checked->data[0], checked->data[1], checked->data[2]};
	return status == CPA_OK ? cpa_tensors_check(&checked->tensors, error) : status;
}

/* ---- which rows ---- */

/* Where a rank begins and ends, and where its pieces do, faults show first. */
static void want_ends(const struct cpa_call *call, bool *wanted)
{
	for (int n = 0; n < call->nheld; n++) {
		const struct cpa_held *held = &call->held[n];
		if (held->tensor[0] != 'o' && held->tensor[0] != 'l')
			continue;
		for (int64_t t = 0; t < held->ntokens; t++) {
			bool first = t == 0 || held->tokens[t] != held->tokens[t - 1] + 1;
			bool last = t + 1 == held->ntokens ||
				held->tokens[t + 1] != held->tokens[t] + 1;
			/* A striped rank is all ends. */
			bool ends = t == 0 || t + 1 == held->ntokens || !(first && last);
			if (held->tokens[t] >= 0 && (first || last) && ends)
				wanted[held->tokens[t]] = true;
		}
	}
}

/* ---- all of it ---- */

static enum cpa_status make_truth(
	struct cpa_checked *checked, int64_t rows, struct cpa_error *error)
{
	const struct cpa_problem *p = &checked->call->problem;
	bool *wanted;
	enum cpa_status status = cpa_truth_choose(p, rows, &wanted, error);
	if (status == CPA_OK) {
		if (wanted)
			want_ends(checked->call, wanted);
		status = cpa_truth_create(&checked->tensors, wanted, &checked->truth, error);
		free(wanted);
	}
	if (status == CPA_OK) {
		checked->index = malloc((size_t)p->Sq * sizeof *checked->index);
		if (!checked->index)
			return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
		for (int64_t t = 0; t < p->Sq; t++)
			checked->index[t] = -1;
		for (int64_t n = 0; n < checked->truth->n; n++)
			checked->index[checked->truth->tokens[n]] = n;
	}
	return status;
}

enum cpa_status cpa_checked_init(struct cpa_checked *checked, struct cpa_recording *recording,
	int i, int64_t rows, struct cpa_error *error)
{
	*checked = (struct cpa_checked){0};
	enum cpa_status status = cpa_recording_call(recording, i, &checked->call, error);
	if (status == CPA_OK)
		status = read_inputs(checked, recording, i, error);
	return status == CPA_OK ? make_truth(checked, rows, error) : status;
}

void cpa_checked_fini(struct cpa_checked *checked)
{
	for (int n = 0; n < 3; n++)
		free(checked->data[n]);
	cpa_truth_destroy(checked->truth);
	free(checked->index);
	*checked = (struct cpa_checked){0};
}
