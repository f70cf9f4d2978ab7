/*
 * compare_attend.c - the attention of the cpu device as one plain function, for compare.py to
 * call beside PyTorch's in the same process.  `make compare` builds it as a shared library.
 */
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/kernels.h"

int compare_attend(const char *dtype, const int64_t *sizes, int causal, double scale,
	const void *q, const void *k, const void *v, void *o, float *lse, int threads);
const char *compare_error(void);

static struct cpa_device *device;
static struct cpa_error error;

const char *compare_error(void)
{
	return error.text;
}

static struct cpa_array dense(
	const void *data, enum cpa_dtype dtype, int64_t S, int64_t H, int64_t D)
{
	return (struct cpa_array){.data = (void *)data,
		.dtype = dtype,
		.token = H * D,
		.batch = S * H * D,
		.head = D};
}

/*
 * sizes  [6]  B, Sq, Skv, Hq, Hkv, D
 * q, k, v, o  [B, S, H, D], dense, of dtype "fp32", "bf16" or "fp16"; lse [B, Sq, Hq]
 * Returns 0, or 1 and compare_error() says why.  One caller at a time.
 */
int compare_attend(const char *dtype, const int64_t *sizes, int causal, double scale,
	const void *q, const void *k, const void *v, void *o, float *lse, int threads)
{
	enum cpa_dtype type = CPA_DTYPE_FP64;
	while (type < CPA_DTYPE_FP16 && strcmp(cpa_dtype_name(type), dtype) != 0)
		type++;
	struct cpa_problem p = {.B = sizes[0],
		.Sq = sizes[1],
		.Skv = sizes[2],
		.Hq = sizes[3],
		.Hkv = sizes[4],
		.D = sizes[5],
		.Dv = sizes[5],
		.dtype = type,
		.scale = scale,
		.rule = {.causal = causal != 0, .offset = sizes[2] - sizes[1]},
		.lse = true};
	struct cpa_span queries = {0, p.Sq, p.Sq, 1}, keys = {0, p.Skv, p.Skv, 1};
	const struct cpa_attend attend = {.problem = &p,
		.q = dense(q, type, p.Sq, p.Hq, p.D),
		.k = dense(k, type, p.Skv, p.Hkv, p.D),
		.v = dense(v, type, p.Skv, p.Hkv, p.D),
		.o = dense(o, type, p.Sq, p.Hq, p.D),
		.lse = dense(lse, CPA_DTYPE_FP32, p.Sq, p.Hq, 1),
		.nq = p.Sq,
		.nk = p.Skv,
		.batches = {0, p.B},
		.heads = {0, p.Hq},
		.q_tokens = {&queries, 1, 1},
		.k_tokens = {&keys, 1, 1}};
#ifdef _OPENMP
	omp_set_num_threads(threads);
#else
	(void)threads;
#endif
	if (!device && cpa_device_create("cpu", &device, &error) != CPA_OK)
		return 1;
	return cpa_problem_check(&p, &error) != CPA_OK ||
		device->ops->supports(device, &p, &error) != CPA_OK ||
		device->ops->attend(device, 0, &attend, &error) != CPA_OK;
}
