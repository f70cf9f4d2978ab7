/*
 * peers_diffusers_setup.c - what Diffusers refuses before its first attention, in the order in
 * which it looks: the configuration, its setup, enable_parallelism(), the hooks that split
 * tensors.  Read in its source at commit 58eb52c0 of 2026-08-23.
 */
#include <inttypes.h>
#include <string.h>

#include "harness/peers_diffusers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- rules 1 to 6: ContextParallelConfig ---------------------------------------------- */

static bool both_are_1(const struct cpa_peer_request *r)
{
	return r->ring == 1 && r->ulysses == 1;
}

static bool one_is_below_1(const struct cpa_peer_request *r)
{
	return r->ring < 1 || r->ulysses < 1;
}

static bool rotates_otherwise(const struct cpa_peer_request *r)
{
	return r->rotate && strcmp(r->rotate, "allgather") != 0;
}

static void put_rotation(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text, "Only rotate_method='allgather' is supported for now, but got %s.",
		r->rotate);
}

static bool ulysses_anything_of_1(const struct cpa_peer_request *r)
{
	return r->ulysses_anything && r->ulysses == 1;
}

static bool ulysses_anything_on_ring(const struct cpa_peer_request *r)
{
	return r->ulysses_anything && r->ring > 1;
}

static bool ring_anything_of_1(const struct cpa_peer_request *r)
{
	return r->ring_anything && r->ring == 1;
}

static bool ring_anything_with_ulysses(const struct cpa_peer_request *r)
{
	return r->ring_anything && r->ulysses > 1;
}

static bool both_anything(const struct cpa_peer_request *r)
{
	return r->ring_anything && r->ulysses_anything;
}

/* ---- rules 7 to 9: setup, ParallelConfig, enable_parallelism -------------------------- */

static int64_t product(const struct cpa_peer_request *r)
{
	return (int64_t)r->ring * r->ulysses;
}

static bool exceeds_world(const struct cpa_peer_request *r)
{
	return product(r) > r->world;
}

static void put_excess(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text,
		"The product of `ring_degree` (%d) and `ulysses_degree` (%d) must not exceed the "
		"world size (%d).",
		r->ring, r->ulysses, r->world);
}

static bool leaves_ranks(const struct cpa_peer_request *r)
{
	return product(r) < r->world && r->tensor <= 1;
}

static bool lacks_parallel(const struct cpa_peer_request *r)
{
	return !cpa_diffusers_backend_of(r)->parallel;
}

static void put_parallel(const struct cpa_peer_request *r, struct cpa_text *text)
{
	cpa_text_put(text,
		"the processor uses backend '%s', which does not support context parallelism; it "
		"lists those that do:",
		cpa_diffusers_backend_of(r)->name);
	for (int i = 0; cpa_diffusers_backend_at(i); i++)
		if (cpa_diffusers_backend_at(i)->parallel)
			cpa_text_put(text, " %s", cpa_diffusers_backend_at(i)->name);
}

static bool lacks_plan(const struct cpa_peer_request *r)
{
	return r->no_plan;
}

/* ---- the hooks that split tensors ----------------------------------------------------- */

static bool is_anything(const struct cpa_peer_request *r)
{
	return r->ring_anything || r->ulysses_anything;
}

static bool splits_unevenly(const struct cpa_peer_request *r)
{
	struct cpa_segment whole;

	return !is_anything(r) && cpa_peer_uneven_segment(r->problem, product(r), &whole);
}

/* "text has 512 tokens, 128 for each of 4 ranks; image has 3969, which 4 ranks do not divide". */
static void put_splits(const struct cpa_peer_request *r, struct cpa_text *text)
{
	int64_t P = product(r);
	int sides = r->problem->Sq == r->problem->Skv ? 1 : 2, any = 0;

	for (int keys = 0; keys < sides; keys++) {
		struct cpa_segment whole;
		int n;
		const struct cpa_segment *at = cpa_problem_segments(r->problem, keys, &whole, &n);

		for (int i = 0; i < n; i++) {
			const char *name = at[i].name[0] ? at[i].name
				: sides == 1		 ? "the sequence"
				: keys			 ? "the key sequence"
							 : "the query sequence";

			if (at[i].replicated)
				continue;
			cpa_text_put(text, "%s%.60s has %" PRId64 " tokens, ", any++ ? "; " : "",
				name, at[i].length);
			if (at[i].length % P == 0)
				cpa_text_put(text, "%" PRId64 " for each of %" PRId64 " ranks",
					at[i].length / P, P);
			else
				cpa_text_put(text, "which %" PRId64 " ranks do not divide", P);
		}
	}
	cpa_text_put(text, "; each tensor is split on its own, over ring x ulysses ranks");
}

