/*
 * record.h - a run of all ranks as a recording, so that it can be checked and diagnosed.
 */
#ifndef CPA_RECORD_H
#define CPA_RECORD_H

#include "harness/ranks.h"

struct cpa_record {
	const char *path; /* written under another name, then renamed */
	const struct cpa_tensors *tensors;
	const struct cpa_guidance *guidance; /* nbranches 0: none */
};
/* Writes q, k, v, the configuration, and of every rank its shards of them and the o and lse that it
 * returned.  context: a struct cpa_record. */
enum cpa_status cpa_record_ranks(
	void *context, struct cpa_ranks *ranks, struct cpa_error *error);

#endif
