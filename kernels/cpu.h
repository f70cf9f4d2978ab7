/*
 * cpu.h - which instructions of this processor the kernels of device "cpu" use; not a public
 * header.
 *
 * One row of a table for each instruction set.  Each row points to the tables of functions of
 * the parts, and each part is a template that is included once per instruction set, in a file
 * that holds nothing else: attend_template.h in attend_generic.c, attend_avx2.c and so on.  To
 * hang in another part (merge, copies, conversions):
 *
 *   1. struct cpa_<part>_kernels, the functions, in a header of the part;
 *   2. const struct cpa_<part>_kernels cpa_<part>_<set>, in one file per set, which begins with
 *      CPA_TARGET_BEGIN_... of its set after its last #include of a system header and ends with
 *      CPA_TARGET_END; what the set lacks points to the functions of a lesser one;
 *   3. a member here, and its address in the rows of cpu_features.c;
 *   4. cpa_cpu_kernels()-><part>->function(...) where it is used.
 *
 * The row is picked once: the best that the machine and the operating system allow, or what the
 * environment variable CPATTN_CPU names.
 */
#ifndef CPA_CPU_H
#define CPA_CPU_H

#include "ref/ref.h"

/*
 * Ascending up to tiles; a set includes those before it.  Pairs of bf16 (AVX512_BF16) are picked
 * unasked only where they pay.  Tiles in software are for tests, slow, and never picked unasked.
 * Generic is plain C: of what the compiler made of it for x86-64-v4, v3 and v1, the first that the
 * machine can run.  Each of these can be asked for, for tests.
 */
enum cpa_cpu {
	CPA_CPU_GENERIC,
	CPA_CPU_AVX2,
	CPA_CPU_AVX512,
	CPA_CPU_AVX512_BF16,
	CPA_CPU_AMX,
	CPA_CPU_AMX_SOFTWARE,
	CPA_CPU_GENERIC_V1,
	CPA_CPU_GENERIC_V3,
	CPA_CPU_GENERIC_V4,
	CPA_NCPUS
};

#if defined(__x86_64__) && defined(__GNUC__)
#define CPA_CPU_X86 1
#else
#define CPA_CPU_X86 0
#endif

/*
 * Functions between BEGIN and END are compiled for the set, without flags for the file.  System
 * headers stay outside: their inline functions would be compiled for it too.
 */
#define CPA_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define CPA_TARGET_BEGIN(set)                                                                    \
	CPA_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define CPA_TARGET_END CPA_PRAGMA(clang attribute pop)
#else
#define CPA_TARGET_BEGIN(set) CPA_PRAGMA(GCC push_options) CPA_PRAGMA(GCC target(set))
#define CPA_TARGET_END CPA_PRAGMA(GCC pop_options)
#endif
#define CPA_TARGET_BEGIN_AVX2 CPA_TARGET_BEGIN("avx2,fma,f16c")
#define CPA_TARGET_BEGIN_AVX512                                                                  \
	CPA_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")
#define CPA_TARGET_BEGIN_AVX512_BF16                                                             \
	CPA_TARGET_BEGIN("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")

struct cpa_attend_kernels;
struct cpa_move_kernels;

struct cpa_cpu_kernels {
	const char *name; /* "generic" "avx2" "avx512" "avx512-bf16" "amx" "generic-v1" ... */
	const char *remark; /* NULL, or what is to be known of it */
	const struct cpa_attend_kernels *attend; /* kernels/attend_unit.h */
	const struct cpa_move_kernels *move;     /* kernels/move.h */
};

/* The row in use.  Where CPATTN_CPU is wrong: the best, since device "ref" runs all the same. */
const struct cpa_cpu_kernels *cpa_cpu_kernels(void);

/* CPA_INVALID where CPATTN_CPU names nothing that this machine can run, with what it can. */
enum cpa_status cpa_cpu_check(struct cpa_error *error);

/* From now on the row of that name; for tests and benchmarks, while no kernel runs.  NULL: as
 * the environment says.  CPA_INVALID as above. */
enum cpa_status cpa_cpu_select(const char *name, struct cpa_error *error);

/* NULL, or why this machine cannot run that set: "the processor has no AVX-512". */
const char *cpa_cpu_lacks(enum cpa_cpu set);
const char *cpa_cpu_name(enum cpa_cpu set);

/* Whether VDPBF16PS multiplies more than FMA does: on AMD's Zen 4 and later, as many instructions
 * a cycle; Intel's processors do half as many, to the same effect. */
bool cpa_cpu_pairs_pay(void);

/* Whether `rep movsb` writes whole lines without fetching them first, from about 2 KiB on: it
 * does on AMD's Zen 5.  On Intel's Emerald Rapids it gains nothing, others were not tried. */
bool cpa_cpu_moves_strings(void);

#endif
