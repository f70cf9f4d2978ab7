/*
 * test_schedule.c - boxes and the builder's inference, against brute force over elements and
 * pairs.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* ---- boxes ---- */

/* Offset of an element, by the layout's definition. */
static int64_t offset(const struct cpa_buffer *b, int64_t t, int64_t n, int64_t h)
{
	if (b->layout == CPA_LAYOUT_SBHD)
		return (t * b->nbatches + n) * b->nheads + h;
	if (b->layout == CPA_LAYOUT_BHSD)
		return (n * b->nheads + h) * b->ntokens + t;
	return (n * b->ntokens + t) * b->nheads + h;
}

/* Walked in the order of the wire (tokens, batches, heads), addresses are consecutive. */
static bool walks_one_run(const struct cpa_buffer *b, const struct cpa_box *x)
{
	int64_t expected = offset(b, x->token, x->batch, x->head);
	for (int64_t t = 0; t < x->ntokens; t++)
		for (int64_t n = 0; n < x->nbatches; n++)
			for (int64_t h = 0; h < x->nheads; h++)
				if (offset(b, x->token + t * x->step, x->batch + n,
					    x->head + h) != expected++)
					return false;
	return true;
}

/* A whole [B, S, H, D] input of two batch items is one run, but batch by batch: not a message
 * box. */
static void a_box_is_a_run_exactly_when_its_elements_are_consecutive_on_the_wire(void **unused)
{
	(void)unused;
	uint64_t state = 5;
	int runs[4] = {0};
	for (int i = 0; i < 200000; i++) {
		struct cpa_buffer b = {.layout = (enum cpa_layout)below(&state, 4),
			.ntokens = 1 + below(&state, 4),
			.nbatches = 1 + below(&state, 3),
			.nheads = 1 + below(&state, 3),
			.dim = 2};
		struct cpa_box x = {.token = below(&state, (int)b.ntokens),
			.step = 1 + below(&state, 2),
			.batch = below(&state, (int)b.nbatches),
			.head = below(&state, (int)b.nheads)};
		x.ntokens = 1 + below(&state, (int)((b.ntokens - x.token - 1) / x.step + 1));
		x.nbatches = 1 + below(&state, (int)(b.nbatches - x.batch));
		x.nheads = 1 + below(&state, (int)(b.nheads - x.head));
		bool run = cpa_box_is_run(&b, &x);
		assert_int_equal(run, walks_one_run(&b, &x));
		runs[b.layout] += run;
	}
	for (int layout = 0; layout < 4; layout++)
		assert_true(runs[layout] > 1000);
}

static void strides_lead_from_element_to_element_in_every_layout(void **unused)
{
	(void)unused;
	for (int layout = 0; layout < 4; layout++) {
		struct cpa_buffer b = {.layout = (enum cpa_layout)layout,
			.ntokens = 7,
			.nbatches = 3,
			.nheads = 5,
			.dim = 2};
		struct cpa_box x = {.token = 1,
			.ntokens = 3,
			.step = 2,
			.batch = 1,
			.nbatches = 2,
			.head = 2,
			.nheads = 3};
		struct cpa_strides s = cpa_box_strides(&b, &x);
		for (int64_t t = 0; t < x.ntokens; t++)
			for (int64_t n = 0; n < x.nbatches; n++)
				for (int64_t h = 0; h < x.nheads; h++)
					assert_int_equal(
						s.first + t * s.token + n * s.batch + h * s.head,
						2 * offset(&b, 1 + 2 * t, 1 + n, 2 + h));
	}
}

static void bytes_of_buffers_and_elements_of_boxes(void **unused)
{
	(void)unused;
	struct cpa_buffer b = {
		.dtype = CPA_DTYPE_BF16, .ntokens = 3, .nbatches = 5, .nheads = 7, .dim = 11};
	assert_int_equal(cpa_buffer_nbytes(&b), 3 * 5 * 7 * 11 * 2);
	struct cpa_box x = {.ntokens = 2, .step = 1, .nbatches = 3, .nheads = 4};
	assert_int_equal(cpa_box_nelements(&b, &x), 2 * 3 * 4 * 11);
	b.ntokens = (int64_t)1 << 40; /* offsets of more than 32 bits */
	assert_int_equal(cpa_buffer_nbytes(&b), ((int64_t)1 << 40) * 5 * 7 * 11 * 2);
}

