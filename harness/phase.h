/*
 * phase.h - where the time of a run goes: a device and communicators that watch the clock.
 *
 * While it is watched, a device or a communicator answers through a table of operations that
 * reads the clock before and after the real one.  Runs are to be watched from one thread at a
 * time.
 */
#ifndef CPA_PHASE_H
#define CPA_PHASE_H

#include "dist/dist.h"
#include "harness/peak.h"

enum cpa_phase {
	CPA_PHASE_ATTEND,
	CPA_PHASE_MERGE,
	CPA_PHASE_COPY,
	CPA_PHASE_EXCHANGE, /* in calls of the communicator that start or end something, and
			       landings */
	CPA_PHASE_WAIT, /* the rest of a run: waiting for messages, and what the executor takes */
	CPA_NPHASES
};
const char *cpa_phase_name(enum cpa_phase phase);

struct cpa_phases {
	double seconds[CPA_NPHASES]; /* WAIT is left to whoever knows the whole */
};

struct cpa_watched_device {
	struct cpa_device_ops ops; /* first */
	const struct cpa_device_ops *real;
	struct cpa_device *device;
	struct cpa_phases *phases;
	void (*progress)(void *context); /* the device's own, and its time in one ATTEND */
	void *progress_context;
	double moving;
};
/* Everything is borrowed until the watch ends. */
void cpa_watch_device(
	struct cpa_watched_device *watch, struct cpa_device *device, struct cpa_phases *phases);
void cpa_unwatch_device(struct cpa_watched_device *watch);

struct cpa_watched_comm {
	struct cpa_comm_ops ops; /* first */
	const struct cpa_comm_ops *real;
	struct cpa_comm *comm;
	struct cpa_phases *phases;
};
/* Like cpa_watch_device(); what a `test` takes that finds nothing done is waiting, and not
 * counted. */
void cpa_watch_comm(
	struct cpa_watched_comm *watch, struct cpa_comm *comm, struct cpa_phases *phases);
void cpa_unwatch_comm(struct cpa_watched_comm *watch);

#endif
