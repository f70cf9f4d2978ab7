/*
 * test_recording_check.c - the command check: recorded outputs of real systems get the verdicts
 * that are known of them, and a planted error is found where it was planted.
 */
#include "harness/check_report.h"
#include "harness/commands.h"
#include "harness/test_recording.h"
#include "harness/test_directory.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one call ---- */

struct bench {
	struct cpa_recording *recording;
	struct cpa_checked checked;
	struct cpa_arena arena;
};

static void set_up(struct bench *b, const char *file, int64_t rows)
{
	struct cpa_error error = {""};

	cpa_arena_init(&b->arena);
	if (cpa_recording_open(file, &b->recording, &error) != CPA_OK ||
		cpa_checked_init(&b->checked, b->recording, 0, rows, &error) != CPA_OK)
		fail_msg("%s: %s", file, error.text);
}

static void tear_down(struct bench *b)
{
	cpa_checked_fini(&b->checked);
	cpa_recording_close(b->recording);
	cpa_arena_fini(&b->arena);
}

static struct cpa_check_part part_of(struct bench *b, int rank)
{
	struct cpa_check_rules rules = {
		cpa_arithmetic_default(b->checked.call->problem.dtype), CPA_PARTIALS_BLOCK};
	struct cpa_check_part part;
	struct cpa_error error = {""};

	if (cpa_check_part(&b->checked, b->recording, 0, rank, &rules, &b->arena, &part,
		    &error) != CPA_OK)
		fail_msg("rank %d: %s", rank, error.text);
	return part;
}

/* ---- real systems ---- */

/* What is known of these runs: which ranks are wrong, by the cause that their README states. */
static const struct {
	const char *file;
	int nranks;
	const char *wrong; /* a digit for each wrong rank */
} peers[] = {
	{"peers/diffusers_ring_p4_fp32.h5", 4, ""},
	{"peers/diffusers_unified_r2u2_bf16.h5", 4, ""},
	{"peers/diffusers_ulysses_anything_p3_fp32.h5", 3, ""},
	{"peers/diffusers_ring_anything_cross_p4_bf16.h5", 4, ""},
	{"peers/torch_ring_zigzag_causal_gqa_p4_fp32.h5", 4, ""},
	{"peers/paraattention_unified_causal_r2u2_bf16.h5", 4, ""},
	{"peers/diffusers_ring_backward_p3_fp64.h5", 3, ""},
	/* Keys take a neighbour's flag: every row sees them. */
	{"peers/diffusers_ulysses_anything_keymask_p3_fp32.h5", 3, "012"},
	{"peers/diffusers_ring_keymask_p2_fp32.h5", 2, "01"},
	{"peers/yunchang_torch_math_ring_p3_fp32.h5", 3, "012"},
	{"peers/yunchang_window_ignored_u2r2_fp32.h5", 4, "0123"},
	/* Ranks 0 and 3 hold the first and the last chunk, which the skip gets right. */
	{"peers/yunchang_ulysses_outer_causal_u2r2_fp32.h5", 4, "12"},
	{"peers/ring_attention_pytorch_gqa_p2_fp32.h5", 2, "01"},
	{"tiny_ranks.h5", 2, ""},
};

static void real_runs_get_the_verdicts_that_are_known_of_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
		struct bench b;

		set_up(&b, data_path(peers[i].file), 0);
		assert_int_equal(b.checked.call->world, peers[i].nranks);
		for (int rank = -1; rank < peers[i].nranks; rank++) {
			struct cpa_check_part part = part_of(&b, rank);
			bool wrong = rank >= 0 && strchr(peers[i].wrong, '0' + rank);

			if (part.right == wrong)
				fail_msg("%s rank %d: o %g, lse %g of the bound", peers[i].file,
					rank, part.o.ratio, part.lse.ratio);
			assert_int_equal(part.nfindings, 0);
			assert_true(part.would_do == CPA_NARITHMETICS);
		}
		tear_down(&b);
	}
}

