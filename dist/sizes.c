/*
 * sizes.c - ranks that know only their own lengths agree on all of them before a plan.
 *
 * The rule that no rank can skip: before each plan, all ranks of the world gather one record of
 * cpa_sizes_nbytes() from each other, whatever they hold, know or think of it.  Making a record
 * cannot fail, and nothing is remembered from one plan to the next: a rank that finds its lengths
 * unchanged and stays away would leave the others waiting.  All ranks then judge the same bytes by the
 * same function, so all of them plan or none does.
 */
#include "dist/schedule.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The words of a record. */
enum word {
	FORMAT,
	NCUTS, NCUTS_KV, REPLICATED, REPLICATED_KV, SELF, BATCH, HQ, HKV, HEAD, HEAD_V, DTYPE, SCALE, LSE, LAYOUT,
	CAUSAL, OFFSET, WINDOW, LEFT, RIGHT, DOCUMENTS, KEY_LENGTHS, MASK, SINK, SEGMENTS, SEGMENTS_KV,
	VARIANT, N, R, U, ROTATE, MESH, SPLIT, SPLIT_KV, ORDER, HEADS, HEAD_COUNTS, DIRECTION,
	PARTIALS, PARTIAL_DTYPE, GUIDANCE,
	NALIKE,
	/* The only ones that may differ: a length for each split segment, 0 behind the last. */
	QUERIES = NALIKE,
	KEYS = QUERIES + CPA_SIZES_MAX_SEGMENTS,
	NWORDS = KEYS + CPA_SIZES_MAX_SEGMENTS
};
_Static_assert((int)NWORDS == (int)CPA_SIZES_NWORDS, "the size of a record is public");

static const int64_t format = INT64_C(0x0200736563697a73); /* also tells another byte order */

/* ---- making a record ------------------------------------------------------------------------- */

/* FNV-1a, by whole words of an int64_t. */
static int64_t hash(int64_t seed, const void *data, size_t nbytes)
{
	const unsigned char *bytes = data;
	uint64_t h = (uint64_t)seed ^ UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
	return (int64_t)h;
}

static int64_t hash_list(const void *list, int64_t n, size_t size)
{
	return list ? hash(n + 1, list, (size_t)n * size) : 0;
}

/* What a mask is, not its elements: a rank may have only the part that it reads. */
static int64_t hash_mask(const struct cpa_mask *mask)
{
	const int64_t about[] = {mask->kind, mask->kind == CPA_MASK_BIAS ? (int64_t)mask->dtype : 0,
		mask->batch != 0, mask->head != 0, mask->query != 0, mask->key != 0};

	return mask->kind == CPA_MASK_NONE ? 0 : hash(1, about, sizeof about);
}

/* Names, which of them are replicated, and how long those are: the others are not known yet. */
static int64_t hash_segments(const struct cpa_segment *segments, int n)
{
	int64_t h = segments ? hash(n, NULL, 0) : 0;

	for (int i = 0; segments && i < n; i++) {
		const int64_t about[] = {segments[i].replicated,
			segments[i].replicated ? segments[i].length : -1};

		h = hash(h, segments[i].name, strlen(segments[i].name));
		h = hash(h, about, sizeof about);
	}
	return h;
}

static int64_t nreplicated(const struct cpa_problem *p, bool keys)
{
	struct cpa_segment whole;
	int n;
	const struct cpa_segment *at = cpa_problem_segments(p, keys, &whole, &n);
	uint64_t sum = 0; /* whatever a rank was told: nonsense may wrap, and is judged later */

	for (int i = 0; i < n; i++)
		sum += at[i].replicated ? (uint64_t)at[i].length : 0;
	return (int64_t)sum;
}

static void pack_problem(const struct cpa_problem *p, int64_t *words)
{
	const struct cpa_rule *rule = &p->rule;

	words[NCUTS] = cpa_problem_nsplit(p, false);
	words[NCUTS_KV] = cpa_problem_nsplit(p, true);
	words[REPLICATED] = nreplicated(p, false);
	words[REPLICATED_KV] = nreplicated(p, true);
	words[SELF] = p->Sq == p->Skv;
	words[BATCH] = p->B;
	words[HQ] = p->Hq;
	words[HKV] = p->Hkv;
	words[HEAD] = p->D;
	words[HEAD_V] = p->Dv;
	words[DTYPE] = p->dtype;
	memcpy(&words[SCALE], &p->scale, sizeof p->scale);
	words[LSE] = p->lse;
	words[LAYOUT] = p->layout;
	words[CAUSAL] = rule->causal;
	words[OFFSET] = rule->offset;
	words[WINDOW] = rule->window;
	words[LEFT] = rule->window ? rule->left : 0;
	words[RIGHT] = rule->window ? rule->right : 0;
	words[DOCUMENTS] = hash_list(rule->documents, rule->ndocuments + 1, sizeof *rule->documents);
	words[KEY_LENGTHS] = hash_list(rule->key_lengths, p->B, sizeof *rule->key_lengths);
	words[MASK] = hash_mask(&rule->mask);
	words[SINK] = hash_list(rule->sink, p->Hq, sizeof *rule->sink);
	words[SEGMENTS] = hash_segments(p->segments, p->nsegments);
	words[SEGMENTS_KV] = hash_segments(p->segments_kv, p->nsegments_kv);
}

