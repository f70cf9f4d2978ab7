/*
 * test_recording_lost.c - runs whose ranks returned NaN or infinity: they are read and judged, it
 * is said where, and the fault is named.
 */
#include "harness/test_lost_run.h"

#include "harness/commands.h"

/* ---- faults, as they were written ---- */

static void raw_exp(struct partial *sum, const struct partial *next, int i)
{
	float x = expf(sum->lse), y = expf(next->lse);

	(void)i;
	for (int64_t d = 0; d < D; d++)
		sum->o[d] = (x * sum->o[d] + y * next->o[d]) / (x + y);
	sum->lse = logf(x + y);
}

static void log_1_exp(struct partial *sum, const struct partial *next, int i)
{
	float lse = sum->lse + logf(1 + expf(next->lse - sum->lse));

	for (int64_t d = 0; i > 0 && d < D; d++)
		sum->o[d] = expf(sum->lse - lse) * sum->o[d] + expf(next->lse - lse) * next->o[d];
	sum->lse = lse;
	if (i == 0)
		*sum = *next;
}

static void careless(struct partial *sum, const struct partial *next, int i)
{
	float max = fmaxf(sum->lse, next->lse), x = expf(sum->lse - max),
	      y = expf(next->lse - max);

	(void)i;
	for (int64_t d = 0; d < D; d++)
		sum->o[d] = (x * sum->o[d] + y * next->o[d]) / (x + y);
	sum->lse = max + logf(x + y);
}

static void careless_from_first(struct partial *sum, const struct partial *next, int i)
{
	if (i == 0)
		*sum = *next;
	else
		careless(sum, next, i);
}

/* out -= sigmoid(block_lse - lse) (out - block_out); lse -= logsigmoid(lse - block_lse) */
static void by_sigmoid(struct partial *sum, const struct partial *next, int i)
{
	float x = sum->lse - next->lse;

	if (i == 0) {
		*sum = *next;
		return;
	}
	for (int64_t d = 0; d < D; d++)
		sum->o[d] -= (sum->o[d] - next->o[d]) / (1 + expf(x));
	sum->lse -= x < 0 ? x - log1pf(expf(x)) : -log1pf(expf(-x));
}

static void infinite_lse(struct partial *x)
{
	x->lse = INFINITY;
}

static void nan_output(struct partial *x)
{
	for (int64_t d = 0; d < D; d++)
		x->o[d] = NAN;
}

static void nan_both(struct partial *x)
{
	nan_output(x);
	x->lse = NAN;
}

#define LENGTHS ",key_lengths=3:24"

static const struct {
	const char *class, *what, *rule;
	merge *merge;
	void (*empty)(struct partial *);
	int S;
	const char *says;
} faults[] = {
	{"A04", "exp(lse) overflows", ",scale=25", raw_exp, NULL, 24, "exp(lse) itself"},
	{"A04", "log(1 + exp(d)) overflows", ",scale=40", log_1_exp, NULL, 24,
		"the difference of two lse"},
	{"A05", "empty with empty", LENGTHS, careless_from_first, NULL, 24, "both saw no key"},
	{"A05", "an empty start with an empty block", LENGTHS, careless, NULL, 24,
		"both saw no key"},
	{"A05", "by log-sigmoid", LENGTHS, by_sigmoid, NULL, 24, "log-sigmoid"},
	{"A06", "lse +inf", ",causal", careless_from_first, infinite_lse, 24, "lse +inf"},
	{"A06", "lse +inf, by log-sigmoid", ",causal", by_sigmoid, infinite_lse, 24, "lse +inf"},
	{"A06", "output NaN", ",window=9:9", careless_from_first, nan_output, 24,
		"an output that is NaN"},
	{"A06", "both NaN", LENGTHS, careless_from_first, nan_both, 24, "out NaN, or"},
	{"B08", "a shard without keys", "", careless_from_first, nan_both, 3, "has no keys"},
};

static void what_is_lost_names_its_fault(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
		ring.merge = faults[i].merge;
		ring.empty = faults[i].empty;
		ring.only = -1;
		set_up(faults[i].rule, faults[i].S);
		for (int lse = 0; lse < 2; lse++) {
			save(lse, false, NULL);
			expect_class(faults[i].class, faults[i].says, faults[i].what);
		}
	}
}

