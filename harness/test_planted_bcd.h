/*
 * test_planted_bcd.h - faults of lengths, masks, order, layout and heads on any problem and mesh:
 * each spoils ATTENDs or moves what ranks return.  Those that fit any problem are in
 * test_spoil_cases.h already.
 */
#ifndef CPA_TEST_PLANTED_BCD_H
#define CPA_TEST_PLANTED_BCD_H

#include "harness/test_planted_run.h"
#include "harness/test_spoil_cases.h"

/* ---- B ---- */

static inline int64_t longest_shard(void)
{
	int64_t longest = 0;

	for (int rank = 0; rank < now.P; rank++) {
		struct cpa_spans tokens = shard(rank);
		int64_t n = cpa_spans_ntokens(&tokens);

		longest = n > longest ? n : longest;
	}
	return longest;
}

static inline int64_t npads(const struct call *call)
{
	return now.U * longest_shard() - call->attend.nk;
}

static inline void spoil_pads_of_zeros(struct call *call)
{
	if (npads(call) > 0)
		append_keys(call, -1, npads(call));
}

static inline void spoil_pads_of_first_rows(struct call *call)
{
	int64_t longest = now.R > 1 ? 0 : call->attend.nk, n;

	for (int r = 0; r < now.R; r++) {
		n = cpa_spans_ntokens(&now.ranks.partition->kv_block[r]);
		longest = n > longest ? n : longest;
	}
	if (call->attend.nk < longest)
		append_keys(call, 0, longest - call->attend.nk);
}

/* One slot for all hops: a short block leaves the end of the block before it. */
static inline void spoil_left_in_slot(struct call *call)
{
	int64_t nb = call->attend.batches.end - call->attend.batches.start, nh = nkv_heads(call),
		nk = call->attend.nk, D = now.problem.D;
	int own = query_ring(call), r = key_ring(call), hop = (own - r + now.R) % now.R;
	const struct cpa_spans *blocks = now.ranks.partition->kv_block;
	int64_t before = -1;

	/* Lengths differ by one: hop h is on block own - h. */
	for (int h = hop - 1; h >= 0 && before < 0; h--) {
		const struct cpa_spans *block = &blocks[(own - h + now.R) % now.R];

		if (cpa_spans_ntokens(block) > nk)
			before = cpa_spans_token(block, nk);
	}
	if (before < 0)
		return;
	append_keys(call, 0, 1);
	for (int64_t i = 0; i < nb * nh * D; i++)
		for (int tensor = 1; tensor < 3; tensor++) {
			const struct cpa_array *to = tensor == 1 ? &call->attend.k
								 : &call->attend.v;
			int64_t b = call->attend.batches.start + i / D / nh,
				h = call->attend.kv_first + i / D % nh;

			cpa_store(to->dtype, to->data, nk * to->token + i,
				cpa_load(to->dtype, now.data[tensor],
					((b * now.problem.Skv + before) * now.problem.Hkv + h) *
							D +
						i % D));
		}
}

/* Empty shards are met with the own block. */
static inline void spoil_empty_blocks(struct call *call)
{
	int64_t n = 0;

	for (int r = 0; r < now.R; r++)
		n += cpa_spans_ntokens(&now.ranks.partition->kv_block[r]) == 0;
	if (query_ring(call) == key_ring(call) && n > 0)
		append_keys(call, -1, n * longest_shard());
}

static inline struct source listed_token(struct source x)
{
	x.token = now.list[x.token];
	return x;
}

static inline void spoil_listed_keys(struct call *call)
{
	from_elsewhere(call, listed_token);
}

static inline void move_listed_rows(void)
{
	move_rows(listed_token);
}

/* Shard after shard in slots of the given sizes; what does not fit is lost, what is missing is
 * -1.  In contiguous order. */
