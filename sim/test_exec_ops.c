/*
 * Tests of single ops of the executor: boxes of any shape, poison, merges.
 */
#include "sim/test_ops.h"

#include <math.h>

/* The number that element (token, batch, head, feature) of a buffer holds, by where it should
 * lie. */
static double at(const struct cpa_exec *exec, int buffer, const int64_t i[4])
{
	const struct cpa_buffer *b = &cpa_exec_schedule(exec)->buffers[buffer];
	int64_t row = ((b->layout == CPA_LAYOUT_SBHD ? i[0] * b->nbatches + i[1]
						     : i[1] * b->ntokens + i[0])
			      * b->nheads)
		+ i[2];

	if (b->layout == CPA_LAYOUT_BHSD)
		row = (i[1] * b->nheads + i[2]) * b->ntokens + i[0];
	return cpa_load(b->dtype, cpa_exec_memory(exec, buffer), row * b->dim + i[3]);
}

/* ---- copies ---- */

static const struct cpa_box from_box = { FROM, 1, 3, 2, 1, 1, 1, 2 }; /* tokens 1 3 5 */
static const struct cpa_box to_box = { TO, 0, 3, 1, 0, 1, 0, 2 };

static bool copies_to(const struct cpa_box *box, const int64_t i[4])
{
	return i[0] >= box->token && i[0] < box->token + box->ntokens * box->step
		&& (i[0] - box->token) % box->step == 0 && i[1] >= box->batch
		&& i[1] < box->batch + box->nbatches && i[2] >= box->head
		&& i[2] < box->head + box->nheads;
}

static void add_strided_copy(struct cpa_schedule *s, bool back)
{
	struct cpa_operand read = { .box = back ? to_box : from_box };
	struct cpa_operand write = { .box = back ? from_box : to_box };

	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &read,
			.nwrites = 1,
			.writes = &write });
}

/* Puts 0, 1, 2, ... into the source and 7 all over the target before the op. */
static bool set_up(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_schedule *s = cpa_exec_schedule(exec);

	(void)context;
	if (op > 0)
		return true;
	for (int i = 0; i < 2; i++) {
		const struct cpa_buffer *b = &s->buffers[i];
		int64_t n = cpa_buffer_nbytes(b) / (int64_t)cpa_dtype_nbytes(b->dtype);
		bool source = i == s->ops[0].reads[0].box.buffer;

		for (int64_t k = 0; k < n; k++)
			cpa_store(
				b->dtype, cpa_exec_memory(exec, i), k, source ? (double)k : 7);
	}
	return true;
}

/* What element i of the target must hold. */
static double expected(const struct cpa_exec *exec, bool back, const int64_t i[4])
{
	const struct cpa_box *read = back ? &to_box : &from_box;
	const struct cpa_box *write = back ? &from_box : &to_box;
	int64_t source[4] = { read->token + (i[0] - write->token) / write->step * read->step,
		read->batch + i[1] - write->batch, read->head + i[2] - write->head, i[3] };

	return copies_to(write, i) ? at(exec, read->buffer, source) : 7;
}

static enum cpa_status do_nothing(
	struct cpa_device *device, int queue, const struct cpa_copy *copy, struct cpa_error *e)
{
	(void)device, (void)queue, (void)copy, (void)e;
	return CPA_OK;
}

