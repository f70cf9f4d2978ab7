/*
 * test_check_pieces.c - the pieces of a buffer, many of them, against one mark for each element.
 */
#include "dist/check_pieces.h"
#include "dist/test_cases.h"

enum { NT = 900, NH = 3, NPIECES = 40000 };

/* Which piece holds an element; 0: none.  Pieces are told apart by their writer_op. */
struct model {
	int at[NT][NH];
	int npieces;
};

static struct cpa_box random_box(uint64_t *state)
{
	int64_t step = below(state, 4) ? 1 : 1 + below(state, 3);
	struct cpa_box box = {.token = below(state, NT), .step = step, .nbatches = 1};
	int64_t most = (NT - 1 - box.token) / step + 1;
	box.ntokens = 1 + below(state, most < 12 || below(state, 20) == 0 ? (int)most : 12);
	box.head = below(state, NH);
	box.nheads = 1 + below(state, NH - (int)box.head);
	if (box.ntokens == 1)
		box.step = 1;
	return box;
}

/* Sets the elements of a box; returns how many of them were `from`. */
static int64_t mark(struct model *m, const struct cpa_box *box, int from, int to)
{
	int64_t n = 0;
	for (int64_t i = 0; i < box->ntokens; i++)
		for (int64_t h = box->head; h < box->head + box->nheads; h++) {
			int *at = &m->at[box->token + i * box->step][h];
			n += *at == from;
			*at = to;
		}
	return n;
}

static int64_t nelements(const struct cpa_box *box)
{
	return box->ntokens * box->nheads;
}

static void add(struct model *m, struct cpa_piece_list *list, const struct cpa_box *box)
{
	struct cpa_piece_state piece = {.box = *box, .writer_op = ++m->npieces};
	assert_int_equal(mark(m, box, 0, m->npieces), nelements(box));
	assert_true(cpa_pieces_add(list, &piece));
}

/* Takes what may meet a box: each piece is as the model has it, and nothing of the box stays. */
static void take(
	struct model *m, struct cpa_piece_list *list, const struct cpa_box *box, struct cpa_met *met)
{
	assert_true(cpa_pieces_take(list, box, met));
	for (int i = 0; i < met->n; i++)
		assert_int_equal(mark(m, &met->at[i].box, met->at[i].writer_op, 0),
			nelements(&met->at[i].box));
	struct model before = *m;
	assert_int_equal(mark(&before, box, 0, 0), nelements(box));
}

/* A piece that is cut out is exactly the box, and there is one when the model says so. */
static void cut_out(struct model *m, struct cpa_piece_list *list, const struct cpa_box *box)
{
	bool out_of_memory = false;
	struct cpa_piece_state *piece = cpa_pieces_cut_out(list, box, &out_of_memory);
	assert_false(out_of_memory);
	if (!piece)
		return;
	assert_true(piece->box.token == box->token && piece->box.ntokens == box->ntokens &&
		piece->box.step == box->step && piece->box.head == box->head &&
		piece->box.nheads == box->nheads);
	piece->writer_op = ++m->npieces;
	int old = m->at[box->token][box->head];
	assert_true(old != 0);
	assert_int_equal(mark(m, box, old, m->npieces), nelements(box));
}

/* Pieces that were parted keep the name of the whole, so all of a name are counted together. */
static void pieces_are_found_wherever_they_lie(void **unused)
{
	(void)unused;
	struct model m = {.npieces = 0};
	struct cpa_piece_list list = {0};
	struct cpa_met met = {0};
	uint64_t state = 8;
	int64_t ntaken = 0, ncut = 0;
	while (m.npieces < NPIECES) {
		struct cpa_box box = random_box(&state);
		int before = m.npieces;
		if (below(&state, 3) == 0)
			cut_out(&m, &list, &box);
		ncut += m.npieces - before;
		if (below(&state, 3) == 0)
			continue;
		box = random_box(&state);
		take(&m, &list, &box, &met);
		ntaken += met.n;
		add(&m, &list, &box);
	}
	assert_true(ntaken > NPIECES / 4 && ncut > 100);
	cpa_pieces_fini(&list);
	free(met.at);
}

static void pieces_in_any_order_of_arrival_are_all_found(void **unused)
{
	(void)unused;
	for (int stride = 1; stride < NT; stride += 2) {
		struct model m = {.npieces = 0};
		struct cpa_piece_list list = {0};
		struct cpa_met met = {0};
		struct cpa_box all = {.ntokens = NT, .step = 1, .nbatches = 1, .nheads = NH};
		for (int64_t i = 0; i < NT; i++) {
			struct cpa_box box = {.token = i * stride % NT,
				.ntokens = 1,
				.step = 1,
				.nbatches = 1,
				.head = 1,
				.nheads = 1};
			if (m.at[box.token][1] == 0)
				add(&m, &list, &box);
		}
		take(&m, &list, &all, &met);
		assert_int_equal(met.n, m.npieces);
		for (int i = 1; i < met.n; i++)
			assert_true(met.at[i - 1].box.token < met.at[i].box.token);
		cpa_pieces_fini(&list);
		free(met.at);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_found_wherever_they_lie),
		cmocka_unit_test(pieces_in_any_order_of_arrival_are_all_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
