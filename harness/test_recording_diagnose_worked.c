/*
 * test_recording_diagnose_worked.c - the worked numbers of the dictionary of faults: on its small
 * problem (32 tokens, 4 heads of 8, 4 ranks, fp64) each fault spoils the rows and heads that the
 * dictionary says, no others, and is named.
 */
#include "harness/test_planted_bcd.h"
#include "harness/test_directory.h"

/* ---- which rows and heads are wrong ---- */

static bool all(int64_t i)
{
	return i >= 0;
}

static bool not_rank_0(int64_t t)
{
	return t >= 8;
}

static bool not_last_rank(int64_t t)
{
	return t < 24;
}

static bool later_but_last_rows(int64_t t)
{
	return t >= 8 && t % 8 != 7;
}

static bool not_last_rows(int64_t t)
{
	return t % 8 != 7;
}

static bool not_first_chunk(int64_t t)
{
	return t >= 4;
}

static bool not_last_stripe(int64_t t)
{
	return t % 4 != 3;
}

static bool not_last(int64_t t)
{
	return t != 31;
}

static bool beyond_window(int64_t t)
{
	return t >= 6;
}

static bool first_rows_of_later(int64_t t)
{
	return t >= 8 && t % 8 < 5;
}

static bool later_documents(int64_t t)
{
	return t >= 5;
}

static bool from_28(int64_t t)
{
	return t >= 28;
}

static bool from_3(int64_t t)
{
	return t >= 3;
}

static bool not_ends(int64_t t)
{
	return t != 0 && t != 31;
}

static bool of_ranks_1_and_2(int64_t t)
{
	return t >= 8 && t < 24;
}

static bool not_head_0(int64_t h)
{
	return h != 0;
}

static bool not_heads_0_7(int64_t h)
{
	return h != 0 && h != 7;
}

static bool not_heads_0_2_5_7(int64_t h)
{
	return h != 0 && h != 2 && h != 5 && h != 7;
}

static bool not_heads_0_1_6_7(int64_t h)
{
	return h > 1 && h < 6;
}

static bool heads_3_and_5(int64_t h)
{
	return h == 3 || h == 5;
}

/* ---- faults of the recipes ---- */

/* Heads come out as 0 4 1 5 2 6 3 7. */
static struct source dictionary_heads(struct source x)
{
	x.head = x.head % 2 * 4 + x.head / 2;
	return x;
}

static void move_dictionary_heads(void)
{
	move_rows(dictionary_heads);
}

/* i comes from (i mod 8) 4 + i div 8. */
static struct source dictionary_rows(struct source x)
{
	x.token = x.token % 8 * 4 + x.token / 8;
	return x;
}

static void move_dictionary_rows(void)
{
	move_rows(dictionary_rows);
}

static int64_t dictionary_ratio(const struct call *call, int64_t h)
{
	static const int64_t map[6] = {0, 0, 1, 2, 2, 2};

	return map[h] - call->attend.kv_first;
}

static void spoil_ratio(struct call *call)
{
	call->kv_of = dictionary_ratio;
}

/* Head 5 was served by the pad: 32 keys of score 0 and value 0. */
static void move_pad_head(void)
{
	for (int64_t t = 0; t < 32; t++) {
		memset((double *)now.data[3] + (t * 6 + 5) * 8, 0, 8 * sizeof(double));
		((double *)now.data[4])[t * 6 + 5] = log(32);
	}
}

static int64_t key_head_by_rank(const struct call *call, int64_t h)
{
	return h / 2 % 2 - call->attend.kv_first;
}

static void spoil_key_head_by_rank(struct call *call)
{
	call->kv_of = key_head_by_rank;
}

static int64_t key_head_tiled(const struct call *call, int64_t h)
{
	return h % 2 - call->attend.kv_first;
}

static void spoil_key_head_tiled(struct call *call)
{
	call->kv_of = key_head_tiled;
}

static void swap_1_and_2(void)
{
	now.seed = 1;
	list_swapped();
}

static void list_rotated(void)
{
	for (int64_t t = 0; t < 32; t++)
		now.list[t] = (t + 8) % 32;
}

#define SMALL "S=32,H=4,D=8,dtype=fp64"
#define CAUSAL SMALL ",causal"
#define WINDOW CAUSAL ",window=5:0"
#define SHORT "S=30,H=4,D=8,dtype=fp64"

