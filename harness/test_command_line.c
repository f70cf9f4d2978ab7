/*
 * test_command_line.c - the command as a script sees it: exit status, stdout, stderr.  Needs
 * the built command, which CPATTN names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

struct ran {
	int status;
	char out[16384], err[2048];
};

static void slurp(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	text[fread(text, 1, size - 1, file)] = '\0';
	fclose(file);
	unlink(path);
}

/* `line` is shell text in which $CPATTN is the command; its stdout and stderr are kept. */
static struct ran run(const char *line)
{
	static struct ran ran;
	char out[64], err[64], script[1024];
	int status;

	snprintf(out, sizeof out, "cpattn_test_%ld.out", (long)getpid());
	snprintf(err, sizeof err, "cpattn_test_%ld.err", (long)getpid());
	snprintf(script, sizeof script, "{ %s; } >%s 2>%s", line, out, err);
	status = system(script);
	assert_true(WIFEXITED(status));
	ran.status = WEXITSTATUS(status);
	slurp(out, ran.out, sizeof ran.out);
	slurp(err, ran.err, sizeof ran.err);
	return ran;
}

/* Skips where there is no command to run. */
static void require_command(void)
{
	const char *command = getenv("CPATTN");

	if (!command || access(command, X_OK) != 0)
		skip();
}

static void a_mistake_is_status_2_one_sentence_and_no_output(void **state)
{
	static const char *const lines[] = {
		"$CPATTN",
		"$CPATTN frobnicate",
		"$CPATTN simulate",
		"$CPATTN verify",
		"$CPATTN verify --problem S=64 --varient ring",
		"$CPATTN verify --problem S=64 --ranks 0",
		"$CPATTN verify --problem S=64,H=3,Hq=3",
		"$CPATTN verify --problem S=64 --device cuda",
		"CPATTN_CPU=avx1024 $CPATTN verify --problem S=64",
		"$CPATTN verify --problem S=64 --fault nothing",
		"$CPATTN verify --problem S=64 --fault hop-skipped:head=1",
		"$CPATTN verify --problem S=64 --fault hop-skipped:rank=x",
		"$CPATTN verify --problem S=64 --record -",
		"$CPATTN verify --random 3 --record run.h5",
		"$CPATTN plan --problem S=64 --ring 4 --ranks 6",
		"$CPATTN plan --problem S=64 --variant ring --ulysses 2",
		"$CPATTN plan --problem S=63 --variant ring --ranks 2",
		"$CPATTN plan --problem S=64,Dv=32,layout=fused --variant ring --ranks 2",
		"$CPATTN verify --problem S=64,layout=SBHD",
		("$CPATTN plan --problem S=64 --ring 2 --variant ring_anything --split "
		"given:9,9"),
		"$CPATTN plan --problem S=24,text=6 --split given:6,0,24",
		"$CPATTN plan --problem S=24,text=6,segments=a:30",
		"$CPATTN plan --problem S=64 --format dot",
		"$CPATTN plan --problem S=64 --rank 99",
		"$CPATTN plan /nonexistent/file.h5",
		"$CPATTN plan .",
		"$CPATTN plan --problem S=64 --json /nonexistent/a.json --ranks 2",
		"$CPATTN plan --problem S=64 --as diffuser",
		"$CPATTN plan --problem S=64 --as diffusers --backend flsh",
		"$CPATTN plan --problem S=64 --backend flash",
		"$CPATTN verify --problem S=64 --as diffusers",
		"$CPATTN list nonsense",
		"CPATTN_DATA=/nonexistent $CPATTN list recordings",
		"$CPATTN \"$(printf 'a\\nb')\"",
		"$CPATTN list variants >/dev/full",
		"$CPATTN list variants >&-",
		"$CPATTN plan --problem S=64 --ranks 2 --json - >/dev/full",
		"$CPATTN plan --problem S=64 --ranks 2 --csv - >&-",
	};

	(void)state;
	require_command();
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		struct ran ran = run(lines[i]);

		if (ran.status != 2 || ran.out[0] || strncmp(ran.err, "cpattn: ", 8) != 0 ||
			strchr(ran.err, '\n') != ran.err + strlen(ran.err) - 1)
			fail_msg("%s: status %d\nstdout: %s\nstderr: %s", lines[i], ran.status,
				ran.out, ran.err);
	}
}

static void a_pipe_that_nobody_reads_is_reported(void **state)
{
	struct ran ran;

	(void)state;
	require_command();
	/* More than a pipe holds, so that the writer meets the closed end whenever it is
	 * closed. */
	ran = run("{ $CPATTN plan --problem S=64 --ranks 64 --ring 64 --variant ring --rank "
		  "0-63; "
		  "echo status $? >&2; } | true");
	assert_non_null(strstr(ran.err,
		"cpattn: cannot write to stdout: Broken pipe\nstatus 2\n"));
}

