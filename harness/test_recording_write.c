/*
 * test_recording_write.c - what is written reads back as the same numbers, and a write that fails says
 * why and leaves what was there before.
 */
#include "harness/recording_hdf5.h"
#include "harness/test_recording.h"
#include "harness/test_directory.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int nfiles(void)
{
	DIR *list = opendir(directory);
	int n = 0;

	assert_non_null(list);
	for (struct dirent *entry; (entry = readdir(list));)
		n += entry->d_name[0] != '.';
	closedir(list);
	return n;
}

/* ---- round trip ------------------------------------------------------------------------------ */

/* n elements of dtype: all the kinds of finite numbers that it has. */
static void *make_tensor(enum cpa_dtype dtype, int64_t n, uint64_t seed)
{
	void *data = malloc((size_t)n * cpa_dtype_nbytes(dtype));

	assert_non_null(data);
	for (int64_t i = 0; i < n; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		switch (i) {
		case 0:
			cpa_store(dtype, data, i, cpa_dtype_max(dtype));
			break;
		case 1:
			cpa_store(dtype, data, i, -0.0);
			break;
		case 2: /* subnormal in float16 and float32 */
			cpa_store(dtype, data, i, dtype == CPA_DTYPE_FP16 ? 0x1p-24 : 0x1p-140);
			break;
		default:
			cpa_store(dtype, data, i, ((double)(seed >> 11) * 0x1p-53 - 0.5) * 8);
		}
	}
	return data;
}

static void check_tensor(struct cpa_recording *recording, const char *name, int64_t B, int64_t S,
	int64_t row, enum cpa_dtype dtype, const void *expected)
{
	size_t nbytes = (size_t)(B * S * row) * cpa_dtype_nbytes(dtype);
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	void *found = malloc(nbytes);
	struct cpa_error error = {""};

	assert_non_null(found);
	if (cpa_recording_read(recording, 0, name, (struct cpa_range){0, B}, &all, dtype, found, &error) !=
	    CPA_OK)
		fail_msg("%s: %s", name, error.text);
	assert_memory_equal(found, expected, nbytes);
	free(found);
}

static double mask_element(const struct cpa_mask *mask, int64_t i)
{
	return mask->kind == CPA_MASK_BOOL ? ((const uint8_t *)mask->data)[i]
					   : cpa_load(mask->dtype, mask->data, i);
}

static void check_mask(const struct cpa_problem *p, const struct cpa_mask *a, const struct cpa_mask *b)
{
	assert_int_equal(a->kind, b->kind);
	if (a->kind == CPA_MASK_NONE)
		return;
	assert_true(a->kind == CPA_MASK_BOOL || a->dtype == b->dtype);
	/* Never expanded. */
	assert_true(!a->batch == !b->batch && !a->head == !b->head);
	assert_true(!a->query == !b->query && !a->key == !b->key);
	for (int64_t n = 0; n < p->B * p->Hq * p->Sq * p->Skv; n++) {
		const int64_t j = n % p->Skv, t = n / p->Skv % p->Sq, h = n / p->Skv / p->Sq % p->Hq;
		const int64_t i = n / p->Skv / p->Sq / p->Hq;

		assert_true(mask_element(a, i * a->batch + h * a->head + t * a->query + j * a->key) ==
			    mask_element(b, i * b->batch + h * b->head + t * b->query + j * b->key));
	}
}

static void check_rule(const struct cpa_problem *p, const struct cpa_problem *found)
{
	const struct cpa_rule *a = &p->rule, *b = &found->rule;

	assert_true(a->causal == b->causal && a->offset == b->offset && a->window == b->window);
	assert_true(!a->window || (a->left == b->left && a->right == b->right));
	assert_true(!a->key_lengths == !b->key_lengths && !a->sink == !b->sink);
	assert_true(!a->documents == !b->documents && a->ndocuments == b->ndocuments);
	if (a->key_lengths)
		assert_memory_equal(a->key_lengths, b->key_lengths, (size_t)p->B * 8);
	if (a->documents)
		assert_memory_equal(a->documents, b->documents, (size_t)(a->ndocuments + 1) * 8);
	if (a->sink)
		assert_memory_equal(a->sink, b->sink, (size_t)p->Hq * sizeof *a->sink);
	check_mask(p, &a->mask, &b->mask);
}

