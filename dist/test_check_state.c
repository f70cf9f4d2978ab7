/*
 * test_check_state.c - rules 1 and 2 on one rank against brute force over elements: which boxes
 * fit, what stands where after random reads and writes, who races with whom, and when a partial
 * is finished.
 */
#include "dist/check.h"
#include "dist/test_cases.h"

enum { NT = 9, NB = 3, NH = 3, MAX_STEPS = 24 };

static struct cpa_problem small_problem(void)
{
	return (struct cpa_problem){.B = NB,
		.Sq = NT,
		.Skv = NT,
		.Hq = NH,
		.Hkv = NH,
		.D = 2,
		.Dv = 3,
		.dtype = CPA_DTYPE_FP32,
		.scale = 1};
}

/* ---- operands ---- */

static bool all_inside(int64_t start, int64_t n, int64_t step, int64_t size)
{
	if (n < 1)
		return false;
	for (int64_t i = 0; i < n; i++)
		if (start + i * step < 0 || start + i * step >= size)
			return false;
	return true;
}

/* A box fits when it has elements, all of them in the buffer, and as many as its content names.
 */
static void an_operand_fits_exactly_when_its_elements_do(void **unused)
{
	(void)unused;
	struct cpa_partition part = {.problem = small_problem()};
	int nfit = 0;
	for (uint64_t seed = 0; seed < 200000; seed++) {
		uint64_t state = seed;
		enum cpa_tensor tensor = (enum cpa_tensor)below(&state, 5);
		struct cpa_buffer buffer = {.name = "b",
			.dtype = CPA_DTYPE_FP32,
			.ntokens = 1 + below(&state, 4),
			.nbatches = 1 + below(&state, 3),
			.nheads = 1 + below(&state, 3)};
		bool wide = tensor == CPA_TENSOR_V || tensor == CPA_TENSOR_O;
		int64_t dim = tensor == CPA_TENSOR_LSE ? 1
			: wide			       ? part.problem.Dv
						       : part.problem.D;
		buffer.dim = below(&state, 8) ? dim : dim + 1;
		struct cpa_schedule s = {.buffers = &buffer, .nbuffers = 1};
		struct cpa_box x = {below(&state, 8) ? 0 : below(&state, 3) - 1,
			below(&state, 5) - 1, below(&state, 5), 1 + below(&state, 2),
			below(&state, 4) - 1, below(&state, 4), below(&state, 4) - 1,
			below(&state, 4)};
		if (below(&state, 16) == 0)
			x.step = below(&state, 2) - 1;
		struct cpa_span span = {7, x.ntokens + (below(&state, 8) == 0), 9, 1};
		struct cpa_content c = {.tensor = tensor,
			.tokens = {&span, span.width > 0, 1},
			.batches = {4, 4 + x.nbatches + (below(&state, 8) == 0)},
			.heads = {5, 5 + x.nheads + (below(&state, 8) == 0)},
			.dtype = below(&state, 8) ? CPA_DTYPE_FP32 : CPA_DTYPE_BF16};
		bool fits = x.buffer == 0 && x.step >= 1 &&
			all_inside(x.token, x.ntokens, x.step, buffer.ntokens) &&
			all_inside(x.batch, x.nbatches, 1, buffer.nbatches) &&
			all_inside(x.head, x.nheads, 1, buffer.nheads) &&
			span.width == x.ntokens && c.batches.end - 4 == x.nbatches &&
			c.heads.end - 5 == x.nheads && c.dtype == buffer.dtype &&
			buffer.dim == dim;
		if (x.ntokens == 1 && x.step > buffer.ntokens)
			continue; /* one token: the step is of no account */
		struct cpa_fault fault = {.rule = CPA_RULE_NONE};
		struct cpa_check_rank_state rank = {
			.part = &part, .schedule = &s, .fault = &fault, .op = -1};
		assert_int_equal(cpa_check_operand(&rank, &(struct cpa_operand){x, c}), fits);
		assert_int_equal(fault.rule, fits ? CPA_RULE_NONE : CPA_RULE_DATA);
		nfit += fits;
	}
	assert_true(nfit > 500);
}

/* ---- finished ---- */

