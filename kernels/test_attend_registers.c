/*
 * test_attend_registers.c - the sums of the attention kernels stay in registers: compilers that
 * keep them in memory are right, and three times slower.
 *
 * Looks at the library as objdump prints it: a run of instructions that ends in a jump back to
 * its beginning, with broadcasts, at least 8 multiply-adds of whole vectors and no shuffles (rows
 * turned round have those), which only the loops over features and keys are, may not store vectors
 * on the stack.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1200, LEAST_SUMS = 8 };

/* An instruction: its address, and what is looked for. */
struct line {
	unsigned long address, target;
	bool multiplies, broadcasts, shuffles, on_stack;
};

static bool read_line(const char *text, struct line *line)
{
	char *end;
	const char *jump;

	line->address = strtoul(text, &end, 16);
	if (*end != ':' || end == text)
		return false;
	jump = strstr(end, "\tj");
	line->target = jump ? strtoul(jump + strcspn(jump, " ") + 1 +
					      strspn(jump + strcspn(jump, " ") + 1, " "),
				      NULL, 16)
			    : 0;
	line->broadcasts = strstr(end, "broadcast") || strstr(end, "{1to");
	line->multiplies = (strstr(end, "vfmadd231") || strstr(end, "vdpbf16ps")) &&
		(strstr(end, "%zmm") || strstr(end, "%ymm"));
	line->shuffles = strstr(end, "vunpck") || strstr(end, "vinsert");
	/* A store: memory comes last.  Reading a constant from there is harmless. */
	line->on_stack = strstr(end, "mm") &&
		(strstr(end, "(%rsp)\n") || strstr(end, "(%rbp)\n"));
	return true;
}

/* Loops of sums that end at the last of n lines; adds what of them is on the stack. */
static int count_loop(const struct line *lines, int n, int *nstack)
{
	unsigned long target = lines[n - 1].target;
	int nsums = 0, nbroadcasts = 0, nshuffles = 0, found = 0, i = n - 1;

	if (!target || target >= lines[n - 1].address)
		return 0;
	for (; i >= 0 && lines[i].address >= target; i--) {
		nsums += lines[i].multiplies;
		nbroadcasts += lines[i].broadcasts;
		nshuffles += lines[i].shuffles;
		found += lines[i].on_stack;
		if (i < n - 1 && lines[i].target)
			return 0; /* not an innermost loop */
	}
	if (i < 0 || nsums < LEAST_SUMS || !nbroadcasts || nshuffles)
		return 0;
	*nstack += found;
	return 1;
}

static void sums_stay_in_registers(void **state)
{
	struct line *lines = calloc(MOST, sizeof *lines);
	int n = 0, nloops = 0, nstack = 0;
	char text[512];
	FILE *listing;

	(void)state;
	if (system("objdump --version >/dev/null 2>&1")) {
		free(lines);
		print_message("without objdump: loops cannot be looked at\n");
		skip();
	}
	listing = popen("objdump -d --no-show-raw-insn /proc/$PPID/exe", "r");
	assert_non_null(listing);
	while (fgets(text, sizeof text, listing)) {
		struct line line;

		if (!read_line(text, &line))
			continue;
		if (n == MOST) {
			memmove(lines, lines + MOST / 2, MOST / 2 * sizeof *lines);
			n = MOST / 2;
		}
		lines[n++] = line;
		nloops += count_loop(lines, n, &nstack);
	}
	pclose(listing);
	free(lines);
	print_message("%d loops of sums, %d stores to the stack in them\n", nloops, nstack);
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) &&            \
	!defined(CPA_NO_CLONES)
	assert_true(nloops >= 20);
	assert_int_equal(nstack, 0);
#endif
}

/* Pulls the kernels into this program. */
#include "kernels/cpu.h"

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_stay_in_registers),
	};

	return cpa_cpu_kernels() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
