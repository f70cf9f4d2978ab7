/*
 * fault_plant.h - what the table of faults (fault_table.c, fault_*.c), the choice of a place
 * (fault_place.c; fault.c for the first faults) and the doing (fault_effect.c, fault_attend.c,
 * fault_output.c) share; private to them.
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
	CPA_PLANT_LSE_ZERO,
	CPA_PLANT_ATTEND, /* computed by cpa_spoil_attend() instead */
	CPA_PLANT_MERGE   /* merged by cpa_spoil_merge() instead */
};

/* ---- one operation that a fault may be planted in ------------------------------------------ */

struct cpa_site {
	const struct cpa_plant_target *target;
	const struct cpa_partition *part;
	const struct cpa_problem *problem;
	const struct cpa_schedule *schedule;
	int op;
	const struct cpa_op *at;
	struct cpa_coords coords; /* of the rank */
	int block; /* of an ATTEND: ring rank whose keys it reads, -1: replicated keys; else -2 */
};

/* ---- one ATTEND of a faulty rank ------------------------------------------------------------ */

/*
 * It is computed in double from the whole inputs, so that a fault is a change of what is read
 * where.  Indices i of queries and j of keys are those of the ATTEND; the lists start right.
 */
struct cpa_spoil {
	const struct cpa_plant *plant;
	struct cpa_site site;
	struct cpa_problem problem; /* a copy: rule and scale may be changed */
	int64_t nq, nk, nb, nh;
	struct cpa_range batches, heads;
	int64_t *q_id, *k_id;       /* [nq] [nk] tokens as the rule knows them */
	int64_t *q_token;           /* [nq] whose row is read */
	int64_t *k_token, *v_token; /* [nk] likewise; -1: zeros */
	double *times;              /* [nk] how often the key counts */
	int64_t *kv_head, *v_head;  /* [nh] key head of each query head; -1: zeros */
	int64_t *mask_head;         /* [nh] head of the mask */
	int64_t *q_batch, *kv_batch, *rule_batch; /* [nb] batch item of q, of k and v, of the rule */
	int64_t *k_turn, *q_turn;   /* [nk] [nq] positions that RoPE is off by */
	double pads;                /* further keys of score 0 and value 0 */
	bool keeps_lse_of_previous; /* lse is that of the block of the hop before */
	/* Where q or v of (item, index, head) really comes from; all are of the ATTEND.  NULL:
	 * there. */
	void (*q_from)(const struct cpa_spoil *x, int64_t *b, int64_t *i, int64_t *h);
	void (*v_from)(const struct cpa_spoil *x, int64_t *b, int64_t *j, int64_t *kv);
	/* The finished partial of one row.  o [Dv] */
	void (*partial)(const struct cpa_spoil *x, int64_t b, int64_t i, int64_t h, double *o,
		double *lse);
	double *lse_all; /* [nb, nh, nq] partials are written together when this is not NULL */
	void (*all_lse)(const struct cpa_spoil *x, double *lse);
	const double *zeros; /* a row of them */
	struct cpa_arena *arena;
};

/* Row (b, h, t) of an output as it should be; false: zeros stand there. */
typedef bool cpa_fault_source(
	const struct cpa_plant_target *target, int64_t *b, int64_t *t, int64_t *h);

/* a = something like merge(a, b).  seen: how many blocks with keys are in a.   o_a, o_b [Dv] */
typedef void cpa_fault_merge(double *o_a, double *lse_a, const double *o_b, double lse_b,
	int64_t Dv, int64_t seen);

/* ---- the table ------------------------------------------------------------------------------ */

/* Exactly one of attend, merge, source, skip and change is there; the first faults have none. */
struct cpa_fault_entry {
	const char *name, *class; /* class: of the dictionary */
	const char *summary;      /* what goes wrong */
	const char *seen_in;      /* public systems */
	const char *shows;        /* how it is seen */
	const char *needs;        /* what it takes, behind "needs" */
	enum cpa_fault_scope scope;
	int where; /* CPA_WHERE_ bits that may be asked for */
	bool (*touches)(const struct cpa_site *site);
	void (*attend)(struct cpa_spoil *x);
	cpa_fault_merge *merge;
	cpa_fault_source *source;
	bool skip;                                     /* the operation is left out */
	void (*change)(struct cpa_schedule *s, int op); /* of the plan, after the proof */
};
extern const struct cpa_fault_entry cpa_faults_first[];   /* of fault.c, by its numbers */
extern const struct cpa_fault_entry cpa_faults_merging[]; /* A */
extern const struct cpa_fault_entry cpa_faults_lengths[]; /* B */
extern const struct cpa_fault_entry cpa_faults_masks[];   /* C */
extern const struct cpa_fault_entry cpa_faults_layout[];  /* D */
extern const struct cpa_fault_entry cpa_faults_groups[];  /* E, F */
extern const struct cpa_fault_entry cpa_faults_plans[];   /* G */
extern const struct cpa_fault_entry cpa_faults_branches[]; /* H */
const struct cpa_fault_entry *cpa_fault_entry(int i); /* NULL past the end */

