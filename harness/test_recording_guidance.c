/*
 * test_recording_guidance.c - branches along the batch of a recording: read, refused where they
 * make no sense, written, and verified with the recorded scales.
 */
#include "harness/commands.h"
#include "harness/recording_rules.h"
#include "harness/test_recording.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum { MOST_B = 6, S = 5, H = 2, D = 4, MOST = MOST_B * S * H * D };

/* What stands in a file beside q, k and v. */
struct written {
	int64_t B;
	int nscales; /* -1: no attribute; -2: an integer, -3: a string */
	double scales[3];
	int64_t branches; /* -1: no attribute; -2: a float */
};

static void write_guidance(struct cpa_h5 *file, const struct written *w)
{
	static const char call[] = "/calls/00";

	if (w->nscales == -2)
		cpa_h5_write_integer(file, call, "guidance", 3);
	else if (w->nscales == -3)
		cpa_h5_write_string(file, call, "guidance", "3.5");
	else if (w->nscales == 1)
		cpa_h5_write_double(file, call, "guidance", w->scales[0]);
	else if (w->nscales > 1)
		cpa_h5_write_double_list(file, call, "guidance", w->nscales, w->scales);
	if (w->branches == -2)
		cpa_h5_write_double(file, call, "branches", 2.0);
	else if (w->branches != -1)
		cpa_h5_write_integer(file, call, "branches", w->branches);
}

static struct cpa_recording *make(const struct written *w)
{
	static float data[MOST];
	static const char *const names[] = {"/calls/00/q", "/calls/00/k", "/calls/00/v"};
	const int64_t dims[4] = {w->B, S, H, D};
	struct cpa_recording_guard guard = {0};
	struct cpa_recording *recording = NULL;
	struct cpa_h5 *file = NULL;
	struct cpa_error error = {""};
	void *image = NULL;
	size_t nbytes = 0;

