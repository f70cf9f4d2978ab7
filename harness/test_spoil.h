/*
 * test_spoil.h - device "cpu" with a fault in its ATTEND: arrays, ids or the rule are changed
 * before the kernel sees them.  Include after cmocka.h.
 */
#ifndef CPA_TEST_SPOIL_H
#define CPA_TEST_SPOIL_H

#include "kernels/kernels.h"

/* One ATTEND, to be spoilt.  attend.problem is &problem, a copy. */
struct call {
	struct cpa_attend attend;
	struct cpa_problem problem;
	struct cpa_arena arena;
	int64_t (*kv_of)(
		const struct call *call, int64_t h); /* another map of heads; NULL: none */
};

static struct {
	const struct cpa_device_ops *real;
	struct cpa_device_ops ops;
	void (*spoil)(struct call *);
} planted;

static inline enum cpa_status attend_by_heads(
	struct cpa_device *device, int queue, const struct call *call, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	struct cpa_range heads = call->attend.heads;
	int64_t g = call->problem.Hq / call->problem.Hkv;
	for (int64_t h = heads.start; s == CPA_OK && h < heads.end; h++) {
		struct cpa_attend one = call->attend;
		struct cpa_array *arrays[3] = {&one.q, &one.o, &one.lse};
		for (int i = 0; i < 3; i++)
			arrays[i]->data = (char *)arrays[i]->data +
					  (h - heads.start) * arrays[i]->head *
						  (int64_t)cpa_dtype_nbytes(arrays[i]->dtype);
		one.heads = (struct cpa_range){h, h + 1};
		/* The kernel takes key head 0 of what it is given: move k and v there. */
		int64_t local = call->kv_of(call, h);
		one.kv_first = h / g;
		one.k.data = (char *)one.k.data +
			     local * one.k.head * (int64_t)cpa_dtype_nbytes(one.k.dtype);
		one.v.data = (char *)one.v.data +
			     local * one.v.head * (int64_t)cpa_dtype_nbytes(one.v.dtype);
		s = planted.real->attend(device, queue, &one, error);
	}
	return s;
}

static inline enum cpa_status spoilt_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	struct call call = {.attend = *attend, .problem = *attend->problem};
	enum cpa_status s;
	cpa_arena_init(&call.arena);
	call.attend.problem = &call.problem;
	if (planted.spoil)
		planted.spoil(&call);
	s = call.kv_of ? attend_by_heads(device, queue, &call, error)
		       : planted.real->attend(device, queue, &call.attend, error);
	cpa_arena_fini(&call.arena);
	return s;
}

static inline struct cpa_device *spoilt_device(void)
{
	struct cpa_device *device;
	struct cpa_error error;
	assert_int_equal(cpa_device_create("cpu", &device, &error), CPA_OK);
	planted.real = device->ops;
	planted.ops = *device->ops;
	planted.ops.attend = spoilt_attend;
	device->ops = &planted.ops;
	return device;
}

static inline void plant_spoil(void (*spoil)(struct call *))
{
	planted.spoil = spoil;
}

/* ---- what a call is ---- */

static inline int64_t nkv_heads(const struct call *call)
{
	return cpa_heads_kv(call->attend.heads, call->problem.Hq / call->problem.Hkv).end -
	       call->attend.kv_first;
}

static inline bool is_own(const struct call *call)
{
	return cpa_spans_equal(&call->attend.q_tokens, &call->attend.k_tokens);
}

/* In contiguous order: keys of another shard. */
static inline bool is_other(const struct call *call)
{
	return cpa_spans_max(&call->attend.k_tokens) < cpa_spans_min(&call->attend.q_tokens) ||
	       cpa_spans_min(&call->attend.k_tokens) > cpa_spans_max(&call->attend.q_tokens);
}

/* The replicated tokens in front of the split ones (or all there are) of the cases below. */
static inline bool is_text(const struct call *call)
{
	int64_t n = call->problem.Sq == call->problem.Skv ? 6 : call->problem.Skv;
	return cpa_spans_max(&call->attend.k_tokens) < n;
}

/* ---- tools ---- */

/* Rows of k or v by index, dense; -1: zeros. */
static inline struct cpa_array take_rows(struct call *call, const struct cpa_array *from,
	int64_t width, const int64_t *rows, int64_t n)
{
	int64_t nb = call->attend.batches.end - call->attend.batches.start,
		nh = nkv_heads(call);
	struct cpa_array to = {.dtype = from->dtype,
		.token = nb * nh * width,
		.batch = nh * width,
		.head = width};
	to.data = cpa_arena_alloc(
		&call->arena, (size_t)(n * to.token) * cpa_dtype_nbytes(to.dtype));
	assert_non_null(to.data);
	for (int64_t i = 0; i < n * to.token; i++) {
		int64_t row = rows[i / to.token], at = i / to.batch % nb * from->batch +
						       i / width % nh * from->head + i % width;
		if (row >= 0)
			cpa_store(to.dtype, to.data, i,
				cpa_load(from->dtype, from->data, row * from->token + at));
	}
	return to;
}

static inline void rearrange(struct call *call, const int64_t *rows, int64_t n)
{
	struct cpa_attend *a = &call->attend;
	a->k = take_rows(call, &a->k, call->problem.D, rows, n);
	a->v = take_rows(call, &a->v, call->problem.Dv, rows, n);
	a->nk = n;
}

/* More keys that every query sees: copies of rows `first` on, or zeros.  There is no rule. */
static inline void append_keys(struct call *call, int64_t first, int64_t n)
{
	struct cpa_attend *a = &call->attend;
	int64_t total = a->nk + n;
	int64_t *rows = cpa_arena_alloc(&call->arena, (size_t)total * sizeof *rows);
	struct cpa_spans tokens = {0};
	assert_non_null(rows);
	for (int64_t i = 0; i < total; i++)
		rows[i] = i < a->nk ? i : first < 0 ? -1 : first + i - a->nk;
	for (int i = 0; i < a->k_tokens.n; i++)
		cpa_spans_append(&call->arena, &tokens, a->k_tokens.at[i]);
	cpa_spans_append_range(&call->arena, &tokens,
		(struct cpa_range){call->problem.Skv, call->problem.Skv + n});
	call->problem.Skv += n;
	a->k_tokens = tokens;
	rearrange(call, rows, total);
}

static inline struct cpa_spans renumber(struct call *call, const struct cpa_spans *tokens,
	int64_t (*id)(const struct call *, int64_t token, int64_t index))
{
	struct cpa_spans list = {0};
	for (int64_t i = 0; i < cpa_spans_ntokens(tokens); i++) {
		int64_t t = id(call, cpa_spans_token(tokens, i), i);
		cpa_spans_append_range(&call->arena, &list, (struct cpa_range){t, t + 1});
	}
	return list;
}

static inline void hide_keys(struct call *call)
{
	static const int64_t none[8];
	call->problem.rule.key_lengths = none;
}

static inline void reverse(struct cpa_array *x, int64_t *stride, int64_t n)
{
	x->data = (char *)x->data + (n - 1) * *stride * (int64_t)cpa_dtype_nbytes(x->dtype);
	*stride = -*stride;
}

/* The strides of the other layout of as many elements. */
static inline void exchange_strides(struct cpa_array *x, int64_t ntokens, int64_t nbatches)
{
	int64_t row = x->token < x->batch ? x->token : x->batch;
	bool batch_first = x->token < x->batch;
	x->token = batch_first ? row * nbatches : row;
	x->batch = batch_first ? row : row * ntokens;
}

#endif
