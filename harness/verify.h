/*
 * verify.h - one call on one device: every configuration against full attention.
 */
#ifndef CPA_VERIFY_H
#define CPA_VERIFY_H

#include "dist/dist.h"
#include "harness/fault.h"
#include "harness/judge.h"

struct cpa_ranks;
struct cpa_verify_settings {
	struct cpa_device *device; /* borrowed */
	int interleavings;         /* >= 1 */
	uint64_t seed;       /* of the first interleaving: an odd seed runs eager, an even one
				rendezvous; the next ones have the next seeds */
	struct cpa_guidance guidance; /* its branches are those of all configurations; 0: none */
	int fault;           /* number of a planted fault, -1: none */
	const struct cpa_fault_where *fault_where; /* NULL: anywhere */
	uint64_t fault_seed; /* which of the places */
	/* After the first interleaving, right or wrong, what every rank returned; NULL: not asked
	 * for.  What it fails with is the failure of the run. */
	enum cpa_status (*keep)(void *context, struct cpa_ranks *ranks, struct cpa_error *error);
	void *keep_context;
};

/* What cannot be read from the result. */
struct cpa_verify_trace {
	uint64_t seed; /* interleavings, and the first seed, that show a wrong result again */
	int interleavings;
	bool planted; /* a place was found for the fault */
	int planted_rank; /* -1: every rank */
	int planted_hop, planted_block; /* -1: no one of them */
	bool o_at_plant,
		lse_at_plant; /* the worst element is among the outputs that the fault spoils */
	char plant[256];
};

struct cpa_verifier;
/* Computes the reference.  tensors [dense] and settings are borrowed; wanted as in
 * cpa_truth_create(). CPA_UNSUPPORTED: the device cannot do this problem. */
enum cpa_status cpa_verifier_create(const struct cpa_verify_settings *settings,
	const struct cpa_tensors *tensors, const bool *wanted, struct cpa_verifier **verifier,
	struct cpa_error *error);
void cpa_verifier_destroy(struct cpa_verifier *verifier);

/*
 * Plans, proves, runs and judges one configuration.  Fills config, problem, device, comm,
 * verdict, reason, o, lse, probe_ratio, W, counts (malloc, the caller's) and seconds of a
 * result that was initialised. trace may be NULL.
 */
void cpa_verifier_run(struct cpa_verifier *verifier, const struct cpa_config *config,
	struct cpa_result *result, struct cpa_verify_trace *trace);

/* What the bounds of a run of this configuration follow from. */
struct cpa_bound_run cpa_verify_bound_run(const struct cpa_device *device,
	const struct cpa_problem *problem, const struct cpa_config *config);

/*
 * Parts of it, for a run of which this process has one rank too.  say: adds to result->reason.  Of ranks
 * only the partition is needed.
 */
struct cpa_probe_finding;
void cpa_verify_say(struct cpa_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void cpa_verify_say_judgement(struct cpa_result *result, const struct cpa_ranks *ranks,
	const struct cpa_judgement *judgement);
void cpa_verify_say_probe(struct cpa_result *result, const struct cpa_ranks *ranks,
	const char *probe, const struct cpa_probe_finding *finding);
/* With --partials all, whether every lse of a block fits the dtype; else CPA_UNSUPPORTED. */
enum cpa_status cpa_verify_check_range(
	struct cpa_truth *truth, const struct cpa_config *config, struct cpa_error *error);

#endif
