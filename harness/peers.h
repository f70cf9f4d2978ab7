/*
 * peers.h - how other systems judge a configuration: accepted there or refused, where and with
 * which error, known to be wrong without a word, and what works instead.
 *
 * A system is a table of rules about a request.  They were read in its source at the version that
 * stands with it, and some were run; what was not read is "not known", never guessed.
 */
#ifndef CPA_PEERS_H
#define CPA_PEERS_H

#include "dist/schedule.h"
#include "harness/text.h"

/* What is asked of a system: one attention on one mesh. */
struct cpa_peer_request {
	const struct cpa_problem *problem;
	int world; /* ranks that there are */
	int batch, ring, ulysses; /* N R U; 0 and less can be asked for too */
	bool ring_anything,
		ulysses_anything; /* the forms for any length; both: unified_anything */
	int tensor; /* degree of tensor parallelism beside it; 1: none */
	enum cpa_order order;
	enum cpa_mesh mesh;
	bool own_split; /* sizes are given, or cut otherwise than the system cuts */
	const char *rotate; /* asked for by name; NULL: what the system does by default */
	const char *backend; /* NULL: the default of the system */
	bool keep_dtype; /* Diffusers: convert_to_fp32=False */
	bool no_plan; /* the model has no published plan of cuts */
};
/* The request that a configuration of cpattn stands for.  Borrows problem. */
struct cpa_peer_request cpa_peer_request_of(
	const struct cpa_problem *problem, const struct cpa_config *config);

enum cpa_peer_verdict {
	CPA_PEER_ACCEPTED,
	CPA_PEER_REFUSED,
	CPA_PEER_WRONG, /* it runs, and what it returns is wrong */
	CPA_PEER_NOT_KNOWN
};
const char *cpa_peer_verdict_name(enum cpa_peer_verdict verdict); /* "not_known" */

struct cpa_peer;
struct cpa_peer_rule;
struct cpa_peer_answer {
	const struct cpa_peer *peer;
	const char *backend; /* that was judged; borrowed */
	enum cpa_peer_verdict verdict;
	const struct cpa_peer_rule *rule; /* that decided; NULL: none had to */
	const char *stage; /* "split hook"; NULL: not known, or none */
	const char *fault; /* class of what is wrong, "B03"; NULL */
	char error[320]; /* "ValueError: text"; "": none, or not known */
	char why[400]; /* a sentence or two; "" */
	char instead[200]; /* the nearest that is accepted; "": none was found, or none is needed
			    */
	char notes[700]; /* what else is worth knowing; "" */
};

/* The requests that many systems were asked, so that their answers can be compared. */
enum cpa_peer_row {
	CPA_PEER_ROW_NONE, /* a rule of this system alone */
	CPA_PEER_ROW_LENGTH, /* a length that the ranks do not divide, where none is expected */
	CPA_PEER_ROW_HEADS, /* heads that the ulysses degree does not divide */
	CPA_PEER_ROW_ANYTHING, /* a form for any length with both degrees above 1 */
	CPA_PEER_ROW_MASK, /* a mask on a ring */
	CPA_PEER_ROW_CAUSAL,
	CPA_PEER_ROW_GQA,
	CPA_PEER_ROW_WORLD, /* degrees whose product is not the world */
	CPA_PEER_ROW_LSE, /* a ring on a backend that returns no lse */
	CPA_PEER_ROW_TENSOR, /* tensor parallelism beside it */
	CPA_PEER_NROWS
};
bool cpa_peer_row_holds(enum cpa_peer_row row, const struct cpa_peer_request *request);

/* Rules in the order in which the system looks: of those that hold the first refusal decides,
 * then what is wrong, then what is not known; those that accept leave notes. */
struct cpa_peer_rule {
	enum cpa_peer_row row;
	bool (*holds)(const struct cpa_peer_request *); /* NULL: as the row says */
	enum cpa_peer_verdict verdict;
	const char *stage;
	const char *exception, *message; /* "ValueError"; NULL: not known */
	const char *fault;
	const char *why;
	/* With the numbers of the request, instead of message and why; NULL: as above. */
	void (*put_message)(const struct cpa_peer_request *, struct cpa_text *);
	void (*put_why)(const struct cpa_peer_request *, struct cpa_text *);
};

