/*
 * test_plan_shape.c - what a plan does not waste: no idle buffer or row, no copy at degree 1, no
 * key attended beyond what a run of rows needs; its buffers and operations say what they are.
 */
#include "dist/test_cases.h"

#include <stdio.h>

/* The worlds of random problems from `seed` on that can be planned. */
static bool random_world(
	uint64_t seed, struct cpa_problem *p, struct cpa_config *c, struct world *w)
{
	struct cpa_error error;
	uint64_t state = seed;
	*p = random_problem(&state);
	*c = random_config(&state, p);
	return make_world(p, c, w, &error) == CPA_OK;
}

/* ---- buffers ---- */

static void expect_names(const struct cpa_schedule *s)
{
	for (int i = 0; i < s->nbuffers; i++) {
		const char *name = s->buffers[i].name,
			   *tensor = cpa_tensor_name(s->buffers[i].tensor);
		size_t n = strlen(tensor);
		assert_int_equal(strncmp(name, tensor, n), 0);
		assert_true(name[n] == '\0' || name[n] == ' ');
		for (int j = 0; j < i; j++)
			assert_string_not_equal(name, s->buffers[j].name);
	}
}

/* Every element of the buffer is written by some operation. */
static void expect_no_idle_element(const struct cpa_schedule *s, int id)
{
	const struct cpa_buffer *b = &s->buffers[id];
	int64_t n = b->ntokens * b->nbatches * b->nheads;
	bool *written = calloc((size_t)n, sizeof *written);
	assert_non_null(written);
	for (int i = 0; i < s->nops; i++)
		for (int o = 0; o < s->ops[i].nwrites; o++) {
			const struct cpa_box *x = &s->ops[i].writes[o].box;
			for (int64_t e = 0;
				x->buffer == id && e < x->ntokens * x->nbatches * x->nheads;
				e++) {
				int64_t t = x->token + e % x->ntokens * x->step;
				int64_t batch = x->batch + e / x->ntokens % x->nbatches;
				int64_t h = x->head + e / x->ntokens / x->nbatches;
				written[(t * b->nbatches + batch) * b->nheads + h] = true;
			}
		}
	for (int64_t e = 0; e < n; e++)
		if (!written[e])
			fail_msg("rank %d: buffer \"%s\" is larger than what is written to it",
				s->rank, b->name);
	free(written);
}

static void buffers_have_names_of_their_own_and_no_idle_element(void **unused)
{
	(void)unused;
	for (uint64_t seed = 20000; seed < 21500; seed++) {
		struct cpa_problem p;
		struct cpa_config c;
		struct world w;
		if (!random_world(seed, &p, &c, &w))
			continue;
		for (int r = 0; r < w.part->W; r++) {
			expect_names(w.rank[r]);
			for (int i = 0; i < w.rank[r]->nbuffers; i++)
				if (w.rank[r]->buffers[i].role == CPA_ROLE_WORK &&
					!strstr(w.rank[r]->buffers[i].name,
						" block")) /* may be written in part */
					expect_no_idle_element(w.rank[r], i);
		}
		free_world(&w);
	}
}

/* At ulysses degree 1 nothing is exchanged: q is attended where it was given. */
static void a_stage_of_degree_one_does_nothing(void **unused)
{
	(void)unused;
	int nattends = 0;
	for (uint64_t seed = 0; seed < 600; seed++) {
		struct cpa_problem p;
		struct cpa_config c;
		struct world w;
		if (!random_world(seed, &p, &c, &w))
			continue;
		for (int r = 0; c.ulysses_degree == 1 && r < w.part->W; r++)
			for (int i = 0; i < w.rank[r]->nops; i++) {
				const struct cpa_op *op = &w.rank[r]->ops[i];
				if (op->kind != CPA_OP_ATTEND)
					continue;
				assert_int_equal(w.rank[r]->buffers[op->reads[0].box.buffer].role,
					CPA_ROLE_INPUT);
				assert_true(c.ring_degree > 1 ||
					w.rank[r]->buffers[op->reads[1].box.buffer].role ==
						CPA_ROLE_INPUT);
				nattends++;
			}
		free_world(&w);
	}
	assert_true(nattends > 300);
}

/* ---- pairs attended ---- */

/* How many keys of the block lie between the first and the last that some row of the span sees.
 */
static int64_t width_of_need(
	const struct cpa_problem *p, const struct cpa_span *rows, const struct cpa_spans *keys)
{
	int64_t first = -1, last = -1;
	for (int64_t j = 0; j < cpa_spans_ntokens(keys); j++)
		for (int64_t c = 0; c < rows->count; c++)
			for (int64_t w = 0; w < rows->width; w++)
				if (!p->rule.causal ||
					cpa_spans_token(keys, j) <= rows->start +
							c * rows->stride + w + p->rule.offset) {
					first = first < 0 ? j : first;
					last = j;
				}
	return first < 0 ? 0 : last - first + 1;
}

