/*
 * test_memory.h - for the tests of kernels: memory that ends where a page does, and random
 * numbers.
 */
#ifndef CPA_TEST_MEMORY_H
#define CPA_TEST_MEMORY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* nbytes of memory whose last byte is followed by a page that must not be touched. */
struct guarded {
	unsigned char *data;
	size_t nbytes;
	unsigned char *block;
	size_t size;
};

static inline struct guarded guarded_alloc(size_t nbytes, int byte)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct guarded memory = {NULL, nbytes, NULL, (nbytes + page - 1) / page * page + page};
	void *block;

	assert_int_equal(posix_memalign(&block, page, memory.size), 0);
	memory.block = block;
	memory.data = memory.block + memory.size - page - nbytes;
	memset(memory.block, byte, memory.size - page);
	assert_int_equal(mprotect(memory.block + memory.size - page, page, PROT_NONE), 0);
	return memory;
}

/* Like guarded_alloc(), but the page that must not be touched is before the first byte. */
static inline struct guarded guarded_alloc_behind(size_t nbytes, int byte)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct guarded memory = guarded_alloc(nbytes, byte);

	assert_int_equal(mprotect(memory.block, memory.size, PROT_READ | PROT_WRITE), 0);
	memory.data = memory.block + page;
	memset(memory.data, byte, memory.size - page);
	assert_int_equal(mprotect(memory.block, page, PROT_NONE), 0);
	return memory;
}

static inline void guarded_free(struct guarded *memory)
{
	assert_int_equal(mprotect(memory->block, memory->size, PROT_READ | PROT_WRITE), 0);
	free(memory->block);
}

/* Numerical Recipes' 64-bit xorshift, multiplied. */
static inline uint64_t random_bits(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

/* from .. to, both included. */
static inline int64_t random_int(uint64_t *state, int64_t from, int64_t to)
{
	return from + (int64_t)((random_bits(state) >> 16) % (uint64_t)(to - from + 1));
}

#endif
