/*
 * peak.h - what this machine can do at most, measured now: the denominators of benchmarks.
 *
 * A shared machine is as fast as its neighbours let it be, so a rate means little and a ratio to
 * the limit of the same minute means more: call these between the things that are measured.
 * Each call takes 1 to 15 ms, repeats a short loop and returns the best; arrays beyond the caches
 * are passed over once a call.  nthreads threads work
 * at once, on data of their own; rates are of all together.  Without OpenMP there is one thread
 * whatever is asked for.
 */
#ifndef CPA_PEAK_H
#define CPA_PEAK_H

#include <stdbool.h>
#include <stddef.h>

/*
 * flop/s of multiplications and additions in registers, in fp32: "avx512" and "avx2" with FMA,
 * "generic" with what the plain build has; and of bf16: "amx", four tiles of 16 x 16 sums in turn,
 * and "avx512-bf16", pairs.  0 for another name, or where the set cannot run.
 */
double cpa_peak_fma(const char *set, int nthreads);
bool cpa_peak_has(const char *set); /* whether that is above 0, without measuring */

/* Two arrays of nbytes (rounded up to 64) for each of nthreads threads, written once.  NULL: no
 * memory. */
struct cpa_peak_space;
struct cpa_peak_space *cpa_peak_space_create(size_t nbytes, int nthreads);
void cpa_peak_space_destroy(struct cpa_peak_space *space); /* NULL is allowed */

/* bytes/s read plus written by ordinary stores: the better of memcpy and a vector loop. */
double cpa_peak_copy(struct cpa_peak_space *space);
/* Like cpa_peak_copy(), with stores that pass by the caches; memory beyond them copies best so.
 * 0 where the build has no such stores. */
double cpa_peak_stream(struct cpa_peak_space *space);
/* bytes/s read, from both arrays: as many bytes as a copy moves. */
double cpa_peak_read(struct cpa_peak_space *space);

#endif
