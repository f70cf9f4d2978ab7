/*
 * check_peers.c - what ranks are to each other: messages meet, collectives agree (rule 3).
 *
 * Only what rules 3 and 4 need is kept of a schedule, so that all ranks of a large world fit: a
 * record a message end, a record a step.
 */
#include "dist/check_peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cpa_peers *cpa_peers_create(int W)
{
	struct cpa_peers *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	cpa_arena_init(&p->arena);
	p->W = W;
	p->order = calloc(2 * (size_t)W, sizeof *p->order);
	if (p->order)
		return p;
	cpa_peers_destroy(p);
	return NULL;
}

void cpa_peers_destroy(struct cpa_peers *p)
{
	if (!p)
		return;
	free(p->sends.at);
	free(p->recvs.at);
	free(p->collectives.at);
	free(p->nodes);
	free(p->comms);
	free(p->order);
	cpa_arena_fini(&p->arena);
	free(p);
}

static bool grow(void **array, int n, int *capacity, size_t size)
{
	if (n < *capacity)
		return true;
	int larger = *capacity ? 2 * *capacity : 64;
	void *moved = realloc(*array, (size_t)larger * size);
	if (!moved)
		return false;
	*array = moved;
	*capacity = larger;
	return true;
}

/* ---- keeping one rank ---- */

/* Contents outlive the schedule: spans are copied. */
static void copy_content(
	struct cpa_arena *arena, struct cpa_content *to, const struct cpa_content *from)
{
	*to = *from;
	const struct cpa_spans *lists[2] = {&from->tokens, &from->keys};
	struct cpa_spans *copies[2] = {&to->tokens, &to->keys};
	for (int i = 0; i < 2; i++) {
		size_t nbytes = sizeof(struct cpa_span) * (size_t)lists[i]->n;
		copies[i]->at = nbytes ? cpa_arena_alloc(arena, nbytes) : NULL;
		if (copies[i]->at)
			memcpy(copies[i]->at, lists[i]->at, nbytes);
	}
}

static const struct cpa_content *keep_contents(struct cpa_peers *p, const struct cpa_operand *a,
	int na, const struct cpa_operand *b, int nb)
{
	struct cpa_content *list = cpa_arena_alloc(&p->arena, sizeof *list * (size_t)(na + nb));
	for (int i = 0; list && i < na + nb; i++)
		copy_content(&p->arena, &list[i], i < na ? &a[i].content : &b[i - na].content);
	return list;
}

/* The index of this list of members among all; added when new; -1: out of memory. */
static int find_comm(struct cpa_peers *p, const struct cpa_communicator *comm)
{
	size_t nbytes = sizeof *comm->members * (size_t)comm->nmembers;
	for (int i = 0; i < p->ncomms; i++)
		if (p->comms[i].nmembers == comm->nmembers &&
			memcmp(p->comms[i].members, comm->members, nbytes) == 0)
			return i;
	int *members = cpa_arena_alloc(&p->arena, nbytes);
	if (!members ||
		!grow((void **)&p->comms, p->ncomms, &p->comms_capacity, sizeof *p->comms))
		return -1;
	memcpy(members, comm->members, nbytes);
	p->comms[p->ncomms] = (struct cpa_communicator){comm->nmembers, members};
	return p->ncomms++;
}

static bool add_end(struct cpa_ends *ends, const struct cpa_end *end)
{
	if (!grow((void **)&ends->at, ends->n, &ends->capacity, sizeof *ends->at))
		return false;
	ends->at[ends->n++] = *end;
	return true;
}

static bool add_message(struct cpa_peers *p, const struct cpa_schedule *s, int op_index)
{
	const struct cpa_op *op = &s->ops[op_index];
	bool send = op->kind == CPA_OP_SEND;
	int *order = &p->order[send ? op->peer : p->W + op->peer];
	struct cpa_end end = {.from = send ? s->rank : op->peer,
		.to = send ? op->peer : s->rank,
		.order = (*order)++,
		.rank = s->rank,
		.op = op_index,
		.node = p->nnodes,
		.nboxes = op->nreads + op->nwrites,
		.boxes = keep_contents(p, op->reads, op->nreads, op->writes, op->nwrites)};
	return end.boxes && add_end(send ? &p->sends : &p->recvs, &end);
}

