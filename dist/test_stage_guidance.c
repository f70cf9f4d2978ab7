/*
 * test_stage_guidance.c - with guidance every rank ends with its rows of all batch groups, proved by the
 * checker and counted; a gather that is left out, or among the wrong ranks, or misnamed is found.
 */
#include "dist/test_cases.h"

#include <stdio.h>

static int64_t length(struct cpa_range range)
{
	return range.end - range.start;
}

static int find(const struct cpa_schedule *s, const char *name)
{
	for (int i = 0; i < s->nbuffers; i++)
		if (strcmp(s->buffers[i].name, name) == 0)
			return i;
	return -1;
}

static struct cpa_op *last_op(struct cpa_schedule *s)
{
	return &s->ops[s->nops - 1];
}

/* Rank by rank: one buffer for each group that has items, as large as this rank's rows of it. */
static void check_buffers(const struct world *w, int rank)
{
	struct cpa_coords at = cpa_partition_coords(w->part, rank);
	int64_t rows = nsplit(w->part, false, at.r, at.u) +
		cpa_spans_ntokens(&w->part->q.replicated);

	for (int b = 0; b < w->part->config.batch_degree; b++) {
		const struct cpa_problem *p = &w->part->problem;
		int64_t items = length(cpa_partition_batches(w->part, b));
		char name[24];

		snprintf(name, sizeof name, "o group %d", b);
		int id = find(w->rank[rank], name);
		assert_int_equal(id >= 0, rows > 0 && items > 0 && w->part->config.batch_degree > 1);
		if (id >= 0)
			assert_int_equal(cpa_buffer_nbytes(&w->rank[rank]->buffers[id]),
				rows * items * p->Hq * p->Dv * (int64_t)cpa_dtype_nbytes(p->dtype));
	}
}

/* The gather is all that is added, and its bytes are this rank's rows to each of the other groups. */
static void check_counts(const struct world *with, const struct world *without, int rank)
{
	const struct cpa_partition *part = with->part;
	const struct cpa_problem *p = &part->problem;
	struct cpa_coords at = cpa_partition_coords(part, rank);
	int64_t rows = nsplit(part, false, at.r, at.u) + cpa_spans_ntokens(&part->q.replicated);
	int64_t nbytes = (part->config.batch_degree - 1) * rows *
		length(cpa_partition_batches(part, at.b)) * p->Hq * p->Dv *
		(int64_t)cpa_dtype_nbytes(p->dtype);
	struct cpa_counts a, b;

	cpa_schedule_count(with->rank[rank], p, &a);
	cpa_schedule_count(without->rank[rank], p, &b);
	assert_int_equal(a.bytes_sent - b.bytes_sent, nbytes);
	assert_int_equal(a.gathered_bytes, nbytes);
	assert_int_equal(b.gathered_bytes, 0);
	assert_int_equal(a.messages - b.messages, nbytes > 0);
	assert_int_equal(a.work, b.work);
	assert_int_equal(a.attended, b.attended);
}

static void every_rank_ends_with_its_rows_of_all_batch_groups(void **unused)
{
	uint64_t state = 77;
	int nmade = 0;

	(void)unused;
	for (int n = 0; n < 3000; n++) {
		struct cpa_problem p = random_problem(&state);
		if (below(&state, 2))
			random_segments(&state, &p);
		struct cpa_config c = random_config(&state, &p), plain;
		struct world with, without;
		struct cpa_error error;

		c.guidance = 2 + below(&state, 2);
		p.B = c.guidance * (1 + below(&state, 2));
		c.batch_degree = 1 + below(&state, 7); /* more groups than items, too */
		p.layout = n % 2 ? CPA_LAYOUT_BHSD : CPA_LAYOUT_BSHD;
		plain = c;
		plain.guidance = 0;
		enum cpa_status status = make_world(&p, &c, &with, &error);
		if (status != CPA_OK) {
			assert_int_equal(status, CPA_UNSUPPORTED);
			continue;
		}
		assert_int_equal(make_world(&p, &plain, &without, &error), CPA_OK);
		if (check_world(&with, &error) != CPA_OK)
			fail_msg("case %d: %s", n, error.text);
		for (int rank = 0; rank < with.part->W; rank++) {
			check_buffers(&with, rank);
			check_counts(&with, &without, rank);
		}
		free_world(&with);
		free_world(&without);
		nmade++;
	}
	assert_true(nmade > 1000);
}

/* Batch 2 in two groups of a ring of 2: rank r of group b is 2 b + r. */
static void make(struct world *w)
{
	struct cpa_problem p = {.B = 2, .Sq = 6, .Skv = 6, .Hq = 2, .Hkv = 2, .D = 2, .Dv = 2,
		.dtype = CPA_DTYPE_FP32, .scale = 1};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &p);
	struct cpa_error error;

	c.batch_degree = c.ring_degree = 2;
	c.guidance = 2;
	assert_int_equal(make_world(&p, &c, w, &error), CPA_OK);
	assert_int_equal(check_world(w, &error), CPA_OK);
	for (int rank = 0; rank < 4; rank++) {
		assert_int_equal(last_op(w->rank[rank])->kind, CPA_OP_COLLECTIVE);
		assert_int_equal(last_op(w->rank[rank])->nwrites, 2);
	}
}

