/*
 * test_lost_run.h - a ring of four ranks in single precision, with merges as others write them;
 * its recording, and what is said of it.  Nothing here knows what diagnose predicts.
 */
#ifndef CPA_TEST_LOST_RUN_H
#define CPA_TEST_LOST_RUN_H

#include "harness/test_recording.h"

#include <math.h>
#include <unistd.h>

#include "harness/check_report.h"
#include "harness/diagnose_report.h"
#include "harness/options.h"
#include "harness/test_directory.h"

enum { B = 2, H = 2, D = 4, MOST = 24, P = 4 };

/* ---- a ring in single precision ---- */

struct partial {
	float o[D], lse;
};

/* Of the next partial, the i-th, into the sum so far. */
typedef void merge(struct partial *sum, const struct partial *next, int i);

static struct ring {
	struct cpa_options options;
	struct cpa_problem problem;
	float q[B * MOST * H * D], k[B * MOST * H * D], v[B * MOST * H * D];
	float o[B * MOST * H * D], lse[B * MOST * H];
	void (*empty)(struct partial *); /* what a block becomes that shows no key; NULL: right */
	merge *merge;
	int only; /* the rank that has the fault; -1: all */
} ring;

static struct partial attend(int64_t b, int64_t t, int64_t h, int64_t first, int64_t end)
{
	const struct cpa_problem *p = &ring.problem;
	struct cpa_range seen = cpa_rule_row(p, b, t);
	struct partial x = {.lse = -INFINITY};
	float max = -INFINITY, total = 0, score[MOST];

	for (int64_t j = first; j < end; j++) {
		score[j] = j >= seen.start && j < seen.end ? (float)cpa_mask_value(p, b, h, t, j)
							   : -INFINITY;
		for (int64_t d = 0; d < D; d++)
			score[j] += (float)p->scale * ring.q[((b * p->Sq + t) * H + h) * D + d] *
				ring.k[((b * p->Sq + j) * H + h) * D + d];
		max = fmaxf(max, score[j]);
	}
	if (max == -INFINITY)
		return x;
	for (int64_t j = first; j < end; j++) {
		total += expf(score[j] - max);
		for (int64_t d = 0; d < D; d++)
			x.o[d] += expf(score[j] - max) *
				ring.v[((b * p->Sq + j) * H + h) * D + d];
	}
	for (int64_t d = 0; d < D; d++)
		x.o[d] /= total;
	x.lse = max + logf(total);
	return x;
}

static void right_merge(struct partial *sum, const struct partial *next, int i)
{
	float max = fmaxf(sum->lse, next->lse), x = expf(sum->lse - max),
	      y = expf(next->lse - max);

	(void)i;
	if (next->lse == -INFINITY)
		return;
	for (int64_t d = 0; d < D; d++)
		sum->o[d] = (x * sum->o[d] + y * next->o[d]) / (x + y);
	sum->lse = max + logf(x + y);
}

/* First token of rank r; the first ranks take one more. */
static int64_t start(int64_t r)
{
	int64_t S = ring.problem.Sq;

	return r * (S / P) + (r < S % P ? r : S % P);
}

static int64_t rank_of(int64_t t)
{
	int64_t r = 0;

	while (t >= start(r + 1))
		r++;
	return r;
}

static void run_row(int64_t b, int64_t t, int64_t h)
{
	int64_t r = rank_of(t), at = (b * ring.problem.Sq + t) * H + h;
	bool faulty = ring.only < 0 || ring.only == r;
	struct partial sum = {.lse = -INFINITY};

	for (int i = 0; i < P; i++) {
		int64_t block = (r - i + P) % P;
		struct partial x = attend(b, t, h, start(block), start(block + 1));

		if (faulty && ring.empty && x.lse == -INFINITY)
			ring.empty(&x);
		(faulty && ring.merge ? ring.merge : right_merge)(&sum, &x, i);
	}
	memcpy(&ring.o[at * D], sum.o, sizeof sum.o);
	ring.lse[at] = sum.lse;
}

/* rule: of the problem, as --problem has it. */
static void set_up(const char *rule, int S)
{
	char problem[200], *argv[] = {"cpattn", "verify", "--problem", problem};
	struct cpa_options o;
	struct cpa_error error;
	float *tensors[3] = {ring.q, ring.k, ring.v};

	snprintf(problem, sizeof problem, "B=2,S=%d,H=2,D=4,dtype=fp32%s", S, rule);
	assert_int_equal(cpa_options_parse(4, argv, &o, &error), CPA_OK);
	cpa_options_fini(&ring.options);
	ring.options = o; /* what the rule points to */
	ring.problem = o.problem;
	ring.problem.lse = true;
	for (int i = 0; i < 3; i++)
		cpa_inputs_fill(&ring.problem, CPA_FILL_NORMAL, 3,
			(enum cpa_tensor)(CPA_TENSOR_Q + i), tensors[i]);
	for (int64_t n = 0; n < (int64_t)B * S * H; n++)
		run_row(n / H / S, n / H % S, n % H);
}