/* ---- the builder ---- */

enum { NTOKENS = 12, NBATCHES = 3, NHEADS = 3 };

static struct cpa_operand some_box(uint64_t *state, int buffer)
{
	struct cpa_operand x = {.box = {.buffer = buffer,
					.token = below(state, NTOKENS),
					.step = 1,
					.nbatches = NBATCHES,
					.nheads = NHEADS}};
	if (below(state, 4) == 0)
		x.box.step = 2;
	x.box.ntokens = 1 + below(state, (int)((NTOKENS - x.box.token - 1) / x.box.step + 1));
	if (below(state, 3) == 0) { /* all, so that a write may end the search for earlier ones */
		x.box.token = 0;
		x.box.step = 1;
		x.box.ntokens = NTOKENS;
	}
	if (x.box.ntokens == 1)
		x.box.step = 1;
	if (below(state, 10) == 0)
		x.box.ntokens =
			0; /* of a member of a collective that has none; touches nothing */
	if (below(state, 2)) {
		x.box.batch = below(state, NBATCHES);
		x.box.nbatches = 1 + below(state, (int)(NBATCHES - x.box.batch));
		x.box.head = below(state, NHEADS);
		x.box.nheads = 1 + below(state, (int)(NHEADS - x.box.head));
	}
	return x;
}

/* A program of random copies, sends and receives on three queues over three buffers. */
static struct cpa_schedule *random_program(uint64_t *state, int nsteps)
{
	struct cpa_schedule *s = cpa_schedule_create(0, 4);
	assert_non_null(s);
	for (int i = 0; i < 3; i++)
		cpa_schedule_buffer(s,
			&(struct cpa_buffer){.role = CPA_ROLE_WORK,
				.dtype = CPA_DTYPE_FP32,
				.ntokens = NTOKENS,
				.nbatches = NBATCHES,
				.nheads = NHEADS,
				.dim = 1});
	for (int i = 0; i < nsteps; i++) {
		struct cpa_operand a = some_box(state, below(state, 3)),
				   b = some_box(state, below(state, 3));
		int kind = below(state, 3);
		if (kind > 0)
			cpa_schedule_begin(s, kind);
		if (kind == 0)
			cpa_schedule_add(s,
				&(struct cpa_op){.kind = CPA_OP_COPY,
					.peer = -1,
					.nreads = 1,
					.reads = &a,
					.nwrites = 1,
					.writes = &b});
		for (int n = kind > 0 ? 1 + below(state, 2) : 0; n > 0; n--) {
			bool send = below(state, 2);
			cpa_schedule_add(s,
				&(struct cpa_op){.kind = send ? CPA_OP_SEND : CPA_OP_RECV,
					.peer = 1,
					.nreads = send,
					.reads = &a,
					.nwrites = !send,
					.writes = &b});
		}
		if (kind > 0)
			cpa_schedule_end(s);
	}
	struct cpa_error error;
	assert_int_equal(cpa_schedule_finish(s, &error), CPA_OK);
	return s;
}

static bool share(int64_t a, int64_t na, int64_t b, int64_t nb)
{
	for (int64_t i = 0; i < na; i++)
		for (int64_t j = 0; j < nb; j++)
			if (a + i == b + j)
				return true;
	return false;
}

static bool share_an_element(const struct cpa_box *a, const struct cpa_box *b)
{
	if (a->buffer != b->buffer || !share(a->batch, a->nbatches, b->batch, b->nbatches) ||
		!share(a->head, a->nheads, b->head, b->nheads))
		return false;
	for (int64_t i = 0; i < a->ntokens; i++)
		for (int64_t j = 0; j < b->ntokens; j++)
			if (a->token + i * a->step == b->token + j * b->step)
				return true;
	return false;
}

