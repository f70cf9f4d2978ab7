/*
 * exec_ops.c - one op at a time: boxes as memory, and what device or communicator is told.
 */
#include "dist/exec.h"

#include <assert.h>
#include <math.h>

/* ---- boxes as memory ---- */

struct cpa_array cpa_exec_array(const struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_buffer *b = &exec->schedule->buffers[box->buffer];
	struct cpa_strides s = cpa_box_strides(b, box);

	return (struct cpa_array){
		.data = (char *)exec->memory[box->buffer]
			+ s.first * (int64_t)cpa_dtype_nbytes(b->dtype),
		.dtype = b->dtype,
		.token = s.token,
		.batch = s.batch,
		.head = s.head,
	};
}

void *cpa_exec_memory(const struct cpa_exec *exec, int buffer)
{
	return exec->memory[buffer];
}

const struct cpa_schedule *cpa_exec_schedule(const struct cpa_exec *exec)
{
	return exec->schedule;
}

int cpa_exec_find(const struct cpa_exec *exec, enum cpa_role role, enum cpa_tensor tensor)
{
	struct cpa_box box;

	return cpa_schedule_find(exec->schedule, role, tensor, &box) ? box.buffer : -1;
}

static size_t box_nbytes(const struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_buffer *b = &exec->schedule->buffers[box->buffer];

	return (size_t)cpa_box_nelements(b, box) * cpa_dtype_nbytes(b->dtype);
}

/* An empty box (a member of an all-gather without a share) is a run of 0 bytes. */
static struct cpa_piece piece_of(const struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_buffer *b = &exec->schedule->buffers[box->buffer];
	size_t nbytes = box_nbytes(exec, box);

	assert(nbytes == 0 || cpa_box_is_run(b, box));
	return (struct cpa_piece){ cpa_exec_array(exec, box).data, nbytes, b->dtype };
}

/* ---- poison ---- */

static bool near(int64_t a, int64_t na, int64_t b, int64_t nb)
{
	return a < b + nb && b < a + na;
}

static bool may_overlap(const struct cpa_box *a, const struct cpa_box *b)
{
	return a->buffer == b->buffer && near(a->batch, a->nbatches, b->batch, b->nbatches)
		&& near(a->head, a->nheads, b->head, b->nheads)
		&& near(a->token, a->ntokens * a->step, b->token, b->ntokens * b->step);
}

static enum cpa_status poison_box(
	struct cpa_exec *exec, int queue, const struct cpa_box *box, struct cpa_error *error)
{
	const struct cpa_buffer *b = &exec->schedule->buffers[box->buffer];
	struct cpa_array array = cpa_exec_array(exec, box);
	size_t size = cpa_dtype_nbytes(b->dtype);
	int64_t apart = array.head == b->dim ? 1 : box->nheads; /* stretches of one token */
	enum cpa_status status = CPA_OK;

	if (cpa_box_is_run(b, box))
		return exec->device->ops->poison(
			exec->device, queue, array.data, box_nbytes(exec, box), error);
	for (int64_t t = 0; t < box->ntokens; t++)
		for (int64_t i = 0; status == CPA_OK && i < box->nbatches * apart; i++)
			status = exec->device->ops->poison(exec->device, queue,
				(char *)array.data
					+ (t * array.token + i / apart * array.batch
						  + i % apart * array.head) * (int64_t)size,
				(size_t)(box->nheads / apart * b->dim) * size, error);
	return status;
}

static bool same_box(const struct cpa_box *a, const struct cpa_box *b)
{
	return a->buffer == b->buffer && a->token == b->token && a->ntokens == b->ntokens
		&& a->step == b->step && a->batch == b->batch && a->nbatches == b->nbatches
		&& a->head == b->head && a->nheads == b->nheads;
}

/*
 * Whether box may hold something else than poison: an op has written there since the whole
 * buffer was poisoned, or somebody that is not an op (input, or a hook) may have.
 */
static bool is_written(const struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_exec_written *written = &exec->written[box->buffer];
	const struct cpa_exec_hook *hook = &exec->options.hook;

	if (hook->before || hook->after ||
		exec->schedule->buffers[box->buffer].role == CPA_ROLE_INPUT)
		return true;
	for (int i = 0; i < written->n; i++)
		if (may_overlap(&written->boxes[i], box))
			return true;
	return false;
}

static void note_writes(struct cpa_exec *exec, const struct cpa_op *op)
{
	for (int i = 0; i < op->nwrites; i++) {
		const struct cpa_box *box = &op->writes[i].box;
		struct cpa_exec_written *written = &exec->written[box->buffer];
		int k = 0;

		while (k < written->n && !same_box(&written->boxes[k], box))
			k++;
		if (k == written->n)
			written->boxes[written->n++] = *box;
	}
}

/*
 * What a compute op is about to write in full, unless it reads there too (a merge in place), or
 * it is poison already.
 */
static enum cpa_status poison_writes(
	struct cpa_exec *exec, int queue, const struct cpa_op *op, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;

	for (int i = 0; status == CPA_OK && i < op->nwrites; i++) {
		bool read = false;

		for (int k = 0; k < op->nreads; k++)
			read |= may_overlap(&op->writes[i].box, &op->reads[k].box);
		if (!read && is_written(exec, &op->writes[i].box))
			status = poison_box(exec, queue, &op->writes[i].box, error);
	}
	note_writes(exec, op);
	return status;
}

/* ---- compute ops ---- */

