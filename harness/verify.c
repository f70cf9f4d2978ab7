/*
 * verify.c - one configuration: proof, interleavings, bounds, probes, and the sentence when it
 * is wrong.
 */
#include "harness/verify.h"

#include <inttypes.h>
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/clock.h"
#include "harness/combine.h"
#include "harness/fault.h"
#include "harness/probe.h"
#include "harness/ranks.h"

struct cpa_verifier {
	struct cpa_verify_settings settings;
	struct cpa_tensors tensors;
	struct cpa_problem problem;
	struct cpa_probe_problem probe;
	struct cpa_truth *truth;
	void *o, *lse;                   /* outputs of a run, whole; lse NULL: no output */
	void *combined[2];               /* guidance: what two batch groups made */
	struct cpa_head_error *one_rank; /* [B, Hq] */
	bool has_one_rank;
	enum cpa_partials one_rank_partials;
	enum cpa_dtype one_rank_dtype;
};

/* One configuration on its way. */
struct attempt {
	struct cpa_verifier *v;
	const struct cpa_config *config;
	struct cpa_ranks ranks;
	struct cpa_plant *plant;
	struct cpa_result *result;
	struct cpa_verify_trace *trace;
	bool wrong;
};

/* ---- lifetime ---- */

static enum cpa_status alloc_outputs(struct cpa_verifier *v, struct cpa_error *error)
{
	const struct cpa_problem *p = &v->problem;
	size_t tokens = (size_t)(p->B * p->Sq);
	v->o = malloc(tokens * cpa_token_nbytes(p, CPA_TENSOR_O));
	if (p->lse)
		v->lse = malloc(tokens * cpa_token_nbytes(p, CPA_TENSOR_LSE));
	v->one_rank = malloc((size_t)(p->B * p->Hq) * sizeof *v->one_rank);
	for (int i = 0; i < 2; i++)
		v->combined[i] = malloc(tokens * cpa_token_nbytes(p, CPA_TENSOR_O));
	if (!v->combined[0] || !v->combined[1] || !v->o || (p->lse && !v->lse) || !v->one_rank)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the outputs of a run");
	return CPA_OK;
}

enum cpa_status cpa_verifier_create(const struct cpa_verify_settings *settings,
	const struct cpa_tensors *tensors, const bool *wanted, struct cpa_verifier **verifier,
	struct cpa_error *error)
{
	enum cpa_status s =
		settings->device->ops->supports(settings->device, tensors->problem, error);
	if (s != CPA_OK)
		return s;
	struct cpa_verifier *v = calloc(1, sizeof *v);
	if (!v)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a call");
	v->settings = *settings;
	v->tensors = *tensors;
	v->problem = *tensors->problem;
	s = alloc_outputs(v, error);
	if (s == CPA_OK)
		s = cpa_probe_problem_init(&v->probe, &v->problem, error);
	if (s == CPA_OK)
		s = cpa_truth_create(tensors, wanted, &v->truth, error);
	if (s == CPA_OK)
		*verifier = v;
	else
		cpa_verifier_destroy(v);
	return s;
}

void cpa_verifier_destroy(struct cpa_verifier *v)
{
	if (!v)
		return;
	cpa_truth_destroy(v->truth);
	cpa_probe_problem_fini(&v->probe);
	free(v->o);
	free(v->lse);
	free(v->combined[0]);
	free(v->combined[1]);
	free(v->one_rank);
	free(v);
}

/* ---- interleavings ---- */

static uint64_t seed_of(const struct cpa_verifier *v, int i)
{
	return (v->settings.seed ? v->settings.seed : 1) + (uint64_t)i;
}

static enum cpa_fake_mode mode_of(uint64_t seed)
{
	return seed & 1 ? CPA_FAKE_EAGER : CPA_FAKE_RENDEZVOUS;
}

/* Partials that a row merges: one for each hop, and one more for replicated keys beside split ones. */
static int npartials(const struct cpa_problem *p, const struct cpa_config *config)
{
	struct cpa_segment whole;
	int n;
	const struct cpa_segment *at = cpa_problem_segments(p, true, &whole, &n);
	bool split = false, replicated = false;
	for (int i = 0; i < n; i++) {
		split |= !at[i].replicated && at[i].length > 0;
		replicated |= at[i].replicated && at[i].length > 0;
	}
	return config->ring_degree + (split && replicated);
}

struct cpa_bound_run cpa_verify_bound_run(const struct cpa_device *device,
	const struct cpa_problem *problem, const struct cpa_config *config)
{
	return (struct cpa_bound_run){.problem = problem,
		.arithmetic = device->arithmetic(problem),
		.partials = config->partials,
		.partial_dtype = config->partial_dtype,
		.R = npartials(problem, config)};
}

