/*
 * Tests of messages that move while a device works: the executor lends the device the transport's
 * progress for the time of each compute step.
 */
#include "sim/test_ops.h"

static int nmoves, nlent;

static void move(struct cpa_comm *comm)
{
	(void)comm;
	nmoves++;
}

/* A device that works for long. */
static enum cpa_status copy_slowly(
	struct cpa_device *device, int queue, const struct cpa_copy *copy, struct cpa_error *e)
{
	(void)queue, (void)copy, (void)e;
	nlent += device->progress != NULL;
	for (int i = 0; i < 3 && device->progress; i++)
		device->progress(device->progress_context);
	return CPA_OK;
}

/* Runs one copy; the transport has a progress or not, and the executor may use it or not. */
static void run_copy(bool has, bool may)
{
	struct rig rig = make_rig(1);
	struct cpa_comm *comm = cpa_fake_world_comm(rig.world, 0);
	struct cpa_comm_ops ops = *comm->ops;
	const struct cpa_comm_ops *kept = comm->ops;
	struct cpa_exec_options options = {.no_progress = !may};
	struct cpa_operand read, write;

	for (int i = 0; i < 2; i++)
		add_buffer(rig.schedules[0], i ? CPA_ROLE_OUTPUT : CPA_ROLE_INPUT,
			CPA_LAYOUT_BSHD, CPA_DTYPE_FP64, 6, CPA_TENSOR_Q);
	read = (struct cpa_operand){.box = cpa_box_all(rig.schedules[0], FROM)};
	write = (struct cpa_operand){.box = cpa_box_all(rig.schedules[0], TO)};
	cpa_schedule_add(rig.schedules[0],
		&(struct cpa_op){.kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &read,
			.nwrites = 1,
			.writes = &write});
	ops.progress = has ? move : NULL;
	comm->ops = &ops;
	rig.ops.copy = copy_slowly;
	rig.device->ops = &rig.ops;
	make_execs(&rig, &options);
	nmoves = nlent = 0;
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	assert_null(rig.device->progress);
	comm->ops = kept;
	free_rig(&rig);
}

static void a_device_moves_messages_while_it_works(void **state)
{
	(void)state;
	run_copy(true, true);
	assert_int_equal(nlent, 1);
	assert_int_equal(nmoves, 3);
}

static void a_transport_that_moves_by_itself_is_left_alone(void **state)
{
	(void)state;
	run_copy(false, true);
	assert_int_equal(nlent, 0);
}

static void an_executor_may_be_told_not_to(void **state)
{
	(void)state;
	run_copy(true, false);
	assert_int_equal(nlent, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_moves_messages_while_it_works),
		cmocka_unit_test(a_transport_that_moves_by_itself_is_left_alone),
		cmocka_unit_test(an_executor_may_be_told_not_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
