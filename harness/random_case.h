/*
 * random_case.h - one made-up problem and one configuration, as numbers that can be drawn,
 * printed as options and made smaller.  Private to the random sweep.
 */
#ifndef CPA_RANDOM_CASE_H
#define CPA_RANDOM_CASE_H

#include "harness/options.h"
#include "harness/text.h"

enum {
	CPA_CASE_BATCHES = 4,
	CPA_CASE_DOCUMENTS = 12,
	CPA_CASE_SEGMENTS = 4,
	CPA_CASE_RANKS = 64,
	CPA_CASE_TEXT = 1024
};
enum cpa_case_sink { CPA_CASE_NO_SINK, CPA_CASE_ONE_SINK, CPA_CASE_RANDOM_SINK };

struct cpa_case_segments {
	int n; /* 0: none */
	int64_t length[CPA_CASE_SEGMENTS];
	bool replicated[CPA_CASE_SEGMENTS];
};

struct cpa_case {
	/* The problem. */
	int64_t B, Sq, Skv, Hkv, g, D, Dv; /* g query heads to a key head */
	enum cpa_dtype dtype;
	double scale; /* 0: the default */
	bool causal, window, has_key_lengths;
	int64_t offset, left, right;
	int64_t key_lengths[CPA_CASE_BATCHES];
	int64_t documents[CPA_CASE_DOCUMENTS + 1];
	int ndocuments; /* 0: none */
	struct cpa_case_segments segments, segments_kv; /* of keys: none where Sq = Skv */
	enum cpa_mask_kind mask;
	unsigned mask_shape; /* bits 8 4 2 1: has its own batches, heads, queries, keys */
	uint64_t mask_seed;
	enum cpa_case_sink sink;
	bool lse;
	enum cpa_layout layout; /* fused: one split for queries and keys */
	struct cpa_guidance guidance; /* nbranches 0: none */
	/* How it is filled. */
	enum cpa_fill fill;
	uint64_t seed;
	/* The configuration; given sizes and counts follow from `seed`. */
	enum cpa_variant variant;
	int64_t N, R, U;
	enum cpa_rotate rotate;
	enum cpa_split split, split_kv;
	enum cpa_order order;
	enum cpa_heads heads;
	int direction;
	enum cpa_partials partials;
	enum cpa_mesh mesh;
	uint64_t interleaving_seed;
};

/* A problem whose lengths are near multiples of P, without a configuration. */
void cpa_case_draw_problem(struct cpa_case *it, int P, uint64_t *state);
/* What the options leave open of a configuration of this variant and mesh. */
void cpa_case_draw_config(struct cpa_case *it, const struct cpa_options *options,
	const struct cpa_config *config, uint64_t *state);

/* The value of --problem.  text [CPA_CASE_TEXT] out */
void cpa_case_print(const struct cpa_case *it, char *text);

/* The configuration with what it points to. */
struct cpa_case_config {
	struct cpa_config config;
	int64_t sizes[CPA_CASE_SEGMENTS * CPA_CASE_RANKS]; /* R U for each split segment */
	int64_t sizes_kv[CPA_CASE_SEGMENTS * CPA_CASE_RANKS];
	int64_t head_counts[CPA_CASE_RANKS];
};
/* wide: partials are fp64 whatever the dtype. */
void cpa_case_config(const struct cpa_case *it, const struct cpa_problem *problem, bool wide,
	struct cpa_case_config *made);

/* Makes the case smaller in way number i, 0 <= i < cpa_case_nways(); false:
 * it cannot be, and is left alone. */
int cpa_case_nways(void);
bool cpa_case_shrink(struct cpa_case *it, int i, const struct cpa_options *options);

/* ---- segments ---- */

/* One to four, split and replicated, of S tokens together. */
void cpa_case_segments_draw(
	struct cpa_case_segments *list, int64_t S, int P, uint64_t *state);
/* Appends ",segments=..." where key is that much. */
void cpa_case_segments_print(
	struct cpa_text *text, const char *key, const struct cpa_case_segments *list);
/* The number of split segments of queries or keys. */
int cpa_case_nsplit(const struct cpa_case *it, bool keys);
/* Takes from the longest until no more than S tokens are left. */
void cpa_case_segments_trim(struct cpa_case_segments *list, int64_t S);
/* As the functions above, of these ways alone; lengths follow. */
int cpa_case_segments_nways(void);
bool cpa_case_segments_shrink(struct cpa_case *it, int i);

#endif
