/*
 * partition.c - who holds what, for all ranks of a configuration, and every refusal.
 *
 * All ranks compute the same partition from the same problem and configuration, so they refuse on
 * all or on none.  A refusal names what would work.
 */
#include "dist/layout.h"

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
			used += (size_t)snprintf(text + used, size - used, "%s%lld",
				used ? ", " : "", (long long)i);
}

static enum cpa_status check_degrees(const struct cpa_config *c, struct cpa_error *error)
{
	const struct cpa_variant_info *v = cpa_variant_info(c->variant);
	if (c->batch_degree < 1 || c->ring_degree < 1 || c->ulysses_degree < 1)
		return cpa_fail(error, CPA_INVALID,
			"degrees are %d (batch), %d (ring), %d (ulysses); "
			"each must be at least 1",
			c->batch_degree, c->ring_degree, c->ulysses_degree);
	if ((int64_t)c->batch_degree * c->ring_degree > MAX_RANKS ||
		(int64_t)c->batch_degree * c->ring_degree * c->ulysses_degree > MAX_RANKS)
		return cpa_fail(error, CPA_INVALID, "%d x %d x %d ranks are more than %d",
			c->batch_degree, c->ring_degree, c->ulysses_degree, MAX_RANKS);
	if (c->ring_degree > 1 && !v->ring)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"%s has no ring: ring degree %d must be 1; "
			"unified%s takes both degrees",
			v->name, c->ring_degree, v->strict ? "" : "_anything");
	if (c->ulysses_degree > 1 && !v->ulysses)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"%s has no all-to-all: ulysses degree %d must be "
			"1; unified%s takes both degrees",
			v->name, c->ulysses_degree, v->strict ? "" : "_anything");
	if (c->direction != 1 && c->direction != -1)
		return cpa_fail(error, CPA_INVALID,
			"direction %d is neither +1 (up) nor -1 (down)", c->direction);
	return CPA_OK;
}

static enum cpa_status check_guidance(const struct cpa_problem *p, const struct cpa_config *c,
	struct cpa_error *error)
{
	if (c->guidance == 0 ||
		((c->guidance == 2 || c->guidance == 3) && p->B % c->guidance == 0))
		return CPA_OK;
	return cpa_fail(error, CPA_INVALID,
		"guidance of %d branches with a batch of %lld; expected 2 or 3 branches that divide the "
		"batch, or 0 for none",
		c->guidance, (long long)p->B);
}

/* Strict variants: a split length must divide by R U, and by 2 R U in zigzag order. */
static enum cpa_status check_strict_length(const struct cpa_config *c, const char *name,
	int64_t S, int64_t S_other, struct cpa_error *error)
{
	int64_t P = (int64_t)c->ring_degree * c->ulysses_degree;
	bool zigzag = c->order == CPA_ORDER_ZIGZAG || c->order == CPA_ORDER_ZIGZAG_DOCUMENTS;
	int64_t parts = zigzag ? 2 * P : P;
	if (S % parts == 0)
		return CPA_OK;
	char works[160];
	int64_t common = gcd(S, S_other);
	if (zigzag)
		common = common % 2 == 0 ? common / 2 : 0;
	print_divisors(common, 64, works, sizeof works);
	const char *why = parts == P ? "R U" : "2 R U (zigzag order)";
	if (common == 0)
		return cpa_fail(error, CPA_UNSUPPORTED,
			"%s = %lld is not divisible by %s = %lld, and no "
			"number of ranks works in zigzag order; use %s_anything, or contiguous "
			"order",
			name, (long long)S, why, (long long)parts,
			cpa_variant_info(c->variant)->name);
	return cpa_fail(error, CPA_UNSUPPORTED,
		"%s = %lld is not divisible by %s = %lld; R U of %s would "
		"work, or %s_anything",
		name, (long long)S, why, (long long)parts, works,
		cpa_variant_info(c->variant)->name);
}

static enum cpa_status check_strict_heads(
	const struct cpa_problem *p, const struct cpa_config *c, struct cpa_error *error)
{
	bool query = p->Hq % c->ulysses_degree != 0;
	if (!query && p->Hkv % c->ulysses_degree == 0)
		return CPA_OK;
	char works[160];
	print_divisors(p->Hkv, 256, works, sizeof works); /* Hkv divides Hq */
	return cpa_fail(error, CPA_UNSUPPORTED,
		"%s = %lld heads are not divisible by ulysses degree %d; "
		"degrees %s would work, or %s_anything",
		query ? "Hq" : "Hkv", (long long)(query ? p->Hq : p->Hkv), c->ulysses_degree,
		works, cpa_variant_info(c->variant)->name);
}