/* h mod 2 in place of h / 3: query heads 0, 2, 3 and 5 of 6 find their key head all the same. */
static void the_heads_that_are_wrong_are_named(void **state)
{
	struct bench b;
	struct cpa_check_part part;

	(void)state;
	set_up(&b, data_path("peers/ring_attention_pytorch_gqa_p2_fp32.h5"), 0);
	part = part_of(&b, 1);
	assert_int_equal(part.o_wrong.n, 2);
	assert_int_equal(part.o_wrong.at[0].head, 1);
	assert_int_equal(part.o_wrong.at[1].head, 4);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(part.o_wrong.at[i].ntokens, 1);
		assert_int_equal(part.o_wrong.at[i].tokens[0].start, 32);
		assert_int_equal(part.o_wrong.at[i].tokens[0].end, 64);
	}
	tear_down(&b);
}

static void one_device_is_right_in_every_recording(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		struct cpa_recording *recording = open_good(known[i].file);
		struct cpa_check_rules rules = {
			cpa_arithmetic_default(known[i].dtype), CPA_PARTIALS_BLOCK};
		struct cpa_checked checked;
		struct cpa_check_part part;
		struct cpa_arena arena;
		struct cpa_error error = {""};

		cpa_arena_init(&arena);
		assert_int_equal(
			cpa_checked_init(&checked, recording, known[i].i, 0, &error), CPA_OK);
		assert_int_equal(cpa_check_part(&checked, recording, known[i].i, -1, &rules,
					 &arena, &part, &error),
			CPA_OK);
		if (!part.right || !part.has_o || !part.has_lse)
			fail_msg("%s: o %g, lse %g", known[i].file, part.o.ratio, part.lse.ratio);
		assert_int_equal(part.njudged, known[i].B * known[i].Sq * known[i].Hq);
		cpa_checked_fini(&checked);
		cpa_recording_close(recording);
		cpa_arena_fini(&arena);
	}
}

/* ---- planted errors ---- */

enum { B = 2, S = 40, H = 3, D = 8 };

struct made {
	struct cpa_problem problem;
	float q[B * S * H * D], k[B * S * H * D], v[B * S * H * D], o[B * S * H * D],
		lse[B * S * H];
};

/* A right run, whose outputs are the reference's, rounded. */
static void make(struct made *m)
{
	static double o[B * S * H * D], lse[B * S * H];
	struct cpa_error error;

	m->problem = (struct cpa_problem){.B = B,
		.Sq = S,
		.Skv = S,
		.Hq = H,
		.Hkv = H,
		.D = D,
		.Dv = D,
		.dtype = CPA_DTYPE_FP32,
		.scale = 0.5,
		.lse = true,
		.rule = {.causal = true}};
	cpa_inputs_fill(&m->problem, CPA_FILL_NORMAL, 5, CPA_TENSOR_Q, m->q);
	cpa_inputs_fill(&m->problem, CPA_FILL_NORMAL, 5, CPA_TENSOR_K, m->k);
	cpa_inputs_fill(&m->problem, CPA_FILL_NORMAL, 5, CPA_TENSOR_V, m->v);
	assert_int_equal(
		cpa_ref_attention(&m->problem, cpa_view_bshd(m->q, CPA_DTYPE_FP32, S, H, D),
			cpa_view_bshd(m->k, CPA_DTYPE_FP32, S, H, D),
			cpa_view_bshd(m->v, CPA_DTYPE_FP32, S, H, D), o, lse, &error),
		CPA_OK);
	for (int i = 0; i < B * S * H * D; i++)
		m->o[i] = (float)o[i];
	for (int i = 0; i < B * S * H; i++)
		m->lse[i] = (float)lse[i];
}

