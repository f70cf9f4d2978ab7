/*
 * test_recording_merge.c - parts that ranks recorded join to the tensors that they were cut from, in
 * bounded memory, and what does not fit is refused by name.
 */
#include "harness/recording_part.h"
#include "harness/test_recording.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/cpattn-test-XXXXXX";
static char run[sizeof directory + 20], out[sizeof directory + 20];

static int make_directory(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	snprintf(run, sizeof run, "%s/run.d", directory);
	snprintf(out, sizeof out, "%s/out.h5", directory);
	return mkdir(run, 0777);
}

/* Files in `path`; they are removed. */
static int clear(const char *path)
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

static int remove_directory(void **state)
{
	(void)state;
	clear(run);
	clear(directory);
	rmdir(run);
	return rmdir(directory);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Exact in every dtype. */
static double value(char tensor, int64_t b, int64_t t, int64_t h, int64_t d)
{
	const uint64_t x = mix((uint64_t)tensor * 1000003u + (uint64_t)(((b * 4099 + t) * 67 + h) * 131 + d));

	return ((double)(x % 31) - 15) / 8;
}

/* A rank's rows by their ids; padding holds 9.  *bad: this element is something else. */
static void *held_data(const struct cpa_held *held)
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

static void put_file(struct cpa_h5 *file, const char *name)
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
	char tensor;     /* its first element becomes `to`; 0: none */
	double to;
	bool other_scale, no_v, wide_lse;
};

