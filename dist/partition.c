/*
 * partition.c - who holds what, for all ranks of a configuration, and every refusal.
 *
 * All ranks compute the same partition from the same problem and configuration, so they refuse on all
 * or on none.  A refusal names what would work.
 */
#include "dist/schedule.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 20 };

static int64_t gcd(int64_t a, int64_t b)
{
	return b == 0 ? a : gcd(b, a % b);
}

/* "1, 2, 4, 8": the divisors of n up to limit, for sentences. */
static void print_divisors(int64_t n, int64_t limit, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int64_t i = 1; i <= n && i <= limit && used + 24 < size; i++)
		if (n % i == 0)
			used += (size_t)snprintf(text + used, size - used, "%s%lld", used ? ", " : "",
				(long long)i);
}

static enum cpa_status check_degrees(const struct cpa_config *c, struct cpa_error *error)
{
	const struct cpa_variant_info *v = cpa_variant_info(c->variant);
	if (c->batch_degree < 1 || c->ring_degree < 1 || c->ulysses_degree < 1)
		return cpa_fail(error, CPA_INVALID, "degrees are %d (batch), %d (ring), %d (ulysses); "
			"each must be at least 1", c->batch_degree, c->ring_degree, c->ulysses_degree);
	if ((int64_t)c->batch_degree * c->ring_degree > MAX_RANKS ||
	    (int64_t)c->batch_degree * c->ring_degree * c->ulysses_degree > MAX_RANKS)
		return cpa_fail(error, CPA_INVALID, "%d x %d x %d ranks are more than %d",
			c->batch_degree, c->ring_degree, c->ulysses_degree, MAX_RANKS);
	if (c->ring_degree > 1 && !v->ring)
		return cpa_fail(error, CPA_UNSUPPORTED, "%s has no ring: ring degree %d must be 1; "
			"unified%s takes both degrees", v->name, c->ring_degree, v->strict ? "" : "_anything");
	if (c->ulysses_degree > 1 && !v->ulysses)
		return cpa_fail(error, CPA_UNSUPPORTED, "%s has no all-to-all: ulysses degree %d must be "
			"1; unified%s takes both degrees", v->name, c->ulysses_degree,
			v->strict ? "" : "_anything");
	if (c->direction != 1 && c->direction != -1)
		return cpa_fail(error, CPA_INVALID, "direction %d is neither +1 (up) nor -1 (down)",
			c->direction);
	return CPA_OK;
}

/* Strict variants: a split length must divide by R U, and by 2 R U in zigzag order. */
static enum cpa_status check_strict_length(const struct cpa_config *c, const char *name, int64_t S,
	int64_t S_other, struct cpa_error *error)
{
	int64_t P = (int64_t)c->ring_degree * c->ulysses_degree;
	int64_t parts = c->order == CPA_ORDER_ZIGZAG ? 2 * P : P;
	if (S % parts == 0)
		return CPA_OK;
	char works[160];
	int64_t common = gcd(S, S_other);
	if (c->order == CPA_ORDER_ZIGZAG)
		common = common % 2 == 0 ? common / 2 : 0;
	print_divisors(common, 64, works, sizeof works);
	const char *why = parts == P ? "R U" : "2 R U (zigzag order)";
	if (common == 0)
		return cpa_fail(error, CPA_UNSUPPORTED, "%s = %lld is not divisible by %s = %lld, and no "
			"number of ranks works in zigzag order; use %s_anything, or contiguous order", name,
			(long long)S, why, (long long)parts, cpa_variant_info(c->variant)->name);
	return cpa_fail(error, CPA_UNSUPPORTED, "%s = %lld is not divisible by %s = %lld; R U of %s would "
		"work, or %s_anything", name, (long long)S, why, (long long)parts, works,
		cpa_variant_info(c->variant)->name);
}

static enum cpa_status check_strict_heads(const struct cpa_problem *p, const struct cpa_config *c,
	struct cpa_error *error)
{
	bool query = p->Hq % c->ulysses_degree != 0;
	if (!query && p->Hkv % c->ulysses_degree == 0)
		return CPA_OK;
	char works[160];
	print_divisors(p->Hkv, 256, works, sizeof works); /* Hkv divides Hq */
	return cpa_fail(error, CPA_UNSUPPORTED, "%s = %lld heads are not divisible by ulysses degree %d; "
		"degrees %s would work, or %s_anything", query ? "Hq" : "Hkv",
		(long long)(query ? p->Hq : p->Hkv), c->ulysses_degree, works,
		cpa_variant_info(c->variant)->name);
}