/* `text` names a row of the content that may see a key, and the content has not seen it. */
static void a_partial_is_finished_exactly_when_no_visible_key_is_missing(void **unused)
{
	(void)unused;
	int nfinished = 0, nmissing = 0;
	for (uint64_t seed = 0; seed < 30000; seed++) {
		uint64_t state = seed;
		struct cpa_partition part = {.problem = random_problem(&state)};
		const struct cpa_problem *p = &part.problem;
		struct cpa_arena arena;
		cpa_arena_init(&arena);
		struct cpa_content c = {.tensor = CPA_TENSOR_O,
			.batches = {0, p->B},
			.heads = {0, p->Hq},
			.partial = true};
		bool seen[64] = {false};
		int holes = 1 + below(&state, 12);
		for (int64_t t = below(&state, (int)p->Sq); t < p->Sq; t += 1 + below(&state, 3))
			cpa_spans_append_range(&arena, &c.tokens, (struct cpa_range){t, t + 1});
		int64_t most = below(&state, 3) ? p->Skv : below(&state, (int)p->Skv);
		for (int64_t j = 0; j < most; j++) {
			seen[j] = below(&state, 3 * holes) > 0;
			if (seen[j])
				cpa_spans_append_range(
					&arena, &c.keys, (struct cpa_range){j, j + 1});
		}
		bool finished = true;
		for (int64_t i = 0; i < cpa_spans_ntokens(&c.tokens); i++)
			for (int64_t j = 0; j < p->Skv; j++)
				finished = finished &&
					(seen[j] ||
						(p->rule.causal &&
							j > cpa_spans_token(&c.tokens, i) +
									p->rule.offset));
		struct cpa_check_rank_state rank = {.part = &part};
		int64_t row = -1, key = -1;
		assert_int_equal(cpa_check_is_finished(&rank, &c, &row, &key), finished);
		if (!finished) {
			assert_int_equal(cpa_spans_ncommon_range(
						 &c.tokens, (struct cpa_range){row, row + 1}),
				1);
			assert_in_range(key, 0, p->Skv - 1);
			assert_false(seen[key]);
			assert_true(!p->rule.causal || key <= row + p->rule.offset);
		}
		nfinished += finished;
		nmissing += !finished;
		cpa_arena_fini(&arena);
	}
	assert_true(nfinished > 3000 && nmissing > 3000);
}

/* ---- what stands where ---- */

enum { MAX_WRITES = 2 * MAX_STEPS };

/* One element: the tensor it was last written as, by which step, and the steps that have read it
 * since. */
struct element {
	enum cpa_tensor tensor;
	int writer, write;
	bool readers[MAX_STEPS];
};
struct model {
	struct element at[NT][NB][NH];
	bool before[MAX_STEPS][MAX_STEPS];
	bool read[MAX_WRITES][MAX_STEPS]; /* some element of this write, by this step */
	int nsteps, nwrites;
};

static struct cpa_operand random_operand(struct cpa_arena *arena, uint64_t *state)
{
	struct cpa_operand x = {.box = {.token = below(state, NT),
					.step = 1 + below(state, 3),
					.batch = below(state, NB),
					.head = below(state, NH)}};
	x.box.ntokens = 1 + below(state, (int)((NT - 1 - x.box.token) / x.box.step + 1));
	x.box.nbatches = 1 + below(state, (int)(NB - x.box.batch));
	x.box.nheads = 1 + below(state, (int)(NH - x.box.head));
	if (x.box.ntokens == 1)
		x.box.step = 1;
	x.content = (struct cpa_content){.tensor = CPA_TENSOR_Q,
		.dtype = CPA_DTYPE_FP32,
		.batches = {10 + x.box.batch, 10 + x.box.batch + x.box.nbatches},
		.heads = {20 + x.box.head, 20 + x.box.head + x.box.nheads}};
	/* Token ids that leap now and then, so that a content is of several spans. */
	for (int64_t i = 0, t = x.box.token; i < x.box.ntokens; i++, t += x.box.step)
		cpa_spans_append_range(arena, &x.content.tokens,
			(struct cpa_range){2 * t + t / 4, 2 * t + t / 4 + 1});
	if (below(state, 5) == 0)
		x.content.tensor = CPA_TENSOR_K; /* as wide as q, another content */
	return x;
}

/* CAUTIOUS: no element races, but another element of the same earlier write has been read out of
 * order; the checker remembers readers by piece and may refuse. */
enum verdict { FINE, CAUTIOUS, NO_DATA, RACE, NVERDICTS };

/* What reading or writing x at `step` is, and its effect where it is fine. */
static enum verdict apply(
	struct model *m, const struct cpa_operand *x, int step, bool write, bool in_place)
{
	bool lacks = false, races = false, near = false;
	for (int pass = 0; pass < 2 && !lacks && !races; pass++)
		for (int64_t i = 0; i < x->box.ntokens; i++)
			for (int64_t b = x->box.batch; b < x->box.batch + x->box.nbatches; b++)
				for (int64_t h = x->box.head; h < x->box.head + x->box.nheads;
					h++) {
					struct element *e =
						&m->at[x->box.token + i * x->box.step][b][h];
					if (pass == 1 && write) {
						memset(e, 0, sizeof *e);
						e->tensor = x->content.tensor;
						e->writer = step;
						e->write = m->nwrites;
					} else if (pass == 1) {
						e->readers[step] = m->read[e->write][step] = true;
					} else {
						lacks = lacks ||
							(!write &&
								(e->writer < 0 ||
									e->tensor !=
										x->content
											.tensor));
						races = races ||
							(e->writer >= 0 &&
								!m->before[e->writer][step]);
						for (int r = 0;
							write && e->writer >= 0 && r <= step;
							r++) {
							bool ordered = r == step
								? in_place
								: m->before[r][step];
							races = races ||
								(e->readers[r] && !ordered);
							near = near ||
								(m->read[e->write][r] &&
									!ordered);
						}
					}
				}
	m->nwrites += write;
	return lacks ? NO_DATA : races ? RACE : near ? CAUTIOUS : FINE;
}

