/*
 * test_fault_trial.h - a fault planted in a random problem, on 2 to 8 ranks in some variant: verify runs it
 * and records what ranks returned, check judges that, and diagnose names it.  For the table of
 * `make check-faults`, and its test.
 */
#ifndef CPA_TEST_FAULT_TRIAL_H
#define CPA_TEST_FAULT_TRIAL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/diagnose_report.h"
#include "harness/options.h"
#include "harness/record.h"
#include "harness/recording.h"
#include "harness/verify.h"

/* A command line of cpattn verify as text; argv points into the rest. */
struct fault_trial {
	char problem[400], number[4][24];
	const char *argv[32], *variant; /* the latter is among the former */
	int argc;
};

struct fault_outcome {
	bool ran, planted; /* false: the problem has no place for the fault */
	bool seen;         /* by verify */
	bool recorded, found; /* by check, in what the ranks returned */
	int nfindings;     /* of the best */
	bool named, tied;  /* with the right place; tied: beside other classes or places */
};
static inline int draw(uint64_t *state, int n)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (int)((*state >> 33) % (uint64_t)n);
}

/* ---- problems and configurations ---- */

static inline void add(struct fault_trial *d, const char *option, const char *value)
{
	d->argv[d->argc++] = option;
	if (value)
		d->argv[d->argc++] = value;
}

/* S tokens in one of the shapes that faults need; hides: rows that see nothing of a block. */
static inline void draw_problem(struct fault_trial *d, uint64_t *state, int S, bool hides)
{
	static const int hiding[] = {2, 3, 4, 6, 6};
	const char *dtype = draw(state, 2) ? "fp32" : "bf16", *causal = draw(state, 2) ? ",causal" : "";
	int text = 3 + draw(state, 4), cut = 1 + draw(state, S / 2), seed = 1 + draw(state, 1000);
	size_t n = sizeof d->problem;
	switch (hides ? hiding[draw(state, 5)] : draw(state, 12)) {
	case 0:
		snprintf(d->problem, n, "B=2,S=%d,Hq=8,Hkv=4,D=16,dtype=%s%s", S, dtype, causal);
		break;
	case 1:
		snprintf(d->problem, n, "B=1,S=%d,Hq=6,Hkv=3,D=20,scale=0.4,dtype=%s%s", S, dtype,
			causal);
		break;
	case 2:
		snprintf(d->problem, n, "B=2,S=%d,H=8,D=16,dtype=%s%s,window=%d:%d", S, dtype,
			causal, 2 + draw(state, 8), causal[0] ? 0 : draw(state, 5));
		break;
	case 3:
		snprintf(d->problem, n, "B=1,S=%d,H=8,D=16,dtype=%s%s,documents=0:%d:%d:%d", S,
			dtype, causal, cut, cut + 1 + draw(state, S - cut - 1), S);
		break;
	case 4:
		snprintf(d->problem, n, "B=2,S=%d,Hq=8,Hkv=4,D=16,dtype=%s%s,mask=bool:1xHx%cxK:%d",
			S, dtype, causal, draw(state, 2) ? 'Q' : '1', seed);
		break;
	case 5:
		snprintf(d->problem, n, "B=2,S=%d,H=8,D=16,dtype=%s%s,mask=bias:Bx1xQxK:%d", S,
			dtype, causal, seed);
		break;
	case 6:
		snprintf(d->problem, n, "B=2,S=%d,Hq=8,Hkv=2,D=16,dtype=%s%s,key_lengths=%d:%d", S,
			dtype, causal, hides ? cut : S - cut, S - draw(state, 3));
		break;
	case 7:
	case 8:
		snprintf(d->problem, n,
			"B=2,S=%d,H=8,D=16,dtype=%s%s,segments=text:%d:replicated/image:%d:split",
			S + text, dtype, causal, text, S);
		break;
	case 9:
		snprintf(d->problem, n,
			"B=2,Sq=%d,Skv=%d,H=8,D=16,dtype=%s,segments_kv=text:%d:replicated", S,
			S / 2, dtype, S / 2);
		break;
	case 10:
		snprintf(d->problem, n, "B=1,S=%d,H=8,D=16,dtype=%s%s,sink=random", S, dtype,
			causal);
		break;
	default:
		snprintf(d->problem, n, "B=2,Sq=%d,Skv=%d,H=8,D=16,dtype=%s,causal,offset=%d", S,
			S + cut, dtype, cut);
	}
}