static void check_round_trip(const struct cpa_problem *p)
{
	const enum cpa_dtype wide = cpa_problem_lse_dtype(p);
	void *q = make_tensor(p->dtype, p->B * p->Sq * p->Hq * p->D, 1);
	void *k = make_tensor(p->dtype, p->B * p->Skv * p->Hkv * p->D, 2);
	void *v = make_tensor(p->dtype, p->B * p->Skv * p->Hkv * p->Dv, 3);
	void *o = make_tensor(p->dtype, p->B * p->Sq * p->Hq * p->Dv, 4);
	void *lse = make_tensor(wide, p->B * p->Sq * p->Hq, 5);
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call = NULL;
	struct cpa_error error = {""};

	cpa_store(wide, lse, 3, -INFINITY);
	if (cpa_recording_write(file_path, "00_test", p, q, k, v, o, lse, "a test", &error) != CPA_OK ||
	    cpa_recording_open(file_path, &recording, &error) != CPA_OK ||
	    cpa_recording_call(recording, 0, &call, &error) != CPA_OK)
		fail_msg("%s: %s", cpa_dtype_name(p->dtype), error.text);
	assert_string_equal(call->name, "00_test");
	assert_string_equal(call->notes, "");
	assert_true(call->problem.B == p->B && call->problem.Sq == p->Sq && call->problem.Skv == p->Skv);
	assert_true(call->problem.Hq == p->Hq && call->problem.Hkv == p->Hkv);
	assert_true(call->problem.D == p->D && call->problem.Dv == p->Dv);
	assert_true(call->problem.dtype == p->dtype && call->problem.scale == p->scale);
	check_rule(p, &call->problem);
	assert_int_equal(call->nsegments_kv, p->nsegments_kv);
	for (int i = 0; i < p->nsegments_kv; i++) {
		assert_string_equal(call->segments_kv[i].name, p->segments_kv[i].name);
		assert_true(call->segments_kv[i].length == p->segments_kv[i].length &&
			call->segments_kv[i].replicated == p->segments_kv[i].replicated);
	}
	check_tensor(recording, "q", p->B, p->Sq, p->Hq * p->D, p->dtype, q);
	check_tensor(recording, "k", p->B, p->Skv, p->Hkv * p->D, p->dtype, k);
	check_tensor(recording, "v", p->B, p->Skv, p->Hkv * p->Dv, p->dtype, v);
	check_tensor(recording, "o", p->B, p->Sq, p->Hq * p->Dv, p->dtype, o);
	check_tensor(recording, "lse", p->B, p->Sq, p->Hq, wide, lse);
	cpa_recording_close(recording);
	free(q);
	free(k);
	free(v);
	free(o);
	free(lse);
}

static void what_is_written_reads_back_the_same(void **state)
{
	const struct cpa_problem causal = {.B = 2, .Sq = 5, .Skv = 9, .Hq = 4, .Hkv = 2, .D = 8, .Dv = 6,
		.scale = 0.3, .rule = {.causal = true, .offset = 4}, .lse = true};
	const struct cpa_segment keys = {"keys", 3, true};
	const struct cpa_problem cross = {.B = 1, .Sq = 7, .Skv = 3, .Hq = 3, .Hkv = 3, .D = 5, .Dv = 5,
		.scale = 1.5, .segments_kv = &keys, .nsegments_kv = 1, .lse = true};

	(void)state;
	for (int dtype = CPA_DTYPE_FP64; dtype <= CPA_DTYPE_FP16; dtype++) {
		struct cpa_problem p = causal;

		p.dtype = (enum cpa_dtype)dtype;
		check_round_trip(&p);
		p = cross;
		p.dtype = (enum cpa_dtype)dtype;
		check_round_trip(&p);
	}
	assert_int_equal(nfiles(), 1);
}

