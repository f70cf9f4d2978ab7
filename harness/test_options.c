/*
 * test_options.c - command lines that are understood, and the sentence for each that is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/options.h"
#include "harness/options_table.h"
#include "harness/suggest.h"

enum { MAX_WORDS = 32 };

/* Words are split at spaces; '_' stands for an empty word. */
static enum cpa_status parse(const char *line, char *copy, struct cpa_options *options,
	struct cpa_error *error)
{
	static char empty[] = "";
	char *argv[MAX_WORDS];
	int argc = 0;

	strcpy(copy, line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = strcmp(word, "_") == 0 ? empty : word;
	error->text[0] = '\0';
	return cpa_options_parse(argc, argv, options, error);
}

struct bad {
	const char *line, *says, *also;
};

#define VERIFY "cpattn verify --problem S=64 "
#define PLAN "cpattn plan --problem S=64 "
#define GUIDED "cpattn verify --problem S=64,B=2 --guidance "
#define BENCH "cpattn bench --problem S=64 "

static const struct bad bad_lines[] = {
	{ "cpattn", "a command is missing", "--help" },
	{ "cpattn _", "the command is empty", "list" },
	{ "cpattn verfy x.h5", "unknown command 'verfy'", "did you mean verify?" },
	{ "cpattn frobnicate", "unknown command 'frobnicate'", "list, verify, plan, check" },
	{ "cpattn x.h5", "did you mean cpattn verify x.h5?", "command comes first" },
	{ "cpattn --ring 4 verify x.h5", "a command comes first", "--ring" },
	{ "cpattn report", "report needs what --json of the other commands wrote", "--out DIR" },
	{ "cpattn report x.json", "report writes to --out DIR, --annotations FILE or --junit FILE", "" },
	{ "cpattn report x.json --out", "--out needs a value", "--out DIR" },
	{ "cpattn report x.json --out _", "--out needs a directory", "" },
	{ "cpattn report x.json --out -", "--out needs a directory", "" },
	{ "cpattn report _ --out y", "a file name is empty", "" },
	{ "cpattn report - --out y", "cannot be read from stdin", "name its file" },
	{ "cpattn report x --annotations a --junit a", "--annotations and --junit both write to a", "" },
	{ "cpattn report x --annotations - --junit -", "both write to stdout", "" },
	{ "cpattn report x --ranks 4", "report takes no --ranks", "verify" },
	{ "cpattn report x --oot y", "unknown option '--oot'", "did you mean --out?" },
	{ "cpattn verify x.h5 --out y", "verify takes no --out", "report" },
	{ "cpattn bench", "bench needs a recording or a problem", "cpattn bench FILE" },
	{ "cpattn benhc", "unknown command 'benhc'", "did you mean bench?" },
	{ "cpattn bench a.h5 b.h5", "bench takes one recording, not 2", "" },
	{ BENCH "--repeat 0", "--repeat: 0", "" },
	{ BENCH "--repeat", "--repeat needs a value", "--repeat N" },
	{ BENCH "--repeat few", "--repeat", "few" },
	{ BENCH "--warmup -1", "--warmup", "-1" },
	{ BENCH "--threads 0", "--threads: 0", "" },
	{ BENCH "--one-rank-threads 0", "--one-rank-threads: 0", "" },
	{ BENCH "--kernels --ranks 4", "--kernels times single operations", "leave out --ranks" },
	{ BENCH "--kernels --variant ring", "--kernels", "leave out --variant" },
	{ BENCH "--kernels --comm fake", "--kernels", "leave out --comm" },
	{ BENCH "--kernels --batch 1", "--kernels", "leave out --batch" },
	{ BENCH "--kernels --ring 2", "--kernels", "leave out --ring" },
	{ BENCH "--kernels --ulysses 2", "--kernels", "leave out --ulysses" },
	{ BENCH "--kernels --rotate p2p", "--kernels", "leave out --rotate" },
	{ BENCH "--kernels --split equal", "--kernels", "leave out --split" },
	{ BENCH "--kernels --split-kv ceil", "--kernels", "leave out --split-kv" },
	{ BENCH "--kernels --order auto", "--kernels", "leave out --order" },
	{ BENCH "--kernels --order zigzag", "--kernels", "leave out --order" },
	{ BENCH "--kernels --heads ceil", "--kernels", "leave out --heads" },
	{ BENCH "--kernels --direction down", "--kernels", "leave out --direction" },
	{ BENCH "--kernels --partials all", "--kernels", "leave out --partials" },
	{ BENCH "--kernels --mesh batch,ulysses,ring", "--kernels", "leave out --mesh" },
	{ "cpattn bench --problem B=2,S=8 --kernels --guidance 3", "--kernels",
		"leave out --guidance" },
	{ "cpattn bench --kernels x.h5", "--kernels", "leave out x.h5" },
	{ BENCH "--interleavings 2", "bench takes no --interleavings (verify does)", "" },
	{ BENCH "--fault hop-skipped", "bench takes no --fault", "" },
	{ BENCH "--repaet 3", "unknown option '--repaet'", "did you mean --repeat?" },
	{ VERIFY "--repeat 3", "verify takes no --repeat (bench does)", "" },
	{ PLAN "--kernels", "plan takes no --kernels (bench does)", "" },
	{ "cpattn merge", "merge needs the directory of a recorded run", "" },
	{ "cpattn merge run.d", "merge needs the name of the recording to write", "-o FILE" },
	{ "cpattn merge run.d -o -", "cannot write a recording to stdout", "" },
	{ "cpattn merge run.d -o _", "-o: the file name is empty", "" },
	{ "cpattn merge run.d -o", "-o needs a value", "" },
	{ "cpattn merge - -o x.h5", "cannot be read from stdin", "" },
	{ "cpattn merge run.d --fill count", "merge takes no --fill", "" },
	{ "cpattn verify x.h5 -o y", "verify takes no -o", "" },
	{ "cpattn probe", "probe needs a problem or a recording", "--problem S=96,H=8" },
	{ "cpattn probe x.h5 -o y.h5", "leave out 'x.h5'", "--for x.h5" },
	{ "cpattn probe --problem S=8 --for x.h5 -o y", "not both", "" },
	{ "cpattn probe --problem S=8 --call 0", "--call picks a call of --for", "" },
	{ "cpattn probe --problem S=8", "-o FILE", "" },
	{ "cpattn probe --problem S=8,Q=3 -o y", "Q", "" },
	{ "cpattn probe --problem S=8 --fill ones -o y", "--fill: unknown 'ones'", "unlike" },
	{ "cpattn probe --for _ -o y", "--for: the file name is empty", "" },
	{ "cpattn simulate", "not in this version yet", "simulate" },
	{ "cpattn help verfy", "unknown command 'verfy'", "did you mean verify?" },
	{ "cpattn --version now", "--version stands alone", "now" },
	{ "cpattn verify", "verify needs a recording or a problem", "--problem S=64,H=8" },
	{ "cpattn plan", "plan needs a recording or a problem", "cpattn plan FILE" },
	{ "cpattn verify x.h5 --problem S=64", "not both", "x.h5" },
	{ "cpattn plan a.h5 b.h5", "plan takes one recording, not 2", "" },
	{ "cpattn verify -", "cannot be read from stdin", "" },
	{ "cpattn verify _", "a file name is empty", "" },
	{ VERIFY "--varient ring", "unknown option '--varient'", "did you mean --variant?" },
	{ VERIFY "--rings 2", "unknown option '--rings'", "did you mean --ring?" },
	{ VERIFY "-x", "unknown option '-x'", "cpattn verify --help" },
	{ GUIDED "_", "--guidance: '' is not a number", "" },
	{ GUIDED "high", "--guidance: 'high' is not a number", "" },
	{ GUIDED "nan", "--guidance: 'nan' is not a number", "" },
	{ GUIDED "inf", "--guidance: 'inf' is not a number", "" },
	{ GUIDED "1e999", "--guidance: 1e999 is not a finite number", "" },
	{ GUIDED "3.5:", "--guidance, the second scale: ''", "" },
	{ GUIDED "3.5:-inf", "--guidance, the second scale: '-inf'", "" },
	{ GUIDED "3.5:1:2", "--guidance, the second scale: '1:2'", "" },
	{ GUIDED ":1.5", "--guidance: ''", "" },
	{ GUIDED "3.5 --guidance 3", "--guidance is given twice", "" },
	{ GUIDED "11111111111111111111111111111111111111111111111111111111111111",
		"is not a number", "3.5:1.5" },
	{ GUIDED "3.5:1.5", "has 3 branches along the batch",
		"B = 2 is no multiple of 3; one scale" },
	{ VERIFY "--guidance 3.5", "has 2 branches along the batch", "B = 1 is no multiple of 2" },
	{ PLAN "--guidance 3.5", "has 2 branches along the batch", "B = 1 is no multiple of 2" },
	{ "cpattn plan --problem S=64,B=3 --guidance 3.5", "B = 3 is no multiple of 2",
		"two scales, S:S2" },
	{ "cpattn plan --model x --guidance 3.5", "--model brings its own sizes",
		"leave out --guidance" },
	{ "cpattn verify --random 3 --guidance 3", "--random", "leave out --guidance" },
	{ "cpattn list --guidance 3", "list takes no --guidance", "" },
	{ VERIFY "--random 3", "--random makes its own problems", "leave out --problem" },
	{ "cpattn verify x.h5 --random 3", "--random makes its own problems", "leave out x.h5" },
	{ "cpattn verify --random 3 --json -", "--random", "leave out --json" },
	{ "cpattn verify --random 3 --fill digits", "--random", "leave out --fill" },
	{ "cpattn verify --random 3 --order auto", "--random", "leave out --order auto" },
	{ "cpattn verify --random 0", "--random: 0", "" },
	{ PLAN "--model wan", "--model brings its own sizes", "leave out --problem" },
	{ PLAN "--size 8x8", "--size is of a model", "--model" },
	{ PLAN "--as deepspeed", "--as: unknown 'deepspeed'", "diffusers, cache-dit" },
	{ PLAN "--as diffuser", "--as: unknown 'diffuser'", "did you mean diffusers?" },
	{ PLAN "--as _", "--as: unknown ''", "diffusers" },
	{ PLAN "--backend flash", "--backend is of another system", "--as" },
	{ PLAN "--convert-to-fp32 no", "--convert-to-fp32 is of another system", "--as" },
	{ PLAN "--tensor-parallel 2", "--tensor-parallel is of another system", "--as" },
	{ PLAN "--as diffusers --backend flsh", "diffusers has no 'flsh'", "did you mean flash?" },
	{ PLAN "--backend _ --as xdit", "xdit has no ''", "no-lse" },
	{ PLAN "--as xdit --backend flash", "xdit has no 'flash'", "known: default, no-lse" },
	{ PLAN "--as xdit --convert-to-fp32 no", "is of diffusers", "xdit has no such choice" },
	{ PLAN "--as diffusers --convert-to-fp32 maybe", "unknown 'maybe'", "yes or no" },
	{ PLAN "--as diffusers --tensor-parallel 0", "0 is outside 1 to 4096", "" },
	{ PLAN "--as diffusers --format dot", "--as answers in words", "" },
	{ VERIFY "--as diffusers", "verify takes no --as (plan does)", "" },
	{ "cpattn list system", "list: unknown 'system'", "did you mean systems?" },
	{ PLAN "--device ref", "plan takes no --device (verify does)", "" },
	{ VERIFY "--best bytes", "verify takes no --best (plan does)", "" },
	{ "cpattn list --ring 2", "list takes no --ring", "" },
	{ "cpattn list variant", "list: unknown 'variant'", "did you mean variants?" },
	{ "cpattn list variants comms", "list takes one word", "comms" },
	{ VERIFY "--ring", "--ring needs a value", "--ring R" },
	{ VERIFY "--ring --ulysses 2", "--ring needs a value", "" },
	{ VERIFY "--ring 0", "--ring: 0 is outside 1 to 4096", "" },
	{ VERIFY "--ring -2", "--ring: -2 is outside 1 to 4096", "" },
	{ VERIFY "--ring 2x", "--ring: '2x' is not a whole number", "" },
	{ VERIFY "--ring _", "--ring: '' is not a whole number", "" },
	{ VERIFY "--ring +2", "is not a whole number", "" },
	{ VERIFY "--ring 0x2", "is not a whole number", "" },
	{ VERIFY "--ring 99999999999999999999", "is not a whole number from 1 to 4096", "" },
	{ VERIFY "--ring 4097", "outside 1 to 4096", "" },
	{ VERIFY "--ring 2 --ring 4", "--ring is given twice, as '2' and as '4'", "" },
	{ VERIFY "--verbose=yes", "--verbose takes no value", "yes" },
	{ VERIFY "--ranks 0-3", "--ranks: 0 is outside 1 to 4096", "" },
	{ VERIFY "--ranks 5000", "--ranks: 5000 is outside 1 to 4096", "" },
	{ VERIFY "--ranks 8-2", "runs backwards; write 2-8", "" },
	{ VERIFY "--ranks 2-", "'2-' is not a range", "" },
	{ VERIFY "--ranks 2,,3", "expected numbers and ranges such as 2-8,12", "" },
	{ VERIFY "--ranks 2,", "expected numbers and ranges", "" },
	{ VERIFY "--ranks two", "'two' is not a whole number", "" },
	{ VERIFY "--ranks _", "expected numbers and ranges", "" },
	{ VERIFY "--variant rng", "--variant: unknown 'rng'", "did you mean ring?" },
	{ VERIFY "--variant ring,,ulysses", "--variant: unknown ''", "ring_anything" },
	{ VERIFY "--rotate alltoall", "--rotate: unknown 'alltoall'",
		"p2p, allgather, direct or all" },
	{ VERIFY "--rotate drect", "did you mean direct?", "" },
	{ VERIFY "--order documents", "contiguous, zigzag, striped, zigzag_documents or auto", "" },
	{ VERIFY "--order zigzg", "did you mean zigzag?", "" },
	{ VERIFY "--split even", "--split: unknown 'even'", "equal, balanced, ceil or given" },
	{ VERIFY "--split given", "given needs its sizes; write given:5,4,0,4", "" },
	{ VERIFY "--split given:", "expected sizes such as given:5,4,0,4", "" },
	{ VERIFY "--split given:5,,4", "expected sizes such as given:5,4,0,4", "" },
	{ VERIFY "--split given:5,-1", "-1 is outside 0", "" },
	{ VERIFY "--heads given:a", "--heads: 'a' is not a whole number", "" },
	{ VERIFY "--split given:8,8 --ring 2 --ulysses 2",
		"--split gives 2 sizes, and --ring 2 x --ulysses 2 "
		"needs 4 for each split segment",
		"" },
	{ VERIFY "--heads given:4,4 --ulysses 3", "--heads gives 2 counts", "--ulysses is 3" },
	{ VERIFY "--direction left", "expected up or down", "" },
	{ VERIFY "--partials fp16", "--partials: unknown 'fp16'", "fp32, block or all" },
	{ VERIFY "--mesh ring,batch,ulysses", "not in this version yet", "batch,ring,ulysses" },
	{ VERIFY "--device cuda", "'cuda' is not in this version yet", "cpu" },
	{ VERIFY "--device cudnn", "'cudnn' is not in this version yet", "cpu" },
	{ VERIFY "--device gpu", "--device: unknown 'gpu'", "ref or cpu" },
	{ VERIFY "--comm nccl", "'nccl' is not in this version yet; use fake or mpi", "" },
	{ VERIFY "--interleavings 0", "--interleavings: 0 is outside 1", "" },
	{ VERIFY "--rows 0", "--rows: 0 is outside 1", "" },
	{ VERIFY "--seed -1", "--seed: '-1' is not a whole number", "" },
	{ VERIFY "--seed 18446744073709551616",
		"--seed: '18446744073709551616' is not a whole number", "" },
	{ VERIFY "--fault hop_skiped", "--fault: unknown 'hop_skiped'", "did you mean" },
	{ VERIFY "--fill ones", "--fill: unknown 'ones'", "normal" },
	{ VERIFY "--dtype fp32", "in a problem write --problem ...,dtype=fp32", "" },
	{ VERIFY "--call x", "--call picks calls of a recording", "" },
	{ "cpattn verify x.h5 --fill count", "--fill makes the tensors of --problem", "" },
	{ "cpattn verify x.h5 --dtype fp8", "--dtype: unknown 'fp8'", "bf16" },
	{ VERIFY "--json - --csv -", "--json and --csv both write to stdout", "" },
	{ VERIFY "--json a --junit a", "--json and --junit both write to a", "" },
	{ VERIFY "--json _", "--json: the file name is empty", "- stands for stdout" },
	{ PLAN "--format yaml", "--format: unknown 'yaml'", "text, json or dot" },
	{ PLAN "--format json --json a.json", "--format json is --json -", "a.json" },
	{ PLAN "--format dot --csv -", "both write to stdout", "" },
	{ PLAN "--format dot --verbose", "leave one out", "" },
	{ PLAN "--rank 0 --json -", "--rank prints operations", "what --json - writes" },
	{ PLAN "--rank 0 --format json", "--rank prints operations", "what --json - writes" },
	{ PLAN "--rank 0 --csv -", "--rank prints operations", "what --csv - writes" },
	{ PLAN "--rank 0 --junit -", "--rank prints operations", "name a file" },
	{ "cpattn verify --random 3 --verbose", "--random makes its own", "leave out --verbose" },
	{ PLAN "--best speed", "expected bytes, work or memory", "" },
	{ PLAN "--rank 4096", "--rank: 4096 is outside 0 to 4095", "" },
	{ "cpattn verify --problem S=64 --problem S=65", "--problem is given twice", "" },
};

static void a_bad_line_gets_one_sentence_that_says_what_is_wrong(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
		const struct bad *bad = &bad_lines[i];
		struct cpa_options options;
		struct cpa_error error;
		char copy[512];

		if (parse(bad->line, copy, &options, &error) != CPA_INVALID ||
			!strstr(error.text, bad->says) || !strstr(error.text, bad->also))
			fail_msg("%s\n  says: %s\n  not: %s ... %s", bad->line, error.text,
				bad->says, bad->also);
		assert_null(strchr(error.text, '\n'));
		cpa_options_fini(&options);
	}
}

