/*
 * fault_plans.c - G: messages that do not meet.  The plan is changed after its proof, so that the
 * run gets stuck and says who waits for what.
 */
#include "harness/fault_plant.h"

#include <stdlib.h>
#include <string.h>

#define RANK_AND_HOP (CPA_WHERE_RANK | CPA_WHERE_HOP)

static bool sends(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_SEND;
}

static bool receives(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_RECV;
}

static bool gathers(const struct cpa_site *site)
{
	return site->at->kind == CPA_OP_COLLECTIVE;
}

static bool communicates(const struct cpa_site *site)
{
	return sends(site) || receives(site) || gathers(site);
}

static bool sends_several(const struct cpa_site *site)
{
	return sends(site) && site->at->reads[0].box.ntokens > 1;
}

static bool has_third(const struct cpa_site *site)
{
	return sends(site) && site->schedule->W > 2;
}

static int step_of(const struct cpa_schedule *s, int op)
{
	int i = 0;
	while (op >= s->steps[i].first + s->steps[i].nops)
		i++;
	return i;
}

/* The first SEND of a group that receives too. */
static bool begins_exchange(const struct cpa_site *site)
{
	const struct cpa_schedule *s = site->schedule;
	const struct cpa_step *step;
	bool received = false;
	if (!sends(site))
		return false;
	step = &s->steps[step_of(s, site->op)];
	for (int i = step->first; i < step->first + step->nops; i++) {
		if (s->ops[i].kind == CPA_OP_SEND && i < site->op)
			return false;
		received |= s->ops[i].kind == CPA_OP_RECV;
	}
	return received;
}

/* Room for one step more, at place `at`. */
static bool insert_step(struct cpa_schedule *s, int at)
{
	struct cpa_step *steps = realloc(s->steps, ((size_t)s->nsteps + 1) * sizeof *steps);
	if (!steps)
		return false;
	s->steps = steps;
	memmove(steps + at + 1, steps + at, (size_t)(s->nsteps - at) * sizeof *steps);
	s->nsteps++;
	for (int i = 0; i < s->nsteps; i++)
		for (int q = 0; i != at && q < CPA_NQUEUES; q++)
			if (steps[i].waits[q] >= at)
				steps[i].waits[q]++;
	return true;
}

/* The sends of the group, and only when they have ended its receives. */
static void send_first(struct cpa_schedule *s, int op)
{
	int at = step_of(s, op), n = s->steps[at].nops, first = s->steps[at].first, nsends = 0;
	struct cpa_op *ops = cpa_arena_alloc(&s->arena, (size_t)n * sizeof *ops);
	struct cpa_step step = s->steps[at];
	if (!ops || !insert_step(s, at))
		return;
	for (int i = 0; i < n; i++)
		if (s->ops[first + i].kind == CPA_OP_SEND)
			ops[nsends++] = s->ops[first + i];
	for (int i = 0, k = nsends; i < n; i++)
		if (s->ops[first + i].kind != CPA_OP_SEND)
			ops[k++] = s->ops[first + i];
	memcpy(s->ops + first, ops, (size_t)n * sizeof *ops);
	s->steps[at] = step;
	s->steps[at].nops = nsends;
	s->steps[at + 1].first = first + nsends;
	s->steps[at + 1].nops = n - nsends;
}

static void send_one_less(struct cpa_schedule *s, int op)
{
	s->ops[op].reads[0].box.ntokens--;
}

static void next_peer(struct cpa_schedule *s, int op)
{
	int peer = (s->ops[op].peer + 1) % s->W;
	s->ops[op].peer = peer == s->rank ? (peer + 1) % s->W : peer;
}

/* The last RECV once more, behind everything. */
static void receive_again(struct cpa_schedule *s, int op)
{
	struct cpa_op *ops = realloc(s->ops, ((size_t)s->nops + 1) * sizeof *ops);
	struct cpa_step step = s->steps[step_of(s, op)];
	if (!ops)
		return;
	s->ops = ops;
	if (!insert_step(s, s->nsteps))
		return;
	ops[s->nops] = ops[op];
	step.first = s->nops++;
	step.nops = 1;
	for (int q = 0; q < CPA_NQUEUES; q++)
		step.waits[q] = -1;
	s->steps[s->nsteps - 1] = step;
}

const struct cpa_fault_entry cpa_faults_plans[] = {
	{"send-before-receive", "G01", "every rank sends, and receives when it has sent",
		"nccl 479, 784 and 1233", "a rendezvous run is stuck; an eager one is not",
		"messages both ways", CPA_FAULT_EVERYWHERE, CPA_WHERE_RANK, begins_exchange,
		.change = send_first},
	{"send-skipped", "G03", "one rank leaves out a message that its peer waits for",
		"nccl 788 and 1593, pytorch 146468", "the run is stuck", "a message",
		CPA_FAULT_ONE_OP, RANK_AND_HOP, sends, .skip = true},
	{"receive-skipped", "G03", "one rank does not take a message that its peer sends",
		"nccl 788 and 1593, rccl 1349", "the run is stuck, or attends what never arrived",
		"a message", CPA_FAULT_ONE_OP, RANK_AND_HOP, receives, .skip = true},
	{"collective-skipped", "G07", "one rank does not take part in a collective",
		"nccl 566 and 613", "the run is stuck", "a collective: --rotate allgather",
		CPA_FAULT_ONE_OP, CPA_WHERE_RANK, gathers, .skip = true},
	{"rank-takes-other-branch", "G07", "one rank communicates with nobody",
		"OpenTau 300, nccl 566", "the run is stuck", "communication", CPA_FAULT_ONE_RANK,
		CPA_WHERE_RANK, communicates, .skip = true},
	{"count-mismatch", "G04", "one message is a token shorter than its receiver expects",
		"nccl 1417 and 788", "both lengths are named", "a message of 2 tokens at least",
		CPA_FAULT_ONE_OP, RANK_AND_HOP, sends_several, .change = send_one_less},
	{"wrong-peer", "G06", "one message goes to the rank behind its receiver",
		"lm-engine 456", "the run is stuck, or sizes differ", "a message, and 3 ranks",
		CPA_FAULT_ONE_OP, RANK_AND_HOP, has_third, .change = next_peer},
	{"one-hop-too-many", "G10", "one rank waits for a message once more",
		"ring-flash-attention 39", "the run is stuck", "a message", CPA_FAULT_ONE_OP,
		RANK_AND_HOP, receives, .change = receive_again},
	{0},
};
