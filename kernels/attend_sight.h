/*
 * attend_sight.h - which keys a panel sees: what of a step needs no mask, and which of its
 * vectors need not meet which keys.  Part of attend_template.h.
 */

static int64_t NAME(least)(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t NAME(most)(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void NAME(sight_of_panel)(const struct cpa_attend_unit *unit,
	const struct cpa_sight *sight, struct NAME(panel) * panel)
{
	struct cpa_range all = {0, INT64_MAX};

	panel->hull = (struct cpa_range){INT64_MAX, 0};
	panel->ascends = CUTS(panel->nvectors);
	for (int x = 0; x < panel->nvectors; x++) {
		struct cpa_range hull = {INT64_MAX, 0};
		int first = panel->first + x * WIDE;

		for (int i = first; i < first + WIDE && i < unit->n; i++) {
			struct cpa_range keys = *cpa_unit_keys(unit, sight, i);

			hull.start = NAME(least)(hull.start, keys.start);
			hull.end = NAME(most)(hull.end, keys.end);
			all.start = NAME(most)(all.start, keys.start);
			all.end = NAME(least)(all.end, keys.end);
		}
		panel->seen[x] = hull;
		panel->ascends = panel->ascends && hull.start < hull.end &&
			(!x ||
				(hull.start >= panel->seen[x - 1].start &&
					hull.end >= panel->seen[x - 1].end));
		panel->hull.start = NAME(least)(panel->hull.start, hull.start);
		panel->hull.end = NAME(most)(panel->hull.end, hull.end);
	}
	panel->all = all;
}

/* Cuts the keys of a step by which vectors see them, in whole tiles; key 0 is `start`. */
static void NAME(find_runs)(
	struct NAME(step) * step, const struct NAME(panel) * panel, int64_t start)
{
	int nvectors = panel->nvectors;
	const struct cpa_range *seen = panel->seen;
	struct NAME(run) *run = NULL;

	step->nruns = 0;
	for (int64_t j = 0; j < step->n; j += ROWS) {
		int64_t to = NAME(least)(j + ROWS, step->n);
		int first = 0, end = nvectors;

		if (panel->ascends && to == j + ROWS) {
			while (first < nvectors - 1 && seen[first].end <= start + j)
				first++;
			while (!first && end > 1 && seen[end - 1].start >= start + to)
				end--;
		}
		if (!run || run->first != first || run->end != end) {
			run = &step->runs[step->nruns++];
			*run = (struct NAME(run)){j, to, first, end};
		}
		run->to = to;
	}
}

/* The panels that see some of a key block; how many. */
static int NAME(panels_seeing)(struct NAME(panel) * panels, int npanels,
	const struct NAME(block) * block, struct NAME(panel) * *seeing)
{
	int n = 0;

	for (int i = 0; i < npanels; i++)
		if (panels[i].hull.start < block->end && panels[i].hull.end > block->start)
			seeing[n++] = &panels[i];
	return n;
}

/* Tiles of keys that lie wholly within those that all rows see need no mask. */
static void NAME(find_clear)(struct NAME(step) * step, struct cpa_range all, int64_t start)
{
	int64_t clear = NAME(most)(all.start - start, 0), end = all.end - start;

	clear = clear < step->n ? (clear + ROWS - 1) / ROWS * ROWS : step->n;
	end = end >= step->n ? step->n : end < 0 ? 0 : end / ROWS * ROWS;
	if (step->bias || clear >= end)
		clear = end = step->n;
	step->clear = clear;
	step->clear_end = end;
}
