/*
 * attend_vector.h - what every instruction set needs before attend_template.h, and the parts of
 * its vectors that need no instructions by name.
 */
#ifndef CPA_ATTEND_VECTOR_H
#define CPA_ATTEND_VECTOR_H

#include "kernels/attend_unit.h"
#include "kernels/cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if CPA_CPU_X86
#include <immintrin.h>
#endif

/* Loops over local arrays become registers only when unrolled in full; clang would also unroll
 * the loop around them and then run out of registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Used in two parts of a type; those of this happen to be positive in all types. */
#define CPA_PREFETCH(at) __builtin_prefetch(at, 0, 2) /* into the second cache */
/* Rows; those of many heads lie in one set of the first cache, which has 8 to 12 lines. */
enum { CPA_COPY_AHEAD = 8 };
#define CPA_PREFETCH_NEAR(at) __builtin_prefetch(at, 0, 3)

#define LOG2E 1.442695040888963407359924681001892137L

/* 2^x of 0 <= x < 1 (or |x| <= 1/2), minimax in relative error: 0.03 units of fp32 but for the
 * rounding of its sums; at 0 exactly 1. */
#define EXP2_0_1(c, x, fma)                                                                      \
	fma(fma(fma(fma(fma(fma(c(0x1.c72112p-13f), x, c(0x1.461954p-10f)), x,                   \
				c(0x1.3d2800p-7f)),                                              \
			    x, c(0x1.c68502p-5f)),                                               \
			x, c(0x1.ebfd9ep-3f)),                                                   \
		    x, c(0x1.62e42ap-1f)),                                                       \
		x, c(1))
#define EXP2_HALF(c, x, fma)                                                                     \
	fma(fma(fma(fma(fma(fma(c(0x1.41d334p-13f), x, c(0x1.5f456ap-10f)), x,                   \
				c(0x1.3b2dbcp-7f)),                                              \
			    x, c(0x1.c6aed4p-5f)),                                               \
			x, c(0x1.ebfbdap-3f)),                                                   \
		    x, c(0x1.62e430p-1f)),                                                       \
		x, c(1))
/* |x| <= 1/2: 0.03 units of fp64. */
#define EXP2_HALF_FP64(c, x, fma)                                                                \
	fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(fma(c(0x1.e7aa1c12faa3cp-32), x,                 \
							c(0x1.e620fb67ac6ddp-28)),               \
						    x, c(0x1.b5267882d5309p-24)),                \
						x, c(0x1.62bfc3c1d2153p-20)),                    \
					    x, c(0x1.ffcbfba7bc9a1p-17)),                        \
					x, c(0x1.43091310bf66dp-13)),                            \
				    x, c(0x1.5d87fe78cf260p-10)),                                \
				x, c(0x1.3b2ab6fb9f413p-7)),                                     \
			    x, c(0x1.c6b08d7049fd1p-5)),                                         \
			x, c(0x1.ebfbdff82c5adp-3)),                                             \
		    x, c(0x1.62e42fefa39efp-1)),                                                 \
		x, c(1))

/*
 * The functions that attend_template.h wants, in operators of vectors: for types whose
 * instructions the compiler finds by itself.  2^x is 2^n 2^f, n the nearest integer, got by
 * adding `shift`; below the least normal number it is 0.
 */
#define PORTABLE_VECTOR(name, REAL, VECTOR, INTS)                                                \
	CPA_INLINE VECTOR name##_spread(REAL x)                                                  \
	{                                                                                        \
		return x - (VECTOR){0};                                                          \
	}                                                                                        \
	CPA_INLINE VECTOR name##_broadcast(const REAL *x)                                        \
	{                                                                                        \
		return name##_spread(*x);                                                        \
	}                                                                                        \
	CPA_INLINE VECTOR name##_fma(VECTOR a, VECTOR b, VECTOR c)                               \
	{                                                                                        \
		return a * b + c;                                                                \
	}                                                                                        \
	CPA_INLINE VECTOR name##_max(VECTOR a, VECTOR b)                                         \
	{                                                                                        \
		INTS greater = (INTS)(a > b);                                                    \
                                                                                                 \
		return (VECTOR)(((INTS)a & greater) | ((INTS)b & ~greater));                     \
	}

