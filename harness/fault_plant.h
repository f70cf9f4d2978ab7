/*
 * fault_plant.h - a planted fault, between choosing its place (fault.c) and doing it
 * (fault_effect.c); private to them.
 */
#ifndef CPA_FAULT_PLANT_H
#define CPA_FAULT_PLANT_H

#include "harness/fault.h"

/* What happens around one operation. */
enum cpa_plant_act {
	CPA_PLANT_NOTHING,
	CPA_PLANT_SKIP,
	CPA_PLANT_BASE_2,
	CPA_PLANT_SWAP,
	CPA_PLANT_EXTRA_KEY,
	CPA_PLANT_WRONG_KEYS,
	CPA_PLANT_STALE_KEYS,
	CPA_PLANT_LSE_ZERO
};

/* A buffer as it was before its keys were spoilt. */
struct cpa_plant_saved {
	int buffer;
	void *bytes;
};

struct cpa_plant {
	int fault;
	struct cpa_plant_target target;
	const struct cpa_schedule *schedule; /* of the faulty rank */
	struct cpa_plant_site site;
	unsigned char *acts; /* [nops] enum cpa_plant_act */
	struct cpa_plant_saved saved[2];
	int nsaved;
};

/* Whether two boxes of one rank share tokens of a buffer. */
bool cpa_plant_overlap(const struct cpa_box *a, const struct cpa_box *b);
/* The last RECV or COLLECTIVE before op that writes what `reader` reads; -1: none. */
int cpa_plant_arrival(
	const struct cpa_schedule *schedule, int op, const struct cpa_operand *reader);
bool cpa_plant_is_key(const struct cpa_operand *operand);
void cpa_plant_drop_saved(struct cpa_plant *plant);

#endif