/* With a device that does not copy, the box, and only the box, is left as poison. */
static void a_strided_copy_fills_its_box_and_nothing_else(void **state)
{
	const struct cpa_exec_options options = { .poison = true,
		.hook = { .before = set_up } };

	(void)state;
	for (int i = 0; i < 4 * 16; i++) {
		struct rig rig = make_rig(1);
		bool back = i & 1, lame = i & 2;
		enum cpa_layout one = (enum cpa_layout)(i / 4 % 4);
		enum cpa_layout two = (enum cpa_layout)(i / 16);
		const struct cpa_buffer *target;

		add_buffer(
			rig.schedules[0], CPA_ROLE_INPUT, one, CPA_DTYPE_FP32, 6, CPA_TENSOR_Q);
		add_buffer(
			rig.schedules[0], CPA_ROLE_WORK, two, CPA_DTYPE_BF16, 4, CPA_TENSOR_Q);
		add_strided_copy(rig.schedules[0], back);
		if (lame)
			rig.ops.copy = do_nothing;
		rig.device->ops = &rig.ops;
		make_execs(&rig, &options);
		assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
		target = &rig.schedules[0]->buffers[back ? FROM : TO];
		for (int64_t n = 0; n < target->ntokens * 2 * 3 * 2; n++) {
			const int64_t at_n[4] = { n / 12, n / 6 % 2, n / 2 % 3, n % 2 };
			double have = at(rig.execs[0], back ? FROM : TO, at_n);
			bool inside = copies_to(back ? &from_box : &to_box, at_n);

			if (lame && inside)
				assert_true(isnan(have));
			else
				assert_true(have == expected(rig.execs[0], back, at_n));
		}
		free_rig(&rig);
	}
}

static void a_copy_of_nothing_is_the_identity_partial(void **state)
{
	const struct cpa_exec_options options = { .poison = true };
	struct rig rig = make_rig(1);

	(void)state;
	for (int i = 0; i < 2; i++) {
		enum cpa_tensor tensor = i ? CPA_TENSOR_LSE : CPA_TENSOR_O;
		struct cpa_operand write = { .content.tensor = tensor };

		add_buffer(rig.schedules[0], CPA_ROLE_WORK, CPA_LAYOUT_SBHD, CPA_DTYPE_FP32, 3,
			tensor);
		write.box = cpa_box_all(rig.schedules[0], i);
		cpa_schedule_add(rig.schedules[0],
			&(struct cpa_op){ .kind = CPA_OP_COPY,
				.peer = -1,
				.nwrites = 1,
				.writes = &write });
	}
	make_execs(&rig, &options);
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	for (int64_t k = 0; k < 3 * 2 * 3; k++) {
		assert_true(
			cpa_load(CPA_DTYPE_FP32, cpa_exec_memory(rig.execs[0], 0), 2 * k) == 0);
		assert_true(cpa_load(CPA_DTYPE_FP32, cpa_exec_memory(rig.execs[0], 1), k)
			== -INFINITY);
	}
	free_rig(&rig);
}

/* ---- merges ---- */

static bool set_partials(void *context, struct cpa_exec *exec, int op)
{
	(void)context, (void)op;
	for (int i = 0; i < 4; i++) {
		const struct cpa_buffer *b = &cpa_exec_schedule(exec)->buffers[i];

		for (int64_t k = 0; k < cpa_buffer_nbytes(b) / 8; k++)
			cpa_store(b->dtype, cpa_exec_memory(exec, i), k,
				sin((double)(k + 1) * (i + 1)));
	}
	return true;
}

/* The same result in place and elsewhere, and elsewhere leaves both partials alone. */
static void a_merge_may_go_elsewhere(void **state)
{
	const struct cpa_exec_options options = { .poison = true,
		.hook = { .before = set_partials } };

	(void)state;
	for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
		struct rig rig = make_rig(1);
		struct cpa_operand all[6], *writes = elsewhere ? all + 4 : all;
		struct cpa_schedule *s = rig.schedules[0];

		for (int i = 0; i < 6; i++) {
			enum cpa_tensor tensor = i % 2 ? CPA_TENSOR_LSE : CPA_TENSOR_O;

			add_buffer(
				s, CPA_ROLE_WORK, CPA_LAYOUT_SBHD, CPA_DTYPE_FP64, 3, tensor);
			all[i] = (struct cpa_operand){ .box = cpa_box_all(s, i) };
		}
		cpa_schedule_add(s,
			&(struct cpa_op){ .kind = CPA_OP_MERGE,
				.peer = -1,
				.nreads = 4,
				.reads = all,
				.nwrites = 2,
				.writes = writes });
		make_execs(&rig, &options);
		assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
		for (int64_t row = 0; row < 3 * 2 * 3; row++) {
			double o[4], lse[2];
			const double *got_o =
				cpa_exec_memory(rig.execs[0], writes[0].box.buffer);
			const double *got_lse =
				cpa_exec_memory(rig.execs[0], writes[1].box.buffer);
			const double *first = cpa_exec_memory(rig.execs[0], 0);

			for (int k = 0; k < 4; k++)
				o[k] = sin((double)(2 * row + k % 2 + 1) * (k / 2 * 2 + 1));
			for (int k = 0; k < 2; k++)
				lse[k] = sin((double)(row + 1) * (2 * k + 2));
			assert_true(!elsewhere || first[2 * row] == o[0]);
			cpa_ref_merge(2, o, &lse[0], o + 2, lse[1]);
			/* Weights and sums of numbers below 2: a few units in the last place.
			 */
			assert_true(fabs(got_o[2 * row] - o[0]) <= 16 * 0x1p-53);
			assert_true(fabs(got_o[2 * row + 1] - o[1]) <= 16 * 0x1p-53);
			assert_true(fabs(got_lse[row] - lse[0]) <= 16 * 0x1p-53);
		}
		free_rig(&rig);
	}
}

