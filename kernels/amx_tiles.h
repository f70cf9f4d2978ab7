/*
 * amx_tiles.h - AMX tiles of this processor, or the same in software.
 *
 * The seven instructions that kernels need, under one name each.  With CPA_TILES_IN_SOFTWARE they
 * are functions over eight tiles of 1 KiB of the calling thread, which do what the manual says
 * (Intel SDM volume 2, TDPBF16PS and LDTILECFG) and abort with a sentence where a processor would
 * fault: so a kernel is tested where no processor has AMX.  Without, they are the instructions;
 * the process must have been granted the tiles (cpa_cpu_lacks() asks), and what was configured
 * holds for the calling thread only.
 *
 *   TILE_CONFIGURE(config)         const struct cpa_tile_config *; all tiles are zero afterwards
 *   TILE_RELEASE()                 no tile is configured any more
 *   TILE_ZERO(t)
 *   TILE_LOAD(t, from, step)       rows `step` bytes apart; t is a literal 0..7 everywhere
 *   TILE_LOAD_ONCE(t, from, step)  likewise, of what is not read again soon
 *   TILE_STORE(t, to, step)
 *   TILE_MULTIPLY(c, a, b)         c [m][n] fp32 += sum over k and i = 0, 1 of
 *                                  a [m][k][i] b [k][n][i], both bf16
 *
 * The instructions are spelled out here because the compilers' own do not say which memory they
 * read: gcc 12 believes that a configuration has 8 bytes, and that loading a tile reads nothing,
 * so what was to be stored before may come after.
 */
#ifndef CPA_AMX_TILES_H
#define CPA_AMX_TILES_H

#include <stdint.h>

enum {
	CPA_NTILES = 8,
	CPA_TILE_ROWS = 16, /* at most */
	CPA_TILE_COLSB = 64, /* bytes of a row, at most */
	CPA_TILE_NBYTES = CPA_TILE_ROWS * CPA_TILE_COLSB
};

/* As LDTILECFG reads it. */
struct cpa_tile_config {
	uint8_t palette, start_row, reserved[14]; /* palette 1: eight tiles of 1 KiB */
	uint16_t colsb[16];
	uint8_t rows[16];
};
_Static_assert(sizeof(struct cpa_tile_config) == 64, "LDTILECFG reads 64 bytes");

/* Every tile whole: 16 rows of 64 bytes. */
#define CPA_EIGHT_TIMES(x) x, x, x, x, x, x, x, x
#define CPA_TILES_WHOLE {1, 0, {0}, {CPA_EIGHT_TIMES(64)}, {CPA_EIGHT_TIMES(16)}}

#ifndef CPA_TILES_IN_SOFTWARE

#define TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
#define TILE_RELEASE() __asm__ volatile("tilerelease" : :)
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_MOVE(text, memory, step)                                                            \
	__asm__ volatile(text : : "r"((const void *)(memory)), "r"((int64_t)(step)) : "memory")
#define TILE_LOAD(t, from, step) TILE_MOVE("tileloadd (%0,%1,1), %%tmm" #t, from, step)
#define TILE_LOAD_ONCE(t, from, step) TILE_MOVE("tileloaddt1 (%0,%1,1), %%tmm" #t, from, step)
#define TILE_STORE(t, to, step) TILE_MOVE("tilestored %%tmm" #t ", (%0,%1,1)", to, step)
#define TILE_MULTIPLY(c, a, b)                                                                   \
	__asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#else

#include "kernels/amx_tiles_software.h"

#define TILE_CONFIGURE(config) cpa_tile_configure(config)
#define TILE_RELEASE() cpa_tile_release()
#define TILE_ZERO(t) cpa_tile_zero(t)
#define TILE_LOAD(t, from, step) cpa_tile_load(t, from, step)
#define TILE_LOAD_ONCE(t, from, step) cpa_tile_load(t, from, step)
#define TILE_STORE(t, to, step) cpa_tile_store(t, to, step)
#define TILE_MULTIPLY(c, a, b) cpa_tile_multiply(c, a, b)

#endif
#endif
