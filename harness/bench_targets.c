/*
 * bench_targets.c - how fast this build is, row by row: what was measured, what it has to reach,
 * what it should.  `make bench`.  It always succeeds when it could measure: a shared machine is
 * no judge.
 *
 * Every number is a ratio to something measured in the same minutes, by the best of interleaved
 * runs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "dist/dist.h"
#include "harness/kernel_times.h"
#include "harness/limits.h"
#include "harness/measure.h"
#include "harness/peak.h"

enum { REPEAT = 12, WARMUP = 2 };

static struct cpa_error error;

static void must(enum cpa_status status)
{
	if (status == CPA_OK)
		return;
	fprintf(stderr, "bench_targets: %s\n", error.text);
	exit(2);
}

/* ---- rows ---- */

/* low: less is better.  measured NaN: cannot be told, and `why` says why. */
static void print_row(
	const char *name, double measured, double least, double aim, bool low, const char *why)
{
	if (!isfinite(measured)) {
		printf("  %-52s %8s %8.2f %8.2f  %s\n", name, "-", least, aim, why);
	} else {
		bool met = low ? measured <= least : measured >= least;
		bool aimed = low ? measured <= aim : measured >= aim;
		printf("  %-52s %8.3f %8.2f %8.2f  %s%s%s\n", name, measured, least, aim,
			aimed	      ? "aim"
				: met ? "met"
				      : "NOT MET",
			why[0] ? ", " : "", why);
	}
	fflush(stdout);
}

static void print_head(void)
{
	printf("# best of %d interleaved runs, each a ratio to what was measured in the same "
	       "minutes\n"
	       "# busy: two threads have less than 1.9 times the peak of one, so others use this "
	       "machine\n"
	       "#\n# %-52s %8s %8s %8s\n# %-52s %8s %8s %8s\n",
		REPEAT, "row", "measured", "at least", "aim", "", "ratio", "ratio", "ratio");
}

/* ---- kernels ---- */

static struct cpa_problem shape(int64_t Sq, int64_t Skv, int64_t H, int64_t D)
{
	return (struct cpa_problem){.B = 1,
		.Sq = Sq,
		.Skv = Skv,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1 / sqrt((double)D)};
}

static struct cpa_kernel_list begin(struct cpa_device *device, int threads)
{
	return (struct cpa_kernel_list){
		.device = device, .threads = threads, .warmup = WARMUP, .repeat = REPEAT};
}

static void add(struct cpa_kernel_list *list, enum cpa_kernel_kind kind,
	enum cpa_kernel_limit against, const struct cpa_problem *problem)
{
	must(cpa_kernel_list_add(list, kind, against, problem, &error));
	const struct cpa_kernel_time *time = &list->at[list->n - 1];
	if (time->verdict == CPA_VERDICT_RIGHT)
		return;
	fprintf(stderr, "bench_targets: %s\n", time->reason);
	exit(time->verdict == CPA_VERDICT_WRONG ? 1 : 2);
}

static double share(const struct cpa_kernel_time *time)
{
	return cpa_kernel_time_rate(time) / time->limit;
}

/* Two threads must have twice the peak of one, or somebody else is on the machine. */
static const char *why_not(int threads)
{
	double one = 0, two = 0;
	const char *set = cpa_limit_set(CPA_DTYPE_FP32);
	if (threads == 1)
		return NULL;
	if (cpa_threads_most() < 2)
		return "cannot tell: one core";
	for (int i = 0; i < 8; i++) {
		one = fmax(one, cpa_peak_fma(set, 1));
		two = fmax(two, cpa_peak_fma(set, 2));
	}
	return two < 1.9 * one ? "cannot tell: busy" : NULL;
}

static void share_of_peak(struct cpa_device *device)
{
	for (int threads = 1; threads <= 2; threads++) {
		const char *why = why_not(threads);
		struct cpa_kernel_list list = begin(device, threads);
		for (int i = 0; i < 4 && !why; i++) {
			struct cpa_problem p = i < 2 ? shape(1024, 1024, 4, i % 2 ? 64 : 128)
						     : shape(512, 4608, 2, i % 2 ? 64 : 128);
			add(&list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_FLOP, &p);
		}
		if (!why)
			must(cpa_kernel_list_run(&list, &error));
		for (int i = 0; i < 4; i++) {
			char name[80];
			snprintf(name, sizeof name,
				"fp32, of the %s peak, S %d, D %d, %d thread%s",
				cpa_limit_set(CPA_DTYPE_FP32),
				i < 2 ? 1024 : 4608, i % 2 ? 64 : 128, threads,
				threads == 1 ? "" : "s");
			print_row(name, why ? NAN : share(&list.at[i]), i % 2 ? 0.80 : 0.84,
				i % 2 ? 0.88 : 0.91, false, why ? why : "");
		}
		cpa_kernel_list_fini(&list);
	}
}

