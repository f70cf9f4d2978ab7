/*
 * diagnose_heads.c - D01, D05 to D08: heads that come from, or go to, another place.
 */
#include <math.h>
#include <stdio.h>

#include "harness/diagnose_take.h"

static bool has_heads(const struct cpa_suspect *s)
{
	return s->problem->Hq > 1;
}

static bool has_groups(const struct cpa_suspect *s)
{
	return s->problem->Hkv > 1;
}

/* ---- D01, D05: heads of o ---- */

enum { FOLDED, UNFOLDED, REVERSED, REVERSED_HERE, ROTATED };

/* The n-th divisor of H that is neither 1 nor H, 0: there is none. */
static int64_t divisor(int64_t H, int64_t n)
{
	for (int64_t d = 2; d < H; d++)
		if (H % d == 0 && n-- == 0)
			return d;
	return 0;
}

static int64_t ndivisors(int64_t H)
{
	int64_t n = 0;

	while (divisor(H, n))
		n++;
	return n;
}

/* Which head stands in place of h. */
static int64_t other_head(const struct cpa_suspect *s, int64_t kind, int64_t arg, int64_t h)
{
	int64_t H = s->problem->Hq, bounds[2], n;

	switch (kind) {
	case FOLDED:
		n = divisor(H, arg);
		return n ? h % n * (H / n) + h / n : h;
	case REVERSED:
		return H - 1 - h;
	case REVERSED_HERE:
		cpa_take_heads(s, h, bounds);
		return bounds[0] + bounds[1] - 1 - h;
	default:
		return (h + arg) % H;
	}
}

/* o alone, or lse with it */
static bool predict_head(struct cpa_suspect *s, struct cpa_suspect_row *row, int64_t from,
	bool o_only, double *o, double *lse)
{
	if (!cpa_take_other(s, row, row->b, row->t, from, o, lse))
		return false;
	if (o_only)
		*lse = row->truth->lse;
	return true;
}

/* unknown: o alone or lse too; folds, and then the ways to reverse */
static bool predict_folded(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t n = ndivisors(s->problem->Hq);
	int64_t kind = unknown[1] < n ? FOLDED : unknown[1] == n ? REVERSED : REVERSED_HERE;

	return predict_head(s, row, other_head(s, kind, unknown[1], row->h), unknown[0], o, lse);
}

static void folded_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = 2;
	n[1] = ndivisors(s->problem->Hq) + (s->U > 1 ? 2 : 1);
}

static void describe_folded(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int64_t n = ndivisors(s->problem->Hq), d = divisor(s->problem->Hq, f->unknown[1]);

	if (f->unknown[1] < n)
		snprintf(f->text, sizeof f->text,
			"heads come back as if [%lld, %lld] had been folded as [%lld, %lld]",
			(long long)(s->problem->Hq / d), (long long)d, (long long)d,
			(long long)(s->problem->Hq / d));
	else
		snprintf(f->text, sizeof f->text, "heads come back reversed%s",
			f->unknown[1] == n ? "" : " within each ulysses rank");
}

static bool predict_rotated(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	return predict_head(
		s, row, other_head(s, ROTATED, unknown[1] + 1, row->h), unknown[0], o, lse);
}

static void rotated_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = 2;
	n[1] = s->problem->Hq - 1;
}

static void describe_rotated(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "head h comes back as head h + %lld",
		(long long)f->unknown[1] + 1);
}

/* ---- key heads ---- */

enum { KV, K_ONLY, V_ONLY, NTENSORS };
static const char *const tensor_names[] = {"k and v", "k", "v"};

/* unknown[0]: of which tensors; unknown[3]: the key head, -1: a pad. */
static bool take_key_head(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	int64_t kv = take->unknown[3];

	(void)i;
	if (take->unknown[0] != V_ONLY) {
		x->kv = kv;
		x->j = kv < 0 ? -1 : x->j;
	}
	if (take->unknown[0] != K_ONLY) {
		x->v_kv = kv;
		x->v = kv < 0 ? -1 : x->v;
	}
	return true;
}

