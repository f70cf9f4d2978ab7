/*
 * test_peers.h - a request in one line, and what is expected of it.  Include after cmocka.h.
 */
#ifndef CPA_TEST_PEERS_H
#define CPA_TEST_PEERS_H

#include "harness/options.h"
#include "harness/peers.h"

enum { ANY_NONE = 0, ANY_RING = 1, ANY_ULYSSES = 2, ANY_BOTH = 3 };

struct asked {
	const char *problem;
	int any; /* which forms for any length are switched on */
	int ring, ulysses;
	int world; /* 0: ring x ulysses */
	const char *backend;
	const char
		*verdict; /* "A" "R" "N", or the class of what is wrong; "W" wrong without one */
	const char *stage, *error; /* NULL: not looked at; parts of both */
};

static struct cpa_arena peers_arena; /* of the rules of problems */

static int start_peers(void **state)
{
	(void)state;
	cpa_arena_init(&peers_arena);
	return 0;
}

static int end_peers(void **state)
{
	(void)state;
	cpa_arena_fini(&peers_arena);
	return 0;
}

static struct cpa_problem parsed(const char *text)
{
	struct cpa_problem problem;
	struct cpa_error error = {""};

	if (cpa_problem_parse(text, false, &peers_arena, &problem, &error) != CPA_OK)
		fail_msg("%s: %s", text, error.text);
	return problem;
}

static struct cpa_peer_request request_of(
	const struct asked *asked, const struct cpa_problem *problem)
{
	return (struct cpa_peer_request){.problem = problem,
		.world = asked->world ? asked->world : asked->ring * asked->ulysses,
		.batch = 1,
		.ring = asked->ring,
		.ulysses = asked->ulysses,
		.ring_anything = asked->any & ANY_RING,
		.ulysses_anything = asked->any & ANY_ULYSSES,
		.tensor = 1,
		.backend = asked->backend};
}

static struct cpa_peer_answer ask(const char *system, const struct asked *asked)
{
	struct cpa_problem problem = parsed(asked->problem);
	struct cpa_peer_request request = request_of(asked, &problem);
	struct cpa_peer_answer answer;

	cpa_peer_judge(cpa_peer_find(system), &request, &answer);
	return answer;
}

/* "A" and so on, or the class. */
static const char *short_verdict(const struct cpa_peer_answer *answer)
{
	switch (answer->verdict) {
	case CPA_PEER_ACCEPTED:
		return "A";
	case CPA_PEER_REFUSED:
		return "R";
	case CPA_PEER_WRONG:
		return answer->fault ? answer->fault : "W";
	default:
		return "N";
	}
}

static void check_all(const char *system, const struct asked *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct asked *c = &cases[i];
		struct cpa_peer_answer answer = ask(system, c);
		bool ok = strcmp(short_verdict(&answer), c->verdict) == 0 &&
			(!c->stage || (answer.stage && strstr(answer.stage, c->stage))) &&
			(!c->error || strstr(answer.error, c->error));

		if (!ok)
			fail_msg("%s, case %d: %s any=%d %dx%d %s: %s, %s: %s (%s)", system,
				(int)i, c->problem, c->any, c->ring, c->ulysses,
				c->backend ? c->backend : "default", short_verdict(&answer),
				answer.stage ? answer.stage : "no stage", answer.error,
				answer.why);
	}
}

#endif
