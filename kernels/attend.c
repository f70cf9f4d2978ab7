/*
 * attend.c - ATTEND on the cpu device: a call is cut into units, and threads share the units.
 *
 * How it is cut depends on the shapes alone, and units share nothing, so results do not depend on
 * the number of threads.  The arithmetic is in attend_template.h.
 */
#include "kernels/attend_unit.h"
#include "kernels/cpu.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum {
	ENOUGH_UNITS = 16, /* for the threads of any machine that this is meant for */
	STREAM_FROM = 1 << 20, /* bytes of o */
	BAD_STRIDE = 4096 /* bytes; rows so far apart fall into one set of the first cache */
};

/* A call as it was cut. */
struct plan {
	struct cpa_attend_call call;
	const struct cpa_attend_type *type;
	struct cpa_attend_unit *units;
	int64_t nunits;
	int nrows; /* of a unit at most */
	int nsplits; /* of each unit */
	size_t space_nbytes, states_nbytes; /* of one thread, of all units */
	char *space, *states; /* states NULL: keys are not cut */
};

/*
 * Additions of a row: a block of keys, then per block the product that shrinks the older sum,
 * its addition and the error of the exp in that factor; 2 + CPA_CPU_EXP_ERROR, and 1 for
 * rounding the difference of the maxima x, whose effect x exp(-x) is below that.  Joining the
 * parts of split keys is the same again in place of one of those, a factor on the newer sum
 * (CPA_CPU_EXP_ERROR + 2 more, over CPA_SPLIT_KEYS keys at least).  What a row sees may lie across
 * one block more than fills it: that product is in c_exp, of which exp needs 2.
 *
 * Kernels of tiles (attend_tiles.h) leave some units to that of fp32, so that both are within what
 * is declared.
 */
struct cpa_arithmetic cpa_cpu_arithmetic(const struct cpa_problem *problem)
{
	const struct cpa_attend_kernels *kernels = cpa_cpu_kernels()->attend;
	bool wide = problem->dtype == CPA_DTYPE_FP64;

	return (struct cpa_arithmetic){
		.u = wide ? 0x1p-53 : 0x1p-24,
		.c_exp = 8,
		.chain = CPA_KEY_BLOCK,
		.chain_key = kernels->type[problem->dtype]->chain_key +
			(2 + CPA_CPU_EXP_ERROR) / CPA_SPLIT_KEYS,
		.rounds_p = problem->dtype == CPA_DTYPE_BF16 || problem->dtype == CPA_DTYPE_FP16,
	};
}

/* ---- what a unit sees ---- */

static void close_up(const struct cpa_range *visible, int n, struct cpa_sight *sight)
{
	int order[CPA_UNIT_ROWS];
	int64_t before = 0; /* keys kept of earlier pieces */
	struct cpa_range *last = NULL;

	for (int i = 0; i < n; i++) {
		int at = i;

		for (; at > 0 && visible[order[at - 1]].start > visible[i].start; at--)
			order[at] = order[at - 1];
		order[at] = i;
	}
	sight->npieces = 0;
	for (int i = 0; i < n; i++) {
		struct cpa_range keys = visible[order[i]];

		if (keys.start >= keys.end) {
			sight->token[order[i]] = (struct cpa_range){INT64_MAX, 0};
			continue;
		}
		if (!last || keys.start > last->end) {
			before += last ? last->end - last->start : 0;
			last = &sight->piece[sight->npieces++];
			*last = keys;
		}
		last->end = keys.end > last->end ? keys.end : last->end;
		sight->token[order[i]].start = keys.start - last->start + before;
		sight->token[order[i]].end = keys.end - last->start + before;
	}
	sight->nkeys = last ? before + last->end - last->start : 0;
}

/* The tokens of a unit: those of its rows, or all where it goes from one head to the next. */
static struct cpa_range tokens_of(const struct cpa_attend_unit *unit)
{
	int64_t nq = unit->call->attend->nq, first = unit->token;

	if (first + unit->n > nq)
		return (struct cpa_range){0, nq};
	return (struct cpa_range){first, first + unit->n};
}

static bool are_alike(const struct cpa_range *visible, int n)
{
	int64_t differences = 0;

	for (int i = 1; i < n; i++)
		differences |= (visible[i].start ^ visible[0].start) |
			(visible[i].end ^ visible[0].end);
	return !differences;
}

void cpa_sight_find(const struct cpa_attend_unit *unit, struct cpa_sight *sight)
{
	struct cpa_range tokens = tokens_of(unit);
	const struct cpa_range *visible = unit->call->visible + unit->b * unit->call->attend->nq +
		tokens.start;
	int n = (int)(tokens.end - tokens.start);

	/* Mostly nothing is hidden, and there may be little else to do for each row. */
	if (!are_alike(visible, n)) {
		close_up(visible, n, sight);
		return;
	}
	close_up(visible, 1, sight);
	for (int i = 1; i < n; i++)
		sight->token[i] = sight->token[0];
}

