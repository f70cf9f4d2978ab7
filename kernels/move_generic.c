/* move_generic.c - the functions of move.h for any machine. */
#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/move.h"

#include <math.h>
#include <string.h>
#if CPA_CPU_X86
#include <emmintrin.h>
#endif

#define TABLE cpa_move_generic
#define WIDTH 16
#include "kernels/move_template.h"