/* Every kind of mask in every shape that it can have, with all that can stand beside it. */
static void rules_read_back_the_same(void **state)
{
	static const int64_t lengths[] = {0, 5}, documents[] = {0, 2, 2, 5};
	static const double sink[] = {-1.5, 0x1p-1074, 3e38, 0};
	struct cpa_problem p = {.B = 2, .Sq = 5, .Skv = 5, .Hq = 4, .Hkv = 2, .D = 3, .Dv = 2,
		.scale = 1, .lse = true};
	const int64_t n = p.B * p.Hq * p.Sq * p.Skv;
	uint8_t *truths = calloc((size_t)n, 1);
	double *wide = make_tensor(CPA_DTYPE_FP64, n, 7);
	float *narrow = make_tensor(CPA_DTYPE_FP32, n, 8);

	(void)state;
	assert_non_null(truths);
	for (int64_t i = 0; i < n; i++)
		truths[i] = i % 3 != 0;
	wide[5] = narrow[6] = -INFINITY;
	for (int shape = 0; shape < 3 * 16; shape++) {
		const int kind = shape / 16;

		p.dtype = kind == 2 ? CPA_DTYPE_FP64 : CPA_DTYPE_BF16;
		p.rule = (struct cpa_rule){.window = shape % 2, .offset = shape % 2 ? -3 : 0,
			.left = shape % 4 - 1, .right = 1,
			.key_lengths = shape % 3 ? lengths : NULL,
			.documents = shape % 5 ? documents : NULL, .ndocuments = shape % 5 ? 3 : 0,
			.sink = shape % 7 ? sink : NULL};
		/* Strides of the full array, as a view of some of its axes. */
		p.rule.mask = (struct cpa_mask){.kind = kind ? CPA_MASK_BIAS : CPA_MASK_BOOL,
			.dtype = kind == 2 ? CPA_DTYPE_FP64 : CPA_DTYPE_FP32,
			.data = kind == 2 ? (void *)wide : kind ? (void *)narrow : (void *)truths,
			.batch = shape & 8 ? 100 : 0, .head = shape & 4 ? 25 : 0,
			.query = shape & 2 ? 5 : 0, .key = shape & 1 ? 1 : 0};
		check_round_trip(&p);
	}
	free(truths);
	free(wide);
	free(narrow);
	/* More than is read at a time. */
	p = (struct cpa_problem){.B = 1, .Sq = 2100, .Skv = 2100, .Hq = 1, .Hkv = 1, .D = 1, .Dv = 1,
		.dtype = CPA_DTYPE_BF16, .scale = 1, .lse = true};
	narrow = make_tensor(CPA_DTYPE_FP32, p.Sq * p.Skv, 9);
	p.rule.mask = (struct cpa_mask){.kind = CPA_MASK_BIAS, .dtype = CPA_DTYPE_FP32, .data = narrow,
		.query = p.Skv, .key = 1};
	check_round_trip(&p);
	free(narrow);
}

