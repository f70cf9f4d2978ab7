/*
 * attend_amx.c - the attention kernel for bf16 with AMX: 2 x 2 tiles of 16 x 16 sums.  Needs the
 * tiles to be granted to the process, see cpu_features.c.
 */
#include "kernels/attend_vector.h"

#include <limits.h>

#if CPA_CPU_X86
#include "kernels/amx_tiles.h"

CPA_TARGET_BEGIN_AVX512

#include "kernels/attend_avx512.h"

#define TILES_TYPE cpa_attend_amx_bf16
#define TILES_PRODUCTS "kernels/attend_tiles_products.h"
#include "kernels/attend_tiles.h"

CPA_TARGET_END
#endif
