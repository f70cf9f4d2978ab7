/*
 * lane.c - executors of one configuration in a world, run again and again.
 */
#include "harness/lane.h"
#include "harness/clock.h"
#include "harness/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a configuration");
}

enum cpa_status cpa_lane_init(struct cpa_lane *lane, struct cpa_measure_session *session,
	const struct cpa_problem *problem, const struct cpa_config *config, bool alone,
	struct cpa_error *error)
{
	const struct cpa_measure_settings *settings = &session->settings;
	*lane = (struct cpa_lane){.session = session,
		.problem = problem,
		.alone = alone,
		.threads = alone ? settings->one_rank_threads : settings->threads,
		.best = INFINITY};
	lane->seconds = malloc((size_t)settings->repeat * sizeof *lane->seconds);
	lane->exchange = malloc((size_t)settings->repeat * sizeof *lane->exchange);
	enum cpa_status status = cpa_ranks_plan(&lane->plan, problem, config, error);
	if (status == CPA_OK && (!lane->seconds || !lane->exchange))
		status = out_of_memory(error);
	return status;
}

void cpa_lane_fini(struct cpa_lane *lane)
{
	for (int i = 0; i < lane->nlocal; i++) {
		if (lane->execs)
			cpa_exec_destroy(lane->execs[i]);
		if (lane->watches)
			cpa_unwatch_comm(&lane->watches[i]);
	}
	free(lane->execs);
	free(lane->watches);
	cpa_world_destroy(lane->world);
	cpa_ranks_fini(&lane->plan);
	free(lane->seconds);
	free(lane->exchange);
}

/* ---- executors ---- */

static bool runs_kernel(void *context, struct cpa_exec *exec, int op)
{
	const struct cpa_lane *lane = context;
	enum cpa_op_kind kind = cpa_exec_schedule(exec)->ops[op].kind;
	return !lane->messages_only || kind == CPA_OP_SEND || kind == CPA_OP_RECV ||
		kind == CPA_OP_COLLECTIVE;
}

static enum cpa_status make_exec(struct cpa_lane *lane, int i, struct cpa_error *error)
{
	const struct cpa_schedule *schedule = lane->plan.schedules[lane->first + i];
	struct cpa_comm *comm = cpa_world_comm(lane->world, lane->first + i);
	const struct cpa_exec_options options = {
		.hook = {.before = runs_kernel, .context = lane}};
	cpa_watch_comm(&lane->watches[i], comm, &lane->phases);
	if (schedule->nbuffers == 0)
		return CPA_OK; /* a batch group without items */
	return cpa_exec_create(schedule, lane->problem, lane->session->settings.device, comm,
		&options, &lane->execs[i], error);
}

/* The buffer of a tensor on a rank, as a shard of the whole array. */
static struct cpa_shard shard_of(
	const struct cpa_lane *lane, int rank, enum cpa_tensor tensor, size_t *nbytes)
{
	const struct cpa_ranks *plan = &lane->plan;
	bool key = tensor == CPA_TENSOR_K || tensor == CPA_TENSOR_V;
	struct cpa_shard shard = {.row_nbytes = cpa_token_nbytes(lane->problem, tensor),
		.S = cpa_tensor_ntokens(lane->problem, tensor),
		.batches = cpa_partition_batches(
			plan->partition, cpa_partition_coords(plan->partition, rank).b),
		.tokens = key ? &plan->kv_shards[rank] : &plan->q_shards[rank]};
	*nbytes = shard.row_nbytes *
		(size_t)(cpa_spans_ntokens(shard.tokens) *
			(shard.batches.end - shard.batches.start));
	return shard;
}

/* False: the rank has no work. */
static bool find_box(const struct cpa_lane *lane, int i, enum cpa_role role, enum cpa_tensor tensor,
	struct cpa_box *box)
{
	return lane->execs[i] &&
	       cpa_schedule_find(cpa_exec_schedule(lane->execs[i]), role, tensor, box);
}

static enum cpa_status upload(struct cpa_lane *lane, int i, enum cpa_tensor tensor,
	const struct cpa_inputs *inputs, struct cpa_error *error)
{
	struct cpa_box box;
	size_t nbytes;
	struct cpa_shard shard = shard_of(lane, lane->first + i, tensor, &nbytes);
	if (nbytes == 0 || !find_box(lane, i, CPA_ROLE_INPUT, tensor, &box))
		return CPA_OK;
	void *staging = malloc(nbytes);
	if (!staging)
		return out_of_memory(error);
	inputs->read(inputs->context, tensor, shard.batches, shard.tokens, staging);
	enum cpa_status status = cpa_place_put(
		lane->session->settings.device, lane->execs[i], &box, staging, error);
	free(staging);
	return status;
}