/* A mask in float64 beside tensors in float32: what is finite stays so. */
static void a_bias_wider_than_its_tensors_is_narrowed_and_stays_finite(void **state)
{
	static const double bias[] = {-1.7976931348623157e308, 0.1, -INFINITY, 1e300};
	static const float expected[] = {-0x1.fffffep127f, 0.1f, -INFINITY, 0x1.fffffep127f};
	const int64_t q[] = {1, 1, 1, 1}, k[] = {1, 4, 1, 1}, keys = 4;
	const float ones[] = {1, 1, 1, 1};
	struct cpa_recording *recording = NULL;
	struct cpa_error error = {""};
	const struct cpa_mask *mask;
	struct cpa_h5 *file = NULL;
	size_t nbytes = 0;
	void *image = NULL;
	FILE *out;

	(void)state;
	assert_int_equal(cpa_h5_create(&file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	cpa_h5_write_group(file, "/calls/00");
	cpa_h5_write_array(file, "/calls/00/q", CPA_DTYPE_FP32, 4, q, ones);
	cpa_h5_write_array(file, "/calls/00/k", CPA_DTYPE_FP32, 4, k, ones);
	cpa_h5_write_array(file, "/calls/00/v", CPA_DTYPE_FP32, 4, k, ones);
	cpa_h5_write_array(file, "/calls/00/mask", CPA_DTYPE_FP64, 1, &keys, bias);
	assert_int_equal(cpa_h5_image(file, &image, &nbytes, &error), CPA_OK);
	cpa_h5_close(file);
	out = fopen(file_path, "wb");
	assert_non_null(out);
	assert_int_equal(fwrite(image, 1, nbytes, out), nbytes);
	fclose(out);
	free(image);
	assert_int_equal(cpa_recording_open(file_path, &recording, &error), CPA_OK);
	mask = &good_call(recording, 0)->problem.rule.mask;
	assert_int_equal(mask->dtype, CPA_DTYPE_FP32);
	assert_true(mask->key == 1 && mask->query == 0 && mask->head == 0 && mask->batch == 0);
	assert_memory_equal(mask->data, expected, sizeof expected);
	cpa_recording_close(recording);
}

/* Tensors above what is read at a time: cut within a batch item, and over to the next. */
static void large_tensors_are_read_and_judged_in_pieces(void **state)
{
	const struct cpa_problem p = {.B = 3, .Sq = 1100, .Skv = 3, .Hq = 4, .Hkv = 4, .D = 128, .Dv = 8,
		.dtype = CPA_DTYPE_FP64, .scale = 0.1, .lse = true};
	const int64_t row = p.Hq * p.D, n = p.B * p.Sq * row;
	/* Element and its index: the last of all, and the two sides of an edge. */
	static const struct {
		int64_t b, t, last;
		const char *index;
	} places[] = {{2, 1099, 511, "[2,1099,3,127]"}, {0, 1023, 511, "[0,1023,3,127]"},
		{1, 1024, 0, "[1,1024,0,0]"}, {2, 0, 0, "[2,0,0,0]"}};

	(void)state;
	check_round_trip(&p);
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		double *q = make_tensor(CPA_DTYPE_FP64, n, 1);
		struct cpa_recording *recording = NULL;
		const struct cpa_call *call = NULL;
		struct cpa_error error = {""};

		q[(places[i].b * p.Sq + places[i].t) * row + places[i].last] = NAN;
		assert_int_equal(cpa_recording_write(file_path, "00", &p, q, q + 1, q + 1, NULL, NULL, NULL,
					 &error), CPA_OK);
		assert_int_equal(cpa_recording_open(file_path, &recording, &error), CPA_OK);
		assert_int_equal(cpa_recording_call(recording, 0, &call, &error), CPA_INVALID);
		if (!strstr(error.text, places[i].index))
			fail_msg("expected %s: %s", places[i].index, error.text);
		cpa_recording_close(recording);
		free(q);
	}
}

/* ---- failures -------------------------------------------------------------------------------- */

static const struct cpa_problem small = {.B = 1, .Sq = 16, .Skv = 16, .Hq = 2, .Hkv = 2, .D = 16,
	.Dv = 16, .dtype = CPA_DTYPE_FP64, .scale = 0.25, .lse = true};

static enum cpa_status write_small(const char *to, const char *call, struct cpa_error *error)
{
	void *q = make_tensor(CPA_DTYPE_FP64, 16 * 2 * 16, 1);
	enum cpa_status status = cpa_recording_write(to, call, &small, q, q, q, NULL, NULL, NULL, error);

	free(q);
	return status;
}

/* A file size limit stands in for a full disk: write() fails part of the way in both cases. */
static void a_full_disk_is_reported_and_leaves_what_was_there(void **state)
{
	struct rlimit old, low;
	struct cpa_error error = {""};
	struct stat before, after;
	enum cpa_status status;

	(void)state;
	assert_int_equal(write_small(file_path, "00_first", &error), CPA_OK);
	assert_int_equal(stat(file_path, &before), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 5000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	status = write_small(file_path, "00_second", &error);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(status, CPA_EXTERNAL);
	assert_non_null(strstr(error.text, strerror(EFBIG)));
	assert_non_null(strstr(error.text, file_path));
	assert_int_equal(nfiles(), 1);
	assert_int_equal(stat(file_path, &after), 0);
	assert_true(after.st_ino == before.st_ino && after.st_size == before.st_size);
}

static void a_directory_that_is_not_there_is_reported(void **state)
{
	struct cpa_error error = {""};

	(void)state;
	assert_int_equal(write_small("/nowhere/at/all.h5", "00_x", &error), CPA_EXTERNAL);
	assert_non_null(strstr(error.text, "No such file or directory"));
	/* A directory in the place of the file: only the rename fails. */
	assert_int_equal(write_small(directory, "00_x", &error), CPA_EXTERNAL);
	assert_non_null(strstr(error.text, directory));
}

static void names_and_problems_that_cannot_be_recorded_are_refused(void **state)
{
	const struct cpa_segment keys = {"keys", small.Skv, true};
	struct cpa_problem replicated = small;
	struct cpa_error error = {""};
	const double one = 1;

	(void)state;
	assert_int_equal(write_small(file_path, "a/b", &error), CPA_INVALID);
	assert_int_equal(write_small(file_path, "", &error), CPA_INVALID);
	replicated.segments_kv = &keys;
	replicated.nsegments_kv = 1;
	assert_int_equal(cpa_recording_write(file_path, "00", &replicated, &one, &one, &one, NULL, NULL, NULL,
				 &error), CPA_INVALID);
}

/* Uneven shards, pads, striped tokens, some ranks only, and lse of one of them. */
static void what_ranks_held_reads_back(void **state)
{
	const int64_t batches[] = {0, 1}, heads[] = {1, 0}, even[] = {0, 2, 4, 6, -1, -1}, odd[] = {1, 3, 5};
	const struct cpa_problem problem = {.B = 2, .Sq = 8, .Skv = 8, .Hq = 2, .Hkv = 2, .D = 3, .Dv = 3,
		.dtype = CPA_DTYPE_FP32, .scale = 0.5, .lse = true};
	const struct cpa_recorded_config config = {.batch_degree = 1, .ring_degree = 3, .ulysses_degree = 1,
		.rotate = 1, .split = 1, .order = 2, .convert_to_fp32 = 1, .system = "ours"};
	float data[2 * 8 * 2 * 3], back[2 * 8 * 2 * 3];
	struct cpa_run_part parts[] = {
		{{0, "o", CPA_DTYPE_FP32, 2, 6, 2, 3, batches, even, heads}, data},
		{{0, "lse", CPA_DTYPE_FP32, 2, 6, 2, 1, batches, even, heads}, data},
		{{2, "o", CPA_DTYPE_FP32, 2, 3, 2, 3, batches, odd, heads}, data}};
	const struct cpa_recorded_run run = {.config = &config, .world = 3, .parts = parts, .nparts = 3};
	const void *const tensors[5] = {data, data, data, NULL, NULL};
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call = NULL;
	struct cpa_error error = {""};

	(void)state;
	for (int i = 0; i < 2 * 8 * 2 * 3; i++)
		data[i] = (float)i / 7;
	if (cpa_recording_write_run(file_path, "00_run", &problem, tensors, &run, "test", &error) != CPA_OK ||
	    cpa_recording_open(file_path, &recording, &error) != CPA_OK ||
	    cpa_recording_call(recording, 0, &call, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_true(call->world == 3 && call->nranks == 2 && call->nheld == 3);
	assert_true(call->config->ring_degree == 3 && call->config->rotate == 1);
	assert_true(call->config->split == 1 && call->config->order == 2);
	assert_true(call->config->convert_to_fp32 == 1 && !call->config->mesh);
	assert_string_equal(call->config->system, "ours");
	for (int i = 0; i < 3; i++) {
		const struct cpa_held *held = &call->held[i], *want = &parts[i].held;
		size_t n = (size_t)(held->nbatches * held->ntokens * held->nheads * held->dim);

		assert_true(held->rank == want->rank && strcmp(held->tensor, want->tensor) == 0);
		assert_int_equal(held->ntokens, want->ntokens);
		assert_memory_equal(held->tokens, want->tokens, (size_t)want->ntokens * sizeof *want->tokens);
		assert_memory_equal(held->heads, want->heads, 2 * sizeof *want->heads);
		assert_int_equal(cpa_recording_read_held(recording, 0, held, CPA_DTYPE_FP32, back, &error),
			CPA_OK);
		assert_memory_equal(back, data, n * sizeof *data);
	}
	cpa_recording_close(recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_reads_back_the_same),
		cmocka_unit_test(rules_read_back_the_same),
		cmocka_unit_test(a_bias_wider_than_its_tensors_is_narrowed_and_stays_finite),
		cmocka_unit_test(large_tensors_are_read_and_judged_in_pieces),
		cmocka_unit_test(a_full_disk_is_reported_and_leaves_what_was_there),
		cmocka_unit_test(a_directory_that_is_not_there_is_reported),
		cmocka_unit_test(names_and_problems_that_cannot_be_recorded_are_refused),
		cmocka_unit_test(what_ranks_held_reads_back),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
