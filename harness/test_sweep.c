/*
 * test_sweep.c - which configurations run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness/options.h"

enum { MAX_VISITS = 4096 };

/* Everything that was visited, by value. */
struct seen {
	struct cpa_config at[MAX_VISITS];
	int n, most;
	struct cpa_options options;
	struct cpa_error error;
	char words[1024];
};
static struct seen seen;

static bool keep(void *context, const struct cpa_config *config)
{
	struct seen *s = context;

	assert_true(s->n < MAX_VISITS);
	s->at[s->n++] = *config;
	return s->n != s->most;
}

static enum cpa_status sweep(const char *problem, const char *options)
{
	char *argv[40], verb[] = "plan", name[] = "cpattn";
	int argc = 2;
	enum cpa_status status;

	seen.n = 0;
	seen.error.text[0] = '\0';
	argv[0] = name;
	argv[1] = verb;
	snprintf(seen.words, sizeof seen.words, "--problem %s %s", problem, options);
	for (char *word = strtok(seen.words, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &seen.options, &seen.error) != CPA_OK)
		fail_msg("%s %s: %s", problem, options, seen.error.text);
	status = cpa_sweep(&seen.options, &seen.options.problem, CPA_ROTATE_CHOICE_P2P, false,
		keep, &seen, &seen.error);
	return status;
}

static void done(void)
{
	cpa_options_fini(&seen.options);
}

static int world(const struct cpa_config *c)
{
	return c->batch_degree * c->ring_degree * c->ulysses_degree;
}

static int count(enum cpa_variant variant)
{
	int n = 0;

	for (int i = 0; i < seen.n; i++)
		n += seen.at[i].variant == variant;
	return n;
}

static void one_batch_item_has_19_meshes(void **state)
{
	(void)state;
	assert_int_equal(sweep("S=64", ""), CPA_OK);
	assert_int_equal(seen.n, 2 * 19);
	assert_int_equal(count(CPA_VARIANT_RING), 7);
	assert_int_equal(count(CPA_VARIANT_ULYSSES), 7);
	assert_int_equal(count(CPA_VARIANT_UNIFIED), 5);
	assert_int_equal(count(CPA_VARIANT_UNIFIED_ANYTHING), 5);
	for (int i = 0; i < seen.n; i++) {
		const struct cpa_config *c = &seen.at[i], *before = &seen.at[i > 0 ? i - 1 : 0];
		bool ring = c->variant == CPA_VARIANT_RING ||
			c->variant == CPA_VARIANT_RING_ANYTHING;
		bool ulysses = c->variant == CPA_VARIANT_ULYSSES ||
			c->variant == CPA_VARIANT_ULYSSES_ANYTHING;

		assert_int_equal(c->batch_degree, 1);
		assert_true(world(c) >= 2 && world(c) <= 8);
		assert_true(ring          ? c->ulysses_degree == 1 && c->ring_degree > 1
				: ulysses ? c->ring_degree == 1 && c->ulysses_degree > 1
					  : c->ring_degree > 1 && c->ulysses_degree > 1);
		assert_true(before->variant < c->variant ||
			(before->variant == c->variant && world(before) <= world(c)));
	}
	done();
}

static void rotating_all_ways_multiplies_only_what_rings(void **state)
{
	(void)state;
	assert_int_equal(sweep("S=64", "--rotate all"), CPA_OK);
	assert_int_equal(count(CPA_VARIANT_RING), 21);
	assert_int_equal(count(CPA_VARIANT_ULYSSES), 7);
	assert_int_equal(count(CPA_VARIANT_UNIFIED), 15);
	for (int i = 0; i < 21; i++)
		assert_int_equal(seen.at[i].rotate, i % 3); /* p2p, allgather, direct */
	done();
}

static void one_rotation_is_that_one_where_there_is_a_ring(void **state)
{
	static const char *const lines[] = { "--rotate p2p --variant ring,ulysses",
		"--rotate allgather --variant ring,ulysses",
		"--rotate direct --variant ring,ulysses" };

	(void)state;
	for (int rotate = CPA_ROTATE_P2P; rotate <= CPA_ROTATE_DIRECT; rotate++) {
		assert_int_equal(sweep("S=64", lines[rotate]), CPA_OK);
		assert_int_equal(seen.n, 14);
		for (int i = 0; i < seen.n; i++)
			assert_int_equal(seen.at[i].rotate,
				seen.at[i].ring_degree > 1 ? rotate : CPA_ROTATE_P2P);
		done();
	}
}

