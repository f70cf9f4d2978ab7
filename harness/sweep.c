/*
 * sweep.c - which configurations run for a problem, and the options that name one of them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/options.h"
#include "harness/order.h"
#include "harness/text.h"

enum { MAX_WORLD = 4096 };

/* What options and problem fix, worked out once. */
struct sweep {
	const struct cpa_options *options;
	const struct cpa_problem *problem;
	enum cpa_rotate_choice rotate;
	bool wide;
	int batch, ring, ulysses, P; /* 0: free; P = ring x ulysses */
	int multiple;                /* every world is a multiple of this */
	cpa_sweep_visit *visit;
	void *context;
	bool stopped;
	int64_t nvisits;
	enum cpa_status status; /* of lacking memory */
	struct cpa_error *error;
};

/* ---- one configuration ------------------------------------------------------------------- */

static bool fits_variant(enum cpa_variant variant, int R, int U)
{
	const struct cpa_variant_info *info = cpa_variant_info(variant);

	if (R == 1 && U == 1)
		return true;
	return (R > 1) == info->ring && (U > 1) == info->ulysses;
}

/* Keys are cut like queries unless told otherwise; given sizes only where they can mean the
 * same. */
static void set_splits(const struct sweep *s, struct cpa_config *config)
{
	const struct cpa_options *o = s->options;

	/* The lists are empty unless the rule is given. */
	if (o->has_split) {
		config->split = o->split;
		config->sizes = o->sizes.at;
		config->nsizes = o->sizes.n;
	}
	if (o->has_split_kv) {
		config->split_kv = o->split_kv;
		config->sizes_kv = o->sizes_kv.at;
		config->nsizes_kv = o->sizes_kv.n;
	} else if (o->has_split &&
		(o->split != CPA_SPLIT_GIVEN || s->problem->Sq == s->problem->Skv)) {
		config->split_kv = config->split;
		config->sizes_kv = config->sizes;
		config->nsizes_kv = config->nsizes;
	}
}

static void visit_mesh(struct sweep *s, enum cpa_variant variant, int N, int R, int U)
{
	const struct cpa_options *o = s->options;
	struct cpa_config config = cpa_config_default(variant, s->problem);

	config.batch_degree = N;
	config.ring_degree = R;
	config.ulysses_degree = U;
	set_splits(s, &config);
	config.order = o->order;
	config.heads = o->heads;
	config.head_counts = o->heads == CPA_HEADS_GIVEN ? o->head_counts.at : NULL;
	config.direction = o->direction;
	config.partials = o->partials;
	config.mesh = o->mesh;
	config.guidance = o->guidance.nbranches;
	if (s->wide)
		config.partial_dtype = CPA_DTYPE_FP64;
	for (int rotate = CPA_ROTATE_P2P; rotate <= CPA_ROTATE_DIRECT && !s->stopped;
		rotate++) {
		/* The choices are in the order of the rotations. */
		bool asked = s->rotate == CPA_ROTATE_CHOICE_ALL ||
			(int)s->rotate - (int)CPA_ROTATE_CHOICE_P2P == rotate;

		/* Without a ring there is nothing to rotate: one run, under the default name.
		 */
		if (R == 1 ? rotate != CPA_ROTATE_P2P : !asked)
			continue;
		config.rotate = (enum cpa_rotate)rotate;
		if (o->order_auto)
			s->status = cpa_order_pick(s->problem, &config, s->error);
		s->nvisits++;
		s->stopped = s->status != CPA_OK || !s->visit(s->context, &config);
	}
}

static void visit_group(struct sweep *s, enum cpa_variant variant, int N, int P)
{
	for (int R = 1; R <= P && !s->stopped; R++) {
		int U = P / R;

		if (P % R != 0 || (s->ring && R != s->ring) ||
			(s->ulysses && U != s->ulysses) || !fits_variant(variant, R, U))
			continue;
		visit_mesh(s, variant, N, R, U);
	}
}