static const struct {
	const char *line, *says;
} working[] = {
	{ "$CPATTN --version", "cpattn " },
	{ "$CPATTN --help", "usage:" },
	{ "$CPATTN help verify", "--variant" },
	{ "$CPATTN plan --help", "--best" },
	{ "$CPATTN list variants", "unified_anything" },
	{ "$CPATTN list devices", "can run here" },
	{ "CPATTN_CPU=generic $CPATTN list devices", "kernels generic, picked by" },
	{ "CPATTN_CPU=generic $CPATTN list devices", "amx-software:" },
	{ "CPATTN_CPU=generic-v1 $CPATTN list devices", "kernels generic-v1, picked by CPATTN_CPU (plain" },
	{ "$CPATTN list faults", "hop-skipped" },
	{ "$CPATTN list faults", "torn-block              F03: the last quarter" },
	{ "$CPATTN plan --problem S=64,causal --ranks 4 --variant ring", "proved: " },
	{ "$CPATTN plan --problem S=64 --ranks 4 --variant ring --rank 3", "rank 3: " },
	{ "$CPATTN plan --problem S=24,text=6 --split given:6,0,1,23 --variant ring_anything",
		"preamble: one all-gather of 840 bytes from each rank, 840 bytes sent a rank, " },
	{ "$CPATTN plan --problem S=64 --ranks 4",
		"preamble of each, outside bytes sent: an all-gather of sizes, 840 bytes" },
	{ "$CPATTN verify --problem S=24,text=6 --split given:6,0,1,23 --variant "
	  "ring_anything,ulysses_anything --rotate all",
		"4 right, 0 wrong" },
	{ "$CPATTN plan --problem S=64,layout=BHSD --ranks 4 --variant ring",
		"layout BHSD: q, k, v and o are [B, H, S, D], lse [B, H, S]" },
	{ "$CPATTN plan --problem S=64,layout=fused --ranks 4",
		"(lse is not an output, layout fused)" },
	{ "$CPATTN verify --problem S=16,H=4,D=8,layout=fused --ranks 4",
		",layout=fused\n" },
	{ "$CPATTN plan --problem S=64,causal --ranks 4 --variant ring",
		"moved 786432 bytes; a full ring would have moved 1572864\n  advice: "
		"--order zigzag" },
	{ "$CPATTN plan --problem S=64 --ranks 4 --variant ring --order auto",
		"--order auto picked contiguous\n" },
	{ "$CPATTN plan --problem S=64,causal --ranks 4 --order auto",
		"  order zigzag:\n" },
	{ "$CPATTN plan --problem S=64,causal --ranks 4 --variant ring --order auto "
	  "--json -",
		"\"order\": \"zigzag\"" },
	{ "$CPATTN verify --problem S=33,H=2,D=8,causal,documents=0:20:33 --ranks 3 "
	  "--order zigzag_documents",
		"right" },
	{ "$CPATTN verify --problem S=33,H=2,D=8,causal --ranks 3 --order auto",
		"right" },
	{ "$CPATTN plan --problem S=63 --ranks 4", "refused:" },
	/* 19 or 18 rows of one item, 6 heads of 16 fp32 each, to one other group. */
	{ "$CPATTN plan --problem B=2,S=37,H=6,D=16,dtype=fp32 --guidance 3.5 --ranks 4 "
	  "--batch 2 --ring 2 --variant ring_anything",
		"o is gathered among the 2 batch groups: 28416 bytes of all ranks, 7296 of "
		"one at most" },
	{ "$CPATTN plan --problem B=2,S=64,H=6 --guidance 3.5 --ranks 2 --batch 1 "
	  "--variant ring",
		"neg + 3.5 (pos - neg), 2 branches along the batch\n  every rank has all "
		"branches of its rows" },
	{ "$CPATTN plan --problem B=3,S=64 --guidance 3.5:1.5 --ranks 2-4",
		"neg + 1.5 (mid - neg) + 3.5 (pos - mid), 3 branches" },
	{ "$CPATTN verify --problem B=2,S=33,H=2,D=8 --guidance 3.5 --ranks 2,4,6",
		"guidance 3.5: neg" },
	{ "$CPATTN help verify", "--guidance S[:S2]" },
	{ "$CPATTN help plan", "--guidance S[:S2]" },
	{ "$CPATTN list faults", "branches-swapped" },
	{ "$CPATTN plan --problem S=64 --ranks 4 --best memory", "max/mean" },
	{ "$CPATTN plan --problem S=64 --ranks 2 --variant ring --format dot",
		"digraph" },
	{ "$CPATTN list systems", "huggingface/diffusers 58eb52c0, 2026-08-23" },
	{ "$CPATTN help plan", "--as SYSTEM" },
	{ "$CPATTN plan --problem S=3969,text=512,H=24,D=128,dtype=bf16 --ranks 4 --ring 4 "
	  "--as diffusers",
		"accepted there: ring_anything 1x4x1 with --backend flash, or "
		"ulysses_anything 1x1x4\n" },
	{ "$CPATTN plan --problem S=3969,text=512,H=24,D=128,dtype=bf16 --ranks 4 --ring 4 "
	  "--as diffusers --format json",
		"\"as\": {\"system\": \"diffusers\", \"version\": \"58eb52c0, 2026-08-23\"" },
	{ "$CPATTN plan --problem S=3969,text=512,H=24,D=128,dtype=bf16 --ranks 4 --variant "
	  "ring_anything --batch 1 --rotate p2p --as diffusers --backend native --csv -",
		",reason,reproduce,as_system,as_version,as_backend,as_verdict,as_stage,as_error,"
		"as_class,as_why,as_instead,as_notes\r\n" },
	{ "$CPATTN plan --problem S=3969,text=512,H=24,D=128,dtype=bf16 --ranks 4 --variant "
	  "ring_anything --batch 1 --rotate p2p --as diffusers --backend native --csv -",
		",right,,\"\",diffusers,\"58eb52c0, 2026-08-23\",native,refused," },
	{ "$CPATTN plan --problem S=3969,text=512,H=24,D=128,dtype=bf16 --ranks 4 --variant "
	  "ring_anything --batch 1 --rotate p2p --as diffusers --backend native --junit -",
		"        <property name=\"as_verdict\" value=\"refused\"/>\n" },
	{ "$CPATTN plan --problem S=64,H=8 --ranks 4 --variant ulysses --as cache-dit --junit -",
		"<system-out>as cache-dit: accepted</system-out>" },
	{ "$CPATTN plan --problem S=64,H=8 --ranks 4 --variant ulysses --as cache-dit",
		"ulysses 1x1x4: accepted\n" },
	{ "$CPATTN plan --problem S=64,H=8 --ranks 4 --variant ulysses --as diffusers "
	  "--tensor-parallel 2",
		"REFUSED, ParallelConfig, rule 8: ValueError\n" },
	{ "$CPATTN plan --problem S=64 --ranks 2 --json -", "\"as\": null" },
	{ "$CPATTN plan --problem S=64 --ranks 2 --format json", "{\n  \"cpattn\": " },
	{ "$CPATTN plan --problem S=64 --ranks 2 --junit -", "<?xml" },
	{ "$CPATTN plan --problem S=64 --ranks 2 --csv -", "file,call,variant" },
	{ "$CPATTN plan --problem S=64 --ranks 2 --json /dev/null", "ranks variant" },
};

