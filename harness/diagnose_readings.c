/*
 * diagnose_readings.c - C10 to C12: masks that are read at the wrong place or as something else,
 * and the scale.
 */
#include <math.h>
#include <stdio.h>

#include "harness/diagnose_take.h"

static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

static bool has_mask(const struct cpa_suspect *s)
{
	return s->problem->rule.mask.kind != CPA_MASK_NONE;
}

/* ---- C10: a mask that is read at the wrong place ---- */

enum {
	OWN_SHARD,
	LOCAL_KEYS,
	LOCAL_QUERIES,
	FIRST_SHARD,
	INVERTED,
	AS_BIAS,
	SCALED_BIAS,
	UNSCALED_BIAS,
	NREADINGS
};
static const char *const reading_names[] = {
	"the key mask of the own shard is used for every block",
	"keys are looked up in the mask by their place in the block",
	"queries are looked up in the mask by their place in the shard",
	"keys and queries are looked up in the mask by their local places",
	"the boolean mask is inverted",
	"the boolean mask is added to the scores as 0 and 1",
	"the bias is multiplied by the scale",
	"the bias is divided by the scale",
};

static bool is_bool_set(const struct cpa_take *take, const struct cpa_taken *x)
{
	const struct cpa_mask *mask = &take->s->problem->rule.mask;

	return ((const uint8_t *)mask->data)[x->mask_b * mask->batch + x->mask_h * mask->head +
		x->mask_t * mask->query + x->mask_j * mask->key];
}

static double bias(const struct cpa_take *take, const struct cpa_taken *x)
{
	const struct cpa_mask *mask = &take->s->problem->rule.mask;

	return cpa_load(mask->dtype, mask->data,
		x->mask_b * mask->batch + x->mask_h * mask->head + x->mask_t * mask->query +
			x->mask_j * mask->key);
}

/* False: the key is hidden. */
static bool reread(const struct cpa_take *take, struct cpa_taken *x)
{
	double scale = take->s->problem->scale;

	switch (take->unknown[0]) {
	case INVERTED:
		return !is_bool_set(take, x);
	case AS_BIAS:
		x->add = is_bool_set(take, x) ? 1.0 : 0.0;
		return true;
	case SCALED_BIAS:
		x->add = bias(take, x) * scale;
		return true;
	default:
		x->add = bias(take, x) / scale;
		return true;
	}
}

static bool take_reread(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_places_of *q = cpa_places(take->s, CPA_SIDE_Q, take->unknown[1]),
				   *kv = cpa_places(take->s, CPA_SIDE_KV, take->unknown[1]);
	int own = q->shard[take->t], block = kv->shard[i];

	if (take->unknown[0] >= INVERTED) {
		x->mask_j = -1;
		struct cpa_taken at = *x;
		at.mask_j = i;
		if (!reread(take, &at))
			return false;
		x->add = at.add;
		return true;
	}
	if (block < 0 || own < 0)
		return true;
	if (take->unknown[0] == OWN_SHARD) {
		x->mask_j = cpa_places_token(kv, own, kv->index[i]);
		return x->mask_j >= 0;
	}
	if (take->unknown[0] != LOCAL_QUERIES)
		x->mask_j = kv->index[i];
	if (take->unknown[0] != LOCAL_KEYS)
		x->mask_t = q->index[take->t];
	return true;
}

/* unknown: how, level */
static bool predict_reread(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	bool is_bool = take.rule.mask.kind == CPA_MASK_BOOL;

	if (unknown[0] >= INVERTED && (unknown[1] > 0 || is_bool != (unknown[0] <= AS_BIAS)))
		return false;
	take.key = take_reread;
	return cpa_take_run(&take, o, lse);
}

static void reread_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NREADINGS;
	n[1] = s->U > 1 && s->R > 1 ? CPA_LEVEL_OUTER : s->R > 1 ? 1 : CPA_LEVEL_OUTER;
}

static void describe_reread(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s", reading_names[f->unknown[0]]);
}

/* Key lengths, each block by its own places. */
static bool take_local_length(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	const struct cpa_places_of *kv = cpa_places(take->s, CPA_SIDE_KV, CPA_LEVEL_RING);
	const int64_t *lengths = take->s->problem->rule.key_lengths;

	(void)x;
	return kv->index[i] < lengths[take->b];
}

