/*
 * attend_generic.c - the attention kernel in plain C for what any machine has: vectors of 16
 * bytes.
 */
#define BYTES 16
#define PLAIN_ROWS 4
#define PLAIN_COLUMNS 3
#include "kernels/attend_plain.h"

const struct cpa_attend_kernels cpa_attend_generic = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};
