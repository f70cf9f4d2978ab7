/*
 * check_pieces.c - the pieces of a buffer, so that those which meet a box are found fast.
 *
 * Pieces that agree in batches, heads and step lie in one lane.  They are disjoint, so that a lane is
 * a line: its pieces in their order, in chunks that are split when they are full.
 */
#include "dist/check_pieces.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16 };

struct chunk {
	int64_t first; /* token index of at[0] */
	struct cpa_piece_state *at;
	int n, capacity;
};
struct cpa_piece_lane {
	struct cpa_range batches, heads;
	int64_t step, rest; /* token index = rest modulo step */
	struct chunk *chunks; /* none is empty */
	int n, capacity;
	int found; /* the chunk that was looked for last: often the next one too */
};

static bool grow(void **array, int n, int *capacity, int first, size_t size)
{
	if (n < *capacity)
		return true;
	int larger = *capacity ? 2 * *capacity : first;
	void *moved = realloc(*array, (size_t)larger * size);
	if (!moved)
		return false;
	*array = moved;
	*capacity = larger;
	return true;
}

void cpa_pieces_fini(struct cpa_piece_list *list)
{
	for (int i = 0; i < list->n; i++) {
		for (int c = 0; c < list->lanes[i].n; c++)
			free(list->lanes[i].chunks[c].at);
		free(list->lanes[i].chunks);
	}
	free(list->lanes);
	*list = (struct cpa_piece_list){0};
}

static struct cpa_piece_lane lane_of(const struct cpa_box *box)
{
	int64_t step = box->ntokens == 1 ? 1 : box->step;
	return (struct cpa_piece_lane){.batches = {box->batch, box->batch + box->nbatches},
		.heads = {box->head, box->head + box->nheads},
		.step = step,
		.rest = box->token % step};
}

static struct cpa_piece_lane *known_lane(
	const struct cpa_piece_list *list, const struct cpa_box *box)
{
	struct cpa_piece_lane wanted = lane_of(box);
	for (int i = 0; i < list->n; i++) {
		struct cpa_piece_lane *lane = &list->lanes[i];
		if (cpa_content_same_range(lane->batches, wanted.batches) &&
			cpa_content_same_range(lane->heads, wanted.heads) &&
			lane->step == wanted.step && lane->rest == wanted.rest)
			return lane;
	}
	return NULL;
}

static struct cpa_piece_lane *find_lane(struct cpa_piece_list *list, const struct cpa_box *box)
{
	struct cpa_piece_lane *known = known_lane(list, box);
	if (known)
		return known;
	if (!grow((void **)&list->lanes, list->n, &list->capacity, 4, sizeof *list->lanes))
		return NULL;
	list->lanes[list->n] = lane_of(box);
	return &list->lanes[list->n++];
}

/* The last chunk that starts at or before a token index; the first when none does. */
static int chunk_at(struct cpa_piece_lane *lane, int64_t token)
{
	int low = 0, high = lane->n;
	for (int near = lane->found; near < lane->found + 2 && near < lane->n; near++)
		if (lane->chunks[near].first <= token &&
			(near + 1 == lane->n || token < lane->chunks[near + 1].first))
			return near;
	while (high - low > 1) {
		int middle = low + (high - low) / 2;
		if (lane->chunks[middle].first <= token)
			low = middle;
		else
			high = middle;
	}
	lane->found = low;
	return low;
}

/* The first piece of a chunk that starts behind a token index. */
static int piece_behind(const struct chunk *chunk, int64_t token)
{
	int low = -1, high = chunk->n;
	while (high - low > 1) {
		int middle = low + (high - low) / 2;
		if (chunk->at[middle].box.token <= token)
			low = middle;
		else
			high = middle;
	}
	return high;
}

/* ---- adding ---- */

static bool insert_chunk(struct cpa_piece_lane *lane, int index)
{
	if (!grow((void **)&lane->chunks, lane->n, &lane->capacity, 1, sizeof *lane->chunks))
		return false;
	memmove(&lane->chunks[index + 1], &lane->chunks[index],
		(size_t)(lane->n - index) * sizeof *lane->chunks);
	lane->chunks[index] = (struct chunk){.at = NULL};
	lane->n++;
	return true;
}

/* Moves the upper half of a full chunk into a new one behind it. */
static bool split_chunk(struct cpa_piece_lane *lane, int index)
{
	struct cpa_piece_state *upper = malloc(CHUNK * sizeof *upper);
	if (!upper || !insert_chunk(lane, index + 1)) {
		free(upper);
		return false;
	}
	struct chunk *full = &lane->chunks[index];
	int half = full->n / 2;
	memcpy(upper, full->at + half, (size_t)(full->n - half) * sizeof *upper);
	lane->chunks[index + 1] =
		(struct chunk){upper[0].box.token, upper, full->n - half, CHUNK};
	full->n = half;
	return true;
}

