/*
 * test_packed.c - many packed documents: plans of hundreds of spans a rank, in every order and rotation.
 *
 * Whatever is quadratic in documents makes this test slow enough to notice.
 */
#include "dist/test_cases.h"

#include <stdio.h>

enum { NDOCUMENTS = 1024, NEACH = 64, NTEXT = 640, LEFT = 48 };

/* Uneven documents, a few of them empty; GQA, a window, causal. */
static struct cpa_problem packed(int n, int64_t *starts)
{
	uint64_t state = 4;
	starts[0] = 0;
	starts[n] = n * NEACH;
	for (int i = 1; i < n; i++)
		starts[i] = below(&state, 40) ? i * NEACH + below(&state, NEACH) : starts[i - 1];
	return (struct cpa_problem){.B = 1,
		.Sq = n * NEACH,
		.Skv = n * NEACH,
		.Hq = 32,
		.Hkv = 8,
		.D = 128,
		.Dv = 128,
		.dtype = CPA_DTYPE_BF16,
		.scale = 0.1,
		.lse = true,
		.rule = {.causal = true,
			.window = true,
			.left = LEFT,
			.right = 0,
			.ndocuments = n,
			.documents = starts}};
}

/* Pairs that the mask lets be, of one head: a row sees itself and up to LEFT keys of its document. */
static int64_t visible_pairs(const struct cpa_rule *rule)
{
	const int64_t *starts = rule->documents;
	int64_t pairs = 0;
	for (int64_t d = 0; d < rule->ndocuments; d++)
		for (int64_t t = starts[d]; t < starts[d + 1]; t++)
			pairs += (t - starts[d] < LEFT ? t - starts[d] : LEFT) + 1;
	return pairs;
}

/* Plans and proves one rank after another, and adds up what they do. */
static void prove(const struct cpa_problem *p, const struct cpa_config *c, struct cpa_counts *all)
{
	struct cpa_partition *part;
	struct cpa_check *check;
	struct cpa_error error = {.text = ""};
	assert_int_equal(cpa_partition_create(p, c, &part, &error), CPA_OK);
	assert_int_equal(cpa_check_create(part, &check, &error), CPA_OK);
	*all = (struct cpa_counts){0};
	for (int r = 0; r < part->W; r++) {
		struct cpa_schedule *schedule;
		struct cpa_counts counts;
		assert_int_equal(cpa_plan_create(part, r, &schedule, &error), CPA_OK);
		if (cpa_check_rank(check, schedule, &error) != CPA_OK)
			fail_msg("%s, %s: %s", cpa_order_name(c->order),
				cpa_rotate_name(c->rotate), error.text);
		cpa_schedule_count(schedule, p, &counts);
		all->work += counts.work;
		all->attended += counts.attended;
		all->bytes_sent += counts.bytes_sent;
		cpa_schedule_destroy(schedule);
	}
	if (cpa_check_finish(check, &error) != CPA_OK)
		fail_msg("%s", error.text);
	cpa_check_destroy(check);
	cpa_partition_destroy(part);
}

static void prove_every_order(const struct cpa_problem *p)
{
	struct cpa_config c = cpa_config_default(CPA_VARIANT_UNIFIED_ANYTHING, p);
	c.ring_degree = c.ulysses_degree = 4;
	for (int order = CPA_ORDER_CONTIGUOUS; order <= CPA_ORDER_ZIGZAG_DOCUMENTS; order++) {
		struct cpa_counts counts[3];
		c.order = (enum cpa_order)order;
		for (int rotate = CPA_ROTATE_P2P; rotate <= CPA_ROTATE_DIRECT; rotate++) {
			c.rotate = (enum cpa_rotate)rotate;
			prove(p, &c, &counts[rotate]);
			assert_int_equal(counts[rotate].work, visible_pairs(&p->rule) * p->Hq);
			assert_true(counts[rotate].attended >= counts[rotate].work);
			assert_int_equal(counts[rotate].attended, counts[0].attended);
		}
		assert_true(counts[CPA_ROTATE_DIRECT].bytes_sent <=
			counts[CPA_ROTATE_P2P].bytes_sent);
	}
}

static void a_thousand_documents_are_planned_and_proved(void **unused)
{
	(void)unused;
	int64_t starts[NDOCUMENTS + 1];
	struct cpa_problem p = packed(NDOCUMENTS, starts);
	prove_every_order(&p);
}

static void so_they_are_behind_a_replicated_text(void **unused)
{
	(void)unused;
	int64_t starts[NDOCUMENTS / 4 + 1];
	struct cpa_problem p = packed(NDOCUMENTS / 4, starts);
	struct cpa_segment segments[] = {{.name = "text", .length = NTEXT, .replicated = true},
		{.name = "image", .length = p.Sq - NTEXT}};
	p.segments = segments;
	p.nsegments = 2;
	prove_every_order(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_documents_are_planned_and_proved),
		cmocka_unit_test(so_they_are_behind_a_replicated_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