static void assert_found(struct world *w)
{
	struct cpa_error error;

	assert_int_equal(check_world(w, &error), CPA_MISMATCH);
	assert_true(error.text[0] != '\0');
	free_world(w);
}

static void a_rank_that_stays_away_from_the_gather_is_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	w.rank[3]->nops--;
	w.rank[3]->nsteps--;
	assert_found(&w);
}

/* On all ranks alike, so that only what is in the boxes tells. */
static void swapped_branches_are_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	for (int rank = 0; rank < 4; rank++) {
		struct cpa_operand *writes = last_op(w.rank[rank])->writes, first = writes[0];

		writes[0] = writes[1];
		writes[1] = first;
	}
	assert_found(&w);
}

/* As when a rank takes its number in one group for that in another: {0, 1} in place of {0, 2}. */
static void a_gather_among_the_ranks_of_one_group_is_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	for (int rank = 0; rank < 4; rank++) {
		struct cpa_communicator *comm = &w.rank[rank]->comms[last_op(w.rank[rank])->comm];

		comm->members[0] = rank / 2 * 2;
		comm->members[1] = rank / 2 * 2 + 1;
	}
	assert_found(&w);
}

/* What is wrong on all ranks alike leaves every message its partner: what a rank owes tells. */
static void assert_owed(struct world *w, const char *sentence)
{
	struct cpa_check *check;
	struct cpa_error error;

	assert_int_equal(cpa_check_create(w->part, &check, &error), CPA_OK);
	assert_int_equal(cpa_check_rank(check, w->rank[0], &error), CPA_MISMATCH);
	assert_int_equal(cpa_check_fault(check)->rule, CPA_RULE_DATA);
	if (!strstr(cpa_check_fault(check)->text, sentence))
		fail_msg("%s", cpa_check_fault(check)->text);
	cpa_check_destroy(check);
	free_world(w);
}

static void a_gather_that_no_rank_makes_is_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	for (int rank = 0; rank < 4; rank++) {
		w.rank[rank]->nops--;
		w.rank[rank]->nsteps--;
	}
	assert_owed(&w, "from buffer \"o group 0\" rows 0-2 before all of it is written");
}

static void a_plan_without_the_buffers_of_the_gather_is_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	for (int rank = 0; rank < 4; rank++) {
		w.rank[rank]->nops--;
		w.rank[rank]->nsteps--;
		w.rank[rank]->nbuffers = find(w.rank[rank], "o group 0");
	}
	assert_owed(&w, "has no buffer \"o group 0\": the gather of batch group 0 is missing");
}

static void branches_in_each_others_buffers_are_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	for (int rank = 0; rank < 4; rank++) {
		struct cpa_operand *writes = last_op(w.rank[rank])->writes;
		int first = writes[0].box.buffer;

		writes[0].box.buffer = writes[1].box.buffer;
		writes[1].box.buffer = first;
	}
	assert_owed(
		&w, "reads buffer \"o group 0\" rows 0-2 as o tokens 0-2 heads 0-1 batches 0-0");
}

static void the_own_branch_in_place_of_the_other_is_found(void **unused)
{
	struct world w;

	(void)unused;
	make(&w);
	last_op(w.rank[2])->writes[0].content.batches = (struct cpa_range){1, 2};
	assert_found(&w);
}

static void branches_that_do_not_divide_the_batch_are_refused(void **unused)
{
	const struct { int guidance; int64_t B; enum cpa_status status; } cases[] = {
		{0, 1, CPA_OK}, {2, 2, CPA_OK}, {3, 3, CPA_OK}, {2, 6, CPA_OK}, {3, 6, CPA_OK},
		{2, 3, CPA_INVALID}, {3, 2, CPA_INVALID}, {1, 2, CPA_INVALID}, {4, 4, CPA_INVALID},
		{-2, 2, CPA_INVALID},
	};

	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_problem p = {.B = cases[i].B, .Sq = 6, .Skv = 6, .Hq = 2, .Hkv = 2, .D = 2,
			.Dv = 2, .dtype = CPA_DTYPE_FP32, .scale = 1};
		struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
		struct cpa_partition *part = NULL;
		struct cpa_error error;

		c.guidance = cases[i].guidance;
		assert_int_equal(cpa_partition_create(&p, &c, &part, &error), cases[i].status);
		assert_true(cases[i].status == CPA_OK || strstr(error.text, "expected 2 or 3 branches"));
		cpa_partition_destroy(part);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_ends_with_its_rows_of_all_batch_groups),
		cmocka_unit_test(a_rank_that_stays_away_from_the_gather_is_found),
		cmocka_unit_test(swapped_branches_are_found),
		cmocka_unit_test(a_gather_among_the_ranks_of_one_group_is_found),
		cmocka_unit_test(a_gather_that_no_rank_makes_is_found),
		cmocka_unit_test(a_plan_without_the_buffers_of_the_gather_is_found),
		cmocka_unit_test(branches_in_each_others_buffers_are_found),
		cmocka_unit_test(the_own_branch_in_place_of_the_other_is_found),
		cmocka_unit_test(branches_that_do_not_divide_the_batch_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
