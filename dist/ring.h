/*
 * ring.h - what the parts of the ring stage share; private to dist/.
 *
 * stage_ring.c    the stage: rows, partials, one ATTEND for each run of rows with equal needs, the sink
 * ring_rotate.c   p2p and allgather
 * ring_direct.c   direct
 */
#ifndef CPA_RING_H
#define CPA_RING_H

#include "dist/stages.h"

/* Query rows that are worked on here: the split rows of the block, or a slice of the replicated ones. */
struct cpa_ring_part {
	struct cpa_operand q;                  /* what is attended */
	struct cpa_operand o, lse;             /* the accumulator; buffer -1: no rows */
	struct cpa_operand block_o, block_lse; /* the partial of one block; made when first needed */
	const char *names[4];                  /* of those four buffers */
};

/* Rows [start, end) of a part with one history: which keys their partial has seen. */
struct cpa_ring_rows {
	struct cpa_ring_part *part;
	struct cpa_range index;
	struct cpa_span span; /* their tokens */
	struct cpa_spans seen;
	bool started;         /* the accumulator holds a partial */
};

struct cpa_ring {
	struct cpa_plan *plan;
	int R;
	struct cpa_ring_part parts[2];
	struct cpa_ring_rows *rows;
	int nrows;
	bool direct; /* a first partial may be written to the accumulator */
	/* The rows that were picked last: one op names the same ones several times, then the next. */
	const struct cpa_ring_part *picked_part;
	struct cpa_range picked;
	struct cpa_spans picked_tokens;
	struct cpa_operand slot_k[2], slot_v[2];
	struct cpa_operand all_k, all_v;
	int64_t *offset; /* [R+1] of the blocks in all_k */
};

/* The ring rank whose block is worked on at a hop. */
int cpa_ring_block_at_hop(const struct cpa_ring *ring, int hop);
int64_t cpa_ring_block_size(const struct cpa_ring *ring, int j);
struct cpa_content cpa_ring_block_content(const struct cpa_ring *ring, int j, enum cpa_tensor tensor);
/* Attends what the rows need of these keys and merges; an empty operand is nothing. */
void cpa_ring_attend_block(struct cpa_ring *ring, int hop, const struct cpa_operand *k,
	const struct cpa_operand *v);

void cpa_ring_p2p(struct cpa_ring *ring);
void cpa_ring_allgather(struct cpa_ring *ring);
void cpa_ring_direct(struct cpa_ring *ring);

#endif