/* bf16 as it is, in shares of what its instructions do in registers. */
static void bf16(struct cpa_device *device)
{
	const char *set = cpa_cpu_bf16_set(), *amx = "bf16, D 128, of the tile rate, 1 thread";
	bool tiles = set && !strcmp(set, "amx");
	struct cpa_problem p = shape(1024, 1024, 4, 128);
	struct cpa_kernel_list list = begin(device, 1);
	p.dtype = CPA_DTYPE_BF16;
	if (!tiles)
		print_row(amx, NAN, 0.35, 0.60, false,
			cpa_cpu_lacks_tiles() ? "cannot tell: no AMX" : "cannot tell: AMX is not used");
	if (set) {
		add(&list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_FLOP, &p);
		must(cpa_kernel_list_run(&list, &error));
		print_row(tiles ? amx : "bf16, D 128, of the rate of pairs, 1 thread",
			share(&list.at[0]), 0.35, 0.60, false, "");
	}
	cpa_kernel_list_fini(&list);
}

/* Useful flop/s with a rule over those without, in the same shape. */
static void efficiency(struct cpa_device *device)
{
	static const struct {
		const char *name;
		int64_t S;
		bool causal, window, documents;
		double least, aim;
	} rows[] = {{"causal over full, S 4608", 4608, true, false, false, 0.94, 0.98},
		{"causal over full, S 1024", 1024, true, false, false, 0.86, 0.92},
		{"causal over full, S 512", 512, true, false, false, 0.82, 0.88},
		{"window of a quarter over full, S 4608", 4608, false, true, false, 0.94, 0.98},
		{"four documents over full, S 4608", 4608, false, false, true, 0.94, 0.98}};
	enum { N = sizeof rows / sizeof rows[0] };
	int64_t starts[N][5];
	struct cpa_kernel_list list = begin(device, 1);
	for (int i = 0; i < N; i++) {
		struct cpa_problem p = shape(rows[i].S, rows[i].S, 4608 / rows[i].S, 128);
		add(&list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_FLOP, &p);
		for (int d = 0; d <= 4; d++)
			starts[i][d] = rows[i].S * d / 4;
		p.rule = (struct cpa_rule){.causal = rows[i].causal,
			.window = rows[i].window,
			.left = rows[i].S / 8,
			.right = rows[i].S / 8,
			.documents = rows[i].documents ? starts[i] : NULL,
			.ndocuments = rows[i].documents ? 4 : 0};
		add(&list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_FLOP, &p);
	}
	must(cpa_kernel_list_run(&list, &error));
	for (int i = 0; i < N; i++)
		print_row(rows[i].name,
			cpa_kernel_time_rate(&list.at[2 * i + 1]) /
				cpa_kernel_time_rate(&list.at[2 * i]),
			rows[i].least, rows[i].aim, false, "");
	cpa_kernel_list_fini(&list);
}

/* Few queries: keys and values, beyond the caches, are read once.  Many rows to a key head multiply
 * for longer than that takes; then the row says at which share multiply-add would be at its peak. */
static void decoding(struct cpa_device *device)
{
	static const struct {
		int64_t Sq, Skv, Hq, Hkv;
		enum cpa_dtype dtype;
	} rows[] = {{1, 16384, 8, 8, CPA_DTYPE_FP32}, {1, 16384, 32, 8, CPA_DTYPE_FP32},
		{1, 32768, 32, 4, CPA_DTYPE_FP32}, {1, 32768, 8, 8, CPA_DTYPE_BF16},
		{1, 32768, 32, 8, CPA_DTYPE_BF16}, {4, 16384, 32, 8, CPA_DTYPE_FP32},
		{16, 16384, 8, 8, CPA_DTYPE_FP32}};
	enum { N = sizeof rows / sizeof rows[0] };
	struct cpa_kernel_list list = begin(device, 1);
	double peak = 0;
	for (int i = 0; i < N; i++) {
		struct cpa_problem p = shape(rows[i].Sq, rows[i].Skv, rows[i].Hq, 128);
		p.Hkv = rows[i].Hkv;
		p.dtype = rows[i].dtype;
		add(&list, CPA_KERNEL_ATTEND, CPA_KERNEL_LIMIT_READ, &p);
	}
	must(cpa_kernel_list_run(&list, &error));
	for (int i = 0; i < 4; i++)
		peak = fmax(peak, cpa_peak_fma(cpa_limit_set(CPA_DTYPE_FP32), 1));
	for (int i = 0; i < N; i++) {
		const struct cpa_kernel *k = &list.at[i].kernel;
		double most = peak / k->flop * k->bytes / list.at[i].limit;
		char name[80], why[80] = "";
		snprintf(name, sizeof name,
			"decoding %s, Sq %d on %d, heads %d on %d, of reading",
			cpa_dtype_name(rows[i].dtype), (int)rows[i].Sq, (int)rows[i].Skv,
			(int)rows[i].Hq, (int)rows[i].Hkv);
		if (most < 1)
			snprintf(why, sizeof why, "multiply-add allows %.2f", most);
		print_row(name, share(&list.at[i]), 0.6, 0.85, false, why);
	}
	cpa_kernel_list_fini(&list);
}

