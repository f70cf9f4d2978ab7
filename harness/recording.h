/*
 * recording.h - attention calls in HDF5 files.  The only user of hdf5.h is recording_hdf5.c.
 * Encodings: data/README.md.
 *
 * Everything in a file is untrusted: whatever is missing, misshapen, non-finite (but for o and lse
 * of ranks, which are there to be judged), dangling or unreadable is refused as CPA_INVALID, with the
 * path inside the file and what was expected, before any memory that the file merely claims is
 * allocated.
 */
#ifndef CPA_RECORDING_H
#define CPA_RECORDING_H

#include "ref/ref.h"

struct cpa_recording;

/* How a distributed run was set up, as far as the file says. */
struct cpa_recorded_config {
	int64_t batch_degree, ring_degree, ulysses_degree; /* 1 where the file is silent */
	int rotate;                 /* enum cpa_rotate of dist/; -1: not said */
	int convert_to_fp32;        /* 0, 1; -1: not said */
	int split;                  /* enum cpa_split; -1: not said */
	int order;                  /* enum cpa_order; -1: not said */
	const int64_t *sizes;       /* [ring x ulysses] of split given; NULL: none */
	const char *system, *variant, *backend, *mesh; /* free text; NULL: none */
};

/* What one rank of a distributed run held of one tensor, as stored: ids are global, -1 is padding. */
struct cpa_held {
	int rank;
	char tensor[4];      /* "q" "k" "v" "o" "lse" */
	enum cpa_dtype dtype;
	int64_t nbatches, ntokens, nheads, dim; /* of lse 1 */
	const int64_t *batches, *tokens, *heads; /* [nbatches] [ntokens] [nheads] */
};

/*
 * What a rank issued.  send and recv end when they are matched, as without buffers; isend and irecv end
 * at once, and wait ends when all of them so far are matched; between group_begin and group_end sends and
 * receives start together, and group_end ends when all are matched; a collective ends when every member
 * of its communicator has issued it.  A rank that issues nothing more, or done, has finished.
 */
enum cpa_event_kind {
	CPA_EVENT_SEND,
	CPA_EVENT_RECV,
	CPA_EVENT_ISEND,
	CPA_EVENT_IRECV,
	CPA_EVENT_WAIT,
	CPA_EVENT_COLLECTIVE,
	CPA_EVENT_GROUP_BEGIN,
	CPA_EVENT_GROUP_END,
	CPA_EVENT_DONE,
	CPA_NEVENT_KINDS
};
const char *cpa_event_kind_name(enum cpa_event_kind kind);
enum { CPA_MAX_EVENTS = 1 << 18, CPA_MAX_EVENT_RANKS = 1024 };
struct cpa_event {
	int rank;
	enum cpa_event_kind kind;
	int communicator, peer; /* peer: a rank of the run; -1: none */
	int64_t bytes;
};

/* One call of an open file; strings and lists live as long as the recording. */
struct cpa_call {
	const char *name;          /* "00_layer1" */
	struct cpa_problem problem; /* lse = true; rule and scale as recorded */
	/* Present in the file; all of them are in problem.rule, whose arrays the recording owns. */
	bool has_o, has_lse, has_mask, has_window, has_documents, has_key_lengths, has_sink;
	bool has_positions;        /* q and k lie there before RoPE, and are read after it */
	int nsegments, nsegments_kv;
	const struct cpa_segment *segments, *segments_kv;
	struct cpa_guidance guidance; /* branches along the batch, their scales; 0 branches: none */
	int nranks;                /* groups under ranks/; 0: none */
	int world;                 /* ranks that the run had, those that are not in the file too */
	const struct cpa_recorded_config *config; /* NULL: none */
	int nheld;
	const struct cpa_held *held; /* by rank, then in the order q k v o lse */
	int64_t nevents;
	const struct cpa_event *events; /* each rank's in its order of issue; NULL: none */
	const char *notes;         /* unknown names that were ignored, "" when none */
};

/*
 * Opens and lists the calls; the structure of the file is checked, the tensors are not read yet.  HDF5
 * itself crashes on some damaged files, so a child process (fork) goes through the structure first.
 */
enum cpa_status cpa_recording_open(const char *path, struct cpa_recording **recording,
	struct cpa_error *error);
