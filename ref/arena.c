/* arena.c - a bump allocator over blocks that grow, for things that are freed together. */
#include "ref/ref.h"

#include <stdlib.h>

#define ALIGNMENT   ((size_t) 16)
#define FIRST_BLOCK ((size_t) 4096)
#define LAST_BLOCK  ((size_t) 1 << 20) /* blocks stop doubling here */

struct cpa_arena_block {
	struct cpa_arena_block *next;
	size_t size, used;
	_Alignas(16) unsigned char bytes[];
};

void cpa_arena_init(struct cpa_arena *arena)
{
	*arena = (struct cpa_arena) { 0 };
}

void cpa_arena_fini(struct cpa_arena *arena)
{
	struct cpa_arena_block *block = arena->blocks;

	while (block != NULL) {
		struct cpa_arena_block *next = block->next;

		free(block);
		block = next;
	}
	cpa_arena_init(arena);
}

/* A zeroed block in front of the others that holds at least nbytes; NULL when out of memory. */
static struct cpa_arena_block *add_block(struct cpa_arena *arena, size_t nbytes)
{
	struct cpa_arena_block *block;
	size_t size = FIRST_BLOCK - sizeof *block;

	if (arena->blocks != NULL) {
		size = 2 * arena->blocks->size;
		if (size > LAST_BLOCK)
			size = LAST_BLOCK;
	}
	if (size < nbytes)
		size = nbytes;
	if (size > SIZE_MAX - sizeof *block)
		return NULL;
	block = calloc(1, sizeof *block + size);
	if (block == NULL)
		return NULL;
	block->size = size;
	block->next = arena->blocks;
	arena->blocks = block;
	return block;
}

void *cpa_arena_alloc(struct cpa_arena *arena, size_t nbytes)
{
	struct cpa_arena_block *block = arena->blocks;
	void *memory;

	if (arena->failed)
		return NULL;
	if (nbytes > SIZE_MAX / 2) {
		arena->failed = true;
		return NULL;
	}
	/* An empty allocation still gets a place: NULL always means failure. */
	nbytes = nbytes == 0 ? ALIGNMENT : (nbytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
	if (block == NULL || block->size - block->used < nbytes)
		block = add_block(arena, nbytes);
	if (block == NULL) {
		arena->failed = true;
		return NULL;
	}
	memory = block->bytes + block->used;
	block->used += nbytes;
	arena->nbytes += nbytes;
	return memory;
}
