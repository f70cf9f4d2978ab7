/*
 * kernel_run.h - one operation of a device, alone: its arrays, one check, calls that are timed.
 */
#ifndef CPA_KERNEL_RUN_H
#define CPA_KERNEL_RUN_H

#include "harness/statistics.h"
#include "kernels/kernels.h"

enum cpa_kernel_kind {
	CPA_KERNEL_ATTEND,
	CPA_KERNEL_MERGE, /* two partials of the problem's o, fp32 (fp64 of fp64), in place */
	CPA_KERNEL_COPY, /* q as it lies, [B, S, H, D] */
	CPA_KERNEL_TRANSPOSE /* q from [B, S, H, D] to [B, H, S, D]: what an exchange of heads
				packs */
};
const char *cpa_kernel_name(enum cpa_kernel_kind kind);

struct cpa_kernel {
	enum cpa_kernel_kind kind;
	struct cpa_problem problem; /* its arrays are borrowed */
	struct cpa_device *device; /* borrowed */
	void *memory[5];
	struct cpa_span q_span, k_span;
	union {
		struct cpa_attend attend;
		struct cpa_merge merge;
		struct cpa_copy copy;
	};
	double flop; /* useful, of a call; 0 for what moves bytes */
	double bytes; /* that a call reads and writes, once each */
	int ncalls; /* in one measurement, so that the clock's grain does not show */
};

/* Allocates and fills; destroy in any case.  CPA_UNSUPPORTED: the device cannot do the problem.
 */
enum cpa_status cpa_kernel_create(struct cpa_kernel *kernel, struct cpa_device *device,
	enum cpa_kernel_kind kind, const struct cpa_problem *problem, struct cpa_error *error);
void cpa_kernel_destroy(struct cpa_kernel *kernel);
/* One call, compared to what it should be (some rows of ATTEND).  CPA_MISMATCH: it is wrong. */
enum cpa_status cpa_kernel_check(struct cpa_kernel *kernel, struct cpa_error *error);
/* Seconds of a call, the mean of kernel->ncalls. */
enum cpa_status cpa_kernel_time(
	struct cpa_kernel *kernel, double *seconds, struct cpa_error *error);

#endif
