/*
 * verify_rank.c - one configuration in a world of processes.
 *
 * Whatever may fail on one rank alone is followed by an agreement, so that all go on or none
 * does.  From the making of communicators to the end of a run there is no time to agree: a
 * failure there ends all.
 */
#include "harness/clock.h"
#include "harness/place.h"
#include "harness/verify_rank.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/probe.h"
#include "harness/ranks.h"
#include "harness/verify.h"
#include "harness/verify_rank_parts.h"

/* ---- lifetime ---- */

enum cpa_status cpa_rank_verifier_create(const struct cpa_rank_settings *settings,
	struct cpa_rank_verifier **verifier, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = calloc(1, sizeof *v);
	size_t heads = (size_t)(settings->problem->B * settings->problem->Hq);
	enum cpa_status s = v
		? settings->device->ops->supports(settings->device, settings->problem, error)
		: cpa_fail(error, CPA_NO_MEMORY, "out of memory for a call");

	if (s == CPA_OK) {
		v->settings = *settings;
		v->one_rank = malloc(heads * sizeof *v->one_rank);
		s = v->one_rank ? cpa_probe_problem_init(&v->probe, settings->problem, error)
				: cpa_fail(error, CPA_NO_MEMORY, "out of memory for a call");
	}
	s = cpa_world_agree(settings->world, s, error);
	if (s == CPA_OK)
		*verifier = v;
	else
		cpa_rank_verifier_destroy(v);
	return s;
}

void cpa_rank_verifier_destroy(struct cpa_rank_verifier *v)
{
	if (!v)
		return;
	cpa_rank_forget_rows(v);
	cpa_probe_problem_fini(&v->probe);
	free(v->one_rank);
	free(v);
}

/* Others wait for this rank, and cannot be told otherwise. */
static enum cpa_status or_end_all(
	struct cpa_rank_run *run, enum cpa_status s, struct cpa_error *error)
{
	if (s != CPA_OK)
		cpa_world_abort(run->v->settings.world, error);
	return s;
}

/* ---- running ---- */

/* Executors are made anew for another problem, as that of the probes may be. */
static enum cpa_status start(
	struct cpa_rank_run *run, const struct cpa_problem *problem, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	const struct cpa_exec_options options = {.poison = true};
	size_t before;
	enum cpa_status s;

	cpa_exec_destroy(run->exec);
	run->exec = NULL;
	run->ran = false;
	if (run->plan->nbuffers == 0)
		return CPA_OK; /* a batch group without items */
	before = v->settings.device->nbytes;
	s = cpa_exec_create(run->plan, problem, v->settings.device,
		cpa_world_comm(v->settings.world, run->rank), &options, &run->exec, error);
	if (s == CPA_OK &&
		(int64_t)(v->settings.device->nbytes - before) != run->counts.peak_bytes)
		s = cpa_fail(error, CPA_MISMATCH,
			"the device holds %" PRId64 " bytes more; the plan says %" PRId64,
			(int64_t)(v->settings.device->nbytes - before), run->counts.peak_bytes);
	return or_end_all(run, s, error);
}

static size_t box_nbytes(const struct cpa_rank_run *run, const struct cpa_box *box)
{
	const struct cpa_buffer *buffer = &run->plan->buffers[box->buffer];

	return (size_t)cpa_box_nelements(buffer, box) * cpa_dtype_nbytes(buffer->dtype);
}

static enum cpa_status wrong_size(
	const struct cpa_rank_run *run, const struct cpa_box *box, struct cpa_error *error)
{
	return cpa_fail(error, CPA_MISMATCH,
		"buffer \"%s\" of rank %d is not of the size of its shard",
		run->plan->buffers[box->buffer].name, run->rank);
}

static enum cpa_status upload_one(struct cpa_rank_run *run, const struct cpa_source *source,
	const struct cpa_problem *problem, enum cpa_tensor tensor, struct cpa_error *error)
{
	struct cpa_box box;
	const struct cpa_spans *tokens = tensor == CPA_TENSOR_Q ? &run->q_shard : &run->kv_shard;
	size_t nbytes = cpa_token_nbytes(problem, tensor) *
		(size_t)(cpa_spans_ntokens(tokens) * (run->batches.end - run->batches.start));
	enum cpa_status s;
	void *staging;

	if (nbytes == 0 || !cpa_schedule_find(run->plan, CPA_ROLE_INPUT, tensor, &box))
		return CPA_OK;
	if (box_nbytes(run, &box) != nbytes)
		return wrong_size(run, &box, error);
	staging = malloc(nbytes);
	if (!staging)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for a shard");
	s = source->read(source->context, problem, tensor, run->batches, tokens, staging, error);
	if (s == CPA_OK)
		s = cpa_place_put(run->v->settings.device, run->exec, &box, staging, error);
	free(staging);
	return s;
}

