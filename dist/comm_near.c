/*
 * comm_near.c - who reads whose memory, and messages that are read there.
 */
#include "dist/comm_near.h"
#include "dist/comm_shared.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	MOST_WINDOWS = 64, /* to one process, less those in use */
	MOST_OPEN = 128 /* processes; each is an open file */
};

/* A part of another's memory. */
struct cpa_near_window {
	struct cpa_near_window *next;
	uint64_t offset;
	size_t nbytes;
	char *memory;
	int nusers;
};

struct peer {
	int fd; /* -1: closed */
	struct cpa_shared_front *front;
	struct cpa_near_window *windows; /* the one used last comes first */
};

struct cpa_near {
	int rank, nranks, nopen;
	cpa_near_copier *copy;
	bool shares;
	bool *reach; /* [nranks, nranks] the first reads the memory of the second */
	struct peer *peers; /* [nranks] */
	int free_flags[CPA_SHARED_FLAGS], nfree; /* more messages on their way go as they are */
	struct cpa_shared shared;
};

/* What others need to open the memory of a process; pid 0: it has none. */
struct name {
	uint64_t token[2];
	int64_t pid;
	int fd;
};

/* ---- meeting ---- */

static void leave(struct peer *peer)
{
	for (struct cpa_near_window *w = peer->windows, *next; w; w = next) {
		next = w->next;
		munmap(w->memory, w->nbytes);
		free(w);
	}
	if (peer->front)
		munmap(peer->front, cpa_shared_front_nbytes());
	if (peer->fd >= 0)
		close(peer->fd);
	*peer = (struct peer){.fd = -1};
}

/* The number of a process may mean another one here: what is no file of ours is not opened, and
 * the token tells whose it is. */
static bool join(struct cpa_near *near, int rank, const struct name *name)
{
	struct peer *peer = &near->peers[rank];
	char path[64], file[64] = "";
	size_t nbytes = cpa_shared_front_nbytes();

	if (name->pid == 0 || near->nopen == MOST_OPEN)
		return false;
	snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)name->pid, name->fd);
	if (readlink(path, file, sizeof file - 1) < 0 || !strstr(file, CPA_SHARED_FILE))
		return false;
	peer->fd = open(path, O_RDWR | O_CLOEXEC);
	if (peer->fd >= 0 && lseek(peer->fd, 0, SEEK_END) >= (off_t)nbytes)
		peer->front = cpa_shared_map(peer->fd, 0, nbytes, true);
	if (peer->front && memcmp(peer->front->token, name->token, sizeof name->token) == 0) {
		near->nopen++;
		return true;
	}
	leave(peer);
	return false;
}

/* Both gathers are made by all ranks, come what may. */
static enum cpa_status meet(struct cpa_near *near, struct name *names, bool *row,
	cpa_near_gather *gather, struct cpa_error *error)
{
	struct name own = {.fd = -1};
	size_t n = (size_t)near->nranks;
	enum cpa_status status;

	if (near->shares) {
		memcpy(own.token, near->shared.front->token, sizeof own.token);
		own.pid = getpid();
		own.fd = near->shared.fd;
	}
	status = gather(&own, sizeof own, names, error);
	for (int r = 0; near->shares && status == CPA_OK && r < near->nranks; r++)
		row[r] = r != near->rank && join(near, r, &names[r]);
	return status == CPA_OK ? gather(row, n * sizeof *row, near->reach, error) : status;
}

enum cpa_status cpa_near_meet(int rank, int nranks, cpa_near_copier *copy,
	cpa_near_gather *gather, struct cpa_near **out, struct cpa_error *error)
{
	struct cpa_near *near = calloc(1, sizeof *near);
	size_t n = (size_t)nranks;
	struct name *names = calloc(n, sizeof *names);
	bool *row = calloc(n, sizeof *row);
	const char *asked = getenv("CPATTN_SHARE");
	enum cpa_status status;

	*out = near;
	if (near) {
		near->rank = rank;
		near->nranks = nranks;
		near->copy = copy;
		near->peers = calloc(n, sizeof *near->peers);
		near->reach = calloc(n * n, sizeof *near->reach);
		for (int i = 0; near->peers && i < nranks; i++)
			near->peers[i].fd = -1;
		while (near->nfree < CPA_SHARED_FLAGS) {
			near->free_flags[near->nfree] = near->nfree;
			near->nfree++;
		}
		near->shares = nranks > 1 && !(asked && strcmp(asked, "0") == 0) &&
			cpa_shared_open(&near->shared);
	}
	if (!near || !near->peers || !near->reach || !names || !row)
		status = cpa_fail(error, CPA_NO_MEMORY, "out of memory for %d ranks", nranks);
	else
		status = nranks > 1 ? meet(near, names, row, gather, error) : CPA_OK;
	free(names);
	free(row);
	return status;
}

