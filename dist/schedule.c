/*
 * schedule.c - the schedule and its builder.
 *
 * Planners say what, the builder infers when (waits.c): each step gets one wait per other queue, the
 * latest step there that it depends on.  The checker does not use any of this; it proves the waits
 * from the operations alone.
 */
#include "dist/waits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct cpa_builder {
	int buffers_capacity, ops_capacity, steps_capacity, comms_capacity;
	bool open; /* a group is being filled */
	bool failed;
};

/* Room for one more element; false (and failed) when out of memory. */
static bool grow(struct cpa_builder *b, void **array, int n, int *capacity, size_t size)
{
	if (n < *capacity)
		return true;
	int larger = *capacity ? 2 * *capacity : 16;
	void *moved = realloc(*array, (size_t)larger * size);
	if (!moved) {
		b->failed = true;
		return false;
	}
	*array = moved;
	*capacity = larger;
	return true;
}

struct cpa_schedule *cpa_schedule_create(int rank, int W)
{
	struct cpa_schedule *s = calloc(1, sizeof *s);
	struct cpa_builder *b = calloc(1, sizeof *b);
	if (!s || !b) {
		free(s);
		free(b);
		return NULL;
	}
	cpa_arena_init(&s->arena);
	s->rank = rank;
	s->W = W;
	s->builder = b;
	cpa_schedule_comm(s, W, NULL);
	/* One buffer's room from the start, so that planners may look at buffer 0 after a
	 * failure. */
	if (grow(b, (void **)&s->buffers, 0, &b->buffers_capacity, sizeof *s->buffers))
		memset(s->buffers, 0, sizeof *s->buffers);
	if (!b->failed)
		return s;
	cpa_schedule_destroy(s);
	return NULL;
}

static void free_builder(struct cpa_schedule *s)
{
	if (!s->builder)
		return;
	free(s->builder);
	s->builder = NULL;
}

void cpa_schedule_destroy(struct cpa_schedule *s)
{
	if (!s)
		return;
	free_builder(s);
	free(s->buffers);
	free(s->ops);
	free(s->steps);
	free(s->comms);
	cpa_arena_fini(&s->arena);
	free(s);
}

int cpa_schedule_buffer(struct cpa_schedule *s, const struct cpa_buffer *buffer)
{
	struct cpa_builder *b = s->builder;
	assert(buffer->ntokens > 0 && buffer->nbatches > 0 && buffer->nheads > 0 &&
		buffer->dim > 0);
	if (!grow(b, (void **)&s->buffers, s->nbuffers, &b->buffers_capacity,
		    sizeof *s->buffers))
		return 0;
	s->buffers[s->nbuffers] = *buffer;
	return s->nbuffers++;
}

int cpa_schedule_comm(struct cpa_schedule *s, int nmembers, const int *members)
{
	struct cpa_builder *b = s->builder;
	for (int i = 0; members && i < s->ncomms; i++)
		if (s->comms[i].members && s->comms[i].nmembers == nmembers &&
			memcmp(s->comms[i].members, members,
				sizeof *members * (size_t)nmembers) == 0)
			return i;
	if (!grow(b, (void **)&s->comms, s->ncomms, &b->comms_capacity, sizeof *s->comms))
		return 0;
	struct cpa_communicator *comm = &s->comms[s->ncomms];
	*comm = (struct cpa_communicator){nmembers, NULL};
	if (members) {
		comm->members = cpa_arena_alloc(&s->arena, sizeof *members * (size_t)nmembers);
		if (comm->members)
			memcpy(comm->members, members, sizeof *members * (size_t)nmembers);
	}
	return s->ncomms++;
}

/* ---- adding ---- */

static bool new_step(struct cpa_schedule *s, int queue)
{
	struct cpa_builder *b = s->builder;
	if (!grow(b, (void **)&s->steps, s->nsteps, &b->steps_capacity, sizeof *s->steps))
		return false;
	struct cpa_step *step = &s->steps[s->nsteps++];
	*step = (struct cpa_step){.first = s->nops, .nops = 0, .queue = queue};
	for (int q = 0; q < CPA_NQUEUES; q++)
		step->waits[q] = -1;
	return true;
}

static struct cpa_operand *copy_operands(
	struct cpa_schedule *s, const struct cpa_operand *from, int n)
{
	struct cpa_operand *to = cpa_arena_alloc(&s->arena, sizeof *to * (size_t)n);
	if (to && n)
		memcpy(to, from, sizeof *to * (size_t)n);
	return to;
}

static bool is_communication(enum cpa_op_kind kind)
{
	return kind == CPA_OP_SEND || kind == CPA_OP_RECV || kind == CPA_OP_COLLECTIVE;
}

