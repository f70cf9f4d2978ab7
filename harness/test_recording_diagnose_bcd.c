/*
 * test_recording_diagnose_bcd.c - runs with a fault of lengths, masks, order, layout or heads are
 * named for what they are: those of other systems that are recorded, and planted ones over
 * made-up problems, meshes and dtypes.  Right runs, and wrong ones that are none of these, are
 * not named.
 */
#include "harness/test_planted_bcd.h"
#include "harness/test_directory.h"

/* ---- real systems ---- */

static const struct {
	const char *file, *class, *says; /* NULL: right */
} peers[] = {
	{"peers/diffusers_ring_p4_fp32.h5", NULL, NULL},
	{"peers/diffusers_unified_r2u2_bf16.h5", NULL, NULL},
	{"peers/diffusers_ulysses_anything_p3_fp32.h5", NULL, NULL},
	{"peers/diffusers_ring_anything_cross_p4_bf16.h5", NULL, NULL},
	{"peers/torch_ring_zigzag_causal_gqa_p4_fp32.h5", NULL, NULL},
	{"peers/paraattention_unified_causal_r2u2_bf16.h5", NULL, NULL},
	{"peers/diffusers_ring_backward_p3_fp64.h5", NULL, NULL},
	{"peers/diffusers_ulysses_anything_keymask_p3_fp32.h5", "B03",
		"take the flag of another"},
	{"peers/diffusers_ring_keymask_p2_fp32.h5", "C10", "mask of the own shard"},
	{"peers/yunchang_window_ignored_u2r2_fp32.h5", "C08", "the window is ignored"},
	{"peers/yunchang_ulysses_outer_causal_u2r2_fp32.h5", "C04", "ulysses ranks outermost"},
	{"peers/ring_attention_pytorch_gqa_p2_fp32.h5", "D06", "h mod Hkv"},
};

static void real_runs_are_named_by_what_is_known_of_them(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
		struct verdict v = judge_file(data_path(peers[i].file));
		const struct cpa_finding *first = v.diagnosis->findings;

		if (v.diagnosis->nties != (peers[i].class != NULL) ||
			(peers[i].class &&
				(strcmp(first->class, peers[i].class) != 0 ||
					!strstr(first->text, peers[i].says))))
			fail_msg("%s: %d ties, %s %s", peers[i].file, v.diagnosis->nties,
				v.diagnosis->n ? first->class : "-",
				v.diagnosis->n ? first->text : "");
		cpa_arena_fini(&v.arena);
	}
}

/* ---- planted ---- */

enum {
	UNEVEN = 1,
	CAUSAL = 2,
	WINDOW = 4,
	DOCUMENTS = 8,
	LENGTHS = 16,
	KEY_MASK = 32,
	HEAD_MASK = 64,
	BIAS = 128,
	SCALE = 256,
	OFFSET = 512,
	MANY_HEADS = 1024, /* Hq 8, Hkv 4 */
	THREE_HEADS = 2048, /* Hq 6, Hkv 3 */
	TWELVE_HEADS = 4096, /* Hq 12, Hkv 3 */
	TINY = 8192, /* fewer tokens than ranks */
	ZIGZAG = 1 << 14,
	STRIPED = 1 << 15
};

struct scene {
	const char *class, *what, *meshes; /* "41 14 22 31": ring, ulysses */
	unsigned shape;
	void (*prepare)(void);
	void (*spoil)(struct call *);
	void (*move)(void);
	const char *says; /* in the text of the finding; NULL: anything */
};

#define RINGS "41 22 31"
#define ALL "41 14 22 31"

static char others[256]; /* classes that the scene ties with */
static char named[8]; /* the class that explains the last run best, "" */
static bool quiet;