static enum cpa_status make_world(struct cpa_lane *lane, struct cpa_error *error)
{
	const char *comm = lane->alone ? "fake" : lane->session->settings.comm;
	enum cpa_status status = cpa_world_create(comm, lane->plan.W, &lane->world, error);
	if (status != CPA_OK)
		return status;
	lane->first = cpa_world_first(lane->world);
	lane->nlocal = cpa_world_nlocal(lane->world);
	lane->execs = calloc((size_t)lane->nlocal, sizeof *lane->execs);
	lane->watches = calloc((size_t)lane->nlocal, sizeof *lane->watches);
	return lane->execs && lane->watches ? CPA_OK : out_of_memory(error);
}

enum cpa_status cpa_lane_start(
	struct cpa_lane *lane, const struct cpa_inputs *inputs, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	lane->running = !lane->alone || lane->session->leads;
	if (!lane->running)
		return cpa_world_agree(lane->session->world, CPA_OK, error);
	status = make_world(lane, error);
	for (int i = 0; status == CPA_OK && i < lane->nlocal; i++)
		status = make_exec(lane, i, error);
	for (int i = 0; status == CPA_OK && i < lane->nlocal; i++)
		for (int t = CPA_TENSOR_Q; status == CPA_OK && t <= CPA_TENSOR_V; t++)
			status = upload(lane, i, (enum cpa_tensor)t, inputs, error);
	return cpa_world_agree(lane->session->world, status, error);
}

/* ---- running ---- */

static double kernel_seconds(const struct cpa_phases *phases)
{
	return phases->seconds[CPA_PHASE_ATTEND] + phases->seconds[CPA_PHASE_MERGE] +
		phases->seconds[CPA_PHASE_COPY];
}

/* What no operation took.  Ranks that take turns in one process never wait. */
static void settle_phases(struct cpa_lane *lane, double seconds)
{
	double *at = lane->phases.seconds;
	double rest = fmax(0, seconds - kernel_seconds(&lane->phases));
	if (lane->nlocal == lane->plan.W) {
		at[CPA_PHASE_EXCHANGE] = rest;
		at[CPA_PHASE_WAIT] = 0;
	} else {
		at[CPA_PHASE_EXCHANGE] = fmin(at[CPA_PHASE_EXCHANGE], rest);
		at[CPA_PHASE_WAIT] = rest - at[CPA_PHASE_EXCHANGE];
	}
}

enum cpa_status cpa_lane_run(struct cpa_lane *lane, double *seconds, struct cpa_error *error)
{
	struct cpa_watched_device watch;
	enum cpa_status status = CPA_OK;
	for (int i = 0; lane->ran && status == CPA_OK && i < lane->nlocal; i++)
		if (lane->execs[i])
			status = cpa_exec_reset(lane->execs[i], error);
	/* The first barrier may wake who slept; the second finds all awake, and they start
	 * together. */
	for (int i = 0; status == CPA_OK && !lane->alone && i < 2; i++)
		status = cpa_world_barrier(lane->session->world, error);
	if (status != CPA_OK)
		return status;
	lane->ran = true;
	lane->phases = (struct cpa_phases){{0}};
	cpa_threads_set(lane->threads);
	cpa_watch_device(&watch, lane->session->settings.device, &lane->phases);
	double start = cpa_now();
	status = cpa_world_run(lane->world, lane->execs, CPA_FAKE_PLAIN, 1, error);
	*seconds = cpa_now() - start;
	cpa_unwatch_device(&watch);
	settle_phases(lane, *seconds);
	return status;
}

/* What one process, or the slowest of several, says of a repetition. */
struct report {
	double seconds, exchange;
	struct cpa_phases phases;
};

/* Who waits asks for messages again and again, which costs the one rank a tenth of its speed:
 * sleep through most of it. */
static void let_it_run(const struct cpa_lane *lane)
{
	double seconds = 0.95 * lane->latest;
	struct timespec rest = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
	if (lane->alone && !lane->running)
		nanosleep(&rest, NULL);
}