static enum cpa_status run_copy(struct cpa_exec *exec, int queue,
	const struct cpa_operand *from, const struct cpa_operand *to, struct cpa_error *error)
{
	const struct cpa_box *box = &to->box;
	struct cpa_copy copy = {
		.dst = cpa_exec_array(exec, box),
		.ntokens = box->ntokens,
		.nbatches = box->nbatches,
		.nheads = box->nheads,
		.dim = exec->schedule->buffers[box->buffer].dim,
		.fill = to->content.tensor == CPA_TENSOR_LSE ? -INFINITY : 0,
	};

	if (from) {
		assert(from->box.ntokens == box->ntokens && from->box.nbatches == box->nbatches
			&& from->box.nheads == box->nheads
			&& exec->schedule->buffers[from->box.buffer].dim == copy.dim);
		copy.src = cpa_exec_array(exec, &from->box);
	}
	return exec->device->ops->copy(exec->device, queue, &copy, error);
}

static enum cpa_status run_attend(
	struct cpa_exec *exec, int queue, const struct cpa_op *op, struct cpa_error *error)
{
	const struct cpa_operand *q = &op->reads[0], *k = &op->reads[1], *v = &op->reads[2];
	struct cpa_attend attend = {
		.problem = exec->problem,
		.q = cpa_exec_array(exec, &q->box),
		.k = cpa_exec_array(exec, &k->box),
		.v = cpa_exec_array(exec, &v->box),
		.o = cpa_exec_array(exec, &op->writes[0].box),
		.lse = cpa_exec_array(exec, &op->writes[1].box),
		.nq = q->box.ntokens,
		.nk = k->box.ntokens,
		.batches = q->content.batches,
		.heads = q->content.heads,
		.kv_first = k->content.heads.start,
		.q_tokens = q->content.tokens,
		.k_tokens = k->content.tokens,
	};

	assert(op->nreads == 3 && op->nwrites == 2);
	return exec->device->ops->attend(exec->device, queue, &attend, error);
}

/* Devices merge in place; a result elsewhere starts as a copy of the first pair. */
static enum cpa_status run_merge(
	struct cpa_exec *exec, int queue, const struct cpa_op *op, struct cpa_error *error)
{
	const struct cpa_box *box = &op->writes[0].box;
	struct cpa_merge merge = {
		.o_a = cpa_exec_array(exec, box),
		.lse_a = cpa_exec_array(exec, &op->writes[1].box),
		.ntokens = box->ntokens,
		.nbatches = box->nbatches,
		.nheads = box->nheads,
		.dim = exec->schedule->buffers[box->buffer].dim,
	};
	enum cpa_status status = CPA_OK;

	if (op->subkind == CPA_MERGE_SINK) {
		assert(op->nreads == 2 && op->nwrites == 2);
		merge.sink = exec->problem->rule.sink + op->writes[0].content.heads.start;
	} else {
		assert(op->nreads == 4 && op->nwrites == 2);
		merge.o_b = cpa_exec_array(exec, &op->reads[2].box);
		merge.lse_b = cpa_exec_array(exec, &op->reads[3].box);
	}
	for (int i = 0; status == CPA_OK && i < 2; i++) {
		if (same_box(&op->writes[i].box, &op->reads[i].box))
			continue;
		assert(op->nreads == 2 ||
			!may_overlap(&op->writes[i].box, &op->reads[2 + i].box));
		status = run_copy(exec, queue, &op->reads[i], &op->writes[i], error);
	}
	return status == CPA_OK ? exec->device->ops->merge(exec->device, queue, &merge, error)
				: status;
}

enum cpa_status cpa_exec_compute(
	struct cpa_exec *exec, int queue, const struct cpa_op *op, struct cpa_error *error)
{
	if (exec->options.poison) {
		enum cpa_status status = poison_writes(exec, queue, op, error);

		if (status != CPA_OK)
			return status;
	}
	switch (op->kind) {
	case CPA_OP_COPY:
		assert(op->nwrites == 1 && op->nreads <= 1);
		return run_copy(exec, queue, op->nreads ? op->reads : NULL, op->writes, error);
	case CPA_OP_ATTEND:
		return run_attend(exec, queue, op, error);
	case CPA_OP_MERGE:
		assert(op->subkind == CPA_MERGE_SOFTMAX || op->subkind == CPA_MERGE_SINK);
		return run_merge(exec, queue, op, error);
	default:
		assert(!"a compute step holds one compute op");
		return CPA_INVALID;
	}
}

/* ---- comm ops ---- */

void cpa_exec_post(struct cpa_exec *exec, const struct cpa_op *op)
{
	const struct cpa_comm_ops *ops = exec->comm->ops;
	struct cpa_piece *pieces = exec->pieces;
	int id = exec->comm_ids[op->comm];

	if (exec->options.poison)
		note_writes(exec, op);
	for (int i = 0; i < op->nreads; i++)
		pieces[i] = piece_of(exec, &op->reads[i].box);
	for (int i = 0; i < op->nwrites; i++)
		pieces[op->nreads + i] = piece_of(exec, &op->writes[i].box);
	switch (op->kind) {
	case CPA_OP_SEND:
		ops->send(exec->comm, id, op->peer, pieces, op->nreads);
		break;
	case CPA_OP_RECV:
		ops->recv(exec->comm, id, op->peer, pieces, op->nwrites);
		break;
	default:
		assert(op->kind == CPA_OP_COLLECTIVE
			&& op->subkind == CPA_COLLECTIVE_ALL_GATHER);
		assert(op->nwrites == op->nreads * exec->schedule->comms[op->comm].nmembers);
		ops->all_gather(exec->comm, id, pieces, pieces + op->nreads, op->nreads);
	}
}