static const struct scene scenes[] = {
	{"B01", "zero pads counted", ALL, UNEVEN, NULL, spoil_pads_of_zeros, NULL, NULL},
	{"B02", "stale pads counted", RINGS, UNEVEN, NULL, spoil_pads_of_first_rows, NULL, NULL},
	{"B02", "left in the slot", "41 31", UNEVEN, NULL, spoil_left_in_slot, NULL,
		"the block before it"},
	{"B03", "inner pads cut at the tail", ALL, UNEVEN, list_padded, spoil_listed_keys, NULL,
		"keys of all ranks"},
	{"B03", "inner pads, causal", ALL, UNEVEN | CAUSAL, list_padded, spoil_listed_keys, NULL,
		"keys of all ranks"},
	{"B03", "joined masks cut", ALL, UNEVEN | KEY_MASK, list_padded, spoil_joined_masks, NULL,
		"masks of all ranks"},
	{"B04", "keys floored", ALL, UNEVEN, NULL, spoil_floored_keys, NULL, "keys"},
	{"B04", "shards floored", ALL, UNEVEN, NULL, spoil_floored_shards, NULL, "keys"},
	{"B04", "rows floored", ALL, UNEVEN, list_lost_rows, NULL, move_listed_rows, "rows"},
	{"B05", "keys by other sizes", "41 14 22", UNEVEN, list_ceil, spoil_listed_keys, NULL,
		"keys are"},
	{"B05", "rows by other sizes", "41 14 22", UNEVEN, list_ceil, NULL, move_listed_rows,
		"rows of o"},
	{"B06", "pads of documents, keys", ALL, DOCUMENTS, list_packed, spoil_listed_keys, NULL,
		"multiples of 4"},
	{"B06", "pads of documents, rows", ALL, DOCUMENTS, list_packed, NULL, move_listed_rows,
		"multiples of 4"},
	{"B07", "prefix less the pads", ALL, CAUSAL | OFFSET, NULL, spoil_prefix, NULL,
		"3 keys too early"},
	{"B08", "empty blocks of zeros", "41", TINY, NULL, spoil_empty_blocks, NULL, NULL},
	{"C01", "causal at every hop", RINGS, CAUSAL, NULL, spoil_local_and_skipped, NULL, NULL},
	{"C02", "others not masked", RINGS, CAUSAL, NULL, spoil_unmasked_others, NULL, NULL},
	{"C02", "others not masked, striped", RINGS, CAUSAL | STRIPED, NULL,
		spoil_unmasked_others, NULL, NULL},
	{"C03", "own block not masked", RINGS, CAUSAL, NULL, spoil_unmasked_own, NULL, NULL},
	{"C04", "zigzag data, natural mask", RINGS, CAUSAL | ZIGZAG, number_naturally,
		spoil_listed_ids, NULL, "contiguous"},
	{"C04", "striped data, natural mask", RINGS, CAUSAL | STRIPED, number_naturally,
		spoil_listed_ids, NULL, "contiguous"},
	{"C04", "natural data, zigzag mask", RINGS, CAUSAL, number_in_zigzag, spoil_listed_ids,
		NULL, "zigzag"},
	{"C05", "zigzag not put back", RINGS, ZIGZAG, list_zigzag_rows, NULL, move_listed_rows,
		NULL},
	{"C05", "rows reversed", RINGS, 0, NULL, spoil_reversed_rows, NULL, NULL},
	{"C06", "diagonal up", ALL, CAUSAL, NULL, spoil_offset_up, NULL, "too many"},
	{"C06", "diagonal down", ALL, CAUSAL, NULL, spoil_offset_down, NULL, "too few"},
	{"C06", "stripes without their shift", RINGS, CAUSAL | STRIPED, NULL, spoil_local_ids,
		NULL, NULL},
	{"C07", "offset lost", ALL, CAUSAL | OFFSET, NULL, spoil_offset_lost, NULL, "lost"},
	{"C07", "top left corner", RINGS, CAUSAL, NULL, spoil_top_left, NULL, NULL},
	{"C08", "window ignored", ALL, CAUSAL | WINDOW, NULL, spoil_no_window, NULL, "ignored"},
	{"C08", "window by local places", RINGS, CAUSAL | WINDOW, NULL, spoil_local_and_skipped,
		NULL, NULL},
	{"C08", "window cut at the hop", RINGS, CAUSAL | WINDOW, NULL, spoil_hidden_other_rings,
		NULL, NULL},
	{"C08", "window one short", ALL, CAUSAL | WINDOW, NULL, spoil_short_window, NULL,
		"left one key short"},
	{"C09", "documents ignored", ALL, DOCUMENTS | CAUSAL, NULL, spoil_no_documents_at_all,
		NULL, NULL},
	{"C09", "documents ignored elsewhere", "41 31", DOCUMENTS | CAUSAL, NULL,
		spoil_no_documents, NULL, "other"},
	{"C10", "mask dropped", ALL, KEY_MASK, NULL, spoil_no_mask, NULL, "the mask is ignored"},
	{"C10", "bias dropped", ALL, BIAS, NULL, spoil_no_mask, NULL, "the mask is ignored"},
	{"C10", "key lengths dropped", ALL, LENGTHS, NULL, spoil_no_lengths, NULL, "key lengths"},
	{"C10", "causal order dropped", ALL, CAUSAL, NULL, spoil_not_causal, NULL,
		"causal order"},
	{"C10", "own mask for every block", RINGS, KEY_MASK, NULL, spoil_own_mask, NULL,
		"own shard"},
	{"C10", "mask inverted", ALL, KEY_MASK, NULL, spoil_inverted_mask, NULL, "inverted"},
	{"C10", "mask added as numbers", ALL, KEY_MASK, NULL, spoil_mask_as_numbers, NULL,
		"0 and 1"},
	{"C10", "bias scaled", ALL, BIAS, NULL, spoil_scaled_bias, NULL, "multiplied"},
	{"C11", "mask heads not cut", "14 22", HEAD_MASK, NULL, spoil_local_mask_heads, NULL,
		"head 0"},
	{"C12", "scale lost", ALL, SCALE, NULL, spoil_scale_lost, NULL, "default"},
	{"C12", "scale twice", ALL, SCALE, NULL, spoil_scale_twice, NULL, "twice"},
	{"C12", "no scale", ALL, SCALE, NULL, spoil_no_scale, NULL, "scale is 1 "},
	{"D01", "heads folded", "14 22", MANY_HEADS, NULL, NULL, move_folded_heads, NULL},
	{"D01", "heads reversed", "14 22", MANY_HEADS, NULL, spoil_reversed_heads, NULL, NULL},
	{"D02", "rows strided", "14 22", 0, NULL, NULL, move_strided_rows, NULL},
	{"D02", "rows reversed", "14 22", 0, NULL, spoil_reversed_rows, NULL, NULL},
	{"D03", "batch items mixed", ALL, 0, NULL, spoil_mixed_batch, NULL, "k and v"},
	{"D03", "values of the other item", ALL, 0, NULL, spoil_values_of_other_item, NULL,
		"v is"},
	{"D04", "shape of another layout", ALL, 0, NULL, spoil_strides_of_q, NULL, NULL},
	{"D05", "heads of o rotated", "14 22", MANY_HEADS, NULL, NULL, move_rotated_heads, NULL},
	{"D05", "key heads of the next group", ALL, MANY_HEADS, NULL, spoil_next_key_heads, NULL,
		"1 key heads further"},
	{"D05", "key heads reversed", ALL, MANY_HEADS, NULL, spoil_other_group, NULL, NULL},
	{"D06", "key heads tiled", "41 31 22", MANY_HEADS, NULL, spoil_tiled_heads, NULL, NULL},
	{"D07", "ratio broken by a pad", "22", THREE_HEADS, NULL, spoil_padded_ratio, NULL, NULL},
	{"D08", "heads split by two rules", "14", TWELVE_HEADS, NULL, NULL, move_split_heads,
		NULL},
	{"D09", "strides of v ignored", ALL, 0, NULL, spoil_strides_of_v, NULL, "of v"},
	{"D09", "strides of k ignored", ALL, 0, NULL, spoil_strides_of_k, NULL, "of k"},
	{"D09", "values transposed", ALL, MANY_HEADS, NULL, spoil_transposed_values, NULL,
		"of v"},
	{"D11", "gathered along another axis", ALL, 0, NULL, spoil_gathered_along_batch, NULL,
		NULL},
	{"D12", "rows of ranks swapped", ALL, 0, list_swapped, NULL, move_listed_rows, NULL},
	{"D12", "keys of ranks swapped", ALL, CAUSAL, list_swapped, spoil_listed_keys, NULL,
		NULL},
};
enum { NSCENES = sizeof scenes / sizeof scenes[0], NSEEDS = 1 };