/* ---- its recording ---- */

static const int64_t numbers[MOST] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};

/* o, lse or (of the run's inputs) q of one rank. */
static void take(struct cpa_run_part *part, int rank, const char *tensor, const float *whole,
	int dim, float *data)
{
	int64_t S = ring.problem.Sq, n = start(rank + 1) - start(rank), row = H * dim;

	part->held = (struct cpa_held){.rank = rank,
		.dtype = CPA_DTYPE_FP32,
		.nbatches = B,
		.ntokens = n,
		.nheads = H,
		.dim = dim,
		.batches = numbers,
		.tokens = numbers + start(rank),
		.heads = numbers};
	snprintf(part->held.tensor, sizeof part->held.tensor, "%s", tensor);
	for (int64_t b = 0; b < B; b++)
		memcpy(data + b * n * row, whole + (b * S + start(rank)) * row,
			(size_t)(n * row) * sizeof *data);
	part->data = data;
}

/* one_device: o and lse are the call's; with_q: ranks hold q too. */
static void save(bool lse, bool one_device, const float *with_q)
{
	static float data[3 * P][B * MOST * H * D];
	struct cpa_recorded_config config = {.batch_degree = 1,
		.ring_degree = P,
		.ulysses_degree = 1,
		.rotate = -1,
		.convert_to_fp32 = -1,
		.split = -1,
		.order = -1};
	struct cpa_run_part parts[3 * P];
	struct cpa_recorded_run run = {.config = &config, .world = P, .parts = parts};
	const void *tensors[5] = {
		ring.q, ring.k, ring.v, one_device ? ring.o : NULL, one_device ? ring.lse : NULL};
	struct cpa_error error = {""};

	for (int rank = 0; rank < P; rank++) {
		if (start(rank) == start(rank + 1))
			continue;
		if (with_q)
			take(&parts[run.nparts], rank, "q", with_q, D, data[run.nparts]),
				run.nparts++;
		take(&parts[run.nparts], rank, "o", ring.o, D, data[run.nparts]);
		run.nparts++;
		if (lse)
			take(&parts[run.nparts], rank, "lse", ring.lse, 1, data[run.nparts]),
				run.nparts++;
	}
	if (cpa_recording_write_run(
		    file_path, "00_made", &ring.problem, tensors, &run, "test", &error) != CPA_OK)
		fail_msg("%s", error.text);
}

/* ---- what is said of it ---- */

static struct judged {
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_arena arena;
	struct cpa_check_rules rules;
	const struct cpa_diagnosis *diagnosis;
} judged;

static void open_file(void)
{
	struct cpa_error error = {""};

	judged = (struct judged){.rules = {CPA_ARITHMETIC_FP32, CPA_PARTIALS_BLOCK}};
	cpa_arena_init(&judged.arena);
	if (cpa_recording_open(file_path, &judged.recording, &error) != CPA_OK ||
		cpa_checked_init(&judged.checked, judged.recording, 0, 0, &error) != CPA_OK)
		fail_msg("%s", error.text);
}

static void close_file(void)
{
	cpa_checked_fini(&judged.checked);
	cpa_arena_fini(&judged.arena);
	cpa_recording_close(judged.recording);
}

static struct cpa_check_part part_of(int rank)
{
	struct cpa_check_part part;
	struct cpa_error error = {""};

	if (cpa_check_part(&judged.checked, judged.recording, 0, rank, &judged.rules,
		    &judged.arena, &part, &error) != CPA_OK)
		fail_msg("%s", error.text);
	return part;
}

/* Of the file: each best finding is of the class, and some say this.  A run that loses as many rows for
 * another reason may tie. */
static void expect_class(const char *class, const char *says, const char *what)
{
	struct cpa_error error = {""};
	bool said = false;

	open_file();
	if (cpa_diagnosis_make(&judged.checked, judged.recording, 0, &judged.rules, &judged.arena,
		    &judged.diagnosis, &error) != CPA_OK)
		fail_msg("%s", error.text);
	for (int i = 0; i < judged.diagnosis->nties; i++) {
		const struct cpa_finding *f = &judged.diagnosis->findings[i];

		if (strcmp(f->class, class) != 0 && !f->planted)
			fail_msg("%s: called %s: %s", what, f->class, f->text);
		said |= strcmp(f->class, class) == 0 && strstr(f->text, says) != NULL;
	}
	if (!said)
		fail_msg("%s: %d findings, %d rows wrong, first %s", what, judged.diagnosis->n,
			judged.diagnosis->nwrong,
			judged.diagnosis->n ? judged.diagnosis->findings[0].text : "none");
	close_file();
}

#endif
