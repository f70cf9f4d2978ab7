/*
 * fault_effect.c - what a planted fault does to memory, around the operation that it spoils.
 *
 * Everything goes by way of host memory, a whole buffer at a time: a fault happens once or
 * twice a run. Devices that run later than they are told to must be waited for first; the CPU
 * devices are not.
 */
#include "harness/fault_plant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* The whole buffer in host memory; NULL when that fails, and then nothing is spoilt. */
static void *download(struct cpa_plant *plant, struct cpa_exec *exec, int buffer)
{
	struct cpa_device *device = plant->target.device;
	size_t nbytes = (size_t)cpa_buffer_nbytes(&plant->schedule->buffers[buffer]);
	struct cpa_error ignored;
	void *bytes = malloc(nbytes);
	if (bytes && device->ops->download(device, bytes, cpa_exec_memory(exec, buffer), nbytes,
			     &ignored) != CPA_OK) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

static void upload(
	struct cpa_plant *plant, struct cpa_exec *exec, int buffer, const void *bytes)
{
	struct cpa_device *device = plant->target.device;
	struct cpa_error ignored;
	(void)device->ops->upload(device, cpa_exec_memory(exec, buffer), bytes,
		(size_t)cpa_buffer_nbytes(&plant->schedule->buffers[buffer]), &ignored);
}

/* Element number of (token i of the box, batch b of it, head h of it), feature 0. */
static int64_t element(const struct cpa_buffer *buffer, const struct cpa_box *box, int64_t i,
	int64_t b, int64_t h)
{
	struct cpa_strides s = cpa_box_strides(buffer, box);
	return s.first + i * s.token + b * s.batch + h * s.head;
}

/* ---- spoiling partials ---- */

/* o and lse of one (row, head), as elements of their buffers. */
struct partial {
	enum cpa_dtype o_dtype, lse_dtype;
	void *o, *lse;
	int64_t dim;
};

static void swap_elements(enum cpa_dtype dtype, void *data, int64_t a, int64_t b)
{
	double x = cpa_load(dtype, data, a), y = cpa_load(dtype, data, b);
	cpa_store(dtype, data, a, y);
	cpa_store(dtype, data, b, x);
}

/* One more key with score 0 and value 0: Z becomes Z + 1. */
static void count_extra_key(const struct partial *p, int64_t o, int64_t lse)
{
	double x = cpa_load(p->lse_dtype, p->lse, lse);
	double more = fmax(x, 0.0) + log1p(exp(-fabs(x)));
	for (int64_t d = 0; d < p->dim; d++)
		cpa_store(p->o_dtype, p->o, o + d,
			cpa_load(p->o_dtype, p->o, o + d) * exp(x - more));
	cpa_store(p->lse_dtype, p->lse, lse, more);
}

static void spoil_partials(struct cpa_plant *plant, struct cpa_exec *exec,
	const struct cpa_op *op, enum cpa_plant_act act)
{
	const struct cpa_buffer *buffers = plant->schedule->buffers;
	const struct cpa_box *o_box = &op->writes[0].box, *lse_box = &op->writes[1].box;
	const struct cpa_buffer *o_buffer = &buffers[o_box->buffer],
				*lse_buffer = &buffers[lse_box->buffer];
	struct partial p = {o_buffer->dtype, lse_buffer->dtype,
		download(plant, exec, o_box->buffer), download(plant, exec, lse_box->buffer),
		o_buffer->dim};
	for (int64_t i = 0; p.o && p.lse && i < o_box->ntokens; i++)
		for (int64_t b = 0; b < o_box->nbatches; b++)
			for (int64_t h = 0; h < o_box->nheads; h++) {
				int64_t o = element(o_buffer, o_box, i, b, h);
				int64_t lse = element(lse_buffer, lse_box, i, b, h);
				if (act == CPA_PLANT_EXTRA_KEY)
					count_extra_key(&p, o, lse);
				if (act == CPA_PLANT_BASE_2)
					cpa_store(p.lse_dtype, p.lse, lse,
						cpa_load(p.lse_dtype, p.lse, lse) *
							1.4426950408889634);
				if (act != CPA_PLANT_SWAP ||
					op->writes[0].content.heads.start + h !=
						plant->site.heads.start)
					continue;
				swap_elements(p.lse_dtype, p.lse, lse, lse + 1);
				for (int64_t d = 0; d < p.dim; d++)
					swap_elements(p.o_dtype, p.o, o + d, o + p.dim + d);
			}
	if (p.o && p.lse) {
		upload(plant, exec, o_box->buffer, p.o);
		upload(plant, exec, lse_box->buffer, p.lse);
	}
	free(p.o);
	free(p.lse);
}

static void zero_lse(struct cpa_plant *plant, struct cpa_exec *exec, const struct cpa_op *op)
{
	const struct cpa_box *box = &op->writes[0].box;
	const struct cpa_buffer *buffer = &plant->schedule->buffers[box->buffer];
	void *lse = download(plant, exec, box->buffer);
	if (!lse)
		return;
	for (int64_t i = 0; i < box->ntokens; i++)
		for (int64_t b = 0; b < box->nbatches; b++)
			for (int64_t h = 0; h < box->nheads; h++)
				cpa_store(
					buffer->dtype, lse, element(buffer, box, i, b, h), 0.0);
	upload(plant, exec, box->buffer, lse);
	free(lse);
}

/* ---- spoiling keys ---- */

/* What stood in the buffer of the operand before the block that op reads arrived there. */
static const struct cpa_operand *previous_content(
	const struct cpa_schedule *s, int op, const struct cpa_operand *operand)
{
	for (int i = cpa_plant_arrival(s, op, operand) - 1; i >= 0; i--)
		for (int k = 0; k < s->ops[i].nwrites; k++)
			if (cpa_plant_overlap(&s->ops[i].writes[k].box, &operand->box))
				return &s->ops[i].writes[k];
	return NULL;
}

/* The key that stands where key number i of the operand should. */
static int64_t wrong_token(const struct cpa_plant *plant, const struct cpa_operand *operand,
	const struct cpa_operand *previous, enum cpa_plant_act act, int64_t i)
{
	const struct cpa_partition *part = plant->target.partition;
	if (act == CPA_PLANT_WRONG_KEYS) {
		const struct cpa_spans *own =
			&part->kv_block[cpa_partition_coords(part, plant->site.rank).r];
		return cpa_spans_token(own, i % cpa_spans_ntokens(own));
	}
	if (previous) {
		int64_t at = operand->box.token + i * operand->box.step - previous->box.token;
		int64_t n = cpa_spans_ntokens(&previous->content.tokens);
		if (previous->box.step == 1 && at >= 0 && at < n)
			return cpa_spans_token(&previous->content.tokens, at);
	}
	/* First use of the buffer: what an earlier call left there looks like other tokens. */
	int64_t Skv = part->problem.Skv;
	return (cpa_spans_token(&operand->content.tokens, i) + Skv / 2) % Skv;
}

static void spoil_keys(struct cpa_plant *plant, struct cpa_exec *exec, int op,
	const struct cpa_operand *operand, enum cpa_plant_act act)
{
	const struct cpa_problem *problem = &plant->target.partition->problem;
	const struct cpa_buffer *buffer = &plant->schedule->buffers[operand->box.buffer];
	const struct cpa_operand *previous =
		act == CPA_PLANT_STALE_KEYS ? previous_content(plant->schedule, op, operand)
					    : NULL;
	size_t e = cpa_dtype_nbytes(buffer->dtype), head = (size_t)buffer->dim * e;
	char *row = malloc(cpa_token_nbytes(problem, operand->content.tensor));
	void *before = download(plant, exec, operand->box.buffer);
	char *bytes = download(plant, exec, operand->box.buffer);
	for (int64_t i = 0; row && before && bytes && i < operand->box.ntokens; i++) {
		struct cpa_span span = {wrong_token(plant, operand, previous, act, i), 1, 1, 1};
		struct cpa_spans token = {&span, 1, 1};
		for (int64_t b = 0; b < operand->box.nbatches; b++) {
			int64_t item = operand->content.batches.start + b;
			plant->target.inputs.read(plant->target.inputs.context,
				operand->content.tensor, (struct cpa_range){item, item + 1},
				&token, row);
			for (int64_t h = 0; h < operand->box.nheads; h++) {
				int64_t to = element(buffer, &operand->box, i, b, h);
				int64_t from = operand->content.heads.start + h;
				memcpy(bytes + (size_t)to * e, row + (size_t)from * head, head);
			}
		}
	}
	if (row && before && bytes) {
		upload(plant, exec, operand->box.buffer, bytes);
		plant->saved[plant->nsaved++] =
			(struct cpa_plant_saved){operand->box.buffer, before};
		before = NULL;
	}
	free(row);
	free(bytes);
	free(before);
}

/* ---- the hook ---- */

void cpa_plant_drop_saved(struct cpa_plant *plant)
{
	while (plant->nsaved > 0)
		free(plant->saved[--plant->nsaved].bytes);
}

static enum cpa_plant_act act_at(
	const struct cpa_plant *plant, const struct cpa_exec *exec, int op)
{
	return (enum cpa_plant_act)plant->acts[cpa_exec_schedule(exec)->rank][op];
}

static bool before_op(void *context, struct cpa_exec *exec, int op)
{
	struct cpa_plant *plant = context;
	enum cpa_plant_act act = act_at(plant, exec, op);
	const struct cpa_op *at = &cpa_exec_schedule(exec)->ops[op];
	if (act == CPA_PLANT_WRONG_KEYS || act == CPA_PLANT_STALE_KEYS)
		for (int i = 0; i < at->nreads; i++)
			if (cpa_plant_is_key(&at->reads[i]))
				spoil_keys(plant, exec, op, &at->reads[i], act);
	if (act == CPA_PLANT_ATTEND)
		cpa_spoil_attend(plant, exec, op);
	if (act == CPA_PLANT_MERGE)
		cpa_spoil_merge(plant, exec, op);
	return act != CPA_PLANT_SKIP && act != CPA_PLANT_ATTEND && act != CPA_PLANT_MERGE;
}

/* ATTEND or COPY that an accumulator starts with. */
static bool starts(const struct cpa_schedule *s, int op)
{
	const struct cpa_op *at = &s->ops[op];
	if (at->kind == CPA_OP_ATTEND)
		return cpa_plant_merge_of(s, op) < 0;
	return at->kind == CPA_OP_COPY && at->nreads == 0 &&
	       at->writes[0].content.tensor == CPA_TENSOR_LSE;
}

static void after_op(void *context, struct cpa_exec *exec, int op)
{
	struct cpa_plant *plant = context;
	enum cpa_plant_act act = act_at(plant, exec, op);
	for (int i = plant->nsaved - 1; i >= 0; i--)
		upload(plant, exec, plant->saved[i].buffer, plant->saved[i].bytes);
	cpa_plant_drop_saved(plant);
	if (act == CPA_PLANT_BASE_2 || act == CPA_PLANT_SWAP || act == CPA_PLANT_EXTRA_KEY)
		spoil_partials(plant, exec, &plant->schedule->ops[op], act);
	if (act == CPA_PLANT_LSE_ZERO)
		zero_lse(plant, exec, &plant->schedule->ops[op]);
	if (plant->entry->merge && starts(cpa_exec_schedule(exec), op))
		cpa_spoil_note_start(plant, exec, op);
}

struct cpa_exec_hook cpa_plant_hook(struct cpa_plant *plant, int rank)
{
	if (!plant || (plant->schedule->rank != rank &&
			      plant->entry->scope != CPA_FAULT_EVERYWHERE))
		return (struct cpa_exec_hook){0};
	return (struct cpa_exec_hook){before_op, after_op, plant};
}
