/*
 * measure.c - lanes beside each other: each judged once, then run in turn while the clock counts.
 */
#include "harness/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/judge.h"
#include "harness/lane.h"
#include "harness/verify.h"

enum { JUDGED_ROWS = 32 }; /* at least; with the ends of every shard */

/* One problem on its way. */
struct course {
	struct cpa_measure_session *session;
	const struct cpa_problem *problem;
	void *data[3]; /* q, k, v, whole */
	struct cpa_tensors tensors;
	struct cpa_truth *truth; /* on the process that leads */
	void *o, *lse;
	struct cpa_head_error *one_rank_errors; /* [B, Hq] */
	struct cpa_lane *lanes; /* [n + 1]; the first is the one rank */
	int n;
	struct cpa_result *results; /* [n] */
	struct cpa_limits limits;
};

/* ---- derived ---- */

static double kernels(const struct cpa_measured *m)
{
	const double *at = m->phases.seconds;
	return at[CPA_PHASE_ATTEND] + at[CPA_PHASE_MERGE] + at[CPA_PHASE_COPY];
}

double cpa_measured_beyond(const struct cpa_measured *m)
{
	const double *at = m->phases.seconds;
	return (at[CPA_PHASE_EXCHANGE] + at[CPA_PHASE_WAIT]) / kernels(m);
}

double cpa_measured_flop_rate(const struct cpa_measured *m)
{
	return m->flop / m->seconds.min;
}

double cpa_measured_exchange_rate(const struct cpa_measured *m)
{
	return m->exchange.n > 0 ? m->bytes / m->exchange.min : NAN;
}

double cpa_measured_speedup(const struct cpa_measured *m)
{
	return m->one_rank.min / m->seconds.min;
}

/* ---- a session ---- */

/* All cores are for the one rank, and mpirun may have bound this process to one of them. */
static enum cpa_status check_cores(
	const struct cpa_measure_session *session, struct cpa_error *error)
{
	int asked = session->settings.one_rank_threads, most = cpa_threads_most();
	if (session->nprocesses == 1 || asked <= most)
		return CPA_OK;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"the one rank that all are compared to has %d threads, and this process may use "
		"%d "
		"core%s: mpirun binds processes to cores unless told --bind-to none; or say "
		"--one-rank-threads %d",
		asked, most, most == 1 ? "" : "s", most);
}

static enum cpa_status set_threads(struct cpa_measure_session *session, struct cpa_error *error)
{
	struct cpa_measure_settings *s = &session->settings;
	int most = cpa_threads_most(), cores = cpa_cores(), all;
	int asked = s->threads > s->one_rank_threads ? s->threads : s->one_rank_threads;
	if (s->threads == 0)
		s->threads = most > session->nprocesses ? most / session->nprocesses : 1;
	all = s->threads * session->nprocesses;
	if (s->one_rank_threads == 0)
		s->one_rank_threads = session->nprocesses > 1 && all > cores ? cores : all;
	enum cpa_status status = cpa_threads_check(asked, error);
	return status == CPA_OK && session->leads ? check_cores(session, error) : status;
}

enum cpa_status cpa_measure_begin(struct cpa_measure_session *session,
	const struct cpa_measure_settings *settings, struct cpa_error *error)
{
	*session = (struct cpa_measure_session){.settings = *settings};
	enum cpa_status status = cpa_world_create(
		settings->comm, strcmp(settings->comm, "fake") == 0, &session->world, error);
	if (status != CPA_OK)
		return status;
	session->nprocesses = cpa_world_size(session->world);
	session->leads = cpa_world_leads(session->world);
	status = set_threads(session, error);
	if (status == CPA_OK)
		status = cpa_limiter_create(session->settings.threads, &session->limiter, error);
	return cpa_world_agree(session->world, status, error);
}

void cpa_measure_end(struct cpa_measure_session *session)
{
	cpa_limiter_destroy(session->limiter);
	cpa_world_destroy(session->world);
	session->limiter = NULL;
	session->world = NULL;
}

/* ---- inputs and truth ---- */

static enum cpa_status out_of_memory(struct cpa_error *error)
{
	return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the tensors of a problem");
}

