/*
 * attend_amx_software.c - attend_amx.c over tiles in software, for tests where no processor has
 * AMX.
 */
#include "kernels/attend_vector.h"

#include <limits.h>

#if CPA_CPU_X86
#define CPA_TILES_IN_SOFTWARE
#include "kernels/amx_tiles.h"

CPA_TARGET_BEGIN_AVX512

#include "kernels/attend_avx512.h"

#define TILES_TYPE cpa_attend_amx_software_bf16
#define TILES_PRODUCTS "kernels/attend_tiles_products.h"
#include "kernels/attend_tiles.h"

CPA_TARGET_END
#endif
