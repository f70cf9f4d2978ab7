/*
 * diagnose.h - which fault explains a wrong run.
 *
 * A fault class is a hypothesis: a table entry that predicts, from the recorded q, k and v, what
 * o and lse a run with that fault returns, for each value of what is not known of it (which rank,
 * hop, block, head, base, pad count).  Rows of the ranks are sampled, worst first; a hypothesis
 * stands while each row that it predicts is the row that was observed, within the noise of the
 * dtype. Private to the command diagnose and its tables, diagnose_*.c.
 */
#ifndef CPA_DIAGNOSE_H
#define CPA_DIAGNOSE_H

#include "harness/check.h"

/* ---- what was observed -----------------------------------------------------------------------
 */

/* One (batch item, token, head) that a rank returned. */
struct cpa_suspect_row {
	int rank;
	int64_t b, t, h;
	double *o; /* [Dv] observed; NULL: not recorded */
	double lse; /* observed; NaN where it is not recorded */
	bool has_lse;
	const double *want; /* [Dv] of full attention */
	const struct cpa_row *truth;
	struct cpa_bound bound;
	bool wrong; /* o or lse is beyond its bound */
	double ratio; /* the larger error over bound */
	struct cpa_range keys; /* that the row sees by interval */
	struct cpa_bound open; /* if the row saw every key; made when first asked for */
	bool has_open;
	double *scores; /* [Skv] scale q.k of its key head, no mask; made when first asked for */
};

struct cpa_suspect {
	const struct cpa_checked *checked;
	const struct cpa_problem *problem;
	int64_t N, R, U; /* of the recorded config, else 1 x world x 1 */
	int W;
	/* cp rank (ring x ulysses) that held a token, and its index there; -1: every rank
	 * (replicated), or none in the file. */
	int *query_rank, *key_rank; /* [Sq] [Skv] */
	int64_t *query_index, *key_index;
	int64_t *nqueries, *nkeys; /* [R U] tokens held, padding not counted */
	struct cpa_suspect_row *rows; /* [nrows] worst first, then right ones */
	int nrows, nwrong;
	struct cpa_bound_run run; /* what bounds are made by */
	bool has_lse;
	/* Keys of each block: of replicated keys block_keys[0 .. block_start[0]), of ring rank r
	 * those from block_start[r] to block_start[r+1].   [R + 1] [Skv] */
	int64_t *block_start, *block_keys;
	struct cpa_places *places; /* the same for other cuts: diagnose_take.h */
	double *work; /* [Skv + 4 Dv] scratch */
	/* Query tokens of ring rank r: query_list[query_start[r] ..], ascending.  [R + 1] [Sq] */
	int64_t *query_start, *query_list;
	int64_t *key_place; /* [Skv] of each key in its block */
	/* Of the values of unknowns that are tried now: elements predicted by rounding, and those of
	 * them that the run rounded the other way. */
	int64_t nrounded, notherwise;
	double *smooth; /* k less the mean of each block; NULL until asked for */
	struct cpa_turned *turned; /* of diagnose_positions.c, NULL until asked for */
	struct cpa_own *own; /* of diagnose_inputs.c, likewise */
	const struct cpa_planted *planted; /* the faulty run that is compared now, or NULL */
	bool too_large; /* for faulty runs: recipes only */
	double *spare; /* [2 D + Dv] likewise */
	struct cpa_recording *recording;
	int call; /* number of the call */
	struct cpa_arena arena;
};
/* Fini in any case. */
enum cpa_status cpa_suspect_init(struct cpa_suspect *s, const struct cpa_checked *checked,
	struct cpa_recording *recording, int i, const struct cpa_check_rules *rules,
	struct cpa_error *error);
void cpa_suspect_fini(struct cpa_suspect *s);

/* scale q.k of query (b, t, h) and key (b_k, j) of key head kv: no mask, no bias. */
double cpa_suspect_score(const struct cpa_suspect *s, int64_t b, int64_t t, int64_t h,
	int64_t b_k, int64_t j, int64_t kv);
/* The row's own scores, [Skv]. */
const double *cpa_suspect_scores(struct cpa_suspect *s, struct cpa_suspect_row *row);
/* Bounds of the row if no rule hid a key from it: what a row that a fault lets see other keys is
 * judged by, as its own may have seen one key, or none. */