/* Pairs of a row and a key that it may see, and a bit for each row. */
static double work_of(const struct cpa_attend_unit *unit)
{
	struct cpa_range tokens = tokens_of(unit);
	const struct cpa_range *row = unit->call->visible + unit->b * unit->call->attend->nq;
	double sum = 0, ntokens = (double)(tokens.end - tokens.start);

	for (int64_t t = tokens.start; t < tokens.end; t++)
		sum += row[t].end > row[t].start ? (double)(row[t].end - row[t].start) : 0;
	return (sum / ntokens + 32) * cpa_unit_nrows(unit);
}

/* Many units are the same tokens of other heads. */
static void find_work(struct cpa_attend_unit *units, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		struct cpa_attend_unit *unit = &units[i], *last = i ? unit - 1 : NULL;
		bool same = last && last->b == unit->b && last->token == unit->token &&
			last->n == unit->n;

		unit->work = same ? last->work : work_of(unit);
		unit->next = i + 1 < n ? unit + 1 : NULL;
	}
}

/* ---- cutting ---- */

/* The rows of each unit when `nrows` in all are cut evenly into units of at most `most`. */
static int rows_of_unit(int64_t nrows, int64_t most)
{
	int64_t n = (nrows + most - 1) / most, rows = (nrows + n - 1) / n;

	rows = (rows + 15) / 16 * 16;
	return (int)(rows < most ? rows : most);
}

/* Units of the heads [first, end) of the arrays, which share a key head, taken together or each
 * apart.  units NULL: only counts. */
static int64_t cut_group(const struct plan *plan, int64_t b, int64_t kv, int64_t first,
	int64_t end, bool together, int most, struct cpa_attend_unit *units)
{
	int64_t nq = plan->call.attend->nq, nheads = together ? end - first : 1, n = 0;

	for (int64_t h = first; h < end; h += nheads) {
		int64_t nrows = nq * nheads;
		int rows = rows_of_unit(nrows, most);

		for (int64_t i = 0; i < nrows; i += rows, n++)
			if (units)
				units[n] = (struct cpa_attend_unit){.call = &plan->call,
					.b = b,
					.kv = kv,
					.token = i % nq,
					.head = h + i / nq,
					.n = (int)(nrows - i < rows ? nrows - i : rows),
					.nkv = 1,
					.nsplits = 1};
	}
	return n;
}

/* Few tokens: the heads of a group lie side by side, as far as they share a key head. */
static int64_t cut_call(const struct plan *plan, int most, struct cpa_attend_unit *units)
{
	const struct cpa_attend *attend = plan->call.attend;
	int64_t g = attend->problem->Hq / attend->problem->Hkv, n = 0;
	int64_t nb = attend->batches.end - attend->batches.start;
	struct cpa_range kv = cpa_heads_kv(attend->heads, g);
	bool together = attend->nq < plan->type->lanes;

	for (int64_t b = 0; b < nb; b++)
		for (int64_t i = kv.start; i < kv.end; i++) {
			int64_t first = i * g, end = first + g;

			first = first < attend->heads.start ? attend->heads.start : first;
			end = end > attend->heads.end ? attend->heads.end : end;
			n += cut_group(plan, b, i - attend->kv_first, first - attend->heads.start,
				end - attend->heads.start, together, most,
				units ? units + n : NULL);
		}
	return n;
}

/* Smaller units where there would be few, so that threads get equal shares; not so small where
 * each unit widens the keys again. */
static int choose_rows(const struct plan *plan)
{
	int lanes = plan->type->lanes, most = CPA_UNIT_ROWS / lanes * lanes;
	bool widens = plan->call.attend->problem->dtype > CPA_DTYPE_FP32;

	while (most > lanes && cut_call(plan, most, NULL) < (widens ? 6 : ENOUGH_UNITS))
		most -= lanes;
	return most;
}

/* units NULL: only counts, and finds how many rows they have. */
static int64_t cut(struct plan *plan, struct cpa_attend_unit *units)
{
	if (plan->type->takes)
		return cpa_attend_cut_few(&plan->call, plan->type, units, &plan->nrows);
	if (!units)
		plan->nrows = choose_rows(plan);
	return cut_call(plan, plan->nrows, units);
}

