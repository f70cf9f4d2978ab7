/*
 * test_counts.c - bytes, messages and work of plans equal the formulas, and what a mask hides is
 * not moved.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* ---- bytes and messages, from the formulas alone ---- */

/* The keys that the rows of one query span may see lie in [low, high]; false: none. */
static bool find_hull(
	const struct cpa_problem *p, const struct cpa_span *rows, int64_t *low, int64_t *high)
{
	*low = p->Skv;
	*high = -1;
	for (int64_t c = 0; c < rows->count; c++)
		for (int64_t w = 0; w < rows->width; w++)
			for (int64_t b = 0; b < p->B; b++)
				for (int64_t j = 0; j < p->Skv; j++)
					if (row_sees(p, b, rows->start + c * rows->stride + w,
						    j)) {
						*low = j < *low ? j : *low;
						*high = j > *high ? j : *high;
					}
	return *low <= *high;
}

/* Keys of block j that ring rank d needs: the hull of each of its query spans. */
static int64_t nneeded(const struct cpa_partition *part, int d, int j)
{
	const struct cpa_spans *lists[2] = {&part->q_block[d], &part->q_slice[d]},
			       *k = &part->kv_block[j];
	bool needed[64] = {false};
	int64_t n = 0;
	for (int l = 0; l < 2; l++)
		for (int s = 0; s < lists[l]->n; s++) {
			int64_t low, high;
			if (!find_hull(&part->problem, &lists[l]->at[s], &low, &high))
				continue;
			for (int64_t i = 0; i < cpa_spans_ntokens(k); i++)
				needed[i] |= cpa_spans_token(k, i) >= low &&
					cpa_spans_token(k, i) <= high;
		}
	for (int i = 0; i < 64; i++)
		n += needed[i];
	return n;
}

static bool needs(const struct cpa_partition *part, int d, int j)
{
	return nneeded(part, d, j) > 0;
}

static int wrap(int r, int R)
{
	return (r % R + R) % R;
}

/* Keys of the blocks that ring rank r passes on, and how many blocks. */
static int64_t passed_on(const struct cpa_partition *part, int r, int *nblocks)
{
	int R = part->config.ring_degree, direction = part->config.direction;
	int64_t keys = 0;
	*nblocks = 0;
	for (int hop = 1; hop < R; hop++) {
		int j = wrap(r - direction * (hop - 1), R);
		bool needed = false;
		for (int further = hop; further < R; further++)
			needed = needed || needs(part, wrap(j + direction * further, R), j);
		if (needed) {
			keys += cpa_spans_ntokens(&part->kv_block[j]);
			(*nblocks)++;
		}
	}
	return keys;
}

static int64_t count(struct cpa_range range)
{
	return range.end - range.start;
}