static enum cpa_status check_strict(const struct cpa_problem *p, const struct cpa_config *c,
	struct cpa_error *error)
{
	int64_t other = p->kv_replicated ? p->Sq : p->Skv;
	const char *name = p->Sq == p->Skv ? "S" : "Sq";
	enum cpa_status s = check_strict_length(c, name, p->Sq, other, error);
	if (s == CPA_OK && !p->kv_replicated)
		s = check_strict_length(c, p->Sq == p->Skv ? "S" : "Skv", p->Skv, p->Sq, error);
	return s == CPA_OK ? check_strict_heads(p, c, error) : s;
}

/* Strict variants: a rule whose sizes are unequal is refused even where the length divides. */
static enum cpa_status check_equal(const struct cpa_config *c, const char *what, const int64_t *bounds,
	int n, struct cpa_error *error)
{
	for (int i = 1; i < n; i++)
		if (bounds[i + 1] - bounds[i] != bounds[1] - bounds[0])
			return cpa_fail(error, CPA_UNSUPPORTED, "%s gives rank 0 %lld and rank %d %lld; %s takes "
				"equal shares only, %s_anything takes any", what,
				(long long)(bounds[1] - bounds[0]), i,
				(long long)(bounds[i + 1] - bounds[i]), cpa_variant_info(c->variant)->name,
				cpa_variant_info(c->variant)->name);
	return CPA_OK;
}

static enum cpa_status cut_tokens(struct cpa_partition *part, struct cpa_error *error)
{
	const struct cpa_config *c = &part->config;
	const struct cpa_problem *p = &part->problem;
	bool strict = cpa_variant_info(c->variant)->strict;
	enum cpa_status s = cpa_cut_init(&part->q, &part->arena, c->split, c->order, p->Sq, part->P,
		c->sizes, error);
	if (s == CPA_OK && strict)
		s = check_equal(c, "--split", part->q.offset, part->P, error);
	if (s != CPA_OK || p->kv_replicated)
		return s;
	s = cpa_cut_init(&part->kv, &part->arena, c->split_kv, c->order, p->Skv, part->P, c->sizes_kv,
		error);
	if (s == CPA_OK && strict)
		s = check_equal(c, "--split-kv", part->kv.offset, part->P, error);
	return s;
}

static enum cpa_status cut_heads_and_batch(struct cpa_partition *part, struct cpa_error *error)
{
	const struct cpa_config *c = &part->config;
	const struct cpa_problem *p = &part->problem;
	part->heads = cpa_arena_alloc(&part->arena, sizeof *part->heads * (size_t)(c->ulysses_degree + 1));
	part->batch = cpa_arena_alloc(&part->arena, sizeof *part->batch * (size_t)(c->batch_degree + 1));
	if (!part->heads || !part->batch)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	enum cpa_status s = cpa_heads_cut(c->heads, p->Hq, p->Hkv, c->ulysses_degree, c->head_counts,
		part->heads, error);
	if (s != CPA_OK)
		return s;
	if (cpa_variant_info(c->variant)->strict)
		s = check_equal(c, "--heads", part->heads, c->ulysses_degree, error);
	for (int64_t b = 0; b <= c->batch_degree; b++) /* balanced: the first B mod N groups one more */
		part->batch[b] = b * (p->B / c->batch_degree) +
			(b < p->B % c->batch_degree ? b : p->B % c->batch_degree);
	return s;
}

static bool needs_any(const struct cpa_partition *part, int reader, int block)
{
	const struct cpa_spans *rows = &part->q_block[reader];
	for (int i = 0; i < rows->n; i++) {
		struct cpa_range need = cpa_partition_need(part, &rows->at[i], &part->kv_block[block]);
		if (need.start < need.end)
			return true;
	}
	return false;
}

/* Block j is passed on while a ring rank further along needs any of it. */
static void find_reach(struct cpa_partition *part)
{
	int R = part->config.ring_degree, direction = part->config.direction;
	for (int j = 0; j < R; j++) {
		int hops = part->problem.kv_replicated ? 0 : R - 1;
		while (hops > 0 && !needs_any(part, ((j + direction * hops) % R + R) % R, j))
			hops--;
		part->reach[j] = hops;
	}
}