static void save(const struct made *m, bool o, bool lse)
{
	struct cpa_error error = {""};

	if (cpa_recording_write(file_path, "00_made", &m->problem, m->q, m->k, m->v, o ? m->o : NULL,
		    lse ? m->lse : NULL, "test", &error) != CPA_OK)
		fail_msg("%s", error.text);
}

static struct cpa_check_part check_made(const struct made *m, bool o, bool lse, int64_t rows)
{
	static struct bench b; /* what the part points to lives until the next call */
	static bool up;

	if (up)
		tear_down(&b);
	save(m, o, lse);
	set_up(&b, file_path, rows);
	up = true;
	return part_of(&b, -1);
}

static void an_error_is_found_where_it_is_and_nowhere_else(void **state)
{
	static struct made m;
	struct cpa_check_part part;
	int row = (1 * S + 17) * H + 2;

	(void)state;
	make(&m);
	part = check_made(&m, true, true, 0);
	assert_true(part.right && part.o.ratio < 0.5 && part.lse.ratio < 0.5);
	m.o[row * D + 5] += 1e-4f;
	part = check_made(&m, true, true, 0);
	assert_true(!part.right && part.o_wrong.n == 1 && part.lse_wrong.n == 0);
	assert_true(part.o_wrong.at[0].batch == 1 && part.o_wrong.at[0].head == 2);
	assert_true(part.o_wrong.at[0].nrows == 1 && part.o_wrong.at[0].tokens[0].start == 17);
	assert_true(
		part.o.batch == 1 && part.o.token == 17 && part.o.head == 2 && part.o.dim == 5);
	make(&m);
	m.lse[row] -= 1e-4f;
	m.lse[row + H] += 1e-4f;
	part = check_made(&m, true, true, 0);
	assert_true(!part.right && part.o_wrong.n == 0 && part.lse_wrong.n == 1);
	assert_true(part.lse_wrong.at[0].nrows == 2 && part.lse_wrong.at[0].ntokens == 1);
	assert_true(part.lse_wrong.at[0].tokens[0].start == 17 &&
		part.lse_wrong.at[0].tokens[0].end == 19);
}

static void what_is_not_recorded_is_not_judged(void **state)
{
	static struct made m;
	struct cpa_check_part part;

	(void)state;
	make(&m);
	part = check_made(&m, true, false, 0);
	assert_true(part.right && part.has_o && !part.has_lse && isnan(part.lse.ratio));
	m.lse[3] = 100;
	part = check_made(&m, false, true, 0);
	assert_true(
		!part.right && !part.has_o && isnan(part.o.ratio) && part.lse_wrong.nrows == 1);
	part = check_made(&m, false, false, 0);
	assert_true(!part.has_o && !part.has_lse);
}

static void sampled_rows_hold_the_ends_and_what_lies_between_is_said(void **state)
{
	static struct made m;
	struct cpa_check_part part;

	(void)state;
	make(&m);
	for (int i = 0; i < B * S * H * D; i++)
		m.o[i] += 1;
	part = check_made(&m, true, true, 3);
	assert_int_equal(part.njudged, 3 * B * H);
	assert_int_equal(part.nheld, S * B * H);
	assert_true(part.o_wrong.at[0].ntokens == 1 && part.o_wrong.at[0].nrows == 3);
	assert_true(
		part.o_wrong.at[0].tokens[0].start == 0 && part.o_wrong.at[0].tokens[0].end == S);
}

/* Merged in fp32 by mistake, an fp64 run is off by 1e-8: wrong, and the sentence says in what it
 * would be right. */
