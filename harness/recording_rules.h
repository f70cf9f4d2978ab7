/*
 * recording_rules.h - private to recording*.c: an open recording and the rules of the format, cut over
 *   recording.c        opening, listing, reading shards
 *   recording_call.c   one call: attributes and tensors, the problem
 *   recording_keys.c   what decides which keys a query sees: lengths, documents, segments
 *   recording_mask.c   the dense mask and the sink, which are read whole
 *   recording_guidance.c  branches along the batch
 *   recording_ranks.c  what ranks held
 *   recording_config.c how the run was set up
 *   recording_write_ranks.c  both, written
 *   recording_part.c   what one rank recorded alone; recording_merge.c joins such parts
 *   recording_events.c what ranks issued
 *   recording_guard.c  a child process that looks first
 *   recording_scan.c   element values, and small helpers of all
 */
#ifndef CPA_RECORDING_RULES_H
#define CPA_RECORDING_RULES_H

#include "harness/recording.h"
#include "harness/recording_hdf5.h"

#include <sys/types.h>

/* A list in words, cut with "..." when full. */
struct cpa_recording_text {
	char at[1000];
	size_t n;
};

/* Where the tokens of q or k stand, when they were taken before RoPE. */
struct cpa_recording_rope {
	struct cpa_rope rope;
	const int64_t *positions; /* [Sq] or [Skv], in the recording's arena; NULL: after RoPE */
};

enum cpa_recording_stage { CPA_STAGE_LISTED, CPA_STAGE_SHAPED, CPA_STAGE_JUDGED };

struct cpa_recording_entry {
	char where[CPA_H5_WHERE / 2]; /* "/calls/NAME" */
	const char *name;
	bool hard;
	enum cpa_recording_stage stage; /* how far it was checked, up to `status` */
	enum cpa_status status;
	struct cpa_error error;
	struct cpa_h5_names links, attributes;
	bool bhsd;
	struct cpa_call call;
	struct cpa_held *held; /* what call.held points to */
	struct cpa_recording_rope rope_q, rope_k;
	struct cpa_recording_text notes;
};

struct cpa_recording {
	struct cpa_h5 *file;
	bool structure_only; /* tensors are not read: cpa_recording_scan() does nothing */
	bool trusted;        /* cpa_recording_scan() does nothing, but masks are read */
	struct cpa_arena arena;
	int ncalls;
	struct cpa_recording_entry *calls;
};

/* A child process that calls look() on files before they are opened here; child 0: not started. */
struct cpa_recording_guard {
	int fd;
	pid_t child;
};
/* path, or NULL for an image of a file. */
typedef void (*cpa_recording_look)(const char *path, const void *image, size_t nbytes);
enum cpa_status cpa_recording_guard_start(struct cpa_recording_guard *guard, cpa_recording_look look,
	struct cpa_error *error);
/* Returns what waitpid() says. */
int cpa_recording_guard_stop(struct cpa_recording_guard *guard);
/* nbytes is the size of the file in both forms.  Refuses a file with which the child crashes or computes
 * for too long; the guard is stopped then. */
enum cpa_status cpa_recording_guard_ask(struct cpa_recording_guard *guard, const char *path,
	const void *image, size_t nbytes, struct cpa_error *error);

/* Opens an image of a file in memory, for fuzzing.  guard is started when it is not running. */
enum cpa_status cpa_recording_open_image(const void *image, size_t nbytes,
	struct cpa_recording_guard *guard, struct cpa_recording **recording, struct cpa_error *error);

/* The shape of one tensor, whatever the layout; lse has D = 1. */
struct cpa_recording_shape {
	int64_t B, S, H, D;
	enum cpa_dtype dtype;
};

