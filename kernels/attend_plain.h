/*
 * attend_plain.h - the attention kernel in plain C: vectors of BYTES bytes, no instruction by
 * name.  The includer defines BYTES and the tile, PLAIN_ROWS by PLAIN_COLUMNS vectors, as the
 * registers allow, and KERNELS, the name of its struct cpa_attend_kernels.
 */
#include "kernels/attend_vector.h"

typedef float f32 __attribute__((vector_size(BYTES), may_alias));
typedef int32_t i32 __attribute__((vector_size(BYTES), may_alias));
typedef double f64 __attribute__((vector_size(BYTES), may_alias));
typedef int64_t i64 __attribute__((vector_size(BYTES), may_alias));

PORTABLE_VECTOR(f32, float, f32, i32)
PORTABLE_EXP2(f32, float, f32, i32, 0x1.8p23f, 127, 23, -126, EXP2_HALF)
PORTABLE_ROUND(f32, f32, i32)
PORTABLE_LOG(f32, f32, i32)
PLAIN_TRANSPOSE(f32, float, f32, BYTES / 4)
PORTABLE_VECTOR(f64, double, f64, i64)
PORTABLE_EXP2(f64, double, f64, i64, 0x1.8p52, 1023, 52, -1022, EXP2_HALF_FP64)
NO_ROUND(f64, f64)
PLAIN_LOG(f64, f64, BYTES / 8)
PLAIN_TRANSPOSE(f64, double, f64, BYTES / 8)

PLAIN_TOTALS(f32, f32, BYTES / 4)
PLAIN_TOTALS(f64, f64, BYTES / 8)
PLAIN_PARTS(f32, float, f32)
PLAIN_PARTS(f64, double, f64)
NO_STREAM(f32, float, f32)
NO_STREAM(f64, double, f64)

#define REAL float
#define NAME(x) f32_##x
#define VECTOR f32
#define WIDE (BYTES / 4)
#define INTS i32
#define PART 1
#define ROWS PLAIN_ROWS
#define COLUMNS PLAIN_COLUMNS
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define HALVES 0
#include "kernels/attend_template.h"

#define REAL double
#define NAME(x) f64_##x
#define VECTOR f64
#define WIDE (BYTES / 8)
#define INTS i64
#define PART 1
#define ROWS PLAIN_ROWS
#define COLUMNS PLAIN_COLUMNS
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define HALVES 0
#include "kernels/attend_template.h"
