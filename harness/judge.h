/*
 * judge.h - right or wrong: the rows of full attention, and the rules of NUMERICS section 2 on
 * them.
 */
#ifndef CPA_JUDGE_H
#define CPA_JUDGE_H

#include "harness/inputs.h"
#include "harness/result.h"

/* Full attention in double on some query tokens of one call.  Read-only once made. */
struct cpa_truth {
	struct cpa_problem problem;
	int64_t n;            /* judged query tokens */
	int64_t *tokens;      /* [n] ascending */
	double *o;            /* [B, n, Hq, Dv] */
	double *o_norm;       /* [B, n, Hq]: |o|_2 */
	struct cpa_row *rows; /* [B, n, Hq] */
};

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

/*
 * Judges the outputs of one run.
 *   o    [B, Sq, Hq, Dv]  in, of problem.dtype
 *   lse  [B, Sq, Hq]      in, or NULL: not an output
 *   one_rank [B, Hq]      in, what cpa_judge() measured on one rank of the same device in the
 * same mode; NULL: no soft rule measured [B, Hq]      out, or NULL
 */
struct cpa_judge_run {
	struct cpa_bound_run bound;
	const void *o, *lse;
	const struct cpa_head_error *one_rank;
	struct cpa_head_error *measured;
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

/* Of an array: the first element that is NaN or infinite (-inf passes when asked for); -1:
 * none. */
int64_t cpa_find_not_finite(
	enum cpa_dtype dtype, const void *data, int64_t n, bool minus_inf_passes);

#endif
