/*
 * test_recording_diagnose_aef.c - the command diagnose on runs with a fault in merging, groups or
 * buffers: the ranks really run with it, and its class is named, with its rank and hop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness/test_recording.h"

#include "harness/fault.h"
#include "harness/test_diagnose_plant.h"

/* ---- what is planted ---- */

/* before and after are hooks around the operations of ranks, spoil is done to what a device is
 * given. */
struct planted {
	const char *class, *what, *rule; /* rule: appended to the problem */
	void (*before)(struct cpa_exec *, const struct cpa_op *, int);
	void (*after)(struct cpa_exec *, const struct cpa_op *, int);
	void (*spoil)(struct call *);
	double number;
	bool one_rank, one_hop, k, v, torn;
	int least_ring; /* 0: any */
};

static void spoil_smoothed(struct call *call)
{
	struct cpa_attend *a = &call->attend;
	int64_t rows[512];

	for (int64_t i = 0; i < a->nk; i++)
		rows[i] = i;
	a->k = take_rows(call, &a->k, call->problem.D, rows, a->nk);
	for (int64_t i = 0; i < a->k.token; i++) {
		double mean = 0.0;

		for (int64_t t = 0; t < a->nk; t++)
			mean += cpa_load(a->k.dtype, a->k.data, t * a->k.token + i) /
				(double)a->nk;
		for (int64_t t = 0; t < a->nk; t++)
			cpa_store(a->k.dtype, a->k.data, t * a->k.token + i,
				cpa_load(a->k.dtype, a->k.data, t * a->k.token + i) - mean);
	}
}

static const struct planted faults[] = {
	{"A01", "base 2", "", .after = scale_lse, .number = 1.4426950408889634},
	{"A01", "base 2 on one rank", "", .after = scale_lse, .number = 1.4426950408889634,
		.one_rank = true},
	{"A01", "base 2, causal", ",causal", .after = scale_lse, .number = 1.4426950408889634},
	{"A01", "natural as base 2", "", .after = scale_lse, .number = 0.69314718055994531},
	{"A02", "smoothed keys", "", .spoil = spoil_smoothed},
	{"A03", "bf16 lse", ",scale=3", .after = low_lse, .least_ring = 2},
	{"A03", "bf16 accumulator", "", .after = low_sum, .least_ring = 2},
	{"A03", "bf16 block outputs", "", .after = low_output, .least_ring = 2},
	{"A06", "empty block lse 0", ",key_lengths", .after = finite_lse, .number = 0.0},
	{"A06", "empty block lse 0.7", ",key_lengths", .after = finite_lse, .number = 0.7},
	{"A09", "overwrite", "", .before = overwrite},
	{"A09", "mean", "", .after = same_lse},
	{"A10", "missed", "", .after = shift_lse, .number = -INFINITY, .one_rank = true,
		.one_hop = true},
	{"A10", "missed everywhere", "", .after = shift_lse, .number = -INFINITY,
		.one_hop = true},
	{"A10", "twice", "", .after = shift_lse, .number = 0.69314718055994531, .one_rank = true,
		.one_hop = true},
	{"A11", "[S,H] as [H,S]", "", .after = misread_lse},
	{"A11", "padded", "", .after = padded_lse},
	{"A12", "sink in each block", ",sink=0.5", .after = sink_in_block, .number = 0.5},
	{"A12", "no sink", ",sink=0.5", .number = 0.0},
	{"F01", "stale block", "", .before = stale, .after = fresh, .one_rank = true,
		.one_hop = true, .k = true, .v = true},
	{"F01", "stale block, causal", ",causal", .before = stale, .after = fresh,
		.one_rank = true, .one_hop = true, .k = true, .v = true},
	{"F01", "stale on every rank and hop", "", .before = stale, .after = fresh, .k = true,
		.v = true},
	{"F02", "V one hop behind", "", .before = stale, .after = fresh, .v = true},
	{"F02", "V of a hop", "", .before = stale, .after = fresh, .v = true, .one_rank = true,
		.one_hop = true},
	{"F02", "K one hop behind", "", .before = stale, .after = fresh, .k = true},
	{"F03", "torn block", "", .before = stale, .after = fresh, .one_rank = true,
		.one_hop = true, .k = true, .v = true, .torn = true},
	{"F04", "late lse", "", .after = late_lse},
	{"F04", "late lse of a hop", "", .after = late_lse, .one_rank = true, .one_hop = true},
};
enum { NFAULTS = sizeof faults / sizeof faults[0] };

