/*
 * limits.h - what this machine can do at most, measured beside what is compared to it.
 */
#ifndef CPA_LIMITS_H
#define CPA_LIMITS_H

/* Best of all samples so far; 0 before the first. */
struct cpa_limits {
	double flop_per_second;       /* fp32 FMA in registers, widest that this processor has */
	double copy_bytes_per_second; /* read + written, streaming, beyond the caches */
};
/* One sample of each, with `threads` threads: some milliseconds. */
void cpa_limits_sample(struct cpa_limits *best, int threads);

/* Threads that OpenMP would take; 1 without it. */
int cpa_threads_most(void);
/* Of the calling thread from now on; does nothing without OpenMP. */
void cpa_threads_set(int threads);

#endif