static void batch_groups_are_divisors_up_to_B(void **state)
{
	int n1 = 0, n2 = 0, n3 = 0;

	(void)state;
	assert_int_equal(sweep("B=3,S=64", "--variant ring --ranks 6"), CPA_OK);
	for (int i = 0; i < seen.n; i++) {
		n1 += seen.at[i].batch_degree == 1 && seen.at[i].ring_degree == 6;
		n2 += seen.at[i].batch_degree == 2 && seen.at[i].ring_degree == 3;
		n3 += seen.at[i].batch_degree == 3 && seen.at[i].ring_degree == 2;
	}
	assert_true(seen.n == 3 && n1 == 1 && n2 == 1 && n3 == 1);
	done();
	/* At R U = 1 every variant runs, each as one rank. */
	assert_int_equal(sweep("B=2,S=64", "--ranks 2"), CPA_OK);
	for (int v = 0; v < CPA_NVARIANTS; v++) {
		bool unified = v == CPA_VARIANT_UNIFIED || v == CPA_VARIANT_UNIFIED_ANYTHING;

		assert_int_equal(count((enum cpa_variant)v), unified ? 1 : 2);
	}
	done();
	assert_int_equal(sweep("S=64", "--ranks 1"), CPA_OK);
	assert_int_equal(seen.n, CPA_NVARIANTS);
	done();
}

static void empty_batch_groups_come_by_request(void **state)
{
	(void)state;
	assert_int_equal(sweep("B=1,S=64", "--variant ring --batch 4 --ranks 8"), CPA_OK);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.at[0].batch_degree, 4);
	assert_int_equal(seen.at[0].ring_degree, 2);
	done();
}

static void fixed_degrees_choose_among_the_default_worlds(void **state)
{
	(void)state;
	assert_int_equal(sweep("S=64", "--ring 2"), CPA_OK);
	assert_int_equal(count(CPA_VARIANT_RING), 1);
	assert_int_equal(count(CPA_VARIANT_UNIFIED), 3); /* 2x2 2x3 2x4 */
	assert_int_equal(count(CPA_VARIANT_ULYSSES), 0);
	done();
	/* A degree that no default world holds makes its own. */
	assert_int_equal(sweep("S=64", "--ring 16 --variant ring_anything"), CPA_OK);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.at[0].ring_degree, 16);
	done();
	assert_int_equal(sweep("S=64", "--ring 1 --ulysses 1 --batch 1"), CPA_OK);
	assert_int_equal(seen.n, CPA_NVARIANTS);
	done();
}

static void given_sizes_fix_how_many_ranks_a_group_has(void **state)
{
	(void)state;
	assert_int_equal(sweep("S=13", "--split given:5,4,0,4 --variant all"), CPA_OK);
	assert_int_equal(seen.n, 2 * 3); /* 4x1 1x4 2x2 */
	for (int i = 0; i < seen.n; i++) {
		assert_int_equal(seen.at[i].split, CPA_SPLIT_GIVEN);
		assert_int_equal(seen.at[i].split_kv, CPA_SPLIT_GIVEN);
		assert_ptr_equal(seen.at[i].sizes, seen.options.sizes.at);
		assert_ptr_equal(seen.at[i].sizes_kv, seen.options.sizes.at);
	}
	done();
	/* For other keys the sizes mean nothing. */
	assert_int_equal(sweep("Sq=13,Skv=9", "--split given:5,4,0,4 --variant ring_anything"),
		CPA_OK);
	assert_int_equal(seen.at[0].split_kv, CPA_SPLIT_BALANCED);
	assert_null(seen.at[0].sizes_kv);
	done();
	assert_int_equal(sweep("S=64", "--heads given:4,2,2 --variant ulysses_anything"),
		CPA_OK);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.at[0].ulysses_degree, 3);
	done();
}

/* R U of each split segment, so that their number says how many ranks there are. */
static void given_sizes_are_of_each_split_segment(void **state)
{
	static const char joint[] = "S=13,segments=a:4:split/b:3:replicated/c:6:split";

	(void)state;
	assert_int_equal(sweep(joint, "--split given:4,0,1,5 --variant all"), CPA_OK);
	assert_int_equal(seen.n, 2 * 2); /* 2x1 1x2 */
	for (int i = 0; i < seen.n; i++)
		assert_true(world(&seen.at[i]) == 2 && seen.at[i].nsizes == 4 &&
			seen.at[i].nsizes_kv == 4);
	done();
	assert_int_equal(sweep(joint, "--split given:4,0,1,5 --split-kv given:2,2,6,0 "
				      "--variant ring_anything"),
		CPA_OK);
	assert_true(seen.n == 1 && seen.at[0].sizes_kv[2] == 6);
	done();
	/* Two segments of queries and one of keys: both are of two ranks. */
	assert_int_equal(sweep("Sq=10,Skv=7,segments=a:4/c:6", "--split given:4,0,1,5 --split-kv "
							      "given:0,7 --variant ring_anything"),
		CPA_OK);
	assert_true(seen.n == 1 && seen.at[0].nsizes == 4 && seen.at[0].nsizes_kv == 2);
	done();
}

