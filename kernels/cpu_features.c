/*
 * cpu_features.c - what this processor can do, and which kernels are picked.
 *
 * A set counts as available when the processor has it, the operating system saves its
 * registers and, for tiles, has granted them to this process.
 */
#define _DEFAULT_SOURCE /* syscall() */
#include "kernels/attend_unit.h"
#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "kernels/move.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if CPA_CPU_X86
#include <cpuid.h>
#endif
#if CPA_CPU_X86 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const struct cpa_cpu_kernels rows[CPA_NCPUS] = {
	[CPA_CPU_GENERIC] = {.name = "generic", .remark = "plain C",
		.attend = &cpa_attend_generic, .move = &cpa_move_generic},
	[CPA_CPU_GENERIC_V1] = {.name = "generic-v1", .remark = "plain C",
		.attend = &cpa_attend_generic, .move = &cpa_move_generic},
#if CPA_CPU_X86
	[CPA_CPU_AVX2] = {.name = "avx2", .attend = &cpa_attend_avx2, .move = &cpa_move_avx2},
	[CPA_CPU_AVX512] = {.name = "avx512", .attend = &cpa_attend_avx512, .move = &cpa_move_avx512},
	[CPA_CPU_AVX512_BF16] = {.name = "avx512-bf16",
		.remark = "bf16 by pairs, fp16, fp32 and fp64 as avx512",
		.attend = &cpa_attend_avx512_bf16, .move = &cpa_move_avx512},
	[CPA_CPU_AMX] = {.name = "amx",
		.remark = "bf16 by tiles, fp16, fp32 and fp64 as avx512",
		.attend = &cpa_attend_amx, .move = &cpa_move_avx512},
	[CPA_CPU_AMX_SOFTWARE] = {.name = "amx-software",
		.remark = "amx with tiles in software, slow, for tests",
		.attend = &cpa_attend_amx_software, .move = &cpa_move_avx512},
	[CPA_CPU_GENERIC_V3] = {.name = "generic-v3",
		.remark = "plain C, compiled for x86-64-v3",
		.attend = &cpa_attend_generic_v3, .move = &cpa_move_generic},
	[CPA_CPU_GENERIC_V4] = {.name = "generic-v4",
		.remark = "plain C, compiled for x86-64-v4",
		.attend = &cpa_attend_generic_v4, .move = &cpa_move_generic},
#else
	[CPA_CPU_GENERIC_V3] = {.name = "generic-v3"},
	[CPA_CPU_GENERIC_V4] = {.name = "generic-v4"},
	[CPA_CPU_AVX2] = {.name = "avx2"},
	[CPA_CPU_AVX512] = {.name = "avx512"},
	[CPA_CPU_AVX512_BF16] = {.name = "avx512-bf16"},
	[CPA_CPU_AMX] = {.name = "amx"},
	[CPA_CPU_AMX_SOFTWARE] = {.name = "amx-software"},
#endif
};

#if CPA_CPU_X86
/* The same under the name that asks for the best of them. */
static const struct cpa_cpu_kernels generic_v3 = {.name = "generic",
	.remark = "plain C, compiled for x86-64-v3",
	.attend = &cpa_attend_generic_v3, .move = &cpa_move_generic},
	generic_v4 = {.name = "generic",
	.remark = "plain C, compiled for x86-64-v4",
	.attend = &cpa_attend_generic_v4, .move = &cpa_move_generic};
#endif

static const char *lacks_avx2(void)
{
#if CPA_CPU_X86
	unsigned a, b, c, d;

	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
		!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
		return "the processor or the operating system has no AVX2 with FMA and F16C";
	return NULL;
#else
	return "this is not an x86-64 build";
#endif
}

static const char *lacks_avx512(void)
{
#if CPA_CPU_X86
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
		!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
		return "the processor or the operating system has no AVX-512 F, DQ, BW and VL";
#endif
	return lacks_avx2();
}

static const char *lacks_avx512_bf16(void)
{
#if CPA_CPU_X86
	enum { PAIRS = 1 << 5 };
	unsigned a, b, c, d;

	if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & PAIRS))
		return "the processor has no AVX512_BF16";
#endif
	return lacks_avx512();
}