static enum cpa_status upload(struct cpa_rank_run *run, const struct cpa_source *source,
	const struct cpa_problem *problem, struct cpa_error *error)
{
	static const enum cpa_tensor tensors[] = {CPA_TENSOR_Q, CPA_TENSOR_K, CPA_TENSOR_V};
	enum cpa_status s = CPA_OK;

	for (int i = 0; s == CPA_OK && i < 3 && run->exec; i++)
		s = upload_one(run, source, problem, tensors[i], error);
	return cpa_rank_agree(run, s, error);
}

static enum cpa_status check_transport(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_comm *comm = cpa_world_comm(run->v->settings.world, run->rank);
	const struct cpa_counts *planned = &run->counts;

	if (comm->bytes_sent == planned->bytes_sent && comm->messages == planned->messages)
		return CPA_OK;
	return cpa_fail(error, CPA_MISMATCH,
		"rank %d sent %" PRId64 " bytes in %" PRId64 " messages; its plan says %" PRId64
		" bytes in %" PRId64,
		run->rank, comm->bytes_sent, comm->messages, planned->bytes_sent,
		planned->messages);
}

/* One run; all start together. */
static enum cpa_status run_once(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;

	if (run->ran && run->exec)
		s = cpa_exec_reset(run->exec, error);
	run->ran = true;
	s = cpa_rank_agree(run, s, error);
	if (s != CPA_OK)
		return s;
	s = cpa_world_run(run->v->settings.world, &run->exec, CPA_FAKE_EAGER, 1, error);
	s = or_end_all(run, s, error);
	if (s == CPA_OK)
		s = check_transport(run, error);
	return cpa_rank_agree(run, s, error);
}

/* ---- outputs ---- */

static size_t output_nbytes(const struct cpa_rank_run *run, enum cpa_tensor tensor)
{
	return cpa_token_nbytes(run->v->settings.problem, tensor) *
		(size_t)(run->held.ntokens * (run->batches.end - run->batches.start));
}

static enum cpa_status download(
	struct cpa_rank_run *run, enum cpa_tensor tensor, void *to, struct cpa_error *error)
{
	size_t nbytes = output_nbytes(run, tensor);
	struct cpa_box box;

	memset(to, 0xff, nbytes); /* what nobody writes stays NaN */
	if (nbytes == 0 || !run->exec ||
		!cpa_schedule_find(run->plan, CPA_ROLE_OUTPUT, tensor, &box))
		return CPA_OK;
	return box_nbytes(run, &box) == nbytes
		? cpa_place_get(run->v->settings.device, run->exec, &box, to, error)
		: wrong_size(run, &box, error);
}

static enum cpa_status download_all(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = download(run, CPA_TENSOR_O, run->v->o, error);

	return s == CPA_OK && run->v->lse ? download(run, CPA_TENSOR_LSE, run->v->lse, error) : s;
}

static uint64_t hash_outputs(const struct cpa_rank_run *run)
{
	uint64_t h = cpa_hash(0, run->v->o, output_nbytes(run, CPA_TENSOR_O));

	return run->v->lse ? cpa_hash(h, run->v->lse, output_nbytes(run, CPA_TENSOR_LSE)) : h;
}