/* Units too few to be shared: their keys are cut too. */
static int64_t split_keys(struct plan *plan)
{
	int64_t most = plan->call.attend->nk / CPA_SPLIT_KEYS;
	int64_t n = (ENOUGH_UNITS + plan->nunits - 1) / plan->nunits;

	n = n < most ? n : most;
	n = n < CPA_MAX_SPLITS ? n : CPA_MAX_SPLITS;
	if (plan->nunits >= ENOUGH_UNITS / 2 || n < 2)
		return 0;
	plan->nsplits = (int)n;
	for (int64_t i = 0; i < plan->nunits; i++)
		plan->units[i].nsplits = (int)n;
	return plan->nunits * n;
}

static bool has_bad_stride(const struct cpa_array *array)
{
	return array->token * (int64_t)cpa_dtype_nbytes(array->dtype) % BAD_STRIDE == 0;
}

/* More rows than a kernel takes at once when it reads each number of v once. */
static bool reads_often(const struct cpa_attend *attend)
{
	return attend->nq * (attend->problem->Hq / attend->problem->Hkv) > 8;
}

/* Stores that pass by the caches want whole lines. */
static bool is_streamed(const struct cpa_attend *attend)
{
	const struct cpa_array *o = &attend->o;
	int64_t size = (int64_t)cpa_dtype_nbytes(o->dtype), Dv = attend->problem->Dv;
	int64_t nb = attend->batches.end - attend->batches.start;
	int64_t n = attend->nq * nb * (attend->heads.end - attend->heads.start) * Dv;

	return n * size > STREAM_FROM &&
		((int64_t)(uintptr_t)o->data | Dv * size | o->token * size | o->batch * size |
			o->head * size) %
			CPA_HOST_ALIGN ==
		0;
}

/* For few rows it is not worth while to bring keys into another form. */
static const struct cpa_attend_type *type_for(const struct cpa_attend *attend)
{
	const struct cpa_attend_kernels *kernels = cpa_cpu_kernels()->attend;
	const struct cpa_attend_type *type = kernels->type[attend->problem->dtype];

	if (type->suits &&
		!type->suits(attend, attend->nq * (attend->problem->Hq / attend->problem->Hkv)))
		type = kernels->type[CPA_DTYPE_FP32];
	return cpa_attend_few_type(type, attend);
}

static enum cpa_status no_memory(struct cpa_error *error, size_t nbytes)
{
	return cpa_fail(
		error, CPA_NO_MEMORY, "attend: no memory for %zu bytes of scratch", nbytes);
}

/* The last units have fewer rows, and few rows may need more than many. */
static size_t largest_space(const struct plan *plan, const struct cpa_problem *problem)
{
	size_t largest = 0;

	for (int64_t i = 0; i < plan->nunits; i++) {
		size_t nbytes;

		if (i > 0 &&
			cpa_unit_nrows(&plan->units[i]) == cpa_unit_nrows(&plan->units[i - 1]))
			continue;
		nbytes = plan->type->space_nbytes(problem, cpa_unit_nrows(&plan->units[i]));
		largest = nbytes > largest ? nbytes : largest;
	}
	return largest;
}

static enum cpa_status plan_call(
	struct plan *plan, const struct cpa_attend *attend, struct cpa_error *error)
{
	bool masked = attend->problem->rule.mask.kind != CPA_MASK_NONE;
	int64_t nb = attend->batches.end - attend->batches.start, nstates;

	*plan = (struct plan){
		.call = {.attend = attend,
			.visible = cpa_host_visible(attend),
			.copies_v = reads_often(attend) && has_bad_stride(&attend->v),
			.streams_o = is_streamed(attend)},
		.type = type_for(attend)};
	if (masked) {
		plan->call.q_ids = cpa_host_tokens(&attend->q_tokens, attend->nq);
		plan->call.k_ids = cpa_host_tokens(&attend->k_tokens, attend->nk);
	}
	if (!plan->call.visible || (masked && (!plan->call.q_ids || !plan->call.k_ids)))
		return no_memory(error, (size_t)(nb * attend->nq) * sizeof(struct cpa_range));
	plan->nunits = cut(plan, NULL);
	plan->units = malloc((size_t)plan->nunits * sizeof *plan->units + 1);
	if (!plan->units)
		return no_memory(error, (size_t)plan->nunits * sizeof *plan->units);
	cut(plan, plan->units);
	plan->nsplits = 1;
	find_work(plan->units, plan->nunits);
	plan->space_nbytes = largest_space(plan, attend->problem);
	plan->call.state_nbytes = plan->type->state_nbytes(attend->problem, plan->nrows);
	nstates = plan->nunits ? split_keys(plan) : 0;
	plan->states_nbytes = (size_t)nstates * plan->call.state_nbytes;
	return CPA_OK;
}

/* ---- running ---- */

static int thread_number(void)
{
#ifdef _OPENMP
	return omp_get_thread_num();
#else
	return 0;
#endif
}

