/*
 * inputs.c - moving shards in and out of whole arrays, run by run.
 */
#include "harness/inputs.h"

#include <stdlib.h>
#include <string.h>

size_t cpa_token_nbytes(const struct cpa_problem *problem, enum cpa_tensor tensor)
{
	size_t e = cpa_dtype_nbytes(problem->dtype);
	switch (tensor) {
	case CPA_TENSOR_Q:
		return (size_t)(problem->Hq * problem->D) * e;
	case CPA_TENSOR_K:
		return (size_t)(problem->Hkv * problem->D) * e;
	case CPA_TENSOR_V:
		return (size_t)(problem->Hkv * problem->Dv) * e;
	case CPA_TENSOR_O:
		return (size_t)(problem->Hq * problem->Dv) * e;
	case CPA_TENSOR_LSE:
		break;
	}
	return (size_t)problem->Hq * cpa_dtype_nbytes(cpa_problem_lse_dtype(problem));
}

int64_t cpa_tensor_ntokens(const struct cpa_problem *problem, enum cpa_tensor tensor)
{
	return tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V ? problem->Skv : problem->Sq;
}

/* Visits every run of adjacent tokens: token number in whole, index in the shard, length. */
struct run {
	int64_t batch, token, ntokens;
	size_t whole, shard, nbytes; /* byte offsets */
};
typedef bool visit_run(void *context, const struct run *run);

static void each_run(const struct cpa_shard *s, visit_run *visit, void *context)
{
	size_t at = 0;
	for (int64_t b = s->batches.start; b < s->batches.end; b++)
		for (int i = 0; i < s->tokens->n; i++) {
			const struct cpa_span *span = &s->tokens->at[i];
			for (int64_t c = 0; c < span->count; c++) {
				int64_t token = span->start + c * span->stride;
				struct run run = {b, token, span->width,
					(size_t)(b * s->S + token) * s->row_nbytes, at,
					(size_t)span->width * s->row_nbytes};
				if (!visit(context, &run))
					return;
				at += run.nbytes;
			}
		}
}

struct copy {
	const char *src;
	char *dst;
};

static bool gather_run(void *context, const struct run *run)
{
	struct copy *copy = context;
	memcpy(copy->dst + run->shard, copy->src + run->whole, run->nbytes);
	return true;
}

static bool scatter_run(void *context, const struct run *run)
{
	struct copy *copy = context;
	memcpy(copy->dst + run->whole, copy->src + run->shard, run->nbytes);
	return true;
}

void cpa_shard_gather(const struct cpa_shard *shard, const void *whole, void *dst)
{
	each_run(shard, gather_run, &(struct copy){whole, dst});
}

void cpa_shard_scatter(const struct cpa_shard *shard, const void *src, void *whole)
{
	each_run(shard, scatter_run, &(struct copy){src, whole});
}

struct comparison {
	const char *shard, *whole;
	size_t row_nbytes;
	bool equal;
	int64_t batch, token;
};

static bool compare_run(void *context, const struct run *run)
{
	struct comparison *c = context;
	const char *a = c->shard + run->shard, *b = c->whole + run->whole;
	c->equal = memcmp(a, b, run->nbytes) == 0;
	if (c->equal)
		return true;
	int64_t t = 0;
	while (memcmp(a + (size_t)t * c->row_nbytes, b + (size_t)t * c->row_nbytes,
		       c->row_nbytes) == 0)
		t++;
	c->batch = run->batch;
	c->token = run->token + t;
	return false;
}

bool cpa_shard_equal(const struct cpa_shard *shard, const void *src, const void *whole,
	int64_t *batch, int64_t *token)
{
	struct comparison c = {src, whole, shard->row_nbytes, true, -1, -1};
	each_run(shard, compare_run, &c);
	if (!c.equal) {
		*batch = c.batch;
		*token = c.token;
	}
	return c.equal;
}

