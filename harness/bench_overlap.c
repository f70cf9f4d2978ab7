/*
 * bench_overlap.c - how much of the messages of a ring is hidden behind its computing, one
 * process a rank: with the device moving messages while it works, and without.
 *
 *   mpirun -n 2 build/release/bench_overlap [PROBLEM [REPEATS]]
 *
 * Runs of both kinds take turns.  `alone` is the same plan with its compute steps left out, which
 * is what the messages take by themselves; `waited` is the time in which the rank had nothing to
 * issue; hidden is 1 - waited / alone.  Medians of all repeats, of the slowest rank.  Copying is
 * work of the processor in either case: what is hidden is waiting for others, and on a machine
 * whose cores all compute, `time` shows how little that may be.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/clock.h"
#include "harness/options.h"
#include "harness/statistics.h"
#include "harness/world.h"

enum { ALONE, WITHOUT, WITH, NKINDS };
enum { MOST_REPEATS = 1000 };

struct bench {
	struct cpa_world *world;
	struct cpa_device *device;
	struct cpa_problem problem;
	struct cpa_partition *partition;
	struct cpa_schedule *plan;
	struct cpa_exec *execs[NKINDS];
	double seconds[NKINDS][MOST_REPEATS], waited[NKINDS][MOST_REPEATS];
	double median[NKINDS], median_waited[NKINDS];
	struct cpa_error error;
};

static bool only_messages(void *context, struct cpa_exec *exec, int op)
{
	enum cpa_op_kind kind = cpa_exec_schedule(exec)->ops[op].kind;

	(void)context;
	return kind == CPA_OP_SEND || kind == CPA_OP_RECV || kind == CPA_OP_COLLECTIVE;
}

static enum cpa_status prepare(struct bench *b, const char *text)
{
	struct cpa_arena arena;
	struct cpa_config config;
	enum cpa_status s;
	int rank;

	cpa_arena_init(&arena);
	s = cpa_problem_parse(text, false, &arena, &b->problem, &b->error);
	if (s == CPA_OK)
		s = cpa_world_create("mpi", 0, &b->world, &b->error);
	if (s == CPA_OK)
		s = cpa_device_create("cpu", &b->device, &b->error);
	if (s != CPA_OK)
		return s;
	rank = cpa_world_first(b->world);
	config = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &b->problem);
	config.ring_degree = cpa_world_size(b->world);
	s = cpa_partition_create(&b->problem, &config, &b->partition, &b->error);
	if (s == CPA_OK)
		s = cpa_plan_create(b->partition, rank, &b->plan, &b->error);
	for (int kind = 0; s == CPA_OK && kind < NKINDS; kind++) {
		struct cpa_exec_options options = {.no_progress = kind != WITH};

		if (kind == ALONE)
			options.hook.before = only_messages;
		s = cpa_exec_create(b->plan, &b->problem, b->device,
			cpa_world_comm(b->world, rank), &options, &b->execs[kind], &b->error);
	}
	return s;
}

/* Inputs are what memory holds: zeros take as long as numbers. */
static enum cpa_status fill(struct bench *b)
{
	enum cpa_status s = CPA_OK;

	for (int kind = 0; kind < NKINDS; kind++)
		for (int i = 0; s == CPA_OK && i < b->plan->nbuffers; i++)
			s = b->device->ops->poison(b->device, CPA_QUEUE_COMPUTE,
				cpa_exec_memory(b->execs[kind], i),
				(size_t)cpa_buffer_nbytes(&b->plan->buffers[i]), &b->error);
	for (int kind = 0; kind < NKINDS; kind++)
		for (enum cpa_tensor t = CPA_TENSOR_Q; s == CPA_OK && t <= CPA_TENSOR_V; t++) {
			int buffer = cpa_exec_find(b->execs[kind], CPA_ROLE_INPUT, t);
			size_t nbytes = (size_t)cpa_buffer_nbytes(&b->plan->buffers[buffer]);
			void *zeros = calloc(1, nbytes);

			if (!zeros)
				return cpa_fail(&b->error, CPA_NO_MEMORY, "out of memory");
			s = b->device->ops->upload(b->device,
				cpa_exec_memory(b->execs[kind], buffer), zeros, nbytes,
				&b->error);
			free(zeros);
		}
	return s;
}