static void what_works_says_nothing_on_stderr(void **state)
{
	(void)state;
	require_command();
	for (size_t i = 0; i < sizeof working / sizeof working[0]; i++) {
		struct ran ran = run(working[i].line);

		if (ran.status != 0 || ran.err[0] || !strstr(ran.out, working[i].says))
			fail_msg("%s: status %d\nstdout: %s\nstderr: %s", working[i].line,
				ran.status, ran.out, ran.err);
	}
}

/* --best memory lists the meshes of a world by their largest rank. */
static void best_comes_first(void **state)
{
	struct ran ran;
	long long last = 0;
	int n = 0;

	(void)state;
	require_command();
	ran = run("$CPATTN plan --problem S=64,H=8 --ranks 8 --best memory --variant "
		  "ring,ulysses,unified --csv -");
	for (char *line = strchr(ran.out, '\n'); line && line[1];
		line = strchr(line + 1, '\n')) {
		char *field = line + 1;

		for (int i = 0; i < 38; i++)
			field = strchr(field, ',') + 1;
		assert_true(atoll(field) >= last && atoll(field) > 0);
		last = atoll(field);
		n++;
	}
	assert_int_equal(n, 4); /* 8x1 1x8 2x4 4x2 */
}

/* Both ways of saying it give the same file. */
static void json_to_a_file_is_json_to_stdout(void **state)
{
	struct ran ran;

	(void)state;
	require_command();
	ran = run("$CPATTN plan --problem S=64 --ranks 2 --json cpattn_test.json >/dev/null && "
		  "$CPATTN plan --problem S=64 --ranks 2 --json - | grep -v command_line "
		  ">cpattn_test.2 "
		  "&& grep -v command_line cpattn_test.json | cmp - cpattn_test.2; s=$?; rm -f "
		  "cpattn_test.json cpattn_test.2; exit $s");
	assert_string_equal(ran.err, "");
	assert_int_equal(ran.status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mistake_is_status_2_one_sentence_and_no_output),
		cmocka_unit_test(a_pipe_that_nobody_reads_is_reported),
		cmocka_unit_test(what_works_says_nothing_on_stderr),
		cmocka_unit_test(best_comes_first),
		cmocka_unit_test(json_to_a_file_is_json_to_stdout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
