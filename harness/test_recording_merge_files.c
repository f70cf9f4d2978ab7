/*
 * test_recording_merge_files.c - merging whole calls, damaged files, on a full disk, and in
 * bounded memory.
 */
#include "harness/test_recording_parts.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- whole calls and damaged files -----------------------------------------------------------
 */

static bool same_tensor(const char *name, struct cpa_recording *a, struct cpa_recording *b, int i,
	int64_t S, int64_t row)
{
	const struct cpa_problem *p = &good_call(a, i)->problem;
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	const size_t nbytes = (size_t)(p->B * S * row) * sizeof(double);
	double *x = malloc(nbytes), *y = malloc(nbytes);
	struct cpa_error error;
	bool same;

	assert_true(x && y);
	same = cpa_recording_read(a, i, name, (struct cpa_range){0, p->B}, &all, CPA_DTYPE_FP64,
		       x, &error) == CPA_OK &&
		cpa_recording_read(b, i, name, (struct cpa_range){0, p->B}, &all, CPA_DTYPE_FP64,
			y, &error) == CPA_OK &&
		memcmp(x, y, nbytes) == 0;
	free(x);
	free(y);
	return same;
}

static void same_rule(const struct cpa_problem *p, const struct cpa_problem *q)
{
	const struct cpa_mask *m = &p->rule.mask, *n = &q->rule.mask;

	assert_true(p->scale == q->scale && p->rule.causal == q->rule.causal);
	assert_true(p->rule.offset == q->rule.offset && p->rule.window == q->rule.window);
	assert_true(p->nsegments == q->nsegments && p->rule.ndocuments == q->rule.ndocuments);
	assert_true(!p->rule.key_lengths == !q->rule.key_lengths && m->kind == n->kind);
	for (int64_t i = 0; m->kind != CPA_MASK_NONE && i < p->Sq * p->Skv * p->Hq; i++) {
		const int64_t h = i % p->Hq, t = i / p->Hq % p->Sq, j = i / p->Hq / p->Sq;
		const double x = cpa_mask_value(p, p->B - 1, h, t, j),
			     y = cpa_mask_value(q, p->B - 1, h, t, j);

		assert_true(x == y);
	}
}

/* The shipped recordings of one device are what one rank records. */
static void a_run_on_one_rank_is_copied_whole(void **state)
{
	(void)state;
	for (int n = 0; n < NKNOWN; n++) {
		struct cpa_recording *from, *to = NULL;
		char name[200];
		struct cpa_error error;
		const struct cpa_problem *p;

		if (strcmp(known[n].file, "tiny_ranks.h5") == 0)
			continue;
		clear(run);
		snprintf(name, sizeof name, "%s/x.h5", run);
		assert_int_equal(symlink(data_path(known[n].file), name), 0);
		if (merge(&error) != CPA_OK || cpa_recording_open(out, &to, &error) != CPA_OK)
			fail_msg("%s: %s", known[n].file, error.text);
		from = open_good(known[n].file);
		p = &good_call(from, known[n].i)->problem;
		same_rule(p, &good_call(to, known[n].i)->problem);
		assert_true(same_tensor("q", from, to, known[n].i, p->Sq, p->Hq * p->D));
		assert_true(same_tensor("k", from, to, known[n].i, p->Skv, p->Hkv * p->D));
		assert_true(same_tensor("v", from, to, known[n].i, p->Skv, p->Hkv * p->Dv));
		assert_true(same_tensor("o", from, to, known[n].i, p->Sq, p->Hq * p->Dv));
		assert_true(same_tensor("lse", from, to, known[n].i, p->Sq, p->Hq));
		cpa_recording_close(from);
		cpa_recording_close(to);
	}
	clear(run);
}

static void malformed_files_are_refused(void **state)
{
	DIR *dir = opendir(data_path("bad"));
	struct dirent *entry;
	int n = 0;

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		struct cpa_error error;
		char name[200], bad[600];

		if (!strstr(entry->d_name, ".h5"))
			continue;
		snprintf(bad, sizeof bad, "%s/%s", data_path("bad"), entry->d_name);
		snprintf(name, sizeof name, "%s/x.h5", run);
		clear(run);
		assert_int_equal(symlink(bad, name), 0);
		if (merge(&error) == CPA_OK)
			fail_msg("%s: merged", entry->d_name);
		if (!strstr(error.text, "x.h5"))
			fail_msg("%s: %s", entry->d_name, error.text);
		n++;
	}
	closedir(dir);
	assert_true(n > 40);
	clear(run);
}

/* Bytes of the file changed one at a time; some are cut short. */
static void merge_damaged(const char *name, const char *bytes, size_t nbytes)
{
	for (uint64_t seed = 1; seed <= 120; seed++) {
		const size_t at = mix(seed) % nbytes;
		struct cpa_error error;
		FILE *file = fopen(name, "wb");

		if (!file)
			_exit(2);
		fwrite(bytes, 1, at, file);
		if (seed % 7) {
			fputc((int)(mix(seed + 1000) & 0xff), file);
			fwrite(bytes + at + 1, 1, nbytes - at - 1, file);
		}
		fclose(file);
		if (merge(&error) != CPA_OK && strlen(error.text) < 10)
			_exit(3);
	}
	_exit(0);
}

/* Refused or not, but never a crash.  In a process of its own, as HDF5 leaks memory on some of them. */
static void damaged_parts_do_no_harm(void **state)
{
	const struct ids all = {4, {0, 1, 2, 3}};
	char name[200], bytes[20000];
	int status = -1;
	size_t nbytes;
	FILE *file;
	pid_t child;

	(void)state;
	write_part(&four, "00_a", 0, 1, &all, &all, NULL);
	snprintf(name, sizeof name, "%s/00_a.rank0.h5", run);
	file = fopen(name, "rb");
	assert_non_null(file);
	nbytes = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		merge_damaged(name, bytes, nbytes);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	clear(run);
}

