/*
 * test_recording_events.c - logs of what ranks issued, in files: read back as they were written,
 * judged by the command diagnose, and bad ones refused with their place.
 */
#include "harness/commands.h"
#include "harness/recording_rules.h"
#include "harness/test_recording.h"
#include "harness/test_directory.h"

#include <fcntl.h>
#include <unistd.h>

/* ---- files ---- */

static void save_log(const struct cpa_event *list, int64_t n, int names)
{
	static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct cpa_problem p = {.B = 1,
		.Sq = 4,
		.Skv = 4,
		.Hq = 1,
		.Hkv = 1,
		.D = 2,
		.Dv = 2,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1};
	const void *data[5] = {x, x, x, NULL, NULL};
	struct cpa_recorded_run run = {.events = list, .nevents = n};
	struct cpa_error error = {""};

	run.event_names = names == 0 ? CPA_EVENT_NUMBERS
		: names == 1	     ? CPA_EVENT_ENUM
				     : CPA_EVENT_STRINGS;
	if (cpa_recording_write_run(file_path, "00", &p, data, &run, "test", &error) != CPA_OK)
		fail_msg("%s", error.text);
}

static void events_read_back_whatever_their_kinds_are_written_as(void **state)
{
	struct cpa_event list[CPA_NEVENT_KINDS];

	(void)state;
	for (int i = 0; i < CPA_NEVENT_KINDS; i++)
		list[i] = (struct cpa_event){
			i % 3, (enum cpa_event_kind)i, i * 1000, i - 1, INT64_C(1) << (6 * i)};
	for (int names = 0; names < 3; names++) {
		struct cpa_recording *recording = NULL;
		const struct cpa_call *call;
		struct cpa_error error = {""};

		save_log(list, CPA_NEVENT_KINDS, names);
		if (cpa_recording_open(file_path, &recording, &error) != CPA_OK)
			fail_msg("%s", error.text);
		call = good_call(recording, 0);
		assert_int_equal(call->nevents, CPA_NEVENT_KINDS);
		for (int i = 0; i < CPA_NEVENT_KINDS; i++) {
			const struct cpa_event *e = &call->events[i];

			assert_true(e->rank == list[i].rank && e->kind == list[i].kind &&
				e->communicator == list[i].communicator &&
				e->peer == list[i].peer && e->bytes == list[i].bytes);
		}
		assert_string_equal(call->notes, "");
		cpa_recording_close(recording);
	}
}

/* ---- bad files ---- */

enum { NCOLUMNS = 5 };
static const char *const column_names[NCOLUMNS] = {
	"rank", "kind", "communicator", "peer", "bytes"};

/* A call with one record (0, recv, 0, 1, 8), column by column; a name NULL is left out. */
struct bad_log {
	const char *what; /* that the refusal must say */
	int column; /* that is spoilt */
	const char *name; /* of the column; NULL: missing */
	int64_t value;
	const char *const *names; /* of kinds */
	bool strings;
};

static void write_bad(const struct bad_log *bad, const char *kind_of_object)
{
	static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	static const int64_t dims[4] = {1, 4, 1, 2}, good[NCOLUMNS] = {0, 1, 0, 1, 8};
	struct cpa_h5_column columns[NCOLUMNS];
	struct cpa_h5 *file = NULL;
	struct cpa_error error = {""};
	void *image = NULL;
	size_t nbytes = 0;
	int n = 0, fd;

	assert_int_equal(cpa_h5_create(&file, &error), CPA_OK);
	cpa_h5_write_group(file, "/calls");
	cpa_h5_write_group(file, "/calls/00");
	cpa_h5_write_array(file, "/calls/00/q", CPA_DTYPE_FP32, 4, dims, x);
	cpa_h5_write_array(file, "/calls/00/k", CPA_DTYPE_FP32, 4, dims, x);
	cpa_h5_write_array(file, "/calls/00/v", CPA_DTYPE_FP32, 4, dims, x);
	for (int c = 0; c < NCOLUMNS; c++) {
		bool spoilt = bad && c == bad->column;

		if (spoilt && !bad->name)
			continue;
		columns[n++] = (struct cpa_h5_column){spoilt ? bad->name : column_names[c],
			spoilt ? &bad->value : &good[c], spoilt ? bad->names : NULL,
			spoilt && bad->strings};
	}
	if (strcmp(kind_of_object, "group") == 0)
		cpa_h5_write_group(file, "/calls/00/events");
	else if (strcmp(kind_of_object, "integers") == 0)
		cpa_h5_write_integers(file, "/calls/00/events", NCOLUMNS, good);
	else
		cpa_h5_write_table(file, "/calls/00/events", 1, columns, n);
	assert_int_equal(cpa_h5_image(file, &image, &nbytes, &error), CPA_OK);
	cpa_h5_close(file);
	fd = open(file_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0 && write(fd, image, nbytes) == (ssize_t)nbytes);
	close(fd);
	free(image);
}

