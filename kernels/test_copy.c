/*
 * test_copy.c - boxes between random strides and dtypes against one element at a time;
 * conversions of runs against those of single numbers.
 */
#include "kernels/host.h"
#include "kernels/test_sets.h"

#include <math.h>

static struct cpa_device *device;

/* A buffer of a box with room around it, in a random order of axes. */
struct side {
	struct guarded memory;
	struct cpa_array array;
};

static struct side make_side(uint64_t *seed, enum cpa_dtype dtype, int64_t nt, int64_t nb,
	int64_t nh, int64_t dim, int room)
{
	int64_t T = nt + random_int(seed, 0, room), B = nb + random_int(seed, 0, room);
	int64_t H = nh + random_int(seed, 0, room), t = random_int(seed, 0, T - nt);
	int64_t b = random_int(seed, 0, B - nb), h = random_int(seed, 0, H - nh),
		gap = random_int(seed, 0, room);
	struct side side = {.array = {NULL, dtype, 0, 0, 0}};
	struct cpa_array *array = &side.array;

	dim += gap;
	switch (random_int(seed, 0, 3)) {
	case 0: /* [B, S, H, D] */
		array->head = dim, array->token = H * dim, array->batch = T * H * dim;
		break;
	case 1: /* [S, B, H, D] */
		array->head = dim, array->batch = H * dim, array->token = B * H * dim;
		break;
	case 2: /* [B, H, S, D] */
		array->token = dim, array->head = T * dim, array->batch = T * H * dim;
		break;
	default: /* [H, S, B, D] */
		array->batch = dim, array->token = B * dim, array->head = T * B * dim;
	}
	side.memory =
		guarded_alloc((size_t)(T * B * H * dim - gap) * cpa_dtype_nbytes(dtype), 0xff);
	array->data = side.memory.data;
	array->data = cpa_element(array, cpa_array_index(array, t, b, h));
	return side;
}

/* The plain way. */
static void copy_plainly(const struct cpa_copy *copy)
{
	for (int64_t t = 0; t < copy->ntokens; t++)
		for (int64_t b = 0; b < copy->nbatches; b++)
			for (int64_t i = 0; i < copy->nheads * copy->dim; i++) {
				int64_t h = i / copy->dim, d = i % copy->dim;
				double value = copy->src.data
					? cpa_load(copy->src.dtype, copy->src.data,
						  cpa_array_index(&copy->src, t, b, h) + d)
					: copy->fill;

				cpa_store(copy->dst.dtype, copy->dst.data,
					cpa_array_index(&copy->dst, t, b, h) + d, value);
			}
}

static void fill_side(uint64_t *seed, struct side *side)
{
	size_t n = side->memory.nbytes / cpa_dtype_nbytes(side->array.dtype);

	for (size_t i = 0; i < n; i++)
		cpa_store(side->array.dtype, side->memory.data, (int64_t)i,
			(double)(int64_t)random_bits(seed) * 0x1p-60);
}

static void try_copy(
	uint64_t *seed, enum cpa_dtype to, enum cpa_dtype from, bool fill, int64_t most)
{
	int64_t nt = random_int(seed, 1, most), nb = random_int(seed, 1, 3),
		nh = random_int(seed, 1, 5);
	int64_t dim = random_int(seed, 0, 2) ? random_int(seed, 1, 300) : 1;
	int room = (int)random_int(seed, 0, 2);
	struct side dst = make_side(seed, to, nt, nb, nh, dim, room);
	struct side src = make_side(seed, from, nt, nb, nh, dim, room);
	struct cpa_copy copy = {dst.array, src.array, nt, nb, nh, dim, 0};
	unsigned char *result = malloc(dst.memory.nbytes);
	struct cpa_error error;

	fill_side(seed, &src);
	if (fill) {
		copy.src.data = NULL;
		copy.fill = random_int(seed, 0, 1) ? -INFINITY : 0;
	}
	assert_non_null(result);
	assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
	memcpy(result, dst.memory.data, dst.memory.nbytes);
	memset(dst.memory.data, 0xff, dst.memory.nbytes);
	copy_plainly(&copy);
	assert_memory_equal(result, dst.memory.data, dst.memory.nbytes);
	free(result);
	guarded_free(&dst.memory);
	guarded_free(&src.memory);
}

