/*
 * attend_keys.h - a block of keys of a unit: where it lies, or a copy, and which of it each row
 * sees.  Part of attend_template.h.
 */

/* A key block: kept keys [start, end) of a unit. */
struct NAME(block) {
	int64_t start, end;
	const REAL *k, *v;
	int64_t k_step, v_step;
	int64_t mask_at[CPA_KEY_BLOCK]; /* where the mask has them */
};

/* In place where it can be: of the right type and in one piece. */
static const REAL *NAME(place)(const struct cpa_attend_unit *unit, const struct cpa_array *array,
	int64_t j, bool whole, int64_t dim, REAL *copy, int64_t *step)
{
	*step = dim;
	if (!whole || array->dtype != DTYPE)
		return copy;
	*step = array->token;
	return cpa_element(array, cpa_array_index(array, j, unit->b, unit->kv));
}

static void NAME(load_keys)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) * space, struct NAME(block) * block)
{
	const struct cpa_attend *attend = unit->call->attend;
	const struct cpa_problem *problem = attend->problem;
	int64_t before = 0, n = block->end - block->start, done = 0;

	for (int i = 0; i < sight->npieces && done < n; i++) {
		struct cpa_range piece = sight->piece[i];
		int64_t length = piece.end - piece.start, skip = block->start + done - before;
		int64_t j = piece.start + skip,
			count = length - skip < n - done ? length - skip : n - done;

		before += length;
		if (skip >= length)
			continue;
		if (!done) {
			bool whole = count == n;

			block->k = NAME(place)(unit, &attend->k, j, whole, problem->D, space->k,
				&block->k_step);
			block->v = NAME(place)(unit, &attend->v, j,
				whole && !unit->call->copies_v, problem->Dv, space->v,
				&block->v_step);
		}
		if (block->k == space->k)
			NAME(copy_rows)
		(unit, &attend->k, j, count, problem->D, space->k + done * problem->D);
		if (block->v == space->v)
			NAME(copy_rows)
		(unit, &attend->v, j, count, problem->Dv, space->v + done * problem->Dv);
		for (int64_t c = 0; unit->call->k_ids && c < count; c++)
			block->mask_at[done + c] = unit->call->k_ids[j + c] *
				problem->rule.mask.key;
		done += count;
	}
}

/* ---- masks ---- */

/* A table: a branch on each byte costs as much as all the rest. */
static const REAL NAME(bias_of)[] = {-(REAL)INFINITY, 0};

/* bias[j][x] of rows x and keys j from where they lie in a mask of that type. */
#define READ_MASK(read, type, value)                                                             \
	static void read(const void *data, const int64_t *rows, int nrows, const int64_t *keys,  \
		int64_t nkeys, REAL *bias)                                                       \
	{                                                                                        \
		for (int x = 0; x < nrows; x++) {                                                \
			const type *row = (const type *)data + rows[x];                          \
                                                                                                 \
			for (int64_t j = 0; j < nkeys; j++) {                                    \
				type at = row[keys[j]];                                          \
                                                                                                 \
				bias[j * nrows + x] = (REAL)(value);                             \
			}                                                                        \
		}                                                                                \
	}
READ_MASK(NAME(read_truth), uint8_t, NAME(bias_of)[at != 0])
READ_MASK(NAME(read_narrow), float, at)
READ_MASK(NAME(read_wide), double, at)
#undef READ_MASK

/* bias[j][x] of nrows rows and the keys that the mask has at keys[j]. */
static void NAME(read_mask)(const struct cpa_attend_unit *unit, const struct cpa_unit_row *rows,
	int nrows, const int64_t *keys, int64_t nkeys, REAL *bias)
{
	const struct cpa_attend *attend = unit->call->attend;
	const struct cpa_mask *mask = &attend->problem->rule.mask;
	int64_t at[PANEL];

	for (int x = 0; x < nrows; x++)
		at[x] = (attend->batches.start + unit->b) * mask->batch +
			(attend->heads.start + rows[x].h) * mask->head +
			unit->call->q_ids[rows[x].t] * mask->query;
	if (mask->kind == CPA_MASK_BOOL)
		NAME(read_truth)(mask->data, at, nrows, keys, nkeys, bias);
	else if (mask->dtype == CPA_DTYPE_FP64)
		NAME(read_wide)(mask->data, at, nrows, keys, nkeys, bias);
	else
		NAME(read_narrow)(mask->data, at, nrows, keys, nkeys, bias);
}

/* A mask that is the same for all rows is read once for all lanes. */
static void NAME(read_bias)(const struct cpa_attend_unit *unit, struct NAME(space) * space,
	const struct NAME(panel) * panel, const int64_t *keys, struct NAME(step) * step)
{
	const struct cpa_mask *mask = &unit->call->attend->problem->rule.mask;
	int nrows = mask->query || mask->head ? panel->nvectors * WIDE : 1;
	struct cpa_unit_row rows[PANEL];

	for (int x = 0; x < nrows; x++) {
		int i = panel->first + x < unit->n ? panel->first + x : unit->n - 1;

		rows[x] = cpa_unit_row(unit, i);
	}
	NAME(read_mask)(unit, rows, nrows, keys, step->n, space->bias);
	step->bias = space->bias;
	step->bias_per_lane = nrows > 1;
}

/* What each row sees of the keys of a step, counted from the first; false where none sees any:
 * rows may lie far apart. */
static bool NAME(look)(const struct cpa_attend_unit *unit, const struct cpa_sight *sight,
	struct NAME(space) * space, const struct NAME(panel) * panel, int64_t start, int64_t n)
{
	bool any = false;

	for (int x = 0; x < panel->nvectors * WIDE; x++) {
		int i = panel->first + x < unit->n ? panel->first + x : unit->n - 1;
		struct cpa_range seen = *cpa_unit_keys(unit, sight, i);
		int64_t first = seen.start - start, end = seen.end - start;

		first = first < 0 ? 0 : first > n ? n : first;
		end = end < 0 ? 0 : end > n ? n : end;
		any = any || first < end;
		space->first[x] = (REAL)first;
		space->end[x] = (REAL)end;
	}
	return any;
}