/* fault: "NAME" or "NAME:where", "" for none.  state: of the random numbers, any to begin. */
static inline void fault_trial_draw(struct fault_trial *d, uint64_t *state, const char *fault)
{
	static const char *const orders[] = {"contiguous", "contiguous", "zigzag", "striped"};
	static const char *const rotates[] = {"p2p", "p2p", "allgather", "direct"};
	static const char *const strict[] = {"unified", "ring", "ulysses"};
	static const char *const loose[] = {
		"unified_anything", "ring_anything", "ulysses_anything"};
	struct cpa_fault_where ignored;
	struct cpa_error error;
	int number = -1;
	const char *class = fault[0] && cpa_fault_parse(fault, &number, &ignored, &error) == CPA_OK
				    ? cpa_fault_class(number)
				    : "";
	bool guided = class[0] == 'H';
	bool merges = strcmp(class, "A05") == 0, hides = merges || strcmp(class, "A06") == 0;
	int R = 1 + draw(state, 6), U = 1 + draw(state, 3);
	/* Two blocks in a row that hide all takes a long ring. */
	while (R * U < 2 || R * U > 8 || (merges && R < 4)) {
		R = 1 + draw(state, 8);
		U = 1 << draw(state, 4);
	}
	int S = draw(state, 2) ? 2 * R * U * (1 + draw(state, 4)) : draw(state, 6) ? 10 + draw(state, 34) : R * U + 2;
	const char *const *names = S % (2 * R * U) == 0 && 8 % U == 0 && draw(state, 3) == 0 ? strict
									       : loose;
	*d = (struct fault_trial){.argc = 0};
	draw_problem(d, state, S, hides);
	if (guided)
		snprintf(d->problem, sizeof d->problem, "B=3,S=%d,H=8,D=16,dtype=fp32", S);
	add(d, "cpattn", "verify");
	add(d, "--problem", d->problem);
	d->variant = names[R > 1 && U > 1 ? 0 : R > 1 ? 1 : 2];
	add(d, "--variant", d->variant);
	snprintf(d->number[0], sizeof d->number[0], "%d", R);
	snprintf(d->number[1], sizeof d->number[1], "%d", U);
	snprintf(d->number[2], sizeof d->number[2], "%d", 1 + draw(state, 1000000));
	snprintf(d->number[3], sizeof d->number[3], "%d", R * U);
	add(d, "--ring", d->number[0]);
	add(d, "--ulysses", d->number[1]);
	add(d, "--seed", d->number[2]);
	add(d, "--ranks", d->number[3]);
	add(d, "--batch", "1");
	add(d, "--order", orders[draw(state, 4)]);
	add(d, "--rotate", R > 1 ? rotates[draw(state, 4)] : "p2p");
	add(d, "--direction", draw(state, 4) ? "up" : "down");
	if (draw(state, 8) == 0 || strcmp(class, "A04") == 0)
		add(d, "--fill", "extreme");
	if (guided)
		add(d, "--guidance", "3.5:2");
	if (fault[0])
		add(d, "--fault", fault);
}

/* ---- one run ---- */

struct run {
	struct cpa_options options;
	struct cpa_tensors tensors;
	void *data[3];
	struct cpa_config config;
	int nconfigs;
	struct cpa_record record;
	bool recorded;
	struct cpa_verify_trace trace;
	struct cpa_result result;
};

static inline bool collect(void *context, const struct cpa_config *config)
{
	struct run *run = context;
	if (run->nconfigs++ == 0)
		run->config = *config;
	return true;
}

static inline enum cpa_status keep(void *context, struct cpa_ranks *ranks, struct cpa_error *error)
{
	struct run *run = context;
	enum cpa_status s = cpa_record_ranks(&run->record, ranks, error);
	run->recorded = s == CPA_OK;
	return s;
}

static inline enum cpa_status verify(
	struct run *run, const char *path, struct cpa_device *device, struct cpa_error *error)
{
	const struct cpa_options *o = &run->options;
	struct cpa_verify_settings settings = {.device = device,
		.interleavings = 2,
		.seed = 1,
		.guidance = o->guidance,
		.fault = o->fault ? o->fault_number : -1,
		.fault_where = &o->fault_where,
		.fault_seed = o->seed,
		.keep = keep,
		.keep_context = run};
	struct cpa_verifier *verifier;
	enum cpa_status s = cpa_sweep(o, &o->problem, CPA_ROTATE_CHOICE_ALL,
		device->fp64_partials, collect, run, error);
	if (s != CPA_OK || run->nconfigs == 0)
		return CPA_UNSUPPORTED;
	run->record = (struct cpa_record){path, &run->tensors, &o->guidance};
	s = cpa_verifier_create(&settings, &run->tensors, NULL, &verifier, error);
	if (s != CPA_OK)
		return s;
	cpa_verifier_run(verifier, &run->config, &run->result, &run->trace);
	cpa_verifier_destroy(verifier);
	return CPA_OK;
}

