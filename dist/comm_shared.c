/*
 * comm_shared.c - memory of this process that others of the machine can read.
 */
#ifdef __linux__
#define _GNU_SOURCE /* memfd_create, fallocate, MAP_POPULATE */
#endif
#include "dist/comm_shared.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const size_t most_kept = (size_t)256 << 20;
static_assert(ATOMIC_INT_LOCK_FREE == 2, "flags are shared between processes");

/* ---- the system ---- */

#ifdef __linux__
/* -1: none can be had. */
static int make_file(void)
{
	return memfd_create(CPA_SHARED_FILE, MFD_CLOEXEC);
}

/* Pages are had now, since one that is missing later ends the process; as does a file that grows
 * beyond what the shell allows (ulimit -f). */
static bool reserve(int fd, uint64_t offset, size_t nbytes)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
		offset + nbytes > most.rlim_cur)
		return false;
	return fallocate(fd, 0, (off_t)offset, (off_t)nbytes) == 0;
}

/* Gives pages back; who still has them mapped sees zeros. */
static void punch(int fd, uint64_t offset, size_t nbytes)
{
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)nbytes);
}
#else
enum { MAP_POPULATE = 0 };

static int make_file(void)
{
	return -1;
}

static bool reserve(int fd, uint64_t offset, size_t nbytes)
{
	(void)fd;
	(void)offset;
	(void)nbytes;
	return false;
}

static void punch(int fd, uint64_t offset, size_t nbytes)
{
	(void)reserve(fd, offset, nbytes);
}
#endif

void *cpa_shared_map(int fd, uint64_t offset, size_t nbytes, bool to_write)
{
	void *memory = mmap(NULL, nbytes, to_write ? PROT_READ | PROT_WRITE : PROT_READ,
		MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);

	return memory == MAP_FAILED ? NULL : memory;
}

static size_t whole_pages(size_t nbytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (nbytes + page - 1) / page * page;
}

size_t cpa_shared_front_nbytes(void)
{
	return whole_pages(sizeof(struct cpa_shared_front));
}

/* ---- parts ---- */

/* Room in the file is not used twice, so that no window of another shows what is not there. */
static void *new_part(struct cpa_shared *shared, size_t nbytes)
{
	struct cpa_shared_part *parts = realloc(
		shared->parts, (size_t)(shared->nparts + 1) * sizeof *shared->parts);
	struct cpa_shared_part part = {.offset = shared->end, .nbytes = nbytes, .used = true};

	if (!parts)
		return NULL;
	shared->parts = parts;
	if (!reserve(shared->fd, part.offset, nbytes))
		return NULL;
	shared->end += nbytes;
	part.memory = cpa_shared_map(shared->fd, part.offset, nbytes, true);
	if (!part.memory) {
		punch(shared->fd, part.offset, nbytes);
		return NULL;
	}
	parts[shared->nparts++] = part;
	return part.memory;
}

/* The smallest part that was given back and holds this, unless most of it would lie idle. */
static void *take(void *context, size_t nbytes)
{
	struct cpa_shared *shared = context;
	size_t need = whole_pages(nbytes);
	struct cpa_shared_part *best = NULL;

	if (nbytes < CPA_SHARED_LEAST || need < nbytes)
		return NULL;
	for (int i = 0; i < shared->nparts; i++) {
		struct cpa_shared_part *part = &shared->parts[i];

		if (!part->used && part->nbytes >= need && part->nbytes / 2 <= need &&
			(!best || part->nbytes < best->nbytes))
			best = part;
	}
	if (!best)
		return new_part(shared, need);
	best->used = true;
	shared->kept -= best->nbytes;
	return best->memory;
}

static void release(struct cpa_shared *shared, int i)
{
	struct cpa_shared_part *part = &shared->parts[i];

	munmap(part->memory, part->nbytes);
	punch(shared->fd, part->offset, part->nbytes);
	shared->kept -= part->used ? 0 : part->nbytes;
	memmove(part, part + 1, (size_t)(shared->nparts - i - 1) * sizeof *part);
	shared->nparts--;
}

static void give(void *context, void *memory)
{
	struct cpa_shared *shared = context;

	for (int i = 0; i < shared->nparts; i++)
		if (shared->parts[i].memory == memory) {
			assert(shared->parts[i].used);
			shared->parts[i].used = false;
			shared->kept += shared->parts[i].nbytes;
		}
	for (int i = 0; i < shared->nparts && shared->kept > most_kept;)
		if (shared->parts[i].used)
			i++;
		else
			release(shared, i);
}

const struct cpa_shared_part *cpa_shared_find(const struct cpa_shared *shared, const void *data)
{
	for (int i = 0; i < shared->nparts; i++) {
		const struct cpa_shared_part *part = &shared->parts[i];

		if (part->used && (uintptr_t)data - (uintptr_t)part->memory < part->nbytes)
			return part;
	}
	return NULL;
}

/* ---- the whole ---- */

/* Two processes never have the same, and no message begins with it by chance. */
static void make_token(struct cpa_shared *shared)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	shared->front->token[0] = ((uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec) *
		UINT64_C(0x9e3779b97f4a7c15);
	shared->front->token[1] = ((uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)shared) *
		UINT64_C(0xbf58476d1ce4e5b9);
}

bool cpa_shared_open(struct cpa_shared *shared)
{
	size_t nbytes = cpa_shared_front_nbytes();

	*shared = (struct cpa_shared){.memory = {take, give, shared}, .fd = make_file()};
	if (shared->fd < 0)
		return false;
	if (reserve(shared->fd, 0, nbytes))
		shared->front = cpa_shared_map(shared->fd, 0, nbytes, true);
	if (!shared->front) {
		close(shared->fd);
		return false;
	}
	shared->end = nbytes;
	make_token(shared);
	return true;
}

void cpa_shared_close(struct cpa_shared *shared)
{
	while (shared->nparts > 0)
		release(shared, shared->nparts - 1);
	munmap(shared->front, cpa_shared_front_nbytes());
	close(shared->fd);
	free(shared->parts);
}