const struct cpa_bound *cpa_suspect_open_bound(
	const struct cpa_suspect *s, struct cpa_suspect_row *row);
/* The score with everything that rule says: -inf where key j is not seen by query (b, t, h). */
double cpa_suspect_masked(const struct cpa_suspect *s, const struct cpa_rule *rule, double score,
	int64_t b, int64_t t, int64_t h, int64_t j);
/* Value row j of batch item b and key head kv.   v [Dv] out */
void cpa_suspect_value(const struct cpa_suspect *s, int64_t b, int64_t j, int64_t kv, double *v);
/* Ring rank of the block that key j is in, -1 for replicated keys (and everybody's own copy). */
int cpa_suspect_block(const struct cpa_suspect *s, int64_t j);
/* Where key j lies in its block, as if blocks were stored in ascending order. */
int64_t cpa_suspect_place(const struct cpa_suspect *s, int64_t j);
/* Ring rank that works on the row; a replicated query counts as its holder's. */
int cpa_suspect_ring(const struct cpa_suspect *s, const struct cpa_suspect_row *row);
/* World rank that works on the row: ring rank of the token, ulysses rank of the head (heads being
 * cut evenly, the first ranks taking one more). */
int cpa_suspect_worker(const struct cpa_suspect *s, const struct cpa_suspect_row *row);
/* Full attention on another row, or by another rule (NULL: the call's). */
void cpa_suspect_attend(struct cpa_suspect *s, const struct cpa_rule *rule, int64_t b, int64_t t,
	int64_t h, int64_t kv, double *o, double *lse);

/* ---- what a fault does ------------------------------------------------------------------------
 */

enum { CPA_NUNKNOWNS = 4 };

/* One row under one recipe. */
struct cpa_recipe_at {
	struct cpa_suspect *s;
	struct cpa_suspect_row *row;
	int64_t unknown[CPA_NUNKNOWNS];
	int ring; /* ring rank that works on the row; -1: not known (replicated query) */
	int block; /* ring rank whose block is attended now; -1: replicated keys */
	int hop; /* of that block, by direction: 0 the own one */
	int direction; /* +1: hop i works on block ring - i; -1: on ring + i */
	double constant; /* free for what a recipe was fitted to */
	double last_lse; /* of the partial before this one; NaN: there is none */
	int njoined; /* partials before this one */
};
/* The block that hop number `hop` works on. */
int cpa_recipe_block(const struct cpa_recipe_at *at, int hop);

enum cpa_recipe_merge {
	CPA_RECIPE_SOFTMAX, /* right */
	CPA_RECIPE_OVERWRITE, /* the last block visited stays */
	CPA_RECIPE_MEAN /* the mean of all blocks that saw a key */
};

/*
 * How a row comes about: for each block in hop order the keys of the block are scored, weighed
 * and averaged to a partial, and partials are merged.  A NULL member does the right thing.
 */
struct cpa_recipe {
	/* Score of key j for the row, -inf: not seen.  Right: cpa_suspect_masked(rule, own
	 * score). */
	double (*score)(const struct cpa_recipe_at *at, int64_t j);
	/* Which value row goes with key j (of the row's key head).  Right: j.  -1: zeros. */
	int64_t (*value)(const struct cpa_recipe_at *at, int64_t j);
	/* How many times key j counts.  Right: 1. */
	double (*times)(const struct cpa_recipe_at *at, int64_t j);
	/* Further keys of score 0 and value 0 in this block: pads. */
	double (*pads)(const struct cpa_recipe_at *at);
	/* The lse that the merge reads, given the block's own (o may be changed too); -inf for a
	 * block that saw no key.  Right: as it is. */
	double (*partial)(const struct cpa_recipe_at *at, double lse, double *o);
	/* Once a partial has joined: what becomes of the sum so far.  Right: nothing. */
	void (*merged)(const struct cpa_recipe_at *at, double *lse, double *o);
	/* Which ring rank works on the row.  Right: cpa_suspect_ring(). */
	int (*ring)(const struct cpa_recipe_at *at);
	/* Whether the block is passed over for this row.  Right: it makes no difference. */
	bool (*passes)(const struct cpa_recipe_at *at);
	/* The next partial joins what there is, in place of `merge`; of the first, at->njoined is
	 * 0, and there are o = 0 and lse = -inf. */
	void (*join)(const struct cpa_recipe_at *at, double *o, double *lse, const double *o_b,
		double lse_b);
	bool no_sink; /* the sink of the problem never joins */
	/* Before the first block.  Right: o = 0, lse = -inf. */
	double start_lse; /* used when has_start */
	bool has_start;
	enum cpa_recipe_merge merge;
};
/* o [Dv] and lse out.  The sink of the problem joins once, at the end. */
void cpa_recipe_run(
	const struct cpa_recipe *recipe, struct cpa_recipe_at *at, double *o, double *lse);