static inline void list_slots(const int64_t *sizes)
{
	int64_t at = 0;

	for (int rank = 0; rank < now.P; rank++) {
		struct cpa_spans tokens = shard(rank);
		int64_t n = cpa_spans_ntokens(&tokens);

		for (int64_t i = 0; i < sizes[rank]; i++)
			if (at < now.problem.Skv)
				now.list[at++] = i < n ? cpa_spans_token(&tokens, i) : -1;
	}
	while (at < now.problem.Skv)
		now.list[at++] = -1;
}

static inline void list_padded(void)
{
	int64_t sizes[16];

	for (int rank = 0; rank < now.P; rank++)
		sizes[rank] = longest_shard();
	list_slots(sizes);
}

/* Sent balanced, unpacked by ceil(S/P). */
static inline void list_ceil(void)
{
	int64_t sizes[16], S = now.problem.Skv, each = (S + now.P - 1) / now.P;

	for (int rank = 0; rank < now.P; rank++, S -= sizes[rank - 1])
		sizes[rank] = S < each ? S : each;
	list_slots(sizes);
}

static inline void list_packed(void)
{
	const struct cpa_rule *rule = &now.problem.rule;
	int64_t at = 0;

	for (int64_t d = 0; d < rule->ndocuments; d++) {
		int64_t t = rule->documents[d], n = 0;

		for (; n % 4 != 0 || t < rule->documents[d + 1]; n++, t++)
			if (at < now.problem.Skv)
				now.list[at++] = t < rule->documents[d + 1] ? t : -1;
	}
}

static inline void list_lost_rows(void)
{
	int64_t S = now.problem.Sq;

	for (int64_t t = 0; t < S; t++)
		now.list[t] = t < S / now.P * now.P ? t : -1;
}

static inline void spoil_floored_keys(struct call *call)
{
	static int64_t lengths[2];

	lengths[0] = lengths[1] = now.problem.Skv / now.P * now.P;
	call->problem.rule.key_lengths = lengths;
}

/* Each rank takes the first S / P of its tokens for all. */
static inline void spoil_floored_shards(struct call *call)
{
	int64_t *rows = cpa_arena_alloc(&call->arena, (size_t)call->attend.nk * sizeof *rows),
		n = 0;
	struct cpa_spans kept = {0};

	for (int64_t i = 0; i < call->attend.nk; i++) {
		int64_t t = cpa_spans_token(&call->attend.k_tokens, i);
		bool short_of = false;

		for (int rank = 0; rank < now.P; rank++) {
			struct cpa_spans tokens = shard(rank);
			int64_t at = cpa_spans_below(&tokens, t);

			short_of |= cpa_spans_ncommon_range(
					    &tokens, (struct cpa_range){t, t + 1}) &&
				at >= now.problem.Skv / now.P;
		}
		if (short_of)
			continue;
		rows[n++] = i;
		cpa_spans_append_range(&call->arena, &kept, (struct cpa_range){t, t + 1});
	}
	call->attend.k_tokens = kept;
	rearrange(call, rows, n);
}

static inline void spoil_joined_masks(struct call *call)
{
	const struct cpa_mask *mask = &now.problem.rule.mask;
	int64_t S = now.problem.Skv, B = now.problem.B;
	uint8_t *flags = cpa_arena_alloc(&call->arena, (size_t)(B * S));

	for (int64_t i = 0; i < B * S; i++)
		flags[i] = now.list[i % S] >= 0 &&
			((const uint8_t *)mask->data)[i / S * mask->batch +
				now.list[i % S] * mask->key];
	call->problem.rule.mask.data = flags;
	call->problem.rule.mask.batch = S;
}

static inline void spoil_prefix(struct call *call)
{
	call->problem.rule.offset -= 3;
}

/* ---- C ---- */

static inline bool is_later(const struct call *call)
{
	return key_ring(call) > query_ring(call);
}

static inline void spoil_local_and_skipped(struct call *call)
{
	if (is_later(call))
		hide_keys(call);
	spoil_local_ids(call);
}

