/*
 * fake_comm.c - P ranks in one process: communicators, posting of messages, the world.
 */
#include "sim/fake_comm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct cpa_fake_rank *rank_of(struct cpa_comm *comm)
{
	return (struct cpa_fake_rank *)comm;
}

/* ---- communicators ---- */

static bool same_members(const struct cpa_fake_group *group, int nmembers, const int *members)
{
	if (group->nmembers != nmembers)
		return false;
	for (int i = 0; i < nmembers; i++)
		if (cpa_fake_member(group, i) != members[i])
			return false;
	return true;
}

static int add_group(struct cpa_fake_world *world, int nmembers, const int *members)
{
	struct cpa_fake_group *groups =
		realloc(world->groups, (size_t)(world->ngroups + 1) * sizeof *groups);
	int *copy = malloc((size_t)nmembers * sizeof *copy);

	if (groups)
		world->groups = groups;
	if (!groups || !copy) {
		free(copy);
		return -1;
	}
	memcpy(copy, members, (size_t)nmembers * sizeof *copy);
	groups[world->ngroups] =
		(struct cpa_fake_group){ .nmembers = nmembers, .members = copy };
	return world->ngroups++;
}

/* The n-th time that a rank names a list it gets the n-th communicator of that list, as in MPI.
 */
static int find_group(struct cpa_fake_rank *rank, int nmembers, const int *members)
{
	struct cpa_fake_world *world = rank->world;
	int n = 0;

	for (int i = 1; i < rank->nids; i++)
		n += same_members(&world->groups[rank->ids[i].group], nmembers, members);
	for (int g = 1; g < world->ngroups; g++)
		if (same_members(&world->groups[g], nmembers, members) && n-- == 0)
			return g;
	return add_group(world, nmembers, members);
}

static enum cpa_status fake_subgroup(struct cpa_comm *comm, int nmembers, const int *members,
	int *id, struct cpa_error *error)
{
	struct cpa_fake_rank *rank = rank_of(comm);
	struct cpa_fake_id *ids;
	int self = -1, group;

	for (int i = 0; i < nmembers; i++) {
		if (members[i] < 0 || members[i] >= comm->size)
			return cpa_fail(error, CPA_INVALID,
				"rank %d: member %d of a communicator is "
				"rank %d; ranks are 0 to %d",
				comm->rank, i, members[i], comm->size - 1);
		if (members[i] == comm->rank)
			self = i;
	}
	if (self < 0)
		return cpa_fail(error, CPA_INVALID,
			"rank %d makes a communicator of %d ranks of which it is none",
			comm->rank, nmembers);
	group = find_group(rank, nmembers, members);
	ids = realloc(rank->ids, (size_t)(rank->nids + 1) * sizeof *ids);
	if (ids)
		rank->ids = ids;
	if (group < 0 || !ids)
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for a communicator of %d ranks", nmembers);
	ids[rank->nids] = (struct cpa_fake_id){ .group = group, .member = self };
	*id = rank->nids++;
	return CPA_OK;
}

/* ---- collecting a group ---- */

static void fake_group_begin(struct cpa_comm *comm, int queue)
{
	struct cpa_fake_rank *rank = rank_of(comm);
	struct cpa_request *request = cpa_arena_alloc(&rank->world->arena, sizeof *request);

	assert(!rank->open);
	rank->open = request;
	if (!request)
		return; /* the arena remembers; group_end tells */
	request->rank = comm->rank;
	request->queue = queue;
	request->last = &request->posts;
}

static struct cpa_fake_post *add_post(
	struct cpa_fake_rank *rank, enum cpa_fake_kind kind, int comm, size_t npieces)
{
	struct cpa_fake_world *world = rank->world;
	struct cpa_fake_post *post = cpa_arena_alloc(&world->arena, sizeof *post);
	struct cpa_piece *pieces = cpa_arena_alloc(&world->arena, npieces * sizeof *pieces);

	if (world->arena.failed)
		return NULL;
	assert(rank->open && comm >= 0 && comm < rank->nids);
	post->request = rank->open;
	post->kind = kind;
	post->rank = rank->comm.rank;
	post->group = rank->ids[comm].group;
	post->member = rank->ids[comm].member;
	post->pieces = pieces;
	*rank->open->last = post;
	rank->open->last = &post->next;
	return post;
}

static void add_message(struct cpa_comm *comm, enum cpa_fake_kind kind, int id, int peer,
	const struct cpa_piece *pieces, int n)
{
	struct cpa_fake_rank *rank = rank_of(comm);
	struct cpa_fake_post *post = add_post(rank, kind, id, (size_t)n);
	const struct cpa_fake_group *group;

	if (!post)
		return;
	group = &rank->world->groups[post->group];
	assert(peer >= 0 && peer < group->nmembers);
	post->peer = cpa_fake_member(group, peer);
	post->n = n;
	post->nbytes = cpa_fake_total(pieces, n);
	if (n)
		memcpy(post->pieces, pieces, (size_t)n * sizeof *pieces);
}

static void fake_send(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	add_message(comm, CPA_FAKE_SEND, id, peer, pieces, n);
}

