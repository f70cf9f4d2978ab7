/*
 * diagnose_masks.c - C08 to C10: parts of the rule that are dropped, everywhere or in some
 * blocks, and windows that are cut.
 */
#include <stdio.h>

#include "harness/diagnose_take.h"

static bool has_ring(const struct cpa_suspect *s)
{
	return s->R > 1;
}

static bool has_window(const struct cpa_suspect *s)
{
	return s->problem->rule.window;
}

static bool has_documents(const struct cpa_suspect *s)
{
	return s->problem->rule.documents;
}

/* ---- C08, C09, C10: something is dropped, in all blocks or in some ---- */

enum part { CAUSAL, WINDOW, DOCUMENTS, LENGTHS, MASK, EVERYTHING, NPARTS };
enum { EVERYWHERE, OTHERS, OWN, NWHERE };
static const char *const part_names[] = {"causal order", "the window", "document boundaries",
	"key lengths", "the mask", "every part of the mask"};

static bool has_part(const struct cpa_rule *rule, int64_t part)
{
	int n = rule->causal + rule->window + (rule->documents != NULL) +
		(rule->key_lengths != NULL) + (rule->mask.kind != CPA_MASK_NONE);

	return part == EVERYTHING   ? n > 1
		: part == CAUSAL    ? rule->causal
		: part == WINDOW    ? rule->window
		: part == DOCUMENTS ? rule->documents != NULL
		: part == LENGTHS   ? rule->key_lengths != NULL
				    : rule->mask.kind != CPA_MASK_NONE;
}

static void drop(struct cpa_rule *rule, int64_t part)
{
	if (part == CAUSAL || part == EVERYTHING)
		rule->causal = false;
	if (part == WINDOW || part == EVERYTHING)
		rule->window = false;
	if (part == DOCUMENTS || part == EVERYTHING)
		rule->documents = NULL;
	if (part == LENGTHS || part == EVERYTHING)
		rule->key_lengths = NULL;
	if (part == MASK || part == EVERYTHING)
		rule->mask = (struct cpa_mask){0};
}

static bool take_dropped(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	if (cpa_take_own(take->s, take->t, i) != (take->unknown[1] == OWN))
		x->rule = &take->s->problem->rule;
	return true;
}

/* unknown: which part, where */
static bool predict_dropped(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	if (!has_part(&take.rule, unknown[0]))
		return false;
	drop(&take.rule, unknown[0]);
	take.key = unknown[1] == EVERYWHERE ? NULL : take_dropped;
	return cpa_take_run(&take, o, lse);
}

static void say_dropped(struct cpa_finding *f, int64_t part, int64_t where)
{
	static const char *const places[] = {
		"", " in blocks of other ring ranks", " in the own block"};

	snprintf(f->text, sizeof f->text, "%s %s ignored%s", part_names[part],
		part == DOCUMENTS || part == LENGTHS ? "are" : "is", places[where]);
}

static void describe_dropped(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	say_dropped(f, f->unknown[0], f->unknown[1]);
}

static void where_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = s->R > 1 ? NWHERE : 1;
}

static void dropped_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	n[0] = NPARTS;
	n[1] = s->R > 1 ? NWHERE : 1;
}

static bool predict_no_window(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t what[CPA_NUNKNOWNS] = {WINDOW, unknown[0]};

	return predict_dropped(s, row, what, o, lse);
}

static void describe_no_window(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	say_dropped(f, WINDOW, f->unknown[0]);
}

static bool predict_no_documents(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	int64_t what[CPA_NUNKNOWNS] = {DOCUMENTS, unknown[0]};

	return predict_dropped(s, row, what, o, lse);
}

static void describe_no_documents(const struct cpa_suspect *s, struct cpa_finding *f)
{
	(void)s;
	say_dropped(f, DOCUMENTS, f->unknown[0]);
}

/* Window and documents have classes of their own. */
static bool predict_no_mask(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	bool elsewhere = unknown[0] == WINDOW || unknown[0] == DOCUMENTS ||
		(unknown[0] == CAUSAL && unknown[1] != EVERYWHERE);

	return !elsewhere && predict_dropped(s, row, unknown, o, lse);
}

static bool has_rule(const struct cpa_suspect *s)
{
	for (int part = 0; part < EVERYTHING; part++)
		if (has_part(&s->problem->rule, part))
			return true;
	return false;
}

/* ---- C08: a window cut at the hop, or of another width ---- */

static bool take_own_only(const struct cpa_take *take, int64_t i, struct cpa_taken *x)
{
	(void)x;
	return cpa_take_own(take->s, take->t, i);
}

static bool predict_cut(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	struct cpa_take take = cpa_take_right(s, row, unknown);

	take.key = take_own_only;
	return cpa_take_run(&take, o, lse);
}

static bool has_window_ring(const struct cpa_suspect *s)
{
	return has_ring(s) && has_window(s);
}

/* unknown: what the left edge gains, and the right one; none to begin with */
static bool predict_width(struct cpa_suspect *s, struct cpa_suspect_row *row,
	const int64_t *unknown, double *o, double *lse)
{
	static const int64_t gains[] = {0, -1, 1};
	struct cpa_take take = cpa_take_right(s, row, unknown);
	bool left = take.rule.left >= 0, right = take.rule.right >= 0;

	if ((unknown[0] && !left) || (unknown[1] && !right) || (!unknown[0] && !unknown[1]))
		return false;
	take.rule.left += gains[unknown[0]];
	take.rule.right += gains[unknown[1]];
	if ((left && take.rule.left < 0) || (right && take.rule.right < 0))
		return false;
	return cpa_take_run(&take, o, lse);
}

static void width_unknowns(const struct cpa_suspect *s, int64_t *n)
{
	(void)s;
	n[0] = n[1] = 3;
}

static void describe_width(const struct cpa_suspect *s, struct cpa_finding *f)
{
	static const char *const gains[] = {"as it is", "one key short", "one key long"};

	(void)s;
	snprintf(f->text, sizeof f->text, "the window is off by one: left %s, right %s",
		gains[f->unknown[0]], gains[f->unknown[1]]);
}

#define READING "V = identity: which keys have weight"

const struct cpa_hypothesis cpa_hypotheses_masks[] = {
	{"C08", "the window is ignored", READING, has_window, where_unknowns, predict_no_window,
		describe_no_window, false, false},
	{"C08", "the window ends where the own block does", READING, has_window_ring, NULL,
		predict_cut, NULL, false, false},
	{"C08", "the window is off by one", READING, has_window, width_unknowns, predict_width,
		describe_width, false, false},
	{"C09", "document boundaries are ignored", READING, has_documents, where_unknowns,
		predict_no_documents, describe_no_documents, false, false},
	{"C10", "the mask is dropped", READING, has_rule, dropped_unknowns, predict_no_mask,
		describe_dropped, false, false},
	{0},
};
