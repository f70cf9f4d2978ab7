/*
 * probe_file.h - inputs to be fed to a system of somebody else, because they show what others
 * hide. Private to the command probe.
 */
#ifndef CPA_PROBE_FILE_H
#define CPA_PROBE_FILE_H

#include "harness/recording.h"

/*
 * A problem like that of the call, with what hides faults opened: two batch items at least,
 * lengths that no even number of ranks divides, a scale that is not the default one, masks that
 * differ between heads.  Heads, head sizes, dtype and the kinds of rule stay.  Lists are made in
 * arena.
 */
enum cpa_status cpa_probe_like(const struct cpa_call *call, uint64_t seed,
	struct cpa_arena *arena, struct cpa_problem *problem, struct cpa_error *error);

/* What a fill shows and how to read the answer, in sentences; and the classes of fault, "A01 A09
 * ...". */
const char *cpa_probe_reading(enum cpa_fill fill);
const char *cpa_probe_classes(enum cpa_fill fill);
/* Number i of what inputs of this problem and fill still cannot show, by FAULTS: NULL past the
 * end. */
const char *cpa_probe_hidden_from(const struct cpa_problem *problem, enum cpa_fill fill, int i);

#endif