static void append(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void append(char *text, size_t size, const char *format, ...)
{
	size_t n = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + n, size - n, format, args);
	va_end(args);
}

/* A problem of this shape for P ranks, by seed. */
static void write_problem(
	char *text, size_t size, unsigned shape, int P, enum cpa_dtype dtype, uint64_t seed)
{
	int each = 6 + 2 * (int)(seed % 3), S = P * each, heads = 4, key_heads = 2;

	if (shape & UNEVEN)
		S += 1 + (int)(seed % (uint64_t)(P - 1));
	if (shape & TINY)
		S = P - 1;
	if (shape & MANY_HEADS)
		heads = 8, key_heads = 4;
	if (shape & THREE_HEADS)
		heads = 6, key_heads = 3;
	if (shape & TWELVE_HEADS)
		heads = 12, key_heads = 3;
	snprintf(text, size, "B=2,Sq=%d,Skv=%d,Hq=%d,Hkv=%d,D=8,dtype=%s", S,
		shape & OFFSET ? S + 11 : S, heads, key_heads, cpa_dtype_name(dtype));
	if (shape & CAUSAL)
		append(text, size, ",causal");
	if (shape & OFFSET)
		append(text, size, ",offset=11");
	if (shape & WINDOW)
		append(text, size, ",window=%d:0", 4 + (int)(seed % 3));
	if (shape & DOCUMENTS)
		append(text, size, ",documents=0:5:%d:%d", S / 2 + 1 + (int)(seed % 2), S);
	if (shape & LENGTHS)
		append(text, size, ",key_lengths=%d:%d", S - 5, S / 2);
	if (shape & KEY_MASK)
		append(text, size, ",mask=bool:Bx1x1xK:%d", (int)seed + 3);
	if (shape & HEAD_MASK)
		append(text, size, ",mask=bool:1xHx1xK:%d", (int)seed + 3);
	if (shape & BIAS)
		append(text, size, ",mask=bias:1x1xQxK:%d", (int)seed + 3);
	if (shape & SCALE)
		append(text, size, ",scale=0.7");
}