static enum cpa_status make_inputs(struct course *c, uint64_t seed, struct cpa_error *error)
{
	const struct cpa_problem *p = c->problem;
	size_t tokens = (size_t)(p->B * p->Sq);
	enum cpa_status s =
		cpa_inputs_make(p, CPA_FILL_NORMAL, seed, c->data, &c->tensors, error);
	if (s != CPA_OK)
		return s;
	c->o = malloc(tokens * cpa_token_nbytes(p, CPA_TENSOR_O));
	if (p->lse)
		c->lse = malloc(tokens * cpa_token_nbytes(p, CPA_TENSOR_LSE));
	c->one_rank_errors = malloc((size_t)(p->B * p->Hq) * sizeof *c->one_rank_errors);
	return c->o && c->one_rank_errors && (c->lse || !p->lse) ? CPA_OK : out_of_memory(error);
}

static void want_ends(const struct cpa_lane *lane, bool *wanted)
{
	for (int r = 0; r < lane->plan.W; r++) {
		const struct cpa_spans *shard = &lane->plan.q_shards[r];
		if (shard->n == 0)
			continue;
		wanted[cpa_spans_min(shard)] = true;
		wanted[cpa_spans_max(shard)] = true;
	}
}

/* Full attention of some rows, where it will be looked at. */
static enum cpa_status make_truth(struct course *c, struct cpa_error *error)
{
	int64_t S = c->problem->Sq, n = JUDGED_ROWS < S ? JUDGED_ROWS : S;
	bool *wanted = c->session->leads ? calloc((size_t)S, sizeof *wanted) : NULL;
	enum cpa_status status = CPA_OK;
	if (!c->session->leads)
		return CPA_OK;
	if (!wanted)
		return out_of_memory(error);
	for (int64_t i = 0; i < n; i++) /* evenly spread, both ends included */
		wanted[n == 1 ? 0 : i * (S - 1) / (n - 1)] = true;
	for (int i = 1; i <= c->n; i++)
		if (c->results[i - 1].verdict == CPA_VERDICT_RIGHT)
			want_ends(&c->lanes[i], wanted);
	status = cpa_truth_create(&c->tensors, wanted, &c->truth, error);
	free(wanted);
	return status;
}

/* ---- judging ---- */

/* CPA_MISMATCH: wrong, and where. */
static enum cpa_status judge(struct course *c, struct cpa_lane *lane, struct cpa_error *error)
{
	struct cpa_judgement judgement;
	const struct cpa_judge_run run = {
		.bound = cpa_verify_bound_run(
			c->session->settings.device, c->problem, &lane->plan.partition->config),
		.o = c->o,
		.lse = c->lse,
		.one_rank = lane->alone ? NULL : c->one_rank_errors,
		.measured = lane->alone ? c->one_rank_errors : NULL};
	enum cpa_status status = cpa_judge(c->truth, &run, &judgement, error);
	if (status != CPA_OK || judgement.right)
		return status;
	bool o = !(judgement.o.ratio <= 1 && judgement.o.soft_ratio <= 1);
	const struct cpa_deviation *d = o ? &judgement.o : &judgement.lse;
	return cpa_fail(error, CPA_MISMATCH,
		"%s at batch %" PRId64 ", token %" PRId64 ", head %" PRId64
		" is off by %.3g, %.3g times its bound (%.3g as a whole); cpattn verify says "
		"more",
		o ? "o" : "lse", d->batch, d->token, d->head, d->error, d->ratio, d->soft_ratio);
}

/* The first run, from fresh buffers, is the one that is judged. */
static enum cpa_status run_and_judge(
	struct course *c, struct cpa_lane *lane, struct cpa_error *error)
{
	double seconds;
	enum cpa_status status = CPA_OK;
	if (lane->running) {
		status = cpa_lane_run(lane, &seconds, error);
		if (status == CPA_OK)
			status = cpa_lane_download(lane, c->o, c->lse, error);
		if (status != CPA_OK)
			cpa_world_abort(c->session->world, error);
	}
	if (status == CPA_OK && c->session->leads)
		status = judge(c, lane, error);
	return cpa_world_agree(c->session->world, status, error);
}

/* ---- lanes ---- */

static void set_verdict(
	struct cpa_result *result, enum cpa_status status, const struct cpa_error *error)
{
	result->verdict = status == CPA_OK  ? CPA_VERDICT_RIGHT
		: status == CPA_MISMATCH    ? CPA_VERDICT_WRONG
		: status == CPA_UNSUPPORTED ? CPA_VERDICT_UNSUPPORTED
					    : CPA_VERDICT_CANNOT_TELL;
	if (status != CPA_OK)
		snprintf(result->reason, sizeof result->reason, "%s", error->text);
}

