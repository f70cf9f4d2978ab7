/*
 * peers.c - judges a request by the rules of a system.
 */
#include "harness/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/suggest.h"

enum { MAX_BACKENDS = 40 };

const char cpa_peer_no_lse[] = "no-lse";

const char *cpa_peer_verdict_name(enum cpa_peer_verdict verdict)
{
	static const char *const names[] = {"accepted", "refused", "wrong", "not_known"};

	return names[verdict];
}

/* ---- judging -------------------------------------------------------------------------- */

static void set_text(struct cpa_peer_answer *answer, const struct cpa_peer_rule *rule,
	const struct cpa_peer_request *r)
{
	struct cpa_text error = cpa_text_begin(answer->error, sizeof answer->error);
	struct cpa_text why = cpa_text_begin(answer->why, sizeof answer->why);

	if (rule->exception)
		cpa_text_put(&error, "%s", rule->exception);
	if (rule->message || rule->put_message)
		cpa_text_put(&error, "%s", rule->exception ? ": " : "");
	if (rule->put_message)
		rule->put_message(r, &error);
	else if (rule->message)
		cpa_text_put(&error, "%s", rule->message);
	if (rule->put_why)
		rule->put_why(r, &why);
	else if (rule->why)
		cpa_text_put(&why, "%s", rule->why);
}

static void decide(struct cpa_peer_answer *answer, const struct cpa_peer_rule *rule,
	const struct cpa_peer_request *r)
{
	answer->verdict = rule->verdict;
	answer->rule = rule;
	answer->stage = rule->stage;
	answer->fault = rule->fault;
	set_text(answer, rule, r);
}

static void add_note(struct cpa_peer_answer *answer, const struct cpa_peer_rule *rule,
	const struct cpa_peer_request *r)
{
	size_t used = strlen(answer->notes);
	struct cpa_text notes = cpa_text_begin(answer->notes + used, sizeof answer->notes - used);

	if (!rule->why && !rule->put_why)
		return;
	cpa_text_put(&notes, "%s", used ? "; " : "");
	if (rule->put_why)
		rule->put_why(r, &notes);
	else
		cpa_text_put(&notes, "%s", rule->why);
}

/* What is asked of a system in its own terms. */
static struct cpa_peer_request translate(
	const struct cpa_peer *peer, const struct cpa_peer_request *request)
{
	struct cpa_peer_request r = *request;

	/* Who has no axis for the batch leaves those ranks out of the product. */
	if (!peer->batch_groups)
		r.batch = 1;
	/* Where both degrees are above 1 the answer to the form is a row of its own. */
	if (r.ring <= 1 || r.ulysses <= 1) {
		r.ring_anything = r.ring_anything && peer->ring_anything;
		r.ulysses_anything = r.ulysses_anything && peer->ulysses_anything;
	}
	if (!r.backend && peer->backends)
		r.backend = peer->backends[0];
	return r;
}

/* Rules of all parts, one behind the other; NULL past the end. */
static const struct cpa_peer_rule *rule_at(const struct cpa_peer *peer, int i)
{
	for (int part = 0; part < CPA_PEER_NPARTS; part++) {
		if (i < peer->parts[part].n)
			return &peer->parts[part].at[i];
		i -= peer->parts[part].n;
	}
	return NULL;
}

static bool has_rule(const struct cpa_peer *peer, enum cpa_peer_row row)
{
	for (int i = 0; rule_at(peer, i); i++)
		if (rule_at(peer, i)->row == row)
			return true;
	return false;
}

/* Rows that the table of this system leaves out. */
static const struct cpa_peer_rule *find_unlisted(
	const struct cpa_peer *peer, const struct cpa_peer_request *r)
{
	static const struct cpa_peer_rule unlisted = {.verdict = CPA_PEER_NOT_KNOWN,
		.why = "not stated: what this system does with such a request was not read"};

	for (int row = CPA_PEER_ROW_NONE + 1; row < CPA_PEER_NROWS && !peer->any_row; row++)
		if (!has_rule(peer, (enum cpa_peer_row)row) &&
			cpa_peer_row_holds((enum cpa_peer_row)row, r))
			return &unlisted;
	return NULL;
}