static bool splits_too_short(const struct cpa_peer_request *r)
{
	struct cpa_segment whole;

	return is_anything(r) && cpa_peer_short_segment(r->problem, product(r), &whole);
}

static void put_too_short(const struct cpa_peer_request *r, struct cpa_text *text)
{
	struct cpa_segment whole;
	const struct cpa_segment *at = cpa_peer_short_segment(r->problem, product(r), &whole);

	cpa_text_put(text,
		"Cannot shard tensor of size (..., %" PRId64
		", ...) along its sequence across mesh of "
		"size %" PRId64 ".",
		at->length, product(r));
}

/* ---- the table ------------------------------------------------------------------------ */

#define CONFIG(n) "config validation, rule " #n

const struct cpa_peer_rule cpa_diffusers_setup[] = {
	{.holds = both_are_1,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(1),
		.exception = "ValueError",
		.message =
			"Either ring_degree or ulysses_degree must be greater than 1 in order to "
			"use context parallel inference"},
	{.holds = one_is_below_1,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(2),
		.exception = "ValueError",
		.message =
			"`ring_degree` and `ulysses_degree` must be greater than or equal to 1."},
	{.holds = rotates_otherwise,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(3),
		.exception = "NotImplementedError",
		.put_message = put_rotation},
	{.holds = ulysses_anything_of_1,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(4),
		.exception = "ValueError",
		.message = "ulysses_degree must be greater than 1 for ulysses_anything to be "
			   "enabled."},
	{.row = CPA_PEER_ROW_ANYTHING,
		.holds = ulysses_anything_on_ring,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(4),
		.exception = "ValueError",
		.message = "ulysses_anything cannot be enabled when ring_degree > 1."},
	{.holds = ring_anything_of_1,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(5),
		.exception = "ValueError",
		.message = "ring_degree must be greater than 1 for ring_anything to be enabled."},
	{.row = CPA_PEER_ROW_ANYTHING,
		.holds = ring_anything_with_ulysses,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(5),
		.exception = "ValueError",
		.message = "ring_anything cannot be enabled when ulysses_degree > 1."},
	/* Rules 4 and 5 come first whatever the degrees are: nothing reaches this one. */
	{.holds = both_anything,
		.verdict = CPA_PEER_REFUSED,
		.stage = CONFIG(6),
		.exception = "ValueError",
		.message = "ulysses_anything and ring_anything cannot both be enabled."},
	{.row = CPA_PEER_ROW_WORLD,
		.holds = exceeds_world,
		.verdict = CPA_PEER_REFUSED,
		.stage = "setup, rule 7",
		.exception = "ValueError",
		.put_message = put_excess},
	{.row = CPA_PEER_ROW_WORLD,
		.holds = leaves_ranks,
		.verdict = CPA_PEER_NOT_KNOWN,
		.stage = "setup, rule 7",
		.why = "there are more ranks than ring x ulysses: setup lets that pass, the "
		       "constructor of the mesh may not; batch groups are no axis of this "
		       "configuration"},
	{.row = CPA_PEER_ROW_TENSOR,
		.verdict = CPA_PEER_REFUSED,
		.stage = "ParallelConfig, rule 8",
		.exception = "ValueError",
		.why = "context and tensor parallelism cannot both be configured"},
	{.row = CPA_PEER_ROW_NONE,
		.holds = lacks_parallel,
		.verdict = CPA_PEER_REFUSED,
		.stage = "enable_parallelism, rule 9",
		.exception = "ValueError",
		.put_message = put_parallel,
		.why = "only the name of the first attention processor's backend is looked at"},
	{.holds = lacks_plan,
		.verdict = CPA_PEER_ACCEPTED,
		.why = "the model has no _cp_plan there: enable_parallelism needs a cp_plan "
		       "argument, "
		       "and raises ValueError without"},
	{.row = CPA_PEER_ROW_LENGTH,
		.holds = splits_unevenly,
		.verdict = CPA_PEER_REFUSED,
		.stage = "split hook",
		.exception = "AssertionError",
		.message = "Tensor size along dimension to be sharded must be divisible by mesh "
			   "size",
		.put_why = put_splits},
	{.holds = splits_too_short,
		.verdict = CPA_PEER_REFUSED,
		.stage = "split hook",
		.exception = "AssertionError",
		.put_message = put_too_short,
		.why = "every rank must get a token of each tensor"},
};
const int cpa_diffusers_nsetup = COUNT(cpa_diffusers_setup);
