/*
 * test_recording.c - the shipped recordings are what the documentation says, and the malformed ones are
 * refused where they are wrong.
 */
#include "harness/recording_rules.h"
#include "harness/test_recording.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- what the files are ---------------------------------------------------------------------- */

/* Strides of a dense array of this shape, 0 along an axis of one. */
static void check_mask_shape(const struct cpa_mask *mask, const int64_t shape[4])
{
	const int64_t strides[4] = {mask->batch, mask->head, mask->query, mask->key};
	int64_t stride = 1;

	for (int axis = 3; axis >= 0; axis--) {
		assert_int_equal(strides[axis], shape[axis] == 1 ? 0 : stride);
		stride *= shape[axis];
	}
}

static void check_rule(const struct cpa_problem *p, const struct known *k)
{
	const struct cpa_rule *rule = &p->rule;
	int64_t n = 0;

	assert_true(rule->causal == k->causal && rule->offset == k->offset);
	assert_int_equal(rule->window, k->window);
	if (k->window)
		assert_true(rule->left == k->left && rule->right == k->right);
	assert_int_equal(rule->key_lengths != NULL, k->key_lengths != NULL);
	for (int64_t b = 0; k->key_lengths && b < p->B; b++)
		assert_int_equal(rule->key_lengths[b], k->key_lengths[b]);
	assert_int_equal(rule->documents != NULL, k->documents != NULL);
	for (; k->documents && (n == 0 || k->documents[n - 1] < p->Sq); n++)
		assert_int_equal(rule->documents[n], k->documents[n]);
	assert_int_equal(rule->ndocuments, n ? n - 1 : 0);
	assert_int_equal(rule->mask.kind, k->mask);
	if (k->mask != CPA_MASK_NONE) {
		assert_non_null(rule->mask.data);
		assert_null(rule->mask.made);
		check_mask_shape(&rule->mask, k->mask_shape);
	}
	assert_null(rule->sink);
}

static void shipped_files_are_what_the_table_says(void **state)
{
	(void)state;
	for (int n = 0; n < NKNOWN; n++) {
		const struct known *k = &known[n];
		struct cpa_recording *recording = open_good(k->file);
		const struct cpa_call *call = good_call(recording, k->i);
		const struct cpa_problem *p = &call->problem;

		assert_string_equal(call->name, k->name);
		assert_true(p->B == k->B && p->Sq == k->Sq && p->Skv == k->Skv && p->Hq == k->Hq);
		assert_true(p->Hkv == k->Hkv && p->D == k->D && p->Dv == k->Dv && p->dtype == k->dtype);
		assert_true(p->lse);
		check_rule(p, k);
		assert_true(call->has_o && call->has_lse);
		assert_string_equal(call->notes, "");
		cpa_recording_close(recording);
	}
}

static void every_call_of_a_rank_recording_reads(void **state)
{
	DIR *directory = opendir(data_path("peers"));
	int nfiles = 0;

	(void)state;
	assert_non_null(directory);
	for (struct dirent *entry; (entry = readdir(directory));) {
		struct cpa_recording *recording;
		char name[300];

		if (!strstr(entry->d_name, ".h5"))
			continue;
		snprintf(name, sizeof name, "peers/%.256s", entry->d_name);
		recording = open_good(name);
		assert_int_equal(cpa_recording_ncalls(recording), 1);
		/* "..._p4_fp32.h5" or "..._r2u2_bf16.h5" */
		assert_int_equal(good_call(recording, 0)->nranks,
			strstr(name, "_p3_") ? 3 : strstr(name, "_p2_") ? 2 : 4);
		cpa_recording_close(recording);
		nfiles++;
	}
	closedir(directory);
	assert_int_equal(nfiles, 13);
}