/* The steps of one rank on four queues with random waits, and their order closed over. */
static void random_order(struct cpa_step *steps, struct model *m, uint64_t *state)
{
	m->nsteps = 4 + below(state, MAX_STEPS - 4);
	int few = 1 + below(state, 4);
	for (int i = 0; i < m->nsteps; i++) {
		steps[i] = (struct cpa_step){
			.first = i, .nops = 1, .queue = below(state, CPA_NQUEUES)};
		for (int q = 0; q < CPA_NQUEUES; q++) {
			int wait = i - 1;
			while (wait >= 0 && (steps[wait].queue != q || below(state, 8) == 0))
				wait--;
			steps[i].waits[q] = below(state, 4 * few) ? wait : -1;
		}
		for (int a = i - 1; a >= 0; a--) {
			bool direct = steps[a].queue == steps[i].queue ||
				steps[i].waits[steps[a].queue] == a;
			for (int b = 0; direct && b < i; b++)
				m->before[b][i] = m->before[b][i] || b == a || m->before[b][a];
		}
	}
}

static void random_accesses(
	struct cpa_check_rank_state *rank, struct model *m, uint64_t *state, int *tally)
{
	for (int step = 0; step < m->nsteps; step++) {
		rank->step = rank->op = step;
		rank->in_place = below(state, 2);
		for (int n = 1 + below(state, 2), i = 0; i < n; i++) {
			struct cpa_operand x = random_operand(&rank->arena, state);
			bool write = step < 3 || i > 0 || below(state, 2);
			enum verdict verdict = NO_DATA;
			for (int tries = 0; tries < 12; tries++) {
				struct model *copy = malloc(sizeof *copy);
				assert_non_null(copy);
				*copy = *m;
				verdict = apply(copy, &x, step, write, rank->in_place);
				free(copy);
				if (verdict <= CAUTIOUS ||
					below(state, verdict == RACE ? 4 : 12) == 0)
					break;
				x = random_operand(&rank->arena, state);
			}
			verdict = apply(m, &x, step, write, rank->in_place);
			struct cpa_operand *kept = cpa_arena_alloc(&rank->arena, sizeof *kept);
			assert_non_null(kept);
			*kept = x; /* pieces borrow what was written */
			bool ok = write ? cpa_check_write(rank, kept) : cpa_check_read(rank, kept);
			if (verdict != CAUTIOUS && ok != (verdict == FINE))
				fail_msg("%s is judged wrongly at step %d: %s",
					write ? "a write" : "a read", step,
					ok ? "accepted" : rank->fault->text);
			tally[verdict]++;
			if (verdict == RACE)
				assert_int_equal(rank->fault->rule, CPA_RULE_RACE);
			if (!ok)
				return;
		}
	}
}

static void reads_and_writes_are_judged_element_by_element(void **unused)
{
	(void)unused;
	int tally[NVERDICTS] = {0};
	struct cpa_partition part = {.problem = small_problem()};
	for (uint64_t seed = 0; seed < 10000; seed++) {
		uint64_t state = seed;
		struct model m = {.nsteps = 0};
		struct cpa_step steps[MAX_STEPS];
		struct cpa_buffer buffer = {.name = "b",
			.role = CPA_ROLE_WORK,
			.dtype = CPA_DTYPE_FP32,
			.ntokens = NT,
			.nbatches = NB,
			.nheads = NH,
			.dim = 2};
		struct cpa_fault fault = {.rule = CPA_RULE_NONE};
		random_order(steps, &m, &state);
		for (int t = 0; t < NT; t++)
			for (int b = 0; b < NB; b++)
				for (int h = 0; h < NH; h++)
					m.at[t][b][h].writer = -1;
		struct cpa_schedule s = {
			.buffers = &buffer, .nbuffers = 1, .steps = steps, .nsteps = m.nsteps};
		struct cpa_piece_list pieces = {0};
		int clock[MAX_STEPS][CPA_NQUEUES];
		struct cpa_check_rank_state rank = {.part = &part,
			.schedule = &s,
			.fault = &fault,
			.pieces = &pieces,
			.clock = clock};
		cpa_arena_init(&rank.arena);
		assert_true(cpa_check_clocks(&rank));
		random_accesses(&rank, &m, &state, tally);
		cpa_pieces_fini(&pieces);
		free(rank.met.at);
		cpa_arena_fini(&rank.arena);
	}
	print_message("%d fine, %d nearly a race, %d without data, %d races\n", tally[FINE],
		tally[CAUTIOUS], tally[NO_DATA], tally[RACE]);
	assert_true(tally[FINE] > 20000 && tally[NO_DATA] > 1000 && tally[RACE] > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_operand_fits_exactly_when_its_elements_do),
		cmocka_unit_test(a_partial_is_finished_exactly_when_no_visible_key_is_missing),
		cmocka_unit_test(reads_and_writes_are_judged_element_by_element),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