static enum cpa_status run_twice(
	struct cpa_lane *lane, struct report *report, struct cpa_error *error)
{
	enum cpa_status status = CPA_OK;
	int64_t bytes = 0;
	for (int r = 0; r < lane->plan.W; r++)
		bytes += lane->plan.counts[r].bytes_sent;
	report->exchange = NAN;
	if (lane->running)
		status = cpa_lane_run(lane, &report->seconds, error);
	else
		let_it_run(lane);
	report->phases = lane->phases;
	if (status == CPA_OK && lane->running && bytes > 0) {
		lane->messages_only = true;
		status = cpa_lane_run(lane, &report->exchange, error);
		lane->messages_only = false;
	}
	return status;
}

static enum cpa_status slowest(
	struct cpa_lane *lane, struct report *report, struct cpa_error *error)
{
	struct cpa_measure_session *session = lane->session;
	struct report *all = malloc((size_t)session->nprocesses * sizeof *all);
	if (!all)
		return out_of_memory(error);
	enum cpa_status status = cpa_world_gather(
		session->world, report, sizeof *report, all, error);
	for (int i = 0; status == CPA_OK && i < session->nprocesses; i++) {
		double exchange = fmax(report->exchange, all[i].exchange); /* NaN gives way */
		if (i == 0 || all[i].seconds > report->seconds)
			*report = all[i];
		report->exchange = exchange;
	}
	free(all);
	return status;
}

static void keep_times(struct cpa_lane *lane, const struct report *report, bool counts)
{
	lane->latest = report->seconds;
	if (!counts)
		return;
	lane->seconds[lane->ntimes] = report->seconds;
	lane->exchange[lane->ntimes++] = report->exchange;
	if (report->seconds >= lane->best)
		return;
	lane->best = report->seconds;
	lane->fastest = report->phases;
}

enum cpa_status cpa_lane_repeat(struct cpa_lane *lane, bool counts, struct cpa_error *error)
{
	struct report report = {.exchange = NAN};
	enum cpa_status status = run_twice(lane, &report, error);
	if (status != CPA_OK)
		cpa_world_abort(lane->session->world, error);
	if (status == CPA_OK)
		status = slowest(lane, &report, error);
	if (status == CPA_OK)
		keep_times(lane, &report, counts);
	return status;
}

/* ---- outputs ---- */

static enum cpa_status fetch(
	struct cpa_lane *lane, int i, enum cpa_tensor tensor, void *to, struct cpa_error *error)
{
	struct cpa_box box;
	size_t nbytes;
	shard_of(lane, lane->first + i, tensor, &nbytes);
	return nbytes == 0 || !find_box(lane, i, CPA_ROLE_OUTPUT, tensor, &box)
		? CPA_OK
		: cpa_place_get(lane->session->settings.device, lane->execs[i], &box, to, error);
}

static enum cpa_status download(
	struct cpa_lane *lane, enum cpa_tensor tensor, void *whole, struct cpa_error *error)
{
	size_t largest = 1, nbytes;
	for (int r = 0; r < lane->plan.W; r++) {
		shard_of(lane, r, tensor, &nbytes);
		largest = nbytes > largest ? nbytes : largest;
	}
	unsigned char *own = malloc((size_t)lane->nlocal * largest);
	unsigned char *all = malloc((size_t)lane->plan.W * largest);
	enum cpa_status status = own && all ? CPA_OK : out_of_memory(error);
	for (int i = 0; status == CPA_OK && i < lane->nlocal; i++)
		status = fetch(lane, i, tensor, own + (size_t)i * largest, error);
	if (status != CPA_OK)
		cpa_world_abort(lane->world, error);
	else
		status = cpa_world_gather(lane->world, own, largest, all, error);
	for (int r = 0; status == CPA_OK && r < lane->plan.W; r++) {
		struct cpa_shard shard = shard_of(lane, r, tensor, &nbytes);
		if (nbytes > 0)
			cpa_shard_scatter(&shard, all + (size_t)r * largest, whole);
	}
	free(own);
	free(all);
	return status;
}

enum cpa_status cpa_lane_download(
	struct cpa_lane *lane, void *o, void *lse, struct cpa_error *error)
{
	const struct cpa_problem *p = lane->problem;
	void *const whole[2] = {o, lse};
	static const enum cpa_tensor tensors[2] = {CPA_TENSOR_O, CPA_TENSOR_LSE};
	enum cpa_status status = CPA_OK;
	for (int i = 0; i < 2 && whole[i] && status == CPA_OK; i++) {
		/* What nobody owns stays NaN. */
		memset(whole[i], 0xff, (size_t)(p->B * p->Sq) * cpa_token_nbytes(p, tensors[i]));
		status = download(lane, tensors[i], whole[i], error);
	}
	return status;
}