static void expect_counts(
	const struct cpa_partition *part, int rank, const struct cpa_counts *counts)
{
	const struct cpa_problem *p = &part->problem;
	const struct cpa_config *c = &part->config;
	struct cpa_coords at = cpa_partition_coords(part, rank);
	int64_t e = (int64_t)cpa_dtype_nbytes(p->dtype),
		e_lse = p->dtype == CPA_DTYPE_FP64 ? 8 : 4;
	int64_t b = count(cpa_partition_batches(part, at.b)),
		h = count(cpa_partition_heads(part, at.u));
	int64_t kappa = count(cpa_partition_kv_heads(part, at.u)),
		w = e * p->Dv + (p->lse ? e_lse : 0);
	int64_t n = nsplit(part, false, at.r, at.u), m = nsplit(part, true, at.r, at.u);
	int64_t N = cpa_spans_ntokens(&part->q_block[at.r]),
		M = cpa_spans_ntokens(&part->kv_block[at.r]);
	int64_t tau = cpa_spans_ntokens(&part->q_slice[at.r]);
	int64_t bytes = 0, messages = 0;
	for (int v = 0; v < c->ulysses_degree; v++) {
		if (v == at.u)
			continue;
		int64_t h_v = count(cpa_partition_heads(part, v));
		int64_t kappa_v = count(cpa_partition_kv_heads(part, v));
		bytes += b * e * (n * p->D * h_v + m * (p->D + p->Dv) * kappa_v);
		messages += b > 0 && (n * h_v > 0 || m * kappa_v > 0);
		messages += b * h * nsplit(part, false, at.r, v) > 0;
	}
	bytes += c->ulysses_degree > 1 ? b * h * (N - n) * w : 0;
	bytes += b * h * tau * (part->P - 1) * w;
	messages += b * h * tau * (part->P - 1) > 0;
	if (c->ring_degree > 1 && part->kv.ncuts > 0 && kappa > 0 && b > 0) {
		int nblocks;
		int64_t keys = passed_on(part, at.r, &nblocks);
		if (c->rotate == CPA_ROTATE_DIRECT) {
			for (int d = 0; d < c->ring_degree; d++) {
				int64_t needed = d == at.r ? 0 : nneeded(part, d, at.r);
				bytes += b * e * kappa * (p->D + p->Dv) * needed;
				messages += needed > 0;
			}
		} else if (c->rotate == CPA_ROTATE_ALLGATHER) {
			bytes += b * e * kappa * (p->D + p->Dv) * M * (c->ring_degree - 1);
			messages += M > 0;
		} else {
			bytes += b * e * kappa * (p->D + p->Dv) * keys;
			messages += nblocks;
		}
	}
	assert_int_equal(counts->bytes_sent, bytes);
	assert_int_equal(counts->messages, messages);
	int64_t work = 0;
	for (int64_t i = 0; i < N + tau; i++)
		for (int64_t j = 0; j < p->Skv; j++)
			for (int64_t item = part->batch[at.b]; item < part->batch[at.b + 1];
				item++)
				work += row_sees(p, item,
					i < N ? cpa_spans_token(&part->q_block[at.r], i)
					      : cpa_spans_token(&part->q_slice[at.r], i - N),
					j);
	assert_int_equal(counts->work, work * h);
	assert_true(counts->attended >= counts->work);
}

static bool row_is_blind(const struct cpa_problem *p, int64_t t)
{
	for (int64_t b = 0; b < p->B; b++)
		for (int64_t j = 0; j < p->Skv; j++)
			if (row_sees(p, b, t, j))
				return false;
	return true;
}

/* The hull of a span is taken from its first and last row; where such a row sees nothing it may
 * be wider than what the rows between need, and more may be moved than the formula says. */
static bool hulls_may_be_wider(const struct cpa_partition *part)
{
	for (int r = 0; r < part->config.ring_degree; r++) {
		const struct cpa_spans *lists[2] = {&part->q_block[r], &part->q_slice[r]};
		for (int l = 0; l < 2; l++)
			for (int i = 0; i < lists[l]->n; i++) {
				const struct cpa_span *s = &lists[l]->at[i];
				if (row_is_blind(&part->problem, s->start) ||
					row_is_blind(&part->problem,
						s->start + (s->count - 1) * s->stride + s->width -
							1))
					return true;
			}
	}
	return false;
}

static void bytes_messages_and_work_equal_the_formulas(void **unused)
{
	(void)unused;
	int planned = 0;
	for (uint64_t seed = 10000; seed < 12500; seed++) {
		uint64_t state = seed;
		struct cpa_problem p = random_problem(&state);
		if (seed % 3)
			random_rule(&state, &p);
		if (seed % 4 == 1)
			random_segments(&state, &p);
		struct cpa_config c = random_config(&state, &p);
		struct cpa_error error;
		struct world w;
		if (make_world(&p, &c, &w, &error) != CPA_OK)
			continue;
		if (hulls_may_be_wider(w.part)) {
			free_world(&w);
			continue;
		}
		for (int r = 0; r < w.part->W; r++) {
			struct cpa_counts counts;
			cpa_schedule_count(w.rank[r], &p, &counts);
			expect_counts(w.part, r, &counts);
			int64_t peak = 0;
			for (int i = 0; i < w.rank[r]->nbuffers; i++)
				peak += cpa_buffer_nbytes(&w.rank[r]->buffers[i]);
			assert_int_equal(counts.peak_bytes, peak);
		}
		planned++;
		free_world(&w);
	}
	assert_true(planned > 700);
}

/* FLUX, 4608 tokens, 24 heads of 128, bf16, 4 ranks: T = 7,077,888 bytes; PERFORMANCE's closed
 * forms 4T(P-1)/P, 2T(P-1) and 4T(u-1)/u + 2T(r-1). */
