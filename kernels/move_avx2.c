/* move_avx2.c - the functions of move.h with AVX2 and F16C. */
#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/move.h"

#include <math.h>
#include <string.h>

#if CPA_CPU_X86
#include <immintrin.h>

CPA_TARGET_BEGIN_AVX2
#define TABLE cpa_move_avx2
#define WIDTH 32
#define FP16_WIDEN(to, from) \
	_mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from))))
#define FP16_NARROW(to, from) \
	_mm_storeu_si128((__m128i *)(to), \
		_mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT))
#include "kernels/move_template.h"
CPA_TARGET_END
#endif