static void any_box_arrives_and_nothing_around_it_changes(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int i = 0; i < 1600; i++)
		try_copy(&seed, (enum cpa_dtype)(i % 4), (enum cpa_dtype)(i / 4 % 4),
			i % 7 == 0, 12);
	for (int i = 0; i < 6; i++)
		try_copy(&seed, (enum cpa_dtype)(1 + i % 2), CPA_DTYPE_FP32, false, 3000);
}

/* [S, B, H] to [H, B, S] and back, of `least` numbers and some more, in rows that do and do not lie
 * on lines. */
static void try_transpose(
	uint64_t *seed, int64_t least, int64_t dim, bool back, bool off, int64_t nheads)
{
	int64_t S = least / (nheads * dim) + 3, n = S * nheads * dim;
	struct guarded src = guarded_alloc((size_t)(n + off) * 4, 0);
	struct guarded dst = guarded_alloc((size_t)(n + off) * 4, 0xff);
	struct cpa_array by_token = {NULL, CPA_DTYPE_FP32, nheads * dim, n, dim};
	struct cpa_array by_head = {NULL, CPA_DTYPE_FP32, dim, n, S * dim};
	struct cpa_copy copy = {
		back ? by_token : by_head, back ? by_head : by_token, S, 1, nheads, dim, 0};
	struct cpa_error error;

	copy.src.data = src.data;
	copy.dst.data = dst.data;
	for (int64_t i = 0; i < n; i++)
		((uint32_t *)src.data)[i] = (uint32_t)random_bits(seed);
	assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
	for (int64_t t = 0; t < S; t++)
		for (int64_t h = 0; h < nheads; h++)
			assert_memory_equal(
				cpa_element(&copy.dst, t * copy.dst.token + h * copy.dst.head),
				cpa_element(&copy.src, t * copy.src.token + h * copy.src.head),
				(size_t)dim * 4);
	guarded_free(&src);
	guarded_free(&dst);
}

/* Larger than any cache near a core: written past them, in tiles. */
static void large_boxes_are_transposed_whole(void **state)
{
	static const int64_t dims[] = {32, 64, 97, 128, 260};
	uint64_t seed = 5;

	(void)state;
	for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
		for (int back = 0; back < 2; back++) {
			try_transpose(&seed, 1 << 21, dims[i], back, i % 2, 24);
			try_transpose(&seed, 1 << 21, dims[i], back, !(i % 2), 5);
		}
}

/* Small enough for the caches, in rows of some KiB, which may be moved in another way. */
static void long_rows_of_small_boxes_are_transposed_whole(void **state)
{
	static const int64_t dims[] = {1008, 1024, 1025, 1040, 3000, 8192};
	uint64_t seed = 6;

	(void)state;
	for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
		for (int way = 0; way < 4; way++)
			try_transpose(&seed, 1 << 15, dims[i], way % 2, way / 2, 3);
}

/* Several threads, each with copies of its own, small and large. */
static void copies_of_several_threads_do_not_mix(void **state)
{
	enum { N = 8, ROWS = 40, DIM = 9 };
	static float from[N][ROWS * DIM], to[N][ROWS * DIM];
	int failed = 0;

	(void)state;
	for (int i = 0; i < N; i++)
		for (int k = 0; k < ROWS * DIM; k++)
			from[i][k] = (float)(i * ROWS * DIM + k);
	for (int repeat = 0; repeat < 50; repeat++) {
		memset(to, 0xff, sizeof to);
		CPA_OMP(omp parallel for num_threads(4) reduction(+ : failed))
		for (int i = 0; i < N; i++) {
			struct cpa_copy copy = {{to[i], CPA_DTYPE_FP32, DIM, 0, 8 * DIM},
				{from[i], CPA_DTYPE_FP32, 5 * DIM, 0, DIM}, 8, 1, 5, DIM, 0};
			struct cpa_error error;

			failed += device->ops->copy(device, 0, &copy, &error) != CPA_OK;
		}
		assert_int_equal(failed, 0);
		for (int i = 0; i < N; i++)
			for (int row = 0; row < ROWS; row++)
				assert_memory_equal(to[i] + (row % 5 * 8 + row / 5) * DIM,
					from[i] + row * DIM, DIM * sizeof(float));
	}
}

