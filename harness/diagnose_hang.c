/*
 * diagnose_hang.c - what it means that ranks wait: G of the fault dictionary, from the cycle or
 * the finished rank at the end of who waits for whom.
 */
#include "harness/diagnose_hang.h"

#include <stdarg.h>
#include <string.h>

enum { MOST_PRINTED = 16, MANY_MESSAGES = 1024 };

static void name(struct cpa_hang *hang, const char *class)
{
	if (hang->nclasses < 4)
		hang->classes[hang->nclasses++] = class;
}

__attribute__((format(printf, 2, 3))) static void say(
	struct cpa_hang *hang, const char *format, ...)
{
	size_t n = strlen(hang->text);
	va_list args;

	va_start(args, format);
	vsnprintf(hang->text + n, sizeof hang->text - n, format, args);
	va_end(args);
}

static const struct cpa_event *pending(const struct cpa_hang *hang, int rank)
{
	return &hang->events[hang->ranks[rank].event];
}

static bool sends(const struct cpa_event *it)
{
	return it->kind == CPA_EVENT_SEND || it->kind == CPA_EVENT_ISEND;
}

/* ---- sizes ---- */

/* The first two events that meet and differ in bytes. */
static void find_mismatch(const struct cpa_matching *m, struct cpa_hang *hang)
{
	for (int64_t i = 0; i < m->n && hang->mismatch[0] < 0; i++) {
		const struct cpa_event *it = &m->events[i];
		int64_t other = cpa_event_is_message(it)   ? m->partner[i]
			: it->kind == CPA_EVENT_COLLECTIVE ? m->meets[i]
							   : -1;

		if (other >= 0 && m->posted[i] && m->posted[other] &&
			m->events[other].bytes != it->bytes) {
			hang->mismatch[0] = i;
			hang->mismatch[1] = other;
		}
	}
}

static void judge_mismatch(struct cpa_hang *hang)
{
	const struct cpa_event *a = &hang->events[hang->mismatch[0]],
			       *b = &hang->events[hang->mismatch[1]];
	int64_t more = a->bytes > b->bytes ? a->bytes : b->bytes,
		less = a->bytes > b->bytes ? b->bytes : a->bytes;

	name(hang, "G04");
	/* As many elements of another type. */
	if (less > 0 && (more == 2 * less || more == 4 * less || more == 8 * less))
		name(hang, "G08");
	say(hang,
		"the sizes do not agree: rank %d has %lld bytes for its %s, and rank %d %lld for "
		"its %s",
		a->rank, (long long)a->bytes, cpa_event_kind_name(a->kind), b->rank,
		(long long)b->bytes, cpa_event_kind_name(b->kind));
}

/* ---- peers that there are not ---- */

/* Out of range, itself, or one that never uses the communicator. */
static int find_stranger(const struct cpa_matching *m, const struct cpa_hang *hang)
{
	for (int rank = 0; rank < hang->world; rank++) {
		const struct cpa_event *it;

		if (hang->ranks[rank].event < 0)
			continue;
		it = pending(hang, rank);
		if (cpa_event_is_message(it) &&
			(it->peer < 0 || it->peer >= m->world || it->peer == rank ||
				!cpa_matching_is_member(m, it->communicator, it->peer)))
			return rank;
	}
	return -1;
}

static void judge_stranger(struct cpa_hang *hang, int rank)
{
	const struct cpa_event *it = pending(hang, rank);

	name(hang, "G06");
	say(hang, "rank %d names rank %d as the peer of its %s on communicator %d, which %s",
		rank, it->peer, cpa_event_kind_name(it->kind), it->communicator,
		it->peer < 0 || it->peer >= hang->world ? "there is not"
			: it->peer == rank		? "is itself"
							: "never uses that communicator");
}

/* ---- a finished peer, a cycle ---- */

/* Follows who waits for whom from the first rank that waits. */
static void follow(struct cpa_hang *hang)
{
	int rank = 0, steps = 0;

	while (rank < hang->world && hang->ranks[rank].event < 0)
		rank++;
	/* After so many steps it goes round. */
	while (steps++ < hang->world) {
		int next = hang->ranks[rank].waits_for;

		if (next < 0 || hang->ranks[next].event < 0) {
			hang->chain_end = next;
			return;
		}
		rank = next;
	}
	for (int first = rank; hang->ncycle == 0 || rank != first;) {
		hang->cycle[hang->ncycle++] = rank;
		rank = hang->ranks[rank].waits_for;
	}
}

