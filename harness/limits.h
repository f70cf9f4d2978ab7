/*
 * limits.h - what this machine can do at most, sampled beside what is compared to it.
 */
#ifndef CPA_LIMITS_H
#define CPA_LIMITS_H

#include "ref/ref.h"

/* Best of all samples; 0 before the first. */
struct cpa_limits {
	double flop_per_second; /* multiply-add in registers, of the set below */
	double copy_bytes_per_second; /* read + written, beyond the caches, by the best kind of
					 store */
};

struct cpa_limiter; /* memory to copy, threads to use */
enum cpa_status cpa_limiter_create(
	int threads, struct cpa_limiter **limiter, struct cpa_error *error);
void cpa_limiter_destroy(struct cpa_limiter *limiter); /* NULL is allowed */
/* One more sample each, of the threads of this process: some 5 ms.  bytes/s read + written, with
 * stores that pass by the caches or others. */
double cpa_limiter_flop(struct cpa_limiter *limiter, enum cpa_dtype dtype);
double cpa_limiter_copy(struct cpa_limiter *limiter, bool stream);
/* Whose multiply-add is the limit, a set of cpa_peak_fma(): for bf16 where kernels multiply it as it
 * is, "amx" or "avx512-bf16"; else in fp32 "avx512", "avx2" or "generic", the widest that this
 * machine has and CPATTN_CPU allows. */
const char *cpa_limit_set(enum cpa_dtype dtype);

int cpa_cores(void); /* of this machine; 1 without OpenMP */
int cpa_threads_most(void); /* of them this process may use */
/* CPA_UNSUPPORTED: more than this build, or any machine like this one, has a use for. */
enum cpa_status cpa_threads_check(int asked, struct cpa_error *error);
void cpa_threads_set(int threads); /* from now on; does nothing without OpenMP */

#endif
