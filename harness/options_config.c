/*
 * options_config.c - the options that choose configurations: worlds, degrees, variants and
 * rules.
 */
#include <stdio.h>
#include <string.h>

#include "harness/guidance.h"
#include "harness/options_table.h"
#include "harness/parse.h"

enum { MAX_WORLD = 4096 };

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static enum cpa_status set_ranks(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	o->ranks_asked = true;
	return cpa_parse_set("--ranks", value, 1, MAX_WORLD, &o->arena, &o->ranks, error);
}

static enum cpa_status set_degree(const char *what, const char *value, int *degree,
	struct cpa_error *error)
{
	int64_t number;
	enum cpa_status status = cpa_parse_int(what, value, 1, MAX_WORLD, &number, error);

	if (status == CPA_OK)
		*degree = (int)number;
	return status;
}

static enum cpa_status set_batch(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_degree("--batch", value, &o->batch, error);
}

static enum cpa_status set_ring(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_degree("--ring", value, &o->ring, error);
}

static enum cpa_status set_ulysses(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return set_degree("--ulysses", value, &o->ulysses, error);
}

/* A list of names; repeating the option adds to it. */
static enum cpa_status set_variant(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_NVARIANTS + 1];

	for (int i = 0; i < CPA_NVARIANTS; i++)
		names[i] = cpa_variant_info((enum cpa_variant)i)->name;
	names[CPA_NVARIANTS] = "all";
	for (const char *p = value;; p++) {
		char name[64];
		size_t n = strcspn(p, ",");
		int index;
		enum cpa_status status;

		snprintf(name, sizeof name, "%.*s",
			n < sizeof name ? (int)n : (int)sizeof name - 1, p);
		status = cpa_parse_name("--variant", name, names, COUNT(names), NULL, 0, &index,
			error);
		if (status != CPA_OK)
			return status;
		for (int i = 0; i < CPA_NVARIANTS; i++)
			o->variants[i] |= index == CPA_NVARIANTS || index == i;
		o->variants_asked |= index != CPA_NVARIANTS;
		p += n;
		if (*p == '\0')
			return CPA_OK;
	}
}

static enum cpa_status set_rotate(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "p2p", "allgather", "direct", "all" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--rotate", value, names, 4, NULL, 0, &index, error);

	if (status == CPA_OK)
		o->rotate = (enum cpa_rotate_choice)(CPA_ROTATE_CHOICE_P2P + index);
	return status;
}

/* A rule by name, or "given:5,4,0,4". */
static enum cpa_status set_rule(struct cpa_options *o, const char *what, const char *value,
	const char *const *names, int n, int *rule, struct cpa_int_list *list,
	struct cpa_error *error)
{
	enum cpa_status status;

	*list = (struct cpa_int_list){ NULL, 0 };
	if (strncmp(value, "given:", 6) == 0) {
		*rule = n - 1;
		return cpa_parse_sizes(what, value + 6, &o->arena, list, error);
	}
	if (strcmp(value, "given") == 0)
		return cpa_fail(error, CPA_INVALID,
			"%s: given needs its sizes; write given:5,4,0,4", what);
	status = cpa_parse_name(what, value, names, n, NULL, 0, rule, error);
	return status;
}

static enum cpa_status set_split_of(struct cpa_options *o, const char *what, const char *value,
	enum cpa_split *split, struct cpa_int_list *sizes, struct cpa_error *error)
{
	const char *names[CPA_SPLIT_GIVEN + 1];
	int rule = 0;
	enum cpa_status status;

	for (int i = 0; i <= CPA_SPLIT_GIVEN; i++)
		names[i] = cpa_split_name((enum cpa_split)i);
	status = set_rule(o, what, value, names, COUNT(names), &rule, sizes, error);
	*split = (enum cpa_split)rule;
	return status;
}

static enum cpa_status set_split(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	o->has_split = true;
	return set_split_of(o, "--split", value, &o->split, &o->sizes, error);
}

static enum cpa_status set_split_kv(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	o->has_split_kv = true;
	return set_split_of(o, "--split-kv", value, &o->split_kv, &o->sizes_kv, error);
}

static enum cpa_status set_order(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	enum { AUTO = CPA_ORDER_ZIGZAG_DOCUMENTS + 1 };
	const char *names[AUTO + 1];
	int index;
	enum cpa_status status;

	for (int i = 0; i < AUTO; i++)
		names[i] = cpa_order_name((enum cpa_order)i);
	names[AUTO] = "auto";
	status = cpa_parse_name("--order", value, names, COUNT(names), NULL, 0, &index, error);
	if (status != CPA_OK)
		return status;
	o->order_auto = index == AUTO;
	o->order = o->order_auto ? CPA_ORDER_CONTIGUOUS : (enum cpa_order)index;
	return CPA_OK;
}

