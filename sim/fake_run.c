/*
 * fake_run.c - who moves next in a world of fake ranks, and the sentence when nobody can.
 */
#include "sim/fake_comm.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Uniform choices alone seldom reach the corners where races hide, so a seed first draws a
 * temper: messages as early or as late as the rules allow, computing before communicating or
 * after it, one rank that moves only when nothing else can.
 */
struct temper {
	enum { LAND_ANY, LAND_EARLY, LAND_LATE } landing;
	enum { QUEUE_ANY, QUEUE_FIRST, QUEUE_LAST } queue;
	int laggard; /* -1: none */
};

static int below(struct cpa_fake_world *world, int n)
{
	return (int)(cpa_random(&world->random) % (uint64_t)n);
}

static struct temper draw_temper(struct cpa_fake_world *world)
{
	struct temper temper;

	temper.landing = below(world, 3);
	temper.queue = below(world, 3);
	temper.laggard = below(world, 2) ? below(world, world->P) : -1;
	return temper;
}

static bool lands_next(struct cpa_fake_world *world, const struct temper *temper)
{
	bool can_step = world->nready > 0;

	if (world->nlandings == 0)
		return false;
	if (world->nready == 1 && world->ready[0] == temper->laggard)
		can_step = false;
	if (!can_step || temper->landing == LAND_EARLY)
		return true;
	if (temper->landing == LAND_LATE)
		return false;
	return cpa_random(&world->random) % (world->nlandings + (size_t)world->nready)
		< world->nlandings;
}

/* The executor takes the ready queue number seed mod their count: 11 = -1 mod 2, 3 and 4. */
static uint64_t queue_seed(struct cpa_fake_world *world, const struct temper *temper)
{
	static_assert(CPA_NQUEUES <= 4, "11 must be -1 modulo any number of ready queues");
	switch (temper->queue) {
	case QUEUE_FIRST:
		return 0;
	case QUEUE_LAST:
		return 11;
	default:
		return cpa_random(&world->random);
	}
}

/* CPA_OK, or why the rank that stepped failed. */
static enum cpa_status step_one(struct cpa_fake_world *world, struct cpa_exec **execs,
	const struct temper *temper, struct cpa_error *error)
{
	int i = below(world, world->nready), rank;

	if (world->ready[i] == temper->laggard)
		i = (i + 1) % world->nready;
	rank = world->ready[i];
	switch (cpa_exec_step(execs[rank], queue_seed(world, temper), error)) {
	case CPA_EXEC_RUNNING:
		return CPA_OK;
	case CPA_EXEC_BLOCKED:
		world->ranks[rank].state = CPA_FAKE_ASLEEP;
		break;
	case CPA_EXEC_DONE:
		world->ranks[rank].state = CPA_FAKE_FINISHED;
		break;
	case CPA_EXEC_FAILED:
		return world->status != CPA_OK ? world->status : cpa_exec_status(execs[rank]);
	}
	world->ready[i] = world->ready[--world->nready];
	return CPA_OK;
}

/* ---- why it is stuck ---- */