static void defaults_are_those_of_the_manual(void **state)
{
	struct cpa_options o;
	struct cpa_error error;
	char copy[512];

	(void)state;
	assert_int_equal(parse("cpattn verify a.h5 b.h5", copy, &o, &error), CPA_OK);
	assert_int_equal(o.command, CPA_COMMAND_VERIFY);
	assert_int_equal(o.nfiles, 2);
	assert_string_equal(o.files[1], "b.h5");
	assert_false(o.has_problem);
	assert_int_equal(o.ranks.n, 7);
	for (int i = 0; i < 7; i++)
		assert_int_equal(o.ranks.at[i], 2 + i);
	for (int v = 0; v < CPA_NVARIANTS; v++)
		assert_true(o.variants[v]);
	assert_false(o.ranks_asked || o.variants_asked || o.device_asked || o.comm_asked);
	assert_int_equal(o.batch + o.ring + o.ulysses, 0);
	assert_int_equal(o.rotate, CPA_ROTATE_CHOICE_DEFAULT);
	assert_int_equal(o.order, CPA_ORDER_CONTIGUOUS);
	assert_int_equal(o.heads, CPA_HEADS_BALANCED);
	assert_int_equal(o.direction, 1);
	assert_int_equal(o.partials, CPA_PARTIALS_FP32);
	assert_string_equal(o.device, "cpu");
	assert_string_equal(o.comm, "fake");
	assert_int_equal(o.interleavings, 2);
	assert_int_equal(o.rows, 0);
	assert_int_equal(o.seed, 1);
	assert_null(o.json);
	cpa_options_fini(&o);
}

