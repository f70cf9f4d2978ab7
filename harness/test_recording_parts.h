/*
 * test_recording_parts.h - parts of runs for tests, whose every element says where it is from;
 * merging them, and looking at what came of it.
 */
#ifndef CPA_TEST_RECORDING_PARTS_H
#define CPA_TEST_RECORDING_PARTS_H

#include "harness/recording_part.h"
#include "harness/test_recording.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[] = "/tmp/cpattn-test-XXXXXX";
static char run[sizeof directory + 20], out[sizeof directory + 20];

static inline int make_directory(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	snprintf(run, sizeof run, "%s/run.d", directory);
	snprintf(out, sizeof out, "%s/out.h5", directory);
	return mkdir(run, 0777);
}

/* Files in `path`; they are removed. */
static inline int clear(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir))) {
		char name[600];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
		n += unlink(name) == 0;
	}
	if (dir)
		closedir(dir);
	return n;
}

static inline int remove_directory(void **state)
{
	(void)state;
	clear(run);
	clear(directory);
	rmdir(run);
	return rmdir(directory);
}

/* ---- parts -----------------------------------------------------------------------------------
 */

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Exact in every dtype. */
static inline double value(char tensor, int64_t b, int64_t t, int64_t h, int64_t d)
{
	const uint64_t x = mix(
		(uint64_t)tensor * 1000003u + (uint64_t)(((b * 4099 + t) * 67 + h) * 131 + d));

	return ((double)(x % 31) - 15) / 8;
}

/* A rank's rows by their ids; padding holds 9.  *bad: this element is something else. */
static inline void *held_data(const struct cpa_held *held)
{
	const int64_t n = held->nbatches * held->ntokens * held->nheads * held->dim;
	char *data = malloc((size_t)(n + 1) * 8);

	assert_non_null(data);
	for (int64_t i = 0; i < n; i++) {
		const int64_t d = i % held->dim, h = held->heads[i / held->dim % held->nheads];
		const int64_t t = held->tokens[i / held->dim / held->nheads % held->ntokens];
		const int64_t b = held->batches[i / held->dim / held->nheads / held->ntokens];

		cpa_store(held->dtype, data, i, t < 0 ? 9 : value(held->tensor[0], b, t, h, d));
	}
	return data;
}

