/*
 * attend_avx512.c - the attention kernel for AVX-512: 32 registers of 16 numbers.
 */
#include "kernels/attend_vector.h"

#if CPA_CPU_X86
CPA_TARGET_BEGIN_AVX512

typedef float f32 __attribute__((vector_size(64), may_alias));
typedef int32_t i32 __attribute__((vector_size(64), may_alias));
typedef double f64 __attribute__((vector_size(64), may_alias));
typedef int64_t i64 __attribute__((vector_size(64), may_alias));

CPA_INLINE f32 f32_spread(float x)
{
	return (f32)_mm512_set1_ps(x);
}

CPA_INLINE f32 f32_broadcast(const float *x)
{
	return (f32)_mm512_set1_ps(*x);
}

CPA_INLINE f32 f32_fma(f32 a, f32 b, f32 c)
{
	return (f32)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

CPA_INLINE f32 f32_max(f32 a, f32 b)
{
	return (f32)_mm512_max_ps((__m512)a, (__m512)b);
}

/* x - floor(x) is one instruction, and so is times 2^floor(x), which needs no limits. */
CPA_INLINE f32 f32_exp2(f32 x)
{
	f32 f = (f32)_mm512_reduce_ps((__m512)x, 1 | 8);
	f32 p = EXP2_0_1(f32_spread, f, f32_fma);

	return (f32)_mm512_scalef_ps((__m512)p, (__m512)x);
}

CPA_INLINE f32 f32_round_bf16(f32 p)
{
	return (f32)(((i32)p + 0x8000) & (int)0xffff0000);
}

CPA_INLINE f32 f32_round_fp16(f32 p)
{
	return (f32)_mm512_cvtph_ps(
		_mm512_cvtps_ph((__m512)p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

CPA_INLINE f64 f64_spread(double x)
{
	return (f64)_mm512_set1_pd(x);
}

CPA_INLINE f64 f64_broadcast(const double *x)
{
	return (f64)_mm512_set1_pd(*x);
}

CPA_INLINE f64 f64_fma(f64 a, f64 b, f64 c)
{
	return (f64)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}

CPA_INLINE f64 f64_max(f64 a, f64 b)
{
	return (f64)_mm512_max_pd((__m512d)a, (__m512d)b);
}

PORTABLE_EXP2(f64, double, f64, i64, 0x1.8p52, 1023, 52, -1022, EXP2_HALF_FP64)
NO_ROUND(f64, f64)

#define REAL float
#define NAME(x) f32_##x
#define VECTOR f32
#define WIDE 16
#define INTS i32
#define ROWS 6
#define COLUMNS 4
#define DTYPE CPA_DTYPE_FP32
#define REAL_MAX FLT_MAX
#define LOG logf
#include "kernels/attend_template.h"

#define REAL double
#define NAME(x) f64_##x
#define VECTOR f64
#define WIDE 8
#define INTS i64
#define ROWS 6
#define COLUMNS 4
#define DTYPE CPA_DTYPE_FP64
#define REAL_MAX DBL_MAX
#define LOG log
#include "kernels/attend_template.h"

CPA_TARGET_END

const struct cpa_attend_kernels cpa_attend_avx512 = {&f32_type, &f64_type, f32_exp2_test,
	f64_exp2_test};
#endif
