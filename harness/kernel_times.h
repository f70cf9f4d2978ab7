/*
 * kernel_times.h - bench --kernels: operations of a device alone, run in turn.
 */
#ifndef CPA_KERNEL_TIMES_H
#define CPA_KERNEL_TIMES_H

#include <stdio.h>

#include "harness/kernel_run.h"
#include "harness/options.h"
#include "harness/result.h"

/* What one kernel is compared to, of the same minutes. */
enum cpa_kernel_limit {
	CPA_KERNEL_LIMIT_FLOP, /* multiply-add in registers */
	CPA_KERNEL_LIMIT_COPY, /* the best copy of as many bytes */
	CPA_KERNEL_LIMIT_READ /* reading as many bytes */
};

struct cpa_kernel_time {
	struct cpa_kernel kernel;
	enum cpa_verdict verdict;
	char reason[256];
	enum cpa_kernel_limit against;
	double *samples; /* [repeat] seconds of a call */
	int nsamples;
	struct cpa_statistics seconds; /* once all are taken */
	double limit; /* flop/s or bytes/s; best so far */
};
/* flop/s or bytes/s of the fastest call, as the limit is. */
double cpa_kernel_time_rate(const struct cpa_kernel_time *time);

struct cpa_kernel_list {
	struct cpa_kernel_time *at;
	int n, capacity;
	struct cpa_device *device; /* borrowed */
	int threads, warmup, repeat;
};
/* The problem is copied, what its rule points to is borrowed.  CPA_NO_MEMORY only: what the
 * device cannot do, or does wrong, is in the verdict. */
enum cpa_status cpa_kernel_list_add(struct cpa_kernel_list *list, enum cpa_kernel_kind kind,
	enum cpa_kernel_limit against, const struct cpa_problem *problem,
	struct cpa_error *error);
/* Warm-up and repetitions, in turn. */
enum cpa_status cpa_kernel_list_run(struct cpa_kernel_list *list, struct cpa_error *error);
void cpa_kernel_list_fini(struct cpa_kernel_list *list);

void cpa_kernel_list_print(FILE *out, const struct cpa_kernel_list *list);
void cpa_kernel_list_json(
	FILE *out, const struct cpa_kernel_list *list, const struct cpa_options *options);
void cpa_kernel_list_csv(FILE *out, const struct cpa_kernel_list *list);
/* A test case a kernel and problem, whose time is the median. */
void cpa_kernel_list_junit(FILE *out, const struct cpa_kernel_list *list);

/* The command; its exit status. */
int cpa_bench_kernels(const struct cpa_options *options, struct cpa_device *device);

#endif
