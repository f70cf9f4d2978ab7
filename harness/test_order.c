/*
 * test_order.c - --order auto picks the order whose busiest rank attends least.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness/options.h"
#include "harness/order.h"

static const int64_t documents[] = {0, 5, 37, 40, 64};

static const struct cpa_problem plain = {.B = 1,
	.Sq = 64,
	.Skv = 64,
	.Hq = 4,
	.Hkv = 2,
	.D = 8,
	.Dv = 8,
	.dtype = CPA_DTYPE_FP32,
	.scale = 0.5};

static struct cpa_config config_of(
	const struct cpa_problem *problem, enum cpa_variant variant, int R, int U)
{
	struct cpa_config config = cpa_config_default(variant, problem);

	config.ring_degree = R;
	config.ulysses_degree = U;
	return config;
}

static enum cpa_order pick(const struct cpa_problem *problem, struct cpa_config config)
{
	struct cpa_error error;

	assert_int_equal(cpa_order_pick(problem, &config, &error), CPA_OK);
	return config.order;
}

/* Attended of the busiest rank and bytes of all; false: refused. */
static bool load_of(const struct cpa_problem *problem, struct cpa_config config,
	enum cpa_order order, int64_t *most, int64_t *nbytes)
{
	struct cpa_partition *partition;
	struct cpa_error error;

	config.order = order;
	if (cpa_partition_create(problem, &config, &partition, &error) != CPA_OK)
		return false;
	*most = *nbytes = 0;
	for (int rank = partition->W - 1; rank >= 0; rank--) {
		struct cpa_schedule *schedule;
		struct cpa_counts counts;

		assert_int_equal(cpa_plan_create(partition, rank, &schedule, &error), CPA_OK);
		cpa_schedule_count(schedule, problem, &counts);
		cpa_schedule_destroy(schedule);
		*most = counts.attended > *most ? counts.attended : *most;
		*nbytes += counts.bytes_sent;
	}
	cpa_partition_destroy(partition);
	return true;
}

static void no_order_beats_the_one_picked(void **state)
{
	static const struct {
		bool causal, window, documents, given;
	} rules[] = {{0}, {.causal = true}, {.window = true}, {.documents = true},
		{.causal = true, .documents = true}, {.causal = true, .given = true}};
	static const int64_t sizes[] = {40, 1, 0, 23};

	(void)state;
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
		for (int k = 0; k < 12; k++) {
			struct cpa_problem problem = plain;
			struct cpa_config config;
			int64_t most, nbytes, other_most, other_nbytes;
			enum cpa_order picked;

			problem.rule.causal = rules[i].causal;
			problem.rule.window = rules[i].window;
			problem.rule.left = problem.rule.right = 6;
			problem.rule.documents = rules[i].documents ? documents : NULL;
			problem.rule.ndocuments = rules[i].documents ? 4 : 0;
			config = config_of(&problem,
				k % 2 ? CPA_VARIANT_UNIFIED : CPA_VARIANT_UNIFIED_ANYTHING,
				4 >> k / 2 % 2, 1 << k / 2 % 2);
			config.rotate = (enum cpa_rotate)(k / 4);
			if (rules[i].given) {
				config.split = config.split_kv = CPA_SPLIT_GIVEN;
				config.sizes = config.sizes_kv = sizes;
				config.nsizes = config.nsizes_kv = 4;
				config.variant = CPA_VARIANT_UNIFIED_ANYTHING;
			}
			picked = pick(&problem, config);
			assert_true(load_of(&problem, config, picked, &most, &nbytes));
			for (int order = 0; order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++) {
				if ((order == CPA_ORDER_ZIGZAG_DOCUMENTS &&
					    !rules[i].documents) ||
					order == (int)picked ||
					!load_of(&problem, config, (enum cpa_order)order,
						&other_most, &other_nbytes))
					continue;
				/* Of equals, the first. */
				assert_true(other_most > most ||
					    (other_most == most &&
						    (other_nbytes > nbytes ||
							    (other_nbytes == nbytes &&
								    order > (int)picked))));
			}
		}
}