static enum outcome plant(
	const struct scene *it, int R, int U, enum cpa_dtype dtype, uint64_t seed, bool faulty)
{
	char text[256];
	struct verdict v;
	enum outcome outcome;

	write_problem(text, sizeof text, it->shape, R * U, dtype, seed);
	plan_run(text, R, U,
		it->shape & ZIGZAG	      ? CPA_ORDER_ZIGZAG
			: it->shape & STRIPED ? CPA_ORDER_STRIPED
					      : CPA_ORDER_CONTIGUOUS,
		seed);
	if (it->says)
		snprintf(now.says, sizeof now.says, "%s", it->says);
	if (it->prepare)
		it->prepare();
	now.spoil = faulty ? it->spoil : NULL;
	run_ranks();
	if (faulty && it->move)
		it->move();
	record_run(file_path, seed % 4 != 3);
	v = judge_file(file_path);
	outcome = outcome_of(&v, it->class, others);
	if (!faulty && (v.wrong || v.diagnosis->n > 0))
		fail_msg("%s %dx%d: a right run is called %s", text, R, U,
			v.diagnosis->n ? v.diagnosis->findings[0].text : "wrong");
	snprintf(named, sizeof named, "%s", v.diagnosis->n ? v.diagnosis->findings[0].class : "");
	if (faulty && !quiet && (outcome == MISNAMED || outcome == MISSED))
		print_message("%s %s, %s, %dx%d: %s %s\n", it->class, it->what, text, R, U,
			v.diagnosis->n ? v.diagnosis->findings[0].class : "none",
			v.diagnosis->n ? v.diagnosis->findings[0].text : "");
	cpa_arena_fini(&v.arena);
	end_run();
	return outcome;
}