/* A place that is said must be the right one. */
static inline bool is_place(const struct run *run, const struct cpa_finding *f)
{
	const struct cpa_verify_trace *t = &run->trace;
	return (f->rank < 0 || t->planted_rank < 0 || f->rank == t->planted_rank) &&
	       (f->hop < 0 || t->planted_hop < 0 || f->hop == t->planted_hop) &&
	       (f->block < 0 || t->planted_block < 0 || f->block == t->planted_block);
}

static inline void compare(const struct run *run, const struct cpa_diagnosis *d, struct fault_outcome *out)
{
	int nright = 0;
	for (int i = 0; i < d->nties; i++)
		nright += strcmp(d->findings[i].class,
				  cpa_fault_class(run->options.fault_number)) == 0 &&
			  is_place(run, &d->findings[i]);
	out->nfindings = d->nties;
	out->named = nright > 0 && nright == d->nties;
	out->tied = nright > 0 && nright < d->nties;
}

static inline enum cpa_status check(struct run *run, const char *path, struct fault_outcome *out,
	struct cpa_error *error)
{
	struct cpa_recording *recording;
	const struct cpa_diagnosis *diagnosis;
	struct cpa_check_rules rules = {
		cpa_arithmetic_default(run->options.problem.dtype), CPA_PARTIALS_BLOCK};
	struct cpa_checked checked;
	struct cpa_arena arena;
	enum cpa_status s = cpa_recording_open(path, &recording, error);
	if (s != CPA_OK)
		return s;
	cpa_arena_init(&arena);
	s = cpa_checked_init(&checked, recording, 0, 0, error);
	for (int rank = 0; s == CPA_OK && rank < run->result.W; rank++) {
		struct cpa_check_part part;
		s = cpa_check_part(&checked, recording, 0, rank, &rules, &arena, &part, error);
		out->found |= s == CPA_OK && (part.has_o || part.has_lse) && !part.right;
	}
	if (s == CPA_OK && out->found && run->options.fault)
		s = cpa_diagnosis_make(
			&checked, recording, 0, &rules, &arena, &diagnosis, error);
	if (s == CPA_OK && out->found && run->options.fault)
		compare(run, diagnosis, out);
	cpa_checked_fini(&checked);
	cpa_arena_fini(&arena);
	cpa_recording_close(recording);
	return s;
}

static inline void fault_trial_print(FILE *out, const struct fault_trial *d)
{
	for (int i = 0; i < d->argc; i++)
		fprintf(out, "%s%s", i ? " " : "", d->argv[i]);
	fputc('\n', out);
}

/* path: of a file that it may overwrite.  *failed: something else went wrong, and was printed. */
static inline struct fault_outcome fault_trial_run(
	const struct fault_trial *d, const char *path, struct cpa_device *device, bool *failed)
{
	struct run run = {.nconfigs = 0};
	struct fault_outcome out = {0};
	struct cpa_error error = {""};
	cpa_result_init(&run.result);
	enum cpa_status s = cpa_options_parse(
		d->argc, (char **)(uintptr_t)d->argv, &run.options, &error);
	if (s == CPA_OK)
		s = cpa_inputs_make(&run.options.problem, run.options.fill, run.options.seed,
			run.data, &run.tensors, &error);
	if (s == CPA_OK)
		s = verify(&run, path, device, &error);
	out.ran = s == CPA_OK && run.result.verdict != CPA_VERDICT_UNSUPPORTED;
	out.planted = out.ran && run.trace.planted;
	out.seen = out.ran && run.result.verdict == CPA_VERDICT_WRONG;
	if (out.ran && run.result.verdict == CPA_VERDICT_CANNOT_TELL)
		s = cpa_fail(&error, CPA_EXTERNAL, "%s", run.result.reason);
	out.recorded = run.recorded;
	if (out.ran && run.recorded)
		s = check(&run, path, &out, &error);
	if (s != CPA_OK && s != CPA_UNSUPPORTED) {
		printf("# failed: %s\n#   ", error.text);
		fault_trial_print(stdout, d);
		*failed = true;
	}
	free(run.result.counts);
	for (int i = 0; i < 3; i++)
		free(run.data[i]);
	cpa_options_fini(&run.options);
	return out;
}

#endif