static void expect_refused(const char *what)
{
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call;
	struct cpa_error error = {""};

	if (cpa_recording_open(file_path, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_int_equal(cpa_recording_call(recording, 0, &call, &error), CPA_INVALID);
	if (!strstr(error.text, "/calls/00/events") || !strstr(error.text, what))
		fail_msg("expected \"%s\", got: %s", what, error.text);
	cpa_recording_close(recording);
}

static void bad_logs_are_refused_with_their_place(void **state)
{
	static const char *const other[] = {"send", "sendrecv", NULL};
	static const struct bad_log bad[] = {
		{"no field \"rank\"", 0, NULL, 0, NULL, false},
		{"no field \"bytes\"", 4, "nbytes", 0, NULL, false},
		{"field \"rank\" of record 0 is -1", 0, "rank", -1, NULL, false},
		{"field \"rank\" of record 0 is 1024", 0, "rank", 1024, NULL, false},
		{"field \"kind\" of record 0 is 9; expected 0 to 8", 1, "kind", 9, NULL, false},
		{"field \"kind\" of record 0 is -1", 1, "kind", -1, NULL, false},
		{"is \"sendrecv\"", 1, "kind", 1, other, false},
		{"is \"sendrecv\"", 1, "kind", 1, other, true},
		{"no field \"peer\" of integers", 3, "peer", 1, other, true},
		{"field \"communicator\" of record 0 is -2", 2, "communicator", -2, NULL, false},
		{"field \"peer\" of record 0 is -2", 3, "peer", -2, NULL, false},
		{"field \"bytes\" of record 0 is -8", 4, "bytes", -8, NULL, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		write_bad(&bad[i], "table");
		expect_refused(bad[i].what);
	}
	write_bad(NULL, "group");
	expect_refused("not a dataset");
	write_bad(NULL, "integers");
	expect_refused("of type integer; expected records");
}

/* ---- the command ---- */

static int command(const char *name)
{
	char *argv[] = {"cpattn", (char *)(uintptr_t)name, file_path};
	int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO),
	    null = open("/dev/null", O_WRONLY), status = 2;
	struct cpa_options o;
	struct cpa_error error = {""};

	fflush(NULL);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	if (cpa_options_parse(3, argv, &o, &error) == CPA_OK)
		status = cpa_cmd_check(&o);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	close(null);
	cpa_options_fini(&o);
	return status;
}

static void diagnose_judges_calls_that_hold_events_and_no_outputs(void **state)
{
	static const struct cpa_event log[] = {{0, CPA_EVENT_SEND, 0, 1, 8},
		{1, CPA_EVENT_RECV, 0, 0, 8}, {1, CPA_EVENT_SEND, 0, 0, 8},
		{0, CPA_EVENT_RECV, 0, 1, 8}};

	(void)state;
	save_log(log, 4, 2);
	assert_int_equal(command("diagnose"), 0);
	assert_int_equal(command("check"), 2);
	save_log(log, 3, 2);
	assert_int_equal(command("diagnose"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_read_back_whatever_their_kinds_are_written_as),
		cmocka_unit_test(bad_logs_are_refused_with_their_place),
		cmocka_unit_test(diagnose_judges_calls_that_hold_events_and_no_outputs),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
