/*
 * help.c - commands for people: what there is, how to call it, examples that work; and the
 * version.
 */
#include <stdio.h>
#include <string.h>

#include "harness/commands.h"
#include "harness/options_table.h"
#include "harness/text.h"

#ifndef CPA_VERSION
#define CPA_VERSION "0.1.0"
#endif
#ifndef CPA_COMMIT
#define CPA_COMMIT "unknown"
#endif
#ifndef CPA_FEATURES
#define CPA_FEATURES ""
#endif
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct cpa_command_info command_table[] = {
	{ "list", CPA_COMMAND_LIST,
		"cpattn list [variants|devices|comms|faults|machines|models|recordings|"
		"systems]",
		"what there is, what it needs, and whether it can run here",
		"  cpattn list\n"
		"  cpattn list variants\n" },
	{ "verify", CPA_COMMAND_VERIFY, "cpattn verify FILE... | --problem P  [options]",
		"runs variants on recorded or made tensors and compares with full attention",
		"  cpattn verify --problem S=97,H=4,D=32,dtype=fp32,causal\n"
		"  cpattn verify --problem S=64,H=4 --variant ring --ranks 4 --verbose\n"
		"  cpattn verify --problem B=2,S=50,Hq=6,Hkv=2 --variant unified_anything "
		"--json -\n"
		"  cpattn verify --problem S=97,H=4,causal,window=20:0,documents=0:40:97 --rotate "
		"direct\n"
		"  cpattn verify data/recordings/*.h5\n" },
	{ "plan", CPA_COMMAND_PLAN, "cpattn plan FILE | --problem P | --model M  [options]",
		"prints and proves schedules: bytes, messages, memory and work of each rank",
		"  cpattn plan --problem S=64,H=8,causal --variant ring --ranks 4 --order "
		"zigzag\n"
		"  cpattn plan --problem S=4096,H=32 --ranks 8 --best bytes\n"
		"  cpattn plan --model flux.1-dev --size 1024x1024 --ranks 4\n"
		"  cpattn plan --model flux.1-dev --size 1008x1008 --ring 4 --as diffusers\n"
		"  cpattn plan --problem S=64,H=8 --variant ring --ranks 2 --format dot\n" },
	{ "check", CPA_COMMAND_CHECK, "cpattn check FILE...  [options]",
		"judges recorded outputs, of one device and of every rank: right or wrong, and where",
		"  cpattn check data/recordings/peers/*.h5\n"
		"  cpattn check data/recordings/tiny_ranks.h5 --json -\n" },
	{ "diagnose", CPA_COMMAND_DIAGNOSE, "cpattn diagnose FILE...  [options]",
		"names the fault that explains what is wrong with recorded outputs of ranks, and "
		"who waits for whom in recorded events",
		"  cpattn diagnose data/recordings/peers/yunchang_torch_math_ring_p3_fp32.h5\n" },
	{ "bench", CPA_COMMAND_BENCH, "cpattn bench FILE | --problem P | --kernels  [options]",
		"times variants beside one rank and beside the limits of this machine",
		"  cpattn bench --problem S=4096,H=8,D=128,dtype=fp32 --ranks 4\n"
		"  cpattn bench --problem S=1024,H=8,causal,dtype=bf16 --variant ring --ranks 2 "
		"--rotate all\n"
		"  cpattn bench --kernels --threads 1\n" },
	{ "merge", CPA_COMMAND_MERGE, "cpattn merge RUN.d -o FILE  [options]",
		"joins what the ranks of a run recorded, a file for each call and rank, into one recording",
		"  cpattn merge run.d -o run.h5\n" },
	{ "probe", CPA_COMMAND_PROBE, "cpattn probe --problem P | --for FILE  -o FILE  [options]",
		"writes inputs that show what a run could not, to be fed to it",
		"  cpattn probe --problem B=2,S=101,Hq=8,Hkv=2,D=64,dtype=bf16,causal,scale=0.3 --fill "
		"count -o probe.h5\n"
		"  cpattn probe --for data/recordings/peers/diffusers_ring_p4_fp32.h5 -o probe.h5\n" },
	{ "report", CPA_COMMAND_REPORT, "cpattn report FILE.json... --out DIR  [options]",
		"pages and plots of what --json wrote; two files of one command are compared",
		"  cpattn report verify.json bench.json --out report\n"
		"  cpattn report before.json after.json --out report --annotations -\n" },
	{ "help", CPA_COMMAND_HELP, "cpattn help [COMMAND]",
		"prints this, or the options of a command", "  cpattn help verify\n" },
};

const struct cpa_command_info *cpa_command_info(int i)
{
	return i >= 0 && i < COUNT(command_table) ? &command_table[i] : NULL;
}

const char *cpa_command_name(enum cpa_command command)
{
	for (int i = 0; i < COUNT(command_table); i++)
		if (command_table[i].command == command)
			return command_table[i].name;
	return "none";
}

