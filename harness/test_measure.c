/*
 * test_measure.c - what bench says of a configuration: the verdict, the counts and how the
 * numbers hang together.  No test looks at how long anything took.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/measure.h"
#include "harness/measure_table.h"

enum { REPEAT = 2 };

static struct cpa_device *device;
static struct cpa_error error;

static struct cpa_problem problem_of(int64_t S, bool causal)
{
	return (struct cpa_problem){.B = 1,
		.Sq = S,
		.Skv = S,
		.Hq = 4,
		.Hkv = 2,
		.D = 16,
		.Dv = 8,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.25,
		.rule = {.causal = causal}};
}

static struct cpa_config mesh(
	const struct cpa_problem *problem, enum cpa_variant variant, int R, int U)
{
	struct cpa_config config = cpa_config_default(variant, problem);

	config.ring_degree = R;
	config.ulysses_degree = U;
	return config;
}

static enum cpa_status measure(const struct cpa_problem *problem,
	const struct cpa_config *configs, int n, struct cpa_result *results)
{
	const struct cpa_measure_settings settings = {
		.device = device, .comm = "fake", .warmup = 0, .repeat = REPEAT, .threads = 1};
	struct cpa_measure_session session;
	enum cpa_status status;

	assert_int_equal(cpa_measure_begin(&session, &settings, &error), CPA_OK);
	assert_int_equal(session.nprocesses, 1);
	assert_true(session.leads);
	status = cpa_measure_problem(&session, problem, 1, configs, n, results, &error);
	cpa_measure_end(&session);
	return status;
}

static void drop(struct cpa_result *results, int n)
{
	for (int i = 0; i < n; i++) {
		free(results[i].counts);
		free(results[i].measured);
	}
}

static void counts_are_those_of_the_plan(void **state)
{
	struct cpa_problem p = problem_of(24, true);
	struct cpa_config config = mesh(&p, CPA_VARIANT_UNIFIED_ANYTHING, 2, 2);
	struct cpa_partition *partition;
	struct cpa_result result;
	double bytes = 0;

	(void)state;
	assert_int_equal(measure(&p, &config, 1, &result), CPA_OK);
	assert_int_equal(result.verdict, CPA_VERDICT_RIGHT);
	assert_int_equal(result.W, 4);
	assert_int_equal(cpa_partition_create(&p, &config, &partition, &error), CPA_OK);
	for (int r = 0; r < 4; r++) {
		struct cpa_schedule *schedule;
		struct cpa_counts counts;

		assert_int_equal(cpa_plan_create(partition, r, &schedule, &error), CPA_OK);
		cpa_schedule_count(schedule, &p, &counts);
		assert_memory_equal(&counts, &result.counts[r], sizeof counts);
		bytes += (double)counts.bytes_sent;
		cpa_schedule_destroy(schedule);
	}
	assert_true(bytes > 0 && result.measured->bytes == bytes);
	cpa_partition_destroy(partition);
	drop(&result, 1);
}

/* Causal, 6 tokens: 1 + 2 + ... + 6 = 21 pairs, 4 heads, 2 (16 + 8) flop each. */
static void masked_pairs_are_no_useful_flop(void **state)
{
	struct cpa_problem p = problem_of(6, true);
	struct cpa_config configs[2] = {
		mesh(&p, CPA_VARIANT_RING, 3, 1), mesh(&p, CPA_VARIANT_ULYSSES_ANYTHING, 1, 4)};
	struct cpa_result results[2];

	(void)state;
	assert_int_equal(measure(&p, configs, 2, results), CPA_OK);
	for (int i = 0; i < 2; i++)
		assert_true(results[i].measured->flop == 21.0 * 4 * 48);
	drop(results, 2);
}