static void pack_config(const struct cpa_config *c, int64_t *words)
{
	words[VARIANT] = c->variant;
	words[N] = c->batch_degree;
	words[R] = c->ring_degree;
	words[U] = c->ulysses_degree;
	words[ROTATE] = c->rotate;
	words[MESH] = c->mesh;
	words[SPLIT] = c->split;
	words[SPLIT_KV] = c->split_kv;
	words[ORDER] = c->order;
	words[HEADS] = c->heads;
	words[HEAD_COUNTS] = hash_list(c->head_counts, c->ulysses_degree, sizeof *c->head_counts);
	words[DIRECTION] = c->direction;
	words[PARTIALS] = c->partials;
	words[PARTIAL_DTYPE] = c->partial_dtype;
	words[GUIDANCE] = c->guidance;
}

int64_t cpa_sizes_nbytes(void)
{
	return NWORDS * (int64_t)sizeof(int64_t);
}

static void pack_lengths(const int64_t *lengths, int64_t n, int64_t *words)
{
	for (int64_t i = 0; i < CPA_SIZES_MAX_SEGMENTS; i++)
		words[i] = i < n ? lengths[i] : 0;
}

void cpa_sizes_pack(const struct cpa_problem *problem, const struct cpa_config *config,
	const int64_t *nqueries, const int64_t *nkeys, int64_t *record)
{
	record[FORMAT] = format;
	pack_problem(problem, record);
	pack_lengths(nqueries, record[NCUTS], record + QUERIES);
	pack_lengths(nkeys, record[NCUTS_KV], record + KEYS);
	pack_config(config, record);
}

/* ---- judging all records --------------------------------------------------------------------- */

static const char *print_dtype(int word)
{
	return cpa_dtype_name((enum cpa_dtype)word);
}

static const char *print_layout(int word)
{
	return cpa_layout_name((enum cpa_layout)word);
}

static const char *print_variant(int word)
{
	return cpa_variant_info((enum cpa_variant)word)->name;
}

static const char *print_rotate(int word)
{
	return cpa_rotate_name((enum cpa_rotate)word);
}

static const char *print_split(int word)
{
	return cpa_split_name((enum cpa_split)word);
}

static const char *print_order(int word)
{
	return cpa_order_name((enum cpa_order)word);
}

static const char *print_heads(int word)
{
	return cpa_heads_name((enum cpa_heads)word);
}

static const char *print_partials(int word)
{
	return cpa_partials_name((enum cpa_partials)word);
}

static const char *print_mesh(int word)
{
	return word == CPA_MESH_BATCH_RING_ULYSSES ? "batch, ring, ulysses" : "batch, ulysses, ring";
}

enum kind { NUMBER, NAME, REAL, LIST };