void cpa_recording_close(struct cpa_recording *recording);
int cpa_recording_ncalls(const struct cpa_recording *recording);
/* Number i, with every rule of the format checked, data included (non-finite elements, spans of ranks,
 * config, ...), reading in blocks of bounded size.  A bad call does not spoil the others. */
enum cpa_status cpa_recording_call(struct cpa_recording *recording, int i, const struct cpa_call **call,
	struct cpa_error *error);
const char *cpa_recording_call_name(const struct cpa_recording *recording, int i);
/* From now on the data of tensors is not gone through, because another process does that. */
void cpa_recording_trust(struct cpa_recording *recording);

/*
 * Reads one shard by hyperslab: tensor "q" "k" "v" "o" "lse", batches x tokens x all heads, into
 *   dst [batches, tokens, H, D] of dtype `to`, dense BSHD whatever the layout of the file
 * lse has D = 1.  Where the call has positions, q and k are turned by them, in double and with one
 * rounding to the type of the file, before anything else.  Nothing but the shard is read (chunks that touch it, for compressed files).
 */
enum cpa_status cpa_recording_read(struct cpa_recording *recording, int i, const char *tensor,
	struct cpa_range batches, const struct cpa_spans *tokens, enum cpa_dtype to, void *dst,
	struct cpa_error *error);

/* All of q or k as stored, not turned, into dst [B, S, H, D] of dtype `to`, dense BSHD, with what turns
 * it.  Only of a call that has positions.   positions [S]; both live as long as the recording */
enum cpa_status cpa_recording_read_stored(struct cpa_recording *recording, int i, const char *tensor,
	enum cpa_dtype to, void *dst, const struct cpa_rope **rope, const int64_t **positions,
	struct cpa_error *error);

/* All that the rank held, padding included, into dst [nbatches, ntokens, nheads, dim] of dtype `to`, dense
 * BSHD whatever the layout of the file.  q and k are as stored, not turned by positions. */
enum cpa_status cpa_recording_read_held(struct cpa_recording *recording, int i, const struct cpa_held *held,
	enum cpa_dtype to, void *dst, struct cpa_error *error);

/*
 * Writes a file with one call, to a temporary name beside path that is renamed when complete.
 * The file is made in memory first, which takes about twice its size for a moment.
 * q k v dense BSHD of problem->dtype; o (problem->dtype) and lse (its dtype) may be NULL.  The rule goes
 * with it, the mask in its own shape.
 */
enum cpa_status cpa_recording_write(const char *path, const char *call, const struct cpa_problem *problem,
	const void *q, const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error);
/* Like cpa_recording_write(), of a call whose batch holds branches; guidance NULL or without
 * branches: none. */
enum cpa_status cpa_recording_write_guided(const char *path, const char *call,
	const struct cpa_problem *problem, const struct cpa_guidance *guidance, const void *q,
	const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error);

/* A distributed run to be written with a call: how it was set up, and what its ranks held. */
struct cpa_run_part {
	struct cpa_held held;
	const void *data; /* [nbatches, ntokens, nheads, dim] of held.dtype, dense; lse without dim */
};
struct cpa_recorded_run {
	const struct cpa_recorded_config *config; /* NULL: none */
	int world;                        /* 0: no ranks */
	const struct cpa_run_part *parts; /* [nparts]; ranks that have none are left out */
	int nparts;
	const struct cpa_guidance *guidance; /* NULL: none */
	/* q and k are data before RoPE, which turns them by these; Sq = Skv.  NULL: after it. */
	const int64_t *positions; /* [Sq] */
	const struct cpa_rope *rope;
	const struct cpa_event *events;      /* [nevents]; NULL: none */
	int64_t nevents;
	enum { CPA_EVENT_NUMBERS, CPA_EVENT_ENUM, CPA_EVENT_STRINGS } event_names; /* how kinds are stored */
};
/* Like cpa_recording_write(), with the ranks of a run.  data: q k v o lse.  run NULL: none. */
enum cpa_status cpa_recording_write_run(const char *path, const char *call,
	const struct cpa_problem *problem, const void *const data[5], const struct cpa_recorded_run *run,
	const char *source, struct cpa_error *error);

#endif