static void every_option_reaches_its_field(void **state)
{
	struct cpa_options o;
	struct cpa_error error;
	char copy[512];

	(void)state;
	assert_int_equal(parse("cpattn verify --problem B=2,S=12,H=4 --ranks 8,2-3,3 --batch 2 "
			       "--ring=2 "
			       "--variant ring --variant=ulysses_anything --rotate allgather "
			       "--split given:5,4,0,3 --split-kv ceil "
			       "--order striped --heads groups --direction down --mesh "
			       "batch,ulysses,ring --partials block "
			       "--device ref",
				 copy, &o, &error),
		CPA_OK);
	assert_int_equal(o.ranks.n, 3);
	assert_int_equal(o.ranks.at[0], 2);
	assert_int_equal(o.ranks.at[1], 3);
	assert_int_equal(o.ranks.at[2], 8);
	assert_true(o.ranks_asked && o.variants_asked && o.device_asked);
	assert_int_equal(o.batch, 2);
	assert_int_equal(o.ring, 2);
	for (int v = 0; v < CPA_NVARIANTS; v++)
		assert_int_equal(o.variants[v],
			v == CPA_VARIANT_RING || v == CPA_VARIANT_ULYSSES_ANYTHING);
	assert_int_equal(o.rotate, CPA_ROTATE_CHOICE_ALLGATHER);
	assert_true(o.has_split && o.split == CPA_SPLIT_GIVEN && o.sizes.n == 4 &&
		o.sizes.at[3] == 3);
	assert_true(o.has_split_kv && o.split_kv == CPA_SPLIT_CEIL && o.sizes_kv.n == 0);
	assert_int_equal(o.order, CPA_ORDER_STRIPED);
	assert_int_equal(o.heads, CPA_HEADS_GROUPS);
	assert_int_equal(o.direction, -1);
	assert_int_equal(o.mesh, CPA_MESH_BATCH_ULYSSES_RING);
	assert_int_equal(o.partials, CPA_PARTIALS_BLOCK);
	assert_string_equal(o.device, "ref");
	assert_true(o.has_problem && o.problem.B == 2 && o.problem.lse);
	cpa_options_fini(&o);
	assert_int_equal(parse("cpattn verify x.h5 --seed 18446744073709551615 --dtype bf16 "
			       "--call 0* --rows 7 "
			       "--interleavings 9 --interleaving-seed 5 --json - --junit a "
			       "--csv b --verbose -- --y.h5",
				 copy, &o, &error),
		CPA_OK);
	assert_true(o.seed == UINT64_MAX && o.has_dtype && o.dtype == CPA_DTYPE_BF16 &&
		o.verbose);
	assert_true(o.rows == 7 && o.interleavings == 9 && o.interleaving_seed == 5);
	assert_string_equal(o.call_glob, "0*");
	assert_string_equal(o.json, "-");
	assert_string_equal(o.junit, "a");
	assert_string_equal(o.csv, "b");
	assert_string_equal(o.files[1], "--y.h5");
	cpa_options_fini(&o);
	assert_int_equal(parse("cpattn plan --problem B=2,S=9,key_lengths=3:9,sink=0.5 "
			       "--rotate direct",
				 copy, &o, &error),
		CPA_OK);
	assert_int_equal(o.rotate, CPA_ROTATE_CHOICE_DIRECT);
	assert_true(o.problem.rule.key_lengths[1] == 9 && o.problem.rule.sink[7] == 0.5);
	cpa_options_fini(&o);
	assert_int_equal(parse(PLAN "--format json --best work", copy, &o, &error),
		CPA_OK);
	assert_true(o.format == CPA_FORMAT_JSON && strcmp(o.json, "-") == 0);
	assert_string_equal(o.best, "work");
	assert_false(o.problem.lse);
	cpa_options_fini(&o);
	assert_int_equal(parse(PLAN "--rank 0-2,5 --json a", copy, &o, &error), CPA_OK);
	assert_true(o.print_ranks.n == 4 && o.format == CPA_FORMAT_TEXT);
	cpa_options_fini(&o);
}