enum { CPA_PEER_NPARTS = 3 };
struct cpa_peer {
	const char *name, *repository, *version; /* commit, and its date where that is known */
	const char *summary;
	const char *const
		*backends; /* names that --backend may say, NULL last; the first is default */
	bool ring_anything, ulysses_anything; /* whether such a form is known */
	bool batch_groups; /* its mesh has an axis for the batch */
	bool any_row; /* a row without a rule is accepted; else it is not known */
	struct {
		const struct cpa_peer_rule *at;
		int n;
	} parts[CPA_PEER_NPARTS]; /* of its rules, in order */
};
const struct cpa_peer *cpa_peer(int i); /* NULL past the end; Diffusers first */
const struct cpa_peer *cpa_peer_find(const char *name); /* NULL: none */

/* A name for a backend that returns no lse, where a system has names of its own or none. */
extern const char cpa_peer_no_lse[];
/* CPA_INVALID with "did you mean" where the system has no such backend. */
enum cpa_status cpa_peer_check_backend(
	const struct cpa_peer *peer, const char *backend, struct cpa_error *error);

/* The verdict with its reason, without what works instead.  A pure function. */
void cpa_peer_judge(const struct cpa_peer *peer, const struct cpa_peer_request *request,
	struct cpa_peer_answer *answer);
/* Whether that is CPA_PEER_ACCEPTED. */
bool cpa_peer_accepts(const struct cpa_peer *peer, const struct cpa_peer_request *request);
/* Writes to answer->instead the nearest that the system accepts: another backend, another form or
 * mesh on as many ranks, then on fewer, then in bf16. */
void cpa_peer_find_instead(const struct cpa_peer *peer, const struct cpa_peer_request *request,
	struct cpa_peer_answer *answer);

/* ---- parts of requests, for the tables ------------------------------------------------ */

/* The first split segment of queries or keys that P ranks do not divide, or that is shorter than
 * P; NULL: none. */
const struct cpa_segment *cpa_peer_uneven_segment(
	const struct cpa_problem *problem, int64_t P, struct cpa_segment *whole);
const struct cpa_segment *cpa_peer_short_segment(
	const struct cpa_problem *problem, int64_t P, struct cpa_segment *whole);
/* Cross-attention whose keys every rank has: nothing is exchanged. */
bool cpa_peer_is_local(const struct cpa_problem *problem);
bool cpa_peer_has_replicated(const struct cpa_problem *problem);
/* Keys that rank r of P has if the first S % P ranks get one more of every split segment. */
int64_t cpa_peer_nkeys(const struct cpa_problem *problem, int64_t P, int64_t r);
/* Which keys are hidden in the same way from every query and head; and in another way. */
bool cpa_peer_masks_keys(const struct cpa_problem *problem);
bool cpa_peer_masks_pairs(const struct cpa_problem *problem);
bool cpa_peer_has_window(const struct cpa_problem *problem);
bool cpa_peer_has_documents(const struct cpa_problem *problem);
bool cpa_peer_is_16_bit(const struct cpa_problem *problem);
/* Whether ranks exchange anything; and on a ring, in which form. */
bool cpa_peer_exchanges(const struct cpa_peer_request *request);
bool cpa_peer_on_ring(const struct cpa_peer_request *request);
bool cpa_peer_is_causal_ring(const struct cpa_peer_request *request);
bool cpa_peer_is_window_ring(const struct cpa_peer_request *request);
bool cpa_peer_is_fp64_ring(const struct cpa_peer_request *request);
bool cpa_peer_exchanges_replicated(const struct cpa_peer_request *request);
/* A sink, a window, a mask without a ring: the common rows do not ask for these. */
bool cpa_peer_is_beyond_rows(const struct cpa_peer_request *request);
int64_t cpa_peer_nranks(const struct cpa_peer_request *request); /* ring x ulysses */
bool cpa_peer_backend_is(const struct cpa_peer_request *request, const char *name);

#endif