/* ---- poison ---- */

static enum cpa_status (*real_copy)(
	struct cpa_device *, int, const struct cpa_copy *, struct cpa_error *);
static enum cpa_status (*real_poison)(
	struct cpa_device *, int, void *, size_t, struct cpa_error *);
static int ncopies, npoisoned;

static enum cpa_status copy_once(
	struct cpa_device *device, int queue, const struct cpa_copy *copy, struct cpa_error *e)
{
	return ncopies++ ? CPA_OK : real_copy(device, queue, copy, e);
}

static enum cpa_status count_poison(
	struct cpa_device *device, int queue, void *memory, size_t nbytes, struct cpa_error *e)
{
	npoisoned++;
	return real_poison(device, queue, memory, nbytes, e);
}

/* Copies n tokens from `token` on, whole rows, and on a device that copies only once. */
static void add_copy(struct cpa_schedule *s, int64_t token, int64_t n)
{
	struct cpa_operand read = { .box = cpa_box_all(s, FROM) };
	struct cpa_operand write = { .box = cpa_box_all(s, TO) };

	read.box.token = write.box.token = token;
	read.box.ntokens = write.box.ntokens = n;
	cpa_schedule_add(s,
		&(struct cpa_op){ .kind = CPA_OP_COPY,
			.peer = -1,
			.nreads = 1,
			.reads = &read,
			.nwrites = 1,
			.writes = &write });
}

static struct rig make_counting_rig(void)
{
	struct rig rig = make_rig(1);

	for (int i = FROM; i <= TO; i++)
		add_buffer(rig.schedules[0], i == FROM ? CPA_ROLE_INPUT : CPA_ROLE_WORK,
			CPA_LAYOUT_SBHD, CPA_DTYPE_FP64, 6, CPA_TENSOR_Q);
	real_copy = rig.ops.copy;
	real_poison = rig.ops.poison;
	rig.ops.copy = copy_once;
	rig.ops.poison = count_poison;
	ncopies = npoisoned = 0;
	return rig;
}

/* Tokens of TO that are NaN, as digits of a binary number. */
static int poisoned_tokens(const struct rig *rig)
{
	int tokens = 0;

	for (int64_t t = 0; t < 6; t++)
		if (isnan(at(rig->execs[0], TO, (const int64_t[4]){ t, 0, 0, 0 })))
			tokens |= 1 << t;
	return tokens;
}

static void run_counting(struct rig *rig)
{
	const struct cpa_exec_options options = { .poison = true };

	rig->device->ops = &rig->ops;
	make_execs(rig, &options);
	memset(cpa_exec_memory(rig->execs[0], FROM), 0,
		(size_t)cpa_buffer_nbytes(&rig->schedules[0]->buffers[FROM]));
	assert_int_equal(cpa_fake_run(rig->world, rig->execs, &error), CPA_OK);
}

/* The first copy fills tokens 0 .. 3; the second, which does nothing, was to fill 2 .. 5. */
static void a_box_is_poison_again_before_it_is_written_again(void **state)
{
	struct rig rig = make_counting_rig();

	(void)state;
	add_copy(rig.schedules[0], 0, 4);
	add_copy(rig.schedules[0], 2, 4);
	run_counting(&rig);
	assert_int_equal(npoisoned, 2);
	assert_int_equal(poisoned_tokens(&rig), 0x3c);
	free_rig(&rig);
}

