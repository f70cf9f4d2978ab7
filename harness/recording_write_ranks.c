/*
 * recording_write_ranks.c - writes how a distributed run was set up, and what its ranks held.
 */
#include "harness/recording_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_name(struct cpa_h5 *file, const char *path, const char *attribute,
	const char *const *names, int choice)
{
	if (choice >= 0)
		cpa_h5_write_string(file, path, attribute, names[choice]);
}

static void write_text(struct cpa_h5 *file, const char *path, const char *attribute, const char *text)
{
	if (text)
		cpa_h5_write_string(file, path, attribute, text);
}

void cpa_recording_write_config(struct cpa_h5 *file, const char *where,
	const struct cpa_recorded_config *c)
{
	static const char *const rotates[] = {"p2p", "allgather", "direct"};
	static const char *const splits[] = {"equal", "balanced", "ceil", "given"};
	static const char *const orders[] = {"contiguous", "zigzag", "striped"};
	char path[CPA_H5_WHERE];

	cpa_recording_join(path, where, '/', "config");
	cpa_h5_write_group(file, path);
	cpa_h5_write_integer(file, path, "batch_degree", c->batch_degree);
	cpa_h5_write_integer(file, path, "ring_degree", c->ring_degree);
	cpa_h5_write_integer(file, path, "ulysses_degree", c->ulysses_degree);
	write_name(file, path, "rotate", rotates, c->rotate);
	write_name(file, path, "split", splits, c->split);
	write_name(file, path, "order", orders, c->order);
	if (c->sizes)
		cpa_h5_write_integer_list(file, path, "sizes", c->ring_degree * c->ulysses_degree, c->sizes);
	if (c->convert_to_fp32 >= 0)
		cpa_h5_write_integer(file, path, "convert_to_fp32", c->convert_to_fp32);
	write_text(file, path, "system", c->system);
	write_text(file, path, "variant", c->variant);
	write_text(file, path, "backend", c->backend);
	write_text(file, path, "mesh", c->mesh);
}

/* Runs of ids as rows (start, count, stride); -1 in a run is padding, (-1, count, 0). */
static bool write_ids(struct cpa_h5 *file, const char *path, const char *attribute, const int64_t *ids,
	int64_t n)
{
	int64_t *rows = malloc(((size_t)n + 1) * 3 * sizeof *rows), nrows = 0;

	if (!rows)
		return false;
	for (int64_t i = 0, end; i < n; i = end) {
		int64_t stride = ids[i] < 0 ? 0 : 1;

		if (ids[i] >= 0 && i + 1 < n && ids[i + 1] > ids[i])
			stride = ids[i + 1] - ids[i];
		for (end = i + 1; end < n && ids[end] == ids[end - 1] + stride;)
			end++;
		rows[3 * nrows] = ids[i];
		rows[3 * nrows + 1] = end - i;
		rows[3 * nrows + 2] = stride;
		nrows++;
	}
	cpa_h5_write_integer_table(file, path, attribute, nrows, 3, rows);
	free(rows);
	return true;
}

static bool write_part(struct cpa_h5 *file, const char *ranks, const struct cpa_run_part *part)
{
	const struct cpa_held *held = &part->held;
	const int64_t dims[4] = {held->nbatches, held->ntokens, held->nheads, held->dim};
	char path[CPA_H5_WHERE];

	snprintf(path, sizeof path, "%s/%d/%s", ranks, held->rank, held->tensor);
	cpa_h5_write_array(file, path, held->dtype, held->tensor[0] == 'l' ? 3 : 4, dims, part->data);
	return write_ids(file, path, "batches", held->batches, held->nbatches) &&
	       write_ids(file, path, "tokens", held->tokens, held->ntokens) &&
	       write_ids(file, path, "heads", held->heads, held->nheads);
}

bool cpa_recording_write_ranks(struct cpa_h5 *file, const char *where, const struct cpa_recorded_run *run)
{
	char ranks[CPA_H5_WHERE / 2 + 20], path[CPA_H5_WHERE];
	bool made = true;

	if (run->config)
		cpa_recording_write_config(file, where, run->config);
	snprintf(ranks, sizeof ranks, "%.300s/ranks", where);
	cpa_h5_write_group(file, ranks);
	cpa_h5_write_integer(file, ranks, "world_size", run->world);
	for (int rank = 0; rank < run->world && made; rank++) {
		bool any = false;

		for (int i = 0; i < run->nparts && made; i++) {
			if (run->parts[i].held.rank != rank)
				continue;
			snprintf(path, sizeof path, "%s/%d", ranks, rank);
			if (!any)
				cpa_h5_write_group(file, path);
			any = true;
			made = write_part(file, ranks, &run->parts[i]);
		}
	}
	return made;
}
