/*
 * test_far_strides.c - rows so far apart that an offset in 32 bits would wrap give the bits of
 * rows that lie side by side: copies, merges, attention and its mask, on every device of the
 * host.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/test_memory.h"

enum { NTOKENS = 19, NHEADS = 4, DIM = 8, NBATCHES = 2 };
/* Elements; of fp32 the sixth row is beyond 2^35 bytes, of mask bytes the third beyond 2^32. */
static const int64_t far = ((int64_t)1 << 31) + 4096;
static const size_t nfar_bytes = (((size_t)1 << 31) + 4096) * 4 * (NTOKENS + 1);

enum axis { AXIS_TOKEN, AXIS_HEAD, NAXES };

/* Pages that are touched exist, the others are addresses only.  NULL: this machine gives none. */
static void *far_alloc(void)
{
	void *data = mmap(NULL, nfar_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return data == MAP_FAILED ? NULL : data;
}

static struct cpa_array near_array(void *data, int64_t dim)
{
	return (struct cpa_array){
		data, CPA_DTYPE_FP32, NBATCHES * NHEADS * dim, NHEADS * dim, dim};
}

static struct cpa_array far_array(void *data, enum axis axis, int64_t dim)
{
	struct cpa_array array = near_array(data, dim);

	if (axis == AXIS_TOKEN)
		array.token = far;
	else
		array.head = far, array.batch = NTOKENS * dim, array.token = dim;
	return array;
}

static float *element_of(const struct cpa_array *x, int64_t t, int64_t b, int64_t h)
{
	return (float *)x->data + t * x->token + b * x->batch + h * x->head;
}

static void fill(const struct cpa_array *x, int64_t dim, char tensor)
{
	static const struct cpa_problem problem = {.B = NBATCHES,
		.Sq = NTOKENS,
		.Skv = NTOKENS,
		.Hq = NHEADS,
		.Hkv = NHEADS,
		.D = DIM,
		.Dv = DIM,
		.dtype = CPA_DTYPE_FP32};

	for (int64_t i = 0; i < NTOKENS * NBATCHES * NHEADS * dim; i++) {
		int64_t d = i % dim, h = i / dim % NHEADS, b = i / dim / NHEADS % NBATCHES,
			t = i / dim / NHEADS / NBATCHES;

		element_of(x, t, b, h)[d] = (float)cpa_fill_value(
			CPA_FILL_NORMAL, &problem, 3, tensor, b, t, h, d);
	}
}

static void assert_same(const struct cpa_array *x, const struct cpa_array *y, int64_t dim)
{
	for (int64_t i = 0; i < NTOKENS * NBATCHES * NHEADS; i++) {
		int64_t h = i % NHEADS, b = i / NHEADS % NBATCHES, t = i / NHEADS / NBATCHES;

		assert_memory_equal(element_of(x, t, b, h), element_of(y, t, b, h),
			(size_t)dim * sizeof(float));
	}
}

static struct cpa_device *device_of(int i)
{
	struct cpa_device *device;
	struct cpa_error error;
	enum cpa_status status = cpa_device_create(cpa_device_name(i), &device, &error);

	return status == CPA_OK ? device : NULL;
}

/* far -> near -> far, all on one device; the copies are bitwise. */
static void check_copy(struct cpa_device *device, enum axis axis, void *memory)
{
	static float data[NTOKENS * NBATCHES * NHEADS * DIM];
	struct cpa_array there = far_array(memory, axis, DIM), here = near_array(data, DIM);
	struct cpa_copy copy = {here, there, NTOKENS, NBATCHES, NHEADS, DIM, 0};
	struct cpa_error error;

	fill(&there, DIM, 'q');
	memset(data, 0xff, sizeof data);
	assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
	assert_same(&here, &there, DIM);
	fill(&here, DIM, 'k');
	copy.dst = there;
	copy.src = here;
	assert_int_equal(device->ops->copy(device, 0, &copy, &error), CPA_OK);
	assert_same(&there, &here, DIM);
}

static void check_merge(struct cpa_device *device, enum axis axis, void *memory[])
{
	static float near[4][NTOKENS * NBATCHES * NHEADS * DIM];
	struct cpa_merge here = {
		.ntokens = NTOKENS, .nbatches = NBATCHES, .nheads = NHEADS, .dim = DIM};
	struct cpa_merge there = here;
	struct cpa_array *at[2][4] = {{&here.o_a, &here.lse_a, &here.o_b, &here.lse_b},
		{&there.o_a, &there.lse_a, &there.o_b, &there.lse_b}};
	struct cpa_error error;

	for (int i = 0; i < 4; i++) {
		int64_t dim = i % 2 ? 1 : DIM;

		*at[0][i] = near_array(near[i], dim);
		*at[1][i] = far_array(memory[i], axis, dim);
		fill(at[0][i], dim, "qkvq"[i]);
		fill(at[1][i], dim, "qkvq"[i]);
	}
	assert_int_equal(device->ops->merge(device, 0, &here, &error), CPA_OK);
	assert_int_equal(device->ops->merge(device, 0, &there, &error), CPA_OK);
	assert_same(&here.o_a, &there.o_a, DIM);
	assert_same(&here.lse_a, &there.lse_a, 1);
}

/* One more array than memory[4]: the mask, a row of it for each query. */
static void check_attend(struct cpa_device *device, enum axis axis, void *memory[])
{
	static float near[5][NTOKENS * NBATCHES * NHEADS * DIM];
	static uint8_t near_mask[NTOKENS * NTOKENS];
	uint8_t *far_mask = memory[5];
	struct cpa_problem problem = {.B = NBATCHES,
		.Sq = NTOKENS,
		.Skv = NTOKENS,
		.Hq = NHEADS,
		.Hkv = NHEADS,
		.D = DIM,
		.Dv = DIM,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5,
		.lse = true};
	struct cpa_problem far_problem = problem;
	struct cpa_span whole = {.start = 0, .width = NTOKENS, .stride = NTOKENS, .count = 1};
	struct cpa_spans tokens = {.at = &whole, .n = 1};
	struct cpa_attend here = {.problem = &problem,
		.nq = NTOKENS,
		.nk = NTOKENS,
		.batches = {0, NBATCHES},
		.heads = {0, NHEADS},
		.q_tokens = tokens,
		.k_tokens = tokens};
	struct cpa_attend there = here;
	struct cpa_array *at[2][5] = {{&here.q, &here.k, &here.v, &here.o, &here.lse},
		{&there.q, &there.k, &there.v, &there.o, &there.lse}};
	struct cpa_error error;

	there.problem = &far_problem;
	for (int i = 0; i < 5; i++) {
		*at[0][i] = near_array(near[i], i < 4 ? DIM : 1);
		*at[1][i] = far_array(memory[i], axis, i < 4 ? DIM : 1);
		fill(at[0][i], i < 4 ? DIM : 1, "qkvqq"[i]);
		fill(at[1][i], i < 4 ? DIM : 1, "qkvqq"[i]);
	}
	for (int64_t i = 0; i < NTOKENS * NTOKENS; i++) {
		near_mask[i] = i * 7 % 5 < 3;
		far_mask[i / NTOKENS * far + i % NTOKENS] = near_mask[i];
	}
	problem.rule.mask = (struct cpa_mask){
		.kind = CPA_MASK_BOOL, .data = near_mask, .query = NTOKENS, .key = 1};
	far_problem.rule.mask = problem.rule.mask;
	far_problem.rule.mask.data = far_mask;
	far_problem.rule.mask.query = far;
	assert_int_equal(device->ops->attend(device, 0, &here, &error), CPA_OK);
	assert_int_equal(device->ops->attend(device, 0, &there, &error), CPA_OK);
	assert_same(&here.o, &there.o, DIM);
	assert_same(&here.lse, &there.lse, 1);
}

static void offsets_beyond_32_bits_are_exact(void **state)
{
	void *memory[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		memory[i] = far_alloc();
	if (!memory[5]) {
		print_message("left out: this machine gives no 160 GB of addresses\n");
		skip();
	}
	for (int i = 0; cpa_device_name(i); i++) {
		struct cpa_device *device = device_of(i);

		for (int axis = 0; device && axis < NAXES; axis++) {
			check_copy(device, (enum axis)axis, memory[0]);
			check_merge(device, (enum axis)axis, memory);
			check_attend(device, (enum axis)axis, memory);
		}
		cpa_device_destroy(device);
	}
	for (int i = 0; i < 6; i++)
		munmap(memory[i], nfar_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(offsets_beyond_32_bits_are_exact)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
