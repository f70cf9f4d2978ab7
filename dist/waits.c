/*
 * waits.c - who waits for whom, found once all operations are known.
 *
 * Boxes of a buffer that agree in batches, heads and step lie on one plane.  All ends of boxes of a
 * plane cut its tokens into stretches, and of each stretch it is kept which step of each queue
 * touched it last, while the operations are gone through in their order.
 */
#include "dist/waits.h"

#include <stdlib.h>
#include <string.h>

/* The latest step of each queue; -1: none. */
struct latest {
	int write[CPA_NQUEUES], read[CPA_NQUEUES];
};

/* Tokens first, first + step, ... are numbered 0, 1, ...; step 1 has first 0. */
struct plane {
	int64_t batch, nbatches, head, nheads, step, first;
	int64_t *bounds; /* [nbounds] ascending; stretch i ends where i + 1 begins */
	struct latest *latest;
	int nbounds, capacity;
	int found; /* the bound that was looked for last: the next is often there, or behind it */
};
struct planes {
	struct plane *at;
	int n, capacity;
	int queue;   /* the last that touched the buffer; -1: none */
	bool shared; /* several queues touch it, else nobody waits because of it */
};

static bool grow(void **array, int n, int *capacity, size_t size)
{
	if (n < *capacity)
		return true;
	int larger = *capacity ? 2 * *capacity : 16;
	void *moved = realloc(*array, (size_t)larger * size);
	if (!moved)
		return false;
	*array = moved;
	*capacity = larger;
	return true;
}

static int64_t step_of(const struct cpa_box *box)
{
	return box->ntokens == 1 ? 1 : box->step;
}

static bool lies_on(const struct plane *p, const struct cpa_box *box)
{
	return p->batch == box->batch && p->nbatches == box->nbatches && p->head == box->head &&
		p->nheads == box->nheads && p->step == step_of(box) &&
		p->first == box->token % p->step;
}

static struct plane *find_plane(struct planes *planes, const struct cpa_box *box)
{
	for (int i = planes->n - 1; i >= 0; i--)
		if (lies_on(&planes->at[i], box))
			return &planes->at[i];
	if (!grow((void **)&planes->at, planes->n, &planes->capacity, sizeof *planes->at))
		return NULL;
	planes->at[planes->n] = (struct plane){.batch = box->batch,
		.nbatches = box->nbatches,
		.head = box->head,
		.nheads = box->nheads,
		.step = step_of(box),
		.first = box->token % step_of(box)};
	return &planes->at[planes->n++];
}

/* ---- stretches ---- */

static bool add_bound(struct plane *plane, int64_t bound)
{
	if (plane->nbounds > 0 && plane->bounds[plane->nbounds - 1] == bound)
		return true;
	if (!grow((void **)&plane->bounds, plane->nbounds, &plane->capacity,
		    sizeof *plane->bounds))
		return false;
	plane->bounds[plane->nbounds++] = bound;
	return true;
}

static bool add_bounds(struct planes *planes, const struct cpa_operand *operands, int n)
{
	for (int i = 0; i < n; i++) {
		const struct cpa_box *box = &operands[i].box;
		if (box->ntokens == 0 || !planes[box->buffer].shared)
			continue;
		struct plane *plane = find_plane(&planes[box->buffer], box);
		if (!plane || !add_bound(plane, box->token / plane->step) ||
			!add_bound(plane, box->token / plane->step + box->ntokens))
			return false;
	}
	return true;
}