static enum cpa_status make_blocks(struct cpa_partition *part, struct cpa_error *error)
{
	int R = part->config.ring_degree, U = part->config.ulysses_degree;
	part->q_block = cpa_arena_alloc(&part->arena, sizeof *part->q_block * (size_t)R);
	part->kv_block = cpa_arena_alloc(&part->arena, sizeof *part->kv_block * (size_t)R);
	part->reach = cpa_arena_alloc(&part->arena, sizeof *part->reach * (size_t)R);
	if (part->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	for (int r = 0; r < R; r++) {
		part->q_block[r] = cpa_cut_tokens(&part->q, &part->arena, r * U, U);
		if (part->problem.kv_replicated)
			cpa_spans_append_range(&part->arena, &part->kv_block[r],
				(struct cpa_range){0, part->problem.Skv});
		else
			part->kv_block[r] = cpa_cut_tokens(&part->kv, &part->arena, r * U, U);
	}
	if (part->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	find_reach(part);
	return CPA_OK;
}

static enum cpa_status fill_partition(struct cpa_partition *part, struct cpa_error *error)
{
	enum cpa_status s = CPA_OK;
	if (cpa_variant_info(part->config.variant)->strict)
		s = check_strict(&part->problem, &part->config, error);
	if (s == CPA_OK)
		s = cut_tokens(part, error);
	if (s == CPA_OK)
		s = cut_heads_and_batch(part, error);
	return s == CPA_OK ? make_blocks(part, error) : s;
}

enum cpa_status cpa_partition_create(const struct cpa_problem *problem, const struct cpa_config *config,
	struct cpa_partition **partition, struct cpa_error *error)
{
	enum cpa_status s = cpa_problem_check(problem, error);
	if (s == CPA_OK)
		s = check_degrees(config, error);
	if (s != CPA_OK)
		return s;
	struct cpa_partition *part = calloc(1, sizeof *part);
	if (!part)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	cpa_arena_init(&part->arena);
	part->problem = *problem;
	part->config = *config;
	part->P = config->ring_degree * config->ulysses_degree;
	part->W = part->P * config->batch_degree;
	s = fill_partition(part, error);
	if (s != CPA_OK) {
		cpa_partition_destroy(part);
		return s;
	}
	*partition = part;
	return CPA_OK;
}

void cpa_partition_destroy(struct cpa_partition *partition)
{
	if (!partition)
		return;
	cpa_arena_fini(&partition->arena);
	free(partition);
}

struct cpa_coords cpa_partition_coords(const struct cpa_partition *part, int rank)
{
	assert(rank >= 0 && rank < part->W);
	int R = part->config.ring_degree, U = part->config.ulysses_degree;
	if (part->config.mesh == CPA_MESH_BATCH_ULYSSES_RING)
		return (struct cpa_coords){rank / part->P, rank % R, rank / R % U};
	return (struct cpa_coords){rank / part->P, rank / U % R, rank % U};
}

int cpa_partition_rank(const struct cpa_partition *part, struct cpa_coords at)
{
	int R = part->config.ring_degree, U = part->config.ulysses_degree;
	if (part->config.mesh == CPA_MESH_BATCH_ULYSSES_RING)
		return (at.b * U + at.u) * R + at.r;
	return (at.b * R + at.r) * U + at.u;
}

struct cpa_range cpa_partition_batches(const struct cpa_partition *part, int b)
{
	return (struct cpa_range){part->batch[b], part->batch[b + 1]};
}

struct cpa_range cpa_partition_heads(const struct cpa_partition *part, int u)
{
	return (struct cpa_range){part->heads[u], part->heads[u + 1]};
}

struct cpa_range cpa_partition_kv_heads(const struct cpa_partition *part, int u)
{
	return cpa_heads_kv(cpa_partition_heads(part, u), part->problem.Hq / part->problem.Hkv);
}

struct cpa_spans cpa_partition_q_shard(const struct cpa_partition *part, struct cpa_arena *arena, int r,
	int u)
{
	return cpa_cut_tokens(&part->q, arena, r * part->config.ulysses_degree + u, 1);
}

struct cpa_spans cpa_partition_kv_shard(const struct cpa_partition *part, struct cpa_arena *arena, int r,
	int u)
{
	if (!part->problem.kv_replicated)
		return cpa_cut_tokens(&part->kv, arena, r * part->config.ulysses_degree + u, 1);
	struct cpa_spans all = {0};
	cpa_spans_append_range(arena, &all, (struct cpa_range){0, part->problem.Skv});
	return all;
}

struct cpa_range cpa_partition_need(const struct cpa_partition *part, const struct cpa_span *queries,
	const struct cpa_spans *block)
{
	int64_t last = queries->start + (queries->count - 1) * queries->stride + queries->width - 1;
	struct cpa_range keys = cpa_rule_hull(&part->problem, queries->start, last);
	if (keys.start >= keys.end)
		return (struct cpa_range){0, 0};
	struct cpa_range need = {cpa_spans_below(block, keys.start), cpa_spans_below(block, keys.end)};
	return need.start < need.end ? need : (struct cpa_range){0, 0};
}