const char *cpa_command_list(void)
{
	static char text[160];
	struct cpa_text list = cpa_text_begin(text, sizeof text);
	int n = COUNT(command_table) - 1; /* help comes last, and is not counted */

	for (int i = 0; i < n; i++)
		cpa_text_put(&list, "%s%s", i == 0 ? "" : i + 1 < n ? ", " : " or ",
			command_table[i].name);
	return text;
}

const char *cpa_later_command(const char *name)
{
	static const char *const names[] = { "simulate" };

	static char text[200];

	for (int i = 0; i < COUNT(names); i++)
		if (strcmp(name, names[i]) == 0) {
			snprintf(text, sizeof text,
				"is not in this version yet; this one has %s", cpa_command_list());
			return text;
		}
	return NULL;
}

const char *cpa_version(void)
{
	return CPA_VERSION;
}

const char *cpa_commit(void)
{
	return CPA_COMMIT;
}

const char *cpa_features(void)
{
	return CPA_FEATURES;
}

int cpa_complain(const struct cpa_error *error)
{
	/* Names come from outside; a line of theirs must not pass for a line of ours. */
	fputs("cpattn: ", stderr);
	for (const char *c = error->text; *c; c++)
		fputc((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c, stderr);
	fputc('\n', stderr);
	return 2;
}

int cpa_cmd_version(void)
{
	printf("cpattn %s (commit %s)\n", cpa_version(),
		cpa_commit()[0] ? cpa_commit() : "unknown");
	printf("built with: %s\n", cpa_features()[0] ? cpa_features() : "nothing optional");
	return 0;
}

static void print_all(void)
{
	printf("cpattn - a testbed for context-parallel attention: is it right?\n\nusage:\n");
	for (int i = 0; cpa_command_info(i); i++)
		printf("  %s\n      %s\n", cpa_command_info(i)->usage,
			cpa_command_info(i)->summary);
	printf("  cpattn --version\n\nexamples:\n");
	for (int i = 0; cpa_command_info(i); i++)
		fputs(cpa_command_info(i)->examples, stdout);
	printf("\nexit status: 0 right, 1 wrong, 2 cannot tell (bad input, or nothing ran), "
	       "130 interrupted\n");
}

static void print_problem_keys(void)
{
	printf("\nproblem: key=value,key=value\n"
	       "  B (1)  H, or Hq and Hkv (8)  D (64)  Dv (D)  S, or Sq and Skv (required)\n"
	       "  dtype=fp64|fp32|bf16|fp16 (fp64)  scale (1/sqrt(D))  lse, lse=no\n"
	       "  layout=BSHD|BHSD|fused (BSHD): of the caller's arrays; fused is one array\n"
	       "      [B, S, Hq + 2 Hkv, D] of which q, k and v are views (Sq = Skv, D = Dv)\n"
	       "  causal: query i sees key j <= i + offset\n"
	       "  window=L:R: only i + offset - L <= j <= i + offset + R; -1 is no bound\n"
	       "  offset=N (0; required with causal or window when Sq and Skv differ)\n"
	       "  key_lengths=17:52: batch item 0 has 17 keys, item 1 has 52\n"
	       "  documents=0:129:390: starts and the end; a query sees its own document\n"
	       "  mask=bool:1x1xQxK:SEED, mask=bias:1xHx1xK:SEED: a dense mask, hiding or\n"
	       "      added to scores, made from a seed; its shape is B H Q K, 1 where it does\n"
	       "      not change\n"
	       "  segments=text:16:replicated/image:48:split: parts that are cut on their own, or\n"
	       "      are on every rank; segments_kv= for keys where Sq and Skv differ\n"
	       "  text=16: 16 tokens in front of S, short for segments=text:16:split/image:S:split\n"
	       "  sink=0.5, sink=random: a further logit of each head in the denominator\n");
}

static void print_command(const struct cpa_command_info *info)
{
	bool any = false, problems = false;

	printf("usage: %s\n\n%s\n\n", info->usage, info->summary);
	for (int i = 0; cpa_option_info(i); i++) {
		const struct cpa_option_info *option = cpa_option_info(i);
		char left[40];

		if (!(option->commands & 1u << info->command))
			continue;
		snprintf(left, sizeof left, "%s%s%s", option->name, option->value ? " " : "",
			option->value ? option->value : "");
		printf("%s  %-22s  %s\n", any ? "" : "options (default):\n", left,
			option->help);
		any = true;
		problems |= strcmp(option->name, "--problem") == 0;
	}
	if (problems)
		print_problem_keys();
	printf("%sexamples:\n%s", any ? "\n" : "", info->examples);
}

int cpa_cmd_help(enum cpa_command about)
{
	for (int i = 0; cpa_command_info(i); i++)
		if (about != CPA_COMMAND_NONE && cpa_command_info(i)->command == about) {
			print_command(cpa_command_info(i));
			return 0;
		}
	print_all();
	return 0;
}
