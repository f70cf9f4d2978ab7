/*
 * Tests of what devices with real queues are told: events, and who waits for them.
 */
#include "sim/test_ops.h"

/* Two ranks: pack, exchange, unpack. */
static void add_exchange(struct cpa_schedule *s)
{
	struct cpa_operand boxes[4] = { { .box.buffer = 0 } };
	int peer = 1 - s->rank;

	for (int i = FROM; i <= LAST; i++) {
		add_buffer(s, i == FROM ? CPA_ROLE_INPUT : CPA_ROLE_WORK, CPA_LAYOUT_SBHD,
			CPA_DTYPE_FP64, 3, CPA_TENSOR_Q);
		boxes[i].box = cpa_box_all(s, i);
	}
	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &boxes[FROM],
			.nwrites = 1,
			.writes = &boxes[TO] });
	cpa_schedule_begin(s, CPA_QUEUE_COMM);
	cpa_schedule_add(s,
		&(struct cpa_op){
			.kind = CPA_OP_SEND, .peer = peer, .nreads = 1, .reads = &boxes[TO] });
	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_RECV,
			.peer = peer,
			.nwrites = 1,
			.writes = &boxes[THERE] });
	cpa_schedule_end(s);
	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &boxes[THERE],
			.nwrites = 1,
			.writes = &boxes[LAST] });
}

static struct {
	int recorded[CPA_NQUEUES], waited[CPA_NQUEUES], late;
	const struct cpa_device_ops *kept;
} seen;

static enum cpa_status count_record(struct cpa_device *device, int queue,
	struct cpa_device_event **event, struct cpa_error *e)
{
	seen.recorded[queue]++;
	return seen.kept->event_record(device, queue, event, e);
}

static enum cpa_status count_wait(struct cpa_device *device, int queue,
	struct cpa_device_event *event, struct cpa_error *e)
{
	seen.waited[queue]++;
	return seen.kept->event_wait(device, queue, event, e);
}

/* An event is asked for a few times before it is done. */
static bool late_event(struct cpa_device *device, struct cpa_device_event *event)
{
	return seen.late-- <= 0 && seen.kept->event_done(device, event);
}

/* rig is not to be moved afterwards: its device looks into it. */
static void make_queued_rig(struct rig *rig, bool stream_ordered)
{
	const struct cpa_exec_options options = { .poison = false };

	*rig = make_rig(2);
	memset(&seen, 0, sizeof seen);
	seen.kept = rig->kept;
	rig->ops.event_record = count_record;
	rig->ops.event_wait = count_wait;
	rig->ops.event_done = late_event;
	rig->device->ops = &rig->ops;
	for (int r = 0; r < 2; r++) {
		add_exchange(rig->schedules[r]);
		cpa_fake_world_comm(rig->world, r)->stream_ordered = stream_ordered;
	}
	make_execs(rig, &options);
	for (int r = 0; r < 2; r++)
		memset(cpa_exec_memory(rig->execs[r], FROM), r + 1, 3 * 2 * 3 * 2 * 8);
}

/* The transport is driven by the host: it may not start before the device has packed. */
static void a_message_waits_for_the_device_without_being_blocked(void **state)
{
	struct rig rig;

	(void)state;
	make_queued_rig(&rig, false);
	seen.late = 5;
	assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_RUNNING); /* packs */
	for (int i = 0; i < 5; i++) {
		assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_RUNNING);
		assert_int_equal(cpa_fake_world_comm(rig.world, 0)->messages, 0);
	}
	assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_RUNNING); /* sends */
	assert_int_equal(cpa_fake_world_comm(rig.world, 0)->messages, 1);
	assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_BLOCKED);
	seen.late = 7;
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	for (int r = 0; r < 2; r++)
		assert_int_equal(*(unsigned char *)cpa_exec_memory(rig.execs[r], LAST), 2 - r);
	assert_int_equal(seen.waited[0] + seen.waited[1], 0);
	/* One event a rank for the packing, and one for the end of each queue. */
	assert_int_equal(seen.recorded[CPA_QUEUE_COMPUTE], 2 * 2);
	assert_int_equal(seen.recorded[CPA_QUEUE_COMM], 2);
	free_rig(&rig);
}

/* Groups on a device queue: both directions become event waits, and the host waits for nothing.
 */
static void a_stream_ordered_transport_is_ordered_by_events(void **state)
{
	struct rig rig;

	(void)state;
	make_queued_rig(&rig, true);
	for (int i = 0; i < 3; i++) /* pack, exchange, unpack */
		assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_RUNNING);
	assert_int_equal(seen.waited[CPA_QUEUE_COMM], 1);
	assert_int_equal(seen.waited[CPA_QUEUE_COMPUTE], 1);
	assert_int_equal(cpa_exec_step(rig.execs[0], 0, &error), CPA_EXEC_BLOCKED);
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	free_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_waits_for_the_device_without_being_blocked),
		cmocka_unit_test(a_stream_ordered_transport_is_ordered_by_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