static bool add_collective(struct cpa_peers *p, const struct cpa_schedule *s, int op_index,
	int order, struct cpa_fault *fault)
{
	const struct cpa_op *op = &s->ops[op_index];
	const struct cpa_communicator *comm = &s->comms[op->comm];
	int member = 0;
	while (comm->members && member < comm->nmembers && comm->members[member] != s->rank)
		member++;
	if (!comm->members || member == comm->nmembers) {
		*fault = (struct cpa_fault){
			.rule = CPA_RULE_MESSAGES, .rank = s->rank, .op = op_index};
		snprintf(fault->text, sizeof fault->text,
			"rank %d op %d (collective): is on a communicator "
			"that rank %d is no member of",
			s->rank, op_index, s->rank);
		return false;
	}
	struct cpa_end end = {.from = find_comm(p, comm),
		.to = member,
		.order = order,
		.rank = s->rank,
		.op = op_index,
		.node = p->nnodes,
		.nboxes = op->nwrites + op->nreads,
		.nown = op->nreads,
		.boxes = keep_contents(p, op->writes, op->nwrites, op->reads, op->nreads)};
	return end.from >= 0 && end.boxes && add_end(&p->collectives, &end);
}

/* nodes [nsteps]: the node of each step before this one. */
static bool add_step(struct cpa_peers *p, const struct cpa_schedule *s, int step, int *nodes)
{
	const struct cpa_step *from = &s->steps[step];
	nodes[step] = p->nnodes;
	if (!grow((void **)&p->nodes, p->nnodes, &p->nodes_capacity, sizeof *p->nodes))
		return false;
	const struct cpa_op *op = &s->ops[from->first];
	struct cpa_node *node = &p->nodes[p->nnodes++];
	*node = (struct cpa_node){.rank = s->rank,
		.op = from->first,
		.queue = from->queue,
		.kind = op->kind,
		.peer = op->peer};
	for (int q = 0; q < CPA_NQUEUES; q++)
		node->waits[q] = from->waits[q] < 0 ? -1 : nodes[from->waits[q]];
	if (from->queue > CPA_QUEUE_COMM)
		p->many_queues = true;
	return true;
}

/* A step between others of its queue that waits for no other queue, and for which none waits, cannot be
 * what a cycle needs: it begins when the one before it ends.  Only other steps become nodes. */
static bool *find_joints(const struct cpa_schedule *s)
{
	bool *joint = calloc((size_t)s->nsteps + 1, sizeof *joint);
	for (int i = 0; joint && i < s->nsteps; i++) {
		joint[i] = joint[i] || s->steps[i].queue != CPA_QUEUE_COMPUTE;
		for (int q = 0; q < CPA_NQUEUES; q++)
			if (s->steps[i].waits[q] >= 0)
				joint[i] = joint[s->steps[i].waits[q]] = true;
	}
	return joint;
}

static bool add_ops(struct cpa_peers *p, const struct cpa_schedule *s, const bool *joint, int *nodes,
	struct cpa_fault *fault)
{
	int *collectives = cpa_arena_alloc(&p->arena, sizeof *collectives * (size_t)s->ncomms);
	for (int i = 0; collectives && i < s->nsteps; i++) {
		for (int n = 0; n < s->steps[i].nops; n++) {
			int op = s->steps[i].first + n;
			enum cpa_op_kind kind = s->ops[op].kind;
			if ((kind == CPA_OP_SEND || kind == CPA_OP_RECV) &&
				!add_message(p, s, op))
				return false;
			if (kind == CPA_OP_COLLECTIVE &&
				!add_collective(p, s, op, collectives[s->ops[op].comm]++, fault))
				return false;
		}
		if (joint[i] && !add_step(p, s, i, nodes))
			return false;
	}
	return collectives != NULL;
}

bool cpa_peers_add(struct cpa_peers *p, const struct cpa_schedule *s, struct cpa_fault *fault,
	bool *out_of_memory)
{
	memset(p->order, 0, 2 * (size_t)p->W * sizeof *p->order);
	bool *joint = find_joints(s);
	int *nodes = malloc(sizeof *nodes * ((size_t)s->nsteps + 1));
	bool ok = joint && nodes && add_ops(p, s, joint, nodes, fault) && !p->arena.failed;
	free(joint);
	free(nodes);
	if (!ok && fault->rule == CPA_RULE_NONE)
		*out_of_memory = true;
	return ok;
}

/* ---- rule 3: messages meet ---- */