static enum cpa_status keep_counts(struct cpa_result *result, const struct cpa_lane *lane)
{
	size_t nbytes = (size_t)lane->plan.W * sizeof *result->counts;
	result->counts = malloc(nbytes);
	if (!result->counts)
		return CPA_NO_MEMORY;
	memcpy(result->counts, lane->plan.counts, nbytes);
	return CPA_OK;
}

static enum cpa_status plan_lanes(
	struct course *c, const struct cpa_config *configs, struct cpa_error *error)
{
	struct cpa_config one = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, c->problem);
	enum cpa_status status;
	if (c->n > 0) {
		one.partials = configs[0].partials;
		one.partial_dtype = configs[0].partial_dtype;
	}
	status = cpa_lane_init(&c->lanes[0], c->session, c->problem, &one, true, error);
	for (int i = 0; i < c->n && status == CPA_OK; i++) {
		struct cpa_result *result = &c->results[i];
		struct cpa_error inner = {""};
		result->has_config = true;
		result->config = configs[i];
		result->W = configs[i].batch_degree * configs[i].ring_degree *
			configs[i].ulysses_degree;
		enum cpa_status planned = cpa_lane_init(
			&c->lanes[i + 1], c->session, c->problem, &configs[i], false, &inner);
		set_verdict(result, planned, &inner);
		if (planned == CPA_OK)
			planned = keep_counts(result, &c->lanes[i + 1]);
		if (planned == CPA_NO_MEMORY)
			status = out_of_memory(error);
	}
	return status;
}

/* All lanes hold their buffers at once, so that a run finds its memory warm. */
static enum cpa_status check_memory(const struct course *c, struct cpa_error *error)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	double has = (double)pages * (double)page, needs = 0;
	for (int i = 0; i <= c->n; i++)
		if (i == 0 || c->results[i - 1].verdict == CPA_VERDICT_RIGHT)
			for (int r = 0; r < c->lanes[i].plan.W; r++)
				needs += (double)c->lanes[i].plan.counts[r].peak_bytes;
	if (pages <= 0 || needs <= 0.75 * has)
		return CPA_OK;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"these %d configurations hold %.1f GB together, of %.1f GB that this machine "
		"has; "
		"name fewer with --variant, --ranks and --rotate",
		c->n, needs / 1e9, has / 1e9);
}

static enum cpa_status start_lanes(struct course *c, struct cpa_error *error)
{
	struct cpa_inputs inputs = cpa_inputs_dense(&c->tensors);
	enum cpa_status status = cpa_lane_start(&c->lanes[0], &inputs, error);
	if (status == CPA_OK)
		status = run_and_judge(c, &c->lanes[0], error);
	for (int i = 0; i < c->n && status == CPA_OK; i++) {
		struct cpa_result *result = &c->results[i];
		struct cpa_error inner = {""};
		if (result->verdict != CPA_VERDICT_RIGHT)
			continue;
		enum cpa_status here = cpa_lane_start(&c->lanes[i + 1], &inputs, &inner);
		if (here == CPA_OK)
			here = run_and_judge(c, &c->lanes[i + 1], &inner);
		set_verdict(result, here, &inner);
		if (here == CPA_NO_MEMORY)
			status = out_of_memory(error);
	}
	return status;
}

/* ---- times ---- */

/* One rate of all processes together: as often as there are processes that of the slowest, since
 * a faster one had for a while what all share. */
static enum cpa_status sample_limit(
	struct course *c, int which, double *best, struct cpa_error *error)
{
	struct cpa_limiter *limiter = c->session->limiter;
	int n = c->session->nprocesses;
	double own, *all = malloc((size_t)n * sizeof *all), least = INFINITY;
	enum cpa_status status = all ? CPA_OK : out_of_memory(error);
	if (status == CPA_OK)
		status = cpa_world_barrier(c->session->world, error);
	own = which == 0 ? cpa_limiter_flop(limiter, c->problem->dtype)
			 : cpa_limiter_copy(limiter, which == 1);
	if (status == CPA_OK)
		status = cpa_world_gather(c->session->world, &own, sizeof own, all, error);
	for (int i = 0; i < n && status == CPA_OK; i++)
		least = fmin(least, all[i]);
	if (status == CPA_OK)
		*best = fmax(*best, n * least);
	free(all);
	return status;
}

/* All begin together: cores share their way to the memory. */
static enum cpa_status sample_limits(struct course *c, struct cpa_error *error)
{
	enum cpa_status status = sample_limit(c, 0, &c->limits.flop_per_second, error);
	for (int i = 1; i <= 2 && status == CPA_OK; i++)
		status = sample_limit(c, i, &c->limits.copy_bytes_per_second, error);
	return status;
}

