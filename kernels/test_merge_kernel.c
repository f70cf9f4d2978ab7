/*
 * test_merge_kernel.c - MERGE of the host devices: identities bit for bit, and long double.
 */
#include "kernels/host.h"
#include "kernels/test_sets.h"

#include <float.h>
#include <math.h>

static struct cpa_device *device;

/* o [n, dim] and lse [n] of one partial. */
struct partial {
	struct guarded o, lse;
	struct cpa_array o_array, lse_array;
	int64_t n, dim;
};

static struct partial make(enum cpa_dtype o, enum cpa_dtype lse, int64_t n, int64_t dim)
{
	struct partial partial = {.n = n, .dim = dim};

	partial.o = guarded_alloc((size_t)(n * dim) * cpa_dtype_nbytes(o), 0xff);
	partial.lse = guarded_alloc((size_t)n * cpa_dtype_nbytes(lse), 0xff);
	partial.o_array = (struct cpa_array){partial.o.data, o, dim, n * dim, dim};
	partial.lse_array = (struct cpa_array){partial.lse.data, lse, 1, n, 1};
	return partial;
}

static void discard(struct partial *partial)
{
	guarded_free(&partial->o);
	guarded_free(&partial->lse);
}

static double o_of(const struct partial *partial, int64_t i)
{
	return cpa_load(partial->o_array.dtype, partial->o.data, i);
}

static double lse_of(const struct partial *partial, int64_t i)
{
	return cpa_load(partial->lse_array.dtype, partial->lse.data, i);
}

/* Between -spread and spread. */
static double uniform(uint64_t *seed, double spread)
{
	return (double)(int64_t)random_bits(seed) * 0x1p-63 * spread;
}

static void fill(struct partial *partial, uint64_t *seed, double spread)
{
	for (int64_t i = 0; i < partial->n * partial->dim; i++)
		cpa_store(partial->o_array.dtype, partial->o.data, i, uniform(seed, 3));
	for (int64_t i = 0; i < partial->n; i++)
		cpa_store(
			partial->lse_array.dtype, partial->lse.data, i, uniform(seed, spread));
}

static struct partial copy_of(const struct partial *partial)
{
	struct partial copy = make(
		partial->o_array.dtype, partial->lse_array.dtype, partial->n, partial->dim);

	memcpy(copy.o.data, partial->o.data, copy.o.nbytes);
	memcpy(copy.lse.data, partial->lse.data, copy.lse.nbytes);
	return copy;
}

static struct partial empty_like(const struct partial *partial)
{
	struct partial empty = copy_of(partial);

	memset(empty.o.data, 0, empty.o.nbytes);
	for (int64_t i = 0; i < empty.n; i++)
		cpa_store(empty.lse_array.dtype, empty.lse.data, i, -INFINITY);
	return empty;
}

static void merge(const struct partial *a, const struct partial *b)
{
	struct cpa_merge call = {
		a->o_array, a->lse_array, b->o_array, b->lse_array, a->n, 1, 1, a->dim, NULL};
	struct cpa_error error;

	assert_int_equal(device->ops->merge(device, 0, &call, &error), CPA_OK);
}

static void assert_same(const struct partial *a, const struct partial *b)
{
	assert_memory_equal(a->o.data, b->o.data, a->o.nbytes);
	assert_memory_equal(a->lse.data, b->lse.data, a->lse.nbytes);
}

static void a_partial_without_keys_changes_no_bit_of_the_other(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (int64_t dim = 1; dim < 70; dim += 17) {
			struct partial x =
				make((enum cpa_dtype)dtype, (enum cpa_dtype)dtype, 9, dim);
			struct partial before, empty;

			fill(&x, &seed, 50);
			cpa_store((enum cpa_dtype)dtype, x.o.data, 0, -0.0);
			before = copy_of(&x);
			empty = empty_like(&x);
			merge(&x, &empty);
			assert_same(&x, &before);
			merge(&empty, &x);
			assert_same(&empty, &before);
			discard(&x);
			discard(&before);
			discard(&empty);
		}
}

static void two_partials_without_keys_are_one_without_keys(void **state)
{
	struct partial a = make(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 3, 5), x, b;

	(void)state;
	x = empty_like(&a);
	b = empty_like(&a);
	merge(&x, &b);
	assert_same(&x, &b);
	discard(&a);
	discard(&b);
	discard(&x);
}