/* The segments of one side; one split segment stands for none. */
struct segments {
	const struct cpa_segment *at;
	int n;
};

static struct segments segments_of(
	const struct cpa_problem *p, bool keys, struct cpa_segment *whole)
{
	struct segments segments;
	segments.at = cpa_problem_segments(p, keys, whole, &segments.n);
	return segments;
}

/* In zigzag_documents order a split segment falls into its documents, each cut on its own. */
static struct segments cut_at_documents(
	struct cpa_arena *arena, const struct cpa_problem *p, struct segments whole)
{
	int64_t most = whole.n + p->rule.ndocuments, start = 0;
	struct cpa_segment *at = cpa_arena_alloc(arena, sizeof *at * (size_t)most);
	struct segments parts = {at, 0};
	if (!at)
		return parts;
	for (int i = 0; i < whole.n; start += whole.at[i++].length) {
		int64_t end = start + whole.at[i].length, from = start;
		for (int64_t d = 1; d <= p->rule.ndocuments && !whole.at[i].replicated; d++) {
			int64_t to = p->rule.documents[d] < end ? p->rule.documents[d] : end;
			if (to <= from)
				continue;
			at[parts.n] = whole.at[i];
			at[parts.n++].length = to - from;
			from = to;
		}
		at[parts.n] = whole.at[i]; /* replicated, empty, or all of it */
		at[parts.n].length = end - from;
		parts.n += whole.at[i].replicated || end > from;
	}
	return parts;
}

static struct segments parts_of(struct cpa_arena *arena, const struct cpa_problem *p,
	const struct cpa_config *c, bool keys, struct cpa_segment *whole)
{
	struct segments segments = segments_of(p, keys, whole);
	if (c->order != CPA_ORDER_ZIGZAG_DOCUMENTS || !p->rule.documents)
		return segments;
	return cut_at_documents(arena, p, segments);
}

/* The greatest common divisor of all split lengths of both sides. */
static int64_t common_length(
	struct cpa_arena *arena, const struct cpa_problem *p, const struct cpa_config *c)
{
	int64_t common = 0;
	for (int side = 0; side < 2; side++) {
		struct cpa_segment whole;
		struct segments segments = parts_of(arena, p, c, side == 1, &whole);
		for (int i = 0; i < segments.n; i++)
			if (!segments.at[i].replicated)
				common = gcd(common, segments.at[i].length);
	}
	return common;
}

static enum cpa_status check_strict(struct cpa_arena *arena, const struct cpa_problem *p,
	const struct cpa_config *c, struct cpa_error *error)
{
	int64_t common = common_length(arena, p, c);
	for (int side = 0; side < 2; side++) {
		struct cpa_segment whole;
		struct segments segments = parts_of(arena, p, c, side == 1, &whole);
		for (int i = 0; i < segments.n; i++) {
			const struct cpa_segment *s = &segments.at[i];
			char name[96];
			snprintf(name, sizeof name, "%s%s%s", segments.n > 1 ? "segment " : "",
				segments.n > 1		  ? s->name
					: p->Sq == p->Skv ? "S"
					: side		  ? "Skv"
							  : "Sq",
				"");
			enum cpa_status status = s->replicated
				? CPA_OK
				: check_strict_length(c, name, s->length, common, error);
			if (status != CPA_OK)
				return status;
		}
	}
	return check_strict_heads(p, c, error);
}

/* Strict variants: a rule whose sizes are unequal is refused even where the length divides. */
static enum cpa_status check_equal(const struct cpa_config *c, const char *what,
	const int64_t *bounds, int n, struct cpa_error *error)
{
	for (int i = 1; i < n; i++)
		if (bounds[i + 1] - bounds[i] != bounds[1] - bounds[0])
			return cpa_fail(error, CPA_UNSUPPORTED,
				"%s gives rank 0 %lld and rank %d %lld; %s takes "
				"equal shares only, %s_anything takes any",
				what, (long long)(bounds[1] - bounds[0]), i,
				(long long)(bounds[i + 1] - bounds[i]),
				cpa_variant_info(c->variant)->name,
				cpa_variant_info(c->variant)->name);
	return CPA_OK;
}

/* One side: a cut for each split segment (given sizes: P entries each), the tokens of the others.
 */