/* "where: sentence", CPA_INVALID. */
enum cpa_status cpa_recording_refuse(struct cpa_error *error, const char *where, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void cpa_recording_add(struct cpa_recording_text *text, const char *separator, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool cpa_recording_has(const struct cpa_h5_names *names, const char *name);
/* Notes each name that is not in known, a list that ends with NULL, as `prefix`name. */
void cpa_recording_note_unknown(struct cpa_recording_entry *entry, const struct cpa_h5_names *names,
	const char *const *known, const char *prefix);
/* path, separator, name; where [CPA_H5_WHERE] out, cut to fit. */
void cpa_recording_join(char *where, const char *path, char separator, const char *name);
/* "[1,4,6]" */
void cpa_recording_print_dims(const struct cpa_h5_array *array, char *text, size_t size);

/* The links of the group at path, all of them hard. */
enum cpa_status cpa_recording_group(struct cpa_recording *recording, const char *path,
	struct cpa_h5_names *links, struct cpa_error *error);
/* Opens path/name and checks that it is a float tensor of the rank that the name asks for. */
enum cpa_status cpa_recording_tensor(struct cpa_recording *recording,
	const struct cpa_recording_entry *entry, const char *path, const char *name,
	struct cpa_h5_array *array, struct cpa_recording_shape *shape, struct cpa_error *error);
/* n integers (or truth values, where `truth`) of an attribute, if it is there. */
enum cpa_status cpa_recording_integers(struct cpa_recording *recording, const char *path,
	const char *attribute, bool truth, int64_t n, int64_t *values, bool *present,
	struct cpa_error *error);
/* The one float of an attribute, if it is there. */
enum cpa_status cpa_recording_number(struct cpa_recording *recording, const char *path,
	const char *attribute, double *value, bool *present, struct cpa_error *error);
/* The index in choices, a list that ends with NULL, of a string attribute; *choice is kept when it is
 * not there. */
enum cpa_status cpa_recording_choice(struct cpa_recording *recording, const char *path,
	const char *attribute, const char *const *choices, int *choice, struct cpa_error *error);

/* Which values an array may hold: finite ones, and -inf where it is said; what ranks returned may
 * be anything, as it is there to be judged. */
enum cpa_recording_values {
	CPA_VALUES_FINITE,
	CPA_VALUES_FINITE_OR_MINUS_INF,
	CPA_VALUES_ANY
};
/* Of a tensor ("q", "o", "lse", ...): of a rank, or of the call itself. */
enum cpa_recording_values cpa_recording_allowed(const char *tensor, bool of_rank);
/* The first of n elements that is not allowed, or -1. */
int64_t cpa_recording_first_bad(enum cpa_dtype dtype, const void *data, int64_t n,
	enum cpa_recording_values allowed);
/* Reads all of a FLOAT, INTEGER or TRUTH dataset in blocks; FLOAT elements are judged. */
enum cpa_status cpa_recording_scan(const struct cpa_recording *recording,
	const struct cpa_h5_array *array, enum cpa_recording_values allowed, struct cpa_error *error);

/* Like cpa_recording_scan(), and hands each block on, as stored but in the byte order of this machine:
 * all elements in their order, n at a time. */
typedef enum cpa_status cpa_recording_taker(void *context, const struct cpa_h5_array *array,
	const void *data, int64_t n, struct cpa_error *error);
enum cpa_status cpa_recording_take(const struct cpa_recording *recording,
	const struct cpa_h5_array *array, enum cpa_recording_values allowed, cpa_recording_taker *take,
	void *context, struct cpa_error *error);

/* What a dataset of a rank holds along one axis: rows (start, count, stride) as recorded. */
struct cpa_recording_axis {
	const char *name;
	char where[CPA_H5_WHERE];
	int64_t limit; /* ids are below it */
	int64_t nrows, *rows;
	int64_t total; /* stored entries, padding included */
};
/* The attribute axis->name of the dataset, else of the rank, else (not where required) all that is below
 * the limit.  Rows are checked, and made in the recording's arena. */
enum cpa_status cpa_recording_axis_read(struct cpa_recording *recording, const char *rank,
	const char *dataset, bool required, struct cpa_recording_axis *axis, struct cpa_error *error);
/* -1 for a name that is not a number at all, -2 for leading zeros or too large a number. */
int64_t cpa_recording_rank_number(const char *name);

/* The links, attributes and layout of a call; then, once entry->call.problem has its sizes, all that is
 * said about it but the data.  Parts of cpa_recording_shape_call(). */
enum cpa_status cpa_recording_open_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
enum cpa_status cpa_recording_say_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);

/* Structure and small values; then the data. */
enum cpa_status cpa_recording_shape_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
enum cpa_status cpa_recording_scan_call(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
/* Parts of cpa_recording_shape_call(); the problem has its sizes. */
enum cpa_status cpa_recording_keys(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error);
/* The mask: whether its shape and type fit; then its data, kept in its own shape. */
enum cpa_status cpa_recording_mask(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error);
enum cpa_status cpa_recording_mask_data(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
/* The data of sink. */
enum cpa_status cpa_recording_sink_data(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
/* What is said of a call that is being written at `where`, but for its tensors and its mask. */
void cpa_recording_write_rules(struct cpa_h5 *file, const char *where, const struct cpa_problem *problem,
	bool bhsd, const char *source);
void cpa_recording_write_config(struct cpa_h5 *file, const char *where,
	const struct cpa_recorded_config *config);
/* config and ranks/ of a call that is being written at `where`.  False: out of memory. */
bool cpa_recording_write_ranks(struct cpa_h5 *file, const char *where, const struct cpa_recorded_run *run);
/* The records of events, if there are any. */
enum cpa_status cpa_recording_events(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error);
bool cpa_recording_write_events(struct cpa_h5 *file, const char *where, const struct cpa_recorded_run *run);
/* config; world 0: the number of ranks is not known. */
enum cpa_status cpa_recording_config(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	int64_t world, struct cpa_error *error);
/* Branches along the batch and their scales. */
enum cpa_status cpa_recording_guidance(struct cpa_recording *recording,
	struct cpa_recording_entry *entry, struct cpa_error *error);
/* config and ranks/, data included. */
enum cpa_status cpa_recording_ranks(struct cpa_recording *recording, struct cpa_recording_entry *entry,
	struct cpa_error *error);

#endif
