/*
 * comm_collect.c - messages and all-gathers as lists of operations whose counts fit an int.
 */
#include "dist/comm_collect.h"
#include "dist/comm_shared.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void cpa_transfers_init(struct cpa_transfers *list, size_t chunk_nbytes)
{
	*list = (struct cpa_transfers){.chunk_nbytes = chunk_nbytes};
	list->last = &list->first;
	cpa_arena_init(&list->arena);
}

void cpa_transfers_fini(struct cpa_transfers *list)
{
	for (struct cpa_transfer *t = list->first; t; t = t->next)
		if (t->targets)
			free(t->data);
	cpa_arena_fini(&list->arena);
}

static struct cpa_transfer *add(struct cpa_transfers *list, enum cpa_transfer_kind kind,
	const struct cpa_comm_group *group)
{
	struct cpa_transfer *transfer = cpa_arena_alloc(&list->arena, sizeof *transfer);

	if (!transfer)
		return NULL;
	transfer->kind = kind;
	transfer->comm = group->id;
	*list->last = transfer;
	list->last = &transfer->next;
	list->n++;
	return transfer;
}

static void add_piece(struct cpa_transfers *list, enum cpa_transfer_kind kind,
	const struct cpa_comm_group *group, int peer, enum cpa_transfer_tag tag,
	const struct cpa_piece *piece)
{
	for (size_t at = 0; at < piece->nbytes; at += list->chunk_nbytes) {
		struct cpa_transfer *transfer = add(list, kind, group);
		size_t left = piece->nbytes - at;

		if (!transfer)
			return;
		transfer->peer = peer;
		transfer->rank = cpa_comm_group_rank(group, peer);
		transfer->tag = tag;
		transfer->data = (char *)piece->data + at;
		transfer->nbytes = left < list->chunk_nbytes ? left : list->chunk_nbytes;
	}
}

static size_t total(const struct cpa_piece *pieces, int n, int step)
{
	size_t nbytes = 0;

	for (int i = 0; i < n; i++)
		nbytes += pieces[i * step].nbytes;
	return nbytes;
}

size_t cpa_transfers_message(struct cpa_transfers *list, enum cpa_transfer_kind kind,
	const struct cpa_comm_group *group, int peer, const struct cpa_piece *pieces, int n)
{
	for (int i = 0; i < n; i++)
		add_piece(list, kind, group, peer, CPA_TAG_MESSAGE, &pieces[i]);
	return total(pieces, n, 1);
}

/* ---- all-gathers ---- */

/* One piece of each member, `step` apart. */
struct gather {
	struct cpa_transfers *list;
	const struct cpa_comm_group *group;
	int nmembers, self, step;
	const struct cpa_piece *own, *all;
};

static void as_messages(const struct gather *g)
{
	void *to = g->all[g->self * g->step].data;

	for (int m = 0; m < g->nmembers; m++)
		if (m != g->self)
			add_piece(g->list, CPA_TRANSFER_RECV, g->group, m, CPA_TAG_GATHER,
				&g->all[m * g->step]);
	for (int m = 0; m < g->nmembers; m++)
		if (m != g->self)
			add_piece(g->list, CPA_TRANSFER_SEND, g->group, m, CPA_TAG_GATHER, g->own);
	if (g->own->nbytes && to != g->own->data)
		memmove(to, g->own->data, g->own->nbytes);
}

/* Displacements from the share that lies lowest.  False: they are beyond an int. */
static bool lay_out(const struct gather *g, struct cpa_transfer *t)
{
	char *low = NULL;

	for (int m = 0; m < g->nmembers; m++) {
		char *data = g->all[m * g->step].data;

		if (g->all[m * g->step].nbytes && (!low || data < low))
			low = data;
	}
	for (int m = 0; m < g->nmembers; m++) {
		const struct cpa_piece *piece = &g->all[m * g->step];
		ptrdiff_t offset = piece->nbytes ? (char *)piece->data - low : 0;

		if (offset > INT_MAX)
			return false;
		t->displacements[m] = (int)offset;
	}
	t->data = low;
	return true;
}

/* Shares one behind the other in memory of our own. */
static void stage(const struct gather *g, struct cpa_transfer *t, size_t sum)
{
	struct cpa_piece *targets = cpa_arena_alloc(
		&g->list->arena, (size_t)g->nmembers * sizeof *targets);
	size_t at = 0;

	if (!targets)
		return;
	for (int m = 0; m < g->nmembers; m++) {
		targets[m] = g->all[m * g->step];
		t->displacements[m] = (int)at;
		at += targets[m].nbytes;
	}
	t->own = g->own->data;
	t->data = malloc(sum);
	t->targets = targets;
	if (!t->data)
		g->list->arena.failed = true;
}

