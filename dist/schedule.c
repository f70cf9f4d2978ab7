/*
 * schedule.c - the schedule and its builder.
 *
 * Planners say what, the builder infers when: it remembers who touched which box and gives each
 * step one wait per other queue, the latest step there that it depends on.  The checker does not
 * use any of this; it proves the waits from the operations alone.
 */
#include "dist/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct access {
	struct cpa_box box;
	int step;
	bool write;
};
struct access_list {
	struct access *at;
	int n, capacity;
};

struct cpa_builder {
	struct access_list *touched; /* [nbuffers] in program order */
	int touched_capacity;
	int buffers_capacity, ops_capacity, steps_capacity, comms_capacity;
	int known[CPA_NQUEUES]
		 [CPA_NQUEUES]; /* queue -> other queue: latest step already waited for */
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
	memset(b->known, -1, sizeof b->known);
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
	for (int i = 0; i < s->nbuffers && i < s->builder->touched_capacity; i++)
		free(s->builder->touched[i].at);
	free(s->builder->touched);
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
		    sizeof *s->buffers) ||
		!grow(b, (void **)&b->touched, s->nbuffers, &b->touched_capacity,
			sizeof *b->touched))
		return 0;
	memset(&b->touched[s->nbuffers], 0, sizeof *b->touched);
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

/* ---- who waits for whom ---- */

static bool meets(int64_t a, int64_t na, int64_t b, int64_t nb)
{
	return a < b + nb && b < a + na;
}

/* Token progressions meet; exact where the steps agree or one is 1, else as if all between
 * belonged. */
static bool tokens_meet(const struct cpa_box *a, const struct cpa_box *b)
{
	if (a->step < b->step)
		return tokens_meet(b, a);
	int64_t extent_a = (a->ntokens - 1) * a->step + 1,
		extent_b = (b->ntokens - 1) * b->step + 1;
	if (!meets(a->token, extent_a, b->token, extent_b))
		return false;
	if (a->step == b->step)
		return (a->token - b->token) % a->step == 0;
	if (b->step != 1 || a->token >= b->token)
		return true;
	/* the first of a at or behind the start of b */
	int64_t first = a->token + (b->token - a->token + a->step - 1) / a->step * a->step;
	return first < b->token + b->ntokens && first < a->token + extent_a;
}

static bool overlaps(const struct cpa_box *a, const struct cpa_box *b)
{
	return meets(a->batch, a->nbatches, b->batch, b->nbatches) &&
		meets(a->head, a->nheads, b->head, b->nheads) && tokens_meet(a, b);
}

static bool covers(const struct cpa_box *outer, const struct cpa_box *inner)
{
	int64_t end = inner->token + (inner->ntokens - 1) * inner->step + 1;
	return outer->step == 1 && outer->token <= inner->token &&
		outer->token + outer->ntokens >= end && outer->batch <= inner->batch &&
		outer->batch + outer->nbatches >= inner->batch + inner->nbatches &&
		outer->head <= inner->head &&
		outer->head + outer->nheads >= inner->head + inner->nheads;
}

/* The step depends on every earlier step that wrote the box (or touched it, if this is a write).
 * A write that covers the box ends the search: whoever came before it is ordered before it. */
static void depend(struct cpa_schedule *s, int step, const struct cpa_box *box, bool write)
{
	const struct access_list *list = &s->builder->touched[box->buffer];
	struct cpa_step *mine = &s->steps[step];
	for (int i = list->n - 1; i >= 0; i--) {
		const struct access *a = &list->at[i];
		if (a->step == step || (!write && !a->write) || !overlaps(&a->box, box))
			continue;
		int queue = s->steps[a->step].queue;
		if (queue != mine->queue && mine->waits[queue] < a->step)
			mine->waits[queue] = a->step;
		if (a->write && covers(&a->box, box))
			break;
	}
}

static void touch(struct cpa_schedule *s, int step, const struct cpa_box *box, bool write)
{
	struct cpa_builder *b = s->builder;
	struct access_list *list = &b->touched[box->buffer];
	if (grow(b, (void **)&list->at, list->n, &list->capacity, sizeof *list->at))
		list->at[list->n++] = (struct access){*box, step, write};
}

/* A queue that has waited for a step of another queue has waited for all before it there. */
static void drop_known_waits(struct cpa_schedule *s, struct cpa_step *step)
{
	for (int q = 0; q < CPA_NQUEUES; q++) {
		int *known = &s->builder->known[step->queue][q];
		if (step->waits[q] <= *known)
			step->waits[q] = -1;
		else
			*known = step->waits[q];
	}
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
	int step = s->nsteps - 1;
	s->steps[step].nops++;
	for (int i = 0; i < op->nreads; i++)
		if (op->reads[i].box.ntokens > 0)
			depend(s, step, &op->reads[i].box, false);
	for (int i = 0; i < op->nwrites; i++)
		if (op->writes[i].box.ntokens > 0)
			depend(s, step, &op->writes[i].box, true);
	for (int i = 0; i < op->nreads; i++)
		if (op->reads[i].box.ntokens > 0)
			touch(s, step, &op->reads[i].box, false);
	for (int i = 0; i < op->nwrites; i++)
		if (op->writes[i].box.ntokens > 0)
			touch(s, step, &op->writes[i].box, true);
	if (!b->open)
		drop_known_waits(s, &s->steps[step]);
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
	else
		drop_known_waits(s, &s->steps[s->nsteps - 1]);
}

enum cpa_status cpa_schedule_finish(struct cpa_schedule *s, struct cpa_error *error)
{
	bool failed = s->builder->failed || s->arena.failed;
	assert(failed || !s->builder->open);
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
