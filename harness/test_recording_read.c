/*
 * test_recording_read.c - a shard of a recording is the slice of the whole, and what is read are the
 * numbers that were recorded, whatever the layout, byte order and type.
 */
#include "harness/test_recording.h"

#include <math.h>

/* tensor of a call as doubles; spans NULL: whole. */
static double *read_doubles(struct cpa_recording *recording, int i, const char *tensor,
	struct cpa_range batches, const struct cpa_spans *tokens, int64_t S, int64_t row)
{
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	int64_t n = tokens ? cpa_spans_ntokens(tokens) : S;
	int64_t count = (batches.end - batches.start) * n * row;
	double *dst = malloc((size_t)count * sizeof *dst + 1);
	struct cpa_error error = {""};

	assert_non_null(dst);
	for (int64_t e = 0; e < count; e++)
		dst[e] = NAN;
	if (cpa_recording_read(recording, i, tensor, batches, tokens ? tokens : &all, CPA_DTYPE_FP64, dst,
		    &error) != CPA_OK)
		fail_msg("%s: %s", tensor, error.text);
	for (int64_t e = 0; e < count; e++)
		assert_false(isnan(dst[e]));
	return dst;
}

static void check_slice(struct cpa_recording *recording, int i, const char *tensor, int64_t B, int64_t S,
	int64_t row, const struct cpa_spans *tokens)
{
	const struct cpa_range all = {0, B}, last = {B - 1, B};
	int64_t n = cpa_spans_ntokens(tokens);
	double *whole = read_doubles(recording, i, tensor, all, NULL, S, row);
	double *shard = read_doubles(recording, i, tensor, all, tokens, S, row);
	double *one = read_doubles(recording, i, tensor, last, tokens, S, row);

	for (int64_t b = 0; b < B; b++)
		for (int64_t t = 0; t < n; t++)
			assert_memory_equal(shard + (b * n + t) * row,
				whole + (b * S + cpa_spans_token(tokens, t)) * row,
				(size_t)row * sizeof *shard);
	assert_memory_equal(one, shard + (B - 1) * n * row, (size_t)(n * row) * sizeof *one);
	free(whole);
	free(shard);
	free(one);
}

static void a_shard_is_the_slice_of_the_whole(void **state)
{
	(void)state;
	for (int n = 0; n < NKNOWN; n++) {
		const struct known *k = &known[n];
		struct cpa_recording *recording = open_good(k->file);
		int64_t S = k->Sq < k->Skv ? k->Sq : k->Skv, P = 4;
		/* zigzag: ends before the start; striped; runs with holes; nothing */
		struct cpa_span zigzag[] = {{S - S / 8, S / 8, S, 1}, {0, S / 8 + 1, S, 1}};
		struct cpa_span striped[] = {{3, 1, P, (S - 3 + P - 1) / P}};
		struct cpa_span runs[] = {{1, 2, 5, 1 + (S - 3) / 5}};
		const struct cpa_spans lists[] = {{zigzag, S / 8 ? 2 : 0, 2}, {striped, 1, 1}, {runs, 1, 1},
			{NULL, 0, 0}};

		for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
			check_slice(recording, k->i, "q", k->B, k->Sq, k->Hq * k->D, &lists[l]);
			check_slice(recording, k->i, "k", k->B, k->Skv, k->Hkv * k->D, &lists[l]);
			check_slice(recording, k->i, "v", k->B, k->Skv, k->Hkv * k->Dv, &lists[l]);
			check_slice(recording, k->i, "o", k->B, k->Sq, k->Hq * k->Dv, &lists[l]);
			check_slice(recording, k->i, "lse", k->B, k->Sq, k->Hq, &lists[l]);
		}
		cpa_recording_close(recording);
	}
}

/*
 * The recorded lse was computed in float32 or wider (u) from these very elements, whatever their type:
 * a dot product of D terms is off by D u sum|q k|, a sum of exponentials by one u a term, exp and log by
 * a few u each, and lse itself is rounded.  Kernels for 16-bit types may round each weight to the type.
 */
static double lse_bound(const struct cpa_problem *p, double max_abs, double lse)
{
	double u = p->dtype == CPA_DTYPE_FP64 ? 0x1p-53 : 0x1p-24;

	double weight = cpa_dtype_nbytes(p->dtype) == 2 ? cpa_dtype_roundoff(p->dtype) : 0;

	return 1.01 * (weight + u * ((double)(p->D + 4) * max_abs + (double)p->Skv + 8 + fabs(lse)));
}

static bool same_document(const struct cpa_rule *rule, int64_t t, int64_t j)
{
	for (int64_t n = 0; rule->documents && n < rule->ndocuments; n++)
		if (rule->documents[n] <= t && t < rule->documents[n + 1])
			return rule->documents[n] <= j && j < rule->documents[n + 1];
	return true;
}

/* What is added to a score: -inf where query t does not see key j, as the format says it. */
static double bias(const struct cpa_problem *p, int64_t b, int64_t h, int64_t t, int64_t j)
{
	const struct cpa_rule *rule = &p->rule;
	const struct cpa_mask *mask = &rule->mask;
	const int64_t at = b * mask->batch + h * mask->head + t * mask->query + j * mask->key;
	const int64_t i = t + rule->offset;

	if ((rule->causal && j > i) || (rule->window && rule->left >= 0 && j < i - rule->left) ||
	    (rule->window && rule->right >= 0 && j > i + rule->right) ||
	    (rule->key_lengths && j >= rule->key_lengths[b]) || !same_document(rule, t, j))
		return -INFINITY;
	if (mask->kind == CPA_MASK_BOOL)
		return ((const uint8_t *)mask->data)[at] ? 0 : -INFINITY;
	return mask->kind == CPA_MASK_BIAS ? cpa_load(mask->dtype, mask->data, at) : 0;
}