static inline int64_t listed_id(const struct call *call, int64_t token, int64_t index)
{
	(void)call;
	(void)index;
	return now.ids[token];
}

static inline void spoil_listed_ids(struct call *call)
{
	call->attend.q_tokens = renumber(call, &call->attend.q_tokens, listed_id);
	call->attend.k_tokens = renumber(call, &call->attend.k_tokens, listed_id);
}

/* The blocks of the ring, one behind the other. */
static inline void number_naturally(void)
{
	int64_t at = 0;

	for (int r = 0; r < now.R; r++) {
		const struct cpa_spans *block = &now.ranks.partition->kv_block[r];

		for (int64_t i = 0; i < cpa_spans_ntokens(block); i++)
			now.ids[cpa_spans_token(block, i)] = at++;
	}
}

/* Chunks r and 2R - 1 - r of what are contiguous blocks. */
static inline void number_in_zigzag(void)
{
	int64_t each = now.problem.Skv / (2 * now.R);

	for (int64_t t = 0; t < now.problem.Skv; t++) {
		int64_t r = t / (2 * each), back = t / each % 2;

		now.ids[t] = (back ? 2 * now.R - 1 - r : r) * each + t % each;
	}
}

static inline void list_zigzag_rows(void)
{
	number_naturally();
	for (int64_t t = 0; t < now.problem.Sq; t++)
		now.list[now.ids[t]] = t;
}

static inline void spoil_top_left(struct call *call)
{
	call->attend.q_tokens = renumber(call, &call->attend.q_tokens, index_id);
}

static inline void spoil_hidden_other_rings(struct call *call)
{
	if (key_ring(call) != query_ring(call))
		hide_keys(call);
}

static inline void spoil_no_documents_at_all(struct call *call)
{
	call->problem.rule.documents = NULL;
}

static inline void spoil_short_window(struct call *call)
{
	call->problem.rule.left--;
}

/* The flags of the own block, key by key, for whichever block is met. */
static inline void spoil_own_mask(struct call *call)
{
	const struct cpa_mask *mask = &now.problem.rule.mask;
	const struct cpa_spans *own = &now.ranks.partition->kv_block[query_ring(call)];
	int64_t S = now.problem.Skv, B = now.problem.B;
	uint8_t *flags = cpa_arena_alloc(&call->arena, (size_t)(B * S));

	for (int64_t b = 0; b < B; b++)
		for (int64_t i = 0; i < call->attend.nk; i++)
			flags[b * S + cpa_spans_token(&call->attend.k_tokens, i)] =
				((const uint8_t *)mask->data)[b * mask->batch +
					cpa_spans_token(own, i) * mask->key];
	call->problem.rule.mask.data = flags;
	call->problem.rule.mask.batch = S;
}

static inline void spoil_inverted_mask(struct call *call)
{
	int64_t n = now.problem.Skv * now.problem.B;
	uint8_t *flags = cpa_arena_alloc(&call->arena, (size_t)n);

	for (int64_t i = 0; i < n; i++)
		flags[i] = !((const uint8_t *)now.problem.rule.mask.data)[i];
	call->problem.rule.mask.data = flags;
}

/* As a bias of other numbers: flags as 0 and 1, or a bias times a factor. */
static inline void take_as_bias(struct call *call, double factor)
{
	struct cpa_mask *mask = &call->problem.rule.mask;
	int64_t n = now.problem.Skv * (mask->query ? now.problem.Sq : now.problem.B);
	float *bias = cpa_arena_alloc(&call->arena, (size_t)n * sizeof *bias);

	for (int64_t i = 0; i < n; i++)
		bias[i] = (float)(factor *
			(mask->kind == CPA_MASK_BOOL ? ((const uint8_t *)mask->data)[i]
						     : cpa_load(mask->dtype, mask->data, i)));
	mask->kind = CPA_MASK_BIAS;
	mask->dtype = CPA_DTYPE_FP32;
	mask->data = bias;
}