static bool holds(const struct cpa_peer_rule *rule, const struct cpa_peer_request *r)
{
	return rule->holds ? rule->holds(r) : cpa_peer_row_holds(rule->row, r);
}

/* The rule that decides; NULL: none does, and the request is accepted. */
static const struct cpa_peer_rule *find_rule(
	const struct cpa_peer *peer, const struct cpa_peer_request *r)
{
	const struct cpa_peer_rule *rule, *wrong = NULL, *unknown = NULL;

	for (int i = 0; (rule = rule_at(peer, i)) != NULL; i++) {
		if (rule->verdict == CPA_PEER_ACCEPTED || !holds(rule, r))
			continue;
		if (rule->verdict == CPA_PEER_REFUSED)
			return rule;
		if (rule->verdict == CPA_PEER_WRONG)
			wrong = wrong ? wrong : rule;
		else
			unknown = unknown ? unknown : rule;
	}
	if (wrong || unknown)
		return wrong ? wrong : unknown;
	return find_unlisted(peer, r);
}

static void add_notes(struct cpa_peer_answer *answer, const struct cpa_peer *peer,
	const struct cpa_peer_request *r)
{
	const struct cpa_peer_rule *rule;

	for (int i = 0; (rule = rule_at(peer, i)) != NULL; i++)
		if (rule->verdict == CPA_PEER_ACCEPTED && holds(rule, r))
			add_note(answer, rule, r);
}

void cpa_peer_judge(const struct cpa_peer *peer, const struct cpa_peer_request *request,
	struct cpa_peer_answer *answer)
{
	static const struct cpa_peer_rule plain_form = {
		.why = "no form for any length is known there; judged as the plain one"};
	struct cpa_peer_request r = translate(peer, request);
	const struct cpa_peer_rule *rule = find_rule(peer, &r);

	memset(answer, 0, sizeof *answer);
	answer->peer = peer;
	answer->backend = r.backend;
	if (rule)
		decide(answer, rule, &r);
	if (rule && rule->verdict == CPA_PEER_REFUSED)
		return;
	if (r.ring_anything != request->ring_anything ||
		r.ulysses_anything != request->ulysses_anything)
		add_note(answer, &plain_form, &r);
	add_notes(answer, peer, &r);
}

bool cpa_peer_accepts(const struct cpa_peer *peer, const struct cpa_peer_request *request)
{
	struct cpa_peer_request r = translate(peer, request);

	return find_rule(peer, &r) == NULL;
}

/* ---- names ---------------------------------------------------------------------------- */

const struct cpa_peer *cpa_peer_find(const char *name)
{
	for (int i = 0; cpa_peer(i); i++)
		if (strcmp(cpa_peer(i)->name, name) == 0)
			return cpa_peer(i);
	return NULL;
}

enum cpa_status cpa_peer_check_backend(
	const struct cpa_peer *peer, const char *backend, struct cpa_error *error)
{
	const char *names[MAX_BACKENDS];
	char near[80], all[500];
	struct cpa_text text = cpa_text_begin(all, sizeof all);
	int n = 0;

	while (peer->backends && peer->backends[n] && n < MAX_BACKENDS) {
		names[n] = peer->backends[n];
		if (strcmp(names[n], backend) == 0)
			return CPA_OK;
		cpa_text_put(&text, "%s%s", n ? ", " : "", names[n]);
		n++;
	}
	cpa_suggest_text(backend, names, n, near, sizeof near);
	return cpa_fail(error, CPA_INVALID, "--backend: %s has no '%.60s'%s (known: %s)",
		peer->name, backend, near, n ? all : "none");
}
