/*
 * test_bound.c - the bounds against right results (never an alarm) and against wrong ones.
 */
#include "ref/ref.h"
#include "ref/test_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- judging --------------------------------------------------------------------------- */

/* Errors over bounds; squares of errors and of the soft rule's rows, for sums. */
struct verdict {
	double o, lse, error2, soft2;
};

struct truth {
	double o[MAX_DIM], norm;
	struct cpa_row row;
};

static struct truth truth_of(const struct sample *sample, int64_t t)
{
	double *work = malloc((size_t)sample->problem.Skv * sizeof(*work));
	struct truth truth = { .norm = 0.0 };

	assert_non_null(work);
	cpa_ref_row(sample->head,
		cpa_view_bshd(sample->q, sample->problem.dtype, sample->problem.Sq, 1,
			sample->problem.D),
		0, t, truth.o, &truth.row, work);
	free(work);
	for (int64_t d = 0; d < sample->problem.Dv; d++)
		truth.norm = hypot(truth.norm, truth.o[d]);
	return truth;
}

static struct verdict judge(const struct sample *sample, const struct cpa_bound_run *run,
	const struct truth *truth, const double *o, double lse)
{
	struct verdict verdict = { 0.0, 0.0, 0.0, 0.0 };
	const double *want = truth->o;
	struct cpa_bound bound;

	cpa_bound_row(run, &truth->row, truth->norm, &bound);
	for (int64_t d = 0; d < sample->problem.Dv; d++) {
		double error = fabs(o[d] - want[d]);

		assert_true(isfinite(o[d]));
		if (error > 0.0)
			verdict.o = fmax(verdict.o,
				error / (bound.o_abs + bound.o_rel * fabs(want[d])));
		verdict.error2 += error * error;
	}
	if (truth->row.lse == -INFINITY)
		assert_true(lse == -INFINITY);
	else
		verdict.lse = fabs(lse - truth->row.lse) / bound.lse;
	verdict.soft2 = bound.soft_row * bound.soft_row;
	return verdict;
}

/* Whether the dtype can hold every partial's lse, as mode all does: fp16 ends at 65504. */
static bool lse_fits(const struct sample *sample, const struct truth *truth)
{
	return truth->row.max_abs + 10.0 < cpa_dtype_max(sample->problem.dtype);
}

static struct verdict judge_float(const struct sample *sample, const struct way *way, int64_t t,
	const struct truth *truth)
{
	struct cpa_bound_run run = { &sample->problem, float_arithmetic(sample->problem.dtype),
		way->partials, CPA_DTYPE_FP32, way->R };
	double o[MAX_DIM], lse;

	run_float(sample, way, t, o, &lse);
	return judge(sample, &run, truth, o, lse);
}

/* ---- right results --------------------------------------------------------------------- */

/* The worse of two verdicts, and a failure where one is an alarm. */
static struct verdict worse(
	struct verdict a, struct verdict b, const struct sample *sample, int seed)
{
	if (!(b.o <= 1.0 && b.lse <= 1.0))
		fail_msg("o %g, lse %g of their bounds: seed %d, %s", b.o, b.lse, seed,
			cpa_dtype_name(sample->problem.dtype));
	a.o = fmax(a.o, b.o);
	a.lse = fmax(a.lse, b.lse);
	return a;
}

static void right_results_in_float_are_never_an_alarm(void **state)
{
	static const int rings[] = { 1, 2, 3, 8 };
	struct verdict worst = { 0.0, 0.0, 0.0, 0.0 };

	(void)state;
	for (int seed = 0; seed < 180; seed++) {
		struct sample sample;

		sample_init(&sample, 1 + seed % 3, seed / 3 % 5, (uint64_t)seed, 3,
			1 + seed * seed * 37 % 500, 1 + seed * 11 % 64, 1 + seed * 7 % 32);
		for (int64_t t = 0; t < 3; t++) {
			struct truth truth = truth_of(&sample, t);

			for (int i = 0; i < 12; i++) {
				struct way way = { i % 3, rings[i / 3], FAULT_NONE, 0 };

				if (way.partials == CPA_PARTIALS_ALL &&
					!lse_fits(&sample, &truth))
					continue;
				worst = worse(worst, judge_float(&sample, &way, t, &truth),
					&sample, seed);
			}
		}
		sample_fini(&sample);
	}
	print_message("worst error over bound: o %.2f, lse %.2f\n", worst.o, worst.lse);
}