static void the_order_of_two_partials_does_not_matter(void **state)
{
	uint64_t seed = 2;

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct partial a = make((enum cpa_dtype)dtype, (enum cpa_dtype)dtype, 400, 37),
			       b, kept;

		fill(&a, &seed, 4);
		b = copy_of(&a);
		fill(&b, &seed, 4);
		kept = copy_of(&a);
		merge(&a, &b);
		merge(&b, &kept);
		assert_same(&a, &b);
		discard(&a);
		discard(&b);
		discard(&kept);
	}
}

/*
 * With w the smaller weight and x the difference of the lse: the difference is rounded (u x),
 * exp of libm is right to 2 u, which shifts both weights by (x + 2) u wa wb; their sum, the
 * division, the product and the last addition are 4 u; a log is right to 2 u.
 */
static void check_row(
	const struct partial *a, const struct partial *b, const struct partial *got, int64_t i)
{
	bool wide = a->o_array.dtype == CPA_DTYPE_FP64;
	double u = wide ? 0x1p-53 : 0x1p-24,
	       eta = wide                            ? 0x1p-1070
		: a->o_array.dtype == CPA_DTYPE_FP16 ? 0x1p-24
						     : 0x1p-130;
	long double la = lse_of(a, i), lb = lse_of(b, i), m = la > lb ? la : lb,
		    x = fabsl(la - lb);
	long double ea = expl(la - m), eb = expl(lb - m), wa = ea / (ea + eb),
		    wb = eb / (ea + eb);
	long double lse = m + logl(ea + eb), small = wa < wb ? wa : wb;
	long double slack = ((small > 0 ? x * small : 0) + 2 * small + 4) * u +
		(u + cpa_dtype_roundoff(a->lse_array.dtype)) * fabsl(lse);

	assert_true(fabsl(lse_of(got, i) - lse) <= slack);
	for (int64_t d = i * a->dim; d < (i + 1) * a->dim; d++) {
		long double oa = o_of(a, d), ob = o_of(b, d), o = wa * oa + wb * ob;

		slack = (small > 0 ? (x + 2) * wa * wb : 0) * (fabsl(oa) + fabsl(ob)) +
			4 * (wa * fabsl(oa) + wb * fabsl(ob));
		slack = 1.01L * u * slack + cpa_dtype_roundoff(a->o_array.dtype) * fabsl(o) +
			eta;
		assert_true(fabsl(o_of(got, d) - o) <= slack);
	}
}

static void merged_rows_are_near_the_exact_ones(void **state)
{
	static const struct {
		enum cpa_dtype o_a, lse_a, o_b, lse_b;
		int64_t dim;
		double spread;
	} cases[] = {
		{CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, 64, 5},
		{CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, 3, 200},
		{CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, 7, FLT_MAX},
		{CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP64, 65, 10},
		{CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP64, 2, DBL_MAX},
		{CPA_DTYPE_FP64, CPA_DTYPE_FP64, CPA_DTYPE_FP32, CPA_DTYPE_FP32, 300, 10},
		{CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_BF16, CPA_DTYPE_FP32, 600, 10},
		{CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP16, CPA_DTYPE_FP32, 257, 10},
		{CPA_DTYPE_BF16, CPA_DTYPE_BF16, CPA_DTYPE_BF16, CPA_DTYPE_BF16, 80, 10},
		{CPA_DTYPE_FP16, CPA_DTYPE_FP16, CPA_DTYPE_FP16, CPA_DTYPE_FP16, 513, 10},
		{CPA_DTYPE_BF16, CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, 31, 10},
	};
	uint64_t seed = 3;

	(void)state;
	for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
		struct partial a = make(cases[c].o_a, cases[c].lse_a, 150, cases[c].dim),
			       before;
		struct partial b = make(cases[c].o_b, cases[c].lse_b, 150, cases[c].dim);

		fill(&a, &seed, cases[c].spread);
		fill(&b, &seed, cases[c].spread);
		before = copy_of(&a);
		merge(&a, &b);
		for (int64_t i = 0; i < a.n; i++)
			check_row(&before, &b, &a, i);
		discard(&a);
		discard(&b);
		discard(&before);
	}
}