static bool predict_key_head(struct cpa_suspect *s, struct cpa_suspect_row *row, int64_t tensors,
	int64_t kv, double *o, double *lse)
{
	int64_t unknown[CPA_NUNKNOWNS] = {tensors, 0, 0, kv};
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (kv == row->h / (s->problem->Hq / s->problem->Hkv) || kv >= s->problem->Hkv)
		return false;
	take.key = take_key_head;
	return cpa_take_run(&take, o, lse);
}

/* The key heads that the ulysses rank of h works with.   kv [2] out */
static void local_key_heads(const struct cpa_suspect *s, int64_t h, int64_t *kv)
{
	int64_t bounds[2], g = s->problem->Hq / s->problem->Hkv;

	cpa_take_heads(s, h, bounds);
	kv[0] = bounds[0] / g;
	kv[1] = (bounds[1] - 1) / g + 1;
}

/* ---- D05: key heads of another group ---- */

/* unknown: tensors; how far rotated, and then the ways to reverse */
static bool predict_group(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t n = s->problem->Hkv, kv = row->h / (s->problem->Hq / n), local[2];

	local_key_heads(s, row->h, local);
	kv = unknown[1] < n - 1	      ? (kv + unknown[1] + 1) % n
		: unknown[1] == n - 1 ? n - 1 - kv
				      : local[0] + local[1] - 1 - kv;
	return predict_key_head(s, row, unknown[0], kv, o, lse);
}

static void group_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NTENSORS;
	n[1] = s->problem->Hkv + (s->U > 1);
}

static void describe_group(const struct cpa_suspect *s, struct cpa_finding *f)
{
	int64_t n = s->problem->Hkv;

	if (f->unknown[1] < n - 1)
		snprintf(f->text, sizeof f->text,
			"heads work with %s of another group: %lld key heads further on",
			tensor_names[f->unknown[0]], (long long)f->unknown[1] + 1);
	else
		snprintf(f->text, sizeof f->text, "key heads of %s are in reverse order%s",
			tensor_names[f->unknown[0]],
			f->unknown[1] == n - 1 ? "" : " on each ulysses rank");
}

/* ---- D06: the wrong repeat ---- */

enum { TILED, TILED_HERE, BY_RANK, BY_RANK_GROUP, NREPEATS };
static const char *const repeat_names[] = {"query head h uses key head h mod Hkv",
	"query head i of a ulysses rank uses its key head i mod their number",
	"all heads of a ulysses rank use key head rank mod Hkv",
	"all heads of a ulysses rank use its first key head"};

static bool predict_repeat(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t bounds[2], local[2], n = s->problem->Hkv;
	int u = cpa_take_heads(s, row->h, bounds);

	local_key_heads(s, row->h, local);
	return predict_key_head(s, row, KV,
		unknown[0] == TILED ? row->h % n
			: unknown[0] == TILED_HERE
			? local[0] + (row->h - bounds[0]) % (local[1] - local[0])
			: unknown[0] == BY_RANK ? u % n
						: local[0],
		o, lse);
}

static void repeat_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->U > 1 ? NREPEATS : TILED_HERE;
}

static void describe_repeat(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "%s", repeat_names[f->unknown[0]]);
}

static bool has_repeat(const struct cpa_suspect *s)
{
	return s->problem->Hkv < s->problem->Hq;
}

static bool has_choice_of_repeat(const struct cpa_suspect *s)
{
	return has_repeat(s) && s->problem->Hkv > 1;
}

/* Keys repeated g times along the sequence, each key beside its copies. */
static bool take_repeated(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	x->j = x->v = i / (take->s->problem->Hq / take->s->problem->Hkv);
	return true;
}

static bool predict_along(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_rule *rule = &s->problem->rule;
	struct cpa_take take = cpa_take_right(s, row, unknown);
	double g = (double)(s->problem->Hq / s->problem->Hkv);

	if (rule->causal || rule->window) {
		take.key = take_repeated;
		return cpa_take_run(&take, o, lse);
	}
	for (int64_t d = 0; d < s->problem->Dv; d++)
		o[d] = row->want[d];
	*lse = row->truth->lse + log(g);
	return true;
}

/* ---- D07: a ratio broken by pads ---- */

