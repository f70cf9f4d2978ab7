/*
 * peak.c - limits of the machine: register-only multiply-add, tiles, copies, reads.
 */
#include "harness/peak.h"
#include "harness/clock.h"
#include "kernels/kernels.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#include <immintrin.h>
#else
#define HAVE_X86 0
#endif

enum { REPEATS = 6, NSUMS = 12, FMA_LOOPS = 400000 };

/* A loop that is measured: thread `thread` does its part and returns what it did, in whatever
 * unit the caller counts. */
typedef double part(void *context, int thread);

/* From when the first thread starts to when the last ends; units per second. */
static double rate_once(part *run, void *context, int nthreads)
{
	double start = 1e300, end = 0, done = 0;

	(void)nthreads;
#ifdef _OPENMP
#pragma omp parallel num_threads(nthreads) reduction(min : start) reduction(max : end) \
	reduction(+ : done)
	{
#pragma omp barrier
		start = cpa_now();
		done = run(context, omp_get_thread_num());
		end = cpa_now();
	}
#else
	start = cpa_now();
	done = run(context, 0);
	end = cpa_now();
#endif
	return done / (end - start);
}

static double rate_of(part *run, void *context, int nthreads, int nrepeats)
{
	double best = 0;

	for (int i = 0; i < nrepeats; i++) {
		double now = rate_once(run, context, nthreads);

		best = now > best ? now : best;
	}
	return best;
}

static double rate(part *run, void *context, int nthreads)
{
	return rate_of(run, context, nthreads, REPEATS);
}

/* ---- multiply-add in registers ---- */

/* Sums stay in registers as the loop over them is unrolled in full; the empty asm hides from the
 * compiler that they all are the same.  12 hide a latency of 4 to 6 and leave AVX2 registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define FMA_LOOP(name, attributes, VECTOR, lanes, register_class, zero, fma)                     \
	attributes static double name(void *context, int thread)                                 \
	{                                                                                        \
		VECTOR sum[NSUMS], x = zero;                                                     \
                                                                                                 \
		(void)context;                                                                   \
		(void)thread;                                                                    \
		UNROLL                                                                           \
		for (int i = 0; i < NSUMS; i++)                                                  \
			sum[i] = zero;                                                           \
		for (int n = 0; n < FMA_LOOPS; n++) {                                            \
			UNROLL                                                                   \
			for (int i = 0; i < NSUMS; i++) {                                        \
				sum[i] = fma;                                                    \
				__asm__ volatile("" : register_class(sum[i]));                   \
			}                                                                        \
		}                                                                                \
		return 2.0 * lanes * NSUMS * FMA_LOOPS;                                          \
	}

#if HAVE_X86
FMA_LOOP(fma_avx512, __attribute__((target("avx512f"))), __m512, 16, "+v", _mm512_setzero_ps(),
	_mm512_fmadd_ps(x, x, sum[i]))
FMA_LOOP(pairs_avx512, __attribute__((target("avx512f,avx512bf16"))), __m512, 32, "+v",
	_mm512_setzero_ps(), _mm512_dpbf16_ps(sum[i], (__m512bh)x, (__m512bh)x))
FMA_LOOP(fma_avx2, __attribute__((target("avx2,fma"))), __m256, 8, "+x", _mm256_setzero_ps(),
	_mm256_fmadd_ps(x, x, sum[i]))
FMA_LOOP(fma_generic, , __m128, 4, "+x", _mm_setzero_ps(), _mm_add_ps(_mm_mul_ps(x, x), sum[i]))
#else
FMA_LOOP(fma_generic, , float, 1, "+r", 0.0f, x *x + sum[i])
#endif

/* ---- tiles ---- */

#if HAVE_X86
enum { TILE_LOOPS = 100000, TILE_SUMS = 4, TILE_FLOP = 2 * 16 * 16 * 32 };

