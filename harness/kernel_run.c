/*
 * kernel_run.c - ATTEND, MERGE and COPY on arrays of their own.
 */
#include "harness/kernel_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/inputs.h"
#include "harness/judge.h"
#include "harness/peak.h"
#include "harness/verify.h"

enum { CHECKED_ROWS = 16, SEED = 1 };
static const double least_seconds = 1e-3; /* of one measurement */

const char *cpa_kernel_name(enum cpa_kernel_kind kind)
{
	static const char *const names[] = {"attend", "merge", "copy", "transpose"};
	return names[kind];
}

/* ---- arrays ---- */

static enum cpa_status alloc(struct cpa_kernel *k, int i, size_t nbytes, struct cpa_error *error)
{
	return k->device->ops->alloc(k->device, nbytes, &k->memory[i], error);
}

/* memory[i] as [B, S, H, dim]. */
static struct cpa_array dense(const struct cpa_kernel *k, int i, enum cpa_dtype dtype, int64_t S,
	int64_t H, int64_t dim)
{
	return (struct cpa_array){.data = k->memory[i],
		.dtype = dtype,
		.token = H * dim,
		.batch = S * H * dim,
		.head = dim};
}

static size_t tensor_nbytes(const struct cpa_problem *p, enum cpa_tensor tensor)
{
	return (size_t)(p->B * cpa_tensor_ntokens(p, tensor)) * cpa_token_nbytes(p, tensor);
}

static enum cpa_status fill(
	struct cpa_kernel *k, int i, enum cpa_tensor tensor, struct cpa_error *error)
{
	size_t nbytes = tensor_nbytes(&k->problem, tensor);
	void *data = malloc(nbytes);
	enum cpa_status status = data ? alloc(k, i, nbytes, error)
				      : cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	if (status == CPA_OK) {
		cpa_inputs_fill(&k->problem, CPA_FILL_NORMAL, SEED, tensor, data);
		status = k->device->ops->upload(k->device, k->memory[i], data, nbytes, error);
	}
	free(data);
	return status;
}

static double npairs(const struct cpa_problem *p)
{
	double n = 0;
	for (int64_t b = 0; b < p->B; b++)
		for (int64_t t = 0; t < p->Sq; t++) {
			struct cpa_range row = cpa_rule_row(p, b, t);
			n += (double)(row.end - row.start);
		}
	return n * (double)p->Hq;
}

static enum cpa_status make_attend(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_problem *p = &k->problem;
	enum cpa_dtype lse = cpa_problem_lse_dtype(p);
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 3 && status == CPA_OK; i++)
		status = fill(k, i, (enum cpa_tensor)(CPA_TENSOR_Q + i), error);
	for (int i = 3; i < 5 && status == CPA_OK; i++)
		status = alloc(
			k, i, tensor_nbytes(p, (enum cpa_tensor)(CPA_TENSOR_Q + i)), error);
	k->q_span = (struct cpa_span){0, p->Sq, p->Sq, 1};
	k->k_span = (struct cpa_span){0, p->Skv, p->Skv, 1};
	k->attend = (struct cpa_attend){.problem = &k->problem,
		.q = dense(k, 0, p->dtype, p->Sq, p->Hq, p->D),
		.k = dense(k, 1, p->dtype, p->Skv, p->Hkv, p->D),
		.v = dense(k, 2, p->dtype, p->Skv, p->Hkv, p->Dv),
		.o = dense(k, 3, p->dtype, p->Sq, p->Hq, p->Dv),
		.lse = dense(k, 4, lse, p->Sq, p->Hq, 1),
		.nq = p->Sq,
		.nk = p->Skv,
		.batches = {0, p->B},
		.heads = {0, p->Hq},
		.q_tokens = {&k->q_span, 1, 1},
		.k_tokens = {&k->k_span, 1, 1}};
	k->flop = 2.0 * (double)(p->D + p->Dv) * npairs(p);
	for (int i = 0; i < 5; i++)
		k->bytes += (double)tensor_nbytes(p, (enum cpa_tensor)(CPA_TENSOR_Q + i));
	return status;
}

/* Partials are fp32: element i of o is a fraction, of lse a number between 0 and 3. */
static double partial_value(int side, int64_t i)
{
	return (double)((i * 37 + side * 11) % 97) / 64;
}

static enum cpa_dtype partial_dtype(const struct cpa_problem *p)
{
	return p->dtype == CPA_DTYPE_FP64 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
}

static enum cpa_status fill_partial(
	struct cpa_kernel *k, int i, int side, int64_t n, struct cpa_error *error)
{
	enum cpa_dtype dtype = partial_dtype(&k->problem);
	size_t nbytes = (size_t)n * cpa_dtype_nbytes(dtype);
	void *data = malloc(nbytes);
	enum cpa_status status = CPA_OK;
	if (!data)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t e = 0; e < n; e++)
		cpa_store(dtype, data, e, partial_value(side, e));
	if (!k->memory[i])
		status = alloc(k, i, nbytes, error);
	if (status == CPA_OK)
		status = k->device->ops->upload(k->device, k->memory[i], data, nbytes, error);
	free(data);
	return status;
}

