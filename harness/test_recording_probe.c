/*
 * test_recording_probe.c - probes are recordings of inputs, as asked for, and open what a run
 * hides.
 */
#include "harness/check.h"
#include "harness/commands.h"
#include "harness/probe_file.h"
#include "harness/test_recording.h"
#include "harness/test_directory.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* "probe ... -o file_path" with its output thrown away. */
static int probe(const char *line)
{
	char words[1200], *argv[32] = {"cpattn", "probe", "-o", file_path};
	int argc = 4, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO),
	    null = open("/dev/null", O_WRONLY);
	struct cpa_options options;
	struct cpa_error error;
	int status;

	snprintf(words, sizeof words, "%s", line);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s: %s", line, error.text);
	unlink(file_path);
	fflush(NULL);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	status = cpa_cmd_probe(&options);
	fflush(NULL);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	close(out);
	close(err);
	close(null);
	cpa_options_fini(&options);
	return status;
}

static struct cpa_recording *probed(void)
{
	struct cpa_recording *recording = NULL;
	struct cpa_error error;

	if (cpa_recording_open(file_path, &recording, &error) != CPA_OK)
		fail_msg("%s", error.text);
	assert_int_equal(cpa_recording_ncalls(recording), 1);
	return recording;
}

/* ---- the tensors -----------------------------------------------------------------------------
 */

static void check_values(
	struct cpa_recording *recording, enum cpa_fill fill, uint64_t seed, char tensor)
{
	const struct cpa_problem *p = &good_call(recording, 0)->problem;
	const int64_t S = tensor == 'q' ? p->Sq : p->Skv, H = tensor == 'q' ? p->Hq : p->Hkv;
	const int64_t D = tensor == 'v' ? p->Dv : p->D, n = p->B * S * H * D;
	const char name[2] = {tensor, '\0'};
	struct cpa_span span = {0, S, S, 1};
	const struct cpa_spans all = {&span, 1, 1};
	double *found = malloc((size_t)n * sizeof *found), rounded;
	struct cpa_error error;

	assert_non_null(found);
	assert_int_equal(cpa_recording_read(recording, 0, name, (struct cpa_range){0, p->B}, &all,
				 CPA_DTYPE_FP64, found, &error),
		CPA_OK);
	for (int64_t i = 0; i < n; i++) {
		uint64_t bits;

		cpa_store(p->dtype, &bits, 0,
			cpa_fill_value(fill, p, seed, tensor, i / D / H / S, i / D / H % S,
				i / D % H, i % D));
		rounded = cpa_load(p->dtype, &bits, 0);
		if (found[i] != rounded)
			fail_msg("%s of %s: element %lld is %g; expected %g", cpa_fill_name(fill),
				name, (long long)i, found[i], rounded);
	}
	free(found);
}

static void every_fill_is_written_in_every_dtype(void **state)
{
	(void)state;
	for (int fill = 0; fill <= CPA_FILL_UNLIKE; fill++)
		for (int dtype = 0; dtype <= CPA_DTYPE_FP16; dtype++) {
			struct cpa_recording *recording;
			const struct cpa_call *call;
			char line[200];

			snprintf(line, sizeof line,
				"--problem B=2,S=13,Hq=4,Hkv=2,D=8,Dv=6,scale=0.3,causal,"
				"dtype=%s --fill %s --seed 5",
				cpa_dtype_name((enum cpa_dtype)dtype),
				cpa_fill_name((enum cpa_fill)fill));
			assert_int_equal(probe(line), 0);
			recording = probed();
			call = good_call(recording, 0);
			assert_true(!call->has_o && !call->has_lse && call->nranks == 0);
			assert_true(call->problem.rule.causal && call->problem.scale == 0.3);
			assert_int_equal(call->problem.dtype, dtype);
			for (const char *tensor = "qkv"; *tensor; tensor++)
				check_values(recording, (enum cpa_fill)fill, 5, *tensor);
			cpa_recording_close(recording);
		}
}

/* ---- like another ----------------------------------------------------------------------------
 */