/* ---- the machine -----------------------------------------------------------------------------
 */

static void a_full_disk_is_found_before_tensors_are_copied(void **state)
{
	const struct ids all = {4, {0, 1, 2, 3}};
	struct rlimit old, low;
	struct cpa_error error;
	enum cpa_status status;

	(void)state;
	write_part(&four, "00_a", 0, 1, &all, &all, NULL);
	clear(directory);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 3000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	status = merge(&error);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(status, CPA_EXTERNAL);
	assert_int_equal(clear(directory), 0);
	/* And the next merge is none the worse for it. */
	assert_int_equal(merge(&error), CPA_OK);
	check_merged(&four, 1, 1);
	clear(run);
}

/* A part of nbytes or more of q, k, v and o, written in pieces.  Striped: rank r of world. */
static void write_large(int rank, int world, int64_t ntokens)
{
	enum { H = 8, D = 128, AT_ONCE = 64 };
	static const char *const names[] = {"q", "k", "v", "o"};
	static float row[AT_ONCE * H * D];
	const int64_t dims[4] = {1, ntokens, H, D}, tokens[3] = {rank, ntokens, world};
	const struct cpa_problem p = {.B = 1,
		.Sq = world * ntokens,
		.Skv = world * ntokens,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.1,
		.lse = true};
	struct cpa_h5 *file;
	struct cpa_error error;
	char name[200], path[100];

	snprintf(name, sizeof name, "%s/00_a.rank%d.h5", run, rank);
	assert_int_equal(cpa_h5_create_file(name, &file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	cpa_recording_write_rules(file, "/calls/00_a", &p, false, NULL);
	cpa_h5_write_group(file, "/calls/00_a/ranks");
	cpa_h5_write_integer(file, "/calls/00_a/ranks", "world_size", world);
	snprintf(path, sizeof path, "/calls/00_a/ranks/%d", rank);
	cpa_h5_write_group(file, path);
	cpa_h5_write_integer_table(file, path, "tokens", 1, 3, tokens);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof path, "/calls/00_a/ranks/%d/%s", rank, names[i]);
		cpa_h5_write_empty(file, path, CPA_H5_FLOAT, CPA_DTYPE_FP32, 4, dims);
	}
	assert_int_equal(cpa_h5_reserve(file, name, 0, &error), CPA_OK);
	for (int i = 0; i < 4; i++) {
		struct cpa_h5_array array;

		snprintf(path, sizeof path, "/calls/00_a/ranks/%d/%s", rank, names[i]);
		assert_int_equal(cpa_h5_array_open(file, path, NULL, &array, &error), CPA_OK);
		for (int64_t t = 0; t < ntokens; t += AT_ONCE) {
			const struct cpa_h5_box box = {
				{0, t, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, AT_ONCE, H, D}};

			for (int64_t n = 0; n < AT_ONCE * H * D; n++)
				row[n] = (float)((t + n / (H * D)) * world + rank) + (float)i / 8;
			assert_int_equal(cpa_h5_write_box(&array, &box, row, &error), CPA_OK);
		}
		cpa_h5_array_close(&array);
	}
	assert_int_equal(cpa_h5_finish(file, &error), CPA_OK);
	cpa_h5_close(file);
}

/* In a process of its own: its peak of memory in kB, or -1. */
static long merge_apart(void)
{
	int fds[2];
	long peak = -1;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rusage usage;
		struct cpa_error error;

		if (merge(&error) == CPA_OK && getrusage(RUSAGE_SELF, &usage) == 0)
			peak = usage.ru_maxrss;
		else
			fprintf(stderr, "%s\n", error.text);
		_exit(write(fds[1], &peak, sizeof peak) != sizeof peak);
	}
	close(fds[1]);
	if (read(fds[0], &peak, sizeof peak) != sizeof peak)
		peak = -1;
	close(fds[0]);
	waitpid(child, NULL, 0);
	return peak;
}

static void memory_stays_bounded_however_large_the_run(void **state)
{
#ifdef __SANITIZE_ADDRESS__
	const int64_t ntokens = 256; /* freed memory is kept for a while: nothing to measure */
#else
	const int64_t ntokens = 9216; /* 302 MB of parts, 38 MB a tensor */
#endif
	struct cpa_span span = {2 * ntokens - 3, 1, 1, 1};
	const struct cpa_spans last = {&span, 1, 1};
	struct cpa_recording *recording = NULL;
	struct cpa_error error;
	float found[8 * 128];
	long peak;

	(void)state;
	for (int r = 0; r < 2; r++)
		write_large(r, 2, ntokens);
	peak = merge_apart();
	assert_true(peak > 0);
#ifndef __SANITIZE_ADDRESS__
	if (peak > 40 << 10)
		fail_msg("%ld kB to merge 302 MB; expected at most 40 MB", peak);
#endif
	assert_int_equal(cpa_recording_open(out, &recording, &error), CPA_OK);
	assert_int_equal(cpa_recording_read(recording, 0, "v", (struct cpa_range){0, 1}, &last,
				 CPA_DTYPE_FP32, found, &error),
		CPA_OK);
	for (int i = 0; i < 8 * 128; i++)
		assert_true(found[i] == (float)(2 * ntokens - 3) + 0.25f);
	cpa_recording_close(recording);
	clear(run);
	unlink(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_on_one_rank_is_copied_whole),
		cmocka_unit_test(malformed_files_are_refused),
		cmocka_unit_test(damaged_parts_do_no_harm),
		cmocka_unit_test(a_full_disk_is_found_before_tensors_are_copied),
		cmocka_unit_test(memory_stays_bounded_however_large_the_run),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