/* One run, stepped by hand so that waiting can be told from working. */
static enum cpa_status measure(struct bench *b, int kind, int repeat)
{
	struct cpa_exec *exec = b->execs[kind];
	enum cpa_status s = cpa_exec_reset(exec, &b->error);
	enum cpa_exec_state state = CPA_EXEC_RUNNING;
	double waited = 0, start;

	if (s == CPA_OK)
		s = cpa_world_barrier(b->world, &b->error);
	start = cpa_now();
	while (s == CPA_OK && state != CPA_EXEC_DONE) {
		double before = cpa_now();

		state = cpa_exec_step(exec, cpa_world_messages_first, &b->error);
		if (state == CPA_EXEC_BLOCKED)
			waited += cpa_now() - before;
		if (state == CPA_EXEC_FAILED)
			s = cpa_exec_status(exec);
	}
	b->seconds[kind][repeat] = cpa_now() - start;
	b->waited[kind][repeat] = waited;
	return s;
}

static double median(double *values, int n)
{
	return cpa_statistics_of(values, n).median;
}

/* The slowest rank of each figure. */
static enum cpa_status gather(struct bench *b, int repeats)
{
	double own[2 * NKINDS], *all;
	int W = cpa_world_size(b->world);
	enum cpa_status s;

	for (int kind = 0; kind < NKINDS; kind++) {
		own[2 * kind] = b->median[kind] = median(b->seconds[kind], repeats);
		own[2 * kind + 1] = b->median_waited[kind] = median(b->waited[kind], repeats);
	}
	all = malloc((size_t)W * sizeof own);
	if (!all)
		return cpa_fail(&b->error, CPA_NO_MEMORY, "out of memory");
	s = cpa_world_gather(b->world, own, sizeof own, all, &b->error);
	for (int rank = 0; s == CPA_OK && rank < W; rank++)
		for (int kind = 0; kind < NKINDS; kind++) {
			const double *theirs = all + rank * 2 * NKINDS + 2 * kind;

			b->median[kind] = fmax(b->median[kind], theirs[0]);
			b->median_waited[kind] = fmax(b->median_waited[kind], theirs[1]);
		}
	free(all);
	return s;
}

static void print(const struct bench *b, const char *text)
{
	static const char *const names[] = {[WITHOUT] = "without", [WITH] = "with"};
	double alone = b->median[ALONE];

	printf("# ring of %d processes, %s: messages alone take %.3f ms\n",
		cpa_world_size(b->world), text, 1e3 * alone);
	printf("# %-10s %10s %10s %10s\n# %-10s %10s %10s %10s\n", "progress", "time", "waited",
		"hidden", "", "ms", "ms", "of alone");
	for (int kind = WITHOUT; kind <= WITH; kind++)
		printf("  %-10s %10.3f %10.3f %9.0f%%\n", names[kind], 1e3 * b->median[kind],
			1e3 * b->median_waited[kind], 100 * (1 - b->median_waited[kind] / alone));
}

int main(int argc, char **argv)
{
	const char *text = argc > 1 ? argv[1] : "S=2048,H=8,D=64,dtype=fp32";
	int repeats = argc > 2 ? atoi(argv[2]) : 15;
	static struct bench b;
	enum cpa_status s;

	if (repeats < 1 || repeats > MOST_REPEATS) {
		fprintf(stderr, "REPEATS is '%s'; expected 1 to %d\n", argv[2], MOST_REPEATS);
		return 2;
	}
	s = prepare(&b, text);

	if (s == CPA_OK)
		s = fill(&b);
	for (int i = 0; s == CPA_OK && i < repeats; i++)
		for (int kind = 0; s == CPA_OK && kind < NKINDS; kind++)
			s = measure(&b, kind, i);
	if (s == CPA_OK)
		s = gather(&b, repeats);
	if (s == CPA_OK && cpa_world_leads(b.world))
		print(&b, text);
	if (s != CPA_OK) {
		fprintf(stderr, "%s\n", b.error.text);
		if (b.world)
			cpa_world_abort(b.world, &b.error);
	}
	for (int kind = 0; kind < NKINDS; kind++)
		cpa_exec_destroy(b.execs[kind]);
	cpa_schedule_destroy(b.plan);
	if (b.partition)
		cpa_partition_destroy(b.partition);
	cpa_world_destroy(b.world);
	cpa_device_destroy(b.device);
	cpa_mpi_stop();
	return s == CPA_OK ? 0 : 2;
}
