/*
 * bench_verify.c - how long verification takes, printed; nothing is asserted.  `make
 * bench-verify`.
 *
 * Everything is measured in this one run.  Ratios are medians of repetitions that are interleaved
 * with what they are compared to, because machines are shared and noisy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "harness/clock.h"
#include "harness/statistics.h"
#include "sim/sim.h"

enum { REPEATS = 11 };

static void must(enum cpa_status status, const struct cpa_error *error)
{
	if (status == CPA_OK)
		return;
	fprintf(stderr, "bench_verify: %s\n", error->text);
	exit(2);
}

static double median(double *values, int n)
{
	return cpa_statistics_of(values, n).median;
}

/* ---- planning and proving a large world ---- */

static void plan_and_prove(void)
{
	struct cpa_problem p = {.B = 1,
		.Sq = 1048576,
		.Skv = 1048576,
		.Hq = 64,
		.Hkv = 8,
		.D = 128,
		.Dv = 128,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.08838834764831845,
		.rule = {.causal = true}};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED, &p);
	struct cpa_partition *part;
	struct cpa_schedule *schedule;
	struct cpa_check *check;
	struct cpa_error error;
	long nops = 0;
	c.ring_degree = 128;
	c.ulysses_degree = 8;
	c.order = CPA_ORDER_ZIGZAG;
	double single[REPEATS];
	for (int i = 0; i < REPEATS; i++) {
		double start = cpa_now();
		must(cpa_partition_create(&p, &c, &part, &error), &error);
		must(cpa_plan_create(part, i * 97, &schedule, &error), &error);
		single[i] = cpa_now() - start;
		cpa_schedule_destroy(schedule);
		cpa_partition_destroy(part);
	}
	double start = cpa_now();
	must(cpa_partition_create(&p, &c, &part, &error), &error);
	must(cpa_check_create(part, &check, &error), &error);
	for (int r = 0; r < part->W; r++) {
		must(cpa_plan_create(part, r, &schedule, &error), &error);
		nops += schedule->nops;
		must(cpa_check_rank(check, schedule, &error), &error);
		cpa_schedule_destroy(schedule);
	}
	must(cpa_check_finish(check, &error), &error);
	double seconds = cpa_now() - start;
	cpa_check_destroy(check);
	cpa_partition_destroy(part);
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("plan and prove ring 128 x ulysses 8, S 1048576, Hq 64, Hkv 8, causal, zigzag\n");
	printf("  %-52s %10.2f ms\n", "one rank's plan, partition included (median)",
		1e3 * median(single, REPEATS));
	printf("  %-52s %10.2f s   %ld operations\n", "all 1024 plans, proved", seconds, nops);
	printf("  %-52s %10.1f MB\n", "peak memory of the process",
		(double)usage.ru_maxrss / 1024);
}

/* ---- planning and proving many documents ---- */

enum { NDOCUMENTS = 1024, NTOKENS = 65536, NTEXT = 512 };

/* Packed documents of uneven length, some of them empty or of one token. */
static struct cpa_problem packed_problem(int64_t starts[NDOCUMENTS + 1])
{
	uint64_t state = 1;
	for (int i = 0; i <= NDOCUMENTS; i++) {
		int64_t most = NTOKENS / NDOCUMENTS;
		starts[i] = i * most + (i % NDOCUMENTS ? (int64_t)(cpa_random(&state) >> 40) % most : 0);
	}
	return (struct cpa_problem){.B = 1,
		.Sq = NTOKENS,
		.Skv = NTOKENS,
		.Hq = 32,
		.Hkv = 8,
		.D = 128,
		.Dv = 128,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.08838834764831845,
		.lse = true,
		.rule = {.causal = true,
			.window = true,
			.left = 48,
			.right = 0,
			.ndocuments = NDOCUMENTS,
			.documents = starts}};
}

static void prove_all(const struct cpa_problem *p, const struct cpa_config *c, long *nops)
{
	struct cpa_partition *part;
	struct cpa_schedule *schedule;
	struct cpa_check *check;
	struct cpa_error error;
	must(cpa_partition_create(p, c, &part, &error), &error);
	must(cpa_check_create(part, &check, &error), &error);
	for (int r = 0; r < part->W; r++) {
		must(cpa_plan_create(part, r, &schedule, &error), &error);
		*nops += schedule->nops;
		must(cpa_check_rank(check, schedule, &error), &error);
		cpa_schedule_destroy(schedule);
	}
	must(cpa_check_finish(check, &error), &error);
	cpa_check_destroy(check);
	cpa_partition_destroy(part);
}

