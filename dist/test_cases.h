/*
 * test_cases.h - what the tests of dist/ share: all plans of a configuration, checked, and seeded
 * random problems weighted to edges (lengths and heads below the number of ranks, GQA, batches).
 */
#ifndef CPA_TEST_CASES_H
#define CPA_TEST_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dist/schedule.h"

struct world {
	struct cpa_partition *part;
	struct cpa_schedule **rank;
	struct cpa_fault fault; /* of the last check_world() */
};

static inline enum cpa_status make_world(const struct cpa_problem *p, const struct cpa_config *c,
	struct world *w, struct cpa_error *error)
{
	memset(w, 0, sizeof *w);
	enum cpa_status s = cpa_partition_create(p, c, &w->part, error);
	if (s != CPA_OK)
		return s;
	w->rank = calloc((size_t)w->part->W, sizeof *w->rank);
	assert_non_null(w->rank);
	for (int r = 0; r < w->part->W; r++)
		assert_int_equal(cpa_plan_create(w->part, r, &w->rank[r], error), CPA_OK);
	return CPA_OK;
}

static inline void free_world(struct world *w)
{
	for (int r = 0; w->rank && r < w->part->W; r++)
		cpa_schedule_destroy(w->rank[r]);
	free(w->rank);
	cpa_partition_destroy(w->part);
}

static inline enum cpa_status check_world(struct world *w, struct cpa_error *error)
{
	struct cpa_check *check;
	error->text[0] = '\0';
	assert_int_equal(cpa_check_create(w->part, &check, error), CPA_OK);
	enum cpa_status s = CPA_OK;
	for (int r = 0; s == CPA_OK && r < w->part->W; r++) {
		s = cpa_check_rank(check, w->rank[r], error);
		/* What is wrong on one rank is told at once, by the call that hands it in. */
		assert_int_equal(s == CPA_OK, cpa_check_fault(check)->rule == CPA_RULE_NONE);
	}
	if (s == CPA_OK)
		s = cpa_check_finish(check, error);
	w->fault = *cpa_check_fault(check);
	cpa_check_destroy(check);
	return s;
}

static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline int below(uint64_t *state, int n)
{
	return (int)(next_random(state) % (uint64_t)n);
}

/* Every rank holds all keys.  Only where Sq != Skv; overwritten by the next call. */
static inline void replicate_keys(struct cpa_problem *p)
{
	static struct cpa_segment keys = {.name = "keys", .replicated = true};
	assert_true(p->Sq != p->Skv);
	keys.length = p->Skv;
	p->segments_kv = &keys;
	p->nsegments_kv = 1;
}

static inline bool keys_are_replicated(const struct cpa_problem *p)
{
	return cpa_problem_nsplit(p, true) == 0;
}

static inline struct cpa_problem random_problem(uint64_t *state)
{
	int g = 1 + below(state, 3), Hkv = 1 + below(state, 4);
	struct cpa_problem p = {.B = 1 + below(state, 3), .Sq = 1 + below(state, 30), .Hq = g * Hkv,
		.Hkv = Hkv, .D = 1 + below(state, 5), .Dv = 1 + below(state, 5),
		.dtype = (enum cpa_dtype)below(state, 4), .scale = 0.5, .lse = below(state, 2)};
	p.Skv = below(state, 2) ? p.Sq : 1 + below(state, 30);
	p.rule.causal = below(state, 2);
	p.rule.offset = below(state, 2) ? p.Skv - p.Sq : below(state, 40) - 15;
	if (p.Sq != p.Skv && below(state, 3) == 0)
		replicate_keys(&p);
	return p;
}