/* Rows of a [2, 3, 4] box that lie in any order in a and b are each merged with their own. */
static void strides_of_the_four_arrays_are_their_own(void **state)
{
	enum { T = 5, B = 3, H = 4, D = 6, N = T * B * H };
	struct partial a = make(CPA_DTYPE_FP32, CPA_DTYPE_FP32, N, D), b, other, expected;
	uint64_t seed = 4;
	struct cpa_merge call;
	struct cpa_error error;

	(void)state;
	fill(&a, &seed, 3);
	b = copy_of(&a);
	fill(&b, &seed, 3);
	expected = copy_of(&a);
	merge(&expected, &b);
	/* b again, as [H, B, T] rather than [T, B, H]. */
	other = copy_of(&b);
	for (int i = 0; i < N; i++) {
		int t = i / (B * H), r = i / H % B, h = i % H, to = (h * B + r) * T + t;

		memcpy(other.o.data + to * D * 4, b.o.data + i * D * 4, D * 4);
		memcpy(other.lse.data + to * 4, b.lse.data + i * 4, 4);
	}
	call = (struct cpa_merge){{a.o.data, CPA_DTYPE_FP32, B * H * D, H * D, D},
		{a.lse.data, CPA_DTYPE_FP32, B * H, H, 1},
		{other.o.data, CPA_DTYPE_FP32, D, T * D, B * T * D},
		{other.lse.data, CPA_DTYPE_FP32, 1, T, B * T}, T, B, H, D, NULL};
	assert_int_equal(device->ops->merge(device, 0, &call, &error), CPA_OK);
	assert_same(&a, &expected);
	discard(&a);
	discard(&b);
	discard(&other);
	discard(&expected);
}

/* From what exact arithmetic leaves representable: weights 1/2, and 1 against nothing. */
static void equal_partials_merge_to_themselves(void **state)
{
	struct partial a = make(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 2000, 64), b, before;
	uint64_t seed = 5;

	(void)state;
	fill(&a, &seed, 0);
	b = copy_of(&a);
	before = copy_of(&a);
	merge(&a, &b);
	assert_memory_equal(a.o.data, before.o.data, a.o.nbytes);
	for (int64_t i = 0; i < a.n; i++)
		assert_true(lse_of(&a, i) == (double)logf(2));
	discard(&a);
	discard(&b);
	discard(&before);
}

/* Rows of a as [tokens][heads]; a sink for each head. */
static void merge_sink(const struct partial *a, int64_t nheads, const double *sink)
{
	struct cpa_merge call = {.o_a = a->o_array,
		.lse_a = a->lse_array,
		.ntokens = a->n / nheads,
		.nbatches = 1,
		.nheads = nheads,
		.dim = a->dim,
		.sink = sink};
	struct cpa_error error;

	call.o_a.token = nheads * a->dim;
	call.lse_a.token = nheads;
	assert_int_equal(device->ops->merge(device, 0, &call, &error), CPA_OK);
}

enum { SINKS = 5 };
static const double sinks[SINKS] = {-2.5, 0, 3, 48, -176};

static void a_sink_is_a_partial_of_zeros(void **state)
{
	uint64_t seed = 6;

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++)
		for (int64_t dim = 1; dim < 600; dim += 130) {
			struct partial x = make(
				(enum cpa_dtype)dtype, (enum cpa_dtype)dtype, 8 * SINKS, dim);
			struct partial before, zeros, sunk;

			fill(&x, &seed, 5);
			for (int64_t i = 0; i < 2 * SINKS; i++) {
				memset(x.o.data +
						(size_t)(i * dim) *
							cpa_dtype_nbytes((enum cpa_dtype)dtype),
					0,
					(size_t)dim * cpa_dtype_nbytes((enum cpa_dtype)dtype));
				cpa_store((enum cpa_dtype)dtype, x.lse.data, i, -INFINITY);
			}
			before = copy_of(&x);
			sunk = copy_of(&x);
			zeros = empty_like(&x);
			for (int64_t i = 0; i < x.n; i++)
				cpa_store((enum cpa_dtype)dtype, zeros.lse.data, i,
					sinks[i % SINKS]);
			merge(&x, &zeros);
			merge_sink(&sunk, SINKS, sinks);
			assert_same(&sunk, &x);
			for (int64_t i = 0; i < 2 * SINKS; i++)
				assert_true(lse_of(&sunk, i) == sinks[i % SINKS] &&
					o_of(&sunk, i * dim) == 0);
			for (int64_t i = 2 * SINKS; i < x.n; i++)
				check_row(&before, &zeros, &sunk, i);
			discard(&x);
			discard(&before);
			discard(&zeros);
			discard(&sunk);
		}
}

static void a_sink_of_minus_infinity_changes_no_bit(void **state)
{
	static const double sink[1] = {-INFINITY};
	struct partial x = make(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 9, 7), before;
	uint64_t seed = 7;

	(void)state;
	fill(&x, &seed, 5);
	cpa_store(CPA_DTYPE_FP32, x.lse.data, 3, -INFINITY);
	before = copy_of(&x);
	merge_sink(&x, 1, sink);
	assert_same(&x, &before);
	discard(&x);
	discard(&before);
}