static const int meshes[][2] = {{4, 1}, {3, 1}, {2, 2}, {5, 1}};

/* ---- one run ---- */

static uint64_t below(uint64_t *state, uint64_t n)
{
	*state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (*state >> 33) % n;
}

static void draw(struct bench *b, const char *rule, int P, enum cpa_dtype dtype, uint64_t *state)
{
	char text[256];
	int S = P * (4 + (int)below(state, 7)), Hkv = below(state, 2) ? 4 : 2, n = S / 2;
	char lengths[64] = "";

	/* The second item has no key in the last blocks. */
	if (strcmp(rule, ",key_lengths") == 0)
		snprintf(lengths, sizeof lengths, "=%d:%d", S, n - (int)below(state, 3));

	snprintf(text, sizeof text, "B=%d,S=%d,Hq=4,Hkv=%d,D=%d,dtype=%s%s%s",
		lengths[0] ? 2 : 1 + (int)below(state, 2), S, Hkv, below(state, 2) ? 8 : 16,
		cpa_dtype_name(dtype), rule, lengths);
	set_up(b, text, *state);
}

static void plant_fault(const struct planted *it, int R, uint64_t *state)
{
	plant.before = it->before;
	plant.after = it->after;
	plant.number = it->number;
	plant.low = CPA_DTYPE_BF16;
	plant.k = it->k;
	plant.v = it->v;
	plant.head = false;
	plant.hop = it->one_hop ? 1 + (int)below(state, (uint64_t)(R - 1)) : -1;
	plant.from = plant.hop - 1;
	plant.boundary = 0;
	plant.rank = -1;
}

static void run_fault(const struct planted *it, struct bench *b, int R, int U, uint64_t *state,
	struct verdict *verdict)
{
	struct cpa_config config = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, &b->run);

	config.ring_degree = R;
	config.ulysses_degree = U;
	plant_fault(it, R, state);
	plant.rank = it->one_rank ? (int)below(state, (uint64_t)(R * U)) : -1;
	if (it->torn) {
		plant.head = below(state, 2);
		plant.boundary = 1 + (int64_t)below(state, (uint64_t)(b->run.Skv / R - 1));
	}
	if (strcmp(it->class, "A12") == 0)
		b->run.rule.sink = NULL;
	plant.device = spoilt_device();
	plant_spoil(it->spoil);
	run_ranks(b, plant.device, &config, plant_hook, NULL);
	plant_spoil(NULL);
	forget();
	save(b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, NULL);
	diagnose_file(file_path, 0, verdict);
}

static void print_verdict(
	const struct planted *it, int R, int U, enum cpa_dtype dtype, const struct verdict *v)
{
	print_message("%s %s %dx%d %s, rank %d hop %d: %d wrong, %d findings, %d ties\n",
		it->class, it->what, R, U, cpa_dtype_name(dtype), plant.rank, plant.hop,
		v->nwrong, v->n, v->nties);
	for (int i = 0; i < v->n && i < 6; i++)
		print_message("  %s %s rank %d hop %d residual %g\n", v->findings[i].class,
			v->findings[i].text, v->findings[i].rank, v->findings[i].hop,
			v->findings[i].residual);
}

enum { NSEEDS = 1 };