static bool predict_local_lengths(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	take.rule.key_lengths = NULL;
	take.key = take_local_length;
	return cpa_take_run(&take, o, lse);
}

static bool has_lengths_ring(const struct cpa_suspect *s)
{
	return has_ring(s) && s->problem->rule.key_lengths;
}

/* ---- C11: heads and batch items of the mask ---- */

enum { LOCAL_HEAD, FIRST_HEAD, FIRST_BATCH, NHEADINGS };
static const char *const heading_names[] = {
	"each ulysses rank begins at head 0 of the mask",
	"every head is masked by head 0 of the mask",
	"every batch item is masked by batch item 0 of the mask",
};

static bool take_heading(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	int64_t bounds[2] = {0};

	(void)i;
	if (take->unknown[0] == LOCAL_HEAD) {
		cpa_take_heads(take->s, take->h, bounds);
		x->mask_h = take->h - bounds[0];
	} else if (take->unknown[0] == FIRST_HEAD)
		x->mask_h = 0;
	else
		x->mask_b = 0;
	return true;
}

static bool predict_heading(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	int64_t stride = unknown[0] == FIRST_BATCH ? take.rule.mask.batch : take.rule.mask.head;

	if (stride == 0)
		return false;
	take.key = take_heading;
	return cpa_take_run(&take, o, lse);
}

static void heading_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = NHEADINGS;
}

static void describe_heading(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s", heading_names[f->unknown[0]]);
}

/* ---- C12: the scale ---- */

enum {
	DEFAULT_SCALE,
	NO_SCALE,
	TWICE,
	DEFAULT_TWICE,
	TIMES_DEFAULT,
	LOG2E,
	LN2,
	INVERSE,
	PADDED,
	NSCALES = PADDED + 6
};

static double other_scale(const struct cpa_problem *p, int64_t which)
{
	static const double padded[] = {16, 32, 64, 96, 128, 256};
	double usual = 1.0 / sqrt((double)p->D);

	switch (which) {
	case DEFAULT_SCALE:
		return usual;
	case NO_SCALE:
		return 1.0;
	case TWICE:
		return p->scale * p->scale;
	case DEFAULT_TWICE:
		return usual * usual;
	case TIMES_DEFAULT:
		return usual * p->scale;
	case LOG2E:
		return p->scale * 1.4426950408889634;
	case LN2:
		return p->scale * 0.69314718055994531;
	case INVERSE:
		return 1.0 / p->scale;
	default:
		return 1.0 / sqrt(padded[which - PADDED]);
	}
}

static bool predict_scale(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);
	double scale = other_scale(s->problem, unknown[0]);

	if (fabs(scale - s->problem->scale) <= 1e-9 * scale)
		return false;
	take.factor = scale / s->problem->scale;
	return cpa_take_run(&take, o, lse);
}

static void scale_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = NSCALES;
}

static void describe_scale(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const names[] = {" (the default of D)", "", ": it is applied twice",
		" (the default, twice)", ": the default is applied too", ": log2 e too much",
		": log2 e too little", ": its inverse"};
	double scale = other_scale(s->problem, f->unknown[0]);

	snprintf(f->text, sizeof f->text, "the scale is %.6g in place of %.6g%s", scale,
		s->problem->scale,
		f->unknown[0] < PADDED ? names[f->unknown[0]] : " (of a padded head)");
}

#define READING "V = identity: which keys have weight"

const struct cpa_hypothesis cpa_hypotheses_readings[] = {
	{"C10", "the mask is read at the wrong place",
		"a mask that hides other keys in each block", has_mask, reread_unknowns,
		predict_reread, describe_reread, false, false},
	{"C10", "key lengths are cut by places in the block", READING, has_lengths_ring, NULL,
		predict_local_lengths, NULL, false, false},
	{"C11", "the mask is not cut along heads or batch items",
		"a mask that differs from head to head", has_mask, heading_unknowns,
		predict_heading, describe_heading, false, false},
	{"C12", "the scale is another", "a scale that is not the default", NULL, scale_unknowns,
		predict_scale, describe_scale, false, false},
	{0},
};
