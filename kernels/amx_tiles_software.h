/*
 * amx_tiles_software.h - tiles as memory of the thread, for amx_tiles.h; slow.
 *
 * Needs AVX-512: a row is a vector of 16 numbers.
 */
#ifndef CPA_AMX_TILES_SOFTWARE_H
#define CPA_AMX_TILES_SOFTWARE_H

#include "kernels/amx_tiles.h"
#include "kernels/cpu.h"

#include <immintrin.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CPA_TARGET_BEGIN_AVX512

static _Thread_local struct {
	_Alignas(64) unsigned char data[CPA_NTILES][CPA_TILE_NBYTES];
	struct cpa_tile_config config; /* palette 0: none */
} cpa_tiles;

static inline _Noreturn void cpa_tile_fault(const char *instruction, int tile, const char *why)
{
	fprintf(stderr, "tiles in software: %s of tile %d: %s\n", instruction, tile, why);
	abort();
}

static inline void cpa_tile_check(const char *instruction, int tile)
{
	if (!cpa_tiles.config.palette)
		cpa_tile_fault(instruction, tile, "no tiles are configured in this thread");
	if (tile < 0 || tile >= CPA_NTILES)
		cpa_tile_fault(instruction, tile, "there are tiles 0 to 7");
	if (!cpa_tiles.config.rows[tile])
		cpa_tile_fault(instruction, tile, "it is not configured");
}

static inline void cpa_tile_release(void)
{
	memset(&cpa_tiles, 0, sizeof cpa_tiles);
}

static inline void cpa_tile_configure(const struct cpa_tile_config *config)
{
	static const char name[] = "LDTILECFG";

	if (config->palette > 1)
		cpa_tile_fault(name, 0, "there are palettes 0 and 1");
	if (config->palette && config->start_row)
		cpa_tile_fault(
			name, 0, "a start row is for resuming after a fault, which here is none");
	for (int i = 0; i < 14; i++)
		if (config->palette && config->reserved[i])
			cpa_tile_fault(name, 0, "a reserved byte is not 0");
	for (int t = 0; t < 16 && config->palette; t++) {
		if (t >= CPA_NTILES && (config->rows[t] || config->colsb[t]))
			cpa_tile_fault(name, t, "there are tiles 0 to 7");
		if (config->rows[t] > CPA_TILE_ROWS || config->colsb[t] > CPA_TILE_COLSB)
			cpa_tile_fault(name, t, "a tile has at most 16 rows of 64 bytes");
		if (!config->rows[t] != !config->colsb[t])
			cpa_tile_fault(name, t, "rows or columns alone are 0");
	}
	cpa_tile_release();
	if (config->palette)
		cpa_tiles.config = *config;
}

static inline void cpa_tile_zero(int t)
{
	cpa_tile_check("TILEZERO", t);
	memset(cpa_tiles.data[t], 0, CPA_TILE_NBYTES);
}

/* What of a tile is not configured becomes 0. */
static inline void cpa_tile_load(int t, const void *from, int64_t step)
{
	const char *row = from;

	cpa_tile_check("TILELOADD", t);
	memset(cpa_tiles.data[t], 0, CPA_TILE_NBYTES);
	for (int i = 0; i < cpa_tiles.config.rows[t]; i++, row += step)
		memcpy(cpa_tiles.data[t] + i * CPA_TILE_COLSB, row, cpa_tiles.config.colsb[t]);
}

static inline void cpa_tile_store(int t, void *to, int64_t step)
{
	char *row = to;

	cpa_tile_check("TILESTORED", t);
	for (int i = 0; i < cpa_tiles.config.rows[t]; i++, row += step)
		memcpy(row, cpa_tiles.data[t] + i * CPA_TILE_COLSB, cpa_tiles.config.colsb[t]);
}

static inline void cpa_tile_check_shapes(int c, int a, int b)
{
	const struct cpa_tile_config *config = &cpa_tiles.config;
	static const char name[] = "TDPBF16PS";

	cpa_tile_check(name, c);
	cpa_tile_check(name, a);
	cpa_tile_check(name, b);
	if (a == b || a == c || b == c)
		cpa_tile_fault(name, c, "the three tiles are not three");
	if (config->colsb[a] % 4 || config->colsb[b] % 4 || config->colsb[c] % 4)
		cpa_tile_fault(name, c, "columns are not whole numbers of fp32 or pairs of bf16");
	if (config->rows[c] != config->rows[a] || config->colsb[c] != config->colsb[b] ||
		config->colsb[a] / 4 != config->rows[b])
		cpa_tile_fault(name, c, "the shapes do not fit: c [m][n] += a [m][2k] b [k][2n]");
}

/* The sums; a function of its own, which no number may leave or enter by reordering, because the
 * caller changes how numbers are rounded. */
static __attribute__((noinline)) void cpa_tile_sums(
	unsigned char *c, const unsigned char *a, const unsigned char *b, int nrows, int npairs)
{
	const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);

	for (int m = 0; m < nrows; m++) {
		__m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps(), sum;

		for (int k = 0; k < npairs; k++) {
			uint32_t pair;
			__m512i row = _mm512_load_si512(b + k * CPA_TILE_COLSB);

			memcpy(&pair, a + m * CPA_TILE_COLSB + k * 4, sizeof pair);
			even = _mm512_fmadd_ps(
				_mm512_castsi512_ps(_mm512_set1_epi32((int)(pair << 16))),
				_mm512_castsi512_ps(_mm512_slli_epi32(row, 16)), even);
			odd = _mm512_fmadd_ps(
				_mm512_castsi512_ps(_mm512_set1_epi32((int)(pair & 0xffff0000u))),
				_mm512_castsi512_ps(_mm512_and_si512(row, upper)), odd);
		}
		sum = _mm512_add_ps(even, odd);
		sum = _mm512_add_ps(_mm512_load_ps(c + m * CPA_TILE_COLSB), sum);
		_mm512_store_ps(c + m * CPA_TILE_COLSB, sum);
	}
}

/*
 * Pairs: the first of each are summed apart from the second by fused multiply-adds, in order;
 * both sums are added, and that to c.  Every one of these operations takes numbers below the
 * least normal one as 0, gives 0 for them, rounds to nearest even and raises nothing, whatever
 * the thread has set for its own arithmetic.
 */
static inline void cpa_tile_multiply(int c, int a, int b)
{
	enum { ZEROS = 0x8040, MASKS = 0x1f80 }; /* of MXCSR: FTZ and DAZ; no exceptions */
	unsigned before = _mm_getcsr();

	cpa_tile_check_shapes(c, a, b);
	_mm_setcsr(ZEROS | MASKS);
	cpa_tile_sums(cpa_tiles.data[c], cpa_tiles.data[a], cpa_tiles.data[b],
		cpa_tiles.config.rows[c], cpa_tiles.config.rows[b]);
	_mm_setcsr(before);
}

CPA_TARGET_END
#endif