static void the_rank_that_alone_has_it_is_named(void **state)
{
	static const struct {
		const char *class, *rule;
		int S;
		merge *merge;
		void (*empty)(struct partial *);
	} cases[] = {{"A04", ",scale=25", 24, raw_exp, NULL},
		{"A05", ",mask=bool:BxHxQxK:3", 8, careless, NULL},
		{"A06", ",mask=bool:BxHxQxK:3", 8, careless_from_first, infinite_lse}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		ring.merge = cases[i].merge;
		ring.empty = cases[i].empty;
		ring.only = 2;
		set_up(cases[i].rule, cases[i].S);
		save(true, false, NULL);
		expect_class(cases[i].class, "on rank 2 alone", cases[i].rule);
	}
}

/* Lost where no class says so. */
static void a_loss_that_no_class_has_is_not_explained(void **state)
{
	struct cpa_error error = {""};

	(void)state;
	ring.merge = NULL;
	ring.empty = NULL;
	set_up(",causal", 24);
	ring.o[(17 * H + 1) * D] = NAN;
	ring.lse[5 * H] = INFINITY;
	save(true, false, NULL);
	open_file();
	assert_int_equal(cpa_diagnosis_make(&judged.checked, judged.recording, 0, &judged.rules,
				 &judged.arena, &judged.diagnosis, &error),
		CPA_OK);
	assert_int_equal(judged.diagnosis->nwrong, 2);
	assert_int_equal(judged.diagnosis->n, 0);
	close_file();
}

/* ---- where ---- */

static void it_is_said_where_nan_and_infinity_stand(void **state)
{
	struct cpa_check_part part;
	char reason[1024];

	(void)state;
	ring.merge = NULL;
	ring.empty = NULL;
	set_up("", 24);
	ring.o[((24 + 13) * H + 1) * D + 2] = NAN;
	ring.o[((24 + 14) * H + 1) * D] = -INFINITY;
	ring.o[(16 * H + 0) * D] += 1;
	ring.lse[(24 + 12) * H] = INFINITY;
	ring.lse[(24 + 15) * H] = -INFINITY;
	save(true, false, NULL);
	open_file();
	assert_true(part_of(0).right && part_of(1).right && part_of(3).right);
	part = part_of(2);
	assert_false(part.right);
	assert_true(isinf(part.o.ratio) && isinf(part.lse.ratio) && isinf(part.o.rel_l2));
	assert_true(isnan(part.o.error) && part.o.batch == 1 && part.o.token == 13 &&
		part.o.head == 1 && part.o.dim == 2);
	assert_true(part.o_lost.nrows == 2 && part.o_wrong.nrows == 3 && part.o_lost.n == 1);
	assert_true(part.o_lost.at[0].batch == 1 && part.o_lost.at[0].head == 1 &&
		part.o_lost.at[0].ntokens == 1 && part.o_lost.at[0].tokens[0].start == 13 &&
		part.o_lost.at[0].tokens[0].end == 15);
	/* -inf is the lse of a row that sees nothing: wrong here, and a number. */
	assert_true(part.lse_wrong.nrows == 2 && part.lse_lost.nrows == 1);
	cpa_check_reason(&part, &judged.checked, reason, sizeof reason);
	assert_non_null(strstr(reason,
		"o is NaN or infinite in 2 of 24 rows (tokens 13-14; heads 1), first at batch 1, "
		"token 13, head 1, dim 2, and with these o is wrong in 3 of 24 rows"));
	assert_non_null(strstr(reason, "lse is NaN or infinite in 1 of 24 rows (token 12;"));
	close_file();
}