static int count_threads(const struct plan *plan)
{
#ifdef _OPENMP
	const struct cpa_problem *problem = plan->call.attend->problem;
	int64_t ntasks = plan->nunits * plan->nsplits;
	double work = 0;
	int n = omp_get_max_threads();

	for (int64_t i = 0; i < plan->nunits; i++)
		work += plan->units[i].work;
	return work * (double)(problem->D + problem->Dv) < CPA_PARALLEL_FROM ? 1
		: n < ntasks						 ? n
									 : (int)ntasks;
#else
	(void)plan;
	return 1;
#endif
}

/* A task is a part of the keys of a unit: the first parts of all units, then the second ones. */
static double task_work(const struct plan *plan, int64_t task)
{
	return plan->units[task % plan->nunits].work / plan->nsplits;
}

/* The first task behind `share` of all the work. */
static int64_t task_at(const struct plan *plan, double share)
{
	int64_t ntasks = plan->nunits * plan->nsplits, task = 0;
	double all = 0, done = 0;

	for (int64_t i = 0; i < plan->nunits; i++)
		all += plan->units[i].work;
	for (; task < ntasks && done + task_work(plan, task) / 2 <= share * all; task++)
		done += task_work(plan, task);
	return task;
}

/* Thread i of n: consecutive tasks, so that one after the other reads the same keys. */
static void run_share(
	const struct plan *plan, const struct cpa_device *device, int i, int nthreads)
{
	int64_t end = i + 1 < nthreads ? task_at(plan, (double)(i + 1) / nthreads)
				       : plan->nunits * plan->nsplits;
	char *space = plan->space + (size_t)i * plan->space_nbytes;

	for (int64_t task = i ? task_at(plan, (double)i / nthreads) : 0; task < end; task++) {
		const struct cpa_attend_unit *unit = &plan->units[task % plan->nunits];
		int split = (int)(task / plan->nunits);

		if (plan->nsplits == 1) {
			plan->type->attend(unit, 0, space, NULL);
			plan->type->finish(unit, space, NULL);
		} else {
			plan->type->attend(unit, split, space,
				unit->state + (size_t)split * plan->call.state_nbytes);
		}
		if (i == 0)
			cpa_device_progress(device);
	}
}

static void run(const struct plan *plan, const struct cpa_device *device, int nthreads)
{
	(void)nthreads;
	CPA_OMP(omp parallel num_threads(nthreads) if (nthreads > 1))
	{
#ifdef _OPENMP
		run_share(plan, device, omp_get_thread_num(), omp_get_num_threads());
#else
		run_share(plan, device, 0, 1);
#endif
	}
	if (!plan->states)
		return;
	CPA_OMP(omp parallel for schedule(static) num_threads(nthreads) if (nthreads > 1))
	for (int64_t i = 0; i < plan->nunits; i++)
		plan->type->finish(&plan->units[i],
			plan->space + (size_t)thread_number() * plan->space_nbytes,
			plan->units[i].state);
}

/* Lays states, then the spaces of threads, over memory. */
static void lay(struct plan *plan, char *memory)
{
	char *state = memory;

	plan->states = plan->states_nbytes ? memory : NULL;
	for (int64_t i = 0; i < plan->nunits && plan->states; i++) {
		plan->units[i].state = state;
		state += (size_t)plan->units[i].nsplits * plan->call.state_nbytes;
	}
	plan->space = memory + plan->states_nbytes;
}

enum cpa_status cpa_cpu_attend(struct cpa_device *device, int queue,
	const struct cpa_attend *attend, struct cpa_error *error)
{
	struct plan plan;
	enum cpa_status status = plan_call(&plan, attend, error);

	(void)queue;
	if (!status && plan.nunits) {
		int nthreads = count_threads(&plan);
		size_t nbytes = plan.states_nbytes + (size_t)nthreads * plan.space_nbytes;
		char *memory = cpa_host_borrow(device, nbytes);

		if (memory) {
			lay(&plan, memory);
			status = cpa_attend_share(&plan.call, plan.type, nthreads, error);
			if (!status)
				run(&plan, device, nthreads);
			cpa_host_return(device, memory);
		} else {
			status = no_memory(error, nbytes);
		}
	}
	free(plan.units);
	free(plan.call.shared);
	free(plan.call.seen);
	free(plan.call.visible);
	free(plan.call.q_ids);
	free(plan.call.k_ids);
	return status;
}

void cpa_cpu_exp2_float(float *x, int64_t n)
{
	cpa_cpu_kernels()->attend->exp2_fp32(x, n);
}

void cpa_cpu_exp2_double(double *x, int64_t n)
{
	cpa_cpu_kernels()->attend->exp2_fp64(x, n);
}