static void of_each_block_a_span_attends_what_it_needs_and_no_more(void **unused)
{
	(void)unused;
	int planned = 0;
	for (uint64_t seed = 30000; seed < 31000; seed++) {
		struct cpa_problem p;
		struct cpa_config c;
		struct world w;
		if (!random_world(seed, &p, &c, &w))
			continue;
		for (int r = 0; r < w.part->W; r++) {
			struct cpa_coords at = cpa_partition_coords(w.part, r);
			struct cpa_range b = cpa_partition_batches(w.part, at.b);
			struct cpa_range h = cpa_partition_heads(w.part, at.u);
			const struct cpa_spans *q = &w.part->q_block[at.r];
			int64_t pairs = 0;
			for (int i = 0; i < q->n; i++)
				for (int j = 0; j < (keys_are_replicated(&p) ? 1 : c.ring_degree); j++)
					pairs += q->at[i].width * q->at[i].count *
						width_of_need(&p, &q->at[i],
							keys_are_replicated(&p) ? &w.part->kv.replicated
									: &w.part->kv_block[j]);
			struct cpa_counts counts;
			cpa_schedule_count(w.rank[r], &p, &counts);
			assert_int_equal(
				counts.attended, pairs * (b.end - b.start) * (h.end - h.start));
		}
		planned++;
		free_world(&w);
	}
	assert_true(planned > 500);
}

/* ---- printing ---- */

static void expect_word(const char *line, const char *word)
{
	if (!strstr(line, word))
		fail_msg("\"%s\" lacks \"%s\"", line, word);
}

static void expect_operand(
	const char *line, const struct cpa_schedule *s, const struct cpa_operand *x)
{
	char tokens[80], word[160];
	cpa_spans_print(&x->content.tokens, tokens, sizeof tokens);
	struct cpa_range b = x->content.batches;
	int n = snprintf(word, sizeof word, "%s %s h%d-%d", cpa_tensor_name(x->content.tensor),
		tokens, (int)x->content.heads.start, (int)x->content.heads.end - 1);
	if (b.start != 0 || b.end != 1)
		n += snprintf(word + n, sizeof word - (size_t)n, " b%d-%d", (int)b.start,
			(int)b.end - 1);
	snprintf(word + n, sizeof word - (size_t)n, " [%s]", s->buffers[x->box.buffer].name);
	expect_word(line, word);
}

/* Each line names its kind, its hop in the ring, its peer and the boxes that travel or are read.
 */
static void expect_line(const struct cpa_schedule *s, int index, const char *line)
{
	const struct cpa_op *op = &s->ops[index];
	char word[160];
	int nread = op->kind == CPA_OP_RECV || op->kind == CPA_OP_MERGE ? op->nreads > 0
		: op->kind == CPA_OP_ATTEND				? 2
									: op->nreads;
	assert_int_equal(strncmp(line, cpa_op_name(op->kind), strlen(cpa_op_name(op->kind))), 0);
	snprintf(word, sizeof word, " hop %d", op->hop);
	assert_int_equal(strstr(line, " hop ") != NULL, op->hop >= 0);
	if (op->hop >= 0)
		expect_word(line, word);
	snprintf(
		word, sizeof word, op->kind == CPA_OP_SEND ? " to %d: " : " from %d: ", op->peer);
	if (op->kind == CPA_OP_SEND || op->kind == CPA_OP_RECV)
		expect_word(line, word);
	for (int i = 0; i < nread; i++)
		expect_operand(line, s, &op->reads[i]);
	for (int i = 0; op->kind == CPA_OP_RECV && i < op->nwrites; i++)
		expect_operand(line, s, &op->writes[i]);
	for (int i = 0; op->kind == CPA_OP_MERGE && i < 4; i += 2) {
		int n = snprintf(word, sizeof word, " having seen ");
		cpa_spans_print(&op->reads[i].content.keys, word + n, sizeof word - (size_t)n);
		expect_word(line, word);
	}
	if (op->kind == CPA_OP_COPY || op->kind == CPA_OP_ATTEND) {
		bool copy = op->kind == CPA_OP_COPY;
		snprintf(word, sizeof word, "-> %s%s[%s]",
			copy ? cpa_dtype_name(op->writes[0].content.dtype) : "", copy ? " " : "",
			s->buffers[op->writes[0].box.buffer].name);
		expect_word(line, word);
	}
}

/* A line that does not fit is the beginning of the whole one. */
static void expect_cut(const struct cpa_schedule *s, int index, const char *line)
{
	char cut[200];
	for (size_t size = 1; size < sizeof cut; size += 13) {
		memset(cut, '#', sizeof cut);
		cpa_op_print(s, index, cut, size);
		size_t n = strlen(line) < size ? strlen(line) : size - 1;
		assert_int_equal(strlen(cut), n);
		assert_int_equal(strncmp(cut, line, n), 0);
		for (size_t i = size; i < sizeof cut; i++)
			assert_int_equal(cut[i], '#');
	}
}

static void a_line_names_what_the_operation_touches(void **unused)
{
	(void)unused;
	int nlines[CPA_OP_MERGE + 1] = {0};
	for (uint64_t seed = 40000; seed < 40300; seed++) {
		struct cpa_problem p;
		struct cpa_config c;
		struct world w;
		if (!random_world(seed, &p, &c, &w))
			continue;
		for (int r = 0; r < w.part->W; r++)
			for (int i = 0; i < w.rank[r]->nops; i++) {
				char line[4096];
				cpa_op_print(w.rank[r], i, line, sizeof line);
				expect_line(w.rank[r], i, line);
				expect_cut(w.rank[r], i, line);
				nlines[w.rank[r]->ops[i].kind]++;
			}
		free_world(&w);
	}
	for (int kind = 0; kind <= CPA_OP_MERGE; kind++)
		assert_true(nlines[kind] > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffers_have_names_of_their_own_and_no_idle_element),
		cmocka_unit_test(a_stage_of_degree_one_does_nothing),
		cmocka_unit_test(of_each_block_a_span_attends_what_it_needs_and_no_more),
		cmocka_unit_test(a_line_names_what_the_operation_touches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
