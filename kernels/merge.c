/*
 * merge.c - two partials into one, row by row.
 *
 * m = max; weights exp(lse - m) over their sum; lse = m + log of the sum.  A partial with lse =
 * -inf leaves the other as it is, bit for bit where no dtype changes.  A sink is a partial of
 * o = 0.  In fp32, or in fp64 when a is fp64.
 *
 * Rows are taken in groups whose weights are computed at once.  Compiled without contraction:
 * with it merge(a, b) and merge(b, a) differ in a third of the cases.
 */
#include "kernels/host.h"
#include "kernels/move.h"

#include <math.h>
#include <string.h>

enum { NAXES = 3, CHUNK = 256, ROWS = CPA_MOVE_ROWS };

/* n rows; steps in elements of the four arrays. */
struct axis {
	int64_t n, o_a, lse_a, o_b, lse_b;
};

/* A merge in normal form, axes innermost first.  A sink has become an lse_b that does not
 * depend on token and batch; its o_b has no data. */
struct job {
	struct cpa_array o_a, lse_a, o_b, lse_b;
	struct axis axis[NAXES];
	int64_t dim, ngroups; /* groups along axis 0 */
	bool wide;            /* in fp64 */
	const struct cpa_move_kernels *move;
};

/* One number a row: of the two types, the one of the arithmetic. */
union numbers {
	float narrow[ROWS];
	double wide[ROWS];
};

/* Up to ROWS rows along axis 0. */
struct group {
	const struct job *job;
	int64_t o_a, lse_a, o_b, lse_b; /* elements of the first row */
	int n;
	union numbers la, lb, lse, wa, wb;
};

static bool joins(const struct axis *in, const struct axis *out)
{
	return out->o_a == in->n * in->o_a && out->lse_a == in->n * in->lse_a &&
		out->o_b == in->n * in->o_b && out->lse_b == in->n * in->lse_b;
}

/* By steps of o_a, those of one row outermost; then what lies without gaps becomes one axis. */
static void join_axes(struct axis *axis)
{
	for (int i = 1; i < NAXES; i++)
		for (int j = i; j > 0 && axis[j].n > 1 &&
			(axis[j - 1].n == 1 || axis[j].o_a < axis[j - 1].o_a);
			j--) {
			struct axis swap = axis[j];

			axis[j] = axis[j - 1];
			axis[j - 1] = swap;
		}
	for (int i = NAXES - 2; i >= 0; i--) {
		if (axis[i + 1].n == 1 || !joins(&axis[i], &axis[i + 1]))
			continue;
		axis[i].n *= axis[i + 1].n;
		for (int j = i + 1; j + 1 < NAXES; j++)
			axis[j] = axis[j + 1];
		axis[NAXES - 1] = (struct axis){1, 0, 0, 0, 0};
	}
}

static void load(const struct group *group, const struct cpa_array *from, int64_t at,
	int64_t step, union numbers *to)
{
	const float *floats = (const float *)from->data + at;

	if (group->job->wide)
		for (int i = 0; i < group->n; i++)
			to->wide[i] = cpa_load(from->dtype, from->data, at + i * step);
	else if (from->dtype != CPA_DTYPE_FP32)
		for (int i = 0; i < group->n; i++)
			to->narrow[i] = (float)cpa_load(from->dtype, from->data, at + i * step);
	else if (step == 1)
		memcpy(to->narrow, floats, (size_t)group->n * sizeof *floats);
	else
		for (int i = 0; i < group->n; i++)
			to->narrow[i] = floats[i * step];
	/* Up to a whole vector, which is computed with. */
	for (int i = group->n; !group->job->wide && i % 16; i++)
		to->narrow[i] = 0;
}

static double number(const struct group *group, const union numbers *numbers, int i)
{
	return group->job->wide ? numbers->wide[i] : (double)numbers->narrow[i];
}

static void store_lse(const struct group *group, int i, double lse)
{
	const struct cpa_array *to = &group->job->lse_a;

	cpa_store(to->dtype, to->data, group->lse_a + i * group->job->axis[0].lse_a, lse);
}

static void store_all_lse(const struct group *group)
{
	const struct cpa_array *to = &group->job->lse_a;

	if (to->dtype == CPA_DTYPE_FP32 && !group->job->wide && group->job->axis[0].lse_a == 1)
		memcpy((float *)to->data + group->lse_a, group->lse.narrow,
			(size_t)group->n * sizeof(float));
	else
		for (int i = 0; i < group->n; i++)
			store_lse(group, i, number(group, &group->lse, i));
}