	for (int i = 0; i < MOST; i++)
		data[i] = (float)(i % 7) - 3;
	assert_int_equal(cpa_h5_create(&file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	cpa_h5_write_group(file, "/calls/00");
	for (int i = 0; i < 3; i++)
		cpa_h5_write_array(file, names[i], CPA_DTYPE_FP32, 4, dims, data);
	write_guidance(file, w);
	if (cpa_h5_image(file, &image, &nbytes, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_h5_close(file);
	if (cpa_recording_open_image(image, nbytes, &guard, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	free(image);
	cpa_recording_guard_stop(&guard);
	return recording;
}

static void branches_and_scales_are_read(void **state)
{
	static const struct {
		struct written w;
		struct cpa_guidance guidance;
	} cases[] = {
		{{2, 1, {3.5}, 2}, {2, 3.5, 0}},
		{{2, 1, {-0.5}, -1}, {2, -0.5, 0}},
		{{6, 1, {0.0}, 2}, {2, 0.0, 0}},
		{{3, 2, {3.5, 1.5}, 3}, {3, 3.5, 1.5}},
		{{6, 2, {7.5, 0.0}, 3}, {3, 7.5, 0.0}},
		{{3, 1, {2.5}, 3}, {3, 2.5, 2.5}},
		{{5, -1, {0}, -1}, {0, 0, 0}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_recording *recording = make(&cases[i].w);
		const struct cpa_call *call = good_call(recording, 0);

		assert_string_equal(call->notes, "");
		assert_int_equal(call->guidance.nbranches, cases[i].guidance.nbranches);
		assert_true(call->guidance.s == cases[i].guidance.s);
		assert_true(call->guidance.s2 == cases[i].guidance.s2);
		cpa_recording_close(recording);
	}
}

static void branches_that_make_no_sense_are_refused_with_their_place(void **state)
{
	static const struct {
		struct written w;
		const char *says;
	} cases[] = {
		{{2, 1, {NAN}, 2}, "/calls/00@guidance: is nan; expected a finite scale"},
		{{3, 2, {1, INFINITY}, 3}, "/calls/00@guidance: is inf; expected a finite scale"},
		{{2, -2, {0}, 2}, "/calls/00@guidance: is of type"},
		{{2, -3, {0}, 2}, "/calls/00@guidance: is of type"},
		{{3, 3, {1, 2, 3}, 3},
			"/calls/00@guidance: 3 values; expected one scale, or two"},
		{{2, 2, {1, 2}, 2}, "/calls/00@guidance: 2 values with 2 branches"},
		{{2, -1, {0}, 2}, "/calls/00@guidance: missing; 2 branches need the scale"},
		{{2, 1, {3}, 1}, "/calls/00@branches: is 1 with a batch of 2; expected 2 or 3"},
		{{4, 1, {3}, 4}, "/calls/00@branches: is 4 with a batch of 4"},
		{{2, 1, {3}, 0}, "/calls/00@branches: is 0 with a batch of 2"},
		{{3, 1, {3}, 2}, "/calls/00@branches: is 2 with a batch of 3"},
		{{2, 2, {3, 1}, 3}, "/calls/00@branches: is 3 with a batch of 2"},
		{{3, 1, {3}, -1}, "/calls/00@branches: missing, which means 2"},
		{{2, 1, {3}, -2}, "/calls/00@branches: is of type"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_recording *recording = make(&cases[i].w);
		const struct cpa_call *call;
		struct cpa_error error = {""};

		assert_int_equal(cpa_recording_call(recording, 0, &call, &error), CPA_INVALID);
		if (strncmp(error.text, cases[i].says, strlen(cases[i].says)) != 0)
			fail_msg("%s\nnot: %s", cases[i].says, error.text);
		cpa_recording_close(recording);
	}
}

/* ---- written, and verified ---- */

static char path[] = "/tmp/test_guidance_XXXXXX";
static float tensor[3][MOST];

static struct cpa_problem problem_of(int64_t B)
{
	return (struct cpa_problem){.B = B,
		.Sq = S,
		.Skv = S,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5,
		.lse = true};
}

static enum cpa_status write_file(
	int64_t B, const struct cpa_guidance *guidance, struct cpa_error *error)
{
	struct cpa_problem problem = problem_of(B);

	for (int i = 0; i < 3 * MOST; i++)
		tensor[i / MOST][i % MOST] = (float)(i * 7 % 23) / 8 - 1;
	return cpa_recording_write_guided(path, "00", &problem, guidance, tensor[0], tensor[1],
		tensor[2], NULL, NULL, NULL, error);
}

/* The exit status of "verify PATH MORE" or "plan PATH MORE", and what it says. */
static int command(const char *name, const char *more, char *said, size_t size)
{
	char words[256], *argv[24] = {"cpattn", (char *)name, path};
	char out[] = "/tmp/test_guidance_out_XXXXXX";
	int argc = 3, to = mkstemp(out), before = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
	struct cpa_options options;
	struct cpa_error error;

	snprintf(words, sizeof words, "%s", more);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s", error.text);
	fflush(NULL);
	dup2(to, STDOUT_FILENO);
	dup2(to, STDERR_FILENO);
	int status = options.command == CPA_COMMAND_PLAN ? cpa_cmd_plan(&options)
							 : cpa_cmd_verify(&options);
	fflush(NULL);
	dup2(before, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	ssize_t n = pread(to, said, size - 1, 0);
	said[n > 0 ? n : 0] = '\0';
	close(to);
	close(before);
	close(err);
	unlink(out);
	cpa_options_fini(&options);
	return status;
}

static void expect(const char *name, const char *more, int status, const char *says)
{
	static char said[65536];
	int got = command(name, more, said, sizeof said);

	if (got != status || !strstr(said, says))
		fail_msg("%s %s: status %d, not %d, or no '%s' in\n%s", name, more, got, status,
			says, said);
}

static void what_is_written_reads_back_and_runs_with_its_scales(void **state)
{
	static const struct cpa_guidance two = {2, 3.5, 0}, three = {3, -1.5, 0.1};
	struct cpa_error error = {""};
	struct cpa_recording *recording;

	(void)state;
	for (int n = 2; n <= 3; n++) {
		const struct cpa_guidance *guidance = n == 2 ? &two : &three;

		assert_int_equal(write_file(6, guidance, &error), CPA_OK);
		assert_int_equal(cpa_recording_open(path, &recording, &error), CPA_OK);
		assert_memory_equal(
			&good_call(recording, 0)->guidance, guidance, sizeof *guidance);
		cpa_recording_close(recording);
		expect("verify", "--ranks 1-6", 0,
			n == 2 ? "guidance 3.5: neg + 3.5 (pos - neg)"
			       : "guidance -1.5:0.1: neg + 0.1 (mid - neg) + -1.5 (pos - mid)");
		expect("verify", "--ranks 4 --fault branches-swapped", 1,
			"branches-swapped on rank");
		expect("verify", "--ranks 4 --json -", 0,
			n == 2 ? "\"branches\": 2" : "\"branches\": 3");
		expect("plan", "--ranks 4", 0,
			n == 2 ? "guidance 3.5: neg" : "guidance -1.5:0.1: neg");
		expect("plan", "--ranks 2 --variant ring --batch 2", 0,
			"is gathered among the 2 batch groups");
	}
	/* What is asked for wins, where it fits. */
	expect("verify", "--ranks 2 --guidance 2:1", 0, "guidance 2:1: neg");
	expect("verify", "--ranks 2 --guidance 2", 2, "--guidance has the scales of 2 branches");
	expect("plan", "--ranks 2 --guidance 2", 2, "--guidance has the scales of 2 branches");
	assert_int_equal(write_file(6, NULL, &error), CPA_OK);
	assert_int_equal(cpa_recording_open(path, &recording, &error), CPA_OK);
	assert_int_equal(good_call(recording, 0)->guidance.nbranches, 0);
	cpa_recording_close(recording);
	expect("verify", "--ranks 2,3 --guidance 2:1", 0, "guidance 2:1: neg");
	expect("verify", "--ranks 2,3 --json -", 0, "\"guidance\": null");
	assert_int_equal(write_file(5, NULL, &error), CPA_OK);
	expect("verify", "--ranks 2 --guidance 2", 2, "has 2 branches along the batch");
}

static void what_cannot_be_read_back_is_not_written(void **state)
{
	static const struct {
		int64_t B;
		struct cpa_guidance guidance;
	} cases[] = {{2, {1, 3.5, 0}}, {4, {4, 3.5, 0}}, {3, {2, 3.5, 0}}, {2, {3, 3.5, 1}},
		{2, {2, NAN, 0}}, {3, {3, 1, INFINITY}}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cpa_error error = {""};

		assert_int_equal(write_file(cases[i].B, &cases[i].guidance, &error), CPA_INVALID);
		assert_non_null(
			strstr(error.text, "expected 2 or 3 branches that divide the batch"));
	}
}

static int set_up(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(branches_and_scales_are_read),
		cmocka_unit_test(branches_that_make_no_sense_are_refused_with_their_place),
		cmocka_unit_test(what_is_written_reads_back_and_runs_with_its_scales),
		cmocka_unit_test(what_cannot_be_read_back_is_not_written),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
