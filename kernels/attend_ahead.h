/*
 * attend_ahead.h - rows that are wanted soon, asked for while products of others are computed.
 * Part of attend_template.h.
 *
 * While a key block is at work, each panel asks for its share of the next one; in the last block,
 * for its rows of the unit that is likely to follow, and its share of the keys that this begins
 * with.
 */

/* Share `i` of `nshares` of rows [t, t + n) of an array. */
static struct NAME(ahead) NAME(share_of)(const struct cpa_array *array, struct cpa_range rows,
	int64_t b, int64_t h, int i, int nshares)
{
	int64_t size = (int64_t)cpa_dtype_nbytes(array->dtype), n = rows.end - rows.start;
	int64_t first = rows.start + n * i / nshares, end = rows.start + n * (i + 1) / nshares;

	return (struct NAME(ahead)){cpa_element(array, cpa_array_index(array, first, b, h)),
		array->token * size, size, end - first};
}

/* The keys that a unit begins with. */
static struct cpa_range NAME(first_keys)(const struct cpa_attend_unit *unit)
{
	int64_t nq = unit->call->attend->nq, last = unit->token + unit->n - 1;
	const struct cpa_range *visible = unit->call->visible + unit->b * nq;
	struct cpa_range keys = visible[unit->token];

	keys.end = NAME(most)(keys.end, visible[last < nq ? last : nq - 1].end);
	keys.end = NAME(least)(keys.end, keys.start + CPA_KEY_BLOCK);
	keys.start = NAME(least)(keys.start, keys.end);
	return keys;
}

static void NAME(look_to_next)(
	const struct cpa_attend_unit *unit, int i, int npanels, struct NAME(step) * step)
{
	const struct cpa_attend_unit *next = unit->next;
	const struct cpa_attend *attend = unit->call->attend;
	struct cpa_range rows = {next->token, NAME(least)(next->token + next->n, attend->nq)};

	step->next_q = NAME(share_of)(&attend->q, rows, next->b, next->head, i, npanels);
	if (next->b == unit->b && next->kv == unit->kv)
		return; /* they have just been here */
	rows = NAME(first_keys)(next);
	step->next_k = NAME(share_of)(&attend->k, rows, next->b, next->kv, i, npanels);
	step->next_v = NAME(share_of)(&attend->v, rows, next->b, next->kv, i, npanels);
}

/* For panel i of the npanels that see some of a key block. */
static void NAME(look_ahead)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	const struct NAME(block) * block, int i, int npanels, struct NAME(step) * step)
{
	const struct cpa_attend *attend = unit->call->attend;
	int64_t before = sight->piece[0].start;
	struct cpa_range next = {before + block->end,
		before + NAME(least)(block->end + CPA_KEY_BLOCK, sight->nkeys)};

	if (block->end == sight->nkeys) {
		if (unit->next)
			NAME(look_to_next)(unit, i, npanels, step);
		return;
	}
	if (sight->npieces > 1)
		return;
	step->next_k = NAME(share_of)(&attend->k, next, unit->b, unit->kv, i, npanels);
	step->next_v = NAME(share_of)(&attend->v, next, unit->b, unit->kv, i, npanels);
}
