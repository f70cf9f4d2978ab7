/*
 * test_spoil_cases.h - what faulty systems did with an ATTEND, one function a fault.  Each is
 * for the lengths and meshes of the cases in test_problem_space.c.
 */
#ifndef CPA_TEST_SPOIL_CASES_H
#define CPA_TEST_SPOIL_CASES_H

#include <math.h>

#include "harness/test_spoil.h"

/* ---- B: lengths and padding ---- */

/* 29 keys on 4 are 8, 7, 7, 7, and on 2 rings 15, 14: short blocks are padded to the longest.
 */
static inline bool is_short(const struct call *call)
{
	return call->attend.nk == 7 || call->attend.nk == 14;
}

static inline void spoil_zero_pad(struct call *call)
{
	if (is_short(call))
		append_keys(call, -1, 1);
}

static inline void spoil_stale_pad(struct call *call)
{
	if (is_short(call))
		append_keys(call, 0, 1);
}

/* 5, 4, 4 each padded to 5, and the first 13 of 15 taken. */
static inline void spoil_inner_pads(struct call *call)
{
	static const int64_t rows[13] = {0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 9, 10, 11};
	if (call->attend.nk == 13)
		rearrange(call, rows, 13);
}

static inline void spoil_shifted_mask(struct call *call)
{
	static uint8_t flags[13];
	const uint8_t *right = call->problem.rule.mask.data;
	for (int j = 0; j < 13; j++)
		flags[j] = j < 9 ? right[j] : j == 9 ? 0 : right[j - 1];
	call->problem.rule.mask.data = flags;
}

static inline void spoil_floored(struct call *call)
{
	static const int64_t lengths[2] = {28, 28}; /* of 30 on 4 ranks */
	call->problem.rule.key_lengths = lengths;
}

/* 6 on 4 ranks: sent as 2, 2, 1, 1 and unpacked as 2, 2, 2, 0. */
static inline void spoil_two_rules(struct call *call)
{
	static const int64_t rows[6] = {0, 1, 2, 3, 4, -1};
	if (call->attend.nk == 6)
		rearrange(call, rows, 6);
}

/* Documents of 5 and 7, each padded to a multiple of 4, unpacked as if they were not. */
static inline void spoil_pads_left(struct call *call)
{
	static const int64_t rows[12] = {0, 1, 2, 3, 4, -1, -1, -1, 5, 6, 7, 8};
	if (call->attend.nk == 12)
		rearrange(call, rows, 12);
}

/* 14 queries after a prefix of 16: the whole length less the queries padded to 16. */
static inline void spoil_padded_prefix(struct call *call)
{
	call->problem.rule.offset = call->problem.Skv - 16;
}

/* ---- C: masks, order, scale ---- */

static inline int64_t index_id(const struct call *call, int64_t token, int64_t index)
{
	(void)call;
	(void)token;
	return index;
}

static inline void spoil_local_ids(struct call *call)
{
	call->attend.q_tokens = renumber(call, &call->attend.q_tokens, index_id);
	call->attend.k_tokens = renumber(call, &call->attend.k_tokens, index_id);
}

static inline void spoil_unmasked_others(struct call *call)
{
	call->problem.rule.causal &= is_own(call);
}

static inline void spoil_unmasked_own(struct call *call)
{
	call->problem.rule.causal &= !is_own(call);
}

/* Where 32 tokens on 4 ranks in zigzag order stand when shards are laid one behind the other.
 */
static inline int64_t natural_id(const struct call *call, int64_t token, int64_t index)
{
	int64_t chunk = token / 4;
	(void)call;
	(void)index;
	return chunk < 4 ? chunk * 8 + token % 4 : (7 - chunk) * 8 + 4 + token % 4;
}

static inline void spoil_natural_ids(struct call *call)
{
	if (call->attend.nk == 32)
		return; /* one rank has nothing to reorder */
	call->attend.q_tokens = renumber(call, &call->attend.q_tokens, natural_id);
	call->attend.k_tokens = renumber(call, &call->attend.k_tokens, natural_id);
}

