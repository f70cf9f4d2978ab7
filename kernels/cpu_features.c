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
	[CPA_CPU_GENERIC] = {"generic", &cpa_attend_generic, &cpa_move_generic},
#if CPA_CPU_X86
	[CPA_CPU_AVX2] = {"avx2", &cpa_attend_avx2, &cpa_move_avx2},
	[CPA_CPU_AVX512] = {"avx512", &cpa_attend_avx512, &cpa_move_avx512},
#else
	[CPA_CPU_AVX2] = {.name = "avx2"},
	[CPA_CPU_AVX512] = {.name = "avx512"},
#endif
	[CPA_CPU_AMX] = {.name = "amx"},
};

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

static const char *lacks_amx(void)
{
#if CPA_CPU_X86 && defined(__linux__)
	enum {
		TILE = 1 << 24,
		TILE_BF16 = 1 << 22,
		STATE = 3 << 17,
		REQUEST = 0x1023,
		DATA = 18
	};
	unsigned a, b, c, d, saved, high;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & TILE) || !(d & TILE_BF16))
		return "the processor has no AMX with bf16";
	__asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
	if ((saved & STATE) != STATE)
		return "the operating system does not save AMX tiles";
	if (syscall(SYS_arch_prctl, REQUEST, DATA))
		return "the operating system does not grant AMX tiles to this process";
	return lacks_avx512();
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
	if (set == CPA_CPU_GENERIC)
		return NULL;
	if (!rows[set].attend)
		return "this build has no kernels for it";
	switch (set) {
	case CPA_CPU_AVX2:
		return lacks_avx2();
	case CPA_CPU_AVX512:
		return lacks_avx512();
	case CPA_CPU_AMX:
		return lacks_amx();
	default:
		return NULL;
	}
}

static const struct cpa_cpu_kernels *best(void)
{
	for (int set = CPA_NCPUS - 1; set > 0; set--)
		if (!cpa_cpu_lacks((enum cpa_cpu)set))
			return &rows[set];
	return &rows[CPA_CPU_GENERIC];
}

/* The sets that can run here: "generic, avx2 and avx512". */
static void list_available(char *text, size_t size)
{
	int n = 0, nlisted = 0;

	for (int set = 0; set < CPA_NCPUS; set++)
		n += !cpa_cpu_lacks((enum cpa_cpu)set);
	*text = 0;
	for (int set = 0; set < CPA_NCPUS; set++) {
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
	char available[64];

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
		*row = &rows[set];
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

void cpa_cpu_describe(char *text, size_t size)
{
	const char *wish = getenv("CPATTN_CPU");
	const struct cpa_cpu_kernels *row = cpa_cpu_kernels();
	size_t length;

	snprintf(text, size, "kernels %s, picked %s", row->name,
		wish && *wish ? "by CPATTN_CPU" : "as the best that runs here");
	for (int set = 0; set < CPA_NCPUS; set++) {
		const char *lack = cpa_cpu_lacks((enum cpa_cpu)set);

		if (&rows[set] == row)
			continue;
		length = strlen(text);
		snprintf(text + length, size - length, "; %s: %s", rows[set].name,
			lack ? lack : "could run too");
	}
}