static void sizes_of_the_wrong_number_say_how_many_and_why(void **state)
{
	static const char *const cases[][3] = {
		{ "S=13,segments=a:4/b:3:replicated/c:6", "--split given:4,0,1",
			"expected a multiple of 2: ring x ulysses sizes for each of 2 split segments of "
			"queries (a, c), in the order of the sequence" },
		{ "Sq=10,Skv=7,segments=a:4/c:6", "--split given:4,0,1,5 --split-kv given:0,3,4",
			"--split gives 4 sizes for 2 split segments of queries (a, c), those of 2 ranks, "
			"and --split-kv 3 for 1 split segment of keys, those of 3" },
		{ "Sq=10,Skv=7,segments_kv=k:7:replicated", "--split-kv given:7,0",
			"--split-kv gives 2 sizes, and this problem has 0 split segments of keys: every "
			"rank holds them all" },
		{ "S=13,segments=a:4/c:9", "--split given:4,0,4,5 --ring 4", "2 is no multiple of 4" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (sweep(cases[i][0], cases[i][1]) != CPA_INVALID ||
			!strstr(seen.error.text, cases[i][2]))
			fail_msg("%s: %s", cases[i][1], seen.error.text);
		assert_int_equal(seen.n, 0);
		done();
	}
}

static void options_reach_the_configuration(void **state)
{
	(void)state;
	assert_int_equal(sweep("S=64,dtype=fp32",
				 "--variant unified_anything --ranks 4 --order zigzag --heads "
				 "ceil --direction down --partials all --mesh "
				 "batch,ulysses,ring --split ceil --split-kv equal"),
		CPA_OK);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.at[0].order, CPA_ORDER_ZIGZAG);
	assert_int_equal(seen.at[0].heads, CPA_HEADS_CEIL);
	assert_int_equal(seen.at[0].direction, -1);
	assert_int_equal(seen.at[0].partials, CPA_PARTIALS_ALL);
	assert_int_equal(seen.at[0].mesh, CPA_MESH_BATCH_ULYSSES_RING);
	assert_int_equal(seen.at[0].split, CPA_SPLIT_CEIL);
	assert_int_equal(seen.at[0].split_kv, CPA_SPLIT_EQUAL);
	assert_int_equal(seen.at[0].partial_dtype, CPA_DTYPE_FP32);
	seen.n = 0;
	assert_int_equal(cpa_sweep(&seen.options, &seen.options.problem, CPA_ROTATE_CHOICE_ALL,
				 true, keep, &seen, &seen.error),
		CPA_OK);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.at[0].partial_dtype, CPA_DTYPE_FP64);
	done();
}

