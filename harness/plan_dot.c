/*
 * plan_dot.c - schedules as a picture, for graphviz.
 */
#include <string.h>

#include "harness/plan.h"

static void put_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

/* A cluster: its operations, and the order that queues and waits give them. */
static void put_rank(FILE *out, const struct cpa_schedule *s)
{
	int last[CPA_NQUEUES];

	for (int q = 0; q < CPA_NQUEUES; q++)
		last[q] = -1;
	fprintf(out, "  subgraph cluster_%d {\n    label=\"rank %d\";\n", s->rank, s->rank);
	for (int i = 0; i < s->nops; i++) {
		char text[200];

		cpa_op_print(s, i, text, sizeof text);
		fprintf(out, "    r%d_%d [label=", s->rank, i);
		put_quoted(out, text);
		fputs("];\n", out);
	}
	for (int n = 0; n < s->nsteps; n++) {
		const struct cpa_step *step = &s->steps[n];

		if (step->nops == 0)
			continue;
		if (last[step->queue] >= 0)
			fprintf(out, "    r%d_%d -> r%d_%d;\n", s->rank, last[step->queue],
				s->rank, step->first);
		last[step->queue] = step->first;
		for (int q = 0; q < CPA_NQUEUES; q++)
			if (q != step->queue && step->waits[q] >= 0)
				fprintf(out, "    r%d_%d -> r%d_%d [style=dashed];\n", s->rank,
					s->steps[step->waits[q]].first, s->rank, step->first);
	}
	fputs("  }\n", out);
}

/* Number `index` among the RECVs of `s` on a communicator from a peer; -1: there is none. */
static int find_receive(const struct cpa_schedule *s, int comm, int peer, int index)
{
	for (int i = 0; i < s->nops; i++)
		if (s->ops[i].kind == CPA_OP_RECV && s->ops[i].comm == comm &&
			s->ops[i].peer == peer && index-- == 0)
			return i;
	return -1;
}

/* Messages match by communicator, peer and order. */
static void put_messages(FILE *out, const struct cpa_schedule *from,
	const struct cpa_schedule *to)
{
	int index = 0;

	for (int i = 0; i < from->nops; i++) {
		const struct cpa_op *op = &from->ops[i];
		int receive;

		if (op->kind != CPA_OP_SEND || op->comm != 0 || op->peer != to->rank)
			continue;
		receive = find_receive(to, 0, from->rank, index++);
		if (receive >= 0)
			fprintf(out, "  r%d_%d -> r%d_%d [color=blue, constraint=false];\n",
				from->rank, i, to->rank, receive);
	}
}

void cpa_plan_print_dot(FILE *out, struct cpa_schedule *const *schedules, int n)
{
	fputs("digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=monospace, "
	      "fontsize=9];\n",
		out);
	for (int i = 0; i < n; i++)
		put_rank(out, schedules[i]);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			put_messages(out, schedules[i], schedules[j]);
	fputs("}\n", out);
}
