/*
 * fault_output.c - rows of o that end where they do not belong: after the run, on every rank.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/fault_plant.h"
#include "harness/place.h"
#include "harness/ranks.h"

/* One shard of rank, as the fault leaves it.   o, moved [B, Sq, Hq, Dv] */
static enum cpa_status put_back(
	struct cpa_ranks *ranks, int rank, const void *moved, struct cpa_error *error)
{
	struct cpa_coords at = cpa_partition_coords(ranks->partition, rank);
	struct cpa_shard shard = {
		.row_nbytes = cpa_token_nbytes(ranks->problem, CPA_TENSOR_O),
		.S = ranks->problem->Sq,
		.batches = cpa_partition_batches(ranks->partition, at.b),
		.tokens = &ranks->q_shards[rank]};
	struct cpa_box box;
	if (!ranks->execs[rank] ||
		!cpa_schedule_find(
			ranks->schedules[rank], CPA_ROLE_OUTPUT, CPA_TENSOR_O, &box))
		return CPA_OK;
	cpa_shard_gather(&shard, moved, ranks->staging);
	return cpa_place_put(ranks->device, ranks->execs[rank], &box, ranks->staging, error);
}

static void move(const struct cpa_plant *plant, const char *o, char *moved)
{
	const struct cpa_problem *p = plant->problem;
	size_t head = (size_t)p->Dv * cpa_dtype_nbytes(p->dtype);
	for (int64_t n = 0; n < p->B * p->Sq * p->Hq; n++) {
		int64_t b = n / p->Hq / p->Sq, t = n / p->Hq % p->Sq, h = n % p->Hq;
		if (plant->entry->source(&plant->target, &b, &t, &h))
			memcpy(moved + (size_t)n * head,
				o + (size_t)((b * p->Sq + t) * p->Hq + h) * head, head);
		else
			memset(moved + (size_t)n * head, 0, head);
	}
}

enum cpa_status cpa_plant_move_outputs(
	const struct cpa_plant *plant, struct cpa_ranks *ranks, struct cpa_error *error)
{
	if (!plant || !plant->entry->source)
		return CPA_OK;
	const struct cpa_problem *p = plant->problem;
	size_t nbytes = (size_t)(p->B * p->Sq) * cpa_token_nbytes(p, CPA_TENSOR_O);
	char *o = malloc(2 * nbytes);
	enum cpa_status s = o ? cpa_ranks_download(ranks, o, NULL, error)
			      : cpa_fail(error, CPA_NO_MEMORY,
					"out of memory for outputs that change places");
	if (s == CPA_OK)
		move(plant, o, o + nbytes);
	for (int rank = 0; s == CPA_OK && rank < ranks->W; rank++)
		s = put_back(ranks, rank, o + nbytes, error);
	free(o);
	return s;
}
