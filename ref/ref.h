/*
 * ref.h - what a right answer is.
 *
 * Full attention in double precision, which keys a query sees, which rank owns which token, merging of
 * partial results, number formats and error bounds.  Needs libc and libm only.
 *
 * Words: B batch, Sq/Skv query/key tokens, Hq/Hkv query/key heads, D/Dv head sizes; q k v o lse as
 * usual, lse being the natural log of the sum over visible keys of exp(scale q.k).  Arrays are
 * [B, S, H, D] unless strides say otherwise.  All counts and offsets are int64_t or size_t.
 */
#ifndef CPA_REF_H
#define CPA_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- status ---------------------------------------------------------------------------------- */

/* What a function that can fail returns.  A caller's bug is an assert instead. */
enum cpa_status {
	CPA_OK,
	CPA_UNSUPPORTED, /* this variant or device cannot do this problem; the text says what would work */
	CPA_INVALID,     /* input from outside is malformed; the text says where and what was expected */
	CPA_MISMATCH,    /* a check failed; the text names the first fault */
	CPA_EXTERNAL,    /* a library or the machine failed; its own text is passed on */
	CPA_NO_MEMORY
};

/* The sentence that goes with a status.  Written by the first function that knows; "" on success. */
struct cpa_error {
	char text[1024];
};

