/*
 * check_pieces.h - the pieces of one buffer; private to the checker.
 */
#ifndef CPA_CHECK_PIECES_H
#define CPA_CHECK_PIECES_H

#include "dist/check.h"

/* Adds a piece that meets none of the list; its step is 1 when it has one token.  O(log pieces) in a
 * lane.  False: out of memory. */
bool cpa_pieces_add(struct cpa_piece_list *list, const struct cpa_piece_state *piece);
/*
 * The piece that is exactly this box, where one piece of the same batches and heads has all of it: that
 * piece is cut then.  NULL: there is none, the box has a step, or *out_of_memory.  Valid until the list is
 * changed.
 */
struct cpa_piece_state *cpa_pieces_cut_out(
	struct cpa_piece_list *list, const struct cpa_box *box, bool *out_of_memory);
/* Takes out of the list into met, from its start, all pieces that may have an element in common with
 * the box: between its first and its last token some do not.  False: out of memory. */
bool cpa_pieces_take(struct cpa_piece_list *list, const struct cpa_box *box, struct cpa_met *met);

#endif