static enum cpa_status fill_partials(struct cpa_kernel *k, struct cpa_error *error)
{
	int64_t nrows = k->problem.B * k->problem.Sq * k->problem.Hq;
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 4 && status == CPA_OK; i++)
		status = fill_partial(k, i, i / 2, i % 2 ? nrows : nrows * k->problem.Dv, error);
	return status;
}

static enum cpa_status make_merge(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_problem *p = &k->problem;
	enum cpa_dtype dtype = partial_dtype(p);
	enum cpa_status status = fill_partials(k, error);
	k->merge = (struct cpa_merge){.o_a = dense(k, 0, dtype, p->Sq, p->Hq, p->Dv),
		.lse_a = dense(k, 1, dtype, p->Sq, p->Hq, 1),
		.o_b = dense(k, 2, dtype, p->Sq, p->Hq, p->Dv),
		.lse_b = dense(k, 3, dtype, p->Sq, p->Hq, 1),
		.ntokens = p->Sq,
		.nbatches = p->B,
		.nheads = p->Hq,
		.dim = p->Dv};
	k->bytes = 3.0 * (double)(p->B * p->Sq * p->Hq * (p->Dv + 1)) *
		(double)cpa_dtype_nbytes(dtype);
	return status;
}

static enum cpa_status make_copy(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_problem *p = &k->problem;
	size_t nbytes = tensor_nbytes(p, CPA_TENSOR_Q);
	enum cpa_status status = fill(k, 0, CPA_TENSOR_Q, error);
	if (status == CPA_OK)
		status = alloc(k, 1, nbytes, error);
	k->copy = (struct cpa_copy){.src = dense(k, 0, p->dtype, p->Sq, p->Hq, p->D),
		.dst = dense(k, 1, p->dtype, p->Sq, p->Hq, p->D),
		.ntokens = p->Sq,
		.nbatches = p->B,
		.nheads = p->Hq,
		.dim = p->D};
	if (k->kind == CPA_KERNEL_TRANSPOSE) {
		k->copy.dst.token = p->D;
		k->copy.dst.head = p->Sq * p->D;
	}
	k->bytes = 2.0 * (double)nbytes;
	return status;
}

enum cpa_status cpa_kernel_create(struct cpa_kernel *kernel, struct cpa_device *device,
	enum cpa_kernel_kind kind, const struct cpa_problem *problem, struct cpa_error *error)
{
	*kernel = (struct cpa_kernel){
		.kind = kind, .problem = *problem, .device = device, .ncalls = 1};
	kernel->problem.lse = true;
	enum cpa_status status = device->ops->supports(device, problem, error);
	if (status != CPA_OK)
		return status;
	return kind == CPA_KERNEL_ATTEND   ? make_attend(kernel, error)
		: kind == CPA_KERNEL_MERGE ? make_merge(kernel, error)
					   : make_copy(kernel, error);
}

void cpa_kernel_destroy(struct cpa_kernel *kernel)
{
	for (int i = 0; i < 5; i++)
		if (kernel->memory[i])
			kernel->device->ops->free(kernel->device, kernel->memory[i]);
}

/* ---- calls ---- */

static enum cpa_status call(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_device_ops *ops = k->device->ops;
	switch (k->kind) {
	case CPA_KERNEL_ATTEND:
		return ops->attend(k->device, 0, &k->attend, error);
	case CPA_KERNEL_MERGE:
		return ops->merge(k->device, 0, &k->merge, error);
	default:
		return ops->copy(k->device, 0, &k->copy, error);
	}
}

static enum cpa_status time_calls(
	struct cpa_kernel *k, int ncalls, double *seconds, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	double start = cpa_now();
	for (int i = 0; i < ncalls && status == CPA_OK; i++)
		status = call(k, error);
	*seconds = (cpa_now() - start) / ncalls;
	return status;
}

enum cpa_status cpa_kernel_time(
	struct cpa_kernel *kernel, double *seconds, struct cpa_error *error)
{
	return time_calls(kernel, kernel->ncalls, seconds, error);
}

/* ---- checks ---- */

static enum cpa_status download(
	struct cpa_kernel *k, int i, size_t nbytes, void **data, struct cpa_error *error)
{
	*data = malloc(nbytes);
	if (!*data)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	return k->device->ops->download(k->device, *data, k->memory[i], nbytes, error);
}