static const struct worked {
	const char *class, *what, *problem;
	int R, U;
	enum cpa_order order;
	void (*prepare)(void);
	void (*spoil)(struct call *);
	void (*move)(void);
	bool (*wrong_row)(int64_t t), (*wrong_head)(int64_t h);
	int nrows; /* wrong, as the dictionary says; 0: it does not */
} worked[] = {
	{"B03", "inner pads", "S=29,H=4,D=8,dtype=fp64", 4, 1, 0, list_padded, spoil_listed_keys,
		NULL, all, all, 0},
	{"B04", "keys floored", SHORT, 4, 1, 0, NULL, spoil_floored_keys, NULL, all, all, 0},
	{"B04", "rows lost", SHORT, 4, 1, 0, list_lost_rows, NULL, move_listed_rows, from_28, all,
		2},
	{"B05", "5 rows on 2x2", "S=5,H=4,D=8,dtype=fp64", 2, 2, 0, list_ceil, NULL,
		move_listed_rows, from_3, all, 2},
	{"C01", "causal at every hop", CAUSAL, 4, 1, 0, NULL, spoil_local_and_skipped, NULL,
		later_but_last_rows, all, 21},
	{"C02", "future not skipped", CAUSAL, 4, 1, 0, NULL, spoil_unmasked_others, NULL,
		not_last_rank, all, 24},
	{"C03", "diagonal not masked", CAUSAL, 4, 1, 0, NULL, spoil_unmasked_own, NULL,
		not_last_rows, all, 28},
	{"C04", "zigzag data, natural mask", CAUSAL, 4, 1, CPA_ORDER_ZIGZAG, number_naturally,
		spoil_listed_ids, NULL, not_first_chunk, all, 28},
	{"C06", "stripes without shift", CAUSAL, 4, 1, CPA_ORDER_STRIPED, NULL, spoil_local_ids,
		NULL, not_last_stripe, all, 24},
	{"C06", "strict everywhere", CAUSAL, 4, 1, CPA_ORDER_STRIPED, NULL, spoil_offset_down,
		NULL, all, all, 32},
	{"C06", "plus one", CAUSAL, 4, 1, CPA_ORDER_STRIPED, NULL, spoil_offset_up, NULL,
		not_last, all, 31},
	{"C07", "shard against all keys", CAUSAL, 4, 1, 0, NULL, spoil_top_left, NULL, not_rank_0,
		all, 24},
	{"C08", "window ignored", WINDOW, 4, 1, 0, NULL, spoil_no_window, NULL, beyond_window,
		all, 26},
	{"C08", "block offset not applied", WINDOW, 4, 1, 0, NULL, spoil_local_and_skipped, NULL,
		not_rank_0, all, 24},
	{"C08", "cut at the edge", WINDOW, 4, 1, 0, NULL, spoil_hidden_other_rings, NULL,
		first_rows_of_later, all, 15},
	{"C09", "documents 5, 11, 6, 10", CAUSAL ",documents=0:5:16:22:32", 4, 1, 0, NULL,
		spoil_no_documents_at_all, NULL, later_documents, all, 27},
	{"C11", "mask heads not cut", SMALL ",mask=bool:1xHx1xK:3", 1, 4, 0, NULL,
		spoil_local_mask_heads, NULL, all, not_head_0, 32},
	{"C12", "scale applied twice", SMALL, 4, 1, 0, NULL, spoil_scale_twice, NULL, all, all,
		32},
	{"C12", "no scale", SMALL, 4, 1, 0, NULL, spoil_no_scale, NULL, all, all, 32},
	{"D01", "rank and head folded", "S=32,H=8,D=8,dtype=fp64", 1, 4, 0, NULL, NULL,
		move_dictionary_heads, all, not_heads_0_7, 32},
	{"D02", "rows strided", SMALL, 1, 4, 0, NULL, NULL, move_dictionary_rows, not_ends, all,
		30},
	{"D03", "batch items mixed", "B=2," SMALL, 4, 1, 0, NULL, spoil_mixed_batch, NULL, all,
		all, 32},
	{"D06", "tiled", "S=32,Hq=8,Hkv=2,D=8,dtype=fp64", 4, 1, 0, NULL, spoil_key_head_tiled,
		NULL, all, not_heads_0_2_5_7, 32},
	{"D06", "by rank", "S=32,Hq=8,Hkv=2,D=8,dtype=fp64", 1, 4, 0, NULL, NULL, NULL, all,
		not_heads_0_1_6_7, 32},
	{"D07", "6 and 3 heads on 2 ranks", "S=32,Hq=6,Hkv=3,D=8,dtype=fp64", 1, 2, 0, NULL,
		spoil_ratio, move_pad_head, all, heads_3_and_5, 32},
	{"D09", "strides of v", "B=2," SMALL, 4, 1, 0, NULL, spoil_strides_of_v, NULL, all, all,
		32},
	{"D12", "ranks 1 and 2 swapped", SMALL, 4, 1, 0, swap_1_and_2, NULL, move_listed_rows,
		of_ranks_1_and_2, all, 16},
	{"D12", "keys in another order", CAUSAL, 4, 1, 0, list_rotated, spoil_listed_keys, NULL,
		not_last, all, 31},
};
enum { NWORKED = sizeof worked / sizeof worked[0] };