/* Some rows of a and of b without keys, in a pattern that changes with the number of rows. */
static void empty_some(struct partial *partial, uint64_t *seed)
{
	size_t row = (size_t)partial->dim * cpa_dtype_nbytes(partial->o_array.dtype);

	for (int64_t i = 0; i < partial->n; i++)
		if (random_int(seed, 0, 3) == 0) {
			memset(partial->o.data + (size_t)i * row, 0, row);
			cpa_store(partial->lse_array.dtype, partial->lse.data, i, -INFINITY);
		}
}

static void merge_one_by_one(const struct partial *a, const struct partial *b)
{
	for (int64_t i = 0; i < a->n; i++) {
		struct partial x = *a, y = *b;

		x.n = y.n = 1;
		x.o_array.data = cpa_element(&a->o_array, i * a->dim);
		y.o_array.data = cpa_element(&b->o_array, i * a->dim);
		x.lse_array.data = cpa_element(&a->lse_array, i);
		y.lse_array.data = cpa_element(&b->lse_array, i);
		merge(&x, &y);
	}
}

static void try_rows(uint64_t *seed, const enum cpa_dtype dtypes[4], int64_t n, int64_t dim)
{
	struct partial a = make(dtypes[0], dtypes[1], n, dim), b, alone;

	fill(&a, seed, 6);
	b = make(dtypes[2], dtypes[3], n, dim);
	fill(&b, seed, 6);
	if (n % 3) {
		empty_some(&a, seed);
		empty_some(&b, seed);
	}
	alone = copy_of(&a);
	merge(&a, &b);
	merge_one_by_one(&alone, &b);
	assert_same(&a, &alone);
	discard(&a);
	discard(&b);
	discard(&alone);
}

/* Whatever else is merged at the same time, and by however many threads: all mixes of dtypes. */
static void a_row_is_merged_as_it_would_be_alone(void **state)
{
	static const enum cpa_dtype fp32[4] = {
		CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32, CPA_DTYPE_FP32};
	uint64_t seed = 8;

	(void)state;
	for (int mix = 0; mix < 256; mix++) {
		enum cpa_dtype dtypes[4] = {(enum cpa_dtype)(mix % 4),
			(enum cpa_dtype)(mix / 4 % 4), (enum cpa_dtype)(mix / 16 % 4),
			(enum cpa_dtype)(mix / 64)};

		for (int64_t n = 0; n < 70; n += 23)
			try_rows(&seed, dtypes, n, random_int(&seed, 1, 70));
	}
	for (int64_t n = 0; n <= 70; n++)
		try_rows(&seed, fp32, n, n % 7 == 0 ? 128 : n % 5 == 0 ? 64 : n + 1);
	for (int64_t n = 511; n < 4000; n += 1200)
		try_rows(&seed, fp32, n, 128);
}

/* Poison must not be merged away: a NaN in either lse is NaN in o and lse. */
static void nan_in_either_lse_shows(void **state)
{
	uint64_t seed = 9;

	(void)state;
	for (int64_t i = 0; i < 40; i++)
		for (int in_b = 0; in_b < 2; in_b++) {
			struct partial a = make(CPA_DTYPE_FP32, CPA_DTYPE_FP32, 40, 64), b;

			fill(&a, &seed, 5);
			b = copy_of(&a);
			cpa_store(CPA_DTYPE_FP32, in_b ? b.lse.data : a.lse.data, i, NAN);
			merge(&a, &b);
			for (int64_t k = 0; k < 40; k++)
				assert_true(isnan(lse_of(&a, k)) == (k == i) &&
					isnan(o_of(&a, 64 * k + 63)) == (k == i));
			discard(&a);
			discard(&b);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_partial_without_keys_changes_no_bit_of_the_other),
		cmocka_unit_test(two_partials_without_keys_are_one_without_keys),
		cmocka_unit_test(the_order_of_two_partials_does_not_matter),
		cmocka_unit_test(merged_rows_are_near_the_exact_ones),
		cmocka_unit_test(strides_of_the_four_arrays_are_their_own),
		cmocka_unit_test(equal_partials_merge_to_themselves),
		cmocka_unit_test(a_sink_is_a_partial_of_zeros),
		cmocka_unit_test(a_sink_of_minus_infinity_changes_no_bit),
		cmocka_unit_test(a_row_is_merged_as_it_would_be_alone),
		cmocka_unit_test(nan_in_either_lse_shows),
	};
	struct cpa_error error;
	int failed;

	if (cpa_device_create("cpu", &device, &error))
		return 1;
	failed = run_in_each_set(tests, sizeof tests / sizeof tests[0]);
	cpa_device_destroy(device);
	return failed;
}