/* ---- a planted fault ------------------------------------------------------------------------ */

/* A buffer as it was before its keys were spoilt. */
struct cpa_plant_saved {
	int buffer;
	void *bytes;
};

struct cpa_plant {
	int fault;
	const struct cpa_fault_entry *entry;
	struct cpa_plant_target target;
	const struct cpa_problem *problem;   /* that runs: the target's, or that of a probe */
	const struct cpa_schedule *schedule; /* of the faulty rank, of the first faults */
	struct cpa_plant_site site;
	struct cpa_fault_where where;
	unsigned char **acts; /* [W] [nops] enum cpa_plant_act; NULL: a rank without it */
	struct cpa_plant_saved saved[2];
	int nsaved;
	double *whole[3];    /* q k v, all of them, when first needed */
	const unsigned char *wanted; /* [B, Sq] rows that are looked at, NULL: all */
	unsigned char *seen; /* [B, Sq, Hq] blocks with keys that were merged, or NULL */
};

/* Whether two boxes of one rank share tokens of a buffer. */
bool cpa_plant_overlap(const struct cpa_box *a, const struct cpa_box *b);
/* The last RECV or COLLECTIVE before op that writes what `reader` reads; -1: none. */
int cpa_plant_arrival(
	const struct cpa_schedule *schedule, int op, const struct cpa_operand *reader);
/* The MERGE that takes in what ATTEND number `attend` wrote; -1: it starts an accumulator. */
int cpa_plant_merge_of(const struct cpa_schedule *schedule, int attend);
/* Whether some query row of this ATTEND sees some of its keys. */
bool cpa_plant_sees_keys(const struct cpa_problem *problem, const struct cpa_op *op);
bool cpa_plant_is_key(const struct cpa_operand *operand);
void cpa_plant_drop_saved(struct cpa_plant *plant);
struct cpa_site cpa_site_of(
	const struct cpa_plant_target *target, const struct cpa_schedule *schedule, int op);
bool cpa_site_is_attend(const struct cpa_site *site); /* that sees keys */
bool cpa_site_has_ring(const struct cpa_site *site);  /* likewise, and R > 1 */

/* The first faults: whether it can be here, and which operations change when it is. */
bool cpa_first_fault_is_place(const struct cpa_plant *plant, const struct cpa_site *site);
void cpa_first_fault_mark(struct cpa_plant *plant, int op);

/* Row (b, t, h) of q, k or v (tensor 0, 1, 2); zeros where t or h is -1.   [D] */
const double *cpa_spoil_row(
	const struct cpa_spoil *x, int tensor, int64_t b, int64_t t, int64_t h);
void cpa_spoil_attend(struct cpa_plant *plant, struct cpa_exec *exec, int op);
void cpa_spoil_merge(struct cpa_plant *plant, struct cpa_exec *exec, int op);
/* What an accumulator that starts has seen; after its ATTEND, or the COPY of nothing. */
void cpa_spoil_note_start(struct cpa_plant *plant, struct cpa_exec *exec, int op);

/* ---- who holds what, for the faults ---------------------------------------------------------- */

/* Keys (or queries) in one split segment and nothing else, in contiguous order. */
bool cpa_plant_is_plain(const struct cpa_partition *part, bool keys);
/* The shards of such, on cp ranks 0 .. P: bounds, the largest. */
int64_t cpa_plant_shard_start(const struct cpa_partition *part, bool keys, int cp);
int64_t cpa_plant_largest_shard(const struct cpa_partition *part, bool keys);
/* Keys of ring rank r after the ulysses exchange, the longest of them. */
int64_t cpa_plant_largest_block(const struct cpa_partition *part);

#endif
