/*
 * attend_generic_v3.c - the attention kernel in plain C, compiled for x86-64-v3: processors with AVX2 and FMA.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX2

#define BYTES 32
#define PLAIN_ROWS 4
#define PLAIN_COLUMNS 3
#include "kernels/attend_plain.h"

CPA_TARGET_END

const struct cpa_attend_kernels cpa_attend_generic_v3 = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};
#endif
