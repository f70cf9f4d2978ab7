/*
 * recording.h - attention calls in HDF5 files.  The only user of hdf5.h is recording_hdf5.c.
 * Encodings: data/README.md.
 *
 * Everything in a file is untrusted: whatever is missing, misshapen, non-finite, dangling or unreadable
 * is refused as CPA_INVALID, with the path inside the file and what was expected, before any memory
 * that the file merely claims is allocated.
 */
#ifndef CPA_RECORDING_H
#define CPA_RECORDING_H

#include "ref/ref.h"

struct cpa_recording;

/* One call of an open file; strings and lists live as long as the recording. */
struct cpa_call {
	const char *name;          /* "00_layer1" */
	struct cpa_problem problem; /* lse = true; rule and scale as recorded */
	/* Present in the file; all of them are in problem.rule, whose arrays the recording owns. */
	bool has_o, has_lse, has_mask, has_window, has_documents, has_key_lengths, has_sink;
	bool has_positions;        /* q and k lie there before RoPE, and are read after it */
	int nsegments, nsegments_kv;
	const struct cpa_segment *segments, *segments_kv;
	int nranks;                /* groups under ranks/; 0: none */
	const char *unsupported;   /* NULL, or "because it has 2 segments (segments), ..." */
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

/*
 * Writes a file with one call, to a temporary name beside path that is renamed when complete.
 * The file is made in memory first, which takes about twice its size for a moment.
 * q k v dense BSHD of problem->dtype; o (problem->dtype) and lse (its dtype) may be NULL.  The rule goes
 * with it, the mask in its own shape.
 */
enum cpa_status cpa_recording_write(const char *path, const char *call, const struct cpa_problem *problem,
	const void *q, const void *k, const void *v, const void *o, const void *lse, const char *source,
	struct cpa_error *error);

#endif