static void add_gather(const struct gather *g)
{
	size_t sum = total(g->all, g->nmembers, g->step),
	       size = (size_t)g->nmembers * sizeof(int);
	struct cpa_transfer *t;

	if (sum == 0)
		return;
	if (sum > g->list->chunk_nbytes ||
		(g->group->near && sum > (size_t)g->nmembers * CPA_SHARED_LEAST)) {
		as_messages(g);
		return;
	}
	t = add(g->list, CPA_TRANSFER_GATHER, g->group);
	if (!t)
		return;
	t->nmembers = g->nmembers;
	t->counts = cpa_arena_alloc(&g->list->arena, size);
	t->displacements = cpa_arena_alloc(&g->list->arena, size);
	if (!t->counts || !t->displacements)
		return;
	for (int m = 0; m < g->nmembers; m++)
		t->counts[m] = (int)g->all[m * g->step].nbytes;
	t->nbytes = g->own->nbytes;
	t->own = g->own->data == g->all[g->self * g->step].data ? NULL : g->own->data;
	if (!lay_out(g, t))
		stage(g, t, sum);
}

size_t cpa_transfers_gather(struct cpa_transfers *list, const struct cpa_comm_group *group,
	const struct cpa_piece *own, const struct cpa_piece *all, int n)
{
	for (int k = 0; k < n; k++)
		add_gather(&(struct gather){list, group, group->nmembers, group->self, n,
			&own[k], &all[k]});
	return total(own, n, 1);
}

void cpa_transfer_deliver(const struct cpa_transfer *t)
{
	for (int m = 0; t->targets && m < t->nmembers; m++)
		if (t->targets[m].nbytes && t->targets[m].data != t->own)
			memcpy(t->targets[m].data, t->data + t->displacements[m],
				t->targets[m].nbytes);
}

void cpa_transfer_fail(
	const struct cpa_transfer *t, int rank, const char *what, struct cpa_error *error)
{
	bool sends = t->kind == CPA_TRANSFER_SEND;

	if (t->kind == CPA_TRANSFER_GATHER)
		cpa_fail(error, CPA_EXTERNAL,
			"rank %d, all-gather of communicator %d (%zu bytes of its own): %s", rank,
			t->comm, t->nbytes, what);
	else
		cpa_fail(error, CPA_EXTERNAL,
			"rank %d %s %zu bytes %s rank %d in communicator %d: %s", rank,
			sends ? "sends" : "expects", t->nbytes, sends ? "to" : "from", t->rank,
			t->comm, what);
}

/* ---- subgroups ---- */

int cpa_comm_group_rank(const struct cpa_comm_group *group, int member)
{
	return group->members ? group->members[member] : member;
}

static bool is_group(const struct cpa_comm_group *group, int nmembers, const int *members)
{
	if (group->nmembers != nmembers)
		return false;
	for (int i = 0; i < nmembers; i++)
		if (cpa_comm_group_rank(group, i) != members[i])
			return false;
	return true;
}

int cpa_comm_group_find(
	const struct cpa_comm_group *groups, int n, int nmembers, const int *members)
{
	for (int g = 1; g < n; g++)
		if (is_group(&groups[g], nmembers, members))
			return g;
	return 0;
}

enum cpa_status cpa_comm_group_init(struct cpa_comm_group *group, const struct cpa_comm *comm,
	int nmembers, const int *members, struct cpa_error *error)
{
	*group = (struct cpa_comm_group){.nmembers = nmembers, .self = -1};
	for (int i = 0; i < nmembers; i++) {
		if (members[i] < 0 || members[i] >= comm->size)
			return cpa_fail(error, CPA_INVALID,
				"rank %d: member %d of a communicator is rank %d; ranks are 0 to "
				"%d",
				comm->rank, i, members[i], comm->size - 1);
		if (members[i] == comm->rank)
			group->self = i;
	}
	if (group->self < 0)
		return cpa_fail(error, CPA_INVALID,
			"rank %d makes a communicator of %d ranks of which it is none",
			comm->rank, nmembers);
	group->members = malloc((size_t)nmembers * sizeof *members);
	if (!group->members)
		return cpa_fail(error, CPA_NO_MEMORY,
			"out of memory for a communicator of %d ranks", nmembers);
	memcpy(group->members, members, (size_t)nmembers * sizeof *members);
	return CPA_OK;
}
