/*
 * test_world.c - a world in one process and a world of processes through the same calls.  Started
 * by hand it starts mpirun on itself; started by mpirun it is one rank of a case.
 */
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "sim/test_mpi.h"

static struct cpa_error error;
static bool has_mpirun;
static const char *self;

#define CHECK(condition) check((condition), #condition, __LINE__)
static void check(bool condition, const char *text, int line)
{
	if (condition)
		return;
	fprintf(stderr, "line %d: %s (%s)\n", line, text, error.text);
	cpa_mpi_abort(1);
}

/* ---- what any world does ---- */

enum { MOST = 8 };

static void gathers_and_agrees(struct cpa_world *world)
{
	int W = cpa_world_size(world), first = cpa_world_first(world),
	    n = cpa_world_nlocal(world);
	int64_t own[MOST], all[MOST];
	enum cpa_status status = CPA_OK;

	CHECK(W <= MOST && (n == W || n == 1) && cpa_world_leads(world) == (first == 0));
	for (int i = 0; i < n; i++) {
		own[i] = 100 + first + i;
		CHECK(cpa_world_comm(world, first + i)->rank == first + i);
		CHECK(cpa_world_comm(world, first + i)->size == W);
	}
	CHECK(cpa_world_gather(world, own, sizeof *own, all, &error) == CPA_OK);
	for (int rank = 0; rank < W; rank++)
		CHECK(all[rank] == 100 + rank);
	CHECK(cpa_world_barrier(world, &error) == CPA_OK);
	CHECK(cpa_world_agree(world, CPA_OK, &error) == CPA_OK);
	if (first + n == W) /* the last rank fails */
		status = cpa_fail(&error, CPA_INVALID, "no such thing");
	CHECK(cpa_world_agree(world, status, &error) == CPA_INVALID);
	CHECK(strstr(error.text, "no such thing"));
	CHECK(n == W || strstr(error.text, W == 3 ? "rank 2: " : "rank 1: "));
	CHECK(cpa_world_check_size(world, W, &error) == CPA_OK);
	CHECK(cpa_world_check_size(world, W + 1, &error) == CPA_UNSUPPORTED);
}

/* Runs a ring of W ranks twice on the same executors; the messages are those that were planned.
 */
static void runs_a_ring(struct cpa_world *world)
{
	const struct cpa_problem problem = {.B = 1,
		.Sq = 20,
		.Skv = 20,
		.Hq = 2,
		.Hkv = 1,
		.D = 4,
		.Dv = 4,
		.dtype = CPA_DTYPE_FP64,
		.scale = 0.5};
	struct cpa_config config = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &problem);
	const struct cpa_exec_options options = {.poison = false};
	struct cpa_schedule *plans[MOST];
	struct cpa_exec *execs[MOST];
	struct cpa_partition *partition;
	struct cpa_device *device;
	int n = cpa_world_nlocal(world), first = cpa_world_first(world);

	config.ring_degree = cpa_world_size(world);
	CHECK(cpa_partition_create(&problem, &config, &partition, &error) == CPA_OK);
	CHECK(cpa_device_create("cpu", &device, &error) == CPA_OK);
	for (int i = 0; i < n; i++) {
		CHECK(cpa_plan_create(partition, first + i, &plans[i], &error) == CPA_OK);
		CHECK(cpa_exec_create(plans[i], &problem, device,
			      cpa_world_comm(world, first + i), &options, &execs[i],
			      &error) == CPA_OK);
	}
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < n; i++)
			CHECK(cpa_exec_reset(execs[i], &error) == CPA_OK);
		CHECK(cpa_world_run(world, execs, CPA_FAKE_RENDEZVOUS, 2, &error) == CPA_OK);
		for (int i = 0; i < n; i++) {
			const struct cpa_comm *comm = cpa_world_comm(world, first + i);
			struct cpa_counts counts;

			cpa_schedule_count(plans[i], &problem, &counts);
			CHECK(comm->bytes_sent == counts.bytes_sent && counts.bytes_sent > 0);
			CHECK(comm->messages == counts.messages);
		}
	}
	for (int i = 0; i < n; i++) {
		cpa_exec_destroy(execs[i]);
		cpa_schedule_destroy(plans[i]);
	}
	cpa_device_destroy(device);
	cpa_partition_destroy(partition);
}

/* ---- one rank of processes ---- */