static inline void spoil_reversed_rows(struct call *call)
{
	reverse(&call->attend.o, &call->attend.o.token, call->attend.nq);
	reverse(&call->attend.lse, &call->attend.lse.token, call->attend.nq);
}

static inline void spoil_offset_up(struct call *call)
{
	call->problem.rule.offset++;
}

static inline void spoil_offset_down(struct call *call)
{
	call->problem.rule.offset--;
}

static inline void spoil_offset_lost(struct call *call)
{
	call->problem.rule.offset = 0;
}

static inline void spoil_no_window(struct call *call)
{
	call->problem.rule.window = false;
}

static inline void spoil_hidden_others(struct call *call)
{
	if (is_other(call))
		hide_keys(call);
}

static inline void spoil_no_documents(struct call *call)
{
	if (is_other(call))
		call->problem.rule.documents = NULL;
}

static inline void spoil_no_mask(struct call *call)
{
	call->problem.rule.mask.kind = CPA_MASK_NONE;
}

static inline void spoil_no_lengths(struct call *call)
{
	call->problem.rule.key_lengths = NULL;
}

static inline void spoil_not_causal(struct call *call)
{
	call->problem.rule.causal = false;
}

/* Head h of the rank reads row h of the mask, whichever its first head is. */
static inline void spoil_local_mask_heads(struct call *call)
{
	struct cpa_mask *mask = &call->problem.rule.mask;
	int64_t H = call->problem.Hq, nkeys = call->problem.Skv,
		first = call->attend.heads.start;
	uint8_t *flags = cpa_arena_alloc(&call->arena, (size_t)(H * nkeys));
	assert_non_null(flags);
	for (int64_t i = 0; i < H * nkeys; i++)
		flags[i] =
			((const uint8_t *)mask->data)[(i / nkeys + H - first) % H * mask->head +
						      i % nkeys * mask->key];
	mask->data = flags;
	mask->head = nkeys;
	mask->key = 1;
}

static inline void spoil_scale_lost(struct call *call)
{
	call->problem.scale = 1 / sqrt((double)call->problem.D);
}

static inline void spoil_scale_twice(struct call *call)
{
	call->problem.scale *= call->problem.scale;
}

/* ---- D: layout, heads ---- */

static inline void spoil_reversed_heads(struct call *call)
{
	int64_t n = call->attend.heads.end - call->attend.heads.start;
	reverse(&call->attend.o, &call->attend.o.head, n);
	reverse(&call->attend.lse, &call->attend.lse.head, n);
}

static inline void spoil_mixed_batch(struct call *call)
{
	int64_t n = call->attend.batches.end - call->attend.batches.start;
	reverse(&call->attend.k, &call->attend.k.batch, n);
	reverse(&call->attend.v, &call->attend.v.batch, n);
}

static inline void spoil_strides_of_q(struct call *call)
{
	exchange_strides(&call->attend.q, call->attend.nq, 2);
}

/* Rows of k from the first whose offset no longer fits come from the start again. */
static inline void spoil_wrapped_offsets(struct call *call)
{
	int64_t rows[64];
	for (int64_t i = 0; i < call->attend.nk; i++)
		rows[i] = i % 8;
	call->attend.k = take_rows(
		call, &call->attend.k, call->problem.D, rows, call->attend.nk);
}

static inline void spoil_gathered_along_batch(struct call *call)
{
	exchange_strides(&call->attend.o, call->attend.nq, 2);
	exchange_strides(&call->attend.lse, call->attend.nq, 2);
}

static inline void spoil_strides_of_v(struct call *call)
{
	exchange_strides(&call->attend.v, call->attend.nk, 2);
}

static inline void spoil_other_group(struct call *call)
{
	reverse(&call->attend.k, &call->attend.k.head, nkv_heads(call));
	reverse(&call->attend.v, &call->attend.v.head, nkv_heads(call));
}