/* Two passes, plain sums from the last key to the first; partials merged by cpa_ref_merge(). */
static void run_double(const struct sample *sample, int R, int64_t t, double *o, double *lse)
{
	int64_t D = sample->problem.D, Dv = sample->problem.Dv, Skv = sample->problem.Skv;
	const double *q = (const double *)sample->q + t * D, *k = sample->k, *v = sample->v;
	const double zero[MAX_DIM] = { 0.0 }, *sink = sample->problem.rule.sink;
	struct cpa_range keys = cpa_rule_row(&sample->problem, 0, t);

	*lse = -INFINITY;
	for (int64_t d = 0; d < Dv; d++)
		o[d] = 0.0;
	for (int r = 0; r < R; r++) {
		double s[512], part[MAX_DIM] = { 0.0 }, max = -INFINITY, sum = 0.0;
		int64_t first = r * Skv / R, end = (r + 1) * Skv / R;

		for (int64_t j = first; j < end; j++) {
			s[j] = 0.0;
			for (int64_t d = 0; d < D; d++)
				s[j] += sample->problem.scale * q[d] * k[j * D + d];
			s[j] = j < keys.start || j >= keys.end
				       ? -INFINITY
				       : s[j] + cpa_mask_value(&sample->problem, 0, 0, t, j);
			max = fmax(max, s[j]);
		}
		for (int64_t j = end; j-- > first && max > -INFINITY;) {
			sum += exp(s[j] - max);
			for (int64_t d = 0; d < Dv; d++)
				part[d] += exp(s[j] - max) * v[j * Dv + d];
		}
		for (int64_t d = 0; d < Dv; d++)
			part[d] = sum > 0.0 ? part[d] / sum : 0.0;
		cpa_ref_merge(Dv, o, lse, part, max + log(sum));
	}
	if (sink)
		cpa_ref_merge(Dv, o, lse, zero, *sink);
}

/* ---- rules ----------------------------------------------------------------------------- */

struct rule_data {
	int64_t length;
	double sink;
	float bias[3 * 512];
	uint8_t attend[3 * 512];
};

/* One of all combinations of a window, a key length, a mask and a sink, for 3 queries. */
static struct cpa_rule make_rule(const struct sample *sample, int seed, struct rule_data *data)
{
	static const double sinks[] = { 0.7, -3.3, 21.1, -150.0, 5000.3, -2e4 };
	static const double sizes[] = { 1.0, 30.0, 1e4, 3e37 };
	int64_t Skv = sample->problem.Skv;
	struct cpa_rule rule = { .causal = seed % 5 == 1,
		.offset = Skv * (seed % 7) / 6 - 1,
		.window = seed % 2,
		.left = seed % 3 ? Skv / (1 + seed % 9) : 0,
		.right = seed % 11 - 1,
		.key_lengths = seed / 2 % 3 ? NULL : &data->length,
		.mask = { .dtype = CPA_DTYPE_FP32, .query = Skv, .key = 1 },
		.sink = seed / 3 % 2 ? &data->sink : NULL };

	data->length = Skv * (seed % 13) / 12;
	data->sink = sinks[seed / 7 % 6];
	rule.mask.kind = (enum cpa_mask_kind)(seed / 6 % 3);
	rule.mask.data = rule.mask.kind == CPA_MASK_BOOL ? (const void *)data->attend
							 : data->bias;
	for (int64_t i = 0; i < 3 * Skv; i++) {
		double x = cpa_fill_value(CPA_FILL_NORMAL, &sample->problem, (uint64_t)seed,
			'q', 0, i, 0, 0);

		data->attend[i] = x > -0.6;
		data->bias[i] = x > -0.6 ? (float)(sizes[seed / 5 % 4] * x) : -INFINITY;
	}
	return rule;
}