static struct cpa_bound_run bound_run(
	const struct cpa_verifier *v, const struct cpa_config *config)
{
	return cpa_verify_bound_run(v->settings.device, &v->problem, config);
}

/* The same device in the same mode on one rank: how far off rounding alone takes it. */
static enum cpa_status measure_one_rank(
	struct cpa_verifier *v, const struct cpa_config *like, struct cpa_error *error)
{
	if (v->has_one_rank && v->one_rank_partials == like->partials &&
		v->one_rank_dtype == like->partial_dtype)
		return CPA_OK;
	struct cpa_config config =
		cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &v->problem);
	config.partials = like->partials;
	config.partial_dtype = like->partial_dtype;
	struct cpa_inputs inputs = cpa_inputs_dense(&v->tensors);
	struct cpa_ranks ranks;
	struct cpa_judgement ignored;
	struct cpa_judge_run run = {.bound = bound_run(v, &config),
		.o = v->o,
		.lse = v->lse,
		.measured = v->one_rank};
	enum cpa_status s = cpa_ranks_plan(&ranks, &v->problem, &config, error);
	if (s == CPA_OK)
		s = cpa_ranks_start(&ranks, v->settings.device, NULL, NULL, error);
	if (s == CPA_OK)
		s = cpa_ranks_upload(&ranks, &inputs, error);
	if (s == CPA_OK)
		s = cpa_ranks_run(&ranks, CPA_FAKE_EAGER, 1, error);
	if (s == CPA_OK)
		s = cpa_ranks_download(&ranks, v->o, v->lse, error);
	if (s == CPA_OK)
		s = cpa_judge(v->truth, &run, &ignored, error);
	cpa_ranks_fini(&ranks);
	v->has_one_rank = s == CPA_OK;
	v->one_rank_partials = like->partials;
	v->one_rank_dtype = like->partial_dtype;
	return s;
}

static bool at_plant(const struct attempt *a, const struct cpa_deviation *d)
{
	const struct cpa_plant_site *site = cpa_plant_site(a->plant);
	if (site->rank < 0)
		return true;
	return d->batch >= site->batches.start && d->batch < site->batches.end &&
	       d->head >= site->heads.start && d->head < site->heads.end &&
	       cpa_spans_ncommon_range(
		       site->tokens, (struct cpa_range){d->token, d->token + 1}) == 1;
}

static enum cpa_status judge_first(struct attempt *a, struct cpa_error *error)
{
	struct cpa_verifier *v = a->v;
	struct cpa_judgement judgement;
	struct cpa_judge_run run = {.bound = bound_run(v, a->config),
		.o = v->o,
		.lse = v->lse,
		.one_rank = v->one_rank};
	enum cpa_status s = cpa_judge(v->truth, &run, &judgement, error);
	if (s != CPA_OK)
		return s;
	a->result->o = judgement.o;
	a->result->lse = judgement.lse;
	if (a->plant) {
		a->trace->o_at_plant = at_plant(a, &judgement.o);
		a->trace->lse_at_plant = at_plant(a, &judgement.lse);
	}
	if (judgement.right)
		return CPA_OK;
	cpa_verify_say_judgement(a->result, &a->ranks, &judgement);
	a->wrong = true;
	return CPA_OK;
}

/* Every batch group combines; first: the first interleaving, which is judged. */
static enum cpa_status combine(struct attempt *a, bool first, struct cpa_error *error)
{
	struct cpa_verifier *v = a->v;
	struct cpa_combine combine = {.ranks = &a->ranks,
		.guidance = &v->settings.guidance,
		.plant = a->plant,
		.truth = v->truth,
		.bound = bound_run(v, a->config),
		.first = v->combined[0],
		.other = v->combined[1]};
	if (a->config->guidance == 0)
		return CPA_OK;
	return first ? cpa_combine_judge(&combine, &a->result->combined, error)
		     : cpa_combine_compare(&combine, error);
}

static enum cpa_status keep_hashes(struct attempt *a, struct cpa_error *error)
{
	a->result->hashes = cpa_result_hash_room(a->result);
	return cpa_ranks_hash(&a->ranks, a->result->hashes, error);
}