/* Rows that all ranks of a group hold must be the same bits on all of them. */
static enum cpa_status check_replicated(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_partition *part = run->ranks.partition;
	int64_t n = cpa_spans_ntokens(&part->q.replicated), first = run->held.ntokens - n;
	size_t row = cpa_token_nbytes(run->v->settings.problem, CPA_TENSOR_O);
	uint64_t own = 0, *all;
	enum cpa_status s;

	if (n == 0)
		return CPA_OK;
	for (int64_t b = 0; b < run->batches.end - run->batches.start; b++)
		own = cpa_hash(own,
			(char *)run->v->o + (size_t)(b * run->held.ntokens + first) * row,
			(size_t)n * row);
	all = malloc((size_t)part->W * sizeof *all);
	s = cpa_rank_agree(
		run, all ? CPA_OK : cpa_fail(error, CPA_NO_MEMORY, "out of memory"), error);
	if (s == CPA_OK)
		s = cpa_world_gather(run->v->settings.world, &own, sizeof own, all, error);
	for (int rank = 0; s == CPA_OK && rank < part->W; rank++) {
		struct cpa_coords at = cpa_partition_coords(part, rank);

		if (at.b == cpa_partition_coords(part, run->rank).b && all[rank] != own)
			s = cpa_fail(error, CPA_MISMATCH,
				"o of the replicated rows has other bits than on rank %d", rank);
	}
	free(all);
	return cpa_rank_agree(run, s, error);
}

static enum cpa_status judge(struct cpa_rank_run *run, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	const struct cpa_problem *p = v->settings.problem;
	struct cpa_rank_combining combining = {v->settings.world, p->B * p->Hq};
	struct cpa_judgement judgement;
	struct cpa_judge_run judged = {
		.bound = cpa_verify_bound_run(
			v->settings.device, v->settings.problem, run->config),
		.o = v->o,
		.lse = v->lse,
		.one_rank = v->one_rank,
		.combine = cpa_rank_combine,
		.context = &combining,
	};
	enum cpa_status s = cpa_judge(v->truth, &judged, &judgement, error);

	if (s != CPA_OK)
		return s;
	run->result->o = judgement.o;
	run->result->lse = judgement.lse;
	if (!judgement.right)
		cpa_verify_say_judgement(run->result, &run->ranks, &judgement);
	return CPA_OK;
}

static enum cpa_status judge_first(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = cpa_rank_agree(run, download_all(run, error), error);

	if (s != CPA_OK)
		return s;
	run->hash = hash_outputs(run);
	run->result->hashes = cpa_result_hash_room(run->result);
	s = cpa_world_gather(
		run->v->settings.world, &run->hash, sizeof run->hash, run->result->hashes, error);
	if (s == CPA_OK)
		s = judge(run, error);
	return s == CPA_OK ? check_replicated(run, error) : s;
}

static enum cpa_status compare(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = download_all(run, error);

	if (s == CPA_OK && hash_outputs(run) != run->hash)
		s = cpa_fail(error, CPA_MISMATCH,
			"the outputs of rank %d have other bits than in the first run",
			run->rank);
	return cpa_rank_agree(run, s, error);
}

static enum cpa_status run_all(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_rank_settings *settings = &run->v->settings;
	enum cpa_status s = start(run, settings->problem, error);

	if (s == CPA_OK)
		s = upload(run, &settings->source, settings->problem, error);
	for (int i = 0; s == CPA_OK && !run->result->reason[0] && i < settings->interleavings;
		i++) {
		s = run_once(run, error);
		if (s == CPA_OK)
			s = i == 0 ? judge_first(run, error) : compare(run, error);
	}
	return s;
}

/* ---- probes ---- */

static enum cpa_status read_probe(void *context, const struct cpa_problem *problem,
	enum cpa_tensor tensor, struct cpa_range batches, const struct cpa_spans *tokens,
	void *dst, struct cpa_error *error)
{
	struct cpa_inputs inputs = cpa_probe_inputs(context);

	(void)problem, (void)error;
	inputs.read(inputs.context, tensor, batches, tokens, dst);
	return CPA_OK;
}

/* The worst of all ranks. */
static enum cpa_status gather_findings(
	struct cpa_rank_run *run, struct cpa_probe_finding *finding, struct cpa_error *error)
{
	struct cpa_world *world = run->v->settings.world;
	struct cpa_probe_finding own = *finding, *all;
	enum cpa_status s;

	all = malloc((size_t)cpa_world_size(world) * sizeof *all);
	s = cpa_rank_agree(
		run, all ? CPA_OK : cpa_fail(error, CPA_NO_MEMORY, "out of memory"), error);
	if (s == CPA_OK)
		s = cpa_world_gather(world, &own, sizeof own, all, error);
	for (int rank = 0; s == CPA_OK && rank < cpa_world_size(world); rank++)
		if (rank == 0 || all[rank].ratio > finding->ratio)
			*finding = all[rank];
	free(all);
	return s;
}