static void fake_recv(
	struct cpa_comm *comm, int id, int peer, const struct cpa_piece *pieces, int n)
{
	add_message(comm, CPA_FAKE_RECV, id, peer, pieces, n);
}

static void fake_all_gather(struct cpa_comm *comm, int id, const struct cpa_piece *own,
	const struct cpa_piece *all, int n)
{
	struct cpa_fake_rank *rank = rank_of(comm);
	size_t nall = (size_t)n * (size_t)rank->world->groups[rank->ids[id].group].nmembers;
	struct cpa_fake_post *post = add_post(rank, CPA_FAKE_GATHER, id, (size_t)n + nall);

	if (!post)
		return;
	post->peer = -1;
	post->n = n;
	post->nbytes = cpa_fake_total(own, n);
	post->order = rank->ids[id].ngathers++;
	if (n) {
		memcpy(post->pieces, own, (size_t)n * sizeof *own);
		memcpy(post->pieces + n, all, nall * sizeof *all);
	}
}

/* ---- starting a group ---- */

/* How many landings end this post. */
static int64_t count_landings(
	const struct cpa_fake_world *world, const struct cpa_fake_post *post)
{
	int members = world->groups[post->group].nmembers;
	int64_t n = 0;

	if (post->kind == CPA_FAKE_RECV)
		return 1;
	if (post->kind == CPA_FAKE_SEND)
		return world->mode != CPA_FAKE_EAGER;
	for (int i = 0; i < members; i++)
		n += cpa_fake_moves(world, cpa_fake_total(cpa_fake_target(post, i), post->n));
	return n + (world->mode != CPA_FAKE_EAGER ? members - 1 : 0);
}

static void count_bytes(struct cpa_fake_rank *rank, const struct cpa_fake_post *post)
{
	int others = rank->world->groups[post->group].nmembers - 1;

	if (post->kind == CPA_FAKE_RECV)
		return;
	if (post->kind == CPA_FAKE_SEND)
		others = 1;
	rank->comm.bytes_sent += (int64_t)post->nbytes * others;
	rank->comm.messages += post->nbytes > 0 && others > 0;
}

static void poison(const struct cpa_fake_world *world, const struct cpa_fake_post *post)
{
	int members = post->kind == CPA_FAKE_GATHER ? world->groups[post->group].nmembers : 1;

	if (post->kind == CPA_FAKE_SEND || world->mode == CPA_FAKE_PLAIN)
		return;
	for (int m = 0; m < members; m++) {
		const struct cpa_piece *piece = cpa_fake_target(post, m);

		for (int i = 0; i < post->n; i++) {
			bool in_place = post->kind == CPA_FAKE_GATHER && m == post->member
				&& piece[i].data == post->pieces[i].data;

			if (piece[i].nbytes && !in_place)
				memset(piece[i].data, 0xff, piece[i].nbytes);
		}
	}
}

/* Eager: the bytes leave now. */
static void copy_away(struct cpa_fake_world *world, struct cpa_fake_post *post)
{
	struct cpa_fake_payload *payload;
	unsigned char *to;

	if (post->kind == CPA_FAKE_RECV || post->nbytes == 0)
		return;
	payload = malloc(sizeof *payload + post->nbytes);
	if (!payload) {
		cpa_fake_fail(world, CPA_NO_MEMORY, "out of memory for a message of %zu bytes",
			post->nbytes);
		return;
	}
	to = payload->data = (unsigned char *)(payload + 1);
	for (int i = 0; i < post->n; to += post->pieces[i++].nbytes)
		if (post->pieces[i].nbytes)
			memcpy(to, post->pieces[i].data, post->pieces[i].nbytes);
	payload->uses = post->kind == CPA_FAKE_GATHER ? world->groups[post->group].nmembers : 1;
	payload->link = &world->payloads;
	payload->next = world->payloads;
	if (payload->next)
		payload->next->link = &payload->next;
	world->payloads = payload;
	post->payload = payload;
}

/* All starts together: memory is poisoned before any of it is read. */
static enum cpa_status fake_group_end(
	struct cpa_comm *comm, struct cpa_request **out, struct cpa_error *error)
{
	struct cpa_fake_rank *rank = rank_of(comm);
	struct cpa_fake_world *world = rank->world;
	struct cpa_request *request = rank->open;

	rank->open = NULL;
	if (world->arena.failed)
		cpa_fake_fail(world, CPA_NO_MEMORY, "out of memory for messages");
	for (struct cpa_fake_post *p = request ? request->posts : NULL; p; p = p->next)
		cpa_fake_check_sizes(world, p);
	if (world->status != CPA_OK) {
		*error = world->error;
		return world->status;
	}
	for (struct cpa_fake_post *p = request->posts; p; p = p->next) {
		poison(world, p);
		count_bytes(rank, p);
		request->pending += count_landings(world, p);
	}
	if (request->pending) {
		request->next = rank->pending;
		rank->pending = request;
	}
	for (struct cpa_fake_post *p = request->posts; p; p = p->next)
		if (world->mode == CPA_FAKE_EAGER)
			copy_away(world, p);
	for (struct cpa_fake_post *p = request->posts; p; p = p->next)
		cpa_fake_meet(world, p);
	if (world->status != CPA_OK) {
		*error = world->error;
		return world->status;
	}
	*out = request;
	return CPA_OK;
}