static enum cpa_status run_interleavings(struct attempt *a, struct cpa_error *error)
{
	struct cpa_verifier *v = a->v;
	struct cpa_inputs inputs = cpa_inputs_dense(&v->tensors);
	enum cpa_status s = cpa_ranks_upload(&a->ranks, &inputs, error);
	for (int i = 0; s == CPA_OK && i < v->settings.interleavings; i++) {
		uint64_t seed = seed_of(v, i);
		/* A run that fails shows its fault again alone. */
		a->trace->seed = seed;
		a->trace->interleavings = 1;
		s = cpa_ranks_run(&a->ranks, mode_of(seed), seed, error);
		if (s == CPA_OK)
			s = cpa_plant_move_outputs(a->plant, &a->ranks, error);
		if (s != CPA_OK)
			return s;
		if (i == 0 && v->settings.keep) {
			s = v->settings.keep(v->settings.keep_context, &a->ranks, error);
			if (s != CPA_OK)
				return s;
		}
		if (i == 0) {
			s = cpa_ranks_download(&a->ranks, v->o, v->lse, error);
			if (s == CPA_OK)
				s = keep_hashes(a, error);
			if (s == CPA_OK)
				s = judge_first(a, error);
			if (s == CPA_OK)
				s = combine(a, true, error);
			if (s != CPA_OK || a->wrong)
				return s;
			continue;
		}
		s = cpa_ranks_compare(&a->ranks, v->o, v->lse, error);
		if (s == CPA_OK)
			s = combine(a, false, error);
		if (s == CPA_MISMATCH) {
			a->trace->seed = seed_of(v, 0);
			a->trace->interleavings = i + 1;
		}
	}
	return s;
}

/* ---- probes ---- */

static struct cpa_exec_hook hook_of(void *context, int rank)
{
	struct attempt *a = context;
	return cpa_plant_hook(a->plant, rank);
}

static enum cpa_status run_probe(struct attempt *a, const struct cpa_probe *probe,
	struct cpa_probe_finding *finding, struct cpa_error *error)
{
	struct cpa_verifier *v = a->v;
	struct cpa_inputs inputs = cpa_probe_inputs(probe);
	struct cpa_bound_run run = bound_run(v, a->config);
	uint64_t seed = seed_of(v, 0);
	run.problem = probe->problem;
	if (a->plant)
		cpa_plant_set_inputs(a->plant, probe->problem, inputs);
	enum cpa_status s = cpa_ranks_upload(&a->ranks, &inputs, error);
	if (s == CPA_OK)
		s = cpa_ranks_run(&a->ranks, mode_of(seed), seed, error);
	if (s == CPA_OK)
		s = cpa_plant_move_outputs(a->plant, &a->ranks, error);
	if (s == CPA_OK)
		s = cpa_ranks_download(&a->ranks, v->o, v->lse, error);
	if (s == CPA_OK)
		s = cpa_probe_judge(probe, &run, v->o, v->lse, finding, error);
	return s;
}

static enum cpa_status run_probes(struct attempt *a, struct cpa_error *error)
{
	const struct cpa_problem *problem = &a->v->probe.problem;
	enum cpa_status s = CPA_OK;
	int npasses = cpa_probe_npasses(problem);
	if (a->v->probe.differs)
		s = cpa_ranks_restart(&a->ranks, problem, hook_of, a, error);
	for (int kind = 0; kind < CPA_NPROBES; kind++)
		for (int pass = 0; s == CPA_OK && pass < npasses; pass++) {
			struct cpa_probe probe;
			struct cpa_probe_finding f;
			if (!cpa_probe_init(
				    &probe, problem, (enum cpa_probe_kind)kind, pass))
				continue;
			s = run_probe(a, &probe, &f, error);
			if (s != CPA_OK)
				break;
			a->result->probe_ratio =
				fmax(a->result->probe_ratio, f.ratio); /* NaN gives way */
			if (f.ratio <= 1.0)
				continue;
			cpa_verify_say_probe(
				a->result, &a->ranks, cpa_probe_name(probe.kind), &f);
			a->wrong = true;
			a->trace->seed = seed_of(a->v, 0);
			a->trace->interleavings = 1;
			break;
		}
	return s;
}

/* ---- one configuration ---- */

static enum cpa_status plant(struct attempt *a, struct cpa_error *error)
{
	const struct cpa_verify_settings *settings = &a->v->settings;
	if (settings->fault < 0)
		return CPA_OK;
	struct cpa_plant_target target = {a->ranks.partition, a->ranks.schedules,
		settings->device, cpa_inputs_dense(&a->v->tensors), settings->guidance};
	enum cpa_status s = cpa_plant_create(
		settings->fault, &target, settings->fault_where, settings->fault_seed, &a->plant,
		error);
	if (s != CPA_OK)
		return s;
	const struct cpa_plant_site *site = cpa_plant_site(a->plant);
	a->trace->planted = true;
	a->trace->planted_rank = site->rank;
	a->trace->planted_hop = site->hop;
	a->trace->planted_block = site->block;
	memcpy(a->trace->plant, site->text, sizeof a->trace->plant);
	a->result->fault = settings->fault;
	a->result->fault_rank = site->rank;
	a->result->fault_op = site->op;
	a->result->fault_hop = site->hop;
	a->result->fault_block = site->block;
	memcpy(a->result->planted, site->text, sizeof a->result->planted);
	return CPA_OK;
}