static inline void spoil_mask_as_numbers(struct call *call)
{
	take_as_bias(call, 1.0);
}

static inline void spoil_scaled_bias(struct call *call)
{
	take_as_bias(call, now.problem.scale);
}

static inline void spoil_no_scale(struct call *call)
{
	call->problem.scale = 1.0;
}

/* ---- D ---- */

static inline struct source folded_head(struct source x)
{
	int64_t n = now.problem.Hq / now.P; /* heads of a rank come first, not ranks */

	x.head = x.head % now.P * n + x.head / now.P;
	return x;
}

static inline void move_folded_heads(void)
{
	move_rows(folded_head);
}

static inline struct source strided_row(struct source x)
{
	x.token = x.token % now.P * (now.problem.Sq / now.P) + x.token / now.P;
	return x;
}

static inline void move_strided_rows(void)
{
	move_rows(strided_row);
}

static inline void spoil_values_of_other_item(struct call *call)
{
	reverse(&call->attend.v, &call->attend.v.batch,
		call->attend.batches.end - call->attend.batches.start);
}

static inline struct source next_heads(struct source x)
{
	x.head = (x.head + now.problem.Hq / now.P) % now.problem.Hq;
	return x;
}

static inline void move_rotated_heads(void)
{
	snprintf(now.says, sizeof now.says, "head h + %d", (int)(now.problem.Hq / now.P));
	move_rows(next_heads);
}

static inline struct source next_key_head(struct source x)
{
	x.head = (x.head + 1) % now.problem.Hkv;
	return x;
}

static inline void spoil_next_key_heads(struct call *call)
{
	from_elsewhere(call, next_key_head);
}

/* 12 heads on 4 ranks: sent as 3 3 3 3, and unpacked as 4 4 4 0. */
static inline struct source split_head(struct source x)
{
	x.head = x.head % 4 < 3 ? x.head / 4 * 3 + x.head % 4 : -1;
	return x;
}

static inline void move_split_heads(void)
{
	move_rows(split_head);
}

static inline void spoil_strides_of_k(struct call *call)
{
	exchange_strides(&call->attend.k, call->attend.nk, 2);
}

/* The value rows of each rank lie head by head, and are read token by token. */
static inline struct source transposed_value(struct source x)
{
	for (int rank = 0; rank < now.P; rank++) {
		struct cpa_spans tokens = shard(rank);
		struct cpa_range one = {x.token, x.token + 1};
		int64_t at[MOST_TOKENS * 8], n = 0;

		if (!cpa_spans_ncommon_range(&tokens, one))
			continue;
		for (int64_t h = 0; h < now.problem.Hkv; h++)
			for (int64_t i = 0; i < cpa_spans_ntokens(&tokens); i++)
				at[n++] = cpa_spans_token(&tokens, i) * 8 + h;
		n = at[cpa_spans_below(&tokens, x.token) * now.problem.Hkv + x.head];
		return (struct source){x.b, n / 8, n % 8};
	}
	return x;
}

static inline void spoil_transposed_values(struct call *call)
{
	call->attend.v = take_source(call, 2, transposed_value);
}

/* Two ranks of equal size, by seed. */
static inline void list_swapped(void)
{
	int a = (int)(now.seed % (uint64_t)(now.P - 1)), b = a + 1;
	struct cpa_spans x = shard(a), y = shard(b);

	for (int64_t t = 0; t < now.problem.Skv; t++)
		now.list[t] = t;
	for (int64_t i = 0; i < cpa_spans_ntokens(&x); i++) {
		now.list[cpa_spans_token(&x, i)] = cpa_spans_token(&y, i);
		now.list[cpa_spans_token(&y, i)] = cpa_spans_token(&x, i);
	}
	snprintf(now.says, sizeof now.says, "ranks %d and %d", a, b);
}

#endif