static void all_is_no_variant_asked_for_by_name(void **state)
{
	struct cpa_options o;
	struct cpa_error error;
	char copy[512];

	(void)state;
	assert_int_equal(parse(VERIFY "--variant all", copy, &o, &error), CPA_OK);
	assert_false(o.variants_asked);
	for (int v = 0; v < CPA_NVARIANTS; v++)
		assert_true(o.variants[v]);
	cpa_options_fini(&o);
	assert_int_equal(parse(VERIFY "--ring 2 --ring 2", copy, &o, &error), CPA_OK);
	cpa_options_fini(&o);
}

static void help_wins_over_all_else(void **state)
{
	static const struct {
		const char *line;
		enum cpa_command command, about;
	} cases[] = {
		{ "cpattn --help", CPA_COMMAND_HELP, CPA_COMMAND_NONE },
		{ "cpattn -h", CPA_COMMAND_HELP, CPA_COMMAND_NONE },
		{ "cpattn help", CPA_COMMAND_HELP, CPA_COMMAND_NONE },
		{ "cpattn help plan", CPA_COMMAND_HELP, CPA_COMMAND_PLAN },
		{ "cpattn verify --help", CPA_COMMAND_HELP, CPA_COMMAND_VERIFY },
		{ "cpattn verify --nonsense --help", CPA_COMMAND_HELP, CPA_COMMAND_VERIFY },
		{ "cpattn list -h", CPA_COMMAND_HELP, CPA_COMMAND_LIST },
		{ "cpattn --version", CPA_COMMAND_VERSION, CPA_COMMAND_NONE },
		{ "cpattn list", CPA_COMMAND_LIST, CPA_COMMAND_NONE },
		{ "cpattn list recordings", CPA_COMMAND_LIST, CPA_COMMAND_NONE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct cpa_options o;
		struct cpa_error error;
		char copy[512];

		assert_int_equal(parse(cases[i].line, copy, &o, &error), CPA_OK);
		assert_int_equal(o.command, cases[i].command);
		assert_int_equal(o.help_about, cases[i].about);
		cpa_options_fini(&o);
	}
}

static void the_command_line_is_kept_in_shell_quotes(void **state)
{
	char program[] = "/usr/bin/cpattn", verb[] = "verify", file[] = "it's a $file.h5",
	     plain[] = "--seed=3";
	char *argv[] = { program, verb, file, plain, NULL };
	struct cpa_options o;
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_options_parse(4, argv, &o, &error), CPA_OK);
	assert_string_equal(o.command_line, "cpattn verify 'it'\\''s a $file.h5' --seed=3");
	cpa_options_fini(&o);
}