static int by_order(const void *a, const void *b)
{
	const struct cpa_end *x = a, *y = b;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

int cpa_end_by_call(const void *a, const void *b)
{
	const struct cpa_end *x = a, *y = b;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	return (x->to > y->to) - (x->to < y->to);
}

static bool same_content(const struct cpa_content *a, const struct cpa_content *b)
{
	return a->tensor == b->tensor && a->dtype == b->dtype && cpa_content_same_place(a, b) &&
		cpa_content_same_seen(a, b);
}

static bool fail(struct cpa_fault *fault, enum cpa_fault_rule rule, const struct cpa_end *end)
{
	fault->rule = rule;
	fault->rank = end->rank;
	fault->op = end->op;
	return false;
}

static bool no_partner(struct cpa_fault *fault, const struct cpa_end *end, bool send)
{
	char text[256];
	cpa_content_print(&end->boxes[0], text, sizeof text);
	snprintf(fault->text, sizeof fault->text,
		"rank %d op %d (%s): message %d from rank %d to rank %d (%s) "
		"has no %s on rank %d",
		end->rank, end->op, send ? "send" : "recv", end->order, end->from, end->to, text,
		send ? "recv" : "send", send ? end->to : end->from);
	return fail(fault, CPA_RULE_MESSAGES, end);
}

static bool differ(
	struct cpa_fault *fault, const struct cpa_end *a, const struct cpa_end *b, int box)
{
	char sent[256] = "no such box", expected[256] = "no such box";
	if (box < a->nboxes)
		cpa_content_print(&a->boxes[box], sent, sizeof sent);
	if (box < b->nboxes)
		cpa_content_print(&b->boxes[box], expected, sizeof expected);
	snprintf(fault->text, sizeof fault->text,
		"rank %d op %d (send): message %d from rank %d to rank %d, box "
		"%d: sends %s; rank %d op %d (recv) expects %s",
		a->rank, a->op, a->order, a->from, a->to, box, sent, b->rank, b->op, expected);
	return fail(fault, CPA_RULE_MESSAGES, a);
}

static void sort_ends(struct cpa_ends *ends, int (*compare)(const void *, const void *))
{
	if (ends->n > 0)
		qsort(ends->at, (size_t)ends->n, sizeof *ends->at, compare);
}

static bool match_messages(struct cpa_peers *p, struct cpa_fault *fault)
{
	sort_ends(&p->sends, by_order);
	sort_ends(&p->recvs, by_order);
	for (int i = 0; i < p->sends.n || i < p->recvs.n; i++) {
		const struct cpa_end *send = i < p->sends.n ? &p->sends.at[i] : NULL;
		const struct cpa_end *recv = i < p->recvs.n ? &p->recvs.at[i] : NULL;
		int order = !send ? 1 : !recv ? -1 : by_order(send, recv);
		if (order != 0)
			return no_partner(fault, order < 0 ? send : recv, order < 0);
		for (int box = 0; box < send->nboxes || box < recv->nboxes; box++)
			if (box >= send->nboxes || box >= recv->nboxes ||
				!same_content(&send->boxes[box], &recv->boxes[box]))
				return differ(fault, send, recv, box);
	}
	return true;
}

/* One call of one collective by all members, in `call`. */
static bool match_call(
	struct cpa_peers *p, const struct cpa_end *call, int n, struct cpa_fault *fault)
{
	int members = p->comms[call->from].nmembers, own = call->nown;
	for (int m = 0; m < members; m++) {
		if (m >= n || call[m].to != m || call[m].nown != own) {
			snprintf(fault->text, sizeof fault->text,
				"rank %d op %d (collective): call %d of its "
				"communicator of %d is not made the same way by member %d (rank "
				"%d)",
				call->rank, call->op, call->order, members, m,
				p->comms[call->from].members[m]);
			return fail(fault, CPA_RULE_MESSAGES, call);
		}
	}
	for (int a = 0; a < members; a++)
		for (int i = 0; i < members * own; i++) {
			const struct cpa_end *owner = &call[i / own];
			const struct cpa_content *sent = &owner->boxes[members * own + i % own];
			if (same_content(sent, &call[a].boxes[i]))
				continue;
			char x[256], y[256];
			cpa_content_print(sent, x, sizeof x);
			cpa_content_print(&call[a].boxes[i], y, sizeof y);
			snprintf(fault->text, sizeof fault->text,
				"rank %d op %d (collective): expects %s from "
				"rank %d, which gives %s",
				call[a].rank, call[a].op, y, owner->rank, x);
			return fail(fault, CPA_RULE_MESSAGES, &call[a]);
		}
	return true;
}

static bool match_collectives(struct cpa_peers *p, struct cpa_fault *fault)
{
	sort_ends(&p->collectives, cpa_end_by_call);
	for (int i = 0, n; i < p->collectives.n; i += n) {
		const struct cpa_end *call = &p->collectives.at[i];
		for (n = 1; i + n < p->collectives.n && call[n].from == call->from &&
			call[n].order == call->order;
			n++)
			;
		if (!match_call(p, call, n, fault))
			return false;
	}
	return true;
}

bool cpa_peers_match(struct cpa_peers *p, struct cpa_fault *fault)
{
	return match_messages(p, fault) && match_collectives(p, fault);
}