static void padding_may_be_anything(void **state)
{
	int64_t tokens[MOST];

	(void)state;
	ring.merge = NULL;
	ring.empty = NULL;
	set_up("", 24);
	memcpy(tokens, numbers, sizeof tokens);
	tokens[23] = -1;
	/* One rank, that holds 23 rows and a pad. */
	struct cpa_run_part part = {.held = {.tensor = "o",
					    .dtype = CPA_DTYPE_FP32,
					    .nbatches = B,
					    .ntokens = 24,
					    .nheads = H,
					    .dim = D,
					    .batches = numbers,
					    .tokens = tokens,
					    .heads = numbers},
		.data = ring.o};
	struct cpa_run_part rest = part;
	rest.held.rank = 1;
	rest.held.ntokens = 1;
	rest.held.nbatches = 2;
	rest.held.tokens = numbers + 23;
	float last[B * H * D];
	for (int b = 0; b < B; b++)
		memcpy(last + b * H * D, &ring.o[(b * 24 + 23) * H * D], sizeof(float) * H * D);
	rest.data = last;
	struct cpa_run_part parts[2] = {part, rest};
	struct cpa_recorded_run run = {.world = 2, .parts = parts, .nparts = 2};
	const void *const data[5] = {ring.q, ring.k, ring.v, NULL, NULL};
	struct cpa_error error = {""};
	ring.o[23 * H * D] = NAN;
	if (cpa_recording_write_run(
		    file_path, "00_made", &ring.problem, data, &run, "test", &error) != CPA_OK)
		fail_msg("%s", error.text);
	open_file();
	assert_true(part_of(0).right && part_of(1).right);
	close_file();
}

/* ---- what stays refused ---- */

static void expect_refused(const char *where)
{
	struct cpa_recording *recording = NULL;
	const struct cpa_call *call;
	struct cpa_error error = {""};

	assert_int_equal(cpa_recording_open(file_path, &recording, &error), CPA_OK);
	assert_int_equal(cpa_recording_call(recording, 0, &call, &error), CPA_INVALID);
	if (!strstr(error.text, where) || !strstr(error.text, "expected finite numbers"))
		fail_msg("%s", error.text);
	cpa_recording_close(recording);
}

static void inputs_and_one_device_must_be_finite(void **state)
{
	static float q[B * MOST * H * D];

	(void)state;
	ring.merge = NULL;
	ring.empty = NULL;
	set_up("", 24);
	memcpy(q, ring.q, sizeof q);
	save(true, true, q);
	open_file();
	assert_true(part_of(-1).right && part_of(3).right);
	close_file();
	q[5] = NAN;
	save(true, true, q);
	expect_refused("/calls/00_made/ranks/0/q: element [0,0,1,1] is NaN");
	ring.o[3] = NAN;
	save(true, true, NULL);
	expect_refused("/calls/00_made/o: element [0,0,0,3] is NaN");
	ring.o[3] = 0;
	ring.lse[4] = INFINITY;
	save(true, true, NULL);
	expect_refused("/calls/00_made/lse: element [0,2,0] is +inf");
	ring.k[9] = INFINITY;
	save(true, false, NULL);
	expect_refused("/calls/00_made/k: element [0,1,0,1] is +inf");
}

/* ---- the commands ---- */