static void arithmetic_that_would_do_is_named(void **state)
{
	static double tensors[3][B * S * H * D], o[B * S * H * D], lse[B * S * H];
	struct made m;
	struct cpa_error error = {""};
	struct cpa_check_part part;
	struct bench b;
	char reason[1024];

	(void)state;
	make(&m);
	m.problem.dtype = CPA_DTYPE_FP64;
	for (int i = 0; i < 3; i++)
		cpa_inputs_fill(&m.problem, CPA_FILL_NORMAL, 5,
			(enum cpa_tensor)(CPA_TENSOR_Q + i), tensors[i]);
	assert_int_equal(
		cpa_ref_attention(&m.problem, cpa_view_bshd(tensors[0], CPA_DTYPE_FP64, S, H, D),
			cpa_view_bshd(tensors[1], CPA_DTYPE_FP64, S, H, D),
			cpa_view_bshd(tensors[2], CPA_DTYPE_FP64, S, H, D), o, lse, &error),
		CPA_OK);
	for (int i = 0; i < B * S * H * D; i++)
		o[i] = (float)o[i];
	assert_int_equal(cpa_recording_write(file_path, "00_made", &m.problem, tensors[0], tensors[1],
				 tensors[2], o, lse, "test", &error),
		CPA_OK);
	set_up(&b, file_path, 0);
	part = part_of(&b, -1);
	assert_true(!part.right && part.would_do == CPA_ARITHMETIC_FP32);
	cpa_check_reason(&part, &b.checked, reason, sizeof reason);
	assert_non_null(strstr(reason, "within the bounds of --arithmetic fp32"));
	tear_down(&b);
}

/* ---- ranks whose inputs are not those of the call ---- */

static char *read_file(const char *name, size_t *nbytes)
{
	struct stat about;
	int fd = open(name, O_RDONLY);
	char *data;

	assert_true(fd >= 0 && fstat(fd, &about) == 0);
	*nbytes = (size_t)about.st_size;
	data = malloc(*nbytes);
	assert_true(data && read(fd, data, *nbytes) == about.st_size);
	close(fd);
	return data;
}

static void write_file(const char *name, const char *data, size_t nbytes)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0 && write(fd, data, nbytes) == (ssize_t)nbytes);
	close(fd);
}

/* The bytes of rank 1's k in the file are exchanged for others, one number of them. */
static void spoil_k_of_rank_1(void)
{
	struct cpa_recording *recording = open_good("tiny_ranks.h5");
	const struct cpa_call *call = good_call(recording, 0);
	struct cpa_error error;
	size_t nbytes, n = 0;
	char *file, *found = NULL;
	float k[1024];

	for (int i = 0; i < call->nheld; i++)
		if (call->held[i].rank == 1 && strcmp(call->held[i].tensor, "k") == 0) {
			n = (size_t)(call->held[i].nbatches * call->held[i].ntokens *
				call->held[i].nheads * call->held[i].dim);
			assert_true(n > 0 && n <= 1024);
			assert_int_equal(cpa_recording_read_held(recording, 0, &call->held[i],
						 CPA_DTYPE_FP32, k, &error),
				CPA_OK);
		}
	cpa_recording_close(recording);
	file = read_file(data_path("tiny_ranks.h5"), &nbytes);
	/* The last place: the call's own k comes before the ranks'. */
	for (size_t i = 0; i + n * sizeof *k <= nbytes; i++)
		if (memcmp(file + i, k, n * sizeof *k) == 0)
			found = file + i;
	assert_non_null(found);
	k[3] += 1;
	memcpy(found, k, n * sizeof *k);
	write_file(file_path, file, nbytes);
	free(file);
}

static void a_rank_that_started_from_other_numbers_is_a_finding(void **state)
{
	struct bench b;
	struct cpa_check_part part;

	(void)state;
	spoil_k_of_rank_1();
	set_up(&b, file_path, 0);
	part = part_of(&b, 0);
	assert_int_equal(part.nfindings, 0);
	part = part_of(&b, 1);
	assert_true(part.right);
	assert_int_equal(part.nfindings, 1);
	assert_non_null(strstr(
		part.findings[0], "rank 1 started from other numbers: 1 of its elements of k"));
	assert_non_null(strstr(part.findings[0], "head 0, dim 3"));
	tear_down(&b);
}

/* ---- blind spots ---- */

