/*
 * Tests of the all-gather of the fake communicator.
 */
#include "sim/test_fake.h"

enum { MEMBERS = 3 };

/* Members 4, 0, 3 of a world of 5 gather `counts` numbers each, twice at once. */
static enum cpa_status gather(struct cpa_fake_world *world, const int counts[MEMBERS],
	const int expects[MEMBERS], float own[MEMBERS][8], float all[MEMBERS][16])
{
	static const int members[MEMBERS] = { 4, 0, 3 };
	enum cpa_status status = CPA_OK;
	struct cpa_request *request;

	for (int m = 0; status == CPA_OK && m < MEMBERS; m++) {
		struct cpa_comm *comm = cpa_fake_world_comm(world, members[m]);
		struct cpa_piece mine[2], theirs[2 * MEMBERS];
		size_t each = sizeof(float), n = (size_t)counts[m] * each;
		float *at = all[m];
		int id;

		status = comm->ops->subgroup(comm, MEMBERS, members, &id, &error);
		assert_int_equal(status, CPA_OK);
		mine[0] = bytes(own[m], n);
		mine[1] = bytes(own[m] + 4, n);
		for (int i = 0; i < MEMBERS; i++) {
			size_t expected = (size_t)(m ? expects[i] : counts[i]) * each;

			theirs[2 * i] = bytes(at, expected);
			theirs[2 * i + 1] = bytes(at + 8, expected);
			at += expected / each;
		}
		comm->ops->group_begin(comm, 1);
		comm->ops->all_gather(comm, id, mine, theirs, 2);
		status = comm->ops->group_end(comm, &request, &error);
	}
	return status;
}

static void an_all_gather_takes_any_counts(void **state)
{
	static const int counts[][MEMBERS] = { { 2, 2, 2 }, { 1, 0, 4 }, { 0, 0, 3 },
		{ 4, 3, 0 } };

	(void)state;
	for (uint64_t i = 0; i < 80; i++) {
		const int *n = counts[i / 2 % 4];
		struct cpa_fake_world *world = make_world(5, modes[i % 2], i);
		float own[MEMBERS][8], all[MEMBERS][16], right[16];
		int at = 0;

		for (int m = 0; m < MEMBERS; m++)
			for (int k = 0; k < 8; k++)
				own[m][k] = (float)(10 * m + k);
		for (int m = 0; m < MEMBERS; m++)
			for (int k = 0; k < n[m]; k++, at++) {
				right[at] = own[m][k];
				right[8 + at] = own[m][4 + k];
			}
		assert_int_equal(gather(world, n, n, own, all), CPA_OK);
		assert_int_equal(run(world, 5), CPA_OK);
		for (int m = 0; m < MEMBERS; m++) {
			assert_memory_equal(all[m], right, (size_t)at * sizeof(float));
			assert_memory_equal(all[m] + 8, right + 8, (size_t)at * sizeof(float));
		}
		/* Member 1 is world rank 0. */
		assert_int_equal(cpa_fake_world_comm(world, 0)->bytes_sent, n[1] * 2 * 4 * 2);
		assert_int_equal(cpa_fake_world_comm(world, 0)->messages, n[1] > 0);
		assert_int_equal(cpa_fake_world_comm(world, 1)->bytes_sent, 0);
		cpa_fake_world_destroy(world);
	}
}

static void an_all_gather_that_differs_names_both_sides(void **state)
{
	static const int counts[MEMBERS] = { 2, 1, 2 }, other[MEMBERS] = { 3, 1, 2 };
	static const int none[MEMBERS];
	float own[MEMBERS][8] = { { 0 } }, all[MEMBERS][16];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cpa_fake_world *world = make_world(5, modes[i], 1);

		assert_int_equal(gather(world, counts, other, own, all), CPA_MISMATCH);
		assert_says("all-gather 0 of communicator 1");
		assert_says("rank 4 sends 8 bytes of fp32, rank 0 expects 12 bytes");
		cpa_fake_world_reset(world, modes[i], 1);
		assert_int_equal(gather(world, none, none, own, all), CPA_MISMATCH);
		assert_says("every count is zero");
		cpa_fake_world_destroy(world);
	}
}

/* Rank r gives all[r][r], in place. */
static struct cpa_request *gather_in_place(struct cpa_fake_world *world, int r, float all[2])
{
	struct cpa_comm *comm = cpa_fake_world_comm(world, r);
	struct cpa_piece own = bytes(&all[r], 4);
	struct cpa_piece pieces[2] = { bytes(all, 4), bytes(all + 1, 4) };
	struct cpa_request *request;

	comm->ops->group_begin(comm, 1);
	comm->ops->all_gather(comm, 0, &own, pieces, 1);
	assert_int_equal(comm->ops->group_end(comm, &request, &error), CPA_OK);
	return request;
}

/* On one world, after a run that broke off when one of the two had called. */
static void an_all_gather_in_place_keeps_its_own_share(void **state)
{
	struct cpa_fake_world *world = make_world(2, CPA_FAKE_EAGER, 0);

	(void)state;
	for (uint64_t i = 0; i < 20; i++) {
		float all[2][2] = { { 5, 0 }, { 0, 7 } }, stray[2] = { 1, 2 };

		gather_in_place(world, i % 3 == 0, stray);
		assert_int_equal(run(world, 2), CPA_MISMATCH);
		assert_says("all-gather 0 of communicator 0 was called by 1 of its 2 members");
		cpa_fake_world_reset(world, modes[i % 2], i);
		for (int r = 0; r < 2; r++) {
			gather_in_place(world, r, all[r]);
			assert_true(is_poison(&all[r][1 - r], 4));
		}
		assert_int_equal(run(world, 2), CPA_OK);
		for (int r = 0; r < 2; r++)
			assert_true(all[r][0] == 5 && all[r][1] == 7);
		cpa_fake_world_reset(world, CPA_FAKE_EAGER, i);
	}
	cpa_fake_world_destroy(world);
}

/* Who gives nothing is waited for in rendezvous only. */
static void an_eager_all_gather_needs_nobody_without_a_share(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cpa_fake_world *world = make_world(2, modes[i], 1);
		struct cpa_comm *comm = cpa_fake_world_comm(world, 0);
		float own = 1, all[2];
		struct cpa_piece mine = bytes(&own, 4);
		struct cpa_piece pieces[2] = { bytes(all, 4), bytes(all + 1, 0) };
		struct cpa_request *request;

		comm->ops->group_begin(comm, 1);
		comm->ops->all_gather(comm, 0, &mine, pieces, 1);
		assert_int_equal(comm->ops->group_end(comm, &request, &error), CPA_OK);
		assert_int_equal(run(world, 2), CPA_MISMATCH); /* the other never calls */
		assert_int_equal(comm->ops->test(comm, request, &error),
			modes[i] == CPA_FAKE_EAGER ? CPA_DONE : CPA_PENDING);
		cpa_fake_world_destroy(world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_all_gather_takes_any_counts),
		cmocka_unit_test(an_all_gather_that_differs_names_both_sides),
		cmocka_unit_test(an_all_gather_in_place_keeps_its_own_share),
		cmocka_unit_test(an_eager_all_gather_needs_nobody_without_a_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