static void check_like(const struct cpa_call *old, const struct cpa_call *new, const char *file)
{
	const struct cpa_problem *p = &old->problem, *q = &new->problem;
	const struct cpa_rule *r = &p->rule, *s = &q->rule;

	if (q->B < 2 || q->Sq % 2 == 0 || q->Skv % 2 == 0 ||
		fabs(q->scale * sqrt((double)q->D) - 1) < 1e-9)
		fail_msg("%s: B %lld, Sq %lld, Skv %lld, scale %g", file, (long long)q->B,
			(long long)q->Sq, (long long)q->Skv, q->scale);
	assert_true(q->Hq == p->Hq && q->Hkv == p->Hkv && q->D == p->D && q->Dv == p->Dv);
	assert_true(q->dtype == p->dtype && (q->Sq == q->Skv) == (p->Sq == p->Skv));
	assert_true(r->causal == s->causal && r->window == s->window &&
		r->ndocuments == s->ndocuments);
	assert_true(!r->key_lengths == !s->key_lengths && r->mask.kind == s->mask.kind);
	assert_true(p->nsegments == q->nsegments && p->nsegments_kv == q->nsegments_kv);
	/* A chunk still ends at the newest key. */
	if (r->offset == p->Skv - p->Sq)
		assert_int_equal(s->offset, q->Skv - q->Sq);
	assert_true(s->mask.kind == CPA_MASK_NONE || p->Hq == 1 || s->mask.head != 0);
}

static void a_problem_like_that_of_a_recording_opens_what_hides_faults(void **state)
{
	(void)state;
	for (int n = 0; n < NKNOWN; n++) {
		struct cpa_recording *from = open_good(known[n].file), *to;
		char line[1100];

		snprintf(line, sizeof line, "--for %s --call %s", data_path(known[n].file),
			known[n].name);
		assert_int_equal(probe(line), 0);
		to = probed();
		check_like(good_call(from, known[n].i), good_call(to, 0), known[n].file);
		check_values(to, CPA_FILL_UNLIKE, 1, 'k');
		cpa_recording_close(from);
		cpa_recording_close(to);
	}
}

/* ---- what can be seen ------------------------------------------------------------------------
 */

/* A run on these inputs whose four ring ranks held tokens in this order.  Heads of one feature: nothing is
 * random but what `unlike` makes so. */
static bool is_blind(enum cpa_fill fill, enum cpa_order order, const char *to)
{
	enum { R = 4, S = 64, H = 2, D = 1 };
	const struct cpa_problem p = {.B = 2,
		.Sq = S,
		.Skv = S,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.3,
		.lse = true};
	static uint16_t data[3][2 * S * H * D], o[2 * S * H * D];
	const int64_t batches[] = {0, 1}, heads[] = {0, 1};
	const struct cpa_recorded_config config = {.batch_degree = 1,
		.ring_degree = R,
		.ulysses_degree = 1,
		.rotate = -1,
		.convert_to_fp32 = -1,
		.split = -1,
		.order = -1};
	const void *const tensors[5] = {data[0], data[1], data[2], NULL, NULL};
	struct cpa_run_part parts[R];
	int64_t tokens[R][S / R];
	struct cpa_cut cut;
	struct cpa_arena arena;
	struct cpa_checked checked;
	struct cpa_recording *recording;
	struct cpa_error error;
	bool found = false;

	cpa_arena_init(&arena);
	assert_int_equal(
		cpa_cut_init(&cut, &arena, CPA_SPLIT_EQUAL, order, S, R, NULL, &error), CPA_OK);
	for (int i = 0; i < 3; i++)
		for (int64_t n = 0; n < 2 * S * H * D; n++)
			cpa_store(CPA_DTYPE_BF16, data[i], n,
				cpa_fill_value(fill, &p, 1, "qkv"[i], n / D / H / S,
					n / D / H % S, n / D % H, n % D));
	for (int r = 0; r < R; r++) {
		const struct cpa_spans spans = cpa_cut_tokens(&cut, &arena, r, 1);

		for (int64_t i = 0; i < S / R; i++)
			tokens[r][i] = cpa_spans_token(&spans, i);
		parts[r] = (struct cpa_run_part){
			{r, "o", CPA_DTYPE_BF16, 2, S / R, H, D, batches, tokens[r], heads}, o};
	}
	const struct cpa_recorded_run run = {.config = &config, .world = R, .parts = parts, .nparts = R};
	if (cpa_recording_write_run(file_path, "00", &p, tensors, &run, NULL, &error) != CPA_OK ||
		cpa_recording_open(file_path, &recording, &error) != CPA_OK ||
		cpa_checked_init(&checked, recording, 0, 0, &error) != CPA_OK)
		fail_msg("%s", error.text);
	for (const char **spot = cpa_check_blind_spots(&checked, &arena); *spot; spot++)
		found |= strncmp(*spot, to, strlen(to)) == 0;
	cpa_checked_fini(&checked);
	cpa_recording_close(recording);
	cpa_arena_fini(&arena);
	return found;
}