static void segments_and_defaults_are_read(void **state)
{
	struct cpa_recording *recording = open_good("flux_240x208_f32.h5");
	const struct cpa_call *call = good_call(recording, 0);

	(void)state;
	assert_int_equal(call->nsegments, 2);
	assert_string_equal(call->segments[0].name, "text");
	assert_true(call->segments[0].length == 256 && call->segments[0].replicated);
	assert_string_equal(call->segments[1].name, "image");
	assert_true(call->segments[1].length == 195 && !call->segments[1].replicated);
	assert_null(call->problem.segments_kv);
	cpa_recording_close(recording);

	recording = open_good("wan_cross_226_bf16.h5");
	call = good_call(recording, 0);
	assert_true(call->nsegments == 1 && call->nsegments_kv == 1);
	assert_true(call->problem.segments == call->segments && !call->segments[0].replicated);
	assert_true(call->problem.segments_kv == call->segments_kv && call->segments_kv[0].replicated);
	assert_int_equal(call->segments_kv[0].length, 226);
	cpa_recording_close(recording);

	recording = open_good("qwen3_f64_contiguous.h5"); /* call 1 has no scale */
	assert_true(good_call(recording, 1)->problem.scale == 0.25);
	cpa_recording_close(recording);
}

static void unknown_names_are_ignored_and_noted(void **state)
{
	struct cpa_recording *recording = open_good("peers/diffusers_ring_backward_p3_fp64.h5");
	const struct cpa_call *call = good_call(recording, 0);

	(void)state;
	assert_non_null(strstr(call->notes, "dk, do, dq, dv"));
	assert_non_null(strstr(call->notes, "ranks/2/dv"));
	assert_null(strstr(call->notes, "source"));
	cpa_recording_close(recording);
}

/* ---- malformed files ------------------------------------------------------------------------- */

/* The text of the refusal; fails when nothing is refused. */
static void refusal(const char *name, char *text, size_t size)
{
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call = NULL;
	struct cpa_error error = {""};
	enum cpa_status status = cpa_recording_open(data_path(name), &recording, &error);

	if (status == CPA_OK)
		status = cpa_recording_call(recording, 0, &call, &error);
	snprintf(text, size, "%s", error.text);
	cpa_recording_close(recording);
	if (status != CPA_INVALID)
		fail_msg("%s is not refused (status %d): %s", name, (int)status, error.text);
	assert_null(call);
}

static void every_malformed_file_is_refused_where_it_is_wrong(void **state)
{
	FILE *list = fopen(data_path("bad/bad.csv"), "r");
	char line[500], name[100], file[90], where[100], text[1024];
	int n = 0;

	(void)state;
	assert_non_null(list);
	assert_non_null(fgets(line, sizeof line, list));
	while (fgets(line, sizeof line, list)) {
		assert_int_equal(sscanf(line, "%89[^,],%99[^,],", file, where), 2);
		snprintf(name, sizeof name, "bad/%s", file);
		refusal(name, text, sizeof text);
		if (strncmp(text, where, strlen(where)) != 0)
			fail_msg("%s: expected a text that starts with %s: %s", file, where, text);
		assert_non_null(strstr(text, ": "));
		n++;
	}
	fclose(list);
	assert_int_equal(n, 51);
}

/* The refusal of a file in which each `from` is replaced by `to`; n bytes each. */
static void patched_refusal(const char *name, const void *from, const void *to, size_t n,
	struct cpa_error *error)
{
	struct cpa_recording_guard guard = {0};
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call = NULL;
	FILE *file = fopen(data_path(name), "rb");
	char *image = malloc(8u << 20);
	int npatches = 0;
	size_t size;

	assert_non_null(file);
	assert_non_null(image);
	size = fread(image, 1, 8u << 20, file);
	fclose(file);
	for (size_t i = 0; i + n <= size; i++) {
		if (memcmp(image + i, from, n) == 0) {
			memcpy(image + i, to, n);
			npatches++;
		}
	}
	assert_true(npatches > 0);
	assert_int_equal(cpa_recording_open_image(image, size, &guard, &recording, error), CPA_OK);
	cpa_recording_guard_stop(&guard);
	assert_int_equal(cpa_recording_call(recording, 0, &call, error), CPA_INVALID);
	cpa_recording_close(recording);
	free(image);
}

static void a_soft_link_is_refused_even_where_it_leads_to_data(void **state)
{
	struct cpa_error error = {""};

	(void)state;
	patched_refusal("bad/dangling_link.h5", "/calls/00_tiny/nowhere", "/calls/00_tiny/v\0nowhe", 22,
		&error);
	assert_non_null(strstr(error.text, "/calls/00_tiny/k: a soft or external link"));
}

