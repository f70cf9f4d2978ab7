/*
 * check_order.c - nothing waits for itself: the event graph has no cycle (rule 4).
 *
 * A plan completes under every timing if and only if this graph is acyclic: start and end of each
 * step, queue order, waits, and for two groups that a message joins, each one's start before the
 * other's end.
 */
#include "dist/check_peers.h"

#include <stdio.h>
#include <stdlib.h>

/* Events 2i and 2i+1 are start and end of node i; after them one event a collective call. */
struct graph {
	int nevents, nedges, capacity;
	int *from, *to;
	bool failed;
};

static void edge(struct graph *g, int from, int to)
{
	if (g->nedges == g->capacity) {
		int larger = g->capacity ? 2 * g->capacity : 1024;
		int *f = realloc(g->from, sizeof *f * (size_t)larger);
		if (f)
			g->from = f;
		int *t = realloc(g->to, sizeof *t * (size_t)larger);
		if (t)
			g->to = t;
		if (!f || !t) {
			g->failed = true;
			return;
		}
		g->capacity = larger;
	}
	g->from[g->nedges] = from;
	g->to[g->nedges++] = to;
}

static void add_local_edges(const struct cpa_peers *p, bool merge_queues, struct graph *g)
{
	int last[CPA_NQUEUES] = {-1, -1, -1, -1};
	for (int i = 0; i < p->nnodes; i++) {
		const struct cpa_node *node = &p->nodes[i];
		int queue = merge_queues && node->queue > CPA_QUEUE_COMM ? CPA_QUEUE_COMM
									 : node->queue;
		if (last[queue] >= 0 && p->nodes[last[queue]].rank == node->rank)
			edge(g, 2 * last[queue] + 1, 2 * i);
		last[queue] = i;
		edge(g, 2 * i, 2 * i + 1);
		for (int q = 0; q < CPA_NQUEUES; q++)
			if (node->waits[q] >= 0)
				edge(g, 2 * node->waits[q] + 1, 2 * i);
	}
}

/* Sends and receives are sorted and matched one to one by now. */
static void add_peer_edges(const struct cpa_peers *p, struct graph *g)
{
	for (int i = 0; i < p->sends.n; i++) {
		int a = p->sends.at[i].node, b = p->recvs.at[i].node;
		edge(g, 2 * a, 2 * b + 1);
		edge(g, 2 * b, 2 * a + 1);
	}
	for (int i = 0; i < p->collectives.n; i++) {
		const struct cpa_end *end = &p->collectives.at[i];
		if (i == 0 ||
			cpa_end_by_call(
				&(struct cpa_end){.from = end[-1].from, .order = end[-1].order},
				&(struct cpa_end){.from = end->from, .order = end->order}) != 0)
			g->nevents++;
		edge(g, 2 * end->node, g->nevents - 1);
		edge(g, g->nevents - 1, 2 * end->node + 1);
	}
}

/* Removes events that wait for nothing until none is left; degree[] > 0 stays on cycles and
 * after. */
static bool drain(const struct graph *g, int *degree)
{
	size_t n = (size_t)g->nevents;
	int *first = calloc(n + 2, sizeof *first),
	    *next = malloc(sizeof *next * ((size_t)g->nedges + 1));
	int *ready = malloc(sizeof *ready * (n + 1));
	bool ok = first && next && ready;
	int nready = 0;
	for (int i = 0; ok && i < g->nedges; i++) {
		first[g->from[i] + 2]++;
		degree[g->to[i]]++;
	}
	for (size_t i = 2; ok && i < n + 2; i++)
		first[i] += first[i - 1];
	for (int i = 0; ok && i < g->nedges; i++)
		next[first[g->from[i] + 1]++] = g->to[i];
	for (int i = 0; ok && i < g->nevents; i++)
		if (degree[i] == 0)
			ready[nready++] = i;
	while (ok && nready > 0) {
		int event = ready[--nready];
		for (int i = first[event]; i < first[event + 1]; i++)
			if (--degree[next[i]] == 0)
				ready[nready++] = next[i];
	}
	free(first);
	free(next);
	free(ready);
	return ok;
}

static void describe(const struct cpa_peers *p, int event, char *text, size_t size)
{
	if (event >= 2 * p->nnodes) {
		snprintf(text, size, "a collective call");
		return;
	}
	const struct cpa_node *node = &p->nodes[event / 2];
	char peer[32] = "";
	if (node->peer >= 0)
		snprintf(peer, sizeof peer, " %s rank %d",
			node->kind == CPA_OP_SEND ? "to" : "from", node->peer);
	snprintf(text, size, "rank %d op %d (%s%s)", node->rank, node->op,
		cpa_op_name((enum cpa_op_kind)node->kind), peer);
}

/* Walks back along what each event still waits for until an event comes again: a cycle. */
static bool name_cycle(const struct cpa_peers *p, const struct graph *g, const int *degree,
	struct cpa_fault *fault, bool *out_of_memory)
{
	int event = -1, *cause = malloc(sizeof *cause * (size_t)g->nevents);
	if (!cause) {
		*out_of_memory = true;
		return false;
	}
	for (int i = 0; i < g->nedges; i++)
		if (degree[g->from[i]] > 0 && degree[g->to[i]] > 0)
			cause[g->to[i]] = g->from[i];
	for (int i = 0; i < g->nevents && event < 0; i++)
		if (degree[i] > 0)
			event = i;
	for (int i = 0; i < g->nevents; i++) /* far enough to be on the cycle */
		event = cause[event];
	while (event >= 2 * p->nnodes)
		event = cause[event];
	fault->rule = CPA_RULE_DEADLOCK;
	fault->rank = p->nodes[event / 2].rank;
	fault->op = p->nodes[event / 2].op;
	size_t used = 0;
	int start = event, steps = 0;
	do {
		char text[96];
		describe(p, event, text, sizeof text);
		int n = snprintf(fault->text + used, sizeof fault->text - used, "%s%s",
			steps == 0 ? "deadlock: " : " waits for ", text);
		used = n > 0 && used + (size_t)n < sizeof fault->text ? used + (size_t)n
								      : sizeof fault->text - 1;
		int step = event / 2;
		do /* start and end of one step are one thing to a reader */
			event = cause[event];
		while (event < 2 * p->nnodes && event / 2 == step && event != start);
	} while (event != start && steps++ < 8);
	snprintf(fault->text + used, sizeof fault->text - used, " waits for %s",
		event == start ? "the first" : "...");
	free(cause);
	return false;
}

bool cpa_peers_order(
	struct cpa_peers *p, bool merge_queues, struct cpa_fault *fault, bool *out_of_memory)
{
	if (p->nnodes == 0 || (merge_queues && !p->many_queues))
		return true;
	struct graph g = {.nevents = 2 * p->nnodes};
	add_local_edges(p, merge_queues, &g);
	add_peer_edges(p, &g);
	int *degree = g.failed ? NULL : calloc((size_t)g.nevents, sizeof *degree);
	bool ok = degree && drain(&g, degree);
	*out_of_memory = *out_of_memory || !ok;
	for (int i = 0; ok && i < g.nevents; i++)
		if (degree[i] > 0)
			ok = name_cycle(p, &g, degree, fault, out_of_memory);
	free(degree);
	free(g.from);
	free(g.to);
	return ok;
}