static void blocks_weigh_unlike_each_other_however_keys_are_cut(void **state)
{
	(void)state;
	for (int order = CPA_ORDER_CONTIGUOUS; order <= CPA_ORDER_STRIPED; order++) {
		assert_false(is_blind(CPA_FILL_UNLIKE, (enum cpa_order)order, "A01, A09"));
		assert_false(is_blind(CPA_FILL_UNLIKE, (enum cpa_order)order, "A03"));
		/* Blocks of one length, and all keys 0: what the check says of such a run. */
		assert_true(is_blind(CPA_FILL_COUNT, (enum cpa_order)order, "A01, A09"));
	}
	assert_true(is_blind(CPA_FILL_UNLIKE, CPA_ORDER_CONTIGUOUS, "A04"));
	assert_false(is_blind(CPA_FILL_EXTREME, CPA_ORDER_CONTIGUOUS, "A04"));
}

static bool says(const struct cpa_problem *p, enum cpa_fill fill, const char *class)
{
	for (int i = 0; cpa_probe_hidden_from(p, fill, i); i++)
		if (strstr(cpa_probe_hidden_from(p, fill, i), class))
			return true;
	return false;
}

static void what_inputs_still_cannot_show_is_said(void **state)
{
	struct cpa_problem p = {
		.B = 1, .Sq = 64, .Skv = 64, .Hq = 4, .Hkv = 4, .D = 16, .Dv = 16, .scale = 0.25};

	(void)state;
	assert_true(says(&p, CPA_FILL_NORMAL, "D03") && says(&p, CPA_FILL_NORMAL, "D06"));
	assert_true(says(&p, CPA_FILL_NORMAL, "C04") && says(&p, CPA_FILL_NORMAL, "C12"));
	assert_true(says(&p, CPA_FILL_NORMAL, "B01") && says(&p, CPA_FILL_NORMAL, "A01"));
	assert_true(
		says(&p, CPA_FILL_COUNT, "multiple of Dv") && !says(&p, CPA_FILL_UNLIKE, "A01"));
	p.B = 2;
	p.Hkv = 2;
	p.scale = 0.3;
	p.rule.causal = true;
	p.Sq = p.Skv = 67;
	for (int i = 0; cpa_probe_hidden_from(&p, CPA_FILL_UNLIKE, i); i++)
		assert_non_null(
			strstr(cpa_probe_hidden_from(&p, CPA_FILL_UNLIKE, i), "--fill extreme"));
}

/* ---- bad input -------------------------------------------------------------------------------
 */

static void what_cannot_be_made_is_status_2_and_leaves_no_file(void **state)
{
	static const char *const lines[] = {
		"--for /nowhere/x.h5",
		"--for /dev/null",
		"--for %s --call nothing",
		"--problem S=9999999,H=99,D=999",
	};

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		char line[1200];
		const char *at = strstr(lines[i], "%s");

		snprintf(line, sizeof line, "%.*s%s%s",
			at ? (int)(at - lines[i]) : (int)strlen(lines[i]), lines[i],
			at ? data_path("tiny_ranks.h5") : "", at ? at + 2 : "");
		if (probe(line) != 2)
			fail_msg("%s", line);
		assert_int_equal(access(file_path, F_OK), -1);
	}
	for (int i = 0; i < 2; i++) {
		char saved[sizeof file_path];

		memcpy(saved, file_path, sizeof file_path);
		snprintf(file_path, sizeof file_path, "%s", i ? "/nowhere/at/all.h5" : directory);
		assert_int_equal(probe("--problem S=9,H=2"), 2);
		memcpy(file_path, saved, sizeof file_path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fill_is_written_in_every_dtype),
		cmocka_unit_test(a_problem_like_that_of_a_recording_opens_what_hides_faults),
		cmocka_unit_test(blocks_weigh_unlike_each_other_however_keys_are_cut),
		cmocka_unit_test(what_inputs_still_cannot_show_is_said),
		cmocka_unit_test(what_cannot_be_made_is_status_2_and_leaves_no_file),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