/* One row against its recorded lse. */
static void check_row(const char *file, const struct cpa_problem *p, const double *q, const double *k,
	double lse, int64_t row)
{
	const int64_t h = row % p->Hq, t = row / p->Hq % p->Sq, b = row / p->Hq / p->Sq;
	double sum = 0, max_abs = 0;

	for (int64_t j = 0; j < p->Skv; j++) {
		const double *x = q + row * p->D;
		const double *y = k + ((b * p->Skv + j) * p->Hkv + h / (p->Hq / p->Hkv)) * p->D;
		const double added = bias(p, b, h, t, j);
		double score = 0, absolute = 0;

		if (added == -INFINITY)
			continue;
		for (int64_t d = 0; d < p->D; d++) {
			score += x[d] * y[d];
			absolute += fabs(x[d] * y[d]);
		}
		sum += exp(p->scale * score + added - lse);
		max_abs = fmax(max_abs, p->scale * absolute + fabs(added));
	}
	if (sum == 0 ? lse != -INFINITY : !(fabs(log(sum)) <= lse_bound(p, max_abs, lse)))
		fail_msg("%s: lse of batch item %d, token %d, head %d is off by %g", file, (int)b, (int)t,
			(int)h, log(sum));
}

static void check_lse(const char *file, int i)
{
	struct cpa_recording *recording = open_good(file);
	const struct cpa_problem *p = &good_call(recording, i)->problem;
	const struct cpa_range all = {0, p->B};
	double *q = read_doubles(recording, i, "q", all, NULL, p->Sq, p->Hq * p->D);
	double *k = read_doubles(recording, i, "k", all, NULL, p->Skv, p->Hkv * p->D);
	double *lse = read_doubles(recording, i, "lse", all, NULL, p->Sq, p->Hq);

	for (int64_t row = 0; row < p->B * p->Sq * p->Hq; row++)
		check_row(file, p, q, k, lse[row], row);
	free(q);
	free(k);
	free(lse);
	cpa_recording_close(recording);
}

static void what_is_read_gives_the_recorded_lse(void **state)
{
	(void)state;
	/* The largest ones, which see all or are causal, would take longer than all the others. */
	for (int n = 0; n < NKNOWN; n++) {
		const struct known *k = &known[n];

		if (k->B * k->Sq * k->Skv * k->Hq * k->D < 50000000)
			check_lse(k->file, k->i);
	}
	check_lse("peers/diffusers_ring_anything_cross_p4_bf16.h5", 0);
	check_lse("peers/diffusers_ring_keymask_p2_fp32.h5", 0);
	check_lse("peers/diffusers_ulysses_anything_keymask_p3_fp32.h5", 0);
}

/* Reads of 16-bit elements into their own type and wider are the same numbers. */
static void sixteen_bit_elements_are_exact(void **state)
{
	static const char *const files[] = {"smollm2_bf16.h5", "minilm_bhsd_f16_boolmask.h5"};

	(void)state;
	for (int f = 0; f < 2; f++) {
		struct cpa_recording *recording = open_good(files[f]);
		const struct cpa_problem *p = &good_call(recording, 0)->problem;
		int64_t n = p->B * p->Sq * p->Hq * p->D;
		struct cpa_span span = {0, p->Sq, p->Sq, 1};
		const struct cpa_spans all = {&span, 1, 1};
		double *wide = read_doubles(recording, 0, "q", (struct cpa_range){0, p->B}, NULL, p->Sq,
			p->Hq * p->D);
		uint16_t *bits = malloc((size_t)n * 2);
		struct cpa_error error;

		assert_non_null(bits);
		assert_int_equal(cpa_recording_read(recording, 0, "q", (struct cpa_range){0, p->B}, &all,
					 p->dtype, bits, &error), CPA_OK);
		for (int64_t i = 0; i < n; i++)
			assert_true(wide[i] == (p->dtype == CPA_DTYPE_BF16
				? (double)cpa_bf16_to_float(bits[i]) : (double)cpa_fp16_to_float(bits[i])));
		free(wide);
		free(bits);
		cpa_recording_close(recording);
	}
}

/* A call runs in the layout that it was recorded in. */
static void the_problem_has_the_layout_of_the_file(void **state)
{
	static const char *const files[] = {"smollm2_bf16.h5", "minilm_bhsd_f16_boolmask.h5"};

	(void)state;
	for (int f = 0; f < 2; f++) {
		struct cpa_recording *recording = open_good(files[f]);

		assert_int_equal(good_call(recording, 0)->problem.layout,
			f == 0 ? CPA_LAYOUT_BSHD : CPA_LAYOUT_BHSD);
		cpa_recording_close(recording);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_shard_is_the_slice_of_the_whole),
		cmocka_unit_test(what_is_read_gives_the_recorded_lse),
		cmocka_unit_test(sixteen_bit_elements_are_exact),
		cmocka_unit_test(the_problem_has_the_layout_of_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