static void right_results_under_any_rule_are_never_an_alarm(void **state)
{
	static const int rings[] = { 1, 2, 3, 8 };
	struct verdict worst = { 0.0, 0.0, 0.0, 0.0 };
	struct rule_data *data = malloc(sizeof(*data));
	int64_t nempty = 0;

	(void)state;
	assert_non_null(data);
	for (int seed = 0; seed < 540; seed++) {
		struct sample sample;

		sample_init(&sample, 1 + seed % 3, seed / 3 % 5, (uint64_t)seed, 3,
			1 + seed * seed * 37 % 500, 1 + seed * 11 % 64, 1 + seed * 7 % 32);
		sample_set_rule(&sample, make_rule(&sample, seed, data));
		for (int i = 0; i < 3 * 12; i++) {
			struct way way = { i % 3, rings[i / 3 % 4], FAULT_NONE, 0 };
			struct truth truth = truth_of(&sample, i / 12);

			sample.sink_first = i % 2;
			nempty += truth.row.nvisible == 0;
			if (way.partials == CPA_PARTIALS_ALL && !lse_fits(&sample, &truth))
				continue;
			worst = worse(worst, judge_float(&sample, &way, i / 12, &truth),
				&sample, seed);
		}
		sample_fini(&sample);
	}
	free(data);
	assert_true(nempty > 100);
	print_message("worst error over bound: o %.2f, lse %.2f\n", worst.o, worst.lse);
}

/* Every other one without a rule. */
static void right_results_in_double_are_never_an_alarm(void **state)
{
	struct verdict worst = { 0.0, 0.0, 0.0, 0.0 };
	struct rule_data *data = malloc(sizeof(*data));

	(void)state;
	assert_non_null(data);
	for (int i = 0; i < 2 * 400; i++) {
		int seed = i / 2;
		struct sample sample;
		struct cpa_bound_run run = { &sample.problem, { 0x1p-53, 8.0, 0.0, 1.0, false },
			CPA_PARTIALS_FP32, CPA_DTYPE_FP64, seed % 4 > 1 ? 5 : 1 };

		sample_init(&sample, CPA_DTYPE_FP64, seed / 2 % 5, (uint64_t)seed, 3,
			1 + seed * seed * 37 % 500, 1 + seed * 11 % 64, 1 + seed * 7 % 32);
		if (i % 2)
			sample_set_rule(&sample, make_rule(&sample, seed, data));
		for (int64_t t = 0; t < 3; t++) {
			struct truth truth = truth_of(&sample, t);
			double o[MAX_DIM], lse;

			run_double(&sample, run.R, t, o, &lse);
			worst = worse(
				worst, judge(&sample, &run, &truth, o, lse), &sample, seed);
		}
		sample_fini(&sample);
	}
	free(data);
	print_message("worst error over bound: o %.2f, lse %.2f\n", worst.o, worst.lse);
}

/* In every block instead of once, and not at all. */
static void a_sink_counted_wrongly_is_an_alarm(void **state)
{
	static const double sink = 2.0;

	(void)state;
	for (enum cpa_dtype dtype = CPA_DTYPE_FP32; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct way once = { CPA_PARTIALS_BLOCK, 4, FAULT_NONE, 0 };
		struct way every = { CPA_PARTIALS_BLOCK, 4, FAULT_SINK, 0 };
		struct sample sample;

		sample_init(&sample, dtype, CPA_FILL_NORMAL, 5, 3, 400, 16, 8);
		for (int64_t t = 0; t < 3; t++) {
			struct truth truth;

			sample_set_rule(&sample, (struct cpa_rule){ .sink = &sink });
			truth = truth_of(&sample, t);
			assert_true(judge_float(&sample, &once, t, &truth).lse <= 1.0);
			assert_true(judge_float(&sample, &every, t, &truth).lse > 1.0);
			sample.problem.rule.sink = NULL;
			assert_true(judge_float(&sample, &once, t, &truth).lse > 1.0);
		}
		sample_fini(&sample);
	}
}

/* ---- wrong results --------------------------------------------------------------------- */

enum { FAULT_ROWS = 16, FAULT_TRIALS = 4 };

