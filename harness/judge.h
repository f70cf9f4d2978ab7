/*
 * judge.h - right or wrong: the rows of full attention, and the rules of NUMERICS section 2 on
 * them.
 */
#ifndef CPA_JUDGE_H
#define CPA_JUDGE_H

#include "harness/inputs.h"
#include "harness/result.h"

/* Full attention in double on some query tokens of one call.  Read-only once made.  nb: the batch items
 * that are held: B, or those of one rank. */
struct cpa_truth {
	struct cpa_problem problem;
	struct cpa_rows held; /* what the outputs of a run hold: all, or the rows of one rank */
	int64_t n;            /* judged query tokens */
	int64_t *tokens;      /* [n] ascending */
	int64_t *index;       /* [n] where they stand in the outputs; NULL: token t at t */
	double *o;            /* [nb, n, Hq, Dv] */
	double *o_norm;       /* [nb, n, Hq]: |o|_2 */
	struct cpa_row *rows; /* [nb, n, Hq] */
};

/*
 * Which rows to compute where `asked` rows at least are asked for (0: all up to 1e11 flop, else
 * 256): evenly spread, both ends included.  The caller may add others.
 *   wanted [Sq]  out, the caller's to free; NULL: all rows
 */
enum cpa_status cpa_truth_choose(const struct cpa_problem *problem, int64_t asked, bool **wanted,
	struct cpa_error *error);

/* wanted [Sq]: which query tokens to compute; NULL: all.  Rows run in parallel where OpenMP is
 * built in. */
enum cpa_status cpa_truth_create(const struct cpa_tensors *tensors, const bool *wanted,
	struct cpa_truth **truth, struct cpa_error *error);
void cpa_truth_destroy(struct cpa_truth *truth);

/* How far one head of one batch item is from the truth; of a one-rank run, what the soft rule
 * needs. */
struct cpa_head_error {
	double o_square; /* sum over rows of |o - o*|_2^2 */
	double lse_max;  /* max over rows of |lse - lse*| */
};

struct cpa_judgement {
	bool right;
	struct cpa_deviation o, lse;
	/* Where soft_ratio is: of o, of lse; -1: nowhere. */
	int64_t o_soft_batch, o_soft_head, lse_soft_batch, lse_soft_head;
	bool o_written,
		lse_written; /* every element, judged or not, is finite (lse: or -inf) */
};

/* One head of one batch item, over judged rows. */
struct cpa_judge_tally {
	double n;                        /* rows */
	double o_square, o_floor_square; /* sums of |o - o*|^2 and F_row^2 */
	double lse_max, lse_soft; /* largest error, and largest share of the soft bound */
};
/* What is known once all rows have been seen. */
struct cpa_judge_sums {
	struct cpa_deviation o, lse; /* the worst so far */
	bool o_written, lse_written;
	double want_square, lse_square, lse_want_square;
};

/*
 * Judges the outputs of one run.
 *   o    [nb, rows held, Hq, Dv]  in, of problem.dtype
 *   lse  [nb, rows held, Hq]      in, or NULL: not an output
 *   one_rank [B, Hq]      in, what cpa_judge() measured on one rank of the same device in the
 * same mode; NULL: no soft rule measured [B, Hq]      out, or NULL
 */
struct cpa_judge_run {
	struct cpa_bound_run bound;
	const void *o, *lse;
	const struct cpa_head_error *one_rank;
	struct cpa_head_error *measured;
	/* Where others judged other rows: makes of these sums and heads [B, Hq] those of all rows.  sums
	 * is NULL when there was no memory, which all must learn.  combine NULL: all rows are here. */
	enum cpa_status (*combine)(void *context, struct cpa_judge_sums *sums,
		struct cpa_judge_tally *heads, struct cpa_error *error);
	void *context;
};
enum cpa_status cpa_judge(const struct cpa_truth *truth, const struct cpa_judge_run *run,
	struct cpa_judgement *judgement, struct cpa_error *error);

struct cpa_place {
	int64_t batch, token, head, dim;
};
/* Keeps in *worst where error over bound is largest; NaN counts as infinite.  worst->ratio starts at -1. */
void cpa_deviation_note(
	struct cpa_deviation *worst, double error, double bound, struct cpa_place at);
/* |got - want|; where want is -inf only -inf is 0, all else infinite. */
double cpa_lse_error(double got, double want);
/* -1: nothing noted, not even 0. */
extern const struct cpa_deviation cpa_no_deviation;

/* Of an array: the first element that is NaN or infinite (-inf passes when asked for); -1:
 * none. */
int64_t cpa_find_not_finite(
	enum cpa_dtype dtype, const void *data, int64_t n, bool minus_inf_passes);

#endif