bool cpa_pieces_add(struct cpa_piece_list *list, const struct cpa_piece_state *piece)
{
	struct cpa_piece_lane *lane = find_lane(list, &piece->box);
	int64_t token = piece->box.token;
	if (!lane || (lane->n == 0 && !insert_chunk(lane, 0)))
		return false;
	int index = chunk_at(lane, token);
	if (lane->chunks[index].n == CHUNK) {
		if (!split_chunk(lane, index))
			return false;
		index += lane->chunks[index + 1].first <= token;
	}
	struct chunk *chunk = &lane->chunks[index];
	if (!grow((void **)&chunk->at, chunk->n, &chunk->capacity, 4, sizeof *chunk->at)) {
		if (chunk->n == 0) /* no chunk stays empty */
			lane->n--;
		return false;
	}
	int place = piece_behind(chunk, token);
	memmove(&chunk->at[place + 1], &chunk->at[place],
		(size_t)(chunk->n - place) * sizeof *chunk->at);
	chunk->at[place] = *piece;
	chunk->first = chunk->at[0].box.token;
	chunk->n++;
	return true;
}

/* ---- cutting one out ---- */

/* The piece of a lane that starts at or before a token index; NULL: none does. */
static struct cpa_piece_state *piece_at(struct cpa_piece_lane *lane, int64_t token)
{
	if (lane->n == 0)
		return NULL;
	struct chunk *chunk = &lane->chunks[chunk_at(lane, token)];
	int behind = piece_behind(chunk, token);
	return behind > 0 ? &chunk->at[behind - 1] : NULL;
}

/* Adds the part [token, end) of a piece without a step. */
static bool add_part(
	struct cpa_piece_list *list, struct cpa_piece_state piece, int64_t token, int64_t end)
{
	piece.box.token = token;
	piece.box.ntokens = end - token;
	return token >= end || cpa_pieces_add(list, &piece);
}

struct cpa_piece_state *cpa_pieces_cut_out(
	struct cpa_piece_list *list, const struct cpa_box *box, bool *out_of_memory)
{
	struct cpa_piece_lane *lane = known_lane(list, box);
	struct cpa_piece_state *piece = lane && lane->step == 1 ? piece_at(lane, box->token) : NULL;
	if (!piece || piece->box.token + piece->box.ntokens < box->token + box->ntokens)
		return NULL;
	const struct cpa_piece_state old = *piece;
	int64_t token = box->token, end = token + box->ntokens;
	int64_t old_end = old.box.token + old.box.ntokens;
	if (old.box.token == token && old_end == end)
		return piece;
	/* What starts where the piece did stays in its place. */
	bool front = old.box.token < token;
	piece->box.ntokens = front ? token - old.box.token : end - token;
	if ((front && !add_part(list, old, token, end)) || !add_part(list, old, end, old_end)) {
		*out_of_memory = true;
		return NULL;
	}
	return piece_at(lane, token);
}

/* ---- taking ---- */

static bool disjoint(struct cpa_range a, int64_t start, int64_t n)
{
	return a.end <= start || start + n <= a.start;
}

static int64_t last_token(const struct cpa_box *box)
{
	return box->token + (box->ntokens - 1) * box->step;
}

/* Takes pieces [from, to) of a chunk out; the chunk may be empty then. */
static bool take(struct cpa_piece_lane *lane, int index, int from, int to, struct cpa_met *met)
{
	struct chunk *chunk = &lane->chunks[index];
	for (int i = from; i < to; i++) {
		if (!grow((void **)&met->at, met->n, &met->capacity, 16, sizeof *met->at))
			return false;
		met->at[met->n++] = chunk->at[i];
	}
	memmove(&chunk->at[from], &chunk->at[to], (size_t)(chunk->n - to) * sizeof *chunk->at);
	chunk->n -= to - from;
	if (chunk->n > 0)
		chunk->first = chunk->at[0].box.token;
	return true;
}

static void drop_empty_chunks(struct cpa_piece_lane *lane, int first, int last)
{
	while (first < last && lane->chunks[first].n > 0)
		first++;
	if (first == last)
		return;
	int n = first;
	for (int i = first; i < lane->n; i++) {
		if (i < last && lane->chunks[i].n == 0)
			free(lane->chunks[i].at);
		else
			lane->chunks[n++] = lane->chunks[i];
	}
	lane->n = n;
}

/* Pieces of a lane are disjoint, so of those that start before the box only the last can reach it. */
static bool take_from_lane(
	struct cpa_piece_lane *lane, const struct cpa_box *box, struct cpa_met *met)
{
	int first = chunk_at(lane, box->token), index = first;
	int64_t last = last_token(box);
	bool ok = true;
	for (; ok && index < lane->n && lane->chunks[index].first <= last; index++) {
		struct chunk *chunk = &lane->chunks[index];
		int from = piece_behind(chunk, box->token), to = piece_behind(chunk, last);
		if (from > 0 && last_token(&chunk->at[from - 1].box) >= box->token)
			from--;
		ok = from >= to || take(lane, index, from, to, met);
	}
	drop_empty_chunks(lane, first, index);
	return ok;
}

bool cpa_pieces_take(
	struct cpa_piece_list *list, const struct cpa_box *box, struct cpa_met *met)
{
	int64_t step = box->ntokens == 1 ? 1 : box->step;
	met->n = 0;
	for (int i = 0; i < list->n; i++) {
		struct cpa_piece_lane *lane = &list->lanes[i];
		bool apart = disjoint(lane->batches, box->batch, box->nbatches) ||
			disjoint(lane->heads, box->head, box->nheads) ||
			(lane->step == step && box->token % step != lane->rest);
		if (lane->n > 0 && !apart && !take_from_lane(lane, box, met))
			return false;
	}
	return true;
}