static void even_cases_equal_the_closed_forms(void **unused)
{
	(void)unused;
	struct cpa_problem p = {.B = 1,
		.Sq = 4608,
		.Skv = 4608,
		.Hq = 24,
		.Hkv = 24,
		.D = 128,
		.Dv = 128,
		.dtype = CPA_DTYPE_BF16,
		.scale = 1};
	const int64_t T = 4608 / 4 * 24 * 128 * 2;
	struct {
		enum cpa_variant variant;
		int R, U;
		int64_t bytes;
	} cases[] = {
		{CPA_VARIANT_ULYSSES, 1, 4, 4 * T * 3 / 4},
		{CPA_VARIANT_RING, 4, 1, 2 * T * 3},
		{CPA_VARIANT_UNIFIED, 2, 2, 4 * T / 2 + 2 * T},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int rotate = 0; rotate < 3; rotate++) {
			struct cpa_config c = cpa_config_default(cases[i].variant, &p);
			c.ring_degree = cases[i].R;
			c.ulysses_degree = cases[i].U;
			c.rotate = (enum cpa_rotate)rotate;
			struct cpa_error error;
			struct world w;
			assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
			for (int r = 0; r < 4; r++) {
				struct cpa_counts counts;
				cpa_schedule_count(w.rank[r], &p, &counts);
				assert_int_equal(counts.bytes_sent, cases[i].bytes);
			}
			free_world(&w);
		}
}

/* SCHEDULES section 2: tokens of KV that all ranks send together, 64k tokens, P = 8, contiguous.
 */
static int64_t tokens_moved(const struct cpa_problem *p, enum cpa_rotate rotate)
{
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, p);
	struct cpa_error error;
	struct world w;
	int64_t bytes = 0;
	c.ring_degree = 8;
	c.rotate = rotate;
	assert_int_equal(make_world(p, &c, &w, &error), CPA_OK);
	assert_int_equal(check_world(&w, &error), CPA_OK);
	for (int r = 0; r < 8; r++) {
		struct cpa_counts counts;
		cpa_schedule_count(w.rank[r], p, &counts);
		bytes += counts.bytes_sent;
	}
	free_world(&w);
	return bytes / 2; /* one head, D = Dv = 1, one byte each would be 2 a token */
}

static void a_window_moves_no_more_than_it_needs(void **unused)
{
	(void)unused;
	enum { KI = 1024, E = 8 };
	struct cpa_problem p = {.B = 1,
		.Sq = 64 * KI,
		.Skv = 64 * KI,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1};
	assert_int_equal(tokens_moved(&p, CPA_ROTATE_P2P), 448 * KI * E);
	p.rule = (struct cpa_rule){.causal = true, .window = true, .left = 4096, .right = -1};
	assert_int_equal(tokens_moved(&p, CPA_ROTATE_ALLGATHER), 448 * KI * E);
	assert_int_equal(tokens_moved(&p, CPA_ROTATE_P2P), 56 * KI * E);
	assert_int_equal(tokens_moved(&p, CPA_ROTATE_DIRECT), 28 * KI * E);
}

/* Of documents only those that a shard boundary cuts move anything. */
static void documents_move_only_where_a_boundary_cuts_them(void **unused)
{
	(void)unused;
	enum { S = 64 * 1024, NDOCUMENTS = 16, SHARD = S / 8 };
	int64_t documents[NDOCUMENTS + 1] = {0};
	uint64_t state = 3;
	for (int i = 1; i <= NDOCUMENTS; i++)
		documents[i] = i == NDOCUMENTS ? S : documents[i - 1] + 1 + below(&state, 7000);
	struct cpa_problem p = {.B = 1,
		.Sq = S,
		.Skv = S,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1,
		.rule = {.documents = documents, .ndocuments = NDOCUMENTS}};
	int64_t expected =
		0; /* rank d gets the keys of the documents of its first and last rows */
	for (int d = 0; d < 8; d++) {
		int64_t low = S, high = 0;
		for (int i = 0; i < NDOCUMENTS; i++)
			if (documents[i] < (d + 1) * SHARD && documents[i + 1] > d * SHARD) {
				low = documents[i] < low ? documents[i] : low;
				high = documents[i + 1] > high ? documents[i + 1] : high;
			}
		expected += high - low - SHARD;
	}
	assert_int_equal(tokens_moved(&p, CPA_ROTATE_DIRECT), expected * 8);
	assert_true(tokens_moved(&p, CPA_ROTATE_P2P) < tokens_moved(&p, CPA_ROTATE_ALLGATHER));
	assert_true(tokens_moved(&p, CPA_ROTATE_DIRECT) <= tokens_moved(&p, CPA_ROTATE_P2P));
}

