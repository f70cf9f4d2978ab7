/*
 * test_amx_trap.c - the kernel with AMX instructions, on machines that lack them: each one that
 * the processor refuses is decoded and done in software, from its bytes and registers.  What
 * comes out must be the bits that the kernel over software tiles gives, so operands, addresses,
 * steps and the configuration are what they should be.
 */
#define _GNU_SOURCE /* registers of a signal */
#include <stdint.h>
#include <ucontext.h>

/* attend.c a second time, with kernels that this machine would not pick. */
#define cpa_cpu_kernels trapped_kernels
#define cpa_cpu_attend trapped_attend
#define cpa_cpu_arithmetic trapped_arithmetic
#define cpa_sight_find trapped_sight_find
#define cpa_cpu_exp2_float trapped_exp2_float
#define cpa_cpu_exp2_double trapped_exp2_double
#include "kernels/test_attend_check.h"

#include <signal.h>
#include <stdio.h>

#if CPA_CPU_X86 && defined(__linux__)
#define CPA_TILES_IN_SOFTWARE
#include "kernels/amx_tiles.h"
#include "kernels/attend.c"

const struct cpa_cpu_kernels *trapped_kernels(void)
{
	static const struct cpa_cpu_kernels row = {.name = "amx", .attend = &cpa_attend_amx};

	return &row;
}

/* ---- one instruction ---- */

static volatile sig_atomic_t ntrapped[256]; /* by opcode */

/* VEX prefix of three bytes, opcode, ModRM, then what an address needs. */
struct instruction {
	unsigned prefix, opcode; /* 0 none, 1 66, 2 F3, 3 F2 */
	unsigned mod, reg, rm, vvvv;
	char *address;
	int64_t step;
	const unsigned char *next;
};

static int64_t register_of(const ucontext_t *context, unsigned i)
{
	static const int order[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI,
		REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

	return context->uc_mcontext.gregs[order[i]];
}

/* The address of a memory operand; with SIB, the index is the step between rows. */
static void find_address(
	const ucontext_t *context, const unsigned char *vex, struct instruction *in)
{
	unsigned base = in->rm, extra = vex[1] & 0x20 ? 0 : 8;
	int64_t address = 0;
	int32_t displacement = 0;
	bool is_relative = in->mod == 0 && base == 5, has_base = !is_relative;

	if (base == 4) {
		unsigned sib = *in->next++, index = (sib >> 3 & 7) + (vex[1] & 0x40 ? 0 : 8);

		base = sib & 7;
		has_base = !(in->mod == 0 && base == 5);
		in->step = index == 4 ? 0 : register_of(context, index) << (sib >> 6);
	}
	if (has_base)
		address = register_of(context, base + extra);
	if (in->mod == 1)
		displacement = (int8_t)*in->next++;
	if (in->mod == 2 || !has_base) {
		memcpy(&displacement, in->next, 4);
		in->next += 4;
	}
	if (is_relative)
		address = (int64_t)(intptr_t)in->next;
	in->address = (char *)(intptr_t)(address + displacement);
}

static bool decode(const ucontext_t *context, struct instruction *in)
{
	const unsigned char *at =
		(const unsigned char *)(intptr_t)context->uc_mcontext.gregs[REG_RIP];

	if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || at[2] & 0x84)
		return false;
	*in = (struct instruction){.prefix = at[2] & 3,
		.opcode = at[3],
		.mod = at[4] >> 6,
		.reg = at[4] >> 3 & 7,
		.rm = at[4] & 7,
		.vvvv = ~(unsigned)(at[2] >> 3) & 15,
		.next = at + 5};
	if (in->mod != 3)
		find_address(context, at, in);
	return true;
}

/* By the tables of the manual.  False for what is no instruction of ours. */
static bool execute(const struct instruction *in)
{
	if (in->opcode == 0x49 && in->prefix == 0 && in->mod != 3)
		TILE_CONFIGURE((const struct cpa_tile_config *)(const void *)in->address);
	else if (in->opcode == 0x49 && in->prefix == 0 && in->rm == 0 && in->reg == 0)
		TILE_RELEASE();
	else if (in->opcode == 0x49 && in->prefix == 3 && in->mod == 3)
		TILE_ZERO((int)in->reg);
	else if (in->opcode == 0x4b && (in->prefix == 3 || in->prefix == 1) && in->mod != 3)
		TILE_LOAD((int)in->reg, in->address, in->step);
	else if (in->opcode == 0x4b && in->prefix == 2 && in->mod != 3)
		TILE_STORE((int)in->reg, in->address, in->step);
	else if (in->opcode == 0x5c && in->prefix == 2 && in->mod == 3)
		TILE_MULTIPLY((int)in->reg, (int)in->rm, (int)in->vvvv);
	else
		return false;
	return true;
}

