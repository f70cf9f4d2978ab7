/*
 * peers_instead.c - looks for the request nearest to one that a system refuses, and that it
 * accepts.
 */
#include "harness/peers.h"

enum { MOST_FEWER_WORLDS = 16 };

struct search {
	const struct cpa_peer *peer;
	const struct cpa_peer_request *asked;
	const struct cpa_problem *problem; /* that asked for, or in bf16 */
	struct cpa_text text;
	int nfound;
	bool found_own; /* one of them has the mesh that was asked for */
	bool is_bf16; /* tried in another dtype than was asked for */
};

static const char *variant_name(const struct cpa_peer_request *r)
{
	bool any = r->ring_anything || r->ulysses_anything;

	for (int v = 0; v < CPA_NVARIANTS; v++) {
		const struct cpa_variant_info *info = cpa_variant_info((enum cpa_variant)v);

		if (info->strict != any && info->ring == (r->ring > 1) &&
			info->ulysses == (r->ulysses > 1))
			return info->name;
	}
	return "one rank";
}

static bool is_default(const struct search *s, const char *backend)
{
	return !backend || (s->peer->backends && backend == s->peer->backends[0]);
}

static void found(struct search *s, const struct cpa_peer_request *r)
{
	cpa_text_put(&s->text, "%s%s %dx%dx%d", s->nfound++ ? ", or " : "", variant_name(r),
		r->batch, r->ring, r->ulysses);
	if (!is_default(s, r->backend) || !is_default(s, s->asked->backend))
		cpa_text_put(&s->text, " with --backend %s",
			r->backend ? r->backend : s->peer->backends[0]);
	if (s->is_bf16)
		cpa_text_put(&s->text, " in bf16");
}

/* With the backend asked for, then with each of the others. */
static bool try_backends(struct search *s, struct cpa_peer_request r)
{
	if (cpa_peer_accepts(s->peer, &r)) {
		found(s, &r);
		return true;
	}
	for (int i = 0; s->peer->backends && s->peer->backends[i]; i++) {
		r.backend = s->peer->backends[i];
		if (cpa_peer_accepts(s->peer, &r)) {
			found(s, &r);
			return true;
		}
	}
	return false;
}

/* One way to spread P ranks: both degrees, in the form asked for and in the other. */
static bool try_mesh(struct search *s, int P, int R)
{
	struct cpa_peer_request r = *s->asked;
	bool any = r.ring_anything || r.ulysses_anything;

	r.batch = r.tensor = 1;
	r.world = P;
	r.ring = R;
	r.ulysses = P / R;
	r.rotate = NULL;
	r.own_split = r.keep_dtype = false;
	r.problem = s->problem;
	for (int turn = 0; turn < 2; turn++, any = !any) {
		r.ring_anything = any && r.ring > 1;
		r.ulysses_anything = any && r.ulysses > 1;
		if (try_backends(s, r))
			return true;
	}
	return false;
}

enum kind { KIND_RING, KIND_ULYSSES, KIND_BOTH, NKINDS };

static enum kind kind_of(int R, int U)
{
	return R > 1 && U > 1 ? KIND_BOTH : R > 1 ? KIND_RING : KIND_ULYSSES;
}

/* The mesh asked for first, then one of each other kind, two in all. */
static void try_world(struct search *s, int P)
{
	int asked = s->asked->ring;
	bool same = P == asked * s->asked->ulysses;
	int own = same && try_mesh(s, P, asked) ? (int)kind_of(asked, P / asked) : NKINDS;

	s->found_own |= own != NKINDS;

	for (int kind = KIND_RING; kind < NKINDS && s->nfound < 2; kind++) {
		bool done = kind == own;

		for (int R = P; R >= 1 && !done; R--)
			done = P % R == 0 && (int)kind_of(R, P / R) == kind && try_mesh(s, P, R);
	}
}

static void try_worlds(struct search *s)
{
	int P = s->asked->ring * s->asked->ulysses, last = P - MOST_FEWER_WORLDS;

	for (int p = P; p >= 2 && p >= last && s->nfound == 0; p--)
		try_world(s, p);
	/* Who has no groups for the batch can still use their ranks. */
	if (s->nfound == 0 && s->asked->batch > 1 && s->asked->world > P)
		try_world(s, s->asked->world);
}

void cpa_peer_find_instead(const struct cpa_peer *peer, const struct cpa_peer_request *request,
	struct cpa_peer_answer *answer)
{
	struct cpa_problem bf16 = *request->problem;
	struct search s = {.peer = peer,
		.asked = request,
		.problem = request->problem,
		.text = cpa_text_begin(answer->instead, sizeof answer->instead)};

	if (request->ring < 1 || request->ulysses < 1)
		return;
	try_worlds(&s);
	if (s.nfound > 1 || cpa_peer_is_16_bit(request->problem))
		return;
	bf16.dtype = CPA_DTYPE_BF16;
	s.problem = &bf16;
	s.is_bf16 = true;
	if (s.nfound == 0)
		try_worlds(&s);
	else if (!s.found_own)
		try_mesh(&s, request->ring * request->ulysses, request->ring);
}