/* How each word is called and written. */
static const struct {
	const char *what;
	enum kind kind;
	const char *(*name)(int word); /* of a NAME, below limit */
	int limit;
} words_info[NALIKE] = {
	[FORMAT] = {"the format of the record", LIST, NULL, 0},
	[NCUTS] = {"the number of split segments of queries", NUMBER, NULL, 0},
	[NCUTS_KV] = {"the number of split segments of keys", NUMBER, NULL, 0},
	[REPLICATED] = {"the query tokens that every rank holds", NUMBER, NULL, 0},
	[REPLICATED_KV] = {"the key tokens that every rank holds", NUMBER, NULL, 0},
	[SELF] = {"whether there are as many keys as queries", NUMBER, NULL, 0},
	[BATCH] = {"B, the batch items", NUMBER, NULL, 0},
	[HQ] = {"Hq, the query heads", NUMBER, NULL, 0},
	[HKV] = {"Hkv, the key heads", NUMBER, NULL, 0},
	[HEAD] = {"D, the head size", NUMBER, NULL, 0},
	[HEAD_V] = {"Dv, the head size of v", NUMBER, NULL, 0},
	[DTYPE] = {"the dtype", NAME, print_dtype, CPA_DTYPE_FP16 + 1},
	[SCALE] = {"the scale", REAL, NULL, 0},
	[LSE] = {"whether lse is an output", NUMBER, NULL, 0},
	[LAYOUT] = {"the layout", NAME, print_layout, CPA_LAYOUT_FUSED + 1},
	[CAUSAL] = {"causal", NUMBER, NULL, 0},
	[OFFSET] = {"the causal offset", NUMBER, NULL, 0},
	[WINDOW] = {"whether there is a window", NUMBER, NULL, 0},
	[LEFT] = {"the left side of the window", NUMBER, NULL, 0},
	[RIGHT] = {"the right side of the window", NUMBER, NULL, 0},
	[DOCUMENTS] = {"the documents", LIST, NULL, 0},
	[KEY_LENGTHS] = {"the key lengths", LIST, NULL, 0},
	[MASK] = {"the kind or the broadcast shape of the mask", LIST, NULL, 0},
	[SINK] = {"the sink", LIST, NULL, 0},
	[SEGMENTS] = {"the segments", LIST, NULL, 0},
	[SEGMENTS_KV] = {"the segments of keys", LIST, NULL, 0},
	[VARIANT] = {"the variant", NAME, print_variant, CPA_NVARIANTS},
	[N] = {"the batch degree", NUMBER, NULL, 0},
	[R] = {"the ring degree", NUMBER, NULL, 0},
	[U] = {"the ulysses degree", NUMBER, NULL, 0},
	[ROTATE] = {"the rotation", NAME, print_rotate, CPA_ROTATE_DIRECT + 1},
	[MESH] = {"the mesh", NAME, print_mesh, CPA_MESH_BATCH_ULYSSES_RING + 1},
	[SPLIT] = {"the split of queries", NAME, print_split, CPA_SPLIT_GIVEN + 1},
	[SPLIT_KV] = {"the split of keys", NAME, print_split, CPA_SPLIT_GIVEN + 1},
	[ORDER] = {"the order", NAME, print_order, CPA_ORDER_ZIGZAG_DOCUMENTS + 1},
	[HEADS] = {"the head rule", NAME, print_heads, CPA_HEADS_GIVEN + 1},
	[HEAD_COUNTS] = {"the head counts", LIST, NULL, 0},
	[DIRECTION] = {"the direction", NUMBER, NULL, 0},
	[PARTIALS] = {"the rounding of partials", NAME, print_partials, CPA_PARTIALS_ALL + 1},
	[PARTIAL_DTYPE] = {"the dtype of partials", NAME, print_dtype, CPA_DTYPE_FP16 + 1},
	[GUIDANCE] = {"the branches of guidance", NUMBER, NULL, 0},
};

static void print_word(int word, int64_t value, char *text, size_t size)
{
	double real;

	memcpy(&real, &value, sizeof real);
	if (words_info[word].kind == REAL)
		snprintf(text, size, "%.17g", real);
	else if (words_info[word].kind == NAME && value >= 0 && value < words_info[word].limit)
		snprintf(text, size, "%s", words_info[word].name((int)value));
	else
		snprintf(text, size, "%" PRId64, value);
}

static enum cpa_status differ(const int64_t *records, int rank, int word, struct cpa_error *error)
{
	char theirs[80], first[80];
	const int64_t *record = records + (int64_t)rank * NWORDS;

	if (words_info[word].kind == LIST)
		return cpa_fail(error, CPA_MISMATCH, "rank %d disagrees with rank 0 in %s; all ranks must be "
			"given the same", rank, words_info[word].what);
	print_word(word, record[word], theirs, sizeof theirs);
	print_word(word, records[word], first, sizeof first);
	return cpa_fail(error, CPA_MISMATCH, "rank %d disagrees with rank 0 in %s: it has %s, rank 0 has %s; "
		"all ranks must be given the same", rank, words_info[word].what, theirs, first);
}

/* The first rank that differs from rank 0 in what all must have alike. */
static enum cpa_status check_alike(int W, const int64_t *records, struct cpa_error *error)
{
	for (int rank = 0; rank < W; rank++) {
		const int64_t *record = records + (int64_t)rank * NWORDS;

		if (record[FORMAT] != format)
			return cpa_fail(error, CPA_MISMATCH, "rank %d sent no record of sizes as this version "
				"writes them; all ranks must run the same version on machines of one byte order",
				rank);
		for (int word = NCUTS; word < NALIKE; word++)
			if (record[word] != records[word])
				return differ(records, rank, word, error);
	}
	return CPA_OK;
}