static enum cpa_status judge_rows(struct cpa_kernel *k, const struct cpa_tensors *tensors,
	const void *o, const void *lse, struct cpa_error *error)
{
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &k->problem);
	int64_t S = k->problem.Sq, n = CHECKED_ROWS < S ? CHECKED_ROWS : S;
	bool *wanted = calloc((size_t)S, sizeof *wanted);
	struct cpa_truth *truth = NULL;
	struct cpa_judgement judgement;
	const struct cpa_judge_run run = {
		.bound = cpa_verify_bound_run(k->device, &k->problem, &config),
		.o = o,
		.lse = lse};
	if (!wanted)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	for (int64_t i = 0; i < n; i++)
		wanted[n == 1 ? 0 : i * (S - 1) / (n - 1)] = true;
	enum cpa_status status = cpa_truth_create(tensors, wanted, &truth, error);
	if (status == CPA_OK)
		status = cpa_judge(truth, &run, &judgement, error);
	if (status == CPA_OK && !judgement.right)
		status = cpa_fail(error, CPA_MISMATCH,
			"attend is %.3g times its bound off in o, %.3g times in lse",
			judgement.o.ratio, judgement.lse.ratio);
	cpa_truth_destroy(truth);
	free(wanted);
	return status;
}

static enum cpa_status check_attend(struct cpa_kernel *k, struct cpa_error *error)
{
	void *data[5] = {NULL};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 5 && status == CPA_OK; i++)
		status = download(k, i,
			tensor_nbytes(&k->problem, (enum cpa_tensor)(CPA_TENSOR_Q + i)), &data[i],
			error);
	const struct cpa_tensors tensors = {&k->problem, data[0], data[1], data[2]};
	if (status == CPA_OK)
		status = judge_rows(k, &tensors, data[3], data[4], error);
	for (int i = 0; i < 5; i++)
		free(data[i]);
	return status;
}

/* Both weights are off by c_exp u at most, their sum and the quotient add a rounding each, the
 * products and their sum three more. */
static enum cpa_status check_merge(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_problem *p = &k->problem;
	struct cpa_arithmetic arithmetic = k->device->arithmetic(p);
	enum cpa_dtype dtype = partial_dtype(p);
	double off = 2 * (arithmetic.c_exp + 4) * arithmetic.u * 1.5, *row, *other;
	int64_t nrows = p->B * p->Sq * p->Hq;
	void *o;
	enum cpa_status status = download(
		k, 0, (size_t)(nrows * p->Dv) * cpa_dtype_nbytes(dtype), &o, error);
	row = malloc((size_t)p->Dv * 2 * sizeof *row);
	if (status == CPA_OK && !row)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory");
	other = row ? row + p->Dv : NULL;
	for (int64_t r = 0; r < nrows && status == CPA_OK; r++) {
		double lse = partial_value(0, r);
		for (int64_t d = 0; d < p->Dv; d++) {
			row[d] = partial_value(0, r * p->Dv + d);
			other[d] = partial_value(1, r * p->Dv + d);
		}
		cpa_ref_merge(p->Dv, row, &lse, other, partial_value(1, r));
		for (int64_t d = 0; d < p->Dv && status == CPA_OK; d++)
			if (!(fabs(cpa_load(dtype, o, r * p->Dv + d) - row[d]) <= off))
				status = cpa_fail(error, CPA_MISMATCH,
					"merge is off by %.3g in one element, where %.3g is "
					"allowed",
					fabs(cpa_load(dtype, o, r * p->Dv + d) - row[d]), off);
	}
	free(o);
	free(row);
	return status;
}

static enum cpa_status check_copy(struct cpa_kernel *k, struct cpa_error *error)
{
	const struct cpa_problem *p = &k->problem;
	size_t nbytes = tensor_nbytes(p, CPA_TENSOR_Q), size = cpa_dtype_nbytes(p->dtype);
	void *src, *dst = NULL;
	enum cpa_status status = download(k, 0, nbytes, &src, error);
	if (status == CPA_OK)
		status = download(k, 1, nbytes, &dst, error);
	for (int64_t i = 0; i < p->B * p->Sq * p->Hq && status == CPA_OK; i++) {
		int64_t b = i / (p->Sq * p->Hq), t = i / p->Hq % p->Sq, h = i % p->Hq;
		const struct cpa_array *a = &k->copy.src, *c = &k->copy.dst;
		const char *from = (const char *)src +
			(size_t)(b * a->batch + t * a->token + h * a->head) * size;
		const char *to = (const char *)dst +
			(size_t)(b * c->batch + t * c->token + h * c->head) * size;
		if (memcmp(from, to, (size_t)p->D * size) != 0)
			status = cpa_fail(
				error, CPA_MISMATCH, "the copy differs from its source");
	}
	free(src);
	free(dst);
	return status;
}

enum cpa_status cpa_kernel_check(struct cpa_kernel *kernel, struct cpa_error *error)
{
	double seconds;
	enum cpa_status status = call(kernel, error);
	if (status == CPA_OK)
		status = kernel->kind == CPA_KERNEL_ATTEND ? check_attend(kernel, error)
			: kernel->kind == CPA_KERNEL_MERGE ? check_merge(kernel, error)
							   : check_copy(kernel, error);
	if (status == CPA_OK)
		status = time_calls(kernel, 1, &seconds, error);
	if (status == CPA_OK && seconds < least_seconds)
		kernel->ncalls = (int)(least_seconds / fmax(seconds, 1e-7)) + 1;
	return status;
}