/* ---- the table of functions ---- */

static enum cpa_progress fake_test(
	struct cpa_comm *comm, struct cpa_request *request, struct cpa_error *error)
{
	const struct cpa_fake_world *world = rank_of(comm)->world;

	if (world->status != CPA_OK) {
		*error = world->error;
		return CPA_FAILED;
	}
	return request->pending ? CPA_PENDING : CPA_DONE;
}

/* Requests live as long as the run, so that one may be freed after the world was reset. */
static void fake_request_free(struct cpa_comm *comm, struct cpa_request *request)
{
	(void)comm, (void)request;
}

static void fake_abort(struct cpa_comm *comm)
{
	cpa_fake_fail(
		rank_of(comm)->world, CPA_EXTERNAL, "rank %d aborted the run", comm->rank);
}

/* The world owns its ends. */
static void fake_destroy(struct cpa_comm *comm)
{
	(void)comm;
}

static const struct cpa_comm_ops fake_ops = {
	.name = "fake",
	.subgroup = fake_subgroup,
	.group_begin = fake_group_begin,
	.send = fake_send,
	.recv = fake_recv,
	.all_gather = fake_all_gather,
	.group_end = fake_group_end,
	.test = fake_test,
	.request_free = fake_request_free,
	.abort = fake_abort,
	.destroy = fake_destroy,
};

/* ---- the world ---- */

enum cpa_status cpa_fake_world_create(int P, enum cpa_fake_mode mode, uint64_t seed,
	struct cpa_fake_world **out, struct cpa_error *error)
{
	struct cpa_fake_world *world = calloc(1, sizeof *world);
	bool made = world != NULL;

	assert(P >= 1);
	if (made) {
		world->P = P;
		world->ranks = calloc((size_t)P, sizeof *world->ranks);
		world->ready = calloc((size_t)P, sizeof *world->ready);
		world->groups = calloc(1, sizeof *world->groups);
		made = world->ranks && world->ready && world->groups;
	}
	if (made) {
		world->groups[0].nmembers = P;
		world->ngroups = 1;
	}
	for (int r = 0; made && r < P; r++) {
		struct cpa_fake_rank *rank = &world->ranks[r];

		rank->comm = (struct cpa_comm){ .ops = &fake_ops, .rank = r, .size = P };
		rank->world = world;
		rank->ids = calloc(1, sizeof *rank->ids);
		made = rank->ids != NULL;
		if (made)
			rank->ids[rank->nids++].member = r;
	}
	if (!made) {
		cpa_fake_world_destroy(world);
		return cpa_fail(
			error, CPA_NO_MEMORY, "out of memory for a world of %d ranks", P);
	}
	cpa_arena_init(&world->arena);
	cpa_fake_world_reset(world, mode, seed);
	*out = world;
	return CPA_OK;
}

static void free_payloads(struct cpa_fake_world *world)
{
	for (struct cpa_fake_payload *p = world->payloads, *next; p; p = next) {
		next = p->next;
		free(p);
	}
	world->payloads = NULL;
}

void cpa_fake_world_destroy(struct cpa_fake_world *world)
{
	if (!world)
		return;
	free_payloads(world);
	for (int r = 0; world->ranks && r < world->P; r++)
		free(world->ranks[r].ids);
	for (int g = 1; g < world->ngroups; g++)
		free(world->groups[g].members);
	free(world->ranks);
	free(world->ready);
	free(world->groups);
	free(world->table);
	free(world->landings);
	cpa_arena_fini(&world->arena);
	free(world);
}

struct cpa_comm *cpa_fake_world_comm(struct cpa_fake_world *world, int rank)
{
	assert(rank >= 0 && rank < world->P);
	return &world->ranks[rank].comm;
}

void cpa_fake_world_reset(struct cpa_fake_world *world, enum cpa_fake_mode mode, uint64_t seed)
{
	free_payloads(world);
	cpa_arena_fini(&world->arena);
	cpa_arena_init(&world->arena);
	if (world->table)
		memset(world->table, 0, world->table_size * sizeof *world->table);
	world->channels = NULL;
	world->nchannels = world->nlandings = 0;
	world->nready = 0;
	for (int g = 0; g < world->ngroups; g++)
		world->groups[g].gathers = NULL;
	for (int r = 0; r < world->P; r++) {
		struct cpa_fake_rank *rank = &world->ranks[r];

		rank->comm.bytes_sent = rank->comm.messages = 0;
		rank->open = rank->pending = NULL;
		rank->state = CPA_FAKE_IDLE;
		for (int i = 0; i < rank->nids; i++)
			rank->ids[i].ngathers = 0;
	}
	world->status = CPA_OK;
	world->error.text[0] = '\0';
	world->mode = mode;
	world->random = seed;
}