static void each_class_is_named_where_it_was_planted(void **state)
{
	uint64_t random = 1;
	int nbad = 0;

	(void)state;
	print_message("class  fault                        named tied missed false right\n");
	for (int i = 0; i < NFAULTS; i++) {
		int n[5] = {0};

		for (int run = 0; run < 4 * 2 * NSEEDS / CPA_TEST_PART; run++) {
			const struct planted *it = &faults[i];
			int R = meshes[run % 4][0], U = meshes[run % 4][1];
			enum cpa_dtype dtype = run / 4 % 2 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32;
			struct verdict v;
			struct bench b;
			int kind;

			draw(&b, it->rule, R * U, dtype, &random);
			run_fault(it, &b, R, U, &random, &v);
			kind = v.nwrong == 0					  ? 4
				: v.n == 0					  ? 2
				: !is_named(&v, it->class, plant.rank, plant.hop) ? 3
										  : v.nties > 1;
			n[kind]++;
			if (kind == 2 || kind == 3)
				print_verdict(it, R, U, dtype, &v);
			tear_down(&b);
		}
		print_message("%s    %-28s %5d %4d %6d %5d %5d\n", faults[i].class,
			faults[i].what, n[0], n[1], n[2], n[3], n[4]);
		/* Of the runs that are wrong, 95 % are named, and none as something else. */
		nbad += n[3] > 0 || 20 * (n[0] + n[1]) < 19 * (n[0] + n[1] + n[2]);
	}
	assert_int_equal(nbad, 0);
}

#define PLAIN "B=2,S=32,Hq=4,Hkv=2,D=8,dtype="

/* ---- faults that verify plants ---- */

struct verified {
	struct bench *bench;
	int fault;
	uint64_t seed;
	struct cpa_tensors tensors;
	struct cpa_plant *plant;
};

static struct cpa_exec_hook verified_hook(void *context, int rank)
{
	struct verified *it = context;
	struct cpa_error error = {""};

	if (!it->plant) {
		struct cpa_plant_target target = {it->bench->ranks.partition,
			it->bench->ranks.schedules, it->bench->device,
			cpa_inputs_dense(&it->tensors), {0}};

		assert_int_equal(
			cpa_plant_create(it->fault, &target, NULL, it->seed, &it->plant,
				&error),
			CPA_OK);
		assert_non_null(it->plant);
	}
	return cpa_plant_hook(it->plant, rank);
}

static void faults_that_verify_plants_are_named_on_their_rank(void **state)
{
	static const struct {
		const char *fault, *class;
	} planted_by[] = {{"hop-skipped", "A10"}, {"merge-lost", "A10"}, {"wrong-rank-kv", "F01"},
		{"lse-base-2", "A01"}, {"lse-zero-start", "A07"}};
	uint64_t random = 11;

	(void)state;
	for (size_t i = 0; i < 5 * 4 * 2; i++) {
		int R = meshes[i / 5 % 4][0], U = meshes[i / 5 % 4][1], rank;
		struct verdict v;
		struct bench b;
		struct verified it = {.bench = &b,
			.fault = cpa_fault_find(planted_by[i % 5].fault),
			.seed = below(&random, 1000)};

		draw(&b, "", R * U, i / 20 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32, &random);
		it.tensors = (struct cpa_tensors){&b.run, b.data[0], b.data[1], b.data[2]};
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = R;
		config.ulysses_degree = U;
		plant_spoil(NULL);
		run_ranks(&b, spoilt_device(), &config, verified_hook, &it);
		rank = cpa_plant_site(it.plant)->rank;
		cpa_plant_destroy(it.plant);
		save(&b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, NULL);
		diagnose_file(file_path, 0, &v);
		if (v.nwrong > 0 && !is_named(&v, planted_by[i % 5].class, rank, -1))
			fail_msg("%s on rank %d of %dx%d: %d wrong, %d findings, first %s %s",
				planted_by[i % 5].fault, rank, R, U, v.nwrong, v.n,
				v.n ? v.findings[0].class : "",
				v.n ? v.findings[0].text : "none");
		tear_down(&b);
	}
}

/* ---- a sentinel ---- */

static void zero_far_rows(struct cpa_exec *exec, const struct cpa_op *op, int rank)
{
	double *o, *lse;
	int64_t n, dim;

	(void)rank;
	if (!attends(op))
		return;
	o = take_box(exec, &op->writes[0].box);
	lse = take_box(exec, &op->writes[1].box);
	n = nelements(exec, &op->writes[1].box);
	dim = nelements(exec, &op->writes[0].box) / n;
	for (int64_t i = 0; i < n; i++)
		for (int64_t d = 0; d < dim && lse[i] < -5e4; d++)
			o[i * dim + d] = 0.0;
	put_box(exec, &op->writes[0].box, o);
	put_box(exec, &op->writes[1].box, lse);
}