/* A sink joins each row once, behind all of its keys; rows without keys get it too. */
static void a_sink_is_merged_once_a_row(void **unused)
{
	(void)unused;
	const double sink[2] = {0.5, -1};
	struct cpa_problem p = {.B = 1,
		.Sq = 12,
		.Skv = 12,
		.Hq = 2,
		.Hkv = 2,
		.D = 1,
		.Dv = 1,
		.dtype = CPA_DTYPE_FP64,
		.scale = 1,
		.rule = {.causal = true, .offset = -2, .sink = sink}};
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING, &p);
	c.ring_degree = 3;
	c.order = CPA_ORDER_ZIGZAG;
	struct cpa_error error;
	struct world w;
	assert_int_equal(make_world(&p, &c, &w, &error), CPA_OK);
	assert_int_equal(check_world(&w, &error), CPA_OK);
	for (int r = 0; r < 3; r++) {
		int64_t rows = 0;
		for (int i = 0; i < w.rank[r]->nops; i++)
			if (w.rank[r]->ops[i].kind == CPA_OP_MERGE &&
				w.rank[r]->ops[i].subkind == CPA_MERGE_SINK)
				rows += w.rank[r]->ops[i].writes[0].box.ntokens;
		assert_int_equal(rows, 4);
	}
	free_world(&w);
}

/* max/mean of work over the ranks of a ring. */
static double imbalance(const struct cpa_problem *p, int P, enum cpa_order order)
{
	struct cpa_config c = cpa_config_default(CPA_VARIANT_RING_ANYTHING, p);
	struct cpa_error error;
	struct world w;
	double most = 0, sum = 0;
	c.ring_degree = P;
	c.order = order;
	assert_int_equal(make_world(p, &c, &w, &error), CPA_OK);
	for (int r = 0; r < P; r++) {
		struct cpa_counts counts;
		cpa_schedule_count(w.rank[r], p, &counts);
		most = (double)counts.work > most ? (double)counts.work : most;
		sum += (double)counts.work;
	}
	free_world(&w);
	return most * P / sum;
}

/* The figures of SCHEDULES section 5. */
static void orders_balance_causal_work(void **unused)
{
	(void)unused;
	struct cpa_problem p = {.B = 1,
		.Sq = 4481,
		.Skv = 4481,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.scale = 1,
		.rule = {.causal = true}};
	for (int P = 2; P <= 8; P++) {
		assert_true(imbalance(&p, P, CPA_ORDER_ZIGZAG) <= 1.0013);
		assert_true(imbalance(&p, P, CPA_ORDER_STRIPED) <= 1.0033);
		assert_true(imbalance(&p, P, CPA_ORDER_CONTIGUOUS) > 1.45);
	}
}

static void documents_balance_when_each_is_cut_on_its_own(void **unused)
{
	(void)unused;
	int64_t documents[] = {0, 3000, 3016, 3120, 4096};
	struct cpa_problem p = {.B = 1,
		.Sq = 4096,
		.Skv = 4096,
		.Hq = 1,
		.Hkv = 1,
		.D = 1,
		.Dv = 1,
		.scale = 1,
		.rule = {.causal = true, .documents = documents, .ndocuments = 4}};
	assert_true(imbalance(&p, 8, CPA_ORDER_ZIGZAG) > 1.2);
	assert_true(imbalance(&p, 8, CPA_ORDER_ZIGZAG_DOCUMENTS) < 1.005);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_messages_and_work_equal_the_formulas),
		cmocka_unit_test(even_cases_equal_the_closed_forms),
		cmocka_unit_test(a_window_moves_no_more_than_it_needs),
		cmocka_unit_test(documents_move_only_where_a_boundary_cuts_them),
		cmocka_unit_test(a_sink_is_merged_once_a_row),
		cmocka_unit_test(orders_balance_causal_work),
		cmocka_unit_test(documents_balance_when_each_is_cut_on_its_own),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