static void moves(struct cpa_device *device)
{
	static const struct {
		const char *name;
		enum cpa_kernel_kind kind;
		int64_t nbytes;
		double least, aim;
	} rows[] = {{"merge in place, 256 KiB, over the best copy", CPA_KERNEL_MERGE, 256 << 10,
			    1.0, 1.2},
		{"merge in place, 32 MiB, over the best copy", CPA_KERNEL_MERGE, 32 << 20, 0.7,
			0.8},
		{"transposing copy, 256 KiB, over the best copy", CPA_KERNEL_TRANSPOSE, 256 << 10,
			0.7, 0.8},
		{"transposing copy, 32 MiB, over the best copy", CPA_KERNEL_TRANSPOSE, 32 << 20,
			0.9, 1.1}};
	struct cpa_kernel_list list = begin(device, 1);
	for (int i = 0; i < 4; i++) {
		struct cpa_problem p = shape(rows[i].nbytes / (8 * 128 * 4), 1, 8, 128);
		add(&list, rows[i].kind, CPA_KERNEL_LIMIT_COPY, &p);
	}
	must(cpa_kernel_list_run(&list, &error));
	for (int i = 0; i < 4; i++)
		print_row(
			rows[i].name, share(&list.at[i]), rows[i].least, rows[i].aim, false, "");
	cpa_kernel_list_fini(&list);
}

/* ---- other programs ---- */

/* Field number `column`, by name, of line `line` (from 1) of the CSV that a command prints; NaN.
 */
static double csv_field(char lines[][2048], int n, int line, const char *column)
{
	int field = 0;
	size_t length = strlen(column);
	if (line >= n)
		return NAN;
	for (const char *at = lines[0]; at; field++) {
		if (strncmp(at, column, length) == 0 && strchr(",\r\n", at[length]))
			break;
		at = strchr(at, ',');
		if (!at)
			return NAN;
		at++;
	}
	const char *at = lines[line];
	for (bool quoted = false; *at && field > 0; at++) {
		quoted ^= *at == '"';
		field -= *at == ',' && !quoted;
	}
	char *end;
	double value = strtod(at, &end);
	return end == at ? NAN : value;
}

static int run_csv(const char *command, char lines[][2048], int most)
{
	FILE *pipe = popen(command, "r");
	int n = 0;
	while (pipe && n < most && fgets(lines[n], sizeof lines[n], pipe))
		n++;
	return pipe && pclose(pipe) == 0 ? n : 0;
}

/* Another instruction set is picked when a process starts. */
static void lesser_sets(const char *cpattn)
{
	static const char *const problem = "S=1024,H=4,D=128,dtype=fp32";
	char lines[8][2048], command[512];
	double peak = 0;
	for (int i = 0; i < 8; i++)
		peak = fmax(peak, cpa_peak_fma("avx512", 1));
	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof command,
			"CPATTN_CPU=%s %s bench --kernels --threads 1 --repeat %d --problem %s "
			"--csv - "
			"2>/dev/null",
			i ? "generic" : "avx2", cpattn, REPEAT, problem);
		int n = run_csv(command, lines, 8);
		double measured = csv_field(lines, n, 1, i ? "rate" : "of_limit") /
			(i ? peak : 1);
		print_row(i ? "plain C, of the avx512 peak" : "avx2, of the avx2 peak",
			i && peak <= 0 ? NAN : measured, i ? 0.38 : 0.70, i ? 0.45 : 0.87, false,
			isfinite(measured) ? "" : "cannot tell: not here");
	}
}

