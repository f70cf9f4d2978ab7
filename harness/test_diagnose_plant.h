/*
 * test_diagnose_plant.h - faults done to the memory of running ranks, around their operations:
 * without a thought of what comes out.  Include after test_diagnose_bench.h.
 */
#ifndef CPA_TEST_DIAGNOSE_PLANT_H
#define CPA_TEST_DIAGNOSE_PLANT_H

#include "harness/test_diagnose_bench.h"

/* Around ATTEND and MERGE of one rank, or of all (-1). */
static struct plant {
	void (*before)(struct cpa_exec *exec, const struct cpa_op *op, int rank);
	void (*after)(struct cpa_exec *exec, const struct cpa_op *op, int rank);
	int rank, hop, from;
	int64_t boundary;
	bool k, v, head;
	double number;
	enum cpa_dtype low;
	/* What stood in k and v, and the lse, of each hop of each rank. */
	double *seen[8][8][3];
	double *restore[2];
	struct cpa_device *device;
	int ranks[8];
} plant;

static double *take_box(struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_buffer *buffer = &cpa_exec_schedule(exec)->buffers[box->buffer];
	struct cpa_strides s = cpa_box_strides(buffer, box);
	size_t nbytes = (size_t)cpa_buffer_nbytes(buffer);
	char *bytes = malloc(nbytes);
	double *x = malloc((size_t)cpa_box_nelements(buffer, box) * sizeof *x + 8);
	struct cpa_error error;
	int64_t n = 0;

	assert_true(bytes && x);
	assert_int_equal(plant.device->ops->download(plant.device, bytes,
				 cpa_exec_memory(exec, box->buffer), nbytes, &error),
		CPA_OK);
	for (int64_t i = 0; i < box->ntokens; i++)
		for (int64_t b = 0; b < box->nbatches; b++)
			for (int64_t h = 0; h < box->nheads; h++)
				for (int64_t d = 0; d < buffer->dim; d++)
					x[n++] = cpa_load(buffer->dtype, bytes,
						s.first + i * s.token + b * s.batch + h * s.head +
							d);
	free(bytes);
	return x;
}

/* Frees x. */
static void put_box(struct cpa_exec *exec, const struct cpa_box *box, double *x)
{
	const struct cpa_buffer *buffer = &cpa_exec_schedule(exec)->buffers[box->buffer];
	struct cpa_strides s = cpa_box_strides(buffer, box);
	size_t nbytes = (size_t)cpa_buffer_nbytes(buffer);
	char *bytes = malloc(nbytes);
	struct cpa_error error;
	int64_t n = 0;

	assert_non_null(bytes);
	assert_int_equal(plant.device->ops->download(plant.device, bytes,
				 cpa_exec_memory(exec, box->buffer), nbytes, &error),
		CPA_OK);
	for (int64_t i = 0; i < box->ntokens; i++)
		for (int64_t b = 0; b < box->nbatches; b++)
			for (int64_t h = 0; h < box->nheads; h++)
				for (int64_t d = 0; d < buffer->dim; d++)
					cpa_store(buffer->dtype, bytes,
						s.first + i * s.token + b * s.batch + h * s.head +
							d,
						x[n++]);
	assert_int_equal(plant.device->ops->upload(plant.device,
				 cpa_exec_memory(exec, box->buffer), bytes, nbytes, &error),
		CPA_OK);
	free(bytes);
	free(x);
}

static int64_t width(struct cpa_exec *exec, const struct cpa_box *box)
{
	const struct cpa_buffer *buffer = &cpa_exec_schedule(exec)->buffers[box->buffer];

	return box->nbatches * box->nheads * buffer->dim;
}

static int64_t nelements(struct cpa_exec *exec, const struct cpa_box *box)
{
	return box->ntokens * width(exec, box);
}

/* Each element of a box. */
static void change_box(struct cpa_exec *exec, const struct cpa_box *box, double (*f)(double))
{
	double *x = take_box(exec, box);

	for (int64_t i = 0; i < nelements(exec, box); i++)
		x[i] = f(x[i]);
	put_box(exec, box, x);
}

static double times_number(double x)
{
	return x * plant.number;
}

static double plus_number(double x)
{
	return x + plant.number;
}

static double number(double x)
{
	(void)x;
	return plant.number;
}

static double finite(double x)
{
	return x == -INFINITY ? plant.number : x;
}

static double low(double x)
{
	double bits[1];

	cpa_store(plant.low, bits, 0, x);
	return cpa_load(plant.low, bits, 0);
}

/* ---- merging ---- */

static bool attends(const struct cpa_op *op)
{
	return op->kind == CPA_OP_ATTEND;
}

static void scale_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (attends(op) && (plant.hop < 0 || op->hop == plant.hop))
		change_box(exec, &op->writes[1].box, times_number);
}

static void shift_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (attends(op) && op->hop == plant.hop)
		change_box(exec, &op->writes[1].box, plus_number);
}

static void finite_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (attends(op))
		change_box(exec, &op->writes[1].box, finite);
}

static void low_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (attends(op))
		change_box(exec, &op->writes[1].box, low);
}

static void low_sum(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (op->kind == CPA_OP_MERGE || (attends(op) && op->hop <= 0))
		change_box(exec, &op->writes[0].box, low);
}

static void low_output(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (attends(op))
		change_box(exec, &op->writes[0].box, low);
}

/* What was there before counts nothing. */
static void overwrite(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	if (op->kind == CPA_OP_MERGE && op->nreads == 4) {
		plant.number = -INFINITY;
		change_box(exec, &op->reads[1].box, number);
	}
}