static void an_empty_box_copies_nothing(void **state)
{
	struct cpa_copy copy = {{NULL, CPA_DTYPE_FP32, 1, 1, 1},
		{NULL, CPA_DTYPE_FP32, 1, 1, 1}, 0, 1, 1, 1, 0};
	struct cpa_error error;

	(void)state;
	assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
}

/* Through the shifted ends of vectors too. */
static void check_run(enum cpa_dtype to, enum cpa_dtype from, const void *src, int64_t n)
{
	size_t nbytes = (size_t)n * cpa_dtype_nbytes(to);
	struct guarded got = guarded_alloc(nbytes, 0), expected = guarded_alloc(nbytes, 0);

	cpa_run_convert(to, got.data, from, src, n);
	cpa_convert(to, expected.data, from, src, n);
	assert_memory_equal(got.data, expected.data, nbytes);
	guarded_free(&got);
	guarded_free(&expected);
}

static void every_pattern_of_16_bits_converts_as_one_number_does(void **state)
{
	static uint16_t all[65536];

	(void)state;
	for (int i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (int from = CPA_DTYPE_BF16; from <= CPA_DTYPE_FP16; from++)
		for (int to = CPA_DTYPE_FP64; to <= CPA_DTYPE_FP16; to++)
			check_run((enum cpa_dtype)to, (enum cpa_dtype)from, all, 65536);
}

/* Random bits, and the neighbours of what lies between two 16-bit numbers. */
static void fp32_and_fp64_convert_as_one_number_does(void **state)
{
	enum { N = 1 << 17 };
	static float narrow[N];
	static double wide[N];
	uint64_t seed = 2;

	(void)state;
	for (int64_t i = 0; i < N; i++) {
		uint32_t bits = (uint32_t)random_bits(&seed), cut = i & 1 ? 16 : 13;
		uint64_t more = random_bits(&seed);

		if (i % 4 < 2)
			bits = ((bits >> cut) << cut) + (1u << (cut - 1)) +
				(uint32_t)(i / 4 % 3) - 1;
		if (i % 8 < 4) /* the exponents of fp16 */
			bits = (bits & 0x87ffffff) | 0x30000000 | (bits & 0x08000000) << 3;
		memcpy(&narrow[i], &bits, sizeof bits);
		memcpy(&wide[i], &more, sizeof more);
		if (i & 1)
			wide[i] = (double)narrow[i] * (1 + 0x1p-30 * (double)(i % 3 - 1));
	}
	for (int to = CPA_DTYPE_FP64; to <= CPA_DTYPE_FP16; to++) {
		check_run((enum cpa_dtype)to, CPA_DTYPE_FP32, narrow, N);
		check_run((enum cpa_dtype)to, CPA_DTYPE_FP64, wide, N);
	}
	for (int64_t n = 0; n < 70; n++)
		check_run(CPA_DTYPE_FP16, CPA_DTYPE_FP32, narrow, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_box_arrives_and_nothing_around_it_changes),
		cmocka_unit_test(large_boxes_are_transposed_whole),
		cmocka_unit_test(long_rows_of_small_boxes_are_transposed_whole),
		cmocka_unit_test(copies_of_several_threads_do_not_mix),
		cmocka_unit_test(an_empty_box_copies_nothing),
		cmocka_unit_test(every_pattern_of_16_bits_converts_as_one_number_does),
		cmocka_unit_test(fp32_and_fp64_convert_as_one_number_does),
	};
	struct cpa_error error;
	int failed;

	if (cpa_device_create("cpu", &device, &error))
		return 1;
	failed = run_in_each_set(tests, sizeof tests / sizeof tests[0]);
	cpa_device_destroy(device);
	return failed;
}