static void plant_everywhere(const struct scene *it, int *count)
{
	static const enum cpa_dtype dtypes[] = {CPA_DTYPE_FP32, CPA_DTYPE_BF16};

	for (const char *mesh = it->meshes; mesh; mesh = strchr(mesh, ' ')) {
		mesh += *mesh == ' ';
		for (int i = 0; i < 2 * NSEEDS / CPA_TEST_PART; i++)
			count[plant(it, mesh[0] - '0', mesh[1] - '0', dtypes[i % 2],
				(uint64_t)(11 * (it - scenes) + i + mesh[0]), true)]++;
	}
}

static void a_planted_fault_is_named(void **state)
{
	int total[NOUTCOMES] = {0}, seen, nbad = 0;

	(void)state;
	print_message(
		"%-36s %6s %6s %6s %6s %6s\n", "", "named", "tied", "missed", "wrong", "unseen");
	for (int i = 0; i < NSCENES; i++) {
		int n[NOUTCOMES] = {0};

		others[0] = '\0';
		plant_everywhere(&scenes[i], n);
		print_message("%s %-32s %6d %6d %6d %6d %6d %s\n", scenes[i].class,
			scenes[i].what, n[NAMED], n[TIED], n[MISSED], n[MISNAMED], n[UNSEEN],
			others);
		for (int k = 0; k < NOUTCOMES; k++)
			total[k] += n[k];
		seen = n[NAMED] + n[TIED] + n[MISSED] + n[MISNAMED];
		/* Of each class at least 95 of 100, and at least one run shows it. */
		nbad += 20 * (n[MISSED] + n[MISNAMED]) > seen || seen == 0;
	}
	print_message("%-36s %6d %6d %6d %6d %6d\n", "all", total[NAMED], total[TIED],
		total[MISSED], total[MISNAMED], total[UNSEEN]);
	assert_int_equal(total[MISNAMED], 0);
	assert_int_equal(nbad, 0);
}

static void a_right_run_is_never_named(void **state)
{
	(void)state;
	for (int i = 0; i < NSCENES; i++) {
		const char *mesh = scenes[i].meshes;

		plant(&scenes[i], mesh[0] - '0', mesh[1] - '0', (enum cpa_dtype)(i % 4),
			(uint64_t)(100 + i), false);
	}
}

/* ---- what is none of them ---- */

static struct source far_away(struct source x)
{
	uint64_t state = (uint64_t)((x.b * 1000 + x.token) * 100 + x.head);

	x.token = (int64_t)(cpa_random(&state) % (uint64_t)now.problem.Sq);
	return x;
}

static void move_anywhere(void)
{
	move_rows(far_away);
}

static void shrink_rank(int rank, double factor)
{
	const struct cpa_spans *tokens = &now.ranks.q_shards[rank];
	const struct cpa_problem *p = &now.problem;

	for (int64_t i = 0; i < p->B * p->Sq * p->Hq * p->Dv; i++) {
		int64_t t = i / p->Dv / p->Hq % p->Sq;

		if (cpa_spans_ncommon_range(tokens, (struct cpa_range){t, t + 1}))
			cpa_store(p->dtype, now.data[3], i,
				factor * cpa_load(p->dtype, now.data[3], i));
	}
}