/* Each rank gets the other's FROM in TO, over which a copy that does nothing goes. */
static void what_a_message_wrote_is_poison_before_it_is_written_again(void **state)
{
	const struct cpa_exec_options options = { .poison = true };
	struct rig rig = make_rig(2);

	(void)state;
	rig.ops.copy = do_nothing;
	rig.device->ops = &rig.ops;
	for (int r = 0; r < 2; r++) {
		struct cpa_schedule *s = rig.schedules[r];
		struct cpa_operand from, to;

		for (int i = FROM; i <= TO; i++)
			add_buffer(s, i == FROM ? CPA_ROLE_INPUT : CPA_ROLE_WORK,
				CPA_LAYOUT_SBHD, CPA_DTYPE_FP64, 6, CPA_TENSOR_Q);
		from = (struct cpa_operand){ .box = cpa_box_all(s, FROM) };
		to = (struct cpa_operand){ .box = cpa_box_all(s, TO) };
		cpa_schedule_begin(s, CPA_QUEUE_COMM);
		cpa_schedule_add(s,
			&(struct cpa_op){ .kind = CPA_OP_SEND,
				.peer = 1 - r,
				.nreads = 1,
				.reads = &from });
		cpa_schedule_add(s,
			&(struct cpa_op){ .kind = CPA_OP_RECV,
				.peer = 1 - r,
				.nwrites = 1,
				.writes = &to });
		cpa_schedule_end(s);
		add_copy(s, 0, 6);
	}
	make_execs(&rig, &options);
	for (int r = 0; r < 2; r++)
		memset(cpa_exec_memory(rig.execs[r], FROM), 0,
			(size_t)cpa_buffer_nbytes(&rig.schedules[r]->buffers[FROM]));
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	assert_int_equal(poisoned_tokens(&rig), 0x3f);
	free_rig(&rig);
}

/* TO as a whole when it is made and at each reset; the boxes meet none that were written. */
static void a_box_that_nobody_wrote_is_poisoned_once(void **state)
{
	struct rig rig = make_counting_rig();

	(void)state;
	add_copy(rig.schedules[0], 0, 3);
	add_copy(rig.schedules[0], 3, 3);
	run_counting(&rig);
	assert_int_equal(npoisoned, 1);
	assert_int_equal(poisoned_tokens(&rig), 0x38);
	ncopies = 0;
	cpa_fake_world_reset(rig.world, CPA_FAKE_EAGER, 0);
	assert_int_equal(cpa_exec_reset(rig.execs[0], &error), CPA_OK);
	assert_int_equal(poisoned_tokens(&rig), 0x3f);
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	assert_int_equal(npoisoned, 2);
	assert_int_equal(poisoned_tokens(&rig), 0x38);
	free_rig(&rig);
}

/* A hook may write anywhere, so nothing is known of what is written. */
static void with_hooks_every_box_is_poisoned(void **state)
{
	const struct cpa_exec_options options = { .poison = true,
		.hook = { .before = set_up } };
	struct rig rig = make_counting_rig();

	(void)state;
	add_copy(rig.schedules[0], 0, 6);
	ncopies = 1;
	rig.device->ops = &rig.ops;
	make_execs(&rig, &options);
	assert_int_equal(cpa_fake_run(rig.world, rig.execs, &error), CPA_OK);
	assert_int_equal(npoisoned, 2);
	assert_int_equal(poisoned_tokens(&rig), 0x3f);
	free_rig(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_strided_copy_fills_its_box_and_nothing_else),
		cmocka_unit_test(a_copy_of_nothing_is_the_identity_partial),
		cmocka_unit_test(a_merge_may_go_elsewhere),
		cmocka_unit_test(a_box_is_poison_again_before_it_is_written_again),
		cmocka_unit_test(what_a_message_wrote_is_poison_before_it_is_written_again),
		cmocka_unit_test(a_box_that_nobody_wrote_is_poisoned_once),
		cmocka_unit_test(with_hooks_every_box_is_poisoned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
