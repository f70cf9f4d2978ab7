/*
 * attend_generic.c - the attention kernel in what any machine has: vectors of 16 bytes, no
 * instruction by name.
 */
#include "kernels/attend_vector.h"

typedef float f32 __attribute__((vector_size(16), may_alias));
typedef int32_t i32 __attribute__((vector_size(16), may_alias));
typedef double f64 __attribute__((vector_size(16), may_alias));
typedef int64_t i64 __attribute__((vector_size(16), may_alias));

PORTABLE_VECTOR(f32, float, f32, i32)
PORTABLE_EXP2(f32, float, f32, i32, 0x1.8p23f, 127, 23, -126, EXP2_HALF)
PORTABLE_ROUND(f32, f32, i32)
PORTABLE_LOG(f32, f32, i32)
PLAIN_TRANSPOSE(f32, float, f32, 4)
PORTABLE_VECTOR(f64, double, f64, i64)
PORTABLE_EXP2(f64, double, f64, i64, 0x1.8p52, 1023, 52, -1022, EXP2_HALF_FP64)
NO_ROUND(f64, f64)
PLAIN_LOG(f64, f64, 2)
PLAIN_TRANSPOSE(f64, double, f64, 2)

PLAIN_TOTALS(f32, f32, 4)
PLAIN_TOTALS(f64, f64, 2)
NO_STREAM(f32, float, f32)
NO_STREAM(f64, double, f64)

#define REAL float
#define NAME(x) f32_##x
#define VECTOR f32
#define WIDE 4
#define INTS i32
#define ROWS 4
#define COLUMNS 3
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define HALVES 0
#include "kernels/attend_template.h"

#define REAL double
#define NAME(x) f64_##x
#define VECTOR f64
#define WIDE 2
#define INTS i64
#define ROWS 4
#define COLUMNS 3
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define HALVES 0
#include "kernels/attend_template.h"

const struct cpa_attend_kernels cpa_attend_generic = {
	CPA_ATTEND_TYPES, f32_exp2_test, f64_exp2_test};