/* The part of one rank: queries and keys by their tokens, all batch items and heads. */
static void write_part(const struct cpa_problem *p, const char *call, int rank, int world,
	const struct ids *queries, const struct ids *keys, const struct bend *bend)
{
	static const char *const names[] = {"q", "k", "v", "o", "lse"};
	struct cpa_problem said = *p;
	struct ids batches = {.n = p->B}, heads = {.n = p->Hq};
	struct cpa_run_part parts[5];
	struct cpa_recorded_run it = {NULL, world, parts, 0};
	struct cpa_h5 *file;
	struct cpa_error error;
	char where[100], name[200];
	const bool bent = bend && bend->rank == rank;

	for (int64_t i = 0; i < 64; i++)
		batches.at[i] = heads.at[i] = i;
	for (int i = 0; i < 5; i++) {
		const bool kv = i == 1 || i == 2;
		struct cpa_held held = {.rank = rank, .dtype = i == 4 ? cpa_problem_lse_dtype(p) : p->dtype,
			.nbatches = p->B, .ntokens = kv ? keys->n : queries->n, .nheads = kv ? p->Hkv : p->Hq,
			.dim = i == 4 ? 1 : i < 2 ? p->D : p->Dv, .batches = batches.at,
			.tokens = kv ? keys->at : queries->at, .heads = heads.at};
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

static enum cpa_status merge(struct cpa_error *error)
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

/* ---- what was cut joins ---------------------------------------------------------------------- */

static void check_tensor(struct cpa_recording *recording, int i, const struct cpa_problem *p, char tensor,
	int64_t S, int64_t H, int64_t D)
{
	const char name[2] = {tensor, '\0'};
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	double *found = malloc((size_t)(p->B * S * H * D) * sizeof *found);
	struct cpa_error error;

	assert_non_null(found);
	assert_int_equal(cpa_recording_read(recording, i, name, (struct cpa_range){0, p->B}, &all,
		CPA_DTYPE_FP64, found, &error), CPA_OK);
	for (int64_t n = 0; n < p->B * S * H * D; n++)
		if (found[n] != value(tensor, n / D / H / S, n / D / H % S, n / D % H, n % D))
			fail_msg("%s: element %lld of %lld", name, (long long)n, (long long)S);
	free(found);
}

/* What a rank returned lies where it lay, padding included. */
static void check_held(struct cpa_recording *recording, int i, const struct cpa_held *held)
{
	const int64_t n = held->nbatches * held->ntokens * held->nheads * held->dim;
	double *found = malloc((size_t)(n + 1) * sizeof *found);
	struct cpa_held wide = *held;
	struct cpa_error error;
	void *wanted;

	assert_non_null(found);
	wide.dtype = CPA_DTYPE_FP64;
	wanted = held_data(&wide);
	assert_int_equal(cpa_recording_read_held(recording, i, held, CPA_DTYPE_FP64, found, &error), CPA_OK);
	assert_memory_equal(found, wanted, (size_t)n * sizeof *found);
	free(found);
	free(wanted);
}

static void check_merged(const struct cpa_problem *p, int ncalls, int world)
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

/* Tokens 0 .. S-1 to random ranks in random order, with some padding. */
static void deal(uint64_t seed, int64_t S, int world, struct ids *to)
{
	for (int r = 0; r < world; r++)
		to[r].n = 0;
	for (int64_t i = 0; i < S; i++) {
		/* 7 has no factor in common with S. */
		struct ids *rank = &to[mix(seed + (uint64_t)i) % (uint64_t)world];

		rank->at[rank->n++] = seed % 3 ? i * 7 % S : i;
		if (mix(seed * 77 + (uint64_t)i) % 9 == 0)
			rank->at[rank->n++] = -1;
	}
}

static void tokens_dealt_to_ranks_at_random_come_together_again(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 24; seed++) {
		const int world = 1 + (int)(mix(seed) % 5);
		const struct cpa_problem p = {.B = 1 + (int64_t)(seed % 2), .Sq = 16, .Skv = seed % 4 ? 16 : 11,
			.Hq = 4, .Hkv = 2, .D = 3, .Dv = 5, .dtype = (enum cpa_dtype)(seed % 4), .scale = 0.3,
			.lse = true};
		struct ids queries[8], keys[8];
		struct cpa_error error;

		deal(seed, p.Sq, world, queries);
		deal(seed + 100, p.Skv, world, keys);
		for (int r = 0; r < world; r++) {
			write_part(&p, "00_a", r, world, &queries[r], &keys[r], NULL);
			write_part(&p, "01_b", r, world, &queries[r], &keys[r], NULL);
		}
		if (merge(&error) != CPA_OK)
			fail_msg("seed %d: %s", (int)seed, error.text);
		check_merged(&p, 2, world);
		assert_int_equal(clear(run), 2 * world);
	}
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static const struct {
	const char *says, *also;
	struct ids first, second; /* tokens of the two ranks */
	struct bend bend;         /* of rank 1 */
} misfits[] = {
	{"no rank holds token 2 (batch item 0, head 0) of q", "all of them over the 2 ranks",
		{2, {0, 1}}, {1, {3}}, {0}},
	{"00_a.rank1.h5: /calls/00_a/ranks/1/q: token 1 (batch item 0, head 0) is held twice",
		"00_a.rank0.h5", {2, {0, 1}}, {3, {1, 2, 3}}, {0}},
	{"token 2 (batch item 0, head 0) is held twice", "", {2, {0, 1}}, {3, {2, 3, 2}}, {0}},
	{"00_a.rank1.h5: /calls/00_a/ranks/1/v: token number 0 as stored", "holds a NaN or an infinity",
		{2, {0, 1}}, {2, {2, 3}}, {1, 'v', NAN, false, false, false}},
	{"ranks/1/lse: token number 0", "or -inf", {2, {0, 1}}, {2, {2, 3}},
		{1, 'l', INFINITY, false, false, false}},
	{"00_a.rank1.h5: rank 1 of /calls/00_a has another scale than rank 0", "alike on all ranks",
		{2, {0, 1}}, {2, {2, 3}}, {1, 0, 0, true, false, false}},
	{"no rank holds token 2 (batch item 0, head 0) of v", "", {2, {0, 1}}, {2, {2, 3}},
		{1, 0, 0, false, true, false}},
	{"ids of q reach to 1 batch items, 16777216 tokens", "", {2, {0, 1}},
		{1, {(1 << 24) - 1}}, {0}},
};

static const struct cpa_problem four = {.B = 1, .Sq = 4, .Skv = 4, .Hq = 2, .Hkv = 1, .D = 3, .Dv = 3,
	.dtype = CPA_DTYPE_FP32, .scale = 0.3, .lse = true};

static void expect_refusal(const char *says, const char *also)
{
	struct cpa_error error;
	const enum cpa_status status = merge(&error);

	if (status != CPA_INVALID || !strstr(error.text, says) || !strstr(error.text, also))
		fail_msg("expected '%s' and '%s', status %d: %s", says, also, (int)status, error.text);
	/* Neither the file nor a temporary one. */
	assert_int_equal(access(out, F_OK), -1);
	assert_int_equal(clear(directory), 0);
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
	(void)state;
	clear(directory);
	for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++) {
		write_part(&four, "00_a", 0, 2, &misfits[i].first, &misfits[i].first, &misfits[i].bend);
		write_part(&four, "00_a", 1, 2, &misfits[i].second, &misfits[i].second, &misfits[i].bend);
		expect_refusal(misfits[i].says, misfits[i].also);
		clear(run);
	}
}

static void keys_on_several_ranks_must_be_the_same_bits(void **state)
{
	const struct ids all = {4, {0, 1, 2, 3}}, first = {2, {0, 1}}, second = {2, {2, 3}};
	const struct bend bend = {1, 'k', 7, false, false, false};
	struct cpa_error error;

	(void)state;
	clear(directory);
	write_part(&four, "00_a", 0, 2, &first, &all, NULL);
	write_part(&four, "00_a", 1, 2, &second, &all, &bend);
	expect_refusal("00_a.rank1.h5: /calls/00_a/ranks/1/k: token 0 (batch item 0, head 0) differs from what "
		       "rank 0 held", "00_a.rank0.h5");
	write_part(&four, "00_a", 1, 2, &second, &all, NULL);
	if (merge(&error) != CPA_OK)
		fail_msg("%s", error.text);
	check_merged(&four, 1, 2);
	clear(run);
}

static void ranks_that_are_missing_or_double_are_named(void **state)
{
	const struct ids first = {2, {0, 1}}, second = {2, {2, 3}};
	char from[100], to[100];

	(void)state;
	clear(directory);
	write_part(&four, "00_a", 0, 3, &first, &first, NULL);
	write_part(&four, "00_a", 1, 3, &second, &second, NULL);
	expect_refusal("/calls/00_a: rank 2 of 3 is missing", "--call");
	write_part(&four, "00_a", 0, 2, &first, &first, NULL);
	expect_refusal("is of a run of", "expected one run in a directory");
	write_part(&four, "00_a", 1, 2, &second, &second, NULL);
	snprintf(from, sizeof from, "%s/00_a.rank1.h5", run);
	snprintf(to, sizeof to, "%s/copy.h5", run);
	assert_int_equal(link(from, to), 0);
	expect_refusal("holds rank 1 of /calls/00_a, which", "expected each rank once");
	clear(run);
}

/* ---- whole calls and damaged files ----------------------------------------------------------- */

static bool same_tensor(const char *name, struct cpa_recording *a, struct cpa_recording *b, int i, int64_t S,
	int64_t row)
{
	const struct cpa_problem *p = &good_call(a, i)->problem;
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	const size_t nbytes = (size_t)(p->B * S * row) * sizeof(double);
	double *x = malloc(nbytes), *y = malloc(nbytes);
	struct cpa_error error;
	bool same;

	assert_true(x && y);
	same = cpa_recording_read(a, i, name, (struct cpa_range){0, p->B}, &all, CPA_DTYPE_FP64, x, &error) ==
		CPA_OK &&
		cpa_recording_read(b, i, name, (struct cpa_range){0, p->B}, &all, CPA_DTYPE_FP64, y, &error) ==
		CPA_OK && memcmp(x, y, nbytes) == 0;
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
		const double x = cpa_mask_value(p, p->B - 1, h, t, j), y = cpa_mask_value(q, p->B - 1, h, t, j);

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

/* Bytes of a part changed at random: refused or not, but never a crash and never a half file. */
static void damaged_parts_do_no_harm(void **state)
{
	const struct ids all = {4, {0, 1, 2, 3}};
	char name[200], bytes[20000];
	size_t nbytes;
	FILE *file;

	(void)state;
	write_part(&four, "00_a", 0, 1, &all, &all, NULL);
	snprintf(name, sizeof name, "%s/00_a.rank0.h5", run);
	file = fopen(name, "rb");
	assert_non_null(file);
	nbytes = fread(bytes, 1, sizeof bytes, file);
	fclose(file);
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct cpa_error error;
		const size_t at = mix(seed) % nbytes;
		const char old = bytes[at];

		bytes[at] = (char)mix(seed + 1000);
		file = fopen(name, "wb");
		assert_non_null(file);
		/* Some are cut short. */
		fwrite(bytes, 1, seed % 7 ? nbytes : at, file);
		fclose(file);
		bytes[at] = old;
		if (merge(&error) != CPA_OK)
			assert_true(strlen(error.text) > 10);
	}
	clear(run);
}

/* ---- the machine ----------------------------------------------------------------------------- */

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
	const struct cpa_problem p = {.B = 1, .Sq = world * ntokens, .Skv = world * ntokens, .Hq = H,
		.Hkv = H, .D = D, .Dv = D, .dtype = CPA_DTYPE_FP32, .scale = 0.1, .lse = true};
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
			const struct cpa_h5_box box = {{0, t, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1},
				{1, AT_ONCE, H, D}};

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
	const int64_t ntokens = 4608; /* 302 MB of parts */
#endif
	struct cpa_span span = {4 * ntokens - 3, 1, 1, 1};
	const struct cpa_spans last = {&span, 1, 1};
	struct cpa_recording *recording = NULL;
	struct cpa_error error;
	float found[8 * 128];
	long peak;

	(void)state;
	for (int r = 0; r < 4; r++)
		write_large(r, 4, ntokens);
	peak = merge_apart();
	assert_true(peak > 0);
#ifndef __SANITIZE_ADDRESS__
	if (peak > 64 << 10)
		fail_msg("%ld kB to merge 302 MB; expected at most 64 MB", peak);
#endif
	assert_int_equal(cpa_recording_open(out, &recording, &error), CPA_OK);
	assert_int_equal(cpa_recording_read(recording, 0, "v", (struct cpa_range){0, 1}, &last, CPA_DTYPE_FP32,
		found, &error), CPA_OK);
	for (int i = 0; i < 8 * 128; i++)
		assert_true(found[i] == (float)(4 * ntokens - 3) + 0.25f);
	cpa_recording_close(recording);
	clear(run);
	unlink(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_dealt_to_ranks_at_random_come_together_again),
		cmocka_unit_test(what_does_not_fit_is_refused_by_name),
		cmocka_unit_test(keys_on_several_ranks_must_be_the_same_bits),
		cmocka_unit_test(ranks_that_are_missing_or_double_are_named),
		cmocka_unit_test(a_run_on_one_rank_is_copied_whole),
		cmocka_unit_test(malformed_files_are_refused),
		cmocka_unit_test(damaged_parts_do_no_harm),
		cmocka_unit_test(a_full_disk_is_found_before_tensors_are_copied),
		cmocka_unit_test(memory_stays_bounded_however_large_the_run),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
