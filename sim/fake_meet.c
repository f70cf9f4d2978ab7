/*
 * fake_meet.c - how messages of the fake communicator meet, what both sides must agree on, and
 * landing.
 *
 * A message moves only in cpa_fake_land(), which fake_run.c calls when the seed says so.  Until
 * then the receiver's memory is poison and (rendezvous) the sender's is still to be read, so
 * that whoever reads or writes too early shows.
 */
#include "sim/fake_comm.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cpa_fake_fail(
	struct cpa_fake_world *world, enum cpa_status status, const char *format, ...)
{
	va_list arguments;

	if (world->status != CPA_OK)
		return;
	world->status = status;
	va_start(arguments, format);
	vsnprintf(world->error.text, sizeof world->error.text, format, arguments);
	va_end(arguments);
}

int cpa_fake_member(const struct cpa_fake_group *group, int member)
{
	return group->members ? group->members[member] : member;
}

size_t cpa_fake_total(const struct cpa_piece *pieces, int n)
{
	size_t nbytes = 0;

	for (int i = 0; i < n; i++)
		nbytes += pieces[i].nbytes;
	return nbytes;
}

/* Where the pieces of `member` go in an all-gather of this rank; of a recv: its pieces. */
struct cpa_piece *cpa_fake_target(const struct cpa_fake_post *dst, int member)
{
	size_t skip = (size_t)dst->n * (size_t)(member + 1);

	return dst->pieces + (dst->kind == CPA_FAKE_GATHER ? skip : 0);
}

/* Rendezvous: every member meets every other, even to move nothing.  Eager: only bytes count.
 */
bool cpa_fake_moves(const struct cpa_fake_world *world, size_t nbytes)
{
	return world->mode != CPA_FAKE_EAGER || nbytes > 0;
}

/* ---- what both sides must agree on ---- */

void cpa_fake_check_sizes(struct cpa_fake_world *world, const struct cpa_fake_post *post)
{
	static const char *const verb[] = { "sends to", "expects from" };
	int members = world->groups[post->group].nmembers;

	if (post->kind == CPA_FAKE_GATHER) {
		if (cpa_fake_total(post->pieces + post->n, post->n * members) == 0)
			cpa_fake_fail(world, CPA_MISMATCH,
				"rank %d calls an all-gather of communicator %d "
				"in which every count is zero; such a call must be left out",
				post->rank, post->group);
		return;
	}
	for (int i = 0; i < post->n; i++)
		if (post->pieces[i].nbytes == 0)
			cpa_fake_fail(world, CPA_MISMATCH,
				"rank %d %s rank %d a piece (number %d) of 0 "
				"bytes; empty pieces must be left out",
				post->rank, verb[post->kind], post->peer, i);
	if (post->n == 0)
		cpa_fake_fail(world, CPA_MISMATCH,
			"rank %d %s rank %d a message of 0 bytes; empty "
			"messages must be left out",
			post->rank, verb[post->kind], post->peer);
}

static void check_pair(struct cpa_fake_world *world, const struct cpa_fake_post *src,
	const struct cpa_fake_post *dst)
{
	const char *what = src->kind == CPA_FAKE_GATHER ? "all-gather" : "message";
	const struct cpa_piece *want = cpa_fake_target(dst, src->member);

	if (src->n != dst->n) {
		cpa_fake_fail(world, CPA_MISMATCH,
			"%s %d of communicator %d: rank %d sends %d pieces "
			"(%zu bytes), rank %d expects %d (%zu bytes)",
			what, src->order, src->group, src->rank, src->n, src->nbytes, dst->rank,
			dst->n, cpa_fake_total(want, dst->n));
		return;
	}
	for (int i = 0; i < src->n; i++) {
		const struct cpa_piece *have = &src->pieces[i];

		if (have->nbytes != want[i].nbytes
			|| (have->dtype != want[i].dtype && have->nbytes))
			cpa_fake_fail(world, CPA_MISMATCH,
				"%s %d of communicator %d: in piece %d rank %d "
				"sends %zu bytes of %s, rank %d expects %zu bytes of %s",
				what, src->order, src->group, i, src->rank, have->nbytes,
				cpa_dtype_name(have->dtype), dst->rank, want[i].nbytes,
				cpa_dtype_name(want[i].dtype));
	}
}

/* ---- meeting ---- */

static void add_landing(
	struct cpa_fake_world *world, struct cpa_fake_post *src, struct cpa_fake_post *dst)
{
	if (world->nlandings == world->landing_capacity) {
		size_t capacity = 2 * world->landing_capacity + 64;
		struct cpa_fake_landing *more =
			realloc(world->landings, capacity * sizeof *more);

		if (!more) {
			cpa_fake_fail(world, CPA_NO_MEMORY,
				"out of memory for messages on their way");
			return;
		}
		world->landings = more;
		world->landing_capacity = capacity;
	}
	world->landings[world->nlandings++] = (struct cpa_fake_landing){ src, dst };
}

static size_t hash(int group, int src, int dst)
{
	uint64_t key = ((uint64_t)group << 40) ^ ((uint64_t)src << 20) ^ (uint64_t)dst;

	return (size_t)cpa_random(&key);
}

static bool grow_table(struct cpa_fake_world *world)
{
	size_t size = world->table_size ? 2 * world->table_size : 256;
	struct cpa_fake_channel **table = calloc(size, sizeof *table);

	if (!table)
		return false;
	for (struct cpa_fake_channel *c = world->channels; c; c = c->next) {
		size_t i = hash(c->group, c->src, c->dst) & (size - 1);

		while (table[i])
			i = (i + 1) & (size - 1);
		table[i] = c;
	}
	free(world->table);
	world->table = table;
	world->table_size = size;
	return true;
}