/* unknown: floor or ceil; whether pad heads count from each rank's own */
static bool predict_ratio(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	const struct cpa_problem *p = s->problem;
	int64_t bounds[2], each = (p->Hkv + s->U - 1) / s->U, padded = each * s->U, kv, ratio;
	int u = cpa_take_heads(s, row->h, bounds);

	if (unknown[1]) {
		ratio = (bounds[1] - bounds[0] + (unknown[0] ? each - 1 : 0)) / each;
		kv = u * each + (row->h - bounds[0]) / (ratio > 0 ? ratio : 1);
	} else {
		ratio = (p->Hq + (unknown[0] ? padded - 1 : 0)) / padded;
		kv = row->h / (ratio > 0 ? ratio : 1);
	}
	if (unknown[2] && kv >= p->Hkv)
		kv = p->Hkv - 1;
	return predict_key_head(s, row, KV, kv >= p->Hkv ? -1 : kv, o, lse);
}

static void ratio_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = n[1] = n[2] = 2;
}

static void describe_ratio(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)f;
	snprintf(f->text, sizeof f->text,
		"key heads are padded from %lld to a multiple of %lld and query heads are not: "
		"the "
		"ratio is another",
		(long long)s->problem->Hkv, (long long)s->U);
}

static bool has_padded_heads(const struct cpa_suspect *s)
{
	return s->problem->Hkv % s->U != 0;
}

/* ---- D08: ranks that split heads by different rules ---- */

enum { BALANCED, CEIL, GROUPS, NSPLITS };
static const char *const split_names[] = {"balanced", "of ceil(H/U)", "by key heads"};

static int64_t heads_by_rule(const struct cpa_suspect *s, int64_t rule, int64_t u)
{
	int64_t H = s->problem->Hq, U = s->U, Hkv = s->problem->Hkv, each = (H + U - 1) / U;
	int64_t left = H - u * each;

	if (rule == BALANCED)
		return H / U + (u < H % U);
	if (rule == GROUPS)
		return (Hkv / U + (u < Hkv % U)) * (H / Hkv);
	return left < 0 ? 0 : left < each ? left : each;
}

/* Head h stands in slots of rule `to`; they were filled by rule `from`. */
static int64_t head_by_rules(const struct cpa_suspect *s, int64_t from, int64_t to, int64_t h)
{
	int64_t first = 0;

	for (int64_t u = 0; u < s->U; u++) {
		int64_t n = heads_by_rule(s, to, u), held = heads_by_rule(s, from, u);

		if (h < n)
			return h < held ? first + h : -1;
		h -= n;
		first += held;
	}
	return -1;
}

static bool predict_split(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t h = head_by_rules(s, unknown[0], unknown[1], row->h);

	return h < 0 ? cpa_take_nothing(s, row, o, lse) : predict_head(s, row, h, false, o, lse);
}

static void split_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = n[1] = NSPLITS;
}

static void describe_split(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	snprintf(f->text, sizeof f->text, "heads are sent in a %s split and unpacked in a %s one",
		split_names[f->unknown[0]], split_names[f->unknown[1]]);
}

static bool has_ulysses(const struct cpa_suspect *s)
{
	return s->U > 1;
}

#define DIGITS "V = digits of batch, token and head"

const struct cpa_hypothesis cpa_hypotheses_heads[] = {
	{"D01", "heads are folded in another order", DIGITS, has_heads, folded_unknowns,
		predict_folded, describe_folded, false, false},
	{"D05", "heads of o are those of another rank", DIGITS, has_heads, rotated_unknowns,
		predict_rotated, describe_rotated, false, false},
	{"D05", "key heads are those of another group", DIGITS, has_groups, group_unknowns,
		predict_group, describe_group, false, false},
	{"D06", "key heads are repeated in the wrong order", DIGITS, has_choice_of_repeat,
		repeat_unknowns, predict_repeat, describe_repeat, false, false},
	{"D06", "key heads are repeated along the sequence", DIGITS, has_repeat, NULL,
		predict_along, NULL, false, false},
	{"D07", "padded key heads break the ratio", DIGITS, has_padded_heads, ratio_unknowns,
		predict_ratio, describe_ratio, false, false},
	{"D08", "ranks split heads by different rules", DIGITS, has_ulysses, split_unknowns,
		predict_split, describe_split, false, false},
	{0},
};
