/*
 * check.h - what the parts of the checker share; private to dist/.
 *
 * check.c          one rank after another, what it is given and owes; the life of a check
 * check_ops.c      rule 1 for each kind of operation
 * check_content.c  sentences, the shape of operands, when a partial is finished
 * check_state.c    what stands where on one rank: pieces of buffers; races (rule 2)
 * check_pieces.c   where the pieces of a buffer are kept
 * check_peers.c    messages and collectives (rule 3)
 * check_order.c    the event graph (rule 4)
 */
#ifndef CPA_CHECK_H
#define CPA_CHECK_H

#include "dist/schedule.h"

/* ---- one rank ---- */

/* A written part of a buffer: box, what was written, who wrote it and who has read it since. */
struct cpa_piece_state {
	struct cpa_box box;
	const struct cpa_operand *written; /* the box is a part of this one */
	const struct cpa_spans_index *index; /* of its tokens; NULL: they are few */
	int writer_step, writer_op;      /* -1: an input */
	int reader_step[CPA_NQUEUES];    /* latest reader on each queue; -1: none */
	int reader_op[CPA_NQUEUES];
};
/* The pieces of one buffer, which are disjoint. */
struct cpa_piece_lane;
struct cpa_piece_list {
	struct cpa_piece_lane *lanes;
	int n, capacity;
};
void cpa_pieces_fini(struct cpa_piece_list *list);
/* Pieces that were taken out of a list. */
struct cpa_met {
	struct cpa_piece_state *at;
	int n, capacity;
};

struct cpa_check_rank_state {
	const struct cpa_partition *part;
	const struct cpa_schedule *schedule;
	struct cpa_piece_list *pieces;   /* [nbuffers] */
	struct cpa_met met;              /* scratch; freed with the pieces */
	int (*clock)[CPA_NQUEUES];       /* [nsteps]: latest step of each queue ended before this one */
	int step, op;                    /* where we are */
	bool in_place;                   /* this op may write what it reads (MERGE) */
	struct cpa_arena arena;          /* scratch of this rank */
	struct cpa_fault *fault;
	bool out_of_memory;
};

/* Records the first fault; always returns false.  Text: "rank R op N (name): " and the rest. */
bool cpa_check_fail(struct cpa_check_rank_state *state, enum cpa_fault_rule rule, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The operands of an operation fit each other, by its kind. */
bool cpa_check_kind(struct cpa_check_rank_state *state, const struct cpa_op *op);
/* The box lies in its buffer and has the shape and dtype of its content. */
bool cpa_check_operand(struct cpa_check_rank_state *state, const struct cpa_operand *operand);
/* Every part of the box is written, holds what the operand names, and its writer is ordered before. */
bool cpa_check_read(struct cpa_check_rank_state *state, const struct cpa_operand *operand);
/* Replaces what stands there; its writer and readers must be ordered before.  The operand stays borrowed
 * until its pieces are gone. */
bool cpa_check_write(struct cpa_check_rank_state *state, const struct cpa_operand *operand);
/* Like cpa_check_write(), but into a part of a buffer where nothing stands; step -1 for an input. */
bool cpa_check_stand(struct cpa_check_rank_state *state, const struct cpa_operand *operand, int step,
	int op);
bool cpa_check_clocks(struct cpa_check_rank_state *state);
/* The mask lets no row of these tokens and batches see a key outside `keys`; else the key. */
bool cpa_check_is_finished(const struct cpa_check_rank_state *state, const struct cpa_content *content,
	int64_t *row, int64_t *key);
bool cpa_content_same_range(struct cpa_range a, struct cpa_range b);
/* Same tokens (in order), heads and batches, whatever the tensor and dtype. */
bool cpa_content_same_place(const struct cpa_content *a, const struct cpa_content *b);
/* Both finished, or partials that have seen the same keys, the sink included. */
bool cpa_content_same_seen(const struct cpa_content *a, const struct cpa_content *b);
/* "k tokens 0-3 heads 0-1 batches 0-0 fp32" for sentences. */
void cpa_content_print(const struct cpa_content *content, char *text, size_t size);

/* ---- all ranks ---- */

struct cpa_peers;
struct cpa_peers *cpa_peers_create(int W);
void cpa_peers_destroy(struct cpa_peers *peers);
/* Keeps the messages, collectives and steps of a rank.  False: a fault, or out of memory. */
bool cpa_peers_add(struct cpa_peers *peers, const struct cpa_schedule *schedule, struct cpa_fault *fault,
	bool *out_of_memory);
bool cpa_peers_match(struct cpa_peers *peers, struct cpa_fault *fault);
bool cpa_peers_order(struct cpa_peers *peers, bool merge_queues, struct cpa_fault *fault,
	bool *out_of_memory);

#endif