static void visit_world(struct sweep *s, enum cpa_variant variant, int W)
{
	for (int N = 1; N <= W && !s->stopped; N++) {
		if (W % N != 0 || (s->batch ? N != s->batch : N > s->problem->B) ||
			(s->P && W / N != s->P))
			continue;
		visit_group(s, variant, N, W / N);
	}
}

static int64_t visit_worlds(struct sweep *s, const int64_t *worlds, int n)
{
	s->nvisits = 0;
	for (int v = 0; v < CPA_NVARIANTS; v++)
		for (int i = 0; i < n && !s->stopped && s->options->variants[v]; i++)
			visit_world(s, (enum cpa_variant)v, (int)worlds[i]);
	return s->nvisits;
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* "--ring 4 --ulysses 2" and the like: what the user fixed, for sentences. */
static void print_fixed(const struct sweep *s, char *text, size_t size)
{
	const struct cpa_options *o = s->options;
	struct cpa_text w = cpa_text_begin(text, size);

	if (o->batch)
		cpa_text_put(&w, " --batch %d", o->batch);
	if (o->ring)
		cpa_text_put(&w, " --ring %d", o->ring);
	if (o->ulysses)
		cpa_text_put(&w, " --ulysses %d", o->ulysses);
	if (o->sizes.n)
		cpa_text_put(&w, " --split of %d sizes", o->sizes.n);
	else if (o->sizes_kv.n)
		cpa_text_put(&w, " --split-kv of %d sizes", o->sizes_kv.n);
	if (o->head_counts.n)
		cpa_text_put(&w, " --heads of %d counts", o->head_counts.n);
}

static void print_ranks(int64_t first, int64_t end, char *text, size_t size)
{
	if (end - first == 1)
		snprintf(text, size, "rank %" PRId64 " is", first);
	else
		snprintf(text, size, "ranks %" PRId64 "-%" PRId64 " are", first, end - 1);
}

/* Batch, ring and ulysses are all fixed: there is one world. */
static enum cpa_status check_one_world(const struct sweep *s, int64_t W, const char *fixed,
	struct cpa_error *error)
{
	char idle[80];

	if (W < s->multiple)
		return cpa_fail(error, CPA_INVALID,
			"--ranks %" PRId64 ":%s needs %d ranks; use --ranks %d", W, fixed,
			s->multiple, s->multiple);
	print_ranks(s->multiple, W, idle, sizeof idle);
	if (W > s->multiple)
		return cpa_fail(error, CPA_INVALID,
			"--ranks %" PRId64 ":%s uses %d ranks, and %s left idle; use "
			"--ranks %d",
			W, fixed, s->multiple, idle, s->multiple);
	return CPA_OK;
}

/* Every world asked for must be filled by what is fixed. */
static enum cpa_status check_world(const struct sweep *s, int64_t W, struct cpa_error *error)
{
	int64_t used = W - W % s->multiple, N, B = s->problem->B;
	char fixed[160], idle[80];

	print_fixed(s, fixed, sizeof fixed);
	if (s->batch && s->P)
		return check_one_world(s, W, fixed, error);
	print_ranks(used, W, idle, sizeof idle);
	if (used != W)
		return cpa_fail(error, CPA_INVALID,
			"--ranks %" PRId64 ": a world with%s is a multiple of %d ranks, "
			"and %s left idle; use --ranks %" PRId64,
			W, fixed, s->multiple, idle, used ? used : s->multiple);
	N = s->P ? W / s->P : 1;
	if (N <= B)
		return CPA_OK;
	print_ranks(s->P * B, W, idle, sizeof idle);
	return cpa_fail(error, CPA_INVALID,
		"--ranks %" PRId64 ":%s makes %" PRId64 " batch groups of %d ranks, "
		"B = %" PRId64 " fills %" PRId64 " of them, and %s left idle; use --ranks "
						 "%" PRId64 ", or add "
		"--batch %" PRId64 " for empty groups",
		W, fixed, N, s->P, B, B, idle, s->P * B, N);
}

/* *P: the ranks of a group that n given sizes of one side are for, R U of each split segment. */
static enum cpa_status ranks_of_sizes(const struct sweep *s, bool keys, int n, int *P,
	struct cpa_error *error)
{
	int nsplit = cpa_problem_nsplit(s->problem, keys);
	char what[160];

	*P = 0;
	if (n == 0)
		return CPA_OK;
	cpa_problem_print_split(s->problem, keys, what, sizeof what);
	if (nsplit == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s gives %d sizes, and this problem has %s: every rank holds them all; "
			"leave the sizes out",
			keys ? "--split-kv" : "--split", n, what);
	if (n % nsplit != 0)
		return cpa_fail(error, CPA_INVALID,
			"%s gives %d sizes; expected a multiple of %d: ring x ulysses sizes for each "
			"of %s, in the order of the sequence",
			keys ? "--split-kv" : "--split", n, nsplit, what);
	*P = n / nsplit;
	return CPA_OK;
}

static enum cpa_status find_given(const struct sweep *s, int *given, struct cpa_error *error)
{
	const struct cpa_options *o = s->options;
	char what[160], what_kv[160];
	int P = 0, P_kv = 0;
	enum cpa_status status = ranks_of_sizes(s, false, o->sizes.n, &P, error);

	if (status == CPA_OK)
		status = ranks_of_sizes(s, true, o->sizes_kv.n, &P_kv, error);
	*given = P ? P : P_kv;
	if (status != CPA_OK || !P || !P_kv || P == P_kv)
		return status;
	cpa_problem_print_split(s->problem, false, what, sizeof what);
	cpa_problem_print_split(s->problem, true, what_kv, sizeof what_kv);
	return cpa_fail(error, CPA_INVALID,
		"--split gives %d sizes for %s, those of %d ranks, and --split-kv %d for %s, those of "
		"%d; both need one for each of the ring x ulysses ranks, of each split segment",
		o->sizes.n, what, P, o->sizes_kv.n, what_kv, P_kv);
}

static enum cpa_status fix(struct sweep *s, struct cpa_error *error)
{
	const struct cpa_options *o = s->options;
	int given = 0;
	int64_t multiple;
	char fixed[160];
	enum cpa_status status = find_given(s, &given, error);

	if (status != CPA_OK)
		return status;
	s->batch = o->batch;
	s->ring = o->ring;
	s->ulysses = o->ulysses ? o->ulysses : o->head_counts.n;
	s->P = given ? given : s->ring && s->ulysses ? s->ring * s->ulysses : 0;
	print_fixed(s, fixed, sizeof fixed);
	/* Degrees are at most 4096 each, so that two of them fit an int and three an int64_t.
	 */
	multiple = (int64_t)(s->ring ? s->ring : 1) * (s->ulysses ? s->ulysses : 1);
	if (given && (given % multiple != 0 || (s->ring && s->ulysses && given != multiple)))
		return cpa_fail(error, CPA_INVALID,
			"%s: the sizes are one for each of the ring x ulysses ranks, of each split "
			"segment, and %d is no multiple of %" PRId64,
			fixed + 1, given, multiple);
	if (given)
		multiple = given;
	multiple *= s->batch ? s->batch : 1;
	if (multiple > MAX_WORLD)
		return cpa_fail(error, CPA_INVALID,
			"%s: a world of %" PRId64 " ranks; at most %d", fixed + 1, multiple,
			MAX_WORLD);
	s->multiple = (int)multiple;
	return CPA_OK;
}

static enum cpa_status nothing_runs(const struct sweep *s, struct cpa_error *error)
{
	char fixed[160], names[160];
	struct cpa_text w = cpa_text_begin(names, sizeof names);

	print_fixed(s, fixed, sizeof fixed);
	for (int v = 0; v < CPA_NVARIANTS; v++)
		if (s->options->variants[v])
			cpa_text_put(&w, "%s%s", w.used ? ", " : "",
				cpa_variant_info((enum cpa_variant)v)->name);
	return cpa_fail(error, CPA_INVALID,
		"no mesh of these worlds%s%s suits %s: ring runs with ulysses "
		"degree 1, ulysses with ring degree 1, unified with both above 1 (from 4 "
		"ranks)",
		fixed[0] ? " with" : "", fixed, names);
}

/* ---- public ------------------------------------------------------------------------------ */

enum cpa_status cpa_sweep(const struct cpa_options *options, const struct cpa_problem *problem,
	enum cpa_rotate_choice default_rotate, bool wide, cpa_sweep_visit *visit, void *context,
	struct cpa_error *error)
{
	struct sweep s = { .options = options,
		.problem = problem,
		.wide = wide,
		.visit = visit,
		.context = context,
		.error = error };
	enum cpa_status status = fix(&s, error);

	s.rotate =
		options->rotate == CPA_ROTATE_CHOICE_DEFAULT ? default_rotate : options->rotate;
	for (int i = 0; i < options->ranks.n && options->ranks_asked && status == CPA_OK; i++)
		status = check_world(&s, options->ranks.at[i], error);
	if (status != CPA_OK)
		return status;
	if (visit_worlds(&s, options->ranks.at, options->ranks.n) > 0)
		return s.status;
	/* Degrees that no default world holds ask for the world that they make. */
	if (!options->ranks_asked) {
		int64_t world = s.multiple;

		if (visit_worlds(&s, &world, 1) > 0)
			return s.status;
	}
	return nothing_runs(&s, error);
}

static void put_sizes(struct cpa_text *w, const int64_t *sizes, int n)
{
	for (int i = 0; i < n; i++)
		cpa_text_put(w, "%s%" PRId64, i ? "," : "given:", sizes[i]);
}

static void put_split(struct cpa_text *w, const char *option, enum cpa_split split,
	const int64_t *sizes, int n)
{
	cpa_text_put(w, " %s ", option);
	if (split == CPA_SPLIT_GIVEN)
		put_sizes(w, sizes, n);
	else
		cpa_text_put(w, "%s", cpa_split_name(split));
}

void cpa_config_print(const struct cpa_config *config, char *text, size_t size)
{
	const struct cpa_variant_info *info = cpa_variant_info(config->variant);
	enum cpa_split usual = info->strict ? CPA_SPLIT_EQUAL : CPA_SPLIT_BALANCED;
	struct cpa_text w;

	if (size == 0)
		return;
	w = cpa_text_begin(text, size);
	cpa_text_put(&w, "--variant %s --batch %d --ring %d --ulysses %d", info->name,
		config->batch_degree, config->ring_degree, config->ulysses_degree);
	if (config->ring_degree > 1)
		cpa_text_put(&w, " --rotate %s", cpa_rotate_name(config->rotate));
	if (config->split != usual || config->split_kv != usual) {
		put_split(&w, "--split", config->split, config->sizes, config->nsizes);
		put_split(&w, "--split-kv", config->split_kv, config->sizes_kv,
			config->nsizes_kv);
	}
	if (config->order != CPA_ORDER_CONTIGUOUS)
		cpa_text_put(&w, " --order %s", cpa_order_name(config->order));
	if (config->heads == CPA_HEADS_GIVEN) {
		cpa_text_put(&w, " --heads ");
		put_sizes(&w, config->head_counts, config->ulysses_degree);
	} else if (config->heads != CPA_HEADS_BALANCED) {
		cpa_text_put(&w, " --heads %s", cpa_heads_name(config->heads));
	}
	if (config->direction < 0)
		cpa_text_put(&w, " --direction down");
	if (config->partials != CPA_PARTIALS_FP32)
		cpa_text_put(&w, " --partials %s", cpa_partials_name(config->partials));
	if (config->mesh == CPA_MESH_BATCH_ULYSSES_RING)
		cpa_text_put(&w, " --mesh batch,ulysses,ring");
}

char *cpa_config_text(const struct cpa_config *config)
{
	enum { WORDS = 400, NUMBER = 20 }; /* the longest of all options; a number and its comma */
	int n = config->nsizes + config->nsizes_kv;
	size_t size;
	char *text;

	n += config->heads == CPA_HEADS_GIVEN ? config->ulysses_degree : 0;
	size = WORDS + NUMBER * (size_t)n;
	text = malloc(size);
	if (text)
		cpa_config_print(config, text, size);
	return text;
}