/* Writes the sentence (printf form, cut at the size of text) and returns status.  error is not NULL. */
enum cpa_status cpa_fail(struct cpa_error *error, enum cpa_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- arena: memory that is freed together ---------------------------------------------------- */

/*
 * A bump allocator.  After a failed allocation `failed` stays true and every later call returns NULL,
 * so a builder checks once at its end (and returns CPA_NO_MEMORY) instead of after every call.
 */
struct cpa_arena {
	struct cpa_arena_block *blocks;
	size_t nbytes; /* handed out so far */
	bool failed;
};
void cpa_arena_init(struct cpa_arena *arena);
void cpa_arena_fini(struct cpa_arena *arena);
/* nbytes zeroed bytes, aligned to 16; NULL when out of memory. */
void *cpa_arena_alloc(struct cpa_arena *arena, size_t nbytes);

/* ---- number formats -------------------------------------------------------------------------- */

enum cpa_dtype { CPA_DTYPE_FP64, CPA_DTYPE_FP32, CPA_DTYPE_BF16, CPA_DTYPE_FP16 };

size_t cpa_dtype_nbytes(enum cpa_dtype dtype);
const char *cpa_dtype_name(enum cpa_dtype dtype); /* "fp64" "fp32" "bf16" "fp16" */
bool cpa_dtype_parse(const char *name, enum cpa_dtype *dtype);
double cpa_dtype_roundoff(enum cpa_dtype dtype); /* u: 2^-53, 2^-24, 2^-8, 2^-11 */
double cpa_dtype_max(enum cpa_dtype dtype);      /* largest finite value */

/* One rounding, to nearest even; subnormals, infinities and NaN (quietened, sign kept) as in IEEE 754. */
uint16_t cpa_bf16_from_double(double x);
uint16_t cpa_fp16_from_double(double x);
uint16_t cpa_bf16_from_float(float x);
uint16_t cpa_fp16_from_float(float x);
float cpa_bf16_to_float(uint16_t bits);
float cpa_fp16_to_float(uint16_t bits);

/* Element i of an array of dtype, as double; and back with one rounding. */
double cpa_load(enum cpa_dtype dtype, const void *data, int64_t i);
void cpa_store(enum cpa_dtype dtype, void *data, int64_t i, double value);
/* Like n times cpa_load and cpa_store; dst and src must not overlap. */
void cpa_convert(enum cpa_dtype to, void *dst, enum cpa_dtype from, const void *src, int64_t n);

/* ---- the problem ----------------------------------------------------------------------------- */

struct cpa_range {
	int64_t start, end; /* [start, end) */
};

/*
 * A dense mask in model order, broadcast to [B, Hq, Sq, Skv]: an input that never travels and is never
 * expanded.  Every rank indexes it by global ids.
 */
enum cpa_mask_kind {
	CPA_MASK_NONE,
	CPA_MASK_BOOL, /* uint8_t; not 0 = attend */
	CPA_MASK_BIAS  /* added to the scaled score; -inf = not visible; NaN and +inf are invalid */
};
struct cpa_mask {
	enum cpa_mask_kind kind;
	enum cpa_dtype dtype;            /* of a bias: fp32, or fp64 for fp64 problems */
	const void *data;                /* borrowed */
	int64_t batch, head, query, key; /* strides in elements; 0 where it is broadcast */
	const char *made;                /* text of what made it, "bool:1x1x1xK:3"; NULL: nothing known */
};

/*
 * Which keys a query sees.  Everything but the mask is an interval of keys for each (batch item, query),
 * and all parts are ANDed.  Arrays are borrowed.
 */
struct cpa_rule {
	bool causal;                /* query i sees key j only if j <= i + offset */
	int64_t offset;             /* position of query 0 on the key axis */
	bool window;                /* key j only if i+offset-left <= j <= i+offset+right; -1: no bound */
	int64_t left, right;
	const int64_t *documents;   /* [ndocuments+1] cumulative starts, first 0, last S; NULL: none */
	int64_t ndocuments;
	const int64_t *key_lengths; /* [B] keys n, n+1, ... of that item are not visible; NULL: none */
	struct cpa_mask mask;
	const double *sink;         /* [Hq] one extra logit in the denominator of each row, once; NULL */
};

/* A named stretch of the sequence that is cut on its own, or held whole by every rank of a batch group. */
struct cpa_segment {
	char name[64];
	int64_t length;
	bool replicated;
};

/*
 * How an array lies in memory.  The caller's q, k, v, o and lse are BSHD, BHSD (lse [B, H, S]) or
 * FUSED: q, k and v are strided views of one array [B, S, Hq + 2 Hkv, D], the heads of q first, then
 * k, then v; o and lse are BSHD then.  SBHD is what work and wire buffers are.  No answer depends on it.
 */
enum cpa_layout { CPA_LAYOUT_BSHD, CPA_LAYOUT_SBHD, CPA_LAYOUT_BHSD, CPA_LAYOUT_FUSED };
const char *cpa_layout_name(enum cpa_layout); /* "BSHD" "SBHD" "BHSD" "fused" */

struct cpa_problem {
	int64_t B, Sq, Skv, Hq, Hkv, D, Dv;
	enum cpa_dtype dtype; /* of q, k, v and o; lse is fp64 for fp64, else fp32 */
	double scale;
	struct cpa_rule rule;
	/* Segments in sequence order, borrowed; NULL: one split segment.  They describe queries, and keys
	 * too where Sq = Skv; segments_kv is for keys where Sq != Skv.  Replicated keys never travel. */
	const struct cpa_segment *segments, *segments_kv;
	int nsegments, nsegments_kv;
	bool lse;               /* whether lse is an output */
	enum cpa_layout layout; /* of the caller's arrays; the partition says when FUSED can be */
};

/* The segments of queries or keys, *n of them; *whole, one split segment without a name, where the
 * problem lists none. */
const struct cpa_segment *cpa_problem_segments(const struct cpa_problem *problem, bool keys,
	struct cpa_segment *whole, int *n);
/* How many of them are split. */
int cpa_problem_nsplit(const struct cpa_problem *problem, bool keys);
/* "2 split segments of keys (text, image)": for sentences; cut to fit. */
void cpa_problem_print_split(const struct cpa_problem *problem, bool keys, char *text, size_t size);

/* Every size >= 1, Hq a multiple of Hkv, scale finite and > 0, products within int64_t, a layout
 * that callers have, and a rule as described above; the elements of a mask are not looked at.
 * CPA_INVALID. */
enum cpa_status cpa_problem_check(const struct cpa_problem *problem, struct cpa_error *error);
enum cpa_dtype cpa_problem_lse_dtype(const struct cpa_problem *problem);

/* The keys that query token t of batch item b may see, the mask aside; start == end when empty.  Both
 * ends never descend with t.  O(log documents). */
struct cpa_range cpa_rule_row(const struct cpa_problem *problem, int64_t b, int64_t t);
/* The hull of cpa_rule_row() over all batch items and tokens first..last (both included), from the ends
 * of the first and the last row: it may be wider only where documents meet an offset that hides all of
 * such a row.  O(log documents + B). */
struct cpa_range cpa_rule_hull(const struct cpa_problem *problem, int64_t first, int64_t last);
/* What the mask adds to the score of (b, h, t, j): 0 when there is none, -inf when it hides the key. */
double cpa_mask_value(const struct cpa_problem *problem, int64_t b, int64_t h, int64_t t, int64_t j);

/* ---- spans: lists of tokens ------------------------------------------------------------------ */

/*
 * `count` runs of `width` tokens, `stride` apart; width >= 1, count >= 1, stride >= width.  A list of
 * spans is an ordered list of tokens (what a buffer holds, in buffer order) or, where it says "set", a
 * set in which no token occurs twice.  Lists made by cpa_spans_append() are in a normal form that
 * depends on their tokens alone: runs as long as can be, three or more runs of one width at one
 * distance are one span, two stay two (the halves of a zigzag shard need different keys).
 */
struct cpa_span {
	int64_t start, width, stride, count;
};
struct cpa_spans {
	struct cpa_span *at; /* in an arena */
	int n, capacity;
};

/* Adds span behind the tokens of list, and keeps the normal form. */
void cpa_spans_append(struct cpa_arena *arena, struct cpa_spans *list, struct cpa_span span);
void cpa_spans_append_range(struct cpa_arena *arena, struct cpa_spans *list, struct cpa_range range);
int64_t cpa_spans_ntokens(const struct cpa_spans *list);
/* Token number `index` of the list. */
int64_t cpa_spans_token(const struct cpa_spans *list, int64_t index);
int64_t cpa_spans_min(const struct cpa_spans *list); /* of a list that is not empty */
int64_t cpa_spans_max(const struct cpa_spans *list);
/* Tokens first, first+step, ... (n of them, by index) of list, as a new list. */
struct cpa_spans cpa_spans_pick(struct cpa_arena *arena, const struct cpa_spans *list, int64_t first,
	int64_t n, int64_t step);
/*
 * Where each span of a long list begins, so that a token is found in O(log spans).  The spans stay
 * borrowed and must not change.  cpa_spans_index() is O(spans); without memory (arena.failed) the index
 * is of an empty list.  Its pick and below are like those of the list.
 */
struct cpa_spans_index {
	struct cpa_spans list;
	int64_t *before; /* [n+1] tokens before each span; in an arena */
};
struct cpa_spans_index cpa_spans_index(struct cpa_arena *arena, const struct cpa_spans *list);
int64_t cpa_spans_index_below(const struct cpa_spans_index *ascending, int64_t token);
struct cpa_spans cpa_spans_index_pick(struct cpa_arena *arena, const struct cpa_spans_index *index,
	int64_t first, int64_t n, int64_t step);
/* Whether tokens first .. first+n-1, by index, lie in one span of one run; then they are run. */
bool cpa_spans_index_run(const struct cpa_spans_index *index, int64_t first, int64_t n,
	struct cpa_span *run);
/* Same tokens in the same order, however the spans are cut. */
bool cpa_spans_equal(const struct cpa_spans *a, const struct cpa_spans *b);
/* In an ascending list: how many tokens are < token.  O(spans). */
int64_t cpa_spans_below(const struct cpa_spans *ascending, int64_t token);
/* Sets: how many tokens are in both; O(spans x spans), runs are not expanded when strides agree. */
int64_t cpa_spans_ncommon(const struct cpa_spans *a, const struct cpa_spans *b);
int64_t cpa_spans_ncommon_range(const struct cpa_spans *a, struct cpa_range range);
bool cpa_spans_same_set(const struct cpa_spans *a, const struct cpa_spans *b);
/* The union of two disjoint sets, coalesced, by ascending start. */
struct cpa_spans cpa_spans_union(struct cpa_arena *arena, const struct cpa_spans *a,
	const struct cpa_spans *b);
/* "0-3 7 8-20:4" (a strided span is first-last:stride, with xW for a width above 1); cut with "..."
 * to fit size.  "none" when empty. */
void cpa_spans_print(const struct cpa_spans *list, char *text, size_t size);

/* ---- who owns what --------------------------------------------------------------------------- */

enum cpa_split { CPA_SPLIT_EQUAL, CPA_SPLIT_BALANCED, CPA_SPLIT_CEIL, CPA_SPLIT_GIVEN };
/* zigzag_documents: each document is cut on its own, in zigzag order. */
enum cpa_order {
	CPA_ORDER_CONTIGUOUS,
	CPA_ORDER_ZIGZAG,
	CPA_ORDER_STRIPED,
	CPA_ORDER_ZIGZAG_DOCUMENTS
};
enum cpa_heads { CPA_HEADS_BALANCED, CPA_HEADS_GROUPS, CPA_HEADS_CEIL, CPA_HEADS_GIVEN };

/*
 * Sizes of the P shards of a length S: equal (S % P == 0, else CPA_UNSUPPORTED), balanced (the first
 * S % P one longer), ceil (ceil(S/P) each until S is used up), given (P sizes that sum to S, else
 * CPA_INVALID).   sizes [P] out.
 */
enum cpa_status cpa_split_sizes(enum cpa_split rule, int64_t S, int P, const int64_t *given,
	int64_t *sizes, struct cpa_error *error);

/* A length cut into P shards.  Contiguous: in rank order.  Zigzag: shard i is the i-th front half
 * (ceil(n/2)) and the i-th back half (floor(n/2)); fronts in rank order from the start, backs in
 * reverse rank order up to the end.  Striped: token t on shard t mod P; equal and balanced only. */
struct cpa_cut {
	int64_t S;
	int P;
	enum cpa_order order;
	int64_t *offset; /* [P+1] sums of the sizes */
	int64_t *front;  /* [P+1] sums of the front halves */
};
/* Like cpa_split_sizes(), and keeps the sums in arena.  Striped with ceil or given: CPA_UNSUPPORTED. */
enum cpa_status cpa_cut_init(struct cpa_cut *cut, struct cpa_arena *arena, enum cpa_split rule,
	enum cpa_order order, int64_t S, int P, const int64_t *given, struct cpa_error *error);
/* The tokens of shards first .. first+n-1 together, ascending. */
struct cpa_spans cpa_cut_tokens(const struct cpa_cut *cut, struct cpa_arena *arena, int first, int n);
int64_t cpa_cut_size(const struct cpa_cut *cut, int shard);

/*
 * Query heads of the U ulysses ranks: rank u works on [bounds[u], bounds[u+1]).  balanced: Hq balanced
 * over U; groups: Hkv balanced over U, query heads follow; ceil: ceil(Hq/U) each; given: U counts that
 * sum to Hq, else CPA_INVALID.   bounds [U+1] out.
 */
enum cpa_status cpa_heads_cut(enum cpa_heads rule, int64_t Hq, int64_t Hkv, int U, const int64_t *given,
	int64_t *bounds, struct cpa_error *error);
/* The key heads that query heads [h.start, h.end) need, g = Hq/Hkv query heads to each. */
struct cpa_range cpa_heads_kv(struct cpa_range h, int64_t g);

const char *cpa_split_name(enum cpa_split);
const char *cpa_order_name(enum cpa_order);
const char *cpa_heads_name(enum cpa_heads);

/* ---- full attention -------------------------------------------------------------------------- */

/* A borrowed array of any layout; strides in elements, features adjacent. */
struct cpa_view {
	const void *data;
	enum cpa_dtype dtype;
	int64_t batch, token, head; /* strides */
};
/* The view of a dense [B, S, H, D] array. */
struct cpa_view cpa_view_bshd(const void *data, enum cpa_dtype dtype, int64_t S, int64_t H, int64_t D);

/* A score this far below the largest of its row weighs nothing in any arithmetic, however it is rounded
 * (derived in bound.c): a mask of -3.4e38 says nothing about the accuracy of the keys that it spares. */
#define CPA_FAR_SCORE 1e4

/* Of one row, from exact arithmetic: what the bounds of NUMERICS need.  Sums over visible keys. */
struct cpa_row {
	double lse;       /* -inf when nothing is visible */
	double max_score; /* max_j s_j */
	double max_abs;   /* max |s_j| over s_j >= max_score - CPA_FAR_SCORE */
	double a;         /* scale |q|_2 max_j |k_j|_2 */
	double k_max;     /* max_j |k_j|_2 */
	double v_max;     /* max_jd |v_jd| */
	double V;         /* sum_j p_j max_d |v_jd| */
	double V2;        /* sum_j p_j |v_j|_2^2 */
	double Vsum;      /* sum_j max_d |v_jd| */
	int64_t nvisible; /* keys; a sink is not one, but counts in the sums as a key with k = v = 0 */
	bool equal;       /* all visible scores are equal */
};

/*
 * cpa_ref_attention() computes softmax(scale Q K^T) V over visible keys in double, one row at a time.
 * It is the arbiter of every test and is written to be read.  One (batch item, key head) is prepared,
 * then any number of threads may call cpa_ref_row() on it.
 *
 * cpa_ref_head_create: q is not needed yet; k, v are read and widened: O(Skv (D + Dv)) memory.
 *   Arrays of the rule stay borrowed.
 * cpa_ref_row: query token t, query head h (of this key head).
 *   o    [Dv]   out: zero when no key is visible (with a sink, lse is the sink then)
 *   row         out
 *   work [Skv]  scratch, on return the weights p_j of the keys of cpa_rule_row() from its start on;
 *               0 for one that the mask hides
 */
struct cpa_ref_head;
enum cpa_status cpa_ref_head_create(const struct cpa_problem *problem, struct cpa_view k,
	struct cpa_view v, int64_t b, int64_t kv_head, struct cpa_ref_head **head, struct cpa_error *error);
void cpa_ref_head_destroy(struct cpa_ref_head *head);
void cpa_ref_row(const struct cpa_ref_head *head, struct cpa_view q, int64_t h, int64_t t, double *o,
	struct cpa_row *row, double *work);
/* All rows, single-threaded.  o [B,Sq,Hq,Dv] and lse [B,Sq,Hq] out, dense double. */
enum cpa_status cpa_ref_attention(const struct cpa_problem *problem, struct cpa_view q, struct cpa_view k,
	struct cpa_view v, double *o, double *lse, struct cpa_error *error);

/*
 * Merges partial b into partial a of the same row: m = max, weights exp(lse - m) over their sum,
 * lse = m + log of the sum.  (0, -inf) is the identity on both sides.   o_a, o_b [Dv]
 */
void cpa_ref_merge(int64_t Dv, double *o_a, double *lse_a, const double *o_b, double lse_b);

/* Refuses inputs whose scores may leave fp32: scale |q| |k| > 3e38 for some pair, by norms (fp64
 * problems: 1e308), or infinite with the largest bias; and NaN or infinite elements (a bias may be
 * -inf).  CPA_INVALID. */
enum cpa_status cpa_ref_check_inputs(const struct cpa_problem *problem, struct cpa_view q,
	struct cpa_view k, struct cpa_view v, struct cpa_error *error);

/* ---- around attention ------------------------------------------------------------------------ */

/*
 * Classifier-free guidance, element by element in double:
 *   two branches    neg + s (pos - neg)
 *   three branches  neg + s2 (mid - neg) + s (pos - mid)
 * (Ho and Salimans, arXiv 2207.12598, and Brooks et al., arXiv 2211.09800, eq. 3: mid has the image and
 * not the text.)
 *   branches [nbranches][n]  in: negative, (middle,) positive
 *   out      [n]             out, with one more rounding to its type; it may be one of the branches where
 *                            from == to
 */
struct cpa_guidance {
	int nbranches; /* 2 or 3 */
	double s, s2;  /* s2 only with three */
};
void cpa_ref_guidance(const struct cpa_guidance *guidance, int64_t n, enum cpa_dtype from,
	const void *const *branches, enum cpa_dtype to, void *out);

/*
 * Rotary embedding: pair i of D/2 is turned by position base^(-2i/D), counterclockwise (Su et al.,
 * arXiv 2104.09864, section 3.4.2).  half pairs (x_i, x_(i+D/2)), interleaved (x_2i, x_2i+1).
 * Positions are global and need not be consecutive.  Angles are products in double: exact enough for
 * any position in use, about |position| 2^-53 off.
 */
enum cpa_rope_pairs { CPA_ROPE_HALF, CPA_ROPE_INTERLEAVED };
struct cpa_rope {
	int64_t D;   /* even */
	double base; /* finite, > 0 */
	enum cpa_rope_pairs pairs;
};
/* Rows that stand at one position, such as the heads of a token.  x [nrows, D] in/out, one rounding. */
void cpa_ref_rope(const struct cpa_rope *rope, int64_t position, int64_t nrows, enum cpa_dtype dtype,
	void *x);
/* Token t of every batch item stands at positions[t].  x [B, S, H, D] in/out */
void cpa_ref_rope_array(const struct cpa_rope *rope, const int64_t *positions, int64_t B, int64_t S,
	int64_t H, enum cpa_dtype dtype, void *x);

/* ---- bounds (NUMERICS section 2) ------------------------------------------------------------- */

enum cpa_partials { CPA_PARTIALS_FP32, CPA_PARTIALS_BLOCK, CPA_PARTIALS_ALL };
const char *cpa_partials_name(enum cpa_partials);

/* What a device declares about its arithmetic. */
struct cpa_arithmetic {
	double u;                /* unit roundoff of scores, sums, lse */
	double c_exp;            /* error of exp, in u */
	double chain, chain_key; /* longest chain of additions over S keys: min(S, chain + chain_key S) */
	bool rounds_p;           /* weights are rounded to the dtype before the product with V (16 bit) */
};

/* One run whose rows are to be judged. */
struct cpa_bound_run {
	const struct cpa_problem *problem;
	struct cpa_arithmetic arithmetic;
	enum cpa_partials partials;
	enum cpa_dtype partial_dtype; /* what o and lse partials are kept in: fp32 or fp64 */
	int R;                        /* partials merged: ring degree */
};
struct cpa_bound {
	double o_abs;    /* |o - o*| <= o_abs + o_rel |o*|, each element */
	double o_rel;
	double lse;      /* |lse - lse*| <= lse */
	double soft_row; /* F_row of the soft rule */
	double soft_lse; /* M + X + u_a lambda + u_L |lse*| */
};
/* o_norm = |o*|_2 of the row.  All zero for a row that sees no key; with a sink, only those of o.  The
 * sink counts as one more of the partials merged, beside R.  Includes the reference's own
 * error in double, and the factor 1.01 for second order. */
void cpa_bound_row(const struct cpa_bound_run *run, const struct cpa_row *row, double o_norm,
	struct cpa_bound *bound);

/*
 * How far the combination of branches may be from that of the exact ones, both by
 * cpa_ref_guidance(), the former rounded to `to`.  One element:
 *   exact [nbranches]  in: of the reference
 *   bound [nbranches]  in: how far each branch may be from it, o_abs + o_rel |exact|
 */
double cpa_bound_guidance(const struct cpa_guidance *guidance, enum cpa_dtype to,
	const double *exact, const double *bound);

/* ---- inputs anyone can make alone ------------------------------------------------------------ */

enum cpa_fill { CPA_FILL_NORMAL, CPA_FILL_COUNT, CPA_FILL_IDENTITY, CPA_FILL_DIGITS, CPA_FILL_EXTREME };
/*
 * The value of element (b, t, h, d) of tensor 'q', 'k' or 'v': a pure function of its arguments, so
 * that any rank makes its shard alone.  normal: unit normal.  count: q normal, k 0, v one-hot(t mod Dv)
 * identity: v one-hot(t mod Dv), q and k normal.  digits: v = digits of (b, t, h) scaled into [0, 1).
 * extreme: normal times 1e4 on odd heads, tiny subnormals on others, equal rows now and then.
 */
double cpa_fill_value(enum cpa_fill fill, const struct cpa_problem *problem, uint64_t seed, char tensor,
	int64_t b, int64_t t, int64_t h, int64_t d);
const char *cpa_fill_name(enum cpa_fill);

#endif