/* stdout of a command line goes to text.  Returns the exit status. */
static int command(const char *line, char *text, size_t size)
{
	char words[1024], *argv[40] = {"cpattn"};
	int argc = 1, out = dup(STDOUT_FILENO), status;
	FILE *to = tmpfile();
	struct cpa_options o;
	struct cpa_error error = {""};
	size_t n;

	assert_non_null(to);
	snprintf(words, sizeof words, "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc++] = file_path;
	if (cpa_options_parse(argc, argv, &o, &error) != CPA_OK)
		fail_msg("%s: %s", line, error.text);
	fflush(NULL);
	dup2(fileno(to), STDOUT_FILENO);
	status = o.command == CPA_COMMAND_VERIFY ? cpa_cmd_verify(&o) : cpa_cmd_check(&o);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	close(out);
	cpa_options_fini(&o);
	rewind(to);
	n = fread(text, 1, size - 1, to);
	text[n] = '\0';
	fclose(to);
	return status;
}

static void planted_runs_are_recorded_found_and_named(void **state)
{
#define RING4 "--variant ring_anything --ranks 4 --batch 1 --rotate p2p "
	static const struct {
		const char *line, *class;
	} cases[] = {
		{"verify --problem B=2,S=20,H=4,D=8,dtype=fp32,key_lengths=3:20 " RING4
		 "--fault empty-merge-nan --record",
			"A05"},
		{"verify --problem B=2,S=20,H=4,D=8,dtype=bf16,window=6:1 " RING4
		 "--fault empty-lse-infinite --record",
			"A06"},
		{"verify --problem B=2,S=20,H=8,D=32,dtype=fp32 --fill extreme " RING4
		 "--fault exp-overflow --record",
			"A04"},
	};
	static char text[1 << 16];
	char finding[40];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (command(cases[i].line, text, sizeof text) != 1)
			fail_msg("%s: %s", cases[i].line, text);
		assert_int_equal(command("check", text, sizeof text), 1);
		assert_non_null(strstr(text, "WRONG"));
		assert_non_null(strstr(text, "is NaN or infinite in"));
		assert_int_equal(command("check --json -", text, sizeof text), 1);
		assert_non_null(strstr(text, "\"error\": \"nan\""));
		assert_non_null(strstr(text, "\"ratio\": \"inf\""));
		assert_non_null(strstr(text, "\"not_finite\": {\"o\": [{\"batch\": "));
		assert_int_equal(command("check --csv -", text, sizeof text), 1);
		assert_non_null(strstr(text, ",nan,"));
		assert_int_equal(command("diagnose", text, sizeof text), 1);
		snprintf(finding, sizeof finding, "the fault:\n    %s  ", cases[i].class);
		if (!strstr(text, finding))
			fail_msg("%s", text);
		assert_int_equal(command("diagnose --json -", text, sizeof text), 1);
		snprintf(finding, sizeof finding, "\"findings\": [{\"class\": \"%s\"",
			cases[i].class);
		assert_non_null(strstr(text, finding));
		assert_int_equal(command("diagnose --csv -", text, sizeof text), 1);
		snprintf(finding, sizeof finding, "\",%s,", cases[i].class);
		assert_non_null(strstr(text, ",reproduce,finding_classes,finding\r\n"));
		assert_non_null(strstr(text, finding));
		assert_int_equal(command("diagnose --junit -", text, sizeof text), 1);
		snprintf(finding, sizeof finding, "<system-out>%s: ", cases[i].class);
		assert_non_null(strstr(text, finding));
	}
}

/* Our own schedules pass over blocks that no query of a stripe, or of a chunk, can see. */
static void blocks_that_were_passed_over_are_told(void **state)
{
#define STRIPED                                                                                  \
	"--variant unified_anything --ranks 8 --batch 1 --ring 4 --ulysses 2 --order striped "
	static const char *const lines[] = {
		"verify --problem S=18,H=8,D=16,dtype=fp32,documents=0:2:14:18 " STRIPED
		"--rotate p2p --fault empty-lse-zero --record",
		"verify --problem S=18,H=8,D=16,dtype=fp32,documents=0:2:14:18 " STRIPED
		"--rotate p2p --fault empty-lse-infinite --record",
		"verify --problem B=2,S=37,H=8,D=16,dtype=bf16,window=4:0 " STRIPED
		"--rotate allgather --fault empty-lse-infinite --record",
		"verify --problem B=2,S=30,H=8,D=16,dtype=fp32,causal,window=4:0 " RING4
		"--order zigzag --fault empty-lse-zero --record"};
	static char text[1 << 16];

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		if (command(lines[i], text, sizeof text) != 1)
			fail_msg("%s: %s", lines[i], text);
		assert_int_equal(command("diagnose", text, sizeof text), 1);
		if (!strstr(text, "the fault:\n    A06  "))
			fail_msg("%s: %s", lines[i], text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_lost_names_its_fault),
		cmocka_unit_test(the_rank_that_alone_has_it_is_named),
		cmocka_unit_test(a_loss_that_no_class_has_is_not_explained),
		cmocka_unit_test(it_is_said_where_nan_and_infinity_stand),
		cmocka_unit_test(padding_may_be_anything),
		cmocka_unit_test(inputs_and_one_device_must_be_finite),
		cmocka_unit_test(planted_runs_are_recorded_found_and_named),
		cmocka_unit_test(blocks_that_were_passed_over_are_told),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