/* Rank 0 waits for a message that rank 1 never sends. */
static void waits_in_vain(struct cpa_world *world)
{
	const struct cpa_problem problem = {.B = 1,
		.Sq = 2,
		.Skv = 2,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1};
	const struct cpa_exec_options options = {.poison = false};
	struct cpa_schedule *schedule = cpa_schedule_create(0, 2);
	struct cpa_buffer buffer = {
		"", CPA_ROLE_WORK, CPA_TENSOR_K, CPA_LAYOUT_SBHD, CPA_DTYPE_FP64, 2, 1, 1, 1, 0};
	struct cpa_operand write;
	struct cpa_device *device;
	struct cpa_exec *exec;

	if (cpa_world_first(world) != 0) {
		while (cpa_world_barrier(world, &error) != CPA_OK)
			;
		return; /* never: rank 0 ends all */
	}
	cpa_schedule_buffer(schedule, &buffer);
	write = (struct cpa_operand){.box = cpa_box_all(schedule, 0),
		.content = {.tensor = CPA_TENSOR_K, .dtype = CPA_DTYPE_FP64}};
	cpa_schedule_begin(schedule, CPA_QUEUE_COMM);
	cpa_schedule_add(schedule,
		&(struct cpa_op){.kind = CPA_OP_RECV, .peer = 1, .nwrites = 1, .writes = &write});
	cpa_schedule_end(schedule);
	CHECK(cpa_schedule_finish(schedule, &error) == CPA_OK);
	CHECK(cpa_device_create("ref", &device, &error) == CPA_OK);
	CHECK(cpa_exec_create(schedule, &problem, device, cpa_world_comm(world, 0), &options,
		      &exec, &error) == CPA_OK);
	CHECK(cpa_world_run(world, &exec, CPA_FAKE_EAGER, 1, &error) == CPA_MISMATCH);
	CHECK(strstr(error.text, "rank 0 has waited 1 seconds while nothing moved: step 0"));
	cpa_world_abort(world, &error);
}

static int run_rank(const char *name)
{
	struct cpa_world *world;

	CHECK(cpa_world_create("mpi", 0, &world, &error) == CPA_OK);
	CHECK(strcmp(cpa_world_name(world), "mpi") == 0);
	if (strcmp(name, "vain") == 0) {
		waits_in_vain(world);
	} else {
		gathers_and_agrees(world);
		runs_a_ring(world);
	}
	cpa_world_destroy(world);
	cpa_mpi_stop();
	return 0;
}

/* ---- all ranks ---- */

static int launch(const char *before, int W, const char *name)
{
	char command[4500];
	int status;

	snprintf(command, sizeof command, "%s mpirun -n %d '%s' %s", before, W, self, name);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void a_world_in_one_process_gathers_agrees_and_runs(void **state)
{
	struct cpa_world *world;

	(void)state;
	for (int W = 2; W <= 5; W++) {
		assert_int_equal(cpa_world_create("fake", W, &world, &error), CPA_OK);
		assert_string_equal(cpa_world_name(world), "fake");
		gathers_and_agrees(world);
		runs_a_ring(world);
		cpa_world_destroy(world);
	}
}

static void an_unknown_communicator_is_refused(void **state)
{
	struct cpa_world *world;

	(void)state;
	assert_int_equal(cpa_world_create("smoke", 2, &world, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "expected fake or mpi"));
}

static void processes_gather_agree_and_run(void **state)
{
	(void)state;
	if (!has_mpirun)
		skip();
	assert_int_equal(launch("", 2, "all"), 0);
	assert_int_equal(launch("", 3, "all"), 0);
}

static void a_rank_that_waits_in_vain_ends_all_after_its_patience(void **state)
{
	(void)state;
	if (!has_mpirun)
		skip();
	assert_int_equal(launch("CPATTN_PATIENCE=1 timeout 60", 2, "vain"), 2);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_world_in_one_process_gathers_agrees_and_runs),
		cmocka_unit_test(an_unknown_communicator_is_refused),
		cmocka_unit_test(processes_gather_agree_and_run),
		cmocka_unit_test(a_rank_that_waits_in_vain_ends_all_after_its_patience),
	};

	if (argc > 1)
		return run_rank(argv[1]);
	self = argv[0];
	set_environment();
	has_mpirun = cpa_mpi_usable() && find_mpirun();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