static enum cpa_status cut_side(struct cpa_partition *part, bool keys, struct cpa_error *error)
{
	const struct cpa_config *c = &part->config;
	struct cpa_side *side = keys ? &part->kv : &part->q;
	const int64_t *given = keys ? c->sizes_kv : c->sizes;
	struct cpa_segment whole;
	struct segments segments = parts_of(&part->arena, &part->problem, c, keys, &whole);
	int64_t start = 0;
	enum cpa_status status = given ? cpa_config_check_sizes(&part->problem, c, keys, error)
					: CPA_OK;
	if (status != CPA_OK)
		return status;
	side->cuts = cpa_arena_alloc(&part->arena, sizeof *side->cuts * (size_t)segments.n);
	side->starts = cpa_arena_alloc(&part->arena, sizeof *side->starts * (size_t)segments.n);
	if (!side->cuts || !side->starts)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	for (int i = 0; i < segments.n; start += segments.at[i++].length) {
		if (segments.at[i].replicated) {
			cpa_spans_append_range(&part->arena, &side->replicated,
				(struct cpa_range){start, start + segments.at[i].length});
			continue;
		}
		struct cpa_cut *cut = &side->cuts[side->ncuts];
		enum cpa_status s = cpa_cut_init(cut, &part->arena, keys ? c->split_kv : c->split,
			c->order, segments.at[i].length, part->P,
			given ? given + side->ncuts * part->P : NULL, error);
		if (s == CPA_INVALID && given && segments.n > 1) {
			struct cpa_error why = *error;
			cpa_fail(error, s, "%s, segment %s: %.900s", keys ? "--split-kv" : "--split",
				segments.at[i].name, why.text);
		}
		if (s == CPA_OK && cpa_variant_info(c->variant)->strict)
			s = check_equal(
				c, keys ? "--split-kv" : "--split", cut->offset, part->P, error);
		if (s != CPA_OK)
			return s;
		side->starts[side->ncuts++] = start;
	}
	return CPA_OK;
}

/* The split tokens of shards first .. first+n-1, ascending: segment by segment. */
static struct cpa_spans split_tokens(
	const struct cpa_side *side, struct cpa_arena *arena, int first, int n)
{
	struct cpa_spans tokens = {0};
	for (int i = 0; i < side->ncuts; i++) {
		struct cpa_spans piece = cpa_cut_tokens(&side->cuts[i], arena, first, n);
		for (int s = 0; s < piece.n; s++) {
			struct cpa_span span = piece.at[s];
			span.start += side->starts[i];
			cpa_spans_append(arena, &tokens, span);
		}
	}
	return tokens;
}

static void append_all(
	struct cpa_arena *arena, struct cpa_spans *list, const struct cpa_spans *more)
{
	for (int i = 0; i < more->n; i++)
		cpa_spans_append(arena, list, more->at[i]);
}

static enum cpa_status cut_tokens(struct cpa_partition *part, struct cpa_error *error)
{
	enum cpa_status s = cut_side(part, false, error);
	return s == CPA_OK ? cut_side(part, true, error) : s;
}

static enum cpa_status cut_heads_and_batch(struct cpa_partition *part, struct cpa_error *error)
{
	const struct cpa_config *c = &part->config;
	const struct cpa_problem *p = &part->problem;
	part->heads = cpa_arena_alloc(
		&part->arena, sizeof *part->heads * (size_t)(c->ulysses_degree + 1));
	part->batch = cpa_arena_alloc(
		&part->arena, sizeof *part->batch * (size_t)(c->batch_degree + 1));
	if (!part->heads || !part->batch)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	enum cpa_status s = cpa_heads_cut(
		c->heads, p->Hq, p->Hkv, c->ulysses_degree, c->head_counts, part->heads, error);
	if (s != CPA_OK)
		return s;
	if (cpa_variant_info(c->variant)->strict)
		s = check_equal(c, "--heads", part->heads, c->ulysses_degree, error);
	for (int64_t b = 0; b <= c->batch_degree;
		b++) /* balanced: the first B mod N groups one more */
		part->batch[b] = b * (p->B / c->batch_degree) +
			(b < p->B % c->batch_degree ? b : p->B % c->batch_degree);
	return s;
}