/* Symmetric in a and b: the larger weight is exp(0) over the sum. */
static void weigh_double(struct group *group)
{
	for (int i = 0; i < group->n; i++) {
		double a = group->la.wide[i], b = group->lb.wide[i], m = a > b ? a : b;
		double wa = exp(a - m), wb = exp(b - m), sum = wa + wb;

		group->wa.wide[i] = wa / sum;
		group->wb.wide[i] = wb / sum;
		group->lse.wide[i] = m + log(sum);
	}
}

static void sum(const struct group *group, struct cpa_move_sum *rows, int i)
{
	if (group->job->wide)
		group->job->move->sum_double(rows, group->wa.wide + i, group->wb.wide + i);
	else
		group->job->move->sum_float(rows, group->wa.narrow + i, group->wb.narrow + i);
}

/* Where a dtype is not that of the arithmetic, through a piece of it. */
static void sum_row(const struct group *group, char *a, const char *b, int i)
{
	const struct job *job = group->job;
	enum cpa_dtype dtype = job->wide ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
	enum cpa_dtype from_a = job->o_a.dtype, from_b = b ? job->o_b.dtype : dtype;
	size_t size_a = cpa_dtype_nbytes(from_a), size_b = cpa_dtype_nbytes(from_b);
	double space_a[CHUNK], space_b[CHUNK];

	for (int64_t d = 0; d < job->dim; d += CHUNK) {
		int64_t n = job->dim - d < CHUNK ? job->dim - d : CHUNK;
		char *at_a = a + (size_t)d * size_a;
		struct cpa_move_sum rows = {at_a, b ? b + (size_t)d * size_b : NULL, 0, 0, 1, n};

		if (from_b != dtype) {
			job->move->convert[dtype][from_b](space_b, rows.o_b, n);
			rows.o_b = space_b;
		}
		if (from_a == dtype) {
			sum(group, &rows, i);
			continue;
		}
		job->move->convert[dtype][from_a](space_a, at_a, n);
		rows.o = space_a;
		sum(group, &rows, i);
		job->move->convert[from_a][dtype](at_a, space_a, n);
	}
}

/* Rows i .. end of the group, both of whose partials have keys. */
static void sum_rows(const struct group *group, int i, int end)
{
	const struct job *job = group->job;
	enum cpa_dtype dtype = job->wide ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32;
	int64_t step = job->axis[0].o_a, step_b = job->axis[0].o_b;
	bool sink = !job->o_b.data;
	char *a = cpa_element(&job->o_a, group->o_a + i * step);
	const char *b = sink ? NULL : cpa_element(&job->o_b, group->o_b + i * step_b);
	struct cpa_move_sum rows = {a, b, step, step_b, end - i, job->dim};

	if (job->o_a.dtype == dtype && (sink || job->o_b.dtype == dtype)) {
		sum(group, &rows, i);
		return;
	}
	for (; i < end; i++) {
		sum_row(group, a, b, i);
		a += step * (int64_t)cpa_dtype_nbytes(job->o_a.dtype);
		b = sink ? NULL : b + step_b * (int64_t)cpa_dtype_nbytes(job->o_b.dtype);
	}
}

/* Row i of a has no keys: it becomes b's. */
static void take_row(const struct group *group, int i)
{
	const struct job *job = group->job;
	char *a = cpa_element(&job->o_a, group->o_a + i * job->axis[0].o_a);

	if (job->o_b.data)
		cpa_run_convert(job->o_a.dtype, a, job->o_b.dtype,
			cpa_element(&job->o_b, group->o_b + i * job->axis[0].o_b), job->dim);
	else
		memset(a, 0, (size_t)job->dim * cpa_dtype_nbytes(job->o_a.dtype));
	store_lse(group, i, number(group, &group->lb, i));
}

/* Some partials have no keys. */
static void merge_mixed(const struct group *group)
{
	for (int i = 0; i < group->n;) {
		int end = i;

		while (end < group->n && number(group, &group->la, end) != -INFINITY &&
			number(group, &group->lb, end) != -INFINITY) {
			store_lse(group, end, number(group, &group->lse, end));
			end++;
		}
		if (end > i)
			sum_rows(group, i, end);
		for (i = end; i < group->n; i++) {
			bool none_a = number(group, &group->la, i) == -INFINITY;

			if (number(group, &group->lb, i) == -INFINITY)
				continue;
			if (!none_a)
				break;
			take_row(group, i);
		}
	}
}

static bool has_empty(const struct group *group)
{
	bool empty = false;

	if (group->job->wide)
		for (int i = 0; i < group->n; i++)
			empty |= group->la.wide[i] == -INFINITY || group->lb.wide[i] == -INFINITY;
	else
		for (int i = 0; i < group->n; i++)
			empty |= (group->la.narrow[i] == -INFINITY) |
				(group->lb.narrow[i] == -INFINITY);
	return empty;
}

