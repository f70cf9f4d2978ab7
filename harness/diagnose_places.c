/*
 * diagnose_places.c - in which shard tokens lie, and at which index of it.
 */
#include "harness/diagnose_take.h"

static void *make(struct cpa_suspect *s, int64_t n, size_t size)
{
	return cpa_arena_alloc(&s->arena, ((size_t)n + 1) * size);
}

static int shard_of(const struct cpa_suspect *s, enum cpa_level level, int cp)
{
	if (level == CPA_LEVEL_ALL)
		return 0;
	if (cp < 0)
		return -1;
	return level == CPA_LEVEL_RING	   ? cp / (int)s->U
		: level == CPA_LEVEL_OUTER ? cp % (int)s->R
					   : cp;
}

static void lay_out(struct cpa_suspect *s, enum cpa_level level, int64_t S, const int *rank,
	struct cpa_places_of *p)
{
	int64_t at = 0;

	p->n = level == CPA_LEVEL_ALL ? 1 : (int)(level == CPA_LEVEL_RANK ? s->R * s->U : s->R);
	p->shard = make(s, S, sizeof *p->shard);
	p->index = make(s, S, sizeof *p->index);
	p->start = make(s, p->n, sizeof *p->start);
	p->tokens = make(s, S, sizeof *p->tokens);
	if (s->arena.failed)
		return;
	for (int r = 0; r < p->n; r++) {
		p->start[r] = at;
		for (int64_t t = 0; t < S; t++) {
			p->shard[t] = shard_of(s, level, rank[t]);
			if (p->shard[t] != r)
				continue;
			p->index[t] = at - p->start[r];
			p->tokens[at++] = t;
		}
		p->start[r + 1] = at;
		if (at - p->start[r] > p->longest)
			p->longest = at - p->start[r];
	}
}

void cpa_places_init(struct cpa_suspect *s)
{
	s->places = make(s, 1, sizeof *s->places);
	for (int level = 0; level < CPA_NLEVELS && !s->arena.failed; level++) {
		lay_out(s, (enum cpa_level)level, s->problem->Sq, s->query_rank,
			&s->places->at[CPA_SIDE_Q][level]);
		lay_out(s, (enum cpa_level)level, s->problem->Skv, s->key_rank,
			&s->places->at[CPA_SIDE_KV][level]);
	}
}

int64_t cpa_places_padded(const struct cpa_places_of *p, int64_t x)
{
	int64_t shard = p->longest > 0 ? x / p->longest : p->n;

	return shard < p->n ? cpa_places_token(p, (int)shard, x % p->longest) : -1;
}

bool cpa_places_striped(const struct cpa_suspect *s)
{
	const struct cpa_places_of *p = cpa_places(s, CPA_SIDE_KV, CPA_LEVEL_RANK);

	return p->n > 1 && cpa_places_size(p, 0) > 1 && p->tokens[1] - p->tokens[0] == p->n;
}