static inline void put_file(struct cpa_h5 *file, const char *name)
{
	struct cpa_error error = {""};
	size_t nbytes = 0;
	void *image = NULL;
	FILE *to;

	if (cpa_h5_image(file, &image, &nbytes, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_h5_close(file);
	to = fopen(name, "wb");
	assert_non_null(to);
	assert_int_equal(fwrite(image, 1, nbytes, to), nbytes);
	fclose(to);
	free(image);
}

struct ids {
	int64_t n, at[64];
};

/* What a test may bend in the part of one rank. */
struct bend {
	int rank;
	char tensor; /* its first element becomes `to`; 0: none */
	double to;
	bool other_scale, no_v, wide_lse;
};

/* The part of one rank: queries and keys by their tokens, all batch items and heads. */
static inline void write_part(const struct cpa_problem *p, const char *call, int rank, int world,
	const struct ids *queries, const struct ids *keys, const struct bend *bend)
{
	static const char *const names[] = {"q", "k", "v", "o", "lse"};
	struct cpa_problem said = *p;
	struct ids batches = {.n = p->B}, heads = {.n = p->Hq};
	struct cpa_run_part parts[5];
	struct cpa_recorded_run it = {.world = world, .parts = parts};
	struct cpa_h5 *file;
	struct cpa_error error;
	char where[100], name[200];
	const bool bent = bend && bend->rank == rank;

	for (int64_t i = 0; i < 64; i++)
		batches.at[i] = heads.at[i] = i;
	for (int i = 0; i < 5; i++) {
		const bool kv = i == 1 || i == 2;
		struct cpa_held held = {.rank = rank,
			.dtype = i == 4 ? cpa_problem_lse_dtype(p) : p->dtype,
			.nbatches = p->B,
			.ntokens = kv ? keys->n : queries->n,
			.nheads = kv ? p->Hkv : p->Hq,
			.dim = i == 4	? 1
				: i < 2 ? p->D
					: p->Dv,
			.batches = batches.at,
			.tokens = kv ? keys->at : queries->at,
			.heads = heads.at};
		void *data;

		if (i == 2 && bent && bend->no_v)
			continue;
		snprintf(held.tensor, sizeof held.tensor, "%s", names[i]);
		data = held_data(&held);
		if (bent && bend->tensor == names[i][0])
			cpa_store(held.dtype, data, 0, bend->to);
		parts[it.nparts++] = (struct cpa_run_part){held, data};
	}
	if (bent && bend->other_scale)
		said.scale *= 2;
	assert_int_equal(cpa_h5_create(&file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	snprintf(where, sizeof where, "/calls/%s", call);
	cpa_recording_write_rules(file, where, &said, false, "a test");
	assert_true(cpa_recording_write_ranks(file, where, &it));
	snprintf(name, sizeof name, "%s/%s.rank%d.h5", run, call, rank);
	put_file(file, name);
	for (int i = 0; i < it.nparts; i++)
		free((void *)(uintptr_t)parts[i].data);
}

static inline enum cpa_status merge(struct cpa_error *error)
{
	struct cpa_parts parts = {0};
	struct dirent **entries = NULL;
	enum cpa_status status = CPA_OK;
	int n = scandir(run, &entries, NULL, alphasort), ncalls;

	error->text[0] = '\0';
	for (int i = 0; i < n; i++) {
		char path[600];

		snprintf(path, sizeof path, "%s/%s", run, entries[i]->d_name);
		if (status == CPA_OK && entries[i]->d_name[0] != '.')
			status = cpa_parts_add(&parts, path, NULL, error);
		free(entries[i]);
	}
	free(entries);
	cpa_parts_sort(&parts);
	if (status == CPA_OK)
		status = cpa_parts_merge(&parts, out, &ncalls, error);
	cpa_parts_fini(&parts);
	return status;
}

static inline void check_tensor(struct cpa_recording *recording, int i,
	const struct cpa_problem *p, char tensor, int64_t S, int64_t H, int64_t D)
{
	const char name[2] = {tensor, '\0'};
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	double *found = malloc((size_t)(p->B * S * H * D) * sizeof *found);
	struct cpa_error error;

	assert_non_null(found);
	assert_int_equal(cpa_recording_read(recording, i, name, (struct cpa_range){0, p->B}, &all,
				 CPA_DTYPE_FP64, found, &error),
		CPA_OK);
	for (int64_t n = 0; n < p->B * S * H * D; n++)
		if (found[n] != value(tensor, n / D / H / S, n / D / H % S, n / D % H, n % D))
			fail_msg("%s: element %lld of %lld", name, (long long)n, (long long)S);
	free(found);
}

/* What a rank returned lies where it lay, padding included. */
static inline void check_held(struct cpa_recording *recording, int i, const struct cpa_held *held)
{
	const int64_t n = held->nbatches * held->ntokens * held->nheads * held->dim;
	double *found = malloc((size_t)(n + 1) * sizeof *found);
	struct cpa_held wide = *held;
	struct cpa_error error;
	void *wanted;

	assert_non_null(found);
	wide.dtype = CPA_DTYPE_FP64;
	wanted = held_data(&wide);
	assert_int_equal(
		cpa_recording_read_held(recording, i, held, CPA_DTYPE_FP64, found, &error),
		CPA_OK);
	assert_memory_equal(found, wanted, (size_t)n * sizeof *found);
	free(found);
	free(wanted);
}

static inline void check_merged(const struct cpa_problem *p, int ncalls, int world)
{
	struct cpa_recording *recording = NULL;
	struct cpa_error error;

	if (cpa_recording_open(out, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_int_equal(cpa_recording_ncalls(recording), ncalls);
	for (int i = 0; i < ncalls; i++) {
		const struct cpa_call *call = good_call(recording, i);

		assert_string_equal(call->notes, "");
		assert_true(call->world == world && call->nranks == world);
		assert_true(call->problem.dtype == p->dtype && call->problem.scale == p->scale);
		check_tensor(recording, i, p, 'q', p->Sq, p->Hq, p->D);
		check_tensor(recording, i, p, 'k', p->Skv, p->Hkv, p->D);
		check_tensor(recording, i, p, 'v', p->Skv, p->Hkv, p->Dv);
		assert_true(call->nheld >= 2 * world);
		for (int n = 0; n < call->nheld; n++)
			check_held(recording, i, &call->held[n]);
	}
	cpa_recording_close(recording);
}

static const struct cpa_problem four = {.B = 1,
	.Sq = 4,
	.Skv = 4,
	.Hq = 2,
	.Hkv = 1,
	.D = 3,
	.Dv = 3,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.3,
	.lse = true};

#endif