static void distances_count_slips(void **state)
{
	static const char *const names[] = { "--ring", "--rank", "--ranks" };

	(void)state;
	assert_int_equal(cpa_edit_distance("", ""), 0);
	assert_int_equal(cpa_edit_distance("", "abc"), 3);
	assert_int_equal(cpa_edit_distance("abc", ""), 3);
	assert_int_equal(cpa_edit_distance("varient", "variant"), 1);
	assert_int_equal(cpa_edit_distance("vareint", "varient"), 1);
	assert_int_equal(cpa_edit_distance("kitten", "sitting"), 3);
	assert_string_equal(cpa_suggest("--rnig", names, 3), "--ring");
	assert_string_equal(cpa_suggest("--ranks", names, 3), "--ranks");
	assert_null(cpa_suggest("--nonsense", names, 3));
}

/* The file of bash knows the options that the table has; where the tests run without it,
 * nothing to say. */
static void completion_knows_every_option(void **state)
{
	FILE *file = fopen("data/cpattn.bash-completion", "r");
	char text[8192];
	size_t n;

	(void)state;
	if (!file)
		skip();
	n = fread(text, 1, sizeof text - 1, file);
	text[n] = '\0';
	fclose(file);
	for (int i = 0; cpa_option_info(i); i++)
		if (!strstr(text, cpa_option_info(i)->name))
			fail_msg("%s is missing", cpa_option_info(i)->name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bad_line_gets_one_sentence_that_says_what_is_wrong),
		cmocka_unit_test(defaults_are_those_of_the_manual),
		cmocka_unit_test(every_option_reaches_its_field),
		cmocka_unit_test(all_is_no_variant_asked_for_by_name),
		cmocka_unit_test(help_wins_over_all_else),
		cmocka_unit_test(the_command_line_is_kept_in_shell_quotes),
		cmocka_unit_test(distances_count_slips),
		cmocka_unit_test(completion_knows_every_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