static enum cpa_status run_probe(
	struct cpa_rank_run *run, struct cpa_probe *probe, struct cpa_error *error)
{
	struct cpa_rank_verifier *v = run->v;
	struct cpa_source source = {read_probe, probe};
	struct cpa_bound_run bound = cpa_verify_bound_run(
		v->settings.device, v->settings.problem, run->config);
	struct cpa_probe_finding finding = {0};
	enum cpa_status s = upload(run, &source, probe->problem, error);

	bound.problem = probe->problem;
	if (s == CPA_OK)
		s = run_once(run, error);
	if (s != CPA_OK)
		return s;
	s = download_all(run, error);
	if (s == CPA_OK)
		s = cpa_probe_judge_rows(
			probe, &bound, &run->held, v->o, v->lse, &finding, error);
	s = cpa_rank_agree(run, s, error);
	if (s == CPA_OK)
		s = gather_findings(run, &finding, error);
	if (s != CPA_OK)
		return s;
	run->result->probe_ratio = fmax(run->result->probe_ratio, finding.ratio);
	if (finding.ratio > 1.0)
		cpa_verify_say_probe(
			run->result, &run->ranks, cpa_probe_name(probe->kind), &finding);
	return CPA_OK;
}

static enum cpa_status run_probes(struct cpa_rank_run *run, struct cpa_error *error)
{
	const struct cpa_probe_problem *it = &run->v->probe;
	enum cpa_status s = CPA_OK;

	if (it->differs)
		s = start(run, &it->problem, error);
	for (int kind = 0; kind < CPA_NPROBES; kind++)
		for (int pass = 0; s == CPA_OK && pass < cpa_probe_npasses(&it->problem);
			pass++) {
			struct cpa_probe probe;

			if (cpa_probe_init(&probe, &it->problem, (enum cpa_probe_kind)kind, pass))
				s = run_probe(run, &probe, error);
			if (run->result->probe_ratio > 1.0)
				break;
		}
	return s;
}

/* ---- one configuration ---- */

static enum cpa_status attempt(struct cpa_rank_run *run, struct cpa_error *error)
{
	enum cpa_status s = cpa_rank_plan(run, error);

	if (s == CPA_OK)
		s = cpa_rank_know_rows(run, error);
	if (s == CPA_OK)
		s = cpa_rank_agree(
			run, cpa_verify_check_range(run->v->truth, run->config, error), error);
	if (s == CPA_OK)
		s = run_all(run, error);
	if (s == CPA_OK)
		s = run_probes(run, error);
	return s;
}

static void conclude(struct cpa_result *result, enum cpa_status s, const struct cpa_error *error)
{
	bool wrong = result->reason[0] != '\0';

	if (s == CPA_MISMATCH) {
		cpa_verify_say(result, "%s", error->text);
		wrong = true;
	} else if (s != CPA_OK && !wrong) {
		snprintf(result->reason, sizeof result->reason, "%s", error->text);
	}
	if (wrong)
		result->verdict = CPA_VERDICT_WRONG;
	else if (s == CPA_UNSUPPORTED)
		result->verdict = CPA_VERDICT_UNSUPPORTED;
	else
		result->verdict = s == CPA_OK ? CPA_VERDICT_RIGHT : CPA_VERDICT_CANNOT_TELL;
}

void cpa_rank_verifier_run(
	struct cpa_rank_verifier *v, const struct cpa_config *config, struct cpa_result *result)
{
	struct cpa_error error = {""};
	struct cpa_rank_run run = {.v = v,
		.config = config,
		.result = result,
		.rank = cpa_world_first(v->settings.world)};
	double start_time = cpa_now();
	enum cpa_status s;

	result->has_config = true;
	result->config = *config;
	result->problem = v->settings.problem;
	result->device = v->settings.device->ops->name;
	result->comm = cpa_world_name(v->settings.world);
	result->W = cpa_world_size(v->settings.world);
	s = attempt(&run, &error);
	conclude(result, s, &error);
	cpa_exec_destroy(run.exec);
	cpa_schedule_destroy(run.own_plan);
	cpa_ranks_fini(&run.ranks);
	result->seconds = cpa_now() - start_time;
}