/* In a process of its own, so that its peak of memory is that of one case. */
static void packed_case(const struct cpa_problem *p, enum cpa_order order, enum cpa_rotate rotate)
{
	fflush(stdout);
	pid_t child = fork();
	if (child > 0) {
		waitpid(child, NULL, 0);
		return;
	}
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, p);
	c.ring_degree = c.ulysses_degree = 4;
	c.order = order;
	c.rotate = rotate;
	long nops = 0;
	double start = cpa_now();
	prove_all(p, &c, &nops);
	double seconds = cpa_now() - start;
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("  %-17s %-10s %-23s %10.2f s   %8.1f MB   %ld operations\n",
		cpa_order_name(order), cpa_rotate_name(rotate),
		p->segments ? "replicated text" : "", seconds, (double)usage.ru_maxrss / 1024,
		nops);
	fflush(stdout);
	_exit(0);
}

static void plan_and_prove_packed(void)
{
	int64_t starts[NDOCUMENTS + 1];
	struct cpa_problem p = packed_problem(starts), joint = p;
	struct cpa_segment segments[] = {{.name = "text", .length = NTEXT, .replicated = true},
		{.name = "image", .length = NTOKENS - NTEXT}};
	joint.segments = segments;
	joint.nsegments = 2;
	printf("plan and prove unified 4 x 4, S %d, %d documents, causal, window 48, Hq 32, Hkv 8\n",
		NTOKENS, NDOCUMENTS);
	for (int order = CPA_ORDER_CONTIGUOUS; order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++)
		for (int rotate = CPA_ROTATE_P2P; rotate <= CPA_ROTATE_DIRECT; rotate++) {
			packed_case(&p, (enum cpa_order)order, (enum cpa_rotate)rotate);
			packed_case(&joint, (enum cpa_order)order, (enum cpa_rotate)rotate);
		}
}

/* ---- what a run costs beyond attention ---- */

static double attend_seconds;
static const struct cpa_device_ops *real_ops;

static enum cpa_status timed_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	double start = cpa_now();
	enum cpa_status status = real_ops->attend(device, queue, attend, error);
	attend_seconds += cpa_now() - start;
	return status;
}

static void fill_inputs(struct cpa_exec *exec)
{
	const struct cpa_schedule *s = cpa_exec_schedule(exec);
	for (int i = 0; i < s->nbuffers; i++) {
		if (s->buffers[i].role != CPA_ROLE_INPUT)
			continue;
		uint64_t state = (uint64_t)i;
		float *at = cpa_exec_memory(exec, i);
		for (int64_t e = 0; e < cpa_buffer_nbytes(&s->buffers[i]) / 4; e++)
			at[e] = (float)(cpa_random(&state) >> 40) * 0x1p-23f - 1;
	}
}

/* Plans, proves and runs one configuration; returns the share of the time outside ATTEND. */
static double share_beyond_attention(
	const struct cpa_problem *p, const struct cpa_config *c, struct cpa_device *device)
{
	struct cpa_partition *part;
	struct cpa_check *check;
	struct cpa_fake_world *world;
	struct cpa_schedule *schedules[8] = {0};
	struct cpa_exec *execs[8] = {0};
	struct cpa_error error;
	const struct cpa_exec_options options = {.poison = true};
	double start = cpa_now(), filling = 0;
	attend_seconds = 0;
	must(cpa_partition_create(p, c, &part, &error), &error);
	must(cpa_check_create(part, &check, &error), &error);
	must(cpa_fake_world_create(part->W, CPA_FAKE_RENDEZVOUS, 1, &world, &error), &error);
	for (int r = 0; r < part->W; r++) {
		must(cpa_plan_create(part, r, &schedules[r], &error), &error);
		must(cpa_check_rank(check, schedules[r], &error), &error);
		must(cpa_exec_create(schedules[r], p, device, cpa_fake_world_comm(world, r),
			     &options, &execs[r], &error),
			&error);
		double before = cpa_now();
		fill_inputs(execs[r]); /* not part of a run */
		filling += cpa_now() - before;
	}
	must(cpa_check_finish(check, &error), &error);
	must(cpa_fake_run(world, execs, &error), &error);
	double seconds = cpa_now() - start - filling;
	for (int r = 0; r < part->W; r++) {
		cpa_exec_destroy(execs[r]);
		cpa_schedule_destroy(schedules[r]);
	}
	cpa_fake_world_destroy(world);
	cpa_check_destroy(check);
	cpa_partition_destroy(part);
	return 1 - attend_seconds / seconds;
}