/* Scores of one row and head 6e4 lower: with a sentinel of -5e4 it sees no key. */
static void a_finite_minus_infinity_is_named(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct verdict v;
		struct bench b;
		float *bias;

		set_up(&b,
			i ? PLAIN "bf16,mask=bias:1xHxQxK:3" : PLAIN "fp32,mask=bias:1xHxQxK:3",
			5);
		bias = (float *)(uintptr_t)b.run.rule.mask.data;
		for (int64_t x = 0; x < 4 * 32 * 32; x++)
			bias[x] = x / 32 == 2 * 32 + 7 ? -6e4f : 0.0f;
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = 4;
		plant = (struct plant){.after = zero_far_rows, .rank = -1};
		plant.device = spoilt_device();
		run_ranks(&b, plant.device, &config, plant_hook, NULL);
		save(&b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, NULL);
		diagnose_file(file_path, 0, &v);
		if (!is_named(&v, "A08", -1, -1) || v.nwrong != 2)
			fail_msg("%d wrong, %d findings, first %s", v.nwrong, v.n,
				v.n ? v.findings[0].text : "none");
		tear_down(&b);
	}
}

/* ---- right runs, and runs of other systems ---- */

static void right_runs_are_never_named(void **state)
{
	static const char *const rules[] = {"", ",causal", ",sink=0.5", ",mask=bool:BxHxQxK:3",
		",key_lengths", ",window=5:0"};
	uint64_t random = 5;

	(void)state;
	for (int i = 0; i < 6 * 4 * 2; i++) {
		struct verdict v;
		struct bench b;

		draw(&b, rules[i / 8], 4, i % 2 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32, &random);
		run_spoilt(&b, meshes[i / 2 % 4][0], meshes[i / 2 % 4][1], NULL, NULL, &v);
		assert_true(v.nwrong == 0 && v.n == 0);
		tear_down(&b);
	}
}

static void a_run_that_averages_its_blocks_is_named(void **state)
{
	struct verdict v;

	(void)state;
	diagnose_file(data_path("peers/yunchang_torch_math_ring_p3_fp32.h5"), 0, &v);
	assert_true(v.nwrong > 0 && v.nties > 0);
	for (int i = 0; i < v.nties; i++)
		assert_string_equal(v.findings[i].class, "A09");
}

/* ---- worked numbers ---- */

/*
 * A count probe: K = 0, so that each key weighs the same, V = 1 on keys from `ones` on (or, text,
 * on those before), and two ring ranks, the first with `first` keys.  The fault predicts `want`
 * in every row.
 */
static const struct {
	const char *problem;
	int64_t first, ones;
	bool text;
	const struct cpa_hypothesis *table;
	const char *class;
	int64_t unknown[CPA_NUNKNOWNS];
	double right, want;
} probes[] = {
	{"S=4,H=2,D=4", 1, 1, false, cpa_hypotheses_merging, "A01", {0}, 0.75, 0.82991},
	{"S=4,H=2,D=4", 1, 1, false, cpa_hypotheses_merging, "A01", {1}, 0.75, 0.68168},
	{"S=4160,H=1,D=1", 64, 64, false, cpa_hypotheses_merging, "A01", {0}, 0.98462, 0.99753},
	{"S=4160,H=1,D=1", 64, 64, false, cpa_hypotheses_merging, "A01", {1}, 0.98462, 0.94699},
	/* One sink of logit 0 beside 8 keys, one in each block, none. */
	{"S=8,H=2,D=4,sink=0", 4, 0, false, cpa_hypotheses_partials, "A12", {1}, 8.0 / 9, 0.8},
	{"S=8,H=2,D=4,sink=0", 4, 0, false, cpa_hypotheses_partials, "A12", {0}, 8.0 / 9, 1.0},
	/* Two tokens of text, 6 of an image. */
	{"S=8,H=2,D=4,segments=text:2:replicated/image:6:split", 3, 2, true,
		cpa_hypotheses_groups, "E01", {1}, 0.25, 0.4},
	{"S=8,H=2,D=4,segments=text:2:replicated/image:6:split", 3, 2, true,
		cpa_hypotheses_groups, "E01", {0}, 0.25, 0.0},
	/* Without the other block there is only the own one. */
	{"S=4,H=2,D=4", 1, 1, false, cpa_hypotheses_merging, "A10", {0, 1, 0}, 0.75, NAN},
};