static void idle_ranks_are_named(void **state)
{
	static const char *const cases[][3] = {
		{ "S=64", "--ring 4 --ranks 6", "ranks 4-5 are left idle; use --ranks 4" },
		{ "S=64", "--ring 4 --ranks 4-5", "rank 4 is left idle" },
		{ "S=64", "--ring 4 --ranks 3", "ranks 0-2 are left idle; use --ranks 4" },
		{ "S=64", "--ring 2 --ulysses 2 --ranks 8", "ranks 4-7 are left idle" },
		{ "S=64", "--ring 2 --ulysses 2 --ranks 8", "--batch 2 for empty groups" },
		{ "S=64", "--ring 2 --ulysses 2 --batch 1 --ranks 8",
			"uses 4 ranks, and ranks 4-7 are left idle" },
		{ "S=64", "--ring 2 --ulysses 2 --batch 1 --ranks 3",
			"needs 4 ranks; use --ranks 4" },
		{ "S=64", "--split given:60,4 --ranks 3", "--split of 2 sizes" },
		{ "S=64", "--variant ring --ulysses 2",
			"suits ring: ring runs with ulysses degree 1" },
		{ "S=64", "--variant unified --ranks 2", "suits unified" },
		{ "S=64", "--ring 3 --split given:60,4", "2 is no multiple of 3" },
		{ "S=64", "--ring 4096 --ulysses 4096 --batch 4096", "at most 4096" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		enum cpa_status status = sweep(cases[i][0], cases[i][1]);

		if (status != CPA_INVALID || !strstr(seen.error.text, cases[i][2]))
			fail_msg("%s: %s", cases[i][1], seen.error.text);
		assert_int_equal(seen.n, 0);
		done();
	}
}

static void a_visitor_can_stop(void **state)
{
	(void)state;
	seen.most = 3;
	assert_int_equal(sweep("S=64", ""), CPA_OK);
	assert_int_equal(seen.n, 3);
	seen.most = 0;
	done();
}

static bool same_sizes(const int64_t *a, const int64_t *b, int n)
{
	return (!a && !b) || (a && b && memcmp(a, b, (size_t)n * sizeof *a) == 0);
}

static void what_is_printed_selects_exactly_that(void **state)
{
	static const char *const lines[] = { "", "--rotate all",
		"--order striped --heads groups", "--split ceil",
		"--split-kv ceil --variant ring_anything",
		"--split given:60,4,0,0 --direction down",
		"--heads given:3,5 --partials block --mesh batch,ulysses,ring",
		"--split equal --variant unified_anything",
		"--split given:30,2,0,0,1,0,0,15",
		"--split ceil --split-kv given:30,2,0,0,1,0,0,15 --variant ring_anything",
		"--split given:30,2,0,0,1,0,0,15 --split-kv given:0,0,32,0,4,4,4,4" };

	static const char joint[] = "B=2,S=64,segments=a:32/b:16:replicated/c:16";

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		static struct seen all;
		const char *problem = strstr(lines[i], "given:30") ? joint : "B=2,S=64";

		assert_int_equal(sweep(problem, lines[i]), CPA_OK);
		all = seen;
		for (int k = 0; k < all.n; k++) {
			const struct cpa_config *a = &all.at[k], *b = &seen.at[0];
			char *text = cpa_config_text(a);

			assert_non_null(text);
			assert_int_equal(sweep(problem, text), CPA_OK);
			free(text);
			assert_int_equal(seen.n, 1);
			assert_true(a->variant == b->variant &&
				a->batch_degree == b->batch_degree &&
				a->ring_degree == b->ring_degree &&
				a->ulysses_degree == b->ulysses_degree &&
				a->rotate == b->rotate && a->mesh == b->mesh &&
				a->split == b->split && a->split_kv == b->split_kv &&
				a->order == b->order && a->heads == b->heads &&
				a->direction == b->direction && a->partials == b->partials);
			assert_true(a->nsizes == b->nsizes && a->nsizes_kv == b->nsizes_kv);
			assert_true(same_sizes(a->sizes, b->sizes, a->nsizes) &&
				same_sizes(a->sizes_kv, b->sizes_kv, a->nsizes_kv) &&
				same_sizes(a->head_counts, b->head_counts, a->ulysses_degree));
			done();
		}
		cpa_options_fini(&all.options);
	}
}

static void a_long_list_of_sizes_is_printed_whole(void **state)
{
	enum { P = 1000 };
	static int64_t sizes[2 * P];
	const struct cpa_problem problem = { .Sq = 5, .Skv = 5 };
	struct cpa_config config = cpa_config_default(CPA_VARIANT_RING_ANYTHING, &problem);
	char *text;
	int n = 0;

	(void)state;
	for (int i = 0; i < 2 * P; i++)
		sizes[i] = INT64_MAX - i;
	config.ring_degree = P;
	config.split = config.split_kv = CPA_SPLIT_GIVEN;
	config.sizes = config.sizes_kv = sizes;
	config.nsizes = config.nsizes_kv = 2 * P;
	text = cpa_config_text(&config);
	assert_non_null(text);
	for (const char *c = text; *c; c++)
		n += *c == ',';
	assert_int_equal(n, 2 * (2 * P - 1));
	assert_non_null(strstr(text, ",9223372036854773808 --split-kv given:9223372036854775807,"));
	assert_string_equal(text + strlen(text) - 20, ",9223372036854773808");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_batch_item_has_19_meshes),
		cmocka_unit_test(rotating_all_ways_multiplies_only_what_rings),
		cmocka_unit_test(one_rotation_is_that_one_where_there_is_a_ring),
		cmocka_unit_test(batch_groups_are_divisors_up_to_B),
		cmocka_unit_test(empty_batch_groups_come_by_request),
		cmocka_unit_test(fixed_degrees_choose_among_the_default_worlds),
		cmocka_unit_test(given_sizes_fix_how_many_ranks_a_group_has),
		cmocka_unit_test(given_sizes_are_of_each_split_segment),
		cmocka_unit_test(sizes_of_the_wrong_number_say_how_many_and_why),
		cmocka_unit_test(a_long_list_of_sizes_is_printed_whole),
		cmocka_unit_test(options_reach_the_configuration),
		cmocka_unit_test(idle_ranks_are_named),
		cmocka_unit_test(a_visitor_can_stop),
		cmocka_unit_test(what_is_printed_selects_exactly_that),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