static void over_mpi(const char *cpattn)
{
	char lines[4][2048], command[512];
	int n = 0;
	const char *why = "cannot tell: no MPI";
	snprintf(command, sizeof command,
		"mpirun --bind-to none -n 2 %s bench --comm mpi --threads 1 "
		"--variant ring,ulysses --repeat %d "
		"--problem S=4608,H=24,D=128,dtype=fp32 --csv - 2>/dev/null",
		cpattn, REPEAT);
	if (cpa_mpi_usable()) {
		n = run_csv(command, lines, 4);
		why = "cannot tell: mpirun fails";
	}
	for (int i = 0; i < 4; i++) {
		char name[80];
		const char *variant = i % 2 ? "ulysses" : "ring";
		snprintf(name, sizeof name,
			i < 2 ? "%s, 2 processes: time over one of 2 threads"
			      : "%s, 2 processes: exchange, of both streaming",
			variant);
		double measured = csv_field(
			lines, n, 1 + i % 2, i < 2 ? "one_rank_over_this" : "of_copy");
		print_row(name, i < 2 ? 1 / measured : measured, i < 2 ? 1.05 : 0.4,
			i < 2 ? 1.01 : 0.7, i<2, n> 0 ? "" : why);
	}
}

/* ---- ranks in one process ---- */

static void in_one_process(struct cpa_device *device)
{
	static const struct {
		enum cpa_variant variant;
		int R, U;
	} meshes[] = {{CPA_VARIANT_RING, 4, 1}, {CPA_VARIANT_ULYSSES, 1, 4},
		{CPA_VARIANT_UNIFIED, 2, 2}};
	struct cpa_problem p = shape(4096, 4096, 4, 128);
	const struct cpa_measure_settings settings = {
		.device = device, .comm = "fake", .warmup = 1, .repeat = REPEAT};
	struct cpa_measure_session session;
	struct cpa_config configs[3];
	struct cpa_result results[3];
	for (int i = 0; i < 3; i++) {
		configs[i] = cpa_config_default(meshes[i].variant, &p);
		configs[i].ring_degree = meshes[i].R;
		configs[i].ulysses_degree = meshes[i].U;
	}
	must(cpa_measure_begin(&session, &settings, &error));
	must(cpa_measure_problem(&session, &p, 1, configs, 3, results, &error));
	for (int i = 0; i < 3; i++) {
		char name[80];
		snprintf(name, sizeof name, "%s, 4 ranks in one process: beyond kernels",
			cpa_variant_info(meshes[i].variant)->name);
		print_row(name,
			results[i].measured ? cpa_measured_beyond(results[i].measured) : NAN,
			0.05, 0.02, true, results[i].reason);
		free(results[i].counts);
		free(results[i].measured);
	}
	cpa_measure_end(&session);
}

/* ---- which ---- */

/* Parts that need a device, and parts that start commands. */
static const struct {
	const char *name;
	void (*measure)(struct cpa_device *device);
	void (*start)(const char *cpattn);
} parts[] = {{"peak", share_of_peak, NULL}, {"bf16", bf16, NULL}, {"rules", efficiency, NULL},
	{"decoding", decoding, NULL}, {"moves", moves, NULL}, {"sets", NULL, lesser_sets},
	{"process", in_one_process, NULL}, {"mpi", NULL, over_mpi}};
enum { NPARTS = sizeof parts / sizeof parts[0] };

/* "peak,mpi" as bits; 0: a word is no part. */
static unsigned read_parts(char *text)
{
	unsigned picked = 0;
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		int i = 0;
		while (i < NPARTS && strcmp(word, parts[i].name) != 0)
			i++;
		if (i == NPARTS)
			return 0;
		picked |= 1u << i;
	}
	return picked;
}

int main(int argc, char **argv)
{
	struct cpa_device *device;
	unsigned picked = argc == 3 ? read_parts(argv[2]) : ~0u;
	if (argc < 2 || argc > 3 || !picked) {
		fprintf(stderr, "usage: bench_targets CPATTN [PART,...]\nparts:");
		for (int i = 0; i < NPARTS; i++)
			fprintf(stderr, " %s", parts[i].name);
		fprintf(stderr, "\n");
		return 2;
	}
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 30); /* as the command does */
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
	must(cpa_device_create("cpu", &device, &error));
	print_head();
	for (int i = 0; i < NPARTS; i++)
		if (picked & 1u << i) {
			if (parts[i].measure)
				parts[i].measure(device);
			else
				parts[i].start(argv[1]);
		}
	printf("# how fast verification is: make bench-verify\n");
	cpa_device_destroy(device);
	return 0;
}
