/*
 * Tests of the executor on fake ranks: right under every seed, repeatable, wrong without a wait.
 */
#include "sim/test_ring.h"

static void a_ring_of_two_equals_full_attention_under_every_seed(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct rig rig = make_rig(cpa_device_name(i), true);

		make_execs(&rig, &poisoned);
		for (uint64_t seed = 0; seed < 100; seed++) {
			assert_int_equal(run(&rig, modes[seed % 2], seed), CPA_OK);
			assert_true(worst(&rig) <= tolerance);
		}
		for (int r = 0; r < P; r++) {
			const struct cpa_comm *comm = cpa_fake_world_comm(rig.world, r);

			assert_int_equal(comm->messages, 1);
			assert_int_equal(comm->bytes_sent, 2 * SHARD * 2 * (3 + 5) * 8);
		}
		free_rig(&rig);
	}
}

/* Each wait of the plan is needed, some seed shows that, and no wait more makes it right again.
 */
static void a_missing_wait_is_seen_by_some_seed(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * P * 2; i++) {
		struct rig rig = make_rig("ref", true);
		struct cpa_schedule *s = rig.schedules[i / 2 % P];
		bool first = i & 1;
		int *wait = &s->steps[first ? EXCHANGE : ATTEND_SLOT]
				     .waits[first ? CPA_QUEUE_COMPUTE : CPA_QUEUE_COMM];
		int seen = 0;

		assert_int_equal(*wait, first ? PACK_V : EXCHANGE);
		*wait = -1;
		make_execs(&rig, &poisoned);
		for (uint64_t seed = 0; seed < 20; seed++) {
			assert_int_equal(run(&rig, modes[i / 4], seed), CPA_OK);
			seen += isinf(worst(&rig));
		}
		assert_in_range(seen, 1, 19);
		free_rig(&rig);
	}
}

/* With both exchanges started a message may be there at once, or not until it must. */
static bool look(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_schedule *s = cpa_exec_schedule(exec);
	int *seen = context; /* exchanges started, landed before the attend, not landed */

	seen[0] += s->ops[op].kind == CPA_OP_SEND;
	if (s->ops[op].kind == CPA_OP_ATTEND && s->ops[op].reads[1].box.buffer == K
		&& seen[0] == P)
		seen[isnan(*(double *)cpa_exec_memory(exec, K_SLOT)) ? 2 : 1]++;
	return true;
}

static void a_message_lands_early_for_some_seeds_and_late_for_others(void **state)
{
	int seen[3] = { 0 }, both = 0; /* one alone may be slow, not fast messages */
	const struct cpa_exec_options options = { .poison = true, .hook = { look, NULL, seen } };
	struct rig rig = make_rig("ref", true);

	(void)state;
	make_execs(&rig, &options);
	for (uint64_t seed = 0; seed < 400; seed++) {
		seen[0] = seen[1] = 0;
		assert_int_equal(run(&rig, modes[seed % 2], seed), CPA_OK);
		both += seen[1] == P;
	}
	assert_true(both > 0 && seen[2] > 0);
	free_rig(&rig);
}

/* ---- hooks, seeds, memory ---- */

struct trace {
	int at[64], n;
};

static bool note(void *context, struct cpa_exec *exec, int op)
{
	struct trace *trace = context;

	trace->at[trace->n++] = 100 * cpa_exec_schedule(exec)->rank + op;
	return true;
}

static void note_end(void *context, struct cpa_exec *exec, int op)
{
	struct trace *trace = context;

	trace->at[trace->n++] = -(100 * cpa_exec_schedule(exec)->rank + op);
}

static void the_same_seed_gives_the_same_run(void **state)
{
	struct trace trace, again, first = { { 0 }, 0 };
	const struct cpa_exec_options options = { .hook = { note, note_end, &trace } };
	struct rig rig = make_rig("ref", true);
	int others = 0;

	(void)state;
	make_execs(&rig, &options);
	for (uint64_t seed = 0; seed < 30; seed++) {
		trace.n = 0;
		assert_int_equal(run(&rig, modes[seed % 2], seed), CPA_OK);
		assert_int_equal(trace.n, P * 9 * 2); /* 9 ops a rank, before and after */
		again = trace;
		trace.n = 0;
		assert_int_equal(run(&rig, modes[seed % 2], seed), CPA_OK);
		assert_memory_equal(trace.at, again.at, (size_t)trace.n * sizeof *trace.at);
		if (seed == 0)
			first = trace;
		others += memcmp(trace.at, first.at, (size_t)trace.n * sizeof *trace.at) != 0;
	}
	assert_true(others > 20);
	free_rig(&rig);
}

static void a_skipped_merge_leaves_the_first_partial(void **state)
{
	enum cpa_op_kind kind = CPA_OP_MERGE;
	const struct cpa_exec_options options = { .poison = true,
		.hook = { drop, NULL, &kind } };
	struct rig rig = make_rig("ref", true);
	double off;

	(void)state;
	make_execs(&rig, &options);
	assert_int_equal(run(&rig, CPA_FAKE_EAGER, 1), CPA_OK);
	off = worst(&rig);
	assert_true(off > 1e-3 && off < INFINITY);
	free_rig(&rig);
}

