/*
 * diagnose_take.h - rows that come about from other keys, places or rules than they should.
 *
 * A row is a softmax over keys that were taken: each says where its K and V are from, and as
 * which key, for which row and by which rule it is masked.  Private to diagnose_*.c.
 */
#ifndef CPA_DIAGNOSE_TAKE_H
#define CPA_DIAGNOSE_TAKE_H

#include "harness/diagnose.h"

/* ---- where tokens lie -----------------------------------------------------------------------
 */

enum cpa_side_name { CPA_SIDE_Q, CPA_SIDE_KV };
/* What is looked at as one shard. */
enum cpa_level {
	CPA_LEVEL_RING, /* what a ring rank works on: the shards of its ulysses group together */
	CPA_LEVEL_RANK, /* what one rank holds */
	CPA_LEVEL_OUTER, /* like RING, of a mesh whose outer axis is ulysses: ranks r, R + r, ...
			  */
	CPA_LEVEL_ALL, /* the whole sequence */
	CPA_NLEVELS
};
struct cpa_places_of {
	int n; /* shards */
	int *shard; /* [S] of a token, -1: replicated */
	int64_t *index; /* [S] of a token in its shard, tokens ascending */
	int64_t *start; /* [n + 1] of a shard in tokens */
	int64_t *tokens; /* [S] shard by shard; replicated ones are left out */
	int64_t longest; /* shard */
};
struct cpa_places {
	struct cpa_places_of at[2][CPA_NLEVELS];
};
/* From s->query_rank and s->key_rank; in s->arena. */
void cpa_places_init(struct cpa_suspect *s);

static inline const struct cpa_places_of *cpa_places(
	const struct cpa_suspect *s, enum cpa_side_name side, int64_t level)
{
	return &s->places->at[side][level];
}
static inline int64_t cpa_places_size(const struct cpa_places_of *p, int shard)
{
	return p->start[shard + 1] - p->start[shard];
}
/* Token `index` of a shard, -1: the shard ends before it. */
static inline int64_t cpa_places_token(const struct cpa_places_of *p, int shard, int64_t index)
{
	return index < cpa_places_size(p, shard) ? p->tokens[p->start[shard] + index] : -1;
}
/* How many tokens of the shards come before it. */
static inline int64_t cpa_places_order(const struct cpa_places_of *p, int64_t token)
{
	return p->start[p->shard[token]] + p->index[token];
}
/* The tokens one behind the other, each shard filled up to the longest: what lies at x, -1: a
 * pad. */
int64_t cpa_places_padded(const struct cpa_places_of *p, int64_t x);
/* Tokens do not lie in shards of consecutive ones, but each n-th on the same. */
bool cpa_places_striped(const struct cpa_suspect *s);

/* ---- rows that were made of other keys --------------------------------------------------------
 */

/* One key, as it was taken. */
struct cpa_taken {
	int64_t b, j, kv; /* of K; j -1: zeros */
	int64_t v_b, v, v_kv; /* of V; v -1: zeros */
	const struct cpa_rule *rule;
	int64_t t, id; /* as which query and key intervals are asked; id -1: visible */
	int64_t mask_b, mask_h, mask_t, mask_j; /* of the dense mask; mask_j -1: visible */
	double factor, add; /* score * factor + add, before the mask */
};

struct cpa_take {
	struct cpa_suspect *s;
	const struct cpa_suspect_row *row;
	int64_t unknown[CPA_NUNKNOWNS];
	int64_t b, t, h; /* whose q it is; the row's own */
	int64_t nkeys; /* Skv */
	struct cpa_rule rule; /* the call's, to be changed */
	double factor; /* on all scores; 1 */
	/* Changes the right x; false: key i is not there.  NULL: as it is. */
	bool (*key)(const struct cpa_take *take, int64_t i, struct cpa_taken *x);
};
struct cpa_take cpa_take_right(
	struct cpa_suspect *s, struct cpa_suspect_row *row, const int64_t *unknown);
/* o [Dv] and lse out.  The sink joins once, at the end.  True. */
bool cpa_take_run(const struct cpa_take *take, double *o, double *lse);
/* What row (b, t, h) should have been.  False: that is the row itself. */
bool cpa_take_other(struct cpa_suspect *s, struct cpa_suspect_row *row, int64_t b, int64_t t,
	int64_t h, double *o, double *lse);
/* All zeros; lse is not known then, and taken as observed.  True. */
bool cpa_take_nothing(
	const struct cpa_suspect *s, const struct cpa_suspect_row *row, double *o, double *lse);

/* Which ulysses rank works on query head h when heads are cut balanced, and its heads.
 * bounds [2] out */
int cpa_take_heads(const struct cpa_suspect *s, int64_t h, int64_t *bounds);
/* Key token j is in the block that the row's own ring rank holds (replicated keys are). */
bool cpa_take_own(const struct cpa_suspect *s, int64_t t, int64_t j);

#endif