static enum cpa_status repeat_lanes(struct course *c, struct cpa_error *error)
{
	const struct cpa_measure_settings *settings = &c->session->settings;
	enum cpa_status status = CPA_OK;
	for (int t = -settings->warmup; t < settings->repeat && status == CPA_OK; t++) {
		status = sample_limits(c, error);
		for (int i = 0; i <= c->n && status == CPA_OK; i++)
			if (i == 0 || c->results[i - 1].verdict == CPA_VERDICT_RIGHT)
				status = cpa_lane_repeat(&c->lanes[i], t >= 0, error);
	}
	return status;
}

static struct cpa_statistics statistics_of(double *values, int n)
{
	return cpa_statistics_of(values, n > 0 && isfinite(values[0]) ? n : 0);
}

static enum cpa_status report(const struct course *c, int i, const struct cpa_statistics *one)
{
	const struct cpa_problem *p = c->problem;
	struct cpa_lane *lane = &c->lanes[i + 1];
	struct cpa_measured *m = calloc(1, sizeof *m);
	if (!m)
		return CPA_NO_MEMORY;
	m->threads = c->session->settings.threads;
	m->nprocesses = c->session->nprocesses;
	m->seconds = statistics_of(lane->seconds, lane->ntimes);
	m->exchange = statistics_of(lane->exchange, lane->ntimes);
	m->phases = lane->fastest;
	m->flop = 2.0 * (double)(p->D + p->Dv) * (double)c->lanes[0].plan.counts[0].work;
	for (int r = 0; r < lane->plan.W; r++)
		m->bytes += (double)lane->plan.counts[r].bytes_sent;
	m->one_rank_threads = c->session->settings.one_rank_threads;
	m->one_rank = *one;
	m->limits = c->limits;
	c->results[i].measured = m;
	c->results[i].seconds = m->seconds.median;
	return CPA_OK;
}

static enum cpa_status report_all(const struct course *c, struct cpa_error *error)
{
	struct cpa_statistics one = statistics_of(c->lanes[0].seconds, c->lanes[0].ntimes);
	for (int i = 0; i < c->n; i++)
		if (c->results[i].verdict == CPA_VERDICT_RIGHT && report(c, i, &one) != CPA_OK)
			return out_of_memory(error);
	return CPA_OK;
}

/* ---- the whole ---- */

static enum cpa_status run_course(struct course *c, uint64_t seed,
	const struct cpa_config *configs, struct cpa_error *error)
{
	struct cpa_device *device = c->session->settings.device;
	enum cpa_status status = device->ops->supports(device, c->problem, error);
	if (status == CPA_OK)
		status = plan_lanes(c, configs, error);
	if (status == CPA_OK)
		status = check_memory(c, error);
	if (status == CPA_OK)
		status = make_inputs(c, seed, error);
	if (status == CPA_OK)
		status = make_truth(c, error);
	status = cpa_world_agree(c->session->world, status, error);
	if (status == CPA_OK)
		status = start_lanes(c, error);
	if (status == CPA_OK)
		status = repeat_lanes(c, error);
	return status == CPA_OK ? report_all(c, error) : status;
}

static void end_course(struct course *c)
{
	for (int i = 0; c->lanes && i <= c->n; i++)
		if (c->lanes[i].session) /* it was begun */
			cpa_lane_fini(&c->lanes[i]);
	free(c->lanes);
	cpa_truth_destroy(c->truth);
	for (int i = 0; i < 3; i++)
		free(c->data[i]);
	free(c->o);
	free(c->lse);
	free(c->one_rank_errors);
}

enum cpa_status cpa_measure_problem(struct cpa_measure_session *session,
	const struct cpa_problem *problem, uint64_t seed, const struct cpa_config *configs, int n,
	struct cpa_result *results, struct cpa_error *error)
{
	struct course c = {.session = session, .problem = problem, .n = n, .results = results};
	for (int i = 0; i < n; i++) {
		cpa_result_init(&results[i]);
		results[i].problem = problem;
		results[i].device = session->settings.device->ops->name;
		results[i].comm = session->settings.comm;
	}
	c.lanes = calloc((size_t)n + 1, sizeof *c.lanes);
	enum cpa_status status = c.lanes ? run_course(&c, seed, configs, error)
					 : out_of_memory(error);
	end_course(&c);
	return status;
}
