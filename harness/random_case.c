/*
 * random_case.c - a case as the options that make it, and as the configuration they select.
 */
#include "harness/random_case.h"

#include <inttypes.h>

#include "sim/sim.h"

static void put_list(struct cpa_text *text, const char *key, const int64_t *at, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		cpa_text_put(text, "%s%" PRId64, i ? ":" : key, at[i]);
}

static void put_rule(struct cpa_text *text, const struct cpa_case *it)
{
	if (it->causal)
		cpa_text_put(text, ",causal");
	if (it->window)
		cpa_text_put(text, ",window=%" PRId64 ":%" PRId64, it->left, it->right);
	if ((it->causal || it->window) && (it->offset != 0 || it->Sq != it->Skv))
		cpa_text_put(text, ",offset=%" PRId64, it->offset);
	if (it->has_key_lengths)
		put_list(text, ",key_lengths=", it->key_lengths, it->B);
	if (it->ndocuments)
		put_list(text, ",documents=", it->documents, it->ndocuments + 1);
	if (it->mask != CPA_MASK_NONE)
		cpa_text_put(text, ",mask=%s:%cx%cx%cx%c:%" PRIu64,
			it->mask == CPA_MASK_BOOL ? "bool" : "bias",
			it->mask_shape & 8 ? 'B' : '1', it->mask_shape & 4 ? 'H' : '1',
			it->mask_shape & 2 ? 'Q' : '1', it->mask_shape & 1 ? 'K' : '1',
			it->mask_seed);
	if (it->sink != CPA_CASE_NO_SINK)
		cpa_text_put(text, ",sink=%s", it->sink == CPA_CASE_ONE_SINK ? "0.5" : "random");
}

void cpa_case_print(const struct cpa_case *it, char *at)
{
	struct cpa_text text = cpa_text_begin(at, CPA_CASE_TEXT);
	int64_t Hq = it->Hkv * it->g;
	cpa_text_put(&text, "B=%" PRId64, it->B);
	if (it->Sq == it->Skv)
		cpa_text_put(&text, ",S=%" PRId64, it->Sq);
	else
		cpa_text_put(&text, ",Sq=%" PRId64 ",Skv=%" PRId64, it->Sq, it->Skv);
	if (it->g == 1)
		cpa_text_put(&text, ",H=%" PRId64, Hq);
	else
		cpa_text_put(&text, ",Hq=%" PRId64 ",Hkv=%" PRId64, Hq, it->Hkv);
	cpa_text_put(&text, ",D=%" PRId64, it->D);
	if (it->Dv != it->D)
		cpa_text_put(&text, ",Dv=%" PRId64, it->Dv);
	if (it->dtype != CPA_DTYPE_FP64)
		cpa_text_put(&text, ",dtype=%s", cpa_dtype_name(it->dtype));
	if (it->scale != 0.0)
		cpa_text_put(&text, ",scale=%.17g", it->scale);
	put_rule(&text, it);
	cpa_case_segments_print(&text, ",segments=", &it->segments);
	cpa_case_segments_print(&text, ",segments_kv=", &it->segments_kv);
	if (!it->lse)
		cpa_text_put(&text, ",lse=no");
	if (it->layout != CPA_LAYOUT_BSHD)
		cpa_text_put(&text, ",layout=%s", cpa_layout_name(it->layout));
}

/* n sizes that sum to S, about a quarter of them 0. */
static const int64_t *give(uint64_t seed, int64_t S, int64_t n, int64_t *sizes)
{
	int64_t sum = 0, left = S;
	for (int64_t i = 0; i < n; i++) {
		sizes[i] = cpa_random(&seed) % 4 ? 1 + (int64_t)(cpa_random(&seed) % 8) : 0;
		sum += sizes[i];
	}
	for (int64_t i = 0; i < n; i++) {
		sizes[i] = sum ? S * sizes[i] / sum : 0;
		left -= sizes[i];
	}
	sizes[seed % (uint64_t)n] += left;
	return sizes;
}

/* P sizes for each split segment of one side; returns how many in all. */
static int give_all(
	uint64_t seed, const struct cpa_problem *problem, bool keys, int64_t P, int64_t *sizes)
{
	struct cpa_segment whole;
	int n, count = 0;
	const struct cpa_segment *at = cpa_problem_segments(problem, keys, &whole, &n);
	for (int i = 0; i < n; i++)
		if (!at[i].replicated) {
			give(seed + (uint64_t)i, at[i].length, P, sizes + count);
			count += (int)P;
		}
	return count;
}

void cpa_case_config(const struct cpa_case *it, const struct cpa_problem *problem, bool wide,
	struct cpa_case_config *made)
{
	struct cpa_config *c = &made->config;
	int64_t P = it->R * it->U;
	*c = cpa_config_default(it->variant, problem);
	c->batch_degree = (int)it->N;
	c->ring_degree = (int)it->R;
	c->ulysses_degree = (int)it->U;
	c->rotate = it->R > 1 ? it->rotate : CPA_ROTATE_P2P;
	c->split = it->split;
	c->split_kv = it->split_kv;
	if (it->split == CPA_SPLIT_GIVEN) {
		c->sizes = made->sizes;
		c->nsizes = give_all(it->seed, problem, false, P, made->sizes);
	}
	if (it->split_kv == CPA_SPLIT_GIVEN) {
		c->sizes_kv = made->sizes_kv;
		c->nsizes_kv = give_all(it->seed + (it->layout != CPA_LAYOUT_FUSED), problem,
			true, P, made->sizes_kv);
	}
	c->order = it->order;
	c->heads = it->heads;
	if (it->heads == CPA_HEADS_GIVEN)
		c->head_counts = give(it->seed + 2, problem->Hq, it->U, made->head_counts);
	c->direction = it->direction;
	c->partials = it->partials;
	c->mesh = it->mesh;
	c->guidance = it->guidance.nbranches;
	if (wide)
		c->partial_dtype = CPA_DTYPE_FP64;
}