/* How many messages and collectives the rank issued or has still to issue. */
static int64_t ncommunications(const struct cpa_matching *m, int rank)
{
	int64_t n = 0;

	for (int64_t k = m->first[rank]; k < m->first[rank + 1]; k++) {
		const struct cpa_event *it = &m->events[m->list[k]];

		n += cpa_event_is_message(it) || it->kind == CPA_EVENT_COLLECTIVE;
	}
	return n;
}

/* How many ranks issued as much as most others did. */
static void judge_finished(const struct cpa_matching *m, struct cpa_hang *hang)
{
	int waits = -1, nless = 0, nmore = 0;
	int64_t mine, peer = ncommunications(m, hang->chain_end);

	for (int rank = 0; rank < hang->world; rank++)
		if (hang->ranks[rank].event >= 0 &&
			hang->ranks[rank].waits_for == hang->chain_end)
			waits = rank;
	mine = ncommunications(m, waits);
	for (int rank = 0; rank < hang->world; rank++) {
		nless += rank != waits && ncommunications(m, rank) < mine;
		nmore += rank != hang->chain_end && ncommunications(m, rank) > peer;
	}
	if (hang->nwaiting == 1 && nless == hang->world - 1 && hang->world > 2)
		name(hang, "G10");
	else if (hang->nwaiting == 1 && nmore == hang->world - 1 && hang->world > 2)
		name(hang, "G03");
	else if (hang->nwaiting == 1) {
		name(hang, "G03");
		name(hang, "G10");
	} else {
		name(hang, "G03");
		name(hang, "G07");
	}
	say(hang, "rank %d waits in its %s for rank %d, which has finished", waits,
		cpa_event_kind_name(pending(hang, waits)->kind), hang->chain_end);
	if (hang->nwaiting > 1)
		say(hang, "; %d more ranks wait behind it", hang->nwaiting - 1);
}

struct cycle_is {
	bool all_send, all_receive, all_collective, any_collective, many_communicators, unmatched;
};

static struct cycle_is look_at_cycle(const struct cpa_hang *hang)
{
	struct cycle_is is = {.all_send = true, .all_receive = true, .all_collective = true};
	int communicator = pending(hang, hang->cycle[0])->communicator;

	for (int i = 0; i < hang->ncycle; i++) {
		const struct cpa_event *it = pending(hang, hang->cycle[i]);
		bool collective = it->kind == CPA_EVENT_COLLECTIVE;

		is.all_send &= sends(it);
		is.all_receive &= !sends(it) && !collective;
		is.all_collective &= collective;
		is.any_collective |= collective;
		is.many_communicators |= it->communicator != communicator;
		is.unmatched |= hang->ranks[hang->cycle[i]].unmatched;
	}
	return is;
}

static void judge_cycle(struct cpa_hang *hang)
{
	struct cycle_is is = look_at_cycle(hang);
	const char *how = "";

	if (is.unmatched && is.many_communicators) {
		name(hang, "G02");
		name(hang, "G07");
		how = ", and those that meet do not take the same communicator";
	} else if (is.unmatched) {
		name(hang, "G03");
		name(hang, "G07");
		how = ", and what one of them waits for is never issued";
	} else if (is.any_collective && !is.all_collective) {
		name(hang, "G07");
		if (is.many_communicators)
			name(hang, "G05");
		how = ", some in a message and some in a collective";
	} else if (is.many_communicators) {
		name(hang, "G05");
		how = ", in communicators that they use in different order";
	} else if (is.all_send || is.all_receive) {
		name(hang, "G01");
		how = is.all_send ? ", each sending before it receives"
				  : ", each receiving before it sends";
	} else {
		name(hang, "G07");
		how = ", in messages that they issue in different order";
	}
	say(hang, "%d ranks wait for each other%s:", hang->ncycle, how);
	for (int i = 0; i < hang->ncycle && i < MOST_PRINTED; i++)
		say(hang, " %d ->", hang->cycle[i]);
	say(hang, hang->ncycle > MOST_PRINTED ? " ..." : " %d", hang->cycle[0]);
}

/* ---- all of it ---- */

/* The largest number of messages between one group_begin and its group_end. */
static int64_t largest_group(const struct cpa_matching *m)
{
	int64_t most = 0;

	for (int rank = 0; rank < m->world; rank++) {
		int64_t n = 0;
		bool grouped = false;

		for (int64_t k = m->first[rank]; k < m->first[rank + 1]; k++) {
			const struct cpa_event *it = &m->events[m->list[k]];

			if (it->kind == CPA_EVENT_GROUP_BEGIN ||
				it->kind == CPA_EVENT_GROUP_END) {
				grouped = it->kind == CPA_EVENT_GROUP_BEGIN;
				n = 0;
			}
			n += grouped && cpa_event_is_message(it);
			most = n > most ? n : most;
		}
	}
	return most;
}