static void numbers_hang_together(void **state)
{
	struct cpa_problem p = problem_of(64, false);
	struct cpa_config config = mesh(&p, CPA_VARIANT_RING, 4, 1);
	struct cpa_result result;
	const struct cpa_measured *m;
	double sum = 0;

	(void)state;
	assert_int_equal(measure(&p, &config, 1, &result), CPA_OK);
	m = result.measured;
	for (int i = 0; i < CPA_NPHASES; i++) {
		assert_true(m->phases.seconds[i] >= 0);
		sum += m->phases.seconds[i];
	}
	assert_true(fabs(sum - m->seconds.min) <= 1e-6 * m->seconds.min);
	assert_true(m->phases.seconds[CPA_PHASE_ATTEND] > 0);
	assert_true(m->phases.seconds[CPA_PHASE_MERGE] > 0);
	assert_true(m->phases.seconds[CPA_PHASE_WAIT] == 0); /* one process */
	assert_int_equal(m->seconds.n, REPEAT);
	assert_int_equal(m->exchange.n, REPEAT);
	assert_int_equal(m->one_rank.n, REPEAT);
	assert_true(m->seconds.min <= m->seconds.median && m->seconds.median <= m->seconds.max);
	assert_true(m->limits.flop_per_second > 0 && m->limits.copy_bytes_per_second > 0);
	assert_int_equal(m->threads, 1);
	assert_int_equal(m->one_rank_threads, 1);
	drop(&result, 1);
}

static void derived_numbers_are_quotients_of_measured_ones(void **state)
{
	const struct cpa_measured m = {.seconds = {3, 2, 2, 3, 4, 4},
		.exchange = {3, 0.5, 0.5, 1, 1, 1},
		.phases = {{1.0, 0.5, 0.1, 0.3, 0.1}},
		.flop = 10,
		.bytes = 6,
		.one_rank = {3, 3, 3, 3, 3, 3}};
	struct cpa_measured silent = m;

	(void)state;
	silent.exchange = cpa_statistics_of(NULL, 0);
	assert_true(fabs(cpa_measured_beyond(&m) - 0.25) < 1e-12); /* 0.4 over 1.6 */
	assert_true(cpa_measured_flop_rate(&m) == 5);
	assert_true(cpa_measured_exchange_rate(&m) == 12);
	assert_true(cpa_measured_speedup(&m) == 1.5);
	assert_true(isnan(cpa_measured_exchange_rate(&silent)));
}

static void a_refusal_is_not_timed_and_the_others_are(void **state)
{
	struct cpa_problem p = problem_of(30, false);
	struct cpa_config configs[2] = {
		mesh(&p, CPA_VARIANT_RING, 4, 1), mesh(&p, CPA_VARIANT_RING_ANYTHING, 4, 1)};
	struct cpa_result results[2];

	(void)state;
	assert_int_equal(measure(&p, configs, 2, results), CPA_OK);
	assert_int_equal(results[0].verdict, CPA_VERDICT_UNSUPPORTED);
	assert_non_null(strstr(results[0].reason, "30 is not divisible"));
	assert_null(results[0].measured);
	assert_int_equal(results[1].verdict, CPA_VERDICT_RIGHT);
	assert_non_null(results[1].measured);
	drop(results, 2);
}

/* ---- a device that is wrong where keys were cut ---- */

static const struct cpa_device_ops *real_ops;

static enum cpa_status wrong_merge(
	struct cpa_device *d, int queue, const struct cpa_merge *merge, struct cpa_error *e)
{
	(void)d;
	(void)queue;
	(void)merge;
	(void)e;
	return CPA_OK; /* keeps the first partial */
}

static void what_is_wrong_gets_no_time(void **state)
{
	struct cpa_problem p = problem_of(32, false);
	struct cpa_config configs[2] = {
		mesh(&p, CPA_VARIANT_RING, 2, 1), mesh(&p, CPA_VARIANT_ULYSSES, 1, 2)};
	struct cpa_device_ops spoilt = *device->ops;
	struct cpa_result results[2];

	(void)state;
	real_ops = device->ops;
	spoilt.merge = wrong_merge;
	device->ops = &spoilt;
	assert_int_equal(measure(&p, configs, 2, results), CPA_OK);
	device->ops = real_ops;
	assert_int_equal(results[0].verdict, CPA_VERDICT_WRONG);
	assert_non_null(strstr(results[0].reason, "times its bound"));
	assert_null(results[0].measured);
	assert_int_equal(results[1].verdict, CPA_VERDICT_RIGHT); /* it merges nothing */
	drop(results, 2);
}