/* All partials weigh the same. */
static void same_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	plant.number = 0.0;
	if (attends(op))
		change_box(exec, &op->writes[1].box, number);
}

/* Written [S, H], read as [H, S], in each batch item. */
static void misread_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	const struct cpa_box *box;
	int64_t n, B, H;
	double *x, *y;

	(void)rank;
	if (!attends(op))
		return;
	box = &op->writes[1].box;
	n = box->ntokens;
	B = box->nbatches;
	H = box->nheads;
	x = take_box(exec, box);
	y = take_box(exec, box);
	for (int64_t i = 0; i < n; i++)
		for (int64_t b = 0; b < B; b++)
			for (int64_t h = 0; h < H; h++) {
				int64_t at = h * n + i;

				y[(i * B + b) * H + h] = x[(at / H * B + b) * H + at % H];
			}
	free(x);
	put_box(exec, box, y);
}

/* Padded rows of 8 tokens in [H, S], read as packed ones. */
static void padded_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	const struct cpa_box *box;
	int64_t n, B, H, stride;
	double *x, *y;

	(void)rank;
	if (!attends(op))
		return;
	box = &op->writes[1].box;
	n = box->ntokens;
	B = box->nbatches;
	H = box->nheads;
	stride = (n + 7) / 8 * 8;
	x = take_box(exec, box);
	y = take_box(exec, box);
	for (int64_t i = 0; i < n; i++)
		for (int64_t b = 0; b < B; b++)
			for (int64_t h = 0; h < H; h++) {
				int64_t at = h * n + i;

				y[(i * B + b) * H + h] = at % stride < n
					? x[(at % stride * B + b) * H + at / stride]
					: 0.0;
			}
	free(x);
	put_box(exec, box, y);
}

/* A further key of score `number` and value 0. */
static void sink_in_block(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	double *o, *lse;
	int64_t n, dim;

	(void)rank;
	if (!attends(op))
		return;
	o = take_box(exec, &op->writes[0].box);
	lse = take_box(exec, &op->writes[1].box);
	n = nelements(exec, &op->writes[1].box);
	dim = nelements(exec, &op->writes[0].box) / n;
	for (int64_t i = 0; i < n; i++) {
		double more = log(exp(lse[i]) + exp(plant.number));

		for (int64_t d = 0; d < dim; d++)
			o[i * dim + d] *= exp(lse[i] - more);
		lse[i] = more;
	}
	put_box(exec, &op->writes[0].box, o);
	put_box(exec, &op->writes[1].box, lse);
}

/* ---- buffers ---- */

static void forget(void)
{
	for (int i = 0; i < 8 * 8 * 3; i++) {
		free(plant.seen[i / 24][i / 3 % 8][i % 3]);
		plant.seen[i / 24][i / 3 % 8][i % 3] = NULL;
	}
}

static void keep(int rank, int hop, int which, double *x)
{
	free(plant.seen[rank][hop][which]);
	plant.seen[rank][hop][which] = x;
}

/* At the hop, tokens from the boundary on (or before it) are those of another hop. */
static void stale(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	if (!attends(op) || op->hop < 0)
		return;
	for (int i = 0; i < 2; i++) {
		const struct cpa_box *box = &op->reads[1 + i].box;
		int64_t w = width(exec, box);
		double *x, *old;

		keep(rank, op->hop, i, take_box(exec, box));
		old = plant.seen[rank][plant.hop < 0 ? op->hop - (op->hop > 0) : plant.from][i];
		if ((plant.hop >= 0 && op->hop != plant.hop) || !(i ? plant.v : plant.k))
			continue;
		assert_non_null(old);
		x = take_box(exec, box);
		plant.restore[i] = take_box(exec, box);
		for (int64_t t = 0; t < box->ntokens; t++)
			if (plant.head ? t < plant.boundary : t >= plant.boundary)
				memcpy(x + t * w, old + t * w, (size_t)w * sizeof *x);
		put_box(exec, box, x);
	}
}

static void fresh(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	(void)rank;
	for (int i = 0; i < 2 && attends(op); i++) {
		if (plant.restore[i])
			put_box(exec, &op->reads[1 + i].box, plant.restore[i]);
		plant.restore[i] = NULL;
	}
}

static void late_lse(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	const struct cpa_box *box;
	double *x;

	if (!attends(op) || op->hop < 0)
		return;
	box = &op->writes[1].box;
	keep(rank, op->hop, 2, take_box(exec, box));
	if (op->hop == 0 || (plant.hop >= 0 && op->hop != plant.hop))
		return;
	x = take_box(exec, box);
	memcpy(x, plant.seen[rank][op->hop - 1][2], (size_t)nelements(exec, box) * sizeof *x);
	put_box(exec, box, x);
}

/* ---- the hook ---- */

static bool plant_before(void *context, struct cpa_exec *exec, int op)
{
	int rank = *(int *)context;

	if (plant.before && (plant.rank < 0 || rank == plant.rank))
		plant.before(exec, &cpa_exec_schedule(exec)->ops[op], rank);
	return true;
}

static void plant_after(void *context, struct cpa_exec *exec, int op)
{
	int rank = *(int *)context;

	if (plant.after && (plant.rank < 0 || rank == plant.rank))
		plant.after(exec, &cpa_exec_schedule(exec)->ops[op], rank);
}

static struct cpa_exec_hook plant_hook(void *context, int rank)
{
	(void)context;
	plant.ranks[rank] = rank;
	return (struct cpa_exec_hook){plant_before, plant_after, &plant.ranks[rank]};
}

#endif