static inline int64_t tiled(const struct call *call, int64_t h)
{
	return (h - call->attend.heads.start) % nkv_heads(call);
}

static inline void spoil_tiled_heads(struct call *call)
{
	call->kv_of = tiled;
}

/* 6 query and 3 key heads on 2 ranks, key heads padded to 4: 0 0 1 2 2 and a pad. */
static inline int64_t padded_ratio(const struct call *call, int64_t h)
{
	static const int64_t map[6] = {0, 0, 1, 2, 2, 2};
	return map[h] - call->attend.kv_first;
}

static inline void spoil_padded_ratio(struct call *call)
{
	call->kv_of = padded_ratio;
}

/* ---- E: joint sequences and groups ---- */

static inline void spoil_text_twice(struct call *call)
{
	if (is_text(call))
		append_keys(call, 0, call->attend.nk);
}

static inline void spoil_text_hidden(struct call *call)
{
	if (is_text(call))
		hide_keys(call);
}

static inline int64_t rear_id(const struct call *call, int64_t token, int64_t index)
{
	(void)index;
	return token + call->problem.Skv - 6;
}

static inline void spoil_text_at_rear(struct call *call)
{
	if (is_text(call) && cpa_spans_min(&call->attend.q_tokens) >= 6)
		call->attend.k_tokens = renumber(call, &call->attend.k_tokens, rear_id);
}

/* 32 tokens on 4 ranks, 8 each: ranks 0 and 1 never meet 2 and 3. */
static inline void spoil_half_groups(struct call *call)
{
	if (is_other(call) && cpa_spans_min(&call->attend.q_tokens) / 16 !=
				      cpa_spans_min(&call->attend.k_tokens) / 16)
		hide_keys(call);
}

/* A shard is cut by 4 once more, and the first piece taken for all of it. */
static inline void spoil_split_twice(struct call *call)
{
	struct cpa_attend *a = &call->attend;
	a->nk /= 4;
	a->k_tokens = cpa_spans_pick(&call->arena, &a->k_tokens, 0, a->nk, 1);
}

/* The text of the last ring rank is all zeros. */
static inline void spoil_text_of_last(struct call *call)
{
	static const int64_t zeros[6] = {-1, -1, -1, -1, -1, -1};
	if (is_text(call) && cpa_spans_min(&call->attend.q_tokens) >= 24)
		rearrange(call, zeros, call->attend.nk);
}

/* Keys rotated by another position than their own; they come rotated by their own. */
static inline void turn_keys(struct call *call, int64_t (*position)(const struct call *, int64_t token))
{
	struct cpa_attend *a = &call->attend;
	struct cpa_rope rope = {.D = call->problem.D, .base = 100, .pairs = CPA_ROPE_HALF};
	int64_t rows[64];
	for (int64_t i = 0; i < a->nk; i++)
		rows[i] = i;
	a->k = take_rows(call, &a->k, call->problem.D, rows, a->nk);
	for (int64_t i = 0; i < a->nk; i++) {
		int64_t token = cpa_spans_token(&a->k_tokens, i);
		cpa_ref_rope(&rope, position(call, token) - token, a->k.token / rope.D, a->k.dtype,
			(char *)a->k.data +
				i * a->k.token * (int64_t)cpa_dtype_nbytes(a->k.dtype));
	}
}

static inline int64_t position_in_block(const struct call *call, int64_t token)
{
	return token - cpa_spans_min(&call->attend.k_tokens);
}

/* 32 tokens in 4 contiguous shards, with the frequencies of zigzag ones: chunks i and 7 - i. */
static inline int64_t position_in_zigzag(const struct call *call, int64_t token)
{
	int64_t chunk = token / 4 % 2 ? 7 - token / 8 : token / 8;
	(void)call;
	return chunk * 4 + token % 4;
}

static inline void spoil_local_positions(struct call *call)
{
	turn_keys(call, position_in_block);
}

static inline void spoil_zigzag_positions(struct call *call)
{
	turn_keys(call, position_in_zigzag);
}

#endif