static enum cpa_status keep_counts(struct attempt *a, struct cpa_error *error)
{
	size_t nbytes = (size_t)a->ranks.W * sizeof *a->result->counts;
	a->result->counts = cpa_result_alloc_counts(a->ranks.W);
	if (!a->result->counts)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for counts");
	memcpy(a->result->counts, a->ranks.counts, nbytes);
	return CPA_OK;
}

/* An lse that is kept in the dtype must fit it: fp16 ends at 65504. */
static enum cpa_status check_range(const struct attempt *a, struct cpa_error *error)
{
	const struct cpa_truth *truth = a->v->truth;
	const struct cpa_problem *p = &truth->problem;
	double limit = cpa_dtype_max(p->dtype), largest = 0;
	double sink = p->rule.sink ? 1.0 : 0.0; /* one more key */
	if (a->config->partials != CPA_PARTIALS_ALL)
		return CPA_OK;
	for (int64_t i = 0; i < (truth->held.batches.end - truth->held.batches.start) * truth->n * p->Hq; i++)
		if ((double)truth->rows[i].nvisible + sink > 0.0)
			largest = fmax(largest, truth->rows[i].max_abs +
				log((double)truth->rows[i].nvisible + sink));
	if (largest <= limit)
		return CPA_OK;
	return cpa_fail(error, CPA_UNSUPPORTED,
		"--partials all keeps lse in %s, which ends at %.6g, and |lse| of a block may reach "
		"%.3g here; --partials fp32 or block would work",
		cpa_dtype_name(p->dtype), limit, largest);
}

static enum cpa_status attempt(struct attempt *a, struct cpa_error *error)
{
	/* The proof first, so that a faulty plan is named by what is wrong with it. */
	enum cpa_status s = cpa_ranks_plan(&a->ranks, &a->v->problem, a->config, error);
	if (s == CPA_OK)
		s = keep_counts(a, error);
	if (s == CPA_OK)
		s = check_range(a, error);
	if (s == CPA_OK && a->config->guidance != 0)
		s = cpa_combine_check_range(a->v->truth, &a->v->settings.guidance, error);
	if (s == CPA_OK)
		s = plant(a, error);
	if (s == CPA_OK)
		s = measure_one_rank(a->v, a->config, error);
	if (s == CPA_OK)
		s = cpa_ranks_start(&a->ranks, a->v->settings.device, hook_of, a, error);
	if (s == CPA_OK)
		s = run_interleavings(a, error);
	if (s == CPA_OK)
		s = run_probes(a, error);
	return s;
}

static void conclude(struct attempt *a, enum cpa_status s, const struct cpa_error *error)
{
	struct cpa_result *result = a->result;
	if (s == CPA_MISMATCH) {
		cpa_verify_say(a->result, "%s", error->text);
		a->wrong = true;
	} else if (s != CPA_OK && !a->wrong) {
		snprintf(result->reason, sizeof result->reason, "%s", error->text);
	}
	if (a->wrong)
		result->verdict = CPA_VERDICT_WRONG;
	else if (s == CPA_UNSUPPORTED)
		result->verdict = CPA_VERDICT_UNSUPPORTED;
	else
		result->verdict = s == CPA_OK ? CPA_VERDICT_RIGHT : CPA_VERDICT_CANNOT_TELL;
	if (a->trace->planted && (a->wrong || s == CPA_OK))
		cpa_verify_say(a->result, a->wrong ? "planted: %s" : "planted and not seen: %s",
			a->trace->plant);
}

void cpa_verifier_run(struct cpa_verifier *v, const struct cpa_config *config,
	struct cpa_result *result, struct cpa_verify_trace *trace)
{
	struct cpa_verify_trace local;
	struct cpa_error error = {""};
	struct attempt a = {
		.v = v, .config = config, .result = result, .trace = trace ? trace : &local};
	double start = cpa_now();
	*a.trace = (struct cpa_verify_trace){.seed = seed_of(v, 0), .interleavings = 1};
	result->has_config = true;
	result->config = *config;
	assert(config->guidance == v->settings.guidance.nbranches);
	result->guidance = v->settings.guidance;
	result->problem = v->tensors.problem;
	result->device = v->settings.device->ops->name;
	result->comm = "fake";
	result->W = config->batch_degree * config->ring_degree * config->ulysses_degree;
	enum cpa_status s = attempt(&a, &error);
	conclude(&a, s, &error);
	cpa_plant_destroy(a.plant); /* which borrows the partition */
	cpa_ranks_fini(&a.ranks);
	result->seconds = cpa_now() - start;
}

enum cpa_status cpa_verify_check_range(
	struct cpa_truth *truth, const struct cpa_config *config, struct cpa_error *error)
{
	struct cpa_verifier v = {.truth = truth};
	struct attempt a = {.v = &v, .config = config};
	return check_range(&a, error);
}