void cpa_near_destroy(struct cpa_near *near)
{
	if (!near)
		return;
	for (int i = 0; near->peers && i < near->nranks; i++)
		leave(&near->peers[i]);
	if (near->shares)
		cpa_shared_close(&near->shared);
	free(near->peers);
	free(near->reach);
	free(near);
}

static bool both_reach(const struct cpa_near *near, int a, int b)
{
	return near->reach[a * near->nranks + b] && near->reach[b * near->nranks + a];
}

bool cpa_near_group(const struct cpa_near *near, const struct cpa_comm_group *group)
{
	bool are = group->nmembers > 1;

	for (int i = 0; i < group->nmembers; i++)
		for (int k = 0; are && k < i; k++)
			are = both_reach(near, cpa_comm_group_rank(group, i),
				cpa_comm_group_rank(group, k));
	return are;
}

const struct cpa_host_memory *cpa_near_memory(struct cpa_near *near)
{
	return near->shares ? &near->shared.memory : NULL;
}

/* ---- windows ---- */

/* Those that nobody uses, but for the last ones. */
static void close_windows(struct peer *peer)
{
	struct cpa_near_window **link = &peer->windows;

	for (int n = 0; *link; n++) {
		struct cpa_near_window *window = *link;

		if (n < MOST_WINDOWS || window->nusers > 0) {
			link = &window->next;
			continue;
		}
		*link = window->next;
		munmap(window->memory, window->nbytes);
		free(window);
	}
}

static struct cpa_near_window *open_window(struct peer *peer, uint64_t offset, size_t nbytes)
{
	struct cpa_near_window **link = &peer->windows, *window;

	while (*link && ((*link)->offset != offset || (*link)->nbytes != nbytes))
		link = &(*link)->next;
	window = *link;
	if (window) {
		*link = window->next;
	} else {
		window = calloc(1, sizeof *window);
		if (!window)
			return NULL;
		window->memory = cpa_shared_map(peer->fd, offset, nbytes, false);
		if (!window->memory) {
			free(window);
			return NULL;
		}
		window->offset = offset;
		window->nbytes = nbytes;
	}
	window->next = peer->windows;
	peer->windows = window;
	close_windows(peer);
	return window;
}

/* ---- messages ---- */

bool cpa_near_offer(struct cpa_near *near, int rank, const void *data, size_t nbytes,
	struct cpa_near_move *move)
{
	const struct cpa_shared_part *part;
	struct cpa_near_note *note = &move->note;

	if (nbytes < CPA_SHARED_LEAST || !both_reach(near, near->rank, rank) || near->nfree == 0)
		return false;
	part = cpa_shared_find(&near->shared, data);
	if (!part)
		return false;
	memset(note, 0, sizeof *note); /* what lies between its members too: all of it is sent */
	memcpy(note->token, near->shared.front->token, sizeof note->token);
	note->nbytes = nbytes;
	note->part = part->offset;
	note->part_nbytes = part->nbytes;
	note->at = (uint64_t)((const char *)data - part->memory);
	note->flag = (uint32_t)near->free_flags[--near->nfree];
	atomic_store(&near->shared.front->flags[note->flag].up, 0); /* and all data before it */
	move->offered = true;
	return true;
}

bool cpa_near_taken(struct cpa_near *near, struct cpa_near_move *move)
{
	if (!atomic_load_explicit(
		    &near->shared.front->flags[move->note.flag].up, memory_order_acquire))
		return false;
	near->free_flags[near->nfree++] = (int)move->note.flag;
	move->offered = move->sent = false;
	return true;
}

bool cpa_near_is_note(const struct cpa_near *near, int rank, const void *data, size_t nbytes)
{
	return nbytes == sizeof(struct cpa_near_note) && both_reach(near, near->rank, rank) &&
		memcmp(data, near->peers[rank].front->token, sizeof(uint64_t[2])) == 0;
}

static void raise_flag(struct cpa_near *near, int rank, struct cpa_near_move *move)
{
	atomic_store(&near->peers[rank].front->flags[move->note.flag].up, 1);
	move->from = NULL;
}

enum cpa_status cpa_near_accept(struct cpa_near *near, int rank, const void *data,
	size_t expected, struct cpa_near_move *move)
{
	struct cpa_near_note *note = &move->note;

	memcpy(note, data, sizeof *note);
	if (note->nbytes == expected)
		move->window = open_window(&near->peers[rank], note->part, note->part_nbytes);
	if (!move->window) {
		raise_flag(near, rank, move);
		return CPA_EXTERNAL;
	}
	move->window->nusers++;
	move->from = move->window->memory + note->at;
	move->at = 0;
	return CPA_OK;
}

bool cpa_near_copy(
	struct cpa_near *near, int rank, void *data, struct cpa_near_move *move, size_t *budget)
{
	size_t left = move->note.nbytes - move->at, n = left < *budget ? left : *budget;

	near->copy((char *)data + move->at, move->from + move->at, n, move->note.nbytes);
	move->at += n;
	*budget -= n;
	if (n < left)
		return false;
	move->window->nusers--;
	raise_flag(near, rank, move);
	return true;
}
