/*
 * attend_avx512_bf16.c - the attention kernel for bf16 with AVX512_BF16, whose products of pairs
 * are twice as many as multiply-adds of fp32 on processors that do as many of either; see
 * cpa_cpu_pairs_pay().
 */
#include "kernels/attend_vector.h"

#include <limits.h>

#if CPA_CPU_X86
#include "kernels/amx_tiles.h" /* the sizes of tiles, which keys and values are packed as */

CPA_TARGET_BEGIN_AVX512_BF16

#include "kernels/attend_avx512.h"

#define TILES_TYPE cpa_attend_avx512_pairs
#define TILES_PRODUCTS "kernels/attend_pairs_products.h"
#include "kernels/attend_tiles.h"

CPA_TARGET_END
#endif