static enum cpa_status set_heads(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_HEADS_GIVEN + 1];
	int rule = 0;
	enum cpa_status status;

	for (int i = 0; i <= CPA_HEADS_GIVEN; i++)
		names[i] = cpa_heads_name((enum cpa_heads)i);
	status = set_rule(o, "--heads", value, names, COUNT(names), &rule, &o->head_counts,
		error);
	o->heads = (enum cpa_heads)rule;
	return status;
}

static enum cpa_status set_direction(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "up", "down" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--direction", value, names, 2, NULL, 0, &index, error);

	if (status == CPA_OK)
		o->direction = index == 0 ? 1 : -1;
	return status;
}

static enum cpa_status set_partials(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	const char *names[CPA_PARTIALS_ALL + 1];
	int index;
	enum cpa_status status;

	for (int i = 0; i <= CPA_PARTIALS_ALL; i++)
		names[i] = cpa_partials_name((enum cpa_partials)i);
	status = cpa_parse_name("--partials", value, names, COUNT(names), NULL, 0, &index,
		error);
	if (status == CPA_OK) {
		o->partials = (enum cpa_partials)index;
		o->has_partials = true;
	}
	return status;
}

static enum cpa_status set_mesh(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	static const char *const names[] = { "batch,ring,ulysses", "batch,ulysses,ring" };
	static const char *const later[] = { "ring,batch,ulysses", "ring,ulysses,batch",
		"ulysses,batch,ring", "ulysses,ring,batch" };
	int index;
	enum cpa_status status =
		cpa_parse_name("--mesh", value, names, 2, later, 4, &index, error);

	if (status == CPA_OK)
		o->mesh = (enum cpa_mesh)index;
	return status;
}

static enum cpa_status set_guidance(struct cpa_options *o, const char *value,
	struct cpa_error *error)
{
	return cpa_guidance_parse(value, &o->guidance, error);
}

#define V (1u << CPA_COMMAND_VERIFY)
#define P (1u << CPA_COMMAND_PLAN | 1u << CPA_COMMAND_BENCH) /* what plan takes, bench does */
/* diagnose is check, and then asks why. */
#define C (1u << CPA_COMMAND_CHECK | 1u << CPA_COMMAND_DIAGNOSE)

static const struct cpa_option_info config_table[] = {
	{ "--ranks", "LIST", V | P, set_ranks, "worlds: 2-8,12 (2-8; 4 in bench, or all of mpirun)" },
	{ "--batch", "N", V | P, set_batch,
		"batch groups (every divisor of the world up to B)" },
	{ "--ring", "R", V | P, set_ring, "ring degree (every one that fits)" },
	{ "--ulysses", "U", V | P, set_ulysses, "ulysses degree (every one that fits)" },
	{ "--variant", "LIST", V | P, set_variant,
		"ring ulysses unified, each also with _anything; all (all)" },
	{ "--rotate", "HOW", V | P, set_rotate,
		"p2p allgather direct all (all in verify, else p2p)" },
	{ "--split", "RULE", V | P, set_split,
		"equal balanced ceil given:5,4,0,4 (equal; balanced for _anything)" },
	{ "--split-kv", "RULE", V | P, set_split_kv,
		"the same for keys (as --split); given: R U sizes for each split segment" },
	{ "--order", "ORDER", V | P, set_order,
		"contiguous zigzag striped zigzag_documents auto (contiguous)" },
	{ "--heads", "RULE", V | P, set_heads,
		"balanced groups ceil given:6,3,3,3 (balanced)" },
	{ "--direction", "WAY", V | P, set_direction,
		"up: to rank r+1; down: to rank r-1 (up)" },
	{ "--partials", "HOW", V | P | C, set_partials,
		"fp32 block all: in what type partials are kept (fp32; in check block)" },
	{ "--mesh", "ORDER", V | P, set_mesh,
		"batch,ring,ulysses or batch,ulysses,ring, outer to inner" },
	{ "--guidance", "S[:S2]", V | P, set_guidance,
		"the batch holds branches, combined by these scales: 3.5 two, 3.5:1.5 three" },
};

const struct cpa_option_info *cpa_option_config_info(int i)
{
	return i >= 0 && i < COUNT(config_table) ? &config_table[i] : NULL;
}