/* The channel, made when it is new; NULL when out of memory. */
static struct cpa_fake_channel *find_channel(
	struct cpa_fake_world *world, int group, int src, int dst)
{
	struct cpa_fake_channel *c;
	size_t i;

	if (2 * world->nchannels >= world->table_size && !grow_table(world))
		return NULL;
	i = hash(group, src, dst) & (world->table_size - 1);
	for (; (c = world->table[i]); i = (i + 1) & (world->table_size - 1))
		if (c->group == group && c->src == src && c->dst == dst)
			return c;
	c = cpa_arena_alloc(&world->arena, sizeof *c);
	if (!c)
		return NULL;
	*c = (struct cpa_fake_channel){ world->channels, group, src, dst, 0, 0, NULL,
		&c->first };
	world->channels = world->table[i] = c;
	world->nchannels++;
	return c;
}

static void meet_message(struct cpa_fake_world *world, struct cpa_fake_post *post)
{
	bool send = post->kind == CPA_FAKE_SEND;
	struct cpa_fake_channel *channel = find_channel(world, post->group,
		send ? post->rank : post->peer, send ? post->peer : post->rank);
	struct cpa_fake_post *other;

	if (!channel) {
		cpa_fake_fail(world, CPA_NO_MEMORY, "out of memory for a message");
		return;
	}
	post->order = send ? channel->nsent++ : channel->nreceived++;
	other = channel->first;
	if (!other || other->kind == post->kind) {
		*channel->last = post;
		channel->last = &post->behind;
		return;
	}
	channel->first = other->behind;
	if (!channel->first)
		channel->last = &channel->first;
	post->met = other->met = true;
	check_pair(world, send ? post : other, send ? other : post);
	add_landing(world, send ? post : other, send ? other : post);
}

static struct cpa_fake_gather *find_gather(struct cpa_fake_world *world, int group, int order)
{
	struct cpa_fake_gather **link = &world->groups[group].gathers;
	size_t nmembers = (size_t)world->groups[group].nmembers;
	struct cpa_fake_gather *gather;

	for (; *link; link = &(*link)->next)
		if ((*link)->order == order)
			return *link;
	gather = cpa_arena_alloc(&world->arena, sizeof *gather);
	if (!gather)
		return NULL;
	gather->order = order;
	gather->posts = cpa_arena_alloc(&world->arena, nmembers * sizeof *gather->posts);
	if (!gather->posts)
		return NULL;
	return *link = gather;
}

static void meet_gather(struct cpa_fake_world *world, struct cpa_fake_post *post)
{
	struct cpa_fake_group *group = &world->groups[post->group];
	struct cpa_fake_gather *gather = find_gather(world, post->group, post->order);
	struct cpa_fake_gather **link = &group->gathers;

	if (!gather) {
		cpa_fake_fail(world, CPA_NO_MEMORY, "out of memory for an all-gather");
		return;
	}
	post->gather = gather;
	gather->posts[post->member] = post;
	gather->nposted++;
	for (int i = 0; i < group->nmembers; i++) {
		struct cpa_fake_post *other = gather->posts[i];

		if (!other)
			continue;
		check_pair(world, other, post);
		if (other != post)
			check_pair(world, post, other);
		if (cpa_fake_moves(world, other->nbytes))
			add_landing(world, other, post);
		if (other != post && cpa_fake_moves(world, post->nbytes))
			add_landing(world, post, other);
	}
	if (gather->nposted < group->nmembers)
		return;
	while (*link != gather)
		link = &(*link)->next;
	*link = gather->next;
}

void cpa_fake_meet(struct cpa_fake_world *world, struct cpa_fake_post *post)
{
	if (post->kind == CPA_FAKE_GATHER)
		meet_gather(world, post);
	else
		meet_message(world, post);
}

static void release(struct cpa_fake_payload *payload)
{
	if (!payload || --payload->uses > 0)
		return;
	*payload->link = payload->next;
	if (payload->next)
		payload->next->link = payload->link;
	free(payload);
}

/* ---- landing ---- */

static void finish_one(struct cpa_fake_world *world, struct cpa_request *request)
{
	struct cpa_fake_rank *rank = &world->ranks[request->rank];
	struct cpa_request **link = &rank->pending;

	assert(request->pending > 0);
	if (--request->pending)
		return;
	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (rank->state == CPA_FAKE_ASLEEP) {
		rank->state = CPA_FAKE_READY;
		world->ready[world->nready++] = request->rank;
	}
}

void cpa_fake_land(struct cpa_fake_world *world, size_t i)
{
	struct cpa_fake_post *src = world->landings[i].src, *dst = world->landings[i].dst;
	const struct cpa_piece *to = cpa_fake_target(dst, src->member);
	const unsigned char *from = src->payload ? src->payload->data : NULL;

	world->landings[i] = world->landings[--world->nlandings];
	for (int k = 0; k < src->n; k++) {
		size_t nbytes = src->pieces[k].nbytes;
		const void *data = from ? (const void *)from : src->pieces[k].data;

		if (nbytes && to[k].data != data)
			memcpy(to[k].data, data, nbytes);
		if (from)
			from += nbytes;
	}
	release(src->payload);
	finish_one(world, dst->request);
	if (world->mode != CPA_FAKE_EAGER && src != dst)
		finish_one(world, src->request);
}