static int ascending(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

static bool make_stretches(struct plane *plane)
{
	int n = 0;
	qsort(plane->bounds, (size_t)plane->nbounds, sizeof *plane->bounds, ascending);
	for (int i = 0; i < plane->nbounds; i++)
		if (n == 0 || plane->bounds[i] != plane->bounds[n - 1])
			plane->bounds[n++] = plane->bounds[i];
	plane->nbounds = n;
	plane->latest = malloc(sizeof *plane->latest * (size_t)n);
	if (plane->latest)
		memset(plane->latest, -1, sizeof *plane->latest * (size_t)n);
	return plane->latest != NULL;
}

/* The first bound at or behind token number i. */
static int bound_at(struct plane *plane, int64_t i)
{
	int low = -1, high = plane->nbounds;
	for (int near = 0; near < 3 && plane->found < high; near++, plane->found++)
		if (plane->bounds[plane->found] == i)
			return plane->found;
	while (high - low > 1) {
		int middle = low + (high - low) / 2;
		if (plane->bounds[middle] < i)
			low = middle;
		else
			high = middle;
	}
	plane->found = high;
	return high;
}

/* ---- one box after the other ---- */

static bool meets(int64_t a, int64_t na, int64_t b, int64_t nb)
{
	return a < b + nb && b < a + na;
}

/* Numbers on a plane of the tokens between the ends of a box.  false: they cannot be in both. */
static bool numbers_on(const struct plane *plane, const struct cpa_box *box, int64_t *from, int64_t *to)
{
	int64_t step = step_of(box), end = box->token + (box->ntokens - 1) * step + 1;
	if (!meets(plane->batch, plane->nbatches, box->batch, box->nbatches) ||
		!meets(plane->head, plane->nheads, box->head, box->nheads) ||
		(step == plane->step && box->token % step != plane->first))
		return false;
	/* Rounded up; both are at least 0, as first < step. */
	*from = (box->token - plane->first + plane->step - 1) / plane->step;
	*to = (end - plane->first + plane->step - 1) / plane->step;
	return *from < *to;
}

/* A box with a step may pass over a stretch of tokens.  Where both have a step, and not the same,
 * all between their ends counts as theirs. */
static bool passes_over(const struct plane *plane, const struct cpa_box *box, int stretch)
{
	int64_t step = step_of(box), start = plane->bounds[stretch];
	if (plane->step != 1 || step == 1 || start <= box->token)
		return false;
	int64_t next = box->token + (start - box->token + step - 1) / step * step;
	return next >= plane->bounds[stretch + 1];
}

static void later_of(int *waits, const int *steps)
{
	for (int q = 0; q < CPA_NQUEUES; q++)
		waits[q] = steps[q] > waits[q] ? steps[q] : waits[q];
}

static void depend_on(
	struct plane *plane, const struct cpa_box *box, bool write, int waits[CPA_NQUEUES])
{
	int64_t from, to;
	if (!numbers_on(plane, box, &from, &to))
		return;
	int i = bound_at(plane, from);
	if (i > 0 && (i == plane->nbounds || plane->bounds[i] > from))
		i--;
	for (; i + 1 < plane->nbounds && plane->bounds[i] < to; i++) {
		if (passes_over(plane, box, i))
			continue;
		later_of(waits, plane->latest[i].write);
		if (write)
			later_of(waits, plane->latest[i].read);
	}
}

static void touch(struct plane *plane, const struct cpa_box *box, bool write, int step, int queue)
{
	int64_t from = box->token / plane->step, to = from + box->ntokens;
	for (int i = bound_at(plane, from); plane->bounds[i] < to; i++)
		*(write ? &plane->latest[i].write[queue] : &plane->latest[i].read[queue]) = step;
}

static void depend(struct planes *planes, const struct cpa_operand *operands, int n, bool write,
	int waits[CPA_NQUEUES])
{
	for (int i = 0; i < n; i++) {
		struct planes *list = &planes[operands[i].box.buffer];
		for (int p = 0; operands[i].box.ntokens > 0 && p < list->n; p++)
			depend_on(&list->at[p], &operands[i].box, write, waits);
	}
}

static void touch_all(struct planes *planes, const struct cpa_operand *operands, int n, bool write,
	int step, int queue)
{
	for (int i = 0; i < n; i++)
		if (operands[i].box.ntokens > 0 && planes[operands[i].box.buffer].shared)
			touch(find_plane(&planes[operands[i].box.buffer], &operands[i].box),
				&operands[i].box, write, step, queue);
}

static void note_queue(struct planes *planes, const struct cpa_operand *operands, int n, int queue)
{
	for (int i = 0; i < n; i++) {
		struct planes *mine = &planes[operands[i].box.buffer];
		mine->shared = mine->shared || (mine->queue >= 0 && mine->queue != queue);
		mine->queue = queue;
	}
}

/* ---- one step after the other ---- */

/* A queue that has waited for a step of another queue has waited for all before it there. */
static void keep_new_waits(struct cpa_step *step, const int waits[CPA_NQUEUES], int known[CPA_NQUEUES])
{
	for (int q = 0; q < CPA_NQUEUES; q++) {
		step->waits[q] = q != step->queue && waits[q] > known[q] ? waits[q] : -1;
		if (step->waits[q] >= 0)
			known[q] = step->waits[q];
	}
}

static void walk_steps(struct cpa_schedule *s, struct planes *planes)
{
	int known[CPA_NQUEUES][CPA_NQUEUES]; /* queue -> other queue: latest step waited for */
	memset(known, -1, sizeof known);
	for (int i = 0; i < s->nsteps; i++) {
		struct cpa_step *step = &s->steps[i];
		int waits[CPA_NQUEUES];
		memset(waits, -1, sizeof waits);
		for (int n = 0; n < step->nops; n++) {
			const struct cpa_op *op = &s->ops[step->first + n];
			depend(planes, op->reads, op->nreads, false, waits);
			depend(planes, op->writes, op->nwrites, true, waits);
		}
		for (int n = 0; n < step->nops; n++) {
			const struct cpa_op *op = &s->ops[step->first + n];
			touch_all(planes, op->reads, op->nreads, false, i, step->queue);
			touch_all(planes, op->writes, op->nwrites, true, i, step->queue);
		}
		keep_new_waits(step, waits, known[step->queue]);
	}
}

static void find_shared(const struct cpa_schedule *s, struct planes *planes)
{
	for (int b = 0; b < s->nbuffers; b++)
		planes[b].queue = -1;
	for (int i = 0; i < s->nsteps; i++)
		for (int n = 0; n < s->steps[i].nops; n++) {
			const struct cpa_op *op = &s->ops[s->steps[i].first + n];
			note_queue(planes, op->reads, op->nreads, s->steps[i].queue);
			note_queue(planes, op->writes, op->nwrites, s->steps[i].queue);
		}
}

bool cpa_schedule_find_waits(struct cpa_schedule *s)
{
	struct planes *planes = calloc((size_t)s->nbuffers + 1, sizeof *planes);
	bool ok = planes != NULL;
	if (ok)
		find_shared(s, planes);
	for (int i = 0; ok && i < s->nops; i++)
		ok = add_bounds(planes, s->ops[i].reads, s->ops[i].nreads) &&
			add_bounds(planes, s->ops[i].writes, s->ops[i].nwrites);
	for (int b = 0; ok && b < s->nbuffers; b++)
		for (int i = 0; ok && i < planes[b].n; i++)
			ok = make_stretches(&planes[b].at[i]);
	if (ok)
		walk_steps(s, planes);
	for (int b = 0; planes && b < s->nbuffers; b++) {
		for (int i = 0; i < planes[b].n; i++) {
			free(planes[b].at[i].bounds);
			free(planes[b].at[i].latest);
		}
		free(planes[b].at);
	}
	free(planes);
	return ok;
}