static void beyond_attention(void)
{
	static const struct {
		enum cpa_variant variant;
		int R, U;
	} meshes[] = {{CPA_VARIANT_RING, 4, 1}, {CPA_VARIANT_ULYSSES, 1, 4},
		{CPA_VARIANT_UNIFIED, 2, 2}, {CPA_VARIANT_RING, 8, 1}};
	enum { NMESHES = sizeof meshes / sizeof *meshes };
	double share[NMESHES][REPEATS];
	struct cpa_error error;
	struct cpa_device *device;
	must(cpa_device_create("cpu", &device, &error), &error);
	real_ops = device->ops;
	struct cpa_device_ops timed = *real_ops;
	timed.attend = timed_attend;
	device->ops = &timed;
	printf("share of a run beyond attention: plan, proof, fake transport, copies, merges; "
	       "fp32, D 128\n");
	for (int64_t S = 1024; S <= 4096; S *= 2) {
		struct cpa_problem p = {.B = 1,
			.Sq = S,
			.Skv = S,
			.Hq = 8,
			.Hkv = 8,
			.D = 128,
			.Dv = 128,
			.dtype = CPA_DTYPE_FP32,
			.scale = 0.08838834764831845,
			.lse = true};
		for (int i = 0; i < REPEATS; i++) /* interleaved */
			for (int m = 0; m < NMESHES; m++) {
				struct cpa_config c = cpa_config_default(meshes[m].variant, &p);
				c.ring_degree = meshes[m].R;
				c.ulysses_degree = meshes[m].U;
				share[m][i] = share_beyond_attention(&p, &c, device);
			}
		printf("  S %-5lld", (long long)S);
		for (int m = 0; m < NMESHES; m++)
			printf(" %s %dx%d %4.1f %% ", cpa_variant_info(meshes[m].variant)->name,
				meshes[m].R, meshes[m].U, 100 * median(share[m], REPEATS));
		printf("\n");
	}
	device->ops = real_ops;
	cpa_device_destroy(device);
}

/* ---- the command ---- */

/* Runs the command and returns its exit status; counts the records of its CSV output. */
static int run_command(const char *command, long *nrecords)
{
	FILE *pipe = popen(command, "r");
	if (!pipe)
		return -1;
	*nrecords = -1; /* the header */
	for (int c; (c = fgetc(pipe)) != EOF;)
		*nrecords += c == '\n';
	int status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void configurations_a_second(const char *cpattn)
{
	static const char *const problems[] = {"S=128,H=8,D=64,dtype=fp32",
		"S=256,H=8,D=64,dtype=fp32", "S=512,H=8,D=64,dtype=fp32",
		"S=512,H=8,D=64,dtype=bf16,causal=yes"};
	printf("configurations a second: reference, plan, proof, two interleavings, probes (best "
	       "of 3)\n");
	for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
		double best = 0;
		long n = 0;
		for (int repeat = 0; repeat < 3; repeat++) {
			char command[512];
			snprintf(command, sizeof command,
				"%s verify --problem %s --variant ring_anything,"
				"ulysses_anything,unified_anything --csv -",
				cpattn, problems[i]);
			double start = cpa_now();
			if (run_command(command, &n) != 0)
				return;
			double rate = (double)n / (cpa_now() - start);
			best = rate > best ? rate : best;
		}
		printf("  %-52s %10.1f /s  %ld configurations\n", problems[i], best, n);
	}
}

static void default_run(const char *cpattn)
{
	char command[512];
	long n;
	snprintf(command, sizeof command,
		"%s verify data/recordings/*.h5 data/recordings/peers/*.h5 --csv - 2>&1", cpattn);
	double start = cpa_now();
	int status = run_command(command, &n);
	printf("the default run on all shipped recordings\n");
	printf("  %-52s %10.1f s   %ld records, exit %d\n",
		"cpattn verify data/recordings/... (once)", cpa_now() - start, n, status);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: bench_verify CPATTN, from the repository root\n");
		return 2;
	}
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 30); /* as the command does */
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
	plan_and_prove_packed();
	plan_and_prove();
	beyond_attention();
	configurations_a_second(argv[1]);
	default_run(argv[1]);
	return 0;
}