void cpa_schedule_add(struct cpa_schedule *s, const struct cpa_op *op)
{
	struct cpa_builder *b = s->builder;
	if (b->failed || s->arena.failed)
		return;
	assert(b->open == is_communication(op->kind));
	if (!b->open && !new_step(s, CPA_QUEUE_COMPUTE))
		return;
	if (!grow(b, (void **)&s->ops, s->nops, &b->ops_capacity, sizeof *s->ops))
		return;
	struct cpa_op *mine = &s->ops[s->nops];
	*mine = *op;
	mine->reads = copy_operands(s, op->reads, op->nreads);
	mine->writes = copy_operands(s, op->writes, op->nwrites);
	if (s->arena.failed)
		return;
	s->nops++;
	s->steps[s->nsteps - 1].nops++;
}

void cpa_schedule_begin(struct cpa_schedule *s, int queue)
{
	assert(!s->builder->open && queue != CPA_QUEUE_COMPUTE && queue < CPA_NQUEUES);
	s->builder->open = new_step(s, queue);
}

void cpa_schedule_end(struct cpa_schedule *s)
{
	if (!s->builder->open)
		return; /* out of memory at begin */
	s->builder->open = false;
	if (s->steps[s->nsteps - 1].nops == 0)
		s->nsteps--;
}

enum cpa_status cpa_schedule_finish(struct cpa_schedule *s, struct cpa_error *error)
{
	bool failed = s->builder->failed || s->arena.failed;
	assert(failed || !s->builder->open);
	failed = failed || !cpa_schedule_find_waits(s);
	free_builder(s);
	return failed
		? cpa_fail(error, CPA_NO_MEMORY, "out of memory for the plan of rank %d", s->rank)
		: CPA_OK;
}

/* ---- boxes ---- */

int64_t cpa_buffer_nbytes(const struct cpa_buffer *b)
{
	return b->ntokens * b->nbatches * b->nheads * b->dim *
		(int64_t)cpa_dtype_nbytes(b->dtype);
}

struct cpa_box cpa_box_all(const struct cpa_schedule *s, int buffer)
{
	const struct cpa_buffer *b = &s->buffers[buffer];
	return (struct cpa_box){buffer, 0, b->ntokens, 1, 0, b->nbatches, 0, b->nheads};
}

struct cpa_strides cpa_box_strides(const struct cpa_buffer *b, const struct cpa_box *x)
{
	int64_t row = b->nheads * b->dim;
	struct cpa_strides s = {.token = row, .batch = row * b->ntokens, .head = b->dim};
	if (b->layout == CPA_LAYOUT_SBHD) {
		s.token = row * b->nbatches;
		s.batch = row;
	} else if (b->layout == CPA_LAYOUT_BHSD) {
		s.token = b->dim;
		s.head = b->dim * b->ntokens;
	}
	s.first = x->token * s.token + x->batch * s.batch + x->head * s.head;
	s.token *= x->step;
	return s;
}

bool cpa_schedule_find(const struct cpa_schedule *s, enum cpa_role role, enum cpa_tensor tensor,
	struct cpa_box *box)
{
	for (int i = 0; i < s->nbuffers; i++) {
		const struct cpa_buffer *b = &s->buffers[i];
		bool fused = b->layout == CPA_LAYOUT_FUSED && tensor <= CPA_TENSOR_V;
		int64_t nkv = (b->nheads - b->nheads_q) / 2;
		if (b->role != role || (b->tensor != tensor && !fused))
			continue;
		*box = cpa_box_all(s, i);
		if (fused) {
			box->nheads = tensor == CPA_TENSOR_Q ? b->nheads_q : nkv;
			box->head = tensor == CPA_TENSOR_Q ? 0
				: b->nheads_q + (tensor == CPA_TENSOR_V ? nkv : 0);
		}
		return true;
	}
	return false;
}

/* A box may be one run too, but not in the order of the wire: [B, S, H, D] of several items. */
bool cpa_box_is_run(const struct cpa_buffer *b, const struct cpa_box *x)
{
	struct cpa_strides s = cpa_box_strides(b, x);
	int64_t item = x->nheads * b->dim, token = x->nbatches * item;
	return (x->nheads == 1 || s.head == b->dim) && (x->nbatches == 1 || s.batch == item) &&
		(x->ntokens == 1 || s.token == token);
}

int64_t cpa_box_nelements(const struct cpa_buffer *b, const struct cpa_box *x)
{
	return x->ntokens * x->nbatches * x->nheads * b->dim;
}