static void on_illegal(int number, siginfo_t *info, void *memory)
{
	ucontext_t *context = memory;
	struct instruction in;

	(void)info;
	if (!decode(context, &in) || !execute(&in)) {
		signal(number, SIG_DFL); /* the same again, and then for good */
		return;
	}
	ntrapped[in.opcode]++;
	context->uc_mcontext.gregs[REG_RIP] = (greg_t)(intptr_t)in.next;
}

/* ---- kernels ---- */

static void make(struct attend_case *test, int64_t nq, int64_t nk, int64_t D, int64_t Dv)
{
	memset(test, 0, sizeof *test);
	cpa_arena_init(&test->arena);
	test->problem = (struct cpa_problem){.B = 1,
		.Sq = nq,
		.Skv = nk,
		.Hq = 2,
		.Hkv = 1,
		.D = D,
		.Dv = Dv,
		.dtype = CPA_DTYPE_BF16,
		.scale = 1 / sqrt((double)D),
		.lse = true};
	choose_partials(test, 0);
	test->batches.end = 1;
	test->heads.end = 2;
	cpa_spans_append_range(&test->arena, &test->q_tokens, (struct cpa_range){0, nq});
	cpa_spans_append_range(&test->arena, &test->k_tokens, (struct cpa_range){0, nk});
}

static void check_bits(struct attend_case *test)
{
	unsigned char *o = malloc(test->o.nbytes), *lse = malloc(test->lse.nbytes);
	struct cpa_error error;

	attend(devices[1], test);
	memcpy(o, test->o.data, test->o.nbytes);
	memcpy(lse, test->lse.data, test->lse.nbytes);
	memset(test->o.data, 0xff, test->o.nbytes);
	memset(test->lse.data, 0xff, test->lse.nbytes);
	assert_int_equal(trapped_attend(devices[1], 0, &test->call, &error), CPA_OK);
	assert_memory_equal(o, test->o.data, test->o.nbytes);
	assert_memory_equal(lse, test->lse.data, test->lse.nbytes);
	free(o);
	free(lse);
}

/* Within a test: cmocka takes such signals for failures and catches them itself. */
static void trap(void)
{
	struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};

	sigemptyset(&action.sa_mask);
	assert_int_equal(sigaction(SIGILL, &action, NULL), 0);
}

/* Whole and half blocks of rows, features of one tile and more, an odd tile, parts of keys. */
static void instructions_do_what_software_tiles_do(void **state)
{
	static const int64_t cases[][4] = {{40, 70, 32, 32}, {8, 33, 5, 16}, {33, 100, 64, 17},
		{100, 600, 40, 48}, {10, 2500, 16, 16}, {16, 64, 128, 128}};

	(void)state;
	trap();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct attend_case test;

		make(&test, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
		test.problem.rule.causal = i % 2;
		test.problem.rule.offset = 10;
		case_build(&test);
		check_bits(&test);
		case_free(&test);
	}
	assert_true(ntrapped[0x49] > 0 && ntrapped[0x4b] > 0 && ntrapped[0x5c] > 0);
	print_message("%d instructions to multiply, %d to load or store, %d others\n",
		(int)ntrapped[0x5c], (int)ntrapped[0x4b], (int)ntrapped[0x49]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_do_what_software_tiles_do),
	};
	struct cpa_error error;
	int failed;

	if (cpa_cpu_lacks(CPA_CPU_AVX512) || !cpa_cpu_lacks(CPA_CPU_AMX)) {
		print_message("nothing to trap: %s\n",
			cpa_cpu_lacks(CPA_CPU_AMX) ? "the kernel needs AVX-512 besides"
						   : "the processor has AMX");
		return 0;
	}
	if (cpa_cpu_select("amx-software", &error) ||
		cpa_device_create("cpu", &devices[1], &error))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cpa_device_destroy(devices[1]);
	return failed;
}
#else
int main(void)
{
	print_message("without tiles: this is not an x86-64 build for Linux\n");
	return 0;
}
#endif