/* All in fp32.  False where some partial has no keys. */
static bool merge_floats(struct group *group)
{
	const struct job *job = group->job;
	const struct axis *axis = &job->axis[0];
	struct cpa_move_sum rows = {cpa_element(&job->o_a, group->o_a),
		cpa_element(&job->o_b, group->o_b), axis->o_a, axis->o_b, group->n, job->dim};
	float *lse = cpa_element(&job->lse_a, group->lse_a);

	/* Whole vectors are read. */
	if (group->n % 16 == 0 && axis->lse_a == 1 && axis->lse_b == 1 &&
		job->lse_a.dtype == CPA_DTYPE_FP32 && job->lse_b.dtype == CPA_DTYPE_FP32)
		return job->move->merge(
			&rows, lse, cpa_element(&job->lse_b, group->lse_b), lse);
	load(group, &job->lse_a, group->lse_a, axis->lse_a, &group->la);
	load(group, &job->lse_b, group->lse_b, axis->lse_b, &group->lb);
	if (!job->move->merge(
		    &rows, group->la.narrow, group->lb.narrow, group->lse.narrow))
		return false;
	store_all_lse(group);
	return true;
}

static void merge_group(const struct job *job, int64_t unit)
{
	const struct axis *axis = job->axis;
	int64_t t = unit % job->ngroups * ROWS, i = unit / job->ngroups % axis[1].n,
		j = unit / job->ngroups / axis[1].n;
	bool fast = !job->wide && job->o_a.dtype == CPA_DTYPE_FP32 && job->o_b.data &&
		job->o_b.dtype == CPA_DTYPE_FP32;
	struct group group;

	group.job = job;
	group.o_a = t * axis[0].o_a + i * axis[1].o_a + j * axis[2].o_a;
	group.lse_a = t * axis[0].lse_a + i * axis[1].lse_a + j * axis[2].lse_a;
	group.o_b = t * axis[0].o_b + i * axis[1].o_b + j * axis[2].o_b;
	group.lse_b = t * axis[0].lse_b + i * axis[1].lse_b + j * axis[2].lse_b;
	group.n = (int)(axis[0].n - t < ROWS ? axis[0].n - t : ROWS);
	if (fast && merge_floats(&group))
		return;
	load(&group, &job->lse_a, group.lse_a, axis[0].lse_a, &group.la);
	load(&group, &job->lse_b, group.lse_b, axis[0].lse_b, &group.lb);
	if (job->wide)
		weigh_double(&group);
	else
		job->move->weigh(group.la.narrow, group.lb.narrow, group.lse.narrow,
			group.wa.narrow, group.wb.narrow, group.n);
	if (has_empty(&group)) {
		merge_mixed(&group);
		return;
	}
	sum_rows(&group, 0, group.n);
	store_all_lse(&group);
}

enum cpa_status cpa_host_merge(struct cpa_device *device, int queue,
	const struct cpa_merge *merge, struct cpa_error *error)
{
	const struct cpa_array *a = &merge->o_a, *la = &merge->lse_a;
	struct job job = {.o_a = *a,
		.lse_a = *la,
		.o_b = merge->o_b,
		.lse_b = merge->lse_b,
		.dim = merge->dim,
		.wide = a->dtype == CPA_DTYPE_FP64 || la->dtype == CPA_DTYPE_FP64,
		.move = cpa_move()};
	int64_t nrows = merge->ntokens * merge->nbatches * merge->nheads, nunits;

	(void)device;
	(void)queue;
	(void)error;
	if (nrows == 0)
		return CPA_OK;
	if (merge->sink) {
		/* Only read, through a pointer that arrays of targets have too. */
		job.lse_b = (struct cpa_array){
			(void *)(uintptr_t)merge->sink, CPA_DTYPE_FP64, 0, 0, 1};
		job.o_b = (struct cpa_array){NULL, a->dtype, 0, 0, 0};
	}
	job.axis[0] = (struct axis){
		merge->nheads, a->head, la->head, job.o_b.head, job.lse_b.head};
	job.axis[1] = (struct axis){
		merge->nbatches, a->batch, la->batch, job.o_b.batch, job.lse_b.batch};
	job.axis[2] = (struct axis){
		merge->ntokens, a->token, la->token, job.o_b.token, job.lse_b.token};
	join_axes(job.axis);
	job.ngroups = (job.axis[0].n + ROWS - 1) / ROWS;
	nunits = job.ngroups * job.axis[1].n * job.axis[2].n;
	/* Even for one thread, entering a parallel region costs as much as a few rows. */
	if (12 * nrows * merge->dim < CPA_MOVE_PARALLEL_FROM) {
		for (int64_t unit = 0; unit < nunits; unit++)
			merge_group(&job, unit);
		return CPA_OK;
	}
	CPA_OMP(omp parallel for schedule(static))
	for (int64_t unit = 0; unit < nunits; unit++)
		merge_group(&job, unit);
	return CPA_OK;
}
