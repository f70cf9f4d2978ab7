/* move_avx512.c - the functions of move.h with AVX-512. */
#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/move.h"

#include <math.h>
#include <string.h>

#if CPA_CPU_X86
#include <immintrin.h>

CPA_TARGET_BEGIN_AVX512
#define TABLE cpa_move_avx512
#define WIDTH 64
#define FP16_WIDEN(to, from) \
	_mm512_storeu_ps(to, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from))))
#define FP16_NARROW(to, from) \
	_mm256_storeu_si256((__m256i *)(to), \
		_mm512_cvtps_ph(_mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT))
#include "kernels/move_template.h"
CPA_TARGET_END
#endif