/* What all ranks agree on may still be no world, or one of more segments than a record holds. */
static enum cpa_status check_world(int W, const int64_t *record, struct cpa_error *error)
{
	bool fits = record[N] >= 1 && record[R] >= 1 && record[U] >= 1 && W % record[N] == 0 &&
		W / record[N] % record[R] == 0 && W / record[N] / record[R] == record[U];

	if (!fits)
		return cpa_fail(error, CPA_INVALID, "degrees %" PRId64 " (batch), %" PRId64 " (ring), %" PRId64
			" (ulysses) are not those of %d ranks: their product must be", record[N], record[R],
			record[U], W);
	for (int word = NCUTS; word <= NCUTS_KV; word++) {
		if (record[word] < 0)
			return cpa_fail(error, CPA_INVALID, "%s is %" PRId64 "; expected 0 or more",
				words_info[word].what, record[word]);
		if (record[word] > CPA_SIZES_MAX_SEGMENTS)
			return cpa_fail(error, CPA_UNSUPPORTED, "%s is %" PRId64 "; a rank tells the lengths of "
				"at most %d: fewer may be split, or all sizes be given to every rank",
				words_info[word].what, record[word], CPA_SIZES_MAX_SEGMENTS);
	}
	return CPA_OK;
}

/* One length of each rank; "its own key tokens of split segment 2 of 3". */
struct side {
	bool keys;
	int64_t segment, ncuts;
};

static void print_side(const struct side *side, char *text, size_t size)
{
	int n = snprintf(text, size, "its own %s tokens", side->keys ? "key" : "query");

	if (side->ncuts > 1)
		snprintf(text + n, size - (size_t)n, " of split segment %" PRId64 " of %" PRId64,
			side->segment + 1, side->ncuts);
}

/* By shard; the ranks of all batch groups must have the same.  *sum grows by all of them. */
static enum cpa_status collect(const struct cpa_partition *part, const int64_t *records,
	const struct side *side, int64_t *sum, int64_t *sizes, struct cpa_error *error)
{
	char what[120];

	print_side(side, what, sizeof what);
	for (int rank = 0; rank < part->W; rank++) {
		struct cpa_coords at = cpa_partition_coords(part, rank);
		int64_t own = records[(int64_t)rank * NWORDS + (side->keys ? KEYS : QUERIES) +
			side->segment];
		int64_t *size = &sizes[at.r * part->config.ulysses_degree + at.u];

		if (own < 0 || (at.b == 0 && own > INT64_MAX - *sum))
			return cpa_fail(error, CPA_INVALID, "rank %d says that %s are %" PRId64 "; expected 0 or "
				"more, and a sum that 64 bits hold", rank, what, own);
		if (at.b == 0) {
			*size = own;
			*sum += own;
		} else if (*size != own) {
			at.b = 0;
			return cpa_fail(error, CPA_MISMATCH, "rank %d disagrees with rank %d in %s: it has %"
				PRId64 ", rank %d has %" PRId64 "; the batch groups must be cut alike", rank,
				cpa_partition_rank(part, at), what, own, cpa_partition_rank(part, at), *size);
		}
	}
	return CPA_OK;
}

static enum cpa_status collect_side(const struct cpa_partition *part, const int64_t *records, bool keys,
	int64_t *sizes, struct cpa_error *error)
{
	int64_t sum = records[keys ? REPLICATED_KV : REPLICATED];
	struct side side = {keys, 0, records[keys ? NCUTS_KV : NCUTS]};
	enum cpa_status status = CPA_OK;

	if (sum < 0)
		return cpa_fail(error, CPA_INVALID, "%s are %" PRId64 "; expected 0 or more, as 64 bits hold",
			words_info[keys ? REPLICATED_KV : REPLICATED].what, sum);
	for (; side.segment < side.ncuts && status == CPA_OK; side.segment++)
		status = collect(part, records, &side, &sum, sizes + side.segment * part->P, error);
	return status;
}

enum cpa_status cpa_sizes_agree(int W, const int64_t *records, int64_t *sizes, int64_t *sizes_kv,
	struct cpa_error *error)
{
	enum cpa_status status;

	assert(W >= 1);
	status = check_alike(W, records, error);
	if (status == CPA_OK)
		status = check_world(W, records, error);
	if (status != CPA_OK)
		return status;
	/* As much of a partition as coordinates need. */
	const struct cpa_partition part = {.W = W, .P = (int)(records[R] * records[U]), .config = {
		.batch_degree = (int)records[N], .ring_degree = (int)records[R],
		.ulysses_degree = (int)records[U], .mesh = (enum cpa_mesh)records[MESH]}};
	status = collect_side(&part, records, false, sizes, error);
	return status == CPA_OK ? collect_side(&part, records, true, sizes_kv, error) : status;
}