/* A rule of any kind and mixture.  Its arrays are overwritten by the next call. */
static inline void random_rule(uint64_t *state, struct cpa_problem *p)
{
	static int64_t documents[8], key_lengths[4];
	static double sink[16];
	if (below(state, 3) == 0) {
		p->rule.window = true;
		p->rule.left = below(state, 12) - 1;
		p->rule.right = below(state, 12) - 1;
	}
	if (below(state, 3) == 0) {
		for (int b = 0; b < p->B; b++)
			key_lengths[b] = below(state, (int)p->Skv + 1);
		p->rule.key_lengths = key_lengths;
	}
	if (below(state, 3) == 0) {
		p->Skv = p->Sq;
		p->segments_kv = NULL;
		p->rule.ndocuments = 1 + below(state, 6);
		documents[0] = 0;
		for (int i = 1; i < p->rule.ndocuments; i++)
			documents[i] = documents[i - 1] + below(state, (int)(p->Sq - documents[i - 1]) + 1);
		documents[p->rule.ndocuments] = p->Sq;
		p->rule.documents = documents;
		for (int b = 0; p->rule.key_lengths && b < p->B; b++)
			key_lengths[b] = below(state, (int)p->Skv + 1);
	}
	for (int h = 0; h < p->Hq; h++)
		sink[h] = h;
	p->rule.sink = below(state, 4) == 0 ? sink : NULL;
}

/* A length as up to four segments, some replicated. */
static inline void cut_segments(uint64_t *state, int64_t length, struct cpa_segment *segments, int *n)
{
	*n = 1 + below(state, 4);
	for (int i = 0; i < *n; i++) {
		segments[i] = (struct cpa_segment){.replicated = below(state, 3) == 0,
			.length = i + 1 == *n ? length : below(state, (int)length + 1)};
		segments[i].name[0] = (char)('a' + i);
		length -= segments[i].length;
	}
}

/* Segments of queries, and of keys where they differ.  Overwritten by the next call. */
static inline void random_segments(uint64_t *state, struct cpa_problem *p)
{
	static struct cpa_segment segments[4], segments_kv[4];
	cut_segments(state, p->Sq, segments, &p->nsegments);
	p->segments = segments;
	p->segments_kv = NULL;
	if (p->Sq == p->Skv)
		return;
	cut_segments(state, p->Skv, segments_kv, &p->nsegments_kv);
	p->segments_kv = segments_kv;
}

static inline int64_t nsplit(const struct cpa_partition *part, bool keys, int r, int u)
{
	struct cpa_arena arena;
	cpa_arena_init(&arena);
	struct cpa_spans tokens = (keys ? cpa_partition_kv_split : cpa_partition_q_split)(part, &arena, r, u);
	int64_t n = cpa_spans_ntokens(&tokens);
	cpa_arena_fini(&arena);
	return n;
}

/* Whether a row may see a key, by the definitions one after the other. */
static inline bool row_sees(const struct cpa_problem *p, int64_t b, int64_t t, int64_t j)
{
	const struct cpa_rule *r = &p->rule;
	int64_t at = t + r->offset;
	if (r->causal && j > at)
		return false;
	if (r->window && ((r->left >= 0 && j < at - r->left) || (r->right >= 0 && j > at + r->right)))
		return false;
	if (r->key_lengths && j >= r->key_lengths[b])
		return false;
	for (int64_t i = 0; r->documents && i < r->ndocuments; i++)
		if ((t >= r->documents[i] && t < r->documents[i + 1]) !=
		    (j >= r->documents[i] && j < r->documents[i + 1]))
			return false;
	return true;
}

static inline struct cpa_config random_config(uint64_t *state, const struct cpa_problem *p)
{
	struct cpa_config c = cpa_config_default((enum cpa_variant)below(state, CPA_NVARIANTS), p);
	const struct cpa_variant_info *v = cpa_variant_info(c.variant);
	if (v->ring)
		c.ring_degree = 1 + below(state, 6);
	if (v->ulysses)
		c.ulysses_degree = 1 + below(state, 5);
	c.batch_degree = 1 + below(state, 3);
	c.rotate = (enum cpa_rotate)below(state, 3);
	c.order = (enum cpa_order)below(state, 4);
	c.direction = below(state, 2) ? 1 : -1;
	c.partials = (enum cpa_partials)below(state, 3);
	c.mesh = (enum cpa_mesh)below(state, 2);
	c.heads = (enum cpa_heads)below(state, 3);
	if (!v->strict && c.order != CPA_ORDER_STRIPED)
		c.split = c.split_kv = below(state, 2) ? CPA_SPLIT_CEIL : CPA_SPLIT_BALANCED;
	return c;
}

#endif