/* Four sums, because one product takes as long as three others need to begin. */
static double multiply_tiles(void *context, int thread)
{
	/* Palette 1, a start row and 14 bytes that are 0; bytes of a row; rows. */
	static const struct {
		uint8_t palette[16];
		uint16_t colsb[16];
		uint8_t rows[16];
	} config = {{1}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

	(void)context;
	(void)thread;
	__asm__ volatile("ldtilecfg %0" : : "m"(config));
	for (int i = 0; i < TILE_LOOPS; i++)
		__asm__ volatile("tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
				 "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
				 "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
				 "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
				 :
				 :);
	__asm__ volatile("tilerelease" : :);
	return (double)TILE_FLOP * TILE_SUMS * TILE_LOOPS;
}
#endif

/* ---- any of them ---- */

/* NULL: no such set, or it cannot run. */
static part *loop_of(const char *set)
{
#if HAVE_X86
	if (!strcmp(set, "avx512"))
		return __builtin_cpu_supports("avx512f") ? fma_avx512 : NULL;
	if (!strcmp(set, "avx512-bf16"))
		return __builtin_cpu_supports("avx512bf16") ? pairs_avx512 : NULL;
	if (!strcmp(set, "amx"))
		return cpa_cpu_lacks_tiles() ? NULL : multiply_tiles;
	if (!strcmp(set, "avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? fma_avx2
										       : NULL;
#endif
	return strcmp(set, "generic") ? NULL : fma_generic;
}

bool cpa_peak_has(const char *set)
{
	return loop_of(set);
}

double cpa_peak_fma(const char *set, int nthreads)
{
	part *loop = loop_of(set);

	return loop ? rate(loop, NULL, nthreads) : 0;
}

/* ---- memory ---- */

struct cpa_peak_space {
	size_t nbytes;
	int nthreads,
		nrepeats; /* repeats of one measured loop: small arrays are done in no time */
	char *data; /* [nthreads][2][nbytes] */
};

enum { LEAST_BYTES = 16 << 20, LINE = 64 };

static char *array_of(const struct cpa_peak_space *space, int thread, int which)
{
	return space->data + ((size_t)thread * 2 + (size_t)which) * space->nbytes;
}

/* Each thread writes its own first, so that memory is near it. */
static double touch(void *context, int thread)
{
	struct cpa_peak_space *space = context;

	memset(array_of(space, thread, 0), 1, 2 * space->nbytes);
	return 1;
}

struct cpa_peak_space *cpa_peak_space_create(size_t nbytes, int nthreads)
{
	struct cpa_peak_space *space = calloc(1, sizeof *space);

	if (!space)
		return NULL;
	space->nbytes = (nbytes + LINE - 1) / LINE * LINE;
	space->nthreads = nthreads;
	space->nrepeats = 1 + (int)(LEAST_BYTES / (space->nbytes + 1));
	space->data = cpa_memory_take(2 * space->nbytes * (size_t)nthreads + LINE);
	if (!space->data) {
		free(space);
		return NULL;
	}
	rate_once(touch, space, nthreads);
	return space;
}

void cpa_peak_space_destroy(struct cpa_peak_space *space)
{
	if (space)
		free(space->data);
	free(space);
}

#define MEMORY_LOOP(name, attributes, factor, body)                                              \
	attributes static double name(void *context, int thread)                                 \
	{                                                                                        \
		const struct cpa_peak_space *space = context;                                    \
		char *to = array_of(space, thread, 0), *from = array_of(space, thread, 1);       \
		size_t n = space->nbytes;                                                        \
                                                                                                 \
		for (int r = 0; r < space->nrepeats; r++) {                                      \
			body __asm__ volatile("" : : "r"(to), "r"(from) : "memory");             \
		}                                                                                \
		return factor * (double)n * space->nrepeats;                                     \
	}

MEMORY_LOOP(copy_library, , 2.0, memcpy(to, from, n);)

#if HAVE_X86
#define AVX512 __attribute__((target("avx512f")))
#define LINES for (size_t i = 0; i < n; i += LINE)
MEMORY_LOOP(
	copy_512, AVX512, 2.0, LINES _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));)
MEMORY_LOOP(stream_512, AVX512, 2.0,
	    LINES _mm512_stream_si512((__m512i *)(void *)(to + i), _mm512_loadu_si512(from + i));
	    _mm_sfence();)
MEMORY_LOOP(stream_128, , 2.0,
	    for (size_t i = 0; i < n; i += 16) _mm_stream_si128((__m128i *)(void *)(to + i),
		    _mm_load_si128((const __m128i *)(const void *)(from + i)));
	    _mm_sfence();)
#define READ(vector, load)                                                                       \
	for (size_t i = 0; i < n; i += sizeof(vector)) {                                         \
		vector x = load;                                                                 \
		__asm__ volatile("" : : "v"(x));                                                 \
	}
MEMORY_LOOP(read_512, AVX512, 2.0, READ(__m512i, _mm512_loadu_si512(to + i))
					   READ(__m512i, _mm512_loadu_si512(from + i)))
#undef READ
#endif

static double read_plain(void *context, int thread)
{
	const struct cpa_peak_space *space = context;
	const char *from = array_of(space, thread, 0);

	for (int r = 0; r < space->nrepeats; r++)
		for (size_t i = 0; i < 2 * space->nbytes; i += 16) {
			uint64_t x, y;

			memcpy(&x, from + i, 8);
			memcpy(&y, from + i + 8, 8);
			__asm__ volatile("" : : "r"(x), "r"(y));
		}
	return 2.0 * (double)space->nbytes * space->nrepeats;
}

/*
 * What does not fit in the caches is passed over once a call: where neighbours share the memory, the
 * best of six times as many passes as the measured thing has is a different limit.
 */
static double rate_in(part *run, struct cpa_peak_space *space)
{
	return rate_of(run, space, space->nthreads, space->nrepeats > 1 ? REPEATS : 1);
}

static double better(double a, double b)
{
	return a > b ? a : b;
}

static bool has_512(void)
{
#if HAVE_X86
	return __builtin_cpu_supports("avx512f");
#else
	return false;
#endif
}

double cpa_peak_copy(struct cpa_peak_space *space)
{
	double best = rate_in(copy_library, space);

#if HAVE_X86
	if (has_512())
		best = better(best, rate_in(copy_512, space));
#endif
	return best;
}

double cpa_peak_stream(struct cpa_peak_space *space)
{
#if HAVE_X86
	return rate_in(has_512() ? stream_512 : stream_128, space);
#else
	(void)space;
	return 0;
#endif
}

double cpa_peak_read(struct cpa_peak_space *space)
{
	double best = rate_in(read_plain, space);

#if HAVE_X86
	if (has_512())
		best = better(best, rate_in(read_512, space));
#endif
	return best;
}