/* Messages that were started and never met, though nobody waits for them. */
static int64_t find_orphan(const struct cpa_matching *m)
{
	for (int64_t i = 0; i < m->n; i++)
		if (cpa_event_is_message(&m->events[i]) && m->posted[i] && m->partner[i] < 0)
			return i;
	return -1;
}

void cpa_hang_judge(const struct cpa_matching *m, struct cpa_hang *hang)
{
	int stranger = find_stranger(m, hang);
	int64_t group = largest_group(m), orphan = find_orphan(m);

	find_mismatch(m, hang);
	if (hang->nwaiting > 0)
		follow(hang);
	hang->wrong = hang->nwaiting > 0 || hang->mismatch[0] >= 0 || orphan >= 0;
	if (hang->mismatch[0] >= 0)
		judge_mismatch(hang);
	else if (stranger >= 0)
		judge_stranger(hang, stranger);
	else if (hang->ncycle > 0)
		judge_cycle(hang);
	else if (hang->chain_end >= 0)
		judge_finished(m, hang);
	else if (orphan >= 0) {
		name(hang, "G03");
		say(hang,
			"the %s of rank %d to or from rank %d has no counterpart, though nobody "
			"waits for it",
			cpa_event_kind_name(m->events[orphan].kind), m->events[orphan].rank,
			m->events[orphan].peer);
	} else
		say(hang, "all %lld events of %d ranks meet their counterparts",
			(long long)hang->nevents, hang->world);
	if (group > MANY_MESSAGES) {
		if (hang->wrong)
			name(hang, "G09");
		say(hang, "; a group has %lld messages, which some transports do not get through",
			(long long)group);
	}
}

/* ---- for people and for programs ---- */

static void print_rank(FILE *out, const struct cpa_hang *hang, int rank)
{
	const struct cpa_hung_rank *it = &hang->ranks[rank];
	const struct cpa_event *event;

	if (it->event < 0) {
		fprintf(out, "    rank %-4d has finished, after %lld events\n", rank,
			(long long)it->nevents);
		return;
	}
	event = pending(hang, rank);
	fprintf(out, "    rank %-4d waits in %s (event %lld)", rank,
		cpa_event_kind_name(event->kind), (long long)it->event);
	if (cpa_event_is_message(event))
		fprintf(out, " %s %d", sends(event) ? "to" : "from", event->peer);
	fprintf(out, " on communicator %d, %lld bytes", event->communicator,
		(long long)event->bytes);
	if (it->waits_for >= 0)
		fprintf(out, ": for rank %d%s", it->waits_for,
			it->peer_finished ? ", which has finished" : "");
	fputs(it->unmatched ? "; it has no counterpart\n" : "\n", out);
}

void cpa_hang_print(FILE *out, const struct cpa_hang *hang)
{
	fputs(hang->wrong ? "  events: " : "  events: right: ", out);
	for (int i = 0; i < hang->nclasses; i++)
		fprintf(out, "%s%s", hang->classes[i], i + 1 < hang->nclasses ? " or " : ": ");
	fprintf(out, "%s\n", hang->text);
	for (int rank = 0; hang->nwaiting > 0 && rank < hang->world && rank < 4 * MOST_PRINTED;
		rank++)
		print_rank(out, hang, rank);
}

void cpa_hang_put_json(struct cpa_json *json, const struct cpa_hang *hang)
{
	cpa_json_key(json, "hang");
	cpa_json_object(json);
	cpa_json_key(json, "classes");
	cpa_json_array(json);
	for (int i = 0; i < hang->nclasses; i++)
		cpa_json_string(json, hang->classes[i]);
	cpa_json_end_array(json);
	cpa_json_put_string(json, "text", hang->text);
	cpa_json_key(json, "cycle");
	cpa_json_array(json);
	for (int i = 0; i < hang->ncycle; i++)
		cpa_json_int(json, hang->cycle[i]);
	cpa_json_end_array(json);
	cpa_json_key(json, "waiting");
	cpa_json_array(json);
	for (int rank = 0; rank < hang->world; rank++) {
		const struct cpa_hung_rank *it = &hang->ranks[rank];

		if (it->event < 0)
			continue;
		cpa_json_object(json);
		cpa_json_put_int(json, "rank", rank);
		cpa_json_put_int(json, "event", it->event);
		cpa_json_put_string(json, "kind", cpa_event_kind_name(pending(hang, rank)->kind));
		cpa_json_put_int(json, "for", it->waits_for);
		cpa_json_end_object(json);
	}
	cpa_json_end_array(json);
	cpa_json_end_object(json);
}
