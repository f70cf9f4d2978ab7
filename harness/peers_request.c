/*
 * peers_request.c - what is asked of other systems, in parts that their tables name.
 */
#include "harness/peers.h"

#include <string.h>

struct cpa_peer_request cpa_peer_request_of(
	const struct cpa_problem *problem, const struct cpa_config *config)
{
	const struct cpa_variant_info *info = cpa_variant_info(config->variant);
	enum cpa_split usual = info->strict ? CPA_SPLIT_EQUAL : CPA_SPLIT_BALANCED;

	return (struct cpa_peer_request){.problem = problem,
		.world = config->batch_degree * config->ring_degree * config->ulysses_degree,
		.batch = config->batch_degree,
		.ring = config->ring_degree,
		.ulysses = config->ulysses_degree,
		.ring_anything = !info->strict && info->ring,
		.ulysses_anything = !info->strict && info->ulysses,
		.tensor = 1,
		.order = config->order,
		.mesh = config->mesh,
		.own_split = config->split != usual || config->split_kv != usual};
}

/* ---- parts of requests ---------------------------------------------------------------- */

typedef bool segment_test(int64_t length, int64_t P);

static bool is_uneven(int64_t length, int64_t P)
{
	return length % P != 0;
}

static bool is_short(int64_t length, int64_t P)
{
	return length < P;
}

static const struct cpa_segment *find_segment(const struct cpa_problem *problem, int64_t P,
	segment_test *test, struct cpa_segment *whole)
{
	for (int keys = 0; keys < 2; keys++) {
		int n;
		const struct cpa_segment *at = cpa_problem_segments(problem, keys, whole, &n);

		for (int i = 0; i < n && P > 0; i++)
			if (!at[i].replicated && test(at[i].length, P))
				return &at[i];
	}
	return NULL;
}

const struct cpa_segment *cpa_peer_uneven_segment(
	const struct cpa_problem *problem, int64_t P, struct cpa_segment *whole)
{
	return find_segment(problem, P, is_uneven, whole);
}

const struct cpa_segment *cpa_peer_short_segment(
	const struct cpa_problem *problem, int64_t P, struct cpa_segment *whole)
{
	return find_segment(problem, P, is_short, whole);
}

bool cpa_peer_is_local(const struct cpa_problem *problem)
{
	return cpa_problem_nsplit(problem, true) == 0 && cpa_problem_nsplit(problem, false) > 0;
}

bool cpa_peer_has_replicated(const struct cpa_problem *problem)
{
	struct cpa_segment whole;

	for (int keys = 0; keys < 2; keys++) {
		int n;

		cpa_problem_segments(problem, keys, &whole, &n);
		if (cpa_problem_nsplit(problem, keys) < n)
			return true;
	}
	return false;
}

int64_t cpa_peer_nkeys(const struct cpa_problem *problem, int64_t P, int64_t r)
{
	struct cpa_segment whole;
	int n;
	const struct cpa_segment *at = cpa_problem_segments(problem, true, &whole, &n);
	int64_t sum = 0;

	for (int i = 0; i < n; i++)
		if (!at[i].replicated)
			sum += at[i].length / P + (r < at[i].length % P);
	return sum;
}

bool cpa_peer_has_documents(const struct cpa_problem *problem)
{
	return problem->rule.documents && problem->rule.ndocuments > 1;
}

bool cpa_peer_has_window(const struct cpa_problem *problem)
{
	const struct cpa_rule *rule = &problem->rule;

	return rule->window && (rule->left >= 0 || rule->right >= 0);
}

bool cpa_peer_masks_pairs(const struct cpa_problem *problem)
{
	const struct cpa_mask *mask = &problem->rule.mask;

	return cpa_peer_has_documents(problem) ||
		(mask->kind != CPA_MASK_NONE && (mask->query != 0 || mask->head != 0));
}

bool cpa_peer_masks_keys(const struct cpa_problem *problem)
{
	return !cpa_peer_masks_pairs(problem) &&
		(problem->rule.key_lengths || problem->rule.mask.kind != CPA_MASK_NONE);
}

bool cpa_peer_is_16_bit(const struct cpa_problem *problem)
{
	return problem->dtype == CPA_DTYPE_BF16 || problem->dtype == CPA_DTYPE_FP16;
}

bool cpa_peer_backend_is(const struct cpa_peer_request *request, const char *name)
{
	return request->backend && strcmp(request->backend, name) == 0;
}

/* ---- requests that many systems were asked -------------------------------------------- */

bool cpa_peer_row_holds(enum cpa_peer_row row, const struct cpa_peer_request *r)
{
	const struct cpa_problem *p = r->problem;
	struct cpa_segment whole;

	switch (row) {
	case CPA_PEER_ROW_LENGTH:
		return !r->ring_anything && !r->ulysses_anything &&
			cpa_peer_uneven_segment(p, (int64_t)r->ring * r->ulysses, &whole);
	case CPA_PEER_ROW_HEADS:
		return cpa_peer_exchanges(r) && !r->ulysses_anything && r->ulysses > 1 &&
			p->Hq % r->ulysses != 0;
	case CPA_PEER_ROW_ANYTHING:
		return (r->ring_anything || r->ulysses_anything) && r->ring > 1 && r->ulysses > 1;
	case CPA_PEER_ROW_MASK:
		return cpa_peer_exchanges(r) && r->ring > 1 &&
			(cpa_peer_masks_keys(p) || cpa_peer_masks_pairs(p));
	case CPA_PEER_ROW_CAUSAL:
		return cpa_peer_exchanges(r) && p->rule.causal;
	case CPA_PEER_ROW_GQA:
		return cpa_peer_exchanges(r) && p->Hq != p->Hkv;
	case CPA_PEER_ROW_WORLD:
		return (int64_t)r->batch * r->ring * r->ulysses * r->tensor != r->world;
	case CPA_PEER_ROW_LSE:
		return cpa_peer_exchanges(r) && r->ring > 1 &&
			cpa_peer_backend_is(r, cpa_peer_no_lse);
	case CPA_PEER_ROW_TENSOR:
		return r->tensor > 1;
	default:
		return false;
	}
}

/* ---- kinds of requests ---------------------------------------------------------------- */

bool cpa_peer_exchanges(const struct cpa_peer_request *r)
{
	return !cpa_peer_is_local(r->problem);
}

bool cpa_peer_on_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && r->ring > 1;
}

int64_t cpa_peer_nranks(const struct cpa_peer_request *r)
{
	return (int64_t)r->ring * r->ulysses;
}

bool cpa_peer_exchanges_replicated(const struct cpa_peer_request *r)
{
	return cpa_peer_exchanges(r) && cpa_peer_has_replicated(r->problem);
}

/* Beyond the rows that were asked: nobody looked. */
bool cpa_peer_is_beyond_rows(const struct cpa_peer_request *r)
{
	const struct cpa_rule *rule = &r->problem->rule;

	return rule->sink || (cpa_peer_has_window(r->problem) && cpa_peer_exchanges(r)) ||
		(cpa_peer_exchanges(r) && r->ring == 1 && r->ulysses > 1 &&
			(cpa_peer_masks_keys(r->problem) || cpa_peer_masks_pairs(r->problem)));
}

bool cpa_peer_is_fp64_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && r->problem->dtype == CPA_DTYPE_FP64;
}

bool cpa_peer_is_causal_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_row_holds(CPA_PEER_ROW_CAUSAL, r) && r->ring > 1;
}

bool cpa_peer_is_window_ring(const struct cpa_peer_request *r)
{
	return cpa_peer_on_ring(r) && cpa_peer_has_window(r->problem);
}