static void set_probe(struct bench *b, int64_t ones, bool text)
{
	const struct cpa_problem *p = &b->run;

	for (int64_t i = 0; i < p->B * p->Skv * p->Hkv * p->D; i++)
		cpa_store(p->dtype, b->data[1], i, 0.0);
	for (int64_t i = 0; i < p->B * p->Skv * p->Hkv * p->Dv; i++) {
		bool late = i / (p->Hkv * p->Dv) % p->Skv >= ones;

		cpa_store(p->dtype, b->data[2], i, late != text ? 1.0 : 0.0);
	}
}

/* Each row that ranks returned, and what the fault predicts. */
static void check_probe(size_t i)
{
	const struct cpa_hypothesis *it = probes[i].table;
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_suspect s;
	struct cpa_error error = {""};
	struct cpa_check_rules rules = {CPA_ARITHMETIC_FP64, CPA_PARTIALS_BLOCK};
	double o[16], lse;

	while (strcmp(it->class, probes[i].class) != 0)
		it++;
	assert_int_equal(cpa_recording_open(file_path, &recording, &error), CPA_OK);
	assert_int_equal(cpa_checked_init(&checked, recording, 0, 8, &error), CPA_OK);
	assert_int_equal(cpa_suspect_init(&s, &checked, recording, 0, &rules, &error), CPA_OK);
	assert_true(s.nrows > 0 && s.nwrong == 0);
	for (int row = 0; row < s.nrows; row++) {
		double want = probes[i].want;

		assert_true(it->predict(&s, &s.rows[row], probes[i].unknown, o, &lse));
		if (isnan(want)) /* without the other block only the own one is there */
			want = s.query_rank[s.rows[row].t] == 1;
		if (fabs(s.rows[row].o[0] - probes[i].right) > 1e-5 || fabs(o[0] - want) > 1e-5)
			fail_msg("%s %zu: right %.6f, predicted %.6f", probes[i].class, i,
				s.rows[row].o[0], o[0]);
	}
	cpa_suspect_fini(&s);
	cpa_checked_fini(&checked);
	cpa_recording_close(recording);
}

static void the_worked_numbers_are_predicted(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
		struct bench b;
		char text[128];

		snprintf(text, sizeof text, "%s,dtype=fp64", probes[i].problem);
		set_up(&b, text, 3);
		set_probe(&b, probes[i].ones, probes[i].text);
		int64_t split = b.run.Sq - (probes[i].text ? probes[i].ones : 0);
		int64_t sizes[2] = {probes[i].first, split - probes[i].first};
		struct cpa_config config = cpa_config_default(
			CPA_VARIANT_UNIFIED_ANYTHING, &b.run);
		config.ring_degree = 2;
		config.split = config.split_kv = CPA_SPLIT_GIVEN;
		config.sizes = config.sizes_kv = sizes;
		config.nsizes = config.nsizes_kv = 2;
		run_ranks(&b, spoilt_device(), &config, NULL, NULL);
		save(&b, &config, 1u << CPA_TENSOR_O | 1u << CPA_TENSOR_LSE, NULL);
		check_probe(i);
		tear_down(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_class_is_named_where_it_was_planted),
		cmocka_unit_test(faults_that_verify_plants_are_named_on_their_rank),
		cmocka_unit_test(a_finite_minus_infinity_is_named),
		cmocka_unit_test(right_runs_are_never_named),
		cmocka_unit_test(a_run_that_averages_its_blocks_is_named),
		cmocka_unit_test(the_worked_numbers_are_predicted),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