static bool ops_conflict(const struct cpa_op *x, const struct cpa_op *y)
{
	for (int i = 0; i < x->nwrites; i++) {
		for (int j = 0; j < y->nwrites; j++)
			if (share_an_element(&x->writes[i].box, &y->writes[j].box))
				return true;
		for (int j = 0; j < y->nreads; j++)
			if (share_an_element(&x->writes[i].box, &y->reads[j].box))
				return true;
	}
	for (int i = 0; i < x->nreads; i++)
		for (int j = 0; j < y->nwrites; j++)
			if (share_an_element(&x->reads[i].box, &y->writes[j].box))
				return true;
	return false;
}

static bool steps_conflict(const struct cpa_schedule *s, int a, int b)
{
	for (int i = 0; i < s->steps[a].nops; i++)
		for (int j = 0; j < s->steps[b].nops; j++)
			if (ops_conflict(&s->ops[s->steps[a].first + i],
				    &s->ops[s->steps[b].first + j]))
				return true;
	return false;
}

/* before[a][b]: a has surely ended when b starts, by queue order and waits, transitively. */
static void close_order(const struct cpa_schedule *s, bool before[64][64])
{
	memset(before, 0, 64 * sizeof before[0]);
	for (int b = 0; b < s->nsteps; b++)
		for (int a = b - 1; a >= 0; a--) {
			bool direct = s->steps[a].queue == s->steps[b].queue;
			for (int q = 0; q < CPA_NQUEUES; q++)
				direct = direct || s->steps[b].waits[q] == a;
			for (int m = a; direct && m >= 0; m--)
				before[m][b] = before[m][b] || m == a || before[m][a];
		}
}

static void conflicting_steps_are_ordered_and_no_wait_is_idle(void **unused)
{
	(void)unused;
	int nwaits = 0;
	for (uint64_t seed = 0; seed < 3000; seed++) {
		uint64_t state = seed;
		struct cpa_schedule *s = random_program(&state, 1 + below(&state, 24));
		bool before[64][64];
		close_order(s, before);
		for (int b = 0; b < s->nsteps; b++)
			for (int a = 0; a < b; a++)
				if (steps_conflict(s, a, b) && !before[a][b])
					fail_msg("seed %d: step %d does not wait for %d",
						(int)seed, b, a);
		for (int b = 0; b < s->nsteps; b++)
			for (int q = 0; q < CPA_NQUEUES; q++) {
				int wait = s->steps[b].waits[q];
				nwaits += wait >= 0;
				assert_true(wait < b);
				assert_true(wait < 0 || s->steps[wait].queue == q);
				assert_true(wait < 0 || q != s->steps[b].queue);
				/* a wait is for a step that this one conflicts with */
				assert_true(wait < 0 || steps_conflict(s, wait, b));
			}
		cpa_schedule_destroy(s);
	}
	assert_true(nwaits > 3000);
}

static void an_empty_group_leaves_no_step(void **unused)
{
	(void)unused;
	struct cpa_schedule *s = cpa_schedule_create(0, 2);
	struct cpa_error error;
	cpa_schedule_begin(s, CPA_QUEUE_COMM);
	cpa_schedule_end(s);
	assert_int_equal(cpa_schedule_finish(s, &error), CPA_OK);
	assert_int_equal(s->nsteps, 0);
	cpa_schedule_destroy(s);
	cpa_schedule_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_box_is_a_run_exactly_when_its_elements_are_consecutive_on_the_wire),
		cmocka_unit_test(strides_lead_from_element_to_element_in_every_layout),
		cmocka_unit_test(bytes_of_buffers_and_elements_of_boxes),
		cmocka_unit_test(conflicting_steps_are_ordered_and_no_wait_is_idle),
		cmocka_unit_test(an_empty_group_leaves_no_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