#if CPA_CPU_X86
/* A processor of AMD, of that family or a later one. */
static bool is_amd(unsigned family)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx ||
		d != signature_AMD_edx)
		return false;
	return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 0xf) + (a >> 20 & 0xff) >= family;
}
#endif

bool cpa_cpu_pairs_pay(void)
{
#if CPA_CPU_X86
	enum { ZEN_4 = 0x19 }; /* and Zen 3, which has none */

	return is_amd(ZEN_4);
#else
	return false;
#endif
}

static bool find_strings(void)
{
#if CPA_CPU_X86
	enum { FAST_SHORT_MOVES = 1 << 4, ZEN_5 = 0x1a };
	unsigned a, b, c, d;

	if (!is_amd(ZEN_5))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & FAST_SHORT_MOVES);
#else
	return false;
#endif
}

bool cpa_cpu_moves_strings(void)
{
	static _Atomic int known; /* 1: no, 2: yes */
	int now = atomic_load(&known);

	if (!now) {
		now = find_strings() ? 2 : 1;
		atomic_store(&known, now);
	}
	return now == 2;
}

#if CPA_CPU_X86 && defined(__linux__)
/* Eight tiles of 16 rows of 64 bytes, as palette 1 is defined; and products of that size. */
static bool has_whole_tiles(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) || b >> 16 < 8 || (b & 0xffff) < 64 ||
		(c & 0xffff) < 16)
		return false;
	return __get_cpuid_count(0x1e, 0, &a, &b, &c, &d) && (b & 0xff) >= 16 &&
		(b >> 8 & 0xffff) >= 64;
}

/* The kernel saves tiles for processes that asked; once is enough for all threads, and asking
 * again is harmless. */
static bool is_granted_tiles(void)
{
	enum { REQUEST = 0x1023, DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */

	return !syscall(SYS_arch_prctl, REQUEST, DATA);
}
#endif

static const char *lacks_amx(void)
{
#if CPA_CPU_X86 && defined(__linux__)
	enum { TILE_BF16 = 1 << 22, TILE = 1 << 24, SAVES = 1 << 27, STATE = 3 << 17 };
	unsigned a, b, c, d, saved, high;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILE) || !(d & TILE_BF16) ||
		!has_whole_tiles())
		return "the processor has no AMX with bf16";
	/* XGETBV is there only where the operating system saves extended states. */
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & SAVES))
		return "the operating system does not save AMX tiles";
	__asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
	if ((saved & STATE) != STATE)
		return "the operating system does not save AMX tiles";
	if (lacks_avx512())
		return lacks_avx512();
	if (!is_granted_tiles())
		return "the operating system does not grant AMX tiles to this process";
	return NULL;
#else
	return "AMX is used on x86-64 Linux only";
#endif
}

const char *cpa_cpu_name(enum cpa_cpu set)
{
	return rows[set].name;
}

const char *cpa_cpu_lacks(enum cpa_cpu set)
{
	if (set == CPA_CPU_GENERIC || set == CPA_CPU_GENERIC_V1)
		return NULL;
	if (!rows[set].attend)
		return "this build has no kernels for it";
	switch (set) {
	case CPA_CPU_AVX2:
	case CPA_CPU_GENERIC_V3:
		return lacks_avx2();
	case CPA_CPU_AVX512:
	case CPA_CPU_GENERIC_V4:
		return lacks_avx512();
	case CPA_CPU_AVX512_BF16:
		return lacks_avx512_bf16();
	case CPA_CPU_AMX:
		return lacks_amx();
	case CPA_CPU_AMX_SOFTWARE:
		return lacks_avx512();
	default:
		return NULL;
	}
}

const char *cpa_cpu_lacks_tiles(void)
{
	return cpa_cpu_lacks(CPA_CPU_AMX);
}

static const struct cpa_cpu_kernels *row_of(enum cpa_cpu set)
{
#if CPA_CPU_X86
	if (set == CPA_CPU_GENERIC && !lacks_avx512())
		return &generic_v4;
	if (set == CPA_CPU_GENERIC && !lacks_avx2())
		return &generic_v3;
#endif
	return &rows[set];
}

