/*
 * diagnose_events.c - matches events as a rendezvous: who waits for whom when nothing moves any
 * more.  What that means is in diagnose_hang.c.
 *
 * The k-th send from a to b on a communicator meets the k-th receive of b from a on it, so
 * counterparts are known before anything runs; an event ends once its counterpart is posted.
 */
#include "harness/diagnose_hang.h"

#include <stdlib.h>

/* ---- counterparts ---- */

static bool is_send(const struct cpa_event *it)
{
	return it->kind == CPA_EVENT_SEND || it->kind == CPA_EVENT_ISEND;
}

static bool is_recv(const struct cpa_event *it)
{
	return it->kind == CPA_EVENT_RECV || it->kind == CPA_EVENT_IRECV;
}

bool cpa_event_is_message(const struct cpa_event *it)
{
	return is_send(it) || is_recv(it);
}

struct key {
	int communicator, from, to;
	int64_t event;
};

/* Of sends and of receives alike; a collective is from nobody, to its rank. */
static struct key key_of(const struct cpa_event *events, int64_t i)
{
	const struct cpa_event *it = &events[i];

	if (it->kind == CPA_EVENT_COLLECTIVE)
		return (struct key){it->communicator, -1, it->rank, i};
	return is_send(it) ? (struct key){it->communicator, it->rank, it->peer, i}
			   : (struct key){it->communicator, it->peer, it->rank, i};
}

static int compare_keys(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	if (x->communicator != y->communicator)
		return x->communicator < y->communicator ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return (x->event > y->event) - (x->event < y->event);
}

static bool same_channel(const struct key *a, const struct key *b)
{
	return a->communicator == b->communicator && a->from == b->from && a->to == b->to;
}

/* One channel: its k-th send and its k-th receive are counterparts. */
static void match_channel(struct cpa_matching *m, const struct key *keys, int64_t n)
{
	int64_t send = 0, recv = 0;

	for (;;) {
		while (send < n && !is_send(&m->events[keys[send].event]))
			send++;
		while (recv < n && !is_recv(&m->events[keys[recv].event]))
			recv++;
		if (send >= n || recv >= n)
			return;
		m->partner[keys[send].event] = keys[recv].event;
		m->partner[keys[recv].event] = keys[send].event;
		send++;
		recv++;
	}
}

/* One rank's collectives on one communicator. */
static void number_collectives(struct cpa_matching *m, const struct key *keys, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		m->partner[keys[i].event] = i;
}

/* Of each collective the first that belongs to it. */
static void match_collectives(struct cpa_matching *m, struct key *keys)
{
	int64_t n = 0, first = 0;

	for (int64_t i = 0; i < m->n; i++)
		if (m->events[i].kind == CPA_EVENT_COLLECTIVE)
			keys[n++] = (struct key){
				m->events[i].communicator, (int)m->partner[i], 0, i};
	qsort(keys, (size_t)n, sizeof *keys, compare_keys);
	for (int64_t i = 0; i < n; i++) {
		if (!same_channel(&keys[i], &keys[first]))
			first = i;
		m->meets[keys[i].event] = keys[first].event;
	}
}

static enum cpa_status match(struct cpa_matching *m, struct cpa_error *error)
{
	struct key *keys = malloc(((size_t)m->n + 1) * sizeof *keys);
	int64_t n = 0;

	if (!keys)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for events");
	for (int64_t i = 0; i < m->n; i++) {
		m->partner[i] = -1;
		if (cpa_event_is_message(&m->events[i]) ||
			m->events[i].kind == CPA_EVENT_COLLECTIVE)
			keys[n++] = key_of(m->events, i);
	}
	qsort(keys, (size_t)n, sizeof *keys, compare_keys);
	for (int64_t first = 0, end; first < n; first = end) {
		for (end = first + 1; end < n && same_channel(&keys[first], &keys[end]);)
			end++;
		if (keys[first].from == -1 &&
			m->events[keys[first].event].kind == CPA_EVENT_COLLECTIVE)
			number_collectives(m, keys + first, end - first);
		else
			match_channel(m, keys + first, end - first);
	}
	match_collectives(m, keys);
	free(keys);
	return CPA_OK;
}

/* ---- members of communicators ---- */

