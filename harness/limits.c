/*
 * limits.c - samples of multiply-add and of copying, and how many threads.
 */
#include "harness/limits.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "harness/peak.h"
#include "kernels/kernels.h"

enum { COPY_NBYTES = 32 << 20 }; /* beyond L2; what CPU benchmarks of copies commonly take */

struct cpa_limiter {
	int threads;
	struct cpa_peak_space *space;
};

const char *cpa_limit_set(enum cpa_dtype dtype)
{
	static const char *const sets[] = {"avx512", "avx2", "generic"};
	const char *asked = getenv("CPATTN_CPU");
	int i = 0;
	if (dtype == CPA_DTYPE_BF16 && cpa_cpu_bf16_set())
		return cpa_cpu_bf16_set();
	if (asked && (strcmp(asked, "avx2") == 0 || strcmp(asked, "generic-v3") == 0))
		i = 1;
	else if (asked && strcmp(asked, "generic-v1") == 0)
		i = 2;
	while (i < 2 && !cpa_peak_has(sets[i]))
		i++;
	return sets[i];
}

enum cpa_status cpa_limiter_create(int threads, struct cpa_limiter **out, struct cpa_error *error)
{
	struct cpa_limiter *limiter = calloc(1, sizeof *limiter);
	if (limiter)
		limiter->space = cpa_peak_space_create(COPY_NBYTES, threads);
	if (!limiter || !limiter->space) {
		cpa_limiter_destroy(limiter);
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for measuring copies");
	}
	limiter->threads = threads;
	*out = limiter;
	return CPA_OK;
}

void cpa_limiter_destroy(struct cpa_limiter *limiter)
{
	if (!limiter)
		return;
	cpa_peak_space_destroy(limiter->space);
	free(limiter);
}

double cpa_limiter_flop(struct cpa_limiter *limiter, enum cpa_dtype dtype)
{
	return cpa_peak_fma(cpa_limit_set(dtype), limiter->threads);
}

double cpa_limiter_copy(struct cpa_limiter *limiter, bool stream)
{
	return stream ? cpa_peak_stream(limiter->space) : cpa_peak_copy(limiter->space);
}

int cpa_cores(void)
{
#ifdef _OPENMP
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	return cores > 1 ? (int)cores : 1;
#else
	return 1;
#endif
}

int cpa_threads_most(void)
{
#ifdef _OPENMP
	return omp_get_num_procs();
#else
	return 1;
#endif
}

enum cpa_status cpa_threads_check(int asked, struct cpa_error *error)
{
	int most = cpa_threads_most();
#ifndef _OPENMP
	if (asked > 1)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"%d threads were asked for, and this build has no OpenMP: it has one "
			"thread a "
			"process",
			asked);
#endif
	if (asked > 4 * most)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"%d threads were asked for, and this machine has %d core%s: times would "
			"say "
			"nothing",
			asked, most, most == 1 ? "" : "s");
	return CPA_OK;
}

void cpa_threads_set(int threads)
{
#ifdef _OPENMP
	omp_set_num_threads(threads);
#else
	(void)threads;
#endif
}