/* Of one key head by rank, the ring of one rank with all heads has the operands. */
static void run_by_rank(const struct worked *it)
{
	if (strcmp(it->what, "by rank") != 0) {
		run_ranks();
		return;
	}
	struct cpa_config config = now.config;

	now.config.ring_degree = now.config.ulysses_degree = 1;
	cpa_ranks_fini(&now.ranks);
	struct cpa_error error = {""};
	must(cpa_ranks_plan(&now.ranks, &now.open, &now.config, &error), "plan", &error);
	now.spoil = spoil_key_head_by_rank;
	run_ranks();
	cpa_ranks_fini(&now.ranks);
	cpa_device_destroy(now.device);
	now.config = config;
	must(cpa_ranks_plan(&now.ranks, &now.open, &now.config, &error), "plan", &error);
	now.device = NULL;
}

static double *reference(double *lse)
{
	const struct cpa_problem *p = &now.problem;
	double *o = malloc((size_t)(p->B * p->Sq * p->Hq * p->Dv) * sizeof *o);
	struct cpa_error error = {""};

	must(cpa_ref_attention(p, cpa_view_bshd(now.data[0], p->dtype, p->Sq, p->Hq, p->D),
		     cpa_view_bshd(now.data[1], p->dtype, p->Skv, p->Hkv, p->D),
		     cpa_view_bshd(now.data[2], p->dtype, p->Skv, p->Hkv, p->Dv), o, lse, &error),
		"reference", &error);
	return o;
}

/* A row is wrong where some head is; of each wrong row the wrong heads are the same. */
static void expect_rows(const struct worked *it)
{
	const struct cpa_problem *p = &now.problem;
	double *lse = malloc((size_t)(p->B * p->Sq * p->Hq) * sizeof *lse), *o = reference(lse);
	int nrows = 0;

	for (int64_t row = 0; row < p->B * p->Sq; row++) {
		for (int64_t h = 0; h < p->Hq; h++) {
			double off = 0.0;

			for (int64_t d = 0; d < p->Dv; d++) {
				int64_t at = (row * p->Hq + h) * p->Dv + d;

				off = fmax(off, fabs(((double *)now.data[3])[at] - o[at]));
			}
			if ((off > 1e-9) != (it->wrong_row(row % p->Sq) && it->wrong_head(h)))
				fail_msg("%s %s: token %d, head %d is off by %g", it->class,
					it->what, (int)(row % p->Sq), (int)h, off);
		}
		nrows += row < p->Sq && it->wrong_row(row);
	}
	assert_true(it->nrows == 0 || nrows == it->nrows);
	free(o);
	free(lse);
}

static void each_fault_spoils_what_the_dictionary_says_and_is_named(void **state)
{
	(void)state;
	for (int i = 0; i < NWORKED; i++) {
		const struct worked *it = &worked[i];
		char others[256] = "";
		struct verdict v;

		plan_run(it->problem, it->R, it->U, it->order, 4);
		if (it->prepare)
			it->prepare();
		now.spoil = it->spoil;
		run_by_rank(it);
		if (it->move)
			it->move();
		expect_rows(it);
		record_run(file_path, true);
		v = judge_file(file_path);
		if (outcome_of(&v, it->class, others) > TIED)
			fail_msg("%s %s is called %s", it->class, it->what,
				v.diagnosis->n ? v.diagnosis->findings[0].text : "nothing");
		cpa_arena_fini(&v.arena);
		end_run();
	}
}

/* ---- pads of zeros: a shrink by one number ---- */

/* 30 keys on 4 ranks, 2 pads: t = Z (1 / a - 1) = 2 in every row and head, and Z grows by 2. */
static void zero_pads_shrink_every_row_by_their_number(void **state)
{
	double lse[30 * 4], *o;
	char others[256] = "";
	struct verdict v;

	(void)state;
	plan_run(SHORT, 4, 1, CPA_ORDER_CONTIGUOUS, 4);
	now.spoil = spoil_pads_of_zeros;
	run_ranks();
	o = reference(lse);
	for (int row = 0; row < 30 * 4; row++) {
		double oo = 0.0, ro = 0.0, rr = 0.0, Z = exp(lse[row]);

		for (int d = 0; d < 8; d++) {
			double x = ((double *)now.data[3])[row * 8 + d], R = o[row * 8 + d];

			oo += x * x;
			ro += x * R;
			rr += R * R;
		}
		assert_true(fabs(Z * (rr / ro - 1.0) - 2.0) < 1e-9);
		assert_true(fabs(oo - ro * ro / rr) < 1e-12 * rr);
		assert_true(fabs(exp(((double *)now.data[4])[row]) - Z - 2.0) < 1e-9);
	}
	free(o);
	record_run(file_path, true);
	v = judge_file(file_path);
	assert_true(outcome_of(&v, "B01", others) <= TIED);
	cpa_arena_fini(&v.arena);
	end_run();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_fault_spoils_what_the_dictionary_says_and_is_named),
		cmocka_unit_test(zero_pads_shrink_every_row_by_their_number),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
