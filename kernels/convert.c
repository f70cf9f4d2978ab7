/*
 * convert.c - runs of numbers from one format to another, with the bits of cpa_convert().
 */
#include "kernels/host.h"
#include "kernels/move.h"

#include <string.h>

void cpa_run_convert(
	enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n)
{
	if (to == from)
		memcpy(dst, src, (size_t)n * cpa_dtype_nbytes(to));
	else
		cpa_move()->convert[to][from](dst, src, n);
}