static void the_usual_rules_get_the_usual_orders(void **state)
{
	struct cpa_problem problem = plain;

	(void)state;
	assert_int_equal(pick(&problem, config_of(&problem, CPA_VARIANT_RING, 4, 1)),
		CPA_ORDER_CONTIGUOUS);
	problem.rule.causal = true;
	assert_int_equal(
		pick(&problem, config_of(&problem, CPA_VARIANT_RING, 4, 1)), CPA_ORDER_ZIGZAG);
	/* Without a ring the order changes nothing. */
	assert_int_equal(pick(&problem, config_of(&problem, CPA_VARIANT_ULYSSES, 1, 2)),
		CPA_ORDER_CONTIGUOUS);
	problem.rule.documents = documents;
	problem.rule.ndocuments = 4;
	assert_int_equal(pick(&problem, config_of(&problem, CPA_VARIANT_RING_ANYTHING, 4, 1)),
		CPA_ORDER_ZIGZAG_DOCUMENTS);
}

static void what_every_order_refuses_stays_refused(void **state)
{
	struct cpa_problem problem = plain;
	struct cpa_config config;
	struct cpa_partition *partition;
	struct cpa_error error;

	(void)state;
	problem.Sq = problem.Skv = 63;
	config = config_of(&problem, CPA_VARIANT_RING, 4, 1);
	assert_int_equal(pick(&problem, config), CPA_ORDER_CONTIGUOUS);
	assert_int_equal(
		cpa_partition_create(&problem, &config, &partition, &error), CPA_UNSUPPORTED);
}

struct visits {
	int n, nauto[CPA_ORDER_ZIGZAG_DOCUMENTS + 1];
};

static bool count_order(void *context, const struct cpa_config *config)
{
	struct visits *visits = context;

	visits->n++;
	visits->nauto[config->order]++;
	return true;
}

static struct visits sweep(const char *words)
{
	char text[256], *argv[20];
	struct cpa_options options;
	struct visits visits = {0};
	struct cpa_error error;
	int argc = 0;

	snprintf(text, sizeof text, "%s", words);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (cpa_options_parse(argc, argv, &options, &error) != CPA_OK)
		fail_msg("%s: %s", words, error.text);
	assert_int_equal(cpa_sweep(&options, &options.problem, CPA_ROTATE_CHOICE_P2P, false,
				 count_order, &visits, &error),
		CPA_OK);
	cpa_options_fini(&options);
	return visits;
}

static void a_sweep_picks_for_each_configuration(void **state)
{
	struct visits fixed = sweep("cpattn plan --problem S=64,causal --order zigzag"),
		      picked = sweep("cpattn plan --problem S=64,causal --order auto");

	(void)state;
	assert_int_equal(fixed.n, 38);
	assert_int_equal(picked.n, 38);
	/* Fourteen have no ring; the strict ring refuses 3, 5, 6 and 7 ranks, strict unified
	 * 2x3 and 3x2. */
	assert_int_equal(picked.nauto[CPA_ORDER_CONTIGUOUS], 14 + 4 + 2);
	assert_int_equal(picked.nauto[CPA_ORDER_ZIGZAG], 18);
}

static void documents_are_cut_one_by_one_when_asked(void **state)
{
	struct visits visits = sweep("cpattn plan --problem S=64,documents=0:20:64 "
				     "--order zigzag_documents");

	(void)state;
	assert_int_equal(visits.nauto[CPA_ORDER_ZIGZAG_DOCUMENTS], 38);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_beats_the_one_picked),
		cmocka_unit_test(the_usual_rules_get_the_usual_orders),
		cmocka_unit_test(what_every_order_refuses_stays_refused),
		cmocka_unit_test(a_sweep_picks_for_each_configuration),
		cmocka_unit_test(documents_are_cut_one_by_one_when_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
