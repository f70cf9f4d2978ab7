/*
 * attend_generic_v4.c - the attention kernel in plain C, compiled for x86-64-v4: processors with AVX-512.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX512

#define BYTES 64
#define PLAIN_ROWS 6
#define PLAIN_COLUMNS 4
#include "kernels/attend_plain.h"

CPA_TARGET_END

const struct cpa_attend_kernels cpa_attend_generic_v4 = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};
#endif