static bool is_blind(struct bench *b, const char *class)
{
	const char **spots = cpa_check_blind_spots(&b->checked, &b->arena);

	for (int i = 0; spots[i]; i++)
		if (strstr(spots[i], class))
			return true;
	return false;
}

static void settings_that_hide_a_fault_are_said(void **state)
{
	struct bench b;

	(void)state;
	set_up(&b, data_path("peers/torch_ring_zigzag_causal_gqa_p4_fp32.h5"), 0);
	assert_false(is_blind(&b, "D06")); /* three query heads to a key head */
	assert_false(is_blind(&b, "C04")); /* causal */
	assert_false(is_blind(&b, "A01"));
	assert_false(is_blind(&b, "E05")); /* with lse */
	assert_false(is_blind(&b, "A05")); /* the first row sees one block */
	assert_true(is_blind(&b, "D03") && is_blind(&b, "A08"));
	tear_down(&b);
	set_up(&b, data_path("peers/diffusers_ring_keymask_p2_fp32.h5"), 0);
	assert_true(is_blind(&b, "C11") && is_blind(&b, "G02") && is_blind(&b, "D06"));
	assert_false(is_blind(&b, "C04"));
	tear_down(&b);
	set_up(&b, data_path("peers/yunchang_torch_math_ring_p3_fp32.h5"), 0);
	assert_true(is_blind(&b, "E05"));
	assert_false(is_blind(&b, "A01")); /* the fault that this run has */
	tear_down(&b);
}

/* ---- the command ---- */

static int command(const char *options, const char *file)
{
	char words[512], *argv[32] = {"cpattn", "check"};
	int argc = 2, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO),
	    null = open("/dev/null", O_WRONLY), status;
	struct cpa_options o;
	struct cpa_error error = {""};

	snprintf(words, sizeof words, "%s", options);
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc++] = (char *)(uintptr_t)file;
	if (cpa_options_parse(argc, argv, &o, &error) != CPA_OK) {
		cpa_options_fini(&o);
		close(out), close(err), close(null);
		return 2;
	}
	fflush(NULL);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
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

static void the_exit_status_says_right_wrong_or_cannot_tell(void **state)
{
	static struct made m;

	(void)state;
	assert_int_equal(command("", data_path("tiny_ranks.h5")), 0);
	assert_int_equal(
		command("--all --verbose --arithmetic tf32", data_path("tiny_ranks.h5")), 0);
	assert_int_equal(command("", data_path("peers/diffusers_ring_keymask_p2_fp32.h5")), 1);
	assert_int_equal(command("--call nothing", data_path("tiny_ranks.h5")), 2);
	assert_int_equal(command("--arithmetic bf16", data_path("tiny_ranks.h5")), 2);
	assert_int_equal(command("--ring 2", data_path("tiny_ranks.h5")), 2); /* of verify */
	assert_int_equal(command("", "no/such/file.h5"), 2);
	make(&m);
	save(&m, false, false);
	assert_int_equal(command("", file_path), 2); /* nothing to judge */
	save(&m, true, false);
	assert_int_equal(command("", file_path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_runs_get_the_verdicts_that_are_known_of_them),
		cmocka_unit_test(the_heads_that_are_wrong_are_named),
		cmocka_unit_test(one_device_is_right_in_every_recording),
		cmocka_unit_test(an_error_is_found_where_it_is_and_nowhere_else),
		cmocka_unit_test(what_is_not_recorded_is_not_judged),
		cmocka_unit_test(sampled_rows_hold_the_ends_and_what_lies_between_is_said),
		cmocka_unit_test(arithmetic_that_would_do_is_named),
		cmocka_unit_test(a_rank_that_started_from_other_numbers_is_a_finding),
		cmocka_unit_test(settings_that_hide_a_fault_are_said),
		cmocka_unit_test(the_exit_status_says_right_wrong_or_cannot_tell),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