/* ---- hypotheses
 * -------------------------------------------------------------------------------- */

struct cpa_finding {
	const char *class, *name; /* "A01", one line */
	const char *probe; /* of the hypothesis */
	int64_t unknown[CPA_NUNKNOWNS];
	int rank, hop, block, head; /* where it is, as far as the class says; -1: not said */
	double explained; /* share of the squared error that is gone, of o (of lse where o was
			     right) */
	double residual; /* largest |observed - predicted| over the bound */
	int nrows; /* rows that it was compared on */
	bool planted; /* predicted by a faulty run, not by a recipe */
	char text[200]; /* "block 1 is merged by its base-2 lse" */
};

/* ", on rank 2 alone" for an unknown that is 0 for all ranks, else 1 + the rank. */
void cpa_finding_say_rank(struct cpa_finding *finding, int64_t unknown);

struct cpa_hypothesis {
	const char *class; /* of the fault dictionary */
	const char *name; /* what it is, a sentence without a full stop */
	const char *probe; /* what input tells it from those it ties with */
	/* Whether it can be at all: R > 1, a window, ...  NULL: always. */
	bool (*applies)(const struct cpa_suspect *s);
	/* How many values each unknown has, 1 for those that are not used.   n [CPA_NUNKNOWNS]
	 * out, all 1 */
	void (*unknowns)(const struct cpa_suspect *s, int64_t *n);
	/* What the row becomes.  False: this fault does not touch the row. */
	bool (*predict)(struct cpa_suspect *s, struct cpa_suspect_row *row,
		const int64_t *unknown, double *o, double *lse);
	/* rank, hop, block, head and text of a finding whose unknowns are set; NULL: nothing to
	 * add. */
	void (*describe)(const struct cpa_suspect *s, struct cpa_finding *finding);
	bool lse_only; /* o is right: compared by lse alone */
	bool performance; /* a finding, never a verdict */
};

/* Each table ends with a class of NULL. */
extern const struct cpa_hypothesis cpa_hypotheses_merging[]; /* A */
extern const struct cpa_hypothesis cpa_hypotheses_partials[]; /* A03, A08, A11, A12 */
extern const struct cpa_hypothesis cpa_hypotheses_empty[]; /* A05, A06, B08 */
extern const struct cpa_hypothesis cpa_hypotheses_overflow[]; /* A04 */
extern const struct cpa_hypothesis cpa_hypotheses_lengths[]; /* B01 to B04, B08 */
extern const struct cpa_hypothesis cpa_hypotheses_chunks[]; /* B05, B06 */
extern const struct cpa_hypothesis cpa_hypotheses_order[]; /* B07, C01 to C08 */
extern const struct cpa_hypothesis cpa_hypotheses_masks[]; /* C08 to C10 */
extern const struct cpa_hypothesis cpa_hypotheses_readings[]; /* C10 to C12 */
extern const struct cpa_hypothesis cpa_hypotheses_heads[]; /* D01, D05 to D08 */
extern const struct cpa_hypothesis cpa_hypotheses_layout[]; /* other D */
extern const struct cpa_hypothesis cpa_hypotheses_groups[]; /* E */
extern const struct cpa_hypothesis cpa_hypotheses_positions[]; /* E06 */
extern const struct cpa_hypothesis cpa_hypotheses_inputs[]; /* E08 */
extern const struct cpa_hypothesis cpa_hypotheses_buffers[]; /* F */
extern const struct cpa_hypothesis cpa_hypotheses_branches[]; /* H */

/*
 * All hypotheses on the rows of s.  Findings that stand, best first; those that no row tells
 * apart come together, as ties.  Returns how many of the first are ties for the best (0: none
 * stands). findings  a list in s->arena, *n of them
 */
enum cpa_status cpa_diagnose(struct cpa_suspect *s, struct cpa_finding **findings, int *n,
	int *nties, struct cpa_error *error);

#endif