static bool needs_any(
	const struct cpa_partition *part, int reader, const struct cpa_spans_index *block)
{
	const struct cpa_spans *lists[2] = {&part->q_block[reader], &part->q_slice[reader]};
	for (int l = 0; l < 2; l++)
		for (int i = 0; i < lists[l]->n; i++) {
			struct cpa_range need = cpa_partition_need(
				part, &lists[l]->at[i], block);
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
		int hops = part->kv.ncuts == 0 ? 0 : R - 1;
		struct cpa_spans_index block = cpa_spans_index(&part->arena, &part->kv_block[j]);
		while (hops > 0 && !needs_any(part, ((j + direction * hops) % R + R) % R, &block))
			hops--;
		part->reach[j] = hops;
	}
}

static enum cpa_status make_blocks(struct cpa_partition *part, struct cpa_error *error)
{
	int R = part->config.ring_degree, U = part->config.ulysses_degree;
	part->q_block = cpa_arena_alloc(&part->arena, sizeof *part->q_block * (size_t)R);
	part->kv_block = cpa_arena_alloc(&part->arena, sizeof *part->kv_block * (size_t)R);
	part->q_slice = cpa_arena_alloc(&part->arena, sizeof *part->q_slice * (size_t)R);
	part->reach = cpa_arena_alloc(&part->arena, sizeof *part->reach * (size_t)R);
	if (part->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	int64_t nreplicated = cpa_spans_ntokens(&part->q.replicated), first = 0;
	for (int64_t r = 0; r < R; r++) {
		int64_t n = nreplicated / R + (r < nreplicated % R); /* balanced */
		part->q_block[r] = split_tokens(&part->q, &part->arena, (int)r * U, U);
		part->kv_block[r] = split_tokens(&part->kv, &part->arena, (int)r * U, U);
		part->q_slice[r] = cpa_spans_pick(&part->arena, &part->q.replicated, first, n, 1);
		first += n;
	}
	if (part->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	find_reach(part);
	if (part->arena.failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for the partition");
	return CPA_OK;
}

static enum cpa_status fill_partition(struct cpa_partition *part, struct cpa_error *error)
{
	enum cpa_status s = cpa_layout_check_problem(&part->problem, error);
	if (s == CPA_OK && cpa_variant_info(part->config.variant)->strict)
		s = check_strict(&part->arena, &part->problem, &part->config, error);
	if (s == CPA_OK)
		s = cut_tokens(part, error);
	if (s == CPA_OK)
		s = cut_heads_and_batch(part, error);
	if (s == CPA_OK)
		s = cpa_layout_check_shards(part, error);
	return s == CPA_OK ? make_blocks(part, error) : s;
}

enum cpa_status cpa_partition_create(const struct cpa_problem *problem,
	const struct cpa_config *config, struct cpa_partition **partition,
	struct cpa_error *error)
{
	enum cpa_status s = cpa_problem_check(problem, error);
	if (s == CPA_OK)
		s = check_degrees(config, error);
	if (s == CPA_OK)
		s = check_guidance(problem, config, error);
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

struct cpa_spans cpa_partition_q_split(
	const struct cpa_partition *part, struct cpa_arena *arena, int r, int u)
{
	return split_tokens(&part->q, arena, r * part->config.ulysses_degree + u, 1);
}

struct cpa_spans cpa_partition_kv_split(
	const struct cpa_partition *part, struct cpa_arena *arena, int r, int u)
{
	return split_tokens(&part->kv, arena, r * part->config.ulysses_degree + u, 1);
}

struct cpa_spans cpa_partition_q_shard(
	const struct cpa_partition *part, struct cpa_arena *arena, int r, int u)
{
	struct cpa_spans tokens = cpa_partition_q_split(part, arena, r, u);
	append_all(arena, &tokens, &part->q.replicated);
	return tokens;
}

struct cpa_spans cpa_partition_kv_shard(
	const struct cpa_partition *part, struct cpa_arena *arena, int r, int u)
{
	struct cpa_spans tokens = cpa_partition_kv_split(part, arena, r, u);
	append_all(arena, &tokens, &part->kv.replicated);
	return tokens;
}

struct cpa_range cpa_partition_need(const struct cpa_partition *part,
	const struct cpa_span *queries, const struct cpa_spans_index *block)
{
	int64_t last = queries->start + (queries->count - 1) * queries->stride + queries->width -
		1;
	struct cpa_range keys = cpa_rule_hull(&part->problem, queries->start, last);
	if (keys.start >= keys.end)
		return (struct cpa_range){0, 0};
	struct cpa_range need = {
		cpa_spans_index_below(block, keys.start), cpa_spans_index_below(block, keys.end)};
	return need.start < need.end ? need : (struct cpa_range){0, 0};
}