static void shrink_one_rank(void)
{
	shrink_rank(1, 0.9);
}

/* Far beyond the noise of fp32, and far below what the fault did: the fault is not all of it. */
static void shrink_a_little(void)
{
	shrink_rank(1, 0.999);
}

/* The fault of two ranks explains what these have. */
static void swap_0_and_1_and_shrink_2(void)
{
	now.seed = 0;
	list_swapped();
	move_listed_rows();
	shrink_rank(2, 0.9);
}

static void what_is_no_known_fault_is_not_named(void **state)
{
	static const struct scene strange[] = {
		{"-", "rows anywhere", ALL, CAUSAL, NULL, NULL, move_anywhere, NULL},
		{"-", "one rank shrinks", ALL, 0, NULL, NULL, shrink_one_rank, NULL},
		{"-", "one rank shrinks, masked", ALL, KEY_MASK, NULL, NULL, shrink_one_rank,
			NULL},
		{"-", "another fault besides", ALL, CAUSAL | WINDOW, NULL, spoil_no_window,
			shrink_a_little, NULL},
		{"-", "another rank besides", ALL, 0, NULL, NULL, swap_0_and_1_and_shrink_2,
			NULL},
	};

	(void)state;
	quiet = true;
	for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
		for (const char *mesh = ALL; mesh; mesh = strchr(mesh, ' ')) {
			mesh += *mesh == ' ';
			assert_int_equal(plant(&strange[i], mesh[0] - '0', mesh[1] - '0',
						 CPA_DTYPE_FP32, 5 + i, true),
				MISSED);
		}
}

/* Of other classes: whatever they are called, it is not one of these. */

static int64_t position_of_own(const struct call *call, int64_t token)
{
	return key_ring(call) == query_ring(call) ? token : token + 3;
}

static void spoil_positions(struct call *call)
{
	turn_keys(call, position_of_own);
}

static void spoil_half_of_ring(struct call *call)
{
	if (key_ring(call) / 2 != query_ring(call) / 2)
		hide_keys(call);
}

/* The values of the next block. */
static struct source next_value(struct source x)
{
	x.token = (x.token + now.problem.Skv / now.R) % now.problem.Skv;
	return x;
}

static void spoil_values_one_hop_off(struct call *call)
{
	call->attend.v = take_source(call, 2, next_value);
}

static void a_fault_of_another_class_is_not_called_one_of_these(void **state)
{
	static const struct scene strange[] = {
		{"E03", "no communication", "41", 0, NULL, spoil_hidden_others, NULL, NULL},
		{"E04", "half of the ring", "41", 0, NULL, spoil_half_of_ring, NULL, NULL},
		{"E06", "positions", "41", 0, NULL, spoil_positions, NULL, NULL},
		{"F02", "values one hop off", "41", 0, NULL, spoil_values_one_hop_off, NULL,
			NULL},
	};

	(void)state;
	for (int i = 0; i < 4 * 4; i++) {
		const struct scene *it = &strange[i / 4];

		others[0] = '\0';
		plant(it, 4, 1, i % 2 ? CPA_DTYPE_BF16 : CPA_DTYPE_FP32, (uint64_t)(50 + i),
			true);
		if (named[0] && strchr("BCD", named[0]))
			fail_msg("%s %s is called %s", it->class, it->what, named);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_runs_are_named_by_what_is_known_of_them),
		cmocka_unit_test(a_planted_fault_is_named),
		cmocka_unit_test(a_right_run_is_never_named),
		cmocka_unit_test(what_is_no_known_fault_is_not_named),
		cmocka_unit_test(a_fault_of_another_class_is_not_called_one_of_these),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