/* q has 3 chunks of 256 tokens for 515; a shape of 1000 needs 4. */
static void a_chunk_that_was_never_written_is_refused(void **state)
{
	static const int64_t written[] = {1, 515, 8, 64}, claimed[] = {1, 1000, 8, 64};
	struct cpa_error error = {""};

	(void)state;
	patched_refusal("qwen3_gqa_515.h5", written, claimed, sizeof written, &error);
	assert_non_null(strstr(error.text, "/calls/00_layer1/q: 3 of 4 chunks"));
}

static void a_bad_call_is_refused_the_same_each_time(void **state)
{
	struct cpa_recording *recording = open_good("bad/nan_in_q.h5");
	struct cpa_error first = {""}, again = {""};
	const struct cpa_call *call = NULL;

	(void)state;
	assert_int_equal(cpa_recording_call(recording, 0, &call, &first), CPA_INVALID);
	assert_int_equal(cpa_recording_call(recording, 0, &call, &again), CPA_INVALID);
	assert_string_equal(first.text, again.text);
	assert_non_null(strstr(first.text, "[0,4,1,3] is NaN"));
	cpa_recording_close(recording);
}

static void look_and_abort(const char *file, const void *image, size_t nbytes)
{
	(void)file;
	(void)image;
	if (nbytes > 1)
		abort();
}

static void look_for_ever(const char *file, const void *image, size_t nbytes)
{
	(void)file;
	(void)image;
	for (volatile size_t i = 1; i != nbytes;)
		;
}

/* What HDF5 does with damaged metadata. */
static void a_file_that_crashes_or_loops_the_library_is_refused(void **state)
{
	struct cpa_recording_guard guard = {0};
	struct cpa_error error = {""};

	(void)state;
	assert_int_equal(cpa_recording_guard_start(&guard, look_and_abort, &error), CPA_OK);
	assert_int_equal(cpa_recording_guard_ask(&guard, NULL, "a", 1, &error), CPA_OK);
	assert_int_equal(cpa_recording_guard_ask(&guard, NULL, "ab", 2, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "crashes"));
	assert_int_equal(guard.child, 0);
	assert_int_equal(cpa_recording_guard_start(&guard, look_for_ever, &error), CPA_OK);
	assert_int_equal(cpa_recording_guard_ask(&guard, NULL, "a", 1, &error), CPA_OK);
	assert_int_equal(cpa_recording_guard_ask(&guard, NULL, "ab", 2, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "loops"));
}

static void a_missing_file_and_a_directory_are_refused(void **state)
{
	struct cpa_recording *recording = NULL;
	struct cpa_error error;

	(void)state;
	assert_int_equal(cpa_recording_open(data_path("none.h5"), &recording, &error), CPA_INVALID);
	assert_non_null(strstr(error.text, "No such file"));
	assert_int_equal(cpa_recording_open(data_path("bad"), &recording, &error), CPA_INVALID);
	assert_null(recording);
}

/* The address space may grow by less than a thousandth of what the file claims. */
static void a_huge_claim_takes_no_memory(void **state)
{
	struct rlimit old, low = {0, 0};
	long pages = 0;
	char text[1024];
	FILE *statm;

	(void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
	skip(); /* the sanitizer itself takes terabytes of addresses */
#endif
	statm = fopen("/proc/self/statm", "r");
	if (!statm || fscanf(statm, "%ld", &pages) != 1)
		skip();
	fclose(statm);
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64u << 20);
	low.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	refusal("bad/huge_no_data.h5", text, sizeof text);
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_non_null(strstr(text, "/calls/00_tiny/q: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shipped_files_are_what_the_table_says),
		cmocka_unit_test(every_call_of_a_rank_recording_reads),
		cmocka_unit_test(segments_and_defaults_are_read),
		cmocka_unit_test(unknown_names_are_ignored_and_noted),
		cmocka_unit_test(every_malformed_file_is_refused_where_it_is_wrong),
		cmocka_unit_test(a_soft_link_is_refused_even_where_it_leads_to_data),
		cmocka_unit_test(a_chunk_that_was_never_written_is_refused),
		cmocka_unit_test(a_bad_call_is_refused_the_same_each_time),
		cmocka_unit_test(a_file_that_crashes_or_loops_the_library_is_refused),
		cmocka_unit_test(a_missing_file_and_a_directory_are_refused),
		cmocka_unit_test(a_huge_claim_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