static enum cpa_status wrong_attend(
	struct cpa_device *d, int queue, const struct cpa_attend *attend, struct cpa_error *e)
{
	struct cpa_attend less = *attend;
	struct cpa_span few = {0, attend->nk - 1, attend->nk - 1, 1};

	less.nk--;
	less.k_tokens = (struct cpa_spans){&few, 1, 1};
	return real_ops->attend(d, queue, &less, e);
}

/* Then nothing is right, and there is nothing to compare to. */
static void a_wrong_rank_alone_ends_it(void **state)
{
	struct cpa_problem p = problem_of(32, false);
	struct cpa_config config = mesh(&p, CPA_VARIANT_ULYSSES, 1, 2);
	struct cpa_device_ops spoilt = *device->ops;
	struct cpa_result result;

	(void)state;
	real_ops = device->ops;
	spoilt.attend = wrong_attend;
	device->ops = &spoilt;
	assert_int_equal(measure(&p, &config, 1, &result), CPA_MISMATCH);
	device->ops = real_ops;
	assert_null(result.measured);
	drop(&result, 1);
}

static void too_many_threads_are_refused(void **state)
{
	const struct cpa_measure_settings settings = {
		.device = device, .comm = "fake", .repeat = 1, .threads = 100000};
	struct cpa_measure_session session;

	(void)state;
	assert_int_equal(cpa_measure_begin(&session, &settings, &error), CPA_UNSUPPORTED);
	assert_non_null(strstr(error.text, "100000 threads"));
	cpa_measure_end(&session);
}

/* ---- watching ---- */

static void a_watch_tells_operations_apart_and_leaves_nothing_behind(void **state)
{
	const struct cpa_device_ops *before = device->ops;
	struct cpa_watched_device watch;
	struct cpa_phases phases = {{0}};
	float from[4] = {1, 2, 3, 4}, to[4];
	const struct cpa_copy copy = {.dst = {to, CPA_DTYPE_FP32, 4, 4, 4},
		.src = {from, CPA_DTYPE_FP32, 4, 4, 4},
		.ntokens = 1,
		.nbatches = 1,
		.nheads = 1,
		.dim = 4};

	(void)state;
	cpa_watch_device(&watch, device, &phases);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
	cpa_unwatch_device(&watch);
	assert_ptr_equal(device->ops, before);
	assert_memory_equal(from, to, sizeof to);
	assert_true(phases.seconds[CPA_PHASE_COPY] > 0);
	assert_true(
		phases.seconds[CPA_PHASE_ATTEND] == 0 && phases.seconds[CPA_PHASE_MERGE] == 0);
}

/* ---- for people ---- */

static void numbers_are_scaled_to_four_digits(void **state)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0"}, {950, "950"}, {999.4, "999"}, {999.5, "1.00 k"}, {1210, "1.21 k"},
		{12100, "12.1 k"}, {121000, "121 k"}, {68.7e9, "68.7 G"}, {NAN, "-"}};
	char text[16];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cpa_print_scaled(cases[i].value, text);
		assert_string_equal(text, cases[i].text);
	}
}

static int make_device(void **state)
{
	(void)state;
	return cpa_device_create("cpu", &device, &error) != CPA_OK;
}

static int drop_device(void **state)
{
	(void)state;
	cpa_device_destroy(device);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_those_of_the_plan),
		cmocka_unit_test(masked_pairs_are_no_useful_flop),
		cmocka_unit_test(numbers_hang_together),
		cmocka_unit_test(derived_numbers_are_quotients_of_measured_ones),
		cmocka_unit_test(a_refusal_is_not_timed_and_the_others_are),
		cmocka_unit_test(what_is_wrong_gets_no_time),
		cmocka_unit_test(a_wrong_rank_alone_ends_it),
		cmocka_unit_test(too_many_threads_are_refused),
		cmocka_unit_test(a_watch_tells_operations_apart_and_leaves_nothing_behind),
		cmocka_unit_test(numbers_are_scaled_to_four_digits),
	};

	return cmocka_run_group_tests(tests, make_device, drop_device);
}
