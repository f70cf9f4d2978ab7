/*
 * comm_flight.c - how far the operations of one group are.
 */
#include "dist/comm_flight.h"

#include <inttypes.h>
#include <stdio.h>

void cpa_flight_prepare(struct cpa_flight *flight, int rank, struct cpa_near *near)
{
	struct cpa_arena *arena = &flight->list.arena;
	size_t n = (size_t)flight->list.n;

	flight->rank = rank;
	flight->near = near;
	flight->transfers = cpa_arena_alloc(arena, n * sizeof *flight->transfers);
	flight->moves = cpa_arena_alloc(arena, n * sizeof *flight->moves);
}

void cpa_flight_fail(struct cpa_flight *flight, int i, const char *what)
{
	flight->nleft--;
	if (flight->state != CPA_FAILED)
		cpa_transfer_fail(flight->transfers[i], flight->rank, what, &flight->error);
	flight->state = CPA_FAILED;
}

/* Both sides have made the same plan, so any other length is a fault. */
static void fail_length(struct cpa_flight *flight, int i, uint64_t nbytes)
{
	char text[64];

	if (nbytes > flight->transfers[i]->nbytes)
		snprintf(text, sizeof text, "the message that came is longer");
	else
		snprintf(
			text, sizeof text, "the message that came has %" PRIu64 " bytes", nbytes);
	cpa_flight_fail(flight, i, text);
}

void cpa_flight_came(struct cpa_flight *flight, int i, size_t nbytes)
{
	const struct cpa_transfer *t = flight->transfers[i];
	struct cpa_near_move *move = &flight->moves[i];

	if (!cpa_near_is_note(flight->near, t->rank, t->data, nbytes)) {
		if (nbytes == t->nbytes)
			flight->nleft--;
		else
			fail_length(flight, i, nbytes);
	} else if (cpa_near_accept(flight->near, t->rank, t->data, t->nbytes, move) != CPA_OK) {
		if (move->note.nbytes != t->nbytes)
			fail_length(flight, i, move->note.nbytes);
		else
			cpa_flight_fail(flight, i,
				"the memory it lies in cannot be read here (with CPATTN_SHARE=0 "
				"messages go another way)");
	}
}

void cpa_flight_went(struct cpa_flight *flight, int i)
{
	if (flight->moves[i].offered) {
		flight->moves[i].sent = true;
		return;
	}
	cpa_transfer_deliver(flight->transfers[i]);
	flight->nleft--;
}

void cpa_flight_move(struct cpa_flight *flight, size_t *budget)
{
	for (int i = 0; i<flight->n && * budget> 0; i++) {
		const struct cpa_transfer *t = flight->transfers[i];
		struct cpa_near_move *move = &flight->moves[i];

		if (move->from ? cpa_near_copy(flight->near, t->rank, t->data, move, budget)
			       : move->sent && cpa_near_taken(flight->near, move))
			flight->nleft--;
	}
	if (flight->nleft == 0 && flight->state == CPA_PENDING)
		flight->state = CPA_DONE;
}
