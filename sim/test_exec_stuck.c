/*
 * Tests of runs that cannot go on: who waits for what from whom.
 */
#include "sim/test_ring.h"

static void sending_before_receiving_is_a_deadlock_in_rendezvous_only(void **state)
{
	struct rig rig = make_rig("ref", false);

	(void)state;
	make_execs(&rig, &poisoned);
	for (uint64_t seed = 0; seed < 20; seed++) {
		assert_int_equal(run(&rig, CPA_FAKE_EAGER, seed), CPA_OK);
		assert_true(worst(&rig) <= tolerance);
		assert_int_equal(run(&rig, CPA_FAKE_RENDEZVOUS, seed), CPA_MISMATCH);
		assert_says("2 of 2 ranks wait");
		assert_says("rank 0 (step 2: send");
		assert_says("rank 1 (step 2: send");
		assert_says("waits for rank 0, to receive message 0");
		assert_says("waits for rank 1, to receive message 0");
	}
	free_rig(&rig);
}

static void a_partner_that_has_finished_is_named(void **state)
{
	enum cpa_op_kind kind = CPA_OP_SEND;
	const struct cpa_exec_options options = { .poison = true,
		.hook = { drop, NULL, &kind } };
	struct rig rig = make_rig("ref", true);
	struct cpa_exec *lonely[P] = { 0 };

	(void)state;
	make_execs(&rig, &options);
	for (uint64_t seed = 0; seed < 10; seed++) {
		assert_int_equal(run(&rig, CPA_FAKE_RENDEZVOUS, seed), CPA_MISMATCH);
		assert_says("1 of 2 ranks wait: rank 1 (step 2: ");
		assert_says("waits for rank 0, which has finished, to send message 0");
		assert_null(strstr(error.text, "to receive")); /* that one has met */
	}
	kind = CPA_OP_RECV;
	assert_int_equal(run(&rig, CPA_FAKE_RENDEZVOUS, 1), CPA_MISMATCH);
	assert_says("waits for rank 0, which has finished, to receive message 0");
	assert_int_equal(run(&rig, CPA_FAKE_EAGER, 1), CPA_MISMATCH);
	assert_says("rank 1 sent message 0");
	assert_says("to rank 0, which received only 0");
	kind = CPA_OP_MERGE;
	cpa_fake_world_reset(rig.world, CPA_FAKE_EAGER, 1);
	assert_int_equal(cpa_exec_reset(rig.execs[1], &error), CPA_OK);
	lonely[1] = rig.execs[1];
	assert_int_equal(cpa_fake_run(rig.world, lonely, &error), CPA_MISMATCH);
	assert_says("waits for rank 0, which has no work, to send message 0");
	free_rig(&rig);
}

static void steps_that_wait_for_each_other_are_named(void **state)
{
	struct rig rig = make_rig("ref", true);

	(void)state;
	rig.schedules[1]->steps[EXCHANGE].waits[CPA_QUEUE_COMPUTE] = MERGE;
	make_execs(&rig, &poisoned);
	for (uint64_t seed = 0; seed < 10; seed++) {
		assert_int_equal(run(&rig, modes[seed % 2], seed), CPA_MISMATCH);
		assert_says("rank 1 (step 4: attend");
		assert_says("which waits for step 2)");
		assert_says("waits for rank 1, to send message 0");
	}
	free_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sending_before_receiving_is_a_deadlock_in_rendezvous_only),
		cmocka_unit_test(a_partner_that_has_finished_is_named),
		cmocka_unit_test(steps_that_wait_for_each_other_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