static void append(struct cpa_error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void append(struct cpa_error *error, const char *format, ...)
{
	size_t used = strlen(error->text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text + used, sizeof error->text - used, format, arguments);
	va_end(arguments);
}

/* What is known of the rank that is waited for. */
static const char *whereabouts(
	const struct cpa_fake_world *world, struct cpa_exec **execs, int rank)
{
	if (!execs[rank])
		return ", which has no work";
	return world->ranks[rank].state == CPA_FAKE_FINISHED ? ", which has finished" : "";
}

static void explain_gather(const struct cpa_fake_world *world, struct cpa_exec **execs,
	const struct cpa_fake_post *post, struct cpa_error *error)
{
	const struct cpa_fake_group *group = &world->groups[post->group];

	for (int i = 0; i < group->nmembers; i++) {
		int rank = cpa_fake_member(group, i);

		if (post->gather->posts[i])
			continue;
		append(error, " waits for rank %d%s, to call all-gather %d of communicator %d",
			rank, whereabouts(world, execs, rank), post->order, post->group);
		return;
	}
}

/* Appends what the rank lacks: its messages that have no other side. */
static void explain_rank(const struct cpa_fake_world *world, struct cpa_exec **execs, int rank,
	struct cpa_error *error)
{
	const struct cpa_request *request = world->ranks[rank].pending;
	const char *between = "";

	for (; request; request = request->next)
		for (const struct cpa_fake_post *p = request->posts; p; p = p->next) {
			bool eager_send =
				p->kind == CPA_FAKE_SEND && world->mode == CPA_FAKE_EAGER;

			if (p->met || eager_send)
				continue;
			append(error, "%s", between);
			between = " and";
			if (p->kind == CPA_FAKE_GATHER)
				explain_gather(world, execs, p, error);
			else
				append(error, " waits for rank %d%s, to %s message %d", p->peer,
					whereabouts(world, execs, p->peer),
					p->kind == CPA_FAKE_SEND ? "receive" : "send",
					p->order);
		}
}

static enum cpa_status explain_stuck(
	const struct cpa_fake_world *world, struct cpa_exec **execs, struct cpa_error *error)
{
	const char *between = "";
	char what[256];
	int left = 0;

	error->text[0] = '\0';
	for (int r = 0; r < world->P; r++)
		left += execs[r] && world->ranks[r].state != CPA_FAKE_FINISHED;
	append(error, "the run cannot go on, %d of %d ranks wait: ", left, world->P);
	for (int r = 0; r < world->P; r++) {
		if (!execs[r] || world->ranks[r].state == CPA_FAKE_FINISHED)
			continue;
		cpa_exec_waiting(execs[r], what, sizeof what);
		append(error, "%srank %d (%s)", between, r, what);
		explain_rank(world, execs, r, error);
		between = "; ";
	}
	return CPA_MISMATCH;
}

/* ---- what is left over ---- */

/* All ranks are through: nothing may be on its way to nobody. */
static enum cpa_status check_leftovers(
	const struct cpa_fake_world *world, struct cpa_error *error)
{
	for (const struct cpa_fake_channel *c = world->channels; c; c = c->next) {
		const struct cpa_fake_post *post = c->first;

		if (post && post->kind == CPA_FAKE_SEND)
			return cpa_fail(error, CPA_MISMATCH,
				"rank %d sent message %d (%zu bytes) to "
				"rank %d, which received only %d and never asked for it",
				c->src, post->order, post->nbytes, c->dst, c->nreceived);
		if (post)
			return cpa_fail(error, CPA_MISMATCH,
				"rank %d expects message %d (%zu bytes) "
				"from rank %d, which sent only %d",
				c->dst, post->order, post->nbytes, c->src, c->nsent);
	}
	for (int g = 0; g < world->ngroups; g++) {
		const struct cpa_fake_gather *gather = world->groups[g].gathers;

		if (gather)
			return cpa_fail(error, CPA_MISMATCH,
				"all-gather %d of communicator %d was "
				"called by %d of its %d members only",
				gather->order, g, gather->nposted, world->groups[g].nmembers);
	}
	return CPA_OK;
}

enum cpa_status cpa_fake_run(
	struct cpa_fake_world *world, struct cpa_exec **execs, struct cpa_error *error)
{
	struct temper temper = draw_temper(world);
	enum cpa_status status = CPA_OK;
	bool asleep = false;

	world->nready = 0;
	for (int r = 0; r < world->P; r++) {
		world->ranks[r].state = execs[r] ? CPA_FAKE_READY : CPA_FAKE_IDLE;
		if (execs[r])
			world->ready[world->nready++] = r;
	}
	while (world->status == CPA_OK && (world->nready || world->nlandings)) {
		if (lands_next(world, &temper))
			cpa_fake_land(world, cpa_random(&world->random) % world->nlandings);
		else
			status = step_one(world, execs, &temper, error);
		if (status != CPA_OK)
			return status;
	}
	if (world->status != CPA_OK) {
		*error = world->error;
		return world->status;
	}
	for (int r = 0; r < world->P; r++)
		asleep |= world->ranks[r].state == CPA_FAKE_ASLEEP;
	return asleep ? explain_stuck(world, execs, error) : check_leftovers(world, error);
}