static void read_dense(const void *context, enum cpa_tensor tensor, struct cpa_range batches,
	const struct cpa_spans *tokens, void *dst)
{
	const struct cpa_tensors *tensors = context;
	const void *whole = tensor == CPA_TENSOR_Q   ? tensors->q
			    : tensor == CPA_TENSOR_K ? tensors->k
						     : tensors->v;
	struct cpa_shard shard = {cpa_token_nbytes(tensors->problem, tensor),
		cpa_tensor_ntokens(tensors->problem, tensor), batches, tokens};
	cpa_shard_gather(&shard, whole, dst);
}

struct cpa_inputs cpa_inputs_dense(const struct cpa_tensors *tensors)
{
	return (struct cpa_inputs){read_dense, tensors};
}

enum cpa_status cpa_tensors_check(const struct cpa_tensors *tensors, struct cpa_error *error)
{
	const struct cpa_problem *p = tensors->problem;
	return cpa_ref_check_inputs(p, cpa_view_bshd(tensors->q, p->dtype, p->Sq, p->Hq, p->D),
		cpa_view_bshd(tensors->k, p->dtype, p->Skv, p->Hkv, p->D),
		cpa_view_bshd(tensors->v, p->dtype, p->Skv, p->Hkv, p->Dv), error);
}

void cpa_inputs_fill_part(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens, void *dst)
{
	char name = tensor == CPA_TENSOR_Q ? 'q' : tensor == CPA_TENSOR_K ? 'k' : 'v';
	int64_t n = cpa_spans_ntokens(tokens), rows = (batches.end - batches.start) * n;
	int64_t H = tensor == CPA_TENSOR_Q ? problem->Hq : problem->Hkv;
	int64_t D = tensor == CPA_TENSOR_V ? problem->Dv : problem->D;
#ifdef _OPENMP
#pragma omp parallel for
#endif
	for (int64_t row = 0; row < rows; row++) {
		int64_t b = batches.start + row / n, t = cpa_spans_token(tokens, row % n);
		for (int64_t i = 0; i < H * D; i++)
			cpa_store(problem->dtype, dst, row * H * D + i,
				cpa_fill_value(fill, problem, seed, name, b, t, i / D, i % D));
	}
}

void cpa_inputs_fill(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	enum cpa_tensor tensor, void *dst)
{
	int64_t S = cpa_tensor_ntokens(problem, tensor);
	struct cpa_span span = {0, S, S, 1};
	struct cpa_spans all = {&span, 1, 1};
	cpa_inputs_fill_part(
		problem, fill, seed, tensor, (struct cpa_range){0, problem->B}, &all, dst);
}

enum cpa_status cpa_inputs_make(const struct cpa_problem *problem, enum cpa_fill fill, uint64_t seed,
	void *data[3], struct cpa_tensors *tensors, struct cpa_error *error)
{
	static const enum cpa_tensor names[3] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	for (int i = 0; i < 3; i++) {
		data[i] = malloc((size_t)(problem->B * cpa_tensor_ntokens(problem, names[i])) *
				 cpa_token_nbytes(problem, names[i]));
		if (!data[i])
			return cpa_fail(error, CPA_NO_MEMORY,
				"out of memory for the tensors of a problem");
		cpa_inputs_fill(problem, fill, seed, names[i], data[i]);
	}
	*tensors = (struct cpa_tensors){problem, data[0], data[1], data[2]};
	return CPA_OK;
}

/* FNV-1a by words, with its high half folded back; the last word is filled up with zeros. */
uint64_t cpa_hash(uint64_t h, const void *data, size_t nbytes)
{
	const char *at = data;
	h ^= UINT64_C(0xcbf29ce484222325) + nbytes;
	while (nbytes > 0) {
		uint64_t word = 0;
		size_t n = nbytes < sizeof word ? nbytes : sizeof word;
		memcpy(&word, at, n);
		h = (h ^ word) * UINT64_C(0x100000001b3);
		h ^= h >> 32;
		at += n;
		nbytes -= n;
	}
	return h;
}