static void an_executor_allocates_its_peak_at_once_and_no_more(void **state)
{
	struct rig rig = make_rig("cpu", true);
	struct cpa_counts counts;
	size_t sum = 0;

	(void)state;
	make_execs(&rig, &poisoned);
	for (int r = 0; r < P; r++) {
		cpa_schedule_count(rig.schedules[r], &problem, &counts);
		sum += (size_t)counts.peak_bytes;
	}
	assert_int_equal(rig.device->nbytes, sum);
	assert_int_equal(run(&rig, CPA_FAKE_EAGER, 1), CPA_OK);
	assert_int_equal(rig.device->peak, sum);
	assert_int_equal(cpa_exec_find(rig.execs[0], CPA_ROLE_OUTPUT, CPA_TENSOR_LSE), LSE);
	assert_int_equal(cpa_exec_find(rig.execs[0], CPA_ROLE_INPUT, CPA_TENSOR_LSE), -1);
	free_rig(&rig);
}

struct taken {
	void *blocks[8];
	int n, nback;
};

static void *take(void *context, size_t nbytes)
{
	struct taken *taken = context;
	void *block;

	assert_true(taken->n < 8);
	assert_int_equal(posix_memalign(&block, 64, nbytes), 0);
	return taken->blocks[taken->n++] = block;
}

static void give(void *context, void *memory)
{
	struct taken *taken = context;

	taken->nback++;
	free(memory);
}

/* Buffers of a rank that messages are sent from. */
static int sent_from(const struct cpa_schedule *schedule, bool *sent)
{
	int n = 0;

	for (int i = 0; i < schedule->nops; i++)
		for (int k = 0; schedule->ops[i].kind == CPA_OP_SEND && k < schedule->ops[i].nreads;
			k++)
			sent[schedule->ops[i].reads[k].box.buffer] = true;
	for (int i = 0; i < schedule->nbuffers; i++)
		n += sent[i];
	return n;
}

static void what_is_sent_lies_in_memory_of_the_communicator(void **state)
{
	struct rig rig = make_rig("cpu", true);
	struct taken taken[P] = {{.n = 0}};
	struct cpa_host_memory memory[P];

	(void)state;
	for (int r = 0; r < P; r++) {
		memory[r] = (struct cpa_host_memory){take, give, &taken[r]};
		cpa_fake_world_comm(rig.world, r)->memory = &memory[r];
	}
	make_execs(&rig, &poisoned);
	for (int r = 0; r < P; r++) {
		bool sent[32] = {false};
		int n = sent_from(rig.schedules[r], sent);

		assert_true(n > 0 && n < rig.schedules[r]->nbuffers);
		assert_int_equal(taken[r].n, n);
		for (int i = 0; i < rig.schedules[r]->nbuffers; i++) {
			bool found = false;

			for (int k = 0; k < n; k++)
				found |= (uintptr_t)cpa_exec_memory(rig.execs[r], i) -
						(uintptr_t)taken[r].blocks[k] <=
					128;
			assert_int_equal(found, sent[i]);
		}
	}
	assert_int_equal(run(&rig, CPA_FAKE_EAGER, 1), CPA_OK);
	assert_true(worst(&rig) <= tolerance);
	free_rig(&rig);
	for (int r = 0; r < P; r++)
		assert_int_equal(taken[r].nback, taken[r].n);
}

static void a_reset_poisons_all_but_the_inputs(void **state)
{
	struct rig rig = make_rig("ref", true);

	(void)state;
	make_execs(&rig, &poisoned);
	assert_int_equal(run(&rig, CPA_FAKE_EAGER, 1), CPA_OK);
	assert_int_equal(cpa_exec_reset(rig.execs[0], &error), CPA_OK);
	for (int i = 0; i < rig.schedules[0]->nbuffers; i++) {
		const struct cpa_buffer *b = &rig.schedules[0]->buffers[i];
		const double *memory = cpa_exec_memory(rig.execs[0], i);

		for (int64_t k = 0; k < cpa_buffer_nbytes(b) / 8; k++)
			assert_int_equal(isnan(memory[k]) != 0, b->role != CPA_ROLE_INPUT);
	}
	free_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_of_two_equals_full_attention_under_every_seed),
		cmocka_unit_test(a_missing_wait_is_seen_by_some_seed),
		cmocka_unit_test(a_message_lands_early_for_some_seeds_and_late_for_others),
		cmocka_unit_test(the_same_seed_gives_the_same_run),
		cmocka_unit_test(a_skipped_merge_leaves_the_first_partial),
		cmocka_unit_test(an_executor_allocates_its_peak_at_once_and_no_more),
		cmocka_unit_test(what_is_sent_lies_in_memory_of_the_communicator),
		cmocka_unit_test(a_reset_poisons_all_but_the_inputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