#define PORTABLE_EXP2(name, REAL, VECTOR, INTS, shift, bias, fraction, least, polynomial)        \
	CPA_INLINE VECTOR name##_exp2(VECTOR x)                                                  \
	{                                                                                        \
		VECTOR shifted = x + name##_spread(shift);                                       \
		VECTOR f = x - (shifted - name##_spread(shift));                                 \
		VECTOR power = (VECTOR)(((INTS)shifted + (bias)) << (fraction));                 \
		INTS small = (INTS)(x < name##_spread(least));                                   \
		VECTOR p = polynomial(name##_spread, f, name##_fma);                             \
                                                                                                 \
		return (VECTOR)((INTS)(p * power) & ~small);                                     \
	}

/* Weights are 0..1.  To bf16: half of the last place is added and what is below cut off, so a
 * tie goes up. To fp16: likewise, below 2^-14 to a multiple of 2^-24, as adding 1/2 does. */
#define PORTABLE_ROUND(name, VECTOR, INTS)                                                       \
	CPA_INLINE VECTOR name##_round_bf16(VECTOR p)                                            \
	{                                                                                        \
		return (VECTOR)(((INTS)p + 0x8000) & (int)0xffff0000);                           \
	}                                                                                        \
	CPA_INLINE VECTOR name##_round_fp16(VECTOR p)                                            \
	{                                                                                        \
		INTS normal = ((INTS)p + 0x1000) & (int)0xffffe000;                              \
		INTS small = (INTS)((p + name##_spread(0.5f)) - name##_spread(0.5f));            \
		INTS is_small = (INTS)(p < name##_spread(0x1p-14f));                             \
                                                                                                 \
		return (VECTOR)((small & is_small) | (normal & ~is_small));                      \
	}

/* ln x = e ln 2 + ln y, y in [2/3, 4/3): 2 s (1 + s^2/3 + s^4/5 + ...), s = (y - 1) / (y + 1),
 * |s| <= 1/5; what is left out is below 2^-28 of it.  NaN gives NaN by the addition of x - x. */
#define PORTABLE_LOG(name, VECTOR, INTS)                                                         \
	CPA_INLINE VECTOR name##_log(VECTOR x)                                                   \
	{                                                                                        \
		INTS up = ((INTS)x - 0x3f2aaaab) >> 23;                                          \
		VECTOR y = (VECTOR)((INTS)x - (up << 23)), one = name##_spread(1);               \
		VECTOR s = (y - one) / (y + one), t = s * s;                                     \
		VECTOR p = name##_fma(t, name##_spread(2 / 11.f), name##_spread(2 / 9.f));       \
		VECTOR e = __builtin_convertvector(up, VECTOR);                                  \
                                                                                                 \
		p = name##_fma(t, p, name##_spread(2 / 7.f));                                    \
		p = name##_fma(t, p, name##_spread(2 / 5.f));                                    \
		p = name##_fma(t, p, name##_spread(2 / 3.f));                                    \
		p = name##_fma(s * t, p, e * name##_spread(1.42860677e-6f)) + (s + s);           \
		return name##_fma(e, name##_spread(0.693145752f), p) + (x - x);                  \
	}

/* Number by number; for what takes little time. */
#define PLAIN_LOG(name, VECTOR, wide)                                                            \
	CPA_INLINE VECTOR name##_log(VECTOR x)                                                   \
	{                                                                                        \
		for (int i = 0; i < wide; i++)                                                   \
			x[i] = log(x[i]);                                                        \
		return x;                                                                        \
	}
#define PLAIN_TRANSPOSE(name, REAL, VECTOR, wide)                                                \
	CPA_INLINE void name##_transpose(VECTOR *rows)                                           \
	{                                                                                        \
		REAL from[wide][wide], to[wide][wide];                                           \
                                                                                                 \
		memcpy(from, rows, sizeof from);                                                 \
		for (int i = 0; i < wide; i++)                                                   \
			for (int j = 0; j < wide; j++)                                           \
				to[j][i] = from[i][j];                                           \
		memcpy(rows, to, sizeof to);                                                     \
	}

/* Number i is the sum of the numbers of rows[i]. */
#define PLAIN_TOTALS(name, VECTOR, wide)                                                         \
	CPA_INLINE VECTOR name##_totals(VECTOR *rows)                                            \
	{                                                                                        \
		VECTOR sum = {0};                                                                \
                                                                                                 \
		name##_transpose(rows);                                                          \
		UNROLL                                                                           \
		for (int i = 0; i < wide; i++)                                                   \
			sum += rows[i];                                                          \
		return sum;                                                                      \
	}

/* Parts (attend_template.h) of one number; compilers make broadcasts of more from memory only
 * with instructions by name. */
#define PLAIN_PARTS(name, REAL, VECTOR)                                                          \
	CPA_INLINE VECTOR name##_part(const REAL *x)                                             \
	{                                                                                        \
		return name##_broadcast(x);                                                      \
	}                                                                                        \
	CPA_INLINE VECTOR name##_one_of_part(VECTOR x, const int g)                              \
	{                                                                                        \
		(void)g;                                                                         \
		return x;                                                                        \
	}                                                                                        \
	CPA_INLINE void name##_turn_parts(VECTOR *rows)                                          \
	{                                                                                        \
		(void)rows;                                                                      \
	}

/* Vectors that are not whole lines are stored as usual. */
#define NO_STREAM(name, REAL, VECTOR)                                                            \
	CPA_INLINE void name##_stream(REAL *to, VECTOR x)                                        \
	{                                                                                        \
		memcpy(to, &x, sizeof x);                                                        \
	}                                                                                        \
	CPA_INLINE void name##_stream_end(void)                                                  \
	{                                                                                        \
	}

/* There is no 16-bit problem in fp64. */
#define NO_ROUND(name, VECTOR)                                                                   \
	CPA_INLINE VECTOR name##_round_bf16(VECTOR p)                                            \
	{                                                                                        \
		return p;                                                                        \
	}                                                                                        \
	CPA_INLINE VECTOR name##_round_fp16(VECTOR p)                                            \
	{                                                                                        \
		return p;                                                                        \
	}

#endif