static int compare_uses(const void *a, const void *b)
{
	const struct cpa_use *x = a, *y = b;

	if (x->communicator != y->communicator)
		return x->communicator < y->communicator ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static struct cpa_use *find_use(const struct cpa_matching *m, int communicator, int rank)
{
	struct cpa_use key = {.communicator = communicator, .rank = rank};

	return bsearch(&key, m->uses, (size_t)m->nuses, sizeof key, compare_uses);
}

bool cpa_matching_is_member(const struct cpa_matching *m, int communicator, int rank)
{
	return find_use(m, communicator, rank) != NULL;
}

/* Who uses which communicator; all ranks are in number 0. */
static enum cpa_status list_uses(
	struct cpa_matching *m, struct cpa_arena *arena, struct cpa_error *error)
{
	int64_t n = 0, kept = 0;

	m->uses = cpa_arena_alloc(arena, (size_t)(m->n + m->world + 1) * sizeof *m->uses);
	if (!m->uses)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for events");
	for (int rank = 0; rank < m->world; rank++)
		m->uses[n++] = (struct cpa_use){.rank = rank};
	for (int64_t i = 0; i < m->n; i++)
		if (cpa_event_is_message(&m->events[i]) ||
			m->events[i].kind == CPA_EVENT_COLLECTIVE)
			m->uses[n++] = (struct cpa_use){.communicator = m->events[i].communicator,
				.rank = m->events[i].rank};
	qsort(m->uses, (size_t)n, sizeof *m->uses, compare_uses);
	for (int64_t i = 0; i < n; i++)
		if (i == 0 || compare_uses(&m->uses[i], &m->uses[kept - 1]) != 0)
			m->uses[kept++] = m->uses[i];
	m->nuses = kept;
	return CPA_OK;
}

/* A member that has not come to the collective; one that has finished first; -1: all have. */
static int missing_member(const struct cpa_matching *m, int64_t event)
{
	int communicator = m->events[event].communicator, missing = -1;
	const struct cpa_use *it = find_use(m, communicator, m->events[event].rank),
			     *end = m->uses + m->nuses;

	while (it > m->uses && it[-1].communicator == communicator)
		it--;
	for (; it < end && it->communicator == communicator; it++) {
		if (it->nposted > m->partner[event])
			continue;
		if (m->at[it->rank] == m->first[it->rank + 1])
			return it->rank;
		missing = missing < 0 ? it->rank : missing;
	}
	return missing;
}

/* ---- running ---- */

static bool has_ended(const struct cpa_matching *m, int64_t event)
{
	if (m->events[event].kind == CPA_EVENT_COLLECTIVE)
		return missing_member(m, event) < 0;
	return m->partner[event] >= 0 && m->posted[m->partner[event]];
}

/* What keeps a rank at place k of its list: that event itself, or one of those that it waits for;
 * -1: nothing. */
static int64_t pending(const struct cpa_matching *m, int rank, int64_t k)
{
	int64_t event = m->list[k];
	enum cpa_event_kind kind = m->events[event].kind;

	if (kind == CPA_EVENT_SEND || kind == CPA_EVENT_RECV || kind == CPA_EVENT_COLLECTIVE)
		return has_ended(m, event) ? -1 : event;
	if (kind != CPA_EVENT_WAIT && kind != CPA_EVENT_GROUP_END)
		return -1;
	for (int64_t i = m->open[rank]; i < k; i++) {
		const struct cpa_event *it = &m->events[m->list[i]];
		bool counts = kind == CPA_EVENT_GROUP_END
			? cpa_event_is_message(it) || it->kind == CPA_EVENT_COLLECTIVE
			: it->kind == CPA_EVENT_ISEND || it->kind == CPA_EVENT_IRECV;

		if (counts && !has_ended(m, m->list[i]))
			return m->list[i];
	}
	return -1;
}

static bool post(struct cpa_matching *m, int64_t event)
{
	if (m->posted[event])
		return false;
	m->posted[event] = true;
	if (m->events[event].kind == CPA_EVENT_COLLECTIVE)
		find_use(m, m->events[event].communicator, m->events[event].rank)->nposted++;
	return true;
}

/* Posts and passes what it can; true: something. */
static bool advance(struct cpa_matching *m, int rank)
{
	bool any = false;

	while (m->at[rank] < m->first[rank + 1]) {
		int64_t k = m->at[rank], event = m->list[k];
		enum cpa_event_kind kind = m->events[event].kind;

		any |= post(m, event);
		if (kind == CPA_EVENT_GROUP_BEGIN && !m->grouped[rank]) {
			m->grouped[rank] = true;
			m->open[rank] = k;
		}
		if (kind == CPA_EVENT_DONE) {
			m->at[rank] = m->first[rank + 1];
			return true;
		}
		/* In a group all start together. */
		if (!(m->grouped[rank] && kind != CPA_EVENT_WAIT &&
			    kind != CPA_EVENT_GROUP_END) &&
			pending(m, rank, k) >= 0)
			return any;
		if (kind == CPA_EVENT_GROUP_END) {
			m->grouped[rank] = false;
			m->open[rank] = k + 1;
		}
		if (kind == CPA_EVENT_WAIT && !m->grouped[rank])
			m->open[rank] = k + 1;
		m->at[rank]++;
		any = true;
	}
	return any;
}

static void run(struct cpa_matching *m)
{
	for (bool any = true; any;) {
		any = false;
		for (int rank = 0; rank < m->world; rank++)
			any |= advance(m, rank);
	}
}

/* ---- the lists of ranks ---- */

static enum cpa_status list_ranks(
	struct cpa_matching *m, struct cpa_arena *arena, struct cpa_error *error)
{
	size_t W = (size_t)m->world + 1, n = (size_t)m->n + 1;
	int64_t at = 0;

	m->partner = cpa_arena_alloc(arena, n * sizeof *m->partner);
	m->meets = cpa_arena_alloc(arena, n * sizeof *m->meets);
	m->list = cpa_arena_alloc(arena, n * sizeof *m->list);
	m->posted = cpa_arena_alloc(arena, n * sizeof *m->posted);
	m->first = cpa_arena_alloc(arena, W * sizeof *m->first);
	m->at = cpa_arena_alloc(arena, W * sizeof *m->at);
	m->open = cpa_arena_alloc(arena, W * sizeof *m->open);
	m->grouped = cpa_arena_alloc(arena, W * sizeof *m->grouped);
	if (arena->failed)
		return cpa_fail(error, CPA_NO_MEMORY, "out of memory for events");
	for (int64_t i = 0; i < m->n; i++)
		m->first[m->events[i].rank + 1]++;
	for (int rank = 0; rank < m->world; rank++) {
		m->first[rank + 1] += m->first[rank];
		m->at[rank] = m->first[rank];
	}
	for (int64_t i = 0; i < m->n; i++) {
		at = m->at[m->events[i].rank]++;
		m->list[at] = i;
	}
	for (int rank = 0; rank < m->world; rank++)
		m->at[rank] = m->open[rank] = m->first[rank];
	return CPA_OK;
}

static void note_rank(const struct cpa_matching *m, struct cpa_hang *hang, int rank)
{
	struct cpa_hung_rank *it = &hang->ranks[rank];
	const struct cpa_event *event;

	*it = (struct cpa_hung_rank){
		.nevents = m->first[rank + 1] - m->first[rank], .event = -1, .waits_for = -1};
	if (m->at[rank] == m->first[rank + 1])
		return;
	hang->nwaiting++;
	it->event = pending(m, rank, m->at[rank]);
	event = &m->events[it->event];
	if (event->kind == CPA_EVENT_COLLECTIVE)
		it->waits_for = missing_member(m, it->event);
	else if (event->peer >= 0 && event->peer < m->world)
		it->waits_for = event->peer;
	it->unmatched = event->kind == CPA_EVENT_COLLECTIVE ? false : m->partner[it->event] < 0;
	it->peer_finished = it->waits_for >= 0 &&
		m->at[it->waits_for] == m->first[it->waits_for + 1];
}

enum cpa_status cpa_hang_find(const struct cpa_event *events, int64_t nevents, int world,
	struct cpa_arena *arena, struct cpa_hang *hang, struct cpa_error *error)
{
	struct cpa_matching m = {.events = events, .n = nevents, .world = world};
	enum cpa_status status;

	for (int64_t i = 0; i < nevents; i++)
		m.world = events[i].rank >= m.world ? events[i].rank + 1 : m.world;
	*hang = (struct cpa_hang){.world = m.world,
		.nevents = nevents,
		.events = events,
		.chain_end = -1,
		.mismatch = {-1, -1}};
	hang->ranks = cpa_arena_alloc(arena, ((size_t)m.world + 1) * sizeof *hang->ranks);
	hang->cycle = cpa_arena_alloc(arena, ((size_t)m.world + 1) * sizeof *hang->cycle);
	status = list_ranks(&m, arena, error);
	if (status == CPA_OK)
		status = list_uses(&m, arena, error);
	if (status == CPA_OK)
		status = match(&m, error);
	if (status != CPA_OK)
		return status;
	run(&m);
	for (int rank = 0; rank < m.world; rank++)
		note_rank(&m, hang, rank);
	cpa_hang_judge(&m, hang);
	return CPA_OK;
}