static const struct cpa_cpu_kernels *best(void)
{
	for (int set = CPA_CPU_AMX; set > 0; set--)
		if (!cpa_cpu_lacks((enum cpa_cpu)set) &&
			(set != CPA_CPU_AVX512_BF16 || cpa_cpu_pairs_pay()))
			return row_of((enum cpa_cpu)set);
	return row_of(CPA_CPU_GENERIC);
}

enum { LISTED = CPA_CPU_AMX_SOFTWARE + 1 }; /* what follows is in the first */

/* The sets that can run here: "generic, avx2 and avx512". */
static void list_available(char *text, size_t size)
{
	int n = 0, nlisted = 0;

	for (int set = 0; set < LISTED; set++)
		n += !cpa_cpu_lacks((enum cpa_cpu)set);
	*text = 0;
	for (int set = 0; set < LISTED; set++) {
		size_t length = strlen(text);

		if (cpa_cpu_lacks((enum cpa_cpu)set))
			continue;
		nlisted++;
		snprintf(text + length, size - length, "%s%s",
			nlisted == 1	       ? ""
				: nlisted == n ? " and "
					       : ", ",
			rows[set].name);
	}
}

/* name NULL or empty: the best. */
static enum cpa_status find(
	const char *name, const struct cpa_cpu_kernels **row, struct cpa_error *error)
{
	char available[96];

	if (!name || !*name) {
		*row = best();
		return CPA_OK;
	}
	list_available(available, sizeof available);
	for (int set = 0; set < CPA_NCPUS; set++) {
		const char *lack = cpa_cpu_lacks((enum cpa_cpu)set);

		if (strcmp(name, rows[set].name))
			continue;
		if (lack)
			return cpa_fail(error, CPA_INVALID,
				"CPATTN_CPU=%s cannot run here: %s; this machine can run %s",
				name, lack, available);
		*row = row_of((enum cpa_cpu)set);
		return CPA_OK;
	}
	return cpa_fail(error, CPA_INVALID,
		"CPATTN_CPU=%.32s is no instruction set of the kernels; this machine can run %s",
		name, available);
}

/* NULL: not picked yet. */
static _Atomic(const struct cpa_cpu_kernels *) picked;

enum cpa_status cpa_cpu_select(const char *name, struct cpa_error *error)
{
	const struct cpa_cpu_kernels *row;
	enum cpa_status status = find(name ? name : getenv("CPATTN_CPU"), &row, error);

	if (!status)
		atomic_store(&picked, row);
	return status;
}

enum cpa_status cpa_cpu_check(struct cpa_error *error)
{
	return atomic_load(&picked) ? CPA_OK : cpa_cpu_select(NULL, error);
}

const struct cpa_cpu_kernels *cpa_cpu_kernels(void)
{
	const struct cpa_cpu_kernels *row = atomic_load(&picked);
	struct cpa_error error;

	if (row)
		return row;
	return cpa_cpu_check(&error) ? best() : atomic_load(&picked);
}

const char *cpa_cpu_bf16_set(void)
{
	const struct cpa_cpu_kernels *row = cpa_cpu_kernels();

	return row == &rows[CPA_CPU_AMX] || row == &rows[CPA_CPU_AVX512_BF16] ? row->name : NULL;
}

void cpa_cpu_describe(char *text, size_t size)
{
	const char *wish = getenv("CPATTN_CPU");
	const struct cpa_cpu_kernels *row = cpa_cpu_kernels();
	size_t length;

	snprintf(text, size, "kernels %s, picked %s%s%s%s", row->name,
		wish && *wish ? "by CPATTN_CPU" : "as the best that runs here",
		row->remark ? " (" : "", row->remark ? row->remark : "", row->remark ? ")" : "");
	for (int set = 0; set < LISTED; set++) {
		const char *lack = cpa_cpu_lacks((enum cpa_cpu)set);
		const struct cpa_cpu_kernels *other = row_of((enum cpa_cpu)set);

		if (other == row)
			continue;
		length = strlen(text);
		snprintf(text + length, size - length, "; %s: %s%s%s", other->name,
			lack ? lack : "could run too", !lack && other->remark ? ", " : "",
			!lack && other->remark ? other->remark : "");
	}
}