struct shares {
	double lse, soft, hard; /* of rows, of trials, of rows */
};

/* At S 4608, R 8, unit normal inputs; 16 rows of 64 features, as many as soft needs.  Adds. */
static void plant(enum cpa_dtype dtype, int trial, struct shares *shares)
{
	const double nrows = FAULT_ROWS * FAULT_TRIALS;
	double error2[FAULT_INIT + 1] = { 0.0 }, soft2 = 0.0, one2 = 0.0;
	struct way one = { CPA_PARTIALS_FP32, 1, FAULT_NONE, 0 };
	struct sample sample;

	sample_init(&sample, dtype, CPA_FILL_NORMAL, (uint64_t)trial + 50, FAULT_ROWS, 4608, 16,
		64);
	for (int64_t t = 0; t < FAULT_ROWS; t++) {
		struct truth truth = truth_of(&sample, t);

		one2 += judge_float(&sample, &one, t, &truth).error2;
		for (enum fault fault = FAULT_NONE; fault <= FAULT_INIT; fault++) {
			struct way way = { CPA_PARTIALS_FP32, 8, fault, 301 + 1117 * trial };
			struct verdict verdict = judge_float(&sample, &way, t, &truth);

			error2[fault] += verdict.error2;
			soft2 += fault == FAULT_NONE ? verdict.soft2 : 0.0;
			shares[fault].lse += (verdict.lse > 1.0) / nrows;
			shares[fault].hard += (verdict.o > 1.0) / nrows;
		}
	}
	for (enum fault fault = FAULT_NONE; fault <= FAULT_INIT; fault++)
		if (sqrt(error2[fault]) > 2.0 * sqrt(one2) + sqrt(soft2))
			shares[fault].soft += 1.0 / FAULT_TRIALS;
	sample_fini(&sample);
}

/* The least shares asked for lie below those seen here and in larger trials (98 % of lse for a
 * dropped key): the weight of the key dropped is chance.  bf16 hides single V rows. */
static const struct {
	const char *name;
	struct shares least, least_bf16;
} asked[] = {
	[FAULT_DROP] = { "key dropped", { 0.7, 1.0, 0.25 }, { 0.7, 0.5, 0.0 } },
	[FAULT_STALE] = { "V row stale", { 0.0, 1.0, 0.0 }, { 0.0, 0.5, 0.0 } },
	[FAULT_BASE2] = { "lse in base 2", { 1.0, 1.0, 1.0 }, { 1.0, 1.0, 1.0 } },
	[FAULT_INIT] = { "lse starts at 0", { 0.9, 0.0, 0.0 }, { 0.9, 0.0, 0.0 } },
};

static void planted_faults_are_alarms(void **state)
{
	(void)state;
	for (enum cpa_dtype dtype = CPA_DTYPE_FP32; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct shares got[FAULT_INIT + 1] = { { 0.0, 0.0, 0.0 } };

		for (int trial = 0; trial < FAULT_TRIALS; trial++)
			plant(dtype, trial, got);
		assert_true(got[0].lse == 0.0 && got[0].soft == 0.0 && got[0].hard == 0.0);
		for (enum fault fault = FAULT_DROP; fault <= FAULT_INIT; fault++) {
			struct shares least = dtype == CPA_DTYPE_BF16 ? asked[fault].least_bf16
								      : asked[fault].least;

			print_message("%s, %s: lse %.2f, soft %.2f, hard %.2f\n",
				asked[fault].name, cpa_dtype_name(dtype), got[fault].lse,
				got[fault].soft, got[fault].hard);
			assert_true(
				got[fault].lse >= least.lse && got[fault].soft >= least.soft);
			assert_true(dtype != CPA_DTYPE_FP32 || got[fault].hard >= least.hard);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(right_results_in_float_are_never_an_alarm),
		cmocka_unit_test(right_results_under_any_rule_are_never_an_alarm),
		cmocka_unit_test(right_results_in_double_are_never_an_alarm),
		cmocka_unit_test(a_sink_counted_wrongly_is_an_alarm),
		cmocka_unit_test(planted_faults_are_alarms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
